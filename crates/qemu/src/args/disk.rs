//! Block nodes, the disk devices on top of them, and the controllers they need.

use serde_json::{Value, json};

use super::{Arguments, path_text};
use crate::spec::{Aio, Bus, Cache, Disk, DiskKind, ErrorPolicy, Format, Machine, Source, SpecError};

const PORTS_PER_SATA_CONTROLLER: usize = 6;

pub(super) fn add(args: &mut Arguments, machine: &Machine) -> Result<(), SpecError> {
    let mut controllers = Controllers::default();
    if machine.has_scsi {
        controllers.controller(args, None)?;
    }
    for disk in &machine.disks {
        if let Some(index) = disk.iothread.filter(|index| *index >= machine.iothreads) {
            return Err(SpecError::Impossible(format!("disk {}: there is no I/O thread {index}", disk.id)));
        }
        if let Some(node) = node(disk)? {
            args.json("-blockdev", &node);
        }
        let place = controllers.place(args, disk)?;
        args.json("-device", &device(disk, &place)?);
    }
    Ok(())
}

/// Where a disk sits: its bus, and for SCSI its target there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    pub bus: String,
    pub scsi_target: Option<u16>,
}

impl Place {
    /// For a virtio disk, on a bus that [`super::hotplug_buses`] names.
    pub fn on(bus: &str) -> Place {
        Place { bus: bus.to_owned(), scsi_target: None }
    }
}

#[derive(Default)]
struct Controllers {
    sata: usize,
    /// The I/O thread of each SCSI controller, and how many disks it has.
    scsi: Vec<(Option<u16>, u16)>,
}

impl Controllers {
    fn place(&mut self, args: &mut Arguments, disk: &Disk) -> Result<Place, SpecError> {
        match disk.bus {
            Bus::Virtio => Ok(Place::on(&args.port()?)),
            Bus::Usb => Ok(Place::on("usb.0")),
            Bus::Sata => {
                let (controller, port) = (self.sata / PORTS_PER_SATA_CONTROLLER, self.sata % PORTS_PER_SATA_CONTROLLER);
                if port == 0 {
                    args.json("-device", &json!({ "driver": "ich9-ahci", "id": format!("sata{controller}") }));
                }
                self.sata += 1;
                Ok(Place::on(&format!("sata{controller}.{port}")))
            }
            Bus::Scsi => self.scsi(args, disk),
        }
    }

    /// A thread serves a whole controller, so each thread gets one of its own.
    fn scsi(&mut self, args: &mut Arguments, disk: &Disk) -> Result<Place, SpecError> {
        let index = self.controller(args, disk.iothread)?;
        let count = &mut self.scsi[index].1;
        let place = Place { bus: format!("scsi{index}.0"), scsi_target: Some(*count) };
        *count += 1;
        Ok(place)
    }

    /// The controller of a thread, made if it is missing.
    fn controller(&mut self, args: &mut Arguments, iothread: Option<u16>) -> Result<usize, SpecError> {
        if let Some(known) = self.scsi.iter().position(|(own, _)| *own == iothread) {
            return Ok(known);
        }
        let index = self.scsi.len();
        let mut controller = json!({ "driver": "virtio-scsi-pci", "id": format!("scsi{index}"), "bus": args.port()? });
        if let Some(iothread) = iothread {
            controller["iothread"] = json!(format!("iothread{iothread}"));
        }
        args.json("-device", &controller);
        self.scsi.push((iothread, 0));
        Ok(index)
    }
}

/// Where a SCSI disk is plugged while the machine runs, if [`Machine::has_scsi`].
pub const SCSI_BUS: &str = "scsi0.0";

/// The block node of a disk's medium, for `-blockdev` and `blockdev-add`. Its name is the disk's id.
pub fn node(disk: &Disk) -> Result<Option<Value>, SpecError> {
    let Some(source) = &disk.source else { return Ok(None) };
    let is_direct = disk.cache == Cache::None;
    if disk.aio == Aio::Native && !is_direct {
        return Err(SpecError::Impossible(format!(
            "disk {}: native I/O goes past the page cache: use no cache",
            disk.id
        )));
    }
    let cache = json!({ "direct": is_direct, "no-flush": disk.cache == Cache::Unsafe });
    let discard = if disk.has_discard { "unmap" } else { "ignore" };
    let mut file = protocol(source, disk.aio)?;
    let mut node = match disk.format {
        Format::Raw => json!({ "driver": "raw" }),
        Format::Qcow2 => json!({ "driver": "qcow2", "backing": null }),
    };
    for layer in [&mut file, &mut node] {
        layer["cache"] = cache.clone();
        layer["discard"] = json!(discard);
        layer["read-only"] = json!(disk.is_read_only);
    }
    node["node-name"] = json!(disk.id.as_str());
    node["file"] = file;
    Ok(Some(node))
}

