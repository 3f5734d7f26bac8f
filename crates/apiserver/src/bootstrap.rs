//! The objects that every server has: the definitions of its kinds, namespaces, roles, the `kubernetes` service, what
//! Harvester's clients expect to find, the admin user.
//!
//! They go through the ordinary pipeline, on every start; what is there already stays, except that the definitions and
//! the default roles are brought up to date. What is missing is written together: the first start writes a hundred
//! objects and should not take a hundred times as long for it, and any other writes nothing. What a later release has
//! made of definitions is left as it is ([`release::Standing`]).
//!
//! Something may stand in the way of one of them: its namespace is being deleted, or its definition, or what it takes has been
//! taken. That must not keep the server from starting, since what would clear the way starts after it: [`late`].

mod addons;
mod definitions;
mod flow_control;
mod harvester;
mod late;
mod platform;
mod stored_versions;
mod templates;

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use croft_meta::{ApiError, object};
use croft_pki::{Secret, password};
use croft_store::Compare;
use serde_json::{Value, json};

use crate::auth::authenticate::{second_factor, secret_text, validity};
use crate::call::{Call, Target};
use crate::options::{FieldValidation, WriteOptions};
use crate::server::ApiServer;
use crate::services::KUBERNETES_IP;
use crate::verbs::create::{Tracking, create_object, prepared};
use crate::verbs::update::{Candidate, change};
use crate::{admission, auth, migrations, prepare, release};
use late::Late;

const NAMESPACES: [&str; 11] = [
    "default",
    "kube-system",
    "kube-public",
    "kube-node-lease",
    "harvester-system",
    "harvester-public",
    "longhorn-system",
    "cattle-system",
    "cattle-monitoring-system",
    "cattle-logging-system",
    "fleet-local",
];
const MANAGER: &str = "croft";
const ADMIN: &str = "admin";

/// Writes what is missing. Returns the admin password if this start made one up.
pub(crate) async fn run(server: &Arc<ApiServer>, admin_password: Option<Secret>) -> Result<Option<Secret>, ApiError> {
    let mut late = ensure(server, NAMESPACES.into_iter().map(namespace).collect()).await?;
    let mark = release::mark(server, &migrations::names()).await?;
    definitions::install(server).await?;
    migrations::run(server, mark).await?;
    late.extend(ensure(server, wanted(server)).await?);
    late.extend(ensure(server, templates::versions()).await?);
    let password = admin_user(server, admin_password).await?;
    late::complete(server, late);
    Ok(password)
}

fn namespace(name: &str) -> Wanted {
    Wanted::kept(json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } }))
}

/// What is in the namespaces, or in none; [`templates::versions`] come after that.
fn wanted(server: &ApiServer) -> Vec<Wanted> {
    let roles = auth::bootstrap::default_objects().into_iter();
    let mut wanted: Vec<Wanted> = roles.map(|object| Wanted { object, existing: Existing::Reconcile }).collect();
    wanted.extend(definitions::memory(server));
    wanted.push(Wanted::kept(kubernetes_service(server)));
    wanted.push(Wanted { object: authentication(server), existing: Existing::Refresh });
    wanted.extend(platform::objects(&server.outside_address()));
    wanted.extend(harvester::objects(&server.outside_address()));
    wanted.extend(flow_control::objects());
    wanted.extend(addons::objects());
    wanted.extend(templates::objects());
    wanted
}

/// Has an object with these fields, beside what else it has.
pub(crate) async fn refresh(server: &Arc<ApiServer>, object: Value) -> Result<(), ApiError> {
    let late = ensure(server, vec![Wanted { object, existing: Existing::Refresh }]).await?;
    // One that is there and on its way out says what it should all the same.
    late.into_iter().find(|late| late.is_refused).map_or(Ok(()), |refused| Err(refused.why))
}

/// What becomes of an object that is there already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Existing {
    Keep,
    /// Add the rules and subjects that are missing.
    Reconcile,
    /// Keep its spec, and have its status say what is the case.
    Report,
    /// Keep what it has beside the fields that are wanted.
    Refresh,
    /// Replace it all, but for the second factor of the user that it is.
    User,
}

#[derive(Clone, Debug)]
struct Wanted {
    object: Value,
    existing: Existing,
}

impl Wanted {
    fn kept(object: Value) -> Self {
        Self { object, existing: Existing::Keep }
    }
}

