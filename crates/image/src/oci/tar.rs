//! Just enough of tar to take one file out of a layer. Names in it are compared, never used.

use std::fs::File;
use std::io::{self, Read};

use super::PullError;
use crate::error::ImportError;
use crate::sparse::SparseWriter;

const BLOCK: u64 = 512;
/// Names and attributes that are longer than this are not for us.
const LONGEST_EXTENSION: u64 = 1 << 20;
const BUFFER: usize = 1 << 20;

/// Which file to take.
#[derive(Debug)]
pub(super) enum Wanted {
    /// The only one in `disk/`.
    InDisk,
    At(String),
}

impl Wanted {
    pub(super) fn new(path: Option<&str>) -> Self {
        path.map_or(Self::InDisk, |path| Self::At(normal(path)))
    }

    fn is(&self, name: &str) -> bool {
        match self {
            Self::At(path) => name == path,
            Self::InDisk => name.strip_prefix("disk/").is_some_and(|file| {
                // Entries that start so say that a lower layer's file is gone.
                !file.is_empty() && !file.contains('/') && !file.starts_with(".wh.")
            }),
        }
    }
}

#[derive(Debug)]
struct Entry {
    name: String,
    kind: u8,
    size: u64,
}

/// Writes the wanted file to `output`. False if it is not in the archive.
pub(super) fn take_out(input: &mut dyn Read, wanted: &Wanted, output: File, limit: u64) -> Result<bool, PullError> {
    let mut output = Some(output);
    let (mut long_name, mut long_size) = (None, None);
    while let Some(mut entry) = next(input)? {
        match entry.kind {
            b'L' => long_name = Some(text(&extension(input, &entry)?)),
            b'x' => {
                let attributes = extension(input, &entry)?;
                long_name = attribute(&attributes, "path")?.or(long_name);
                long_size = attribute(&attributes, "size")?.and_then(|size| size.parse().ok());
            }
            b'g' | b'K' => skip(input, padded(entry.size)?)?,
            _ => {
                entry.name = normal(&long_name.take().unwrap_or(entry.name));
                entry.size = long_size.take().unwrap_or(entry.size);
                if !wanted.is(&entry.name) || entry.kind == b'5' {
                    skip(input, padded(entry.size)?)?;
                    continue;
                }
                if !matches!(entry.kind, b'0' | 0 | b'7') {
                    return Err(PullError::NoDisk(format!("{} is not a plain file", entry.name)));
                }
                let Some(output) = output.take() else {
                    return Err(PullError::NoDisk("more than one file is in /disk".to_owned()));
                };
                copy(input, output, entry.size, limit)?;
                skip(input, padded(entry.size)? - entry.size)?;
            }
        }
    }
    Ok(output.is_none())
}

fn copy(input: &mut dyn Read, output: File, size: u64, limit: u64) -> Result<(), PullError> {
    if size > limit {
        return Err(ImportError::TooLarge { what: "disk in the image", limit }.into());
    }
    let writing = |source| ImportError::File { doing: "write to", path: "the disk of the image".into(), source };
    let mut writer = SparseWriter::new(output, 0).map_err(writing)?;
    let mut buffer = vec![0; BUFFER];
    let mut rest = size;
    while rest > 0 {
        let chunk = &mut buffer[..usize::try_from(rest).unwrap_or(BUFFER).min(BUFFER)];
        let read = input.read(chunk).map_err(|error| broken(&error))?;
        if read == 0 {
            return Err(PullError::Archive("it ends in the middle of a file".to_owned()));
        }
        writer.write(&chunk[..read]).map_err(writing)?;
        rest -= read as u64;
    }
    writer.finish().map_err(writing)?;
    Ok(())
}

