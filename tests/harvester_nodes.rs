//! What Harvester's clients do with a node: cordon it, put it into maintenance mode, and ask what stands in the way.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;

use anyhow::ensure;
use croft_e2e::machines::{INSTANCES, MACHINES, create, empty, is_gone, node, status_becomes};
use croft_testkit::{Answer, Call, Client, Croft, Process, StoreKind, eventually, find_program};
use http::Method;
use serde_json::{Value, json};

const NODES: &str = "/v1/harvester/nodes";
const STATUS: &str = "harvesterhci.io/maintain-status";

async fn name_of_node(client: &Client) -> String {
    eventually("the node", async || {
        let list = client.get(NODES).await?.ok()?;
        let name = list["data"][0]["id"].as_str().map(str::to_owned);
        let is_ready = list["data"][0]["metadata"]["state"]["name"] == "active";
        name.filter(|_| is_ready).ok_or_else(|| anyhow::anyhow!("{list}"))
    })
    .await
}

async fn act(client: &Client, node: &str, action: &str, body: &Value) -> Answer {
    client.post(&format!("{NODES}/{node}?action={action}"), body).await.expect("an answer")
}

async fn node_becomes(client: &Client, name: &str, what: &str, is_so: impl Fn(&Value) -> bool) -> Value {
    eventually(what, async || {
        let node = client.get(&format!("/api/v1/nodes/{name}")).await?.ok()?;
        ensure!(is_so(&node), "{node}");
        Ok(node)
    })
    .await
}

fn actions(node: &Value) -> Vec<&str> {
    node["actions"].as_object().into_iter().flat_map(|actions| actions.keys()).map(String::as_str).collect()
}

fn is_drained(node: &Value) -> Option<&str> {
    let mut conditions = node["status"]["conditions"].as_array().into_iter().flatten();
    conditions.find(|condition| condition["type"] == "Drained").and_then(|condition| condition["status"].as_str())
}

