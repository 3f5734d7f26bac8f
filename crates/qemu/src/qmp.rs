//! The QEMU Machine Protocol: QEMU's control connection, over its unix socket.
//!
//! One task owns the connection. It writes whole lines and reads replies and events in whatever order they come, so a
//! caller that gives up (a timeout, a dropped future) leaves nothing half-written behind. When QEMU goes away, everyone
//! who waits is told [`QmpError::Disconnected`]; dropping the last [`Qmp`] closes the connection and leaves QEMU alone.
//!
//! Typed methods for the commands that we send are in [`mod@commands`]; QEMU's error classes say little, its text
//! says what happened.

pub mod commands;
mod wire;

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::net::UnixStream;
use tokio::sync::{broadcast, mpsc, oneshot};
use tokio::time::{Instant, timeout, timeout_at};

/// How many events a subscriber may fall behind before it loses the oldest.
const EVENT_BACKLOG: usize = 256;
/// How many commands may wait for the socket.
const COMMAND_BACKLOG: usize = 32;
/// What a command gets unless its caller says otherwise. QEMU answers in milliseconds, except while it waits for a disk.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(30);

#[derive(Debug, thiserror::Error)]
pub enum QmpError {
    #[error("cannot connect to QEMU at {}", path.display())]
    Connect {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("what listens at {} does not speak QMP: {message}", path.display())]
    Greeting { path: PathBuf, message: String },
    #[error("QEMU has closed the connection")]
    Disconnected,
    #[error("QEMU has not answered {command} within {after:?}")]
    Timeout { command: String, after: Duration },
    #[error("{command}: {desc}")]
    Command { command: String, class: String, desc: String },
    #[error("QEMU's answer to {command} is not what was expected")]
    Answer {
        command: String,
        #[source]
        source: serde_json::Error,
    },
}

impl QmpError {
    /// Whether QEMU says that the device, node or object does not exist.
    pub fn is_device_not_found(&self) -> bool {
        matches!(self, QmpError::Command { class, .. } if class == "DeviceNotFound")
    }
}

/// Something that happened in QEMU. New kinds appear with new versions, so the name is text and the data is as sent.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Event {
    #[serde(rename = "event")]
    pub name: String,
    #[serde(default)]
    pub data: Value,
    #[serde(default)]
    pub timestamp: EventTime,
}

/// QEMU's clock when the event happened; seconds are -1 when it could not be read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
pub struct EventTime {
    pub seconds: i64,
    pub microseconds: i64,
}

/// Why there is no next event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum EventError {
    /// The subscriber was too slow. What it knows is stale: it must ask QEMU for the present state.
    #[error("{0} events were lost")]
    Lagged(u64),
    #[error("QEMU has closed the connection")]
    Disconnected,
}

/// One subscriber's events, from the moment of subscribing.
#[derive(Debug)]
pub struct Events(broadcast::Receiver<Event>);

impl Events {
    /// The next event. Cancel-safe.
    pub async fn next(&mut self) -> Result<Event, EventError> {
        self.0.recv().await.map_err(|error| match error {
            broadcast::error::RecvError::Lagged(lost) => EventError::Lagged(lost),
            broadcast::error::RecvError::Closed => EventError::Disconnected,
        })
    }

    /// Waits for an event of this name and drops the others.
    pub async fn wait_for(&mut self, name: &str) -> Result<Event, EventError> {
        loop {
            let event = self.next().await?;
            if event.name == name {
                return Ok(event);
            }
        }
    }
}

/// A line for the socket, with the descriptor that travels with it.
struct Outgoing {
    line: Vec<u8>,
    fd: Option<OwnedFd>,
}

type Reply = Result<Value, (String, String)>;

/// What the connection's task and the callers share.
struct Shared {
    pending: HashMap<u64, oneshot::Sender<Reply>>,
    /// None once the connection is gone: subscribers learn it by the end of their channel.
    events: Option<broadcast::Sender<Event>>,
}

