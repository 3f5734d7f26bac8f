//! Uploads that can be resumed: `/croft/v1/images/<namespace>/<name>/upload`, in the words of tus 1.0 (docs/uploads.md).
//!
//! The node keeps the pieces. Whoever may change the image may upload it.

use croft_meta::ApiError;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use serde_json::Value;

use crate::answer::{self, Answer, Body};
use crate::auth::Attributes;
use crate::call::{self, Call};
use crate::harvester::accepted;
use crate::node_proxy::{self, Patience};
use crate::pipeline::not_allowed;
use crate::request::{RequestInfo, percent_decode};
use crate::upload::{Form, any_node, file_of};

const ROOT: &str = "/croft/v1/images/";
const GROUP: &str = "harvesterhci.io";
const PLURAL: &str = "virtualmachineimages";
const CONTENT_TYPE: &str = "application/offset+octet-stream";
const OFFSET: HeaderName = HeaderName::from_static("upload-offset");
const LENGTH: HeaderName = HeaderName::from_static("upload-length");
const TUS: HeaderName = HeaderName::from_static("tus-resumable");
const VERSION: HeaderValue = HeaderValue::from_static("1.0.0");
/// What a node says is short.
const LONGEST: usize = 64 << 10;

/// An image whose upload is asked about, or goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Image {
    namespace: String,
    name: String,
}

impl Image {
    pub(crate) fn find(info: &RequestInfo) -> Option<Self> {
        let rest: Vec<&str> = info.path.strip_prefix(ROOT)?.split('/').collect();
        let [namespace, name, "upload"] = rest.as_slice() else { return None };
        let decoded = |text: &str| percent_decode(text).into_owned();
        Some(Self { namespace: decoded(namespace), name: decoded(name) })
    }

    pub(crate) fn attributes(&self) -> Attributes<'_> {
        Attributes {
            is_resource: true,
            verb: "update",
            group: GROUP,
            resource: PLURAL,
            name: &self.name,
            namespace: &self.namespace,
            ..Attributes::default()
        }
    }

    pub(crate) async fn answer(&self, call: &Call, body: Body) -> Result<Answer, ApiError> {
        let server = &call.server;
        server.cache.fresh().await?;
        let images = server.cache.collection(&format!("{GROUP}/{PLURAL}"));
        // It exists, so that its names have nothing to escape.
        images
            .get(&call::id(&self.namespace, &self.name))
            .ok_or_else(|| ApiError::not_found(GROUP, PLURAL, &self.name))?;
        let path = format!("/v1/images/{}/{}/pieces", self.namespace, self.name);
        let (request, patience) = match call.info.verb {
            "get" | "head" => (node_proxy::request(Method::GET, &path, answer::full(""))?, Patience::Short),
            "delete" => (node_proxy::request(Method::DELETE, &path, answer::full(""))?, Patience::Short),
            "patch" => (piece(call, &path, body).await?, Patience::AsLongAsItTakes),
            _ => return Err(not_allowed()),
        };
        let answer = server.call_node(&any_node(server)?, request, patience).await?;
        let (_, body) = accepted(answer).await?.into_parts();
        let body = answer::read_body(body, LONGEST).await?;
        let here: Value = serde_json::from_slice(&body).unwrap_or_default();
        Ok(told(call.info.verb, &here))
    }
}

/// Whether a piece is not the first.
pub(crate) fn is_continued(headers: &HeaderMap) -> bool {
    headers.get(OFFSET).is_some_and(|offset| offset != "0")
}

/// The request that brings the node a piece.
async fn piece(call: &Call, path: &str, body: Body) -> Result<http::Request<Body>, ApiError> {
    if call.content_type().split(';').next().map(str::trim) != Some(CONTENT_TYPE) {
        return Err(ApiError::new(415, "UnsupportedMediaType", format!("the body of a PATCH here is {CONTENT_TYPE}")));
    }
    let number = |name: HeaderName| {
        let number = call.header(name.clone()).parse::<u64>();
        number.map_err(|_| ApiError::bad_request(format!("the header {name} must be a number of bytes")))
    };
    let (offset, length) = (number(OFFSET)?, number(LENGTH)?);
    if offset > length {
        return Err(ApiError::bad_request("the header upload-offset is beyond upload-length"));
    }
    let file = file_of(&call.headers, body, Form::Raw).await?;
    node_proxy::upload(Method::PATCH, &format!("{path}?offset={offset}&length={length}"), file)
}

/// How far it is: in headers, for whoever asks by GET also in the body.
fn told(verb: &str, here: &Value) -> Answer {
    let mut answer = if matches!(verb, "get" | "head") { answer::json(200, here) } else { answer::text(204, "") };
    if answer.status() == StatusCode::NO_CONTENT {
        answer.headers_mut().remove(http::header::CONTENT_TYPE);
    }
    let headers = answer.headers_mut();
    headers.insert(TUS, VERSION);
    headers.insert(http::header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    for (name, figure) in [(OFFSET, &here["offset"]), (LENGTH, &here["length"])] {
        if let Some(figure) = figure.as_u64() {
            headers.insert(name, HeaderValue::from(figure));
        }
    }
    answer
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::request::Query;

    #[test]
    fn uploads_are_found_by_their_path() {
        let find = |path: &str| Image::find(&RequestInfo::parse(&Method::PATCH, path, &Query::default()));
        let expected = Image { namespace: "ns".to_owned(), name: "a".to_owned() };
        assert_eq!(find("/croft/v1/images/ns/a/upload"), Some(expected));
        for path in
            ["/croft/v1/images/ns/a", "/croft/v1/images/ns/a/upload/x", "/croft/v1/images/a/upload", "/croft/v1/state"]
        {
            assert_eq!(find(path), None, "{path}");
        }
    }

    #[test]
    fn how_far_it_is_is_in_the_headers() {
        let answer = told("head", &json!({"offset": 7, "length": null}));
        assert_eq!((answer.status().as_u16(), &answer.headers()[OFFSET]), (200, &HeaderValue::from(7)));
        assert!(!answer.headers().contains_key(LENGTH));
        let answer = told("patch", &json!({"offset": 9, "length": 9}));
        assert_eq!((answer.status().as_u16(), &answer.headers()[LENGTH]), (204, &HeaderValue::from(9)));
    }
}
