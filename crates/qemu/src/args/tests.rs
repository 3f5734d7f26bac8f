use super::*;
use crate::spec::*;

const TCG: Accel = Accel::Tcg { cache_mib: Some(8) };

fn id(text: &str) -> Id {
    Id::new(text).unwrap()
}

fn machine() -> Machine {
    Machine::new("vm", "6ba7b810-9dad-11d1-80b4-00c04fd430c8".parse().unwrap(), 64 << 20)
}

fn nic(name: &str, model: NicModel, backend: NicBackend) -> Nic {
    Nic {
        id: id(name),
        backend,
        model,
        mac: Mac([0x52, 0x54, 0, 0, 0, 1]),
        boot_index: None,
        acpi_index: None,
        mtu: None,
    }
}

/// The values of one option, in order.
fn values<'a>(args: &'a [String], option: &str) -> Vec<&'a str> {
    args.windows(2).filter(|pair| pair[0] == option).map(|pair| pair[1].as_str()).collect()
}

fn devices(args: &[String], option: &str) -> Vec<Value> {
    values(args, option).into_iter().map(|text| serde_json::from_str(text).unwrap()).collect()
}

#[test]
fn the_smallest_machine() {
    let args = command_line(&machine(), TCG).unwrap();
    let expected = [
        "-name guest=vm,debug-threads=on",
        "-no-user-config -nodefaults -display none",
        "-sandbox on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny",
        "-msg timestamp=on",
        "-machine type=q35,usb=off,vmport=off,dump-guest-core=off,hpet=off,memory-backend=ram",
        "-accel tcg,tb-size=8",
        "-cpu max",
        "-smp cpus=1,maxcpus=1,sockets=1,cores=1,threads=1",
        "-m size=65536k",
        r#"-object {"id":"ram","qom-type":"memory-backend-ram","size":67108864}"#,
        "-uuid 6ba7b810-9dad-11d1-80b4-00c04fd430c8",
        "-rtc base=utc,clock=host,driftfix=none",
        "-boot strict=on",
        "-action shutdown=pause",
    ];
    assert_eq!(args.join(" "), expected.join(" "));
}

#[test]
fn board_processors_memory_and_firmware() {
    let mut machine = machine();
    machine.chipset = Chipset::Q35 { version: Some("7.2".into()) };
    machine.cpu = Cpu {
        model: CpuModel::Named("Haswell-noTSX".into()),
        features: vec![("vmx".into(), false), ("pcid".into(), true)],
        sockets: 2,
        cores: 3,
        threads: 2,
        max_sockets: 4,
    };
    machine.memory.hotplug = Some(MemoryHotplug { max_bytes: 1 << 30, slots: 8 });
    machine.memory.backing = MemoryBacking::Hugepages { page_bytes: 2 << 20 };
    machine.firmware = Firmware::Uefi {
        code: "/fw/code,1.fd".into(),
        vars: Source::File("/vm/vars.fd".into()),
        has_secure_boot: true,
    };
    machine.clock = Clock { base: ClockBase::LocalTime, has_hpet: true, follows_guest: false, catches_up: true };
    machine.hyperv = HyperV {
        relaxed: true,
        stimer: true,
        spinlock_retries: Some(8191),
        vendor_id: Some("KVMKVM".into()),
        ..HyperV::default()
    };
    machine.is_incoming = true;
    machine.on_power_off = OnPowerOff::Exit;
    let args = command_line(&machine, Accel::Kvm).unwrap();
    for (option, expected) in [
        (
            "-machine",
            "type=pc-q35-7.2,usb=off,vmport=off,dump-guest-core=off,hpet=on,memory-backend=ram,pflash0=pflash0,\
             pflash1=pflash1,smm=on",
        ),
        ("-accel", "kvm"),
        ("-cpu", "Haswell-noTSX,vmx=off,pcid=on,hv-relaxed=on,hv-stimer=on,hv-spinlocks=0x1fff,hv-vendor-id=KVMKVM"),
        ("-smp", "cpus=12,maxcpus=24,sockets=4,cores=3,threads=2"),
        ("-m", "size=65536k,slots=8,maxmem=1048576k"),
        ("-rtc", "base=localtime,clock=host,driftfix=slew"),
        ("-incoming", "defer"),
    ] {
        assert_eq!(values(&args, option), [expected], "{option}");
    }
    assert!(values(&args, "-action").is_empty());
    assert_eq!(
        devices(&args, "-object"),
        [json!({ "qom-type": "memory-backend-memfd", "id": "ram", "size": 64 << 20, "hugetlb": true,
            "hugetlbsize": 2 << 20, "prealloc": true })]
    );
    let flash = devices(&args, "-blockdev");
    assert_eq!(flash[0]["file"]["filename"], "/fw/code,1.fd");
    assert_eq!((&flash[0]["read-only"], &flash[1]["read-only"]), (&json!(true), &json!(false)));
    assert_eq!(
        values(&args, "-global"),
        ["driver=cfi.pflash01,property=secure,value=on", "ICH9-LPC.disable_s3=1", "kvm-pit.lost_tick_policy=delay"]
    );
    // Emulation has no Hyper-V, and the host's own processor is a thing of KVM's.
    machine.cpu.model = CpuModel::Host;
    assert_eq!(values(&command_line(&machine, TCG).unwrap(), "-cpu"), ["max,vmx=off,pcid=on"]);
    assert_eq!(values(&command_line(&machine, Accel::Kvm).unwrap(), "-cpu")[0].split(',').next(), Some("host"));
}

