//! Streams that KubeVirt's API offers over WebSockets: consoles, screens, forwarded ports.

use anyhow::{Context, bail};
use futures::{SinkExt, StreamExt};
use http::{Request, header};
use hyper_util::rt::TokioIo;
use kube::client::Body;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{Message, Role};

use crate::client::Client;

const PROTOCOL: &str = "plain.kubevirt.io";
const CHUNK: usize = 32 * 1024;

pub(crate) type Socket = WebSocketStream<TokioIo<hyper::upgrade::Upgraded>>;

/// Opens the stream at `path`. The server's refusal is the error.
pub(crate) async fn open(client: &Client, path: &str) -> anyhow::Result<Socket> {
    let request = Request::get(path)
        .header(header::CONNECTION, "Upgrade")
        .header(header::UPGRADE, "websocket")
        .header(header::SEC_WEBSOCKET_VERSION, "13")
        .header(header::SEC_WEBSOCKET_KEY, tokio_tungstenite::tungstenite::handshake::client::generate_key())
        .header(header::SEC_WEBSOCKET_PROTOCOL, PROTOCOL)
        .body(Body::empty())?;
    let answer = client.send(request).await?;
    if answer.status() != http::StatusCode::SWITCHING_PROTOCOLS {
        bail!("the server did not open a stream; is there a proxy on the way that does not let WebSockets pass?");
    }
    let upgraded = hyper::upgrade::on(answer).await.context("the connection was cut off")?;
    Ok(WebSocketStream::from_raw_socket(TokioIo::new(upgraded), Role::Client, None).await)
}

/// Why a stream ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// Our side has no more to send.
    Ours,
    /// The other side closed it in the ordinary way.
    Theirs,
    /// The other side went away, or gave the stream to somebody else.
    Cut,
}

/// Copies in both directions until one side ends.
pub(crate) async fn copy(
    socket: Socket,
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
) -> anyhow::Result<End> {
    let (mut sink, mut source) = socket.split();
    let mut buffer = vec![0; CHUNK];
    let end = loop {
        tokio::select! {
            read = from.read(&mut buffer) => match read? {
                0 => break End::Ours,
                count => {
                    let sent = sink.send(Message::binary(buffer[..count].to_vec())).await;
                    if sent.is_err() {
                        break End::Cut;
                    }
                }
            },
            message = source.next() => match message {
                Some(Ok(Message::Binary(bytes))) => {
                    to.write_all(&bytes).await?;
                    to.flush().await?;
                }
                Some(Ok(Message::Text(text))) => {
                    to.write_all(text.as_bytes()).await?;
                    to.flush().await?;
                }
                Some(Ok(Message::Close(Some(frame)))) if frame.code != CloseCode::Normal => break End::Cut,
                Some(Ok(Message::Close(_))) => break End::Theirs,
                Some(Ok(_)) => {}
                Some(Err(_)) | None => break End::Cut,
            },
        }
    };
    // The other side may be gone already; then there is nobody to say goodbye to.
    let _ = sink.close().await;
    Ok(end)
}
