//! A real Linux guest: what it was told, what it sees, what reaches it, and what it keeps.

use std::time::Duration;

use croft_e2e::kept::{BACKUPS, SNAPSHOTS, get};
use croft_e2e::machines::{
    BOOT, CLAIMS, IMAGES, INSTANCES, MACHINES, Shell, USER_DATA, becomes, create, croft, croft_ok, guest, in_guest,
    is_gone, is_true, node_with_image, status_becomes, subresource,
};
use croft_e2e::storage::{deleted, made};
use croft_testkit::{Client, Croft, StoreKind, eventually_within, rfb};
use serde_json::{Value, json};

async fn put(client: &Client, kind: &str, name: &str, sub: &str, body: &Value) {
    let answer = client.put(&subresource(kind, name, sub), body).await.expect("an answer");
    assert!((200..300).contains(&answer.status), "{sub}: {} {}", answer.status, answer.text());
}

/// One boot, and all that can be seen in it: a boot is what takes the time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_guest_is_what_it_was_told_to_be() {
    let (server, client) = node_with_image().await;
    create(&client, &guest("web")).await;
    let mut shell = Shell::log_in(&server, "web", Some("turnip-7")).await.expect("a shell");

    // Cloud-init.
    assert_eq!(shell.ok("hostname").await, "web");
    assert_eq!(shell.ok("cat /srv/told").await, "hello");
    assert_eq!(shell.ok("cat /srv/ran").await, "ran");

    screen(&server, &client).await;
    agent(&client).await;
    at_rest(&server, &client, &mut shell).await;
    network(&server, &client, &mut shell).await;
    hot_plug(&client, &mut shell).await;
    expansion(&client, &mut shell).await;
    Box::pin(verified_writes_over_a_restart(&server, &client, shell)).await;
    // What was deleted with its disks is gone, and so is the image once nothing uses it.
    croft_ok(&server, &["vm", "delete", "web", "--yes", "--wait"]).await.expect("deleted");
    is_gone(&client, &format!("{CLAIMS}/web-root")).await;
    let answer = client.delete(&format!("{IMAGES}/tiny")).await.expect("an answer");
    assert_eq!(answer.status, 200, "{}", answer.text());
}

/// VNC, as a viewer and as a picture.
async fn screen(server: &Croft, client: &Client) {
    let path = subresource("virtualmachineinstances", "web", "vnc");
    let mut stream = server.websocket(&path).await.expect("an answer").expect("a screen");
    assert_eq!(stream.protocol.as_deref(), Some("plain.kubevirt.io"));
    let screen = rfb::look(&mut stream).await.expect("a framebuffer");
    assert!(screen.width >= 320 && screen.height >= 200 && screen.colours() > 1, "{}x{}", screen.width, screen.height);
    let picture =
        client.get(&subresource("virtualmachineinstances", "web", "vnc/screenshot")).await.expect("an answer");
    assert_eq!((picture.status, picture.header("content-type")), (200, Some("image/png")), "{}", picture.text());
    assert!(picture.body.starts_with(b"\x89PNG"), "a picture");
}

/// What the guest agent says.
async fn agent(client: &Client) {
    let path = format!("{INSTANCES}/web");
    let instance = becomes(client, &path, "with its agent", BOOT, |instance| is_true(instance, "AgentConnected")).await;
    assert!(instance["status"]["guestOSInfo"]["prettyName"].is_string(), "{}", instance["status"]);
    let info = client.get(&subresource("virtualmachineinstances", "web", "guestosinfo")).await.expect("an answer");
    let info = info.ok().expect("guestosinfo");
    assert_eq!(info["hostname"], "web", "{info}");
    assert!(info["supportedCommands"].as_array().is_some_and(|commands| !commands.is_empty()), "{info}");
    let disks = client.get(&subresource("virtualmachineinstances", "web", "filesystemlist")).await.expect("an answer");
    let disks = disks.ok().expect("filesystemlist");
    assert!(
        disks["items"].as_array().is_some_and(|items| items.iter().any(|item| item["mountPoint"] == "/")),
        "{disks}"
    );
    put(client, "virtualmachineinstances", "web", "freeze", &json!({"unfreezeTimeout": "60s"})).await;
    becomes(client, &path, "frozen", BOOT, |instance| instance["status"]["fsFreezeStatus"] == "frozen").await;
    put(client, "virtualmachineinstances", "web", "unfreeze", &json!({})).await;
    becomes(client, &path, "thawed", BOOT, |instance| instance["status"].get("fsFreezeStatus").is_none()).await;
}

