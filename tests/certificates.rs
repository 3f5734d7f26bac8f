//! Certificate signing requests: asked for, decided about, signed, and used.

use std::path::Path;
use std::process::Command;

use base64::{Engine, prelude::BASE64_STANDARD};
use croft_testkit::{Client, Croft, Endpoint, Identity, Kubectl, StoreKind, eventually};
use serde_json::{Value, json};

const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
const API_CLIENT: &str = "kubernetes.io/kube-apiserver-client";
const KUBELET_SERVING: &str = "kubernetes.io/kubelet-serving";

/// A key and a request for it, as openssl makes them.
struct Asked {
    key: String,
    request: String,
}

fn ask(dir: &Path, subject: &str, more: &[&str]) -> Asked {
    let (key, request) = (dir.join("key.pem"), dir.join("request.pem"));
    let mut command = Command::new("openssl");
    command.args(["req", "-new", "-nodes", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-subj", subject]);
    let out = command.arg("-keyout").arg(&key).arg("-out").arg(&request).args(more).output().expect("openssl runs");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let read = |path: &Path| std::fs::read_to_string(path).expect("openssl wrote it");
    Asked { key: read(&key), request: read(&request) }
}

fn object(name: &str, request: &str, signer: &str, usages: &[&str]) -> Value {
    json!({
        "apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest", "metadata": {"name": name},
        "spec": {"request": BASE64_STANDARD.encode(request), "signerName": signer, "usages": usages},
    })
}

async fn read(admin: &Client, name: &str) -> Value {
    admin.get(&format!("{REQUESTS}/{name}")).await.expect("an answer").ok().expect("a request")
}

fn condition<'a>(request: &'a Value, kind: &str) -> Option<&'a Value> {
    request["status"]["conditions"].as_array()?.iter().find(|condition| condition["type"] == kind)
}

async fn signed(admin: &Client, name: &str) -> String {
    let found = eventually("the request is signed", async || {
        let request = read(admin, name).await;
        request["status"]["certificate"].as_str().map(str::to_owned).ok_or(request)
    });
    let found = found.await;
    String::from_utf8(BASE64_STANDARD.decode(found).expect("base64")).expect("PEM")
}

