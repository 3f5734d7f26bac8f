//! The real `croft server` in a temporary directory.

use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use tempfile::TempDir;

use crate::patience::promptly_within;
use crate::{Endpoint, Etcd, Host, Process, patience};

/// What servers of one cluster have in common, besides their store.
const SHARED: [&str; 4] = ["pki/ca.crt", "pki/ca.key", "pki/sa.key", "encryption.key"];

/// Where Croft keeps its state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreKind {
    Embedded,
    Etcd,
}

/// A running Croft server. Dropping it kills it and removes its data.
#[derive(Debug)]
pub struct Croft {
    process: Process,
    endpoint: Endpoint,
    binary: PathBuf,
    backing: Backing,
    /// What starts the program, if it is not started directly.
    wrapper: Vec<String>,
    extra_args: Vec<String>,
    started_in: Duration,
    node: Option<NodeDirs>,
    dir: TempDir,
}

/// Its store, kept alive as long as it is.
#[derive(Debug)]
enum Backing {
    Embedded,
    Own(Etcd),
    /// Somebody else's etcd, as `--etcd-endpoints` takes it.
    Shared(String),
}

/// What a node leaves behind when it is killed, and how to be rid of it.
#[derive(Debug)]
struct NodeDirs {
    run_dir: TempDir,
    data_dir: PathBuf,
}

impl Drop for NodeDirs {
    fn drop(&mut self) {
        // Guests outlive the server by design, and so do its network and its mounts.
        let Ok(binary) = binary() else { return };
        let mut reset = Command::new(binary);
        reset
            .args(["node", "reset", "--yes", "--data-dir"])
            .arg(&self.data_dir)
            .arg("--run-dir")
            .arg(self.run_dir.path());
        // A test that fails here has failed before; what it left is seen by the next.
        let _ = reset.output();
    }
}

impl Croft {
    pub async fn start(store: StoreKind) -> Result<Self> {
        Self::start_with(store, &[]).await
    }

    /// The same with more arguments for `croft server`. It runs no virtual machines.
    pub async fn start_with(store: StoreKind, extra_args: &[&str]) -> Result<Self> {
        Self::start_under(store, &[], extra_args).await
    }

    /// The same, started by another program, which gets the command line as its last arguments and must become it.
    pub async fn start_under(store: StoreKind, wrapper: &[&str], extra_args: &[&str]) -> Result<Self> {
        let wrapper = wrapper.iter().map(|arg| (*arg).to_owned()).collect();
        let args: Vec<String> =
            extra_args.iter().map(|arg| (*arg).to_owned()).chain(["--no-node".to_owned()]).collect();
        Self::launch(Backing::start(store).await?, wrapper, "127.0.0.1", args, tempdir()?, None).await
    }

    /// A server on the data that is in the directory already. It runs no virtual machines.
    pub async fn start_in(dir: TempDir) -> Result<Self> {
        let backing = Backing::start(StoreKind::Embedded).await?;
        Self::launch(backing, Vec::new(), "127.0.0.1", vec!["--no-node".to_owned()], dir, None).await
    }

    /// A server on another host, with its state in the etcd that answers at `endpoints`. With `first`, it is one more server of
    /// that one's cluster. It runs no virtual machines.
    pub async fn start_on(host: &Host, endpoints: &str, first: Option<&Self>) -> Result<Self> {
        let dir = first.map_or_else(tempdir, Self::dir_of_another)?;
        let backing = Backing::Shared(endpoints.to_owned());
        Self::launch(backing, host.wrapper(), &host.address, vec!["--no-node".to_owned()], dir, None).await
    }

    /// One more server of a cluster whose first one was started with an etcd of its own, which must outlive it.
    pub async fn start_beside(first: &Self) -> Result<Self> {
        let Backing::Own(etcd) = &first.backing else { bail!("the first server has no etcd of its own") };
        let (backing, dir) = (Backing::Shared(etcd.url.clone()), first.dir_of_another()?);
        Self::launch(backing, Vec::new(), "127.0.0.1", vec!["--no-node".to_owned()], dir, None).await
    }

