//! Support bundles: what is in them, what must never be, who gets them, and how they end.

use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};
use croft_e2e::kept::Bucket;
use croft_e2e::machines::{create, croft, croft_ok, empty, merge, node, status_becomes};
use croft_testkit::{Answer, Client, Croft, StoreKind, eventually};
use serde_json::{Value, json};

const BUNDLES: &str = "/apis/harvesterhci.io/v1beta1/namespaces/harvester-system/supportbundles";
const SETTINGS: &str = "/apis/harvesterhci.io/v1beta1/settings";
/// Put into every corner; no bundle may have it.
const LEAK: &str = "hunter2-hunter2";

async fn start() -> (Croft, Client) {
    let server = Croft::start(StoreKind::Embedded).await.expect("the server starts");
    let client = server.client().expect("a client");
    (server, client)
}

fn bundle(name: &str, spec: &Value) -> Value {
    let mut bundle = json!({
        "apiVersion": "harvesterhci.io/v1beta1", "kind": "SupportBundle", "metadata": {"name": name},
        "spec": {"description": "a test"},
    });
    merge(&mut bundle["spec"], spec);
    bundle
}

async fn ask(client: &Client, name: &str, spec: &Value) {
    let made = client.post(BUNDLES, &bundle(name, spec)).await.expect("an answer");
    assert_eq!(made.status, 201, "{}", made.text());
}

async fn state_becomes(client: &Client, name: &str, expected: &str) -> Value {
    eventually("the bundle's state", async || {
        let bundle = client.get(&format!("{BUNDLES}/{name}")).await?.ok()?;
        ensure!(bundle["status"]["state"] == expected, "{bundle}");
        Ok(bundle)
    })
    .await
}

async fn is_gone(client: &Client, name: &str) {
    eventually("the end of the bundle", async || {
        let answer = client.get(&format!("{BUNDLES}/{name}")).await?;
        ensure!(answer.status == 404, "{}", answer.text());
        Ok::<_, anyhow::Error>(())
    })
    .await;
}

async fn download(client: &Client, name: &str, query: &str) -> Answer {
    let answer = client.get(&format!("/v1/harvester/supportbundles/{name}/download{query}")).await;
    answer.expect("an answer")
}

/// The texts of a zip file by their names without the directory that all are in.
fn unpack(bytes: &[u8]) -> Vec<(String, String)> {
    let mut zip = zip::ZipArchive::new(std::io::Cursor::new(bytes)).expect("a zip file");
    let names: Vec<String> = zip.file_names().map(|name| name.expect("a name").into_owned()).collect();
    let mut text = |name: &str| {
        let mut text = String::new();
        zip.by_name(name).expect("a file").read_to_string(&mut text).expect("a text");
        text
    };
    let texts: Vec<String> = names.iter().map(|name| text(name)).collect();
    let short = names.iter().map(|name| name.split_once('/').expect("a directory").1.to_owned());
    short.zip(texts).collect()
}

fn find<'a>(files: &'a [(String, String)], name: &str) -> &'a str {
    let found = files.iter().find(|(known, _)| known == name);
    let names = || files.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>();
    &found.unwrap_or_else(|| panic!("no {name} in {:?}", names())).1
}

fn files_of(server: &Croft) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(server.data_dir().join("support-bundles")).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).collect()
}

