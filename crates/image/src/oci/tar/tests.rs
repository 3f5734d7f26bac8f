//! Against archives that tar makes, and some that nobody should make.

use std::fs;
use std::os::unix::fs::symlink;
use std::process::Command;

use super::*;

/// Packs the directory as tar does, in one of its formats.
fn pack(dir: &std::path::Path, format: &str) -> Vec<u8> {
    let output = Command::new("tar").args(["-c", "--format", format, "-C"]).arg(dir).arg(".").output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

fn take(archive: &[u8], wanted: Option<&str>) -> Result<Option<Vec<u8>>, PullError> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("out");
    let is_found = take_out(&mut &archive[..], &Wanted::new(wanted), File::create(&path).unwrap(), 1 << 20)?;
    Ok(is_found.then(|| fs::read(&path).unwrap()))
}

#[test]
fn the_disk_is_found_in_every_dialect() {
    let dir = tempfile::tempdir().unwrap();
    let long = format!("{0}/{0}/deep", "long-name-".repeat(8));
    fs::create_dir_all(dir.path().join("disk")).unwrap();
    fs::create_dir_all(dir.path().join(&long)).unwrap();
    fs::write(dir.path().join(&long).join("file"), "deep").unwrap();
    fs::write(dir.path().join("disk/disk.img"), vec![7; 70_001]).unwrap();
    for format in ["gnu", "pax", "ustar"] {
        let archive = pack(dir.path(), format);
        assert_eq!(take(&archive, None).unwrap(), Some(vec![7; 70_001]), "{format}");
        assert_eq!(take(&archive, Some("/disk/disk.img")).unwrap(), Some(vec![7; 70_001]), "{format}");
        assert_eq!(take(&archive, Some(&format!("{long}/file"))).unwrap(), Some(b"deep".to_vec()), "{format}");
        assert_eq!(take(&archive, Some("/other")).unwrap(), None, "{format}");
    }
}

#[test]
fn links_two_disks_and_too_large_ones_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir_all(dir.path().join("disk")).unwrap();
    symlink("/etc/passwd", dir.path().join("disk/a")).unwrap();
    assert!(matches!(take(&pack(dir.path(), "gnu"), None), Err(PullError::NoDisk(_))));
    fs::remove_file(dir.path().join("disk/a")).unwrap();
    fs::write(dir.path().join("disk/a"), "a").unwrap();
    fs::write(dir.path().join("disk/b"), "b").unwrap();
    assert!(matches!(take(&pack(dir.path(), "gnu"), None), Err(PullError::NoDisk(_))));
    fs::remove_file(dir.path().join("disk/b")).unwrap();
    fs::write(dir.path().join("disk/a"), vec![1; (1 << 20) + 1]).unwrap();
    assert!(matches!(take(&pack(dir.path(), "gnu"), None), Err(PullError::Import(ImportError::TooLarge { .. }))));
}

#[test]
fn damage_is_named() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir_all(dir.path().join("disk")).unwrap();
    fs::write(dir.path().join("disk/a"), vec![1; 5000]).unwrap();
    let archive = pack(dir.path(), "gnu");
    let mut flipped = archive.clone();
    flipped[0] ^= 1;
    assert!(matches!(take(&flipped, None), Err(PullError::Archive(_))));
    // The checksum's field is the one that a binary number fills to the last byte.
    let mut binary = archive.clone();
    binary[148..156].fill(0x80);
    assert!(matches!(take(&binary, None), Err(PullError::Archive(_))));
    assert_eq!(number(&[0x80, 0, 0, 0, 0, 0, 1, 2]), Some(258));
    assert_eq!(number(&[0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2]), Some(258));
    assert_eq!((number(&[0x80, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0]), number(&[])), (None, None));
    for cut in [700, 1100, 1600, 4000] {
        assert!(matches!(take(&archive[..cut], None), Err(PullError::Archive(_))), "cut at {cut}");
    }
    assert!(matches!(take(b"not an archive at all", None), Err(PullError::Archive(_))));
}
