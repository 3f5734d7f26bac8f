//! Requests that change objects, or are answered by the agent.

use http::Method;
use serde_json::{Value, json};

use crate::agent::soon;
use crate::cluster::{Cluster, SUB, VMIS, VMS};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kinds_are_served_right_after_the_start_and_written_once() {
    let cluster = Cluster::start().await;
    for path in [VMS, VMIS, "/apis/cdi.kubevirt.io/v1beta1/datavolumes", "/apis/harvesterhci.io/v1beta1/settings"] {
        assert!(cluster.get(path).await["items"].is_array(), "{path}");
    }
    let kubevirt = cluster.get("/apis/kubevirt.io/v1/namespaces/harvester-system/kubevirts/kubevirt").await;
    assert_eq!(kubevirt["status"]["phase"], "Deployed");
    let config = cluster.get("/apis/cdi.kubevirt.io/v1beta1/cdiconfigs/config").await;
    assert_eq!(config["status"]["uploadProxyURL"], cluster.endpoint.url.as_str());
    let class = cluster.get("/apis/storage.k8s.io/v1/storageclasses/harvester-longhorn").await;
    assert_eq!(class["metadata"]["annotations"]["storageclass.kubernetes.io/is-default-class"], "true");
    let version = cluster.get("/apis/harvesterhci.io/v1beta1/settings/server-version").await;
    assert!(version["value"].as_str().unwrap().starts_with('v'), "{version}");
    let overcommit = cluster.get("/apis/harvesterhci.io/v1beta1/settings/overcommit-config").await;
    assert!(overcommit["default"].as_str().unwrap().contains("memory"), "{overcommit}");
    let discovered = cluster.get("/apis/subresources.kubevirt.io/v1").await;
    assert!(discovered["resources"].as_array().unwrap().iter().any(|r| r["name"] == "virtualmachines/start"));
    let version = cluster.get("/apis/subresources.kubevirt.io/v1/version").await;
    assert!(version["gitVersion"].as_str().unwrap().starts_with("v1."));
    for path in ["guestfs", "healthz"] {
        assert!(cluster.get(&format!("/apis/subresources.kubevirt.io/v1/{path}")).await.is_object());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn status_of_an_instance_is_the_platforms() {
    let cluster = Cluster::start().await;
    cluster.vmi("a", "Running", &[], None).await;
    let patch = json!({"metadata": {"labels": {"x": "y"}}, "status": {"phase": "Failed"}});
    let patched = cluster.client.patch(&format!("{VMIS}/a"), "merge-patch", &patch).await.unwrap();
    let patched = patched.ok().unwrap();
    assert_eq!((&patched["status"]["phase"], &patched["metadata"]["labels"]["x"]), (&json!("Running"), &json!("y")));
    let seen = cluster.internal(Method::PATCH, &format!("{VMIS}/a"), &json!({"status": {"phase": "Failed"}})).await;
    assert_eq!(seen["status"]["phase"], "Failed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn machines_are_started() {
    let cluster = Cluster::start().await;
    cluster
        .refused("virtualmachines/none/start", &Value::Null, 404, "virtualmachine.kubevirt.io \\\"none\\\" not found")
        .await;
    for strategy in ["Always", "Once"] {
        let name = strategy.to_lowercase();
        cluster.vm(&name, json!({"runStrategy": strategy})).await;
        let words = format!("{strategy} does not support manual start requests");
        cluster.refused(&format!("virtualmachines/{name}/start"), &json!({}), 409, &words).await;
    }
    cluster.vm("halted", json!({"runStrategy": "Halted"})).await;
    cluster.accepted("virtualmachines/halted/start", &json!({"dryRun": ["All"]})).await;
    assert_eq!(cluster.get(&format!("{VMS}/halted")).await["spec"]["runStrategy"], "Halted");
    cluster.refused("virtualmachines/halted/start", &json!({"dryRun": ["Some"]}), 400, "Unsupported value").await;
    cluster.refused("virtualmachines/halted/start", &json!({"paused": "yes"}), 400, "Can not unmarshal").await;
    cluster.accepted("virtualmachines/halted/start", &json!({"paused": true})).await;
    let status = &cluster.get(&format!("{VMS}/halted")).await["status"];
    assert_eq!(status["stateChangeRequests"], json!([{"action": "Start", "data": {"paused": "true"}}]));
    let underway = "stop/start already underway";
    cluster.refused("virtualmachines/halted/start", &json!({"paused": true}), 409, underway).await;
    cluster.accepted("virtualmachines/halted/start", &json!({})).await;
    assert_ne!(cluster.get(&format!("{VMS}/halted")).await["spec"]["runStrategy"], "Halted");

    cluster.vm("old", json!({"running": false})).await;
    cluster.accepted("virtualmachines/old/start", &Value::Null).await;
    assert_eq!(cluster.get(&format!("{VMS}/old")).await["spec"]["running"], true);

    let vm = cluster.vm("manual", json!({"runStrategy": "Manual"})).await;
    cluster.vmi("manual", "Running", &[], Some(&vm)).await;
    cluster.refused("virtualmachines/manual/start", &json!({}), 409, "VM is already running").await;
    cluster.internal(Method::PATCH, &format!("{VMIS}/manual"), &json!({"status": {"phase": "Succeeded"}})).await;
    cluster.accepted("virtualmachines/manual/start", &json!({})).await;
    let uid = cluster.get(&format!("{VMIS}/manual")).await["metadata"]["uid"].clone();
    let requests = cluster.get(&format!("{VMS}/manual")).await["status"]["stateChangeRequests"].clone();
    assert_eq!(requests, json!([{"action": "Stop", "uid": uid}, {"action": "Start"}]));

    let vm = cluster.vm("rerun", json!({"runStrategy": "RerunOnFailure"})).await;
    cluster.vmi("rerun", "Failed", &[], Some(&vm)).await;
    let words = "RerunOnFailure does not support starting VM from failed state";
    cluster.refused("virtualmachines/rerun/start", &json!({}), 409, words).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn machines_are_stopped_and_restarted() {
    let cluster = Cluster::start().await;
    let vm = cluster.vm("a", json!({"runStrategy": "RerunOnFailure"})).await;
    cluster.refused("virtualmachines/a/stop", &json!({}), 409, "VM is not running").await;
    cluster.refused("virtualmachines/a/restart", &json!({}), 409, "VM is not running: Halted").await;
    cluster.refused("virtualmachines/a/migrate", &json!({}), 404, "not found").await;
    let vmi = cluster.vmi("a", "Running", &[], Some(&vm)).await;
    cluster.refused("virtualmachines/a/migrate", &json!({}), 409, "no other node").await;
    cluster.refused("virtualmachines/a/restart", &json!({"gracePeriodSeconds": 5}), 400, "only gracePeriod=0").await;
    cluster.refused("virtualmachines/a/restart", &json!({"gracePeriodSeconds": -1}), 400, "greater or equal").await;
    let stop = json!({"action": "Stop", "uid": vmi["metadata"]["uid"]});
    let requests = async || cluster.get(&format!("{VMS}/a")).await["status"]["stateChangeRequests"].clone();
    let grace = async || cluster.get(&format!("{VMIS}/a")).await["spec"]["terminationGracePeriodSeconds"].clone();
    cluster.accepted("virtualmachines/a/restart", &json!({"gracePeriodSeconds": 0})).await;
    assert_eq!((requests().await, grace().await), (json!([stop, {"action": "Start"}]), json!(1)));
    // A stop replaces what was asked for before.
    cluster.accepted("virtualmachines/a/stop", &json!({"gracePeriod": 0})).await;
    assert_eq!((requests().await, grace().await), (json!([stop]), json!(0)));

    let vm = cluster.vm("b", json!({"runStrategy": "Always"})).await;
    cluster.vmi("b", "Running", &[], Some(&vm)).await;
    cluster.accepted("virtualmachines/b/stop", &json!({})).await;
    assert_eq!(cluster.get(&format!("{VMS}/b")).await["spec"]["runStrategy"], "Halted");
    let shorter = "only supports manual stop requests with a shorter graceperiod";
    cluster.refused("virtualmachines/b/stop", &json!({"gracePeriod": 30}), 409, shorter).await;
    cluster.accepted("virtualmachines/b/stop", &json!({"gracePeriod": 1})).await;
    cluster.refused("virtualmachines/b/restart", &json!({}), 409, "does not support manual restart requests").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn volumes_come_and_go() {
    let cluster = Cluster::start().await;
    let vm = cluster.vm("a", json!({"runStrategy": "Manual"})).await;
    let add = json!({
        "name": "data", "disk": {"disk": {"bus": "scsi"}, "serial": "data"},
        "volumeSource": {"persistentVolumeClaim": {"claimName": "claim"}},
    });
    let without = |field: &str| {
        let mut body = add.clone();
        body.as_object_mut().unwrap().remove(field);
        body
    };
    cluster.refused("virtualmachines/a/addvolume", &without("name"), 400, "requires name to be set").await;
    cluster.refused("virtualmachines/a/addvolume", &without("disk"), 400, "requires disk").await;
    cluster.refused("virtualmachines/a/addvolume", &without("volumeSource"), 400, "requires VolumeSource").await;
    cluster.accepted("virtualmachines/a/addvolume", &add).await;
    let spec = async || cluster.get(&format!("{VMS}/a")).await["spec"]["template"]["spec"].clone();
    let after = spec().await;
    assert_eq!(
        after["volumes"],
        json!([{"name": "data", "persistentVolumeClaim": {"claimName": "claim", "hotpluggable": true}}])
    );
    assert_eq!(after["domain"]["devices"]["disks"][0]["name"], "data");
    cluster.refused("virtualmachines/a/addvolume", &add, 409, "volume with that name already exists").await;
    let mut again = add.clone();
    again["name"] = json!("other");
    cluster
        .refused("virtualmachines/a/addvolume", &again, 409, "volume source [claim] because it already exists")
        .await;
    cluster.refused("virtualmachines/a/removevolume", &json!({"name": "x"}), 409, "because it does not exist").await;
    cluster.accepted("virtualmachines/a/removevolume", &json!({"name": "data"})).await;
    assert_eq!(spec().await["volumes"].as_array().map(Vec::len).unwrap_or_default(), 0);

    cluster.vmi("a", "Running", &[], Some(&vm)).await;
    cluster.refused("virtualmachineinstances/a/addvolume", &add, 400, "is owned by a VM").await;
    cluster.vmi("alone", "Running", &[], None).await;
    cluster.accepted("virtualmachineinstances/alone/addvolume", &add).await;
    let alone = cluster.get(&format!("{VMIS}/alone")).await;
    assert_eq!(alone["spec"]["volumes"][0]["name"], "data");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory_is_dumped_into_a_claim() {
    let cluster = Cluster::start().await;
    let vm = cluster.vm("a", json!({"runStrategy": "Manual"})).await;
    let dump = "virtualmachines/a/memorydump";
    cluster.refused(dump, &json!({}), 400, "requires claim name").await;
    cluster.refused(dump, &json!({"claimName": "c"}), 404, "virtualmachineinstance").await;
    cluster.vmi("a", "Running", &[], Some(&vm)).await;
    cluster.refused(dump, &json!({"claimName": "c"}), 404, "persistentvolumeclaim").await;
    let claims = "/api/v1/namespaces/default/persistentvolumeclaims";
    for (name, mode, size) in
        [("block", "Block", "1Gi"), ("small", "Filesystem", "64Mi"), ("good", "Filesystem", "1Gi")]
    {
        let claim = json!({"metadata": {"name": name}, "spec": {
            "accessModes": ["ReadWriteOnce"], "volumeMode": mode, "resources": {"requests": {"storage": size}}}});
        cluster.client.post(claims, &claim).await.unwrap().ok().unwrap();
    }
    cluster.refused(dump, &json!({"claimName": "block"}), 409, "pvc should be filesystem pvc").await;
    cluster.refused(dump, &json!({"claimName": "small"}), 409, "should be bigger then").await;
    cluster.refused("virtualmachines/a/removememorydump", &json!({}), 409, "no association found").await;
    cluster.accepted(dump, &json!({"claimName": "good"})).await;
    cluster.refused(dump, &json!({"claimName": "good"}), 409, "already in progress").await;
    cluster.refused(dump, &json!({"claimName": "small"}), 409, "still associated").await;
    cluster.accepted("virtualmachines/a/removememorydump", &json!({})).await;
    let request = cluster.get(&format!("{VMS}/a")).await["status"]["memoryDumpRequest"].clone();
    assert_eq!(request, json!({"claimName": "good", "phase": "Dissociating", "remove": true}));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn agents_are_asked_and_their_answers_passed_on() {
    let cluster = Cluster::start().await;
    cluster.vmi("a", "Running", &[], None).await;
    let put =
        async |action: &str, body: &Value| cluster.put(&format!("virtualmachineinstances/a/{action}"), body).await;
    assert_eq!(put("pause", &json!({})).await.status, 200);
    assert_eq!(put("pause", &json!({"dryRun": ["All"]})).await.status, 200);
    let answer = put("freeze", &json!({"unfreezeTimeout": "5s"})).await;
    assert_eq!((answer.status, answer.json()["message"].as_str()), (409, Some("the guest agent does not freeze")));
    let seen = cluster.agent.seen();
    assert_eq!(
        seen,
        ["PUT /v1/vmis/default/a/pause {}", r#"PUT /v1/vmis/default/a/freeze {"unfreezeTimeout":"5s"}"#],
        "a dry run reaches nobody"
    );
    cluster.refused("virtualmachineinstances/a/unpause", &json!({}), 409, "VMI is not paused").await;
    cluster.refused("virtualmachineinstances/none/reset", &json!({}), 404, "not found").await;
    cluster.refused("virtualmachineinstances/a/sev/setupsession", &json!({}), 400, "feature gate is not enabled").await;
    for (method, path, code) in [
        (Method::PUT, "virtualmachineinstances/a/nonsense", 404),
        (Method::PUT, "virtualmachineinstances/a/guestosinfo", 405),
        (Method::GET, "virtualmachines/a/start", 405),
        (Method::DELETE, "virtualmachines/a/start", 405),
        (Method::GET, "virtualmachines/a", 404),
        (Method::GET, "pods/a/log", 404),
    ] {
        let call = croft_testkit::Call::new(method, &format!("{SUB}/{path}"));
        assert_eq!(cluster.client.send(call).await.unwrap().status, code, "{path}");
    }

    let info = async || cluster.client.get(&format!("{SUB}/virtualmachineinstances/a/guestosinfo")).await.unwrap();
    let refused = info().await;
    assert_eq!(refused.status, 409);
    assert!(refused.text().contains("VMI does not have guest agent connected"), "{}", refused.text());
    let connected = json!({"status": {"conditions": [{"type": "AgentConnected", "status": "True"}]}});
    cluster.internal(Method::PATCH, &format!("{VMIS}/a"), &connected).await;
    assert_eq!(info().await.json(), json!({"guestAgentVersion": "8.0"}));
    let path = format!("{SUB}/virtualmachineinstances/a/vnc/screenshot?moveCursor=true");
    assert_eq!(&cluster.client.get(&path).await.unwrap().body[..4], b"\x89PNG");
    assert!(cluster.agent.seen().last().unwrap().starts_with("GET /v1/vmis/default/a/vnc/screenshot?moveCursor=true"));
    for (query, code, asked) in [
        ("", 200, "?follow=false"),
        ("?tailLines=5", 200, "?follow=false&tailLines=5"),
        ("?follow=true", 200, "?follow=true"),
        ("?tailLines=5&follow=true", 200, "?follow=true&tailLines=5"),
        ("?tailLines=-1", 400, ""),
    ] {
        let log = cluster.client.get(&format!("{SUB}/virtualmachineinstances/a/log{query}")).await.unwrap();
        assert_eq!(log.status, code, "{}", log.text());
        if code == 200 {
            assert_eq!(log.text(), "login: ");
            let seen = cluster.agent.seen();
            assert_eq!(seen.last().unwrap().trim_end(), format!("GET /v1/vmis/default/a/log{asked}"));
        }
    }

    let metrics = cluster.client.get("/api/v1/nodes/n1/proxy/metrics").await.unwrap();
    assert_eq!((metrics.status, metrics.text().as_str()), (200, "kubevirt_vmi_info 1\n"));
    assert_eq!(cluster.client.get("/api/v1/nodes/n1/proxy/secrets").await.unwrap().status, 404);
    assert_eq!(cluster.client.get("/api/v1/nodes/none/proxy/metrics").await.unwrap().status, 404);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_that_cannot_be_reached_are_named() {
    let cluster = Cluster::start().await;
    let port = croft_testkit::free_port().unwrap();
    cluster.add_node("dead", port).await;
    let answer = soon(cluster.client.get("/api/v1/nodes/dead/proxy/metrics")).await.unwrap();
    assert_eq!(answer.status, 503);
    let message = answer.json()["message"].as_str().unwrap().to_owned();
    assert!(
        message.contains("node \"dead\" cannot be reached at 127.0.0.1") && message.contains("refused"),
        "{message}"
    );
    // Another's certificate is not good enough.
    cluster.add_node("liar", cluster.agent.address.port()).await;
    let answer = soon(cluster.client.get("/api/v1/nodes/liar/proxy/metrics")).await.unwrap();
    assert_eq!(answer.status, 503);
    assert!(answer.text().contains("liar"), "{}", answer.text());
    assert!(cluster.agent.seen().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn specs_are_expanded() {
    let cluster = Cluster::start().await;
    let size = json!({
        "apiVersion": "instancetype.kubevirt.io/v1beta1", "kind": "VirtualMachineClusterInstancetype",
        "metadata": {"name": "two"}, "spec": {"cpu": {"guest": 2}, "memory": {"guest": "128Mi"}},
    });
    let sizes = "/apis/instancetype.kubevirt.io/v1beta1/virtualmachineclusterinstancetypes";
    cluster.client.post(sizes, &size).await.unwrap().ok().unwrap();
    let vm = json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": {"name": "x"},
        "spec": {"runStrategy": "Halted", "instancetype": {"name": "two"}, "template": {"spec": {"domain": {"devices": {}}}}},
    });
    let expanded = cluster.put("expand-vm-spec", &vm).await.ok().unwrap();
    assert_eq!(expanded["spec"]["template"]["spec"]["domain"]["memory"]["guest"], "128Mi");
    assert!(expanded["spec"].get("instancetype").is_none());
    assert_eq!((&expanded["kind"], &expanded["metadata"]["namespace"]), (&json!("VirtualMachine"), &json!("default")));
    let mut elsewhere = vm.clone();
    elsewhere["metadata"]["namespace"] = json!("other");
    cluster.refused("expand-vm-spec", &elsewhere, 400, "VM namespace must be empty or default").await;
    let mut missing = vm.clone();
    missing["spec"]["instancetype"]["name"] = json!("three");
    cluster.refused("expand-vm-spec", &missing, 400, "\\\"three\\\" not found").await;
    cluster.refused("expand-vm-spec", &json!({"spec": {"template": 5}}), 400, "").await;
    cluster.client.post(VMS, &vm).await.unwrap().ok().unwrap();
    let stored = cluster.get(&format!("{SUB}/virtualmachines/x/expand-spec")).await;
    assert_eq!(stored["spec"]["template"]["spec"]["domain"]["memory"]["guest"], "128Mi");
    let graph = cluster.get(&format!("{SUB}/virtualmachines/x/objectgraph")).await;
    assert_eq!(graph["objectReference"]["kind"], "VirtualMachine");
    assert_eq!(graph["children"][0]["objectReference"]["name"], "two");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rights_are_those_of_the_subresource() {
    let cluster = Cluster::start().await;
    cluster.vm("a", json!({"runStrategy": "Halted"})).await;
    let role = json!({"metadata": {"name": "starter"}, "rules": [
        {"apiGroups": ["subresources.kubevirt.io"], "resources": ["virtualmachines/start"], "verbs": ["update"]}]});
    let binding = json!({"metadata": {"name": "starter"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "starter"},
        "subjects": [{"kind": "ServiceAccount", "name": "s", "namespace": "default"}]});
    let rbac = "/apis/rbac.authorization.k8s.io/v1/namespaces/default";
    cluster.client.post(&format!("{rbac}/roles"), &role).await.unwrap().ok().unwrap();
    cluster.client.post(&format!("{rbac}/rolebindings"), &binding).await.unwrap().ok().unwrap();
    let account = json!({"metadata": {"name": "s"}});
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    cluster.client.post(accounts, &account).await.unwrap().ok().unwrap();
    let token = cluster.client.post(&format!("{accounts}/s/token"), &json!({"spec": {}})).await.unwrap().ok().unwrap();
    let client = cluster.endpoint.bearer(token["status"]["token"].as_str().unwrap()).unwrap();
    let stop = client.put(&format!("{SUB}/virtualmachines/a/stop"), &json!({})).await.unwrap();
    assert_eq!(stop.status, 403);
    assert!(stop.text().contains("cannot update resource \\\"virtualmachines/stop\\\""), "{}", stop.text());
    let start = client.put(&format!("{SUB}/virtualmachines/a/start"), &json!({})).await.unwrap();
    assert_eq!(start.status, 202, "{}", start.text());
}
