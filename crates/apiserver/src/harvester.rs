//! Harvester's own paths for images: `/v1/harvester/harvesterhci.io.virtualmachineimages/<namespace>/<name>`, to which a
//! file is sent with `?action=upload&size=N` and from which it is fetched at `/download`.
//!
//! Whoever may change the image may upload it, and whoever may read it may download it.

use croft_meta::ApiError;
use http::header::{CONTENT_DISPOSITION, CONTENT_TYPE};
use http::{HeaderValue, Method};
use serde_json::Value;

use crate::answer::{self, Answer, Body};
use crate::auth::Attributes;
use crate::call::{self, Call};
use crate::node_proxy::{self, Patience};
use crate::request::{Query, RequestInfo, percent_decode};
use crate::upload::{Form, any_node, file_of};

const ROOT: &str = "/v1/harvester/harvesterhci.io.virtualmachineimages/";
/// What a node says in a refusal is short.
const LONGEST_REFUSAL: usize = 64 << 10;
/// The reasons that nodes have for theirs.
const REASONS: [&str; 7] =
    ["BadRequest", "Conflict", "Invalid", "NotFound", "RequestEntityTooLarge", "ServiceUnavailable", "InternalError"];
const GROUP: &str = "harvesterhci.io";
const PLURAL: &str = "virtualmachineimages";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    Upload,
    Download,
}

/// A transfer of one image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Image {
    namespace: String,
    name: String,
    direction: Direction,
}

impl Image {
    pub(crate) fn find(info: &RequestInfo, query: &Query) -> Option<Self> {
        let rest: Vec<&str> = info.path.strip_prefix(ROOT)?.trim_end_matches('/').split('/').collect();
        let is_link = |text: Option<&str>| text == Some("download");
        let (namespace, name, direction) = match (info.verb, rest.as_slice()) {
            ("post", [namespace, name]) if query.get("action") == Some("upload") => {
                (namespace, name, Direction::Upload)
            }
            ("get", [namespace, name]) if is_link(query.get("link")) => (namespace, name, Direction::Download),
            ("get", [namespace, name, link]) if is_link(Some(link)) => (namespace, name, Direction::Download),
            _ => return None,
        };
        let decoded = |text: &str| percent_decode(text).into_owned();
        Some(Self { namespace: decoded(namespace), name: decoded(name), direction })
    }

    pub(crate) fn attributes(&self) -> Attributes<'_> {
        Attributes {
            is_resource: true,
            verb: if self.direction == Direction::Upload { "update" } else { "get" },
            group: GROUP,
            resource: PLURAL,
            name: &self.name,
            namespace: &self.namespace,
            ..Attributes::default()
        }
    }

    pub(crate) async fn answer(&self, call: &Call, body: Body) -> Result<Answer, ApiError> {
        call.server.cache.fresh().await?;
        let images = call.server.cache.collection(&format!("{GROUP}/{PLURAL}"));
        let image = images.get(&call::id(&self.namespace, &self.name));
        let image = image.ok_or_else(|| ApiError::not_found(GROUP, PLURAL, &self.name))?.json();
        match self.direction {
            Direction::Upload => self.upload(call, &image, body).await,
            Direction::Download => self.download(call, &image).await,
        }
    }

    async fn upload(&self, call: &Call, image: &Value, body: Body) -> Result<Answer, ApiError> {
        if image.pointer("/spec/sourceType") != Some(&Value::from("upload")) {
            let why = "it is not of the source type \"upload\"";
            return Err(ApiError::conflict(GROUP, PLURAL, &self.name, why));
        }
        let size = match call.query.get("size").filter(|size| !size.is_empty()) {
            None => String::new(),
            Some(text) => match text.parse::<u64>() {
                Ok(size) => format!("?size={size}"),
                Err(_) => return Err(ApiError::bad_request(format!("size: {text:?} is not a number of bytes"))),
            },
        };
        let file = file_of(&call.headers, body, Form::RawOrField("chunk")).await?;
        let request = node_proxy::upload(Method::POST, &format!("{}{size}", self.agent_path()), file)?;
        let answer = call.server.call_node(&any_node(&call.server)?, request, Patience::AsLongAsItTakes).await?;
        accepted(answer).await
    }

    async fn download(&self, call: &Call, image: &Value) -> Result<Answer, ApiError> {
        let request = node_proxy::request(Method::GET, &self.agent_path(), answer::full(""))?;
        let answer = call.server.call_node(&any_node(&call.server)?, request, Patience::Short).await?;
        let mut answer = accepted(answer).await?;
        let shown = image.pointer("/spec/displayName").and_then(Value::as_str).unwrap_or_default();
        let headers = answer.headers_mut();
        headers.entry(CONTENT_TYPE).or_insert(HeaderValue::from_static("application/gzip"));
        if let Ok(value) = HeaderValue::from_str(&format!("attachment; filename={}.gz", file_name(shown, &self.name))) {
            headers.insert(CONTENT_DISPOSITION, value);
        }
        Ok(answer)
    }

    /// The image exists, so that its names have nothing to escape.
    fn agent_path(&self) -> String {
        format!("/v1/images/{}/{}", self.namespace, self.name)
    }
}

