use croft_schema::Schema;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::fieldpath::Set;
use crate::testing::{thing, thing_spec};

fn in_spec(spec: &Value) -> Value {
    json!({"spec": spec})
}

fn fields(set: &Set) -> Value {
    set.to_fields_v1().get("f:spec").cloned().unwrap_or(json!({}))
}

#[test]
fn an_object_has_its_leaves_and_items() {
    let schema = thing();
    for (spec, want) in [
        (json!({"text": "a"}), json!({"f:text": {}})),
        (json!({"struct": {"a": "1", "inner": {"b": "2"}}}), json!({"f:struct": {"f:a": {}, "f:inner": {"f:b": {}}}})),
        (json!({"struct": {}}), json!({"f:struct": {}})),
        (json!({"struct": null}), json!({"f:struct": {}})),
        (json!({"map": {"x": "1"}}), json!({"f:map": {"f:x": {}}})),
        (json!({"map": {}}), json!({"f:map": {}})),
        (json!({"whole": {"x": "1"}}), json!({"f:whole": {}})),
        (json!({"list": ["a"]}), json!({"f:list": {}})),
        (json!({"set": ["b", "a"]}), json!({"f:set": {"v:\"a\"": {}, "v:\"b\"": {}}})),
        (json!({"set": []}), json!({})),
        (json!({"set": ["a", "a"]}), json!({"f:set": {"v:\"a\"": {}}})),
        (
            json!({"items": [{"name": "n", "value": "v"}]}),
            json!({"f:items": {"k:{\"name\":\"n\"}": {".": {}, "f:name": {}, "f:value": {}}}}),
        ),
        (
            json!({"items": [{"name": "n", "value": "v"}, {"name": "n"}]}),
            json!({"f:items": {"k:{\"name\":\"n\"}": {}}}),
        ),
        (
            json!({"ports": [{"port": 1}]}),
            json!({"f:ports": {"k:{\"port\":1,\"protocol\":\"TCP\"}": {".": {}, "f:port": {}}}}),
        ),
        (json!({"any": {"x": {"y": 1, "l": [{"z": 1}]}}}), json!({"f:any": {"f:x": {".": {}, "f:y": {}, "f:l": {}}}})),
    ] {
        let set = field_set(Node::root(&schema), &in_spec(&spec));
        assert_eq!(fields(&set), if set.is_empty() { json!({}) } else { want }, "{spec}");
    }
}

#[test]
fn a_comparison_names_what_changed() {
    let schema = thing();
    let none = json!({});
    // old, new, added, modified, removed
    for (old, new, added, modified, removed) in [
        (json!({"text": "a"}), json!({"text": "a"}), none.clone(), none.clone(), none.clone()),
        (json!({"number": 1}), json!({"number": 1.0}), none.clone(), none.clone(), none.clone()),
        (json!({"text": "a"}), json!({"text": "b"}), none.clone(), json!({"f:text": {}}), none.clone()),
        (
            json!({}),
            json!({"struct": {"a": "1"}}),
            json!({"f:struct": {".": {}, "f:a": {}}}),
            none.clone(),
            none.clone(),
        ),
        (
            json!({"struct": {}}),
            json!({"struct": {"a": "1"}}),
            json!({"f:struct": {"f:a": {}}}),
            none.clone(),
            none.clone(),
        ),
        (
            json!({"struct": null}),
            json!({"struct": {"a": "1"}}),
            json!({"f:struct": {"f:a": {}}}),
            none.clone(),
            none.clone(),
        ),
        (json!({"struct": null}), json!({"struct": {}}), none.clone(), json!({"f:struct": {}}), none.clone()),
        (
            json!({"map": {"x": "1"}}),
            json!({"map": {"y": "1"}}),
            json!({"f:map": {"f:y": {}}}),
            none.clone(),
            json!({"f:map": {"f:x": {}}}),
        ),
        (
            json!({"whole": {"x": "1"}}),
            json!({"whole": {"y": "1"}}),
            none.clone(),
            json!({"f:whole": {}}),
            none.clone(),
        ),
        (json!({"set": ["a", "b"]}), json!({"set": ["b", "a"]}), none.clone(), none.clone(), none.clone()),
        (
            json!({"set": ["a"]}),
            json!({"set": ["b"]}),
            json!({"f:set": {"v:\"b\"": {}}}),
            none.clone(),
            json!({"f:set": {"v:\"a\"": {}}}),
        ),
        (
            json!({"set": ["a"]}),
            json!({"set": ["a", "a"]}),
            json!({"f:set": {"v:\"a\"": {}}}),
            none.clone(),
            json!({"f:set": {"v:\"a\"": {}}}),
        ),
        (
            json!({"items": [{"name": "n", "value": "v"}]}),
            json!({"items": [{"name": "n", "value": "w"}]}),
            none.clone(),
            json!({"f:items": {"k:{\"name\":\"n\"}": {"f:value": {}}}}),
            none.clone(),
        ),
        (
            json!({"ports": [{"port": 1}]}),
            json!({"ports": [{"port": 1, "protocol": "TCP"}]}),
            json!({"f:ports": {"k:{\"port\":1,\"protocol\":\"TCP\"}": {"f:protocol": {}}}}),
            none.clone(),
            none.clone(),
        ),
        (
            json!({"any": "x"}),
            json!({"any": {"y": 1}}),
            json!({"f:any": {"f:y": {}}}),
            json!({"f:any": {}}),
            none.clone(),
        ),
    ] {
        let changes = compare(Node::root(&schema), &in_spec(&old), &in_spec(&new));
        let got = (fields(&changes.added), fields(&changes.modified), fields(&changes.removed));
        assert_eq!(got, (added, modified, removed), "{old} -> {new}");
    }
}

