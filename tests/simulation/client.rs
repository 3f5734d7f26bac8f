//! A client of the API that knows what it asked for and what it was told.

use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request};
use http_body_util::{BodyExt, Full};
use serde_json::Value;
use tower::Service;

use crate::network::{ReplyBody, Wire};

/// After this long a client gives up.
const PATIENCE: Duration = Duration::from_secs(30);

#[derive(Clone, Debug)]
pub(crate) struct Client {
    wire: Wire,
}

/// What came of a request.
#[derive(Debug)]
pub(crate) enum Answer {
    /// Done, and this is what it is now.
    Done(Value),
    /// It was not done, for sure.
    Refused(u16),
    /// It may have been done or not.
    Unknown,
}

impl Client {
    pub(crate) fn new(wire: Wire) -> Self {
        Self { wire }
    }

    pub(crate) async fn send(&self, method: Method, path: &str, body: Option<&Value>) -> Answer {
        let kind = if method == Method::PATCH { "application/merge-patch+json" } else { "application/json" };
        let body = Bytes::from(body.map(Value::to_string).unwrap_or_default());
        let request = Request::builder().method(method).uri(path).header("content-type", kind);
        let request = request.body(Full::new(body)).expect("the path is a good one");
        let mut wire = self.wire.clone();
        let call = async move {
            let answer = wire.call(request).await.ok()?;
            let (parts, body) = answer.into_parts();
            let body = body.collect().await.ok()?.to_bytes();
            Some((parts.status.as_u16(), serde_json::from_slice(&body).unwrap_or_default()))
        };
        match tokio::time::timeout(PATIENCE, call).await {
            Ok(Some((200..=299, body))) => Answer::Done(body),
            // Too many requests is said before or instead of the work; a timeout is said in the middle of it.
            Ok(Some((code @ 400..=499, _))) if code != 408 => Answer::Refused(code),
            _ => Answer::Unknown,
        }
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.send(Method::GET, path, None).await
    }

    /// An open watch, if it can be had; or the code that it was refused with.
    pub(crate) async fn watch(&self, path: &str) -> Result<ReplyBody, u16> {
        let request = Request::get(path).body(Full::new(Bytes::new())).expect("the path is a good one");
        let answer = self.wire.clone().call(request).await.map_err(|_| 0_u16)?;
        let code = answer.status().as_u16();
        if code == 200 { Ok(answer.into_body()) } else { Err(code) }
    }
}
