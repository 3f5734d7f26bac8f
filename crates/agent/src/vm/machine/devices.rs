//! Devices other than disks and interfaces.

use croft_api::kubevirt::{Devices, VirtualMachineInstanceSpec};
use croft_qemu::spec::{
    Input, Machine, PanicDevice, Serial, Sound, Tpm, TpmModel, Video, Vnc, Watchdog, WatchdogAction,
};

use super::{Parts, Refusal, efi, has_graphics, refuse};

pub(super) fn apply(machine: &mut Machine, spec: &VirtualMachineInstanceSpec, parts: &Parts) -> Result<(), Refusal> {
    let devices = &spec.domain.devices;
    refuse_missing(devices)?;
    machine.serial = parts.serial.clone().map(|socket| Serial { socket, log: None });
    machine.guest_agent.clone_from(&parts.agent);
    machine.usb_redirections.clone_from(&parts.usb_redirections);
    machine.has_rng = devices.rng.is_some();
    machine.has_balloon = devices.autoattach_mem_balloon != Some(false);
    machine.tpm = parts.tpm.clone().map(|socket| Tpm { socket, model: TpmModel::Crb });
    machine.vsock = parts.vsock;
    if has_graphics(spec) {
        machine.vnc = Some(Vnc::ByDescriptor);
        machine.video = video(spec)?;
    } else if devices.video.is_some() {
        return refuse("domain.devices.video: there is no screen without a graphics device");
    }
    machine.inputs = inputs(devices)?;
    machine.sound = match devices.sound.as_ref().map(|sound| sound.model.as_deref()) {
        None => None,
        Some(None | Some("" | "ich9")) => Some(Sound::Ich9),
        Some(Some("ac97")) => Some(Sound::Ac97),
        Some(Some(other)) => return refuse(format!("domain.devices.sound: there is no {other}")),
    };
    machine.watchdog = watchdog(devices)?;
    machine.panic_device = panic_device(devices)?;
    Ok(())
}

/// What this node has no means for.
fn refuse_missing(devices: &Devices) -> Result<(), Refusal> {
    if let Some(gpu) = devices.gpus.first() {
        return refuse(format!("domain.devices.gpus: {} is not on this node", gpu.name));
    }
    if let Some(device) = devices.host_devices.first() {
        return refuse(format!("domain.devices.hostDevices: {} is not on this node", device.name));
    }
    if let Some(filesystem) = devices.filesystems.first() {
        return refuse(format!("domain.devices.filesystems: {}: shared directories are not offered", filesystem.name));
    }
    if devices.downward_metrics.is_some() {
        return refuse("domain.devices.downwardMetrics: the host's figures are not shown to guests");
    }
    if devices.use_virtio_transitional == Some(true) {
        return refuse("domain.devices.useVirtioTransitional: virtio devices are of the present standard only");
    }
    Ok(())
}

fn video(spec: &VirtualMachineInstanceSpec) -> Result<Video, Refusal> {
    let wanted = spec.domain.devices.video.as_ref().and_then(|video| video.type_.as_deref());
    Ok(match wanted.unwrap_or_default() {
        // UEFI draws into a plain frame buffer and wants no VGA.
        "" if efi(spec).is_some() => Video::Bochs,
        "" | "vga" => Video::Vga,
        "virtio" => Video::Virtio,
        "bochs" => Video::Bochs,
        "cirrus" => Video::Cirrus,
        other => return refuse(format!("domain.devices.video: there is no {other}")),
    })
}

fn inputs(devices: &Devices) -> Result<Vec<Input>, Refusal> {
    let mut inputs = Vec::new();
    for input in &devices.inputs {
        if input.type_ != "tablet" {
            return refuse(format!("domain.devices.inputs: {}: there is no {}", input.name, input.type_));
        }
        inputs.push(match input.bus.as_deref() {
            None | Some("" | "usb") => Input::UsbTablet,
            Some("virtio") => Input::VirtioTablet,
            Some(other) => return refuse(format!("domain.devices.inputs: {}: no bus {other}", input.name)),
        });
    }
    if inputs.is_empty() && devices.autoattach_input_device == Some(true) {
        inputs.push(Input::UsbTablet);
    }
    Ok(inputs)
}

fn watchdog(devices: &Devices) -> Result<Option<Watchdog>, Refusal> {
    let Some(watchdog) = &devices.watchdog else { return Ok(None) };
    if watchdog.diag288.is_some() {
        return refuse("domain.devices.watchdog: diag288 is of another architecture");
    }
    let action = watchdog.i6300esb.as_ref().and_then(|device| device.action.as_deref());
    let action = match action.unwrap_or_default() {
        "" | "reset" => WatchdogAction::Reset,
        "poweroff" => WatchdogAction::PowerOff,
        "shutdown" => WatchdogAction::Shutdown,
        other => return refuse(format!("domain.devices.watchdog: there is no action {other}")),
    };
    Ok(Some(Watchdog { action }))
}

fn panic_device(devices: &Devices) -> Result<Option<PanicDevice>, Refusal> {
    let Some(device) = devices.panic_devices.first() else { return Ok(None) };
    if devices.panic_devices.len() > 1 {
        return refuse("domain.devices.panicDevices: one is all that a guest can use");
    }
    Ok(Some(match device.model.as_deref().unwrap_or_default() {
        "" | "isa" => PanicDevice::Isa,
        "pvpanic" => PanicDevice::Pci,
        other => return refuse(format!("domain.devices.panicDevices: there is no {other}")),
    }))
}