#[test]
fn structs_of_built_in_types_are_always_there() {
    let schema = crate::testing::schema(&json!({"type": "object", "x-go-type": "Deployment", "properties": {
        "spec": {"type": "object", "x-go-type": "Spec", "default": {}, "required": ["containers"], "properties": {
            "containers": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
                "items": {"type": "object", "x-go-type": "Container", "properties": {"name": {"type": "string"}}}},
            "volumes": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
                "items": {"type": "object", "x-go-type": "Volume", "properties": {"name": {"type": "string"}}}},
        }},
    }}));
    let new = json!({"spec": {"containers": [{"name": "a"}], "volumes": [{"name": "v"}]}});
    let changes = compare(Node::root(&schema), &json!({}), &new);
    assert_eq!(
        changes.added.to_fields_v1(),
        json!({"f:spec": {
            "f:containers": {"k:{\"name\":\"a\"}": {".": {}, "f:name": {}}},
            "f:volumes": {".": {}, "k:{\"name\":\"v\"}": {".": {}, "f:name": {}}},
        }})
    );
}

#[test]
fn merging_keeps_what_is_not_mentioned_and_orders_lists_by_the_configuration() {
    let schema = thing();
    for (live, config, want) in [
        (json!({"text": "a", "number": 1}), json!({"text": "b"}), json!({"text": "b", "number": 1})),
        (json!({"struct": {"a": "1"}}), json!({"struct": null}), json!({"struct": {"a": "1"}})),
        (json!({"text": "a"}), json!({"text": null}), json!({"text": null})),
        (json!({"whole": {"x": "1"}}), json!({"whole": {"y": "1"}}), json!({"whole": {"y": "1"}})),
        (json!({"list": ["a"]}), json!({"list": ["b"]}), json!({"list": ["b"]})),
        (json!({"set": ["a", "b", "c"]}), json!({"set": ["d", "b"]}), json!({"set": ["a", "d", "b", "c"]})),
        (json!({"set": ["1", "2", "3"]}), json!({"set": ["3", "1"]}), json!({"set": ["2", "3", "1"]})),
        (json!({"set": ["1", "2"]}), json!({"set": []}), json!({"set": ["1", "2"]})),
        (
            json!({"items": [{"name": "a", "value": "1"}, {"name": "b"}]}),
            json!({"items": [{"name": "b", "value": "2"}, {"name": "c"}]}),
            json!({"items": [{"name": "a", "value": "1"}, {"name": "b", "value": "2"}, {"name": "c"}]}),
        ),
        (json!({"any": {"x": 1}}), json!({"any": {"y": {"z": 1}}}), json!({"any": {"x": 1, "y": {"z": 1}}})),
        (json!({"any": {"x": 1}}), json!({"any": "s"}), json!({"any": "s"})),
    ] {
        let got = merge(Node::root(&schema), &in_spec(&live), &in_spec(&config));
        assert_eq!(got, in_spec(&want), "{live} + {config}");
    }
}

