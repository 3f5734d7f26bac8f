//! Webhook configurations.

use croft_meta::{FieldError, FieldErrors, FieldPath, names};
use croft_schema::expression::{Expression, Names, Wants};
use serde_json::Value;

use super::checks::{named, one_of, required, selector};
use crate::view::{get, int, list, strings, text};

pub(super) fn webhooks(object: &Value) -> FieldErrors {
    let mut errors = Vec::new();
    let mut seen = Vec::new();
    for (index, hook) in list(object, "webhooks").iter().enumerate() {
        let path = FieldPath::new("webhooks").index(index);
        let name = text(hook, "name");
        qualified(&mut errors, name, &path.child("name"));
        if seen.contains(&name) {
            errors.push(FieldError::duplicate(&path.child("name"), name));
        }
        seen.push(name);
        webhook(&mut errors, hook, &path);
    }
    errors
}

/// A name under a domain of at least two parts.
fn qualified(errors: &mut FieldErrors, name: &str, path: &FieldPath) {
    if name.is_empty() {
        errors.push(FieldError::required(path, ""));
        return;
    }
    let wrong = names::is_dns1123_subdomain(name);
    if !wrong.is_empty() {
        errors.push(FieldError::invalid(path, name, wrong.join(",")));
    } else if name.split('.').count() < 3 {
        errors.push(FieldError::invalid(
            path,
            name,
            "should be a domain with at least three segments separated by dots",
        ));
    }
}

fn webhook(errors: &mut FieldErrors, hook: &Value, path: &FieldPath) {
    for (index, rule) in list(hook, "rules").iter().enumerate() {
        rule_with_operations(errors, rule, &path.child("rules").index(index));
    }
    one_of(errors, &path.child("failurePolicy"), text(hook, "failurePolicy"), &["Fail", "Ignore"]);
    one_of(errors, &path.child("matchPolicy"), text(hook, "matchPolicy"), &["Equivalent", "Exact"]);
    if !text(hook, "reinvocationPolicy").is_empty() {
        let policy = text(hook, "reinvocationPolicy");
        one_of(errors, &path.child("reinvocationPolicy"), policy, &["IfNeeded", "Never"]);
    }
    let side_effects = text(hook, "sideEffects");
    let side_path = path.child("sideEffects");
    if side_effects.is_empty() {
        errors.push(FieldError::required(&side_path, "must specify one of None, NoneOnDryRun"));
    } else {
        one_of(errors, &side_path, side_effects, &["None", "NoneOnDryRun"]);
    }
    if let Some(seconds) = int(hook, "timeoutSeconds").filter(|seconds| !(1..=30).contains(seconds)) {
        let text = "the timeout value must be between 1 and 30 seconds";
        errors.push(FieldError::invalid(&path.child("timeoutSeconds"), seconds, text));
    }
    for field in ["namespaceSelector", "objectSelector"] {
        if let Some(found) = get(hook, field) {
            selector(errors, found, &path.child(field));
        }
    }
    review_versions(errors, hook, &path.child("admissionReviewVersions"));
    client(errors, hook.get("clientConfig").unwrap_or(&Value::Null), &path.child("clientConfig"));
    match_conditions(errors, hook, &path.child("matchConditions"));
}

const MOST_CONDITIONS: usize = 64;

fn match_conditions(errors: &mut FieldErrors, hook: &Value, path: &FieldPath) {
    let conditions = list(hook, "matchConditions");
    if conditions.len() > MOST_CONDITIONS {
        errors.push(FieldError::too_many(path, conditions.len(), MOST_CONDITIONS));
        // Compiling any number of them would be work that a client can order for nothing.
        return;
    }
    let mut seen = Vec::new();
    for (index, condition) in conditions.iter().enumerate() {
        let (path, name) = (path.index(index), text(condition, "name"));
        let expression = text(condition, "expression").trim();
        if expression.is_empty() {
            errors.push(FieldError::required(&path.child("expression"), ""));
        } else if let Err(why) = Expression::compile(expression, &Names::WEBHOOK_CONDITION, Wants::Bool) {
            errors.push(FieldError::invalid(&path.child("expression"), expression, why));
        }
        if name.is_empty() {
            errors.push(FieldError::required(&path.child("name"), ""));
            continue;
        }
        for why in names::is_qualified_name(name) {
            errors.push(FieldError::invalid(&path.child("name"), name, why));
        }
        if seen.contains(&name) {
            errors.push(FieldError::duplicate(&path.child("name"), name));
        }
        seen.push(name);
    }
}

