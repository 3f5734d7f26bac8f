//! Whoever makes expressions look at parameters can read these out of what the expressions say: so they must be allowed to
//! get them, as upstream wants it.

use croft_meta::{ApiError, FieldError, FieldPath, Gvk, object};
use serde_json::Value;

use super::index;
use crate::auth::MASTERS;
use crate::auth::attributes::Attributes;
use crate::call::{Call, Target};

/// Whether the user may read the parameters that a new or changed policy, or binding, speaks of.
pub(super) fn check(call: &Call, target: &Target, new: &Value, old: Option<&Value>) -> Result<(), ApiError> {
    let of_policy = target.plural().ends_with("policies");
    let field = if of_policy { "paramKind" } else { "paramRef" };
    let spoken_of = |object: &Value| object.pointer(&format!("/spec/{field}")).filter(|it| it.is_object()).cloned();
    let Some(params) = spoken_of(new) else { return Ok(()) };
    let is_as_before = |old: &Value| {
        spoken_of(old).as_ref() == Some(&params)
            && (of_policy || old["spec"]["policyName"] == new["spec"]["policyName"])
    };
    if call.user.is_member_of(MASTERS) || old.is_some_and(is_as_before) {
        return Ok(());
    }
    let kind = if of_policy { index::param_kind(new) } else { kind_of_bound(call, target, new) };
    let text = |field: &str| params[field].as_str().unwrap_or_default();
    let (name, namespace) = if of_policy { ("*", "*") } else { (text("name"), text("namespace")) };
    // What is not known could become anything.
    let resource = kind.as_ref().and_then(|kind| call.catalog.find_kind(kind));
    let wanted = Attributes {
        is_resource: true,
        verb: "get",
        group: kind.as_ref().map_or("*", |kind| &kind.group),
        resource: resource.map_or("*", |served| &served.resource.names.plural),
        name,
        namespace,
        ..Attributes::default()
    };
    if call.server.auth.rbac.authorize(&call.user, &wanted).allowed {
        return Ok(());
    }
    let user = &call.user.name;
    let why = if of_policy {
        let (kind, api_version) = (text("kind"), text("apiVersion"));
        format!(
            "user {user} must have \"get\" permission on all objects of the referenced paramKind (kind={kind}, apiVersion={api_version})"
        )
    } else {
        format!("user {user} does not have \"get\" permission on the object referenced by paramRef")
    };
    let error = FieldError::forbidden(&FieldPath::new("spec").child(field), why);
    let Gvk { group, kind, .. } = target.gvk();
    Err(ApiError::invalid(&group, &kind, object::name(new), &vec![error]))
}

/// The kind of the parameters of the policy that a binding names; `None` if there is no such policy, or it has none.
fn kind_of_bound(call: &Call, target: &Target, binding: &Value) -> Option<Gvk> {
    let (validating, mutating) = (index::SOURCES[0], index::SOURCES[2]);
    let policies = if target.plural().starts_with("validating") { validating } else { mutating };
    let name = binding["spec"]["policyName"].as_str()?;
    let policy = call.server.cache.collection(&format!("{}/{policies}", super::GROUP)).get(name)?;
    index::param_kind(&policy.json())
}
