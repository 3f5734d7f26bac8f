//! One event, as `audit.k8s.io/v1` has it: never a cookie, a header with credentials, or what is secret in a body.

use std::borrow::Cow;
use std::collections::BTreeMap;

use croft_meta::ApiError;
use croft_meta::time::format_micros;
use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;

use super::lines;
use super::rules::Level;
use crate::user::UserInfo;

/// The name that somebody gave who could not prove to be that.
pub(super) const TRIED: &str = "croft.io/tried-user";
pub(super) const DECISION: &str = "authorization.k8s.io/decision";
pub(super) const REASON: &str = "authorization.k8s.io/reason";
/// Upstream's word for an event without its objects, which were too long.
pub(super) const TRUNCATED: &str = "audit.k8s.io/truncated";

/// What clients choose must not make lines as long as they like.
const LONGEST: usize = 256;
const LONGEST_MESSAGE: usize = 1_024;
/// Of what else is known of a user, and of the values of each.
const MOST_EXTRA: usize = 32;

/// What a request was about.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ObjectRef {
    pub(crate) resource: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) namespace: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) uid: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) api_group: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) api_version: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) subresource: String,
}

impl ObjectRef {
    pub(super) fn is_of(&self, group: &str, resource: &str) -> bool {
        self.api_group == group && self.resource == resource
    }

    pub(super) fn shortened(self) -> Self {
        Self {
            resource: short(&self.resource, LONGEST),
            namespace: short(&self.namespace, LONGEST),
            name: short(&self.name, LONGEST),
            uid: short(&self.uid, LONGEST),
            api_group: short(&self.api_group, LONGEST),
            api_version: short(&self.api_version, LONGEST),
            subresource: short(&self.subresource, LONGEST),
        }
    }
}

#[derive(Debug, Default, Serialize)]
pub(super) struct User {
    #[serde(skip_serializing_if = "String::is_empty")]
    username: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    uid: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    groups: Vec<String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    extra: BTreeMap<String, Vec<String>>,
}

/// `extra` is left out: those who act as others may put anything there.
impl From<UserInfo> for User {
    fn from(user: UserInfo) -> Self {
        let (username, uid) = (short(&user.name, LONGEST), short(&user.uid, LONGEST));
        Self { username, uid, groups: user.groups, extra: BTreeMap::new() }
    }
}

impl User {
    /// Whoever has proved to be this user. The `extra` comes from the credentials.
    pub(super) fn proven(user: UserInfo) -> Self {
        let values = |values: &Vec<String>| values.iter().take(MOST_EXTRA).map(|value| short(value, LONGEST)).collect();
        let extra = user.extra.iter().take(MOST_EXTRA);
        let extra = extra.map(|(key, list)| (short(key, LONGEST), values(list))).collect();
        Self { extra, ..user.into() }
    }
}

#[derive(Clone, Debug, Serialize)]
struct Metadata {}

#[derive(Clone, Debug, Serialize)]
pub(super) struct ResponseStatus {
    metadata: Metadata,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<&'static str>,
    #[serde(skip_serializing_if = "String::is_empty")]
    reason: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    message: String,
    pub(super) code: u16,
}

impl ResponseStatus {
    pub(super) fn of(code: u16, failure: Option<&ApiError>) -> Self {
        let told = failure.map_or("", ApiError::message);
        Self {
            metadata: Metadata {},
            status: (code >= 400).then_some("Failure"),
            reason: short(failure.map_or("", ApiError::reason), LONGEST),
            // What is said of an invalid object repeats parts of it.
            message: if matches!(code, 400 | 422) { String::new() } else { short(told, LONGEST_MESSAGE) },
            code,
        }
    }

    /// Nobody is there any more to be answered; whether it was done is not known.
    pub(super) fn gone() -> Self {
        let message = "the client went away before it was answered".to_owned();
        Self { metadata: Metadata {}, status: Some("Failure"), reason: String::new(), message, code: 499 }
    }

