//! `croft backup` from the first word to the last, against a real server and a directory.

use std::path::Path;
use std::process::Stdio;

use croft_e2e::kept::{self, RESTORES, holds, machine, restore, restored};
use croft_e2e::machines::{
    BOOT, CLAIMS, MACHINES, becomes, condition, create, croft, croft_ok, empty, is_gone, is_true, node, status_becomes,
};
use croft_e2e::storage::{claim, made, patched, run, volume_file};
use croft_testkit::{Client, Croft, eventually};
use serde_json::{Value, json};

const SETTING: &str = "/apis/harvesterhci.io/v1beta1/settings/backup-target";
const SPEED: &str = "/apis/longhorn.io/v1beta2/namespaces/longhorn-system/settings/backup-bandwidth-limit";
const SIZE: usize = 24 << 20;

async fn said(server: &Croft, args: &[&str]) -> String {
    croft_ok(server, args).await.unwrap_or_else(|err| panic!("{err:#}"))
}

/// What it prints where somebody watches: on a terminal.
async fn shown(server: &Croft, args: &[&str]) -> String {
    let quoted: Vec<String> = args.iter().map(|arg| format!("'{arg}'")).collect();
    let line =
        format!("stty cols 120; '{}' {}", croft_testkit::binary().expect("the program").display(), quoted.join(" "));
    let mut command = tokio::process::Command::new("script");
    command.args(["-qec", &line, "/dev/null"]).env("KUBECONFIG", &server.kubeconfig).env("TERM", "xterm");
    let output = command.stdin(Stdio::null()).output().await.expect("script runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{args:?}: {text}");
    text
}

async fn set_target(client: &Client, dir: &Path) {
    let value = json!({"type": "directory", "endpoint": format!("file://{}", dir.display()),
        "refreshIntervalInSeconds": 1});
    patched(client, SETTING, &json!({"value": value.to_string()})).await;
    becomes(client, SETTING, "usable", BOOT, |setting| is_true(setting, "configured")).await;
}

fn files(dir: &Path, ending: &str) -> usize {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let count = |path: &Path| usize::from(path.to_string_lossy().ends_with(ending));
    entries.map(|entry| entry.path()).map(|path| if path.is_dir() { files(&path, ending) } else { count(&path) }).sum()
}

