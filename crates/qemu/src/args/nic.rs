//! Network back ends and the interfaces on top of them.

use serde_json::{Value, json};

use super::{Arguments, path_text};
use crate::spec::{FdRef, Nic, NicBackend, NicModel, PortForward, Protocol, SpecError};

pub(super) fn add(args: &mut Arguments, nic: &Nic) -> Result<(), SpecError> {
    args.json("-netdev", &netdev(nic)?);
    // Conventional PCI devices cannot sit behind an Express port.
    let bus = match nic.model {
        NicModel::Virtio | NicModel::E1000e => Some(args.port()?),
        NicModel::E1000 | NicModel::Rtl8139 | NicModel::Pcnet | NicModel::Ne2kPci => None,
    };
    args.json("-device", &device(nic, bus.as_deref())?);
    Ok(())
}

/// The back end's id.
pub fn netdev_id(nic: &Nic) -> String {
    format!("{}.net", nic.id)
}

/// The back end, for `-netdev` and `netdev_add`.
pub fn netdev(nic: &Nic) -> Result<Value, SpecError> {
    let mut netdev = match &nic.backend {
        NicBackend::Tap { fds, vhost_fds } => tap(nic, fds, vhost_fds)?,
        NicBackend::User { forwards } => {
            let forwards: Vec<_> = forwards.iter().map(|forward| json!({ "str": forward_text(forward) })).collect();
            json!({ "type": "user", "hostfwd": forwards })
        }
        NicBackend::SocketFd(fd) => json!({ "type": "socket", "fd": fd.to_string() }),
        NicBackend::Stream { path } => {
            let address = json!({ "type": "unix", "path": path_text("network socket", path)? });
            json!({ "type": "stream", "addr": address, "server": false })
        }
    };
    netdev["id"] = json!(netdev_id(nic));
    Ok(netdev)
}

fn tap(nic: &Nic, fds: &[FdRef], vhost_fds: &[FdRef]) -> Result<Value, SpecError> {
    if fds.is_empty() || !(vhost_fds.is_empty() || vhost_fds.len() == fds.len()) {
        return Err(SpecError::Impossible(format!(
            "interface {}: {} tap descriptors and {} for vhost",
            nic.id,
            fds.len(),
            vhost_fds.len()
        )));
    }
    let mut tap = json!({ "type": "tap", "fds": join(fds), "vhost": !vhost_fds.is_empty() });
    if !vhost_fds.is_empty() {
        tap["vhostfds"] = json!(join(vhost_fds));
    }
    Ok(tap)
}

fn join(fds: &[FdRef]) -> String {
    fds.iter().map(FdRef::to_string).collect::<Vec<_>>().join(":")
}

fn forward_text(forward: &PortForward) -> String {
    let protocol = match forward.protocol {
        Protocol::Tcp => "tcp",
        Protocol::Udp => "udp",
    };
    format!("{protocol}:{}:{}-:{}", forward.host_address, forward.host_port, forward.guest_port)
}

/// The interface, for `-device` and `device_add`. Without a bus, QEMU takes the first that fits.
pub fn device(nic: &Nic, bus: Option<&str>) -> Result<Value, SpecError> {
    let driver = match nic.model {
        NicModel::Virtio => "virtio-net-pci",
        NicModel::E1000 => "e1000",
        NicModel::E1000e => "e1000e",
        NicModel::Rtl8139 => "rtl8139",
        NicModel::Pcnet => "pcnet",
        NicModel::Ne2kPci => "ne2k_pci",
    };
    let mut device =
        json!({ "driver": driver, "id": nic.id.as_str(), "netdev": netdev_id(nic), "mac": nic.mac.to_string() });
    let mut set = |key: &str, value: Value| device[key] = value;
    if let Some(bus) = bus {
        set("bus", json!(bus));
    }
    match nic.boot_index {
        Some(index) => set("bootindex", json!(index)),
        // Without its boot ROM the firmware starts sooner.
        None => set("romfile", json!("")),
    }
    if let Some(index) = nic.acpi_index {
        set("acpi-index", json!(index));
    }
    let queues = match &nic.backend {
        NicBackend::Tap { fds, .. } => fds.len(),
        _ => 1,
    };
    if nic.model != NicModel::Virtio {
        if queues > 1 || nic.mtu.is_some() {
            return Err(SpecError::Impossible(format!("interface {}: queues and MTU are for virtio", nic.id)));
        }
        return Ok(device);
    }
    if queues > 1 {
        set("mq", json!(true));
        // One for each direction of each queue, one for control and one for configuration.
        set("vectors", json!(2 * queues + 2));
    }
    if let Some(mtu) = nic.mtu {
        set("host_mtu", json!(mtu));
    }
    Ok(device)
}
