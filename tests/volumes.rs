//! Volumes, DataVolumes and raw disks, without a guest that looks at them: machines here have no operating system.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use croft_e2e::machines::{
    BOOT, CLAIMS, INSTANCES, MACHINES, becomes, condition, create, empty, is_gone, is_true, node_name, status_becomes,
};
use croft_e2e::registry::Registry;
use croft_e2e::storage::{
    BLOCK_DEVICES, CLASSES, DATA_SOURCES, DATA_VOLUMES, LoopDevice, begins_with, bound, claim, converted, data_volume,
    deleted, disk, made, patched, phase_becomes, run, volume_file,
};
use croft_e2e::web::Web;
use croft_testkit::{Call, Client, Croft, Protocol, StoreKind, eventually};
use http::Method;
use serde_json::{Value, json};

async fn node() -> (Croft, Client) {
    let server = Croft::start_node(StoreKind::Embedded, &[]).await.expect("the server starts");
    let client = server.client().expect("a client");
    (server, client)
}

/// The disk as a file of its own, and as qcow2.
fn files(dir: &Path) -> (Vec<u8>, Vec<u8>) {
    let (raw, content) = (dir.join("disk.raw"), disk());
    std::fs::write(&raw, &content).expect("a file");
    (content, converted(&raw, "qcow2").expect("qemu-img"))
}

async fn content(server: &Croft, client: &Client, claim: &str) -> Vec<u8> {
    std::fs::read(volume_file(server, client, claim).await).expect("the volume's file")
}

