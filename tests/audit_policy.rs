//! A policy says what is written down of requests, and a webhook has it sent elsewhere; what is secret is in neither.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use base64::{Engine, prelude::BASE64_STANDARD};
use croft_e2e::machines::croft_ok;
use croft_e2e::storage::{SECRETS, made};
use croft_testkit::{Authority, Client, Croft, Identity, StoreKind, eventually};
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::Mutex;
use tokio_rustls::TlsAcceptor;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const LEAK: &str = "hunter2-in-the-body";
const TOKEN: &str = "the-receivers-token";

const POLICY: &str = "
apiVersion: audit.k8s.io/v1
kind: Policy
omitManagedFields: true
rules:
- level: None
  resources: [{group: '', resources: [configmaps], resourceNames: [unseen]}]
- level: RequestResponse
  resources: [{group: '', resources: [configmaps]}]
  namespaces: [default]
- level: RequestResponse
  resources: [{group: '', resources: [secrets, serviceaccounts/token]}]
- level: Metadata
  omitStages: [RequestReceived]
  nonResourceURLs: [/version]
";

/// What was received, and what is answered next.
#[derive(Debug, Default)]
struct Received {
    bodies: Mutex<Vec<Value>>,
    /// Codes to answer with before 200.
    codes: Mutex<Vec<u16>>,
}

impl Received {
    async fn events(&self) -> Vec<Value> {
        let bodies = self.bodies.lock().await;
        bodies.iter().flat_map(|list| list["items"].as_array().cloned().unwrap_or_default()).collect()
    }
}

/// A receiver over TLS that knows its clients by a token.
async fn receiver(identity: &Identity) -> Result<(u16, Arc<Received>)> {
    let chain = CertificateDer::pem_slice_iter(identity.cert_pem.as_bytes()).collect::<Result<_, _>>()?;
    let key = PrivateKeyDer::from_pem_slice(identity.key_pem.as_bytes())?;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    let config = config.with_no_client_auth().with_single_cert(chain, key)?;
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let port = listener.local_addr()?.port();
    let received = Arc::new(Received::default());
    let shared = Arc::clone(&received);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (acceptor, shared) = (acceptor.clone(), Arc::clone(&shared));
            tokio::spawn(async move {
                // Whoever goes away in the middle has not been received.
                let _ = serve(acceptor, stream, &shared).await;
            });
        }
    });
    Ok((port, received))
}

/// One request for each connection.
async fn serve(acceptor: TlsAcceptor, stream: tokio::net::TcpStream, received: &Received) -> Result<()> {
    let mut stream = acceptor.accept(stream).await?;
    let mut bytes = Vec::new();
    let (head, start) = loop {
        ensure!(stream.read_buf(&mut bytes).await? > 0, "cut off");
        if let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            break (String::from_utf8_lossy(&bytes[..end]).to_lowercase(), end + 4);
        }
    };
    let length = head.lines().find_map(|line| line.strip_prefix("content-length:")).context("a length")?;
    let length: usize = length.trim().parse()?;
    while bytes.len() < start + length {
        ensure!(stream.read_buf(&mut bytes).await? > 0, "cut off");
    }
    let is_known = head.contains(&format!("authorization: bearer {TOKEN}"));
    let mut codes = received.codes.lock().await;
    let code = if !is_known {
        401
    } else if codes.is_empty() {
        200
    } else {
        codes.remove(0)
    };
    if code == 200 {
        received.bodies.lock().await.push(serde_json::from_slice(&bytes[start..])?);
    }
    stream.write_all(format!("HTTP/1.1 {code} X\r\ncontent-length: 0\r\nconnection: close\r\n\r\n").as_bytes()).await?;
    stream.shutdown().await?;
    Ok(())
}

async fn entries(client: &Client, query: &str) -> Vec<Value> {
    let list =
        client.get(&format!("/croft/v1/audit?limit=1000&{query}")).await.expect("an answer").ok().expect("a list");
    list["items"].as_array().expect("items").clone()
}

/// The only one of this stage.
fn stage<'a>(events: &'a [Value], stage: &str) -> &'a Value {
    let mut found = events.iter().filter(|event| event["stage"] == stage);
    let one = found.next().unwrap_or_else(|| panic!("no {stage}: {events:?}"));
    assert!(found.next().is_none(), "more than one {stage}: {events:?}");
    one
}

