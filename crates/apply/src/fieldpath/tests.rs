use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn set(fields: &Value) -> Set {
    Set::from_fields_v1(fields).unwrap()
}

#[test]
fn fields_are_written_in_canonical_order() {
    let fields = set(&json!({
        "v:3": {}, "i:1": {}, "k:{\"port\":443}": {}, "k:{\"port\":80}": {".": {}, "f:name": {}}, "f:b": {"f:x": {}}, "f:a": {},
        "v:\"s\"": {}, "v:true": {}, "v:null": {},
    }));
    assert_eq!(
        fields.to_fields_v1_text(),
        r#"{"f:a":{},"f:b":{"f:x":{}},"k:{\"port\":80}":{".":{},"f:name":{}},"k:{\"port\":443}":{},"v:3":{},"v:\"s\"":{},"v:true":{},"v:null":{},"i:1":{}}"#
    );
}

#[test]
fn values_are_written_as_upstream_escapes_them() {
    let mut fields = Set::new();
    fields.insert(&[PathElement::Key(vec![("a<".to_owned(), json!("<&>\n\u{1}")), ("n".to_owned(), json!(2.0))])]);
    assert_eq!(fields.to_fields_v1(), json!({"k:{\"a<\":\"\\u003c\\u0026\\u003e\\n\\u0001\",\"n\":2}": {}}));
    assert_eq!(set(&fields.to_fields_v1()), fields);
}

#[test]
fn what_is_read_is_normalised() {
    for (fields, want) in [
        (json!({}), json!({})),
        (json!(null), json!({})),
        (json!({"f:a": null}), json!({"f:a": {}})),
        (json!({"f:a": {".": {}}}), json!({"f:a": {}})),
        (json!({"f:a": {"z:future": {"f:b": {}}}}), json!({"f:a": {}})),
        (json!({"k:{\"b\":1,\"a\":2}": {}}), json!({"k:{\"a\":2,\"b\":1}": {}})),
        (json!({"v:1": {}, "v:1.0": {}}), json!({"v:1": {}})),
    ] {
        assert_eq!(set(&fields).to_fields_v1(), want, "{fields}");
    }
}

#[test]
fn what_is_no_field_set_is_refused() {
    for fields in [
        json!([]),
        json!("x"),
        json!({"f:a": 1}),
        json!({"x": {}}),
        json!({"field": {}}),
        json!({"v:{": {}}),
        json!({"k:[]": {}}),
        json!({"i:x": {}}),
    ] {
        assert!(Set::from_fields_v1(&fields).is_err(), "{fields}");
    }
}

#[test]
fn paths_print_as_conflicts_show_them() {
    let fields = set(
        &json!({"f:spec": {".": {}, "f:list": {"k:{\"a\":\"x\",\"b\":1}": {"f:c": {}}, "v:\"q\"": {}, "i:2": {}}}}),
    );
    let paths: Vec<String> = fields.paths().iter().map(|p| path_string(p)).collect();
    assert_eq!(paths, [".spec", ".spec.list[=\"q\"]", ".spec.list[2]", ".spec.list[a=\"x\",b=1].c"]);
    assert!(fields.paths().iter().all(|path| fields.contains(path)));
    assert!(!fields.contains(&[]));
}

#[test]
fn membership_of_parents_and_children_is_independent() {
    let parent_and_child = set(&json!({"f:a": {".": {}, "f:b": {}}}));
    let parent = set(&json!({"f:a": {}}));
    let child = set(&json!({"f:a": {"f:b": {}}}));
    assert_eq!(parent_and_child.difference(&parent), child);
    assert_eq!(parent_and_child.difference(&child), parent);
    assert_eq!(parent.union(&child), parent_and_child);
    assert!(parent.intersection(&child).is_empty());
    assert_eq!(child.recursive_difference(&parent), Set::new());
    assert_eq!(parent.recursive_difference(&child), parent);
    assert_eq!(parent_and_child.leaves(), child);
    assert_eq!(parent_and_child.len(), 2);
}

fn any_element() -> impl Strategy<Value = PathElement> {
    let scalar = prop_oneof![
        (-2..2i64).prop_map(Value::from),
        "[ab\"\\\\<]{0,2}".prop_map(Value::from),
        any::<bool>().prop_map(Value::from),
        Just(json!(0.5))
    ];
    prop_oneof![
        "[a-c.:]{0,2}".prop_map(PathElement::Field),
        prop::collection::btree_map("[ab]", scalar.clone(), 1..3)
            .prop_map(|m| PathElement::Key(m.into_iter().collect())),
        scalar.prop_map(PathElement::Value),
        (-1..3i64).prop_map(PathElement::Index),
    ]
}

fn any_set() -> impl Strategy<Value = Set> {
    prop::collection::vec(prop::collection::vec(any_element(), 1..4), 0..12)
        .prop_map(|paths| paths.into_iter().collect())
}

proptest! {
    #[test]
    fn fields_v1_round_trips(fields in any_set()) {
        prop_assert_eq!(&Set::from_fields_v1(&fields.to_fields_v1()).unwrap(), &fields);
        let text: Value = serde_json::from_str(&fields.to_fields_v1_text()).unwrap();
        prop_assert_eq!(text, fields.to_fields_v1());
    }

    #[test]
    fn the_laws_of_sets_hold(a in any_set(), b in any_set(), c in any_set()) {
        prop_assert_eq!(a.union(&b), b.union(&a));
        prop_assert_eq!(a.union(&b.union(&c)), a.union(&b).union(&c));
        prop_assert_eq!(a.intersection(&b), b.intersection(&a));
        prop_assert_eq!(a.intersection(&b.union(&c)), a.intersection(&b).union(&a.intersection(&c)));
        prop_assert_eq!(a.difference(&b), a.difference(&a.intersection(&b)));
        prop_assert_eq!(a.difference(&b).union(&a.intersection(&b)), a.clone());
        prop_assert_eq!(a.difference(&b.union(&c)), a.difference(&b).difference(&c));
        prop_assert_eq!(a.intersects(&b), !a.intersection(&b).is_empty());
        prop_assert_eq!(a.union(&a), a.clone());
        prop_assert_eq!(a.difference(&a), Set::new());
        prop_assert_eq!(a.union(&b).len() + a.intersection(&b).len(), a.len() + b.len());
        let below = a.recursive_difference(&b);
        prop_assert_eq!(below.difference(&a.difference(&b)), Set::new());
    }

    #[test]
    fn any_json_is_read_or_refused(fields in crate::testing::any_json()) {
        let _ = Set::from_fields_v1(&fields);
    }
}
