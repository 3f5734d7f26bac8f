//! The real QEMU, emulating guests that have no operating system.

use std::fs;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use croft_qemu::accel::Accel;
use croft_qemu::args::disk::{self, Place};
use croft_qemu::args::{hotplug_buses, nic};
use croft_qemu::process::{self, Companion, Confinement, Exit, Launch, Process, ProcessError, User};
use croft_qemu::qga::{Agent, AgentError};
use croft_qemu::qmp::commands::Screenshot;
use croft_qemu::qmp::{EventError, Events, Qmp, QmpError};
use croft_qemu::spec::{Bus, FdSet, PanicDevice, Sound, Source, Tpm, TpmModel, TpmSocket};
use croft_qemu::spec::{
    Disk, FdRef, Firmware, Id, Input, Listener, Mac, Machine, Nic, NicBackend, NicModel, OnPowerOff, Serial, Video,
    Vnc, Watchdog, WatchdogAction,
};
use tempfile::TempDir;
use uuid::Uuid;

const QEMU: &str = "qemu-system-x86_64";

fn id(text: &str) -> Id {
    Id::new(text).unwrap()
}

fn machine() -> Machine {
    Machine::new("test", Uuid::new_v4(), 64 << 20)
}

async fn start(dir: &Path, machine: &Machine) -> Result<(Process, Qmp, Events), ProcessError> {
    start_with(dir, machine, Vec::new()).await
}

async fn start_with(
    dir: &Path,
    machine: &Machine,
    fds: Vec<(i32, OwnedFd)>,
) -> Result<(Process, Qmp, Events), ProcessError> {
    let accel = Accel::Tcg { cache_mib: Some(8) };
    Process::start(Launch { binary: Path::new(QEMU), dir, machine, accel, fds, confinement: &Confinement::default() })
        .await
}

/// Ends a QEMU whatever becomes of the test.
struct Killed(Process);

impl Drop for Killed {
    fn drop(&mut self) {
        self.0.kill();
    }
}

fn disk_file(dir: &Path, name: &str, bytes: u64) -> PathBuf {
    let path = dir.join(name);
    fs::File::create(&path).unwrap().set_len(bytes).unwrap();
    path
}

/// A disk whose boot sector is this code.
fn boot_disk(dir: &Path, code: &[u8]) -> Disk {
    let path = disk_file(dir, "boot.img", 1 << 20);
    let mut sector = vec![0; 512];
    sector[..code.len()].copy_from_slice(code);
    sector[510..].copy_from_slice(&[0x55, 0xaa]);
    fs::OpenOptions::new().write(true).open(&path).unwrap().write_all(&sector).unwrap();
    Disk { boot_index: Some(1), ..Disk::new(id("root"), Source::File(path)) }
}

/// mov dx,0x3f8; mov al,'K'; out dx,al; hlt; jmp $-1: a letter on the serial port.
const SAYS_K: &[u8] = &[0xba, 0xf8, 0x03, 0xb0, b'K', 0xee, 0xf4, 0xeb, 0xfd];
/// mov dx,0x604; mov ax,0x2000; out dx,ax; hlt; jmp $-1: the chipset's power off.
const POWERS_OFF: &[u8] = &[0xba, 0x04, 0x06, 0xb8, 0x00, 0x20, 0xef, 0xf4, 0xeb, 0xfd];

/// Where it is refused, the reason is QEMU's own.
#[tokio::test]
async fn io_uring_is_tried_out() {
    let path = std::env::var_os("PATH").unwrap();
    let found = std::env::split_paths(&path).map(|dir| dir.join(QEMU)).find(|file| file.is_file());
    let qemu = found.expect("QEMU is installed");
    let is_allowed = fs::read_to_string("/proc/sys/kernel/io_uring_disabled").is_ok_and(|text| text.trim() == "0");
    assert_eq!(croft_qemu::io_uring::try_out(&qemu).await.is_ok(), is_allowed);
    assert!(croft_qemu::io_uring::try_out(Path::new("/bin/false")).await.is_err());
}

