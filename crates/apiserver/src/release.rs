//! Which release wrote the store, and what this one may do with it: docs/upgrades.md.
//!
//! The ConfigMap `kube-system/croft-release` says so. A release opens what it and all before it wrote, and what the next one
//! wrote: that is how one goes back. It refuses what is newer still, before it has written anything.

use std::fmt;
use std::sync::Arc;

use croft_meta::ApiError;
use croft_store::Store;
use serde_json::{Value, json};

use crate::bootstrap;
use crate::cache;
use crate::server::{ApiServer, StartError};

/// All releases up to this one, in order. Their places in it are what is compared; a release of bug fixes has none of its own.
const RELEASES: [&str; 1] = ["0.1"];
const NAMESPACE: &str = "kube-system";
const NAME: &str = "croft-release";

/// The place of this program among the releases, from 1.
pub(crate) fn own() -> u32 {
    u32::try_from(RELEASES.len()).unwrap_or(u32::MAX)
}

/// What the store says about who wrote it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    /// The newest program that ever opened it, and its place among the releases.
    pub(crate) program: String,
    pub(crate) release: u32,
    /// The oldest release that can make sense of it.
    pub(crate) readable_from: u32,
    /// Migrations that are done, by their names.
    pub(crate) migrated: Vec<String>,
}

/// The store is from a later release than one can go back from.
#[derive(Debug, thiserror::Error)]
#[error(
    "the store was written by Croft {program}, which is {ahead} releases newer than this program, {own}; one can go back by \
     one release: start {program} again, or the release before it"
)]
pub struct TooNew {
    program: String,
    ahead: u32,
    own: &'static str,
}

impl Mark {
    /// As it is written by a release of this place.
    fn new(release: u32) -> Self {
        let program = env!("CARGO_PKG_VERSION").to_owned();
        Self { program, release, readable_from: release.saturating_sub(1).max(1), migrated: Vec::new() }
    }

    fn from_data(data: &Value) -> Option<Self> {
        let text = |field: &str| data[field].as_str();
        let number = |field: &str| text(field)?.parse::<u32>().ok();
        let migrated = text("migrated").unwrap_or_default().split_whitespace().map(str::to_owned).collect();
        Some(Self {
            program: text("program")?.to_owned(),
            release: number("release")?,
            readable_from: number("readableFrom")?,
            migrated,
        })
    }

    fn to_object(&self) -> Value {
        json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": { "name": NAME, "namespace": NAMESPACE },
            "data": {
                "program": self.program, "release": self.release.to_string(),
                "readableFrom": self.readable_from.to_string(), "migrated": self.migrated.join(" "),
            },
        })
    }

    /// What it is once a program of the release `own`, which knows these migrations, has opened the store. It never goes down:
    /// what a newer release wrote is still there.
    fn opened_by(&self, own: u32, known: &[&str]) -> Self {
        let mut next = Self::new(own);
        if self.release > own {
            next.program.clone_from(&self.program);
        }
        next.release = next.release.max(self.release);
        next.readable_from = next.readable_from.max(self.readable_from);
        // What this program does not know of, it may undo: then it is to be done again.
        next.migrated = self.migrated.iter().filter(|name| known.contains(&name.as_str())).cloned().collect();
        next
    }
}

/// How this program stands to the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// The store is new, or was last opened by this release or one before it.
    Current,
    /// A later release has been here: what it made is left as it is.
    Behind,
}

impl fmt::Display for Standing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if *self == Self::Behind { "behind" } else { "current" })
    }
}

/// Read from the store: the cache begins a little while ago.
async fn found(store: &dyn Store) -> croft_store::Result<Option<Mark>> {
    let key = format!("{}core/configmaps/{NAMESPACE}/{NAME}", cache::ROOT);
    let Some(record) = store.get(&key).await? else { return Ok(None) };
    let object: Value = serde_json::from_slice(&record.value).unwrap_or_default();
    let mark = Mark::from_data(&object["data"]);
    if mark.is_none() {
        tracing::warn!("the ConfigMap {NAMESPACE}/{NAME} makes no sense and is written anew");
    }
    Ok(mark)
}

