//! Croft's rules as webhooks of a Kubernetes that does not have them: `croft webhook` beside a server that leaves the rules
//! to it. The same writes go to a server with its rules inside, and must come to the same end.

use std::path::{Path, PathBuf};
use std::process::Command;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use croft_e2e::ruled::{BAD_SETTINGS, refusals};
use croft_e2e::storage::{deleted, made};
use croft_testkit::{
    Answer, Authority, Call, Client, Croft, Process, Protocol, StoreKind, binary, eventually, free_port,
};
use http::Method;
use serde_json::{Value, json};
use tempfile::TempDir;

const MACHINES: &str = "/apis/kubevirt.io/v1/namespaces/default/virtualmachines";
const INSTANCES: &str = "/apis/kubevirt.io/v1/namespaces/default/virtualmachineinstances";
const HARVESTER: &str = "/apis/harvesterhci.io/v1beta1";
const BALANCERS: &str = "/apis/loadbalancer.harvesterhci.io/v1beta1/namespaces/default/loadbalancers";
const BINDINGS: &str = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";

/// A server without rules, and its webhooks.
struct Outside {
    _server: Croft,
    client: Client,
    process: Process,
    url: String,
    dir: TempDir,
}

impl Outside {
    async fn start() -> Self {
        let server = Croft::start_with(StoreKind::Embedded, &["--own-rules", "webhook"]).await.expect("it starts");
        let client = server.client().expect("a client");
        let dir = tempfile::tempdir().expect("a directory");
        let port = free_port().expect("a port");
        let url = format!("https://127.0.0.1:{port}");
        let certs = dir.path().join("certs");
        let manifests = Command::new(binary().expect("the binary"))
            .args(["webhook", "manifests", "--url", &url, "--cert-dir"])
            .arg(&certs)
            .output()
            .expect("manifests");
        assert!(manifests.status.success(), "{}", String::from_utf8_lossy(&manifests.stderr));
        let manifests = String::from_utf8(manifests.stdout).expect("text");
        definitions_are_printed(&server, &client, &certs).await;
        // The role first: the webhooks must not be asked before they can look.
        let kubectl = server.kubectl().expect("kubectl");
        kubectl.ok_with(&["apply", "-f", "-"], &role_of(&manifests)).await;
        let kubeconfig = account(&server, &client, &dir).await;
        let process = spawn(port, &dir, &kubeconfig, &[]);
        let outside = Self { _server: server, client, process, url, dir };
        outside.answers("/readyz").await;
        kubectl.ok_with(&["apply", "-f", "-"], &manifests).await;
        outside
    }

    fn own(&self) -> Client {
        let ca = std::fs::read_to_string(self.dir.path().join("certs/ca.crt")).expect("an authority");
        Client::trusting(&self.url, &ca, Protocol::Http1).expect("a client")
    }

    async fn answers(&self, path: &str) {
        eventually("the webhooks are there", async || {
            let answer = self.own().get(path).await.map_err(|error| format!("{error:#}"))?;
            if answer.status == 200 { Ok(()) } else { Err(answer.text()) }
        })
        .await;
    }
}

/// Those that the server itself has, in a form that an API server takes.
async fn definitions_are_printed(server: &Croft, client: &Client, certs: &Path) {
    let printed = Command::new(binary().expect("the binary"))
        .args(["webhook", "manifests", "--definitions", "--service", "croft/rules", "--cert-dir"])
        .arg(certs)
        .output()
        .expect("manifests");
    let printed = String::from_utf8(printed.stdout).expect("text");
    let is_definition = |document: &&str| document.contains("kind: CustomResourceDefinition\n");
    let definitions: Vec<&str> = printed.split("---\n").filter(is_definition).collect();
    let known = client.get("/apis/apiextensions.k8s.io/v1/customresourcedefinitions").await.expect("an answer").json();
    assert_eq!(Some(definitions.len()), known["items"].as_array().map(Vec::len));
    let kubectl = server.kubectl().expect("kubectl");
    let apply = ["apply", "--server-side", "--force-conflicts", "--dry-run=server", "-f", "-"];
    let out = kubectl.ok_with(&apply, &definitions.join("---\n")).await;
    assert_eq!(out.stdout.lines().count(), definitions.len(), "{}", out.stdout);
}