async fn decide(client: &Client, name: &str, kind: &str) -> croft_testkit::Answer {
    let path = format!("{REQUESTS}/{name}/approval");
    let patch = json!({"status": {"conditions": [{"type": kind, "status": "True", "reason": "Test"}]}});
    client.patch(&path, "merge-patch", &patch).await.expect("an answer")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_made_by_a_request_works_with_kubectl() {
    let server = Croft::start(StoreKind::Embedded).await.expect("the server starts");
    let (admin, kubectl) = (server.client().expect("a client"), server.kubectl().expect("kubectl"));
    let dir = tempfile::tempdir().expect("a directory");
    let asked = ask(dir.path(), "/O=ops/O=dev/CN=jane", &[]);
    let mut request = object("jane", &asked.request, API_CLIENT, &["client auth"]);
    request["spec"]["expirationSeconds"] = json!(3600);
    request["spec"]["username"] = json!("somebody-else");
    kubectl.ok_with(&["create", "-f", "-"], &request.to_string()).await;
    let kept = read(&admin, "jane").await;
    assert_eq!(kept["spec"]["username"], "admin", "{kept}");
    assert!(kubectl.ok(&["get", "csr", "jane"]).await.stdout.contains("Pending"));

    kubectl.ok(&["certificate", "approve", "jane"]).await;
    let cert_pem = signed(&admin, "jane").await;
    let line = kubectl.ok(&["get", "csr", "jane"]).await.stdout;
    assert!(line.contains("Approved,Issued") && line.contains("60m"), "{line}");
    let approved = read(&admin, "jane").await;
    let approved = condition(&approved, "Approved").expect("a condition");
    assert!(approved["lastUpdateTime"].is_string() && approved["lastTransitionTime"].is_string(), "{approved}");

    let file = dir.path().join("jane.kubeconfig");
    let identity = Identity { cert_pem, key_pem: asked.key };
    Endpoint::write_kubeconfig(&file, &server.url, &server.ca_pem, &identity).expect("a kubeconfig");
    let jane = Kubectl::new(&file).expect("kubectl");
    let me = jane.ok(&["auth", "whoami", "-o", "json"]).await.json();
    let info = &me["status"]["userInfo"];
    assert_eq!(info["username"], "jane", "{me}");
    assert_eq!(info["groups"], json!(["ops", "dev", "system:authenticated"]), "{me}");
    let id = &info["extra"]["authentication.kubernetes.io/credential-id"][0];
    assert!(id.as_str().is_some_and(|id| id.starts_with("X509SHA256=")), "{me}");
    jane.fails(&["get", "configmaps"], "").await;
    kubectl.ok(&["create", "clusterrolebinding", "ops", "--clusterrole=view", "--group=ops"]).await;
    jane.ok(&["get", "configmaps"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_are_decided_once_and_signed_by_the_rules() {
    let server = Croft::start(StoreKind::Embedded).await.expect("the server starts");
    let (admin, kubectl) = (server.client().expect("a client"), server.kubectl().expect("kubectl"));
    let dir = tempfile::tempdir().expect("a directory");
    let jane = ask(dir.path(), "/CN=jane", &[]);
    let create = async |object: Value| admin.post(REQUESTS, &object).await.expect("an answer");

    // Nobody becomes an administrator this way, and nobody has a key signed that they do not hold.
    let master = ask(dir.path(), "/O=system:masters/CN=eve", &[]);
    let refused = create(object("eve", &master.request, API_CLIENT, &["client auth"])).await;
    assert_eq!(refused.status, 403, "{}", refused.text());
    assert!(refused.text().contains("with system:masters group is not allowed"), "{}", refused.text());
    let (head, tail) = jane.request.split_at(jane.request.len() / 2);
    let changed = tail.chars().next().map_or('A', |letter| if letter == 'A' { 'B' } else { 'A' });
    let forged = format!("{head}{changed}{}", &tail[1..]);
    for (text, usages, expected) in [
        (forged.as_str(), &["client auth"][..], "spec.request: Invalid value"),
        ("-----BEGIN CERTIFICATE-----\n", &["client auth"], "PEM block type must be CERTIFICATE REQUEST"),
        (jane.request.as_str(), &[], "spec.usages: Required value"),
        (jane.request.as_str(), &["everything"], "spec.usages[0]: Unsupported value"),
    ] {
        let refused = create(object("bad", text, API_CLIENT, usages)).await;
        assert_eq!(refused.status, 422, "{}", refused.text());
        assert!(refused.text().contains(expected), "{}", refused.text());
    }

    // Denied is denied.
    create(object("denied", &jane.request, API_CLIENT, &["client auth"])).await.ok().expect("a request");
    kubectl.ok(&["certificate", "deny", "denied"]).await;
    let refused = decide(&admin, "denied", "Approved").await;
    assert_eq!(refused.status, 422, "{}", refused.text());
    assert!(refused.text().contains("may not remove a condition of type"), "{}", refused.text());
    let changed = json!({"spec": {"signerName": KUBELET_SERVING}});
    let path = format!("{REQUESTS}/denied");
    let kept = admin.patch(&path, "merge-patch", &changed).await.expect("an answer").ok().expect("the object");
    assert_eq!(kept["spec"]["signerName"], API_CLIENT, "what was asked for stays");

    // A signer says why it does not sign.
    create(object("wrong", &jane.request, API_CLIENT, &["server auth"])).await.ok().expect("a request");
    kubectl.ok(&["certificate", "approve", "wrong"]).await;
    let failed = eventually("the signer says no", async || {
        let request = read(&admin, "wrong").await;
        condition(&request, "Failed").cloned().ok_or(request)
    });
    let failed = failed.await;
    assert_eq!(failed["reason"], "SignerValidationFailure", "{failed}");
    assert_eq!(failed["message"], "invalid usage for client certificate: server auth", "{failed}");

    // A node's serving certificate has its names, and is no proof of who a client is.
    let names = ["-addext", "subjectAltName=DNS:node-1.example,IP:10.1.2.3"];
    let node = ask(dir.path(), "/O=system:nodes/CN=system:node:node-1", &names);
    let usages = ["digital signature", "key encipherment", "server auth"];
    create(object("node", &node.request, KUBELET_SERVING, &usages)).await.ok().expect("a request");
    // Somebody else's signer, which comes later than ours would.
    create(object("other", &jane.request, "example.com/mine", &["client auth"])).await.ok().expect("a request");
    kubectl.ok(&["certificate", "approve", "other", "node"]).await;
    let cert = signed(&admin, "node").await;
    let file = dir.path().join("node.crt");
    std::fs::write(&file, &cert).expect("written");
    let told = Command::new("openssl").args(["x509", "-noout", "-text", "-in"]).arg(&file).output().expect("openssl");
    let told = String::from_utf8_lossy(&told.stdout).into_owned();
    for expected in ["DNS:node-1.example, IP Address:10.1.2.3", "TLS Web Server Authentication", "system:node:node-1"] {
        assert!(told.contains(expected), "{expected}: {told}");
    }
    let other = read(&admin, "other").await;
    assert!(other["status"]["certificate"].is_null() && condition(&other, "Failed").is_none(), "{other}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deciding_and_signing_take_a_right_for_the_signer() {
    let server = Croft::start(StoreKind::Embedded).await.expect("the server starts");
    let (admin, kubectl) = (server.client().expect("a client"), server.kubectl().expect("kubectl"));
    let dir = tempfile::tempdir().expect("a directory");
    let jane = ask(dir.path(), "/CN=jane", &[]);
    for name in ["one", "two", "three"] {
        let made = admin.post(REQUESTS, &object(name, &jane.request, "example.com/mine", &["client auth"])).await;
        made.expect("an answer").ok().expect("a request");
    }
    kubectl.ok(&["create", "serviceaccount", "signer"]).await;
    let token = kubectl.ok(&["create", "token", "signer"]).await.stdout;
    let client = server.bearer(token.trim()).expect("a client");
    let role = |name: &str, signers: &[(&str, &str)]| {
        let csr = "certificates.k8s.io";
        let mut rules = vec![json!({"apiGroups": [csr], "verbs": ["get", "update", "patch"], "resources":
            ["certificatesigningrequests", "certificatesigningrequests/approval", "certificatesigningrequests/status"]})];
        rules.extend(signers.iter().map(|(verb, name)| {
            json!({"apiGroups": [csr], "verbs": [verb], "resources": ["signers"], "resourceNames": [name]})
        }));
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": name},
            "rules": rules,
        })
    };
    kubectl.ok_with(&["apply", "-f", "-"], &role("signing", &[]).to_string()).await;
    let account = "--serviceaccount=default:signer";
    kubectl.ok(&["create", "clusterrolebinding", "signing", "--clusterrole=signing", account]).await;

    let refused = decide(&client, "one", "Approved").await;
    assert_eq!(refused.status, 403, "{}", refused.text());
    let text = r#"user not permitted to approve requests with signerName \"example.com/mine\""#;
    assert!(refused.text().contains(text), "{}", refused.text());
    kubectl.ok_with(&["apply", "-f", "-"], &role("signing", &[("approve", "example.com/mine")]).to_string()).await;
    decide(&client, "one", "Approved").await.ok().expect("approved by name");
    kubectl.ok_with(&["apply", "-f", "-"], &role("signing", &[("approve", "example.com/*")]).to_string()).await;
    decide(&client, "two", "Approved").await.ok().expect("approved by domain");

    // Signing is another right, and does not decide.
    let certificate = BASE64_STANDARD.encode(&server.ca_pem);
    let path = format!("{REQUESTS}/one/status");
    let sign = json!({"status": {"certificate": certificate}});
    let refused = client.patch(&path, "merge-patch", &sign).await.expect("an answer");
    assert_eq!(refused.status, 403, "{}", refused.text());
    assert!(refused.text().contains("user not permitted to sign requests"), "{}", refused.text());
    kubectl.ok_with(&["apply", "-f", "-"], &role("signing", &[("sign", "example.com/mine")]).to_string()).await;
    client.patch(&path, "merge-patch", &sign).await.expect("an answer").ok().expect("signed");
    let three = format!("{REQUESTS}/three/status");
    let approve = json!({"status": {"conditions": [{"type": "Approved", "status": "True"}]}});
    let refused = client.patch(&three, "merge-patch", &approve).await.expect("an answer");
    assert_eq!(refused.status, 422, "{}", refused.text());
    assert!(refused.text().contains("updates may not add a condition of type"), "{}", refused.text());
}
