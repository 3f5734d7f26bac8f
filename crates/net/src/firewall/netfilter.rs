//! Elements of sets, changed through netlink in one transaction.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::net::netlink::{self, SocketAddrNetlink};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, sockopt};
use tokio::io::unix::AsyncFd;

use super::FirewallError;
use super::elements::{Element, Family, SETS, Set};
use crate::sys;

const NLM_F_REQUEST: u16 = 1;
const NLM_F_ACK: u16 = 4;
const NLM_F_CREATE: u16 = 0x400;
const NLMSG_ERROR: u16 = 2;
const BATCH_BEGIN: u16 = 0x10;
const BATCH_END: u16 = 0x11;
const SUBSYSTEM: u16 = 10;
const GET_CHAIN: u16 = 4;
const NEW_ELEMENTS: u16 = 12;
const DELETE_ELEMENTS: u16 = 14;
const NESTED: u16 = 0x8000;
/// The group that hears of changes to tables.
const CHANGES_GROUP: u32 = 7;
const PATIENCE: Duration = Duration::from_secs(5);

/// The kernel's packet filter, and one table of it in each of the two families.
#[derive(Debug, Clone)]
pub(crate) struct Netfilter {
    table: String,
}

/// A change to the sets, done as a whole or not at all.
#[derive(Debug, Default)]
pub(crate) struct Change {
    pub(crate) is_flush: bool,
    pub(crate) remove: Vec<Element>,
    pub(crate) add: Vec<Element>,
}

impl Netfilter {
    pub(crate) fn new(table: &str) -> Netfilter {
        Netfilter { table: table.to_owned() }
    }

    /// Whether both tables have the chain that marks their rules.
    pub(crate) fn has_chain(&self, chain: &str) -> Result<bool, FirewallError> {
        for family in [Family::Bridge, Family::Inet] {
            let mut message = Message::new(SUBSYSTEM << 8 | GET_CHAIN, NLM_F_REQUEST | NLM_F_ACK, 1, family, 0);
            message.text(1, &self.table);
            message.text(3, chain);
            match exchange(&message.finish(), 1) {
                Ok(()) => {}
                Err(error) if error.raw_os_error() == Some(libc::ENOENT) => return Ok(false),
                Err(error) => return Err(FirewallError::Netlink(error)),
            }
        }
        Ok(true)
    }

    pub(crate) fn apply(&self, change: &Change) -> Result<(), FirewallError> {
        let mut batch = Message::new(BATCH_BEGIN, NLM_F_REQUEST, 0, Family::Any, SUBSYSTEM).finish();
        let mut count = 0;
        let mut push = |kind: u16, flags: u16, set: Set, elements: &[&Element]| {
            count += 1;
            let kind = SUBSYSTEM << 8 | kind;
            let mut message = Message::new(kind, NLM_F_REQUEST | NLM_F_ACK | flags, count, set.family(), 0);
            message.text(1, &self.table);
            message.text(2, set.name());
            message.elements(elements);
            batch.extend(message.finish());
        };
        if change.is_flush {
            for set in SETS {
                push(DELETE_ELEMENTS, 0, set, &[]);
            }
        }
        for (kind, flags, elements) in [(DELETE_ELEMENTS, 0, &change.remove), (NEW_ELEMENTS, NLM_F_CREATE, &change.add)]
        {
            for set in SETS {
                let of_set: Vec<&Element> = elements.iter().filter(|element| element.set == set).collect();
                // An attribute cannot be longer than 64 KiB.
                of_set.chunks(256).for_each(|chunk| push(kind, flags, set, chunk));
            }
        }
        if count == 0 {
            return Ok(());
        }
        batch.extend(Message::new(BATCH_END, NLM_F_REQUEST, 0, Family::Any, SUBSYSTEM).finish());
        exchange(&batch, count).map_err(FirewallError::Netlink)
    }

    /// Hears of every change to the host's tables.
    pub(crate) fn listen() -> io::Result<Listener> {
        let socket = open()?;
        rustix::net::bind(&socket, &SocketAddrNetlink::new(0, 1 << (CHANGES_GROUP - 1)))?;
        rustix::fs::fcntl_setfl(&socket, rustix::fs::OFlags::NONBLOCK)?;
        Ok(Listener(sys::watch(socket)?))
    }
}

#[derive(Debug)]
pub(crate) struct Listener(AsyncFd<OwnedFd>);

impl Listener {
    /// Waits until something has changed, and forgets what it was. Also when so much did that messages were lost.
    pub(crate) async fn changed(&self) -> io::Result<()> {
        let mut buffer = [0; 8192];
        let mut ready = self.0.readable().await?;
        loop {
            match rustix::net::recv(self.0.get_ref(), &mut buffer, RecvFlags::empty()) {
                Ok(_) | Err(rustix::io::Errno::NOBUFS) => {}
                Err(rustix::io::Errno::AGAIN) => {
                    ready.clear_ready();
                    return Ok(());
                }
                Err(error) => return Err(error.into()),
            }
        }
    }
}

