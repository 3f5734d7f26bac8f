//! Through TLS, with real machines: one without an operating system, and the tiny guest.

use std::net::SocketAddr;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use croft_api::kubevirt::{Probe, VirtualMachineInstance, VirtualMachineInstanceSpec};
use croft_pki::Ca;
use croft_pki::node::{NodeClient, server_name};
use croft_qemu::accel::Accel;
use croft_qemu::process::{Confinement, Launch, Process};
use croft_qemu::qga::Agent;
use croft_qemu::qmp::{Qmp, QmpError};
use croft_qemu::spec::{Disk, Format, Id, Listener, Machine, Serial, Source, Video, Vnc};
use futures::future::BoxFuture;
use http::StatusCode;
use http::header::{CONNECTION, UPGRADE};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1;
use hyper::upgrade::Upgraded;
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, UdpSocket};
use tokio::sync::watch;
use uuid::Uuid;

use super::*;
use crate::Listen;
use crate::console::Console;
use crate::guest::{Facts, Introduction, Life, Readiness, attend};

/// Every guest is reached here, or nowhere.
struct Here(Vec<SocketAddr>);

impl Reach for Here {
    fn reach<'a>(&'a self, _: &'a Guest, _: u16, _: Transport) -> BoxFuture<'a, Result<Reached, String>> {
        let reached = self.0.first().map(|address| Reached { address: *address, _way: None });
        Box::pin(std::future::ready(reached.ok_or_else(|| "no address that is reachable".to_owned())))
    }
}

/// A machine whose life nobody else watches.
#[derive(Debug)]
struct Unsupervised(Qmp);

impl Life for Unsupervised {
    fn fail(&self, _reason: String) {
        let qmp = self.0.clone();
        tokio::spawn(async move { qmp.quit().await });
    }

    fn press_power_button_to_reboot(&self) -> BoxFuture<'_, Result<(), QmpError>> {
        Box::pin(self.0.system_powerdown())
    }
}

const QEMU: &str = "qemu-system-x86_64";
const PATIENCE: Duration = Duration::from_mins(2);

/// An agent's server with its own authority, on a port of its own.
struct Fixture {
    dir: tempfile::TempDir,
    ca: Ca,
    address: SocketAddr,
    guests: Guests,
    reach: Arc<dyn Reach>,
    stop: CancellationToken,
    machines: Vec<Process>,
}

impl Drop for Fixture {
    fn drop(&mut self) {
        self.stop.cancel();
        for machine in &self.machines {
            machine.kill();
        }
    }
}

