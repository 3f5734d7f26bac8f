//! A request on its way, and what is learnt about it until it is answered.

use std::sync::Arc;

use croft_meta::{ApiError, object};
use http::header::USER_AGENT;
use http::request::Parts;
use http::{HeaderName, HeaderValue, Uri};
use jiff::Timestamp;
use parking_lot::Mutex;
use serde_json::Value;

use super::about::Asked;
use super::event::{DECISION, Event, ObjectRef, REASON, ResponseStatus, Stage, TRIED, short_agent};
use super::{policy, uri};
use crate::answer::Answer;
use crate::auth::rbac::Decision;
use crate::call::Target;
use crate::pipeline::Caller;
use crate::request::{Query, RequestInfo};
use crate::server::ApiServer;
use crate::streams::Streamed;
use crate::user::UserInfo;

const AUDIT_ID: HeaderName = HeaderName::from_static("audit-id");
/// Upstream's limit for what a client may choose.
const LONGEST_ID: usize = 64;

/// What is found out while a request is worked on.
#[derive(Debug, Default)]
pub(crate) struct Trail {
    /// Nothing is kept of requests that are never written down.
    is_kept: bool,
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    user: Option<UserInfo>,
    acts_as: Option<UserInfo>,
    tried: Option<String>,
    decision: Option<Decision>,
    about: Option<ObjectRef>,
    made: Option<ObjectRef>,
    annotations: Vec<(String, String)>,
}

impl Trail {
    fn note(&self, note: impl FnOnce(&mut Known)) {
        if self.is_kept {
            note(&mut self.known.lock());
        }
    }

    pub(crate) fn user(&self, user: &UserInfo) {
        self.note(|known| known.user = Some(user.clone()));
    }

    /// Whom the user acts as; the same as before if nobody else.
    pub(crate) fn acts_as(&self, user: &UserInfo) {
        self.note(|known| known.acts_as = Some(user.clone()).filter(|_| known.user.as_ref() != Some(user)));
    }

    /// The name that somebody signs in by.
    pub(crate) fn tried(&self, name: &str) {
        self.note(|known| known.tried = Some(name.to_owned()));
    }

    /// Of several decisions, the one that stopped the request counts.
    pub(crate) fn decided(&self, decision: &Decision) {
        self.note(|known| {
            if known.decision.as_ref().is_none_or(|before| before.allowed) {
                known.decision = Some(decision.clone());
            }
        });
    }

    /// Something that an admission policy wants to be known of the request.
    pub(crate) fn annotated(&self, key: String, value: String) {
        self.note(|known| {
            if !known.annotations.iter().any(|(noted, _)| *noted == key) {
                known.annotations.push((key, value));
            }
        });
    }

    /// What the request is about, where its path does not say.
    pub(crate) fn about(&self, object: ObjectRef) {
        self.note(|known| known.about = Some(object));
    }

    /// The object that was created; the name may have been made up.
    pub(crate) fn made(&self, target: &Target, created: &Value) {
        self.note(|known| {
            let made = || ObjectRef {
                resource: target.plural().to_owned(),
                api_group: target.group().to_owned(),
                namespace: target.namespace.clone(),
                name: object::name(created).to_owned(),
                uid: object::uid(created).to_owned(),
                ..ObjectRef::default()
            };
            known.made.get_or_insert_with(made);
        });
    }
}

/// Written down when it is answered, and also if nobody waits for the answer any more.
#[derive(Debug)]
pub(crate) struct Pending {
    server: Arc<ApiServer>,
    trail: Arc<Trail>,
    /// Empty for Croft's own parts, which have no use for one.
    id: String,
    /// None for what is never written down, and once it was.
    open: Option<Box<Open>>,
}

#[derive(Debug)]
struct Open {
    asked: Asked,
    uri: Uri,
    agent: Option<HeaderValue>,
    address: Option<String>,
    received: Timestamp,
}

impl Pending {
    pub(crate) fn begin(
        server: &Arc<ApiServer>,
        parts: &Parts,
        caller: &Caller,
        info: &RequestInfo,
        query: &Query,
        streamed: Option<&Streamed>,
    ) -> Self {
        let is_watched = server.audit.is_on() && !matches!(caller, Caller::Internal);
        let asked = is_watched.then(|| Asked::new(server, info, query, &parts.headers, streamed));
        let open = asked.filter(policy::may_be_recorded).map(|asked| {
            Box::new(Open {
                asked,
                uri: parts.uri.clone(),
                agent: parts.headers.get(USER_AGENT).cloned(),
                address: caller.address().map(|address| address.to_canonical().to_string()),
                received: Timestamp::now(),
            })
        });
        let trail = Arc::new(Trail { is_kept: open.is_some(), known: Mutex::default() });
        let id = if matches!(caller, Caller::Internal) { String::new() } else { id(parts) };
        Self { server: Arc::clone(server), trail, id, open }
    }

