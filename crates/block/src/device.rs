//! The host's block devices, as `/sys` shows them; no daemon is asked.

pub mod signature;

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use crate::mounts::{Mount, mounts};

pub use signature::Signature;

const SYS_BLOCK: &str = "/sys/class/block";
/// `size` is in these, whatever the device's own are.
const SECTOR: u64 = 512;
/// No place for a pool.
const IGNORED: [&str; 4] = ["ram", "zram", "sr", "fd"];
/// Made by software of other devices or files: whoever made them knows what they are for.
const MADE: [&str; 6] = ["loop", "nbd", "dm-", "md", "drbd", "zd"];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceKind {
    Disk,
    Part,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DriveKind {
    Hdd,
    Ssd,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Controller {
    Scsi,
    Ide,
    Virtio,
    Mmc,
    Nvme,
    Unknown,
}

/// One disk or partition.
#[derive(Clone, Debug)]
pub struct Device {
    pub name: String,
    pub path: PathBuf,
    pub major: u32,
    pub minor: u32,
    pub kind: DeviceKind,
    /// The disk that a partition is part of.
    pub parent: Option<PathBuf>,
    pub partitions: Vec<String>,
    pub size_bytes: u64,
    pub physical_block_bytes: u64,
    pub drive: DriveKind,
    pub controller: Controller,
    pub is_removable: bool,
    pub is_read_only: bool,
    pub model: String,
    pub vendor: String,
    pub serial: String,
    pub wwn: String,
    pub bus_path: String,
    pub numa_node: Option<u32>,
    /// Where it is mounted.
    pub mounts: Vec<PathBuf>,
    pub is_swap: bool,
    /// What the kernel has put on top of it.
    pub holders: Vec<String>,
    pub signature: Option<Signature>,
}

#[derive(Debug, thiserror::Error)]
pub enum DeviceError {
    #[error("cannot list the block devices")]
    List(#[source] io::Error),
    #[error("{} is not a block device", .0.display())]
    NotADevice(PathBuf),
    #[error("cannot read what the kernel says about {}", path.display())]
    Describe {
        path: PathBuf,
        #[source]
        err: io::Error,
    },
}

impl Device {
    /// Whether anything of the host, or anybody else, uses it.
    pub fn is_used(&self) -> bool {
        !self.mounts.is_empty() || self.is_swap || !self.holders.is_empty()
    }

    /// Whether software has made it, such as a RAID or a logical volume. Those are not among [`devices`], but can be named.
    pub fn is_made(&self) -> bool {
        MADE.iter().any(|made| self.name.starts_with(made))
    }
}

/// The host's own disks and their partitions, by name. Those that vanish meanwhile, or have no size, are left out.
pub fn devices() -> Result<Vec<Device>, DeviceError> {
    let mounted = mounts().map_err(DeviceError::List)?;
    let swaps = fs::read_to_string("/proc/swaps").unwrap_or_default();
    let mut found = Vec::new();
    for entry in fs::read_dir(SYS_BLOCK).map_err(DeviceError::List)? {
        let name = entry.map_err(DeviceError::List)?.file_name().to_string_lossy().into_owned();
        if IGNORED.iter().chain(&MADE).any(|ignored| name.starts_with(ignored)) {
            continue;
        }
        match describe(&name, &mounted, &swaps) {
            Ok(device) if device.size_bytes > 0 => found.push(device),
            Ok(_) => {}
            Err(error) => tracing::debug!(name, %error, "a device is left out"),
        }
    }
    found.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(found)
}

/// One device by its path, of whatever kind.
pub fn inspect(path: &Path) -> Result<Device, DeviceError> {
    let failed = |err| DeviceError::Describe { path: path.to_owned(), err };
    let found = fs::metadata(path).map_err(failed)?;
    if !found.file_type().is_block_device() {
        return Err(DeviceError::NotADevice(path.to_owned()));
    }
    let (major, minor) = (rustix::fs::major(found.rdev()), rustix::fs::minor(found.rdev()));
    let known = fs::canonicalize(format!("/sys/dev/block/{major}:{minor}")).map_err(failed)?;
    let name = known.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let mounted = mounts().map_err(DeviceError::List)?;
    let swaps = fs::read_to_string("/proc/swaps").unwrap_or_default();
    describe(&name, &mounted, &swaps).map_err(failed)
}

fn describe(name: &str, mounted: &[Mount], swaps: &str) -> io::Result<Device> {
    let directory = fs::canonicalize(Path::new(SYS_BLOCK).join(name))?;
    let path = device_path(name);
    let number = read(&directory, "dev");
    let (major, minor) = number.split_once(':').ok_or_else(|| io::Error::other("the device has no number"))?;
    let parse = |text: &str| text.parse::<u32>().map_err(io::Error::other);
    let (major, minor) = (parse(major)?, parse(minor)?);
    let is_part = directory.join("partition").exists();
    // What belongs to the whole disk is told there only.
    let disk = if is_part { directory.parent().unwrap_or(&directory) } else { &directory };
    let disk_name = disk.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let is_rotational = read(disk, "queue/rotational") == "1";
    let swap = path.to_string_lossy();
    Ok(Device {
        name: name.to_owned(),
        kind: if is_part { DeviceKind::Part } else { DeviceKind::Disk },
        parent: is_part.then(|| device_path(&disk_name)),
        partitions: if is_part { Vec::new() } else { partitions(&directory) },
        size_bytes: read(&directory, "size").parse::<u64>().unwrap_or(0) * SECTOR,
        physical_block_bytes: read(disk, "queue/physical_block_size").parse().unwrap_or(SECTOR),
        drive: if is_rotational { DriveKind::Hdd } else { DriveKind::Ssd },
        controller: controller(&disk_name, disk),
        is_removable: read(disk, "removable") == "1",
        is_read_only: read(&directory, "ro") == "1",
        model: read(disk, "device/model"),
        vendor: read(disk, "device/vendor"),
        serial: first(disk, &["serial", "device/serial", "device/vpd_pg80"]),
        wwn: first(disk, &["wwid", "device/wwid"]),
        bus_path: bus_path(disk),
        numa_node: read(disk, "device/numa_node").parse().ok(),
        mounts: mounted.iter().filter(|at| (at.major, at.minor) == (major, minor)).map(|at| at.at.clone()).collect(),
        is_swap: swaps.lines().any(|line| line.split_whitespace().next() == Some(&*swap)),
        holders: names(&directory.join("holders")),
        signature: signature_of(&path),
        path,
        major,
        minor,
    })
}

/// The kernel writes a slash in a name as an exclamation mark.
fn device_path(name: &str) -> PathBuf {
    Path::new("/dev").join(name.replace('!', "/"))
}

fn read(directory: &Path, file: &str) -> String {
    let bytes = fs::read(directory.join(file)).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    text.chars().filter(|letter| !letter.is_control()).collect::<String>().trim().to_owned()
}

fn first(directory: &Path, files: &[&str]) -> String {
    files.iter().map(|file| read(directory, file)).find(|text| !text.is_empty()).unwrap_or_default()
}

fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

fn partitions(directory: &Path) -> Vec<String> {
    names(directory).into_iter().filter(|name| directory.join(name).join("partition").exists()).collect()
}

fn controller(name: &str, directory: &Path) -> Controller {
    let road = directory.to_string_lossy();
    match name {
        _ if name.starts_with("nvme") => Controller::Nvme,
        _ if name.starts_with("mmcblk") => Controller::Mmc,
        _ if name.starts_with("vd") => Controller::Virtio,
        _ if name.starts_with("hd") => Controller::Ide,
        _ if name.starts_with("sd") && road.contains("/virtio") => Controller::Virtio,
        _ if name.starts_with("sd") => Controller::Scsi,
        _ => Controller::Unknown,
    }
}

/// Where the disk hangs, as far as that stays the same over restarts.
fn bus_path(disk: &Path) -> String {
    let road = fs::canonicalize(disk.join("device")).unwrap_or_default();
    let mut buses = road.iter().map(|part| part.to_string_lossy());
    let last = buses.rfind(|part| part.contains(':') && part.contains('.'));
    last.map_or_else(String::new, |last| format!("pci-{last}"))
}

/// What cannot be read must not be taken for blank.
fn signature_of(path: &Path) -> Option<Signature> {
    match read_start(path) {
        Ok(start) => signature::find(&start),
        Err(error) => {
            tracing::debug!(device = %path.display(), %error, "cannot be read");
            Some(Signature::Unknown)
        }
    }
}

fn read_start(path: &Path) -> io::Result<Vec<u8>> {
    let mut start = Vec::with_capacity(signature::LENGTH);
    File::open(path)?.take(signature::LENGTH as u64).read_to_end(&mut start)?;
    Ok(start)
}

#[cfg(test)]
mod tests;
