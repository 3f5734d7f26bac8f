//! The `croft` command, word by word, against a real server and real machines that have nothing to boot.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use croft_e2e::machines::{
    BOOT, CLAIMS, INSTANCES, MACHINES, becomes, create, croft, croft_ok, empty, is_gone, node, status_becomes,
};
use croft_testkit::{Client, Croft, eventually};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader};

const MIB: usize = 1 << 20;

/// A raw disk of 8 MiB with something in it.
fn disk_in(dir: &Path) -> PathBuf {
    let bytes: Vec<u8> = (0..8 * MIB).map(|at| u8::try_from((at / 512) % 251).expect("below 251")).collect();
    let file = dir.join("disk.raw");
    std::fs::write(&file, bytes).expect("a file");
    file
}

/// What it complains, and with which code it ends.
async fn complaint(server: &Croft, args: &[&str]) -> (i32, String) {
    let output = croft(server, args).await.expect("croft runs");
    assert!(output.stdout.is_empty(), "{args:?} fails and prints {}", String::from_utf8_lossy(&output.stdout));
    (output.status.code().unwrap_or(-1), String::from_utf8_lossy(&output.stderr).into_owned())
}

async fn said(server: &Croft, args: &[&str]) -> String {
    croft_ok(server, args).await.unwrap_or_else(|err| panic!("{err:#}"))
}

