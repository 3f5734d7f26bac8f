//! Copying between a WebSocket client and a node, with signs of life on the client's side.

use std::io;
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use futures::{Sink, SinkExt, Stream, StreamExt};
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::Instant;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::error::CapacityError;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::{Error, Message};
use tokio_util::sync::CancellationToken;

const PING_EVERY: Duration = Duration::from_secs(1);
const PING: &[u8] = b"keep alive";
/// A client that says nothing for so long, not even that it is there, is gone.
const CLIENT_SILENCE: Duration = Duration::from_mins(1);
/// For the client to answer our goodbye, and the node to take what is left.
const PARTING: Duration = Duration::from_secs(5);
/// The same when the whole server waits for it.
const HASTY_PARTING: Duration = Duration::from_secs(1);
/// What is read from the node at a time.
const READ: usize = 32 << 10;

/// How the node's bytes become messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Framing {
    /// A stream: where a message ends means nothing.
    Bytes,
    /// One datagram per message; on the node's side each follows its length in two bytes.
    Datagrams,
}

/// Why a session is over.
#[derive(Debug)]
enum End {
    /// The guest's side closed.
    NodeClosed,
    NodeLost(io::Error),
    /// The client said goodbye, or hung up.
    ClientClosed,
    ClientLost(Error),
    ClientSilent,
    /// This server stops.
    Stopping,
}

impl End {
    /// What the client is told; nothing if it is not there to hear.
    fn farewell(&self) -> Option<CloseFrame> {
        let (code, reason) = match self {
            Self::NodeClosed => (CloseCode::Normal, ""),
            Self::NodeLost(_) => (CloseCode::Error, "the connection to the virtual machine was lost"),
            Self::Stopping => (CloseCode::Away, "the server stops"),
            Self::ClientLost(Error::Capacity(CapacityError::MessageTooLong { .. })) => {
                (CloseCode::Size, "the message is too long")
            }
            Self::ClientLost(Error::Protocol(_) | Error::Utf8(_)) => (CloseCode::Protocol, "not a WebSocket message"),
            Self::ClientClosed | Self::ClientLost(_) | Self::ClientSilent => return None,
        };
        Some(CloseFrame { code, reason: reason.into() })
    }
}

/// Since when the client has been silent; `None` while it is us who do not listen, because the node does not.
type Silence = Mutex<Option<Instant>>;

/// Copies both ways until one side ends, and closes both.
pub(crate) async fn bridge<C, N>(client: WebSocketStream<C>, node: N, framing: Framing, stop: CancellationToken)
where
    C: AsyncRead + AsyncWrite + Unpin,
    N: AsyncRead + AsyncWrite,
{
    let (mut to_client, mut from_client) = client.split();
    let (from_node, mut to_node) = tokio::io::split(node);
    let silence = Silence::new(Some(Instant::now()));
    let end = tokio::select! {
        end = down(from_node, &mut to_client, framing, &silence) => end,
        end = up(&mut from_client, &mut to_node, framing, &silence) => end,
        () = stop.cancelled() => End::Stopping,
    };
    match &end {
        End::NodeLost(error) => tracing::info!(%error, "the connection to a virtual machine was lost"),
        end => tracing::debug!(?end, "a connection to a virtual machine ended"),
    }
    let parting = async {
        if let Some(frame) = end.farewell()
            && to_client.send(Message::Close(Some(frame))).await.is_ok()
        {
            // Its answer; what it still sends before that comes too late.
            while let Some(Ok(_)) = from_client.next().await {}
        } else {
            // Sends the answer to the client's own goodbye.
            _ = to_client.flush().await;
        }
    };
    // Neither side must hold up the other, nor us.
    let patience = if matches!(end, End::Stopping) { HASTY_PARTING } else { PARTING };
    _ = tokio::time::timeout(patience, futures::future::join(parting, to_node.shutdown())).await;
}