fn role_of(manifests: &str) -> String {
    let role = manifests.split("---\n").find(|document| document.contains("kind: ClusterRole\n"));
    role.expect("a role").to_owned()
}

fn spawn(port: u16, dir: &TempDir, kubeconfig: &PathBuf, extra: &[&str]) -> Process {
    let mut command = Command::new(binary().expect("the binary"));
    command
        .args(["webhook", "--listen", &format!("127.0.0.1:{port}"), "--platform-user", "system:apiserver"])
        .arg("--kubeconfig")
        .arg(kubeconfig)
        .arg("--cert-dir")
        .arg(dir.path().join("certs"))
        .args(extra);
    Process::spawn("croft webhook", command, &dir.path().join(format!("{port}.log"))).expect("it starts")
}

/// The kubeconfig of an account that has the printed role and nothing else.
async fn account(server: &Croft, client: &Client, dir: &TempDir) -> PathBuf {
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "rules"}});
    made(client, accounts, &account).await;
    made(client, BINDINGS, &binding()).await;
    let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
    let token = made(client, &format!("{accounts}/rules/token"), &request).await;
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "rules",
        "clusters": [{"name": "test", "cluster": {
            "server": server.url, "certificate-authority-data": STANDARD.encode(&server.ca_pem)}}],
        "users": [{"name": "rules", "user": {"token": token["status"]["token"]}}],
        "contexts": [{"name": "rules", "context": {"cluster": "test", "user": "rules"}}],
    });
    let path = dir.path().join("kubeconfig");
    std::fs::write(&path, config.to_string()).expect("written");
    path
}

fn binding() -> Value {
    json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "rules"},
        "subjects": [{"kind": "ServiceAccount", "name": "rules", "namespace": "default"}],
        "roleRef": {"kind": "ClusterRole", "name": "croft-rules", "apiGroup": "rbac.authorization.k8s.io"}})
}

/// What a refusal tells a client. The name of a mutator is not known to a server that asks validators.
fn told(answer: &Answer) -> Value {
    let status = answer.json();
    let message = status["message"].as_str().unwrap_or_default();
    let message = ["mutator.harvesterhci.io", "virtualmachines-mutator.kubevirt.io"]
        .iter()
        .fold(message.to_owned(), |message, name| message.replace(name, "virtualmachine-validator.kubevirt.io"));
    json!([answer.status, status["reason"], message, status["details"]["causes"]])
}

async fn refused_alike(inside: &Client, outside: &Client, call: impl Fn() -> Call, expected: &str) {
    let (one, other) = (inside.send(call()).await.expect("an answer"), outside.send(call()).await.expect("an answer"));
    let message = one.json()["message"].as_str().unwrap_or_default().to_owned();
    assert!(one.status >= 400 && message.contains(expected), "{}", one.text());
    assert_eq!(told(&one), told(&other));
}

fn machine(name: &str, change: &Value) -> Value {
    let domain = json!({"devices": {"disks": [{"name": "d", "disk": {"bus": "virtio"}}],
            "interfaces": [{"name": "default", "masquerade": {}}]},
        "resources": {"limits": {"cpu": "1", "memory": "1Gi"}}});
    let mut machine = json!({"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": {"name": name},
        "spec": {"runStrategy": "Halted", "template": {"spec": {"domain": domain,
            "networks": [{"name": "default", "pod": {}}],
            "volumes": [{"name": "d", "containerDisk": {"image": "example/disk"}}]}}}});
    for (pointer, value) in change.as_object().into_iter().flatten() {
        *machine.pointer_mut(pointer).expect("a field") = value.clone();
    }
    machine
}

fn image(name: &str) -> Value {
    json!({"apiVersion": "harvesterhci.io/v1beta1", "kind": "VirtualMachineImage", "metadata": {"name": name},
        "spec": {"displayName": name, "sourceType": "upload"}})
}

