//! The database file: its tables, how connections to it are set up, and how rows are numbered.
//!
//! `log` holds every kept version of every key, in commit order. Its row number is the revision and the position in
//! the transaction in one integer, so that appending, reading a range of history and finding the newest version of
//! a key (the index holds key, row number) each touch as few pages as can be.

use std::path::Path;

use croft_meta::Revision;
use rusqlite::{Connection, ErrorCode, OpenFlags};

use crate::{Error, Result};

pub(super) const FILE: &str = "store.db";
/// "Crft", so that `file` and a careless open can tell.
const APPLICATION_ID: i32 = 0x4372_6674;
const FORMAT: i32 = 1;
/// Bits of a row number for the position in its transaction.
const POSITION_BITS: u32 = 16;

const TABLES: &str = "
    CREATE TABLE log (
        id    INTEGER PRIMARY KEY,
        key   BLOB NOT NULL,
        value BLOB,
        lease INTEGER,
        sum   INTEGER NOT NULL
    );
    CREATE INDEX log_key ON log (key);
    CREATE INDEX log_lease ON log (lease) WHERE lease IS NOT NULL;
    CREATE TABLE lease (id INTEGER PRIMARY KEY AUTOINCREMENT, ttl_ms INTEGER NOT NULL);
    CREATE TABLE mark (name TEXT PRIMARY KEY, revision INTEGER NOT NULL) WITHOUT ROWID;
";

/// Forgotten up to here.
pub(super) const COMPACTED: &str = "compacted";
/// The rows of forgotten versions are gone up to here.
pub(super) const SWEPT: &str = "swept";

/// There when the file is to be written anew. Its revision says since when, and matters to nobody.
pub(super) const SCRUB: &str = "scrub";

/// The row of the `position`th change of a transaction. More than there is room for would be rows of others.
pub(super) fn row_id(revision: Revision, position: usize) -> rusqlite::Result<i64> {
    let position = i64::try_from(position).ok().filter(|position| *position <= last_position());
    let position = position.ok_or_else(|| {
        let changes = format!("more than {} changes in revision {revision}", last_position() + 1);
        rusqlite::Error::ToSqlConversionFailure(changes.into())
    })?;
    Ok(first_row(revision) | position)
}

fn first_row(revision: Revision) -> i64 {
    // Revisions fit in 47 bits: a million commits a second for four years.
    i64::try_from(revision.0 << POSITION_BITS).unwrap_or(i64::MAX)
}

fn last_position() -> i64 {
    (1 << POSITION_BITS) - 1
}

/// The last row that `revision` can have.
pub(super) fn last_row(revision: Revision) -> i64 {
    first_row(revision) | last_position()
}

pub(super) fn revision_of(row: i64) -> Revision {
    Revision(u64::try_from(row >> POSITION_BITS).unwrap_or(0))
}

/// SQLite does not check what it reads from the file; this does, for keys and values.
pub(super) fn checksum(key: &[u8], value: Option<&[u8]>) -> i64 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(key);
    if let Some(value) = value {
        hasher.update(b"\0");
        hasher.update(value);
    }
    i64::from(hasher.finalize())
}

/// Opens the writer's connection, making the database if there is none.
pub(super) fn open_writer(path: &Path) -> Result<Connection> {
    let is_new = !path.exists();
    let connection = prepare_writer(path).map_err(|err| open_error(path, &err))?;
    if is_new {
        // The file's name must survive a power cut as its contents do.
        sync_directory(path)?;
    }
    Ok(connection)
}

fn prepare_writer(path: &Path) -> rusqlite::Result<Connection> {
    let connection = Connection::open_with_flags(
        path,
        OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE | OpenFlags::SQLITE_OPEN_NO_MUTEX,
    )?;
    connection.set_prepared_statement_cache_capacity(32);
    if connection.pragma_query_value(None, "page_count", |row| row.get::<_, i64>(0))? == 0 {
        // Before the first table; it cannot be changed afterwards, and would write to the file each time.
        connection.pragma_update(None, "auto_vacuum", "INCREMENTAL")?;
    }
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    // Checkpoints are made by their own thread, not by whoever happens to commit.
    connection.pragma_update(None, "wal_autocheckpoint", 0)?;
    connection.pragma_update(None, "journal_size_limit", super::checkpoint::WAL_KEPT_BYTES)?;
    connection.pragma_update(None, "cache_size", -4096)?;
    keep_temporary_in_memory(&connection)?;
    connection.pragma_update(None, "cell_size_check", true)?;
    let format: i32 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
    let tables: i64 = connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
    if format == 0 && tables == 0 {
        connection.execute_batch(&format!(
            "BEGIN IMMEDIATE; {TABLES}
             PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {FORMAT}; COMMIT;"
        ))?;
    }
    Ok(connection)
}

/// Where what SQLite sorts is, which is little here.
pub(super) fn keep_temporary_in_memory(connection: &Connection) -> rusqlite::Result<()> {
    connection.pragma_update(None, "temp_store", "MEMORY")
}

