//! Everything that a target is used for, once, on whatever target.

use std::collections::BTreeMap;
use std::sync::Arc;

use croft_backup::harvester::{SecretBackup, VmBackup, VmImage, VolumeBackup};
use croft_backup::{
    BackingImageRequest, BackupRequest, BackupStore, Base, Changes, Compression, Error, Secret, Target, Transfer,
    target,
};
use serde_json::json;

use crate::stage::{self, BLOCK, Disk, assert_restores, back_up, request, store};

pub(crate) async fn everything(target: Arc<dyn Target>) {
    target::check(target.as_ref()).await.unwrap();
    let store = store(target);
    assert!(store.volumes().await.unwrap().is_empty());
    chain(&store).await;
    encrypted(&store).await;
    backing_images(&store).await;
    metadata(&store).await;
    assert!(store.volumes().await.unwrap().is_empty(), "{:?}", store.volumes().await);
}

/// Full, changed, unchanged; deleted in the order that is hardest on the rest.
async fn chain(store: &BackupStore) {
    let dir = stage::dir();
    let mut disk = Disk::new(dir.path().join("disk"), 1);
    let first_content = disk.content.clone();
    let written = back_up(store, &disk, "pvc-1", "backup-1").await;
    // Three random, one of them twice, one of x, one with a byte, the tail.
    assert_eq!((written.new_blocks, written.size), (6, 7 * BLOCK as u64));
    assert!(!written.is_incremental && written.uploaded > 3 * BLOCK as u64, "{written:?}");
    assert_restores(store, "pvc-1", "backup-1", None, &first_content).await;
    let again = back_up(store, &disk, "pvc-1", "backup-1").await;
    assert_eq!((again.uploaded, again.size), (0, written.size), "what is complete is left alone");

    let extents = vec![
        disk.write(BLOCK + 5, b"changed"),
        disk.write(6 * BLOCK, &vec![0; BLOCK]),
        disk.write(9 * BLOCK - 3, b"across two"),
    ];
    let since = |backup: &str, extents| Changes::Since { backup: backup.into(), extents };
    let second = BackupRequest { changes: since("backup-1", extents), ..request(&disk.path, "pvc-1", "backup-2") };
    let written = store.write(&second).await.unwrap();
    assert!(written.is_incremental);
    assert_eq!((written.new_blocks, written.size), (3, 7 * BLOCK as u64), "one is zero now, one is new");
    assert_restores(store, "pvc-1", "backup-2", None, &disk.content).await;

    let third = BackupRequest { changes: since("backup-2", vec![]), ..request(&disk.path, "pvc-1", "backup-3") };
    assert_eq!(store.write(&third).await.unwrap().uploaded, 0, "nothing changed");
    let missing = BackupRequest { changes: since("gone", vec![]), ..request(&disk.path, "pvc-1", "backup-4") };
    let full = store.write(&missing).await.unwrap();
    assert_eq!((full.is_incremental, full.uploaded), (false, 0), "all was read and nothing sent");
    assert_eq!(store.backups("pvc-1").await.unwrap().len(), 4);
    assert_eq!(store.volume("pvc-1").await.unwrap().unwrap().last_backup_name, "backup-4");

    let opened = store.open("pvc-1", "backup-4", None).await.unwrap();
    for (offset, length) in [(0, 10), (BLOCK - 5, 4 * BLOCK), (disk.content.len() - 3, 100), (disk.content.len(), 1)] {
        let end = (offset + length).min(disk.content.len());
        let read = opened.read_at(offset as u64, length).await.unwrap();
        assert!(read == disk.content[offset..end], "at {offset}");
    }
    let refused = store.delete_backup("pvc-1", "backup-1").await.unwrap_err();
    assert!(matches!(refused, Error::Locked(..)), "{refused}");
    opened.close().await;

    let freed = store.delete_backup("pvc-1", "backup-1").await.unwrap();
    assert_eq!(freed.blocks, 3, "x, and what was changed in two blocks");
    for backup in ["backup-2", "backup-3", "backup-4"] {
        assert_restores(store, "pvc-1", backup, None, &disk.content).await;
    }
    for backup in ["backup-4", "backup-2"] {
        assert_eq!(store.delete_backup("pvc-1", backup).await.unwrap().blocks, 0);
    }
    assert_eq!(store.volume("pvc-1").await.unwrap().unwrap().last_backup_name, "backup-3");
    assert!(store.delete_backup("pvc-1", "backup-3").await.unwrap().blocks > 0);
    store.delete_backup("pvc-1", "backup-3").await.unwrap();
    assert_eq!(store.clean_up("pvc-1").await.unwrap(), croft_backup::Freed::default());
    store.delete_volume("pvc-1").await.unwrap();
}

