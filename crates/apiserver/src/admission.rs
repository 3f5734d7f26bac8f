//! What must hold between objects: the rules that a kind's row cannot state because they need others' state; and, in
//! `rules`, calling those that it does state.

pub(crate) mod authorizer;
pub(crate) mod conditions;
mod pods;
pub(crate) mod policy;
pub(crate) mod quota;
mod rules;

use std::borrow::Cow;

use croft_api::limit_range;
use croft_meta::status::{Cause, Details};
use croft_meta::{ApiError, Quantity, object};
use croft_store::Compare;
use serde_json::{Value, json};

use crate::cache::{self, Object};
use crate::call::{Call, Target};
use crate::{auth, backup_target, clock, crd, services, signing, web_tls};

/// The namespaces that cannot be deleted.
const PROTECTED_NAMESPACES: [&str; 3] = ["default", "kube-system", "kube-public"];

fn is_kind(target: &Target, group: &str, plural: &str) -> bool {
    target.group() == group && target.plural() == plural
}

/// Before a new object is prepared and validated.
pub(crate) async fn admit_create(call: &Call, target: &Target, object: &mut Value) -> Result<(), ApiError> {
    namespace_accepts(call, target, object).await?;
    if target.served.resource.is_custom {
        crd::accepts_instances(call, target)?;
    }
    match (target.group(), target.plural()) {
        ("", "secrets") => {
            guard_credentials(call, target, object)?;
            call.server.auth.tokens.fill_token_secret(object)?;
        }
        ("", "services") => services::allocate(call, object)?,
        ("", "pods") => {
            limit_range::fill(object, &limit_ranges(call, target));
            pods::fill_overhead(call, object).await?;
        }
        ("", "persistentvolumeclaims") => default_storage_class(call, object),
        ("harvesterhci.io", "settings") => web_tls::check(&call.server, object)?,
        ("rbac.authorization.k8s.io", _) => {
            call.server.auth.rbac.check_escalation(&call.user, &call.info, object, None)?;
        }
        _ => {}
    }
    rules::admit(call, target, object, None)?;
    backup_target_works(call, target, object).await
}

fn limit_ranges(call: &Call, target: &Target) -> Vec<Value> {
    let ranges = call.server.cache.collection("core/limitranges").list(&target.namespace);
    ranges.iter().map(|range| range.json()).collect()
}

/// Whether the namespace lets single pods ask for as much, or as little, as a valid new one does.
pub(crate) fn check_limits(call: &Call, target: &Target, object: &Value) -> Result<(), ApiError> {
    if !is_kind(target, "", "pods") || !target.subresource.is_empty() {
        return Ok(());
    }
    match limit_range::refusal(object, &limit_ranges(call, target)) {
        Some(why) => Err(ApiError::forbidden("", "pods", object::name(object), why)),
        None => Ok(()),
    }
}

/// Settings are there from the start; should one be made all the same, what is in it must do.
async fn backup_target_works(call: &Call, target: &Target, setting: &Value) -> Result<(), ApiError> {
    if is_kind(target, "harvesterhci.io", "settings") {
        backup_target::admit(call, setting, None).await
    } else {
        Ok(())
    }
}

/// Before a changed object is prepared and validated.
pub(crate) fn admit_update(call: &Call, target: &Target, new: &mut Value, old: &Value) -> Result<(), ApiError> {
    match (target.group(), target.plural()) {
        ("", "secrets") => {
            guard_credentials(call, target, new)?;
            guard_credentials(call, target, old)?;
            auth::authenticate::validity::end_with_password(new, old);
            call.server.auth.tokens.fill_token_secret(new)?;
        }
        ("", "serviceaccounts") if !call.user.is_member_of(auth::MASTERS) => {
            auth::authenticate::accounts::keep_revoked(new, old);
        }
        ("harvesterhci.io", "settings") => web_tls::check(&call.server, new)?,
        ("certificates.k8s.io", "certificatesigningrequests") => signing::authorize(call, target, new, old)?,
        ("rbac.authorization.k8s.io", _) => {
            call.server.auth.rbac.check_escalation(&call.user, &call.info, new, Some(old))?;
        }
        _ => {}
    }
    rules::admit(call, target, new, Some(old))
}

/// Secrets that make a user or a token can make one of any group: writing them takes the rights of an administrator,
/// however far the right to write Secrets was given away. So do their names, whatever the type: one of another type would keep
/// the server from making its own.
fn guard_credentials(call: &Call, target: &Target, secret: &Value) -> Result<(), ApiError> {
    if call.user.is_member_of(auth::MASTERS) {
        return Ok(());
    }
    let (name, ty) = (object::name(secret), secret.get("type").and_then(Value::as_str).unwrap_or_default());
    let what = if ty.starts_with("croft.io/") {
        format!("secrets of type {ty}")
    } else if is_for_credentials(&target.namespace, name) {
        format!("secrets of this name in {}", target.namespace)
    } else {
        return Ok(());
    };
    let why = format!("only members of {} may write {what}", auth::MASTERS);
    Err(ApiError::forbidden("", "secrets", name, why))
}

