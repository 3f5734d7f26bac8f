//! Local users, kept as Secrets of type `croft.io/user` in kube-system.
//!
//! `user-<name>` holds `username`, `password-hash` (argon2id, PHC format), `groups` (separated by commas) and, until the
//! first password was changed, `must-change-password`. Those who have a second factor have it there too.

use std::net::IpAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use base64::{Engine, prelude::BASE64_STANDARD};
use croft_meta::object;
use croft_pki::Secret;
use jiff::Timestamp;
use serde_json::Value;

use super::USERS_NAMESPACE;
use super::costly::{Costly, Turn};
use super::lockouts::{Lockouts, LoginLimits};
use super::login::{Code, Credentials, LoginError, Proven, Standing};
use super::memo::{Digest, Memo};
use super::patience::{Patience, Watched, watched};
use super::second_factor::{SecondFactor, Used};
use super::validity::Validity;
use crate::cache::{Cache, Collection};
use crate::metrics::Logins;
use crate::user::UserInfo;

pub(super) const USER_TYPE: &str = "croft.io/user";
/// How long a right password need not be hashed again. A new hash in the Secret counts at once.
const VERIFIED_TTL: Duration = Duration::from_mins(1);
/// Each check takes a core and 19 MiB for tens of milliseconds; more at a time would only be a way to attack us.
const CHECKS_AT_A_TIME: usize = 2;
/// More than this would be told later than they want to wait.
const CHECKS_WAITING: usize = 128;
/// A name, a password or a code of more bytes is none but a way to keep the server busy.
pub(crate) const LONGEST: usize = 1_024;

#[derive(Debug)]
pub(super) struct Passwords {
    secrets: Arc<Collection>,
    pub(super) lockouts: Lockouts,
    verified: Memo<()>,
    patience: Patience,
    /// All hashing of passwords and codes takes its turn here.
    pub(super) hashing: Costly,
    pub(super) counts: Logins,
}

/// Credentials, and who sent them when.
#[derive(Debug)]
struct Asked {
    credentials: Credentials,
    watched: Vec<Watched>,
    address: Option<IpAddr>,
    now: Timestamp,
}

/// A user that logs in with a password.
#[derive(Clone, Debug)]
pub(crate) struct LocalUser {
    pub(crate) user: UserInfo,
    pub(crate) must_change_password: bool,
    pub(crate) created: String,
    pub(crate) second_factor: Option<SecondFactor>,
    validity: Validity,
    hash: String,
}

impl LocalUser {
    /// What the Secret that is named after the user says.
    pub(crate) fn read(secret: &Value, name: &str) -> Option<Self> {
        if secret["type"] != USER_TYPE || object::deletion_timestamp(secret).is_some() {
            return None;
        }
        // The name in the data is the user's; the Secret's only finds it.
        if secret_text(secret, "username").as_deref() != Some(name) {
            return None;
        }
        let groups = groups(&secret_text(secret, "groups").unwrap_or_default());
        let user =
            UserInfo { name: name.to_owned(), uid: object::uid(secret).to_owned(), groups, ..UserInfo::default() };
        Some(Self {
            user,
            must_change_password: secret_text(secret, "must-change-password").as_deref() == Some("true"),
            created: secret
                .pointer("/metadata/creationTimestamp")
                .and_then(Value::as_str)
                .unwrap_or_default()
                .to_owned(),
            second_factor: SecondFactor::read(secret),
            validity: Validity::read(secret),
            hash: secret_text(secret, "password-hash")?,
        })
    }

    pub(crate) fn standing(&self) -> Standing {
        Standing::of(self, &self.hash)
    }

    /// Somebody who is this user, as it is now.
    pub(crate) fn proven(&self, used: Option<Used>) -> Proven {
        Proven { user: self.user.clone(), used, standing: self.standing(), generation: self.validity.generation() }
    }

    /// Whether a token of the user, as its Secret says, has ended since by a new password or a second factor.
    pub(crate) fn has_ended(&self, token: &Value) -> bool {
        secret_text(token, "account").as_deref() == Some(self.user.uid.as_str()) && !self.validity.covers(token)
    }
}

