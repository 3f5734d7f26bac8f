//! Opaque bearer tokens, kept as Secrets of type `croft.io/token` in kube-system.
//!
//! `token-<id>` holds `id`, `hash` (SHA-256 of the secret part, hexadecimal), `user`, `groups` (separated by commas)
//! and, unless it lasts for ever, `expires` (RFC 3339). The token itself is nowhere.
//!
//! A token with an `account`, the uid of a local user's Secret, stands for that user as the user is now: with the groups
//! of today, and for nobody once the user is gone or has ended it, see [`super::validity`]. Those are made by logging in.

use std::sync::Arc;

use croft_pki::BearerToken;
use jiff::Timestamp;

use super::passwords::{groups, local_user, secret_text};
use super::{CREDENTIAL_ID, USERS_NAMESPACE};
use crate::cache::{Cache, Collection};
use crate::user::UserInfo;

const SECRET_TYPE: &str = "croft.io/token";

#[derive(Debug)]
pub(super) struct BearerTokens {
    secrets: Arc<Collection>,
}

impl BearerTokens {
    pub(super) fn new(cache: &Cache) -> Self {
        Self { secrets: cache.collection("core/secrets") }
    }

    pub(super) fn owner(&self, token: &BearerToken, now: Timestamp) -> Result<UserInfo, String> {
        let id = format!("{USERS_NAMESPACE}/token-{}", token.id());
        let secret = self.secrets.get(&id).ok_or("no such token")?.json();
        if secret["type"] != SECRET_TYPE || croft_meta::object::deletion_timestamp(&secret).is_some() {
            return Err("no such token".to_owned());
        }
        let text = |key: &str| secret_text(&secret, key).unwrap_or_default();
        if text("id") != token.id() || !token.matches(&text("hash")) {
            return Err("the token does not match the server's hash of it".to_owned());
        }
        let expires = text("expires");
        if !expires.is_empty() {
            let expires = croft_meta::time::parse(expires.trim()).map_err(|_| "the token's expiry cannot be read")?;
            if expires <= now {
                return Err("the token has expired".to_owned());
            }
        }
        let name = text("user");
        if name.is_empty() {
            return Err("the token names no user".to_owned());
        }
        let account = text("account");
        if !account.is_empty() {
            let owner = local_user(&self.secrets, &name).filter(|owner| owner.user.uid == account);
            let owner = owner.ok_or("the token's user is gone")?;
            if owner.has_ended(&secret) {
                return Err("the token's user has another password or second factor by now".to_owned());
            }
            let mut user = owner.user;
            user.extra.insert(CREDENTIAL_ID.to_owned(), vec![format!("token-{}", token.id())]);
            return Ok(user);
        }
        let mut user = UserInfo { name, groups: groups(&text("groups")), ..UserInfo::default() };
        user.extra.insert(CREDENTIAL_ID.to_owned(), vec![format!("token-{}", token.id())]);
        Ok(user)
    }
}