/// Refuses a database that is not ours or from a later version, before anything is written to it.
pub(super) fn check_format(connection: &Connection, path: &Path) -> Result<()> {
    let pragma = |name: &str| -> Result<i32> {
        connection.pragma_query_value(None, name, |row| row.get(0)).map_err(|err| open_error(path, &err))
    };
    let (application, format) = (pragma("application_id")?, pragma("user_version")?);
    if application == APPLICATION_ID && format == FORMAT {
        return Ok(());
    }
    let reason = if application == APPLICATION_ID {
        format!("its format is {format}, this program knows up to {FORMAT}; use a newer version of the program")
    } else {
        "it was not made by this program".to_owned()
    };
    Err(Error::Engine { context: format!("cannot use the database {}", path.display()), source: reason.into() })
}

pub(super) fn open_reader(path: &Path) -> rusqlite::Result<Connection> {
    let connection =
        Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    connection.set_prepared_statement_cache_capacity(16);
    connection.pragma_update(None, "query_only", true)?;
    connection.pragma_update(None, "cache_size", -1024)?;
    connection.pragma_update(None, "wal_autocheckpoint", 0)?;
    connection.pragma_update(None, "cell_size_check", true)?;
    connection.busy_timeout(std::time::Duration::from_secs(5))?;
    Ok(connection)
}

pub(super) fn mark(connection: &Connection, name: &str) -> rusqlite::Result<Revision> {
    let mut statement = connection.prepare_cached("SELECT revision FROM mark WHERE name = ?1")?;
    let mut rows = statement.query([name])?;
    let revision: i64 = rows.next()?.map_or(Ok(0), |row| row.get(0))?;
    Ok(Revision(u64::try_from(revision).unwrap_or(0)))
}

pub(super) fn set_mark(connection: &Connection, name: &str, revision: Revision) -> rusqlite::Result<()> {
    let mut statement = connection.prepare_cached("INSERT OR REPLACE INTO mark (name, revision) VALUES (?1, ?2)")?;
    statement.execute((name, i64::try_from(revision.0).unwrap_or(i64::MAX)))?;
    Ok(())
}

pub(super) fn clear_mark(connection: &Connection, name: &str) -> rusqlite::Result<()> {
    connection.prepare_cached("DELETE FROM mark WHERE name = ?1")?.execute([name]).map(drop)
}

/// The newest revision: compaction may have taken the newest row (a deletion), but then its mark is as new.
pub(super) fn newest(connection: &Connection) -> rusqlite::Result<Revision> {
    let row: Option<i64> = connection.query_row("SELECT max(id) FROM log", [], |row| row.get(0))?;
    Ok(row.map_or(Revision::ZERO, revision_of).max(mark(connection, COMPACTED)?))
}

pub(super) fn open_error(path: &Path, err: &rusqlite::Error) -> Error {
    let in_dir = path.parent().unwrap_or(path);
    match err.sqlite_error_code() {
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
            Error::Corrupt { path: path.to_owned(), reason: err.to_string() }
        }
        // A page that is gone (a file cut short) is reported as an I/O error or as a missing table.
        _ if err.to_string().contains("malformed") => Error::Corrupt { path: path.to_owned(), reason: err.to_string() },
        _ if super::health::is_disk_full(path, err) => Error::ReadOnly {
            reason: format!("no space left on the disk of {}; make room there and start again", path.display()),
        },
        Some(ErrorCode::ReadOnly | ErrorCode::CannotOpen | ErrorCode::PermissionDenied) => Error::Engine {
            context: format!("cannot open the database {}", path.display()),
            source: format!("{err}; all files of {} must belong to the user that runs this", in_dir.display()).into(),
        },
        _ => Error::Engine {
            context: format!("cannot open the database {}", path.display()),
            source: err.to_string().into(),
        },
    }
}

/// Of a file: so that its name survives.
pub(super) fn sync_directory(path: &Path) -> Result<()> {
    let Some(dir) = path.parent() else { return Ok(()) };
    std::fs::File::open(dir).and_then(|dir| dir.sync_all()).map_err(|source| Error::Engine {
        context: format!("cannot flush the directory {}", dir.display()),
        source: source.into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn row_numbers_carry_the_revision_and_keep_the_order() {
        let rows = [(1, 0), (1, 1), (1, 65_535), (2, 0), (1 << 46, 3)];
        let ids: Vec<i64> = rows.iter().map(|(revision, at)| row_id(Revision(*revision), *at).unwrap()).collect();
        assert!(ids.is_sorted(), "{ids:?}");
        for ((revision, _), id) in rows.iter().zip(&ids) {
            assert_eq!(revision_of(*id), Revision(*revision));
            assert!(*id <= last_row(Revision(*revision)));
        }
        assert!(last_row(Revision(1)) < row_id(Revision(2), 0).unwrap());
        let refused = row_id(Revision(1), 65_536).unwrap_err();
        assert!(refused.to_string().contains("more than 65536 changes in revision 1"), "{refused}");
    }

    #[test]
    fn an_empty_value_and_a_deletion_differ_in_their_checksum() {
        assert_ne!(checksum(b"a", None), checksum(b"a", Some(b"")));
    }
}
