//! A preference into the spec of an instance: it fills in what is left open, and never conflicts.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::{DevicePreferences, FeaturePreferences, FirmwarePreferences, VirtualMachinePreferenceSpec};
use crate::kubevirt::{Disk, FeatureHyperv, Interface, Network, PanicDevice, VirtualMachineInstanceSpec};

pub(super) fn prefer(
    preference: &VirtualMachinePreferenceSpec,
    spec: &mut VirtualMachineInstanceSpec,
    metadata: &mut ObjectMeta,
) {
    processor_features(preference, spec);
    if let Some(devices) = &preference.devices {
        prefer_devices(devices, spec);
    }
    if let Some(features) = &preference.features {
        prefer_features(features, spec);
    }
    if let Some(firmware) = &preference.firmware {
        prefer_firmware(firmware, spec);
    }
    machine_type(preference, spec);
    clock(preference, spec);
    fill_text(&mut spec.subdomain, preference.preferred_subdomain.as_deref());
    fill(&mut spec.termination_grace_period_seconds, preference.preferred_termination_grace_period_seconds.as_ref());
    fill_text(&mut spec.architecture, preference.preferred_architecture.as_deref());
    for (key, value) in &preference.annotations {
        metadata.annotations.get_or_insert_default().entry(key.clone()).or_insert_with(|| value.clone());
    }
    fill(&mut spec.domain.launch_security, preference.preferred_launch_security.as_ref());
}

fn fill<T: Clone>(field: &mut Option<T>, preferred: Option<&T>) {
    if field.is_none() {
        *field = preferred.cloned();
    }
}

/// An empty text is an open one.
fn fill_text(field: &mut Option<String>, preferred: Option<&str>) {
    let preferred = preferred.filter(|text| !text.is_empty());
    if let (true, Some(text)) = (field.as_deref().unwrap_or_default().is_empty(), preferred) {
        *field = Some(text.to_owned());
    }
}

fn processor_features(preference: &VirtualMachinePreferenceSpec, spec: &mut VirtualMachineInstanceSpec) {
    let Some(preferred) = preference.cpu.as_ref().map(|cpu| &cpu.preferred_cpu_features) else { return };
    if preferred.is_empty() {
        return;
    }
    let own = &mut spec.domain.cpu.get_or_insert_default().features;
    for feature in preferred {
        if !own.iter().any(|found| found.name == feature.name) {
            own.push(feature.clone());
        }
    }
}

/// Devices that come by themselves. Also applied ahead of the rest, before the default network is added.
pub(crate) fn prefer_autoattach(preferred: &DevicePreferences, spec: &mut VirtualMachineInstanceSpec) {
    let devices = &mut spec.domain.devices;
    fill(&mut devices.autoattach_graphics_device, preferred.preferred_autoattach_graphics_device.as_ref());
    fill(&mut devices.autoattach_mem_balloon, preferred.preferred_autoattach_mem_balloon.as_ref());
    fill(&mut devices.autoattach_pod_interface, preferred.preferred_autoattach_pod_interface.as_ref());
    fill(&mut devices.autoattach_serial_console, preferred.preferred_autoattach_serial_console.as_ref());
    fill(&mut devices.autoattach_input_device, preferred.preferred_autoattach_input_device.as_ref());
}

fn prefer_devices(preferred: &DevicePreferences, spec: &mut VirtualMachineInstanceSpec) {
    prefer_autoattach(preferred, spec);
    let devices = &mut spec.domain.devices;
    fill(&mut devices.use_virtio_transitional, preferred.preferred_use_virtio_transitional.as_ref());
    fill(&mut devices.block_multi_queue, preferred.preferred_block_multi_queue.as_ref());
    fill(&mut devices.network_interface_multiqueue, preferred.preferred_network_interface_multi_queue.as_ref());
    // Upstream cannot tell whether the machine sets this, and so replaces it.
    devices.disable_hotplug = preferred.preferred_disable_hotplug.or(devices.disable_hotplug);
    if let Some(sound) = &mut devices.sound {
        fill_text(&mut sound.model, preferred.preferred_sound_model.as_deref());
    }
    fill(&mut devices.rng, preferred.preferred_rng.as_ref());
    fill(&mut devices.tpm, preferred.preferred_tpm.as_ref());
    if let Some(video) = &preferred.preferred_video_type {
        fill_text(&mut devices.video.get_or_insert_default().type_, Some(video));
    }
    for disk in &mut devices.disks {
        prefer_disk(preferred, disk);
    }
    for interface in &mut devices.interfaces {
        prefer_interface(preferred, interface, &spec.networks);
    }
    for input in &mut devices.inputs {
        fill_text(&mut input.bus, preferred.preferred_input_bus.as_deref());
        if input.type_.is_empty() {
            input.type_ = preferred.preferred_input_type.clone().unwrap_or_default();
        }
    }
    if preferred.preferred_panic_device_model.is_some() {
        if devices.panic_devices.is_empty() {
            devices.panic_devices.push(PanicDevice::default());
        }
        for device in &mut devices.panic_devices {
            fill(&mut device.model, preferred.preferred_panic_device_model.as_ref());
        }
    }
}

