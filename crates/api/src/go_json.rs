//! Objects of built-in kinds as Go would write them.
//!
//! Kubernetes reads a body into structs and writes the structs back, so `null`s and most zero values vanish, embedded
//! structs appear even when empty (`resources: {}`), quantities and times take their canonical form. Clients compare
//! what they sent with what they get; a server that keeps JSON as it came has to do the same on purpose.

use croft_meta::quantity::Quantity;
use croft_meta::{object, time};
use serde_json::{Map, Value};

use crate::wire::{Body, Field, Presence, Shape, TABLE, Ty, TypeDef};

/// Brings an object of a built-in kind into Go's form; objects of other kinds are left alone.
pub(crate) fn canonicalise(value: &mut Value) {
    let gvk = object::gvk(value);
    if let Some(index) = TABLE.of_kind(&gvk.group, &gvk.version, &gvk.kind) {
        canonicalise_as(value, index);
    }
}

pub(crate) fn canonicalise_as(value: &mut Value, index: usize) {
    let def = TABLE.get(index);
    // A CRD's schema keeps what the user wrote: its defaults and examples are values of its own.
    if def.go_name() == "JSONSchemaProps" {
        return;
    }
    if let (Body::Struct, Value::Object(map)) = (def.body, value) {
        fields(def, map);
    }
}

fn fields(def: &TypeDef, map: &mut Map<String, Value>) {
    for field in &def.fields {
        if let (true, Ty::Message(index)) = (field.inline, field.ty) {
            fields(TABLE.get(index), map);
            continue;
        }
        let mut value = map.remove(field.json).filter(|value| !value.is_null());
        match field.shape {
            Shape::One => one(field, &mut value),
            Shape::List | Shape::Map => many(field, &mut value),
        }
        if let Some(value) = value {
            map.insert(field.json.to_owned(), value);
        }
    }
}

fn one(field: &Field, value: &mut Option<Value>) {
    if let Some(value) = value {
        scalar(field.ty, value);
    }
    if field.presence == Presence::Pointer {
        return;
    }
    match value {
        None => *value = zero(field),
        Some(found) if field.presence == Presence::OmitEmpty && is_zero(field.ty, found) => *value = None,
        Some(_) => {}
    }
    if let (Ty::Message(index), Some(value)) = (field.ty, value) {
        canonicalise_as(value, index);
    }
}

/// What Go writes for a field that nobody set.
fn zero(field: &Field) -> Option<Value> {
    let is_always = field.presence == Presence::Always;
    match field.ty {
        // Structs are never empty to Go.
        Ty::Message(index) => (TABLE.get(index).body == Body::Struct).then(|| Value::Object(Map::new())),
        Ty::Quantity => Some("0".into()),
        Ty::IntOrString => Some(0.into()),
        Ty::String | Ty::Bytes if is_always => Some("".into()),
        Ty::Int32 | Ty::Int64 | Ty::Double if is_always => Some(0.into()),
        Ty::Bool if is_always => Some(false.into()),
        // Go writes null here, and reads it back as nothing.
        _ => None,
    }
}

pub(crate) fn is_zero(ty: Ty, value: &Value) -> bool {
    match (ty, value) {
        (Ty::String | Ty::Bytes | Ty::Time | Ty::MicroTime, Value::String(text)) => text.is_empty(),
        (Ty::Int32 | Ty::Int64 | Ty::Double, Value::Number(number)) => number.as_f64() == Some(0.0),
        (Ty::Bool, Value::Bool(flag)) => !flag,
        _ => false,
    }
}

fn many(field: &Field, value: &mut Option<Value>) {
    let is_empty = match value {
        Some(Value::Array(items)) => {
            for item in items.iter_mut() {
                element(field.ty, item);
            }
            items.is_empty()
        }
        Some(Value::Object(map)) => {
            map.values_mut().for_each(|item| element(field.ty, item));
            map.is_empty()
        }
        _ => false,
    };
    if is_empty && field.presence != Presence::Always {
        *value = None;
    }
}

fn element(ty: Ty, value: &mut Value) {
    if value.is_null() {
        *value = match ty {
            Ty::Message(index) if TABLE.get(index).body == Body::Struct => Value::Object(Map::new()),
            Ty::Quantity => "0".into(),
            Ty::String | Ty::Bytes => "".into(),
            _ => return,
        };
    }
    scalar(ty, value);
}

/// The canonical form of one value.
fn scalar(ty: Ty, value: &mut Value) {
    match (ty, &*value) {
        (Ty::Message(index), _) => canonicalise_as(value, index),
        (Ty::Quantity, Value::String(_) | Value::Number(_)) => canonical_quantity(value),
        (Ty::Time, Value::String(text)) => {
            if let Ok(parsed) = time::parse(text) {
                *value = time::format_seconds(parsed).into();
            }
        }
        (Ty::MicroTime, Value::String(text)) => {
            if let Ok(parsed) = time::parse(text) {
                *value = time::format_micros(parsed).into();
            }
        }
        _ => {}
    }
}

/// Text that is no quantity stays: validation names it.
fn canonical_quantity(value: &mut Value) {
    let text = match &*value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    if let Ok(quantity) = Quantity::parse(&text) {
        *value = quantity.to_string().into();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn canonical(mut value: Value) -> Value {
        canonicalise(&mut value);
        value
    }

    #[test]
    fn nulls_and_zero_values_vanish() {
        let got = canonical(json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "a", "labels": {}, "annotations": null, "creationTimestamp": null, "generation": 0},
            "data": null, "immutable": false,
        }));
        // `immutable` is a pointer: false was said and stays.
        assert_eq!(
            got,
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "immutable": false})
        );
    }

    #[test]
    fn structs_appear_and_pointers_do_not() {
        let got = canonical(json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a"},
            "spec": {"replicas": 0, "template": {"spec": {"containers": [{"name": "c"}]}}},
        }));
        assert_eq!(
            got["spec"],
            json!({
                "replicas": 0, "strategy": {},
                "template": {"metadata": {}, "spec": {"containers": [{"name": "c", "resources": {}}]}},
            })
        );
        assert_eq!(got["status"], json!({}));
    }

    #[test]
    fn quantities_and_times_are_canonical() {
        let got = canonical(json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": {"creationTimestamp": "2024-05-01T02:00:00+02:00"},
            "spec": {"resources": {"requests": {"storage": "1024Mi", "cpu": 0.5}}},
        }));
        assert_eq!(got["spec"]["resources"]["requests"], json!({"storage": "1Gi", "cpu": "500m"}));
        assert_eq!(got["metadata"]["creationTimestamp"], "2024-05-01T00:00:00Z");
    }

    #[test]
    fn it_is_idempotent_for_every_kind() {
        for resource in crate::builtin() {
            let version = &resource.versions[0].name;
            let gvk = resource.gvk(version);
            let once = canonical(json!({"apiVersion": gvk.api_version(), "kind": gvk.kind}));
            assert_eq!(once, canonical(once.clone()), "{gvk}");
        }
    }

    #[test]
    fn a_crd_schema_is_left_alone() {
        let schema = json!({"type": "object", "default": {"a": null}, "required": []});
        let got = canonical(json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "spec": {"versions": [{"name": "v1", "schema": {"openAPIV3Schema": schema}}]},
        }));
        assert_eq!(got["spec"]["versions"][0]["schema"]["openAPIV3Schema"], schema);
        assert_eq!(got["spec"]["versions"][0]["served"], false);
    }
}
