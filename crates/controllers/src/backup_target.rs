//! The backup target: whether it can be used, told by the setting and by Longhorn's BackupTarget `default`.
//!
//! It is looked at whenever the setting changes and every so often after that, so that one that vanishes is told of and one
//! that comes back is used again without anybody doing anything. `sync` shows what is in it, `sweep` removes what was left behind.

mod sweep;
mod sync;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use croft_api::harvester::backup_target::{self, BackupTarget as Wanted};
use croft_api::harvester::{BackupPlace, Setting, set_condition};
use croft_api::longhorn::{self, BackupTarget, BackupTargetSpec, BackupTargetStatus, TargetCondition};
use croft_backup::{BackupStore, Keys, Opener, Owner, target};
use croft_meta::Chain;
use croft_meta::time::format_seconds;
use croft_reconcile::failure::{absent_is_none, is_conflict};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Namespace, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::api::Patch;
use kube::{Api, Client};
use parking_lot::Mutex;
use serde_json::json;
use tokio::sync::{Notify, OnceCell};
use tokio_util::sync::CancellationToken;

use crate::patch::{self, as_harvester, made_by_harvester};
use crate::virtual_machine::view::this_second;

/// As long as Harvester waits for an answer.
const PATIENCE: Duration = Duration::from_secs(8);
/// How often a target is looked at if nobody says.
const INTERVAL: Duration = Duration::from_mins(1);
const LONGEST_INTERVAL: Duration = Duration::from_mins(5);
const FIRST_RETRY: Duration = Duration::from_secs(1);
const NOT_SET: &str = "backup target is not set";

/// Shared: clones are the same.
#[derive(Clone)]
pub(crate) struct Target(Arc<Inner>);

struct Inner {
    client: Client,
    opener: OnceCell<Opener>,
    changed: Notify,
    /// It was found for the first time.
    is_new: Notify,
    /// The value that was seen last.
    seen: Mutex<Option<String>>,
}

/// The target as it is set.
#[derive(Clone, Debug)]
pub(crate) struct Open {
    pub(crate) store: BackupStore,
    pub(crate) url: String,
    pub(crate) place: BackupPlace,
    pub(crate) keys: Keys,
}

impl Target {
    pub(crate) fn new(client: Client) -> Self {
        Self(Arc::new(Inner {
            client,
            opener: OnceCell::new(),
            changed: Notify::new(),
            is_new: Notify::new(),
            seen: Mutex::default(),
        }))
    }

    /// Whether this value is another than the last: what is said of the target is no news of it.
    pub(crate) fn is_news(&self, value: &str) -> bool {
        let mut seen = self.0.seen.lock();
        let is_news = seen.as_deref() != Some(value);
        *seen = Some(value.to_owned());
        is_news
    }

    pub(crate) fn forget(&self) {
        *self.0.seen.lock() = None;
    }

    /// Has it looked at now.
    pub(crate) fn changed(&self) {
        self.0.changed.notify_one();
    }

    pub(crate) async fn run(self, stop: CancellationToken) {
        let mut retry = FIRST_RETRY;
        let mut is_news = true;
        loop {
            let wait = match self.look(is_news).await {
                Ok(Look { is_good: true, interval }) => {
                    (retry, is_news) = (FIRST_RETRY, false);
                    interval
                }
                outcome => {
                    if let Err(error) = &outcome {
                        tracing::warn!(error = %Chain(error), "the backup target cannot be looked after");
                    }
                    let wait = retry.min(outcome.map_or(INTERVAL, |look| look.interval));
                    retry = (retry * 2).min(INTERVAL);
                    wait
                }
            };
            tokio::select! {
                () = stop.cancelled() => return,
                () = self.0.changed.notified() => (retry, is_news) = (FIRST_RETRY, true),
                () = tokio::time::sleep(wait) => {}
            }
        }
    }

    /// Keeps it clean.
    pub(crate) async fn sweep(self, stop: CancellationToken) {
        sweep::run(self, stop).await;
    }

    /// The target that is set. The inner error is for the user.
    pub(crate) async fn open(&self) -> Result<Result<Open, String>, kube::Error> {
        let wanted = self.0.setting().await?.map(|setting| wanted(&setting)).unwrap_or_default();
        self.0.open(&wanted).await
    }