    /// A data directory with what the servers of one cluster have in common.
    fn dir_of_another(&self) -> Result<TempDir> {
        let dir = tempdir()?;
        std::fs::create_dir(dir.path().join("pki"))?;
        for name in SHARED {
            std::fs::copy(self.data_dir().join(name), dir.path().join(name)).context(name)?;
        }
        Ok(dir)
    }

    /// A server that is a node too. Its guests are killed when it is dropped.
    pub async fn start_node(store: StoreKind, extra_args: &[&str]) -> Result<Self> {
        Self::start_node_under(store, &[], extra_args).await
    }

    /// The same, started by another program, which gets the command line as its last arguments and must become it.
    pub async fn start_node_under(store: StoreKind, wrapper: &[&str], extra_args: &[&str]) -> Result<Self> {
        let wrapper = wrapper.iter().map(|arg| (*arg).to_owned()).collect();
        let dir = tempdir()?;
        // Sockets need a short path.
        let run_dir = tempfile::Builder::new().prefix("croft-").tempdir_in("/tmp")?;
        let mut args: Vec<String> = extra_args.iter().map(|arg| (*arg).to_owned()).collect();
        args.extend(["--node-listen=127.0.0.1:0".to_owned(), format!("--run-dir={}", run_dir.path().display())]);
        let node = NodeDirs { run_dir, data_dir: dir.path().to_owned() };
        Self::launch(Backing::start(store).await?, wrapper, "127.0.0.1", args, dir, Some(node)).await
    }

    async fn launch(
        backing: Backing,
        wrapper: Vec<String>,
        address: &str,
        extra_args: Vec<String>,
        dir: TempDir,
        node: Option<NodeDirs>,
    ) -> Result<Self> {
        let binary = binary()?;
        let start = Instant::now();
        let mut process = spawn(&wrapper, &binary, dir.path(), &format!("{address}:0"), &backing, &extra_args)?;
        let endpoint = wait_ready(&mut process, dir.path()).await?;
        let started_in = start.elapsed();
        if node.is_some() {
            wait_node(&mut process, &endpoint).await?;
        }
        Ok(Self { process, endpoint, binary, backing, wrapper, extra_args, started_in, node, dir })
    }

    /// Kills the server if it still runs and starts it again on the same data and address.
    pub async fn restart(&mut self) -> Result<()> {
        if self.process.check_running().is_ok() {
            self.process.kill()?;
        }
        let address = self.endpoint.address()?.to_string();
        let start = Instant::now();
        self.process = spawn(&self.wrapper, &self.binary, self.dir.path(), &address, &self.backing, &self.extra_args)?;
        self.endpoint = wait_ready(&mut self.process, self.dir.path()).await?;
        self.started_in = start.elapsed();
        Ok(())
    }

    /// The same with other arguments than before. It runs no virtual machines.
    pub async fn restart_with(&mut self, extra_args: &[&str]) -> Result<()> {
        let args = extra_args.iter().map(|arg| (*arg).to_owned());
        self.extra_args = args.chain(["--no-node".to_owned()]).collect();
        self.restart().await
    }

    /// SIGKILL.
    pub fn kill(&mut self) -> Result<()> {
        self.process.kill()
    }

    /// SIGTERM; gives how long the end took.
    pub async fn terminate(&mut self, limit: Duration) -> Result<Duration> {
        let (status, took) = self.process.terminate(limit).await?;
        if !status.success() {
            bail!("croft ended with {status} after SIGTERM:\n{}", self.process.log_tail(40));
        }
        Ok(took)
    }

    pub fn process(&self) -> &Process {
        &self.process
    }

    /// The etcd that it was started with, to be ill-treated.
    pub fn etcd(&mut self) -> Option<&mut Etcd> {
        match &mut self.backing {
            Backing::Own(etcd) => Some(etcd),
            Backing::Embedded | Backing::Shared(_) => None,
        }
    }

