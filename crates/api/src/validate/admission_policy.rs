//! Admission policies and their bindings.

use croft_meta::{FieldError, FieldErrors, FieldPath, names};
use croft_schema::RESERVED_WORDS;
use serde_json::{Value, json};

use super::admission::rule_with_operations;
use super::checks::{named, one_of, required, required_name, selector};
use super::spec;
use crate::admission_policy::CompiledPolicy;
use crate::view::{get, has, list, strings, text};

const MOST_CONDITIONS: usize = 64;
const MOST_AUDIT_ANNOTATIONS: usize = 20;
const LONGEST_VALUE_EXPRESSION: usize = 5 << 10;

pub(super) fn validating(object: &Value) -> FieldErrors {
    let mut errors = common(object);
    if list(object, "spec.validations").is_empty() && list(object, "spec.auditAnnotations").is_empty() {
        for field in ["validations", "auditAnnotations"] {
            let text = "validations or auditAnnotations must contain at least one item";
            errors.push(FieldError::required(&spec().child(field), text));
        }
    }
    for (index, validation) in list(object, "spec.validations").iter().enumerate() {
        check_validation(&mut errors, validation, &spec().child("validations").index(index));
    }
    audit_annotations(&mut errors, object);
    errors.extend(CompiledPolicy::compile(object).1);
    errors
}

pub(super) fn mutating(object: &Value) -> FieldErrors {
    let mut errors = common(object);
    let mutations = list(object, "spec.mutations");
    if mutations.is_empty() {
        let text = "mutations must contain at least one item";
        errors.push(FieldError::required(&spec().child("mutations"), text));
    }
    for (index, mutation) in mutations.iter().enumerate() {
        check_mutation(&mut errors, mutation, &spec().child("mutations").index(index));
    }
    let reinvocation = text(object, "spec.reinvocationPolicy");
    required(&mut errors, &spec().child("reinvocationPolicy"), reinvocation);
    if !reinvocation.is_empty() {
        one_of(&mut errors, &spec().child("reinvocationPolicy"), reinvocation, &["IfNeeded", "Never"]);
    }
    errors.extend(CompiledPolicy::compile(object).1);
    errors
}

/// What both kinds of policies have.
fn common(object: &Value) -> FieldErrors {
    let mut errors = Vec::new();
    one_of(&mut errors, &spec().child("failurePolicy"), text(object, "spec.failurePolicy"), &["Fail", "Ignore"]);
    if let Some(kind) = get(object, "spec.paramKind") {
        param_kind(&mut errors, kind, &spec().child("paramKind"));
    }
    let path = spec().child("matchConstraints");
    match get(object, "spec.matchConstraints") {
        None => errors.push(FieldError::required(&path, "")),
        Some(constraints) => {
            match_resources(&mut errors, constraints, &path);
            if list(constraints, "resourceRules").is_empty() {
                errors.push(FieldError::required(&path.child("resourceRules"), ""));
            }
        }
    }
    match_conditions(&mut errors, list(object, "spec.matchConditions"), &spec().child("matchConditions"));
    for (index, variable) in list(object, "spec.variables").iter().enumerate() {
        let path = spec().child("variables").index(index);
        let name = text(variable, "name");
        if name.trim().is_empty() {
            errors.push(FieldError::required(&path.child("name"), "name is not specified"));
        } else if !is_identifier(name) {
            errors.push(FieldError::invalid(&path.child("name"), name, "name is not a valid CEL identifier"));
        }
        if text(variable, "expression").trim().is_empty() {
            errors.push(FieldError::required(&path.child("expression"), "expression is not specified"));
        }
    }
    errors
}

fn is_identifier(name: &str) -> bool {
    let begins = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    begins && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') && !RESERVED_WORDS.contains(&name)
}

fn param_kind(errors: &mut FieldErrors, kind: &Value, path: &FieldPath) {
    let at = path.child("apiVersion");
    let api_version = text(kind, "apiVersion");
    match api_version.split('/').collect::<Vec<_>>().as_slice() {
        [""] => errors.push(FieldError::required(&at, "")),
        [version] => param_version(errors, api_version, version, &at),
        [group, version] => {
            let wrong = names::is_dns1123_subdomain(group);
            if !group.is_empty() && !wrong.is_empty() {
                errors.push(FieldError::invalid(&at, *group, wrong.join(",")));
            }
            param_version(errors, api_version, version, &at);
        }
        _ => {
            let text = format!("unexpected GroupVersion string: {api_version}");
            errors.push(FieldError::invalid(&at, api_version, text));
        }
    }
    let name = text(kind, "kind");
    let wrong = names::is_dns1035_label(&name.to_lowercase());
    if name.is_empty() {
        errors.push(FieldError::required(&path.child("kind"), ""));
    } else if !wrong.is_empty() {
        let text = format!("may have mixed case, but should otherwise match: {}", wrong.join(","));
        errors.push(FieldError::invalid(&path.child("kind"), name, text));
    }
}

