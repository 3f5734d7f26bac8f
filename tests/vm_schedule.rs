//! Where machines without an operating system run and why not, what they may use, and what a reboot leaves of them.

use std::collections::BTreeSet;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use croft_e2e::machines::{
    BOOT, CLAIMS, INSTANCES, MACHINES, becomes, condition, create, empty, is_gone, node_name, qemus, running,
    status_becomes,
};
use croft_e2e::outside::{ip, run};
use croft_testkit::{Client, Croft, StoreKind, patience};
use serde_json::{Value, json};

const SETTINGS: &str = "/apis/harvesterhci.io/v1beta1/settings";

async fn node() -> (Croft, Client, String) {
    let server = Croft::start_node(StoreKind::Embedded, &[]).await.expect("the server starts");
    let client = server.client().expect("a client");
    let node = node_name(&client).await;
    (server, client, format!("/api/v1/nodes/{node}"))
}

async fn patched(client: &Client, path: &str, patch: &Value) -> Value {
    client.patch(path, "merge-patch", patch).await.expect("an answer").ok().expect("patched")
}

async fn deleted(client: &Client, name: &str) {
    client.delete(&format!("{MACHINES}/{name}")).await.expect("an answer").ok().expect("deleted");
    is_gone(client, &format!("{INSTANCES}/{name}")).await;
}

/// The machine waits, and says why in words that contain these.
async fn waits(client: &Client, name: &str, expected: &str) {
    let path = format!("{MACHINES}/{name}");
    becomes(client, &path, expected, patience(), |machine| {
        machine["status"]["printableStatus"] == "ErrorUnschedulable"
            && condition(machine, "PodScheduled").is_some_and(|it| it["message"].to_string().contains(expected))
    })
    .await;
}

/// A machine with other things in its template's spec.
fn with(name: &str, changes: &Value) -> Value {
    let mut machine = empty(name);
    let spec = machine["spec"]["template"]["spec"].as_object_mut().expect("an object");
    spec.extend(changes.as_object().expect("an object").clone());
    machine
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_takes_who_belongs_there() {
    let (_server, client, node) = node().await;

    // Cordoned: waits with a reason, runs once it is not.
    patched(&client, &node, &json!({"spec": {"unschedulable": true}})).await;
    create(&client, &empty("patient")).await;
    waits(&client, "patient", "unschedulable").await;
    patched(&client, &node, &json!({"spec": {"unschedulable": false}})).await;
    running(&client, "patient").await;

    // Labels that are required, and those that are only wished for.
    let required = json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
        {"nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}]}}}});
    create(&client, &with("zoned", &required)).await;
    waits(&client, "zoned", "node affinity").await;
    let preferred = json!({"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution":
        [{"weight": 1, "preference": {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["b"]}]}}]}}});
    create(&client, &with("modest", &preferred)).await;
    running(&client, "modest").await;
    patched(&client, &node, &json!({"metadata": {"labels": {"zone": "a"}}})).await;
    running(&client, "zoned").await;

    // Apart from each other, and together.
    let term = |app: &str| {
        json!({"requiredDuringSchedulingIgnoredDuringExecution":
        [{"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": "kubernetes.io/hostname"}]})
    };
    let labelled = |name: &str, app: &str, affinity: Value| {
        let mut machine = with(name, &json!({ "affinity": affinity }));
        machine["spec"]["template"]["metadata"] = json!({"labels": {"app": app}});
        machine
    };
    create(&client, &labelled("db-1", "db", json!({"podAntiAffinity": term("db")}))).await;
    running(&client, "db-1").await;
    create(&client, &labelled("db-2", "db", json!({"podAntiAffinity": term("db")}))).await;
    waits(&client, "db-2", "anti-affinity").await;
    create(&client, &labelled("web", "web", json!({"podAffinity": term("db")}))).await;
    running(&client, "web").await;
    create(&client, &labelled("lonely", "x", json!({"podAffinity": term("nobody")}))).await;
    waits(&client, "lonely", "affinity").await;
    deleted(&client, "db-1").await;
    running(&client, "db-2").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn taints_keep_away_and_drive_out() {
    let (_server, client, node) = node().await;
    let taint = |effect: &str| json!({"spec": {"taints": [{"key": "upkeep", "value": "yes", "effect": effect}]}});
    let tolerant = |name: &str, seconds: Option<i64>| {
        let mut toleration = json!({"key": "upkeep", "operator": "Exists"});
        if let Some(seconds) = seconds {
            toleration["effect"] = json!("NoExecute");
            toleration["tolerationSeconds"] = json!(seconds);
        }
        with(name, &json!({"tolerations": [toleration]}))
    };
    create(&client, &empty("early")).await;
    let early = running(&client, "early").await;
    patched(&client, &node, &taint("NoSchedule")).await;
    create(&client, &empty("late")).await;
    waits(&client, "late", "upkeep").await;
    create(&client, &tolerant("tolerant", None)).await;
    create(&client, &tolerant("a-while", Some(2))).await;
    let tolerant = running(&client, "tolerant").await;
    // Who was there before stays, until the taint drives out.
    assert_eq!(running(&client, "early").await["metadata"]["uid"], early["metadata"]["uid"]);
    patched(&client, &node, &taint("NoExecute")).await;
    let path = format!("{INSTANCES}/early");
    becomes(&client, &path, "driven out", patience(), |instance| {
        instance["metadata"]["uid"] != early["metadata"]["uid"] && instance["status"]["phase"] != "Running"
    })
    .await;
    waits(&client, "early", "upkeep").await;
    waits(&client, "late", "upkeep").await;
    assert_eq!(running(&client, "tolerant").await["metadata"]["uid"], tolerant["metadata"]["uid"]);
    patched(&client, &node, &json!({"spec": {"taints": null}})).await;
    for name in ["early", "late", "a-while"] {
        running(&client, name).await;
    }
}

