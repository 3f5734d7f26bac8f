//! Reads a schema from OpenAPI v3 JSON, the `JSONSchemaProps` of a CustomResourceDefinition.

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, LazyLock, Mutex, PoisonError, Weak};

use serde_json::{Map, Number, Value};

use crate::model::{Additional, Constraints, ListType, PatchStrategy, Schema, Type};

/// Why JSON is not a schema.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SchemaError {
    #[error("a schema must be an object")]
    NotAnObject,
    #[error("OpenAPIV3Schema '{0}' is not supported")]
    Unsupported(&'static str),
    #[error("unknown type {0:?}")]
    UnknownType(String),
}

/// What a structural schema may not contain.
const UNSUPPORTED: [&str; 7] =
    ["id", "$schema", "$ref", "patternProperties", "dependencies", "additionalItems", "definitions"];

impl Schema {
    /// Reads one schema and everything below it.
    pub fn from_json(json: &Value) -> Result<Self, SchemaError> {
        Reader::default().read(json)
    }
}

/// Reads a tree. Equal parts become one node: large definitions repeat a few shapes, and most leaves are alike.
#[derive(Default)]
struct Reader<'a> {
    seen: HashMap<&'a Value, Arc<Schema>>,
}

/// From how many fields on a part is looked for in the schemas of other definitions too: these repeat only large
/// shapes, such as the spec of a machine.
const LARGE: usize = 8;

/// The large parts of all schemas that are in use, by two hashes with random keys: nobody can make two parts collide.
#[derive(Default)]
struct Known {
    keys: [RandomState; 2],
    parts: HashMap<[u64; 2], Weak<Schema>>,
}

static KNOWN: LazyLock<Mutex<Known>> = LazyLock::new(Mutex::default);

impl Known {
    /// The one that is there already, or this one from now on.
    fn one_of(json: &Value, schema: Schema) -> Arc<Schema> {
        let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        let key = [known.keys[0].hash_one(json), known.keys[1].hash_one(json)];
        if let Some(there) = known.parts.get(&key).and_then(Weak::upgrade) {
            return there;
        }
        if known.parts.len() == known.parts.capacity() {
            known.parts.retain(|_, part| part.strong_count() > 0);
        }
        let schema = Arc::new(schema);
        known.parts.insert(key, Arc::downgrade(&schema));
        schema
    }
}

impl<'a> Reader<'a> {
    fn read(&mut self, json: &'a Value) -> Result<Schema, SchemaError> {
        let map = json.as_object().ok_or(SchemaError::NotAnObject)?;
        if let Some(keyword) = UNSUPPORTED.into_iter().find(|keyword| map.get(*keyword).is_some_and(is_set)) {
            return Err(SchemaError::Unsupported(keyword));
        }
        let flag = |name: &str| map.get(name) == Some(&Value::Bool(true));
        Ok(Schema {
            type_name: Arc::from(""),
            ty: read_type(map)?,
            nullable: flag("nullable"),
            preserve_unknown: flag("x-kubernetes-preserve-unknown-fields"),
            embedded_resource: flag("x-kubernetes-embedded-resource"),
            properties: self.properties(map)?,
            additional: self.additional(map)?,
            items: map.get("items").filter(|v| is_set(v)).map(|items| self.shared(items)).transpose()?,
            required: strings(map.get("required")),
            default: map.get("default").filter(|v| !v.is_null()).cloned(),
            list_type: read_list_type(map),
            map_atomic: map.get("x-kubernetes-map-type").is_some_and(|v| v == "atomic"),
            patch: read_patch_strategy(map),
            constraints: read_constraints(map)?,
            rules: map.get("x-kubernetes-validations").filter(|v| is_set(v)).cloned(),
        })
    }

    fn shared(&mut self, json: &'a Value) -> Result<Arc<Schema>, SchemaError> {
        if let Some(known) = self.seen.get(json) {
            return Ok(known.clone());
        }
        let schema = self.read(json)?;
        let schema = if schema.properties.len() < LARGE { Arc::new(schema) } else { Known::one_of(json, schema) };
        self.seen.insert(json, schema.clone());
        Ok(schema)
    }

