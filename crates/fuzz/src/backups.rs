//! Files of backup targets, which others write too, and the file of a saved state.

use std::path::Component;

use croft_backup::config::{BackingImageConfig, BackupConfig, VolumeConfig};
use croft_backup::harvester::{VmBackup, VmImage};
use croft_backup::{BackupUrl, Location, fuzzing as backup};
use croft_store::saved::{Item, Reader};
use serde_json::Value;

use crate::text;

const LIMIT: u64 = 64 << 10;

pub(crate) fn backup_block(data: &[u8]) {
    backup::unpack(data, LIMIT);
    backup::pack_and_unpack(data, data.len() as u64);
}

/// A description is written so that it reads as the same again, with what it does not know.
pub(crate) fn backup_files(data: &[u8]) {
    macro_rules! again {
        ($($kind:ty),*) => {$(
            if let Ok(first) = serde_json::from_slice::<$kind>(data) {
                let written = serde_json::to_value(&first).unwrap_or_default();
                let second: $kind = serde_json::from_value(written.clone())
                    .unwrap_or_else(|error| panic!("{written}: {error}"));
                assert_eq!(serde_json::to_value(&second).ok(), Some(written));
            }
        )*};
    }
    again!(VolumeConfig, BackupConfig, BackingImageConfig, VmBackup, VmImage);
    if let Ok(config) = serde_json::from_slice::<BackupConfig>(data) {
        assert!(config.block_size().is_none_or(|size| size > 0 && size.is_multiple_of(4096)));
    }
    let _ = serde_json::from_slice::<Value>(data);
    backup::lock_and_names(data);
}

/// No URL of a target leads out of its directory.
pub(crate) fn backup_target(data: &[u8]) {
    let Some(text) = text(data) else { return };
    if let Ok(Location::Directory { path }) = text.parse::<Location>() {
        let is_within = path.components().all(|part| part != Component::ParentDir);
        assert!(path.is_absolute() && is_within, "{text:?}");
    }
    match text.parse::<BackupUrl>() {
        Ok(BackupUrl::Backup { volume, backup, .. }) => assert!(is_name(&volume) && is_name(&backup), "{text:?}"),
        Ok(BackupUrl::Volume { volume, .. }) => assert!(is_name(&volume), "{text:?}"),
        Ok(BackupUrl::BackingImage { name, .. }) => assert!(is_name(&name), "{text:?}"),
        Err(_) => {}
    }
}

fn is_name(text: &str) -> bool {
    !text.is_empty() && !text.contains('/') && text != "." && text != ".."
}

/// A state that is cut off or changed is never taken for whole.
pub(crate) fn saved_state(data: &[u8]) {
    let Ok(mut reader) = Reader::open(data) else { return };
    for _ in 0..10_000 {
        match reader.next() {
            Ok(Some(Item::File { .. } | Item::Record(_))) => {}
            Ok(None) => {
                if let Some(shorter) = data.get(..data.len().saturating_sub(1)) {
                    assert!(!is_whole(shorter), "a state without its last byte is taken for whole");
                }
                return;
            }
            Err(_) => return,
        }
    }
}

fn is_whole(data: &[u8]) -> bool {
    let Ok(mut reader) = Reader::open(data) else { return false };
    loop {
        match reader.next() {
            Ok(Some(_)) => {}
            Ok(None) => return true,
            Err(_) => return false,
        }
    }
}
