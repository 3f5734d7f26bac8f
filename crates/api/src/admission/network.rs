//! NetworkAttachmentDefinitions: what they may say, and labels from what they say.

use croft_meta::{ApiError, FieldPath};
use serde_json::{Value, json};

use super::cluster_network::is_mtu;
use super::denial::{Denial, refuse};
use super::{Admission, Lookup};
use crate::harvester::settings;
use crate::view::{flag, get, has, int, list, map_mut, set, text};

pub(super) const VALIDATOR: &str = "network-validator.harvesterhci.io";
const GROUP: &str = "network.harvesterhci.io";
const CLUSTER_NETWORK: &str = "network.harvesterhci.io/clusternetwork";
pub(super) const UPLINK_MTU: &str = "network.harvesterhci.io/uplink-mtu";

pub(super) fn admit(admission: &mut Admission<'_>) -> Result<(), ApiError> {
    if has(admission.object, "metadata.deletionTimestamp") {
        return Ok(());
    }
    let config = read(text(admission.object, "spec.config"))?;
    let kind = Kind::of(&config)?;
    // Harvester names the bridge of a cluster network after it; another bridge is one that the host already has.
    let cluster_network = text(&config, "bridge").strip_suffix("-br").map(str::to_owned);
    let ready = cluster_network.as_deref().map(|name| is_ready(name, admission)).transpose()?;
    let config = match cluster_network.as_deref() {
        Some(name) => with_mtu(config, name, admission)?,
        None => config,
    };
    if let Some(old) = admission.old {
        check_change(&config, old, admission.lookup)?;
    }
    if let (Some(name), Kind::Vlan(vlan)) = (cluster_network.as_deref(), &kind) {
        check_reserved(name, *vlan, admission)?;
    }
    let Some(labels) = map_mut(admission.object, "metadata.labels") else { return Ok(()) };
    labels.entry(format!("{GROUP}/type")).or_insert_with(|| json!(kind.name()));
    if let (Some(name), Some(ready)) = (cluster_network, ready) {
        let given = labels.entry(CLUSTER_NETWORK).or_insert_with(|| json!(name)).clone();
        if given != name {
            let message = format!("label {CLUSTER_NETWORK} {given} does not match the bridge {name}-br");
            return invalid("metadata.labels", message);
        }
        labels.insert(format!("{GROUP}/ready"), json!(ready.to_string()));
    }
    if let Kind::Vlan(vlan) = kind {
        labels.insert(format!("{GROUP}/vlan-id"), json!(vlan.to_string()));
    }
    Ok(())
}

fn read(config: &str) -> Result<Value, ApiError> {
    if config.is_empty() {
        return invalid("spec.config", "config is empty".to_owned()).map(|()| Value::Null);
    }
    match serde_json::from_str(config) {
        Ok(config @ Value::Object(_)) => Ok(config),
        _ => invalid("spec.config", "the config is not a JSON object".to_owned()).map(|()| Value::Null),
    }
}

/// What the label `type` says.
enum Kind {
    Untagged,
    Vlan(i64),
    Trunk,
}

impl Kind {
    fn of(config: &Value) -> Result<Self, ApiError> {
        let refusal = |message: String| invalid("spec.config", message).map(|()| Self::Untagged);
        if text(config, "type") == "kube-ovn" {
            return refusal("kubeovn is not yet enabled".to_owned());
        }
        let bridge = text(config, "bridge");
        let is_link = !bridge.is_empty() && bridge.len() <= 15 && !bridge.contains(['/', ' ']);
        if text(config, "type") == "bridge" && !is_link {
            return refusal(format!("bridge \"{bridge}\" is not the name of a network interface"));
        }
        let mtu = config.get("mtu").and_then(Value::as_i64).unwrap_or_default();
        if !is_mtu(mtu) {
            return refusal(format!("the MTU {mtu} is out of range [0, 576..9000]"));
        }
        let vlan = config.get("vlan").and_then(Value::as_i64).unwrap_or_default();
        if !is_vlan(vlan) {
            return refusal(format!("VLAN ID must be in the range 0 to 4094, got {vlan}"));
        }
        let Some(trunk) = config.get("vlanTrunk").and_then(Value::as_array) else {
            return Ok(if vlan == 0 { Self::Untagged } else { Self::Vlan(vlan) });
        };
        for range in trunk {
            let id = |name: &str| range.get(name).and_then(Value::as_i64);
            let (low, high) = (id("minID").or(id("id")).unwrap_or(-1), id("maxID").or(id("id")).unwrap_or(-1));
            if !is_vlan(low) || !is_vlan(high) || low > high {
                return refusal(format!(
                    "VLAN trunk ranges must be in the range 0 to 4094, the smaller first, got {range}"
                ));
            }
        }
        Ok(Self::Trunk)
    }

