//! The queue that requests put their lines into, and the thread that writes them.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use prometheus_client::metrics::counter::Counter;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};

use super::files::Rotated;
use super::webhook::Lost;

/// Lines that may wait to be written. One has some 700 bytes, and some 800 KiB if a policy asks for objects.
const MOST: usize = 4_096;
/// KiB of lines that may wait, however few they are.
const ROOM_KIB: usize = 32 << 10;
/// Lines that are written at once, unless fewer have so many bytes.
const BATCH: usize = 256;
const BATCH_BYTES: usize = 1 << 20;
/// What the buffer of a batch keeps for the next one.
const KEPT_BYTES: usize = 256 << 10;
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
    Line(Waiting),
    Flush(oneshot::Sender<()>),
}

#[derive(Debug)]
struct Waiting {
    line: Vec<u8>,
    /// Its share of the memory.
    room: OwnedSemaphorePermit,
}

#[derive(Debug)]
pub(super) struct Queue {
    sender: mpsc::Sender<Message>,
    room: Arc<Semaphore>,
    losses: Losses,
}

impl Queue {
    /// The thread ends when the queue is dropped.
    pub(super) fn start(output: Output, counters: Counters) -> io::Result<Self> {
        let (sender, receiver) = mpsc::channel(MOST);
        let losses = Losses { counters, is_losing: Arc::default() };
        let of_thread = losses.clone();
        std::thread::Builder::new().name("audit".to_owned()).spawn(move || write(receiver, output, &of_thread))?;
        Ok(Self { sender, room: Arc::new(Semaphore::new(ROOM_KIB)), losses })
    }

    pub(super) async fn send(&self, line: Vec<u8>) {
        self.losses.counters.events.inc();
        // Has room nearly always; otherwise the client is made to wait, which slows those who write too much.
        let sent = async {
            let room = Arc::clone(&self.room).acquire_many_owned(size_kib(&line)).await.ok()?;
            self.sender.send(Message::Line(Waiting { line, room })).await.ok()
        };
        if !matches!(tokio::time::timeout(PATIENCE, sent).await, Ok(Some(()))) {
            self.losses.lost(1, "the queue is full");
        }
    }

    pub(super) fn send_at_once(&self, line: Vec<u8>) {
        self.losses.counters.events.inc();
        let room = Arc::clone(&self.room).try_acquire_many_owned(size_kib(&line)).ok();
        let sent = room.and_then(|room| self.sender.try_send(Message::Line(Waiting { line, room })).ok());
        if sent.is_none() {
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

/// What a line takes of the room: at least something, and never more than there is.
fn size_kib(line: &[u8]) -> u32 {
    u32::try_from((line.len() / 1024 + 1).min(ROOM_KIB)).unwrap_or(u32::MAX)
}

fn write(mut receiver: mpsc::Receiver<Message>, mut output: Output, losses: &Losses) {
    let mut lines = Vec::new();
    // What waits in the buffer still takes room.
    let mut rooms = Vec::new();
    while let Some(first) = receiver.blocking_recv() {
        let (mut count, mut waiting) = (0, Vec::new());
        let mut next = Some(first);
        while let Some(message) = next {
            match message {
                Message::Line(Waiting { line, room }) => {
                    lines.extend_from_slice(&line);
                    rooms.push(room);
                    count += 1;
                }
                Message::Flush(done) => waiting.push(done),
            }
            next = if count < BATCH && lines.len() < BATCH_BYTES { receiver.try_recv().ok() } else { None };
        }
        if count > 0 {
            match output.write(&lines) {
                Ok(()) => losses.written(),
                Err(error) => losses.lost(count, &error.to_string()),
            }
            lines.clear();
            lines.shrink_to(KEPT_BYTES);
            rooms.clear();
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
        let room = Arc::new(Semaphore::new(ROOM_KIB));
        let queue = Queue { sender, room, losses: Losses { counters: counters.clone(), is_losing: Arc::default() } };
        queue.send(b"a\n".to_vec()).await;
        queue.send(b"b\n".to_vec()).await;
        queue.send_at_once(b"c\n".to_vec());
        assert_eq!((counters.events.get(), counters.errors.get()), (3, 2));
        queue.flush().await;
        drop(receiver);
    }

    #[tokio::test(start_paused = true)]
    async fn long_lines_wait_in_no_more_than_the_room_there_is() {
        let (sender, mut receiver) = mpsc::channel(MOST);
        let counters = Counters::default();
        let room = Arc::new(Semaphore::new(ROOM_KIB));
        let queue = Queue { sender, room, losses: Losses { counters: counters.clone(), is_losing: Arc::default() } };
        for _ in 0..100 {
            queue.send_at_once(vec![b'x'; 1 << 20]);
        }
        let taken = counters.events.get() - counters.errors.get();
        assert!((16..=32).contains(&taken), "{taken} of a MiB each");
        queue.send(vec![b'x'; 1 << 20]).await;
        assert_eq!(counters.errors.get(), 101 - taken, "nobody made room");
        receiver.try_recv().unwrap();
        queue.send(vec![b'x'; 1 << 20]).await;
        assert_eq!(counters.errors.get(), 101 - taken);
        // However long it is, there is a time when it fits.
        while receiver.try_recv().is_ok() {}
        queue.send(vec![b'x'; 64 << 20]).await;
        assert_eq!(counters.errors.get(), 101 - taken);
    }

    #[tokio::test]
    async fn many_long_lines_stay_below_the_size_of_a_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.log");
        let config = AuditLog { to: AuditSink::File(path.clone()), max_bytes: 1 << 20, ..AuditLog::off() };
        let counters = Counters::default();
        let file = Rotated::open(path.clone(), &config, Timestamp::now()).unwrap();
        let queue = Queue::start(Output::File(file), counters.clone()).unwrap();
        let mut line = vec![b'x'; 300 << 10];
        line.push(b'\n');
        for _ in 0..40 {
            queue.send(line.clone()).await;
        }
        queue.flush().await;
        let sizes: Vec<u64> =
            std::fs::read_dir(dir.path()).unwrap().map(|file| file.unwrap().metadata().unwrap().len()).collect();
        assert_eq!(sizes.iter().sum::<u64>(), 40 * line.len() as u64);
        assert!(sizes.iter().all(|size| *size <= 1 << 20), "{sizes:?}");
    }
}
