//! A machine that runs, for those who talk to it: consoles, the guest's agent, figures.
//!
//! Nothing here writes the object. What a command does to the guest comes back as QEMU's own event, and the machine's
//! task tells the API; so the status is right whoever paused the guest, and by whatever way.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use croft_api::kubevirt::{
    Disk, VirtualMachineInstance, VirtualMachineInstanceCondition, VirtualMachineInstanceGuestOsInfo,
    VirtualMachineInstanceNetworkInterface,
};
use croft_qemu::qga::Agent;
use croft_qemu::qmp::{Qmp, QmpError};
use parking_lot::Mutex;
use tokio::sync::{Mutex as Turns, MutexGuard as Turn, Notify, watch};

use super::prepare::{AGENT_SOCKET, CONSOLE_SOCKET, usb_socket};
use crate::cgroup::{Group, Usage};

/// What is known of the guest from inside. Whoever asks the guest's agent sets it, whole.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct GuestFacts {
    /// Conditions about the guest's agent. Those of [`GuestFacts::CONDITIONS`] that are not here are taken away.
    pub conditions: Vec<VirtualMachineInstanceCondition>,
    pub os: VirtualMachineInstanceGuestOsInfo,
    /// Matched with the machine's own by their MAC addresses; those of the guest alone follow.
    pub interfaces: Vec<VirtualMachineInstanceNetworkInterface>,
    /// What the readiness probe says; None without one.
    pub readiness: Option<Result<(), String>>,
    pub fs_freeze_status: Option<String>,
}

impl GuestFacts {
    /// The condition types that follow from what the guest's agent says.
    pub(crate) const CONDITIONS: [&'static str; 3] = [
        croft_api::kubevirt::condition::AGENT_CONNECTED,
        croft_api::kubevirt::condition::AGENT_VERSION_NOT_SUPPORTED,
        croft_api::kubevirt::condition::ACCESS_CREDENTIALS_SYNCHRONIZED,
    ];
}

/// One machine that runs on this node.
#[derive(Debug)]
pub(crate) struct Running {
    pub namespace: String,
    pub name: String,
    pub uid: String,
    dir: PathBuf,
    pid: u32,
    qmp: Qmp,
    agent: Arc<Agent>,
    group: Option<Group>,
    object: watch::Receiver<Arc<VirtualMachineInstance>>,
    guest: Mutex<GuestFacts>,
    /// Wakes the machine's task.
    pub(super) changed: Notify,
    /// The next power off is half of a reboot.
    pub(super) is_rebooting: AtomicBool,
    /// Those who stop the guest and let it go on take turns.
    pub(super) turn: Turns<()>,
    /// Stopped by us, for an instant that nobody need hear of.
    pub(super) is_held: AtomicBool,
    /// Why the machine is to be given up, by whoever found out.
    pub(super) failure: Mutex<Option<String>>,
}

pub(super) struct Parts {
    pub(super) dir: PathBuf,
    pub(super) pid: u32,
    pub(super) qmp: Qmp,
    pub(super) group: Option<Group>,
    pub(super) object: watch::Receiver<Arc<VirtualMachineInstance>>,
}

impl Running {
    pub(super) fn new(parts: Parts) -> Running {
        let meta = parts.object.borrow().metadata.clone();
        let status = parts.object.borrow().status.clone().unwrap_or_default();
        // After a restart of ours the last word counts until there is a new one.
        let is_about_guest =
            |condition: &VirtualMachineInstanceCondition| GuestFacts::CONDITIONS.contains(&condition.type_.as_str());
        let guest = GuestFacts {
            conditions: status.conditions.into_iter().filter(is_about_guest).collect(),
            os: status.guest_os_info,
            interfaces: status.interfaces,
            readiness: None,
            fs_freeze_status: status.fs_freeze_status,
        };
        Running {
            namespace: meta.namespace.unwrap_or_default(),
            name: meta.name.unwrap_or_default(),
            uid: meta.uid.unwrap_or_default(),
            agent: Arc::new(Agent::new(&parts.dir.join(AGENT_SOCKET))),
            dir: parts.dir,
            pid: parts.pid,
            qmp: parts.qmp,
            group: parts.group,
            object: parts.object,
            guest: Mutex::new(guest),
            changed: Notify::new(),
            is_rebooting: AtomicBool::new(false),
            turn: Turns::default(),
            is_held: AtomicBool::new(false),
            failure: Mutex::new(None),
        }
    }

