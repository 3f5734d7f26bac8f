//! Everything that a machine needs before its QEMU can be started.

use std::collections::BTreeMap;
use std::fs::{DirBuilder, File};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt, chown};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use croft_api::kubevirt::{Disk as DiskSpec, KernelBoot, PersistentVolumeClaimInfo, VirtualMachineInstance};
use croft_api::machine_state::MemorySource;
use croft_meta::{Chain, Quantity};
use croft_qemu::accel::Accel;
use croft_qemu::process::{Companion, Confinement, User, start_companion};
use croft_qemu::spec::{FdRef, FdSet, Firmware, Kernel, Listener, Machine, NicBackend, Source, TpmSocket, Vsock};
use jiff::Timestamp;
use sha2::{Digest, Sha256};

use super::firmware;
use super::host::{Host, ImageWanted, Lacking, Lease, NicWanted, Plugged};
use super::machine::{self, Cable, Medium, Parts, Refusal, Translated};
use super::memory;
use super::volume::{self, Opened};
use crate::cgroup::{Group, Limits};

/// Below are standard input and outputs, and room for what QEMU opens itself is no concern: it takes what is free.
const FIRST_FD: i32 = 16;
const MIB: u64 = 1 << 20;
/// The share of a QEMU that starts: it must not wait behind the firmware of all those that were started before it. What
/// the machine asked for is set once it runs.
const STARTING_MILLIS: u64 = 4000;
/// KVM's own limit for a multi-queue interface is far above what helps.
const QUEUES_MAX: u64 = 16;

pub(super) const CONSOLE_SOCKET: &str = "console.sock";
pub(super) const AGENT_SOCKET: &str = "agent.sock";

pub(super) fn usb_socket(index: usize) -> String {
    format!("usbredir{index}.sock")
}

impl From<Refusal> for Lacking {
    fn from(refusal: Refusal) -> Lacking {
        Lacking::Ever { message: refusal.0 }
    }
}

/// What is known of a volume, for the status.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct VolumeFacts {
    pub(super) size_bytes: u64,
    pub(super) claim: Option<PersistentVolumeClaimInfo>,
}

#[derive(Debug)]
pub(super) struct Prepared {
    pub(super) machine: Machine,
    pub(super) warnings: Vec<String>,
    pub(super) fds: Vec<(i32, OwnedFd)>,
    pub(super) accel: Accel,
    pub(super) confinement: Confinement,
    pub(super) user: Option<Lease>,
    pub(super) volumes: BTreeMap<String, VolumeFacts>,
    /// What the guest goes on from instead of booting.
    pub(super) memory: Option<Resumption>,
}

#[derive(Debug)]
pub(super) struct Resumption {
    pub(super) source: MemorySource,
    pub(super) kept: memory::Kept,
}

/// Descriptors and the numbers that they will have in QEMU.
#[derive(Debug, Default)]
struct Descriptors {
    list: Vec<(i32, OwnedFd)>,
    sets: Vec<FdSet>,
}

impl Descriptors {
    fn add(&mut self, fd: OwnedFd) -> i32 {
        let number = FIRST_FD + i32::try_from(self.list.len()).unwrap_or_default();
        self.list.push((number, fd));
        number
    }

    /// For what QEMU opens by a name.
    fn set(&mut self, fd: OwnedFd) -> u32 {
        let set = u32::try_from(self.sets.len() + 1).unwrap_or_default();
        let fd = self.add(fd);
        self.sets.push(FdSet { set, fd });
        set
    }
}

/// What runs the guest, with a cache for translated code that fits its memory.
pub(super) fn accelerator(accel: Accel, memory_bytes: u64) -> Accel {
    match accel {
        Accel::Tcg { cache_mib: None } => {
            let guest = memory_bytes / MIB;
            // A Linux that boots with less than 32 MiB translates much of its kernel again and again.
            let mib = if guest < 128 { 8 } else { (guest / 8).clamp(32, 512) };
            Accel::Tcg { cache_mib: u32::try_from(mib).ok() }
        }
        known => known,
    }
}

