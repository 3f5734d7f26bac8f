//! Local users: locked after wrong passwords, and logged in for kubectl.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use base64::{Engine, prelude::BASE64_STANDARD};
use croft_e2e::logins::{LOGIN, PASSWORD, World, croft, start};
use croft_testkit::{Answer, Call, Client, Croft, Endpoint, Kubectl, eventually};
use http::Method;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

async fn log_in(client: &Client, name: &str, password: &str) -> Answer {
    client.post(LOGIN, &json!({"username": name, "password": password})).await.expect("an answer")
}

async fn basic(client: &Client, name: &str, password: &str) -> u16 {
    let credentials = BASE64_STANDARD.encode(format!("{name}:{password}"));
    let call = Call::new(Method::GET, "/api/v1/namespaces").header("authorization", &format!("Basic {credentials}"));
    client.send(call).await.expect("an answer").status
}

fn is_locked(answer: &Answer) -> bool {
    let wait: u32 = answer.header("retry-after").and_then(|wait| wait.parse().ok()).unwrap_or_default();
    answer.status == 429 && (3_000..=3_601).contains(&wait)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wrong_passwords_lock_a_name_until_the_admin_unlocks_it() {
    let World { mut server, dir: _dir } = start(&["--login-attempts=3", "--login-lock=1h"]).await;
    let anybody = server.anonymous().expect("a client");
    for name in ["admin", "nobody-at-all"] {
        for guess in 0..3 {
            let refused = log_in(&anybody, name, &format!("guess-{guess}")).await;
            assert_eq!(refused.status, 401, "{}", refused.text());
        }
        // Whether there is such a user cannot be told, nor whether this is the password.
        let refused = log_in(&anybody, name, PASSWORD).await;
        assert!(is_locked(&refused), "{name}: {} {}", refused.status, refused.text());
        assert_eq!(basic(&anybody, name, PASSWORD).await, 429);
    }
    let secret = "/api/v1/namespaces/kube-system/secrets/login-lockouts";
    let admin = server.client().expect("a client");
    let metrics = admin.get("/metrics").await.expect("an answer").text();
    assert!(metrics.contains("authentication_attempts{result=\"failure\"} 2"), "{metrics}");
    let kept = eventually("both names are written down, and the certificate is not locked out", async || {
        let kept = admin.get(secret).await.expect("an answer").json();
        if kept["data"].as_object().map(serde_json::Map::len) == Some(2) { Ok(kept) } else { Err(kept) }
    });
    let kept = kept.await;
    assert!(!kept["data"].to_string().contains("admin"), "{kept}");

    server.restart().await.expect("the server starts again");
    let anybody = server.anonymous().expect("a client");
    assert!(is_locked(&log_in(&anybody, "admin", PASSWORD).await));
    assert!(is_locked(&log_in(&anybody, "nobody-at-all", PASSWORD).await));
    let users = croft(&server, &["user", "list"]).await;
    let line = users.lines().find(|line| line.starts_with("admin ")).expect("the admin is listed").to_owned();
    assert_eq!(line.split_whitespace().count(), 3, "{users}");
    assert_eq!(croft(&server, &["user", "unlock", "admin"]).await, "admin can log in again\n");
    let let_in = log_in(&anybody, "admin", PASSWORD).await;
    assert_eq!(let_in.status, 201, "{}", let_in.text());
    assert_eq!(croft(&server, &["user", "unlock", "admin"]).await, "admin was not locked\n");
}

fn kubectl(file: &Path, text: &str) -> Kubectl {
    std::fs::write(file, text).expect("written");
    Kubectl::new(file).expect("kubectl")
}

/// Whether the certificate in a kubeconfig ends within so many seconds.
fn ends_within(kubeconfig: &Path, seconds: u32) -> bool {
    let file = kubeconfig.with_extension("crt");
    std::fs::write(&file, Endpoint::from_kubeconfig(kubeconfig).expect("a certificate").admin.cert_pem)
        .expect("written");
    let mut openssl = std::process::Command::new("openssl");
    let told = openssl.args(["x509", "-noout", "-checkend", &seconds.to_string(), "-in"]).arg(&file).output();
    !told.expect("openssl").status.success()
}

async fn whoami(kubectl: &Kubectl) -> Value {
    kubectl.ok(&["auth", "whoami", "-o", "json"]).await.json()["status"]["userInfo"].clone()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kubeconfig_has_a_short_certificate_or_logs_in() {
    let World { server, dir } = start(&[]).await;
    let made = ["kubeconfig", "--user", "jane", "--group", "ops", "--group", "dev", "--client-certificate"];
    let jane = kubectl(&dir.path().join("jane"), &croft(&server, &made).await);
    let user = whoami(&jane).await;
    assert_eq!(user["username"], "jane", "{user}");
    assert_eq!(user["groups"], json!(["ops", "dev", "system:authenticated"]), "{user}");
    let kubeconfig = dir.path().join("jane");
    assert!(!ends_within(&kubeconfig, 3_000) && ends_within(&kubeconfig, 3_700), "it lasts an hour");
    let left = server.kubectl().expect("kubectl").ok(&["get", "csr"]).await;
    assert!(left.stdout.is_empty(), "{}", left.stdout);

    // No secret is in this one: kubectl asks croft, and croft the server.
    let text = croft(&server, &["kubeconfig", "--login", "--user", "admin"]).await;
    assert!(!text.contains("token:") && !text.contains("client-key-data"), "{text}");
    let mut admin = kubectl(&dir.path().join("admin"), &text);
    let program = croft_testkit::binary().expect("the program");
    let bin = program.parent().expect("a directory").display();
    admin.env("PATH", &format!("{bin}:{}", std::env::var("PATH").unwrap_or_default()));
    let cache = dir.path().join("cache");
    admin.env("CROFT_CREDENTIAL_CACHE", &cache.display().to_string());
    let refused = admin.fails(&["get", "namespaces"], "").await;
    assert!(refused.stderr.contains("no terminal to ask"), "{}", refused.stderr);
    admin.env("CROFT_PASSWORD_FILE", &dir.path().join("password").display().to_string());
    let user = whoami(&admin).await;
    assert_eq!(user["username"], "admin", "{user}");
    let id = user["extra"]["authentication.kubernetes.io/credential-id"][0].as_str().unwrap_or_default().to_owned();
    assert!(id.starts_with("token-"), "{user}");
    let files: Vec<_> = std::fs::read_dir(&cache).expect("a directory").map(|file| file.expect("a file")).collect();
    assert_eq!(files.len(), 1);
    assert_eq!(files[0].metadata().expect("a file").permissions().mode() & 0o777, 0o600);
    // The token is used again, without the password.
    admin.env("CROFT_PASSWORD_FILE", "/nonexistent");
    let again = whoami(&admin).await;
    assert_eq!(again["extra"]["authentication.kubernetes.io/credential-id"][0], id.as_str(), "{again}");

    // One that is about to end is not: kubectl logs in anew.
    let file = files[0].path();
    let mut kept: Value = serde_json::from_str(&std::fs::read_to_string(&file).expect("kept")).expect("JSON");
    let soon = Timestamp::now() + SignedDuration::from_secs(30);
    kept["status"]["expirationTimestamp"] = json!(soon.to_string());
    std::fs::write(&file, kept.to_string()).expect("written");
    admin.env("CROFT_PASSWORD_FILE", &dir.path().join("password").display().to_string());
    let new = whoami(&admin).await;
    let new = new["extra"]["authentication.kubernetes.io/credential-id"][0].as_str().unwrap_or_default();
    assert!(new.starts_with("token-") && new != id, "{new}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn logins_that_nobody_waits_for_are_counted_and_take_no_more_memory_than_others() {
    let World { server, dir: _dir } = start(&["--login-attempts=5", "--login-lock=1h"]).await;
    let anybody = server.anonymous().expect("a client");
    let before = server.process().peak_resident_bytes().expect("its memory");
    let guess = async |guess: usize| {
        let guess = json!({"username": "admin", "password": format!("guess-{guess}")});
        anybody.post(&format!("{LOGIN}&timeout=1ms"), &guess).await.expect("an answer").status
    };
    let answers = futures::future::join_all((0..100).map(guess)).await;
    // Those whose passwords were looked at, at the least; the others may have come when the name was locked.
    assert!(answers.iter().filter(|status| **status == 504).count() >= 5, "{answers:?}");
    let refused = log_in(&anybody, "admin", PASSWORD).await;
    assert!(is_locked(&refused), "they count: {} {}", refused.status, refused.text());
    let more = server.process().peak_resident_bytes().expect("its memory") - before;
    assert!(more < 256 << 20, "{} MiB more", more >> 20);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everybody_is_told_who_they_are() {
    let World { server, dir } = start(&[]).await;
    let admin = server.kubectl().expect("kubectl");
    let user = whoami(&admin).await;
    assert_eq!((&user["username"], &user["groups"][0]), (&json!("admin"), &json!("system:masters")), "{user}");
    let text = croft(&server, &["kubeconfig", "--user", "jane", "--group", "ops"]).await;
    let jane = kubectl(&dir.path().join("jane"), &text);
    let user = whoami(&jane).await;
    assert_eq!(
        (&user["username"], &user["groups"]),
        (&json!("jane"), &json!(["ops", "system:authenticated"])),
        "{user}"
    );
    assert!(user["extra"]["authentication.kubernetes.io/credential-id"][0].is_string(), "{user}");
    admin.ok(&["create", "serviceaccount", "builder"]).await;
    let token = admin.ok(&["create", "token", "builder"]).await.stdout;
    let args =
        ["--kubeconfig=/dev/null", "--server", &server.url, "--insecure-skip-tls-verify", "--token", token.trim()];
    let builder = Kubectl::new(Path::new("/dev/null")).expect("kubectl");
    let args: Vec<&str> = args.into_iter().chain(["auth", "whoami", "-o", "json"]).collect();
    let user = builder.ok(&args).await.json()["status"]["userInfo"].clone();
    assert_eq!(user["username"], "system:serviceaccount:default:builder", "{user}");
    assert_eq!(user["groups"][1], "system:serviceaccounts:default", "{user}");
    let id = user["extra"]["authentication.kubernetes.io/credential-id"][0].as_str().unwrap_or_default();
    assert!(id.starts_with("JTI="), "{user}");
    let anybody = server.anonymous().expect("a client");
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let credentials = BASE64_STANDARD.encode(format!("admin:{PASSWORD}"));
    let call = Call::new(Method::POST, "/apis/authentication.k8s.io/v1/selfsubjectreviews").json(&review);
    let told = anybody.send(call.header("authorization", &format!("Basic {credentials}"))).await.expect("an answer");
    let told = told.ok().expect("a review");
    assert_eq!(told["status"]["userInfo"]["username"], "admin", "{told}");
    assert!(told["status"]["userInfo"]["uid"].as_str().is_some_and(|uid| !uid.is_empty()), "{told}");
}

/// A request for an API key whose body is still to come: the server knows by now who asks.
async fn half_sent(server: &Croft, authorization: &str) -> impl AsyncRead + AsyncWrite + Unpin {
    let mut stream = server.connect(None, &["http/1.1"]).await.expect("a connection");
    let head = format!(
        "POST /v3/tokens HTTP/1.1\r\nhost: x\r\nauthorization: {authorization}\r\ncontent-type: application/json\r\n\
         content-length: 2\r\nexpect: 100-continue\r\nconnection: close\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await.expect("writes");
    let mut told = [0; 25];
    stream.read_exact(&mut told).await.expect("the server wants the body");
    assert_eq!(String::from_utf8_lossy(&told), "HTTP/1.1 100 Continue\r\n\r\n");
    stream
}

async fn token(client: &Client, path: &str, body: &Value) -> String {
    let made = client.post(path, body).await.expect("an answer").ok().expect("a token");
    made["token"].as_str().expect("a token").to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_password_ends_all_that_the_old_one_opened() {
    const NEW: &str = "another-horse-battery";
    let World { server, dir: _dir } = start(&[]).await;
    let anybody = server.anonymous().expect("a client");
    let login = json!({"username": "admin", "password": PASSWORD});
    let session = server.bearer(&token(&anybody, LOGIN, &login).await).expect("a client");
    let other = token(&anybody, LOGIN, &login).await;
    let key = token(&session, "/v3/tokens", &json!({})).await;
    let admin = server.client().expect("a client");
    let path = "/api/v1/namespaces/kube-system/secrets";
    let name = key.split(':').next().unwrap_or_default().to_owned();
    let mut kept = admin.get(&format!("{path}/{name}")).await.expect("an answer").ok().expect("its Secret");
    let key = server.bearer(&key).expect("a client");
    let made = croft(&server, &["token", "create", "--user", "admin", "--group", "system:masters"]).await;
    let made = server.bearer(made.trim()).expect("a client");
    let pair = BASE64_STANDARD.encode(format!("admin:{PASSWORD}"));
    let (basic, bearer) = (format!("Basic {pair}"), format!("Bearer {other}"));
    let late = [half_sent(&server, &basic).await, half_sent(&server, &bearer).await];

    // Those who log in at the same time are in before, and thrown out, or are not let in.
    let change = json!({"currentPassword": PASSWORD, "newPassword": NEW});
    let logins = futures::future::join_all((0..40).map(|_| log_in(&anybody, "admin", PASSWORD)));
    let (changed, logins) = tokio::join!(session.post("/v3/users?action=changepassword", &change), logins);
    let changed = changed.expect("an answer");
    assert_eq!(changed.status, 200, "{}", changed.text());
    for login in logins.iter().filter(|login| login.status == 201) {
        let client = server.bearer(login.json()["token"].as_str().expect("a token")).expect("a client");
        assert_eq!(client.get("/api/v1/namespaces").await.expect("an answer").status, 401);
    }
    for mut stream in late {
        stream.write_all(b"{}").await.expect("writes");
        let mut answer = String::new();
        // It may hang up without a goodbye.
        let _ = stream.read_to_string(&mut answer).await;
        assert!(answer.starts_with("HTTP/1.1 401 "), "{answer}");
    }
    for (client, expected) in [(&session, 200), (&key, 401), (&made, 200)] {
        assert_eq!(client.get("/api/v1/namespaces").await.expect("an answer").status, expected);
    }
    let tokens = session.get("/v3/tokens").await.expect("an answer").ok().expect("tokens");
    assert_eq!(tokens["count"], 1, "{tokens}");

    // As if the server had been killed before it removed this one.
    kept["metadata"] = json!({"name": name});
    admin.post(path, &kept).await.expect("an answer").ok().expect("made");
    assert_eq!(key.get("/api/v1/namespaces").await.expect("an answer").status, 401);
    let tokens = session.get("/v3/tokens").await.expect("an answer").ok().expect("tokens");
    assert_eq!(tokens["count"], 1, "{tokens}");
    // Of those who logged in at the same time, some may have come with a wrong password: then the name has to wait.
    eventually("the new password is good", async || match log_in(&anybody, "admin", NEW).await.status {
        201 => Ok(()),
        other => Err(format!("answered {other}")),
    })
    .await;
    assert_eq!(admin.get(&format!("{path}/{name}")).await.expect("an answer").status, 404, "swept up");
}