/// What a rule refuses of new objects: where, what, and the words.
fn more_refusals() -> Vec<(String, Value, &'static str)> {
    let key = json!({"apiVersion": "harvesterhci.io/v1beta1", "kind": "KeyPair", "metadata": {"name": "x"},
        "spec": {"publicKey": "ssh-rsa AAAA"}});
    let disks = "/spec/template/spec/domain/devices/disks";
    let nameless = machine("x", &json!({disks: [{"name": "none", "disk": {"bus": "virtio"}}]}));
    let strategy = machine("x", &json!({"/spec/runStrategy": "Sometimes"}));
    let sized = machine("x", &json!({"/spec/template/spec/domain/resources": {"requests": {"memory": "-1Mi"}}}));
    let instance = json!({"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "metadata": {"name": "x"},
        "spec": {"domain": {"devices": {"disks": [{"name": "a"}]}, "resources": {"requests": {"memory": "64Mi"}}}}});
    let mut kept = machine("x", &json!({}));
    kept["spec"]["instancetype"] = json!({"kind": "VirtualMachineInstancetype", "name": "none"});
    vec![
        (format!("{HARVESTER}/namespaces/default/keypairs"), key, "not in valid OpenSSH public key format"),
        (MACHINES.to_owned(), nameless, "none"),
        (MACHINES.to_owned(), strategy, "Sometimes"),
        (MACHINES.to_owned(), sized, "memory"),
        (MACHINES.to_owned(), kept, "none"),
        (INSTANCES.to_owned(), instance, "disks"),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn webhooks_say_what_the_server_would() {
    let (inside, outside) = tokio::join!(Croft::start(StoreKind::Embedded), Outside::start());
    let inside = inside.expect("it starts");
    let inside = &inside.client().expect("a client");
    let there = &outside.client;

    // Refusals of new objects, which look at others that were made a moment ago.
    let network = json!({"apiVersion": "network.harvesterhci.io/v1beta1", "kind": "ClusterNetwork", "metadata": {"name": "data"}});
    for client in [inside, there] {
        made(client, "/apis/network.harvesterhci.io/v1beta1/clusternetworks", &network).await;
    }
    let known = refusals().into_iter().map(|(path, object, text)| (path.to_owned(), object, text));
    for (path, object, text) in known.chain(more_refusals()) {
        refused_alike(inside, there, || Call::new(Method::POST, &path).json(&object), text).await;
    }
    // Changes.
    for (name, value, text) in BAD_SETTINGS {
        let change = json!({ "value": value }).to_string();
        let call = || {
            Call::new(Method::PATCH, &format!("{HARVESTER}/settings/{name}"))
                .body("application/merge-patch+json", change.clone())
        };
        refused_alike(inside, there, call, text).await;
    }
    // A target that nobody answers for is tried by whoever asks.
    let target = json!({"type": "nfs", "endpoint": "nfs://127.0.0.1:/nowhere?nfsOptions=port=1"}).to_string();
    let change = json!({ "value": target }).to_string();
    let call = || {
        Call::new(Method::PATCH, &format!("{HARVESTER}/settings/backup-target"))
            .body("application/merge-patch+json", change.clone())
    };
    refused_alike(inside, there, call, "failed to connect to backup target").await;

    // Deletions.
    let images = format!("{HARVESTER}/namespaces/default/virtualmachineimages");
    let templates = format!("{HARVESTER}/namespaces/default/virtualmachinetemplates");
    let template = json!({"apiVersion": "harvesterhci.io/v1beta1", "kind": "VirtualMachineTemplate",
        "metadata": {"name": "base"}, "spec": {}});
    let version = json!({"apiVersion": "harvesterhci.io/v1beta1", "kind": "VirtualMachineTemplateVersion",
        "metadata": {"name": "one"}, "spec": {"templateId": "default/base", "imageId": "default/disk",
            "vm": {"spec": machine("x", &json!({}))["spec"]}}});
    for client in [inside, there] {
        made(client, &images, &image("disk")).await;
        made(client, &templates, &template).await;
        made(client, &format!("{HARVESTER}/namespaces/default/virtualmachinetemplateversions"), &version).await;
        made(client, MACHINES, &machine("kept", &json!({}))).await;
    }
    for (path, text) in [
        (format!("{images}/disk"), "being used by VMTemplateVersion default/one"),
        (format!("{HARVESTER}/settings/log-level"), "Disallow delete setting"),
    ] {
        refused_alike(inside, there, || Call::new(Method::DELETE, &path), text).await;
    }
    // Whether the caller may read what is copied for them is asked of the server.
    readers_alone_copy(inside, there).await;
    fills_in_alike(inside, there).await;
    fails_rather_than_guesses(outside).await;
}

async fn readers_alone_copy(inside: &Client, there: &Client) {
    let roles = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": "jane"},
        "subjects": [{"kind": "User", "name": "jane", "apiGroup": "rbac.authorization.k8s.io"}],
        "roleRef": {"kind": "ClusterRole", "name": "cluster-admin", "apiGroup": "rbac.authorization.k8s.io"}});
    let team = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}});
    for client in [inside, there] {
        made(client, "/api/v1/namespaces", &team).await;
        made(client, "/apis/rbac.authorization.k8s.io/v1/namespaces/team/rolebindings", &roles).await;
    }
    let volume = json!({"apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "DataVolume", "metadata": {"name": "x"},
        "spec": {"source": {"pvc": {"namespace": "default", "name": "disk"}},
            "storage": {"resources": {"requests": {"storage": "1Gi"}}}}});
    let claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": {"name": "disk", "annotations": {"harvesterhci.io/imageId": "default/disk"}},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}});
    for (path, object, text) in [
        ("/apis/cdi.kubevirt.io/v1beta1/namespaces/team/datavolumes", &volume, "insufficient permissions"),
        ("/api/v1/namespaces/team/persistentvolumeclaims", &claim, "jane is not allowed to access image"),
    ] {
        let call = || Call::new(Method::POST, path).header("impersonate-user", "jane").json(object);
        refused_alike(inside, there, call, text).await;
    }
}

