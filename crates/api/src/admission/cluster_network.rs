//! ClusterNetworks and the VlanConfigs that bring them to nodes.

use croft_meta::{ApiError, names};
use serde_json::Value;

use super::denial::refuse;
use super::machine::add_finalizer;
use super::network::{UPLINK_MTU, instances_on, is_of};
use super::{Admission, Lookup};
use crate::harvester::VLAN_CONFIG_FINALIZER;
use crate::view::{get, has, int, list, map, text};

pub(super) const VALIDATOR: &str = "validator.network.harvesterhci.io";
const GROUP: &str = "network.harvesterhci.io";
/// The network that nodes reach each other by.
const MANAGEMENT: &str = "mgmt";
/// Links may have 15 letters, of which `-br` takes three.
const LONGEST_NAME: usize = 12;

fn refusal(verb: &str, kind: &str, name: &str, why: &str) -> ApiError {
    refuse(VALIDATOR, 422, "Invalid", &format!("can't {verb} {kind} {name} because {why}"))
}

pub(super) fn admit(admission: &mut Admission<'_>) -> Result<(), ApiError> {
    if admission.is_internal {
        return Ok(());
    }
    let Some(old) = admission.old else { return create(admission) };
    let network = &*admission.object;
    let name = text(network, "metadata.name");
    let mtu = |network: &Value| get(network, "metadata.annotations")?.get(UPLINK_MTU)?.as_str().map(str::to_owned);
    if mtu(network) == mtu(old) {
        return Ok(());
    }
    check_uplink_mtu(name, mtu(network).as_deref())?;
    let running = running_on(name, None, admission.lookup);
    if running.is_empty() {
        return Ok(());
    }
    let why = format!("the MTU is changed and the following VMs must be stopped at first: {}", running.join(", "));
    Err(refusal("update", "clusterNetwork", name, &why))
}

fn create(admission: &Admission<'_>) -> Result<(), ApiError> {
    let name = text(admission.object, "metadata.name").to_owned();
    if name.len() > LONGEST_NAME {
        let why = format!("the length of its name is more than {LONGEST_NAME}");
        return Err(refusal("create", "clusterNetwork", &name, &why));
    }
    let wrong = names::is_dns1123_label(&name);
    if !wrong.is_empty() {
        return Err(refusal("create", "clusterNetwork", &name, &wrong.join(", ")));
    }
    if get(admission.object, "metadata.annotations").is_some_and(|map| map.get(UPLINK_MTU).is_some()) {
        let why = format!("annotation {UPLINK_MTU} can't be added");
        return Err(refusal("create", "clusterNetwork", &name, &why));
    }
    Ok(())
}

/// That of the management network is the users' to say, all others follow from their VlanConfigs.
fn check_uplink_mtu(name: &str, mtu: Option<&str>) -> Result<(), ApiError> {
    let Some(mtu) = mtu else { return Ok(()) };
    if name != MANAGEMENT {
        let why = format!("annotation {UPLINK_MTU} can't be added");
        return Err(refusal("update", "clusterNetwork", name, &why));
    }
    match mtu.parse() {
        Ok(mtu) if is_mtu(mtu) => Ok(()),
        _ => Err(refusal("update", "clusterNetwork", name, &format!("the MTU {mtu} is out of range [0, 576..9000]"))),
    }
}

/// 0 leaves the choice to the link.
pub(super) fn is_mtu(mtu: i64) -> bool {
    mtu == 0 || (576..=9000).contains(&mtu)
}

/// The machines that run with a card on the cluster network, on these nodes or any.
fn running_on(name: &str, nodes: Option<&[String]>, lookup: &dyn Lookup) -> Vec<String> {
    let definitions = lookup.list("k8s.cni.cncf.io", "network-attachment-definitions", "");
    let is_there =
        |instance: &Value| nodes.is_none_or(|nodes| nodes.iter().any(|node| node == text(instance, "status.nodeName")));
    let mut found: Vec<String> = definitions
        .iter()
        .filter(|definition| is_of(definition, name))
        .flat_map(|definition| instances_on(definition, lookup))
        .filter(is_there)
        .map(|instance| format!("{}/{}", text(&instance, "metadata.namespace"), text(&instance, "metadata.name")))
        .collect();
    found.sort();
    found.dedup();
    found
}