/// From the node to the client, with a ping each second.
async fn down<N, S>(mut node: N, client: &mut S, framing: Framing, silence: &Silence) -> End
where
    N: AsyncRead + Unpin,
    S: Sink<Message, Error = Error> + Unpin,
{
    let mut pings = tokio::time::interval(PING_EVERY);
    pings.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    // The first tick is at once, and the client has only just come.
    pings.tick().await;
    let mut buffer = BytesMut::new();
    loop {
        buffer.reserve(READ);
        let sent = tokio::select! {
            read = node.read_buf(&mut buffer) => match read {
                Ok(0) => return End::NodeClosed,
                Ok(_) => send_all(client, &mut buffer, framing).await,
                Err(error) => return End::NodeLost(error),
            },
            _ = pings.tick() => {
                if silence.lock().is_some_and(|since| since.elapsed() > CLIENT_SILENCE) {
                    return End::ClientSilent;
                }
                client.send(Message::Ping(Bytes::from_static(PING))).await
            }
        };
        if let Err(error) = sent {
            return End::ClientLost(error);
        }
    }
}

async fn send_all<S>(client: &mut S, buffer: &mut BytesMut, framing: Framing) -> Result<(), Error>
where
    S: Sink<Message, Error = Error> + Unpin,
{
    match framing {
        Framing::Bytes => client.send(Message::Binary(buffer.split().freeze())).await,
        Framing::Datagrams => {
            while let Some(datagram) = take_datagram(buffer) {
                client.send(Message::Binary(datagram)).await?;
            }
            Ok(())
        }
    }
}

/// The next whole datagram. At most one is ever incomplete, so that the buffer stays within 64 KiB and a read.
fn take_datagram(buffer: &mut BytesMut) -> Option<Bytes> {
    let length = usize::from(u16::from_be_bytes(*buffer.first_chunk()?));
    if buffer.len() < 2 + length {
        return None;
    }
    buffer.advance(2);
    Some(buffer.split_to(length).freeze())
}

/// From the client to the node.
async fn up<N, S>(client: &mut S, node: &mut N, framing: Framing, silence: &Silence) -> End
where
    N: AsyncWrite + Unpin,
    S: Stream<Item = Result<Message, Error>> + Unpin,
{
    loop {
        *silence.lock() = Some(Instant::now());
        let payload = match client.next().await {
            Some(Ok(Message::Binary(payload))) => payload,
            // Terminals in browsers send what is typed as text.
            Some(Ok(Message::Text(text))) => text.into(),
            Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_))) => continue,
            Some(Ok(Message::Close(_)) | Err(Error::ConnectionClosed | Error::AlreadyClosed)) | None => {
                return End::ClientClosed;
            }
            Some(Err(error)) => return End::ClientLost(error),
        };
        *silence.lock() = None;
        if let Err(error) = write(node, &payload, framing).await {
            return End::NodeLost(error);
        }
    }
}

async fn write<N: AsyncWrite + Unpin>(node: &mut N, payload: &[u8], framing: Framing) -> io::Result<()> {
    if framing == Framing::Datagrams {
        // What fits no datagram is lost, as the network would lose it.
        let Ok(length) = u16::try_from(payload.len()) else { return Ok(()) };
        node.write_all(&length.to_be_bytes()).await?;
    }
    node.write_all(payload).await?;
    node.flush().await
}

#[cfg(test)]
mod tests {
    use tokio::io::{DuplexStream, duplex};
    use tokio::task::JoinHandle;
    use tokio_tungstenite::tungstenite::protocol::Role;

    use super::*;

    struct Session {
        client: WebSocketStream<DuplexStream>,
        node: DuplexStream,
        stop: CancellationToken,
        bridge: JoinHandle<()>,
    }

    /// A client and a node with small pipes to the bridge between them.
    async fn session(framing: Framing) -> Session {
        let (client, server) = duplex(4096);
        let (node, far) = duplex(4096);
        let client = WebSocketStream::from_raw_socket(client, Role::Client, None).await;
        let server = WebSocketStream::from_raw_socket(server, Role::Server, None).await;
        let stop = CancellationToken::new();
        let bridge = tokio::spawn(bridge(server, far, framing, stop.clone()));
        Session { client, node, stop, bridge }
    }

    /// The next message that is not a ping.
    async fn next(client: &mut WebSocketStream<DuplexStream>) -> Option<Message> {
        loop {
            match client.next().await?.ok()? {
                Message::Ping(_) => {}
                message => return Some(message),
            }
        }
    }

