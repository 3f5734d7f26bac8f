//! Disks: which bus and drive, how they are cached, which thread serves them, and what the guest calls them.

use std::collections::{BTreeMap, BTreeSet};

use croft_api::kubevirt::{Disk as DiskSpec, VirtualMachineInstanceSpec};
use croft_qemu::spec::{Aio, BlockSize, Bus, Cache, Disk, DiskKind, ErrorPolicy};

use super::{Medium, Parts, Refusal, disk_id, refuse, vcpus};

/// The standard's limit for virtio.
const SERIAL_MAX: usize = 36;
/// More would not make a disk faster.
const THREADS_MAX: u64 = 64;

pub(super) fn all(spec: &VirtualMachineInstanceSpec, parts: &Parts, iothreads: &mut u16) -> Result<Vec<Disk>, Refusal> {
    let mut threads = Threads::new(spec)?;
    let mut disks = Vec::new();
    for wanted in &spec.domain.devices.disks {
        let mut disk = disk(spec, wanted, parts.media.get(&wanted.name))?;
        disk.iothread = threads.next(wanted, disk.bus);
        disks.push(disk);
    }
    *iothreads = threads.count;
    Ok(disks)
}

/// One disk. Without a medium it is an empty CD-ROM drive, or nothing that can be.
pub(in super::super) fn disk(
    spec: &VirtualMachineInstanceSpec,
    wanted: &DiskSpec,
    medium: Option<&Medium>,
) -> Result<Disk, Refusal> {
    let name = &wanted.name;
    let kind = kind_of(wanted);
    if medium.is_none() && kind != DiskKind::Cdrom {
        return refuse(format!("disk {name}: there is no volume of that name"));
    }
    let bus = bus_of(wanted)?;
    let is_read_only = kind == DiskKind::Cdrom || is_marked_read_only(wanted) || medium.is_some_and(|m| m.is_read_only);
    if kind == DiskKind::Lun {
        if !medium.is_some_and(|medium| medium.is_block) {
            return refuse(format!("disk {name}: a LUN needs a block device"));
        }
        if wanted.lun.as_ref().and_then(|lun| lun.reservation) == Some(true) {
            return refuse(format!("disk {name}: SCSI reservations are not passed on"));
        }
    }
    if wanted.disk.as_ref().is_some_and(|disk| disk.pci_address.is_some()) {
        return refuse(format!("disk {name}: PCI addresses cannot be chosen"));
    }
    let cache = cache(wanted, medium)?;
    Ok(Disk {
        id: disk_id(name),
        source: medium.map(|medium| medium.source.clone()),
        format: croft_qemu::spec::Format::Raw,
        kind,
        bus,
        cache,
        aio: aio(wanted, medium, cache)?,
        is_read_only,
        is_shareable: wanted.shareable == Some(true),
        serial: serial(wanted, bus)?,
        boot_index: wanted.boot_order.map(boot_index).transpose()?,
        block_size: block_size(wanted, medium)?,
        iothread: None,
        queues: queues(spec, bus)?,
        has_discard: !is_read_only && !medium.is_some_and(|medium| medium.is_preallocated),
        on_error: match wanted.error_policy.as_deref().unwrap_or_default() {
            "" | "stop" if kind == DiskKind::Cdrom => ErrorPolicy::Report,
            "" | "stop" => ErrorPolicy::Stop,
            "ignore" => ErrorPolicy::Ignore,
            "report" => ErrorPolicy::Report,
            "enospace" => ErrorPolicy::StopWhenFull,
            other => return refuse(format!("disk {name}: there is no error policy {other}")),
        },
    })
}

fn kind_of(wanted: &DiskSpec) -> DiskKind {
    match (&wanted.cdrom, &wanted.lun) {
        (Some(_), _) => DiskKind::Cdrom,
        (None, Some(_)) => DiskKind::Lun,
        (None, None) => DiskKind::Disk,
    }
}