/// The names that the server keeps credentials under.
fn is_for_credentials(namespace: &str, name: &str) -> bool {
    namespace == auth::authenticate::USERS_NAMESPACE
        && (is_list_of_credentials(name) || name.starts_with("user-") || name.starts_with("token-"))
}

fn is_list_of_credentials(name: &str) -> bool {
    [auth::authenticate::revoked::NAME, auth::authenticate::lockouts::NAME].contains(&name)
}

/// Once an object is prepared, just before it is validated and stored: what the server itself knows about it.
pub(crate) fn complete(call: &Call, target: &Target, new: &mut Value, old: Option<&Value>) -> Result<(), ApiError> {
    if !target.subresource.is_empty() {
        if let Some(old) = old.filter(|_| signing::is_request(target)) {
            signing::stamp_conditions(new, old, &clock::now_rfc3339());
        }
        return Ok(());
    }
    policy::authorize(call, target, new, old)?;
    match (target.group(), target.plural(), old) {
        ("", "services", Some(old)) => services::allocate_changed(call, new, old)?,
        ("apiextensions.k8s.io", "customresourcedefinitions", _) => crd::complete(call, target, new, old)?,
        ("certificates.k8s.io", "certificatesigningrequests", None) => signing::complete(call, target, new)?,
        ("admissionregistration.k8s.io", "validatingadmissionpolicies", _) => policy::observe(new),
        _ if target.served.resource.is_custom => tell_if_idle(target, new, old),
        _ => {}
    }
    Ok(())
}

/// Objects that nothing acts on yet say so where their clients look. A status that a client wrote is its own.
fn tell_if_idle(target: &Target, new: &mut Value, old: Option<&Value>) {
    // Go writes a status that nobody has set as an empty one.
    let is_blank = |status: &Value| status.is_null() || status.as_object().is_some_and(serde_json::Map::is_empty);
    if new.get("status").is_some_and(|status| !is_blank(status)) {
        return;
    }
    let Some(told) = croft_api::idle_status(target.group(), target.plural(), &clock::now_rfc3339()) else { return };
    // A client that leaves it out does not make it new.
    let known = old.and_then(|old| old.get("status")).filter(|status| !is_blank(status));
    new["status"] = known.cloned().unwrap_or(told);
}

/// What a change is held against when it is validated. Users can take the growth of a claim back only in part. Croft's own
/// parts can do so entirely: to them it is as if it had never been asked for.
pub(crate) fn held_against<'a>(call: &Call, target: &Target, old: &'a Value) -> Cow<'a, Value> {
    const WANTED: &str = "/spec/resources/requests/storage";
    let size = |path: &str| Quantity::parse(old.pointer(path)?.as_str()?).ok();
    if !call.is_internal || !is_kind(target, "", "persistentvolumeclaims") {
        return Cow::Borrowed(old);
    }
    let (Some(wanted), Some(there)) = (size(WANTED), size("/status/capacity/storage")) else {
        return Cow::Borrowed(old);
    };
    if wanted <= there {
        return Cow::Borrowed(old);
    }
    let mut never_grown = old.clone();
    if let Some(size) = never_grown.pointer_mut(WANTED) {
        *size = old["status"]["capacity"]["storage"].clone();
    }
    Cow::Owned(never_grown)
}

/// After the object is stored. Nothing here can fail the request any more.
pub(crate) async fn after_write(call: &Call, target: &Target) {
    if is_kind(target, "apiextensions.k8s.io", "customresourcedefinitions") {
        // The new kind is served before its creation is acknowledged.
        call.server.catalog_caught_up().await;
    }
}

/// Before the object is deleted, or marked as such.
pub(crate) fn admit_delete(call: &Call, target: &Target, object: &Value) -> Result<(), ApiError> {
    if is_kind(target, "", "namespaces") && PROTECTED_NAMESPACES.contains(&target.name.as_str()) {
        return Err(ApiError::forbidden("", "namespaces", &target.name, "this namespace may not be deleted"));
    }
    // Deleting a user or a token takes rights away; deleting one of the lists would give some back.
    if is_kind(target, "", "secrets")
        && (object["type"] == auth::authenticate::revoked::SECRET_TYPE
            || is_for_credentials(&target.namespace, object::name(object))
                && is_list_of_credentials(object::name(object)))
    {
        guard_credentials(call, target, object)?;
    }
    rules::admit_delete(call, target, object)
}

/// New objects need a namespace that exists and is not on its way out.
pub(crate) async fn namespace_accepts(call: &Call, target: &Target, object: &Value) -> Result<(), ApiError> {
    if target.namespace.is_empty() {
        return Ok(());
    }
    let namespaces = call.server.cache.collection("core/namespaces");
    let mut found = namespaces.get(&target.namespace);
    if found.is_none() {
        call.server.cache.fresh().await?;
        found = namespaces.get(&target.namespace);
    }
    let Some(namespace) = found else { return Err(ApiError::not_found("", "namespaces", &target.namespace)) };
    is_not_terminating(&namespace, target, object)
}

