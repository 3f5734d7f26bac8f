//! What the kernel offers only through calls that no safe crate wraps: making taps, and packet sockets.
//! The only file of this crate with `unsafe` in it.
#![allow(unsafe_code)]

use std::fs::OpenOptions;
use std::io;
use std::mem;
use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};
use std::os::unix::fs::OpenOptionsExt as _;

use tokio::io::unix::AsyncFd;

use crate::Mac;

const TUN: &str = "/dev/net/tun";

/// One step of a packet filter: operation, jumps when true and false, operand.
pub(crate) type FilterStep = (u16, u8, u8, u32);

/// Makes a tap that lives as long as one of its descriptors, one descriptor a queue.
pub(crate) fn open_tap(name: &str, queues: u16) -> io::Result<Vec<OwnedFd>> {
    let several = queues > 1;
    (0..queues.max(1)).map(|_| open_queue(name, several)).collect()
}

fn open_queue(name: &str, is_multi_queue: bool) -> io::Result<OwnedFd> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC);
    let queue = OwnedFd::from(options.open(TUN)?);
    let mut flags = libc::IFF_TAP | libc::IFF_NO_PI | libc::IFF_VNET_HDR;
    if is_multi_queue {
        flags |= libc::IFF_MULTI_QUEUE;
    }
    // SAFETY: all-zero bytes are a valid ifreq.
    let mut request: libc::ifreq = unsafe { mem::zeroed() };
    if name.len() >= request.ifr_name.len() {
        return Err(io::Error::from(io::ErrorKind::InvalidFilename));
    }
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        // The kernel's characters are bytes, whatever their sign here.
        *to = libc::c_char::from_ne_bytes([from]);
    }
    request.ifr_ifru.ifru_flags = libc::c_short::try_from(flags).map_err(io::Error::other)?;
    // SAFETY: TUNSETIFF reads and writes one ifreq, which lives until the call is over.
    check(unsafe { libc::ioctl(queue.as_raw_fd(), libc::TUNSETIFF, &raw mut request) })?;
    Ok(queue)
}

/// A socket for the packets of one interface from their network header on, of one Ethernet protocol, that pass a filter.
pub(crate) fn packet_socket(index: u32, protocol: u16, filter: &[FilterStep]) -> io::Result<OwnedFd> {
    let kind = libc::SOCK_DGRAM | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // Protocol 0 receives nothing: the filter must be there before the first packet.
    // SAFETY: socket() takes no pointers.
    let fd = check(unsafe { libc::socket(libc::AF_PACKET, kind, 0) })?;
    // SAFETY: the descriptor is new and ours.
    let socket = unsafe { OwnedFd::from_raw_fd(fd) };
    attach_filter(&socket, filter)?;
    let address = link_address(index, protocol, Mac([0; 6]));
    // SAFETY: the address is a sockaddr_ll of the length given.
    check(unsafe { libc::bind(fd, (&raw const address).cast(), LINK_ADDRESS_LENGTH) })?;
    Ok(socket)
}

fn attach_filter(socket: &OwnedFd, filter: &[FilterStep]) -> io::Result<()> {
    let mut steps: Vec<libc::sock_filter> =
        filter.iter().map(|&(code, jt, jf, k)| libc::sock_filter { code, jt, jf, k }).collect();
    let program =
        libc::sock_fprog { len: u16::try_from(steps.len()).map_err(io::Error::other)?, filter: steps.as_mut_ptr() };
    let length = length_of::<libc::sock_fprog>();
    // SAFETY: the program and its steps live until the call is over; the kernel copies them.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_FILTER,
            (&raw const program).cast(),
            length,
        )
    };
    check(result).map(drop)
}

/// A packet from a packet socket: its length, and who sent it; `None` for what the host itself sent.
pub(crate) fn receive_packet(socket: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<(usize, Option<Mac>)> {
    let mut address = link_address(0, 0, Mac([0; 6]));
    let mut length = LINK_ADDRESS_LENGTH;
    // SAFETY: the buffer and the address are valid for writes of the lengths given.
    let received = unsafe {
        libc::recvfrom(
            socket.as_raw_fd(),
            buffer.as_mut_ptr().cast(),
            buffer.len(),
            0,
            (&raw mut address).cast(),
            &raw mut length,
        )
    };
    let received = usize::try_from(received).map_err(|_| io::Error::last_os_error())?;
    let sender = address.sll_addr.first_chunk::<6>().copied().map(Mac);
    let is_outgoing = address.sll_pkttype == libc::PACKET_OUTGOING;
    Ok((received, sender.filter(|_| !is_outgoing)))
}

/// Sends a packet, which begins with its network header, to one neighbour.
pub(crate) fn send_packet(socket: BorrowedFd<'_>, index: u32, protocol: u16, to: Mac, packet: &[u8]) -> io::Result<()> {
    let address = link_address(index, protocol, to);
    // SAFETY: the packet is valid for reads of its length, the address is a sockaddr_ll of the length given.
    let sent = unsafe {
        libc::sendto(
            socket.as_raw_fd(),
            packet.as_ptr().cast(),
            packet.len(),
            0,
            (&raw const address).cast(),
            LINK_ADDRESS_LENGTH,
        )
    };
    if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Lets the runtime say when a descriptor is ready.
pub(crate) fn watch(fd: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an owned descriptor is open and the same for as long as it lives.
    unsafe { AsyncFd::register(fd) }.map_err(io::Error::from)
}

const LINK_ADDRESS_LENGTH: libc::socklen_t = length_of::<libc::sockaddr_ll>();

/// The sizes asked for are those of small structures.
#[allow(clippy::cast_possible_truncation)]
const fn length_of<T>() -> libc::socklen_t {
    mem::size_of::<T>() as libc::socklen_t
}

fn link_address(index: u32, protocol: u16, mac: Mac) -> libc::sockaddr_ll {
    let mut hardware = [0; 8];
    hardware[..6].copy_from_slice(&mac.0);
    libc::sockaddr_ll {
        // AF_PACKET is 17.
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        sll_family: libc::AF_PACKET as u16,
        sll_protocol: protocol.to_be(),
        // The kernel counts interfaces from 1 in a signed number.
        sll_ifindex: index.cast_signed(),
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 6,
        sll_addr: hardware,
    }
}

fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// Puts the calling thread into a new network namespace.
#[cfg(test)]
pub(crate) fn leave_network_namespace() -> io::Result<()> {
    // SAFETY: a network namespace holds nothing that memory safety depends on.
    Ok(unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWNET) }?)
}
