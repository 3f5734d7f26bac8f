//! The lines of a file, from its end to its beginning and the other way round, with little memory.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::os::unix::fs::FileExt;

use memchr::memrchr;

const BLOCK: u64 = 64 << 10;
/// No line of ours is longer, with its end; what is longer is damage, and skipped.
pub(super) const LONGEST: usize = 1 << 20;

/// Where the last whole line ends: after it is what is being written, or was when the server died.
pub(super) fn end(file: &File, length: u64) -> io::Result<u64> {
    let mut at = length;
    while at > 0 {
        let from = at.saturating_sub(BLOCK);
        if let Some(found) = memrchr(b'\n', &block(file, from, at)?) {
            return Ok(from + found as u64 + 1);
        }
        at = from;
    }
    Ok(0)
}

fn block(file: &File, from: u64, to: u64) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(to - from).unwrap_or_default()];
    file.read_exact_at(&mut bytes, from)?;
    Ok(bytes)
}

/// The last line first.
#[derive(Debug)]
pub(super) struct Backwards<'a> {
    file: &'a File,
    /// Where `rest` begins in the file.
    from: u64,
    /// Read, and not told yet.
    rest: Vec<u8>,
    /// How much was read so far.
    pub(super) read: u64,
}

impl<'a> Backwards<'a> {
    /// The lines before `end`, where a line ends.
    pub(super) fn new(file: &'a File, end: u64) -> Self {
        Self { file, from: end, rest: Vec::new(), read: 0 }
    }

    /// Where the lines end that are not told yet.
    pub(super) fn at(&self) -> u64 {
        self.from + self.rest.len() as u64
    }

    pub(super) fn next(&mut self) -> io::Result<Option<Vec<u8>>> {
        loop {
            // The last byte is the end of the line itself.
            let body = self.rest.len().saturating_sub(1);
            let start = match memrchr(b'\n', &self.rest[..body]) {
                Some(found) => found + 1,
                None if self.from == 0 && self.rest.is_empty() => return Ok(None),
                None if self.from == 0 => 0,
                None => {
                    self.fill()?;
                    continue;
                }
            };
            let mut line = self.rest.split_off(start);
            // Not so only if the cursor was made up; it then points into a line, which is not told.
            if line.pop() == Some(b'\n') {
                return Ok(Some(line));
            }
        }
    }

    fn fill(&mut self) -> io::Result<()> {
        if self.rest.len() > LONGEST {
            self.rest.clear();
        }
        let from = self.from.saturating_sub(BLOCK);
        let mut block = block(self.file, from, self.from)?;
        self.read += block.len() as u64;
        block.append(&mut self.rest);
        (self.from, self.rest) = (from, block);
        Ok(())
    }
}

/// The first line first.
#[derive(Debug)]
pub(super) struct Forwards<'a> {
    reader: io::Take<BufReader<&'a File>>,
    /// Where the lines begin that are not told yet.
    pub(super) at: u64,
}

impl<'a> Forwards<'a> {
    pub(super) fn new(file: &'a File, from: u64, end: u64) -> io::Result<Self> {
        let mut reader = BufReader::with_capacity(64 << 10, file);
        reader.seek(SeekFrom::Start(from))?;
        Ok(Self { reader: reader.take(end.saturating_sub(from)), at: from })
    }

    pub(super) fn next(&mut self) -> io::Result<Option<Vec<u8>>> {
        let mut is_damage = false;
        loop {
            let mut line = Vec::new();
            let read = (&mut self.reader).take(LONGEST as u64).read_until(b'\n', &mut line)?;
            self.at += read as u64;
            if read == 0 {
                return Ok(None);
            }
            let is_whole = line.pop() == Some(b'\n');
            if is_whole && !is_damage {
                return Ok(Some(line));
            }
            is_damage = !is_whole;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(content: &[u8]) -> (tempfile::NamedTempFile, File) {
        let named = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(named.path(), content).unwrap();
        let file = File::open(named.path()).unwrap();
        (named, file)
    }

    fn backwards(file: &File, end: u64) -> Vec<String> {
        let mut lines = Backwards::new(file, end);
        std::iter::from_fn(|| lines.next().unwrap()).map(|line| String::from_utf8_lossy(&line).into_owned()).collect()
    }

    fn forwards(file: &File, from: u64, end: u64) -> Vec<String> {
        let mut lines = Forwards::new(file, from, end).unwrap();
        std::iter::from_fn(|| lines.next().unwrap()).map(|line| String::from_utf8_lossy(&line).into_owned()).collect()
    }

    #[test]
    fn lines_are_found_from_both_ends() {
        for (content, whole, expected) in [
            ("", 0, &[][..]),
            ("torn", 0, &[]),
            ("a\n", 2, &["a"]),
            ("a\nbb\n\nccc\n", 10, &["a", "bb", "", "ccc"]),
            ("a\nbb\ntorn", 5, &["a", "bb"]),
        ] {
            let (_kept, file) = file(content.as_bytes());
            assert_eq!(end(&file, content.len() as u64).unwrap(), whole, "{content:?}");
            assert_eq!(forwards(&file, 0, whole), expected, "{content:?}");
            let mut reversed = backwards(&file, whole);
            reversed.reverse();
            assert_eq!(reversed, expected, "{content:?}");
        }
    }

    #[test]
    fn lines_longer_than_a_block_are_whole_and_damage_is_skipped() {
        let long = "x".repeat(200_000);
        let damage = "y".repeat(3 * LONGEST);
        let content = format!("a\n{long}\n{damage}\nb\n");
        let (_kept, file) = file(content.as_bytes());
        let length = content.len() as u64;
        let mut reversed = backwards(&file, length);
        reversed.reverse();
        assert_eq!((&*reversed[0], &*reversed[1]), ("a", &*long));
        assert_eq!(reversed.last().unwrap(), "b");
        assert!(reversed.iter().all(|line| line.len() <= LONGEST + usize::try_from(BLOCK).unwrap()));
        assert_eq!(forwards(&file, 0, length), ["a", &long, "b"]);
    }

    #[test]
    fn where_it_stands_is_where_it_goes_on() {
        let (_kept, file) = file(b"a\nbb\nccc\n");
        let mut lines = Backwards::new(&file, 9);
        assert_eq!(lines.next().unwrap().unwrap(), b"ccc");
        assert_eq!(lines.at(), 5);
        assert_eq!(backwards(&file, 5), ["bb", "a"]);
        // A position in the middle of a line tells those before it.
        assert_eq!(backwards(&file, 6), ["bb", "a"]);
        assert_eq!(forwards(&file, 5, 9), ["ccc"]);
    }
}
