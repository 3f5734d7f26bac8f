use croft_qemu::args::command_line;
use croft_qemu::spec::{
    Aio, Bus, Cache, Chipset, ClockBase, CpuModel, Disk, DiskKind, ErrorPolicy, HyperV, Input, MemoryBacking, NicModel,
    PanicDevice, Sound, Video, Vnc, WatchdogAction,
};
use serde_json::{Value, json};

use super::*;

const TCG: Accel = Accel::Tcg { cache_mib: Some(8) };

fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    for (key, value) in patch {
        merge(&mut target[key], value);
    }
}

/// A small machine with this much more in its spec.
fn vmi(more: &Value) -> VirtualMachineInstance {
    let mut spec = json!({ "domain": { "memory": { "guest": "64Mi" }, "devices": {} } });
    merge(&mut spec, more);
    let uid = "6ba7b810-9dad-11d1-80b4-00c04fd430c8";
    serde_json::from_value(json!({ "metadata": { "name": "vm", "namespace": "ns", "uid": uid }, "spec": spec }))
        .unwrap()
}

fn parts(vmi: &VirtualMachineInstance, accel: Accel) -> Parts {
    let medium = Medium {
        source: Source::FdSet { set: 1, is_device: false },
        is_block: false,
        is_read_only: false,
        is_direct: true,
        block_bytes: Some(4096),
        has_io_uring: true,
        is_preallocated: false,
    };
    let cable = Cable { backend: NicBackend::User { forwards: Vec::new() }, mtu: Some(1450) };
    let volumes = vmi.spec.volumes.iter().map(|volume| (volume.name.clone(), medium.clone()));
    let interfaces = &vmi.spec.domain.devices.interfaces;
    Parts {
        accel,
        now: "2026-01-31T12:00:00Z".parse().unwrap(),
        media: volumes.collect(),
        cables: interfaces.iter().map(|interface| (interface.name.clone(), cable.clone())).collect(),
        firmware: Firmware::Bios,
        kernel: None,
        serial: Some(Listener::Fd(10)),
        agent: Some(Listener::Fd(11)),
        usb_redirections: Vec::new(),
        tpm: None,
        vsock: None,
    }
}

fn translated(more: &Value, accel: Accel) -> Result<Translated, Refusal> {
    let vmi = vmi(more);
    let translated = translate(&vmi, &parts(&vmi, accel))?;
    // Whatever we make of an object, QEMU's command line can be made of it.
    command_line(&translated.machine, accel).unwrap();
    Ok(translated)
}

fn machine(more: &Value) -> Machine {
    translated(more, TCG).unwrap().machine
}

#[test]
fn the_smallest_machine_has_what_kubevirt_gives() {
    let machine = machine(&json!({}));
    assert_eq!(machine.name, "ns/vm");
    assert_eq!(machine.uuid.to_string(), "6ba7b810-9dad-11d1-80b4-00c04fd430c8");
    assert_eq!(machine.memory.bytes, 64 << 20);
    assert_eq!(machine.chipset, Chipset::Q35 { version: None });
    assert_eq!((machine.cpu.sockets, machine.cpu.cores, machine.cpu.threads), (1, 1, 1));
    assert_eq!((&machine.vnc, machine.video), (&Some(Vnc::ByDescriptor), Video::Vga));
    assert!(machine.has_balloon && machine.has_scsi && machine.has_acpi && !machine.has_rng);
    assert!(machine.serial.is_some() && machine.guest_agent.is_some());
    assert_eq!(machine.smbios.manufacturer.as_deref(), Some("KubeVirt"));
    assert_eq!(machine.hotplug_ports, HOTPLUG_PORTS);
}