fn with_disk(name: &str, volume: &Value) -> Value {
    let mut machine = empty(name);
    let spec = &mut machine["spec"]["template"]["spec"];
    spec["domain"]["devices"]["disks"] = json!([{"name": "disk", "disk": {"bus": "virtio"}}]);
    let mut volume = volume.clone();
    volume["name"] = json!("disk");
    spec["volumes"] = json!([volume]);
    machine
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn data_volumes_are_filled_from_everywhere() {
    let (server, client) = node().await;
    let dir = tempfile::tempdir().expect("a directory");
    let (raw, qcow2) = files(dir.path());
    let (web, registry) = (Web::start().await.expect("a server"), Registry::start(false).await.expect("a registry"));
    let url = web.put("disk.qcow2", qcow2).await;
    let pushed = registry.push_disk("test/disk", &dir.path().join("disk.qcow2")).await.expect("pushed");

    let sources = [
        ("blank", json!({"blank": {}})),
        ("http", json!({"http": {"url": url}})),
        ("registry", json!({"registry": {"url": format!("docker://{pushed}")}})),
        ("clone", json!({"pvc": {"namespace": "default", "name": "http"}})),
    ];
    for (name, source) in &sources {
        made(&client, DATA_VOLUMES, &data_volume(name, "24Mi", source)).await;
    }
    made(
        &client,
        DATA_SOURCES,
        &json!({"apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "DataSource",
        "metadata": {"name": "golden"}, "spec": {"source": {"pvc": {"namespace": "default", "name": "http"}}}}),
    )
    .await;
    let mut by_name = data_volume("by-name", "32Mi", &Value::Null);
    by_name["spec"]["sourceRef"] = json!({"kind": "DataSource", "name": "golden"});
    made(&client, DATA_VOLUMES, &by_name).await;
    let mut thick = data_volume("thick", "24Mi", &json!({"http": {"url": url}}));
    thick["spec"]["preallocation"] = json!(true);
    made(&client, DATA_VOLUMES, &thick).await;

    for name in ["blank", "http", "registry", "clone", "by-name", "thick"] {
        let done = phase_becomes(&client, name, "Succeeded").await;
        assert_eq!(done["status"]["progress"], "100.0%", "{done}");
        assert_eq!(done["status"]["claimName"], name, "{done}");
        assert!(is_true(&done, "Ready") && is_true(&done, "Bound"), "{done}");
        let claim = bound(&client, name).await;
        assert_eq!(claim["metadata"]["annotations"]["cdi.kubevirt.io/storage.pod.phase"], "Succeeded", "{claim}");
        let (start, size) = match name {
            "blank" => (&[][..], 24 << 20),
            "by-name" => (&raw[..], 32 << 20),
            _ => (&raw[..], 24 << 20),
        };
        assert!(begins_with(&content(&server, &client, name).await, start, size), "{name}");
    }
    let listed = server.kubectl().expect("kubectl").run(&["get", "dv", "http"]).await.expect("kubectl runs");
    assert!(listed.stdout.contains("Succeeded") && listed.stdout.contains("100.0%"), "{}", listed.stdout);

    // One that is thick has its blocks; one that is not has those of its content.
    let allocated = async |name: &str| {
        std::fs::metadata(volume_file(&server, &client, name).await).expect("the file").blocks() * 512
    };
    assert!(allocated("thick").await >= 24 << 20, "{}", allocated("thick").await);
    assert!(allocated("http").await < 8 << 20, "{}", allocated("http").await);
    let claim = bound(&client, "thick").await;
    assert_eq!(claim["metadata"]["annotations"]["cdi.kubevirt.io/storage.preallocation"], "true", "{claim}");

    let source = becomes(&client, &format!("{DATA_SOURCES}/golden"), "ready", BOOT, |it| is_true(it, "Ready")).await;
    assert_eq!(source["status"]["source"]["pvc"]["name"], "http", "{source}");
    let profile = "/apis/cdi.kubevirt.io/v1beta1/storageprofiles/harvester-longhorn";
    let has_sets = |profile: &Value| profile["status"]["claimPropertySets"].is_array();
    let profile = becomes(&client, profile, "with sets of properties", BOOT, has_sets).await;
    assert_eq!(profile["status"]["claimPropertySets"][0]["volumeMode"], "Block", "{profile}");
    assert_eq!(profile["status"]["provisioner"], "driver.longhorn.io", "{profile}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_filled_says_why() {
    let (server, client) = node().await;
    let dir = tempfile::tempdir().expect("a directory");
    let (_, qcow2) = files(dir.path());
    let web = Web::start().await.expect("a server");
    let url = web.put("disk.qcow2", qcow2).await;
    let page = web.put("page", &b"<html>not a disk</html>"[..]).await;
    for (name, source, expected) in [
        ("small", json!({"http": {"url": url}}), "larger than 8388608 bytes"),
        ("page", json!({"http": {"url": page}}), "not a disk image"),
        ("absent", json!({"http": {"url": web.url("absent")}}), "404"),
    ] {
        made(&client, DATA_VOLUMES, &data_volume(name, "8Mi", &source)).await;
        let failed = phase_becomes(&client, name, "Failed").await;
        let running = condition(&failed, "Running").expect("a condition");
        assert!(running["message"].as_str().is_some_and(|message| message.contains(expected)), "{name}: {running}");
        assert!(!is_true(&failed, "Ready"), "{failed}");
    }
    // A machine on such a disk does not start, and says so.
    create(&client, &with_disk("sad", &json!({"dataVolume": {"name": "page"}}))).await;
    let sad = status_becomes(&client, "sad", "DataVolumeError").await;
    assert!(sad["status"]["created"] != true || !is_true(&sad, "Ready"), "{sad}");
    let s3 = data_volume("s3", "8Mi", &json!({"s3": {"url": "s3://bucket/x"}}));
    let refused = client.post(DATA_VOLUMES, &s3).await.expect("an answer");
    assert!(refused.status >= 400 && refused.text().contains("not supported"), "{}", refused.text());
    let left: Vec<_> =
        std::fs::read_dir(server.data_dir().join("pool/imports")).into_iter().flatten().flatten().collect();
    assert!(left.is_empty(), "{left:?}");
}

/// What `virtctl image-upload` does, step by step; and a machine that waits for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_is_uploaded_as_virtctl_does_it() {
    const TOKENS: &str = "/apis/upload.cdi.kubevirt.io/v1beta1/namespaces/default/uploadtokenrequests";
    let (server, client) = node().await;
    let dir = tempfile::tempdir().expect("a directory");
    let (raw, qcow2) = files(dir.path());
    made(&client, DATA_VOLUMES, &data_volume("dv", "24Mi", &json!({"upload": {}}))).await;
    let mut target = claim("pvc", "harvester-longhorn", "24Mi");
    target["metadata"]["annotations"] =
        json!({"cdi.kubevirt.io/storage.upload.target": "", "cdi.kubevirt.io/storage.contentType": "kubevirt"});
    made(&client, CLAIMS, &target).await;
    for name in ["dv", "pvc"] {
        let machine = with_disk(name, &json!({"persistentVolumeClaim": {"claimName": name}}));
        create(&client, &machine).await;
    }
    phase_becomes(&client, "dv", "UploadReady").await;
    let annotation = |claim: &Value, key: &str| claim["metadata"]["annotations"][key].clone();
    let is_ready = |claim: &Value| annotation(claim, "cdi.kubevirt.io/storage.pod.ready") == "true";
    becomes(&client, &format!("{CLAIMS}/pvc"), "ready for an upload", BOOT, is_ready).await;

    let config = client.get("/apis/cdi.kubevirt.io/v1beta1/cdiconfigs/config").await.expect("an answer").json();
    let proxy = config["status"]["uploadProxyURL"].as_str().expect("the upload proxy's address").to_owned();
    let proxy = Client::trusting(&proxy, &server.ca_pem, Protocol::Http1).expect("a client");
    let forged = proxy.clone().with_bearer("not-a-token");
    let refused = forged.send(Call::new(Method::POST, "/v1beta1/upload-async")).await.expect("an answer");
    assert_eq!(refused.status, 401, "{}", refused.text());
    for name in ["dv", "pvc"] {
        let machine = status_becomes(&client, name, "Provisioning").await;
        assert!(!is_true(&machine, "Ready"), "{machine}");
        let asked = json!({"apiVersion": "upload.cdi.kubevirt.io/v1beta1", "kind": "UploadTokenRequest",
            "metadata": {"name": "token"}, "spec": {"pvcName": name}});
        let token = made(&client, TOKENS, &asked).await;
        let proxy = proxy.clone().with_bearer(token["status"]["token"].as_str().expect("a token"));
        let head = proxy.send(Call::new(Method::HEAD, "/v1beta1/upload-async")).await.expect("an answer");
        assert_eq!(head.status, 200);
        let call = Call::new(Method::POST, "/v1beta1/upload-async").body("application/octet-stream", qcow2.clone());
        let sent = proxy.send(call).await.expect("an answer");
        assert_eq!(sent.status, 200, "{}", sent.text());
        let is_filled = |claim: &Value| annotation(claim, "cdi.kubevirt.io/storage.pod.phase") == "Succeeded";
        becomes(&client, &format!("{CLAIMS}/{name}"), "filled", BOOT, is_filled).await;
        assert!(begins_with(&content(&server, &client, name).await, &raw, 24 << 20), "{name}");
        status_becomes(&client, name, "Running").await;
        // The second time is refused: somebody may use it.
        let again = client.post(TOKENS, &asked).await.expect("an answer");
        assert_eq!(again.status, 409, "{}", again.text());
    }
    phase_becomes(&client, "dv", "Succeeded").await;
}

/// Templates of DataVolumes: the machine waits until they are full, and they go with it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_machine_waits_for_its_data_volumes_and_takes_them_along() {
    let (server, client) = node().await;
    let web = Web::start().await.expect("a server");
    let (url, gate) = web.put_half("disk.raw", disk()).await;
    let mut machine = with_disk("eager", &json!({"dataVolume": {"name": "eager-disk"}}));
    let template = data_volume("eager-disk", "16Mi", &json!({"http": {"url": url}}));
    machine["spec"]["dataVolumeTemplates"] = json!([{"metadata": template["metadata"], "spec": template["spec"]}]);
    create(&client, &machine).await;
    let path = format!("{DATA_VOLUMES}/eager-disk");
    let half = |volume: &Value| {
        let percent = volume["status"]["progress"].as_str().and_then(|it| it.strip_suffix('%')?.parse::<f64>().ok());
        volume["status"]["phase"] == "ImportInProgress" && percent.is_some_and(|it| (40.0..60.0).contains(&it))
    };
    becomes(&client, &path, "half full", BOOT, half).await;
    let waiting = status_becomes(&client, "eager", "Provisioning").await;
    assert!(!is_true(&waiting, "Ready"), "{waiting}");
    // Nor does an instance of its own, which no machine holds back.
    let mut direct = with_disk("direct", &json!({"dataVolume": {"name": "eager-disk"}}))["spec"]["template"].clone();
    direct["apiVersion"] = json!("kubevirt.io/v1");
    direct["kind"] = json!("VirtualMachineInstance");
    direct["metadata"] = json!({"name": "direct"});
    made(&client, INSTANCES, &direct).await;
    let is_told = |it: &Value| condition(it, "DataVolumesReady").is_some_and(|told| told["status"] == "False");
    let told = becomes(&client, &format!("{INSTANCES}/direct"), "told", BOOT, is_told).await;
    assert_ne!(told["status"]["phase"], "Running", "{told}");
    deleted(&client, &format!("{INSTANCES}/direct")).await;
    is_gone(&client, &format!("{INSTANCES}/direct")).await;

    gate.open();
    phase_becomes(&client, "eager-disk", "Succeeded").await;
    status_becomes(&client, "eager", "Running").await;
    assert!(content(&server, &client, "eager-disk").await == disk());
    let held = client.delete(&path).await.expect("an answer");
    assert_eq!(held.status, 409, "a machine uses it: {}", held.text());
    let file = volume_file(&server, &client, "eager-disk").await;
    deleted(&client, &format!("{MACHINES}/eager")).await;
    is_gone(&client, &path).await;
    is_gone(&client, &format!("{CLAIMS}/eager-disk")).await;
    eventually("the file goes", async || if file.exists() { Err("it is there") } else { Ok(()) }).await;
}

