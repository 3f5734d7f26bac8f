//! Which events somebody wants to see.

use std::borrow::Cow;
use std::collections::HashMap;
use std::time::Duration;

use croft_meta::{ApiError, time};
use jiff::Timestamp;
use memchr::memmem;
use serde::Deserialize;

use super::event::TRIED;
use super::reader::Verdict;
use crate::request::Query;

/// Lines are nearly in the order of their times: requests that end together may be written either way round.
const SLACK: Duration = Duration::from_mins(1);

#[derive(Debug, Default)]
pub(super) struct Filter {
    since: Option<Timestamp>,
    until: Option<Timestamp>,
    user: Option<String>,
    verbs: Vec<String>,
    resource: Option<String>,
    namespace: Option<String>,
    name: Option<String>,
    codes: Vec<Code>,
    /// In lower case, as it stands in JSON.
    text: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Code {
    Exactly(u16),
    /// `4xx`
    Class(u16),
}

impl Code {
    fn parse(text: &str) -> Option<Self> {
        if let Some(class) = text.strip_suffix("xx") {
            return class.parse().ok().filter(|class| (1..=5).contains(class)).map(Self::Class);
        }
        text.parse().ok().filter(|code| (100..=599).contains(code)).map(Self::Exactly)
    }

    fn fits(self, code: u16) -> bool {
        match self {
            Self::Exactly(exact) => exact == code,
            Self::Class(class) => class == code / 100,
        }
    }
}

/// What is looked at of an event.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Seen<'a> {
    #[serde(borrow)]
    verb: Cow<'a, str>,
    #[serde(borrow)]
    stage_timestamp: Cow<'a, str>,
    #[serde(borrow, default)]
    user: SeenUser<'a>,
    #[serde(borrow, default)]
    impersonated_user: SeenUser<'a>,
    #[serde(borrow, default)]
    object_ref: SeenObject<'a>,
    #[serde(default)]
    response_status: SeenStatus,
    // A key may have an escape in it, which cannot be borrowed.
    #[serde(borrow, default)]
    annotations: HashMap<Cow<'a, str>, Cow<'a, str>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct SeenUser<'a> {
    #[serde(borrow)]
    username: Cow<'a, str>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct SeenObject<'a> {
    #[serde(borrow)]
    resource: Cow<'a, str>,
    #[serde(borrow)]
    namespace: Cow<'a, str>,
    #[serde(borrow)]
    name: Cow<'a, str>,
    #[serde(borrow)]
    api_group: Cow<'a, str>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct SeenStatus {
    code: u16,
}

impl Filter {
    pub(super) fn parse(query: &Query) -> Result<Self, ApiError> {
        let given = |key: &'static str| query.get(key).filter(|text| !text.is_empty());
        let moment = |key: &'static str| {
            let parse = |text| time::parse(text).map_err(|_| bad(key, text, "a time such as 2026-01-31T12:00:00Z"));
            given(key).map(parse).transpose()
        };
        let list = |key: &'static str| given(key).into_iter().flat_map(|text| text.split(','));
        let code = |text: &str| Code::parse(text).ok_or_else(|| bad("code", text, "a code such as 403 or 4xx"));
        let text = given("text").unwrap_or_default();
        // As it would stand between the quotes of a JSON string.
        let quoted = serde_json::to_string(text).map_err(ApiError::internal)?;
        Ok(Self {
            since: moment("since")?,
            until: moment("until")?,
            user: given("user").map(str::to_owned),
            verbs: list("verb").map(str::to_owned).collect(),
            resource: given("resource").map(str::to_owned),
            namespace: given("namespace").map(str::to_owned),
            name: given("name").map(str::to_owned),
            codes: list("code").map(code).collect::<Result<_, _>>()?,
            text: quoted[1..quoted.len() - 1].to_lowercase().into_bytes(),
        })
    }

    pub(super) fn judge(&self, line: &[u8]) -> Verdict {
        // A line that was torn is no JSON.
        let Ok(seen) = serde_json::from_slice::<Seen<'_>>(line) else { return Verdict::Skip };
        if let Some(verdict) = self.judge_time(&seen) {
            return verdict;
        }
        if self.fits(&seen) && self.has_text(line) { Verdict::Take } else { Verdict::Skip }
    }

    fn judge_time(&self, seen: &Seen<'_>) -> Option<Verdict> {
        if self.since.is_none() && self.until.is_none() {
            return None;
        }
        let Ok(at) = seen.stage_timestamp.parse::<Timestamp>() else { return Some(Verdict::Skip) };
        match (self.since, self.until) {
            (Some(since), _) if at < since - SLACK => Some(Verdict::Stop),
            (Some(since), _) if at < since => Some(Verdict::Skip),
            (_, Some(until)) if at > until => Some(Verdict::Skip),
            _ => None,
        }
    }

