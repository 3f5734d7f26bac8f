//! NetworkAttachmentDefinitions: labels from their configuration.

use croft_meta::{ApiError, FieldPath};
use serde_json::{Value, json};

use super::denial::{Denial, refuse};
use super::{Admission, Lookup};
use crate::view::{has, list, map_mut, text};

const VALIDATOR: &str = "network-validator.harvesterhci.io";
const GROUP: &str = "network.harvesterhci.io";

pub(super) fn admit(admission: &mut Admission<'_>) -> Result<(), ApiError> {
    let config = text(admission.object, "spec.config");
    if config.is_empty() || has(admission.object, "metadata.deletionTimestamp") {
        return Ok(());
    }
    let config: Value = match serde_json::from_str(config) {
        Ok(config @ Value::Object(_)) => config,
        _ => return invalid("spec.config", "the config is not a JSON object".to_owned()),
    };
    let vlan = config.get("vlan").and_then(Value::as_i64).unwrap_or_default();
    if !(0..=4094).contains(&vlan) {
        return invalid("spec.config", format!("VLAN ID must be in the range 0 to 4094, got {vlan}"));
    }
    let kind = text(&config, "type");
    let bridge = text(&config, "bridge");
    if kind == "bridge" && (bridge.is_empty() || bridge.len() > 15 || bridge.contains(['/', ' '])) {
        return invalid("spec.config", format!("bridge \"{bridge}\" is not the name of a network interface"));
    }
    let network_type = match (kind, config.get("vlanTrunk").is_some(), vlan) {
        ("kube-ovn", _, _) => "OverlayNetwork",
        (_, true, _) => "L2VlanTrunkNetwork",
        (_, _, 0) => "UntaggedNetwork",
        _ => "L2VlanNetwork",
    };
    // Harvester names the bridge of a cluster network after it.
    let cluster_network = bridge.strip_suffix("-br").map(str::to_owned);
    let Some(labels) = map_mut(admission.object, "metadata.labels") else { return Ok(()) };
    labels.entry(format!("{GROUP}/type")).or_insert_with(|| json!(network_type));
    if let Some(cluster_network) = cluster_network {
        labels.entry(format!("{GROUP}/clusternetwork")).or_insert_with(|| json!(cluster_network));
    }
    if network_type == "L2VlanNetwork" {
        labels.insert(format!("{GROUP}/vlan-id"), json!(vlan.to_string()));
    }
    Ok(())
}

fn invalid(field: &str, message: String) -> Result<(), ApiError> {
    let mut denial = Denial::by(VALIDATOR);
    denial.invalid(&FieldPath::new(field), message);
    denial.finish()
}

/// Not while a machine is plugged into it.
pub(super) fn admit_delete(network: &Value, lookup: &dyn Lookup) -> Result<(), ApiError> {
    let (namespace, name) = (text(network, "metadata.namespace"), text(network, "metadata.name"));
    let users: Vec<String> = lookup
        .list("kubevirt.io", "virtualmachines", "")
        .iter()
        .filter(|machine| uses(machine, namespace, name))
        .map(|machine| format!("{}/{}", text(machine, "metadata.namespace"), text(machine, "metadata.name")))
        .collect();
    if users.is_empty() {
        return Ok(());
    }
    let message = format!("can't delete nad {namespace}/{name} because it's still used by VM(s) {}", users.join(", "));
    Err(refuse(VALIDATOR, 422, "Invalid", &message))
}

fn uses(machine: &Value, namespace: &str, name: &str) -> bool {
    list(machine, "spec.template.spec.networks").iter().any(|network| {
        match text(network, "multus.networkName").split_once('/') {
            Some(parts) => parts == (namespace, name),
            None => text(machine, "metadata.namespace") == namespace && text(network, "multus.networkName") == name,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Objects, admitted, nothing, refusal};
    use super::*;

    fn network(config: &str) -> Value {
        json!({"metadata": {"name": "n", "namespace": "a"}, "spec": {"config": config}})
    }

    #[test]
    fn labels_follow_from_the_configuration() {
        let cases = [
            (
                r#"{"type":"bridge","bridge":"data-br","vlan":7}"#,
                json!({"type": "L2VlanNetwork", "clusternetwork": "data", "vlan-id": "7"}),
            ),
            (r#"{"type":"bridge","bridge":"br0"}"#, json!({"type": "UntaggedNetwork"})),
            (r#"{"type":"kube-ovn"}"#, json!({"type": "OverlayNetwork"})),
        ];
        for (config, expected) in cases {
            let labels = admitted(admit, network(config))["metadata"]["labels"].clone();
            let expected: serde_json::Map<String, Value> = expected
                .as_object()
                .unwrap()
                .iter()
                .map(|(key, value)| (format!("{GROUP}/{key}"), value.clone()))
                .collect();
            assert_eq!(labels, Value::Object(expected), "{config}");
        }
    }

    #[test]
    fn configurations_that_cannot_be_are_refused() {
        for config in
            ["x", "[]", r#"{"type":"bridge","bridge":"b","vlan":5000}"#, r#"{"type":"bridge","bridge":"../x"}"#]
        {
            assert_eq!(refusal(admit, network(config)).code(), 422, "{config}");
        }
    }

    #[test]
    fn a_network_in_use_stays() {
        let machine = |name: &str| {
            json!({"metadata": {"name": "m", "namespace": "a"},
                "spec": {"template": {"spec": {"networks": [{"name": "x", "multus": {"networkName": name}}]}}}})
        };
        for (used, is_free) in [("n", false), ("a/n", false), ("b/n", true), ("o", true)] {
            let objects = Objects::default().with("kubevirt.io", "virtualmachines", machine(used));
            assert_eq!(admit_delete(&network("{}"), &objects).is_ok(), is_free, "{used}");
        }
        assert!(admit_delete(&network("{}"), &nothing()).is_ok());
    }
}
