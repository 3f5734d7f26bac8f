//! The second factor of a local user, kept in the user's own Secret.
//!
//! | key | |
//! |---|---|
//! | `totp-secret` | what the user's app and the server share, in base32; with it, the second factor is in force |
//! | `totp-last-step` | the step of the code that was used last: neither it nor an earlier one is good again |
//! | `totp-recovery-hashes` | a line for each recovery code that is left, hashed as passwords are |
//! | `totp-pending-secret`, `totp-pending-until` | what is to become the secret once its owner has shown a code, and until when |
//! | `totp-pending-misses` | how many codes for it were wrong |
//!
//! [`SecondFactor::check`] says what a code would use up, and [`spend`] uses it up, in the transaction that writes the Secret: of two
//! logins with one code, on any servers, one is let in.

use base64::{Engine, prelude::BASE64_STANDARD};
use croft_meta::time;
use croft_pki::totp::Typed;
use croft_pki::{Secret, TotpKey, password};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::passwords::secret_text;

const SECRET: &str = "totp-secret";
const LAST_STEP: &str = "totp-last-step";
const RECOVERY: &str = "totp-recovery-hashes";
const PENDING: &str = "totp-pending-secret";
const PENDING_UNTIL: &str = "totp-pending-until";
const PENDING_MISSES: &str = "totp-pending-misses";
/// All of them begin so: a new password leaves them alone.
pub(crate) const PREFIX: &str = "totp-";
/// As long as one may take from the QR code to the first code.
const PENDING_FOR: SignedDuration = SignedDuration::from_mins(15);
/// So many wrong codes are one too many: whoever guesses begins anew, which takes the password.
const MOST_MISSES: u32 = 5;

#[derive(Clone, Debug)]
pub(crate) struct SecondFactor {
    key: TotpKey,
    last_step: Option<u64>,
    recovery: Vec<String>,
}

/// What a code uses up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Used {
    Step(u64),
    /// The hash of a recovery code.
    Recovery(String),
}

impl SecondFactor {
    pub(super) fn read(secret: &Value) -> Option<Self> {
        // One that is damaged is there all the same: no code of an app fits it.
        secret.get("data")?.get(SECRET)?;
        Some(Self {
            key: TotpKey::kept(secret_text(secret, SECRET).unwrap_or_default()),
            last_step: last_step(secret),
            recovery: recovery(secret),
        })
    }

    /// What the code would use up; `None` if it is wrong. Recovery codes take their time, as passwords do.
    pub(super) fn check(&self, code: &str, now: Timestamp) -> Option<Used> {
        match Typed::read(code)? {
            Typed::App(code) => self.key.step_of(code.reveal(), now, self.last_step).map(Used::Step),
            Typed::Recovery(code) => {
                let found = self.recovery.iter().find(|hash| password::verify(code.reveal(), hash));
                found.cloned().map(Used::Recovery)
            }
        }
    }

    pub(crate) fn recovery_codes_left(&self) -> usize {
        self.recovery.len()
    }
}

fn last_step(secret: &Value) -> Option<u64> {
    secret_text(secret, LAST_STEP)?.parse().ok()
}

fn recovery(secret: &Value) -> Vec<String> {
    secret_text(secret, RECOVERY).unwrap_or_default().lines().map(str::to_owned).collect()
}

fn set(secret: &mut Value, key: &str, text: &str) {
    secret["data"][key] = json!(BASE64_STANDARD.encode(text));
}

/// Uses a code up. `false` if it has been used up meanwhile, or there is no second factor any more.
pub(crate) fn spend(secret: &mut Value, used: &Used) -> bool {
    if secret.get("data").and_then(|data| data.get(SECRET)).is_none() {
        return false;
    }
    match used {
        Used::Step(step) => {
            if last_step(secret).is_some_and(|last| *step <= last) {
                return false;
            }
            set(secret, LAST_STEP, &step.to_string());
        }
        Used::Recovery(hash) => {
            let mut left = recovery(secret);
            let before = left.len();
            left.retain(|kept| kept != hash);
            if left.len() == before {
                return false;
            }
            set(secret, RECOVERY, &left.join("\n"));
        }
    }
    true
}

/// Keeps a key that its owner has yet to show a code of.
pub(crate) fn offer(secret: &mut Value, key: &TotpKey, now: Timestamp) {
    set(secret, PENDING, key.base32().reveal());
    let until = now.checked_add(PENDING_FOR).unwrap_or(Timestamp::MAX);
    set(secret, PENDING_UNTIL, &time::format_seconds(until));
    set(secret, PENDING_MISSES, "0");
}

/// Counts a wrong code for the key that was offered, and takes the offer back if there have been too many.
pub(crate) fn miss(secret: &mut Value) {
    let misses =
        secret_text(secret, PENDING_MISSES).and_then(|misses| misses.parse::<u32>().ok()).unwrap_or_default() + 1;
    if misses < MOST_MISSES {
        set(secret, PENDING_MISSES, &misses.to_string());
    } else if let Some(data) = secret.get_mut("data").and_then(Value::as_object_mut) {
        data.retain(|key, _| ![PENDING, PENDING_UNTIL, PENDING_MISSES].contains(&key.as_str()));
    }
}

/// The step of a code of the key that was offered.
pub(crate) fn offered(secret: &Value, code: &str, now: Timestamp) -> Result<u64, Unproven> {
    let until = secret_text(secret, PENDING_UNTIL).and_then(|until| time::parse(&until).ok());
    let key = secret_text(secret, PENDING).filter(|_| until.is_some_and(|until| now < until));
    let key = TotpKey::kept(key.ok_or(Unproven::NothingOffered)?);
    match Typed::read(code) {
        Some(Typed::App(code)) => key.step_of(code.reveal(), now, None).ok_or(Unproven::WrongCode),
        _ => Err(Unproven::WrongCode),
    }
}

