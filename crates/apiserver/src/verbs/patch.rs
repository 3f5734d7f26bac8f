//! PATCH, in all four dialects.

use croft_apply::{json_patch, merge_patch, strategic};
use croft_meta::{ApiError, FieldError, FieldPath, object};
use serde_json::Value;

use crate::call::{Call, Target};
use crate::negotiate::MediaType;
use crate::options::{FieldValidation, WriteKind, WriteOptions};
use crate::verbs::create::{Tracking, create_object, may_create};
use crate::verbs::update::{Candidate, Turns, Written, change};
use crate::{decode, prepare};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PatchType {
    Json,
    Merge,
    Strategic,
    Apply,
}

impl PatchType {
    /// The dialect, or 415 with the ones that this kind takes.
    pub(crate) fn parse(content_type: &str, is_custom: bool) -> Result<Self, ApiError> {
        match MediaType::parse(content_type).essence {
            "application/json-patch+json" => Ok(Self::Json),
            "application/merge-patch+json" => Ok(Self::Merge),
            "application/strategic-merge-patch+json" if !is_custom => Ok(Self::Strategic),
            "application/apply-patch+yaml" => Ok(Self::Apply),
            _ => {
                let strategic = if is_custom { "" } else { ", application/strategic-merge-patch+json" };
                Err(ApiError::unsupported_media_type(format!(
                    "the body of the request was in an unknown format - accepted media types include: \
                     application/json-patch+json, application/merge-patch+json{strategic}, application/apply-patch+yaml"
                )))
            }
        }
    }
}

pub(crate) async fn patch(call: &Call, target: &Target) -> Result<Written, ApiError> {
    let patch_type = PatchType::parse(call.content_type(), target.served.resource.is_custom)?;
    let kind = if patch_type == PatchType::Apply { WriteKind::Apply } else { WriteKind::Patch };
    let options = WriteOptions::parse(&call.query, kind, call.user_agent())?;
    if patch_type == PatchType::Apply {
        return apply(call, target, &options).await;
    }
    let patch = Patch::parse(patch_type, &call.body)?;
    let outcome = change(call, target, &options, |old| {
        let mut new = patch.apply(target, old)?;
        check_decodes(call, target, &options, &mut new)?;
        check_identity(target, &new)?;
        // A patch without a resourceVersion applies to whatever is there.
        prepare::check_resource_version(target, &new, old)?;
        Ok(Candidate::Untracked(new))
    })
    .await?;
    Ok(Written { object: outcome.into_object(), created: false })
}

/// A patch that has been read, but not applied.
#[derive(Debug)]
pub(crate) enum Patch<'a> {
    Json(&'a [u8]),
    Merge(Value),
    Strategic(Value),
}

impl<'a> Patch<'a> {
    pub(crate) fn parse(patch_type: PatchType, body: &'a [u8]) -> Result<Self, ApiError> {
        Ok(match patch_type {
            PatchType::Json | PatchType::Apply => Self::Json(body),
            PatchType::Merge => Self::Merge(merge_patch::decode(body)?),
            PatchType::Strategic => Self::Strategic(croft_meta::json::parse(body).map_err(ApiError::bad_request)?),
        })
    }

    pub(crate) fn apply(&self, target: &Target, old: &Value) -> Result<Value, ApiError> {
        match self {
            Self::Json(patch) => json_patch::apply(old, patch).map_err(ApiError::from),
            Self::Merge(patch) => {
                let mut new = old.clone();
                merge_patch::apply(&mut new, patch);
                Ok(new)
            }
            Self::Strategic(patch) => {
                strategic::apply(&target.served.version().schema, old, patch).map_err(ApiError::from)
            }
        }
    }
}

/// The patched object must still be one of its kind.
fn check_decodes(call: &Call, target: &Target, options: &WriteOptions, new: &mut Value) -> Result<(), ApiError> {
    let invalid = |new: &Value, text: String| {
        let error = FieldError::invalid(&FieldPath::new("patch"), new.to_string(), text);
        ApiError::invalid("", "", "", &vec![error])
    };
    let gvk = target.gvk();
    let given = object::gvk(new);
    let is_other = |given: &str, expected: &str| !given.is_empty() && given != expected;
    if is_other(&given.kind, &gvk.kind) || is_other(&given.version, &gvk.version) {
        let text = format!("the patch may not make it a {}, {}", given.api_version(), given.kind);
        return Err(invalid(new, text));
    }
    new["apiVersion"] = Value::from(gvk.api_version());
    new["kind"] = Value::from(gvk.kind.as_str());
    let complaints = match decode::conform(&target.served, &gvk, new) {
        Ok(complaints) => complaints,
        Err(text) => return Err(invalid(new, text)),
    };
    match options.field_validation {
        FieldValidation::Ignore => {}
        FieldValidation::Warn => complaints.into_iter().for_each(|text| call.warn(text)),
        FieldValidation::Strict if complaints.is_empty() => {}
        FieldValidation::Strict => {
            return Err(invalid(new, format!("strict decoding error: {}", complaints.join(", "))));
        }
    }
    Ok(())
}

