//! The Terraform provider of Harvester: for every resource what it sends to create, read, change and destroy it, and the
//! fields that it compares afterwards.

use croft_e2e::flows::{
    BALANCERS, HARVESTER, NADS, NETWORKS, POOLS, SETTINGS, applied, destroyed, go, holds, read, refused, updated,
    uploaded,
};
use croft_e2e::machines::{
    BOOT, CLAIMS, IMAGES, INSTANCES, MACHINES, becomes, condition, is_gone, is_true, node, subresource,
};
use croft_e2e::storage::{CLASSES, SECRETS, bound, disk};
use croft_testkit::{Call, Client, Croft, StoreKind};
use http::Method;
use serde_json::{Value, json};

const KEY: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHVcYlyuMnrtHVQnZ+JQab4xvu6q9kNcam9W/ZJ2MWJu me@there";

async fn server() -> (Croft, Client) {
    let server = Croft::start(StoreKind::Embedded).await.expect("the server starts");
    let client = server.client().expect("a client");
    (server, client)
}

/// Labels and annotations of everything that the provider makes.
fn metadata(name: &str) -> Value {
    json!({"name": name, "labels": {"harvesterhci.io/creator": "terraform-provider-harvester", "tag.harvesterhci.io/env": "test"},
        "annotations": {"field.cattle.io/description": "made by a plan"}})
}

