//! Harvester's paths that are about no kind: readiness, where the interface is, machine types, preferences.

use croft_meta::ApiError;
use serde_json::json;

use super::reply;
use crate::answer::{self, Answer};
use crate::call::Call;
use crate::clock;
use crate::pipeline::not_allowed;

pub(super) const UI_INFO: &str = "/v1/harvester/ui-info";
const BACKUP_TARGET: &str = "backup-target";

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
        ["clusters", "local"] => machine_types(call),
        ["backuptarget", "healthz"] => backup_target(call),
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

fn machine_types(call: &Call) -> Result<Answer, ApiError> {
    match call.query.get("link") {
        Some("machineTypes") if cfg!(target_arch = "aarch64") => Ok(answer::json(200, &json!(["virt"]))),
        Some("machineTypes") => Ok(answer::json(200, &json!(["q35", "pc"]))),
        _ => Err(ApiError::no_such_path()),
    }
}

/// Whether backups have somewhere to go.
fn backup_target(call: &Call) -> Result<Answer, ApiError> {
    let setting = call.server.cache.collection("harvesterhci.io/settings").get(BACKUP_TARGET);
    let value = setting.map(|setting| setting.json()["value"].as_str().unwrap_or_default().to_owned());
    let is_set = value.is_some_and(|value| !value.is_empty() && value != "{}");
    let why = if is_set { "this server cannot write backups yet" } else { "backup target is not set" };
    Err(reply::invalid("InvalidState", why))
}
