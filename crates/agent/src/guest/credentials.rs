//! Keys and passwords that the guest's agent puts into the guest, and keeps as the Secrets say.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use croft_api::kubevirt::{AccessCredential, VirtualMachineInstance};
use croft_qemu::qga::Agent;
use croft_reconcile::{Event, Object, Source, failure, watch as follow};
use futures::StreamExt;
use futures::stream::{self, BoxStream, SelectAll};
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client};
use tokio::sync::watch;

/// What one guest is to be given.
pub(crate) struct Credentials {
    client: Option<Client>,
    object: watch::Receiver<Arc<VirtualMachineInstance>>,
    /// What the guest has by now.
    applied: Option<Wanted>,
    /// What happens to the Secrets; without any, nothing does.
    secrets: SelectAll<BoxStream<'static, Event<Object>>>,
}

/// Keys and passwords by the names of users.
#[derive(Debug, Default, PartialEq, Eq)]
struct Wanted {
    keys: BTreeMap<String, Vec<String>>,
    passwords: BTreeMap<String, String>,
}

impl Credentials {
    pub(crate) fn new(client: Option<Client>, object: watch::Receiver<Arc<VirtualMachineInstance>>) -> Self {
        let secrets = client.iter().flat_map(|client| follow_secrets(client, &object.borrow())).collect();
        Self { client, object, applied: None, secrets: stream::select_all::<Vec<_>>(secrets) }
    }

    /// Comes back when a Secret that the guest is given something of has changed.
    pub(super) async fn changed(&mut self) {
        loop {
            match self.secrets.next().await {
                Some(Event::Applied(_) | Event::Deleted(_)) => return,
                Some(Event::Restarted | Event::Synced) => {}
                None => std::future::pending().await,
            }
        }
    }

    /// A guest that comes anew, from a restart perhaps, is given everything again.
    pub(super) fn forget(&mut self) {
        self.applied = None;
    }

    /// Gives the guest what it does not have yet. None if it is to have nothing.
    pub(super) async fn apply(&mut self, agent: &Agent) -> Option<Result<(), String>> {
        let object = Arc::clone(&self.object.borrow());
        let credentials: Vec<_> = object.spec.access_credentials.iter().filter(|one| is_for_agent(one)).collect();
        if credentials.is_empty() {
            return None;
        }
        let client = self.client.clone()?;
        let namespace = object.metadata.namespace.as_deref().unwrap_or_default();
        let secrets: Api<Secret> = Api::namespaced(client, namespace);
        let outcome = match wanted(&secrets, &credentials).await {
            Ok(wanted) if self.applied.as_ref() == Some(&wanted) => Ok(()),
            Ok(wanted) => give(agent, &wanted).await.map(|()| self.applied = Some(wanted)),
            Err(message) => Err(message),
        };
        Some(outcome)
    }
}

/// One watch for each Secret: a node has few guests that are given something, and clusters have many Secrets.
fn follow_secrets(client: &Client, vmi: &VirtualMachineInstance) -> Vec<BoxStream<'static, Event<Object>>> {
    let namespace = vmi.metadata.namespace.as_deref().unwrap_or_default();
    let credentials = vmi.spec.access_credentials.iter().filter(|one| is_for_agent(one));
    let of_key = |one: &AccessCredential| one.ssh_public_key.as_ref()?.source.secret.clone();
    let of_password = |one: &AccessCredential| one.user_password.as_ref()?.source.secret.clone();
    let names = credentials.flat_map(|one| [of_key(one), of_password(one)]).flatten().map(|source| source.secret_name);
    let names: BTreeSet<String> = names.collect();
    let follow_one = |name: String| {
        let fields = Some(format!("metadata.namespace={namespace},metadata.name={name}"));
        follow(client.clone(), Source { fields, ..Source::of::<Secret>() })
    };
    names.into_iter().map(|name| follow_one(name) as BoxStream<'static, _>).collect()
}

fn is_for_agent(credential: &AccessCredential) -> bool {
    let by_key =
        credential.ssh_public_key.as_ref().is_some_and(|key| key.propagation_method.qemu_guest_agent.is_some());
    let by_password =
        credential.user_password.as_ref().is_some_and(|one| one.propagation_method.qemu_guest_agent.is_some());
    by_key || by_password
}

async fn wanted(secrets: &Api<Secret>, credentials: &[&AccessCredential]) -> Result<Wanted, String> {
    let mut wanted = Wanted::default();
    for credential in credentials {
        if let Some(key) = &credential.ssh_public_key
            && let Some(method) = &key.propagation_method.qemu_guest_agent
            && let Some(source) = &key.source.secret
        {
            let keys: Vec<String> = values(secrets, &source.secret_name).await?.into_values().collect();
            let keys = keys.iter().flat_map(|text| text.lines()).map(str::trim).filter(|line| !line.is_empty());
            let keys: Vec<String> = keys.map(str::to_owned).collect();
            for user in &method.users {
                wanted.keys.entry(user.clone()).or_default().extend(keys.iter().cloned());
            }
        }
        if let Some(password) = &credential.user_password
            && password.propagation_method.qemu_guest_agent.is_some()
            && let Some(source) = &password.source.secret
        {
            let passwords = values(secrets, &source.secret_name).await?;
            wanted.passwords.extend(passwords.into_iter().map(|(user, text)| (user, text.trim_end().to_owned())));
        }
    }
    Ok(wanted)
}

async fn values(secrets: &Api<Secret>, name: &str) -> Result<BTreeMap<String, String>, String> {
    let secret = secrets.get(name).await.map_err(|error| format!("secret {name}: {}", failure::message(&error)))?;
    let text = |(key, value): (String, k8s_openapi::ByteString)| {
        let value = String::from_utf8(value.0).map_err(|_| format!("secret {name}: {key} is not text"))?;
        Ok((key, value))
    };
    secret.data.unwrap_or_default().into_iter().map(text).collect()
}

async fn give(agent: &Agent, wanted: &Wanted) -> Result<(), String> {
    for (user, keys) in &wanted.keys {
        let given = agent.ssh_add_authorized_keys(user, keys, true).await;
        given.map_err(|error| format!("keys of user {user}: {error}"))?;
    }
    for (user, password) in &wanted.passwords {
        let given = agent.set_user_password(user, password, false).await;
        given.map_err(|error| format!("password of user {user}: {error}"))?;
    }
    Ok(())
}