fn is_marked_read_only(wanted: &DiskSpec) -> bool {
    let disk = wanted.disk.as_ref().and_then(|disk| disk.readonly);
    let lun = wanted.lun.as_ref().and_then(|lun| lun.readonly);
    disk == Some(true) || lun == Some(true)
}

pub(in super::super) fn bus_of(wanted: &DiskSpec) -> Result<Bus, Refusal> {
    let (named, default) = match kind_of(wanted) {
        DiskKind::Cdrom => (wanted.cdrom.as_ref().and_then(|cdrom| cdrom.bus.as_deref()), Bus::Sata),
        DiskKind::Lun => (wanted.lun.as_ref().and_then(|lun| lun.bus.as_deref()), Bus::Scsi),
        DiskKind::Disk => (wanted.disk.as_ref().and_then(|disk| disk.bus.as_deref()), Bus::Sata),
    };
    Ok(match named.unwrap_or_default() {
        "" => default,
        "virtio" => Bus::Virtio,
        "scsi" => Bus::Scsi,
        "sata" => Bus::Sata,
        "usb" => Bus::Usb,
        other => return refuse(format!("disk {}: there is no bus {other}", wanted.name)),
    })
}

fn cache(wanted: &DiskSpec, medium: Option<&Medium>) -> Result<Cache, Refusal> {
    let is_direct = medium.is_none_or(|medium| medium.is_direct);
    // As KubeVirt: what cannot be gone past is at least written through; a CD is not written at all.
    let otherwise = if wanted.cdrom.is_some() { "writeback" } else { "writethrough" };
    let default = if is_direct { "none" } else { otherwise };
    Ok(match wanted.cache.as_deref().filter(|cache| !cache.is_empty()).unwrap_or(default) {
        "none" if is_direct => Cache::None,
        "none" => return refuse(format!("disk {}: its storage cannot be used without a cache", wanted.name)),
        "writethrough" => Cache::Writethrough,
        "writeback" => Cache::Writeback,
        other => return refuse(format!("disk {}: there is no cache mode {other}", wanted.name)),
    })
}

fn aio(wanted: &DiskSpec, medium: Option<&Medium>, cache: Cache) -> Result<Aio, Refusal> {
    Ok(match wanted.io.as_deref().unwrap_or_default() {
        // The quickest way, and one that a sparse file does not block.
        "" | "default" if cache == Cache::None && medium.is_some_and(|medium| medium.has_io_uring) => Aio::IoUring,
        // A device never blocks the submission; a sparse file may.
        "" | "default" if cache == Cache::None && medium.is_some_and(|medium| medium.is_block) => Aio::Native,
        "" | "default" | "threads" => Aio::Threads,
        "native" if cache == Cache::None => Aio::Native,
        "native" => return refuse(format!("disk {}: native I/O needs the cache mode none", wanted.name)),
        other => return refuse(format!("disk {}: there is no I/O mode {other}", wanted.name)),
    })
}

/// What `/dev/disk/by-id` shows. A disk that is plugged in by name can be found by that name.
fn serial(wanted: &DiskSpec, bus: Bus) -> Result<Option<String>, Refusal> {
    let Some(serial) = wanted.serial.as_ref().filter(|serial| !serial.is_empty()) else { return Ok(None) };
    if serial.len() > SERIAL_MAX && bus == Bus::Virtio {
        return refuse(format!("disk {}: a serial number has at most {SERIAL_MAX} characters", wanted.name));
    }
    Ok(Some(serial.clone()))
}

/// QEMU counts from 0, KubeVirt from 1.
pub(super) fn boot_index(order: u32) -> Result<u16, Refusal> {
    u16::try_from(order).map_err(|_| Refusal(format!("bootOrder: {order} is too high")))
}

