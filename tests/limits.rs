//! Clients that send too much, too slowly or nonsense, and watchers that do not read.

use std::time::{Duration, Instant};

use anyhow::Context as _;
use croft_testkit::{Call, Client, Croft, Endpoint, ServerKind, StoreKind, eventually, patience};
use http::Method;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

async fn start() -> Option<Croft> {
    if !ServerKind::Embedded.wanted() {
        return None;
    }
    Some(Croft::start(StoreKind::Embedded).await.expect("croft starts"))
}

/// Sends raw bytes over TLS and gives the answer, or what came before the server hung up.
async fn exchange(server: &Endpoint, bytes: &[u8]) -> String {
    let mut stream = server.connect(Some(&server.admin), &["http/1.1"]).await.expect("a connection");
    // The server may hang up on us in the middle, which is one of the right answers.
    let _ = stream.write_all(bytes).await;
    let _ = stream.flush().await;
    let mut answer = vec![0; 65536];
    let read = tokio::time::timeout(Duration::from_secs(15), stream.read(&mut answer)).await;
    let read = read.expect("the server neither answers nor hangs up").unwrap_or(0);
    String::from_utf8_lossy(&answer[..read]).into_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_bodies_are_refused_before_they_are_read() {
    let Some(croft) = start().await else { return };
    let client = croft.client().expect("a client");
    let at_limit = 3 * 1024 * 1024;
    let body = |size: usize| format!(r#"{{"metadata":{{"name":"big"}},"data":{{"a":"{}"}}}}"#, "x".repeat(size));
    let too_large = Call::new(Method::POST, MAPS).body("application/json", body(at_limit));
    let answer = client.send(too_large).await.expect("an answer");
    assert_eq!((answer.status, answer.json()["reason"].as_str()), (413, Some("RequestEntityTooLarge")));
    let below = Call::new(Method::POST, MAPS).body("application/json", body(1_000_000));
    assert_eq!(client.send(below).await.expect("an answer").status, 201);
    // A length that is announced and never sent must not make the server reserve it.
    let announced = format!(
        "POST {MAPS} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 9000000000\r\n\r\n{{"
    );
    let answer = exchange(&croft, announced.as_bytes()).await;
    assert!(answer.is_empty() || answer.contains(" 413 ") || answer.contains(" 400 "), "{answer}");
    assert!(croft.process().resident_bytes().expect("memory") < 400 << 20);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn heads_may_be_large_and_not_endless() {
    let Some(croft) = start().await else { return };
    let head = |size: usize, end: &str| format!("GET /version HTTP/1.1\r\nhost: x\r\nx: {}{end}", "a".repeat(size));
    let answer = exchange(&croft, head(48 << 10, "\r\n\r\n").as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    // Sooner than after the minute that there is for the rest of it.
    let answer = exchange(&croft, head(80 << 10, "").as_bytes()).await;
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 431 "), "{answer}");
}

/// As many large bodies as clients care to send, none of them ever complete.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn half_sent_bodies_take_little_memory_and_hold_up_nobody_else() {
    let Some(croft) = start().await else { return };
    let before = croft.process().resident_bytes().expect("memory");
    let size = 3_000_000;
    let head =
        format!("POST {MAPS} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {size}\r\n\r\n");
    let body: std::sync::Arc<[u8]> = vec![b' '; size - 1000].into();
    let (sent, mut arrivals) = tokio::sync::mpsc::channel(100);
    let mut senders = tokio::task::JoinSet::new();
    for _ in 0..100 {
        let mut stream = croft.connect(Some(&croft.admin), &["http/1.1"]).await.expect("a connection");
        let (head, body, sent) = (head.clone(), body.clone(), sent.clone());
        senders.spawn(async move {
            stream.write_all(head.as_bytes()).await.expect("writes");
            stream.write_all(&body).await.expect("writes");
            stream.flush().await.expect("flushes");
            // Whoever listens is gone when the test is over.
            let _ = sent.try_send(());
            std::future::pending::<()>().await;
        });
    }
    // Half of those that are read at a time.
    for _ in 0..8 {
        arrivals.recv().await.expect("some are read");
    }
    let small = json!({"metadata": {"name": "small"}});
    let made = croft.client().expect("a client").post(MAPS, &small).await.expect("an answer");
    assert_eq!(made.status, 201);
    // The other half is for others.
    let large = json!({"metadata": {"name": "large"}, "data": {"a": "x".repeat(100_000)}});
    let made = an_editor(&croft).await.post(MAPS, &large).await.expect("an answer");
    assert_eq!(made.status, 201, "{}", made.text());
    let after = croft.process().resident_bytes().expect("memory");
    assert!(after < before + (120 << 20), "memory went from {before} to {after}");
}

/// A watch has all the time there is, and nothing to say.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_watches_say_is_not_waited_for() {
    let Some(croft) = start().await else { return };
    let head = format!("GET {MAPS}?watch=1 HTTP/1.1\r\nhost: x\r\ncontent-length: 3000000\r\n\r\n");
    let mut watches = Vec::new();
    for _ in 0..40 {
        let mut stream = croft.connect(Some(&croft.admin), &["http/1.1"]).await.expect("a connection");
        stream.write_all(head.as_bytes()).await.expect("writes");
        stream.flush().await.expect("flushes");
        let mut begun = vec![0; 12];
        stream.read_exact(&mut begun).await.expect("an answer");
        assert_eq!(begun, b"HTTP/1.1 200");
        watches.push(stream);
    }
    let large = json!({"metadata": {"name": "large"}, "data": {"a": "x".repeat(100_000)}});
    let made = croft.client().expect("a client").post(MAPS, &large).await.expect("an answer");
    assert_eq!(made.status, 201, "{}", made.text());
}

/// A service account that may read and write.
async fn an_editor(croft: &Croft) -> Client {
    let client = croft.client().expect("a client");
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    let account = json!({"metadata": {"name": "editor"}});
    client.post(accounts, &account).await.expect("an answer").ok().expect("an account");
    let binding = json!({"metadata": {"name": "editor"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit"},
        "subjects": [{"kind": "ServiceAccount", "namespace": "default", "name": "editor"}]});
    let bindings = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings";
    client.post(bindings, &binding).await.expect("an answer").ok().expect("a binding");
    let token = client.post(&format!("{accounts}/editor/token"), &json!({"spec": {}})).await.expect("an answer");
    let token = token.ok().expect("a token");
    croft.bearer(token["status"]["token"].as_str().expect("a token")).expect("a client")
}

/// How many connections the server has open.
async fn connections(croft: &Croft) -> anyhow::Result<usize> {
    let figures = croft.client()?.get("/metrics").await?.text();
    let line = figures.lines().find_map(|line| line.strip_prefix("croft_connections "));
    Ok(line.context("the figure")?.parse()?)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn half_a_request_keeps_no_connection_open_that_has_to_go() {
    let croft = Croft::start_with(StoreKind::Embedded, &["--max-connections=20"]).await.expect("croft starts");
    let mut hoarded = Vec::new();
    for _ in 0..60 {
        let mut stream = croft.connect(None, &["http/1.1"]).await.expect("a connection");
        // Those that came first may have been closed already.
        let _ = stream.write_all(b"GET /version HTTP/1.1\r\nhost:").await;
        let _ = stream.flush().await;
        hoarded.push(stream);
    }
    // Sooner than after the minute that there is for the rest of it.
    let mut rest = Vec::new();
    let ended = tokio::time::timeout(Duration::from_secs(30), hoarded[0].read_to_end(&mut rest)).await;
    assert!(ended.is_ok(), "it is still open");
    eventually("no more are open than may be", async || {
        let open = connections(&croft).await?;
        anyhow::ensure!(open <= 21, "{open} are open");
        Ok(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn websockets_are_connections_as_others_are() {
    let croft = Croft::start_with(StoreKind::Embedded, &["--max-connections=20"]).await.expect("croft starts");
    let wish = "GET /v1/subscribe HTTP/1.1\r\nhost: x\r\nconnection: Upgrade\r\nupgrade: websocket\r\n\
        sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
    let mut open = Vec::new();
    for _ in 0..40 {
        // With all places taken by such as are in use, there is no connection.
        let Ok(mut stream) = croft.connect(Some(&croft.admin), &["http/1.1"]).await else { continue };
        let _ = stream.write_all(wish.as_bytes()).await;
        let _ = stream.flush().await;
        let mut begun = vec![0; 12];
        if stream.read_exact(&mut begun).await.is_ok() && begun == *b"HTTP/1.1 101" {
            open.push(stream);
        }
    }
    assert!((10..=20).contains(&open.len()), "{} are open", open.len());
    // And when they are closed, others have their places.
    drop(open);
    eventually("there are places again", async || {
        let open = connections(&croft).await?;
        anyhow::ensure!(open <= 3, "{open} are open");
        Ok(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nonsense_on_the_wire_is_answered_or_cut_and_hurts_nobody() {
    let Some(croft) = start().await else { return };
    let long_header = format!("GET /version HTTP/1.1\r\nhost: x\r\nx: {}\r\n\r\n", "a".repeat(1 << 20));
    let many_headers = format!("GET /version HTTP/1.1\r\nhost: x\r\n{}\r\n", "a: b\r\n".repeat(5000));
    let cases: [&[u8]; 9] = [
        b"\x00\x01\x02\x03\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET /version HTTP/9.9\r\nhost: x\r\n\r\n",
        b"GET /api/v1/\xff\xfe HTTP/1.1\r\nhost: x\r\n\r\n",
        b"POST /api/v1/namespaces HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n\r\n",
        b"POST /api/v1/namespaces HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\nhello",
        b"POST /api/v1/namespaces HTTP/1.1\r\nhost: x\r\ncontent-length: -1\r\n\r\n",
        long_header.as_bytes(),
        many_headers.as_bytes(),
    ];
    for case in cases {
        let answer = exchange(&croft, case).await;
        let shown = String::from_utf8_lossy(&case[..case.len().min(60)]);
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 4"), "{shown}: {answer}");
    }
    // Not TLS at all.
    let mut plain = tokio::net::TcpStream::connect(croft.address().expect("an address")).await.expect("connects");
    plain.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").await.expect("writes");
    let mut answer = Vec::new();
    let cut = tokio::time::timeout(patience(), plain.read_to_end(&mut answer)).await;
    assert!(cut.is_ok(), "what is no TLS is left open");
    // HTTP/2 garbage after the preface.
    let mut h2 = croft.connect(Some(&croft.admin), &["h2"]).await.expect("a connection");
    let _ = h2.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff").await;
    let mut answer = Vec::new();
    let cut = tokio::time::timeout(patience(), h2.read_to_end(&mut answer)).await;
    assert!(cut.is_ok(), "what is no HTTP/2 is left open");
    let alive = croft.client().expect("a client").get("/readyz").await.expect("an answer");
    assert_eq!(alive.text(), "ok");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_clients_are_cut_off() {
    let Some(croft) = start().await else { return };
    // One that never finishes its TLS handshake, one that stops within the headers, one within the body.
    let mut silent = tokio::net::TcpStream::connect(croft.address().expect("an address")).await.expect("connects");
    let mut headers = croft.connect(Some(&croft.admin), &["http/1.1"]).await.expect("a connection");
    headers.write_all(b"GET /version HTTP/1.1\r\nhost").await.expect("writes");
    headers.flush().await.expect("flushes");
    let mut body = croft.connect(Some(&croft.admin), &["http/1.1"]).await.expect("a connection");
    let begun =
        format!("POST {MAPS} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 1000\r\n\r\n{{");
    body.write_all(begun.as_bytes()).await.expect("writes");
    body.flush().await.expect("flushes");
    let limit = Duration::from_secs(90);
    let start = Instant::now();
    let mut buffers = [Vec::new(), Vec::new(), Vec::new()];
    let [a, b, c] = &mut buffers;
    let all = async { tokio::join!(silent.read_to_end(a), headers.read_to_end(b), body.read_to_end(c)) };
    let cut = tokio::time::timeout(limit, all).await;
    assert!(cut.is_ok(), "somebody is still connected after {:?}", start.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watcher_that_does_not_read_is_cut_off_and_costs_no_memory() {
    let Some(croft) = start().await else { return };
    let client = croft.client().expect("a client");
    let mut stuck = Vec::new();
    for _ in 0..20 {
        let mut stream = croft.connect(Some(&croft.admin), &["http/1.1"]).await.expect("a connection");
        let request = format!("GET {MAPS}?watch=1&timeoutSeconds=600 HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.expect("writes");
        stream.flush().await.expect("flushes");
        stuck.push(stream);
    }
    let body = json!({"metadata": {"name": "noisy"}, "data": {"n": ""}});
    client.post(MAPS, &body).await.expect("an answer").ok().expect("made");
    let before = croft.process().resident_bytes().expect("memory");
    // 400 changes of 100 kB for 20 watchers: 800 MB if each of them had a queue without end.
    for n in 0..400 {
        let body = json!({"metadata": {"name": "noisy"}, "data": {"n": format!("{n}{}", "x".repeat(100_000))}});
        client.put(&format!("{MAPS}/noisy"), &body).await.expect("an answer").ok().expect("changed");
    }
    let after = croft.process().resident_bytes().expect("memory");
    assert!(after < before + (250 << 20), "memory went from {before} to {after}");
    // Those that read on find the end of their stream, before they have seen everything.
    let mut text = Vec::new();
    let read = tokio::time::timeout(Duration::from_mins(1), stuck[0].read_to_end(&mut text)).await;
    assert!(read.is_ok(), "the watch was not ended");
    let text = String::from_utf8_lossy(&text);
    let seen = text.matches(r#""type":"MODIFIED""#).count();
    assert!(seen < 400, "all {seen} changes were kept for a watcher that did not read");
    assert!(text.contains(r#""code":410"#) || !text.ends_with("0\r\n\r\n"), "it was cut off without a reason");
    let alive = eventually("the server is well", async || croft.client()?.get("/readyz").await).await;
    assert_eq!(alive.status, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_versions_of_http_and_gzip_give_the_same_object() {
    let Some(croft) = start().await else { return };
    let mut bodies = Vec::new();
    for protocol in [croft_testkit::Protocol::Http1, croft_testkit::Protocol::Http2] {
        let client = croft.client_over(protocol).expect("a client");
        bodies.push(client.get("/api/v1/namespaces/default").await.expect("an answer").ok().expect("a namespace"));
    }
    assert_eq!(bodies[0], bodies[1]);
    let call = Call::new(Method::GET, "/openapi/v2").header("accept-encoding", "gzip");
    let zipped = croft.client().expect("a client").send(call).await.expect("an answer");
    assert_eq!(zipped.header("content-encoding"), Some("gzip"));
    assert_eq!(zipped.body[..2], [0x1f, 0x8b]);
}

/// The one change that is selected lies behind more than a watch looks at in one go.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_passes_over_what_it_does_not_select() {
    let Some(croft) = start().await else { return };
    let client = croft.client().expect("a client");
    let first = json!({"metadata": {"name": "first"}});
    let first = client.post(MAPS, &first).await.expect("an answer").ok().expect("made");
    let from = first["metadata"]["resourceVersion"].as_str().expect("a version").to_owned();
    for n in 0..40 {
        let body = json!({"metadata": {"name": format!("other-{n}")}, "data": {"x": "x".repeat(10_000)}});
        client.post(MAPS, &body).await.expect("an answer").ok().expect("made");
    }
    let wanted = json!({"metadata": {"name": "wanted", "labels": {"app": "wanted"}}});
    client.post(MAPS, &wanted).await.expect("an answer").ok().expect("made");
    let mut stream = croft.connect(Some(&croft.admin), &["http/1.1"]).await.expect("a connection");
    let path = format!("{MAPS}?watch=1&labelSelector=app%3Dwanted&resourceVersion={from}&timeoutSeconds=5");
    let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.expect("writes");
    stream.flush().await.expect("flushes");
    let mut text = Vec::new();
    // The end of the stream without a TLS goodbye is no matter here.
    let _ = stream.read_to_end(&mut text).await;
    let text = String::from_utf8_lossy(&text);
    assert!(text.contains(r#""type":"ADDED""#) && text.contains(r#""name":"wanted""#), "{text}");
}

/// An upload that is refused at once, by a client that would have sent much more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_before_the_end_of_the_body_reaches_the_client() {
    let Some(croft) = start().await else { return };
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("large");
    std::fs::File::create(&file).expect("a file").set_len(200 << 20).expect("its size");
    let url = format!("https://{}/v1beta1/upload", croft.address().expect("an address"));
    for protocol in ["--http1.1", "--http2"] {
        let mut curl = tokio::process::Command::new("curl");
        curl.args(["-sS", "-k", protocol, "-X", "POST", "-H", "Authorization: Bearer nonsense", "-w", " %{http_code}"]);
        let output = curl.arg("-T").arg(&file).arg(&url).output().await.expect("curl is installed");
        let said = String::from_utf8_lossy(&output.stdout);
        let complaint = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains("Unauthorized") && said.ends_with(" 401"), "{protocol}: {said} {complaint}");
    }
}