fn check_identity(target: &Target, new: &Value) -> Result<(), ApiError> {
    if object::name(new) != target.name {
        return Err(ApiError::bad_request(format!(
            "the name of the object ({}) does not match the name on the URL ({})",
            object::name(new),
            target.name
        )));
    }
    Ok(())
}

/// Server-side apply.
async fn apply(call: &Call, target: &Target, options: &WriteOptions) -> Result<Written, ApiError> {
    let config = applied_config(call, target)?;
    let mut turns = Turns::default();
    loop {
        let exists = turns.exists(call, target).await?;
        let result = if exists {
            apply_to_existing(call, target, options, &config).await
        } else {
            create_by_apply(call, target, options, &config).await
        };
        // There is nothing to create below an object.
        if !target.subresource.is_empty() || !turns.is_overtaken(exists, &result) {
            return result;
        }
    }
}

async fn apply_to_existing(
    call: &Call,
    target: &Target,
    options: &WriteOptions,
    config: &Value,
) -> Result<Written, ApiError> {
    let outcome = change(call, target, options, |old| {
        let rv = object::resource_version(config);
        if !rv.is_empty() {
            prepare::check_resource_version(target, config, old)?;
        }
        let merged = prepare::with_write_context(&call.server, target, &options.field_manager, |cx| {
            croft_apply::apply(cx, Some(old), config, options.force)
        })
        .map_err(ApiError::from)?;
        Ok(Candidate::Tracked(merged))
    })
    .await?;
    Ok(Written { object: outcome.into_object(), created: false })
}

async fn create_by_apply(
    call: &Call,
    target: &Target,
    options: &WriteOptions,
    config: &Value,
) -> Result<Written, ApiError> {
    if !target.subresource.is_empty() {
        return Err(target.not_found());
    }
    may_create(call)?;
    let uid = object::uid(config);
    if !uid.is_empty() {
        return Err(target.conflict(format!(
            "uid mismatch: the provided object specified uid {uid}, and no existing object was found"
        )));
    }
    let merged = prepare::with_write_context(&call.server, target, &options.field_manager, |cx| {
        croft_apply::apply(cx, None, config, options.force)
    })
    .map_err(ApiError::from)?;
    let mut merged = merged;
    object::set_meta(&mut merged, "name", target.name.as_str());
    object::set_meta(&mut merged, "resourceVersion", Value::Null);
    let created = create_object(call, target, merged, options, Tracking::Done).await?;
    Ok(Written { object: created, created: true })
}

/// The body of an apply, as sparse as it was sent; the merge holds it to the schema.
fn applied_config(call: &Call, target: &Target) -> Result<Value, ApiError> {
    let config = decode::parse_yaml(&call.body)?;
    let gvk = target.gvk();
    let given = object::gvk(&config);
    if given.version.is_empty() || given.kind.is_empty() {
        return Err(ApiError::bad_request("invalid object type: /, Kind="));
    }
    if given != gvk {
        return Err(ApiError::bad_request(format!(
            "incorrect version specified in apply patch. Specified patch version: {}, expected: {}",
            given.api_version(),
            gvk.api_version()
        )));
    }
    if config.pointer("/metadata/managedFields").is_some_and(|m| !m.is_null()) {
        return Err(ApiError::bad_request("metadata.managedFields must be nil"));
    }
    let name = object::name(&config);
    if !name.is_empty() && name != target.name {
        return Err(ApiError::bad_request(format!(
            "the name of the object ({name}) does not match the name on the URL ({})",
            target.name
        )));
    }
    let namespace = object::namespace(&config);
    if !namespace.is_empty() && namespace != target.namespace && target.served.resource.is_namespaced() {
        return Err(ApiError::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        ));
    }
    Ok(config)
}
