use super::*;
use tokio::net::UnixListener;

const SHORT: Duration = Duration::from_millis(50);

/// The guest's side, scripted by each test.
struct Guest {
    reader: BufReader<OwnedReadHalf>,
    writer: OwnedWriteHalf,
}

impl Guest {
    async fn accept(listener: &UnixListener) -> Guest {
        let (read, writer) = listener.accept().await.unwrap().0.into_split();
        Guest { reader: BufReader::new(read), writer }
    }

    /// The next request, after a delimiter if there is one.
    async fn hear(&mut self) -> Option<Value> {
        let mut line = Vec::new();
        if self.reader.read_until(b'\n', &mut line).await.unwrap() == 0 {
            return None;
        }
        let start = line.iter().rposition(|byte| *byte == DELIMITER).map_or(0, |at| at + 1);
        Some(serde_json::from_slice(&line[start..]).unwrap())
    }

    async fn say(&mut self, bytes: &[u8]) {
        self.writer.write_all(bytes).await.unwrap();
    }

    async fn answer_sync(&mut self) {
        let request = self.hear().await.unwrap();
        assert_eq!(request["execute"], "guest-sync-delimited");
        let echo = json!({ "return": request["arguments"]["id"] });
        self.say(b"\xff").await;
        self.say(format!("{echo}\n").as_bytes()).await;
    }

    /// Answers one command, after its synchronisation, and gives what was asked.
    async fn answer(&mut self, answer: Value) -> Value {
        self.answer_sync().await;
        let request = self.hear().await.unwrap();
        self.say(format!("{answer}\n").as_bytes()).await;
        request
    }
}

fn listening() -> (Agent, UnixListener, tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("qga.sock");
    let listener = UnixListener::bind(&path).unwrap();
    (Agent::new(&path), listener, dir)
}

#[tokio::test]
async fn typed_answers_are_decoded_and_unknown_fields_ignored() {
    let (agent, listener, _dir) = listening();
    let serve = async {
        let mut guest = Guest::accept(&listener).await;
        guest.answer(json!({ "return": { "id": "debian", "pretty-name": "Debian", "future": [1] } })).await;
        guest
            .answer(json!({ "return": [{ "name": "eth0", "hardware-address": "52:54:00:00:00:01",
                "ip-addresses": [{ "ip-address": "10.0.0.2", "ip-address-type": "ipv4", "prefix": 24 }] }, { "name": "lo" }] }))
            .await;
        guest.answer(json!({ "return": "frozen" })).await;
        guest.answer(json!({ "return": [{ "user": "root", "login-time": 1.5 }] })).await;
        guest
            .answer(json!({ "return": [{ "name": "vda1", "type": "ext4", "disk": [{ "serial": "s", "target": 0 }] }] }))
            .await;
    };
    let ask = async {
        let os = agent.os_info().await.unwrap();
        assert_eq!((os.id.as_str(), os.pretty_name.as_str(), os.version.as_str()), ("debian", "Debian", ""));
        let interfaces = agent.network_interfaces().await.unwrap();
        assert_eq!(interfaces[0].ip_addresses[0].prefix, 24);
        assert!(interfaces[1].ip_addresses.is_empty());
        assert_eq!(agent.freeze_status().await.unwrap(), FreezeStatus::Frozen);
        assert_eq!(agent.users().await.unwrap()[0].user, "root");
        assert_eq!(agent.filesystems().await.unwrap()[0].disk[0].serial, "s");
    };
    tokio::join!(serve, ask);
}

#[tokio::test]
async fn an_absent_agent_gets_no_command_at_all() {
    let (agent, listener, _dir) = listening();
    let agent = agent.with_sync_timeout(SHORT);
    let answer = agent.freeze().await;
    assert!(matches!(answer, Err(AgentError::Absent)), "{answer:?}");
    let mut guest = Guest::accept(&listener).await;
    assert_eq!(guest.hear().await.unwrap()["execute"], "guest-sync-delimited");
    assert_eq!(guest.hear().await, None);
}

#[tokio::test]
async fn stale_answers_and_noise_before_the_echo_are_dropped() {
    let (agent, listener, _dir) = listening();
    let serve = async {
        let mut guest = Guest::accept(&listener).await;
        guest.say(b"{\"return\": 7}\nnoise\xff{\"return\": 1}\n\xff\n{\"retur").await;
        guest.answer(json!({ "return": 3 })).await;
    };
    let (count, ()) = tokio::join!(agent.thaw(), serve);
    assert_eq!(count.unwrap(), 3);
}

