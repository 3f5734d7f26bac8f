//! Structural schemas from the structs of the kinds.
//!
//! What schemars writes is brought into the form that a CustomResourceDefinition demands: nothing is referred to,
//! nothing is described (descriptions of nested Kubernetes types would be most of the text), and what is not
//! required may be `null`, which is how Go writes what is unset.

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

/// Keywords that are taken over as they are.
const KEPT: &[&str] = &[
    "type",
    "format",
    "enum",
    "minimum",
    "maximum",
    "maxItems",
    "maxLength",
    "pattern",
    "x-kubernetes-int-or-string",
    "x-kubernetes-list-type",
    "x-kubernetes-list-map-keys",
    "x-kubernetes-preserve-unknown-fields",
];

/// Go's quantities: `1`, `"1Gi"`, `"0.5"`.
const QUANTITY: &str = r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$";

/// The `openAPIV3Schema` of a kind.
pub(crate) fn of<T: JsonSchema>() -> Value {
    let root = SchemaSettings::draft2020_12().into_generator().into_root_schema_for::<T>();
    let root = root.to_value();
    let definitions = root.get("$defs").and_then(Value::as_object).cloned().unwrap_or_default();
    let mut schema = convert(&root, &definitions);
    if let Value::Object(properties) = &mut schema["properties"] {
        for field in ["apiVersion", "kind"] {
            properties.insert(field.to_owned(), json!({"type": "string"}));
        }
        properties.insert("metadata".to_owned(), json!({"type": "object"}));
    }
    if let Some(description) = root.get("description") {
        schema["description"] = description.clone();
    }
    schema
}

/// The schema of a type that is a part of kinds.
pub(crate) fn part<T: JsonSchema>() -> Value {
    let root = SchemaSettings::draft2020_12().into_generator().into_root_schema_for::<T>();
    let root = root.to_value();
    let definitions = root.get("$defs").and_then(Value::as_object).cloned().unwrap_or_default();
    convert(&root, &definitions)
}

pub(crate) fn quantity() -> Value {
    json!({
        "anyOf": [{"type": "integer"}, {"type": "string"}],
        "pattern": QUANTITY,
        "x-kubernetes-int-or-string": true,
    })
}

fn convert(node: &Value, definitions: &Map<String, Value>) -> Value {
    // `true`: anything.
    let Some(node) = node.as_object() else { return json!({"x-kubernetes-preserve-unknown-fields": true}) };
    if let Some(schema) = referred(node, definitions) {
        return schema;
    }
    let mut schema = Map::new();
    for keyword in KEPT {
        if let Some(value) = node.get(*keyword) {
            schema.insert((*keyword).to_owned(), value.clone());
        }
    }
    if let Some(default) = node.get("x-default") {
        schema.insert("default".to_owned(), default.clone());
    }
    plain_type(&mut schema);
    whole_numbers(&mut schema);
    if let Some(items) = node.get("items") {
        schema.insert("items".to_owned(), convert(items, definitions));
    }
    if let Some(properties) = node.get("properties").and_then(Value::as_object) {
        fields(node, properties, definitions, &mut schema);
    }
    match node.get("additionalProperties") {
        None | Some(Value::Bool(false)) => {}
        // A struct that keeps what it does not know, or a map of anything.
        Some(Value::Bool(true)) => {
            schema.insert("x-kubernetes-preserve-unknown-fields".to_owned(), json!(true));
        }
        Some(values) => {
            schema.insert("additionalProperties".to_owned(), convert(values, definitions));
        }
    }
    Value::Object(schema)
}

/// What the node refers to: `{"$ref"}`, or an optional one, `{"anyOf": [{"$ref"}, {"type": "null"}]}`.
fn referred(node: &Map<String, Value>, definitions: &Map<String, Value>) -> Option<Value> {
    if let Some(branches) = node.get("anyOf").and_then(Value::as_array) {
        let branch = branches.iter().find(|branch| branch.get("type").is_none_or(|ty| ty != "null"))?;
        return Some(convert(branch, definitions));
    }
    let name = node.get("$ref")?.as_str()?.strip_prefix("#/$defs/")?;
    Some(match name.rsplit('.').next() {
        Some("Quantity") => quantity(),
        // Metadata of a template: only what the object that is made from it accepts, which is checked then.
        Some("ObjectMeta") => json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true}),
        _ => convert(definitions.get(name)?, definitions),
    })
}

/// `["string", "null"]` is `string`; whether null is accepted is the parent's to say.
fn plain_type(schema: &mut Map<String, Value>) {
    let Some(types) = schema.get("type").and_then(Value::as_array) else { return };
    if let Some(ty) = types.iter().find(|ty| *ty != "null").cloned() {
        schema.insert("type".to_owned(), ty);
    }
}

/// Formats that Kubernetes does not know become bounds, so that what is accepted can also be read.
fn whole_numbers(schema: &mut Map<String, Value>) {
    let (format, maximum) = match schema.get("format").and_then(Value::as_str) {
        Some("uint32") => ("int64", Some(u64::from(u32::MAX))),
        Some("uint64") => ("int64", None),
        _ => return,
    };
    schema.insert("format".to_owned(), json!(format));
    schema.insert("minimum".to_owned(), json!(0));
    if let Some(maximum) = maximum {
        schema.insert("maximum".to_owned(), json!(maximum));
    }
}

fn fields(
    node: &Map<String, Value>,
    properties: &Map<String, Value>,
    definitions: &Map<String, Value>,
    schema: &mut Map<String, Value>,
) {
    let required: Vec<&Value> = node.get("required").and_then(Value::as_array).into_iter().flatten().collect();
    let mut converted = Map::new();
    for (name, property) in properties {
        let mut property = convert(property, definitions);
        let is_required = required.iter().any(|field| *field == name);
        if !is_required && property.get("default").is_none() {
            property["nullable"] = json!(true);
        }
        converted.insert(name.clone(), property);
    }
    schema.insert("properties".to_owned(), Value::Object(converted));
    if !required.is_empty() {
        schema.insert("required".to_owned(), json!(required));
    }
}
