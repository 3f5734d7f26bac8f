//! Devices other than disks and network cards.

use croft_meta::FieldPath;

use super::text;
use crate::admission::denial::{Denial, below};
use crate::kubevirt::VirtualMachineInstanceSpec;

const VIDEO: &[&str] = &["", "vga", "cirrus", "virtio", "bochs"];

pub(super) fn check(denial: &mut Denial, at: &FieldPath, spec: &VirtualMachineInstanceSpec) {
    let devices = &spec.domain.devices;
    let devices_at = below(at, "domain.devices");
    for (index, input) in devices.inputs.iter().enumerate() {
        let own = devices_at.child("inputs").index(index);
        if !matches!(text(input.bus.as_ref()), "" | "usb" | "virtio") {
            denial.invalid(&own.child("bus"), "Input device can have only virtio or usb bus.");
        }
        if !matches!(input.type_.as_str(), "" | "tablet") {
            denial.invalid(&own.child("type"), "Input device can have only tablet type.");
        }
    }
    if let Some(sound) = &devices.sound {
        let field = below(at, "Sound");
        if !matches!(text(sound.model.as_ref()), "" | "ich9" | "ac97") {
            denial.invalid(&field, "Sound device type is not supported. Options: 'ich9' or 'ac97'");
        }
        if sound.name.is_empty() {
            denial.invalid(&field, "Sound device requires a name field.");
        }
    }
    if let Some(video) = &devices.video {
        if devices.autoattach_graphics_device == Some(false) {
            let message = "Video configuration is not allowed when autoattachGraphicsDevice is set to false";
            denial.invalid(&below(at, "video"), message);
        }
        let kind = text(video.type_.as_ref());
        if !VIDEO.contains(&kind) {
            let message = format!("video model '{kind}' is not supported on amd64 architecture");
            denial.not_supported(&devices_at.child("video").child("type"), message);
        }
    }
    if let Some(watchdog) = &devices.watchdog {
        let field = devices_at.child("watchdog");
        if watchdog.diag288.is_some() {
            denial.not_supported(&field, "amd64 only supports I6300ESB watchdog device");
        }
        let action = watchdog.i6300esb.as_ref().map(|device| text(device.action.as_ref())).unwrap_or_default();
        if !matches!(action, "" | "reset" | "poweroff" | "shutdown") {
            let message =
                format!("watchdog action '{action}' is not supported, must be one of: [poweroff reset shutdown]");
            denial.not_supported(&below(&field, "i6300esb.action"), message);
        }
    }
    for (index, device) in devices.panic_devices.iter().enumerate() {
        let model = text(device.model.as_ref());
        if !matches!(model, "" | "isa" | "pvpanic" | "hyperv") {
            let field = devices_at.child("panicDevices").index(index).child("model");
            denial.invalid(&field, format!("invalid PanicDeviceModel({model})"));
        }
    }
    io_threads(denial, at, spec);
    host_devices(denial, &devices_at, spec);
}

fn io_threads(denial: &mut Denial, at: &FieldPath, spec: &VirtualMachineInstanceSpec) {
    let Some(policy) = spec.domain.io_threads_policy.as_deref() else { return };
    if !matches!(policy, "" | "shared" | "auto" | "supplementalPool") {
        denial.invalid(&below(at, "domain.ioThreadsPolicy"), format!("Invalid IOThreadsPolicy ({policy})"));
    }
    let count = spec.domain.io_threads.as_ref().and_then(|threads| threads.supplemental_pool_thread_count);
    if policy == "supplementalPool" && count.unwrap_or_default() < 1 {
        let message = "the number of iothreads needs to be set and positive for the dedicated policy";
        denial.invalid(&below(at, "domain.ioThreads.count"), message);
    }
}

/// Passed through from the node: named, and of a kind that the scheduler can look for.
fn host_devices(denial: &mut Denial, at: &FieldPath, spec: &VirtualMachineInstanceSpec) {
    let devices = &spec.domain.devices;
    let gpus = devices.gpus.iter().enumerate().map(|(index, gpu)| ("gpus", index, &gpu.device_name, &gpu.claim_name));
    let hosts = devices
        .host_devices
        .iter()
        .enumerate()
        .map(|(index, device)| ("hostDevices", index, &device.device_name, &device.claim_name));
    for (list, index, name, claim) in gpus.chain(hosts) {
        let own = at.child(list).index(index);
        if claim.is_some() {
            denial.not_supported(&own.child("claimName"), "resource claims are not supported: use deviceName");
        } else if text(name.as_ref()).is_empty() {
            let field = own.child("deviceName");
            denial.required(&field, format!("{field} must be set"));
        }
    }
}
