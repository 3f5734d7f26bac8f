//! A small HTTP server whose files can be cut off.

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// Serves one body at every path; the first `stalls` answers send only half of it and then nothing.
pub(crate) struct Web {
    pub(crate) url: String,
    requests: Arc<AtomicUsize>,
    /// Where the last request began.
    pub(crate) last_from: Arc<AtomicUsize>,
    task: JoinHandle<()>,
}

impl Web {
    pub(crate) async fn serve(body: Vec<u8>, stalls: usize) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://127.0.0.1:{}/image", listener.local_addr().unwrap().port());
        let (requests, last_from) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (counted, from, body) = (Arc::clone(&requests), Arc::clone(&last_from), Arc::new(body));
        let task = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let number = counted.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(answer(stream, Arc::clone(&body), number < stalls, Arc::clone(&from)));
            }
        });
        Self { url, requests, last_from, task }
    }

    pub(crate) fn requests(&self) -> usize {
        self.requests.load(Ordering::SeqCst)
    }
}

impl Drop for Web {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn answer(mut stream: TcpStream, body: Arc<Vec<u8>>, stalls: bool, last_from: Arc<AtomicUsize>) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let Ok(byte) = stream.read_u8().await else { return };
        head.push(byte);
    }
    let head = String::from_utf8(head).unwrap().to_lowercase();
    let range = head.lines().find_map(|line| line.strip_prefix("range: bytes=")?.strip_suffix('-'));
    let from: usize = range.map_or(0, |from| from.parse().unwrap());
    last_from.store(from, Ordering::SeqCst);
    let (status, size) = if from > 0 { ("206 Partial Content", body.len()) } else { ("200 OK", body.len()) };
    let mut reply =
        format!("HTTP/1.1 {status}\r\nconnection: close\r\netag: \"one\"\r\ncontent-length: {}\r\n", size - from);
    if from > 0 {
        write!(reply, "content-range: bytes {from}-{}/{size}\r\n", size - 1).unwrap();
    }
    reply.push_str("\r\n");
    let end = if stalls { body.len() / 2 } else { body.len() };
    // The client may have gone away; that is its right.
    let _ = stream.write_all(reply.as_bytes()).await;
    let _ = stream.write_all(&body[from.min(end)..end]).await;
    if stalls {
        std::future::pending::<()>().await;
    }
    let _ = stream.shutdown().await;
}
