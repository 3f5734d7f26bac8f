//! What upstream's apimachinery/pkg/api/validation demands of `metadata`.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{NameRule, is_dns1123_label, is_qualified_name, is_valid_label_value};
use crate::field::{FieldError, FieldErrors, FieldPath};
use crate::object;

const ANNOTATIONS_MAX_BYTES: usize = 256 << 10;
const FIELD_MANAGER_MAX_BYTES: usize = 128;
const SUBRESOURCE_MAX_BYTES: usize = 256;
const IMMUTABLE: &str = "field is immutable";

fn entries(map: &Value) -> impl Iterator<Item = (&str, &str)> {
    map.as_object().into_iter().flatten().filter_map(|(key, value)| Some((key.as_str(), value.as_str()?)))
}

/// Keys and values of a label map.
pub fn validate_labels(labels: &Value, path: &FieldPath) -> FieldErrors {
    let mut errors = Vec::new();
    for (key, value) in entries(labels) {
        errors.extend(is_qualified_name(key).into_iter().map(|e| FieldError::invalid(path, key, e)));
        errors.extend(is_valid_label_value(value).into_iter().map(|e| FieldError::invalid(path, value, e)));
    }
    errors
}

/// Keys (in any case) and the total size of an annotation map.
pub fn validate_annotations(annotations: &Value, path: &FieldPath) -> FieldErrors {
    let mut errors = Vec::new();
    let mut size = 0;
    for (key, value) in entries(annotations) {
        let lower = key.to_lowercase();
        errors.extend(is_qualified_name(&lower).into_iter().map(|e| FieldError::invalid(path, key, e)));
        size += key.len() + value.len();
    }
    if size > ANNOTATIONS_MAX_BYTES {
        errors.push(FieldError::too_long(path, ANNOTATIONS_MAX_BYTES));
    }
    errors
}

/// The name a client gives itself in `fieldManager`.
pub fn validate_field_manager(manager: &str, path: &FieldPath) -> FieldErrors {
    let mut errors = Vec::new();
    if manager.len() > FIELD_MANAGER_MAX_BYTES {
        errors.push(FieldError::too_long(path, FIELD_MANAGER_MAX_BYTES));
    }
    for (at, c) in manager.char_indices() {
        if c.is_control() || (c.is_whitespace() && c != ' ') {
            let detail = format!("invalid character U+{:04X} (at position {at})", u32::from(c));
            errors.push(FieldError::invalid(path, manager, detail));
        }
    }
    errors
}

/// `metadata` of an object about to be created; `generateName` has already become a name.
pub fn validate_object_meta(object: &Value, namespaced: bool, name_rule: NameRule) -> FieldErrors {
    let path = FieldPath::new("metadata");
    let metadata = &object["metadata"];
    let text = |field: &str| metadata[field].as_str().unwrap_or_default();
    let mut errors = Vec::new();

    let prefix = text("generateName");
    if !prefix.is_empty() {
        let at = path.child("generateName");
        errors.extend(name_rule(&as_finished_name(prefix)).into_iter().map(|e| FieldError::invalid(&at, prefix, e)));
    }
    let name = text("name");
    let at = path.child("name");
    if name.is_empty() {
        errors.push(FieldError::required(&at, "name or generateName is required"));
    } else {
        errors.extend(name_rule(name).into_iter().map(|e| FieldError::invalid(&at, name, e)));
    }
    let namespace = text("namespace");
    let at = path.child("namespace");
    match (namespaced, namespace.is_empty()) {
        (true, true) => errors.push(FieldError::required(&at, "")),
        (true, false) => {
            errors.extend(is_dns1123_label(namespace).into_iter().map(|e| FieldError::invalid(&at, namespace, e)));
        }
        (false, true) => {}
        (false, false) => errors.push(FieldError::forbidden(&at, "not allowed on this type")),
    }
    let generation = object::generation(object);
    if generation < 0 {
        errors.push(FieldError::invalid(&path.child("generation"), generation, "must be greater than or equal to 0"));
    }
    errors.extend(validate_labels(&metadata["labels"], &path.child("labels")));
    errors.extend(validate_annotations(&metadata["annotations"], &path.child("annotations")));
    errors.extend(validate_owner_references(object, &path.child("ownerReferences")));
    errors.extend(validate_finalizers(&object::finalizers(object), &path.child("finalizers")));
    errors.extend(validate_managed_fields(&metadata["managedFields"], &path.child("managedFields")));
    errors
}

