//! What KubeVirt's and Harvester's webhooks do to an object before it is stored: fill in, change, refuse.
//!
//! The API server calls [`crate::Behaviour::admit`] after defaulting and before schema validation, for every write of
//! an object and of its `status`; and [`crate::Behaviour::admit_delete`] before a deletion. Other objects are seen
//! through [`Lookup`] alone. Refusals have the texts, codes and causes of the webhooks they stand for.

mod access;
mod addon;
mod backup;
mod cluster_network;
mod compute;
mod data_volume;
mod denial;
mod device;
mod host_network;
mod image;
mod instance;
mod key_pair;
mod load_balancer;
mod longhorn_snapshot;
mod machine;
mod migration;
mod network;
mod quantities;
mod quota;
mod recurring_job;
mod release;
mod remote_volume;
mod setting;
mod sizes;
mod spec;
mod storage;
mod template;
#[cfg(test)]
mod testing;
mod typed;
mod webhooks;

use croft_meta::ApiError;
use serde_json::Value;

pub use self::webhooks::{Refuser, refused_by, refusers};
use crate::resource::Behaviour;

/// Objects as they are stored now.
pub trait Lookup {
    /// `namespace` is empty for what is cluster-wide; the core group is the empty one.
    fn get(&self, group: &str, plural: &str, namespace: &str, name: &str) -> Option<Value>;
    /// With an empty namespace: all namespaces.
    fn list(&self, group: &str, plural: &str, namespace: &str) -> Vec<Value>;

    /// Pods that take the same room as machines do. None where it is pods that machines run in: they would count twice.
    fn pods_beside_machines(&self, namespace: &str) -> Vec<Value> {
        let _ = namespace;
        Vec::new()
    }

    /// Those whose JSON has this text somewhere, and maybe others: to look through many for a few.
    fn mentioning(&self, group: &str, plural: &str, namespace: &str, text: &str) -> Vec<Value> {
        let _ = text;
        self.list(group, plural, namespace)
    }

    /// Those with a field of this name, wherever it is, whose text is wanted, and maybe others.
    fn with_field(
        &self,
        group: &str,
        plural: &str,
        namespace: &str,
        field: &str,
        is_wanted: &dyn Fn(&str) -> bool,
    ) -> Vec<Value> {
        let _ = (field, is_wanted);
        self.list(group, plural, namespace)
    }

    /// What roles say of whoever makes the request; a subresource follows the plural after a slash.
    fn caller_may(&self, verb: &str, group: &str, plural: &str, namespace: &str, name: &str) -> bool;
}

/// One write on its way in.
pub struct Admission<'a> {
    /// What will be stored; rules may change it.
    pub object: &'a mut Value,
    /// What is stored; `None` for a creation.
    pub old: Option<&'a Value>,
    /// Empty, or `status`.
    pub subresource: &'a str,
    /// The caller is a part of Croft.
    pub is_internal: bool,
    pub user: &'a str,
    pub lookup: &'a dyn Lookup,
    pub now: jiff::Timestamp,
    pub random: &'a mut dyn FnMut(&mut [u8]),
}

impl Admission<'_> {
    /// Croft's own parts do what was admitted before.
    fn caller_may(&self, verb: &str, group: &str, plural: &str, namespace: &str, name: &str) -> bool {
        self.is_internal || self.lookup.caller_may(verb, group, plural, namespace, name)
    }
}

impl std::fmt::Debug for Admission<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Admission")
            .field("object", &self.object)
            .field("is_update", &self.old.is_some())
            .field("subresource", &self.subresource)
            .field("user", &self.user)
            .finish_non_exhaustive()
    }
}

