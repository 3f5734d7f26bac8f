//! PUT, on an object or its status.

use croft_meta::{ApiError, object};
use serde_json::Value;

use crate::admission;
use crate::admission::policy::Reinvocable;
use crate::call::{Call, Target};
use crate::options::{WriteKind, WriteOptions};
use crate::verbs::create::{Tracking, create_object, may_create};
use crate::verbs::reviewed::{self, Seen};
use crate::webhooks::{Hooks, Operation};
use crate::write::{Decision, Outcome};
use crate::{backup_target, decode, prepare};

/// The answer to a PUT or PATCH: the object, and whether it was created by it.
#[derive(Debug)]
pub(crate) struct Written {
    pub(crate) object: Value,
    pub(crate) created: bool,
}

pub(crate) async fn update(call: &Call, target: &Target) -> Result<Written, ApiError> {
    let options = WriteOptions::parse(&call.query, WriteKind::Update, call.user_agent())?;
    let object = decode::object(call, target, options.field_validation)?;
    check_name(target, &object)?;

    let may_be_new = target.served.resource.behaviour.create_on_update
        && target.subresource.is_empty()
        && object::uid(&object).is_empty();
    if !may_be_new {
        return replace(call, target, &options, &object).await;
    }
    let mut turns = Turns::default();
    loop {
        let exists = turns.exists(call, target).await?;
        let result = if exists {
            replace(call, target, &options, &object).await
        } else {
            may_create(call)?;
            let created = create_object(call, target, object.clone(), &options, Tracking::Needed).await;
            created.map(|object| Written { object, created: true })
        };
        if !turns.is_overtaken(exists, &result) {
            return result;
        }
    }
}

async fn replace(call: &Call, target: &Target, options: &WriteOptions, object: &Value) -> Result<Written, ApiError> {
    let outcome = change(call, target, options, |old| {
        prepare::check_uid(target, object, old)?;
        prepare::check_resource_version(target, object, old)?;
        Ok(Candidate::Untracked(object.clone()))
    })
    .await?;
    Ok(Written { object: outcome.into_object(), created: false })
}

/// A request that changes what is there and creates what is not: between the look and the write, that may change.
#[derive(Debug, Default)]
pub(crate) struct Turns(usize);

impl Turns {
    /// Beyond this somebody makes and removes the object all the time; the client had better hear of it.
    const MOST: usize = 10;

    pub(crate) async fn exists(&mut self, call: &Call, target: &Target) -> Result<bool, ApiError> {
        self.0 += 1;
        let collection = call.server.cache.collection(target.storage_key());
        if collection.get(&target.id()).is_some() {
            return Ok(true);
        }
        call.server.cache.fresh().await?;
        Ok(collection.get(&target.id()).is_some())
    }

    /// Did the object come or go in between? Then it is worth another turn.
    pub(crate) fn is_overtaken(&self, existed: bool, result: &Result<Written, ApiError>) -> bool {
        let overtaken = if existed { "NotFound" } else { "AlreadyExists" };
        self.0 < Self::MOST && result.as_ref().is_err_and(|error| error.reason() == overtaken)
    }
}

/// What a PUT or patch makes of the current object.
#[derive(Debug)]
pub(crate) enum Candidate {
    /// Managed fields are still to be worked out.
    Untracked(Value),
    /// Server-side apply has done so.
    Tracked(Value),
}

/// Puts a changed object through defaults, admission, preparation and validation, and writes it.
pub(crate) async fn change(
    call: &Call,
    target: &Target,
    options: &WriteOptions,
    make: impl Fn(&Value) -> Result<Candidate, ApiError> + Send + Sync,
) -> Result<Outcome, ApiError> {
    change_seen(call, target, options, Seen::Whole, make).await
}

/// The same, with what webhooks are to see of it.
pub(crate) async fn change_seen(
    call: &Call,
    target: &Target,
    options: &WriteOptions,
    seen: Seen<'_>,
    make: impl Fn(&Value) -> Result<Candidate, ApiError> + Send + Sync,
) -> Result<Outcome, ApiError> {
    if backup_target::is_its_setting(target) {
        try_backup_target(call, target, options, &make).await?;
    }
    let outcome = if let Some(hooks) = Hooks::find(call, seen.target(target), Operation::Update) {
        Box::pin(reviewed::change(call, target, options, (&hooks, seen), &make)).await?
    } else {
        let decide = |current: Option<&Value>| {
            let old = current.ok_or_else(|| target.not_found())?;
            next_state(call, target, options, old, make(old)?)
        };
        let _turn = call.server.quota_turns.take_to_grow(&call.server.cache, target).await;
        call.server.write(target, options.dry_run, decide).await?
    };
    if !options.dry_run {
        admission::after_write(call, target).await;
    }
    Ok(outcome)
}

