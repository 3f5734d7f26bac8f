//! What a storage class tells CDI about itself, in annotations of Harvester's.

use serde_json::Value;

use super::super::Lookup;
use crate::view::{get, list, text};

const OVERHEAD: &str = "cdi.harvesterhci.io/filesystemOverhead";
const STRATEGY: &str = "cdi.harvesterhci.io/storageProfileCloneStrategy";
const SNAPSHOT_CLASS: &str = "cdi.harvesterhci.io/storageProfileVolumeSnapshotClass";
const ACCESS_MODES: &str = "cdi.harvesterhci.io/storageProfileVolumeModeAccessModes";

const STRATEGIES: [&str; 3] = ["copy", "snapshot", "csi-clone"];
const VOLUME_MODES: [&str; 2] = ["Block", "Filesystem"];
const MODES: [&str; 4] = ["ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany", "ReadWriteOncePod"];
const LONGHORN: &str = "driver.longhorn.io";
const LVM: &str = "lvm.driver.harvesterhci.io";

/// What is wrong with the annotations. A class without any says nothing to CDI, and that is fine.
pub(super) fn problem(class: &Value, lookup: &dyn Lookup) -> Option<String> {
    let annotations = get(class, "metadata.annotations");
    let given = |key: &str| annotations.and_then(|all| all.get(key)).and_then(Value::as_str);
    if [OVERHEAD, STRATEGY, SNAPSHOT_CLASS, ACCESS_MODES].iter().all(|key| given(key).is_none()) {
        return None;
    }
    let parameters = get(class, "parameters");
    let engine = parameters.map(|parameters| text(parameters, "dataEngine")).unwrap_or_default();
    let provisioner = text(class, "provisioner");
    if provisioner == LONGHORN && engine != "v2" {
        return Some("longhorn v1 does not support CDI annotations".to_owned());
    }
    given(OVERHEAD)
        .and_then(overhead)
        .or_else(|| strategy(given(STRATEGY)?, given(SNAPSHOT_CLASS)))
        .or_else(|| snapshot_class(given(SNAPSHOT_CLASS)?, lookup))
        .or_else(|| match given(ACCESS_MODES) {
            Some(modes) => access_modes(modes),
            // Those two have ways of their own that are known.
            None if [LONGHORN, LVM].contains(&provisioner) => None,
            None => Some(format!(
                "missing annotation {ACCESS_MODES}, volume access modes are required for CDI integration of provisioner {provisioner}"
            )),
        })
}

/// A share: `0.05`, with three digits at the most.
fn overhead(text: &str) -> Option<String> {
    let is_share = text == "1"
        || text == "0"
        || text.strip_prefix("0.").is_some_and(|digits| {
            (1..=3).contains(&digits.len()) && digits.bytes().all(|digit| digit.is_ascii_digit())
        });
    (!is_share).then(|| format!("invalid value {text:?} of annotation {OVERHEAD}, it should be between 0 and 1"))
}

fn strategy(text: &str, snapshot_class: Option<&str>) -> Option<String> {
    if !STRATEGIES.contains(&text) {
        let known = STRATEGIES.join(", ");
        return Some(format!("invalid value {text:?} of annotation {STRATEGY}, it should be one of {known}"));
    }
    (text == "snapshot" && snapshot_class.is_none())
        .then(|| format!("missing annotation {SNAPSHOT_CLASS}, it is required by the clone strategy snapshot"))
}

fn snapshot_class(name: &str, lookup: &dyn Lookup) -> Option<String> {
    let is_there =
        !name.is_empty() && lookup.get("snapshot.storage.k8s.io", "volumesnapshotclasses", "", name).is_some();
    (!is_there).then(|| format!("volume snapshot class {name:?} of annotation {SNAPSHOT_CLASS} not found"))
}

/// `{"Block":["ReadWriteOnce"]}`.
fn access_modes(text: &str) -> Option<String> {
    let wrong = |what: String| Some(format!("invalid value of annotation {ACCESS_MODES}: {what}"));
    let Ok(Value::Object(modes)) = serde_json::from_str::<Value>(text) else {
        return wrong("it is not a JSON object".to_owned());
    };
    if modes.is_empty() {
        return wrong("it names no volume mode".to_owned());
    }
    for (volume_mode, modes) in &modes {
        if !VOLUME_MODES.contains(&volume_mode.as_str()) {
            return wrong(format!("unknown volume mode {volume_mode}"));
        }
        let Some(modes) = modes.as_array() else { return wrong(format!("{volume_mode} is not a list")) };
        for mode in modes {
            if !mode.as_str().is_some_and(|mode| MODES.contains(&mode)) {
                return wrong(format!("unknown access mode {mode}"));
            }
        }
    }
    None
}

