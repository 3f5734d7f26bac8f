//! Looking after the store: how it is, giving back space, and damage and lack of room that are named and got over.

use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Output;

use croft_e2e::machines::{croft, croft_ok};
use croft_e2e::storage::{made, run, text};
use croft_testkit::{Client, Croft, Etcd, StoreKind, eventually, patience};
use serde_json::{Value, json};

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
const STORE: &str = "/croft/v1/store";

async fn said(server: &Croft, args: &[&str]) -> String {
    croft_ok(server, args).await.unwrap_or_else(|err| panic!("{err:#}"))
}

/// Of a command that fails.
async fn failed(server: &Croft, args: &[&str]) -> String {
    let output = croft(server, args).await.expect("croft runs");
    assert_eq!(output.status.code(), Some(1), "{}", whole(&output));
    whole(&output)
}

fn whole(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

async fn status(server: &Croft) -> Value {
    serde_json::from_str(&said(server, &["store", "status", "-o", "json"]).await).expect("JSON")
}

async fn metrics(client: &Client) -> String {
    client.get("/metrics").await.expect("an answer").text()
}

fn long(name: &str, length: usize) -> Value {
    json!({"metadata": {"name": name, "labels": {"care": "yes"}}, "data": {"long": format!("{name}:{}", "x".repeat(length))}})
}

async fn names(client: &Client) -> Vec<String> {
    let list = client.get(&format!("{CONFIG_MAPS}?labelSelector=care")).await.expect("an answer").ok().expect("a list");
    let items = list["items"].as_array().expect("items").iter();
    items.filter_map(|item| item["metadata"]["name"].as_str().map(str::to_owned)).collect()
}

/// Makes objects until one is refused; gives the names of the others, and the refusal.
async fn make_until_refused(client: &Client, prefix: &str, length: usize) -> (Vec<String>, String) {
    let mut made = Vec::new();
    for number in 0..2000 {
        let name = format!("{prefix}{number:04}");
        let answer = client.post(CONFIG_MAPS, &long(&name, length)).await.expect("an answer");
        if answer.status != 201 {
            assert_eq!(answer.status, 503, "{}", answer.text());
            return (made, answer.text());
        }
        made.push(name);
    }
    panic!("it never was full");
}

async fn takes_writes(client: &Client, name: &str) {
    eventually("writes are taken again", async || {
        let answer = client.post(CONFIG_MAPS, &long(name, 10)).await.map_err(|err| err.to_string())?;
        if answer.status == 201 { Ok(()) } else { Err(answer.text()) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_store_says_how_it_is_and_gives_back_space() {
    for kind in [StoreKind::Embedded, StoreKind::Etcd] {
        let mut server = Croft::start(kind).await.expect("the server starts");
        let client = server.client().expect("a client");
        for number in 0..60 {
            let name = format!("m{number}");
            made(&client, CONFIG_MAPS, &long(&name, 100_000)).await;
            if number >= 5 {
                client.delete(&format!("{CONFIG_MAPS}/{name}")).await.expect("an answer").ok().expect("deleted");
            }
        }
        let told = said(&server, &["store", "status"]).await;
        assert!(told.contains("writes    taken") && told.contains("can be given back"), "{told}");
        let before = status(&server).await;
        let list = client.get(CONFIG_MAPS).await.expect("an answer").ok().expect("a list");
        let newest =
            list["metadata"]["resourceVersion"].as_str().and_then(|v| v.parse::<u64>().ok()).expect("a number");
        assert!(before["revision"].as_u64().is_some_and(|revision| revision >= newest), "{before}");
        assert_eq!((&before["isDamaged"], &before["defragmentation"]), (&json!(false), &Value::Null));
        if let Some(etcd) = server.etcd() {
            let url = etcd.url.clone();
            let members = before["members"].as_array().expect("members");
            assert_eq!(
                (members.len(), &members[0]["isLeader"], &members[0]["endpoint"]),
                (1, &json!(true), &json!(url))
            );
        }

        // Only what is forgotten gives room.
        let told = said(&server, &["store", "defrag", "--compact"]).await;
        assert!(told.contains("defrag    "), "{told}");
        let after = status(&server).await;
        let sizes = [&before["sizeBytes"], &after["sizeBytes"]].map(|size| size.as_u64().expect("a number"));
        assert!(sizes[0] > 5_000_000 && sizes[1] < sizes[0] / 2, "{kind:?}: {sizes:?}");
        assert!(after["compactedRevision"].as_u64() >= Some(newest) && after["lastCompaction"].is_string(), "{after}");
        assert_eq!(after["defragmentation"]["number"], 1, "{after}");
        assert_eq!(said(&server, &["store", "check"]).await, "no damage was found\n");
        assert!(status(&server).await["check"]["records"].as_u64().is_some_and(|count| count > 50));
        assert_eq!(names(&client).await, ["m0", "m1", "m2", "m3", "m4"]);
        takes_writes(&client, "after").await;

        let told = metrics(&client).await;
        for line in ["croft_store_read_only 0", "croft_store_damaged 0", "croft_store_alarms{alarm=\"NOSPACE\"} 0"] {
            assert!(told.contains(line), "{line}");
        }
        assert!(told.contains("croft_store_defragmentations_total{result=\"ok\"} 1\n"), "{told}");
        for name in
            ["apiserver_storage_size_bytes", "croft_store_in_use_bytes", "croft_store_last_defragmentation_seconds"]
        {
            assert!(told.lines().any(|line| line.starts_with(&format!("{name} ")) && !line.ends_with(" 0")), "{name}");
        }
        // For nobody but the admin.
        let nobody = server.anonymous().expect("a client");
        let defragment = format!("{STORE}/defragment");
        assert_eq!(nobody.get(STORE).await.expect("an answer").status, 403);
        assert_eq!(nobody.post(&defragment, &json!({})).await.expect("an answer").status, 403);
        assert_eq!(client.get(&defragment).await.expect("an answer").status, 405);
        assert_eq!(client.get(&format!("{STORE}/x")).await.expect("an answer").status, 404);
    }
}

/// Overwrites one byte within each place where `needle` is in the store's files; gives how many there were.
fn damage(dir: &Path, needle: &[u8]) -> usize {
    let mut count = 0;
    for name in ["store/store.db", "store/store.db-wal"] {
        let path = dir.join(name);
        let Ok(bytes) = std::fs::read(&path) else { continue };
        let file = std::fs::OpenOptions::new().write(true).open(&path).expect("the file");
        for (at, _) in bytes.windows(needle.len()).enumerate().filter(|(_, window)| *window == needle) {
            file.write_all_at(b"#", u64::try_from(at + needle.len() / 2).expect("a place")).expect("written");
            count += 1;
        }
    }
    count
}

/// What is in the file and in its log; a log without anything in it is as good as none.
fn store_files(dir: &Path) -> [Vec<u8>; 2] {
    ["store/store.db", "store/store.db-wal"].map(|name| std::fs::read(dir.join(name)).unwrap_or_default())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn damage_is_named_and_what_can_be_read_is_brought_back() {
    let mut server = Croft::start(StoreKind::Embedded).await.expect("the server starts");
    let client = server.client().expect("a client");
    for name in ["m1", "m2", "m3"] {
        made(&client, CONFIG_MAPS, &long(name, 40_000)).await;
    }
    let secrets = "/api/v1/namespaces/default/secrets";
    made(&client, secrets, &json!({"metadata": {"name": "s"}, "stringData": {"k": "v"}})).await;
    let dir = server.data_dir().to_owned();
    let busy = failed(&server, &["store", "check", text(&dir)]).await;
    assert!(busy.contains("is in use by process"), "{busy}");
    // With a log that nobody has moved into the file.
    server.kill().expect("killed");
    let before = store_files(&dir);
    assert!(before[1].len() > 40_000, "there is a log");
    assert_eq!(said(&server, &["store", "check", text(&dir)]).await, "no damage was found\n");
    assert!(store_files(&dir) == before, "a check changes nothing");
    server.restart().await.expect("it starts");
    server.terminate(patience()).await.expect("it ends");

    assert!(damage(&dir, b"m2:xxxxxxxxxxxxxxxx") > 0);
    let before = store_files(&dir);
    let found = failed(&server, &["store", "check", text(&dir)]).await;
    assert!(found.contains("registry/core/configmaps/default/m2 at revision "), "{found}");
    assert!(found.contains("is not as it was written") && !found.contains("default/m1"), "{found}");
    let refused = server.restart().await.expect_err("it starts on a damaged store").to_string();
    assert!(refused.contains("store.db is damaged") && refused.contains("croft store check"), "{refused}");
    assert!(refused.contains("croft store salvage") && refused.contains("croft state restore"), "{refused}");
    assert!(!refused.contains("panicked"), "{refused}");

    let place = tempfile::tempdir().expect("a directory");
    let saved = place.path().join("salvaged.gz");
    let told = said(&server, &["store", "salvage", text(&dir), text(&saved)]).await;
    assert!(told.contains("lost:\n  core/configmaps/default/m2\n"), "{told}");
    assert!(store_files(&dir) == before, "neither a start nor a salvage changes anything");
    let again = failed(&server, &["store", "salvage", text(&dir), text(&saved)]).await;
    assert!(again.contains("cannot write"), "it goes over what is there: {again}");
    std::fs::rename(dir.join("store"), dir.join("store.damaged")).expect("moved");
    said(&server, &["state", "restore", text(&saved), "--data-dir", text(&dir)]).await;
    server.restart().await.expect("it starts");
    let client = server.client().expect("a client");
    assert_eq!(names(&client).await, ["m1", "m3"]);
    let secret = client.get(&format!("{secrets}/s")).await.expect("an answer").ok().expect("it is there");
    assert_eq!(secret["data"]["k"], "dg==");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn damage_that_is_met_while_it_runs_is_told_and_stops_writes() {
    let server = Croft::start(StoreKind::Embedded).await.expect("the server starts");
    let client = server.client().expect("a client");
    for name in ["m1", "m2", "m3"] {
        made(&client, CONFIG_MAPS, &long(name, 40_000)).await;
    }
    // A list that goes on as it was begun is read from the store, once its objects have changed.
    let page = format!("{CONFIG_MAPS}?labelSelector=care&limit=1");
    let first = client.get(&page).await.expect("an answer").ok().expect("a list");
    let token = first["metadata"]["continue"].as_str().expect("there is more").to_owned();
    let newer = json!({"data": {"long": "short now"}});
    let changed = client.patch(&format!("{CONFIG_MAPS}/m2"), "merge-patch", &newer).await.expect("an answer");
    assert_eq!(changed.status, 200, "{}", changed.text());
    assert!(damage(server.data_dir(), b"m2:xxxxxxxxxxxxxxxx") > 0);
    let ready = client.get("/readyz?verbose").await.expect("an answer");
    assert!(ready.status == 200 && ready.text().contains("[+]store-integrity ok"), "{}", ready.text());

    let read = client.get(&format!("{page}&continue={token}")).await.expect("an answer");
    assert_eq!((read.status, read.json()["reason"].as_str()), (500, Some("InternalError")), "{}", read.text());
    assert!(read.text().contains("is damaged") && read.text().contains("croft store check"), "{}", read.text());
    let ready = client.get("/readyz").await.expect("an answer");
    assert!(ready.status == 500 && ready.text().contains("[-]store-integrity failed"), "{}", ready.text());
    assert_eq!(client.get("/livez").await.expect("an answer").status, 200, "a restart would not help");
    let told = metrics(&client).await;
    assert!(told.contains("croft_store_damaged 1\n") && told.contains("croft_store_read_only 1\n"), "{told}");
    // What is whole is served on, and nothing is written to what is not.
    assert_eq!(names(&client).await, ["m1", "m2", "m3"]);
    let refused = client.post(CONFIG_MAPS, &long("late", 10)).await.expect("an answer");
    assert_eq!(refused.status, 503, "{}", refused.text());
    assert!(refused.text().contains("is damaged") && refused.text().contains("croft state save"), "{}", refused.text());
    let told = said(&server, &["store", "status"]).await;
    assert!(told.contains("writes    refused: the database"), "{told}");
    let found = failed(&server, &["store", "check"]).await;
    assert!(found.contains("registry/core/configmaps/default/m2 at revision "), "{found}");
    // Only a version of the past is damaged: all that is newest can be taken out.
    let place = tempfile::tempdir().expect("a directory");
    said(&server, &["state", "save", text(&place.path().join("saved.gz"))]).await;
}

/// A small disk of its own, gone when dropped.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    fn mount() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        run("mount", &["-t", "tmpfs", "-o", "size=24m", "tmpfs", text(dir.path())]).expect("mounted");
        Self(dir)
    }

    /// Takes all the space that is left.
    fn fill(&self) {
        use std::io::Write as _;
        let mut ballast = std::fs::File::create(self.0.path().join("ballast")).expect("a file");
        for size in [1 << 16, 1 << 12, 1] {
            while ballast.write_all(&vec![1; size]).is_ok() {}
        }
    }

    fn empty(&self) {
        std::fs::remove_file(self.0.path().join("ballast")).expect("removed");
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = run("umount", &["-l", text(self.0.path())]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_refuses_writes_until_there_is_room() {
    let disk = SmallDisk::mount();
    let dir = tempfile::tempdir_in(disk.0.path()).expect("a directory");
    let mut server = Croft::start_in(dir).await.expect("the server starts");
    let client = server.client().expect("a client");
    made(&client, CONFIG_MAPS, &long("before", 1000)).await;
    disk.fill();
    let (mut acknowledged, refusal) = make_until_refused(&client, "full", 20_000).await;
    assert!(refusal.contains("the store is read-only: no space left on the disk"), "{refusal}");
    acknowledged.insert(0, "before".to_owned());
    assert_eq!(names(&client).await, acknowledged, "reads go on");
    assert_eq!(client.get("/readyz").await.expect("an answer").status, 200);
    assert!(metrics(&client).await.contains("croft_store_read_only 1\n"));
    assert!(said(&server, &["store", "status"]).await.contains("writes    refused: no space left"), "it is not said");
    let refused = failed(&server, &["store", "defrag", "--compact"]).await;
    assert!(refused.contains("no space left"), "{refused}");

    disk.empty();
    takes_writes(&client, "room").await;
    acknowledged.push("room".to_owned());
    assert!(metrics(&client).await.contains("croft_store_read_only 0\n"));
    assert_eq!(names(&client).await, acknowledged, "no write that was refused was done");
    said(&server, &["store", "defrag", "--compact"]).await;
    server.kill().expect("killed");
    server.restart().await.expect("it starts");
    let client = server.client().expect("a client");
    assert_eq!(names(&client).await, acknowledged);
    server.kill().expect("killed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_etcd_that_is_full_takes_writes_again_once_it_is_defragmented() {
    let etcd = Etcd::start_with(&["--quota-backend-bytes", "25165824"]).await.expect("etcd starts");
    let args = ["--store", "etcd", "--etcd-endpoints", &etcd.url];
    let server = Croft::start_with(StoreKind::Embedded, &args).await.expect("the server starts");
    let client = server.client().expect("a client");
    let (acknowledged, refusal) = make_until_refused(&client, "full", 200_000).await;
    assert!(acknowledged.len() > 10 && refusal.contains("space exceeded"), "{refusal}");
    assert!(refusal.contains("croft store defrag --compact"), "{refusal}");
    assert_eq!(names(&client).await, acknowledged, "reads go on");
    let told = said(&server, &["store", "status"]).await;
    assert!(told.contains("writes    refused: NOSPACE") && told.contains("croft store defrag"), "{told}");
    let told = metrics(&client).await;
    assert!(told.contains("croft_store_alarms{alarm=\"NOSPACE\"} 1\n") && told.contains("croft_store_read_only 1\n"));

    // Deleting is what an etcd that is full still does.
    for name in &acknowledged[1..] {
        client.delete(&format!("{CONFIG_MAPS}/{name}")).await.expect("an answer").ok().expect("deleted");
    }
    let told = said(&server, &["store", "defrag", "--compact"]).await;
    assert!(told.contains("writes    taken"), "{told}");
    takes_writes(&client, "room").await;
    assert_eq!(names(&client).await, [acknowledged[0].as_str(), "room"]);
    assert!(metrics(&client).await.contains("croft_store_alarms{alarm=\"NOSPACE\"} 0\n"));
}
