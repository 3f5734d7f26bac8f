//! The node's disks as BlockDevice objects, and the pools that users make of them.
//!
//! Every disk and partition that could be somebody's storage has an object; `spec.provision` asks for a pool on it. Disks
//! come and go without anybody telling, so that they are looked at now and then besides.

mod describe;
mod unasked;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use croft_api::harvester::{BlockDevice, Condition};
use croft_block::{Backing, Device, Pool, PoolError, devices};
use croft_meta::Chain;
use croft_reconcile::failure::is_conflict;
use croft_reconcile::{Cache, Keys, Source};
use futures::StreamExt;
use kube::api::PostParams;
use kube::{Api, ResourceExt};
use tokio_util::sync::CancellationToken;

use super::pools::Added;
use super::{DEFAULT_POOL, Inner, Work, blocking};
use crate::MANAGER;
use unasked::Unasked;

/// Where Harvester keeps these objects.
const NAMESPACE: &str = "longhorn-system";
/// How often the kernel is asked.
const LOOK: Duration = Duration::from_secs(30);
const PROVISIONED: &str = "Provisioned";
const UNPROVISIONED: &str = "Unprovisioned";
const UNPROVISIONING: &str = "Unprovisioning";

impl Inner {
    /// Until `stop`. What fails is tried again at the next look.
    pub(super) async fn look_after_disks(self: Arc<Self>, keys: Keys<Work>, stop: CancellationToken) {
        let cache: Cache<BlockDevice> = Cache::default();
        let changes = cache.follow(self.client.clone(), Source::of::<BlockDevice>());
        futures::pin_mut!(changes);
        let mut timer = tokio::time::interval(LOOK);
        timer.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut volumes = self.changes.subscribe();
        let mut is_synced = false;
        loop {
            let is_leaving = self.pools.is_any_leaving();
            tokio::select! {
                () = stop.cancelled() => return,
                _ = timer.tick() => self.tell_health(),
                _ = changes.next() => {}
                // Whoever waits for a disk to be free need not wait for the next look.
                _ = volumes.changed(), if is_leaving => {}
                () = cache.synced(), if !is_synced => is_synced = true,
            }
            if !is_synced {
                continue;
            }
            if self.look_at_disks(&cache).await {
                // There is more room, or a volume is back.
                for work in self.unbound() {
                    keys.send(work, Duration::ZERO).await;
                }
                self.changed();
            }
            self.show_as_longhorn_node().await;
        }
    }

    /// True if a pool was added.
    async fn look_at_disks(&self, cache: &Cache<BlockDevice>) -> bool {
        let found = match blocking(devices).await {
            Ok(found) => found,
            Err(error) => {
                tracing::warn!(error = %Chain(&error), "the disks cannot be listed");
                return false;
            }
        };
        let objects = cache.list();
        let ours: Vec<Arc<BlockDevice>> =
            objects.into_iter().filter(|object| object.spec.node_name == self.node_name).collect();
        let unasked = Unasked::read(&self.client).await;
        let mut has_added = self.look_at_default(&ours).await;
        let mut seen: HashSet<String> = HashSet::new();
        for device in found.iter().filter(|device| describe::is_shown(device)) {
            let object = find_or_new(&ours, &self.node_name, device);
            seen.insert(object.name_any());
            has_added |= self.look_at_disk(object, device, &unasked).await;
        }
        let default = describe::default_name(&self.node_name);
        for object in ours.iter().filter(|object| !seen.contains(&object.name_any()) && object.name_any() != default) {
            if let Some(device) = named_device(object).await {
                has_added |= self.look_at_disk(BlockDevice::clone(object), &device, &unasked).await;
                continue;
            }
            let mut gone = BlockDevice::clone(object);
            "Inactive".clone_into(&mut gone.status.state);
            begin(&mut gone);
            self.write_disk(&gone, Some(object)).await;
        }
        seen.extend(ours.iter().map(|object| object.name_any()));
        self.look_at_forgotten(&seen).await;
        has_added
    }

