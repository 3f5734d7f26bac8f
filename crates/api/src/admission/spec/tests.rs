use serde_json::{Value, json};

use super::*;

/// A spec that is right: a disk on a claim, a CD drive that is empty, and a card on the pod network.
fn right() -> Value {
    json!({
        "architecture": "amd64",
        "domain": {
            "cpu": {"cores": 1, "sockets": 1, "threads": 1},
            "memory": {"guest": "1Gi"},
            "machine": {"type": "q35"},
            "devices": {
                "disks": [{"name": "root", "bootOrder": 1, "disk": {"bus": "virtio"}}, {"name": "cd", "cdrom": {"bus": "sata"}}],
                "interfaces": [{"name": "default", "masquerade": {}, "bootOrder": 2}],
            },
        },
        "volumes": [{"name": "root", "persistentVolumeClaim": {"claimName": "c"}}],
        "networks": [{"name": "default", "pod": {}}],
    })
}

/// Writes `value` at a JSON pointer; missing parents are made, `-` appends.
fn put(object: &mut Value, pointer: &str, value: Value) {
    let mut node = object;
    for part in pointer.split('/').skip(1) {
        if part == "-" {
            node.as_array_mut().unwrap().push(Value::Null);
        }
        node = match node {
            Value::Array(list) => {
                let index = part.parse::<usize>().unwrap_or(list.len() - 1);
                &mut list[index]
            }
            other => &mut other[part],
        };
    }
    *node = value;
}

fn causes(spec: &Value) -> Vec<(String, String)> {
    let spec: VirtualMachineInstanceSpec = serde_json::from_value(spec.clone()).unwrap();
    let mut denial = Denial::by("test");
    check(&mut denial, &FieldPath::new("spec"), &spec);
    let details = denial.finish().err().and_then(|error| error.details().cloned()).unwrap_or_default();
    details.causes.into_iter().map(|cause| (cause.field, cause.message)).collect()
}

/// Every change breaks one rule: (changes, field, message).
#[track_caller]
fn breaks(changes: &[(&str, Value)], field: &str, message: &str) {
    let mut spec = right();
    for (pointer, value) in changes {
        put(&mut spec, pointer, value.clone());
    }
    assert_eq!(causes(&spec), [(field.to_owned(), message.to_owned())], "{changes:?}");
}

#[test]
fn a_right_spec_passes() {
    assert_eq!(causes(&right()), []);
}

#[test]
fn names_and_strategies() {
    breaks(
        &[("/startStrategy", json!("Later"))],
        "spec.startStrategy",
        "spec.startStrategy is set with an unrecognized option: Later",
    );
    breaks(
        &[("/startStrategy", json!("Paused")), ("/livenessProbe", json!({"guestAgentPing": {}}))],
        "spec.startStrategy",
        "either spec.startStrategy or spec.livenessProbe should be provided.Pausing VMI with LivenessProbe is not supported",
    );
    breaks(
        &[("/evictionStrategy", json!("Run"))],
        "spec.evictionStrategy",
        "spec.evictionStrategy is set with an unrecognized option: Run",
    );
    breaks(&[("/architecture", json!("vax"))], "spec.architecture", "unsupported architecture: vax");
    let mut spec = right();
    put(&mut spec, "/hostname", json!("Not_A_Name"));
    assert!(causes(&spec)[0].1.starts_with("spec.hostname does not conform to the kubernetes DNS_LABEL rules : "));
}