/// What a machine asks for follows from its limits by Harvester's ratios, and that decides what fits.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn overcommitment_decides_what_fits_and_the_important_come_first() {
    let (_server, client, node) = node().await;
    let known = client.get(&node).await.expect("an answer").ok().expect("the node");
    let cores: u64 = known["status"]["capacity"]["cpu"].as_str().and_then(|cpu| cpu.parse().ok()).expect("cores");
    let limited = |name: &str, cpu: u64| {
        let mut machine = empty(name);
        let domain = &mut machine["spec"]["template"]["spec"]["domain"];
        domain["resources"] =
            json!({"limits": {"cpu": cpu.to_string(), "memory": "64Mi"}, "overcommitGuestOverhead": true});
        machine
    };
    // Ten virtual cores on a real one, unless somebody says otherwise.
    create(&client, &limited("plenty", cores * 4)).await;
    let instance = running(&client, "plenty").await;
    let asked = &instance["spec"]["domain"]["resources"]["requests"]["cpu"];
    assert_eq!(*asked, format!("{}m", cores * 400), "{asked}");
    deleted(&client, "plenty").await;
    let setting = format!("{SETTINGS}/overcommit-config");
    let too_little = json!({"value": "{\"cpu\":50,\"memory\":150,\"storage\":100}"});
    let refused = client.patch(&setting, "merge-patch", &too_little).await.expect("an answer");
    assert!(refused.status >= 400 && refused.text().contains("undercommit"), "{}", refused.text());
    patched(&client, &setting, &json!({"value": "{\"cpu\":100,\"memory\":100,\"storage\":100}"})).await;
    create(&client, &limited("greedy", cores * 4)).await;
    waits(&client, "greedy", "Insufficient cpu").await;

    // Two wait for the same room; the one with the higher priority gets it, though it came later.
    let class = json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "vital"}, "value": 1000});
    client.post("/apis/scheduling.k8s.io/v1/priorityclasses", &class).await.expect("an answer").ok().expect("a class");
    let free = known["status"]["allocatable"]["cpu"].as_str().expect("an amount").to_owned();
    let whole = |name: &str, class: &str| {
        let mut machine = with(name, &json!({"priorityClassName": class}));
        machine["spec"]["template"]["spec"]["domain"]["resources"]["requests"]["cpu"] = json!(free);
        machine
    };
    create(&client, &whole("holder", "")).await;
    running(&client, "holder").await;
    create(&client, &whole("humble", "")).await;
    waits(&client, "humble", "Insufficient cpu").await;
    create(&client, &whole("vital", "vital")).await;
    waits(&client, "vital", "Insufficient cpu").await;
    // Nothing that runs is stopped to make room.
    running(&client, "holder").await;
    deleted(&client, "holder").await;
    running(&client, "vital").await;
    waits(&client, "humble", "Insufficient cpu").await;
}

fn entries(dir: &Path) -> BTreeSet<String> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

