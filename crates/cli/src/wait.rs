//! Waiting until an object is as wanted, by watching it.

use std::time::Duration;

use anyhow::{Context, bail};
use futures::StreamExt;
use http::Request;
use kube::api::WatchEvent;
use serde_json::Value;
use tokio::time::Instant;

use crate::client::{Client, Kind};

/// A watch that ends early is opened again, but not in a hurry.
const AGAIN: Duration = Duration::from_millis(200);

/// What a look at the object says.
pub(crate) enum Seen<T> {
    Done(T),
    NotYet,
}

/// Looks at the object now and on every change, until `look` is satisfied, fails, or time is up. `look` gets None while
/// there is no such object.
pub(crate) async fn until<T>(
    client: &Client,
    kind: Kind,
    namespace: &str,
    name: &str,
    patience: Duration,
    mut look: impl FnMut(Option<&Value>) -> anyhow::Result<Seen<T>>,
) -> anyhow::Result<T> {
    let deadline = Instant::now() + patience;
    let watched = watch(client, kind, namespace, name, &mut look);
    if let Ok(result) = tokio::time::timeout_at(deadline, watched).await {
        return result;
    }
    let what = kind.plural.trim_end_matches('s');
    bail!("{what} {name} is not there yet after {} s; look at it with \"kubectl describe\"", patience.as_secs())
}

async fn watch<T>(
    client: &Client,
    kind: Kind,
    namespace: &str,
    name: &str,
    look: &mut impl FnMut(Option<&Value>) -> anyhow::Result<Seen<T>>,
) -> anyhow::Result<T> {
    let path = kind.one(namespace, name)?;
    let all = kind.all(namespace);
    loop {
        let found = client.find(&path).await?;
        if let Seen::Done(value) = look(found.as_ref())? {
            return Ok(value);
        }
        // Not there: whatever comes next is news. There: news since then.
        let seen = match found {
            Some(object) => object,
            None => client.get(&format!("{all}?limit=1&fieldSelector=metadata.name%3D{name}")).await?,
        };
        let version = seen["metadata"]["resourceVersion"].as_str().unwrap_or_default();
        let uri = format!("{all}?watch=true&fieldSelector=metadata.name%3D{name}&resourceVersion={version}");
        let events = client.kube().request_events::<Value>(Request::get(uri).body(Vec::new())?).await;
        let mut events = events.context("cannot watch")?.boxed();
        while let Some(Ok(event)) = events.next().await {
            let seen = match event {
                WatchEvent::Added(object) | WatchEvent::Modified(object) => look(Some(&object))?,
                WatchEvent::Deleted(_) => look(None)?,
                WatchEvent::Bookmark(_) => continue,
                WatchEvent::Error(_) => break,
            };
            if let Seen::Done(value) = seen {
                return Ok(value);
            }
        }
        tokio::time::sleep(AGAIN).await;
    }
}
