use croft_meta::ApiError;
use proptest::prelude::*;
use serde_json::json;

use super::*;

fn schema() -> Schema {
    crate::testing::schema(&json!({"type": "object", "x-go-type": "Thing", "properties": {
        "text": {"type": "string"},
        "number": {"type": "integer"},
        "map": {"type": "object", "additionalProperties": {"type": "string"}},
        "replaced": {"type": "array", "items": {"type": "string"}},
        "values": {"type": "array", "items": {"type": "string"}, "x-kubernetes-patch-strategy": "merge"},
        "numbers": {"type": "array", "items": {"type": "integer"}, "x-kubernetes-patch-strategy": "merge"},
        "struct": {"type": "object", "x-go-type": "Struct", "x-kubernetes-patch-strategy": "retainKeys", "properties": {
            "a": {"type": "string"}, "b": {"type": "string"}, "c": {"type": "string"},
        }},
        "items": {"type": "array", "x-kubernetes-patch-strategy": "merge", "x-kubernetes-patch-merge-key": "name", "items": {
            "type": "object", "x-go-type": "Item", "properties": {
                "name": {"type": "string"}, "value": {"type": "string"}, "other": {"type": "string"},
                "values": {"type": "array", "items": {"type": "string"}, "x-kubernetes-patch-strategy": "merge"},
                "inner": {"type": "array", "x-kubernetes-patch-strategy": "merge", "x-kubernetes-patch-merge-key": "key", "items": {
                    "type": "object", "x-go-type": "Inner", "properties": {"key": {"type": "integer"}, "v": {"type": "string"}}}},
            }}},
        "keyless": {"type": "array", "x-kubernetes-patch-strategy": "merge", "items": {"type": "object", "properties": {"a": {"type": "string"}}}},
    }}))
}

fn items(names: &str) -> Value {
    names.chars().map(|name| json!({"name": name.to_string()})).collect()
}