/// A prefix may end in a dash, because more follows; upstream checks it with its end replaced.
fn as_finished_name(prefix: &str) -> String {
    match prefix.strip_suffix('-') {
        Some(rest) if !rest.is_empty() => {
            let mut chars = rest.chars();
            chars.next_back();
            format!("{}a", chars.as_str())
        }
        _ => prefix.to_owned(),
    }
}

/// `metadata` of an object about to be replaced.
pub fn validate_object_meta_update(new: &Value, old: &Value) -> FieldErrors {
    let path = FieldPath::new("metadata");
    let metadata = &new["metadata"];
    let mut errors = Vec::new();

    if object::deletion_timestamp(old).is_some() {
        let had: BTreeSet<&str> = object::finalizers(old).into_iter().collect();
        let added: BTreeSet<&str> = object::finalizers(new).into_iter().filter(|f| !had.contains(f)).collect();
        if !added.is_empty() {
            let list: Vec<String> = added.iter().map(|f| crate::field::go_quote(f)).collect();
            let detail = format!(
                "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
                list.join(", ")
            );
            errors.push(FieldError::forbidden(&path.child("finalizers"), detail));
        }
    }
    if object::resource_version(new).is_empty() {
        errors.push(FieldError::invalid(&path.child("resourceVersion"), "", "must be specified for an update"));
    }
    if object::generation(new) < object::generation(old) {
        let at = path.child("generation");
        errors.push(FieldError::invalid(&at, object::generation(new), "must not be decremented"));
    }
    for field in ["name", "namespace", "uid"] {
        let text = |object: &Value| object["metadata"][field].as_str().unwrap_or_default().to_owned();
        if text(new) != text(old) {
            errors.push(FieldError::invalid(&path.child(field), text(new), IMMUTABLE));
        }
    }
    for field in ["creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"] {
        if metadata[field] != old["metadata"][field] {
            errors.push(FieldError::invalid(&path.child(field), metadata[field].clone(), IMMUTABLE));
        }
    }
    errors.extend(validate_labels(&metadata["labels"], &path.child("labels")));
    errors.extend(validate_annotations(&metadata["annotations"], &path.child("annotations")));
    errors.extend(validate_owner_references(new, &path.child("ownerReferences")));
    errors.extend(validate_managed_fields(&metadata["managedFields"], &path.child("managedFields")));
    errors
}

fn validate_owner_references(object: &Value, path: &FieldPath) -> FieldErrors {
    let mut errors = Vec::new();
    let mut controller = String::new();
    let owners = object::owner_references(object);
    for owner in owners {
        errors.extend(validate_owner_reference(owner, path));
        if owner["controller"] != json!(true) {
            continue;
        }
        let text = |field: &str| owner[field].as_str().unwrap_or_default();
        let this = format!("{}/{}", text("kind"), text("name"));
        if controller.is_empty() {
            controller = this;
            continue;
        }
        let detail = format!(
            "Only one reference can have Controller set to true. Found \"true\" in references for {controller} and {this}"
        );
        errors.push(FieldError::invalid(path, json!(owners), detail));
    }
    errors
}

fn validate_owner_reference(owner: &Value, path: &FieldPath) -> FieldErrors {
    let text = |field: &str| owner[field].as_str().unwrap_or_default();
    let gvk = object::gvk(owner);
    let mut errors = Vec::new();
    if gvk.version.is_empty() {
        let at = path.child("apiVersion");
        errors.push(FieldError::invalid(&at, text("apiVersion"), "version must not be empty"));
    }
    for field in ["kind", "name", "uid"] {
        if text(field).is_empty() {
            errors.push(FieldError::invalid(&path.child(field), "", "must not be empty"));
        }
    }
    if gvk.group.is_empty() && gvk.version == "v1" && gvk.kind == "Event" {
        let detail = format!("{gvk} is disallowed from being an owner");
        errors.push(FieldError::invalid(path, owner.clone(), detail));
    }
    errors
}

fn validate_finalizers(finalizers: &[&str], path: &FieldPath) -> FieldErrors {
    let mut errors = Vec::new();
    for finalizer in finalizers {
        errors.extend(is_qualified_name(finalizer).into_iter().map(|e| FieldError::invalid(path, *finalizer, e)));
    }
    if finalizers.contains(&"orphan") && finalizers.contains(&"foregroundDeletion") {
        let detail = "finalizer orphan and foregroundDeletion cannot be both set";
        errors.push(FieldError::invalid(path, json!(finalizers), detail));
    }
    errors
}