/// A connection to one QEMU. Clones share it.
#[derive(Clone)]
pub struct Qmp {
    outgoing: mpsc::Sender<Outgoing>,
    shared: Arc<Mutex<Shared>>,
    next_id: Arc<AtomicU64>,
    version: Arc<Version>,
    default_timeout: Duration,
}

impl std::fmt::Debug for Qmp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Qmp").field("version", &self.version).finish_non_exhaustive()
    }
}

/// QEMU's version, from its greeting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
pub struct Version {
    pub major: u32,
    pub minor: u32,
    pub micro: u32,
}

impl Qmp {
    /// Connects and negotiates within `patience`. QEMU serves one client at a time: while another holds the
    /// connection this waits in vain. The events start with the connection, so none is missed.
    pub async fn connect(path: &Path, patience: Duration) -> Result<(Qmp, Events), QmpError> {
        let deadline = Instant::now() + patience;
        let connect_error = |source| QmpError::Connect { path: path.to_owned(), source };
        let stream = timeout_at(deadline, UnixStream::connect(path))
            .await
            .map_err(|_| timed_out("connect", patience))?
            .map_err(connect_error)?;
        Qmp::negotiate(stream, path, patience, deadline).await
    }

    /// For `croft-fuzz`: on a connection that is there already.
    pub(crate) async fn of_stream(stream: UnixStream) -> Result<(Qmp, Events), QmpError> {
        Qmp::negotiate(stream, Path::new("qmp"), DEFAULT_TIMEOUT, Instant::now() + DEFAULT_TIMEOUT).await
    }

    async fn negotiate(
        stream: UnixStream,
        path: &Path,
        patience: Duration,
        deadline: Instant,
    ) -> Result<(Qmp, Events), QmpError> {
        let (read, write) = stream.into_split();
        let mut reader = wire::Reader::new(read);
        let greeting = loop {
            let line = timeout_at(deadline, reader.next())
                .await
                .map_err(|_| timed_out("greeting", patience))?
                .map_err(|source| QmpError::Connect { path: path.to_owned(), source })?
                .ok_or(QmpError::Disconnected)?;
            // What was under way for the connection before ours may still come first.
            if line.get("event").is_none() && line.get("return").is_none() {
                break line;
            }
        };
        let version = Version::deserialize(&greeting["QMP"]["version"]["qemu"])
            .map_err(|error| QmpError::Greeting { path: path.to_owned(), message: error.to_string() })?;

        let (events, subscriber) = broadcast::channel(EVENT_BACKLOG);
        let shared = Arc::new(Mutex::new(Shared { pending: HashMap::new(), events: Some(events) }));
        let (outgoing, queue) = mpsc::channel(COMMAND_BACKLOG);
        // Ends by itself: with QEMU's end of the connection, or when the last `Qmp` drops its end of the queue.
        tokio::spawn(serve(reader, wire::Writer::new(write), queue, shared.clone()));

        let qmp = Qmp {
            outgoing,
            shared,
            next_id: Arc::new(AtomicU64::new(1)),
            version: Arc::new(version),
            default_timeout: DEFAULT_TIMEOUT,
        };
        let left = deadline.saturating_duration_since(Instant::now());
        qmp.call("qmp_capabilities", json!({}), None, left).await?;
        Ok((qmp, Events(subscriber)))
    }

    pub fn version(&self) -> Version {
        *self.version
    }

    /// The same connection, with another timeout for the typed commands.
    #[must_use]
    pub fn with_timeout(&self, default_timeout: Duration) -> Qmp {
        Qmp { default_timeout, ..self.clone() }
    }

    /// Events from now on. After the connection is gone, a subscription that has already ended.
    pub fn subscribe(&self) -> Events {
        match &self.shared.lock().events {
            Some(events) => Events(events.subscribe()),
            None => Events(broadcast::channel(1).1),
        }
    }

    pub fn is_connected(&self) -> bool {
        self.shared.lock().events.is_some()
    }

    /// Runs a command and decodes what it returns.
    pub async fn execute<T: DeserializeOwned>(&self, command: &str, arguments: Value) -> Result<T, QmpError> {
        let answer = self.call(command, arguments, None, self.default_timeout).await?;
        serde_json::from_value(answer).map_err(|source| QmpError::Answer { command: command.to_owned(), source })
    }

