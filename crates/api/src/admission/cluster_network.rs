//! ClusterNetworks and the VlanConfigs that bring them to nodes.

use croft_meta::{ApiError, names};
use serde_json::Value;

use super::denial::refuse;
use super::{Admission, Lookup};
use crate::view::{get, has, text};

const VALIDATOR: &str = "validator.network.harvesterhci.io";
const GROUP: &str = "network.harvesterhci.io";
const CLUSTER_NETWORK: &str = "network.harvesterhci.io/clusternetwork";
/// The network that nodes reach each other by.
const MANAGEMENT: &str = "mgmt";
/// Links may have 15 letters, of which `-br` takes three.
const LONGEST_NAME: usize = 12;

fn refusal(verb: &str, kind: &str, name: &str, why: &str) -> ApiError {
    refuse(VALIDATOR, 422, "Invalid", &format!("can't {verb} {kind} {name} because {why}"))
}

pub(super) fn admit(admission: &mut Admission<'_>) -> Result<(), ApiError> {
    let name = text(admission.object, "metadata.name");
    if admission.old.is_some() || admission.is_internal {
        return Ok(());
    }
    if name.len() > LONGEST_NAME {
        let why = format!("the length of its name is more than {LONGEST_NAME}");
        return Err(refusal("create", "clusterNetwork", name, &why));
    }
    let wrong = names::is_dns1123_label(name);
    if wrong.is_empty() {
        return Ok(());
    }
    Err(refusal("create", "clusterNetwork", name, &wrong.join(", ")))
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
    let label = |nad: &Value| get(nad, "metadata.labels").and_then(|labels| labels.get(CLUSTER_NETWORK).cloned());
    let nads: Vec<String> = lookup
        .list("k8s.cni.cncf.io", "network-attachment-definitions", "")
        .iter()
        .filter(|nad| label(nad).is_some_and(|of| of == name))
        .map(|nad| format!("{}/{}", text(nad, "metadata.namespace"), text(nad, "metadata.name")))
        .collect();
    if nads.is_empty() {
        return Ok(());
    }
    let why = format!("nads(s) {} are still existing", nads.join(", "));
    Err(refusal("delete", "clusterNetwork", name, &why))
}

pub(super) fn admit_config(admission: &mut Admission<'_>) -> Result<(), ApiError> {
    let config = &*admission.object;
    let is_same = admission.old.is_some_and(|old| get(old, "spec") == get(config, "spec"));
    if is_same || has(config, "metadata.deletionTimestamp") {
        return Ok(());
    }
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
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::testing::{admitted, nothing, refusal, write};
    use super::*;

    fn network(name: &str) -> Value {
        json!({"metadata": {"name": name}})
    }

    #[test]
    fn names_fit_into_those_of_links() {
        admitted(admit, network("data"));
        for name in ["a-name-too-long", "Data"] {
            assert_eq!(refusal(admit, network(name)).code(), 422, "{name}");
        }
    }

    #[test]
    fn what_others_stand_on_stays() {
        assert!(admit_delete(&network("mgmt"), &nothing()).unwrap_err().message().contains("it is not allowed"));
        admit_delete(&network("data"), &nothing()).unwrap();
        let config = json!({"metadata": {"name": "c"}, "spec": {"clusterNetwork": "data"}});
        let used = nothing().with(GROUP, "vlanconfigs", config);
        assert!(admit_delete(&network("data"), &used).unwrap_err().message().contains("vlanconfig(s) [c]"));
        let nad = json!({"metadata": {"name": "n", "namespace": "a", "labels": {CLUSTER_NETWORK: "data"}}});
        let used = nothing().with("k8s.cni.cncf.io", "network-attachment-definitions", nad);
        assert!(admit_delete(&network("data"), &used).unwrap_err().message().contains("a/n are still existing"));
    }

    #[test]
    fn configurations_need_a_network_that_is_not_mgmt() {
        let config = |network: &str| json!({"metadata": {"name": "c"}, "spec": {"clusterNetwork": network}});
        assert!(refusal(admit_config, config("mgmt")).message().contains("users can't create vlanConfig for mgmt"));
        assert!(refusal(admit_config, config("data")).message().contains("does not exist"));
        let known = nothing().with(GROUP, "clusternetworks", network("data"));
        write(admit_config, config("data"), None, &known, false).unwrap();
    }
}