impl Fixture {
    async fn start(reached_at: Vec<SocketAddr>) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let ca = Ca::load_or_create(dir.path(), Timestamp::now()).unwrap();
        let identity = ca.issue_agent("n1", &[], Timestamp::now()).unwrap();
        let listener = bind(Listen { address: "127.0.0.1:0".parse().unwrap(), is_required: true }).await.unwrap();
        let address = listener.local_addr().unwrap();
        let tls = Tls::new(Box::new(move || Ok(identity.clone()))).unwrap();
        let guests = Guests::default();
        let stop = CancellationToken::new();
        let reach: Arc<dyn Reach> = Arc::new(Here(reached_at));
        let figures = Figures::new("n1", guests.clone());
        let stores = Arc::default();
        let services =
            Services { guests: guests.clone(), reach: Arc::clone(&reach), stores, figures, logs: Logs::default() };
        tokio::spawn(serve(listener, tls, services, stop.clone()));
        Self { dir, ca, address, guests, reach, stop, machines: Vec::new() }
    }

    /// A machine as the node's own code starts it, called `vm` in `ns`.
    async fn machine(&mut self, change: impl FnOnce(&mut Machine)) -> Arc<Guest> {
        self.machine_with(VirtualMachineInstanceSpec::default(), change).await
    }

    async fn machine_with(
        &mut self,
        spec: VirtualMachineInstanceSpec,
        change: impl FnOnce(&mut Machine),
    ) -> Arc<Guest> {
        let home = self.dir.path().join("vm");
        std::fs::create_dir(&home).unwrap();
        let mut machine = Machine::new("vm", Uuid::new_v4(), 64 << 20);
        let listen = |name: &str| (home.join(name), UnixListener::bind(home.join(name)).unwrap());
        let (console, console_listener) = listen("console.sock");
        let (agent, agent_listener) = listen("agent.sock");
        machine.serial = Some(Serial { socket: Listener::Fd(10), log: None });
        machine.guest_agent = Some(Listener::Fd(11));
        machine.vnc = Some(Vnc::ByDescriptor);
        machine.video = Video::Vga;
        change(&mut machine);
        let launch = Launch {
            binary: Path::new(QEMU),
            dir: &home,
            machine: &machine,
            accel: Accel::Tcg { cache_mib: Some(32) },
            fds: vec![(10, console_listener.into()), (11, agent_listener.into())],
            confinement: &Confinement::default(),
        };
        let (process, qmp, _) = Process::start(launch).await.unwrap();
        let console = Console::open(&console, Some(&home.join("console.log"))).await.unwrap();
        let guest = self.guests.arrive(Guest::new(Introduction {
            namespace: "ns".to_owned(),
            name: "vm".to_owned(),
            uid: machine.uuid.to_string(),
            pid: process.pid(),
            qmp: qmp.clone(),
            agent: Some(Arc::new(Agent::new(&agent))),
            console: Some(console),
            has_display: true,
            usb_ports: Vec::new(),
            vsock_cid: None,
            machine: None,
            life: Box::new(Unsupervised(qmp.clone())),
        }));
        let (_, object) = watch::channel(Arc::new(VirtualMachineInstance { spec, ..Default::default() }));
        tokio::spawn(attend(Arc::clone(&guest), object, None, Arc::clone(&self.reach)));
        self.machines.push(process);
        qmp.cont().await.unwrap();
        guest
    }

    async fn connect(&self, client: &NodeClient) -> std::io::Result<http1::SendRequest<Full<Bytes>>> {
        let stream = TcpStream::connect(self.address).await.unwrap();
        let tls = tokio_rustls::TlsConnector::from(Arc::clone(&client.config));
        let stream = tls.connect(server_name("n1").unwrap(), stream).await?;
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(std::io::Error::other)?;
        tokio::spawn(connection.with_upgrades());
        Ok(sender)
    }

    async fn send(&self, method: &str, path: &str, body: &str) -> Response<Incoming> {
        let client = NodeClient::issue(&self.ca, Timestamp::now()).unwrap();
        let mut sender = self.connect(&client).await.unwrap();
        let mut request = Request::builder().method(method).uri(path);
        if method == "UPGRADE" {
            request = request.method("GET").header(CONNECTION, "Upgrade").header(UPGRADE, "croft-stream");
        }
        let request = request.body(Full::new(Bytes::copy_from_slice(body.as_bytes()))).unwrap();
        tokio::time::timeout(PATIENCE, sender.send_request(request)).await.unwrap().unwrap()
    }

    async fn call(&self, method: &str, path: &str, body: &str) -> (u16, Bytes) {
        let response = self.send(method, path, body).await;
        let code = response.status().as_u16();
        (code, response.into_body().collect().await.unwrap().to_bytes())
    }

    /// The code and the message of a refusal.
    async fn refusal(&self, method: &str, path: &str) -> (u16, String) {
        let (code, body) = self.call(method, path, "").await;
        let status: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!((status["kind"].as_str(), status["code"].as_u64()), (Some("Status"), Some(u64::from(code))));
        (code, status["message"].as_str().unwrap().to_owned())
    }

    async fn stream(&self, path: &str) -> TokioIo<Upgraded> {
        let response = self.send("UPGRADE", path, "").await;
        assert_eq!(response.status(), StatusCode::SWITCHING_PROTOCOLS);
        assert_eq!(response.headers()[UPGRADE], "croft-stream");
        TokioIo::new(hyper::upgrade::on(response).await.unwrap())
    }
}

async fn read_until(stream: &mut (impl tokio::io::AsyncRead + Unpin), text: &str) -> String {
    let mut seen = Vec::new();
    let reading = async {
        let mut chunk = [0; 4096];
        while !String::from_utf8_lossy(&seen).contains(text) {
            let length = stream.read(&mut chunk).await.unwrap();
            assert!(length > 0, "ended after {:?}", String::from_utf8_lossy(&seen));
            seen.extend_from_slice(&chunk[..length]);
        }
    };
    let found = tokio::time::timeout(PATIENCE, reading).await;
    assert!(found.is_ok(), "no {text:?} in {:?}", String::from_utf8_lossy(&seen));
    String::from_utf8_lossy(&seen).into_owned()
}

