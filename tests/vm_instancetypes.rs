//! Sizes and tastes of machines: instancetypes and preferences, in a namespace and in the cluster.

use croft_e2e::machines::{
    CLAIMS, INSTANCES, MACHINES, becomes, croft, empty, merge, qemu_line, status_becomes, subresource,
};
use croft_testkit::{Client, Croft, Kubectl, StoreKind, patience};
use serde_json::{Value, json};

const VM: &str = "virtualmachines";

async fn node() -> (Croft, Client, Kubectl) {
    let server = Croft::start_node(StoreKind::Embedded, &[]).await.expect("the server starts");
    let client = server.client().expect("a client");
    let kubectl = Kubectl::new(&server.kubeconfig).expect("kubectl");
    (server, client, kubectl)
}

async fn running(client: &Client, name: &str, not: &str) -> Value {
    let path = format!("{INSTANCES}/{name}");
    let is_so = |one: &Value| one["status"]["phase"] == "Running" && one["metadata"]["uid"] != not;
    becomes(client, &path, "running", patience(), is_so).await
}

fn object(kind: &str, name: &str, spec: &Value) -> Value {
    json!({"apiVersion": "instancetype.kubevirt.io/v1beta1", "kind": kind, "metadata": {"name": name}, "spec": spec})
}

/// A machine that says nothing of its size.
fn plain(name: &str, more: &Value) -> Value {
    let mut machine = empty(name);
    let domain = &mut machine["spec"]["template"]["spec"]["domain"];
    drop(domain.as_object_mut().expect("a domain").remove("memory"));
    drop(domain.as_object_mut().expect("a domain").remove("resources"));
    merge(&mut machine["spec"], more);
    machine
}

fn text_after<'a>(line: &'a [String], option: &str) -> &'a str {
    let at = line.iter().position(|word| word == option).expect("the option");
    &line[at + 1]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_machine_has_the_size_and_taste_that_it_names() {
    let (server, client, kubectl) = node().await;
    let small =
        json!({"cpu": {"guest": 2, "model": "Haswell"}, "memory": {"guest": "96Mi"}, "ioThreadsPolicy": "shared"});
    let taste = json!({
        "cpu": {"preferredCPUTopology": "cores"}, "machine": {"preferredMachineType": "pc-q35-7.2"},
        "devices": {"preferredDiskBus": "scsi", "preferredInterfaceModel": "e1000", "preferredRng": {},
            "preferredSoundModel": "ac97", "preferredAutoattachGraphicsDevice": false},
        "firmware": {"preferredUseBios": true},
        "clock": {"preferredClockOffset": {"utc": {}}, "preferredTimer": {"hpet": {"present": false}}},
        "preferredTerminationGracePeriodSeconds": 0,
    });
    for object in [
        object("VirtualMachineInstancetype", "small", &small),
        object(
            "VirtualMachineClusterInstancetype",
            "small",
            &json!({"cpu": {"guest": 1}, "memory": {"guest": "80Mi"}}),
        ),
        object("VirtualMachinePreference", "taste", &taste),
        object("VirtualMachineClusterPreference", "taste", &json!({"devices": {"preferredDiskBus": "sata"}})),
    ] {
        kubectl.ok_with(&["apply", "-f", "-"], &object.to_string()).await;
    }
    let listed = kubectl.ok(&["get", "vminstancetypes,vmclusterinstancetypes,vmprefs,vmcps", "-A", "-o", "name"]).await;
    assert_eq!(listed.stdout.lines().count(), 4, "{}", listed.stdout);

    let with_disk = json!({"template": {"spec": {
        "domain": {"devices": {"autoattachPodInterface": null, "disks": [{"name": "d", "disk": {}}], "sound": {"name": "s"},
            "interfaces": [{"name": "default", "masquerade": {}}]}},
        "networks": [{"name": "default", "pod": {}}],
        "volumes": [{"name": "d", "emptyDisk": {"capacity": "1Mi"}}]}}});
    let mut own = json!({"instancetype": {"name": "small", "kind": "VirtualMachineInstancetype"},
        "preference": {"name": "taste", "kind": "VirtualMachinePreference"}});
    merge(&mut own, &with_disk);
    let mut shared = json!({"instancetype": {"name": "small"}, "preference": {"name": "taste"}});
    merge(&mut shared, &with_disk);
    for (name, spec) in [("own", &own), ("shared", &shared)] {
        kubectl.ok_with(&["apply", "-f", "-"], &plain(name, spec).to_string()).await;
    }
    let instance = running(&client, "own", "").await;
    let line = qemu_line(&server, &instance);
    assert_eq!(text_after(&line, "-m"), "size=98304k", "{line:?}");
    assert!(text_after(&line, "-smp").contains("cpus=2") && text_after(&line, "-smp").contains("cores=2"), "{line:?}");
    assert!(text_after(&line, "-cpu").starts_with("Haswell"), "{line:?}");
    let machine_type = text_after(&line, "-machine");
    assert!(machine_type.contains("pc-q35-7.2") && machine_type.contains("hpet=off"), "{machine_type}");
    let all = line.join("\n");
    for part in ["scsi-hd", "\"e1000\"", "virtio-rng-pci", "AC97"] {
        assert!(all.contains(part), "{part}: {all}");
    }
    assert!(!line.iter().any(|word| word == "-vnc"), "no screen: {all}");
    let instance = running(&client, "shared", "").await;
    let line = qemu_line(&server, &instance);
    assert_eq!(text_after(&line, "-m"), "size=81920k");
    assert!(line.join("\n").contains("ide-hd"), "{line:?}");

    expansion(&server, &client, &plain("unsaved", &own)).await;
    revisions(&server, &client, &kubectl).await;
}

