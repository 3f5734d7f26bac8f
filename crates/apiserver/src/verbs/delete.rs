//! DELETE and DELETECOLLECTION.

use croft_meta::{ApiError, object, time};
use serde_json::{Value, json};

use crate::admission;
use crate::call::{Call, Target};
use crate::clock;
use crate::decode;
use crate::options::{DeleteOptions, ListOptions, Propagation};
use crate::sealing;
use crate::verbs::list;
use crate::verbs::reviewed;
use crate::verbs::selection::Selection;
use crate::webhooks::{Hooks, Operation};
use crate::write::{Decision, Outcome, in_version};

const FOREGROUND: &str = "foregroundDeletion";
const ORPHAN: &str = "orphan";

/// The answer is the object, or a few words about one that is gone.
pub(crate) async fn delete(call: &Call, target: &Target) -> Result<Value, ApiError> {
    let options = parse_options(call)?;
    let outcome = delete_one(call, target, &options).await?;
    Ok(match outcome {
        Outcome::Deleted(last) if !target.served.resource.behaviour.delete_returns_object => success(target, &last),
        other => other.into_object(),
    })
}

/// The body, if there is one, is DeleteOptions; then the query does not count.
fn parse_options(call: &Call) -> Result<DeleteOptions, ApiError> {
    if call.body.is_empty() {
        return DeleteOptions::parse(&call.query, None);
    }
    let body = decode::parse(&call.body, call.content_type())?.object;
    let kind = object::gvk(&body).kind;
    if !kind.is_empty() && kind != "DeleteOptions" {
        return Err(ApiError::bad_request(format!("decoded object cannot be converted to DeleteOptions: {kind}")));
    }
    DeleteOptions::parse(&call.query, Some(body))
}

/// What is said of an object that is gone.
fn success(target: &Target, last: &Value) -> Value {
    let mut details = json!({ "name": target.name, "kind": target.plural(), "uid": object::uid(last) });
    if !target.group().is_empty() {
        details["group"] = json!(target.group());
    }
    json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details })
}

pub(crate) async fn delete_one(call: &Call, target: &Target, options: &DeleteOptions) -> Result<Outcome, ApiError> {
    if options.ignores_read_errors
        && let Some(gone) = sealing::delete_unreadable(call, target, options).await?
    {
        return Ok(gone);
    }
    let now = clock::now_rfc3339();
    let decide = |old: &Value| -> Result<Decision, ApiError> {
        check_preconditions(target, old, options)?;
        admission::admit_delete(call, target, old)?;
        admission::policy::validate(call, target, None, Some(old), options.dry_run)?;
        let grace = admission::grace_seconds(target, old, options.grace_period_seconds);
        Ok(graceful(old, grace, clock::now_seconds()).unwrap_or_else(|| next_state(target, old, options, &now)))
    };
    let outcome = if let Some(hooks) = Hooks::find(call, target, Operation::Delete) {
        Box::pin(reviewed::delete(call, target, options, &hooks, decide)).await?
    } else {
        let decide = |current: Option<&Value>| decide(current.ok_or_else(|| target.not_found())?);
        call.server.write(target, options.dry_run, decide).await?
    };
    if !options.dry_run {
        admission::after_write(call, target).await;
    }
    Ok(outcome)
}

/// Upstream names the kind here where it names the resource elsewhere.
fn kind_conflict(target: &Target, why: String) -> ApiError {
    ApiError::conflict(target.group(), target.served.kind(), &target.name, why)
}

fn check_preconditions(target: &Target, old: &Value, options: &DeleteOptions) -> Result<(), ApiError> {
    if let Some(uid) = &options.precondition_uid
        && uid != object::uid(old)
    {
        return Err(kind_conflict(
            target,
            format!(
                "the UID in the precondition ({uid}) does not match the UID in record ({}). The object might have been \
             deleted and then recreated",
                object::uid(old)
            ),
        ));
    }
    if let Some(version) = &options.precondition_resource_version
        && version != object::resource_version(old)
    {
        return Err(kind_conflict(
            target,
            format!(
                "the ResourceVersion in the precondition ({version}) does not match the ResourceVersion in record ({}). \
             The object might have been modified",
                object::resource_version(old)
            ),
        ));
    }
    Ok(())
}

