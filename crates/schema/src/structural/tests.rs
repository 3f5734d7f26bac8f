use serde_json::{Value, json};

use super::*;

/// What a Kubernetes 1.34 API server answered to CustomResourceDefinitions with these schemas.
#[test]
fn errors_are_those_of_kubernetes() {
    let golden: Value = serde_json::from_str(include_str!("../../testdata/structural.json")).expect("JSON");
    let cases = golden.as_array().expect("list");
    assert!(cases.len() > 70);
    let path = FieldPath::new("spec.validation.openAPIV3Schema");
    for case in cases {
        let mut errors: Vec<String> =
            check_structural(&case["schema"], &path).iter().map(ToString::to_string).collect();
        errors.sort();
        assert_eq!(json!(errors), case["errors"], "{}", case["schema"]);
    }
}
