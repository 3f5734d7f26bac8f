//! Whether a machine was changed in a way that its running guest cannot follow.

use croft_api::kubevirt::{Disk, VirtualMachineInstance, VirtualMachineInstanceSpec, Volume};

use super::nics;
use crate::virtual_machine::view::is_hotpluggable;

/// Compares what the guest was started from with what is wanted now, both with their instancetype applied. What can
/// change while it runs is made equal first; whatever differs then needs a restart.
pub(super) fn is_needed(
    started: &VirtualMachineInstanceSpec,
    wanted: &VirtualMachineInstanceSpec,
    instance: &VirtualMachineInstance,
    moves_volumes: bool,
) -> bool {
    let mut started = started.clone();
    if are_volumes_pluggable(&started, wanted, moves_volumes) {
        started.volumes.clone_from(&wanted.volumes);
    }
    if are_disks_pluggable(&started, wanted) {
        started.domain.devices.disks.clone_from(&wanted.domain.devices.disks);
    }
    if let (Some(started), Some(wanted)) = (&mut started.domain.cpu, &wanted.domain.cpu) {
        started.sockets = wanted.sockets;
    }
    if let Some(guest) = wanted.domain.memory.as_ref().and_then(|memory| memory.guest.as_ref()) {
        started.domain.memory.get_or_insert_default().guest = Some(guest.clone());
    }
    started.node_selector.clone_from(&wanted.node_selector);
    started.affinity.clone_from(&wanted.affinity);
    started.tolerations.clone_from(&wanted.tolerations);
    if !nics::needs_restart(&started, wanted, instance) {
        started.domain.devices.interfaces.clone_from(&wanted.domain.devices.interfaces);
        started.networks.clone_from(&wanted.networks);
    }
    let uuid = |spec: &VirtualMachineInstanceSpec| spec.domain.firmware.as_ref().and_then(|one| one.uuid.clone());
    if uuid(wanted).is_some() && uuid(wanted) == uuid(&instance.spec) {
        started.domain.firmware.get_or_insert_default().uuid = uuid(wanted);
    }
    started != *wanted
}

/// Only volumes that may come and go have come, gone or changed.
fn are_volumes_pluggable(
    started: &VirtualMachineInstanceSpec,
    wanted: &VirtualMachineInstanceSpec,
    moves_volumes: bool,
) -> bool {
    let find = |volumes: &[Volume], name: &str| volumes.iter().find(|volume| volume.name == name).cloned();
    let is_fine = |volume: &Volume| {
        let old = find(&started.volumes, &volume.name);
        let can_move = volume.persistent_volume_claim.is_some() || volume.data_volume.is_some();
        let has_moved = old.is_some() && moves_volumes && can_move;
        is_hotpluggable(volume) || has_moved || old.as_ref() == Some(volume)
    };
    let is_gone = |old: &&Volume| find(&wanted.volumes, &old.name).is_none();
    wanted.volumes.iter().all(is_fine) && started.volumes.iter().filter(is_gone).all(is_hotpluggable)
}

fn are_disks_pluggable(started: &VirtualMachineInstanceSpec, wanted: &VirtualMachineInstanceSpec) -> bool {
    let is_pluggable = |spec: &VirtualMachineInstanceSpec, name: &str| {
        spec.volumes.iter().find(|volume| volume.name == name).is_some_and(is_hotpluggable)
    };
    let (old, new) = (&started.domain.devices.disks, &wanted.domain.devices.disks);
    let find = |disks: &[Disk], name: &str| disks.iter().find(|disk| disk.name == name).cloned();
    let is_fine = |disk: &Disk| is_pluggable(wanted, &disk.name) || find(old, &disk.name).as_ref() == Some(disk);
    let is_gone = |disk: &&Disk| find(new, &disk.name).is_none();
    // A drive stays in the guest even when its disc may be changed.
    let may_go = |disk: &Disk| disk.cdrom.is_none() && is_pluggable_or_unknown(started, &disk.name);
    new.iter().all(is_fine) && old.iter().filter(is_gone).all(may_go)
}

fn is_pluggable_or_unknown(spec: &VirtualMachineInstanceSpec, name: &str) -> bool {
    spec.volumes.iter().find(|volume| volume.name == name).is_none_or(is_hotpluggable)
}
