//! What can be asked of a machine beside its object, as virtctl asks it: answers, and refusals in KubeVirt's words.

use std::time::Duration;

use croft_e2e::machines::{
    CLAIMS, INSTANCES, MACHINES, becomes, condition, create, empty, is_true, node, running, status_becomes, subresource,
};
use croft_testkit::{Client, Croft, eventually, patience};
use serde_json::{Value, json};

const VM: &str = "virtualmachines";
const VMI: &str = "virtualmachineinstances";
const GROUP: &str = "/apis/subresources.kubevirt.io/v1";

async fn put(client: &Client, kind: &str, name: &str, sub: &str, body: &Value) -> (u16, String) {
    let answer = client.put(&subresource(kind, name, sub), body).await.expect("an answer");
    (answer.status, answer.text())
}

async fn get(client: &Client, kind: &str, name: &str, sub: &str) -> (u16, String) {
    let answer = client.get(&subresource(kind, name, sub)).await.expect("an answer");
    (answer.status, answer.text())
}

fn refused(what: &str, (code, text): (u16, String), expected: u16, words: &str) {
    assert_eq!(code, expected, "{what}: {text}");
    let status: Value = serde_json::from_str(&text).unwrap_or_else(|_| panic!("{what}: not a Status: {text}"));
    assert_eq!((&status["kind"], &status["code"]), (&json!("Status"), &json!(expected)), "{what}: {status}");
    assert!(status["message"].as_str().unwrap_or_default().contains(words), "{what}: {status}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_machine_that_does_not_run_refuses_in_kubevirts_words() {
    let (server, client) = node().await;
    for sub in ["start", "stop", "restart", "memorydump", "addvolume"] {
        let code = put(&client, VM, "none", sub, &json!({})).await.0;
        assert!(matches!(code, 404 | 400), "{sub} of nothing: {code}");
    }
    let mut machine = empty("halted");
    machine["spec"]["runStrategy"] = json!("Halted");
    create(&client, &machine).await;
    status_becomes(&client, "halted", "Stopped").await;
    let no_vmi = "virtualmachineinstance.kubevirt.io \"halted\" not found";
    for sub in ["pause", "unpause", "freeze", "unfreeze", "reset", "softreboot"] {
        refused(sub, put(&client, VMI, "halted", sub, &json!({})).await, 404, no_vmi);
    }
    for sub in ["guestosinfo", "userlist", "filesystemlist", "vnc/screenshot"] {
        refused(sub, get(&client, VMI, "halted", sub).await, 404, no_vmi);
    }
    for sub in ["usbredir", "vsock?port=1&tls=false", "console", "vnc"] {
        let answer = server.websocket(&subresource(VMI, "halted", sub)).await.expect("an answer").expect_err("refused");
        assert_eq!(answer.code, 404, "{sub}: {}", answer.status);
    }
    refused("stop", put(&client, VM, "halted", "stop", &json!({})).await, 409, "VM is not running");
    refused("restart", put(&client, VM, "halted", "restart", &json!({})).await, 409, "does not support manual restart");
    refused("migrate", put(&client, VM, "halted", "migrate", &json!({})).await, 404, "not found");
    refused("dump", put(&client, VM, "halted", "memorydump", &json!({"claimName": "c"})).await, 404, no_vmi);
    refused("dump of nothing", put(&client, VM, "halted", "memorydump", &json!({})).await, 400, "requires claim name");
    refused("removed dump", put(&client, VM, "halted", "removememorydump", &json!({})).await, 409, "no association");
    refused("removed volume", put(&client, VM, "halted", "removevolume", &json!({"name": "x"})).await, 409, "x");
    refused(
        "negative grace",
        put(&client, VM, "halted", "stop", &json!({"gracePeriod": -1})).await,
        400,
        "gracePeriod",
    );
    // What a dry run would do is checked, and nothing is done.
    let (code, text) = put(&client, VM, "halted", "start", &json!({"dryRun": ["All"]})).await;
    assert_eq!(code, 202, "{text}");
    let machine = client.get(&format!("{MACHINES}/halted")).await.expect("an answer").json();
    assert_eq!(machine["spec"]["runStrategy"], "Halted");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_machine_starts_paused_and_goes_on() {
    let (_server, client) = node().await;
    let mut machine = empty("slow");
    machine["spec"]["runStrategy"] = json!("Manual");
    create(&client, &machine).await;
    let (code, text) = put(&client, VM, "slow", "start", &json!({"paused": true})).await;
    assert_eq!(code, 202, "{text}");
    let machine = status_becomes(&client, "slow", "Paused").await;
    assert!(is_true(&machine, "Paused"), "{}", machine["status"]);
    let instance = client.get(&format!("{INSTANCES}/slow")).await.expect("an answer").json();
    let paused = condition(&instance, "Paused").cloned().unwrap_or_default();
    assert_eq!((&paused["reason"], &paused["message"]), (&json!("PausedByUser"), &json!("VMI was paused by user")));
    assert_eq!(instance["status"]["phase"], "Running");
    refused("pause", put(&client, VMI, "slow", "pause", &json!({})).await, 409, "VMI is already paused");
    refused("softreboot", put(&client, VMI, "slow", "softreboot", &json!({})).await, 409, "VMI is paused");
    refused("freeze", put(&client, VMI, "slow", "freeze", &json!({})).await, 409, "VMI is paused");
    refused("port", get(&client, VM, "slow", "portforward/22/tcp").await, 409, "VMI is paused");
    let (code, text) = put(&client, VMI, "slow", "unpause", &json!({"dryRun": ["All"]})).await;
    assert_eq!(code, 200, "{text}");
    let (code, text) = put(&client, VMI, "slow", "unpause", &json!({})).await;
    assert_eq!(code, 200, "{text}");
    let machine = status_becomes(&client, "slow", "Running").await;
    assert!(condition(&machine, "Paused").is_none(), "{}", machine["status"]);
    refused("unpause", put(&client, VMI, "slow", "unpause", &json!({})).await, 409, "VMI is not paused");
    // Once it has been started paused, it is started as usual again.
    let (code, text) = put(&client, VM, "slow", "restart", &json!({"gracePeriodSeconds": 0})).await;
    assert_eq!(code, 202, "{text}");
    let path = format!("{INSTANCES}/slow");
    let again = becomes(&client, &path, "running anew", patience(), |one| {
        one["status"]["phase"] == "Running" && one["metadata"]["uid"] != instance["metadata"]["uid"]
    })
    .await;
    assert!(condition(&again, "Paused").is_none(), "{}", again["status"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_running_machine_answers() {
    let (server, client) = node().await;
    let mut machine = empty("one");
    machine["spec"]["template"]["spec"]["domain"]["devices"]["clientPassthrough"] = json!({});
    machine["spec"]["template"]["spec"]["volumes"] = json!([
        {"name": "map", "configMap": {"name": "settings", "optional": true}}]);
    create(&client, &machine).await;
    let instance = running(&client, "one").await;

    // Without an agent, what it would tell is refused; a reset needs nobody.
    for sub in ["guestosinfo", "userlist", "filesystemlist"] {
        refused(sub, get(&client, VMI, "one", sub).await, 409, "VMI does not have guest agent connected");
    }
    for sub in ["reset", "softreboot"] {
        let (code, text) = put(&client, VMI, "one", sub, &json!({})).await;
        assert_eq!(code, 200, "{sub}: {text}");
    }
    let after = running(&client, "one").await;
    assert_eq!(after["metadata"]["uid"], instance["metadata"]["uid"], "a reset keeps the instance");
    refused("vsock", get(&client, VMI, "one", "vsock").await, 400, "VSOCK");
    refused("backup", put(&client, VMI, "one", "backup", &json!({})).await, 400, "feature gate");
    refused(
        "restart",
        put(&client, VM, "one", "restart", &json!({"gracePeriodSeconds": 5})).await,
        400,
        "gracePeriod=0",
    );
    assert_eq!(put(&client, VMI, "one", "guestosinfo", &json!({})).await.0, 405);
    assert_eq!(put(&client, VMI, "one", "levitate", &json!({})).await.0, 404);

    usb(&server).await;
    graph(&client).await;
    about(&client).await;
}

/// A disc is put into a drive, which is there from the start: there is no drive that could be plugged in.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drive_for_discs_cannot_be_plugged_in() {
    let (_server, client) = node().await;
    create(&client, &empty("one")).await;
    running(&client, "one").await;
    let claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "disc"},
        "spec": {"accessModes": ["ReadWriteOnce"], "volumeMode": "Block", "resources": {"requests": {"storage": "8Mi"}}}});
    client.post(CLAIMS, &claim).await.expect("an answer").ok().expect("a claim");
    let options = json!({"name": "disc", "disk": {"cdrom": {"bus": "sata"}},
        "volumeSource": {"persistentVolumeClaim": {"claimName": "disc"}}});
    refused("addvolume", put(&client, VM, "one", "addvolume", &options).await, 400, "'disk' or 'lun'");
    let machine = client.get(&format!("{MACHINES}/one")).await.expect("an answer").ok().expect("the machine");
    assert!(machine["spec"]["template"]["spec"]["volumes"].is_null(), "nothing is left of it: {machine}");
}

/// The machine's four USB ports, each with the greeting of QEMU's end.
async fn usb(server: &Croft) {
    let path = subresource(VMI, "one", "usbredir");
    let mut streams = Vec::new();
    for _ in 0..4 {
        let mut stream = server.websocket(&path).await.expect("an answer").expect("a port");
        assert_eq!(stream.protocol.as_deref(), Some("plain.kubevirt.io"));
        let header = stream.receive_exactly(12).await.expect("a greeting");
        assert_eq!(header[..4], [0; 4], "hello: {header:?}");
        stream.expect("qemu usb-redir guest", Duration::from_secs(20)).await.expect("its name");
        streams.push(stream);
    }
    let full = server.websocket(&path).await.expect("an answer").expect_err("no port is left");
    assert_eq!(full.code, 409, "{}", full.status);
    streams.pop().expect("a stream").close().await.expect("closed");
    let again = croft_testkit::eventually("the port is free again", async || match server.websocket(&path).await {
        Ok(Ok(stream)) => Ok(stream),
        Ok(Err(refused)) => Err(refused.status.to_string()),
        Err(error) => Err(error.to_string()),
    });
    again.await;
}

async fn graph(client: &Client) {
    let (code, text) = get(client, VM, "one", "objectgraph").await;
    assert_eq!(code, 200, "{text}");
    let graph: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(graph["objectReference"]["name"], "one", "{graph}");
    let names: Vec<_> = graph["children"].as_array().into_iter().flatten().map(|one| &one["objectReference"]).collect();
    assert!(names.iter().any(|one| one["kind"] == "ConfigMap" && one["name"] == "settings"), "{graph}");
    assert!(names.iter().any(|one| one["kind"] == "VirtualMachineInstance"), "{graph}");
    assert_eq!(get(client, VMI, "one", "objectgraph").await.0, 200);
}

async fn about(client: &Client) {
    let version = client.get(&format!("{GROUP}/version")).await.expect("an answer").ok().expect("a version");
    assert!(version["gitVersion"].as_str().is_some_and(|version| version.starts_with("v1.")), "{version}");
    let guestfs = client.get(&format!("{GROUP}/guestfs")).await.expect("an answer").ok().expect("guestfs");
    assert!(guestfs["registry"].is_string() && guestfs["tag"].is_string(), "{guestfs}");
    let health = client.get(&format!("{GROUP}/healthz")).await.expect("an answer").ok().expect("health");
    assert_eq!(health["apiserver"]["connectivity"], "ok", "{health}");
    let list = client.get(GROUP).await.expect("an answer").ok().expect("a list");
    let names: Vec<_> =
        list["resources"].as_array().into_iter().flatten().filter_map(|one| one["name"].as_str()).collect();
    for name in ["virtualmachines/start", "virtualmachineinstances/usbredir", "virtualmachines/memorydump"] {
        assert!(names.contains(&name), "{names:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory_is_dumped_into_a_claim() {
    let (_server, client) = node().await;
    let claim = |name: &str, mode: &str, size: &str| {
        json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name},
            "spec": {"accessModes": ["ReadWriteOnce"], "volumeMode": mode, "resources": {"requests": {"storage": size}}}})
    };
    for claim in
        [claim("dump", "Filesystem", "256Mi"), claim("small", "Filesystem", "64Mi"), claim("raw", "Block", "1Gi")]
    {
        client.post(CLAIMS, &claim).await.expect("an answer").ok().expect("a claim");
    }
    create(&client, &empty("one")).await;
    running(&client, "one").await;
    let dump = async |claim: &str| put(&client, VM, "one", "memorydump", &json!({"claimName": claim})).await;
    refused("no claim", dump("none").await, 404, "none");
    refused("a small claim", dump("small").await, 409, "should be bigger");
    refused("a block claim", dump("raw").await, 409, "filesystem");
    let (code, text) = dump("dump").await;
    assert_eq!(code, 202, "{text}");
    let path = format!("{MACHINES}/one");
    let done = becomes(&client, &path, "dumped", patience(), |machine| {
        machine["status"]["memoryDumpRequest"]["phase"] == "Completed"
    })
    .await;
    let request = &done["status"]["memoryDumpRequest"];
    assert!(request["fileName"].as_str().is_some_and(|name| name.starts_with("one-dump")), "{request}");
    assert!(request["startTimestamp"].is_string() && request["endTimestamp"].is_string(), "{request}");
    let volumes = &done["spec"]["template"]["spec"]["volumes"];
    assert!(volumes.to_string().contains("memoryDump"), "{volumes}");
    becomes(&client, &format!("{CLAIMS}/dump"), "labelled", patience(), |claim| {
        claim["metadata"]["annotations"]["kubevirt.io/memory-dump"] == request["fileName"]
    })
    .await;
    refused("another claim", dump("raw").await, 409, "still associated");
    // Again, into the same claim: it is replaced. The times are in whole seconds, so it has to begin in another one.
    eventually("the server's clock moves on", async || {
        let tried = client.post(&format!("{CLAIMS}?dryRun=All"), &claim("clock", "Block", "64Mi")).await?.ok()?;
        let now = tried["metadata"]["creationTimestamp"].as_str().map(str::to_owned);
        if now.as_deref() > request["startTimestamp"].as_str() { Ok(()) } else { Err(anyhow::anyhow!("{now:?}")) }
    })
    .await;
    let (code, text) = put(&client, VM, "one", "memorydump", &json!({})).await;
    assert_eq!(code, 202, "{text}");
    becomes(&client, &path, "dumped again", patience(), |machine| {
        let now = &machine["status"]["memoryDumpRequest"];
        now["phase"] == "Completed" && now["startTimestamp"] != request["startTimestamp"]
    })
    .await;
    let (code, text) = put(&client, VM, "one", "removememorydump", &json!({})).await;
    assert_eq!(code, 202, "{text}");
    becomes(&client, &path, "without the dump", patience(), |machine| {
        machine["status"].get("memoryDumpRequest").is_none()
            && !machine["spec"]["template"]["spec"]["volumes"].to_string().contains("memoryDump")
    })
    .await;
    assert_eq!(running(&client, "one").await["status"]["phase"], "Running");
}
