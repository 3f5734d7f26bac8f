//! What makes clusters out of machines from outside: the Cluster API providers for Harvester and for KubeVirt, and Butler,
//! which uses the second and makes machines of its own.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use croft_e2e::flows::{BALANCERS, HARVESTER, NADS, POOLS, applied, destroyed, go, read, refused, updated, uploaded};
use croft_e2e::machines::{BOOT, CLAIMS, IMAGES, INSTANCES, MACHINES, becomes, create, is_true, node, status_becomes};
use croft_e2e::storage::{DATA_VOLUMES, SECRETS, bound, claim, disk, made, volume_file};
use croft_testkit::{Call, Client, Croft, StoreKind};
use http::Method;
use serde_json::{Value, json};

const SERVICES: &str = "/api/v1/namespaces/default/services";

async fn server() -> (Croft, Client) {
    let server = Croft::start(StoreKind::Embedded).await.expect("the server starts");
    let client = server.client().expect("a client");
    (server, client)
}

/// An image called like this that has been uploaded to.
async fn image(client: &Client, name: &str) -> Value {
    let image = json!({"apiVersion": "harvesterhci.io/v1beta1", "kind": "VirtualMachineImage", "metadata": {"name": name},
        "spec": {"displayName": name, "sourceType": "upload"}});
    made(client, IMAGES, &image).await;
    let path = format!("{IMAGES}/{name}");
    becomes(client, &path, "initialized", BOOT, |image| is_true(image, "Initialized")).await;
    assert!(uploaded(client, name, &disk()).await.status < 400);
    becomes(client, &path, "imported", BOOT, |image| is_true(image, "Imported")).await
}

