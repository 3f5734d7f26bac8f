//! Tokens of service accounts: those kept in Secrets (here) and those made on request ([`super::token_request`]).

use std::sync::Arc;

use base64::{Engine, prelude::BASE64_STANDARD};
use croft_meta::{ApiError, Chain, object};
use croft_pki::service_account::ObjectRef;
use croft_pki::{Ca, TokenSigner};
use serde_json::{Value, json};

use crate::cache::{Cache, Collection};

const SECRET_TYPE: &str = "kubernetes.io/service-account-token";
const ACCOUNT_NAME: &str = "kubernetes.io/service-account.name";
const ACCOUNT_UID: &str = "kubernetes.io/service-account.uid";

#[derive(Debug)]
pub(crate) struct ServiceAccountTokens {
    pub(super) signer: Arc<TokenSigner>,
    pub(super) service_accounts: Arc<Collection>,
    pub(super) secrets: Arc<Collection>,
    pub(super) pods: Arc<Collection>,
    pub(super) nodes: Arc<Collection>,
    ca_pem: String,
}

impl ServiceAccountTokens {
    pub(crate) fn new(cache: &Cache, ca: &Ca, signer: Arc<TokenSigner>) -> Self {
        Self {
            signer,
            service_accounts: cache.collection("core/serviceaccounts"),
            secrets: cache.collection("core/secrets"),
            pods: cache.collection("core/pods"),
            nodes: cache.collection("core/nodes"),
            ca_pem: ca.cert_pem().to_owned(),
        }
    }

    /// Whose public keys tell others how to verify tokens.
    pub(crate) fn signer(&self) -> &TokenSigner {
        &self.signer
    }

    /// Puts the token, the CA and the namespace into a Secret of type `kubernetes.io/service-account-token`, so that
    /// they are there when the write is acknowledged. The Secret has its final name. Other Secrets, and those whose
    /// service account is not there, stay as they are: a controller fills the latter when the account comes, and
    /// deletes those whose account went.
    pub(crate) fn fill_token_secret(&self, secret: &mut Value) -> Result<(), ApiError> {
        if secret["type"] != SECRET_TYPE {
            return Ok(());
        }
        let (namespace, name) = (object::namespace(secret).to_owned(), object::name(secret).to_owned());
        let Some(account) = self.account_of(secret) else { return Ok(()) };
        let account = ObjectRef { name: object::name(&account).to_owned(), uid: object::uid(&account).to_owned() };

        set_if(secret, "ca.crt", self.ca_pem.as_bytes(), |kept| kept != BASE64_STANDARD.encode(&self.ca_pem));
        set_if(secret, "namespace", namespace.as_bytes(), str::is_empty);
        if kept(secret, "token").is_empty() {
            if name.is_empty() {
                return Err(ApiError::internal("a token was asked for a Secret that has no name yet"));
            }
            let token = self.signer.mint_legacy(&namespace, &account, &name);
            let token = token.map_err(|error| ApiError::internal(Chain(&error)))?;
            set_if(secret, "token", token.reveal().as_bytes(), |_| true);
        }
        let mut annotations = secret["metadata"]["annotations"].clone();
        annotations[ACCOUNT_UID] = json!(account.uid);
        object::set_meta(secret, "annotations", annotations);
        Ok(())
    }

    /// The service account that a token Secret names, if it is there (and the very one, if the Secret says which).
    fn account_of(&self, secret: &Value) -> Option<Value> {
        let name = object::annotation(secret, ACCOUNT_NAME).filter(|name| !name.is_empty())?;
        let account = self.service_accounts.get(&format!("{}/{name}", object::namespace(secret)))?.json();
        let uid = object::annotation(secret, ACCOUNT_UID).unwrap_or_default();
        let is_meant =
            (uid.is_empty() || uid == object::uid(&account)) && object::deletion_timestamp(&account).is_none();
        is_meant.then_some(account)
    }
}

fn kept<'a>(secret: &'a Value, key: &str) -> &'a str {
    secret.get("data").and_then(|data| data.get(key)).and_then(Value::as_str).unwrap_or_default()
}

/// Sets one value of `data` if what is there (base64, empty when absent) is not to stay.
fn set_if(secret: &mut Value, key: &str, value: &[u8], replace: impl Fn(&str) -> bool) {
    if !replace(kept(secret, key)) {
        return;
    }
    if !secret["data"].is_object() {
        secret["data"] = json!({});
    }
    secret["data"][key] = Value::from(BASE64_STANDARD.encode(value));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::testing::{Keys, TestCache, object};

    fn token_secret(annotations: Value) -> Value {
        let mut secret = object("Secret", "ns", "sa-token", "");
        secret["type"] = json!(SECRET_TYPE);
        object::set_meta(&mut secret, "annotations", annotations);
        secret
    }

    fn text(secret: &Value, key: &str) -> String {
        String::from_utf8(BASE64_STANDARD.decode(kept(secret, key)).unwrap()).unwrap()
    }

    #[tokio::test]
    async fn token_secrets_are_filled_at_once() {
        let keys = Keys::new();
        let cache = TestCache::new([object("ServiceAccount", "ns", "sa", "uid-1")]).await;
        let tokens = keys.tokens(&cache);
        let mut secret = token_secret(json!({ACCOUNT_NAME: "sa"}));
        tokens.fill_token_secret(&mut secret).unwrap();
        assert_eq!(text(&secret, "namespace"), "ns");
        assert!(text(&secret, "ca.crt").starts_with("-----BEGIN CERTIFICATE-----"));
        assert_eq!(object::annotation(&secret, ACCOUNT_UID), Some("uid-1"));

        // Good once the Secret is stored, and only for as long.
        let token = text(&secret, "token");
        let authenticator = keys.authenticator(&cache);
        assert!(authenticator.identify_token(&token, &[]).unwrap_err().contains("Token has been invalidated"));
        cache.put(&secret).await;
        let user = authenticator.identify_token(&token, &[]).unwrap().user;
        assert_eq!(user.name, "system:serviceaccount:ns:sa");
        assert_eq!(user.uid, "uid-1");

        let before = secret.clone();
        tokens.fill_token_secret(&mut secret).unwrap();
        assert_eq!(secret, before, "filling again changes nothing");
    }

    #[tokio::test]
    async fn other_secrets_are_left_alone() {
        let keys = Keys::new();
        let cache = TestCache::new([object("ServiceAccount", "ns", "sa", "uid-1")]).await;
        let tokens = keys.tokens(&cache);
        let mut opaque = token_secret(json!({ACCOUNT_NAME: "sa"}));
        opaque["type"] = json!("Opaque");
        let table = [
            opaque,
            token_secret(json!({})),
            token_secret(json!({ACCOUNT_NAME: "later"})),
            token_secret(json!({ACCOUNT_NAME: "sa", ACCOUNT_UID: "another"})),
        ];
        for secret in table {
            let mut filled = secret.clone();
            tokens.fill_token_secret(&mut filled).unwrap();
            assert_eq!(filled, secret);
        }
    }
}
