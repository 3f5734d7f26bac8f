//! A VirtualMachine with its instancetype and preference worked in.

use croft_api::instancetype::{Chosen, VirtualMachineInstancetypeSpec, VirtualMachinePreferenceSpec};
use croft_api::kubevirt::{ClusterConfig, VirtualMachine};
use croft_meta::{ApiError, object};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::machine::text;
use super::{Kind, fetch, request_body, target};
use crate::answer::{self, Answer};
use crate::call::{self, Call};
use crate::decode;

const INSTANCETYPES: &str = "instancetype.kubevirt.io";

/// Of the machine that the request names.
pub(super) async fn stored(call: &Call) -> Result<Answer, ApiError> {
    let vm = fetch(call, Kind::Vm).await?;
    let expanded = expand(call, vm).map_err(|error| match error.code() {
        400 => Kind::Vm.conflict(&call.info.name, error.message()),
        _ => error,
    })?;
    Ok(answer::json(200, &expanded))
}

/// Of the machine that is the request's body, and need not exist.
pub(super) async fn body(call: &Call) -> Result<Answer, ApiError> {
    let mut vm = match request_body::value(call)? {
        Value::Null => return Err(ApiError::bad_request("empty request body")),
        vm => vm,
    };
    let target = target(call, Kind::Vm)?;
    let invalid = |why: String| ApiError::bad_request(format!("Object is not a valid VirtualMachine: {why}"));
    decode::check_type(&mut vm, &target.gvk())?;
    let complaints = decode::conform(&target.served, &target.gvk(), &mut vm).map_err(invalid)?;
    if let Some(complaint) = complaints.into_iter().next() {
        return Err(invalid(complaint));
    }
    let namespace = &call.info.namespace;
    if !object::namespace(&vm).is_empty() && object::namespace(&vm) != namespace {
        return Err(ApiError::bad_request(format!("VM namespace must be empty or {namespace}")));
    }
    object::set_meta(&mut vm, "namespace", namespace.as_str());
    call.server.cache.fresh().await?;
    Ok(answer::json(200, &expand(call, vm)?))
}

fn expand(call: &Call, vm: Value) -> Result<Value, ApiError> {
    let instancetype: Option<VirtualMachineInstancetypeSpec> = chosen(call, &vm, "instancetype")?;
    let preference: Option<VirtualMachinePreferenceSpec> = chosen(call, &vm, "preference")?;
    let vm: VirtualMachine = serde_json::from_value(vm)
        .map_err(|error| ApiError::bad_request(format!("Object is not a valid VirtualMachine: {error}")))?;
    let kubevirt = get(call, "kubevirt.io", "kubevirts", "harvester-system", "kubevirt");
    let kubevirt = kubevirt.and_then(|object| serde_json::from_value(object).ok());
    let chosen = Chosen { instancetype: instancetype.as_ref(), preference: preference.as_ref() };
    let expanded = croft_api::instancetype::expand(&vm, chosen, &ClusterConfig::of(kubevirt.as_ref()))
        .map_err(|conflicts| ApiError::bad_request(conflicts.to_string()))?;
    let mut expanded = serde_json::to_value(expanded).map_err(ApiError::internal)?;
    expanded["apiVersion"] = json!("kubevirt.io/v1");
    expanded["kind"] = json!("VirtualMachine");
    Ok(expanded)
}

/// The spec that the machine names: of the revision that it was made with, if that is known, else as it is now.
fn chosen<T: DeserializeOwned>(call: &Call, vm: &Value, field: &str) -> Result<Option<T>, ApiError> {
    let Some(matcher) = vm.pointer(&format!("/spec/{field}")).filter(|matcher| matcher.is_object()) else {
        return Ok(None);
    };
    let namespace = object::namespace(vm);
    let remembered = text(vm, &format!("/status/{field}Ref/controllerRevisionRef/name"));
    let revision = if remembered.is_empty() { text(matcher, "/revisionName") } else { remembered };
    let spec = if revision.is_empty() {
        live(call, matcher, field, namespace)?
    } else {
        let found = get(call, "apps", "controllerrevisions", namespace, revision);
        let found = found.ok_or_else(|| missing("controllerrevisions.apps", revision))?;
        found.pointer("/data/spec").cloned().unwrap_or_default()
    };
    let unreadable = |error| ApiError::bad_request(format!("the {field} cannot be read: {error}"));
    serde_json::from_value(spec).map(Some).map_err(unreadable)
}

fn live(call: &Call, matcher: &Value, field: &str, namespace: &str) -> Result<Value, ApiError> {
    let cluster = format!("virtualmachinecluster{field}");
    let kind = match text(matcher, "/kind").to_lowercase() {
        kind if kind.is_empty() => cluster.clone(),
        kind => kind.trim_end_matches('s').to_owned(),
    };
    let namespace = match kind.as_str() {
        kind if kind == cluster => "",
        kind if kind == format!("virtualmachine{field}") => namespace,
        other => return Err(ApiError::bad_request(format!("got unexpected kind in {field}Matcher: {other}"))),
    };
    let name = text(matcher, "/name");
    if name.is_empty() {
        return Err(ApiError::bad_request(format!("spec.{field}.name is not set: it is still to be inferred")));
    }
    let plural = format!("{kind}s");
    let found = get(call, INSTANCETYPES, &plural, namespace, name);
    let found = found.ok_or_else(|| missing(&format!("{plural}.{INSTANCETYPES}"), name))?;
    Ok(found["spec"].clone())
}

fn missing(resource: &str, name: &str) -> ApiError {
    ApiError::bad_request(format!("{resource} {name:?} not found"))
}

fn get(call: &Call, group: &str, plural: &str, namespace: &str, name: &str) -> Option<Value> {
    let collection = call.server.cache.collection(&format!("{group}/{plural}"));
    Some(collection.get(&call::id(namespace, name))?.json())
}
