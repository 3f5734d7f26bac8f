//! Reading and changing objects by dotted path. Absent, null and mistyped all read as "nothing", as in Go, where
//! they leave a field at its zero value.

use serde_json::{Map, Value};

/// The value at `spec.template.spec`; `None` if it is absent or null.
pub(crate) fn get<'a>(object: &'a Value, path: &str) -> Option<&'a Value> {
    path.split('.').try_fold(object, |node, key| node.get(key)).filter(|found| !found.is_null())
}

pub(crate) fn has(object: &Value, path: &str) -> bool {
    get(object, path).is_some()
}

pub(crate) fn text<'a>(object: &'a Value, path: &str) -> &'a str {
    get(object, path).and_then(Value::as_str).unwrap_or_default()
}

pub(crate) fn int(object: &Value, path: &str) -> Option<i64> {
    get(object, path).and_then(Value::as_i64)
}

pub(crate) fn number(object: &Value, path: &str) -> i64 {
    int(object, path).unwrap_or_default()
}

pub(crate) fn flag(object: &Value, path: &str) -> bool {
    get(object, path).and_then(Value::as_bool).unwrap_or_default()
}

pub(crate) fn list<'a>(object: &'a Value, path: &str) -> &'a [Value] {
    get(object, path).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

pub(crate) fn strings<'a>(object: &'a Value, path: &str) -> Vec<&'a str> {
    list(object, path).iter().filter_map(Value::as_str).collect()
}

pub(crate) fn map<'a>(object: &'a Value, path: &str) -> Option<&'a Map<String, Value>> {
    get(object, path).and_then(Value::as_object)
}

/// The object at the path, if it exists.
pub(crate) fn get_mut<'a>(object: &'a mut Value, path: &str) -> Option<&'a mut Value> {
    path.split('.').try_fold(object, |node, key| node.get_mut(key)).filter(|found| !found.is_null())
}

pub(crate) fn list_mut<'a>(object: &'a mut Value, path: &str) -> impl Iterator<Item = &'a mut Value> {
    get_mut(object, path).and_then(Value::as_array_mut).into_iter().flatten()
}

/// The map at the path, made on the way if it is missing. A mistyped parent is left alone and gives nothing.
pub(crate) fn map_mut<'a>(object: &'a mut Value, path: &str) -> Option<&'a mut Map<String, Value>> {
    let mut node = object;
    for key in path.split('.').filter(|key| !key.is_empty()) {
        let next = node.as_object_mut()?.entry(key).or_insert(Value::Null);
        if next.is_null() {
            *next = Value::Object(Map::new());
        }
        node = next;
    }
    node.as_object_mut()
}

/// Sets the field if it is absent or null. Parents are made.
pub(crate) fn default(object: &mut Value, path: &str, value: impl Into<Value>) {
    if has(object, path) {
        return;
    }
    set(object, path, value);
}

/// As [`default`], and an empty string counts as absent.
pub(crate) fn default_text(object: &mut Value, path: &str, value: &str) {
    if text(object, path).is_empty() {
        set(object, path, value);
    }
}

pub(crate) fn set(object: &mut Value, path: &str, value: impl Into<Value>) {
    let (parent, field) = path.rsplit_once('.').unwrap_or(("", path));
    if let Some(map) = map_mut(object, parent) {
        map.insert(field.to_owned(), value.into());
    }
}

pub(crate) fn remove(object: &mut Value, path: &str) -> Option<Value> {
    let (parent, field) = path.rsplit_once('.').unwrap_or(("", path));
    let parent = if parent.is_empty() { Some(object) } else { get_mut(object, parent) };
    parent?.as_object_mut()?.remove(field)
}

/// Makes `path` in `object` what it is in `old`: set, or absent.
pub(crate) fn restore(object: &mut Value, old: &Value, path: &str) {
    match get(old, path) {
        Some(value) => set(object, path, value.clone()),
        None => drop(remove(object, path)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn null_reads_as_absent() {
        let object = json!({"spec": {"replicas": null, "name": 3}});
        assert_eq!(int(&object, "spec.replicas"), None);
        assert_eq!(text(&object, "spec.name"), "");
        assert!(list(&object, "spec.items").is_empty());
    }

    #[test]
    fn defaults_make_their_parents_but_never_replace() {
        let mut object = json!({"spec": {"a": 0}});
        default(&mut object, "spec.a", 1);
        default(&mut object, "spec.b.c", 2);
        assert_eq!(object, json!({"spec": {"a": 0, "b": {"c": 2}}}));
    }

    #[test]
    fn restore_puts_back_and_takes_away() {
        let mut object = json!({"spec": 1, "status": 2});
        restore(&mut object, &json!({"spec": 3}), "spec");
        restore(&mut object, &json!({"spec": 3}), "status");
        assert_eq!(object, json!({"spec": 3}));
    }
}