impl Passwords {
    pub(super) fn new(cache: &Cache, limits: LoginLimits) -> Result<Self, getrandom::Error> {
        Ok(Self {
            secrets: cache.collection("core/secrets"),
            lockouts: Lockouts::new(cache, limits),
            verified: Memo::new(VERIFIED_TTL)?,
            patience: Patience::default(),
            hashing: Costly::new(CHECKS_AT_A_TIME, CHECKS_WAITING),
            counts: Logins::default(),
        })
    }

    /// By a password alone, which is not enough for those who have a second factor.
    pub(super) async fn login(
        self: &Arc<Self>,
        name: String,
        password: String,
        address: Option<IpAddr>,
        now: Timestamp,
    ) -> Result<Proven, LoginError> {
        let credentials = Credentials { name, password: Some(Secret::new(password)), code: Code::Sent(None) };
        self.check(credentials, address, now).await
    }

    pub(super) async fn check(
        self: &Arc<Self>,
        credentials: Credentials,
        address: Option<IpAddr>,
        now: Timestamp,
    ) -> Result<Proven, LoginError> {
        // Nothing is kept of what nobody can have.
        if credentials.is_too_long() {
            return self.refused(LoginError::Wrong("the name, the password or the code is too long".to_owned()));
        }
        let asked = Asked { watched: watched(&credentials.name, address), credentials, address, now };
        if let Some(outcome) = self.without_hashing(&asked) {
            return outcome;
        }
        let Some(place) = self.hashing.place() else { return self.refused(LoginError::Busy) };
        let this = Arc::clone(self);
        // By itself: it costs as much, and a wrong password counts as much, when whoever asked has gone away meanwhile.
        let checking = tokio::spawn(async move {
            let turn = this.hashing.turn(place).await;
            // Those in the queue before us may have found out, or used up the patience.
            if let Some(outcome) = this.without_hashing(&asked) {
                return outcome;
            }
            match this.decide(asked, turn).await {
                // It counts once the code is used up.
                Ok(proven) if proven.used.is_some() => Ok(proven),
                Ok(proven) => {
                    this.let_in();
                    Ok(proven)
                }
                Err(refused) => this.refused(refused),
            }
        });
        checking.await.unwrap_or_else(|_| Err(LoginError::Wrong("the check was cut short".to_owned())))
    }

    /// What can be said at once, if anything.
    fn without_hashing(&self, asked: &Asked) -> Option<Result<Proven, LoginError>> {
        let Asked { credentials, watched, now, .. } = asked;
        // Nothing is looked at meanwhile: guesses find out nothing.
        if let Some(retry_after_seconds) = self.lockouts.seconds_left(&credentials.name, *now) {
            return Some(self.refused(LoginError::Locked { retry_after_seconds }));
        }
        // Whoever has a second factor is never let in by what was found out about the password.
        let plain = self.find(&credentials.name).filter(|found| found.second_factor.is_none());
        if let Some(plain) = plain
            && let Some(digest) = self.digest(asked, &plain)
            && self.verified.get(&digest, *now).is_some()
        {
            return Some(Ok(plain.proven(None)));
        }
        let throttled = watched.iter().try_for_each(|who| self.patience.check(who, *now)).err()?;
        Some(self.refused(throttled))
    }

    fn refused(&self, why: LoginError) -> Result<Proven, LoginError> {
        self.counts.login(why.result());
        Err(why)
    }

    /// The digest is of the hash too, so it can only be known for a user that exists with that hash; and of the address, so that
    /// guesses from elsewhere find out nothing.
    fn digest(&self, asked: &Asked, found: &LocalUser) -> Option<Digest> {
        let password = asked.credentials.password.as_ref()?.reveal();
        let address = asked.address.map(|address| address.to_canonical().to_string()).unwrap_or_default();
        let parts = [&asked.credentials.name, &found.hash, password, &address].map(str::as_bytes);
        Some(self.verified.digest(&parts))
    }

