//! The life of the store: states that the server saves by itself, and a move from one store to the other.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Output, Stdio};
use std::time::Duration;

use croft_e2e::machines::croft_ok;
use croft_e2e::storage::made;
use croft_store::embedded::DirLock;
use croft_store::{Embedded, EmbeddedOptions, EtcdOptions, Gate, Op, Passage, Store, Txn};
use croft_testkit::{Client, Croft, Etcd, StoreKind, eventually, patience};
use serde_json::{Value, json};
use tokio::process::Command;

const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/croft-state-schedule";
const ANNOTATION: &str = "croft.io/state-schedule";
const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
const SECRETS: &str = "/api/v1/namespaces/default/secrets";
const EVENTS: &str = "/api/v1/namespaces/default/events";

fn text(path: &Path) -> &str {
    path.to_str().expect("a path")
}

async fn got(client: &Client, path: &str) -> Value {
    client.get(path).await.expect("an answer").ok().unwrap_or_else(|err| panic!("{path}: {err:#}"))
}

async fn schedule(server: &Croft) -> Value {
    let told = croft_ok(server, &["state", "schedule", "-o", "json"]).await.unwrap_or_else(|err| panic!("{err:#}"));
    serde_json::from_str(&told).expect("JSON")
}

/// As if the last attempt had been years ago.
async fn make_due(client: &Client) {
    let lease = got(client, LEASE).await;
    let mut told: Value =
        serde_json::from_str(lease["metadata"]["annotations"][ANNOTATION].as_str().expect("told")).expect("JSON");
    for field in ["since", "lastAttempt"] {
        told[field] = json!("2020-01-01T00:00:00Z");
    }
    let patch = json!({"metadata": {"annotations": {ANNOTATION: told.to_string()}}});
    let patched = client.patch(LEASE, "merge-patch", &patch).await.expect("an answer");
    assert_eq!(patched.status, 200, "{}", patched.text());
}

async fn saved_after(server: &Croft, before: Value) -> Value {
    eventually("a state is saved", async || {
        let told = schedule(server).await;
        let saved = told["lastSuccess"].clone();
        if saved.is_object() && saved != before { Ok(told) } else { Err(told.to_string()) }
    })
    .await
}

/// How an object is deleted that nobody can read.
fn unreadable(name: &str) -> String {
    format!("{SECRETS}/{name}?ignoreStoreReadErrorWithClusterBreakingPotential=true")
}

