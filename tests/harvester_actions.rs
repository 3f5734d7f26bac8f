//! What virtual machines can be told to do through Harvester's HTTP API, and what it does to the guests.

use std::path::Path;
use std::process::Command;

use croft_e2e::machines::{
    BOOT, CLAIMS, IMAGES, INSTANCES, MACHINES, Shell, USER_DATA, becomes, condition, create, empty, guest, in_guest,
    is_gone, is_true, node, node_with_image, qemu_line, running, status_becomes,
};
use croft_e2e::outside::Bridge;
use croft_e2e::storage::disk as disk_image;
use croft_e2e::storage::{
    CLASSES, SECRETS, bound, claim, disc, image, image_file, imported, made, patched, phase_becomes, run, text,
    volume_file,
};
use croft_e2e::web::Web;
use croft_testkit::{Answer, Call, Client, Croft, StoreKind, eventually};
use http::Method;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

const VMS: &str = "/v1/harvester/kubevirt.io.virtualmachines/default";
const NETWORKS: &str = "/apis/k8s.cni.cncf.io/v1/namespaces/default/network-attachment-definitions";
const TEMPLATES: &str = "/apis/harvesterhci.io/v1beta1/namespaces/default/virtualmachinetemplates";
const VERSIONS: &str = "/apis/harvesterhci.io/v1beta1/namespaces/default/virtualmachinetemplateversions";
const LISTED: &str = "harvesterhci.io/volumeClaimTemplates";

async fn act(client: &Client, name: &str, action: &str, body: &Value) -> Answer {
    client.post(&format!("{VMS}/{name}?action={action}"), body).await.expect("an answer")
}

async fn done(client: &Client, name: &str, action: &str, body: &Value) {
    let answer = act(client, name, action, body).await;
    assert_eq!(answer.status, 204, "{action} {body}: {}", answer.text());
}

/// A failure in Steve's form.
fn refused(what: &str, answer: &Answer, code: u16, words: &str) {
    let body = answer.json();
    assert_eq!(answer.status, code, "{what}: {body}");
    assert_eq!((&body["type"], &body["status"]), (&json!("error"), &json!(code)), "{what}: {body}");
    assert!(body["message"].as_str().unwrap_or_default().contains(words), "{what}: {body}");
}

async fn machine(client: &Client, name: &str) -> Value {
    client.get(&format!("{MACHINES}/{name}")).await.expect("an answer").ok().expect("the machine")
}

async fn offers(client: &Client, name: &str, action: &str) {
    eventually(&format!("{name} offers {action}"), async || {
        let vm = client.get(&format!("{VMS}/{name}")).await.expect("an answer").json();
        if vm["actions"].get(action).is_some() { Ok(()) } else { Err(vm["actions"].to_string()) }
    })
    .await;
}

/// The claims that the machine's annotation lists.
fn listed(machine: &Value) -> Vec<Value> {
    let text = machine["metadata"]["annotations"][LISTED].as_str().unwrap_or("[]");
    serde_json::from_str(text).expect("a list")
}

