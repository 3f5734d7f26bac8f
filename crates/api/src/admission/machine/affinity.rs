//! Machines go where their networks are, and no two cards of one network have the same address.

use std::collections::BTreeSet;

use croft_meta::{ApiError, FieldPath};
use serde_json::{Value, json};

use super::super::denial::{Denial, refuse};
use super::super::{Admission, Lookup};
use super::{HARVESTER, HARVESTER_MUTATOR};
use crate::view::{default, flag, get, get_mut, list, remove, set, text};

const NETWORK_GROUP: &str = "network.harvesterhci.io";
const CLUSTER_NETWORK: &str = "network.harvesterhci.io/clusternetwork";
/// The cluster network that is on every node.
const MANAGEMENT: &str = "mgmt";
const INTERFACES: &str = "spec.template.spec.domain.devices.interfaces";
const CPU_MANAGER: &str = "cpumanager";
const REQUIRED: &str = "spec.template.spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution";

/// The definition that an interface's network names: `namespace/name`, or a name beside the machine.
fn definition(network: &str, namespace: &str, lookup: &dyn Lookup) -> Result<Value, ApiError> {
    let parts: Vec<&str> = network.split('/').collect();
    let (namespace, name) = match parts.as_slice() {
        [name] => (namespace, *name),
        [namespace, name] => (*namespace, *name),
        _ => return Err(refuse(HARVESTER_MUTATOR, 500, "InternalError", &format!("invalid network name {network}"))),
    };
    lookup.get("k8s.cni.cncf.io", "network-attachment-definitions", namespace, name).ok_or_else(|| {
        let message = format!("network-attachment-definitions.k8s.cni.cncf.io \"{name}\" not found");
        refuse(HARVESTER_MUTATOR, 404, "NotFound", &message)
    })
}

fn cluster_network(definition: &Value) -> Option<&str> {
    get(definition, "metadata.labels")?.get(CLUSTER_NETWORK)?.as_str()
}

/// Replaces the requirements that follow from networks and pinned processors; those of the user stay.
pub(super) fn follow_networks(admission: &mut Admission<'_>) -> Result<(), ApiError> {
    let wanted = requirements(admission)?;
    check_pinning(admission, &wanted)?;
    let object = &mut *admission.object;
    let mut terms: Vec<Value> = list(object, &format!("{REQUIRED}.nodeSelectorTerms")).to_vec();
    let had_terms = !terms.is_empty();
    for term in &mut terms {
        if let Some(expressions) = get_mut(term, "matchExpressions").and_then(Value::as_array_mut) {
            expressions.retain(|expression| !is_ours(text(expression, "key")));
        }
    }
    terms.retain(|term| !list(term, "matchExpressions").is_empty() || !list(term, "matchFields").is_empty());
    if terms.is_empty() && wanted.is_empty() {
        if had_terms {
            tidy(object);
        }
        return Ok(());
    }
    if terms.is_empty() {
        terms.push(json!({"matchExpressions": []}));
    }
    for term in &mut terms {
        default(term, "matchExpressions", json!([]));
        if let Some(expressions) = get_mut(term, "matchExpressions").and_then(Value::as_array_mut) {
            expressions.extend(wanted.iter().cloned());
        }
    }
    set(object, &format!("{REQUIRED}.nodeSelectorTerms"), terms);
    Ok(())
}

/// What is sent back as it was read is fine; whatever else is said of pinned processors is not the user's to say.
fn check_pinning(admission: &Admission<'_>, wanted: &[Value]) -> Result<(), ApiError> {
    let said = |object: &Value| -> Vec<Value> {
        let terms = list(object, &format!("{REQUIRED}.nodeSelectorTerms")).iter();
        let expressions = terms.flat_map(|term| list(term, "matchExpressions"));
        expressions.filter(|expression| text(expression, "key") == CPU_MANAGER).cloned().collect()
    };
    let known = admission.old.map(said).unwrap_or_default();
    if said(admission.object).iter().all(|one| wanted.contains(one) || known.contains(one)) {
        return Ok(());
    }
    let mut denial = Denial::by(HARVESTER);
    let message =
        format!("key {CPU_MANAGER:?} is automatically operated by Harvester controller and can't be changed manually");
    denial.invalid(&FieldPath::new(REQUIRED), message);
    denial.finish()
}

