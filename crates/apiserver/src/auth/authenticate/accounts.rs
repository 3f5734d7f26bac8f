//! Service accounts behind verified tokens: do they, and what the token is bound to, still exist?

use std::sync::Arc;
use std::time::Duration;

use croft_meta::{ApiError, object};
use croft_pki::VerifiedToken;
use croft_pki::service_account::ObjectRef;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::CREDENTIAL_ID;
use super::memo::Memo;
use super::passwords::secret_text;
use crate::auth::service_account;
use crate::cache::{Cache, Collection};
use crate::user::UserInfo;

/// Tokens outlive the deletion of what they are bound to by what clocks may differ.
const LEEWAY_SECONDS: i64 = 60;
/// Set on a Secret whose token is no longer to be used.
const INVALID_SINCE: &str = "kubernetes.io/legacy-token-invalid-since";
/// Set on a ServiceAccount whose tokens from before this moment (RFC 3339) are no longer to be used.
const VALID_FROM: &str = "croft.io/tokens-valid-from";
const POD_NAME: &str = "authentication.kubernetes.io/pod-name";
const POD_UID: &str = "authentication.kubernetes.io/pod-uid";
const NODE_NAME: &str = "authentication.kubernetes.io/node-name";
const NODE_UID: &str = "authentication.kubernetes.io/node-uid";

#[derive(Debug)]
pub(super) struct TokenOwners {
    service_accounts: Arc<Collection>,
    secrets: Arc<Collection>,
    pods: Arc<Collection>,
    nodes: Arc<Collection>,
    /// Only for its keyed hash.
    comparison: Memo<()>,
}

impl TokenOwners {
    pub(super) fn new(cache: &Cache) -> Result<Self, getrandom::Error> {
        Ok(Self {
            service_accounts: cache.collection("core/serviceaccounts"),
            secrets: cache.collection("core/secrets"),
            pods: cache.collection("core/pods"),
            nodes: cache.collection("core/nodes"),
            comparison: Memo::new(Duration::ZERO)?,
        })
    }

    /// The user that the token stands for; the error is upstream's.
    pub(super) fn user_of(&self, token: &str, verified: &VerifiedToken, now: Timestamp) -> Result<UserInfo, String> {
        if verified.legacy {
            self.check_legacy(token, verified)?;
        } else {
            self.check_bound(verified, now)?;
        }
        Ok(user(verified))
    }

    fn check_bound(&self, token: &VerifiedToken, now: Timestamp) -> Result<(), String> {
        let VerifiedToken { namespace, service_account: account, .. } = token;
        let name = &account.name;
        let found = self.account(namespace, name)?;
        if object::uid(&found) != account.uid {
            return Err(format!(
                "service account UID ({}) does not match claim ({})",
                object::uid(&found),
                account.uid
            ));
        }
        if was_deleted(&found, now) {
            return Err(format!("service account {namespace}/{name} has been deleted"));
        }
        not_before(&found, token.issued)?;
        if let Some(secret) = &token.secret {
            check_exists("secret", get(&self.secrets, namespace, &secret.name), secret, now)?;
        }
        match (&token.pod, &token.node) {
            // The node of a pod is only told; the pod is what counts.
            (Some(pod), _) => check_exists("pod", get(&self.pods, namespace, &pod.name), pod, now),
            (None, Some(node)) => check_exists("node", get(&self.nodes, "", &node.name), node, now),
            (None, None) => Ok(()),
        }
    }

    fn check_legacy(&self, token: &str, verified: &VerifiedToken) -> Result<(), String> {
        let VerifiedToken { namespace, service_account: account, .. } = verified;
        let name = &account.name;
        let secret_name = verified.secret.as_ref().map(|secret| secret.name.as_str()).unwrap_or_default();
        let invalidated = || "Token has been invalidated".to_owned();
        let secret = get(&self.secrets, namespace, secret_name).ok_or_else(invalidated)?;
        if object::deletion_timestamp(&secret).is_some() {
            return Err(invalidated());
        }
        // Hashes under a key that nobody knows: how long their comparison takes tells nothing about the token.
        let kept = secret_text(&secret, "token").unwrap_or_default();
        if self.comparison.digest(&[kept.as_bytes()]) != self.comparison.digest(&[token.as_bytes()]) {
            return Err("Token does not match server's copy".to_owned());
        }
        let found = self.account(namespace, name)?;
        if object::deletion_timestamp(&found).is_some() {
            return Err(format!("ServiceAccount {namespace}/{name} has been deleted"));
        }
        if object::uid(&found) != account.uid {
            return Err(format!("ServiceAccount UID ({}) does not match claim ({})", object::uid(&found), account.uid));
        }
        let made = secret.pointer("/metadata/creationTimestamp").and_then(Value::as_str).unwrap_or_default();
        not_before(&found, croft_meta::time::parse(made).ok().map(Timestamp::as_second))?;
        if object::label(&secret, INVALID_SINCE).is_some_and(|since| !since.is_empty()) {
            return Err(format!(
                "the token in secret {namespace}/{secret_name} for service account {namespace}/{name} has been marked \
                 invalid. Use tokens from the TokenRequest API or manually created secret-based tokens, or remove the \
                 '{INVALID_SINCE}' label from the secret to temporarily allow use of this token"
            ));
        }
        Ok(())
    }

