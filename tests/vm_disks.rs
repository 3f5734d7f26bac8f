//! Disks as a real guest sees them: what it was given, where it came from, and what happens when the pool is full.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use croft_e2e::machines::{
    BOOT, CLAIMS, IMAGES, INSTANCES, MACHINES, Shell, becomes, condition, create, croft_ok, empty, guest_image,
    in_guest, is_gone, is_true, node, node_name, qemus, status_becomes, subresource,
};
use croft_e2e::registry::Registry;
use croft_e2e::storage::{
    BLOCK_DEVICES, CLASSES, DATA_VOLUMES, LoopDevice, SECRETS, bound, claim, data_volume, deleted, disc, image,
    imported, made, patched, phase_becomes, text,
};
use croft_e2e::web::Web;
use croft_testkit::{Client, Croft, eventually, eventually_within};
use serde_json::{Value, json};

const MIB: u64 = 1 << 20;

/// The small guest with these disks and volumes; the first is what it boots from.
fn guest(name: &str, disks: &Value, volumes: &Value) -> Value {
    json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": {"name": name},
        "spec": {"runStrategy": "RerunOnFailure", "template": {"spec": {
            "terminationGracePeriodSeconds": 60,
            "domain": {
                "cpu": {"cores": 1}, "memory": {"guest": "192Mi"},
                "devices": {"disks": disks, "autoattachPodInterface": false},
            },
            "volumes": volumes,
        }}},
    })
}

fn free_bytes(dir: &Path) -> u64 {
    let stat = rustix::fs::statvfs(dir).expect("the pool");
    stat.f_bavail * stat.f_frsize
}

fn allocated(file: &Path) -> u64 {
    std::fs::metadata(file).expect("a volume's file").blocks() * 512
}

/// A pool of its own on a small device, and a class for it.
async fn small_pool(server: &Croft, client: &Client, device: &LoopDevice) -> PathBuf {
    let node = node_name(client).await;
    let spec = json!({"nodeName": node, "devPath": device.path, "provision": true,
        "tags": ["small"], "fileSystem": {"mountPoint": ""}});
    made(
        client,
        BLOCK_DEVICES,
        &json!({"apiVersion": "harvesterhci.io/v1beta1", "kind": "BlockDevice",
        "metadata": {"name": "small", "namespace": "longhorn-system"}, "spec": spec}),
    )
    .await;
    let path = format!("{BLOCK_DEVICES}/small");
    becomes(client, &path, "a pool", BOOT, |it| it["status"]["provisionPhase"] == "Provisioned").await;
    made(
        client,
        CLASSES,
        &json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass",
        "metadata": {"name": "small"}, "provisioner": "driver.longhorn.io", "reclaimPolicy": "Delete",
        "allowVolumeExpansion": true, "parameters": {"diskSelector": "small"}}),
    )
    .await;
    server.data_dir().join("disks/small")
}