    /// As upstream says it of a handler that panicked.
    pub(super) fn panicked() -> Self {
        let message = "APIServer panic'd".to_owned();
        Self { metadata: Metadata {}, status: Some("Failure"), reason: "InternalError".to_owned(), message, code: 500 }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(super) enum Stage {
    /// It is known who asks, and nothing is done yet.
    RequestReceived,
    /// Of what goes on after its answer has begun, as consoles do.
    ResponseStarted,
    ResponseComplete,
    Panic,
}

impl Stage {
    pub(super) fn parse(name: &str) -> Option<Self> {
        match name {
            "RequestReceived" => Some(Self::RequestReceived),
            "ResponseStarted" => Some(Self::ResponseStarted),
            "ResponseComplete" => Some(Self::ResponseComplete),
            "Panic" => Some(Self::Panic),
            _ => None,
        }
    }
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Event {
    kind: &'static str,
    api_version: &'static str,
    pub(super) level: &'static str,
    #[serde(rename = "auditID")]
    pub(super) audit_id: String,
    pub(super) stage: Stage,
    #[serde(rename = "requestURI")]
    pub(super) request_uri: String,
    pub(super) verb: &'static str,
    pub(super) user: User,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) impersonated_user: Option<User>,
    #[serde(rename = "sourceIPs", skip_serializing_if = "Vec::is_empty")]
    pub(super) source_ips: Vec<String>,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) user_agent: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) object_ref: Option<ObjectRef>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) response_status: Option<ResponseStatus>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) request_object: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) response_object: Option<Value>,
    request_received_timestamp: String,
    stage_timestamp: String,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) annotations: BTreeMap<Cow<'static, str>, String>,
}

impl Event {
    /// Of a request that came, and was answered if it was, at these times; the rest is to be filled in.
    pub(super) fn new(response_status: Option<ResponseStatus>, received: Timestamp, now: Timestamp) -> Self {
        Self {
            kind: "Event",
            api_version: "audit.k8s.io/v1",
            level: Level::Metadata.name(),
            audit_id: String::new(),
            stage: Stage::ResponseComplete,
            request_uri: String::new(),
            verb: "",
            user: User::default(),
            impersonated_user: None,
            source_ips: Vec::new(),
            user_agent: String::new(),
            object_ref: None,
            response_status,
            request_object: None,
            response_object: None,
            request_received_timestamp: format_micros(received),
            stage_timestamp: format_micros(now),
            annotations: BTreeMap::new(),
        }
    }

    pub(super) fn annotate(&mut self, key: impl Into<Cow<'static, str>>, text: &str) {
        if !text.is_empty() {
            self.annotations.insert(key.into(), short(text, LONGEST_MESSAGE));
        }
    }

    /// With the newline that ends it. JSON has none inside. What would be too long for readers goes, until it is not.
    pub(super) fn line(mut self) -> Vec<u8> {
        for cut in [Self::drop_objects, Self::drop_remarks, Self::drop_attributes] {
            let line = self.written();
            if line.len() <= lines::LONGEST {
                return line;
            }
            cut(&mut self);
            self.annotate(TRUNCATED, "true");
        }
        self.written()
    }

    fn written(&self) -> Vec<u8> {
        // Strings and numbers can always be written.
        let mut line = serde_json::to_vec(self).unwrap_or_default();
        line.push(b'\n');
        // It may wait for long.
        line.shrink_to_fit();
        line
    }

    fn drop_objects(&mut self) {
        (self.request_object, self.response_object) = (None, None);
    }

    /// What webhooks and policies want to be known.
    fn drop_remarks(&mut self) {
        self.annotations.retain(|key, _| [TRIED, DECISION, REASON, TRUNCATED].contains(&&**key));
    }

    /// A token may name as many as it likes, and so may whoever acts as others.
    fn drop_attributes(&mut self) {
        for user in std::iter::once(&mut self.user).chain(&mut self.impersonated_user) {
            user.extra.clear();
            user.groups.truncate(MOST_EXTRA);
            for group in &mut user.groups {
                *group = short(group, LONGEST);
            }
        }
    }
}