/// Its file systems come to rest for a snapshot, and never stay there.
async fn at_rest(server: &Croft, client: &Client, shell: &mut Shell) {
    const KEPT: &str = "/apis/snapshot.kubevirt.io/v1beta1/namespaces/default/virtualmachinesnapshots";
    let source = json!({"apiGroup": "kubevirt.io", "kind": "VirtualMachine", "name": "web"});
    let snapshot = async |name: &str| {
        let wanted = json!({"apiVersion": "snapshot.kubevirt.io/v1beta1", "kind": "VirtualMachineSnapshot",
            "metadata": {"name": name}, "spec": {"source": source}});
        made(client, KEPT, &wanted).await;
        let path = format!("{KEPT}/{name}");
        becomes(client, &path, "taken", BOOT, |it| it["status"]["phase"] == "Succeeded").await
    };
    let rested = snapshot("rested").await;
    assert_eq!(rested["status"]["indications"], json!(["Online", "GuestAgent"]), "{rested}");
    shell.ok("echo on > /srv/on && sync").await;

    // So short that no guest makes it.
    let hasty = json!({"apiVersion": "harvesterhci.io/v1beta1", "kind": "VirtualMachineBackup", "metadata": {"name": "hasty"},
        "spec": {"type": "snapshot", "fsFreezeDeadline": "1ms", "source": source}});
    made(client, BACKUPS, &hasty).await;
    let path = format!("{BACKUPS}/hasty");
    becomes(client, &path, "ready", BOOT, |it| it["status"]["readyToUse"] == true).await;
    let file = get(client, &format!("{SNAPSHOTS}/hasty-volume-web-root")).await;
    let how = file["metadata"]["annotations"]["croft.io/snapshot-guest"].as_str().expect("how the guest was");
    let how: Value = serde_json::from_str(how).expect("JSON");
    assert!(how["hasAgent"] == true && how["isFrozen"] != true, "{how}");
    shell.ok("echo on > /srv/on && sync").await;

    // An agent that hangs keeps nobody waiting for long. What it is told then, it hears when it goes on.
    shell.ok("kill -STOP $(pidof qemu-ga)").await;
    let failed = snapshot("failed").await;
    assert_eq!(failed["status"]["indications"], json!(["Online", "QuiesceFailed"]), "{failed}");
    shell.ok("kill -CONT $(pidof qemu-ga)").await;
    shell.ok("echo on > /srv/on && sync").await;
    let uid = get(client, &format!("{INSTANCES}/web")).await["metadata"]["uid"].as_str().expect("a uid").to_owned();
    let record = server.run_dir().expect("a run directory").join("vms").join(uid).join("held.json");
    let is_let_go = eventually_within(BOOT, async || if record.exists() { Err("held") } else { Ok(()) });
    is_let_go.await.expect("the guest is let go");
    becomes(client, &format!("{INSTANCES}/web"), "with its agent", BOOT, |it| is_true(it, "AgentConnected")).await;
    shell.ok("echo on > /srv/on && sync").await;
    for path in [format!("{KEPT}/rested"), format!("{KEPT}/failed"), path] {
        deleted(client, &path).await;
        is_gone(client, &path).await;
    }
}

/// Its address, its name, and ports of it that we reach.
async fn network(server: &Croft, client: &Client, shell: &mut Shell) {
    let path = format!("{INSTANCES}/web");
    let has_address = |instance: &Value| instance["status"]["interfaces"][0]["ipAddress"].is_string();
    let instance = becomes(client, &path, "with an address", BOOT, has_address).await;
    let interface = &instance["status"]["interfaces"][0];
    let address = interface["ipAddress"].as_str().expect("an address");
    assert!(address.parse::<std::net::Ipv4Addr>().is_ok(), "IPv4 first: {interface}");
    let inside = shell.ok("ip -4 -o addr show dev eth0").await;
    assert!(inside.contains(address), "{address} is not in {inside}");
    // Its own name, by our DNS.
    in_guest(shell, "nslookup web 2>&1", |text| text.contains(address)).await;

    let mut stream = server
        .websocket(&subresource("virtualmachines", "web", "portforward/80/tcp"))
        .await
        .expect("an answer")
        .expect("a port");
    stream.send(b"GET /index.html HTTP/1.0\r\n\r\n").await.expect("sent");
    stream.expect("welcome", Duration::from_mins(1)).await.expect("the page");

    let ssh = ["vm", "ssh", "root@web", "--", "-o", "UserKnownHostsFile=/dev/null", "-o", "BatchMode=yes", "true"];
    // Without a key it gets no further than the guest's own refusal, and that far it must get.
    let output = croft(server, &ssh).await.expect("croft vm ssh");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("Permission denied"), "{said}");
}

