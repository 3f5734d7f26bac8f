//! A whole store in one file, as it was at one revision.
//!
//! JSON lines, compressed with gzip: a head, the files that belong to it (keys and certificates, by name), the records in the
//! order of their keys, and an end that counts and sums up what came before. A file without its end is not whole, and is
//! refused; so is one that was changed. Whatever engine wrote it, either can be filled from it.

use std::io::{self, BufRead, BufReader, Read, Write};

use bytes::Bytes;
use croft_meta::Revision;
use flate2::Compression;
use flate2::bufread::MultiGzDecoder;
use flate2::write::GzEncoder;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::Record;

/// What this program writes, and all that it reads.
pub const FORMAT: u32 = 1;
/// No object is nearly as long.
const LONGEST_LINE: u64 = 64 << 20;

#[derive(Debug, thiserror::Error)]
pub enum SavedError {
    #[error("cannot read it")]
    Read(#[source] io::Error),
    #[error("cannot compress it")]
    Compress(#[source] io::Error),
    #[error("it is no saved state: {0}")]
    NotSaved(String),
    #[error("its format is {0}, this program knows {FORMAT}; use a newer version of the program")]
    Format(u32),
    #[error("line {line} cannot be understood: {why}")]
    Line { line: u64, why: String },
    #[error("it is not whole: its end is missing")]
    CutOff,
    #[error("it was changed or damaged: what it says at its end is not what is in it")]
    Damaged,
    #[error("the record {0:?} is no text")]
    Binary(String),
}

/// What was saved.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Head {
    pub format: u32,
    /// Of the program that wrote it.
    pub version: String,
    /// The uid of the cluster.
    pub cluster: String,
    /// When, as in objects.
    pub saved: String,
    pub revision: u64,
}

/// What is in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Item {
    File { name: String, content: String },
    Record(Record),
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
enum Line {
    Head(Head),
    File { name: String, content: String },
    Record { key: String, revision: u64, value: String },
    End(End),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct End {
    files: u64,
    records: u64,
    /// Records that there were, could not be read, and are not in it. Older programs counted none.
    #[serde(default)]
    unreadable: u64,
    /// Of all lines before this one.
    sha256: String,
}

/// Counts and sums up what goes by.
#[derive(Debug, Default)]
struct Tally {
    files: u64,
    records: u64,
    unreadable: u64,
    digest: Sha256,
}

impl Tally {
    fn add(&mut self, text: &[u8]) {
        self.digest.update(text);
    }

    fn end(&self) -> End {
        let digest = Bytes::copy_from_slice(&self.digest.clone().finalize());
        let Self { files, records, unreadable, .. } = *self;
        End { files, records, unreadable, sha256: format!("{digest:x}") }
    }
}

/// Makes the file piece by piece: [`Writer::take`] gives what is finished.
#[derive(Debug)]
pub struct Writer {
    out: GzEncoder<Vec<u8>>,
    tally: Tally,
}

impl Writer {
    pub fn new(head: Head) -> Result<Self, SavedError> {
        // The fastest: what is saved is small beside what it takes to read it.
        let mut new = Self { out: GzEncoder::new(Vec::new(), Compression::fast()), tally: Tally::default() };
        new.line(&Line::Head(head))?;
        Ok(new)
    }

    pub fn file(&mut self, name: &str, content: &str) -> Result<(), SavedError> {
        self.tally.files += 1;
        self.line(&Line::File { name: name.to_owned(), content: content.to_owned() })
    }

    pub fn record(&mut self, record: &Record) -> Result<(), SavedError> {
        let value = String::from_utf8(record.value.to_vec()).map_err(|_| SavedError::Binary(record.key.clone()))?;
        self.tally.records += 1;
        self.line(&Line::Record { key: record.key.clone(), revision: record.revision.0, value })
    }

    /// One that should be in it, and cannot be read.
    pub fn unreadable(&mut self) {
        self.tally.unreadable += 1;
    }

    /// What can be written out by now.
    pub fn take(&mut self) -> Bytes {
        std::mem::take(self.out.get_mut()).into()
    }

