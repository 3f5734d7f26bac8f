//! A server with little memory, and clients that would have it all.

use std::time::Duration;

use bytes::Bytes;
use croft_testkit::{Call, Client, Croft, Identity, MemoryLimit, Protocol, StoreKind, eventually};
use http::Method;
use serde_json::json;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const LIMIT: u64 = 448 << 20;

async fn start(name: &str, extra_args: &[&str]) -> (MemoryLimit, Croft) {
    let limit = MemoryLimit::new(name, LIMIT).expect("a control group");
    let wrapper = limit.wrapper();
    let wrapper: Vec<&str> = wrapper.iter().map(String::as_str).collect();
    (limit, Croft::start_under(StoreKind::Embedded, &wrapper, extra_args).await.expect("croft starts"))
}

const OBJECTS: usize = 300;
const SIZE: usize = 40 << 10;

/// 12 MB of objects.
async fn fill(client: &Client) {
    for number in 0..OBJECTS {
        let body = json!({"metadata": {"name": format!("large-{number}")}, "data": {"text": "x".repeat(SIZE)}});
        client.post(MAPS, &body).await.expect("an answer").ok().expect("made");
    }
}

/// Sends a request and reads nothing.
async fn ask_and_sit(server: &Croft, path: &str, accept: &str) -> impl AsyncRead + Unpin + use<> {
    let mut stream = server.connect(Some(&server.admin), &["http/1.1"]).await.expect("a connection");
    let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\naccept: {accept}\r\n\r\n");
    stream.write_all(request.as_bytes()).await.expect("writes");
    stream.flush().await.expect("flushes");
    stream
}

async fn is_well(server: &Croft, limit: &MemoryLimit) {
    let client = server.client().expect("a client");
    let made = client.post(MAPS, &json!({"metadata": {"generateName": "well-"}})).await.expect("an answer");
    assert_eq!(made.status, 201, "{}", made.text());
    let log = server.process().log_tail(5);
    // To the limit itself the kernel sees.
    let peak = limit.peak_bytes().expect("a figure");
    assert!(peak <= LIMIT / 5 * 4, "{peak} bytes at its most: {log}");
}

/// Each of these lists is 12 MB, and takes several times that while it is made: 100 of them are more than three times what
/// there is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_answers_that_nobody_reads_do_not_fill_memory() {
    let (limit, croft) = start("answers", &[]).await;
    let client = croft.client().expect("a client");
    fill(&client).await;
    let mut sitting = Vec::new();
    for accept in ["application/yaml", "application/json;as=Table;v=v1;g=meta.k8s.io, application/json"] {
        for _ in 0..50 {
            sitting.push(ask_and_sit(&croft, &format!("{MAPS}?includeObject=Object"), accept).await);
        }
    }
    // Those for which there is no room are told so, and the server is as it was.
    let mut answer = vec![0; 1024];
    let last = sitting.last_mut().expect("one of them");
    let read = tokio::time::timeout(Duration::from_mins(1), last.read(&mut answer)).await;
    let read = read.expect("an answer in time").expect("an answer");
    let head = String::from_utf8_lossy(&answer[..read]).into_owned();
    assert!(head.starts_with("HTTP/1.1 429 ") && head.contains("retry-after: 1"), "{head}");
    is_well(&croft, &limit).await;
    // With the connections the memory comes back, and a list is had as ever.
    drop(sitting);
    let listed = eventually("there is room again", async || {
        let answer = client.send(Call::new(Method::GET, MAPS).header("accept", "application/yaml")).await?;
        anyhow::ensure!(answer.status == 200, "{}", answer.status);
        Ok(answer)
    });
    assert!(listed.await.text().len() > OBJECTS * SIZE);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_hoards_connections_loses_them_and_others_are_served() {
    let (limit, croft) = start("connections", &["--max-connections=100"]).await;
    let client = croft.client_over(Protocol::Http2).expect("a client");
    let mut watch = client.open(Call::new(Method::GET, &format!("{MAPS}?watch=1"))).await.expect("a watch");
    let mut hoarded = Vec::new();
    for _ in 0..300 {
        hoarded.push(croft.connect(None, &["http/1.1"]).await.expect("a connection"));
    }
    // The first of them are closed by now, and the watch, on which something was asked, is not.
    let mut rest = Vec::new();
    let ended = tokio::time::timeout(Duration::from_secs(30), hoarded[0].read_to_end(&mut rest)).await;
    assert!(ended.is_ok(), "the quietest connection was not closed");
    is_well(&croft, &limit).await;
    loop {
        let event = watch.event().await.expect("the watch goes on").expect("an event");
        if event["object"]["metadata"]["generateName"] == "well-" {
            break;
        }
    }
    let figures = client.get("/metrics").await.expect("an answer").text();
    let figure = |name: &str| -> f64 {
        let line = figures.lines().find(|line| line.starts_with(name)).expect("the figure");
        line.rsplit(' ').next().and_then(|number| number.parse().ok()).expect("a number")
    };
    assert!(figure("croft_connections ") <= 101.0 && figure("croft_connections_sent_away_total") >= 200.0);
}

