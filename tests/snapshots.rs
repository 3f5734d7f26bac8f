//! Snapshots: of volumes by themselves, and of machines with all their disks at one instant.

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use croft_e2e::machines::{
    BOOT, CLAIMS, INSTANCES, MACHINES, Shell, USER_DATA, becomes, create, empty, guest, in_guest, is_gone, is_true,
    node, node_with_image, qemus, status_becomes, subresource,
};
use croft_e2e::storage::{
    CLASSES, DATA_VOLUMES, SECRETS, begins_with, bound, claim, data_volume, deleted, disk, made, patched,
    phase_becomes, volume_file,
};
use croft_testkit::{Client, Croft, eventually};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;

const SNAPSHOTS: &str = "/apis/snapshot.storage.k8s.io/v1/namespaces/default/volumesnapshots";
const CONTENTS: &str = "/apis/snapshot.storage.k8s.io/v1/volumesnapshotcontents";
const SNAPSHOT_CLASSES: &str = "/apis/snapshot.storage.k8s.io/v1/volumesnapshotclasses";
const BACKUPS: &str = "/apis/harvesterhci.io/v1beta1/namespaces/default/virtualmachinebackups";
const RESTORES: &str = "/apis/harvesterhci.io/v1beta1/namespaces/default/virtualmachinerestores";
const QUOTAS: &str = "/apis/harvesterhci.io/v1beta1/namespaces/default/resourcequotas";
/// Where the guest counts, beyond what it writes otherwise.
const COUNTERS: u64 = 48 << 20;
const ACTIONS: &str = "/v1/harvester/snapshot.storage.k8s.io.volumesnapshots/default";

fn snapshot(name: &str, class: &str, claim: &str) -> Value {
    let mut snapshot = json!({"apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshot",
        "metadata": {"name": name}, "spec": {"source": {"persistentVolumeClaimName": claim}}});
    if !class.is_empty() {
        snapshot["spec"]["volumeSnapshotClassName"] = json!(class);
    }
    snapshot
}

async fn ready(client: &Client, name: &str) -> Value {
    let path = format!("{SNAPSHOTS}/{name}");
    becomes(client, &path, "ready", BOOT, |it| it["status"]["readyToUse"] == true).await
}

async fn failed(client: &Client, name: &str, words: &str) {
    let path = format!("{SNAPSHOTS}/{name}");
    let says = |it: &Value| it["status"]["error"]["message"].as_str().is_some_and(|why| why.contains(words));
    let failed = becomes(client, &path, words, BOOT, says).await;
    assert_eq!(failed["status"]["readyToUse"], false, "{failed}");
}

/// A claim that is to be what a snapshot holds.
fn restored(name: &str, size: &str, from: &str) -> Value {
    let mut claim = claim(name, "harvester-longhorn", size);
    claim["spec"]["dataSource"] =
        json!({"apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": from});
    claim
}

fn files(server: &Croft) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(server.data_dir().join("pool/snapshots")).expect("the pool");
    entries.flatten().map(|entry| entry.path()).collect()
}

fn write(path: &Path, content: &[u8]) {
    let file = std::fs::OpenOptions::new().write(true).open(path).expect("the volume's file");
    file.write_all_at(content, 0).expect("written");
}

