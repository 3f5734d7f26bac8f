//! `croft backup ls` and `croft backup cp`: single files out of a backup, on a target that needs no server.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Arc;

use croft_backup::harvester::{VmBackup, VolumeBackup};
use croft_backup::{BackupRequest, BackupStore, Changes, Compression, Directory, Owner, Secret, Transfer};
use serde_json::{Value, json};
use tempfile::TempDir;

const MIB: u64 = 1 << 20;
const DISK: u64 = 48 * MIB;

struct World {
    dir: TempDir,
    target: PathBuf,
    /// Names of disks, and what is on them.
    disks: Vec<(&'static str, PathBuf)>,
}

fn tool(program: &str, args: &[&str], input: &str) {
    let path = format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default());
    let mut command = Command::new(program);
    command.args(args).env("PATH", path).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap_or_else(|error| panic!("{program}: {error}"));
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
}

impl World {
    /// One disk with an EFI partition and an ext4, one with an XFS.
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let tree = dir.path().join("tree");
        std::fs::create_dir_all(tree.join("etc/ssh")).unwrap();
        std::fs::write(tree.join("etc/hosts"), "127.0.0.1 guest\n").unwrap();
        std::fs::write(tree.join("etc/ssh/key"), "secret\n").unwrap();
        let noise: Vec<u8> = (0..16 * MIB).map(|at| (at.wrapping_mul(2_654_435_761) >> 13).to_le_bytes()[0]).collect();
        std::fs::write(tree.join("big"), noise).unwrap();
        let (root, data) = (dir.path().join("root.img"), dir.path().join("data.img"));
        File::create(&root).unwrap().set_len(DISK).unwrap();
        let table = "label: gpt\nstart=2048, size=4096, type=uefi\nstart=8192, size=81920, type=linux\n";
        tool("sfdisk", &["-q", root.to_str().unwrap()], table);
        let args = ["-q", "-F", "-E", "offset=4194304", "-L", "cloud", "-d", tree.to_str().unwrap()];
        tool("mkfs.ext4", &[&args[..], &[root.to_str().unwrap(), "40M"]].concat(), "");
        let file = File::create(&data).unwrap();
        file.set_len(DISK).unwrap();
        file.write_all_at(b"XFSB", 0).unwrap();
        let target = dir.path().join("target");
        std::fs::create_dir(&target).unwrap();
        Self { dir, target, disks: vec![("root", root), ("data", data)] }
    }

    fn back_up(&self, name: &str, compression: Compression, secret: Option<&Secret>) {
        let store = BackupStore::new(Arc::new(Directory::new(&self.target)), Owner::new("test").unwrap());
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let mut volumes = Vec::new();
        for (disk, path) in &self.disks {
            let request = BackupRequest {
                volume: format!("pvc-{name}-{disk}"),
                backup: format!("backup-{name}-{disk}"),
                snapshot: "s".to_owned(),
                snapshot_created_at: "2026-11-16T12:00:00Z".to_owned(),
                disk: path.clone(),
                changes: Changes::All,
                compression,
                secret: secret.cloned(),
                labels: std::collections::BTreeMap::default(),
                storage_class: String::new(),
                transfer: Transfer::default(),
            };
            runtime.block_on(store.write(&request)).unwrap();
            volumes.push(VolumeBackup {
                volume_name: (*disk).to_owned(),
                persistent_volume_claim: json!({"spec": {"volumeName": request.volume}}),
                longhorn_backup_name: Some(request.backup),
                volume_size: Some(DISK),
                ..VolumeBackup::default()
            });
        }
        let about = VmBackup {
            name: name.to_owned(),
            namespace: "default".to_owned(),
            volume_backups: volumes,
            ..VmBackup::default()
        };
        runtime.block_on(store.save_vm_backup(&about, secret)).unwrap();
    }

    fn run(&self, args: &[&str]) -> (Output, String) {
        let url = format!("file://{}", self.target.display());
        let mut command = Command::new(env!("CARGO_BIN_EXE_croft"));
        command.arg("backup").args(args).args(["--target", &url]).env("KUBECONFIG", "");
        let output = command.output().unwrap();
        let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        (output, said)
    }

    fn ok(&self, args: &[&str]) -> String {
        let (output, said) = self.run(args);
        assert!(output.status.success(), "{args:?}: {said}");
        said
    }

    fn fails(&self, args: &[&str], code: i32, words: &[&str]) {
        let (output, said) = self.run(args);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {said}");
        for word in words {
            assert!(said.contains(word), "{args:?} does not speak of {word}: {said}");
        }
    }

    fn local(&self, name: &str) -> String {
        self.dir.path().join(name).to_str().unwrap().to_owned()
    }
}

fn blocks(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() {
            found.extend(blocks(&path));
        } else if path.extension().is_some_and(|ending| ending == "blk") {
            found.push(path);
        }
    }
    found
}

