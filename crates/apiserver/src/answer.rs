//! Building HTTP answers.

use std::io::Write;

use bytes::{Bytes, BytesMut};
use croft_meta::ApiError;
use flate2::Compression;
use flate2::write::GzEncoder;
use futures::stream;
use http::header::{ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, RETRY_AFTER, VARY};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use serde_json::Value;

use crate::negotiate::{Format, Output};

pub type BoxError = Box<dyn std::error::Error + Send + Sync>;
/// The body of every answer, and of every request that reaches the pipeline.
pub type Body = UnsyncBoxBody<Bytes, BoxError>;
pub(crate) type Answer = Response<Body>;

/// Answers below this size are not worth compressing; upstream's threshold.
pub(crate) const GZIP_FROM: usize = 128 << 10;

pub(crate) fn full(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into()).map_err(|never| match never {}).boxed_unsync()
}

/// A body of which no more comes, and which its reader does not take for whole.
pub(crate) fn broken(error: BoxError) -> Body {
    StreamBody::new(stream::iter([Err(error)])).boxed_unsync()
}

pub(crate) fn bytes(code: u16, content_type: &str, body: impl Into<Bytes>) -> Answer {
    let mut answer = Response::new(full(body));
    *answer.status_mut() = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = answer.headers_mut();
    if let Ok(value) = HeaderValue::from_str(content_type) {
        headers.insert(CONTENT_TYPE, value);
    }
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    answer
}

pub(crate) fn json(code: u16, value: &Value) -> Answer {
    let mut body = serde_json::to_vec(value).unwrap_or_default();
    body.push(b'\n');
    bytes(code, "application/json", body)
}

pub(crate) fn text(code: u16, body: impl Into<Bytes>) -> Answer {
    bytes(code, "text/plain; charset=utf-8", body)
}

/// Any value as JSON or YAML.
pub(crate) fn render(output: Output, code: u16, value: &Value) -> Answer {
    if output.format == Format::Yaml
        && let Ok(text) = serde_saphyr::to_string(value)
    {
        return bytes(code, output.content_type(), text);
    }
    if output.is_pretty
        && let Ok(text) = serde_json::to_vec_pretty(value)
    {
        return bytes(code, output.content_type(), text);
    }
    json(code, value)
}

/// What is left of an answer to HEAD. HTTP/2 takes a body there as an error.
pub(crate) fn without_body(answer: Answer) -> Answer {
    let (mut parts, body) = answer.into_parts();
    if let Some(length) = http_body::Body::size_hint(&body).exact() {
        parts.headers.insert(CONTENT_LENGTH, HeaderValue::from(length));
    }
    Response::from_parts(parts, full(Bytes::new()))
}

/// A failure, as `metav1.Status`.
pub(crate) fn failure(error: &ApiError) -> Answer {
    failure_as(Output::JSON, error)
}

pub(crate) fn failure_as(output: Output, error: &ApiError) -> Answer {
    let mut answer = render(output, error.code(), &error.to_status());
    let retry_after = error.details().map_or(0, |d| d.retry_after_seconds);
    if retry_after > 0 {
        answer.headers_mut().insert(RETRY_AFTER, HeaderValue::from(retry_after));
    }
    if error.code() == 401 {
        answer
            .headers_mut()
            .insert(http::header::WWW_AUTHENTICATE, HeaderValue::from_static("Basic realm=\"kubernetes-master\""));
    }
    answer
}

/// Adds `Warning: 299 - "text"` for each text.
pub(crate) fn add_warnings(answer: &mut Answer, warnings: &[String]) {
    for text in warnings {
        // Quotes and backslashes are escaped, control characters cannot stand in a header.
        let clean: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        let quoted = clean.replace('\\', "\\\\").replace('"', "\\\"");
        if let Ok(value) = HeaderValue::from_bytes(format!("299 - \"{quoted}\"").as_bytes()) {
            answer.headers_mut().append(http::header::WARNING, value);
        }
    }
}

pub(crate) fn accepts_gzip(headers: &HeaderMap) -> bool {
    headers
        .get_all(ACCEPT_ENCODING)
        .iter()
        .filter_map(|v| v.to_str().ok())
        .flat_map(|v| v.split(','))
        .any(|coding| coding.trim().split(';').next() == Some("gzip"))
}

/// A large JSON answer, compressed when the client can read that.
pub(crate) async fn large(request_headers: &HeaderMap, content_type: &str, body: Bytes) -> Answer {
    if body.len() < GZIP_FROM || !accepts_gzip(request_headers) {
        return bytes(200, content_type, body);
    }
    let plain = body.clone();
    // Compression takes longer than a worker may be blocked.
    let packed = tokio::task::spawn_blocking(move || gzip(&plain)).await.unwrap_or_default();
    if packed.is_empty() {
        return bytes(200, content_type, body);
    }
    let mut answer = bytes(200, content_type, packed);
    answer.headers_mut().insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    answer.headers_mut().insert(VARY, HeaderValue::from_static("Accept-Encoding"));
    answer
}

pub(crate) fn gzip(plain: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::with_capacity(plain.len() / 4), Compression::new(1));
    // Writing to memory does not fail; an empty result makes the caller send the plain bytes.
    encoder.write_all(plain).and_then(|()| encoder.finish()).unwrap_or_default()
}

/// Reads a request body, up to `limit` bytes.
pub(crate) async fn read_body(mut body: Body, limit: usize) -> Result<Bytes, ApiError> {
    let too_large = || ApiError::too_large(format!("limit is {limit}"));
    // A length that is announced is believed before anything is read.
    if http_body::Body::size_hint(&body).lower() > limit as u64 {
        return Err(too_large());
    }
    let mut read = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|e| ApiError::bad_request(format!("the request body could not be read: {e}")))?;
        let Ok(data) = frame.into_data() else { continue };
        if read.len() + data.len() > limit {
            return Err(too_large());
        }
        if read.is_empty() && http_body::Body::is_end_stream(&body) {
            return Ok(data);
        }
        // Copied: what was received is part of a larger buffer, which would be kept with it for as long as the rest takes.
        read.extend_from_slice(&data);
    }
    Ok(read.freeze())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    async fn text_of(answer: Answer) -> String {
        let bytes = answer.into_body().collect().await.unwrap().to_bytes();
        String::from_utf8(bytes.to_vec()).unwrap()
    }

    #[tokio::test]
    async fn answers_are_written_as_asked_for() {
        let value = json!({"a": {"b": 1}});
        let table = [
            (Output::JSON, "{\"a\":{\"b\":1}}\n"),
            (Output { is_pretty: true, ..Output::JSON }, "{\n  \"a\": {\n    \"b\": 1\n  }\n}"),
            (Output { format: Format::Yaml, ..Output::JSON }, "a:\n  b: 1\n"),
        ];
        for (output, expected) in table {
            assert_eq!(text_of(render(output, 200, &value)).await, expected);
        }
    }

    #[tokio::test]
    async fn an_answer_to_head_has_a_length_and_no_body() {
        let answer = without_body(text(200, "ok"));
        assert_eq!(answer.headers()[CONTENT_LENGTH], "2");
        assert_eq!(text_of(answer).await, "");
    }
}
