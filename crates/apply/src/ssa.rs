//! Server-side apply, and the field ownership that every other write leaves behind.
//!
//! [`track_update`] is for a create, PUT or patch: it gives the fields that changed to the writer and
//! takes them from everyone else. [`apply`] merges a configuration into an object, refuses to change
//! what others own unless forced, and removes what the same manager no longer applies.
//!
//! Field sets of other API versions of the kind are taken as they are: versions differ in name only
//! (conversion None).

mod conflict;
mod last_applied;
mod prune;

use croft_meta::{ApiError, Gvk, object};
use croft_schema::Schema;
use serde_json::{Map, Value};
use std::sync::LazyLock;
use thiserror::Error;

use crate::fieldpath::Set;
use crate::managed::{Manager, Managers, Operation, is_reset};
use crate::typed::{Comparison, Duplicates, Node, compare, field_set, follow_schema, merge, validate};

pub use conflict::{Conflict, conflict_status};

/// Who writes what, where and when.
#[derive(Clone, Copy, Debug)]
pub struct WriteContext<'a> {
    pub schema: &'a Schema,
    /// The version of the request, `apps/v1`.
    pub api_version: &'a str,
    /// The field manager: the `fieldManager` parameter, or what stands for it.
    pub manager: &'a str,
    /// `status`, `scale`; empty for the object itself.
    pub subresource: &'a str,
    /// RFC 3339, UTC, whole seconds.
    pub now: &'a str,
    /// Paths that this endpoint does not write, and so cannot own: `["status"]` for an object with a status
    /// subresource, `["spec"]` for that subresource.
    pub reset_fields: &'a [&'a [&'a str]],
}

/// Why ownership could not be recorded.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ManagedError {
    /// The object is not one at all.
    #[error("expected an object, got {0}")]
    NotAnObject(&'static str),
}

/// Why an apply failed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ApplyError {
    /// Others own fields that the configuration wants to change.
    #[error("apply failed with {} conflicts", .0.len())]
    Conflicts(Vec<Conflict>),
    /// The configuration is not one for this object: 400.
    #[error("{0}")]
    BadRequest(String),
    /// The configuration cannot be understood by the schema: upstream says 500.
    #[error("{0}")]
    Failed(String),
}

impl From<ApplyError> for ApiError {
    fn from(error: ApplyError) -> Self {
        match error {
            ApplyError::Conflicts(conflicts) => conflict_status(&conflicts),
            ApplyError::BadRequest(text) => Self::bad_request(text),
            ApplyError::Failed(text) => Self::new(500, "", text),
        }
    }
}

/// What identifies an object or is kept by the server is owned by nobody.
static NEVER_OWNED: LazyLock<Set> = LazyLock::new(|| {
    Set::from_fields(&[
        &["apiVersion"],
        &["kind"],
        &["metadata"],
        &["metadata", "name"],
        &["metadata", "namespace"],
        &["metadata", "creationTimestamp"],
        &["metadata", "selfLink"],
        &["metadata", "uid"],
        &["metadata", "clusterName"],
        &["metadata", "generation"],
        &["metadata", "managedFields"],
        &["metadata", "resourceVersion"],
    ])
});

static NOTHING: LazyLock<Value> = LazyLock::new(|| Value::Object(Map::new()));

impl WriteContext<'_> {
    fn root(&self) -> Node<'_> {
        Node::root(self.schema)
    }

    fn reset_set(&self) -> Set {
        Set::from_fields(self.reset_fields)
    }

    /// The writer as a manager that owns nothing yet.
    fn writer(&self, name: &str, operation: Operation) -> Manager {
        Manager {
            name: if name.is_empty() { "unknown" } else { name }.to_owned(),
            operation,
            api_version: self.api_version.to_owned(),
            subresource: self.subresource.to_owned(),
            time: None,
            fields: Set::new(),
        }
    }

    /// The time that an entry gets. Writes through `scale` leave none: upstream loses it on the way to the object.
    fn time(&self) -> Option<String> {
        (self.subresource != "scale").then(|| self.now.to_owned())
    }

    fn is_reset(&self, sent: Option<&Value>) -> bool {
        is_reset(sent, !self.schema.type_name.is_empty())
    }

    fn compare(&self, old: &Value, new: &Value) -> Comparison {
        let mut changes = compare(self.root(), old, new);
        changes.subtract(&NEVER_OWNED);
        changes.exclude(&self.reset_set());
        changes
    }
}

fn managed_fields(object: &Value) -> Option<&Value> {
    object.get("metadata")?.get("managedFields")
}

fn set_managed_fields(object: &mut Value, managers: Option<Value>) {
    object::set_meta(object, "managedFields", managers.unwrap_or(Value::Null));
}

