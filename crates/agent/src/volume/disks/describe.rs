//! A disk in the words of a BlockDevice object.

use std::path::Path;
use std::sync::Arc;

use croft_api::harvester::{
    BlockDevice, BlockDeviceFileSystem, BlockDeviceSpec, BlockDeviceStatus, DeviceCapacity, DeviceDetails,
    DeviceFileSystem, DeviceStatus,
};
use croft_block::{Backing, Controller, Device, DeviceKind, DriveKind, Pool, Signature, Usage};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use sha2::{Digest, Sha256};

use super::{PROVISIONED, UNPROVISIONED};

const NODE_LABEL: &str = "kubernetes.io/hostname";
const POOL_LABEL: &str = "croft.io/pool";

/// Not what the host itself lives on, and nothing that is part of something else.
pub(super) fn is_shown(device: &Device) -> bool {
    let is_hosts =
        |at: &Path| ["/", "/boot", "/boot/efi", "/usr", "/var", "/home"].iter().any(|place| at == Path::new(place));
    let is_foreign = ["longhorn", "spdk"]
        .iter()
        .any(|name| device.vendor.to_lowercase().contains(name) || device.model.to_lowercase().contains(name));
    !device.mounts.iter().any(|at| is_hosts(at))
        && !device.is_swap
        && device.holders.is_empty()
        && !is_foreign
        && !device.is_read_only
}

fn uuid(device: &Device) -> &str {
    match &device.signature {
        Some(Signature::FileSystem { uuid, .. }) => uuid,
        _ => "",
    }
}

/// The object of a disk: the same world wide name, file system or serial number. Only disks without any are known by
/// where they are.
pub(super) fn find<'a>(objects: &'a [Arc<BlockDevice>], device: &Device) -> Option<&'a Arc<BlockDevice>> {
    let is_part = device.kind == DeviceKind::Part;
    let matching = |pick: fn(&DeviceDetails) -> &Option<String>, value: &str| {
        let same = |object: &&Arc<BlockDevice>| {
            let details = object.status.device_status.as_ref().map(|status| &status.details);
            let is_same_kind = details.is_some_and(|details| (details.device_type == "part") == is_part);
            is_same_kind && details.and_then(|details| pick(details).as_deref()) == Some(value)
        };
        (!value.is_empty()).then(|| objects.iter().find(same)).flatten()
    };
    let by_path = || {
        let path = device.path.to_string_lossy();
        objects.iter().find(|object| {
            let status = object.status.device_status.as_ref();
            let is_known =
                status.is_some_and(|status| status.details.wwn.is_some() || status.details.serial_number.is_some());
            object.spec.dev_path == path && !is_known
        })
    };
    let by_disk = |pick, value: &str| if is_part { None } else { matching(pick, value) };
    matching(|details| &details.uuid, uuid(device))
        .or_else(|| by_disk(|details| &details.wwn, &device.wwn))
        .or_else(|| by_disk(|details| &details.serial_number, &device.serial))
        .or_else(by_path)
}

/// In the form of a random one, but the same whenever the same disk is found: an interrupted start makes no second object.
fn name_for(parts: &[&str]) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update(part.as_bytes());
        hash.update([0]);
    }
    let mut bytes = [0_u8; 16];
    bytes.copy_from_slice(&hash.finalize()[..16]);
    uuid::Builder::from_random_bytes(bytes).into_uuid().to_string()
}

pub(super) fn default_name(node: &str) -> String {
    name_for(&[node, "the default pool"])
}

pub(super) fn new_object(namespace: &str, node: &str, device: &Device) -> BlockDevice {
    let path = device.path.to_string_lossy().into_owned();
    // A partition shares these with its disk.
    let known = if device.wwn.is_empty() { &device.serial } else { &device.wwn };
    let identity = if known.is_empty() || device.kind == DeviceKind::Part { path.as_str() } else { known };
    let mut object = BlockDevice {
        metadata: metadata(namespace, node, name_for(&[node, identity, device.parent.as_ref().map_or("", |_| "part")])),
        spec: BlockDeviceSpec {
            node_name: node.to_owned(),
            dev_path: path,
            provision: Some(false),
            ..BlockDeviceSpec::default()
        },
        status: BlockDeviceStatus { provision_phase: UNPROVISIONED.to_owned(), ..BlockDeviceStatus::default() },
    };
    update(&mut object, device);
    object
}

