//! QEMU's process: started so that it outlives us, found again, waited for, ended.
//!
//! Each machine has a directory of its own, and the directory is all there is to know:
//!
//! | file | what |
//! |---|---|
//! | `qmp.sock` | the control socket; we listen on it before QEMU exists, so nobody has to wait for it to appear |
//! | `process.json` | which process it is, with its start time: a number alone may be somebody else's by now |
//! | `qemu.log` | what QEMU says on its standard error |
//!
//! QEMU starts stopped: the caller connects what it must and then says [`Qmp::cont`]. It runs in a session of its own
//! (by `setsid`), so neither our end nor our terminal's is its own. Standard input is the control socket; other
//! descriptors get the numbers that the machine's spec names. The directory is ours alone: a QEMU that runs as another
//! user ([`Confinement`]) has everything it needs in its descriptors. The directory's name is in its environment, by
//! which it is found even if we died before we could write down its number.

mod confine;
mod proc;

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use command_fds::{CommandFdExt, FdMapping};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, pidfd_open, pidfd_send_signal, waitid};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::watch;
use uuid::Uuid;

use crate::accel::Accel;
use crate::args::{command_line, key_values, path_text};
use crate::qmp::{Events, Qmp, QmpError};
use crate::spec::{Machine, SpecError};
use proc::Record;

pub use confine::{Confinement, User};

/// From exec to the control connection. Tens of milliseconds, unless the host is swamped or locks much memory.
pub const START_TIMEOUT: Duration = Duration::from_secs(30);
/// An adopted QEMU that does not answer is stuck, or somebody else holds its connection.
pub const ADOPT_TIMEOUT: Duration = Duration::from_secs(10);
const LOG_TAIL: u64 = 4096;
/// What QEMU may have said before the older part is dropped.
const LOG_LIMIT: u64 = 1 << 20;
const LOG_KEPT: u64 = 64 << 10;

#[derive(Debug, thiserror::Error)]
pub enum ProcessError {
    #[error(transparent)]
    Spec(#[from] SpecError),
    #[error("cannot prepare {}", path.display())]
    Prepare {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("cannot start {}", binary.display())]
    Spawn {
        binary: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("a QEMU (process {pid}) is already running in {}", dir.display())]
    AlreadyRunning { dir: PathBuf, pid: u32 },
    #[error("no QEMU is running in {}", dir.display())]
    NotRunning { dir: PathBuf },
    #[error("QEMU has not started{}{log}", if log.is_empty() { "" } else { ": " })]
    Start {
        log: String,
        #[source]
        source: QmpError,
    },
    #[error("process {pid} does not answer as QEMU")]
    Adopt {
        pid: u32,
        #[source]
        source: QmpError,
    },
    #[error("the QEMU in {} is machine {found}, not {expected}", dir.display())]
    OtherMachine { dir: PathBuf, found: String, expected: Uuid },
    #[error("cannot follow process {pid}")]
    Follow {
        pid: u32,
        #[source]
        source: std::io::Error,
    },
}

/// What to start, and where.
#[derive(Debug)]
pub struct Launch<'a> {
    pub binary: &'a Path,
    /// The machine's own directory, made if missing; an absolute path, short enough for sockets in it.
    pub dir: &'a Path,
    pub machine: &'a Machine,
    pub accel: Accel,
    /// Descriptors with the numbers that they have in QEMU, 3 or more.
    pub fds: Vec<(i32, OwnedFd)>,
    pub confinement: &'a Confinement,
}

/// A program beside QEMU that serves the same machine, such as its TPM. It must end by itself when QEMU does.
#[derive(Debug)]
pub struct Companion<'a> {
    pub binary: &'a Path,
    /// The machine's directory.
    pub dir: &'a Path,
    pub args: Vec<String>,
    pub fds: Vec<(i32, OwnedFd)>,
    pub confinement: &'a Confinement,
}

/// How a process ended. Only its parent learns more than that it did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Exit {
    pub code: Option<i32>,
    pub signal: Option<i32>,
}

/// A QEMU that was running when last looked at. Dropping this leaves it running.
#[derive(Debug)]
pub struct Process {
    pid: u32,
    dir: PathBuf,
    pidfd: OwnedFd,
    exit: watch::Receiver<Option<Exit>>,
}

