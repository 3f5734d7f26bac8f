//! Browsers send cookies whoever made them send the request. What a cookie alone authenticates must therefore prove that
//! it comes from a page that could read the second cookie.

use croft_meta::ApiError;
use http::header::{HOST, ORIGIN, UPGRADE};
use http::{HeaderMap, Method};
use sha2::{Digest, Sha256};

use crate::auth::authenticate::{cookie, session_token};

/// The cookie that scripts of our own pages can read, and the header that they repeat it in.
pub(super) const COOKIE: &str = "CSRF";
const HEADER: &str = "x-api-csrf";

/// Refuses requests that another site may have made a browser send.
pub(crate) fn check(method: &Method, headers: &HeaderMap) -> Result<(), ApiError> {
    if session_token(headers).is_none() {
        return Ok(());
    }
    let refused = |why: &str| Err(ApiError::new(422, "InvalidCSRFToken", format!("Invalid CSRF token: {why}")));
    if headers.contains_key(UPGRADE) && !is_same_origin(headers) {
        return refused("the WebSocket was opened by a page of another site");
    }
    if matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS) {
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

/// Programs send no origin; browsers always do.
fn is_same_origin(headers: &HeaderMap) -> bool {
    let Some(origin) = headers.get(ORIGIN) else { return true };
    let host = headers.get(HOST).and_then(|host| host.to_str().ok());
    origin.to_str().ok().and_then(|origin| origin.strip_prefix("https://")) == host
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

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