async fn machine(client: &Client, name: &str, strategy: &str) {
    let mut machine = empty(name);
    if !strategy.is_empty() {
        machine["metadata"]["labels"] = json!({"harvesterhci.io/maintain-mode-strategy": strategy});
    }
    create(client, &machine).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_goes_into_maintenance_and_comes_back() {
    let (mut server, client) = node().await;
    let name = name_of_node(&client).await;
    for (machine_name, strategy) in [
        ("back", "ShutdownAndRestartAfterDisable"),
        ("again", "ShutdownAndRestartAfterEnable"),
        ("off", "Shutdown"),
        ("plain", ""),
    ] {
        machine(&client, machine_name, strategy).await;
    }
    for machine in ["back", "again", "off", "plain"] {
        status_becomes(&client, machine, "Running").await;
    }

    // Not without force: there is nowhere to go.
    for (action, body) in [
        ("enableMaintenanceMode", json!({})),
        ("enableMaintenanceMode", json!({"force": "false"})),
        ("maintenancePossible", json!({})),
    ] {
        let answer = act(&client, &name, action, &body).await;
        assert_eq!(answer.status, 400, "{action}: {}", answer.text());
        assert!(answer.text().contains("on the last available node"), "{}", answer.text());
    }
    let blocking = act(&client, &name, "listUnhealthyVM", &json!({})).await;
    assert_eq!(blocking.status, 200, "{}", blocking.text());
    let blocking = blocking.json();
    assert_eq!(blocking[0]["vms"], json!(["default/plain"]), "{blocking}");
    assert!(blocking[0]["message"].as_str().is_some_and(|message| !message.is_empty()), "{blocking}");
    for machine in ["back", "again", "off", "plain"] {
        status_becomes(&client, machine, "Running").await;
    }

    let answer = act(&client, &name, "enableMaintenanceMode", &json!({"force": "true"})).await;
    assert_eq!(answer.status, 204, "{}", answer.text());
    let drained = node_becomes(&client, &name, "the node is empty", |node| {
        node["metadata"]["annotations"][STATUS] == "completed" && is_drained(node) == Some("True")
    })
    .await;
    assert_eq!(drained["spec"]["unschedulable"], true, "{drained}");
    assert_eq!(drained["spec"]["taints"][0]["key"], "kubevirt.io/drain", "{drained}");
    for machine in ["back", "off", "plain"] {
        is_gone(&client, &format!("{INSTANCES}/{machine}")).await;
        status_becomes(&client, machine, "Stopped").await;
    }
    // This one may run elsewhere at once, if there were an elsewhere; so may a new one.
    machine(&client, "late", "").await;
    status_becomes(&client, "again", "ErrorUnschedulable").await;
    status_becomes(&client, "late", "ErrorUnschedulable").await;
    for (action, words) in [("enableMaintenanceMode", "already"), ("uncordon", "maintenance mode")] {
        let answer = act(&client, &name, action, &json!({"force": "true"})).await;
        assert_eq!(answer.status, 409, "{action}: {}", answer.text());
        assert!(answer.text().contains(words), "{}", answer.text());
    }
    let shown = client.get(&format!("{NODES}/{name}")).await.expect("an answer").ok().expect("the node");
    assert_eq!(actions(&shown), ["disableMaintenanceMode", "listUnhealthyVM"]);

    // It outlives the server.
    server.restart().await.expect("it starts again");
    let client = server.client().expect("a client");
    let answer = act(&client, &name, "disableMaintenanceMode", &json!({})).await;
    assert_eq!(answer.status, 204, "{}", answer.text());
    for machine in ["back", "again", "late"] {
        status_becomes(&client, machine, "Running").await;
    }
    let open = node_becomes(&client, &name, "the node is open", |node| is_drained(node) == Some("False")).await;
    assert!(open["spec"]["unschedulable"].is_null() && open["metadata"]["annotations"][STATUS].is_null(), "{open}");
    assert_eq!(open["spec"]["taints"].as_array().map_or(0, Vec::len), 0, "{open}");
    for machine in ["off", "plain"] {
        status_becomes(&client, machine, "Stopped").await;
    }
    let back = client.get(&format!("{MACHINES}/back")).await.expect("an answer").ok().expect("the machine");
    assert_eq!(back["spec"]["runStrategy"], "Always", "{back}");
    assert!(back["metadata"]["annotations"]["harvesterhci.io/maintain-mode-strategy-node-name"].is_null(), "{back}");
    assert_eq!(act(&client, &name, "disableMaintenanceMode", &json!({})).await.status, 409);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cordoning_and_what_a_node_cannot_do() {
    let (_server, client) = node().await;
    let name = name_of_node(&client).await;
    let shown = client.get(&format!("{NODES}/{name}")).await.expect("an answer").ok().expect("the node");
    assert_eq!(actions(&shown), ["cordon", "enableMaintenanceMode", "listUnhealthyVM", "maintenancePossible"]);
    for (action, body, code, words) in [
        ("cordon", json!({}), 400, "last available node"),
        ("enableMaintenanceMode", json!({"force": "maybe"}), 422, "force"),
        ("powerActionPossible", json!({}), 424, "harvester-seeder"),
        ("powerAction", json!({"operation": "reboot"}), 424, "harvester-seeder"),
        ("powerAction", json!({"operation": "dance"}), 422, "operation"),
        ("enableCPUManager", json!({}), 400, "label cpumanager not found"),
        ("disableCPUManager", json!({}), 400, "already the same"),
        ("uncork", json!({}), 404, "no action"),
    ] {
        let answer = act(&client, &name, action, &body).await;
        assert_eq!(answer.status, code, "{action}: {}", answer.text());
        assert!(answer.text().contains(words), "{action}: {}", answer.text());
    }
    assert_eq!(act(&client, "nowhere", "cordon", &json!({})).await.status, 404);
    let stranger = Call::new(Method::POST, &format!("{NODES}/{name}?action=cordon")).header("impersonate-user", "jane");
    assert_eq!(client.send(stranger).await.expect("an answer").status, 403);

    // With another node that could take machines, this one can be closed; nothing starts there then.
    let other = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "other"}});
    client.post("/api/v1/nodes", &other).await.expect("an answer").ok().expect("a node");
    let ready = json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}});
    client.patch("/api/v1/nodes/other/status", "merge-patch", &ready).await.expect("an answer").ok().expect("ready");
    let answer = act(&client, &name, "cordon", &json!({})).await;
    assert_eq!(answer.status, 204, "{}", answer.text());
    machine(&client, "waits", "").await;
    status_becomes(&client, "waits", "ErrorUnschedulable").await;
    let shown = client.get(&format!("{NODES}/{name}")).await.expect("an answer").ok().expect("the node");
    assert!(actions(&shown).contains(&"uncordon"), "{shown}");
    assert_eq!(act(&client, &name, "uncordon", &json!({})).await.status, 204);
    status_becomes(&client, "waits", "Running").await;

    // A machine that runs and cannot be moved blocks what is not forced.
    let answer = act(&client, &name, "maintenancePossible", &json!({})).await;
    assert_eq!(answer.status, 409, "{}", answer.text());
    assert!(answer.text().contains("default/waits"), "{}", answer.text());
}

/// A program of chrony's: installed, or unpacked by `scripts/chrony`.
fn chrony(name: &str) -> PathBuf {
    let target = croft_testkit::binary().expect("the server is built");
    let unpacked = target.ancestors().nth(2).expect("a target directory").join("chrony");
    let places = [unpacked.join("usr/sbin").join(name), unpacked.join("usr/bin").join(name)];
    let found = find_program(name).or_else(|| places.into_iter().find(|file| file.is_file()));
    found.unwrap_or_else(|| panic!("no {name}: `scripts/chrony {}` unpacks it", unpacked.display()))
}