#[test]
fn memory() {
    let request = "spec.domain.resources.requests.memory";
    breaks(
        &[("/domain/resources/requests/memory", json!("-1"))],
        request,
        &format!("{request} '-1': must be greater than or equal to 0."),
    );
    breaks(
        &[("/domain/resources/requests/memory", json!("64"))],
        request,
        &format!("{request} '64': must be greater than or equal to 1M."),
    );
    breaks(
        &[("/domain/resources/requests/memory", json!("2Gi")), ("/domain/resources/limits/memory", json!("1Gi"))],
        request,
        &format!("{request} '2Gi' is greater than spec.domain.resources.limits.memory '1Gi'"),
    );
    breaks(
        &[("/domain/memory/hugepages", json!({"pageSize": "2Gi"}))],
        request,
        &format!("{request} '0' must be equal to or larger than page size spec.domain.memory.hugepages.pageSize '2Gi'"),
    );
    breaks(
        &[("/domain/memory", json!({"guest": "3Mi", "hugepages": {"pageSize": "2Mi"}}))],
        request,
        &format!("{request} '0' is not a multiple of the page size spec.domain.memory.hugepages.pageSize '2Mi'"),
    );
    let guest = "spec.domain.memory.guest";
    breaks(
        &[("/domain/memory/maxGuest", json!("512Mi"))],
        guest,
        "Guest memory is greater than the configured maxGuest memory",
    );
    breaks(&[("/domain/memory/maxGuest", json!("1025Mi"))], guest, "MaxGuest must be 2Mi aligned");
    breaks(
        &[("/domain/memory", json!({"guest": "512Mi", "maxGuest": "1Gi"}))],
        guest,
        "Memory hotplug is only available for VMs with at least 1Gi of guest memory",
    );
    breaks(&[("/domain/memory/guest", json!("0"))], guest, "spec.domain.memory.guest '0': must be greater than 0.");
}

#[test]
fn processors() {
    let request = "spec.domain.resources.requests.cpu";
    breaks(
        &[("/domain/resources/requests/cpu", json!("-1"))],
        request,
        &format!("{request} '-1': must be greater than or equal to 0."),
    );
    breaks(
        &[("/domain/resources/requests/cpu", json!("2")), ("/domain/resources/limits/cpu", json!("1"))],
        request,
        &format!("{request} '2' is greater than spec.domain.resources.limits.cpu '1'"),
    );
    breaks(
        &[("/domain/cpu/isolateEmulatorThread", json!(true))],
        "spec.domain.cpu.isolateEmulatorThread",
        "IsolateEmulatorThread should be only set in combination with DedicatedCPUPlacement",
    );
    breaks(
        &[("/domain/cpu/features", json!([{"name": "apic", "policy": "never"}]))],
        "spec.domain.cpu.features[0].policy",
        "CPU feature apic uses policy never that is not supported.",
    );
    breaks(
        &[("/domain/cpu/maxSockets", json!(1)), ("/domain/cpu/sockets", json!(2))],
        "spec.domain.cpu.sockets",
        "Number of sockets in CPU topology is greater than the maximum sockets allowed",
    );
    breaks(
        &[
            ("/domain/cpu/dedicatedCpuPlacement", json!(true)),
            ("/domain/cpu/cores", json!(2)),
            ("/domain/resources/limits/cpu", json!("1500m")),
        ],
        "spec.domain.resources.limits.cpu",
        "provided resources CPU limits must be an interger",
    );
    breaks(
        &[("/domain/cpu", json!({"cores": 1, "sockets": 1, "threads": 3, "dedicatedCpuPlacement": true}))],
        "spec.domain.cpu.dedicatedCpuPlacement",
        "Not more than two threads must be provided at spec.domain.cpu.threads (got 3) when DedicatedCPUPlacement is true",
    );
    breaks(
        &[("/domain/cpu", json!({"cores": 300, "sockets": 300, "threads": 1}))],
        "spec.domain.cpu",
        "spec.domain.cpu asks for 90000 processors, which no guest can have",
    );
}