/// A machine's directory that somebody left, and the process if it still runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leftover {
    pub dir: PathBuf,
    pub pid: Option<u32>,
}

impl Process {
    /// Starts a machine, stopped, and connects to it. If this is dropped half-way, [`Process::adopt`] finds the rest.
    pub async fn start(launch: Launch<'_>) -> Result<(Process, Qmp, Events), ProcessError> {
        let dir = launch.dir.to_owned();
        if let Some(found) = find(&dir).await? {
            return Err(ProcessError::AlreadyRunning { dir, pid: found.pid });
        }
        let uuid = launch.machine.uuid;
        let plan = Plan::new(launch)?;
        let pid = blocking(&dir, move || plan.start()).await?;
        let process = Process::follow(pid, &dir)?;
        match process.introduce(uuid).await {
            Ok((qmp, events)) => Ok((process, qmp, events)),
            Err(error) => {
                process.kill();
                process.wait().await;
                Err(error)
            }
        }
    }

    /// Records the process and makes its acquaintance.
    async fn introduce(&self, uuid: Uuid) -> Result<(Qmp, Events), ProcessError> {
        let (pid, dir) = (self.pid, self.dir.clone());
        let record = move || match Record::of(pid, uuid) {
            Ok(Some(record)) => record.write(&dir),
            // It has ended already; the connection will say so, and the log why.
            Ok(None) => Ok(()),
            Err(error) => Err(error),
        };
        let preparing = prepare(&self.dir);
        blocking(&self.dir, move || record().map_err(preparing)).await?;
        match Qmp::connect(&socket_path(&self.dir), START_TIMEOUT).await {
            Ok(connected) => Ok(connected),
            Err(source) => Err(ProcessError::Start { log: log_tail(&self.dir).await, source }),
        }
    }

    /// Finds the QEMU of a directory again and connects to it.
    pub async fn adopt(dir: &Path, uuid: Uuid) -> Result<(Process, Qmp, Events), ProcessError> {
        let not_running = || ProcessError::NotRunning { dir: dir.to_owned() };
        let found = find(dir).await?.ok_or_else(not_running)?;
        let process = Process::follow(found.pid, dir)?;
        // Between looking and following, the number may have passed to another process.
        if find(dir).await?.as_ref() != Some(&found) {
            return Err(not_running());
        }
        let pid = found.pid;
        let adopting = |source| ProcessError::Adopt { pid, source };
        let (qmp, events) = Qmp::connect(&socket_path(dir), ADOPT_TIMEOUT).await.map_err(adopting)?;
        let answer = qmp.uuid().await.map_err(adopting)?;
        if answer != uuid.to_string() {
            return Err(ProcessError::OtherMachine { dir: dir.to_owned(), found: answer, expected: uuid });
        }
        // One that was found by searching has no record yet.
        let kept = dir.to_owned();
        blocking(dir, move || Record { uuid, ..found }.write(&kept).map_err(prepare(&kept))).await?;
        Ok((process, qmp, events))
    }

    fn follow(pid: u32, dir: &Path) -> Result<Process, ProcessError> {
        let wrong = |source: std::io::Error| ProcessError::Follow { pid, source };
        let number = i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or_else(|| wrong(Errno::INVAL.into()))?;
        let pidfd = pidfd_open(number, PidfdFlags::NONBLOCK).map_err(|error| wrong(error.into()))?;
        let watched = watch_readable(&pidfd).map_err(wrong)?;
        let (sender, exit) = watch::channel(None);
        // Not owned by the handle: it ends with QEMU, and until then it is what keeps a zombie from staying.
        tokio::spawn(async move {
            let _ = watched.readable().await;
            sender.send_replace(Some(reap(watched.get_ref())));
        });
        Ok(Process { pid, dir: dir.to_owned(), pidfd, exit })
    }