#[test]
fn fields_can_be_removed_or_extracted() {
    let schema = thing();
    let object = in_spec(&json!({
        "text": "a", "map": {"x": "1", "y": "2"}, "items": [{"name": "n", "value": "v"}, {"name": "m"}], "set": ["a", "b"],
    }));
    let set = Set::from_fields_v1(&json!({"f:spec": {
        "f:text": {}, "f:map": {"f:x": {}}, "f:items": {"k:{\"name\":\"n\"}": {"f:value": {}}}, "f:set": {"v:\"a\"": {}},
    }}))
    .unwrap();
    let mut removed = object.clone();
    remove_items(Node::root(&schema), &mut removed, &set);
    assert_eq!(removed, in_spec(&json!({"map": {"y": "2"}, "items": [{"name": "n"}, {"name": "m"}], "set": ["b"]})));
    let extracted = extract_items(Node::root(&schema), &object, &set);
    assert_eq!(extracted, in_spec(&json!({"text": "a", "map": {"x": "1"}, "items": [{"value": "v"}], "set": ["a"]})));
}

#[test]
fn recorded_sets_follow_a_list_that_became_atomic() {
    let schema = thing();
    let mut set = Set::from_fields_v1(&json!({"f:spec": {
        "f:list": {"v:\"a\"": {}}, "f:whole": {"f:x": {}}, "f:map": {"f:x": {}}, "f:any": {"f:x": {"f:y": {}}},
    }}))
    .unwrap();
    follow_schema(Node::root(&schema), &mut set);
    assert_eq!(fields(&set), json!({"f:list": {}, "f:whole": {}, "f:map": {"f:x": {}}, "f:any": {"f:x": {"f:y": {}}}}));
}

fn arb() -> (Schema, impl Strategy<Value = Value>) {
    (thing(), thing_spec().prop_map(|spec| in_spec(&spec)))
}

proptest! {
    #[test]
    fn generated_things_are_valid(object in arb().1) {
        prop_assert_eq!(validate(Node::root(&arb().0), &object, Duplicates::Forbidden), Ok(()));
    }

    #[test]
    fn merging_twice_is_merging_once_and_changes_only_what_is_configured(live in arb().1, config in arb().1) {
        let schema = thing();
        let root = Node::root(&schema);
        let merged = merge(root, &live, &config);
        prop_assert_eq!(&merge(root, &merged, &config), &merged);
        // What changed, and nothing else, is what the configuration says.
        let changes = compare(root, &live, &merged);
        prop_assert_eq!(changes.is_same(), compare(root, &merged, &live).is_same());
        prop_assert!(changes.modified.difference(&field_set(root, &config)).is_empty(), "{changes:?}");
    }

    #[test]
    fn a_comparison_is_empty_only_for_equals(a in arb().1, b in arb().1) {
        let schema = thing();
        let changes = compare(Node::root(&schema), &a, &b);
        prop_assert!(compare(Node::root(&schema), &a, &a).is_same());
        let back = compare(Node::root(&schema), &b, &a);
        prop_assert_eq!(&changes.added, &back.removed);
        prop_assert_eq!(&changes.modified, &back.modified);
    }

    #[test]
    fn no_json_makes_a_walk_fail(a in crate::testing::any_json(), b in crate::testing::any_json()) {
        let schema = thing();
        let root = Node::root(&schema);
        let set = field_set(root, &a);
        let _ = validate(root, &a, Duplicates::Forbidden);
        let _ = compare(root, &a, &b);
        let mut merged = merge(root, &a, &b);
        remove_items(root, &mut merged, &set);
        let _ = extract_items(root, &b, &set);
    }
}
