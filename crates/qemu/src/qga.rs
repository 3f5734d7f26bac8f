//! The QEMU guest agent, over the socket of its virtio-serial channel.
//!
//! The other side is the guest's: it may be absent, slow, restarted between question and answer, or hostile. So every
//! call begins by synchronising: a fresh number is sent, and everything up to its echo is dropped, be it the answer to
//! a question of yesterday. A command is sent only to an agent that has just answered; otherwise it would wait in the
//! channel and take effect whenever an agent starts. What the guest sends is bounded in size and in time.
//!
//! The types of the answers are in [`mod@answers`].

pub mod answers;

use std::path::{Path, PathBuf};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::Mutex;
use tokio::time::timeout;

use answers::{ExecStatus, Filesystem, FreezeStatus, Interface, OsInfo, User};

/// Starts a fresh message, whatever the parser of either side was in the middle of.
const DELIMITER: u8 = 0xff;
/// The agent gives at most 16 MiB of each output stream of a command, in base64.
const MAX_LINE: u64 = 48 << 20;
/// How long an agent that is there may take to say so.
pub const SYNC_TIMEOUT: Duration = Duration::from_secs(5);
pub const COMMAND_TIMEOUT: Duration = Duration::from_secs(10);
/// Freezing waits for the guest's disks.
pub const FREEZE_TIMEOUT: Duration = Duration::from_mins(1);
/// A shutdown that is accepted is not answered; a refusal comes at once.
const REFUSAL_TIMEOUT: Duration = Duration::from_secs(1);