fn metadata(namespace: &str, node: &str, name: String) -> ObjectMeta {
    ObjectMeta {
        name: Some(name),
        namespace: Some(namespace.to_owned()),
        labels: Some([(NODE_LABEL.to_owned(), node.to_owned())].into()),
        ..ObjectMeta::default()
    }
}

/// Brings an object up to date with what the kernel says.
pub(super) fn update(object: &mut BlockDevice, device: &Device) {
    let text = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    let path = device.path.to_string_lossy().into_owned();
    object.spec.dev_path.clone_from(&path);
    let (kind, label) = match &device.signature {
        Some(Signature::FileSystem { kind, label, .. }) => (kind.clone(), label.clone()),
        _ => (String::new(), String::new()),
    };
    let mount = device.mounts.first().map(|at| at.to_string_lossy().into_owned()).unwrap_or_default();
    let formatted =
        object.status.device_status.as_ref().and_then(|status| status.file_system.last_formatted_at.clone());
    "Active".clone_into(&mut object.status.state);
    object.status.device_status = Some(DeviceStatus {
        parent_device: device.parent.as_ref().map(|parent| parent.to_string_lossy().into_owned()),
        partitioned: !device.partitions.is_empty(),
        dev_path: path,
        capacity: DeviceCapacity {
            size_bytes: whole(device.size_bytes),
            physical_block_size_bytes: whole(device.physical_block_bytes),
        },
        details: DeviceDetails {
            device_type: match device.kind {
                DeviceKind::Disk => "disk",
                DeviceKind::Part => "part",
            }
            .to_owned(),
            drive_type: match device.drive {
                DriveKind::Hdd => "HDD",
                DriveKind::Ssd => "SSD",
            }
            .to_owned(),
            storage_controller: controller(device.controller).to_owned(),
            uuid: text(uuid(device)),
            is_removable: Some(device.is_removable),
            bus_path: text(&device.bus_path),
            model: text(&device.model),
            vendor: text(&device.vendor),
            serial_number: text(&device.serial),
            numa_node_id: device.numa_node.map(i64::from),
            wwn: text(&device.wwn),
            label: text(&label),
            ..DeviceDetails::default()
        },
        file_system: DeviceFileSystem {
            type_: kind,
            mount_point: mount,
            is_read_only: Some(device.is_read_only),
            last_formatted_at: formatted,
            ..DeviceFileSystem::default()
        },
    });
}

/// What has changed by being made a pool.
pub(super) fn mounted(object: &mut BlockDevice, pool: &Pool) {
    if let (Backing::Device(path), Some(status)) = (pool.backing(), &mut object.status.device_status) {
        status.file_system.mount_point = pool.dir().to_string_lossy().into_owned();
        if let Ok(device) = croft_block::inspect(path) {
            status.details.uuid = Some(uuid(&device).to_owned());
            if let Some(Signature::FileSystem { kind, .. }) = &device.signature {
                status.file_system.type_.clone_from(kind);
            }
        }
    }
}

fn controller(controller: Controller) -> &'static str {
    match controller {
        Controller::Scsi => "SCSI",
        Controller::Ide => "IDE",
        Controller::Virtio => "virtio",
        Controller::Mmc => "MMC",
        Controller::Nvme => "NVMe",
        Controller::Unknown => "Unknown",
    }
}