/// What `HarvesterCluster` asks for before it makes machines.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_harvester_cluster_is_prepared() {
    let (server, client) = server().await;
    // The connection is tried with a token that certificates have none of.
    let anonymous = server.anonymous().expect("a client");
    for authorization in ["Bearer ", "Bearer"] {
        let call = Call::new(Method::GET, "/healthz").header("authorization", authorization);
        let answer = client.send(call).await.expect("an answer");
        assert_eq!((answer.status, answer.text().as_str()), (200, "ok"), "{authorization:?}");
    }
    assert_eq!(anonymous.get("/healthz").await.expect("an answer").text(), "ok");
    let deployment = read(&client, "/apis/apps/v1/namespaces/harvester-system/deployments/harvester").await;
    assert!(is_true(&deployment, "Available"), "{deployment}");

    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "demo"}});
    made(&client, "/api/v1/namespaces", &go(namespace.clone())).await;
    refused(&client.post("/api/v1/namespaces", &go(namespace)).await.expect("an answer"), 409, "already exists");

    // The place for the control plane's address.
    let service = json!({"apiVersion": "v1", "kind": "Service",
        "metadata": {"name": "demo-lb", "labels": {"loadbalancer.harvesterhci.io/servicelb": "true"}},
        "spec": {"type": "LoadBalancer", "loadBalancerIP": "0.0.0.0", "ports": [{"name": "api", "port": 6443, "protocol": "TCP", "targetPort": 6443}]}});
    applied(&client, SERVICES, &service).await;
    let placed = updated_status(&client, &format!("{SERVICES}/demo-lb")).await;
    assert_eq!(placed["status"]["loadBalancer"]["ingress"][0]["ip"], "192.0.2.8");
    destroyed(&client, &format!("{SERVICES}/demo-lb"), None).await;

    // Addresses of machines are booked by the client itself, in the status, with the object.
    let pool = json!({"apiVersion": "loadbalancer.harvesterhci.io/v1beta1", "kind": "IPPool", "metadata": {"name": "demo"},
        "spec": {"ranges": [{"subnet": "192.0.2.0/24", "rangeStart": "192.0.2.10", "rangeEnd": "192.0.2.20", "gateway": "192.0.2.1"}], "selector": {}},
        "status": {"total": 11, "available": 11, "lastAllocated": ""}});
    applied(&client, POOLS, &pool).await;
    let path = format!("{POOLS}/demo");
    updated(&client, &path, |pool| {
        pool["status"]["available"] = json!(10);
        pool["status"]["allocated"] = json!({"192.0.2.10": "default/demo-cp-0"});
    })
    .await;
    let booked = read(&client, &path).await;
    assert_eq!(
        (&booked["status"]["available"], &booked["status"]["allocated"]["192.0.2.10"]),
        (&json!(10), &json!("default/demo-cp-0"))
    );
    let balancer = json!({"apiVersion": "loadbalancer.harvesterhci.io/v1beta1", "kind": "LoadBalancer", "metadata": {"name": "demo-lb"},
        "spec": {"workloadType": "vm", "ipam": "pool", "ipPool": "demo", "listeners": [{"name": "api", "port": 6443, "protocol": "TCP", "backendPort": 6443}],
            "backendServerSelector": {"harvesterhci.io/vmNamePrefix": ["demo-cp"]}, "healthCheck": {"port": 6443, "successThreshold": 1, "failureThreshold": 3, "periodSeconds": 5, "timeoutSeconds": 3}}});
    applied(&client, BALANCERS, &balancer).await;

    // The account that the guest's cloud provider gets. The group of the role is left out, and a token is there within a second.
    made(
        &client,
        "/api/v1/namespaces/default/serviceaccounts",
        &json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "demo"}}),
    )
    .await;
    let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "demo"},
        "subjects": [{"kind": "ServiceAccount", "name": "demo", "namespace": "default"}], "roleRef": {"kind": "ClusterRole", "name": "harvesterhci.io:cloudprovider"}});
    let bound = made(&client, "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", &binding).await;
    assert_eq!(bound["roleRef"]["apiGroup"], "rbac.authorization.k8s.io");
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/service-account-token",
        "metadata": {"name": "demo-token", "annotations": {"kubernetes.io/service-account.name": "demo"}}});
    let filled = made(&client, SECRETS, &secret).await;
    for key in ["token", "ca.crt", "namespace"] {
        assert!(filled["data"][key].is_string(), "{key} is there at once");
    }
    let service = read(&client, "/api/v1/namespaces/kube-system/services/ingress-expose").await;
    assert!(service["metadata"]["annotations"]["kube-vip.io/loadbalancerIPs"].is_string(), "{service}");

    // A Secret is written over without a version.
    let machine_secret = |data: &str| json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "demo-cp-0-cloud-init"}, "data": {"userdata": STANDARD.encode(data)}});
    made(&client, SECRETS, &machine_secret("a")).await;
    let path = format!("{SECRETS}/demo-cp-0-cloud-init");
    let changed = client.put(&path, &machine_secret("b")).await.expect("an answer").ok().expect("written");
    assert_eq!(changed["data"]["userdata"], STANDARD.encode("b"));
}

