//! The backup target itself, for what is read without the server.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use clap::Args;
use croft_api::harvester::backup_target::{self, BackupTarget};
use croft_backup::{BackupStore, Error, Keys, Location, OpenBackup, Owner, S3Access, Secret, target};
use serde_json::Value;
use tokio::time::Instant;

use crate::Failure;
use crate::client::{Client, ClientArgs, SECRETS, SETTINGS, is_not_found};

/// What the Secret of a target has.
const KEYS: [&str; 5] =
    ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_ENDPOINTS", "AWS_CERT", "VIRTUAL_HOSTED_STYLE"];

pub(crate) const HELP: &str = "The target and its keys are those of the cluster. With --target no server is asked: the keys of a \
bucket are then taken from AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_ENDPOINTS, AWS_CERT and VIRTUAL_HOSTED_STYLE in the environment.";

#[derive(Debug, Args)]
pub(crate) struct TargetArgs {
    /// Another target than the cluster's: s3://bucket@region/path, nfs://server:/path or file:///path
    #[arg(long, value_name = "URL")]
    target: Option<Location>,
    /// The key that backups are encrypted with, as a file of at least 32 bytes [default: the cluster's, if it is asked]
    #[arg(long, value_name = "FILE")]
    key_file: Option<PathBuf>,
}

/// How long somebody may clean up what is to be read. Who died at it is in the way for two and a half minutes.
const PATIENCE: Duration = Duration::from_mins(3);
const PAUSE: Duration = Duration::from_millis(500);

/// A target that can be read, and the namespace that is meant.
pub(crate) struct Opened {
    pub(crate) store: BackupStore,
    pub(crate) keys: Keys,
    pub(crate) namespace: String,
}

impl Opened {
    /// A disk, once nobody deletes anything of its volume: a server does so when it starts, after a backup was deleted, and every day.
    pub(super) async fn disk(&self, volume: &str, backup: &str) -> Result<OpenBackup, Error> {
        let give_up = Instant::now() + PATIENCE;
        loop {
            match self.store.open_with(volume, backup, &self.keys).await {
                Err(Error::Locked(..)) if Instant::now() < give_up => tokio::time::sleep(PAUSE).await,
                other => return other,
            }
        }
    }
}

impl TargetArgs {
    pub(crate) fn new(target: Option<Location>, key_file: Option<PathBuf>) -> Self {
        Self { target, key_file }
    }

    /// The one that was said, or the cluster's; with the key of the cluster's backups in any case, unless another was said. For
    /// who has the cluster at hand.
    pub(crate) async fn open_with_keys(&self, client: &ClientArgs) -> Result<Opened, Failure> {
        let mut opened = self.open(client).await?;
        if self.target.is_some() && self.key_file.is_none() {
            opened.keys = keys_of_cluster(&client.connect().await?).await?;
        }
        Ok(opened)
    }

    pub(crate) async fn open(&self, client: &ClientArgs) -> Result<Opened, Failure> {
        if let Some(location) = &self.target {
            let namespace = client.namespace_said().unwrap_or("default").to_owned();
            return Self::reach(location, &from_environment(), self.said_key()?.unwrap_or_default(), namespace);
        }
        let client = client.connect().await?;
        let (location, access) = of_cluster(&client).await?;
        let keys = match self.said_key()? {
            Some(keys) => keys,
            None => keys_of_cluster(&client).await?,
        };
        Self::reach(&location, &access, keys, client.namespace)
    }

    /// The one that was said, with keys from the environment: for a command that has no server.
    pub(crate) fn open_said(&self) -> Result<Opened, Failure> {
        let location = self.target.as_ref().ok_or_else(|| Failure::usage(anyhow!("say --target URL")))?;
        Self::reach(location, &from_environment(), self.said_key()?.unwrap_or_default(), String::new())
    }

    fn said_key(&self) -> anyhow::Result<Option<Keys>> {
        let Some(file) = &self.key_file else { return Ok(None) };
        let key = std::fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
        let key = Secret::new(key).with_context(|| format!("{} is no key", file.display()))?;
        Ok(Some(Keys::only(key)))
    }

    fn reach(
        location: &Location,
        access: &BTreeMap<String, String>,
        keys: Keys,
        namespace: String,
    ) -> Result<Opened, Failure> {
        let access = matches!(location, Location::S3 { .. }).then(|| S3Access::from_secret(access));
        let opened = target::open(location, access).with_context(|| format!("cannot open {location}"))?;
        // Of all that have one name only one may live: nobody else has this one.
        let owner = Owner::new(format!("croft-cli-{}-{:08x}", std::process::id(), getrandom::u32()?))?;
        Ok(Opened { store: BackupStore::new(opened, owner), keys, namespace })
    }
}

fn from_environment() -> BTreeMap<String, String> {
    let value = |key: &str| std::env::var(key).ok().map(|value| (key.to_owned(), value));
    KEYS.into_iter().filter_map(value).collect()
}

