//! For `croft-fuzz`: what a server behind this one says that it serves.

use serde_json::Value;

/// Each resource is there once, and is of some group and version.
pub(crate) fn discovered(list: &Value) -> Vec<Value> {
    let found = super::discovered::of_list(list, "example.com", "v1");
    let names: Vec<&str> = found.iter().filter_map(|one| one["resource"].as_str()).collect();
    assert!(names.len() == found.len() && names.is_sorted_by(|a, b| a < b), "{names:?}");
    for one in &found {
        let below = one["subresources"].as_array().into_iter().flatten();
        for kind in std::iter::once(one).chain(below).map(|one| &one["responseKind"]) {
            let is_told = |field: &str| kind[field].as_str().is_some_and(|text| !text.is_empty());
            assert!(is_told("group") && is_told("version"), "{kind}");
        }
    }
    found
}
