//! Who did what is written down, and can be read by those who may.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::Duration;

use base64::{Engine, prelude::BASE64_STANDARD};
use croft_e2e::logins::{LOGIN, PASSWORD, World, start};
use croft_testkit::{Answer, Call, Client, Croft, eventually, patience};
use http::Method;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;

const AUDIT: &str = "/croft/v1/audit";
const WRONG: &str = "wrong-horse-battery";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn file(server: &Croft) -> PathBuf {
    server.data_dir().join("audit/audit.log")
}

async fn entries(client: &Client, query: &str) -> Vec<Value> {
    let list = client.get(&format!("{AUDIT}?{query}")).await.expect("an answer").ok().expect("a list");
    assert_eq!((&list["kind"], &list["apiVersion"]), (&json!("EventList"), &json!("audit.k8s.io/v1")), "{list}");
    list["items"].as_array().expect("items").clone()
}

/// The only one that fits.
async fn entry(client: &Client, query: &str) -> Value {
    let mut found = entries(client, query).await;
    assert_eq!(found.len(), 1, "{query}: {found:?}");
    found.remove(0)
}

fn map(name: &str) -> Value {
    json!({"metadata": {"name": name}, "data": {"key": "a-value-of-the-body"}})
}

fn ok(answer: Answer) -> Value {
    answer.ok().expect("done")
}

