//! A guest's serial console: always read, so that the guest never waits for a listener and nothing it says is lost.
//!
//! What it said last is kept in memory for the next session and, some more of it, in a log beside the machine's sockets.
//! One session at a time may type; a newer one takes over. Any number may follow what is said.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::fs::{File, OpenOptions};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::sync::mpsc;
use tokio_util::sync::{CancellationToken, DropGuard};

/// What a new session is shown of the past.
const RECENT: usize = 32 << 10;
/// The log is two files: when one is full, it becomes the older one.
const LOG_FILE: u64 = 128 << 10;
const CHUNK: usize = 4 << 10;
/// A session or follower that is this many chunks behind is cut off: the guest does not wait for it.
const BACKLOG: usize = 256;
/// What was typed and the guest has not taken yet.
const TYPED: usize = 16;
const RECONNECT: Duration = Duration::from_millis(200);

/// The console of one running machine. Dropping it closes the connection.
#[derive(Debug)]
pub struct Console {
    shared: Arc<Mutex<Shared>>,
    typed: mpsc::Sender<Bytes>,
    log: Option<PathBuf>,
    _running: DropGuard,
}

#[derive(Debug, Default)]
struct Shared {
    recent: VecDeque<u8>,
    session: Option<mpsc::Sender<Bytes>>,
    followers: Vec<mpsc::Sender<Bytes>>,
    has_ended: bool,
}

/// Both directions of one user's session.
#[derive(Debug)]
pub(crate) struct Session {
    said: mpsc::Receiver<Bytes>,
    typed: mpsc::Sender<Bytes>,
}

impl Console {
    /// Connects to the serial port's socket, which must be listening already, and reads it from now on. Without a log
    /// nothing of what it says is kept on disk.
    pub async fn open(socket: &Path, log: Option<&Path>) -> std::io::Result<Self> {
        let stream = UnixStream::connect(socket).await?;
        let shared = Arc::<Mutex<Shared>>::default();
        let (typed, queue) = mpsc::channel(TYPED);
        let stop = CancellationToken::new();
        let port = Port { socket: socket.to_owned(), log: Log::open(log).await, shared: Arc::clone(&shared) };
        let running = stop.clone();
        tokio::spawn(async move {
            let shared = Arc::clone(&port.shared);
            stop.run_until_cancelled(port.serve(stream, queue)).await;
            shared.lock().end();
        });
        Ok(Self { shared, typed, log: log.map(Path::to_owned), _running: running.drop_guard() })
    }

    /// Begins a session with what was said last; the one before it ends.
    pub(crate) fn attach(&self) -> Session {
        let (sender, said) = mpsc::channel(BACKLOG);
        let mut shared = self.shared.lock();
        shared.greet(&sender);
        shared.session = (!shared.has_ended).then_some(sender);
        Session { said, typed: self.typed.clone() }
    }

    /// What is said from now on.
    pub(crate) fn follow(&self) -> mpsc::Receiver<Bytes> {
        let (sender, said) = mpsc::channel(BACKLOG);
        let mut shared = self.shared.lock();
        if !shared.has_ended {
            shared.followers.push(sender);
        }
        said
    }

    /// All that is still known of what was said.
    pub(crate) async fn log(&self) -> Vec<u8> {
        let Some(log) = &self.log else { return Vec::new() };
        let mut all = tokio::fs::read(older(log)).await.unwrap_or_default();
        all.extend(tokio::fs::read(log).await.unwrap_or_default());
        all
    }
}

impl Shared {
    fn greet(&self, sender: &mpsc::Sender<Bytes>) {
        if !self.recent.is_empty() {
            let recent: Vec<u8> = self.recent.iter().copied().collect();
            // The channel is new and has room.
            let _ = sender.try_send(recent.into());
        }
    }

    fn say(&mut self, chunk: &Bytes) {
        let excess = (self.recent.len() + chunk.len()).saturating_sub(RECENT);
        self.recent.drain(..excess.min(self.recent.len()));
        self.recent.extend(chunk);
        if self.session.as_ref().is_some_and(|session| session.try_send(chunk.clone()).is_err()) {
            self.session = None;
        }
        self.followers.retain(|follower| follower.try_send(chunk.clone()).is_ok());
    }