/// What a new object rests on: its namespace and its definition. Neither may begin to go before the object is stored,
/// or it would be overlooked when their content is removed.
pub(crate) fn guards(call: &Call, target: &Target, object: &Value) -> Result<Vec<Compare>, ApiError> {
    const NAMESPACES: &str = "core/namespaces";
    let mut guards = Vec::new();
    let unchanged = |collection: &str, found: &Object| Compare {
        key: format!("{}{collection}/{}", cache::ROOT, found.id()),
        revision: found.revision,
    };
    if !target.namespace.is_empty() {
        let found = call.server.cache.collection(NAMESPACES).get(&target.namespace);
        let namespace = found.ok_or_else(|| ApiError::not_found("", "namespaces", &target.namespace))?;
        is_not_terminating(&namespace, target, object)?;
        guards.push(unchanged(NAMESPACES, &namespace));
    }
    if target.served.resource.is_custom {
        let name = format!("{}.{}", target.plural(), target.group());
        let definition = call.server.cache.collection(crd::STORAGE_KEY).get(&name);
        let definition = definition.ok_or_else(ApiError::no_such_path)?;
        // The object was prepared by the definition that the request found; another of its name may not know it.
        let known = call.catalog.definition(&name).ok_or_else(ApiError::no_such_path)?;
        if known.revision != definition.revision && known.uid != object::uid(&definition.json()) {
            return Err(ApiError::no_such_path());
        }
        crd::accepts_instances(call, target)?;
        guards.push(unchanged(crd::STORAGE_KEY, &definition));
    }
    Ok(guards)
}

fn is_not_terminating(namespace: &Object, target: &Target, object: &Value) -> Result<(), ApiError> {
    // Whether it is being deleted is in the first bytes of its metadata; a parse is needed only if so.
    if memchr::memmem::find(&namespace.bytes, b"\"deletionTimestamp\"").is_none()
        || object::deletion_timestamp(&namespace.json()).is_none()
    {
        return Ok(());
    }
    let why = format!("unable to create new content in namespace {} because it is being terminated", target.namespace);
    let cause = Cause {
        reason: "NamespaceTerminating".to_owned(),
        message: format!("namespace {} is being terminated", target.namespace),
        field: "metadata.namespace".to_owned(),
    };
    let name = object::name(object);
    Err(ApiError::forbidden(target.group(), target.plural(), name, why).with_details(Details {
        name: name.to_owned(),
        group: target.group().to_owned(),
        kind: target.plural().to_owned(),
        causes: vec![cause],
        ..Details::default()
    }))
}

/// A namespace stays until its `spec.finalizers` are gone: the content goes first.
pub(crate) fn namespace_holds(target: &Target, object: &Value) -> bool {
    is_kind(target, "", "namespaces")
        && object.pointer("/spec/finalizers").and_then(Value::as_array).is_some_and(|f| !f.is_empty())
}

pub(crate) fn mark_terminating(target: &Target, object: &mut Value, now: &str) {
    if is_kind(target, "", "namespaces") {
        object["status"]["phase"] = json!("Terminating");
    }
    if is_kind(target, "apiextensions.k8s.io", "customresourcedefinitions") {
        crd::mark_terminating(object, now);
    }
}

/// How long an object gets to end well before it is removed. Only pods end by themselves, and only on a node: it says
/// when they have, by deleting them with no grace. Where the node is gone, the pod controller does.
pub(crate) fn grace_seconds(target: &Target, object: &Value, asked: Option<i64>) -> i64 {
    if !is_kind(target, "", "pods") {
        return 0;
    }
    let text = |path: &str| object.pointer(path).and_then(Value::as_str).unwrap_or_default();
    let has_ended = matches!(text("/status/phase"), "Succeeded" | "Failed");
    if has_ended || text("/spec/nodeName").is_empty() {
        return 0;
    }
    let own = object.pointer("/spec/terminationGracePeriodSeconds").and_then(Value::as_i64).unwrap_or(30);
    // Upstream reads a negative grace as the shortest one.
    match asked.unwrap_or(own) {
        seconds if seconds < 0 => 1,
        seconds => seconds,
    }
}

/// A claim that names no class gets the default one, if there is one.
fn default_storage_class(call: &Call, object: &mut Value) {
    const DEFAULT: &str = "storageclass.kubernetes.io/is-default-class";
    let spec = object.get("spec");
    let names_class = spec.and_then(|s| s.get("storageClassName")).is_some_and(|c| !c.is_null());
    let legacy = object::annotation(object, "volume.beta.kubernetes.io/storage-class").is_some();
    if names_class || legacy || spec.is_none() {
        return;
    }
    let classes = call.server.cache.collection("storage.k8s.io/storageclasses").list("");
    // Several defaults: the youngest one, as upstream.
    let youngest = classes
        .iter()
        .map(|class| class.json())
        .filter(|class| object::annotation(class, DEFAULT) == Some("true"))
        .max_by(|a, b| {
            let created = |c: &Value| c.pointer("/metadata/creationTimestamp").cloned().unwrap_or_default().to_string();
            created(a).cmp(&created(b)).then_with(|| object::name(b).cmp(object::name(a)))
        });
    if let Some(class) = youngest {
        object["spec"]["storageClassName"] = json!(object::name(&class));
    }
}
