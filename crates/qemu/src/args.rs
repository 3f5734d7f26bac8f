//! From a [`Machine`] to QEMU's command line (7.2 or later).
//!
//! Devices, block nodes, networks and objects are JSON, where a value is a value. Options that have no JSON form are
//! `key=value` lists; there a comma in a value is doubled, which is QEMU's only escape and all that it needs. The order
//! of devices is the order of the spec, so the same machine gets the same PCI addresses each time it starts.
//!
//! [`disk::node`], [`disk::device`], [`nic::netdev`] and [`nic::device`] give the same JSON that QMP wants for hot-plug.

pub mod disk;
pub mod nic;
mod peripherals;
mod system;

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::{Value, json};

use crate::accel::Accel;
use crate::spec::{Bus, Chipset, FdSet, Id, Listener, Machine, OnPowerOff, SpecError};

/// The arguments after the program's name, without what concerns control (see [`crate::process`]).
pub fn command_line(machine: &Machine, accel: Accel) -> Result<Vec<String>, SpecError> {
    check_ids(machine)?;
    let mut args = Arguments::new(&machine.chipset);
    args.option("-name", &[("guest", &machine.name), ("debug-threads", "on")])?;
    args.words(&["-no-user-config", "-nodefaults", "-display", "none"]);
    // What an escape from the guest would need: new programs, new rights, other processes' resources.
    args.words(&["-sandbox", "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny"]);
    args.words(&["-msg", "timestamp=on"]);
    for FdSet { set, fd } in &machine.fd_sets {
        args.words(&["-add-fd", &format!("fd={fd},set={set}")]);
    }
    system::add(&mut args, machine, accel)?;
    if machine.on_power_off == OnPowerOff::Stay {
        args.words(&["-action", "shutdown=pause"]);
    }
    if machine.is_reboot_power_off {
        args.words(&["-action", "reboot=shutdown"]);
    }
    if machine.is_incoming {
        args.words(&["-incoming", "defer"]);
    }
    for index in 0..machine.iothreads {
        args.json("-object", &json!({ "qom-type": "iothread", "id": format!("iothread{index}") }));
    }
    peripherals::add(&mut args, machine)?;
    disk::add(&mut args, machine)?;
    for nic in &machine.nics {
        nic::add(&mut args, nic)?;
    }
    for index in 0..machine.hotplug_ports {
        args.spare_port(index)?;
    }
    Ok(args.list)
}

/// The buses that devices can be plugged into while the machine runs, one device each. The older chipset's one bus
/// takes any number.
pub fn hotplug_buses(machine: &Machine) -> Vec<String> {
    match machine.chipset {
        Chipset::Q35 { .. } => (0..machine.hotplug_ports).map(|index| format!("spare{index}")).collect(),
        Chipset::I440fx { .. } => vec!["pci.0".to_owned()],
    }
}

fn check_ids(machine: &Machine) -> Result<(), SpecError> {
    let mut seen: BTreeSet<&Id> = BTreeSet::new();
    let ids = machine.disks.iter().map(|disk| &disk.id).chain(machine.nics.iter().map(|nic| &nic.id));
    for id in ids {
        if !seen.insert(id) || is_ours(id.as_str()) {
            return Err(SpecError::DuplicateId(id.to_string()));
        }
    }
    Ok(())
}

/// Names that we give to controllers, ports and objects.
fn is_ours(id: &str) -> bool {
    const FIXED: [&str; 15] = [
        "agent",
        "audio",
        "balloon",
        "panic",
        "qmp",
        "ram",
        "rng",
        "serial",
        "serial-bus",
        "sound",
        "tpm",
        "usb",
        "video",
        "vsock",
        "watchdog",
    ];
    const NUMBERED: [&str; 8] = ["input.", "iothread", "pflash", "port", "sata", "scsi", "spare", "usbredir"];
    let has_number = |prefix: &str| {
        id.strip_prefix(prefix).is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_digit()))
    };
    FIXED.contains(&id) || NUMBERED.into_iter().any(has_number)
}

/// The list as it grows, and the PCI Express ports that it has used.
struct Arguments {
    list: Vec<String>,
    is_express: bool,
    ports: u16,
}

impl Arguments {
    /// Ports fill these slots, eight to a slot; other devices get the slots below from QEMU.
    const FIRST_PORT_SLOT: u16 = 0x10;
    const LAST_PORT_SLOT: u16 = 0x1e;

