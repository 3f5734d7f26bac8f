//! Backups: machines go to a target, and come back from it, on this server or another.

use std::path::{Path, PathBuf};

use croft_e2e::kept::{
    BACKUPS, LONGHORN, RESTORES, SIZE, SNAPSHOTS, backup, files, get, holds, is_usable, machine, machine_with, ready,
    restore, restored, restored_in, set_target, write,
};
use croft_e2e::machines::{
    BOOT, CLAIMS, IMAGES, MACHINES, Shell, becomes, condition, create, empty, guest, is_gone, is_true, node,
    node_with_image, subresource,
};
use croft_e2e::seeded::Random;
use croft_e2e::storage::{begins_with, claim, deleted, disk, image_file, made, patched, run, text, volume_file};
use croft_testkit::{Croft, eventually};
use serde_json::{Value, json};

/// How many bytes of the disk were read for a backup, and whether it builds on an earlier one.
fn sent(server: &Croft, backup: &str) -> (u64, bool) {
    let log = server.process().log_tail(usize::MAX);
    let line = |line: &str| -> Option<Value> { serde_json::from_str(line).ok() };
    let is_it = |line: &Value| line["message"] == "a snapshot is in the backup target" && line["backup"] == backup;
    let found = log.lines().filter_map(line).find(is_it).unwrap_or_else(|| panic!("nothing of {backup} in {log}"));
    (found["read"].as_u64().expect("a number"), found["is_incremental"] == true)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_machine_goes_to_the_target_and_comes_back_anywhere() {
    let (server, client) = node().await;
    let dir = tempfile::tempdir().expect("a directory");
    made(&client, CLAIMS, &claim("data", "harvester-longhorn", "24Mi")).await;
    let (file, mut content) = (volume_file(&server, &client, "data").await, disk());
    write(&file, &content, 0);
    create(&client, &machine("web", "data")).await;
    let refused = client.post(BACKUPS, &backup("early", "web")).await.expect("an answer");
    assert!(refused.status == 422 && refused.text().contains("backup target is not set"), "{}", refused.text());

    set_target(&client, dir.path()).await;
    is_usable(&client).await;
    let offered = get(&client, "/v1/harvester/kubevirt.io.virtualmachines/default/web").await;
    assert!(offered["actions"].get("backup").is_some(), "{}", offered["actions"]);
    let act = "/v1/harvester/kubevirt.io.virtualmachines/default/web?action=backup";
    assert_eq!(client.post(act, &json!({"name": "one"})).await.expect("an answer").status, 204);
    let one = ready(&client, "one").await;
    let status = &one["status"];
    assert!(is_true(&one, "Ready") && !is_true(&one, "InProgress") && status["error"].is_null(), "{one}");
    assert_eq!(status["backupTarget"]["endpoint"], format!("file://{}", dir.path().display()), "{one}");
    let volume = &status["volumeBackups"][0];
    assert_eq!((&status["progress"], &volume["progress"]), (&json!(100), &json!(100)), "{one}");
    assert_eq!(volume["volumeSize"], SIZE, "{one}");
    let first = volume["longhornBackupName"].as_str().expect("a name").to_owned();
    let copy = get(&client, &format!("{LONGHORN}/backups/{first}")).await;
    assert_eq!((&copy["status"]["state"], &copy["status"]["progress"]), (&json!("Completed"), &json!(100)), "{copy}");
    assert_eq!(files(dir.path(), &format!("backup_{first}.cfg")).len(), 1);
    let kept = dir.path().join("harvester/vmbackups/default/one.cfg");
    let kept: Value = serde_json::from_slice(&std::fs::read(kept).expect("a description")).expect("JSON");
    assert_eq!(kept["volumeBackups"][0]["longhornBackupName"], first, "{kept}");
    let blocks = files(dir.path(), ".blk").len();

    // Only what changed is sent, and only the newest snapshot stays here.
    let old = content.clone();
    content[5 << 20] ^= 1;
    write(&file, &content[5 << 20..=5 << 20], 5 << 20);
    made(&client, BACKUPS, &backup("two", "web")).await;
    let two = ready(&client, "two").await;
    let second = two["status"]["volumeBackups"][0]["longhornBackupName"].as_str().expect("a name").to_owned();
    assert_eq!(files(dir.path(), ".blk").len(), blocks + 1, "one block is new");
    assert_eq!(sent(&server, &first), (16 << 20, false), "all that there is is read");
    assert_eq!(sent(&server, &second), (2 << 20, true), "one block is read, for all else is known");
    eventually("one snapshot is here", async || match files(&server.data_dir().join("pool/snapshots"), "").len() {
        1 => Ok(()),
        count => Err(format!("{count} files")),
    })
    .await;

    // From the older one, which is in the target alone.
    made(&client, RESTORES, &restore("old", "one", "older")).await;
    let claims = restored(&client, "old").await;
    holds(&server, &client, &claims[0], &old).await;
    made(&client, RESTORES, &restore("new", "two", "newer")).await;
    let claims = restored(&client, "new").await;
    holds(&server, &client, &claims[0], &content).await;

    // Without the newest snapshot, all is read; what is there is not sent again.
    for file in files(&server.data_dir().join("pool/snapshots"), "") {
        std::fs::remove_file(file).expect("removed");
    }
    write(&file, &[content[0] ^ 1], 0);
    made(&client, BACKUPS, &backup("three", "web")).await;
    let three = ready(&client, "three").await;
    let third = three["status"]["volumeBackups"][0]["longhornBackupName"].as_str().expect("a name").to_owned();
    assert_eq!(sent(&server, &third), (16 << 20, false));
    assert_eq!(files(dir.path(), ".blk").len(), blocks + 2, "one more block is new");
    deleted(&client, &format!("{BACKUPS}/three")).await;
    is_gone(&client, &format!("{LONGHORN}/backups/{third}")).await;
    assert_eq!(files(dir.path(), ".blk").len(), blocks + 1, "and gone again");

    // Another server that knows nothing but the target.
    let (other, there) = node().await;
    set_target(&there, dir.path()).await;
    is_usable(&there).await;
    let found = ready(&there, "one").await;
    assert_eq!(found["status"]["source"]["metadata"]["name"], "web", "{found}");
    made(&there, RESTORES, &restore("moved", "one", "web")).await;
    let claims = restored(&there, "moved").await;
    holds(&other, &there, &claims[0], &old).await;
    drop(other);

    // What goes takes nothing along that others need.
    deleted(&client, &format!("{BACKUPS}/one")).await;
    is_gone(&client, &format!("{BACKUPS}/one")).await;
    is_gone(&client, &format!("{LONGHORN}/backups/{first}")).await;
    is_gone(&client, &format!("{SNAPSHOTS}/one-volume-data")).await;
    assert!(files(dir.path(), &format!("backup_{first}.cfg")).is_empty());
    assert!(!dir.path().join("harvester/vmbackups/default/one.cfg").exists());
    assert_eq!(files(dir.path(), ".blk").len(), blocks, "the block that was changed has gone");
    made(&client, RESTORES, &restore("again", "two", "last")).await;
    let claims = restored(&client, "again").await;
    holds(&server, &client, &claims[0], &content).await;
    // It outlives its machine.
    for name in ["web", "older", "newer", "last"] {
        deleted(&client, &format!("{MACHINES}/{name}")).await;
        is_gone(&client, &format!("{MACHINES}/{name}")).await;
    }
    assert_eq!(get(&client, &format!("{BACKUPS}/two")).await["status"]["readyToUse"], true);
    deleted(&client, &format!("{BACKUPS}/two")).await;
    is_gone(&client, &format!("{LONGHORN}/backups/{second}")).await;
    assert!(files(dir.path(), ".blk").is_empty(), "{:?}", files(dir.path(), ".blk"));
    assert!(files(&server.data_dir().join("pool/snapshots"), "").is_empty());
}

/// As the CSI driver of a guest cluster asks for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_single_volume_goes_and_comes_back() {
    let (server, client) = node().await;
    let dir = tempfile::tempdir().expect("a directory");
    let volumes = "/apis/harvesterhci.io/v1beta1/namespaces/default/volumeremotebackups";
    let volume = json!({"apiVersion": "harvesterhci.io/v1beta1", "kind": "VolumeRemoteBackup", "metadata": {"name": "one"},
        "spec": {"type": "lh", "source": "data"}});
    let refused = client.post(volumes, &volume).await.expect("an answer");
    assert!(refused.status == 422 && refused.text().contains("backup target is not set"), "{}", refused.text());
    set_target(&client, dir.path()).await;
    is_usable(&client).await;
    // It waits for its claim.
    made(&client, volumes, &volume).await;
    let path = format!("{volumes}/one");
    let waits = |it: &Value| {
        condition(it, "Ready").is_some_and(|it| it["message"].as_str().is_some_and(|why| why.contains("default/data")))
    };
    becomes(&client, &path, "without a claim", BOOT, waits).await;
    made(&client, CLAIMS, &claim("data", "harvester-longhorn", "24Mi")).await;
    let (file, content) = (volume_file(&server, &client, "data").await, disk());
    let done = becomes(&client, &path, "in the target", BOOT, |it| it["status"]["success"] == true).await;
    assert!(done["status"]["handle"].as_str().is_some_and(|handle| handle.starts_with("bak://pvc-")), "{done}");
    assert_eq!(done["status"]["csiProvider"], "driver.longhorn.io", "{done}");
    assert_eq!(done["status"]["sourceSpec"]["resources"]["requests"]["storage"], "24Mi", "{done}");
    write(&file, &content, 0);
    let again = json!({"apiVersion": "harvesterhci.io/v1beta1", "kind": "VolumeRemoteBackup", "metadata": {"name": "two"},
        "spec": {"type": "lh", "source": "data"}});
    made(&client, volumes, &again).await;
    becomes(&client, &format!("{volumes}/two"), "in the target", BOOT, |it| it["status"]["success"] == true).await;

    let far = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "far"}});
    made(&client, "/api/v1/namespaces", &far).await;
    let restores = "/apis/harvesterhci.io/v1beta1/namespaces/far/volumeremoterestores";
    let wanted = json!({"apiVersion": "harvesterhci.io/v1beta1", "kind": "VolumeRemoteRestore", "metadata": {"name": "copy"},
        "spec": {"type": "lh", "from": "default/two"}});
    made(&client, restores, &wanted).await;
    becomes(&client, &format!("{restores}/copy"), "here", BOOT, |it| it["status"]["success"] == true).await;
    let copy = get(&client, &format!("{}/copy", CLAIMS.replace("default", "far"))).await;
    let copied =
        server.data_dir().join(format!("pool/volumes/{}.raw", copy["spec"]["volumeName"].as_str().expect("a volume")));
    assert!(begins_with(&std::fs::read(copied).expect("a disk"), &content, SIZE));
    let stood = get(&client, &SNAPSHOTS.replace("default", "far")).await;
    assert_eq!(stood["items"], json!([]), "what stood for the backup is gone");

    for name in ["one", "two"] {
        deleted(&client, &format!("{volumes}/{name}")).await;
        is_gone(&client, &format!("{volumes}/{name}")).await;
    }
    eventually("nothing is left in the target", async || {
        let left = files(dir.path(), "");
        if left.is_empty() { Ok(()) } else { Err(format!("{left:?}")) }
    })
    .await;
}

