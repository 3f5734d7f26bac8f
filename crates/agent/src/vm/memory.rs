//! The memory of a guest that runs, written to a file so that the guest can go on from there one day.
//!
//! QEMU writes it while the guest runs, and what has changed meanwhile again; for the last of it the guest stands still, and
//! that is the instant at which its disks are kept. A guest that changes its memory faster than it is written is stopped for
//! the rest. Then it goes on, whatever happened.
//!
//! The file begins with a line that says what the machine was. Only a QEMU that is told the same can read the rest.

use std::collections::BTreeSet;
use std::fs::{DirBuilder, File};
use std::io::{self, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use croft_api::machine_state::MemorySource;
use croft_api::snapshot::Stillness;
use croft_qemu::accel::Accel;
use croft_qemu::args::command_line;
use croft_qemu::qmp::{Qmp, QmpError};
use croft_qemu::spec::{Machine, SpecError};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::running::Running;
use super::still::{Record, StillError};

/// In the machine's directory, for as long as it runs.
const DESCRIPTION: &str = "started.json";
/// In the machine's state: which memory it has gone on from.
const MARK: &str = "resumed";
/// QEMU's name for the descriptor.
const FD: &str = "memory";
const LOOK: Duration = Duration::from_millis(200);
/// How long the last of it may take while the guest stands still, as far as QEMU can tell.
const PAUSE_MS: u64 = 50;
const FASTEST: u64 = 1 << 40;
/// How much of the memory is written before the guest is stopped for the rest, in percent.
const ENOUGH: u64 = 150;
/// What there must be room for besides the memory itself.
pub(crate) const SPARE_BYTES: u64 = 64 << 20;
/// A line that is longer is none of ours.
const HEADER_MAX: usize = 1 << 20;
const GIVE_UP: Duration = Duration::from_secs(30);
const CLOCK_ATTEMPTS: u32 = 10;
const CLOCK_AGAIN: Duration = Duration::from_secs(2);

#[derive(Debug, thiserror::Error)]
pub(crate) enum MemoryError {
    #[error("the machine is paused: its memory is kept while it runs")]
    Paused,
    #[error("the machine was started by an earlier version, or nothing is known of its start: restart it first")]
    Unknown,
    #[error("devices were plugged into the machine or out of it since it was started: restart it first")]
    Replugged,
    #[error("there is room for {room} bytes, and the guest's memory may take {needed}")]
    NoRoom { room: u64, needed: u64 },
    #[error("the machine is being stopped")]
    Ending,
    #[error("QEMU cannot write the guest's memory: {0}")]
    Failed(String),
    #[error(transparent)]
    Still(#[from] StillError),
    #[error("QEMU cannot {what}")]
    Qemu {
        what: &'static str,
        #[source]
        err: QmpError,
    },
    #[error("cannot write or read {}", path.display())]
    File {
        path: PathBuf,
        #[source]
        err: io::Error,
    },
    #[error("the machine cannot be described")]
    Describe(#[from] SpecError),
}

fn qemu(what: &'static str) -> impl FnOnce(QmpError) -> MemoryError {
    move |err| MemoryError::Qemu { what, err }
}

/// What must be the same for a guest to go on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Description {
    qemu: String,
    /// What the guest may know of the host's processors; nothing if they are emulated.
    processor: String,
    args: Vec<String>,
    /// All that can be plugged.
    devices: BTreeSet<String>,
}

impl Description {
    pub(super) async fn of(machine: &Machine, accel: Accel, qmp: &Qmp) -> Result<Description, MemoryError> {
        let booting = Machine { is_incoming: false, ..machine.clone() };
        let version = qmp.version();
        Ok(Description {
            qemu: format!("{}.{}", version.major, version.minor),
            processor: if accel == Accel::Kvm { processor() } else { String::new() },
            args: comparable(command_line(&booting, accel)?),
            devices: qmp.devices().await.map_err(qemu("list its devices"))?.into_iter().collect(),
        })
    }

    pub(super) fn write(&self, dir: &Path) -> Result<(), MemoryError> {
        let path = dir.join(DESCRIPTION);
        std::fs::write(&path, serde_json::to_vec(self).unwrap_or_default())
            .map_err(|err| MemoryError::File { path, err })
    }

    fn read(dir: &Path) -> Option<Description> {
        serde_json::from_slice(&std::fs::read(dir.join(DESCRIPTION)).ok()?).ok()
    }

    /// Why a machine like this cannot go on from the memory of that one.
    pub(super) fn differs_from(&self, kept: &Description) -> Option<String> {
        if self.qemu != kept.qemu {
            return Some(format!("it was kept by QEMU {}, and this is {}", kept.qemu, self.qemu));
        }
        if self.processor != kept.processor {
            let name =
                |text: &str| text.lines().next().filter(|name| !name.is_empty()).unwrap_or("emulated").to_owned();
            return Some(format!(
                "the host's processors were others: {}, and now {}",
                name(&kept.processor),
                name(&self.processor)
            ));
        }
        let differs = |(now, then): &(&String, &String)| now != then;
        if let Some((now, then)) = self.args.iter().zip(&kept.args).find(differs) {
            return Some(format!("the machine was another: QEMU was told {then}, and would be told {now}"));
        }
        (self.args.len() != kept.args.len()).then(|| "the machine had other devices".to_owned())
    }
}

/// Without what may differ from run to run and is no concern of the guest's.
fn comparable(args: Vec<String>) -> Vec<String> {
    let mut kept = Vec::new();
    let mut args = args.into_iter();
    while let Some(arg) = args.next() {
        let value = match arg.as_str() {
            "-rtc" => {
                args.next();
                continue;
            }
            "-netdev" => args.next().map(|value| match serde_json::from_str::<Value>(&value) {
                Ok(Value::Object(mut netdev)) => {
                    netdev.remove("hostfwd");
                    Value::Object(netdev).to_string()
                }
                _ => value,
            }),
            _ => None,
        };
        kept.push(arg);
        kept.extend(value);
    }
    kept
}

/// Its name and all that it can do.
fn processor() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let field = |name: &str| {
        let line = text.lines().find(|line| line.split(':').next().is_some_and(|key| key.trim() == name));
        line.and_then(|line| line.split_once(':')).map(|(_, value)| value.trim().to_owned()).unwrap_or_default()
    };
    format!("{}\n{}", field("model name"), field("flags"))
}

impl Running {
    /// Does something at the instant at which the guest's memory is in the file. It is done to the end, even if nobody waits
    /// for it. `room` is what the file may take.
    pub(crate) async fn hold_with_memory<T: Send + 'static>(
        self: Arc<Self>,
        file: File,
        room: u64,
        instant: impl FnOnce() -> T + Send + 'static,
    ) -> Result<(T, Stillness), MemoryError> {
        let held = tokio::spawn(async move { self.hold_saved(file, room, instant).await });
        match held.await {
            Ok(outcome) => outcome,
            // It panicked, which is a bug that must be seen; the task is not cancelled.
            Err(error) => std::panic::resume_unwind(error.into_panic()),
        }
    }

    async fn hold_saved<T: Send + 'static>(
        self: Arc<Self>,
        file: File,
        room: u64,
        instant: impl FnOnce() -> T + Send + 'static,
    ) -> Result<(T, Stillness), MemoryError> {
        let _turn = self.take_turn().await;
        if !self.qmp().status().await.map_err(qemu("say how the guest is"))?.running {
            return Err(MemoryError::Paused);
        }
        let description = Description::read(self.dir()).ok_or(MemoryError::Unknown)?;
        let devices = self.qmp().devices().await.map_err(qemu("list its devices"))?;
        if description.devices != devices.into_iter().collect() {
            return Err(MemoryError::Replugged);
        }
        let needed = super::machine::guest_memory(&self.object().spec).unwrap_or_default() + SPARE_BYTES;
        if room < needed {
            return Err(MemoryError::NoRoom { room, needed });
        }
        let path = self.record();
        Record { is_frozen: false, is_saving: true }.write(&path)?;
        self.is_held.store(true, Ordering::Release);
        let saved = self.save(file, &description).await;
        let done = match saved {
            Ok(pause) => {
                let began = Instant::now();
                let done = tokio::task::spawn_blocking(instant).await;
                Ok((done.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic())), pause, began))
            }
            Err(error) => Err(error),
        };
        let went_on = go_on(self.qmp()).await;
        let now = Instant::now();
        self.is_held.store(false, Ordering::Release);
        went_on.map_err(StillError::Continue)?;
        super::still::forget(&path);
        let (done, pause, began) = done?;
        let pause = pause + now.duration_since(began);
        let stillness = Stillness {
            is_running: true,
            has_agent: self.has_agent(),
            has_memory: true,
            pause_ms: (pause.as_secs_f64() * 10_000.0).round() / 10.0,
            ..Stillness::default()
        };
        Ok((done, stillness))
    }

    /// Writes the memory. The guest stands still when this is done, and has for so long.
    async fn save(&self, mut file: File, description: &Description) -> Result<Duration, MemoryError> {
        let failed = |err| MemoryError::File { path: DESCRIPTION.into(), err };
        let mut line = serde_json::to_vec(description).unwrap_or_default();
        line.push(b'\n');
        file.write_all(&line).map_err(failed)?;
        let qmp = self.qmp();
        let begin = async {
            qmp.migrate_set_capabilities(&[("events", true)]).await?;
            let parameters = json!({ "max-bandwidth": FASTEST, "downtime-limit": PAUSE_MS });
            qmp.migrate_set_parameters(parameters.as_object().cloned().unwrap_or_default()).await?;
            qmp.getfd(FD, file.into()).await?;
            qmp.migrate(&format!("fd:{FD}")).await
        };
        let mut events = qmp.subscribe();
        begin.await.map_err(qemu("begin to write the guest's memory"))?;
        let mut stopped_at = None;
        loop {
            // Whatever is said, QEMU is asked.
            let _ = tokio::time::timeout(LOOK, events.wait_for("MIGRATION")).await;
            let heard = Instant::now();
            let state = qmp.migration().await.map_err(qemu("say how far the memory is"))?;
            match state.status.as_deref() {
                Some("completed") => {
                    let told = Duration::from_millis(state.downtime.unwrap_or_default());
                    let since = stopped_at.map_or(told, |at: Instant| heard.duration_since(at));
                    return Ok(since + heard.elapsed());
                }
                Some("failed") => {
                    return Err(MemoryError::Failed(
                        state.error_desc.unwrap_or_else(|| "it does not say why".to_owned()),
                    ));
                }
                Some("cancelled") => return Err(MemoryError::Failed("it was told to stop".to_owned())),
                _ => {}
            }
            if self.object().metadata.deletion_timestamp.is_some() {
                return Err(MemoryError::Ending);
            }
            let is_enough = state.ram.is_some_and(|ram| ram.transferred / 100 * 100 > ram.total / 100 * ENOUGH);
            if is_enough && stopped_at.is_none() {
                stopped_at = Some(Instant::now());
                qmp.stop().await.map_err(qemu("stop the guest"))?;
            }
        }
    }
}