#[test]
fn networks() {
    let card = "spec.domain.devices.interfaces[0]";
    breaks(
        &[("/networks/0/multus", json!({"networkName": "n"}))],
        "spec.networks[0]",
        "should have only one network type",
    );
    breaks(
        &[("/domain/devices/interfaces/0/bridge", json!({}))],
        card,
        "logical default interface must have exactly one binding method or binding plugin",
    );
    breaks(
        &[("/networks/0", json!({"name": "default", "multus": {"networkName": "n"}}))],
        &format!("{card}.name"),
        "Masquerade interface only implemented with pod network",
    );
    breaks(
        &[("/networks/-", json!({"name": "other", "multus": {"networkName": "n"}}))],
        "spec.networks[1].name",
        "spec.networks[1].name 'other' not found.",
    );
    breaks(
        &[("/domain/devices/interfaces/-", json!({"name": "other", "bridge": {}}))],
        "spec.domain.devices.interfaces[1].name",
        "spec.domain.devices.interfaces[1].name 'other' not found.",
    );
    breaks(
        &[("/networks/-", json!({"name": "default", "multus": {"networkName": "n"}}))],
        "spec.networks[1].name",
        "Network with name \"default\" already exists, every network must have a unique name",
    );
    breaks(
        &[("/domain/devices/interfaces/-", json!({"name": "default", "masquerade": {}}))],
        "spec.domain.devices.interfaces[1].name",
        "Only one interface can be connected to one specific network",
    );
    breaks(
        &[("/domain/devices/interfaces/0/model", json!("ne1000"))],
        &format!("{card}.model"),
        "interface spec.domain.devices.interfaces[0].name uses model ne1000 that is not supported.",
    );
    for (mac, problem) in [
        ("de:ad:be:ef", "malformed"),
        ("de:ad:be:ef:00:0g", "malformed"),
        ("zz", "malformed"),
        ("de:ad:00:00:be:af:00:01", "too long"),
    ] {
        breaks(
            &[("/domain/devices/interfaces/0/macAddress", json!(mac))],
            &format!("{card}.macAddress"),
            &format!("interface {card}.name has {problem} MAC address ({mac})."),
        );
    }
    breaks(
        &[("/domain/devices/interfaces/0/state", json!("gone"))],
        &format!("{card}.state"),
        "logical default interface state value is unsupported: gone",
    );
    breaks(
        &[("/domain/devices/interfaces/0/ports", json!([{"port": 0}]))],
        &format!("{card}.ports[0].port"),
        "Port field is mandatory.",
    );
    breaks(
        &[("/domain/devices/interfaces/0/ports", json!([{"port": 70000}]))],
        &format!("{card}.ports[0].port"),
        "Port field must be in range 0 < x < 65536.",
    );
    breaks(
        &[("/domain/devices/interfaces/0/ports", json!([{"port": 1, "protocol": "SCTP"}]))],
        &format!("{card}.ports[0].protocol"),
        "Unknown protocol, only TCP or UDP allowed",
    );
    breaks(
        &[("/domain/devices/interfaces/0/dhcpOptions", json!({"ntpServers": ["time"]}))],
        &format!("{card}.dhcpOptions.ntpServers[0]"),
        "NTP servers must be a list of valid IPv4 addresses.",
    );
    for mac in ["de:ad:00:00:be:af", "DE-AD-00-00-BE-AF", "dead.0000.beaf"] {
        let mut spec = right();
        put(&mut spec, "/domain/devices/interfaces/0/macAddress", json!(mac));
        assert_eq!(causes(&spec), [], "{mac}");
    }
}

#[test]
fn discontinued_bindings_say_so() {
    let mut spec = right();
    put(&mut spec, "/domain/devices/interfaces/0", json!({"name": "default", "slirp": {}}));
    assert_eq!(
        causes(&spec)[0],
        (
            "spec.domain.devices.interfaces[0].slirp".to_owned(),
            "Slirp interface support has been discontinued since v1.3".to_owned()
        )
    );
}

