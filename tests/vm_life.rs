//! Machines without an operating system: how they start, stop, fail, are refused, and leave nothing behind.

use std::path::Path;

use croft_e2e::machines::{
    INSTANCES, MACHINES, becomes, condition, create, croft_ok, empty, is_gone, is_true, merge, node, node_name, qemus,
    running, status_becomes, subresource,
};
use croft_testkit::{Client, Croft, eventually, patience};
use serde_json::{Value, json};

async fn instance(client: &Client, name: &str) -> Value {
    client.get(&format!("{INSTANCES}/{name}")).await.expect("an answer").ok().expect("an instance")
}

/// The QEMU of an instance.
fn qemu(server: &Croft, instance: &Value) -> Option<u32> {
    qemus(server).get(instance["metadata"]["uid"].as_str()?).copied()
}

fn processes() -> Vec<(u32, String)> {
    let entries = std::fs::read_dir("/proc").expect("/proc").flatten();
    let process = |entry: std::fs::DirEntry| {
        let pid = entry.file_name().to_str()?.parse().ok()?;
        let line = std::fs::read(entry.path().join("cmdline")).ok()?;
        Some((pid, String::from_utf8_lossy(&line).replace('\0', " ")))
    };
    entries.filter_map(process).collect()
}

fn kill(pid: u32) {
    let pid = rustix::process::Pid::from_raw(i32::try_from(pid).expect("a pid")).expect("a pid");
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).expect("killed");
}

async fn put(client: &Client, kind: &str, name: &str, sub: &str, body: &Value) -> (u16, String) {
    let answer = client.put(&subresource(kind, name, sub), body).await.expect("an answer");
    (answer.status, answer.text())
}

