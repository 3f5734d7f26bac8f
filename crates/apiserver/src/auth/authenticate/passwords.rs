//! Local users, kept as Secrets of type `croft.io/user` in kube-system.
//!
//! `user-<name>` holds `username`, `password-hash` (argon2id, PHC format), `groups` (separated by commas) and, until the
//! first password was changed, `must-change-password`.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use base64::{Engine, prelude::BASE64_STANDARD};
use croft_meta::{ApiError, object};
use jiff::Timestamp;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::Semaphore;

use super::USERS_NAMESPACE;
use super::lockouts::{Lockouts, LoginLimits};
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
/// The same from one address, behind which there may be many people.
const FREE_FAILURES_OF_ADDRESS: u32 = 30;
const MAX_WAIT_SECONDS: i64 = 60;
/// Failures this old are forgotten.
const FORGET_SECONDS: i64 = 900;
/// So many names are watched for failures.
const MAX_WATCHED: usize = 10_000;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LoginError {
    Wrong(String),
    Throttled {
        retry_after_seconds: u32,
    },
    /// Nobody can log in by this name for now, whether there is such a user or not.
    Locked {
        retry_after_seconds: u32,
    },
}

impl LoginError {
    /// What the client is told, if it is to wait.
    pub(crate) fn refusal(&self) -> Option<ApiError> {
        match self {
            Self::Wrong(_) => None,
            Self::Throttled { retry_after_seconds } => {
                Some(ApiError::too_many_requests("too many failed logins, try again later", *retry_after_seconds))
            }
            Self::Locked { retry_after_seconds } => Some(ApiError::too_many_requests(
                "this name is locked after too many failed logins, try again later",
                *retry_after_seconds,
            )),
        }
    }
}

#[derive(Debug)]
pub(super) struct Passwords {
    secrets: Arc<Collection>,
    pub(super) lockouts: Lockouts,
    verified: Memo<()>,
    failures: Mutex<HashMap<Watched, Failures>>,
    slots: Semaphore,
}

#[derive(Clone, Copy, Debug)]
struct Failures {
    count: u32,
    last: Timestamp,
}

/// A user that logs in with a password.
#[derive(Clone, Debug)]
pub(crate) struct LocalUser {
    pub(crate) user: UserInfo,
    pub(crate) must_change_password: bool,
    pub(crate) created: String,
    hash: String,
}

/// Whose failures are counted: a name's and an address's, each on its own.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Watched {
    Name(String),
    Address(IpAddr),
}

impl Watched {
    fn free_failures(&self) -> u32 {
        match self {
            Self::Name(_) => FREE_FAILURES,
            Self::Address(_) => FREE_FAILURES_OF_ADDRESS,
        }
    }
}

impl Passwords {
    pub(super) fn new(cache: &Cache, limits: LoginLimits) -> Result<Self, getrandom::Error> {
        Ok(Self {
            secrets: cache.collection("core/secrets"),
            lockouts: Lockouts::new(cache, limits),
            verified: Memo::new(VERIFIED_TTL)?,
            failures: Mutex::default(),
            slots: Semaphore::new(CHECKS_AT_A_TIME),
        })
    }

    pub(super) async fn login(
        &self,
        name: &str,
        password: String,
        address: Option<IpAddr>,
        now: Timestamp,
    ) -> Result<UserInfo, LoginError> {
        let watched: Vec<Watched> =
            std::iter::once(Watched::Name(name.to_owned())).chain(address.map(Watched::Address)).collect();
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
        // Nothing is checked meanwhile: guesses find out nothing.
        if let Some(retry_after_seconds) = self.lockouts.seconds_left(name, now) {
            return Err(LoginError::Locked { retry_after_seconds });
        }
        watched.iter().try_for_each(|who| self.check_patience(who, now))?;
        let checked = tokio::task::spawn_blocking(move || {
            // A name that does not exist costs as much time as one that does.
            let exists = hash.is_some();
            let hash = hash.unwrap_or_else(|| stand_in_hash().to_owned());
            croft_pki::password::verify(&password, &hash) && exists
        });
        let is_right = checked.await.unwrap_or(false);
        match found {
            Some(found) if is_right => {
                // Not the address's: a right password of one's own would hide guesses at others'.
                self.failures.lock().remove(&watched[0]);
                self.verified.put(digest, (), now);
                Ok(found.user)
            }
            _ => {
                for who in &watched {
                    let count = self.remember_failure(who, now);
                    if matches!(who, Watched::Name(_)) && self.lockouts.failed(name, count, now) {
                        // The lock is the wait; after it, counting begins anew.
                        self.failures.lock().remove(who);
                    }
                }
                Err(wrong())
            }
        }
    }

