use croft_meta::ApiError;
use proptest::prelude::*;
use serde_json::json;

use super::*;

fn patched(doc: &Value, patch: &Value) -> Result<Value, PatchError> {
    apply(doc, patch.to_string().as_bytes())
}

#[test]
fn a_patch_makes_nothing_that_cannot_be_read_again() {
    let deep = "/a".repeat(json::MAX_DEPTH);
    let nested = |depth: usize| (0..depth).fold(json!({}), |inner, _| json!({"a": inner}));
    let fits = json!([{"op": "add", "path": &deep[..deep.len() - 2], "value": {}}]);
    assert!(patched(&nested(json::MAX_DEPTH - 2), &fits).is_ok());
    let document = nested(json::MAX_DEPTH - 1);
    let table = [
        json!([{"op": "add", "path": deep, "value": {}}]),
        json!([{"op": "replace", "path": deep, "value": []}]),
        json!([{"op": "copy", "from": "/a/a", "path": "/a/a/a/a/a"}]),
        json!([{"op": "copy", "from": "/a", "path": "/b"}, {"op": "move", "from": "/b", "path": "/a/a/a/b"}]),
    ];
    for patch in table {
        assert_eq!(patched(&document, &patch), Err(PatchError::Rejected(json::TOO_DEEP.to_owned())), "{patch}");
    }
    // Each operation by itself is harmless.
    let tower: Vec<Value> =
        (1..2000).map(|level| json!({"op": "add", "path": "/a".repeat(level), "value": {}})).collect();
    assert!(patched(&json!({}), &json!(tower)).is_err());
}

#[test]
fn operations_give_what_upstream_gives() {
    let cases = [
        ("add a member", json!({}), json!([{"op": "add", "path": "/a", "value": 1}]), json!({"a": 1})),
        ("add overwrites", json!({"a": 0}), json!([{"op": "add", "path": "/a", "value": 1}]), json!({"a": 1})),
        (
            "add inserts",
            json!({"a": [1, 3]}),
            json!([{"op": "add", "path": "/a/1", "value": 2}]),
            json!({"a": [1, 2, 3]}),
        ),
        ("add appends", json!({"a": [1]}), json!([{"op": "add", "path": "/a/-", "value": 2}]), json!({"a": [1, 2]})),
        (
            "add at the length",
            json!({"a": [1]}),
            json!([{"op": "add", "path": "/a/1", "value": 2}]),
            json!({"a": [1, 2]}),
        ),
        (
            "add from the end",
            json!({"a": [1]}),
            json!([{"op": "add", "path": "/a/-1", "value": 2}]),
            json!({"a": [1, 2]}),
        ),
        ("add without value is null", json!({}), json!([{"op": "add", "path": "/a"}]), json!({"a": null})),
        ("remove", json!({"a": 1, "b": 2}), json!([{"op": "remove", "path": "/a"}]), json!({"b": 2})),
        ("remove an item", json!({"a": [1, 2]}), json!([{"op": "remove", "path": "/a/0"}]), json!({"a": [2]})),
        ("remove from the end", json!({"a": [1, 2]}), json!([{"op": "remove", "path": "/a/-1"}]), json!({"a": [1]})),
        ("replace", json!({"a": 1}), json!([{"op": "replace", "path": "/a", "value": 2}]), json!({"a": 2})),
        (
            "replace sets",
            json!({"a": {}}),
            json!([{"op": "replace", "path": "/a/b", "value": 2}]),
            json!({"a": {"b": 2}}),
        ),
        ("replace all", json!({"a": 1}), json!([{"op": "replace", "path": "", "value": {"b": 1}}]), json!({"b": 1})),
        (
            "replace all by a scalar is nothing",
            json!({"a": 1}),
            json!([{"op": "replace", "path": "", "value": 1}]),
            json!({"a": 1}),
        ),
        (
            "escapes",
            json!({"a/b": {"c~d": 1}}),
            json!([{"op": "replace", "path": "/a~1b/c~0d", "value": 2}]),
            json!({"a/b": {"c~d": 2}}),
        ),
        ("move", json!({"a": 1}), json!([{"op": "move", "from": "/a", "path": "/b"}]), json!({"b": 1})),
        ("copy", json!({"a": [1]}), json!([{"op": "copy", "from": "/a/0", "path": "/b"}]), json!({"a": [1], "b": 1})),
        ("copy of nothing is null", json!({}), json!([{"op": "copy", "from": "/a", "path": "/b"}]), json!({"b": null})),
        (
            "test",
            json!({"a": {"b": [1]}}),
            json!([{"op": "test", "path": "/a", "value": {"b": [1]}}]),
            json!({"a": {"b": [1]}}),
        ),
        (
            "test null on missing",
            json!({"a": {}}),
            json!([{"op": "test", "path": "/a/b", "value": null}]),
            json!({"a": {}}),
        ),
        ("test nothing on missing", json!({"a": {}}), json!([{"op": "test", "path": "/a/b"}]), json!({"a": {}})),
        ("the empty key", json!({"": 1}), json!([{"op": "remove", "path": "/"}]), json!({})),
        ("no operation", json!({"a": 1}), json!(null), json!({"a": 1})),
        (
            "in order, as the finalizer helper of kube-rs sends them",
            json!({"metadata": {}}),
            json!([{"op": "test", "path": "/metadata/finalizers", "value": null}, {"op": "add", "path": "/metadata/finalizers", "value": ["a"]}]),
            json!({"metadata": {"finalizers": ["a"]}}),
        ),
    ];
    for (name, doc, patch, want) in cases {
        assert_eq!(patched(&doc, &patch), Ok(want), "{name}");
    }
}