/// A guest runs on while it is sent; the server is killed on the way; what was sent counts.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_running_guest_is_sent_and_a_kill_on_the_way_does_no_harm() {
    let (mut server, client) = node_with_image().await;
    let dir = tempfile::tempdir().expect("a directory");
    set_target(&client, dir.path()).await;
    is_usable(&client).await;
    let slow = format!("{LONGHORN}/settings/backup-bandwidth-limit");
    patched(&client, &slow, &json!({"value": "1Mi"})).await;
    made(&client, CLAIMS, &claim("data", "harvester-longhorn", "8Mi")).await;
    let mut vm = guest("web");
    let spec = &mut vm["spec"]["template"]["spec"];
    spec["terminationGracePeriodSeconds"] = json!(0);
    let mut add = |list: &str, it: Value| match list {
        "disks" => spec["domain"]["devices"]["disks"].as_array_mut().expect("disks").push(it),
        _ => spec["volumes"].as_array_mut().expect("volumes").push(it),
    };
    add("disks", json!({"name": "data", "disk": {"bus": "virtio"}}));
    add("volumes", json!({"name": "data", "persistentVolumeClaim": {"claimName": "data"}}));
    create(&client, &vm).await;
    let mut shell = Shell::log_in(&server, "web", Some("turnip-7")).await.expect("a shell");
    shell.ok("dd if=/dev/urandom of=/dev/vdc bs=1M count=8 conv=fsync 2>/dev/null").await;
    let sum = shell.ok("md5sum < /dev/vdc").await;

    made(&client, BACKUPS, &backup("one", "web")).await;
    let path = format!("{BACKUPS}/one");
    let is_on_the_way = |it: &Value| it["status"]["progress"].as_i64().is_some_and(|share| (1..100).contains(&share));
    let half = becomes(&client, &path, "on its way", BOOT, is_on_the_way).await;
    assert!(is_true(&half, "InProgress") && half["status"]["readyToUse"] == false, "{half}");
    assert!(half["metadata"]["annotations"]["croft.io/bytes-per-second"].is_string(), "{half}");
    shell.ok("dd if=/dev/zero of=/dev/vdc bs=1M count=1 conv=notrunc,fsync 2>/dev/null").await;
    server.kill().expect("killed");
    server.restart().await.expect("a restart");
    let client = server.client().expect("a client");
    patched(&client, &slow, &json!({"value": "0"})).await;
    let done = ready(&client, "one").await;
    assert!(done["status"]["error"].is_null(), "{done}");
    assert!(done["metadata"]["annotations"]["croft.io/bytes-per-second"].is_null(), "{done}");
    // In a namespace that has no snapshot of it, the disk comes from the target.
    let far = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "far"}});
    made(&client, "/api/v1/namespaces", &far).await;
    let mut wanted = restore("copy", "one", "copy");
    wanted["spec"]["haltAfterRestore"] = json!(true);
    made(&client, &RESTORES.replace("default", "far"), &wanted).await;
    let claims = restored_in(&client, "far", "copy").await;
    let claim = get(&client, &format!("{}/{}", CLAIMS.replace("default", "far"), claims[1])).await;
    let volume = claim["spec"]["volumeName"].as_str().expect("a volume");
    let file = server.data_dir().join("pool/volumes").join(format!("{volume}.raw"));
    let copied = run("sh", &["-c", &format!("md5sum < {}", file.display())]).expect("md5sum");
    assert_eq!(copied, sum);

    // Whoever finds the target finds the image as well.
    eventually("the image is there", async || {
        let image = dir.path().join("harvester/vmimages/default/tiny.cfg");
        if image.exists() { Ok(()) } else { Err("it is not") }
    })
    .await;

    // One that is deleted on its way leaves nothing there.
    patched(&client, &slow, &json!({"value": "64Ki"})).await;
    let console = server.websocket(&subresource("virtualmachineinstances", "web", "console")).await;
    let mut shell = Shell::resume(console.expect("an answer").expect("a console")).await.expect("a shell");
    shell.ok("dd if=/dev/urandom of=/dev/vdc bs=1M count=8 conv=fsync 2>/dev/null").await;
    let kept = files(dir.path(), ".cfg").len();
    made(&client, BACKUPS, &backup("two", "web")).await;
    let begun = |_: &Value| files(dir.path(), ".cfg").len() > kept;
    becomes(&client, &format!("{BACKUPS}/two"), "begun", BOOT, begun).await;
    deleted(&client, &format!("{BACKUPS}/two")).await;
    is_gone(&client, &format!("{BACKUPS}/two")).await;
    eventually("only the first is left", async || {
        let left = files(dir.path(), ".cfg").iter().filter(|path| path.to_string_lossy().contains("/backup_")).count();
        if left == 2 { Ok(()) } else { Err(format!("{left} backups")) }
    })
    .await;
}

