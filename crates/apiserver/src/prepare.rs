//! What happens to an object between decoding and storing, the same for every kind: system metadata,
//! defaults, status kept apart from spec, generation, managed fields, validation.

use croft_apply::WriteContext;
use croft_meta::{ApiError, FieldError, FieldErrors, FieldPath, names, object};
use serde_json::{Map, Value};

use crate::call::Target;
use crate::server::ApiServer;
use crate::{clock, signing};

/// Fills in what the client left out.
pub(crate) fn default(target: &Target, object: &mut Value) {
    let resource = &target.served.resource;
    if resource.is_custom {
        croft_schema::apply_defaults(&target.served.version().schema, object);
    }
    (resource.behaviour.default)(object);
}

/// The name, namespace and system metadata of a new object.
pub(crate) fn stamp_new(_server: &ApiServer, target: &Target, object: &mut Value) -> Result<(), ApiError> {
    match_namespace(target, object)?;
    let uid = uuid::Uuid::new_v4().to_string();
    let now = clock::now_rfc3339();
    let has_generation = target.served.resource.behaviour.has_generation;
    let metadata = object::metadata_mut(object);
    for field in ["deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"] {
        metadata.remove(field);
    }
    metadata.insert("uid".to_owned(), uid.into());
    metadata.insert("creationTimestamp".to_owned(), now.into());
    if has_generation {
        metadata.insert("generation".to_owned(), 1.into());
    }
    Ok(())
}

/// Puts back what a new object was given, whatever webhooks and policies made of it.
pub(crate) fn restamp_new(given: &Value, object: &mut Value) {
    let metadata = object::metadata_mut(object);
    for field in ["resourceVersion", "deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"] {
        metadata.remove(field);
    }
    for field in ["uid", "creationTimestamp", "generation"] {
        match given.get(field) {
            Some(value) => drop(metadata.insert(field.to_owned(), value.clone())),
            None => drop(metadata.remove(field)),
        }
    }
}

/// The object's namespace is the request's; another one is an error.
pub(crate) fn match_namespace(target: &Target, object: &mut Value) -> Result<(), ApiError> {
    let given = object::namespace(object);
    if given == target.namespace {
        return Ok(());
    }
    if given.is_empty() {
        object::set_meta(object, "namespace", target.namespace.as_str());
        return Ok(());
    }
    if !target.served.resource.is_namespaced() {
        // Upstream drops the namespace that clients send with cluster-scoped objects only when it is "default" or empty.
        object::set_meta(object, "namespace", Value::Null);
        return Ok(());
    }
    Err(ApiError::bad_request("the namespace of the provided object does not match the namespace sent on the request"))
}

/// Picks a name for `generateName`; the suffix is random, the base cut to fit.
pub(crate) fn generate_name(object: &mut Value) -> Result<bool, ApiError> {
    const MAX_BASE: usize = 63 - 5;
    if !object::name(object).is_empty() {
        return Ok(false);
    }
    let base = object.pointer("/metadata/generateName").and_then(Value::as_str).unwrap_or_default();
    if base.is_empty() {
        return Ok(false);
    }
    let mut cut = base.len().min(MAX_BASE);
    while !base.is_char_boundary(cut) {
        cut -= 1;
    }
    let name = format!("{}{}", &base[..cut], random_suffix()?);
    object::set_meta(object, "name", name);
    Ok(true)
}

/// Five characters, as names that are made up end with them.
pub(crate) fn random_suffix() -> Result<String, ApiError> {
    let mut random = [0_u8; 5];
    getrandom::fill(&mut random).map_err(ApiError::internal)?;
    let letters = object::SUFFIX_ALPHABET;
    Ok(random.iter().map(|b| char::from(letters[usize::from(*b) % letters.len()])).collect())
}

/// Clears what a client may not set at creation.
pub(crate) fn for_create(target: &Target, object: &mut Value) {
    let version = target.served.version();
    if target.served.resource.is_custom
        && version.subresources.iter().any(|s| s.name == "status")
        && let Some(map) = object.as_object_mut()
    {
        map.remove("status");
    }
    (target.served.resource.behaviour.prepare_create)(object);
}

/// Puts back what this write may not change, and counts the generation.
pub(crate) fn for_update(target: &Target, new: &mut Value, old: &Value) -> Result<(), ApiError> {
    match_namespace(target, new)?;
    if target.subresource == "status" {
        only_status(new, old, takes_metadata(target));
    } else if target.subresource == "approval" {
        signing::only_conditions(new, old);
    } else if has_status(target) {
        copy_field(new, old, "status");
    }
    keep_system_metadata(new, old);
    if target.subresource.is_empty() {
        (target.served.resource.behaviour.prepare_update)(new, old);
    }
    if target.served.resource.behaviour.has_generation && spec_differs(target, new, old) {
        object::set_meta(new, "generation", object::generation(old) + 1);
    }
    Ok(())
}