async fn started(client: &Client, name: &str) {
    let (code, text) = put(client, "virtualmachines", name, "start", &json!({})).await;
    assert_eq!(code, 202, "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_machine_runs_and_says_so_everywhere() {
    let (server, client) = node().await;
    create(&client, &empty("one")).await;
    let instance = running(&client, "one").await;
    assert!(qemu(&server, &instance).is_some(), "there is a QEMU");
    assert_eq!(instance["metadata"]["ownerReferences"][0]["kind"], "VirtualMachine");
    assert_eq!(instance["status"]["nodeName"], instance["metadata"]["labels"]["kubevirt.io/nodeName"]);
    let machine = status_becomes(&client, "one", "Running").await;
    assert!(is_true(&machine, "Ready"), "{machine}");
    assert_eq!(machine["status"]["ready"], true);
    assert_eq!(machine["status"]["created"], true);

    let kubectl = server.kubectl().expect("kubectl");
    let listed = kubectl.run(&["get", "vms"]).await.expect("kubectl runs");
    assert!(listed.stdout.contains("one") && listed.stdout.contains("Running"), "{}", listed.stdout);
    let listed = kubectl.run(&["get", "vmis", "-o", "wide"]).await.expect("kubectl runs");
    assert!(listed.stdout.contains("Running"), "{}", listed.stdout);
    let listed = croft_ok(&server, &["vm", "list"]).await.expect("croft vm list");
    assert!(listed.contains("one") && listed.contains("Running"), "{listed}");
    let shown = croft_ok(&server, &["vm", "show", "one"]).await.expect("croft vm show");
    assert!(shown.contains("Running"), "{shown}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn start_stop_restart_and_pause_do_what_they_say() {
    let (_server, client) = node().await;
    create(&client, &empty("one")).await;
    let first = running(&client, "one").await;

    let (code, text) = put(&client, "virtualmachines", "one", "start", &json!({})).await;
    assert_eq!(code, 409, "{text}");
    let (code, text) = put(&client, "virtualmachineinstances", "one", "unpause", &json!({})).await;
    assert_eq!(code, 409, "{text}");

    let (code, text) = put(&client, "virtualmachineinstances", "one", "pause", &json!({})).await;
    assert_eq!(code, 200, "{text}");
    let machine = status_becomes(&client, "one", "Paused").await;
    assert!(is_true(&machine, "Paused"), "{machine}");
    let (code, text) = put(&client, "virtualmachineinstances", "one", "unpause", &json!({})).await;
    assert_eq!(code, 200, "{text}");
    status_becomes(&client, "one", "Running").await;

    let (code, text) = put(&client, "virtualmachines", "one", "restart", &json!({})).await;
    assert_eq!(code, 202, "{text}");
    let path = format!("{INSTANCES}/one");
    let again = becomes(&client, &path, "running anew", patience(), |instance| {
        instance["status"]["phase"] == "Running" && instance["metadata"]["uid"] != first["metadata"]["uid"]
    });
    again.await;

    let (code, text) = put(&client, "virtualmachines", "one", "stop", &json!({})).await;
    assert_eq!(code, 202, "{text}");
    status_becomes(&client, "one", "Stopped").await;
    is_gone(&client, &path).await;
    let (code, text) = put(&client, "virtualmachines", "one", "stop", &json!({})).await;
    assert_eq!(code, 409, "{text}");
    started(&client, "one").await;
    running(&client, "one").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_qemu_is_treated_by_the_run_strategy() {
    let (server, client) = node().await;
    for (name, strategy) in [("always", "Always"), ("rerun", "RerunOnFailure"), ("once", "Once"), ("manual", "Manual")]
    {
        let mut machine = empty(name);
        machine["spec"]["runStrategy"] = json!(strategy);
        create(&client, &machine).await;
    }
    started(&client, "manual").await;
    for (name, runs_again) in [("always", true), ("rerun", true), ("once", false), ("manual", false)] {
        let before = running(&client, name).await;
        kill(qemu(&server, &before).expect("a QEMU"));
        let path = format!("{INSTANCES}/{name}");
        if runs_again {
            becomes(&client, &path, "running again", patience(), |instance| {
                instance["status"]["phase"] == "Running" && instance["metadata"]["uid"] != before["metadata"]["uid"]
            })
            .await;
        } else {
            becomes(&client, &path, "failed", patience(), |instance| instance["status"]["phase"] == "Failed").await;
            assert_eq!(instance(&client, name).await["metadata"]["uid"], before["metadata"]["uid"]);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn guests_outlive_the_server_and_are_adopted() {
    let (mut server, client) = node().await;
    for name in ["stays", "dies"] {
        create(&client, &empty(name)).await;
    }
    let (stays, dies) = (running(&client, "stays").await, running(&client, "dies").await);
    let pid = qemu(&server, &stays).expect("a QEMU");
    server.kill().expect("killed");
    assert_eq!(qemu(&server, &stays), Some(pid), "it runs on without us");
    // While nobody looks, one of them dies: as after a reboot of the host.
    kill(qemu(&server, &dies).expect("a QEMU"));
    server.restart().await.expect("it starts again");
    let client = server.client().expect("a client");
    let path = format!("{INSTANCES}/dies");
    becomes(&client, &path, "running anew", patience(), |instance| {
        instance["status"]["phase"] == "Running" && instance["metadata"]["uid"] != dies["metadata"]["uid"]
    })
    .await;
    let after = running(&client, "stays").await;
    assert_eq!(after["metadata"]["uid"], stays["metadata"]["uid"]);
    assert_eq!(qemu(&server, &after), Some(pid), "the same process, adopted");
    // It can be talked to as before.
    let paused = eventually("the adopted one is paused", async || {
        match put(&client, "virtualmachineinstances", "stays", "pause", &json!({})).await {
            (200, _) => Ok(()),
            (code, text) => Err(format!("{code}: {text}")),
        }
    });
    paused.await;
    status_becomes(&client, "stays", "Paused").await;
}

fn entries(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

/// The taps that the QEMU in the cgroup of a machine holds.
fn taps_of(uid: &str) -> Vec<String> {
    let read = |file: std::path::PathBuf| std::fs::read_to_string(file).unwrap_or_default();
    let groups = cgroups_naming(uid).into_iter();
    let processes = groups.map(|group| read(Path::new(&group).join("cgroup.procs")));
    let processes: Vec<String> = processes.flat_map(|all| all.lines().map(str::to_owned).collect::<Vec<_>>()).collect();
    let files = processes.iter().flat_map(|process| {
        let dir = Path::new("/proc").join(process).join("fdinfo");
        entries(&dir).into_iter().map(move |name| dir.join(name))
    });
    let tap = |text: String| text.lines().find_map(|line| line.strip_prefix("iff:").map(|name| name.trim().to_owned()));
    let mut taps: Vec<String> = files.map(read).filter_map(tap).collect();
    taps.dedup();
    taps
}

fn has_link(name: &str) -> bool {
    Path::new("/sys/class/net").join(name).exists()
}

fn cgroups_naming(uid: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut waiting = vec![std::path::PathBuf::from("/sys/fs/cgroup")];
    while let Some(dir) = waiting.pop() {
        for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                if entry.file_name().to_string_lossy().contains(uid) {
                    found.push(entry.path().display().to_string());
                }
                waiting.push(entry.path());
            }
        }
    }
    found
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deleted_machine_leaves_nothing_behind() {
    let (server, client) = node().await;
    let mut machine = empty("first");
    machine["spec"]["template"]["spec"]["domain"]["devices"] =
        json!({"interfaces": [{"name": "default", "masquerade": {}}]});
    machine["spec"]["template"]["spec"]["networks"] = json!([{"name": "default", "pod": {}}]);
    create(&client, &machine).await;
    running(&client, "first").await;
    let vms = server.run_dir().expect("a node").join("vms");

    let mut second = machine.clone();
    second["metadata"]["name"] = json!("second");
    create(&client, &second).await;
    let instance = running(&client, "second").await;
    let uid = instance["metadata"]["uid"].as_str().expect("a uid").to_owned();
    let taps = taps_of(&uid);
    assert!(!taps.is_empty() && taps.iter().all(|tap| has_link(tap)), "it has a tap: {taps:?}");
    assert!(!cgroups_naming(&uid).is_empty(), "it has a cgroup");
    assert_eq!(entries(&vms).len(), 2);
    client.delete(&format!("{MACHINES}/second")).await.expect("an answer").ok().expect("deleted");
    is_gone(&client, &format!("{MACHINES}/second")).await;
    is_gone(&client, &format!("{INSTANCES}/second")).await;

    let named: Vec<_> = processes().into_iter().filter(|(_, line)| line.contains(&uid)).collect();
    assert_eq!(named, [], "processes");
    assert_eq!(cgroups_naming(&uid), [] as [String; 0], "cgroups");
    assert_eq!(entries(&vms).len(), 1, "directories");
    assert!(!taps.iter().any(|tap| has_link(tap)), "links: {taps:?}");
    let scratch = server.data_dir().join("pool/scratch");
    assert!(!entries(&scratch).iter().any(|name| name.contains(&uid)), "scratch files");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_does_not_fit_is_explained_and_runs_once_it_does() {
    let (_server, client) = node().await;
    let mut machine = empty("large");
    machine["spec"]["template"]["spec"]["domain"]["memory"]["guest"] = json!("900Ti");
    create(&client, &machine).await;
    let machine = status_becomes(&client, "large", "ErrorUnschedulable").await;
    let scheduled = condition(&machine, "PodScheduled").expect("a condition");
    assert_eq!(scheduled["reason"], "Unschedulable");
    let message = scheduled["message"].as_str().unwrap_or_default();
    assert!(message.contains("0/1 nodes are available") && message.contains("memory"), "{message}");

    let mut picky = empty("picky");
    picky["spec"]["template"]["spec"]["nodeSelector"] = json!({"disk": "fast"});
    create(&client, &picky).await;
    status_becomes(&client, "picky", "ErrorUnschedulable").await;
    let node = node_name(&client).await;
    let labels = json!({"metadata": {"labels": {"disk": "fast"}}});
    client
        .patch(&format!("/api/v1/nodes/{node}"), "merge-patch", &labels)
        .await
        .expect("an answer")
        .ok()
        .expect("labelled");
    running(&client, "picky").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nonsense_is_refused_with_a_reason() {
    let (_server, client) = node().await;
    let cases: &[(&str, Value, &str)] = &[
        ("two strategies", json!({"spec": {"running": true}}), "mutually exclusive"),
        ("an unknown strategy", json!({"spec": {"runStrategy": "Sometimes"}}), "runStrategy"),
        (
            "a disk without a volume",
            json!({"spec": {"template": {"spec": {"domain": {"devices": {"disks": [{"name": "d", "disk": {"bus": "virtio"}}]}}}}}}),
            "disks[0]",
        ),
        (
            "an unknown bus",
            json!({"spec": {"template": {"spec": {"volumes": [{"name": "d", "emptyDisk": {"capacity": "1Gi"}}],
                "domain": {"devices": {"disks": [{"name": "d", "disk": {"bus": "floppy"}}]}}}}}}),
            "bus",
        ),
        (
            "a network that is not there",
            json!({"spec": {"template": {"spec": {"domain": {"devices": {"interfaces": [{"name": "x", "bridge": {}}]}}}}}}),
            "interfaces[0]",
        ),
        (
            "an impossible MAC address",
            json!({"spec": {"template": {"spec": {"networks": [{"name": "default", "pod": {}}],
                "domain": {"devices": {"interfaces": [{"name": "default", "masquerade": {}, "macAddress": "zz"}]}}}}}}),
            "MAC",
        ),
        ("no memory", json!({"spec": {"template": {"spec": {"domain": {"memory": {"guest": "0"}}}}}}), "memory"),
        (
            "a negative grace period",
            json!({"spec": {"template": {"spec": {"terminationGracePeriodSeconds": -1}}}}),
            "terminationGracePeriodSeconds must not be negative",
        ),
    ];
    for (what, change, expected) in cases {
        let mut machine = empty("bad");
        merge(&mut machine, change);
        let answer = client.post(MACHINES, &machine).await.expect("an answer");
        assert!(answer.status == 422 || answer.status == 400, "{what}: {} {}", answer.status, answer.text());
        assert!(answer.text().contains(expected), "{what}: {}", answer.text());
    }
    assert_eq!(client.get(MACHINES).await.expect("an answer").json()["items"], json!([]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn twenty_at_once_all_run_and_all_go() {
    let (server, client) = node().await;
    let creations = (0..20).map(|n| {
        let client = client.clone();
        async move { create(&client, &empty(&format!("vm-{n}"))).await }
    });
    futures::future::join_all(creations).await;
    for n in 0..20 {
        running(&client, &format!("vm-{n}")).await;
    }
    let answer = client.delete(MACHINES).await.expect("an answer");
    assert_eq!(answer.status, 200, "{}", answer.text());
    for n in 0..20 {
        is_gone(&client, &format!("{MACHINES}/vm-{n}")).await;
    }
    assert_eq!(entries(&server.run_dir().expect("a node").join("vms")), [] as [String; 0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_of_a_machine_that_does_not_run_are_refused() {
    let (server, client) = node().await;
    let mut machine = empty("halted");
    machine["spec"]["runStrategy"] = json!("Halted");
    create(&client, &machine).await;
    status_becomes(&client, "halted", "Stopped").await;
    for sub in ["console", "vnc"] {
        let path = subresource("virtualmachineinstances", "halted", sub);
        let refused = server.websocket(&path).await.expect("an answer").expect_err("refused");
        assert_eq!(refused.code, 404, "{}", refused.status);
        assert_eq!(refused.status["kind"], "Status", "{}", refused.status);
    }
    let path = subresource("virtualmachines", "halted", "portforward/22/tcp");
    let refused = server.websocket(&path).await.expect("an answer").expect_err("refused");
    assert_eq!(refused.code, 409, "{}", refused.status);
}
