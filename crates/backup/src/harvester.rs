//! What Harvester keeps beside Longhorn's directories: what a virtual machine was when it was backed up, and its images.
//!
//! ```text
//! harvester/vmbackups/<namespace>/<name>.cfg
//! harvester/vmimages/<namespace>/<name>.cfg
//! ```
//! Before namespaces had directories, the first were `harvester/vmbackups/<namespace>-<name>.cfg`; they are read too. Objects
//! within are kept as they are, so that nothing of them is lost that this version does not know.

use std::collections::BTreeMap;
use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::error::Error;
use crate::seal::Secret;
use crate::store::{BackupStore, named};
use crate::target::{UNFINISHED, parent};

const BACKUPS: &str = "harvester/vmbackups";
const IMAGES: &str = "harvester/vmimages";
const ENDING: &str = ".cfg";
const DEFAULT_NAMESPACE: &str = "default";

/// A VirtualMachineBackup, with all that is needed to make it again on another cluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VmBackup {
    pub name: String,
    pub namespace: String,
    pub backup_spec: Value,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vm_source_spec: Option<Value>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub volume_backups: Vec<VolumeBackup>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub secret_backups: Vec<SecretBackup>,
    /// Ours: the secrets of a backup that is encrypted.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub croft_sealed_secrets: String,
    #[serde(flatten)]
    pub rest: Map<String, Value>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VolumeBackup {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// In the virtual machine.
    pub volume_name: String,
    pub csi_driver_name: String,
    pub persistent_volume_claim: Value,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub longhorn_backup_name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume_size: Option<u64>,
    #[serde(flatten)]
    pub rest: Map<String, Value>,
}

impl VolumeBackup {
    /// The name of the volume in the target.
    pub fn backup_volume(&self) -> Option<&str> {
        self.persistent_volume_claim.pointer("/spec/volumeName")?.as_str()
    }
}

#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SecretBackup {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// In base64, as in a Secret.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub data: BTreeMap<String, String>,
}

impl fmt::Debug for SecretBackup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SecretBackup").field("name", &self.name).finish_non_exhaustive()
    }
}

/// A VirtualMachineImage whose backing image is in the target.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VmImage {
    pub name: String,
    pub namespace: String,
    /// Of the backing image: [`crate::BackupUrl`].
    pub url: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub display_name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub description: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub checksum: String,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub storage_class_parameters: BTreeMap<String, String>,
    #[serde(flatten)]
    pub rest: Map<String, Value>,
}

impl VmBackup {
    fn seal(&self, secret: &Secret) -> Result<Self, Error> {
        let key = secret.key(&self.purpose()).map_err(Error::Key)?;
        let text = serde_json::to_vec(&self.secret_backups)
            .map_err(|source| Error::Config { path: self.purpose(), source })?;
        let sealed = key.seal(self.purpose().as_bytes(), text);
        let sealed = sealed.map_err(|error| Error::Content { path: self.purpose(), why: error.to_string() })?;
        Ok(Self { secret_backups: Vec::new(), croft_sealed_secrets: STANDARD.encode(sealed), ..self.clone() })
    }

    /// Gives the secrets back that were sealed with the key of the backup. What has none sealed stays as it is.
    pub fn unseal(self, secret: Option<&Secret>) -> Result<Self, Error> {
        if self.croft_sealed_secrets.is_empty() {
            return Ok(self);
        }
        let key = secret.ok_or_else(|| Error::KeyNeeded(String::new()))?.key(&self.purpose()).map_err(Error::Key)?;
        let content = |why: String| Error::Content { path: self.purpose(), why };
        let sealed = STANDARD.decode(&self.croft_sealed_secrets).map_err(|error| content(error.to_string()))?;
        let text = key.open(self.purpose().as_bytes(), &sealed).map_err(Error::Sealed)?;
        let secret_backups =
            serde_json::from_slice(&text).map_err(|source| Error::Config { path: self.purpose(), source })?;
        Ok(Self { secret_backups, croft_sealed_secrets: String::new(), ..self })
    }

    fn purpose(&self) -> String {
        format!("{BACKUPS}/{}/{}", self.namespace, self.name)
    }
}

impl BackupStore {
    /// With a key, the secrets in it are sealed.
    pub async fn save_vm_backup(&self, backup: &VmBackup, secret: Option<&Secret>) -> Result<(), Error> {
        let path = path(BACKUPS, &backup.namespace, &backup.name)?;
        match secret {
            None => self.save(&path, backup).await,
            Some(secret) => self.save(&path, &backup.seal(secret)?).await,
        }
    }

