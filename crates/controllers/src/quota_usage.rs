//! How much of each ResourceQuota the machines of its namespace use, told in its status.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use croft_api::compute_quota;
use croft_api::kubevirt::VirtualMachineInstance;
use croft_reconcile::{Cache, Change, Error, Key, Keys, Loop, Received, Source, Tasks, failure};
use futures::StreamExt;
use k8s_openapi::api::core::v1::{ResourceQuota, ResourceQuotaStatus};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::api::PostParams;
use kube::{Api, Client};
use tokio_util::sync::CancellationToken;

use crate::MANAGER;
use crate::inventory::Inventory;
use crate::virtual_machine::view::{is_final, namespace};

pub(crate) struct QuotaUsage {
    client: Client,
    inventory: Inventory,
    quotas: Cache<ResourceQuota>,
    keys: Keys<Key>,
}

impl QuotaUsage {
    pub(crate) fn new(client: Client, inventory: Inventory) -> (Arc<Self>, Received<Key>) {
        let (keys, received) = Keys::channel();
        (Arc::new(Self { client, inventory, quotas: Cache::default(), keys }), received)
    }

    pub(crate) fn follow(self: &Arc<Self>, tasks: &mut Tasks) {
        let usage = Arc::clone(self);
        tasks.spawn(async move {
            let source = Source::of::<ResourceQuota>();
            let mut changes = std::pin::pin!(usage.quotas.follow(usage.client.clone(), source));
            while let Some(change) = changes.next().await {
                usage.keys.send(change.key, Duration::ZERO).await;
            }
        });
    }

    pub(crate) async fn run(self: Arc<Self>, received: Received<Key>, stop: CancellationToken) {
        let reconcile = |key: Key| {
            let usage = Arc::clone(&self);
            async move { usage.tell(&key).await }
        };
        let synced = async { tokio::join!(self.quotas.synced(), self.inventory.instances.synced()) };
        let work = Loop { name: "resource quota", workers: 1, stop };
        work.run(received, async { _ = synced.await }, reconcile).await;
    }

    /// Most changes of an instance change nothing about what it uses.
    pub(crate) async fn instance_changed(&self, change: &Change<VirtualMachineInstance>) {
        let counts = |instance: &Option<Arc<VirtualMachineInstance>>| {
            let instance = instance.as_ref().filter(|instance| !is_final(instance))?;
            Some(instance.spec.domain.resources.clone())
        };
        if counts(&change.old) == counts(&change.new) {
            return;
        }
        for quota in self.quotas.list() {
            if namespace(&quota.metadata) == change.key.namespace {
                self.keys.send(Key::of(&*quota), Duration::ZERO).await;
            }
        }
    }

    async fn tell(&self, key: &Key) -> Result<(), Error> {
        let Some(quota) = self.quotas.get(key) else { return Ok(()) };
        let status = self.status(&quota);
        if quota.status.as_ref() == Some(&status) {
            return Ok(());
        }
        let api: Api<ResourceQuota> = Api::namespaced(self.client.clone(), &key.namespace);
        let params = PostParams { field_manager: Some(MANAGER.to_owned()), ..PostParams::default() };
        let new = ResourceQuota { status: Some(status), ..(*quota).clone() };
        let written = api.replace_status(&key.name, &params, &new).await;
        if let Some(written) = failure::absent_is_none(written)? {
            self.quotas.wrote(written);
        }
        Ok(())
    }

    fn status(&self, quota: &ResourceQuota) -> ResourceQuotaStatus {
        let hard = quota.spec.as_ref().and_then(|spec| spec.hard.clone()).unwrap_or_default();
        let hard: BTreeMap<String, Quantity> =
            hard.into_iter().filter(|(key, _)| compute_quota::is_counted(key)).collect();
        let there = self.inventory.instances.list();
        let in_namespace: Vec<_> = there
            .iter()
            .filter(|one| namespace(&one.metadata) == namespace(&quota.metadata) && !is_final(one))
            .collect();
        let used = hard.keys().map(|key| {
            let amounts = in_namespace.iter().filter_map(|one| demand_of(one, key));
            (key.clone(), Quantity(compute_quota::written(key, amounts.fold(0, i64::saturating_add))))
        });
        ResourceQuotaStatus { used: Some(used.collect()), hard: Some(hard) }
    }
}

fn demand_of(instance: &VirtualMachineInstance, key: &str) -> Option<i64> {
    let resources = &instance.spec.domain.resources;
    compute_quota::demand(key, |list, name| {
        let amounts = if list == "limits" { &resources.limits } else { &resources.requests };
        amounts.get(name).map(|amount| amount.0.clone())
    })
}
