//! Interfaces that come and go while the guest runs, and their cables.

use std::collections::BTreeMap;

use croft_api::kubevirt::{Interface, VirtualMachineInstance};
use croft_meta::Chain;
use croft_qemu::args::nic as args;
use croft_qemu::spec::{FdRef, Id, NicBackend, NicModel};

use super::super::host::{NicWanted, Plugged};
use super::super::machine::{self, Cable, nic_id};
use super::super::prepare::{queues, vhost_fds};
use super::{Live, can_hotplug};

/// Whether each interface's cable is in, as far as we have said so.
#[derive(Debug, Default)]
pub(super) struct Links(BTreeMap<String, bool>);

impl Live<'_> {
    /// What could not be done.
    pub(super) async fn reconcile_nics(&mut self, vmi: &VirtualMachineInstance, devices: &[String]) -> Vec<String> {
        let mut problems = Vec::new();
        let interfaces = &vmi.spec.domain.devices.interfaces;
        let is_present = |interface: &&Interface| interface.state.as_deref() != Some("absent");
        let is_wanted = |id: &str| interfaces.iter().filter(is_present).any(|one| nic_id(&one.name).as_str() == id);
        for id in devices.iter().filter(|id| id.starts_with("n-") && !is_wanted(id)) {
            match self.qmp.device_del(id).await {
                // Asked before: the guest has not let go yet.
                Err(error) if error.to_string().contains("already in the process of unplug") => {}
                Err(error) if !error.is_device_not_found() => problems.push(format!("{id}: {}", Chain(&error))),
                _ => {}
            }
        }
        for interface in interfaces.iter().filter(is_present) {
            let id = nic_id(&interface.name);
            let outcome = if devices.iter().any(|known| known == id.as_str()) {
                Ok(())
            } else {
                self.plug_nic(vmi, interface).await
            };
            let outcome = match outcome {
                Ok(()) => self.set_link(interface, &id).await,
                error => error,
            };
            if let Err(message) = outcome {
                problems.push(format!("interface {}: {message}", interface.name));
            }
        }
        problems
    }

    async fn set_link(&mut self, interface: &Interface, id: &Id) -> Result<(), String> {
        let is_up = interface.state.as_deref() != Some("down");
        // Cables are in until somebody says otherwise, be it before a restart of ours.
        if self.devices.0.get(&interface.name).copied().unwrap_or(true) == is_up
            && (is_up || self.devices.0.contains_key(&interface.name))
        {
            return Ok(());
        }
        self.qmp.set_link(id.as_str(), is_up).await.map_err(|error| Chain(&error).to_string())?;
        self.devices.0.insert(interface.name.clone(), is_up);
        Ok(())
    }

    async fn plug_nic(&mut self, vmi: &VirtualMachineInstance, interface: &Interface) -> Result<(), String> {
        if !can_hotplug(vmi) {
            return Err("the machine was made without hot-plugging".into());
        }
        let mac = machine::interface_mac(vmi, interface).map_err(|refusal| refusal.0)?.0;
        let queues = queues(vmi, interface.model.as_deref());
        let wanted = NicWanted { vmi, interface, mac, queues };
        let plugged = self.actor.host.nics.plug(wanted).await.map_err(|lacking| lacking.to_string())?;
        let id = nic_id(&interface.name);
        let cable = self.hand_over(&id, interface, plugged).await?;
        let mut nic = machine::nic(vmi, interface, &cable).map_err(|refusal| refusal.0)?;
        nic.boot_index = None;
        if !matches!(nic.model, NicModel::Virtio | NicModel::E1000e) {
            return Err("only virtio and e1000e interfaces are plugged while the guest runs".into());
        }
        let text = |error: &(dyn std::error::Error + 'static)| Chain(error).to_string();
        // A try that we died in the middle of may have left one.
        let netdev = args::netdev_id(&nic);
        let _ = self.qmp.netdev_del(&netdev).await;
        self.qmp.netdev_add(args::netdev(&nic).map_err(|error| text(&error))?).await.map_err(|error| text(&error))?;
        let mut outcome = Err("there is no free slot".to_owned());
        for bus in machine::hotplug_buses(&vmi.spec) {
            let device = args::device(&nic, Some(&bus)).map_err(|error| text(&error))?;
            outcome = self.qmp.device_add(device).await.map_err(|error| text(&error));
            if outcome.is_ok() {
                tracing::info!(vmi = %self.running.name, interface = %interface.name, "interface plugged");
                break;
            }
        }
        if outcome.is_err() {
            let _ = self.qmp.netdev_del(&netdev).await;
        }
        outcome
    }

    /// Passes the descriptors of an interface's other end to QEMU, under names.
    async fn hand_over(&mut self, id: &Id, interface: &Interface, plugged: Plugged) -> Result<Cable, String> {
        let (fds, mtu) = match plugged {
            Plugged::User { forwards } => return Ok(Cable { backend: NicBackend::User { forwards }, mtu: None }),
            Plugged::Tap { fds, mtu } => (fds, mtu),
        };
        let vhost = vhost_fds(interface.model.as_deref(), fds.len());
        let mut names = [Vec::new(), Vec::new()];
        for (kind, (prefix, fds)) in [("t", fds), ("v", vhost)].into_iter().enumerate() {
            for (index, fd) in fds.into_iter().enumerate() {
                // Of the id's characters enough to tell interfaces apart, since names have a limit.
                let tail: String = id.as_str().chars().rev().take(20).collect();
                let name = Id::new(&format!("{prefix}{index}-{tail}")).map_err(|error| error.to_string())?;
                self.qmp.getfd(name.as_str(), fd).await.map_err(|error| Chain(&error).to_string())?;
                names[kind].push(FdRef::Named(name));
            }
        }
        let [fds, vhost_fds] = names;
        Ok(Cable { backend: NicBackend::Tap { fds, vhost_fds }, mtu })
    }

    /// The guest has let go of an interface: its other end goes too.
    pub(super) async fn nic_gone(&mut self, id: &str) {
        let _ = self.qmp.netdev_del(&format!("{id}.net")).await;
        let vmi = self.actor.object.get();
        let listed = vmi.spec.domain.devices.interfaces.iter().map(|interface| interface.name.as_str());
        let shown = vmi.status.iter().flat_map(|status| &status.interfaces).filter_map(|one| one.name.as_deref());
        let name = listed.chain(shown).find(|name| nic_id(name).as_str() == id);
        let name = name.unwrap_or(id.trim_start_matches("n-")).to_owned();
        self.devices.0.remove(&name);
        if let Err(error) = self.actor.host.nics.unplug(&self.actor.uid, &name).await {
            tracing::warn!(interface = name, error, "an interface could not be taken away");
        }
        self.running.edit_guest(|facts| facts.interfaces.retain(|one| one.name.as_deref() != Some(&name)));
    }
}