pub(super) fn protocol(source: &Source, aio: Aio) -> Result<Value, SpecError> {
    let aio = match aio {
        Aio::Threads => "threads",
        Aio::Native => "native",
        Aio::IoUring => "io_uring",
    };
    Ok(match source {
        Source::File(path) => json!({ "driver": "file", "filename": path_text("disk", path)?, "aio": aio }),
        Source::HostDevice(path) => {
            json!({ "driver": "host_device", "filename": path_text("disk", path)?, "aio": aio })
        }
        Source::FdSet { set, is_device } => {
            let driver = if *is_device { "host_device" } else { "file" };
            json!({ "driver": driver, "filename": format!("/dev/fdset/{set}"), "aio": aio })
        }
        Source::Nbd { socket, export } => {
            let server = json!({ "type": "unix", "path": path_text("NBD socket", socket)? });
            json!({ "driver": "nbd", "server": server, "export": export })
        }
    })
}

/// The disk's device, for `-device` and `device_add`.
pub fn device(disk: &Disk, place: &Place) -> Result<Value, SpecError> {
    let impossible = |what: &str| Err(SpecError::Impossible(format!("disk {}: {what}", disk.id)));
    let driver = match (disk.bus, disk.kind) {
        (Bus::Virtio, DiskKind::Disk) => "virtio-blk-pci",
        (Bus::Scsi, DiskKind::Disk) => "scsi-hd",
        (Bus::Scsi, DiskKind::Cdrom) => "scsi-cd",
        (Bus::Sata, DiskKind::Disk) => "ide-hd",
        (Bus::Sata, DiskKind::Cdrom) => "ide-cd",
        (Bus::Usb, DiskKind::Disk) => "usb-storage",
        (Bus::Scsi, DiskKind::Lun) => "scsi-block",
        (Bus::Virtio | Bus::Sata | Bus::Usb, DiskKind::Lun) => return impossible("a LUN is on SCSI"),
        (Bus::Virtio | Bus::Usb, DiskKind::Cdrom) => return impossible("a CD-ROM is on SATA or SCSI"),
    };
    let is_disk = disk.kind != DiskKind::Cdrom;
    if is_disk && disk.source.is_none() {
        return impossible("only a CD-ROM may be empty");
    }
    if is_disk && disk.is_read_only && disk.bus == Bus::Sata {
        return impossible("SATA has no read-only disks");
    }
    if !is_disk && !disk.is_read_only {
        return impossible("a CD-ROM is read-only");
    }
    if disk.iothread.is_some() && !matches!(disk.bus, Bus::Virtio | Bus::Scsi) {
        return impossible("an I/O thread is for virtio and SCSI");
    }
    let mut device = json!({ "driver": driver, "id": disk.id.as_str(), "bus": place.bus });
    let mut set = |key: &str, value: Value| device[key] = value;
    if disk.source.is_some() {
        set("drive", json!(disk.id.as_str()));
    }
    if let Some(target) = place.scsi_target {
        set("scsi-id", json!(target));
    }
    if let Some(serial) = disk.serial.as_ref().filter(|_| disk.kind != DiskKind::Lun) {
        set("serial", json!(serial));
    }
    if let Some(index) = disk.boot_index {
        set("bootindex", json!(index));
    }
    if disk.kind == DiskKind::Lun {
        if disk.is_shareable {
            set("share-rw", json!(true));
        }
        return Ok(device);
    }
    let (write_error, read_error) = on_error(disk.on_error);
    set("werror", json!(write_error));
    set("rerror", json!(read_error));
    if !is_disk {
        return Ok(device);
    }
    set("write-cache", json!(if disk.cache == Cache::Writethrough { "off" } else { "on" }));
    if disk.is_shareable {
        set("share-rw", json!(true));
    }
    if let Some(size) = disk.block_size {
        set("logical_block_size", json!(size.logical));
        set("physical_block_size", json!(size.physical));
        if let Some(bytes) = size.discard {
            set("discard_granularity", json!(bytes));
        }
    }
    if disk.bus == Bus::Virtio {
        if let Some(index) = disk.iothread {
            set("iothread", json!(format!("iothread{index}")));
        }
        if let Some(queues) = disk.queues {
            set("num-queues", json!(queues));
        }
    }
    Ok(device)
}

fn on_error(policy: ErrorPolicy) -> (&'static str, &'static str) {
    match policy {
        ErrorPolicy::Report => ("report", "report"),
        ErrorPolicy::Stop => ("stop", "stop"),
        ErrorPolicy::StopWhenFull => ("enospc", "report"),
        ErrorPolicy::Ignore => ("ignore", "ignore"),
    }
}