/// Harvester's templates of claims: what is named goes with the machine, the rest stays.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn removed_claims_go_with_their_machine_and_others_stay() {
    let (_server, client) = node().await;
    let mut machine = with_disk("tidy", &json!({"persistentVolumeClaim": {"claimName": "goes"}}));
    let templates = json!([claim("goes", "harvester-longhorn", "8Mi"), claim("stays", "harvester-longhorn", "8Mi")]);
    machine["metadata"]["annotations"] = json!({"harvesterhci.io/volumeClaimTemplates": templates.to_string()});
    create(&client, &machine).await;
    status_becomes(&client, "tidy", "Running").await;
    for name in ["goes", "stays"] {
        let claim = bound(&client, name).await;
        let owned = claim["metadata"]["annotations"]["harvesterhci.io/owned-by"].as_str().unwrap_or_default();
        assert!(owned.contains("default/tidy"), "{claim}");
    }
    let path = format!("{MACHINES}/tidy");
    let removed = json!({"metadata": {"annotations": {"harvesterhci.io/removedPersistentVolumeClaims": "goes"}}});
    patched(&client, &path, &removed).await;
    deleted(&client, &path).await;
    is_gone(&client, &path).await;
    is_gone(&client, &format!("{CLAIMS}/goes")).await;
    let stays = bound(&client, "stays").await;
    assert!(stays["metadata"].get("deletionTimestamp").is_none(), "{stays}");
    // And nothing holds what stayed.
    deleted(&client, &format!("{CLAIMS}/stays")).await;
    is_gone(&client, &format!("{CLAIMS}/stays")).await;
}

