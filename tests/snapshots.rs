//! Snapshots: of volumes by themselves, and of machines with all their disks at one instant.

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use croft_e2e::machines::{BOOT, CLAIMS, becomes, is_gone, node};
use croft_e2e::storage::{
    CLASSES, DATA_VOLUMES, begins_with, bound, claim, data_volume, deleted, disk, made, phase_becomes, volume_file,
};
use croft_testkit::{Client, Croft, eventually};
use serde_json::{Value, json};

const SNAPSHOTS: &str = "/apis/snapshot.storage.k8s.io/v1/namespaces/default/volumesnapshots";
const CONTENTS: &str = "/apis/snapshot.storage.k8s.io/v1/volumesnapshotcontents";
const SNAPSHOT_CLASSES: &str = "/apis/snapshot.storage.k8s.io/v1/volumesnapshotclasses";
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
    write(&file, &[7; 1 << 20]);

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
