//! A request on its way, and what is learnt about it until it is answered.

use std::sync::Arc;

use bytes::Bytes;
use croft_meta::{ApiError, object};
use http::header::USER_AGENT;
use http::request::Parts;
use http::{HeaderName, HeaderValue, Uri};
use jiff::Timestamp;
use parking_lot::Mutex;
use serde_json::Value;

use super::about::Asked;
use super::answered;
use super::event::{DECISION, Event, ObjectRef, REASON, ResponseStatus, Stage, TRIED, TRUNCATED, User, short_agent};
use super::objects::{self, without_secrets};
use super::rules::{Level, Plan};
use super::{policy, uri};
use crate::answer::Answer;
use crate::auth::rbac::Decision;
use crate::call::Target;
use crate::decode;
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
    open: Option<Open>,
    known: Mutex<Known>,
}

/// What was known when it came.
#[derive(Debug)]
struct Open {
    server: Arc<ApiServer>,
    id: String,
    asked: Asked,
    uri: Uri,
    agent: Option<HeaderValue>,
    address: Option<String>,
    received: Timestamp,
}

#[derive(Clone, Debug, Default)]
struct Known {
    user: Option<UserInfo>,
    acts_as: Option<UserInfo>,
    tried: Option<String>,
    decision: Option<Decision>,
    about: Option<ObjectRef>,
    made: Option<ObjectRef>,
    annotations: Vec<(String, String)>,
    /// What a policy file says of it.
    plan: Option<Plan>,
    /// What was sent, and in which form.
    sent: Option<(Bytes, String)>,
}

impl Trail {
    fn note(&self, note: impl FnOnce(&mut Known)) {
        if self.open.is_some() {
            note(&mut self.known.lock());
        }
    }

