//! What runs guests here: QEMU, with KVM or without. Found out once, in the background, by running a guest.
//!
//! The answer is kept in `accelerator.json` in the data directory, so that the next start has it at once. It holds for
//! this QEMU on this kernel; that KVM does not work holds only until the next boot, as a busy machine may have caused it.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use croft_qemu::accel::{Accel, PROBE_TIMEOUT, Probe, probe};
use croft_qemu::io_uring;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use super::cpu_models;
use super::health::{Aspect, Finding, Health};

const CACHE_FILE: &str = "accelerator.json";

/// What runs guests. Clones share the answer.
#[derive(Clone, Debug)]
pub struct Accelerator(watch::Receiver<Option<Answer>>);

type Answer = Result<Found, String>;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Found {
    has_kvm: bool,
    /// Why not KVM.
    reason: Option<String>,
    /// The processors that a guest can be given, by QEMU's names.
    cpu_models: Vec<String>,
    has_io_uring: bool,
}

#[derive(Debug, Serialize, Deserialize)]
struct Kept {
    of: Circumstances,
    found: Found,
}

/// What an answer depends on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Circumstances {
    binary: PathBuf,
    size: u64,
    modified: i64,
    kernel: String,
    boot: String,
    can_open_kvm: bool,
}

impl Accelerator {
    /// Starts to find out. A QEMU that is not there, or runs no guest, makes the node unready.
    pub fn probe(qemu: &Path, data_dir: &Path, health: Health) -> Self {
        let (sender, receiver) = watch::channel(None);
        let Some(binary) = find_program(qemu) else {
            let message = format!("{} is not installed; install qemu-system-x86 and restart croft", qemu.display());
            health.set(Aspect::Kvm, Finding::bad("QemuMissing", message.clone()));
            health.set(Aspect::Ready, Finding::bad("QemuMissing", message.clone()));
            sender.send_replace(Some(Err(message)));
            return Self(receiver);
        };
        let cache = data_dir.join(CACHE_FILE);
        tokio::spawn(async move {
            let answer = find_out(binary, cache).await;
            sender.send_replace(Some(answer.clone()));
            // After the answer is there for whom this wakes.
            report(&answer, &health);
        });
        Self(receiver)
    }

    /// Waits until it is known; the error says why no guest can be run.
    pub async fn wait(&self) -> Result<Accel, String> {
        let mut receiver = self.0.clone();
        let answer = receiver.wait_for(Option::is_some).await.map_err(|_| "the agent is stopping".to_owned())?;
        match answer.as_ref() {
            Some(Ok(found)) if found.has_kvm => Ok(Accel::Kvm),
            Some(Ok(_)) => Ok(Accel::Tcg { cache_mib: None }),
            Some(Err(reason)) => Err(reason.clone()),
            None => Err("nothing is known yet".to_owned()),
        }
    }

    /// Emulation, without finding out.
    #[cfg(test)]
    pub(crate) fn emulation() -> Self {
        let found = Found { has_kvm: false, reason: None, cpu_models: Vec::new(), has_io_uring: false };
        Self(watch::channel(Some(Ok(found))).1)
    }

    /// Whether QEMU can use io_uring. Known when [`Accelerator::wait`] has ended.
    pub fn has_io_uring(&self) -> bool {
        matches!(&*self.0.borrow(), Some(Ok(found)) if found.has_io_uring)
    }

    pub(super) fn has_kvm(&self) -> bool {
        matches!(&*self.0.borrow(), Some(Ok(found)) if found.has_kvm)
    }

    /// One label for each processor that a guest can be given, which the scheduler looks for.
    pub(super) fn cpu_labels(&self) -> BTreeMap<String, String> {
        let answer = self.0.borrow();
        let Some(Ok(found)) = &*answer else { return BTreeMap::new() };
        let label = |model: &String| (format!("cpu-model.node.kubevirt.io/{model}"), "true".to_owned());
        found.cpu_models.iter().map(label).collect()
    }
}

fn report(answer: &Answer, health: &Health) {
    match answer {
        Ok(found) if found.has_kvm => health.set(Aspect::Kvm, Finding::good("Works", "a guest has run under KVM")),
        Ok(found) => {
            let reason = found.reason.as_deref().unwrap_or("KVM does not work");
            health.set(Aspect::Kvm, Finding::bad("Emulation", format!("guests are emulated, which is slow: {reason}")));
        }
        Err(reason) => {
            health.set(Aspect::Kvm, Finding::bad("QemuFails", reason.clone()));
            health.set(Aspect::Ready, Finding::bad("QemuFails", reason.clone()));
        }
    }
}