#[tokio::test]
async fn an_answer_that_comes_too_late_is_not_taken_for_the_next() {
    let (agent, listener, _dir) = listening();
    let serve = async {
        let mut guest = Guest::accept(&listener).await;
        guest.answer_sync().await;
        guest.hear().await.unwrap();
        // We gave up and left; QEMU keeps the guest's side open and hands the late answer to whoever connects.
        assert_eq!(guest.hear().await, None);
        let mut guest = Guest::accept(&listener).await;
        guest.say(b"{\"return\": \"late\"}\n").await;
        guest.answer(json!({ "return": "in time" })).await;
    };
    let ask = async {
        let slow = agent.execute::<String>("slow", json!({}), SHORT).await;
        assert!(matches!(slow, Err(AgentError::Timeout { .. })), "{slow:?}");
        assert_eq!(agent.execute::<String>("quick", json!({}), COMMAND_TIMEOUT).await.unwrap(), "in time");
    };
    tokio::join!(serve, ask);
}

#[tokio::test]
async fn a_channel_that_was_closed_meanwhile_is_opened_again() {
    let (agent, listener, _dir) = listening();
    let serve = async {
        Guest::accept(&listener).await.answer(json!({ "return": {} })).await;
        Guest::accept(&listener).await.answer(json!({ "return": {} })).await;
    };
    let ask = async {
        agent.ping().await.unwrap();
        agent.ping().await.unwrap();
    };
    tokio::join!(serve, ask);
}

#[tokio::test]
async fn an_error_keeps_the_connection_and_carries_the_text() {
    let (agent, listener, _dir) = listening();
    let serve = async {
        let mut guest = Guest::accept(&listener).await;
        guest.answer(json!({ "error": { "class": "CommandNotFound", "desc": "disabled" } })).await;
        guest.answer(json!({ "return": {} })).await;
    };
    let ask = async {
        let refused = agent.users().await.unwrap_err();
        assert_eq!(refused.to_string(), "guest agent, guest-get-users: disabled");
        agent.ping().await.unwrap();
    };
    tokio::join!(serve, ask);
}

#[tokio::test]
async fn exec_sends_input_and_decodes_output() {
    let (agent, listener, _dir) = listening();
    let serve = async {
        let mut guest = Guest::accept(&listener).await;
        let started = guest.answer(json!({ "return": { "pid": 12 } })).await;
        let expected = json!({ "path": "/bin/cat", "arg": ["a b"], "capture-output": true, "input-data": "aGk=" });
        assert_eq!(started["arguments"], expected);
        let asked = guest.answer(json!({ "return": { "exited": false } })).await;
        assert_eq!(asked["arguments"], json!({ "pid": 12 }));
        guest.answer(json!({ "return": { "exited": true, "exitcode": 3, "out-data": "aGk=" } })).await;
        guest.answer(json!({ "return": { "exited": true, "out-data": "%%%" } })).await;
    };
    let ask = async {
        let exec = Exec {
            path: "/bin/cat".into(),
            args: vec!["a b".into()],
            input: Some(b"hi".to_vec()),
            capture_output: true,
            ..Exec::default()
        };
        let pid = agent.exec(&exec).await.unwrap();
        assert!(!agent.exec_status(pid).await.unwrap().exited);
        let done = agent.exec_status(pid).await.unwrap();
        assert_eq!((done.exit_code, done.stdout.as_slice()), (Some(3), b"hi".as_slice()));
        assert!(matches!(agent.exec_status(pid).await, Err(AgentError::Answer { .. })));
    };
    tokio::join!(serve, ask);
}

#[tokio::test]
async fn shutdown_takes_silence_for_consent_and_an_error_for_refusal() {
    let (agent, listener, _dir) = listening();
    let serve = async {
        let mut guest = Guest::accept(&listener).await;
        guest.answer_sync().await;
        assert_eq!(guest.hear().await.unwrap()["arguments"], json!({ "mode": "reboot" }));
        drop(guest);
        let mut guest = Guest::accept(&listener).await;
        guest.answer(json!({ "error": { "class": "GenericError", "desc": "no" } })).await;
    };
    let ask = async {
        agent.shutdown(Shutdown::Reboot).await.unwrap();
        assert!(matches!(agent.shutdown(Shutdown::PowerDown).await, Err(AgentError::Command { .. })));
    };
    tokio::join!(serve, ask);
}

#[tokio::test]
async fn an_endless_answer_is_cut_off() {
    let (agent, listener, _dir) = listening();
    let serve = async {
        let mut guest = Guest::accept(&listener).await;
        guest.answer_sync().await;
        let chunk = vec![b'x'; 1 << 20];
        while guest.writer.write_all(&chunk).await.is_ok() {}
    };
    let ask = async {
        let endless = agent.execute::<Value>("x", json!({}), Duration::from_secs(30)).await;
        assert!(matches!(endless, Err(AgentError::TooLong)), "{endless:?}");
    };
    tokio::join!(serve, ask);
}