fn whole(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// The node's own pool, in the same words.
pub(super) fn default_object(
    namespace: &str,
    node: &str,
    pool: &Pool,
    usage: Usage,
    old: Option<&BlockDevice>,
) -> BlockDevice {
    let mut object = old.cloned().unwrap_or_else(|| {
        let mut metadata = metadata(namespace, node, default_name(node));
        metadata.labels.get_or_insert_default().insert(POOL_LABEL.to_owned(), pool.id().to_owned());
        BlockDevice { metadata, ..BlockDevice::default() }
    });
    let dir = pool.dir().to_string_lossy().into_owned();
    let path = match pool.backing() {
        Backing::Directory => dir.clone(),
        Backing::LoopFile(file) => file.to_string_lossy().into_owned(),
        Backing::Device(device) => device.to_string_lossy().into_owned(),
    };
    node.clone_into(&mut object.spec.node_name);
    object.spec.dev_path.clone_from(&path);
    object.spec.provision = Some(true);
    object.spec.file_system = BlockDeviceFileSystem { mount_point: dir.clone(), ..object.spec.file_system };
    // The size of the whole, which does not move with every file.
    let before = object.status.device_status.as_ref().map_or(0, |status| status.capacity.size_bytes);
    let now = whole(usage.capacity_bytes);
    let size_bytes = if before.abs_diff(now) < usage.capacity_bytes / 50 { before } else { now };
    "Active".clone_into(&mut object.status.state);
    PROVISIONED.clone_into(&mut object.status.provision_phase);
    object.status.device_status = Some(DeviceStatus {
        dev_path: path,
        capacity: DeviceCapacity { size_bytes, physical_block_size_bytes: 4096 },
        details: DeviceDetails {
            device_type: "disk".to_owned(),
            drive_type: "Unknown".to_owned(),
            storage_controller: "Unknown".to_owned(),
            label: Some("croft".to_owned()),
            ..DeviceDetails::default()
        },
        file_system: DeviceFileSystem { mount_point: dir, ..DeviceFileSystem::default() },
        ..DeviceStatus::default()
    });
    object
}

#[cfg(test)]
mod tests {
    use kube::ResourceExt;

    use super::*;

    fn device(change: impl FnOnce(&mut Device)) -> Device {
        let mut device = Device {
            name: "sdb".to_owned(),
            path: "/dev/sdb".into(),
            major: 8,
            minor: 16,
            kind: DeviceKind::Disk,
            parent: None,
            partitions: Vec::new(),
            size_bytes: 1 << 40,
            physical_block_bytes: 4096,
            drive: DriveKind::Ssd,
            controller: Controller::Scsi,
            is_removable: false,
            is_read_only: false,
            model: "M".to_owned(),
            vendor: "V".to_owned(),
            serial: "S1".to_owned(),
            wwn: "W1".to_owned(),
            bus_path: String::new(),
            numa_node: None,
            mounts: Vec::new(),
            is_swap: false,
            holders: Vec::new(),
            signature: None,
        };
        change(&mut device);
        device
    }

    #[test]
    fn a_disk_is_known_again_wherever_it_is_plugged_in() {
        let first = device(|_| {});
        let objects = [Arc::new(new_object("ns", "node", &first))];
        let moved = |device: &Device| find(&objects, device).is_some();
        assert!(moved(&device(|device| device.path = "/dev/sdc".into())));
        assert!(moved(&device(|device| device.wwn.clear())), "by its serial number");
        let other = device(|device| (device.wwn, device.serial) = ("W2".to_owned(), "S2".to_owned()));
        assert!(!moved(&other), "another disk at the same place");
        assert_eq!(new_object("ns", "node", &first).name_any(), objects[0].name_any());
        assert_ne!(new_object("ns", "other", &first).name_any(), objects[0].name_any());
        let part = device(|device| (device.kind, device.parent) = (DeviceKind::Part, Some("/dev/sdb".into())));
        assert!(!moved(&part), "a partition has the serial number of its disk");
    }

    #[test]
    fn a_disk_without_a_number_is_known_by_its_place() {
        let nameless = |path: &str| {
            device(|device| {
                device.wwn.clear();
                device.serial.clear();
                device.path = path.into();
            })
        };
        let objects = [Arc::new(new_object("ns", "node", &nameless("/dev/vdb")))];
        assert!(find(&objects, &nameless("/dev/vdb")).is_some());
        assert!(find(&objects, &nameless("/dev/vdc")).is_none());
    }

    #[test]
    fn what_the_host_lives_on_is_not_offered() {
        assert!(is_shown(&device(|_| {})));
        assert!(is_shown(&device(|device| device.mounts = vec!["/srv".into()])));
        assert!(!is_shown(&device(|device| device.mounts = vec!["/".into()])));
        assert!(!is_shown(&device(|device| device.is_swap = true)));
        assert!(!is_shown(&device(|device| device.holders = vec!["dm-0".to_owned()])));
        assert!(!is_shown(&device(|device| device.vendor = "Longhorn".to_owned())));
    }
}