    fn properties(&mut self, map: &'a Map<String, Value>) -> Result<BTreeMap<String, Arc<Schema>>, SchemaError> {
        let properties = map.get("properties").and_then(Value::as_object).into_iter().flatten();
        properties.map(|(name, json)| Ok((name.clone(), self.shared(json)?))).collect()
    }

    fn additional(&mut self, map: &'a Map<String, Value>) -> Result<Additional, SchemaError> {
        match map.get("additionalProperties") {
            None | Some(Value::Null | Value::Bool(false)) => Ok(Additional::None),
            // A map whose values are not described: their fields are unknown.
            Some(Value::Bool(true)) => Ok(Additional::Schema(Arc::new(Schema::default()))),
            Some(json) => Ok(Additional::Schema(self.shared(json)?)),
        }
    }
}

/// Go's zero values count as absent.
fn is_set(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => false,
        Value::String(text) => !text.is_empty(),
        Value::Array(list) => !list.is_empty(),
        Value::Object(_) | Value::Bool(true) | Value::Number(_) => true,
    }
}

fn strings(value: Option<&Value>) -> Vec<String> {
    value.and_then(Value::as_array).into_iter().flatten().filter_map(|v| v.as_str().map(str::to_owned)).collect()
}

fn read_type(map: &Map<String, Value>) -> Result<Type, SchemaError> {
    if map.get("x-kubernetes-int-or-string") == Some(&Value::Bool(true)) {
        return Ok(Type::IntOrString);
    }
    match map.get("type").and_then(Value::as_str).unwrap_or_default() {
        "" => Ok(Type::Any),
        "object" => Ok(Type::Object),
        "array" => Ok(Type::Array),
        "string" => Ok(Type::String),
        "integer" => Ok(Type::Integer),
        "number" => Ok(Type::Number),
        "boolean" => Ok(Type::Boolean),
        other => Err(SchemaError::UnknownType(other.to_owned())),
    }
}

fn read_list_type(map: &Map<String, Value>) -> ListType {
    match map.get("x-kubernetes-list-type").and_then(Value::as_str) {
        Some("set") => ListType::Set,
        Some("map") => ListType::Map(strings(map.get("x-kubernetes-list-map-keys"))),
        _ => ListType::Atomic,
    }
}

fn read_patch_strategy(map: &Map<String, Value>) -> PatchStrategy {
    let strategy = map.get("x-kubernetes-patch-strategy").and_then(Value::as_str).unwrap_or_default();
    let has = |name| strategy.split(',').any(|part| part == name);
    let merge_key = map.get("x-kubernetes-patch-merge-key").and_then(Value::as_str).map(str::to_owned);
    PatchStrategy { merge: has("merge"), retain_keys: has("retainKeys"), merge_key }
}

