//! Runs the measurements that are made inside a browser: `ui/bench`.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use croft_testkit::Croft;
use serde::de::DeserializeOwned;
use tempfile::TempDir;
use tokio::process::Command;

use crate::nginx::Nginx;

/// One that nobody has to change at the first sign-in, as the generated one.
const PASSWORD: &str = "correct horse battery staple";

#[derive(Debug)]
pub(super) struct Browser {
    dir: TempDir,
}

impl Browser {
    pub(super) fn new() -> Result<Self> {
        let dir = tempfile::tempdir()?;
        std::fs::write(dir.path().join("password"), PASSWORD)?;
        Ok(Self { dir })
    }

    /// What the server must be started with.
    pub(super) fn password_option(&self) -> String {
        format!("--admin-password-file={}", self.dir.path().join("password").display())
    }

    /// Has the page of a server measured, and gives what was seen.
    pub(super) async fn run<T: DeserializeOwned>(
        &self,
        croft: &Croft,
        rival: Option<&Nginx>,
        args: &[&str],
        limit: Duration,
    ) -> Result<T> {
        let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("tests/ is in the workspace")?;
        let mut command = Command::new(workspace.join("scripts/ui"));
        command.arg("bench").args(args);
        command.env("CROFT_BENCH_URL", &croft.url).env("CROFT_BENCH_PASSWORD", PASSWORD);
        if let Some(rival) = rival {
            command.env("CROFT_BENCH_RIVAL_URL", &rival.url);
        }
        command.stdin(Stdio::null()).stderr(Stdio::inherit()).kill_on_drop(true);
        let output = tokio::time::timeout(limit, command.output()).await.context("the browser takes too long")??;
        ensure!(output.status.success(), "ui/bench {args:?}: {}", output.status);
        let text = String::from_utf8(output.stdout)?;
        let figures = text.lines().last().context("ui/bench said nothing")?;
        serde_json::from_str(figures).with_context(|| format!("ui/bench {args:?} said {figures}"))
    }
}

/// The browser's milliseconds.
pub(super) fn millis(samples: Vec<f64>) -> Vec<Duration> {
    samples.into_iter().map(|ms| Duration::from_secs_f64(ms.max(0.0) / 1000.0)).collect()
}