/// What servers behind this one need to know.
fn authentication(server: &ApiServer) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": { "name": "extension-apiserver-authentication", "namespace": "kube-system" },
        "data": server.aggregation.published(server.ca.cert_pem()),
    })
}

fn kubernetes_service(server: &ApiServer) -> Value {
    let port = server.address().rsplit(':').next().and_then(|p| p.parse::<u16>().ok()).unwrap_or(6443);
    json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {
            "name": "kubernetes", "namespace": "default",
            "labels": { "component": "apiserver", "provider": "kubernetes" },
        },
        "spec": {
            "clusterIP": KUBERNETES_IP, "type": "ClusterIP", "sessionAffinity": "None",
            "ports": [{ "name": "https", "port": 443, "protocol": "TCP", "targetPort": port }],
        },
    })
}

fn options() -> WriteOptions {
    WriteOptions {
        dry_run: false,
        field_manager: MANAGER.to_owned(),
        field_validation: FieldValidation::Strict,
        force: false,
    }
}

fn target(server: &ApiServer, wanted: &Value) -> Result<Target, ApiError> {
    let gvk = object::gvk(wanted);
    let served = server.catalog().find_kind(&gvk).cloned();
    let served = served.ok_or_else(|| ApiError::internal(format!("no kind {gvk}")))?;
    Ok(Target::new(served, object::namespace(wanted), object::name(wanted)))
}

fn exists(server: &ApiServer, target: &Target) -> bool {
    server.cache.collection(target.storage_key()).get(&target.id()).is_some()
}

/// Creates what is missing, all of it together, and brings the rest up to date. Returns what cannot be had now.
async fn ensure(server: &Arc<ApiServer>, wanted: Vec<Wanted>) -> Result<Vec<Late>, ApiError> {
    server.cache.fresh().await?;
    let (mut missing, mut rest, mut late) = (Vec::new(), Vec::new(), Vec::new());
    for wanted in wanted {
        let target = match target(server, &wanted.object) {
            Ok(target) => target,
            // Its definition has gone since the definitions were looked at.
            Err(why) => {
                late.push(Late { wanted, why, is_refused: true });
                continue;
            }
        };
        if let Some(stored) = server.cache.collection(target.storage_key()).get(&target.id()) {
            if let Some(why) = late::is_going(server, &target, &stored, &wanted.object) {
                late.push(Late { wanted: wanted.clone(), why, is_refused: false });
            }
            // Many settings, of which a new program may change a few.
            let stored = (wanted.existing == Existing::Refresh).then(|| stored.json());
            if stored.is_none_or(|stored| refreshed(&stored, &wanted.object) != stored) {
                rest.push(wanted);
            }
            continue;
        }
        if server.cache.collection(target.storage_key()).unreadable(&target.id()).is_some() {
            tracing::warn!(object = target.id(), "an object that every server has cannot be read, and is left alone");
            continue;
        }
        match new(server, &target, &wanted.object).await {
            Ok((object, guards)) => missing.push((target.clone(), object, guards)),
            Err(why) if late::is_refusal(&why) => {
                late.push(Late { wanted, why, is_refused: true });
                continue;
            }
            Err(error) => return Err(error),
        }
        // A kind with a status subresource leaves it out when it is created.
        let is_told = wanted.existing != Existing::Report || !prepare::has_status(&target);
        let existing = if is_told { Existing::Keep } else { Existing::Report };
        rest.push(Wanted { existing, ..wanted });
    }
    if server.create_together(&missing).await? {
        rest.retain(|wanted| wanted.existing != Existing::Keep);
    }
    // Another server may have been started at the same time, and been quicker with some of it.
    for wanted in rest {
        match ensure_one(server, &wanted).await {
            Err(why) if late::is_refusal(&why) => late.push(Late { wanted, why, is_refused: true }),
            result => result?,
        }
    }
    Ok(late::each_once(late))
}

/// A new object, and what it rests on.
async fn new(server: &Arc<ApiServer>, target: &Target, wanted: &Value) -> Result<(Value, Vec<Compare>), ApiError> {
    let call = Call::internal(server, target);
    let object = prepared(&call, target, wanted.clone(), &options(), Tracking::Needed).await?;
    let guards = admission::guards(&call, target, &object)?;
    Ok((object, guards))
}