fn validate_managed_fields(entries: &Value, path: &FieldPath) -> FieldErrors {
    let mut errors = Vec::new();
    for (index, entry) in entries.as_array().into_iter().flatten().enumerate() {
        let at = path.index(index);
        let text = |field: &str| entry[field].as_str().unwrap_or_default();
        if !matches!(text("operation"), "Apply" | "Update") {
            let detail = "must be `Apply` or `Update`";
            errors.push(FieldError::invalid(&at.child("operation"), text("operation"), detail));
        }
        if !matches!(text("fieldsType"), "" | "FieldsV1") {
            errors.push(FieldError::invalid(&at.child("fieldsType"), text("fieldsType"), "must be `FieldsV1`"));
        }
        errors.extend(validate_field_manager(text("manager"), &at.child("manager")));
        if text("subresource").len() > SUBRESOURCE_MAX_BYTES {
            errors.push(FieldError::too_long(&at.child("subresource"), SUBRESOURCE_MAX_BYTES));
        }
    }
    errors
}

#[cfg(test)]
mod tests {
    use super::super::is_dns1123_subdomain;
    use super::*;

    fn create(metadata: &Value) -> Vec<String> {
        let errors = validate_object_meta(&json!({"metadata": metadata}), true, is_dns1123_subdomain);
        errors.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn creation_checks_names_owners_and_finalizers() {
        let cases = [
            (json!({"name": "a", "namespace": "b"}), None),
            (json!({"name": "a-x", "generateName": "a-", "namespace": "b"}), None),
            (json!({"namespace": "b"}), Some("metadata.name: Required value: name or generateName is required")),
            (json!({"name": "a"}), Some("metadata.namespace: Required value")),
            (
                json!({"name": "a", "namespace": "b", "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p"}]}),
                Some("metadata.ownerReferences.uid: Invalid value: \"\": must not be empty"),
            ),
            (
                json!({"name": "a", "namespace": "b", "finalizers": ["orphan", "foregroundDeletion"]}),
                Some(
                    "metadata.finalizers: Invalid value: [\"orphan\",\"foregroundDeletion\"]: finalizer orphan and \
                     foregroundDeletion cannot be both set",
                ),
            ),
            (
                json!({"name": "a", "namespace": "b", "annotations": {"x": "a".repeat(256 << 10)}}),
                Some("metadata.annotations: Too long: may not be more than 262144 bytes"),
            ),
        ];
        for (metadata, want) in cases {
            assert_eq!(create(&metadata), want.into_iter().collect::<Vec<_>>(), "{metadata}");
        }
    }

    #[test]
    fn a_cluster_scoped_object_has_no_namespace() {
        let object = json!({"metadata": {"name": "a", "namespace": "b"}});
        let errors = validate_object_meta(&object, false, is_dns1123_subdomain);
        assert_eq!(errors[0].to_string(), "metadata.namespace: Forbidden: not allowed on this type");
    }

    #[test]
    fn two_controllers_are_one_too_many() {
        let owner = |name| json!({"apiVersion": "v1", "kind": "Pod", "name": name, "uid": "u", "controller": true});
        let errors = create(&json!({"name": "a", "namespace": "b", "ownerReferences": [owner("p"), owner("q")]}));
        assert!(errors[0].ends_with(r#"Found "true" in references for Pod/p and Pod/q"#), "{errors:?}");
    }

    #[test]
    fn updates_may_not_change_identity_or_add_finalizers_while_deleting() {
        let old = json!({"metadata": {"name": "a", "uid": "1", "resourceVersion": "1", "generation": 2,
            "deletionTimestamp": "2024-01-01T00:00:00Z", "finalizers": ["x/a"]}});
        let mut new = old.clone();
        assert_eq!(validate_object_meta_update(&new, &old), []);
        new["metadata"]["uid"] = json!("2");
        new["metadata"]["generation"] = json!(1);
        new["metadata"]["finalizers"] = json!(["x/b", "x/a"]);
        let errors: Vec<String> = validate_object_meta_update(&new, &old).iter().map(ToString::to_string).collect();
        assert_eq!(
            errors,
            [
                "metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted, found \
                 new finalizers []string{\"x/b\"}",
                "metadata.generation: Invalid value: 1: must not be decremented",
                "metadata.uid: Invalid value: \"2\": field is immutable",
            ]
        );
    }
}