#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    #[error("cannot connect to the guest agent's channel at {}", path.display())]
    Connect {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    /// Nobody reads the channel in the guest, or nobody does so in time.
    #[error("no guest agent answers")]
    Absent,
    #[error("the guest agent has not answered {command} within {after:?}")]
    Timeout { command: String, after: Duration },
    #[error("the guest agent's channel is closed")]
    Disconnected,
    #[error("the guest agent has sent more than {MAX_LINE} bytes in one answer")]
    TooLong,
    #[error("guest agent, {command}: {desc}")]
    Command { command: String, class: String, desc: String },
    #[error("the guest agent's answer to {command} is not what was expected")]
    Answer {
        command: String,
        #[source]
        source: serde_json::Error,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shutdown {
    PowerDown,
    Reboot,
    Halt,
}

/// A command to run in the guest. No shell is involved.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Exec {
    pub path: String,
    pub args: Vec<String>,
    /// `NAME=value` each; the agent's own environment if empty.
    pub env: Vec<String>,
    pub input: Option<Vec<u8>>,
    pub capture_output: bool,
}

/// One guest's agent. Calls take turns; a call that is dropped or fails closes the connection, and the next opens it anew.
#[derive(Debug)]
pub struct Agent {
    path: PathBuf,
    sync_timeout: Duration,
    connection: Mutex<Option<Connection>>,
}

#[derive(Debug)]
struct Connection {
    reader: BufReader<OwnedReadHalf>,
    writer: OwnedWriteHalf,
}

impl Agent {
    /// Connects when first needed: the guest may not have started yet.
    pub fn new(path: &Path) -> Agent {
        Agent { path: path.to_owned(), sync_timeout: SYNC_TIMEOUT, connection: Mutex::new(None) }
    }

    #[must_use]
    pub fn with_sync_timeout(mut self, sync_timeout: Duration) -> Agent {
        self.sync_timeout = sync_timeout;
        self
    }

    /// Runs a command. Cancel-safe: the connection is kept only when the exchange is complete.
    pub async fn execute<T: DeserializeOwned>(
        &self,
        command: &str,
        arguments: Value,
        after: Duration,
    ) -> Result<T, AgentError> {
        let mut slot = self.connection.lock().await;
        let mut connection = self.synchronised(slot.take()).await?;
        let answer = match timeout(after, connection.exchange(command, arguments)).await {
            Err(_) => return Err(AgentError::Timeout { command: command.to_owned(), after }),
            Ok(Err(error @ AgentError::Command { .. })) => Err(error),
            Ok(answer) => Ok(answer?),
        };
        *slot = Some(connection);
        serde_json::from_value(answer?).map_err(|source| AgentError::Answer { command: command.to_owned(), source })
    }

    /// A connection whose next message answers our next question. One that has gone stale is opened anew, once.
    async fn synchronised(&self, kept: Option<Connection>) -> Result<Connection, AgentError> {
        if let Some(mut connection) = kept {
            match timeout(self.sync_timeout, connection.sync()).await {
                Ok(Ok(())) => return Ok(connection),
                Ok(Err(_)) => {}
                Err(_) => return Err(AgentError::Absent),
            }
        }
        let mut connection = Connection::open(&self.path).await?;
        timeout(self.sync_timeout, connection.sync()).await.map_err(|_| AgentError::Absent)??;
        Ok(connection)
    }
}

impl Connection {
    async fn open(path: &Path) -> Result<Connection, AgentError> {
        let stream =
            UnixStream::connect(path).await.map_err(|source| AgentError::Connect { path: path.to_owned(), source })?;
        let (read, writer) = stream.into_split();
        Ok(Connection { reader: BufReader::new(read), writer })
    }

    async fn sync(&mut self) -> Result<(), AgentError> {
        let id = fresh_id();
        let mut message = vec![DELIMITER];
        message.extend(json!({ "execute": "guest-sync-delimited", "arguments": { "id": id } }).to_string().bytes());
        message.push(b'\n');
        self.writer.write_all(&message).await.map_err(|_| AgentError::Disconnected)?;
        loop {
            let line = self.line().await?;
            // The echo follows a delimiter; what stands before it is the rest of an older answer.
            let Some(at) = line.iter().rposition(|byte| *byte == DELIMITER) else { continue };
            let Ok(answer) = serde_json::from_slice::<Value>(&line[at + 1..]) else { continue };
            if answer["return"].as_u64() == Some(id) {
                return Ok(());
            }
        }
    }

    async fn send(&mut self, command: &str, arguments: Value) -> Result<(), AgentError> {
        let mut message = json!({ "execute": command, "arguments": arguments }).to_string();
        message.push('\n');
        self.writer.write_all(message.as_bytes()).await.map_err(|_| AgentError::Disconnected)
    }

    async fn exchange(&mut self, command: &str, arguments: Value) -> Result<Value, AgentError> {
        self.send(command, arguments).await?;
        self.answer(command).await
    }

    async fn answer(&mut self, command: &str) -> Result<Value, AgentError> {
        let line = self.line().await?;
        let mut answer: Value = serde_json::from_slice(&line)
            .map_err(|source| AgentError::Answer { command: command.to_owned(), source })?;
        let Some(error) = answer.get("error") else { return Ok(answer["return"].take()) };
        let text = |key: &str| error[key].as_str().unwrap_or_default().to_owned();
        Err(AgentError::Command { command: command.to_owned(), class: text("class"), desc: text("desc") })
    }

    async fn line(&mut self) -> Result<Vec<u8>, AgentError> {
        let mut line = Vec::new();
        (&mut self.reader).take(MAX_LINE).read_until(b'\n', &mut line).await.map_err(|_| AgentError::Disconnected)?;
        if line.ends_with(b"\n") {
            return Ok(line);
        }
        // The end of the limit or of the stream.
        let is_full = u64::try_from(line.len()).is_ok_and(|length| length >= MAX_LINE);
        Err(if is_full { AgentError::TooLong } else { AgentError::Disconnected })
    }
}

/// A number that no earlier client can have used; within what the agent's parser holds exactly.
fn fresh_id() -> u64 {
    // A system without randomness cannot run us at all; a fixed number would only make the check weaker.
    u64::from(getrandom::u32().unwrap_or(1))
}

impl Agent {
    pub async fn ping(&self) -> Result<(), AgentError> {
        self.run("guest-ping", json!({}), COMMAND_TIMEOUT).await
    }

    pub async fn os_info(&self) -> Result<OsInfo, AgentError> {
        self.execute("guest-get-osinfo", json!({}), COMMAND_TIMEOUT).await
    }

    pub async fn host_name(&self) -> Result<String, AgentError> {
        let answer: Value = self.execute("guest-get-host-name", json!({}), COMMAND_TIMEOUT).await?;
        Ok(answer["host-name"].as_str().unwrap_or_default().to_owned())
    }

    pub async fn network_interfaces(&self) -> Result<Vec<Interface>, AgentError> {
        self.execute("guest-network-get-interfaces", json!({}), COMMAND_TIMEOUT).await
    }

    pub async fn users(&self) -> Result<Vec<User>, AgentError> {
        self.execute("guest-get-users", json!({}), COMMAND_TIMEOUT).await
    }

    pub async fn filesystems(&self) -> Result<Vec<Filesystem>, AgentError> {
        self.execute("guest-get-fsinfo", json!({}), COMMAND_TIMEOUT).await
    }

    /// Freezes the guest's filesystems and says how many. After a timeout they may be frozen all the same: thaw then.
    pub async fn freeze(&self) -> Result<u64, AgentError> {
        self.execute("guest-fsfreeze-freeze", json!({}), FREEZE_TIMEOUT).await
    }

    pub async fn thaw(&self) -> Result<u64, AgentError> {
        self.execute("guest-fsfreeze-thaw", json!({}), FREEZE_TIMEOUT).await
    }

    /// Sets the guest's clock.
    pub async fn set_time(&self, nanoseconds_since_1970: i64) -> Result<(), AgentError> {
        let arguments = json!({ "time": nanoseconds_since_1970 });
        self.execute::<Value>("guest-set-time", arguments, COMMAND_TIMEOUT).await.map(drop)
    }

    pub async fn freeze_status(&self) -> Result<FreezeStatus, AgentError> {
        self.execute("guest-fsfreeze-status", json!({}), COMMAND_TIMEOUT).await
    }

    /// Starts a command and gives its process id, for [`Agent::exec_status`].
    pub async fn exec(&self, exec: &Exec) -> Result<u64, AgentError> {
        let mut arguments = json!({ "path": exec.path, "arg": exec.args, "capture-output": exec.capture_output });
        if !exec.env.is_empty() {
            arguments["env"] = json!(exec.env);
        }
        if let Some(input) = &exec.input {
            arguments["input-data"] = Value::String(BASE64.encode(input));
        }
        let answer: answers::ExecStarted = self.execute("guest-exec", arguments, COMMAND_TIMEOUT).await?;
        Ok(answer.pid)
    }

    /// How a command stands. Once it has exited, the agent forgets it with this answer.
    pub async fn exec_status(&self, pid: u64) -> Result<ExecStatus, AgentError> {
        self.execute("guest-exec-status", json!({ "pid": pid }), COMMAND_TIMEOUT).await
    }

    /// Asks the guest to go down. Success means that the agent took the order, which it does by silence.
    pub async fn shutdown(&self, mode: Shutdown) -> Result<(), AgentError> {
        let mode = match mode {
            Shutdown::PowerDown => "powerdown",
            Shutdown::Reboot => "reboot",
            Shutdown::Halt => "halt",
        };
        let mut slot = self.connection.lock().await;
        let mut connection = self.synchronised(slot.take()).await?;
        connection.send("guest-shutdown", json!({ "mode": mode })).await?;
        match timeout(REFUSAL_TIMEOUT, connection.answer("guest-shutdown")).await {
            Ok(Err(error @ AgentError::Command { .. })) => Err(error),
            // Silence, the channel's end, or an agent that says yes.
            _ => Ok(()),
        }
    }

    /// `crypted` says that the password is already a hash as the guest's password file holds it.
    pub async fn set_user_password(&self, user: &str, password: &str, crypted: bool) -> Result<(), AgentError> {
        let password = BASE64.encode(password);
        let arguments = json!({ "username": user, "password": password, "crypted": crypted });
        self.run("guest-set-user-password", arguments, COMMAND_TIMEOUT).await
    }

    /// Adds keys to a user's, or replaces them all if `reset`.
    pub async fn ssh_add_authorized_keys(&self, user: &str, keys: &[String], reset: bool) -> Result<(), AgentError> {
        let arguments = json!({ "username": user, "keys": keys, "reset": reset });
        self.run("guest-ssh-add-authorized-keys", arguments, COMMAND_TIMEOUT).await
    }

    async fn run(&self, command: &str, arguments: Value, after: Duration) -> Result<(), AgentError> {
        self.execute::<Value>(command, arguments, after).await.map(drop)
    }
}

#[cfg(test)]
mod tests;
