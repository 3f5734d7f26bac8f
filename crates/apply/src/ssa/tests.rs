//! The files in `testdata/` were recorded from a kube-apiserver 1.34: each is a sequence of writes to one object, with
//! the object after each write, or the error.

use std::collections::BTreeMap;
use std::path::Path;

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::testing::{any_json, schema, thing, thing_spec};

fn read(path: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

/// The paths that an endpoint does not write.
fn reset_fields<'a>(kind: &str, subresource: &str) -> &'a [&'a [&'a str]] {
    match (kind, subresource) {
        (_, "scale") | ("configmap", _) => &[],
        ("deployment", "status") => &[&["spec"], &["metadata", "labels"]],
        (_, "status") => &[&["spec"]],
        _ => &[&["status"]],
    }
}

/// Whether all that `part` says is in `whole`, which may have defaults and what the server sets.
fn is_within(part: &Value, whole: &Value) -> bool {
    match (part, whole) {
        (Value::Object(part), Value::Object(whole)) => part.iter().all(|(key, value)| {
            value.is_null()
                || matches!(key.as_str(), "resourceVersion" | "generation" | "prunedByTheServer")
                || whole.get(key).is_some_and(|w| is_within(value, w))
        }),
        (Value::Array(part), Value::Array(whole)) => {
            part.len() == whole.len() && part.iter().zip(whole).all(|(p, w)| is_within(p, w))
        }
        _ => part == whole,
    }
}

fn without_managed(object: &Value) -> Value {
    let mut object = object.clone();
    set_managed_fields(&mut object, None);
    object
}

#[test]
fn recorded_sequences_are_repeated() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata");
    let schemas: BTreeMap<String, Schema> = read(&dir.join("schemas.json"))
        .as_object()
        .unwrap()
        .iter()
        .map(|(name, json)| (name.clone(), schema(json)))
        .collect();
    let mut files: Vec<_> = std::fs::read_dir(&dir).unwrap().map(|f| f.unwrap().path()).collect();
    files.retain(|path| path.file_name().is_some_and(|name| name != "schemas.json"));
    files.sort();
    assert!(files.len() > 10, "the recorded sequences are missing");
    for path in files {
        let sequence = read(&path);
        let kind = sequence["schema"].as_str().unwrap();
        let mut live = None;
        for (index, step) in sequence["steps"].as_array().unwrap().iter().enumerate() {
            let place = format!("{} step {index} ({} by {})", sequence["name"], step["op"], step["manager"]);
            let text = |field: &str| step.get(field).and_then(Value::as_str).unwrap_or_default();
            let cx = WriteContext {
                schema: &schemas[kind],
                api_version: text("apiVersion"),
                manager: text("manager"),
                subresource: text("subresource"),
                now: text("now"),
                reset_fields: reset_fields(kind, text("subresource")),
            };
            repeat(&cx, live.as_ref(), step, &place);
            if let Some(after) = step.get("after") {
                live = Some(after.clone());
            }
        }
    }
}

fn repeat(cx: &WriteContext<'_>, live: Option<&Value>, step: &Value, place: &str) {
    if step["op"] == "apply" {
        // A read of another version is the same object under another name.
        let live = live.map(|live| {
            let mut live = live.clone();
            live["apiVersion"] = json!(cx.api_version);
            live
        });
        return repeat_apply(cx, live.as_ref(), step, place);
    }
    let after = &step["after"];
    let mut new = without_managed(after);
    match step.get("sentManagedFields") {
        Some(Value::String(_)) => set_managed_fields(&mut new, live.and_then(managed_fields).cloned()),
        Some(sent) => new["metadata"]["managedFields"] = sent.clone(),
        None => {}
    }
    if after["kind"] == "Service" && live.is_none() {
        // Allocated by the server once ownership is recorded.
        let spec = new["spec"].as_object_mut().unwrap();
        spec.retain(|key, _| !matches!(key.as_str(), "clusterIP" | "clusterIPs" | "ipFamilies" | "ipFamilyPolicy"));
    }
    track_update(cx, live, &mut new).unwrap();
    keep_times(live, &mut new);
    assert_managed_fields(managed_fields(&new), managed_fields(after), place);
}

