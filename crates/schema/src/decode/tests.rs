use std::sync::Arc;

use serde_json::json;

use super::*;

/// A small Deployment, with the type names that a built-in kind carries.
fn schema() -> Schema {
    fn name(schema: &mut Schema, path: &[&str], type_name: &str) {
        let Some((first, rest)) = path.split_first() else {
            schema.type_name = Arc::from(type_name);
            return;
        };
        let child = match *first {
            "[]" => schema.items.as_mut(),
            "{}" => match &mut schema.additional {
                Additional::Schema(values) => Some(values),
                Additional::None => None,
            },
            field => schema.properties.get_mut(field),
        };
        name(Arc::make_mut(child.expect("path exists")), rest, type_name);
    }
    let mut schema = Schema::from_json(&json!({"type": "object", "properties": {
        "apiVersion": {"type": "string"}, "kind": {"type": "string"},
        "metadata": {"type": "object", "properties": {
            "name": {"type": "string"},
            "labels": {"type": "object", "additionalProperties": {"type": "string"}},
            "creationTimestamp": {"type": "string", "format": "date-time"},
            "renewTime": {"type": "string", "format": "date-time"},
            "finalizers": {"type": "array", "items": {"type": "string"}},
        }},
        "spec": {"type": "object", "properties": {
            "replicas": {"type": "integer", "format": "int32"},
            "paused": {"type": "boolean"},
            "maxSurge": {"x-kubernetes-int-or-string": true},
            "containers": {"type": "array", "items": {"type": "object", "properties": {"image": {"type": "string"}}}},
            "limits": {"type": "object", "additionalProperties": {"type": "string"}},
            "data": {"type": "object", "additionalProperties": {"type": "string", "format": "byte"}},
            "raw": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
        }},
    }}))
    .expect("valid");
    for (path, type_name) in [
        (&["metadata"][..], "ObjectMeta"),
        (&["metadata", "creationTimestamp"], "Time"),
        (&["metadata", "renewTime"], "MicroTime"),
        (&["spec"], "DeploymentSpec"),
        (&["spec", "containers", "[]"], "Container"),
        (&["spec", "limits", "{}"], "Quantity"),
    ] {
        name(&mut schema, path, type_name);
    }
    schema
}

#[test]
fn a_wrong_type_gets_gos_words() {
    let field = |found: &str, at: &str, wanted: &str| {
        format!("json: cannot unmarshal {found} into Go struct field {at} of type {wanted}")
    };
    let quantity = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";
    let cases = [
        (json!({"spec": {"replicas": "x"}}), field("string", "DeploymentSpec.spec.replicas", "int32")),
        (json!({"spec": []}), field("array", "Deployment.spec", "v1.DeploymentSpec")),
        (json!({"metadata": {"labels": {"x": 1}}}), field("number", "ObjectMeta.metadata.labels", "string")),
        (json!({"metadata": {"labels": []}}), field("array", "ObjectMeta.metadata.labels", "map[string]string")),
        (json!({"metadata": {"finalizers": ["x", 3]}}), field("number", "ObjectMeta.metadata.finalizers", "string")),
        (json!({"spec": {"replicas": 1.5}}), field("number 1.5", "DeploymentSpec.spec.replicas", "int32")),
        (
            json!({"spec": {"replicas": 99_999_999_999_i64}}),
            field("number 99999999999", "DeploymentSpec.spec.replicas", "int32"),
        ),
        (json!({"spec": {"paused": "yes"}}), field("string", "DeploymentSpec.spec.paused", "bool")),
        (json!({"spec": {"maxSurge": true}}), field("bool", "DeploymentSpec.spec.maxSurge", "int32")),
        (json!({"spec": {"containers": {}}}), field("object", "DeploymentSpec.spec.containers", "[]v1.Container")),
        (json!({"spec": {"containers": ["x"]}}), field("string", "DeploymentSpec.spec.containers", "v1.Container")),
        (json!({"spec": {"containers": [{"image": 5}]}}), field("number", "Container.spec.containers.image", "string")),
        (json!({"spec": {"data": {"x": 5}}}), field("number", "DeploymentSpec.spec.data", "[]uint8")),
        (
            json!({"metadata": {"creationTimestamp": 5}}),
            field("number", "ObjectMeta.metadata.creationTimestamp", "string"),
        ),
        (json!({"spec": {"limits": {"cpu": "x y"}}}), quantity.to_owned()),
        (json!({"spec": {"limits": {"cpu": {}}}}), quantity.to_owned()),
        (json!({"spec": {"data": {"x": "abc"}}}), "illegal base64 data at input byte 0".to_owned()),
        (json!({"spec": {"data": {"x": "a!=="}}}), "illegal base64 data at input byte 1".to_owned()),
    ];
    for (mut value, want) in cases {
        assert_eq!(decode(&schema(), &mut value, "Deployment"), Err(want), "{value}");
    }
}

#[test]
fn unknown_fields_are_dropped_and_reported() {
    let mut value = json!({"apiVersion": "apps/v1", "Spec": {}, "metadata": {"foo": 1},
        "spec": {"containers": [{"image": "a", "x": 1}], "raw": {"anything": null}}});
    let unknown = decode(&schema(), &mut value, "Deployment").expect("decodes");
    let texts: Vec<String> = unknown.iter().map(ToString::to_string).collect();
    assert_eq!(
        texts,
        [r#"unknown field "Spec""#, r#"unknown field "metadata.foo""#, r#"unknown field "spec.containers[0].x""#]
    );
    assert_eq!(
        value,
        json!({"apiVersion": "apps/v1", "metadata": {}, "spec": {"containers": [{"image": "a"}], "raw": {"anything": null}}})
    );
}

#[test]
fn null_is_absent_and_values_become_canonical() {
    let mut value = json!({"spec": {"replicas": null, "limits": {"cpu": 1.5, "memory": "1024Ki", "x": null},
        "containers": [null], "data": {"x": "YQ=="}},
        "metadata": {"creationTimestamp": "2024-01-02T03:04:05+01:00", "renewTime": "2024-01-02T03:04:05.000001Z"}});
    assert_eq!(decode(&schema(), &mut value, "Deployment"), Ok(vec![]));
    assert_eq!(
        value,
        json!({"spec": {"limits": {"cpu": "1500m", "memory": "1Mi", "x": "0"}, "containers": [{}], "data": {"x": "YQ=="}},
            "metadata": {"creationTimestamp": "2024-01-02T02:04:05Z", "renewTime": "2024-01-02T03:04:05.000001Z"}})
    );
}
