//! Disks that come and go while the guest runs, media in drives, and volumes that grow.

use croft_api::kubevirt::{Disk as DiskSpec, VirtualMachineInstance, Volume, volume_phase};
use croft_meta::Chain;
use croft_qemu::args::disk::{self, Place, SCSI_BUS};
use croft_qemu::qmp::QmpError;
use croft_qemu::spec::{Bus, Disk, SpecError};

use super::super::host::Lacking;
use super::super::machine::{self, Refusal, disk_id};
use super::super::prepare::{VolumeFacts, is_only_read, medium};
use super::super::status::VolumeState;
use super::super::volume;
use super::{Live, can_hotplug};

/// Sets of descriptors that were there at the start have lower numbers.
const FIRST_HOT_SET: u32 = 10_000;
const SERIAL_MAX: usize = 36;

/// Why a disk cannot be plugged now.
#[derive(Debug, thiserror::Error)]
enum PlugError {
    #[error(transparent)]
    Lacking(#[from] Lacking),
    #[error(transparent)]
    Refused(#[from] Refusal),
    #[error(transparent)]
    Spec(#[from] SpecError),
    #[error(transparent)]
    Qemu(#[from] QmpError),
}

impl Live<'_> {
    /// What could not be done.
    pub(super) async fn reconcile_disks(&mut self, vmi: &VirtualMachineInstance, devices: &[String]) -> Vec<String> {
        let mut problems = Vec::new();
        self.unplug_disks(vmi, devices, &mut problems).await;
        for wanted in &vmi.spec.domain.devices.disks {
            let volume = vmi.spec.volumes.iter().find(|volume| volume.name == wanted.name);
            let is_there = devices.iter().any(|id| id == disk_id(&wanted.name).as_str());
            let outcome = match (volume, wanted.cdrom.is_some(), is_there) {
                (volume, true, true) => self.change_medium(vmi, wanted, volume).await,
                (Some(volume), false, true) => {
                    self.mark_ready(volume);
                    Ok(())
                }
                (Some(volume), _, false) => self.plug_disk(vmi, wanted, volume).await,
                (None, _, _) => Ok(()),
            };
            if let Err(error) = outcome {
                let message = format!("disk {}: {}", wanted.name, Chain(&error));
                if let Some(volume) = volume {
                    self.mark(volume, volume_phase::PENDING, "FailedAttach", message.clone());
                }
                problems.push(message);
            }
        }
        problems
    }

    /// Drives that the guest is to find open. It closes them itself, as a person would push the tray in.
    pub(super) async fn open_trays(&self, vmi: &VirtualMachineInstance) {
        let is_open = |disk: &&DiskSpec| disk.cdrom.as_ref().is_some_and(|cdrom| cdrom.tray.as_deref() == Some("open"));
        for disk in vmi.spec.domain.devices.disks.iter().filter(is_open) {
            if let Err(error) = self.qmp.open_tray(disk_id(&disk.name).as_str(), true).await {
                let message = format!("disk {}: its tray could not be opened: {}", disk.name, Chain(&error));
                self.actor.events.warning(vmi, "SyncFailed", &message);
            }
        }
    }

    /// Asks the guest to let go of what its object does not have any more.
    async fn unplug_disks(&mut self, vmi: &VirtualMachineInstance, devices: &[String], problems: &mut Vec<String>) {
        let is_wanted = |id: &str| {
            vmi.spec.domain.devices.disks.iter().any(|disk| {
                let has_volume = vmi.spec.volumes.iter().any(|volume| volume.name == disk.name);
                disk_id(&disk.name).as_str() == id && (has_volume || disk.cdrom.is_some())
            })
        };
        for id in devices.iter().filter(|id| id.starts_with("d-") && !is_wanted(id)) {
            let name = self.volume_name(id);
            if self.view.detaching.contains_key(&name) {
                continue;
            }
            match self.qmp.device_del(id).await {
                Ok(()) => {
                    self.view.volumes.remove(&name);
                    self.view.volume_states.remove(&name);
                    let message = format!("Volume {name} is being detached from the guest");
                    let state = VolumeState { phase: volume_phase::DETACHING, reason: "VolumeDetaching", message };
                    self.view.detaching.insert(name, state);
                }
                Err(error) if error.is_device_not_found() => {}
                Err(error) => problems.push(format!("disk {name}: {}", Chain(&error))),
            }
        }
        // Wanted again before it was gone.
        self.view.detaching.retain(|name, _| devices.iter().any(|id| id == disk_id(name).as_str()));
    }

    /// Which volume a device shows.
    fn volume_name(&self, id: &str) -> String {
        let vmi = self.actor.object.get();
        let known = vmi.status.iter().flat_map(|status| &status.volume_status).map(|volume| volume.name.as_str());
        let known = known.chain(self.view.volumes.keys().map(String::as_str));
        let found = known.into_iter().find(|name| disk_id(name).as_str() == id);
        found.unwrap_or(id.trim_start_matches("d-")).to_owned()
    }

    /// A device has gone: what stood behind it goes too.
    pub(super) async fn device_gone(&mut self, id: &str) {
        if id.starts_with("n-") {
            return self.nic_gone(id).await;
        }
        if !id.starts_with("d-") {
            return;
        }
        self.drop_node(id).await;
        let name = self.volume_name(id);
        self.view.detaching.remove(&name);
        self.view.volumes.remove(&name);
    }

    async fn drop_node(&mut self, id: &str) {
        match self.qmp.blockdev_del(id).await {
            Err(error) if !error.is_device_not_found() => {
                tracing::warn!(id, error = %Chain(&error), "a disk's file could not be closed");
            }
            _ => {}
        }
        // Descriptors that QEMU was started with are kept until they are taken back; what is in use stays open.
        for set in self.qmp.fd_sets().await.unwrap_or_default() {
            let _ = self.qmp.remove_fd(set).await;
        }
    }

    fn mark(&mut self, volume: &Volume, phase: &'static str, reason: &'static str, message: String) {
        if volume::is_hotpluggable(volume) {
            self.view.volume_states.insert(volume.name.clone(), VolumeState { phase, reason, message });
        }
    }

    fn mark_ready(&mut self, volume: &Volume) {
        let message = format!("Successfully attach hotplugged volume {} to VM", volume.name);
        self.mark(volume, volume_phase::READY, "VolumeReady", message);
    }

    async fn plug_disk(
        &mut self,
        vmi: &VirtualMachineInstance,
        wanted: &DiskSpec,
        volume: &Volume,
    ) -> Result<(), PlugError> {
        if !can_hotplug(vmi) {
            return Err(Refusal("the machine was made without hot-plugging".into()).into());
        }
        let places = places(vmi, wanted)?;
        let mut device = self.add_node(vmi, wanted, volume).await?;
        if device.serial.is_none() && device.bus == Bus::Scsi {
            // By which the guest finds it under /dev/disk/by-id.
            device.serial = Some(volume.name.chars().take(SERIAL_MAX).collect());
        }
        let mut outcome = Err(Refusal("there is no free slot".into()).into());
        for place in places {
            outcome = match disk::device(&device, &place) {
                Ok(json) => self.qmp.device_add(json).await.map_err(PlugError::from),
                Err(error) => Err(error.into()),
            };
            if outcome.is_ok() {
                break;
            }
        }
        if outcome.is_err() {
            self.drop_node(device.id.as_str()).await;
            return outcome;
        }
        self.mark_ready(volume);
        tracing::info!(vmi = %self.running.name, volume = %volume.name, "disk plugged");
        Ok(())
    }

    /// Opens a volume and gives it to QEMU, as a node that no device uses yet.
    async fn add_node(
        &mut self,
        vmi: &VirtualMachineInstance,
        wanted: &DiskSpec,
        volume: &Volume,
    ) -> Result<Disk, PlugError> {
        let opened = volume::open(&self.actor.host, vmi, volume, is_only_read(wanted)).await?;
        let facts = VolumeFacts { size_bytes: opened.size_bytes, claim: opened.claim.clone() };
        let used = self.qmp.fd_sets().await?;
        let set = used.into_iter().max().map_or(FIRST_HOT_SET, |highest| highest.max(FIRST_HOT_SET) + 1);
        let (medium, fd) = medium(&self.actor.host, opened, |_| set);
        let mut device = machine::disk(&vmi.spec, wanted, Some(&medium))?;
        if is_bus_unsaid(wanted) {
            device.bus = Bus::Scsi;
        }
        device.boot_index = None;
        device.queues = None;
        let Some(node) = disk::node(&device)? else { return Ok(device) };
        // A try that we died in the middle of may have left one.
        let _ = self.qmp.blockdev_del(device.id.as_str()).await;
        self.qmp.add_fd(set, fd).await?;
        let added = self.qmp.blockdev_add(node).await;
        // The node holds what it needs.
        let _ = self.qmp.remove_fd(set).await;
        added?;
        self.view.volumes.insert(volume.name.clone(), facts);
        Ok(device)
    }

    /// Puts the right medium into a drive, or none.
    async fn change_medium(
        &mut self,
        vmi: &VirtualMachineInstance,
        wanted: &DiskSpec,
        volume: Option<&Volume>,
    ) -> Result<(), PlugError> {
        let id = disk_id(&wanted.name);
        let id = id.as_str();
        let path = format!("/machine/peripheral/{id}");
        let blocks = self.qmp.block().await?;
        let is_here = |qdev: &str| qdev == path || qdev == id || qdev.starts_with(&format!("{path}/"));
        let drive = blocks.iter().find(|block| block.qdev.as_deref().is_some_and(is_here));
        let inserted = drive.and_then(|drive| drive.inserted.as_ref());
        let known = self.view.volumes.get(&wanted.name).and_then(|facts| facts.claim.as_ref());
        let known = known.and_then(|claim| claim.claim_name.clone());
        let is_other = volume.and_then(volume::claim_of).is_some_and(|claim| known.is_some_and(|known| known != claim));
        match (volume, inserted.is_some()) {
            (Some(volume), true) if !is_other => {
                self.mark_ready(volume);
                return Ok(());
            }
            (None, false) => return Ok(()),
            (_, true) => {
                self.qmp.open_tray(id, true).await?;
                self.qmp.remove_medium(id).await?;
                self.drop_node(id).await;
                self.view.volumes.remove(&wanted.name);
                self.view.volume_states.remove(&wanted.name);
            }
            (Some(_), false) => {}
        }
        let Some(volume) = volume else { return Ok(()) };
        self.add_node(vmi, wanted, volume).await?;
        self.qmp.insert_medium(id, id).await?;
        self.mark_ready(volume);
        Ok(())
    }

    /// Tells the guest of volumes that have grown.
    pub(super) async fn grow(&mut self) {
        let vmi = self.actor.object.get();
        let namespace = vmi.metadata.namespace.as_deref().unwrap_or_default();
        for volume in &vmi.spec.volumes {
            let Some(claim) = volume::claim_of(volume) else { continue };
            let Ok(attached) = self.actor.host.storage.attach(namespace, claim) else { continue };
            let Some(facts) = self.view.volumes.get_mut(&volume.name) else { continue };
            facts.claim = Some(attached.claim);
            if attached.size_bytes <= facts.size_bytes {
                continue;
            }
            match self.qmp.block_resize(disk_id(&volume.name).as_str(), attached.size_bytes).await {
                Ok(()) => facts.size_bytes = attached.size_bytes,
                Err(error) => {
                    tracing::warn!(volume = %volume.name, error = %Chain(&error), "the guest was not told of growth");
                }
            }
        }
    }
}

fn is_bus_unsaid(wanted: &DiskSpec) -> bool {
    wanted.cdrom.is_none() && wanted.disk.as_ref().is_none_or(|disk| disk.bus.as_deref().is_none_or(str::is_empty))
}

/// Where a disk could go, in the order of trying.
fn places(vmi: &VirtualMachineInstance, wanted: &DiskSpec) -> Result<Vec<Place>, Refusal> {
    let bus = if is_bus_unsaid(wanted) { Bus::Scsi } else { machine::bus_of(wanted)? };
    Ok(match bus {
        Bus::Scsi => vec![Place::on(SCSI_BUS)],
        Bus::Virtio => machine::hotplug_buses(&vmi.spec).iter().map(|bus| Place::on(bus)).collect(),
        Bus::Usb => vec![Place::on("usb.0")],
        Bus::Sata => return Err(Refusal("SATA disks are plugged while the machine is off".into())),
    })
}
