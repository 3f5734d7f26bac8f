//! One command at a time, inside the transaction that the writer has open.
//!
//! Everything that can be refused is refused before the first change, so that a refusal leaves nothing to undo and
//! does not disturb the other commands of the same commit.

use std::time::Duration;

use bytes::Bytes;
use croft_meta::Revision;
use rusqlite::Connection;

use super::queue::{Command, Outcome};
use super::schema::{self, COMPACTED, SCRUB};
use super::watch::Change;
use crate::{Compare, Error, Event, LeaseId, Op, Result, Txn, TxnResult};

/// Deletions in one revision; a row has room for the position of 16 times as many.
const TOGETHER: usize = 4096;

/// The outer error spoils the whole commit, the inner one only this command.
pub(super) type Applied<T> = rusqlite::Result<Result<T>>;

/// Applies one command to the state at `current`. Each change has a revision of its own, the next one.
pub(super) fn apply(connection: &Connection, command: &Command, current: Revision) -> Applied<(Outcome, Vec<Change>)> {
    let unchanged = Outcome { result: TxnResult::Committed(current), lease: None };
    match command {
        Command::Txn(txn) => transaction(connection, txn, current),
        Command::Grant(ttl) => Ok(Ok((Outcome { lease: Some(grant(connection, *ttl)?), ..unchanged }, Vec::new()))),
        Command::Revoke(lease) => revoke(connection, *lease, current),
        Command::Compact(revision) => Ok(compact(connection, *revision, current)?.map(|()| (unchanged, Vec::new()))),
        Command::PlanScrub => {
            schema::set_mark(connection, SCRUB, current.next())?;
            Ok(Ok((unchanged, Vec::new())))
        }
    }
}

struct Newest {
    revision: Revision,
    is_deleted: bool,
    lease: Option<i64>,
}

fn newest(connection: &Connection, key: &str) -> rusqlite::Result<Option<Newest>> {
    let mut statement = connection
        .prepare_cached("SELECT id, value IS NULL, lease FROM log WHERE key = ?1 ORDER BY id DESC LIMIT 1")?;
    let mut rows = statement.query([key.as_bytes()])?;
    let Some(row) = rows.next()? else { return Ok(None) };
    Ok(Some(Newest { revision: schema::revision_of(row.get(0)?), is_deleted: row.get(1)?, lease: row.get(2)? }))
}

fn holds(connection: &Connection, compare: &Compare) -> rusqlite::Result<bool> {
    let found = newest(connection, &compare.key)?.filter(|newest| !newest.is_deleted);
    Ok(found.map_or(Revision::ZERO, |newest| newest.revision) == compare.revision)
}

fn transaction(connection: &Connection, txn: &Txn, current: Revision) -> Applied<(Outcome, Vec<Change>)> {
    for compare in &txn.compare {
        if !holds(connection, compare)? {
            return Ok(Ok((Outcome { result: TxnResult::Conflict(current), lease: None }, Vec::new())));
        }
    }
    for op in &txn.ops {
        if let Op::Put { lease: Some(lease), .. } = op
            && !lease_exists(connection, *lease)?
        {
            return Ok(Err(Error::NoSuchLease(*lease)));
        }
    }
    let mut log = Log { connection, current, events: Vec::with_capacity(txn.ops.len()) };
    for op in &txn.ops {
        match op {
            Op::Put { key, value, lease } => log.append(key, Some(value), *lease)?,
            Op::Delete { key } => log.delete(key)?,
        }
    }
    Ok(Ok(outcome(log.finish().into_iter().collect(), current)))
}

/// A transaction that changed nothing takes no revision.
fn outcome(changes: Vec<Change>, current: Revision) -> (Outcome, Vec<Change>) {
    let revision = changes.last().map_or(current, |change| change.revision);
    (Outcome { result: TxnResult::Committed(revision), lease: None }, changes)
}

