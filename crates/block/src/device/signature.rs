//! What the first bytes of a device say that it holds.

use std::fmt::{self, Write};

/// What must be read of a device.
pub const LENGTH: usize = 72 << 10;

/// What is on a device already.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Signature {
    FileSystem {
        kind: String,
        uuid: String,
        label: String,
    },
    PartitionTable {
        kind: &'static str,
    },
    /// Part of something larger, or encrypted.
    Member {
        kind: &'static str,
    },
    /// Not empty, and not known.
    Unknown,
}

impl fmt::Display for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::FileSystem { kind, label, .. } if label.is_empty() => write!(f, "a file system ({kind})"),
            Self::FileSystem { kind, label, .. } => write!(f, "a file system ({kind}, {label:?})"),
            Self::PartitionTable { kind } => write!(f, "a partition table ({kind})"),
            Self::Member { kind } => write!(f, "part of a storage system ({kind})"),
            Self::Unknown => f.write_str("data of an unknown kind"),
        }
    }
}

/// Members of something else: kind, magic, where.
const MEMBERS: [(&str, &[u8], usize); 9] = [
    ("LUKS", b"LUKS\xba\xbe", 0),
    ("LVM2", b"LABELONE", 512),
    ("LVM2", b"LABELONE", 0),
    ("md", b"\xfc\x4e\x2b\xa9", 0),
    ("md", b"\xfc\x4e\x2b\xa9", 4096),
    ("bcache", b"\xc6\x85\x73\xf6\x4e\x1a\x45\xca", 4120),
    ("ceph", b"bluestore block device", 0),
    ("swap", b"SWAPSPACE2", 4086),
    ("vmfs", b"\x0d\xd0\x01\xc0", 0),
];

/// `None` if there are only zeroes.
pub fn find(start: &[u8]) -> Option<Signature> {
    if start.iter().all(|byte| *byte == 0) {
        return None;
    }
    let has = |magic: &[u8], at: usize| start.get(at..at + magic.len()) == Some(magic);
    let found = file_system(start).or_else(|| {
        let member = MEMBERS.iter().find(|(_, magic, at)| has(magic, *at));
        member.map(|(kind, ..)| Signature::Member { kind })
    });
    if found.is_some() {
        return found;
    }
    if has(b"EFI PART", 512) || has(b"EFI PART", 4096) {
        return Some(Signature::PartitionTable { kind: "gpt" });
    }
    Some(if has(b"\x55\xaa", 510) { Signature::PartitionTable { kind: "dos" } } else { Signature::Unknown })
}

/// Kind, magic, where; and where its UUID and its label are, and how long the label is.
type Known = (&'static str, &'static [u8], usize, Option<usize>, Option<(usize, usize)>);

const FILE_SYSTEMS: [Known; 10] = [
    ("xfs", b"XFSB", 0, Some(32), Some((108, 12))),
    ("btrfs", b"_BHRfS_M", 0x10040, Some(0x10020), Some((0x1012b, 256))),
    ("ext", b"\x53\xef", 0x438, Some(0x468), Some((0x478, 16))),
    ("f2fs", b"\x10\x20\xf5\xf2", 1024, Some(1132), None),
    ("iso9660", b"CD001", 0x8001, None, Some((0x8028, 32))),
    ("ntfs", b"NTFS    ", 3, None, None),
    ("exfat", b"EXFAT   ", 3, None, None),
    ("vfat", b"FAT32   ", 82, None, Some((71, 11))),
    ("vfat", b"FAT16   ", 54, None, Some((43, 11))),
    ("squashfs", b"hsqs", 0, None, None),
];

fn file_system(start: &[u8]) -> Option<Signature> {
    let known = FILE_SYSTEMS.iter().find(|(_, magic, at, ..)| start.get(*at..*at + magic.len()) == Some(*magic))?;
    let (kind, _, _, uuid, label) = known;
    let kind = if *kind == "ext" { extended(start) } else { kind };
    Some(Signature::FileSystem {
        kind: kind.to_owned(),
        uuid: uuid.map(|at| format_uuid(start.get(at..at + 16).unwrap_or_default())).unwrap_or_default(),
        label: label.map(|(at, length)| text(start.get(at..at + length).unwrap_or_default())).unwrap_or_default(),
    })
}

/// Three generations share a magic number; extents and a journal tell them apart.
fn extended(start: &[u8]) -> &'static str {
    let flags = |at: usize| start.get(at).copied().unwrap_or_default();
    match (flags(0x460) & 0x40 != 0, flags(0x45c) & 0x04 != 0) {
        (true, _) => "ext4",
        (false, true) => "ext3",
        (false, false) => "ext2",
    }
}

fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    let printable = bytes[..end].iter().filter(|byte| byte.is_ascii_graphic() || **byte == b' ');
    printable.map(|byte| char::from(*byte)).collect::<String>().trim().to_owned()
}

fn format_uuid(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(36);
    for (index, byte) in bytes.iter().enumerate() {
        if matches!(index, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    type Pieces = &'static [(usize, &'static [u8])];

    #[test]
    fn known_beginnings_are_told_apart() {
        let with = |pieces: &[(usize, &[u8])]| {
            let mut start = vec![0; LENGTH];
            for (at, bytes) in pieces {
                start[*at..*at + bytes.len()].copy_from_slice(bytes);
            }
            find(&start)
        };
        let kind = |found: Option<Signature>| found.map(|found| found.to_string());
        let table: &[(Pieces, Option<&str>)] = &[
            (&[], None),
            (&[(0, b"XFSB"), (108, b"croft")], Some("a file system (xfs, \"croft\")")),
            (&[(0x438, b"\x53\xef"), (0x460, b"\x40")], Some("a file system (ext4)")),
            (&[(0x438, b"\x53\xef")], Some("a file system (ext2)")),
            (&[(0x10040, b"_BHRfS_M")], Some("a file system (btrfs)")),
            (&[(510, b"\x55\xaa"), (512, b"EFI PART")], Some("a partition table (gpt)")),
            (&[(510, b"\x55\xaa")], Some("a partition table (dos)")),
            (&[(512, b"LABELONE")], Some("part of a storage system (LVM2)")),
            (&[(5, b"x")], Some("data of an unknown kind")),
        ];
        for (pieces, expected) in table {
            assert_eq!(kind(with(pieces)).as_deref(), *expected, "{pieces:?}");
        }
        assert_eq!(find(b"short"), Some(Signature::Unknown));
    }
}
