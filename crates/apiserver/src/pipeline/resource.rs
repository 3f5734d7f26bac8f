//! From a request for a resource to the verb that answers it: the same for every kind.

use croft_meta::{ApiError, names};

use crate::answer::{self, Answer};
use crate::call::{Call, Target};
use crate::request::RequestInfo;
use crate::{kubevirt, node_proxy, subresources, upload, usage, verbs};

pub(crate) async fn resource(call: &Call) -> Result<Answer, ApiError> {
    let info = &call.info;
    match info.group.as_str() {
        kubevirt::GROUP => return kubevirt::answer(call).await,
        upload::GROUP => return upload::token_request(call).await,
        usage::GROUP => return usage::metrics(call).await,
        "" if info.resource == "nodes" && info.subresource == "proxy" => return node_proxy::answer(call).await,
        _ => {}
    }
    let unserved =
        || call.catalog.find_unserved(&info.group, &info.version, &info.resource).filter(|_| call.is_internal);
    let found = call.catalog.find(&info.group, &info.version, &info.resource).or_else(unserved);
    let mut served = found.ok_or_else(ApiError::no_such_path)?.clone();
    if call.is_internal && served.conversion.is_some() && !matches!(info.verb, "create" | "update") {
        // What sweeps up after objects of any kind needs no version in particular, and no webhook to be there.
        served = served.in_storage_version().unwrap_or(served);
    }
    if !info.rest.is_empty() && info.subresource != "proxy" {
        return Err(ApiError::no_such_path());
    }
    check_scope(info, served.resource.is_namespaced())?;
    if let Some(text) = &served.version().deprecation_warning {
        call.warn(text.as_str());
    }
    let name = if info.is_name_selected { "" } else { &info.name };
    let mut target = Target::new(served, &info.namespace, name);
    if !info.subresource.is_empty() {
        target.subresource.clone_from(&info.subresource);
        return subresources::answer(call, &target).await;
    }
    if target.served.resource.is_virtual {
        return subresources::virtual_kind(call, &target).await;
    }
    if !target.served.resource.verbs.contains(&info.verb) {
        return Err(not_allowed());
    }
    let output = call.output()?;
    match info.verb {
        "get" => verbs::get::get(call, &target, output).await,
        "list" => verbs::list::list(call, &target, output).await,
        "watch" => verbs::watch::watch(call, &target, output).await,
        "create" if target.name.is_empty() => {
            let created = verbs::create::create(call, &target).await?;
            call.trail.made(&target, &created);
            verbs::get::object(call, &target, output, 201, created)
        }
        "update" if !target.name.is_empty() => written(call, &target, verbs::update::update(call, &target).await?),
        "patch" if !target.name.is_empty() => written(call, &target, verbs::patch::patch(call, &target).await?),
        "delete" => {
            let value = verbs::delete::delete(call, &target).await?;
            Ok(answer::render(output.whole(), 200, &value))
        }
        "deletecollection" => {
            let (metadata, deleted) = verbs::delete::delete_collection(call, &target).await?;
            verbs::list::render(call, &target, output, metadata, deleted)
        }
        _ => Err(not_allowed()),
    }
}

/// A method that no path of this form takes, whatever the kind.
pub(crate) fn not_allowed() -> ApiError {
    ApiError::new(405, "MethodNotAllowed", "the server does not allow this method on the requested resource")
        .with_details(croft_meta::status::Details::default())
}

/// The object of a PUT or PATCH: 201 if the request created it.
pub(crate) fn written(call: &Call, target: &Target, written: verbs::update::Written) -> Result<Answer, ApiError> {
    let output = call.output()?;
    verbs::get::object(call, target, output, if written.created { 201 } else { 200 }, written.object)
}

/// Namespaced kinds are written in a namespace, cluster-scoped ones outside of any; names must be names.
fn check_scope(info: &RequestInfo, is_namespaced: bool) -> Result<(), ApiError> {
    let is_namespace_itself = info.group.is_empty() && info.resource == "namespaces";
    if !is_namespaced && !info.namespace.is_empty() && !is_namespace_itself {
        return Err(ApiError::no_such_path());
    }
    // Across all namespaces one can only look.
    if is_namespaced && info.namespace.is_empty() && !matches!(info.verb, "list" | "watch") {
        let by_name = matches!(info.verb, "get" | "update" | "patch" | "delete");
        return Err(if by_name { ApiError::no_such_path() } else { not_allowed() });
    }
    if !info.name.is_empty() && !names::is_path_segment_name(&info.name).is_empty() {
        return Err(ApiError::no_such_path());
    }
    Ok(())
}