async fn said_json(server: &Croft, args: &[&str]) -> Value {
    let text = said(server, args).await;
    serde_json::from_str(&text).unwrap_or_else(|err| panic!("{args:?}: {err}: {text}"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_machine_from_an_image_to_its_end() {
    let (server, client) = node().await;
    let dir = tempfile::tempdir().expect("a directory");
    let file = disk_in(dir.path());
    said(&server, &["image", "upload", "plain", file.to_str().expect("a path")]).await;
    let images = said(&server, &["image", "list"]).await;
    assert!(images.lines().count() == 2 && images.contains("plain"), "{images}");

    // What would be made, without making it.
    let args = ["vm", "create", "one", "--image", "plain", "--cpus", "2", "--memory", "96Mi", "--disk", "16Mi"];
    let dry: Vec<&str> = args.iter().copied().chain(["--dry-run"]).collect();
    let objects = said(&server, &dry).await;
    assert!(objects.contains("kind: VirtualMachine") && objects.contains("longhorn-plain"), "{objects}");
    assert_eq!(client.get(&format!("{MACHINES}/one")).await.expect("an answer").status, 404);

    let stopped: Vec<&str> = args.iter().copied().chain(["--no-start"]).collect();
    said(&server, &stopped).await;
    // Nothing in there hears the power button.
    let at_once = json!({"spec": {"template": {"spec": {"terminationGracePeriodSeconds": 0}}}});
    client.patch(&format!("{MACHINES}/one"), "merge-patch", &at_once).await.expect("an answer").ok().expect("patched");
    said(&server, &["vm", "start", "one", "--wait"]).await;
    let shown = said_json(&server, &["vm", "show", "one", "-o", "json"]).await;
    assert_eq!(shown["status"]["printableStatus"], "Running", "{shown}");
    let cpu = &shown["spec"]["template"]["spec"]["domain"]["cpu"];
    let count: u64 = ["sockets", "cores", "threads"].iter().map(|part| cpu[part].as_u64().unwrap_or(1)).product();
    assert_eq!(count, 2, "{cpu}");
    let listed = said_json(&server, &["vm", "list", "-o", "json"]).await;
    assert_eq!(listed["items"].as_array().map(Vec::len), Some(1), "{listed}");
    assert!(said(&server, &["vm", "list", "-o", "yaml"]).await.contains("printableStatus: Running"));
    assert!(said(&server, &["vm", "list", "-o", "name"]).await.trim() == "one");

    Box::pin(power(&server, &client)).await;

    let picture = dir.path().join("screen.png");
    said(&server, &["vm", "vnc", "one", "--screenshot", picture.to_str().expect("a path")]).await;
    assert!(std::fs::read(&picture).expect("a picture").starts_with(b"\x89PNG"));
    let top = said(&server, &["vm", "top"]).await;
    assert!(top.contains("one"), "{top}");
    said(&server, &["vm", "logs", "one"]).await;

    // A copy has disks of its own, and the same in them.
    said(&server, &["vm", "clone", "one", "two"]).await;
    status_becomes(&client, "two", "Stopped").await;
    said(&server, &["vm", "start", "two"]).await;
    status_becomes(&client, "two", "Running").await;
    let claims = client.get(CLAIMS).await.expect("an answer").json();
    assert_eq!(claims["items"].as_array().map(Vec::len), Some(2), "{claims}");

    let (code, why) = complaint(&server, &["vm", "migrate", "one"]).await;
    assert_eq!(code, 1, "{why}");
    assert!(why.contains("migrat") || why.contains("node"), "{why}");

    said(&server, &["vm", "delete", "one", "--yes", "--wait"]).await;
    said(&server, &["vm", "delete", "two", "--yes", "--wait", "--keep-disks"]).await;
    eventually("the deleted machine's disk goes, the kept one stays", async || {
        let claims = client.get(CLAIMS).await.expect("an answer").json();
        let count = claims["items"].as_array().map_or(0, Vec::len);
        if count == 1 { Ok(()) } else { Err(claims.to_string()) }
    })
    .await;
}

async fn power(server: &Croft, client: &Client) {
    said(server, &["vm", "pause", "one"]).await;
    status_becomes(client, "one", "Paused").await;
    said(server, &["vm", "pause", "one", "--resume"]).await;
    status_becomes(client, "one", "Running").await;
    let uid = |instance: Value| instance["metadata"]["uid"].clone();
    let before = uid(client.get(&format!("{INSTANCES}/one")).await.expect("an answer").json());
    said(server, &["vm", "restart", "one"]).await;
    let is_another =
        |instance: &Value| instance["status"]["phase"] == "Running" && instance["metadata"]["uid"] != before;
    becomes(client, &format!("{INSTANCES}/one"), "another", BOOT, is_another).await;
    said(server, &["vm", "stop", "one", "--force"]).await;
    status_becomes(client, "one", "Stopped").await;
    is_gone(client, &format!("{INSTANCES}/one")).await;
    said(server, &["vm", "start", "one"]).await;
    status_becomes(client, "one", "Running").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn images_come_and_go_unchanged() {
    let (server, _client) = node().await;
    let dir = tempfile::tempdir().expect("a directory");
    let file = disk_in(dir.path());
    said(&server, &["image", "upload", "plain", file.to_str().expect("a path")]).await;
    let back = dir.path().join("back");
    said(&server, &["image", "download", "plain", "--file", back.to_str().expect("a path")]).await;
    let returned = std::fs::read(&back).expect("a file");
    let original = std::fs::read(&file).expect("a file");
    assert!(returned == original || gunzip(&back) == original, "{} bytes came back", returned.len());

    // The file as a web server has it.
    let url = serve(dir.path()).await;
    said(&server, &["image", "import", "fetched", &format!("{url}/disk.raw")]).await;
    let shown = said_json(&server, &["image", "list", "-o", "json"]).await;
    let sizes: Vec<&Value> =
        shown["items"].as_array().expect("items").iter().map(|image| &image["status"]["virtualSize"]).collect();
    assert_eq!(sizes, [&json!(8 * MIB), &json!(8 * MIB)], "{shown}");
    let (code, why) = complaint(&server, &["image", "import", "gone", &format!("{url}/nothing")]).await;
    assert_eq!(code, 1);
    assert!(why.contains("404"), "{why}");

    said(&server, &["image", "delete", "fetched", "--yes"]).await;
    let (code, why) = complaint(&server, &["image", "download", "fetched"]).await;
    assert_eq!(code, 1);
    assert!(why.contains("fetched") && why.contains("plain"), "{why}");
}

fn gunzip(file: &Path) -> Vec<u8> {
    let output = std::process::Command::new("gzip").args(["-dc"]).arg(file).stderr(Stdio::null()).output();
    output.expect("gzip").stdout
}

/// Serves the directory's files for as long as the test runs.
async fn serve(dir: &Path) -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    let dir = dir.to_owned();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let dir = dir.clone();
            tokio::spawn(async move { answer(stream, &dir).await });
        }
    });
    url
}