fn open() -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC;
    Ok(rustix::net::socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, Some(netlink::NETFILTER))?)
}

/// Sends messages, and waits until the kernel has acknowledged as many. It does so before the call to send returns, so
/// nothing here waits in earnest.
fn exchange(messages: &[u8], acknowledgements: u32) -> io::Result<()> {
    let socket = open()?;
    rustix::net::bind(&socket, &SocketAddrNetlink::new(0, 0))?;
    sockopt::set_socket_timeout(&socket, sockopt::Timeout::Recv, Some(PATIENCE))?;
    // A transaction of thousands of elements is one datagram, and each part of it is acknowledged.
    if messages.len() > 64 << 10 {
        sockopt::set_socket_send_buffer_size_force(&socket, messages.len() * 2)?;
    }
    sockopt::set_socket_recv_buffer_size_force(&socket, 1 << 20).ok();
    rustix::net::sendto(&socket, messages, SendFlags::empty(), &SocketAddrNetlink::new(0, 0))?;
    let (mut left, mut failure) = (acknowledgements, None);
    let mut buffer = vec![0; 32 << 10];
    while left > 0 {
        let (length, _) = rustix::net::recv(&socket, &mut buffer[..], RecvFlags::empty())?;
        for error in errors(&buffer[..length]) {
            left = left.saturating_sub(1);
            // The kernel reports every part that it refuses; the first is the cause.
            if error != 0 && failure.is_none() {
                failure = Some(io::Error::from_raw_os_error(error.abs()));
            }
        }
        // A refused transaction is not acknowledged part by part.
        if let Some(failure) = failure.take() {
            return Err(failure);
        }
    }
    Ok(())
}

/// The error numbers of all acknowledgements in a datagram.
fn errors(mut datagram: &[u8]) -> Vec<i32> {
    let mut found = Vec::new();
    while let Some((header, _)) = datagram.split_first_chunk::<16>() {
        let [a, b, c, d, kind_low, kind_high, ..] = *header;
        let length = u32::from_ne_bytes([a, b, c, d]) as usize;
        if length < 16 || length > datagram.len() {
            break;
        }
        if u16::from_ne_bytes([kind_low, kind_high]) == NLMSG_ERROR {
            let code = datagram[16..length].first_chunk::<4>().map_or(0, |bytes| i32::from_ne_bytes(*bytes));
            found.push(code);
        }
        datagram = &datagram[length.next_multiple_of(4).min(datagram.len())..];
    }
    found
}

/// A netlink message being written.
struct Message(Vec<u8>);

impl Message {
    fn new(kind: u16, flags: u16, sequence: u32, family: Family, resource: u16) -> Message {
        let mut bytes = vec![0; 4];
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(flags.to_ne_bytes());
        bytes.extend(sequence.to_ne_bytes());
        bytes.extend([0; 4]);
        bytes.extend([family.number(), 0]);
        bytes.extend(resource.to_be_bytes());
        Message(bytes)
    }

    fn attribute(&mut self, kind: u16, content: impl FnOnce(&mut Message)) {
        let start = self.0.len();
        self.0.extend([0; 2]);
        self.0.extend(kind.to_ne_bytes());
        content(self);
        // Callers keep within 64 KiB.
        let length = u16::try_from(self.0.len() - start).unwrap_or(u16::MAX);
        self.0[start..start + 2].copy_from_slice(&length.to_ne_bytes());
        self.0.resize(self.0.len().next_multiple_of(4), 0);
    }

    fn text(&mut self, kind: u16, text: &str) {
        self.attribute(kind, |message| {
            message.0.extend(text.as_bytes());
            message.0.push(0);
        });
    }

    fn elements(&mut self, elements: &[&Element]) {
        if elements.is_empty() {
            return;
        }
        self.attribute(3 | NESTED, |list| {
            for element in elements {
                list.attribute(1 | NESTED, |one| {
                    one.data(1, &element.key);
                    if let Some(value) = &element.value {
                        one.data(2, value);
                    }
                    if let Some(end) = &element.key_end {
                        one.data(10, end);
                    }
                });
            }
        });
    }

    fn data(&mut self, kind: u16, bytes: &[u8]) {
        self.attribute(kind | NESTED, |data| data.attribute(1, |value| value.0.extend(bytes)));
    }

    fn finish(mut self) -> Vec<u8> {
        let length = u32::try_from(self.0.len()).unwrap_or(u32::MAX);
        self.0[..4].copy_from_slice(&length.to_ne_bytes());
        self.0
    }
}

impl Family {
    fn number(self) -> u8 {
        match self {
            Family::Any => 0,
            Family::Inet => 1,
            Family::Bridge => 7,
        }
    }
}
