//! What the tests of this crate share: schemas from JSON, and arbitrary objects.

use std::sync::Arc;

use croft_schema::{Additional, Constraints, ListType, PatchStrategy, Schema, Type};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

/// Reads the part of an OpenAPI schema that this crate looks at. `x-go-type` names the type of a built-in kind.
pub(crate) fn schema(json: &Value) -> Schema {
    let flag = |name: &str| json.get(name) == Some(&Value::Bool(true));
    let text = |name: &str| json.get(name).and_then(Value::as_str).unwrap_or_default();
    let texts = |name: &str| -> Vec<String> {
        json.get(name)
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .filter_map(|v| v.as_str().map(str::to_owned))
            .collect()
    };
    let ty = match text("type") {
        _ if flag("x-kubernetes-int-or-string") || text("format") == "int-or-string" => Type::IntOrString,
        "object" => Type::Object,
        "array" => Type::Array,
        "string" => Type::String,
        "integer" => Type::Integer,
        "number" => Type::Number,
        "boolean" => Type::Boolean,
        _ => Type::Any,
    };
    let child = |json: &Value| Arc::new(schema(json));
    let format = (!text("format").is_empty()).then(|| text("format").to_owned());
    Schema {
        type_name: text("x-go-type").into(),
        ty,
        preserve_unknown: flag("x-kubernetes-preserve-unknown-fields"),
        properties: json
            .get("properties")
            .and_then(Value::as_object)
            .into_iter()
            .flatten()
            .map(|(name, json)| (name.clone(), child(json)))
            .collect(),
        additional: match json.get("additionalProperties") {
            Some(json @ Value::Object(_)) => Additional::Schema(child(json)),
            _ => Additional::None,
        },
        items: json.get("items").map(child),
        required: texts("required"),
        default: json.get("default").cloned(),
        list_type: match text("x-kubernetes-list-type") {
            "set" => ListType::Set,
            "map" => ListType::Map(texts("x-kubernetes-list-map-keys")),
            _ => ListType::Atomic,
        },
        map_atomic: text("x-kubernetes-map-type") == "atomic",
        patch: PatchStrategy {
            merge: text("x-kubernetes-patch-strategy").split(',').any(|s| s == "merge"),
            retain_keys: text("x-kubernetes-patch-strategy").contains("retainKeys"),
            merge_key: json.get("x-kubernetes-patch-merge-key").and_then(Value::as_str).map(str::to_owned),
        },
        constraints: format.map(|format| Box::new(Constraints { format: Some(format), ..Constraints::default() })),
        ..Schema::default()
    }
}

/// A schema with a field of every kind.
pub(crate) fn thing() -> Schema {
    schema(&json!({"type": "object", "properties": {
        "spec": {"type": "object", "properties": {
            "text": {"type": "string"},
            "number": {"type": "integer"},
            "struct": {"type": "object", "properties": {
                "a": {"type": "string"},
                "inner": {"type": "object", "properties": {"b": {"type": "string"}, "c": {"type": "string"}}},
            }},
            "map": {"type": "object", "additionalProperties": {"type": "string"}},
            "whole": {"type": "object", "x-kubernetes-map-type": "atomic", "additionalProperties": {"type": "string"}},
            "list": {"type": "array", "items": {"type": "string"}},
            "set": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
            "items": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
                "items": {"type": "object", "properties": {
                    "name": {"type": "string"}, "value": {"type": "string"},
                    "tags": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
                }}},
            "ports": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["port", "protocol"],
                "items": {"type": "object", "properties": {
                    "port": {"type": "integer"}, "protocol": {"type": "string", "default": "TCP"}, "name": {"type": "string"},
                }}},
            "any": {"x-kubernetes-preserve-unknown-fields": true},
        }},
        "status": {"type": "object", "properties": {"phase": {"type": "string"}}},
    }}))
}

/// Any JSON of moderate size, with keys and strings from a small alphabet so that things meet.
pub(crate) fn any_json() -> impl Strategy<Value = Value> {
    let scalar = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-3..3i64).prop_map(Value::from),
        Just(json!(1.0)),
        "[ab<]{0,2}".prop_map(Value::from),
    ];
    scalar.prop_recursive(4, 32, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::Array),
            prop::collection::btree_map(any_key(), inner, 0..5)
                .prop_map(|map| Value::Object(map.into_iter().collect::<Map<_, _>>())),
        ]
    })
}

fn any_key() -> impl Strategy<Value = String> {
    prop::sample::select(vec![
        "metadata",
        "managedFields",
        "spec",
        "status",
        "text",
        "number",
        "struct",
        "a",
        "inner",
        "b",
        "map",
        "whole",
        "list",
        "set",
        "items",
        "name",
        "value",
        "tags",
        "ports",
        "port",
        "protocol",
        "any",
        "labels",
        "uid",
        "finalizers",
        "ownerReferences",
        "f:spec",
        "f:set",
        "v:\"a\"",
        "k:{\"name\":\"a\"}",
        ".",
        "i:0",
        "x",
        "$patch",
        "$retainKeys",
        "$setElementOrder/items",
        "$deleteFromPrimitiveList/set",
    ])
    .prop_map(str::to_owned)
}

/// A specification that fits [`thing`]. Nothing in it is empty: an empty list is owned by nobody, and a
/// map that is emptied becomes null first, so that applying those is not idempotent (upstream's neither).
pub(crate) fn thing_spec() -> impl Strategy<Value = Value> {
    let word = || prop::sample::select(vec!["a", "b", "c"]);
    let words = move || prop::collection::btree_set(word(), 1..4).prop_shuffle_words();
    let map = move || prop::collection::btree_map(word(), word(), 1..3).prop_map(|m| json!(m));
    let item = (prop::option::of(word()), prop::option::of(words())).prop_map(|(value, tags)| {
        let mut item = json!({});
        if let Some(value) = value {
            item["value"] = json!(value);
        }
        if let Some(tags) = tags {
            item["tags"] = tags;
        }
        item
    });
    let items = prop::collection::btree_map(word(), item, 1..3).prop_map(|items| {
        let named = items.into_iter().map(|(name, mut item)| {
            item["name"] = json!(name);
            item
        });
        Value::Array(named.collect())
    });
    let inner = (word(), word()).prop_map(|(field, value)| {
        let field = if field == "a" { "b" } else { "c" };
        json!({"inner": {field: value}})
    });
    let any = map().prop_map(|m| json!({"deep": m, "list": [m]}));
    let fields = (
        prop::option::of(word().prop_map(|w| json!(w))),
        prop::option::of((0..3i64).prop_map(|n| json!(n))),
        prop::option::of(inner),
        prop::option::of(map()),
        prop::option::of(map()),
        prop::option::of(words()),
        prop::option::of(words()),
        prop::option::of(items),
        prop::option::of(any),
    );
    fields.prop_map(|(text, number, inner, map, whole, list, set, items, any)| {
        let fields = [
            ("text", text),
            ("number", number),
            ("struct", inner),
            ("map", map),
            ("whole", whole),
            ("list", list),
            ("set", set),
            ("items", items),
            ("any", any),
        ];
        fields.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect::<Map<_, _>>().into()
    })
}

trait ShuffleWords {
    fn prop_shuffle_words(self) -> BoxedStrategy<Value>;
}

impl<S: Strategy<Value = std::collections::BTreeSet<&'static str>> + 'static> ShuffleWords for S {
    fn prop_shuffle_words(self) -> BoxedStrategy<Value> {
        self.prop_map(|set| set.into_iter().collect::<Vec<_>>()).prop_shuffle().prop_map(|words| json!(words)).boxed()
    }
}