fn keypair(name: &str) -> Value {
    json!({"apiVersion": "harvesterhci.io/v1beta1", "kind": "KeyPair", "metadata": metadata(name),
        "spec": {"publicKey": KEY}})
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_secrets_classes_and_settings() {
    let (_server, client) = server().await;
    // The provider looks at the version before anything else.
    let version = read(&client, &format!("{SETTINGS}/server-version")).await;
    assert!(version["value"].as_str().expect("a value").starts_with("v1.8"), "{version}");

    let keys = format!("{HARVESTER}/namespaces/default/keypairs");
    applied(&client, &keys, &keypair("mine")).await;
    let key = becomes(&client, &format!("{keys}/mine"), "valid", BOOT, |key| is_true(key, "validated")).await;
    assert_eq!(key["status"]["fingerPrint"].as_str().map(str::len), Some(47), "{key}");
    updated(&client, &format!("{keys}/mine"), |key| key["metadata"]["labels"]["tag.harvesterhci.io/env"] = json!("b"))
        .await;
    destroyed(&client, &format!("{keys}/mine"), None).await;

    let mut secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata("cloud-config"),
        "stringData": {"userdata": "#cloud-config\n", "networkdata": ""}});
    secret["metadata"]["labels"]["harvesterhci.io/cloud-init-template"] = json!("harvester");
    let made = client.post(SECRETS, &secret).await.expect("an answer").ok().expect("a secret");
    assert_eq!((&made["data"]["userdata"], &made["data"]["networkdata"]), (&json!("I2Nsb3VkLWNvbmZpZwo="), &json!("")));
    assert_eq!((made["type"].as_str(), &made["stringData"]), (Some("Opaque"), &Value::Null));
    // An update says all of it again, as text beside the data that it read.
    let path = format!("{SECRETS}/cloud-config");
    let mut change = read(&client, &path).await;
    change["stringData"] = json!({"userdata": "#cloud-config\na: b\n"});
    let changed = client.put(&path, &change).await.expect("an answer").ok().expect("changed");
    assert_eq!(changed["data"]["userdata"], "I2Nsb3VkLWNvbmZpZwphOiBiCg==");
    destroyed(&client, &path, None).await;

    let class = json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": metadata("two-copies"),
        "provisioner": "driver.longhorn.io", "allowVolumeExpansion": true, "parameters": {"numberOfReplicas": "2", "staleReplicaTimeout": "30", "migratable": "true"}});
    let made = client.post(CLASSES, &class).await.expect("an answer").ok().expect("a class");
    holds(&made, &class);
    // The provider follows these without looking whether they are there.
    assert_eq!((&made["reclaimPolicy"], &made["volumeBindingMode"]), (&json!("Delete"), &json!("Immediate")));
    updated(&client, &format!("{CLASSES}/two-copies"), |class| {
        class["metadata"]["annotations"]["field.cattle.io/description"] = json!("other");
    })
    .await;
    destroyed(&client, &format!("{CLASSES}/two-copies"), None).await;

    let path = format!("{SETTINGS}/overcommit-config");
    updated(&client, &path, |setting| setting["value"] = json!(r#"{"cpu":400,"memory":200,"storage":100}"#)).await;
    becomes(&client, &path, "configured", BOOT, |setting| is_true(setting, "configured")).await;
    let setting = updated(&client, &path, |setting| setting["value"] = setting["default"].clone()).await;
    assert_eq!(setting["value"], setting["default"]);
}

fn nad(name: &str, cluster_network: &str, vlan: u16, route: &Value) -> Value {
    let config = format!(
        "{{\"cniVersion\":\"0.3.1\",\"name\":\"{name}\",\"type\":\"bridge\",\"bridge\":\"{cluster_network}-br\",\
         \"promiscMode\":true,\"vlan\":{vlan},\"ipam\":{{}}}}"
    );
    let mut nad = json!({"apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition",
        "metadata": metadata(name), "spec": {"config": config}});
    nad["metadata"]["labels"]["network.harvesterhci.io/clusternetwork"] = json!(cluster_network);
    nad["metadata"]["annotations"]["network.harvesterhci.io/route"] = json!(route.to_string());
    nad
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn networks() {
    let (_server, client) = server().await;
    // A network is made on a cluster network that is ready.
    let management = read(&client, &format!("{NETWORKS}/clusternetworks/mgmt")).await;
    assert!(is_true(&management, "ready"), "{management}");
    let auto = json!({"mode": "auto", "serverIPAddr": "", "cidr": "", "gateway": ""});
    let made = applied(&client, NADS, &nad("vlan40", "mgmt", 40, &auto)).await;
    // Without these labels a plan would differ for ever.
    for (label, value) in [("type", "L2VlanNetwork"), ("clusternetwork", "mgmt"), ("vlan-id", "40")] {
        assert_eq!(made["metadata"]["labels"][format!("network.harvesterhci.io/{label}")], value);
    }
    let path = format!("{NADS}/vlan40");
    let manual = json!({"mode": "manual", "serverIPAddr": "", "cidr": "192.0.2.0/24", "gateway": "192.0.2.1"});
    let route = manual.to_string();
    updated(&client, &path, |nad| nad["metadata"]["annotations"]["network.harvesterhci.io/route"] = json!(route)).await;
    becomes(&client, &path, "ready", BOOT, |nad| nad["metadata"]["labels"]["network.harvesterhci.io/ready"] == "true")
        .await;
    destroyed(&client, &path, None).await;

    // This server sets up no uplinks: it says so where the provider looks.
    let clusters = format!("{NETWORKS}/clusternetworks");
    let network = json!({"apiVersion": "network.harvesterhci.io/v1beta1", "kind": "ClusterNetwork",
        "metadata": metadata("data")});
    applied(&client, &clusters, &network).await;
    let told = read(&client, &format!("{clusters}/data")).await;
    let ready = condition(&told, "ready").expect("a condition");
    assert_eq!((&ready["status"], &ready["reason"]), (&json!("False"), &json!("NotSupported")), "{told}");
    let configs = format!("{NETWORKS}/vlanconfigs");
    let config = json!({"apiVersion": "network.harvesterhci.io/v1beta1", "kind": "VlanConfig", "metadata": metadata("data-all"),
        "spec": {"clusterNetwork": "data", "nodeSelector": {"kubernetes.io/os": "linux"},
            "uplink": {"nics": ["ens4", "ens5"], "bondOptions": {"mode": "active-backup", "miimon": -1}, "linkAttributes": {"mtu": 1500}}}});
    applied(&client, &configs, &config).await;
    let path = format!("{configs}/data-all");
    updated(&client, &path, |config| config["spec"]["uplink"]["nics"] = json!(["ens4"])).await;
    refused(&client.delete(&format!("{clusters}/data")).await.expect("an answer"), 422, "vlanconfig(s) [data-all]");
    // It is deleted before the watch is opened that waits for its end.
    client.delete(&path).await.expect("an answer").ok().expect("deleted");
    let call = Call::new(
        Method::GET,
        &format!("{configs}?fieldSelector=metadata.name%3Ddata-all&timeoutSeconds=300&watch=true"),
    );
    let mut events = client.open(call).await.expect("a watch");
    loop {
        let event = events.event_within(BOOT).await.expect("an event").expect("another event");
        if event["type"] == "DELETED" {
            break;
        }
    }
    destroyed(&client, &format!("{clusters}/data"), None).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn balancers_pools_schedules_and_devices() {
    let (_server, client) = server().await;
    let pool = json!({"apiVersion": "loadbalancer.harvesterhci.io/v1beta1", "kind": "IPPool", "metadata": metadata("pool"),
        "spec": {"description": "d", "ranges": [{"subnet": "192.0.2.0/24", "rangeStart": "192.0.2.10", "rangeEnd": "192.0.2.20", "gateway": "192.0.2.1"}],
            "selector": {"priority": 10, "network": "default/vlan40", "scope": [{"project": "*", "namespace": "default", "guestCluster": "*"}]}},
        "status": {"total": 0, "available": 0, "lastAllocated": ""}});
    applied(&client, POOLS, &pool).await;
    updated(&client, &format!("{POOLS}/pool"), |pool| pool["spec"]["ranges"][0]["rangeEnd"] = json!("192.0.2.30"))
        .await;
    let balancer = json!({"apiVersion": "loadbalancer.harvesterhci.io/v1beta1", "kind": "LoadBalancer", "metadata": metadata("web"),
        "spec": {"description": "d", "workloadType": "vm", "ipam": "pool", "ipPool": "pool",
            "listeners": [{"name": "http", "port": 80, "protocol": "TCP", "backendPort": 8080}],
            "backendServerSelector": {"app": ["web"]},
            "healthCheck": {"port": 8080, "successThreshold": 2, "failureThreshold": 2, "periodSeconds": 5, "timeoutSeconds": 3}}});
    applied(&client, BALANCERS, &balancer).await;
    updated(&client, &format!("{BALANCERS}/web"), |balancer| balancer["spec"]["listeners"][0]["port"] = json!(8000))
        .await;
    destroyed(&client, &format!("{BALANCERS}/web"), None).await;
    destroyed(&client, &format!("{POOLS}/pool"), None).await;

    // There are no devices to pass through.
    let devices = "/apis/devices.harvesterhci.io/v1beta1";
    let list = read(&client, &format!("{devices}/pcidevices")).await;
    assert_eq!(list["items"], json!([]));
    let by_parent = "sriovnetworkdevices?labelSelector=harvesterhci.io%2Fparent-sriov-network-device%3Dnode-ens4";
    assert_eq!(read(&client, &format!("{devices}/{by_parent}")).await["items"], json!([]));
    // Schedules need somewhere to keep backups.
    let schedules = format!("{HARVESTER}/namespaces/default/schedulevmbackups");
    let schedule = json!({"apiVersion": "harvesterhci.io/v1beta1", "kind": "ScheduleVMBackup", "metadata": {"name": "nightly"},
        "spec": {"cron": "0 1 * * *", "retain": 8, "maxFailure": 7, "suspend": false,
            "vmbackup": {"type": "backup", "source": {"apiGroup": "kubevirt.io", "kind": "VirtualMachine", "name": "plan"}}}});
    refused(&client.post(&schedules, &go(schedule.clone())).await.expect("an answer"), 422, "backup-target is not set");
    let path = format!("{SETTINGS}/backup-target");
    let dir = tempfile::tempdir().expect("a directory");
    let target = json!({"type": "directory", "endpoint": format!("file://{}", dir.path().display())}).to_string();
    updated(&client, &path, |setting| setting["value"] = json!(target)).await;
    client.post(MACHINES, &machine("plan", "Halted")).await.expect("an answer").ok().expect("a machine");
    applied(&client, &schedules, &schedule).await;
    let mut other = schedule.clone();
    other["metadata"]["name"] = json!("other");
    refused(&client.post(&schedules, &go(other)).await.expect("an answer"), 422, "already has backup schedule");
    // The provider then changes the one that is there, by version and uid.
    updated(&client, &format!("{schedules}/nightly"), |schedule| {
        schedule["spec"]["retain"] = json!(4);
        schedule["spec"]["maxFailure"] = json!(3);
    })
    .await;
    destroyed(&client, &format!("{schedules}/nightly"), None).await;
}

/// A machine as the provider builds it, without disks.
fn machine(name: &str, strategy: &str) -> Value {
    let labels = json!({"harvesterhci.io/creator": "terraform-provider-harvester", "harvesterhci.io/vmName": name});
    go(json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": metadata(name),
        "spec": {"runStrategy": strategy, "template": {
            "metadata": {"labels": labels, "annotations": {
                "harvesterhci.io/sshNames": "[\"default/mine\"]", "harvesterhci.io/diskNames": "[]",
                "harvesterhci.io/waitForLeaseInterfaceNames": "[\"nic-1\"]"}},
            "spec": {
                "evictionStrategy": "LiveMigrateIfPossible", "hostname": name,
                "affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 100, "podAffinityTerm": {
                    "labelSelector": {"matchExpressions": [{"key": "harvesterhci.io/creator", "operator": "Exists"}]}, "topologyKey": "kubernetes.io/hostname"}}]}},
                "domain": {
                    "cpu": {"cores": 1, "sockets": 1, "threads": 1},
                    "machine": {"type": "q35"},
                    "features": {"acpi": {"enabled": true}},
                    "resources": {"limits": {"cpu": "1", "memory": "128Mi"}},
                    "devices": {
                        "inputs": [{"name": "tablet", "type": "tablet", "bus": "usb"}],
                        "interfaces": [{"name": "nic-1", "model": "virtio", "bootOrder": 2, "masquerade": {}}],
                    },
                },
                "networks": [{"name": "nic-1", "pod": {}}],
            },
        }},
    }))
}

