//! What a machine's object says is what its QEMU is told; what cannot be had is refused, and nothing is passed over.

use croft_e2e::machines::{
    INSTANCES, MACHINES, becomes, condition, create, empty, events_of, merge, node, qemu_line, running, status_becomes,
    subresource,
};
use croft_testkit::{eventually, patience};
use serde_json::{Value, json};

fn with(name: &str, spec: &Value) -> Value {
    let mut machine = empty(name);
    merge(&mut machine["spec"]["template"]["spec"], spec);
    machine
}

/// QEMU's arguments: what follows each option, and its devices as they were described.
struct Line(Vec<String>);

impl Line {
    fn of(&self, option: &str) -> Vec<&str> {
        let pairs = self.0.windows(2).filter(|pair| pair[0] == option);
        pairs.map(|pair| pair[1].as_str()).collect()
    }

    fn devices(&self, driver: &str) -> Vec<Value> {
        let parse = |text: &str| serde_json::from_str::<Value>(text).ok();
        self.of("-device").into_iter().filter_map(parse).filter(|device| device["driver"] == driver).collect()
    }

    fn device(&self, driver: &str) -> Value {
        let mut found = self.devices(driver);
        assert_eq!(found.len(), 1, "{driver}: {:?}", self.of("-device"));
        found.remove(0)
    }

    fn has(&self, option: &str, part: &str) {
        assert!(self.of(option).iter().any(|text| text.contains(part)), "{option} {part}: {:?}", self.of(option));
    }
}