pub(crate) fn has_status(target: &Target) -> bool {
    target.served.version().subresources.iter().any(|s| s.name == "status")
}

/// Most built-in kinds let a write of the status change labels and annotations too, as upstream; those that reset their
/// metadata do not, nor do claims, whose metadata rules of ours look at.
fn takes_metadata(target: &Target) -> bool {
    let resets = matches!(
        target.plural(),
        "pods"
            | "persistentvolumeclaims"
            | "resourceclaims"
            | "servicecidrs"
            | "storageversionmigrations"
            | "storageversions"
            | "validatingadmissionpolicies"
            | "volumeattachments"
    );
    !target.served.resource.is_custom && !resets
}

/// A status write takes the status and nothing else from the client, and metadata where the kind does; managed fields are
/// tracked by us.
fn only_status(new: &mut Value, old: &Value, with_metadata: bool) {
    let status = new.get("status").cloned();
    let metadata = new.get("metadata").cloned().unwrap_or_default();
    let managed = metadata.get("managedFields").cloned();
    *new = old.clone();
    if let Some(map) = new.as_object_mut() {
        match status {
            Some(status) => drop(map.insert("status".to_owned(), status)),
            None => drop(map.remove("status")),
        }
        if with_metadata {
            map.insert("metadata".to_owned(), metadata);
        }
    }
    object::set_meta(new, "managedFields", managed.unwrap_or_default());
}

fn copy_field(new: &mut Value, old: &Value, field: &str) {
    let Some(map) = new.as_object_mut() else { return };
    match old.get(field) {
        Some(value) => drop(map.insert(field.to_owned(), value.clone())),
        None => drop(map.remove(field)),
    }
}

fn keep_system_metadata(new: &mut Value, old: &Value) {
    let empty = Map::new();
    let old_meta = old.get("metadata").and_then(Value::as_object).unwrap_or(&empty);
    let meta = object::metadata_mut(new);
    let mut keep = |field: &str, always: bool| match old_meta.get(field) {
        Some(value) if always || meta.get(field).is_none_or(Value::is_null) => {
            meta.insert(field.to_owned(), value.clone());
        }
        None if always => drop(meta.remove(field)),
        _ => {}
    };
    keep("resourceVersion", true);
    keep("generation", true);
    keep("creationTimestamp", true);
    keep("uid", false);
    if old_meta.contains_key("deletionTimestamp") {
        keep("deletionTimestamp", true);
    }
    keep("deletionGracePeriodSeconds", false);
    meta.remove("selfLink");
}

/// Does anything differ that `metadata.generation` counts?
fn spec_differs(target: &Target, new: &Value, old: &Value) -> bool {
    // A custom resource without a status subresource counts its status too.
    let skip_status = has_status(target) || !target.served.resource.is_custom;
    let counted = |key: &str| key != "metadata" && !(skip_status && key == "status");
    let (Some(new), Some(old)) = (new.as_object(), old.as_object()) else { return true };
    let differs = |a: &Map<String, Value>, b: &Map<String, Value>| {
        a.iter().any(|(key, value)| counted(key) && b.get(key) != Some(value))
    };
    differs(new, old) || differs(old, new)
}

/// Everything that may be wrong with a new object.
pub(crate) fn validate_create(target: &Target, object: &Value) -> Result<(), ApiError> {
    let resource = &target.served.resource;
    let behaviour = &resource.behaviour;
    let mut errors = names::validate_object_meta(object, resource.is_namespaced(), behaviour.name_rule);
    if !resource.is_custom && resource.group != "apiextensions.k8s.io" {
        errors.extend(unqualified_finalizers(object));
    }
    errors.extend(validate_schema(target, object, None));
    errors.extend((behaviour.validate_create)(object));
    if errors.is_empty() && signing::is_request(target) {
        errors.extend(signing::validate(object));
    }
    refuse(target, object, &errors)
}

/// Everything that may be wrong with a change.
pub(crate) fn validate_update(target: &Target, new: &Value, old: &Value) -> Result<(), ApiError> {
    let resource = &target.served.resource;
    let mut errors =
        names::validate_object_meta(new, resource.is_namespaced(), croft_meta::names::is_path_segment_name);
    errors.extend(names::validate_object_meta_update(new, old));
    // Upstream looks at the metadata twice, once for every kind and once for this one, and lists both findings.
    errors.extend(errors.clone());
    errors.extend(validate_schema(target, new, Some(old)));
    if target.subresource.is_empty() {
        errors.extend((resource.behaviour.validate_update)(new, old));
    } else {
        errors.extend((resource.behaviour.validate_subresource)(&target.subresource, new, old));
    }
    refuse(target, new, &errors)
}

