//! Streams to something of a running machine: console, screen, USB ports, sockets.

use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response};
use hyper::body::Incoming;
use socket2::{Domain, SockAddr, Socket, Type};
use tokio::net::{TcpStream, UdpSocket, UnixStream};
use tokio::time::timeout;

use super::actions::of_qemu;
use super::answer::{Body, Failure};
use super::route::StreamKind;
use super::{Reach, Reached, Transport};
use crate::guest::Guest;
use crate::streams::{self, Streams, datagrams, join};

const DIAL: Duration = Duration::from_secs(10);

/// Reaches what is asked for, and only then says that the stream begins.
pub(super) async fn begin(
    open: &Streams,
    reach: &dyn Reach,
    guest: Arc<Guest>,
    kind: StreamKind,
    request: Request<Incoming>,
) -> Result<Response<Body>, Failure> {
    streams::check(&request)?;
    match kind {
        StreamKind::Console => console(open, &guest, request),
        StreamKind::Vnc { keeps_session } => screen(open, &guest, keeps_session, request).await,
        StreamKind::UsbRedir => usb(open, &guest, request).await,
        StreamKind::Vsock { port } => {
            let peer = vsock(&guest, port).await?;
            open.start(request, |user| join(user, peer))
        }
        StreamKind::PortForward { port, transport } => {
            let status = guest.qmp.status().await.map_err(|error| of_qemu(&guest, &error))?;
            if !status.running {
                return Err(Failure::conflict(&guest.name, "VMI is paused"));
            }
            let reached = reach.reach(&guest, port, transport).await;
            let reached = reached.map_err(|reason| Failure::conflict(&guest.name, &reason))?;
            forward(open, reached, transport, request).await
        }
    }
}

fn console(open: &Streams, guest: &Guest, request: Request<Incoming>) -> Result<Response<Body>, Failure> {
    let Some(console) = &guest.console else { return Err(Failure::bad_request("No serial consoles are present.")) };
    let session = console.attach();
    open.start(request, |user| session.run(user))
}

async fn screen(
    open: &Streams,
    guest: &Guest,
    keeps_session: bool,
    request: Request<Incoming>,
) -> Result<Response<Body>, Failure> {
    if !guest.has_display {
        return Err(Failure::bad_request("No graphics devices are present."));
    }
    let place = if keeps_session {
        let taken = || Failure::conflict(&guest.name, "Active VNC connection. Request denied.");
        guest.screen.take().ok_or_else(taken)?
    } else {
        guest.screen.take_over()
    };
    let vnc = guest.qmp.connect_vnc().await.map_err(|error| of_qemu(guest, &error))?;
    open.start(request, |user| place.run(join(user, vnc)))
}

/// The first port that nobody uses.
async fn usb(open: &Streams, guest: &Guest, request: Request<Incoming>) -> Result<Response<Body>, Failure> {
    if guest.usb_ports.is_empty() {
        return Err(Failure::conflict(&guest.name, "Not configured with USB Redirection"));
    }
    let mut ports = guest.usb_ports.iter().zip(&guest.usb_places);
    let free = ports.find_map(|(socket, place)| Some((socket, place.take()?)));
    let (socket, place) = free.ok_or_else(|| Failure::conflict(&guest.name, "All USB redirection slots are in use"))?;
    let port = timeout(DIAL, UnixStream::connect(socket)).await.map_err(|_| timed_out("the USB port"))?;
    let port = port.map_err(|error| Failure::internal(format!("the USB port cannot be reached: {error}")))?;
    open.start(request, |user| place.run(join(user, port)))
}

async fn vsock(guest: &Guest, port: u32) -> Result<TcpStream, Failure> {
    let cid = guest.vsock_cid.ok_or_else(|| Failure::bad_request("VSOCK is not attached."))?;
    let dial = move || -> std::io::Result<std::net::TcpStream> {
        let socket = Socket::new(Domain::VSOCK, Type::STREAM, None)?;
        socket.connect_timeout(&SockAddr::vsock(cid, port), DIAL)?;
        socket.set_nonblocking(true)?;
        // Only read from and written to, which is the same for every stream.
        Ok(std::os::fd::OwnedFd::from(socket).into())
    };
    let dialled = tokio::task::spawn_blocking(dial).await.map_err(|error| Failure::internal(error.to_string()))?;
    dialled
        .and_then(TcpStream::from_std)
        .map_err(|error| Failure::internal(format!("the guest's VSOCK port {port} cannot be reached: {error}")))
}

async fn forward(
    open: &Streams,
    reached: Reached,
    transport: Transport,
    request: Request<Incoming>,
) -> Result<Response<Body>, Failure> {
    let address = reached.address;
    let unreachable = |error: &std::io::Error| Failure::internal(format!("{address}: {error}"));
    match transport {
        Transport::Tcp => {
            let peer = timeout(DIAL, TcpStream::connect(address)).await.map_err(|_| timed_out(&address.to_string()))?;
            let peer = peer.map_err(|error| unreachable(&error))?;
            let _ = peer.set_nodelay(true);
            open.start(request, |user| async move {
                join(user, peer).await;
                drop(reached);
            })
        }
        Transport::Udp => {
            let any = if address.is_ipv6() { "[::]:0" } else { "0.0.0.0:0" };
            let socket = UdpSocket::bind(any).await.map_err(|error| unreachable(&error))?;
            socket.connect(address).await.map_err(|error| unreachable(&error))?;
            open.start(request, |user| async move {
                datagrams::relay(user, &socket).await;
                drop(reached);
            })
        }
    }
}

fn timed_out(what: &str) -> Failure {
    Failure::new(http::StatusCode::GATEWAY_TIMEOUT, format!("{what} did not answer within {DIAL:?}"))
}
