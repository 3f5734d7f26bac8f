//! HostNetworkConfigs: addresses of the nodes themselves on a VLAN of a cluster network.

use std::collections::BTreeSet;
use std::net::IpAddr;

use croft_meta::ApiError;
use ipnet::IpNet;
use serde_json::Value;

use super::denial::refuse;
use super::{Admission, Lookup};
use crate::view::{flag, get, has, list, map, number, strings, text};

const VALIDATOR: &str = "validator.network.harvesterhci.io";
const GROUP: &str = "network.harvesterhci.io";
const PLURAL: &str = "hostnetworkconfigs";

fn refusal(verb: &str, name: &str, why: &str) -> ApiError {
    refuse(VALIDATOR, 422, "Invalid", &format!("can't {verb} hostNetworkConfig {name} because {why}"))
}

pub(super) fn admit(admission: &mut Admission<'_>) -> Result<(), ApiError> {
    let config = &*admission.object;
    let is_same = admission.old.is_some_and(|old| get(old, "spec") == get(config, "spec"));
    if is_same || admission.is_internal || has(config, "metadata.deletionTimestamp") {
        return Ok(());
    }
    let verb = if admission.old.is_some() { "update" } else { "create" };
    let problem = admission.old.and_then(|old| moved(config, old)).or_else(|| problem(config, admission.lookup));
    match problem {
        Some(why) => Err(refusal(verb, text(config, "metadata.name"), &why)),
        None => Ok(()),
    }
}

/// Where it is, is for ever.
fn moved(config: &Value, old: &Value) -> Option<String> {
    ["spec.clusterNetwork", "spec.vlanID"].into_iter().find(|field| get(config, field) != get(old, field)).map(
        |field| {
            let what = field.trim_start_matches("spec.");
            format!("{what} can't be changed")
        },
    )
}

fn problem(config: &Value, lookup: &dyn Lookup) -> Option<String> {
    let (name, network) = (text(config, "metadata.name"), text(config, "spec.clusterNetwork"));
    let vlan = number(config, "spec.vlanID");
    if lookup.get(GROUP, "clusternetworks", "", network).is_none() {
        return Some(format!("the cluster network {network:?} does not exist"));
    }
    if !(1..=4094).contains(&vlan) {
        return Some(format!("the VLAN ID {vlan} is out of range 1 to 4094"));
    }
    for other in lookup.list(GROUP, PLURAL, "") {
        if text(&other, "metadata.name") == name || text(&other, "spec.clusterNetwork") != network {
            continue;
        }
        let other_name = text(&other, "metadata.name");
        if number(&other, "spec.vlanID") == vlan {
            return Some(format!("{other_name} is already there for VLAN {vlan} of cluster network {network}"));
        }
        if flag(config, "spec.underlay") && flag(&other, "spec.underlay") {
            return Some(format!("{other_name} is already the underlay of cluster network {network}"));
        }
    }
    if text(config, "spec.mode") == "static" { addresses(config, lookup) } else { None }
}

/// Every node has one of its own, and all are in one subnet.
fn addresses(config: &Value, lookup: &dyn Lookup) -> Option<String> {
    let given = map(config, "spec.ips");
    let mut subnet: Option<IpNet> = None;
    let mut seen: BTreeSet<IpAddr> = BTreeSet::new();
    for (node, address) in given.into_iter().flatten() {
        let address = address.as_str().unwrap_or_default();
        let Ok(parsed) = address.parse::<IpNet>() else {
            return Some(format!("the static IP {address:?} of node {node} is not an address with a prefix length"));
        };
        if !seen.insert(parsed.addr()) {
            return Some(format!("duplicate static IP {}", parsed.addr()));
        }
        if *subnet.get_or_insert(parsed.trunc()) != parsed.trunc() {
            return Some("static IPs are not in the same subnet".to_owned());
        }
    }
    let is_given = |node: &str| given.is_some_and(|given| given.contains_key(node));
    let missing = lookup.list("", "nodes", "").into_iter().find_map(|node| {
        let name = text(&node, "metadata.name");
        (matches(config, &node) && !is_given(name)).then(|| name.to_owned())
    });
    missing.map(|node| format!("static IP not found for node {node}"))
}

