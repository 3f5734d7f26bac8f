//! Uploads and downloads.

use croft_testkit::{Answer, Call};
use http::Method;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;

use crate::agent::{IMAGE, soon};
use crate::cluster::Cluster;

const CLAIMS: &str = "/api/v1/namespaces/default/persistentvolumeclaims";
const TOKENS: &str = "/apis/upload.cdi.kubevirt.io/v1beta1/namespaces/default/uploadtokenrequests";
const IMAGES: &str = "/apis/harvesterhci.io/v1beta1/namespaces/default/virtualmachineimages";
const TRANSFER: &str = "/v1/harvester/harvesterhci.io.virtualmachineimages/default";

async fn claim(cluster: &Cluster, name: &str, annotations: Value) {
    let claim = json!({"metadata": {"name": name, "annotations": annotations}, "spec": {
        "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}});
    cluster.client.post(CLAIMS, &claim).await.unwrap().ok().unwrap();
}

async fn token(cluster: &Cluster, claim: &str) -> Answer {
    let request = json!({
        "apiVersion": "upload.cdi.kubevirt.io/v1beta1", "kind": "UploadTokenRequest",
        "metadata": {"name": "x", "namespace": "default"}, "spec": {"pvcName": claim},
    });
    cluster.client.post(TOKENS, &request).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn claims_are_filled_by_whoever_has_the_token() {
    let cluster = Cluster::start().await;
    assert_eq!(token(&cluster, "none").await.status, 404);
    claim(&cluster, "plain", json!({})).await;
    let refused = token(&cluster, "plain").await;
    assert!(refused.status == 409 && refused.text().contains("not an upload target"), "{}", refused.text());
    claim(&cluster, "target", json!({"cdi.kubevirt.io/storage.upload.target": ""})).await;
    let granted = token(&cluster, "target").await.ok().unwrap();
    let token = granted["status"]["token"].as_str().unwrap();

    let holder = cluster.endpoint.bearer(token).unwrap();
    assert_eq!(holder.get("/api/v1/namespaces").await.unwrap().status, 401, "it is good for nothing else");
    let upload =
        |path: &str, method: Method| Call::new(method, path).body("application/octet-stream", vec![5; 5 << 20]);
    for path in ["/v1beta1/upload", "/v1beta1/upload-async"] {
        let head = holder.send(Call::new(Method::HEAD, path)).await.unwrap();
        assert_eq!(head.status, 200, "{path}");
        let answer = soon(holder.send(upload(path, Method::POST))).await.unwrap();
        assert_eq!(answer.status, 200, "{path}: {}", answer.text());
        assert_eq!(cluster.agent.seen().last().unwrap(), "POST /v1/claims/default/target 5242880 bytes");
    }
    let form = "--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"x\"\r\n\r\ndisk\r\n--b--\r\n";
    let call = Call::new(Method::POST, "/v1beta1/upload-form").body("multipart/form-data; boundary=b", form);
    assert_eq!(holder.send(call).await.unwrap().status, 200);
    assert_eq!(cluster.agent.seen().last().unwrap(), "POST /v1/claims/default/target disk");

    for client in
        [cluster.endpoint.bearer("wrong").unwrap(), cluster.client.clone(), cluster.endpoint.anonymous().unwrap()]
    {
        assert_eq!(client.send(upload("/v1beta1/upload", Method::POST)).await.unwrap().status, 401);
    }
    // The token goes with the claim.
    cluster.client.delete(&format!("{CLAIMS}/target")).await.unwrap();
    let finalizers = json!({"metadata": {"finalizers": null}});
    let _ = cluster.client.patch(&format!("{CLAIMS}/target"), "merge-patch", &finalizers).await;
    claim(&cluster, "target", json!({"cdi.kubevirt.io/storage.upload.target": ""})).await;
    assert_eq!(holder.send(upload("/v1beta1/upload", Method::POST)).await.unwrap().status, 404);
}

async fn image(cluster: &Cluster, name: &str, source: &str) {
    let mut image = json!({
        "apiVersion": "harvesterhci.io/v1beta1", "kind": "VirtualMachineImage", "metadata": {"name": name},
        "spec": {"displayName": format!("{name}.qcow2"), "sourceType": source, "retry": 3},
    });
    if source == "download" {
        image["spec"]["url"] = json!("http://192.0.2.1/a.qcow2");
    }
    cluster.client.post(IMAGES, &image).await.unwrap().ok().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn images_are_uploaded_and_downloaded() {
    let cluster = Cluster::start().await;
    image(&cluster, "up", "upload").await;
    image(&cluster, "down", "download").await;
    let mut form = b"--b\r\nContent-Disposition: form-data; name=\"chunk\"; filename=\"x\"\r\n\r\n".to_vec();
    form.extend(vec![b'x'; 20 << 20]);
    form.extend(b"\r\n--b--\r\n");
    let upload = |name: &str, query: &str| {
        let path = format!("{TRANSFER}/{name}?action=upload{query}");
        Call::new(Method::POST, &path).body("multipart/form-data; boundary=b", form.clone())
    };
    let answer = soon(cluster.client.send(upload("up", "&size=20971520"))).await.unwrap();
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(cluster.agent.seen().last().unwrap(), "POST /v1/images/default/up?size=20971520 20971520 bytes");
    for (name, query, code) in [("up", "&size=much", 400), ("down", "", 409), ("none", "", 404)] {
        assert_eq!(soon(cluster.client.send(upload(name, query))).await.unwrap().status, code, "{name}{query}");
    }
    let answer = soon(cluster.client.get(&format!("{TRANSFER}/up/download"))).await.unwrap();
    assert_eq!((answer.status, answer.body.len()), (200, IMAGE));
    assert_eq!(answer.header("content-disposition"), Some("attachment; filename=up.qcow2.gz"));
    let anonymous = cluster.endpoint.anonymous().unwrap();
    assert_eq!(anonymous.get(&format!("{TRANSFER}/up/download")).await.unwrap().status, 403);
    assert_eq!(anonymous.send(upload("up", "")).await.unwrap().status, 403);
}

/// An upload that breaks off is seen as such by the agent, and leaves nobody waiting.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn uploads_that_break_off_are_seen_as_such() {
    let cluster = Cluster::start().await;
    image(&cluster, "up", "upload").await;
    let mut stream = cluster.endpoint.connect(Some(&cluster.endpoint.admin), &["http/1.1"]).await.unwrap();
    let head = format!("POST {TRANSFER}/up?action=upload HTTP/1.1\r\nhost: x\r\ncontent-length: 1000000\r\n\r\nsome");
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.flush().await.unwrap();
    drop(stream);
    let broken = async {
        while !cluster.agent.seen().iter().any(|seen| seen == "BROKEN /v1/images/default/up") {
            tokio::task::yield_now().await;
        }
    };
    soon(broken).await;
}