    pub fn pid(&self) -> u32 {
        self.pid
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Waits for the end; any number of callers may. Cancel-safe.
    pub async fn wait(&self) -> Exit {
        let mut exit = self.exit.clone();
        let ended = exit.wait_for(Option::is_some).await.ok().and_then(|exit| *exit);
        // The sender goes without a word only when the runtime itself is being stopped.
        ended.unwrap_or_default()
    }

    pub fn has_exited(&self) -> bool {
        self.exit.borrow().is_some()
    }

    /// Ends QEMU at once; the guest gets no chance to write anything.
    pub fn kill(&self) {
        // The only failure left is that it has ended already.
        let _ = pidfd_send_signal(&self.pidfd, Signal::KILL);
    }
}

/// The directories below `root`, each with its process if that runs.
pub async fn leftovers(root: &Path) -> Result<Vec<Leftover>, ProcessError> {
    let scanned = root.to_owned();
    blocking(root, move || {
        let mut found = Vec::new();
        for entry in std::fs::read_dir(&scanned).map_err(prepare(&scanned))? {
            let dir = entry.map_err(prepare(&scanned))?.path();
            if dir.is_dir() {
                let record = proc::find(&dir).map_err(prepare(&dir))?;
                found.push(Leftover { pid: record.map(|record| record.pid), dir });
            }
        }
        found.sort_by(|a, b| a.dir.cmp(&b.dir));
        Ok(found)
    })
    .await
}

/// Starts a machine's companion. Nobody waits for it, but it leaves no zombie.
pub async fn start_companion(companion: Companion<'_>) -> Result<(), ProcessError> {
    let dir = companion.dir.to_owned();
    let plan = Plan {
        binary: companion.binary.to_owned(),
        dir: dir.clone(),
        args: companion.args,
        fds: companion.fds,
        confinement: companion.confinement.clone(),
    };
    let pid = blocking(&dir, move || plan.spawn(Stdio::null())).await?;
    Process::follow(pid, &dir).map(drop)
}

/// Ends everything that was started for a directory: QEMU and its companions.
pub async fn kill_all(dir: &Path) -> Result<(), ProcessError> {
    let marked = dir.to_owned();
    let pids = blocking(dir, move || proc::marked(&marked).map_err(prepare(&marked))).await?;
    for pid in pids {
        // One that has ended in the meantime is what was wanted.
        let Ok(process) = Process::follow(pid, dir) else { continue };
        process.kill();
        process.wait().await;
    }
    Ok(())
}

/// Removes a machine's directory, unless its QEMU still runs. One that is not there is as good as removed.
pub async fn remove(dir: &Path) -> Result<(), ProcessError> {
    if let Some(found) = find(dir).await? {
        return Err(ProcessError::AlreadyRunning { dir: dir.to_owned(), pid: found.pid });
    }
    match tokio::fs::remove_dir_all(dir).await {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(prepare(dir)(error)),
        _ => Ok(()),
    }
}

pub fn socket_path(dir: &Path) -> PathBuf {
    dir.join("qmp.sock")
}

pub fn log_path(dir: &Path) -> PathBuf {
    dir.join("qemu.log")
}

async fn find(dir: &Path) -> Result<Option<Record>, ProcessError> {
    let looked = dir.to_owned();
    blocking(dir, move || proc::find(&looked).map_err(prepare(&looked))).await
}

/// Runs what touches files off the workers.
async fn blocking<T: Send + 'static>(
    dir: &Path,
    work: impl FnOnce() -> Result<T, ProcessError> + Send + 'static,
) -> Result<T, ProcessError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(outcome) => outcome,
        Err(error) => Err(prepare(dir)(std::io::Error::other(error))),
    }
}

fn prepare(path: &Path) -> impl Fn(std::io::Error) -> ProcessError + use<> {
    let path = path.to_owned();
    move |source| ProcessError::Prepare { path: path.clone(), source }
}

/// Everything that is needed to spawn, owned.
struct Plan {
    binary: PathBuf,
    dir: PathBuf,
    args: Vec<String>,
    fds: Vec<(i32, OwnedFd)>,
    confinement: Confinement,
}

impl Plan {
    fn new(launch: Launch<'_>) -> Result<Plan, ProcessError> {
        let mut args = command_line(launch.machine, launch.accel)?;
        path_text("machine directory", launch.dir)?;
        let control = key_values(&[("id", "qmp"), ("fd", "0"), ("server", "on"), ("wait", "off")])?;
        args.extend(["-chardev".to_owned(), format!("socket,{control}")]);
        args.extend(["-mon", "chardev=qmp,mode=control", "-S"].map(str::to_owned));
        if let Some((number, _)) = launch.fds.iter().find(|(number, _)| *number < 3) {
            return Err(SpecError::Impossible(format!("{number} as a descriptor's number in QEMU")).into());
        }
        Ok(Plan {
            binary: launch.binary.to_owned(),
            dir: launch.dir.to_owned(),
            args,
            fds: launch.fds,
            confinement: launch.confinement.clone(),
        })
    }