/// Whether this program may open the store.
pub(crate) async fn check(store: &dyn Store) -> Result<Standing, StartError> {
    match found(store).await? {
        Some(mark) => Ok(standing(&mark, own())?),
        None => Ok(Standing::Current),
    }
}

fn standing(mark: &Mark, own: u32) -> Result<Standing, TooNew> {
    if mark.readable_from > own {
        let ahead = mark.release.saturating_sub(own);
        return Err(TooNew { program: mark.program.clone(), ahead, own: env!("CARGO_PKG_VERSION") });
    }
    Ok(if mark.release > own { Standing::Behind } else { Standing::Current })
}

/// Says in the store that this program has opened it, before it writes anything else. Returns what is migrated.
pub(crate) async fn mark(server: &Arc<ApiServer>, known: &[&str]) -> Result<Mark, ApiError> {
    let before = found(&*server.store).await.map_err(cache::store_error)?;
    let now = before.as_ref().map_or_else(|| Mark::new(own()), |mark| mark.opened_by(own(), known));
    if before.as_ref().is_some_and(|before| before.release < now.release) {
        tracing::info!(
            from = before.as_ref().map(|before| before.program.as_str()),
            to = now.program,
            "the store is taken over from an earlier release"
        );
    }
    write(server, &now).await?;
    Ok(now)
}

pub(crate) async fn write(server: &Arc<ApiServer>, mark: &Mark) -> Result<(), ApiError> {
    bootstrap::refresh(server, mark.to_object()).await
}

#[cfg(test)]
mod tests {
    use super::*;

    fn marked(release: u32, readable_from: u32, migrated: &[&str]) -> Mark {
        let migrated = migrated.iter().map(|name| (*name).to_owned()).collect();
        Mark { program: format!("0.{release}.0"), release, readable_from, migrated }
    }

    #[test]
    fn the_last_release_is_this_program() {
        let version = env!("CARGO_PKG_VERSION");
        let release = version.rsplit_once('.').map(|(release, _)| release);
        // A new release has a new row, keeps its data directory in tests/releases, and may run the migrations of the one before.
        assert_eq!(release, RELEASES.last().copied());
    }

    #[test]
    fn one_can_go_back_by_one_release() {
        for (wrote, opens, expected) in [
            (1, 1, Ok(Standing::Current)),
            (1, 2, Ok(Standing::Current)),
            (1, 7, Ok(Standing::Current)),
            (2, 1, Ok(Standing::Behind)),
            (3, 2, Ok(Standing::Behind)),
            (3, 1, Err(2)),
            (9, 4, Err(5)),
        ] {
            let found = standing(&Mark::new(wrote), opens).map_err(|error| error.ahead);
            assert_eq!(found, expected, "{opens} opens what {wrote} wrote");
        }
        let error = standing(&marked(4, 3, &[]), 1).unwrap_err().to_string();
        assert!(error.contains("written by Croft 0.4.0, which is 3 releases newer than this program"), "{error}");
    }

    #[test]
    fn the_mark_never_goes_down() {
        let newer = marked(3, 2, &["known", "unknown"]);
        let opened = newer.opened_by(2, &["known"]);
        assert_eq!((opened.program.as_str(), opened.release, opened.readable_from), ("0.3.0", 3, 2));
        assert_eq!(opened.migrated, ["known"], "what this release may undo is to be done again");
        // Having been opened by the one before does not let the one before that in.
        assert_eq!(standing(&opened, 1).map_err(|error| error.ahead), Err(2));
        let again = opened.opened_by(3, &["known", "unknown"]);
        assert_eq!((again.release, again.readable_from), (3, 2));
        let later = again.opened_by(5, &["known", "unknown"]);
        assert_eq!((later.release, later.readable_from), (5, 4));
    }

    #[test]
    fn a_mark_reads_as_it_was_written() {
        for mark in [marked(1, 1, &[]), marked(12, 11, &["a", "b"])] {
            assert_eq!(Mark::from_data(&mark.to_object()["data"]), Some(mark));
        }
        assert_eq!(Mark::from_data(&json!({"program": "0.1.0", "release": "first"})), None);
        assert_eq!(Mark::from_data(&Value::Null), None);
    }
}