#[tokio::test]
async fn a_machine_lives_and_ends() {
    let dir = TempDir::new().unwrap();
    let home = dir.path().join("vm");
    let machine = machine();
    let (process, qmp, mut events) = start(&home, &machine).await.unwrap();
    let process = Killed(process);
    assert!(qmp.version().major >= 7);
    assert_eq!(qmp.status().await.unwrap().status, "prelaunch");
    assert_eq!(qmp.uuid().await.unwrap(), machine.uuid.to_string());
    qmp.cont().await.unwrap();
    events.wait_for("RESUME").await.unwrap();
    assert!(qmp.status().await.unwrap().running);
    assert_eq!(qmp.cpus().await.unwrap().len(), 1);
    qmp.stop().await.unwrap();
    events.wait_for("STOP").await.unwrap();
    qmp.system_reset().await.unwrap();
    events.wait_for("RESET").await.unwrap();
    qmp.cont().await.unwrap();
    assert!(qmp.human("info version").await.unwrap().contains('.'));
    assert!(qmp.execute::<serde_json::Value>("query-qmp-schema", serde_json::json!({})).await.unwrap().is_array());
    let unknown = qmp.run("no-such-command", serde_json::json!({})).await.unwrap_err();
    assert!(matches!(&unknown, QmpError::Command { class, .. } if class == "CommandNotFound"), "{unknown:?}");

    // It leads a session of its own, so that ours may end.
    let stat = fs::read_to_string(format!("/proc/{}/stat", process.0.pid())).unwrap();
    let session = stat.rsplit_once(") ").unwrap().1.split(' ').nth(3).unwrap().to_owned();
    assert_eq!(session, process.0.pid().to_string());

    let again = start(&home, &machine).await;
    assert!(matches!(again, Err(ProcessError::AlreadyRunning { .. })), "{again:?}");
    let removal = process::remove(&home).await;
    assert!(matches!(removal, Err(ProcessError::AlreadyRunning { .. })), "{removal:?}");

    qmp.quit().await.unwrap();
    assert_eq!(process.0.wait().await, Exit { code: Some(0), signal: None });
    assert!(process.0.has_exited());
    process::remove(&home).await.unwrap();
    assert!(!home.exists());
    process::remove(&home).await.unwrap();
}

#[tokio::test]
async fn a_forgotten_machine_is_adopted_with_or_without_its_record() {
    let dir = TempDir::new().unwrap();
    let (home, dead) = (dir.path().join("a"), dir.path().join("b"));
    fs::create_dir(&dead).unwrap();
    let machine = machine();
    let (process, qmp, events) = start(&home, &machine).await.unwrap();
    let guard = Killed(process);
    let pid = guard.0.pid();
    qmp.cont().await.unwrap();
    drop((qmp, events));

    let found = process::leftovers(dir.path()).await.unwrap();
    assert_eq!(found.iter().map(|left| left.pid).collect::<Vec<_>>(), [Some(pid), None]);
    for is_recorded in [true, false] {
        if !is_recorded {
            fs::remove_file(home.join("process.json")).unwrap();
        }
        let (adopted, qmp, _events) = Process::adopt(&home, machine.uuid).await.unwrap();
        assert_eq!(adopted.pid(), pid);
        assert!(qmp.status().await.unwrap().running);
    }
    assert!(home.join("process.json").exists());

    let other = Process::adopt(&home, Uuid::nil()).await;
    assert!(matches!(other, Err(ProcessError::OtherMachine { .. })), "{other:?}");
    let (adopted, qmp, _events) = Process::adopt(&home, machine.uuid).await.unwrap();
    qmp.quit().await.unwrap();
    adopted.wait().await;
    guard.0.wait().await;
    for gone in [&home, &dead] {
        let nothing = Process::adopt(gone, machine.uuid).await;
        assert!(matches!(nothing, Err(ProcessError::NotRunning { .. })), "{nothing:?}");
    }
}

