//! Secrets of type `kubernetes.io/service-account-token`.
//!
//! The API server fills them when they are written and their account is there. This controller has them written again
//! when the account comes later, and deletes them when it goes. A Secret that never had an account waits for one:
//! manifests are often applied in any order. (Upstream deletes such a Secret at once.)

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use croft_reconcile::{Error, Event, Keys, Loop, Object, Observed, Source, Tasks, failure, watch};
use futures::StreamExt;
use k8s_openapi::api::core::v1::{ObjectReference, Secret, ServiceAccount};
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use kube::{Api, Client};
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::MANAGER;
use crate::discovery::builtin;

const TYPE: &str = "kubernetes.io/service-account-token";
const ACCOUNT_NAME: &str = "kubernetes.io/service-account.name";
const ACCOUNT_UID: &str = "kubernetes.io/service-account.uid";

/// A namespace and a name.
type Key = (String, String);

#[derive(Clone, Debug, Deserialize)]
struct TokenSecret {
    metadata: TokenMeta,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct TokenMeta {
    name: String,
    namespace: String,
    resource_version: String,
    annotations: Annotations,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Annotations {
    #[serde(rename = "kubernetes.io/service-account.name")]
    account: String,
}

impl Observed for TokenSecret {
    fn resource_version(&self) -> &str {
        &self.metadata.resource_version
    }
}

struct Tokens {
    client: Client,
    /// The accounts that token Secrets name.
    accounts: Mutex<HashMap<Key, String>>,
}

pub(crate) async fn run(client: Client, stop: CancellationToken) {
    let (keys, received) = Keys::channel();
    let tokens = Arc::new(Tokens { client, accounts: Mutex::default() });
    let mut tasks = Tasks::default();
    tasks.spawn(Arc::clone(&tokens).follow_secrets(keys.clone()));
    tasks.spawn(Arc::clone(&tokens).follow_accounts(keys));
    let reconcile = |key: Key| {
        let tokens = Arc::clone(&tokens);
        async move { tokens.reconcile(key).await }
    };
    let work = Loop { name: "token secret", workers: 2, stop };
    tokio::select! {
        () = work.run(received, std::future::ready(()), reconcile) => {}
        () = async { loop { tasks.watch_over().await } } => {}
    }
}

impl Tokens {
    async fn follow_secrets(self: Arc<Self>, keys: Keys<Key>) {
        let resource = builtin("", "v1", "Secret", "secrets");
        let source =
            Source { resource, labels: None, fields: Some("type=kubernetes.io/service-account-token".to_owned()) };
        let mut events = watch::<TokenSecret>(self.client.clone(), source);
        while let Some(event) = events.next().await {
            let metadata = match event {
                Event::Applied(secret) | Event::Deleted(secret) => secret.metadata,
                Event::Restarted | Event::Synced => continue,
            };
            let key = (metadata.namespace, metadata.name);
            self.accounts.lock().insert(key.clone(), metadata.annotations.account);
            keys.send(key, Duration::ZERO).await;
        }
    }

    async fn follow_accounts(self: Arc<Self>, keys: Keys<Key>) {
        let source = Source::all(builtin("", "v1", "ServiceAccount", "serviceaccounts"));
        let mut events = watch::<Object>(self.client.clone(), source);
        while let Some(event) = events.next().await {
            let woken: Vec<Key> = match event {
                Event::Applied(account) | Event::Deleted(account) => {
                    self.naming(&account.metadata.namespace, &account.metadata.name)
                }
                Event::Restarted => continue,
                // An account may have gone unseen.
                Event::Synced => self.accounts.lock().keys().cloned().collect(),
            };
            for key in woken {
                keys.send(key, Duration::ZERO).await;
            }
        }
    }

    fn naming(&self, namespace: &str, account: &str) -> Vec<Key> {
        let accounts = self.accounts.lock();
        let named = accounts.iter().filter(|((ns, _), name)| ns == namespace && *name == account);
        named.map(|(key, _)| key.clone()).collect()
    }

    async fn reconcile(&self, key: Key) -> Result<(), Error> {
        let (namespace, name) = &key;
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), namespace);
        let accounts: Api<ServiceAccount> = Api::namespaced(self.client.clone(), namespace);
        let Some(secret) = secrets.get_opt(name).await?.filter(|secret| secret.type_.as_deref() == Some(TYPE)) else {
            let account = self.accounts.lock().remove(&key);
            return forget(&accounts, account.as_deref().unwrap_or_default(), name).await;
        };
        let account = annotation(&secret, ACCOUNT_NAME);
        if secret.metadata.deletion_timestamp.is_some() || account.is_empty() {
            return Ok(());
        }
        let account = accounts.get_metadata_opt(account).await?;
        let account_uid = account.as_ref().and_then(|account| account.metadata.uid.as_deref());
        match decide(&secret, account_uid) {
            Decision::Keep => Ok(()),
            Decision::Fill(uid) => fill(&secrets, name, &secret, uid).await,
            Decision::Delete => delete(&secrets, name, secret).await,
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Decision<'a> {
    Keep,
    /// Of the account with this UID.
    Fill(&'a str),
    Delete,
}

fn decide<'a>(secret: &Secret, account_uid: Option<&'a str>) -> Decision<'a> {
    let bound_to = annotation(secret, ACCOUNT_UID);
    let Some(uid) = account_uid else {
        return if bound_to.is_empty() { Decision::Keep } else { Decision::Delete };
    };
    if !bound_to.is_empty() && bound_to != uid {
        return Decision::Delete;
    }
    let has = |key: &str| secret.data.as_ref().and_then(|data| data.get(key)).is_some_and(|value| !value.0.is_empty());
    let is_filled = !bound_to.is_empty() && has("token") && has("ca.crt") && has("namespace");
    if is_filled { Decision::Keep } else { Decision::Fill(uid) }
}

fn annotation<'a>(secret: &'a Secret, key: &str) -> &'a str {
    secret.metadata.annotations.as_ref().and_then(|annotations| annotations.get(key)).map_or("", String::as_str)
}