#[test]
fn disks_on_every_bus() {
    let mut machine = machine();
    machine.iothreads = 2;
    let file = |path: &str| Source::File(path.into());
    machine.disks = vec![
        Disk {
            serial: Some("a,b\"c".into()),
            boot_index: Some(1),
            block_size: Some(BlockSize { logical: 512, physical: 4096, discard: Some(8192) }),
            iothread: Some(1),
            queues: Some(4),
            aio: Aio::Native,
            ..Disk::new(id("root"), file("/d/a,b.img"))
        },
        Disk { bus: Bus::Scsi, cache: Cache::Writethrough, ..Disk::new(id("s1"), Source::HostDevice("/dev/x".into())) },
        Disk {
            bus: Bus::Scsi,
            iothread: Some(0),
            is_shareable: true,
            ..Disk::new(id("s2"), Source::FdSet { set: 3, is_device: false })
        },
        Disk { bus: Bus::Scsi, format: Format::Qcow2, cache: Cache::Unsafe, ..Disk::new(id("s3"), file("/d/q")) },
        Disk { bus: Bus::Usb, ..Disk::new(id("stick"), Source::Nbd { socket: "/n".into(), export: "e,x=1".into() }) },
        Disk::cdrom(id("cd"), Some(file("/d/cd.iso"))),
        Disk::cdrom(id("empty"), None),
    ];
    let args = command_line(&machine, TCG).unwrap();
    let nodes = devices(&args, "-blockdev");
    assert_eq!(
        nodes[0],
        json!({ "driver": "raw", "node-name": "root", "read-only": false, "discard": "unmap",
            "cache": { "direct": true, "no-flush": false },
            "file": { "driver": "file", "filename": "/d/a,b.img", "aio": "native", "read-only": false,
                "discard": "unmap", "cache": { "direct": true, "no-flush": false } } })
    );
    assert_eq!(nodes[1]["file"]["driver"], "host_device");
    assert_eq!(nodes[2]["file"]["filename"], "/dev/fdset/3");
    assert_eq!(nodes[3]["backing"], Value::Null);
    assert!(nodes[3].as_object().unwrap().contains_key("backing"));
    assert_eq!(nodes[3]["cache"], json!({ "direct": false, "no-flush": true }));
    assert_eq!(nodes[4]["file"]["export"], "e,x=1");
    assert_eq!(nodes.len(), 6);

    let all = devices(&args, "-device");
    let device = |name: &str| all.iter().find(|device| device["id"] == name).unwrap();
    assert_eq!(
        *device("root"),
        json!({ "driver": "virtio-blk-pci", "id": "root", "bus": "port0", "drive": "root", "serial": "a,b\"c",
            "bootindex": 1, "werror": "stop", "rerror": "stop", "write-cache": "on", "logical_block_size": 512,
            "physical_block_size": 4096, "discard_granularity": 8192, "iothread": "iothread1", "num-queues": 4 })
    );
    let place = |name: &str| (device(name)["bus"].as_str().unwrap().to_owned(), device(name)["scsi-id"].as_u64());
    assert_eq!(place("s1"), ("scsi0.0".into(), Some(0)));
    assert_eq!(place("s2"), ("scsi1.0".into(), Some(0)));
    assert_eq!(place("s3"), ("scsi0.0".into(), Some(1)));
    assert_eq!(place("stick"), ("usb.0".into(), None));
    assert_eq!(place("cd"), ("sata0.0".into(), None));
    assert_eq!(place("empty"), ("sata0.1".into(), None));
    assert_eq!(device("s1")["write-cache"], "off");
    assert_eq!(device("s2")["share-rw"], true);
    assert_eq!(device("scsi1")["iothread"], "iothread0");
    assert_eq!(device("empty").get("drive"), None);
    assert_eq!(device("usb")["driver"], "qemu-xhci");
}

