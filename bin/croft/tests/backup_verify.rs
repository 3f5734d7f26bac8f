//! `croft backup verify` on a target that needs no server: what is sound, and what is damaged in every way.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use croft_backup::harvester::{VmBackup, VolumeBackup};
use croft_backup::{BackupRequest, BackupStore, Changes, Compression, Directory, Owner, Secret, Transfer};
use serde_json::{Value, json};

const BLOCK: usize = 2 << 20;

fn verify(target: &Path, args: &[&str]) -> (Output, String) {
    let url = format!("file://{}", target.display());
    let mut command = Command::new(env!("CARGO_BIN_EXE_croft"));
    let output =
        command.args(["backup", "verify", "--target", &url]).args(args).env("KUBECONFIG", "").output().unwrap();
    let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    (output, said)
}

/// A machine with one disk of four blocks, the third of which is zero.
fn back_up(dir: &Path, target: &Path, name: &str, secret: Option<&Secret>) {
    let disk = dir.join("disk.raw");
    let mut content = vec![0_u8; 4 * BLOCK];
    for block in [0, 1, 3] {
        content[block * BLOCK..(block + 1) * BLOCK].fill(u8::try_from(block + 1).unwrap());
    }
    std::fs::write(&disk, content).unwrap();
    let store = BackupStore::new(std::sync::Arc::new(Directory::new(target)), Owner::new("test").unwrap());
    let request = BackupRequest {
        volume: format!("pvc-{name}"),
        backup: format!("backup-{name}"),
        snapshot: "s".to_owned(),
        snapshot_created_at: "2026-11-16T12:00:00Z".to_owned(),
        disk,
        changes: Changes::All,
        compression: Compression::Lz4,
        secret: secret.cloned(),
        labels: std::collections::BTreeMap::default(),
        storage_class: String::new(),
        transfer: Transfer::default(),
    };
    let volume = VolumeBackup {
        volume_name: "root".to_owned(),
        persistent_volume_claim: json!({"spec": {"volumeName": format!("pvc-{name}")}}),
        longhorn_backup_name: Some(format!("backup-{name}")),
        ..VolumeBackup::default()
    };
    let about = VmBackup {
        name: name.to_owned(),
        namespace: "default".to_owned(),
        volume_backups: vec![volume],
        ..VmBackup::default()
    };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        store.write(&request).await.unwrap();
        store.save_vm_backup(&about, secret).await.unwrap();
    });
}

/// In the order of their names.
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
    found.sort_unstable();
    found
}

#[test]
fn what_is_damaged_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("target");
    std::fs::create_dir(&target).unwrap();
    back_up(dir.path(), &target, "one", None);
    let (output, said) = verify(&target, &["one"]);
    assert!(output.status.success() && said.contains("backup one, disk root: sound, 3 blocks of 8.0 MiB"), "{said}");
    let (output, said) = verify(&target, &["none"]);
    assert!(output.status.code() == Some(1) && said.contains("no backup none of namespace default"), "{said}");
    let (output, _) = verify(&target, &["--all", "-n", "elsewhere", "-o", "json"]);
    assert_eq!(serde_json::from_slice::<Value>(&output.stdout).unwrap(), json!({"items": []}));

    let found = blocks(&target);
    assert_eq!(found.len(), 3);
    std::fs::remove_file(&found[0]).unwrap();
    let whole = std::fs::read(&found[1]).unwrap();
    std::fs::write(&found[1], &whole[..whole.len() / 2]).unwrap();
    let mut other = std::fs::read(&found[2]).unwrap();
    let middle = other.len() / 2;
    other[middle] ^= 1;
    std::fs::write(&found[2], other).unwrap();
    let (output, said) = verify(&target, &["--all"]);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("3 of 3 blocks are bad") && said.contains("1 of 1 disks"), "{said}");
    for (file, word) in found.iter().zip(["missing", "truncated", ""]) {
        let name = file.file_stem().unwrap().to_str().unwrap();
        assert!(said.contains(&format!("{word} {name}")), "{word} {name}: {said}");
    }
    let (output, _) = verify(&target, &["one", "-o", "json"]);
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        (&document["items"][0]["bad"], &document["items"][0]["isSound"]),
        (&json!(3), &json!(false)),
        "{document}"
    );
}

#[test]
fn an_encrypted_one_needs_its_key() {
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("target");
    std::fs::create_dir(&target).unwrap();
    let key = dir.path().join("key");
    std::fs::write(&key, [7_u8; 32]).unwrap();
    back_up(dir.path(), &target, "one", Some(&Secret::new([7_u8; 32]).unwrap()));
    let (output, said) = verify(&target, &["one"]);
    assert!(output.status.code() == Some(1) && said.contains("key"), "{said}");
    let (output, said) = verify(&target, &["one", "--key-file", key.to_str().unwrap()]);
    assert!(output.status.success() && said.contains("sound"), "{said}");
    std::fs::write(&key, [7_u8; 31]).unwrap();
    let (output, said) = verify(&target, &["one", "--key-file", key.to_str().unwrap()]);
    assert!(output.status.code() == Some(1) && said.contains("is no key"), "{said}");
}

#[test]
fn a_target_that_is_none_is_refused() {
    for (url, code, word) in [("ftp://x", 2, "s3://bucket@region/path"), ("file:///nowhere/at.all", 1, "cannot read")] {
        let args = ["backup", "verify", "one", "--target", url];
        let output = Command::new(env!("CARGO_BIN_EXE_croft")).args(args).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(code) && said.contains(word), "{url}: {said}");
    }
}
