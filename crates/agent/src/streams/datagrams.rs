//! Datagrams in a stream: each is preceded by its length, two bytes, the higher one first.

use std::io::ErrorKind;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::UdpSocket;
use tokio::time::timeout;

/// A stream on which nothing has come from the guest or gone to it for this long is over: datagrams have no end.
const IDLE: Duration = Duration::from_mins(10);

/// Carries datagrams between the stream and a socket that is connected to the guest.
pub(crate) async fn relay(stream: impl AsyncRead + AsyncWrite, socket: &UdpSocket) {
    let (mut read, mut write) = tokio::io::split(stream);
    let to_guest = async {
        let mut datagram = vec![0; usize::from(u16::MAX)];
        while let Ok(Ok(length)) = timeout(IDLE, read.read_u16()).await {
            let datagram = &mut datagram[..usize::from(length)];
            if read.read_exact(datagram).await.is_err() {
                return;
            }
            // A datagram that cannot be delivered is lost, as datagrams are.
            let _ = socket.send(datagram).await;
        }
    };
    let from_guest = async {
        let mut framed = vec![0; 2 + usize::from(u16::MAX)];
        loop {
            let length = match socket.recv(&mut framed[2..]).await {
                Ok(length) => length,
                // A guest that refuses one datagram may take the next.
                Err(error) if error.kind() == ErrorKind::ConnectionRefused => continue,
                Err(_) => return,
            };
            let Ok(short) = u16::try_from(length) else { continue };
            framed[..2].copy_from_slice(&short.to_be_bytes());
            if write.write_all(&framed[..2 + length]).await.is_err() || write.flush().await.is_err() {
                return;
            }
        }
    };
    tokio::select! {
        () = to_guest => {}
        () = from_guest => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn datagrams_keep_their_borders() {
        let guest = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        socket.connect(guest.local_addr().unwrap()).await.unwrap();
        guest.connect(socket.local_addr().unwrap()).await.unwrap();
        let (mut user, stream) = tokio::io::duplex(1 << 10);
        let relayed = tokio::spawn(async move { relay(stream, &socket).await });
        user.write_all(b"\x00\x02hi\x00\x03you\x00").await.unwrap();
        let mut buffer = [0; 100];
        assert_eq!(guest.recv(&mut buffer).await.unwrap(), 2);
        assert_eq!(guest.recv(&mut buffer).await.unwrap(), 3);
        assert_eq!(&buffer[..3], b"you");
        guest.send(b"fine").await.unwrap();
        let mut answer = [0; 6];
        user.read_exact(&mut answer).await.unwrap();
        assert_eq!(&answer, b"\x00\x04fine");
        drop(user);
        relayed.await.unwrap();
    }
}
