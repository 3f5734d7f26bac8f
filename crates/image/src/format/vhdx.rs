//! VHDX: Microsoft's [MS-VHDX].

use super::{Fields, Format, FormatError, Image};

pub(super) const MAGIC: &[u8] = b"vhdxfile";

const FORMAT: Format = Format::Vhdx;
const REGION_TABLE: u64 = 192 * 1024;
const METADATA_REGION: [u8; 16] = guid(0x8b7c_a206, 0x4790, 0x4b9a, [0xb8, 0xfe, 0x57, 0x5f, 0x05, 0x0f, 0x88, 0x6e]);
const FILE_PARAMETERS: [u8; 16] = guid(0xcaa1_6737, 0xfa36, 0x4d43, [0xb3, 0xb6, 0x33, 0xf0, 0xaa, 0x44, 0xe7, 0x6b]);
const DISK_SIZE: [u8; 16] = guid(0x2fa5_4224, 0xcd1b, 0x4876, [0xb2, 0x11, 0x5d, 0xbe, 0xd8, 0x3b, 0xf4, 0xb8]);
const HAS_PARENT: u32 = 2;

/// As it is on disk: the first three parts are little-endian.
const fn guid(first: u32, second: u16, third: u16, rest: [u8; 8]) -> [u8; 16] {
    let rest = u64::from_be_bytes(rest) as u128;
    let start = (first.swap_bytes() as u128) << 32 | (second.swap_bytes() as u128) << 16 | third.swap_bytes() as u128;
    (start << 64 | rest).to_be_bytes()
}

/// The size of the disk.
pub(super) fn inspect(image: &Image<'_>) -> Result<u64, FormatError> {
    let region = find(image, REGION_TABLE, b"regi", 16, &METADATA_REGION)?;
    let metadata = region.le64(16);
    let item = |id: &[u8; 16]| -> Result<u64, FormatError> {
        let entry = find(image, metadata, b"metadata", 32, id)?;
        Ok(metadata.saturating_add(u64::from(entry.le32(16))))
    };
    let parameters: [u8; 8] = image.header(FORMAT, item(&FILE_PARAMETERS)?)?;
    if parameters.le32(4) & HAS_PARENT != 0 {
        return Err(FormatError::Refers { format: FORMAT, what: "a parent".to_owned() });
    }
    let size: [u8; 8] = image.header(FORMAT, item(&DISK_SIZE)?)?;
    Ok(u64::from_le_bytes(size))
}

/// The entry of a table: both kinds have entries of 32 bytes that begin with what they are.
fn find(image: &Image<'_>, table: u64, magic: &[u8], header: u64, id: &[u8; 16]) -> Result<[u8; 32], FormatError> {
    let head: [u8; 16] = image.header(FORMAT, table)?;
    if !head.starts_with(magic) {
        return Err(FormatError::Damaged { format: FORMAT, why: "a table is missing" });
    }
    // After the magic: a checksum and the count in one, the count as 16 bits in the other.
    let count = if header == 16 { head.le32(8) } else { u32::from(u16::from_le_bytes(head.field(10))) };
    for index in 0..u64::from(count.min(2047)) {
        let entry: [u8; 32] = image.header(FORMAT, table.saturating_add(header + index * 32))?;
        if entry.starts_with(id) {
            return Ok(entry);
        }
    }
    Err(FormatError::Damaged { format: FORMAT, why: "a table has an entry missing" })
}