/// A chronyd that leaves the clock alone, configured below `dir` as Debian's is below /etc.
fn chronyd(dir: &std::path::Path) -> Process {
    let (etc, sources) = (dir.join("chrony"), dir.join("chrony/sources.d"));
    std::fs::create_dir_all(&sources).expect("a directory");
    let config = format!(
        "sourcedir {}\nbindcmdaddress {1}/chronyd.sock\npidfile {1}/pid\ncmdport 0\nport 0\nuser root\n",
        sources.display(),
        dir.display(),
    );
    std::fs::write(etc.join("chrony.conf"), config).expect("written");
    let mut command = Command::new(chrony("chronyd"));
    command.args(["-d", "-x", "-U", "-f"]).arg(etc.join("chrony.conf"));
    Process::spawn("chronyd", command, &dir.join("log")).expect("chronyd starts")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_hosts_clock_follows_the_chosen_servers() {
    const SETTING: &str = "/apis/harvesterhci.io/v1beta1/settings/ntp-servers";
    let dir = tempfile::Builder::new().prefix("croft-").tempdir_in("/tmp").expect("a directory");
    // Chrony takes commands in a directory of its own alone.
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o700)).expect("its permissions");
    let _daemon = chronyd(dir.path());
    let chronyc = chrony("chronyc");
    let path = format!("PATH={}:{}", chronyc.parent().expect("its directory").display(), env!("PATH"));
    let etc = format!("--etc-dir={}", dir.path().display());
    let server =
        Croft::start_node_under(StoreKind::Embedded, &["env", &path], &[&etc]).await.expect("the server starts");
    let client = server.client().expect("a client");
    let name = name_of_node(&client).await;

    let told = |node: &Value| -> Value {
        let text = node["metadata"]["annotations"]["node.harvesterhci.io/ntp-service"].as_str().unwrap_or("null");
        serde_json::from_str(text).expect("JSON")
    };
    let asked = || {
        let socket = dir.path().join("chronyd.sock");
        let sources =
            Command::new(&chronyc).arg("-h").arg(socket).args(["-c", "-N", "sources", "-a"]).output().expect("chronyc");
        String::from_utf8(sources.stdout).expect("text")
    };
    for servers in [&["192.0.2.1", "ntp.example.invalid"][..], &["192.0.2.2"], &[]] {
        let value = if servers.is_empty() { String::new() } else { json!({"ntpServers": servers}).to_string() };
        client.patch(SETTING, "merge-patch", &json!({"value": value})).await.expect("an answer").ok().expect("set");
        let expected = json!({"ntpSyncStatus": "unsynced", "currentNtpServers": servers.join(" ")});
        // Nobody answers, but chrony asks them, and no others.
        node_becomes(&client, &name, "the servers in the annotation", |node| told(node) == expected).await;
        let found: Vec<String> = asked().lines().filter_map(|line| line.split(',').nth(2).map(str::to_owned)).collect();
        assert_eq!(found, servers);
    }
    assert!(!dir.path().join("chrony/sources.d/croft.sources").exists());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_shows_its_links_and_its_disks() {
    let (_server, client) = node().await;
    let name = name_of_node(&client).await;
    let monitors = "/apis/network.harvesterhci.io/v1beta1/linkmonitors";
    let all = json!({"apiVersion": "network.harvesterhci.io/v1beta1", "kind": "LinkMonitor", "metadata": {"name": "all"}, "spec": {}});
    let elsewhere = json!({"apiVersion": "network.harvesterhci.io/v1beta1", "kind": "LinkMonitor",
        "metadata": {"name": "elsewhere"}, "spec": {"nodeSelector": {"rack": "none"}}});
    for monitor in [all, elsewhere] {
        client.post(monitors, &monitor).await.expect("an answer").ok().expect("a monitor");
    }
    // Other tests make and remove links all the time; the loopback one is never shown.
    let shown = async |monitor: &str| {
        let monitor = client.get(&format!("{monitors}/{monitor}")).await?.ok()?;
        let links = monitor["status"]["linkStatus"][&name].as_array().cloned();
        links.ok_or_else(|| anyhow::anyhow!("{monitor}"))
    };
    let links = eventually("all links", async || shown("all").await).await;
    assert!(links.iter().all(|link| link["name"] != "lo" && link["index"].is_i64() && link["state"].is_string()));
    let cards = eventually("the cards", async || shown("nic").await).await;
    assert!(cards.iter().all(|card| card["type"] == "device"), "{cards:?}");
    let real =
        |card: &&Value| std::path::Path::new("/sys/class/net").join(card["name"].as_str().unwrap_or("-")).exists();
    assert_eq!(cards.iter().filter(real).count(), cards.len(), "{cards:?}");
    eventually("what the management network stands on", async || shown("mgmt").await).await;
    assert!(shown("elsewhere").await.is_err());

    let disks = format!("/apis/longhorn.io/v1beta2/namespaces/longhorn-system/nodes/{name}");
    let longhorn = eventually("Longhorn's node", async || {
        let node = client.get(&disks).await?.ok()?;
        ensure!(node["status"]["diskStatus"]["default-disk"]["storageMaximum"].as_u64() > Some(0), "{node}");
        Ok::<_, anyhow::Error>(node)
    })
    .await;
    assert_eq!(longhorn["spec"]["disks"]["default-disk"]["allowScheduling"], true, "{longhorn}");
    let ready = &longhorn["status"]["conditions"][0];
    assert_eq!((&ready["type"], &ready["status"]), (&json!("Ready"), &json!("True")), "{longhorn}");
}