    pub fn finish(mut self) -> Result<Bytes, SavedError> {
        let end = self.tally.end();
        self.line(&Line::End(end))?;
        Ok(self.out.finish().map_err(SavedError::Compress)?.into())
    }

    fn line(&mut self, line: &Line) -> Result<(), SavedError> {
        let mut text = serde_json::to_vec(line).map_err(|error| SavedError::Compress(error.into()))?;
        text.push(b'\n');
        self.tally.add(&text);
        self.out.write_all(&text).map_err(SavedError::Compress)
    }
}

/// Reads the file from its beginning. Nothing of it is to be trusted before [`Reader::next`] has said that it was all.
#[derive(Debug)]
pub struct Reader<R: Read> {
    input: BufReader<MultiGzDecoder<BufReader<R>>>,
    tally: Tally,
    line: u64,
    head: Head,
}

impl<R: Read> Reader<R> {
    pub fn open(input: R) -> Result<Self, SavedError> {
        let head =
            Head { format: 0, version: String::new(), cluster: String::new(), saved: String::new(), revision: 0 };
        let input = BufReader::new(MultiGzDecoder::new(BufReader::new(input)));
        let mut new = Self { input, tally: Tally::default(), line: 0, head };
        let first = new.read().map_err(|error| match error {
            SavedError::Read(error) if error.kind() != io::ErrorKind::InvalidInput => SavedError::Read(error),
            SavedError::Format(format) => SavedError::Format(format),
            other => SavedError::NotSaved(other.to_string()),
        })?;
        let Line::Head(head) = first else { return Err(SavedError::NotSaved("it has no head".to_owned())) };
        if head.format != FORMAT {
            return Err(SavedError::Format(head.format));
        }
        new.head = head;
        Ok(new)
    }

    pub fn head(&self) -> &Head {
        &self.head
    }

    /// How many records are missing because nobody could read them. Known at the end.
    pub fn unreadable(&self) -> u64 {
        self.tally.unreadable
    }

    /// `None` once all was read, and is as it was written.
    #[expect(clippy::should_implement_trait, reason = "an iterator would let errors be skipped")]
    pub fn next(&mut self) -> Result<Option<Item>, SavedError> {
        let before = self.tally.end();
        match self.read()? {
            Line::File { name, content } => {
                self.tally.files += 1;
                Ok(Some(Item::File { name, content }))
            }
            Line::Record { key, revision, value } => {
                self.tally.records += 1;
                Ok(Some(Item::Record(Record { key, value: value.into(), revision: Revision(revision) })))
            }
            Line::End(end) if end == (End { unreadable: end.unreadable, ..before }) && self.is_at_end()? => {
                self.tally.unreadable = end.unreadable;
                Ok(None)
            }
            Line::End(_) => Err(SavedError::Damaged),
            Line::Head(_) => Err(SavedError::Line { line: self.line, why: "a second head".to_owned() }),
        }
    }

    fn is_at_end(&mut self) -> Result<bool, SavedError> {
        Ok(self.input.fill_buf().map_err(broken)?.is_empty())
    }

