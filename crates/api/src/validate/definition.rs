//! CustomResourceDefinitions, all but the schemas inside (`croft_schema::check_structural` has those).

use croft_meta::{FieldError, FieldErrors, FieldPath, names};
use serde_json::Value;

use super::checks::{one_of, required, unchanged};
use super::{admission, spec};
use crate::view::{flag, get, has, list, strings, text};

pub(super) fn validate(object: &Value) -> FieldErrors {
    let mut errors = Vec::new();
    let (group, plural) = (text(object, "spec.group"), text(object, "spec.names.plural"));
    let name = text(object, "metadata.name");
    if name != format!("{plural}.{group}") {
        let text = r#"must be spec.names.plural+"."+spec.group"#;
        errors.push(FieldError::invalid(&FieldPath::new("metadata.name"), name, text));
    }
    check_group(&mut errors, group);
    check_approval(&mut errors, object, group);
    check_scope(&mut errors, text(object, "spec.scope"));
    check_names(&mut errors, object);
    check_versions(&mut errors, object);
    check_conversion(&mut errors, object);
    check_stored(&mut errors, object);
    if flag(object, "spec.preserveUnknownFields") {
        let path = spec().child("preserveUnknownFields");
        let text = "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in \
                    spec.versions[*].schema instead";
        errors.push(FieldError::invalid(&path, true, text));
    }
    errors
}

fn check_group(errors: &mut FieldErrors, group: &str) {
    let path = spec().child("group");
    if group.is_empty() {
        errors.push(FieldError::required(&path, ""));
        return;
    }
    let wrong = names::is_dns1123_subdomain(group);
    if !wrong.is_empty() {
        errors.push(FieldError::invalid(&path, group, wrong.join(",")));
    } else if !group.contains('.') {
        errors.push(FieldError::invalid(&path, group, "should be a domain with at least one dot"));
    }
}

/// Groups of the Kubernetes project need its approval.
fn check_approval(errors: &mut FieldErrors, object: &Value, group: &str) {
    const KEY: &str = "api-approved.kubernetes.io";
    const SEE: &str = "see https://github.com/kubernetes/enhancements/pull/1111";
    let is_protected = ["k8s.io", "kubernetes.io"]
        .iter()
        .any(|domain| group == *domain || group.strip_suffix(domain).is_some_and(|rest| rest.ends_with('.')));
    if !is_protected {
        return;
    }
    let path = FieldPath::new("metadata.annotations").key(KEY);
    match croft_meta::object::annotation(object, KEY).unwrap_or_default() {
        "" => {
            let text = format!("protected groups must have approval annotation {KEY:?}, {SEE}");
            errors.push(FieldError::required(&path, text));
        }
        reason if reason.starts_with("unapproved") || reason.contains("://") => {}
        other => {
            let text = format!(
                "protected groups must have approval annotation {KEY:?} with either a URL or a reason starting with \
                 \"unapproved\", {SEE}"
            );
            errors.push(FieldError::invalid(&path, other, text));
        }
    }
}

fn check_scope(errors: &mut FieldErrors, scope: &str) {
    let path = spec().child("scope");
    if scope.is_empty() {
        errors.push(FieldError::required(&path, ""));
    } else {
        one_of(errors, &path, scope, &["Cluster", "Namespaced"]);
    }
}

const MIXED: &str = "may have mixed case, but should otherwise match: ";

fn check_names(errors: &mut FieldErrors, object: &Value) {
    let path = spec().child("names");
    let field = |name: &str| text(object, &format!("spec.names.{name}"));
    for name in ["plural", "singular", "kind", "listKind"] {
        required(errors, &path.child(name), field(name));
    }
    let mut label = |path: FieldPath, value: &str, prefix: &str| {
        let wrong = names::is_dns1035_label(&if prefix.is_empty() { value.to_owned() } else { value.to_lowercase() });
        if !value.is_empty() && !wrong.is_empty() {
            errors.push(FieldError::invalid(&path, value, format!("{prefix}{}", wrong.join(","))));
        }
    };
    label(path.child("plural"), field("plural"), "");
    label(path.child("singular"), field("singular"), "");
    label(path.child("kind"), field("kind"), MIXED);
    label(path.child("listKind"), field("listKind"), MIXED);
    for list in ["shortNames", "categories"] {
        for (index, name) in strings(object, &format!("spec.names.{list}")).iter().enumerate() {
            label(path.child(list).index(index), name, "");
        }
    }
    if !field("kind").is_empty() && field("kind") == field("listKind") {
        let text = "kind and listKind may not be the same";
        errors.push(FieldError::invalid(&path.child("listKind"), field("listKind"), text));
    }
}

