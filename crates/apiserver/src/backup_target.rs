//! Whether the backup target can be used: asked before it is set, and by whoever wants to know.
//!
//! It is tried as it will be used: listed, written, read and deleted. What can be wrong with the value itself the rules of
//! settings have found by then.

use std::collections::BTreeMap;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use croft_api::harvester::backup_target::{self, BackupTarget};
use croft_backup::target;
use croft_meta::{ApiError, Chain, object};
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
    let value = |setting: &Value| setting["value"].as_str().unwrap_or_default().to_owned();
    if call.is_internal || object::name(new) != backup_target::SETTING || old.map(value) == Some(value(new)) {
        return Ok(());
    }
    let wanted: BackupTarget = serde_json::from_str(&value(new)).unwrap_or_default();
    if !wanted.is_set() {
        return Ok(());
    }
    tried(call, &wanted).await.map_err(|why| {
        let message = format!("admission webhook \"validator.harvesterhci.io\" denied the request: value: {why}");
        ApiError::new(422, "Invalid", message)
    })
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
    let secret = secret(wanted, &kept(call));
    let opened = target::open_url(&wanted.url(), &secret).map_err(|error| Chain(&error).to_string());
    let found = match opened {
        Err(why) => Err(why),
        Ok(opened) => match tokio::time::timeout(PATIENCE, target::check(opened.as_ref())).await {
            Ok(checked) => checked.map_err(|error| Chain(&error).to_string()),
            Err(_) => Err(format!("it does not answer within {} s", PATIENCE.as_secs())),
        },
    };
    found.map_err(|why| format!("failed to connect to backup target, reason: {why}"))
}

/// The Secret that the keys were moved to.
fn kept(call: &Call) -> BTreeMap<String, String> {
    let id = crate::call::id(backup_target::SECRET_NAMESPACE, backup_target::SECRET);
    let secret = call.server.cache.collection(SECRETS).get(&id).map(|secret| secret.json()).unwrap_or_default();
    let text = |value: &Value| {
        let bytes = STANDARD.decode(value.as_str().unwrap_or_default()).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    };
    secret["data"].as_object().into_iter().flatten().map(|(key, value)| (key.clone(), text(value))).collect()
}

/// Keys that are not given again stay as they were.
fn secret(wanted: &BackupTarget, kept: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let mut secret = kept.clone();
    for (name, value) in wanted.secret() {
        let is_key = ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"].contains(&name);
        if !is_key || wanted.has_keys() {
            secret.insert(name.to_owned(), value);
        }
    }
    secret
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_that_are_not_given_are_those_that_were_kept() {
        let kept: BTreeMap<String, String> =
            [("AWS_ACCESS_KEY_ID", "old"), ("AWS_SECRET_ACCESS_KEY", "hush"), ("AWS_ENDPOINTS", "http://a")]
                .map(|(key, value)| (key.to_owned(), value.to_owned()))
                .into();
        let target = |id: &str| BackupTarget {
            ty: "s3".to_owned(),
            endpoint: "http://b".to_owned(),
            access_key_id: id.to_owned(),
            ..BackupTarget::default()
        };
        let same = secret(&target(""), &kept);
        assert_eq!((same["AWS_ACCESS_KEY_ID"].as_str(), same["AWS_ENDPOINTS"].as_str()), ("old", "http://b"));
        let other = secret(&target("new"), &kept);
        assert_eq!((other["AWS_ACCESS_KEY_ID"].as_str(), other["AWS_SECRET_ACCESS_KEY"].as_str()), ("new", ""));
    }
}