    fn read(&mut self) -> Result<Line, SavedError> {
        let mut text = Vec::new();
        self.line += 1;
        (&mut self.input).take(LONGEST_LINE).read_until(b'\n', &mut text).map_err(broken)?;
        if text.last() != Some(&b'\n') {
            return Err(SavedError::CutOff);
        }
        self.tally.add(&text);
        serde_json::from_slice(&text).map_err(|error| SavedError::Line { line: self.line, why: error.to_string() })
    }
}

/// A stream that ends too soon is a file that is not whole; one that cannot be decompressed was damaged.
fn broken(error: io::Error) -> SavedError {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => SavedError::CutOff,
        io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData => SavedError::Damaged,
        _ => SavedError::Read(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head() -> Head {
        let text = |text: &str| text.to_owned();
        Head { format: FORMAT, version: text("1"), cluster: text("c"), saved: text("now"), revision: 9 }
    }

    fn record(key: &str, revision: u64) -> Record {
        Record {
            key: key.to_owned(),
            value: Bytes::from(format!("{{\"of\":\"{key}\"}}")),
            revision: Revision(revision),
        }
    }

    fn written() -> Vec<u8> {
        let mut writer = Writer::new(head()).unwrap();
        let mut out = writer.take().to_vec();
        writer.file("pki/ca.key", "secret\n").unwrap();
        for at in 0..1000 {
            writer.record(&record(&format!("registry/{at:04}"), at)).unwrap();
            out.extend(writer.take());
        }
        out.extend(writer.finish().unwrap());
        out
    }

    fn read(file: &[u8]) -> Result<(Head, Vec<Item>), SavedError> {
        let mut reader = Reader::open(file)?;
        let mut items = Vec::new();
        while let Some(item) = reader.next()? {
            items.push(item);
        }
        Ok((reader.head().clone(), items))
    }

    #[test]
    fn what_was_written_is_read() {
        let (found, items) = read(&written()).unwrap();
        assert_eq!(found, head());
        assert_eq!(items.len(), 1001);
        assert_eq!(items[0], Item::File { name: "pki/ca.key".to_owned(), content: "secret\n".to_owned() });
        assert_eq!(items[7], Item::Record(record("registry/0006", 6)));
    }

    #[test]
    fn what_could_not_be_read_is_counted() {
        let counted = |file: &[u8]| {
            let mut reader = Reader::open(file).unwrap();
            while reader.next().unwrap().is_some() {}
            reader.unreadable()
        };
        assert_eq!(counted(&written()), 0);
        let mut writer = Writer::new(head()).unwrap();
        writer.record(&record("a", 1)).unwrap();
        writer.unreadable();
        writer.unreadable();
        assert_eq!(counted(&writer.finish().unwrap()), 2);
        // As it was written before that was counted.
        let mut text = String::new();
        MultiGzDecoder::new(written().as_slice()).read_to_string(&mut text).unwrap();
        let mut out = GzEncoder::new(Vec::new(), Compression::fast());
        out.write_all(text.replace("\"unreadable\":0,", "").as_bytes()).unwrap();
        assert!(text.contains("\"unreadable\":0,"));
        assert_eq!(counted(&out.finish().unwrap()), 0);
    }

    #[test]
    fn a_part_of_it_is_not_taken_for_the_whole() {
        let file = written();
        for length in (0..file.len()).step_by(97) {
            assert!(read(&file[..length]).is_err(), "{length} of {}", file.len());
        }
        assert!(matches!(read(&file[..file.len() - 20]), Err(SavedError::CutOff | SavedError::Damaged)));
    }

    #[test]
    fn what_was_changed_is_found() {
        let squeezed = |text: &str| {
            let mut out = GzEncoder::new(Vec::new(), Compression::fast());
            out.write_all(text.as_bytes()).unwrap();
            out.finish().unwrap()
        };
        let mut text = String::new();
        MultiGzDecoder::new(written().as_slice()).read_to_string(&mut text).unwrap();
        assert!(read(&squeezed(&text)).is_ok());
        assert!(matches!(read(&squeezed(&text.replace("0006\"}\"", "0007\"}\""))), Err(SavedError::Damaged) | Ok(_)));
        assert!(matches!(read(&squeezed(&text.replacen("secret", "Secret", 1))), Err(SavedError::Damaged)));
        let without_one: String = text.split_inclusive('\n').filter(|line| !line.contains("0005")).collect();
        assert!(matches!(read(&squeezed(&without_one)), Err(SavedError::Damaged)));
        assert!(matches!(read(&squeezed(&format!("{text}{text}"))), Err(SavedError::Damaged)));
        let newer = text.replacen("\"format\":1", "\"format\":2", 1);
        assert!(matches!(read(&squeezed(&newer)), Err(SavedError::Format(2))));
    }

    #[test]
    fn other_files_are_refused_in_words() {
        for other in [&b""[..], b"hello\n", b"\x1f\x8b\x08"] {
            let error = read(other).unwrap_err().to_string();
            assert!(error.starts_with("it is no saved state"), "{error}");
        }
    }
}