async fn holds(server: &Croft, client: &Client, claim: &str, content: &[u8], size: usize) {
    let file = volume_file(server, client, claim).await;
    assert!(begins_with(&std::fs::read(file).expect("the volume"), content, size), "{claim}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_volume_is_kept_as_it_was() {
    let (mut server, client) = node().await;
    made(&client, CLAIMS, &claim("data", "harvester-longhorn", "24Mi")).await;
    let (file, content) = (volume_file(&server, &client, "data").await, disk());
    write(&file, &content);

    // Without a class it is one in the pool.
    made(&client, SNAPSHOTS, &snapshot("one", "", "data")).await;
    let one = ready(&client, "one").await;
    assert_eq!(one["status"]["restoreSize"], "24Mi", "{one}");
    assert!(one["status"]["creationTime"].is_string() && one["status"]["error"].is_null(), "{one}");
    let bound_to = one["status"]["boundVolumeSnapshotContentName"].as_str().expect("a content").to_owned();
    let about = client.get(&format!("{CONTENTS}/{bound_to}")).await.expect("an answer").json();
    assert_eq!(about["spec"]["deletionPolicy"], "Delete", "{about}");
    assert_eq!(about["spec"]["sourceVolumeMode"], "Block", "{about}");
    assert_eq!(about["status"]["restoreSize"], 24 << 20, "{about}");
    let listed = server.kubectl().expect("kubectl").run(&["get", "volumesnapshots"]).await.expect("kubectl runs");
    assert!(listed.stdout.contains("24Mi") && listed.stdout.contains("true"), "{listed:?}");
    write(&file, vec![7; 1 << 20].as_slice());

    // By the actions of Harvester, of the volume as it is now.
    let act = async |path: String, body: Value| client.post(&path, &body).await.expect("an answer");
    let claims = "/v1/harvester/persistentvolumeclaims/default/data?action=snapshot";
    assert_eq!(act(claims.to_owned(), json!({"name": "two"})).await.status, 204);
    let two = ready(&client, "two").await;
    assert_eq!(two["metadata"]["annotations"]["harvesterhci.io/storageClassName"], "harvester-longhorn", "{two}");
    let shown = client.get(&format!("{ACTIONS}/two")).await.expect("an answer").json();
    assert!(shown["actions"].get("restore").is_some(), "{}", shown["actions"]);
    assert_eq!(act(format!("{ACTIONS}/two?action=restore"), json!({"name": "later"})).await.status, 204);
    for (body, code) in [(json!({}), 422), (json!({"name": "later"}), 409), (json!({"name": "A!"}), 422)] {
        let refused = act(format!("{ACTIONS}/two?action=restore"), body).await;
        assert_eq!(refused.status, code, "{}", refused.text());
    }

    // The volume goes; its snapshots stay, and a start of the server changes nothing.
    deleted(&client, &format!("{CLAIMS}/data")).await;
    eventually("the volume's file is gone", async || if file.exists() { Err("there") } else { Ok(()) }).await;
    server.restart().await.expect("a restart");
    let client = server.client().expect("a client");
    made(&client, CLAIMS, &restored("same", "24Mi", "one")).await;
    made(&client, CLAIMS, &restored("larger", "32Mi", "one")).await;
    made(&client, CLAIMS, &restored("smaller", "16Mi", "one")).await;
    let source = json!({"snapshot": {"namespace": "default", "name": "one"}});
    made(&client, DATA_VOLUMES, &data_volume("filled", "24Mi", &source)).await;
    holds(&server, &client, "same", &content, 24 << 20).await;
    holds(&server, &client, "larger", &content, 32 << 20).await;
    phase_becomes(&client, "filled", "Succeeded").await;
    holds(&server, &client, "filled", &content, 24 << 20).await;
    let mut changed = content.clone();
    changed[..1 << 20].fill(7);
    holds(&server, &client, "later", &changed, 24 << 20).await;
    croft_event(&client, "smaller", "do not fit").await;

    // A claim that waits for it holds it; then its file goes with it.
    deleted(&client, &format!("{SNAPSHOTS}/one")).await;
    let waiting = client.get(&format!("{SNAPSHOTS}/one")).await.expect("an answer").json();
    assert!(waiting["metadata"]["deletionTimestamp"].is_string(), "{waiting}");
    deleted(&client, &format!("{CLAIMS}/smaller")).await;
    is_gone(&client, &format!("{SNAPSHOTS}/one")).await;
    is_gone(&client, &format!("{CONTENTS}/{bound_to}")).await;
    eventually("one file is left", async || match files(&server).len() {
        1 => Ok(()),
        count => Err(format!("{count} files")),
    })
    .await;
    holds(&server, &client, "same", &content, 24 << 20).await;
    deleted(&client, &format!("{SNAPSHOTS}/two")).await;
    eventually("no file is left", async || if files(&server).is_empty() { Ok(()) } else { Err("files") }).await;
}

async fn croft_event(client: &Client, name: &str, words: &str) {
    let path = format!("/api/v1/namespaces/default/events?fieldSelector=involvedObject.name={name}");
    eventually("an event tells of it", async || {
        let events = client.get(&path).await.expect("an answer").text();
        if events.contains(words) { Ok(()) } else { Err(events) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_retained_comes_back_and_what_cannot_be_taken_says_why() {
    let (server, client) = node().await;
    let class = json!({"apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshotClass",
        "metadata": {"name": "kept"}, "driver": "driver.longhorn.io", "deletionPolicy": "Retain",
        "parameters": {"type": "snap"}});
    made(&client, SNAPSHOT_CLASSES, &class).await;
    made(&client, CLAIMS, &claim("data", "harvester-longhorn", "24Mi")).await;
    let content = disk();
    write(&volume_file(&server, &client, "data").await, &content);
    made(&client, SNAPSHOTS, &snapshot("old", "kept", "data")).await;
    let old = ready(&client, "old").await;
    let path = format!("{CONTENTS}/{}", old["status"]["boundVolumeSnapshotContentName"].as_str().expect("a content"));
    let handle = client.get(&path).await.expect("an answer").json()["status"]["snapshotHandle"].clone();
    assert!(handle.as_str().is_some_and(|handle| handle.starts_with("snap://pvc-")), "{handle}");
    deleted(&client, &format!("{SNAPSHOTS}/old")).await;
    is_gone(&client, &format!("{SNAPSHOTS}/old")).await;
    deleted(&client, &path).await;
    is_gone(&client, &path).await;
    assert_eq!(files(&server).len(), 1, "the file is kept");

    // A content that an administrator makes, and a snapshot that asks for it.
    let given = json!({"apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshotContent",
        "metadata": {"name": "given"}, "spec": {"driver": "driver.longhorn.io", "deletionPolicy": "Delete",
            "source": {"snapshotHandle": handle}, "volumeSnapshotRef": {"namespace": "default", "name": "again"}}});
    made(&client, CONTENTS, &given).await;
    let mut again = snapshot("again", "", "");
    again["spec"]["source"] = json!({"volumeSnapshotContentName": "given"});
    made(&client, SNAPSHOTS, &again).await;
    ready(&client, "again").await;
    // It stays while its snapshot does.
    deleted(&client, &format!("{CONTENTS}/given")).await;
    made(&client, CLAIMS, &restored("back", "24Mi", "again")).await;
    holds(&server, &client, "back", &content, 24 << 20).await;
    deleted(&client, &format!("{SNAPSHOTS}/again")).await;
    is_gone(&client, &format!("{CONTENTS}/given")).await;
    is_gone(&client, &format!("{SNAPSHOTS}/again")).await;
    assert!(files(&server).is_empty(), "{:?}", files(&server));

    made(&client, SNAPSHOTS, &snapshot("no-claim", "longhorn-snapshot", "none")).await;
    made(&client, SNAPSHOTS, &snapshot("no-class", "none", "data")).await;
    made(&client, SNAPSHOTS, &snapshot("copy", "longhorn", "data")).await;
    failed(&client, "no-claim", "there is no claim default/none").await;
    failed(&client, "no-class", "there is no VolumeSnapshotClass none").await;
    failed(&client, "copy", "backup target").await;
    let waiting = json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "waiting"},
        "provisioner": "driver.longhorn.io", "volumeBindingMode": "WaitForFirstConsumer"});
    made(&client, CLASSES, &waiting).await;
    made(&client, CLAIMS, &claim("unbound", "waiting", "24Mi")).await;
    made(&client, SNAPSHOTS, &snapshot("unbound", "", "unbound")).await;
    failed(&client, "unbound", "not bound yet").await;
    // What was missing comes, and it is taken.
    made(&client, CLAIMS, &claim("none", "harvester-longhorn", "24Mi")).await;
    bound(&client, "none").await;
    let taken = ready(&client, "no-claim").await;
    assert!(taken["status"]["error"].is_null(), "{taken}");
    for name in ["no-claim", "no-class", "copy", "unbound"] {
        deleted(&client, &format!("{SNAPSHOTS}/{name}")).await;
        is_gone(&client, &format!("{SNAPSHOTS}/{name}")).await;
    }
    assert!(files(&server).is_empty(), "{:?}", files(&server));
}

/// The small guest with two more disks, and its cloud-init in a Secret.
fn writer() -> Value {
    let mut machine = guest("web");
    let spec = &mut machine["spec"]["template"]["spec"];
    spec["terminationGracePeriodSeconds"] = json!(0);
    spec["volumes"][1] = json!({"name": "seed", "cloudInitNoCloud": {"secretRef": {"name": "seed"}}});
    for name in ["one", "two"] {
        let disk = json!({"name": name, "disk": {"bus": "virtio"}});
        let volume = json!({"name": name, "persistentVolumeClaim": {"claimName": name}});
        spec["domain"]["devices"]["disks"].as_array_mut().expect("disks").push(disk);
        spec["volumes"].as_array_mut().expect("volumes").push(volume);
    }
    machine
}

fn backup(name: &str) -> Value {
    json!({"apiVersion": "harvesterhci.io/v1beta1", "kind": "VirtualMachineBackup", "metadata": {"name": name},
        "spec": {"type": "snapshot", "source": {"apiGroup": "kubevirt.io", "kind": "VirtualMachine", "name": "web"}}})
}

async fn kept(client: &Client, name: &str) -> Value {
    let path = format!("{BACKUPS}/{name}");
    becomes(client, &path, "ready", BOOT, |it| it["status"]["readyToUse"] == true).await
}

/// How many blocks the guest was told to be on its disk.
async fn acknowledged(shell: &mut Shell) -> u64 {
    let said = in_guest(shell, "tail -n 1 /tmp/written", |text| text.contains("acknowledged ")).await;
    said.rsplit(' ').next().and_then(|count| count.trim().parse().ok()).expect("a number")
}

async fn counter(server: &Croft, client: &Client, claim: &str) -> u64 {
    let file = std::fs::File::open(volume_file(server, client, claim).await).expect("the volume's file");
    let mut text = [0; 8];
    file.read_exact_at(&mut text, COUNTERS).expect("a counter");
    String::from_utf8_lossy(&text).parse().expect("a number")
}

/// Stops a guest as we do before its disks are kept, and leaves it there.
async fn held(dir: &Path) {
    std::fs::write(dir.join("held.json"), "{\"is_frozen\":false}").expect("a record");
    let stream = UnixStream::connect(dir.join("qmp.sock")).await.expect("QEMU listens");
    let (read, mut write) = stream.into_split();
    let mut lines = BufReader::new(read).lines();
    for command in ["qmp_capabilities", "stop", "query-status"] {
        write.write_all(format!("{{\"execute\":\"{command}\"}}\n").as_bytes()).await.expect("sent");
        loop {
            let line = lines.next_line().await.expect("an answer").expect("an answer");
            if line.contains("\"return\"") {
                assert!(command != "query-status" || line.contains("paused"), "{line}");
                break;
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_machine_is_kept_at_one_instant_and_comes_back() {
    let (mut server, client) = node_with_image().await;
    let seed = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "seed"}, "stringData": {"userdata": USER_DATA}});
    made(&client, SECRETS, &seed).await;
    for name in ["one", "two"] {
        made(&client, CLAIMS, &claim(name, "harvester-longhorn", "64Mi")).await;
    }
    create(&client, &writer()).await;
    let mut shell = Shell::log_in(&server, "web", Some("turnip-7")).await.expect("a shell");
    // One writes blocks, each on the disk before it is told; the other counts on two disks in turn.
    shell.ok("verified-write run /dev/vdc 10000 > /tmp/written 2>&1 & echo $! > /tmp/pids").await;
    let count = "n=0; while :; do n=$((n+1)); for d in vdc vdd; do printf %08d $n | dd of=/dev/$d bs=512 seek=98304 \
        count=1 conv=notrunc,fsync 2>/dev/null; done; done";
    shell.ok(&format!("({count}) & echo $! >> /tmp/pids")).await;
    acknowledged(&mut shell).await;
    in_guest(&mut shell, "dd if=/dev/vdd bs=512 skip=98304 count=1 2>/dev/null | head -c 8", |text| {
        text.trim().parse::<u64>().is_ok_and(|count| count > 3)
    })
    .await;
    let before = acknowledged(&mut shell).await;

    made(&client, BACKUPS, &backup("first")).await;
    let first = kept(&client, "first").await;
    let after = acknowledged(&mut shell).await;
    let status = &first["status"];
    assert!(is_true(&first, "Ready") && !is_true(&first, "InProgress"), "{first}");
    assert_eq!(status["volumeBackups"].as_array().map(Vec::len), Some(3), "{status}");
    assert_eq!(status["volumeBackups"][1]["name"], "first-volume-one", "{status}");
    assert_eq!(status["secretBackups"][0]["name"], "seed", "{status}");
    assert_eq!(status["source"]["spec"]["runStrategy"], "RerunOnFailure", "{status}");
    let snapshot = client.get(&format!("{SNAPSHOTS}/first-volume-one")).await.expect("an answer").json();
    let guest = snapshot["metadata"]["annotations"]["croft.io/snapshot-guest"].as_str().expect("how the guest was");
    let guest: Value = serde_json::from_str(guest).expect("JSON");
    println!("the guest stood still: {guest}");
    assert!(guest["isRunning"] == true && guest["pauseMs"].as_f64().is_some_and(|ms| ms < 2000.0), "{guest}");
    let instance = client.get(&format!("{INSTANCES}/web")).await.expect("an answer").json();
    assert!(!is_true(&instance, "Paused"), "{instance}");

    // Beyond what is allowed there is no second.
    let quota = json!({"apiVersion": "harvesterhci.io/v1beta1", "kind": "ResourceQuota",
        "metadata": {"name": "default-resource-quota"}, "spec": {"snapshotLimit": {"vmTotalSnapshotSizeQuota": {"web": 4096}}}});
    made(&client, QUOTAS, &quota).await;
    let path = format!("{QUOTAS}/default-resource-quota");
    let used = |it: &Value| it["status"]["snapshotLimitStatus"]["vmTotalSnapshotSizeUsage"]["web"].as_i64();
    becomes(&client, &path, "counted", BOOT, |it| used(it).is_some_and(|bytes| bytes > 4096)).await;
    let refused = client.post(BACKUPS, &backup("second")).await.expect("an answer");
    assert!(
        refused.status == 422 && refused.text().contains("is less than total snapshot usage"),
        "{}",
        refused.text()
    );
    deleted(&client, &path).await;

    // Killed while the guest stands still, it goes on at the next start.
    let uid = instance["metadata"]["uid"].as_str().expect("a uid").to_owned();
    assert!(qemus(&server).contains_key(&uid));
    let dir = server.run_dir().expect("a run directory").join("vms").join(&uid);
    server.kill().expect("killed");
    held(&dir).await;
    server.restart().await.expect("a restart");
    let client = server.client().expect("a client");
    eventually("the record is gone", async || if dir.join("held.json").exists() { Err("there") } else { Ok(()) }).await;
    let console = server.websocket(&subresource("virtualmachineinstances", "web", "console")).await;
    let mut shell = Shell::resume(console.expect("an answer").expect("a console")).await.expect("a shell");
    let later = acknowledged(&mut shell).await;
    in_guest(&mut shell, "tail -n 1 /tmp/written", |text| !text.ends_with(&format!(" {later}"))).await;
    shell.ok("kill $(cat /tmp/pids)").await;

    // Another machine, from what was kept.
    let restore = |name: &str, change: Value| {
        let mut restore = json!({"apiVersion": "harvesterhci.io/v1beta1", "kind": "VirtualMachineRestore",
            "metadata": {"name": name}, "spec": {"virtualMachineBackupName": "first",
                "virtualMachineBackupNamespace": "default"}});
        restore["spec"].as_object_mut().expect("a spec").extend(change.as_object().expect("fields").clone());
        restore
    };
    let target = |name: &str| json!({"apiGroup": "kubevirt.io", "kind": "VirtualMachine", "name": name});
    let busy = restore("busy", json!({"target": target("web"), "newVM": false}));
    let refused = client.post(RESTORES, &busy).await.expect("an answer");
    assert!(refused.status == 422 && refused.text().contains("Please stop the VM"), "{}", refused.text());
    let copy = json!({"target": target("copy"), "newVM": true, "haltAfterRestore": true});
    made(&client, RESTORES, &restore("copy", copy)).await;
    let done = async |name: &str| {
        let path = format!("{RESTORES}/{name}");
        becomes(&client, &path, "complete", BOOT, |it| it["status"]["complete"] == true).await
    };
    let copy = done("copy").await;
    let claims: Vec<String> = copy["status"]["restores"]
        .as_array()
        .expect("restores")
        .iter()
        .map(|one| one["persistentVolumeClaimSpec"]["metadata"]["name"].as_str().expect("a name").to_owned())
        .collect();
    let (one, two) = (counter(&server, &client, &claims[1]).await, counter(&server, &client, &claims[2]).await);
    assert!(one == two || one == two + 1, "both disks are of one instant: {one} and {two}");
    // The first machine looks at what was kept: a boot is what takes the time.
    made(&client, CLAIMS, &restored("look", "64Mi", "first-volume-one")).await;
    let plug = json!({"name": "kept", "disk": {"name": "kept", "disk": {"bus": "scsi"}},
        "volumeSource": {"persistentVolumeClaim": {"claimName": "look", "hotpluggable": true}}});
    let answer = client.put(&subresource("virtualmachines", "web", "addvolume"), &plug).await.expect("an answer");
    assert!((200..300).contains(&answer.status), "{}", answer.text());
    in_guest(&mut shell, "ls /sys/block", |text| text.contains("sda")).await;
    let verified = shell.ok(&format!("verified-write check /dev/sda {before}")).await;
    let verified: u64 = verified.rsplit(' ').next().and_then(|count| count.parse().ok()).expect("a number");
    assert!(verified >= before, "{verified} of {before}, and {after} a little later");
    let address = async |name: &str| {
        let machine = client.get(&format!("{MACHINES}/{name}")).await.expect("an answer").json();
        machine["spec"]["template"]["spec"]["domain"]["devices"]["interfaces"][0]["macAddress"].clone()
    };
    assert_ne!(address("copy").await, address("web").await);
    let secrets = client.get(&format!("{SECRETS}/copy-seed")).await.expect("an answer");
    assert_eq!(secrets.status, 200, "a copy has a Secret of its own");

    // The machine itself, once it is stopped; it runs again as it did.
    patched(&client, &format!("{MACHINES}/web"), &json!({"spec": {"runStrategy": "Halted"}})).await;
    let is_stopped = |it: &Value| it["status"]["printableStatus"] == "Stopped" && it["status"]["created"] != true;
    becomes(&client, &format!("{MACHINES}/web"), "stopped", BOOT, is_stopped).await;
    let act = "/v1/harvester/kubevirt.io.virtualmachines/default/web?action=restore";
    let answer = client.post(act, &json!({"name": "back", "backupName": "first"})).await.expect("an answer");
    assert_eq!(answer.status, 204, "{}", answer.text());
    let back = done("back").await;
    assert_eq!(back["status"]["deletedVolumes"].as_array().map(Vec::len), Some(4), "{back}");
    assert_eq!(client.get(&format!("{CLAIMS}/one")).await.expect("an answer").status, 200, "old disks stay");
    let web = status_becomes(&client, "web", "Running").await;
    assert_eq!(web["spec"]["runStrategy"], "RerunOnFailure", "{web}");

    // Snapshots go with their machine, but for those of disks that stay; restores too.
    for name in ["web", "copy"] {
        deleted(&client, &format!("{MACHINES}/{name}")).await;
        is_gone(&client, &format!("{MACHINES}/{name}")).await;
    }
    is_gone(&client, &format!("{BACKUPS}/first")).await;
    is_gone(&client, &format!("{RESTORES}/back")).await;
    let stays = client.get(&format!("{SNAPSHOTS}/first-volume-one")).await.expect("an answer");
    assert_eq!(stays.status, 200, "{}", stays.text());
    deleted(&client, &format!("{CLAIMS}/one")).await;
    is_gone(&client, &format!("{SNAPSHOTS}/first-volume-one")).await;
}

/// KubeVirt's own kinds, with a machine that has a disk and no operating system.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kubevirts_snapshots_and_restores() {
    const ROOT: &str = "/apis/snapshot.kubevirt.io/v1beta1/namespaces/default";
    let (server, client) = node().await;
    made(&client, CLAIMS, &claim("data", "harvester-longhorn", "24Mi")).await;
    let (file, content) = (volume_file(&server, &client, "data").await, disk());
    write(&file, &content);
    let mut machine = empty("vm");
    let spec = &mut machine["spec"]["template"]["spec"];
    spec["domain"]["devices"]["disks"] = json!([{"name": "disk", "disk": {"bus": "virtio"}}]);
    spec["volumes"] = json!([{"name": "disk", "persistentVolumeClaim": {"claimName": "data"}}]);
    create(&client, &machine).await;
    let running = status_becomes(&client, "vm", "Running").await;
    assert_eq!(running["status"]["volumeSnapshotStatuses"], json!([{"name": "disk", "enabled": true}]), "{running}");

    let target = |name: &str| json!({"apiGroup": "kubevirt.io", "kind": "VirtualMachine", "name": name});
    let snapshots = format!("{ROOT}/virtualmachinesnapshots");
    let object = |kind: &str, name: &str, spec: Value| json!({"apiVersion": "snapshot.kubevirt.io/v1beta1", "kind": kind, "metadata": {"name": name}, "spec": spec});
    made(&client, &snapshots, &object("VirtualMachineSnapshot", "one", json!({"source": target("vm")}))).await;
    made(
        &client,
        &snapshots,
        &object("VirtualMachineSnapshot", "none", json!({"source": target("none"), "failureDeadline": "3s"})),
    )
    .await;
    let path = format!("{snapshots}/one");
    let one = becomes(&client, &path, "taken", BOOT, |it| it["status"]["phase"] == "Succeeded").await;
    assert!(is_true(&one, "Ready") && !is_true(&one, "Progressing") && one["status"]["readyToUse"] == true, "{one}");
    assert_eq!(one["status"]["indications"], json!(["Online", "NoGuestAgent"]), "{one}");
    assert_eq!(one["status"]["snapshotVolumes"]["includedVolumes"], json!(["disk"]), "{one}");
    let kept = one["status"]["virtualMachineSnapshotContentName"].as_str().expect("a content").to_owned();
    let kept = format!("{ROOT}/virtualmachinesnapshotcontents/{kept}");
    let about = client.get(&kept).await.expect("an answer").json();
    assert!(
        about["status"]["readyToUse"] == true && about["spec"]["volumeBackups"][0]["volumeName"] == "disk",
        "{about}"
    );
    let path = format!("{MACHINES}/vm");
    becomes(&client, &path, "let go", BOOT, |it| it["status"]["snapshotInProgress"].is_null()).await;
    write(&file, vec![7; 1 << 20].as_slice());

    // One that runs is not replaced, if that is asked.
    let restores = format!("{ROOT}/virtualmachinerestores");
    let at_once =
        json!({"target": target("vm"), "virtualMachineSnapshotName": "one", "targetReadinessPolicy": "FailImmediate"});
    made(&client, &restores, &object("VirtualMachineRestore", "at-once", at_once)).await;
    let path = format!("{restores}/at-once");
    let failed = becomes(&client, &path, "failed", BOOT, |it| is_true(it, "Failure")).await;
    assert!(failed["status"]["complete"] == false && failed["status"]["restores"].is_null(), "{failed}");

    // Another machine, and the same one: it is stopped for that if it may be.
    let restore = |name: &str, to: &str| {
        let spec =
            json!({"target": target(to), "virtualMachineSnapshotName": "one", "targetReadinessPolicy": "StopTarget"});
        object("VirtualMachineRestore", name, spec)
    };
    for (name, to) in [("new", "other"), ("back", "vm")] {
        made(&client, &restores, &restore(name, to)).await;
        let path = format!("{restores}/{name}");
        let done = becomes(&client, &path, "complete", BOOT, |it| it["status"]["complete"] == true).await;
        assert!(is_true(&done, "Ready") && done["status"]["restoreTime"].is_string(), "{done}");
        let claim = done["status"]["restores"][0]["persistentVolumeClaim"].as_str().expect("a claim").to_owned();
        holds(&server, &client, &claim, &content, 24 << 20).await;
        let machine = client.get(&format!("{MACHINES}/{to}")).await.expect("an answer").json();
        assert_eq!(machine["spec"]["runStrategy"], "Halted", "{machine}");
        let volume = &machine["spec"]["template"]["spec"]["volumes"][0];
        assert_eq!(volume["persistentVolumeClaim"]["claimName"], claim.as_str(), "{machine}");
    }
    let clones = "/apis/clone.kubevirt.io/v1beta1/namespaces/default/virtualmachineclones";
    let clone = json!({"apiVersion": "clone.kubevirt.io/v1beta1", "kind": "VirtualMachineClone", "metadata": {"name": "c"},
        "spec": {"source": target("other"), "target": target("twin"), "newSMBiosSerial": "twin"}});
    made(&client, clones, &clone).await;
    let path = format!("{clones}/c");
    let cloned = becomes(&client, &path, "made", BOOT, |it| it["status"]["phase"] == "Succeeded").await;
    assert!(is_true(&cloned, "Ready") && cloned["status"]["targetName"] == "twin", "{cloned}");
    let twin = client.get(&format!("{MACHINES}/twin")).await.expect("an answer").json();
    assert_eq!(twin["spec"]["template"]["spec"]["domain"]["firmware"]["serial"], "twin", "{twin}");
    let disk = &twin["spec"]["template"]["spec"]["volumes"][0]["persistentVolumeClaim"]["claimName"];
    holds(&server, &client, disk.as_str().expect("a claim"), &content, 24 << 20).await;
    // Another machine as it is asked to differ, with a disk that is called as asked and stays when the machine goes.
    let mut differs = restore("differs", "third");
    differs["spec"]["patches"] = json!([r#"{"op": "add", "path": "/metadata/labels/color", "value": "red"}"#]);
    differs["spec"]["volumeRestoreOverrides"] =
        json!([{"volumeName": "disk", "restoreName": "third-disk", "labels": {"size": "small"}}]);
    differs["spec"]["volumeOwnershipPolicy"] = json!("None");
    made(&client, &restores, &differs).await;
    let path = format!("{restores}/differs");
    becomes(&client, &path, "complete", BOOT, |it| it["status"]["complete"] == true).await;
    let third = client.get(&format!("{MACHINES}/third")).await.expect("an answer").json();
    assert_eq!(third["metadata"]["labels"]["color"], "red", "{third}");
    holds(&server, &client, "third-disk", &content, 24 << 20).await;
    let disk = client.get(&format!("{CLAIMS}/third-disk")).await.expect("an answer").json();
    assert!(disk["metadata"]["labels"]["size"] == "small" && disk["metadata"]["ownerReferences"].is_null(), "{disk}");
    let mut broken = restore("broken", "fourth");
    broken["spec"]["patches"] = json!([r#"{"op": "remove", "path": "/spec/template"}"#]);
    made(&client, &restores, &broken).await;
    let says = |it: &Value| it["status"]["conditions"].to_string().contains("no machine");
    becomes(&client, &format!("{restores}/broken"), "refused", BOOT, says).await;

    // The disk itself, under its own name.
    write(&volume_file(&server, &client, "third-disk").await, vec![9; 1 << 20].as_slice());
    made(&client, &snapshots, &object("VirtualMachineSnapshot", "third", json!({"source": target("third")}))).await;
    let path = format!("{snapshots}/third");
    becomes(&client, &path, "taken", BOOT, |it| it["status"]["phase"] == "Succeeded").await;
    write(&volume_file(&server, &client, "third-disk").await, &content);
    let mut in_place = restore("in-place", "third");
    in_place["spec"]["virtualMachineSnapshotName"] = json!("third");
    in_place["spec"]["volumeRestorePolicy"] = json!("InPlace");
    made(&client, &restores, &in_place).await;
    let path = format!("{restores}/in-place");
    becomes(&client, &path, "complete", BOOT, |it| it["status"]["complete"] == true).await;
    let again = client.get(&format!("{CLAIMS}/third-disk")).await.expect("an answer").json();
    assert_ne!(again["metadata"]["uid"], disk["metadata"]["uid"]);
    let file = std::fs::read(volume_file(&server, &client, "third-disk").await).expect("the volume");
    assert!(file[..1 << 20].iter().all(|byte| *byte == 9), "it is what it was");
    deleted(&client, &format!("{snapshots}/third")).await;

    let path = format!("{snapshots}/none");
    let none = becomes(&client, &path, "too late", BOOT, |it| it["status"]["phase"] == "Failed").await;
    assert!(is_true(&none, "Failure") && none["status"]["error"]["message"] == "Source does not exist", "{none}");
    // Everything goes with the snapshot.
    deleted(&client, &format!("{snapshots}/one")).await;
    is_gone(&client, &kept).await;
    eventually("no file is left", async || if files(&server).is_empty() { Ok(()) } else { Err("files") }).await;
}