async fn expect_end(stream: &mut TokioIo<Upgraded>) {
    let mut rest = Vec::new();
    // A cut connection is as good an end as an orderly one.
    let _ = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut rest)).await.unwrap();
}

/// A disk whose boot sector says K on the serial port, and echoes what it reads there.
fn echo_disk(dir: &Path) -> Disk {
    #[rustfmt::skip]
    const CODE: &[u8] = &[
        0xba, 0xf8, 0x03,       // mov dx,0x3f8
        0xb0, b'K',             // mov al,'K'
        0xee,                   // out dx,al
        0xba, 0xfd, 0x03,       // wait: mov dx,0x3fd
        0xec,                   // in al,dx
        0xa8, 0x01,             // test al,1
        0x74, 0xf8,             // jz wait
        0xba, 0xf8, 0x03,       // mov dx,0x3f8
        0xec,                   // in al,dx
        0xee,                   // out dx,al
        0xeb, 0xf1,             // jmp wait
    ];
    let path = dir.join("boot.img");
    let mut disk = vec![0; 1 << 20];
    disk[..CODE.len()].copy_from_slice(CODE);
    disk[510..512].copy_from_slice(&[0x55, 0xaa]);
    std::fs::write(&path, disk).unwrap();
    Disk { boot_index: Some(1), ..Disk::new(Id::new("root").unwrap(), Source::File(path)) }
}

#[tokio::test]
async fn nobody_but_the_api_server_gets_in() {
    let fixture = Fixture::start(Vec::new()).await;
    let (code, body) = fixture.call("GET", "/healthz", "").await;
    assert_eq!((code, &body[..]), (200, &b"ok"[..]));

    let others = tempfile::tempdir().unwrap();
    let stranger = NodeClient::issue(&Ca::load_or_create(others.path(), Timestamp::now()).unwrap(), Timestamp::now());
    assert!(fixture.connect(&stranger.unwrap()).await.is_err(), "another authority's");
    // The same authority calls this one by another name: with TLS 1.3 it learns the refusal with the first answer.
    let issued = fixture.ca.issue_client("admin", &["system:masters".to_owned()], PATIENCE, Timestamp::now()).unwrap();
    let config = client_config(&fixture.ca, Some((&issued.cert_pem, issued.key_pem.reveal())));
    assert!(get_health(&fixture, config).await.is_err(), "an admin's certificate");
    assert!(get_health(&fixture, client_config(&fixture.ca, None)).await.is_err(), "no certificate");
}

fn client_config(ca: &Ca, identity: Option<(&str, &str)>) -> rustls::ClientConfig {
    use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
    let builder = rustls::ClientConfig::builder_with_provider(croft_pki::tls::provider())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(ca.roots());
    let Some((cert, key)) = identity else { return builder.with_no_client_auth() };
    let cert = CertificateDer::from_pem_slice(cert.as_bytes()).unwrap();
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
    builder.with_client_auth_cert(vec![cert], key).unwrap()
}

async fn get_health(fixture: &Fixture, config: rustls::ClientConfig) -> std::io::Result<()> {
    let stream = TcpStream::connect(fixture.address).await?;
    let tls = tokio_rustls::TlsConnector::from(Arc::new(config));
    let mut stream = tls.connect(server_name("n1").unwrap(), stream).await?;
    stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: n1\r\n\r\n").await?;
    let mut answer = [0; 12];
    stream.read_exact(&mut answer).await.map(drop)
}