/// What the machine may take of its node.
pub(super) fn limits(vmi: &VirtualMachineInstance, accel: Accel, memory_bytes: u64) -> Result<Limits, Refusal> {
    let spec = &vmi.spec;
    let resources = &spec.domain.resources;
    let millis = |map: &BTreeMap<String, k8s_openapi::apimachinery::pkg::api::resource::Quantity>| {
        let quantity = map.get("cpu").and_then(|written| Quantity::parse(&written.0).ok())?;
        u64::try_from(quantity.milli_value()).ok().filter(|millis| *millis > 0)
    };
    let vcpus = machine::vcpus(spec);
    // QEMU's own threads need a little, even where the guest has all that it may.
    let cpu_millis = millis(&resources.limits).map(|millis| millis.max(100) + 100);
    let overhead = machine::overhead(spec, accel)?;
    Ok(Limits {
        cpu_millis,
        cpu_request_millis: millis(&resources.requests).unwrap_or(vcpus * 100),
        memory_bytes: Some(memory_bytes + overhead),
    })
}

pub(super) async fn prepare(host: &Host, vmi: &VirtualMachineInstance) -> Result<Prepared, Lacking> {
    let uid = vmi.metadata.uid.as_deref().unwrap_or_default();
    let spec = &vmi.spec;
    let memory = machine::guest_memory(spec)?;
    let accel = host.accelerator.wait().await.map_err(Lacking::ever)?;
    let accel = accelerator(accel, memory);
    let mut descriptors = Descriptors::default();
    let mut parts = Parts {
        accel,
        now: Timestamp::now(),
        media: BTreeMap::new(),
        cables: BTreeMap::new(),
        firmware: Firmware::Bios,
        kernel: None,
        serial: None,
        agent: None,
        usb_redirections: Vec::new(),
        tpm: None,
        vsock: None,
    };
    let volumes = open_volumes(host, vmi, &mut parts, &mut descriptors).await?;
    firmware::settle(host, vmi).await?;
    if let Some(efi) = machine::efi(spec) {
        let flash = firmware::flash(host, vmi, efi).await?;
        let vars = Source::FdSet { set: descriptors.set(flash.vars), is_device: false };
        parts.firmware = Firmware::Uefi { code: flash.code, vars, has_secure_boot: flash.has_secure_boot };
    }
    if let Some(boot) = spec.domain.firmware.as_ref().and_then(|firmware| firmware.kernel_boot.as_ref()) {
        parts.kernel = Some(kernel(host, vmi, boot, &mut descriptors).await?);
    }
    listen(host, vmi, &mut parts, &mut descriptors)?;
    parts.vsock = vsock(vmi, &mut descriptors)?;
    plug_nics(host, vmi, &mut parts, &mut descriptors).await?;
    let (confinement, user) = confine(host, vmi, accel, memory)?;
    let memory = resumption(host, vmi).await?;
    if machine::has_tpm(spec) {
        let ours = start_tpm(host, vmi, &confinement, memory.is_some()).await?;
        parts.tpm = Some(TpmSocket::Fd(descriptors.add(ours)));
    }
    let Translated { mut machine, warnings } = machine::translate(vmi, &parts)?;
    machine.fd_sets = descriptors.sets;
    machine.is_incoming = memory.is_some();
    tracing::debug!(vmi = uid, fds = descriptors.list.len(), "machine prepared");
    Ok(Prepared { machine, warnings, fds: descriptors.list, accel, confinement, user, volumes, memory })
}

/// The memory that the machine is to go on from, if it has not yet.
async fn resumption(host: &Host, vmi: &VirtualMachineInstance) -> Result<Option<Resumption>, Lacking> {
    let Some(source) = MemorySource::of(&vmi.metadata) else { return Ok(None) };
    if memory::is_resumed(&firmware::state_dir(host, vmi), &source) {
        return Ok(None);
    }
    let path = host.storage.memory(vmi.metadata.namespace.as_deref().unwrap_or_default(), &source.snapshot)?;
    let kept = off_worker(move || memory::open(&path).map_err(io::Error::other)).await;
    let kept = kept.map_err(|error| Lacking::ever(format!("the memory that was kept: {}", Chain(&error))))?;
    Ok(Some(Resumption { source, kept }))
}