#[tokio::test]
async fn a_killed_qemu_is_noticed_by_all() {
    let dir = TempDir::new().unwrap();
    let (process, qmp, mut events) = start(&dir.path().join("vm"), &machine()).await.unwrap();
    // A stopped process answers nothing, so the command below is still waiting when the end comes.
    let pid = rustix::process::Pid::from_raw(i32::try_from(process.pid()).unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::STOP).unwrap();
    let kill = async {
        tokio::task::yield_now().await;
        process.kill();
    };
    let (status, ()) = tokio::join!(qmp.status(), kill);
    assert!(matches!(status, Err(QmpError::Disconnected)), "{status:?}");
    assert_eq!(process.wait().await, Exit { code: None, signal: Some(9) });
    assert_eq!(events.wait_for("NEVER").await, Err(EventError::Disconnected));
    assert!(matches!(qmp.cont().await, Err(QmpError::Disconnected)));
    process.kill();
}

#[tokio::test]
async fn a_qemu_that_cannot_start_says_why() {
    let dir = TempDir::new().unwrap();
    let home = dir.path().join("vm");
    let mut broken = machine();
    broken.disks = vec![Disk::new(id("root"), Source::File("/nonexistent/disk.img".into()))];
    let error = start(&home, &broken).await.unwrap_err();
    assert!(error.to_string().contains("/nonexistent/disk.img"), "{error}");
    // Nothing is left of it, and the directory serves again.
    let (process, qmp, _events) = start(&home, &machine()).await.unwrap();
    qmp.quit().await.unwrap();
    process.wait().await;

    let launch = Launch {
        binary: Path::new("/nonexistent/qemu"),
        dir: &home,
        machine: &machine(),
        accel: Accel::Tcg { cache_mib: None },
        fds: Vec::new(),
        confinement: &Confinement::default(),
    };
    let error = Process::start(launch).await.unwrap_err();
    assert!(error.to_string().contains("/nonexistent/qemu"), "{error}");
}

#[tokio::test]
async fn a_disk_is_plugged_grown_and_counted() {
    let dir = TempDir::new().unwrap();
    let mut machine = machine();
    machine.hotplug_ports = 1;
    let (process, qmp, _events) = start(&dir.path().join("vm"), &machine).await.unwrap();
    let _process = Killed(process);
    qmp.cont().await.unwrap();

    let file = disk_file(dir.path(), "hot.img", 1 << 20);
    let hot = Disk { serial: Some("a,b".into()), ..Disk::new(id("hot"), Source::File(file)) };
    qmp.blockdev_add(disk::node(&hot).unwrap().unwrap()).await.unwrap();
    let bus = &hotplug_buses(&machine)[0];
    qmp.device_add(disk::device(&hot, &Place::on(bus)).unwrap()).await.unwrap();
    let blocks = qmp.block().await.unwrap();
    let block = blocks.iter().find(|block| block.qdev.as_deref().is_some_and(|path| path.contains("/hot/"))).unwrap();
    assert_eq!(block.inserted.as_ref().unwrap().image.virtual_size, 1 << 20);

    qmp.block_resize("hot", 2 << 20).await.unwrap();
    let blocks = qmp.block().await.unwrap();
    let sizes: Vec<_> = blocks.iter().filter_map(|block| Some(block.inserted.as_ref()?.image.virtual_size)).collect();
    assert_eq!(sizes, [2 << 20]);
    assert_eq!(qmp.block_stats().await.unwrap().len(), 1);

    let twice = qmp.blockdev_add(disk::node(&hot).unwrap().unwrap()).await;
    assert!(matches!(twice, Err(QmpError::Command { .. })), "{twice:?}");
    let used = qmp.blockdev_del("hot").await;
    assert!(matches!(used, Err(QmpError::Command { .. })), "{used:?}");
    assert!(qmp.device_del("no-such").await.unwrap_err().is_device_not_found());
    // The guest has no operating system to let it go, but the request itself is taken.
    qmp.device_del("hot").await.unwrap();
}