fn lost(metrics: &str, plugin: &str) -> u64 {
    let start = format!("apiserver_audit_error_total{{plugin=\"{plugin}\"}} ");
    metrics.lines().find_map(|line| line.strip_prefix(&start)).and_then(|count| count.parse().ok()).expect("a count")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn as_much_is_written_down_as_the_policy_says() {
    let place = tempfile::tempdir().expect("a directory");
    let policy = place.path().join("policy.yaml");
    std::fs::write(&policy, POLICY).expect("written");
    let authority = Authority::new("receivers").expect("an authority");
    let (port, received) = receiver(&authority.server().expect("a certificate")).await.expect("a receiver");
    received.codes.lock().await.extend([503, 429]);
    let config = place.path().join("webhook.yaml");
    let ca = BASE64_STANDARD.encode(authority.cert_pem());
    let kubeconfig = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "r", "user": "u"}}],
        "clusters": [{"name": "r", "cluster": {
            "server": format!("https://localhost:{port}/events"), "certificate-authority-data": ca,
        }}],
        "users": [{"name": "u", "user": {"token": TOKEN}}],
    });
    std::fs::write(&config, kubeconfig.to_string()).expect("written");
    let options = [
        format!("--audit-policy-file={}", policy.display()),
        format!("--audit-webhook-config-file={}", config.display()),
        "--audit-webhook-batch-max-wait=1s".to_owned(),
        "--audit-webhook-initial-backoff=1s".to_owned(),
    ];
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    let server = Croft::start_with(StoreKind::Embedded, &options).await.expect("the server starts");
    let client = server.client().expect("a client");

    // What was sent and answered, before and after.
    made(&client, MAPS, &json!({"metadata": {"name": "one"}, "data": {"key": "a-value"}})).await;
    let seen = entries(&client, "verb=create&resource=configmaps").await;
    let before = stage(&seen, "RequestReceived");
    assert!(before["responseStatus"].is_null() && before["requestObject"].is_null(), "{before}");
    let after = stage(&seen, "ResponseComplete");
    assert_eq!((&after["level"], &after["auditID"]), (&json!("RequestResponse"), &before["auditID"]));
    assert_eq!(after["requestObject"]["data"], json!({"key": "a-value"}), "{after}");
    assert_eq!(after["responseObject"]["metadata"]["name"], "one");
    assert!(after["responseObject"]["metadata"]["uid"].is_string());
    assert!(after["responseObject"]["metadata"]["managedFields"].is_null(), "{after}");
    client.get(&format!("{MAPS}/one")).await.expect("an answer").ok().expect("read");
    let read = entries(&client, "verb=get&name=one").await;
    assert_eq!(stage(&read, "ResponseComplete")["responseObject"]["data"]["key"], "a-value");
    let patch = json!([{"op": "add", "path": "/data/more", "value": "1"}]);
    client.patch(&format!("{MAPS}/one"), "json-patch", &patch).await.expect("an answer").ok().expect("patched");
    let patched = entries(&client, "verb=patch&name=one").await;
    assert_eq!(stage(&patched, "ResponseComplete")["requestObject"], patch);

    // What no rule is about, and what a rule leaves out.
    made(&client, "/api/v1/namespaces/kube-system/configmaps", &json!({"metadata": {"name": "elsewhere"}})).await;
    client.get(&format!("{MAPS}/unseen")).await.expect("an answer");
    client.get("/version").await.expect("an answer").ok().expect("read");
    assert!(entries(&client, "name=elsewhere").await.is_empty() && entries(&client, "name=unseen").await.is_empty());
    let version = entries(&client, "text=/version").await;
    assert_eq!(
        (version.len(), &version[0]["level"], &version[0]["stage"]),
        (1, &json!("Metadata"), &json!("ResponseComplete"))
    );

    // A watch has begun, and is over.
    let mut watch =
        client.open(croft_testkit::Call::new(http::Method::GET, &format!("{MAPS}?watch=true"))).await.expect("open");
    watch.event().await.expect("an event");
    let begun = entries(&client, "verb=watch").await;
    assert_eq!(stage(&begun, "ResponseStarted")["responseStatus"]["code"], 200);
    assert!(begun.iter().all(|event| event["stage"] != "ResponseComplete"), "{begun:?}");
    drop(watch);
    eventually("the watch is over", async || -> Result<()> {
        let seen = entries(&client, "verb=watch").await;
        ensure!(seen.iter().any(|event| event["stage"] == "ResponseComplete"), "{seen:?}");
        Ok(())
    })
    .await;

    what_grows_is_no_way_to_hide(&client).await;
    secrets_stay_secret(&client, &server).await;
    sent_elsewhere(&client, &server, &received).await;
}

/// A field of protobuf that has a length.
fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    let mut field = vec![number << 3 | 2];
    let mut length = bytes.len();
    while length > 0x7f {
        field.push(length.to_le_bytes()[0] | 0x80);
        length >>= 7;
    }
    field.push(length.to_le_bytes()[0]);
    field.extend_from_slice(bytes);
    field
}

