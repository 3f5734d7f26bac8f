//! Random JSON over a small set of keys, so that it often meets the test schemas.

use proptest::prelude::*;
use serde_json::{Map, Value};

pub(crate) fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::Bool),
        any::<i32>().prop_map(Value::from),
        "[a-z]{0,3}".prop_map(Value::String),
    ];
    let key = prop_oneof![
        "[a-e]",
        Just("spec".to_owned()),
        Just("list".to_owned()),
        Just("map".to_owned()),
        Just("free".to_owned()),
        Just("strict".to_owned()),
        Just("template".to_owned()),
        Just("metadata".to_owned()),
        Just("k".to_owned()),
    ];
    leaf.prop_recursive(5, 48, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::Array),
            prop::collection::btree_map(key.clone(), inner, 0..5)
                .prop_map(|map| Value::Object(map.into_iter().collect::<Map<_, _>>())),
        ]
    })
}