/// A disk and a second interface, plugged into the running guest and out of it again.
async fn hot_plug(client: &Client, shell: &mut Shell) {
    let claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "extra"},
        "spec": {"accessModes": ["ReadWriteOnce"], "volumeMode": "Block", "resources": {"requests": {"storage": "64Mi"}}}});
    client.post(CLAIMS, &claim).await.expect("an answer").ok().expect("a claim");
    let request = json!({"name": "extra", "disk": {"name": "extra", "serial": "extra", "disk": {"bus": "scsi"}},
        "volumeSource": {"persistentVolumeClaim": {"claimName": "extra", "hotpluggable": true}}});
    put(client, "virtualmachines", "web", "addvolume", &request).await;
    let path = format!("{INSTANCES}/web");
    let volume = |instance: &Value, phase: Option<&str>| {
        let statuses = instance["status"]["volumeStatus"].as_array().cloned().unwrap_or_default();
        let found = statuses.into_iter().find(|status| status["name"] == "extra");
        match phase {
            Some(phase) => found.is_some_and(|status| status["phase"] == phase),
            None => found.is_none(),
        }
    };
    becomes(client, &path, "with the disk", BOOT, |instance| volume(instance, Some("Ready"))).await;
    let disks = in_guest(shell, "cat /sys/block/sd*/size", |text| text.contains("131072")).await;
    assert!(disks.contains("131072"), "64 MiB: {disks}");
    put(client, "virtualmachines", "web", "removevolume", &json!({"name": "extra"})).await;
    becomes(client, &path, "without the disk", BOOT, |instance| volume(instance, None)).await;
    in_guest(shell, "ls /sys/block", |text| !text.contains("sd")).await;
}

/// A disk grows while it is used.
async fn expansion(client: &Client, shell: &mut Shell) {
    let before: u64 = shell.ok("cat /sys/block/vda/size").await.parse().expect("a number");
    assert_eq!(before * 512, 1 << 30);
    let larger = json!({"spec": {"resources": {"requests": {"storage": "1536Mi"}}}});
    let answer = client.patch(&format!("{CLAIMS}/web-root"), "merge-patch", &larger).await.expect("an answer");
    answer.ok().expect("larger");
    let expected = (1536_u64 << 20) / 512;
    in_guest(shell, "cat /sys/block/vda/size", |text| text == expected.to_string()).await;
    let path = format!("{CLAIMS}/web-root");
    becomes(client, &path, "larger", BOOT, |claim| claim["status"]["capacity"]["storage"] == "1536Mi").await;
    let smaller = json!({"spec": {"resources": {"requests": {"storage": "1Gi"}}}});
    let answer = client.patch(&path, "merge-patch", &smaller).await.expect("an answer");
    assert_eq!(answer.status, 422, "{}", answer.text());
}

/// What was written with fsync is there after the machine was shut down and started, and after its power was cut.
async fn verified_writes_over_a_restart(server: &Croft, client: &Client, mut shell: Shell) {
    shell.ok("truncate -s 8M /srv/file && verified-write run /srv/file 200 >/dev/null").await;
    shell.ok("sync").await;
    put(client, "virtualmachines", "web", "stop", &json!({})).await;
    status_becomes(client, "web", "Stopped").await;
    is_gone(client, &format!("{INSTANCES}/web")).await;
    put(client, "virtualmachines", "web", "start", &json!({})).await;
    let mut shell = Shell::log_in(server, "web", Some("turnip-7")).await.expect("a shell");
    shell.ok("verified-write check /srv/file").await;
    // The instance is another, the machine is the same: cloud-init does not run again.
    assert_eq!(shell.ok("cat /srv/told").await, "hello");
    shell.ok("verified-write run /srv/file 100 >/dev/null").await;
    put(client, "virtualmachines", "web", "stop", &json!({"gracePeriod": 0})).await;
    status_becomes(client, "web", "Stopped").await;
    put(client, "virtualmachines", "web", "start", &json!({})).await;
    let mut shell = Shell::log_in(server, "web", Some("turnip-7")).await.expect("a shell");
    shell.ok("verified-write check /srv/file").await;
}

