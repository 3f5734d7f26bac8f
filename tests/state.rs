//! The state of a cluster, saved and brought back when its machine is gone.

use std::path::Path;
use std::time::Duration;

use croft_e2e::machines::{BOOT, CLAIMS, MACHINES, becomes, create, croft, croft_ok, empty, is_true, node};
use croft_e2e::storage::{begins_with, claim, disk, made, patched, run, volume_file};
use croft_testkit::{Croft, StoreKind};
use serde_json::{Value, json};

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
const EVENTS: &str = "/api/v1/namespaces/default/events";
const SECRETS: &str = "/api/v1/namespaces/default/secrets";
const SETTING: &str = "/apis/harvesterhci.io/v1beta1/settings/backup-target";
const BACKUPS: &str = "/apis/harvesterhci.io/v1beta1/namespaces/default/virtualmachinebackups";
const RESTORES: &str = "/apis/harvesterhci.io/v1beta1/namespaces/default/virtualmachinerestores";

async fn said(server: &Croft, args: &[&str]) -> String {
    croft_ok(server, args).await.unwrap_or_else(|err| panic!("{err:#}"))
}

/// What it complains of.
async fn complaint(server: &Croft, args: &[&str]) -> String {
    let output = croft(server, args).await.expect("croft runs");
    assert!(!output.status.success(), "{args:?} succeeds");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a path")
}