/// The finalizers of built-in kinds are Kubernetes' own or have a domain.
fn unqualified_finalizers(object: &Value) -> FieldErrors {
    let path = FieldPath::new("metadata.finalizers");
    let is_known = |name: &str| matches!(name, "kubernetes" | "orphan" | "foregroundDeletion") || name.contains('/');
    let unknown = object::finalizers(object).into_iter().enumerate().filter(|(_, name)| !is_known(name));
    let text = "name is neither a standard finalizer name nor is it fully qualified";
    unknown.map(|(index, name)| FieldError::invalid(&path.index(index), name, text)).collect()
}

/// Custom resources are held to their schema and its rules; built-in kinds were when they were decoded.
fn validate_schema(target: &Target, object: &Value, old: Option<&Value>) -> FieldErrors {
    if !target.served.resource.is_custom {
        return FieldErrors::new();
    }
    let version = target.served.version();
    match version.schema.rules() {
        Some(rules) => croft_schema::validate_custom_resource(&version.schema, rules, object, old),
        None => croft_schema::validate(&version.schema, object, &FieldPath::root(), old),
    }
}

fn refuse(target: &Target, object: &Value, errors: &FieldErrors) -> Result<(), ApiError> {
    if errors.is_empty() {
        return Ok(());
    }
    Err(ApiError::invalid(target.group(), target.served.kind(), object::name(object), errors))
}

/// A PUT may name the very object that it means to replace.
pub(crate) fn check_uid(target: &Target, new: &Value, old: &Value) -> Result<(), ApiError> {
    let (wanted, found) = (object::uid(new), object::uid(old));
    if wanted.is_empty() || wanted == found {
        return Ok(());
    }
    Err(target.conflict(format!("Precondition failed: UID in precondition: {wanted}, UID in object meta: {found}")))
}

/// A PUT or patch result must name the version it was made from, or leave it out where that is allowed.
pub(crate) fn check_resource_version(target: &Target, new: &Value, old: &Value) -> Result<(), ApiError> {
    let given = object::resource_version(new);
    if given.is_empty() || given == "0" {
        if target.served.resource.behaviour.unconditional_update {
            return Ok(());
        }
        let path = FieldPath::new("metadata.resourceVersion");
        let errors = vec![FieldError::invalid(&path, 0, "must be specified for an update")];
        return Err(ApiError::invalid(target.group(), target.plural(), object::name(new), &errors));
    }
    if given.parse::<u64>().is_err() {
        let path = FieldPath::new("metadata.resourceVersion");
        let text = format!("strconv.ParseUint: parsing {given:?}: invalid syntax");
        return refuse(target, new, &vec![FieldError::invalid(&path, given, text)]);
    }
    if given != object::resource_version(old) {
        return Err(ApiError::modified(target.group(), target.plural(), &target.name));
    }
    Ok(())
}

/// The paths that a write through this endpoint cannot change, and so its manager cannot own.
pub(crate) fn reset_fields(target: &Target) -> &'static [&'static [&'static str]] {
    if target.subresource == "status" {
        return &[&["spec"], &["metadata", "labels"], &["metadata", "annotations"], &["metadata", "finalizers"]];
    }
    if target.subresource == "approval" {
        return &[&["spec"], &["status", "certificate"], &["metadata", "labels"], &["metadata", "annotations"]];
    }
    if has_status(target) { &[&["status"]] } else { &[] }
}

/// Runs `f` with what managed-field tracking needs to know about this write.
pub(crate) fn with_write_context<T>(
    _server: &ApiServer,
    target: &Target,
    manager: &str,
    f: impl FnOnce(&WriteContext<'_>) -> T,
) -> T {
    let api_version = target.gvk().api_version();
    let now = clock::now_rfc3339();
    f(&WriteContext {
        schema: &target.served.version().schema,
        api_version: &api_version,
        manager,
        subresource: &target.subresource,
        now: &now,
        reset_fields: reset_fields(target),
    })
}

/// Are two states of an object the same to a client?
pub(crate) fn is_unchanged(new: &Value, old: &Value) -> bool {
    let (Some(new), Some(old)) = (new.as_object(), old.as_object()) else { return false };
    new.len() == old.len()
        && new.iter().all(|(key, value)| match (key.as_str(), old.get(key)) {
            ("metadata", Some(other)) => same_metadata(value, other),
            (_, other) => other == Some(value),
        })
}

fn same_metadata(new: &Value, old: &Value) -> bool {
    let (Some(new), Some(old)) = (new.as_object(), old.as_object()) else { return false };
    let counted = |map: &Map<String, Value>| map.len() - usize::from(map.contains_key("resourceVersion"));
    counted(new) == counted(old)
        && new.iter().all(|(key, value)| key == "resourceVersion" || old.get(key) == Some(value))
}