    fn find(&self, name: &str) -> Option<LocalUser> {
        local_user(&self.secrets, name)
    }

    fn check_patience(&self, who: &Watched, now: Timestamp) -> Result<(), LoginError> {
        let failures = self.failures.lock();
        let Some(Failures { count, last }) = failures.get(who) else { return Ok(()) };
        let Some(excess) = count.checked_sub(who.free_failures()) else { return Ok(()) };
        let wait = 1_i64.checked_shl(excess).map_or(MAX_WAIT_SECONDS, |wait| wait.clamp(1, MAX_WAIT_SECONDS));
        let left = wait - now.duration_since(*last).as_secs();
        if left <= 0 {
            return Ok(());
        }
        Err(LoginError::Throttled { retry_after_seconds: u32::try_from(left).unwrap_or(u32::MAX) })
    }

    /// How many there have been in a row.
    fn remember_failure(&self, who: &Watched, now: Timestamp) -> u32 {
        let mut failures = self.failures.lock();
        let is_old = |failures: &Failures| now.duration_since(failures.last).as_secs() > FORGET_SECONDS;
        if failures.len() >= MAX_WATCHED {
            failures.retain(|_, failures| !is_old(failures));
        }
        // Full of names that somebody makes up: the slots still bound how fast anyone can guess.
        if failures.len() >= MAX_WATCHED && !failures.contains_key(who) {
            return 0;
        }
        let entry = failures.entry(who.clone()).or_insert(Failures { count: 0, last: now });
        if is_old(entry) {
            entry.count = 0;
        }
        *entry = Failures { count: entry.count.saturating_add(1), last: now };
        entry.count
    }
}

/// The local user of this name.
pub(super) fn local_user(secrets: &Collection, name: &str) -> Option<LocalUser> {
    read_user(&secrets.get(&format!("{USERS_NAMESPACE}/user-{name}"))?.json(), name)
}

/// All of them.
pub(super) fn local_users(secrets: &Collection) -> Vec<LocalUser> {
    let secrets = secrets.list(USERS_NAMESPACE);
    let named = secrets.iter().filter_map(|secret| Some((secret.name().strip_prefix("user-")?, secret)));
    named.filter_map(|(name, secret)| read_user(&secret.json(), name)).collect()
}

fn read_user(secret: &Value, name: &str) -> Option<LocalUser> {
    if secret["type"] != SECRET_TYPE || object::deletion_timestamp(secret).is_some() {
        return None;
    }
    // The name in the data is the user's; the Secret's only finds it.
    if secret_text(secret, "username").as_deref() != Some(name) {
        return None;
    }
    let groups = groups(&secret_text(secret, "groups").unwrap_or_default());
    let user = UserInfo { name: name.to_owned(), uid: object::uid(secret).to_owned(), groups, ..UserInfo::default() };
    Some(LocalUser {
        user,
        must_change_password: secret_text(secret, "must-change-password").as_deref() == Some("true"),
        created: secret.pointer("/metadata/creationTimestamp").and_then(Value::as_str).unwrap_or_default().to_owned(),
        hash: secret_text(secret, "password-hash")?,
    })
}

/// A hash of no password, made with the same parameters as real ones.
fn stand_in_hash() -> &'static str {
    static HASH: OnceLock<String> = OnceLock::new();
    // Without random numbers nothing can be hashed; an unreadable hash fits no password either.
    HASH.get_or_init(|| croft_pki::password::hash("").unwrap_or_default())
}

/// One value of a Secret's `data`.
pub(crate) fn secret_text(secret: &Value, key: &str) -> Option<String> {
    let encoded = secret.get("data")?.get(key)?.as_str()?;
    String::from_utf8(BASE64_STANDARD.decode(encoded).ok()?).ok()
}

pub(super) fn groups(list: &str) -> Vec<String> {
    list.split(',').map(str::trim).filter(|group| !group.is_empty()).map(str::to_owned).collect()
}