/// The same, worked out without a machine.
async fn expansion(server: &Croft, client: &Client, unsaved: &Value) {
    let stored = client.get(&subresource(VM, "own", "expand-spec")).await.expect("an answer").ok().expect("expanded");
    let mut body = unsaved.clone();
    body["apiVersion"] = json!("kubevirt.io/v1");
    let path = "/apis/subresources.kubevirt.io/v1/namespaces/default/expand-vm-spec";
    let worked_out = client.put(path, &body).await.expect("an answer").ok().expect("expanded");
    for machine in [&stored, &worked_out] {
        let spec = &machine["spec"];
        assert!(spec.get("instancetype").is_none() && spec.get("preference").is_none(), "{spec}");
        let domain = &spec["template"]["spec"]["domain"];
        assert_eq!((&domain["cpu"]["cores"], &domain["memory"]["guest"]), (&json!(2), &json!("96Mi")), "{domain}");
        assert_eq!(domain["devices"]["disks"][0]["disk"]["bus"], "scsi", "{domain}");
        assert_eq!(domain["devices"]["interfaces"][0]["model"], "e1000", "{domain}");
    }
    let answer = client.put(path, &json!({"kind": "VirtualMachine"})).await.expect("an answer");
    assert_eq!(answer.status, 400, "{}", answer.text());
    body["spec"]["instancetype"]["name"] = json!("none");
    let answer = client.put(path, &body).await.expect("an answer");
    assert!(answer.status == 400 && answer.text().contains("none"), "{}", answer.text());
    // Nothing was saved.
    assert_eq!(client.get(&format!("{MACHINES}/unsaved")).await.expect("an answer").status, 404);
    let shown = croft(server, &["vm", "show", "own"]).await.expect("croft vm show");
    assert!(shown.status.success(), "{}", String::from_utf8_lossy(&shown.stderr));
}

