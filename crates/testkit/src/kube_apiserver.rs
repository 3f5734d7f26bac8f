//! The reference: a real kube-apiserver (and, if there is one, kube-controller-manager) beside a real etcd.

use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use tempfile::TempDir;

use crate::patience::promptly_within;
use crate::{Authority, Endpoint, Etcd, Process, free_port, patience};

/// A running kube-apiserver. Dropping it stops it and its companions.
#[derive(Debug)]
pub struct KubeApiserver {
    pub process: Process,
    pub etcd: Etcd,
    pub controllers: Option<Process>,
    endpoint: Endpoint,
    started_in: Duration,
    _dir: TempDir,
}

impl KubeApiserver {
    /// The program to run, when `KUBE_APISERVER` names one.
    pub fn program() -> Option<PathBuf> {
        std::env::var_os("KUBE_APISERVER").filter(|v| !v.is_empty()).map(PathBuf::from)
    }

    /// Starts the server that `KUBE_APISERVER` names. With `KUBE_CONTROLLER_MANAGER` (or a program of that name
    /// beside it) garbage collection, the life of namespaces and token Secrets work too.
    pub async fn start() -> Result<Self> {
        let program = Self::program().context("KUBE_APISERVER is not set")?;
        let dir = tempfile::Builder::new().prefix("croft-reference-").tempdir()?;
        let authority = Authority::new("reference")?;
        write_pki(dir.path(), &authority)?;
        let start = Instant::now();
        let etcd = Etcd::start_for_reference().await?;
        let port = free_port()?;
        let mut process = spawn_apiserver(&program, dir.path(), port, &etcd)?;
        let kubeconfig = dir.path().join("kubeconfig");
        let url = format!("https://127.0.0.1:{port}");
        let admin = authority.client("admin", &["system:masters"])?;
        Endpoint::write_kubeconfig(&kubeconfig, &url, &authority.cert_pem(), &admin)?;
        let endpoint = Endpoint::from_kubeconfig(&kubeconfig)?;
        wait_ready(&mut process, &endpoint).await?;
        let started_in = start.elapsed();
        let controllers = controller_manager(&program).map(|p| spawn_controllers(&p, dir.path())).transpose()?;
        Ok(Self { process, etcd, controllers, endpoint, started_in, _dir: dir })
    }

    /// From starting etcd to the first answer to an authenticated request.
    pub fn started_in(&self) -> Duration {
        self.started_in
    }

    pub fn has_controllers(&self) -> bool {
        self.controllers.is_some()
    }
}

impl Deref for KubeApiserver {
    type Target = Endpoint;

    fn deref(&self) -> &Endpoint {
        &self.endpoint
    }
}

fn controller_manager(apiserver: &Path) -> Option<PathBuf> {
    let named = std::env::var_os("KUBE_CONTROLLER_MANAGER").map(PathBuf::from);
    named.or_else(|| Some(apiserver.with_file_name("kube-controller-manager"))).filter(|p| p.is_file())
}

fn write_pki(dir: &Path, authority: &Authority) -> Result<()> {
    let server = authority.server()?;
    // Service account tokens need a key pair of their own, given to the server as a certificate.
    let accounts = authority.client("service-accounts", &[])?;
    std::fs::write(dir.join("ca.crt"), authority.cert_pem())?;
    std::fs::write(dir.join("server.crt"), server.cert_pem)?;
    std::fs::write(dir.join("server.key"), server.key_pem)?;
    std::fs::write(dir.join("accounts.crt"), accounts.cert_pem)?;
    std::fs::write(dir.join("accounts.key"), accounts.key_pem)?;
    Ok(())
}

fn spawn_apiserver(program: &Path, dir: &Path, port: u16, etcd: &Etcd) -> Result<Process> {
    let mut command = Command::new(program);
    command
        .args(["--etcd-servers", &etcd.url, "--bind-address", "127.0.0.1"])
        .args(["--secure-port", &port.to_string(), "--authorization-mode", "RBAC"])
        .args([
            "--service-cluster-ip-range",
            "10.53.0.0/16",
            "--service-account-issuer",
            "https://kubernetes.default.svc",
        ])
        .args(["--api-audiences", "https://kubernetes.default.svc"])
        // Pods are only stored here, as in Croft: nothing mounts a service account into them.
        .args(["--disable-admission-plugins", "ServiceAccount"])
        .arg("--client-ca-file")
        .arg(dir.join("ca.crt"))
        .arg("--tls-cert-file")
        .arg(dir.join("server.crt"))
        .arg("--tls-private-key-file")
        .arg(dir.join("server.key"))
        .arg("--service-account-key-file")
        .arg(dir.join("accounts.crt"))
        .arg("--service-account-signing-key-file")
        .arg(dir.join("accounts.key"))
        .arg("--cert-dir")
        .arg(dir.join("certs"));
    Process::spawn("kube-apiserver", command, &dir.join("apiserver.log"))
}

fn spawn_controllers(program: &Path, dir: &Path) -> Result<Process> {
    let mut command = Command::new(program);
    command
        .args(["--leader-elect=false", "--use-service-account-credentials=false", "--secure-port", "0"])
        .args(["--controllers", CONTROLLERS, "--concurrent-gc-syncs", "4"])
        .arg("--kubeconfig")
        .arg(dir.join("kubeconfig"))
        .arg("--root-ca-file")
        .arg(dir.join("ca.crt"))
        .arg("--service-account-private-key-file")
        .arg(dir.join("accounts.key"));
    Process::spawn("kube-controller-manager", command, &dir.join("controllers.log"))
}

/// Only what Croft has too: the others would act on Deployments and the like, which Croft stores and leaves alone.
const CONTROLLERS: &str = "garbage-collector-controller,namespace-controller,serviceaccount-controller,\
serviceaccount-token-controller,clusterrole-aggregation-controller,root-ca-certificate-publisher-controller";

async fn wait_ready(process: &mut Process, endpoint: &Endpoint) -> Result<()> {
    // It needs seconds where Croft needs a fraction of one, and much longer on a busy machine.
    let limit = patience().max(Duration::from_mins(2));
    let client = endpoint.client()?;
    let answered = promptly_within(limit, async || {
        // A server that has ended will not become ready: that is an outcome, not a reason to go on waiting.
        if let Err(ended) = process.check_running() {
            return Ok(Err(ended));
        }
        let ready = client.get("/readyz").await?;
        if ready.status != 200 {
            bail!("/readyz answers {}: {}", ready.status, ready.text());
        }
        client.get("/api/v1/namespaces/default").await?.ok()?;
        Ok(Ok(()))
    });
    answered
        .await
        .flatten()
        .with_context(|| format!("kube-apiserver is not ready; its log ends:\n{}", process.log_tail(40)))
}
