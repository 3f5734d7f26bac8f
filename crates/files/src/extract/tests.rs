//! On real disks: made by `sfdisk` and `mkfs.ext4`, as guests make them.

use std::io::Write as _;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;

use tempfile::TempDir;

use super::*;
use crate::{Content, Disk, partitions};

const MIB: u64 = 1 << 20;

fn run(program: &str, args: &[&str], input: &str) {
    let path = format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default());
    let mut child = Command::new(program)
        .args(args)
        .env("PATH", path)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("{program}: {error}"));
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{program} {args:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// What looks random and is the same every time.
fn noise(length: usize) -> Vec<u8> {
    let mut state = 0x2545_f491_u32;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        state.to_le_bytes()[0]
    };
    (0..length).map(|_| next()).collect()
}

/// `mkfs.ext4 -d` takes whole seconds.
const LONG_AGO: i64 = 1_234_567_890;

struct World {
    dir: TempDir,
}

impl World {
    fn new() -> Self {
        let world = Self { dir: tempfile::tempdir().unwrap() };
        let tree = world.path("tree");
        std::fs::create_dir_all(tree.join("etc/deep")).unwrap();
        std::fs::write(tree.join("etc/hosts"), "127.0.0.1 me\n").unwrap();
        std::fs::write(tree.join("etc/deep/noise"), noise(3 << 20)).unwrap();
        std::fs::write(tree.join("etc/aXb"), "x").unwrap();
        std::fs::write(tree.join("etc/new\nline"), "").unwrap();
        let sparse = File::create(tree.join("etc/sparse")).unwrap();
        sparse.write_all_at(b"end", 5 * MIB).unwrap();
        symlink("hosts", tree.join("etc/near")).unwrap();
        symlink("/etc/deep", tree.join("shortcut")).unwrap();
        symlink("../../../../outside", tree.join("etc/far")).unwrap();
        run("mkfifo", &[tree.join("etc/pipe").to_str().unwrap()], "");
        let closed = std::fs::Permissions::from_mode(0o4750);
        std::fs::set_permissions(tree.join("etc/hosts"), closed).unwrap();
        run("touch", &["-d", &format!("@{LONG_AGO}"), tree.join("etc/hosts").to_str().unwrap()], "");
        std::fs::set_permissions(tree.join("etc/deep"), std::fs::Permissions::from_mode(0o555)).unwrap();
        world
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// A disk of 64 MiB, divided so, with a file system made with these options at an offset.
    fn disk(&self, table: &str, offset: u64, options: &[&str]) -> PathBuf {
        let (disk, tree) = (self.path("disk.raw"), self.path("tree"));
        File::create(&disk).unwrap().set_len(64 * MIB).unwrap();
        if !table.is_empty() {
            run("sfdisk", &["-q", disk.to_str().unwrap()], table);
        }
        let extended = format!("offset={offset}");
        let mut args = vec!["-q", "-F", "-E", &extended, "-d", tree.to_str().unwrap()];
        args.extend(options);
        args.extend([disk.to_str().unwrap(), "24M"]);
        run("mkfs.ext4", &args, "");
        disk
    }
}

fn open(disk: &Path) -> Arc<dyn Disk> {
    Arc::new(File::open(disk).unwrap())
}

fn file_system(disk: &Path) -> FileSystem {
    let parts = partitions(&open(disk)).unwrap();
    let readable = parts.iter().find(|part| part.content.is_readable()).unwrap();
    FileSystem::open(readable.part(), &readable.content).unwrap()
}

fn copy(files: &FileSystem, path: &str, into: &Path, is_replacing: bool) -> Result<Copied, ExtractError> {
    Extraction::new(files, is_replacing, |_| {}).copy(path.as_bytes(), into, OsStr::new("out"))
}

#[test]
fn files_come_out_as_they_were() {
    let world = World::new();
    let disk = world.disk("label: gpt\nstart=2048, size=60000, type=linux, name=root\n", MIB, &[]);
    let files = file_system(&disk);
    let out = world.path("out");
    let mut told = 0;
    let copied = Extraction::new(&files, false, |bytes| told = bytes)
        .copy(b"/etc", world.dir.path(), OsStr::new("out"))
        .unwrap();
    assert_eq!((copied.files, copied.directories, copied.links, copied.left_out), (5, 2, 2, 1), "{copied:?}");
    assert_eq!((copied.named.as_slice(), told), (&["/etc/pipe".to_owned()][..], copied.bytes));
    assert_eq!(std::fs::read(out.join("deep/noise")).unwrap(), noise(3 << 20));
    assert_eq!(std::fs::read_link(out.join("near")).unwrap(), Path::new("hosts"));
    // It leads nowhere good, but nobody followed it.
    assert_eq!(std::fs::read_link(out.join("far")).unwrap(), Path::new("../../../../outside"));
    assert!(out.join("new\nline").exists());
    let hosts = std::fs::metadata(out.join("hosts")).unwrap();
    assert_eq!(hosts.mtime(), LONG_AGO);
    assert_eq!(hosts.mode() & 0o7777, 0o750, "without the set-user-id bit");
    assert_eq!(std::fs::metadata(out.join("deep")).unwrap().mode() & 0o7777, 0o555);
    let sparse = std::fs::metadata(out.join("sparse")).unwrap();
    assert!(sparse.len() == 5 * MIB + 3 && sparse.blocks() * 512 < MIB, "{sparse:?}");

    let again = copy(&files, "/etc", world.dir.path(), false);
    assert!(matches!(again, Err(ExtractError::Exists(_))), "{again:?}");
    std::fs::write(out.join("hosts"), "changed").unwrap();
    copy(&files, "/etc", world.dir.path(), true).unwrap();
    assert_eq!(std::fs::read(out.join("hosts")).unwrap(), b"127.0.0.1 me\n");
    // A link on the way is followed in the guest's own tree.
    assert_eq!(files.facts(b"/shortcut").unwrap().kind, FileKind::Symlink);
    let one = Extraction::new(&files, false, |_| {}).copy(b"/shortcut/noise", world.dir.path(), OsStr::new("one"));
    assert_eq!(one.unwrap().files, 1);
    assert!(matches!(copy(&files, "/etc/none", world.dir.path(), true), Err(ExtractError::Source(_))));
}

#[test]
fn nothing_leads_out_of_the_directory() {
    let world = World::new();
    let disk = world.disk("", 0, &["-O", "^metadata_csum"]);
    let outside = world.path("outside");
    let into = world.path("into");
    for dir in [&outside, &into] {
        std::fs::create_dir(dir).unwrap();
    }
    // A link where a directory is to be.
    let files = file_system(&disk);
    symlink(&outside, into.join("out")).unwrap();
    assert!(copy(&files, "/etc", &into, true).is_err());
    // A link where a file is to be goes, and not what it leads to.
    std::fs::write(outside.join("kept"), "kept").unwrap();
    std::fs::remove_file(into.join("out")).unwrap();
    symlink(outside.join("kept"), into.join("out")).unwrap();
    copy(&files, "/etc/hosts", &into, true).unwrap();
    assert_eq!(std::fs::read(outside.join("kept")).unwrap(), b"kept");
    assert!(!std::fs::symlink_metadata(into.join("out")).unwrap().is_symlink());

    // A name that is none.
    let mut bytes = std::fs::read(&disk).unwrap();
    let at = bytes.windows(3).position(|name| name == b"aXb").unwrap();
    bytes[at..at + 3].copy_from_slice(b"a/b");
    std::fs::write(&disk, bytes).unwrap();
    std::fs::remove_file(into.join("out")).unwrap();
    assert!(copy(&file_system(&disk), "/etc", &into, false).is_err());
    let name = Extraction::new(&files, false, |_| {}).copy(b"/etc/hosts", &into, OsStr::new(".."));
    assert!(matches!(name, Err(ExtractError::Name(_))), "{name:?}");
    assert_eq!(std::fs::read_dir(&outside).unwrap().count(), 1);
}

#[test]
fn all_tables_are_read() {
    let world = World::new();
    let gpt = "label: gpt\nstart=2048, size=60000, type=linux\nstart=63488, size=8192, type=uefi\n";
    let disk = world.disk(gpt, MIB, &[]);
    let seen = |disk: &Path| -> Vec<(u32, u64, String)> {
        let parts = partitions(&open(disk)).unwrap();
        parts.iter().map(|part| (part.number, part.start, part.content.kind().to_owned())).collect()
    };
    let expected = [(1, MIB, "ext4".to_owned()), (2, 63_488 * 512, "empty".to_owned())];
    assert_eq!(seen(&disk), expected);
    assert!(partitions(&open(&disk)).unwrap()[1].is_for_boot);
    // The first table is damaged: the second, at the end, is used.
    let file = File::options().write(true).open(&disk).unwrap();
    file.write_all_at(&[0xff; 16], 512 + 56).unwrap();
    assert_eq!(seen(&disk), expected);

    let mbr = "label: dos\nstart=2048, size=2048, type=83\nstart=4096, size=100000, type=5\n\
               start=6144, size=4096, type=83\nstart=12288, size=60000, type=83\n";
    let disk = world.disk(mbr, 12_288 * 512, &["-t", "ext2"]);
    let found = seen(&disk);
    assert_eq!(found.iter().map(|part| part.0).collect::<Vec<_>>(), [1, 5, 6]);
    assert_eq!(found[2], (6, 12_288 * 512, "ext2".to_owned()));
    assert_eq!(file_system(&disk).entries(b"/etc/deep").unwrap()[0].facts.size, 3 << 20);

    let whole = world.disk("", 0, &["-t", "ext3"]);
    assert_eq!(seen(&whole), [(0, 0, "ext3".to_owned())]);
}

#[test]
fn what_cannot_be_read_is_named() {
    let world = World::new();
    for (magic, at, kind) in [(&b"XFSB"[..], 0_u64, "xfs"), (b"_BHRfS_M", 0x10040, "btrfs"), (b"LABELONE", 512, "LVM2")]
    {
        let disk = world.path("other.raw");
        let file = File::create(&disk).unwrap();
        file.set_len(MIB).unwrap();
        file.write_all_at(magic, at).unwrap();
        let parts = partitions(&open(&disk)).unwrap();
        assert_eq!(parts[0].content.kind(), kind);
        let refused = FileSystem::open(parts[0].part(), &parts[0].content).unwrap_err();
        assert!(refused.to_string().contains(kind), "{refused}");
    }
    let empty = world.path("empty.raw");
    File::create(&empty).unwrap().set_len(MIB).unwrap();
    assert_eq!(partitions(&open(&empty)).unwrap()[0].content, Content::Nothing);
    // Whatever is damaged, it ends with an answer.
    let disk = world.disk("label: gpt\nstart=2048, size=60000, type=linux\n", MIB, &[]);
    let good = std::fs::read(&disk).unwrap();
    let file = File::options().write(true).open(&disk).unwrap();
    for seed in 0..40_usize {
        let changes: Vec<(usize, u8)> = noise(64)
            .into_iter()
            .enumerate()
            // The tables of the file system, and the partition table now and then.
            .map(|(index, byte)| match index {
                0 => (512 + seed, byte),
                index => (0x0010_0400 + (seed * 7919 + index * 131) % (64 << 10), byte),
            })
            .collect();
        for (at, byte) in &changes {
            file.write_all_at(&[good[*at] ^ byte], *at as u64).unwrap();
        }
        let into = world.path(&format!("into-{seed}"));
        std::fs::create_dir(&into).unwrap();
        let parts = partitions(&open(&disk)).unwrap_or_default();
        let part = parts.iter().find(|part| part.content.is_readable());
        if let Some(Ok(files)) = part.map(|part| FileSystem::open(part.part(), &part.content)) {
            let _ = copy(&files, "/etc", &into, false);
        }
        for (at, _) in &changes {
            file.write_all_at(&good[*at..=*at], *at as u64).unwrap();
        }
    }
}
