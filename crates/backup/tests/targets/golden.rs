//! The layout as somebody else writes and reads it: a small program that shares nothing with ours.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use croft_backup::{BackupRequest, Base, Compression, Directory, Error, Transfer};

use crate::stage::{self, Disk, assert_restores, back_up, python, request, script, store};

fn golden(arguments: &[&str]) {
    let out = Command::new(python()).arg(script("golden.py")).args(arguments).output().unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[tokio::test]
async fn what_another_program_wrote_is_restored() {
    let dir = stage::dir();
    let root = dir.path().join("target");
    golden(&["write", text(&root)]);
    let store = store(Arc::new(Directory::new(&root)));
    assert_eq!(store.volumes().await.unwrap(), ["pvc-gzip", "pvc-image", "pvc-lz4", "pvc-none", "pvc-old"]);
    let expected = |name: &str| std::fs::read(root.join("expected").join(name)).unwrap();
    for volume in ["pvc-gzip", "pvc-lz4", "pvc-none", "pvc-old"] {
        assert_eq!(store.backups(volume).await.unwrap(), ["backup-1", "backup-2", "backup-under-way"]);
        for backup in ["backup-1", "backup-2"] {
            assert_restores(&store, volume, backup, None, &expected(&format!("{volume}.{backup}"))).await;
        }
        let under_way = store.open(volume, "backup-under-way", None).await.unwrap_err();
        assert!(matches!(under_way, Error::Incomplete(_)), "{under_way}");
    }

    // On top of a backing image, which is in the target too.
    let disk = dir.path().join("disk");
    let image = store.open_backing_image("vmi-1").await.unwrap();
    image.restore(&disk, Base::Nothing, &Transfer::default()).await.unwrap();
    image.close().await;
    assert!(std::fs::read(&disk).unwrap() == expected("vmi-1"));
    let opened = store.open("pvc-image", "backup-image", None).await.unwrap();
    assert_eq!(opened.backing_image(), Some("vmi-1"));
    let refused = opened.restore(&dir.path().join("other"), Base::Nothing, &Transfer::default()).await.unwrap_err();
    assert!(matches!(refused, Error::OnBackingImage { .. }), "{refused}");
    opened.restore(&disk, Base::BackingImage, &Transfer::default()).await.unwrap();
    opened.close().await;
    assert!(std::fs::read(&disk).unwrap() == expected("pvc-image.backup-image"));

    let mut machines: Vec<_> = store.vm_backups().await.unwrap();
    machines.sort_by_key(|machine| machine.name.clone());
    let names: Vec<_> = machines.iter().map(|machine| (machine.namespace.as_str(), machine.name.as_str())).collect();
    assert_eq!(names, [("default", "nightly"), ("default", "old-style")]);
    assert_eq!(machines[0].volume_backups[0].backup_volume(), Some("pvc-lz4"));
    assert_eq!(store.vm_images().await.unwrap()[0].display_name, "Debian");

    // Ours go beside theirs, compressed as theirs are, and theirs stay.
    let ours = Disk::new(dir.path().join("ours"), 50);
    let written = back_up(&store, &ours, "pvc-gzip", "backup-3").await;
    assert_eq!(written.method.compression, Compression::Gzip);
    store.delete_backup("pvc-lz4", "backup-1").await.unwrap();
    assert_restores(&store, "pvc-lz4", "backup-2", None, &expected("pvc-lz4.backup-2")).await;
    let out = dir.path().join("read");
    golden(&["read", text(&root), "pvc-gzip", "backup-2", text(&out)]);
    // The volume has grown with ours.
    let (read, expected) = (std::fs::read(&out).unwrap(), expected("pvc-gzip.backup-2"));
    assert!(read[..expected.len()] == expected && read[expected.len()..].iter().all(|byte| *byte == 0));
}

#[tokio::test]
async fn what_we_write_another_program_reads() {
    let dir = stage::dir();
    let root = dir.path().join("target");
    std::fs::create_dir(&root).unwrap();
    let store = store(Arc::new(Directory::new(&root)));
    for compression in [Compression::Lz4, Compression::Gzip, Compression::None] {
        let disk = Disk::new(dir.path().join("disk"), 51);
        let volume = format!("pvc-{compression:?}");
        let first = BackupRequest { compression, ..request(&disk.path, &volume, "backup-1") };
        store.write(&first).await.unwrap();
        let out = dir.path().join("read");
        golden(&["read", text(&root), &volume, "backup-1", text(&out)]);
        let read = std::fs::read(&out).unwrap();
        // A volume is whole blocks.
        assert_eq!(read.len(), disk.content.len().next_multiple_of(crate::stage::BLOCK));
        assert!(read[..disk.content.len()] == disk.content, "{compression:?}");
        assert!(read[disk.content.len()..].iter().all(|byte| *byte == 0));
    }
}
