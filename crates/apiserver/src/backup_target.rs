//! Whether the backup target can be used: asked before it is set, and by whoever wants to know.
//!
//! It is tried as it will be used: listed, written, read and deleted. What can be wrong with the value itself the rules of
//! settings have found by then.

use std::collections::BTreeMap;
use std::time::Duration;

use croft_api::harvester::backup_target::{self, BackupTarget};
use croft_backup::target;
use croft_meta::ApiError;
use serde_json::Value;

use crate::call::{Call, Target};
use crate::web_tls::SETTINGS;

/// As long as Harvester waits for an answer.
const PATIENCE: Duration = Duration::from_secs(8);
const SECRETS: &str = "core/secrets";
const NOT_SET: &str = "backup target is not set";

pub(crate) fn is_its_setting(target: &Target) -> bool {
    target.group() == "harvesterhci.io" && target.plural() == "settings" && target.name == backup_target::SETTING
}

/// Refuses a target that does not work. Croft's own parts only take the keys out of what was tried when it came in.
pub(crate) async fn admit(call: &Call, new: &Value, old: Option<&Value>) -> Result<(), ApiError> {
    if call.is_internal || call.server.rules_are_outside {
        return Ok(());
    }
    let Some(wanted) = backup_target::to_try(new, old) else { return Ok(()) };
    tried(call, &wanted).await.map_err(|why| backup_target::refusal(&why))
}

/// The one that is set.
pub(crate) async fn health(call: &Call) -> Result<(), String> {
    let setting = call.server.cache.collection(SETTINGS).get(backup_target::SETTING);
    let setting = setting.map(|setting| setting.json()).unwrap_or_default();
    let texts = ["value", "default"].map(|field| setting[field].as_str().unwrap_or_default().to_owned());
    let value = texts.iter().find(|text| !text.is_empty()).map(String::as_str).unwrap_or_default();
    let wanted: BackupTarget = serde_json::from_str(value).unwrap_or_default();
    if !wanted.is_set() {
        return Err(NOT_SET.to_owned());
    }
    tried(call, &wanted).await
}

/// The error is for the user.
async fn tried(call: &Call, wanted: &BackupTarget) -> Result<(), String> {
    target::tried(&wanted.url(), &wanted.secret_with(&kept(call)), PATIENCE).await
}

/// The Secret that the keys were moved to.
fn kept(call: &Call) -> BTreeMap<String, String> {
    let id = crate::call::id(backup_target::SECRET_NAMESPACE, backup_target::SECRET);
    let secret = call.server.cache.collection(SECRETS).get(&id).map(|secret| secret.json()).unwrap_or_default();
    backup_target::kept_in(&secret)
}
