//! Which tokens of a local user are good, kept in the user's own Secret: the one write that changes a password ends what was got with
//! the old one, whatever becomes of the Secrets of the tokens.
//!
//! | key of the user's Secret | |
//! |---|---|
//! | `tokens-since` | the generation from which on tokens are good, and the name of an older one that is good all the same |
//! | `sessions-since` | the same of sessions, for which it holds besides |
//!
//! A token has the `generation` that it was made in. Those of releases that knew of none are of the first, 0.

use base64::{Engine, prelude::BASE64_STANDARD};
use croft_meta::object;
use serde_json::{Value, json};

use super::passwords::{USER_TYPE, secret_text};

/// The key of a token's Secret.
pub(crate) const GENERATION: &str = "generation";
/// The `kind` of tokens that somebody got by logging in.
pub(crate) const SESSION: &str = "session";
const TOKENS: &str = "tokens-since";
const SESSIONS: &str = "sessions-since";
/// A new password from outside leaves them alone.
pub(crate) const KEYS: [&str; 2] = [TOKENS, SESSIONS];
/// Of a value that is damaged. Nobody has changed a password so often, and one can still count on.
const UNKNOWN: u64 = u64::MAX / 2;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Validity {
    tokens: Since,
    sessions: Since,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Since {
    generation: u64,
    except: String,
}

impl Since {
    fn read(user: &Value, key: &str) -> Self {
        if user.get("data").and_then(|data| data.get(key)).is_none() {
            return Self::default();
        }
        let text = secret_text(user, key).unwrap_or_default();
        let (generation, except) = text.split_once(' ').unwrap_or((&text, ""));
        Self { generation: generation.parse().unwrap_or(UNKNOWN), except: except.to_owned() }
    }

    fn covers(&self, token: &Value, generation: u64) -> bool {
        generation >= self.generation || (!self.except.is_empty() && object::name(token) == self.except)
    }
}

impl Validity {
    pub(super) fn read(user: &Value) -> Self {
        Self { tokens: Since::read(user, TOKENS), sessions: Since::read(user, SESSIONS) }
    }

    /// Of the tokens that are made now.
    pub(crate) fn generation(&self) -> u64 {
        self.tokens.generation.max(self.sessions.generation)
    }

    /// Whether a token of the user, as its Secret says, is still good.
    pub(crate) fn covers(&self, token: &Value) -> bool {
        let generation = secret_text(token, GENERATION).and_then(|text| text.parse().ok()).unwrap_or_default();
        let is_session = secret_text(token, "kind").as_deref() == Some(SESSION);
        self.tokens.covers(token, generation) && (!is_session || self.sessions.covers(token, generation))
    }
}

/// Ends all tokens of the user, except for one.
pub(crate) fn end_tokens(user: &mut Value, except: &str) {
    end(user, TOKENS, except);
}

/// Another password ends all tokens, whoever sets it and however, unless the same write says itself which go on.
pub(crate) fn end_with_password(user: &mut Value, old: &Value) {
    const HASH: &str = "password-hash";
    let (is, was) = (Validity::read(user), Validity::read(old));
    let is_same = secret_text(user, HASH) == secret_text(old, HASH);
    if user["type"] != USER_TYPE || is_same || is.tokens.generation > was.tokens.generation {
        return;
    }
    let next = is.generation().max(was.generation()).saturating_add(1);
    // What has no data has no password.
    if let Some(data) = user.get_mut("data").and_then(Value::as_object_mut) {
        data.insert(TOKENS.to_owned(), json!(BASE64_STANDARD.encode(next.to_string())));
    }
}

/// Ends the sessions of the user, except for one.
pub(crate) fn end_sessions(user: &mut Value, except: &str) {
    end(user, SESSIONS, except);
}

fn end(user: &mut Value, key: &str, except: &str) {
    let next = Validity::read(user).generation().saturating_add(1);
    user["data"][key] = json!(BASE64_STANDARD.encode(format!("{next} {except}").trim_end()));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(name: &str, kind: &str, generation: Option<u64>) -> Value {
        let mut token = json!({"metadata": {"name": name}, "data": {"kind": BASE64_STANDARD.encode(kind)}});
        if let Some(generation) = generation {
            token["data"][GENERATION] = json!(BASE64_STANDARD.encode(generation.to_string()));
        }
        token
    }

    #[test]
    fn each_change_ends_what_was_made_before_but_for_one() {
        let mut user = json!({"data": {}});
        let (old, kept) = (token("token-old", SESSION, None), token("token-kept", SESSION, Some(0)));
        let key = token("token-key", "apikey", None);
        let covers = |user: &Value, tokens: [&Value; 3]| tokens.map(|token| Validity::read(user).covers(token));
        assert_eq!(covers(&user, [&old, &kept, &key]), [true; 3]);
        end_sessions(&mut user, "token-kept");
        assert_eq!(covers(&user, [&old, &kept, &key]), [false, true, true], "keys go on");
        end_tokens(&mut user, "token-kept");
        assert_eq!(covers(&user, [&old, &kept, &key]), [false, true, false]);
        let generation = Validity::read(&user).generation();
        assert_eq!(generation, 2);
        let (new, key) =
            (token("token-new", SESSION, Some(generation)), token("token-key", "apikey", Some(generation)));
        assert_eq!(covers(&user, [&new, &kept, &key]), [true; 3]);
        end_sessions(&mut user, "token-new");
        assert_eq!(covers(&user, [&new, &kept, &key]), [true, false, true]);
        end_tokens(&mut user, "");
        assert_eq!(covers(&user, [&new, &kept, &key]), [false; 3]);
    }

    #[test]
    fn another_password_ends_all_tokens_unless_it_is_said_which() {
        let user = |hash: &str, since: &[(&str, &str)]| {
            let mut user = json!({"type": USER_TYPE, "data": {"password-hash": BASE64_STANDARD.encode(hash)}});
            for (key, text) in since {
                user["data"][key] = json!(BASE64_STANDARD.encode(text));
            }
            user
        };
        let since = |user: &Value| secret_text(user, TOKENS);
        for (old, new, expected) in [
            (user("a", &[]), user("a", &[]), None),
            (user("a", &[]), user("b", &[]), Some("1")),
            (user("a", &[(TOKENS, "3 token-x")]), user("a", &[(TOKENS, "3 token-x")]), Some("3 token-x")),
            (user("a", &[(TOKENS, "3 token-x")]), user("b", &[(TOKENS, "3 token-x")]), Some("4")),
            (user("a", &[(TOKENS, "3")]), user("b", &[(TOKENS, "4 token-y")]), Some("4 token-y")),
            (user("a", &[(TOKENS, "3"), (SESSIONS, "7")]), user("b", &[]), Some("8")),
            (user("a", &[(TOKENS, "3")]), user("b", &[(TOKENS, "1")]), Some("4")),
        ] {
            let mut changed = new.clone();
            end_with_password(&mut changed, &old);
            assert_eq!(since(&changed).as_deref(), expected, "{old} {new}");
            let mut other = new.clone();
            other["type"] = json!("Opaque");
            let unchanged = other.clone();
            end_with_password(&mut other, &old);
            assert_eq!(other, unchanged);
        }
        let mut broken = json!({"type": USER_TYPE, "data": "???"});
        end_with_password(&mut broken, &user("a", &[]));
        assert_eq!(broken["data"], "???");
    }

    #[test]
    fn a_damaged_mark_ends_all_that_was_there() {
        let mut user = json!({"data": {TOKENS: "???"}});
        assert!(!Validity::read(&user).covers(&token("token-a", SESSION, Some(7))));
        let generation = Validity::read(&user).generation();
        assert!(Validity::read(&user).covers(&token("token-a", SESSION, Some(generation))));
        end_tokens(&mut user, "");
        assert!(!Validity::read(&user).covers(&token("token-a", SESSION, Some(generation))));
    }
}
