//! Browsers send cookies whoever made them send the request. What a cookie alone authenticates must therefore prove that
//! it comes from a page that could read the second cookie.
//!
//! They send passwords and certificates likewise, once their user has shown them to the browser itself. No page can prove
//! anything about those, but browsers say which page it was.

use croft_meta::ApiError;
use http::header::{AUTHORIZATION, HOST, ORIGIN, UPGRADE};
use http::request::Parts;
use http::{HeaderMap, Method};
use sha2::{Digest, Sha256};

use crate::auth::authenticate::{cookie, session_token};

/// The cookie that scripts of our own pages can read, and the header that they repeat it in.
pub(super) const COOKIE: &str = "CSRF";
const HEADER: &str = "x-api-csrf";
/// Where browsers say how the page's site is related to ours.
const SITE: &str = "sec-fetch-site";

/// Refuses requests that another site may have made a browser send.
pub(crate) fn check(method: &Method, headers: &HeaderMap) -> Result<(), ApiError> {
    if session_token(headers).is_none() {
        return Ok(());
    }
    let refused = |why: &str| Err(ApiError::new(422, "InvalidCSRFToken", format!("Invalid CSRF token: {why}")));
    if headers.contains_key(UPGRADE) && !is_same_origin(headers, host(headers)) {
        return refused("the WebSocket was opened by a page of another site");
    }
    if only_looks(method) {
        return Ok(());
    }
    let sent = headers.get(HEADER).map(http::HeaderValue::as_bytes).unwrap_or_default();
    let Some(expected) = cookie(headers, COOKIE) else { return refused("there is no CSRF cookie; log in again") };
    if sent.is_empty() {
        return refused("the header X-API-CSRF is missing");
    }
    // Of digests, which tells nobody how much of a guess was right.
    if Sha256::digest(sent) == Sha256::digest(expected.as_bytes()) { Ok(()) } else { refused("it does not match") }
}

/// Refuses what a page of another site has a browser send, whatever it authenticates itself with: changes on our own paths
/// (`is_own`) and those made with a password anywhere, and WebSockets. Kubernetes' own paths are left to what upstream does:
/// `kubectl proxy` passes requests of pages on.
pub(crate) fn check_site(parts: &Parts, is_own: bool) -> Result<(), ApiError> {
    let Parts { method, headers, uri, .. } = parts;
    let has = |scheme: &str| {
        let value = headers.get(AUTHORIZATION).map(http::HeaderValue::as_bytes).unwrap_or_default().trim_ascii_start();
        value.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme.as_bytes()))
    };
    let is_change = !only_looks(method) && (is_own || has("basic "));
    // No page can have a browser add this header to a request for another site. Rancher does, and sends the origin of its page.
    if !is_change && !headers.contains_key(UPGRADE) || has("bearer ") {
        return Ok(());
    }
    let is_ours = match headers.get(SITE).map(http::HeaderValue::as_bytes) {
        // As the browser sees it, whatever name a proxy in between asks for.
        Some(b"same-origin") => true,
        Some(b"cross-site") => false,
        // HTTP/2 has the host outside of the headers.
        _ => is_same_origin(headers, host(headers).or_else(|| uri.authority().map(http::uri::Authority::as_str))),
    };
    let why = "a page of another site made the browser send this";
    if is_ours { Ok(()) } else { Err(ApiError::new(403, "Forbidden", why)) }
}

fn only_looks(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS)
}

fn host(headers: &HeaderMap) -> Option<&str> {
    headers.get(HOST).and_then(|host| host.to_str().ok())
}