#[test]
fn disks() {
    let disk = "spec.domain.devices.disks[0]";
    breaks(
        &[("/domain/devices/disks/-", json!({"name": "nothing"}))],
        "spec.domain.devices.disks[2].name",
        "spec.domain.devices.disks[2].Name 'nothing' not found.",
    );
    breaks(
        &[("/domain/devices/disks/-", json!({"name": "root"}))],
        "spec.domain.devices.disks[2].name",
        "spec.domain.devices.disks[2] and spec.domain.devices.disks[0] must not have the same Name.",
    );
    breaks(
        &[("/domain/devices/disks/0/disk/bus", json!("floppy"))],
        &format!("{disk}.disk.bus"),
        &format!("{disk} is set with an unrecognized bus floppy, must be one of: [virtio scsi sata usb]"),
    );
    breaks(
        &[("/domain/devices/disks/0/disk/bus", json!("ide"))],
        &format!("{disk}.disk.bus"),
        "IDE bus is not supported",
    );
    breaks(
        &[("/domain/devices/disks/0/disk", json!({"bus": "sata", "readonly": true}))],
        &format!("{disk}.disk.bus"),
        "sata hard-disks do not support read-only.",
    );
    breaks(
        &[("/domain/devices/disks/1/cdrom/bus", json!("virtio"))],
        "spec.domain.devices.disks[1].cdrom.bus",
        "Bus type virtio is invalid for CD-ROM device",
    );
    breaks(
        &[("/domain/devices/disks/0/cdrom", json!({}))],
        disk,
        &format!("{disk} can only have a single target type defined"),
    );
    breaks(
        &[("/domain/devices/disks/0/bootOrder", json!(0))],
        &format!("{disk}.bootOrder"),
        &format!("{disk} must have a boot order > 0, if supplied"),
    );
    breaks(
        &[("/domain/devices/interfaces/0/bootOrder", json!(1))],
        "spec.domain.devices.interfaces[0].bootOrder",
        "Boot order for spec.domain.devices.interfaces[0].bootOrder already set for a different device.",
    );
    breaks(
        &[("/domain/devices/disks/0/serial", json!("a b"))],
        &format!("{disk}.serial"),
        &format!("{disk} must be made up of the following characters [A-Za-z0-9_.+-], if specified"),
    );
    breaks(
        &[("/domain/devices/disks/0/cache", json!("fast"))],
        &format!("{disk}.cache"),
        &format!("{disk}.cache has invalid value fast"),
    );
    breaks(
        &[("/domain/devices/disks/0/io", json!("magic"))],
        &format!("{disk}.io"),
        &format!("Disk IO mode for {disk} is not supported. Supported modes are: native, threads."),
    );
    breaks(
        &[("/domain/devices/disks/0/errorPolicy", json!("cry"))],
        &format!("{disk}.errorPolicy"),
        &format!("{disk}.errorPolicy has invalid value \"cry\""),
    );
    breaks(
        &[("/domain/devices/disks/0", json!({"name": "root", "dedicatedIOThread": true, "disk": {"bus": "scsi"}}))],
        disk,
        "IOThreads are not supported for disks on a scsi bus",
    );
    for (custom, field, message) in [
        (
            json!({"logical": 4096, "physical": 512}),
            "logical",
            "Logical size 4096 must be the same or less than the physical size of 512",
        ),
        (
            json!({"logical": 256, "physical": 512}),
            "logical",
            "Provided size of 256 is less than the supported minimum size of 512",
        ),
        (json!({"logical": 512, "physical": 1000}), "physical", "Provided size of 1000 is not a power of 2"),
        (
            json!({"logical": 512, "physical": 512, "discardGranularity": 700}),
            "discardGranularity",
            "Discard granularity 700 must be multiples of logical size 512",
        ),
    ] {
        breaks(
            &[("/domain/devices/disks/0/blockSize", json!({"custom": custom}))],
            &format!("{disk}.blockSize.custom.{field}"),
            message,
        );
    }
}

#[test]
fn volumes() {
    let volume = "spec.volumes[0]";
    breaks(
        &[("/volumes/0/emptyDisk", json!({"capacity": "1Gi"}))],
        volume,
        "spec.volumes[0] must have exactly one source type set",
    );
    breaks(&[("/volumes/0", json!({"name": "root"}))], volume, "spec.volumes[0] must have exactly one source type set");
    breaks(
        &[("/volumes/-", json!({"name": "root", "emptyDisk": {"capacity": "1Gi"}}))],
        "spec.volumes[1].name",
        "spec.volumes[1] and spec.volumes[0] must not have the same Name.",
    );
    breaks(
        &[("/volumes/0", json!({"name": "root", "dataVolume": {"name": ""}}))],
        "spec.volumes[0].name",
        "DataVolume 'name' must be set",
    );
    breaks(
        &[("/volumes/0", json!({"name": "root", "secret": {}}))],
        "spec.volumes[0].secret.secretName",
        "spec.volumes[0].secret.secretName is a required field",
    );
    breaks(
        &[("/volumes/0", json!({"name": "root", "hostDisk": {"path": "/d", "type": "File"}}))],
        "spec.volumes[0].hostDisk.type",
        "spec.volumes[0].hostDisk.type has invalid value 'File', allowed are 'Disk' or 'DiskOrCreate'",
    );
    breaks(
        &[("/volumes/0", json!({"name": "root", "containerDisk": {"image": "i", "path": "/a/../b"}}))],
        "spec.volumes[0].containerDisk",
        "spec.volumes[0].containerDisk must be an absolute path to a file without relative components",
    );
    let seed = "spec.volumes[0].cloudInitNoCloud";
    let with = |source: Value| [("/volumes/0", json!({"name": "root", "cloudInitNoCloud": source}))];
    breaks(
        &with(json!({"userData": "a", "userDataBase64": "YQ=="})),
        seed,
        &format!("{seed} must have only one userdatasource set."),
    );
    breaks(
        &with(json!({})),
        seed,
        &format!("{seed} must have at least one userdatasource or one networkdatasource set."),
    );
    breaks(
        &with(json!({"userData": "a".repeat(2049)})),
        seed,
        &format!("{seed} userdata exceeds 2048 byte limit. Should use UserDataSecretRef for larger data."),
    );
    breaks(
        &with(json!({"userData": "a", "networkDataBase64": "?"})),
        &format!("{seed}.networkDataBase64"),
        &format!("{seed}.networkDataBase64 is not a valid base64 value."),
    );
}

