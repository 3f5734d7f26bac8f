//! Disks that are plugged in and out while the guest runs.

use croft_api::kubevirt::{
    AddVolumeOptions, Disk, VirtualMachineInstance, VirtualMachineInstanceSpec, VirtualMachineVolumeRequest, Volume,
};

use crate::virtual_machine::view::{is_hotpluggable, is_running};

/// Puts into the template what the subresources asked for.
pub(super) fn fulfil(template: &mut VirtualMachineInstanceSpec, requests: &[VirtualMachineVolumeRequest]) {
    for request in requests {
        if let Some(options) = &request.add_volume_options {
            add(template, options);
        } else if let Some(options) = &request.remove_volume_options {
            template.volumes.retain(|volume| volume.name != options.name);
            template.domain.devices.disks.retain(|disk| disk.name != options.name);
        }
    }
}

fn add(template: &mut VirtualMachineInstanceSpec, options: &AddVolumeOptions) {
    if template.volumes.iter().any(|volume| volume.name == options.name) {
        return;
    }
    let source = options.volume_source.clone().unwrap_or_default();
    let mut volume = Volume { name: options.name.clone(), ..Volume::default() };
    if let Some(mut claim) = source.persistent_volume_claim {
        claim.hotpluggable = Some(true);
        volume.persistent_volume_claim = Some(claim);
    } else if let Some(mut data_volume) = source.data_volume {
        data_volume.hotpluggable = Some(true);
        volume.data_volume = Some(data_volume);
    }
    template.volumes.push(volume);
    if let Some(disk) = &options.disk {
        template.domain.devices.disks.push(Disk { name: options.name.clone(), ..disk.clone() });
    }
}

/// Whether the template is as the request wants it.
pub(in crate::virtual_machine) fn is_fulfilled(
    request: &VirtualMachineVolumeRequest,
    template: &VirtualMachineInstanceSpec,
) -> bool {
    let is_there = |name: &str| template.volumes.iter().any(|volume| volume.name == name);
    match (&request.add_volume_options, &request.remove_volume_options) {
        (Some(options), _) => is_there(&options.name),
        (None, Some(options)) => !is_there(&options.name),
        // It asks for nothing.
        (None, None) => true,
    }
}

/// Makes the instance's volumes and disks follow the template. A volume that changed is taken out first, and put back
/// in once the node says that it is out.
pub(super) fn follow(instance: &mut VirtualMachineInstance, template: &VirtualMachineInstanceSpec) {
    if !is_running(instance) {
        return;
    }
    let wanted = |name: &str| template.volumes.iter().find(|volume| volume.name == name);
    let stays = |volume: &Volume| {
        !is_pluggable(volume) || wanted(&volume.name).is_some_and(|wanted| !is_pluggable(wanted) || wanted == volume)
    };
    let spec = &mut instance.spec;
    spec.volumes.retain(stays);
    let in_use = instance.status.iter().flat_map(|status| &status.volume_status);
    let in_use: Vec<&str> = in_use.map(|volume| volume.name.as_str()).collect();
    for volume in template.volumes.iter().filter(|volume| is_pluggable(volume)) {
        let is_there = spec.volumes.iter().any(|there| there.name == volume.name);
        if !is_there && !in_use.contains(&volume.name.as_str()) {
            spec.volumes.push(volume.clone());
        }
    }
    follow_disks(spec, template);
}

/// Memory dumps come and go by their own rules.
fn is_pluggable(volume: &Volume) -> bool {
    is_hotpluggable(volume) && volume.memory_dump.is_none()
}

fn follow_disks(spec: &mut VirtualMachineInstanceSpec, template: &VirtualMachineInstanceSpec) {
    let volumes = &spec.volumes;
    let has_volume = |name: &str| volumes.iter().any(|volume| volume.name == name);
    let wanted = |name: &str| template.domain.devices.disks.iter().find(|disk| disk.name == name);
    let is_filled = |name: &str| template.volumes.iter().any(|volume| volume.name == name);
    let stays = |disk: &Disk| {
        // A drive may be empty: that is how a disc is changed.
        let is_drive = |wanted: &Disk| !is_filled(&disk.name) || (wanted.cdrom.is_some() && disk.cdrom.is_some());
        has_volume(&disk.name) || wanted(&disk.name).is_some_and(is_drive)
    };
    let kept: Vec<Disk> = spec.domain.devices.disks.iter().filter(|disk| stays(disk)).cloned().collect();
    let is_new = |disk: &&Disk| {
        let volume = volumes.iter().find(|volume| volume.name == disk.name);
        volume.is_some_and(is_pluggable) && !kept.iter().any(|there| there.name == disk.name)
    };
    let new: Vec<Disk> = template.domain.devices.disks.iter().filter(is_new).cloned().collect();
    spec.domain.devices.disks = kept.into_iter().chain(new).collect();
}