#[test]
fn files_directories_and_disks_come_out_of_a_backup() {
    let world = World::new();
    world.back_up("one", Compression::Lz4, None);
    let disks = world.ok(&["ls", "one"]);
    assert!(disks.contains("root") && disks.contains("48.0 MiB") && disks.contains("pvc-one-data"), "{disks}");
    let parts: Value = serde_json::from_str(&world.ok(&["ls", "one:root", "-o", "json"])).unwrap();
    let part = &parts["items"][1];
    assert_eq!(
        (&part["partition"], &part["holds"], &part["label"]),
        (&json!(2), &json!("ext4"), &json!("cloud")),
        "{parts}"
    );
    let listed = world.ok(&["ls", "one:root:/etc"]);
    assert!(listed.contains("hosts") && listed.contains("drwxr-xr-x") && !listed.contains("big"), "{listed}");
    assert_eq!(world.ok(&["cp", "one:root:/etc/hosts", "-"]), "127.0.0.1 guest\n");
    assert_eq!(world.ok(&["cp", "one:root.2:/etc/../etc/ssh/key", "-"]), "secret\n");
    let here = world.dir.path().to_str().unwrap();
    world.ok(&["cp", "one:root:/etc", here]);
    assert_eq!(std::fs::read(world.local("etc/ssh/key")).unwrap(), b"secret\n");
    world.fails(&["cp", "one:root:/etc", here], 1, &["etc is there already", "--force"]);
    world.ok(&["cp", "one:root:/etc", here, "--force"]);

    let raw = world.local("root.raw");
    world.ok(&["cp", "one:root", &raw]);
    assert!(std::fs::read(&raw).unwrap() == std::fs::read(&world.disks[0].1).unwrap(), "the disk as it was");
    assert!(std::fs::metadata(&raw).unwrap().blocks() * 512 < DISK * 3 / 4, "with holes");
    world.fails(&["cp", "one:root", &raw], 1, &["is there already", "--force"]);

    world.fails(&["ls", "one:/etc"], 1, &["say which disk", "root, data"]);
    world.fails(&["ls", "one:none"], 1, &["no disk none", "root"]);
    world.fails(&["ls", "one:root.7:/"], 1, &["no partition 7", "root.2"]);
    world.fails(&["ls", "one:root.1:/"], 1, &["holds nothing"]);
    world.fails(&["ls", "one:root:/none"], 1, &["there is no /none"]);
    world.fails(&["ls", "one:data:/"], 1, &["xfs", "croft backup cp one:data data.raw", "losetup"]);
    world.fails(&["ls", "other"], 1, &["no backup other"]);
    world.fails(&["cp", "one:root:etc", "x"], 2, &["BACKUP:DISK:/PATH"]);
    world.fails(&["cp", "one:root:/etc", "-"], 1, &["not a file"]);

    // No more is read than is needed: most blocks are not.
    let found = blocks(&world.target);
    let mut needed = 0;
    for block in &found {
        let away = block.with_extension("away");
        std::fs::rename(block, &away).unwrap();
        needed += usize::from(!world.run(&["cp", "one:root:/etc/hosts", "-"]).0.status.success());
        std::fs::rename(&away, block).unwrap();
    }
    assert!(needed > 0 && needed * 2 < found.len(), "{needed} of {} blocks", found.len());
    // What is needed and damaged is not handed out.
    for block in &found {
        let mut bytes = std::fs::read(block).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        std::fs::write(block, bytes).unwrap();
    }
    let (output, said) = world.run(&["cp", "one:root:/big", &world.local("big")]);
    assert!(!output.status.success() && !Path::new(&world.local("big")).exists(), "{said}");
    world.fails(&["cp", "one:root", &world.local("again.raw")], 1, &["cannot copy disk root"]);
    assert!(!Path::new(&world.local("again.raw")).exists());
}

#[test]
fn encrypted_and_packed_backups_are_read_too() {
    let world = World::new();
    let key = world.dir.path().join("key");
    std::fs::write(&key, [7_u8; 32]).unwrap();
    world.back_up("sealed", Compression::Gzip, Some(&Secret::new([7_u8; 32]).unwrap()));
    world.fails(&["ls", "sealed:root:/"], 1, &["key"]);
    let with_key = ["--key-file", key.to_str().unwrap()];
    let said = world.ok(&[&["cp", "sealed:root:/etc/hosts", "-"][..], &with_key].concat());
    assert_eq!(said, "127.0.0.1 guest\n");
    let big = world.local("big");
    world.ok(&[&["cp", "sealed:root:/big", &big][..], &with_key].concat());
    assert_eq!(std::fs::read(big).unwrap(), std::fs::read(world.dir.path().join("tree/big")).unwrap());
}