    fn name(&self) -> &'static str {
        match self {
            Self::Untagged => "UntaggedNetwork",
            Self::Vlan(_) => "L2VlanNetwork",
            Self::Trunk => "L2VlanTrunkNetwork",
        }
    }
}

fn is_vlan(id: i64) -> bool {
    (0..=4094).contains(&id)
}

fn is_ready(cluster_network: &str, admission: &Admission<'_>) -> Result<bool, ApiError> {
    let Some(network) = admission.lookup.get(GROUP, "clusternetworks", "", cluster_network) else {
        let message = format!("nad refers to a none-existing cluster network {cluster_network}");
        return invalid("spec.config", message).map(|()| false);
    };
    let is_true = |condition: &Value| text(condition, "type") == "ready" && text(condition, "status") == "True";
    Ok(list(&network, "status.conditions").iter().any(is_true))
}

/// What a link has if nobody says otherwise.
const USUAL_MTU: i64 = 1500;

/// A network is as wide as the uplink of its cluster network: that is filled in where it is not said.
fn with_mtu(mut config: Value, cluster_network: &str, admission: &mut Admission<'_>) -> Result<Value, ApiError> {
    let mtu = |config: &Value| config.get("mtu").and_then(Value::as_i64).unwrap_or_default();
    let given = mtu(&config);
    let before: Value =
        admission.old.and_then(|old| serde_json::from_str(text(old, "spec.config")).ok()).unwrap_or_default();
    let wanted = uplink_mtu(cluster_network, admission.lookup);
    if given != 0 {
        let known = if wanted == 0 { USUAL_MTU } else { wanted };
        if given == known || given == mtu(&before) {
            return Ok(config);
        }
        let message = format!(
            "the MTU {given} of the nad is different from the MTU {known} of cluster network {cluster_network}"
        );
        return invalid("spec.config", message).map(|()| config);
    }
    let mut filled = config.clone();
    filled["mtu"] = json!(if mtu(&before) == 0 { wanted } else { mtu(&before) });
    if mtu(&filled) == 0 || mtu(&filled) == USUAL_MTU {
        return Ok(config);
    }
    // Whoever sends the configuration again without it changes nothing.
    config = if before == filled { before } else { filled };
    set(admission.object, "spec.config", config.to_string());
    Ok(config)
}

/// 0 if it is the usual one.
fn uplink_mtu(cluster_network: &str, lookup: &dyn Lookup) -> i64 {
    let network = lookup.get(GROUP, "clusternetworks", "", cluster_network);
    let annotated = network
        .as_ref()
        .and_then(|network| get(network, "metadata.annotations")?.get(UPLINK_MTU)?.as_str()?.parse::<i64>().ok());
    let configured = || {
        let configs = lookup.list(GROUP, "vlanconfigs", "");
        let own = configs.iter().find(|config| text(config, "spec.clusterNetwork") == cluster_network)?;
        int(own, "spec.uplink.linkAttributes.mtu")
    };
    annotated.or_else(configured).unwrap_or_default()
}

