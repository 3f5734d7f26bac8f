//! Where everything is in a target: Longhorn's `backupstore` directory.
//!
//! ```text
//! backupstore/volumes/<aa>/<bb>/<volume>/volume.cfg
//!                                       /backups/backup_<name>.cfg
//!                                       /blocks/<cc>/<dd>/<checksum>.blk
//!                                       /locks/<lock>.lck
//! backupstore/backing-images/backing-images/<name>/backing-image.cfg
//!                           /blocks/<cc>/<dd>/<checksum>.blk
//! ```
//! `aa` and `bb` begin the checksum of the volume's name, `cc` and `dd` that of the block.

use std::fmt;
use std::str::FromStr;

use aws_lc_rs::digest;

pub(crate) const VOLUMES: &str = "backupstore/volumes";
pub(crate) const BACKING_IMAGES: &str = "backupstore/backing-images/backing-images";
const BACKING_IMAGE_BLOCKS: &str = "backupstore/backing-images/blocks";
/// All backing images share their blocks and so their locks, which are kept as if there were such a volume.
const BACKING_IMAGE_LOCKS: &str = "BACKINGIMAGE";
const LONGEST_NAME: usize = 253;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a name: letters, digits, '-', '_' and '.', two at least, beginning with a letter or a digit")]
pub struct NameError(String);

/// What Longhorn takes for a name, and no longer than a file's name can be.
pub(crate) fn check_name(name: &str) -> Result<(), NameError> {
    let is_first = |byte: &u8| byte.is_ascii_alphanumeric();
    let is_other = |byte: &u8| byte.is_ascii_alphanumeric() || b"_.-".contains(byte);
    let is_name = match name.as_bytes() {
        [first, rest @ ..] => is_first(first) && !rest.is_empty() && rest.iter().all(is_other),
        [] => false,
    };
    if is_name && name.len() <= LONGEST_NAME { Ok(()) } else { Err(NameError(name.into())) }
}

/// The first half of a SHA-512: what a block is called. Longhorn writes it in 64 digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Checksum(pub(crate) [u8; 32]);

impl Checksum {
    pub fn of(data: &[u8]) -> Self {
        Self::first_half(digest::digest(&digest::SHA512, data).as_ref())
    }

    pub(crate) fn first_half(digest: &[u8]) -> Self {
        let mut half = [0; 32];
        half.copy_from_slice(&digest[..32]);
        Self(half)
    }
}

impl fmt::Display for Checksum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Checksum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a checksum has 64 hexadecimal digits")]
pub struct ChecksumError;

impl FromStr for Checksum {
    type Err = ChecksumError;

    fn from_str(text: &str) -> Result<Self, ChecksumError> {
        let digit = |byte: u8| match byte {
            b'0'..=b'9' => Some(byte - b'0'),
            b'a'..=b'f' => Some(byte - b'a' + 10),
            _ => None,
        };
        let mut bytes = [0; 32];
        if text.len() != 2 * bytes.len() {
            return Err(ChecksumError);
        }
        for (byte, pair) in bytes.iter_mut().zip(text.as_bytes().chunks(2)) {
            *byte = digit(pair[0]).zip(digit(pair[1])).map(|(high, low)| high << 4 | low).ok_or(ChecksumError)?;
        }
        Ok(Self(bytes))
    }
}

pub(crate) fn volume_dir(volume: &str) -> String {
    let checksum = Checksum::of(volume.as_bytes()).to_string();
    format!("{VOLUMES}/{}/{}/{volume}", &checksum[..2], &checksum[2..4])
}

pub(crate) fn volume_config(volume: &str) -> String {
    format!("{}/volume.cfg", volume_dir(volume))
}

pub(crate) fn backups_dir(volume: &str) -> String {
    format!("{}/backups", volume_dir(volume))
}

pub(crate) fn backup_config(volume: &str, backup: &str) -> String {
    format!("{}/backup_{backup}.cfg", backups_dir(volume))
}

/// The backup that a file in the directory of backups describes.
pub(crate) fn backup_name(file: &str) -> Option<&str> {
    let name = file.strip_prefix("backup_")?.strip_suffix(".cfg")?;
    check_name(name).is_ok().then_some(name)
}

pub(crate) fn backing_image_config(name: &str) -> String {
    format!("{BACKING_IMAGES}/{name}/backing-image.cfg")
}

/// Blocks that are shared among themselves: those of one volume, or those of all backing images.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Pool {
    Volume(String),
    BackingImages,
}

impl Pool {
    pub(crate) fn blocks_dir(&self) -> String {
        match self {
            Self::Volume(name) => format!("{}/blocks", volume_dir(name)),
            Self::BackingImages => BACKING_IMAGE_BLOCKS.into(),
        }
    }

    pub(crate) fn block(&self, checksum: &Checksum) -> String {
        let name = checksum.to_string();
        format!("{}/{}/{}/{name}.blk", self.blocks_dir(), &name[..2], &name[2..4])
    }

    pub(crate) fn locks_dir(&self) -> String {
        let volume = match self {
            Self::Volume(name) => name,
            Self::BackingImages => BACKING_IMAGE_LOCKS,
        };
        format!("{}/locks", volume_dir(volume))
    }
}

/// Whether it is the name of a volume; the place of the backing images' locks is not one.
pub(crate) fn is_volume(name: &str) -> bool {
    name != BACKING_IMAGE_LOCKS && check_name(name).is_ok()
}

/// The block that a file is, whatever directory it is in.
pub(crate) fn block_checksum(file: &str) -> Option<Checksum> {
    file.strip_suffix(".blk")?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_longhorns() {
        // `printf pvc-1 | sha512sum` begins with these.
        let dir = volume_dir("pvc-1");
        assert_eq!(dir, "backupstore/volumes/7e/ed/pvc-1");
        let block = Checksum::of(b"").to_string();
        assert_eq!(Pool::Volume("pvc-1".into()).block(&Checksum::of(b"")), format!("{dir}/blocks/cf/83/{block}.blk"));
        assert_eq!(block_checksum(&format!("{block}.blk")), Some(Checksum::of(b"")));
        assert_eq!(block_checksum("x.blk"), None);
    }

    #[test]
    fn names_are_longhorns() {
        for name in ["pvc-1", "a.b_c", "0x"] {
            check_name(name).unwrap();
        }
        for name in ["", "a", ".x", "-x", "a/b", "a b", "..", &"x".repeat(254)] {
            assert!(check_name(name).is_err(), "{name}");
        }
        assert_eq!(backup_name("backup_backup-1.cfg"), Some("backup-1"));
        assert_eq!(backup_name("backup_backup-1.cfg.tmp.0123456789abcdef"), None);
        assert!(!is_volume("BACKINGIMAGE"));
    }
}