    async fn close_code(client: &mut WebSocketStream<DuplexStream>) -> Option<CloseCode> {
        match next(client).await {
            Some(Message::Close(frame)) => frame.map(|frame| frame.code),
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test]
    async fn bytes_and_text_reach_the_node_and_binary_comes_back() {
        let mut s = session(Framing::Bytes).await;
        s.client.send(Message::binary("ab")).await.unwrap();
        s.client.send(Message::text("cd")).await.unwrap();
        let mut read = [0; 4];
        s.node.read_exact(&mut read).await.unwrap();
        assert_eq!(&read, b"abcd");
        s.node.write_all(b"ef").await.unwrap();
        assert_eq!(next(&mut s.client).await, Some(Message::binary("ef")));
        drop(s.node);
        assert_eq!(close_code(&mut s.client).await, Some(CloseCode::Normal));
        drop(s.client);
        s.bridge.await.unwrap();
    }

    #[tokio::test]
    async fn a_datagram_is_a_message() {
        let mut s = session(Framing::Datagrams).await;
        s.client.send(Message::binary("abc")).await.unwrap();
        let mut read = [0; 5];
        s.node.read_exact(&mut read).await.unwrap();
        assert_eq!(&read, b"\0\x03abc");
        // In pieces, and more than one at a time.
        for piece in [&b"\0"[..], b"\x02x", b"y\0\x01z\0\0", b"\0\x01"] {
            s.node.write_all(piece).await.unwrap();
            s.node.flush().await.unwrap();
        }
        for expected in ["xy", "z", ""] {
            assert_eq!(next(&mut s.client).await, Some(Message::binary(expected.as_bytes().to_vec())));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn clients_are_pinged_and_dropped_when_they_are_silent() {
        let mut s = session(Framing::Bytes).await;
        assert_eq!(s.client.next().await.unwrap().unwrap(), Message::Ping(Bytes::from_static(PING)));
        // Whoever reads answers; time that only the pings take must not end the session.
        for _ in 0..90 {
            assert!(matches!(s.client.next().await, Some(Ok(Message::Ping(_)))));
        }
        assert!(!s.bridge.is_finished());
        // One that does not read does not answer.
        let start = Instant::now();
        s.bridge.await.unwrap();
        let waited = start.elapsed();
        assert!(CLIENT_SILENCE <= waited && waited < CLIENT_SILENCE + 3 * PING_EVERY, "{waited:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_is_not_silent_while_the_node_does_not_listen() {
        let mut s = session(Framing::Bytes).await;
        let (mut sink, mut stream) = s.client.split();
        let flood = tokio::spawn(async move { while sink.send(Message::binary(vec![7; 1024])).await.is_ok() {} });
        for _ in 0..90 {
            assert!(matches!(stream.next().await, Some(Ok(Message::Ping(_)))));
        }
        assert!(!s.bridge.is_finished());
        let mut byte = [0];
        s.node.read_exact(&mut byte).await.unwrap();
        flood.abort();
        s.bridge.abort();
    }

    #[tokio::test]
    async fn a_stopping_server_says_goodbye() {
        let mut s = session(Framing::Bytes).await;
        s.stop.cancel();
        assert_eq!(close_code(&mut s.client).await, Some(CloseCode::Away));
        drop(s.client);
        s.bridge.await.unwrap();
    }

    #[tokio::test]
    async fn a_goodbye_is_answered_and_reaches_the_node() {
        let mut s = session(Framing::Bytes).await;
        s.client.close(None).await.unwrap();
        assert!(matches!(next(&mut s.client).await, Some(Message::Close(_))));
        s.bridge.await.unwrap();
        let mut rest = Vec::new();
        s.node.read_to_end(&mut rest).await.unwrap();
        assert!(rest.is_empty());
    }

    /// Neither side's silence stops the other's talk.
    #[tokio::test]
    async fn directions_do_not_wait_for_each_other() {
        let mut s = session(Framing::Bytes).await;
        // The node reads nothing, so that the bridge is stuck on its way up...
        let (mut sink, mut stream) = s.client.split();
        let flood = tokio::spawn(async move { while sink.send(Message::binary(vec![7; 1024])).await.is_ok() {} });
        // ...and still all that the node says comes through.
        for round in 0..200_u32 {
            s.node.write_all(&round.to_be_bytes()).await.unwrap();
        }
        let mut seen = 0;
        while seen < 800 {
            if let Message::Binary(bytes) = stream.next().await.unwrap().unwrap() {
                seen += bytes.len();
            }
        }
        flood.abort();
        s.bridge.abort();
    }
}