/// Records who owns what after a write that is not an apply.
///
/// `new` is what the client wants, pruned and defaulted; what admission and the server itself add later (an allocated
/// address, a label) is owned by nobody. `live` is what is stored now, `None` for a create. `metadata.managedFields` of
/// `new` is what the client sent, and is replaced.
pub fn track_update(cx: &WriteContext<'_>, live: Option<&Value>, new: &mut Value) -> Result<(), ManagedError> {
    let Value::Object(map) = new else {
        return Err(ManagedError::NotAnObject(croft_meta::json::go_kind(new)));
    };
    let sent = map.get_mut("metadata").and_then(Value::as_object_mut).and_then(|m| m.remove("managedFields"));
    let live = live.unwrap_or(&NOTHING);
    let before = managed_fields(live);
    let changes = cx.compare(live, new);

    // Most writes that change nothing send back what they read.
    let sent_is_stored = sent.is_none() || !cx.subresource.is_empty() || sent.as_ref() == before;
    if changes.is_same() && sent_is_stored && !cx.is_reset(sent.as_ref()) {
        if before.is_some() {
            set_managed_fields(new, before.cloned());
        }
        return Ok(());
    }
    let mut managers = starting_managers(cx, sent.as_ref(), before);
    // Ownership of an object that was created without it starts with the first apply.
    let is_tracked = !managers.is_empty() || object_uid(live).is_none();
    if is_tracked {
        let writer = cx.writer(cx.manager, Operation::Update);
        record_update(cx, &mut managers, &changes, writer);
        managers.cap_updates();
    }
    if let Some(entries) = managers.encode() {
        set_managed_fields(new, Some(entries));
    }
    Ok(())
}

fn object_uid(object: &Value) -> Option<&str> {
    object.get("metadata")?.get("uid")?.as_str().filter(|uid| !uid.is_empty())
}

/// The managers that a write starts from: those that the client sent, if they can be read, else the stored ones. A
/// subresource cannot be used to set them.
fn starting_managers(cx: &WriteContext<'_>, sent: Option<&Value>, stored: Option<&Value>) -> Managers {
    if cx.subresource.is_empty() {
        if cx.is_reset(sent) {
            return Managers::default();
        }
        match Managers::decode(sent) {
            Ok(managers) if !managers.is_empty() => return managers,
            _ => {}
        }
    }
    Managers::decode(stored).unwrap_or_default()
}

/// Gives what changed to the writer and takes it from everyone else.
fn record_update(cx: &WriteContext<'_>, managers: &mut Managers, changes: &Comparison, mut writer: Manager) {
    for manager in &mut managers.0 {
        follow_schema(cx.root(), &mut manager.fields);
        take_from(manager, changes);
    }
    let mut written = changes.modified.clone();
    written.absorb(changes.added.clone());
    if !written.is_empty() {
        writer.time = cx.time();
        writer.fields = written;
        if let Some(previous) = managers.take(&writer) {
            writer.fields.absorb(previous.fields);
        }
        managers.put(writer);
    }
    managers.drop_empty();
}

fn take_from(manager: &mut Manager, changes: &Comparison) {
    manager.fields.subtract(&changes.modified);
    manager.fields.subtract(&changes.added);
    manager.fields.subtract(&changes.removed);
}

/// Merges an applied configuration into an object and records its ownership.
///
/// The result has to be defaulted, validated and admitted by the caller; it equals `live` if there is nothing to write.
/// `live` is `None` if the object is to be created.
pub fn apply(cx: &WriteContext<'_>, live: Option<&Value>, config: &Value, force: bool) -> Result<Value, ApplyError> {
    check_config(cx, live, config)?;
    let stored = live.unwrap_or(&NOTHING);
    let mut managers = Managers::decode(managed_fields(stored))
        .map_err(|e| ApplyError::Failed(format!("failed to decode managed fields: {e}")))?;
    if managers.is_empty() && live.is_some() {
        let before = cx.writer("before-first-apply", Operation::Update);
        let changes = cx.compare(&NOTHING, stored);
        record_update(cx, &mut managers, &changes, before);
    }
    let outcome = match merge_config(cx, stored, config, managers.clone(), force) {
        Err(ApplyError::Conflicts(conflicts)) if cx.manager == last_applied::KUBECTL => {
            // Moving from client-side to server-side apply is no conflict with oneself.
            let conflicts = last_applied::remaining_conflicts(cx, stored, conflicts);
            if !conflicts.is_empty() {
                return Err(ApplyError::Conflicts(conflicts));
            }
            merge_config(cx, stored, config, managers, true)?
        }
        outcome => outcome?,
    };
    let Outcome { mut object, mut managers, changed } = outcome;
    if changed {
        let writer = cx.writer(cx.manager, Operation::Apply);
        if let Some(manager) = managers.0.iter_mut().find(|m| m.is(&writer)) {
            manager.time = cx.time();
        }
    }
    if cx.manager == last_applied::KUBECTL {
        last_applied::refresh(&mut object, config);
    }
    set_managed_fields(&mut object, managers.encode());
    keep_times(live, &mut object);
    Ok(object)
}