/// Whether the configuration is for the node: all without a selector.
fn matches(config: &Value, node: &Value) -> bool {
    let label = |key: &str| get(node, "metadata.labels").and_then(|labels| labels.get(key)).and_then(Value::as_str);
    let equal = map(config, "spec.nodeSelector.matchLabels").into_iter().flatten();
    equal.into_iter().all(|(key, value)| label(key) == value.as_str())
        && list(config, "spec.nodeSelector.matchExpressions").iter().all(|expression| {
            let (found, values) = (label(text(expression, "key")), strings(expression, "values"));
            match text(expression, "operator") {
                "In" => found.is_some_and(|found| values.contains(&found)),
                "NotIn" => found.is_none_or(|found| !values.contains(&found)),
                "Exists" => found.is_some(),
                "DoesNotExist" => found.is_none(),
                _ => false,
            }
        })
}

pub(super) fn admit_delete(config: &Value, _: &dyn Lookup) -> Result<(), ApiError> {
    if flag(config, "spec.underlay") {
        let why = "underlay is enabled, disable underlay first";
        return Err(refusal("delete", text(config, "metadata.name"), why));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::testing::{Objects, nothing, write};
    use super::*;
    use crate::view::set;

    fn known() -> Objects {
        let node = |name: &str| json!({"metadata": {"name": name, "labels": {"host": name}}});
        nothing()
            .with(GROUP, "clusternetworks", json!({"metadata": {"name": "mgmt"}}))
            .with("", "nodes", node("one"))
            .with("", "nodes", node("two"))
    }

    fn config(change: &Value) -> Value {
        let spec = json!({"clusterNetwork": "mgmt", "vlanID": 100, "mode": "static",
            "ips": {"one": "192.0.2.1/24", "two": "192.0.2.2/24"}});
        let mut config = json!({"metadata": {"name": "c"}, "spec": spec});
        for (field, value) in change.as_object().into_iter().flatten() {
            set(&mut config, &format!("spec.{field}"), value.clone());
        }
        config
    }

    #[test]
    fn nodes_have_addresses_of_their_own_in_one_subnet() {
        let other =
            json!({"metadata": {"name": "other"}, "spec": {"clusterNetwork": "mgmt", "vlanID": 7, "underlay": true}});
        let lookup = known().with(GROUP, PLURAL, other);
        for (change, expected) in [
            (json!({}), None),
            (json!({"mode": "dhcp", "ips": {}}), None),
            (json!({"ips": {"one": "192.0.2.1/24"}, "nodeSelector": {"matchLabels": {"host": "one"}}}), None),
            (
                json!({"ips": {"two": "192.0.2.1/24"},
                    "nodeSelector": {"matchExpressions": [{"key": "host", "operator": "NotIn", "values": ["one"]}]}}),
                None,
            ),
            (json!({"ips": {"one": "192.0.2.1/24"}}), Some("static IP not found for node two")),
            (
                json!({"ips": {"one": "192.0.2.1/24", "two": "198.51.100.1/24"}}),
                Some("static IPs are not in the same subnet"),
            ),
            (json!({"ips": {"one": "192.0.2.1/24", "two": "192.0.2.1/24"}}), Some("duplicate static IP 192.0.2.1")),
            (json!({"ips": {"one": "here"}}), Some("is not an address with a prefix length")),
            (json!({"clusterNetwork": "none"}), Some("does not exist")),
            (json!({"vlanID": 4095}), Some("out of range 1 to 4094")),
            (json!({"vlanID": 7}), Some("other is already there for VLAN 7")),
            (json!({"underlay": true}), Some("other is already the underlay")),
        ] {
            let refused = write(admit, config(&change), None, &lookup, false).err();
            assert_eq!(refused.is_some(), expected.is_some(), "{change}: {refused:?}");
            let told = refused.map(|error| error.message().to_owned()).unwrap_or_default();
            assert!(told.contains(expected.unwrap_or_default()), "{change}: {told}");
        }
    }

    #[test]
    fn it_stays_where_it_is() {
        let old = config(&json!({}));
        for (change, expected) in [
            (json!({"vlanID": 101}), Some("vlanID can't be changed")),
            (json!({"clusterNetwork": "other"}), Some("clusterNetwork can't be changed")),
            (json!({"mode": "dhcp"}), None),
        ] {
            let refused = write(admit, config(&change), Some(&old), &known(), false).err();
            let told = refused.map(|error| error.message().to_owned()).unwrap_or_default();
            assert_eq!(told.is_empty(), expected.is_none(), "{told}");
            assert!(told.contains(expected.unwrap_or_default()), "{told}");
        }
        admit_delete(&old, &nothing()).unwrap();
        let error = admit_delete(&config(&json!({"underlay": true})), &nothing()).unwrap_err();
        assert!(error.message().contains("underlay is enabled, disable underlay first"), "{error}");
    }
}