#[test]
fn interfaces_of_every_kind() {
    let mut machine = machine();
    let forward =
        PortForward { protocol: Protocol::Tcp, host_address: [127, 0, 0, 1].into(), host_port: 2222, guest_port: 22 };
    let fds = |from: i32| vec![FdRef::Inherited(from), FdRef::Inherited(from + 1)];
    machine.nics = vec![
        Nic {
            mtu: Some(9000),
            boot_index: Some(2),
            acpi_index: Some(7),
            ..nic("n0", NicModel::Virtio, NicBackend::Tap { fds: fds(10), vhost_fds: fds(20) })
        },
        nic("n1", NicModel::E1000, NicBackend::User { forwards: vec![forward] }),
        nic("n2", NicModel::E1000e, NicBackend::Stream { path: "/s,x".into() }),
        nic("n3", NicModel::Virtio, NicBackend::SocketFd(FdRef::Named(id("fd-n3")))),
    ];
    machine.hotplug_ports = 2;
    let args = command_line(&machine, TCG).unwrap();
    assert_eq!(
        devices(&args, "-netdev"),
        [
            json!({ "type": "tap", "id": "n0.net", "fds": "10:11", "vhost": true, "vhostfds": "20:21" }),
            json!({ "type": "user", "id": "n1.net", "hostfwd": [{ "str": "tcp:127.0.0.1:2222-:22" }] }),
            json!({ "type": "stream", "id": "n2.net", "addr": { "type": "unix", "path": "/s,x" }, "server": false }),
            json!({ "type": "socket", "id": "n3.net", "fd": "fd-n3" }),
        ]
    );
    let all = devices(&args, "-device");
    assert_eq!(
        all[0],
        json!({ "driver": "pcie-root-port", "id": "port0", "bus": "pcie.0", "addr": "0x10.0", "chassis": 1, "port": 0,
            "multifunction": true, "io-reserve": 0 })
    );
    assert_eq!(
        all[1],
        json!({ "driver": "virtio-net-pci", "id": "n0", "netdev": "n0.net", "mac": "52:54:00:00:00:01", "bus": "port0",
            "bootindex": 2, "acpi-index": 7, "mq": true, "vectors": 6, "host_mtu": 9000 })
    );
    assert_eq!(
        all[2],
        json!({ "driver": "e1000", "id": "n1", "netdev": "n1.net", "mac": "52:54:00:00:00:01", "romfile": "" })
    );
    let last = all.last().unwrap();
    assert_eq!((&last["id"], &last["addr"]), (&json!("spare1"), &json!("0x10.4")));
    assert_eq!(hotplug_buses(&machine), ["spare0", "spare1"]);
    machine.chipset = Chipset::I440fx { version: None };
    let args = command_line(&machine, TCG).unwrap();
    assert!(!args.iter().any(|arg| arg.contains("pcie-root-port")));
    assert_eq!(hotplug_buses(&machine), ["pci.0"]);
}

