//! WebSockets as KubeVirt's clients speak them: a stream of bytes in binary frames.
//!
//! A client upgrades an HTTP/1.1 request ([`Handshake`]); [`bridge()`] then copies between it and the node until either
//! ends. Nothing is buffered beyond one read in each direction: whoever does not read holds up whoever writes.

mod bridge;

use croft_meta::ApiError;
use http::header::{
    CONNECTION, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL, SEC_WEBSOCKET_VERSION, UPGRADE,
};
use http::{HeaderMap, HeaderValue, StatusCode};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};

use crate::answer::{self, Answer};

pub(crate) use bridge::{Framing, bridge};

/// What virtctl offers, and all that is ever spoken.
const PLAIN: &str = "plain.kubevirt.io";
/// Where browsers put their token, which is no protocol to choose.
const BEARER: &str = "base64url.bearer.authorization.k8s.io.";
/// One message of a client is held whole; this is far more than any terminal, viewer or socket sends at once.
const MAX_MESSAGE: usize = 1 << 20;

/// A client's wish to speak WebSocket.
#[derive(Debug)]
pub(crate) struct Handshake {
    accept: HeaderValue,
    protocol: Option<HeaderValue>,
}

impl Handshake {
    pub(crate) fn parse(headers: &HeaderMap) -> Result<Self, ApiError> {
        let refused = |why: &str| ApiError::bad_request(format!("websocket: {why}"));
        if !tokens(headers, &CONNECTION).any(|token| token.eq_ignore_ascii_case("upgrade")) {
            let why =
                "the client is not using the websocket protocol: 'upgrade' token not found in 'Connection' header";
            return Err(refused(why));
        }
        if !tokens(headers, &UPGRADE).any(|token| token.eq_ignore_ascii_case("websocket")) {
            let why = "the client is not using the websocket protocol: 'websocket' token not found in 'Upgrade' header";
            return Err(refused(why));
        }
        if !tokens(headers, &SEC_WEBSOCKET_VERSION).any(|version| version == "13") {
            return Err(refused("unsupported version: 13 not found in 'Sec-Websocket-Version' header"));
        }
        let key = headers.get(SEC_WEBSOCKET_KEY).map(HeaderValue::as_bytes).unwrap_or_default();
        if key.len() != 24 {
            return Err(refused("not a websocket handshake: 'Sec-WebSocket-Key' header is missing or blank"));
        }
        // Base64 can stand in a header.
        let accept = HeaderValue::from_str(&derive_accept_key(key)).map_err(ApiError::internal)?;
        Ok(Self { accept, protocol: choose_protocol(headers) })
    }

    /// 101, which hands the connection over.
    pub(crate) fn answer(&self) -> Answer {
        let mut answer = Answer::new(answer::full(""));
        *answer.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        let headers = answer.headers_mut();
        headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
        headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
        headers.insert(SEC_WEBSOCKET_ACCEPT, self.accept.clone());
        if let Some(protocol) = &self.protocol {
            headers.insert(SEC_WEBSOCKET_PROTOCOL, protocol.clone());
        }
        answer
    }
}

/// The client's connection once our 101 is on its way.
pub(crate) async fn upgraded(
    client: OnUpgrade,
) -> Result<WebSocketStream<TokioIo<hyper::upgrade::Upgraded>>, hyper::Error> {
    Ok(of_stream(TokioIo::new(client.await?)).await)
}

/// Speaks WebSocket as the server over a connection, within our limits.
pub(crate) async fn of_stream<C: AsyncRead + AsyncWrite + Unpin>(connection: C) -> WebSocketStream<C> {
    let mut config = WebSocketConfig::default();
    config.max_message_size = Some(MAX_MESSAGE);
    config.max_frame_size = Some(MAX_MESSAGE);
    // Every message is flushed, so nothing gathers here but pongs; past this, writing waits.
    config.write_buffer_size = 0;
    config.max_write_buffer_size = 2 * MAX_MESSAGE;
    config.read_buffer_size = 16 << 10;
    WebSocketStream::from_raw_socket(connection, Role::Server, Some(config)).await
}

/// The comma-separated values of a header that may be repeated.
fn tokens<'a>(headers: &'a HeaderMap, name: &http::header::HeaderName) -> impl Iterator<Item = &'a str> {
    let values = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).map(str::trim).filter(|token| !token.is_empty())
}

/// KubeVirt's own if it is offered; a browser that offers only others insists on one of its own being chosen.
fn choose_protocol(headers: &HeaderMap) -> Option<HeaderValue> {
    let offered: Vec<&str> =
        tokens(headers, &SEC_WEBSOCKET_PROTOCOL).filter(|protocol| !protocol.starts_with(BEARER)).collect();
    let chosen = offered.iter().find(|protocol| **protocol == PLAIN).or(offered.first())?;
    HeaderValue::from_str(chosen).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, HeaderValue::from_str(value).unwrap());
        }
        headers
    }

    const GOOD: [(&str, &str); 4] = [
        ("connection", "keep-alive, Upgrade"),
        ("upgrade", "websocket"),
        ("sec-websocket-version", "13"),
        ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
    ];

    #[test]
    fn the_handshake_is_that_of_the_standard() {
        let answer = Handshake::parse(&headers(&GOOD)).unwrap().answer();
        assert_eq!(answer.status(), 101);
        assert_eq!(answer.headers()["sec-websocket-accept"], "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
        assert!(!answer.headers().contains_key("sec-websocket-protocol"));
    }

    #[test]
    fn what_is_no_handshake_is_refused() {
        for (missing, _) in GOOD {
            let pairs: Vec<_> = GOOD.into_iter().filter(|(name, _)| *name != missing).collect();
            let error = Handshake::parse(&headers(&pairs)).unwrap_err();
            assert_eq!(error.code(), 400, "{missing}");
        }
    }

    #[test]
    fn the_protocol_is_kubevirts_or_the_first_of_the_clients() {
        let bearer = format!("{BEARER}dG9rZW4");
        let table = [
            ("plain.kubevirt.io", Some("plain.kubevirt.io")),
            ("binary, plain.kubevirt.io", Some("plain.kubevirt.io")),
            ("binary,base64", Some("binary")),
            (bearer.as_str(), None),
        ];
        for (offered, chosen) in table {
            let mut pairs = GOOD.to_vec();
            pairs.push(("sec-websocket-protocol", offered));
            let handshake = Handshake::parse(&headers(&pairs)).unwrap();
            assert_eq!(handshake.protocol.as_ref().map(|p| p.to_str().unwrap()), chosen, "{offered}");
        }
    }
}
