//! A new store with what was saved of another.
//!
//! It is made beside its place and moved there when it is whole, so that nobody ever opens a part of it. Every record keeps its
//! revision; the store itself goes on far above what was saved. Whoever has seen changes that were not saved must not take
//! those to come for the ones he knows: all history is forgotten, and watches from before start over. Nor must the changes after
//! one restore be taken for those after another one of the same state: where a store goes on is a matter of the clock.

use std::collections::HashMap;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use croft_meta::Revision;
use rusqlite::Connection;

use super::lock::DirLock;
use super::moved::{ARRIVING, ORIGIN, moved};
use super::schema::{self, COMPACTED, SWEPT};
use crate::contents::{Contents, Summing};
use crate::{Error, LeaseId, Record, Result};

/// More changes than anybody makes between saving and losing.
pub const AHEAD: u64 = 1_000_000_000;
/// More changes than anybody makes in a millisecond for long.
const A_MILLISECOND: u64 = 16;
/// A row has room for 47 bits of a revision; the clock takes no more than half of that, which it does in the year 2109.
const LATEST: u64 = 1 << 46;

/// Where a store goes on that is restored at this time. A later restore goes on above all that came after an earlier one, so that
/// even of the same state no two revisions are the same.
pub fn after_restoring(saved: Revision, unix_millis: u64) -> Revision {
    let clock = unix_millis.saturating_mul(A_MILLISECOND).min(LATEST);
    // The clock was wrong then, or is now.
    let is_late = saved.0 >= clock;
    Revision(if is_late { saved.0.saturating_add(AHEAD) } else { clock })
}

/// A store that is being filled. Dropped before [`Restoring::finish`], it leaves nothing but a directory that the next one
/// replaces.
#[derive(Debug)]
pub struct Restoring {
    connection: Connection,
    /// Where it is to be, and where it is.
    dir: PathBuf,
    aside: PathBuf,
    saved: Revision,
    /// Nobody else fills it meanwhile.
    lock: Option<DirLock>,
    /// What a store of the past in its place is called from then on.
    past: Option<PathBuf>,
    /// How many records there are of each revision: they were written together.
    positions: HashMap<Revision, usize>,
}

impl Restoring {
    /// For `dir`, where nothing may be yet; of a state at `revision`.
    pub fn begin(dir: &Path, revision: Revision) -> Result<Self> {
        let lock = DirLock::beside(dir)?;
        if dir.exists() {
            return Err(in_the_way(dir));
        }
        Self::make(dir, revision, Some(lock), None)
    }

    /// For a move, whose end [`Self::finish_move`] is: a store that was left may be there, and is kept as `past`. The caller holds
    /// [`DirLock::beside`].
    pub fn begin_move(dir: &Path, revision: Revision, past: PathBuf) -> Result<Self> {
        if dir.exists() && moved(dir)?.is_none() {
            return Err(in_the_way(dir));
        }
        Self::make(dir, revision, None, Some(past))
    }

    /// Removes what was begun and not finished. The caller holds [`DirLock::beside`].
    pub fn discard(dir: &Path) -> Result<()> {
        let aside = dir.with_added_extension("restoring");
        if !aside.exists() {
            return Ok(());
        }
        fs::remove_dir_all(&aside).map_err(|source| Error::Engine {
            context: format!("cannot remove {}", aside.display()),
            source: source.into(),
        })
    }

    fn make(dir: &Path, revision: Revision, lock: Option<DirLock>, past: Option<PathBuf>) -> Result<Self> {
        Self::discard(dir)?;
        let aside = dir.with_added_extension("restoring");
        super::make_dir(&aside)?;
        let path = aside.join(schema::FILE);
        let connection = schema::open_writer(&path)?;
        connection.execute_batch("BEGIN IMMEDIATE").map_err(|error| schema::open_error(&path, &error))?;
        Ok(Self { connection, dir: dir.to_owned(), aside, saved: revision, lock, past, positions: HashMap::new() })
    }

    /// A lease for [`Self::add_leased`]. Its time begins when the store is opened.
    pub fn grant(&mut self, ttl: Duration) -> Result<LeaseId> {
        super::apply::grant(&self.connection, ttl).map_err(|error| self.failed(&error))
    }

    pub fn add(&mut self, record: &Record) -> Result<()> {
        self.add_leased(record, None)
    }

    pub fn add_leased(&mut self, record: &Record, lease: Option<LeaseId>) -> Result<()> {
        if record.revision > self.saved {
            let reason = format!("{} is of revision {}, after the state's {}", record.key, record.revision, self.saved);
            return Err(Error::Invalid { reason });
        }
        crate::txn::check_key(&record.key)?;
        let position = self.positions.entry(record.revision).or_default();
        let row = schema::row_id(record.revision, *position);
        *position += 1;
        let row = row.map_err(|error| self.failed(&error))?;
        let (key, value) = (record.key.as_bytes(), record.value.as_ref());
        let add = || -> rusqlite::Result<()> {
            let sql = "INSERT INTO log (id, key, value, lease, sum) VALUES (?1, ?2, ?3, ?4, ?5)";
            let sum = schema::checksum(key, Some(value));
            let lease = lease.map(|lease| lease.0);
            self.connection.prepare_cached(sql)?.execute((row, key, value, lease, sum)).map(drop)
        };
        add().map_err(|error| self.failed(&error))
    }

