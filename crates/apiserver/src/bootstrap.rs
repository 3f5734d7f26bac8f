//! The objects that every server has: namespaces, roles, the `kubernetes` service, the admin user.
//!
//! Written through the ordinary pipeline, on every start; what is there already stays, except that
//! the default roles are brought up to date as upstream does it.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use croft_meta::{ApiError, object};
use croft_pki::{Secret, password};
use http::{HeaderMap, Method};
use serde_json::{Value, json};

use crate::auth;
use crate::call::{Call, Target};
use crate::options::{FieldValidation, WriteOptions};
use crate::request::{Query, RequestInfo};
use crate::server::ApiServer;
use crate::services::KUBERNETES_IP;
use crate::user::UserInfo;
use crate::verbs::create::{Tracking, create_object};
use crate::verbs::update::{Candidate, change};

const NAMESPACES: [&str; 4] = ["default", "kube-system", "kube-public", "kube-node-lease"];
const MANAGER: &str = "croft";
const ADMIN: &str = "admin";

/// Writes what is missing. Returns the admin password if this start made one up.
pub(crate) async fn run(server: &Arc<ApiServer>, admin_password: Option<Secret>) -> Result<Option<Secret>, ApiError> {
    for name in NAMESPACES {
        let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } });
        ensure(server, namespace, Existing::Keep).await?;
    }
    for role in auth::bootstrap::default_objects() {
        ensure(server, role, Existing::Reconcile).await?;
    }
    ensure(server, kubernetes_service(server), Existing::Keep).await?;
    admin_user(server, admin_password).await
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Existing {
    Keep,
    /// Add the rules and subjects that are missing.
    Reconcile,
    Replace,
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

/// A call made by the server itself.
fn internal_call(server: &Arc<ApiServer>, target: &Target) -> Call {
    let query = Query::default();
    let gvr = target.served.resource.gvr(&target.served.version().name);
    let mut info = RequestInfo::parse(&Method::POST, "/", &query);
    info.is_resource = true;
    info.verb = "create";
    (info.group, info.version, info.resource) = (gvr.group, gvr.version, gvr.resource);
    info.namespace.clone_from(&target.namespace);
    Call::new(Arc::clone(server), UserInfo::internal(), info, query, HeaderMap::new(), Bytes::new())
}

async fn ensure(server: &Arc<ApiServer>, wanted: Value, existing: Existing) -> Result<(), ApiError> {
    let gvk = object::gvk(&wanted);
    let served =
        server.catalog().find_kind(&gvk).cloned().ok_or_else(|| ApiError::internal(format!("no kind {gvk}")))?;
    let target = Target::new(served, object::namespace(&wanted), object::name(&wanted));
    let call = internal_call(server, &target);
    let options = WriteOptions {
        dry_run: false,
        field_manager: MANAGER.to_owned(),
        field_validation: FieldValidation::Strict,
        force: false,
    };
    server.cache.fresh().await?;
    if server.cache.collection(target.storage_key()).get(&target.id()).is_none() {
        match create_object(&call, &target, wanted.clone(), &options, Tracking::Needed).await {
            Ok(_) => return Ok(()),
            // Another server, started at the same time, was quicker.
            Err(error) if error.reason() == "AlreadyExists" => {}
            Err(error) => return Err(error),
        }
    }
    if existing == Existing::Keep {
        return Ok(());
    }
    change(&call, &target, &options, |old| {
        Ok(Candidate::Untracked(match existing {
            Existing::Replace => replaced(old, &wanted),
            Existing::Reconcile => auth::bootstrap::reconciled(old, &wanted).unwrap_or_else(|| old.clone()),
            Existing::Keep => old.clone(),
        }))
    })
    .await?;
    Ok(())
}

fn replaced(old: &Value, wanted: &Value) -> Value {
    let mut new = wanted.clone();
    new["metadata"] = old["metadata"].clone();
    new
}

/// The local user that a fresh install is opened with. Only the hash of the password is kept.
async fn admin_user(server: &Arc<ApiServer>, given: Option<Secret>) -> Result<Option<Secret>, ApiError> {
    server.cache.fresh().await?;
    let exists = server.cache.collection("core/secrets").get(&format!("kube-system/user-{ADMIN}")).is_some();
    let (secret, generated) = match given {
        Some(given) => (given, false),
        None if exists => return Ok(None),
        None => (password::generate().map_err(ApiError::internal)?, true),
    };
    // Hashing takes its time by design.
    let plain = secret.clone();
    let hash = tokio::task::spawn_blocking(move || password::hash(plain.reveal()))
        .await
        .map_err(ApiError::internal)?
        .map_err(ApiError::internal)?;
    let user = json!({
        "apiVersion": "v1", "kind": "Secret", "type": "croft.io/user",
        "metadata": { "name": format!("user-{ADMIN}"), "namespace": "kube-system" },
        "data": {
            "username": STANDARD.encode(ADMIN),
            "password-hash": STANDARD.encode(hash),
            "groups": STANDARD.encode("system:masters"),
        },
    });
    ensure(server, user, Existing::Replace).await?;
    Ok(generated.then_some(secret))
}
