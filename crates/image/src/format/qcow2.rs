//! qcow2: docs/interop/qcow2.txt of QEMU.

use super::{Fields, Format, FormatError, Image};

pub(super) const MAGIC: &[u8] = b"QFI\xfb";

const FORMAT: Format = Format::Qcow2;

/// Of the "incompatible features": what must be understood to read the image.
const DIRTY: u64 = 1;
const CORRUPT: u64 = 1 << 1;
const EXTERNAL_DATA: u64 = 1 << 2;
const COMPRESSION_TYPE: u64 = 1 << 3;
const EXTENDED_L2: u64 = 1 << 4;

/// Where a table or cluster is, in entries of the tables.
const OFFSET: u64 = 0x00ff_ffff_ffff_fe00;
const COMPRESSED: u64 = 1 << 62;

const HEADER: usize = 104;
const VERSION_2_HEADER: usize = 72;

/// The size of the disk.
pub(super) fn inspect(image: &Image<'_>) -> Result<u64, FormatError> {
    let mut header = [0; HEADER];
    header[..VERSION_2_HEADER].copy_from_slice(&image.header::<VERSION_2_HEADER>(FORMAT, 0)?);
    match header.be32(4) {
        2 => {}
        3 => header = image.header(FORMAT, 0)?,
        _ => return Err(FormatError::Unsupported("qcow2 of a version other than 2 or 3, or qcow")),
    }
    refuse_references(image, &header)?;
    if header.be32(32) != 0 {
        return Err(FormatError::Encrypted { format: FORMAT });
    }
    let features = header.be64(72);
    if features & CORRUPT != 0 {
        return Err(damaged("it is marked as corrupt"));
    }
    if features & !(DIRTY | COMPRESSION_TYPE | EXTENDED_L2) != 0 {
        return Err(FormatError::Unsupported("qcow2 with unknown features"));
    }
    check_tables(image, &header, features)?;
    Ok(header.be64(24))
}

fn refuse_references(image: &Image<'_>, header: &[u8]) -> Result<(), FormatError> {
    let (offset, size) = (header.be64(8), header.be32(16));
    if offset != 0 {
        let mut name = vec![0; usize::try_from(size).unwrap_or_default().min(1023)];
        image.fill(&mut name, offset)?;
        let what = format!("backing file {:?}", String::from_utf8_lossy(&name));
        return Err(FormatError::Refers { format: FORMAT, what });
    }
    if header.be64(72) & EXTERNAL_DATA != 0 {
        return Err(FormatError::Refers { format: FORMAT, what: "external data file".to_owned() });
    }
    Ok(())
}

/// Every cluster is inside the file. Programs that read images take what is not there for zeros, so a file that was cut short
/// would become a disk with data missing.
fn check_tables(image: &Image<'_>, header: &[u8], features: u64) -> Result<(), FormatError> {
    let (cluster_bits, disk_size) = (header.be32(20), header.be64(24));
    if !(9..=21).contains(&cluster_bits) {
        return Err(damaged("its cluster size is impossible"));
    }
    let cluster = 1_u64 << cluster_bits;
    let entry = if features & EXTENDED_L2 == 0 { 8 } else { 16 };
    let entries = cluster / entry;
    let tables = disk_size.div_ceil(cluster).div_ceil(entries);
    let l1_size = u64::from(header.be32(36));
    if l1_size < tables || l1_size > (32 << 20) / 8 {
        return Err(damaged("its first table has a wrong size"));
    }
    let mut l1 = vec![0; usize::try_from(tables * 8).map_err(|_| damaged("it is too large"))?];
    let l1_offset = header.be64(40);
    if !image.fill(&mut l1, l1_offset)? {
        return Err(truncated(image, l1_offset));
    }
    let mut l2 = vec![0; usize::try_from(cluster).map_err(|_| damaged("its cluster size is impossible"))?];
    for table in l1.chunks_exact(8) {
        let offset = table.be64(0) & OFFSET;
        if offset == 0 {
            continue;
        }
        if !image.fill(&mut l2, offset)? {
            return Err(truncated(image, offset));
        }
        let step = usize::try_from(entry).unwrap_or(8);
        let beyond =
            l2.chunks_exact(step).map(|entry| host_offset(entry.be64(0), cluster_bits)).find(|at| *at >= image.size);
        if let Some(at) = beyond {
            return Err(truncated(image, at));
        }
    }
    Ok(())
}

/// Zero if there is none.
fn host_offset(entry: u64, cluster_bits: u32) -> u64 {
    if entry & COMPRESSED == 0 {
        return entry & OFFSET;
    }
    entry & ((1 << (62 - (cluster_bits - 8))) - 1)
}

fn damaged(why: &'static str) -> FormatError {
    FormatError::Damaged { format: FORMAT, why }
}

fn truncated(image: &Image<'_>, needs: u64) -> FormatError {
    FormatError::Truncated { format: FORMAT, has: image.size, needs }
}
