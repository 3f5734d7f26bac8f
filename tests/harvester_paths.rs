//! Harvester's paths that are about no kind: kubeconfigs for guest clusters, preferences, the cluster, links.

use croft_e2e::storage::made;
use croft_testkit::{Answer, Call, Client, Croft, Kubectl, StoreKind};
use http::Method;
use serde_json::{Value, json};

const KUBECONFIG: &str = "/v1/harvester/kubeconfig";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";

async fn start() -> (Croft, Client) {
    let server = Croft::start(StoreKind::Embedded).await.expect("the server starts");
    let client = server.client().expect("a client");
    (server, client)
}

/// A failure in Steve's form.
fn refused(what: &str, answer: &Answer, code: u16, words: &str) {
    let body = answer.json();
    assert_eq!(answer.status, code, "{what}: {body}");
    assert_eq!((&body["type"], &body["status"]), (&json!("error"), &json!(code)), "{what}: {body}");
    assert!(body["message"].as_str().unwrap_or_default().contains(words), "{what}: {body}");
}

async fn get(client: &Client, path: &str) -> Value {
    client.get(path).await.expect("an answer").ok().unwrap_or_else(|err| panic!("{path}: {err:#}"))
}

/// kubectl as the holder of a kubeconfig.
fn kubectl(dir: &tempfile::TempDir, name: &str, config: &str) -> Kubectl {
    let file = dir.path().join(name);
    std::fs::write(&file, config).expect("the file is written");
    Kubectl::new(&file).expect("kubectl")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kubeconfigs_are_good_for_kubectl() {
    let (server, client) = start().await;
    let dir = tempfile::tempdir().expect("a directory");
    let asked = json!({"namespace": "default", "serviceAccountName": "robot", "clusterRoleName": "harvesterhci.io:cloudprovider"});
    let config = client.post(KUBECONFIG, &asked).await.expect("an answer").ok().expect("a kubeconfig");
    let config = config.as_str().expect("a text").to_owned();
    let robot = kubectl(&dir, "robot", &config);
    robot.ok(&["get", "virtualmachines", "-n", "default"]).await;
    robot.ok(&["get", "storageclasses"]).await;
    let refusal = robot.fails(&["get", "secrets", "-n", "default"], "").await;
    assert!(refusal.stderr.contains("Forbidden"), "{}", refusal.stderr);

    // Asking again changes nothing, and GET reads it.
    assert_eq!(client.post(KUBECONFIG, &asked).await.expect("an answer").json(), json!(config));
    let query = "namespace=default&serviceAccountName=robot";
    assert_eq!(get(&client, &format!("{KUBECONFIG}?{query}")).await, json!(config));
    let data = get(&client, &format!("{KUBECONFIG}?{query}&outputFormat=yaml")).await;
    let data: Value = serde_saphyr::from_str(data.as_str().expect("a text")).expect("yaml");
    assert_eq!(data["write_files"][0]["path"], "/etc/kubernetes/cloud-config");
    let content = data["write_files"][1]["content"].as_str().expect("a file");
    let content = base64::Engine::decode(&base64::prelude::BASE64_STANDARD, content).expect("base64");
    assert_eq!(String::from_utf8(content).expect("a text"), config);

    for (body, code, words) in [
        (json!({}), 422, "namespace"),
        (json!({"namespace": "default"}), 422, "serviceAccountName"),
        (json!({"namespace": "none", "serviceAccountName": "x"}), 404, "none"),
        (
            json!({"namespace": "default", "serviceAccountName": "x", "clusterRoleName": "cluster-admin"}),
            422,
            "cluster-admin",
        ),
        (json!({"namespace": "default", "serviceAccountName": "x", "outputFormat": "xml"}), 422, "xml"),
    ] {
        refused("a kubeconfig", &client.post(KUBECONFIG, &body).await.expect("an answer"), code, words);
    }
    let missing = client.get(&format!("{KUBECONFIG}?namespace=default&serviceAccountName=x")).await;
    refused("no account", &missing.expect("an answer"), 404, "x-token");
    refused("DELETE", &client.delete(KUBECONFIG).await.expect("an answer"), 405, "");
    let token = serde_saphyr::from_str::<Value>(&config).expect("yaml")["users"][0]["user"]["token"].clone();
    let robot = server.bearer(token.as_str().expect("a token")).expect("a client");
    refused("no rights", &robot.post(KUBECONFIG, &asked).await.expect("an answer"), 403, "serviceaccounts");
    let nobody = server.anonymous().expect("a client");
    refused("nobody", &nobody.post(KUBECONFIG, &asked).await.expect("an answer"), 401, "");
}

/// Rancher's way: log in, have a kubeconfig made, and use it through the path that Rancher has for the cluster.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kubectl_works_through_ranchers_path() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("password");
    std::fs::write(&file, "a first password").expect("the password is written");
    let option = format!("--admin-password-file={}", file.display());
    let server = Croft::start_with(StoreKind::Embedded, &[&option]).await.expect("the server starts");
    let login = json!({"username": "admin", "password": "a first password", "responseType": "token"});
    let nobody = server.anonymous().expect("a client");
    let login = nobody.post("/v3-public/localProviders/local?action=login", &login).await.expect("an answer");
    let client = server.bearer(login.json()["token"].as_str().expect("a token")).expect("a client");
    let path = "/v1/management.cattle.io.clusters/local?action=generateKubeconfig";
    let made = client.post(path, &json!({})).await.expect("an answer").ok().expect("a kubeconfig");
    let config = made["config"].as_str().expect("yaml");
    assert!(config.contains("/k8s/clusters/local"), "{config}");
    let admin = kubectl(&dir, "admin", config);
    admin.ok(&["get", "namespaces"]).await;
    admin.ok(&["create", "configmap", "mine", "--from-literal=a=b"]).await;
    admin.ok(&["wait", "--for=jsonpath={.data.a}=b", "configmap/mine", "--timeout=10s"]).await;
    admin.ok(&["explain", "virtualmachines.spec"]).await;
    admin.ok(&["delete", "configmap", "mine"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everyone_has_preferences_of_their_own() {
    let (server, client) = start().await;
    let all = get(&client, "/v1/userpreferences").await;
    let own = all["data"][0]["id"].as_str().expect("an id").to_owned();
    assert_eq!((&all["data"][0]["data"], &all["data"][0]["type"]), (&json!({}), &json!("userpreference")));
    let path = format!("/v1/userpreferences/{own}");
    for theme in ["dark", "light"] {
        let set = client.put(&path, &json!({"data": {"theme": theme}})).await.expect("an answer");
        assert_eq!(set.status, 200, "{}", set.text());
        assert_eq!(get(&client, "/v1/userpreferences").await["data"][0]["data"], json!({"theme": theme}));
    }
    let writes = (0..8).map(|n| {
        let (client, path) = (client.clone(), path.clone());
        async move { client.put(&path, &json!({"data": {"n": n.to_string()}})).await.expect("an answer").status }
    });
    assert!(futures::future::join_all(writes).await.into_iter().all(|status| status == 200));

    refused(
        "another's",
        &client.put("/v1/userpreferences/x", &json!({"data": {}})).await.expect("an answer"),
        404,
        "x",
    );
    for (data, code) in [(json!({"a b": "c"}), 422), (json!({"a": 1}), 422), (json!({"a": "x".repeat(70_000)}), 413)] {
        refused("bad data", &client.put(&path, &json!({"data": data})).await.expect("an answer"), code, "");
    }
    let nobody = server.anonymous().expect("a client");
    refused("nobody", &nobody.get("/v1/userpreferences").await.expect("an answer"), 401, "");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_cluster_tells_of_itself() {
    let (server, client) = start().await;
    let nobody = server.anonymous().expect("a client");
    assert_eq!(get(&nobody, "/v1/harvester/ui-info").await["ui-source"], "bundled");
    assert_eq!(get(&client, "/v1/harvester/readyz").await["ready"], true);
    let target = client.get("/v1/harvester/backuptarget/healthz").await.expect("an answer");
    refused("no target", &target, 422, "backup target is not set");
    assert_eq!(get(&client, "/v1/harvester/clusters/local?link=machineTypes").await[0], "q35");
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}});
    made(&client, "/api/v1/nodes", &node).await;
    let status =
        json!({"status": {"allocatable": {"cpu": "4", "nvidia.com/gpu": "2", "devices.kubevirt.io/kvm": "1k"}}});
    client.patch("/api/v1/nodes/n/status", "merge-patch", &status).await.expect("an answer").ok().expect("told");
    let devices = get(&client, "/v1/harvester/clusters/local?link=deviceCapacity").await;
    assert_eq!(devices["n"], json!({"nvidia.com/gpu": {"capacity": 2, "allocated": 0, "free": 2}}));
    for path in ["/v1/harvester/clusters/local", "/v1/harvester/clusters/other?link=machineTypes"] {
        assert_eq!(client.get(path).await.expect("an answer").status, 404, "{path}");
    }

    let kinds = "/apis/harvesterhci.io/v1beta1/namespaces/default";
    for name in ["one", "two"] {
        let template = json!({"apiVersion": "harvesterhci.io/v1beta1", "kind": "VirtualMachineTemplate",
            "metadata": {"name": name}, "spec": {}});
        made(&client, &format!("{kinds}/virtualmachinetemplates"), &template).await;
        let version = json!({"apiVersion": "harvesterhci.io/v1beta1", "kind": "VirtualMachineTemplateVersion",
            "metadata": {"name": format!("{name}-1")}, "spec": {"templateId": format!("default/{name}")}});
        made(&client, &format!("{kinds}/virtualmachinetemplateversions"), &version).await;
    }
    let path = "/v1/harvester/harvesterhci.io.virtualmachinetemplates/default/one";
    let template = get(&client, path).await;
    let link = template["links"]["versions"].as_str().expect("a link").strip_prefix(&server.url).expect("ours");
    for link in [link.to_owned(), format!("{path}?link=versions")] {
        let versions = get(&client, &link).await;
        assert_eq!(versions["resourceType"], "harvesterhci.io.virtualmachinetemplateversion");
        assert_eq!(
            (&versions["count"], &versions["data"][0]["id"]),
            (&json!(1), &json!("default/one-1")),
            "{versions}"
        );
    }
    refused("no link", &client.get(&format!("{path}/dance")).await.expect("an answer"), 404, "dance");
    let missing = path.replace("/one", "/none/versions");
    refused("no template", &client.get(&missing).await.expect("an answer"), 404, "not found");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn long_lists_are_packed_and_bad_requests_refused() {
    let (server, client) = start().await;
    for n in 0..40 {
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("m{n}"), "labels": {"long": "y"}},
            "data": {"text": "turnip ".repeat(1000)}});
        made(&client, MAPS, &map).await;
    }
    let path = "/v1/harvester/configmaps?labelSelector=long=y";
    let plain = client.get(path).await.expect("an answer");
    let call = Call::new(Method::GET, path).header("accept-encoding", "gzip");
    let packed = client.send(call).await.expect("an answer");
    assert_eq!(packed.header("content-encoding"), Some("gzip"));
    assert!(packed.body.len() * 10 < plain.body.len(), "{} {}", packed.body.len(), plain.body.len());
    let dir = tempfile::tempdir().expect("a directory");
    std::fs::write(dir.path().join("list.gz"), &packed.body).expect("kept");
    croft_e2e::storage::run("gzip", &["-d", croft_e2e::storage::text(&dir.path().join("list.gz"))]).expect("gzip");
    let unpacked: Value =
        serde_json::from_slice(&std::fs::read(dir.path().join("list")).expect("a file")).expect("JSON");
    // Between the two answers an object may have become a second older.
    let without_ages = |mut list: Value| {
        for object in list["data"].as_array_mut().expect("objects") {
            object["metadata"]["fields"].as_array_mut().expect("columns").pop();
        }
        list["data"].take()
    };
    assert_eq!(unpacked["count"], 40);
    assert!(without_ages(unpacked) == without_ages(plain.json()), "packed, it is another list");

    let maps = "/v1/harvester/configmaps";
    let send = async |method: Method, path: &str, body: Vec<u8>| {
        client.send(Call::new(method, path).body("application/json", body)).await.expect("an answer")
    };
    let huge = format!(
        "{{\"metadata\":{{\"name\":\"x\",\"namespace\":\"default\"}},\"data\":{{\"a\":\"{}\"}}}}",
        "x".repeat(4 << 20)
    );
    refused("too large", &send(Method::POST, maps, huge.into_bytes()).await, 413, "limit");
    refused("no JSON", &send(Method::POST, maps, b"{".to_vec()).await, 422, "cannot be read");
    refused("no object", &send(Method::POST, maps, b"[]".to_vec()).await, 422, "");
    refused("no verb", &send(Method::DELETE, maps, Vec::new()).await, 405, "");
    let path = format!("{maps}/default/m0?action=explode");
    refused("no action", &send(Method::POST, &path, b"{}".to_vec()).await, 404, "explode");
    for wrong in ["token-abcde:wrong", "nonsense", "eyJhbGciOiJub25lIn0.e30."] {
        let stranger = server.bearer(wrong).expect("a client");
        refused(wrong, &stranger.get(maps).await.expect("an answer"), 401, "");
    }
}