/// What the setting says, with the keys that it was relieved of.
async fn of_cluster(client: &Client) -> anyhow::Result<(Location, BTreeMap<String, String>)> {
    let setting = client.get(&SETTINGS.one("", backup_target::SETTING)?).await?;
    let location = location(&setting)?;
    let secret =
        secret_of_cluster(client, backup_target::SECRET).await.context("cannot read the keys of the backup target")?;
    let text = |(key, value)| String::from_utf8(value).ok().map(|value| (key, value));
    Ok((location, entries(&secret).into_iter().filter_map(text).collect()))
}

async fn keys_of_cluster(client: &Client) -> anyhow::Result<Keys> {
    let secret = secret_of_cluster(client, backup_target::ENCRYPTION_SECRET).await;
    let secret = secret.context("cannot read the key of the backups; say it with --key-file")?;
    Ok(Keys::from_secret(&entries(&secret))?)
}

/// Null if there is none.
async fn secret_of_cluster(client: &Client, name: &str) -> anyhow::Result<Value> {
    match client.get(&SECRETS.one(backup_target::SECRET_NAMESPACE, name)?).await {
        Err(err) if is_not_found(&err) => Ok(Value::Null),
        found => found,
    }
}

fn location(setting: &Value) -> anyhow::Result<Location> {
    let text = |field: &str| setting[field].as_str().filter(|text| !text.is_empty());
    let value = text("value").or_else(|| text("default")).unwrap_or("{}");
    let target: BackupTarget = serde_json::from_str(value).context("the setting backup-target cannot be read")?;
    match target.ty.as_str() {
        "" => bail!("no backup target is set; say --target URL, or set one: see docs/backups.md"),
        "s3" => Ok(format!("s3://{}@{}/", target.bucket_name, target.bucket_region).parse()?),
        _ => Ok(target.endpoint.parse()?),
    }
}

fn entries(secret: &Value) -> BTreeMap<String, Vec<u8>> {
    let data = secret["data"].as_object().into_iter().flatten();
    let decoded = |(key, value): (&String, &Value)| Some((key.clone(), STANDARD.decode(value.as_str()?).ok()?));
    data.filter_map(decoded).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use croft_backup::{BackupRequest, Changes, Compression, Directory, Transfer};
    use serde_json::json;

    use super::*;

    /// As a server is at it that was just started.
    #[tokio::test]
    async fn what_is_being_cleaned_up_is_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let disk = dir.path().join("disk");
        std::fs::write(&disk, [7; 5000]).unwrap();
        let store = BackupStore::new(Arc::new(Directory::new(dir.path())), Owner::new("cli").unwrap());
        let request = BackupRequest {
            volume: "pvc-1".to_owned(),
            backup: "backup-1".to_owned(),
            snapshot: "s".to_owned(),
            snapshot_created_at: "2026-01-02T03:04:05Z".to_owned(),
            disk,
            changes: Changes::All,
            compression: Compression::Lz4,
            secret: None,
            labels: BTreeMap::new(),
            storage_class: String::new(),
            transfer: Transfer::default(),
        };
        store.write(&request).await.unwrap();
        let mut volume = dir.path().join("backupstore/volumes");
        while !volume.join("volume.cfg").exists() {
            volume = std::fs::read_dir(&volume).unwrap().next().unwrap().unwrap().path();
        }
        std::fs::create_dir_all(volume.join("locks")).unwrap();
        let lock = volume.join("locks/lock-of-another.lck");
        std::fs::write(&lock, r#"{"Name":"lock-of-another","Type":2,"Acquired":true}"#).unwrap();
        assert!(matches!(store.open("pvc-1", "backup-1", None).await, Err(Error::Locked(..))), "it is in the way");
        let opened = Opened { store, keys: Keys::default(), namespace: String::new() };
        let (found, ()) = tokio::join!(opened.disk("pvc-1", "backup-1"), async {
            tokio::time::sleep(PAUSE / 2).await;
            std::fs::remove_file(&lock).unwrap();
        });
        assert_eq!(found.unwrap().size(), 5000);
    }

    #[test]
    fn the_setting_says_where() {
        let at = |value: &str| location(&json!({"value": value, "default": ""})).map(|location| location.to_string());
        assert_eq!(at(r#"{"type":"s3","bucketName":"b","bucketRegion":"eu"}"#).unwrap(), "s3://b@eu/");
        assert_eq!(at(r#"{"type":"nfs","endpoint":"nfs://h:/x"}"#).unwrap(), "nfs://h:/x");
        for value in ["", "{}", "{", r#"{"type":"nfs","endpoint":"x"}"#] {
            assert!(at(value).is_err(), "{value}");
        }
    }

    #[test]
    fn keys_come_out_of_the_secret() {
        let secret = json!({"data": {"AWS_ACCESS_KEY_ID": "aWQ=", "AWS_CERT": "", "BAD": "!"}});
        let entries = entries(&secret);
        assert_eq!(entries["AWS_ACCESS_KEY_ID"], b"id");
        assert_eq!(entries.len(), 2);
    }
}