fn param_version(errors: &mut FieldErrors, api_version: &str, version: &str, path: &FieldPath) {
    let wrong = names::is_dns1035_label(version);
    if version.is_empty() {
        errors.push(FieldError::invalid(path, api_version, "version must be specified"));
    } else if !wrong.is_empty() {
        errors.push(FieldError::invalid(path, version, wrong.join(",")));
    }
}

/// Names of conditions; whether their expressions work is found out by compiling them.
fn match_conditions(errors: &mut FieldErrors, conditions: &[Value], path: &FieldPath) {
    if conditions.len() > MOST_CONDITIONS {
        errors.push(FieldError::too_many(path, conditions.len(), MOST_CONDITIONS));
    }
    let mut seen = Vec::new();
    for (index, condition) in conditions.iter().enumerate() {
        let path = path.index(index);
        if text(condition, "expression").trim().is_empty() {
            errors.push(FieldError::required(&path.child("expression"), ""));
        }
        let name = text(condition, "name");
        required_name(errors, &path.child("name"), name, names::is_qualified_name);
        if !name.is_empty() && seen.contains(&name) {
            errors.push(FieldError::duplicate(&path.child("name"), name));
        }
        seen.push(name);
    }
}

fn check_validation(errors: &mut FieldErrors, validation: &Value, path: &FieldPath) {
    if text(validation, "expression").trim().is_empty() {
        errors.push(FieldError::required(&path.child("expression"), "expression is not specified"));
    }
    let expression = text(validation, "messageExpression");
    if !expression.is_empty() && expression.trim().is_empty() {
        let text = "must be non-empty if specified";
        errors.push(FieldError::invalid(&path.child("messageExpression"), expression, text));
    }
    let message = text(validation, "message");
    if !message.is_empty() && message.trim().is_empty() {
        let text = "message must be non-empty if specified";
        errors.push(FieldError::invalid(&path.child("message"), message, text));
    } else if message.trim().contains(['\n', '\r']) {
        errors.push(FieldError::invalid(&path.child("message"), message, "message must not contain line breaks"));
    }
    let reason = text(validation, "reason");
    if !reason.is_empty() {
        let known = ["Forbidden", "Invalid", "RequestEntityTooLarge", "Unauthorized"];
        one_of(errors, &path.child("reason"), reason, &known);
    }
}

fn audit_annotations(errors: &mut FieldErrors, object: &Value) {
    let annotations = list(object, "spec.auditAnnotations");
    let path = spec().child("auditAnnotations");
    if annotations.len() > MOST_AUDIT_ANNOTATIONS {
        let text = format!("must not have more than {MOST_AUDIT_ANNOTATIONS} auditAnnotations");
        errors.push(FieldError::invalid(&path, json!(annotations), text));
    }
    let mut seen = Vec::new();
    for (index, annotation) in annotations.iter().enumerate() {
        let path = path.index(index);
        let key = text(annotation, "key");
        named(
            errors,
            &path.child("key"),
            &format!("{}/{key}", text(object, "metadata.name")),
            names::is_qualified_name,
        );
        let expression = text(annotation, "valueExpression").trim();
        if expression.is_empty() {
            let text = "valueExpression is not specified";
            errors.push(FieldError::required(&path.child("valueExpression"), text));
        } else if expression.len() > LONGEST_VALUE_EXPRESSION {
            let text = format!("must not exceed {LONGEST_VALUE_EXPRESSION} bytes in length");
            errors.push(FieldError::required(&path.child("valueExpression"), text));
        }
        if seen.contains(&key) {
            errors.push(FieldError::duplicate(&path.child("key"), key));
        }
        seen.push(key);
    }
}