/// All clients come back at once after a restart, with the last that they saw.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_storm_of_watches_after_a_restart_is_weathered() {
    const WATCHERS: usize = 600;
    let (limit, mut croft) = start("storm", &[]).await;
    let client = croft.client().expect("a client");
    fill(&client).await;
    let list = client.get(&format!("{MAPS}?limit=1")).await.expect("an answer").ok().expect("a list");
    let seen = list["metadata"]["resourceVersion"].as_str().expect("a version").to_owned();
    let missed = json!({"metadata": {"name": "missed"}});
    client.post(MAPS, &missed).await.expect("an answer").ok().expect("made");
    croft.restart().await.expect("it starts again");
    let clients: Vec<Client> = (0..12).map(|_| croft.client_over(Protocol::Http2).expect("a client")).collect();
    let mut storm = tokio::task::JoinSet::new();
    for number in 0..WATCHERS {
        let client = clients[number % clients.len()].clone();
        // Most of them go on where they were, some begin anew with all there is.
        let path = if number % 15 != 0 {
            format!("{MAPS}?watch=1&resourceVersion={seen}")
        } else {
            format!("{MAPS}?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true")
        };
        storm.spawn(async move {
            let mut watch = client.open(Call::new(Method::GET, &path)).await.expect("a watch");
            loop {
                let event = watch.event().await.expect("the watch goes on").expect("an event");
                assert_ne!(event["type"], "ERROR", "{event}");
                if event["object"]["metadata"]["name"] == "missed" {
                    return watch;
                }
            }
        });
    }
    let mut watches = Vec::new();
    while let Some(done) = tokio::time::timeout(Duration::from_mins(2), storm.join_next()).await.expect("in time") {
        watches.push(done.expect("saw what it had missed"));
    }
    assert_eq!(watches.len(), WATCHERS);
    is_well(&croft, &limit).await;
}

type Requests = h2::client::SendRequest<Bytes>;

/// A connection over HTTP/2 whose client takes so many bytes of each answer, until it says otherwise.
async fn raw(server: &Croft, identity: Option<&Identity>, window: u32) -> Requests {
    let stream = server.connect(identity, &["h2"]).await.expect("a connection");
    let mut builder = h2::client::Builder::new();
    // Of all together it takes what there is.
    builder.initial_window_size(window).initial_connection_window_size(1 << 20);
    let (requests, connection) = builder.handshake(stream).await.expect("it speaks HTTP/2");
    // Whatever it ends with: the streams tell.
    tokio::spawn(async move { drop(connection.await) });
    requests
}

fn request(server: &Croft, method: Method, path: &str) -> http::request::Builder {
    http::Request::builder().method(method).uri(format!("{}{path}", server.url))
}

/// Answers of which nothing was taken yet.
async fn ask(server: &Croft, requests: Requests, path: &str) -> (Requests, h2::RecvStream) {
    let mut requests = requests.ready().await.expect("room for a stream");
    let get = request(server, Method::GET, path).body(()).expect("a request");
    let (answer, _) = requests.send_request(get, true).expect("it is sent");
    let answer = answer.await.expect("an answer");
    assert_eq!(answer.status(), 200);
    (requests, answer.into_body())
}

/// Ten thousand requests without credentials, each of which keeps back the last byte of its body: 650 MB.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bodies_that_never_come_whole_do_not_fill_memory() {
    const LOGIN: &str = "/v3-public/localProviders/local?action=login";
    let (limit, croft) = start("bodies", &[]).await;
    let some = Bytes::from(vec![b' '; 65_535]);
    let (tell, mut refusals) = tokio::sync::mpsc::channel(10_000);
    let mut hoarded = tokio::task::JoinSet::new();
    for _ in 0..40 {
        let mut requests = raw(&croft, None, 65_535).await;
        for _ in 0..250 {
            requests = requests.ready().await.expect("room for a stream");
            let head = request(&croft, Method::POST, LOGIN).header("content-type", "application/json");
            let head = head.header("content-length", some.len() + 1).body(()).expect("a request");
            let (answer, mut body) = requests.send_request(head, false).expect("it is sent");
            body.send_data(some.clone(), false).expect("it is sent");
            let tell = tell.clone();
            hoarded.spawn(async move {
                if answer.await.is_ok_and(|answer| answer.status() == 429) {
                    // There is room for all of them.
                    let _ = tell.try_send(());
                }
                std::future::pending::<()>().await;
                drop(body);
            });
        }
    }
    drop(tell);
    // Few are read, few wait, and most are refused.
    for _ in 0..9_000 {
        let refused = tokio::time::timeout(Duration::from_secs(50), refusals.recv()).await;
        refused.expect("it is refused in time").expect("it is refused");
    }
    is_well(&croft, &limit).await;
    // Others may still log in, from the same address, too.
    let nobody = json!({"username": "nobody", "password": "x"}).to_string();
    let mut stream = croft.connect(None, &["http/1.1"]).await.expect("a connection");
    // Head and body in one piece.
    let login = format!(
        "POST {LOGIN} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{nobody}",
        nobody.len()
    );
    stream.write_all(login.as_bytes()).await.expect("writes");
    stream.flush().await.expect("flushes");
    let mut answer = [0; 13];
    stream.read_exact(&mut answer).await.expect("an answer");
    assert_eq!(&answer, b"HTTP/1.1 401 ");
}

