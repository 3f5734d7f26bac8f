//! Looks after every guest of the node from its start or adoption to its end, and tells its machine what is learnt.

use std::net::IpAddr;
use std::sync::Arc;

use croft_qemu::qmp::QmpError;
use futures::future::BoxFuture;
use kube::Client;
use tokio::sync::watch;

use crate::console::Console;
use crate::guest::{Guest, Guests, Introduction, Life, attend};
use crate::server::Reach;
use crate::vm::Running;
use crate::vm::host::Attendance;

/// What the host's networks know of the interface with this MAC address.
pub(crate) type Leases = Box<dyn Fn(&str) -> Vec<IpAddr> + Send + Sync>;

pub(crate) struct Attendants {
    pub(crate) guests: Guests,
    pub(crate) client: Client,
    pub(crate) reach: Arc<dyn Reach>,
    pub(crate) leases: Arc<Leases>,
    /// Woken when leases may have changed.
    pub(crate) lease_changes: watch::Receiver<u64>,
}

impl Attendance for Attendants {
    fn arrive<'a>(&'a self, machine: &'a Arc<Running>) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            // A machine without a serial port has no socket for it.
            let console = Console::open(&machine.console_socket(), machine.console_log().as_deref()).await.ok();
            let guest = self.guests.arrive(Guest::new(Introduction {
                namespace: machine.namespace.clone(),
                name: machine.name.clone(),
                uid: machine.uid.clone(),
                pid: machine.pid(),
                qmp: machine.qmp().clone(),
                agent: Some(Arc::clone(machine.agent())),
                console,
                has_display: machine.has_display(),
                usb_ports: machine.usb_sockets(),
                vsock_cid: machine.vsock_cid(),
                machine: Some(Arc::clone(machine)),
                life: Box::new(Supervised(Arc::clone(machine))),
            }));
            let attended =
                attend(Arc::clone(&guest), machine.subscribe(), Some(self.client.clone()), Arc::clone(&self.reach));
            let told = tell(guest.clone(), Arc::clone(machine), Arc::clone(&self.leases), self.lease_changes.clone());
            tokio::spawn(async move {
                let both = Box::pin(async { tokio::join!(attended, told) });
                guest.gone().run_until_cancelled(both).await;
            });
        })
    }

    fn leave(&self, machine: &Running) {
        self.guests.leave(&machine.namespace, &machine.name, &machine.uid);
    }
}

/// Passes on what is learnt, for as long as the guest is there.
async fn tell(guest: Arc<Guest>, machine: Arc<Running>, leases: Arc<Leases>, mut lease_changes: watch::Receiver<u64>) {
    let mut facts = guest.facts();
    let mut object = machine.subscribe();
    loop {
        lease_changes.borrow_and_update();
        let known = facts.borrow_and_update().clone();
        let interfaces =
            object.borrow_and_update().status.as_ref().map(|status| status.interfaces.clone()).unwrap_or_default();
        let macs = interfaces.iter().filter(|interface| interface.name.is_some()).filter_map(|one| one.mac.clone());
        let held: Vec<(String, Vec<IpAddr>)> = macs.map(|mac| (mac.clone(), leases(&mac))).collect();
        let told = known.told(&held);
        machine.edit_guest(|shown| {
            if known.is_known {
                let readiness = shown.readiness.take();
                *shown = told.clone();
                shown.readiness = told.readiness.clone().or(readiness);
            } else {
                // After a restart of ours, what was known of the guest stays until there is more to say.
                shown.readiness.clone_from(&told.readiness);
            }
        });
        tokio::select! {
            changed = facts.changed() => if changed.is_err() { return },
            changed = lease_changes.changed() => if changed.is_err() { return },
            changed = object.changed() => if changed.is_err() { return },
        }
    }
}

#[derive(Debug)]
struct Supervised(Arc<Running>);

impl Life for Supervised {
    fn fail(&self, reason: String) {
        self.0.fail(reason);
    }

    fn press_power_button_to_reboot(&self) -> BoxFuture<'_, Result<(), QmpError>> {
        Box::pin(self.0.reboot_by_power_button())
    }
}
