use super::super::testing::{Objects, nothing, write};
use super::*;

fn network(config: &str) -> Value {
    json!({"metadata": {"name": "n", "namespace": "a"}, "spec": {"config": config}})
}

fn known() -> Objects {
    let cluster = |name: &str, ready: &str| json!({"metadata": {"name": name}, "status": {"conditions": [{"type": "ready", "status": ready}]}});
    nothing().with(GROUP, "clusternetworks", cluster("data", "False")).with(
        GROUP,
        "clusternetworks",
        cluster("mgmt", "True"),
    )
}

fn machine(name: &str, network: &str) -> Value {
    json!({"metadata": {"name": name, "namespace": "a"},
        "spec": {"template": {"spec": {"networks": [{"name": "x", "multus": {"networkName": network}}]}}}})
}

fn instance(name: &str, network: &str) -> Value {
    json!({"metadata": {"name": name, "namespace": "a"},
        "spec": {"networks": [{"name": "x", "multus": {"networkName": network}}]}})
}

#[track_caller]
fn refused(result: Result<Value, ApiError>, text: &str) {
    let error = result.unwrap_err();
    assert_eq!(error.code(), 422);
    assert!(error.message().contains(text), "{error}");
}

#[test]
fn labels_follow_from_the_configuration() {
    let cases = [
        (
            r#"{"type":"bridge","bridge":"data-br","vlan":7}"#,
            json!({"type": "L2VlanNetwork", "clusternetwork": "data", "vlan-id": "7", "ready": "false"}),
        ),
        (
            r#"{"type":"bridge","bridge":"mgmt-br","vlanTrunk":[{"minID":2,"maxID":9},{"id":20}]}"#,
            json!({"type": "L2VlanTrunkNetwork", "clusternetwork": "mgmt", "ready": "true"}),
        ),
        (r#"{"type":"bridge","bridge":"br0"}"#, json!({"type": "UntaggedNetwork"})),
    ];
    for (config, expected) in cases {
        let made = write(admit, network(config), None, &known(), false).unwrap();
        let expected: serde_json::Map<String, Value> = expected
            .as_object()
            .unwrap()
            .iter()
            .map(|(key, value)| (format!("{GROUP}/{key}"), value.clone()))
            .collect();
        assert_eq!(made["metadata"]["labels"], Value::Object(expected), "{config}");
    }
}

#[test]
fn configurations_that_cannot_be_are_refused() {
    let trunk = |range: &str| format!(r#"{{"type":"bridge","bridge":"b","vlanTrunk":[{range}]}}"#);
    for (config, message) in [
        ("", "config is empty"),
        ("x", "not a JSON object"),
        ("[]", "not a JSON object"),
        (r#"{"type":"bridge","bridge":"b","vlan":5000}"#, "0 to 4094"),
        (r#"{"type":"bridge","bridge":"../x"}"#, "not the name of a network interface"),
        (r#"{"type":"bridge","bridge":"b","mtu":100}"#, "the MTU 100 is out of range"),
        (r#"{"type":"bridge","bridge":"none-br"}"#, "nad refers to a none-existing cluster network none"),
        (r#"{"type":"kube-ovn"}"#, "kubeovn is not yet enabled"),
        (&trunk(r#"{"minID":9,"maxID":2}"#), "the smaller first"),
        (&trunk(r#"{"minID":0,"maxID":5000}"#), "0 to 4094"),
        (&trunk("{}"), "0 to 4094"),
    ] {
        refused(write(admit, network(config), None, &known(), false), message);
    }
    let mut other = network(r#"{"type":"bridge","bridge":"data-br"}"#);
    other["metadata"]["labels"] = json!({CLUSTER_NETWORK: "mgmt"});
    refused(write(admit, other, None, &known(), false), "does not match the bridge data-br");
}

#[test]
fn a_network_stays_where_it_is() {
    let old = network(r#"{"type":"bridge","bridge":"data-br","vlan":7}"#);
    let change = |config: &str, lookup: &Objects| write(admit, network(config), Some(&old), lookup, false);
    refused(
        change(r#"{"type":"bridge","bridge":"mgmt-br","vlan":7}"#, &known()),
        "nad bridge name can't be changed from data-br to mgmt-br",
    );
    let other = r#"{"type":"bridge","bridge":"data-br","vlan":8}"#;
    change(other, &known()).unwrap();
    let running = known().with("kubevirt.io", "virtualmachineinstances", instance("m", "a/n"));
    refused(change(other, &running), "it's still used by VM(s) a/m which must be stopped at first");
    // Spaces are no change.
    change(r#"{"type": "bridge", "bridge": "data-br", "vlan": 7}"#, &running).unwrap();
}

#[test]
fn a_network_in_use_stays() {
    for (used, is_free) in [("n", false), ("a/n", false), ("b/n", true), ("o", true)] {
        let objects = nothing().with("kubevirt.io", "virtualmachines", machine("m", used));
        match admit_delete(&network("{}"), &objects) {
            Ok(()) => assert!(is_free, "{used}"),
            Err(error) => {
                assert!(!is_free && error.message().contains("must remove the related networks"), "{used}: {error}");
            }
        }
    }
    let running = nothing().with("kubevirt.io", "virtualmachineinstances", instance("m", "n"));
    let error = admit_delete(&network("{}"), &running).unwrap_err();
    assert!(error.message().contains("VM(s) a/m which must be stopped at first"), "{error}");
    admit_delete(&network("{}"), &nothing()).unwrap();
}

#[test]
fn networks_are_as_wide_as_their_uplink() {
    let wide = |name: &str| json!({"metadata": {"name": name, "annotations": {UPLINK_MTU: "9000"}}, "status": {"conditions": []}});
    let config = json!({"metadata": {"name": "c"}, "spec": {"clusterNetwork": "far", "uplink": {"linkAttributes": {"mtu": 2000}}}});
    let lookup = known()
        .with(GROUP, "clusternetworks", wide("wide"))
        .with(GROUP, "clusternetworks", json!({"metadata": {"name": "far"}}))
        .with(GROUP, "vlanconfigs", config);
    let mtu = |made: &Value| {
        let config: Value = serde_json::from_str(made["spec"]["config"].as_str().unwrap()).unwrap();
        config["mtu"].as_i64()
    };
    let of = |bridge: &str, rest: &str| network(&format!(r#"{{"type":"bridge","bridge":"{bridge}"{rest}}}"#));
    for (bridge, rest, expected) in [
        ("wide-br", "", Some(9000)),
        ("wide-br", r#","mtu":9000"#, Some(9000)),
        ("far-br", "", Some(2000)),
        ("data-br", "", None),
        ("data-br", r#","mtu":1500"#, Some(1500)),
        ("br0", r#","mtu":9000"#, Some(9000)),
    ] {
        let made = write(admit, of(bridge, rest), None, &lookup, false).unwrap();
        assert_eq!(mtu(&made), expected, "{bridge} {rest}");
        // Sent again, it is the same.
        let again = write(admit, of(bridge, rest), Some(&made), &lookup, false).unwrap();
        assert_eq!(again["spec"], made["spec"]);
    }
    let narrow = of("wide-br", r#","mtu":1400"#);
    refused(write(admit, narrow, None, &lookup, false), "is different from the MTU 9000 of cluster network wide");
    refused(write(admit, of("data-br", r#","mtu":9000"#), None, &lookup, false), "from the MTU 1500");
}

#[test]
fn a_vlan_that_storage_has_for_itself_is_no_machines() {
    let storage = json!({"vlan": 7, "clusterNetwork": "data", "range": "192.0.2.0/24", "exclusiveVlan": true});
    let setting = json!({"metadata": {"name": "storage-network"}, "value": storage.to_string()});
    let lookup = known().with("harvesterhci.io", "settings", setting);
    let on = |vlan: i64| network(&json!({"type": "bridge", "bridge": "data-br", "vlan": vlan}).to_string());
    refused(write(admit, on(7), None, &lookup, false), "vlan 7 is exclusively reserved for storage network");
    write(admit, on(8), None, &lookup, false).unwrap();
}