    fn fits(&self, seen: &Seen<'_>) -> bool {
        let is = |wanted: &Option<String>, found: &str| wanted.as_deref().is_none_or(|wanted| wanted == found);
        let object = &seen.object_ref;
        self.user.as_deref().is_none_or(|user| is_by(seen, user))
            && (self.verbs.is_empty() || self.verbs.iter().any(|verb| *verb == seen.verb))
            && (self.codes.is_empty() || self.codes.iter().any(|code| code.fits(seen.response_status.code)))
            && self.resource.as_deref().is_none_or(|wanted| is_of(object, wanted))
            && is(&self.namespace, &object.namespace)
            && is(&self.name, &object.name)
    }

    fn has_text(&self, line: &[u8]) -> bool {
        if self.text.is_empty() {
            return true;
        }
        let lower = String::from_utf8_lossy(line).to_lowercase();
        memmem::find(lower.as_bytes(), &self.text).is_some()
    }
}

/// Whoever it was, acted as, or wanted to be.
fn is_by(seen: &Seen<'_>, user: &str) -> bool {
    let tried = seen.annotations.get(TRIED).is_some_and(|tried| *tried == user);
    tried || seen.user.username == user || seen.impersonated_user.username == user
}

/// `virtualmachines`, or `virtualmachines.kubevirt.io`. KubeVirt's subresources have a group of their own.
fn is_of(object: &SeenObject<'_>, wanted: &str) -> bool {
    let group = object.api_group.strip_prefix("subresources.").unwrap_or(&object.api_group);
    wanted == object.resource
        || wanted.strip_prefix(&*object.resource).is_some_and(|rest| rest.strip_prefix('.') == Some(group))
}

pub(super) fn bad(key: &str, text: &str, expected: &str) -> ApiError {
    ApiError::bad_request(format!("{key}: {text:?} is not {expected}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = r#"{"verb":"delete","stageTimestamp":"2026-01-31T12:00:00.000000Z",
        "user":{"username":"ann"},"impersonatedUser":{"username":"bob"},"userAgent":"Kubectl \"x\"",
        "objectRef":{"resource":"virtualmachines","namespace":"apps","name":"web","apiGroup":"kubevirt.io"},
        "responseStatus":{"code":403},"annotations":{"croft.io/tried-user":"eve"}}"#;

    fn judge(query: &str) -> Verdict {
        Filter::parse(&Query::parse(Some(query))).unwrap().judge(LINE.as_bytes())
    }

    #[test]
    fn events_are_chosen_by_every_filter() {
        for (query, expected) in [
            ("", Verdict::Take),
            ("user=ann", Verdict::Take),
            ("user=bob", Verdict::Take),
            ("user=eve", Verdict::Take),
            ("user=an", Verdict::Skip),
            ("verb=create,delete", Verdict::Take),
            ("verb=create", Verdict::Skip),
            ("resource=virtualmachines", Verdict::Take),
            ("resource=virtualmachines.kubevirt.io", Verdict::Take),
            ("resource=virtualmachines.other.io", Verdict::Skip),
            ("resource=virtualmachine", Verdict::Skip),
            ("namespace=apps&name=web", Verdict::Take),
            ("namespace=apps&name=we", Verdict::Skip),
            ("code=403", Verdict::Take),
            ("code=4xx", Verdict::Take),
            ("code=404,5xx", Verdict::Skip),
            ("text=kubeCTL", Verdict::Take),
            ("text=%22x%22", Verdict::Take),
            ("text=nothing", Verdict::Skip),
            ("since=2026-01-31T12:00:00Z&until=2026-01-31T12:00:00Z", Verdict::Take),
            ("since=2026-01-31T13:00:00%2B01:00", Verdict::Take),
            ("since=2026-01-31T12:00:01Z", Verdict::Skip),
            ("since=2026-01-31T12:02:00Z", Verdict::Stop),
            ("until=2026-01-31T11:59:59Z", Verdict::Skip),
        ] {
            assert_eq!(judge(query), expected, "{query}");
        }
    }

    #[test]
    fn no_annotation_hides_an_event() {
        let line = LINE.replace(r#""annotations":{"#, r#""annotations":{"hook/a\"b\u0001":"c\n","#);
        for query in ["", "user=eve", "name=web"] {
            let filter = Filter::parse(&Query::parse(Some(query))).unwrap();
            assert_eq!(filter.judge(line.as_bytes()), Verdict::Take, "{query}");
        }
    }

    #[test]
    fn what_is_no_event_is_skipped() {
        let filter = Filter::default();
        for line in ["", "{", "[]", r#"{"verb":"get"}"#, r#"{"verb":"delete","stageTimestamp":"2026-"#] {
            assert_eq!(filter.judge(line.as_bytes()), Verdict::Skip, "{line}");
        }
    }

    #[test]
    fn bad_values_are_explained() {
        for (query, expected) in [
            ("since=yesterday", "since: \"yesterday\" is not a time such as 2026-01-31T12:00:00Z"),
            ("until=1", "until: \"1\" is not a time"),
            ("code=abc", "code: \"abc\" is not a code such as 403 or 4xx"),
            ("code=9xx", "code: \"9xx\""),
            ("code=403,", "code: \"\""),
        ] {
            let error = Filter::parse(&Query::parse(Some(query))).unwrap_err();
            assert_eq!(error.code(), 400);
            assert!(error.message().starts_with(expected), "{}", error.message());
        }
    }
}