/// One boot, and all that can be done to it: a boot is what takes the time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_guest_is_changed_as_it_runs_and_copied() {
    let (server, client) = node_with_image().await;
    // A machine that is booked at a tenth of its processors boots at a tenth of their speed beside others.
    let promises = json!({"value": r#"{"cpu":100,"memory":150,"storage":200}"#});
    patched(&client, "/apis/harvesterhci.io/v1beta1/settings/overcommit-config", &promises).await;
    let seed = json!({"metadata": {"name": "seed"}, "stringData": {"userdata": USER_DATA}});
    made(&client, SECRETS, &seed).await;
    let mut wanted = guest("first");
    wanted["metadata"]["annotations"]["harvesterhci.io/enableCPUAndMemoryHotplug"] = json!("true");
    let spec = &mut wanted["spec"]["template"]["spec"];
    spec["volumes"][1] = json!({"name": "seed", "cloudInitNoCloud": {"secretRef": {"name": "seed"}}});
    spec["terminationGracePeriodSeconds"] = json!(5);
    spec["domain"]["cpu"] = json!({"cores": 1, "sockets": 1, "threads": 1, "maxSockets": 2});
    spec["domain"]["resources"] = json!({"limits": {"cpu": "1", "memory": "2Gi"}});
    spec["domain"]["memory"] = json!({"guest": "1Gi", "maxGuest": "2Gi"});
    spec["domain"]["devices"]["disks"]
        .as_array_mut()
        .expect("disks")
        .push(json!({"name": "drive", "cdrom": {"bus": "sata"}}));
    create(&client, &wanted).await;
    let mut shell = Shell::log_in(&server, "first", Some("turnip-7")).await.expect("a shell");

    processors_and_memory(&client, &mut shell).await;
    medium(&client, &mut shell).await;
    card(&client, &mut shell).await;
    disk(&client, &mut shell).await;

    shell.ok("echo once upon a test > /srv/mark && sync").await;
    done(&client, "first", "clone", &json!({"targetVm": "second", "runStrategy": "RerunOnFailure"})).await;
    let template = json!({"name": "mould", "description": "a test", "withData": true});
    done(&client, "first", "createTemplate", &template).await;
    done(&client, "first", "stop", &json!({})).await;
    status_becomes(&client, "first", "Stopped").await;
    tokio::join!(cloned(&server, &client), templated(&server, &client));
}

async fn processors_and_memory(client: &Client, shell: &mut Shell) {
    offers(client, "first", "cpuAndMemoryHotplug").await;
    for (body, words) in [
        (json!({"sockets": 3}), "at most 2"),
        (json!({"memory": "512Mi"}), "at least 1Gi"),
        (json!({"memory": "1100Mi"}), "128Mi"),
        (json!({"memory": "much"}), "much"),
    ] {
        refused("growth", &act(client, "first", "cpuAndMemoryHotplug", &body).await, 422, words);
    }
    done(client, "first", "cpuAndMemoryHotplug", &json!({"sockets": 2, "memory": "1280Mi"})).await;
    in_guest(shell, "nproc", |text| text == "2").await;
    in_guest(shell, "awk '/MemTotal/ { print ($2 > 1100000) }' /proc/meminfo", |text| text == "1").await;
}

/// A disc goes in, and comes out with its copy of the image.
async fn medium(client: &Client, shell: &mut Shell) {
    let web = Web::start().await.expect("a server");
    let url = web.put("cd.iso", disc("title", "waltz\n").expect("a CD")).await;
    made(client, IMAGES, &image("disc", &json!({"sourceType": "download", "url": url}))).await;
    imported(client, "disc").await;
    offers(client, "first", "insertCdRomVolume").await;
    let insert = |drive: &str, image: &str| json!({"DeviceName": drive, "imageName": image});
    for (body, code, words) in [
        (insert("drive", "default/none"), 404, "none"),
        (insert("drive", "disc"), 422, "<namespace>/<name>"),
        (insert("root", "default/disc"), 422, "SATA CD-ROM"),
        (json!({}), 422, "deviceName"),
    ] {
        refused("a disc", &act(client, "first", "insertCdRomVolume", &body).await, code, words);
    }
    refused("empty", &act(client, "first", "ejectCdRomVolume", &json!({"deviceName": "drive"})).await, 409, "empty");
    // Whoever looks into an open drive closes it: the disc has to get in all the same.
    shell.ok("(while [ ! -e /tmp/found ]; do head -c 1 /dev/sr0; done > /dev/null 2>&1) & true").await;
    done(client, "first", "insertCdRomVolume", &insert("drive", "default/disc")).await;
    in_guest(shell, "mkdir -p /tmp/cd; mount -o ro /dev/sr0 /tmp/cd; cat /tmp/cd/title", |text| text.contains("waltz"))
        .await;
    shell.ok("touch /tmp/found; wait; umount /tmp/cd").await;
    let again = act(client, "first", "insertCdRomVolume", &insert("drive", "default/disc")).await;
    refused("a second disc", &again, 409, "already");
    offers(client, "first", "ejectCdRomVolume").await;
    let entry = listed(&machine(client, "first").await).pop().expect("a claim");
    let name = entry["metadata"]["name"].as_str().expect("a name").to_owned();
    assert!(name.starts_with("first-drive-"), "{entry}");
    done(client, "first", "ejectCdRomVolume", &json!({"deviceName": "drive"})).await;
    in_guest(shell, "head -c 1 /dev/sr0 > /dev/null 2>&1 || echo empty", |text| text.contains("empty")).await;
    is_gone(client, &format!("{CLAIMS}/{name}")).await;
    assert_eq!(listed(&machine(client, "first").await).len(), 1);
}

/// A card comes without the guest being moved, and goes again.
async fn card(client: &Client, shell: &mut Shell) {
    let bridge = Bridge::new(&format!("cta{}", std::process::id() % 1_000_000), "").expect("a bridge");
    let config = json!({"cniVersion": "0.3.1", "name": "lan", "type": "bridge", "bridge": bridge.0});
    let network = json!({"apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition",
        "metadata": {"name": "lan"}, "spec": {"config": config.to_string()}});
    made(client, NETWORKS, &network).await;
    offers(client, "first", "addNic").await;
    let add = |name: &str, network: &str, mac: &str| json!({"interfaceName": name, "networkName": network, "macAddress": mac});
    let mac = "02:00:00:00:00:42";
    for (body, code, words) in [
        (add("lan", "default/none", ""), 404, "none"),
        (add("", "default/lan", ""), 422, "interfaceName"),
        (add("lan", "default/lan", "42"), 422, ""),
        (add("default", "default/lan", ""), 409, "already exists"),
    ] {
        refused("a card", &act(client, "first", "addNic", &body).await, code, words);
    }
    done(client, "first", "addNic", &add("lan", "default/lan", mac)).await;
    in_guest(shell, "cat /sys/class/net/*/address", |text| text.contains(mac)).await;
    offers(client, "first", "removeNic").await;
    let found = act(client, "first", "findHotunpluggableNics", &json!({})).await;
    assert_eq!((found.status, found.json()), (200, json!({"interfaces": ["lan"]})));
    let remove = |name: &str| json!({"interfaceName": name});
    refused("the first card", &act(client, "first", "removeNic", &remove("default")).await, 409, "not hot-unpluggable");
    refused("no card", &act(client, "first", "removeNic", &remove("none")).await, 409, "does not exist");
    done(client, "first", "removeNic", &remove("lan")).await;
    in_guest(shell, "cat /sys/class/net/*/address", |text| !text.contains(mac)).await;
    eventually("the card is forgotten", async || {
        let vm = machine(client, "first").await;
        let cards = vm["spec"]["template"]["spec"]["domain"]["devices"]["interfaces"].clone();
        if cards.as_array().is_some_and(|cards| cards.len() == 1) { Ok(()) } else { Err(cards.to_string()) }
    })
    .await;
    assert!(!is_true(&machine(client, "first").await, "RestartRequired"));
}

/// A disk comes, is listed with the machine's own, and goes again.
async fn disk(client: &Client, shell: &mut Shell) {
    made(client, CLAIMS, &claim("extra", "harvester-longhorn", "24Mi")).await;
    bound(client, "extra").await;
    let add = json!({"diskName": "more", "volumeSourceName": "extra"});
    // Two people at once: one of them is too late.
    let (one, two) = tokio::join!(act(client, "first", "addVolume", &add), act(client, "first", "addVolume", &add));
    let mut codes = [one.status, two.status];
    codes.sort_unstable();
    assert_eq!(codes, [204, 409], "{} {}", one.text(), two.text());
    in_guest(shell, "cat /sys/block/sd*/size", |text| text.lines().any(|line| line == "49152")).await;
    let names = |vm: &Value| listed(vm).iter().filter(|entry| entry["metadata"]["name"] == "extra").count();
    assert_eq!(names(&machine(client, "first").await), 1);
    done(client, "first", "removeVolume", &json!({"diskName": "more"})).await;
    in_guest(shell, "cat /sys/block/sd*/size 2>/dev/null; true", |text| !text.contains("49152")).await;
    assert_eq!(names(&machine(client, "first").await), 0);
    refused("gone", &act(client, "first", "removeVolume", &json!({"diskName": "more"})).await, 409, "does not exist");
}

/// The clone has the data, an address of its own and a Secret of its own.
async fn cloned(server: &Croft, client: &Client) {
    let (first, second) = (machine(client, "first").await, machine(client, "second").await);
    let spec = |vm: &Value| vm["spec"]["template"]["spec"].clone();
    let card = |vm: &Value| spec(vm)["domain"]["devices"]["interfaces"][0]["macAddress"].clone();
    assert!(card(&second).is_string() && card(&first) != card(&second), "{second}");
    assert_ne!(spec(&first)["domain"]["firmware"]["uuid"], spec(&second)["domain"]["firmware"]["uuid"]);
    let secret = spec(&second)["volumes"][1]["cloudInitNoCloud"]["secretRef"]["name"].clone();
    let secret = secret.as_str().expect("a secret");
    assert_ne!(secret, "seed");
    let secret = client.get(&format!("{SECRETS}/{secret}")).await.expect("an answer").ok().expect("a copy");
    assert_eq!(secret["metadata"]["ownerReferences"][0]["uid"], second["metadata"]["uid"]);
    let entry = &listed(&second)[0];
    assert_eq!(entry["spec"]["dataSource"], json!({"kind": "PersistentVolumeClaim", "name": "first-root"}));

    let name = entry["metadata"]["name"].as_str().expect("a claim");
    assert!(holds(&volume_file(server, client, name).await, "once upon a test"), "the clone has the data");
    let instance = running(client, "second").await;
    let line = qemu_line(server, &instance).join(" ");
    let address = card(&second);
    assert!(line.contains(address.as_str().expect("an address")), "{line}");
    let claims = |vm: &Value| listed(vm)[0]["metadata"]["name"].as_str().expect("a name").to_owned();
    let path = format!("{VMS}/second?removedDisks={}&propagationPolicy=Foreground", claims(&second));
    assert!(matches!(client.delete(&path).await.expect("an answer").status, 200 | 204));
    is_gone(client, &format!("{MACHINES}/second")).await;
    is_gone(client, &format!("{CLAIMS}/{}", claims(&second))).await;
    is_gone(client, &format!("{SECRETS}/{}", secret["metadata"]["name"].as_str().expect("a name"))).await;
    assert_eq!(client.get(&format!("{CLAIMS}/first-root")).await.expect("an answer").status, 200);
}

/// The template's version has an image with the data, and goes with the template.
async fn templated(server: &Croft, client: &Client) {
    let is_ready = |version: &Value| is_true(version, "ready");
    let template = becomes(client, &format!("{TEMPLATES}/mould"), "numbered", BOOT, |template| {
        template["status"]["latestVersion"] == 1
    })
    .await;
    let id = template["spec"]["defaultVersionId"].as_str().expect("a version");
    let name = id.strip_prefix("default/").expect("of this namespace");
    let version = becomes(client, &format!("{VERSIONS}/{name}"), "ready", BOOT, is_ready).await;
    let vm = &version["spec"]["vm"];
    assert!(vm["spec"]["template"]["spec"]["domain"]["devices"]["interfaces"][0]["macAddress"].is_null(), "{vm}");
    let entry = &listed(vm)[0];
    let image_id = entry["metadata"]["annotations"]["harvesterhci.io/imageId"].as_str().expect("an image");
    let copy = imported(client, image_id.strip_prefix("default/").expect("of this namespace")).await;
    assert_eq!(copy["metadata"]["ownerReferences"][0]["uid"], version["metadata"]["uid"]);
    assert_eq!(copy["status"]["storageClassName"], entry["spec"]["storageClassName"]);
    assert!(holds(&image_file(server, &copy), "once upon a test"), "the image has the data");

    let before = client.get(SECRETS).await.expect("an answer").json();
    let secrets = before["items"].as_array().into_iter().flatten();
    let own = secrets.filter(|secret| secret["metadata"]["ownerReferences"][0]["uid"] == version["metadata"]["uid"]);
    assert_eq!(own.count(), 1, "the version has its own cloud-init");
    client.delete(&format!("{TEMPLATES}/mould")).await.expect("an answer").ok().expect("deleted");
    is_gone(client, &format!("{VERSIONS}/{name}")).await;
    let gone = copy["metadata"]["name"].as_str().expect("a name");
    is_gone(client, &format!("{IMAGES}/{gone}")).await;
}

/// Whether a disk has these words somewhere. It is large and mostly empty, which grep knows how to pass over.
fn holds(disk: &Path, words: &str) -> bool {
    let found = Command::new("grep").args(["-q", "-a", "-F", words]).arg(disk).status().expect("grep");
    assert!(matches!(found.code(), Some(0 | 1)), "grep of {}: {found}", disk.display());
    found.success()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn actions_that_cannot_be_done_leave_nothing_behind() {
    let (server, client) = node().await;
    made(&client, CLAIMS, &claim("data", "harvester-longhorn", "8Mi")).await;
    let file = volume_file(&server, &client, "data").await;
    std::fs::write(&file, vec![7; 8 << 20]).expect("data");
    let mut wanted = empty("a");
    wanted["spec"]["runStrategy"] = json!("Halted");
    let spec = &mut wanted["spec"]["template"]["spec"];
    spec["domain"]["devices"]["disks"] = json!([{"name": "data", "disk": {"bus": "virtio"}}]);
    spec["volumes"] = json!([{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]);
    create(&client, &wanted).await;

    let clone = |target: &str| json!({"targetVm": target});
    for (action, body, code, words) in [
        ("clone", json!({}), 422, "targetVm"),
        ("clone", clone("A!"), 422, "targetVm"),
        ("clone", clone("a"), 409, "already exists"),
        ("clone", json!({"targetVm": "b", "runStrategy": "Sometimes"}), 422, "Sometimes"),
        ("clone", json!({"targetVm": 3}), 422, "cannot be read"),
        ("createTemplate", json!({}), 422, "name"),
        // Harvester wants templates to say how large their machines are.
        ("createTemplate", json!({"name": "t"}), 422, "limits"),
        ("addNic", json!({"interfaceName": "x", "networkName": "y"}), 409, "not running"),
        ("cpuAndMemoryHotplug", json!({"sockets": 2}), 409, "not running"),
        ("migrate", json!({"nodeName": ""}), 404, "virtualmachineinstance"),
        ("abortMigration", json!({}), 409, "no migration"),
        ("storageMigration", json!({"sourceVolume": "data", "targetVolume": "x"}), 409, "cannot be moved"),
        ("backup", json!({"name": "b"}), 422, "backup target is not set"),
        ("snapshot", json!({}), 422, "name"),
        ("restore", json!({"name": "b", "backupName": "c"}), 404, "not found"),
        ("restore", json!({"name": "b"}), 422, "backupName"),
        ("dismissInsufficientResourceQuota", json!({}), 422, "no message"),
        ("pause", json!({}), 404, ""),
        ("dance", json!({}), 404, "dance"),
    ] {
        refused(action, &act(&client, "a", action, &body).await, code, words);
        refused("no machine", &act(&client, "none", action, &body).await, 404, "not found");
    }
    assert_eq!(act(&client, "a", "findMigratableNodes", &json!({})).await.json(), json!({"nodes": []}));
    for path in [TEMPLATES, VERSIONS, SECRETS] {
        let left = client.get(path).await.expect("an answer").json();
        assert_eq!(left["items"], json!([]), "{path}");
    }
    assert_eq!(client.get(MACHINES).await.expect("an answer").json()["items"].as_array().map(Vec::len), Some(1));

    let note = json!({"metadata": {"annotations": {"harvesterhci.io/insufficient-resource-quota": "too little"}}});
    patched(&client, &format!("{MACHINES}/a"), &note).await;
    offers(&client, "a", "dismissInsufficientResourceQuota").await;
    done(&client, "a", "dismissInsufficientResourceQuota", &json!({})).await;
    let vm = client.get(&format!("{VMS}/a")).await.expect("an answer").json();
    for hidden in ["migrate", "backup", "restore", "storageMigration", "abortMigration", "stop", "addNic"] {
        assert!(vm["actions"].get(hidden).is_none(), "{hidden}");
    }

    // Two people at once: one clone, whole.
    let asked = clone("b");
    let (one, two) = tokio::join!(act(&client, "a", "clone", &asked), act(&client, "a", "clone", &asked));
    let mut codes = [one.status, two.status];
    codes.sort_unstable();
    assert_eq!(codes, [204, 409], "{} {}", one.text(), two.text());
    let claims = listed(&machine(&client, "b").await);
    let copy = claims[0]["metadata"]["name"].as_str().expect("a claim");
    let copy = volume_file(&server, &client, copy).await;
    assert!(std::fs::read(copy).expect("the copy").iter().all(|byte| *byte == 7));
    assert_eq!(claims.len(), 1);
    strangers(&server, &client).await;
}

/// Who may only look is offered nothing, and may do nothing.
async fn strangers(server: &Croft, client: &Client) {
    let roles = "/apis/rbac.authorization.k8s.io/v1";
    let binding = json!({"metadata": {"name": "viewer"}, "subjects": [{"kind": "ServiceAccount", "name": "viewer", "namespace": "default"}],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-reader"}});
    let rules = json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["get", "list", "watch"]}]);
    made(client, &format!("{roles}/clusterroles"), &json!({"metadata": {"name": "cluster-reader"}, "rules": rules}))
        .await;
    made(client, &format!("{roles}/clusterrolebindings"), &binding).await;
    made(client, "/api/v1/namespaces/default/serviceaccounts", &json!({"metadata": {"name": "viewer"}})).await;
    let path = "/api/v1/namespaces/default/serviceaccounts/viewer/token";
    let token = client.post(path, &json!({"spec": {}})).await.expect("an answer").ok().expect("a token");
    let viewer = server.bearer(token["status"]["token"].as_str().expect("a token")).expect("a client");
    let vm = viewer.get(&format!("{VMS}/a")).await.expect("an answer").ok().expect("the machine");
    assert_eq!(vm["actions"], json!({}));
    refused("a viewer", &act(&viewer, "a", "start", &json!({})).await, 403, "cannot update");
    refused("a viewer", &act(&viewer, "a", "clone", &json!({"targetVm": "c"})).await, 403, "cannot update");

    // Who may update the machine needs rights of their own for what else is made.
    let rules = json!([{"apiGroups": ["kubevirt.io"], "resources": ["virtualmachines"], "verbs": ["update"]}]);
    let rules = json!({"rules": [rules[0], {"apiGroups": ["*"], "resources": ["*"], "verbs": ["get", "list"]}]});
    patched(client, &format!("{roles}/clusterroles/cluster-reader"), &rules).await;
    eventually("the viewer may update", async || {
        let answer = act(&viewer, "a", "clone", &json!({"targetVm": "c"})).await;
        if answer.text().contains("cannot create") { Ok(()) } else { Err(answer.text()) }
    })
    .await;
    done(&viewer, "a", "start", &json!({})).await;
    running(client, "a").await;
    assert_eq!(client.get(&format!("{INSTANCES}/c")).await.expect("an answer").status, 404);
}

async fn on_volume(client: &Client, name: &str, action: &str, body: &Value) -> Answer {
    let path = format!("/v1/harvester/persistentvolumeclaims/default/{name}?action={action}");
    client.post(&path, body).await.expect("an answer")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn volumes_are_exported_cloned_and_copied() {
    let (server, client) = node().await;
    made(&client, CLAIMS, &claim("data", "harvester-longhorn", "16Mi")).await;
    let data = disk_image();
    std::fs::write(volume_file(&server, &client, "data").await, &data).expect("data");
    let shown = client.get("/v1/harvester/persistentvolumeclaims/default/data").await.expect("an answer").json();
    let offered: Vec<&String> = shown["actions"].as_object().expect("actions").keys().collect();
    assert_eq!(offered, ["clone", "dataMigration", "export", "snapshot"]);

    let export = json!({"displayName": "a-copy", "namespace": "default"});
    let answer = on_volume(&client, "data", "export", &export).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let copy = imported(&client, answer.json()["metadata"]["name"].as_str().expect("a name")).await;
    assert!(is_true(&copy, "Imported"), "{copy}");
    assert_eq!(std::fs::read(image_file(&server, &copy)).expect("the image"), data);
    refused("the same name", &on_volume(&client, "data", "export", &export).await, 409, "same name");

    assert_eq!(on_volume(&client, "data", "clone", &json!({"name": "clone"})).await.status, 204);
    assert_eq!(std::fs::read(volume_file(&server, &client, "clone").await).expect("the clone"), data);
    let fixed = json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "fixed"},
        "provisioner": "driver.longhorn.io", "allowVolumeExpansion": false});
    made(&client, CLASSES, &fixed).await;
    let copy = |name: &str, class: &str| json!({"targetVolumeName": name, "targetStorageClassName": class});
    assert_eq!(on_volume(&client, "data", "dataMigration", &copy("moved", "fixed")).await.status, 204);
    phase_becomes(&client, "moved", "Succeeded").await;
    assert_eq!(std::fs::read(volume_file(&server, &client, "moved").await).expect("the copy"), data);

    for (action, body, code, words) in [
        ("export", json!({}), 422, "displayName"),
        ("export", json!({"displayName": "x"}), 422, "namespace"),
        ("clone", json!({}), 422, "name"),
        ("clone", json!({"name": "clone"}), 409, "already exists"),
        ("dataMigration", copy("data", "fixed"), 409, "already exists"),
        ("dataMigration", copy("x", "none"), 404, "none"),
        ("dataMigration", copy("x", ""), 422, "targetStorageClassName"),
        ("cancelExpand", json!({}), 409, "not being expanded"),
        ("dance", json!({}), 404, "dance"),
    ] {
        refused(action, &on_volume(&client, "data", action, &body).await, code, words);
        refused("no volume", &on_volume(&client, "none", action, &body).await, 404, "not found");
    }

    // A growth that cannot be made is taken back.
    let grown = json!({"spec": {"resources": {"requests": {"storage": "32Mi"}}}});
    patched(&client, &format!("{CLAIMS}/moved"), &grown).await;
    let path = format!("{CLAIMS}/moved");
    becomes(&client, &path, "refused", BOOT, |claim| is_true(claim, "Resizing")).await;
    let shown = client.get("/v1/harvester/persistentvolumeclaims/default/moved").await.expect("an answer").json();
    assert!(shown["actions"].get("cancelExpand").is_some(), "{}", shown["actions"]);
    assert_eq!(on_volume(&client, "moved", "cancelExpand", &json!({})).await.status, 204);
    let claim = client.get(&path).await.expect("an answer").json();
    assert_eq!(claim["spec"]["resources"]["requests"]["storage"], claim["status"]["capacity"]["storage"]);
    assert!(claim["status"]["conditions"].is_null(), "{claim}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_are_made_and_shown_once() {
    let server = Croft::start(StoreKind::Embedded).await.expect("the server starts");
    let client = server.client().expect("a client");
    let path = "/v1/harvester/harvesterhci.io.keypairs?action=keygen";
    let asked = json!({"name": "mine", "namespace": "default"});
    let answer = client.post(path, &asked).await.expect("an answer");
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(answer.header("content-disposition"), Some("attachment; filename=mine.pem"));
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("mine.pem");
    std::fs::write(&file, answer.text()).expect("the key is kept");
    std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o600)).expect("it is private");
    let public = run("ssh-keygen", &["-y", "-f", text(&file)]).expect("a key");
    let kept = "/apis/harvesterhci.io/v1beta1/namespaces/default/keypairs/mine";
    let kept = client.get(kept).await.expect("an answer").ok().expect("the key pair");
    assert_eq!(kept["spec"]["publicKey"].as_str(), Some(public.as_str()));

    refused("twice", &client.post(path, &asked).await.expect("an answer"), 409, "already exists");
    let nameless = client.post(path, &json!({"namespace": "default"})).await.expect("an answer");
    refused("no name", &nameless, 422, "name");
    let nowhere = client.post(path, &json!({"name": "x", "namespace": "none"})).await.expect("an answer");
    refused("nowhere", &nowhere, 404, "none");
    let nobody = server.bearer("token-xxxxx:nothing").expect("a client");
    refused("nobody", &nobody.post(path, &asked).await.expect("an answer"), 401, "");
}