/// What a load balancer's controller reports of a Service.
async fn updated_status(client: &Client, path: &str) -> Value {
    let mut service = read(client, path).await;
    service["status"] = json!({"loadBalancer": {"ingress": [{"ip": "192.0.2.8"}]}});
    client.put(&format!("{path}/status"), &service).await.expect("an answer").ok().expect("written")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_harvester_machine_comes_and_goes() {
    let (_server, client) = node().await;
    image(&client, "talos").await;
    // Images are found by the name that is shown.
    let images = read(&client, &format!("{HARVESTER}/virtualmachineimages")).await;
    let found =
        images["items"].as_array().expect("images").iter().find(|image| image["spec"]["displayName"] == "talos");
    let class = found.expect("the image")["status"]["storageClassName"].as_str().expect("a class").to_owned();
    // The Secret has no network configuration, though the machine names it for that too.
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "demo-cp-0-cloud-init"}, "data": {"userdata": STANDARD.encode("#cloud-config\n")}});
    made(&client, SECRETS, &secret).await;
    let templates = json!([{"metadata": {"name": "demo-cp-0-disk-0-abcde", "annotations": {"harvesterhci.io/imageId": "default/talos"}},
        "spec": {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "20Mi"}}, "volumeMode": "Block", "storageClassName": class}}]);
    let labels = json!({"harvesterhci.io/creator": "harvester", "harvesterhci.io/vmName": "demo-cp-0", "harvesterhci.io/vmNamePrefix": "demo-cp"});
    let machine = go(json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine",
        "metadata": {"name": "demo-cp-0", "labels": labels, "annotations": {
            "harvesterhci.io/volumeClaimTemplates": templates.to_string(), "networks.harvesterhci.io/ips": "[]"}},
        "spec": {"runStrategy": "Always", "template": {
            "metadata": {"labels": labels, "annotations": {"harvesterhci.io/diskNames": "[\"disk-0\"]", "harvesterhci.io/sshNames": "[\"default/mine\"]"}},
            "spec": {
                "hostname": "demo-cp-0", "terminationGracePeriodSeconds": 1,
                "affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "podAffinityTerm": {
                    "topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"harvesterhci.io/vmNamePrefix": "demo-cp"}}}}]}},
                "domain": {
                    "cpu": {"cores": 1, "sockets": 1, "threads": 1},
                    "memory": {"guest": "120Mi"},
                    "resources": {"limits": {"cpu": "1", "memory": "128Mi"}},
                    "devices": {
                        "inputs": [{"name": "tablet", "type": "tablet", "bus": "usb"}],
                        "disks": [{"name": "disk-0", "bootOrder": 1, "disk": {"bus": "virtio"}}, {"name": "cloudinitdisk", "disk": {"bus": "virtio"}}],
                        "interfaces": [{"name": "nic-0", "model": "virtio", "bootOrder": 2, "masquerade": {}}],
                    },
                },
                "networks": [{"name": "nic-0", "pod": {}}],
                "volumes": [
                    {"name": "disk-0", "persistentVolumeClaim": {"claimName": "demo-cp-0-disk-0-abcde"}},
                    {"name": "cloudinitdisk", "cloudInitNoCloud": {"secretRef": {"name": "demo-cp-0-cloud-init"}, "networkDataSecretRef": {"name": "demo-cp-0-cloud-init"}}},
                ],
            },
        }},
    }));
    let made = create(&client, &machine).await;
    // What the client says of the guest's memory gives way to the limit, as Harvester's rules have it.
    assert_eq!(made["spec"]["template"]["spec"]["domain"]["memory"]["guest"], "128Mi");
    refused(&client.post(MACHINES, &machine).await.expect("an answer"), 409, "already exists");
    let has_address = |instance: &Value| instance["status"]["interfaces"][0]["ipAddress"].is_string();
    becomes(&client, &format!("{INSTANCES}/demo-cp-0"), "at an address", BOOT, has_address).await;
    let path = format!("{MACHINES}/demo-cp-0");
    let ready = becomes(&client, &path, "ready", BOOT, |machine| machine["status"]["ready"] == true).await;
    assert_eq!(ready["metadata"]["uid"], made["metadata"]["uid"]);
    destroyed(&client, &format!("{MACHINES}/demo-cp-0"), None).await;
    // Its claims are found by the beginning of their names, and stay until then.
    let claims = read(&client, CLAIMS).await;
    assert_eq!(claims["items"][0]["metadata"]["name"], "demo-cp-0-disk-0-abcde");
    destroyed(&client, &format!("{CLAIMS}/demo-cp-0-disk-0-abcde"), None).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kubevirt_machine_has_the_image_of_its_class() {
    let (server, client) = node().await;
    let imported = image(&client, "rocky").await;
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "type": "cluster.x-k8s.io/secret", "metadata": {"name": "worker-0-userdata"},
        "data": {"userdata": STANDARD.encode("#cloud-config\n")}});
    made(&client, SECRETS, &secret).await;
    // The labels of the template find the machines of the service.
    let labels = json!({"kubevirt.io/vm": "worker-0", "name": "worker-0", "cluster.x-k8s.io/role": "worker", "cluster.x-k8s.io/cluster-name": "demo"});
    let machine = go(json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": {"name": "worker-0", "labels": labels},
        "spec": {
            "runStrategy": "Always",
            "dataVolumeTemplates": [{"metadata": {"name": "worker-0-root", "creationTimestamp": null, "annotations": {"harvesterhci.io/imageId": "default/rocky"}},
                "spec": {"source": {"blank": {}}, "storage": {"storageClassName": "longhorn-rocky", "accessModes": ["ReadWriteMany"], "volumeMode": "Block", "resources": {"requests": {"storage": "20Mi"}}}}}],
            "template": {"metadata": {"labels": labels}, "spec": {
                "terminationGracePeriodSeconds": 1, "evictionStrategy": "External",
                "domain": {"cpu": {"cores": 1}, "memory": {"guest": "128Mi"}, "devices": {
                    "disks": [{"name": "root", "disk": {"bus": "virtio"}}, {"name": "cloudinitvolume", "disk": {"bus": "virtio"}}],
                    "interfaces": [{"name": "default", "bootOrder": 1, "masquerade": {}}]}},
                "networks": [{"name": "default", "pod": {}}],
                "volumes": [{"name": "root", "dataVolume": {"name": "worker-0-root"}},
                    {"name": "cloudinitvolume", "cloudInitConfigDrive": {"secretRef": {"name": "worker-0-userdata"}}}]}}},
    }));
    let made = create(&client, &machine).await;
    // Nobody gave limits, so nobody's numbers are changed.
    assert!(made["spec"]["template"]["spec"]["domain"]["resources"]["requests"].is_null(), "{made}");
    assert_eq!(made["spec"]["template"]["spec"]["domain"]["memory"]["guest"], "128Mi");
    becomes(&client, &format!("{DATA_VOLUMES}/worker-0-root"), "filled", BOOT, |volume| {
        volume["status"]["phase"] == "Succeeded"
    })
    .await;
    // On the class of an image, blank means the image.
    let file = volume_file(&server, &client, "worker-0-root").await;
    let content = std::fs::read(&file).expect("the volume");
    assert!(content.starts_with(&disk()), "the volume does not hold the image {imported}");
    let is_up = |instance: &Value| {
        is_true(instance, "Ready")
            && instance["status"]["interfaces"][0]["ipAddress"].is_string()
            && croft_e2e::machines::condition(instance, "LiveMigratable").is_some()
    };
    let instance = becomes(&client, &format!("{INSTANCES}/worker-0"), "up", BOOT, is_up).await;
    for (key, value) in labels.as_object().expect("labels") {
        assert_eq!(&instance["metadata"]["labels"][key], value, "{key}");
    }
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "demo-lb"},
        "spec": {"type": "ClusterIP", "selector": {"cluster.x-k8s.io/role": "control-plane", "cluster.x-k8s.io/cluster-name": "demo"}, "ports": [{"port": 6443, "protocol": "TCP", "targetPort": 6443}]}});
    let service = applied(&client, SERVICES, &service).await;
    assert!(
        service["spec"]["clusterIP"].as_str().is_some_and(|address| address.parse::<std::net::IpAddr>().is_ok()),
        "{service}"
    );
    // A drained guest: its instance is deleted, and the machine makes another.
    let uid = instance["metadata"]["uid"].clone();
    let options = json!({"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Foreground"});
    let call = Call::new(Method::DELETE, &format!("{INSTANCES}/worker-0")).json(&options);
    client.send(call).await.expect("an answer").ok().expect("deleted");
    becomes(&client, &format!("{INSTANCES}/worker-0"), "another", BOOT, |other| {
        other["metadata"]["uid"] != uid && is_up(other)
    })
    .await;
    destroyed(&client, &format!("{MACHINES}/worker-0"), None).await;
    // What it was made with goes with it.
    croft_e2e::machines::is_gone(&client, &format!("{DATA_VOLUMES}/worker-0-root")).await;
    // The image is in use until the disk that was made from it is gone, which is after the object that it was made by.
    croft_e2e::machines::is_gone(&client, &format!("{CLAIMS}/worker-0-root")).await;
    destroyed(&client, &format!("{IMAGES}/rocky"), None).await;
}