/// Directories of control groups that are named after one of these instances.
fn cgroups_of(uids: &BTreeSet<String>) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut waiting = vec![PathBuf::from("/sys/fs/cgroup")];
    while let Some(dir) = waiting.pop() {
        for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                if uids.iter().any(|uid| entry.file_name().to_string_lossy().contains(uid.as_str())) {
                    found.push(entry.path());
                }
                waiting.push(entry.path());
            }
        }
    }
    found
}

fn kill(pid: u32) {
    let pid = rustix::process::Pid::from_raw(i32::try_from(pid).expect("a pid")).expect("a pid");
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).expect("killed");
}

/// A hundred, with interfaces; the server is killed while they come, and again while they go.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_come_and_go_though_the_server_is_killed() {
    const COUNT: usize = 100;
    let (mut server, client, _) = node().await;
    let links_before = entries(Path::new("/sys/class/net"));
    let machine = |n: usize| {
        let mut machine = empty(&format!("vm-{n}"));
        let spec = &mut machine["spec"]["template"]["spec"];
        spec["domain"]["devices"] = json!({"interfaces": [{"name": "default", "masquerade": {}}],
            "autoattachGraphicsDevice": false, "autoattachMemBalloon": false});
        spec["networks"] = json!([{"name": "default", "pod": {}}]);
        machine
    };
    let machines: Vec<Value> = (0..COUNT).map(machine).collect();
    futures::future::join_all(machines.iter().map(|machine| create(&client, machine))).await;
    let some_run = croft_testkit::eventually_within(BOOT, async || match qemus(&server).len() {
        count if count >= COUNT / 4 => Ok(()),
        count => Err(count),
    });
    some_run.await.expect("a quarter runs");
    server.kill().expect("killed");
    server.restart().await.expect("it starts again");
    let client = server.client().expect("a client");
    let all_run = async |client: &Client| {
        let running = croft_testkit::eventually_within(BOOT, async || {
            let list = client.get(INSTANCES).await.map_err(|err| err.to_string())?.json();
            let items = list["items"].as_array().cloned().unwrap_or_default();
            let running: Vec<Value> = items.into_iter().filter(|one| one["status"]["phase"] == "Running").collect();
            if running.len() == COUNT { Ok(running) } else { Err(format!("{} run", running.len())) }
        });
        running.await.expect("all run")
    };
    let instances = all_run(&client).await;
    let uids: BTreeSet<String> =
        instances.iter().filter_map(|one| one["metadata"]["uid"].as_str().map(str::to_owned)).collect();
    let found: BTreeSet<String> = qemus(&server).into_keys().collect();
    assert_eq!(found, uids, "one QEMU for each, and none besides");

    assert_eq!(client.delete(MACHINES).await.expect("an answer").status, 200);
    server.kill().expect("killed");
    server.restart().await.expect("it starts again");
    let client = server.client().expect("a client");
    for path in [MACHINES, INSTANCES] {
        becomes(&client, path, "empty", BOOT, |list| list["items"] == json!([])).await;
    }
    assert_eq!(entries(&server.run_dir().expect("a node").join("vms")), BTreeSet::new(), "directories");
    assert_eq!(cgroups_of(&uids), [] as [PathBuf; 0], "control groups");
    assert_eq!(qemus(&server).len(), 0, "processes");
    let records = entries(&server.data_dir().join("network/interfaces"));
    assert_eq!(records, BTreeSet::new(), "addresses");
    let new_links: Vec<String> = entries(Path::new("/sys/class/net")).difference(&links_before).cloned().collect();
    let bridge = bridge_of(&server);
    let taps: Vec<&String> = new_links.iter().filter(|link| link.contains(&bridge[6..])).collect();
    assert!(taps.iter().all(|link| **link == bridge), "links: {taps:?}");
}

/// The bridge of the default network, by the node's own word.
fn bridge_of(server: &Croft) -> String {
    let subnet = std::fs::read_to_string(server.data_dir().join("network/subnet.json")).expect("a subnet");
    let subnet: Value = serde_json::from_str(&subnet).expect("JSON");
    let network = subnet["v4"].as_str().expect("a subnet").split('/').next().expect("an address").to_owned();
    let gateway = format!("{}1", network.strip_suffix('0').expect("it ends in 0"));
    let shown = ip("-o -4 addr show").expect("addresses");
    let line = shown.lines().find(|line| line.contains(&format!(" {gateway}/"))).expect("the gateway");
    line.split_whitespace().nth(1).expect("a link").to_owned()
}