    /// At this time, from which on the store counts.
    pub fn finish(self, unix_millis: u64) -> Result<()> {
        let newest = after_restoring(self.saved, unix_millis);
        self.finish_if(newest, |_| Ok(()))
    }

    /// The same as the end of the move `id`: what is on the disk is read once more and compared with what it should be, and the
    /// move is written down beside it. Nobody can open it before [`super::mark_arrived`].
    pub fn finish_move(self, id: &str, expected: &Contents) -> Result<()> {
        let newest = Revision(self.saved.0.saturating_add(AHEAD));
        self.finish_if(newest, |aside| {
            let found = sum_up(&aside.join(schema::FILE))?;
            if found != *expected {
                let reason = format!("what was written is not what was read: {found:?}, not {expected:?}");
                return Err(Error::Invalid { reason });
            }
            let write = || -> std::io::Result<()> {
                fs::File::create(aside.join(ARRIVING))?.sync_all()?;
                let mut file = fs::File::create(aside.join(ORIGIN))?;
                file.write_all(id.as_bytes())?;
                file.sync_all()
            };
            write().map_err(|source| Error::Engine {
                context: format!("cannot write into {}", aside.display()),
                source: source.into(),
            })
        })
    }

    fn finish_if(self, newest: Revision, check: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
        let end = || -> rusqlite::Result<()> {
            schema::set_mark(&self.connection, COMPACTED, newest)?;
            schema::set_mark(&self.connection, SWEPT, newest)?;
            self.connection.execute_batch("COMMIT")?;
            self.connection.pragma_update(None, "wal_checkpoint", "TRUNCATE")
        };
        end().map_err(|error| self.failed(&error))?;
        let Self { connection, dir, aside, past, lock: _lock, .. } = self;
        connection.close().map_err(|(_, error)| schema::open_error(&aside, &error))?;
        check(&aside)?;
        schema::sync_directory(&aside.join(schema::FILE))?;
        put_in_place(&aside, &dir, past.as_deref()).map_err(|source| Error::Engine {
            context: format!("cannot make {}", dir.display()),
            source: source.into(),
        })?;
        schema::sync_directory(&dir)
    }

    fn failed(&self, error: &rusqlite::Error) -> Error {
        schema::open_error(&self.aside.join(schema::FILE), error)
    }
}

fn in_the_way(dir: &Path) -> Error {
    Error::Invalid { reason: format!("there is a store in {} already; move it away first", dir.display()) }
}

/// What is there changes places with it, so that at no moment nothing is there: whoever opened the store then would make an empty
/// one. Not all file systems can do that.
fn put_in_place(aside: &Path, dir: &Path, past: Option<&Path>) -> std::io::Result<()> {
    use rustix::fs::{CWD, RenameFlags, renameat_with};
    let Some(past) = past.filter(|_| dir.exists()) else { return fs::rename(aside, dir) };
    if renameat_with(CWD, aside, CWD, dir, RenameFlags::EXCHANGE).is_ok() {
        return fs::rename(aside, past);
    }
    fs::rename(dir, past)?;
    fs::rename(aside, dir)
}

