//! Writes that admission webhooks have a say in; and what is not a write, but is asked about all the same.
//!
//! Webhooks take their time, and a write is decided in an instant, possibly several times. So the webhooks are asked
//! outside of the write, about the object as it is; and what they were asked about is committed only if the object is
//! still at the revision that they saw. If somebody else was quicker, all of it is done once more.

use croft_meta::{ApiError, object};
use serde_json::Value;

use crate::admission::policy::Reinvocable;
use crate::call::{Call, Target};
use crate::options::{DeleteOptions, WriteOptions};
use crate::verbs::scale;
use crate::verbs::update::{self, Candidate};
use crate::webhooks::{Attributes, Hooks, Operation};
use crate::write::{Decision, Outcome, in_version};
use crate::{admission, conversion, prepare, services};

/// Beyond this the object is being fought over, or the webhooks are slower than its changes.
const MOST_TURNS: usize = 20;

/// What webhooks see of a change.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Seen<'a> {
    /// The object.
    Whole,
    /// The Scale that the request names; the object is what is written.
    Scale(&'a Target),
}

impl<'a> Seen<'a> {
    /// The target as the request names it.
    pub(crate) fn target(self, written: &'a Target) -> &'a Target {
        match self {
            Self::Whole => written,
            Self::Scale(target) => target,
        }
    }

    fn show(self, object: &Value) -> Result<Value, ApiError> {
        match self {
            Self::Whole => Ok(object.clone()),
            Self::Scale(target) => scale::show_to_webhooks(target, object),
        }
    }

    /// Puts what the webhooks made of it back.
    fn take(self, object: &mut Value, mutated: Value) -> Result<(), ApiError> {
        match self {
            Self::Whole => {
                *object = mutated;
                Ok(())
            }
            Self::Scale(target) => scale::take_from_webhooks(target, object, &mutated),
        }
    }
}

/// As `update::change`, with these hooks.
pub(crate) async fn change(
    call: &Call,
    target: &Target,
    options: &WriteOptions,
    (hooks, seen): (&Hooks, Seen<'_>),
    make: &(impl Fn(&Value) -> Result<Candidate, ApiError> + Send + Sync),
) -> Result<Outcome, ApiError> {
    let named = seen.target(target);
    for _ in 0..MOST_TURNS {
        let old = current(call, target).await?;
        let ((mut new, tracked), asked) = update::tracked_state(call, target, options, &old, make(&old)?)?;
        let attributes = Attributes::update(call, named, options.dry_run);
        let shown_old = seen.show(&old)?;
        let mut again = |object: &mut Value| {
            admission::policy::mutate_again(call, target, object, Some(&old), options.dry_run, &asked)
        };
        if let Some(mutated) = hooks.mutate(&attributes, Some(seen.show(&new)?), Some(&shown_old), &mut again).await? {
            seen.take(&mut new, mutated)?;
        }
        let decision = update::admitted_state(call, target, options.dry_run, &old, (new, tracked))?;
        let stored = match &decision {
            Decision::Put(new) | Decision::Delete(new) => new,
            Decision::Keep | Decision::Same => &old,
        };
        hooks.validate(&attributes, Some(&seen.show(stored)?), Some(&shown_old)).await?;
        let _turn = call.server.quota_turns.take_to_grow(&call.server.cache, target).await;
        if let Some(outcome) = commit(call, target, options.dry_run, &old, |_| Ok(decision.clone())).await? {
            return Ok(outcome);
        }
    }
    Err(fought_over())
}

/// As `delete::delete_one`, with these hooks. `decide` may refuse before they are asked.
pub(crate) async fn delete(
    call: &Call,
    target: &Target,
    options: &DeleteOptions,
    hooks: &Hooks,
    decide: impl Fn(&Value) -> Result<Decision, ApiError> + Send + Sync,
) -> Result<Outcome, ApiError> {
    for _ in 0..MOST_TURNS {
        let old = current(call, target).await?;
        // What is on its way out already has been asked about.
        if !matches!(decide(&old)?, Decision::Keep) {
            let attributes = Attributes::delete(call, target, options);
            hooks.mutate(&attributes, None, Some(&old), &mut |_| Ok(false)).await?;
            hooks.validate(&attributes, None, Some(&old)).await?;
        }
        if let Some(outcome) = commit(call, target, options.dry_run, &old, &decide).await? {
            return Ok(outcome);
        }
    }
    Err(fought_over())
}

/// What the hooks make of a new object, before it is admitted and validated.
pub(crate) async fn mutate_new(
    call: &Call,
    target: &Target,
    dry_run: bool,
    (hooks, asked): (&Hooks, &Reinvocable),
    object: Value,
) -> Result<Value, ApiError> {
    let stamped = object["metadata"].clone();
    let attributes = Attributes::create(call, target, &object, dry_run);
    let mut again = |object: &mut Value| admission::policy::mutate_again(call, target, object, None, dry_run, asked);
    let mutated = hooks.mutate(&attributes, Some(object), None, &mut again).await?;
    let mut object = mutated.unwrap_or_default();
    if !target.name.is_empty() {
        update::check_name(target, &object)?;
    }
    prepare::match_namespace(target, &mut object)?;
    prepare::restamp_new(&stamped, &mut object);
    Ok(object)
}

/// Has the hooks look at a new object as it is to be stored.
pub(crate) async fn validate_new(
    call: &Call,
    target: &Target,
    dry_run: bool,
    hooks: &Hooks,
    object: &Value,
) -> Result<(), ApiError> {
    let attributes = Attributes::create(call, target, object, dry_run);
    hooks.validate(&attributes, Some(object), None).await
}

/// Asks policies and webhooks about something that is created and not stored as such: a binding, an eviction, a token, a
/// review. `complete` is what the server itself makes of it once it can no longer be changed, or has against it.
pub(crate) async fn action(
    call: &Call,
    target: &Target,
    dry_run: bool,
    mut object: Value,
    complete: impl FnOnce(&mut Value) -> Result<(), ApiError>,
) -> Result<Value, ApiError> {
    let attributes = Attributes::create(call, target, &object, dry_run);
    // Clients may leave it out where the path says it.
    object["apiVersion"] = Value::from(attributes.kind.api_version());
    object["kind"] = Value::from(attributes.kind.kind.as_str());
    let hooks = Hooks::find(call, target, Operation::Create);
    let asked = admission::policy::mutate_sent(call, target, Operation::Create, &mut object, dry_run)?;
    if let Some(hooks) = &hooks {
        let mut again = |object: &mut Value| {
            admission::policy::mutate_sent_again(call, target, Operation::Create, object, dry_run, &asked)
        };
        object = hooks.mutate(&attributes, Some(object), None, &mut again).await?.unwrap_or_default();
    }
    complete(&mut object)?;
    admission::policy::validate_sent(call, target, Operation::Create, &object, dry_run)?;
    if let Some(hooks) = &hooks {
        hooks.validate(&attributes, Some(&object), None).await?;
    }
    Ok(object)
}

/// Asks policies and webhooks about a connection to something below an object. Returns what it is to be made with.
pub(crate) async fn connection(call: &Call, target: &Target, mut options: Value) -> Result<Value, ApiError> {
    if call.query.get("dryRun").is_some() {
        return Err(ApiError::bad_request("dryRun is not supported"));
    }
    let hooks = Hooks::find(call, target, Operation::Connect);
    let asked = admission::policy::mutate_sent(call, target, Operation::Connect, &mut options, false)?;
    let attributes = Attributes::connect(call, target, &options);
    if let Some(hooks) = &hooks {
        let mut again = |options: &mut Value| {
            admission::policy::mutate_sent_again(call, target, Operation::Connect, options, false, &asked)
        };
        options = hooks.mutate(&attributes, Some(options), None, &mut again).await?.unwrap_or_default();
    }
    admission::policy::validate_sent(call, target, Operation::Connect, &options, false)?;
    if let Some(hooks) = &hooks {
        hooks.validate(&attributes, Some(&options), None).await?;
    }
    Ok(options)
}

/// The object as the store has it.
async fn current(call: &Call, target: &Target) -> Result<Value, ApiError> {
    call.server.cache.fresh().await?;
    let found = call.server.cache.collection(target.storage_key()).get(&target.id());
    let found = conversion::object(&call.server, target, found.ok_or_else(|| target.not_found())?).await?;
    Ok(in_version(&found, target))
}

/// `None` if the object is no longer what the decision was made for, or what it takes was taken by others.
async fn commit(
    call: &Call,
    target: &Target,
    dry_run: bool,
    seen: &Value,
    decide: impl Fn(&Value) -> Result<Decision, ApiError> + Send + Sync,
) -> Result<Option<Outcome>, ApiError> {
    let mut is_other = false;
    let decide = |current: Option<&Value>| {
        let same = current.filter(|current| object::resource_version(current) == object::resource_version(seen));
        is_other = same.is_none();
        decide(same.ok_or_else(fought_over)?)
    };
    let written = call.server.write(target, dry_run, decide).await;
    match written {
        Err(_) if is_other => Ok(None),
        Err(error) if services::is_overtaken(&error) => Ok(None),
        result => result.map(Some),
    }
}

fn fought_over() -> ApiError {
    ApiError::too_many_requests("the object is being changed too often; try again", 1)
}
