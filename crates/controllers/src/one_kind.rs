//! A controller that looks at the objects of one kind, each by itself.

use std::future::Future;
use std::time::Duration;

use croft_reconcile::{Cache, Change, Error, Key, Keys, Loop, Source, Tasks};
use futures::StreamExt;
use kube::{Client, Resource};
use serde::de::DeserializeOwned;
use tokio_util::sync::CancellationToken;

/// Has `reconcile` look at every object, and again when it changes, until `stop`. `wait` says how long a change can wait;
/// `None` is for one that does not matter.
pub(crate) async fn run<K, F, W>(
    name: &'static str,
    client: Client,
    stop: CancellationToken,
    wait: fn(&Change<K>) -> Option<Duration>,
    reconcile: F,
) where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Send + Sync + 'static,
    F: Fn(Client, Cache<K>, Key) -> W,
    W: Future<Output = Result<(), Error>>,
{
    let (keys, received) = Keys::channel();
    let cache: Cache<K> = Cache::default();
    let mut tasks = Tasks::default();
    let (followed, source) = (cache.clone(), client.clone());
    tasks.spawn(async move {
        let mut changes = std::pin::pin!(followed.follow(source, Source::of::<K>()));
        while let Some(change) = changes.next().await {
            if let Some(wait) = wait(&change) {
                keys.send(change.key, wait).await;
            }
        }
    });
    let work = Loop { name, workers: 1, stop };
    let reconcile = |key: Key| reconcile(client.clone(), cache.clone(), key);
    tokio::select! {
        () = work.run(received, cache.synced(), reconcile) => {}
        () = async { loop { tasks.watch_over().await } } => {}
    }
}
