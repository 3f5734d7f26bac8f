//! A guest that runs, for everybody but those who start and end it: its consoles, its agent, what it says of itself.
//!
//! [`Guests`] are those of this node. Whoever starts or adopts a machine puts it in with [`Guests::arrive`], before it is
//! let run so that nothing it says is lost, and takes it out with [`Guests::leave`]. What is learnt of a guest meanwhile
//! is its [`Facts`], which one writer puts into the object's status.

pub(crate) mod answers;
mod credentials;
mod facts;
mod follow;
mod support;

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use croft_api::kubevirt::VirtualMachineInstance;
use croft_qemu::qga::Agent;
use croft_qemu::qmp::{Qmp, QmpError};
use futures::future::BoxFuture;
use kube::Client;
use parking_lot::RwLock;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::console::Console;
use crate::probe;
use crate::server::Reach;
use crate::streams::Place;
use crate::vm::Running;
use credentials::Credentials;
pub use facts::{Facts, Readiness};

/// One machine that runs.
#[derive(Debug)]
pub struct Guest {
    pub namespace: String,
    pub name: String,
    /// The instance's.
    pub uid: String,
    pub pid: u32,
    pub qmp: Qmp,
    /// None if the machine has no channel for one.
    pub agent: Option<Arc<Agent>>,
    /// None if the machine has no serial port.
    pub console: Option<Console>,
    pub has_display: bool,
    /// The sockets of the ports that a user's USB devices can be put into.
    pub usb_ports: Vec<PathBuf>,
    pub vsock_cid: Option<u32>,
    /// None in tests.
    pub(crate) machine: Option<Arc<Running>>,
    gone: CancellationToken,
    pub(crate) screen: Place,
    pub(crate) usb_places: Vec<Place>,
    pub(crate) life: Box<dyn Life>,
    facts: watch::Sender<Facts>,
}

/// What whoever starts a machine knows of it.
#[derive(Debug)]
pub(crate) struct Introduction {
    pub namespace: String,
    pub name: String,
    pub uid: String,
    pub pid: u32,
    pub qmp: Qmp,
    pub agent: Option<Arc<Agent>>,
    pub console: Option<Console>,
    pub has_display: bool,
    pub usb_ports: Vec<PathBuf>,
    pub vsock_cid: Option<u32>,
    pub machine: Option<Arc<Running>>,
    pub life: Box<dyn Life>,
}

/// Whoever starts and ends the machine, for what only they can do.
pub trait Life: fmt::Debug + Send + Sync {
    /// Gives the machine up: it has failed, for this reason.
    fn fail(&self, reason: String);
    /// For a guest that has no agent to ask: it powers off, and is started again.
    fn press_power_button_to_reboot(&self) -> BoxFuture<'_, Result<(), QmpError>>;
}

impl Guest {
    pub(crate) fn new(introduction: Introduction) -> Self {
        Self {
            namespace: introduction.namespace,
            name: introduction.name,
            uid: introduction.uid,
            pid: introduction.pid,
            qmp: introduction.qmp,
            agent: introduction.agent,
            console: introduction.console,
            has_display: introduction.has_display,
            usb_places: introduction.usb_ports.iter().map(|_| Place::default()).collect(),
            usb_ports: introduction.usb_ports,
            vsock_cid: introduction.vsock_cid,
            machine: introduction.machine,
            gone: CancellationToken::new(),
            life: introduction.life,
            screen: Place::default(),
            facts: watch::Sender::default(),
        }
    }

    pub fn facts(&self) -> watch::Receiver<Facts> {
        self.facts.subscribe()
    }

    /// Cancelled when its machine is no longer served, be it that it ended or that another connection to it is made.
    pub(crate) fn gone(&self) -> &CancellationToken {
        &self.gone
    }

    /// Changes what is known; those who wait are woken only if it is something new.
    pub(crate) fn learn(&self, change: impl FnOnce(&mut Facts)) {
        self.facts.send_if_modified(|facts| {
            let before = facts.clone();
            change(facts);
            *facts != before
        });
    }
}

/// The guests of this node. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Guests(Arc<RwLock<ByName>>);

/// By namespace and name.
type ByName = BTreeMap<(String, String), Arc<Guest>>;

impl Guests {
    /// One of the same name, which has ended, makes room.
    pub fn arrive(&self, guest: Guest) -> Arc<Guest> {
        let guest = Arc::new(guest);
        let key = (guest.namespace.clone(), guest.name.clone());
        if let Some(before) = self.0.write().insert(key, Arc::clone(&guest)) {
            before.gone.cancel();
        }
        guest
    }

    /// Nothing if another run of the same name is there by now.
    pub fn leave(&self, namespace: &str, name: &str, uid: &str) {
        let key = (namespace.to_owned(), name.to_owned());
        let mut by_name = self.0.write();
        if by_name.get(&key).is_some_and(|there| there.uid == uid)
            && let Some(guest) = by_name.remove(&key)
        {
            guest.gone.cancel();
        }
    }

    pub fn get(&self, namespace: &str, name: &str) -> Option<Arc<Guest>> {
        self.0.read().get(&(namespace.to_owned(), name.to_owned())).cloned()
    }

    pub fn all(&self) -> Vec<Arc<Guest>> {
        self.0.read().values().cloned().collect()
    }
}

/// Looks after a guest until its machine ends: its agent, what it is to be given, its probes.
pub(crate) async fn attend(
    guest: Arc<Guest>,
    object: watch::Receiver<Arc<VirtualMachineInstance>>,
    client: Option<Client>,
    reach: Arc<dyn Reach>,
) {
    let spec = object.borrow().spec.clone();
    let following = follow::follow(Arc::clone(&guest), Credentials::new(client, object));
    let readiness = async {
        if let Some(probe) = spec.readiness_probe {
            probe::readiness(Arc::clone(&guest), probe, Arc::clone(&reach)).await;
        }
    };
    let liveness = async {
        let Some(probe) = spec.liveness_probe else { return };
        if let Some(reason) = probe::liveness(Arc::clone(&guest), probe, Arc::clone(&reach)).await {
            tracing::warn!(namespace = guest.namespace, name = guest.name, reason, "the guest is given up");
            guest.life.fail(reason);
        }
    };
    tokio::join!(following, readiness, liveness);
}
