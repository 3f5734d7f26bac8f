//! The files that describe volumes, backups and backing images, with exactly Longhorn's fields.
//!
//! Go's `,string` makes some fields texts: a number in quotation marks, a text in quotation marks within quotation marks.
//! What we add is in one field of its own, `Croft`, which Longhorn passes over.

mod go;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::layout::Checksum;

pub(crate) type Labels = BTreeMap<String, String>;

/// What every backup of Longhorn's has, unless its parameters say otherwise.
pub const BLOCK_SIZE: u64 = 2 << 20;
/// Larger blocks than Longhorn offers (16 MiB) are not handled in memory.
const LARGEST_BLOCK: u64 = 64 << 20;
const BLOCK_SIZE_PARAMETER: &str = "backup-block-size";

/// `volume.cfg`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct VolumeConfig {
    pub name: String,
    #[serde(with = "go::number")]
    pub size: u64,
    pub labels: Option<Labels>,
    pub created_time: String,
    pub last_backup_name: String,
    pub last_backup_at: String,
    #[serde(with = "go::number")]
    pub block_count: u64,
    #[serde(with = "go::quoted")]
    pub backing_image_name: String,
    #[serde(with = "go::quoted")]
    pub backing_image_checksum: String,
    #[serde(with = "go::quoted")]
    pub compression_method: String,
    #[serde(with = "go::quoted")]
    pub storage_class_name: String,
    #[serde(with = "go::quoted")]
    pub data_engine: String,
    /// What a later Longhorn wrote: it is written back when the file is.
    #[serde(flatten)]
    pub rest: Map<String, Value>,
}

/// Where a block is in the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct BlockMapping {
    pub offset: u64,
    #[serde(with = "go::checksum")]
    pub block_checksum: Checksum,
}

/// `backup_<name>.cfg`. One without a time of creation is under way, or was given up.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct BackupConfig {
    pub name: String,
    pub volume_name: String,
    pub snapshot_name: String,
    pub snapshot_created_at: String,
    pub created_time: String,
    #[serde(with = "go::number")]
    pub size: u64,
    pub labels: Option<Labels>,
    pub parameters: Option<Labels>,
    pub is_incremental: bool,
    pub compression_method: String,
    #[serde(with = "go::number")]
    pub newly_uploaded_data_size: u64,
    #[serde(with = "go::number")]
    pub re_uploaded_data_size: u64,
    /// Always null; Longhorn's own working state.
    pub processing_blocks: Option<Value>,
    #[serde(deserialize_with = "go::nullable", skip_serializing_if = "Vec::is_empty")]
    pub blocks: Vec<BlockMapping>,
    pub single_file: SingleFile,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub croft: Option<Extension>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct SingleFile {
    pub file_path: String,
}

/// Ours alone.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct Extension {
    /// The disk's size to the byte; the volume's is rounded up to whole blocks.
    #[serde(with = "go::number")]
    pub disk_size: u64,
    /// Of a backup under way: its lock. Once that is gone or old, nobody is working on the backup.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub lock: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub encryption: Option<Encryption>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct Encryption {
    pub cipher: String,
    /// Tells a wrong key from a broken backup.
    pub key_id: String,
}

/// `backing-image.cfg`. One without a time of completion is under way, or was given up.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct BackingImageConfig {
    pub name: String,
    #[serde(with = "go::number")]
    pub size: u64,
    #[serde(with = "go::number")]
    pub block_count: u64,
    pub checksum: String,
    pub labels: Option<Labels>,
    pub compression_method: String,
    pub created_time: String,
    pub complete_time: String,
    pub secret: String,
    pub secret_namespace: String,
    pub processing_blocks: Option<Value>,
    #[serde(deserialize_with = "go::nullable", skip_serializing_if = "Vec::is_empty")]
    pub blocks: Vec<BlockMapping>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub croft: Option<Extension>,
}

impl BackupConfig {
    pub fn is_complete(&self) -> bool {
        !self.created_time.is_empty()
    }