async fn ensure_one(server: &Arc<ApiServer>, wanted: &Wanted) -> Result<(), ApiError> {
    let mut target = target(server, &wanted.object)?;
    let call = Call::internal(server, &target);
    if !exists(server, &target) {
        match create_object(&call, &target, wanted.object.clone(), &options(), Tracking::Needed).await {
            Ok(_) => return Ok(()),
            Err(error) if error.reason() == "AlreadyExists" => {}
            Err(error) => return Err(error),
        }
    }
    if wanted.existing == Existing::Keep {
        return Ok(());
    }
    if wanted.existing == Existing::Report && prepare::has_status(&target) {
        "status".clone_into(&mut target.subresource);
    }
    change(&call, &target, &options(), |old| {
        Ok(Candidate::Untracked(match wanted.existing {
            Existing::User => user_with_new_password(old, &wanted.object),
            Existing::Report => reported(old, &wanted.object),
            Existing::Refresh => refreshed(old, &wanted.object),
            Existing::Reconcile => auth::bootstrap::reconciled(old, &wanted.object).unwrap_or_else(|| old.clone()),
            Existing::Keep => old.clone(),
        }))
    })
    .await?;
    Ok(())
}

/// The second factor stays: who can set the password by a file can take it off too, and says so.
fn user_with_new_password(old: &Value, wanted: &Value) -> Value {
    let mut new = wanted.clone();
    new["metadata"] = old["metadata"].clone();
    // What has ended must not be good again either.
    let is_kept = |key: &str| key.starts_with(second_factor::PREFIX) || validity::KEYS.contains(&key);
    for (key, value) in old["data"].as_object().into_iter().flatten().filter(|(key, _)| is_kept(key)) {
        new["data"][key] = value.clone();
    }
    new
}

fn refreshed(old: &Value, wanted: &Value) -> Value {
    let mut new = old.clone();
    for (field, value) in wanted.as_object().into_iter().flatten().filter(|(field, _)| *field != "metadata") {
        new[field] = value.clone();
    }
    new
}

/// Conditions that are there stay: their times tell since when they hold.
fn reported(old: &Value, wanted: &Value) -> Value {
    let mut new = old.clone();
    if !new["status"].is_object() {
        new["status"] = json!({});
    }
    for (field, value) in wanted["status"].as_object().into_iter().flatten() {
        if field != "conditions" || new["status"][field].is_null() {
            new["status"][field] = value.clone();
        }
    }
    new
}

/// The local user that a fresh install is opened with. Only the hash of the password is kept.
async fn admin_user(server: &Arc<ApiServer>, given: Option<Secret>) -> Result<Option<Secret>, ApiError> {
    server.cache.fresh().await?;
    let (secrets, id) = (server.cache.collection("core/secrets"), format!("kube-system/user-{ADMIN}"));
    if secrets.unreadable(&id).is_some() {
        tracing::warn!("the admin's password cannot be read; the kubeconfig in the data directory works without it");
        return Ok(None);
    }
    let known = secrets.get(&id).map(|user| secret_text(&user.json(), "password-hash").unwrap_or_default());
    let (secret, generated) = match given {
        Some(given) => (given, false),
        None if known.is_some() => return Ok(None),
        None => (password::generate().map_err(ApiError::internal)?, true),
    };
    // Hashing takes its time by design.
    let plain = secret.clone();
    let hash = move || match known.filter(|known| password::verify(plain.reveal(), known)) {
        // Another hash would be another password, which ends what the user has open.
        Some(known) => Ok(known),
        None => password::hash(plain.reveal()),
    };
    let hash = tokio::task::spawn_blocking(hash).await.map_err(ApiError::internal)?.map_err(ApiError::internal)?;
    let mut user = json!({
        "apiVersion": "v1", "kind": "Secret", "type": "croft.io/user",
        "metadata": { "name": format!("user-{ADMIN}"), "namespace": "kube-system" },
        "data": {
            "username": STANDARD.encode(ADMIN),
            "password-hash": STANDARD.encode(hash),
            "groups": STANDARD.encode("system:masters"),
        },
    });
    if generated {
        // It was shown on a screen, or in a log.
        user["data"]["must-change-password"] = json!(STANDARD.encode("true"));
    }
    ensure_one(server, &Wanted { object: user, existing: Existing::User }).await?;
    Ok(generated.then_some(secret))
}

#[cfg(test)]
mod tests;