fn lease_exists(connection: &Connection, lease: LeaseId) -> rusqlite::Result<bool> {
    connection.prepare_cached("SELECT 1 FROM lease WHERE id = ?1")?.exists([lease.0])
}

pub(super) fn grant(connection: &Connection, ttl: Duration) -> rusqlite::Result<LeaseId> {
    let ttl_ms = i64::try_from(ttl.as_millis()).unwrap_or(i64::MAX);
    connection.prepare_cached("INSERT INTO lease (ttl_ms) VALUES (?1)")?.execute([ttl_ms])?;
    Ok(LeaseId(connection.last_insert_rowid()))
}

/// Ends a lease and deletes the keys whose newest version is attached to it: all in one commit, and if they are very many, one
/// revision after the other.
fn revoke(connection: &Connection, lease: LeaseId, current: Revision) -> Applied<(Outcome, Vec<Change>)> {
    if !lease_exists(connection, lease)? {
        return Ok(Err(Error::NoSuchLease(lease)));
    }
    let mut changes: Vec<Change> = Vec::new();
    for keys in attached(connection, lease)?.chunks(TOGETHER) {
        let current = changes.last().map_or(current, |change| change.revision);
        let mut log = Log { connection, current, events: Vec::with_capacity(keys.len()) };
        for key in keys {
            log.delete(key)?;
        }
        changes.extend(log.finish());
    }
    connection.prepare_cached("DELETE FROM lease WHERE id = ?1")?.execute([lease.0])?;
    Ok(Ok(outcome(changes, current)))
}

fn attached(connection: &Connection, lease: LeaseId) -> rusqlite::Result<Vec<String>> {
    let mut statement = connection.prepare_cached("SELECT DISTINCT key FROM log WHERE lease = ?1 ORDER BY key")?;
    let mut rows = statement.query([lease.0])?;
    let mut keys = Vec::new();
    while let Some(row) = rows.next()? {
        let key = String::from_utf8_lossy(row.get_ref(0)?.as_blob()?).into_owned();
        // Since then the key may have been written without the lease, or deleted.
        if newest(connection, &key)?.is_some_and(|newest| newest.lease == Some(lease.0)) {
            keys.push(key);
        }
    }
    Ok(keys)
}

/// Moves the compaction point, never back; the rows go later.
fn compact(connection: &Connection, revision: Revision, current: Revision) -> Applied<()> {
    if revision > current {
        return Ok(Err(Error::Future { requested: revision, newest: current }));
    }
    if revision > schema::mark(connection, COMPACTED)? {
        schema::set_mark(connection, COMPACTED, revision)?;
    }
    Ok(Ok(()))
}

/// The changes of one transaction as they are written.
struct Log<'a> {
    connection: &'a Connection,
    current: Revision,
    events: Vec<Event>,
}

impl Log<'_> {
    fn append(&mut self, key: &str, value: Option<&Bytes>, lease: Option<LeaseId>) -> rusqlite::Result<()> {
        let revision = self.current.next();
        let bytes = value.map(AsRef::as_ref);
        let mut statement = self
            .connection
            .prepare_cached("INSERT INTO log (id, key, value, lease, sum) VALUES (?1, ?2, ?3, ?4, ?5)")?;
        statement.execute((
            schema::row_id(revision, self.events.len())?,
            key.as_bytes(),
            bytes,
            lease.map(|lease| lease.0),
            schema::checksum(key.as_bytes(), bytes),
        ))?;
        self.events.push(Event { key: key.to_owned(), revision, value: value.cloned() });
        Ok(())
    }

    fn delete(&mut self, key: &str) -> rusqlite::Result<()> {
        match newest(self.connection, key)? {
            Some(newest) if !newest.is_deleted => self.append(key, None, None),
            _ => Ok(()),
        }
    }

    fn finish(self) -> Option<Change> {
        let revision = self.current.next();
        (!self.events.is_empty()).then_some(Change { revision, events: self.events })
    }
}
