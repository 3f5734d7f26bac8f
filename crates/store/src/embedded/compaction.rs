//! Forgetting: when (a policy) and how (in steps so small that no writer notices).

use std::collections::VecDeque;
use std::path::Path;
use std::time::{Duration, Instant};

use croft_meta::Revision;
use parking_lot::Mutex;
use rusqlite::Connection;

use super::schema::{self, SWEPT};

/// How much history is kept without being asked: what is younger than `time`, and the last `revisions` in any case.
#[derive(Clone, Copy, Debug)]
pub struct Retention {
    pub time: Duration,
    pub revisions: u64,
}

impl Default for Retention {
    fn default() -> Self {
        Self { time: Duration::from_mins(5), revisions: 1000 }
    }
}

/// Samples per retention time: history lives at most a tenth longer than asked for.
const SAMPLES: u32 = 10;

/// Remembers which revision was the newest at which time.
#[derive(Debug)]
pub(super) struct Schedule {
    policy: Retention,
    samples: VecDeque<(Instant, Revision)>,
    next: Instant,
}

impl Schedule {
    pub(super) fn new(policy: Retention, now: Instant) -> Self {
        Self { policy, samples: VecDeque::new(), next: now }
    }

    pub(super) fn next(&self) -> Instant {
        self.next
    }

    /// The revision up to which history may go, if it is time to look.
    pub(super) fn due(&mut self, now: Instant, newest: Revision) -> Option<Revision> {
        if now < self.next {
            return None;
        }
        self.next = now + (self.policy.time / SAMPLES).max(Duration::from_millis(100));
        self.samples.push_back((now, newest));
        let mut old = None;
        while let Some((taken, revision)) = self.samples.front().copied() {
            if now.duration_since(taken) < self.policy.time {
                break;
            }
            old = Some(revision);
            self.samples.pop_front();
        }
        let bound = Revision(newest.0.saturating_sub(self.policy.revisions));
        old.map(|old| old.min(bound)).filter(|revision| *revision > Revision::ZERO)
    }
}

/// Takes out the rows of versions that were superseded or deleted at or before the compaction point.
///
/// It walks the rows between the last compaction point and this one: each of them supersedes all older rows of its
/// key. The work is in proportion to the changes, not to the size of the store.
#[derive(Debug)]
pub(super) struct Sweeper {
    /// The last row looked at.
    at: i64,
    until: i64,
}

impl Sweeper {
    pub(super) fn new(swept: Revision, compacted: Revision) -> Self {
        Self { at: schema::last_row(swept), until: schema::last_row(compacted) }
    }

    pub(super) fn extend(&mut self, compacted: Revision) {
        self.until = schema::last_row(compacted);
    }

    pub(super) fn is_done(&self) -> bool {
        self.at >= self.until
    }