/// What is too long is cut, visibly.
pub(super) fn short(text: &str, longest: usize) -> String {
    match text.char_indices().nth(longest) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

pub(super) fn short_agent(text: &str) -> String {
    short(text, LONGEST)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn an_event_has_kubernetes_form() {
        let error = ApiError::forbidden("", "pods", "a", "no");
        let mut event = Event::new(
            Some(ResponseStatus::of(403, Some(&error))),
            Timestamp::UNIX_EPOCH,
            Timestamp::from_millisecond(1_500).unwrap(),
        );
        event.audit_id = "id".to_owned();
        event.request_uri = "/api/v1/namespaces/ns/pods/a".to_owned();
        event.verb = "delete";
        event.user = UserInfo::new("ann", &["devs"]).into();
        event.source_ips = vec!["10.0.0.1".to_owned()];
        event.object_ref = Some(ObjectRef {
            resource: "pods".into(),
            name: "a".into(),
            api_version: "v1".into(),
            ..Default::default()
        });
        event.annotate(DECISION, "forbid");
        event.annotate(REASON, "");
        let line = event.line();
        assert!(line.ends_with(b"}\n"));
        let value: Value = serde_json::from_slice(&line).unwrap();
        let expected = json!({
            "kind": "Event", "apiVersion": "audit.k8s.io/v1", "level": "Metadata", "auditID": "id",
            "stage": "ResponseComplete", "requestURI": "/api/v1/namespaces/ns/pods/a", "verb": "delete",
            "user": {"username": "ann", "groups": ["devs"]}, "sourceIPs": ["10.0.0.1"],
            "objectRef": {"resource": "pods", "name": "a", "apiVersion": "v1"},
            "responseStatus": {"metadata": {}, "status": "Failure", "reason": "Forbidden",
                "message": "pods \"a\" is forbidden: no", "code": 403},
            "requestReceivedTimestamp": "1970-01-01T00:00:00.000000Z", "stageTimestamp": "1970-01-01T00:00:01.500000Z",
            "annotations": {"authorization.k8s.io/decision": "forbid"},
        });
        assert_eq!(value, expected);
    }

    #[test]
    fn a_line_is_never_too_long_for_its_readers() {
        let blob = |length: usize| Value::String("\u{1}".repeat(length));
        for (object, remarks, groups) in [(400_000, 0, 0), (0, 1_000, 0), (0, 0, 4_000), (400_000, 1_000, 4_000)] {
            let mut event = Event::new(None, Timestamp::UNIX_EPOCH, Timestamp::UNIX_EPOCH);
            let user = UserInfo { groups: vec!["\u{1}".repeat(300); groups], ..UserInfo::new("ann", &[]) };
            (event.user, event.impersonated_user) = (user.clone().into(), Some(user.into()));
            (event.request_object, event.response_object) = (Some(blob(object)), Some(blob(object)));
            event.annotate(DECISION, "allow");
            for number in 0..remarks {
                event.annotate(format!("hook.example.com/{number}"), &"\u{1}".repeat(1_000));
            }
            let line = event.line();
            assert!(line.len() <= lines::LONGEST, "{}", line.len());
            let seen: Value = serde_json::from_slice(&line).unwrap();
            assert_eq!((&seen["user"]["username"], &seen["annotations"][DECISION]), (&json!("ann"), &json!("allow")));
            assert_eq!(seen["annotations"][TRUNCATED], "true");
        }
    }

    #[test]
    fn what_was_sent_is_not_repeated() {
        for (code, is_told) in [(400, false), (422, false), (403, true), (409, true), (500, true)] {
            let status =
                ResponseStatus::of(code, Some(&ApiError::new(code, "X", "password: Invalid value: \"hunter2\"")));
            assert_eq!(!status.message.is_empty(), is_told, "{code}");
        }
    }

    #[test]
    fn long_texts_are_cut() {
        assert_eq!(short("äöü", 2), "äö…");
        assert_eq!(short("äö", 2), "äö");
    }
}