fn repeat_apply(cx: &WriteContext<'_>, live: Option<&Value>, step: &Value, place: &str) {
    let force = step.get("force") == Some(&Value::Bool(true));
    let result = apply(cx, live, &step["config"], force);
    let Some(want) = step.get("error").filter(|e| e["code"] != 422) else {
        let object = result.unwrap_or_else(|e| panic!("{place}: {}", ApiError::from(e)));
        let Some(after) = step.get("after") else { return };
        assert_managed_fields(managed_fields(&object), managed_fields(after), place);
        // The caller puts back what an endpoint does not write.
        let mut stored = object.clone();
        for path in cx.reset_fields {
            stored[path[0]] = after.get(path[0]).cloned().unwrap_or_default();
        }
        assert!(is_within(&stored, after), "{place}:\n{object:#}\n{after:#}");
        if live == Some(after) {
            assert_eq!(&object, after, "{place}: nothing was to be written");
        }
        return;
    };
    let status = ApiError::from(result.expect_err(place)).to_status();
    assert_eq!((&status["code"], &status["message"]), (&want["code"], &want["message"]), "{place}");
    let sorted = |causes: Option<&Value>| {
        let mut causes: Vec<String> =
            causes.and_then(Value::as_array).into_iter().flatten().map(Value::to_string).collect();
        causes.sort();
        causes
    };
    assert_eq!(sorted(status.pointer("/details/causes")), sorted(want.get("causes")), "{place}");
}

fn assert_managed_fields(got: Option<&Value>, want: Option<&Value>, place: &str) {
    let text = |v: Option<&Value>| v.map(|v| format!("{v:#}")).unwrap_or_default();
    assert_eq!(text(got), text(want), "{place}");
}

fn cx<'a>(schema: &'a Schema, manager: &'a str, now: &'a str) -> WriteContext<'a> {
    WriteContext { schema, api_version: "example.com/v1", manager, subresource: "", now, reset_fields: &[&["status"]] }
}

fn object(spec: &Value) -> Value {
    json!({
        "apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "x", "namespace": "ns", "uid": "u"}, "spec": spec,
    })
}

