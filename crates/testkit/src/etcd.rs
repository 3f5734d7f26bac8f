//! Debian's etcd in a temporary directory.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
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
    program: PathBuf,
    args: Vec<OsString>,
    dir: TempDir,
}

impl Etcd {
    /// etcd over plain HTTP on the loopback.
    pub async fn start() -> Result<Self> {
        Self::start_with(&[]).await
    }

    /// The same with more arguments.
    pub async fn start_with(extra_args: &[&str]) -> Result<Self> {
        Self::launch(Self::program()?, None, extra_args).await
    }

    /// The etcd for the reference server, which uses more of etcd than Debian's offers (`KUBE_ETCD` names another).
    pub(crate) async fn start_for_reference() -> Result<Self> {
        let named = std::env::var_os("KUBE_ETCD").filter(|v| !v.is_empty()).map(PathBuf::from);
        Self::launch(named.map_or_else(Self::program, Ok)?, None, &[]).await
    }

    /// etcd over TLS with a certificate of `authority`; clients need no certificate.
    pub async fn start_tls(authority: &Authority) -> Result<Self> {
        Self::launch(Self::program()?, Some(authority.server()?), &[]).await
    }

    fn program() -> Result<PathBuf> {
        find_program("etcd").context("etcd is not installed (Debian: etcd-server)")
    }

    async fn launch(program: PathBuf, tls: Option<Identity>, extra_args: &[&str]) -> Result<Self> {
        let dir = tempfile::Builder::new().prefix("croft-etcd-").tempdir()?;
        let (client, peer) = (free_port()?, free_port()?);
        let scheme = if tls.is_some() { "https" } else { "http" };
        let url = format!("{scheme}://127.0.0.1:{client}");
        let peer_url = format!("http://127.0.0.1:{peer}");
        let mut args: Vec<OsString> = vec!["--data-dir".into(), dir.path().join("data").into()];
        let peers = format!("test={peer_url}");
        args.extend(["--name", "test", "--listen-client-urls", &url, "--advertise-client-urls", &url].map(Into::into));
        args.extend(["--listen-peer-urls", &peer_url, "--initial-advertise-peer-urls", &peer_url].map(Into::into));
        args.extend(["--initial-cluster", &peers, "--log-level", "warn"].map(Into::into));
        args.extend(["--max-txn-ops", "10000", "--max-request-bytes", "8388608"].map(Into::into));
        args.extend(extra_args.iter().map(Into::into));
        if let Some(identity) = tls {
            let (cert, key) = (dir.path().join("tls.crt"), dir.path().join("tls.key"));
            std::fs::write(&cert, identity.cert_pem)?;
            std::fs::write(&key, identity.key_pem)?;
            args.extend(["--cert-file".into(), cert.into(), "--key-file".into(), key.into()]);
        }
        let process = spawn(&program, &args, &dir)?;
        let mut etcd = Self { process, url, program, args, dir };
        etcd.wait().await?;
        Ok(etcd)
    }

    /// Kills it if it still runs and starts it again on the same data and address.
    pub async fn restart(&mut self) -> Result<()> {
        if self.process.check_running().is_ok() {
            self.process.kill()?;
        }
        self.process = spawn(&self.program, &self.args, &self.dir)?;
        self.wait().await
    }

    /// Where its files are.
    pub fn data_dir(&self) -> &Path {
        self.dir.path()
    }

    /// The client port opens only once the member has elected itself.
    async fn wait(&mut self) -> Result<()> {
        let (_, address) = self.url.split_once("://").context("a URL has a scheme")?;
        let address = address.to_owned();
        let connected = eventually_within(patience(), async || {
            self.process.check_running()?;
            Ok::<_, anyhow::Error>(tokio::net::TcpStream::connect(&address).await?)
        });
        connected.await.map(drop).context("etcd does not answer")
    }
}

fn spawn(program: &Path, args: &[OsString], dir: &TempDir) -> Result<Process> {
    let mut command = Command::new(program);
    command.args(args);
    Process::spawn("etcd", command, &dir.path().join("log"))
}