fn prefer_disk(preferred: &DevicePreferences, disk: &mut Disk) {
    if let Some(cdrom) = &mut disk.cdrom {
        fill_text(&mut cdrom.bus, preferred.preferred_cdrom_bus.as_deref());
        return;
    }
    if let Some(lun) = &mut disk.lun {
        fill_text(&mut lun.bus, preferred.preferred_lun_bus.as_deref());
        return;
    }
    let target = disk.disk.get_or_insert_default();
    fill_text(&mut target.bus, preferred.preferred_disk_bus.as_deref());
    let is_virtio = target.bus.as_deref() == Some("virtio");
    fill(&mut disk.block_size, preferred.preferred_disk_block_size.as_ref());
    fill_text(&mut disk.cache, preferred.preferred_disk_cache.as_deref());
    fill_text(&mut disk.io, preferred.preferred_disk_io.as_deref());
    if is_virtio {
        fill(&mut disk.dedicated_io_thread, preferred.preferred_disk_dedicated_io_thread.as_ref());
    }
}

fn prefer_interface(preferred: &DevicePreferences, interface: &mut Interface, networks: &[Network]) {
    fill_text(&mut interface.model, preferred.preferred_interface_model.as_deref());
    let is_on_pod_network =
        networks.iter().find(|network| network.name == interface.name).is_some_and(|network| network.pod.is_some());
    if is_on_pod_network && interface.bindings().next().is_none() {
        interface.masquerade = preferred.preferred_interface_masquerade;
    }
}

fn prefer_features(preferred: &FeaturePreferences, spec: &mut VirtualMachineInstanceSpec) {
    let features = spec.domain.features.get_or_insert_default();
    // Upstream cannot tell whether the machine sets this, and so replaces it.
    if let Some(acpi) = &preferred.preferred_acpi {
        features.acpi = acpi.clone();
    }
    fill(&mut features.apic, preferred.preferred_apic.as_ref());
    if let Some(hyperv) = &preferred.preferred_hyperv {
        prefer_hyperv(hyperv, features.hyperv.get_or_insert_default());
    }
    fill(&mut features.kvm, preferred.preferred_kvm.as_ref());
    fill(&mut features.pvspinlock, preferred.preferred_pvspinlock.as_ref());
    fill(&mut features.smm, preferred.preferred_smm.as_ref());
}

fn prefer_hyperv(preferred: &FeatureHyperv, own: &mut FeatureHyperv) {
    fill(&mut own.evmcs, preferred.evmcs.as_ref());
    fill(&mut own.frequencies, preferred.frequencies.as_ref());
    fill(&mut own.ipi, preferred.ipi.as_ref());
    fill(&mut own.reenlightenment, preferred.reenlightenment.as_ref());
    fill(&mut own.relaxed, preferred.relaxed.as_ref());
    fill(&mut own.reset, preferred.reset.as_ref());
    fill(&mut own.runtime, preferred.runtime.as_ref());
    fill(&mut own.spinlocks, preferred.spinlocks.as_ref());
    fill(&mut own.synic, preferred.synic.as_ref());
    fill(&mut own.synictimer, preferred.synictimer.as_ref());
    fill(&mut own.tlbflush, preferred.tlbflush.as_ref());
    fill(&mut own.vapic, preferred.vapic.as_ref());
    fill(&mut own.vpindex, preferred.vpindex.as_ref());
    fill(&mut own.vendorid, preferred.vendorid.as_ref());
}

fn prefer_firmware(preferred: &FirmwarePreferences, spec: &mut VirtualMachineInstanceSpec) {
    let loader = spec.domain.firmware.get_or_insert_default().bootloader.get_or_insert_default();
    if preferred.preferred_use_bios == Some(true) && loader.efi.is_none() {
        loader.bios.get_or_insert_default();
    }
    if let Some(bios) = &mut loader.bios {
        fill(&mut bios.use_serial, preferred.preferred_use_bios_serial.as_ref());
        return;
    }
    if loader.efi.is_none() && preferred.preferred_efi.is_some() {
        loader.efi.clone_from(&preferred.preferred_efi);
        return;
    }
    if preferred.preferred_use_efi == Some(true) {
        loader.efi.get_or_insert_default();
    }
    if let Some(efi) = &mut loader.efi {
        fill(&mut efi.secure_boot, preferred.preferred_use_secure_boot.as_ref());
    }
}

fn machine_type(preference: &VirtualMachinePreferenceSpec, spec: &mut VirtualMachineInstanceSpec) {
    let preferred = preference.machine.as_ref().and_then(|machine| machine.preferred_machine_type.as_deref());
    if let Some(preferred) = preferred.filter(|name| !name.is_empty()) {
        fill_text(&mut spec.domain.machine.get_or_insert_default().type_, Some(preferred));
    }
}

fn clock(preference: &VirtualMachinePreferenceSpec, spec: &mut VirtualMachineInstanceSpec) {
    let Some(preferred) = &preference.clock else { return };
    let clock = spec.domain.clock.get_or_insert_default();
    if let (Some(offset), None, None) = (&preferred.preferred_clock_offset, &clock.utc, &clock.timezone) {
        clock.utc.clone_from(&offset.utc);
        clock.timezone.clone_from(&offset.timezone);
    }
    fill(&mut clock.timer, preferred.preferred_timer.as_ref());
}