fn read_constraints(map: &Map<String, Value>) -> Result<Option<Box<Constraints>>, SchemaError> {
    const KEYWORDS: [&str; 17] = [
        "format",
        "pattern",
        "enum",
        "minimum",
        "maximum",
        "multipleOf",
        "minLength",
        "maxLength",
        "minItems",
        "maxItems",
        "uniqueItems",
        "minProperties",
        "maxProperties",
        "allOf",
        "anyOf",
        "oneOf",
        "not",
    ];
    if !KEYWORDS.iter().any(|keyword| map.contains_key(*keyword)) {
        return Ok(None);
    }
    let text = |name: &str| map.get(name).and_then(Value::as_str).filter(|t| !t.is_empty()).map(str::to_owned);
    let number = |name: &str| map.get(name).and_then(Value::as_number).cloned();
    let count = |name: &str| number(name).as_ref().and_then(Number::as_u64);
    let flag = |name: &str| map.get(name) == Some(&Value::Bool(true));
    let schemas = |name: &str| -> Result<Vec<Schema>, SchemaError> {
        map.get(name).and_then(Value::as_array).into_iter().flatten().map(Schema::from_json).collect()
    };
    let not = map.get("not").filter(|v| !v.is_null()).map(Schema::from_json).transpose()?;
    Ok(Some(Box::new(Constraints {
        format: text("format"),
        pattern: text("pattern"),
        enum_values: map.get("enum").and_then(Value::as_array).cloned().unwrap_or_default(),
        minimum: number("minimum"),
        maximum: number("maximum"),
        exclusive_minimum: flag("exclusiveMinimum"),
        exclusive_maximum: flag("exclusiveMaximum"),
        multiple_of: number("multipleOf"),
        min_length: count("minLength"),
        max_length: count("maxLength"),
        min_items: count("minItems"),
        max_items: count("maxItems"),
        unique_items: flag("uniqueItems"),
        min_properties: count("minProperties"),
        max_properties: count("maxProperties"),
        all_of: schemas("allOf")?,
        any_of: schemas("anyOf")?,
        one_of: schemas("oneOf")?,
        not: not.map(Box::new),
        compiled_pattern: crate::CompiledPattern::default(),
    })))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_part_of_a_schema_is_read() {
        let schema = Schema::from_json(&json!({
            "type": "object", "required": ["spec"],
            "properties": {
                "spec": {"type": "object", "nullable": true, "default": {}, "properties": {
                    "port": {"x-kubernetes-int-or-string": true, "default": null},
                    "list": {"type": "array", "items": {"type": "string", "pattern": "^a"}, "x-kubernetes-list-type": "set"},
                    "map": {"type": "object", "additionalProperties": {"type": "integer", "minimum": 1}},
                    "any": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
                    "conditions": {"type": "array", "items": {"type": "object"}, "x-kubernetes-list-type": "map",
                        "x-kubernetes-list-map-keys": ["type"], "x-kubernetes-patch-strategy": "merge,retainKeys",
                        "x-kubernetes-patch-merge-key": "type"},
                }},
            },
            "x-kubernetes-validations": [{"rule": "true"}],
        }))
        .expect("valid");
        assert_eq!(schema.required, ["spec"]);
        assert!(schema.rules.is_some());
        let spec = &schema.properties["spec"];
        assert!(spec.nullable && spec.default.is_some());
        assert_eq!(spec.properties["port"].ty, Type::IntOrString);
        assert!(spec.properties["port"].default.is_none());
        assert_eq!(spec.properties["list"].list_type, ListType::Set);
        assert!(matches!(&spec.properties["map"].additional, Additional::Schema(s) if s.ty == Type::Integer));
        assert!(spec.properties["any"].preserve_unknown);
        let conditions = &spec.properties["conditions"];
        assert_eq!(conditions.list_type, ListType::Map(vec!["type".to_owned()]));
        assert_eq!(
            conditions.patch,
            PatchStrategy { merge: true, retain_keys: true, merge_key: Some("type".to_owned()) }
        );
    }

    #[test]
    fn large_parts_of_different_schemas_are_one() {
        let fields: Map<String, Value> = (0..LARGE).map(|n| (format!("f{n}"), json!({"type": "string"}))).collect();
        let large = json!({"type": "object", "properties": fields});
        let whole = |part: &Value, more: &str| {
            let json = json!({"type": "object", "properties": {"spec": part, more: {"type": "integer"}}});
            Schema::from_json(&json).expect("valid")
        };
        let (first, second) = (whole(&large, "a"), whole(&large, "b"));
        assert!(Arc::ptr_eq(&first.properties["spec"], &second.properties["spec"]));
        let mut other = large.clone();
        other["properties"]["f0"]["type"] = json!("integer");
        assert!(!Arc::ptr_eq(&first.properties["spec"], &whole(&other, "a").properties["spec"]));
        assert_eq!(whole(&other, "a").properties["spec"].properties["f0"].ty, Type::Integer);
    }

    #[test]
    fn what_no_structural_schema_has_is_refused() {
        let cases = [
            (json!({"$ref": "#/x"}), "OpenAPIV3Schema '$ref' is not supported"),
            (
                json!({"properties": {"a": {"definitions": {"b": {}}}}}),
                "OpenAPIV3Schema 'definitions' is not supported",
            ),
            (json!({"type": "null"}), "unknown type \"null\""),
            (json!([]), "a schema must be an object"),
        ];
        for (json, want) in cases {
            assert_eq!(Schema::from_json(&json).expect_err("refused").to_string(), want);
        }
    }
}
