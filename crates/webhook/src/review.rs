//! `AdmissionReview`: what is asked, and the answer.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use croft_meta::ApiError;
use serde::Deserialize;
use serde_json::{Value, json};

/// The one form that is understood; an API server asks in it if that is all it may use.
pub(crate) const VERSION: &str = "admission.k8s.io/v1";

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Review {
    api_version: String,
    kind: String,
    request: Option<Request>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Request {
    pub(crate) uid: String,
    pub(crate) resource: Resource,
    #[serde(default)]
    pub(crate) sub_resource: String,
    pub(crate) operation: Operation,
    #[serde(default)]
    pub(crate) user_info: User,
    #[serde(default)]
    pub(crate) object: Value,
    #[serde(default)]
    pub(crate) old_object: Value,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Resource {
    #[serde(default)]
    pub(crate) group: String,
    pub(crate) resource: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub(crate) enum Operation {
    Create,
    Update,
    Delete,
    Connect,
}

impl Operation {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Create => "CREATE",
            Self::Update => "UPDATE",
            Self::Delete => "DELETE",
            Self::Connect => "CONNECT",
        }
    }
}

/// Who makes the request.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct User {
    pub(crate) username: String,
    pub(crate) uid: String,
    pub(crate) groups: Vec<String>,
    pub(crate) extra: BTreeMap<String, Vec<String>>,
}

/// The request in a body; the error is for whoever sent it.
pub(crate) fn read(body: &[u8]) -> Result<Request, String> {
    let review: Review =
        serde_json::from_slice(body).map_err(|error| format!("this is no AdmissionReview: {error}"))?;
    if review.api_version != VERSION || review.kind != "AdmissionReview" {
        return Err(format!("expected {VERSION} AdmissionReview, got {} {}", review.api_version, review.kind));
    }
    review.request.ok_or_else(|| "the AdmissionReview has no request".to_owned())
}

/// What becomes of a write.
#[derive(Debug, PartialEq)]
pub(crate) enum Answer {
    Allowed,
    /// With these operations of a JSON patch.
    Changed(Vec<Value>),
    Refused(ApiError),
}

impl Answer {
    pub(crate) fn outcome(&self) -> &'static str {
        match self {
            Self::Allowed => "allowed",
            Self::Changed(_) => "changed",
            Self::Refused(_) => "refused",
        }
    }

    pub(crate) fn body(&self, uid: &str) -> Value {
        let mut response = json!({"uid": uid, "allowed": !matches!(self, Self::Refused(_))});
        match self {
            Self::Allowed => {}
            Self::Changed(operations) => {
                response["patchType"] = json!("JSONPatch");
                response["patch"] = json!(STANDARD.encode(json!(operations).to_string()));
            }
            Self::Refused(error) => response["status"] = status(error),
        }
        json!({"apiVersion": VERSION, "kind": "AdmissionReview", "response": response})
    }
}

/// The server that asks says itself who refused.
fn status(error: &ApiError) -> Value {
    let mut status = error.to_status();
    if let Some((_, why)) = croft_api::refused_by(error) {
        status["message"] = json!(why);
    }
    status
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_review_is_told_so() {
        let request = json!({"uid": "1", "resource": {"resource": "pods"}, "operation": "CREATE"});
        for (body, expected) in [
            (json!([]), "this is no AdmissionReview"),
            (
                json!({"apiVersion": "admission.k8s.io/v1beta1", "kind": "AdmissionReview", "request": request}),
                "got admission.k8s.io/v1beta1",
            ),
            (json!({"apiVersion": VERSION, "kind": "AdmissionReview"}), "has no request"),
        ] {
            let error = read(body.to_string().as_bytes()).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
        let good = json!({"apiVersion": VERSION, "kind": "AdmissionReview", "request": request});
        assert_eq!(read(good.to_string().as_bytes()).unwrap().operation, Operation::Create);
    }

    #[test]
    fn a_refusal_leaves_it_to_the_server_to_say_who_refuses() {
        let message = "admission webhook \"validator.harvesterhci.io\" denied the request: no";
        let answer = Answer::Refused(ApiError::new(422, "Invalid", message)).body("7");
        assert_eq!(answer["response"]["uid"], "7");
        assert_eq!(answer["response"]["allowed"], false);
        assert_eq!(answer["response"]["status"]["message"], "no");
        assert_eq!(answer["response"]["status"]["code"], 422);
    }
}