#[tokio::test]
async fn descriptors_pass_at_the_start_and_later() {
    let dir = TempDir::new().unwrap();
    let mut machine = machine();
    machine.hotplug_ports = 1;
    let nic = |name: &str, fd: FdRef| Nic {
        id: id(name),
        backend: NicBackend::SocketFd(fd),
        model: NicModel::Virtio,
        mac: Mac([0x52, 0x54, 0, 0, 0, 1]),
        boot_index: None,
        acpi_index: None,
        mtu: None,
    };
    let (cold, _ours) = UnixStream::pair().unwrap();
    machine.nics = vec![nic("cold", FdRef::Inherited(33))];
    let (process, qmp, _events) = start_with(&dir.path().join("vm"), &machine, vec![(33, cold.into())]).await.unwrap();
    let _process = Killed(process);

    let (hot, _ours_too) = UnixStream::pair().unwrap();
    let hot_nic = nic("hot", FdRef::Named(id("hot-fd")));
    qmp.getfd("hot-fd", hot.into()).await.unwrap();
    qmp.netdev_add(nic::netdev(&hot_nic).unwrap()).await.unwrap();
    qmp.device_add(nic::device(&hot_nic, Some("spare0")).unwrap()).await.unwrap();
    // Without the descriptor there is nothing of that name.
    let missing = qmp.netdev_add(nic::netdev(&nic("x", FdRef::Named(id("y")))).unwrap()).await;
    assert!(matches!(missing, Err(QmpError::Command { .. })), "{missing:?}");

    let file = fs::OpenOptions::new().read(true).write(true).open(disk_file(dir.path(), "d", 1 << 20)).unwrap();
    let added = qmp.add_fd(7, file.into()).await.unwrap();
    assert_eq!(added.set, 7);
    // By number alone, QEMU need not be able to reach the file.
    qmp.blockdev_add(disk::node(&Disk::new(id("byfd"), Source::FdSet { set: 7, is_device: false })).unwrap().unwrap())
        .await
        .unwrap();
    qmp.blockdev_del("byfd").await.unwrap();
}

/// Everything at once: what the command line says is what QEMU takes, whatever the names hold.
#[tokio::test]
async fn a_machine_with_everything_boots_and_is_seen_and_heard() {
    let dir = TempDir::new().unwrap();
    let odd = dir.path().join("odd, \"name\"=x");
    fs::create_dir(&odd).unwrap();
    let mut machine = machine();
    machine.name = "hostile,process=evil -S \"'".into();
    machine.smbios.manufacturer = Some("a,serial=injected".into());
    machine.smbios.serial = Some(",,x".into());
    machine.iothreads = 1;
    machine.hotplug_ports = 9;
    let boot = Disk { iothread: Some(0), ..boot_disk(&odd, SAYS_K) };
    let scsi = Disk {
        bus: Bus::Scsi,
        serial: Some("x,y".into()),
        ..Disk::new(id("scsi"), Source::File(disk_file(&odd, "s", 4096)))
    };
    let sata = Disk { bus: Bus::Sata, ..Disk::new(id("sata"), Source::File(disk_file(&odd, "t", 4096))) };
    let stick = Disk { bus: Bus::Usb, ..Disk::new(id("stick"), Source::File(disk_file(&odd, "u", 4096))) };
    machine.disks = vec![boot, scsi, sata, stick, Disk::cdrom(id("cd"), None)];
    machine.serial = Some(Serial { socket: Listener::Path(odd.join("serial")), log: Some(odd.join("serial.log")) });
    machine.vnc = Some(Vnc::Socket { path: odd.join("vnc"), has_password: false });
    machine.guest_agent = Some(Listener::Path(odd.join("qga")));
    machine.has_rng = true;
    machine.has_balloon = true;
    machine.watchdog = Some(Watchdog { action: WatchdogAction::Reset });
    machine.video = Video::Vga;
    machine.inputs = vec![Input::UsbTablet, Input::UsbKeyboard, Input::VirtioTablet, Input::VirtioKeyboard];
    machine.nics = [NicModel::Virtio, NicModel::E1000, NicModel::E1000e, NicModel::Rtl8139]
        .into_iter()
        .enumerate()
        .map(|(index, model)| Nic {
            id: id(&format!("nic{index}")),
            backend: NicBackend::User { forwards: Vec::new() },
            model,
            mac: Mac([0x52, 0x54, 0, 0, 0, u8::try_from(index).unwrap()]),
            boot_index: None,
            acpi_index: None,
            mtu: None,
        })
        .collect();

    let (process, qmp, _events) = start(&odd.join("vm"), &machine).await.unwrap();
    let _process = Killed(process);
    let name: serde_json::Value = qmp.execute("query-name", serde_json::json!({})).await.unwrap();
    assert_eq!(name["name"], machine.name);
    assert_eq!(qmp.balloon_bytes().await.unwrap(), 64 << 20);

    let mut console = tokio::net::UnixStream::connect(odd.join("serial")).await.unwrap();
    qmp.cont().await.unwrap();
    let mut letter = [0];
    let heard = tokio::io::AsyncReadExt::read_exact(&mut console, &mut letter);
    tokio::time::timeout(Duration::from_secs(30), heard).await.unwrap().unwrap();
    assert_eq!(&letter, b"K");

    let picture = odd.join("screen.ppm");
    qmp.screendump(&picture, Screenshot::Ppm).await.unwrap();
    // The log is written after the socket, but before QEMU's lock is free for the command above.
    assert_eq!(fs::read(odd.join("serial.log")).unwrap(), b"K");
    let mut magic = [0; 2];
    fs::File::open(&picture).unwrap().read_exact(&mut magic).unwrap();
    assert_eq!(&magic, b"P6");
    let mut greeting = [0; 4];
    let mut screen = tokio::net::UnixStream::connect(odd.join("vnc")).await.unwrap();
    tokio::io::AsyncReadExt::read_exact(&mut screen, &mut greeting).await.unwrap();
    assert_eq!(&greeting, b"RFB ");

    // There is a channel, and nobody at its other end.
    let agent = Agent::new(&odd.join("qga")).with_sync_timeout(Duration::from_millis(50));
    let absent = agent.ping().await;
    assert!(matches!(absent, Err(AgentError::Absent)), "{absent:?}");
}

