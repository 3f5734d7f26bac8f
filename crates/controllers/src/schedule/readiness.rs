//! Whether an instance can be given a node yet: its disks and networks must be known.

use croft_api::kubevirt::{LABEL_CREATED_BY, LABEL_MACHINE_NAME, VirtualMachineInstance, Volume};
use croft_reconcile::Key;
use std::sync::Arc;

use super::demand::demand;
use super::guest::{Guest, VolumePlace};
use crate::claims::Disk;
use crate::inventory::{Inventory, setting};
use crate::virtual_machine::view::{claim_name, is_hotpluggable, name, namespace, uid};

const OVERHEAD_SETTING: &str = "additional-guest-memory-overhead-ratio";
const NETWORK_LABEL: &str = "network.harvesterhci.io/clusternetwork";
/// Every node is connected to it.
const MANAGEMENT: &str = "mgmt";

/// What an instance that has no node waits for.
#[derive(Debug)]
pub(super) enum Readiness {
    /// With the claims that are to be bound for the node that is found.
    Ready(Box<Guest>, Vec<String>),
    /// Something that is on its way.
    Waiting(String),
    /// Something that nobody may be about to bring.
    Missing { reason: &'static str, message: String },
}

pub(super) fn readiness(instance: &VirtualMachineInstance, inventory: &Inventory) -> Readiness {
    let mut guest = guest_of(instance, inventory);
    let mut unbound = Vec::new();
    for volume in &instance.spec.volumes {
        match place(instance, volume, inventory) {
            Place::Anywhere => {}
            Place::Known(place) => guest.volumes.push(place),
            Place::WhereNeeded(claim) => unbound.push(claim),
            Place::Waiting(why) => return Readiness::Waiting(why),
            Place::Missing(claim) => {
                let message = format!("PVC {}/{claim} not found", namespace(&instance.metadata));
                return Readiness::Missing { reason: "FailedPvcNotFound", message };
            }
        }
    }
    for network in &instance.spec.networks {
        let Some(multus) = &network.multus else { continue };
        let (space, name) = multus
            .network_name
            .split_once('/')
            .unwrap_or_else(|| (namespace(&instance.metadata), multus.network_name.as_str()));
        let Some(definition) = inventory.networks.get(&Key::new(space, name)) else {
            let message = format!("network attachment definition {space}/{name} not found");
            return Readiness::Missing { reason: "FailedNetworkNotFound", message };
        };
        let labels = definition.metadata.labels.as_ref();
        let cluster_network = labels.and_then(|labels| labels.get(NETWORK_LABEL));
        guest.networks.extend(cluster_network.filter(|name| *name != MANAGEMENT).cloned());
    }
    Readiness::Ready(Box::new(guest), unbound)
}

enum Place {
    Anywhere,
    Known(VolumePlace),
    WhereNeeded(String),
    Waiting(String),
    Missing(String),
}

fn place(instance: &VirtualMachineInstance, volume: &Volume, inventory: &Inventory) -> Place {
    let Some(disk) = inventory.claims.disk(namespace(&instance.metadata), volume) else { return Place::Anywhere };
    let claim = claim_name(volume).unwrap_or_default().to_owned();
    let place = match disk {
        Disk::Ready(name) => match inventory.volumes.get(&Key::new("", &name)) {
            None => Place::Waiting(format!("volume {name} of claim {claim} is not there yet")),
            Some(found) => {
                let affinity = found.spec.as_ref().and_then(|spec| spec.node_affinity.as_ref());
                let required = affinity.and_then(|affinity| affinity.required.as_ref());
                match required {
                    Some(required) => Place::Known(VolumePlace { claim, terms: required.node_selector_terms.clone() }),
                    None => Place::Anywhere,
                }
            }
        },
        Disk::Unbound if waits_for_node(instance, &claim, inventory) => Place::WhereNeeded(claim),
        Disk::Unbound => Place::Waiting(format!("claim {claim} is not bound yet")),
        Disk::Filling => Place::Waiting(format!("the disk of claim {claim} is being filled")),
        Disk::Failed(why) => Place::Waiting(why),
        Disk::Missing => Place::Missing(claim),
    };
    match place {
        // What may come later does not hold up the guest.
        Place::Waiting(_) | Place::Missing(_) if is_hotpluggable(volume) => Place::Anywhere,
        place => place,
    }
}

/// Whether the claim's class only makes a volume once a node is known.
fn waits_for_node(instance: &VirtualMachineInstance, claim: &str, inventory: &Inventory) -> bool {
    let claim = inventory.claims.claims.get(&Key::new(namespace(&instance.metadata), claim));
    let class = claim.and_then(|claim| claim.spec.as_ref().and_then(|spec| spec.storage_class_name.clone()));
    let class = class.and_then(|name| inventory.classes.get(&Key::new("", &name)));
    class.is_some_and(|class| class.volume_binding_mode.as_deref() == Some("WaitForFirstConsumer"))
}

/// The guest as far as the instance itself tells; where its volumes are is left out.
pub(super) fn guest_of(instance: &VirtualMachineInstance, inventory: &Inventory) -> Guest {
    let ratio = setting(inventory, OVERHEAD_SETTING).and_then(|text| text.parse().ok()).unwrap_or(1.0);
    let meta = &instance.metadata;
    let mut labels = meta.labels.clone().unwrap_or_default();
    let own = [("kubevirt.io", "virt-launcher"), (LABEL_CREATED_BY, uid(meta)), (LABEL_MACHINE_NAME, name(meta))];
    labels.extend(own.map(|(key, value)| (key.to_owned(), value.to_owned())));
    Guest {
        uid: uid(meta).to_owned(),
        namespace: namespace(meta).to_owned(),
        labels,
        demand: demand(instance, ratio),
        node_selector: instance.spec.node_selector.clone(),
        affinity: instance.spec.affinity.clone().map(Arc::new),
        tolerations: instance.spec.tolerations.clone(),
        spread: instance.spec.topology_spread_constraints.clone(),
        networks: Vec::new(),
        volumes: Vec::new(),
    }
}
