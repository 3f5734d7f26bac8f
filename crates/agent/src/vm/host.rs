//! What the machines of a node share: where things are, and whom to ask for disks, interfaces and images.
//!
//! The three traits are the whole of what this part of the agent knows of storage, networks and registries.

use std::collections::BTreeSet;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;

use croft_api::kubevirt::{Interface, PersistentVolumeClaimInfo, VirtualMachineInstance};
use croft_qemu::accel::Accel;
use croft_qemu::process::User;
use croft_qemu::spec::PortForward;
use futures::future::BoxFuture;
use kube::Client;
use parking_lot::Mutex;
use tokio::sync::{Semaphore, watch};

use super::running::Running;
use crate::cgroup::Cgroups;
use crate::metrics::Phases;
use crate::node::Accelerator;

/// Users that no distribution gives to anybody.
const FIRST_USER: u32 = 2_000_000_000;
const USERS: u32 = 100_000;

/// Why something that a machine needs is not there.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Lacking {
    /// It may come: whoever waits is told by a change, or looks again. The reason is a word for conditions.
    #[error("{message}")]
    Yet { reason: &'static str, message: String },
    /// It will not.
    #[error("{message}")]
    Ever { message: String },
}

impl Lacking {
    pub(crate) fn ever(message: impl Into<String>) -> Lacking {
        Lacking::Ever { message: message.into() }
    }
}

/// A claim's bytes on this node.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Attached {
    pub(crate) path: PathBuf,
    pub(crate) size_bytes: u64,
    pub(crate) is_block: bool,
    pub(crate) is_read_only: bool,
    pub(crate) claim: PersistentVolumeClaimInfo,
}

pub(crate) trait Storage: Send + Sync {
    fn attach(&self, namespace: &str, claim: &str) -> Result<Attached, Lacking>;
    /// Bumped whenever the answer to [`Storage::attach`] may be another.
    fn changes(&self) -> watch::Receiver<u64>;
    /// Where files are kept that live as long as a run of a machine. Clones of images and claims are cheap there.
    fn scratch(&self) -> PathBuf;
    /// Where a machine's own memory is kept over its runs.
    fn state(&self) -> PathBuf;
    /// The file with a guest's memory that was kept with this VolumeSnapshot.
    fn memory(&self, namespace: &str, snapshot: &str) -> Result<PathBuf, Lacking>;
}

/// An image in a registry, and a file in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ImageWanted {
    pub(crate) namespace: String,
    pub(crate) image: String,
    /// `Always`, `IfNotPresent` or `Never`.
    pub(crate) pull_policy: Option<String>,
    pub(crate) pull_secret: Option<String>,
    /// The one disk in the image if none.
    pub(crate) path: Option<String>,
    /// Otherwise a file as it is, such as a kernel.
    pub(crate) is_disk: bool,
}

pub(crate) trait Images: Send + Sync {
    /// A read-only file with the disk's raw bytes, shared by all who use the image.
    fn ensure<'a>(&'a self, wanted: &'a ImageWanted) -> BoxFuture<'a, Result<PathBuf, Lacking>>;
}

/// An interface's end on the host.
#[derive(Debug)]
pub(crate) enum Plugged {
    Tap { fds: Vec<OwnedFd>, mtu: Option<u16> },
    User { forwards: Vec<PortForward> },
}

/// One interface of one machine.
#[derive(Debug)]
pub(crate) struct NicWanted<'a> {
    pub(crate) vmi: &'a VirtualMachineInstance,
    pub(crate) interface: &'a Interface,
    pub(crate) mac: [u8; 6],
    pub(crate) queues: u16,
}

pub(crate) trait Nics: Send + Sync {
    /// Idempotent.
    fn plug<'a>(&'a self, wanted: NicWanted<'a>) -> BoxFuture<'a, Result<Plugged, Lacking>>;
    fn unplug<'a>(&'a self, vmi_uid: &'a str, interface: &'a str) -> BoxFuture<'a, Result<(), String>>;
    fn unplug_all<'a>(&'a self, vmi_uid: &'a str) -> BoxFuture<'a, Result<(), String>>;
    /// Removes the interfaces of all machines but those with these uids.
    fn retain<'a>(&'a self, known: &'a BTreeSet<String>) -> BoxFuture<'a, Result<(), String>>;
    /// The machines, by namespace and name, that do not run and whose addresses are kept for them.
    fn idle_machines(&self) -> Vec<(String, String)>;
    /// Gives up the addresses of a machine that will not come back.
    fn forget_machine(&self, namespace: &str, name: &str) -> Result<(), String>;
}