/// Names the account; the server puts in the rest.
async fn fill(secrets: &Api<Secret>, name: &str, secret: &Secret, account_uid: &str) -> Result<(), Error> {
    let patch = json!({ "metadata": {
        "uid": secret.metadata.uid,
        "resourceVersion": secret.metadata.resource_version,
        "annotations": { ACCOUNT_UID: account_uid },
    }});
    let params = PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
    failure::absent_is_none(secrets.patch_metadata(name, &params, &Patch::Merge(patch)).await)?;
    Ok(())
}

async fn delete(secrets: &Api<Secret>, name: &str, secret: Secret) -> Result<(), Error> {
    let same = Preconditions { uid: secret.metadata.uid, resource_version: secret.metadata.resource_version };
    failure::absent_is_none(secrets.delete(name, &DeleteParams::default().preconditions(same)).await)?;
    Ok(())
}

/// Takes a Secret that went out of its account's list.
async fn forget(accounts: &Api<ServiceAccount>, account: &str, secret: &str) -> Result<(), Error> {
    if account.is_empty() {
        return Ok(());
    }
    let Some(found) = accounts.get_opt(account).await? else { return Ok(()) };
    let listed = found.secrets.unwrap_or_default();
    let kept: Vec<&ObjectReference> = listed.iter().filter(|s| s.name.as_deref() != Some(secret)).collect();
    if kept.len() == listed.len() {
        return Ok(());
    }
    let metadata = json!({ "uid": found.metadata.uid, "resourceVersion": found.metadata.resource_version });
    let params = PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
    let patch = Patch::Merge(json!({ "metadata": metadata, "secrets": kept }));
    failure::absent_is_none(accounts.patch_metadata(account, &params, &patch).await)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(bound_to: &str, is_filled: bool) -> Secret {
        let mut secret = json!({
            "metadata": { "name": "token", "annotations": { ACCOUNT_NAME: "sa" } },
            "type": TYPE,
        });
        if !bound_to.is_empty() {
            secret["metadata"]["annotations"][ACCOUNT_UID] = json!(bound_to);
        }
        if is_filled {
            secret["data"] = json!({ "token": "YQ==", "ca.crt": "YQ==", "namespace": "YQ==" });
        }
        serde_json::from_value(secret).unwrap()
    }

    #[test]
    fn token_secrets_follow_their_account() {
        let table = [
            (secret("", false), None, Decision::Keep),
            (secret("", false), Some("1"), Decision::Fill("1")),
            (secret("1", true), Some("1"), Decision::Keep),
            (secret("1", false), Some("1"), Decision::Fill("1")),
            (secret("1", true), None, Decision::Delete),
            (secret("1", true), Some("2"), Decision::Delete),
        ];
        for (secret, account, decision) in table {
            assert_eq!(decide(&secret, account), decision);
        }
    }
}
