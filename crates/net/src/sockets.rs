//! Sockets that belong to one link, whatever else the host does with the same port.

use std::io;
use std::net::SocketAddr;

use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::{TcpListener, UdpSocket};

pub(crate) fn udp(address: SocketAddr, link: &str) -> io::Result<UdpSocket> {
    let socket = bind(address, link, Type::DGRAM, Protocol::UDP)?;
    UdpSocket::from_std(socket.into())
}

pub(crate) fn tcp(address: SocketAddr, link: &str) -> io::Result<TcpListener> {
    let socket = bind(address, link, Type::STREAM, Protocol::TCP)?;
    socket.listen(64)?;
    TcpListener::from_std(socket.into())
}

fn bind(address: SocketAddr, link: &str, kind: Type, protocol: Protocol) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), kind.cloexec().nonblocking(), Some(protocol))?;
    socket.set_reuse_address(true)?;
    socket.bind_device(Some(link.as_bytes()))?;
    // The address may still be on its way to the link.
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
        socket.set_freebind_v6(true)?;
    } else {
        socket.set_freebind_v4(true)?;
    }
    socket.bind(&address.into())?;
    Ok(socket)
}
