//! All that must hold for a custom resource, in the order in which upstream checks it.

use croft_meta::{FieldErrors, FieldPath};
use serde_json::Value;

use crate::cel::CelRules;
use crate::model::Schema;
use crate::validate::validate;

/// Schema first; CEL rules only see objects of the right shape. `old` is what `new` replaces, if anything.
pub fn validate_custom_resource(schema: &Schema, rules: &CelRules, new: &Value, old: Option<&Value>) -> FieldErrors {
    let mut errors = validate(schema, new, &FieldPath::root(), old);
    if rules.is_empty() {
        return errors;
    }
    match CelRules::skipped_because_of(&errors) {
        Some(skipped) => errors.push(skipped),
        None => errors.extend(rules.evaluate(new, old)),
    }
    errors
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// What a Kubernetes 1.34 API server answered to updates after the schema had become stricter.
    #[test]
    fn unchanged_faults_are_tolerated_as_kubernetes_does() {
        let golden: Value = serde_json::from_str(include_str!("../testdata/ratchet.json")).expect("JSON");
        let schema = Schema::from_json(&golden["schema"]).expect("valid");
        let rules = CelRules::compile(&schema, &FieldPath::root()).expect("compiles");
        let cases = golden["cases"].as_array().expect("list");
        assert!(cases.len() > 15);
        for case in cases {
            let errors = validate_custom_resource(&schema, &rules, &case["new"], Some(&case["old"]));
            let mut texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
            texts.sort();
            assert_eq!(json!(texts), case["errors"], "{} {}", case["old"], case["new"]);
        }
    }
}
