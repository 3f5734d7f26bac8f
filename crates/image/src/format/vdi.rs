//! VirtualBox's VDI.

use super::{Fields, Format, FormatError, Image};

/// Little-endian 0xbeda107f, after 64 bytes of text.
pub(super) const MAGIC: &[u8] = &[0x7f, 0x10, 0xda, 0xbe];

const FORMAT: Format = Format::Vdi;
const DYNAMIC: u32 = 1;
const FIXED: u32 = 2;
const VERSION: u32 = 0x0001_0001;

/// The size of the disk.
pub(super) fn inspect(image: &Image<'_>) -> Result<u64, FormatError> {
    let header: [u8; 512] = image.header(FORMAT, 0)?;
    if header.le32(68) != VERSION {
        return Err(FormatError::Unsupported("VDI of a version other than 1.1"));
    }
    let has_parent = [0x1a8, 0x1b8].iter().any(|at| header.field::<16>(*at) != [0; 16]);
    if !matches!(header.le32(76), DYNAMIC | FIXED) || has_parent {
        return Err(FormatError::Refers { format: FORMAT, what: "a parent".to_owned() });
    }
    Ok(header.le64(0x170))
}
