//! Snapshots with the guest's memory: it goes on from where it was.

use std::path::{Path, PathBuf};

use croft_e2e::machines::{
    BOOT, INSTANCES, MACHINES, Shell, becomes, create, croft_ok, events_of, guest, in_guest, is_gone, node_with_image,
    qemu_line, running, subresource,
};
use croft_e2e::storage::{deleted, made, patched, run, text};
use croft_testkit::{Client, Croft, eventually};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};

const SNAPSHOTS: &str = "/apis/snapshot.storage.k8s.io/v1/namespaces/default/volumesnapshots";
const BACKUPS: &str = "/apis/harvesterhci.io/v1beta1/namespaces/default/virtualmachinebackups";
const RESTORES: &str = "/apis/harvesterhci.io/v1beta1/namespaces/default/virtualmachinerestores";

fn with_memory(name: &str) -> Value {
    json!({"apiVersion": "harvesterhci.io/v1beta1", "kind": "VirtualMachineBackup",
        "metadata": {"name": name, "annotations": {"croft.io/memory": "true"}},
        "spec": {"type": "snapshot", "source": {"apiGroup": "kubevirt.io", "kind": "VirtualMachine", "name": "web"}}})
}

fn restore(name: &str, halts: bool) -> Value {
    json!({"apiVersion": "harvesterhci.io/v1beta1", "kind": "VirtualMachineRestore", "metadata": {"name": name},
        "spec": {"virtualMachineBackupName": "mind", "virtualMachineBackupNamespace": "default", "newVM": false,
            "haltAfterRestore": halts,
            "target": {"apiGroup": "kubevirt.io", "kind": "VirtualMachine", "name": "web"}}})
}

async fn fails(client: &Client, name: &str, words: &str) {
    made(client, BACKUPS, &with_memory(name)).await;
    let says = |it: &Value| it["status"]["error"]["message"].as_str().is_some_and(|why| why.contains(words));
    becomes(client, &format!("{BACKUPS}/{name}"), words, BOOT, says).await;
    deleted(client, &format!("{BACKUPS}/{name}")).await;
    is_gone(client, &format!("{BACKUPS}/{name}")).await;
}

async fn stopped(client: &Client) {
    patched(client, &format!("{MACHINES}/web"), &json!({"spec": {"runStrategy": "Halted"}})).await;
    is_gone(client, &format!("{INSTANCES}/web")).await;
    let is_stopped = |it: &Value| it["status"]["printableStatus"] == "Stopped" && it["status"]["created"] != true;
    becomes(client, &format!("{MACHINES}/web"), "stopped", BOOT, is_stopped).await;
}

async fn restored(client: &Client, name: &str, halts: bool) {
    made(client, RESTORES, &restore(name, halts)).await;
    becomes(client, &format!("{RESTORES}/{name}"), "complete", BOOT, |it| it["status"]["complete"] == true).await;
}

/// What the guest has counted to, in its memory.
async fn count(shell: &mut Shell) -> u64 {
    let text = in_guest(shell, "cat /dev/shm/n", |text| text.trim().parse::<u64>().is_ok()).await;
    text.trim().parse().expect("a number")
}

async fn counts_on(shell: &mut Shell) -> u64 {
    let before = count(shell).await;
    in_guest(shell, "cat /dev/shm/n", |text| text.trim().parse::<u64>().is_ok_and(|now| now > before)).await;
    count(shell).await
}

async fn shell_of(server: &Croft) -> Shell {
    let path = subresource("virtualmachineinstances", "web", "console");
    let console = eventually("there is a console", async || match server.websocket(&path).await {
        Ok(Ok(console)) => Ok(console),
        Ok(Err(refused)) => Err(refused.status.to_string()),
        Err(error) => Err(format!("{error:#}")),
    });
    Shell::resume(console.await).await.expect("a shell")
}

fn memories(server: &Croft) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(server.data_dir().join("pool/snapshots")).expect("the pool");
    entries
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|it| it == "memory"))
        .collect()
}