    fn start(self) -> Result<u32, ProcessError> {
        let preparing = prepare(&self.dir);
        DirBuilder::new().recursive(true).mode(0o700).create(&self.dir).map_err(&preparing)?;
        let listener = self.listen().map_err(&preparing)?;
        self.spawn(Stdio::from(OwnedFd::from(listener)))
    }

    fn spawn(self, input: Stdio) -> Result<u32, ProcessError> {
        let preparing = prepare(&self.dir);
        let log = open_log(&self.dir).map_err(&preparing)?;
        let mut command = self.confinement.command(&self.binary, &self.dir);
        command
            .args(&self.args)
            .stdin(input)
            .stdout(Stdio::from(log.try_clone().map_err(&preparing)?))
            .stderr(Stdio::from(log));
        let mappings = self.fds.into_iter().map(|(child_fd, parent_fd)| FdMapping { parent_fd, child_fd }).collect();
        let spawning = |source| ProcessError::Spawn { binary: self.binary.clone(), source };
        command.fd_mappings(mappings).map_err(|error| spawning(std::io::Error::other(error)))?;
        let mut child = command.spawn().map_err(spawning)?;
        if let Err(error) = self.confinement.enroll(child.id()) {
            // Better no machine than one without limits.
            let _ = child.kill();
            let _ = child.wait();
            return Err(spawning(error));
        }
        Ok(child.id())
    }

    fn listen(&self) -> std::io::Result<UnixListener> {
        let socket = socket_path(&self.dir);
        for stale in [&socket, &proc::record_file(&self.dir)] {
            match std::fs::remove_file(stale) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        UnixListener::bind(socket)
    }
}

fn open_log(dir: &Path) -> std::io::Result<File> {
    OpenOptions::new().create(true).append(true).mode(0o600).open(log_path(dir))
}

/// Drops the older part of a log that has grown large. QEMU appends, so it goes on at the new end.
pub async fn trim_log(dir: &Path) -> Result<(), ProcessError> {
    let path = log_path(dir);
    let trimmed = path.clone();
    blocking(dir, move || trim(&trimmed).map_err(prepare(&path))).await
}

fn trim(path: &Path) -> std::io::Result<()> {
    let mut file = match OpenOptions::new().read(true).append(true).open(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        opened => opened?,
    };
    let length = file.metadata()?.len();
    if length <= LOG_LIMIT {
        return Ok(());
    }
    let mut kept = Vec::new();
    file.seek(SeekFrom::Start(length - LOG_KEPT))?;
    (&file).take(LOG_KEPT).read_to_end(&mut kept)?;
    file.set_len(0)?;
    file.write_all(&kept)
}

/// The end of what QEMU has said, without the time of each line.
pub async fn log_tail(dir: &Path) -> String {
    let path = log_path(dir);
    let read = move || -> std::io::Result<Vec<u8>> {
        let mut file = File::open(path)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(LOG_TAIL)))?;
        let mut tail = Vec::new();
        file.read_to_end(&mut tail)?;
        Ok(tail)
    };
    let Ok(Ok(tail)) = tokio::task::spawn_blocking(read).await else { return String::new() };
    String::from_utf8_lossy(&tail).lines().last().unwrap_or_default().to_owned()
}

/// Readable means ended.
fn watch_readable(pidfd: &OwnedFd) -> std::io::Result<AsyncFd<OwnedFd>> {
    let copy = pidfd.try_clone()?;
    #[expect(deprecated, reason = "unsound for types that lie about their descriptor; an owned one does not")]
    AsyncFd::with_interest(copy, Interest::READABLE)
}

/// The exit status, which the kernel gives to the parent alone and once.
fn reap(pidfd: &OwnedFd) -> Exit {
    let Ok(Some(status)) = waitid(WaitId::PidFd(pidfd.as_fd()), WaitIdOptions::EXITED | WaitIdOptions::NOHANG) else {
        return Exit::default();
    };
    Exit { code: status.exit_status(), signal: status.terminating_signal() }
}