/// Whether nothing will be written through a disk.
pub(super) fn is_only_read(disk: &DiskSpec) -> bool {
    let is_marked = disk.disk.as_ref().and_then(|disk| disk.readonly) == Some(true)
        || disk.lun.as_ref().and_then(|lun| lun.readonly) == Some(true);
    disk.cdrom.is_some() || is_marked
}

async fn open_volumes(
    host: &Host,
    vmi: &VirtualMachineInstance,
    parts: &mut Parts,
    descriptors: &mut Descriptors,
) -> Result<BTreeMap<String, VolumeFacts>, Lacking> {
    let mut facts = BTreeMap::new();
    for disk in &vmi.spec.domain.devices.disks {
        let Some(volume) = vmi.spec.volumes.iter().find(|volume| volume.name == disk.name) else { continue };
        let opened = match volume::open(host, vmi, volume, is_only_read(disk)).await {
            // A disk that was plugged in later can come later again.
            Err(Lacking::Yet { .. }) if volume::is_hotpluggable(volume) => continue,
            opened => opened?,
        };
        let known = VolumeFacts { size_bytes: opened.size_bytes, claim: opened.claim.clone() };
        facts.insert(volume.name.clone(), known);
        let (medium, fd) = medium(host, opened, |_| 0);
        let set = descriptors.set(fd);
        let source = Source::FdSet { set, is_device: medium.is_block };
        parts.media.insert(volume.name.clone(), Medium { source, ..medium });
    }
    Ok(facts)
}

/// An opened volume as a disk sees it, under the number that `set` gives it.
pub(super) fn medium(host: &Host, opened: Opened, set: impl FnOnce(&Opened) -> u32) -> (Medium, OwnedFd) {
    let source = Source::FdSet { set: set(&opened), is_device: opened.is_block };
    let medium = Medium {
        source,
        is_block: opened.is_block,
        is_read_only: opened.is_read_only,
        is_direct: opened.is_direct,
        block_bytes: opened.block_bytes,
        has_io_uring: host.accelerator.has_io_uring(),
        is_preallocated: opened.claim.as_ref().and_then(|claim| claim.preallocated) == Some(true),
    };
    (medium, opened.fd)
}

/// A kernel out of an image. QEMU opens it by its descriptor's name, which asks for the right to read the file itself.
async fn kernel(
    host: &Host,
    vmi: &VirtualMachineInstance,
    boot: &KernelBoot,
    descriptors: &mut Descriptors,
) -> Result<Kernel, Lacking> {
    let uid = vmi.metadata.uid.as_deref().unwrap_or_default();
    let Some(container) = &boot.container else { return Err(Lacking::ever("kernelBoot names no image")) };
    let mut files: BTreeMap<&str, PathBuf> = BTreeMap::new();
    for (name, path) in [("kernel", &container.kernel_path), ("initrd", &container.initrd_path)] {
        let Some(path) = path.as_ref().filter(|path| !path.is_empty()) else { continue };
        let wanted = ImageWanted {
            namespace: vmi.metadata.namespace.clone().unwrap_or_default(),
            image: container.image.clone(),
            pull_policy: container.image_pull_policy.clone(),
            pull_secret: container.image_pull_secret.clone(),
            path: Some(path.clone()),
            is_disk: false,
        };
        let shared = host.images.ensure(&wanted).await?;
        let own = host.scratch_dir(uid).join(name);
        let made = own.clone();
        let open = move || -> io::Result<OwnedFd> {
            volume::clone(&shared, &made)?;
            std::fs::set_permissions(&made, PermissionsExt::from_mode(0o444))?;
            Ok(File::open(&made)?.into())
        };
        let fd = off_worker(open).await.map_err(|error| Lacking::ever(format!("kernelBoot, {name}: {error}")))?;
        files.insert(name, PathBuf::from(format!("/proc/self/fd/{}", descriptors.add(fd))));
    }
    let Some(image) = files.remove("kernel") else { return Err(Lacking::ever("kernelBoot names no kernel")) };
    Ok(Kernel { image, initrd: files.remove("initrd"), command_line: boot.kernel_args.clone().unwrap_or_default() })
}

async fn off_worker<T: Send + 'static>(work: impl FnOnce() -> io::Result<T> + Send + 'static) -> io::Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(io::Error::other).flatten()
}

