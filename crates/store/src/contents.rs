//! What a store holds, summed up: two that hold the same have the same sum, whatever their engines and revisions.

use bytes::Bytes;
use croft_meta::Revision;
use sha2::{Digest, Sha256};

use crate::{Range, Record, Result, Store};

/// Records fetched at once.
const PAGE: usize = 500;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contents {
    pub records: u64,
    /// Of all keys and values, in the order of the keys.
    pub sha256: String,
}

/// Adds up records in the order of their keys.
#[derive(Debug, Default)]
pub struct Summing {
    records: u64,
    digest: Sha256,
}

impl Summing {
    pub fn add(&mut self, key: &[u8], value: &[u8]) {
        self.records += 1;
        for part in [key, value] {
            // With the lengths, so that nothing can move from one part to the other.
            self.digest.update(u64::try_from(part.len()).unwrap_or(u64::MAX).to_le_bytes());
            self.digest.update(part);
        }
    }

    pub fn contents(self) -> Contents {
        let digest = Bytes::copy_from_slice(&self.digest.finalize());
        Contents { records: self.records, sha256: format!("{digest:x}") }
    }
}

/// Everything in a store at one revision, page by page.
#[derive(Debug)]
pub struct Pages<'a> {
    store: &'a dyn Store,
    at: Revision,
    after: Option<String>,
}

impl<'a> Pages<'a> {
    pub fn new(store: &'a dyn Store, at: Revision) -> Self {
        Self { store, at, after: Some(String::new()) }
    }

    /// `None` after the last one.
    pub async fn next(&mut self) -> Result<Option<Vec<Record>>> {
        let Some(after) = self.after.take() else { return Ok(None) };
        let range = Range { after, limit: PAGE, at: Some(self.at), ..Range::default() };
        let page = self.store.range(range).await?;
        self.after = page.records.last().filter(|_| page.more).map(|last| last.key.clone());
        Ok(Some(page.records).filter(|records| !records.is_empty()))
    }
}

/// Sums up what is in a store now.
pub async fn sum_up(store: &dyn Store) -> Result<Contents> {
    let mut summing = Summing::default();
    let mut pages = Pages::new(store, store.revision().await?);
    while let Some(records) = pages.next().await? {
        for record in &records {
            summing.add(record.key.as_bytes(), &record.value);
        }
    }
    Ok(summing.contents())
}
