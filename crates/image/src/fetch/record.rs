//! What is known about a part file: of what it is a part, and how much of it to trust.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::spool::OnDurable;

/// Changes with every boot of the host.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
struct Facts {
    url: String,
    validator: Option<String>,
    total: Option<u64>,
    /// During this boot the length of the part file says how much came. After another one, the file system may have lost what
    /// it had not yet written, and only `durable` bytes are sure.
    boot: String,
    durable: u64,
}

/// Kept in a file beside the part.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    path: Option<PathBuf>,
    facts: Arc<Mutex<Facts>>,
}

impl Record {
    /// What is known from before about a download of this URL, and from which byte it can go on.
    pub(crate) fn load(path: &Path, url: &str) -> (Self, u64) {
        let boot = boot_id();
        let before = fs::read(path).ok().and_then(|bytes| serde_json::from_slice::<Facts>(&bytes).ok());
        let before = before.filter(|facts| facts.url == url && facts.validator.is_some());
        let offset = match &before {
            None => 0,
            Some(facts) if facts.boot == boot => u64::MAX,
            Some(facts) => facts.durable,
        };
        let facts = Facts { url: url.to_owned(), boot, ..before.unwrap_or_default() };
        let facts = Facts { durable: facts.durable.min(offset), ..facts };
        (Self { path: Some(path.to_owned()), facts: Arc::new(Mutex::new(facts)) }, offset)
    }

    pub(crate) fn validator(&self) -> Option<String> {
        self.facts.lock().validator.clone()
    }

    pub(crate) fn total(&self) -> Option<u64> {
        self.facts.lock().total
    }

    /// The first bytes are about to come.
    pub(crate) fn begin(&self, validator: Option<String>, total: Option<u64>) {
        self.change(|facts| {
            facts.validator = validator;
            facts.total = total;
            facts.durable = 0;
        });
    }

    pub(crate) fn on_durable(&self) -> OnDurable {
        let record = self.clone();
        Arc::new(move |durable| record.change(|facts| facts.durable = durable))
    }

    /// Losing this costs a download from the beginning, so failing to write it is no failure.
    fn change(&self, change: impl FnOnce(&mut Facts)) {
        let mut facts = self.facts.lock();
        change(&mut facts);
        let Some(path) = &self.path else { return };
        let temporary = path.with_extension("record-new");
        let written = serde_json::to_vec(&*facts).map_err(std::io::Error::from);
        let written =
            written.and_then(|bytes| fs::write(&temporary, bytes)).and_then(|()| fs::rename(&temporary, path));
        if let Err(error) = written {
            tracing::debug!(path = %path.display(), %error, "cannot note how far a download is");
        }
    }
}

fn boot_id() -> String {
    fs::read_to_string(BOOT_ID).unwrap_or_default().trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_trusted_depends_on_the_boot_the_url_and_the_validator() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.record");
        let (record, offset) = Record::load(&path, "http://a/");
        assert_eq!(offset, 0);
        record.begin(Some("\"1\"".to_owned()), Some(100));
        record.on_durable()(40);

        let (record, offset) = Record::load(&path, "http://a/");
        assert_eq!((offset, record.total()), (u64::MAX, Some(100)), "the length of the file counts");
        assert_eq!(Record::load(&path, "http://b/").1, 0, "another URL");

        let text = fs::read_to_string(&path).unwrap().replace(&boot_id(), "another boot");
        fs::write(&path, text).unwrap();
        assert_eq!(Record::load(&path, "http://a/").1, 40, "only what was flushed");

        let (record, _) = Record::load(&path, "http://a/");
        record.begin(None, Some(100));
        assert_eq!(Record::load(&path, "http://a/").1, 0, "nothing to recognise the file by");
    }
}