/// A service account that may do nothing, and its token.
async fn nobody(server: &Croft, admin: &Client) -> (Client, String) {
    ok(admin
        .post("/api/v1/namespaces/default/serviceaccounts", &json!({"metadata": {"name": "nobody"}}))
        .await
        .expect("an answer"));
    let path = "/api/v1/namespaces/default/serviceaccounts/nobody/token";
    let made = ok(admin.post(path, &json!({"spec": {}})).await.expect("an answer"));
    let token = made["status"]["token"].as_str().expect("a token").to_owned();
    (server.bearer(&token).expect("a client"), token)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_changed_is_written_down_without_secrets() {
    let World { mut server, dir: _dir } = start(&[]).await;
    let admin = server.client().expect("a client");
    let anybody = server.anonymous().expect("a client");
    let one = format!("{MAPS}/one");

    let made = admin.post(MAPS, &map("one")).await.expect("an answer");
    let id = made.header("audit-id").expect("an id").to_owned();
    ok(made);
    ok(admin
        .patch(&format!("{one}?token=in-the-query"), "merge-patch", &json!({"data": null}))
        .await
        .expect("an answer"));
    assert_eq!(admin.post(MAPS, &map("one")).await.expect("an answer").status, 409);
    ok(admin.post(MAPS, &json!({"metadata": {"generateName": "made-up-"}})).await.expect("an answer"));
    ok(admin.get(&one).await.expect("an answer"));
    ok(admin.delete(&one).await.expect("an answer"));

    let created = entry(&admin, "verb=create&name=one&code=201").await;
    assert_eq!(created["auditID"], id.as_str());
    assert_eq!((&created["level"], &created["stage"]), (&json!("Metadata"), &json!("ResponseComplete")), "{created}");
    assert!(created["user"]["groups"].as_array().is_some_and(|groups| groups.contains(&json!("system:masters"))));
    let object = &created["objectRef"];
    assert_eq!(
        (&object["resource"], &object["namespace"], &object["apiVersion"]),
        (&json!("configmaps"), &json!("default"), &json!("v1"))
    );
    assert!(object["uid"].is_string(), "{created}");
    assert_eq!(created["sourceIPs"], json!(["127.0.0.1"]));
    assert_eq!(created["annotations"]["authorization.k8s.io/decision"], "allow");
    let patched = entry(&admin, "verb=patch&resource=configmaps&name=one").await;
    assert_eq!(patched["requestURI"], format!("{one}?token=***"));
    assert_eq!(entry(&admin, "name=one&code=4xx").await["responseStatus"]["reason"], "AlreadyExists");
    assert_eq!(entry(&admin, "verb=delete&name=one").await["responseStatus"]["code"], 200);
    assert_eq!(entries(&admin, "text=MADE-up-").await.len(), 1);
    assert!(entries(&admin, "verb=get,list,watch&limit=1000").await.is_empty());

    // Signing in, in both ways, and out.
    for (password, code) in [(WRONG, 401), (PASSWORD, 201)] {
        let answer = anybody.post(LOGIN, &json!({"username": "admin", "password": password})).await.expect("an answer");
        assert_eq!(answer.status, code, "{}", answer.text());
    }
    let basic = format!("Basic {}", BASE64_STANDARD.encode(format!("eve:{WRONG}")));
    let call = Call::new(Method::GET, "/api/v1/nodes").header("authorization", &basic);
    assert_eq!(anybody.send(call).await.expect("an answer").status, 401);
    let failed = entry(&admin, "verb=login&code=401").await;
    assert_eq!(failed["annotations"]["croft.io/tried-user"], "admin", "{failed}");
    assert_eq!(failed["user"], json!({}), "nobody has proved to be anybody: {failed}");
    assert_eq!(entry(&admin, "user=eve").await["verb"], "list");
    let login = entry(&admin, "verb=login&user=admin&code=2xx").await;
    assert!(login["annotations"]["croft.io/tried-user"].is_null(), "{login}");
    let signed = anybody.post(LOGIN, &json!({"username": "admin", "password": PASSWORD})).await.expect("an answer");
    let session = signed.json()["token"].as_str().expect("a token").to_owned();
    let signed = server.bearer(&session).expect("a client");

    // Harvester's way of speaking is told in the words of Kubernetes.
    let steve = "/v1/harvester/configmaps";
    let other = json!({"metadata": {"name": "two", "namespace": "default"}});
    assert_eq!(signed.post(steve, &other).await.expect("an answer").status, 201);
    let two = entry(&admin, "verb=create&resource=configmaps&namespace=default&name=two").await;
    assert_eq!((&two["requestURI"], &two["user"]["username"]), (&json!(steve), &json!("admin")), "{two}");
    let start = "/v1/harvester/kubevirt.io.virtualmachines/default/none?action=start";
    assert_eq!(signed.post(start, &json!({})).await.expect("an answer").status, 404);
    let action = entry(&admin, "resource=virtualmachines.kubevirt.io&name=none").await;
    assert_eq!((&action["objectRef"]["subresource"], &action["verb"]), (&json!("start"), &json!("create")), "{action}");
    assert!(signed.post("/v3/tokens?action=logout", &json!({})).await.expect("an answer").status < 300);
    assert_eq!(entry(&admin, "verb=logout").await["user"]["username"], "admin");

    // Those who may not.
    let (nobody, token) = nobody(&server, &admin).await;
    let refused = nobody.post(MAPS, &map("three")).await.expect("an answer");
    assert_eq!(refused.status, 403);
    let refused = entry(&admin, "user=system:serviceaccount:default:nobody").await;
    assert_eq!(refused["annotations"]["authorization.k8s.io/decision"], "forbid", "{refused}");
    assert_eq!(nobody.get(AUDIT).await.expect("an answer").status, 403);
    assert_eq!(anybody.get(AUDIT).await.expect("an answer").status, 403);
    let acting = Call::new(Method::DELETE, &format!("{MAPS}/two")).header("impersonate-user", "bob");
    assert_eq!(admin.send(acting).await.expect("an answer").status, 403);
    assert_eq!(entry(&admin, "user=bob").await["impersonatedUser"]["username"], "bob");

    // A console that is refused was asked for all the same.
    let console = "/apis/subresources.kubevirt.io/v1/namespaces/default/virtualmachineinstances/none/console";
    assert_eq!(admin.get(console).await.expect("an answer").status, 404);
    assert_eq!(entry(&admin, "text=console").await["objectRef"]["subresource"], "console");

    let written = std::fs::read_to_string(file(&server)).expect("the log");
    for secret in [PASSWORD, WRONG, &token, &session, "in-the-query", "a-value-of-the-body", &basic] {
        assert!(!written.contains(secret), "{secret} is in the log");
    }
    let about = std::fs::metadata(file(&server)).expect("the log");
    assert_eq!(about.permissions().mode() & 0o777, 0o600);
    // What Croft does by itself is not in it.
    assert!(!written.contains("system:apiserver"), "{written}");
    let metrics = admin.get("/metrics").await.expect("an answer").text();
    let lines = written.lines().count();
    assert!(metrics.contains(&format!("apiserver_audit_event_total {lines}\n")), "{lines}: {metrics}");
    assert!(metrics.contains("apiserver_audit_error_total{plugin=\"log\"} 0"), "{metrics}");

    // Killed in the middle of a line, the server goes on after it.
    server.kill().expect("killed");
    std::fs::write(file(&server), format!("{written}{{\"kind\":\"Ev")).expect("torn");
    server.restart().await.expect("the server starts again");
    let admin = server.client().expect("a client");
    ok(admin.post(MAPS, &map("after")).await.expect("an answer"));
    let all = entries(&admin, "limit=1000").await;
    assert_eq!(all.len(), lines + 1);
    assert_eq!(all[0]["objectRef"]["name"], "after");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pages_lead_from_one_to_the_next() {
    let World { server, dir: _dir } = start(&["--audit-log-maxsize=1"]).await;
    let admin = server.client().expect("a client");
    let empty = ok(admin.get(AUDIT).await.expect("an answer"));
    assert!(empty["items"] == json!([]) && empty["after"].is_null(), "{empty}");
    for number in 0..7 {
        ok(admin.post(MAPS, &map(&format!("map-{number}"))).await.expect("an answer"));
    }
    let name = |item: &Value| item["objectRef"]["name"].as_str().unwrap_or_default().to_owned();
    let first = ok(admin.get(&format!("{AUDIT}?limit=3")).await.expect("an answer"));
    let after = first["after"].as_str().expect("a cursor").to_owned();
    let (mut seen, mut page) = (Vec::new(), first);
    loop {
        seen.extend(page["items"].as_array().expect("items").iter().map(name));
        let Some(before) = page["before"].as_str() else { break };
        page = ok(admin.get(&format!("{AUDIT}?limit=3&before={before}")).await.expect("an answer"));
    }
    let expected: Vec<String> = (0..7).rev().map(|number| format!("map-{number}")).collect();
    assert_eq!(seen, expected);

    // Enough for the file to be rotated, between one look and the next.
    let agent = "x".repeat(4_000);
    let deleting = |number: usize| {
        let call = Call::new(Method::DELETE, &format!("{MAPS}/none-{number}?fieldManager={agent}"));
        admin.send(call)
    };
    for number in 0..600 {
        assert_eq!(deleting(number).await.expect("an answer").status, 404);
    }
    let (mut seen, mut after) = (Vec::new(), after);
    loop {
        let page = ok(admin.get(&format!("{AUDIT}?limit=250&after={after}")).await.expect("an answer"));
        let items = page["items"].as_array().expect("items");
        if items.is_empty() {
            break;
        }
        seen.extend(items.iter().rev().map(name));
        page["after"].as_str().expect("a cursor").clone_into(&mut after);
    }
    let expected: Vec<String> = (0..600).map(|number| format!("none-{number}")).collect();
    assert_eq!(seen, expected);
    let rotated = std::fs::read_dir(server.data_dir().join("audit")).expect("the directory").count();
    assert!(rotated >= 2, "{rotated} files");

    for query in
        ["limit=0", "limit=1001", "limit=x", "before=x", "after=1-1", "since=now", "code=9", "before=a&after=b"]
    {
        let answer = admin.get(&format!("{AUDIT}?{query}")).await.expect("an answer");
        assert_eq!((answer.status, answer.json()["reason"].as_str()), (400, Some("BadRequest")), "{query}");
    }
    assert_eq!(admin.delete(AUDIT).await.expect("an answer").status, 405);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_goes_away_early_is_seen_all_the_same() {
    let World { server, dir: _dir } = start(&[]).await;
    let admin = server.client().expect("a client");
    let body = map("hasty").to_string();
    let head = format!(
        "POST {MAPS} HTTP/1.1\r\nHost: croft\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        body.len() + 1
    );
    let mut stream = server.connect(Some(&server.admin), &["http/1.1"]).await.expect("a connection");
    // The last byte never comes.
    stream.write_all(format!("{head}{body}").as_bytes()).await.expect("sent");
    stream.flush().await.expect("sent");
    drop(stream);
    let seen = eventually("the request is written down", async || {
        entries(&admin, "verb=create&resource=configmaps").await.pop().ok_or("not yet")
    })
    .await;
    assert!(seen["responseStatus"]["code"].as_u64() >= Some(400), "{seen}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_log_can_be_elsewhere_or_nowhere() {
    let World { server, dir: _dir } = start(&["--audit-log-path=off"]).await;
    let admin = server.client().expect("a client");
    let answer = ok(admin.post(MAPS, &map("one")).await.expect("an answer"));
    assert_eq!(answer["metadata"]["name"], "one");
    let off = admin.get(AUDIT).await.expect("an answer");
    assert_eq!(off.status, 404);
    assert!(off.text().contains("switched off: start the server with --audit-log-path="), "{}", off.text());
    assert!(!server.data_dir().join("audit").exists());
    drop(server);

    let dir = tempfile::tempdir().expect("a directory");
    let place = dir.path().join("below/who.log");
    let World { server, dir: _dir } = start(&[&format!("--audit-log-path={}", place.display())]).await;
    let admin = server.client().expect("a client");
    ok(admin.post(MAPS, &map("one")).await.expect("an answer"));
    assert_eq!(entries(&admin, "").await.len(), 1);
    assert!(std::fs::read_to_string(place).expect("the log").contains("\"name\":\"one\""));
}

async fn croft(server: &Croft, args: &[&str]) -> std::process::Output {
    let kubeconfig = server.data_dir().join("kubeconfig");
    let mut command = tokio::process::Command::new(croft_testkit::binary().expect("the program"));
    command.arg("audit").args(args).arg("--kubeconfig").arg(kubeconfig).kill_on_drop(true);
    tokio::time::timeout(patience().max(Duration::from_secs(30)), command.output()).await.expect("ends").expect("runs")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_command_shows_what_was_written_down() {
    let World { server, dir: _dir } = start(&[]).await;
    let admin = server.client().expect("a client");
    ok(admin.post(MAPS, &map("one")).await.expect("an answer"));
    ok(admin.delete(&format!("{MAPS}/one")).await.expect("an answer"));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let table = text(&croft(&server, &["--since", "1h"]).await.stdout);
    let lines: Vec<&str> = table.lines().collect();
    assert!(lines.len() == 3 && lines[0].starts_with("TIME"), "{table}");
    assert!(lines[1].contains("delete") && lines[2].contains("configmaps default/one"), "{table}");
    let one = text(&croft(&server, &["--verb=create", "-o", "json"]).await.stdout);
    let one: Value = serde_json::from_str(&one).expect("one line of JSON");
    assert_eq!(one["objectRef"]["name"], "one");
    let none = croft(&server, &["--user=nobody"]).await;
    assert!(none.status.success() && none.stdout.is_empty(), "{none:?}");
    assert_eq!(croft(&server, &["--since", "yesterday"]).await.status.code(), Some(2));
    assert_eq!(croft(&server, &["--code", "x"]).await.status.code(), Some(1));
}