fn check_versions(errors: &mut FieldErrors, object: &Value) {
    let versions = list(object, "spec.versions");
    let path = spec().child("versions");
    let value = || get(object, "spec.versions").cloned().unwrap_or(Value::Null);
    for (index, version) in versions.iter().enumerate() {
        let path = path.index(index);
        let name = text(version, "name");
        let wrong = names::is_dns1035_label(name);
        if !wrong.is_empty() {
            errors.push(FieldError::invalid(&path.child("name"), name, wrong.join(",")));
            // Upstream keeps the first one's name a second time.
            if index == 0 {
                errors.push(FieldError::invalid(&spec().child("version"), name, wrong.join(",")));
            }
        }
        if !has(version, "schema.openAPIV3Schema") {
            errors.push(FieldError::required(&path.child("schema").child("openAPIV3Schema"), ""));
        }
        check_deprecation(errors, version, &path);
    }
    let all_equal = |field: &str| versions.windows(2).all(|pair| get(&pair[0], field) == get(&pair[1], field));
    for (field, check) in [
        ("subresources", check_subresources as fn(&mut FieldErrors, &Value, &FieldPath)),
        ("additionalPrinterColumns", check_columns),
        ("selectableFields", check_selectable),
    ] {
        // What all versions share, upstream reports once.
        let shared = all_equal(field);
        for (index, version) in versions.iter().enumerate().take(if shared { 1 } else { versions.len() }) {
            let Some(found) = get(version, field) else { continue };
            let base = if shared { spec() } else { path.index(index) };
            check(errors, found, &base.child(field));
        }
    }
    let names: Vec<&str> = versions.iter().map(|version| text(version, "name")).collect();
    if names.iter().enumerate().any(|(index, name)| names[..index].contains(name)) {
        errors.push(FieldError::invalid(&path, value(), "must contain unique version names"));
    }
    if versions.iter().filter(|version| flag(version, "storage")).count() != 1 {
        errors.push(FieldError::invalid(&path, value(), "must have exactly one version marked as storage version"));
    }
}

fn check_deprecation(errors: &mut FieldErrors, version: &Value, path: &FieldPath) {
    let Some(warning) = get(version, "deprecationWarning").and_then(Value::as_str) else { return };
    let path = path.child("deprecationWarning");
    let wrong = if !flag(version, "deprecated") {
        "can only be set for deprecated versions"
    } else if warning.is_empty() {
        "cannot be empty"
    } else if warning.len() > 256 {
        "must be <= 256 characters long"
    } else if warning.chars().any(char::is_control) {
        "must only contain printable UTF-8 characters; non-printable character found"
    } else {
        return;
    };
    errors.push(FieldError::invalid(&path, warning, wrong));
}

const NOT_SIMPLE: &str = "must be a simple json path starting with .";

fn check_subresources(errors: &mut FieldErrors, subresources: &Value, path: &FieldPath) {
    let Some(scale) = get(subresources, "scale") else { return };
    let path = path.child("scale");
    for (field, parent) in [("specReplicasPath", "spec"), ("statusReplicasPath", "status")] {
        let value = text(scale, field);
        if value.is_empty() {
            errors.push(FieldError::required(&path.child(field), ""));
        } else if !value.starts_with('.') {
            errors.push(FieldError::invalid(&path.child(field), value, NOT_SIMPLE));
        } else if !value.starts_with(&format!(".{parent}.")) {
            let text = format!("should be a json path under .{parent}");
            errors.push(FieldError::invalid(&path.child(field), value, text));
        }
    }
    let selector = text(scale, "labelSelectorPath");
    if !selector.is_empty() && !selector.starts_with('.') {
        errors.push(FieldError::invalid(&path.child("labelSelectorPath"), selector, NOT_SIMPLE));
    } else if !selector.is_empty() && !selector.starts_with(".spec.") && !selector.starts_with(".status.") {
        let text = "should be a json path under either .spec or .status";
        errors.push(FieldError::invalid(&path.child("labelSelectorPath"), selector, text));
    }
}

