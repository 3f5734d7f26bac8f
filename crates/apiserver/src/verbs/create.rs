//! POST.

use croft_meta::{ApiError, object};
use serde_json::Value;

use crate::admission;
use crate::auth::Attributes;
use crate::call::{Call, Target};
use crate::options::{WriteKind, WriteOptions};
use crate::verbs::reviewed;
use crate::webhooks::{Hooks, Operation};
use crate::write::Decision;
use crate::{decode, prepare, services};

/// How often what was made up is replaced, if somebody else has it by now: a name, an address.
const BAD_LUCK_TRIES: usize = 8;

/// Decodes the body and creates the object.
pub(crate) async fn create(call: &Call, target: &Target) -> Result<Value, ApiError> {
    let options = WriteOptions::parse(&call.query, WriteKind::Create, call.user_agent())?;
    let object = decode::object(call, target, options.field_validation)?;
    create_object(call, target, object, &options, Tracking::Needed).await
}

/// A PUT or apply that finds nothing creates, which takes the right to create.
pub(crate) fn may_create(call: &Call) -> Result<(), ApiError> {
    let wanted = Attributes { verb: "create", ..Attributes::of(&call.info) };
    call.server.auth.authorize(&call.user, &wanted)
}

/// Are the managed fields still to be worked out, or has server-side apply done so?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tracking {
    Needed,
    Done,
}

/// Creates a decoded object: by POST, or by a PUT or apply on a name that is not there.
pub(crate) async fn create_object(
    call: &Call,
    target: &Target,
    object: Value,
    options: &WriteOptions,
    tracking: Tracking,
) -> Result<Value, ApiError> {
    if !object::resource_version(&object).is_empty() {
        return Err(ApiError::new(500, "", "resourceVersion should not be set on objects to be created"));
    }
    let mut tries = 0;
    loop {
        let mut candidate = object.clone();
        let generated = prepare::generate_name(&mut candidate)?;
        let error = match create_named(call, target, candidate, options, tracking).await {
            Ok(created) => return Ok(created),
            Err(error) => error,
        };
        tries += 1;
        let is_bad_luck = services::is_overtaken(&error) || generated && error.reason() == "AlreadyExists";
        if !is_bad_luck || tries >= BAD_LUCK_TRIES {
            return Err(error);
        }
    }
}

/// Everything that happens to a new object before it is stored: defaults, admission, validation.
pub(crate) async fn prepared(
    call: &Call,
    target: &Target,
    mut object: Value,
    options: &WriteOptions,
    tracking: Tracking,
) -> Result<Value, ApiError> {
    let server = &call.server;
    prepare::default(target, &mut object);
    prepare::stamp_new(server, target, &mut object)?;
    // Before admission: what the server adds belongs to nobody.
    if tracking == Tracking::Needed {
        let blank = croft_api::blank(&target.gvk()).filter(|_| !target.served.resource.is_custom);
        prepare::with_write_context(server, target, &options.field_manager, |cx| {
            croft_apply::track_update(cx, blank.as_ref(), &mut object)
        })
        .map_err(|e| ApiError::bad_request(e.to_string()))?;
    }
    // There is nothing to ask about what cannot be; and policies and webhooks choose by what the namespace is like.
    admission::namespace_accepts(call, target, &object).await?;
    let asked = admission::policy::mutate(call, target, &mut object, None, options.dry_run)?;
    let hooks = Hooks::find(call, target, Operation::Create);
    if let Some(hooks) = &hooks {
        object = Box::pin(reviewed::mutate_new(call, target, options.dry_run, (hooks, &asked), object)).await?;
    }
    admission::admit_create(call, target, &mut object).await?;
    prepare::for_create(target, &mut object);
    admission::complete(call, target, &mut object, None)?;
    prepare::validate_create(target, &object)?;
    admission::policy::validate(call, target, Some(&object), None, options.dry_run)?;
    admission::check_limits(call, target, &object)?;
    for text in (target.served.resource.behaviour.warnings)(&object) {
        call.warn(text);
    }
    if let Some(hooks) = &hooks {
        Box::pin(reviewed::validate_new(call, target, options.dry_run, hooks, &object)).await?;
    }
    Ok(object)
}

async fn create_named(
    call: &Call,
    target: &Target,
    object: Value,
    options: &WriteOptions,
    tracking: Tracking,
) -> Result<Value, ApiError> {
    let object = prepared(call, target, object, options, tracking).await?;
    let named = Target { name: object::name(&object).to_owned(), ..target.clone() };
    let _turn = call.server.quota_turns.take(&call.server.cache, target).await;
    let guard = || admission::guards(call, &named, &object);
    let outcome = call
        .server
        .write_guarded(&named, options.dry_run, guard, |current| match current {
            Some(_) => Err(ApiError::already_exists(named.group(), named.plural(), &named.name)),
            None => Ok(Decision::Put(object.clone())),
        })
        .await?;
    if !options.dry_run {
        admission::after_write(call, &named).await;
    }
    Ok(outcome.into_object())
}