    /// Looks at the credentials, and remembers what came of it.
    async fn decide(&self, asked: Asked, turn: Turn) -> Result<Proven, LoginError> {
        let found = self.find(&asked.credentials.name);
        let digest = found.as_ref().filter(|found| found.second_factor.is_none());
        let digest = digest.and_then(|found| self.digest(&asked, found));
        let Asked { credentials: Credentials { name, password, code }, watched, now, .. } = asked;
        let (hash, factor) = (
            found.as_ref().map(|found| found.hash.clone()),
            found.as_ref().and_then(|found| found.second_factor.clone()),
        );
        let (is_asked, code) = match code {
            Code::Sent(code) => (true, code),
            Code::NotAsked => (false, None),
        };
        let has_code = code.is_some();
        let checked = turn.work(move || {
            let is_right = is_right(password.as_ref(), hash);
            let used = code.filter(|_| is_right).and_then(|code| factor?.check(code.reveal(), now));
            (is_right, used)
        });
        let (is_right, used) = checked.await.unwrap_or_default();
        let exists = found.is_some();
        let Some(found) = found.filter(|_| is_right) else {
            self.failed(&name, exists, &watched, now);
            return Err(wrong_password(&name, exists));
        };
        match (&found.second_factor, is_asked, &used) {
            (None, ..) | (Some(_), _, Some(_)) => {
                // Not the address's: a right password of one's own would hide guesses at others'.
                self.patience.forget(&watched[0]);
            }
            // The password alone does not make up for codes that were wrong.
            (Some(_), false, None) => {}
            (Some(_), true, None) if !has_code => return Err(LoginError::CodeNeeded),
            (Some(_), true, None) => {
                self.failed(&name, exists, &watched, now);
                return Err(LoginError::WrongCode);
            }
        }
        if let Some(digest) = digest {
            self.verified.put(digest, (), now);
        }
        Ok(found.proven(used))
    }

    pub(super) fn let_in(&self) {
        self.counts.login("success");
    }

    /// A code that somebody else used in the meantime.
    pub(super) fn was_used(&self, name: &str, address: Option<IpAddr>, now: Timestamp) -> LoginError {
        self.failed(name, self.find(name).is_some(), &watched(name, address), now);
        self.counts.login(LoginError::WrongCode.result());
        LoginError::WrongCode
    }

    fn failed(&self, name: &str, exists: bool, watched: &[Watched], now: Timestamp) {
        for who in watched {
            let is_name = matches!(who, Watched::Name(_));
            let count = self.patience.failed(who, is_name && exists, now);
            if is_name && self.lockouts.failed(name, exists, count, now) {
                // The lock is the wait; after it, counting begins anew.
                self.patience.forget(who);
                self.counts.lockout();
            }
        }
    }

    fn find(&self, name: &str) -> Option<LocalUser> {
        local_user(&self.secrets, name)
    }
}

/// This is for the log, which a name that is nobody's must not get into: people type passwords where names belong.
fn wrong_password(name: &str, exists: bool) -> LoginError {
    LoginError::Wrong(if exists { format!("wrong password for user {name:?}") } else { "no such user".to_owned() })
}

/// A name that does not exist costs as much time as one that does.
fn is_right(password: Option<&Secret>, hash: Option<String>) -> bool {
    let exists = hash.is_some();
    let Some(password) = password else { return exists };
    let hash = hash.unwrap_or_else(|| stand_in_hash().to_owned());
    croft_pki::password::verify(password.reveal(), &hash) && exists
}

/// The local user of this name.
pub(super) fn local_user(secrets: &Collection, name: &str) -> Option<LocalUser> {
    LocalUser::read(&secrets.get(&format!("{USERS_NAMESPACE}/user-{name}"))?.json(), name)
}

/// All of them.
pub(super) fn local_users(secrets: &Collection) -> Vec<LocalUser> {
    let secrets = secrets.list(USERS_NAMESPACE);
    let named = secrets.iter().filter_map(|secret| Some((secret.name().strip_prefix("user-")?, secret)));
    named.filter_map(|(name, secret)| LocalUser::read(&secret.json(), name)).collect()
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

#[cfg(test)]
mod tests;
