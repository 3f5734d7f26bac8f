//! The definitions of a Widget in both versions.

use serde_json::json;

use super::*;
use crate::openapi::widgets;

/// The definition of `<version>.<kind>`, without descriptions.
fn definition(version: &str, kind: &str, syntax: Syntax) -> Value {
    let (catalog, crds) = (widgets::catalog(), [widgets::crd()]);
    let all = served(&catalog, &crds).iter().flat_map(|c| c.definitions(syntax)).collect::<Map<String, Value>>();
    let mut definition = all[&format!("com.example.shop.{version}.{kind}")].clone();
    strip(&mut definition);
    definition
}

fn strip(schema: &mut Value) {
    if let Some(map) = schema.as_object_mut() {
        map.remove("description");
        map.values_mut().for_each(strip);
    }
}

#[test]
fn v3_publishes_the_schema_as_it_is() {
    let meta = json!({"allOf": [{"$ref": format!("#/components/schemas/{OBJECT_META}")}]});
    let text = json!({"type": "string"});
    let widget = definition("v1", "Widget", Syntax::V3);
    assert_eq!(widget["properties"]["metadata"], meta);
    assert_eq!(
        widget["x-kubernetes-group-version-kind"],
        json!([{"group": "shop.example.com", "version": "v1", "kind": "Widget"}])
    );
    assert_eq!(widget["x-kubernetes-selectable-fields"], json!([{"fieldPath": ".spec.size"}]));
    let spec = &widget["properties"]["spec"];
    assert_eq!(spec["required"], json!(["size", "note"]));
    assert_eq!(spec["properties"]["size"], json!({"type": "string", "enum": ["a", "b"], "default": "a"}));
    assert_eq!(
        spec["properties"]["iq"],
        json!({"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}]})
    );
    assert_eq!(
        spec["properties"]["template"],
        json!({"type": "object", "x-kubernetes-embedded-resource": true, "required": ["kind", "apiVersion"],
            "properties": {"apiVersion": text, "kind": text, "metadata": meta, "spec": {"type": "object"}}})
    );
    assert_eq!(spec["properties"]["one"]["oneOf"], json!([{"required": ["x"]}]));
}

#[test]
fn v2_leaves_out_what_it_cannot_say() {
    let widget = definition("v1", "Widget", Syntax::V2);
    let spec = &widget["properties"]["spec"];
    assert_eq!(spec["required"], json!(["size"]));
    let cases = [
        ("size", json!({"type": "string", "enum": ["a", "b"]})),
        ("replicas", json!({"format": "int32", "minimum": 0})),
        ("note", json!({})),
        ("iq", json!({"x-kubernetes-int-or-string": true})),
        ("any", json!({"x-kubernetes-preserve-unknown-fields": true})),
        ("open", json!({"x-kubernetes-preserve-unknown-fields": true})),
        ("one", json!({"type": "object", "properties": {"x": {"type": "string"}}})),
        ("labels", json!({"type": "object", "additionalProperties": {"type": "string"}})),
    ];
    for (field, want) in cases {
        assert_eq!(spec["properties"][field], want, "{field}");
    }
    let template = &spec["properties"]["template"];
    assert_eq!(template["properties"]["metadata"], json!({"$ref": format!("#/definitions/{OBJECT_META}")}));
}

#[test]
fn an_open_schema_has_no_properties_in_v2() {
    let gvk = json!([{"group": "shop.example.com", "version": "v1alpha1", "kind": "Widget"}]);
    assert_eq!(
        definition("v1alpha1", "Widget", Syntax::V2),
        json!({"type": "object", "x-kubernetes-group-version-kind": gvk})
    );
    let v3 = definition("v1alpha1", "Widget", Syntax::V3);
    assert!(v3["properties"]["metadata"].is_object());
}

#[test]
fn lists_refer_to_their_items() {
    let list = definition("v1", "WidgetList", Syntax::V2);
    assert_eq!(list["properties"]["items"]["items"], json!({"$ref": "#/definitions/com.example.shop.v1.Widget"}));
    assert_eq!(list["required"], json!(["items"]));
}

#[test]
fn versions_that_are_not_served_are_not_published() {
    let (catalog, mut crd) = (widgets::catalog(), widgets::crd());
    crd["spec"]["versions"][1]["name"] = json!("v2");
    let crds = [crd];
    let names: Vec<String> = served(&catalog, &crds).iter().map(|c| c.gvk.version.clone()).collect();
    assert_eq!(names, ["v1"]);
}