/// A guest that fills its pool stands still, without an error of its disk, until there is room; what it discards is room.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_pool_stops_the_guest_until_there_is_room() {
    let device = LoopDevice::new(400).expect("a device");
    let (server, client) = node().await;
    let pool = small_pool(&server, &client, &device).await;
    let promises = json!({"value": json!({"cpu": 1000, "memory": 150, "storage": 300}).to_string()});
    patched(&client, "/apis/harvesterhci.io/v1beta1/settings/overcommit-config", &promises).await;
    // All but 48 MiB are taken by somebody else.
    let size = (free_bytes(&pool) - 48 * MIB) / (2 * MIB) * 2;
    let mut filler = data_volume("filler", &format!("{size}Mi"), &json!({"blank": {}}));
    filler["spec"]["preallocation"] = json!(true);
    filler["spec"]["storage"]["storageClassName"] = json!("small");
    made(&client, DATA_VOLUMES, &filler).await;
    phase_becomes(&client, "filler", "Succeeded").await;
    assert!(free_bytes(&pool) < 64 * MIB, "it has taken its blocks: {} are free", free_bytes(&pool));

    let image = guest_image().expect("the guest is built");
    croft_ok(&server, &["image", "upload", "tiny", text(&image)]).await.expect("uploaded");
    made(&client, CLAIMS, &claim("root", "longhorn-tiny", "1Gi")).await;
    made(&client, CLAIMS, &claim("data", "small", "128Mi")).await;
    let disks = json!([{"name": "root", "bootOrder": 1, "disk": {"bus": "virtio"}}, {"name": "data", "disk": {"bus": "virtio"}}]);
    let volumes = json!([{"name": "root", "persistentVolumeClaim": {"claimName": "root"}},
        {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]);
    create(&client, &guest("writer", &disks, &volumes)).await;
    let mut shell = Shell::log_in(&server, "writer", None).await.expect("a shell");
    shell.ok("verified-write run /dev/vdb 25600 256 > /tmp/written 2>&1 & echo begun").await;

    let path = format!("{INSTANCES}/writer");
    let is_stopped = |instance: &Value| is_true(instance, "Paused");
    let stopped = becomes(&client, &path, "stopped", BOOT, is_stopped).await;
    let paused = condition(&stopped, "Paused").expect("a condition");
    assert_eq!(paused["reason"], "PausedIOError", "{paused}");
    assert!(paused["message"].as_str().is_some_and(|message| message.contains("full")), "{paused}");
    status_becomes(&client, "writer", "Paused").await;
    let events = "/api/v1/namespaces/default/events?fieldSelector=involvedObject.name=writer";
    eventually("an event tells of it", async || {
        let events = client.get(events).await.expect("an answer").text();
        if events.contains("IOerror") { Ok(()) } else { Err(events) }
    })
    .await;

    deleted(&client, &format!("{DATA_VOLUMES}/filler")).await;
    becomes(&client, &path, "going on", BOOT, |instance| !is_true(instance, "Paused")).await;
    in_guest(&mut shell, "tail -n 1 /tmp/written", |text| text.contains("25600")).await;
    shell.ok("verified-write check /dev/vdb 25600").await;
    let log = shell.ok("dmesg | grep -ci 'i/o error' || true").await;
    assert_eq!(log, "0", "the guest has seen no error");

    let volume = bound(&client, "data").await["spec"]["volumeName"].as_str().expect("a volume").to_owned();
    let file = pool.join(format!("volumes/{volume}.raw"));
    let (before, free) = (allocated(&file), free_bytes(&pool));
    assert!(before >= 100 * MIB, "{before}");
    shell.ok("blkdiscard /dev/vdb").await;
    eventually("the blocks are given back", async || {
        let now = (allocated(&file), free_bytes(&pool));
        if now.0 < 8 * MIB && now.1 > free + 80 * MIB { Ok(()) } else { Err(format!("{now:?}")) }
    })
    .await;
    croft_ok(&server, &["vm", "delete", "writer", "--yes", "--wait"]).await.expect("deleted");
    // The node's end is a reset, which takes its mounts along.
    drop(server);
    let mounts = std::fs::read_to_string("/proc/mounts").expect("mounts");
    assert!(!mounts.contains(text(&pool)), "{mounts}");
}

/// What the API has is seen inside, on the buses and with the properties that were asked for. The root disk is from a registry
/// that wants a password, which is wrong at first.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_guest_sees_its_disks_as_they_were_asked_for() {
    let (server, client) = node().await;
    let mut registry = Registry::start(true).await.expect("a registry");
    let image = registry.push_disk("guests/tiny", &guest_image().expect("the guest is built")).await.expect("pushed");
    made(&client, SECRETS, &registry.pull_secret("pull", "wrong")).await;
    everything(&server, &client).await;
    let (disks, volumes) = all_disks(&server, &image);
    let mut machine = guest("seer", &disks, &volumes);
    machine["metadata"]["labels"] = json!({"colour": "green"});
    machine["spec"]["template"]["metadata"] = json!({"labels": {"colour": "green"}});
    create(&client, &machine).await;

    let path = format!("{MACHINES}/seer");
    let has_failed = |machine: &Value| {
        matches!(machine["status"]["printableStatus"].as_str(), Some("ErrImagePull" | "ImagePullBackOff"))
    };
    becomes(&client, &path, "without its image", BOOT, has_failed).await;
    let instance = client.get(&format!("{INSTANCES}/seer")).await.expect("an answer").json();
    let why = condition(&instance, "Synchronized").expect("a condition");
    assert!(why["message"].as_str().is_some_and(|message| message.contains(&image)), "{why}");
    let right = registry.pull_secret("pull", "secret");
    patched(&client, &format!("{SECRETS}/pull"), &json!({"stringData": right["stringData"]})).await;

    let mut shell = Shell::log_in(&server, "seer", None).await.expect("a shell");
    contents(&mut shell).await;
    properties(&mut shell).await;
    on_the_command_line(&server, &client).await;
    a_disc_is_changed(&client, &mut shell).await;
    sharing(&client).await;

    // The image is here: the registry is not needed any more.
    registry.stop().expect("stopped");
    let stopped = client.put(&subresource("virtualmachines", "seer", "stop"), &json!({"gracePeriod": 0})).await;
    assert_eq!(stopped.expect("an answer").status, 202);
    status_becomes(&client, "seer", "Stopped").await;
    is_gone(&client, &format!("{INSTANCES}/seer")).await;
    eventually("it starts again", async || {
        let answer = client.put(&subresource("virtualmachines", "seer", "start"), &json!({})).await?;
        if answer.status == 202 { Ok(()) } else { Err(anyhow::anyhow!("{}", answer.text())) }
    })
    .await;
    status_becomes(&client, "seer", "Running").await;
}

