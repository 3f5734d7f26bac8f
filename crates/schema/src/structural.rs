//! What a CustomResourceDefinition's `openAPIV3Schema` must be: structural, with sound defaults.
//!
//! Works on the JSON, because a schema that is refused here cannot become a [`Schema`]. The texts,
//! and which check hides which, are upstream's (apiextensions' schema/validation.go and
//! apis/apiextensions/validation).

mod completeness;
mod invariants;
mod keywords;

use std::sync::Arc;

use croft_meta::{FieldError, FieldErrors, FieldPath};
use serde_json::Value;

use crate::cel::CelRules;
use crate::model::Schema;
use crate::parse::SchemaError;
use crate::prune::{prune, prune_resource};
use crate::validate::{validate_embedded, validate_schema};

/// Everything wrong with a schema; `path` is where it stands in the CustomResourceDefinition.
pub fn check_structural(schema: &Value, path: &FieldPath) -> FieldErrors {
    let mut errors = Vec::new();
    if flag(schema, "nullable") {
        errors.push(FieldError::forbidden(&path.child("nullable"), "nullable cannot be true at the root"));
    }
    let parsed = Schema::from_json(schema);
    let mut may_have_rules = false;
    if !matches!(parsed, Err(SchemaError::Unsupported(_) | SchemaError::NotAnObject)) && !has_item_lists(schema) {
        let mut found = invariants::check(schema, path);
        found.extend(completeness::check(schema, path));
        found.sort_by_key(ToString::to_string);
        if let (true, Ok(parsed)) = (found.is_empty(), &parsed) {
            found = check_defaults(parsed, path);
            may_have_rules = found.is_empty();
        }
        errors.extend(found);
    }
    errors.extend(keywords::check(schema, path));
    match parsed {
        Ok(parsed) if may_have_rules && errors.is_empty() => {
            errors.extend(CelRules::compile(&parsed, path).err().unwrap_or_default());
        }
        // What the keyword checks did not already name.
        Err(err) if errors.is_empty() => errors.push(FieldError::invalid(path, "", err.to_string())),
        _ => {}
    }
    errors
}

/// Defaults must survive pruning and be valid themselves.
fn check_defaults(schema: &Schema, path: &FieldPath) -> FieldErrors {
    let mut errors = Vec::new();
    walk_defaults(&Arc::new(schema.clone()), path, true, &mut errors);
    errors
}

fn walk_defaults(schema: &Arc<Schema>, path: &FieldPath, is_resource: bool, errors: &mut FieldErrors) {
    if let Some(default) = &schema.default {
        let at = path.child("default");
        let mut pruned = default.clone();
        let unknown = if is_resource || schema.embedded_resource {
            prune_resource(schema, &mut pruned)
        } else {
            prune(schema, &mut pruned)
        };
        if !unknown.is_empty() {
            errors.push(FieldError::invalid(&at, default.clone(), "must not have unknown fields"));
        }
        errors.extend(check_default(schema, default, &at));
    }
    if let Some(items) = &schema.items {
        walk_defaults(items, &path.child("items"), false, errors);
    }
    for (name, property) in &schema.properties {
        walk_defaults(property, &path.child("properties").key(name), false, errors);
    }
}

/// The first kind of check that fails is the one that is reported.
fn check_default(schema: &Schema, default: &Value, at: &FieldPath) -> FieldErrors {
    let embedded = validate_embedded(schema, default, at);
    if !embedded.is_empty() {
        return embedded;
    }
    let invalid = validate_schema(schema, default, at, None);
    if !invalid.is_empty() {
        return invalid;
    }
    // Rules that do not compile are reported with the rules.
    let Ok(rules) = CelRules::compile(schema, at) else { return Vec::new() };
    let unchanged = rules.evaluate_at(at, default, Some(default));
    if unchanged.is_empty() { rules.evaluate_at(at, default, None) } else { unchanged }
}

/// `items: [..]`, one schema per position.
fn has_item_lists(schema: &Value) -> bool {
    match schema {
        Value::Object(map) => map
            .iter()
            .any(|(key, value)| (key == "items" && value.is_array()) || (key != "default" && has_item_lists(value))),
        Value::Array(list) => list.iter().any(has_item_lists),
        _ => false,
    }
}

fn flag(schema: &Value, name: &str) -> bool {
    schema[name] == Value::Bool(true)
}

fn text<'a>(schema: &'a Value, name: &str) -> &'a str {
    schema[name].as_str().unwrap_or_default()
}

fn entries<'a>(schema: &'a Value, name: &str) -> impl Iterator<Item = (&'a str, &'a Value)> {
    schema[name].as_object().into_iter().flatten().map(|(key, value)| (key.as_str(), value))
}

fn list<'a>(schema: &'a Value, name: &str) -> impl Iterator<Item = (usize, &'a Value)> {
    schema[name].as_array().into_iter().flatten().enumerate()
}

#[cfg(test)]
mod tests;