    pub(crate) fn trail(&self) -> &Arc<Trail> {
        &self.trail
    }

    /// Tells the client under which id its request is found.
    pub(crate) async fn answered(mut self, answer: &mut Answer, failure: Option<&ApiError>) {
        if !self.id.is_empty()
            && let Ok(id) = HeaderValue::from_str(&self.id)
        {
            answer.headers_mut().insert(AUDIT_ID, id);
        }
        let Some(open) = self.open.take() else { return };
        let status = ResponseStatus::of(answer.status().as_u16(), failure);
        if let Some(line) = self.line(*open, status, failure) {
            self.server.audit.record(line).await;
        }
    }

    fn line(&self, open: Open, status: ResponseStatus, failure: Option<&ApiError>) -> Option<Vec<u8>> {
        let Open { asked, uri, agent, address, received } = open;
        if !policy::is_recorded(&asked, status.code) {
            return None;
        }
        let known = std::mem::take(&mut *self.trail.known.lock());
        let code = status.code;
        let mut event = Event::new(status, received, Timestamp::now());
        event.audit_id.clone_from(&self.id);
        if code == 101 || asked.is_state {
            event.stage = Stage::ResponseStarted;
        }
        event.request_uri = uri::blanked(&uri);
        event.verb = asked.verb;
        event.user = known.user.map(Into::into).unwrap_or_default();
        event.impersonated_user = known.acts_as.map(Into::into);
        event.source_ips = address.into_iter().collect();
        event.user_agent = agent.and_then(|agent| agent.to_str().ok().map(short_agent)).unwrap_or_default();
        let object = known.about.or(asked.object);
        event.object_ref = object.map(|object| named(object, known.made, failure).shortened());
        if code >= 400 {
            event.annotate(TRIED, &known.tried.or(asked.tried).unwrap_or_default());
        }
        if let Some(decision) = known.decision {
            event.annotate(DECISION, if decision.allowed { "allow" } else { "forbid" });
            event.annotate(REASON, &decision.reason);
        }
        for (key, value) in known.annotations {
            event.annotate(key, &value);
        }
        Some(event.line())
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        let Some(open) = self.open.take() else { return };
        // What was asked for may well have been done: going away early must not be a way to stay unseen.
        if let Some(line) = self.line(*open, ResponseStatus::gone(), None) {
            self.server.audit.record_at_once(line);
        }
    }
}

/// The name of what is created is not in the path: the object that was made has it, or the failure.
fn named(object: ObjectRef, made: Option<ObjectRef>, failure: Option<&ApiError>) -> ObjectRef {
    if !object.name.is_empty() {
        return object;
    }
    if let Some(made) = made.filter(|made| made.is_of(&object.api_group, &object.resource)) {
        return ObjectRef { namespace: made.namespace, name: made.name, uid: made.uid, ..object };
    }
    let name = failure.and_then(ApiError::details).map(|details| details.name.clone()).unwrap_or_default();
    ObjectRef { name, ..object }
}

/// The client's own id for the request, if it has one.
fn id(parts: &Parts) -> String {
    let is_good = |id: &&str| (1..=LONGEST_ID).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_graphic());
    let own = parts.headers.get(AUDIT_ID).and_then(|id| id.to_str().ok()).filter(is_good);
    own.map_or_else(|| uuid::Uuid::new_v4().to_string(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_created_has_its_name() {
        let asked = ObjectRef { resource: "pods".to_owned(), api_version: "v1".to_owned(), ..ObjectRef::default() };
        let made = ObjectRef {
            resource: "pods".to_owned(),
            namespace: "a".to_owned(),
            name: "p-x1".to_owned(),
            uid: "u".to_owned(),
            ..ObjectRef::default()
        };
        let found = named(asked.clone(), Some(made.clone()), None);
        assert_eq!(found, ObjectRef { api_version: "v1".to_owned(), ..made.clone() });
        // An action may make other things beside.
        let other = ObjectRef { resource: "secrets".to_owned(), ..made };
        assert_eq!(named(asked.clone(), Some(other), None), asked);
        let exists = ApiError::already_exists("", "pods", "p");
        assert_eq!(named(asked, None, Some(&exists)).name, "p");
    }

    #[test]
    fn ids_of_clients_are_kept_if_they_are_short() {
        for (sent, is_kept) in [("abc", true), ("", false), ("a b", false), (&*"x".repeat(65), false)] {
            let (parts, ()) = http::Request::builder().header(AUDIT_ID, sent).body(()).unwrap().into_parts();
            assert_eq!(id(&parts) == sent, is_kept, "{sent}");
        }
    }
}
