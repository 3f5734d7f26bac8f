//! What changed between two files that share extents: wherever both have the same blocks of the disk, they are the same.
//!
//! The kernel tells where the blocks of a file are by FIEMAP, and `xfs_io` asks it: the package that makes pools has it too. Of
//! two files that nobody writes to, and that are both there while they are asked about, this is exact; where it says nothing
//! certain, a piece counts as changed.

use std::io::{self, BufRead, BufReader};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// `xfs_io` counts in these.
const SECTOR: u64 = 512;
/// A file in more pieces than this is rather read.
const MOST_PIECES: usize = 4 << 20;
/// Where an administrator's programs are.
const ADMIN_PATH: &str = "/usr/local/sbin:/usr/sbin:/sbin:/usr/bin:/bin";

/// FIEMAP's flags. Where nobody can say where the data is, or it is not there as it is read.
const UNCERTAIN: u32 = 0x2 | 0x4 | 0x8 | 0x80 | 0x100 | 0x200 | 0x400;
/// Room that was taken and never written: it reads as zeros.
const UNWRITTEN: u32 = 0x800;

#[derive(Debug, thiserror::Error)]
pub enum ExtentsError {
    #[error("cannot ask where the blocks of {} are", path.display())]
    Ask {
        path: PathBuf,
        #[source]
        err: io::Error,
    },
    #[error("it cannot be told where the blocks of {} are: {why}", path.display())]
    NotTold { path: PathBuf, why: String },
}

/// A piece of a file, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    pub offset: u64,
    pub length: u64,
}

/// What is where, for a piece of a file. What has no piece is a hole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Piece {
    start: u64,
    end: u64,
    /// Of its first byte on the disk; `None` if that is not certain.
    place: Option<u64>,
}

/// Where the second file may be another than the first, in order. What is past the end of one of them is a hole in it.
pub fn changed(old: &Path, new: &Path) -> Result<Vec<Range>, ExtentsError> {
    let device = |path: &Path| {
        let found = std::fs::metadata(path).map_err(|err| ExtentsError::Ask { path: path.to_owned(), err })?;
        Ok(found.dev())
    };
    if device(old)? != device(new)? {
        let why = "they are on different disks".to_owned();
        return Err(ExtentsError::NotTold { path: new.to_owned(), why });
    }
    Ok(compare(&pieces(old)?, &pieces(new)?))
}

fn pieces(path: &Path) -> Result<Vec<Piece>, ExtentsError> {
    let failed = |err| ExtentsError::Ask { path: path.to_owned(), err };
    let not_told = |why: &str| ExtentsError::NotTold { path: path.to_owned(), why: why.to_owned() };
    let mut child = Command::new("xfs_io")
        .args(["-r", "-c", "fiemap -v"])
        .arg(path)
        .env("PATH", ADMIN_PATH)
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(failed)?;
    let mut found = Vec::new();
    let mut is_understood = false;
    if let Some(output) = child.stdout.take() {
        for line in BufReader::new(output).lines() {
            let Ok(line) = line else { break };
            if line.trim_start().starts_with("EXT:") {
                is_understood = true;
                continue;
            }
            match piece(&line) {
                Line::Piece(piece) => found.push(piece),
                Line::Nothing => {}
                Line::Unknown => is_understood = false,
            }
            if found.len() > MOST_PIECES {
                is_understood = false;
                break;
            }
        }
    }
    // Its output is closed by now, so that it ends.
    let status = child.wait().map_err(failed)?;
    match (status.success(), is_understood) {
        (true, true) => Ok(found),
        (true, false) => Err(not_told("the answer is not understood")),
        (false, _) => Err(not_told("the file system does not say")),
    }
}

enum Line {
    Piece(Piece),
    /// A hole, or the file's name.
    Nothing,
    Unknown,
}

/// `0: [0..7]: 96..103 8 0x2001`, or `1: [8..159]: hole 152`.
fn piece(line: &str) -> Line {
    let mut words = line.split_whitespace();
    let is_numbered = words.next().and_then(|word| word.strip_suffix(':')).is_some_and(|n| n.parse::<u64>().is_ok());
    let Some(range) = words.next().filter(|word| is_numbered && word.starts_with('[')) else { return Line::Nothing };
    let range = range.strip_prefix('[').and_then(|range| range.strip_suffix("]:")).and_then(span);
    let (Some((first, last)), Some(place)) = (range, words.next()) else { return Line::Unknown };
    if place == "hole" {
        return Line::Nothing;
    }
    let flags = words.nth(1).and_then(|word| u32::from_str_radix(word.strip_prefix("0x")?, 16).ok());
    let (Some((place, _)), Some(flags)) = (span(place), flags) else { return Line::Unknown };
    if flags & UNWRITTEN != 0 {
        return Line::Nothing;
    }
    let place = (flags & UNCERTAIN == 0).then(|| place.saturating_mul(SECTOR));
    Line::Piece(Piece { start: first * SECTOR, end: (last + 1) * SECTOR, place })
}

fn span(text: &str) -> Option<(u64, u64)> {
    let (first, last) = text.split_once("..")?;
    let (first, last): (u64, u64) = (first.parse().ok()?, last.parse().ok()?);
    (first <= last && last < u64::MAX / SECTOR).then_some((first, last))
}

