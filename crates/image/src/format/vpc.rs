//! Microsoft's older VHD: a footer, which growing disks repeat at the beginning.

use super::{Fields, Format, FormatError, Image};

pub(super) const MAGIC: &[u8] = b"conectix";

const FORMAT: Format = Format::Vpc;
const FOOTER: usize = 512;
const FIXED: u32 = 2;
const DYNAMIC: u32 = 3;

/// The size of a growing disk.
pub(super) fn inspect(image: &Image<'_>) -> Result<u64, FormatError> {
    let header: [u8; FOOTER] = image.header(FORMAT, 0)?;
    match header.be32(60) {
        DYNAMIC => Ok(header.be64(48)),
        FIXED => Err(FormatError::Damaged { format: FORMAT, why: "it begins with its end" }),
        _ => Err(FormatError::Refers { format: FORMAT, what: "a parent".to_owned() }),
    }
}

/// The size of a disk of fixed size: what is before the footer is the disk.
pub(super) fn fixed_size(image: &Image<'_>) -> Result<Option<u64>, FormatError> {
    let Some(disk) = image.size.checked_sub(FOOTER as u64) else { return Ok(None) };
    let Some(footer) = image.bytes::<FOOTER>(disk)? else { return Ok(None) };
    let is_footer = footer.starts_with(MAGIC) && footer.be32(60) == FIXED && has_checksum(&footer);
    Ok((is_footer && footer.be64(48) <= disk && disk > 0).then_some(disk))
}

/// The complement of the sum of all other bytes.
fn has_checksum(footer: &[u8; FOOTER]) -> bool {
    let others = footer.iter().enumerate().filter(|(at, _)| !(64..68).contains(at));
    let sum: u32 = others.map(|(_, byte)| u32::from(*byte)).sum();
    !sum == footer.be32(64)
}
