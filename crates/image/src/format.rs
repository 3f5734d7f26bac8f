//! Which format an image has, read from its headers by ourselves.
//!
//! `qemu-img` follows what an image points to: backing files, data files, extents. An image could so read any file of this
//! host. Therefore whatever points outside of itself is refused here, before another program sees it.

mod qcow2;
mod vdi;
mod vhdx;
mod vmdk;
mod vpc;

use std::fmt;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    Raw,
    /// A CD or DVD: raw too.
    Iso,
    Qcow2,
    Vmdk,
    Vhdx,
    Vdi,
    /// Microsoft's older VHD, growing. One of fixed size is raw with a trailer.
    Vpc,
}

impl Format {
    /// As `qemu-img` calls it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Raw => "raw",
            Self::Iso => "iso",
            Self::Qcow2 => "qcow2",
            Self::Vmdk => "vmdk",
            Self::Vhdx => "vhdx",
            Self::Vdi => "vdi",
            Self::Vpc => "vpc",
        }
    }

    pub(crate) fn is_raw(self) -> bool {
        matches!(self, Self::Raw | Self::Iso)
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inspected {
    pub format: Format,
    /// What the guest sees; whole sectors.
    pub virtual_size: u64,
}

/// A part of a disk that lies in an image just as the guest sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    /// Where it is on the disk. The last may reach beyond the disk's end.
    pub(crate) disk: u64,
    pub(crate) file: u64,
    pub(crate) size: u64,
}

#[derive(Debug, thiserror::Error)]
pub enum FormatError {
    #[error("the file is not a disk image: {0}")]
    NotAnImage(String),
    #[error("{0} images are not supported")]
    Unsupported(&'static str),
    #[error("the {format} image refers to another file ({what}), which is not allowed")]
    Refers { format: Format, what: String },
    #[error("the {format} image is encrypted, which is not supported")]
    Encrypted { format: Format },
    #[error("the {format} image is truncated: it has {has} bytes and refers to byte {needs}")]
    Truncated { format: Format, has: u64, needs: u64 },
    #[error("the {format} image is damaged: {why}")]
    Damaged { format: Format, why: &'static str },
    #[error("cannot read the image")]
    Read(#[source] io::Error),
}

const SECTOR: u64 = 512;

/// Finds the format, and refuses what is no image, damaged, or points outside of itself.
pub fn inspect(file: &File) -> Result<Inspected, FormatError> {
    let image = Image::new(file)?;
    let start = image.prefix(PREFIX)?;
    let (format, virtual_size) = inspect_by_magic(&image, &start)?;
    let virtual_size = virtual_size.checked_next_multiple_of(SECTOR).filter(|size| i64::try_from(*size).is_ok());
    let virtual_size = virtual_size.ok_or(FormatError::Damaged { format, why: "its size is impossible" })?;
    if virtual_size == 0 {
        return Err(FormatError::Damaged { format, why: "its size is zero" });
    }
    Ok(Inspected { format, virtual_size })
}

/// Where in the image all data of its disk lies, if it does just as the guest sees it; elsewhere the disk is zero.
pub(crate) fn extents(file: &File, format: Format) -> Result<Option<Vec<Extent>>, FormatError> {
    match format {
        Format::Qcow2 => qcow2::extents(&Image::new(file)?),
        _ => Ok(None),
    }
}

/// Enough for every magic that is at the beginning, and to see whether it is text.
const PREFIX: usize = 4096;

fn inspect_by_magic(image: &Image<'_>, start: &[u8]) -> Result<(Format, u64), FormatError> {
    if start.is_empty() {
        return Err(FormatError::NotAnImage("it is empty".to_owned()));
    }
    if start.starts_with(qcow2::MAGIC) {
        return Ok((Format::Qcow2, qcow2::inspect(image)?));
    }
    if vmdk::is_vmdk(start) {
        return Ok((Format::Vmdk, vmdk::inspect(image, start)?));
    }
    if start.starts_with(vhdx::MAGIC) {
        return Ok((Format::Vhdx, vhdx::inspect(image)?));
    }
    if start.get(64..68) == Some(vdi::MAGIC) {
        return Ok((Format::Vdi, vdi::inspect(image)?));
    }
    if start.starts_with(vpc::MAGIC) {
        return Ok((Format::Vpc, vpc::inspect(image)?));
    }
    inspect_raw(image, start)
}

/// A raw image has no magic of its own; what is certainly something else is refused.
fn inspect_raw(image: &Image<'_>, start: &[u8]) -> Result<(Format, u64), FormatError> {
    if let Some(size) = vpc::fixed_size(image)? {
        return Ok((Format::Raw, size));
    }
    if is_iso(image)? {
        return Ok((Format::Iso, image.size));
    }
    if let Some(what) = something_else(start) {
        return Err(FormatError::NotAnImage(format!("it is {what}")));
    }
    if !image.size.is_multiple_of(SECTOR) {
        let why = format!("it has none of the known formats, and its {} bytes are not whole sectors", image.size);
        return Err(FormatError::NotAnImage(why));
    }
    Ok((Format::Raw, image.size))
}

fn is_iso(image: &Image<'_>) -> Result<bool, FormatError> {
    /// The 16th sector of a CD, after the type.
    const VOLUME_DESCRIPTOR: u64 = 16 * 2048 + 1;
    let Some(magic) = image.bytes::<5>(VOLUME_DESCRIPTOR)? else { return Ok(false) };
    // The second is a file system of DVDs without the older one beside it.
    Ok(matches!(&magic, b"CD001" | b"BEA01"))
}

fn something_else(start: &[u8]) -> Option<&'static str> {
    const KNOWN: &[(&[u8], &str)] = &[
        (b"\x1f\x8b\x08", "compressed twice"),
        (b"\xfd7zXZ\0", "compressed twice"),
        (b"\x28\xb5\x2f\xfd", "compressed twice"),
        (b"BZh", "compressed by bzip2, which is not supported: use xz, gz or zst"),
        (b"7z\xbc\xaf\x27\x1c", "a 7z archive"),
        (b"PK\x03\x04", "a zip archive"),
        (b"Rar!\x1a\x07", "a rar archive"),
        (b"\x7fELF", "a program"),
        (b"%PDF-", "a document"),
        (b"QED\0", "a QED image, which is not supported"),
        (b"LZIP", "compressed by lzip, which is not supported: use xz, gz or zst"),
        (b"\x04\x22\x4d\x18", "compressed by lz4, which is not supported: use xz, gz or zst"),
    ];
    if let Some((_, what)) = KNOWN.iter().find(|(magic, _)| start.starts_with(magic)) {
        return Some(what);
    }
    if start.get(257..262) == Some(b"ustar") {
        return Some("a tar archive");
    }
    // An error page, most likely. Disks begin with code or zeros.
    is_text(start).then_some("text, perhaps an error page")
}

/// The last character may be cut in two.
fn is_text(start: &[u8]) -> bool {
    let has_control = start.iter().any(|byte| byte.is_ascii_control() && !byte.is_ascii_whitespace());
    !has_control && std::str::from_utf8(start).err().is_none_or(|error| error.error_len().is_none())
}

/// A file and its length.
struct Image<'a> {
    file: &'a File,
    size: u64,
}

impl<'a> Image<'a> {
    fn new(file: &'a File) -> Result<Self, FormatError> {
        let size = file.metadata().map_err(FormatError::Read)?.len();
        Ok(Self { file, size })
    }

