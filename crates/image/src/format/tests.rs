//! Against images that `qemu-img` makes, and some that nobody should make.

use std::fs;
use std::io::Write;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

use super::*;

fn qemu_img(args: &[&str]) {
    let output = Command::new("qemu-img").args(args).output().expect("qemu-img is installed");
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
}

fn path(dir: &TempDir, name: &str) -> String {
    dir.path().join(name).to_str().unwrap().to_owned()
}

fn inspect_path(path: impl AsRef<Path>) -> Result<Inspected, FormatError> {
    inspect(&File::open(path).unwrap())
}

type Patch<'a> = &'a dyn Fn(&File);

const SIZE: u64 = 8 << 20;

fn raw(dir: &TempDir) -> String {
    let raw = path(dir, "disk.raw");
    let file = File::create(&raw).unwrap();
    file.write_all_at(&[0xeb; 5000], 0).unwrap();
    file.write_all_at(b"end of the disk", SIZE - 15).unwrap();
    raw
}

#[test]
fn every_format_is_known_with_its_size() {
    let dir = tempfile::tempdir().unwrap();
    let raw = raw(&dir);
    assert_eq!(inspect_path(&raw).unwrap(), Inspected { format: Format::Raw, virtual_size: SIZE });
    for (args, format) in [
        (&["-O", "qcow2"][..], Format::Qcow2),
        (&["-O", "qcow2", "-o", "compat=0.10"], Format::Qcow2),
        (&["-O", "qcow2", "-o", "extended_l2=on", "-c"], Format::Qcow2),
        (&["-O", "qcow2", "-c", "-o", "compression_type=zstd,cluster_size=4k"], Format::Qcow2),
        (&["-O", "vmdk"], Format::Vmdk),
        (&["-O", "vmdk", "-o", "subformat=streamOptimized"], Format::Vmdk),
        (&["-O", "vhdx"], Format::Vhdx),
        (&["-O", "vdi"], Format::Vdi),
        (&["-O", "vpc", "-o", "force_size=on"], Format::Vpc),
        (&["-O", "vpc", "-o", "force_size=on,subformat=fixed"], Format::Raw),
    ] {
        let image = path(&dir, "image");
        let args: Vec<&str> =
            ["convert", "-f", "raw"].into_iter().chain(args.iter().copied()).chain([&*raw, &*image]).collect();
        qemu_img(&args);
        assert_eq!(inspect_path(&image).unwrap(), Inspected { format, virtual_size: SIZE }, "{args:?}");
    }
}

#[test]
fn what_refers_to_another_file_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let raw = raw(&dir);
    let image = |name: &str| path(&dir, name);
    qemu_img(&["create", "-q", "-f", "qcow2", "-b", "/etc/passwd", "-F", "raw", "-u", &image("backing.qcow2"), "8M"]);
    qemu_img(&[
        "create",
        "-q",
        "-f",
        "qcow2",
        "-o",
        &format!("data_file={}", image("data")),
        &image("data.qcow2"),
        "8M",
    ]);
    qemu_img(&["convert", "-O", "vmdk", "-o", "subformat=monolithicFlat", &raw, &image("flat.vmdk")]);
    qemu_img(&["convert", "-O", "vmdk", "-o", "subformat=twoGbMaxExtentSparse", &raw, &image("split.vmdk")]);
    qemu_img(&["create", "-q", "-f", "vmdk", "-b", &image("split.vmdk"), "-F", "vmdk", &image("child.vmdk")]);
    for name in ["backing.qcow2", "data.qcow2", "flat.vmdk", "split.vmdk", "child.vmdk"] {
        let refused = inspect_path(image(name));
        assert!(matches!(refused, Err(FormatError::Refers { .. })), "{name}: {refused:?}");
    }
    let message = inspect_path(image("backing.qcow2")).unwrap_err().to_string();
    assert!(message.contains("/etc/passwd"), "{message}");
}

#[test]
fn a_vmdk_whose_embedded_descriptor_counts_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (raw, image) = (raw(&dir), path(&dir, "image"));
    let patches: &[&dyn Fn(&File)] = &[
        // No capacity: the descriptor alone would count.
        &|file| file.write_all_at(&0_u64.to_le_bytes(), 12).unwrap(),
        &|file| {
            let text = "# Disk DescriptorFile\ncreateType=\"monolithicFlat\"\nRW 16384 FLAT \"/etc/passwd\" 0\n\0";
            file.write_all_at(text.as_bytes(), 512).unwrap();
        },
        &|file| {
            let text = "# Disk DescriptorFile\nparentCID=12345678\nparentFileNameHint=\"/etc/passwd\"\n\0";
            file.write_all_at(text.as_bytes(), 512).unwrap();
        },
    ];
    for (index, patch) in patches.iter().enumerate() {
        qemu_img(&["convert", "-f", "raw", "-O", "vmdk", &raw, &image]);
        patch(&File::options().write(true).open(&image).unwrap());
        let refused = inspect_path(&image);
        assert!(matches!(refused, Err(FormatError::Refers { .. })), "{index}: {refused:?}");
    }
}