/// Without what differs from one creation to the next.
fn comparable(mut object: Value) -> Value {
    let metadata = object["metadata"].as_object_mut().expect("metadata");
    metadata
        .retain(|field, _| matches!(field.as_str(), "name" | "namespace" | "labels" | "annotations" | "finalizers"));
    for pointer in ["/spec/template/spec/domain/firmware", "/spec/domain/firmware"] {
        if let Some(firmware) = object.pointer_mut(pointer).and_then(Value::as_object_mut) {
            assert!(firmware.contains_key("uuid"), "{firmware:?}");
            firmware.remove("uuid");
            firmware.remove("serial");
        }
    }
    for pointer in ["/spec/template/spec/domain/devices/interfaces/0", "/spec/domain/devices/interfaces/0"] {
        if let Some(nic) = object.pointer_mut(pointer).and_then(Value::as_object_mut) {
            nic.remove("macAddress");
        }
    }
    for stamp in
        object.pointer_mut("/status/phaseTransitionTimestamps").and_then(Value::as_array_mut).into_iter().flatten()
    {
        stamp["phaseTransitionTimestamp"] = json!("then");
    }
    object
}

async fn fills_in_alike(inside: &Client, there: &Client) {
    let balancer = json!({"apiVersion": "loadbalancer.harvesterhci.io/v1beta1", "kind": "LoadBalancer",
        "metadata": {"name": "front"}, "spec": {"listeners": [{"name": "a", "port": 80, "protocol": "TCP", "backendPort": 80}],
            "healthCheck": {"port": 80}}});
    let instance = json!({"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "metadata": {"name": "bare"},
        "spec": {"domain": {"devices": {}, "resources": {"requests": {"memory": "64Mi"}}}}});
    for (path, object, filled) in [
        (MACHINES, machine("vm", &json!({})), "/spec/template/spec/domain/machine/type"),
        (INSTANCES, instance, "/spec/domain/machine/type"),
        (BALANCERS, balancer, "/spec/healthCheck/periodSeconds"),
    ] {
        let (one, other) = (made(inside, path, &object).await, made(there, path, &object).await);
        assert!(object.pointer(filled).is_none() && one.pointer(filled).is_some(), "{one}");
        assert_eq!(comparable(one), comparable(other), "{path}");
    }
}