/// Marks an object that is given time to end; `None` if it is given none, or its time has been cut to nothing. Asking
/// again can only shorten the time.
fn graceful(old: &Value, grace: i64, now: i64) -> Option<Decision> {
    if grace == 0 {
        return None;
    }
    let granted = old.pointer("/metadata/deletionGracePeriodSeconds").and_then(Value::as_i64);
    let is_new = object::deletion_timestamp(old).is_none();
    match granted {
        Some(0) if !is_new => return None,
        Some(granted) if !is_new && grace >= granted => return Some(Decision::Keep),
        _ => {}
    }
    let mut new = old.clone();
    object::set_meta(&mut new, "deletionTimestamp", time::format_unix_seconds(now + grace));
    object::set_meta(&mut new, "deletionGracePeriodSeconds", grace);
    if is_new && object::generation(old) > 0 {
        object::set_meta(&mut new, "generation", object::generation(old) + 1);
    }
    Some(Decision::Put(new))
}

/// Removed at once if nothing holds it, else marked as being deleted.
fn next_state(target: &Target, old: &Value, options: &DeleteOptions, now: &str) -> Decision {
    let finalizers = finalizers_for(old, options.propagation);
    if finalizers.is_empty() && !admission::namespace_holds(target, old) {
        let mut last = old.clone();
        if object::deletion_timestamp(old).is_some() {
            object::set_meta(&mut last, "deletionGracePeriodSeconds", 0);
        }
        return Decision::Delete(last);
    }
    let is_new = object::deletion_timestamp(old).is_none();
    if !is_new && object::finalizers(old) == finalizers {
        return Decision::Keep;
    }
    let mut new = old.clone();
    if is_new {
        object::set_meta(&mut new, "deletionTimestamp", now);
        object::set_meta(&mut new, "deletionGracePeriodSeconds", 0);
        if object::generation(old) > 0 {
            object::set_meta(&mut new, "generation", object::generation(old) + 1);
        }
    } else {
        // Its time to end by itself is over.
        object::set_meta(&mut new, "deletionGracePeriodSeconds", 0);
    }
    let list = if finalizers.is_empty() { Value::Null } else { json!(finalizers) };
    object::set_meta(&mut new, "finalizers", list);
    admission::mark_terminating(target, &mut new, now);
    Decision::Put(new)
}

/// The object's finalizers with those of the garbage collector set as the policy says.
fn finalizers_for(old: &Value, policy: Option<Propagation>) -> Vec<String> {
    let current = object::finalizers(old);
    let wanted = match policy {
        Some(policy) => policy,
        None if current.contains(&ORPHAN) => Propagation::Orphan,
        None if current.contains(&FOREGROUND) => Propagation::Foreground,
        None => Propagation::Background,
    };
    let mut list: Vec<String> =
        current.into_iter().filter(|f| *f != ORPHAN && *f != FOREGROUND).map(str::to_owned).collect();
    match wanted {
        Propagation::Background => {}
        Propagation::Foreground => list.push(FOREGROUND.to_owned()),
        Propagation::Orphan => list.push(ORPHAN.to_owned()),
    }
    list
}

/// Deletes what the selectors match; answers with the list's metadata, and with what went.
pub(crate) async fn delete_collection(call: &Call, target: &Target) -> Result<(Value, Vec<Value>), ApiError> {
    let list_options = ListOptions::parse(&call.query, false)?;
    let selection = Selection::parse(target, &list_options)?;
    let options = parse_options(call)?;
    let page = list::page(call, target, &list_options, &selection).await?;
    let mut deleted = Vec::with_capacity(page.objects.len());
    for object in &page.objects {
        let one = Target::new(target.served.clone(), object.namespace(), object.name());
        match delete_one(call, &one, &options).await {
            Ok(outcome) => deleted.push(outcome.into_object()),
            // Someone else was quicker.
            Err(error) if error.code() == 404 => deleted.push(in_version(object, &one)),
            Err(error) => return Err(error),
        }
    }
    Ok((page.metadata(), deleted))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_policy_sets_the_collectors_finalizers() {
        let object = json!({"metadata": {"finalizers": ["a", "orphan"]}});
        let of = |policy| finalizers_for(&object, policy);
        assert_eq!(of(None), ["a", "orphan"]);
        assert_eq!(of(Some(Propagation::Background)), ["a"]);
        assert_eq!(of(Some(Propagation::Foreground)), ["a", "foregroundDeletion"]);
        assert_eq!(of(Some(Propagation::Orphan)), ["a", "orphan"]);
    }
}