fn everything() -> Value {
    let disk = |name: &str, more: Value| {
        let mut disk = json!({"name": name});
        merge(&mut disk, &more);
        disk
    };
    let volume = |name: &str| json!({"name": name, "emptyDisk": {"capacity": "1Mi"}});
    json!({
        "domain": {
            "cpu": {"sockets": 1, "cores": 2, "threads": 1, "maxSockets": 2, "model": "Haswell", "features": [
                {"name": "aes", "policy": "require"}, {"name": "avx2", "policy": "disable"},
                {"name": "rtm", "policy": "optional"}]},
            "machine": {"type": "pc-q35-7.2"},
            "firmware": {"uuid": "11111111-2222-3333-4444-555555555555", "serial": "s-1"},
            "chassis": {"manufacturer": "croft", "version": "2", "serial": "c-1", "asset": "a-1", "sku": "k-1"},
            "clock": {"utc": {"offsetSeconds": 86400}, "timer": {"hpet": {"present": false},
                "pit": {"tickPolicy": "delay"}, "rtc": {"tickPolicy": "catchup", "track": "guest"}}},
            "features": {"acpi": {}, "apic": {}, "smm": {"enabled": false}, "hyperv": {"relaxed": {}, "vapic": {}}},
            "ioThreadsPolicy": "auto",
            "devices": {
                "autoattachMemBalloon": false, "autoattachPodInterface": null, "blockMultiQueue": true,
                "networkInterfaceMultiqueue": true, "clientPassthrough": {}, "rng": {},
                "inputs": [{"name": "t1", "type": "tablet", "bus": "usb"}, {"name": "t2", "type": "tablet", "bus": "virtio"}],
                "video": {"type": "virtio"}, "sound": {"name": "s", "model": "ac97"},
                "watchdog": {"name": "w", "i6300esb": {"action": "poweroff"}}, "panicDevices": [{"model": "pvpanic"}],
                "tpm": {},
                "disks": [
                    disk("a", json!({"disk": {"bus": "virtio"}, "serial": "disk-a", "cache": "writethrough", "io": "threads",
                        "dedicatedIOThread": true, "bootOrder": 2,
                        "blockSize": {"custom": {"logical": 512, "physical": 4096, "discardGranularity": 4096}}})),
                    disk("b", json!({"disk": {"bus": "scsi", "readonly": true}, "errorPolicy": "report"})),
                    disk("c", json!({"disk": {"bus": "sata"}})),
                    disk("d", json!({"disk": {"bus": "usb"}})),
                    disk("e", json!({"cdrom": {"bus": "sata", "tray": "open"}})),
                    disk("f", json!({"cdrom": {"bus": "scsi"}})),
                ],
                "interfaces": [{"name": "default", "masquerade": {}, "model": "virtio", "bootOrder": 1, "acpiIndex": 7,
                    "macAddress": "02:00:00:00:00:17"}],
            },
        },
        "networks": [{"name": "default", "pod": {}}],
        "volumes": [volume("a"), volume("b"), volume("c"), volume("d"), volume("e")],
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_machine_with_everything_is_what_it_was_told_to_be() {
    let (server, client) = node().await;
    create(&client, &with("all", &everything())).await;
    let instance = running(&client, "all").await;
    let line = Line(qemu_line(&server, &instance));
    for (option, part) in [
        ("-machine", "type=pc-q35-7.2"),
        ("-machine", "hpet=off"),
        ("-machine", "smm=off"),
        ("-cpu", "Haswell,aes=on,avx2=off,rtm=on"),
        ("-smp", "cpus=2,maxcpus=4,sockets=2,cores=2,threads=1"),
        ("-m", "size=65536k"),
        ("-uuid", "11111111-2222-3333-4444-555555555555"),
        ("-smbios", "serial=s-1"),
        ("-smbios", "asset=a-1"),
        ("-smbios", "sku=k-1"),
        ("-rtc", "clock=vm,driftfix=slew"),
        ("-action", "watchdog=poweroff"),
        ("-boot", "strict=on"),
    ] {
        line.has(option, part);
    }
    assert!(line.of("-rtc")[0].starts_with("base=20"), "ahead of UTC: {:?}", line.of("-rtc"));
    for driver in ["usb-tablet", "virtio-tablet-pci", "virtio-rng-pci", "i6300esb", "pvpanic-pci", "AC97", "tpm-crb"] {
        line.device(driver);
    }
    assert_eq!(line.devices("usb-redir").len(), 4);
    assert_eq!(line.devices("virtio-balloon-pci").len(), 0);
    assert!(!line.devices("virtio-vga").is_empty() || !line.devices("virtio-gpu-pci").is_empty(), "{:?}", line.0);
    let nic = line.device("virtio-net-pci");
    assert_eq!(
        (&nic["mac"], &nic["bootindex"], &nic["acpi-index"]),
        (&json!("02:00:00:00:00:17"), &json!(1), &json!(7))
    );
    assert_eq!(nic["mq"], true, "{nic}");
    let disk = line.device("virtio-blk-pci");
    assert_eq!((&disk["serial"], &disk["bootindex"], &disk["num-queues"]), (&json!("disk-a"), &json!(2), &json!(2)));
    assert_eq!((&disk["logical_block_size"], &disk["physical_block_size"]), (&json!(512), &json!(4096)));
    assert!(disk["iothread"].is_string() && disk["write-cache"] == "off", "{disk}");
    assert_eq!(line.device("scsi-hd")["rerror"], "report");
    assert_eq!(line.device("ide-hd")["driver"], "ide-hd");
    assert_eq!(line.device("usb-storage")["driver"], "usb-storage");
    line.device("ide-cd");
    line.device("scsi-cd");
    let events = events_of(&client, "all").await;
    assert!(!events.iter().any(|event| event.contains("SyncFailed")), "the tray is open: {events:?}");
    // What this node's processors cannot do, and the guest can live without, is said.
    if line.of("-accel")[0].starts_with("tcg") {
        eventually("the event about Hyper-V", async || {
            let events = events_of(&client, "all").await;
            if events.iter().any(|event| event.contains("Hyper-V")) { Ok(()) } else { Err(format!("{events:?}")) }
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_had_is_refused_when_it_is_asked_for() {
    let (_server, client) = node().await;
    let disk = |more: Value| {
        let mut disk = json!({"name": "d", "disk": {"bus": "virtio"}});
        merge(&mut disk, &more);
        json!({"volumes": [{"name": "d", "emptyDisk": {"capacity": "1Mi"}}], "domain": {"devices": {"disks": [disk]}}})
    };
    let devices = |devices: Value| json!({"domain": {"devices": devices}});
    let interface = |more: Value| {
        let mut interface = json!({"name": "default", "masquerade": {}});
        merge(&mut interface, &more);
        json!({"networks": [{"name": "default", "pod": {}}], "domain": {"devices": {"interfaces": [interface]}}})
    };
    let timer = |timer: Value| json!({"domain": {"clock": {"timer": timer}}});
    let cases = [
        (json!({"domain": {"cpu": {"realtime": {}}}}), "real-time"),
        (json!({"domain": {"cpu": {"numa": {"guestMappingPassthrough": {}}}}}), "NUMA"),
        (json!({"domain": {"cpu": {"features": [{"name": "aes", "policy": "perhaps"}]}}}), "policy perhaps"),
        (json!({"domain": {"cpu": {"isolateEmulatorThread": true}}}), "DedicatedCPUPlacement"),
        (json!({"domain": {"cpu": {"sockets": 4, "maxSockets": 2}}}), "maximum sockets"),
        (json!({"domain": {"memory": {"reservedOverhead": {"addedOverhead": "1Gi"}}}}), "overhead"),
        (json!({"domain": {"memory": {"hugepages": {"pageSize": "often"}}}}), "pageSize"),
        (json!({"domain": {"memory": {"guest": "65Mi", "hugepages": {"pageSize": "2Mi"}}}}), "not a multiple"),
        (json!({"domain": {"launchSecurity": {"sev": {}}}}), "encrypted"),
        (json!({"domain": {"machine": {"type": "toaster"}}}), "machine.type"),
        (json!({"domain": {"firmware": {"acpi": {"slicNameRef": "x"}}}}), "ACPI"),
        (json!({"domain": {"firmware": {"bootloader": {"bios": {"useSerial": true}}}}}), "serial console"),
        (json!({"domain": {"firmware": {"bootloader": {"efi": {}}}}}), "SMM"),
        (json!({"domain": {"firmware": {"uuid": "mine"}}}), "not a UUID"),
        (timer(json!({"pit": {"present": false}})), "cannot be taken away"),
        (timer(json!({"rtc": {"present": false}})), "cannot be taken away"),
        (timer(json!({"rtc": {"tickPolicy": "merge"}})), "delay and catchup"),
        (timer(json!({"hpet": {"tickPolicy": "merge"}})), "only delay"),
        (json!({"domain": {"features": {"apic": {"enabled": false}}}}), "interrupt controller"),
        (devices(json!({"filesystems": [{"name": "f", "virtiofs": {}}]})), "virtiofs"),
        (devices(json!({"downwardMetrics": {}})), "downward metrics"),
        (devices(json!({"useVirtioTransitional": true})), "old standard"),
        (devices(json!({"video": {"type": "voodoo"}})), "voodoo"),
        (devices(json!({"video": {"type": "vga"}, "autoattachGraphicsDevice": false})), "autoattachGraphicsDevice"),
        (devices(json!({"sound": {"name": "s", "model": "sb16"}})), "Sound device"),
        (devices(json!({"watchdog": {"name": "w", "i6300esb": {"action": "bark"}}})), "bark"),
        (devices(json!({"inputs": [{"name": "k", "type": "keyboard", "bus": "usb"}]})), "tablet"),
        (devices(json!({"panicDevices": [{"model": "isa"}, {"model": "pvpanic"}]})), "one is all"),
        (disk(json!({"changedBlockTracking": true})), "not tracked"),
        (disk(json!({"tag": "logs"})), "serial"),
        (disk(json!({"disk": {"pciAddress": "0000:02:00.0"}})), "PCI addresses"),
        (disk(json!({"io": "uring"})), "IO mode"),
        (disk(json!({"disk": {"bus": "sata"}, "dedicatedIOThread": true})), "IOThreads"),
        (interface(json!({"pciAddress": "0000:02:00.0"})), "PCI addresses"),
        (interface(json!({"state": "absent"})), "absent"),
        (interface(json!({"masquerade": null, "sriov": {}})), "SR-IOV"),
        (interface(json!({"dhcpOptions": {"ntpServers": ["pool.ntp.org"]}})), "IPv4"),
        (interface(json!({"dhcpOptions": {"privateOptions": [{"option": 12, "value": "x"}]}})), "224 to 254"),
        (
            json!({"networks": [{"name": "default", "pod": {"vmNetworkCIDR": "10.9.0.0/24"}}]}),
            "addresses of the default network",
        ),
        (json!({"dnsPolicy": "None"}), "nameserver"),
        (json!({"dnsConfig": {"options": [{"name": "ndots", "value": "2"}]}}), "options"),
        (json!({"schedulerName": "mine"}), "schedulers"),
        (json!({"startStrategy": "Paused", "livenessProbe": {"guestAgentPing": {}}}), "LivenessProbe"),
        (json!({"architecture": "sparc"}), "architecture"),
    ];
    for (spec, expected) in cases {
        let answer = client.post(MACHINES, &with("bad", &spec)).await.expect("an answer");
        assert!(matches!(answer.status, 400 | 422), "{spec}: {} {}", answer.status, answer.text());
        assert!(answer.text().contains(expected), "{spec}: {}", answer.text());
    }
}

/// What only the node can tell: the machine does not run, and says why.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_node_lacks_is_said_by_the_machine() {
    let (_server, client) = node().await;
    let cases = [
        (
            "features",
            json!({"domain": {"cpu": {"features": [{"name": "avx512-4fmaps"}]}}}),
            "do not have avx512-4fmaps",
        ),
        ("unknown", json!({"domain": {"cpu": {"features": [{"name": "telepathy"}]}}}), "telepathy"),
        ("model", json!({"domain": {"cpu": {"model": "Abacus"}}}), "Abacus"),
        (
            "hostdev",
            json!({"domain": {"devices": {"hostDevices": [{"name": "h", "deviceName": "x.org/card"}]}}}),
            "x.org/card",
        ),
        ("huge", json!({"domain": {"memory": {"hugepages": {"pageSize": "1Gi"}, "guest": "1Gi"}}}), "hugepages"),
    ];
    let once = |name: &str, spec: &Value| {
        let mut machine = with(name, spec);
        // The instance stays to be looked at.
        machine["spec"]["runStrategy"] = json!("Once");
        machine
    };
    for (name, spec, _) in &cases {
        create(&client, &once(name, spec)).await;
    }
    for (name, _, expected) in &cases {
        let path = format!("{INSTANCES}/{name}");
        let said = |instance: &Value| {
            let conditions = instance["status"]["conditions"].as_array().cloned().unwrap_or_default();
            conditions
                .iter()
                .any(|one| one["status"] == "False" && one["message"].as_str().unwrap_or_default().contains(expected))
        };
        becomes(&client, &path, &format!("saying {expected}"), patience(), said).await;
    }
    create(&client, &once("vsock", &json!({"domain": {"devices": {"autoattachVSOCK": true}}}))).await;
    if std::path::Path::new("/dev/vhost-vsock").exists() {
        let instance = running(&client, "vsock").await;
        assert!(instance["status"]["VSOCKCID"].as_u64().is_some_and(|cid| cid > 2), "{}", instance["status"]);
        return;
    }
    let path = format!("{INSTANCES}/vsock");
    let failed = becomes(&client, &path, "failed", patience(), |one| one["status"]["phase"] == "Failed").await;
    let why = condition(&failed, "Synchronized").cloned().unwrap_or_default();
    assert!(why["message"].as_str().unwrap_or_default().contains("/dev/vhost-vsock"), "{}", failed["status"]);
}

/// A stopped machine can be started at once, however it was stopped.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stopped_machine_starts_at_once() {
    let (_server, client) = node().await;
    for strategy in ["RerunOnFailure", "Manual"] {
        let name = strategy.to_lowercase();
        let mut machine = empty(&name);
        machine["spec"]["runStrategy"] = json!(strategy);
        create(&client, &machine).await;
        let put = async |sub: &str| {
            let answer = client.put(&subresource("virtualmachines", &name, sub), &json!({})).await.expect("an answer");
            assert_eq!(answer.status, 202, "{strategy}, {sub}: {}", answer.text());
        };
        if strategy == "Manual" {
            put("start").await;
        }
        let mut last = String::new();
        for _ in 0..5 {
            let path = format!("{INSTANCES}/{name}");
            let instance = becomes(&client, &path, "running anew", patience(), |instance| {
                instance["status"]["phase"] == "Running" && instance["metadata"]["uid"] != last
            })
            .await;
            last = instance["metadata"]["uid"].as_str().expect("a uid").to_owned();
            put("stop").await;
            status_becomes(&client, &name, "Stopped").await;
            put("start").await;
        }
    }
}

/// A guest that does not answer is given up, and its run strategy decides what comes next.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_guest_that_does_not_answer_is_given_up() {
    let (_server, client) = node().await;
    let network = json!({
        "domain": {"devices": {"autoattachPodInterface": null, "interfaces": [{"name": "default", "masquerade": {}}]}},
        "networks": [{"name": "default", "pod": {}}],
    });
    let probed = |name: &str, strategy: &str, question: &Value| {
        let mut probe = json!({"periodSeconds": 1, "failureThreshold": 2});
        merge(&mut probe, question);
        let mut machine = with(name, &network);
        machine["spec"]["runStrategy"] = json!(strategy);
        machine["spec"]["template"]["spec"]["livenessProbe"] = probe;
        machine
    };
    let tcp = json!({"tcpSocket": {"port": 22}});
    create(&client, &probed("once", "Once", &tcp)).await;
    create(&client, &probed("rerun", "RerunOnFailure", &json!({"guestAgentPing": {}}))).await;
    let first = running(&client, "rerun").await;
    let path = format!("{INSTANCES}/once");
    becomes(&client, &path, "given up", patience(), |one| one["status"]["phase"] == "Failed").await;
    let events = events_of(&client, "once").await;
    assert!(events.iter().any(|event| event.contains("Unhealthy") && event.contains("liveness probe")), "{events:?}");
    becomes(&client, &format!("{INSTANCES}/rerun"), "another", patience(), |one| {
        one["metadata"]["uid"].is_string() && one["metadata"]["uid"] != first["metadata"]["uid"]
    })
    .await;
    // Somebody who stops the guest does not want it ended for not answering.
    let mut long = probed("paused", "Always", &tcp);
    long["spec"]["template"]["spec"]["livenessProbe"]["initialDelaySeconds"] = json!(3600);
    create(&client, &long).await;
    running(&client, "paused").await;
    let answer = client.put(&subresource("virtualmachineinstances", "paused", "pause"), &json!({})).await;
    let answer = answer.expect("an answer");
    assert_eq!(answer.status, 403, "{}", answer.text());
    assert!(answer.text().contains("LivenessProbe"), "{}", answer.text());
}
