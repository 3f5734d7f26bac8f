//! Pods that wait to be ended by a node that does not exist.
//!
//! A pod on a node is given time to end; the node says when it has. Without the node nobody would, and the pod would
//! stay, and hold its namespace, for ever. Upstream's pod garbage collector does this too.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use croft_reconcile::{Error, Event, Keys, Loop, Object, Source, Tasks, failure, watch};
use futures::StreamExt;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::jiff::Timestamp;
use kube::api::{DeleteParams, Preconditions};
use kube::{Api, Client};
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use crate::discovery::builtin;

/// A namespace and a name.
type Key = (String, String);

struct Pods {
    client: Client,
    /// The pods that are being deleted.
    ending: Mutex<HashSet<Key>>,
}

pub(crate) async fn run(client: Client, stop: CancellationToken) {
    let (keys, received) = Keys::channel();
    let pods = Arc::new(Pods { client, ending: Mutex::default() });
    let mut tasks = Tasks::default();
    tasks.spawn(Arc::clone(&pods).follow_pods(keys.clone()));
    tasks.spawn(Arc::clone(&pods).follow_nodes(keys));
    let reconcile = |key: Key| {
        let pods = Arc::clone(&pods);
        async move { pods.reconcile(key).await }
    };
    let work = Loop { name: "orphaned pod", workers: 2, stop };
    tokio::select! {
        () = work.run(received, std::future::ready(()), reconcile) => {}
        () = async { loop { tasks.watch_over().await } } => {}
    }
}

impl Pods {
    async fn follow_pods(self: Arc<Self>, keys: Keys<Key>) {
        let mut events = watch::<Object>(self.client.clone(), Source::all(builtin("", "v1", "Pod", "pods")));
        while let Some(event) = events.next().await {
            match event {
                Event::Applied(pod) if pod.metadata.is_being_deleted() => {
                    let key = (pod.metadata.namespace.to_string(), pod.metadata.name.to_string());
                    self.ending.lock().insert(key.clone());
                    keys.send(key, Duration::ZERO).await;
                }
                Event::Deleted(pod) => {
                    let key = (pod.metadata.namespace.to_string(), pod.metadata.name.to_string());
                    self.ending.lock().remove(&key);
                }
                Event::Restarted => self.ending.lock().clear(),
                Event::Applied(_) | Event::Synced => {}
            }
        }
    }

    /// A node that goes takes its word with it.
    async fn follow_nodes(self: Arc<Self>, keys: Keys<Key>) {
        let mut events = watch::<Object>(self.client.clone(), Source::all(builtin("", "v1", "Node", "nodes")));
        while let Some(event) = events.next().await {
            if !matches!(event, Event::Deleted(_) | Event::Synced) {
                continue;
            }
            let ending: Vec<Key> = self.ending.lock().iter().cloned().collect();
            for key in ending {
                keys.send(key, Duration::ZERO).await;
            }
        }
    }

    async fn reconcile(&self, (namespace, name): Key) -> Result<(), Error> {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &namespace);
        let Some(pod) = pods.get_opt(&name).await? else { return Ok(()) };
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).unwrap_or_default();
        let Some(end) = pod.metadata.deletion_timestamp.as_ref().filter(|_| !node.is_empty()) else { return Ok(()) };
        if Api::<Node>::all(self.client.clone()).get_metadata_opt(node).await?.is_some() {
            return Ok(());
        }
        if Timestamp::now() < end.0 {
            return Err(Error::NotYet(format!("pod {namespace}/{name} has until {} to end", end.0)));
        }
        let params = DeleteParams {
            grace_period_seconds: Some(0),
            preconditions: Some(Preconditions { uid: pod.metadata.uid, resource_version: None }),
            ..DeleteParams::default()
        };
        match pods.delete(&name, &params).await {
            Err(error) if !failure::is_not_found(&error) && !failure::is_conflict(&error) => Err(error.into()),
            _ => Ok(()),
        }
    }
}
