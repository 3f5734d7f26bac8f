//! An HTTP server that does as it is told, also what no server should.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

#[derive(Clone, Debug)]
pub(crate) struct Request {
    /// The how manieth it is, from zero.
    pub(crate) number: usize,
    pub(crate) path: String,
    pub(crate) headers: HashMap<String, String>,
}

impl Request {
    /// Where a range starts.
    pub(crate) fn from(&self) -> Option<usize> {
        self.headers.get("range")?.strip_prefix("bytes=")?.strip_suffix('-')?.parse().ok()
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Answer {
    pub(crate) status: &'static str,
    pub(crate) headers: Vec<(&'static str, String)>,
    pub(crate) body: Vec<u8>,
    /// Sends all of it and then nothing, for ever.
    pub(crate) stalls: bool,
}

impl Answer {
    pub(crate) fn status(status: &'static str) -> Self {
        Self { status, headers: vec![("content-length", "0".to_owned())], ..Self::default() }
    }

    /// All of it, with a tag.
    pub(crate) fn whole(body: &[u8], tag: &str) -> Self {
        let headers = vec![("content-length", body.len().to_string()), ("etag", format!("\"{tag}\""))];
        Self { status: "200 OK", headers, body: body.to_vec(), stalls: false }
    }

    /// As an honest server answers.
    pub(crate) fn honest(request: &Request, body: &[u8], tag: &str) -> Self {
        let is_same = request.headers.get("if-range").is_none_or(|it| *it == format!("\"{tag}\""));
        match request.from().filter(|_| is_same) {
            None => Self::whole(body, tag),
            Some(from) if from >= body.len() => {
                let mut answer = Self::status("416 Range Not Satisfiable");
                answer.headers.push(("content-range", format!("bytes */{}", body.len())));
                answer
            }
            Some(from) => {
                let mut answer = Self::whole(&body[from..], tag);
                answer.status = "206 Partial Content";
                answer.headers.push(("content-range", format!("bytes {from}-{}/{}", body.len() - 1, body.len())));
                answer
            }
        }
    }

    /// Only that much of the body is sent; the headers stay.
    pub(crate) fn cut(mut self, size: usize) -> Self {
        self.body.truncate(size);
        self
    }
}

/// Stops when it is dropped.
pub(crate) struct Server {
    pub(crate) port: u16,
    requests: Arc<AtomicUsize>,
    task: JoinHandle<()>,
}

impl Server {
    pub(crate) async fn start(answer: impl Fn(&Request) -> Answer + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (answer, requests) = (Arc::new(answer), Arc::new(AtomicUsize::new(0)));
        let counted = Arc::clone(&requests);
        let task = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let (answer, counted) = (Arc::clone(&answer), Arc::clone(&counted));
                tokio::spawn(async move { serve(stream, &*answer, &counted).await });
            }
        });
        Self { port, requests, task }
    }

    pub(crate) async fn honest(body: Vec<u8>) -> Self {
        Self::start(move |request| Answer::honest(request, &body, "tag")).await
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}/{path}", self.port)
    }

    pub(crate) fn requests(&self) -> usize {
        self.requests.load(Ordering::SeqCst)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(mut stream: TcpStream, answer: &(impl Fn(&Request) -> Answer + Sync), counted: &AtomicUsize) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let Ok(byte) = stream.read_u8().await else { return };
        head.push(byte);
    }
    let head = String::from_utf8(head).unwrap();
    let mut lines = head.lines();
    let path = lines.next().unwrap_or_default().split(' ').nth(1).unwrap_or_default().to_owned();
    let header = |line: &str| line.split_once(": ").map(|(name, value)| (name.to_lowercase(), value.to_owned()));
    let headers = lines.filter_map(header).collect();
    let request = Request { number: counted.fetch_add(1, Ordering::SeqCst), path, headers };
    let answer = answer(&request);
    let mut head = format!("HTTP/1.1 {}\r\nconnection: close\r\n", answer.status);
    for (name, value) in &answer.headers {
        head.extend([name, ": ", value, "\r\n"]);
    }
    head.push_str("\r\n");
    // The client may have gone away; that is its right.
    let _ = stream.write_all(head.as_bytes()).await;
    let _ = stream.write_all(&answer.body).await;
    if answer.stalls {
        std::future::pending::<()>().await;
    }
    let _ = stream.shutdown().await;
}