/// Gives up what is still being written, and lets the guest go on.
pub(super) async fn go_on(qmp: &Qmp) -> Result<(), QmpError> {
    let began = Instant::now();
    loop {
        match qmp.migration().await?.status.as_deref() {
            Some("setup" | "active" | "device" | "pre-switchover") => qmp.migrate_cancel().await?,
            Some("cancelling") => {}
            _ => break,
        }
        if began.elapsed() > GIVE_UP {
            break;
        }
        tokio::time::sleep(LOOK / 4).await;
    }
    let status = qmp.status().await?.status;
    if matches!(status.as_str(), "paused" | "postmigrate" | "finish-migrate") { qmp.cont().await } else { Ok(()) }
}

/// A file with memory, opened where the memory begins.
#[derive(Debug)]
pub(super) struct Kept {
    pub(super) description: Description,
    file: File,
}

pub(super) fn open(path: &Path) -> Result<Kept, MemoryError> {
    let failed = |err| MemoryError::File { path: path.to_owned(), err };
    let mut file = File::open(path).map_err(failed)?;
    let mut start = vec![0; HEADER_MAX];
    let mut read = 0;
    while read < start.len() {
        let more = file.read_at(&mut start[read..], read as u64).map_err(failed)?;
        if more == 0 {
            break;
        }
        read += more;
    }
    let end = start[..read].iter().position(|byte| *byte == b'\n');
    let line = end.and_then(|end| Some((end, serde_json::from_slice(&start[..end]).ok()?)));
    let Some((end, description)) = line else {
        return Err(failed(io::Error::new(io::ErrorKind::InvalidData, "it is not the memory of a machine")));
    };
    file.seek(SeekFrom::Start(end as u64 + 1)).map_err(failed)?;
    Ok(Kept { description, file })
}