fn check_columns(errors: &mut FieldErrors, columns: &Value, path: &FieldPath) {
    const TYPES: &[&str] = &["boolean", "date", "integer", "number", "string"];
    const FORMATS: &[&str] = &["byte", "date", "date-time", "double", "float", "int32", "int64", "password"];
    for (index, column) in columns.as_array().into_iter().flatten().enumerate() {
        let path = path.index(index);
        required(errors, &path.child("name"), text(column, "name"));
        let one_of = |values: &[&str]| format!("must be one of {}", values.join(","));
        match text(column, "type") {
            "" => errors.push(FieldError::required(&path.child("type"), one_of(TYPES))),
            kind if TYPES.contains(&kind) => {}
            kind => errors.push(FieldError::invalid(&path.child("type"), kind, one_of(TYPES))),
        }
        let format = text(column, "format");
        if !format.is_empty() && !FORMATS.contains(&format) {
            errors.push(FieldError::invalid(&path.child("format"), format, one_of(FORMATS)));
        }
        required(errors, &path.child("JSONPath"), text(column, "jsonPath"));
    }
}

fn check_selectable(errors: &mut FieldErrors, fields: &Value, path: &FieldPath) {
    let mut seen = Vec::new();
    for (index, field) in fields.as_array().into_iter().flatten().enumerate() {
        let path = path.index(index).child("jsonPath");
        let value = text(field, "jsonPath");
        if value.is_empty() {
            errors.push(FieldError::required(&path, ""));
        } else if !value.starts_with('.') {
            let first = value.chars().next().unwrap_or_default();
            let text = format!("is an invalid path: expected [ or . but got: {first}");
            errors.push(FieldError::invalid(&path, value, text));
        } else if value.starts_with(".metadata") {
            errors.push(FieldError::invalid(&path, value, "must not point to fields in metadata"));
        } else if seen.contains(&value) {
            errors.push(FieldError::duplicate(&path, value));
        }
        seen.push(value);
    }
}

fn check_conversion(errors: &mut FieldErrors, object: &Value) {
    let Some(conversion) = get(object, "spec.conversion") else { return };
    let path = spec().child("conversion");
    let strategy = text(conversion, "strategy");
    one_of(errors, &path.child("strategy"), strategy, &["None", "Webhook"]);
    let client = get(conversion, "webhook.clientConfig");
    let versions = strings(conversion, "webhook.conversionReviewVersions");
    if strategy != "Webhook" {
        if client.is_some() {
            let text = "should not be set when strategy is not set to Webhook";
            errors.push(FieldError::forbidden(&path.child("webhookClientConfig"), text));
        }
        return;
    }
    match client {
        None => errors
            .push(FieldError::required(&path.child("webhookClientConfig"), "required when strategy is set to Webhook")),
        Some(client) => admission::client(errors, client, &path.child("webhookClientConfig")),
    }
    if versions.is_empty() {
        errors.push(FieldError::required(&path.child("conversionReviewVersions"), ""));
    }
}

fn check_stored(errors: &mut FieldErrors, object: &Value) {
    let path = FieldPath::new("status.storedVersions");
    let stored = strings(object, "status.storedVersions");
    let value = || get(object, "status.storedVersions").filter(|_| !stored.is_empty()).cloned().unwrap_or(Value::Null);
    if stored.is_empty() {
        errors.push(FieldError::invalid(&path, value(), "must have at least one stored version"));
        return;
    }
    let versions = list(object, "spec.versions");
    for version in versions.iter().filter(|version| flag(version, "storage")) {
        let name = text(version, "name");
        if !stored.contains(&name) {
            errors.push(FieldError::invalid(&path, value(), format!("must have the storage version {name}")));
        }
    }
    for (index, name) in stored.iter().enumerate() {
        if !versions.iter().any(|version| text(version, "name") == *name) {
            let text = format!(
                "missing from spec.versions; {name} was previously a storage version, and must remain in spec.versions \
                 until a storage migration ensures no data remains persisted in {name} and removes {name} from \
                 status.storedVersions"
            );
            errors.push(FieldError::invalid(&path.index(index), *name, text));
        }
    }
}

/// Once established, objects may exist under these names.
pub(super) fn validate_update(new: &Value, old: &Value) -> FieldErrors {
    let mut errors = validate(new);
    let is_established = list(old, "status.conditions")
        .iter()
        .any(|condition| text(condition, "type") == "Established" && text(condition, "status") == "True");
    if is_established {
        for field in ["spec.scope", "spec.names.kind"] {
            unchanged(&mut errors, new, old, field);
        }
    }
    for field in ["spec.group", "spec.names.plural"] {
        unchanged(&mut errors, new, old, field);
    }
    errors
}
