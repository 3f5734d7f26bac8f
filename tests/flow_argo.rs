//! Argo CD with this server as a cluster that it manages: an account, everything listed and watched, and manifests applied
//! by the server, compared and pruned.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use croft_e2e::flows::read;
use croft_e2e::machines::{BOOT, CLAIMS, IMAGES, MACHINES, is_gone};
use croft_e2e::storage::made;
use croft_testkit::{Call, Client, Croft, StoreKind, eventually_within};
use http::Method;
use serde_json::{Value, json};

const KUBE_SYSTEM: &str = "/api/v1/namespaces/kube-system";
const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";

/// What `argocd cluster add` makes, and the token that it then knows.
async fn account(server: &Croft, admin: &Client) -> Client {
    let name = json!({"name": "argocd-manager", "namespace": "kube-system"});
    made(
        admin,
        &format!("{KUBE_SYSTEM}/serviceaccounts"),
        &json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": name}),
    )
    .await;
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "argocd-manager-role"},
        "rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}, {"nonResourceURLs": ["*"], "verbs": ["*"]}]});
    made(admin, &format!("{RBAC}/clusterroles"), &role).await;
    let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "argocd-manager-role-binding"},
        "subjects": [{"kind": "ServiceAccount", "name": "argocd-manager", "namespace": "kube-system"}],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "argocd-manager-role"}});
    made(admin, &format!("{RBAC}/clusterrolebindings"), &binding).await;
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/service-account-token",
        "metadata": {"generateName": "argocd-manager-token-", "annotations": {"kubernetes.io/service-account.name": "argocd-manager"}}});
    let secret = made(admin, &format!("{KUBE_SYSTEM}/secrets"), &secret).await;
    let path = format!("{KUBE_SYSTEM}/secrets/{}", secret["metadata"]["name"].as_str().expect("a name"));
    let filled = eventually_within(BOOT, async || {
        let secret = read(admin, &path).await;
        secret["data"]["token"].as_str().map(str::to_owned).ok_or("no token")
    });
    let token = STANDARD.decode(filled.await.expect("a token")).expect("base64");
    server.bearer(&String::from_utf8(token).expect("text")).expect("a client")
}

/// The path of each collection that can be listed and watched, of the preferred version of its group.
async fn collections(client: &Client) -> Vec<String> {
    let mut versions = vec!["/api/v1".to_owned()];
    let groups = read(client, "/apis").await;
    for group in groups["groups"].as_array().expect("groups") {
        versions.push(format!("/apis/{}", group["preferredVersion"]["groupVersion"].as_str().expect("a version")));
    }
    let mut found = Vec::new();
    for version in versions {
        let list = read(client, &version).await;
        for resource in list["resources"].as_array().expect("resources") {
            let has =
                |verb: &str| resource["verbs"].as_array().is_some_and(|verbs| verbs.iter().any(|own| own == verb));
            let name = resource["name"].as_str().expect("a name");
            if has("list") && has("watch") && !name.contains('/') {
                found.push(format!("{version}/{name}"));
            }
        }
    }
    found
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everything_is_listed_and_watched() {
    let server = Croft::start(StoreKind::Embedded).await.expect("the server starts");
    let admin = server.client().expect("a client");
    let client = account(&server, &admin).await;
    assert!(read(&client, "/version").await["gitVersion"].is_string());
    // The definitions of all kinds, in the form that its parser takes.
    let call = Call::new(Method::GET, "/openapi/v2")
        .header("accept", "application/com.github.proto-openapi.spec.v2@v1.0+protobuf");
    let answer = client.send(call).await.expect("an answer");
    assert_eq!(answer.status, 200);
    assert!(answer.header("content-type").is_some_and(|ty| ty.contains("protobuf")) && answer.body.len() > 100_000);
    let review = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": {"namespace": "*", "verb": "list", "group": "kubevirt.io", "resource": "virtualmachines"}}});
    let allowed =
        client.post("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", &review).await.expect("an answer");
    assert_eq!(allowed.json()["status"]["allowed"], true);

    // One list that fails fails the whole cluster.
    let paths = collections(&client).await;
    assert!(paths.len() > 130, "{}", paths.len());
    for path in &paths {
        let list = read(&client, &format!("{path}?limit=500")).await;
        assert!(list["items"].is_array(), "{path}");
        let version = list["metadata"]["resourceVersion"].as_str().unwrap_or_else(|| panic!("{path} has no version"));
        let watch = format!("{path}?watch=true&allowWatchBookmarks=true&resourceVersion={version}&timeoutSeconds=600");
        let stream = client.open(Call::new(Method::GET, &watch)).await.expect("a watch");
        assert_eq!(stream.status, 200, "{path}");
    }
}

/// The manifests of a lab's repository: networks, an image, and a machine that names its claim.
fn manifests() -> Vec<(&'static str, Value)> {
    let network = |name: &str| json!({"apiVersion": "network.harvesterhci.io/v1beta1", "kind": "ClusterNetwork", "metadata": {"name": name}});
    let config = json!({"cniVersion": "0.3.1", "name": "platform", "type": "bridge", "bridge": "platform-br", "promiscMode": true, "vlan": 30, "ipam": {}});
    let clusters = "/apis/network.harvesterhci.io/v1beta1/clusternetworks";
    vec![
        (clusters, network("mgmt")),
        (clusters, network("platform")),
        (clusters, network("cluster")),
        (clusters, network("storage")),
        (
            "/apis/k8s.cni.cncf.io/v1/namespaces/default/network-attachment-definitions",
            json!({"apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition", "metadata": {"name": "platform", "namespace": "default"},
                "spec": {"config": config.to_string()}}),
        ),
        (
            IMAGES,
            json!({"apiVersion": "harvesterhci.io/v1beta1", "kind": "VirtualMachineImage", "metadata": {"name": "talos-1.9", "namespace": "default"},
                "spec": {"displayName": "talos-1.9", "sourceType": "download", "url": "https://images.example/talos.iso"}}),
        ),
        (
            CLAIMS,
            json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "cp-2-root", "namespace": "default"},
                "spec": {"accessModes": ["ReadWriteMany"], "volumeMode": "Block", "storageClassName": "harvester-longhorn", "resources": {"requests": {"storage": "100Gi"}}}}),
        ),
        (
            MACHINES,
            json!({"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": {"name": "cp-2", "namespace": "default"},
                "spec": {"running": true, "template": {"spec": {
                    "domain": {"cpu": {"cores": 4}, "memory": {"guest": "16Gi"}, "devices": {"disks": [{"name": "root", "disk": {"bus": "virtio"}}]}},
                    "volumes": [{"name": "root", "persistentVolumeClaim": {"claimName": "cp-2-root"}}],
                    "networks": [{"name": "platform", "multus": {"networkName": "default/platform"}}]}}}}),
        ),
    ]
}

