//! A watch that never ends: it lists by streaming, resumes where it was cut off, and starts over when told to.
//!
//! Only what a controller needs of an object is read off the wire; the rest is skipped, never built.

use std::pin::Pin;
use std::time::Duration;

use croft_meta::Chain;
use futures::stream::{self, BoxStream};
use futures::{Stream, StreamExt};
use k8s_openapi::apimachinery::pkg::apis::meta::v1 as meta_v1;
use kube::api::{ApiResource, ObjectMeta, WatchEvent, WatchParams};
use kube::{Client, Resource};
use serde::Deserialize;
use serde::de::{DeserializeOwned, IgnoredAny};
use tokio::time::Instant;

use crate::backoff::Backoff;
use crate::failure;

const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";
/// A watch that lived this long ended in the ordinary way, and is opened again at once.
const ORDINARY_LIFE: Duration = Duration::from_secs(1);

/// Watches are cut off now and then; one that stays so is another matter.
const WORTH_A_WARNING: Duration = Duration::from_secs(2);

/// What happens to the objects of one kind.
#[derive(Clone, Debug)]
pub enum Event<T> {
    /// All objects that are there follow, then [`Event::Synced`]. What was known before may be gone.
    Restarted,
    Applied(T),
    Deleted(T),
    Synced,
}

/// Something read from a watch.
pub trait Observed: Clone + DeserializeOwned + Send + 'static {
    fn resource_version(&self) -> &str;
}

/// The metadata that controllers look at.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Meta {
    pub name: Box<str>,
    pub namespace: Box<str>,
    pub uid: Box<str>,
    pub resource_version: Box<str>,
    deletion_timestamp: Option<IgnoredAny>,
    pub finalizers: Vec<Box<str>>,
    pub owner_references: Vec<OwnerReference>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct OwnerReference {
    pub api_version: Box<str>,
    pub kind: Box<str>,
    pub name: Box<str>,
    pub uid: Box<str>,
    pub block_owner_deletion: Option<bool>,
}

impl From<&ObjectMeta> for Meta {
    fn from(meta: &ObjectMeta) -> Self {
        let text = |field: &Option<String>| field.as_deref().unwrap_or_default().into();
        Self {
            name: text(&meta.name),
            namespace: text(&meta.namespace),
            uid: text(&meta.uid),
            resource_version: text(&meta.resource_version),
            deletion_timestamp: meta.deletion_timestamp.as_ref().map(|_| IgnoredAny),
            finalizers: meta.finalizers.iter().flatten().map(|finalizer| finalizer.as_str().into()).collect(),
            owner_references: meta.owner_references.iter().flatten().map(OwnerReference::from).collect(),
        }
    }
}

impl From<&meta_v1::OwnerReference> for OwnerReference {
    fn from(reference: &meta_v1::OwnerReference) -> Self {
        Self {
            api_version: reference.api_version.as_str().into(),
            kind: reference.kind.as_str().into(),
            name: reference.name.as_str().into(),
            uid: reference.uid.as_str().into(),
            block_owner_deletion: reference.block_owner_deletion,
        }
    }
}

impl Meta {
    pub fn is_being_deleted(&self) -> bool {
        self.deletion_timestamp.is_some()
    }

    pub fn has_finalizer(&self, name: &str) -> bool {
        self.finalizers.iter().any(|finalizer| **finalizer == *name)
    }
}

/// An object of which only the metadata is known.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Object {
    pub metadata: Meta,
}

impl Observed for Object {
    fn resource_version(&self) -> &str {
        &self.metadata.resource_version
    }
}

/// What to watch.
#[derive(Clone, Debug)]
pub struct Source {
    pub resource: ApiResource,
    pub labels: Option<String>,
    pub fields: Option<String>,
}

impl Source {
    pub fn all(resource: ApiResource) -> Self {
        Self { resource, labels: None, fields: None }
    }

    /// All objects of a kind that the compiler knows.
    pub fn of<K: Resource<DynamicType = ()>>() -> Self {
        Self::all(ApiResource::erase::<K>(&()))
    }
}

/// A whole object.
#[derive(Clone, Debug, Deserialize)]
#[serde(transparent)]
pub struct Whole<K>(pub K);

impl<K: Resource + Clone + DeserializeOwned + Send + 'static> Observed for Whole<K> {
    fn resource_version(&self) -> &str {
        self.0.meta().resource_version.as_deref().unwrap_or_default()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Metadata,
    Whole,
}

/// Follows the metadata of all objects of a kind, in all namespaces. The stream has no end; dropping it closes the watch.
pub fn watch<T: Observed>(client: Client, source: Source) -> Pin<Box<dyn Stream<Item = Event<T>> + Send>> {
    follow(client, source, Part::Metadata)
}

