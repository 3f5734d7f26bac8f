//! Listening, TLS, HTTP/1.1 and 2 on one port.

mod crowd;
mod lane;
mod sending;
mod taken;
mod unread;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use http::StatusCode;
use http_body::{Body as _, Frame, SizeHint};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use rustls::ServerConfig;
use rustls::pki_types::CertificateDer;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Sleep;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::task::TaskTracker;

use crate::answer::{Body, BoxError};
use crate::config::Listen;
use crate::pipeline::{self, Caller};
use crate::server::{ApiServer, StartError};
use crowd::{Busy, Place};
use taken::Requests;
use unread::Unread;

pub(crate) use crowd::Crowd;
pub(crate) use lane::{Lane, LongAnswer, SlowThreads};

const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// For a client to send the head of a request.
const HEADER_TIMEOUT: Duration = Duration::from_mins(1);
/// A client that takes nothing for this long, while there is something for it, is gone or hostile.
const WRITE_TIMEOUT: Duration = Duration::from_mins(1);
/// For a connection that has to go to say goodbye.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(1);
/// For what is being asked when the server stops: the store is to be closed in order, whatever clients take of their answers.
const STOP_TIMEOUT: Duration = Duration::from_secs(3);
/// For the head of a request, and for what is read or written at a time; what a connection is reckoned with. Tokens and cookies
/// are a few KiB, and HTTP/2 allows 16 in all.
const BUFFER: usize = 64 << 10;
const BACKLOG: i32 = 1024;

/// Binds the listeners; optional ones may be missing from the result.
pub(crate) fn bind(listen: &[Listen]) -> Result<Vec<TcpListener>, StartError> {
    let mut listeners = Vec::new();
    for Listen { addr, is_required } in listen {
        match bind_one(*addr) {
            Ok(listener) => listeners.push(listener),
            Err(source) if *is_required => return Err(StartError::Listen { addr: *addr, source }),
            Err(error) => tracing::warn!(%addr, %error, "this address cannot be listened on and is left out"),
        }
    }
    Ok(listeners)
}

fn bind_one(addr: SocketAddr) -> io::Result<TcpListener> {
    let socket = socket2::Socket::new(socket2::Domain::for_address(addr), socket2::Type::STREAM, None)?;
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&addr.into())?;
    socket.listen(BACKLOG)?;
    TcpListener::from_std(socket.into())
}

/// The address by which a client on this machine reaches a listener.
pub(crate) fn reachable(addr: SocketAddr) -> SocketAddr {
    let ip = match addr.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::from([127, 0, 0, 1]),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::from(std::net::Ipv6Addr::LOCALHOST),
        ip => ip,
    };
    SocketAddr::new(ip, addr.port())
}

/// How a listener speaks TLS, which may change between connections.
pub(crate) type Speaking = Arc<ArcSwap<ServerConfig>>;

/// Accepts connections until the server stops.
pub(crate) async fn accept(
    server: Arc<ApiServer>,
    listener: TcpListener,
    tls: Speaking,
    crowd: Arc<Crowd>,
    slow: Arc<SlowThreads>,
    tasks: TaskTracker,
) {
    let stop = server.stopping();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = stop.cancelled() => return,
        };
        match accepted {
            Ok((stream, peer)) => {
                let acceptor = TlsAcceptor::from(tls.load_full());
                if let Some(place) = crowd.enter(peer.ip(), Instant::now()) {
                    tasks.spawn(connection(Arc::clone(&server), acceptor, stream, peer.ip(), place, slow.lane()));
                }
            }
            Err(error) => {
                // Out of descriptors, most likely: the connections that end give some back.
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
}

async fn connection(
    server: Arc<ApiServer>,
    acceptor: TlsAcceptor,
    stream: TcpStream,
    address: IpAddr,
    place: Arc<Place>,
    lane: Lane,
) {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "TCP_NODELAY could not be set");
    }
    let upgraded = Arc::default();
    let handshake = acceptor.accept(Unstalled::new(stream, Arc::clone(&upgraded), Arc::clone(&place)));
    let stream = tokio::select! {
        done = tokio::time::timeout(HANDSHAKE_TIMEOUT, handshake) => match done {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => {
                tracing::debug!(%error, "TLS handshake failed");
                return;
            }
            Err(_) => return,
        },
        () = place.leave.cancelled() => return,
    };
    let certificates: Option<Arc<[CertificateDer<'static>]>> = stream
        .get_ref()
        .1
        .peer_certificates()
        .map(|chain| chain.iter().cloned().map(CertificateDer::into_owned).collect());
    let caller = Caller::Remote { certificates, address, lane: lane.clone() };
    lane.clone().run(conversation(server, stream, caller, place, upgraded, lane)).await;
}

