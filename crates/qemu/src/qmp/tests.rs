use super::*;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::net::UnixListener;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};

const GREETING: &str =
    r#"{"QMP":{"version":{"qemu":{"micro":1,"minor":2,"major":7},"package":""},"capabilities":["oob"]}}"#;
const PATIENCE: Duration = Duration::from_secs(10);

/// QEMU's side of a conversation that the test writes down.
struct Peer {
    lines: Lines<BufReader<OwnedReadHalf>>,
    write: OwnedWriteHalf,
}

impl Peer {
    async fn say(&mut self, line: &str) {
        self.write.write_all(format!("{line}\r\n").as_bytes()).await.unwrap();
    }

    async fn hear(&mut self) -> Value {
        serde_json::from_str(&self.lines.next_line().await.unwrap().unwrap()).unwrap()
    }
}

async fn connected() -> (Qmp, Events, Peer, tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("qmp.sock");
    let listener = UnixListener::bind(&path).unwrap();
    let serve = async {
        let (read, write) = listener.accept().await.unwrap().0.into_split();
        let mut peer = Peer { lines: BufReader::new(read).lines(), write };
        // What was under way for the one before us may come even before the greeting.
        peer.say(r#"{"event":"STOP","timestamp":{"seconds":1,"microseconds":1}}"#).await;
        peer.say(GREETING).await;
        let hello = peer.hear().await;
        assert_eq!(hello["execute"], "qmp_capabilities");
        // An event may come before the answer.
        peer.say(r#"{"event":"EARLY","data":{"n":1},"timestamp":{"seconds":1,"microseconds":2}}"#).await;
        peer.say(&json!({ "return": {}, "id": hello["id"] }).to_string()).await;
        peer
    };
    let (client, peer) = tokio::join!(Qmp::connect(&path, PATIENCE), serve);
    let (qmp, events) = client.unwrap();
    (qmp, events, peer, dir)
}

#[tokio::test]
async fn replies_are_matched_by_id_and_events_come_between() {
    let (qmp, mut events, mut peer, _dir) = connected().await;
    assert_eq!(qmp.version(), Version { major: 7, minor: 2, micro: 1 });
    let serve = async {
        let (first, second) = (peer.hear().await, peer.hear().await);
        peer.say(r#"{"event":"NEW_IN_QEMU_99","data":{"x":[1]},"timestamp":{"seconds":-1,"microseconds":-1}}"#).await;
        peer.say(r#"{"return":{},"id":4711}"#).await;
        for request in [second, first] {
            peer.say(&json!({ "return": request["execute"], "id": request["id"] }).to_string()).await;
        }
    };
    let (one, two, ()) =
        tokio::join!(qmp.execute::<String>("one", json!({})), qmp.execute::<String>("two", json!({})), serve);
    assert_eq!((one.unwrap().as_str(), two.unwrap().as_str()), ("one", "two"));
    assert_eq!(events.next().await.unwrap().name, "EARLY");
    assert_eq!(events.wait_for("NEW_IN_QEMU_99").await.unwrap().data, json!({ "x": [1] }));
}

#[tokio::test]
async fn an_error_carries_class_and_text() {
    let (qmp, _events, mut peer, _dir) = connected().await;
    let serve = async {
        let id = peer.hear().await["id"].clone();
        peer.say(&json!({ "id": id, "error": { "class": "DeviceNotFound", "desc": "no such disk" } }).to_string())
            .await;
    };
    let (answer, ()) = tokio::join!(qmp.device_del("x"), serve);
    let error = answer.unwrap_err();
    assert!(error.is_device_not_found());
    assert_eq!(error.to_string(), "device_del: no such disk");
}

#[tokio::test]
async fn a_connection_that_ends_fails_all_who_wait_and_all_who_come() {
    let (qmp, mut events, mut peer, _dir) = connected().await;
    let serve = async {
        peer.hear().await;
        peer.hear().await;
        drop(peer);
    };
    let (one, two, ()) = tokio::join!(qmp.cont(), qmp.stop(), serve);
    assert!(matches!(one, Err(QmpError::Disconnected)), "{one:?}");
    assert!(matches!(two, Err(QmpError::Disconnected)), "{two:?}");
    assert!(matches!(qmp.status().await, Err(QmpError::Disconnected)));
    assert!(!qmp.is_connected());
    assert_eq!(events.wait_for("NEVER").await, Err(EventError::Disconnected));
    assert_eq!(qmp.subscribe().next().await, Err(EventError::Disconnected));
}

#[tokio::test]
async fn a_command_without_an_answer_times_out_and_leaves_the_connection_usable() {
    let (qmp, _events, mut peer, _dir) = connected().await;
    let slow = qmp.with_timeout(Duration::from_millis(20)).stop().await;
    assert!(matches!(slow, Err(QmpError::Timeout { .. })), "{slow:?}");
    assert!(qmp.shared.lock().pending.is_empty());
    let serve = async {
        for _ in 0..2 {
            let id = peer.hear().await["id"].clone();
            peer.say(&json!({ "return": {}, "id": id }).to_string()).await;
        }
    };
    let (answer, ()) = tokio::join!(qmp.cont(), serve);
    answer.unwrap();
}

#[tokio::test]
async fn a_slow_subscriber_learns_how_much_it_lost() {
    let (qmp, mut events, mut peer, _dir) = connected().await;
    let count = EVENT_BACKLOG + 10;
    let serve = async {
        let id = peer.hear().await["id"].clone();
        for _ in 0..count {
            peer.say(r#"{"event":"X"}"#).await;
        }
        peer.say(&json!({ "return": {}, "id": id }).to_string()).await;
    };
    let (answer, ()) = tokio::join!(qmp.cont(), serve);
    answer.unwrap();
    // EARLY and ten more did not fit.
    assert_eq!(events.next().await, Err(EventError::Lagged(11)));
    assert_eq!(events.next().await.unwrap().name, "X");
}

#[tokio::test]
async fn lines_have_no_limit_in_either_direction() {
    let (qmp, _events, mut peer, _dir) = connected().await;
    let long = "x".repeat(3 << 20);
    let serve = async {
        let request = peer.hear().await;
        peer.say(&json!({ "return": request["arguments"]["text"], "id": request["id"] }).to_string()).await;
    };
    let (answer, ()) = tokio::join!(qmp.execute::<String>("echo", json!({ "text": long })), serve);
    assert_eq!(answer.unwrap(), long);
}

#[tokio::test]
async fn what_is_not_qmp_is_named_as_such() {
    for greeting in ["{}\n", "SSH-2.0-OpenSSH\r\n"] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let listener = UnixListener::bind(&path).unwrap();
        let serve = async {
            let mut stream = listener.accept().await.unwrap().0;
            stream.write_all(greeting.as_bytes()).await.unwrap();
        };
        let (client, ()) = tokio::join!(Qmp::connect(&path, PATIENCE), serve);
        assert!(matches!(client, Err(QmpError::Greeting { .. } | QmpError::Connect { .. })), "{client:?}");
    }
    let nobody = Qmp::connect(Path::new("/nonexistent/qmp.sock"), PATIENCE).await;
    assert!(matches!(nobody, Err(QmpError::Connect { .. })));
}

#[tokio::test]
async fn dropping_the_last_handle_closes_the_connection() {
    let (qmp, events, mut peer, _dir) = connected().await;
    drop(qmp);
    assert!(peer.lines.next_line().await.unwrap().is_none());
    drop(events);
}
