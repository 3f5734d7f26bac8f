//! Where backups go: what is refused, what is told of a target that fails, and that it is used again by itself.

use std::path::Path;

use croft_e2e::export::{Export, is_outside};
use croft_e2e::kept::{
    BACKUPS, Bucket, HEALTH, LONGHORN, RESTORES, Relay, SETTING, SIZE, SmallDisk, backup, files, get, holds, is_usable,
    machine_with, ready, restore, restored, set_target, write,
};
use croft_e2e::machines::{BOOT, becomes, condition, croft_ok, is_gone, is_true, node};
use croft_e2e::seeded::Random;
use croft_e2e::storage::{deleted, disk, made, patched, text};
use croft_testkit::{Client, Croft, StoreKind, eventually};
use serde_json::{Value, json};

/// Whether the setting tells of this.
fn tells(setting: &Value, text: &str) -> bool {
    condition(setting, "configured").is_some_and(|it| {
        it["status"] == "False" && it["message"].as_str().is_some_and(|message| message.contains(text))
    })
}

fn directory(path: &Path) -> String {
    json!({"type": "directory", "endpoint": format!("file://{}", path.display())}).to_string()
}

/// A machine's backup fails for this reason, and says so.
async fn fails(client: &Client, name: &str, why: &str) {
    let is_told = |it: &Value| {
        let told = it["status"]["error"]["message"].as_str().unwrap_or_default();
        told.contains(why) && it["status"]["readyToUse"] == false
    };
    becomes(client, &format!("{BACKUPS}/{name}"), why, BOOT, is_told).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_target_that_does_not_work_is_refused() {
    let server = Croft::start(StoreKind::Embedded).await.expect("the server starts");
    let client = server.client().expect("a client");
    let (bucket, dir) = (Bucket::start(), tempfile::tempdir().expect("a directory"));
    let s3 = |endpoint: &str, name: &str, key: &str| {
        json!({"type": "s3", "endpoint": endpoint, "bucketName": name, "bucketRegion": "us-east-1",
            "accessKeyId": bucket.said["id"], "secretAccessKey": key})
        .to_string()
    };
    let there = format!("http://127.0.0.1:{}", bucket.port());
    let cases = [
        (s3("http://no-such-host.invalid", "croft", "k"), "cannot be reached"),
        (s3("http://127.0.0.1:1", "croft", "k"), "cannot be reached"),
        (s3("127.0.0.1", "croft", "k"), "must begin with https:// or http://"),
        (s3(&there, "croft", "wrong-key"), "denies access"),
        (s3(&there, "no-such-bucket", bucket.key()), "does not exist"),
        (json!({"type": "nfs", "endpoint": "nfs://127.0.0.1:/nothing"}).to_string(), "failed to connect"),
        (directory(&dir.path().join("none")), "does not exist"),
        (directory(Path::new("/proc")), "cannot write"),
    ];
    for (value, why) in cases {
        let answer = client.patch(SETTING, "merge-patch", &json!({"value": value})).await.expect("an answer");
        let text = answer.text();
        assert!(answer.status == 422 && text.contains("failed to connect to backup target, reason: "), "{text}");
        assert!(text.contains(why) && !text.contains("wrong-key"), "{value}: {text}");
        assert_eq!(get(&client, SETTING).await["value"].as_str().unwrap_or_default(), "", "{value}");
    }
    // A client that only asks is told as well, and nothing is kept.
    let dry = format!("{SETTING}?dryRun=All");
    let good = json!({"value": directory(dir.path())});
    assert_eq!(client.patch(&dry, "merge-patch", &good).await.expect("an answer").status, 200);
    let health = client.get(HEALTH).await.expect("an answer");
    assert!(health.text().contains("backup target is not set"), "{}", health.text());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_target_that_vanishes_is_told_of_and_comes_back() {
    let server = Croft::start(StoreKind::Embedded).await.expect("the server starts");
    let client = server.client().expect("a client");
    let dir = tempfile::tempdir().expect("a directory");
    let (place, away) = (dir.path().join("backups"), dir.path().join("away"));
    std::fs::create_dir(&place).expect("a directory");
    let health = async || client.get(HEALTH).await.expect("an answer");
    set_target(&client, &place).await;
    let target = format!("{LONGHORN}/backuptargets/default");
    for _ in 0..2 {
        is_usable(&client).await;
        assert_eq!(health().await.status, 200);
        let object = get(&client, &target).await;
        assert_eq!(object["spec"]["backupTargetURL"], format!("file://{}", place.display()), "{object}");
        assert!(object["status"]["available"] == true && object["status"]["lastSyncedAt"].is_string(), "{object}");
        eventually("nothing is left of a look", async || {
            let left = files(&place, "");
            if left.is_empty() { Ok(()) } else { Err(format!("{left:?}")) }
        })
        .await;
        std::fs::rename(&place, &away).expect("it goes");
        // Who asks is told at once, whenever it was last looked at.
        let answer = health().await;
        assert!(answer.status == 422 && answer.text().contains("does not exist"), "{}", answer.text());
        becomes(&client, SETTING, "told of", BOOT, |setting| tells(setting, "does not exist")).await;
        let object = get(&client, &target).await;
        assert!(object["status"]["available"] == false && is_true(&object, "Unavailable"), "{object}");
        std::fs::rename(&away, &place).expect("it comes back");
    }
    patched(&client, SETTING, &json!({"value": ""})).await;
    becomes(&client, &target, "without a target", BOOT, |it| it["spec"]["backupTargetURL"] == "").await;
    is_usable(&client).await;
    assert!(health().await.text().contains("backup target is not set"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bucket_that_fails_is_waited_for() {
    let (server, client) = node().await;
    let bucket = Bucket::start();
    let relay = Relay::to(bucket.port()).await;
    patched(&client, SETTING, &json!({"value": bucket.target(relay.port, bucket.key())})).await;
    is_usable(&client).await;
    let content = disk();
    let file = machine_with(&server, &client, "web", &content).await;

    for (name, status, why) in [("one", 500, "has a problem"), ("two", 403, "denies access")] {
        relay.answers(Some(status));
        becomes(&client, SETTING, "told of", BOOT, |setting| tells(setting, why)).await;
        made(&client, BACKUPS, &backup(name, "web")).await;
        fails(&client, name, why).await;
        relay.answers(None);
        let done = ready(&client, name).await;
        assert_eq!(done["status"]["backupTarget"]["bucketName"], "croft", "{done}");
        assert!(done["status"]["error"].is_null(), "{done}");
        // So that the first is in the bucket alone.
        write(&file, b"later", 0);
    }
    made(&client, RESTORES, &restore("old", "one", "older")).await;
    let claims = restored(&client, "old").await;
    holds(&server, &client, &claims[0], &content).await;
    for name in ["one", "two"] {
        deleted(&client, &format!("{BACKUPS}/{name}")).await;
        is_gone(&client, &format!("{BACKUPS}/{name}")).await;
    }
    eventually("nothing is left", async || {
        let left = get(&client, &format!("{LONGHORN}/backups")).await;
        let volumes = get(&client, &format!("{LONGHORN}/backupvolumes")).await;
        let is_empty = left["items"] == json!([]) && volumes["items"] == json!([]);
        if is_empty { Ok(()) } else { Err(format!("{left} {volumes}")) }
    })
    .await;
}

/// A machine whose disk takes long enough to send that something can happen on the way.
async fn slow_machine(server: &Croft, client: &Client, relay: &Relay, bucket: &Bucket) -> Vec<u8> {
    patched(client, SETTING, &json!({"value": bucket.target(relay.port, bucket.key())})).await;
    is_usable(client).await;
    patched(client, &format!("{LONGHORN}/settings/backup-bandwidth-limit"), &json!({"value": "4Mi"})).await;
    let content = Random::seeded(7).noise(SIZE);
    machine_with(server, client, "web", &content).await;
    made(client, BACKUPS, &backup("one", "web")).await;
    let path = format!("{BACKUPS}/one");
    becomes(client, &path, "on its way", BOOT, |it| it["status"]["progress"].as_i64().is_some_and(|it| it > 0)).await;
    content
}

/// From the target, not from the snapshot that stays here.
async fn comes_back(server: &Croft, content: &[u8]) {
    let dir = tempfile::tempdir().expect("a directory");
    let copy = dir.path().join("copy");
    croft_ok(server, &["backup", "cp", "one:disk", text(&copy)]).await.expect("copied");
    assert!(std::fs::read(copy).expect("a disk") == content);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bucket_that_does_not_answer_is_told_of_and_used_again() {
    let (server, client) = node().await;
    let bucket = Bucket::start();
    let relay = Relay::to(bucket.port()).await;
    let content = slow_machine(&server, &client, &relay, &bucket).await;
    relay.stalls();
    becomes(&client, SETTING, "told of", BOOT, |setting| tells(setting, "does not answer within")).await;
    let health = client.get(HEALTH).await.expect("an answer");
    assert!(health.status == 422 && health.text().contains("does not answer within"), "{}", health.text());
    // One that is asked for now is told at once; one that was on its way waits, and neither says that it is ready.
    made(&client, BACKUPS, &backup("two", "web")).await;
    fails(&client, "two", "does not answer within").await;
    let one = get(&client, &format!("{BACKUPS}/one")).await;
    assert!(one["status"]["readyToUse"] == false && !is_true(&one, "Ready"), "{one}");
    relay.answers(None);
    for name in ["one", "two"] {
        let done = ready(&client, name).await;
        assert!(done["status"]["error"].is_null(), "{done}");
    }
    is_usable(&client).await;
    comes_back(&server, &content).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bucket_that_becomes_full_on_the_way_is_told_of() {
    let (server, client) = node().await;
    let bucket = Bucket::start();
    let relay = Relay::to(bucket.port()).await;
    let content = slow_machine(&server, &client, &relay, &bucket).await;
    relay.refuses(507, "InsufficientStorage");
    fails(&client, "one", "the backup target is full").await;
    becomes(&client, SETTING, "told of", BOOT, |setting| tells(setting, "is full")).await;
    let one = get(&client, &format!("{BACKUPS}/one")).await;
    assert!(!is_true(&one, "Ready") && !is_true(&one, "MetadataReady"), "{one}");
    let name = one["status"]["volumeBackups"][0]["longhornBackupName"].as_str().expect("a name");
    let copy = get(&client, &format!("{LONGHORN}/backups/{name}")).await;
    assert_eq!(copy["status"]["state"], "Error", "{copy}");
    // Others say the same in other words.
    relay.refuses(403, "QuotaExceeded");
    let health = client.get(HEALTH).await.expect("an answer");
    assert!(health.status == 422 && health.text().contains("is full"), "{}", health.text());
    relay.answers(None);
    patched(&client, &format!("{LONGHORN}/settings/backup-bandwidth-limit"), &json!({"value": "0"})).await;
    let done = ready(&client, "one").await;
    assert!(done["status"]["error"].is_null(), "{done}");
    comes_back(&server, &content).await;
}

/// Settings of Longhorn's, through the API: how blocks are packed, and how many go at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn settings_say_how_disks_are_moved() {
    let (server, client) = node().await;
    let bucket = Bucket::start();
    let relay = Relay::to(bucket.port()).await;
    // Nobody else looks at it meanwhile.
    let quiet = bucket
        .target(relay.port, bucket.key())
        .replace("\"refreshIntervalInSeconds\":1", "\"refreshIntervalInSeconds\":0");
    patched(&client, SETTING, &json!({"value": quiet})).await;
    is_usable(&client).await;
    let set = async |name: &str, value: &str| {
        patched(&client, &format!("{LONGHORN}/settings/{name}"), &json!({"value": value})).await;
    };
    let mut random = Random::seeded(8);
    let mut crowds = Vec::new();
    for (name, method, limit) in [("one", "gzip", "1"), ("two", "none", "16"), ("three", "lz4", "16")] {
        for setting in ["backup-concurrent-limit", "restore-concurrent-limit"] {
            set(setting, limit).await;
        }
        set("backup-compression-method", method).await;
        let content = random.noise(SIZE);
        let file = machine_with(&server, &client, name, &content).await;
        relay.answers(None);
        relay.busiest();
        made(&client, BACKUPS, &backup(name, name)).await;
        let done = ready(&client, name).await;
        let sent = relay.busiest();
        let handle = done["status"]["volumeBackups"][0]["longhornBackupName"].as_str().expect("a name");
        let copy = get(&client, &format!("{LONGHORN}/backups/{handle}")).await;
        assert_eq!(copy["status"]["compressionMethod"], method, "{copy}");

        // From the target alone.
        for file in files(&server.data_dir().join("pool/snapshots"), "") {
            std::fs::remove_file(file).expect("removed");
        }
        write(&file, b"later", 0);
        relay.answers(None);
        relay.busiest();
        made(&client, RESTORES, &restore(name, name, &format!("{name}-back"))).await;
        let claims = restored(&client, name).await;
        crowds.push((sent, relay.busiest()));
        holds(&server, &client, &claims[0], &content).await;
    }
    println!("connections there and back: {crowds:?}");
    let [one, many, _] = crowds[..] else { panic!("{crowds:?}") };
    assert!(one.0 < many.0 && one.1 < many.1, "one block at a time needs fewer connections: {crowds:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_target_is_told_of_and_leftovers_go() {
    let (server, client) = node().await;
    let small = SmallDisk::new("2m");
    let dir = small.dir.path();
    set_target(&client, dir).await;
    is_usable(&client).await;
    let content = disk();
    machine_with(&server, &client, "web", &content).await;
    made(&client, BACKUPS, &backup("one", "web")).await;
    fails(&client, "one", "the backup target is full").await;
    small.grow("32m");
    let one = ready(&client, "one").await;
    assert!(one["status"]["error"].is_null(), "{one}");

    // What nobody needs goes when a target is set, and what is needed stays.
    let blocks = files(dir, ".blk");
    let orphan = blocks[0].with_file_name(format!("{}.blk", "0".repeat(64)));
    let half = blocks[0].with_file_name("x.blk.tmp.0123456789abcdef");
    for left in [&orphan, &half] {
        std::fs::write(left, "left").expect("written");
    }
    let value = json!({"type": "directory", "endpoint": format!("file://{}", dir.display())});
    patched(&client, SETTING, &json!({"value": value.to_string()})).await;
    eventually("what was left behind is gone", async || {
        if orphan.exists() || half.exists() { Err(format!("{:?}", files(dir, ""))) } else { Ok(()) }
    })
    .await;
    assert_eq!(files(dir, ".blk").len(), blocks.len());

    deleted(&client, &format!("{BACKUPS}/one")).await;
    is_gone(&client, &format!("{BACKUPS}/one")).await;
    eventually("all is gone", async || {
        let left = files(dir, "");
        if left.is_empty() { Ok(()) } else { Err(format!("{left:?}")) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_export_is_used_without_being_mounted() {
    if is_outside("an_export_is_used_without_being_mounted") {
        return;
    }
    let mut export = Export::start().await;
    let (server, client) = node().await;
    export.set_as_target(&client).await;
    is_usable(&client).await;
    let content = disk();
    let file = machine_with(&server, &client, "web", &content).await;
    made(&client, BACKUPS, &backup("one", "web")).await;
    ready(&client, "one").await;
    assert!(!std::fs::read_to_string("/proc/mounts").expect("mounts").contains(" nfs"), "nothing is mounted");
    write(&file, b"later", 0);

    // One that is gone is waited for.
    export.kill();
    becomes(&client, SETTING, "told of", BOOT, |setting| tells(setting, "cannot be reached")).await;
    made(&client, BACKUPS, &backup("two", "web")).await;
    fails(&client, "two", "cannot be reached").await;
    export.start_again();
    ready(&client, "two").await;
    made(&client, RESTORES, &restore("old", "one", "older")).await;
    let claims = restored(&client, "old").await;
    holds(&server, &client, &claims[0], &content).await;
    for name in ["one", "two"] {
        deleted(&client, &format!("{BACKUPS}/{name}")).await;
        is_gone(&client, &format!("{BACKUPS}/{name}")).await;
    }
    eventually("all is gone", async || {
        let left = files(&export.path, "");
        if left.is_empty() { Ok(()) } else { Err(format!("{left:?}")) }
    })
    .await;
}