/// The pool is full before the disk is there: it is told, nothing is left of it, and it comes when there is room.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restore_into_a_full_pool_says_so_and_leaves_nothing() {
    let (server, client) = node().await;
    let dir = tempfile::tempdir().expect("a directory");
    set_target(&client, dir.path()).await;
    is_usable(&client).await;
    let content = Random::seeded(9).noise(SIZE);
    machine_with(&server, &client, "web", &content).await;
    made(&client, BACKUPS, &backup("one", "web")).await;
    ready(&client, "one").await;
    let pool = server.data_dir().join("pool");
    for file in files(&pool.join("snapshots"), "") {
        std::fs::remove_file(file).expect("removed");
    }
    // Somebody else has all but a few blocks of it.
    let filler = pool.join("filler");
    let free = run("stat", &["-f", "-c", "%a %S", text(&pool)]).expect("the pool");
    let free: u64 = free.split_whitespace().map(|number| number.parse::<u64>().expect("a number")).product();
    run("fallocate", &["-l", &(free - (8 << 20)).to_string(), text(&filler)]).expect("filled");

    made(&client, RESTORES, &restore("back", "one", "copy")).await;
    let path = format!("{RESTORES}/back");
    let tells = |it: &Value| {
        condition(it, "Ready").is_some_and(|ready| {
            ready["status"] == "False" && ready["message"].as_str().is_some_and(|why| why.contains("No space left"))
        })
    };
    let told = becomes(&client, &path, "refused", BOOT, tells).await;
    assert_eq!(told["status"]["complete"], false, "{told}");
    assert_eq!(client.get(&format!("{MACHINES}/copy")).await.expect("an answer").status, 404, "no machine is made");
    assert_eq!(files(&pool.join("volumes"), ".raw").len(), 1, "nor a volume");
    eventually("nothing lies about", async || {
        let left = files(&pool.join("tmp"), "");
        if left.is_empty() { Ok(()) } else { Err(format!("{left:?}")) }
    })
    .await;

    std::fs::remove_file(&filler).expect("removed");
    let claims = restored(&client, "back").await;
    holds(&server, &client, &claims[0], &content).await;
}