fn block_size(wanted: &DiskSpec, medium: Option<&Medium>) -> Result<Option<BlockSize>, Refusal> {
    let Some(size) = &wanted.block_size else { return Ok(None) };
    if let Some(custom) = &size.custom {
        let logical = custom.logical.unwrap_or(512);
        let physical = custom.physical.unwrap_or(logical);
        return Ok(Some(BlockSize { logical, physical, discard: custom.discard_granularity }));
    }
    if size.match_volume.as_ref().is_none_or(|state| state.enabled == Some(false)) {
        return Ok(None);
    }
    match medium.and_then(|medium| medium.block_bytes) {
        Some(bytes) => Ok(Some(BlockSize { logical: bytes, physical: bytes, discard: None })),
        None => refuse(format!("disk {}: its storage does not say what it reads and writes at once", wanted.name)),
    }
}

fn queues(spec: &VirtualMachineInstanceSpec, bus: Bus) -> Result<Option<u16>, Refusal> {
    if spec.domain.devices.block_multi_queue != Some(true) || bus != Bus::Virtio {
        return Ok(None);
    }
    let queues =
        u16::try_from(vcpus(spec)).map_err(|_| Refusal("domain.devices.blockMultiQueue: too many CPUs".into()));
    queues.map(Some)
}

/// Which thread serves which disk.
struct Threads {
    count: u16,
    /// Threads that disks share in turn: the first `pool` ones.
    pool: u16,
    turn: u16,
}

impl Threads {
    fn new(spec: &VirtualMachineInstanceSpec) -> Result<Threads, Refusal> {
        let supplemental = spec.domain.io_threads.as_ref().and_then(|threads| threads.supplemental_pool_thread_count);
        let disks = u64::try_from(spec.domain.devices.disks.len()).unwrap_or(u64::MAX);
        let pool = match spec.domain.io_threads_policy.as_deref().unwrap_or_default() {
            "" => 0,
            "shared" => 1,
            "auto" => (2 * vcpus(spec)).min(disks),
            "supplementalPool" => u64::from(supplemental.unwrap_or(1)),
            other => return refuse(format!("domain.ioThreadsPolicy: there is no {other}")),
        };
        let pool = u16::try_from(pool.min(THREADS_MAX)).unwrap_or(1);
        Ok(Threads { count: pool, pool, turn: 0 })
    }

    fn next(&mut self, wanted: &DiskSpec, bus: Bus) -> Option<u16> {
        if !matches!(bus, Bus::Virtio | Bus::Scsi) {
            return None;
        }
        if wanted.dedicated_io_thread == Some(true) {
            self.count += 1;
            return Some(self.count - 1);
        }
        if self.pool == 0 {
            return None;
        }
        let thread = self.turn % self.pool;
        self.turn += 1;
        Some(thread)
    }
}

/// What the guest probably calls its disks, by the names of volumes: `vda`, `sda`. One that has a name keeps it.
pub(in super::super) fn targets(
    spec: &VirtualMachineInstanceSpec,
    known: &BTreeMap<String, String>,
) -> BTreeMap<String, String> {
    let disks = &spec.domain.devices.disks;
    let mut targets: BTreeMap<String, String> = BTreeMap::new();
    for disk in disks {
        if let Some(target) = known.get(&disk.name).filter(|target| !target.is_empty()) {
            targets.insert(disk.name.clone(), target.clone());
        }
    }
    let mut taken: BTreeSet<String> = targets.values().cloned().collect();
    for disk in disks {
        if targets.contains_key(&disk.name) {
            continue;
        }
        let prefix = if bus_of(disk) == Ok(Bus::Virtio) { "vd" } else { "sd" };
        let mut names = (0..=taken.len()).map(|index| format!("{prefix}{}", letters(index)));
        // Those are more names than there are taken ones.
        let target = names.find(|target| !taken.contains(target)).unwrap_or_default();
        taken.insert(target.clone());
        targets.insert(disk.name.clone(), target);
    }
    targets
}

/// a, b, … z, aa, ab, …
fn letters(index: usize) -> String {
    let mut rest = index;
    let mut letters = Vec::new();
    loop {
        letters.extend(('a'..='z').nth(rest % 26));
        if rest < 26 {
            break;
        }
        rest = rest / 26 - 1;
    }
    letters.iter().rev().collect()
}
