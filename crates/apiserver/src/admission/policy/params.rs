//! The parameters that a binding names or selects.

use croft_meta::Gvk;
use serde_json::Value;

use super::index::{Binding, Policy};
use super::request::Request;
use crate::call::{self, Target};
use crate::catalog::Served;
use crate::conversion;
use crate::write::in_version;

/// The kind of a policy's parameters, if it has some; the error is about the policy itself.
pub(super) fn kind<'a>(policy: &Policy, request: &'a Request<'_>) -> Result<Option<&'a Served>, String> {
    let Some(gvk) = &policy.param_kind else { return Ok(None) };
    request.call.catalog.find_kind(gvk).map(Some).ok_or_else(|| {
        let Gvk { group, version, kind } = gvk;
        format!("failed to find resource referenced by paramKind: '{group}/{version}, Kind={kind}'")
    })
}

/// Every set of parameters that the policy is to be evaluated with; one that is null if it needs none.
pub(super) fn find(kind: Option<&Served>, binding: &Binding, request: &Request<'_>) -> Result<Vec<Value>, String> {
    let (Some(kind), Some(reference)) = (kind, &binding.param_ref) else { return Ok(vec![Value::Null]) };
    let is_namespaced = kind.resource.is_namespaced();
    let namespace = match (is_namespaced, reference.namespace.as_str(), request.target.namespace.as_str()) {
        (false, "", _) => "",
        (false, _, _) => {
            return Err("paramRef.namespace must not be provided for a cluster-scoped `paramKind`".to_owned());
        }
        (true, "", "") => {
            return Err(
                "cannot use namespaced paramRef in policy binding that matches cluster-scoped resources".to_owned()
            );
        }
        (true, "", own) => own,
        (true, given, _) => given,
    };
    let collection = request.call.server.cache.collection(&kind.resource.storage_key);
    let objects = match &reference.selector {
        None => collection.get(&call::id(namespace, &reference.name)).into_iter().collect(),
        Some(selector) => {
            let mut objects = collection.list(namespace);
            objects.retain(|object| selector.matches(|key| object.label(key)));
            objects
        }
    };
    if objects.is_empty() && reference.must_exist {
        return Err("no params found for policy binding with `Deny` parameterNotFoundAction".to_owned());
    }
    let target = Target::new(kind.clone(), namespace, &reference.name);
    if objects.iter().any(|object| conversion::is_needed(&target, object)) {
        return Err(format!("a webhook converts params to {}; name the version that they are stored in", target.gvk()));
    }
    Ok(objects.iter().map(|object| in_version(object, &target)).collect())
}
