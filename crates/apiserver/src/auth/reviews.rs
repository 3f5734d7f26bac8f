//! The virtual kinds through which clients ask who they are and what somebody may do. Nothing of them is stored.

mod validation;

use croft_meta::field::go_quote;
use croft_meta::selector::{FieldSelector, LabelSelector, Operator, Requirement};
use croft_meta::{ApiError, object};
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::rule::strings;
use super::{Attributes, Auth, Authenticator, Rbac};
use crate::request::RequestInfo;
use crate::user::UserInfo;

impl Auth {
    /// Answers the creation of one of the virtual kinds, named by the request. `review` is as the client sent it, in
    /// the version it is served in.
    pub(crate) async fn review(&self, info: &RequestInfo, user: &UserInfo, review: Value) -> Result<Value, ApiError> {
        let now = Timestamp::now();
        match (info.group.as_str(), info.resource.as_str(), info.subresource.as_str()) {
            ("authorization.k8s.io", "selfsubjectaccessreviews", "") => {
                self_subject_access_review(&self.rbac, user, review)
            }
            ("authorization.k8s.io", "subjectaccessreviews", "") => subject_access_review(&self.rbac, review),
            ("authorization.k8s.io", "localsubjectaccessreviews", "") => {
                local_subject_access_review(&self.rbac, &info.namespace, review)
            }
            ("authorization.k8s.io", "selfsubjectrulesreviews", "") => {
                self_subject_rules_review(&self.rbac, user, &review)
            }
            ("authentication.k8s.io", "tokenreviews", "") => token_review(&self.authenticator, review).await,
            ("authentication.k8s.io", "selfsubjectreviews", "") => Ok(self_subject_review(user, now)),
            _ => Err(ApiError::no_such_path()),
        }
    }
}

pub(crate) fn self_subject_access_review(rbac: &Rbac, user: &UserInfo, review: Value) -> Result<Value, ApiError> {
    validation::check_self(&review)?;
    Ok(decided(rbac, user, review, "SelfSubjectAccessReview"))
}

pub(crate) fn subject_access_review(rbac: &Rbac, review: Value) -> Result<Value, ApiError> {
    validation::check_subject(&review)?;
    let user = subject(&review["spec"]);
    Ok(decided(rbac, &user, review, "SubjectAccessReview"))
}

/// `namespace` is the one in the URL.
pub(crate) fn local_subject_access_review(rbac: &Rbac, namespace: &str, mut review: Value) -> Result<Value, ApiError> {
    if object::namespace(&review).is_empty() {
        object::set_meta(&mut review, "namespace", namespace);
    }
    validation::check_local(&review)?;
    if object::namespace(&review) != namespace {
        let message = format!("spec.resourceAttributes.namespace must match namespace: {namespace}");
        return Err(ApiError::bad_request(message));
    }
    let user = subject(&review["spec"]);
    Ok(decided(rbac, &user, review, "LocalSubjectAccessReview"))
}

pub(crate) fn self_subject_rules_review(rbac: &Rbac, user: &UserInfo, review: &Value) -> Result<Value, ApiError> {
    let namespace = review["spec"]["namespace"].as_str().unwrap_or_default();
    if namespace.is_empty() {
        return Err(ApiError::bad_request("no namespace on request"));
    }
    Ok(json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectRulesReview", "metadata": {}, "spec": {},
        "status": rbac.rules_for(user, namespace),
    }))
}

pub(crate) fn self_subject_review(user: &UserInfo, now: Timestamp) -> Value {
    json!({
        "apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview",
        "metadata": {"creationTimestamp": croft_meta::time::format_seconds(now)},
        "status": {"userInfo": user_info(user)},
    })
}

pub(crate) async fn token_review(authenticator: &Authenticator, mut review: Value) -> Result<Value, ApiError> {
    let token = review["spec"]["token"].as_str().unwrap_or_default();
    if token.is_empty() {
        return Err(ApiError::bad_request("token is required for TokenReview in authentication"));
    }
    let audiences = strings(&review["spec"]["audiences"]);
    let status = match authenticator.identify(token, &audiences).await {
        Ok(identified) => json!({
            "authenticated": true, "user": user_info(&identified.user), "audiences": identified.audiences,
        }),
        Err(why) => json!({"user": {}, "error": why}),
    };
    set_type(&mut review, "authentication.k8s.io/v1", "TokenReview");
    review["status"] = status;
    Ok(review)
}