/// On every connection an answer of which the client takes nothing, for which it needs no credentials.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_that_nobody_takes_keep_nobody_out() {
    let (limit, mut croft) = start("places", &["--max-connections=20"]).await;
    let mut lying = Vec::new();
    for number in 0..20 {
        // Of every second one a byte.
        let requests = raw(&croft, None, number % 2).await;
        lying.push(ask(&croft, requests, "/version").await);
    }
    is_well(&croft, &limit).await;
    // Nor do they keep the server from being stopped in order.
    croft.terminate(Duration::from_secs(30)).await.expect("it stops");
    let log = croft.process().log_tail(5);
    assert!(!log.contains("cut off"), "{log}");
}

/// Answers that are handed over as a whole, of each of which the client takes the beginning: 600 MB.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_of_which_little_is_taken_do_not_fill_memory() {
    let (limit, croft) = start("little", &[]).await;
    let large = json!({"metadata": {"name": "large"}, "data": {"text": "x".repeat(400 << 10)}});
    croft.client().expect("a client").post(MAPS, &large).await.expect("an answer").ok().expect("made");
    let mut lying = Vec::new();
    for _ in 0..6 {
        let mut requests = raw(&croft, Some(&croft.admin), 1_000).await;
        let mut answers = tokio::task::JoinSet::new();
        for _ in 0..250 {
            // Those with too much are closed meanwhile, this one among them.
            let Ok(ready) = requests.clone().ready().await else { break };
            requests = ready;
            let get = request(&croft, Method::GET, &format!("{MAPS}/large?pretty=true")).body(()).expect("a request");
            let Ok((answer, _)) = requests.send_request(get, true) else { break };
            answers.spawn(answer);
        }
        let mut taken = Vec::new();
        while let Some(answer) = answers.join_next().await {
            taken.push(answer);
        }
        lying.push((requests, taken));
    }
    is_well(&croft, &limit).await;
    let figures = croft.client().expect("a client").get("/metrics").await.expect("an answer").text();
    let cut = figures.lines().find_map(|line| line.strip_prefix("croft_connections_cut_total "));
    assert!(cut.is_some_and(|number| number != "0"), "{cut:?} connections were closed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_that_is_left_lying_is_given_up() {
    let (limit, croft) = start("lying", &[]).await;
    let client = croft.client().expect("a client");
    fill(&client).await;
    // The second takes a little first.
    let mut lying = Vec::new();
    for window in [0, 1_000] {
        let requests = raw(&croft, Some(&croft.admin), window).await;
        lying.push(ask(&croft, requests, MAPS).await);
    }
    // A watch that has nothing to say waits for nobody.
    let requests = raw(&croft, Some(&croft.admin), 65_535).await;
    let (_requests, mut watch) =
        ask(&croft, requests, &format!("{MAPS}?watch=1&resourceVersion=0&fieldSelector=metadata.name%3Dlate")).await;
    for (requests, mut body) in lying {
        let cut = async {
            while let Some(data) = body.data().await {
                if let Err(error) = data {
                    return error.reason();
                }
            }
            panic!("it looks like all of it");
        };
        let reason = tokio::time::timeout(Duration::from_secs(90), cut).await.expect("it is given up");
        assert_eq!(reason, Some(h2::Reason::CANCEL));
        // Of the connection nothing is lost but that.
        let _answer = ask(&croft, requests, "/version").await;
    }
    client.post(MAPS, &json!({"metadata": {"name": "late"}})).await.expect("an answer").ok().expect("made");
    let event = tokio::time::timeout(Duration::from_secs(30), watch.data()).await.expect("an event in time");
    let event = event.expect("the watch goes on").expect("an event");
    assert!(event.starts_with(b"{\"type\":\"ADDED\""), "{event:?}");
    is_well(&croft, &limit).await;
}