fn states(target: &Path, cluster: &str) -> Vec<String> {
    let Ok(found) = std::fs::read_dir(target.join("croft/states").join(cluster)) else { return Vec::new() };
    let mut names: Vec<String> =
        found.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn states_are_saved_on_a_schedule_and_only_good_ones_are_kept() {
    let place = tempfile::tempdir().expect("a directory");
    let target = place.path().join("states");
    std::fs::create_dir(&target).expect("a directory");
    let args = ["--state-schedule", "0 0 1 1 *", "--state-keep", "2", "--state-target", text(&target)];
    let mut server = Croft::start_with(StoreKind::Embedded, &args).await.expect("the server starts");
    let client = server.client().expect("a client");
    eventually("the schedule is followed", async || match schedule(&server).await["cron"].as_str() {
        Some("0 0 1 1 *") => Ok(()),
        other => Err(format!("{other:?}")),
    })
    .await;
    assert_eq!(schedule(&server).await["lastSuccess"], Value::Null, "a new schedule has missed nothing");
    let cluster =
        got(&client, "/api/v1/namespaces/kube-system").await["metadata"]["uid"].as_str().expect("a uid").to_owned();

    // What somebody began long ago and never finished goes.
    let left = target.join("croft/states").join(&cluster).join("20200101t000000z");
    std::fs::create_dir_all(&left).expect("a directory");
    std::fs::write(left.join("part-00000"), b"half").expect("a file");

    // Down for years: one is made up for, at once, and not one for each year.
    make_due(&client).await;
    server.kill().expect("killed");
    // What a version that made them on the disk was killed at.
    let saving = server.data_dir().join("state.saving");
    std::fs::create_dir(&saving).expect("a directory");
    std::fs::write(saving.join("state"), b"all Secrets").expect("a file");
    server.restart().await.expect("it starts");
    assert!(!saving.exists());
    let client = server.client().expect("a client");
    let first = saved_after(&server, Value::Null).await;
    assert!(first["lastSuccess"]["objects"].as_u64().is_some_and(|count| count > 50), "{first}");
    assert!(first["next"].as_str().is_some_and(|next| next > "2026"), "{first}");
    assert_eq!(states(&target, &cluster), [first["lastSuccess"]["name"].as_str().expect("a name")]);
    let metrics = client.get("/metrics").await.expect("an answer").text();
    assert!(metrics.contains("croft_saved_state_failures_total 0"), "{metrics}");
    let size = first["lastSuccess"]["size"].to_string();
    assert!(metrics.contains(&format!("croft_saved_state_last_success_size_bytes {size}\n")), "{size}");

    // A target that is away is told of, in every place that somebody may look at, and nothing is lost by it.
    let away = place.path().join("away");
    std::fs::rename(&target, &away).expect("moved");
    make_due(&client).await;
    eventually("a failure is told", async || {
        let told = schedule(&server).await;
        if told["failuresInARow"] == 1 { Ok(()) } else { Err(told.to_string()) }
    })
    .await;
    let told = croft_ok(&server, &["state", "schedule"]).await.unwrap_or_else(|err| panic!("{err:#}"));
    assert!(told.contains("last error") && told.contains("does not exist"), "{told}");
    eventually("an event is told", async || {
        let events = got(&client, "/api/v1/namespaces/kube-system/events?fieldSelector=reason=StateNotSaved").await;
        if events["items"].as_array().is_some_and(|items| items.len() == 1) { Ok(()) } else { Err(events.to_string()) }
    })
    .await;
    let metrics = client.get("/metrics").await.expect("an answer").text();
    assert!(metrics.contains("croft_saved_state_failures_total 1"), "{metrics}");
    std::fs::rename(&away, &target).expect("moved back");

    // Two more; the second of all is damaged, and takes nobody's place.
    make_due(&client).await;
    let second = saved_after(&server, first["lastSuccess"].clone()).await;
    assert_eq!(second["failuresInARow"], 0, "{second}");
    let name = second["lastSuccess"]["name"].as_str().expect("a name");
    std::fs::write(target.join("croft/states").join(&cluster).join(name).join("part-00000"), b"rot").expect("a file");
    make_due(&client).await;
    let third = saved_after(&server, second["lastSuccess"].clone()).await;
    assert_eq!(states(&target, &cluster).len(), 3, "the first is still needed");
    make_due(&client).await;
    let fourth = saved_after(&server, third["lastSuccess"].clone()).await;
    let names = [&third, &fourth].map(|told| told["lastSuccess"]["name"].as_str().expect("a name").to_owned());
    eventually("what is older goes", async || {
        let found = states(&target, &cluster);
        if found == names { Ok(()) } else { Err(format!("{found:?}")) }
    })
    .await;

    // One that lacks something is kept and told of, and nothing older goes for it.
    made(&client, SECRETS, &json!({"metadata": {"name": "s"}, "stringData": {"k": "v"}})).await;
    server.terminate(patience()).await.expect("it ends");
    let store = Embedded::open(&server.data_dir().join("store"), EmbeddedOptions::default()).expect("a store");
    let sealed = store.get("registry/core/secrets/default/s").await.expect("read").expect("it is there").value;
    let key = "registry/core/secrets/default/elsewhere".to_owned();
    let ops = vec![Op::Put { key, value: sealed, lease: None }];
    store.txn(Txn { compare: Vec::new(), ops }).await.expect("written");
    store.close().await.expect("closed");
    server.restart().await.expect("it starts");
    let client = server.client().expect("a client");
    for failures in [1, 2] {
        make_due(&client).await;
        let told = eventually("what is missing is told", async || {
            let told = schedule(&server).await;
            if told["failuresInARow"] == failures { Ok(told) } else { Err(told.to_string()) }
        })
        .await;
        let why = told["lastError"]["message"].as_str().expect("why");
        assert!(why.contains("1 objects could not be read and are not in it"), "{why}");
        let found = states(&target, &cluster);
        assert_eq!((found.len(), &found[..2]), (3, &names[..]), "one that lacks it, and both that do not");
    }
    client.delete(&unreadable("elsewhere")).await.expect("an answer").ok().expect("deleted");
    make_due(&client).await;
    let mended = saved_after(&server, fourth["lastSuccess"].clone()).await;
    let last = mended["lastSuccess"]["name"].as_str().expect("a name").to_owned();
    eventually("only what has everything stays", async || {
        let found = states(&target, &cluster);
        if found == [names[1].clone(), last.clone()] { Ok(()) } else { Err(format!("{found:?}")) }
    })
    .await;

    // And one of them is good for what it is there for.
    let dir = place.path().join("new");
    let url = format!("file://{}", target.display());
    let restore = ["state", "restore", "--target", &url, "--data-dir", text(&dir)];
    croft_ok(&server, &restore).await.unwrap_or_else(|err| panic!("{err:#}"));
    assert!(dir.join("store/store.db").exists());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_another_is_ahead_of_leaves_the_schedule_to_it() {
    let target = tempfile::tempdir().expect("a directory");
    let args = ["--state-schedule", "@yearly", "--state-target", text(target.path())];
    let mut server = Croft::start_with(StoreKind::Embedded, &args).await.expect("the server starts");
    let client = server.client().expect("a client");
    eventually("the schedule is followed", async || match schedule(&server).await["cron"].as_str() {
        Some(_) => Ok(()),
        None => Err("not yet"),
    })
    .await;
    // It was renewed a moment ago, when the schedule was written down.
    let taken = json!({"spec": {"holderIdentity": "another"}});
    let held = client.patch(LEASE, "merge-patch", &taken).await;
    assert_eq!(held.expect("an answer").status, 200);
    make_due(&client).await;
    server.kill().expect("killed");
    server.restart().await.expect("it starts");
    let client = server.client().expect("a client");
    assert_eq!(schedule(&server).await["lastSuccess"], Value::Null);
    let silent = json!({"spec": {"renewTime": "2020-01-01T00:00:00.000000Z"}});
    let gone = client.patch(LEASE, "merge-patch", &silent).await;
    assert_eq!(gone.expect("an answer").status, 200);
    eventually("it takes over", async || {
        let told = schedule(&server).await;
        if told["lastSuccess"].is_object() { Ok(()) } else { Err(told.to_string()) }
    })
    .await;
    let lease = got(&client, LEASE).await;
    assert_ne!(lease["spec"]["holderIdentity"], "another");
}

/// The program, on a data directory and an etcd.
fn migrate(dir: &Path, url: &str, to: &str) -> Command {
    let mut command = Command::new(croft_testkit::binary().expect("the program"));
    command.args(["migrate-store", "--to", to, "--data-dir", text(dir), "--etcd-endpoints", url]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    command
}

async fn moved(dir: &Path, url: &str, to: &str) -> Output {
    migrate(dir, url, to).output().await.expect("it runs")
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// Kills it after ever longer, until it comes to its end by itself. Tells how often it was killed.
async fn migrate_under_fire(dir: &Path, url: &str, to: &str) -> u32 {
    let mut killed = 0;
    loop {
        let mut child = migrate(dir, url, to).spawn().expect("it runs");
        let life = Duration::from_millis(10) + Duration::from_millis(17) * killed;
        if tokio::time::timeout(life, child.wait()).await.is_err() {
            child.kill().await.expect("killed");
            killed += 1;
            continue;
        }
        let output = child.wait_with_output().await.expect("its output");
        assert!(output.status.success(), "{}", said(&output));
        return killed;
    }
}

fn version(object: &Value) -> u64 {
    object["metadata"]["resourceVersion"].as_str().and_then(|text| text.parse().ok()).expect("a version")
}

/// Everything that the tests put there, without what a move may change.
async fn contents(client: &Client) -> Vec<Value> {
    let mut found = Vec::new();
    for path in [CONFIG_MAPS, SECRETS, EVENTS] {
        let list = got(client, path).await;
        for item in list["items"].as_array().expect("items") {
            let mut item = item.clone();
            item["metadata"].as_object_mut().expect("metadata").remove("resourceVersion");
            found.push(item);
        }
    }
    found
}

/// Writes one object after the other until the store has been left; gives those that were acknowledged.
async fn write_until_moved(client: &Client, writer: u32) -> Vec<String> {
    let mut acknowledged = Vec::new();
    for number in 0_u32.. {
        let name = format!("writer{writer}-{number}");
        let answer = client.post(CONFIG_MAPS, &json!({"metadata": {"name": name}})).await.expect("an answer");
        match answer.status {
            201 => acknowledged.push(name),
            503 if answer.text().contains("were moved to") => break,
            503 => {}
            _ => panic!("{}", answer.text()),
        }
    }
    acknowledged
}

fn is_of_writer(object: &Value) -> bool {
    object["metadata"]["name"].as_str().is_some_and(|name| name.starts_with("writer"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_objects_move_into_etcd_and_back_whatever_is_killed_meanwhile() {
    let etcd = Etcd::start().await.expect("etcd starts");
    let url = etcd.url.clone();
    let mut server = Croft::start(StoreKind::Embedded).await.expect("the server starts");
    let dir = server.data_dir().to_owned();
    let client = server.client().expect("a client");
    made(&client, SECRETS, &json!({"metadata": {"name": "s"}, "stringData": {"k": "v"}})).await;
    let event = json!({"metadata": {"name": "e"}, "involvedObject": {"kind": "Pod", "namespace": "default", "name": "p"},
        "reason": "Tested", "message": "m"});
    made(&client, EVENTS, &event).await;
    for number in 0..300 {
        let long = "x".repeat(number * 20);
        made(&client, CONFIG_MAPS, &json!({"metadata": {"name": format!("m{number}")}, "data": {"long": long}})).await;
    }
    let before = contents(&client).await;
    let seen = version(&got(&client, CONFIG_MAPS).await);

    let busy = moved(&dir, &url, "etcd").await;
    assert!(!busy.status.success() && said(&busy).contains("the server must not run"), "{}", said(&busy));
    server.kill().expect("killed");
    let kills = migrate_under_fire(&dir, &url, "etcd").await;
    assert!(kills > 0, "it was never killed");

    // The directory is of the past now, and says so.
    let start = async |store: &[&str]| {
        let mut command = Command::new(croft_testkit::binary().expect("the program"));
        command.args(["server", "--no-node", "--listen", "127.0.0.1:0", "--data-dir", text(&dir)]).args(store);
        command.kill_on_drop(true).output().await.expect("it runs")
    };
    let refused = start(&[]).await;
    assert!(!refused.status.success(), "it starts on what is stale");
    assert!(said(&refused).contains("were moved to etcd at "), "{}", said(&refused));
    let again = moved(&dir, &url, "etcd").await;
    assert!(again.status.success() && said(&again).contains("were moved to"), "{}", said(&again));

    let etcd_args = ["--store", "etcd", "--etcd-endpoints", &url];
    server.restart_with(&etcd_args).await.expect("it starts on etcd");
    let client = server.client().expect("a client");
    assert_eq!(contents(&client).await, before);
    // Who has seen the other store looks again, and whatever comes is newer.
    let watch = client.get(&format!("{CONFIG_MAPS}?watch=true&resourceVersion={seen}")).await.expect("an answer");
    assert!(watch.status == 410 || watch.text().contains("\"code\":410"), "{}", watch.text());
    let new = made(&client, CONFIG_MAPS, &json!({"metadata": {"name": "new"}})).await;
    assert!(version(&new) > seen, "{} after {seen}", version(&new));
    let newest = version(&new);
    let before = contents(&client).await;

    // Back, while the server still runs: from the first moment on it writes nothing more.
    let writers = futures::future::join_all((0..3).map(|writer| write_until_moved(&client, writer)));
    let (kills, ledgers) = tokio::join!(migrate_under_fire(&dir, &url, "embedded"), writers);
    assert!(kills > 0, "it was never killed");
    let late = client.post(CONFIG_MAPS, &json!({"metadata": {"name": "late"}})).await.expect("an answer");
    assert_eq!(late.status, 503, "{}", late.text());
    assert!(late.text().contains("were moved to"), "{}", late.text());
    server.kill().expect("killed");
    let refused = start(&etcd_args).await;
    assert!(!refused.status.success() && said(&refused).contains("were moved to"), "{}", said(&refused));

    server.restart_with(&[]).await.expect("it starts on the directory");
    let client = server.client().expect("a client");
    let (written, others): (Vec<Value>, Vec<Value>) = contents(&client).await.into_iter().partition(is_of_writer);
    assert_eq!(others, before);
    let written: BTreeSet<&str> = written.iter().filter_map(|item| item["metadata"]["name"].as_str()).collect();
    let acknowledged: BTreeSet<&str> = ledgers.iter().flatten().map(String::as_str).collect();
    // The gate tells for certain: what was refused was not done.
    assert_eq!(written, acknowledged, "every write that was acknowledged has moved, and no other");
    let newer = made(&client, CONFIG_MAPS, &json!({"metadata": {"name": "newer"}})).await;
    assert!(version(&newer) > newest);
    // And into the same etcd again, in which nothing is that is not of the past.
    let busy = moved(&dir, &url, "etcd").await;
    assert!(!busy.status.success() && said(&busy).contains("the server must not run"), "{}", said(&busy));
    let before = contents(&client).await;
    server.kill().expect("killed");
    migrate_under_fire(&dir, &url, "etcd").await;
    server.restart_with(&etcd_args).await.expect("it starts on etcd");
    let client = server.client().expect("a client");
    assert_eq!(contents(&client).await, before);
    let newest = made(&client, CONFIG_MAPS, &json!({"metadata": {"name": "newest"}})).await;
    assert!(version(&newest) > version(&newer), "{newest} after {newer}");

    // A server that is still there when objects come again ends, and does not take what is cleared for deletions.
    let options = EtcdOptions { endpoints: vec![url], ..EtcdOptions::default() };
    let mover = croft_store::Etcd::connect_past_gate(options).await.expect("etcd answers");
    shut(&mover, Passage::Arriving, &dir).await;
    eventually("the server ends", async || {
        let log = server.process().log_tail(20);
        let is_gone = client.get("/livez").await.is_err();
        if is_gone && log.contains("must not be followed meanwhile") { Ok(()) } else { Err(log) }
    })
    .await;
}

/// What the other end of a move is called that was cut short.
async fn shut(etcd: &croft_store::Etcd, passage: Passage, dir: &Path) {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").expect("a name").trim().to_lowercase();
    let other = format!("{} on {}", dir.display(), host.replace('_', "-"));
    let gate = Gate { passage, id: "1".to_owned(), other, when: "today".to_owned() };
    assert!(etcd.set_gate(None, Some(&gate)).await.expect("an answer").is_some());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_move_is_given_up_only_when_nobody_is_at_it() {
    let etcd = Etcd::start().await.expect("etcd starts");
    let url = etcd.url.clone();
    let options = EtcdOptions { endpoints: vec![url.clone()], ..EtcdOptions::default() };
    let mover = croft_store::Etcd::connect_past_gate(options).await.expect("etcd answers");
    let place = tempfile::tempdir().expect("a directory");
    let dir = place.path().join("store");
    let abort = async |to: &str| migrate(place.path(), &url, to).arg("--abort").output().await.expect("it runs");
    drop(Embedded::open(&dir, EmbeddedOptions::default()).expect("a store"));

    // As long as the command is there it holds its lock.
    shut(&mover, Passage::Arriving, place.path()).await;
    let at_it = DirLock::take(&dir).expect("the lock");
    let refused = abort("etcd").await;
    assert!(!refused.status.success() && said(&refused).contains("while the command runs"), "{}", said(&refused));
    assert!(mover.gate().await.expect("an answer").is_some(), "the gate is still shut");
    drop(at_it);
    let done = abort("etcd").await;
    assert!(done.status.success(), "{}", said(&done));
    assert!(mover.gate().await.expect("an answer").is_none());

    shut(&mover, Passage::Leaving, place.path()).await;
    let at_it = DirLock::beside(&dir).expect("the lock");
    let refused = abort("embedded").await;
    assert!(!refused.status.success() && said(&refused).contains("while the command runs"), "{}", said(&refused));
    assert!(mover.gate().await.expect("an answer").is_some(), "the gate is still shut");
    drop(at_it);
    let done = abort("embedded").await;
    assert!(done.status.success(), "{}", said(&done));
    assert!(mover.gate().await.expect("an answer").is_none());
}
