//! What Go writes of an object in which nothing is set.
//!
//! A struct is never empty to Go, and fields without `omitempty` are written whatever they hold. Ownership of a new
//! object is worked out against this: whoever creates a Deployment owns what it sets in `spec`, not `spec` itself.

use croft_meta::Gvk;
use serde_json::{Map, Value, json};

use crate::wire::{Body, Field, Presence, Shape, TABLE, Ty, TypeDef};

/// The unset object of a built-in kind, without its type; `None` if there is no such kind.
pub fn blank(gvk: &Gvk) -> Option<Value> {
    let index = TABLE.of_kind(&gvk.group, &gvk.version, &gvk.kind)?;
    Some(message(TABLE.get(index)))
}

fn message(def: &TypeDef) -> Value {
    let mut fields = Map::new();
    add_fields(def, &mut fields);
    Value::Object(fields)
}

fn add_fields(def: &TypeDef, fields: &mut Map<String, Value>) {
    for field in &def.fields {
        if let (true, Ty::Message(index)) = (field.inline, field.ty) {
            add_fields(TABLE.get(index), fields);
        } else if let Some(value) = unset(field) {
            fields.insert(field.json.to_owned(), value);
        }
    }
}

/// How an unset field is written, if it is.
fn unset(field: &Field) -> Option<Value> {
    if field.presence == Presence::Pointer {
        return None;
    }
    if let (Shape::One, Ty::Message(index)) = (field.shape, field.ty) {
        let def = TABLE.get(index);
        // A named list or a union is no struct to Go's writer.
        if matches!(def.body, Body::Struct) {
            return Some(message(def));
        }
    }
    let zero = match (field.shape, field.ty) {
        (Shape::One, Ty::String) => json!(""),
        (Shape::One, Ty::Int32 | Ty::Int64 | Ty::Double) => json!(0),
        (Shape::One, Ty::Bool) => json!(false),
        _ => Value::Null,
    };
    (field.presence == Presence::Always).then_some(zero)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn structs_are_there_and_what_is_optional_is_not() {
        let deployment = blank(&Gvk::new("apps", "v1", "Deployment")).unwrap();
        assert_eq!(deployment["spec"]["strategy"], json!({}));
        assert_eq!(deployment["spec"]["template"]["spec"], json!({"containers": null}));
        assert_eq!(deployment["spec"].get("paused"), None);
        let map = blank(&Gvk::new("", "v1", "ConfigMap")).unwrap();
        assert_eq!(map.as_object().unwrap().keys().collect::<Vec<_>>(), ["metadata"]);
        assert_eq!(blank(&Gvk::new("a.b", "v1", "Nothing")), None);
    }
}