    pub(crate) fn user(&self, user: &UserInfo) {
        self.note(|known| known.user = Some(user.clone()));
        self.decide(Some(user));
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

    /// What was sent.
    pub(crate) fn sent(&self, body: &Bytes, content_type: &str) {
        self.note(|known| {
            if !body.is_empty() && known.plan.as_ref().is_some_and(|plan| plan.level >= Level::Request) {
                known.sent = Some((body.clone(), content_type.to_owned()));
            }
        });
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

    /// Asks the policy file, if there is one, as soon as it is known who it is; later it does not count any more.
    fn decide(&self, user: Option<&UserInfo>) -> Option<Plan> {
        let open = self.open.as_ref()?;
        let rules = open.server.audit.rules.as_ref()?;
        let mut known = self.known.lock();
        if let Some(plan) = &known.plan {
            return Some(plan.clone());
        }
        let plan = rules.plan(&open.asked, user);
        known.plan = Some(plan.clone());
        drop(known);
        if plan.has(Stage::RequestReceived) {
            self.record(Stage::RequestReceived, None, None, None);
        }
        Some(plan)
    }

    /// Writes down one stage, without waiting.
    pub(super) fn record(
        &self,
        stage: Stage,
        status: Option<ResponseStatus>,
        failure: Option<&ApiError>,
        response: Option<Value>,
    ) {
        let Some(open) = &self.open else { return };
        let known = self.known.lock().clone();
        open.server.audit.record_at_once(open.event(known, stage, status, failure, response).line());
    }
}

impl Open {
    /// What is known of it at one stage.
    fn event(
        &self,
        known: Known,
        stage: Stage,
        status: Option<ResponseStatus>,
        failure: Option<&ApiError>,
        response: Option<Value>,
    ) -> Event {
        let code = status.as_ref().map_or(0, |status| status.code);
        let mut event = Event::new(status, self.received, Timestamp::now());
        event.audit_id.clone_from(&self.id);
        event.stage = stage;
        event.request_uri = uri::blanked(&self.uri);
        event.verb = self.asked.verb;
        event.user = known.user.map(User::proven).unwrap_or_default();
        event.impersonated_user = known.acts_as.map(Into::into);
        event.source_ips = self.address.iter().cloned().collect();
        event.user_agent =
            self.agent.as_ref().and_then(|agent| agent.to_str().ok().map(short_agent)).unwrap_or_default();
        let object = known.about.or_else(|| self.asked.object.clone());
        event.object_ref = object.map(|object| named(object, known.made, failure).shortened());
        if code >= 400 {
            let tried = known.tried.as_deref().or(self.asked.tried.as_deref());
            event.annotate(TRIED, tried.unwrap_or_default());
        }
        if let Some(decision) = known.decision {
            event.annotate(DECISION, if decision.allowed { "allow" } else { "forbid" });
            event.annotate(REASON, &decision.reason);
        }
        for (key, value) in known.annotations {
            event.annotate(key, &value);
        }
        if let Some(plan) = known.plan {
            event.level = plan.level.name();
            add_objects(&mut event, &plan, known.sent.as_ref(), response);
        }
        event
    }
}

/// As much as the level asks for, and not at all if it is too much.
fn add_objects(event: &mut Event, plan: &Plan, sent: Option<&(Bytes, String)>, response: Option<Value>) {
    let is_secret = event.object_ref.as_ref().is_some_and(|object| object.is_of("", "secrets"));
    let shown = |object| Some(without_secrets(object, is_secret, plan.omit_managed_fields)).filter(objects::is_short);
    let mut is_cut = false;
    if let Some((body, content_type)) = sent.filter(|_| event.stage != Stage::RequestReceived) {
        let is_short = body.len() <= objects::LONGEST;
        let parsed = is_short.then(|| parse(body, content_type)).flatten();
        let is_unknown = is_short && parsed.is_none();
        event.request_object = parsed.and_then(shown);
        is_cut |= event.request_object.is_none() && !is_unknown;
    }
    if let Some(response) = response {
        event.response_object = Some(response).filter(|response| !response.is_null()).and_then(shown);
        is_cut |= event.response_object.is_none();
    }
    if is_cut {
        event.annotate(TRUNCATED, "true");
    }
}

/// Patches have content types of their own, and may be lists.
fn parse(body: &Bytes, content_type: &str) -> Option<Value> {
    let parsed = decode::parse(body, content_type).map(|decoded| decoded.object).ok();
    let parsed = parsed.or_else(|| serde_json::from_slice(body).ok());
    parsed.or_else(|| decode::parse_yaml(body).ok())
}

/// Written down when it is answered, and also if nobody waits for the answer any more.
#[derive(Debug)]
pub(crate) struct Pending {
    trail: Arc<Trail>,
    /// Empty for Croft's own parts, which have no use for one.
    id: String,
    /// It was written down how it ended.
    is_done: bool,
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
        let is_internal = matches!(caller, Caller::Internal);
        let id = if is_internal { String::new() } else { id(parts) };
        let is_watched = server.audit.is_on() && !is_internal;
        let has_rules = server.audit.rules.is_some();
        let asked = is_watched.then(|| Asked::new(server, info, query, &parts.headers, streamed, has_rules));
        let open = asked.filter(|asked| has_rules || policy::may_be_recorded(asked)).map(|asked| Open {
            server: Arc::clone(server),
            id: id.clone(),
            asked,
            uri: parts.uri.clone(),
            agent: parts.headers.get(USER_AGENT).cloned(),
            address: caller.address().map(|address| address.to_canonical().to_string()),
            received: Timestamp::now(),
        });
        Self { trail: Arc::new(Trail { open, known: Mutex::default() }), id, is_done: false }
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
        let Some(open) = &self.trail.open else { return };
        let status = ResponseStatus::of(answer.status().as_u16(), failure);
        let Some(plan) = self.trail.decide(None) else {
            self.is_done = true;
            if policy::is_recorded(&open.asked, status.code) {
                let stage = own_stage(&open.asked, status.code);
                let known = std::mem::take(&mut *self.trail.known.lock());
                open.server.audit.record(open.event(known, stage, Some(status), failure, None).line()).await;
            }
            return;
        };
        let response = match plan.level {
            Level::RequestResponse if !open.asked.is_long => answered::object(answer).await,
            _ => None,
        };
        self.is_done = true;
        if open.asked.is_long && failure.is_none() {
            answered::go_on(&self.trail, &plan, answer, status);
        } else if plan.has(Stage::ResponseComplete) {
            let known = std::mem::take(&mut *self.trail.known.lock());
            let event = open.event(known, Stage::ResponseComplete, Some(status), failure, response);
            open.server.audit.record(event.line()).await;
        }
    }
}

/// Without a policy file there is one event for each request.
fn own_stage(asked: &Asked, code: u16) -> Stage {
    if code == 101 || asked.is_state { Stage::ResponseStarted } else { Stage::ResponseComplete }
}

impl Drop for Pending {
    fn drop(&mut self) {
        let Some(open) = self.trail.open.as_ref().filter(|_| !self.is_done) else { return };
        let (status, stage) = if std::thread::panicking() {
            (ResponseStatus::panicked(), Stage::Panic)
        } else {
            // What was asked for may well have been done: going away early must not be a way to stay unseen.
            (ResponseStatus::gone(), Stage::ResponseComplete)
        };
        let is_recorded = match self.trail.decide(None) {
            Some(plan) => plan.has(stage),
            None => policy::is_recorded(&open.asked, status.code),
        };
        if is_recorded {
            self.trail.record(stage, Some(status), None, None);
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