fn is_ours(key: &str) -> bool {
    key.starts_with(NETWORK_GROUP) || key == CPU_MANAGER
}

/// Leaves no empty shells behind: an empty selector would match no node.
fn tidy(object: &mut Value) {
    drop(remove(object, REQUIRED));
    for path in ["spec.template.spec.affinity.nodeAffinity", "spec.template.spec.affinity"] {
        if get(object, path).and_then(Value::as_object).is_some_and(serde_json::Map::is_empty) {
            drop(remove(object, path));
        }
    }
}

fn requirements(admission: &Admission<'_>) -> Result<Vec<Value>, ApiError> {
    let object = &*admission.object;
    let namespace = text(object, "metadata.namespace");
    let mut keys = BTreeSet::new();
    for network in list(object, "spec.template.spec.networks") {
        let name = text(network, "multus.networkName");
        if name.is_empty() {
            continue;
        }
        let definition = definition(name, namespace, admission.lookup)?;
        if let Some(cluster_network) = cluster_network(&definition).filter(|name| *name != MANAGEMENT) {
            keys.insert(format!("{NETWORK_GROUP}/{cluster_network}"));
        }
    }
    if flag(object, "spec.template.spec.domain.cpu.dedicatedCpuPlacement") {
        keys.insert(CPU_MANAGER.to_owned());
    }
    Ok(keys.into_iter().map(|key| json!({"key": key, "operator": "In", "values": ["true"]})).collect())
}

/// An address may be written in more than one way.
fn plain(address: &str) -> String {
    address.to_lowercase().replace('-', ":")
}

/// The cluster network and the address of each card that has one.
fn addresses(machine: &Value, lookup: &dyn Lookup) -> BTreeSet<(String, String)> {
    let namespace = text(machine, "metadata.namespace");
    let mut found = BTreeSet::new();
    for interface in list(machine, INTERFACES) {
        let address = plain(text(interface, "macAddress"));
        let name = text(interface, "name");
        let network = list(machine, "spec.template.spec.networks").iter().find(|network| text(network, "name") == name);
        let (false, Some(network)) = (address.is_empty(), network) else { continue };
        let definition = match text(network, "multus.networkName") {
            "" => None,
            network => definition(network, namespace, lookup).ok(),
        };
        let cluster_network = definition.as_ref().and_then(cluster_network).unwrap_or(MANAGEMENT);
        found.insert((cluster_network.to_owned(), address));
    }
    found
}

/// The addresses that the user gave to cards. Those that are given out here are new: they are not among them.
pub(super) fn chosen_addresses(admission: &Admission<'_>) -> BTreeSet<(String, String)> {
    let is_new = admission.old.is_none_or(|old| get(old, INTERFACES) != get(admission.object, INTERFACES));
    if is_new { addresses(admission.object, admission.lookup) } else { BTreeSet::new() }
}

/// Compares them with those of all other machines.
pub(super) fn check_addresses(chosen: &BTreeSet<(String, String)>, admission: &Admission<'_>) -> Result<(), ApiError> {
    if chosen.is_empty() {
        return Ok(());
    }
    let (namespace, name) = (text(admission.object, "metadata.namespace"), text(admission.object, "metadata.name"));
    let is_chosen = |address: &str| {
        let address = plain(address);
        chosen.iter().any(|(_, chosen)| *chosen == address)
    };
    for other in admission.lookup.with_field("kubevirt.io", "virtualmachines", "", "macAddress", &is_chosen) {
        if text(&other, "metadata.namespace") == namespace && text(&other, "metadata.name") == name {
            continue;
        }
        let theirs = addresses(&other, admission.lookup);
        if let Some((cluster_network, _)) = chosen.intersection(&theirs).next() {
            let mut denial = Denial::by(HARVESTER);
            let message = format!("duplicate mac address present for vm {name} for cluster network {cluster_network}");
            denial.invalid(&FieldPath::new(INTERFACES), message);
            return denial.finish();
        }
    }
    Ok(())
}
