//! `ConversionReview`: what a conversion webhook is sent, and what its answer must be like.

use croft_meta::field::go_quote;
use croft_meta::{FieldPath, Gvk, names, object};
use serde_json::{Map, Value, json};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReviewVersion {
    V1,
    V1Beta1,
}

impl ReviewVersion {
    pub(super) fn parse(name: &str) -> Option<Self> {
        match name {
            "v1" => Some(Self::V1),
            "v1beta1" => Some(Self::V1Beta1),
            _ => None,
        }
    }

    fn api_version(self) -> &'static str {
        match self {
            Self::V1 => "apiextensions.k8s.io/v1",
            Self::V1Beta1 => "apiextensions.k8s.io/v1beta1",
        }
    }
}

pub(super) fn body(review: ReviewVersion, uid: &str, originals: &[Value], to: &Gvk) -> Vec<u8> {
    let review = json!({
        "kind": "ConversionReview",
        "apiVersion": review.api_version(),
        "request": { "uid": uid, "desiredAPIVersion": to.api_version(), "objects": originals },
        "response": { "uid": "", "convertedObjects": null, "result": { "metadata": {} } },
    });
    review.to_string().into_bytes()
}

/// The objects of an answer.
pub(super) fn read(review: ReviewVersion, uid: &str, answer: &[u8]) -> Result<Vec<Value>, String> {
    let mut answer = croft_meta::json::parse(answer)?;
    let found = object::gvk(&answer);
    let is_v1 = review == ReviewVersion::V1;
    if is_v1 && (found.api_version() != review.api_version() || found.kind != "ConversionReview") {
        let expected = "apiextensions.k8s.io/v1, Kind=ConversionReview";
        return Err(format!("expected webhook response of {expected}, got {found}"));
    }
    let response = answer["response"].take();
    if response.is_null() {
        return Err("no response provided".to_owned());
    }
    let text = |pointer: &str| response.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    if is_v1 && text("/uid") != uid {
        return Err(format!("expected response.uid={}, got {}", go_quote(uid), go_quote(text("/uid"))));
    }
    match (text("/result/status"), text("/result/message")) {
        ("Success", _) => {}
        (status, "") => return Err(format!("response.result.status was '{status}', not 'Success'")),
        (_, message) => return Err(message.to_owned()),
    }
    match response.get("convertedObjects") {
        Some(Value::Array(objects)) => Ok(objects.clone()),
        _ => Ok(Vec::new()),
    }
}

/// The answer, if it is one to what was asked: the same objects, of the wanted version, with only their labels and
/// annotations changed in their metadata. The error goes on after "conversion webhook for … ".
pub(super) fn checked(originals: &[Value], converted: Vec<Value>, from: &Gvk, to: &Gvk) -> Result<Vec<Value>, String> {
    if converted.len() != originals.len() {
        return Err(format!("returned {} objects, expected {}", converted.len(), originals.len()));
    }
    let check = |(index, (original, mut converted)): (usize, (&Value, Value))| {
        let found = object::gvk(&converted);
        let invalid = |why: String| format!("returned invalid object at index {index}: {why}");
        if found.group_version() != to.group_version() {
            let (expected, received) = (to.api_version(), found.api_version());
            return Err(invalid(format!("invalid groupVersion (expected {expected}, received {received})")));
        }
        if found.kind != from.kind {
            return Err(invalid(format!("invalid kind (expected {}, received {})", from.kind, found.kind)));
        }
        same_object(original, &converted).map_err(|why| format!("returned invalid object: {why}"))?;
        restore_metadata(original, &mut converted).map_err(|why| format!("returned invalid metadata: {why}"))?;
        Ok(converted)
    };
    originals.iter().zip(converted).enumerate().map(check).collect()
}

fn same_object(original: &Value, converted: &Value) -> Result<(), String> {
    let fields =
        |of: &Value| [object::name(of).to_owned(), object::namespace(of).to_owned(), object::uid(of).to_owned()];
    let names = ["name", "namespace", "UID"];
    for (what, (expected, found)) in names.into_iter().zip(fields(original).into_iter().zip(fields(converted))) {
        if expected != found {
            return Err(format!("must have the same {what}: {expected} != {found}"));
        }
    }
    Ok(())
}

/// All metadata is the original's, but for labels and annotations.
fn restore_metadata(original: &Value, converted: &mut Value) -> Result<(), String> {
    let answered = match converted.get("metadata") {
        None => return Err("missing metadata in converted object".to_owned()),
        Some(Value::Object(metadata)) => metadata.clone(),
        Some(other) => return Err(format!("invalid metadata of type {} in converted object", go_type(other))),
    };
    let mut metadata = original.get("metadata").and_then(Value::as_object).cloned().unwrap_or_default();
    for field in ["labels", "annotations"] {
        match answered.get(field) {
            None | Some(Value::Null) => drop(metadata.remove(field)),
            Some(Value::Object(texts)) => {
                check_texts(field, texts, metadata.get(field))?;
                metadata.insert(field.to_owned(), Value::Object(texts.clone()));
            }
            Some(other) => {
                return Err(format!("invalid metadata.{field} of type {} in converted object", go_type(other)));
            }
        }
    }
    converted["metadata"] = Value::Object(metadata);
    Ok(())
}