pub(super) fn admit_delete(network: &Value, lookup: &dyn Lookup) -> Result<(), ApiError> {
    let name = text(network, "metadata.name");
    if name == MANAGEMENT {
        return Err(refusal("delete", "clusterNetwork", name, "it is not allowed"));
    }
    let configs: Vec<String> = lookup
        .list(GROUP, "vlanconfigs", "")
        .iter()
        .filter(|config| text(config, "spec.clusterNetwork") == name)
        .map(|config| text(config, "metadata.name").to_owned())
        .collect();
    if !configs.is_empty() {
        let why = format!("vlanconfig(s) [{}] under this clusternetwork are still existing", configs.join(" "));
        return Err(refusal("delete", "clusterNetwork", name, &why));
    }
    let nads: Vec<String> = lookup
        .list("k8s.cni.cncf.io", "network-attachment-definitions", "")
        .iter()
        .filter(|nad| is_of(nad, name))
        .map(|nad| format!("{}/{}", text(nad, "metadata.namespace"), text(nad, "metadata.name")))
        .collect();
    if nads.is_empty() {
        return Ok(());
    }
    let why = format!("nads(s) {} are still existing", nads.join(", "));
    Err(refusal("delete", "clusterNetwork", name, &why))
}

pub(super) fn admit_config(admission: &mut Admission<'_>) -> Result<(), ApiError> {
    let is_same = admission.old.is_some_and(|old| get(old, "spec") == get(admission.object, "spec"));
    if is_same || admission.is_internal || has(admission.object, "metadata.deletionTimestamp") {
        return Ok(());
    }
    let config = &*admission.object;
    let (name, network) = (text(config, "metadata.name"), text(config, "spec.clusterNetwork"));
    let verb = if admission.old.is_some() { "update" } else { "create" };
    if network == MANAGEMENT {
        let message = format!("users can't {verb} vlanConfig for mgmt cluster network");
        return Err(refuse(VALIDATOR, 422, "Invalid", &message));
    }
    if admission.lookup.get(GROUP, "clusternetworks", "", network).is_none() {
        let why = format!("the cluster network {network:?} does not exist");
        return Err(refusal(verb, "vlanConfig", name, &why));
    }
    let mtu = int(config, MTU).unwrap_or_default();
    if !is_mtu(mtu) {
        let why = format!("the MTU {mtu} is out of range [0, 576..9000]");
        return Err(refusal(verb, "vlanConfig", name, &why));
    }
    check_others(verb, config, admission.lookup)?;
    if let Some(old) = admission.old {
        check_running(verb, old, Some(config), admission.lookup)?;
    } else {
        add_finalizer(admission.object, VLAN_CONFIG_FINALIZER);
    }
    Ok(())
}

const MTU: &str = "spec.uplink.linkAttributes.mtu";

/// A node has one uplink of a cluster network, and all of them have one MTU.
fn check_others(verb: &str, config: &Value, lookup: &dyn Lookup) -> Result<(), ApiError> {
    let (name, network) = (text(config, "metadata.name"), text(config, "spec.clusterNetwork"));
    let own = nodes_of(config, lookup);
    let mtu = |config: &Value| int(config, MTU).unwrap_or_default();
    for other in lookup.list(GROUP, "vlanconfigs", "") {
        if text(&other, "spec.clusterNetwork") != network || text(&other, "metadata.name") == name {
            continue;
        }
        let shared: Vec<String> = nodes_of(&other, lookup).into_iter().filter(|node| own.contains(node)).collect();
        if !shared.is_empty() {
            let why = format!("it overlaps with other vlanconfigs matching node(s) [{}]", shared.join(" "));
            return Err(refusal(verb, "vlanConfig", name, &why));
        }
        if mtu(&other) != mtu(config) {
            let (own, of, other) = (mtu(config), mtu(&other), text(&other, "metadata.name"));
            let why = format!("the MTU {own} is different from the MTU {of} of vlanconfig {other}");
            return Err(refusal(verb, "vlanConfig", name, &why));
        }
    }
    Ok(())
}

