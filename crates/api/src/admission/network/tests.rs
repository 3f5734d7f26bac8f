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
