//! Harvester's paths that are about no kind: readiness, where the interface is, machine types, preferences.

use std::collections::BTreeMap;

use croft_meta::{ApiError, Quantity};
use serde_json::{Map, json};

use super::reply;
use super::schema::Schema;
use crate::answer::{self, Answer};
use crate::backup_target;
use crate::call::Call;
use crate::clock;
use crate::pipeline::not_allowed;

pub(super) const UI_INFO: &str = "/v1/harvester/ui-info";

pub(super) async fn answer(call: &Call, path: &[&str]) -> Result<Answer, ApiError> {
    if call.info.verb != "get" {
        return Err(not_allowed());
    }
    match path {
        ["readyz"] => Ok(ready(call).await),
        ["ui-info"] => Ok(answer::json(
            200,
            &json!({ "ui-source": "bundled", "ui-index": "", "ui-plugin-index": "", "ui-plugin-bundled-version": "" }),
        )),
        ["clusters", "local"] => cluster(call),
        ["backuptarget", "healthz"] => backup_target(call).await,
        _ => Err(ApiError::no_such_path()),
    }
}

/// Whether the store can be read and the first objects are there.
async fn ready(call: &Call) -> Answer {
    let (is_ready, why) = match call.server.cache.fresh().await {
        Err(error) => (false, error.message().to_owned()),
        Ok(_) if !call.server.is_ready() => (false, "the server is starting".to_owned()),
        Ok(_) => (true, String::new()),
    };
    answer::json(200, &json!({ "ready": is_ready, "msg": why, "timestamp": clock::now_rfc3339() }))
}

/// What there is about the cluster: `?link=…`.
fn cluster(call: &Call) -> Result<Answer, ApiError> {
    match call.query.get("link") {
        Some("machineTypes") if cfg!(target_arch = "aarch64") => Ok(answer::json(200, &json!(["virt"]))),
        Some("machineTypes") => Ok(answer::json(200, &json!(["q35", "pc"]))),
        Some("deviceCapacity") => device_capacity(call),
        _ => Err(ApiError::no_such_path()),
    }
}

/// How many devices for guests each node has, and how many of them running machines have.
fn device_capacity(call: &Call) -> Result<Answer, ApiError> {
    let nodes = Schema::find(&call.catalog, "nodes").ok_or_else(ApiError::no_such_path)?;
    call.server.auth.authorize(&call.user, &nodes.attributes("list", "", ""))?;
    let mut taken: BTreeMap<(String, String), i64> = BTreeMap::new();
    for instance in &call.server.cache.collection("kubevirt.io/virtualmachineinstances").list("") {
        let instance = instance.json();
        let node = instance["status"]["nodeName"].as_str().unwrap_or_default();
        for list in ["gpus", "hostDevices"] {
            let devices = instance["spec"]["domain"]["devices"][list].as_array();
            for device in devices.into_iter().flatten().filter_map(|device| device["deviceName"].as_str()) {
                *taken.entry((node.to_owned(), device.to_owned())).or_default() += 1;
            }
        }
    }
    let mut capacity = Map::new();
    for node in &call.server.cache.collection("core/nodes").list("") {
        let object = node.json();
        let mut devices = Map::new();
        for (name, amount) in object["status"]["allocatable"].as_object().into_iter().flatten() {
            // Those of Kubernetes and KubeVirt are no devices that one could pass on.
            let is_device = name.contains('/') && !name.contains("kubernetes.io/") && !name.contains("kubevirt.io/");
            let amount = amount.as_str().and_then(|text| Quantity::parse(text).ok()).map(|amount| amount.value());
            if let Some(amount) = amount.filter(|_| is_device) {
                let allocated = taken.get(&(node.name().to_owned(), name.clone())).copied().unwrap_or_default();
                let free = (amount - allocated).max(0);
                devices.insert(name.clone(), json!({ "capacity": amount, "allocated": allocated, "free": free }));
            }
        }
        capacity.insert(node.name().to_owned(), devices.into());
    }
    Ok(answer::json(200, &capacity.into()))
}

/// Whether backups have somewhere to go.
async fn backup_target(call: &Call) -> Result<Answer, ApiError> {
    match backup_target::health(call).await {
        Ok(()) => Ok(answer::json(200, &json!({}))),
        Err(why) => Err(reply::invalid("InvalidState", why)),
    }
}