/// Of a file that has no history.
fn sum_up(path: &Path) -> Result<Contents> {
    let read = || -> rusqlite::Result<Contents> {
        let connection = schema::open_reader(path)?;
        let mut statement = connection.prepare("SELECT key, value FROM log ORDER BY key")?;
        let mut rows = statement.query([])?;
        let mut summing = Summing::default();
        while let Some(row) = rows.next()? {
            summing.add(row.get_ref(0)?.as_blob()?, row.get_ref(1)?.as_blob()?);
        }
        Ok(summing.contents())
    };
    read().map_err(|error| schema::open_error(path, &error))
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::{Embedded, EmbeddedOptions, Range, Store, Txn};

    /// Some day in 2026.
    const NOW: u64 = 1_790_000_000_000;

    fn record(key: &str, revision: u64) -> Record {
        Record { key: key.to_owned(), value: Bytes::from_static(b"{}"), revision: Revision(revision) }
    }

    #[tokio::test]
    async fn records_keep_their_revisions_and_new_ones_come_far_after() {
        let place = tempfile::tempdir().unwrap();
        let dir = place.path().join("store");
        let mut restoring = Restoring::begin(&dir, Revision(50)).unwrap();
        for record in [record("a", 7), record("b", 50), record("c", 7)] {
            restoring.add(&record).unwrap();
        }
        assert!(!dir.exists(), "a part of it must not be found");
        restoring.finish(NOW).unwrap();
        let newest = after_restoring(Revision(50), NOW);

        let store = Embedded::open(&dir, EmbeddedOptions::default()).unwrap();
        let found = store.range(Range::default()).await.unwrap();
        assert_eq!(found.records, [record("a", 7), record("b", 50), record("c", 7)]);
        assert_eq!(found.revision, newest);
        let old = store.watch("", Revision(60)).await.map(drop).unwrap_err();
        assert!(matches!(old, Error::Compacted { .. }), "{old}");
        let put = crate::Op::Put { key: "a".to_owned(), value: Bytes::from_static(b"[]"), lease: None };
        store.txn(Txn { compare: Vec::new(), ops: vec![put] }).await.unwrap();
        let again = store.get("a").await.unwrap().unwrap();
        assert_eq!(again.revision, newest.next());
        store.close().await.unwrap();
        assert!(matches!(Restoring::begin(&dir, Revision(1)), Err(Error::Invalid { .. })));
    }

    #[test]
    fn a_state_that_is_restored_twice_goes_on_at_two_places() {
        for saved in [1, 50, NOW, NOW * A_MILLISECOND, 1 << 46] {
            let first = after_restoring(Revision(saved), NOW);
            assert!(first.0 > saved && first.0 < 1 << 47, "{saved}: {first}");
            // What a store that was restored saves, which is then restored twice.
            let made = 1_000_000;
            let again = |minutes: u64| after_restoring(Revision(first.0 + made), NOW + minutes * 60_000);
            assert!(again(10).0 > first.0 + made, "{saved}");
            if saved < NOW * A_MILLISECOND {
                assert!(after_restoring(Revision(saved), NOW + 60_000).0 > first.0 + 900_000, "{saved}");
                assert!(again(11).0 > again(10).0 + 900_000, "{saved}");
            }
        }
        assert!(after_restoring(Revision(7), u64::MAX).0 < 1 << 47);
        assert_eq!(after_restoring(Revision(7), 0), Revision(7 + AHEAD));
    }

    #[test]
    fn a_moved_store_is_not_opened_before_the_other_is_left() {
        let place = tempfile::tempdir().unwrap();
        let (dir, past) = (place.path().join("store"), place.path().join("store.moved"));
        // One that is there is in the way, unless it was left.
        fs::create_dir(&dir).unwrap();
        let begin = || Restoring::begin_move(&dir, Revision(5), past.clone());
        assert!(matches!(begin(), Err(Error::Invalid { .. })));
        let left = crate::embedded::Moved { id: "1".to_owned(), to: "etcd".to_owned(), when: "then".to_owned() };
        crate::embedded::mark_moved(&dir, &left).unwrap();
        let mut restoring = begin().unwrap();
        restoring.add(&record("a", 1)).unwrap();
        let mut expected = Summing::default();
        expected.add(b"a", b"{}");
        // Until then it stays, so that nobody makes an empty one in its place.
        assert_eq!(moved(&dir).unwrap(), Some(left));
        restoring.finish_move("2", &expected.contents()).unwrap();
        assert!(past.join("moved.json").exists());
        assert_eq!(crate::embedded::origin(&dir).as_deref(), Some("2"));
        let refused = Embedded::open(&dir, EmbeddedOptions::default()).unwrap_err();
        assert!(croft_meta::Chain(&refused).to_string().contains("not to be used yet"), "{refused}");
        crate::embedded::mark_arrived(&dir).unwrap();
        crate::embedded::mark_arrived(&dir).unwrap();
        drop(Embedded::open(&dir, EmbeddedOptions::default()).unwrap());
    }

    #[test]
    fn two_do_not_make_the_same_store() {
        let place = tempfile::tempdir().unwrap();
        let dir = place.path().join("store");
        let mut first = Restoring::begin(&dir, Revision(5)).unwrap();
        assert!(matches!(Restoring::begin(&dir, Revision(5)), Err(Error::Locked { .. })));
        first.add(&record("kept", 1)).unwrap();
        first.finish(NOW).unwrap();
        assert!(dir.join(schema::FILE).exists());
    }

    #[test]
    fn what_was_begun_is_begun_anew() {
        let place = tempfile::tempdir().unwrap();
        let dir = place.path().join("store");
        let mut first = Restoring::begin(&dir, Revision(5)).unwrap();
        first.add(&record("lost", 1)).unwrap();
        assert!(matches!(first.add(&record("late", 6)), Err(Error::Invalid { .. })));
        drop(first);
        assert!(!dir.exists());
        Restoring::begin(&dir, Revision(5)).unwrap().finish(NOW).unwrap();
        assert!(dir.join(schema::FILE).exists() && !place.path().join("store.restoring").exists());
    }
}
