//! What objects of a kind that nothing acts on yet say about themselves.
//!
//! A warning is seen by who writes an object; everybody else, and every program, reads its status. A line `told` in a
//! table of definitions is that status, in JSON: `"?"` stands for a sentence that says what does not happen, `"now"` for
//! the time, and the names in a list of conditions for whole conditions, which are false unless they are `Name=True`.

use serde_json::{Value, json};

use super::tables;

/// Why a condition is as it is, for programs.
const REASON: &str = "NotSupported";

/// The status of an object that nothing acts on; `None` for kinds that say nothing.
pub fn idle_status(group: &str, plural: &str, now: &str) -> Option<Value> {
    let header = tables::find(group, plural)?;
    let (what, told) = (header.idle?, header.told?);
    // They are a part of the program, and a test reads every one of them.
    let mut status: Value = serde_json::from_str(told).ok()?;
    let why = format!("Croft cannot do this yet: {what}");
    fill(&mut status, &why, now);
    Some(status)
}

fn fill(value: &mut Value, why: &str, now: &str) {
    match value {
        Value::String(text) if text == "?" => why.clone_into(text),
        Value::String(text) if text == "now" => now.clone_into(text),
        Value::Object(fields) => {
            for (field, value) in fields {
                match value {
                    Value::Array(names) if field.ends_with("onditions") => {
                        for name in names {
                            *name = condition(name.as_str().unwrap_or_default(), why, now);
                        }
                    }
                    value => fill(value, why, now),
                }
            }
        }
        _ => {}
    }
}

fn condition(name: &str, why: &str, now: &str) -> Value {
    let (ty, status) = name.split_once('=').unwrap_or((name, "False"));
    json!({"type": ty, "status": status, "reason": REASON, "message": why, "lastTransitionTime": now})
}

#[cfg(test)]
mod tests {
    use croft_meta::FieldPath;
    use croft_schema::{Schema, prune_resource, validate};

    use super::*;

    const NOW: &str = "2026-11-16T08:00:00Z";

    #[test]
    fn a_status_says_what_does_not_happen() {
        let status = idle_status("kubevirt.io", "virtualmachineinstancereplicasets", NOW).unwrap();
        let why = "Croft cannot do this yet: no instance is made";
        assert_eq!(status["conditions"][0], condition("ReplicaFailure=True", why, NOW));
        assert_eq!(status["conditions"][0]["status"], "True");
        let mut status = json!({"error": {"message": "?", "time": "now"}, "conditions": ["Ready"]});
        fill(&mut status, why, NOW);
        assert_eq!(status["error"], json!({"message": why, "time": NOW}));
        assert_eq!(status["conditions"][0]["status"], "False");
        assert_eq!(idle_status("harvesterhci.io", "preferences", NOW), None);
        assert_eq!(idle_status("example.com", "things", NOW), None);
    }

    #[test]
    fn every_status_is_one_of_its_kind() {
        let mut told = 0;
        for definition in super::super::shipped_definitions() {
            let spec = &definition["spec"];
            let (group, plural) = (spec["group"].as_str().unwrap(), spec["names"]["plural"].as_str().unwrap());
            let header = tables::find(group, plural);
            assert_eq!(
                header.is_some_and(|header| header.told.is_some()),
                idle_status(group, plural, NOW).is_some(),
                "{plural}.{group}"
            );
            let Some(status) = idle_status(group, plural, NOW) else { continue };
            told += 1;
            for version in spec["versions"].as_array().unwrap() {
                let mut schema = version["schema"]["openAPIV3Schema"].clone();
                // Only the status is of interest.
                schema["required"] = json!([]);
                let schema = Schema::from_json(&schema).unwrap();
                let object = json!({"apiVersion": "a/v1", "kind": "A", "metadata": {}, "status": status});
                let mut pruned = object.clone();
                prune_resource(&schema, &mut pruned);
                assert_eq!(pruned, object, "{plural}.{group}");
                let errors = validate(&schema, &object, &FieldPath::root(), None);
                assert!(errors.is_empty(), "{plural}.{group}: {errors:#?}");
            }
        }
        assert!(told > 20, "{told}");
    }
}
