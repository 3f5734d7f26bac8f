//! A host in a network namespace, a world beyond it, and guests that are namespaces behind taps.

use std::fs::File;
use std::future::Future;
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use tokio::io::unix::AsyncFd;
use tokio::net::UdpSocket;
use tokio::process::Command;
use tokio::task::JoinSet;

use super::super::{Config, Host};
use crate::nic::{Attachment, Nic};
use crate::{Mac, sys};

/// What udhcpc calls with what it was told.
const CLIENT: &str = r#"#!/bin/sh
[ "$1" = bound ] || [ "$1" = renew ] || exit 0
set > "$LEASE"
ip addr replace "$ip/$mask" dev "$interface"
ip route replace default via "$router" dev "$interface"
"#;

#[derive(Debug)]
pub(super) struct Bed {
    dir: tempfile::TempDir,
    pub(super) host: Namespace,
    pub(super) world: Namespace,
    _tasks: JoinSet<()>,
}

/// Runs a test on a thread that is in a network namespace of its own, with whatever it starts.
pub(super) fn bed<F: Future<Output = ()>>(test: impl FnOnce(Bed) -> F + Send + 'static) {
    let run = || {
        sys::leave_network_namespace().expect("tests of networks need root");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let bed = Bed::new().await;
            tokio::time::timeout(Duration::from_mins(1), test(bed)).await.expect("the test takes too long");
        });
    };
    if let Err(panic) = thread::spawn(run).join() {
        std::panic::resume_unwind(panic);
    }
}

impl Bed {
    async fn new() -> Bed {
        let dir = tempfile::tempdir().unwrap();
        let host = Namespace::here();
        let world = Namespace::new();
        host.run("ip link set lo up").await.unwrap();
        world.run("ip link set lo up").await.unwrap();
        let peer = format!("/proc/{}/fd/{}", std::process::id(), world.0.as_raw_fd());
        host.run(&format!("ip link add up0 type veth peer name eth0 netns {peer}")).await.unwrap();
        for command in
            ["ip addr add 198.51.100.2/24 dev up0", "ip -6 addr add 2001:db8::2/64 dev up0 nodad", "ip link set up0 up"]
        {
            host.run(command).await.unwrap();
        }
        for command in [
            "ip addr add 198.51.100.1/24 dev eth0",
            "ip -6 addr add 2001:db8::1/64 dev eth0 nodad",
            "ip link set eth0 up",
        ] {
            world.run(command).await.unwrap();
        }
        host.run("nft add table inet bystander").await.unwrap();
        let mut tasks = JoinSet::new();
        let upstream = UdpSocket::bind("127.0.0.9:53").await.unwrap();
        tasks.spawn(upstream_resolver(upstream));
        std::fs::write(dir.path().join("resolv.conf"), "nameserver 127.0.0.9\n").unwrap();
        Bed { dir, host, world, _tasks: tasks }
    }

    pub(super) fn dir(&self) -> PathBuf {
        self.dir.path().join("network")
    }

    pub(super) async fn start(&self) -> Host {
        let resolv_conf = self.dir.path().join("resolv.conf");
        Host::start(Config { dir: self.dir(), subnet: None, resolv_conf }).await.unwrap()
    }
}

/// Knows one name.
async fn upstream_resolver(socket: UdpSocket) {
    use hickory_proto::op::Message;
    use hickory_proto::rr::{RData, Record, RecordType, rdata::A};
    let mut buffer = [0; 512];
    loop {
        let (length, from) = socket.recv_from(&mut buffer).await.unwrap();
        let query = Message::from_vec(&buffer[..length]).unwrap();
        let mut reply = Message::response(query.metadata.id, query.metadata.op_code);
        let question = query.queries[0].clone();
        if question.name().to_ascii() == "upstream.test." && question.query_type() == RecordType::A {
            let data = RData::A(A([198, 51, 100, 1].into()));
            reply.add_answer(Record::from_rdata(question.name().clone(), 60, data));
        }
        reply.add_query(question);
        socket.send_to(&reply.to_vec().unwrap(), from).await.unwrap();
    }
}

#[derive(Debug)]
pub(super) struct Namespace(File);

impl Namespace {
    fn here() -> Namespace {
        Namespace(File::open("/proc/thread-self/ns/net").unwrap())
    }

    fn new() -> Namespace {
        Self::with(|| ()).0
    }

    /// Makes a namespace and does something in it.
    fn with<T: Send + 'static>(act: impl FnOnce() -> T + Send + 'static) -> (Namespace, T) {
        let make = || {
            sys::leave_network_namespace().unwrap();
            (Namespace::here(), act())
        };
        thread::spawn(make).join().unwrap()
    }

    fn command(&self, line: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/proc/{}/fd/{}", std::process::id(), self.0.as_raw_fd()));
        command.args(line.split(' ')).stdin(Stdio::null()).kill_on_drop(true);
        command
    }

    /// What a command says, or what it says when it fails.
    pub(super) async fn run(&self, line: &str) -> Result<String, String> {
        let output = self.command(line).output().await.unwrap();
        let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        if output.status.success() { Ok(said) } else { Err(format!("{line}: {said}")) }
    }

    pub(super) async fn reaches(&self, address: &str) {
        eventually(async || self.run(&format!("busybox ping -c1 -W1 {address}")).await.is_ok()).await;
    }

    pub(super) async fn gets(&self, url: &str) -> Result<String, String> {
        self.run(&format!("curl -sfg -m 2 {url}")).await
    }
}