    pub fn data_dir(&self) -> &Path {
        self.dir.path()
    }

    /// Where the sockets of guests are, if this is a node.
    pub fn run_dir(&self) -> Option<&Path> {
        self.node.as_ref().map(|node| node.run_dir.path())
    }

    /// From starting the process to the first answer to an authenticated request.
    pub fn started_in(&self) -> Duration {
        self.started_in
    }
}

impl Backing {
    async fn start(store: StoreKind) -> Result<Self> {
        Ok(match store {
            StoreKind::Embedded => Self::Embedded,
            StoreKind::Etcd => Self::Own(Etcd::start().await?),
        })
    }
}

impl Deref for Croft {
    type Target = Endpoint;

    fn deref(&self) -> &Endpoint {
        &self.endpoint
    }
}

fn tempdir() -> Result<TempDir> {
    Ok(tempfile::Builder::new().prefix("croft-test-").tempdir()?)
}

/// The program under test: `CROFT_BIN`, or the binary of the workspace's target directory.
pub fn binary() -> Result<PathBuf> {
    if let Some(path) = std::env::var_os("CROFT_BIN") {
        return Ok(PathBuf::from(path));
    }
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).context("crates/testkit has a root")?;
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| workspace.join("target"), PathBuf::from);
    let profile = if cfg!(debug_assertions) { "debug" } else { "release" };
    let path = target.join(profile).join("croft");
    if !path.is_file() {
        bail!("no croft binary at {}: build it (`cargo build`) or set CROFT_BIN", path.display());
    }
    Ok(path)
}

fn spawn(
    wrapper: &[String],
    binary: &Path,
    dir: &Path,
    listen: &str,
    backing: &Backing,
    extra: &[String],
) -> Result<Process> {
    let mut command = match wrapper.split_first() {
        None => Command::new(binary),
        Some((program, args)) => {
            let mut command = Command::new(program);
            command.args(args).arg(binary);
            command
        }
    };
    command.arg("server").arg("--data-dir").arg(dir).args(["--listen", listen]);
    match backing {
        // A test that says where itself knows better.
        Backing::Embedded if extra.iter().any(|arg| arg == "--store") => &mut command,
        Backing::Embedded => command.args(["--store", "embedded"]),
        Backing::Own(etcd) => command.args(["--store", "etcd", "--etcd-endpoints", &etcd.url]),
        Backing::Shared(endpoints) => command.args(["--store", "etcd", "--etcd-endpoints", endpoints]),
    };
    command.args(extra);
    Process::spawn("croft", command, &dir.join("test.log"))
}

async fn wait_ready(process: &mut Process, dir: &Path) -> Result<Endpoint> {
    let kubeconfig = dir.join("kubeconfig");
    let answered = promptly_within(patience(), async || {
        // A server that has ended will not become ready: that is an outcome, not a reason to go on waiting.
        if let Err(ended) = process.check_running() {
            return Ok(Err(ended));
        }
        let endpoint = Endpoint::from_kubeconfig(&kubeconfig)?;
        let client = endpoint.client()?;
        let ready = client.get("/readyz").await?;
        if ready.status != 200 {
            bail!("/readyz answers {}: {}", ready.status, ready.text());
        }
        client.get("/api/v1/namespaces").await?.ok()?;
        Ok(Ok(endpoint))
    });
    answered.await.flatten().with_context(|| format!("croft is not ready; its log ends:\n{}", process.log_tail(40)))
}

/// The server answers before its agent has said what the node has.
async fn wait_node(process: &mut Process, endpoint: &Endpoint) -> Result<()> {
    let client = endpoint.client()?;
    let registered = promptly_within(patience(), async || {
        let nodes = client.get("/api/v1/nodes").await?.ok()?;
        if nodes["items"][0]["status"]["capacity"].is_null() {
            bail!("no node has a capacity");
        }
        Ok(())
    });
    registered.await.with_context(|| format!("croft is no node; its log ends:\n{}", process.log_tail(40)))
}
