use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::{Embedded, EmbeddedOptions, Op, Store, Txn};

use super::*;

const PAGE: usize = 4096;

fn options() -> EmbeddedOptions {
    EmbeddedOptions { retention: None, ..EmbeddedOptions::default() }
}

/// Versions that were overwritten, each on a page of its own, and that one from after them is to go.
async fn filled(dir: &Path) {
    let store = Embedded::open(dir, options()).unwrap();
    for number in 0..20 {
        let op = Op::Put { key: "k".to_owned(), value: vec![number; PAGE - 600].into(), lease: None };
        store.txn(Txn { compare: vec![], ops: vec![op] }).await.unwrap();
    }
    store.close().await.unwrap();
}

/// The page of the table that has an old value on it: neither how many cells it has nor where they are makes sense.
fn break_page(dir: &Path) {
    let path = dir.join(schema::FILE);
    let file = std::fs::read(&path).unwrap();
    let at = file.chunks(PAGE).position(|page| page.windows(1000).any(|piece| piece == [3; 1000])).unwrap();
    let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    file.write_all_at(&[0x5a; 100], (at * PAGE) as u64).unwrap();
}

/// One that no writer of ours makes.
fn break_row(dir: &Path) {
    let connection = rusqlite::Connection::open(dir.join(schema::FILE)).unwrap();
    let changed = connection.execute("UPDATE log SET key = 5 WHERE id = ?1", [schema::row_id(Revision(4), 0).unwrap()]);
    assert_eq!(changed.unwrap(), 1);
}

#[tokio::test]
async fn damage_met_while_sweeping_is_told_and_writes_are_flushed_as_before() {
    for (what, damage) in [("a page", break_page as fn(&Path)), ("a row", break_row)] {
        let dir = tempfile::tempdir().unwrap();
        filled(dir.path()).await;
        let mut writer = Embedded::prepare(dir.path(), options()).unwrap();
        writer.commit(vec![Queued::own(Command::Compact(writer.revision))]);
        damage(dir.path());
        writer.sweep();
        assert!(writer.connection.is_autocommit(), "{what}: a transaction is left open");
        let synchronous: i64 = writer.connection.pragma_query_value(None, "synchronous", |row| row.get(0)).unwrap();
        assert_eq!(synchronous, 2, "{what}: what is acknowledged is not flushed");
        assert!(writer.shared.health.is_damaged(), "{what}: nobody is told");
        let refusal = writer.shared.health.refusal().unwrap();
        assert!(!refusal.contains("Safety level"), "{what}: {refusal}");
    }
}
