//! Schemas of custom resources: read, and held against values.

use croft_meta::{FieldPath, json};
use croft_schema::{
    CelRules, Schema, apply_defaults, check_structural, prune_resource, validate, validate_custom_resource,
};
use serde_json::Value;

use crate::split;

/// Pruning and defaulting twice is doing it once; what the schema refuses does not panic.
pub(crate) fn schema(data: &[u8]) {
    let [schema, value] = split(data);
    let Ok(schema) = json::parse(schema) else { return };
    let wrong = check_structural(&schema, &FieldPath::new("schema"));
    let Ok(schema) = Schema::from_json(&schema) else { return };
    if !wrong.is_empty() {
        return;
    }
    let Some(value) = json::parse(value).ok().filter(Value::is_object) else { return };
    let mut pruned = value;
    prune_resource(&schema, &mut pruned);
    let mut again = pruned.clone();
    assert_eq!(prune_resource(&schema, &mut again), Vec::<String>::new(), "{pruned}");
    assert_eq!(again, pruned);
    apply_defaults(&schema, &mut pruned);
    let mut again = pruned.clone();
    apply_defaults(&schema, &mut again);
    assert_eq!(again, pruned, "defaults of defaults");
    let wrong = validate(&schema, &pruned, &FieldPath::root(), None);
    // What was good is good as a change of itself.
    if wrong.is_empty() {
        assert_eq!(validate(&schema, &pruned, &FieldPath::root(), Some(&pruned)), wrong);
    }
}

/// Rules in a schema: whatever they are, checking an object ends, and does so soon.
pub(crate) fn cel_rules(data: &[u8]) {
    let [schema, value, old] = split(data);
    let Ok(schema) = json::parse(schema) else { return };
    if !check_structural(&schema, &FieldPath::new("schema")).is_empty() {
        return;
    }
    let Ok(schema) = Schema::from_json(&schema) else { return };
    let Ok(rules) = CelRules::compile(&schema, &FieldPath::new("schema")) else { return };
    let Ok(value) = json::parse(value) else { return };
    let old = json::parse(old).ok();
    let _ = validate_custom_resource(&schema, &rules, &value, old.as_ref());
}