/// Butler's own machines: a claim whose class it works out itself, a machine, and their end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn butler_makes_a_machine() {
    let (_server, client) = node().await;
    assert!(read(&client, "/version").await["gitVersion"].is_string());
    // What its pickers show.
    let nads = "/apis/k8s.cni.cncf.io/v1/network-attachment-definitions";
    assert_eq!(read(&client, nads).await["items"], json!([]));
    // A network as its guide has it made: a VLAN of the management network.
    let config = json!({"cniVersion": "0.3.1", "name": "workloads", "type": "bridge", "bridge": "mgmt-br", "promiscMode": true, "vlan": 40, "ipam": {}});
    let nad = json!({"apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition", "metadata": {"name": "workloads"}, "spec": {"config": config.to_string()}});
    let nad = made(&client, NADS, &nad).await;
    assert_eq!(nad["metadata"]["labels"]["network.harvesterhci.io/ready"], "true", "{nad}");

    let imported = image(&client, "talos-1.9").await;
    assert_eq!(imported["status"]["progress"], 100);
    let images = read(&client, &format!("{HARVESTER}/virtualmachineimages")).await;
    assert_eq!(images["items"].as_array().map(Vec::len), Some(1));
    let mut root = claim("mgmt-cp-0-rootdisk", "longhorn-talos-1.9", "20Mi");
    root["metadata"]["annotations"] = json!({"harvesterhci.io/imageId": "default/talos-1.9"});
    applied(&client, CLAIMS, &root).await;
    bound(&client, "mgmt-cp-0-rootdisk").await;
    let machine = json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine",
        "metadata": {"name": "mgmt-cp-0", "labels": {"butler.butlerlabs.dev/machine": "mgmt-cp-0"}, "annotations": {"harvesterhci.io/vmRunStrategy": "Always"}},
        "spec": {"runStrategy": "Always", "template": {"metadata": {"labels": {"butler.butlerlabs.dev/machine": "mgmt-cp-0"}}, "spec": {
            "terminationGracePeriodSeconds": 1,
            "domain": {
                "cpu": {"cores": 1, "sockets": 1, "threads": 1}, "memory": {"guest": "128Mi"},
                "resources": {"limits": {"cpu": "1", "memory": "128Mi"}, "requests": {"cpu": "125m", "memory": "128Mi"}},
                "devices": {"disks": [{"name": "rootdisk", "bootOrder": 1, "disk": {"bus": "virtio"}}, {"name": "cloudinit", "disk": {"bus": "virtio"}}],
                    "interfaces": [{"name": "default", "bootOrder": 2, "bridge": {}}]},
            },
            "networks": [{"name": "default", "pod": {}}],
            "volumes": [{"name": "rootdisk", "persistentVolumeClaim": {"claimName": "mgmt-cp-0-rootdisk"}},
                {"name": "cloudinit", "cloudInitNoCloud": {"userDataBase64": STANDARD.encode("machine: {}\n"), "networkDataBase64": STANDARD.encode("version: 1\n")}}],
        }}},
    });
    create(&client, &machine).await;
    // It reads this one field, takes an IPv4 address, and the card's own.
    let path = format!("{INSTANCES}/mgmt-cp-0");
    let has_address = |instance: &Value| {
        let first = &instance["status"]["interfaces"][0];
        first["ipAddress"].as_str().is_some_and(|address| address.parse::<std::net::Ipv4Addr>().is_ok())
            && first["mac"].is_string()
    };
    becomes(&client, &path, "at an address", BOOT, has_address).await;
    let machine = status_becomes(&client, "mgmt-cp-0", "Running").await;
    assert_eq!(machine["status"]["ready"], true);
    // Deletion twice: what is not there any more is no error to it.
    destroyed(&client, &format!("{MACHINES}/mgmt-cp-0"), None).await;
    destroyed(&client, &format!("{CLAIMS}/mgmt-cp-0-rootdisk"), None).await;
    assert_eq!(client.delete(&format!("{MACHINES}/mgmt-cp-0")).await.expect("an answer").status, 404);
    destroyed(&client, &format!("{NADS}/workloads"), None).await;
}
