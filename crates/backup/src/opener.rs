//! The target of the moment: opened once, and anew when it is another.

use std::collections::BTreeMap;
use std::fmt;

use parking_lot::Mutex;

use crate::store::{BackupStore, Owner};
use crate::target::{TargetError, open_url};

/// Opens targets for one process, whose locks are one owner's.
pub struct Opener {
    owner: Owner,
    last: Mutex<Option<Opened>>,
}

struct Opened {
    url: String,
    secret: BTreeMap<String, String>,
    store: BackupStore,
}

impl fmt::Debug for Opener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Opener").field("owner", &self.owner).finish_non_exhaustive()
    }
}

impl Opener {
    pub fn new(owner: Owner) -> Self {
        Self { owner, last: Mutex::default() }
    }

    /// What an address names, with the entries of its Secret. Nothing is asked of the target yet.
    pub fn store(&self, url: &str, secret: &BTreeMap<String, String>) -> Result<BackupStore, TargetError> {
        let mut last = self.last.lock();
        if let Some(same) = last.as_ref().filter(|last| last.url == url && last.secret == *secret) {
            return Ok(same.store.clone());
        }
        let store = BackupStore::new(open_url(url, secret)?, self.owner.clone());
        *last = Some(Opened { url: url.to_owned(), secret: secret.clone(), store: store.clone() });
        Ok(store)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::{Fault, check};

    #[tokio::test]
    async fn a_target_is_what_its_address_says() {
        let opener = Opener::new(Owner::new("test").unwrap());
        let dir = tempfile::tempdir().unwrap();
        let store = opener.store(&format!("file://{}", dir.path().display()), &BTreeMap::new()).unwrap();
        check(store.target()).await.unwrap();
        let fault = opener.store("ftp://x", &BTreeMap::new()).unwrap_err().fault;
        assert_eq!(fault, Fault::Configuration);
        assert!(!format!("{opener:?}").contains("secret"));
    }
}