/// The review with the decision in its status. Validation saw to it that one of the attributes is there.
fn decided(rbac: &Rbac, user: &UserInfo, mut review: Value, kind: &str) -> Value {
    let spec = &review["spec"];
    let resource = &spec["resourceAttributes"];
    let attributes = if resource.is_null() { &spec["nonResourceAttributes"] } else { resource };
    let text = |field: &str| attributes[field].as_str().unwrap_or_default();
    let wanted = if resource.is_null() {
        Attributes::path(text("verb"), text("path"))
    } else {
        Attributes {
            is_resource: true,
            verb: text("verb"),
            group: text("group"),
            resource: text("resource"),
            subresource: text("subresource"),
            name: text("name"),
            namespace: text("namespace"),
            path: "",
        }
    };
    let decision = rbac.authorize(user, &wanted);
    let mut status = Map::new();
    status.insert("allowed".to_owned(), Value::from(decision.allowed));
    for (field, text) in [("reason", decision.reason), ("evaluationError", ignored_selectors(resource))] {
        if !text.is_empty() {
            status.insert(field.to_owned(), Value::from(text));
        }
    }
    set_type(&mut review, "authorization.k8s.io/v1", kind);
    review["status"] = Value::Object(status);
    review
}

fn set_type(review: &mut Value, api_version: &str, kind: &str) {
    review["apiVersion"] = Value::from(api_version);
    review["kind"] = Value::from(kind);
    if review["metadata"].is_null() {
        review["metadata"] = json!({});
    }
}

/// The user that a SubjectAccessReview asks about.
fn subject(spec: &Value) -> UserInfo {
    let text = |field: &str| spec[field].as_str().unwrap_or_default().to_owned();
    let extra = spec["extra"].as_object().into_iter().flatten().map(|(key, values)| (key.clone(), strings(values)));
    UserInfo { name: text("user"), uid: text("uid"), groups: strings(&spec["groups"]), extra: extra.collect() }
}

/// A user as `authentication.k8s.io` UserInfo.
pub(crate) fn user_info(user: &UserInfo) -> Value {
    let mut info = Map::new();
    info.insert("username".to_owned(), Value::from(user.name.clone()));
    if !user.uid.is_empty() {
        info.insert("uid".to_owned(), Value::from(user.uid.clone()));
    }
    if !user.groups.is_empty() {
        info.insert("groups".to_owned(), Value::from(user.groups.clone()));
    }
    if !user.extra.is_empty() {
        info.insert("extra".to_owned(), json!(user.extra));
    }
    Value::Object(info)
}

/// Roles know no selectors, so selectors never change a decision; those that cannot be read are still reported.
fn ignored_selectors(resource: &Value) -> String {
    let tell = |field: &str, outcome: Result<(), usize>| {
        let how = match outcome {
            Ok(()) => return None,
            Err(0) => "ignored",
            Err(_) => "partially ignored",
        };
        Some(format!("spec.resourceAttributes.{field} {how} due to parse error"))
    };
    let fields = tell(
        "fieldSelector",
        read_selector(&resource["fieldSelector"], read_field, |raw| FieldSelector::parse(raw).is_ok()),
    );
    let labels = tell(
        "labelSelector",
        read_selector(&resource["labelSelector"], read_label, |raw| LabelSelector::parse(raw).is_ok()),
    );
    fields.into_iter().chain(labels).collect::<Vec<_>>().join("; ")
}

/// The error is how many requirements could be read nevertheless.
fn read_selector(
    selector: &Value,
    read: impl Fn(&Value) -> Result<(), String>,
    parses: impl Fn(&str) -> bool,
) -> Result<(), usize> {
    if let Some(requirements) = selector["requirements"].as_array().filter(|list| !list.is_empty()) {
        let readable = requirements.iter().filter(|requirement| read(requirement).is_ok()).count();
        return if readable == requirements.len() { Ok(()) } else { Err(readable) };
    }
    let raw = selector["rawSelector"].as_str().unwrap_or_default();
    if parses(raw) { Ok(()) } else { Err(0) }
}

fn read_field(requirement: &Value) -> Result<(), String> {
    let values = requirement["values"].as_array().map_or(0, Vec::len);
    match requirement["operator"].as_str().unwrap_or_default() {
        "In" | "NotIn" if values == 1 => Ok(()),
        "In" | "NotIn" => Err("field selectors need one value".to_owned()),
        other => Err(format!("{} is not a usable field selector operator", go_quote(other))),
    }
}

fn read_label(requirement: &Value) -> Result<(), String> {
    let operator = match requirement["operator"].as_str().unwrap_or_default() {
        "In" => Operator::In,
        "NotIn" => Operator::NotIn,
        "Exists" => Operator::Exists,
        "DoesNotExist" => Operator::DoesNotExist,
        other => return Err(format!("{} is not a valid label selector operator", go_quote(other))),
    };
    let key = requirement["key"].as_str().unwrap_or_default().to_owned();
    Requirement::new(key, operator, strings(&requirement["values"])).map(drop).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests;