    /// A pool whose object was deleted gets one again, which asks for its end.
    async fn look_at_forgotten(&self, known: &HashSet<String>) {
        for pool in self.pools.all().iter().filter(|pool| pool.id() != DEFAULT_POOL && !known.contains(pool.id())) {
            let Backing::Device(path) = pool.backing().clone() else { continue };
            let Ok(device) = blocking(move || croft_block::inspect(&path)).await else { continue };
            let mut object = describe::new_object(NAMESPACE, &self.node_name, &device);
            object.metadata.name = Some(pool.id().to_owned());
            self.look_at_disk(object, &device, &Unasked::default()).await;
        }
    }

    /// The pool that the node always has is shown like one that was added; there is nothing to decide about it.
    async fn look_at_default(&self, ours: &[Arc<BlockDevice>]) -> bool {
        let pool = self.pools.default();
        let name = describe::default_name(&self.node_name);
        let old = ours.iter().find(|object| object.name_any() == name);
        let usage = blocking(move || pool.usage().ok().map(|usage| (pool, usage))).await;
        if let Some((pool, usage)) = usage {
            let object = describe::default_object(NAMESPACE, &self.node_name, &pool, usage, old.map(|old| &**old));
            self.write_disk(&object, old.map(|old| &**old)).await;
        }
        false
    }

    /// Brings one disk to what its object asks for, and says how it is.
    async fn look_at_disk(&self, mut object: BlockDevice, device: &Device, unasked: &Unasked) -> bool {
        let before = object.clone();
        if unasked.includes(&object, device) {
            object.spec.provision = Some(true);
        }
        let name = object.name_any();
        let is_wanted = object.spec.provision == Some(true);
        let pool = self.pools.get(&name);
        begin(&mut object);
        describe::update(&mut object, device);
        let mut has_added = false;
        match (is_wanted, pool) {
            (true, Some(pool)) => {
                self.keep_pool(&object, pool, false);
                object.status.tags.clone_from(&object.spec.tags);
            }
            (true, None) => has_added = self.provision(&mut object, device).await,
            (false, Some(pool)) => self.unprovision(&mut object, pool).await,
            (false, None) => UNPROVISIONED.clone_into(&mut object.status.provision_phase),
        }
        let is_new = before.metadata.uid.is_none();
        self.write_disk(&object, (!is_new).then_some(&before)).await;
        has_added
    }

    fn keep_pool(&self, object: &BlockDevice, pool: Arc<Pool>, is_leaving: bool) {
        self.pools.add(object.name_any(), Added { pool, tags: object.spec.tags.clone(), is_leaving });
    }

    async fn provision(&self, object: &mut BlockDevice, device: &Device) -> bool {
        let name = object.name_any();
        if object.spec.provisioner.as_ref().is_some_and(|provisioner| provisioner.lvm.is_some()) {
            set_condition(
                object,
                "AddedToNode",
                false,
                "NotSupported",
                "volume groups are not supported; leave provisioner.lvm out",
            );
            return false;
        }
        let was_ours = object.status.provision_phase == PROVISIONED;
        // What was a pool before is never formatted again: its volumes would be gone.
        let overwrite = object.spec.file_system.force_formatted == Some(true) && !was_ours;
        let (path, mount, id) = (device.path.clone(), self.pools.mounts.join(&name), name.clone());
        match blocking(move || Pool::open_device(&id, &path, &mount, overwrite)).await {
            Ok(pool) => {
                tracing::info!(disk = %device.path.display(), pool = name, "a disk was added");
                PROVISIONED.clone_into(&mut object.status.provision_phase);
                object.status.tags.clone_from(&object.spec.tags);
                describe::mounted(object, &pool);
                self.keep_pool(object, Arc::new(pool), false);
                set_condition(object, "Mounted", true, "", "");
                set_condition(object, "Formatting", false, "", "");
                set_condition(object, "AddedToNode", true, "", "");
                true
            }
            Err(error) => {
                let reason = if matches!(error, PoolError::NotBlank { .. }) { "NotBlank" } else { "Failed" };
                let mut text = Chain(&error).to_string();
                if matches!(error, PoolError::NotBlank { .. }) {
                    text.push_str("; set spec.fileSystem.forceFormatted to true for that");
                }
                tracing::warn!(disk = %device.path.display(), error = text, "a disk could not be added");
                set_condition(object, "AddedToNode", false, reason, &text);
                false
            }
        }
    }