    fn end(&mut self) {
        self.has_ended = true;
        self.session = None;
        self.followers.clear();
    }
}

/// The guest's end.
struct Port {
    socket: PathBuf,
    log: Log,
    shared: Arc<Mutex<Shared>>,
}

impl Port {
    /// Until the socket is gone, which is when the machine is.
    async fn serve(mut self, mut stream: UnixStream, mut typed: mpsc::Receiver<Bytes>) {
        loop {
            self.exchange(stream, &mut typed).await;
            tokio::time::sleep(RECONNECT).await;
            match UnixStream::connect(&self.socket).await {
                Ok(again) => stream = again,
                Err(_) => return,
            }
        }
    }

    async fn exchange(&mut self, stream: UnixStream, typed: &mut mpsc::Receiver<Bytes>) {
        let (mut read, mut write) = stream.into_split();
        let writing = async {
            while let Some(chunk) = typed.recv().await {
                if write.write_all(&chunk).await.is_err() {
                    return;
                }
            }
        };
        let reading = async {
            let mut buffer = [0; CHUNK];
            while let Ok(length @ 1..) = read.read(&mut buffer).await {
                let chunk = Bytes::copy_from_slice(&buffer[..length]);
                self.shared.lock().say(&chunk);
                self.log.append(&chunk).await;
            }
        };
        tokio::select! {
            () = writing => {}
            () = reading => {}
        }
    }
}

impl Session {
    /// Connects the user until either side ends, or another session takes over.
    pub(crate) async fn run(mut self, user: impl AsyncRead + AsyncWrite) {
        let (mut read, mut write) = tokio::io::split(user);
        let showing = async {
            while let Some(chunk) = self.said.recv().await {
                if write.write_all(&chunk).await.is_err() || write.flush().await.is_err() {
                    return;
                }
            }
            let _ = write.shutdown().await;
        };
        let typing = async {
            let mut buffer = [0; CHUNK];
            while let Ok(length @ 1..) = read.read(&mut buffer).await {
                if self.typed.send(Bytes::copy_from_slice(&buffer[..length])).await.is_err() {
                    return;
                }
            }
        };
        tokio::select! {
            () = showing => {}
            () = typing => {}
        }
    }
}

/// The last of what was said, on disk. A log that cannot be written does not stop the console.
#[derive(Default)]
struct Log {
    path: PathBuf,
    file: Option<File>,
    length: u64,
}

impl Log {
    async fn open(path: Option<&Path>) -> Self {
        let Some(path) = path else { return Self::default() };
        let file = OpenOptions::new().create(true).append(true).mode(0o600).open(path).await.ok();
        let length = match &file {
            Some(file) => file.metadata().await.map_or(0, |metadata| metadata.len()),
            None => 0,
        };
        Self { path: path.to_owned(), file, length }
    }

    async fn append(&mut self, chunk: &[u8]) {
        let length = u64::try_from(chunk.len()).unwrap_or(u64::MAX);
        if self.length > 0 && self.length.saturating_add(length) > LOG_FILE {
            self.file = None;
            if tokio::fs::rename(&self.path, older(&self.path)).await.is_ok() {
                *self = Self::open(Some(&self.path.clone())).await;
            }
        }
        let Some(file) = &mut self.file else { return };
        if file.write_all(chunk).await.and(file.flush().await).is_ok() {
            self.length += length;
        }
    }
}

fn older(path: &Path) -> PathBuf {
    path.with_extension("log.1")
}

#[cfg(test)]
mod tests {
    use tokio::io::DuplexStream;
    use tokio::net::UnixListener;

    use super::*;

    struct Fixture {
        dir: tempfile::TempDir,
        listener: UnixListener,
    }

    impl Fixture {
        fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            let listener = UnixListener::bind(dir.path().join("serial")).unwrap();
            Self { dir, listener }
        }