/// Bad questions have clear answers; of kinds without rules there is nothing to say.
async fn what_it_is_sent_is_looked_at(own: &Client) {
    let review = |version: &str, plural: &str| {
        json!({"apiVersion": version, "kind": "AdmissionReview", "request": {"uid": "7", "operation": "CREATE",
            "resource": {"group": "", "version": "v1", "resource": plural}, "userInfo": {"username": "jane"},
            "object": {"metadata": {"name": "x"}}}})
    };
    let huge = json!({"apiVersion": "admission.k8s.io/v1", "filler": "x".repeat(17 << 20)});
    for (body, status, text) in [
        (json!({}), 400, "this is no AdmissionReview"),
        (review("admission.k8s.io/v1beta1", "pods"), 400, "expected admission.k8s.io/v1 AdmissionReview, got"),
        (huge, 413, "a review may have"),
    ] {
        let answer = own.post("/validate", &body).await.expect("an answer");
        assert_eq!(answer.status, status, "{}", answer.text());
        assert!(answer.text().contains(text), "{}", answer.text());
    }
    for path in ["/mutate", "/validate", "/validate/validator.harvesterhci.io"] {
        let answer = own.post(path, &review("admission.k8s.io/v1", "unheardof")).await.expect("an answer");
        assert_eq!(answer.status, 200, "{}", answer.text());
        assert_eq!(answer.json()["response"], json!({"uid": "7", "allowed": true}));
    }
}

/// What the rules cannot see, they do not decide on; and while nobody answers, nothing is written.
async fn fails_rather_than_guesses(mut outside: Outside) {
    let (there, own) = (&outside.client, outside.own());
    let metrics = own.get("/metrics").await.expect("an answer").text();
    assert!(metrics.contains("croft_webhook_reviews_total{stage=\"validate\",resource=\"settings\""), "{metrics}");
    assert_eq!(own.get("/mutate").await.expect("an answer").status, 405);
    assert_eq!(own.get("/elsewhere").await.expect("an answer").status, 404);
    what_it_is_sent_is_looked_at(&own).await;

    deleted(there, &format!("{BINDINGS}/rules")).await;
    let config = json!({"apiVersion": "network.harvesterhci.io/v1beta1", "kind": "VlanConfig", "metadata": {"name": "x"},
        "spec": {"clusterNetwork": "data", "uplink": {"nics": ["ens4"]}}});
    let configs = "/apis/network.harvesterhci.io/v1beta1/vlanconfigs";
    let answer = there.post(configs, &config).await.expect("an answer");
    assert_eq!(answer.status, 500, "{}", answer.text());
    assert!(answer.text().contains("failed calling webhook"), "{}", answer.text());
    made(there, BINDINGS, &binding()).await;
    made(there, configs, &config).await;

    // Whoever cannot prove to be the API server is not talked to.
    let authority = Authority::new("servers").expect("an authority");
    let (port, ca) = (free_port().expect("a port"), outside.dir.path().join("clients.crt"));
    std::fs::write(&ca, authority.cert_pem()).expect("written");
    let kubeconfig = outside.dir.path().join("kubeconfig");
    let closed = spawn(port, &outside.dir, &kubeconfig, &["--client-ca-file", ca.to_str().expect("a path")]);
    eventually("it listens", async || {
        let log = closed.log_tail(20);
        if log.contains("the rules are served") { Ok(()) } else { Err(log) }
    })
    .await;
    let authority = std::fs::read_to_string(outside.dir.path().join("certs/ca.crt")).expect("an authority");
    let stranger = Client::trusting(&format!("https://127.0.0.1:{port}"), &authority, Protocol::Http1);
    let refused = stranger.expect("a client").get("/healthz").await.expect_err("a stranger");
    assert!(format!("{refused:#}").to_lowercase().contains("certificate"), "{refused:#}");

    outside.process.kill().expect("killed");
    let answer = there.post(configs, &config).await.expect("an answer");
    assert_eq!(answer.status, 500, "{}", answer.text());
    let images = format!("{HARVESTER}/namespaces/default/virtualmachineimages");
    let answer = there.post(&images, &image("late")).await.expect("an answer");
    assert!(answer.status == 500 && answer.text().contains("failed calling webhook"), "{}", answer.text());
}