/// The node's refusal is this server's: it is told in the form of these paths.
pub(crate) async fn accepted(answer: Answer) -> Result<Answer, ApiError> {
    if answer.status().is_success() {
        return Ok(answer);
    }
    let (parts, body) = answer.into_parts();
    let body = answer::read_body(body, LONGEST_REFUSAL).await?;
    let told: Value = serde_json::from_slice(&body).unwrap_or_default();
    let text = |field: &str| told.get(field).and_then(Value::as_str).unwrap_or_default();
    let reason = REASONS.into_iter().find(|reason| *reason == text("reason")).unwrap_or_default();
    let message = if text("message").is_empty() { "the node does not say why" } else { text("message") };
    Err(ApiError::new(parts.status.as_u16(), reason, message))
}

/// A name that any system takes for a file: the one that is shown, or else the image's own.
fn file_name<'a>(shown: &'a str, own: &'a str) -> &'a str {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    if !shown.is_empty() && !shown.starts_with('.') && shown.chars().all(is_plain) { shown } else { own }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transfers_are_found_by_their_path() {
        let find = |method: Method, uri: &str| {
            let (path, query) = uri.split_once('?').map_or((uri, None), |(p, q)| (p, Some(q)));
            let query = Query::parse(query);
            let found = Image::find(&RequestInfo::parse(&method, path, &query), &query)?;
            Some((format!("{}/{}", found.namespace, found.name), found.direction))
        };
        let expected = |direction| Some(("ns/a".to_owned(), direction));
        assert_eq!(find(Method::POST, &format!("{ROOT}ns/a?action=upload&size=1")), expected(Direction::Upload));
        assert_eq!(find(Method::GET, &format!("{ROOT}ns/a/download")), expected(Direction::Download));
        assert_eq!(find(Method::GET, &format!("{ROOT}ns/a?link=download")), expected(Direction::Download));
        for other in ["ns/a", "ns/a?action=upload", "ns/a/upload", "a/download/x"] {
            assert_eq!(find(Method::GET, &format!("{ROOT}{other}")), None, "{other}");
        }
        assert_eq!(find(Method::POST, &format!("{ROOT}ns/a?action=other")), None);
    }

    #[test]
    fn odd_names_are_not_given_to_files() {
        let table =
            [("debian-12.qcow2", "debian-12.qcow2"), ("../x", "own"), ("a b", "own"), ("", "own"), ("x\r\ny", "own")];
        for (shown, expected) in table {
            assert_eq!(file_name(shown, "own"), expected, "{shown:?}");
        }
    }
}
