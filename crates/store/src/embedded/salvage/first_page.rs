//! Another first page for a file that has lost its own.
//!
//! The first page says what a file is and where its tables begin. Both are the same in every store, since all are made by the same
//! statements: so it is taken from a new one, and put into a copy. Writing a file anew puts the tables elsewhere, but always to the
//! same places: there are two to try.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::super::{compaction, make_dir, schema};
use crate::{Error, Result};

const PAGE: usize = 4096;
/// Where the first page has the number of pages, where it begins to tell of free ones, and how much of it that takes.
const PAGES_AT: usize = 28;
const FREE_AT: usize = 32;
const FREE_LENGTH: usize = 8;

/// Copies with a first page that may fit. They go when this does.
#[derive(Debug)]
pub(super) struct Copies {
    dir: PathBuf,
    pub(super) files: Vec<PathBuf>,
}

impl Drop for Copies {
    fn drop(&mut self) {
        // The next attempt begins with removing it.
        let _ = fs::remove_dir_all(&self.dir);
    }
}

impl Copies {
    /// Beside the store in `dir`, which stays as it is.
    pub(super) fn make(dir: &Path) -> Result<Self> {
        let aside = dir.with_added_extension("salvaging");
        let failed = |source: std::io::Error| Error::Engine {
            context: format!("cannot copy the damaged store to {}", aside.display()),
            source: source.into(),
        };
        if aside.exists() {
            fs::remove_dir_all(&aside).map_err(failed)?;
        }
        make_dir(&aside)?;
        let mut copies = Self { dir: aside.clone(), files: Vec::new() };
        for (name, is_rewritten) in [("first", false), ("rewritten", true)] {
            let page = new_first_page(&aside.join(format!("{name}.new")), is_rewritten)?;
            let file = aside.join(format!("{name}.db"));
            replace(dir, &file, page).map_err(failed)?;
            copies.files.push(file);
        }
        Ok(copies)
    }
}

fn new_first_page(path: &Path, is_rewritten: bool) -> Result<Vec<u8>> {
    let connection = schema::open_writer(path)?;
    let close = || -> rusqlite::Result<()> {
        if is_rewritten {
            compaction::rewrite(&connection, path)?;
        }
        compaction::cut_log(&connection).map(drop)
    };
    close().map_err(|error| schema::open_error(path, &error))?;
    drop(connection);
    let mut page = fs::read(path).map_err(|source| Error::Engine {
        context: format!("cannot read {}", path.display()),
        source: source.into(),
    })?;
    page.truncate(PAGE);
    Ok(page)
}

fn replace(dir: &Path, copy: &Path, mut page: Vec<u8>) -> std::io::Result<()> {
    let original = dir.join(schema::FILE);
    fs::copy(&original, copy)?;
    let log = original.with_extension("db-wal");
    if log.exists() {
        fs::copy(&log, copy.with_extension("db-wal"))?;
    }
    let pages = fs::metadata(copy)?.len() / u64::try_from(PAGE).unwrap_or(u64::MAX);
    let pages = u32::try_from(pages).unwrap_or(u32::MAX);
    page[PAGES_AT..FREE_AT].copy_from_slice(&pages.to_be_bytes());
    // Which pages are free is lost; nobody writes here.
    page[FREE_AT..FREE_AT + FREE_LENGTH].fill(0);
    fs::OpenOptions::new().write(true).open(copy)?.write_all_at(&page, 0)
}
