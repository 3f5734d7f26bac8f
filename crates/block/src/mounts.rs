//! What is mounted where, as `/proc/self/mountinfo` says.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::{fs, io};

const MOUNTS: &str = "/proc/self/mountinfo";

/// One mounted file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// The kernel's number of the device; 0 as the major one for file systems without.
    pub major: u32,
    pub minor: u32,
    pub at: PathBuf,
    pub file_system: String,
    /// A device's path, for file systems on one.
    pub source: PathBuf,
    pub is_read_only: bool,
}

pub(crate) fn mounts() -> io::Result<Vec<Mount>> {
    Ok(fs::read_to_string(MOUNTS)?.lines().filter_map(parse).collect())
}

/// What is mounted exactly here. Of several, the one on top.
pub(crate) fn at(place: &Path) -> io::Result<Option<Mount>> {
    Ok(mounts()?.into_iter().rfind(|mount| mount.at == place))
}

/// `36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue`
fn parse(line: &str) -> Option<Mount> {
    let (about_mount, about_source) = line.split_once(" - ")?;
    let mut fields = about_mount.split(' ').skip(2);
    let (major, minor) = fields.next()?.split_once(':')?;
    let at = unescape(fields.nth(1)?);
    let is_read_only = fields.next()?.split(',').any(|option| option == "ro");
    let mut fields = about_source.split(' ');
    Some(Mount {
        major: major.parse().ok()?,
        minor: minor.parse().ok()?,
        at,
        file_system: fields.next()?.to_owned(),
        source: unescape(fields.next()?),
        is_read_only,
    })
}

/// The kernel writes blanks and backslashes as three octal digits.
fn unescape(text: &str) -> PathBuf {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        let digits = tail.get(..3).and_then(|digits| std::str::from_utf8(digits).ok());
        let escaped = digits.filter(|_| *first == b'\\').and_then(|digits| u8::from_str_radix(digits, 8).ok());
        bytes.push(escaped.unwrap_or(*first));
        rest = if escaped.is_some() { &tail[3..] } else { tail };
    }
    PathBuf::from(OsString::from_vec(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_with_their_escapes() {
        let mount = parse(r"36 35 7:3 / /mnt/a\040b\134c ro,noatime shared:1 - xfs /dev/loop3 rw,discard").unwrap();
        assert_eq!((mount.major, mount.minor), (7, 3));
        assert_eq!(mount.at, Path::new(r"/mnt/a b\c"));
        assert_eq!((mount.file_system.as_str(), mount.source.as_path()), ("xfs", Path::new("/dev/loop3")));
        assert!(mount.is_read_only);
        assert_eq!(parse("nonsense"), None);
    }

    #[test]
    fn the_root_is_mounted_and_a_made_up_place_is_not() {
        assert!(at(Path::new("/proc")).unwrap().is_some());
        assert!(at(Path::new("/no/such/place")).unwrap().is_none());
    }
}