        async fn open(&self) -> (Console, UnixStream) {
            let console = Console::open(&self.dir.path().join("serial"), Some(&self.log())).await.unwrap();
            (console, self.listener.accept().await.unwrap().0)
        }

        fn log(&self) -> PathBuf {
            self.dir.path().join("console.log")
        }
    }

    fn session(console: &Console) -> DuplexStream {
        let (user, other) = tokio::io::duplex(1 << 20);
        tokio::spawn(console.attach().run(other));
        user
    }

    async fn expect(user: &mut (impl AsyncRead + Unpin), text: &str) {
        let mut seen = vec![0; text.len()];
        tokio::time::timeout(Duration::from_secs(10), user.read_exact(&mut seen)).await.unwrap().unwrap();
        assert_eq!(String::from_utf8_lossy(&seen), text);
    }

    async fn expect_end(user: &mut DuplexStream) {
        let mut rest = Vec::new();
        tokio::time::timeout(Duration::from_secs(10), user.read_to_end(&mut rest)).await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn what_was_said_before_is_shown_and_a_newer_session_takes_over() {
        let fixture = Fixture::new();
        let (console, mut guest) = fixture.open().await;
        let mut follower = console.follow();
        guest.write_all(b"login: ").await.unwrap();
        assert_eq!(&follower.recv().await.unwrap()[..], b"login: ");
        let mut first = session(&console);
        expect(&mut first, "login: ").await;
        first.write_all(b"root\n").await.unwrap();
        expect(&mut guest, "root\n").await;
        let mut second = session(&console);
        expect(&mut second, "login: ").await;
        expect_end(&mut first).await;
        guest.write_all(b"# ").await.unwrap();
        expect(&mut second, "# ").await;
        assert_eq!(&follower.recv().await.unwrap()[..], b"# ");
        assert_eq!(console.log().await, b"login: # ");
    }

    #[tokio::test]
    async fn a_guest_that_talks_to_nobody_is_not_held_up_and_the_log_stays_small() {
        let fixture = Fixture::new();
        let (console, mut guest) = fixture.open().await;
        // A session that reads nothing is cut off rather than waited for.
        let (mut deaf, other) = tokio::io::duplex(16);
        tokio::spawn(console.attach().run(other));
        let line = "0123456789abcde\n".repeat(256);
        for _ in 0..1024 {
            tokio::time::timeout(Duration::from_secs(10), guest.write_all(line.as_bytes())).await.unwrap().unwrap();
        }
        guest.write_all(b"the end").await.unwrap();
        drop(guest);
        drop(fixture.listener);
        let deadline = tokio::time::Instant::now() + Duration::from_secs(10);
        while !console.log().await.ends_with(b"the end") {
            assert!(tokio::time::Instant::now() < deadline);
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let log = console.log().await;
        assert!(log.len() as u64 > LOG_FILE / 2 && log.len() as u64 <= 2 * LOG_FILE, "{}", log.len());
        assert!(console.shared.lock().recent.len() <= RECENT);
        let mut rest = Vec::new();
        tokio::time::timeout(Duration::from_secs(10), deaf.read_to_end(&mut rest)).await.unwrap().unwrap();
        assert!(rest.len() < 2 << 20);
    }

    #[tokio::test]
    async fn the_end_of_the_machine_ends_everything() {
        let fixture = Fixture::new();
        let (console, guest) = fixture.open().await;
        let mut user = session(&console);
        drop(guest);
        drop(fixture.listener);
        expect_end(&mut user).await;
        expect_end(&mut session(&console)).await;
        assert!(console.follow().recv().await.is_none());
    }

    #[tokio::test]
    async fn a_broken_connection_is_opened_again() {
        let fixture = Fixture::new();
        let (console, guest) = fixture.open().await;
        let mut user = session(&console);
        drop(guest);
        let mut guest = fixture.listener.accept().await.unwrap().0;
        guest.write_all(b"again").await.unwrap();
        expect(&mut user, "again").await;
    }
}
