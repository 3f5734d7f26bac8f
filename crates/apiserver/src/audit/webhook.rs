//! Sends events to another program, many at a time. What cannot be sent is tried again, and counted when it is lost: neither the
//! memory nor the patience for it is without end, and no request waits for it.

use std::sync::Arc;
use std::time::Duration;

use croft_meta::Chain;
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use prometheus_client::metrics::counter::Counter;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::webhook_config::{AuditBatch, AuditWebhook};

/// KiB of events that may wait, however many they are.
const BUFFER_KIB: usize = 32 << 10;
/// Upstream's way of trying again.
const ATTEMPTS: u32 = 5;
const LATER: f64 = 1.5;
/// What is left when the server stops is given this long.
const FAREWELL: Duration = Duration::from_secs(2);
const HEAD: &[u8] = b"{\"kind\":\"EventList\",\"apiVersion\":\"audit.k8s.io/v1\",\"metadata\":{},\"items\":[";

/// Events that were lost, by the part that lost them, under upstream's names.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lost {
    /// There was no room for them.
    pub(crate) buffered: Counter,
    /// They could not be sent.
    pub(crate) webhook: Counter,
}

#[derive(Debug)]
struct Waiting {
    line: Vec<u8>,
    /// Its share of the memory.
    _room: OwnedSemaphorePermit,
}

/// The end that requests see.
#[derive(Debug)]
pub(super) struct Webhook {
    sender: mpsc::Sender<Waiting>,
    room: Arc<Semaphore>,
    lost: Lost,
}

impl Webhook {
    /// Also gives what sends, which is to be run until it ends by itself, soon after `stop`.
    pub(super) fn new(
        config: AuditWebhook,
        lost: Lost,
        stop: CancellationToken,
    ) -> (Self, impl Future<Output = ()> + Send + use<>) {
        let (sender, receiver) = mpsc::channel(config.batch.buffer_size.max(1));
        let sending = Sending { config, lost: lost.clone() };
        (Self { sender, room: Arc::new(Semaphore::new(BUFFER_KIB)), lost }, sending.run(receiver, stop))
    }

    /// Never waits.
    pub(super) fn offer(&self, line: &[u8]) {
        let size = u32::try_from(line.len() / 1024 + 1).unwrap_or(u32::MAX);
        let room = Arc::clone(&self.room).try_acquire_many_owned(size).ok();
        let offered = room.map(|room| self.sender.try_send(Waiting { line: line.to_vec(), _room: room }));
        if !matches!(offered, Some(Ok(()))) && self.lost.buffered.inc() == 0 {
            tracing::warn!("audit events are lost before they are sent; apiserver_audit_error_total counts them");
        }
    }
}

struct Sending {
    config: AuditWebhook,
    lost: Lost,
}

impl Sending {
    async fn run(self, mut receiver: mpsc::Receiver<Waiting>, stop: CancellationToken) {
        let mut taken = Vec::new();
        loop {
            tokio::select! {
                () = fill(&mut taken, &mut receiver, self.config.batch) => {}
                () = stop.cancelled() => break,
            }
            if taken.is_empty() {
                return;
            }
            tokio::select! {
                () = self.send(&taken) => taken.clear(),
                () = stop.cancelled() => break,
            }
        }
        // Requests that are still answered may add to it; they are not waited for.
        while let Ok(waiting) = receiver.try_recv() {
            taken.push(waiting);
        }
        let farewell = async {
            for batch in taken.chunks(self.config.batch.max_size.max(1)) {
                if self.attempt(batch).await.is_err() {
                    self.lost.webhook.inc_by(batch.len() as u64);
                }
            }
        };
        let _ = tokio::time::timeout(FAREWELL, farewell).await;
    }

    async fn send(&self, batch: &[Waiting]) {
        let mut pause = self.config.batch.initial_backoff;
        for attempt in 1..=ATTEMPTS {
            match self.attempt(batch).await {
                Ok(()) => return,
                Err(failure) if failure.is_passing && attempt < ATTEMPTS => {
                    tracing::debug!(error = failure.why, attempt, "audit events could not be sent; trying again");
                    tokio::time::sleep(pause).await;
                    pause = pause.mul_f64(LATER);
                }
                Err(failure) => {
                    tracing::warn!(
                        error = failure.why,
                        events = batch.len(),
                        "audit events could not be sent and are lost"
                    );
                    self.lost.webhook.inc_by(batch.len() as u64);
                    return;
                }
            }
        }
    }

    async fn attempt(&self, batch: &[Waiting]) -> Result<(), Failure> {
        let mut request = self.config.client.post(self.config.url.clone()).header(CONTENT_TYPE, "application/json");
        if let Some(authorization) = self.config.authorization().await {
            request = request.header(AUTHORIZATION, authorization);
        }
        let sent = request.body(body(batch)).send().await;
        // The URL may have a password in it.
        let answer =
            sent.map_err(|error| Failure { is_passing: true, why: Chain(&error.without_url()).to_string() })?;
        let status = answer.status();
        if status.is_success() {
            return Ok(());
        }
        let is_passing = status.is_server_error() || status.as_u16() == 429;
        Err(Failure { is_passing, why: format!("the receiver answers {status}") })
    }
}