#[tokio::test]
async fn a_guest_that_powers_off_is_kept_until_seen_or_ends() {
    let dir = TempDir::new().unwrap();
    let mut machine = machine();
    machine.disks = vec![boot_disk(dir.path(), POWERS_OFF)];
    for on_power_off in [OnPowerOff::Stay, OnPowerOff::Exit] {
        machine.on_power_off = on_power_off;
        let home = dir.path().join("vm");
        let (process, qmp, mut events) = start(&home, &machine).await.unwrap();
        let process = Killed(process);
        qmp.cont().await.unwrap();
        let event = events.wait_for("SHUTDOWN").await.unwrap();
        assert_eq!(event.data["guest"], true);
        if on_power_off == OnPowerOff::Stay {
            // Whoever was not there to hear it finds it out all the same.
            drop((qmp, events));
            let (_, qmp, _events) = Process::adopt(&home, machine.uuid).await.unwrap();
            let status = qmp.status().await.unwrap();
            assert_eq!((status.running, status.status.as_str()), (false, "shutdown"));
            qmp.quit().await.unwrap();
        }
        let exit = process.0.wait().await;
        // In the other case two of us follow it, and the kernel tells one of them.
        assert!(on_power_off == OnPowerOff::Stay || exit == Exit { code: Some(0), signal: None }, "{exit:?}");
    }
}

#[tokio::test]
async fn a_cdrom_is_changed_while_the_machine_runs() {
    let dir = TempDir::new().unwrap();
    let mut machine = machine();
    machine.disks = vec![Disk::cdrom(id("cd"), None)];
    let (process, qmp, mut events) = start(&dir.path().join("vm"), &machine).await.unwrap();
    let _process = Killed(process);
    let medium = Disk::cdrom(id("medium"), Some(Source::File(disk_file(dir.path(), "cd.iso", 1 << 20))));
    qmp.blockdev_add(disk::node(&medium).unwrap().unwrap()).await.unwrap();
    // Whether it finds the tray closed or open.
    qmp.insert_medium("cd", "medium").await.unwrap();
    qmp.open_tray("cd", true).await.unwrap();
    events.wait_for("DEVICE_TRAY_MOVED").await.unwrap();
    qmp.remove_medium("cd").await.unwrap();
    qmp.insert_medium("cd", "medium").await.unwrap();
    let block = qmp.block().await.unwrap().remove(0);
    let inserted = block.inserted.unwrap();
    assert_eq!((inserted.image.virtual_size, inserted.ro, block.tray_open), (1 << 20, true, false));
    qmp.open_tray("cd", true).await.unwrap();
    qmp.remove_medium("cd").await.unwrap();
    qmp.blockdev_del("medium").await.unwrap();
    assert!(qmp.block().await.unwrap()[0].inserted.is_none());
}