    fn new(chipset: &Chipset) -> Self {
        Arguments { list: Vec::new(), is_express: matches!(chipset, Chipset::Q35 { .. }), ports: 0 }
    }

    /// Arguments that no user has a hand in.
    fn words(&mut self, words: &[&str]) {
        self.list.extend(words.iter().map(|word| (*word).to_owned()));
    }

    fn json(&mut self, option: &str, value: &Value) {
        self.list.extend([option.to_owned(), value.to_string()]);
    }

    fn option(&mut self, option: &str, pairs: &[(&str, &str)]) -> Result<(), SpecError> {
        let list = key_values(pairs)?;
        self.list.extend([option.to_owned(), list]);
        Ok(())
    }

    /// A bus for one device that may sit behind a port of its own.
    fn port(&mut self) -> Result<String, SpecError> {
        if !self.is_express {
            return Ok("pci.0".to_owned());
        }
        let name = format!("port{}", self.ports);
        self.add_port(&name)?;
        Ok(name)
    }

    fn spare_port(&mut self, index: u8) -> Result<(), SpecError> {
        if self.is_express { self.add_port(&format!("spare{index}")) } else { Ok(()) }
    }

    fn add_port(&mut self, name: &str) -> Result<(), SpecError> {
        let (slot, function) = (Self::FIRST_PORT_SLOT + self.ports / 8, self.ports % 8);
        if slot > Self::LAST_PORT_SLOT {
            return Err(SpecError::Impossible("more disks, interfaces and free ports than PCI Express slots".into()));
        }
        self.json(
            "-device",
            &json!({
                "driver": "pcie-root-port", "id": name, "bus": "pcie.0", "addr": format!("{slot:#x}.{function}"),
                "chassis": self.ports + 1, "port": self.ports, "multifunction": function == 0,
                // Virtio needs none, and there is not enough of it for every port.
                "io-reserve": 0,
            }),
        );
        self.ports += 1;
        Ok(())
    }

    /// A unix socket that QEMU listens on, as a chardev.
    fn socket_chardev(&mut self, id: &str, socket: &Listener, log: Option<&Path>) -> Result<(), SpecError> {
        let number;
        let place = match socket {
            Listener::Path(path) => ("path", path_text("socket", path)?),
            Listener::Fd(fd) => {
                number = fd.to_string();
                ("fd", number.as_str())
            }
        };
        let mut pairs = vec![place, ("server", "on"), ("wait", "off")];
        if let Some(log) = log {
            pairs.extend([("logfile", path_text("log", log)?), ("logappend", "on")]);
        }
        let list = key_values(&pairs)?;
        self.list.extend(["-chardev".to_owned(), format!("socket,id={id},{list}")]);
        Ok(())
    }
}

/// `key=value` pairs with the values' commas doubled.
pub(crate) fn key_values(pairs: &[(&str, &str)]) -> Result<String, SpecError> {
    let mut list = String::new();
    for (key, value) in pairs {
        // An argument ends at a zero byte.
        if value.contains('\0') {
            return Err(SpecError::Text { what: "value", value: (*value).to_owned() });
        }
        if !list.is_empty() {
            list.push(',');
        }
        list.push_str(key);
        list.push('=');
        list.push_str(&value.replace(',', ",,"));
    }
    Ok(list)
}

pub(crate) fn path_text<'a>(what: &'static str, path: &'a Path) -> Result<&'a str, SpecError> {
    let text = path.to_str().filter(|text| path.is_absolute() && !text.contains('\0'));
    text.ok_or_else(|| SpecError::Path { what, path: path.to_owned() })
}

/// A word of QEMU's own vocabulary that comes from outside, such as a CPU model.
fn word<'a>(what: &'static str, text: &'a str) -> Result<&'a str, SpecError> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_');
    if !text.is_empty() && text.chars().all(is_plain) {
        return Ok(text);
    }
    Err(SpecError::Text { what, value: text.to_owned() })
}

fn needs_usb(machine: &Machine) -> bool {
    use crate::spec::Input;
    machine.disks.iter().any(|disk| disk.bus == Bus::Usb)
        || !machine.usb_redirections.is_empty()
        || machine.inputs.iter().any(|input| matches!(input, Input::UsbTablet | Input::UsbKeyboard))
}

#[cfg(test)]
mod tests;