#[test]
fn devices_and_firmware() {
    let devices = "spec.domain.devices";
    breaks(
        &[("/domain/devices/inputs", json!([{"name": "i", "type": "mouse"}]))],
        &format!("{devices}.inputs[0].type"),
        "Input device can have only tablet type.",
    );
    breaks(
        &[("/domain/devices/inputs", json!([{"name": "i", "type": "tablet", "bus": "ps2"}]))],
        &format!("{devices}.inputs[0].bus"),
        "Input device can have only virtio or usb bus.",
    );
    breaks(
        &[("/domain/devices/sound", json!({"name": "s", "model": "sb16"}))],
        "spec.Sound",
        "Sound device type is not supported. Options: 'ich9' or 'ac97'",
    );
    breaks(
        &[("/domain/devices/video", json!({"type": "cga"}))],
        &format!("{devices}.video.type"),
        "video model 'cga' is not supported on amd64 architecture",
    );
    breaks(
        &[
            ("/domain/devices/video", json!({"type": "vga"})),
            ("/domain/devices/autoattachGraphicsDevice", json!(false)),
        ],
        "spec.video",
        "Video configuration is not allowed when autoattachGraphicsDevice is set to false",
    );
    breaks(
        &[("/domain/devices/watchdog", json!({"name": "w", "diag288": {}}))],
        &format!("{devices}.watchdog"),
        "amd64 only supports I6300ESB watchdog device",
    );
    breaks(
        &[("/domain/ioThreadsPolicy", json!("many"))],
        "spec.domain.ioThreadsPolicy",
        "Invalid IOThreadsPolicy (many)",
    );
    breaks(
        &[("/domain/machine/type", json!("sparc"))],
        "spec.domain.machine.type",
        "spec.domain.machine.type is not supported: sparc (allowed values: [q35* pc-q35* pc pc-i440fx*])",
    );
    breaks(
        &[("/domain/firmware/bootloader", json!({"efi": {}}))],
        "spec.domain",
        "spec.domain has EFI SecureBoot enabled. SecureBoot requires SMM, which is currently disabled.",
    );
    breaks(
        &[("/domain/firmware/bootloader", json!({"efi": {"secureBoot": false}, "bios": {}}))],
        "spec.domain.firmware.bootloader",
        "spec.domain.firmware.bootloader has both EFI and BIOS configured, but they are mutually exclusive.",
    );
    breaks(
        &[("/domain/firmware/uuid", json!("x"))],
        "spec.domain.firmware.uuid",
        "spec.domain.firmware.uuid 'x' is not a UUID",
    );
    breaks(
        &[("/domain/firmware/kernelBoot", json!({"kernelArgs": "quiet"}))],
        "spec.domain.firmware.kernelBoot.kernelArgs",
        "kernel arguments cannot be provided without an external kernel",
    );
    let mut spec = right();
    put(&mut spec, "/domain/firmware/bootloader", json!({"efi": {}}));
    put(&mut spec, "/domain/features/smm", json!({}));
    assert_eq!(causes(&spec), []);
}

