//! Bodies of requests: JSON, YAML and protobuf, made to fit the schema of their kind.

use croft_apiserver::fuzzing as server;
use croft_meta::{Gvk, json, object};
use croft_schema::Schema;
use serde_json::Value;
use std::sync::Arc;

use crate::text;

pub(crate) fn json_body(data: &[u8]) {
    let Ok((object, complaints)) = server::parse_body(data, "application/json") else { return };
    assert!(complaints.len() <= data.len(), "more complaints than bytes");
    written_and_read(&object);
    fits_its_kind(&object);
}

/// Whatever YAML says, the object is one that JSON can say.
pub(crate) fn yaml_body(data: &[u8]) {
    let Ok((object, _)) = server::parse_body(data, "application/yaml") else { return };
    let (again, _) = server::parse_body(object.to_string().as_bytes(), "application/yaml").unwrap_or_else(|error| {
        panic!("{} is no longer read: {}", object, error.message());
    });
    assert_eq!(again, object, "{:?}", text(data));
    written_and_read(&object);
    fits_its_kind(&object);
}

/// An object out of protobuf is one that JSON can say, and fits the kind that it says it is.
pub(crate) fn protobuf_body(data: &[u8]) {
    let Ok((object, _)) = server::parse_body(data, "application/vnd.kubernetes.protobuf") else { return };
    written_and_read(&object);
    fits_its_kind(&object);
}

/// What is stored is read again as it was; what is served is the same with its revision.
fn written_and_read(object: &Value) {
    let text = object.to_string();
    assert_eq!(json::parse(text.as_bytes()).as_ref(), Ok(object));
    let mut typed = object.clone();
    typed["apiVersion"] = Value::from("v1");
    typed["kind"] = Value::from("Thing");
    if !typed.get("metadata").is_some_and(Value::is_object) {
        typed["metadata"] = Value::Object(serde_json::Map::new());
    }
    let served = server::stored_and_served(&typed, 17);
    typed["metadata"]["resourceVersion"] = Value::from("17");
    assert_eq!(json::parse(&served), Ok(typed));
}

fn fits_its_kind(object: &Value) {
    let said = object::gvk(object);
    let known = [said, Gvk::new("", "v1", "Pod"), Gvk::new("apps", "v1", "Deployment")];
    for gvk in known {
        if let Some(schema) = croft_api::kind_schema(&gvk) {
            conform(&schema, &gvk, object.clone());
        }
    }
}

/// Fitting an object twice changes nothing the second time.
fn conform(schema: &Arc<Schema>, gvk: &Gvk, mut object: Value) {
    let Ok(_) = croft_schema::decode(schema, &mut object, &gvk.kind) else { return };
    let mut again = object.clone();
    let unknown = croft_schema::decode(schema, &mut again, &gvk.kind);
    assert_eq!(unknown.map(|unknown| unknown.len()), Ok(0), "{object}");
    assert_eq!(again, object);
}