/// Harvester's own backups are of what differs from an image, which is in the target too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_harvester_has_written_is_restored_with_its_images() {
    let (server, client) = node().await;
    let dir = tempfile::tempdir().expect("a directory");
    let root = dir.path().join("target");
    golden(&root);
    // Their backups are called alike, which Longhorn's never are.
    for volume in ["pvc-gzip", "pvc-none", "pvc-old"] {
        let config = files(&root, "volume.cfg").into_iter().find(|path| path.to_string_lossy().contains(volume));
        std::fs::remove_dir_all(config.expect("a volume").parent().expect("its directory")).expect("removed");
    }
    let expected = |name: &str| std::fs::read(root.join("expected").join(name)).expect("a file");
    let machine = |name: &str, volume: &str, backup: &str| {
        let claim = json!({"metadata": {"name": "disk", "annotations": {"harvesterhci.io/imageId": "default/image-9"}},
            "spec": {"volumeName": volume, "storageClassName": "longhorn-image-9", "accessModes": ["ReadWriteMany"],
                "volumeMode": "Block", "resources": {"requests": {"storage": "16Mi"}}}});
        let mut source = empty("vm");
        source["spec"]["template"]["spec"]["domain"]["devices"]["disks"] =
            json!([{"name": "disk", "disk": {"bus": "virtio"}}]);
        source["spec"]["template"]["spec"]["volumes"] =
            json!([{"name": "disk", "persistentVolumeClaim": {"claimName": "disk"}}]);
        let kept = json!({"name": name, "namespace": "default",
            "backupSpec": {"type": "backup", "source": {"apiGroup": "kubevirt.io", "kind": "VirtualMachine", "name": "vm"}},
            "vmSourceSpec": {"metadata": {"name": "vm"}, "spec": source["spec"]},
            "volumeBackups": [{"name": format!("{name}-volume-disk"), "volumeName": "disk", "csiDriverName": "driver.longhorn.io",
                "persistentVolumeClaim": claim, "longhornBackupName": backup, "volumeSize": 16 << 20, "readyToUse": true}]});
        let path = root.join(format!("harvester/vmbackups/default/{name}.cfg"));
        std::fs::write(path, kept.to_string()).expect("written");
    };
    machine("imaged", "pvc-image", "backup-image");
    machine("plain", "pvc-lz4", "backup-2");
    set_target(&client, &root).await;
    is_usable(&client).await;

    // Neither the class nor the image of the other cluster is here: the default class does.
    for (name, volume) in [("imaged", "pvc-image.backup-image"), ("plain", "pvc-lz4.backup-2")] {
        ready(&client, name).await;
        let mut wanted = restore(name, name, name);
        wanted["spec"]["haltAfterRestore"] = json!(true);
        made(&client, RESTORES, &wanted).await;
        let claims = restored(&client, name).await;
        let claim = get(&client, &format!("{CLAIMS}/{}", claims[0])).await;
        assert_eq!(claim["spec"]["storageClassName"], "harvester-longhorn", "{claim}");
        assert!(claim["metadata"]["annotations"]["harvesterhci.io/imageId"].is_null(), "{claim}");
        let file = volume_file(&server, &client, &claims[0]).await;
        assert!(begins_with(&std::fs::read(file).expect("a disk"), &expected(volume), 16 << 20), "{name}");
    }

    // The image comes too.
    let is_here = |it: &Value| is_true(it, "Imported") && it["status"]["progress"] == 100;
    let image = becomes(&client, &format!("{IMAGES}/image-1"), "here", BOOT, is_here).await;
    assert_eq!(
        (&image["spec"]["sourceType"], &image["spec"]["displayName"]),
        (&json!("restore"), &json!("Debian")),
        "{image}"
    );
    assert!(std::fs::read(image_file(&server, &image)).expect("the image").starts_with(&expected("vmi-1")));
}

/// A target as an independent program writes it.
fn golden(root: &Path) {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace");
    let python =
        std::env::var_os("CROFT_PYTHON").map_or_else(|| workspace.join("target/venv/bin/python"), PathBuf::from);
    let script = workspace.join("crates/backup/tests/targets/python/golden.py");
    run(text(&python), &[text(&script), "write", text(root)]).expect("written");
}