/// A raw disk: refused while something is on it, then a pool that classes choose by its tags, then a disk again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_raw_disk_becomes_a_pool_and_a_disk_again() {
    let (mut server, client) = node().await;
    let device = LoopDevice::new(400).expect("a device");
    run("mkfs.ext4", &["-q", &device.path]).expect("mkfs.ext4");
    let node = node_name(&client).await;
    made(
        &client,
        BLOCK_DEVICES,
        &json!({"apiVersion": "harvesterhci.io/v1beta1", "kind": "BlockDevice",
        "metadata": {"name": "fast", "namespace": "longhorn-system"},
        "spec": {"nodeName": node, "devPath": device.path, "provision": true, "tags": ["fast"],
                 "fileSystem": {"mountPoint": ""}}}),
    )
    .await;
    let path = format!("{BLOCK_DEVICES}/fast");
    let says = |device: &Value, reason: &str| {
        condition(device, "AddedToNode").is_some_and(|condition| condition["reason"] == reason)
    };
    let refused = becomes(&client, &path, "refused", BOOT, |device| says(device, "NotBlank")).await;
    let message = condition(&refused, "AddedToNode").expect("a condition")["message"].to_string();
    assert!(message.contains("ext4") && message.contains("forceFormatted"), "{message}");

    patched(&client, &path, &json!({"spec": {"fileSystem": {"forceFormatted": true}}})).await;
    let is_added =
        |device: &Value| device["status"]["provisionPhase"] == "Provisioned" && is_true(device, "AddedToNode");
    let added = becomes(&client, &path, "a pool", BOOT, is_added).await;
    assert_eq!(added["status"]["deviceStatus"]["fileSystem"]["type"], "xfs", "{}", added["status"]);
    made(
        &client,
        CLASSES,
        &json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass",
        "metadata": {"name": "fast"}, "provisioner": "driver.longhorn.io", "reclaimPolicy": "Delete",
        "allowVolumeExpansion": true, "parameters": {"diskSelector": "fast"}}),
    )
    .await;
    made(&client, CLAIMS, &claim("there", "fast", "16Mi")).await;
    made(&client, CLAIMS, &claim("nowhere", "fast", "4Gi")).await;
    let volume = bound(&client, "there").await["spec"]["volumeName"].as_str().expect("a volume").to_owned();
    let file = server.data_dir().join(format!("disks/fast/volumes/{volume}.raw"));
    assert_eq!(std::fs::metadata(&file).expect("the volume is on the disk").len(), 16 << 20);
    let events = "/api/v1/namespaces/default/events?fieldSelector=involvedObject.name=nowhere";
    eventually("it is said that there is no room", async || {
        let events = client.get(events).await.expect("an answer").text();
        if events.contains("insufficient storage") { Ok(()) } else { Err(events) }
    })
    .await;

    // It is found again after a restart, and not erased though forceFormatted still stands there.
    server.restart().await.expect("restarted");
    let client = server.client().expect("a client");
    becomes(&client, &path, "a pool again", BOOT, is_added).await;
    create(&client, &with_disk("user", &json!({"persistentVolumeClaim": {"claimName": "there"}}))).await;
    status_becomes(&client, "user", "Running").await;

    patched(&client, &path, &json!({"spec": {"provision": false}})).await;
    let held = becomes(&client, &path, "in use", BOOT, |device| says(device, "InUse")).await;
    assert!(condition(&held, "AddedToNode").expect("a condition")["message"].to_string().contains(&volume), "{held}");
    deleted(&client, &format!("{MACHINES}/user")).await;
    is_gone(&client, &format!("{MACHINES}/user")).await;
    for name in ["there", "nowhere"] {
        deleted(&client, &format!("{CLAIMS}/{name}")).await;
        is_gone(&client, &format!("{CLAIMS}/{name}")).await;
    }
    let is_free = |device: &Value| device["status"]["provisionPhase"] == "Unprovisioned";
    becomes(&client, &path, "free", BOOT, is_free).await;
    let mounts = std::fs::read_to_string("/proc/mounts").expect("mounts");
    assert!(!mounts.contains(&device.path), "{mounts}");
    deleted(&client, &path).await;
    is_gone(&client, &path).await;
}
