//! Volumes that become again what they were, and hundreds of snapshots of one.

use std::path::Path;

use croft_e2e::machines::{
    BOOT, CLAIMS, MACHINES, becomes, create, croft, croft_ok, empty, is_gone, node, running, status_becomes,
};
use croft_e2e::storage::{begins_with, bound, claim, disk, made, patched, volume_file};
use croft_testkit::{Client, Croft, eventually};
use futures::future::join_all;
use serde_json::{Value, json};

const SNAPSHOTS: &str = "/apis/snapshot.storage.k8s.io/v1/namespaces/default/volumesnapshots";
const SIZE: usize = 24 << 20;

async fn said(server: &Croft, args: &[&str]) -> String {
    croft_ok(server, args).await.unwrap_or_else(|err| panic!("{err:#}"))
}

async fn complaint(server: &Croft, args: &[&str]) -> String {
    let output = croft(server, args).await.expect("croft runs");
    assert_eq!(output.status.code(), Some(1), "{args:?}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

async fn revert(client: &Client, claim: &str, snapshot: &str) -> croft_testkit::Answer {
    let path = format!("/v1/harvester/persistentvolumeclaims/default/{claim}?action=revert");
    client.post(&path, &json!({"snapshot": snapshot})).await.expect("an answer")
}

fn holds(file: &Path, content: &[u8]) -> bool {
    begins_with(&std::fs::read(file).expect("the volume"), content, SIZE)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_volume_becomes_what_it_was_in_its_place() {
    let (server, client) = node().await;
    for name in ["data", "other"] {
        made(&client, CLAIMS, &claim(name, "harvester-longhorn", "24Mi")).await;
        bound(&client, name).await;
    }
    let (file, content) = (volume_file(&server, &client, "data").await, disk());
    let whole = |content: &[u8]| [content, &vec![0; SIZE - content.len()]].concat();
    std::fs::write(&file, whole(&content)).expect("written");
    for (volume, name) in [("data", "one"), ("other", "foreign")] {
        said(&server, &["snapshot", "create", volume, "--volume", "--name", name, "--wait"]).await;
    }
    std::fs::write(&file, vec![7; SIZE]).expect("written");
    said(&server, &["snapshot", "create", "data", "--volume", "--name", "two", "--wait"]).await;

    let why = complaint(&server, &["snapshot", "restore", "one", "--volume", "--replace"]).await;
    assert!(why.contains("--yes"), "{why}");
    for (snapshot, status, word) in [("none", 404, "none"), ("foreign", 409, "another volume"), ("", 422, "snapshot")] {
        let refused = revert(&client, "data", snapshot).await;
        assert!(refused.status == status && refused.text().contains(word), "{}", refused.text());
    }
    assert!(std::fs::read(&file).expect("the volume").iter().all(|byte| *byte == 7), "nothing has happened");

    // Not while it is used, whoever asks.
    let mut machine = empty("user");
    let spec = &mut machine["spec"]["template"]["spec"];
    spec["terminationGracePeriodSeconds"] = json!(0);
    spec["domain"]["devices"]["disks"] = json!([{"name": "disk", "disk": {"bus": "virtio"}}]);
    spec["volumes"] = json!([{"name": "disk", "persistentVolumeClaim": {"claimName": "data"}}]);
    create(&client, &machine).await;
    running(&client, "user").await;
    let why = complaint(&server, &["snapshot", "restore", "one", "--volume", "--replace", "--yes"]).await;
    assert!(why.contains("in use by the running VM default/user"), "{why}");
    let asked = json!({"metadata": {"annotations": {"croft.io/revert-to": "one"}}});
    patched(&client, &format!("{CLAIMS}/data"), &asked).await;
    let refused = eventually("it is refused", async || {
        let claim = client.get(&format!("{CLAIMS}/data")).await.expect("an answer").json();
        let told = claim["metadata"]["annotations"].clone();
        if told["croft.io/revert-to"].is_null() { Ok(told) } else { Err(told.to_string()) }
    })
    .await;
    assert!(refused["croft.io/revert-error"].as_str().is_some_and(|why| why.contains("user")), "{refused}");
    assert!(std::fs::read(&file).expect("the volume").iter().all(|byte| *byte == 7), "nothing has happened");

    said(&server, &["vm", "stop", "user", "--force"]).await;
    status_becomes(&client, "user", "Stopped").await;
    is_gone(&client, "/apis/kubevirt.io/v1/namespaces/default/virtualmachineinstances/user").await;
    said(&server, &["snapshot", "restore", "one", "--volume", "--replace", "--yes"]).await;
    assert!(holds(&file, &content), "byte for byte");
    let claim: Value = client.get(&format!("{CLAIMS}/data")).await.expect("an answer").json();
    assert_eq!(claim["metadata"]["annotations"]["croft.io/reverted-to"], "one", "{claim}");
    assert!(claim["metadata"]["annotations"]["croft.io/revert-error"].is_null(), "{claim}");
    // Forth again, and the snapshots are what they were; the machine runs on it.
    assert_eq!(revert(&client, "data", "two").await.status, 204);
    said(&server, &["vm", "start", "user", "--wait"]).await;
    assert!(std::fs::read(&file).expect("the volume").iter().all(|byte| *byte == 7));
    said(&server, &["snapshot", "restore", "one", "--volume", "--to", "copy", "--wait"]).await;
    assert!(holds(&volume_file(&server, &client, "copy").await, &content));
    said(&server, &["vm", "delete", "user", "--yes", "--wait", "--keep-disks"]).await;
    is_gone(&client, &format!("{MACHINES}/user")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn longhorns_snapshots_show_and_make_them() {
    const LONGHORN: &str = "/apis/longhorn.io/v1beta2/namespaces/longhorn-system/snapshots";
    let (server, client) = node().await;
    made(&client, CLAIMS, &claim("data", "harvester-longhorn", "24Mi")).await;
    let volume = bound(&client, "data").await["spec"]["volumeName"].as_str().expect("a volume").to_owned();
    let file = volume_file(&server, &client, "data").await;
    std::fs::write(&file, vec![3; SIZE]).expect("written");
    said(&server, &["snapshot", "create", "data", "--volume", "--name", "one", "--wait"]).await;
    let one = client.get(&format!("{SNAPSHOTS}/one")).await.expect("an answer").json();
    let shown = format!("{LONGHORN}/snapshot-{}", one["metadata"]["uid"].as_str().expect("a uid"));
    let is_ready = |it: &Value| it["status"]["readyToUse"] == true;
    let found = becomes(&client, &shown, "ready", BOOT, is_ready).await;
    assert_eq!((&found["spec"]["volume"], &found["status"]["restoreSize"]), (&json!(volume), &json!(SIZE)), "{found}");
    assert_eq!(found["status"]["creationTime"], one["status"]["creationTime"], "{found}");
    assert!(found["status"]["size"].as_u64().is_some_and(|size| size >= 24 << 20), "{found}");
    assert!(found["status"]["parent"].is_null() && found["status"]["error"] == "", "{found}");

    // One that a user asks for.
    let asked = |name: &str, volume: &str| {
        json!({"apiVersion": "longhorn.io/v1beta2", "kind": "Snapshot", "metadata": {"name": name},
            "spec": {"volume": volume, "createSnapshot": true, "labels": {"why": "test"}}})
    };
    let refused = client.post(LONGHORN, &asked("bad", "pvc-none")).await.expect("an answer");
    assert!(refused.status == 422 && refused.text().contains("pvc-none"), "{}", refused.text());
    made(&client, LONGHORN, &asked("mine", &volume)).await;
    becomes(&client, &format!("{LONGHORN}/mine"), "ready", BOOT, is_ready).await;
    let mine = client.get(&format!("{SNAPSHOTS}/mine")).await.expect("an answer").json();
    assert_eq!(
        (&mine["status"]["readyToUse"], &mine["metadata"]["labels"]["why"]),
        (&json!(true), &json!("test")),
        "{mine}"
    );
    // Either takes the other along.
    assert!(client.delete(&shown).await.expect("an answer").status < 300);
    is_gone(&client, &format!("{SNAPSHOTS}/one")).await;
    is_gone(&client, &shown).await;
    said(&server, &["snapshot", "delete", "mine", "--volume", "--yes", "--wait"]).await;
    is_gone(&client, &format!("{LONGHORN}/mine")).await;
    assert_eq!(std::fs::read_dir(server.data_dir().join("pool/snapshots")).expect("snapshots").count(), 0);

    // What belongs to a machine's goes with that.
    let mut machine = empty("web");
    machine["spec"].as_object_mut().expect("a spec").remove("running");
    machine["spec"]["runStrategy"] = json!("Halted");
    let spec = &mut machine["spec"]["template"]["spec"];
    spec["domain"]["devices"]["disks"] = json!([{"name": "disk", "disk": {"bus": "virtio"}}]);
    spec["volumes"] = json!([{"name": "disk", "persistentVolumeClaim": {"claimName": "data"}}]);
    create(&client, &machine).await;
    said(&server, &["snapshot", "create", "web", "--name", "whole", "--wait"]).await;
    let whole = client.get(&format!("{SNAPSHOTS}/whole-volume-data")).await.expect("an answer").json();
    let shown = format!("{LONGHORN}/snapshot-{}", whole["metadata"]["uid"].as_str().expect("a uid"));
    becomes(&client, &shown, "ready", BOOT, is_ready).await;
    let refused = client.delete(&shown).await.expect("an answer");
    assert!(refused.status == 403 && refused.text().contains("VirtualMachineBackup whole"), "{}", refused.text());
    said(&server, &["snapshot", "delete", "whole", "--yes", "--wait"]).await;
    is_gone(&client, &shown).await;
}

/// What looks random and is the same every time.
fn shuffled(count: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..count).collect();
    let mut state = 0x2545_f491_u32;
    for index in (1..count).rev() {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        order.swap(index, usize::try_from(state).expect("fits") % (index + 1));
    }
    order
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hundreds_of_snapshots_go_in_any_order() {
    const COUNT: usize = 300;
    const EACH: usize = 30;
    let (server, client) = node().await;
    made(&client, CLAIMS, &claim("data", "harvester-longhorn", "4Mi")).await;
    let file = volume_file(&server, &client, "data").await;
    let mark = |index: usize| u8::try_from(index / EACH + 1).expect("small");
    let path = |index: usize| format!("{SNAPSHOTS}/s{index}");
    let mut uids = Vec::new();
    for first in (0..COUNT).step_by(EACH) {
        std::fs::write(&file, vec![mark(first); 4 << 20]).expect("written");
        let wanted = |index: usize| {
            json!({"apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshot",
                "metadata": {"name": format!("s{index}")},
                "spec": {"source": {"persistentVolumeClaimName": "data"}}})
        };
        let objects: Vec<Value> = (first..first + EACH).map(wanted).collect();
        let all = join_all(objects.iter().map(|object| made(&client, SNAPSHOTS, object))).await;
        uids.extend(all.iter().map(|one| one["metadata"]["uid"].as_str().expect("a uid").to_owned()));
        eventually("they are ready", async || {
            let there = client.get(SNAPSHOTS).await.expect("an answer").json();
            let items = there["items"].as_array().cloned().unwrap_or_default();
            let ready = items.iter().filter(|it| it["status"]["readyToUse"] == true).count();
            if ready == first + EACH { Ok(()) } else { Err(format!("{ready} are ready")) }
        })
        .await;
    }
    let snapshot = |index: usize| server.data_dir().join(format!("pool/snapshots/snapshot-{}.raw", uids[index]));
    let order = shuffled(COUNT);
    let (gone, kept) = order.split_at(COUNT - 10);
    for some in gone.chunks(EACH) {
        let paths: Vec<String> = some.iter().map(|index| path(*index)).collect();
        join_all(paths.iter().map(|path| client.delete(path))).await;
    }
    eventually("the others are gone", async || {
        let there = std::fs::read_dir(server.data_dir().join("pool/snapshots")).expect("snapshots").count();
        if there == kept.len() { Ok(()) } else { Err(format!("{there} files")) }
    })
    .await;
    for index in kept {
        let content = std::fs::read(snapshot(*index)).expect("a snapshot");
        assert!(content.len() == 4 << 20 && content.iter().all(|byte| *byte == mark(*index)), "snapshot {index}");
    }
    assert!(std::fs::read(&file).expect("the volume").iter().all(|byte| *byte == mark(COUNT - 1)));
}
