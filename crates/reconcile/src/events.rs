//! Events: what users read when they ask what happened to an object.
//!
//! Telling must never hold up the work or fail it: events go through a queue, and those that do not fit are lost. The
//! same event told again counts up instead of piling up.

use std::collections::HashMap;
use std::time::Duration;

use croft_meta::Chain;
use k8s_openapi::api::core::v1::{Event, EventSource, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::api::{ObjectMeta, Patch, PatchParams, PostParams};
use kube::{Api, Client, Resource};
use serde_json::json;
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::failure;

/// How many may wait to be written.
const QUEUE: usize = 512;
/// How many are remembered, to be counted up when they come again.
const REMEMBERED: usize = 2048;
/// A repeated event is written no more often than this.
const REPEAT: Duration = Duration::from_secs(5);
/// A message longer than this is cut.
const LONGEST_MESSAGE: usize = 1024;

/// Where events go in. Clones go to the same place.
#[derive(Clone, Debug)]
pub struct Events(mpsc::Sender<Told>);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Told {
    uid: String,
    api_version: String,
    kind: String,
    namespace: String,
    name: String,
    /// `Normal` or `Warning`.
    type_: &'static str,
    reason: String,
    message: String,
}

/// An event that was written before.
#[derive(Debug)]
struct Written {
    name: String,
    count: i32,
    at: Instant,
}

impl Events {
    /// The second half writes what is told, for as long as it is polled; `component` says who tells.
    pub fn channel(client: Client, component: &'static str) -> (Self, impl Future<Output = ()> + Send + use<>) {
        let (send, mut told) = mpsc::channel(QUEUE);
        let mut writer = Writer { client, component, written: HashMap::new() };
        let write = async move {
            while let Some(told) = told.recv().await {
                writer.write(told).await;
            }
        };
        (Self(send), write)
    }

    pub fn normal<K: Resource<DynamicType = ()>>(&self, about: &K, reason: &str, message: &str) {
        self.tell(about, "Normal", reason, message);
    }

    pub fn warning<K: Resource<DynamicType = ()>>(&self, about: &K, reason: &str, message: &str) {
        self.tell(about, "Warning", reason, message);
    }

    fn tell<K: Resource<DynamicType = ()>>(&self, about: &K, type_: &'static str, reason: &str, message: &str) {
        let meta = about.meta();
        let text = |field: &Option<String>| field.clone().unwrap_or_default();
        let told = Told {
            uid: text(&meta.uid),
            api_version: K::api_version(&()).into_owned(),
            kind: K::kind(&()).into_owned(),
            namespace: text(&meta.namespace),
            name: text(&meta.name),
            type_,
            reason: reason.to_owned(),
            message: message.chars().take(LONGEST_MESSAGE).collect(),
        };
        if let Err(error) = self.0.try_send(told) {
            tracing::debug!(%error, reason, "an event was not told");
        }
    }
}

struct Writer {
    client: Client,
    component: &'static str,
    written: HashMap<Told, Written>,
}

impl Writer {
    async fn write(&mut self, told: Told) {
        // What is not in a namespace has its events in this one, as upstream has it.
        let namespace = if told.namespace.is_empty() { "default" } else { &told.namespace };
        let events: Api<Event> = Api::namespaced(self.client.clone(), namespace);
        if let Some(before) = self.written.get_mut(&told) {
            before.count = before.count.saturating_add(1);
            if before.at.elapsed() < REPEAT {
                return;
            }
            before.at = Instant::now();
            let patch = json!({"count": before.count, "lastTimestamp": now()});
            let patch = Patch::Merge(&patch);
            match failure::absent_is_none(events.patch(&before.name, &PatchParams::default(), &patch).await) {
                Ok(Some(_)) => return,
                Ok(None) => drop(self.written.remove(&told)),
                Err(error) => return lost(&error),
            }
        }
        let event = self.event(&told);
        let name = event.metadata.name.clone().unwrap_or_default();
        match events.create(&PostParams::default(), &event).await {
            Ok(_) => self.remember(told, name),
            Err(error) => lost(&error),
        }
    }

    fn remember(&mut self, told: Told, name: String) {
        if self.written.len() >= REMEMBERED {
            self.written.clear();
        }
        self.written.insert(told, Written { name, count: 1, at: Instant::now() });
    }

    fn event(&self, told: &Told) -> Event {
        let nanoseconds = Timestamp::now().as_nanosecond();
        let text = |text: &str| Some(text.to_owned());
        Event {
            metadata: ObjectMeta {
                name: Some(format!("{}.{nanoseconds:x}", told.name)),
                namespace: text(&told.namespace).filter(|namespace| !namespace.is_empty()),
                ..ObjectMeta::default()
            },
            involved_object: ObjectReference {
                api_version: text(&told.api_version),
                kind: text(&told.kind),
                name: text(&told.name),
                namespace: text(&told.namespace).filter(|namespace| !namespace.is_empty()),
                uid: text(&told.uid),
                ..ObjectReference::default()
            },
            type_: text(told.type_),
            reason: text(&told.reason),
            message: text(&told.message),
            count: Some(1),
            first_timestamp: Some(now()),
            last_timestamp: Some(now()),
            source: Some(EventSource { component: text(self.component), host: None }),
            reporting_component: text(self.component),
            ..Event::default()
        }
    }
}

fn now() -> Time {
    Time(Timestamp::now())
}

fn lost(error: &kube::Error) {
    // In a namespace that is going, that is how it must be.
    if !failure::is_namespace_terminating(error) && !failure::is_not_found(error) {
        tracing::debug!(error = %Chain(error), "an event could not be written");
    }
}
