//! Filling a claim from a client's file, as CDI does it: a token is asked for through the API, and the file sent with it.
//!
//! `upload.cdi.kubevirt.io` has one kind, UploadTokenRequest, which is answered and not stored. The file itself comes to
//! the paths of CDI's upload proxy, which is this very server, and goes on to the agent of the claim's node.

pub(crate) mod multipart;

use std::sync::Arc;
use std::time::Duration;

use croft_meta::{ApiError, Gvk, object};
use croft_pki::service_account::UploadTarget;
use http::header::AUTHORIZATION;
use http::request::Parts;
use http::{HeaderMap, Method};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::answer::{self, Answer, Body};
use crate::audit::{ObjectRef, Trail};
use crate::call::{self, Call};
use crate::decode;
use crate::node_proxy::{self, Patience};
use crate::pipeline::not_allowed;
use crate::request::RequestInfo;
use crate::server::ApiServer;

pub(crate) use multipart::{Form, file_of};

pub(crate) const GROUP: &str = "upload.cdi.kubevirt.io";
const VERSIONS: [&str; 1] = ["v1beta1"];
const KIND: &str = "UploadTokenRequest";
const PLURAL: &str = "uploadtokenrequests";
/// Long enough to begin an upload, which may then take its time.
const TOKEN_LIFE: Duration = Duration::from_mins(5);
const CLAIMS: &str = "core/persistentvolumeclaims";
const POD_PHASE: &str = "cdi.kubevirt.io/storage.pod.phase";
const UPLOAD_TARGET: &str = "cdi.kubevirt.io/storage.upload.target";

