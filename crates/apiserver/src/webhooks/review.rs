//! `AdmissionReview`: what is sent, and what must come back.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use croft_meta::field::go_quote;
use croft_meta::json::go_kind;
use croft_meta::names;
use serde::Serialize;
use serde_json::{Map, Value};

use super::applies::Shown;
use super::failure::{Failure, denied};
use super::hook::{Hook, ReviewVersion, Stage};

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Review<'a> {
    kind: &'static str,
    api_version: &'static str,
    request: Request<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Request<'a> {
    uid: &'a str,
    #[serde(flatten)]
    about: &'a Map<String, Value>,
    object: Option<&'a Value>,
    old_object: Option<&'a Value>,
}

/// The body of a call.
pub(super) fn body(hook: &Hook, uid: &str, about: &Map<String, Value>, shown: &Shown<'_>) -> Vec<u8> {
    let (object, old_object) = (shown.object.as_deref(), shown.old.as_deref());
    let request = Request { uid, about, object, old_object };
    let review = Review { kind: "AdmissionReview", api_version: hook.review.api_version(), request };
    // Maps with keys of text and values of JSON can always be written.
    serde_json::to_vec(&review).unwrap_or_default()
}

/// What a webhook that has no objection has to say.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Consent {
    /// A JSON patch.
    pub(super) patch: Option<Vec<u8>>,
}

/// What comes with an answer, good or bad.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Remarks {
    pub(super) warnings: Vec<String>,
    pub(super) annotations: BTreeMap<String, String>,
}

/// Reads an answer. The remarks count even if it is a refusal.
pub(super) fn read(hook: &Hook, uid: &str, body: &[u8], remarks: &mut Remarks) -> Result<Consent, Failure> {
    let review = croft_meta::json::parse(body)
        .map_err(|why| Failure::call(format!("couldn't get version/kind; json parse error: {why}"), 500))?;
    if !review.is_object() {
        return Err(not_a("AdmissionReview", &review, "v1.AdmissionReview"));
    }
    let response = match &review["response"] {
        Value::Null => return Err(Failure::answer("webhook response was absent")),
        Value::Object(response) => response,
        other => return Err(not_a("AdmissionReview.response", other, "v1.AdmissionResponse")),
    };
    if hook.review == ReviewVersion::V1 {
        check_identity(uid, &review, response)?;
    }
    let allowed = match response.get("allowed") {
        None | Some(Value::Null) => false,
        Some(Value::Bool(allowed)) => *allowed,
        Some(other) => return Err(not_a("AdmissionResponse.response.allowed", other, "bool")),
    };
    let patch = patch(hook, response)?;
    remarks.warnings.extend(texts(response.get("warnings")));
    let annotations = response.get("auditAnnotations").and_then(Value::as_object).into_iter().flatten();
    // Upstream leaves those out, too, that could not be the key of an annotation.
    let is_name = |key: &str| names::is_qualified_name(&format!("{}/{key}", hook.name)).is_empty();
    let annotations = annotations.filter(|(key, _)| is_name(key));
    let annotations = annotations.filter_map(|(key, text)| Some((key.clone(), text.as_str()?.to_owned())));
    remarks.annotations.extend(annotations);
    if allowed { Ok(Consent { patch }) } else { Err(Failure::Denied(denied(&hook.name, response.get("status")))) }
}

fn texts(list: Option<&Value>) -> impl Iterator<Item = String> + '_ {
    let list = list.and_then(Value::as_array).into_iter().flatten();
    list.filter_map(|text| text.as_str().map(str::to_owned))
}

fn not_a(field: &str, found: &Value, wanted: &str) -> Failure {
    let found = go_kind(found);
    Failure::call(format!("json: cannot unmarshal {found} into Go struct field {field} of type {wanted}"), 500)
}

/// The answer must be to this request, and in the form that was asked for.
fn check_identity(uid: &str, review: &Value, response: &Map<String, Value>) -> Result<(), Failure> {
    let given = response.get("uid").and_then(Value::as_str).unwrap_or_default();
    if given != uid {
        return Err(Failure::answer(format!("expected response.uid={}, got {}", go_quote(uid), go_quote(given))));
    }
    let text = |field: &str| review[field].as_str().unwrap_or_default();
    let (version, kind) = (text("apiVersion"), text("kind"));
    if version != ReviewVersion::V1.api_version() || kind != "AdmissionReview" {
        // Go writes group and version with the slash between them, even where there is neither.
        let version = if version.contains('/') { version.to_owned() } else { format!("/{version}") };
        let wanted = "admission.k8s.io/v1, Kind=AdmissionReview";
        return Err(Failure::answer(format!("expected webhook response of {wanted}, got {version}, Kind={kind}")));
    }
    Ok(())
}

fn patch(hook: &Hook, response: &Map<String, Value>) -> Result<Option<Vec<u8>>, Failure> {
    let patch = match response.get("patch") {
        None | Some(Value::Null) => None,
        Some(Value::String(text)) => {
            let illegal = |why| Failure::call(format!("illegal base64 data in response.patch: {why}"), 500);
            Some(STANDARD.decode(text).map_err(illegal)?).filter(|patch| !patch.is_empty())
        }
        Some(other) => return Err(not_a("AdmissionResponse.response.patch", other, "[]uint8")),
    };
    let patch_type = response.get("patchType").and_then(Value::as_str);
    if hook.stage == Stage::Validating {
        return match (patch, patch_type) {
            (Some(_), _) if hook.review == ReviewVersion::V1 => {
                Err(Failure::answer("validating webhook may not return response.patch"))
            }
            (_, Some(_)) if hook.review == ReviewVersion::V1 => {
                Err(Failure::answer("validating webhook may not return response.patchType"))
            }
            _ => Ok(None),
        };
    }
    match (patch, patch_type) {
        (None, None) => Ok(None),
        (Some(patch), Some("JSONPatch")) => Ok(Some(patch)),
        // The old form had no other type, so that it could be left out.
        (patch, None) if hook.review == ReviewVersion::V1Beta1 => Ok(patch),
        (None, Some(_)) if hook.review == ReviewVersion::V1Beta1 => Ok(None),
        (Some(_), None) => Err(Failure::answer("webhook returned response.patch but not response.patchType")),
        (_, Some("")) => Err(Failure::answer("webhook returned invalid response.patchType of \"\"")),
        (None, Some(_)) => Err(Failure::answer("webhook returned response.patchType but not response.patch")),
        (Some(_), Some(other)) => {
            Err(Failure::Calling { reason: format!("unsupported patch type {}", go_quote(other)), code: 503 })
        }
    }
}

#[cfg(test)]
mod tests;
