//! Consoles, screen, input, randomness, watchdog, TPM and the channels to the guest.

use serde_json::json;

use super::{Arguments, key_values, needs_usb, path_text};
use crate::spec::{Input, Machine, PanicDevice, Sound, SpecError, TpmModel, TpmSocket, Video, Vnc, WatchdogAction};

pub(super) fn add(args: &mut Arguments, machine: &Machine) -> Result<(), SpecError> {
    if let Some(serial) = &machine.serial {
        args.socket_chardev("serial", &serial.socket, serial.log.as_deref())?;
        args.json("-device", &json!({ "driver": "isa-serial", "chardev": "serial", "index": 0 }));
    }
    if let Some(vnc) = &machine.vnc {
        let list = match vnc {
            Vnc::Socket { path, has_password } => {
                let display = format!("unix:{}", path_text("VNC socket", path)?);
                key_values(&[("vnc", &display), ("password", if *has_password { "on" } else { "off" })])?
            }
            Vnc::ByDescriptor => "none".to_owned(),
        };
        args.list.extend(["-vnc".to_owned(), list]);
    }
    video(args, machine.video);
    if needs_usb(machine) {
        args.json("-device", &json!({ "driver": "qemu-xhci", "id": "usb" }));
    }
    for (index, input) in machine.inputs.iter().enumerate() {
        let (driver, is_usb) = match input {
            Input::UsbTablet => ("usb-tablet", true),
            Input::UsbKeyboard => ("usb-kbd", true),
            Input::VirtioTablet => ("virtio-tablet-pci", false),
            Input::VirtioKeyboard => ("virtio-keyboard-pci", false),
        };
        let mut device = json!({ "driver": driver, "id": format!("input.{index}") });
        if is_usb {
            device["bus"] = json!("usb.0");
        }
        args.json("-device", &device);
    }
    for (index, listener) in machine.usb_redirections.iter().enumerate() {
        let chardev = format!("usbredir{index}");
        args.socket_chardev(&chardev, listener, None)?;
        args.json("-device", &json!({ "driver": "usb-redir", "id": chardev, "chardev": chardev, "bus": "usb.0" }));
    }
    if let Some(socket) = &machine.guest_agent {
        args.json("-device", &json!({ "driver": "virtio-serial-pci", "id": "serial-bus" }));
        args.socket_chardev("agent", socket, None)?;
        let port = json!({
            "driver": "virtserialport", "id": "agent", "bus": "serial-bus.0", "chardev": "agent",
            "name": "org.qemu.guest_agent.0",
        });
        args.json("-device", &port);
    }
    if machine.has_rng {
        args.json("-object", &json!({ "qom-type": "rng-random", "id": "rng", "filename": "/dev/urandom" }));
        args.json("-device", &json!({ "driver": "virtio-rng-pci", "rng": "rng" }));
    }
    if machine.has_balloon {
        let device = json!({ "driver": "virtio-balloon-pci", "id": "balloon", "free-page-reporting": true });
        args.json("-device", &device);
    }
    watchdog(args, machine);
    sound(args, machine);
    panic_device(args, machine);
    tpm(args, machine)?;
    vsock(args, machine)
}

fn video(args: &mut Arguments, video: Video) {
    let driver = match video {
        Video::None => return,
        Video::Vga => "VGA",
        Video::Virtio => "virtio-vga",
        Video::Bochs => "bochs-display",
        Video::Cirrus => "cirrus-vga",
    };
    args.json("-device", &json!({ "driver": driver, "id": "video" }));
}

fn watchdog(args: &mut Arguments, machine: &Machine) {
    let Some(watchdog) = machine.watchdog else { return };
    let action = match watchdog.action {
        WatchdogAction::Reset => "reset",
        WatchdogAction::Shutdown => "shutdown",
        WatchdogAction::PowerOff => "poweroff",
        WatchdogAction::Pause => "pause",
        WatchdogAction::None => "none",
    };
    args.json("-device", &json!({ "driver": "i6300esb", "id": "watchdog" }));
    args.words(&["-action", &format!("watchdog={action}")]);
}

fn sound(args: &mut Arguments, machine: &Machine) {
    let Some(sound) = machine.sound else { return };
    args.words(&["-audiodev", "none,id=audio"]);
    match sound {
        Sound::Ich9 => {
            args.json("-device", &json!({ "driver": "ich9-intel-hda", "id": "sound" }));
            args.json("-device", &json!({ "driver": "hda-duplex", "bus": "sound.0", "audiodev": "audio" }));
        }
        Sound::Ac97 => args.json("-device", &json!({ "driver": "AC97", "id": "sound", "audiodev": "audio" })),
    }
}

/// A guest whose kernel has given up stays as it is, for whoever wants to look; the event says so.
fn panic_device(args: &mut Arguments, machine: &Machine) {
    let Some(device) = machine.panic_device else { return };
    let driver = match device {
        PanicDevice::Isa => "pvpanic",
        PanicDevice::Pci => "pvpanic-pci",
    };
    args.json("-device", &json!({ "driver": driver, "id": "panic" }));
    args.words(&["-action", "panic=pause"]);
}

fn tpm(args: &mut Arguments, machine: &Machine) -> Result<(), SpecError> {
    let Some(tpm) = &machine.tpm else { return Ok(()) };
    let list = match &tpm.socket {
        TpmSocket::Path(path) => key_values(&[("path", path_text("TPM socket", path)?)])?,
        TpmSocket::Fd(fd) => format!("fd={fd}"),
    };
    args.list.extend(["-chardev".to_owned(), format!("socket,id=tpm,{list}")]);
    args.words(&["-tpmdev", "emulator,id=tpm,chardev=tpm"]);
    let driver = match tpm.model {
        TpmModel::Crb => "tpm-crb",
        TpmModel::Tis => "tpm-tis",
    };
    args.json("-device", &json!({ "driver": driver, "tpmdev": "tpm" }));
    Ok(())
}

fn vsock(args: &mut Arguments, machine: &Machine) -> Result<(), SpecError> {
    let Some(vsock) = machine.vsock else { return Ok(()) };
    let cid = vsock.cid;
    // 0 to 2 are the hypervisor, this host and any host; the highest means "any".
    if cid < 3 || cid == u32::MAX {
        return Err(SpecError::Impossible(format!("{cid} as a VSOCK address")));
    }
    let mut device = json!({ "driver": "vhost-vsock-pci", "id": "vsock", "guest-cid": cid });
    if let Some(fd) = vsock.vhost_fd {
        device["vhostfd"] = json!(fd.to_string());
    }
    args.json("-device", &device);
    Ok(())
}
