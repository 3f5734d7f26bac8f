//! Local users, kept as Secrets of type `croft.io/user` in kube-system.
//!
//! `user-<name>` holds `username`, `password-hash` (argon2id, PHC format) and `groups` (separated by commas).

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use base64::{Engine, prelude::BASE64_STANDARD};
use croft_meta::object;
use jiff::Timestamp;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::Semaphore;

use super::USERS_NAMESPACE;
use super::memo::Memo;
use crate::cache::{Cache, Collection};
use crate::user::UserInfo;

const SECRET_TYPE: &str = "croft.io/user";
/// How long a right password need not be hashed again. A new hash in the Secret counts at once.
const VERIFIED_TTL: Duration = Duration::from_mins(1);
/// Each check takes a core and 19 MiB for tens of milliseconds; more at a time would only be a way to attack us.
const CHECKS_AT_A_TIME: usize = 2;
/// So many wrong passwords in a row are forgiven; after that the wait doubles with each.
const FREE_FAILURES: u32 = 5;
const MAX_WAIT_SECONDS: i64 = 60;
/// Failures this old are forgotten.
const FORGET_SECONDS: i64 = 900;
/// So many names are watched for failures.
const MAX_WATCHED: usize = 10_000;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum LoginError {
    Wrong(String),
    Throttled { retry_after_seconds: u32 },
}

#[derive(Debug)]
pub(super) struct Passwords {
    secrets: Arc<Collection>,
    verified: Memo<()>,
    failures: Mutex<HashMap<String, Failures>>,
    slots: Semaphore,
}

#[derive(Clone, Copy, Debug)]
struct Failures {
    count: u32,
    last: Timestamp,
}

struct LocalUser {
    user: UserInfo,
    hash: String,
}

impl Passwords {
    pub(super) fn new(cache: &Cache) -> Result<Self, getrandom::Error> {
        Ok(Self {
            secrets: cache.collection("core/secrets"),
            verified: Memo::new(VERIFIED_TTL)?,
            failures: Mutex::default(),
            slots: Semaphore::new(CHECKS_AT_A_TIME),
        })
    }

    pub(super) async fn login(&self, name: &str, password: String, now: Timestamp) -> Result<UserInfo, LoginError> {
        let wrong = || LoginError::Wrong(format!("wrong password for user {name:?}, or no such user"));
        let found = self.find(name);
        let hash = found.as_ref().map(|found| found.hash.clone());
        let digest = self.verified.digest(&[
            name.as_bytes(),
            hash.as_deref().unwrap_or_default().as_bytes(),
            password.as_bytes(),
        ]);
        // The digest is of the hash too, so it can only be known for a user that exists with that hash.
        let known =
            || found.as_ref().filter(|_| self.verified.get(&digest, now).is_some()).map(|found| found.user.clone());
        if let Some(user) = known() {
            return Ok(user);
        }
        // Never closed, so always granted.
        let _slot = self.slots.acquire().await.map_err(|_| wrong())?;
        // Those in the queue before us may have found out, or used up the patience.
        if let Some(user) = known() {
            return Ok(user);
        }
        self.check_patience(name, now)?;
        let checked = tokio::task::spawn_blocking(move || {
            // A name that does not exist costs as much time as one that does.
            let exists = hash.is_some();
            let hash = hash.unwrap_or_else(|| stand_in_hash().to_owned());
            croft_pki::password::verify(&password, &hash) && exists
        });
        let is_right = checked.await.unwrap_or(false);
        match found {
            Some(found) if is_right => {
                self.failures.lock().remove(name);
                self.verified.put(digest, (), now);
                Ok(found.user)
            }
            _ => {
                self.remember_failure(name, now);
                Err(wrong())
            }
        }
    }

    fn find(&self, name: &str) -> Option<LocalUser> {
        let secret = self.secrets.get(&format!("{USERS_NAMESPACE}/user-{name}"))?.json();
        if secret["type"] != SECRET_TYPE || object::deletion_timestamp(&secret).is_some() {
            return None;
        }
        // The name in the data is the user's; the Secret's only finds it.
        if secret_text(&secret, "username").as_deref() != Some(name) {
            return None;
        }
        let groups = groups(&secret_text(&secret, "groups").unwrap_or_default());
        let user =
            UserInfo { name: name.to_owned(), uid: object::uid(&secret).to_owned(), groups, ..UserInfo::default() };
        Some(LocalUser { user, hash: secret_text(&secret, "password-hash")? })
    }

    fn check_patience(&self, name: &str, now: Timestamp) -> Result<(), LoginError> {
        let failures = self.failures.lock();
        let Some(Failures { count, last }) = failures.get(name) else { return Ok(()) };
        let Some(excess) = count.checked_sub(FREE_FAILURES) else { return Ok(()) };
        let wait = 1_i64.checked_shl(excess).map_or(MAX_WAIT_SECONDS, |wait| wait.clamp(1, MAX_WAIT_SECONDS));
        let left = wait - now.duration_since(*last).as_secs();
        if left <= 0 {
            return Ok(());
        }
        Err(LoginError::Throttled { retry_after_seconds: u32::try_from(left).unwrap_or(u32::MAX) })
    }

    fn remember_failure(&self, name: &str, now: Timestamp) {
        let mut failures = self.failures.lock();
        let is_old = |failures: &Failures| now.duration_since(failures.last).as_secs() > FORGET_SECONDS;
        if failures.len() >= MAX_WATCHED {
            failures.retain(|_, failures| !is_old(failures));
        }
        // Full of names that somebody makes up: the slots still bound how fast anyone can guess.
        if failures.len() >= MAX_WATCHED && !failures.contains_key(name) {
            return;
        }
        let entry = failures.entry(name.to_owned()).or_insert(Failures { count: 0, last: now });
        if is_old(entry) {
            entry.count = 0;
        }
        *entry = Failures { count: entry.count.saturating_add(1), last: now };
    }
}

/// A hash of no password, made with the same parameters as real ones.
fn stand_in_hash() -> &'static str {
    static HASH: OnceLock<String> = OnceLock::new();
    // Without random numbers nothing can be hashed; an unreadable hash fits no password either.
    HASH.get_or_init(|| croft_pki::password::hash("").unwrap_or_default())
}

/// One value of a Secret's `data`.
pub(super) fn secret_text(secret: &Value, key: &str) -> Option<String> {
    let encoded = secret.get("data")?.get(key)?.as_str()?;
    String::from_utf8(BASE64_STANDARD.decode(encoded).ok()?).ok()
}

pub(super) fn groups(list: &str) -> Vec<String> {
    list.split(',').map(str::trim).filter(|group| !group.is_empty()).map(str::to_owned).collect()
}