#[test]
fn what_does_not_fit_is_rejected() {
    let cases = [
        ("remove missing", json!([{"op": "remove", "path": "/x"}])),
        ("remove missing index", json!([{"op": "remove", "path": "/list/2"}])),
        ("remove index before the start", json!([{"op": "remove", "path": "/list/-3"}])),
        ("add below missing", json!([{"op": "add", "path": "/x/y", "value": 1}])),
        ("append to missing", json!([{"op": "add", "path": "/x/-", "value": 1}])),
        ("add past the end", json!([{"op": "add", "path": "/list/3", "value": 1}])),
        ("add to a scalar", json!([{"op": "add", "path": "/a/b", "value": 1}])),
        ("add below null", json!([{"op": "add", "path": "/nil/b", "value": 1}])),
        ("add at a name in a list", json!([{"op": "add", "path": "/list/x", "value": 1}])),
        ("add to the root", json!([{"op": "add", "path": "", "value": {}}])),
        ("replace past the end", json!([{"op": "replace", "path": "/list/2", "value": 1}])),
        ("replace below missing", json!([{"op": "replace", "path": "/x/y", "value": 1}])),
        ("test differs", json!([{"op": "test", "path": "/a", "value": 2}])),
        ("test other notation", json!([{"op": "test", "path": "/a", "value": 1.0}])),
        ("test null on present", json!([{"op": "test", "path": "/a", "value": null}])),
        ("test below missing", json!([{"op": "test", "path": "/x/y", "value": null}])),
        ("move missing", json!([{"op": "move", "from": "/x", "path": "/y"}])),
        ("no path", json!([{"op": "add", "value": 1}])),
        ("no op", json!([{"path": "/a"}])),
        ("unknown op", json!([{"op": "merge", "path": "/a"}])),
        ("null operation", json!([null])),
    ];
    for (name, patch) in cases {
        let result = patched(&json!({"a": 1, "nil": null, "list": [1, 2]}), &patch);
        assert!(matches!(result, Err(PatchError::Rejected(_))), "{name}: {result:?}");
    }
    let status = ApiError::from(PatchError::Rejected("why".to_owned()));
    assert_eq!((status.code(), status.reason()), (422, "Invalid"));
    assert_eq!(status.message(), "the server rejected our request due to an error in our request");
}

#[test]
fn what_is_no_patch_is_malformed() {
    let cases = [
        ("", "unexpected end of JSON input"),
        ("[", "unexpected end of JSON input"),
        ("xyz", "invalid character 'x' looking for beginning of value"),
        (r#"[{"op":"add",}]"#, "invalid character '}' looking for beginning of object key string"),
        ("{}", "json: cannot unmarshal object into Go value of type []handlers.jsonPatchOp"),
        ("[1]", "json: cannot unmarshal number into Go value of type handlers.jsonPatchOp"),
        (r#"[{"op":1}]"#, "json: cannot unmarshal number into Go struct field jsonPatchOp.op of type string"),
    ];
    for (patch, want) in cases {
        let want = PatchError::Malformed(format!("error decoding patch: {want}"));
        assert_eq!(apply(&json!({}), patch.as_bytes()), Err(want), "{patch}");
    }
}

#[test]
fn too_many_operations_are_too_large() {
    let operations = |n| Value::Array(vec![json!({"op": "test", "path": "/a", "value": null}); n]);
    assert_eq!(patched(&json!({}), &operations(10_000)), Ok(json!({})));
    let want = "The allowed maximum operations in a JSON patch is 10000, got 10001";
    assert_eq!(patched(&json!({}), &operations(10_001)), Err(PatchError::TooLarge(want.to_owned())));
}

#[test]
fn copies_cannot_multiply_without_end() {
    let grow = json!({"op": "copy", "from": "/a", "path": "/a/-"});
    let result = patched(&json!({"a": ["x".repeat(1024)]}), &Value::Array(vec![grow; 64]));
    assert!(matches!(result, Err(PatchError::Rejected(_))), "{result:?}");
}

proptest! {
    #[test]
    fn any_patch_is_answered(op in "(add|remove|replace|move|copy|test|x)", path in "(/(a|b|0|-|-1|~1)?){0,3}", from in "(/(a|b|0)?){0,3}") {
        let doc = json!({"a": [{"b": 1}, null], "b": {"a": "x"}, "": {"0": 1}});
        let patch = json!([{"op": op, "path": path, "from": from, "value": {"a": [1]}}]);
        let _ = apply(&doc, patch.to_string().as_bytes());
    }
}