/// Those who look after guests that run.
pub(crate) trait Attendance: Send + Sync {
    /// Called before a guest is let run, so that nothing it says is lost.
    fn arrive<'a>(&'a self, machine: &'a Arc<Running>) -> BoxFuture<'a, ()>;
    fn leave(&self, machine: &Running);
}

/// Shared by all machines of a node.
pub(crate) struct Host {
    /// Counts how long machines take.
    pub(crate) phases: Arc<Phases>,
    pub(crate) client: Client,
    pub(crate) node_name: String,
    /// Below it, each machine has a directory for its sockets.
    pub(crate) run_dir: PathBuf,
    /// The only directory that `hostDisk` volumes may name files in.
    pub(crate) disk_root: PathBuf,
    pub(crate) qemu: PathBuf,
    pub(crate) swtpm: PathBuf,
    pub(crate) accelerator: Accelerator,
    pub(crate) storage: Arc<dyn Storage>,
    pub(crate) images: Arc<dyn Images>,
    pub(crate) nics: Arc<dyn Nics>,
    pub(crate) attendance: Arc<dyn Attendance>,
    /// None where the host has none that we may write.
    pub(crate) cgroups: Option<Cgroups>,
    pub(crate) users: Arc<Users>,
    /// How many machines start at a time.
    pub(crate) starts: Semaphore,
}

impl std::fmt::Debug for Host {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Host").field("node_name", &self.node_name).finish_non_exhaustive()
    }
}

impl Host {
    pub(crate) fn machine_dir(&self, vmi_uid: &str) -> PathBuf {
        self.run_dir.join(vmi_uid)
    }

    pub(crate) fn scratch_dir(&self, vmi_uid: &str) -> PathBuf {
        self.storage.scratch().join(vmi_uid)
    }
}

/// One user a machine, so that none can touch another's processes, sockets or memory.
#[derive(Debug)]
pub(crate) struct Users {
    used: Mutex<BTreeSet<u32>>,
    /// Only root can become somebody else.
    is_root: bool,
}

impl Users {
    pub(crate) fn new(is_root: bool) -> Arc<Users> {
        Arc::new(Users { used: Mutex::default(), is_root })
    }

    /// A user that no machine has. None if machines run as ourselves.
    pub(crate) fn take(self: &Arc<Self>, accel: Accel) -> Option<Lease> {
        if !self.is_root {
            return None;
        }
        let mut used = self.used.lock();
        let uid = (FIRST_USER..FIRST_USER + USERS).find(|uid| !used.contains(uid))?;
        used.insert(uid);
        let gid = if accel == Accel::Kvm { kvm_group().unwrap_or(uid) } else { uid };
        Some(Lease { users: Arc::clone(self), user: User { uid, gid } })
    }

    /// The user of a machine that already runs.
    pub(crate) fn adopt(self: &Arc<Self>, uid: u32) -> Option<Lease> {
        let is_ours = (FIRST_USER..FIRST_USER + USERS).contains(&uid) && self.used.lock().insert(uid);
        is_ours.then(|| Lease { users: Arc::clone(self), user: User { uid, gid: uid } })
    }
}

/// A machine's user, given back when it is dropped.
#[derive(Debug)]
pub(crate) struct Lease {
    users: Arc<Users>,
    pub(crate) user: User,
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.users.used.lock().remove(&self.user.uid);
    }
}

/// The group that may use KVM, unless everybody may.
fn kvm_group() -> Option<u32> {
    use std::os::unix::fs::MetadataExt;
    let meta = std::fs::metadata("/dev/kvm").ok()?;
    (meta.mode() & 0o006 != 0o006).then(|| meta.gid())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_machine_has_a_user_of_its_own() {
        let users = Users::new(true);
        let _running = users.adopt(FIRST_USER + 1).unwrap();
        assert!(users.adopt(0).is_none());
        let tcg = Accel::Tcg { cache_mib: None };
        let mut taken: Vec<_> = (0..3).map(|_| users.take(tcg).unwrap()).collect();
        let numbers = |taken: &[Lease]| taken.iter().map(|lease| lease.user.uid - FIRST_USER).collect::<Vec<_>>();
        assert_eq!(numbers(&taken), [0, 2, 3]);
        taken.remove(1);
        assert_eq!(users.take(tcg).unwrap().user.uid, FIRST_USER + 2);
        assert!(Users::new(false).take(tcg).is_none());
    }
}