    /// The object as last seen.
    pub(crate) fn object(&self) -> Arc<VirtualMachineInstance> {
        Arc::clone(&self.object.borrow())
    }

    /// For those who follow the object.
    pub(crate) fn subscribe(&self) -> watch::Receiver<Arc<VirtualMachineInstance>> {
        self.object.clone()
    }

    pub(super) fn dir(&self) -> &std::path::Path {
        &self.dir
    }

    /// For whoever stops the guest or lets it go on.
    pub(crate) async fn take_turn(&self) -> Turn<'_, ()> {
        self.turn.lock().await
    }

    pub(crate) fn pid(&self) -> u32 {
        self.pid
    }

    pub(crate) fn qmp(&self) -> &Qmp {
        &self.qmp
    }

    /// The agent inside the guest, if there is one. Its channel takes one client, so all share this one.
    pub(crate) fn agent(&self) -> &Arc<Agent> {
        &self.agent
    }

    /// The serial console's socket, which one client at a time may use.
    pub(crate) fn console_socket(&self) -> PathBuf {
        self.dir.join(CONSOLE_SOCKET)
    }

    /// Where what the guest says on its serial console is kept, unless its owner does not want that.
    pub(crate) fn console_log(&self) -> Option<PathBuf> {
        let is_wanted = self.object.borrow().spec.domain.devices.log_serial_console != Some(false);
        is_wanted.then(|| self.dir.join("console.log"))
    }

    pub(crate) fn has_display(&self) -> bool {
        super::machine::has_graphics(&self.object.borrow().spec)
    }

    /// QEMU's name for the back end of the first interface.
    pub(crate) fn first_backend(&self) -> Option<String> {
        let object = self.object.borrow();
        let interface = object.spec.domain.devices.interfaces.first()?;
        Some(format!("{}.net", super::machine::nic_id(&interface.name)))
    }

    /// The object's names for its disks, by QEMU's ids.
    pub(crate) fn disk_names(&self) -> HashMap<String, String> {
        let object = self.object.borrow();
        let name = |disk: &Disk| (super::machine::disk_id(&disk.name).to_string(), disk.name.clone());
        object.spec.domain.devices.disks.iter().map(name).collect()
    }

    pub(crate) fn interface_names(&self) -> Vec<String> {
        let object = self.object.borrow();
        object.spec.domain.devices.interfaces.iter().map(|interface| interface.name.clone()).collect()
    }

    /// Its processors, and its memory in bytes.
    pub(crate) fn size(&self) -> (u64, Option<u64>) {
        let object = self.object.borrow();
        (super::machine::vcpus(&object.spec), super::machine::guest_memory(&object.spec).ok())
    }

    /// The sockets through which USB devices are lent, none if the machine takes none.
    pub(crate) fn usb_sockets(&self) -> Vec<PathBuf> {
        let count = super::machine::usb_redirections(&self.object.borrow().spec);
        (0..count).map(|index| self.dir.join(usb_socket(index))).collect()
    }

    /// The guest's address for VSOCK.
    pub(crate) fn vsock_cid(&self) -> Option<u32> {
        super::prepare::vsock_cid(&self.object.borrow())
    }

    /// Presses the power button; the power off that follows is half of a reboot.
    pub(crate) async fn reboot_by_power_button(&self) -> Result<(), QmpError> {
        self.is_rebooting.store(true, Ordering::Release);
        self.qmp.system_powerdown().await
    }

    /// Gives the machine up, as a failed liveness probe does. It becomes Failed, for this reason.
    pub(crate) fn fail(&self, reason: impl Into<String>) {
        *self.failure.lock() = Some(reason.into());
        self.changed.notify_one();
    }

    pub(crate) fn guest(&self) -> GuestFacts {
        self.guest.lock().clone()
    }

    /// Says what is known of the guest; it reaches the object's status if it is news.
    pub(crate) fn edit_guest(&self, edit: impl FnOnce(&mut GuestFacts)) {
        let mut known = self.guest.lock();
        let before = known.clone();
        edit(&mut known);
        if *known != before {
            self.changed.notify_one();
        }
    }

    /// What the machine has taken of its node. None where there are no control groups.
    pub(crate) fn usage(&self) -> Option<Usage> {
        self.group.as_ref()?.usage()
    }
}
