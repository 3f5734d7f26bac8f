//! Objects that a real kube-apiserver 1.34 was given, and what it said: `testdata/oracle.json`.

use croft_meta::names;
use serde_json::{Value, json};

use crate::Resource;
use crate::view::{list_mut, remove, set, text};

fn resource(object: &Value) -> &'static Resource {
    let gvk = croft_meta::object::gvk(object);
    crate::builtin().iter().find(|r| r.group == gvk.group && r.names.kind == gvk.kind).unwrap()
}

/// What the API server does with a body before it stores it; allocation and admission are left out.
fn write(object: &Value, old: Option<&Value>) -> Result<Value, Vec<String>> {
    let row = resource(object);
    let mut object = object.clone();
    if let Some(version) = row.version(&croft_meta::object::gvk(&object).version) {
        croft_schema::decode(&version.schema, &mut object, &row.names.kind).map_err(|err| vec![err])?;
    }
    set(&mut object, "metadata.uid", "UID");
    if row.is_namespaced() {
        set(&mut object, "metadata.namespace", "default");
    }
    (row.behaviour.default)(&mut object);
    let errors = if let Some(old) = old {
        (row.behaviour.prepare_update)(&mut object, old);
        (row.behaviour.validate_update)(&object, old)
    } else {
        (row.behaviour.prepare_create)(&mut object);
        let mut errors = (row.behaviour.validate_create)(&object);
        errors.extend(names::validate_object_meta(&object, row.is_namespaced(), row.behaviour.name_rule));
        errors
    };
    if errors.is_empty() { Ok(object) } else { Err(errors.iter().map(|e| normal(&e.to_string())).collect()) }
}

/// Structs in messages are printed with Go's internal names, which are nobody's contract; the rest counts. So does
/// only the first line, since others are a diff of the same structs.
fn normal(text: &str) -> String {
    let text = text.lines().next().unwrap_or_default();
    // The API server says first which kind it could not read.
    let text = text
        .split_once(" cannot be handled as a ")
        .and_then(|(_, rest)| rest.split_once(": "))
        .map_or(text, |(_, rest)| rest);
    for (open, close) in [("value: {", "}: "), ("value: [", "]: ")] {
        let Some(start) = text.find(open) else { continue };
        let head = &text[..start + open.len()];
        return match text.rfind(close) {
            Some(end) => format!("{head}…{}", &text[end..]),
            None => format!("{head}…"),
        };
    }
    text.to_owned()
}

/// Without what the server assigns or allocates.
fn comparable(object: &Value) -> Value {
    let mut object = object.clone();
    for field in ["metadata.uid", "metadata.namespace", "metadata.finalizers"] {
        remove(&mut object, field);
    }
    if text(&object, "kind") == "Service" {
        if text(&object, "spec.clusterIP") != "None" {
            remove(&mut object, "spec.clusterIP");
            remove(&mut object, "spec.clusterIPs");
        }
        for port in list_mut(&mut object, "spec.ports") {
            remove(port, "nodePort");
        }
    }
    without_nulls(object)
}

fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(map) => {
            Value::Object(map.into_iter().filter(|(_, v)| !v.is_null()).map(|(k, v)| (k, without_nulls(v))).collect())
        }
        Value::Array(items) => Value::Array(items.into_iter().map(without_nulls).collect()),
        other => other,
    }
}

/// Names of cases that differ, each with its reason.
const KNOWN: &[(&str, &str)] = &[("secret dockerjson bad", "the text of the JSON parser")];

fn compare(name: &str, got: Result<Value, Vec<String>>, expected: &Value, wrong: &mut Vec<String>) -> Option<Value> {
    if KNOWN.iter().any(|(known, _)| *known == name) {
        return None;
    }
    match (got, expected.get("object"), expected.get("errors")) {
        (Ok(object), Some(wanted), _) => {
            let (a, b) = (comparable(&object), comparable(wanted));
            if a != b {
                wrong.push(format!("{name}:\n  got    {a}\n  wanted {b}"));
            }
            return Some(object);
        }
        (Err(mut errors), _, Some(wanted)) => {
            errors.sort();
            let mut wanted: Vec<String> =
                wanted.as_array().unwrap().iter().map(|e| normal(e.as_str().unwrap())).collect();
            wanted.sort();
            if errors != wanted {
                wrong.push(format!("{name}:\n  got    {errors:#?}\n  wanted {wanted:#?}"));
            }
        }
        (Ok(_), ..) => wrong.push(format!("{name}: accepted, but wanted {expected}")),
        (Err(errors), ..) => wrong.push(format!("{name}: refused with {errors:#?}")),
    }
    None
}

#[test]
fn the_original_says_the_same() {
    let cases: Vec<Value> = serde_json::from_str(include_str!("../../testdata/oracle.json")).unwrap();
    let mut wrong = Vec::new();
    let mut compared = 0;
    for case in &cases {
        let name = case["name"].as_str().unwrap();
        compared += 1;
        let Some(mut stored) = compare(name, write(&case["object"], None), &case["result"], &mut wrong) else {
            continue;
        };
        if name == "service" {
            set(&mut stored, "spec.clusterIP", "10.0.0.5");
            set(&mut stored, "spec.clusterIPs", json!(["10.0.0.5"]));
        }
        if name == "crd" {
            set(&mut stored, "status", case["updates"][0]["object"]["status"].clone());
        }
        for (index, update) in case["updates"].as_array().into_iter().flatten().enumerate() {
            compared += 1;
            let name = format!("{name}, update {index}");
            compare(&name, write(&update["object"], Some(&stored)), &update["result"], &mut wrong);
        }
    }
    assert!(compared > 170, "{compared}");
    assert!(wrong.is_empty(), "{} of {compared} differ\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn large_configuration_is_refused() {
    let big = "x".repeat(1024 * 1024 + 1);
    let config =
        write(&json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"a": big}}), None);
    assert_eq!(config.unwrap_err(), ["[]: Too long: may not be more than 1048576 bytes"]);
    let secret = write(
        &json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}, "stringData": {"a": big}}),
        None,
    );
    assert_eq!(secret.unwrap_err(), ["data: Too long: may not be more than 1048576 bytes"]);
}

#[test]
fn a_bound_claim_can_grow_but_not_shrink() {
    let claim = |size: &str| {
        json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "a"},
            "spec": {"accessModes": ["ReadWriteOnce"], "volumeName": "v", "resources": {"requests": {"storage": size}}},
        })
    };
    let mut bound = write(&claim("2Gi"), None).unwrap();
    set(&mut bound, "status", json!({"phase": "Bound", "capacity": {"storage": "2Gi"}}));
    assert!(write(&claim("3Gi"), Some(&bound)).is_ok());
    let errors = write(&claim("1Gi"), Some(&bound)).unwrap_err();
    assert_eq!(errors, ["spec.resources.requests.storage: Forbidden: field can not be less than status.capacity"]);
}