/// A byte of protobuf may take six of JSON: what was written down then is still found.
async fn what_grows_is_no_way_to_hide(client: &Client) {
    let data = field(2, &[field(1, b"key"), field(2, &vec![1; 250_000])].concat());
    let object = [field(1, &field(1, b"grown")), data].concat();
    let kind = [field(1, b"v1"), field(2, b"ConfigMap")].concat();
    let body = [&b"k8s\0"[..], &field(1, &kind), &field(2, &object)].concat();
    let call = croft_testkit::Call::new(http::Method::POST, MAPS).body("application/vnd.kubernetes.protobuf", body);
    client.send(call).await.expect("an answer").ok().expect("made");
    let seen = entries(client, "verb=create&name=grown").await;
    let event = stage(&seen, "ResponseComplete");
    assert!(event["requestObject"].is_null() && event["responseObject"].is_null(), "an object is too long");
    assert_eq!(event["annotations"]["audit.k8s.io/truncated"], "true", "{event}");
}

async fn secrets_stay_secret(client: &Client, server: &Croft) {
    made(client, SECRETS, &json!({"metadata": {"name": "s"}, "stringData": {"password": LEAK}})).await;
    let encoded = BASE64_STANDARD.encode(LEAK);
    let patch = json!([{"op": "replace", "path": "/data/password", "value": encoded}]);
    client.patch(&format!("{SECRETS}/s"), "json-patch", &patch).await.expect("an answer").ok().expect("patched");
    client.get(SECRETS).await.expect("an answer").ok().expect("listed");
    made(client, "/api/v1/namespaces/default/serviceaccounts", &json!({"metadata": {"name": "sa"}})).await;
    let path = "/api/v1/namespaces/default/serviceaccounts/sa/token";
    let token = made(client, path, &json!({"spec": {}})).await["status"]["token"].as_str().expect("a token").to_owned();
    let seen = entries(client, "resource=secrets&verb=create").await;
    let made = stage(&seen, "ResponseComplete");
    assert_eq!(made["requestObject"]["stringData"], json!({"password": "(redacted)"}), "{made}");
    assert_eq!(made["responseObject"]["data"], json!({"password": "(redacted)"}), "{made}");
    let seen = entries(client, "resource=serviceaccounts&verb=create").await;
    assert_eq!(stage(&seen, "ResponseComplete")["responseObject"]["status"]["token"], "(redacted)");
    let written = std::fs::read_to_string(server.data_dir().join("audit/audit.log")).expect("the log");
    for secret in [LEAK, &encoded, &token] {
        assert!(!written.contains(secret), "{secret} is in the log");
    }
    // The command finds what is written.
    let said = croft_ok(server, &["audit", "--resource=secrets", "--verb=create"]).await.expect("told");
    assert!(said.contains("secrets default/s"), "{said}");
}

async fn sent_elsewhere(client: &Client, server: &Croft, received: &Received) {
    let metrics = async || client.get("/metrics").await.expect("an answer").text();
    let written = std::fs::read_to_string(server.data_dir().join("audit/audit.log")).expect("the log");
    let written: Vec<Value> = written.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    eventually("everything was sent, although it was refused at first", async || -> Result<()> {
        let seen = received.events().await;
        let missing = written.iter().filter(|event| !seen.contains(event)).count();
        ensure!(missing == 0, "{missing} of {} are missing", written.len());
        Ok(())
    })
    .await;
    let bodies = received.bodies.lock().await.clone();
    assert_eq!((&bodies[0]["kind"], &bodies[0]["apiVersion"]), (&json!("EventList"), &json!("audit.k8s.io/v1")));
    let text = serde_json::to_string(&bodies).expect("JSON");
    assert!(!text.contains(LEAK) && !text.contains(&BASE64_STANDARD.encode(LEAK)));
    assert_eq!(lost(&metrics().await, "webhook"), 0);

    // What the receiver does not want is not sent again, but counted.
    received.codes.lock().await.push(400);
    made(client, MAPS, &json!({"metadata": {"name": "unwanted"}})).await;
    eventually("the loss is counted", async || -> Result<()> {
        let text = metrics().await;
        ensure!(lost(&text, "webhook") >= 1, "{text}");
        Ok(())
    })
    .await;
    assert_eq!(lost(&metrics().await, "buffered"), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_policy_that_cannot_be_followed_is_refused() {
    let place = tempfile::tempdir().expect("a directory");
    let policy = place.path().join("policy.yaml");
    let text = "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules:\n- level: None\n- level: Everything\n  verb: [get]\n";
    std::fs::write(&policy, text).expect("written");
    let mut command = tokio::process::Command::new(croft_testkit::binary().expect("the program"));
    command.args(["server", "--no-node", "--listen=127.0.0.1:0", "--data-dir"]).arg(place.path().join("data"));
    command.arg(format!("--audit-policy-file={}", policy.display())).kill_on_drop(true);
    let ended =
        tokio::time::timeout(Duration::from_mins(1), command.output()).await.expect("in time").expect("it runs");
    let said = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert_eq!(ended.status.code(), Some(2), "{said}");
    assert!(
        said.contains("policy.yaml: ") && said.contains("rules[1].level: Unsupported value: \"Everything\""),
        "{said}"
    );
    assert!(said.contains("rules[1].verb: "), "{said}");
}
