//! What requests in Steve's and Rancher's way of speaking are about, in the words of the Kubernetes API.

use super::schema::Schema;
use crate::audit::ObjectRef;
use crate::catalog::Catalog;
use crate::request::{Query, RequestInfo, percent_decode};

const MANAGEMENT: &str = "management.cattle.io";

/// The verb and the object. Signing in and out are verbs of their own.
pub(crate) fn about(catalog: &Catalog, info: &RequestInfo, query: &Query) -> (&'static str, Option<ObjectRef>) {
    let decoded: Vec<String> =
        info.path.trim_matches('/').split('/').map(|part| percent_decode(part).into_owned()).collect();
    let path: Vec<&str> = decoded.iter().map(String::as_str).collect();
    let action = query.get("action").unwrap_or_default();
    let verb = match info.verb {
        "post" => "create",
        "put" => "update",
        other => other,
    };
    let steve = match path.as_slice() {
        ["v3-public", _, "local"] if verb == "create" && action == "login" => return ("login", None),
        ["v1-public", "login"] if verb == "create" => return ("login", None),
        ["v3", rest @ ..] => return management(verb, rest, action),
        ["v1", "harvester", rest @ ..] | ["v1", rest @ ..] => rest,
        _ => return (verb, None),
    };
    let [id, rest @ ..] = steve else { return (verb, None) };
    if let Some(kind) = id.strip_prefix(MANAGEMENT).and_then(|kind| kind.strip_prefix('.')) {
        let path: Vec<&str> = std::iter::once(kind).chain(rest.iter().copied()).collect();
        return management(verb, &path, action);
    }
    let Some(schema) = Schema::find(catalog, id) else { return (verb, None) };
    let (namespace, rest) = match rest {
        [namespace, rest @ ..] if schema.is_namespaced() => (*namespace, rest),
        rest => ("", rest),
    };
    let gvk = schema.served.gvk();
    let object = ObjectRef {
        resource: schema.served.plural().to_owned(),
        namespace: namespace.to_owned(),
        name: rest.first().copied().unwrap_or_default().to_owned(),
        uid: String::new(),
        api_group: gvk.group,
        api_version: gvk.version,
        subresource: action.to_owned(),
    };
    (verb, Some(object))
}

/// Rancher's own objects.
fn management(verb: &'static str, path: &[&str], action: &str) -> (&'static str, Option<ObjectRef>) {
    let [kind, rest @ ..] = path else { return (verb, None) };
    let resource = if kind.ends_with('s') { (*kind).to_owned() } else { format!("{kind}s") };
    if resource == "tokens" && matches!(action, "logout" | "logoutAll") {
        return ("logout", None);
    }
    let object = ObjectRef {
        resource,
        name: rest.first().copied().unwrap_or_default().to_owned(),
        api_group: MANAGEMENT.to_owned(),
        api_version: "v3".to_owned(),
        subresource: action.to_owned(),
        ..ObjectRef::default()
    };
    (verb, Some(object))
}
