//! The object of one machine, and the only hand in this process that writes it.

use std::sync::Arc;
use std::time::Duration;

use croft_api::kubevirt::{INSTANCE_FINALIZER, VirtualMachineInstance, VirtualMachineInstanceStatus};
use croft_meta::Chain;
use croft_reconcile::Backoff;
use croft_reconcile::failure::{is_conflict, is_not_found};
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::{Map, Value, json};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use super::status::difference;
use crate::MANAGER;

/// A server that does not answer is asked again.
const PATIENCE: Duration = Duration::from_secs(10);

pub(super) struct Object {
    api: Api<VirtualMachineInstance>,
    name: String,
    /// The newest that is known, be it from the watch or from our own writing.
    current: watch::Sender<Arc<VirtualMachineInstance>>,
    seen: watch::Receiver<Option<Arc<VirtualMachineInstance>>>,
    is_gone: bool,
}

impl Object {
    pub(super) fn new(
        client: &Client,
        vmi: Arc<VirtualMachineInstance>,
        seen: watch::Receiver<Option<Arc<VirtualMachineInstance>>>,
    ) -> Object {
        let namespace = vmi.metadata.namespace.as_deref().unwrap_or_default();
        let api = Api::namespaced(client.clone(), namespace);
        let name = vmi.metadata.name.clone().unwrap_or_default();
        Object { api, name, current: watch::Sender::new(vmi), seen, is_gone: false }
    }

    pub(super) fn get(&self) -> Arc<VirtualMachineInstance> {
        Arc::clone(&self.current.borrow())
    }

    pub(super) fn subscribe(&self) -> watch::Receiver<Arc<VirtualMachineInstance>> {
        self.current.subscribe()
    }

    pub(super) fn is_gone(&self) -> bool {
        self.is_gone
    }

    /// Whether the machine is to end: its object is being deleted, or is no more.
    pub(super) fn is_ending(&self) -> bool {
        self.is_gone || self.current.borrow().metadata.deletion_timestamp.is_some()
    }

    /// Waits for news of the object. Cancel-safe. Once it is gone, or we are being stopped, nothing comes any more.
    pub(super) async fn changed(&mut self) {
        if self.is_gone || self.seen.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
        let seen = self.seen.borrow_and_update().clone();
        match seen {
            Some(seen) => self.learn(seen),
            None => self.is_gone = true,
        }
    }

    /// The watch may be behind what our own writing has answered.
    fn learn(&self, newer: Arc<VirtualMachineInstance>) {
        let version = |vmi: &VirtualMachineInstance| -> u64 {
            vmi.metadata.resource_version.as_deref().and_then(|text| text.parse().ok()).unwrap_or_default()
        };
        self.current.send_if_modified(|current| {
            let is_newer = version(&newer) > version(current);
            if is_newer {
                *current = newer;
            }
            is_newer
        });
    }

    /// Writes what differs from the object as it is known. True if the object says so now, or is gone.
    pub(super) async fn write(&mut self, status: &VirtualMachineInstanceStatus) -> bool {
        let known = self.get();
        let json = |status: Option<&VirtualMachineInstanceStatus>| serde_json::to_value(status).unwrap_or_default();
        let old = match json(known.status.as_ref()) {
            Value::Null => Value::Object(Map::new()),
            old => old,
        };
        let Some(changes) = difference(&old, &json(Some(status))) else { return true };
        self.patch(json!({ "status": changes })).await
    }

    /// Writes the last status and lets the object go, in one.
    pub(super) async fn release(&mut self, status: Option<&VirtualMachineInstanceStatus>) {
        let mut backoff = Backoff::default();
        while !self.is_gone {
            let known = self.get();
            let finalizers: Vec<_> = known.metadata.finalizers.clone().unwrap_or_default();
            if !finalizers.iter().any(|name| name == INSTANCE_FINALIZER) {
                return;
            }
            let left: Vec<_> = finalizers.into_iter().filter(|name| name != INSTANCE_FINALIZER).collect();
            // With the version, so that nobody's finalizer is undone by ours.
            let mut patch =
                json!({ "metadata": { "finalizers": left, "resourceVersion": known.metadata.resource_version } });
            if let Some(status) = status {
                let json = |status| serde_json::to_value(status).unwrap_or_default();
                let old = known.status.as_ref().map_or_else(|| json!({}), json);
                if let Some(changes) = difference(&old, &json(status)) {
                    patch["status"] = changes;
                }
            }
            if self.patch(patch).await {
                return;
            }
            sleep(backoff.next_delay()).await;
            self.refresh().await;
        }
    }

    async fn patch(&mut self, patch: Value) -> bool {
        let parameters = PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
        let patch = Patch::Merge(patch);
        let sent = self.api.patch(&self.name, &parameters, &patch);
        match timeout(PATIENCE, sent).await {
            Ok(Ok(written)) if self.is_ours(&written) => {
                self.learn(Arc::new(written));
                true
            }
            Ok(Ok(_)) => {
                self.is_gone = true;
                true
            }
            Ok(Err(error)) if is_not_found(&error) => {
                self.is_gone = true;
                true
            }
            Ok(Err(error)) if is_conflict(&error) => false,
            Ok(Err(error)) => {
                tracing::warn!(vmi = self.name, error = %Chain(&error), "the status could not be written");
                false
            }
            Err(_) => {
                tracing::warn!(vmi = self.name, "the API server has not answered");
                false
            }
        }
    }

    /// Asks for the object itself, when the watch may be behind.
    async fn refresh(&mut self) {
        match timeout(PATIENCE, self.api.get_opt(&self.name)).await {
            Ok(Ok(Some(found))) if self.is_ours(&found) => self.learn(Arc::new(found)),
            Ok(Ok(_)) => self.is_gone = true,
            _ => {}
        }
    }

    /// Another object may have the name by now.
    fn is_ours(&self, other: &VirtualMachineInstance) -> bool {
        self.current.borrow().metadata.uid == other.metadata.uid
    }
}
