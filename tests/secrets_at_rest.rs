//! Secrets on the disk: nowhere to be read, whatever becomes of the server and its keys.

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Result, ensure};
use base64::{Engine, prelude::BASE64_STANDARD};
use croft_e2e::machines::{croft, croft_ok};
use croft_e2e::seeded::Random;
use croft_e2e::storage::{SECRETS, deleted, made, run};
use croft_store::{Embedded, EmbeddedOptions, Op, Store, Txn};
use croft_testkit::{Client, Croft, Endpoint, StoreKind, eventually, patience};
use serde_json::{Value, json};

const ENCRYPTION: &str = "/croft/v1/encryption";
/// Who owns nothing.
const NOBODY: u32 = 65_534;
const MARKER: &str = "Tr0ub4dor-and-3-horses";
const BACKUPS: &str = "/apis/harvesterhci.io/v1beta1/namespaces/default/virtualmachinebackups";
const COPY: &str = "a-copy-of-what-is-secret";

fn secret(name: &str, value: &str) -> Value {
    json!({"metadata": {"name": name}, "stringData": {"password": value}})
}

async fn value_of(client: &Client, name: &str) -> String {
    let found = client.get(&format!("{SECRETS}/{name}")).await.expect("an answer").ok().expect("it is there");
    let data = found["data"]["password"].as_str().expect("a value");
    String::from_utf8(BASE64_STANDARD.decode(data).expect("base64")).expect("text")
}

/// Files in which the text is, as it is or as Secrets carry it. Base64 has three ways to write it, by where it begins.
fn files_with(dir: &Path, text: &str) -> Vec<String> {
    let mut patterns = vec![text.as_bytes().to_vec()];
    for shift in 0..3 {
        let shifted = format!("{}{text}", &"xxx"[..shift]);
        let code = BASE64_STANDARD.encode(shifted);
        // What depends on neighbours is cut off.
        patterns.push(code.as_bytes()[4..code.len() - 4].to_vec());
    }
    let mut found = Vec::new();
    let mut dirs = vec![dir.to_owned()];
    while let Some(dir) = dirs.pop() {
        for entry in std::fs::read_dir(dir).expect("a directory").flatten() {
            let path = entry.path();
            if path.is_dir() {
                dirs.push(path);
                continue;
            }
            let Ok(content) = std::fs::read(&path) else { continue };
            let has = |pattern: &Vec<u8>| content.windows(pattern.len()).any(|window| window == &pattern[..]);
            if patterns.iter().any(has) {
                found.push(path.display().to_string());
            }
        }
    }
    found
}

async fn status(client: &Client) -> Value {
    client.get(ENCRYPTION).await.expect("an answer").ok().expect("the state of the keys")
}

/// Waits until all is encrypted with one key, and tells which.
async fn settled(client: &Client) -> String {
    eventually("everything is encrypted with one key", async || -> Result<String> {
        let status = client.get(ENCRYPTION).await?.ok()?;
        let keys = status["keys"].as_array().cloned().unwrap_or_default();
        ensure!(status["isSettled"] == true && keys.len() == 1 && status["plain"] == 0, "{status}");
        Ok(keys[0]["id"].as_str().unwrap_or_default().to_owned())
    })
    .await
}

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).expect("a file").permissions().mode() & 0o777
}