/// The nodes that a configuration is for: all without a selector.
fn nodes_of(config: &Value, lookup: &dyn Lookup) -> Vec<String> {
    let selector = map(config, "spec.nodeSelector").cloned().unwrap_or_default();
    let is_chosen = |node: &Value| {
        let labels = map(node, "metadata.labels");
        selector.iter().all(|(key, value)| labels.and_then(|labels| labels.get(key)) == Some(value))
    };
    let nodes = lookup.list("", "nodes", "");
    nodes.iter().filter(|node| is_chosen(node)).map(|node| text(node, "metadata.name").to_owned()).collect()
}

/// An uplink is not pulled from under machines that run. Without `new`, all of it goes.
fn check_running(verb: &str, old: &Value, new: Option<&Value>, lookup: &dyn Lookup) -> Result<(), ApiError> {
    let stays = |path: &str| new.is_some_and(|new| get(new, path) == get(old, path));
    let kept = new.map(|new| nodes_of(new, lookup)).unwrap_or_default();
    let is_rewired = !stays("spec.clusterNetwork") || list(old, NICS) != new.map_or(&[][..], |new| list(new, NICS));
    let left: Vec<String> =
        nodes_of(old, lookup).into_iter().filter(|node| is_rewired || !kept.contains(node)).collect();
    let running = running_on(text(old, "spec.clusterNetwork"), Some(&left), lookup);
    if running.is_empty() {
        return Ok(());
    }
    let why = format!("it is blocked by VM(s) {} which must be stopped at first", running.join(", "));
    Err(refusal(verb, "vlanConfig", text(old, "metadata.name"), &why))
}

const NICS: &str = "spec.uplink.nics";

