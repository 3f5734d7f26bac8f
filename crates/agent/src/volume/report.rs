//! What users are told of their volumes, as events.

use k8s_openapi::api::core::v1::{Node, ObjectReference};
use kube::runtime::events::{Event, EventType, Recorder, Reporter as Source};
use kube::{Client, Resource};

/// Who speaks.
const COMPONENT: &str = "driver.longhorn.io";

#[derive(Clone)]
pub(super) struct Reporter(Recorder);

impl std::fmt::Debug for Reporter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Reporter")
    }
}

impl Reporter {
    pub(super) fn new(client: Client, node: &str) -> Self {
        Self(Recorder::new(client, Source { controller: COMPONENT.to_owned(), instance: Some(node.to_owned()) }))
    }

    pub(super) async fn normal(&self, about: &impl Resource<DynamicType = ()>, reason: &str, note: &str) {
        self.publish(&about.object_ref(&()), EventType::Normal, reason, note).await;
    }

    pub(super) async fn warning(&self, about: &impl Resource<DynamicType = ()>, reason: &str, note: &str) {
        self.publish(&about.object_ref(&()), EventType::Warning, reason, note).await;
    }

    pub(super) async fn node_warning(&self, node: &str, reason: &str, note: &str) {
        let about = ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some(Node::kind(&()).into_owned()),
            name: Some(node.to_owned()),
            ..ObjectReference::default()
        };
        self.publish(&about, EventType::Warning, reason, note).await;
    }

    /// An event that cannot be written is not worth failing for.
    async fn publish(&self, about: &ObjectReference, type_: EventType, reason: &str, note: &str) {
        let event = Event {
            type_,
            reason: reason.to_owned(),
            note: Some(cut(note)),
            action: reason.to_owned(),
            secondary: None,
        };
        if let Err(error) = self.0.publish(&event, about).await {
            tracing::debug!(reason, %error, "an event could not be written");
        }
    }
}

/// The API takes notes of at most 1024 bytes.
fn cut(note: &str) -> String {
    const MOST: usize = 1024;
    let end = (0..=MOST.min(note.len())).rev().find(|end| note.is_char_boundary(*end)).unwrap_or(0);
    note[..end].to_owned()
}
