//! Names that nobody can log in by for a while, since too many passwords for them were wrong.
//!
//! They are in the Secret `login-lockouts` of kube-system, of type `croft.io/lockouts`, so that a restart does not end them and
//! every server on the store knows them. A key is a hash of the name, since people type passwords where names belong; its value
//! is until when, and how often in a row. Names without a user are locked all the same: that one is locked tells nothing.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use base64::{Engine, prelude::BASE64_STANDARD};
use croft_meta::time;
use croft_pki::client_cert::hex;
use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};
use tokio::sync::Notify;

use super::USERS_NAMESPACE;
use super::passwords::{local_users, secret_text};
use crate::cache::{Cache, Collection};

pub(crate) const SECRET_TYPE: &str = "croft.io/lockouts";
pub(crate) const NAME: &str = "login-lockouts";
/// The longest that a name is locked; and so long after its end, a lock still makes the next one longer.
const LONGEST: SignedDuration = SignedDuration::from_hours(24);
/// So many names that are nobody's are kept, and all that are. Somebody who has the time to have more locked learns that some
/// are not.
const MOST: usize = 1_000;

/// When wrong passwords lock a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoginLimits {
    /// Wrong passwords in a row, less than a quarter of an hour apart; 0 never locks.
    pub attempts: u32,
    /// How long the first time. It doubles with each time in a row, up to a day.
    pub lock: Duration,
}