#[test]
fn probes_and_credentials() {
    breaks(
        &[("/readinessProbe", json!({"tcpSocket": {"port": 1}, "guestAgentPing": {}}))],
        "spec.readinessProbe",
        "spec.readinessProbe must have exactly one probe type set",
    );
    breaks(
        &[("/livenessProbe", json!({}))],
        "spec.livenessProbe",
        "either spec.livenessProbe.tcpSocket, spec.livenessProbe.exec or spec.livenessProbe.httpGet must be set if a spec.livenessProbe is specified",
    );
    breaks(
        &[
            ("/readinessProbe", json!({"tcpSocket": {"port": 1}})),
            ("/networks/0", json!({"name": "default", "multus": {"networkName": "n"}})),
            ("/domain/devices/interfaces/0", json!({"name": "default", "bridge": {}})),
        ],
        "spec.readinessProbe.tcpSocket",
        "spec.readinessProbe.tcpSocket is only allowed if the Pod Network is attached",
    );
    let secret = json!({"secret": {"secretName": "s"}});
    breaks(
        &[("/accessCredentials", json!([{"sshPublicKey": {"source": secret, "propagationMethod": {"noCloud": {}}}}]))],
        "spec.accessCredentials[0].sshPublicKey.propagationMethod",
        "spec.accessCredentials[0] requires a noCloud volume to exist when the noCloud propagationMethod is in use.",
    );
    breaks(
        &[(
            "/accessCredentials",
            json!([{"sshPublicKey": {"source": secret, "propagationMethod": {"qemuGuestAgent": {"users": []}}}}]),
        )],
        "spec.accessCredentials[0].sshPublicKey.propagationMethod.qemuGuestAgent.users",
        "spec.accessCredentials[0] requires at least one user to be present in the users list",
    );
    breaks(
        &[("/accessCredentials", json!([{"userPassword": {"source": secret, "propagationMethod": {}}}]))],
        "spec.accessCredentials[0].userPassword.propagationMethod",
        "spec.accessCredentials[0] must have exactly one propagationMethod set",
    );
    breaks(
        &[("/accessCredentials", json!([{}]))],
        "spec.accessCredentials[0]",
        "spec.accessCredentials[0] must have exactly one access credential type set",
    );
}

#[test]
fn what_croft_cannot_honour_is_refused_with_its_field() {
    let refused = [
        ("/domain/launchSecurity", json!({"sev": {}}), "spec.domain.launchSecurity"),
        ("/domain/cpu/realtime", json!({}), "spec.domain.cpu.realtime"),
        ("/domain/cpu/numa", json!({"guestMappingPassthrough": {}}), "spec.domain.cpu.numa.guestMappingPassthrough"),
        ("/domain/firmware/acpi", json!({"slicNameRef": "x"}), "spec.domain.firmware.acpi"),
        ("/domain/devices/filesystems", json!([{"name": "f", "virtiofs": {}}]), "spec.domain.devices.filesystems"),
        ("/domain/devices/downwardMetrics", json!({}), "spec.domain.devices.downwardMetrics"),
        ("/domain/devices/useVirtioTransitional", json!(true), "spec.domain.devices.useVirtioTransitional"),
        ("/schedulerName", json!("mine"), "spec.schedulerName"),
        ("/resourceClaims", json!([{"name": "r"}]), "spec.resourceClaims"),
        ("/volumes/0", json!({"name": "root", "downwardMetrics": {}}), "spec.volumes[0].downwardMetrics"),
    ];
    for (pointer, value, field) in refused {
        let mut spec = right();
        put(&mut spec, pointer, value);
        let causes = causes(&spec);
        assert_eq!(causes.len(), 1, "{causes:?}");
        assert_eq!(causes[0].0, field);
    }
    // Which node has them is for the scheduler to say.
    let mut spec = right();
    put(&mut spec, "/domain/devices/hostDevices", json!([{"name": "h", "deviceName": "vendor/card"}]));
    put(&mut spec, "/domain/devices/gpus", json!([{"name": "g", "deviceName": "vendor/gpu"}]));
    assert_eq!(causes(&spec), []);
}