/// What cannot be made smaller.
fn noise() -> Vec<u8> {
    let mut state = 1_u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        state.to_be_bytes()[0]
    };
    (0..SIZE).map(|_| next()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_machine_is_backed_up_checked_restored_and_deleted() {
    let (server, client) = node().await;
    let dir = tempfile::tempdir().expect("a directory");
    set_target(&client, dir.path()).await;
    made(&client, CLAIMS, &claim("data", "harvester-longhorn", "24Mi")).await;
    let (file, content) = (volume_file(&server, &client, "data").await, noise());
    std::fs::write(&file, &content).expect("written");
    let mut machine = empty("web");
    machine["spec"].as_object_mut().expect("a spec").remove("running");
    machine["spec"]["runStrategy"] = json!("Halted");
    let spec = &mut machine["spec"]["template"]["spec"];
    spec["domain"]["devices"]["disks"] = json!([{"name": "root", "disk": {"bus": "virtio"}}]);
    spec["volumes"] = json!([{"name": "root", "persistentVolumeClaim": {"claimName": "data"}}]);
    create(&client, &machine).await;

    // Slow enough to be watched.
    patched(&client, SPEED, &json!({"value": "8Mi"})).await;
    let bar = shown(&server, &["backup", "create", "web", "--name", "one", "--wait"]).await;
    assert!(bar.contains(" %") && bar.contains("/s") && bar.contains("backup one is ready"), "{bar:?}");
    patched(&client, SPEED, &json!({"value": "0"})).await;
    let listed = said(&server, &["backup", "list", "--vm", "web"]).await;
    assert!(listed.contains("one") && listed.contains("ready") && listed.contains("24.0 MiB"), "{listed}");
    assert_eq!(said(&server, &["snapshot", "list"]).await, "");
    let checked = said(&server, &["backup", "verify", "--all"]).await;
    assert!(checked.contains("backup one, disk root: sound"), "{checked}");
    assert!(said(&server, &["backup", "ls", "one"]).await.contains("root"));
    let raw = dir.path().join("copy.raw");
    said(&server, &["backup", "cp", "one:root", raw.to_str().expect("a path")]).await;
    assert!(std::fs::read(&raw).expect("a disk") == content);

    std::fs::write(&file, vec![7; SIZE]).expect("written");
    said(&server, &["backup", "create", "web", "--name", "two", "--wait"]).await;
    said(&server, &["backup", "restore", "one", "--to", "copy", "--no-start", "--wait"]).await;
    let copy = status_becomes(&client, "copy", "Stopped").await;
    let name = copy["spec"]["template"]["spec"]["volumes"][0]["persistentVolumeClaim"]["claimName"].as_str();
    let file = volume_file(&server, &client, name.expect("a claim")).await;
    assert!(std::fs::read(file).expect("a disk") == content);
    said(&server, &["backup", "restore", "one", "--no-start", "--wait", "--delete-disks", "--yes"]).await;
    is_gone(&client, &format!("{CLAIMS}/data")).await;
    let web: Value = client.get(&format!("{MACHINES}/web")).await.expect("an answer").json();
    assert_ne!(web["spec"]["template"]["spec"]["volumes"][0]["persistentVolumeClaim"]["claimName"], "data", "{web}");

    let refused = croft(&server, &["backup", "delete", "one"]).await.expect("croft runs");
    assert!(!refused.status.success() && String::from_utf8_lossy(&refused.stderr).contains("--yes"));
    said(&server, &["backup", "delete", "one", "two", "--yes", "--wait"]).await;
    eventually("nothing is left of them in the target", async || {
        let left = (files(dir.path(), ".blk"), files(&dir.path().join("harvester"), ".cfg"));
        if left == (0, 0) { Ok(()) } else { Err(format!("{left:?}")) }
    })
    .await;
    assert_eq!(said(&server, &["backup", "list"]).await, "");
}

/// A machine that does not run, with this on its disk.
async fn machine_with(server: &Croft, client: &Client, content: &[u8]) {
    made(client, CLAIMS, &claim("data", "harvester-longhorn", "24Mi")).await;
    std::fs::write(volume_file(server, client, "data").await, content).expect("written");
    create(client, &machine("web", "data")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn damaged_blocks_are_named_and_not_restored() {
    let (server, client) = node().await;
    let dir = tempfile::tempdir().expect("a directory");
    set_target(&client, dir.path()).await;
    let content = noise();
    machine_with(&server, &client, &content).await;
    said(&server, &["backup", "create", "web", "--name", "one", "--wait"]).await;
    // What is here would do for a restore.
    for file in kept::files(&server.data_dir().join("pool/snapshots"), "") {
        std::fs::remove_file(file).expect("removed");
    }
    let config = kept::files(dir.path(), ".cfg").into_iter().find(|path| path.to_string_lossy().contains("/backup_"));
    let config: Value = serde_json::from_slice(&std::fs::read(config.expect("a backup")).expect("it")).expect("JSON");
    let block = |index: usize| {
        let name = config["Blocks"][index]["BlockChecksum"].as_str().expect("a name").to_owned();
        (kept::files(dir.path(), &format!("{name}.blk")).remove(0), name)
    };
    let ((missing, first), (truncated, second), (corrupted, third)) = (block(0), block(1), block(2));
    let sound: Vec<_> = [&missing, &truncated, &corrupted].map(|path| std::fs::read(path).expect("a block")).into();
    std::fs::remove_file(&missing).expect("removed");
    std::fs::write(&truncated, &sound[1][..sound[1].len() / 2]).expect("written");
    let mut flipped = sound[2].clone();
    let middle = flipped.len() / 2;
    flipped[middle] ^= 0x40;
    std::fs::write(&corrupted, flipped).expect("written");

    let output = croft(&server, &["backup", "verify", "one"]).await.expect("croft runs");
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(1), "{told}");
    let size = 2 << 20;
    for (damage, name, at) in [("missing", &first, 0), ("truncated", &second, size), ("corrupted", &third, 2 * size)] {
        assert!(told.contains(&format!("{damage} {name} at {at}")), "{told}");
    }
    assert!(told.contains("3 of 12 blocks are bad"), "{told}");
    let copy = dir.path().join("copy.raw");
    let refused = croft(&server, &["backup", "cp", "one:disk", copy.to_str().expect("a path")]).await.expect("it runs");
    assert!(!refused.status.success() && !copy.exists(), "half a disk is left");

    // It is not restored either, and says why, each block in its turn.
    std::fs::write(&truncated, &sound[1]).expect("written");
    std::fs::write(&corrupted, &sound[2]).expect("written");
    made(&client, RESTORES, &restore("back", "one", "copy")).await;
    let path = format!("{RESTORES}/back");
    let tells = |name: String| {
        move |it: &Value| {
            condition(it, "Ready").is_some_and(|ready| {
                ready["status"] == "False" && ready["message"].as_str().is_some_and(|why| why.contains(&name))
            })
        }
    };
    becomes(&client, &path, "refused", BOOT, tells(format!("block {first} at offset 0 is missing"))).await;
    std::fs::write(&missing, &sound[0][..100]).expect("written");
    let told = becomes(&client, &path, "refused", BOOT, tells(format!("block {first} at offset 0 is bad"))).await;
    assert!(told["status"]["complete"] == false, "{told}");
    assert_eq!(client.get(&format!("{MACHINES}/copy")).await.expect("an answer").status, 404, "no machine is made");
    let made_of_it = kept::files(&server.data_dir().join("pool/volumes"), ".raw").len();
    assert_eq!(made_of_it, 1, "nor a volume");

    // Mended, it is tried again.
    std::fs::write(&missing, &sound[0]).expect("written");
    let claims = restored(&client, "back").await;
    holds(&server, &client, &claims[0], &content).await;
    assert!(said(&server, &["backup", "verify", "one"]).await.contains("sound"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_single_file_comes_out_of_a_backup() {
    let (server, client) = node().await;
    let dir = tempfile::tempdir().expect("a directory");
    let (target, tree, disk) = (dir.path().join("target"), dir.path().join("tree"), dir.path().join("disk"));
    std::fs::create_dir(&target).expect("a directory");
    std::fs::create_dir_all(tree.join("srv/data")).expect("directories");
    // Longer than a block, and without an end that falls in with one.
    let content = &noise()[..(5 << 20) + 77];
    std::fs::write(tree.join("srv/data/dump"), content).expect("written");
    std::fs::write(tree.join("srv/data/small"), "hello\n").expect("written");
    std::fs::File::create(&disk).expect("a file").set_len(SIZE as u64).expect("its size");
    let text = |path: &Path| path.to_str().expect("a path").to_owned();
    run("mkfs.ext4", &["-q", "-F", "-d", &text(&tree), &text(&disk)]).expect("a file system");
    set_target(&client, &target).await;
    machine_with(&server, &client, &std::fs::read(&disk).expect("the disk")).await;
    said(&server, &["backup", "create", "web", "--name", "one", "--wait"]).await;

    let listed = said(&server, &["backup", "ls", "one:disk:/srv/data"]).await;
    assert!(listed.contains("dump") && listed.contains("small"), "{listed}");
    let items: Value =
        serde_json::from_str(&said(&server, &["backup", "ls", "one:/srv/data", "-o", "json"]).await).expect("JSON");
    let dump = items["items"].as_array().into_iter().flatten().find(|item| item["name"] == "dump").expect("the file");
    assert_eq!(dump["size"], content.len(), "{dump}");
    let copy = dir.path().join("dump");
    said(&server, &["backup", "cp", "one:disk:/srv/data/dump", &text(&copy)]).await;
    assert!(std::fs::read(&copy).expect("the file") == content);
    assert_eq!(said(&server, &["backup", "cp", "one:/srv/data/small", "-"]).await, "hello\n");
    let none = croft(&server, &["backup", "cp", "one:disk:/srv/none", &text(&copy)]).await.expect("croft runs");
    assert!(!none.status.success() && String::from_utf8_lossy(&none.stderr).contains("/srv/none"));
    assert!(std::fs::read(&copy).expect("the file") == content, "nothing is put over it");
}
