//! Real etcd processes on loopback, in temporary directories.

use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use croft_store::{Etcd, EtcdOptions};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};

pub(crate) const PASSWORD: &str = "correct horse";

pub(crate) struct EtcdServer {
    dir: tempfile::TempDir,
    members: Vec<Member>,
    tls: bool,
    auth: bool,
    /// How large its database may become.
    quota_bytes: Option<u64>,
}

struct Member {
    client_port: u16,
    peer_port: u16,
    process: Option<Child>,
}

impl EtcdServer {
    pub(crate) async fn start() -> Self {
        Self::launch(1, false, None).await
    }

    pub(crate) async fn start_members(count: usize) -> Self {
        Self::launch(count, false, None).await
    }

    pub(crate) async fn start_with_quota(bytes: u64) -> Self {
        Self::launch(1, false, Some(bytes)).await
    }

    /// TLS with client certificates, and users.
    pub(crate) async fn start_guarded() -> Self {
        let mut server = Self::launch(1, true, None).await;
        let grant = ["role", "grant-permission", "croft", "--prefix=true", "readwrite", "/croft"];
        let user = format!("croft:{PASSWORD}");
        let steps: [&[&str]; 7] = [
            &["user", "add", "root:root"],
            &["user", "grant-role", "root", "root"],
            &["role", "add", "croft"],
            &grant,
            &["user", "add", &user],
            &["user", "grant-role", "croft", "croft"],
            &["auth", "enable"],
        ];
        for step in steps {
            server.etcdctl(step);
        }
        server.auth = true;
        server
    }

    async fn launch(count: usize, tls: bool, quota_bytes: Option<u64>) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let ports: Vec<u16> = {
            // All at once, so that they differ.
            let listeners: Vec<_> = (0..count * 2).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
            listeners.iter().map(|listener| listener.local_addr().unwrap().port()).collect()
        };
        let members =
            ports.chunks(2).map(|pair| Member { client_port: pair[0], peer_port: pair[1], process: None }).collect();
        let mut server = Self { dir, members, tls, auth: false, quota_bytes };
        if tls {
            server.write_certificates();
        }
        for number in 0..count {
            server.start_member(number);
        }
        server.wait().await;
        server
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn write_certificates(&self) {
        let mut ca = CertificateParams::new(vec![]).unwrap();
        ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let ca = CertifiedIssuer::self_signed(ca, KeyPair::generate().unwrap()).unwrap();
        std::fs::write(self.path("ca.pem"), ca.pem()).unwrap();
        for name in ["server", "client"] {
            let key = KeyPair::generate().unwrap();
            let names = vec!["127.0.0.1".to_owned(), "localhost".to_owned()];
            let certificate = CertificateParams::new(names).unwrap().signed_by(&key, &ca).unwrap();
            std::fs::write(self.path(&format!("{name}.pem")), certificate.pem()).unwrap();
            std::fs::write(self.path(&format!("{name}.key")), key.serialize_pem()).unwrap();
        }
    }

    fn url(&self, number: usize) -> String {
        let scheme = if self.tls { "https" } else { "http" };
        format!("{scheme}://127.0.0.1:{}", self.members[number].client_port)
    }

    fn peer_url(&self, number: usize) -> String {
        format!("http://127.0.0.1:{}", self.members[number].peer_port)
    }

    pub(crate) fn start_member(&mut self, number: usize) {
        let (url, peer) = (self.url(number), self.peer_url(number));
        let cluster: Vec<String> = (0..self.members.len()).map(|n| format!("m{n}={}", self.peer_url(n))).collect();
        let mut command = Command::new("etcd");
        command
            .args(["--name", &format!("m{number}")])
            .arg("--data-dir")
            .arg(self.path(&format!("data{number}")))
            .args(["--listen-client-urls", &url, "--advertise-client-urls", &url])
            .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
            .args(["--initial-cluster", &cluster.join(",")])
            .args(["--log-level", "error"])
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        if let Some(bytes) = self.quota_bytes {
            command.args(["--quota-backend-bytes", &bytes.to_string()]);
        }
        if self.tls {
            command.arg("--client-cert-auth");
            for (flag, file) in
                [("--trusted-ca-file", "ca.pem"), ("--cert-file", "server.pem"), ("--key-file", "server.key")]
            {
                command.arg(flag).arg(self.path(file));
            }
        }
        let process = command.spawn().expect("etcd is needed (Debian: etcd-server)");
        self.members[number].process = Some(process);
    }

    /// SIGKILL.
    pub(crate) fn kill_member(&mut self, number: usize) {
        if let Some(mut process) = self.members[number].process.take() {
            process.kill().unwrap();
            process.wait().unwrap();
        }
    }

    /// SIGSTOP: it keeps its connections and says nothing.
    pub(crate) fn freeze_member(&mut self, number: usize) {
        let process = self.members[number].process.as_ref().expect("it runs");
        rustix::process::kill_process(rustix::process::Pid::from_child(process), rustix::process::Signal::STOP)
            .unwrap();
    }

    pub(crate) fn etcdctl(&self, args: &[&str]) {
        let mut command = Command::new("etcdctl");
        command.env("ETCDCTL_API", "3").args(["--endpoints", &self.url(0)]);
        if self.tls {
            for (flag, file) in [("--cacert", "ca.pem"), ("--cert", "client.pem"), ("--key", "client.key")] {
                command.arg(flag).arg(self.path(file));
            }
        }
        let output = command.args(args).output().expect("etcdctl is needed (Debian: etcd-client)");
        assert!(output.status.success(), "etcdctl {args:?}: {}", String::from_utf8_lossy(&output.stderr));
    }

    pub(crate) fn options(&self) -> EtcdOptions {
        let file = |name: &str| self.tls.then(|| self.path(name));
        EtcdOptions {
            endpoints: (0..self.members.len()).map(|number| self.url(number)).collect(),
            ca: file("ca.pem"),
            cert: file("client.pem"),
            key: file("client.key"),
            username: self.auth.then(|| "croft".to_owned()),
            password: self.auth.then(|| PASSWORD.to_owned()),
            ..EtcdOptions::default()
        }
    }

    /// Until it answers.
    pub(crate) async fn wait(&self) {
        self.wait_for(self.options()).await;
    }

    /// Until this member has found the others.
    pub(crate) async fn wait_for_member(&self, number: usize) {
        self.wait_for(EtcdOptions { endpoints: vec![self.url(number)], ..self.options() }).await;
    }

    async fn wait_for(&self, options: EtcdOptions) {
        let deadline = Instant::now() + Duration::from_mins(1);
        loop {
            match Etcd::connect(options.clone()).await {
                Ok(_) => return,
                Err(err) => assert!(Instant::now() < deadline, "etcd does not start: {err}"),
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

impl Drop for EtcdServer {
    fn drop(&mut self) {
        for number in 0..self.members.len() {
            self.kill_member(number);
        }
    }
}
