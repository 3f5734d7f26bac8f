//! qcow2: docs/interop/qcow2.txt of QEMU.

use super::{Extent, Fields, Format, FormatError, Image};

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
const ZERO: u64 = 1;

const HEADER: usize = 104;
const VERSION_2_HEADER: usize = 72;

/// File systems share nothing smaller.
const BLOCK: u64 = 4096;

/// More pieces than this are no faster than a copy, and would take memory.
const EXTENTS_MAX: usize = 1 << 16;

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
    let tables = Tables::read(image, header, features)?;
    tables.visit(image, |_, entries| {
        let beyond = entries.map(|entry| host_offset(entry, tables.cluster_bits)).find(|at| *at >= image.size);
        beyond.map_or(Ok(()), |at| Err(truncated(image, at)))
    })
}

/// Where the disk's data is in the file, in the disk's order; `None` if some of it is not there as the guest sees it, or not in
/// whole blocks of a file system. The image has been inspected.
pub(super) fn extents(image: &Image<'_>) -> Result<Option<Vec<Extent>>, FormatError> {
    let mut header = [0; HEADER];
    header[..VERSION_2_HEADER].copy_from_slice(&image.header::<VERSION_2_HEADER>(FORMAT, 0)?);
    if header.be32(4) == 3 {
        header = image.header(FORMAT, 0)?;
    }
    let features = header.be64(72);
    let tables = Tables::read(image, &header, features)?;
    let cluster = tables.cluster();
    if features != 0 || cluster < BLOCK {
        return Ok(None);
    }
    let mut extents = Vec::<Extent>::new();
    let mut is_plain = true;
    tables.visit(image, |first, entries| {
        for (index, entry) in (first..).zip(entries) {
            let at = entry & OFFSET;
            // What is all zero may keep the cluster that it had.
            if entry & COMPRESSED == 0 && (at == 0 || entry & ZERO != 0) {
                continue;
            }
            is_plain &= entry & COMPRESSED == 0 && at.is_multiple_of(cluster) && at + cluster <= image.size;
            let Some(disk) = index.checked_mul(cluster) else { return Err(damaged("its size is impossible")) };
            match extents.last_mut() {
                Some(last) if last.disk + last.size == disk && last.file + last.size == at => last.size += cluster,
                _ => extents.push(Extent { disk, file: at, size: cluster }),
            }
            is_plain &= extents.len() <= EXTENTS_MAX;
            if !is_plain {
                return Ok(());
            }
        }
        Ok(())
    })?;
    Ok(is_plain.then_some(extents))
}

/// The tables that say where clusters are. The first has where the others are, which are a cluster each.
struct Tables {
    cluster_bits: u32,
    /// Of the disk. Behind its end, the last table may say anything.
    clusters: u64,
    entry_bytes: usize,
    first: Vec<u8>,
}

impl Tables {
    fn read(image: &Image<'_>, header: &[u8], features: u64) -> Result<Self, FormatError> {
        let (cluster_bits, disk_size) = (header.be32(20), header.be64(24));
        if !(9..=21).contains(&cluster_bits) {
            return Err(damaged("its cluster size is impossible"));
        }
        let cluster = 1_u64 << cluster_bits;
        let entry_bytes: u8 = if features & EXTENDED_L2 == 0 { 8 } else { 16 };
        let clusters = disk_size.div_ceil(cluster);
        let count = clusters.div_ceil(cluster / u64::from(entry_bytes));
        let l1_size = u64::from(header.be32(36));
        if l1_size < count || l1_size > (32 << 20) / 8 {
            return Err(damaged("its first table has a wrong size"));
        }
        let mut first = vec![0; usize::try_from(count * 8).map_err(|_| damaged("it is too large"))?];
        let offset = header.be64(40);
        if !image.fill(&mut first, offset)? {
            return Err(truncated(image, offset));
        }
        refuse_shared(&first)?;
        Ok(Self { cluster_bits, clusters, entry_bytes: usize::from(entry_bytes), first })
    }

    fn cluster(&self) -> u64 {
        1 << self.cluster_bits
    }

    /// Shows the entries of each table, with the number of the cluster that the first of them is about.
    fn visit(
        &self,
        image: &Image<'_>,
        mut look: impl FnMut(u64, &mut dyn Iterator<Item = u64>) -> Result<(), FormatError>,
    ) -> Result<(), FormatError> {
        let mut table = vec![0; 1 << self.cluster_bits];
        let entries = self.cluster() / self.entry_bytes as u64;
        for (number, entry) in (0..).zip(self.first.chunks_exact(8)) {
            let offset = entry.be64(0) & OFFSET;
            if offset == 0 {
                continue;
            }
            if !image.fill(&mut table, offset)? {
                return Err(truncated(image, offset));
            }
            let start = number * entries;
            let of_disk = usize::try_from(self.clusters.saturating_sub(start)).unwrap_or(usize::MAX);
            look(start, &mut table.chunks_exact(self.entry_bytes).take(of_disk).map(|entry| entry.be64(0)))?;
        }
        Ok(())
    }
}

/// Each table is for one part of the disk. One that stands for many would be read as often: a small file, work for hours.
fn refuse_shared(first: &[u8]) -> Result<(), FormatError> {
    let mut offsets: Vec<u64> = first.chunks_exact(8).map(|entry| entry.be64(0) & OFFSET).collect();
    offsets.retain(|offset| *offset != 0);
    offsets.sort_unstable();
    if offsets.windows(2).any(|pair| pair[0] == pair[1]) {
        return Err(damaged("parts of its disk share a table"));
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