    /// What is in it is shown when it is new, and as often as the setting says.
    async fn look(&self, is_news: bool) -> Result<Look, kube::Error> {
        let inner = &self.0;
        let Some(setting) = inner.setting().await? else { return Ok(Look { is_good: true, interval: INTERVAL }) };
        let wanted = wanted(&setting);
        let interval = u64::try_from(wanted.refresh_interval_in_seconds).map_or(INTERVAL, Duration::from_secs);
        let interval = if interval.is_zero() { INTERVAL } else { interval.min(LONGEST_INTERVAL) };
        if wanted.has_keys() {
            // Its keys are on their way into the Secret; whoever moves them calls.
            return Ok(Look { is_good: false, interval });
        }
        let object = inner.shown(&wanted).await?;
        if !wanted.is_set() {
            inner.tell(&object, &setting, Err("")).await?;
            return Ok(Look { is_good: true, interval: LONGEST_INTERVAL });
        }
        let found = match inner.open(&wanted).await? {
            Ok(open) => checked(&open).await.map(|()| open),
            Err(why) => Err(why),
        };
        inner.tell(&object, &setting, found.as_ref().map(|_| ()).map_err(String::as_str)).await?;
        if let Ok(open) = &found
            && (is_news || wanted.refresh_interval_in_seconds > 0)
            && let Err(error) = sync::sync(&inner.client, open, is_news).await
        {
            sync::complain(&error);
        }
        if found.is_ok() && is_news {
            inner.is_new.notify_one();
        }
        Ok(Look { is_good: found.is_ok(), interval })
    }
}

struct Look {
    is_good: bool,
    interval: Duration,
}

async fn checked(open: &Open) -> Result<(), String> {
    match tokio::time::timeout(PATIENCE, target::check(open.store.target())).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) => Err(Chain(&error).to_string()),
        Err(_) => Err(format!("the backup target does not answer within {} s", PATIENCE.as_secs())),
    }
}

fn wanted(setting: &Setting) -> Wanted {
    serde_json::from_str(setting.effective()).unwrap_or_default()
}

impl Inner {
    async fn setting(&self) -> Result<Option<Setting>, kube::Error> {
        let api: Api<Setting> = Api::all(self.client.clone());
        absent_is_none(api.get(backup_target::SETTING).await)
    }

    async fn open(&self, wanted: &Wanted) -> Result<Result<Open, String>, kube::Error> {
        if !wanted.is_set() {
            return Ok(Err(NOT_SET.to_owned()));
        }
        let opener = match self.opener().await? {
            Ok(opener) => opener,
            Err(error) => return Ok(Err(Chain(&error).to_string())),
        };
        let keys = match Keys::from_secret(&self.entries(backup_target::ENCRYPTION_SECRET).await?) {
            Ok(keys) => keys,
            Err(error) => return Ok(Err(format!("Secret {}: {}", backup_target::ENCRYPTION_SECRET, Chain(&error)))),
        };
        let (url, secret) = (wanted.url(), self.entries(backup_target::SECRET).await?);
        let text = |value: Vec<u8>| String::from_utf8_lossy(&value).into_owned();
        let secret = secret.into_iter().map(|(key, value)| (key, text(value))).collect();
        let opened = opener.store(&url, &secret);
        let open = |store| Open { store, url, place: wanted.place(), keys };
        Ok(opened.map(open).map_err(|error| Chain(&error).to_string()))
    }

    /// Locks in a target say whose they are: this cluster's, and of this process alone.
    async fn opener(&self) -> Result<Result<&Opener, croft_backup::Error>, kube::Error> {
        if let Some(opener) = self.opener.get() {
            return Ok(Ok(opener));
        }
        let namespaces: Api<Namespace> = Api::all(self.client.clone());
        let cluster = namespaces.get("kube-system").await?.metadata.uid.unwrap_or_default();
        Ok(self.opener.get_or_try_init(async || Owner::new(format!("{cluster}/controllers")).map(Opener::new)).await)
    }

    /// Of a Secret; none if it is not there.
    async fn entries(&self, name: &str) -> Result<BTreeMap<String, Vec<u8>>, kube::Error> {
        let api: Api<Secret> = Api::namespaced(self.client.clone(), backup_target::SECRET_NAMESPACE);
        let data = absent_is_none(api.get(name).await)?.and_then(|secret| secret.data).unwrap_or_default();
        Ok(data.into_iter().map(|(key, value)| (key, value.0)).collect())
    }

    fn targets(&self) -> Api<BackupTarget> {
        Api::namespaced(self.client.clone(), longhorn::NAMESPACE)
    }

    /// Longhorn's object, as the setting has it.
    async fn shown(&self, wanted: &Wanted) -> Result<BackupTarget, kube::Error> {
        let spec = BackupTargetSpec {
            backup_target_url: wanted.url(),
            credential_secret: if wanted.ty == "s3" { backup_target::SECRET.to_owned() } else { String::new() },
            poll_interval: Some(format!("{}s", wanted.refresh_interval_in_seconds.max(0))),
        };
        let api = self.targets();
        let Some(old) = absent_is_none(api.get(longhorn::TARGET).await)? else {
            let metadata = ObjectMeta { name: Some(longhorn::TARGET.to_owned()), ..ObjectMeta::default() };
            let new = BackupTarget { metadata, spec, status: None };
            return match api.create(&made_by_harvester(), &new).await {
                Err(error) if is_conflict(&error) => api.get(longhorn::TARGET).await,
                made => made,
            };
        };
        let new = BackupTarget { spec, ..old.clone() };
        match patch::guarded(&old, &new) {
            None => Ok(old),
            Some(change) => api.patch(longhorn::TARGET, &as_harvester(), &Patch::Merge(&change)).await,
        }
    }