/// UEFI, Secure Boot, TPM and ConfigDrive; and a change that waits for a restart.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_guest_boots_securely() {
    let (server, client) = node_with_image().await;
    let mut machine = guest("secure");
    let domain = &mut machine["spec"]["template"]["spec"]["domain"];
    domain["firmware"] = json!({"bootloader": {"efi": {"secureBoot": true, "persistent": true}}});
    domain["features"] = json!({"smm": {"enabled": true}});
    domain["devices"]["tpm"] = json!({"persistent": true});
    domain["memory"] = json!({"guest": "512Mi"});
    machine["spec"]["template"]["spec"]["volumes"][1] =
        json!({"name": "seed", "cloudInitConfigDrive": {"userData": USER_DATA}});
    create(&client, &machine).await;
    let mut shell = Shell::log_in(&server, "secure", Some("turnip-7")).await.expect("a shell");
    assert_eq!(shell.ok("hostname").await, "secure");
    assert_eq!(shell.ok("cat /srv/told").await, "hello");
    let state = shell
        .ok("tail -c 1 /sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c | od -An -t u1")
        .await;
    assert_eq!(state.trim(), "1", "Secure Boot is on");
    shell.ok("test -e /dev/tpm0").await;

    let path = format!("{MACHINES}/secure");
    // What cannot be changed while it runs waits for a restart, and is said to.
    let model = json!({"spec": {"template": {"spec": {"domain": {"devices": {"tpm": null}}}}}});
    client.patch(&path, "merge-patch", &model).await.expect("an answer").ok().expect("patched");
    becomes(&client, &path, "in need of a restart", BOOT, |machine| is_true(machine, "RestartRequired")).await;
}

/// A processor and memory, plugged into a guest that runs by changing its machine.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_guest_grows() {
    let (server, client) = node_with_image().await;
    let mut machine = guest("grows");
    let domain = &mut machine["spec"]["template"]["spec"]["domain"];
    domain["memory"] = json!({"guest": "1Gi", "maxGuest": "2Gi"});
    domain["cpu"] = json!({"sockets": 1, "cores": 1, "maxSockets": 2});
    create(&client, &machine).await;
    let mut shell = Shell::log_in(&server, "grows", Some("turnip-7")).await.expect("a shell");
    assert_eq!(shell.ok("nproc").await, "1");
    let path = format!("{MACHINES}/grows");
    let processors = json!({"spec": {"template": {"spec": {"domain": {"cpu": {"sockets": 2}}}}}});
    client.patch(&path, "merge-patch", &processors).await.expect("an answer").ok().expect("patched");
    in_guest(&mut shell, "nproc", |text| text == "2").await;
    let memory = json!({"spec": {"template": {"spec": {"domain": {"memory": {"guest": "1280Mi"}}}}}});
    client.patch(&path, "merge-patch", &memory).await.expect("an answer").ok().expect("patched");
    in_guest(&mut shell, "awk '/MemTotal/ { print ($2 > 1100000) }' /proc/meminfo", |text| text == "1").await;
    let instance = format!("{INSTANCES}/grows");
    becomes(&client, &instance, "grown", BOOT, |instance| {
        instance["status"]["currentCPUTopology"]["sockets"] == 2
            && instance["status"]["memory"]["guestCurrent"] == "1280Mi"
    })
    .await;
    let machine = client.get(&path).await.expect("an answer").json();
    assert!(!is_true(&machine, "RestartRequired"), "{}", machine["status"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bad_images_fail_with_a_reason_and_leave_nothing() {
    let server = Croft::start_node(StoreKind::Embedded, &[]).await.expect("the server starts");
    let client = server.client().expect("a client");
    let dir = tempfile::tempdir().expect("a directory");
    let evil = dir.path().join("evil.qcow2");
    let base = dir.path().join("base.raw");
    std::fs::write(&base, vec![7; 1 << 20]).expect("a file");
    let made = tokio::process::Command::new("qemu-img")
        .args(["create", "-q", "-f", "qcow2", "-F", "raw", "-b"])
        .args([&base, &evil])
        .status()
        .await
        .expect("qemu-img");
    assert!(made.success());
    let output = croft(&server, &["image", "upload", "evil", evil.to_str().expect("a path")]).await.expect("croft");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && said.contains("backing file"), "{said}");

    let image = json!({"apiVersion": "harvesterhci.io/v1beta1", "kind": "VirtualMachineImage", "metadata": {"name": "dead"},
        "spec": {"displayName": "dead", "sourceType": "download", "url": "http://127.0.0.1:1/none.qcow2", "retry": 0}});
    client.post(IMAGES, &image).await.expect("an answer").ok().expect("an image");
    let failed = eventually_within(BOOT, async || {
        let image = client.get(&format!("{IMAGES}/dead")).await.map_err(|err| err.to_string())?.json();
        if is_true(&image, "RetryLimitExceeded") { Ok(image) } else { Err(image["status"].to_string()) }
    });
    let image = failed.await.expect("it fails for good");
    assert_eq!(image["status"]["failed"], 1, "{}", image["status"]);
    client.delete(&format!("{IMAGES}/dead")).await.expect("an answer").ok().expect("deleted");
    is_gone(&client, &format!("{IMAGES}/dead")).await;
    let left: Vec<_> =
        std::fs::read_dir(server.data_dir().join("pool/images")).into_iter().flatten().flatten().collect();
    assert!(left.is_empty(), "{left:?}");
}
