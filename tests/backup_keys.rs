//! Backups that are encrypted, and those that go when there are newer ones.

use croft_e2e::kept::{
    BACKUPS, RESTORES, backup, files, get, holds, is_usable, machine_with, ready, restore, restored, set_target, write,
};
use croft_e2e::machines::{BOOT, MACHINES, becomes, condition, croft_ok, is_gone, node};
use croft_e2e::storage::{deleted, disk, made, patched};
use croft_testkit::{Client, eventually};
use serde_json::{Value, json};

const KEYS: &str = "/api/v1/namespaces/longhorn-system/secrets";
const SECRETS: &str = "/api/v1/namespaces/default/secrets";
const KEY: &str = "thirty-two bytes or more of a key";

async fn set_key(client: &Client, entry: &str, key: &str) {
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "croft-backup-encryption"},
        "stringData": {entry: key}});
    made(client, KEYS, &secret).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_who_has_the_key_can_read_a_backup() {
    let (server, client) = node().await;
    let dir = tempfile::tempdir().expect("a directory");
    set_target(&client, dir.path()).await;
    is_usable(&client).await;
    // One that is too short is told of, and nothing is sent in the clear.
    set_key(&client, "CRYPTO_KEY_VALUE", "short").await;
    let mut content = disk();
    let plain = b"plain text that nobody is to read";
    content[..plain.len()].copy_from_slice(plain);
    machine_with(&server, &client, "web", &content).await;
    let seed =
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "seed"}, "stringData": {"userdata": "hush"}});
    made(&client, SECRETS, &seed).await;
    let volume = json!({"name": "seed", "cloudInitNoCloud": {"secretRef": {"name": "seed"}}});
    let change = json!([
        {"op": "add", "path": "/spec/template/spec/volumes/-", "value": volume},
        {"op": "add", "path": "/spec/template/spec/domain/devices/disks/-",
            "value": {"name": "seed", "disk": {"bus": "virtio"}}},
    ]);
    let path = format!("{MACHINES}/web");
    client.patch(&path, "json-patch", &change).await.expect("an answer").ok().expect("changed");
    made(&client, BACKUPS, &backup("one", "web")).await;
    let is_told = |it: &Value| {
        it["status"]["error"]["message"].as_str().is_some_and(|why| why.contains("croft-backup-encryption"))
    };
    becomes(&client, &format!("{BACKUPS}/one"), "without a key that does", BOOT, is_told).await;
    assert!(files(dir.path(), "").is_empty(), "{:?}", files(dir.path(), ""));
    deleted(&client, &format!("{KEYS}/croft-backup-encryption")).await;
    set_key(&client, "CRYPTO_KEY_VALUE", KEY).await;
    ready(&client, "one").await;
    for file in files(dir.path(), "") {
        let text = std::fs::read(&file).expect("a file");
        let has = |what: &[u8]| text.windows(what.len()).any(|part| part == what);
        assert!(!has(plain) && !has(b"aHVzaA=="), "{}", file.display());
    }
    let list = files(dir.path(), ".cfg").into_iter().find(|path| path.to_string_lossy().contains("/backup_"));
    let list: Value = serde_json::from_slice(&std::fs::read(list.expect("a list")).expect("a file")).expect("JSON");
    assert_eq!(list["CompressionMethod"], "croft-aes256gcm+lz4", "{}", list["CompressionMethod"]);

    // The command has the cluster's keys.
    let checked = croft_ok(&server, &["backup", "verify", "one"]).await.unwrap_or_else(|err| panic!("{err:#}"));
    assert!(checked.contains("one"), "{checked}");

    // Another cluster shows it, and restores it when it has the key, even if it encrypts with another.
    let (other, there) = node().await;
    set_key(&there, "CRYPTO_KEY_VALUE", "another key, which is long enough too").await;
    set_target(&there, dir.path()).await;
    is_usable(&there).await;
    let is_sealed = |it: &Value| {
        condition(it, "MetadataReady").is_some_and(|it| it["reason"] == "KeyNeeded" && it["status"] == "False")
    };
    becomes(&there, &format!("{BACKUPS}/one"), "without its secrets", BOOT, is_sealed).await;
    let refused = croft_ok(&other, &["backup", "verify", "one"]).await.expect_err("it has another key");
    assert!(format!("{refused:#}").contains("and this is key"), "{refused:#}");
    made(&there, RESTORES, &restore("moved", "one", "moved")).await;
    let is_refused = |it: &Value| {
        condition(it, "Ready").is_some_and(|it| {
            it["reason"] == "Error" && it["message"].as_str().is_some_and(|why| why.contains("key that is not here"))
        })
    };
    becomes(&there, &format!("{RESTORES}/moved"), "refused", BOOT, is_refused).await;
    patched(&there, &format!("{KEYS}/croft-backup-encryption"), &json!({"stringData": {"of-the-other": KEY}})).await;
    let claims = restored(&there, "moved").await;
    holds(&other, &there, &claims[0], &content).await;
    assert_eq!(get(&there, &format!("{SECRETS}/moved-seed")).await["data"]["userdata"], "aHVzaA==");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_machine_says_how_many_backups_it_keeps() {
    let (server, client) = node().await;
    let dir = tempfile::tempdir().expect("a directory");
    set_target(&client, dir.path()).await;
    is_usable(&client).await;
    let file = machine_with(&server, &client, "web", &disk()).await;
    for name in ["one", "two"] {
        made(&client, BACKUPS, &backup(name, "web")).await;
        ready(&client, name).await;
        write(&file, name.as_bytes(), 0);
    }
    patched(&client, &format!("{BACKUPS}/one"), &json!({"metadata": {"annotations": {"croft.io/keep": "true"}}})).await;
    let annotated = |count: &str| json!({"metadata": {"annotations": {"croft.io/keep-backups": count}}});
    patched(&client, &format!("{MACHINES}/web"), &annotated("1")).await;
    // The newest stays, and so does what is to be kept. Which one that is, is told in seconds.
    let second = || std::time::UNIX_EPOCH.elapsed().expect("a clock").as_secs();
    let before = second();
    eventually("the next second", async || if second() > before { Ok(()) } else { Err("not yet") }).await;
    made(&client, BACKUPS, &backup("three", "web")).await;
    is_gone(&client, &format!("{BACKUPS}/two")).await;
    ready(&client, "three").await;
    get(&client, &format!("{BACKUPS}/one")).await;
    patched(&client, &format!("{BACKUPS}/one"), &json!({"metadata": {"annotations": {"croft.io/keep": null}}})).await;
    is_gone(&client, &format!("{BACKUPS}/one")).await;
    assert_eq!(get(&client, &format!("{BACKUPS}/three")).await["status"]["readyToUse"], true);
}