/// A VLAN that storage has for itself is no machine's.
fn check_reserved(cluster_network: &str, vlan: i64, admission: &Admission<'_>) -> Result<(), ApiError> {
    let storage: Value =
        serde_json::from_str(&settings::effective(admission.lookup, "storage-network")).unwrap_or_default();
    let is_taken = flag(&storage, "exclusiveVlan")
        && int(&storage, "vlan") == Some(vlan)
        && text(&storage, "clusterNetwork") == cluster_network;
    if is_taken && !admission.is_internal {
        return invalid("spec.config", format!("vlan {vlan} is exclusively reserved for storage network"));
    }
    Ok(())
}

/// Where a network is, is for ever; how, for as long as machines run on it.
fn check_change(config: &Value, old: &Value, lookup: &dyn Lookup) -> Result<(), ApiError> {
    let before: Value = serde_json::from_str(text(old, "spec.config")).unwrap_or_default();
    if before == *config {
        return Ok(());
    }
    let name = name_of(old);
    for field in ["type", "bridge"] {
        let (from, to) = (text(&before, field), text(config, field));
        if from != to && !from.is_empty() {
            let what = if field == "bridge" { "bridge name" } else { field };
            let message = format!("can't update nad {name} because nad {what} can't be changed from {from} to {to}");
            return Err(refuse(VALIDATOR, 422, "Invalid", &message));
        }
    }
    let running: Vec<String> = instances_on(old, lookup).iter().map(name_of).collect();
    if running.is_empty() {
        return Ok(());
    }
    let message = format!(
        "can't update nad {name} because it's still used by VM(s) {} which must be stopped at first",
        running.join(", ")
    );
    Err(refuse(VALIDATOR, 422, "Invalid", &message))
}

fn name_of(object: &Value) -> String {
    format!("{}/{}", text(object, "metadata.namespace"), text(object, "metadata.name"))
}

/// Whether a definition belongs to a cluster network.
pub(super) fn is_of(definition: &Value, cluster_network: &str) -> bool {
    let label = get(definition, "metadata.labels").and_then(|labels| labels.get(CLUSTER_NETWORK));
    label.is_some_and(|label| label == cluster_network)
}

/// The instances with a card on the network of a definition.
pub(super) fn instances_on(definition: &Value, lookup: &dyn Lookup) -> Vec<Value> {
    let mut instances = lookup.list("kubevirt.io", "virtualmachineinstances", "");
    instances.retain(|instance| uses(instance, list(instance, "spec.networks"), definition));
    instances
}

fn invalid(field: &str, message: String) -> Result<(), ApiError> {
    let mut denial = Denial::by(VALIDATOR);
    denial.invalid(&FieldPath::new(field), message);
    denial.finish()
}

/// Not while a machine is plugged into it.
pub(super) fn admit_delete(network: &Value, lookup: &dyn Lookup) -> Result<(), ApiError> {
    let refusal = |users: &[String], what: &str| {
        let (name, users) = (name_of(network), users.join(", "));
        let message = format!("can't delete nad {name} because it's still used by VM(s) {users} which must {what}");
        Err(refuse(VALIDATOR, 422, "Invalid", &message))
    };
    let running: Vec<String> = instances_on(network, lookup).iter().map(name_of).collect();
    if !running.is_empty() {
        return refusal(&running, "be stopped at first");
    }
    let machines = lookup.list("kubevirt.io", "virtualmachines", "");
    let is_user = |machine: &&Value| uses(machine, list(machine, "spec.template.spec.networks"), network);
    let users: Vec<String> = machines.iter().filter(is_user).map(name_of).collect();
    if users.is_empty() {
        return Ok(());
    }
    refusal(&users, "remove the related networks and interfaces")
}

/// Whether one of an object's networks is this one.
fn uses(object: &Value, networks: &[Value], definition: &Value) -> bool {
    let (namespace, name) = (text(definition, "metadata.namespace"), text(definition, "metadata.name"));
    networks.iter().any(|network| match text(network, "multus.networkName").split_once('/') {
        Some(parts) => parts == (namespace, name),
        None => text(object, "metadata.namespace") == namespace && text(network, "multus.networkName") == name,
    })
}

#[cfg(test)]
mod tests;