struct Failure {
    /// It may work the next time.
    is_passing: bool,
    why: String,
}

/// Takes as many as there are until there are enough, or the first has waited for long enough; none when there will be no more.
/// Cancel-safe: what was taken stays taken.
async fn fill(taken: &mut Vec<Waiting>, receiver: &mut mpsc::Receiver<Waiting>, batch: AuditBatch) {
    let Some(first) = receiver.recv().await else { return };
    taken.push(first);
    let until = Instant::now() + batch.max_wait;
    while taken.len() < batch.max_size {
        match tokio::time::timeout_at(until, receiver.recv()).await {
            Ok(Some(next)) => taken.push(next),
            _ => break,
        }
    }
}

fn body(batch: &[Waiting]) -> Vec<u8> {
    let mut body = HEAD.to_vec();
    for (at, waiting) in batch.iter().enumerate() {
        if at > 0 {
            body.push(b',');
        }
        body.extend_from_slice(waiting.line.trim_ascii_end());
    }
    body.extend_from_slice(b"]}");
    body
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    /// Nobody listens there.
    fn config(buffer_size: usize) -> AuditWebhook {
        config_for("127.0.0.1:1", buffer_size)
    }

    fn config_for(receiver: &str, buffer_size: usize) -> AuditWebhook {
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("config");
        std::fs::write(&file, format!("clusters: [{{name: a, cluster: {{server: 'http://{receiver}'}}}}]")).unwrap();
        let (max_wait, initial_backoff) = (Duration::from_millis(1), Duration::from_millis(1));
        AuditWebhook::read(&file, AuditBatch { max_size: 2, max_wait, buffer_size, initial_backoff }).unwrap()
    }

    #[tokio::test]
    async fn what_does_not_fit_is_lost_and_counted() {
        let lost = Lost::default();
        let (webhook, _sending) = Webhook::new(config(2), lost.clone(), CancellationToken::new());
        for _ in 0..5 {
            webhook.offer(b"{}\n");
        }
        assert_eq!((lost.buffered.get(), lost.webhook.get()), (3, 0));
        let (webhook, _sending) = Webhook::new(config(1_000), lost.clone(), CancellationToken::new());
        for _ in 0..40 {
            webhook.offer(&vec![b'x'; 1 << 20]);
        }
        assert!(lost.buffered.get() > 3, "memory is bounded, too");
    }

    #[tokio::test]
    async fn what_cannot_be_sent_is_tried_again_and_then_counted() {
        let lost = Lost::default();
        let (webhook, sending) = Webhook::new(config(10), lost.clone(), CancellationToken::new());
        for _ in 0..3 {
            webhook.offer(b"{}\n");
        }
        drop(webhook);
        tokio::time::timeout(Duration::from_secs(30), sending).await.unwrap();
        assert_eq!((lost.buffered.get(), lost.webhook.get()), (0, 3));
    }

    #[tokio::test]
    async fn who_redirects_has_received_nothing() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let receiver = listener.local_addr().unwrap().to_string();
        let answering = tokio::spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut asked = Vec::new();
                while !asked.ends_with(b"]}") && !asked.starts_with(b"GET ") {
                    assert!(stream.read_buf(&mut asked).await.unwrap() > 0, "{asked:?}");
                }
                let is_sent = asked.starts_with(b"POST / ");
                let status = if is_sent { "302 Found\r\nlocation: /elsewhere" } else { "200 OK" };
                let answer = format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
                stream.write_all(answer.as_bytes()).await.unwrap();
            }
        });
        let lost = Lost::default();
        let (webhook, sending) = Webhook::new(config_for(&receiver, 10), lost.clone(), CancellationToken::new());
        webhook.offer(b"{}\n");
        drop(webhook);
        tokio::time::timeout(Duration::from_secs(30), sending).await.unwrap();
        assert_eq!(lost.webhook.get(), 1);
        answering.abort();
    }

    #[test]
    fn a_batch_is_one_list() {
        let room = Arc::new(Semaphore::new(2));
        let waiting = |line: &str| Waiting {
            line: line.as_bytes().to_vec(),
            _room: Arc::clone(&room).try_acquire_many_owned(1).unwrap(),
        };
        let list: serde_json::Value =
            serde_json::from_slice(&body(&[waiting("{\"a\":1}\n"), waiting("{}\n")])).unwrap();
        assert_eq!((&list["kind"], list["items"].as_array().map(Vec::len)), (&"EventList".into(), Some(2)));
    }
}
