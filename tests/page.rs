//! What the web page stands on, as a browser asks for it.

use std::path::Path;

use std::time::Duration;

use croft_e2e::machines::{IMAGES, becomes, create, empty, guest_image, is_true, node, running};
use croft_testkit::{Answer, Call, Client, Croft, StoreKind, eventually, patience};
use http::Method;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;

const HTML: &str = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8";

async fn ask(client: &Client, method: Method, path: &str, headers: &[(&str, &str)]) -> Answer {
    let call = headers.iter().fold(Call::new(method, path), |call, (name, value)| call.header(name, value));
    client.send(call).await.expect("an answer")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_page_is_for_anybody_and_nothing_else_is() {
    let server = Croft::start(StoreKind::Embedded).await.expect("the server starts");
    let (anybody, admin) = (server.anonymous().expect("a client"), server.client().expect("a client"));

    // A browser is led to the page; whoever asks for JSON gets what Kubernetes says there.
    let answer = ask(&anybody, Method::GET, "/", &[("accept", HTML)]).await;
    assert_eq!((answer.status, answer.header("location")), (302, Some("/dashboard/")));
    let paths = ask(&admin, Method::GET, "/", &[("accept", "application/json, */*")]).await.json();
    assert!(paths["paths"].as_array().is_some_and(|paths| paths.contains(&"/apis".into())), "{paths}");
    assert_eq!(ask(&anybody, Method::GET, "/", &[]).await.status, 403);

    let built = Path::new(env!("CARGO_MANIFEST_DIR")).join("../ui/dist/index.html");
    let code = if built.exists() { 200 } else { 503 };
    for path in ["/dashboard/", "/dashboard/machines/default/a.b"] {
        let page = ask(&anybody, Method::GET, path, &[("accept", HTML)]).await;
        assert_eq!((page.status, page.header("content-type")), (code, Some("text/html; charset=utf-8")), "{path}");
        let policy = page.header("content-security-policy").unwrap_or_default();
        assert!(policy.contains("script-src 'self';") && policy.contains("frame-ancestors 'none'"), "{policy}");
        assert!(!page.text().contains("<script>"), "a script in the page itself: {}", page.text());
        let head = ask(&anybody, Method::HEAD, path, &[("accept", HTML)]).await;
        assert_eq!((head.status, head.body.len()), (code, 0), "{path}");
        assert_eq!(head.header("content-length"), Some(page.body.len().to_string().as_str()), "{path}");
    }
    assert_eq!(ask(&anybody, Method::GET, "/dashboard/assets/none.js", &[]).await.status, 404);
    assert_eq!(ask(&anybody, Method::POST, "/dashboard/", &[]).await.status, 405);

    // An old session does not keep anybody from the page, and is no reason for a browser to ask for a password by itself.
    let stale = ("cookie", "R_SESS=token-aaaaa:nothing");
    assert_eq!(ask(&anybody, Method::GET, "/dashboard/", &[stale]).await.status, code);
    let refused = ask(&anybody, Method::GET, "/api/v1/nodes", &[stale, ("sec-fetch-mode", "cors")]).await;
    assert_eq!((refused.status, refused.header("www-authenticate")), (401, None));
    let refused = ask(&anybody, Method::GET, "/api/v1/nodes", &[stale]).await;
    assert!(refused.status == 401 && refused.header("www-authenticate").is_some(), "{:?}", refused.headers);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scripts_come_packed_and_are_kept_for_good() {
    let dist = Path::new(env!("CARGO_MANIFEST_DIR")).join("../ui/dist");
    let Ok(index) = std::fs::read_to_string(dist.join("index.html")) else {
        eprintln!("the page is not built: make ui");
        return;
    };
    let server = Croft::start(StoreKind::Embedded).await.expect("the server starts");
    let anybody = server.anonymous().expect("a client");
    let scripts = index.split('"').filter(|text| text.starts_with("/dashboard/assets/") && text.contains(".js"));
    // The one that is worth packing.
    let size =
        |script: &&str| dist.join(script.trim_start_matches("/dashboard/")).metadata().map_or(0, |file| file.len());
    let script = scripts.max_by_key(size).expect("a script in the page");
    let plain = ask(&anybody, Method::GET, script, &[]).await;
    assert_eq!((plain.status, plain.header("content-encoding")), (200, None));
    let mut tags = vec![plain.header("etag").expect("a tag").to_owned()];
    for (accepted, name) in [("gzip", "gzip"), ("gzip, deflate, br", "br")] {
        let packed = ask(&anybody, Method::GET, script, &[("accept-encoding", accepted)]).await;
        assert_eq!((packed.status, packed.header("content-encoding")), (200, Some(name)));
        assert!(packed.body.len() < plain.body.len() / 2, "{} of {}", packed.body.len(), plain.body.len());
        assert_eq!(packed.header("cache-control"), Some("public, max-age=31536000, immutable"));
        let tag = packed.header("etag").expect("a tag").to_owned();
        assert!(!tags.contains(&tag), "another form has another tag");
        let again = [("accept-encoding", accepted), ("if-none-match", tag.as_str())];
        let again = ask(&anybody, Method::GET, script, &again).await;
        assert_eq!((again.status, again.body.len()), (304, 0));
        tags.push(tag);
    }
}

/// Somebody who may get instances in the default namespace, and nothing else.
async fn watcher(server: &Croft, admin: &Client) -> Client {
    let rbac = "/apis/rbac.authorization.k8s.io/v1/namespaces/default";
    let account = json!({"metadata": {"name": "watcher"}});
    let rules = json!([{"apiGroups": ["kubevirt.io"], "resources": ["virtualmachineinstances"], "verbs": ["get"]}]);
    let binding = json!({"metadata": {"name": "watcher"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "watcher"},
        "subjects": [{"kind": "ServiceAccount", "name": "watcher", "namespace": "default"}]});
    for (path, object) in [
        ("/api/v1/namespaces/default/serviceaccounts".to_owned(), account),
        (format!("{rbac}/roles"), json!({"metadata": {"name": "watcher"}, "rules": rules})),
        (format!("{rbac}/rolebindings"), binding),
    ] {
        admin.post(&path, &object).await.expect("an answer").ok().expect("made");
    }
    let path = "/api/v1/namespaces/default/serviceaccounts/watcher/token";
    let token = admin.post(path, &json!({"spec": {}})).await.expect("an answer").ok().expect("a token");
    server.bearer(token["status"]["token"].as_str().expect("a token")).expect("a client")
}

/// Samples come every five seconds, and rates need two.
const SAMPLED: Duration = Duration::from_secs(40);

fn is_aligned(history: &Value) -> bool {
    let count = history["times"].as_array().map_or(0, Vec::len);
    let series = history["series"].as_object();
    count > 0 && series.is_some_and(|all| all.values().all(|one| one.as_array().is_some_and(|one| one.len() == count)))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn usage_is_told_to_those_who_may_see_it() {
    let (server, admin) = node().await;
    create(&admin, &empty("small")).await;
    running(&admin, "small").await;
    let watcher = watcher(&server, &admin).await;

    let nodes = "/croft/v1/usage/nodes";
    let list =
        becomes(&admin, nodes, "sampled", SAMPLED, |list| list["items"][0]["usage"]["cpuCores"].is_number()).await;
    let newest = &list["items"][0];
    let name = newest["node"].as_str().expect("the node's name");
    assert!(newest["usage"]["memoryBytes"].as_f64() < newest["capacity"]["memoryBytes"].as_f64(), "{newest}");
    assert!(newest["capacity"]["cpuCores"].as_u64().is_some_and(|cores| cores > 0), "{newest}");
    let path = format!("{nodes}/{name}");
    let history = becomes(&admin, &path, "a history", SAMPLED, is_aligned).await;
    assert_eq!((&history["window"], &history["intervalSeconds"]), (&json!("10m"), &json!(5)), "{history}");
    assert_eq!(history["node"], *name, "{history}");
    let day = admin.get(&format!("{path}?window=24h")).await.expect("an answer").ok().expect("a history");
    assert_eq!(day["intervalSeconds"], 120, "{day}");

    let machines = "/croft/v1/usage/virtualmachineinstances";
    let of_machine = format!("{machines}/default/small");
    let history = becomes(&watcher, &of_machine, "a history", SAMPLED, is_aligned).await;
    assert!(history["series"]["memoryBytes"][0].as_f64().is_some_and(|bytes| bytes > 1e6), "{history}");
    assert!(history["series"]["diskReadBytesPerSecond"][0].is_number(), "{history}");
    assert!(history["capacity"]["cpuCores"].as_u64() == Some(1), "{history}");
    let list = admin.get(&format!("{machines}?namespace=default")).await.expect("an answer").ok().expect("a list");
    assert_eq!(
        (&list["items"][0]["name"], &list["items"][0]["namespace"]),
        (&json!("small"), &json!("default")),
        "{list}"
    );
    let other = admin.get(&format!("{machines}?namespace=kube-system")).await.expect("an answer").ok().expect("a list");
    assert_eq!(other["items"], json!([]));

    for (client, path, code) in [
        (&admin, format!("{path}?window=1h"), 400),
        (&admin, format!("{nodes}/nowhere"), 404),
        (&admin, format!("{machines}/default/nothing"), 404),
        (&admin, "/croft/v1/usage/pods".to_owned(), 404),
        (&watcher, nodes.to_owned(), 403),
        (&watcher, path.clone(), 403),
        (&watcher, machines.to_owned(), 403),
        (&watcher, format!("{machines}/kube-system/small"), 403),
        (&server.anonymous().expect("a client"), nodes.to_owned(), 403),
    ] {
        let answer = client.get(&path).await.expect("an answer");
        assert_eq!(answer.status, code, "{path}: {}", answer.text());
    }

    // What kubectl makes of it.
    let kubectl = server.kubectl().expect("kubectl");
    let top = kubectl.ok(&["top", "node"]).await;
    assert!(top.stdout.contains(name) && top.stdout.contains('%'), "{}", top.stdout);
    let pods = admin.get("/apis/metrics.k8s.io/v1beta1/pods").await.expect("an answer").ok().expect("a list");
    assert_eq!((&pods["kind"], &pods["items"]), (&json!("PodMetricsList"), &json!([])));
}

/// The head of a PATCH that promises all of the rest.
fn piece_head(path: &str, offset: usize, length: usize) -> String {
    format!(
        "PATCH {path} HTTP/1.1\r\nHost: croft\r\nContent-Type: application/offset+octet-stream\r\n\
         Upload-Offset: {offset}\r\nUpload-Length: {length}\r\nContent-Length: {}\r\n\r\n",
        length - offset
    )
}

fn piece(path: &str, offset: usize, length: usize, bytes: &[u8]) -> Call {
    Call::new(Method::PATCH, path)
        .header("upload-offset", &offset.to_string())
        .header("upload-length", &length.to_string())
        .body("application/offset+octet-stream", bytes.to_vec())
}

async fn offset(client: &Client, path: &str) -> usize {
    let answer = ask(client, Method::HEAD, path, &[]).await;
    assert_eq!((answer.status, answer.header("tus-resumable")), (200, Some("1.0.0")), "{path}");
    answer.header("upload-offset").and_then(|text| text.parse().ok()).expect("an offset")
}

/// Waits until something came after `from`.
async fn offset_after(client: &Client, path: &str, from: usize) -> usize {
    eventually("bytes arrive", async || match offset(client, path).await {
        reached if reached > from => Ok(reached),
        reached => Err(format!("{reached} bytes")),
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upload_that_is_cut_goes_on_where_it_was() {
    let (mut server, admin) = node().await;
    let image = json!({"apiVersion": "harvesterhci.io/v1beta1", "kind": "VirtualMachineImage", "metadata": {"name": "mine"},
        "spec": {"displayName": "mine", "sourceType": "upload"}});
    admin.post(IMAGES, &image).await.expect("an answer").ok().expect("the image is made");
    let object = format!("{IMAGES}/mine");
    becomes(&admin, &object, "ready for its file", patience(), |image| is_true(image, "Initialized")).await;
    let path = "/croft/v1/images/default/mine/upload";
    let file = std::fs::read(guest_image().expect("the guest is built")).expect("the guest is read");
    let length = file.len();
    assert_eq!(offset(&admin, path).await, 0);

    // A piece is on the disk when it is acknowledged.
    let first = admin.send(piece(path, 0, length, &file[..1 << 20])).await.expect("an answer");
    assert_eq!((first.status, first.header("upload-offset")), (204, Some("1048576")), "{}", first.text());

    // The connection is cut half-way. What came is kept, also over the death of the server.
    let mut stream = server.connect(Some(&server.admin), &["http/1.1"]).await.expect("a connection");
    stream.write_all(piece_head(path, 1 << 20, length).as_bytes()).await.expect("sent");
    stream.write_all(&file[1 << 20..8 << 20]).await.expect("sent");
    stream.flush().await.expect("sent");
    let came = offset_after(&admin, path, 1 << 20).await;
    drop(stream);
    assert!(came <= 8 << 20, "{came}");
    server.kill().expect("killed");
    server.restart().await.expect("the server starts again");
    let admin = server.client().expect("a client");
    becomes(&admin, "/api/v1/nodes", "a ready node", patience(), |nodes| is_true(&nodes["items"][0], "Ready")).await;
    let kept = eventually("the pool is open", async || {
        let answer = ask(&admin, Method::GET, path, &[]).await;
        if answer.status == 200 { Ok(answer.json()) } else { Err(answer.text()) }
    })
    .await;
    assert!(kept["offset"].as_u64() >= Some(came as u64) && kept["length"] == length, "{kept} after {came}");
    let seen = admin.get(&object).await.expect("an answer").json();
    assert!(!is_true(&seen, "Imported") && seen["status"]["progress"].as_u64() > Some(0), "{}", seen["status"]);

    // A sender that comes back before its old connection is known to be dead takes its place.
    let mut stuck = server.connect(Some(&server.admin), &["http/1.1"]).await.expect("a connection");
    let at = offset(&admin, path).await;
    stuck.write_all(piece_head(path, at, length).as_bytes()).await.expect("sent");
    stuck.write_all(&file[at..at + (2 << 20)]).await.expect("sent");
    stuck.flush().await.expect("sent");
    offset_after(&admin, path, at).await;
    for (from, of, code) in [(0, length, 409), (offset(&admin, path).await, length + 1, 400)] {
        let answer = admin.send(piece(path, from, of, b"x")).await.expect("an answer");
        assert_eq!(answer.status, code, "{}", answer.text());
    }
    let at = offset(&admin, path).await;
    let last = admin.send(piece(path, at, length, &file[at..])).await.expect("an answer");
    assert_eq!(
        (last.status, last.header("upload-offset")),
        (204, Some(length.to_string().as_str())),
        "{}",
        last.text()
    );
    drop(stuck);
    let made = admin.get(&object).await.expect("an answer").json();
    assert!(is_true(&made, "Imported") && made["status"]["size"] == length, "{}", made["status"]);
    let over = admin.send(piece(path, 0, length, b"x")).await.expect("an answer");
    assert_eq!(over.status, 409, "{}", over.text());

    // Who may not change images is told so, and nonsense is refused before anything is read.
    let anybody = server.anonymous().expect("a client");
    assert_eq!(ask(&anybody, Method::GET, path, &[]).await.status, 403);
    let typed = [("upload-offset", "0"), ("upload-length", "1")];
    assert_eq!(ask(&admin, Method::PATCH, path, &typed).await.status, 415);
    assert_eq!(ask(&admin, Method::PATCH, "/croft/v1/images/default/none/upload", &typed).await.status, 404);
}