fn review_versions(errors: &mut FieldErrors, hook: &Value, path: &FieldPath) {
    const KNOWN: &[&str] = &["v1", "v1beta1"];
    let versions = strings(hook, "admissionReviewVersions");
    if versions.is_empty() {
        errors.push(FieldError::required(path, "must specify one of v1, v1beta1"));
        return;
    }
    for (index, version) in versions.iter().enumerate() {
        named(errors, &path.index(index), version, names::is_dns1035_label);
        if versions[..index].contains(version) {
            errors.push(FieldError::invalid(&path.index(index), *version, "duplicate version"));
        }
    }
    if !versions.iter().any(|version| KNOWN.contains(version)) {
        let value = hook["admissionReviewVersions"].clone();
        errors.push(FieldError::invalid(path, value, "must include at least one of v1, v1beta1"));
    }
}

/// Where a webhook is: exactly one of a URL and a service.
pub(super) fn client(errors: &mut FieldErrors, client: &Value, path: &FieldPath) {
    let (url, service) = (get(client, "url"), get(client, "service"));
    if url.is_some() == service.is_some() {
        errors.push(FieldError::required(path, "exactly one of url or service is required"));
        return;
    }
    if let Some(url) = url.and_then(Value::as_str) {
        webhook_url(errors, url, &path.child("url"));
    }
    if let Some(service) = service {
        let path = path.child("service");
        required(errors, &path.child("name"), text(service, "name"));
        required(errors, &path.child("namespace"), text(service, "namespace"));
        if let Some(port) = int(service, "port").filter(|port| !(1..=65535).contains(port)) {
            let text = "port is not valid: must be between 1 and 65535, inclusive";
            errors.push(FieldError::invalid(&path.child("port"), port, text));
        }
        let at = text(service, "path");
        if !at.is_empty() && !at.starts_with('/') {
            errors.push(FieldError::invalid(&path.child("path"), at, "must start with a '/'"));
        }
    }
}

fn webhook_url(errors: &mut FieldErrors, url: &str, path: &FieldPath) {
    const FORM: &str = "; desired format: https://host[/path]";
    let Some((scheme, rest)) = url.split_once("://") else {
        errors.push(FieldError::required(path, format!("url must be a valid URL{FORM}")));
        return;
    };
    if scheme != "https" {
        let text = format!("'https' is the only allowed URL scheme{FORM}");
        errors.push(FieldError::invalid(path, scheme, text));
    }
    if rest.split('/').next().unwrap_or_default().is_empty() {
        errors.push(FieldError::invalid(path, "", format!("host must be specified{FORM}")));
    }
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    if let Some((user, _)) = authority.split_once('@') {
        errors.push(FieldError::invalid(path, user, "user information is not permitted in the URL"));
    }
    let (before, fragment) = rest.split_once('#').unwrap_or((rest, ""));
    if !fragment.is_empty() {
        errors.push(FieldError::invalid(path, fragment, "fragments are not permitted in the URL"));
    }
    if let Some((_, query)) = before.split_once('?').filter(|(_, query)| !query.is_empty()) {
        errors.push(FieldError::invalid(path, query, "query parameters are not permitted in the URL"));
    }
}

pub(super) fn rule_with_operations(errors: &mut FieldErrors, rule: &Value, path: &FieldPath) {
    let known = ["*", "CONNECT", "CREATE", "DELETE", "UPDATE"];
    for (index, operation) in strings(rule, "operations").iter().enumerate() {
        one_of(errors, &path.child("operations").index(index), operation, &known);
    }
    for (field, what) in [("operations", "operations"), ("apiGroups", "API groups"), ("apiVersions", "API versions")] {
        let values = strings(rule, field);
        if values.is_empty() {
            errors.push(FieldError::required(&path.child(field), ""));
        } else if values.len() > 1 && values.contains(&"*") {
            let text = format!("if '*' is present, must not specify other {what}");
            errors.push(FieldError::invalid(&path.child(field), rule[field].clone(), text));
        }
    }
    for (index, version) in strings(rule, "apiVersions").iter().enumerate() {
        if version.is_empty() {
            errors.push(FieldError::required(&path.child("apiVersions").index(index), ""));
        }
    }
    let resources = strings(rule, "resources");
    let resources_path = path.child("resources");
    if resources.is_empty() {
        errors.push(FieldError::required(&resources_path, ""));
    }
    for (index, resource) in resources.iter().enumerate() {
        if resource.is_empty() {
            errors.push(FieldError::required(&resources_path.index(index), ""));
        }
    }
    if resources.len() > 1 && resources.contains(&"*/*") {
        let text = "if '*/*' is present, must not specify other resources";
        errors.push(FieldError::invalid(&resources_path, rule["resources"].clone(), text));
    }
    let scope = text(rule, "scope");
    if !scope.is_empty() {
        one_of(errors, &path.child("scope"), scope, &["*", "Cluster", "Namespaced"]);
    }
}