fn config(spec: &Value) -> Value {
    json!({"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "x", "namespace": "ns"}, "spec": spec})
}

#[test]
fn a_write_that_only_removes_leaves_the_writers_time_alone() {
    let schema = thing();
    let mut live = object(&json!({"text": "a", "number": 1}));
    track_update(&cx(&schema, "m", "2024-01-01T00:00:00Z"), None, &mut live).unwrap();
    let mut new = object(&json!({"text": "a"}));
    track_update(&cx(&schema, "m", "2024-01-02T00:00:00Z"), Some(&live), &mut new).unwrap();
    assert_eq!(new["metadata"]["managedFields"][0]["time"], "2024-01-01T00:00:00Z");
    assert_eq!(new["metadata"]["managedFields"][0]["fieldsV1"], json!({"f:spec": {".": {}, "f:text": {}}}));
}

#[test]
fn an_empty_list_of_managers_resets_only_built_in_kinds() {
    let mut built_in = thing();
    built_in.type_name = "Thing".into();
    for (schema, tracked) in [(thing(), true), (built_in, false)] {
        let mut live = object(&json!({"text": "a"}));
        track_update(&cx(&schema, "m", "2024-01-01T00:00:00Z"), None, &mut live).unwrap();
        let mut new = object(&json!({"text": "b"}));
        new["metadata"]["managedFields"] = json!([]);
        track_update(&cx(&schema, "m", "2024-01-02T00:00:00Z"), Some(&live), &mut new).unwrap();
        assert_eq!(new["metadata"].get("managedFields").is_some(), tracked);
    }
}

#[test]
fn an_unnamed_manager_is_called_unknown() {
    let schema = thing();
    let mut new = object(&json!({"text": "a"}));
    track_update(&cx(&schema, "", "2024-01-01T00:00:00Z"), None, &mut new).unwrap();
    assert_eq!(new["metadata"]["managedFields"][0]["manager"], "unknown");
}

#[test]
fn the_oldest_updates_of_a_version_become_one() {
    let schema = thing();
    let mut live = object(&json!({}));
    live["metadata"]["uid"] = json!("");
    for day in 1..=14 {
        let (manager, now) = (format!("m{day:02}"), format!("2024-01-{day:02}T00:00:00Z"));
        let mut new = live.clone();
        new["spec"]["map"][format!("k{day}")] = json!("v");
        track_update(&cx(&schema, &manager, &now), Some(&live), &mut new).unwrap();
        live = new;
    }
    let entries = live["metadata"]["managedFields"].as_array().unwrap();
    assert_eq!(entries.len(), 10);
    assert_eq!(entries[0]["manager"], "ancient-changes");
    assert_eq!(entries[0]["time"], "2024-01-05T00:00:00Z");
    let ancient = entries[0]["fieldsV1"]["f:spec"]["f:map"].as_object().unwrap();
    assert_eq!(ancient.keys().filter(|k| k.starts_with("f:")).count(), 5);
}

#[test]
fn what_is_no_object_is_refused() {
    let schema = thing();
    let result = track_update(&cx(&schema, "m", "2024-01-01T00:00:00Z"), None, &mut json!([1]));
    assert_eq!(result, Err(ManagedError::NotAnObject("array")));
}

#[test]
fn times_are_kept_only_if_nothing_else_changed() {
    let entry = |time: &str| json!([{"manager": "m", "time": time}]);
    let with = |time: &str, text: &str| json!({"metadata": {"managedFields": entry(time)}, "spec": {"text": text}});
    let mut same = with("2", "a");
    keep_times(Some(&with("1", "a")), &mut same);
    assert_eq!(same, with("1", "a"));
    let mut other = with("2", "b");
    keep_times(Some(&with("1", "a")), &mut other);
    assert_eq!(other, with("2", "b"));
}

proptest! {
    #[test]
    fn applying_twice_is_applying_once(live in thing_spec(), first in thing_spec(), second in thing_spec()) {
        let schema = thing();
        let mut live = object(&live);
        track_update(&cx(&schema, "creator", "2024-01-01T00:00:00Z"), None, &mut live).unwrap();
        for (index, spec) in [first, second].iter().enumerate() {
            let config = config(spec);
            let once = apply(&cx(&schema, "m", "2024-01-02T00:00:00Z"), Some(&live), &config, true).unwrap();
            let twice = apply(&cx(&schema, "m", "2024-01-03T00:00:00Z"), Some(&once), &config, true).unwrap();
            prop_assert_eq!(&once, &twice, "apply {}", index);
            let other = apply(&cx(&schema, "other", "2024-01-04T00:00:00Z"), Some(&once), &config, false);
            prop_assert!(other.is_ok(), "the same values are no conflict: {:?}", other);
            live = once;
        }
    }

    #[test]
    fn nothing_is_pruned_of_what_is_applied_again(live in thing_spec(), spec in thing_spec(), more in thing_spec()) {
        let schema = thing();
        let root = Node::root(&schema);
        let cx = cx(&schema, "m", "2024-01-01T00:00:00Z");
        let (once, config) = (config(&spec), merge(root, &config(&spec), &config(&more)));
        let merged = merge(root, &merge(root, &object(&live), &once), &config);
        let mut last = cx.writer("m", Operation::Apply);
        last.fields = field_set(root, &once);
        let mut now = last.clone();
        now.fields = field_set(root, &config);
        now.fields.absorb(last.fields.clone());
        let pruned = prune::prune(root, merged.clone(), &last, &now, &Managers::default());
        prop_assert_eq!(pruned, merged);
    }

    #[test]
    fn applying_nothing_removes_what_was_applied(spec in thing_spec()) {
        let schema = thing();
        let live = object(&json!({}));
        let once = apply(&cx(&schema, "m", "2024-01-02T00:00:00Z"), Some(&live), &config(&spec), false).unwrap();
        let gone = apply(&cx(&schema, "m", "2024-01-03T00:00:00Z"), Some(&once), &config(&json!({})), false).unwrap();
        let left = gone["spec"].as_object().cloned().unwrap_or_default();
        // Empty lists are nobody's.
        prop_assert!(left.values().all(|v| v.as_array().is_some_and(Vec::is_empty)), "{:?}", left);
    }

    #[test]
    fn an_update_owns_exactly_what_it_changed(old in thing_spec(), new in thing_spec()) {
        let schema = thing();
        let mut live = object(&old);
        track_update(&cx(&schema, "a", "2024-01-01T00:00:00Z"), None, &mut live).unwrap();
        let mut changed = object(&new);
        track_update(&cx(&schema, "b", "2024-01-02T00:00:00Z"), Some(&live), &mut changed).unwrap();
        let managers = Managers::decode(managed_fields(&changed)).unwrap();
        for (i, a) in managers.0.iter().enumerate() {
            for b in &managers.0[i + 1..] {
                prop_assert!(!a.fields.intersects(&b.fields));
            }
        }
        let mut again = changed.clone();
        track_update(&cx(&schema, "c", "2024-01-03T00:00:00Z"), Some(&changed), &mut again).unwrap();
        prop_assert_eq!(again, changed);
    }

    #[test]
    fn no_json_makes_a_write_fail(live in any_json(), new in any_json(), managed in any_json(), entry in any_json()) {
        let schema = thing();
        let cx = cx(&schema, "kubectl", "2024-01-01T00:00:00Z");
        let entry = json!({"manager": "m", "operation": "Update", "apiVersion": "example.com/v1", "fieldsType": "FieldsV1", "fieldsV1": entry});
        let stored = json!({"metadata": {"uid": "u", "managedFields": [entry, managed]}, "spec": live});
        for live in [None, Some(&live), Some(&stored)] {
            let mut written = json!({"metadata": {"managedFields": managed}, "spec": new});
            let _ = track_update(&cx, live, &mut written);
            let _ = track_update(&cx, live, &mut new.clone());
            let _ = apply(&cx, live, &json!({"apiVersion": "example.com/v1", "kind": "Thing", "spec": new}), false);
            let _ = apply(&cx, live, &new, true);
        }
    }
}