/// Objects with a secret each, in all the places where people keep them. A bucket makes up the key to it.
async fn hide_secrets(client: &Client, bucket: &Bucket) {
    for (path, object) in [
        ("/api/v1/namespaces/default/secrets", json!({"metadata": {"name": "s"}, "stringData": {"the-key": LEAK}})),
        (
            "/api/v1/namespaces/default/configmaps",
            json!({"metadata": {"name": "c"}, "data": {"cloud": format!("#cloud-config\npassword: {LEAK}\n")}}),
        ),
    ] {
        let answer = client.post(path, &object).await.expect("an answer");
        assert_eq!(answer.status, 201, "{}", answer.text());
    }
    let mut machine = empty("vm");
    machine["spec"]["runStrategy"] = "Halted".into();
    let template = &mut machine["spec"]["template"]["spec"];
    template["volumes"] =
        json!([{"name": "seed", "cloudInitNoCloud": {"userData": format!("#!/bin/sh\necho {LEAK}")}}]);
    template["domain"]["devices"]["disks"] = json!([{"name": "seed", "disk": {"bus": "virtio"}}]);
    create(client, &machine).await;
    let proxy = json!({"httpProxy": format!("http://me:{LEAK}@proxy.example:3128"), "noProxy": "127.0.0.0/8"});
    for (name, value) in
        [("http-proxy", proxy.to_string()), ("backup-target", bucket.target(bucket.port(), bucket.key()))]
    {
        let answer = client.patch(&format!("{SETTINGS}/{name}"), "merge-patch", &json!({"value": value})).await;
        let answer = answer.expect("an answer");
        assert_eq!(answer.status, 200, "{name}: {}", answer.text());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bundle_has_everything_but_secrets() {
    let (server, client) = start().await;
    // Something to log.
    let level = client.patch(&format!("{SETTINGS}/log-level"), "merge-patch", &json!({"value": "debug"})).await;
    level.expect("an answer").ok().expect("the level is set");
    let bucket = Bucket::start();
    hide_secrets(&client, &bucket).await;
    let named = json!({"value": "my-site"});
    let answer = client.patch(&format!("{SETTINGS}/support-bundle-file-name"), "merge-patch", &named).await;
    answer.expect("an answer").ok().expect("the name is set");

    ask(&client, "one", &json!({"issueURL": "https://example.com/1", "extraCollectionNamespaces": ["default"]})).await;
    let bundle = state_becomes(&client, "one", "ready").await;
    let status = &bundle["status"];
    assert_eq!(status["progress"], 100, "{bundle}");
    let file_name = status["filename"].as_str().expect("a name");
    assert!(file_name.starts_with("supportbundle_my-site_"), "{file_name}");
    assert_eq!(
        (&status["conditions"][0]["type"], &status["conditions"][0]["status"]),
        (&json!("Initialized"), &json!("True"))
    );

    let answer = download(&client, "one", "?retain=true").await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(answer.header("content-type"), Some("application/zip"));
    assert!(answer.header("content-disposition").is_some_and(|value| value.contains(file_name)));
    assert_eq!(status["filesize"].as_u64(), u64::try_from(answer.body.len()).ok());
    let files = unpack(&answer.body);
    for (name, text) in &files {
        assert!(!text.contains(LEAK), "{name} has the secret:\n{text}");
        assert!(!text.contains(bucket.key()), "{name} has the bucket's key:\n{text}");
        // The same in base64, as Secrets have it.
        assert!(!text.contains("aHVudGVyMi1odW50ZXIy"), "{name} has the secret in base64");
    }
    let secrets = find(&files, "objects/core/secrets.yaml");
    assert!(secrets.contains("the-key: (redacted)"), "{secrets}");
    assert!(find(&files, "objects/kubevirt.io/virtualmachines.yaml").contains("name: vm"));
    assert!(find(&files, "objects/core/configmaps.yaml").contains("#cloud-config"));
    let settings = find(&files, "objects/harvesterhci.io/settings.yaml");
    assert!(settings.contains("proxy.example:3128") && settings.contains("name: backup-target"), "{settings}");
    assert!(find(&files, "logs/croft.log").contains("the log level was changed"));
    let about: Value = serde_saphyr::from_str(find(&files, "metadata.yaml")).expect("YAML");
    assert_eq!((&about["issueURL"], &about["missing"]), (&json!("https://example.com/1"), &json!([])), "{about}");

    // Kept until it is downloaded without the word to retain it.
    let again = download(&client, "one", "").await;
    assert_eq!((again.status, again.body.len()), (200, answer.body.len()));
    is_gone(&client, "one").await;
    eventually("the end of the file", async || {
        let left = files_of(&server);
        ensure!(left.is_empty(), "{left:?}");
        Ok::<_, anyhow::Error>(())
    })
    .await;
    assert_eq!(download(&client, "one", "").await.status, 404);

    // Every namespace is in it, so that there is none to choose.
    let link =
        client.get("/v1/harvester/namespaces?link=supportbundle").await.expect("an answer").ok().expect("a list");
    let ids: Vec<&str> = link["data"].as_array().into_iter().flatten().filter_map(|ns| ns["id"].as_str()).collect();
    assert!(ids.contains(&"default") && ids.contains(&"harvester-system"), "{ids:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_made_or_downloaded_is_told() {
    let (server, client) = start().await;
    let nowhere = bundle("x", &json!({"extraCollectionNamespaces": ["no"]}));
    let refused = client.post(BUNDLES, &nowhere).await.expect("an answer");
    assert_eq!(refused.status, 422, "{}", refused.text());
    assert_eq!(download(&client, "nothing", "").await.status, 404);
    assert_eq!(
        server
            .anonymous()
            .expect("a client")
            .get("/v1/harvester/supportbundles/x/download")
            .await
            .expect("an answer")
            .status,
        401
    );
    assert_eq!(
        client.post("/v1/harvester/supportbundles/x/download", &json!({})).await.expect("an answer").status,
        405
    );

    // As the end of a server leaves it: nobody makes it any more.
    let mut left = bundle("left", &json!({}));
    left["status"] = json!({"state": "generating", "progress": 7});
    client.post(BUNDLES, &left).await.expect("an answer").ok().expect("it is made");
    let told = state_becomes(&client, "left", "error").await;
    assert!(
        told["status"]["conditions"][0]["message"].as_str().is_some_and(|why| why.contains("server stopped")),
        "{told}"
    );
    let answer = download(&client, "left", "").await;
    assert_eq!(answer.status, 500, "{}", answer.text());
    assert!(answer.text().contains("not ready"), "{}", answer.text());

    let elsewhere = "/apis/harvesterhci.io/v1beta1/namespaces/default/supportbundles";
    let stray = bundle("stray", &json!({}));
    client.post(elsewhere, &stray).await.expect("an answer").ok().expect("it is made");
    eventually("the refusal", async || {
        let bundle = client.get(&format!("{elsewhere}/stray")).await?.ok()?;
        ensure!(bundle.to_string().contains("must be in the namespace harvester-system"), "{bundle}");
        Ok::<_, anyhow::Error>(())
    })
    .await;
}

/// Whoever may read bundles may have them, and only who may delete them takes them away.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_download_and_do_not_delete() {
    let (_server, client) = start().await;
    let role = json!({"metadata": {"name": "reader"}, "rules": [
        {"apiGroups": ["harvesterhci.io"], "resources": ["supportbundles"], "verbs": ["get"]}]});
    let roles = "/apis/rbac.authorization.k8s.io/v1/namespaces/harvester-system";
    client.post(&format!("{roles}/roles"), &role).await.expect("an answer").ok().expect("a role");
    let binding = json!({"metadata": {"name": "reader"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "jane"}]});
    client.post(&format!("{roles}/rolebindings"), &binding).await.expect("an answer").ok().expect("a binding");
    ask(&client, "one", &json!({})).await;
    state_becomes(&client, "one", "ready").await;
    let path = "/v1/harvester/supportbundles/one/download";
    let as_user =
        |path: &str, name: &str| croft_testkit::Call::new(http::Method::GET, path).header("impersonate-user", name);
    assert_eq!(client.send(as_user(path, "jack")).await.expect("an answer").status, 403);
    assert_eq!(client.send(as_user(path, "jane")).await.expect("an answer").status, 403);
    let retained = format!("{path}?retain=true");
    assert_eq!(client.send(as_user(&retained, "jane")).await.expect("an answer").status, 200);
    assert_eq!(client.get(&format!("{BUNDLES}/one")).await.expect("an answer").status, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_server_leaves_no_half_bundle() {
    let (mut server, client) = start().await;
    ask(&client, "kept", &json!({})).await;
    state_becomes(&client, "kept", "ready").await;
    ask(&client, "cut", &json!({})).await;
    server.kill().expect("killed");
    let dir = server.data_dir().join("support-bundles");
    std::fs::write(dir.join("other.zip.partial"), "half").expect("a file");
    std::fs::write(dir.join("nobody.zip"), "whose object is gone").expect("a file");
    server.restart().await.expect("it starts again");
    let client = server.client().expect("a client");

    assert_eq!(download(&client, "kept", "?retain=true").await.status, 200);
    eventually("the one that was cut", async || {
        let bundle = client.get(&format!("{BUNDLES}/cut")).await?.ok()?;
        let state = bundle["status"]["state"].as_str().unwrap_or_default().to_owned();
        // Killed before it began, in the middle, or after.
        ensure!(state == "ready" || state == "error", "{bundle}");
        let count = files_of(&server).len();
        ensure!(count == if state == "ready" { 2 } else { 1 }, "{state}: {:?}", files_of(&server));
        Ok::<_, anyhow::Error>(())
    })
    .await;
    // Its object takes the file along.
    client.delete(&format!("{BUNDLES}/kept")).await.expect("an answer").ok().expect("deleted");
    client.delete(&format!("{BUNDLES}/cut")).await.expect("an answer").ok().expect("deleted");
    eventually("the end of the files", async || {
        ensure!(files_of(&server).is_empty(), "{:?}", files_of(&server));
        Ok::<_, anyhow::Error>(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bundles_expire() {
    let (server, client) = start().await;
    ask(&client, "old", &json!({"expiration": 1})).await;
    state_becomes(&client, "old", "ready").await;
    // As if it had been made two minutes ago.
    let [file] = files_of(&server).try_into().expect("one file");
    let opened = std::fs::File::options().write(true).open(file).expect("the file");
    let made = opened.metadata().and_then(|file| file.modified()).expect("a time");
    let long_ago = made - std::time::Duration::from_mins(2);
    opened.set_modified(long_ago).expect("it grows old");
    // Any change makes the server look.
    let touched = json!({"metadata": {"labels": {"touched": "yes"}}});
    client.patch(&format!("{BUNDLES}/old"), "merge-patch", &touched).await.expect("an answer").ok().expect("patched");
    is_gone(&client, "old").await;
}

fn read(file: &Path) -> Result<Vec<(String, String)>> {
    Ok(unpack(&std::fs::read(file)?))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_command_saves_a_bundle_with_the_nodes_logs() {
    let (server, client) = node().await;
    create(&client, &empty("logged")).await;
    status_becomes(&client, "logged", "Running").await;
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("bundle.zip");
    let said = croft_ok(&server, &["support-bundle", "-o", file.to_str().expect("a path")]).await.expect("it is saved");
    assert_eq!(said.trim(), file.to_str().expect("a path"));
    let files = read(&file).expect("a zip file");
    let about: Value = serde_saphyr::from_str(find(&files, "metadata.yaml")).expect("YAML");
    let node = about["nodes"][0].as_str().expect("a node");
    assert!(find(&files, &format!("nodes/{node}/facts/meminfo.txt")).contains("MemTotal"));
    let machine = format!("nodes/{node}/machines/default/logged/");
    assert!(
        files.iter().any(|(name, _)| name.starts_with(&machine)),
        "{:?}",
        files.iter().map(|f| &f.0).collect::<Vec<_>>()
    );
    // Nothing is left on the server.
    let list = client.get(BUNDLES).await.expect("an answer").ok().expect("a list");
    assert_eq!(list["items"], json!([]));

    let nowhere = croft(&server, &["support-bundle", "-o", "/proc/none/bundle.zip"]).await.expect("croft runs");
    let complaint = String::from_utf8_lossy(&nowhere.stderr).into_owned();
    assert_eq!(nowhere.status.code(), Some(1));
    assert!(complaint.contains("the server still has the support bundle"), "{complaint}");
}