/// Wishes that one node cannot grant keep nobody from running, and what is to be done in a drain is kept for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wishes_are_not_demands() {
    let (_server, client, _) = node().await;
    let term = |key: &str| {
        json!({"weight": 100, "podAffinityTerm": {"topologyKey": "kubernetes.io/hostname",
            "labelSelector": {"matchLabels": {"app": key}}}})
    };
    let preferred = |term: Value| json!({"preferredDuringSchedulingIgnoredDuringExecution": [term]});
    // Apart from its like, which is on the only node there is, and together with what is nowhere.
    let affinity = json!({"podAntiAffinity": preferred(term("same")), "podAffinity": preferred(term("nobody"))});
    for (name, strategy) in
        [("first", "LiveMigrate"), ("second", "LiveMigrateIfPossible"), ("third", "None"), ("fourth", "External")]
    {
        let mut machine = with(name, &json!({"affinity": affinity, "evictionStrategy": strategy}));
        machine["spec"]["template"]["metadata"] = json!({"labels": {"app": "same"}});
        create(&client, &machine).await;
        let instance = running(&client, name).await;
        assert_eq!(instance["spec"]["evictionStrategy"], strategy, "{instance}");
        assert_eq!(condition(&instance, "LiveMigratable").map(|it| &it["status"]), Some(&json!("False")), "{instance}");
    }
    let wrong = with("wrong", &json!({"evictionStrategy": "Flee"}));
    let refused = client.post(MACHINES, &wrong).await.expect("an answer");
    assert_eq!(refused.status, 422, "{}", refused.text());
    assert!(refused.text().contains("evictionStrategy is set with an unrecognized option: Flee"), "{}", refused.text());
    // Demanded, the same keeps a machine waiting.
    let demanded = json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
        term("same")["podAffinityTerm"].clone()]}});
    create(&client, &with("fifth", &json!({"affinity": demanded}))).await;
    waits(&client, "fifth", "anti-affinity").await;
}

/// What a QEMU may do on this host: nothing but be a machine.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn machines_are_kept_apart() {
    let (server, client, _) = node().await;
    for name in ["one", "two"] {
        let claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name},
            "spec": {"accessModes": ["ReadWriteOnce"], "volumeMode": "Block", "resources": {"requests": {"storage": "64Mi"}}}});
        client.post(CLAIMS, &claim).await.expect("an answer").ok().expect("a claim");
        let mut machine =
            with(name, &json!({"volumes": [{"name": "disk", "persistentVolumeClaim": {"claimName": name}}]}));
        machine["spec"]["template"]["spec"]["domain"]["devices"]["disks"] =
            json!([{"name": "disk", "disk": {"bus": "virtio"}}]);
        machine["spec"]["template"]["spec"]["domain"]["resources"]["limits"] = json!({"cpu": "500m"});
        create(&client, &machine).await;
    }
    let mut users = BTreeSet::new();
    let mut disks = Vec::new();
    for name in ["one", "two"] {
        let instance = running(&client, name).await;
        let uid = instance["metadata"]["uid"].as_str().expect("a uid").to_owned();
        let pid = qemus(&server)[&uid];
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("a process");
        let field =
            |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default().trim().to_owned();
        let user: u32 = field("Uid:").split_whitespace().next().and_then(|uid| uid.parse().ok()).expect("a user");
        assert!(user >= 2_000_000_000, "{user}");
        assert_eq!(instance["status"]["runtimeUser"], user);
        assert!(users.insert(user), "a user of its own");
        for caps in ["CapPrm:", "CapEff:", "CapInh:", "CapAmb:"] {
            assert_eq!(field(caps), "0000000000000000", "{caps}");
        }
        assert_eq!((field("NoNewPrivs:").as_str(), field("Seccomp:").as_str()), ("1", "2"));
        let line = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).expect("a command line").replace('\0', " ");
        assert!(line.contains("-sandbox on"), "{line}");
        let dir = server.run_dir().expect("a node").join("vms").join(&uid);
        let meta = std::fs::metadata(&dir).expect("a directory");
        assert_eq!((meta.permissions().mode() & 0o777, meta.uid()), (0o700, 0), "{}", dir.display());
        let groups = cgroups_of(&BTreeSet::from([uid.clone()]));
        let has = |file: &str| groups.iter().find_map(|dir| std::fs::read_to_string(dir.join(file)).ok());
        let memory = has("memory.max").or_else(|| has("memory.limit_in_bytes")).expect("a limit of memory");
        assert!(memory.trim().parse::<u64>().is_ok_and(|bytes| bytes < 2 << 30), "{memory}");
        let cpu = has("cpu.max").or_else(|| has("cpu.cfs_quota_us")).expect("a limit of processors");
        assert!(
            cpu.trim().split(' ').next().is_some_and(|quota| quota.parse::<i64>().is_ok_and(|quota| quota > 0)),
            "{cpu}"
        );
        let pids = has("cgroup.procs").expect("processes");
        assert!(pids.lines().any(|one| one == pid.to_string()), "{pids}");
        let open = std::fs::read_dir(format!("/proc/{pid}/fd")).expect("descriptors").flatten();
        let files = open.filter_map(|fd| std::fs::read_link(fd.path()).ok());
        let disk = files.filter(|file| file.starts_with(server.data_dir())).find(|file| file.is_file());
        disks.push((user, disk.expect("a disk")));
    }
    // Neither can open the other's disk, nor its own by its name.
    for (user, _) in &disks {
        for (_, disk) in &disks {
            let tried = Command::new("setpriv")
                .args([&format!("--reuid={user}"), &format!("--regid={user}"), "--clear-groups", "head", "-c", "1"])
                .arg(disk)
                .output()
                .expect("setpriv");
            let said = String::from_utf8_lossy(&tried.stderr).into_owned();
            assert!(!tried.status.success() && said.contains("ermission denied"), "{user} {}: {said}", disk.display());
        }
    }
}