/// An image is uploaded to, a volume is made of it, and grows.
async fn image_and_volume(client: &Client) -> String {
    let image = json!({"apiVersion": "harvesterhci.io/v1beta1", "kind": "VirtualMachineImage", "metadata": metadata("plan-image"),
        "spec": {"displayName": "plan-image", "sourceType": "upload", "pvcName": "", "pvcNamespace": "", "url": "", "checksum": "", "retry": 3,
            "storageClassParameters": {"migratable": "true", "numberOfReplicas": "3", "staleReplicaTimeout": "30"}}});
    client.post(IMAGES, &go(image.clone())).await.expect("an answer").ok().expect("an image");
    let path = format!("{IMAGES}/plan-image");
    becomes(client, &path, "initialized", BOOT, |image| is_true(image, "Initialized")).await;
    let answer = uploaded(client, "plan-image", &disk()).await;
    assert!(answer.status < 400, "{}", answer.text());
    let image = becomes(client, &path, "imported", BOOT, |image| is_true(image, "Imported")).await;
    assert_eq!((&image["status"]["progress"], &image["status"]["virtualSize"]), (&json!(100), &json!(16 << 20)));
    let described = updated(client, &path, |image| image["spec"]["description"] = json!("other")).await;
    assert_eq!(described["spec"]["displayName"], "plan-image");

    // The class is worked out by the client.
    let mut volume = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata("plan-volume"),
        "spec": {"accessModes": ["ReadWriteMany"], "volumeMode": "Block", "storageClassName": "longhorn-plan-image",
            "resources": {"requests": {"storage": "32Mi"}}}});
    volume["metadata"]["annotations"]["harvesterhci.io/imageId"] = json!("default/plan-image");
    applied(client, CLAIMS, &volume).await;
    bound(client, "plan-volume").await;
    let path = format!("{CLAIMS}/plan-volume");
    updated(client, &path, |volume| volume["spec"]["resources"]["requests"]["storage"] = json!("64Mi")).await;
    becomes(client, &path, "larger", BOOT, |volume| volume["status"]["capacity"]["storage"] == "64Mi").await;
    image["status"]["storageClassName"].as_str().expect("a class").to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plan_of_machines_is_applied_changed_and_destroyed() {
    let (_server, client) = node().await;
    // There is nothing in these machines that would power them off.
    let grace = format!("{SETTINGS}/default-vm-termination-grace-period-seconds");
    updated(&client, &grace, |setting| setting["value"] = json!("1")).await;
    let class = image_and_volume(&client).await;
    let templates = json!([{
        "metadata": {"name": "plan-disk-0-abcde", "creationTimestamp": null, "annotations": {
            "harvesterhci.io/imageId": "default/plan-image", "terraform-provider-harvester-auto-delete": "true"}},
        "spec": {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "32Mi"}}, "volumeMode": "Block", "storageClassName": class},
        "status": {}}]);
    let mut plan = machine("plan", "RerunOnFailure");
    plan["metadata"]["annotations"]["harvesterhci.io/volumeClaimTemplates"] = json!(templates.to_string());
    let spec = &mut plan["spec"]["template"]["spec"];
    spec["domain"]["devices"]["disks"] = json!([
        {"name": "disk-0", "bootOrder": 1, "disk": {"bus": "virtio"}},
        {"name": "disk-1", "disk": {"bus": "virtio"}},
        {"name": "cloudinitdisk", "disk": {"bus": "virtio"}}]);
    spec["volumes"] = json!([
        {"name": "disk-0", "persistentVolumeClaim": {"claimName": "plan-disk-0-abcde"}},
        {"name": "disk-1", "persistentVolumeClaim": {"claimName": "plan-volume"}},
        {"name": "cloudinitdisk", "cloudInitNoCloud": {"userData": "#cloud-config\n", "networkData": ""}}]);
    let made = client.post(MACHINES, &plan).await.expect("an answer").ok().expect("a machine");
    holds(&made, &plan);

    // Ready: it runs, and the interface that the plan waits for has an address.
    let instance = format!("{INSTANCES}/plan");
    let is_ready = |instance: &Value| {
        let addresses = instance["status"]["interfaces"][0]["ipAddresses"].as_array().cloned().unwrap_or_default();
        instance["status"]["phase"] == "Running" && !addresses.is_empty()
    };
    let first = becomes(&client, &instance, "ready", BOOT, is_ready).await;
    assert_eq!(first["status"]["interfaces"][0]["name"], "nic-1");
    let path = format!("{MACHINES}/plan");
    let got = read(&client, &path).await;
    holds(&got, &plan);
    // What the provider reads without looking whether it is there.
    let domain = &got["spec"]["template"]["spec"]["domain"];
    assert_eq!((&domain["machine"]["type"], &domain["cpu"]["cores"]), (&json!("q35"), &json!(1)));
    assert_eq!(domain["resources"]["limits"]["memory"], "128Mi");

    // Changed, and started anew at once.
    updated(&client, &path, |machine| {
        machine["spec"]["template"]["spec"]["domain"]["cpu"]["cores"] = json!(2);
        machine["spec"]["template"]["spec"]["domain"]["resources"]["limits"] = json!({"cpu": "2", "memory": "160Mi"});
        // Worked out anew from the limits.
        machine["spec"]["template"]["spec"]["domain"]["resources"]["requests"] = Value::Null;
        machine["spec"]["template"]["spec"]["domain"]["memory"] = Value::Null;
    })
    .await;
    let restart = Call::new(Method::PUT, &subresource("virtualmachines", "plan", "restart"));
    let answer = client.send(restart).await.expect("an answer");
    assert_eq!(answer.status, 202, "{}", answer.text());
    let uid = first["metadata"]["uid"].clone();
    let second =
        becomes(&client, &instance, "another", BOOT, |other| other["metadata"]["uid"] != uid && is_ready(other));
    assert_eq!(second.await["spec"]["domain"]["cpu"]["cores"], 2);
    let got = read(&client, &path).await;
    assert_eq!(got["spec"]["template"]["spec"]["domain"]["memory"]["guest"], "160Mi");

    // The first snapshot, which the plan waits for.
    let snapshot = json!({"apiVersion": "harvesterhci.io/v1beta1", "kind": "VirtualMachineBackup", "metadata": {"name": "plan-initial"},
        "spec": {"type": "snapshot", "source": {"apiGroup": "kubevirt.io", "kind": "VirtualMachine", "name": "plan"}}});
    let backups = format!("{HARVESTER}/namespaces/default/virtualmachinebackups");
    client.post(&backups, &go(snapshot)).await.expect("an answer").ok().expect("taken");
    let initial = format!("{backups}/plan-initial");
    let snapshot = becomes(&client, &initial, "ready", BOOT, |it| it["status"]["readyToUse"] == true).await;
    assert!(is_true(&snapshot, "Ready"), "{snapshot}");

    // Disks that go with the machine are named first.
    updated(&client, &path, |machine| {
        machine["metadata"]["annotations"]["harvesterhci.io/removedPersistentVolumeClaims"] =
            json!("plan-disk-0-abcde");
    })
    .await;
    destroyed(&client, &path, Some("Foreground")).await;
    is_gone(&client, &format!("{CLAIMS}/plan-disk-0-abcde")).await;
    is_gone(&client, &initial).await;
    refused(
        &client.delete(&format!("{IMAGES}/plan-image")).await.expect("an answer"),
        422,
        "volume default/plan-volume",
    );
    destroyed(&client, &format!("{CLAIMS}/plan-volume"), None).await;
    destroyed(&client, &format!("{IMAGES}/plan-image"), None).await;
}