/// The objects and claims that the guest's volumes name.
async fn everything(server: &Croft, client: &Client) {
    let object = |kind: &str, name: &str, data: &Value| json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": name}, "data": data});
    made(client, SECRETS, &object("Secret", "secret", &json!({"word": "dHVybmlw"}))).await;
    let maps = "/api/v1/namespaces/default/configmaps";
    made(client, maps, &object("ConfigMap", "map", &json!({"colour": "green\n"}))).await;
    made(client, maps, &object("ConfigMap", "answers", &json!({"autounattend.xml": "<unattend/>\n"}))).await;
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    made(client, accounts, &json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "robot"}})).await;
    for name in ["scsi", "shared", "own", "thread"] {
        made(client, CLAIMS, &claim(name, "harvester-longhorn", "16Mi")).await;
    }
    std::fs::create_dir_all(server.data_dir().join("host-disks")).expect("a directory");
}

fn all_disks(server: &Croft, image: &str) -> (Value, Value) {
    let host_disk = server.data_dir().join("host-disks/own.img");
    let claim = |name: &str| json!({"name": name, "persistentVolumeClaim": {"claimName": name}});
    let disks = json!([
        {"name": "root", "bootOrder": 1, "disk": {"bus": "virtio"}},
        {"name": "scsi", "serial": "scsi-serial", "disk": {"bus": "scsi"}, "cache": "writethrough"},
        {"name": "shared", "serial": "shared", "shareable": true, "disk": {"bus": "virtio"}},
        {"name": "own", "serial": "own", "disk": {"bus": "virtio", "readonly": true}},
        {"name": "thread", "serial": "thread", "dedicatedIOThread": true, "io": "native", "cache": "none",
         "disk": {"bus": "virtio"}, "blockSize": {"custom": {"logical": 4096, "physical": 4096}}},
        {"name": "empty", "serial": "empty", "disk": {"bus": "sata"}},
        {"name": "host", "serial": "host", "disk": {"bus": "usb"}},
        {"name": "secret", "serial": "secret", "disk": {"bus": "virtio"}},
        {"name": "map", "cdrom": {"bus": "sata"}},
        {"name": "sysprep", "cdrom": {"bus": "sata"}},
        {"name": "account", "serial": "account", "disk": {"bus": "virtio"}},
        {"name": "downward", "serial": "downward", "disk": {"bus": "virtio"}},
        {"name": "drive", "cdrom": {"bus": "sata"}},
    ]);
    let volumes = json!([
        {"name": "root", "containerDisk": {"image": image, "imagePullSecret": "pull", "imagePullPolicy": "IfNotPresent"}},
        claim("scsi"), claim("shared"), claim("own"), claim("thread"),
        {"name": "empty", "emptyDisk": {"capacity": "24Mi"}},
        {"name": "host", "hostDisk": {"path": host_disk, "type": "DiskOrCreate", "capacity": "32Mi"}},
        {"name": "secret", "secret": {"secretName": "secret"}},
        {"name": "map", "configMap": {"name": "map"}},
        {"name": "sysprep", "sysprep": {"configMap": {"name": "answers"}}},
        {"name": "account", "serviceAccount": {"serviceAccountName": "robot"}},
        {"name": "downward", "downwardAPI": {"fields": [{"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}]}},
    ]);
    (disks, volumes)
}

/// Finds a disk by its serial number and mounts it.
fn mount(serial: &str) -> String {
    format!(
        "d=$(grep -l '^{serial}$' /sys/block/*/serial /sys/block/*/device/serial 2>/dev/null | cut -d/ -f4) && \
         mkdir -p /tmp/{serial} && mount -o ro /dev/$d /tmp/{serial}"
    )
}

/// What is in the volumes that the API has the content of.
async fn contents(shell: &mut Shell) {
    for serial in ["secret", "account", "downward"] {
        shell.ok(&mount(serial)).await;
    }
    assert_eq!(shell.ok("cat /tmp/secret/word").await, "turnip");
    assert!(shell.ok("cat /tmp/downward/labels").await.contains("colour=\"green\""));
    assert_eq!(shell.ok("cat /tmp/account/namespace").await, "default");
    assert!(shell.ok("wc -c < /tmp/account/token").await.parse::<u32>().is_ok_and(|length| length > 100));
    shell.ok("mkdir -p /tmp/cd0 /tmp/cd1; mount -o ro /dev/sr0 /tmp/cd0 && mount -o ro /dev/sr1 /tmp/cd1").await;
    let names = shell.ok("cat /tmp/cd0/* /tmp/cd1/*").await;
    assert!(names.contains("green") && names.contains("<unattend/>"), "{names}");
    assert!(shell.ok("ls /tmp/cd0 /tmp/cd1").await.to_lowercase().contains("autounattend.xml"));
}

/// How the disks look from inside.
async fn properties(shell: &mut Shell) {
    let sizes = shell.ok("for d in /sys/block/sd*; do echo $(cat $d/size) $(readlink -f $d); done").await;
    let on = |sectors: u64, bus: &str| {
        sizes.lines().any(|line| line.starts_with(&format!("{sectors} ")) && line.contains(bus))
    };
    assert!(on(24 * MIB / 512, "/ata"), "an empty disk on SATA: {sizes}");
    assert!(on(32 * MIB / 512, "/usb"), "a host's disk on USB: {sizes}");
    assert!(on(16 * MIB / 512, "/virtio"), "a claim on SCSI: {sizes}");
    let serials = shell.ok("cat /sys/block/vd*/serial").await;
    for serial in ["shared", "own", "thread"] {
        assert!(serials.contains(serial), "{serial} is not in {serials}");
    }
    let of = |serial: &str, file: &str| {
        format!("d=$(grep -l '^{serial}$' /sys/block/vd*/serial | cut -d/ -f4) && cat /sys/block/$d/{file}")
    };
    assert_eq!(shell.ok(&of("thread", "queue/logical_block_size")).await, "4096");
    assert_eq!(shell.ok(&of("shared", "queue/logical_block_size")).await, "512");
    assert_eq!(shell.ok(&of("own", "ro")).await, "1");
    assert_eq!(shell.ok(&of("shared", "ro")).await, "0");
    let (_, code) = shell
        .run("d=$(grep -l '^own$' /sys/block/vd*/serial | cut -d/ -f4); echo x > /dev/$d")
        .await
        .expect("a command");
    assert_ne!(code, 0, "a disk that is only read cannot be written");
    shell.ok("d=$(grep -l '^shared$' /sys/block/vd*/serial | cut -d/ -f4); truncate -s 1M /tmp/x; verified-write run /dev/$d 64 16 >/dev/null && verified-write check /dev/$d 64").await;
    shell.ok("grep -q 'scsi-serial' /sys/block/sd*/device/vpd_pg80").await;
}

/// What only the host sees: threads, caches, ways of input and output.
async fn on_the_command_line(server: &Croft, client: &Client) {
    let instance = client.get(&format!("{INSTANCES}/seer")).await.expect("an answer").json();
    let uid = instance["metadata"]["uid"].as_str().expect("a uid");
    let pid = qemus(server).get(uid).copied().expect("its QEMU");
    let line = std::fs::read(format!("/proc/{pid}/cmdline")).expect("its arguments");
    let line = String::from_utf8_lossy(&line).into_owned();
    let options: Vec<Value> = line.split('\0').filter_map(|word| serde_json::from_str(word).ok()).collect();
    let find = |key: &str, name: &str| {
        let found = options.iter().find(|option| option[key] == format!("d-{name}"));
        found.unwrap_or_else(|| panic!("no {key} of {name} in {line}"))
    };
    let (of, node) = (|name: &str| find("id", name), |name: &str| find("node-name", name));
    assert!(of("thread")["iothread"].is_string(), "{}", of("thread"));
    assert!(of("shared").get("iothread").is_none(), "{}", of("shared"));
    assert_eq!(of("shared")["share-rw"], true, "{}", of("shared"));
    assert_eq!(node("thread")["file"]["aio"], "native", "{}", node("thread"));
    assert_eq!(node("thread")["cache"]["direct"], true, "{}", node("thread"));
    assert_eq!(of("scsi")["write-cache"], "off", "{}", of("scsi"));
    assert_eq!(node("own")["read-only"], true, "{}", node("own"));
    assert_eq!(of("root")["bootindex"], 1, "{}", of("root"));
}

/// A disc goes into the drive of a guest that runs, and comes out again.
async fn a_disc_is_changed(client: &Client, shell: &mut Shell) {
    let web = Web::start().await.expect("a server");
    let url = web.put("cd.iso", disc("title", "waltz\n").expect("a CD")).await;
    made(client, IMAGES, &image("disc", &json!({"sourceType": "download", "url": url}))).await;
    imported(client, "disc").await;
    made(client, CLAIMS, &claim("disc", "longhorn-disc", "2Mi")).await;
    bound(client, "disc").await;
    let (_, code) = shell.run("head -c 1 /dev/sr2 > /dev/null 2>&1").await.expect("a command");
    assert_ne!(code, 0, "the drive is empty");

    // As the user interface does: the machine's volumes are edited.
    let path = format!("{MACHINES}/seer");
    let machine = client.get(&path).await.expect("an answer").json();
    let without = machine["spec"]["template"]["spec"]["volumes"].as_array().expect("volumes").clone();
    let mut with = without.clone();
    with.push(json!({"name": "drive", "persistentVolumeClaim": {"claimName": "disc", "hotpluggable": true}}));
    let volumes = |volumes: &Vec<Value>| json!({"spec": {"template": {"spec": {"volumes": volumes}}}});
    patched(client, &path, &volumes(&with)).await;
    in_guest(shell, "mkdir -p /tmp/cd2; mount -o ro /dev/sr2 /tmp/cd2; cat /tmp/cd2/title", |text| {
        text.contains("waltz")
    })
    .await;
    shell.ok("umount /tmp/cd2").await;
    patched(client, &path, &volumes(&without)).await;
    in_guest(shell, "head -c 1 /dev/sr2 > /dev/null 2>&1 || echo empty", |text| text.contains("empty")).await;
    let machine = client.get(&path).await.expect("an answer").json();
    assert!(!is_true(&machine, "RestartRequired"), "{}", machine["status"]);
}

/// One disk in two machines: only if both say that it is shared.
async fn sharing(client: &Client) {
    let second = |name: &str, claim: &str, is_shared: bool| {
        let mut machine = empty(name);
        let spec = &mut machine["spec"]["template"]["spec"];
        // What is shared is not what one boots from.
        spec["domain"]["devices"]["disks"] = json!([{"name": "first", "disk": {"bus": "virtio"}},
            {"name": "disk", "shareable": is_shared, "disk": {"bus": "virtio"}}]);
        spec["volumes"] = json!([{"name": "first", "emptyDisk": {"capacity": "1Mi"}},
            {"name": "disk", "persistentVolumeClaim": {"claimName": claim}}]);
        machine
    };
    create(client, &second("sharer", "shared", true)).await;
    status_becomes(client, "sharer", "Running").await;
    let refused = client.post(MACHINES, &second("thief", "scsi", false)).await.expect("an answer");
    assert!(refused.status >= 400 && refused.text().contains("already used"), "{}: {}", refused.status, refused.text());
    // An instance without a machine gets past that; it fails, and the first one keeps its disk.
    let mut thief = second("thief", "scsi", false)["spec"]["template"].clone();
    thief["apiVersion"] = json!("kubevirt.io/v1");
    thief["kind"] = json!("VirtualMachineInstance");
    thief["metadata"] = json!({"name": "thief"});
    let answer = client.post(INSTANCES, &thief).await.expect("an answer");
    if answer.status < 300 {
        let path = format!("{INSTANCES}/thief");
        let is_refused = |instance: &Value| {
            condition(instance, "Synchronized")
                .is_some_and(|why| why["status"] == "False" && why["message"].is_string())
        };
        let refused = becomes(client, &path, "refused", BOOT, is_refused).await;
        assert_ne!(refused["status"]["phase"], "Running", "{refused}");
        deleted(client, &path).await;
    }
    deleted(client, &format!("{MACHINES}/sharer")).await;
    let gone = eventually_within(BOOT, async || {
        let answer = client.get(&format!("{MACHINES}/sharer")).await.map_err(|err| err.to_string())?;
        if answer.status == 404 { Ok(()) } else { Err(answer.text()) }
    });
    gone.await.expect("the sharer goes");
}