/// None at the end.
fn next(input: &mut dyn Read) -> Result<Option<Entry>, PullError> {
    let mut header = [0; 512];
    let mut filled = 0;
    while filled < header.len() {
        let read = input.read(&mut header[filled..]).map_err(|error| broken(&error))?;
        if read == 0 {
            break;
        }
        filled += read;
    }
    // It ends with two blocks of zeros, which some forget.
    if filled == 0 || header == [0; 512] {
        return Ok(None);
    }
    if filled < header.len() || !has_checksum(&header) {
        return Err(PullError::Archive("a header is damaged".to_owned()));
    }
    let mut name = text(&header[..100]);
    if &header[257..262] == b"ustar" && header[345] != 0 && &header[257..265] != b"ustar  \0" {
        name = format!("{}/{name}", text(&header[345..500]));
    }
    let size = number(&header[124..136]).ok_or_else(|| PullError::Archive("a size is no number".to_owned()))?;
    Ok(Some(Entry { name, kind: header[156], size }))
}

/// The sum of all bytes, with spaces in its own place.
fn has_checksum(header: &[u8; 512]) -> bool {
    let byte = |(at, byte): (usize, &u8)| if (148..156).contains(&at) { u64::from(b' ') } else { u64::from(*byte) };
    Some(header.iter().enumerate().map(byte).sum()) == number(&header[148..156])
}

/// Octal digits, or binary when the first bit is set.
fn number(field: &[u8]) -> Option<u64> {
    let (first, rest) = field.split_first()?;
    if first & 0x80 != 0 {
        // A field of eight bytes has no room beside the bit for more than seven.
        let (high, low) = rest.split_at(rest.len().saturating_sub(8));
        let is_small = *first == 0x80 && high.iter().all(|byte| *byte == 0);
        return is_small.then(|| low.iter().fold(0, |sum, byte| (sum << 8) | u64::from(*byte)));
    }
    let digits = text(field);
    let digits = digits.trim();
    if digits.is_empty() { Some(0) } else { u64::from_str_radix(digits, 8).ok() }
}

fn text(field: &[u8]) -> String {
    let end = field.iter().position(|byte| *byte == 0).unwrap_or(field.len());
    String::from_utf8_lossy(&field[..end]).into_owned()
}

fn normal(name: &str) -> String {
    name.trim_start_matches("./").trim_matches('/').to_owned()
}

fn padded(size: u64) -> Result<u64, PullError> {
    size.checked_next_multiple_of(BLOCK).ok_or_else(|| PullError::Archive("a size is impossible".to_owned()))
}

fn extension(input: &mut dyn Read, entry: &Entry) -> Result<Vec<u8>, PullError> {
    if entry.size > LONGEST_EXTENSION {
        return Err(PullError::Archive("a name is too long".to_owned()));
    }
    let mut data = vec![0; usize::try_from(padded(entry.size)?).unwrap_or_default()];
    input.read_exact(&mut data).map_err(|error| broken(&error))?;
    data.truncate(usize::try_from(entry.size).unwrap_or_default());
    Ok(data)
}

/// Lines of `<length> <key>=<value>\n`.
fn attribute(attributes: &[u8], key: &str) -> Result<Option<String>, PullError> {
    let damaged = || PullError::Archive("its attributes are damaged".to_owned());
    let (mut rest, mut found) = (attributes, None);
    while !rest.is_empty() {
        let space = rest.iter().position(|byte| *byte == b' ').ok_or_else(damaged)?;
        let length: usize = text(&rest[..space]).parse().map_err(|_| damaged())?;
        let line = rest.get(space + 1..length).and_then(|line| line.strip_suffix(b"\n")).ok_or_else(damaged)?;
        let line = String::from_utf8_lossy(line);
        if line.starts_with("GNU.sparse") {
            return Err(PullError::Archive("sparse files in archives are not supported".to_owned()));
        }
        if let Some((name, value)) = line.split_once('=')
            && name == key
        {
            found = Some(value.to_owned());
        }
        rest = &rest[length..];
    }
    Ok(found)
}

fn skip(input: &mut dyn Read, size: u64) -> Result<(), PullError> {
    let skipped = io::copy(&mut input.take(size), &mut io::sink()).map_err(|error| broken(&error))?;
    if skipped < size {
        return Err(PullError::Archive("it ends in the middle of a file".to_owned()));
    }
    Ok(())
}

fn broken(error: &io::Error) -> PullError {
    PullError::Archive(error.to_string())
}

#[cfg(test)]
mod tests;