#[test]
fn patches_give_what_upstream_gives() {
    let cases = [
        ("set", json!({"text": "a"}), json!({"text": "b", "number": 1}), json!({"text": "b", "number": 1})),
        ("null deletes", json!({"text": "a", "number": 1}), json!({"text": null, "map": null}), json!({"number": 1})),
        (
            "maps merge",
            json!({"map": {"a": "1", "b": "1"}}),
            json!({"map": {"a": "2", "b": null, "c": "3"}}),
            json!({"map": {"a": "2", "c": "3"}}),
        ),
        ("nulls in a new map go", json!({}), json!({"map": {"a": null, "b": "1"}}), json!({"map": {"b": "1"}})),
        (
            "a map is replaced",
            json!({"map": {"a": "1"}}),
            json!({"map": {"$patch": "replace", "b": "2"}}),
            json!({"map": {"b": "2"}}),
        ),
        ("a map is emptied", json!({"map": {"a": "1"}}), json!({"map": {"$patch": "delete"}}), json!({"map": {}})),
        ("a directive for nothing is nothing", json!({}), json!({"map": {"$patch": "delete"}}), json!({})),
        ("lists are replaced", json!({"replaced": ["a"]}), json!({"replaced": ["b"]}), json!({"replaced": ["b"]})),
        (
            "values merge",
            json!({"values": ["a", "b"]}),
            json!({"values": ["b", "c"]}),
            json!({"values": ["a", "b", "c"]}),
        ),
        (
            "values are deleted",
            json!({"values": ["a", "b", "c"]}),
            json!({"$deleteFromPrimitiveList/values": ["a", "c", "x"]}),
            json!({"values": ["b"]}),
        ),
        (
            "values are deleted from a replaced list",
            json!({"replaced": ["a", "b"]}),
            json!({"$deleteFromPrimitiveList/replaced": ["a"]}),
            json!({"replaced": ["b"]}),
        ),
        ("deletion from nothing", json!({}), json!({"$deleteFromPrimitiveList/values": ["a"]}), json!({})),
        (
            "values are deleted, added and ordered",
            json!({"values": ["a", "b", "c"]}),
            json!({"$deleteFromPrimitiveList/values": ["a"], "$setElementOrder/values": ["d", "c", "b"], "values": ["d"]}),
            json!({"values": ["d", "c", "b"]}),
        ),
        (
            "items merge by key",
            json!({"items": [{"name": "a", "value": "1"}, {"name": "b"}]}),
            json!({"items": [{"name": "b", "value": "2"}, {"name": "c", "value": "3"}]}),
            json!({"items": [{"name": "a", "value": "1"}, {"name": "b", "value": "2"}, {"name": "c", "value": "3"}]}),
        ),
        (
            "items merge deeply",
            json!({"items": [{"name": "a", "inner": [{"key": 1, "v": "x"}, {"key": 2}], "values": ["p"]}]}),
            json!({"items": [{"name": "a", "inner": [{"key": 1, "v": "y"}, {"key": 2, "$patch": "delete"}], "values": ["q"], "other": null}]}),
            json!({"items": [{"name": "a", "inner": [{"key": 1, "v": "y"}], "values": ["q", "p"]}]}),
        ),
        (
            "an item is deleted",
            json!({"items": [{"name": "a"}, {"name": "b"}]}),
            json!({"items": [{"name": "a", "$patch": "delete"}]}),
            json!({"items": [{"name": "b"}]}),
        ),
        (
            "a missing item is deleted",
            json!({"items": [{"name": "a"}]}),
            json!({"items": [{"name": "z", "$patch": "delete"}]}),
            json!({"items": [{"name": "a"}]}),
        ),
        (
            "an item is replaced",
            json!({"items": [{"name": "a", "value": "1"}]}),
            json!({"items": [{"$patch": "replace"}, {"name": "b"}]}),
            json!({"items": [{"name": "b"}]}),
        ),
        (
            "a new list loses its directives",
            json!({}),
            json!({"items": [{"name": "a", "$patch": "delete"}, {"name": "b", "value": null}]}),
            json!({"items": [{"name": "b"}]}),
        ),
        (
            "an item becomes empty",
            json!({"items": [{"name": "a"}]}),
            json!({"items": []}),
            json!({"items": [{"name": "a"}]}),
        ),
        (
            "keys are retained",
            json!({"struct": {"a": "1", "b": "2"}}),
            json!({"struct": {"$retainKeys": ["b", "c"], "c": "3"}}),
            json!({"struct": {"b": "2", "c": "3"}}),
        ),
        (
            "retained keys and deletion",
            json!({"struct": {"a": "1", "b": "2"}}),
            json!({"struct": {"$retainKeys": ["b"], "a": null}}),
            json!({"struct": {"b": "2"}}),
        ),
        (
            "the order is set",
            json!({"items": items("abc")}),
            json!({"$setElementOrder/items": items("cab")}),
            json!({"items": items("cab")}),
        ),
        (
            "the order is set, others stay before what they preceded",
            json!({"items": items("1a2b3")}),
            json!({"$setElementOrder/items": items("ba"), "items": [{"name": "b", "value": "x"}]}),
            json!({"items": [{"name": "1"}, {"name": "2"}, {"name": "b", "value": "x"}, {"name": "a"}, {"name": "3"}]}),
        ),
        (
            "a new item takes the place of a deleted one",
            json!({"items": items("cabfe")}),
            json!({"$setElementOrder/items": items("dehc"), "items": [
                {"name": "d"}, {"name": "e"}, {"name": "a", "$patch": "delete"}, {"name": "h"}, {"name": "b", "$patch": "delete"}, {"name": "c"},
            ]}),
            json!({"items": items("fdehc")}),
        ),
        (
            "a list is added in order",
            json!({}),
            json!({"$setElementOrder/items": items("ba"), "items": items("ba")}),
            json!({"items": items("ba")}),
        ),
        ("an order for nothing is nothing", json!({}), json!({"$setElementOrder/items": items("ba")}), json!({})),
        (
            "the order of numbers",
            json!({"numbers": [1, 2, 3]}),
            json!({"$setElementOrder/numbers": [3, 1]}),
            json!({"numbers": [2, 3, 1]}),
        ),
        ("null is nothing", json!({"text": "a"}), json!(null), json!({"text": "a"})),
        ("another type wins", json!({"map": {"a": "1"}}), json!({"map": "x"}), json!({"map": "x"})),
    ];
    for (name, doc, patch, want) in cases {
        assert_eq!(apply(&schema(), &doc, &patch), Ok(want), "{name}");
    }
}

