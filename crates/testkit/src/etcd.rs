//! Debian's etcd in a temporary directory.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};
use tempfile::TempDir;

use crate::{Authority, Identity, Process, eventually_within, find_program, free_port, patience};

/// A single-member etcd. Dropping it stops it and removes its data.
#[derive(Debug)]
pub struct Etcd {
    pub process: Process,
    /// What `--etcd-endpoints` takes.
    pub url: String,
    _dir: TempDir,
}

impl Etcd {
    /// etcd over plain HTTP on the loopback.
    pub async fn start() -> Result<Self> {
        Self::launch(Self::program()?, None).await
    }

    /// The etcd for the reference server, which uses more of etcd than Debian's offers (`KUBE_ETCD` names another).
    pub(crate) async fn start_for_reference() -> Result<Self> {
        let named = std::env::var_os("KUBE_ETCD").filter(|v| !v.is_empty()).map(PathBuf::from);
        Self::launch(named.map_or_else(Self::program, Ok)?, None).await
    }

    /// etcd over TLS with a certificate of `authority`; clients need no certificate.
    pub async fn start_tls(authority: &Authority) -> Result<Self> {
        Self::launch(Self::program()?, Some(authority.server()?)).await
    }

    fn program() -> Result<PathBuf> {
        find_program("etcd").context("etcd is not installed (Debian: etcd-server)")
    }

    async fn launch(program: PathBuf, tls: Option<Identity>) -> Result<Self> {
        let dir = tempfile::Builder::new().prefix("croft-etcd-").tempdir()?;
        let (client, peer) = (free_port()?, free_port()?);
        let scheme = if tls.is_some() { "https" } else { "http" };
        let url = format!("{scheme}://127.0.0.1:{client}");
        let peer_url = format!("http://127.0.0.1:{peer}");
        let mut command = Command::new(program);
        command
            .arg("--data-dir")
            .arg(dir.path().join("data"))
            .args(["--name", "test", "--listen-client-urls", &url, "--advertise-client-urls", &url])
            .args(["--listen-peer-urls", &peer_url, "--initial-advertise-peer-urls", &peer_url])
            .args(["--initial-cluster", &format!("test={peer_url}"), "--log-level", "warn"])
            .args(["--max-txn-ops", "10000", "--max-request-bytes", "8388608"]);
        if let Some(identity) = tls {
            let (cert, key) = (dir.path().join("tls.crt"), dir.path().join("tls.key"));
            std::fs::write(&cert, identity.cert_pem)?;
            std::fs::write(&key, identity.key_pem)?;
            command.arg("--cert-file").arg(cert).arg("--key-file").arg(key);
        }
        let mut process = Process::spawn("etcd", command, &dir.path().join("log"))?;
        // The client port opens only once the member has elected itself.
        eventually_within(patience(), async || {
            process.check_running()?;
            Ok::<_, anyhow::Error>(tokio::net::TcpStream::connect(("127.0.0.1", client)).await?)
        })
        .await
        .context("etcd does not answer")?;
        Ok(Self { process, url, _dir: dir })
    }
}