/// As if the disk had been taken out.
fn lose(server: &mut Croft) {
    server.kill().expect("killed");
    let dir = server.data_dir().to_owned();
    if let Some(run_dir) = server.run_dir() {
        let mut reset = std::process::Command::new(croft_testkit::binary().expect("the program"));
        reset.args(["node", "reset", "--yes", "--data-dir"]).arg(&dir).arg("--run-dir").arg(run_dir);
        let output = reset.output().expect("it runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        std::fs::create_dir_all(run_dir).expect("a directory");
    }
    for entry in std::fs::read_dir(&dir).expect("the data directory") {
        let path = entry.expect("an entry").path();
        let removed = if path.is_dir() { std::fs::remove_dir_all(&path) } else { std::fs::remove_file(&path) };
        removed.unwrap_or_else(|err| panic!("{}: {err}", path.display()));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_objects_and_identities_come_back() {
    let mut server = Croft::start(StoreKind::Embedded).await.expect("the server starts");
    let client = server.client().expect("a client");
    let place = tempfile::tempdir().expect("a directory");
    let file = place.path().join("state.gz");
    let token = said(&server, &["token", "create", "--user", "ann", "--data-dir", text(server.data_dir())]).await;
    let long: String = "x".repeat(100_000);
    made(&client, SECRETS, &json!({"metadata": {"name": "s"}, "stringData": {"k": "v"}})).await;
    for number in 0..450 {
        let map = json!({"metadata": {"name": format!("m{number}")}, "data": {"n": number.to_string()}});
        made(&client, CONFIG_MAPS, &map).await;
    }
    let kept = made(&client, CONFIG_MAPS, &json!({"metadata": {"name": "kept"}, "data": {"long": long}})).await;

    // Only for those who may do anything.
    let ann = server.bearer(token.trim()).expect("a client");
    assert_eq!(ann.get("/croft/v1/state").await.expect("an answer").status, 403);
    assert_eq!(server.anonymous().expect("a client").get("/croft/v1/state").await.expect("an answer").status, 403);

    let told = said(&server, &["state", "save", text(&file)]).await;
    assert!(told.contains(" objects and ") && told.contains("revision"), "{told}");
    let mode = std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&file).expect("a file").permissions());
    assert_eq!(mode & 0o777, 0o600, "all Secrets are in there");
    let about: Value =
        serde_json::from_str(&said(&server, &["state", "inspect", text(&file), "-o", "json"]).await).expect("JSON");
    assert!(about["objects"].as_u64().is_some_and(|count| count > 450), "{about}");
    assert!(about["files"].as_array().is_some_and(|files| files.contains(&json!("pki/ca.key"))), "{about}");
    let late = made(&client, CONFIG_MAPS, &json!({"metadata": {"name": "late"}})).await;
    let seen = late["metadata"]["resourceVersion"].as_str().expect("a version").to_owned();

    // Nothing is put over what is there, and half a file is no file.
    let dir = text(server.data_dir()).to_owned();
    let error = complaint(&server, &["state", "restore", text(&file), "--data-dir", &dir]).await;
    assert!(error.contains("there is a store in") && error.contains("move it away"), "{error}");
    let whole = std::fs::read(&file).expect("the file");
    let half = place.path().join("half.gz");
    std::fs::write(&half, &whole[..whole.len() / 2]).expect("a file");
    let error = complaint(&server, &["state", "inspect", text(&half)]).await;
    assert!(error.contains("it is not whole"), "{error}");

    lose(&mut server);
    let error = complaint(&server, &["state", "restore", text(&half), "--data-dir", &dir]).await;
    assert!(error.contains("it is not whole"), "{error}");
    let told = said(&server, &["state", "restore", text(&file), "--data-dir", &dir]).await;
    assert!(told.contains("start the server"), "{told}");
    server.restart().await.expect("it starts");

    // The same authority, the same tokens, the same objects.
    let client = server.client().expect("a client");
    let found = client.get(&format!("{CONFIG_MAPS}/kept")).await.expect("an answer").ok().expect("it is there");
    assert_eq!(found, kept);
    let maps = client.get(CONFIG_MAPS).await.expect("an answer").ok().expect("a list");
    assert_eq!(maps["items"].as_array().map(Vec::len), Some(452), "450, kept, and the authority's");
    let secret = client.get(&format!("{SECRETS}/s")).await.expect("an answer").ok().expect("it is there");
    assert_eq!(secret["data"]["k"], "dg==");
    let ann = server.bearer(token.trim()).expect("a client");
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let who = ann.post("/apis/authentication.k8s.io/v1/selfsubjectreviews", &review).await.expect("an answer");
    assert_eq!(who.json()["status"]["userInfo"]["username"], "ann");

    // Who has seen what was lost must look again, and what is new is newer than all of it.
    let watch = client.get(&format!("{CONFIG_MAPS}?watch=true&resourceVersion={seen}")).await.expect("an answer");
    assert!(watch.status == 410 || watch.text().contains("\"code\":410"), "{}", watch.text());
    let new = made(&client, CONFIG_MAPS, &json!({"metadata": {"name": "new"}})).await;
    let version = |text: &str| text.parse::<u64>().expect("a number");
    assert!(version(new["metadata"]["resourceVersion"].as_str().expect("a version")) > version(&seen));
}

fn version(object: &Value) -> u64 {
    object["metadata"]["resourceVersion"].as_str().and_then(|text| text.parse().ok()).expect("a version")
}

/// Of the etcd, under these keys.
fn keys(url: &str, prefix: &str) -> Vec<String> {
    let told = run("etcdctl", &["--endpoints", url, "get", "--prefix", prefix, "--keys-only"]).expect("its keys");
    told.lines().filter(|line| !line.is_empty()).map(ToOwned::to_owned).collect()
}

/// What is added to its revisions.
fn base(url: &str) -> u64 {
    let told = run("etcdctl", &["--endpoints", url, "get", "/croft-base", "--print-value-only"]).expect("the base");
    told.parse().expect("a number")
}

/// Killed after ever longer, until it comes to its end by itself. A part of it is never taken for the whole. Tells the base.
async fn restored_under_fire(restore: &[&str], url: &str, dir: &str) -> u64 {
    let program = croft_testkit::binary().expect("the program");
    let start = |args: &[&str]| {
        let mut command = tokio::process::Command::new(program.clone());
        command.args(args).kill_on_drop(true).stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
        command
    };
    let mut parts = 0;
    for killed in 0_u32.. {
        let mut child = start(restore).spawn().expect("it runs");
        let life = Duration::from_millis(10) + Duration::from_millis(17) * killed;
        if tokio::time::timeout(life, child.wait()).await.is_ok() {
            let output = child.wait_with_output().await.expect("its output");
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            break;
        }
        child.kill().await.expect("killed");
        let is_shut = !keys(url, "/croft-gate").is_empty();
        if is_whole(url) {
            break;
        }
        if keys(url, "/croft/").is_empty() {
            continue;
        }
        assert!(is_shut, "a part is there after {life:?}, and the gate is open");
        parts += 1;
        if parts == 1 {
            let args = ["server", "--no-node", "--listen", "127.0.0.1:0", "--data-dir", dir, "--store", "etcd"];
            let server = start(&[&args[..], &["--etcd-endpoints", url]].concat()).output();
            let refused =
                tokio::time::timeout(Duration::from_mins(1), server).await.expect("in time").expect("it runs");
            let why = String::from_utf8_lossy(&refused.stderr).into_owned();
            assert!(!refused.status.success() && why.contains("is being restored here"), "{why}");
        }
    }
    assert!(parts > 0, "it was never killed in the middle");
    assert!(keys(url, "/croft-gate").is_empty());
    base(url)
}

/// Killed after its work was done.
fn is_whole(url: &str) -> bool {
    let maps = keys(url, "/croft/registry/core/configmaps/default/m");
    maps.len() == 300 && keys(url, "/croft-gate").is_empty()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_state_moves_from_the_embedded_store_into_etcd() {
    let mut old = Croft::start(StoreKind::Embedded).await.expect("the server starts");
    let client = old.client().expect("a client");
    let place = tempfile::tempdir().expect("a directory");
    let file = place.path().join("state.gz");
    let kept = made(&client, CONFIG_MAPS, &json!({"metadata": {"name": "kept"}, "data": {"a": "b"}})).await;
    for number in 0..300 {
        made(&client, CONFIG_MAPS, &json!({"metadata": {"name": format!("m{number}")}})).await;
    }
    said(&old, &["state", "save", text(&file)]).await;
    old.kill().expect("killed");

    let mut server = Croft::start(StoreKind::Etcd).await.expect("the server starts");
    let dir = text(server.data_dir()).to_owned();
    let url = server.etcd().expect("etcd").url.clone();
    lose(&mut server);
    let args = ["--data-dir", &dir, "--store", "etcd", "--etcd-endpoints", &url];
    let restore: Vec<&str> = ["state", "restore", text(&file)].into_iter().chain(args).collect();
    let error = complaint(&old, &restore).await;
    assert!(error.contains("there are objects in this etcd already; \"etcdctl del --prefix /croft/\""), "{error}");
    run("etcdctl", &["--endpoints", &url, "del", "--prefix", "/croft/"]).expect("emptied");
    let first = restored_under_fire(&restore, &url, &dir).await;
    server.restart().await.expect("it starts");
    let client = server.client().expect("a client");
    let found = client.get(&format!("{CONFIG_MAPS}/kept")).await.expect("an answer").ok().expect("it is there");
    assert_eq!((&found["metadata"]["uid"], &found["data"]), (&kept["metadata"]["uid"], &kept["data"]));
    let maps = client.get(CONFIG_MAPS).await.expect("an answer").ok().expect("a list");
    assert_eq!(maps["items"].as_array().map(Vec::len), Some(302), "300, kept, and the authority's");

    // The same state once more: what is new then is not what was new before.
    let new = made(&client, CONFIG_MAPS, &json!({"metadata": {"name": "new"}})).await;
    lose(&mut server);
    run("etcdctl", &["--endpoints", &url, "del", "--prefix", "/croft/"]).expect("emptied");
    said(&old, &restore).await;
    assert!(base(&url) > first);
    server.restart().await.expect("it starts");
    let client = server.client().expect("a client");
    let other = made(&client, CONFIG_MAPS, &json!({"metadata": {"name": "other"}})).await;
    assert!(version(&other) > version(&new), "{other} {new}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_state_is_saved_out_of_etcd_and_comes_back() {
    let mut server = Croft::start(StoreKind::Etcd).await.expect("the server starts");
    let client = server.client().expect("a client");
    let place = tempfile::tempdir().expect("a directory");
    let file = place.path().join("state.gz");
    let kept = made(&client, CONFIG_MAPS, &json!({"metadata": {"name": "kept"}, "data": {"a": "b"}})).await;
    made(&client, SECRETS, &json!({"metadata": {"name": "s"}, "stringData": {"k": "v"}})).await;
    let token = said(&server, &["token", "create", "--user", "ann", "--data-dir", text(server.data_dir())]).await;
    let told = said(&server, &["state", "save", text(&file)]).await;
    assert!(told.contains(" objects and "), "{told}");
    let late = made(&client, CONFIG_MAPS, &json!({"metadata": {"name": "late"}})).await;

    // Both are lost: the directory with the authority, and what etcd has.
    lose(&mut server);
    let (dir, url) = (text(server.data_dir()).to_owned(), server.etcd().expect("etcd").url.clone());
    run("etcdctl", &["--endpoints", &url, "del", "--prefix", "/croft/"]).expect("emptied");
    let restore = ["state", "restore", text(&file), "--data-dir", &dir, "--store", "etcd", "--etcd-endpoints", &url];
    said(&server, &restore).await;
    server.restart().await.expect("it starts");
    let client = server.client().expect("a client");
    let found = client.get(&format!("{CONFIG_MAPS}/kept")).await.expect("an answer").ok().expect("it is there");
    for field in ["uid", "creationTimestamp"] {
        assert_eq!(found["metadata"][field], kept["metadata"][field], "{found}");
    }
    assert_eq!(found["data"], kept["data"], "{found}");
    let secret = client.get(&format!("{SECRETS}/s")).await.expect("an answer").ok().expect("it is there");
    assert_eq!(secret["data"]["k"], "dg==");
    assert_eq!(client.get(&format!("{CONFIG_MAPS}/late")).await.expect("an answer").status, 404, "it came too late");
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let ann = server.bearer(token.trim()).expect("a client");
    let who = ann.post("/apis/authentication.k8s.io/v1/selfsubjectreviews", &review).await.expect("an answer");
    assert_eq!(who.json()["status"]["userInfo"]["username"], "ann");
    // What is new is newer than all that was seen.
    let new = made(&client, CONFIG_MAPS, &json!({"metadata": {"name": "new"}})).await;
    assert!(version(&new) > version(&late), "{new} {late}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_machine_that_is_gone_is_set_up_again_from_the_target() {
    let (mut server, client) = node().await;
    let place = tempfile::tempdir().expect("a directory");
    let (target, key) = (place.path().join("target"), place.path().join("key"));
    std::fs::create_dir(&target).expect("a directory");
    std::fs::write(&key, [7; 32]).expect("a key");
    let url = format!("file://{}", target.display());
    let value = json!({"type": "directory", "endpoint": url, "refreshIntervalInSeconds": 1});
    patched(&client, SETTING, &json!({"value": value.to_string()})).await;
    becomes(&client, SETTING, "usable", BOOT, |setting| is_true(setting, "configured")).await;

    made(&client, CLAIMS, &claim("data", "harvester-longhorn", "24Mi")).await;
    let content = disk();
    let file = volume_file(&server, &client, "data").await;
    std::os::unix::fs::FileExt::write_all_at(
        &std::fs::OpenOptions::new().write(true).open(&file).expect("the volume"),
        &content,
        0,
    )
    .expect("written");
    let mut machine = empty("web");
    let spec = &mut machine["spec"]["template"]["spec"];
    spec["domain"]["devices"]["disks"] = json!([{"name": "disk", "disk": {"bus": "virtio"}}]);
    spec["volumes"] = json!([{"name": "disk", "persistentVolumeClaim": {"claimName": "data"}}]);
    create(&client, &machine).await;
    let running = |it: &Value| it["status"]["printableStatus"] == "Running";
    becomes(&client, &format!("{MACHINES}/web"), "running", BOOT, running).await;
    let backup = json!({"apiVersion": "harvesterhci.io/v1beta1", "kind": "VirtualMachineBackup",
        "metadata": {"name": "nightly"}, "spec": {"type": "backup",
        "source": {"apiGroup": "kubevirt.io", "kind": "VirtualMachine", "name": "web"}}});
    made(&client, BACKUPS, &backup).await;
    let is_ready = |it: &Value| it["status"]["readyToUse"] == true && is_true(it, "MetadataReady");
    becomes(&client, &format!("{BACKUPS}/nightly"), "in the target", BOOT, is_ready).await;
    for _ in 0..2 {
        // Names are of seconds: a second one of the same second is the same.
        said(&server, &["state", "save", "--key-file", text(&key), "--keep", "1"]).await;
    }
    let states: Value = serde_json::from_str(&said(&server, &["state", "list", "-o", "json"]).await).expect("JSON");
    assert_eq!(states["items"].as_array().map(Vec::len), Some(1), "{states}");

    lose(&mut server);
    let dir = text(server.data_dir()).to_owned();
    let error = complaint(&server, &["state", "restore", "--target", &url, "--data-dir", &dir]).await;
    assert!(error.contains("encrypted") && error.contains("key is needed"), "{error}");
    let restore = ["state", "restore", "--target", &url, "--key-file", text(&key), "--data-dir", &dir];
    said(&server, &restore).await;
    server.restart().await.expect("it starts");
    let client = server.client().expect("a client");

    // The machine is known, and is not started with an empty disk in place of the one that is lost.
    let is_told = |events: &Value| events.to_string().contains("is missing from pool");
    becomes(&client, EVENTS, "told of", BOOT, is_told).await;
    patched(&client, &format!("{MACHINES}/web"), &json!({"spec": {"runStrategy": "Halted"}})).await;
    let stopped = |it: &Value| it["status"]["printableStatus"] == "Stopped" && it["status"]["created"] != true;
    becomes(&client, &format!("{MACHINES}/web"), "stopped", BOOT, stopped).await;
    becomes(&client, &format!("{BACKUPS}/nightly"), "still there", BOOT, is_ready).await;
    let restore = json!({"apiVersion": "harvesterhci.io/v1beta1", "kind": "VirtualMachineRestore",
        "metadata": {"name": "back"}, "spec": {"virtualMachineBackupName": "nightly",
        "virtualMachineBackupNamespace": "default", "newVM": false, "deletionPolicy": "delete",
        "target": {"apiGroup": "kubevirt.io", "kind": "VirtualMachine", "name": "web"}}});
    made(&client, RESTORES, &restore).await;
    let done =
        becomes(&client, &format!("{RESTORES}/back"), "complete", BOOT, |it| it["status"]["complete"] == true).await;
    let name = done["status"]["restores"][0]["persistentVolumeClaimSpec"]["metadata"]["name"].as_str().expect("a name");
    let file = volume_file(&server, &client, name).await;
    assert!(begins_with(&std::fs::read(file).expect("the volume"), &content, 24 << 20));
    becomes(&client, &format!("{MACHINES}/web"), "running", BOOT, running).await;
}
