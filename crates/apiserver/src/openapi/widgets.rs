//! A custom resource with one of everything: what `shop.example.com` Widgets look like to the server.

use std::collections::BTreeMap;
use std::sync::Arc;

use croft_api::{Column, Names, Resource, Scale, Scope, Subresource, Version, builtin};
use croft_meta::Gvk;
use serde_json::{Value, json};

use crate::catalog::Catalog;

/// Name, type and path of the columns of `v1`.
const COLUMNS: &[(&str, &str, &str)] = &[
    ("Ready", "string", ".status.conditions[?(@.type==\"Ready\")].status"),
    ("Replicas", "integer", ".spec.replicas"),
    ("Sizes", "string", ".spec.sizes[*]"),
    ("Flag", "boolean", ".spec.flag"),
    ("Num", "number", ".spec.num"),
    ("Obj", "string", ".spec.obj"),
    ("Iq", "string", ".spec.iq"),
    ("Age", "date", ".metadata.creationTimestamp"),
];

pub(crate) fn catalog() -> Catalog {
    Catalog::new(builtin().iter().cloned().chain([Arc::new(resource())]), BTreeMap::new())
}

pub(crate) fn resource() -> Resource {
    let template = builtin().iter().find(|r| r.names.kind == "ConfigMap").expect("a built-in kind");
    let columns = |version: &str| {
        let column = |(name, ty, path): &(&str, &str, &str)| Column {
            name: (*name).to_owned(),
            ty: (*ty).to_owned(),
            format: String::new(),
            description: String::new(),
            priority: 0,
            json_path: (*path).to_owned(),
        };
        if version == "v1" { COLUMNS.iter().map(column).collect() } else { Vec::new() }
    };
    let group = "shop.example.com";
    let subresource =
        |name: &str, kind: Gvk| Subresource { name: name.to_owned(), kind, verbs: vec!["get", "patch", "update"] };
    let version = |name: &str| Version {
        name: name.to_owned(),
        schema: template.versions[0].schema.clone(),
        columns: columns(name),
        subresources: vec![
            subresource("status", Gvk::new(group, name, "Widget")),
            subresource("scale", Gvk::new("autoscaling", "v1", "Scale")),
        ],
        scale: Some(Scale {
            spec_replicas: "spec.replicas".to_owned(),
            status_replicas: "status.replicas".to_owned(),
            label_selector: None,
        }),
        selectable_fields: Vec::new(),
        deprecation_warning: None,
    };
    Resource {
        group: group.to_owned(),
        names: Names {
            plural: "widgets".to_owned(),
            singular: "widget".to_owned(),
            kind: "Widget".to_owned(),
            list_kind: "WidgetList".to_owned(),
            short_names: vec!["wd".to_owned()],
            categories: vec!["all".to_owned()],
        },
        scope: Scope::Namespaced,
        versions: vec![version("v1"), version("v1alpha1")],
        storage_version: "v1".to_owned(),
        storage_key: "shop.example.com/widgets".to_owned(),
        verbs: vec!["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"],
        is_virtual: false,
        is_custom: true,
        behaviour: Arc::clone(&template.behaviour),
    }
}

/// Its definition.
pub(crate) fn crd() -> Value {
    let spec = json!({
        "type": "object",
        "required": ["size", "note"],
        "properties": {
            "size": {"type": "string", "enum": ["a", "b"], "default": "a", "description": "how big"},
            "replicas": {"type": "integer", "format": "int32", "minimum": 0, "nullable": true},
            "note": {"type": "string", "nullable": true},
            "iq": {"x-kubernetes-int-or-string": true},
            "any": {"x-kubernetes-preserve-unknown-fields": true},
            "open": {"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {"a": {"type": "string"}}},
            "template": {"type": "object", "x-kubernetes-embedded-resource": true, "properties": {"spec": {"type": "object"}}},
            "list": {
                "type": "array",
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["name"],
                "items": {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}}},
            },
            "one": {"type": "object", "properties": {"x": {"type": "string"}}, "oneOf": [{"required": ["x"]}]},
            "labels": {"type": "object", "additionalProperties": {"type": "string"}},
        },
    });
    let properties = json!({"metadata": {"type": "object"}, "spec": spec, "status": {"type": "object"}});
    let open = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.shop.example.com"},
        "spec": {
            "group": "shop.example.com",
            "scope": "Namespaced",
            "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
            "versions": [
                {
                    "name": "v1",
                    "served": true,
                    "schema": {"openAPIV3Schema": {"type": "object", "description": "a widget", "properties": properties}},
                    "selectableFields": [{"jsonPath": ".spec.size"}],
                },
                {"name": "v1alpha1", "served": true, "schema": {"openAPIV3Schema": open}},
            ],
        },
    })
}
