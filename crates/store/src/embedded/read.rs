//! Reads: each in one snapshot of the file, on a thread that may block.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use croft_meta::Revision;
use parking_lot::Mutex;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, OptionalExtension, Row};

use super::Shared;
use super::schema::{self, COMPACTED};
use crate::txn::prefix_end;
use crate::{Error, Event, Range, RangeResult, Record, Result, WatchItem};

/// Connections kept for the next read; more are opened when more reads run at once.
const IDLE: usize = 2;
/// A page of history ends at the first transaction past this many bytes.
const PAGE_BYTES: usize = 1024 * 1024;
const PAGE_EVENTS: usize = 1024;

#[derive(Debug)]
pub(super) struct Readers {
    path: PathBuf,
    idle: Mutex<Vec<Connection>>,
}

/// Either the database's error or one of ours.
#[derive(Debug)]
enum ReadError {
    Sqlite(rusqlite::Error),
    BadRow(i64),
    Store(Error),
}

impl From<rusqlite::Error> for ReadError {
    fn from(err: rusqlite::Error) -> Self {
        Self::Sqlite(err)
    }
}

impl From<Error> for ReadError {
    fn from(err: Error) -> Self {
        Self::Store(err)
    }
}

impl Readers {
    pub(super) fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), idle: Mutex::default() }
    }

    pub(super) fn clear(&self) {
        self.idle.lock().clear();
    }

    fn take(&self) -> rusqlite::Result<Connection> {
        let idle = self.idle.lock().pop();
        idle.map_or_else(|| schema::open_reader(&self.path), Ok)
    }

    /// After an error the connection is not used again.
    fn give_back(&self, connection: Connection) {
        let mut idle = self.idle.lock();
        if idle.len() < IDLE {
            idle.push(connection);
        }
    }
}

/// Runs `read` in a snapshot that holds at least everything published when this was called.
async fn snapshot<T: Send + 'static>(
    shared: Arc<Shared>,
    read: impl FnOnce(&Connection, Revision) -> Result<T, ReadError> + Send + 'static,
) -> Result<T> {
    shared.check_open()?;
    let work = move || {
        let newest = shared.watchers.revision();
        let run = || -> Result<T, ReadError> {
            let connection = shared.readers.take()?;
            let transaction = connection.unchecked_transaction()?;
            let answer = read(&transaction, newest)?;
            drop(transaction);
            shared.readers.give_back(connection);
            Ok(answer)
        };
        run().map_err(|err| match err {
            ReadError::Sqlite(err) => shared.health.read_failed(&err),
            ReadError::BadRow(row) => shared.health.bad_row(row),
            ReadError::Store(err) => err,
        })
    };
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|err| Error::Engine { context: "a read was cut short".to_owned(), source: err.into() })?
}

pub(super) async fn get(shared: Arc<Shared>, key: String) -> Result<Option<Record>> {
    snapshot(shared, move |connection, newest| get_at(connection, &key, newest)).await
}

fn get_at(connection: &Connection, key: &str, newest: Revision) -> Result<Option<Record>, ReadError> {
    // A commit that is in the file but not published yet is left out, so that no answer is ahead of `revision`; unless what was
    // before it is forgotten already, and its rows are gone.
    let newest = newest.max(schema::mark(connection, COMPACTED)?);
    let mut statement = connection
        .prepare_cached("SELECT id, key, value, sum FROM log WHERE key = ?1 AND id <= ?2 ORDER BY id DESC LIMIT 1")?;
    let mut rows = statement.query((key.as_bytes(), schema::last_row(newest)))?;
    let Some(row) = rows.next()? else { return Ok(None) };
    let version = read_version(row)?;
    Ok(version.value.map(|value| Record { key: version.key, value, revision: version.revision }))
}

pub(super) async fn range(shared: Arc<Shared>, range: Range) -> Result<RangeResult> {
    snapshot(shared, move |connection, newest| {
        let oldest = schema::mark(connection, COMPACTED)?;
        let at = match range.at {
            Some(at) if at < oldest => return Err(Error::Compacted { requested: at, oldest }.into()),
            Some(at) if at > newest => return Err(Error::Future { requested: at, newest }.into()),
            Some(at) => at,
            // Compaction may have passed by between the two loads.
            None => newest.max(oldest),
        };
        range_at(connection, &range, at)
    })
    .await
}

fn range_at(connection: &Connection, range: &Range, at: Revision) -> Result<RangeResult, ReadError> {
    let (first, end) = bounds(range);
    // The first statement stays within the index; only versions that are part of the answer are read.
    let mut newest = connection.prepare_cached(
        "SELECT max(id), key FROM log INDEXED BY log_key WHERE key >= ?1 AND key < ?2 AND id <= ?3 GROUP BY key",
    )?;
    let mut version = connection.prepare_cached("SELECT id, key, value, sum FROM log WHERE id = ?1")?;
    let mut result = RangeResult { revision: at, ..RangeResult::default() };
    let mut ids = newest.query((first, end, schema::last_row(at)))?;
    while let Some(row) = ids.next()? {
        let id: i64 = row.get(0)?;
        let found = version.query_row([id], |row| Ok(read_version(row))).optional()?.ok_or(ReadError::BadRow(id))??;
        // An index that is damaged may lead to what is whole, but something else.
        if row.get_ref(1)?.as_blob().ok() != Some(found.key.as_bytes()) {
            return Err(ReadError::BadRow(id));
        }
        let Some(value) = found.value else { continue };
        if range.limit > 0 && result.records.len() == range.limit {
            result.more = true;
            break;
        }
        result.records.push(Record { key: found.key, value, revision: found.revision });
    }
    Ok(result)
}

