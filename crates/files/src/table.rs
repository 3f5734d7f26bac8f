//! Partition tables: GPT, with its copy at the end of the disk, and MBR with what is in extended partitions.

use std::io;

use crate::disk::Part;

/// Sizes that disks have had.
const SECTORS: [u64; 2] = [512, 4096];
const GPT_MAGIC: &[u8; 8] = b"EFI PART";
const GPT_HEADER: usize = 92;
/// More entries than this nobody has.
const MOST_ENTRIES: usize = 1024;
const LARGEST_ENTRY: usize = 4096;
/// EFI system, BIOS boot, Microsoft reserved, Linux's own for the PowerPC's firmware: types as they are on the disk.
const BOOT_TYPES: [[u8; 16]; 4] = [
    *b"\x28\x73\x2a\xc1\x1f\xf8\xd2\x11\xba\x4b\x00\xa0\xc9\x3e\xc9\x3b",
    *b"\x48\x61\x68\x21\x49\x64\x6f\x6e\x74\x4e\x65\x65\x64\x45\x46\x49",
    *b"\x16\xe3\xc9\xe3\x5c\x0b\xb8\x4d\x81\x7d\xf9\x2d\xf0\x02\x15\xae",
    *b"\x10\xd7\xda\x9e\xd2\xfb\x25\x4e\x8a\x8e\x14\x9c\x60\x2a\x31\x5f",
];
const MBR_ENTRIES: usize = 446;
const EXTENDED: [u8; 3] = [0x05, 0x0f, 0x85];
const EFI_SYSTEM: u8 = 0xef;
/// A chain of logical partitions ends at some point, whatever the disk says.
const MOST_LOGICAL: u32 = 128;

/// A partition as the table has it, in bytes.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Slot {
    pub(crate) number: u32,
    pub(crate) start: u64,
    pub(crate) size: u64,
    pub(crate) is_for_boot: bool,
}

/// None if there is no table that can be believed.
pub(crate) fn slots(disk: &Part) -> io::Result<Vec<Slot>> {
    for sector in SECTORS {
        let last = (disk.size() / sector).saturating_sub(1);
        for at in [1, last] {
            if let Some(slots) = gpt(disk, sector, at)? {
                return Ok(slots);
            }
        }
    }
    mbr(disk)
}

fn gpt(disk: &Part, sector: u64, at: u64) -> io::Result<Option<Vec<Slot>>> {
    let Some(header) = piece(disk, at.checked_mul(sector), GPT_HEADER)? else { return Ok(None) };
    let length = usize::try_from(u32_at(&header, 12)).unwrap_or_default();
    if !header.starts_with(GPT_MAGIC) || !(GPT_HEADER..=512).contains(&length) {
        return Ok(None);
    }
    let Some(mut whole) = piece(disk, at.checked_mul(sector), length)? else { return Ok(None) };
    whole[16..20].fill(0);
    if crc32fast::hash(&whole) != u32_at(&header, 16) || u64_at(&header, 24) != at {
        return Ok(None);
    }
    let number = |at| usize::try_from(u32_at(&header, at)).unwrap_or(usize::MAX);
    let (count, size) = (number(80), number(84));
    if count > MOST_ENTRIES || !(128..=LARGEST_ENTRY).contains(&size) {
        return Ok(None);
    }
    let Some(entries) = piece(disk, u64_at(&header, 72).checked_mul(sector), count * size)? else { return Ok(None) };
    if crc32fast::hash(&entries) != u32_at(&header, 88) {
        return Ok(None);
    }
    let slot = |(index, entry): (usize, &[u8])| {
        let (first, last) = (u64_at(entry, 32), u64_at(entry, 40));
        let is_used = entry[..16].iter().any(|byte| *byte != 0);
        let count = last.checked_sub(first)?.checked_add(1)?;
        is_used.then_some(Slot {
            number: u32::try_from(index).ok()? + 1,
            start: first.checked_mul(sector)?,
            size: count.checked_mul(sector)?,
            is_for_boot: BOOT_TYPES.iter().any(|ty| entry.starts_with(ty)),
        })
    };
    let slots = entries.chunks_exact(size).enumerate().filter_map(slot);
    Ok(Some(slots.filter(|slot| slot.start < disk.size()).collect()))
}

/// One of the four entries of a sector: its type, where it starts, how long it is.
fn entry(sector: &[u8], index: usize) -> (u8, u64, u64) {
    let at = MBR_ENTRIES + index * 16;
    (sector[at + 4], u64::from(u32_at(sector, at + 8)), u64::from(u32_at(sector, at + 12)))
}

fn mbr(disk: &Part) -> io::Result<Vec<Slot>> {
    let sector = SECTORS[0];
    let Some(first) = boot_sector(disk, 0)? else { return Ok(Vec::new()) };
    let mut slots = Vec::new();
    let mut add = |number: u32, ty: u8, start: u64, count: u64| {
        let (start, size) = (start * sector, count * sector);
        if ty != 0 && count > 0 && start < disk.size() {
            slots.push(Slot { number, start, size, is_for_boot: ty == EFI_SYSTEM });
        }
    };
    let mut extended = None;
    for (index, number) in (0..4).zip(1..) {
        match entry(&first, index) {
            (ty, start, _) if EXTENDED.contains(&ty) => extended = extended.or(Some(start)),
            (ty, start, count) => add(number, ty, start, count),
        }
    }
    let Some(base) = extended else { return Ok(slots) };
    // Each says where the next one is, counted from the first.
    let mut at = base;
    for number in 5..5 + MOST_LOGICAL {
        let Some(link) = boot_sector(disk, at * sector)? else { break };
        let (ty, start, count) = entry(&link, 0);
        add(number, ty, at + start, count);
        match entry(&link, 1) {
            (ty, next, _) if EXTENDED.contains(&ty) && next > 0 => at = base + next,
            _ => break,
        }
    }
    Ok(slots)
}

fn boot_sector(disk: &Part, offset: u64) -> io::Result<Option<Vec<u8>>> {
    Ok(piece(disk, Some(offset), 512)?.filter(|sector| sector.ends_with(b"\x55\xaa")))
}

/// `None` where the disk has nothing.
fn piece(disk: &Part, offset: Option<u64>, length: usize) -> io::Result<Option<Vec<u8>>> {
    let end = offset.and_then(|offset| offset.checked_add(length as u64));
    let (Some(offset), Some(end)) = (offset, end) else { return Ok(None) };
    if end > disk.size() {
        return Ok(None);
    }
    let mut bytes = vec![0; length];
    disk.read(offset, &mut bytes)?;
    Ok(Some(bytes))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).and_then(|four| four.try_into().ok()).map_or(0, u32::from_le_bytes)
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..at + 8).and_then(|eight| eight.try_into().ok()).map_or(0, u64::from_le_bytes)
}
