//! The resolver's sockets.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use hickory_proto::op::{Message, ResponseCode};
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::{Directory, Resolvers, Verdict, answer};
use crate::error::NetError;
use crate::sockets;

const PORT: u16 = 53;
/// What one guest may have going on at a time; more is dropped, and asked again by any resolver.
const LIMIT_PER_GUEST: usize = 64;
const LIMIT: usize = 1024;
/// How long a guest may leave a connection idle.
const IDLE: Duration = Duration::from_secs(10);
/// Without EDNS, an answer over UDP is no longer than this.
const SMALL_ANSWER: usize = 512;

#[derive(Debug)]
pub(crate) struct Server {
    udp: Arc<UdpSocket>,
    tcp: TcpListener,
}

/// What all questions share.
struct Shared {
    directory: Arc<dyn Directory>,
    resolvers: Resolvers,
    busy: Mutex<HashMap<IpAddr, usize>>,
}

impl Server {
    pub(crate) fn open(address: IpAddr, link: &str) -> Result<Server, NetError> {
        let address = SocketAddr::new(address, PORT);
        let open = || Ok(Server { udp: Arc::new(sockets::udp(address, link)?), tcp: sockets::tcp(address, link)? });
        open().map_err(|error: io::Error| NetError::Socket("DNS", error))
    }

    /// Answers until a socket fails. Questions that are under way end with the server.
    pub(crate) async fn serve(self, directory: Arc<dyn Directory>, resolvers: Resolvers) -> io::Error {
        let shared = Arc::new(Shared { directory, resolvers, busy: Mutex::default() });
        let mut tasks = JoinSet::new();
        let mut buffer = vec![0; 4096];
        loop {
            tokio::select! {
                received = self.udp.recv_from(&mut buffer) => match received {
                    Err(error) => return error,
                    Ok((length, from)) => {
                        let Some(slot) = Slot::take(&shared, from.ip(), tasks.len()) else { continue };
                        let (socket, question) = (Arc::clone(&self.udp), buffer[..length].to_vec());
                        tasks.spawn(async move {
                            if let Some(answer) = slot.0.reply(&question, from.ip(), Transport::Udp).await {
                                // A guest that is gone needs no answer.
                                let _ = socket.send_to(&answer, from).await;
                            }
                        });
                    }
                },
                accepted = self.tcp.accept() => {
                    // Out of descriptors, or reset before we came: the next may do better.
                    let Ok((stream, from)) = accepted else {
                        tokio::task::yield_now().await;
                        continue;
                    };
                    let Some(slot) = Slot::take(&shared, from.ip(), tasks.len()) else { continue };
                    tasks.spawn(async move { slot.0.converse(stream, from.ip()).await });
                }
                _ = tasks.join_next(), if !tasks.is_empty() => {}
            }
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Transport {
    Udp,
    Tcp,
}

impl Shared {
    async fn reply(&self, question: &[u8], from: IpAddr, transport: Transport) -> Option<Vec<u8>> {
        let query = Message::from_vec(question).ok()?;
        match answer(&query, from, self.directory.as_ref()) {
            Verdict::Ignore => None,
            Verdict::Answer(reply) => fit(&reply, &query, transport),
            Verdict::Forward => {
                let answered = match transport {
                    Transport::Udp => self.resolvers.ask_udp(question).await,
                    Transport::Tcp => self.resolvers.ask_tcp(question).await,
                };
                answered.or_else(|| failure(&query))
            }
        }
    }

    async fn converse(&self, mut stream: TcpStream, from: IpAddr) {
        while let Ok(Ok(question)) = timeout(IDLE, read(&mut stream)).await {
            let Some(answer) = self.reply(&question, from, Transport::Tcp).await else { return };
            let Ok(length) = u16::try_from(answer.len()) else { return };
            let message = [&length.to_be_bytes()[..], &answer].concat();
            if !matches!(timeout(IDLE, stream.write_all(&message)).await, Ok(Ok(()))) {
                return;
            }
        }
    }
}

async fn read(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let length = stream.read_u16().await?;
    let mut question = vec![0; usize::from(length)];
    stream.read_exact(&mut question).await?;
    Ok(question)
}

/// An answer that is too long for UDP says so, and is asked for again over TCP.
fn fit(reply: &Message, query: &Message, transport: Transport) -> Option<Vec<u8>> {
    let bytes = reply.to_vec().ok()?;
    let room = SMALL_ANSWER.max(usize::from(query.max_payload()));
    if transport == Transport::Tcp || bytes.len() <= room { Some(bytes) } else { reply.truncate().to_vec().ok() }
}

fn failure(query: &Message) -> Option<Vec<u8>> {
    let mut reply = Message::error_msg(query.metadata.id, query.metadata.op_code, ResponseCode::ServFail);
    reply.add_queries(query.queries.iter().cloned());
    reply.metadata.recursion_desired = query.metadata.recursion_desired;
    reply.metadata.recursion_available = true;
    reply.to_vec().ok()
}

/// A guest has as many IPv6 addresses as it likes, all within one prefix.
fn counted_as(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << 64)).into(),
    }
}

/// The right of a guest to one more question at a time.
struct Slot(Arc<Shared>, IpAddr);

impl Slot {
    fn take(shared: &Arc<Shared>, guest: IpAddr, all: usize) -> Option<Slot> {
        let guest = counted_as(guest);
        let mut busy = shared.busy.lock();
        let of_guest = busy.get(&guest).copied().unwrap_or(0);
        if of_guest >= LIMIT_PER_GUEST || all >= LIMIT {
            return None;
        }
        busy.insert(guest, of_guest + 1);
        Some(Slot(Arc::clone(shared), guest))
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut busy = self.0.busy.lock();
        match busy.get_mut(&self.1) {
            Some(count) if *count > 1 => *count -= 1,
            _ => drop(busy.remove(&self.1)),
        }
    }
}