    async fn unprovision(&self, object: &mut BlockDevice, pool: Arc<Pool>) {
        self.keep_pool(object, Arc::clone(&pool), true);
        UNPROVISIONING.clone_into(&mut object.status.provision_phase);
        let closing = blocking(move || {
            let left = pool.volumes().map_err(|error| Chain(&error).to_string())?;
            let kept = pool.snapshots().map_err(|error| Chain(&error).to_string())?;
            if left.is_empty() && kept.is_empty() {
                return Pool::clone(&pool).close().map_err(|error| Chain(&error).to_string());
            }
            let names = left.iter().map(|volume| volume.name.as_str());
            let names: Vec<&str> = names.chain(kept.iter().map(|snapshot| snapshot.name.as_str())).take(5).collect();
            let (volumes, snapshots) = (left.len(), kept.len());
            Err(format!(
                "it holds {volumes} volumes and {snapshots} snapshots ({}); delete them first",
                names.join(", ")
            ))
        });
        match closing.await {
            Ok(()) => {
                self.pools.remove(&object.name_any());
                UNPROVISIONED.clone_into(&mut object.status.provision_phase);
                object.status.tags.clear();
                set_condition(object, "Mounted", false, "", "");
                set_condition(object, "AddedToNode", false, "", "");
            }
            Err(text) => set_condition(object, "AddedToNode", true, "InUse", &text),
        }
    }

    /// What is the same is not written; what fails is written at the next look.
    async fn write_disk(&self, object: &BlockDevice, old: Option<&BlockDevice>) {
        let api: Api<BlockDevice> = Api::namespaced(self.client.clone(), NAMESPACE);
        let params = PostParams { field_manager: Some(MANAGER.to_owned()), ..PostParams::default() };
        let written = match old {
            Some(old) if old.spec == object.spec && old.status == object.status => return,
            Some(_) => api.replace(&object.name_any(), &params, object).await,
            None => api.create(&params, object).await,
        };
        match written {
            Ok(_) => {}
            Err(error) if is_conflict(&error) => {}
            Err(error) => {
                tracing::warn!(disk = object.name_any(), error = %Chain(&error), "a disk's object cannot be written");
            }
        }
    }
}

/// One that an administrator has made says nothing yet.
fn begin(object: &mut BlockDevice) {
    if object.status.provision_phase.is_empty() {
        UNPROVISIONED.clone_into(&mut object.status.provision_phase);
    }
}

/// The device that an administrator has named in an object of their own, if it is one that software has made. All others
/// have objects, under names of ours.
async fn named_device(object: &BlockDevice) -> Option<Device> {
    let path = std::path::PathBuf::from(&object.spec.dev_path);
    let found = path.clone();
    let device = blocking(move || croft_block::inspect(&found)).await.ok()?;
    // By the name that they gave it: the kernel's may be another after a restart.
    device.is_made().then_some(Device { path, ..device })
}

/// The object of a disk, or the one that it should have.
fn find_or_new(objects: &[Arc<BlockDevice>], node: &str, device: &Device) -> BlockDevice {
    match describe::find(objects, device) {
        Some(object) => BlockDevice::clone(object),
        None => describe::new_object(NAMESPACE, node, device),
    }
}

/// A condition's time moves only when its status does.
fn set_condition(object: &mut BlockDevice, type_: &str, is_true: bool, reason: &str, message: &str) {
    let text = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    let status = if is_true { "True" } else { "False" };
    let conditions = &mut object.status.conditions;
    let old = conditions.iter().position(|condition| condition.type_ == type_).map(|at| conditions.remove(at));
    let same = old.filter(|old| old.status == status);
    let now = || Some(croft_meta::time::format_seconds(jiff::Timestamp::now()));
    let since = same.as_ref().map_or_else(now, |old| old.last_transition_time.clone());
    conditions.push(Condition {
        type_: type_.to_owned(),
        status: status.to_owned(),
        last_update_time: since.clone(),
        last_transition_time: since,
        reason: text(reason),
        message: text(message),
    });
    conditions.sort_by(|one, other| one.type_.cmp(&other.type_));
}