#[tokio::test]
async fn figures_of_a_running_machine_are_told() {
    let mut fixture = Fixture::start(Vec::new()).await;
    let disk = echo_disk(fixture.dir.path());
    fixture
        .machine(|machine| {
            machine.disks = vec![disk];
            machine.has_balloon = true;
        })
        .await;
    // Once the boot sector speaks, it has been read.
    read_until(&mut fixture.stream("/v1/vmis/ns/vm/console").await, "K").await;
    let response = fixture.send("GET", "/metrics", "").await;
    assert_eq!(response.headers()[http::header::CONTENT_TYPE], "text/plain; version=0.0.4; charset=utf-8");
    let text = response.into_body().collect().await.unwrap().to_bytes();
    let text = String::from_utf8(text.to_vec()).unwrap();
    let value = |sample: &str| -> f64 {
        let line = text.lines().find_map(|line| line.strip_prefix(sample)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("no {sample} in {text}")).parse().unwrap()
    };
    let vm = r#"node="n1",namespace="ns",name="vm""#;
    let of = |name: &str, more: &str| value(&format!("kubevirt_vmi_{name}{{{vm}{more}}}"));
    let drive = r#",drive="root""#;
    assert!(of("storage_read_traffic_bytes_total", drive) >= 512.0);
    assert!(of("storage_iops_read_total", drive) >= 1.0);
    assert!(of("storage_read_times_seconds_total", drive) > 0.0);
    assert!((of("memory_domain_bytes", "") - f64::from(64 << 20)).abs() < 1.0);
    assert!((of("memory_actual_balloon_bytes", "") - f64::from(64 << 20)).abs() < 1.0);
    assert!(of("memory_resident_bytes", "") > f64::from(1 << 20));
    assert!(of("cpu_usage_seconds_total", "") > 0.0);
    assert!(of("vcpu_seconds_total", r#",id="0",state="RUNNING""#) > 0.0);
    assert!(value(r#"node_memory_MemTotal_bytes{node="n1"}"#) > f64::from(1 << 20));
    for absent in ["kubevirt_vmi_memory_unused_bytes", "kubevirt_vmi_network_"] {
        assert!(!text.contains(absent), "nobody told {absent}: {text}");
    }
    let phases = text.lines().find(|line| line.starts_with("kubevirt_vmi_phase_count{")).unwrap();
    assert!(phases.contains(r#"node="n1",phase="running""#) && phases.ends_with("} 1"), "{phases}");
}

#[tokio::test]
async fn a_machine_without_an_operating_system_is_seen_and_steered() {
    let mut fixture = Fixture::start(Vec::new()).await;
    let vm = "/v1/vmis/ns/vm";
    let not_running = "Operation cannot be fulfilled on virtualmachineinstance.kubevirt.io \"vm\": VMI is not running";
    assert_eq!(fixture.refusal("PUT", &format!("{vm}/pause")).await, (409, not_running.to_owned()));
    assert_eq!(fixture.refusal("UPGRADE", &format!("{vm}/console")).await, (400, "VMI is not running".to_owned()));
    let disk = echo_disk(fixture.dir.path());
    fixture.machine(|machine| machine.disks = vec![disk]).await;

    // Console: what was said before, typing, and a newer session.
    let mut first = fixture.stream(&format!("{vm}/console")).await;
    read_until(&mut first, "K").await;
    first.write_all(b"hello").await.unwrap();
    read_until(&mut first, "hello").await;
    let mut second = fixture.stream(&format!("{vm}/console")).await;
    read_until(&mut second, "hello").await;
    expect_end(&mut first).await;
    second.write_all(b"more").await.unwrap();
    read_until(&mut second, "more").await;
    let (code, log) = fixture.call("GET", &format!("{vm}/log"), "").await;
    assert_eq!(code, 200);
    assert!(String::from_utf8_lossy(&log).ends_with("Khellomore"), "{log:?}");
    let follow = fixture.send("GET", &format!("{vm}/log?follow=true&tailLines=1"), "").await;
    second.write_all(b"last").await.unwrap();
    let mut followed = Vec::new();
    let mut body = follow.into_body();
    while !followed.ends_with(b"last") {
        let frame = tokio::time::timeout(PATIENCE, body.frame()).await.unwrap().unwrap().unwrap();
        followed.extend_from_slice(&frame.into_data().unwrap());
    }

    // Screen: a handshake, and whoever insists gets it.
    let mut screen = fixture.stream(&format!("{vm}/vnc")).await;
    read_until(&mut screen, "RFB 003.008\n").await;
    screen.write_all(b"RFB 003.008\n").await.unwrap();
    let mut kinds = [0; 2];
    screen.read_exact(&mut kinds).await.unwrap();
    assert_eq!(kinds, [1, 1], "one kind of login: none");
    let taken = fixture.refusal("UPGRADE", &format!("{vm}/vnc?preserveSession=true")).await;
    assert_eq!(taken.0, 409);
    assert!(taken.1.ends_with("Active VNC connection. Request denied."), "{}", taken.1);
    let mut newer = fixture.stream(&format!("{vm}/vnc")).await;
    read_until(&mut newer, "RFB").await;
    expect_end(&mut screen).await;
    drop(newer);
    let (code, picture) = fixture.call("GET", &format!("{vm}/vnc/screenshot?moveCursor=true"), "").await;
    assert_eq!(code, 200);
    assert!(picture.starts_with(b"\x89PNG"), "{picture:?}");

    // Life.
    assert_eq!(fixture.call("PUT", &format!("{vm}/pause"), "{}").await.0, 200);
    assert!(fixture.refusal("PUT", &format!("{vm}/pause")).await.1.ends_with("VMI is already paused"));
    assert!(fixture.refusal("PUT", &format!("{vm}/softreboot")).await.1.ends_with("VMI is paused"));
    assert!(fixture.refusal("UPGRADE", &format!("{vm}/portforward/22/tcp")).await.1.ends_with("VMI is paused"));
    assert_eq!(fixture.call("PUT", &format!("{vm}/unpause"), "").await.0, 200);
    assert!(fixture.refusal("PUT", &format!("{vm}/unpause")).await.1.ends_with("VMI is not paused"));
    assert_eq!(fixture.call("PUT", &format!("{vm}/reset"), "").await.0, 200);
    read_until(&mut second, "K").await;

    // What it does not have.
    for (method, path, code, text) in [
        ("GET", "guestosinfo", 409, "VMI does not have guest agent connected"),
        ("UPGRADE", "usbredir", 409, "Not configured with USB Redirection"),
        ("UPGRADE", "vsock?port=1", 400, "VSOCK is not attached."),
        ("UPGRADE", "portforward/22/tcp", 409, "no address that is reachable"),
        ("GET", "console", 400, "Upgrade: croft-stream"),
        ("GET", "nonsense", 404, "the agent has no"),
    ] {
        let (actual, message) = fixture.refusal(method, &format!("{vm}/{path}")).await;
        assert!(actual == code && message.contains(text), "{path}: {actual} {message}");
    }
    // A machine that ends is no longer there, and its streams end.
    let guest = fixture.guests.get("ns", "vm").unwrap();
    fixture.machines[0].kill();
    expect_end(&mut second).await;
    assert_eq!(fixture.refusal("PUT", &format!("{vm}/pause")).await, (409, not_running.to_owned()));
    fixture.guests.leave("ns", "vm", &guest.uid);
    assert!(fixture.guests.all().is_empty());
}

#[tokio::test]
async fn files_are_refused_until_the_pool_is_open() {
    let fixture = Fixture::start(Vec::new()).await;
    for (method, path) in [("POST", "/v1/images/ns/a?size=4"), ("GET", "/v1/images/ns/a"), ("POST", "/v1/claims/ns/a")]
    {
        let refusal = fixture.refusal(method, path).await;
        assert_eq!(refusal, (503, "the node's pool is not open yet".to_owned()), "{method} {path}");
    }
}

#[tokio::test]
async fn ports_are_forwarded() {
    let tcp = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = tcp.local_addr().unwrap();
    let udp = UdpSocket::bind(address).await.unwrap();
    let mut fixture = Fixture::start(vec![address]).await;
    fixture.machine(|_| {}).await;

    let mut stream = fixture.stream("/v1/vmis/ns/vm/portforward/22/tcp").await;
    let (mut guest, _) = tcp.accept().await.unwrap();
    stream.write_all(b"ping").await.unwrap();
    read_until(&mut guest, "ping").await;
    guest.write_all(b"pong").await.unwrap();
    read_until(&mut stream, "pong").await;
    drop(guest);
    expect_end(&mut stream).await;

    let mut stream = fixture.stream("/v1/vmis/ns/vm/portforward/53/udp").await;
    stream.write_all(b"\x00\x05query").await.unwrap();
    let mut datagram = [0; 64];
    let (length, from) = udp.recv_from(&mut datagram).await.unwrap();
    assert_eq!(&datagram[..length], b"query");
    udp.send_to(b"answer", from).await.unwrap();
    let mut framed = [0; 8];
    stream.read_exact(&mut framed).await.unwrap();
    assert_eq!(&framed, b"\x00\x06answer");

    drop(tcp);
    let (code, message) = fixture.refusal("UPGRADE", "/v1/vmis/ns/vm/portforward/22/tcp").await;
    assert!(code == 500 && message.contains("refused"), "{code} {message}");
}

#[tokio::test]
async fn a_guest_is_ready_when_its_probe_says_so_and_given_up_when_it_is_dead() {
    let tcp = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut fixture = Fixture::start(vec![tcp.local_addr().unwrap()]).await;
    let probe = |failures: u32| -> Probe {
        serde_json::from_value(json!({ "tcpSocket": { "port": 80 }, "periodSeconds": 1, "failureThreshold": failures }))
            .unwrap()
    };
    let spec = VirtualMachineInstanceSpec {
        readiness_probe: Some(probe(1)),
        liveness_probe: Some(probe(2)),
        ..VirtualMachineInstanceSpec::default()
    };
    let guest = fixture.machine_with(spec, |_| {}).await;
    let mut facts = guest.facts();
    let is_ready = |facts: &Facts| facts.readiness == Some(Readiness::Ready);
    tokio::time::timeout(PATIENCE, facts.wait_for(is_ready)).await.unwrap().unwrap();
    drop(tcp);
    tokio::time::timeout(PATIENCE, facts.wait_for(|facts| !is_ready(facts))).await.unwrap().unwrap();
    tokio::time::timeout(PATIENCE, fixture.machines[0].wait()).await.unwrap();
}

/// The tiny guest of `make guest`, if it has been built.
fn tiny(dir: &Path) -> Option<Disk> {
    let built = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/guest/tiny.qcow2");
    let image = std::env::var_os("CROFT_TINY_GUEST").map_or_else(built, PathBuf::from);
    let copy = dir.join("tiny.qcow2");
    std::fs::copy(image, &copy).ok()?;
    let disk = Disk::new(Id::new("root").unwrap(), Source::File(copy));
    Some(Disk { boot_index: Some(1), format: Format::Qcow2, ..disk })
}

#[tokio::test]
async fn a_guest_with_an_agent_tells_of_itself_and_is_frozen() {
    let mut fixture = Fixture::start(Vec::new()).await;
    let Some(disk) = tiny(fixture.dir.path()) else {
        return eprintln!("no tiny guest: build it with `make guest`");
    };
    let guest = fixture
        .machine(|machine| {
            machine.disks = vec![disk];
            machine.memory.bytes = 192 << 20;
        })
        .await;
    let mut facts = guest.facts();
    tokio::time::timeout(PATIENCE, facts.wait_for(|facts| facts.is_agent_connected)).await.unwrap().unwrap();

    let vm = "/v1/vmis/ns/vm";
    let (code, info) = fixture.call("GET", &format!("{vm}/guestosinfo"), "").await;
    let info: Value = serde_json::from_slice(&info).unwrap();
    assert_eq!(code, 200, "{info}");
    assert!(!info["guestAgentVersion"].as_str().unwrap().is_empty());
    assert_eq!(info["os"]["machine"], "x86_64");
    assert_eq!(info["fsFreezeStatus"], "thawed");
    assert!(info["supportedCommands"].as_array().unwrap().iter().any(|c| c["name"] == "guest-ping"));
    let (code, list) = fixture.call("GET", &format!("{vm}/filesystemlist"), "").await;
    let list: Value = serde_json::from_slice(&list).unwrap();
    assert_eq!(code, 200, "{list}");
    let root = list["items"].as_array().unwrap().iter().find(|item| item["mountPoint"] == "/").unwrap();
    assert!(root["totalBytes"].as_u64().unwrap() > 0 && root["fileSystemType"] == "ext4", "{root}");
    let (code, users) = fixture.call("GET", &format!("{vm}/userlist"), "").await;
    assert_eq!(code, 200);
    assert!(serde_json::from_slice::<Value>(&users).unwrap()["items"].is_array());

    // Thawed by itself in time.
    assert_eq!(fixture.call("PUT", &format!("{vm}/freeze"), r#"{"unfreezeTimeout":"2s"}"#).await.0, 200);
    assert!(facts.wait_for(|facts| facts.is_frozen).await.is_ok());
    tokio::time::timeout(PATIENCE, facts.wait_for(|facts| !facts.is_frozen)).await.unwrap().unwrap();
    assert_eq!(fixture.call("PUT", &format!("{vm}/freeze"), "").await.0, 200);
    assert_eq!(fixture.call("PUT", &format!("{vm}/unfreeze"), "").await.0, 200);
    assert_eq!(fixture.call("PUT", &format!("{vm}/freeze"), r#"{"unfreezeTimeout":"soon"}"#).await.0, 400);

    // Started anew from inside, by its agent.
    let mut console = fixture.stream(&format!("{vm}/console")).await;
    assert_eq!(fixture.call("PUT", &format!("{vm}/softreboot"), "").await.0, 200);
    read_until(&mut console, "croft-guest stopping").await;
}