impl Default for LoginLimits {
    fn default() -> Self {
        Self { attempts: 10, lock: Duration::from_mins(15) }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Lock {
    until: Timestamp,
    /// How many came before it.
    level: u32,
}

impl Lock {
    fn parse(text: &str) -> Option<Self> {
        let (until, level) = text.split_once(' ')?;
        Some(Self { until: time::parse(until).ok()?, level: level.parse().ok()? })
    }

    fn text(self) -> String {
        format!("{} {}", time::format_seconds(self.until), self.level)
    }
}

#[derive(Debug)]
pub(crate) struct Lockouts {
    limits: LoginLimits,
    secrets: Arc<Collection>,
    /// Those that are not in the store yet.
    pending: Mutex<HashMap<String, Lock>>,
    has_pending: Notify,
}

impl Lockouts {
    pub(super) fn new(cache: &Cache, limits: LoginLimits) -> Self {
        let secrets = cache.collection("core/secrets");
        Self { limits, secrets, pending: Mutex::default(), has_pending: Notify::new() }
    }

    /// For how many seconds the name is locked.
    pub(super) fn seconds_left(&self, name: &str, now: Timestamp) -> Option<u32> {
        let left = self.until(name)?.duration_since(now).as_secs();
        u32::try_from(left).ok().map(|left| left + 1).filter(|_| left >= 0)
    }

    /// Until when the name is, or was, locked.
    pub(crate) fn until(&self, name: &str) -> Option<Timestamp> {
        self.find(&key(name)).map(|lock| lock.until)
    }

    fn find(&self, key: &str) -> Option<Lock> {
        if let Some(lock) = self.pending.lock().get(key) {
            return Some(*lock);
        }
        let secret = self.secrets.get(&format!("{USERS_NAMESPACE}/{NAME}"))?.json();
        if secret["type"] != SECRET_TYPE {
            return None;
        }
        Lock::parse(&secret_text(&secret, key)?)
    }

    /// So many wrong passwords in a row: locks the name if that is too many, and says whether it is.
    pub(super) fn failed(&self, name: &str, is_users: bool, count: u32, now: Timestamp) -> bool {
        if self.limits.attempts == 0 || count < self.limits.attempts {
            return false;
        }
        let key = key(name);
        let before = self.find(&key).filter(|lock| now.duration_since(lock.until) < LONGEST);
        let level = before.map_or(0, |lock| lock.level.saturating_add(1));
        let first = SignedDuration::try_from(self.limits.lock).unwrap_or(LONGEST);
        let factor = 1_i32.checked_shl(level.min(30)).unwrap_or(i32::MAX);
        let length = first.checked_mul(factor).unwrap_or(LONGEST).min(LONGEST);
        let Ok(until) = now.checked_add(length) else { return false };
        tracing::warn!(
            user = is_users.then_some(name),
            seconds = length.as_secs(),
            "too many wrong passwords: nobody can log in by this name"
        );
        let mut pending = self.pending.lock();
        if is_users || pending.len() < MOST {
            pending.insert(key, Lock { until, level });
        }
        self.has_pending.notify_one();
        true
    }

    /// Waits for something to write.
    pub(crate) async fn changed(&self) {
        self.has_pending.notified().await;
    }

    /// The Secret's data with what is new, and without what is long over. `written` is to be told what was.
    pub(crate) fn merge(&self, data: &Value, now: Timestamp) -> (Value, Written) {
        let pending: Vec<(String, Lock)> = self.pending.lock().iter().map(|(key, lock)| (key.clone(), *lock)).collect();
        let text = |value: &Value| String::from_utf8(BASE64_STANDARD.decode(value.as_str()?).ok()?).ok();
        let known = data.as_object().into_iter().flatten();
        let known = known.filter_map(|(key, value)| Some((key.clone(), Lock::parse(&text(value)?)?)));
        let mut all: HashMap<String, Lock> = known.collect();
        all.extend(pending.iter().cloned());
        let users: HashSet<String> = local_users(&self.secrets).iter().map(|user| key(&user.user.name)).collect();
        let lasting = all.into_iter().filter(|(_, lock)| now.duration_since(lock.until) < LONGEST);
        let (users, mut others): (Vec<_>, Vec<_>) = lasting.partition(|(key, _)| users.contains(key));
        // Those that end first make room.
        others.sort_by_key(|(_, lock)| std::cmp::Reverse(lock.until));
        others.truncate(MOST);
        let data: Map<String, Value> = users
            .into_iter()
            .chain(others)
            .map(|(key, lock)| (key, json!(BASE64_STANDARD.encode(lock.text()))))
            .collect();
        (Value::Object(data), Written(pending))
    }

    /// What is in the store need not be remembered here; an administrator may remove it there.
    pub(crate) fn written(&self, written: &Written) {
        let mut pending = self.pending.lock();
        for (key, lock) in &written.0 {
            if pending.get(key) == Some(lock) {
                pending.remove(key);
            }
        }
    }
}

/// What a write has taken over.
#[derive(Debug)]
pub(crate) struct Written(Vec<(String, Lock)>);

fn key(name: &str) -> String {
    hex(&Sha256::digest(name.as_bytes())[..20])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::testing::TestCache;

    #[tokio::test]
    async fn a_lock_doubles_up_to_a_day_and_is_forgotten_after_another() {
        let cache = TestCache::new([]).await;
        let lockouts = Lockouts::new(&cache, LoginLimits::default());
        let mut now = Timestamp::from_second(1_000_000).unwrap();
        assert!(!lockouts.failed("ann", true, 9, now));
        assert_eq!(lockouts.seconds_left("ann", now), None);
        for minutes in [15, 30, 60, 120, 240, 480, 960, 1440, 1440] {
            assert!(lockouts.failed("ann", true, 10, now));
            assert_eq!(lockouts.seconds_left("ann", now), Some(minutes * 60 + 1));
            assert_eq!(lockouts.seconds_left("bob", now), None);
            now = lockouts.until("ann").unwrap() + SignedDuration::from_secs(1);
            assert_eq!(lockouts.seconds_left("ann", now), None);
        }
        assert!(lockouts.failed("ann", true, 10, now + SignedDuration::from_hours(25)));
        let end = now + SignedDuration::from_hours(25) + SignedDuration::from_mins(15);
        assert_eq!(lockouts.until("ann"), Some(end));
        let off = Lockouts::new(&cache, LoginLimits { attempts: 0, ..LoginLimits::default() });
        assert!(!off.failed("ann", true, 1_000, now));
    }

    #[tokio::test]
    async fn what_is_written_is_read_back_and_old_locks_go() {
        let cache = TestCache::new([]).await;
        let lockouts = Lockouts::new(&cache, LoginLimits::default());
        let now = Timestamp::from_second(1_000_000).unwrap();
        assert!(lockouts.failed("ann", true, 10, now));
        let until = lockouts.until("ann");
        let old = Lock { until: now - SignedDuration::from_hours(25), level: 3 };
        let before = json!({"00ff": BASE64_STANDARD.encode(old.text()), "broken": "???"});
        let (data, written) = lockouts.merge(&before, now);
        assert_eq!(data.as_object().unwrap().keys().collect::<Vec<_>>(), [&key("ann")]);
        assert!(!data.to_string().contains("ann"));
        lockouts.written(&written);
        assert_eq!(lockouts.until("ann"), None, "it is for the store to know");
        let mut secret = crate::auth::testing::object("Secret", USERS_NAMESPACE, NAME, "uid");
        secret["type"] = json!(SECRET_TYPE);
        secret["data"] = data;
        cache.put(&secret).await;
        assert_eq!(lockouts.until("ann"), until);
    }

    #[tokio::test]
    async fn locks_of_names_that_are_nobodys_do_not_crowd_out_those_of_users() {
        let mut ann = crate::auth::testing::object("Secret", USERS_NAMESPACE, "user-ann", "uid");
        ann["type"] = json!("croft.io/user");
        ann["data"] = json!({"username": BASE64_STANDARD.encode("ann"), "password-hash": BASE64_STANDARD.encode("x")});
        let cache = TestCache::new([ann]).await;
        let lockouts = Lockouts::new(&cache, LoginLimits::default());
        let now = Timestamp::from_second(1_000_000).unwrap();
        for made_up in 0..=MOST {
            assert!(lockouts.failed(&format!("made-up-{made_up}"), false, 10, now + SignedDuration::from_secs(60)));
        }
        assert!(lockouts.failed("ann", true, 10, now));
        assert!(lockouts.until("ann").is_some());
        let (data, _) = lockouts.merge(&json!({}), now);
        let kept = data.as_object().unwrap();
        assert!(kept.len() == MOST + 1 && kept.contains_key(&key("ann")), "{}", kept.len());
        let (again, _) = lockouts.merge(&data, now);
        assert!(again.as_object().unwrap().contains_key(&key("ann")));
    }
}