fn apply(path: &str, manifest: &Value, is_dry: bool) -> Call {
    let name = manifest["metadata"]["name"].as_str().expect("a name");
    let dry = if is_dry { "&dryRun=All" } else { "" };
    let target = format!("{path}/{name}?fieldManager=argocd-controller&force=true{dry}");
    let mut tracked = manifest.clone();
    tracked["metadata"]["annotations"]["argocd.argoproj.io/tracking-id"] = json!(format!("harvester:{name}"));
    Call::new(Method::PATCH, &target).body("application/apply-patch+yaml", tracked.to_string())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn manifests_are_applied_compared_and_pruned() {
    let server = Croft::start(StoreKind::Embedded).await.expect("the server starts");
    let client = account(&server, &server.client().expect("a client")).await;
    // The machine of the guide has no card for its network, which KubeVirt refuses; with one it is taken.
    let mut manifests = manifests();
    let (path, machine) = manifests.last().cloned().expect("a machine");
    for (path, manifest) in &manifests[..manifests.len() - 1] {
        client
            .send(apply(path, manifest, false))
            .await
            .expect("an answer")
            .ok()
            .unwrap_or_else(|err| panic!("{manifest}: {err:#}"));
    }
    let answer = client.send(apply(path, &machine, false)).await.expect("an answer");
    assert_eq!(answer.status, 422, "{}", answer.text());
    let last = manifests.len() - 1;
    manifests[last].1["spec"]["template"]["spec"]["domain"]["devices"]["interfaces"] =
        json!([{"name": "platform", "bridge": {}}]);

    // A second application changes nothing, and a dry one shows nothing else than what is there.
    for (path, manifest) in &manifests {
        client
            .send(apply(path, manifest, false))
            .await
            .expect("an answer")
            .ok()
            .unwrap_or_else(|err| panic!("{manifest}: {err:#}"));
        let name = manifest["metadata"]["name"].as_str().expect("a name");
        let live = read(&client, &format!("{path}/{name}")).await;
        let dry = client.send(apply(path, manifest, true)).await.expect("an answer").ok().expect("a dry run");
        assert_eq!(dry["spec"], live["spec"], "{name} drifts");
        assert_eq!(dry["metadata"]["labels"], live["metadata"]["labels"], "{name} drifts");
        let managers = dry["metadata"]["managedFields"].as_array().expect("managed fields");
        assert!(
            managers.iter().any(|entry| entry["manager"] == "argocd-controller" && entry["operation"] == "Apply"),
            "{name}"
        );
        let again = client.send(apply(path, manifest, false)).await.expect("an answer").ok().expect("applied");
        assert_eq!(again["metadata"]["generation"], dry["metadata"]["generation"], "{name}");
    }

    // Pruned, with what it owns, but what a rule protects stays: the machine goes before its network.
    let nad = "/apis/k8s.cni.cncf.io/v1/namespaces/default/network-attachment-definitions/platform";
    assert_eq!(client.delete(nad).await.expect("an answer").status, 422);
    for (path, manifest) in manifests.iter().rev() {
        let target = format!("{path}/{}", manifest["metadata"]["name"].as_str().expect("a name"));
        let options = json!({"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Foreground"});
        let answer = client.send(Call::new(Method::DELETE, &target).json(&options)).await.expect("an answer");
        if target.ends_with("/mgmt") {
            assert_eq!(answer.status, 422, "the management network stays: {}", answer.text());
        } else {
            answer.ok().unwrap_or_else(|err| panic!("{target}: {err:#}"));
            is_gone(&client, &target).await;
        }
    }
}