/// Which address each machine has: the node keeps them in a file for each.
fn indexes(server: &Croft) -> BTreeSet<(String, u64)> {
    let dir = server.data_dir().join("network/interfaces");
    let read = |name: &String| -> Option<(String, u64)> {
        let record: Value = serde_json::from_str(&std::fs::read_to_string(dir.join(name)).ok()?).ok()?;
        Some((record["key"]["vm_name"].as_str()?.to_owned(), record["index"].as_u64()?))
    };
    entries(&dir).iter().filter_map(read).collect()
}

/// What a reboot takes: processes, run directory, links, rules. Those that ran run again, those that were halted do not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_reboot_what_should_run_runs() {
    let (mut server, client, _) = node().await;
    for (name, strategy) in [("always", "Always"), ("rerun", "RerunOnFailure"), ("halted", "Halted")] {
        let mut machine = empty(name);
        machine["spec"]["runStrategy"] = json!(strategy);
        let spec = &mut machine["spec"]["template"]["spec"];
        spec["domain"]["devices"] = json!({"interfaces": [{"name": "default", "masquerade": {}}]});
        spec["networks"] = json!([{"name": "default", "pod": {}}]);
        create(&client, &machine).await;
    }
    let before = [running(&client, "always").await, running(&client, "rerun").await];
    let addresses = indexes(&server);
    assert_eq!(addresses.len(), 2, "{addresses:?}");
    let bridge = bridge_of(&server);
    let pids: Vec<u32> = qemus(&server).into_values().collect();
    server.kill().expect("killed");
    pids.into_iter().for_each(kill);
    ip(&format!("link del {bridge}")).expect("no bridge");
    for family in ["inet", "bridge"] {
        run("nft", &format!("delete table {family} {bridge}")).expect("no rules");
    }
    let run_dir = server.run_dir().expect("a node").to_owned();
    for entry in std::fs::read_dir(&run_dir).expect("a directory").flatten() {
        std::fs::remove_dir_all(entry.path()).expect("wiped");
    }
    server.restart().await.expect("it starts again");
    let client = server.client().expect("a client");
    for old in before {
        let name = old["metadata"]["name"].as_str().expect("a name").to_owned();
        let path = format!("{INSTANCES}/{name}");
        becomes(&client, &path, "running anew", patience(), |instance| {
            instance["status"]["phase"] == "Running" && instance["metadata"]["uid"] != old["metadata"]["uid"]
        })
        .await;
    }
    status_becomes(&client, "halted", "Stopped").await;
    assert_eq!(client.get(&format!("{INSTANCES}/halted")).await.expect("an answer").status, 404);
    assert_eq!(indexes(&server), addresses, "the same addresses");
    assert_eq!(bridge_of(&server), bridge);
}