async fn encrypted(store: &BackupStore) {
    let dir = stage::dir();
    let disk = Disk::new(dir.path().join("disk"), 2);
    let secret = Secret::new([7; 32]).unwrap();
    let sealed =
        |backup: &str| BackupRequest { secret: Some(secret.clone()), ..request(&disk.path, "pvc-secret", backup) };
    let written = store.write(&sealed("backup-1")).await.unwrap();
    assert!(written.method.is_encrypted && written.new_blocks == 6);
    assert_eq!(store.write(&sealed("backup-2")).await.unwrap().uploaded, 0, "deduplicated all the same");
    assert_restores(store, "pvc-secret", "backup-1", Some(&secret), &disk.content).await;
    let without = store.open("pvc-secret", "backup-1", None).await.unwrap_err();
    assert!(matches!(without, Error::KeyNeeded(_)), "{without}");
    let wrong = store.open("pvc-secret", "backup-1", Some(&Secret::new([8; 32]).unwrap())).await.unwrap_err();
    assert!(matches!(wrong, Error::WrongKey { .. }), "{wrong}");
    store.delete_volume("pvc-secret").await.unwrap();
    assert!(store.backups("pvc-secret").await.unwrap().is_empty());
}

async fn backing_images(store: &BackupStore) {
    let dir = stage::dir();
    let disk = Disk::new(dir.path().join("image"), 3);
    let image = |name: &str| BackingImageRequest {
        name: name.into(),
        file: disk.path.clone(),
        compression: Compression::Gzip,
        labels: BTreeMap::new(),
        transfer: Transfer::default(),
    };
    assert!(store.write_backing_image(&image("vmi-1")).await.unwrap() > 0);
    assert_eq!(store.write_backing_image(&image("vmi-2")).await.unwrap(), 0, "they share their blocks");
    assert_eq!(store.backing_images().await.unwrap(), ["vmi-1", "vmi-2"]);
    assert_eq!(store.delete_backing_image("vmi-1").await.unwrap().blocks, 0);
    let opened = store.open_backing_image("vmi-2").await.unwrap();
    let restored = dir.path().join("restored");
    opened.restore(&restored, Base::Nothing, &Transfer::default()).await.unwrap();
    opened.close().await;
    assert!(std::fs::read(restored).unwrap() == disk.content);
    assert_eq!(store.delete_backing_image("vmi-2").await.unwrap().blocks, 6);
}

async fn metadata(store: &BackupStore) {
    let claim = json!({"spec": {"volumeName": "pvc-1"}});
    let backup = VmBackup {
        name: "nightly".into(),
        namespace: "default".into(),
        backup_spec: json!({"source": {"kind": "VirtualMachine", "name": "vm"}, "type": "backup"}),
        vm_source_spec: Some(json!({"spec": {"running": true}})),
        volume_backups: vec![VolumeBackup { persistent_volume_claim: claim, ..VolumeBackup::default() }],
        secret_backups: vec![SecretBackup { name: "s".into(), data: [("key".into(), "aHVzaA==".into())].into() }],
        ..VmBackup::default()
    };
    store.save_vm_backup(&backup, None).await.unwrap();
    assert_eq!(store.vm_backups().await.unwrap(), std::slice::from_ref(&backup));
    let secret = Secret::new([7; 32]).unwrap();
    store.save_vm_backup(&backup, Some(&secret)).await.unwrap();
    let sealed = store.vm_backup("default", "nightly").await.unwrap().unwrap();
    assert!(sealed.secret_backups.is_empty() && !serde_json::to_string(&sealed).unwrap().contains("aHVzaA"));
    assert!(sealed.clone().unseal(None).is_err());
    assert_eq!(sealed.unseal(Some(&secret)).unwrap(), backup);
    assert!(store.vm_backup("default", "../x").await.is_err());
    store.delete_vm_backup("default", "nightly").await.unwrap();
    assert_eq!(store.vm_backup("default", "nightly").await.unwrap(), None);

    let image = VmImage {
        name: "i".into(),
        namespace: "n".into(),
        url: "s3://b@r/?backingImage=x1".into(),
        ..VmImage::default()
    };
    store.save_vm_image(&image).await.unwrap();
    assert_eq!(store.vm_images().await.unwrap(), [image]);
    store.delete_vm_image("n", "i").await.unwrap();
    assert!(store.vm_images().await.unwrap().is_empty());
}
