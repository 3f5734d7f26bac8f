//! Certificate signing requests: who asked, who may decide and who may sign, and ([`signer`]) the signing itself.
//!
//! What a request and its conditions may say is in `croft_api`; here is what takes knowing callers, time or keys.

pub(crate) mod cleaner;
mod rules;
pub(crate) mod signer;

use base64::{Engine, prelude::BASE64_STANDARD};
use croft_meta::{ApiError, FieldError, FieldErrors, FieldPath, object};
use croft_pki::SigningRequest;
use croft_pki::signing_request::SigningRequestError;
use serde_json::{Value, json};

use crate::auth::{self, Attributes};
use crate::call::{Call, Target};

pub(crate) const GROUP: &str = "certificates.k8s.io";
const PLURAL: &str = "certificatesigningrequests";
/// Where they are stored.
const COLLECTION: &str = "certificates.k8s.io/certificatesigningrequests";
const API_CLIENT: &str = "kubernetes.io/kube-apiserver-client";
const KUBELET_CLIENT: &str = "kubernetes.io/kube-apiserver-client-kubelet";
const KUBELET_SERVING: &str = "kubernetes.io/kubelet-serving";

pub(crate) fn is_request(target: &Target) -> bool {
    target.group() == GROUP && target.plural() == PLURAL
}

fn parse(object: &Value) -> Result<SigningRequest, SigningRequestError> {
    SigningRequest::parse(&BASE64_STANDARD.decode(text(object, "/spec/request")).unwrap_or_default())
}

fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

fn conditions(object: &Value) -> &[Value] {
    object.pointer("/status/conditions").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a Value> {
    conditions(object).iter().find(|condition| condition["type"] == kind)
}

/// The request itself: it must be one, signed with the key that it is about.
pub(crate) fn validate(object: &Value) -> FieldErrors {
    let path = FieldPath::new("spec.request");
    let wrong =
        |error: SigningRequestError| FieldError::invalid(&path, text(object, "/spec/request"), error.to_string());
    parse(object).err().map(wrong).into_iter().collect()
}

/// A new request says who made it: not in the client's words, but in ours. Nobody becomes an administrator this way.
pub(crate) fn complete(call: &Call, target: &Target, request: &mut Value) -> Result<(), ApiError> {
    name_requester(call, request);
    let asks_for_all = |request: SigningRequest| request.groups.iter().any(|group| group == auth::MASTERS);
    if text(request, "/spec/signerName") == API_CLIENT && parse(request).is_ok_and(asks_for_all) {
        let why = format!("use of {API_CLIENT} signer with {} group is not allowed", auth::MASTERS);
        return Err(ApiError::forbidden(target.group(), target.plural(), object::name(request), why));
    }
    Ok(())
}

fn name_requester(call: &Call, request: &mut Value) {
    let user = &call.user;
    let spec = &mut request["spec"];
    spec["username"] = json!(user.name);
    spec["groups"] = json!(user.groups);
    for (field, value) in [("uid", json!(user.uid)), ("extra", json!(user.extra))] {
        let is_empty = value.as_str() == Some("") || value.as_object().is_some_and(serde_json::Map::is_empty);
        if !is_empty {
            spec[field] = value;
        }
    }
}

/// To decide about requests, or to sign them, takes a right for their signer beyond that of writing the subresource.
pub(crate) fn authorize(call: &Call, target: &Target, new: &Value, old: &Value) -> Result<(), ApiError> {
    let verb = match target.subresource.as_str() {
        "approval" => "approve",
        "status" if signs(new, old) => "sign",
        _ => return Ok(()),
    };
    let signer = text(old, "/spec/signerName");
    let domain = signer.split('/').next().unwrap_or_default();
    let any_of_domain = format!("{domain}/*");
    let may = |name: &str| {
        let wanted =
            Attributes { is_resource: true, verb, group: GROUP, resource: "signers", name, ..Attributes::default() };
        call.server.auth.rbac.authorize(&call.user, &wanted).allowed
    };
    if may(signer) || may(&any_of_domain) {
        return Ok(());
    }
    let why = format!("user not permitted to {verb} requests with signerName {signer:?}");
    Err(ApiError::forbidden(target.group(), target.plural(), &target.name, why))
}

fn signs(new: &Value, old: &Value) -> bool {
    text(new, "/status/certificate") != text(old, "/status/certificate") || conditions(new) != conditions(old)
}

/// A write of `approval` takes the conditions and the metadata from the client, and nothing else.
pub(crate) fn only_conditions(new: &mut Value, old: &Value) {
    let wanted = conditions(new).to_vec();
    let metadata = new.get("metadata").cloned().unwrap_or_default();
    *new = old.clone();
    new["metadata"] = metadata;
    if !wanted.is_empty() || new.pointer("/status/conditions").is_some() {
        new["status"]["conditions"] = json!(wanted);
    }
}

/// When conditions were set, unless the client says it.
pub(crate) fn stamp_conditions(new: &mut Value, old: &Value, now: &str) {
    let Some(list) = new.pointer_mut("/status/conditions").and_then(Value::as_array_mut) else { return };
    for set in list {
        let is_unset = |set: &Value, field: &str| set.get(field).is_none_or(Value::is_null);
        if is_unset(set, "lastUpdateTime") {
            set["lastUpdateTime"] = json!(now);
        }
        if is_unset(set, "lastTransitionTime") {
            let same = |known: &&Value| known["type"] == set["type"] && known["status"] == set["status"];
            let since = conditions(old).iter().find(same).and_then(|known| known["lastTransitionTime"].as_str());
            set["lastTransitionTime"] = json!(since.unwrap_or(now));
        }
    }
}
