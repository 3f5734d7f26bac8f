//! Definitions of custom resources, from the schemas in their CustomResourceDefinitions.
//!
//! Follows apiextensions-apiserver's `pkg/controller/openapi`: the user's schema is published with the fields that every
//! object has, and in OpenAPI v2 without what that version, or kubectl's reading of it, cannot express.

use croft_meta::Gvk;
use serde_json::{Map, Value, json};

use super::document::{LIST_META, OBJECT_META, Syntax};
use crate::catalog::Catalog;

const PRESERVE: &str = "x-kubernetes-preserve-unknown-fields";
const INT_OR_STRING: &str = "x-kubernetes-int-or-string";
const EMBEDDED: &str = "x-kubernetes-embedded-resource";

/// `com.example.shop.v1.Widget`: the group's labels backwards.
pub(super) fn definition_name(gvk: &Gvk) -> String {
    let mut labels: Vec<&str> = gvk.group.split('.').rev().collect();
    labels.extend([gvk.version.as_str(), gvk.kind.as_str()]);
    labels.join(".")
}

/// One version of a CustomResourceDefinition.
pub(super) struct Custom<'a> {
    pub(super) gvk: Gvk,
    names: &'a Value,
    version: &'a Value,
}

/// The versions that the catalog serves.
pub(super) fn served<'a>(catalog: &Catalog, crds: &'a [Value]) -> Vec<Custom<'a>> {
    let mut customs = Vec::new();
    for crd in crds {
        let (spec, names) = (&crd["spec"], &crd["spec"]["names"]);
        let text = |value: &'a Value| value.as_str().unwrap_or_default();
        for version in spec["versions"].as_array().into_iter().flatten() {
            let gvk = Gvk::new(text(&spec["group"]), text(&version["name"]), text(&names["kind"]));
            if catalog.find_kind(&gvk).is_some_and(|s| s.resource.is_custom) {
                customs.push(Custom { gvk, names, version });
            }
        }
    }
    customs
}

impl Custom<'_> {
    /// The definitions of the kind and of its list.
    pub(super) fn definitions(&self, syntax: Syntax) -> [(String, Value); 2] {
        let kind = &self.gvk.kind;
        let list_kind = self.names["listKind"].as_str().map_or_else(|| format!("{kind}List"), str::to_owned);
        let list = Gvk { kind: list_kind, ..self.gvk.clone() };
        [
            (definition_name(&self.gvk), self.with_extensions(self.object(syntax), &self.gvk)),
            (definition_name(&list), self.with_extensions(self.list(&list.kind, syntax), &list)),
        ]
    }

    fn with_extensions(&self, mut definition: Value, gvk: &Gvk) -> Value {
        definition["x-kubernetes-group-version-kind"] =
            json!([{"group": gvk.group, "version": gvk.version, "kind": gvk.kind}]);
        if let Some(fields) = self.version["selectableFields"].as_array().filter(|f| !f.is_empty()) {
            let fields: Vec<Value> = fields.iter().map(|f| json!({"fieldPath": f["jsonPath"]})).collect();
            definition["x-kubernetes-selectable-fields"] = json!(fields);
        }
        definition
    }

    fn object(&self, syntax: Syntax) -> Value {
        let schema = &self.version["schema"]["openAPIV3Schema"];
        // kubectl takes the properties of a v2 definition for all that are allowed.
        if !schema.is_object() || (syntax == Syntax::V2 && is_true(schema, PRESERVE)) {
            return json!({"type": "object"});
        }
        let mut schema = schema.clone();
        publish(&mut schema, syntax);
        let properties = properties_mut(&mut schema);
        properties.insert("apiVersion".to_owned(), api_version());
        properties.insert("kind".to_owned(), kind());
        properties.insert("metadata".to_owned(), object_meta(syntax));
        schema
    }

    fn list(&self, list_kind: &str, syntax: Syntax) -> Value {
        let plural = self.names["plural"].as_str().unwrap_or_default();
        json!({
            "type": "object",
            "description": format!("{list_kind} is a list of {}", self.gvk.kind),
            "required": ["items"],
            "properties": {
                "apiVersion": api_version(),
                "kind": kind(),
                "metadata": syntax.reference_with(LIST_META, "Metadata of the list: its resourceVersion, and a token for the next page."),
                "items": {
                    "type": "array",
                    "description": format!("The {plural}."),
                    "items": syntax.reference(&definition_name(&self.gvk)),
                },
            },
        })
    }
}

