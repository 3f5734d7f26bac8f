//! The web page: the files that Vite makes of `ui/`, under `/dashboard/`.
//!
//! They are all that is to be had without logging in, and say nothing about this server. Everything else the page asks of
//! the public API, as its user. Invariants:
//! - every answer carries the headers that keep foreign code and foreign frames out ([`headers`]);
//! - a file whose name has a hash of its content is kept by browsers for good, and nothing else without asking;
//! - a deep link is answered with the page itself, which knows what it means; a missing asset is 404.
//!
//! Start reading at [`answer`].

mod encoding;
mod files;
mod headers;

use bytes::Bytes;
use http::header::{ACCEPT, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_TYPE, ETAG, IF_NONE_MATCH, LOCATION, VARY};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode};

use encoding::Encoding;
use files::Files;

/// Where the page lives.
pub const ROOT: &str = "/dashboard/";
const INDEX: &str = "index.html";
/// Vite puts a hash into the names of these.
const HASHED: &str = "assets/";
const FOR_GOOD: &str = "public, max-age=31536000, immutable";
const ASK_FIRST: &str = "no-cache";
const NEVER: &str = "no-store";
const NOT_BUILT: &str = include_str!("not_built.html");

/// The answer to a request for the page or a part of it; `None` if the request is for something else.
pub fn answer(request: &Parts) -> Option<Response<Bytes>> {
    answer_from(&files::FILES, request)
}

fn answer_from(files: &impl Files, request: &Parts) -> Option<Response<Bytes>> {
    let path = request.uri.path();
    let is_read = matches!(request.method, Method::GET | Method::HEAD);
    if path == "/" {
        // Programs that ask for the list of paths do not ask for HTML.
        return (is_read && wants_html(&request.headers)).then(|| redirect(ROOT));
    }
    if path == ROOT.trim_end_matches('/') {
        return Some(redirect(ROOT));
    }
    let name = path.strip_prefix(ROOT)?;
    if !is_read {
        return Some(text(StatusCode::METHOD_NOT_ALLOWED, "these are files: they can only be read\n"));
    }
    let name = if name.is_empty() { INDEX } else { name };
    if let Some(found) = file(files, name, &request.headers) {
        return Some(found);
    }
    if name.starts_with(HASHED) {
        return Some(text(
            StatusCode::NOT_FOUND,
            "there is no such file; the page may have been updated: load it again\n",
        ));
    }
    Some(file(files, INDEX, &request.headers).unwrap_or_else(not_built))
}

fn file(files: &impl Files, name: &str, asked: &HeaderMap) -> Option<Response<Bytes>> {
    let (encoding, found) = encoding::accepted(asked)
        .find_map(|encoding| Some((encoding, files.find(&format!("{name}{}", encoding.ending()))?)))?;
    let tag = format!("\"{}\"", found.tag);
    let mut answer = if is_known(asked, &tag) {
        let mut answer = Response::new(Bytes::new());
        *answer.status_mut() = StatusCode::NOT_MODIFIED;
        answer
    } else {
        Response::new(found.content)
    };
    let caching = if name.starts_with(HASHED) { FOR_GOOD } else { ASK_FIRST };
    let given = answer.headers_mut();
    given.insert(CONTENT_TYPE, HeaderValue::from_static(headers::content_type(name)));
    given.insert(CACHE_CONTROL, HeaderValue::from_static(caching));
    given.insert(VARY, HeaderValue::from_static("Accept-Encoding"));
    if let Ok(tag) = HeaderValue::from_str(&tag) {
        given.insert(ETAG, tag);
    }
    if encoding != Encoding::Plain {
        given.insert(CONTENT_ENCODING, HeaderValue::from_static(encoding.name()));
    }
    headers::protect(given);
    Some(answer)
}

/// Whether the client has this very content. Each encoding has a tag of its own.
fn is_known(asked: &HeaderMap, tag: &str) -> bool {
    let known = asked.get_all(IF_NONE_MATCH).iter().filter_map(|value| value.to_str().ok());
    known.flat_map(|value| value.split(',')).any(|value| value.trim().trim_start_matches("W/") == tag)
}

fn wants_html(asked: &HeaderMap) -> bool {
    let accepted = asked.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    accepted.flat_map(|value| value.split(',')).any(|media| media.split(';').next().map(str::trim) == Some("text/html"))
}

fn redirect(to: &'static str) -> Response<Bytes> {
    let mut answer = text(StatusCode::FOUND, "");
    answer.headers_mut().insert(LOCATION, HeaderValue::from_static(to));
    answer.headers_mut().insert(VARY, HeaderValue::from_static("Accept"));
    answer
}

fn text(code: StatusCode, body: &'static str) -> Response<Bytes> {
    plain(code, "text/plain; charset=utf-8", body)
}

/// A server that was built without the page says so, and how to have it.
fn not_built() -> Response<Bytes> {
    plain(StatusCode::SERVICE_UNAVAILABLE, "text/html; charset=utf-8", NOT_BUILT)
}

fn plain(code: StatusCode, content_type: &'static str, body: &'static str) -> Response<Bytes> {
    let mut answer = Response::new(Bytes::from_static(body.as_bytes()));
    *answer.status_mut() = code;
    let given = answer.headers_mut();
    given.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    given.insert(CACHE_CONTROL, HeaderValue::from_static(NEVER));
    headers::protect(given);
    answer
}

#[cfg(test)]
mod tests;