/// A class of volume groups needs one that is there.
pub(super) fn missing_volume_group(class: &Value, lookup: &dyn Lookup) -> Option<String> {
    if text(class, "provisioner") != LVM {
        return None;
    }
    let name = get(class, "parameters").map(|parameters| text(parameters, "vgName")).unwrap_or_default();
    let node = list(class, "allowedTopologies")
        .iter()
        .flat_map(|topology| list(topology, "matchLabelExpressions"))
        .flat_map(|expression| list(expression, "values"))
        .find_map(Value::as_str);
    let groups = lookup.list("harvesterhci.io", "lvmvolumegroups", "");
    let is_ready = groups.iter().any(|group| {
        text(group, "spec.vgName") == name
            && node.is_none_or(|node| text(group, "spec.nodeName") == node)
            && text(group, "status.vgStatus") == "Ready"
    });
    (!is_ready).then(|| format!("VG {name} is not ready"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::super::testing::nothing;
    use super::*;

    fn class(provisioner: &str, annotations: &Value) -> Value {
        json!({"metadata": {"name": "c", "annotations": annotations}, "provisioner": provisioner})
    }

    #[test]
    fn annotations_for_cdi_are_checked_where_there_are_any() {
        let known =
            nothing().with("snapshot.storage.k8s.io", "volumesnapshotclasses", json!({"metadata": {"name": "s"}}));
        let modes = r#"{"Block":["ReadWriteOnce","ReadOnlyMany"],"Filesystem":[]}"#;
        let other = "csi.example.com";
        for (provisioner, annotations, expected) in [
            (other, json!({}), None),
            (LONGHORN, json!({}), None),
            (LONGHORN, json!({STRATEGY: "copy"}), Some("longhorn v1 does not support CDI annotations")),
            (LVM, json!({STRATEGY: "copy"}), None),
            (other, json!({STRATEGY: "copy"}), Some("volume access modes are required for CDI integration")),
            (other, json!({ACCESS_MODES: modes, OVERHEAD: "0.055", STRATEGY: "snapshot", SNAPSHOT_CLASS: "s"}), None),
            (
                other,
                json!({ACCESS_MODES: modes, STRATEGY: "snapshot"}),
                Some("required by the clone strategy snapshot"),
            ),
            (other, json!({ACCESS_MODES: modes, STRATEGY: "move"}), Some("one of copy, snapshot, csi-clone")),
            (other, json!({ACCESS_MODES: modes, SNAPSHOT_CLASS: "none"}), Some("\"none\"")),
            (other, json!({ACCESS_MODES: modes, SNAPSHOT_CLASS: ""}), Some("not found")),
            (other, json!({ACCESS_MODES: modes, OVERHEAD: "1.5"}), Some("between 0 and 1")),
            (other, json!({ACCESS_MODES: modes, OVERHEAD: "0.0001"}), Some("between 0 and 1")),
            (other, json!({ACCESS_MODES: "no json"}), Some("not a JSON object")),
            (other, json!({ACCESS_MODES: "{}"}), Some("names no volume mode")),
            (other, json!({ACCESS_MODES: r#"{"Tape":[]}"#}), Some("unknown volume mode Tape")),
            (other, json!({ACCESS_MODES: r#"{"Block":["Sometimes"]}"#}), Some("unknown access mode")),
        ] {
            let found = problem(&class(provisioner, &annotations), &known);
            assert_eq!(found.is_some(), expected.is_some(), "{annotations}: {found:?}");
            assert!(found.unwrap_or_default().contains(expected.unwrap_or_default()), "{annotations}");
        }
        let mut v2 = class(LONGHORN, &json!({STRATEGY: "csi-clone"}));
        v2["parameters"] = json!({"dataEngine": "v2"});
        assert_eq!(problem(&v2, &known), None);
    }

    #[test]
    fn a_class_of_volume_groups_needs_one() {
        let mut class = class(LVM, &json!({}));
        class["parameters"] = json!({"vgName": "vg01"});
        assert_eq!(missing_volume_group(&class, &nothing()).unwrap(), "VG vg01 is not ready");
        let group = json!({"metadata": {"name": "g", "namespace": "n"}, "spec": {"vgName": "vg01", "nodeName": "one"},
            "status": {"vgStatus": "Ready"}});
        let known = nothing().with("harvesterhci.io", "lvmvolumegroups", group);
        assert_eq!(missing_volume_group(&class, &known), None);
        class["allowedTopologies"] =
            json!([{"matchLabelExpressions": [{"key": "topology.lvm.csi/node", "values": ["two"]}]}]);
        assert!(missing_volume_group(&class, &known).is_some());
    }
}