/// As [`watch`], with all that the objects are.
pub fn watch_whole<K>(client: Client, source: Source) -> Pin<Box<dyn Stream<Item = Event<Whole<K>>> + Send>>
where
    K: Resource + Clone + DeserializeOwned + Send + 'static,
{
    follow(client, source, Part::Whole)
}

fn follow<T: Observed>(client: Client, source: Source, part: Part) -> Pin<Box<dyn Stream<Item = Event<T>> + Send>> {
    let backoff = Backoff::default();
    let watcher = Watcher { client, source, part, version: None, open: None, is_listing: false, backoff };
    Box::pin(stream::unfold(watcher, |mut watcher| async move {
        let event = watcher.next().await;
        Some((event, watcher))
    }))
}

type Lines<T> = BoxStream<'static, Result<WatchEvent<T>, kube::Error>>;

struct Watcher<T> {
    client: Client,
    source: Source,
    part: Part,
    /// Where to resume; none if the objects must be listed first.
    version: Option<String>,
    open: Option<(Lines<T>, Instant)>,
    is_listing: bool,
    backoff: Backoff,
}

impl<T: Observed> Watcher<T> {
    async fn next(&mut self) -> Event<T> {
        loop {
            let Some((stream, since)) = &mut self.open else {
                if self.reopen().await {
                    return Event::Restarted;
                }
                continue;
            };
            let since = *since;
            match stream.next().await {
                Some(Ok(event)) => {
                    if let Some(event) = self.understand(event).await {
                        return event;
                    }
                }
                Some(Err(error)) => self.fail(&error).await,
                None => {
                    self.open = None;
                    if since.elapsed() < ORDINARY_LIFE {
                        tokio::time::sleep(self.backoff.next_delay()).await;
                    }
                }
            }
        }
    }

    /// True if it starts with a listing.
    async fn reopen(&mut self) -> bool {
        self.is_listing = self.version.is_none();
        match self.request().await {
            Ok(stream) => {
                self.open = Some((stream, Instant::now()));
                self.is_listing
            }
            Err(error) => {
                self.fail(&error).await;
                false
            }
        }
    }

    async fn request(&mut self) -> Result<Lines<T>, kube::Error> {
        let mut params = if self.is_listing { WatchParams::streaming_lists() } else { WatchParams::default() };
        params.label_selector.clone_from(&self.source.labels);
        params.field_selector.clone_from(&self.source.fields);
        let resource = &self.source.resource;
        let root = if resource.group.is_empty() { "/api" } else { "/apis" };
        let path = format!("{root}/{}/{}", resource.api_version, resource.plural);
        let (request, version) = (kube::core::Request::new(path), self.version.as_deref().unwrap_or_default());
        let request = match self.part {
            Part::Metadata => request.watch_metadata(&params, version),
            Part::Whole => request.watch(&params, version),
        };
        let request = request.map_err(kube::Error::BuildRequest)?;
        Ok(self.client.request_events::<T>(request).await?.boxed())
    }

    async fn understand(&mut self, event: WatchEvent<T>) -> Option<Event<T>> {
        match event {
            WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                self.seen(object.resource_version().to_owned());
                Some(Event::Applied(object))
            }
            WatchEvent::Deleted(object) => {
                self.seen(object.resource_version().to_owned());
                Some(Event::Deleted(object))
            }
            WatchEvent::Bookmark(bookmark) => {
                let ends_listing = self.is_listing && bookmark.metadata.annotations.contains_key(INITIAL_EVENTS_END);
                self.is_listing &= !ends_listing;
                self.seen(bookmark.metadata.resource_version);
                ends_listing.then_some(Event::Synced)
            }
            WatchEvent::Error(status) => {
                self.fail(&kube::Error::Api(status)).await;
                None
            }
        }
    }

    /// A listing that is cut off cannot be resumed, so its versions are not kept.
    fn seen(&mut self, version: String) {
        self.backoff.reset();
        if !self.is_listing {
            self.version = Some(version);
        }
    }

    async fn fail(&mut self, error: &kube::Error) {
        self.open = None;
        if failure::is_gone(error) {
            self.version = None;
        }
        let delay = self.backoff.next_delay();
        let kind = &self.source.resource.kind;
        if delay < WORTH_A_WARNING {
            tracing::debug!(kind, error = %Chain(error), ?delay, "a watch was interrupted");
        } else {
            tracing::warn!(kind, error = %Chain(error), ?delay, "a watch cannot be opened");
        }
        tokio::time::sleep(delay).await;
    }
}

#[cfg(test)]
mod tests;