/// Before anything is written: a write must not wait for a server that is far away.
async fn try_backup_target(
    call: &Call,
    target: &Target,
    options: &WriteOptions,
    make: &(impl Fn(&Value) -> Result<Candidate, ApiError> + Send + Sync),
) -> Result<(), ApiError> {
    let Some(old) = call.server.cache.collection(target.storage_key()).get(&target.id()) else { return Ok(()) };
    let old = old.json();
    match next_state(call, target, options, &old, make(&old)?)? {
        Decision::Put(new) => backup_target::admit(call, &new, Some(&old)).await,
        _ => Ok(()),
    }
}

fn next_state(
    call: &Call,
    target: &Target,
    options: &WriteOptions,
    old: &Value,
    candidate: Candidate,
) -> Result<Decision, ApiError> {
    let (new, _) = tracked_state(call, target, options, old, candidate)?;
    admitted_state(call, target, options.dry_run, old, new)
}

/// The first half: what the client wants, with defaults, with its managers and as policies want it; and whether the managers
/// are apply's work. Mutating webhooks see it next, and then once more the policies that ask for it.
pub(crate) fn tracked_state(
    call: &Call,
    target: &Target,
    options: &WriteOptions,
    old: &Value,
    candidate: Candidate,
) -> Result<((Value, bool), Reinvocable), ApiError> {
    let (mut new, tracked) = match candidate {
        Candidate::Untracked(new) => (new, false),
        Candidate::Tracked(new) => (new, true),
    };
    prepare::default(target, &mut new);
    // A client need not repeat the metadata that only the server sets.
    if object::uid(&new).is_empty() {
        object::set_meta(&mut new, "uid", object::uid(old));
    }
    // Before admission: what the server adds belongs to nobody.
    if !tracked {
        prepare::with_write_context(&call.server, target, &options.field_manager, |cx| {
            croft_apply::track_update(cx, Some(old), &mut new)
        })
        .map_err(|e| ApiError::bad_request(e.to_string()))?;
    }
    let asked = admission::policy::mutate(call, target, &mut new, Some(old), options.dry_run)?;
    Ok(((new, tracked), asked))
}

/// The second half: admission, preparation and validation. Validating webhooks see it next.
pub(crate) fn admitted_state(
    call: &Call,
    target: &Target,
    dry_run: bool,
    old: &Value,
    (mut new, tracked): (Value, bool),
) -> Result<Decision, ApiError> {
    admission::admit_update(call, target, &mut new, old)?;
    prepare::for_update(target, &mut new, old)?;
    admission::complete(call, target, &mut new, Some(old))?;
    if tracked {
        // An apply that changed nothing, defaults and all, must leave the times as they were.
        croft_apply::ssa::keep_times(Some(old), &mut new);
    }
    prepare::validate_update(target, &new, &admission::held_against(call, target, old))?;
    admission::policy::validate(call, target, Some(&new), Some(old), dry_run)?;
    for text in (target.served.resource.behaviour.warnings)(&new) {
        call.warn(text);
    }
    if is_finished(target, &new) {
        return Ok(Decision::Delete(new));
    }
    if prepare::is_unchanged(&new, old) {
        return Ok(Decision::Same);
    }
    Ok(Decision::Put(new))
}

/// Being deleted, and nothing holds it any longer.
pub(crate) fn is_finished(target: &Target, object: &Value) -> bool {
    object::deletion_timestamp(object).is_some()
        && object.pointer("/metadata/deletionGracePeriodSeconds").and_then(Value::as_i64).unwrap_or_default() == 0
        && object::finalizers(object).is_empty()
        && !admission::namespace_holds(target, object)
}

pub(crate) fn check_name(target: &Target, object: &Value) -> Result<(), ApiError> {
    let name = object::name(object);
    if name.is_empty() {
        return Err(ApiError::bad_request(format!(
            "the name of the object ({} based on URL) was undeterminable: name must be provided",
            target.name
        )));
    }
    if name != target.name {
        return Err(ApiError::bad_request(format!(
            "the name of the object ({name}) does not match the name on the URL ({})",
            target.name
        )));
    }
    Ok(())
}