#[test]
fn board_processors_memory_and_identity() {
    let machine = machine(&json!({ "domain": {
        "machine": { "type": "pc-q35-7.2" },
        "cpu": { "sockets": 2, "cores": 3, "threads": 2, "maxSockets": 8, "model": "Haswell",
            "features": [{ "name": "a" }, { "name": "b", "policy": "require" }, { "name": "c", "policy": "optional" },
                { "name": "d", "policy": "disable" }, { "name": "e", "policy": "forbid" }] },
        "memory": { "guest": "1Gi", "maxGuest": "4Gi", "hugepages": { "pageSize": "2Mi" } },
        "firmware": { "uuid": "11111111-2222-3333-4444-555555555555", "serial": "s-1" },
        "chassis": { "asset": "a-1", "manufacturer": "m" },
    } }));
    assert_eq!(machine.chipset, Chipset::Q35 { version: Some("7.2".into()) });
    assert_eq!(machine.cpu.model, CpuModel::Named("Haswell".into()));
    let on: Vec<_> = machine.cpu.features.iter().map(|(name, is_on)| (name.as_str(), *is_on)).collect();
    assert_eq!(on, [("a", true), ("b", true), ("c", true), ("d", false), ("e", false)]);
    assert_eq!((machine.cpu.sockets, machine.cpu.cores, machine.cpu.threads, machine.cpu.max_sockets), (2, 3, 2, 8));
    assert_eq!(machine.memory.hotplug.unwrap().max_bytes, 4 << 30);
    assert_eq!(machine.memory.backing, MemoryBacking::Hugepages { page_bytes: 2 << 20 });
    assert_eq!(machine.uuid.to_string(), "11111111-2222-3333-4444-555555555555");
    assert_eq!(machine.smbios.serial.as_deref(), Some("s-1"));
    assert_eq!(machine.smbios.chassis.asset.as_deref(), Some("a-1"));
}

#[test]
fn clocks_and_timers() {
    let clock = |clock: Value| machine(&json!({ "domain": { "clock": clock } })).clock;
    assert_eq!(clock(json!({ "utc": {} })).base, ClockBase::Utc);
    assert_eq!(clock(json!({ "utc": { "offsetSeconds": 3600 } })).base, ClockBase::At("2026-01-31T13:00:00".into()));
    assert_eq!(clock(json!({ "timezone": "America/New_York" })).base, ClockBase::At("2026-01-31T07:00:00".into()));
    let timers = json!({ "hpet": { "present": false }, "pit": { "tickPolicy": "delay" },
        "rtc": { "tickPolicy": "catchup", "track": "guest" } });
    let found = clock(json!({ "timer": timers }));
    assert!(!found.has_hpet && found.catches_up && found.follows_guest);
    assert!(clock(json!({ "timer": { "hpet": {} } })).has_hpet);
}

#[test]
fn hyper_v_is_for_kvm_and_said_to_be_missing_elsewhere() {
    let wanted = json!({ "domain": { "features": {
        "acpi": {}, "kvm": { "hidden": true }, "pvspinlock": { "enabled": false },
        "hyperv": { "relaxed": {}, "vapic": { "enabled": false }, "spinlocks": { "spinlocks": 8191 },
            "synictimer": { "direct": {} }, "vendorid": { "vendorid": "x" } } },
        "clock": { "timer": { "hyperv": { "present": true }, "kvm": { "present": false } } } } });
    let found = translated(&wanted, Accel::Kvm).unwrap();
    assert_eq!(
        found.machine.hyperv,
        HyperV {
            relaxed: true,
            spinlock_retries: Some(8191),
            stimer: true,
            stimer_direct: true,
            vendor_id: Some("x".into()),
            time: true,
            ..HyperV::default()
        }
    );
    let features: Vec<_> = found.machine.cpu.features.iter().map(|(name, is_on)| (name.as_str(), *is_on)).collect();
    assert_eq!(features, [("kvm", false), ("kvm-pv-unhalt", false), ("kvmclock", false)]);
    assert!(found.warnings.is_empty());
    let emulated = translated(&wanted, TCG).unwrap();
    assert_eq!(emulated.warnings.len(), 1);
    assert!(emulated.machine.cpu.features.is_empty());
}

