//! The queue that requests put their lines into, and the thread that writes them.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use prometheus_client::metrics::counter::Counter;
use tokio::sync::{mpsc, oneshot};

use super::files::Rotated;
use super::webhook::Lost;

/// Lines that may wait to be written. A line has some 700 bytes.
const MOST: usize = 4_096;
/// Lines that are written at once.
const BATCH: usize = 256;
/// How long a request waits for a place in the queue, and whoever reads for the file to be up to date.
const PATIENCE: Duration = Duration::from_secs(1);

/// What `/metrics` tells, under Kubernetes' names.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counters {
    pub(crate) events: Counter,
    pub(crate) errors: Counter,
    /// Of those that are sent elsewhere.
    pub(crate) lost: Lost,
}

#[derive(Debug)]
pub(super) enum Output {
    File(Rotated),
    Standard(io::Stdout),
}

impl Output {
    fn write(&mut self, lines: &[u8]) -> io::Result<()> {
        match self {
            Self::File(file) => file.write(lines, Timestamp::now()),
            Self::Standard(out) => out.write_all(lines).and_then(|()| out.flush()),
        }
    }
}

#[derive(Debug)]
enum Message {
    Line(Vec<u8>),
    Flush(oneshot::Sender<()>),
}

#[derive(Debug)]
pub(super) struct Queue {
    sender: mpsc::Sender<Message>,
    losses: Losses,
}

impl Queue {
    /// The thread ends when the queue is dropped.
    pub(super) fn start(output: Output, counters: Counters) -> io::Result<Self> {
        let (sender, receiver) = mpsc::channel(MOST);
        let losses = Losses { counters, is_losing: Arc::default() };
        let of_thread = losses.clone();
        std::thread::Builder::new().name("audit".to_owned()).spawn(move || write(receiver, output, &of_thread))?;
        Ok(Self { sender, losses })
    }

    pub(super) async fn send(&self, line: Vec<u8>) {
        self.losses.counters.events.inc();
        // Has room nearly always; otherwise the client is made to wait, which slows those who write too much.
        if self.sender.send_timeout(Message::Line(line), PATIENCE).await.is_err() {
            self.losses.lost(1, "the queue is full");
        }
    }

    pub(super) fn send_at_once(&self, line: Vec<u8>) {
        self.losses.counters.events.inc();
        if self.sender.try_send(Message::Line(line)).is_err() {
            self.losses.lost(1, "the queue is full");
        }
    }

    pub(super) async fn flush(&self) {
        let (done, written) = oneshot::channel();
        let flushed = async {
            if self.sender.send(Message::Flush(done)).await.is_ok() {
                // Dropped without an answer only if the thread is gone; there is nothing to wait for then.
                let _ = written.await;
            }
        };
        // Late is no failure: what is not written yet is read the next time.
        let _ = tokio::time::timeout(PATIENCE, flushed).await;
    }
}

fn write(mut receiver: mpsc::Receiver<Message>, mut output: Output, losses: &Losses) {
    let mut lines = Vec::new();
    while let Some(first) = receiver.blocking_recv() {
        let (mut count, mut waiting) = (0, Vec::new());
        let mut next = Some(first);
        while let Some(message) = next {
            match message {
                Message::Line(line) => {
                    lines.extend_from_slice(&line);
                    count += 1;
                }
                Message::Flush(done) => waiting.push(done),
            }
            next = if count < BATCH { receiver.try_recv().ok() } else { None };
        }
        if count > 0 {
            match output.write(&lines) {
                Ok(()) => losses.written(),
                Err(error) => losses.lost(count, &error.to_string()),
            }
            lines.clear();
        }
        for done in waiting {
            // Whoever asked may have gone.
            let _ = done.send(());
        }
    }
}

/// Counts what is lost, and says so once until it is over.
#[derive(Clone, Debug)]
struct Losses {
    counters: Counters,
    is_losing: Arc<AtomicBool>,
}

impl Losses {
    fn lost(&self, count: usize, why: &str) {
        self.counters.errors.inc_by(count as u64);
        if !self.is_losing.swap(true, Ordering::Relaxed) {
            tracing::warn!(error = why, "audit events are lost; apiserver_audit_error_total counts them");
        }
    }

    fn written(&self) {
        if self.is_losing.swap(false, Ordering::Relaxed) {
            tracing::info!(lost = self.counters.errors.get(), "audit events are written again");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit::{AuditLog, AuditSink};

    #[tokio::test]
    async fn lines_are_written_in_order_and_losses_are_counted() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit/audit.log");
        let config = AuditLog { to: AuditSink::File(path.clone()), max_bytes: 1 << 20, ..AuditLog::off() };
        let counters = Counters::default();
        let file = Rotated::open(path.clone(), &config, Timestamp::now()).unwrap();
        let queue = Queue::start(Output::File(file), counters.clone()).unwrap();
        for number in 0..1_000 {
            queue.send(format!("{number}\n").into_bytes()).await;
        }
        queue.flush().await;
        let expected = (0..1_000).map(|number| format!("{number}\n")).collect::<Vec<_>>().concat();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), expected);
        assert_eq!((counters.events.get(), counters.errors.get()), (1_000, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn a_full_queue_neither_blocks_for_ever_nor_loses_in_silence() {
        let (sender, receiver) = mpsc::channel(1);
        let counters = Counters::default();
        let queue = Queue { sender, losses: Losses { counters: counters.clone(), is_losing: Arc::default() } };
        queue.send(b"a\n".to_vec()).await;
        queue.send(b"b\n".to_vec()).await;
        queue.send_at_once(b"c\n".to_vec());
        assert_eq!((counters.events.get(), counters.errors.get()), (3, 2));
        queue.flush().await;
        drop(receiver);
    }
}