pub type Admit = fn(&mut Admission<'_>) -> Result<(), ApiError>;
pub type AdmitDelete = fn(&Value, &dyn Lookup) -> Result<(), ApiError>;

/// The rules of a kind, built in or shipped; `None` where there are none.
pub fn of(group: &str, plural: &str) -> (Option<Admit>, Option<AdmitDelete>) {
    match (group, plural) {
        ("kubevirt.io", "virtualmachines") => (Some(machine::admit), Some(machine::admit_delete)),
        ("kubevirt.io", "virtualmachineinstances") => (Some(instance::admit), None),
        ("kubevirt.io", "virtualmachineinstancemigrations") => (Some(migration::admit), None),
        ("instancetype.kubevirt.io", "virtualmachineinstancetypes" | "virtualmachineclusterinstancetypes") => {
            (Some(sizes::admit_instancetype), None)
        }
        ("instancetype.kubevirt.io", "virtualmachinepreferences" | "virtualmachineclusterpreferences") => {
            (Some(sizes::admit_preference), None)
        }
        ("cdi.kubevirt.io", "datavolumes") => (Some(data_volume::admit), Some(data_volume::admit_delete)),
        ("harvesterhci.io", "virtualmachineimages") => (Some(image::admit), Some(image::admit_delete)),
        ("harvesterhci.io", "settings") => (Some(setting::admit), Some(setting::admit_delete)),
        ("harvesterhci.io", "keypairs") => (Some(key_pair::admit), None),
        ("harvesterhci.io", "virtualmachinetemplates") => (Some(template::admit), None),
        ("harvesterhci.io", "virtualmachinetemplateversions") => {
            (Some(template::admit_version), Some(template::admit_version_delete))
        }
        ("harvesterhci.io", "addons") => (Some(addon::admit), Some(addon::admit_delete)),
        ("harvesterhci.io", "resourcequotas") => (Some(quota::admit), None),
        ("harvesterhci.io", "virtualmachinebackups") => (Some(backup::admit), Some(backup::admit_delete)),
        ("harvesterhci.io", "virtualmachinerestores") => {
            (Some(backup::admit_restore), Some(backup::admit_restore_delete))
        }
        ("harvesterhci.io", "volumeremotebackups") => (Some(remote_volume::admit_backup), None),
        ("harvesterhci.io", "volumeremoterestores") => (Some(remote_volume::admit_restore), None),
        ("harvesterhci.io", "schedulevmbackups") => (Some(backup::admit_schedule), None),
        ("snapshot.storage.k8s.io", "volumesnapshots") => (Some(quota::admit_snapshot), None),
        ("longhorn.io", "snapshots") => (Some(longhorn_snapshot::admit), Some(longhorn_snapshot::admit_delete)),
        ("longhorn.io", "recurringjobs") => (Some(recurring_job::admit), None),
        ("harvesterhci.io", "versions") => (Some(release::admit_version), None),
        ("harvesterhci.io", "upgrades") => (Some(release::admit_upgrade), None),
        ("harvesterhci.io", "upgradelogs") => (Some(release::admit_upgrade_log), None),
        ("harvesterhci.io", "supportbundles") => (Some(release::admit_bundle), None),
        ("network.harvesterhci.io", "clusternetworks") => {
            (Some(cluster_network::admit), Some(cluster_network::admit_delete))
        }
        ("network.harvesterhci.io", "vlanconfigs") => {
            (Some(cluster_network::admit_config), Some(cluster_network::admit_config_delete))
        }
        ("network.harvesterhci.io", "hostnetworkconfigs") => {
            (Some(host_network::admit), Some(host_network::admit_delete))
        }
        ("devices.harvesterhci.io", "pcideviceclaims") => {
            (Some(device::admit_pci_claim), Some(device::admit_pci_claim_delete))
        }
        ("devices.harvesterhci.io", "usbdeviceclaims") => {
            (Some(device::admit_usb_claim), Some(device::admit_usb_claim_delete))
        }
        ("devices.harvesterhci.io", "vgpudevices") => (Some(device::admit_virtual_gpu), None),
        ("devices.harvesterhci.io", "sriovgpudevices") => (Some(device::admit_gpu), Some(device::admit_gpu_delete)),
        ("devices.harvesterhci.io", "sriovnetworkdevices") => (Some(device::admit_network_device), None),
        ("harvesterhci.io", "blockdevices") => (Some(storage::admit_disk), None),
        ("loadbalancer.harvesterhci.io", "loadbalancers") => (Some(load_balancer::admit), None),
        ("loadbalancer.harvesterhci.io", "ippools") => {
            (Some(load_balancer::admit_pool), Some(load_balancer::admit_pool_delete))
        }
        ("k8s.cni.cncf.io", "network-attachment-definitions") => (Some(network::admit), Some(network::admit_delete)),
        ("", "namespaces") => (Some(compute::admit_namespace), Some(release::admit_namespace_delete)),
        ("", "persistentvolumeclaims") => (Some(storage::admit_claim), Some(storage::admit_claim_delete)),
        ("storage.k8s.io", "storageclasses") => (Some(storage::admit_class), Some(storage::admit_class_delete)),
        _ => (None, None),
    }
}

/// Of a setting, for what is found out by trying it.
pub(crate) fn refuse_setting(why: &str) -> ApiError {
    denial::refuse(machine::HARVESTER, 422, "Invalid", why)
}

/// A random UUID (version 4).
fn uuid(random: &mut dyn FnMut(&mut [u8])) -> String {
    let mut bytes = [0; 16];
    random(&mut bytes);
    bytes[6] = (bytes[6] & 0x0f) | 0x40;
    bytes[8] = (bytes[8] & 0x3f) | 0x80;
    let hex = bytes.map(|byte| format!("{byte:02x}")).concat();
    [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-")
}

/// What a kind that Croft ships does beyond its schema; `None` for kinds that users define.
pub fn shipped_behaviour(group: &str, plural: &str) -> Option<Behaviour> {
    let has_status = crate::shipped::has_status(group, plural)?;
    Some(crate::custom::behaviour(group, plural, has_status))
}