fn api_version() -> Value {
    json!({"type": "string", "description": "The group and version of the API that this object is written in, such as apps/v1."})
}

fn kind() -> Value {
    json!({"type": "string", "description": "What the object is, such as Deployment. It cannot be changed."})
}

fn object_meta(syntax: Syntax) -> Value {
    syntax.reference_with(OBJECT_META, "Metadata that every object has: name, namespace, labels and more.")
}

fn is_true(schema: &Value, field: &str) -> bool {
    schema[field] == Value::Bool(true)
}

fn properties_mut(schema: &mut Value) -> &mut Map<String, Value> {
    if !schema["properties"].is_object() {
        schema["properties"] = json!({});
    }
    match &mut schema["properties"] {
        Value::Object(map) => map,
        _ => unreachable!("made an object above"),
    }
}

/// Turns one node of a user's schema, and all below it, into its published form.
fn publish(schema: &mut Value, syntax: Syntax) {
    match syntax {
        Syntax::V2 => to_v2(schema),
        Syntax::V3 => unfold(schema),
    }
    if let Some(map) = schema.as_object_mut() {
        map.retain(|name, value| !(*value == Value::Bool(false) && (name == "nullable" || name.starts_with("x-"))));
    }
    for child in children_mut(schema) {
        publish(child, syntax);
    }
    if is_true(schema, EMBEDDED) && !(syntax == Syntax::V2 && is_true(schema, PRESERVE)) {
        embed(schema, syntax);
    }
}

fn children_mut(schema: &mut Value) -> Vec<&mut Value> {
    let mut children = Vec::new();
    for (name, value) in schema.as_object_mut().into_iter().flatten() {
        match (name.as_str(), value) {
            ("properties", Value::Object(map)) => children.extend(map.values_mut()),
            ("items" | "additionalProperties", value @ Value::Object(_)) => children.push(value),
            _ => {}
        }
    }
    children
}

/// An int-or-string says so in plain OpenAPI too.
fn unfold(schema: &mut Value) {
    if is_true(schema, INT_OR_STRING) && schema.get("anyOf").is_none() && schema.get("allOf").is_none() {
        schema["anyOf"] = json!([{"type": "integer"}, {"type": "string"}]);
    }
}

/// An embedded object has the fields that every object has.
fn embed(schema: &mut Value, syntax: Syntax) {
    let properties = properties_mut(schema);
    properties.insert("apiVersion".to_owned(), api_version());
    properties.insert("kind".to_owned(), kind());
    properties.insert("metadata".to_owned(), object_meta(syntax));
    let mut required = schema["required"].as_array().cloned().unwrap_or_default();
    for field in ["kind", "apiVersion"] {
        if !required.iter().any(|r| r == field) {
            required.push(json!(field));
        }
    }
    schema["required"] = Value::Array(required);
}

fn to_v2(schema: &mut Value) {
    let nullable = nullable_properties(schema);
    let Some(map) = schema.as_object_mut() else { return };
    for unsupported in ["allOf", "anyOf", "oneOf", "not", "default"] {
        map.remove(unsupported);
    }
    let is = |map: &Map<String, Value>, field: &str| map.get(field) == Some(&Value::Bool(true));
    let (is_nullable, preserves) = (is(map, "nullable"), is(map, PRESERVE));
    if is_nullable {
        map.remove("type");
        map.remove("nullable");
    }
    // kubectl fails on properties or items of a node without a type, and refuses unknown fields beside known ones.
    if is_nullable || preserves {
        map.remove("items");
        map.remove("properties");
    }
    let is_bare_list = map.get("type").is_some_and(|t| t == "array") && !map.contains_key("items");
    let is_open_object = map.get("type").is_some_and(|t| t == "object") && preserves;
    if is_bare_list || is_open_object {
        map.remove("type");
    }
    if let Some(required) = map.get_mut("required").and_then(Value::as_array_mut) {
        required.retain(|name| !nullable.iter().any(|n| name == n));
        if required.is_empty() {
            map.remove("required");
        }
    }
}

fn nullable_properties(schema: &Value) -> Vec<String> {
    let properties = schema["properties"].as_object();
    properties.into_iter().flatten().filter(|(_, p)| is_true(p, "nullable")).map(|(name, _)| name.clone()).collect()
}

#[cfg(test)]
mod tests;
