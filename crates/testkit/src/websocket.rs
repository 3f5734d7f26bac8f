//! Streams as virtctl opens them: WebSockets with KubeVirt's plain protocol.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use bytes::{Bytes, BytesMut};
use futures::stream::{SplitSink, SplitStream};
use futures::{SinkExt as _, StreamExt as _};
use http::Request;
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_rustls::client::TlsStream;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::client::generate_key;
use tokio_tungstenite::tungstenite::{Error, Message};

use crate::{Endpoint, Identity, patience};

/// What virtctl asks for, and the server must echo.
pub const PLAIN: &str = "plain.kubevirt.io";
/// Messages that nobody has asked for yet; then the server has to wait.
const UNREAD_MAX: usize = 1024;

/// An open stream.
#[derive(Debug)]
pub struct WebSocket {
    sink: SplitSink<WebSocketStream<TlsStream<TcpStream>>, Message>,
    incoming: mpsc::Receiver<Result<Message, Error>>,
    /// Ends with the stream.
    _reading: JoinSet<()>,
    /// What the server chose.
    pub protocol: Option<String>,
    pending: BytesMut,
    /// The code of the server's goodbye.
    pub closed: Option<u16>,
}

/// Why there is no stream.
#[derive(Debug, Clone)]
pub struct Refused {
    pub code: u16,
    pub status: Value,
}

impl Endpoint {
    /// Opens a stream as the administrator.
    pub async fn websocket(&self, path: &str) -> Result<std::result::Result<WebSocket, Refused>> {
        self.websocket_offering(path, &[PLAIN]).await
    }

    /// The same, offering these subprotocols.
    pub async fn websocket_offering(
        &self,
        path: &str,
        protocols: &[&str],
    ) -> Result<std::result::Result<WebSocket, Refused>> {
        self.websocket_as(Some(&self.admin), path, protocols, &[]).await
    }

    /// The same as somebody else: with these headers, and the certificate of whoever has one.
    pub async fn websocket_as(
        &self,
        identity: Option<&Identity>,
        path: &str,
        protocols: &[&str],
        headers: &[(&str, &str)],
    ) -> Result<std::result::Result<WebSocket, Refused>> {
        let stream = self.connect(identity, &[]).await?;
        let mut request = Request::get(format!("wss://{}{path}", self.address()?))
            .header("host", self.address()?.to_string())
            .header("connection", "Upgrade")
            .header("upgrade", "websocket")
            .header("sec-websocket-version", "13")
            .header("sec-websocket-key", generate_key());
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        if !protocols.is_empty() {
            request = request.header("sec-websocket-protocol", protocols.join(", "));
        }
        let opening = tokio_tungstenite::client_async(request.body(())?, stream);
        match tokio::time::timeout(patience(), opening).await.context("the stream was not opened")? {
            Ok((inner, answer)) => {
                let protocol = answer.headers().get("sec-websocket-protocol");
                let protocol = protocol.and_then(|value| value.to_str().ok()).map(str::to_owned);
                let (sink, stream) = inner.split();
                let (incoming, reading) = read(stream);
                let pending = BytesMut::new();
                Ok(Ok(WebSocket { sink, incoming, _reading: reading, protocol, pending, closed: None }))
            }
            Err(Error::Http(answer)) => {
                let body = answer.body().clone().unwrap_or_default();
                let status = serde_json::from_slice(&body).unwrap_or(Value::Null);
                Ok(Err(Refused { code: answer.status().as_u16(), status }))
            }
            Err(err) => Err(err).context("open the stream"),
        }
    }
}

/// Reads all the time: a server takes a client that does not answer its pings for dead, and a test has other things to do
/// than to listen.
fn read(
    mut stream: SplitStream<WebSocketStream<TlsStream<TcpStream>>>,
) -> (mpsc::Receiver<Result<Message, Error>>, JoinSet<()>) {
    let (send, incoming) = mpsc::channel(UNREAD_MAX);
    let mut reading = JoinSet::new();
    reading.spawn(async move {
        while let Some(message) = stream.next().await {
            let is_noise = matches!(message, Ok(Message::Ping(_) | Message::Pong(_)));
            if !is_noise && send.send(message).await.is_err() {
                return;
            }
        }
    });
    (incoming, reading)
}

impl WebSocket {
    pub async fn send(&mut self, bytes: &[u8]) -> Result<()> {
        Ok(self.sink.send(Message::binary(bytes.to_vec())).await?)
    }

    pub async fn send_text(&mut self, text: &str) -> Result<()> {
        Ok(self.sink.send(Message::text(text)).await?)
    }

    /// Some bytes, as they come; none when the other side has said goodbye.
    pub async fn receive(&mut self) -> Result<Option<Bytes>> {
        if !self.pending.is_empty() {
            return Ok(Some(self.pending.split().freeze()));
        }
        loop {
            match self.incoming.recv().await {
                Some(Ok(Message::Binary(bytes))) => return Ok(Some(bytes)),
                Some(Ok(Message::Text(text))) => return Ok(Some(Bytes::from(text))),
                Some(Ok(Message::Close(frame))) => {
                    self.closed = frame.map(|frame| frame.code.into());
                    return Ok(None);
                }
                Some(Ok(_)) => {}
                Some(Err(err)) => return Err(err.into()),
                None => return Ok(None),
            }
        }
    }

    /// Exactly so many bytes.
    pub async fn receive_exactly(&mut self, count: usize) -> Result<Bytes> {
        let all = async {
            let mut got = BytesMut::new();
            while got.len() < count {
                let Some(bytes) = self.receive().await? else { bail!("the stream ended after {} bytes", got.len()) };
                got.extend_from_slice(&bytes);
            }
            self.pending = got.split_off(count);
            Ok(got.freeze())
        };
        tokio::time::timeout(patience(), all).await.with_context(|| format!("{count} bytes did not come"))?
    }

    /// Reads until the text has been seen, and gives all that came up to there.
    pub async fn expect(&mut self, text: &str, limit: Duration) -> Result<String> {
        let mut seen = BytesMut::new();
        let found = async {
            loop {
                let at = seen.windows(text.len()).position(|window| window == text.as_bytes());
                if let Some(at) = at {
                    self.pending = seen.split_off(at + text.len());
                    return anyhow::Ok(());
                }
                let Some(bytes) = self.receive().await? else { bail!("the stream ended") };
                seen.extend_from_slice(&bytes);
            }
        };
        let outcome = match tokio::time::timeout(limit, found).await {
            Ok(outcome) => outcome,
            Err(_) => Err(anyhow::anyhow!("it did not come within {limit:?}")),
        };
        let seen = String::from_utf8_lossy(&seen).into_owned();
        outcome.with_context(|| format!("waiting for {text:?}, after:\n{seen}"))?;
        Ok(seen)
    }

    pub async fn close(mut self) -> Result<()> {
        Ok(self.sink.close().await?)
    }
}