    /// None if the file ends before.
    fn bytes<const N: usize>(&self, offset: u64) -> Result<Option<[u8; N]>, FormatError> {
        let mut bytes = [0; N];
        Ok(self.fill(&mut bytes, offset)?.then_some(bytes))
    }

    fn fill(&self, buffer: &mut [u8], offset: u64) -> Result<bool, FormatError> {
        let end = offset.checked_add(buffer.len() as u64);
        if end.is_none_or(|end| end > self.size) {
            return Ok(false);
        }
        self.file.read_exact_at(buffer, offset).map_err(FormatError::Read)?;
        Ok(true)
    }

    /// At most `limit` bytes from the beginning.
    fn prefix(&self, limit: usize) -> Result<Vec<u8>, FormatError> {
        let mut start = vec![0; usize::try_from(self.size).unwrap_or(limit).min(limit)];
        self.fill(&mut start, 0)?;
        Ok(start)
    }

    fn header<const N: usize>(&self, format: Format, offset: u64) -> Result<[u8; N], FormatError> {
        let needs = offset.saturating_add(N as u64);
        self.bytes(offset)?.ok_or(FormatError::Truncated { format, has: self.size, needs })
    }
}

/// Numbers out of a header; the caller has made sure that it is long enough.
trait Fields {
    fn field<const N: usize>(&self, offset: usize) -> [u8; N];

    fn be32(&self, offset: usize) -> u32 {
        u32::from_be_bytes(self.field(offset))
    }
    fn be64(&self, offset: usize) -> u64 {
        u64::from_be_bytes(self.field(offset))
    }
    fn le32(&self, offset: usize) -> u32 {
        u32::from_le_bytes(self.field(offset))
    }
    fn le64(&self, offset: usize) -> u64 {
        u64::from_le_bytes(self.field(offset))
    }
}

impl Fields for [u8] {
    fn field<const N: usize>(&self, offset: usize) -> [u8; N] {
        let mut field = [0; N];
        if let Some(bytes) = self.get(offset..offset + N) {
            field.copy_from_slice(bytes);
        }
        field
    }
}

#[cfg(test)]
mod tests;