/// Why a key that was offered is not in force yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unproven {
    NothingOffered,
    WrongCode,
}

/// Puts the key that was offered in force.
pub(crate) fn enable(secret: &mut Value, step: u64, codes: &[(Secret, String)]) {
    let key = secret_text(secret, PENDING).unwrap_or_default();
    let hashes: Vec<&str> = codes.iter().map(|(_, hash)| hash.as_str()).collect();
    remove(secret);
    set(secret, SECRET, &key);
    set(secret, LAST_STEP, &step.to_string());
    set(secret, RECOVERY, &hashes.join("\n"));
}

pub(crate) fn remove(secret: &mut Value) {
    if let Some(data) = secret.get_mut("data").and_then(Value::as_object_mut) {
        data.retain(|key, _| !key.starts_with(PREFIX));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The key of RFC 6238, and its code at this time.
    const KEY: &str = "GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ";
    const CODE: &str = "081804";
    const STEP: u64 = 37_037_036;

    fn now() -> Timestamp {
        Timestamp::from_second(1_111_111_109).unwrap()
    }

    fn enrolled() -> (Value, Vec<(Secret, String)>) {
        let mut secret = json!({"data": {"username": "amFuZQ=="}});
        offer(&mut secret, &TotpKey::kept(KEY), now());
        assert!(SecondFactor::read(&secret).is_none(), "not before a code was shown");
        assert_eq!(offered(&secret, CODE, now()), Ok(STEP));
        let codes: Vec<_> = ["aaaaa-bbbbb", "ccccc-ddddd"].map(|code| (Secret::new(code), hash(code))).into();
        enable(&mut secret, STEP, &codes);
        (secret, codes)
    }

    fn hash(code: &str) -> String {
        password::hash(&code.replace('-', "")).unwrap()
    }

    #[test]
    fn a_key_is_in_force_when_its_owner_has_shown_a_code() {
        let mut secret = json!({"data": {}});
        assert_eq!(offered(&secret, CODE, now()), Err(Unproven::NothingOffered));
        offer(&mut secret, &TotpKey::kept(KEY), now());
        for wrong in ["", "081805", "aaaaa-bbbbb"] {
            assert_eq!(offered(&secret, wrong, now()), Err(Unproven::WrongCode), "{wrong}");
        }
        assert_eq!(offered(&secret, CODE, now() + PENDING_FOR), Err(Unproven::NothingOffered));
        let (secret, _) = enrolled();
        assert_eq!(secret_text(&secret, "username").as_deref(), Some("jane"));
        assert!(secret_text(&secret, PENDING).is_none() && secret_text(&secret, PENDING_UNTIL).is_none());
        assert!(!format!("{:?}", SecondFactor::read(&secret)).contains(KEY));
    }

    #[test]
    fn an_offer_stands_a_few_wrong_codes_and_each_offer_as_many() {
        let mut secret = json!({"data": {"username": "amFuZQ=="}});
        for _ in 0..2 {
            offer(&mut secret, &TotpKey::kept(KEY), now());
            for _ in 1..MOST_MISSES {
                miss(&mut secret);
                assert_eq!(offered(&secret, CODE, now()), Ok(STEP));
            }
            offer(&mut secret, &TotpKey::kept(KEY), now());
        }
        for _ in 0..MOST_MISSES {
            assert_eq!(offered(&secret, CODE, now()), Ok(STEP));
            miss(&mut secret);
        }
        assert_eq!(offered(&secret, CODE, now()), Err(Unproven::NothingOffered));
        assert_eq!(secret, json!({"data": {"username": "amFuZQ=="}}));
    }

    #[test]
    fn each_code_is_good_once() {
        let (mut secret, _) = enrolled();
        let check = |secret: &Value, code: &str, later| {
            SecondFactor::read(secret).unwrap().check(code, now() + SignedDuration::from_secs(later))
        };
        assert_eq!(check(&secret, CODE, 0), None, "it was used for the enrolment");
        let next = "050471";
        assert_eq!(check(&secret, next, 2), Some(Used::Step(STEP + 1)));
        assert!(spend(&mut secret, &Used::Step(STEP + 1)));
        assert!(!spend(&mut secret, &Used::Step(STEP + 1)), "somebody was quicker");
        assert_eq!(check(&secret, next, 2), None);
        let used = check(&secret, "CCCCC ddddd", 0).unwrap();
        assert!(spend(&mut secret, &used) && !spend(&mut secret, &used));
        assert_eq!(check(&secret, "ccccc-ddddd", 0), None);
        assert_eq!(SecondFactor::read(&secret).unwrap().recovery_codes_left(), 1);
        assert!(matches!(check(&secret, "aaaaabbbbb", 0), Some(Used::Recovery(_))));
        remove(&mut secret);
        assert!(SecondFactor::read(&secret).is_none() && !spend(&mut secret, &Used::Step(STEP + 9)));
        assert_eq!(secret, json!({"data": {"username": "amFuZQ=="}}));
    }

    #[test]
    fn a_damaged_one_lets_nobody_in_by_a_password_alone() {
        for value in [json!("???"), json!(null), json!("")] {
            let secret = json!({"data": {SECRET: value}});
            let factor = SecondFactor::read(&secret).unwrap();
            assert_eq!(factor.check(CODE, now()), None);
            assert_eq!(factor.check("aaaaa-bbbbb", now()), None);
        }
    }
}