fn bounds(range: &Range) -> (Vec<u8>, Vec<u8>) {
    let mut first = range.prefix.as_bytes().to_vec();
    if !range.after.is_empty() && range.after.as_bytes() >= first.as_slice() {
        // The next key in byte order.
        first = range.after.as_bytes().to_vec();
        first.push(0);
    }
    let mut end = prefix_end(range.prefix.as_bytes());
    if end.is_empty() {
        // No UTF-8 text starts with this byte.
        end.push(u8::MAX);
    }
    (first, end)
}

/// A part of a watch's past.
#[derive(Debug)]
pub(super) struct Page {
    pub(super) items: VecDeque<WatchItem>,
    /// Nothing is missing up to here.
    pub(super) reached: Revision,
}

/// Changes under `prefix` after `after`, at most to `until`; a transaction is never split.
pub(super) async fn history(shared: Arc<Shared>, prefix: String, after: Revision, until: Revision) -> Result<Page> {
    snapshot(shared, move |connection, _| {
        let oldest = schema::mark(connection, COMPACTED)?;
        if after < oldest {
            return Err(Error::Compacted { requested: after, oldest }.into());
        }
        let mut statement =
            connection.prepare_cached("SELECT id, key, value, sum FROM log WHERE id > ?1 AND id <= ?2 ORDER BY id")?;
        let mut rows = statement.query((schema::last_row(after), schema::last_row(until)))?;
        let mut page = Page { items: VecDeque::new(), reached: until };
        let (mut events, mut bytes, mut count) = (Vec::<Event>::new(), 0, 0);
        while let Some(row) = rows.next()? {
            let revision = schema::revision_of(row.get(0)?);
            if events.first().is_some_and(|event| event.revision != revision) {
                page.items.push_back(WatchItem::Events(std::mem::take(&mut events)));
                if bytes > PAGE_BYTES || count > PAGE_EVENTS {
                    page.reached = Revision(revision.0 - 1);
                    return Ok(page);
                }
            }
            if !row.get_ref(1)?.as_blob().map_err(rusqlite::Error::from)?.starts_with(prefix.as_bytes()) {
                continue;
            }
            let found = read_version(row)?;
            bytes += found.value.as_ref().map_or(0, Bytes::len);
            count += 1;
            events.push(Event { key: found.key, revision, value: found.value });
        }
        if !events.is_empty() {
            page.items.push_back(WatchItem::Events(events));
        }
        Ok(page)
    })
    .await
}

struct Version {
    key: String,
    revision: Revision,
    value: Option<Bytes>,
}

/// Whether a row with the columns id, key, value, sum is as it was written; what is wrong with it, if not.
pub(super) fn is_whole(row: &Row<'_>) -> rusqlite::Result<Result<(), String>> {
    match read_version(row) {
        Ok(_) => Ok(Ok(())),
        Err(ReadError::Sqlite(error)) => Err(error),
        Err(_) => {
            let (id, key) = (row.get::<_, i64>(0)?, row.get_ref(1)?);
            let key = key.as_blob().map(|key| String::from_utf8_lossy(key).into_owned()).unwrap_or_default();
            let revision = schema::revision_of(id);
            Ok(Err(format!("{key} at revision {revision} (row {id}) is not as it was written")))
        }
    }
}

/// From the columns id, key, value, sum.
fn read_version(row: &Row<'_>) -> Result<Version, ReadError> {
    let id: i64 = row.get(0)?;
    let (ValueRef::Blob(key), Ok(value)) = (row.get_ref(1)?, row.get_ref(2)?.as_blob_or_null()) else {
        return Err(ReadError::BadRow(id));
    };
    if row.get::<_, i64>(3)? != schema::checksum(key, value) {
        return Err(ReadError::BadRow(id));
    }
    let key = std::str::from_utf8(key).map_err(|_| ReadError::BadRow(id))?;
    Ok(Version { key: key.to_owned(), revision: schema::revision_of(id), value: value.map(Bytes::copy_from_slice) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Embedded, EmbeddedOptions, History, Op, Store, Txn};

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_key_is_found_though_its_past_was_forgotten_meanwhile() {
        let dir = tempfile::tempdir().unwrap();
        let store =
            Embedded::open(dir.path(), EmbeddedOptions { retention: None, ..EmbeddedOptions::default() }).unwrap();
        for value in ["1", "2"] {
            let op = Op::Put { key: "k".to_owned(), value: value.into(), lease: None };
            store.txn(Txn { compare: vec![], ops: vec![op] }).await.unwrap();
        }
        store.defragment(History::Forgotten).await.unwrap();
        // Who read the revision before the second write, and the file after its past was swept.
        let connection = store.shared.readers.take().unwrap();
        let found = get_at(&connection, "k", Revision(1)).unwrap().expect("it was there all the time");
        assert_eq!((found.value.as_ref(), found.revision), (&b"2"[..], Revision(2)));
    }
}