/// Programs send no origin; browsers always do.
fn is_same_origin(headers: &HeaderMap, host: Option<&str>) -> bool {
    let Some(origin) = headers.get(ORIGIN) else { return true };
    let origin = origin.to_str().ok().and_then(|origin| origin.strip_prefix("https://"));
    origin.is_some() && origin == host
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn pages_of_other_sites_change_nothing_by_what_the_browser_remembers() {
        type Headers = &'static [(&'static str, &'static str)];
        const BASIC: (&str, &str) = ("authorization", "Basic YTpi");
        const HERE: (&str, &str) = ("host", "a");
        const UP: (&str, &str) = ("upgrade", "websocket");
        let table: [(Method, bool, Headers, bool); 19] = [
            (Method::POST, true, &[BASIC, HERE], true),
            (Method::POST, true, &[BASIC, HERE, ("origin", "https://a")], true),
            (Method::POST, true, &[BASIC, HERE, ("origin", "https://b")], false),
            (Method::POST, true, &[BASIC, HERE, ("origin", "http://a")], false),
            (Method::POST, true, &[BASIC, HERE, ("origin", "null")], false),
            (Method::POST, true, &[HERE, ("sec-fetch-site", "cross-site")], false),
            (Method::POST, true, &[HERE, ("sec-fetch-site", "same-site"), ("origin", "https://c.a")], false),
            (
                Method::POST,
                true,
                &[("host", "inside"), ("sec-fetch-site", "same-origin"), ("origin", "https://a")],
                true,
            ),
            (Method::GET, true, &[BASIC, HERE, ("origin", "https://b")], true),
            (Method::PUT, false, &[HERE, ("origin", "https://b")], true),
            (Method::PUT, false, &[("authorization", "basic YTpi"), HERE, ("origin", "https://b")], false),
            (Method::PUT, false, &[BASIC, HERE], true),
            (Method::POST, true, &[("authorization", "Bearer x"), HERE, ("origin", "https://rancher")], true),
            (Method::GET, false, &[UP, HERE], true),
            (Method::GET, false, &[UP, HERE, ("origin", "https://a")], true),
            (Method::GET, false, &[UP, HERE, ("origin", "https://b")], false),
            (Method::GET, false, &[UP, BASIC, HERE, ("sec-fetch-site", "cross-site")], false),
            (Method::GET, false, &[UP, ("authorization", "Bearer x"), HERE, ("origin", "https://rancher")], true),
            (Method::POST, true, &[("origin", "https://outside")], true),
        ];
        for (method, is_own, pairs, allowed) in table {
            let mut request = http::Request::builder().method(method.clone()).uri("https://outside/v1/harvester/x");
            for (name, value) in pairs {
                request = request.header(*name, *value);
            }
            let parts = request.body(()).unwrap().into_parts().0;
            assert_eq!(check_site(&parts, is_own).is_ok(), allowed, "{method} {is_own} {pairs:?}");
        }
    }

    #[test]
    fn cookies_alone_change_nothing() {
        type Headers = &'static [(&'static str, &'static str)];
        const SESSION: (&str, &str) = ("cookie", "R_SESS=token-a:b; CSRF=abc");
        let table: [(Method, Headers, bool); 9] = [
            (Method::POST, &[], true),
            (Method::GET, &[SESSION], true),
            (Method::POST, &[SESSION], false),
            (Method::POST, &[SESSION, ("x-api-csrf", "abd")], false),
            (Method::POST, &[SESSION, ("x-api-csrf", "abc")], true),
            (Method::DELETE, &[("cookie", "R_SESS=x"), ("x-api-csrf", "")], false),
            (Method::POST, &[SESSION, ("authorization", "Bearer x")], true),
            (Method::GET, &[SESSION, ("upgrade", "websocket"), ("host", "a"), ("origin", "https://b")], false),
            (Method::GET, &[SESSION, ("upgrade", "websocket"), ("host", "a"), ("origin", "https://a")], true),
        ];
        for (method, pairs, allowed) in table {
            let mut headers = HeaderMap::new();
            for (name, value) in pairs {
                headers.append(*name, HeaderValue::from_static(value));
            }
            assert_eq!(check(&method, &headers).is_ok(), allowed, "{method} {pairs:?}");
        }
    }
}
