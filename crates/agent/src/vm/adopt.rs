//! What a machine that already runs says of itself.

use std::os::unix::fs::MetadataExt;

use croft_api::kubevirt::{VirtualMachineInstance, phase};
use croft_qemu::accel::Accel;
use croft_qemu::qmp::Qmp;

use super::host::{Host, Lease};
use super::machine;
use super::prepare::{VolumeFacts, accelerator};
use super::status::{View, Why};
use super::volume::claim_of;

/// As whom a process runs.
pub(super) fn user(host: &Host, pid: u32) -> Option<Lease> {
    let uid = std::fs::metadata(format!("/proc/{pid}")).ok()?.uid();
    host.users.adopt(uid)
}

pub(super) fn machine_type(vmi: &VirtualMachineInstance) -> Option<String> {
    let name = vmi.spec.domain.machine.as_ref().and_then(|machine| machine.type_.clone());
    name.filter(|name| !name.is_empty()).or_else(|| Some("q35".to_owned()))
}

/// Firmware with Secure Boot greets a new processor in system management mode, which never ends when processors are
/// emulated: the guest would hang.
pub(super) fn fixed_processors(vmi: &VirtualMachineInstance, accel: Accel) -> Option<Why> {
    let has_secure_boot = machine::efi(&vmi.spec).is_some_and(|efi| efi.secure_boot != Some(false));
    (has_secure_boot && accel != Accel::Kvm)
        .then(|| Why::new("NotSupported", "a guest with Secure Boot gets no processors while it is emulated"))
}

/// What the status says of a machine that was adopted: from the object where it cannot change, from QEMU where it can.
pub(super) async fn view(host: &Host, vmi: &VirtualMachineInstance, qmp: &Qmp, user: Option<&Lease>) -> View {
    let namespace = vmi.metadata.namespace.as_deref().unwrap_or_default();
    let mut view = View {
        phase: phase::RUNNING,
        user: user.map(|lease| lease.user.uid),
        machine_type: machine_type(vmi),
        ..View::default()
    };
    let known = vmi.status.clone().unwrap_or_default();
    for volume in &vmi.spec.volumes {
        let old = known.volume_status.iter().find(|status| status.name == volume.name);
        let old_size = old.and_then(|status| status.size).and_then(|size| u64::try_from(size).ok());
        let facts = match claim_of(volume).and_then(|claim| host.storage.attach(namespace, claim).ok()) {
            // The size is the guest's, who may not have been told of growth yet.
            Some(attached) => {
                VolumeFacts { size_bytes: old_size.unwrap_or(attached.size_bytes), claim: Some(attached.claim) }
            }
            None => VolumeFacts {
                size_bytes: old_size.unwrap_or_default(),
                claim: old.and_then(|status| status.persistent_volume_claim_info.clone()),
            },
        };
        if old.is_some() || claim_of(volume).is_some() {
            view.volumes.insert(volume.name.clone(), facts);
        }
    }
    let boot = known.memory.as_ref().and_then(|memory| memory.guest_at_boot.as_ref());
    let boot = boot.and_then(|written| machine::bytes("memory", written).ok());
    let boot = boot.or_else(|| machine::guest_memory(&vmi.spec).ok()).unwrap_or_default();
    let plugged: u64 = qmp.plugged_memory().await.unwrap_or_default().iter().map(|(_, bytes)| bytes).sum();
    view.memory_bytes = Some(boot + plugged);
    if let Ok(accel) = host.accelerator.wait().await {
        view.overhead_bytes = machine::overhead(&vmi.spec, accelerator(accel, boot)).ok();
        view.fixed_processors = fixed_processors(vmi, accel);
    }
    let topology = machine::topology(&vmi.spec);
    let per_socket = u64::from(topology.cores.unwrap_or(1)) * u64::from(topology.threads.unwrap_or(1));
    let cpus = qmp.cpus().await.map(|cpus| u64::try_from(cpus.len()).unwrap_or_default()).unwrap_or_default();
    view.sockets = u32::try_from(cpus / per_socket.max(1)).ok().filter(|sockets| *sockets > 0);
    view
}