#[test]
fn disks_of_every_kind() {
    let names = ["a", "b", "c", "d", "e"];
    let volumes: Vec<_> = names.map(|name| json!({ "name": name, "emptyDisk": { "capacity": "1Mi" } })).to_vec();
    let machine = machine(&json!({ "volumes": volumes, "domain": {
        "cpu": { "cores": 4 }, "ioThreadsPolicy": "shared",
        "devices": { "blockMultiQueue": true, "disks": [
            { "name": "a", "disk": { "bus": "virtio" }, "serial": "s", "io": "native", "dedicatedIOThread": true,
              "blockSize": { "custom": { "logical": 512, "physical": 4096 } } },
            { "name": "b", "disk": { "bus": "scsi", "readonly": true }, "cache": "writethrough", "shareable": true,
              "blockSize": { "matchVolume": {} } },
            { "name": "c", "disk": {}, "errorPolicy": "enospace", "cache": "writeback" },
            { "name": "d", "cdrom": { "bus": "scsi" } },
            { "name": "e" },
            { "name": "f", "cdrom": {} },
        ] } } }));
    let disk = |name: &str| machine.disks.iter().find(|disk| disk.id == disk_id(name)).unwrap().clone();
    let a = disk("a");
    assert_eq!(
        (a.bus, a.cache, a.aio, a.queues, a.iothread),
        (Bus::Virtio, Cache::None, Aio::Native, Some(4), Some(1))
    );
    assert_eq!(a.serial.as_deref(), Some("s"));
    assert_eq!(a.on_error, ErrorPolicy::Stop);
    let b = disk("b");
    assert!(b.is_read_only && b.is_shareable && !b.has_discard);
    assert_eq!((b.cache, b.iothread, b.block_size.unwrap().logical), (Cache::Writethrough, Some(0), 4096));
    assert_eq!(b.aio, Aio::Threads, "io_uring is for what goes past the page cache");
    assert_eq!((disk("e").cache, disk("e").aio), (Cache::None, Aio::IoUring));
    let c = disk("c");
    assert_eq!(
        (c.bus, c.cache, c.on_error, c.iothread),
        (Bus::Sata, Cache::Writeback, ErrorPolicy::StopWhenFull, None)
    );
    assert_eq!((disk("d").kind, disk("d").is_read_only), (DiskKind::Cdrom, true));
    assert_eq!((disk("f").source, disk("f").boot_index), (None, None));
    let order: Vec<_> = machine.disks.iter().map(|disk: &Disk| disk.boot_index).collect();
    assert_eq!(order, [Some(1), Some(2), Some(3), Some(4), Some(5), None]);
    assert_eq!(machine.iothreads, 2);
}

#[test]
fn boot_order_spans_disks_and_interfaces() {
    let machine = machine(&json!({
        "volumes": [{ "name": "a" }, { "name": "b" }],
        "domain": { "devices": {
            "disks": [{ "name": "a", "disk": { "bus": "virtio" } }, { "name": "b", "disk": { "bus": "virtio" }, "bootOrder": 2 }],
            "interfaces": [{ "name": "n", "bridge": {}, "bootOrder": 1, "model": "e1000", "macAddress": "02-00-00-00-00-01",
                "acpiIndex": 3 }, { "name": "gone", "bridge": {}, "state": "absent" }],
        } } }));
    let order: Vec<_> = machine.disks.iter().map(|disk| disk.boot_index).collect();
    assert_eq!(order, [None, Some(2)]);
    assert_eq!(machine.nics.len(), 1);
    let nic = &machine.nics[0];
    assert_eq!((nic.boot_index, nic.model, nic.mtu, nic.acpi_index), (Some(1), NicModel::E1000, None, Some(3)));
    assert_eq!(nic.mac.to_string(), "02:00:00:00:00:01");
}

#[test]
fn an_address_that_nobody_chose_stays_the_same() {
    let one = vmi(&json!({ "domain": { "devices": { "interfaces": [{ "name": "a" }, { "name": "b" }] } } }));
    let macs: Vec<_> = one.spec.domain.devices.interfaces.iter().map(|i| interface_mac(&one, i).unwrap()).collect();
    assert_ne!(macs[0], macs[1]);
    assert_eq!(macs[0].0[0], 2);
    assert_eq!(interface_mac(&one, &one.spec.domain.devices.interfaces[0]).unwrap(), macs[0]);
}

#[test]
fn small_devices() {
    let machine = machine(&json!({ "domain": { "devices": {
        "autoattachGraphicsDevice": false, "autoattachMemBalloon": false, "rng": {}, "sound": { "name": "s", "model": "ac97" },
        "watchdog": { "name": "w", "i6300esb": { "action": "poweroff" } }, "panicDevices": [{ "model": "pvpanic" }],
        "inputs": [{ "name": "t", "type": "tablet", "bus": "virtio" }], "disableHotplug": true,
    }, "rebootPolicy": "Terminate", "features": { "acpi": { "enabled": false } } } }));
    assert!(!machine.has_balloon && machine.has_rng && !machine.has_acpi && machine.is_reboot_power_off);
    assert_eq!((&machine.vnc, machine.video), (&None, Video::None));
    assert_eq!(machine.sound, Some(Sound::Ac97));
    assert_eq!(machine.watchdog.unwrap().action, WatchdogAction::PowerOff);
    assert_eq!(machine.panic_device, Some(PanicDevice::Pci));
    assert_eq!(machine.inputs, [Input::VirtioTablet]);
    assert!(!machine.has_scsi && machine.hotplug_ports == 0);
}

