//! Consoles, displays and ports over WebSockets.

use std::time::Duration;

use croft_testkit::{Refused, WebSocket};
use http::Method;
use serde_json::{Value, json};

use crate::agent::soon;
use crate::cluster::{Cluster, SUB, VMIS, VMS};

async fn open(cluster: &Cluster, path: &str) -> Result<WebSocket, Refused> {
    let path = format!("{SUB}/{path}");
    soon(Box::pin(cluster.endpoint.websocket(&path))).await.expect("an answer")
}

async fn refused(cluster: &Cluster, path: &str, code: u16, words: &str) {
    let refused = open(cluster, path).await.expect_err("a refusal");
    assert_eq!(refused.code, code, "{path}: {}", refused.status);
    assert!(refused.status["message"].as_str().unwrap_or_default().contains(words), "{path}: {}", refused.status);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_console_is_a_stream_that_ends_properly() {
    let cluster = Cluster::start().await;
    refused(&cluster, "virtualmachineinstances/a/console", 404, "not found").await;
    cluster.vmi("a", "Scheduled", &[], None).await;
    // What virtctl tries again.
    refused(&cluster, "virtualmachineinstances/a/console", 400, "VMI is not running").await;
    cluster.internal(Method::PATCH, &format!("{VMIS}/a"), &json!({"status": {"phase": "Failed"}})).await;
    refused(&cluster, "virtualmachineinstances/a/console", 409, "VMI is in failed status").await;
    cluster.internal(Method::PATCH, &format!("{VMIS}/a"), &json!({"status": {"phase": "Running"}})).await;
    let mut console = open(&cluster, "virtualmachineinstances/a/console").await.expect("a console");
    assert_eq!(console.protocol.as_deref(), Some("plain.kubevirt.io"));
    console.send(b"hello").await.unwrap();
    assert_eq!(console.receive_exactly(5).await.unwrap(), "hello");
    // Longer than one frame, one read and one write.
    let long: Vec<u8> = (0..1_000_000_u32).map(|n| n.to_le_bytes()[0]).collect();
    console.send(&long).await.unwrap();
    assert_eq!(console.receive_exactly(long.len()).await.unwrap(), long);
    console.send(b"bye").await.unwrap();
    assert_eq!(soon(console.receive()).await.unwrap(), None);
    assert_eq!(console.closed, Some(1000));

    let mut console = open(&cluster, "virtualmachineinstances/a/console").await.expect("a console");
    console.send(b"die").await.unwrap();
    assert_eq!(soon(console.receive()).await.unwrap(), None);
    assert_eq!(console.closed, Some(1011), "the agent did not say goodbye");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn other_streams_have_their_own_rules() {
    let cluster = Cluster::start().await;
    let vm = cluster.vm("a", json!({"runStrategy": "Manual"})).await;
    cluster.vmi("a", "Running", &[], Some(&vm)).await;
    refused(&cluster, "virtualmachines/a/portforward/22/tcp", 409, "VMI is not started").await;
    let created = json!({"status": {"created": true}});
    cluster.internal(Method::PATCH, &format!("{VMS}/a/status"), &created).await;
    for path in ["virtualmachines/a/portforward/22", "virtualmachineinstances/a/portforward/22/tcp"] {
        let mut stream = open(&cluster, path).await.expect("a port");
        stream.send(b"ssh").await.unwrap();
        assert_eq!(stream.receive_exactly(3).await.unwrap(), "ssh");
        stream.close().await.unwrap();
    }
    // The echo gives back the length and the datagram, which is a datagram again.
    let mut udp = open(&cluster, "virtualmachineinstances/a/portforward/53/udp").await.expect("a port");
    udp.send(b"query").await.unwrap();
    assert_eq!(soon(udp.receive()).await.unwrap().unwrap(), "query");

    refused(&cluster, "virtualmachineinstances/a/portforward/70000/tcp", 400, "is not a port").await;
    refused(&cluster, "virtualmachineinstances/a/portforward/22/sctp", 400, "neither tcp nor udp").await;
    refused(&cluster, "virtualmachineinstances/a/portforward", 400, "port must not be empty").await;
    refused(&cluster, "virtualmachineinstances/a/vnc?preserveSession=true", 409, "somebody else looks at it").await;
    refused(&cluster, "virtualmachineinstances/a/usbredir", 409, "Not configured with USB Redirection").await;
    refused(&cluster, "virtualmachineinstances/a/vsock?port=1", 400, "VSOCK is not attached").await;
    let mut vnc = open(&cluster, "virtualmachineinstances/a/vnc").await.expect("a display");
    vnc.send(b"RFB").await.unwrap();
    assert_eq!(vnc.receive_exactly(3).await.unwrap(), "RFB");

    let paused = json!({"status": {"conditions": [{"type": "Paused", "status": "True"}]}});
    cluster.internal(Method::PATCH, &format!("{VMIS}/a"), &paused).await;
    refused(&cluster, "virtualmachineinstances/a/portforward/22/tcp", 409, "VMI is paused").await;
    let streams: Vec<String> = cluster.agent.seen().into_iter().filter(|seen| seen.starts_with("STREAM")).collect();
    assert_eq!(
        streams,
        [
            "STREAM /v1/vmis/default/a/portforward/22/tcp",
            "STREAM /v1/vmis/default/a/portforward/22/tcp",
            "STREAM /v1/vmis/default/a/portforward/53/udp",
            "STREAM /v1/vmis/default/a/vnc?preserveSession=true",
            "STREAM /v1/vmis/default/a/vnc",
        ]
    );
}

/// Browsers offer protocols of their own, or none; a plain GET is told what is missing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn any_websocket_client_gets_in() {
    let cluster = Cluster::start().await;
    cluster.vmi("a", "Running", &[], None).await;
    let path = format!("{SUB}/virtualmachineinstances/a/console");
    for (offered, chosen) in [(&[][..], None), (&["binary"][..], Some("binary"))] {
        let stream = Box::pin(cluster.endpoint.websocket_offering(&path, offered)).await.unwrap().expect("a console");
        assert_eq!(stream.protocol.as_deref(), chosen);
    }
    let plain = cluster.client.get(&path).await.unwrap();
    assert_eq!(plain.status, 400);
    assert!(plain.text().contains("not using the websocket protocol"), "{}", plain.text());
    let anonymous = cluster.endpoint.anonymous().unwrap().get(&path).await.unwrap();
    assert_eq!(anonymous.status, 403);
}

/// More streams than requests may be in flight, and each takes little.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_are_no_requests_in_flight() {
    let cluster = Cluster::start().await;
    cluster.vmi("a", "Running", &[], None).await;
    let mut open_ones = Vec::new();
    for _ in 0..700 {
        open_ones.push(open(&cluster, "virtualmachineinstances/a/console").await.expect("a console"));
    }
    assert!(cluster.get(VMIS).await["items"].is_array());
    for console in open_ones.iter_mut().step_by(100) {
        console.send(b"x").await.unwrap();
        assert_eq!(console.receive_exactly(1).await.unwrap(), "x");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stopping_server_ends_its_streams() {
    let cluster = Cluster::start().await;
    cluster.vmi("a", "Running", &[], None).await;
    let mut console = open(&cluster, "virtualmachineinstances/a/console").await.expect("a console");
    let (stopped, closed) = tokio::join!(
        tokio::time::timeout(Duration::from_secs(4), cluster.server.stop()),
        soon(async {
            while let Ok(Some(_)) = console.receive().await {}
            console.closed
        })
    );
    stopped.expect("it stops in time").unwrap();
    assert_eq!(closed, Some(1001));
}

/// A client that does not read holds up the guest, and memory does not pay for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_nobody_reads_is_not_gathered() {
    let cluster = Cluster::start().await;
    cluster.vmi("a", "Running", &[], None).await;
    let mut console = open(&cluster, "virtualmachineinstances/a/console").await.expect("a console");
    // The echo of this is never read: at some point nothing more is taken.
    let chunk = vec![b'.'; 256 << 10];
    let mut sent = 0;
    while let Ok(Ok(())) = tokio::time::timeout(Duration::from_secs(2), console.send(&chunk)).await {
        sent += chunk.len();
        assert!(sent < 256 << 20, "somebody takes it all");
    }
    let status: Value = cluster.get(&format!("{VMIS}/a")).await;
    assert_eq!(status["status"]["phase"], "Running");
}