#[test]
fn the_small_devices() {
    let mut machine = machine();
    machine.serial = Some(Serial { socket: Listener::Path("/r/serial.sock".into()), log: Some("/r/a,b.log".into()) });
    machine.vnc = Some(Vnc::Socket { path: "/r/vnc.sock".into(), has_password: true });
    machine.guest_agent = Some(Listener::Path("/r/qga.sock".into()));
    machine.has_rng = true;
    machine.has_balloon = true;
    machine.watchdog = Some(Watchdog { action: WatchdogAction::PowerOff });
    machine.tpm = Some(Tpm { socket: TpmSocket::Path("/r/tpm.sock".into()), model: TpmModel::Tis });
    machine.video = Video::Virtio;
    machine.inputs = vec![Input::UsbTablet, Input::VirtioKeyboard];
    machine.vsock = Some(Vsock { cid: 42, vhost_fd: None });
    let args = command_line(&machine, TCG).unwrap();
    assert_eq!(
        values(&args, "-chardev"),
        [
            "socket,id=serial,path=/r/serial.sock,server=on,wait=off,logfile=/r/a,,b.log,logappend=on",
            "socket,id=agent,path=/r/qga.sock,server=on,wait=off",
            "socket,id=tpm,path=/r/tpm.sock",
        ]
    );
    assert_eq!(values(&args, "-vnc"), ["vnc=unix:/r/vnc.sock,password=on"]);
    assert_eq!(values(&args, "-tpmdev"), ["emulator,id=tpm,chardev=tpm"]);
    assert_eq!(values(&args, "-action"), ["shutdown=pause", "watchdog=poweroff"]);
    let drivers: Vec<_> = devices(&args, "-device").into_iter().map(|mut device| device["driver"].take()).collect();
    assert_eq!(
        drivers,
        [
            "isa-serial",
            "virtio-vga",
            "qemu-xhci",
            "usb-tablet",
            "virtio-keyboard-pci",
            "virtio-serial-pci",
            "virtserialport",
            "virtio-rng-pci",
            "virtio-balloon-pci",
            "i6300esb",
            "tpm-tis",
            "vhost-vsock-pci",
        ]
    );
}

#[test]
fn descriptors_take_the_place_of_paths() {
    let mut machine = machine();
    machine.fd_sets = vec![FdSet { set: 1, fd: 12 }];
    machine.firmware =
        Firmware::Uefi { code: "/fw".into(), vars: Source::FdSet { set: 1, is_device: false }, has_secure_boot: false };
    machine.disks = vec![Disk::new(id("d"), Source::FdSet { set: 2, is_device: true })];
    machine.serial = Some(Serial { socket: Listener::Fd(10), log: None });
    machine.vnc = Some(Vnc::ByDescriptor);
    machine.usb_redirections = vec![Listener::Fd(11)];
    machine.tpm = Some(Tpm { socket: TpmSocket::Fd(13), model: TpmModel::Crb });
    machine.vsock = Some(Vsock { cid: 3, vhost_fd: Some(14) });
    machine.kernel =
        Some(Kernel { image: "/k".into(), initrd: Some("/i".into()), command_line: "console=ttyS0 a,b".into() });
    machine.sound = Some(Sound::Ich9);
    machine.panic_device = Some(PanicDevice::Isa);
    machine.has_scsi = true;
    let args = command_line(&machine, TCG).unwrap();
    assert_eq!(values(&args, "-add-fd"), ["fd=12,set=1"]);
    assert_eq!(
        values(&args, "-chardev"),
        [
            "socket,id=serial,fd=10,server=on,wait=off",
            "socket,id=usbredir0,fd=11,server=on,wait=off",
            "socket,id=tpm,fd=13",
        ]
    );
    assert_eq!(values(&args, "-vnc"), ["none"]);
    assert_eq!(
        (values(&args, "-kernel"), values(&args, "-initrd"), values(&args, "-append")),
        (vec!["/k"], vec!["/i"], vec!["console=ttyS0 a,b"])
    );
    assert_eq!(values(&args, "-action"), ["shutdown=pause", "panic=pause"]);
    let nodes = devices(&args, "-blockdev");
    assert_eq!(nodes[1]["file"], json!({ "driver": "file", "filename": "/dev/fdset/1", "aio": "threads" }));
    assert_eq!(
        (&nodes[2]["file"]["driver"], &nodes[2]["file"]["filename"]),
        (&json!("host_device"), &json!("/dev/fdset/2"))
    );
    let all = devices(&args, "-device");
    let find = |driver: &str| all.iter().find(|device| device["driver"] == driver).unwrap();
    assert_eq!(find("vhost-vsock-pci")["vhostfd"], "14");
    assert_eq!(find("virtio-scsi-pci")["id"], "scsi0");
    assert_eq!(find("usb-redir")["bus"], "usb.0");
    assert_eq!((&find("hda-duplex")["audiodev"], &find("pvpanic")["id"]), (&json!("audio"), &json!("panic")));
}