async fn answer(mut stream: tokio::net::TcpStream, dir: &Path) {
    use tokio::io::AsyncWriteExt as _;
    let (read, mut write) = stream.split();
    let mut lines = BufReader::new(read).lines();
    let Ok(Some(request)) = lines.next_line().await else { return };
    while lines.next_line().await.is_ok_and(|line| line.is_some_and(|line| !line.is_empty())) {}
    let name = request.split([' ', '/']).nth(2).unwrap_or_default();
    let (status, body) = match std::fs::read(dir.join(name)) {
        Ok(body) => ("200 OK", body),
        Err(_) => ("404 Not Found", Vec::new()),
    };
    let head = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", body.len());
    // Whoever asked may be gone.
    let _ = write.write_all(head.as_bytes()).await;
    if !request.starts_with("HEAD") {
        let _ = write.write_all(&body).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn volumes_are_made_grown_attached_and_removed() {
    let (server, client) = node().await;
    said(&server, &["volume", "create", "data", "32Mi"]).await;
    let listed = said(&server, &["volume", "list"]).await;
    assert!(listed.contains("data"), "{listed}");
    let path = format!("{CLAIMS}/data");
    becomes(&client, &path, "bound", BOOT, |claim| claim["status"]["phase"] == "Bound").await;
    said(&server, &["volume", "expand", "data", "64Mi"]).await;
    becomes(&client, &path, "larger", BOOT, |claim| claim["status"]["capacity"]["storage"] == "64Mi").await;
    let (code, why) = complaint(&server, &["volume", "expand", "data", "16Mi"]).await;
    assert_eq!(code, 1, "{why}");

    create(&client, &empty("user")).await;
    status_becomes(&client, "user", "Running").await;
    said(&server, &["volume", "attach", "data", "user"]).await;
    let instance = format!("{INSTANCES}/user");
    let is_there = |instance: &Value| {
        let volumes = instance["status"]["volumeStatus"].as_array().cloned().unwrap_or_default();
        volumes.iter().any(|volume| volume["name"] == "data" && volume["phase"] == "Ready")
    };
    becomes(&client, &instance, "with the disk", BOOT, is_there).await;
    said(&server, &["volume", "detach", "data", "user"]).await;
    let is_away = |instance: &Value| {
        let volumes = instance["status"]["volumeStatus"].as_array().cloned().unwrap_or_default();
        volumes.iter().all(|volume| volume["name"] != "data")
    };
    becomes(&client, &instance, "without the disk", BOOT, is_away).await;
    said(&server, &["volume", "delete", "data", "--yes"]).await;
    is_gone(&client, &path).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn machines_and_volumes_are_kept_and_brought_back() {
    let (server, client) = node().await;
    said(&server, &["volume", "create", "data", "32Mi"]).await;
    let mut machine = empty("web");
    machine["spec"]["runStrategy"] = json!("Halted");
    let spec = &mut machine["spec"]["template"]["spec"];
    spec["domain"]["devices"]["disks"] = json!([{"name": "disk", "disk": {"bus": "virtio"}}]);
    spec["volumes"] = json!([{"name": "disk", "persistentVolumeClaim": {"claimName": "data"}}]);
    create(&client, &machine).await;
    let bound = |claim: &Value| claim["status"]["phase"] == "Bound";
    becomes(&client, &format!("{CLAIMS}/data"), "bound", BOOT, bound).await;

    said(&server, &["snapshot", "create", "web", "--name", "one", "--wait"]).await;
    let made = said_json(&server, &["snapshot", "create", "web", "--wait", "-o", "json"]).await;
    assert!(made["metadata"]["name"].as_str().is_some_and(|name| name.starts_with("web-2")), "{made}");
    assert_eq!(made["status"]["readyToUse"], true, "{made}");
    let listed = said(&server, &["snapshot", "list", "--vm", "web"]).await;
    assert!(listed.lines().count() == 3 && listed.contains("ready") && listed.contains("32.0 MiB"), "{listed}");
    assert_eq!(said(&server, &["snapshot", "list", "--vm", "other"]).await, "");
    assert_eq!(said_json(&server, &["backup", "list", "-o", "json"]).await["items"], json!([]));
    said(&server, &["snapshot", "restore", "one", "--to", "copy", "--no-start", "--wait"]).await;
    status_becomes(&client, "copy", "Stopped").await;
    said(&server, &["snapshot", "restore", "one", "--wait"]).await;
    let web = client.get(&format!("{MACHINES}/web")).await.expect("an answer").json();
    let disk = &web["spec"]["template"]["spec"]["volumes"][0]["persistentVolumeClaim"]["claimName"];
    assert_ne!(disk, "data", "{web}");
    let (code, why) = complaint(&server, &["backup", "delete", "one", "--yes"]).await;
    assert!(code == 1 && why.contains("one is a snapshot: use \"croft snapshot\""), "{why}");
    said(&server, &["snapshot", "delete", "one", "--yes", "--wait"]).await;

    said(&server, &["snapshot", "create", "data", "--volume", "--name", "kept", "--wait"]).await;
    assert!(said(&server, &["snapshot", "list", "--volume"]).await.contains("kept"));
    said(&server, &["snapshot", "restore", "kept", "--volume", "--to", "again", "--wait"]).await;
    becomes(&client, &format!("{CLAIMS}/again"), "bound", BOOT, bound).await;
    said(&server, &["snapshot", "delete", "kept", "--volume", "--yes", "--wait"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_are_shown_and_closed() {
    let (server, client) = node().await;
    let listed = said_json(&server, &["node", "list", "-o", "json"]).await;
    let name = listed["items"][0]["metadata"]["name"].as_str().expect("a node").to_owned();
    let shown = said(&server, &["node", "show", &name]).await;
    assert!(shown.contains(&name), "{shown}");
    said(&server, &["node", "cordon", &name]).await;
    create(&client, &empty("late")).await;
    let path = format!("{INSTANCES}/late");
    becomes(&client, &path, "told why it waits", BOOT, |instance| {
        let conditions = instance["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions
            .iter()
            .any(|condition| condition["message"].as_str().is_some_and(|text| text.contains("unschedulable")))
    })
    .await;
    said(&server, &["node", "uncordon", &name]).await;
    status_becomes(&client, "late", "Running").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_asked_wrongly_is_answered_with_what_to_do() {
    let (server, _client) = node().await;
    for (args, code, words) in [
        (&["vm", "show", "nobody"][..], 1, &["nobody", "not found"][..]),
        (&["vm", "start", "nobody"], 1, &["nobody", "not found"]),
        (&["vm", "create", "Big_Name", "--image", "x"], 2, &["Big_Name"]),
        (&["vm", "create", "a", "--image", "nothing"], 1, &["nothing", "croft image"]),
        (&["vm", "create", "a"], 2, &["--image"]),
        (&["vm", "create", "a", "--image", "x", "--memory", "lots"], 2, &["lots"]),
        (&["volume", "create", "v", "much"], 2, &["much"]),
        (&["volume", "delete", "v"], 1, &["--yes"]),
        (&["image", "upload", "i", "/nowhere/at.all"], 1, &["/nowhere/at.all"]),
        (&["image", "import", "i", "ftp://x/y"], 1, &["http"]),
        (&["vm", "port-forward", "nobody", "seven"], 2, &["seven"]),
        (&["vm", "dance"], 2, &["dance"]),
        (&["snapshot", "create", "nobody"], 1, &["nobody", "not found"]),
        (&["snapshot", "create", "a", "--name", "Big_Name"], 2, &["Big_Name"]),
        (&["snapshot", "restore", "none"], 1, &["none", "not found"]),
        (&["snapshot", "restore", "none", "--volume"], 2, &["--to"]),
        (&["snapshot", "restore", "none", "--keep-macs"], 2, &["--to"]),
        (&["snapshot", "delete", "none"], 1, &["none", "not found"]),
        (&["backup", "create", "nobody"], 1, &["nobody", "not found"]),
        (&["backup", "verify"], 2, &["NAMES"]),
        (&["backup", "verify", "none"], 1, &["no backup target is set", "--target"]),
        (&["backup", "schedule", "create", "s", "--vm", "a", "--cron", "often"], 2, &["often", "five fields"]),
        (&["backup", "schedule", "suspend", "none"], 1, &["none", "not found"]),
        (&["node", "show", "elsewhere"], 1, &["elsewhere", "not found"]),
    ] {
        let (found, why) = complaint(&server, args).await;
        assert_eq!(found, code, "{args:?}: {why}");
        for word in words {
            assert!(why.contains(word), "{args:?} does not speak of {word}: {why}");
        }
    }
    for shell in ["bash", "zsh", "fish"] {
        let script = said(&server, &["completion", shell]).await;
        assert!(script.contains("port-forward"), "{shell}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_away_is_named() {
    let (mut server, _client) = node().await;
    server.kill().expect("killed");
    let (code, why) = complaint(&server, &["vm", "list"]).await;
    assert_eq!(code, 1);
    assert!(why.contains("127.0.0.1"), "{why}");
}