pub(super) fn nic(vm_name: &str, number: u8, attachment: Attachment) -> Nic {
    Nic {
        vmi_uid: format!("uid-of-{vm_name}"),
        namespace: "default".into(),
        vm_name: vm_name.into(),
        hostname: vm_name.into(),
        name: "default".into(),
        mac: Mac([2, 0, 0, 0, 0, number]),
        attachment,
        queues: 1,
        told: crate::Told::default(),
    }
}

/// A guest: a namespace whose `eth0` is wired to the tap that the host made.
pub(super) struct Guest {
    pub(super) nic: Nic,
    namespace: Namespace,
    dir: tempfile::TempDir,
    resolver: String,
    tasks: parking_lot::Mutex<JoinSet<()>>,
}

impl Guest {
    pub(super) async fn plug(host: &Host, vm_name: &str, number: u8, attachment: Attachment) -> Guest {
        let nic = nic(vm_name, number, attachment);
        let mut tap = host.plug(&nic).await.unwrap();
        assert_eq!(tap.fds.len(), 1);
        let (namespace, inside) = Namespace::with(|| sys::open_tap("eth0", 1).unwrap().remove(0));
        let mut tasks = JoinSet::new();
        let (host_side, guest_side) = (wire(tap.fds.remove(0)), wire(inside));
        tasks.spawn(carry(Arc::clone(&host_side), Arc::clone(&guest_side)));
        tasks.spawn(carry(guest_side, host_side));
        namespace.run("ip link set lo up").await.unwrap();
        namespace.run(&format!("ip link set eth0 address {}", nic.mac)).await.unwrap();
        namespace.run("ip link set eth0 up").await.unwrap();
        let dir = tempfile::tempdir().unwrap();
        let resolver = host.subnet().gateway4().to_string();
        Guest { nic, namespace, dir, resolver, tasks: parking_lot::Mutex::new(tasks) }
    }

    pub(super) async fn dhcp(&self) {
        self.try_dhcp().await.unwrap();
    }

    pub(super) async fn try_dhcp(&self) -> Result<String, String> {
        let script = self.dir.path().join("client");
        std::fs::write(&script, CLIENT).unwrap();
        self.run("chmod +x client").await?;
        let line = "busybox udhcpc -i eth0 -f -q -n -t 3 -T 1 -O mtu -O hostname -O domain -s ./client";
        self.run(line).await
    }

    /// What the client was told at last.
    pub(super) fn lease(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("lease")).unwrap().replace('\'', "")
    }

    /// Runs with the resolver that the guest was given, in a mount namespace of its own.
    fn command(&self, line: &str) -> Command {
        let resolv = format!("search default.vm.croft.internal vm.croft.internal\nnameserver {}\n", self.resolver);
        std::fs::write(self.dir.path().join("resolv.conf"), resolv).unwrap();
        let script = format!("mount --bind resolv.conf /etc/resolv.conf && exec {line}");
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/proc/{}/fd/{}", std::process::id(), self.namespace.0.as_raw_fd()));
        command.args(["unshare", "-m", "sh", "-c", &script]).current_dir(self.dir.path());
        command.env("LEASE", self.dir.path().join("lease")).stdin(Stdio::null()).kill_on_drop(true);
        command
    }

    pub(super) async fn run(&self, line: &str) -> Result<String, String> {
        let output = self.command(line).output().await.unwrap();
        let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        if output.status.success() { Ok(said) } else { Err(format!("{line}: {said}")) }
    }

    /// Runs a command while something else happens; waits for both.
    pub(super) async fn run_while(&self, line: &str, act: impl AsyncFn()) -> Result<String, String> {
        let (result, ()) = tokio::join!(self.run(line), act());
        result
    }

    pub(super) async fn reaches(&self, name: &str) {
        eventually(async || self.run(&format!("busybox ping -4 -c1 -W1 {name}")).await.is_ok()).await;
    }

    pub(super) async fn reaches6(&self, name: &str) {
        eventually(async || self.run(&format!("busybox ping -6 -c1 -W1 {name}")).await.is_ok()).await;
    }

    pub(super) async fn gets(&self, url: &str) -> Result<String, String> {
        self.run(&format!("curl -sfg -m 2 {url}")).await
    }

    /// Starts a web server, and waits until it answers.
    pub(super) async fn serve(&self, port: u16) {
        std::fs::write(self.dir.path().join("index.html"), "hello").unwrap();
        let mut child = self.command(&format!("busybox httpd -f -p {port} -h .")).spawn().unwrap();
        self.tasks.lock().spawn(async move { drop(child.wait().await) });
        eventually(async || self.gets(&format!("http://127.0.0.1:{port}/")).await.is_ok()).await;
    }
}

fn wire(fd: OwnedFd) -> Arc<AsyncFd<OwnedFd>> {
    Arc::new(sys::watch(fd).unwrap())
}

/// Frames from one end to the other, until one is gone.
async fn carry(from: Arc<AsyncFd<OwnedFd>>, to: Arc<AsyncFd<OwnedFd>>) {
    let mut frame = vec![0; 70_000];
    loop {
        let Ok(mut ready) = from.readable().await else { return };
        match ready.try_io(|fd| rustix::io::read(fd, &mut frame[..]).map_err(io::Error::from)) {
            Ok(Ok(length)) => drop(rustix::io::write(&*to, &frame[..length])),
            // The tap is gone: nothing more will come.
            Ok(Err(error)) if error.raw_os_error() == Some(libc::EBADFD) => return,
            Ok(Err(_)) => tokio::task::yield_now().await,
            Err(_) => {}
        }
    }
}

/// Waits for a condition. The test as a whole has a time limit.
pub(super) async fn eventually(condition: impl AsyncFn() -> bool) {
    while !condition().await {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
