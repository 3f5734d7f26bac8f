//! Runs the `kubectl` of the PATH as a user would, with a home of its own.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context, Result};
use tempfile::TempDir;
use tokio::io::AsyncWriteExt as _;
use tokio::process::{Child, Command};

use crate::{find_program, patience};

/// A kubectl bound to one kubeconfig; its caches are its own, so a run cannot profit from an earlier one.
#[derive(Debug)]
pub struct Kubectl {
    program: PathBuf,
    kubeconfig: PathBuf,
    home: TempDir,
    env: Vec<(String, String)>,
}

/// What a command said.
#[derive(Debug, Clone)]
pub struct Output {
    pub success: bool,
    pub stdout: String,
    pub stderr: String,
}

impl Output {
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.stdout).unwrap_or(serde_json::Value::Null)
    }
}

impl Kubectl {
    pub fn new(kubeconfig: &Path) -> Result<Self> {
        let program = find_program("kubectl").context("kubectl is not installed (Debian: kubernetes-client)")?;
        let home = tempfile::Builder::new().prefix("croft-kubectl-").tempdir()?;
        Ok(Self { program, kubeconfig: kubeconfig.to_owned(), home, env: Vec::new() })
    }

    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// Sets an environment variable for every later command.
    pub fn env(&mut self, name: &str, value: &str) {
        self.env.push((name.to_owned(), value.to_owned()));
    }

    /// The minor version of kubectl itself; tests ask it where a command is newer than Debian's.
    pub async fn minor_version(&self) -> Result<u32> {
        let out = self.run(&["version", "--client", "-o", "json"]).await?;
        let minor = out.json()["clientVersion"]["minor"].as_str().unwrap_or_default().to_owned();
        Ok(minor.trim_end_matches('+').parse()?)
    }

    pub async fn run(&self, args: &[&str]) -> Result<Output> {
        self.run_with(args, "").await
    }

    /// Runs with `stdin` as its input, whatever the outcome.
    pub async fn run_with(&self, args: &[&str], stdin: &str) -> Result<Output> {
        let mut child = self.command(args).stdin(Stdio::piped()).spawn().context("start kubectl")?;
        let mut input = child.stdin.take().context("stdin is piped")?;
        // A command that does not read its input may be gone already.
        let _ = input.write_all(stdin.as_bytes()).await;
        drop(input);
        let what = || format!("kubectl {}", args.join(" "));
        let out = tokio::time::timeout(patience() * 2, child.wait_with_output()).await.with_context(what)??;
        Ok(Output {
            success: out.status.success(),
            stdout: String::from_utf8_lossy(&out.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&out.stderr).into_owned(),
        })
    }

    /// Runs and panics unless it succeeded.
    #[track_caller]
    pub fn ok<'a>(&'a self, args: &'a [&'a str]) -> impl Future<Output = Output> + 'a {
        self.ok_with(args, "")
    }

    pub async fn ok_with(&self, args: &[&str], stdin: &str) -> Output {
        let out = self.run_with(args, stdin).await.expect("kubectl runs");
        assert!(out.success, "kubectl {}\nstdout: {}\nstderr: {}", args.join(" "), out.stdout, out.stderr);
        out
    }

    /// Runs and panics unless it failed.
    pub async fn fails(&self, args: &[&str], stdin: &str) -> Output {
        let out = self.run_with(args, stdin).await.expect("kubectl runs");
        assert!(!out.success, "kubectl {} should fail\nstdout: {}", args.join(" "), out.stdout);
        out
    }

    /// Starts a command that goes on, such as `get --watch`; its output is piped, and it dies with the handle.
    pub fn start(&self, args: &[&str]) -> Result<Child> {
        self.command(args).stdin(Stdio::null()).spawn().context("start kubectl")
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command
            .args(args)
            .env("KUBECONFIG", &self.kubeconfig)
            .env("HOME", self.home.path())
            .envs(self.env.iter().map(|(name, value)| (name, value)))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        command
    }
}