struct Outcome {
    object: Value,
    managers: Managers,
    changed: bool,
}

fn check_config(cx: &WriteContext<'_>, live: Option<&Value>, config: &Value) -> Result<(), ApplyError> {
    let gvk = object::gvk(config);
    let live_kind = live.and_then(|l| l.get("kind")).and_then(Value::as_str);
    if gvk.api_version() != cx.api_version || live_kind.is_some_and(|kind| kind != gvk.kind) {
        return Err(ApplyError::BadRequest(format!("invalid object type: {gvk}")));
    }
    if managed_fields(config).is_some_and(|fields| !fields.is_null()) {
        return Err(ApplyError::BadRequest("metadata.managedFields must be nil".to_owned()));
    }
    validate(cx.root(), config, Duplicates::Forbidden).map_err(|text| {
        let subject = describe(config, &gvk);
        ApplyError::Failed(format!("failed to create typed patch object ({subject}): {text}"))
    })
}

/// `namespace/name; group/version, Kind=kind`.
fn describe(object: &Value, gvk: &Gvk) -> String {
    let meta =
        |field: &str| object.get("metadata").and_then(|m| m.get(field)).and_then(Value::as_str).unwrap_or_default();
    format!("{}/{}; {gvk}", meta("namespace"), meta("name"))
}

/// Merges, prunes and looks for conflicts.
fn merge_config(
    cx: &WriteContext<'_>,
    live: &Value,
    config: &Value,
    mut managers: Managers,
    force: bool,
) -> Result<Outcome, ApplyError> {
    for manager in &mut managers.0 {
        follow_schema(cx.root(), &mut manager.fields);
    }
    let merged = merge(cx.root(), live, config);
    let mut writer = cx.writer(cx.manager, Operation::Apply);
    let last = managers.take(&writer);
    writer.fields = field_set(cx.root(), config);
    writer.fields.subtract_recursively(&cx.reset_set());
    writer.time = last.as_ref().and_then(|l| l.time.clone());
    let mut object = match &last {
        // Nothing to remove if all that was applied is applied again, which is what most applies do.
        Some(last) if !last.fields.difference(&writer.fields).is_empty() => {
            prune::prune(cx.root(), merged, last, &writer, &managers)
        }
        _ => merged,
    };
    if object.is_null() {
        object = NOTHING.clone();
    }
    let changes = cx.compare(live, &object);
    if !force {
        let conflicts = conflict::find(&managers, &changes);
        if !conflicts.is_empty() {
            return Err(ApplyError::Conflicts(conflicts));
        }
    }
    for manager in &mut managers.0 {
        take_from(manager, &changes);
    }
    writer.fields.subtract(&NEVER_OWNED);
    managers.put(writer);
    managers.drop_empty();
    let changed = !crate::fieldpath::values_equal(live, &object);
    Ok(Outcome { object, managers, changed })
}

/// Puts the stored times back if nothing but times would change, so that nothing is written.
///
/// [`apply`] does this already; after defaulting and admission, which may undo a change, it is worth doing again.
pub fn keep_times(live: Option<&Value>, new: &mut Value) {
    let Some(live) = live else { return };
    let (Some(Value::Array(old)), Some(Value::Array(fresh))) = (managed_fields(live), managed_fields(new)) else {
        return;
    };
    let same = old.len() == fresh.len() && old.iter().zip(fresh).all(|(a, b)| same_but(a, b, &["time"]));
    if same && same_but(live, new, &["metadata", "managedFields"]) {
        let old = Value::Array(old.clone());
        set_managed_fields(new, Some(old));
    }
}

/// Whether two objects are the same, whatever is at a path that both may have.
fn same_but(a: &Value, b: &Value, path: &[&str]) -> bool {
    let (Some((first, rest)), Value::Object(a), Value::Object(b)) = (path.split_first(), a, b) else {
        return path.is_empty() || a == b;
    };
    let others = |map: &'_ Map<String, Value>| map.iter().filter(|(k, _)| k.as_str() != *first).count();
    let same = |(key, value): (&String, &Value)| key == first || b.get(key) == Some(value);
    let at_path = match (a.get(*first), b.get(*first)) {
        (Some(a), Some(b)) => same_but(a, b, rest),
        (a, b) => rest.is_empty() || a == b,
    };
    at_path && others(a) == others(b) && a.iter().all(same)
}

#[cfg(test)]
mod tests;
