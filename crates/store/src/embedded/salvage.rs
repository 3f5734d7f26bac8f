//! Takes out of a damaged file what can still be read.
//!
//! The index and the table say which versions there are; either may be damaged, so both are asked, around what cannot be read.
//! Then each key is looked up by itself: what is damaged takes nothing with it but itself. A lost first page is made up for.

mod first_page;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use bytes::Bytes;
use croft_meta::Revision;
use rusqlite::Connection;

use super::inspect;
use super::lock::DirLock;
use super::schema::{self, COMPACTED};
use crate::{Error, Record, Result};
use first_page::Copies;

/// One revision.
const STEP: i64 = 1 << 16;

#[derive(Debug, Default)]
pub struct Salvaged {
    /// In key order.
    pub records: Vec<Record>,
    /// Keys of which nothing can be read.
    pub lost: Vec<String>,
    /// Keys of which only an older version can be read, which is among the records.
    pub stale: Vec<String>,
    pub revision: Revision,
    /// Some part of the table could not be read: there may have been keys that nobody knows of any more.
    pub has_gaps: bool,
    /// It was read with the first page of another store.
    pub lost_first_page: bool,
}

type Versions = BTreeMap<Vec<u8>, BTreeSet<i64>>;

/// Of the store in `dir`, which no server may have open. Nothing is changed there.
pub fn salvage(dir: &Path) -> Result<Salvaged> {
    let path = dir.join(schema::FILE);
    if !path.exists() {
        return Err(Error::Invalid { reason: format!("there is no store in {}", dir.display()) });
    }
    let _lock = DirLock::take(dir)?;
    match from_file(&path) {
        Err(Error::Corrupt { .. }) => {}
        done => return done,
    }
    let copies = Copies::make(dir)?;
    let found = copies.files.iter().filter_map(|file| from_file(file).ok());
    let mut best = found.max_by_key(|found| found.records.len()).unwrap_or_default();
    if best.records.is_empty() {
        let reason = "neither its first page nor, with another one, anything else can be read".to_owned();
        return Err(Error::Corrupt { path, reason });
    }
    best.lost_first_page = true;
    Ok(best)
}

fn from_file(path: &Path) -> Result<Salvaged> {
    let failed = |error: &rusqlite::Error| schema::open_error(path, error);
    let connection = inspect::open_untouched(path).map_err(|error| failed(&error))?;
    schema::check_format(&connection, path)?;
    let (mut versions, mut salvaged) = (Versions::new(), Salvaged::default());
    let index_is_whole = from_index(&connection, &mut versions);
    // Without its first page there is no table.
    let table_is_whole = from_table(&connection, &mut versions)
        .map_err(|error| Error::Corrupt { path: path.to_owned(), reason: error.to_string() })?;
    // Either of them names all keys.
    salvaged.has_gaps = !index_is_whole && !table_is_whole;
    salvaged.revision = schema::mark(&connection, COMPACTED).unwrap_or_default();
    for (key, ids) in &versions {
        let name = String::from_utf8_lossy(key).into_owned();
        let Some(found) = newest_readable(&connection, key, ids) else {
            salvaged.lost.push(name);
            continue;
        };
        // Only those count that are as they were written: what is damaged may say anything.
        salvaged.revision = salvaged.revision.max(found.revision);
        match found.value {
            Some(value) => {
                if !found.is_newest {
                    salvaged.stale.push(name.clone());
                }
                salvaged.records.push(Record { key: name, value, revision: found.revision });
            }
            None if found.is_newest => {}
            None => salvaged.lost.push(name),
        }
    }
    Ok(salvaged)
}

/// From both ends, to where each stops. True if it can be read to its end.
fn from_index(connection: &Connection, versions: &mut Versions) -> bool {
    let mut read = |order: &str| -> rusqlite::Result<()> {
        let sql = format!("SELECT key, id FROM log INDEXED BY log_key ORDER BY key {order}, id {order}");
        let mut statement = connection.prepare(&sql)?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            versions.entry(row.get(0)?).or_default().insert(row.get(1)?);
        }
        Ok(())
    };
    read("ASC").is_ok() || read("DESC").is_ok()
}

/// Row after row, over what cannot be read. True if all of it can.
fn from_table(connection: &Connection, versions: &mut Versions) -> rusqlite::Result<bool> {
    let mut statement = connection.prepare("SELECT id, key FROM log NOT INDEXED WHERE id >= ?1 ORDER BY id LIMIT 1")?;
    let mut next =
        |from: i64| statement.query_row([from], |row| Ok((row.get::<_, i64>(0)?, row.get::<_, Vec<u8>>(1)?)));
    let (mut from, mut is_whole) = (0, true);
    loop {
        match next(from) {
            Ok((id, key)) => {
                versions.entry(key).or_default().insert(id);
                let Some(after) = id.checked_add(1) else { return Ok(is_whole) };
                from = after;
            }
            Err(rusqlite::Error::QueryReturnedNoRows) => return Ok(is_whole),
            Err(_) => {
                is_whole = false;
                let is_readable = |from: i64| matches!(next(from), Ok(_) | Err(rusqlite::Error::QueryReturnedNoRows));
                let Some(behind) = behind(from, is_readable) else { return Ok(is_whole) };
                from = behind;
            }
        }
    }
}

/// The first place after `bad` from which on it can be read again: found by ever longer steps, then by halving.
fn behind(bad: i64, mut is_readable: impl FnMut(i64) -> bool) -> Option<i64> {
    let (mut low, mut step) = (bad, STEP);
    let mut high = loop {
        let at = low.checked_add(step)?;
        if is_readable(at) {
            break at;
        }
        (low, step) = (at, step.checked_mul(2)?);
    };
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if is_readable(middle) { high = middle } else { low = middle }
    }
    Some(high)
}

struct Found {
    /// `None` for a deletion.
    value: Option<Bytes>,
    revision: Revision,
    is_newest: bool,
}

fn newest_readable(connection: &Connection, key: &[u8], ids: &BTreeSet<i64>) -> Option<Found> {
    std::str::from_utf8(key).ok()?;
    let (at, mut found) = ids.iter().rev().enumerate().find_map(|(at, id)| Some((at, whole(connection, key, *id)?)))?;
    found.is_newest = at == 0;
    Some(found)
}

/// A version that is as it was written.
fn whole(connection: &Connection, key: &[u8], id: i64) -> Option<Found> {
    let mut statement = connection.prepare_cached("SELECT key, value, sum FROM log WHERE id = ?1").ok()?;
    let read = statement.query_row([id], |row| {
        Ok((row.get::<_, Vec<u8>>(0)?, row.get::<_, Option<Vec<u8>>>(1)?, row.get::<_, i64>(2)?))
    });
    let (its_key, value, sum) = read.ok()?;
    let is_whole = its_key == key && sum == schema::checksum(key, value.as_deref());
    is_whole.then(|| Found { value: value.map(Bytes::from), revision: schema::revision_of(id), is_newest: false })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_read_is_stepped_over_and_no_more() {
        let gap = (5 * STEP + 7)..(900 * STEP + 3);
        assert_eq!(behind(5 * STEP + 7, |at| !gap.contains(&at)), Some(900 * STEP + 3));
        assert_eq!(behind(1, |_| false), None);
    }
}