async fn find_out(binary: PathBuf, cache: PathBuf) -> Answer {
    let circumstances = Circumstances::now(&binary);
    if let Some(found) = circumstances.as_ref().and_then(|now| kept(&cache, now)) {
        return Ok(found);
    }
    let Probe { accel, reason } = probe(&binary, PROBE_TIMEOUT).await.map_err(|error| error.to_string())?;
    let has_kvm = accel == Accel::Kvm;
    let cpu_models = cpu_models::usable(&binary, has_kvm).await.unwrap_or_else(|error| {
        tracing::warn!(%error, "QEMU does not say which processors it can show to guests");
        Vec::new()
    });
    let ring = io_uring::try_out(&binary).await;
    if let Err(reason) = &ring {
        tracing::info!(reason, "disks are driven by threads: io_uring does not work here");
    }
    let found = Found { has_kvm, reason, cpu_models, has_io_uring: ring.is_ok() };
    if let Some(of) = circumstances {
        keep(&cache, &Kept { of, found: found.clone() });
    }
    Ok(found)
}

impl Circumstances {
    fn now(binary: &Path) -> Option<Self> {
        let file = fs::metadata(binary).ok()?;
        let read = |path: &str| fs::read_to_string(path).map(|text| text.trim().to_owned()).ok();
        Some(Self {
            binary: binary.to_owned(),
            size: file.size(),
            modified: file.mtime(),
            kernel: read("/proc/sys/kernel/osrelease")?,
            boot: read("/proc/sys/kernel/random/boot_id")?,
            can_open_kvm: fs::OpenOptions::new().read(true).write(true).open("/dev/kvm").is_ok(),
        })
    }
}

fn kept(cache: &Path, now: &Circumstances) -> Option<Found> {
    let kept: Kept = serde_json::from_slice(&fs::read(cache).ok()?).ok()?;
    let then = Circumstances { boot: now.boot.clone(), ..kept.of.clone() };
    let holds = then == *now && (kept.found.has_kvm || kept.of.boot == now.boot);
    holds.then_some(kept.found)
}

/// A torn file is no answer and a lost one is found out again, so failures do not matter.
fn keep(cache: &Path, kept: &Kept) {
    let written = serde_json::to_vec(kept).map_err(std::io::Error::other).and_then(|text| fs::write(cache, text));
    if let Err(error) = written {
        tracing::debug!(%error, "the accelerator is not remembered");
    }
}

/// A path as it is; a name from the PATH.
fn find_program(program: &Path) -> Option<PathBuf> {
    if program.is_absolute() {
        return program.is_file().then(|| program.to_owned());
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).map(|dir| dir.join(program)).find(|file| file.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn circumstances() -> Circumstances {
        Circumstances {
            binary: "/usr/bin/qemu".into(),
            size: 1,
            modified: 2,
            kernel: "6.1".into(),
            boot: "a".into(),
            can_open_kvm: true,
        }
    }

    #[test]
    fn an_answer_is_kept_for_as_long_as_it_holds() {
        let dir = tempfile::tempdir().unwrap();
        let cache = dir.path().join(CACHE_FILE);
        let now = circumstances();
        let rebooted = Circumstances { boot: "b".into(), ..now.clone() };
        let upgraded = Circumstances { size: 9, ..now.clone() };
        assert_eq!(kept(&cache, &now), None);
        for has_kvm in [true, false] {
            let found = Found { has_kvm, reason: None, cpu_models: vec!["Haswell".into()], has_io_uring: true };
            keep(&cache, &Kept { of: now.clone(), found: found.clone() });
            assert_eq!(kept(&cache, &now), Some(found.clone()));
            assert_eq!(kept(&cache, &rebooted), has_kvm.then_some(found));
            assert_eq!(kept(&cache, &upgraded), None);
        }
        fs::write(&cache, "torn").unwrap();
        assert_eq!(kept(&cache, &now), None);
    }

    #[tokio::test]
    async fn a_missing_qemu_is_said() {
        let dir = tempfile::tempdir().unwrap();
        let health = Health::default();
        let accelerator = Accelerator::probe(Path::new("/nonexistent/qemu"), dir.path(), health.clone());
        assert!(accelerator.wait().await.unwrap_err().contains("/nonexistent/qemu is not installed"));
        assert!(!health.is_ready());
    }

    #[tokio::test]
    async fn this_machine_is_probed_once() {
        let dir = tempfile::tempdir().unwrap();
        let probe = || Accelerator::probe(Path::new("qemu-system-x86_64"), dir.path(), Health::default());
        let first = probe();
        let accel = first.wait().await.unwrap();
        assert_eq!(first.has_kvm(), accel == Accel::Kvm);
        assert!(first.cpu_labels().contains_key("cpu-model.node.kubevirt.io/Nehalem"), "{:?}", first.cpu_labels());
        // What was kept is believed: a second probe would not find this.
        let cache = dir.path().join(CACHE_FILE);
        let kept = fs::read_to_string(&cache).unwrap();
        fs::write(&cache, kept.replace("\"Nehalem\"", "\"Remembered\"")).unwrap();
        let again = probe();
        assert_eq!(again.wait().await.unwrap(), accel);
        assert!(again.cpu_labels().contains_key("cpu-model.node.kubevirt.io/Remembered"), "{:?}", again.cpu_labels());
    }
}
