//! Settings: what became of them, and the keys of the backup target, which are moved into a Secret.

use std::collections::BTreeMap;
use std::time::Duration;

use croft_api::harvester::backup_target::{self, BackupTarget};
use croft_api::harvester::settings::{State, state_of, why_without_effect};
use croft_api::harvester::{Setting, set_condition};
use croft_reconcile::{Cache, Error, Key, failure};
use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{DeleteParams, ObjectMeta, Patch};
use kube::{Api, Client};
use tokio_util::sync::CancellationToken;

use crate::backup_target::Target;
use crate::{one_kind, patch};

pub(crate) async fn run(client: Client, target: Target, stop: CancellationToken) {
    let apply = |client, cache, key| apply(client, cache, key, target.clone());
    one_kind::run("setting", client, stop, |_| Some(Duration::ZERO), apply).await;
}

async fn apply(client: Client, cache: Cache<Setting>, key: Key, target: Target) -> Result<(), Error> {
    let Some(old) = cache.get(&key) else { return Ok(()) };
    let is_target = key.name == backup_target::SETTING;
    if is_target {
        keep_keys(&client, &old).await?;
    }
    let Some(change) = patch::guarded(&*old, &told(&old, &key.name, Timestamp::now())) else {
        if is_target && target.is_news(old.value.as_deref().unwrap_or_default()) {
            target.changed();
        }
        return Ok(());
    };
    if is_target {
        // New keys are news, even if everything else is as it was.
        target.forget();
    }
    let api: Api<Setting> = Api::all(client);
    let written = api.patch(&key.name, &patch::as_harvester(), &Patch::Merge(&change)).await;
    if let Some(written) = failure::absent_is_none(written)? {
        cache.wrote(written);
    }
    Ok(())
}

/// The setting with what is to be said of it, and without keys.
fn told(setting: &Setting, name: &str, now: Timestamp) -> Setting {
    let mut new = setting.clone();
    let value = setting.value.as_deref().unwrap_or_default();
    if let Some(target) = target(name, value).filter(BackupTarget::has_keys) {
        // A struct of texts can always be written.
        new.value = serde_json::to_string(&target.without_keys()).ok();
    }
    if name == backup_target::SETTING {
        // Whoever looks whether it can be reached says so.
        return new;
    }
    let is_told = setting.status.as_ref().is_some_and(|status| !status.conditions.is_empty());
    if value.is_empty() && !is_told {
        return new;
    }
    let conditions = &mut new.status.get_or_insert_default().conditions;
    match state_of(name) {
        Some(State::NoEffect) if !value.is_empty() => {
            let why = why_without_effect(name).unwrap_or_default();
            let message = format!("the value is kept, but it has no effect: {why}");
            set_condition(conditions, "configured", false, ("NotSupported", &message), now);
        }
        _ => set_condition(conditions, "configured", true, ("", ""), now),
    }
    new
}

fn target(name: &str, value: &str) -> Option<BackupTarget> {
    (name == backup_target::SETTING).then(|| serde_json::from_str(value).ok()).flatten()
}

/// The Secret first: a failure between the two leaves the keys twice rather than nowhere.
async fn keep_keys(client: &Client, setting: &Setting) -> Result<(), Error> {
    let api: Api<Secret> = Api::namespaced(client.clone(), backup_target::SECRET_NAMESPACE);
    let value = setting.value.as_deref().unwrap_or_default();
    let target = target(backup_target::SETTING, value).unwrap_or_default();
    let kept = api.get_opt(backup_target::SECRET).await?;
    if target.ty != "s3" {
        if kept.is_some() {
            failure::absent_is_none(api.delete(backup_target::SECRET, &DeleteParams::default()).await)?;
        }
        return Ok(());
    }
    let old = kept.as_ref().and_then(|secret| secret.data.clone()).unwrap_or_default();
    let data = secret_data(&target, &old);
    if data == old {
        return Ok(());
    }
    let metadata = ObjectMeta { name: Some(backup_target::SECRET.to_owned()), ..ObjectMeta::default() };
    match kept {
        None => {
            let secret = Secret { metadata, data: Some(data), ..Secret::default() };
            api.create(&patch::made_by_harvester(), &secret).await?;
        }
        Some(secret) => {
            let secret = Secret { data: Some(data), ..secret };
            api.replace(backup_target::SECRET, &patch::made_by_harvester(), &secret).await?;
        }
    }
    Ok(())
}

/// Keys that are not given again stay as they were.
fn secret_data(target: &BackupTarget, old: &BTreeMap<String, ByteString>) -> BTreeMap<String, ByteString> {
    let mut data = old.clone();
    for (name, value) in target.secret() {
        let is_key = ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"].contains(&name);
        if !is_key || target.has_keys() {
            data.insert(name.to_owned(), ByteString(value.into_bytes()));
        }
    }
    data
}

#[cfg(test)]
mod tests {
    use super::*;

    fn setting(value: &str) -> Setting {
        Setting { value: Some(value.to_owned()), ..Setting::default() }
    }

    fn status(setting: &Setting) -> Option<&str> {
        setting.status.as_ref().map(|status| status.conditions[0].status.as_str())
    }

    #[test]
    fn it_is_said_whether_a_value_has_an_effect() {
        let now = Timestamp::UNIX_EPOCH;
        let works = told(&setting("debug"), "log-level", now);
        assert_eq!(status(&works), Some("True"));
        assert_eq!(told(&works, "log-level", Timestamp::now()), works);
        let kept = told(&setting(r#"{"a":"10.0.0.0/24"}"#), "vip-pools", now);
        assert_eq!(status(&kept), Some("False"));
        assert_eq!(status(&told(&Setting { value: None, ..kept }, "vip-pools", now)), Some("True"));
        assert_eq!(status(&told(&setting(""), "log-level", now)), None);
    }

    #[test]
    fn keys_leave_the_setting_and_stay_in_the_secret() {
        let value = r#"{"type":"s3","accessKeyId":"id","secretAccessKey":"key","bucketName":"b","bucketRegion":"r"}"#;
        let new = told(&setting(value), "backup-target", Timestamp::UNIX_EPOCH);
        let stripped = new.value.clone().unwrap();
        assert!(!stripped.contains("\"key\"") && stripped.contains("\"bucketName\":\"b\""), "{stripped}");
        assert_eq!(told(&new, "backup-target", Timestamp::now()), new);

        let given = secret_data(&target("backup-target", value).unwrap(), &BTreeMap::new());
        assert_eq!(given["AWS_SECRET_ACCESS_KEY"].0, b"key");
        let again = secret_data(&target("backup-target", &stripped).unwrap(), &given);
        assert_eq!(again, given);
    }
}