#[tokio::test]
async fn a_machine_moves_to_another_process() {
    let dir = TempDir::new().unwrap();
    let socket = format!("unix:{}", dir.path().join("move").display());
    let mut machine = machine();
    let (source, from, mut from_events) = start(&dir.path().join("a"), &machine).await.unwrap();
    machine.is_incoming = true;
    let (target, to, mut to_events) = start(&dir.path().join("b"), &machine).await.unwrap();
    let (_source, _target) = (Killed(source), Killed(target));
    for qmp in [&from, &to] {
        qmp.migrate_set_capabilities(&[("events", true)]).await.unwrap();
    }
    from.cont().await.unwrap();
    to.migrate_incoming(&socket).await.unwrap();
    from.migrate(&socket).await.unwrap();
    for events in [&mut from_events, &mut to_events] {
        loop {
            let event = events.wait_for("MIGRATION").await.unwrap();
            assert_ne!(event.data["status"], "failed");
            if event.data["status"] == "completed" {
                break;
            }
        }
    }
    assert_eq!(to.migration().await.unwrap().status.as_deref(), Some("completed"));
    assert_eq!(from.migration().await.unwrap().status.as_deref(), Some("completed"));
    assert!(!from.status().await.unwrap().running);
    to.cont().await.unwrap();
    assert!(to.status().await.unwrap().running);
}

#[tokio::test]
async fn uefi_takes_its_flash() {
    let dir = TempDir::new().unwrap();
    let mut machine = machine();
    // Any file of the right size will do: the machine is never continued.
    let (code, vars) = (disk_file(dir.path(), "code,1.fd", 2 << 20), disk_file(dir.path(), "vars.fd", 1 << 17));
    machine.firmware = Firmware::Uefi { code, vars: Source::File(vars), has_secure_boot: true };
    machine.on_power_off = OnPowerOff::Exit;
    let (process, qmp, _events) = start(&dir.path().join("vm"), &machine).await.unwrap();
    let process = Killed(process);
    assert_eq!(qmp.status().await.unwrap().status, "prelaunch");
    qmp.quit().await.unwrap();
    assert_eq!(process.0.wait().await.code, Some(0));
}