    pub async fn vm_backup(&self, namespace: &str, name: &str) -> Result<Option<VmBackup>, Error> {
        self.load(&path(BACKUPS, namespace, name)?).await
    }

    pub async fn delete_vm_backup(&self, namespace: &str, name: &str) -> Result<(), Error> {
        self.remove(&path(BACKUPS, namespace, name)?).await
    }

    /// All that are there, those of an older Harvester too. What cannot be read is passed over, with a warning.
    pub async fn vm_backups(&self) -> Result<Vec<VmBackup>, Error> {
        let mut backups: Vec<VmBackup> = self.all(BACKUPS).await?;
        for backup in &mut backups {
            if backup.namespace.is_empty() {
                backup.namespace = DEFAULT_NAMESPACE.into();
            }
        }
        Ok(backups)
    }

    pub async fn save_vm_image(&self, image: &VmImage) -> Result<(), Error> {
        self.save(&path(IMAGES, &image.namespace, &image.name)?, image).await
    }

    pub async fn vm_image(&self, namespace: &str, name: &str) -> Result<Option<VmImage>, Error> {
        self.load(&path(IMAGES, namespace, name)?).await
    }

    pub async fn delete_vm_image(&self, namespace: &str, name: &str) -> Result<(), Error> {
        self.remove(&path(IMAGES, namespace, name)?).await
    }

    pub async fn vm_images(&self) -> Result<Vec<VmImage>, Error> {
        let mut images: Vec<VmImage> = self.all(IMAGES).await?;
        for image in &mut images {
            if image.namespace.is_empty() {
                image.namespace = DEFAULT_NAMESPACE.into();
            }
        }
        Ok(images)
    }

    /// With what is left beside it of somebody who was killed while writing it.
    async fn remove(&self, path: &str) -> Result<(), Error> {
        let begun = format!("{path}{UNFINISHED}");
        for name in self.list(parent(path)).await? {
            let beside = format!("{}/{name}", parent(path));
            if beside.starts_with(&begun) {
                self.delete(&beside).await?;
            }
        }
        Ok(self.delete(path).await?)
    }

    async fn all<T: DeserializeOwned>(&self, dir: &str) -> Result<Vec<T>, Error> {
        let paths = self.fold(dir, Vec::new, |paths, entry| {
            if entry.name().ends_with(ENDING) {
                paths.push(entry.path);
            }
        });
        let mut found = Vec::new();
        for path in paths.await? {
            match self.load(&path).await {
                Ok(Some(it)) => found.push(it),
                // Deleted meanwhile.
                Ok(None) => {}
                Err(error @ Error::Config { .. }) => {
                    tracing::warn!(path, error = %croft_meta::Chain(&error), "what a backup target says cannot be read");
                }
                Err(error) => return Err(error),
            }
        }
        Ok(found)
    }
}

/// Names of objects may have a single letter, unlike Longhorn's.
fn path(dir: &str, namespace: &str, name: &str) -> Result<String, Error> {
    for part in [namespace, name] {
        named("an object", &format!("x{part}"))?;
    }
    Ok(format!("{dir}/{namespace}/{name}{ENDING}"))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{Directory, Owner};

    #[tokio::test]
    async fn what_a_writer_who_was_killed_has_left_goes_with_it() {
        let dir = tempfile::tempdir().unwrap();
        let store = BackupStore::new(Arc::new(Directory::new(dir.path())), Owner::new("one").unwrap());
        for name in ["kept", "kept-2"] {
            let backup = VmBackup { name: name.into(), namespace: "default".into(), ..VmBackup::default() };
            store.save_vm_backup(&backup, None).await.unwrap();
            let beside = dir.path().join(format!("{BACKUPS}/default/{name}.cfg{UNFINISHED}0123456789abcdef"));
            std::fs::write(beside, "half").unwrap();
        }
        store.delete_vm_backup("default", "kept").await.unwrap();
        assert_eq!(std::fs::read_dir(dir.path().join(BACKUPS).join("default")).unwrap().count(), 2, "the other's stay");
        store.delete_vm_backup("default", "kept-2").await.unwrap();
        store.delete_vm_backup("default", "kept-2").await.unwrap();
        assert!(!dir.path().join(BACKUPS).join("default").exists());
    }
}