    /// Says what was found. Without a target there is nothing wrong either.
    async fn tell(&self, object: &BackupTarget, setting: &Setting, found: Result<(), &str>) -> Result<(), kube::Error> {
        let status = status(object.status.as_ref(), found, this_second());
        if object.status.as_ref() != Some(&status) {
            let was = object.status.as_ref().is_some_and(|status| status.available);
            match found {
                Ok(()) if !was => tracing::info!(url = object.spec.backup_target_url, "the backup target is there"),
                Err(why) if was => {
                    tracing::warn!(url = object.spec.backup_target_url, why, "the backup target cannot be used");
                }
                _ => {}
            }
            let change = Patch::Merge(json!({ "status": status }));
            absent_is_none(self.targets().patch_status(longhorn::TARGET, &as_harvester(), &change).await)?;
        }
        let new = told(setting, found, Timestamp::now());
        let Some(change) = patch::guarded(setting, &new) else { return Ok(()) };
        let api: Api<Setting> = Api::all(self.client.clone());
        match api.patch(backup_target::SETTING, &as_harvester(), &Patch::Merge(&change)).await {
            // Somebody has changed it, and it is looked at again for that.
            Err(error) if is_conflict(&error) => Ok(()),
            written => written.map(drop),
        }
    }
}

/// The condition has Longhorn's name: it holds while the target cannot be used.
fn status(old: Option<&BackupTargetStatus>, found: Result<(), &str>, now: Timestamp) -> BackupTargetStatus {
    let message = found.err().unwrap_or_default();
    let value = if message.is_empty() { "False" } else { "True" };
    let before = old.and_then(|old| old.conditions.iter().find(|condition| condition.type_ == "Unavailable"));
    let since = before.filter(|before| before.status == value).map(|before| before.last_transition_time.clone());
    let condition = TargetCondition {
        type_: "Unavailable".to_owned(),
        status: value.to_owned(),
        last_transition_time: since.unwrap_or_else(|| format_seconds(now)),
        reason: if message.is_empty() { String::new() } else { "Unavailable".to_owned() },
        message: message.to_owned(),
        ..TargetCondition::default()
    };
    let last = if found.is_ok() { Some(Time(now)) } else { old.and_then(|old| old.last_synced_at.clone()) };
    BackupTargetStatus { available: found.is_ok(), conditions: vec![condition], last_synced_at: last }
}

/// The setting with what was found.
fn told(setting: &Setting, found: Result<(), &str>, now: Timestamp) -> Setting {
    let mut new = setting.clone();
    let is_told = setting.status.as_ref().is_some_and(|status| !status.conditions.is_empty());
    if !wanted(setting).is_set() && !is_told {
        return new;
    }
    let conditions = &mut new.status.get_or_insert_default().conditions;
    match found.err().filter(|why| !why.is_empty()) {
        None => set_condition(conditions, "configured", true, ("", ""), now),
        Some(why) => {
            let message = format!("failed to connect to backup target, reason: {why}");
            set_condition(conditions, "configured", false, ("Unavailable", &message), now);
        }
    }
    new
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_that_vanishes_and_comes_back_is_told_of() {
        let (one, two) = (Timestamp::UNIX_EPOCH, Timestamp::from_second(60).unwrap());
        let good = status(None, Ok(()), one);
        assert!(good.available && good.conditions[0].status == "False");
        let bad = status(Some(&good), Err("gone"), two);
        assert!(!bad.available && bad.conditions[0].message == "gone");
        assert_eq!(bad.last_synced_at, good.last_synced_at);
        let still = status(Some(&bad), Err("gone"), Timestamp::from_second(90).unwrap());
        assert_eq!(still, bad);
        assert!(status(Some(&bad), Ok(()), two).available);
        let none = status(None, Err(""), one);
        assert!(!none.available && none.conditions[0].status == "False");
    }

    #[test]
    fn the_setting_says_whether_it_works() {
        let now = Timestamp::UNIX_EPOCH;
        let value = r#"{"type":"directory","endpoint":"file:///x"}"#;
        let set = Setting { value: Some(value.to_owned()), ..Setting::default() };
        let bad = told(&set, Err("it does not exist"), now);
        let condition = &bad.status.as_ref().unwrap().conditions[0];
        assert_eq!((condition.status.as_str(), condition.reason.as_deref()), ("False", Some("Unavailable")));
        assert!(condition.message.as_ref().unwrap().contains("reason: it does not exist"));
        let good = told(&bad, Ok(()), now);
        assert_eq!(good.status.unwrap().conditions[0].status, "True");
        let unset = Setting::default();
        assert_eq!(told(&unset, Err(""), now), unset);
        assert_eq!(told(&Setting { value: None, ..bad }, Err(""), now).status.unwrap().conditions[0].status, "True");
    }
}
