//! VMDK in one file: VMware's "Virtual Disk Format 5.0".

use super::{Fields, Format, FormatError, Image, SECTOR};

const FORMAT: Format = Format::Vmdk;
const SPARSE: &[u8] = b"KDMV";
const DESCRIPTOR: &[u8] = b"# Disk DescriptorFile";

/// The directory of a stream is at its end, where the header is repeated.
const AT_END: u64 = u64::MAX;
const HEADER: usize = 512;
const FOOTER_FROM_END: u64 = 1024;
const DESCRIPTOR_LIMIT: u64 = 1 << 20;

pub(super) fn is_vmdk(start: &[u8]) -> bool {
    start.starts_with(SPARSE) || start.starts_with(b"COWD") || start.starts_with(DESCRIPTOR)
}

/// The size of the disk.
pub(super) fn inspect(image: &Image<'_>, start: &[u8]) -> Result<u64, FormatError> {
    if start.starts_with(DESCRIPTOR) {
        return Err(refers("extents in other files"));
    }
    if !start.starts_with(SPARSE) {
        return Err(FormatError::Unsupported("VMDK (COWD)"));
    }
    let header: [u8; HEADER] = image.header(FORMAT, 0)?;
    let (at, sectors) = (header.le64(28), header.le64(36));
    // With no capacity of its own the descriptor alone would count, and that may name any file.
    if header.le64(12) == 0 || at == 0 || sectors == 0 {
        return Err(refers("extents in other files"));
    }
    check_descriptor(&descriptor(image, at, sectors)?)?;
    if header.le64(56) != AT_END {
        return capacity(&header);
    }
    let footer: [u8; HEADER] = image.header(FORMAT, image.size.saturating_sub(FOOTER_FROM_END))?;
    if !footer.starts_with(SPARSE) {
        return Err(FormatError::Damaged {
            format: FORMAT,
            why: "it does not end as it should; perhaps it is truncated",
        });
    }
    capacity(&footer)
}

fn capacity(header: &[u8]) -> Result<u64, FormatError> {
    let size = header.le64(12).checked_mul(SECTOR);
    size.ok_or(FormatError::Damaged { format: FORMAT, why: "its size is impossible" })
}

fn descriptor(image: &Image<'_>, at: u64, sectors: u64) -> Result<String, FormatError> {
    let size = sectors.saturating_mul(SECTOR);
    if size > DESCRIPTOR_LIMIT {
        return Err(FormatError::Damaged { format: FORMAT, why: "its descriptor is too large" });
    }
    let mut text = vec![0; usize::try_from(size).unwrap_or_default()];
    let offset = at.saturating_mul(SECTOR);
    if !image.fill(&mut text, offset)? {
        return Err(FormatError::Truncated { format: FORMAT, has: image.size, needs: offset.saturating_add(size) });
    }
    let end = text.iter().position(|byte| *byte == 0).unwrap_or(text.len());
    Ok(String::from_utf8_lossy(&text[..end]).into_owned())
}

/// One extent, which is this file; no parent.
fn check_descriptor(text: &str) -> Result<(), FormatError> {
    let mut extents = 0;
    for line in text.lines().map(str::trim) {
        let (key, value) = line.split_once('=').map_or(("", ""), |(key, value)| (key.trim(), value.trim()));
        let value = value.trim_matches('"');
        match key {
            "parentFileNameHint" => return Err(refers(&format!("parent {value:?}"))),
            "parentCID" if !value.eq_ignore_ascii_case("ffffffff") => return Err(refers("a parent")),
            "createType" if !matches!(value, "monolithicSparse" | "streamOptimized") => {
                return Err(refers(&format!("extents of a {value}")));
            }
            _ => {}
        }
        let mut words = line.split_whitespace();
        if !matches!(words.next(), Some("RW" | "RDONLY" | "NOACCESS")) {
            continue;
        }
        extents += 1;
        if words.nth(1) != Some("SPARSE") || extents > 1 {
            return Err(refers("extents in other files"));
        }
    }
    Ok(())
}

fn refers(what: &str) -> FormatError {
    FormatError::Refers { format: FORMAT, what: what.to_owned() }
}