/// Answers what is asked on a connection, until it ends.
async fn conversation(
    server: Arc<ApiServer>,
    stream: TlsStream<Unstalled>,
    caller: Caller,
    place: Arc<Place>,
    upgraded: Arc<OnceLock<Busy>>,
    lane: Lane,
) {
    let stop = server.stopping();
    let (leave, cut) = (place.leave.clone(), place.cut.clone());
    let requests = Requests { lane: lane.clone(), place: Arc::clone(&place) };
    let address = caller.address();
    let service = service_fn(move |request: hyper::Request<Incoming>| {
        let (server, caller, busy, lane) = (Arc::clone(&server), caller.clone(), place.busy(), lane.clone());
        let place = Arc::clone(&place);
        let upgraded = Arc::clone(&upgraded);
        let request = Unread::of(request).map(|body| body.map_err(Into::into).boxed_unsync());
        async move {
            let answer = pipeline::handle(server, request, caller).await;
            if answer.status() == StatusCode::SWITCHING_PROTOCOLS {
                // From here on it is used in another way, until it is closed.
                let _ = upgraded.set(place.busy());
            }
            let long = lane.long_answer_of(answer.body().size_hint().lower());
            Ok::<_, std::convert::Infallible>(answer.map(|body| Attended { body, place, _busy: busy, _long: long }))
        }
    });
    let mut builder = auto::Builder::new(requests);
    builder.http1().timer(TokioTimer::new()).header_read_timeout(HEADER_TIMEOUT).max_buf_size(BUFFER);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(250)
        .keep_alive_interval(Some(Duration::from_secs(30)))
        .keep_alive_timeout(Duration::from_secs(20));
    let connection = builder.serve_connection_with_upgrades(TokioIo::new(stream), service);
    tokio::pin!(connection);
    let result = tokio::select! {
        result = connection.as_mut() => result,
        () = stop.cancelled() => {
            connection.as_mut().graceful_shutdown();
            tokio::time::timeout(STOP_TIMEOUT, connection).await.unwrap_or(Ok(()))
        }
        () = leave.cancelled() => {
            tracing::debug!(?address, "a quiet connection is closed to make room for another");
            connection.as_mut().graceful_shutdown();
            // Half a request may have come, and its other half may take a minute.
            tokio::time::timeout(LEAVE_TIMEOUT, connection).await.unwrap_or(Ok(()))
        }
        () = cut.cancelled() => {
            tracing::debug!(?address, "a connection is closed whose client does not take what there is for it");
            Ok(())
        }
    };
    if let Err(error) = result {
        tracing::debug!(error = %error, "connection ended");
    }
}

/// The body of an answer, during which its connection is in use.
#[derive(Debug)]
struct Attended {
    body: Body,
    place: Arc<Place>,
    _busy: Busy,
    _long: Option<LongAnswer>,
}

impl http_body::Body for Attended {
    type Data = bytes::Bytes;
    type Error = BoxError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<bytes::Bytes>, BoxError>>> {
        let this = self.get_mut();
        let frame = Pin::new(&mut this.body).poll_frame(cx);
        taken::told(&frame);
        frame.map_ok(|frame| frame.map_data(|bytes| this.place.sends(bytes)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A stream whose peer must keep reading: a write that makes no progress for too long fails.
///
/// It has its connection's place among the others for as long as it is open, whatever it is used for.
#[derive(Debug)]
struct Unstalled {
    stream: TcpStream,
    _upgraded: Arc<OnceLock<Busy>>,
    _place: Arc<Place>,
    /// Runs while a write waits for the peer.
    patience: Option<Pin<Box<Sleep>>>,
}

impl Unstalled {
    fn new(stream: TcpStream, upgraded: Arc<OnceLock<Busy>>, place: Arc<Place>) -> Self {
        Self { stream, _upgraded: upgraded, _place: place, patience: None }
    }

    fn check<T>(&mut self, cx: &mut Context<'_>, outcome: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if outcome.is_ready() {
            self.patience = None;
            return outcome;
        }
        let patience = self.patience.get_or_insert_with(|| Box::pin(tokio::time::sleep(WRITE_TIMEOUT)));
        match patience.as_mut().poll(cx) {
            Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl AsyncRead for Unstalled {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Unstalled {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let outcome = Pin::new(&mut this.stream).poll_write(cx, buf);
        this.check(cx, outcome)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let outcome = Pin::new(&mut this.stream).poll_write_vectored(cx, bufs);
        this.check(cx, outcome)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }
}