/// What is at a place of a file.
#[derive(Clone, Copy, PartialEq, Eq)]
enum At {
    Hole,
    Block(u64),
    Uncertain,
}

fn at(piece: Option<&Piece>, offset: u64) -> At {
    match piece.filter(|piece| piece.start <= offset) {
        None => At::Hole,
        Some(Piece { place: None, .. }) => At::Uncertain,
        Some(Piece { start, place: Some(place), .. }) => At::Block(place + (offset - start)),
    }
}

fn compare(old: &[Piece], new: &[Piece]) -> Vec<Range> {
    let mut found: Vec<Range> = Vec::new();
    let (mut i, mut j, mut offset) = (0, 0, 0);
    loop {
        while old.get(i).is_some_and(|piece| piece.end <= offset) {
            i += 1;
        }
        while new.get(j).is_some_and(|piece| piece.end <= offset) {
            j += 1;
        }
        let (before, after) = (old.get(i), new.get(j));
        // Up to here nothing begins or ends in either of them.
        let edges = [before, after].into_iter().flatten().flat_map(|piece| [piece.start, piece.end]);
        let Some(end) = edges.filter(|edge| *edge > offset).min() else { return found };
        let (was, is) = (at(before, offset), at(after, offset));
        if was != is || was == At::Uncertain {
            match found.last_mut().filter(|last| last.offset + last.length == offset) {
                Some(last) => last.length += end - offset,
                None => found.push(Range { offset, length: end - offset }),
            }
        }
        offset = end;
    }
}

#[cfg(test)]
mod tests {
    use std::fs::OpenOptions;
    use std::os::unix::fs::FileExt;

    use super::*;
    use crate::pool::tests::Place;

    fn p(start: u64, end: u64, place: u64) -> Piece {
        Piece { start, end, place: Some(place) }
    }

    fn r(offset: u64, length: u64) -> Range {
        Range { offset, length }
    }

    #[test]
    fn only_what_is_elsewhere_has_changed() {
        let same = [p(0, 10, 100), p(20, 30, 200)];
        assert!(compare(&same, &same).is_empty());
        assert!(compare(&[], &[]).is_empty());
        // Cut differently, the same all the same.
        assert!(compare(&same, &[p(0, 4, 100), p(4, 10, 104), p(20, 30, 200)]).is_empty());
        // A piece in the middle was written anew; another was discarded, a third is new.
        assert_eq!(compare(&same, &[p(0, 4, 100), p(4, 6, 500), p(6, 10, 106), p(20, 30, 200)]), [r(4, 2)]);
        assert_eq!(compare(&same, &[p(0, 10, 100)]), [r(20, 10)]);
        assert_eq!(compare(&same, &[p(0, 10, 100), p(10, 20, 300), p(20, 30, 201)]), [r(10, 20)]);
        assert_eq!(compare(&[], &[p(5, 6, 1)]), [r(5, 1)]);
        let uncertain = [Piece { start: 0, end: 8, place: None }];
        assert_eq!(compare(&uncertain, &uncertain), [r(0, 8)]);
    }

    #[test]
    fn answers_are_read_and_what_is_not_known_is_not_guessed() {
        let read = |line: &str| match piece(line) {
            Line::Piece(piece) => Some(piece),
            _ => None,
        };
        assert_eq!(read("   0: [0..7]:          96..103     8   0x2001"), Some(p(0, 4096, 96 * 512)));
        assert_eq!(read("   2: [8..15]: 200..207 8 0x4"), Some(Piece { start: 4096, end: 8192, place: None }));
        for nothing in ["/a/b:", " EXT: FILE-OFFSET", "   1: [8..159]:  hole  152", "3: [8..15]: 2..9 8 0x801"] {
            assert!(matches!(piece(nothing), Line::Nothing), "{nothing}");
        }
        for unknown in ["0: [0..7]", "0: [7..0]: 1..2 8 0x0", "0: [0..7]: 1..8 8", "0: [0..7]: ? 8 0x0"] {
            assert!(matches!(piece(unknown), Line::Unknown), "{unknown}");
        }
    }

    #[test]
    fn what_is_written_between_two_snapshots_is_found() {
        let place = Place::new();
        let pool = place.pool(400);
        let volume = pool.create("pvc", 16 << 20).unwrap();
        let file = OpenOptions::new().write(true).open(&volume.path).unwrap();
        file.write_all_at(&vec![1; 8 << 20], 0).unwrap();
        let take = |name: &str| {
            let shot = pool.prepare_snapshot(name, &volume.path).unwrap();
            assert!(shot.share().unwrap());
            shot.keep().unwrap().path
        };
        let first = take("first");
        let second = take("second");
        assert!(changed(&first, &second).unwrap().is_empty());
        file.write_all_at(&[2; 4096], 1 << 20).unwrap();
        file.write_all_at(&[3; 4096], 12 << 20).unwrap();
        let third = take("third");
        let found = changed(&second, &third).unwrap();
        let covers =
            |offset: u64| found.iter().any(|range| range.offset <= offset && offset < range.offset + range.length);
        assert!(covers(1 << 20) && covers(12 << 20) && !covers(0) && !covers(4 << 20), "{found:?}");
        assert!(found.iter().map(|range| range.length).sum::<u64>() <= 1 << 20, "{found:?}");
        assert!(changed(&first, &pool.dir().join("none")).is_err());
    }
}
