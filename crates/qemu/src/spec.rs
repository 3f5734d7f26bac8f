//! What a machine is, before it is QEMU's command line.
//!
//! Plain data: whoever fills it in has already resolved volumes to paths and networks to descriptors. What QEMU would
//! misread or refuse late is refused by [`crate::args::command_line`].

pub mod devices;
pub mod disk;
pub mod nic;

use std::fmt;
use std::path::PathBuf;

use uuid::Uuid;

pub use devices::{
    Input, Listener, PanicDevice, Serial, Sound, Tpm, TpmModel, TpmSocket, Video, Vnc, Vsock, Watchdog, WatchdogAction,
};
pub use disk::{Aio, BlockSize, Bus, Cache, Disk, DiskKind, ErrorPolicy, Format, Source};
pub use nic::{FdRef, Mac, Nic, NicBackend, NicModel, PortForward, Protocol};

/// Why a machine cannot be given to QEMU.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SpecError {
    #[error("{0:?} is not a name that QEMU takes: a letter, then letters, digits, '-', '.' or '_', 31 in all at most")]
    Id(String),
    #[error("{0:?} is used twice")]
    DuplicateId(String),
    #[error("{0:?} is not a MAC address")]
    Mac(String),
    #[error("{what}: {value:?} has characters that QEMU would misread")]
    Text { what: &'static str, value: String },
    #[error("{what}: {} is not an absolute path in UTF-8", path.display())]
    Path { what: &'static str, path: PathBuf },
    #[error("{0}")]
    Impossible(String),
}

/// The name of a device, node or object inside QEMU. 31 characters is what QEMU allows a block node.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Id(String);

impl Id {
    const MAX: usize = 31;

    pub fn new(text: &str) -> Result<Id, SpecError> {
        let rest = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_');
        let is_valid =
            text.len() <= Self::MAX && text.starts_with(|c: char| c.is_ascii_alphabetic()) && text.chars().all(rest);
        if is_valid { Ok(Id(text.to_owned())) } else { Err(SpecError::Id(text.to_owned())) }
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Machine {
    /// Shown by `ps` and in QEMU's messages; any text.
    pub name: String,
    /// The guest sees it as its system's UUID; we know the process by it.
    pub uuid: Uuid,
    pub chipset: Chipset,
    pub cpu: Cpu,
    pub memory: Memory,
    pub firmware: Firmware,
    /// A kernel that the firmware starts instead of looking for one on the disks.
    pub kernel: Option<Kernel>,
    pub smbios: Smbios,
    pub clock: Clock,
    /// Meaningful to KVM alone: emulation has no Hyper-V interface, and goes without.
    pub hyperv: HyperV,
    /// Threads for disks, numbered from 0.
    pub iothreads: u16,
    pub disks: Vec<Disk>,
    pub nics: Vec<Nic>,
    /// A SCSI controller even without disks, for those that are plugged later.
    pub has_scsi: bool,
    /// Free PCI Express ports for devices that are plugged later. The older chipset needs none.
    pub hotplug_ports: u8,
    pub serial: Option<Serial>,
    pub vnc: Option<Vnc>,
    /// The socket of the guest agent's channel.
    pub guest_agent: Option<Listener>,
    /// One socket for each USB device that a client may lend to the guest.
    pub usb_redirections: Vec<Listener>,
    pub has_rng: bool,
    pub has_balloon: bool,
    pub watchdog: Option<Watchdog>,
    pub tpm: Option<Tpm>,
    pub video: Video,
    pub sound: Option<Sound>,
    pub panic_device: Option<PanicDevice>,
    pub inputs: Vec<Input>,
    pub vsock: Option<Vsock>,
    pub on_power_off: OnPowerOff,
    /// A guest that reboots is powered off instead.
    pub is_reboot_power_off: bool,
    /// Without it the guest cannot be asked to shut down.
    pub has_acpi: bool,
    /// System management mode; firmware with Secure Boot needs it.
    pub has_smm: bool,
    /// Waits for a migration to come in instead of booting.
    pub is_incoming: bool,
    /// Descriptors that QEMU is started with, and the set that each belongs to: see [`Source::FdSet`].
    pub fd_sets: Vec<FdSet>,
}

impl Machine {
    /// A machine with one CPU and nothing attached.
    pub fn new(name: &str, uuid: Uuid, memory_bytes: u64) -> Machine {
        Machine {
            name: name.to_owned(),
            uuid,
            chipset: Chipset::default(),
            cpu: Cpu::default(),
            memory: Memory { bytes: memory_bytes, hotplug: None, backing: MemoryBacking::Anonymous },
            firmware: Firmware::Bios,
            kernel: None,
            smbios: Smbios::default(),
            clock: Clock::default(),
            hyperv: HyperV::default(),
            iothreads: 0,
            disks: Vec::new(),
            nics: Vec::new(),
            has_scsi: false,
            hotplug_ports: 0,
            serial: None,
            vnc: None,
            guest_agent: None,
            usb_redirections: Vec::new(),
            has_rng: false,
            has_balloon: false,
            watchdog: None,
            tpm: None,
            video: Video::None,
            sound: None,
            panic_device: None,
            inputs: Vec::new(),
            vsock: None,
            on_power_off: OnPowerOff::Stay,
            is_reboot_power_off: false,
            has_acpi: true,
            has_smm: true,
            is_incoming: false,
            fd_sets: Vec::new(),
        }
    }
}

/// The mainboard. A version (`7.2`) pins what the guest sees, over QEMU's upgrades and between hosts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Chipset {
    Q35 { version: Option<String> },
    I440fx { version: Option<String> },
}

impl Default for Chipset {
    fn default() -> Self {
        Chipset::Q35 { version: None }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cpu {
    pub model: CpuModel,
    /// Features to force on or off.
    pub features: Vec<(String, bool)>,
    pub sockets: u16,
    pub cores: u16,
    pub threads: u16,
    /// Sockets that CPUs may be plugged into later, the present ones included.
    pub max_sockets: u16,
}

impl Default for Cpu {
    fn default() -> Self {
        Cpu { model: CpuModel::Host, features: Vec::new(), sockets: 1, cores: 1, threads: 1, max_sockets: 1 }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CpuModel {
    /// The host's own under KVM; all that can be emulated otherwise.
    Host,
    Named(String),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Memory {
    pub bytes: u64,
    pub hotplug: Option<MemoryHotplug>,
    pub backing: MemoryBacking,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryHotplug {
    pub max_bytes: u64,
    pub slots: u16,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemoryBacking {
    Anonymous,
    /// Can be handed to another process, as vhost-user devices need.
    Shared,
    Hugepages {
        page_bytes: u64,
    },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Firmware {
    Bios,
    Uefi {
        /// The firmware itself, shared by all and read-only.
        code: PathBuf,
        /// This machine's variables.
        vars: Source,
        has_secure_boot: bool,
    },
}

/// Linux and what it starts with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kernel {
    pub image: PathBuf,
    pub initrd: Option<PathBuf>,
    pub command_line: String,
}

/// A descriptor's number in QEMU, and the set that it is put into.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FdSet {
    pub set: u32,
    pub fd: i32,
}

/// What the firmware tells the guest about its hardware; any text.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Smbios {
    pub manufacturer: Option<String>,
    pub product: Option<String>,
    pub version: Option<String>,
    pub serial: Option<String>,
    pub sku: Option<String>,
    pub family: Option<String>,
    pub chassis: SmbiosChassis,
}

/// The case that the machine is in.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SmbiosChassis {
    pub manufacturer: Option<String>,
    pub version: Option<String>,
    pub serial: Option<String>,
    pub asset: Option<String>,
    pub sku: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Clock {
    pub base: ClockBase,
    pub has_hpet: bool,
    /// The clock stops while the guest does, rather than following the host's.
    pub follows_guest: bool,
    /// Makes up for timer ticks that a busy guest missed; older Windows counts them.
    pub catches_up: bool,
}

impl Default for Clock {
    fn default() -> Self {
        Clock { base: ClockBase::Utc, has_hpet: false, follows_guest: false, catches_up: false }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClockBase {
    Utc,
    LocalTime,
    /// What the clock shows when the machine starts: `2026-01-31T12:00:00`.
    At(String),
}

/// Enlightenments that Windows uses under KVM.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HyperV {
    pub relaxed: bool,
    pub vapic: bool,
    pub spinlock_retries: Option<u32>,
    pub vpindex: bool,
    pub runtime: bool,
    pub synic: bool,
    pub stimer: bool,
    pub stimer_direct: bool,
    pub reset: bool,
    pub vendor_id: Option<String>,
    pub frequencies: bool,
    pub reenlightenment: bool,
    pub tlbflush: bool,
    pub tlbflush_direct: bool,
    pub tlbflush_extended: bool,
    pub ipi: bool,
    pub evmcs: bool,
    /// The reference clock.
    pub time: bool,
    /// All that the host offers.
    pub passthrough: bool,
}

/// What QEMU does when the guest powers off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnPowerOff {
    /// Stays, in status `shutdown`, until it is told to quit: one who was not listening still learns what happened.
    Stay,
    Exit,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_what_qemu_takes_and_nothing_else() {
        for good in ["a", "disk-0", "net_1.x", &"x".repeat(31)] {
            assert_eq!(Id::new(good).unwrap().as_str(), good);
        }
        for bad in ["", "0a", "-a", "a,b", "a b", "a=b", "ä", "a/b", "a\n", &"x".repeat(32)] {
            assert_eq!(Id::new(bad), Err(SpecError::Id(bad.to_owned())));
        }
    }
}