impl Kept {
    /// Has a QEMU that waits for it read the memory. It stands still then, or it has ended.
    pub(super) async fn load(self, qmp: &Qmp) -> Result<(), MemoryError> {
        qmp.getfd(FD, self.file.into()).await.map_err(qemu("take the memory"))?;
        qmp.migrate_incoming(&format!("fd:{FD}")).await.map_err(qemu("read the memory"))?;
        loop {
            tokio::time::sleep(LOOK / 4).await;
            let status = qmp.status().await.map_err(qemu("go on from the memory that was kept"))?;
            if status.status != "inmigrate" {
                return Ok(());
            }
        }
    }
}

/// Tells a guest that has gone on what time it is, if an agent in it listens. Nobody waits for it.
pub(super) async fn set_clock(machine: Arc<Running>) {
    for _ in 0..CLOCK_ATTEMPTS {
        let now = i64::try_from(Timestamp::now().as_nanosecond()).unwrap_or_default();
        if machine.agent().set_time(now).await.is_ok() {
            return;
        }
        tokio::time::sleep(CLOCK_AGAIN).await;
    }
    tracing::info!(machine = machine.name, "a guest that has gone on was not told the time: no agent answers in it");
}

/// Whether the machine has gone on from this memory before. It does so once.
pub(super) fn is_resumed(state: &Path, source: &MemorySource) -> bool {
    std::fs::read_to_string(state.join(MARK)).is_ok_and(|id| id == source.id)
}