    fn account(&self, namespace: &str, name: &str) -> Result<Value, String> {
        get(&self.service_accounts, namespace, name)
            .ok_or_else(|| ApiError::not_found("", "serviceaccounts", name).to_string())
    }
}

/// Tokens from before a moment may have been revoked all together.
fn not_before(account: &Value, issued: Option<i64>) -> Result<(), String> {
    let Some(since) = object::annotation(account, VALID_FROM) else { return Ok(()) };
    let since = croft_meta::time::parse(since).map_err(|_| format!("{VALID_FROM} of the account cannot be read"))?;
    if issued.is_some_and(|issued| issued >= since.as_second()) {
        return Ok(());
    }
    Err("the tokens of the account from before then were revoked".to_owned())
}

/// Whoever may write the account must not thereby make tokens good again that were revoked: the later moment stays. Only
/// administrators may take it back, who are not to come here.
pub(crate) fn keep_revoked(new: &mut Value, old: &Value) {
    let Some(before) = object::annotation(old, VALID_FROM) else { return };
    let moment = |text: &str| croft_meta::time::parse(text).ok();
    let is_later = object::annotation(new, VALID_FROM)
        .and_then(moment)
        .is_some_and(|wanted| moment(before).is_some_and(|before| before <= wanted));
    if !is_later {
        let annotations = object::metadata_mut(new).entry("annotations").or_insert_with(|| json!({}));
        if !annotations.is_object() {
            // What is no list of annotations is refused for that.
            *annotations = json!({});
        }
        annotations[VALID_FROM] = json!(before);
    }
}

fn user(token: &VerifiedToken) -> UserInfo {
    let mut user = UserInfo {
        name: token.user(),
        uid: token.service_account.uid.clone(),
        groups: service_account::groups(&token.namespace),
        ..UserInfo::default()
    };
    let mut tell = |key: &str, value: &str| drop(user.extra.insert(key.to_owned(), vec![value.to_owned()]));
    if !token.id.is_empty() {
        tell(CREDENTIAL_ID, &format!("JTI={}", token.id));
    }
    if let Some(pod) = token.pod.as_ref().filter(|pod| !pod.name.is_empty() && !pod.uid.is_empty()) {
        tell(POD_NAME, &pod.name);
        tell(POD_UID, &pod.uid);
    }
    if let Some(node) = token.node.as_ref().filter(|node| !node.name.is_empty()) {
        tell(NODE_NAME, &node.name);
        if !node.uid.is_empty() {
            tell(NODE_UID, &node.uid);
        }
    }
    user
}

fn get(collection: &Collection, namespace: &str, name: &str) -> Option<Value> {
    let id = if namespace.is_empty() { name.to_owned() } else { format!("{namespace}/{name}") };
    collection.get(&id).map(|object| object.json())
}

fn check_exists(kind: &str, found: Option<Value>, claimed: &ObjectRef, now: Timestamp) -> Result<(), String> {
    let invalidated = || "service account token has been invalidated".to_owned();
    let found = found.ok_or_else(invalidated)?;
    let uid = object::uid(&found);
    if uid != claimed.uid {
        return Err(format!("{kind} UID ({uid}) does not match service account {kind} ref claim ({})", claimed.uid));
    }
    if was_deleted(&found, now) { Err(invalidated()) } else { Ok(()) }
}

/// A deletion timestamp lies ahead while a grace period runs.
fn was_deleted(found: &Value, now: Timestamp) -> bool {
    let deleted = object::deletion_timestamp(found).and_then(|time| croft_meta::time::parse(time).ok());
    deleted.is_some_and(|deleted| now.duration_since(deleted).as_secs() > LEEWAY_SECONDS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_moment_before_which_tokens_were_revoked_only_moves_ahead() {
        let account = |since: Option<&str>| {
            let annotations = since.map(|since| json!({VALID_FROM: since, "a": "b"}));
            json!({"metadata": {"name": "a", "annotations": annotations}})
        };
        let (one, two, offset) = ("2026-01-01T00:00:01Z", "2026-01-01T00:00:02Z", "2026-01-01T02:00:02+02:00");
        for (old, new, kept) in [
            (None, None, None),
            (None, Some(one), Some(one)),
            (Some(one), None, Some(one)),
            (Some(one), Some(two), Some(two)),
            (Some(one), Some(offset), Some(offset)),
            (Some(two), Some(one), Some(two)),
            (Some(two), Some("never"), Some(two)),
            (Some("damaged"), Some(one), Some("damaged")),
        ] {
            let mut changed = account(new);
            keep_revoked(&mut changed, &account(old));
            assert_eq!(object::annotation(&changed, VALID_FROM), kept, "{old:?} {new:?}");
        }
        let mut bare = json!({"metadata": {"name": "a"}});
        keep_revoked(&mut bare, &account(Some(one)));
        assert_eq!(object::annotation(&bare, VALID_FROM), Some(one));
    }
}