/// Text that a user chose ends up as one value of one option, whatever it holds.
#[test]
fn hostile_text_stays_a_value() {
    let hostile = "x,process=on -S\n\",id=evil,,file=/etc/shadow";
    let mut machine = machine();
    machine.name = hostile.to_owned();
    machine.smbios =
        Smbios { manufacturer: Some(hostile.to_owned()), serial: Some(",,".to_owned()), ..Smbios::default() };
    machine.disks = vec![Disk {
        serial: Some(hostile.to_owned()),
        ..Disk::new(id("d"), Source::File(format!("/d/{hostile}").into()))
    }];
    let args = command_line(&machine, TCG).unwrap();
    let doubled = hostile.replace(',', ",,");
    assert_eq!(values(&args, "-name"), [format!("guest={doubled},debug-threads=on")]);
    assert_eq!(values(&args, "-smbios"), [format!("type=1,manufacturer={doubled},serial=,,,,")]);
    assert_eq!(devices(&args, "-blockdev")[0]["file"]["filename"], format!("/d/{hostile}"));
    assert_eq!(devices(&args, "-device")[1]["serial"], hostile);
    assert!(!args.contains(&"-S".to_owned()));
}

type Change = Box<dyn FnOnce(&mut Machine)>;

#[test]
fn what_qemu_would_misread_or_refuse_is_refused_first() {
    let disk = || Disk::new(id("d"), Source::File("/d".into()));
    let user = || NicBackend::User { forwards: Vec::new() };
    let no_fds = NicBackend::Tap { fds: Vec::new(), vhost_fds: Vec::new() };
    let cases: Vec<(&str, Change)> = vec![
        ("name with a zero byte", Box::new(|m| m.name = "a\0b".into())),
        ("CPU model", Box::new(|m| m.cpu.model = CpuModel::Named("max,+vmx".into()))),
        ("empty CPU model", Box::new(|m| m.cpu.model = CpuModel::Named(String::new()))),
        ("CPU feature", Box::new(|m| m.cpu.features = vec![("a=b".into(), true)])),
        ("machine version", Box::new(|m| m.chipset = Chipset::Q35 { version: Some("7.2,x=y".into()) })),
        ("no CPUs", Box::new(|m| m.cpu.cores = 0)),
        ("fewer sockets than there are", Box::new(|m| m.cpu.sockets = 2)),
        ("no memory", Box::new(|m| m.memory.bytes = 0)),
        ("odd memory", Box::new(|m| m.memory.bytes = 4097)),
        ("hot-plug below", Box::new(|m| m.memory.hotplug = Some(MemoryHotplug { max_bytes: 4096, slots: 1 }))),
        ("relative path", Box::new(move |m| m.disks = vec![Disk::new(id("d"), Source::File("d".into()))])),
        ("same id twice", Box::new(move |m| m.disks = vec![disk(), disk()])),
        ("our id", Box::new(move |m| m.disks = vec![Disk { id: id("port0"), ..disk() }])),
        ("virtio CD", Box::new(move |m| m.disks = vec![Disk { bus: Bus::Virtio, ..Disk::cdrom(id("c"), None) }])),
        ("disk without medium", Box::new(move |m| m.disks = vec![Disk { source: None, ..disk() }])),
        ("no such thread", Box::new(move |m| m.disks = vec![Disk { iothread: Some(0), ..disk() }])),
        ("read-only SATA", Box::new(move |m| m.disks = vec![Disk { bus: Bus::Sata, is_read_only: true, ..disk() }])),
        (
            "native I/O through the cache",
            Box::new(move |m| m.disks = vec![Disk { aio: Aio::Native, cache: Cache::Writeback, ..disk() }]),
        ),
        ("tap without descriptors", Box::new(move |m| m.nics = vec![nic("n", NicModel::Virtio, no_fds)])),
        (
            "MTU on e1000",
            Box::new(move |m| m.nics = vec![Nic { mtu: Some(9000), ..nic("n", NicModel::E1000, user()) }]),
        ),
        ("the host's VSOCK address", Box::new(|m| m.vsock = Some(Vsock { cid: 2, vhost_fd: None }))),
        ("too many ports", Box::new(|m| m.hotplug_ports = 121)),
        (
            "Secure Boot on the older chipset",
            Box::new(|m| {
                m.chipset = Chipset::I440fx { version: None };
                m.firmware =
                    Firmware::Uefi { code: "/c".into(), vars: Source::File("/v".into()), has_secure_boot: true };
            }),
        ),
    ];
    for (name, change) in cases {
        let mut machine = machine();
        change(&mut machine);
        assert!(command_line(&machine, TCG).is_err(), "{name}");
    }
}