/// A machine keeps the size that it was made with.
async fn revisions(server: &Croft, client: &Client, kubectl: &Kubectl) {
    let machine = client.get(&format!("{MACHINES}/own")).await.expect("an answer").json();
    let revision = machine["status"]["instancetypeRef"]["controllerRevisionRef"]["name"].as_str().expect("a revision");
    let kept = kubectl.ok(&["get", "controllerrevision", revision, "-o", "json"]).await.json();
    assert_eq!(kept["data"]["spec"]["cpu"]["guest"], 2, "{kept}");
    kubectl.ok(&["patch", "vminstancetype", "small", "--type=merge", "-p", r#"{"spec":{"cpu":{"guest":4}}}"#]).await;
    let before = running(client, "own", "").await;
    let answer = client.put(&subresource(VM, "own", "restart"), &json!({})).await.expect("an answer");
    assert_eq!(answer.status, 202, "{}", answer.text());
    let after = running(client, "own", before["metadata"]["uid"].as_str().expect("a uid")).await;
    assert!(text_after(&qemu_line(server, &after), "-smp").contains("cpus=2"), "as it was made");
    let answer =
        client.delete("/apis/instancetype.kubevirt.io/v1beta1/namespaces/default/virtualmachineinstancetypes/small");
    answer.await.expect("an answer").ok().expect("deleted");
    let expanded = client.get(&subresource(VM, "own", "expand-spec")).await.expect("an answer").ok().expect("expanded");
    assert_eq!(expanded["spec"]["template"]["spec"]["domain"]["cpu"]["cores"], 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_does_not_go_together_is_refused() {
    let (_server, client, kubectl) = node().await;
    let size = json!({"cpu": {"guest": 1}, "memory": {"guest": "64Mi"}});
    let demanding = json!({"requirements": {"cpu": {"guest": 2}, "memory": {"guest": "128Mi"}}});
    for object in [
        object("VirtualMachineClusterInstancetype", "size", &size),
        object("VirtualMachineClusterPreference", "demanding", &demanding),
    ] {
        kubectl.ok_with(&["apply", "-f", "-"], &object.to_string()).await;
    }
    let sized = |domain: Value| json!({"instancetype": {"name": "size"}, "template": {"spec": {"domain": domain}}});
    let cases = [
        (sized(json!({"cpu": {"cores": 1}})), "conflicts with selected instance type"),
        (sized(json!({"memory": {"guest": "1Gi"}})), "conflicts with selected instance type"),
        (sized(json!({"resources": {"requests": {"memory": "1Gi"}}})), "conflicts with selected instance type"),
        (json!({"instancetype": {"name": "none"}}), "none"),
        (json!({"instancetype": {"name": "size", "kind": "Toaster"}}), "toaster"),
        (json!({"instancetype": {}}), "Either Name or InferFromVolume"),
        (json!({"instancetype": {"name": "size"}, "preference": {"name": "demanding"}}), "preference requirements"),
        (json!({"instancetype": {"name": "size", "inferFromVolume": "d"}}), "should be cleared"),
        (json!({"instancetype": {"inferFromVolume": "d"}}), "unable to find volume d"),
    ];
    for (spec, expected) in cases {
        let refused = kubectl.fails(&["create", "-f", "-"], &plain("bad", &spec).to_string()).await;
        assert!(refused.stderr.contains(expected), "{spec}: {}", refused.stderr);
    }

    // What the volume's labels say.
    let claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": {"name": "labelled", "labels": {"instancetype.kubevirt.io/default-instancetype": "size"}},
        "spec": {"accessModes": ["ReadWriteOnce"], "volumeMode": "Block", "resources": {"requests": {"storage": "1Mi"}}}});
    client.post(CLAIMS, &claim).await.expect("an answer").ok().expect("a claim");
    let inferred = json!({"instancetype": {"inferFromVolume": "d"}, "template": {"spec": {
        "domain": {"devices": {"disks": [{"name": "d", "disk": {"bus": "virtio"}}]}},
        "volumes": [{"name": "d", "persistentVolumeClaim": {"claimName": "labelled"}}]}}});
    kubectl.ok_with(&["create", "-f", "-"], &plain("inferred", &inferred).to_string()).await;
    let machine = status_becomes(&client, "inferred", "Running").await;
    assert_eq!(machine["spec"]["instancetype"]["name"], "size", "{}", machine["spec"]["instancetype"]);
    let instance = running(&client, "inferred", "").await;
    assert_eq!(instance["status"]["memory"]["guestAtBoot"], "64Mi");
}
