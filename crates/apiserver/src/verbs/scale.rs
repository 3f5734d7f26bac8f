//! The `/scale` subresource: a view of the replica counts of any kind that has them.

use croft_api::Scale;
use croft_meta::{ApiError, FieldError, FieldPath, object};
use serde_json::{Map, Value, json};

use crate::call::{Call, Target};
use crate::options::{WriteKind, WriteOptions};
use crate::verbs::get;
use crate::verbs::patch::{Patch, PatchType};
use crate::verbs::reviewed::Seen;
use crate::verbs::update::{Candidate, change_seen};
use crate::write::in_version;
use crate::{decode, prepare};

pub(crate) async fn get(call: &Call, target: &Target) -> Result<Value, ApiError> {
    let scale = paths(target)?;
    let found = get::find(call, target).await?;
    Ok(view(scale, &in_version(&found, target)))
}

pub(crate) async fn update(call: &Call, target: &Target) -> Result<Value, ApiError> {
    let options = WriteOptions::parse(&call.query, WriteKind::Update, call.user_agent())?;
    let wanted = decode::parse(&call.body, call.content_type())?.object;
    let kind = object::gvk(&wanted).kind;
    if !kind.is_empty() && kind != "Scale" {
        return Err(ApiError::bad_request(format!("the kind {kind} cannot be handled as a Scale")));
    }
    write(call, target, &options, |_| Ok(wanted.clone())).await
}

pub(crate) async fn patch(call: &Call, target: &Target) -> Result<Value, ApiError> {
    let patch_type = PatchType::parse(call.content_type(), true)
        .or_else(|error| PatchType::parse(call.content_type(), false).map_err(|_| error))?;
    let kind = if patch_type == PatchType::Apply { WriteKind::Apply } else { WriteKind::Patch };
    let options = WriteOptions::parse(&call.query, kind, call.user_agent())?;
    if patch_type == PatchType::Apply {
        let config = decode::parse_yaml(&call.body)?;
        return write(call, target, &options, |current| {
            let mut merged = current.clone();
            croft_apply::merge_patch::apply(&mut merged, &config);
            Ok(merged)
        })
        .await;
    }
    // A Scale has no lists, so that a strategic patch is a merge patch.
    let patch_type = if patch_type == PatchType::Strategic { PatchType::Merge } else { patch_type };
    let patch = Patch::parse(patch_type, &call.body)?;
    write(call, target, &options, |current| patch.apply(target, current)).await
}

async fn write(
    call: &Call,
    target: &Target,
    options: &WriteOptions,
    wanted: impl Fn(&Value) -> Result<Value, ApiError> + Send + Sync,
) -> Result<Value, ApiError> {
    let scale = paths(target)?;
    // The scale is written as the object itself.
    let whole = Target { subresource: String::new(), ..target.clone() };
    let outcome = change_seen(call, &whole, options, Seen::Scale(target), |old| {
        let wanted = wanted(&view(scale, old))?;
        let given = object::resource_version(&wanted);
        if !given.is_empty() && given != object::resource_version(old) {
            return Err(ApiError::modified(target.group(), target.plural(), &target.name));
        }
        let replicas = wanted_replicas(target, &wanted)?;
        let mut new = old.clone();
        set(&mut new, &scale.spec_replicas, replicas.into());
        // Whoever scales owns the count as one who scales, not as one who writes the object.
        prepare::with_write_context(&call.server, target, &options.field_manager, |cx| {
            croft_apply::track_update(cx, Some(old), &mut new)
        })
        .map_err(|e| ApiError::bad_request(e.to_string()))?;
        Ok(Candidate::Tracked(new))
    })
    .await?;
    Ok(view(scale, outcome.object()))
}

/// The Scale that webhooks see of an object.
pub(crate) fn show_to_webhooks(target: &Target, object: &Value) -> Result<Value, ApiError> {
    Ok(view(paths(target)?, object))
}

/// Puts what they made of it back.
pub(crate) fn take_from_webhooks(target: &Target, object: &mut Value, scaled: &Value) -> Result<(), ApiError> {
    let replicas = wanted_replicas(target, scaled)?;
    set(object, &paths(target)?.spec_replicas, replicas.into());
    Ok(())
}

fn wanted_replicas(target: &Target, wanted: &Value) -> Result<i64, ApiError> {
    let path = FieldPath::new("spec.replicas");
    let invalid = |value: &Value, text: &str| {
        let errors = vec![FieldError::invalid(&path, value.clone(), text)];
        ApiError::invalid("autoscaling", "Scale", &target.name, &errors)
    };
    let given = wanted.pointer("/spec/replicas").unwrap_or(&Value::Null);
    match given {
        Value::Null => Ok(0),
        Value::Number(number) => match number.as_i64() {
            Some(count) if count < 0 => Err(invalid(given, "must be greater than or equal to 0")),
            Some(count) if i32::try_from(count).is_ok() => Ok(count),
            _ => Err(invalid(given, "must be a 32-bit integer")),
        },
        other => Err(ApiError::bad_request(format!(
            "json: cannot unmarshal {} into Go struct field ScaleSpec.spec.replicas of type int32",
            if other.is_string() { "string" } else { "value" }
        ))),
    }
}

/// The scale that an object is, as policies see it.
pub(crate) fn shown(target: &Target, object: &Value) -> Option<Value> {
    Some(view(target.served.version().scale.as_ref()?, object))
}

fn paths(target: &Target) -> Result<&Scale, ApiError> {
    target.served.version().scale.as_ref().ok_or_else(ApiError::no_such_path)
}

fn view(scale: &Scale, object: &Value) -> Value {
    let mut metadata = Map::new();
    for field in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
        if let Some(value) = object.get("metadata").and_then(|m| m.get(field)) {
            metadata.insert(field.to_owned(), value.clone());
        }
    }
    let count = |path: &str| lookup(object, path).and_then(Value::as_i64).unwrap_or_default();
    let mut status = json!({ "replicas": count(&scale.status_replicas) });
    if let Some(selector) = scale.label_selector.as_deref().and_then(|path| lookup(object, path)) {
        status["selector"] = selector_text(selector);
    }
    let replicas = count(&scale.spec_replicas);
    let spec = if replicas == 0 { json!({}) } else { json!({ "replicas": replicas }) };
    json!({ "kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": metadata, "spec": spec, "status": status })
}

/// A selector is stored as text by custom resources, as a map or LabelSelector by built-in kinds.
fn selector_text(selector: &Value) -> Value {
    match selector {
        Value::String(_) => selector.clone(),
        Value::Object(map) if !map.contains_key("matchLabels") && !map.contains_key("matchExpressions") => {
            let terms: Vec<String> =
                map.iter().map(|(k, v)| format!("{k}={}", v.as_str().unwrap_or_default())).collect();
            Value::from(terms.join(","))
        }
        other => croft_meta::selector::LabelSelector::from_json(other).map_or(Value::Null, |s| s.to_string().into()),
    }
}

fn lookup<'a>(object: &'a Value, path: &str) -> Option<&'a Value> {
    path.trim_start_matches('.').split('.').try_fold(object, |value, part| value.get(part))
}

fn set(object: &mut Value, path: &str, value: Value) {
    let mut place = object;
    for part in path.trim_start_matches('.').split('.') {
        if !place.is_object() {
            *place = json!({});
        }
        place = &mut place[part];
    }
    *place = value;
}