const UPLOADS: &str = "/v1/harvester/harvesterhci.io.virtualmachineimages/default";

/// An image that waits for its file.
async fn waiting(client: &Client, name: &str) -> Value {
    made(client, IMAGES, &image(name, &json!({"sourceType": "upload"}))).await;
    let path = format!("{IMAGES}/{name}");
    becomes(client, &path, "initialized", BOOT, |image| is_true(image, "Initialized")).await
}

/// Whoever sends a large file hears why it is not taken, whether they wait to be asked for it or not.
async fn refused_before_it_came(server: &Croft) {
    static PIECE: [u8; 65536] = [7; 65536];
    let path = format!("{UPLOADS}/form?action=upload");
    for asks_first in [true, false] {
        for _ in 0..8 {
            let (expect, pieces) = if asks_first { ("Expect: 100-continue\r\n", 0) } else { ("", 512) };
            let size = 512 * PIECE.len();
            let head = format!("POST {path} HTTP/1.1\r\nHost: croft\r\nContent-Length: {size}\r\n{expect}\r\n");
            let stream = server.connect(Some(&server.admin), &["http/1.1"]).await.expect("a connection");
            let (mut answer, mut sending) = tokio::io::split(stream);
            sending.write_all(head.as_bytes()).await.expect("sent");
            let file = async {
                // The server may cut off what it does not want, once it has answered.
                for _ in 0..pieces {
                    if sending.write_all(&PIECE).await.is_err() {
                        break;
                    }
                }
            };
            let mut line = [0; 12];
            let (read, ()) = tokio::join!(answer.read_exact(&mut line), file);
            read.expect("an answer");
            assert_eq!(String::from_utf8_lossy(&line), "HTTP/1.1 409", "asks first: {asks_first}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn uploads_are_whole_or_not_at_all() {
    let (server, client) = node().await;
    let data = disk_image();
    let size = data.len();
    waiting(&client, "form").await;
    let shown = client.get(&format!("{UPLOADS}/form")).await.expect("an answer").json();
    assert!(shown["actions"]["upload"].is_string() && shown["links"].get("download").is_none(), "{shown}");

    // As browsers and Terraform send it.
    let mut form = b"--xyz\r\nContent-Disposition: form-data; name=\"chunk\"; filename=\"a.img\"\r\n\r\n".to_vec();
    form.extend_from_slice(&data);
    form.extend_from_slice(b"\r\n--xyz--\r\n");
    let path = format!("{UPLOADS}/form?action=upload&size={size}");
    let call = Call::new(Method::POST, &path).body("multipart/form-data; boundary=xyz", form.clone());
    let sent = client.send(call.clone()).await.expect("an answer");
    assert_eq!(sent.status, 200, "{}", sent.text());
    let copy = imported(&client, "form").await;
    assert_eq!(std::fs::read(image_file(&server, &copy)).expect("the image"), data);
    assert_eq!(client.send(call).await.expect("an answer").status, 409, "once is enough");
    refused_before_it_came(&server).await;

    let shown = client.get(&format!("{UPLOADS}/form")).await.expect("an answer").json();
    let link = shown["links"]["download"].as_str().expect("a link").strip_prefix(&server.url).expect("of this server");
    assert!(shown["actions"].get("upload").is_none(), "{shown}");
    let fetched = client.get(link).await.expect("an answer");
    assert_eq!(fetched.header("content-disposition"), Some("attachment; filename=form.gz"));
    let dir = tempfile::tempdir().expect("a directory");
    std::fs::write(dir.path().join("form.gz"), &fetched.body).expect("kept");
    run("gzip", &["-d", text(&dir.path().join("form.gz"))]).expect("gzip");
    assert_eq!(std::fs::read(dir.path().join("form")).expect("the file"), data);

    // Cut off at 99 %: nothing is left, and it can be sent again.
    let cut = waiting(&client, "cut").await;
    let path = format!("{UPLOADS}/cut?action=upload&size={size}");
    let head = format!("POST {path} HTTP/1.1\r\nHost: croft\r\nContent-Length: {size}\r\n\r\n");
    let mut stream = server.connect(Some(&server.admin), &["http/1.1"]).await.expect("a connection");
    stream.write_all(head.as_bytes()).await.expect("sent");
    stream.write_all(&data[..size / 100 * 99]).await.expect("sent");
    stream.flush().await.expect("sent");
    let is_on = |image: &Value| image["status"]["progress"].as_i64().is_some_and(|progress| progress > 0);
    becomes(&client, &format!("{IMAGES}/cut"), "on its way", BOOT, is_on).await;
    let busy = Call::new(Method::POST, &path).body("application/octet-stream", data.clone());
    assert_eq!(client.send(busy.clone()).await.expect("an answer").status, 409, "one at a time");
    drop(stream);
    becomes(&client, &format!("{IMAGES}/cut"), "failed", BOOT, |image| {
        condition(image, "Imported").is_some_and(|one| one["status"] == "False" && one["reason"] == "UploadFailed")
    })
    .await;
    assert!(!image_file(&server, &cut).exists(), "no image");
    let left = std::fs::read_dir(server.data_dir().join("pool/tmp")).expect("a pool").count();
    assert_eq!(left, 0, "nothing half-made");
    let sent = client.send(busy).await.expect("an answer");
    assert_eq!(sent.status, 200, "{}", sent.text());
    imported(&client, "cut").await;

    waiting(&client, "bad").await;
    for (path, body, code) in [
        (format!("{UPLOADS}/none?action=upload&size=1"), vec![0], 404),
        (format!("{UPLOADS}/bad?action=upload&size=much"), vec![0], 400),
        (format!("{UPLOADS}/bad?action=upload&size=1024"), vec![0; 512], 422),
        (format!("{UPLOADS}/bad?action=upload&size=512"), vec![0; 1024], 422),
    ] {
        let answer = client.send(Call::new(Method::POST, &path).body("application/octet-stream", body)).await;
        refused(&path, &answer.expect("an answer"), code, "");
    }
    let nobody = server.anonymous().expect("a client");
    let path = format!("{UPLOADS}/bad?action=upload&size=1");
    assert_eq!(nobody.post(&path, &json!({})).await.expect("an answer").status, 403);
    assert_eq!(nobody.get(link).await.expect("an answer").status, 403);
}