#[test]
fn contradictory_patches_fail_with_upstreams_words() {
    use PatchError::{Failed, Malformed, Rejected};
    let failed = |text: &str| Failed(text.to_owned());
    let doc = json!({
        "map": {"a": "1"}, "values": ["a"], "items": [{"name": "a"}], "struct": {"a": "1"}, "keyless": [{"a": "1"}],
    });
    let cases = [
        (json!({"map": {"$patch": "merge"}}), failed("unknown patch type: merge in map: map[$patch:merge]")),
        (
            json!({"items": [{"name": "a", "$patch": "merge"}]}),
            failed("merging lists cannot yet be specified in the patch"),
        ),
        (
            json!({"items": [{"name": "a", "$patch": "x"}]}),
            failed("unknown patch type: x in map: map[$patch:x name:a]"),
        ),
        (json!({"items": [{"value": "a"}]}), failed("map: map[value:a] does not contain declared merge key: name")),
        (
            json!({"items": [{"$patch": "delete"}]}),
            failed("map: map[$patch:delete] does not contain declared merge key: name"),
        ),
        (json!({"items": ["a"]}), failed("list element types are not identical: [[map[name:a]] [a]]")),
        (json!({"values": [["a"]]}), failed("list element types are not identical: [[a] [[a]]]")),
        (json!({"keyless": [{"a": "2"}]}), failed("cannot merge lists without merge key for struct")),
        (json!({"$deleteFromPrimitiveList": ["a"]}), Malformed("invalid patch format of primitive list".to_owned())),
        (json!({"$setElementOrder": ["a"]}), Malformed("invalid patch format of setElementOrder list".to_owned())),
        (json!({"$setElementOrder/values": "a"}), failed("expected a []interface {}, but received a string")),
        (
            json!({"$setElementOrder/nope": []}),
            failed("unable to find api field in struct Thing for the json field \"nope\""),
        ),
        (
            json!({"struct": {"$retainKeys": ["a"], "b": "1"}}),
            Malformed("invalid patch format of retainKeys".to_owned()),
        ),
        (json!({"struct": {"$retainKeys": "a"}}), Malformed("invalid patch format of retainKeys".to_owned())),
        (
            json!({"$setElementOrder/values": ["b"], "values": ["c"]}),
            failed("The order in patch list:\n[c]\n doesn't match $setElementOrder list:\n[b]\n"),
        ),
        (json!([]), Malformed("json: cannot unmarshal array into Go value of type map[string]interface {}".to_owned())),
    ];
    for (patch, want) in cases {
        assert_eq!(apply(&schema(), &doc, &patch), Err(want), "{patch}");
    }
    let nested = apply(&schema(), &json!({"values": [["a"]]}), &json!({"values": [["b"]]}));
    assert_eq!(nested, Err(Rejected("lists of lists are not supported".to_owned())));
    assert_eq!(ApiError::from(nested.unwrap_err()).code(), 422);
}

proptest! {
    #[test]
    fn no_json_makes_a_patch_panic(doc in crate::testing::any_json(), patch in crate::testing::any_json()) {
        let schema = crate::testing::thing();
        let _ = apply(&schema, &doc, &patch);
        let _ = apply(&schema, &json!({"spec": doc}), &json!({"spec": patch}));
    }
}