#[test]
fn what_cannot_be_honoured_is_refused_by_name() {
    for (more, word) in [
        (json!({ "architecture": "arm64" }), "arm64"),
        (json!({ "domain": { "machine": { "type": "virt" } } }), "virt"),
        (json!({ "domain": { "cpu": { "dedicatedCpuPlacement": true } } }), "dedicatedCpuPlacement"),
        (json!({ "domain": { "cpu": { "numa": { "guestMappingPassthrough": {} } } } }), "numa"),
        (json!({ "domain": { "cpu": { "realtime": {} } } }), "realtime"),
        (json!({ "domain": { "memory": { "guest": "1" } } }), "memory"),
        (json!({ "domain": { "memory": { "guest": "65Mi", "hugepages": { "pageSize": "2Mi" } } } }), "hugepages"),
        (json!({ "domain": { "launchSecurity": { "sev": {} } } }), "launchSecurity"),
        (json!({ "domain": { "firmware": { "acpi": { "slicNameRef": "x" } } } }), "acpi"),
        (json!({ "domain": { "clock": { "timezone": "Nowhere/Atall" } } }), "timezone"),
        (json!({ "domain": { "clock": { "timer": { "pit": { "tickPolicy": "catchup" } } } } }), "pit"),
        (json!({ "domain": { "devices": { "gpus": [{ "name": "g1", "deviceName": "d" }] } } }), "g1"),
        (json!({ "domain": { "devices": { "hostDevices": [{ "name": "h1", "deviceName": "d" }] } } }), "h1"),
        (json!({ "domain": { "devices": { "filesystems": [{ "name": "f1", "virtiofs": {} }] } } }), "f1"),
        (json!({ "domain": { "devices": { "video": { "type": "ramfb" } } } }), "ramfb"),
        (json!({ "domain": { "devices": { "useVirtioTransitional": true } } }), "useVirtioTransitional"),
        (json!({ "domain": { "devices": { "disks": [{ "name": "lost", "disk": {} }] } } }), "lost"),
        (
            json!({ "volumes": [{ "name": "l" }], "domain": { "devices": { "disks": [{ "name": "l", "lun": {} }] } } }),
            "LUN",
        ),
        (
            json!({ "volumes": [{ "name": "x" }], "domain": { "devices": { "disks":
            [{ "name": "x", "disk": { "bus": "virtio" }, "io": "native", "cache": "writeback" }] } } }),
            "native",
        ),
        (json!({ "domain": { "devices": { "interfaces": [{ "name": "n", "model": "ne1000" }] } } }), "ne1000"),
        (json!({ "domain": { "devices": { "interfaces": [{ "name": "n", "macAddress": "zz" }] } } }), "zz"),
        (json!({ "domain": { "devices": { "interfaces": [{ "name": "n", "pciAddress": "0000:01:00.0" }] } } }), "PCI"),
        (json!({ "domain": { "ioThreadsPolicy": "many" } }), "many"),
    ] {
        let refusal = translated(&more, TCG).unwrap_err();
        assert!(refusal.0.contains(word), "{more}: {refusal}");
    }
}

#[test]
fn ids_are_short_plain_and_apart() {
    assert_eq!(disk_id("root").as_str(), "d-root");
    let long = "x".repeat(60);
    let ids = [disk_id(&long), disk_id(&format!("{long}y")), disk_id("a.b"), nic_id("root")];
    for (index, id) in ids.iter().enumerate() {
        assert!(id.as_str().len() <= 31);
        assert!(ids.iter().skip(index + 1).all(|other| other != id));
    }
}

#[test]
fn disks_keep_the_names_that_they_have() {
    let vmi = vmi(&json!({ "domain": { "devices": { "disks": [
        { "name": "new", "disk": { "bus": "virtio" } }, { "name": "old", "disk": { "bus": "virtio" } },
        { "name": "cd", "cdrom": {} }] } } }));
    let known = BTreeMap::from([("old".to_owned(), "vda".to_owned())]);
    let found = targets(&vmi.spec, &known);
    assert_eq!(
        found.into_iter().collect::<Vec<_>>(),
        [("cd", "sda"), ("new", "vdb"), ("old", "vda")].map(|(name, target)| (name.to_owned(), target.to_owned()))
    );
}