fn check_texts(field: &str, texts: &Map<String, Value>, before: Option<&Value>) -> Result<(), String> {
    if let Some((key, value)) = texts.iter().find(|(_, value)| !value.is_string()) {
        let found = go_type(value);
        return Err(format!("metadata.{field}[{key}] must be a string, but is {found} in converted object"));
    }
    if before.and_then(Value::as_object) == Some(texts) {
        return Ok(());
    }
    let texts = Value::Object(texts.clone());
    let errors = match field {
        "labels" => names::validate_labels(&texts, &FieldPath::new("metadata.labels")),
        // Upstream's path.
        _ => names::validate_annotations(&texts, &FieldPath::new("metadata.annotation")),
    };
    if errors.is_empty() {
        return Ok(());
    }
    let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
    Err(crate::auth::rbac::aggregate(&errors))
}

/// What Go calls a JSON value's type.
fn go_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UID: &str = "0a1b";

    fn gvk(version: &str) -> Gvk {
        Gvk::new("example.com", version, "Link")
    }

    fn object(version: &str, metadata: &Value) -> Value {
        let mut object = json!({"apiVersion": format!("example.com/{version}"), "kind": "Link",
            "metadata": {"name": "a", "namespace": "ns", "uid": "u", "generation": 3}});
        for (key, value) in metadata.as_object().unwrap() {
            object["metadata"][key] = value.clone();
        }
        object
    }

    #[test]
    fn answers_are_read_as_upstream_reads_them() {
        let of = |review: Value| read(ReviewVersion::V1, UID, review.to_string().as_bytes());
        let v1 = |response: Value| json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview", "response": response});
        let good = json!({"uid": UID, "result": {"status": "Success"}, "convertedObjects": [{}]});
        assert_eq!(of(v1(good.clone())).unwrap(), [json!({})]);
        let table = [
            (
                json!({"response": good}),
                "expected webhook response of apiextensions.k8s.io/v1, Kind=ConversionReview, got /, Kind=",
            ),
            (v1(Value::Null), "no response provided"),
            (v1(json!({"uid": "x"})), "expected response.uid=\"0a1b\", got \"x\""),
            (v1(json!({"uid": UID})), "response.result.status was '', not 'Success'"),
            (v1(json!({"uid": UID, "result": {"status": "Failure", "message": "no such host"}})), "no such host"),
        ];
        for (review, expected) in table {
            assert_eq!(of(review).unwrap_err(), expected);
        }
        // The old form says neither what it is nor what it answers.
        let old = json!({"response": {"result": {"status": "Success"}, "convertedObjects": []}});
        assert!(read(ReviewVersion::V1Beta1, UID, old.to_string().as_bytes()).unwrap().is_empty());
    }

    #[test]
    fn only_labels_and_annotations_may_change() {
        let original = object("v1", &json!({"labels": {"a": "b"}, "annotations": {"c": "d"}}));
        let check = |converted: Value| {
            let originals = std::slice::from_ref(&original);
            checked(originals, vec![converted], &gvk("v1"), &gvk("v2")).map(|mut list| list.remove(0))
        };
        let labels = json!({"labels": {"x": "y"}, "generation": 9, "finalizers": ["z"]});
        let made = check(object("v2", &labels)).unwrap();
        assert_eq!(
            made["metadata"],
            json!({"name": "a", "namespace": "ns", "uid": "u", "generation": 3, "labels": {"x": "y"}})
        );
        let table = [
            (
                object("v3", &json!({})),
                "returned invalid object at index 0: invalid groupVersion (expected example.com/v2, received example.com/v3)",
            ),
            (object("v2", &json!({"name": "b"})), "returned invalid object: must have the same name: a != b"),
            (object("v2", &json!({"uid": "v"})), "returned invalid object: must have the same UID: u != v"),
            (
                object("v2", &json!({"labels": {"x": 1}})),
                "returned invalid metadata: metadata.labels[x] must be a string, but is int64 in converted object",
            ),
            (
                object("v2", &json!({"labels": []})),
                "returned invalid metadata: invalid metadata.labels of type []interface {} in converted object",
            ),
        ];
        for (converted, expected) in table {
            assert_eq!(check(converted).unwrap_err(), expected);
        }
        let bad = check(object("v2", &json!({"labels": {"-": "y"}}))).unwrap_err();
        assert!(bad.starts_with("returned invalid metadata: metadata.labels: Invalid value: \"-\""), "{bad}");
        let none = checked(&[original], Vec::new(), &gvk("v1"), &gvk("v2"));
        assert_eq!(none.unwrap_err(), "returned 0 objects, expected 1");
    }
}