    /// Works for about `budget` inside the caller's transaction; returns how far it got, to be taken over by
    /// [`Self::advance`] once that transaction is committed.
    pub(super) fn step(&self, connection: &Connection, budget: Duration) -> rusqlite::Result<i64> {
        let started = Instant::now();
        let mut rows = connection
            .prepare_cached("SELECT id, key, value IS NULL FROM log WHERE id > ?1 AND id <= ?2 ORDER BY id LIMIT 32")?;
        let mut older = connection.prepare_cached("DELETE FROM log WHERE key = ?1 AND id < ?2")?;
        let mut itself = connection.prepare_cached("DELETE FROM log WHERE id = ?1")?;
        let mut at = self.at;
        while started.elapsed() < budget {
            let page: Vec<(i64, Vec<u8>, bool)> = rows
                .query_map([at, self.until], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?
                .collect::<rusqlite::Result<_>>()?;
            let Some((last, ..)) = page.last() else {
                at = self.until;
                break;
            };
            at = *last;
            for (id, key, is_deleted) in &page {
                older.execute((key, id))?;
                if *is_deleted {
                    itself.execute([id])?;
                }
            }
        }
        // A transaction may have been cut in two: after a restart it is looked at again, which does no harm.
        let swept = if at >= self.until { schema::revision_of(at).0 } else { schema::revision_of(at).0 - 1 };
        schema::set_mark(connection, SWEPT, Revision(swept))?;
        Ok(at)
    }

    pub(super) fn advance(&mut self, at: i64) {
        self.at = at;
    }
}

/// Free pages worth giving back to the filesystem: more than a quarter of the file and more than 16 MiB.
pub(super) fn has_much_free_space(connection: &Connection) -> rusqlite::Result<bool> {
    let free: i64 = connection.pragma_query_value(None, "freelist_count", |row| row.get(0))?;
    let pages: i64 = connection.pragma_query_value(None, "page_count", |row| row.get(0))?;
    Ok(free > 4096 && free > pages / 4)
}

pub(super) fn has_free_space(connection: &Connection) -> rusqlite::Result<bool> {
    connection.pragma_query_value(None, "freelist_count", |row| Ok(row.get::<_, i64>(0)? > 0))
}

/// Pages that are given back at a time, between two commits; what moving them writes to the log at the most.
const RELEASED: usize = 128;
pub(super) const RELEASED_BYTES: usize = RELEASED * 4096;

/// Gives some pages back. The statement does one page per step, so its rows have to be drained.
pub(super) fn release_space(connection: &Connection) -> rusqlite::Result<()> {
    let mut statement = connection.prepare(&format!("PRAGMA incremental_vacuum({RELEASED})"))?;
    let mut rows = statement.query([])?;
    while rows.next()?.is_some() {}
    Ok(())
}

/// Held while [`TEMPORARY_FILES`] is set: it is one for the whole process.
static REWRITING: Mutex<()> = Mutex::new(());
/// Where they are. Deprecated for being one for all, but there is no other way that needs no change of the environment.
const TEMPORARY_FILES: &str = "temp_store_directory";

/// Writes the whole file anew, so that nothing of what was deleted is left in it or in its log. False if a reader was in the way
/// of the log's end.
///
/// SQLite makes a whole copy first, in a temporary database. It is a file beside the store's, which has no name and goes with the
/// process: in memory, or where `/tmp` is, it might not have room.
pub(super) fn rewrite(connection: &Connection, path: &Path) -> rusqlite::Result<bool> {
    {
        let _turn = REWRITING.lock();
        // One that cannot be said in UTF-8 is left to SQLite's choice.
        let dir = path.parent().and_then(Path::to_str).unwrap_or_default();
        connection.pragma_update(None, TEMPORARY_FILES, dir)?;
        connection.pragma_update(None, "temp_store", "FILE")?;
        let rewritten = connection.execute_batch("VACUUM");
        let restored = schema::keep_temporary_in_memory(connection);
        let elsewhere = connection.pragma_update(None, TEMPORARY_FILES, "");
        rewritten.and(restored).and(elsewhere)?;
    }
    cut_log(connection)
}

/// Moves all of the log into the file and cuts it to nothing. False if a reader was in the way.
pub(super) fn cut_log(connection: &Connection) -> rusqlite::Result<bool> {
    let is_busy: i64 = connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get(0))?;
    Ok(is_busy == 0)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::process::Command;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[test]
    fn history_goes_when_it_is_old_and_not_among_the_last() {
        let start = Instant::now();
        let policy = Retention { time: Duration::from_secs(100), revisions: 10 };
        let mut schedule = Schedule::new(policy, start);
        let at = |seconds| start + Duration::from_secs(seconds);
        // (seconds, newest revision, expected compaction point)
        let cases = [
            (0, 50, None),
            (5, 60, None),
            (10, 70, None),
            (99, 75, None),
            (100, 76, None),
            (109, 80, Some(50)),
            (110, 80, None),
            (119, 81, Some(70)),
            (219, 81, Some(71)),
        ];
        for (seconds, newest, expected) in cases {
            let due = schedule.due(at(seconds), Revision(newest));
            assert_eq!(due, expected.map(Revision), "after {seconds} s");
        }
    }

    /// Of this process, in bytes, as the kernel calls it.
    fn memory(what: &str) -> u64 {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix(what)?.strip_prefix(':')).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
    }

    /// Where a file is that is open and has no name.
    fn nameless_file() -> Option<PathBuf> {
        let open = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
        let mut targets = open.filter_map(|file| std::fs::read_link(file.path()).ok());
        targets.find(|path| path.to_string_lossy().ends_with(" (deleted)"))
    }

    fn rewrite_large(dir: &Path) {
        const SIZE: u64 = 32 << 20;
        let path = dir.join(schema::FILE);
        let connection = schema::open_writer(&path).unwrap();
        let rows = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?1)
            INSERT INTO log (key, value, sum) SELECT 'k' || i, randomblob(4096), 0 FROM n";
        connection.execute(rows, [i64::try_from(SIZE / 4096).unwrap()]).unwrap();
        cut_log(&connection).unwrap();
        // Its peak so far is forgotten.
        std::fs::write("/proc/self/clear_refs", "5").unwrap();
        let before = memory("VmHWM");
        let is_over = AtomicBool::new(false);
        let seen = std::thread::scope(|scope| {
            let watching = scope.spawn(|| {
                while !is_over.load(Ordering::Acquire) {
                    if let Some(found) = nameless_file() {
                        return Some(found);
                    }
                }
                None
            });
            let rewritten = rewrite(&connection, &path);
            is_over.store(true, Ordering::Release);
            assert!(rewritten.unwrap());
            watching.join().unwrap()
        });
        let grown = memory("VmHWM").saturating_sub(before);
        assert!(grown < SIZE / 2, "{grown} bytes of memory for a file of {SIZE}");
        assert!(seen.as_ref().is_some_and(|path| path.starts_with(dir)), "{seen:?}");
        let store: i64 = connection.pragma_query_value(None, "temp_store", |row| row.get(0)).unwrap();
        assert_eq!(store, 2, "all else is in memory as before");
        assert_eq!(std::fs::read_dir(dir).unwrap().count(), 3, "the file, its log and the index of that");
    }

    #[test]
    fn a_file_is_written_anew_beside_itself_and_not_in_memory() {
        const DIR: &str = "CROFT_TEST_REWRITE";
        if let Some(dir) = std::env::var_os(DIR) {
            return rewrite_large(Path::new(&dir));
        }
        // By itself, so that what other tests need does not count.
        let dir = tempfile::tempdir().unwrap();
        let name = "embedded::compaction::tests::a_file_is_written_anew_beside_itself_and_not_in_memory";
        let mut child = Command::new(std::env::current_exe().unwrap());
        let output = child.args(["--exact", name]).env(DIR, dir.path()).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && said.contains("1 passed"), "{said}");
    }
}