fn check_mutation(errors: &mut FieldErrors, mutation: &Value, path: &FieldPath) {
    let patch_type = text(mutation, "patchType");
    let (own, other) = match patch_type {
        "ApplyConfiguration" => ("applyConfiguration", "jsonPatch"),
        "JSONPatch" => ("jsonPatch", "applyConfiguration"),
        "" => return errors.push(FieldError::required(&path.child("patchType"), "")),
        unknown => return one_of(errors, &path.child("patchType"), unknown, &["ApplyConfiguration", "JSONPatch"]),
    };
    if !has(mutation, own) {
        let text = format!("must be specified when patchType is {patch_type}");
        errors.push(FieldError::required(&path.child(own), text));
    } else if text(mutation, &format!("{own}.expression")).trim().is_empty() {
        errors.push(FieldError::required(&path.child(own).child("expression"), "expression is not specified"));
    }
    if let Some(value) = get(mutation, other) {
        let text = format!("must not be specified when patchType is {patch_type}");
        errors.push(FieldError::invalid(&path.child(other), value.clone(), text));
    }
}

fn match_resources(errors: &mut FieldErrors, resources: &Value, path: &FieldPath) {
    one_of(errors, &path.child("matchPolicy"), text(resources, "matchPolicy"), &["Equivalent", "Exact"]);
    for field in ["namespaceSelector", "objectSelector"] {
        match get(resources, field) {
            Some(found) => selector(errors, found, &path.child(field)),
            None => errors.push(FieldError::required(&path.child(field), "")),
        }
    }
    for field in ["resourceRules", "excludeResourceRules"] {
        for (index, rule) in list(resources, field).iter().enumerate() {
            let path = path.child(field).index(index);
            let resource_names = strings(rule, "resourceNames");
            for (index, name) in resource_names.iter().enumerate() {
                let path = path.child("resourceNames").index(index);
                named(errors, &path, name, names::is_path_segment_name);
                if resource_names[..index].contains(name) {
                    errors.push(FieldError::duplicate(&path, *name));
                }
            }
            rule_with_operations(errors, rule, &path);
        }
    }
}

pub(super) fn validating_binding(object: &Value) -> FieldErrors {
    let mut errors = mutating_binding(object);
    let actions = strings(object, "spec.validationActions");
    let path = spec().child("validationActions");
    for (index, action) in actions.iter().enumerate() {
        one_of(&mut errors, &path.index(index), action, &["Audit", "Deny", "Warn"]);
        if actions[..index].contains(action) {
            errors.push(FieldError::duplicate(&path.index(index), *action));
        }
    }
    if actions.contains(&"Deny") && actions.contains(&"Warn") {
        let text = "must not contain both Deny and Warn (repeating the same validation failure information in the API \
                    response and headers serves no purpose)";
        errors.push(FieldError::invalid(&path, object["spec"]["validationActions"].clone(), text));
    }
    if actions.is_empty() {
        errors.push(FieldError::required(&path, "at least one validation action is required"));
    }
    errors
}

pub(super) fn mutating_binding(object: &Value) -> FieldErrors {
    let mut errors = Vec::new();
    let policy = text(object, "spec.policyName");
    required_name(&mut errors, &spec().child("policyName"), policy, names::is_dns1123_subdomain);
    if let Some(reference) = get(object, "spec.paramRef") {
        param_ref(&mut errors, reference, &spec().child("paramRef"));
    }
    if let Some(resources) = get(object, "spec.matchResources") {
        // Upstream misspells the field in its errors; clients have learnt it so.
        match_resources(&mut errors, resources, &spec().child("matchResouces"));
    }
    errors
}

fn param_ref(errors: &mut FieldErrors, reference: &Value, path: &FieldPath) {
    const BOTH: &str = "name and selector are mutually exclusive";
    let (name, selects) = (text(reference, "name"), get(reference, "selector"));
    if !name.is_empty() {
        named(errors, &path.child("name"), name, names::is_path_segment_name);
        if selects.is_some() {
            errors.push(FieldError::forbidden(&path.child("name"), BOTH));
        }
    }
    if let Some(selects) = selects {
        selector(errors, selects, &path.child("selector"));
        if !name.is_empty() {
            errors.push(FieldError::forbidden(&path.child("selector"), BOTH));
        }
    }
    if name.is_empty() && selects.is_none() {
        errors.push(FieldError::required(path, "one of name or selector must be specified"));
    }
    let action = text(reference, "parameterNotFoundAction");
    if action.is_empty() {
        errors.push(FieldError::required(&path.child("parameterNotFoundAction"), ""));
    } else {
        one_of(errors, &path.child("parameterNotFoundAction"), action, &["Deny", "Allow"]);
    }
}
