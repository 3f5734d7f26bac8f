//! Reads the whole file and tells how it is, and what of it is damaged. Nothing is written.

use std::path::Path;
use std::sync::Arc;

use rusqlite::Connection;
use rusqlite::config::DbConfig;

use super::lock::DirLock;
use super::{Shared, read, schema};
use crate::status::Status;
use crate::{Error, Result};

/// More of them tell nothing new.
const MOST: usize = 50;
/// An empty database has no more pages.
const EMPTY_PAGES: i64 = 2;

/// A connection that leaves the file and its log as they are, even when it is closed.
pub(super) fn open_untouched(path: &Path) -> rusqlite::Result<Connection> {
    let connection = schema::open_reader(path)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    Ok(connection)
}

/// Of a directory that no server has open.
pub fn check(dir: &Path) -> Result<Vec<String>> {
    let path = dir.join(schema::FILE);
    if !path.exists() {
        return Err(Error::Invalid { reason: format!("there is no store in {}", dir.display()) });
    }
    let _lock = DirLock::take(dir)?;
    let connection = match open_untouched(&path) {
        Ok(connection) => connection,
        Err(error) => return unreadable(&path, &error),
    };
    match schema::check_format(&connection, &path) {
        Ok(()) => Ok(problems(&connection)),
        Err(Error::Corrupt { reason, .. }) => Ok(vec![format!("its first page cannot be read: {reason}")]),
        Err(error) => Err(error),
    }
}

/// Damage is an answer; anything else is an error.
fn unreadable(path: &Path, error: &rusqlite::Error) -> Result<Vec<String>> {
    match schema::open_error(path, error) {
        Error::Corrupt { reason, .. } => Ok(vec![format!("it cannot be opened: {reason}")]),
        other => Err(other),
    }
}

/// Before a store is used: nothing is written to a file that is not ours, too new, or damaged. SQLite itself would find damage
/// only when it comes by, and until then leave out what it does not see. The values are read, and held against their checksums,
/// by whoever loads them.
pub(super) fn refuse_damaged(path: &Path) -> Result<()> {
    if !path.exists() {
        return Ok(());
    }
    let failed = |error: &rusqlite::Error| schema::open_error(path, error);
    let connection = open_untouched(path).map_err(|error| failed(&error))?;
    if is_new(&connection).map_err(|error| failed(&error))? {
        return Ok(());
    }
    schema::check_format(&connection, path)?;
    let mut found = Vec::new();
    pages(&connection, 1, &mut found).map_err(|error| failed(&error))?;
    match found.into_iter().next() {
        Some(reason) => Err(Error::Corrupt { path: path.to_owned(), reason }),
        None => Ok(()),
    }
}

/// Begun, and cut short before there was anything in it.
fn is_new(connection: &Connection) -> rusqlite::Result<bool> {
    let number = |name: &str| connection.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
    let tables: i64 = connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
    Ok(tables == 0 && number("user_version")? == 0 && number("page_count")? <= EMPTY_PAGES)
}

/// What SQLite finds wrong with its pages, and what our own sums find wrong with its rows.
fn problems(connection: &Connection) -> Vec<String> {
    let mut found = Vec::new();
    if let Err(error) = pages(connection, MOST, &mut found) {
        found.push(format!("the pages cannot all be read: {error}"));
    }
    if let Err(error) = rows(connection, &mut found) {
        found.push(format!("the rows cannot all be read: {error}"));
    }
    found.truncate(MOST);
    found
}

/// Pages, the order of what is on them, and that the indexes say what the table does.
fn pages(connection: &Connection, most: usize, found: &mut Vec<String>) -> rusqlite::Result<()> {
    let mut statement = connection.prepare(&format!("PRAGMA integrity_check({most})"))?;
    let mut lines = statement.query([])?;
    while let Some(line) = lines.next()? {
        let line: String = line.get(0)?;
        // SQLite heads its findings with a line of its own.
        found.extend(line.lines().filter(|line| *line != "ok" && !line.starts_with("***")).map(str::to_owned));
    }
    Ok(())
}

fn rows(connection: &Connection, found: &mut Vec<String>) -> rusqlite::Result<()> {
    let mut statement = connection.prepare("SELECT id, key, value, sum FROM log NOT INDEXED ORDER BY id")?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        if let Err(bad) = read::is_whole(row)? {
            found.push(bad);
            if found.len() >= MOST {
                break;
            }
        }
    }
    Ok(())
}

/// The same of an open store. What is found stops the writer: it could only spread.
pub(super) async fn check_open(shared: Arc<Shared>) -> Result<Vec<String>> {
    let work = move || -> Result<Vec<String>> {
        let connection = schema::open_reader(&shared.path).map_err(|error| shared.health.read_failed(&error))?;
        let found = problems(&connection);
        if let Some(first) = found.first() {
            // The finding is the answer.
            let _ = shared.health.damaged(first);
        }
        Ok(found)
    };
    blocking(work).await
}

pub(super) async fn status(shared: Arc<Shared>, size_bytes: u64) -> Result<Status> {
    let work = move || -> Result<Status> {
        let read = || -> rusqlite::Result<u64> {
            let connection = schema::open_reader(&shared.path)?;
            let number = |name: &str| connection.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
            let in_use = (number("page_count")? - number("freelist_count")?) * number("page_size")?;
            Ok(u64::try_from(in_use).unwrap_or_default())
        };
        let in_use_bytes = match read() {
            Ok(in_use) => in_use,
            // A store that is ill must be able to say so.
            Err(error) => {
                let _ = shared.health.read_failed(&error);
                size_bytes
            }
        };
        Ok(Status {
            engine: "embedded".to_owned(),
            revision: shared.watchers.revision().0,
            compacted_revision: shared.compacted().0,
            last_compaction: shared.last_compaction.lock().clone(),
            size_bytes,
            in_use_bytes,
            reclaimable_bytes: size_bytes.saturating_sub(in_use_bytes),
            read_only: shared.health.reason(),
            is_damaged: shared.health.is_damaged(),
            ..Status::default()
        })
    };
    blocking(work).await
}

/// On a thread that may wait.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| Error::Engine { context: "a read was cut short".to_owned(), source: error.into() })?
}