    /// Runs a command whose answer carries nothing.
    pub async fn run(&self, command: &str, arguments: Value) -> Result<(), QmpError> {
        self.call(command, arguments, None, self.default_timeout).await.map(drop)
    }

    /// Runs a command with a descriptor beside it (`getfd`, `add-fd`).
    pub async fn execute_with_fd(&self, command: &str, arguments: Value, fd: OwnedFd) -> Result<Value, QmpError> {
        self.call(command, arguments, Some(fd), self.default_timeout).await
    }

    /// Cancel-safe: a command that was queued is sent whole, and a reply that nobody waits for is dropped.
    async fn call(
        &self,
        command: &str,
        arguments: Value,
        fd: Option<OwnedFd>,
        after: Duration,
    ) -> Result<Value, QmpError> {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let mut line = json!({ "execute": command, "arguments": arguments, "id": id }).to_string().into_bytes();
        line.push(b'\n');
        let (sender, receiver) = oneshot::channel();
        let _registration = self.register(id, sender)?;
        let exchange = async {
            self.outgoing.send(Outgoing { line, fd }).await.map_err(|_| QmpError::Disconnected)?;
            receiver.await.map_err(|_| QmpError::Disconnected)
        };
        match timeout(after, exchange).await {
            Err(_) => Err(timed_out(command, after)),
            Ok(reply) => reply?.map_err(|(class, desc)| QmpError::Command { command: command.to_owned(), class, desc }),
        }
    }

    fn register(&self, id: u64, sender: oneshot::Sender<Reply>) -> Result<Registration<'_>, QmpError> {
        let mut shared = self.shared.lock();
        if shared.events.is_none() {
            return Err(QmpError::Disconnected);
        }
        shared.pending.insert(id, sender);
        Ok(Registration { shared: &self.shared, id })
    }
}

/// A caller's place in the table of those who wait, given back however the call ends.
struct Registration<'a> {
    shared: &'a Mutex<Shared>,
    id: u64,
}

impl Drop for Registration<'_> {
    fn drop(&mut self) {
        self.shared.lock().pending.remove(&self.id);
    }
}

fn timed_out(command: &str, after: Duration) -> QmpError {
    QmpError::Timeout { command: command.to_owned(), after }
}

async fn serve(
    mut reader: wire::Reader,
    writer: wire::Writer,
    mut queue: mpsc::Receiver<Outgoing>,
    shared: Arc<Mutex<Shared>>,
) {
    let reading = async {
        while let Some(message) = reader.next().await? {
            dispatch(&shared, message);
        }
        Ok::<(), std::io::Error>(())
    };
    let writing = async {
        while let Some(outgoing) = queue.recv().await {
            writer.send(&outgoing.line, outgoing.fd).await?;
        }
        Ok(())
    };
    // Neither side is of use without the other.
    let outcome = tokio::select! { outcome = reading => outcome, outcome = writing => outcome };
    if let Err(error) = outcome {
        tracing::debug!(%error, "qmp connection ended");
    }
    let mut shared = shared.lock();
    shared.events = None;
    shared.pending.clear();
}

fn dispatch(shared: &Mutex<Shared>, mut message: Value) {
    if message.get("event").is_some() {
        let Ok(event) = Event::deserialize(message) else { return };
        if let Some(events) = &shared.lock().events {
            // Fails when nobody listens, which is no fault.
            let _ = events.send(event);
        }
        return;
    }
    // An error without an id answers a line that QEMU could not parse; we send none such.
    let Some(id) = message["id"].as_u64() else {
        tracing::warn!(%message, "qmp message that answers nothing");
        return;
    };
    let Some(waiting) = shared.lock().pending.remove(&id) else { return };
    let reply = match message.get("error") {
        Some(error) => Err((text(&error["class"]), text(&error["desc"]))),
        None => Ok(message["return"].take()),
    };
    let _ = waiting.send(reply);
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests;
