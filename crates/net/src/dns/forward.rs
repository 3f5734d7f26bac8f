//! Questions for others, passed on as they are.

use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::timeout;

/// A resolver that has not answered by then is passed over.
const PATIENCE: Duration = Duration::from_secs(3);
const ROUNDS: u32 = 2;
const LARGEST_FILE: u64 = 64 << 10;
/// As many as the C library would use.
const RESOLVER_LIMIT: usize = 3;

/// The host's resolvers, read anew for each question: they change when the host moves.
#[derive(Debug, Clone)]
pub(crate) struct Resolvers {
    pub(crate) file: PathBuf,
    /// Ourselves, whom the host may ask too: no question goes round in circles.
    pub(crate) except: Vec<IpAddr>,
}

impl Resolvers {
    fn list(&self) -> Vec<SocketAddr> {
        let is_small = fs::metadata(&self.file).is_ok_and(|metadata| metadata.len() <= LARGEST_FILE);
        let content = if is_small { fs::read_to_string(&self.file).unwrap_or_default() } else { String::new() };
        let listed = content.lines().filter_map(|line| {
            let mut words = line.split_whitespace();
            let address = words.next().filter(|word| *word == "nameserver").and(words.next())?;
            parse(address)
        });
        listed.filter(|address| !self.except.contains(&address.ip())).take(RESOLVER_LIMIT).collect()
    }

    /// Asks over UDP, as the question came.
    pub(super) async fn ask_udp(&self, question: &[u8]) -> Option<Vec<u8>> {
        let resolvers = self.list();
        for resolver in (0..ROUNDS).flat_map(|_| &resolvers) {
            if let Ok(Ok(answer)) = timeout(PATIENCE, ask_one_udp(*resolver, question)).await {
                return Some(answer);
            }
        }
        None
    }

    pub(super) async fn ask_tcp(&self, question: &[u8]) -> Option<Vec<u8>> {
        for resolver in self.list() {
            if let Ok(Ok(answer)) = timeout(PATIENCE, ask_one_tcp(resolver, question)).await {
                return Some(answer);
            }
        }
        None
    }
}

fn parse(address: &str) -> Option<SocketAddr> {
    // A link-local resolver is written with its link.
    if let Some((address, link)) = address.split_once('%') {
        let index = fs::read_to_string(PathBuf::from("/sys/class/net").join(link_name(link)?).join("ifindex")).ok()?;
        let scope = index.trim().parse().ok()?;
        return Some(std::net::SocketAddrV6::new(address.parse().ok()?, 53, 0, scope).into());
    }
    Some(SocketAddr::new(address.parse().ok()?, 53))
}

fn link_name(link: &str) -> Option<&str> {
    (!link.contains('/') && link != "." && link != "..").then_some(link)
}

/// Each question has a socket of its own, so a random port, and a random number; an answer must match both, and the
/// question (RFC 5452).
async fn ask_one_udp(resolver: SocketAddr, question: &[u8]) -> io::Result<Vec<u8>> {
    let any: IpAddr = if resolver.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind((any, 0)).await?;
    socket.connect(resolver).await?;
    let asked = with_new_id(question)?;
    socket.send(&asked).await?;
    let mut buffer = vec![0; 64 << 10];
    loop {
        let length = socket.recv(&mut buffer).await?;
        if let Some(answer) = accept(&buffer[..length], &asked, question) {
            return Ok(answer);
        }
    }
}

async fn ask_one_tcp(resolver: SocketAddr, question: &[u8]) -> io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect(resolver).await?;
    let asked = with_new_id(question)?;
    let length = u16::try_from(asked.len()).map_err(io::Error::other)?;
    stream.write_all(&[&length.to_be_bytes()[..], &asked].concat()).await?;
    let length = stream.read_u16().await?;
    let mut answer = vec![0; usize::from(length)];
    stream.read_exact(&mut answer).await?;
    accept(&answer, &asked, question).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

fn with_new_id(question: &[u8]) -> io::Result<Vec<u8>> {
    let mut asked = question.to_vec();
    getrandom::fill(asked.get_mut(..2).ok_or(io::ErrorKind::InvalidInput)?).map_err(io::Error::other)?;
    Ok(asked)
}

/// The answer with the number that the guest gave, if it is one to what was asked.
pub(crate) fn accept(answer: &[u8], asked: &[u8], question: &[u8]) -> Option<Vec<u8>> {
    let is_answer = answer.len() >= 12 && answer[..2] == asked[..2] && answer[2] & 0x80 != 0;
    if !is_answer || !same_question(answer, asked) {
        return None;
    }
    let mut answer = answer.to_vec();
    answer[..2].copy_from_slice(&question[..2]);
    Some(answer)
}

/// Names may come back in other cases. A refusal may come back without the question.
fn same_question(answer: &[u8], asked: &[u8]) -> bool {
    if answer[4..6] == [0, 0] {
        return true;
    }
    let Some(end) = question_end(asked) else { return false };
    answer.get(12..end).is_some_and(|part| part.eq_ignore_ascii_case(&asked[12..end]))
}

/// Where the first question ends. Names in questions are not compressed.
fn question_end(message: &[u8]) -> Option<usize> {
    let mut at = 12;
    loop {
        match usize::from(*message.get(at)?) {
            0 => break,
            label if label < 64 => at += 1 + label,
            _ => return None,
        }
    }
    (at + 5 <= message.len()).then_some(at + 5)
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUESTION: &[u8] = b"\x12\x34\x01\0\0\x01\0\0\0\0\0\0\x03www\x07example\0\0\x01\0\x01";

    #[test]
    fn only_the_answer_to_what_was_asked_is_taken() {
        let asked = with_new_id(QUESTION).unwrap();
        let mut answer = asked.clone();
        answer[2] |= 0x80;
        assert_eq!(accept(&answer, &asked, QUESTION).unwrap()[..2], QUESTION[..2]);
        let mut upper = answer.clone();
        upper[13] = b'W';
        assert!(accept(&upper, &asked, QUESTION).is_some());
        let mut other_name = answer.clone();
        other_name[13] = b'x';
        assert!(accept(&other_name, &asked, QUESTION).is_none());
        let mut other_id = answer.clone();
        other_id[0] ^= 1;
        assert!(accept(&other_id, &asked, QUESTION).is_none());
        assert!(accept(&asked, &asked, QUESTION).is_none(), "an echo");
        assert!(accept(&answer[..20], &asked, QUESTION).is_none(), "cut short");
    }

    #[test]
    fn resolvers_are_read_from_the_hosts_file_without_ourselves() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("resolv.conf");
        fs::write(
            &file,
            "# x\nsearch a\nnameserver 192.0.2.1\nnameserver 10.52.0.1\nnameserver 2001:db8::1\nnameserver x\n",
        )
        .unwrap();
        let resolvers = Resolvers { file, except: vec![IpAddr::from([10, 52, 0, 1])] };
        let listed: Vec<String> = resolvers.list().iter().map(ToString::to_string).collect();
        assert_eq!(listed, ["192.0.2.1:53", "[2001:db8::1]:53"]);
    }
}