/// QEMU as a user that may touch nothing: all it has came as descriptors. Needs root, as the product does for this.
#[tokio::test]
async fn a_confined_machine_lives_on_its_descriptors() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let dir = TempDir::new().unwrap();
    let home = dir.path().join("vm");
    let user = User { uid: 1_900_000_001, gid: 1_900_000_001 };
    let procs = disk_file(dir.path(), "cgroup.procs", 0);
    let confinement = Confinement { user: Some(user), groups: vec![procs.clone()] };
    let open = |path: &Path| -> OwnedFd { fs::OpenOptions::new().read(true).write(true).open(path).unwrap().into() };
    let boot = boot_disk(dir.path(), SAYS_K);
    let console = dir.path().join("serial.sock");
    let listener = std::os::unix::net::UnixListener::bind(&console).unwrap();
    let (tpm, swtpm) = UnixStream::pair().unwrap();
    let state = dir.path().join("tpm");
    fs::create_dir(&state).unwrap();
    std::os::unix::fs::chown(&state, Some(user.uid), Some(user.gid)).unwrap();
    // The state's own directory is handed over; the way to it may be walked, not read.
    fs::set_permissions(dir.path(), std::os::unix::fs::PermissionsExt::from_mode(0o711)).unwrap();
    fs::create_dir(&home).unwrap();
    let companion = Companion {
        binary: Path::new("swtpm"),
        dir: &home,
        args: ["socket", "--tpm2", "--terminate", "--ctrl", "type=unixio,clientfd=9", "--tpmstate"]
            .map(str::to_owned)
            .into_iter()
            .chain([format!("dir={}", state.display())])
            .collect(),
        fds: vec![(9, swtpm.into())],
        confinement: &confinement,
    };
    process::start_companion(companion).await.unwrap();

    let mut machine = machine();
    machine.fd_sets = vec![FdSet { set: 1, fd: 10 }];
    machine.disks = vec![Disk { source: Some(Source::FdSet { set: 1, is_device: false }), ..boot }];
    machine.serial = Some(Serial { socket: Listener::Fd(11), log: None });
    machine.tpm = Some(Tpm { socket: TpmSocket::Fd(12), model: TpmModel::Crb });
    machine.vnc = Some(Vnc::ByDescriptor);
    machine.video = Video::Vga;
    machine.sound = Some(Sound::Ich9);
    machine.panic_device = Some(PanicDevice::Isa);
    let fds = vec![(10, open(&dir.path().join("boot.img"))), (11, listener.into()), (12, tpm.into())];
    let accel = Accel::Tcg { cache_mib: Some(8) };
    let launch =
        Launch { binary: Path::new(QEMU), dir: &home, machine: &machine, accel, fds, confinement: &confinement };
    let (process, qmp, mut events) = Process::start(launch).await.unwrap();
    let process = Killed(process);
    assert_eq!(fs::read_to_string(&procs).unwrap(), process.0.pid().to_string());
    let status = fs::read_to_string(format!("/proc/{}/status", process.0.pid())).unwrap();
    let line = |key: &str| status.lines().find_map(|line| line.strip_prefix(key)).unwrap().trim().to_owned();
    assert_eq!(line("Uid:").split_whitespace().next(), Some("1900000001"));
    assert_eq!(line("Groups:"), "");
    assert_eq!(line("NoNewPrivs:"), "1");

    let mut serial = tokio::net::UnixStream::connect(&console).await.unwrap();
    qmp.cont().await.unwrap();
    let mut letter = [0];
    let heard = tokio::io::AsyncReadExt::read_exact(&mut serial, &mut letter);
    tokio::time::timeout(Duration::from_secs(30), heard).await.unwrap().unwrap();
    assert_eq!(&letter, b"K");
    let mut greeting = [0; 4];
    let mut screen = qmp.connect_vnc().await.unwrap();
    tokio::io::AsyncReadExt::read_exact(&mut screen, &mut greeting).await.unwrap();
    assert_eq!(&greeting, b"RFB ");
    let picture = dir.path().join("screen.png");
    let file = fs::OpenOptions::new().create(true).write(true).truncate(true).open(&picture).unwrap();
    qmp.add_fd(9, file.into()).await.unwrap();
    qmp.screendump(Path::new("/dev/fdset/9"), Screenshot::Png).await.unwrap();
    qmp.remove_fd(9).await.unwrap();
    assert!(fs::read(&picture).unwrap().starts_with(b"\x89PNG"));
    let dump = fs::File::create(dir.path().join("core")).unwrap();
    qmp.dump_guest_memory(dump.into()).await.unwrap();
    let done = events.wait_for("DUMP_COMPLETED").await.unwrap();
    assert_eq!(done.data["result"]["status"], "completed");
    assert!(fs::metadata(dir.path().join("core")).unwrap().len() >= 64 << 20);

    // Without the record it is found by its mark, and what serves it goes with it.
    fs::remove_file(home.join("process.json")).unwrap();
    assert_eq!(process::leftovers(dir.path()).await.unwrap().iter().filter(|left| left.pid.is_some()).count(), 1);
    process::kill_all(&home).await.unwrap();
    process.0.wait().await;
    assert_eq!(process::leftovers(dir.path()).await.unwrap().iter().filter(|left| left.pid.is_some()).count(), 0);
}

#[tokio::test]
async fn a_log_that_grows_loses_its_beginning() {
    let dir = TempDir::new().unwrap();
    let log = process::log_path(dir.path());
    process::trim_log(dir.path()).await.unwrap();
    let mut writer = fs::OpenOptions::new().create(true).append(true).open(&log).unwrap();
    writer.write_all(&vec![b'x'; 1 << 20]).unwrap();
    process::trim_log(dir.path()).await.unwrap();
    assert_eq!(fs::metadata(&log).unwrap().len(), 1 << 20);
    writer.write_all(b"end").unwrap();
    process::trim_log(dir.path()).await.unwrap();
    writer.write_all(b", and on").unwrap();
    let text = fs::read_to_string(&log).unwrap();
    assert_eq!(text.len(), (64 << 10) + 8);
    assert!(text.ends_with("xend, and on"));
}