/// Sockets that we listen on before QEMU exists, in a directory that it cannot enter.
fn listen(
    host: &Host,
    vmi: &VirtualMachineInstance,
    parts: &mut Parts,
    descriptors: &mut Descriptors,
) -> Result<(), Lacking> {
    let dir = host.machine_dir(vmi.metadata.uid.as_deref().unwrap_or_default());
    let mut socket = |name: &str| -> Result<Listener, Lacking> {
        let path = dir.join(name);
        let failed = |error: io::Error| Lacking::ever(format!("cannot listen on {}: {error}", path.display()));
        DirBuilder::new().recursive(true).mode(0o700).create(&dir).map_err(failed)?;
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
            _ => {}
        }
        Ok(Listener::Fd(descriptors.add(UnixListener::bind(&path).map_err(failed)?.into())))
    };
    if machine::has_serial(&vmi.spec) {
        parts.serial = Some(socket(CONSOLE_SOCKET)?);
    }
    parts.agent = Some(socket(AGENT_SOCKET)?);
    for index in 0..machine::usb_redirections(&vmi.spec) {
        parts.usb_redirections.push(socket(&usb_socket(index))?);
    }
    Ok(())
}

/// The guest's address on this host. The same machine gets the same one, unless another has it, which QEMU refuses.
pub(super) fn vsock_cid(vmi: &VirtualMachineInstance) -> Option<u32> {
    if vmi.spec.domain.devices.autoattach_vsock != Some(true) {
        return None;
    }
    let known = vmi.status.as_ref().and_then(|status| status.vsock_cid);
    let digest = Sha256::digest(vmi.metadata.uid.as_deref().unwrap_or_default());
    let number = u32::from_be_bytes([digest[0], digest[1], digest[2], digest[3]]);
    known.or(Some(3 + number % (u32::MAX - 4)))
}

fn vsock(vmi: &VirtualMachineInstance, descriptors: &mut Descriptors) -> Result<Option<Vsock>, Lacking> {
    let Some(cid) = vsock_cid(vmi) else { return Ok(None) };
    let device = std::fs::OpenOptions::new().read(true).write(true).open("/dev/vhost-vsock");
    let device = device.map_err(|error| {
        Lacking::ever(format!("domain.devices.autoattachVSOCK: this node has no /dev/vhost-vsock: {error}"))
    })?;
    Ok(Some(Vsock { cid, vhost_fd: Some(descriptors.add(device.into())) }))
}

/// How many queues each interface has.
pub(super) fn queues(vmi: &VirtualMachineInstance, model: Option<&str>) -> u16 {
    let is_virtio = matches!(model, None | Some("" | "virtio"));
    if !is_virtio || vmi.spec.domain.devices.network_interface_multiqueue != Some(true) {
        return 1;
    }
    u16::try_from(machine::vcpus(&vmi.spec).clamp(1, QUEUES_MAX)).unwrap_or(1)
}

async fn plug_nics(
    host: &Host,
    vmi: &VirtualMachineInstance,
    parts: &mut Parts,
    descriptors: &mut Descriptors,
) -> Result<(), Lacking> {
    for interface in &vmi.spec.domain.devices.interfaces {
        if interface.state.as_deref() == Some("absent") {
            continue;
        }
        let mac = machine::interface_mac(vmi, interface)?.0;
        let queues = queues(vmi, interface.model.as_deref());
        let plugged = host.nics.plug(NicWanted { vmi, interface, mac, queues }).await?;
        let mut inherit = |fds: Vec<OwnedFd>| -> Vec<FdRef> {
            fds.into_iter().map(|fd| FdRef::Inherited(descriptors.add(fd))).collect()
        };
        let cable = match plugged {
            Plugged::Tap { fds, mtu } => {
                let vhost = vhost_fds(interface.model.as_deref(), fds.len());
                Cable { backend: NicBackend::Tap { fds: inherit(fds), vhost_fds: inherit(vhost) }, mtu }
            }
            Plugged::User { forwards } => Cable { backend: NicBackend::User { forwards }, mtu: None },
        };
        parts.cables.insert(interface.name.clone(), cable);
    }
    Ok(())
}