#[test]
fn a_qcow2_that_is_damaged_or_cut_short_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let raw = raw(&dir);
    let (whole, image) = (path(&dir, "whole"), path(&dir, "image"));
    qemu_img(&["convert", "-f", "raw", "-O", "qcow2", &raw, &whole]);
    let size = fs::metadata(&whole).unwrap().len();
    let patches: &[(&str, Patch)] = &[
        ("truncated", &|file| file.set_len(size / 2).unwrap()),
        ("truncated", &|file| file.set_len(50).unwrap()),
        ("marked as corrupt", &|file| file.write_all_at(&2_u64.to_be_bytes(), 72).unwrap()),
        ("unknown features", &|file| file.write_all_at(&(1_u64 << 40).to_be_bytes(), 72).unwrap()),
        ("encrypted", &|file| file.write_all_at(&2_u32.to_be_bytes(), 32).unwrap()),
        ("cluster size", &|file| file.write_all_at(&63_u32.to_be_bytes(), 20).unwrap()),
        ("table has a wrong size", &|file| file.write_all_at(&u64::MAX.to_be_bytes(), 24).unwrap()),
        ("size is zero", &|file| file.write_all_at(&0_u64.to_be_bytes(), 24).unwrap()),
    ];
    for (expected, patch) in patches {
        fs::copy(&whole, &image).unwrap();
        patch(&File::options().write(true).open(&image).unwrap());
        let message = inspect_path(&image).unwrap_err().to_string();
        assert!(message.contains(expected), "{expected}: {message}");
    }
}

/// A few kilobytes that would be read a million times over.
#[test]
fn a_qcow2_whose_tables_are_one_is_refused() {
    let mut image = vec![0; 8192];
    image[..4].copy_from_slice(b"QFI\xfb");
    let entries = 256_u32;
    // Version, bits of a cluster, entries of the first table: tables of 64 entries of 512 bytes each.
    for (at, number) in [(4, 2), (20, 9), (36, entries)] {
        image[at..at + 4].copy_from_slice(&number.to_be_bytes());
    }
    let size = u64::from(entries) * 64 * 512;
    for (at, number) in [(24, size), (40, 512)] {
        image[at..at + 8].copy_from_slice(&number.to_be_bytes());
    }
    for entry in image[512..][..2048].chunks_exact_mut(8) {
        entry.copy_from_slice(&4096_u64.to_be_bytes());
    }
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(&image).unwrap();
    let message = inspect(&file).unwrap_err().to_string();
    assert_eq!(message, "the qcow2 image is damaged: parts of its disk share a table");
}

#[test]
fn what_is_no_image_is_refused() {
    let page = [b"<!DOCTYPE html><html>".to_vec(), vec![b'x'; 2048 - 21]].concat();
    let mut tar = vec![0; 1024];
    tar[257..262].copy_from_slice(b"ustar");
    for (content, expected) in [
        (Vec::new(), "empty"),
        (page, "text"),
        (b"{\"error\":\"no\"}".to_vec(), "text"),
        (tar, "tar archive"),
        ([b"PK\x03\x04".to_vec(), vec![0; 508]].concat(), "zip"),
        (b"BZh91AY&SY\0\0".to_vec(), "bzip2"),
        (vec![0; 700], "whole sectors"),
    ] {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&content).unwrap();
        let message = inspect(&file).unwrap_err().to_string();
        assert!(message.starts_with("the file is not a disk image") && message.contains(expected), "{message}");
    }
}

#[test]
fn a_cd_is_known() {
    let file = tempfile::tempfile().unwrap();
    file.set_len(1 << 20).unwrap();
    file.write_all_at(b"\x01CD001\x01", 32768).unwrap();
    assert_eq!(inspect(&file).unwrap(), Inspected { format: Format::Iso, virtual_size: 1 << 20 });
}

/// Whatever the bytes: an answer, no panic.
#[test]
fn noise_behind_every_magic_is_survived() {
    let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
    let mut noise = move || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed.to_le_bytes()[0]
    };
    for magic in [&b"QFI\xfb\0\0\0\x03"[..], b"KDMV", b"vhdxfile", b"conectix", b"# Disk DescriptorFile"] {
        for _ in 0..200 {
            let mut content: Vec<u8> = (0..4096).map(|_| noise()).collect();
            content[..magic.len()].copy_from_slice(magic);
            let mut file = tempfile::tempfile().unwrap();
            file.write_all(&content).unwrap();
            let _ = inspect(&file);
        }
    }
}