    /// None if it is not a size that a block can have.
    pub fn block_size(&self) -> Option<u64> {
        let text = self.parameters.as_ref().and_then(|parameters| parameters.get(BLOCK_SIZE_PARAMETER));
        let Some(text) = text.filter(|text| !text.is_empty()) else { return Some(BLOCK_SIZE) };
        let quantity = croft_meta::Quantity::parse(text).ok()?;
        let size = u64::try_from(quantity.value()).ok()?;
        match size {
            0 => Some(BLOCK_SIZE),
            size => Some(size).filter(|size| size.is_multiple_of(4096) && *size <= LARGEST_BLOCK),
        }
    }

    pub fn key_id(&self) -> Option<&str> {
        self.croft.as_ref()?.encryption.as_ref().map(|encryption| encryption.key_id.as_str())
    }
}

impl BackingImageConfig {
    pub fn is_complete(&self) -> bool {
        !self.complete_time.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As Go's encoder writes the structure.
    const VOLUME: &str = r#"{"Name":"pvc-1","Size":"10737418240","Labels":{"a":"b"},"CreatedTime":"2026-01-02T03:04:05Z","LastBackupName":"backup-1","LastBackupAt":"2026-01-02T03:04:05Z","BlockCount":"7","BackingImageName":"\"\"","BackingImageChecksum":"\"\"","CompressionMethod":"\"lz4\"","StorageClassName":"\"longhorn\"","DataEngine":"\"v1\""}"#;
    const BACKUP: &str = r#"{"Name":"backup-1","VolumeName":"pvc-1","SnapshotName":"snap","SnapshotCreatedAt":"2026-01-02T03:04:05Z","CreatedTime":"2026-01-02T03:05:05Z","Size":"2097152","Labels":null,"Parameters":null,"IsIncremental":false,"CompressionMethod":"lz4","NewlyUploadedDataSize":"100","ReUploadedDataSize":"0","ProcessingBlocks":null,"Blocks":[{"Offset":4194304,"BlockChecksum":"cf83e1357eefb8bdf1542850d66d8007d620e4050b5715dc83f4a921d36ce9ce"}],"SingleFile":{"FilePath":""}}"#;

    #[test]
    fn files_are_read_and_written_as_go_does() {
        let volume: VolumeConfig = serde_json::from_str(VOLUME).unwrap();
        assert_eq!((volume.size, volume.compression_method.as_str()), (10 << 30, "lz4"));
        assert_eq!(serde_json::to_string(&volume).unwrap(), VOLUME);
        let backup: BackupConfig = serde_json::from_str(BACKUP).unwrap();
        assert_eq!(backup.blocks, [BlockMapping { offset: 4 << 20, block_checksum: Checksum::of(b"") }]);
        assert_eq!(serde_json::to_string(&backup).unwrap(), BACKUP);
    }

    #[test]
    fn older_and_newer_files_are_read_too() {
        let old: VolumeConfig =
            serde_json::from_str(r#"{"Name":"v1","Size":"4","BlockCount":3,"Labels":null}"#).unwrap();
        assert_eq!((old.block_count, old.compression_method.as_str()), (3, ""));
        let newer = r#"{"Name":"v1","Novelty":{"x":1}}"#;
        let newer: VolumeConfig = serde_json::from_str(newer).unwrap();
        assert!(serde_json::to_string(&newer).unwrap().contains(r#""Novelty":{"x":1}"#));
        let working = BACKUP.replace(r#""ProcessingBlocks":null"#, r#""ProcessingBlocks":{}"#);
        let working = working.replace(r#""Blocks":["#, r#""Other":null,"Blocks":["#);
        assert_eq!(serde_json::from_str::<BackupConfig>(&working).unwrap().blocks.len(), 1);
        assert!(serde_json::from_str::<BackupConfig>(&BACKUP.replace("cf83", "xf83")).is_err());
    }

    #[test]
    fn a_block_has_the_size_its_parameters_say() {
        let with = |size: &str| BackupConfig {
            parameters: Some(Labels::from([(BLOCK_SIZE_PARAMETER.into(), size.into())])),
            ..BackupConfig::default()
        };
        assert_eq!(BackupConfig::default().block_size(), Some(BLOCK_SIZE));
        for (text, size) in
            [("", Some(2 << 20)), ("0", Some(2 << 20)), ("16Mi", Some(16 << 20)), ("2097152", Some(2 << 20))]
        {
            assert_eq!(with(text).block_size(), size, "{text}");
        }
        for text in ["x", "-1", "3", "1Ti"] {
            assert_eq!(with(text).block_size(), None, "{text}");
        }
    }
}
