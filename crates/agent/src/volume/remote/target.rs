//! The target as Longhorn's objects tell of it.

use std::collections::BTreeMap;
use std::num::NonZeroU64;

use croft_api::harvester::backup_target::ENCRYPTION_SECRET;
use croft_api::longhorn::{self, BackupTarget};
use croft_backup::{BackupStore, Compression, Keys, Method, Opener, Owner, Transfer};
use croft_meta::{Chain, Quantity};
use croft_reconcile::failure::absent_is_none;
use k8s_openapi::api::core::v1::{Namespace, Secret};
use kube::Api;
use kube::api::{ApiResource, DynamicObject};
use kube::core::GroupVersionKind;
use tokio_util::sync::CancellationToken;

use super::super::Inner;
use super::{Gauge, Stop};

const COMPRESSION: &str = "backup-compression-method";
const AT_ONCE: &str = "backup-concurrent-limit";
const RESTORED_AT_ONCE: &str = "restore-concurrent-limit";
/// Ours: bytes in a second that go to the target or come from it, for each disk; 0 is as many as possible.
const BANDWIDTH: &str = "backup-bandwidth-limit";

/// The target that is set, and what it is called.
pub(super) struct Open {
    pub(super) store: BackupStore,
    pub(super) url: String,
}

/// Which way a disk goes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    There,
    Back,
}

impl Inner {
    pub(super) async fn open_target(&self) -> Result<Open, Stop> {
        let api: Api<BackupTarget> = Api::namespaced(self.client.clone(), longhorn::NAMESPACE);
        let target = absent_is_none(api.get(longhorn::TARGET).await)?.unwrap_or_default();
        let url = target.spec.backup_target_url;
        if url.is_empty() {
            return Err(Stop::Because("backup target is not set".to_owned()));
        }
        let status = target.status.unwrap_or_default();
        if !status.available {
            let why = status.conditions.first().map(|condition| condition.message.as_str()).unwrap_or_default();
            return Err(Stop::Because(format!("the backup target cannot be used now: {why}")));
        }
        let secret = self.target_secret(&target.spec.credential_secret).await?;
        let opened = self.opener().await?.store(&url, &secret);
        let store = opened.map_err(|error| Stop::Because(Chain(&error).to_string()))?;
        Ok(Open { store, url })
    }

    async fn target_secret(&self, name: &str) -> Result<BTreeMap<String, String>, kube::Error> {
        if name.is_empty() {
            return Ok(BTreeMap::new());
        }
        let entries = self.secret_entries(name).await?;
        Ok(entries.into_iter().map(|(key, value)| (key, String::from_utf8_lossy(&value).into_owned())).collect())
    }

    /// What backups are encrypted with.
    pub(super) async fn keys(&self) -> Result<Keys, Stop> {
        let entries = self.secret_entries(ENCRYPTION_SECRET).await?;
        let unusable = |error| Stop::Because(format!("Secret {ENCRYPTION_SECRET}: {}", Chain(&error)));
        Keys::from_secret(&entries).map_err(unusable)
    }

    /// None if there is no such Secret.
    async fn secret_entries(&self, name: &str) -> Result<BTreeMap<String, Vec<u8>>, kube::Error> {
        let api: Api<Secret> = Api::namespaced(self.client.clone(), longhorn::NAMESPACE);
        let data = absent_is_none(api.get(name).await)?.and_then(|secret| secret.data).unwrap_or_default();
        Ok(data.into_iter().map(|(key, value)| (key, value.0)).collect())
    }

    /// Locks in a target say whose they are: this node's of this cluster, and of this process alone.
    async fn opener(&self) -> Result<&Opener, Stop> {
        let opened = self.moves.opener.get_or_try_init(async || {
            let namespaces: Api<Namespace> = Api::all(self.client.clone());
            let cluster = namespaces.get("kube-system").await?.metadata.uid.unwrap_or_default();
            let owner = Owner::new(format!("{cluster}/nodes/{}", self.node_name))?;
            Ok(Opener::new(owner))
        });
        opened.await
    }

    /// How disks are moved, as Longhorn's settings say. What they say wrongly counts as not said.
    pub(super) async fn transfer(
        &self,
        way: Way,
        gauge: &Gauge,
        cancel: &CancellationToken,
    ) -> Result<Transfer, kube::Error> {
        let name = if way == Way::There { AT_ONCE } else { RESTORED_AT_ONCE };
        let parallel = self.longhorn_setting(name).await?.and_then(|value| value.parse().ok());
        let limit = self.longhorn_setting(BANDWIDTH).await?.and_then(|value| Quantity::parse(&value).ok());
        let limit = limit.and_then(|limit| u64::try_from(limit.value()).ok()).and_then(NonZeroU64::new);
        let plain = Transfer::default();
        Ok(Transfer {
            parallel: parallel.filter(|count| *count > 0).unwrap_or(plain.parallel),
            bytes_per_second: limit,
            progress: Some(gauge.hand()),
            cancel: cancel.clone(),
        })
    }

    pub(super) async fn compression(&self) -> Result<Compression, kube::Error> {
        let method = self.longhorn_setting(COMPRESSION).await?.and_then(|value| value.parse::<Method>().ok());
        Ok(method.map(|method| method.compression).unwrap_or_default())
    }

    async fn longhorn_setting(&self, name: &str) -> Result<Option<String>, kube::Error> {
        let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("longhorn.io", "v1beta2", "Setting"));
        let api: Api<DynamicObject> = Api::namespaced_with(self.client.clone(), longhorn::NAMESPACE, &kind);
        let found = absent_is_none(api.get(name).await)?;
        Ok(found.and_then(|setting| Some(setting.data.get("value")?.as_str()?.to_owned())))
    }
}