/// What the server complains of instead of starting.
async fn refusal(server: &mut Croft) -> String {
    format!("{:#}", server.restart().await.expect_err("it does not start"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_on_the_disk_tells_a_secret() {
    let mut server = Croft::start(StoreKind::Embedded).await.expect("the server starts");
    let client = server.client().expect("a client");
    let dir = server.data_dir().to_owned();
    let key_file = dir.join("encryption.key");
    assert_eq!(mode(&key_file), 0o600);
    made(&client, SECRETS, &secret("one", MARKER)).await;
    assert_eq!(value_of(&client, "one").await, MARKER);
    assert_eq!(files_with(&dir, MARKER), Vec::<String>::new());
    // The search can find something.
    made(
        &client,
        "/api/v1/namespaces/default/configmaps",
        &json!({"metadata": {"name": "m"}, "data": {"k": "a-plain-horse"}}),
    )
    .await;
    assert!(!files_with(&dir, "a-plain-horse").is_empty());

    // For administrators alone.
    assert_eq!(server.anonymous().expect("a client").get(ENCRYPTION).await.expect("an answer").status, 403);
    let told = status(&client).await;
    let kinds = json!(["secrets", "virtualmachinebackups.harvesterhci.io"]);
    assert_eq!((&told["resources"], &told["isSettled"]), (&kinds, &json!(true)), "{told}");
    assert!(!told.to_string().contains("secret\":"), "{told}");
    let first = settled(&client).await;

    // Under load, with the command that people use.
    let stop = Arc::new(AtomicBool::new(false));
    let writer = {
        let (client, stop) = (server.client().expect("a client"), Arc::clone(&stop));
        tokio::spawn(async move {
            let mut last = 0;
            made(&client, SECRETS, &secret("busy", "0")).await;
            while !stop.load(Ordering::Relaxed) {
                let next = json!({"stringData": {"password": (last + 1).to_string()}});
                let path = format!("{SECRETS}/busy");
                client.patch(&path, "merge-patch", &next).await.expect("an answer").ok().expect("patched");
                last += 1;
            }
            last
        })
    };
    for at in 0..100 {
        made(&client, SECRETS, &secret(&format!("s{at}"), &format!("{MARKER}-{at}"))).await;
    }
    let said = croft_ok(&server, &["secrets", "rotate"]).await.expect("rotated");
    assert!(said.contains("in use") && !said.contains("being replaced"), "{said}");
    stop.store(true, Ordering::Relaxed);
    let last: u32 = writer.await.expect("it writes");
    let second = settled(&client).await;
    assert_ne!(first, second);
    let file = std::fs::read_to_string(&key_file).expect("the key file");
    assert!(file.contains(&second) && !file.contains(&first), "the old key is dropped");
    assert_eq!((last > 0, value_of(&client, "busy").await), (true, last.to_string()));

    // Started again, it reads what it wrote; nothing was left in the log, and the memory is not for others.
    server.restart().await.expect("it starts");
    let client = server.client().expect("a client");
    assert_eq!(value_of(&client, "s99").await, format!("{MARKER}-99"));
    assert_eq!(files_with(&dir, MARKER), Vec::<String>::new());
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", server.process().id())).expect("its limits");
    let core = limits.lines().find(|line| line.starts_with("Max core file size")).expect("a limit");
    assert_eq!(core.split_whitespace().skip(4).take(2).collect::<Vec<_>>(), ["0", "0"], "{core}");
    // Nor is that of a command that has them in its hands: this one waits for its file.
    let place = tempfile::tempdir().expect("a directory");
    let pipe = place.path().join("pipe");
    run("mkfifo", &[pipe.to_str().expect("a path")]).expect("a pipe");
    // Others need not be let into the place that it was built in.
    let program = place.path().join("croft");
    std::fs::copy(croft_testkit::binary().expect("the program"), &program).expect("copied");
    let mut command = tokio::process::Command::new(&program);
    command.args(["state", "inspect"]).arg(&pipe).kill_on_drop(true);
    if std::fs::metadata(&pipe).expect("a pipe").uid() == 0 {
        // Of what is root's anyway nothing can be told.
        for path in [place.path(), &pipe] {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).expect("changed");
        }
        command.uid(NOBODY).gid(NOBODY);
    }
    let child = command.spawn().expect("it runs");
    let limits = format!("/proc/{}/limits", child.id().expect("it runs"));
    eventually("it leaves no core, and nobody looks into its memory", async || -> Result<()> {
        // The files of a process that cannot be dumped are root's, whoever runs it.
        ensure!(std::fs::metadata(&limits)?.uid() == 0, "its memory can be read by other processes of its user");
        let limits = std::fs::read_to_string(&limits)?;
        let core = limits.lines().find(|line| line.starts_with("Max core file size")).unwrap_or_default();
        ensure!(core.split_whitespace().skip(4).take(2).eq(["0", "0"]), "{core}");
        Ok(())
    })
    .await;
    drop(child);
    let metrics = client.get("/metrics").await.expect("an answer").text();
    assert!(metrics.contains("apiserver_storage_transformation_operations_total{status=\"OK\""), "{metrics}");

    a_saved_state_needs_no_key(&mut server, &dir).await;
}

/// The machine is gone, and its keys with it.
async fn a_saved_state_needs_no_key(server: &mut Croft, dir: &Path) {
    let place = tempfile::tempdir().expect("a directory");
    let file = place.path().join("state.gz");
    let file = file.to_str().expect("a path");
    croft_ok(server, &["state", "save", file]).await.expect("saved");
    let about = croft_ok(server, &["state", "inspect", file, "-o", "json"]).await.expect("JSON");
    assert!(!about.contains("encryption.key"), "{about}");
    let client = server.client().expect("a client");
    let before = settled(&client).await;
    server.kill().expect("killed");
    for entry in std::fs::read_dir(dir).expect("the data directory").flatten() {
        let path = entry.path();
        let removed = if path.is_dir() { std::fs::remove_dir_all(&path) } else { std::fs::remove_file(&path) };
        removed.expect("removed");
    }
    croft_ok(server, &["state", "restore", file, "--data-dir", dir.to_str().expect("a path")]).await.expect("restored");
    assert_eq!(files_with(dir, MARKER), Vec::<String>::new(), "encrypted from the first moment on");
    assert_eq!(mode(&dir.join("encryption.key")), 0o600);
    server.restart().await.expect("it starts");
    let client = server.client().expect("a client");
    assert_eq!(value_of(&client, "s7").await, format!("{MARKER}-7"));
    assert_ne!(settled(&client).await, before, "with a key of its own");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn etcd_sees_nothing_and_every_server_needs_the_keys() {
    let mut server = Croft::start(StoreKind::Etcd).await.expect("the server starts");
    let client = server.client().expect("a client");
    made(&client, SECRETS, &secret("one", MARKER)).await;
    let first = settled(&client).await;
    croft_ok(&server, &["secrets", "rotate"]).await.expect("rotated");
    assert_ne!(settled(&client).await, first);
    assert_eq!(value_of(&client, "one").await, MARKER);
    let (files, url) = {
        let etcd = server.etcd().expect("etcd");
        (etcd.data_dir().to_owned(), etcd.url.clone())
    };
    assert_eq!(files_with(&files, MARKER), Vec::<String>::new());

    // Another server on the same etcd.
    let other = tempfile::tempdir().expect("a directory");
    let start = |log: &str| {
        let mut command = tokio::process::Command::new(croft_testkit::binary().expect("the program"));
        command.args(["server", "--no-node", "--listen=127.0.0.1:0", "--store=etcd", "--etcd-endpoints", &url]);
        command.arg("--data-dir").arg(other.path()).arg(format!("--log-format={log}")).kill_on_drop(true);
        command
    };
    let refused = tokio::time::timeout(Duration::from_mins(1), start("human").output()).await.expect("in time");
    let said = String::from_utf8_lossy(&refused.expect("it runs").stderr).into_owned();
    assert!(said.contains("is not there, but the store has values that are encrypted with the key"), "{said}");
    std::fs::copy(server.data_dir().join("encryption.key"), other.path().join("encryption.key")).expect("copied");
    let running = start("json").stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null()).spawn();
    let running = running.expect("it runs");
    let kubeconfig = other.path().join("kubeconfig");
    let second = eventually("the second server answers", async || -> Result<Client> {
        let client = croft_testkit::Endpoint::from_kubeconfig(&kubeconfig)?.client()?;
        client.get(&format!("{SECRETS}/one")).await?.ok()?;
        Ok(client)
    })
    .await;
    assert_eq!(value_of(&second, "one").await, MARKER);
    drop(running);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_stored_plain_is_encrypted_and_back() {
    let place = tempfile::tempdir().expect("a directory");
    let config = place.path().join("croft.yaml");
    std::fs::write(&config, "encrypt-resources: none\n").expect("the file is written");
    let option = format!("--config={}", config.display());
    let mut server = Croft::start_with(StoreKind::Embedded, &[&option]).await.expect("the server starts");
    let client = server.client().expect("a client");
    let dir = server.data_dir().to_owned();
    for at in 0..60 {
        made(&client, SECRETS, &secret(&format!("s{at}"), MARKER)).await;
    }
    deleted(&client, &format!("{SECRETS}/s59")).await;
    assert!(!dir.join("encryption.key").exists() && !files_with(&dir, MARKER).is_empty());
    let answer = client.post(&format!("{ENCRYPTION}/rotate"), &json!({})).await.expect("an answer");
    assert_eq!(answer.status, 409, "{}", answer.text());

    server.kill().expect("killed");
    // What backups of machines have of Secrets is no less one.
    let copies = json!([{"name": "s", "data": {"k": BASE64_STANDARD.encode(COPY)}}]);
    let backup = json!({"apiVersion": "harvesterhci.io/v1beta1", "kind": "VirtualMachineBackup",
        "metadata": {"name": "b", "namespace": "default", "uid": "1ad26d0c-0c9c-4d52-a1f4-56a3a3f6b7c1",
        "creationTimestamp": "2026-01-01T00:00:00Z"}, "spec": {"type": "backup", "source": {"apiGroup": "kubevirt.io",
        "kind": "VirtualMachine", "name": "gone"}}, "status": {"readyToUse": true, "secretBackups": copies}});
    raw(&server, async |store| {
        let (key, value) = ("registry/harvesterhci.io/virtualmachinebackups/default/b".to_owned(), backup.to_string());
        let ops = vec![Op::Put { key, value: value.into(), lease: None }];
        store.txn(Txn { compare: Vec::new(), ops }).await.expect("written");
    })
    .await;
    assert!(!files_with(&dir, COPY).is_empty());

    std::fs::write(&config, "encrypt-resources: [secrets, configmaps]\n").expect("the file is written");
    server.restart().await.expect("it starts");
    let client = server.client().expect("a client");
    settled(&client).await;
    assert_eq!(value_of(&client, "s7").await, MARKER);
    let found = client.get(&format!("{BACKUPS}/b")).await.expect("an answer").ok().expect("it is there");
    assert_eq!(found["status"]["secretBackups"], copies, "{found}");
    eventually("nothing is left of it", async || -> Result<()> {
        let found = [files_with(&dir, MARKER), files_with(&dir, COPY)].concat();
        ensure!(found.is_empty(), "{found:?}");
        Ok(())
    })
    .await;

    std::fs::write(&config, "encrypt-resources: none\n").expect("the file is written");
    server.restart().await.expect("it starts");
    let client = server.client().expect("a client");
    eventually("all is plain again", async || -> Result<()> {
        let status = client.get(ENCRYPTION).await?.ok()?;
        ensure!(status["isSettled"] == true && status["plain"] == 0, "{status}");
        Ok(())
    })
    .await;
    assert_eq!(value_of(&client, "s7").await, MARKER);
    assert!(!files_with(&dir.join("store"), MARKER).is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rotation_survives_being_killed_at_any_moment() {
    let mut random = Random::seeded(0x5eed_5ec2);
    let mut server = Croft::start(StoreKind::Embedded).await.expect("the server starts");
    let client = server.client().expect("a client");
    for at in 0..150 {
        made(&client, SECRETS, &secret(&format!("s{at}"), &format!("value-{at}"))).await;
    }
    let mut key = settled(&client).await;
    for round in 0..8 {
        let client = server.client().expect("a client");
        let before = key.clone();
        let asked = tokio::spawn(async move {
            // It may well be killed before it answers.
            let _ = client.post(&format!("{ENCRYPTION}/rotate"), &json!({})).await;
        });
        random.moment(Duration::from_millis(60)).await;
        server.kill().expect("killed");
        asked.await.expect("it ends");
        server.restart().await.unwrap_or_else(|err| panic!("round {round}: {err:#}"));
        let client = server.client().expect("a client");
        key = settled(&client).await;
        let told = status(&client).await;
        assert_eq!(told["unreadableCount"], 0, "round {round}: {told}");
        let list = client.get(SECRETS).await.expect("an answer").ok().expect("a list");
        let ours =
            list["items"].as_array().expect("items").iter().filter(|secret| secret["data"]["password"].is_string());
        assert_eq!(ours.count(), 150, "round {round}");
        assert_eq!(value_of(&client, "s149").await, "value-149", "round {round}");
        println!("round {round}: {before} became {key}");
    }
}

/// Looks into the store of a server that is not running.
async fn raw(server: &Croft, change: impl AsyncFnOnce(&dyn Store)) {
    let store = Embedded::open(&server.data_dir().join("store"), EmbeddedOptions::default()).expect("the store opens");
    change(&*store).await;
    store.close().await.expect("closed");
}

async fn put(store: &dyn Store, name: &str, value: impl Into<bytes::Bytes>) {
    let key = format!("registry/core/secrets/default/{name}");
    let ops = vec![Op::Put { key, value: value.into(), lease: None }];
    store.txn(Txn { compare: Vec::new(), ops }).await.expect("written");
}

async fn get(store: &dyn Store, name: &str) -> bytes::Bytes {
    let key = format!("registry/core/secrets/default/{name}");
    store.get(&key).await.expect("read").expect("it is there").value
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_read_is_said_clearly_and_stops_nothing_else() {
    let mut server = Croft::start(StoreKind::Embedded).await.expect("the server starts");
    let client = server.client().expect("a client");
    for name in ["good", "moved", "damaged"] {
        made(&client, SECRETS, &secret(name, name)).await;
    }
    server.terminate(patience()).await.expect("it ends");
    raw(&server, async |store| {
        put(store, "elsewhere", get(store, "moved").await).await;
        let mut bytes = get(store, "damaged").await.to_vec();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 0x20;
        put(store, "damaged", bytes).await;
    })
    .await;
    server.restart().await.expect("it starts");
    let client = server.client().expect("a client");
    assert_eq!((value_of(&client, "good").await, value_of(&client, "moved").await), ("good".into(), "moved".into()));
    for name in ["elsewhere", "damaged"] {
        let answer = client.get(&format!("{SECRETS}/{name}")).await.expect("an answer");
        assert_eq!(answer.status, 500);
        assert!(answer.text().contains("was damaged, or moved here from another name"), "{}", answer.text());
        let taken = client.post(SECRETS, &secret(name, "x")).await.expect("an answer");
        assert_eq!(taken.status, 500, "the name is taken: {}", taken.text());
    }
    let list = client.get(SECRETS).await.expect("an answer");
    assert!(list.header("warning").is_some_and(|text| text.contains("default/damaged")), "{:?}", list.headers);
    let names: Vec<String> =
        list.json()["items"].as_array().expect("items").iter().map(|s| s["metadata"]["name"].to_string()).collect();
    assert!(names.contains(&"\"good\"".to_owned()) && !names.contains(&"\"damaged\"".to_owned()), "{names:?}");
    let said = croft_ok(&server, &["secrets", "status"]).await.expect("told");
    assert!(said.contains("2 cannot be read") && said.contains("secrets default/damaged"), "{said}");

    // A saved state says what it lacks.
    let place = tempfile::tempdir().expect("a directory");
    let file = place.path().join("state.gz");
    let file = file.to_str().expect("a path");
    let saved = croft(&server, &["state", "save", file]).await.expect("it runs");
    let why = String::from_utf8_lossy(&saved.stderr).into_owned();
    assert!(!saved.status.success() && why.contains("2 objects could not be read and are not in it"), "{why}");
    let about = croft_ok(&server, &["state", "inspect", file, "-o", "json"]).await.expect("it is kept");
    assert!(about.contains("\"unreadable\": 2"), "{about}");

    // Away with them, for those who say that they mean it.
    let path = |name: &str| format!("{SECRETS}/{name}?ignoreStoreReadErrorWithClusterBreakingPotential=true");
    assert_eq!(client.delete(&format!("{SECRETS}/damaged")).await.expect("an answer").status, 500);
    for name in ["elsewhere", "damaged"] {
        deleted(&client, &path(name)).await;
        made(&client, SECRETS, &secret(name, "again")).await;
    }
    assert_eq!(value_of(&client, "damaged").await, "again");
    keys_are_needed(&mut server).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_nobody_can_tell_what_was_revoked_nothing_of_before_is_good() {
    const LIST: &str = "/api/v1/namespaces/kube-system/secrets/revoked-credentials";
    let mut server = Croft::start(StoreKind::Embedded).await.expect("the server starts");
    let before = Endpoint::from_kubeconfig(&server.kubeconfig).expect("a kubeconfig");
    let dir = server.data_dir().display().to_string();
    let token = ["token", "create", "--service-account", "default/default", "--data-dir", &dir];
    let tokens = [croft_ok(&server, &token).await.expect("made"), croft_ok(&server, &token).await.expect("made")];
    let revoked = ["token", "revoke", tokens[0].trim(), "--data-dir", &dir];
    croft_ok(&server, &revoked).await.expect("revoked");
    // Without any right to what it asks for.
    let status = async |server: &Croft, token: &str| {
        let client = server.bearer(token.trim()).expect("a client");
        client.get(SECRETS).await.expect("an answer").status
    };
    assert_eq!((status(&server, &tokens[0]).await, status(&server, &tokens[1]).await), (401, 403));
    server.terminate(patience()).await.expect("it ends");
    raw(&server, async |store| {
        let key = "registry/core/secrets/kube-system/revoked-credentials";
        let mut bytes = store.get(key).await.expect("read").expect("it is there").value.to_vec();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 0x20;
        let ops = vec![Op::Put { key: key.to_owned(), value: bytes.into(), lease: None }];
        store.txn(Txn { compare: Vec::new(), ops }).await.expect("written");
    })
    .await;
    server.restart().await.expect("it starts");
    assert_eq!((status(&server, &tokens[0]).await, status(&server, &tokens[1]).await), (401, 401));
    // The administrator has got another certificate.
    let now = Endpoint::from_kubeconfig(&server.kubeconfig).expect("a kubeconfig");
    let old = Endpoint { url: now.url.clone(), ..before };
    assert_eq!(old.client().expect("a client").get(SECRETS).await.expect("an answer").status, 401);
    let admin = now.client().expect("a client");
    assert_eq!(admin.get(SECRETS).await.expect("an answer").status, 200);
    let new = croft_ok(&server, &token).await.expect("made");
    assert_eq!(status(&server, &new).await, 403, "what is made now is good");
    deleted(&admin, &format!("{LIST}?ignoreStoreReadErrorWithClusterBreakingPotential=true")).await;
    assert_eq!(status(&server, &tokens[1]).await, 403);
}

/// Files that are missing, open to others, or others.
async fn keys_are_needed(server: &mut Croft) {
    let file = server.data_dir().join("encryption.key");
    let kept = server.data_dir().join("kept.key");
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).expect("changed");
    let said = refusal(server).await;
    assert!(said.contains("can be read by others") && said.contains("chmod 600"), "{said}");
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).expect("changed");
    std::fs::rename(&file, &kept).expect("moved");
    let said = refusal(server).await;
    assert!(said.contains("is not there, but the store has values") && said.contains("install -m 600"), "{said}");

    // Another key: all that is not secret is served, and new Secrets are made.
    std::fs::write(&file, "").expect("written");
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).expect("changed");
    server.restart().await.expect("it starts");
    let client = server.client().expect("a client");
    let answer = client.get(&format!("{SECRETS}/good")).await.expect("an answer");
    assert!(answer.status == 500 && answer.text().contains("which is not in the key file"), "{}", answer.text());
    client.get("/api/v1/namespaces").await.expect("an answer").ok().expect("served");
    made(&client, SECRETS, &secret("new", "new")).await;
    assert_eq!(value_of(&client, "new").await, "new");

    // Nothing was lost meanwhile.
    std::fs::rename(&kept, &file).expect("moved");
    server.restart().await.expect("it starts");
    let client = server.client().expect("a client");
    assert_eq!(value_of(&client, "good").await, "good");
    let wrong = croft(server, &["secrets", "rotate", "--kubeconfig", "/nonexistent"]).await.expect("it runs");
    assert!(!wrong.status.success(), "no server can be asked");
}