pub(super) fn admit_config_delete(config: &Value, lookup: &dyn Lookup) -> Result<(), ApiError> {
    if text(config, "spec.clusterNetwork") == MANAGEMENT {
        let message = "users can't delete vlanConfig for mgmt cluster network";
        return Err(refuse(VALIDATOR, 422, "Invalid", message));
    }
    check_running("delete", config, None, lookup)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::testing::{Objects, admitted, nothing, refusal, write};
    use super::*;
    use crate::view::set;

    const CLUSTER_NETWORK: &str = "network.harvesterhci.io/clusternetwork";

    fn network(name: &str) -> Value {
        json!({"metadata": {"name": name}})
    }

    fn nad() -> Value {
        json!({"metadata": {"name": "n", "namespace": "a", "labels": {CLUSTER_NETWORK: "data"}}})
    }

    /// A machine that runs on the node `one`, with a card on `data`.
    fn in_use() -> Objects {
        let instance = json!({"metadata": {"name": "vm", "namespace": "a"}, "status": {"nodeName": "one"},
            "spec": {"networks": [{"name": "x", "multus": {"networkName": "a/n"}}]}});
        known().with("k8s.cni.cncf.io", "network-attachment-definitions", nad()).with(
            "kubevirt.io",
            "virtualmachineinstances",
            instance,
        )
    }

    fn known() -> Objects {
        let node = |name: &str| json!({"metadata": {"name": name, "labels": {"host": name}}});
        nothing().with(GROUP, "clusternetworks", network("data")).with("", "nodes", node("one")).with(
            "",
            "nodes",
            node("two"),
        )
    }

    fn config(change: &Value) -> Value {
        let mut config =
            json!({"metadata": {"name": "c"}, "spec": {"clusterNetwork": "data", "uplink": {"nics": ["ens4"]}}});
        for (field, value) in change.as_object().into_iter().flatten() {
            set(&mut config, &format!("spec.{field}"), value.clone());
        }
        config
    }

    #[track_caller]
    fn refused(result: Result<Value, ApiError>, text: &str) {
        let error = result.unwrap_err();
        assert!(error.message().contains(text), "{error}");
    }

    #[test]
    fn names_fit_into_those_of_links() {
        admitted(admit, network("data"));
        for name in ["a-name-too-long", "Data"] {
            assert_eq!(refusal(admit, network(name)).code(), 422, "{name}");
        }
    }

    #[test]
    fn the_mtu_of_the_management_network_alone_is_chosen() {
        let with = |name: &str, mtu: &str| json!({"metadata": {"name": name, "annotations": {UPLINK_MTU: mtu}}});
        let change = |name: &str, mtu: &str, lookup: &Objects| {
            write(admit, with(name, mtu), Some(&network(name)), lookup, false)
        };
        change("mgmt", "9000", &nothing()).unwrap();
        refused(change("mgmt", "100", &nothing()), "the MTU 100 is out of range [0, 576..9000]");
        refused(change("data", "9000", &nothing()), "can't be added");
        assert!(refusal(admit, with("data", "9000")).message().contains("can't be added"));
        let mut lookup = nad();
        lookup["metadata"]["labels"][CLUSTER_NETWORK] = json!("mgmt");
        let lookup = in_use().with("k8s.cni.cncf.io", "network-attachment-definitions", lookup);
        refused(change("mgmt", "9000", &lookup), "the following VMs must be stopped at first: a/vm");
    }

    #[test]
    fn what_others_stand_on_stays() {
        assert!(admit_delete(&network("mgmt"), &nothing()).unwrap_err().message().contains("it is not allowed"));
        admit_delete(&network("data"), &nothing()).unwrap();
        let used = nothing().with(GROUP, "vlanconfigs", config(&json!({})));
        assert!(admit_delete(&network("data"), &used).unwrap_err().message().contains("vlanconfig(s) [c]"));
        let used = nothing().with("k8s.cni.cncf.io", "network-attachment-definitions", nad());
        assert!(admit_delete(&network("data"), &used).unwrap_err().message().contains("a/n are still existing"));
    }

    #[test]
    fn configurations_need_a_network_that_is_not_mgmt() {
        let of = |network: &str| config(&json!({"clusterNetwork": network}));
        assert!(refusal(admit_config, of("mgmt")).message().contains("users can't create vlanConfig for mgmt"));
        assert!(refusal(admit_config, of("data")).message().contains("does not exist"));
        let made = write(admit_config, of("data"), None, &known(), false).unwrap();
        assert_eq!(made["metadata"]["finalizers"], json!([VLAN_CONFIG_FINALIZER]));
        let error = admit_config_delete(&of("mgmt"), &nothing()).unwrap_err();
        assert!(error.message().contains("users can't delete vlanConfig for mgmt"));
    }

    #[test]
    fn uplinks_of_a_network_agree() {
        let create = |change: Value, lookup: &Objects| write(admit_config, config(&change), None, lookup, false);
        let mtu = |mtu: i64| json!({"uplink": {"nics": ["ens4"], "linkAttributes": {"mtu": mtu}}});
        refused(create(mtu(500), &known()), "the MTU 500 is out of range [0, 576..9000]");
        create(mtu(9000), &known()).unwrap();
        let mut other = config(&json!({"nodeSelector": {"host": "one"}}));
        other["metadata"]["name"] = json!("other");
        let lookup = known().with(GROUP, "vlanconfigs", other);
        refused(create(json!({}), &lookup), "it overlaps with other vlanconfigs matching node(s) [one]");
        let mut apart = mtu(9000);
        apart["nodeSelector"] = json!({"host": "two"});
        refused(create(apart, &lookup), "the MTU 9000 is different from the MTU 0 of vlanconfig other");
        create(json!({"nodeSelector": {"host": "two"}}), &lookup).unwrap();
    }

    #[test]
    fn an_uplink_stays_under_machines_that_run() {
        let old = config(&json!({}));
        let change = |change: Value| write(admit_config, config(&change), Some(&old), &in_use(), false);
        let blocked = "it is blocked by VM(s) a/vm which must be stopped at first";
        refused(change(json!({"uplink": {"nics": ["ens5"]}})), blocked);
        refused(change(json!({"nodeSelector": {"host": "two"}})), blocked);
        change(json!({"nodeSelector": {"host": "one"}})).unwrap();
        change(json!({"description": "other"})).unwrap();
        assert!(admit_config_delete(&old, &in_use()).unwrap_err().message().contains(blocked));
        admit_config_delete(&old, &known()).unwrap();
    }
}