/// Has QEMU write the memory to somebody who does not read it, as if we had been killed meanwhile.
async fn saving(dir: &Path, socket: &Path) -> UnixListener {
    std::fs::write(dir.join("held.json"), "{\"is_frozen\":false,\"is_saving\":true}").expect("a record");
    let listener = UnixListener::bind(socket).expect("a socket");
    std::fs::set_permissions(socket, std::os::unix::fs::PermissionsExt::from_mode(0o777)).expect("for all");
    let stream = UnixStream::connect(dir.join("qmp.sock")).await.expect("QEMU listens");
    let (read, mut write) = stream.into_split();
    let mut lines = BufReader::new(read).lines();
    let migrate = format!("{{\"execute\":\"migrate\",\"arguments\":{{\"uri\":\"unix:{}\"}}}}", text(socket));
    let commands = ["{\"execute\":\"qmp_capabilities\"}", &migrate, "{\"execute\":\"stop\"}"];
    for command in commands {
        write.write_all(format!("{command}\n").as_bytes()).await.expect("sent");
        loop {
            let line = lines.next_line().await.expect("an answer").expect("an answer");
            assert!(!line.contains("\"error\""), "{command}: {line}");
            if line.contains("\"return\"") {
                break;
            }
        }
    }
    listener
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_guest_goes_on_from_where_it_was() {
    let (mut server, client) = node_with_image().await;
    let mut machine = guest("web");
    machine["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = json!(0);
    create(&client, &machine).await;
    let mut shell = Shell::log_in(&server, "web", Some("turnip-7")).await.expect("a shell");
    shell.ok("(n=0; while :; do n=$((n+1)); echo $n > /dev/shm/n; usleep 100000; done) & echo $! > /dev/shm/pid").await;
    // Nothing brings it to the disk.
    shell.ok("echo before > /srv/file").await;
    let boot = shell.ok("cat /proc/sys/kernel/random/boot_id").await;

    // Where there is no room, nothing is kept, and the guest goes on.
    let filler = server.data_dir().join("pool/filler");
    let free = run("stat", &["-f", "-c", "%a %S", text(&server.data_dir().join("pool"))]).expect("the pool");
    let free: u64 = free.split_whitespace().map(|number| number.parse::<u64>().expect("a number")).product();
    run("fallocate", &["-l", &(free - (100 << 20)).to_string(), text(&filler)]).expect("filled");
    fails(&client, "none", "there is room for").await;
    std::fs::remove_file(&filler).expect("removed");
    assert!(memories(&server).is_empty());

    let before = counts_on(&mut shell).await;
    croft_ok(&server, &["snapshot", "create", "web", "--memory", "--name", "mind", "--wait"]).await.expect("kept");
    let after = counts_on(&mut shell).await;
    let snapshot = client.get(&format!("{SNAPSHOTS}/mind-volume-web-root")).await.expect("an answer").json();
    let guest = snapshot["metadata"]["annotations"]["croft.io/snapshot-guest"].as_str().expect("how the guest was");
    println!("the guest stood still: {guest}");
    let guest: Value = serde_json::from_str(guest).expect("JSON");
    assert!(guest["hasMemory"] == true && guest["pauseMs"].as_f64().is_some_and(|ms| ms < 5000.0), "{guest}");
    assert_eq!(memories(&server).len(), 1);
    shell.ok("echo after > /srv/file; rm -f /srv/told; sync").await;

    // One that stands still is not kept with its memory.
    let pause = subresource("virtualmachineinstances", "web", "pause");
    client.put(&pause, &json!({})).await.expect("an answer").ok().expect("paused");
    fails(&client, "still", "is paused").await;
    let unpause = subresource("virtualmachineinstances", "web", "unpause");
    client.put(&unpause, &json!({})).await.expect("an answer").ok().expect("unpaused");
    counts_on(&mut shell).await;

    // Killed while its memory is written, it goes on at the next start.
    let instance = client.get(&format!("{INSTANCES}/web")).await.expect("an answer").json();
    let uid = instance["metadata"]["uid"].as_str().expect("a uid").to_owned();
    let dir = server.run_dir().expect("a run directory").join("vms").join(&uid);
    server.kill().expect("killed");
    let aside = tempfile::tempdir().expect("a directory");
    std::fs::set_permissions(aside.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("for all");
    let listener = saving(&dir, &aside.path().join("socket")).await;
    server.restart().await.expect("a restart");
    let client = server.client().expect("a client");
    eventually("the record is gone", async || if dir.join("held.json").exists() { Err("there") } else { Ok(()) }).await;
    drop(listener);
    let mut shell = shell_of(&server).await;
    let last = counts_on(&mut shell).await;

    // Back to where it was: the same boot, the same process, the same file.
    stopped(&client).await;
    restored(&client, "back", false).await;
    let mut shell = shell_of(&server).await;
    assert_eq!(shell.ok("cat /proc/sys/kernel/random/boot_id").await, boot);
    let now = counts_on(&mut shell).await;
    assert!(before <= now && now < last, "{before}, {after}, then {last}, and {now} again");
    shell.ok("kill -0 $(cat /dev/shm/pid)").await;
    assert_eq!(shell.ok("cat /srv/file; cat /srv/told").await, "before\nhello");
    // Its agent was told the time.
    let now: i64 = run("date", &["+%s"]).expect("the time").trim().parse().expect("a number");
    in_guest(&mut shell, "date +%s", |text| text.trim().parse::<i64>().is_ok_and(|told| told + 5 >= now)).await;
    let events = events_of(&client, "web").await.join("\n");
    assert!(events.contains("goes on from the memory that was kept"), "{events}");

    // It is used once: the next start is a boot.
    let has_incoming =
        |server: &Croft, instance: &Value| qemu_line(server, instance).iter().any(|word| word == "-incoming");
    assert!(has_incoming(&server, &running(&client, "web").await));
    stopped(&client).await;
    patched(&client, &format!("{MACHINES}/web"), &json!({"spec": {"runStrategy": "Always"}})).await;
    assert!(!has_incoming(&server, &running(&client, "web").await));

    // Another machine cannot go on from it, and says why; without the memory it boots.
    stopped(&client).await;
    restored(&client, "again", true).await;
    let path = format!("{MACHINES}/web");
    let template = |change: Value| json!({"spec": {"template": change}});
    patched(&client, &path, &template(json!({"spec": {"domain": {"memory": {"guest": "160Mi"}}}}))).await;
    patched(&client, &path, &json!({"spec": {"runStrategy": "Always"}})).await;
    eventually("it says why", async || {
        let events = events_of(&client, "web").await.join("\n");
        if events.contains("MemoryNotRestored") && events.contains("the machine was another") {
            Ok(())
        } else {
            Err(events)
        }
    })
    .await;
    patched(&client, &path, &template(json!({"metadata": {"annotations": {"croft.io/memory-from": null}}}))).await;
    running(&client, "web").await;

    deleted(&client, &format!("{BACKUPS}/mind")).await;
    is_gone(&client, &format!("{BACKUPS}/mind")).await;
    eventually("its memory is gone", async || if memories(&server).is_empty() { Ok(()) } else { Err("files") }).await;
}