/// To be said before the guest runs: what it does from then on is not forgotten.
pub(super) fn mark_resumed(state: &Path, source: &MemorySource) -> Result<(), MemoryError> {
    let path = state.join(MARK);
    let write = || {
        DirBuilder::new().recursive(true).mode(0o700).create(state)?;
        let beside = path.with_extension("new");
        let mut file = File::create(&beside)?;
        file.write_all(source.id.as_bytes())?;
        file.sync_all()?;
        std::fs::rename(&beside, &path)?;
        File::open(state)?.sync_all()
    };
    write().map_err(|err| MemoryError::File { path: path.clone(), err })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn description(args: &[&str]) -> Description {
        let args = args.iter().map(|arg| (*arg).to_owned()).collect();
        Description { qemu: "7.2".into(), args, ..Description::default() }
    }

    #[test]
    fn a_machine_goes_on_only_as_what_it_was() {
        let kept = description(&["-m", "128"]);
        assert_eq!(kept.differs_from(&kept), None);
        let more = description(&["-m", "256"]);
        assert!(more.differs_from(&kept).is_some_and(|why| why.contains("told 128, and would be told 256")));
        assert!(description(&["-m", "128", "-x"]).differs_from(&kept).is_some());
        let newer = Description { qemu: "9.1".into(), ..kept.clone() };
        assert!(newer.differs_from(&kept).is_some_and(|why| why.contains("QEMU 7.2, and this is 9.1")));
        let other = Description { processor: "fast\nflags".into(), ..kept.clone() };
        assert!(other.differs_from(&kept).is_some_and(|why| why.contains("emulated, and now fast")));
    }

    #[test]
    fn what_is_no_concern_of_the_guest_is_not_compared() {
        let args = ["-rtc", "base=utc", "-netdev", r#"{"id":"n","type":"user","hostfwd":[{"str":"tcp::1-:2"}]}"#, "-S"];
        let kept = comparable(args.map(str::to_owned).to_vec());
        assert_eq!(kept, ["-netdev", r#"{"id":"n","type":"user"}"#, "-S"]);
    }

    #[test]
    fn memory_is_found_behind_its_description() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("m");
        let mut text = serde_json::to_vec(&description(&["-m"])).unwrap();
        text.extend_from_slice(b"\nstream");
        std::fs::write(&path, text).unwrap();
        let kept = open(&path).unwrap();
        assert_eq!(kept.description, description(&["-m"]));
        assert_eq!(io::read_to_string(kept.file).unwrap(), "stream");
        std::fs::write(&path, "nonsense").unwrap();
        assert!(open(&path).is_err() && open(&dir.path().join("none")).is_err());
    }

    #[test]
    fn memory_is_used_once() {
        let dir = tempfile::tempdir().unwrap();
        let state = dir.path().join("state");
        let source = MemorySource { id: "1".into(), snapshot: "s".into() };
        assert!(!is_resumed(&state, &source));
        mark_resumed(&state, &source).unwrap();
        assert!(is_resumed(&state, &source));
        assert!(!is_resumed(&state, &MemorySource { id: "2".into(), ..source }));
    }
}
