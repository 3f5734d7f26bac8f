//! Reading the log over all its files, in both directions, from wherever a reader left off.

use std::fmt;
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use sha2::{Digest, Sha256};

use super::files::backups;
use super::lines::{Backwards, Forwards, end};

/// How much is read for one request; whoever wants more asks again from there.
const BUDGET: u64 = 16 << 20;
/// The first line of a file is found within this.
const HEAD: usize = 64 << 10;

/// A place between two lines. A file is known by its first line, which stays when it is renamed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Cursor {
    file: String,
    at: u64,
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.file, self.at)
    }
}

impl FromStr for Cursor {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (file, at) = text.split_once('-').ok_or(())?;
        if file.len() != 16 || !file.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(());
        }
        Ok(Self { file: file.to_owned(), at: at.parse().map_err(drop)? })
    }
}

/// What a reader thinks of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Take,
    Skip,
    /// Neither this nor anything before it.
    Stop,
}

#[derive(Debug, Default)]
pub(super) struct Page {
    /// The newest first.
    pub(super) lines: Vec<Vec<u8>>,
    /// Where older ones are; None if there are none.
    pub(super) before: Option<Cursor>,
    /// Where newer ones will be.
    pub(super) after: Option<Cursor>,
}

/// The newest lines, or those before a place.
pub(super) fn older(
    path: &Path,
    before: Option<&Cursor>,
    limit: usize,
    judge: impl Fn(&[u8]) -> Verdict,
) -> io::Result<Page> {
    older_within(path, before, limit, BUDGET, judge)
}

fn older_within(
    path: &Path,
    before: Option<&Cursor>,
    limit: usize,
    budget: u64,
    judge: impl Fn(&[u8]) -> Verdict,
) -> io::Result<Page> {
    let mut page = Page::default();
    let mut read = 0;
    let mut sought = before;
    for source in sources(path)? {
        let Some(part) = source.open()? else { continue };
        let end = match sought {
            // If it is in no file, that file is gone, and all before it.
            Some(cursor) if cursor.file != part.id => continue,
            Some(cursor) => cursor.at.min(part.end),
            None => part.end,
        };
        sought = None;
        if before.is_none() && page.after.is_none() {
            page.after = Some(Cursor { file: part.id.clone(), at: part.end });
        }
        let mut lines = Backwards::new(&part.file, end);
        loop {
            if page.lines.len() >= limit || read + lines.read >= budget {
                if lines.at() == 0 {
                    break;
                }
                page.before = Some(Cursor { file: part.id, at: lines.at() });
                return Ok(page);
            }
            let Some(line) = lines.next()? else { break };
            match judge(&line) {
                Verdict::Take => page.lines.push(line),
                Verdict::Skip => {}
                Verdict::Stop => return Ok(page),
            }
        }
        read += lines.read;
    }
    Ok(page)
}

/// Those after a place: the next ones, so that nothing is left out by whoever asks again and again.
pub(super) fn newer(path: &Path, after: &Cursor, limit: usize, judge: impl Fn(&[u8]) -> Verdict) -> io::Result<Page> {
    // From the newest back to the file of the cursor. If that is gone, there is nothing to go on from but the oldest.
    let mut found = Vec::new();
    for source in sources(path)? {
        let Some(part) = source.open()? else { continue };
        let is_it = part.id == after.file;
        found.push((source, is_it));
        if is_it {
            break;
        }
    }
    let mut page = Page { after: Some(after.clone()), ..Page::default() };
    let mut read = 0;
    for (source, is_it) in found.into_iter().rev() {
        let Some(part) = source.open()? else { continue };
        let from = if is_it { after.at } else { 0 };
        let mut lines = Forwards::new(&part.file, from, part.end)?;
        while page.lines.len() < limit && read + (lines.at - from) < BUDGET {
            let Some(line) = lines.next()? else { break };
            // What is older than wanted is not the end in this direction.
            if judge(&line) == Verdict::Take {
                page.lines.push(line);
            }
        }
        read += lines.at - from;
        let is_done = lines.at >= part.end;
        page.after = Some(Cursor { file: part.id, at: lines.at });
        if !is_done {
            break;
        }
    }
    page.lines.reverse();
    Ok(page)
}

/// A file of the log.
enum Source {
    /// The one that is written now, opened before the others were listed: it may be renamed meanwhile.
    Current(File),
    Backup(PathBuf),
}

/// A file as far as it has whole lines.
struct Part {
    file: File,
    id: String,
    end: u64,
}

/// The newest first.
fn sources(path: &Path) -> io::Result<Vec<Source>> {
    let current = match File::open(path) {
        Ok(file) => Some(file),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(error),
    };
    let own = current.as_ref().map(|file| file.metadata().map(|about| about.ino())).transpose()?;
    let rotated = backups(path)?.into_iter().map(|(_, path)| path);
    // One that has just been rotated is not read twice.
    let others = rotated.filter(|path| own.is_none() || std::fs::metadata(path).ok().map(|about| about.ino()) != own);
    let others = others.map(Source::Backup);
    Ok(current.map(Source::Current).into_iter().chain(others).collect())
}

impl Source {
    /// None if it has no whole line, or was removed.
    fn open(&self) -> io::Result<Option<Part>> {
        let file = match self {
            Self::Current(file) => file.try_clone()?,
            Self::Backup(path) => match File::open(path) {
                Ok(file) => file,
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
                Err(error) => return Err(error),
            },
        };
        let length = file.metadata()?.len();
        let end = end(&file, length)?;
        if end == 0 {
            return Ok(None);
        }
        let mut head = vec![0; usize::try_from(end).unwrap_or(HEAD).min(HEAD)];
        file.read_exact_at(&mut head, 0)?;
        let first = head.split(|byte| *byte == b'\n').next().unwrap_or_default();
        let digest: [u8; 32] = Sha256::digest(first).into();
        let start = digest.first_chunk().copied().map(u64::from_be_bytes).unwrap_or_default();
        Ok(Some(Part { file, id: format!("{start:016x}"), end }))
    }
}

#[cfg(test)]
mod tests;