pub(crate) fn group() -> (&'static str, &'static [&'static str]) {
    (GROUP, &VERSIONS)
}

/// The entry of the group's APIResourceList.
pub(crate) fn listed() -> Vec<Value> {
    vec![json!({
        "name": PLURAL, "singularName": "uploadtokenrequest", "namespaced": true, "kind": KIND, "verbs": ["create"],
    })]
}

/// The same for aggregated discovery.
pub(crate) fn discovered() -> Vec<Value> {
    vec![json!({
        "resource": PLURAL, "responseKind": {"group": GROUP, "version": VERSIONS[0], "kind": KIND},
        "scope": "Namespaced", "singularResource": "uploadtokenrequest", "verbs": ["create"],
    })]
}

/// POST of an UploadTokenRequest.
pub(crate) async fn token_request(call: &Call) -> Result<Answer, ApiError> {
    let info = &call.info;
    let is_ours = VERSIONS.contains(&info.version.as_str()) && info.resource == PLURAL && info.subresource.is_empty();
    if !is_ours || info.namespace.is_empty() || !info.name.is_empty() {
        return Err(ApiError::no_such_path());
    }
    if info.verb != "create" {
        return Err(not_allowed());
    }
    let mut request = decode::parse(&call.body, call.content_type())?.object;
    decode::check_type(&mut request, &Gvk::new(GROUP, &info.version, KIND))?;
    let name = request.pointer("/spec/pvcName").and_then(Value::as_str).unwrap_or_default().to_owned();
    if name.is_empty() {
        return Err(ApiError::bad_request("spec.pvcName: Required value: the claim to upload to"));
    }
    call.server.cache.fresh().await?;
    let claim = claim_object(&call.server, &info.namespace, &name)?;
    takes_uploads(&call.server, &claim)?;
    let target = UploadTarget { namespace: info.namespace.clone(), name, uid: object::uid(&claim).to_owned() };
    let signer = call.server.auth.tokens.signer();
    let token = signer.mint_upload(&target, TOKEN_LIFE, Timestamp::now()).map_err(ApiError::internal)?;
    object::set_meta(&mut request, "namespace", info.namespace.as_str());
    request["status"] = json!({ "token": token.reveal() });
    Ok(answer::json(200, &request))
}

fn claim_object(server: &ApiServer, namespace: &str, name: &str) -> Result<Value, ApiError> {
    let found = server.cache.collection(CLAIMS).get(&call::id(namespace, name));
    found.map(|claim| claim.json()).ok_or_else(|| ApiError::not_found("", "persistentvolumeclaims", name))
}

/// A claim that waits for an upload: it says so itself, or the DataVolume that it belongs to does.
fn takes_uploads(server: &ApiServer, claim: &Value) -> Result<(), ApiError> {
    let (namespace, name) = (object::namespace(claim), object::name(claim));
    let refuse = |why: String| Err(ApiError::conflict("", "persistentvolumeclaims", name, why));
    if object::deletion_timestamp(claim).is_some() {
        return refuse("it is being deleted".to_owned());
    }
    if object::annotation(claim, POD_PHASE) == Some("Succeeded") {
        return refuse(format!("PVC {name} already successfully populated"));
    }
    if object::annotation(claim, UPLOAD_TARGET).is_some() {
        return Ok(());
    }
    let volumes = server.cache.collection("cdi.kubevirt.io/datavolumes");
    let owner = object::owner_references(claim).iter().find(|owner| owner["kind"] == "DataVolume");
    let owner = owner.and_then(|owner| volumes.get(&call::id(namespace, owner["name"].as_str()?)));
    if owner.is_some_and(|volume| volume.json().pointer("/spec/source/upload").is_some_and(Value::is_object)) {
        return Ok(());
    }
    refuse(format!("PVC {name} is not an upload target"))
}

/// Whether a path is one of the upload proxy's, and how the file comes.
pub(crate) fn find(info: &RequestInfo) -> Option<Form> {
    let rest = info.path.strip_prefix("/v1beta1/").or_else(|| info.path.strip_prefix("/v1alpha1/"))?;
    match rest.trim_end_matches('/') {
        "upload" | "upload-async" => Some(Form::Raw),
        "upload-form" | "upload-form-async" => Some(Form::Field("file")),
        _ => None,
    }
}

/// Takes the file for the claim that the token names. HEAD only asks whether it would be taken.
pub(crate) async fn claim(
    server: &Arc<ApiServer>,
    parts: &Parts,
    body: Body,
    form: Form,
    trail: &Trail,
) -> Result<Answer, ApiError> {
    let token = bearer(&parts.headers).ok_or_else(ApiError::unauthorized)?;
    let target = server.auth.tokens.signer().verify_upload(token, Timestamp::now());
    let target = target.map_err(|error| {
        tracing::info!(%error, "an upload was refused");
        ApiError::unauthorized()
    })?;
    trail.about(ObjectRef {
        resource: "persistentvolumeclaims".to_owned(),
        namespace: target.namespace.clone(),
        name: target.name.clone(),
        uid: target.uid.clone(),
        api_version: "v1".to_owned(),
        subresource: "upload".to_owned(),
        ..ObjectRef::default()
    });
    server.cache.fresh().await?;
    let claim = claim_object(server, &target.namespace, &target.name)?;
    if object::uid(&claim) != target.uid {
        return Err(ApiError::not_found("", "persistentvolumeclaims", &target.name));
    }
    takes_uploads(server, &claim)?;
    match parts.method {
        Method::HEAD => return Ok(answer::text(200, "")),
        Method::POST | Method::PUT => {}
        _ => return Err(not_allowed()),
    }
    let node = node_of(server, &claim)?;
    let file = file_of(&parts.headers, body, form).await?;
    let path = format!("/v1/claims/{}/{}", target.namespace, target.name);
    let request = node_proxy::upload(Method::POST, &path, file)?;
    server.call_node(&node, request, Patience::AsLongAsItTakes).await
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

/// The node that has the claim's volume; before there is one, any that could make it.
fn node_of(server: &ApiServer, claim: &Value) -> Result<String, ApiError> {
    let volume = claim.pointer("/spec/volumeName").and_then(Value::as_str).unwrap_or_default();
    let volume = server.cache.collection("core/persistentvolumes").get(volume).map(|volume| volume.json());
    if let Some(node) = volume.as_ref().and_then(bound_node) {
        return Ok(node.to_owned());
    }
    any_node(server)
}

/// The host name that a local volume is bound to.
fn bound_node(volume: &Value) -> Option<&str> {
    let terms = volume.pointer("/spec/nodeAffinity/required/nodeSelectorTerms")?.as_array()?;
    let expressions = terms.iter().filter_map(|term| term["matchExpressions"].as_array()).flatten();
    let mut hosts = expressions.filter(|expression| expression["key"] == "kubernetes.io/hostname");
    hosts.find_map(|expression| expression.pointer("/values/0")?.as_str())
}

/// A node that is ready, the first by name.
pub(crate) fn any_node(server: &ApiServer) -> Result<String, ApiError> {
    let is_ready = |node: &Value| {
        let conditions = node.pointer("/status/conditions").and_then(Value::as_array);
        conditions.into_iter().flatten().any(|c| c["type"] == "Ready" && c["status"] == "True")
    };
    let nodes = server.cache.collection("core/nodes").list("");
    let found = nodes.iter().find(|node| is_ready(&node.json()));
    found.map(|node| node.name().to_owned()).ok_or_else(|| ApiError::unavailable("no node is ready to take the data"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::Query;

    #[test]
    fn the_proxys_paths_are_known() {
        let table = [
            ("/v1beta1/upload", Some(Form::Raw)),
            ("/v1beta1/upload-async", Some(Form::Raw)),
            ("/v1beta1/upload-form", Some(Form::Field("file"))),
            ("/v1beta1/upload-form-async/", Some(Form::Field("file"))),
            ("/v1alpha1/upload", Some(Form::Raw)),
            ("/v1beta1/uploads", None),
            ("/upload", None),
        ];
        for (path, expected) in table {
            assert_eq!(find(&RequestInfo::parse(&Method::POST, path, &Query::default())), expected, "{path}");
        }
    }

    #[test]
    fn a_local_volume_tells_its_node() {
        let volume = json!({"spec": {"nodeAffinity": {"required": {"nodeSelectorTerms": [
            {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["n1"]}]}]}}}});
        assert_eq!(bound_node(&volume), Some("n1"));
        assert_eq!(bound_node(&json!({"spec": {}})), None);
    }
}
