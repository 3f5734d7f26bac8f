//! What every active namespace has: the ServiceAccount `default`, and the ConfigMap `kube-root-ca.crt` by which pods trust
//! the API server. Both come back when they are deleted.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use croft_reconcile::{Error, Event, Keys, Loop, Object, Source, Tasks, failure, watch};
use futures::StreamExt;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, ServiceAccount};
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Client};
use tokio_util::sync::CancellationToken;

use crate::MANAGER;
use crate::discovery::builtin;

const ACCOUNT: &str = "default";
const ROOT_CA: &str = "kube-root-ca.crt";
const CA_KEY: &str = "ca.crt";
const DESCRIPTION_KEY: &str = "kubernetes.io/description";
/// Upstream's text: some tools compare it.
const DESCRIPTION: &str = "Contains a CA bundle that can be used to verify the kube-apiserver when using internal \
     endpoints such as the internal service IP or kubernetes.default.svc. No other usage is guaranteed across \
     distributions of Kubernetes clusters.";
/// The three watches often tell of the same namespace at once.
const SETTLE: Duration = Duration::from_millis(5);

struct Defaults {
    client: Client,
    ca_pem: String,
}

pub(crate) async fn run(client: Client, ca_pem: String, stop: CancellationToken) {
    let (keys, received) = Keys::channel();
    let mut tasks = Tasks::default();
    tasks.spawn(follow_namespaces(client.clone(), keys.clone()));
    let accounts = builtin("", "v1", "ServiceAccount", "serviceaccounts");
    let accounts = Source { resource: accounts, labels: None, fields: Some("metadata.name=default".to_owned()) };
    tasks.spawn(follow_objects(client.clone(), accounts, keys.clone()));
    let maps = builtin("", "v1", "ConfigMap", "configmaps");
    let maps = Source { resource: maps, labels: None, fields: Some("metadata.name=kube-root-ca.crt".to_owned()) };
    tasks.spawn(follow_objects(client.clone(), maps, keys));
    let defaults = Arc::new(Defaults { client, ca_pem });
    let reconcile = |namespace: String| {
        let defaults = Arc::clone(&defaults);
        async move { defaults.reconcile(&namespace).await }
    };
    let work = Loop { name: "service account", workers: 4, stop };
    tokio::select! {
        () = work.run(received, std::future::ready(()), reconcile) => {}
        () = async { loop { tasks.watch_over().await } } => {}
    }
}

async fn follow_namespaces(client: Client, keys: Keys<String>) {
    let mut events = watch::<Object>(client, Source::all(builtin("", "v1", "Namespace", "namespaces")));
    while let Some(event) = events.next().await {
        if let Event::Applied(namespace) = event
            && !namespace.metadata.is_being_deleted()
        {
            keys.send(namespace.metadata.name.into(), SETTLE).await;
        }
    }
}

async fn follow_objects(client: Client, source: Source, keys: Keys<String>) {
    let mut events = watch::<Object>(client, source);
    while let Some(event) = events.next().await {
        if let Event::Applied(object) | Event::Deleted(object) = event {
            keys.send(object.metadata.namespace.into(), SETTLE).await;
        }
    }
}

impl Defaults {
    async fn reconcile(&self, namespace: &str) -> Result<(), Error> {
        let namespaces: Api<Namespace> = Api::all(self.client.clone());
        let found = namespaces.get_metadata_opt(namespace).await?;
        if found.is_none_or(|found| found.metadata.deletion_timestamp.is_some()) {
            return Ok(());
        }
        self.ensure_account(namespace).await?;
        self.ensure_root_ca(namespace).await
    }

    async fn ensure_account(&self, namespace: &str) -> Result<(), Error> {
        let accounts: Api<ServiceAccount> = Api::namespaced(self.client.clone(), namespace);
        if accounts.get_metadata_opt(ACCOUNT).await?.is_some() {
            return Ok(());
        }
        let account = ServiceAccount { metadata: named(ACCOUNT), ..ServiceAccount::default() };
        created(accounts.create(&params(), &account).await)
    }

    async fn ensure_root_ca(&self, namespace: &str) -> Result<(), Error> {
        let maps: Api<ConfigMap> = Api::namespaced(self.client.clone(), namespace);
        let wanted = BTreeMap::from([(CA_KEY.to_owned(), self.ca_pem.clone())]);
        let Some(mut map) = maps.get_opt(ROOT_CA).await? else {
            let mut map = ConfigMap { metadata: named(ROOT_CA), data: Some(wanted), ..ConfigMap::default() };
            describe(&mut map.metadata);
            return created(maps.create(&params(), &map).await);
        };
        let described = map.metadata.annotations.iter().flatten().any(|(k, v)| k == DESCRIPTION_KEY && !v.is_empty());
        if described && map.data.as_ref() == Some(&wanted) {
            return Ok(());
        }
        map.data = Some(wanted);
        describe(&mut map.metadata);
        failure::absent_is_none(maps.replace(ROOT_CA, &params(), &map).await)?;
        Ok(())
    }
}

fn named(name: &str) -> ObjectMeta {
    ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() }
}

fn describe(metadata: &mut ObjectMeta) {
    let annotations = metadata.annotations.get_or_insert_default();
    annotations.insert(DESCRIPTION_KEY.to_owned(), DESCRIPTION.to_owned());
}

fn params() -> PostParams {
    PostParams { field_manager: Some(MANAGER.to_owned()), ..PostParams::default() }
}

/// Fine too: it is there by now, or its namespace is going.
fn created<T>(result: Result<T, kube::Error>) -> Result<(), Error> {
    match result {
        Err(error)
            if failure::is_conflict(&error)
                || failure::is_not_found(&error)
                || failure::is_namespace_terminating(&error) =>
        {
            Ok(())
        }
        result => Ok(result.map(drop)?),
    }
}
