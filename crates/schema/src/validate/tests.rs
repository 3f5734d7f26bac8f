use serde_json::json;

use super::*;

fn texts(errors: &FieldErrors) -> Vec<String> {
    let mut texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
    texts.sort();
    texts
}

/// What a Kubernetes 1.34 API server answered for the same schema and values.
#[test]
fn errors_are_those_of_kubernetes() {
    let golden: Value = serde_json::from_str(include_str!("../../testdata/validate.json")).expect("JSON");
    let schema = Schema::from_json(&golden["schema"]).expect("valid");
    let cases = golden["cases"].as_array().expect("list");
    assert!(cases.len() > 60);
    for case in cases {
        let mut value = case["value"].clone();
        crate::apply_defaults(&schema, &mut value);
        let errors = texts(&validate(&schema, &value, &FieldPath::root(), None));
        assert_eq!(json!(errors), case["errors"], "{}", case["value"]);
    }
}

#[test]
fn what_did_not_change_may_stay_invalid() {
    let schema = Schema::from_json(&json!({"type": "object", "properties": {
        "a": {"type": "string", "maxLength": 1}, "b": {"type": "string"},
        "map": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
            "items": {"type": "object", "required": ["k"], "properties": {"k": {"type": "string"}, "v": {"type": "string", "maxLength": 1}}}},
        "list": {"type": "array", "items": {"type": "string", "maxLength": 1}},
        "set": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
        "all": {"type": "object", "properties": {"x": {"type": "string"}, "y": {"type": "string"}}, "allOf": [{"required": ["x"]}]},
    }}))
    .expect("valid");
    let cases = [
        (json!({"a": "long"}), json!({"a": "long", "b": "new"}), true),
        (json!({"a": "long"}), json!({"a": "longer"}), false),
        (json!({"map": [{"k": "1", "v": "long"}]}), json!({"map": [{"k": "0"}, {"k": "1", "v": "long"}]}), true),
        (json!({"map": [{"k": "1", "v": "long"}]}), json!({"map": [{"k": "0", "v": "long"}]}), false),
        (json!({"list": ["long"]}), json!({"list": ["long"], "b": "new"}), true),
        (json!({"list": ["long"]}), json!({"list": ["long", "a"]}), false),
        (json!({"set": ["a", "a"]}), json!({"set": ["b", "b"]}), true),
        (json!({"set": ["a"]}), json!({"set": ["b", "b"]}), false),
        (json!({"all": {}}), json!({"all": {}, "b": "new"}), true),
        (json!({"all": {}}), json!({"all": {"y": "new"}}), false),
    ];
    for (old, new, want) in cases {
        let errors = validate(&schema, &new, &FieldPath::root(), Some(&old));
        assert_eq!(errors.is_empty(), want, "{old} {new} {errors:?}");
        assert!(!validate(&schema, &new, &FieldPath::root(), None).is_empty(), "{new}");
    }
}

#[test]
fn a_path_prefixes_every_error() {
    let schema = Schema::from_json(&json!({"type": "object", "required": ["a"]})).expect("valid");
    let errors = validate(&schema, &json!({}), &FieldPath::new("spec.x.default"), None);
    assert_eq!(texts(&errors), ["spec.x.default.a: Required value"]);
}