/// The kernel's own packet path, where there is one: one descriptor a queue, or none at all.
pub(super) fn vhost_fds(model: Option<&str>, queues: usize) -> Vec<OwnedFd> {
    if !matches!(model, None | Some("" | "virtio")) {
        return Vec::new();
    }
    let open = |_| std::fs::OpenOptions::new().read(true).write(true).open("/dev/vhost-net").map(OwnedFd::from);
    (0..queues).map(open).collect::<io::Result<Vec<_>>>().unwrap_or_default()
}

/// The machine's user and control group.
fn confine(
    host: &Host,
    vmi: &VirtualMachineInstance,
    accel: Accel,
    memory: u64,
) -> Result<(Confinement, Option<Lease>), Lacking> {
    let uid = vmi.metadata.uid.as_deref().unwrap_or_default();
    let limits = Limits { cpu_request_millis: STARTING_MILLIS, ..limits(vmi, accel, memory)? };
    let group = match &host.cgroups {
        Some(cgroups) => Some(cgroups.create(uid, limits).map_err(|error| Lacking::ever(Chain(&error).to_string()))?),
        None => None,
    };
    let groups = group.as_ref().map(Group::procs).unwrap_or_default();
    let lease = host.users.take(accel);
    Ok((Confinement { user: lease.as_ref().map(|lease| lease.user), groups }, lease))
}

/// Starts the machine's TPM and gives QEMU's end of the connection to it. It ends when QEMU lets go.
async fn start_tpm(
    host: &Host,
    vmi: &VirtualMachineInstance,
    confinement: &Confinement,
    is_resumed: bool,
) -> Result<OwnedFd, Lacking> {
    let uid = vmi.metadata.uid.as_deref().unwrap_or_default();
    let is_kept = vmi.spec.domain.devices.tpm.as_ref().and_then(|tpm| tpm.persistent) == Some(true);
    let state = if is_kept { firmware::state_dir(host, vmi) } else { host.scratch_dir(uid) }.join("tpm");
    let user = confinement.user;
    let failed = |error: io::Error| Lacking::ever(format!("cannot prepare the TPM's state: {error}"));
    let made = state.clone();
    let directory = off_worker(move || hand_over(&made, user)).await.map_err(failed)?;
    let (qemu_end, tpm_end) = UnixStream::pair().map_err(failed)?;
    let dir = host.machine_dir(uid);
    let mut args = [
        "socket",
        "--tpm2",
        "--terminate",
        "--ctrl",
        "type=unixio,clientfd=3",
        // By its descriptor, since the way to it is closed to others.
        "--tpmstate",
        "dir=/proc/self/fd/4,mode=0600",
        "--seccomp",
        "action=kill",
    ]
    .map(str::to_owned)
    .to_vec();
    if !is_resumed {
        // One that goes on is brought to where it was by QEMU.
        args.extend(["--flags", "startup-clear"].map(str::to_owned));
    }
    let companion =
        Companion { binary: &host.swtpm, dir: &dir, args, fds: vec![(3, tpm_end.into()), (4, directory)], confinement };
    start_companion(companion).await.map_err(|error| {
        Lacking::ever(format!("domain.devices.tpm: {}: is swtpm installed on this node?", Chain(&error)))
    })?;
    Ok(qemu_end.into())
}

/// A directory of the machine's own user, with what a former user of this machine left there.
fn hand_over(dir: &Path, user: Option<User>) -> io::Result<OwnedFd> {
    DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    if let Some(user) = user {
        for entry in std::fs::read_dir(dir)? {
            let path = entry?.path();
            // Never through a link: the former user may have been hostile.
            std::os::unix::fs::lchown(path, Some(user.uid), Some(user.gid))?;
        }
        chown(dir, Some(user.uid), Some(user.gid))?;
    }
    let flags = rustix::fs::OFlags::DIRECTORY | rustix::fs::OFlags::NOFOLLOW;
    let flags = i32::try_from(flags.bits()).unwrap_or_default();
    let opened = std::fs::OpenOptions::new().read(true).custom_flags(flags).open(dir)?;
    debug_assert!(opened.as_raw_fd() > 2);
    Ok(opened.into())
}
