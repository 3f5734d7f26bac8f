//! QEMU alone: the same machine, started by hand.

use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixListener;
use tokio::process::{Child, Command};

use super::pss;

/// A machine as small as the ones that Croft is measured with.
struct Bare {
    // Killed when it is dropped.
    process: Child,
    _dir: TempDir,
}

impl Bare {
    /// Starts it and lets it run, as whoever drives it over QMP would.
    async fn start() -> Result<Self> {
        let dir = tempfile::tempdir()?;
        let socket = dir.path().join("qmp");
        let listener = UnixListener::bind(&socket)?;
        let process = command(&socket).spawn().context("start qemu-system-x86_64")?;
        let (connection, _) = listener.accept().await?;
        let (read, mut write) = connection.into_split();
        let mut lines = BufReader::new(read).lines();
        lines.next_line().await?.context("no greeting")?;
        for order in [r#"{"execute":"qmp_capabilities"}"#, r#"{"execute":"cont"}"#, r#"{"execute":"query-status"}"#] {
            write.write_all(order.as_bytes()).await?;
            loop {
                let line = lines.next_line().await?.context("QEMU ended")?;
                if line.contains("\"error\"") {
                    bail!("{order}: {line}");
                }
                if line.contains("\"return\"") {
                    break;
                }
            }
        }
        Ok(Self { process, _dir: dir })
    }
}

fn command(socket: &Path) -> Command {
    let mut command = Command::new("qemu-system-x86_64");
    command
        .args(["-nodefaults", "-no-user-config", "-display", "none", "-S", "-m", "64", "-machine", "q35"])
        .args(["-accel", "tcg,tb-size=8", "-qmp"])
        .arg(format!("unix:{}", socket.display()))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .kill_on_drop(true);
    command
}

pub(super) async fn exec_to_running() -> Result<Duration> {
    let start = Instant::now();
    let mut machine = Bare::start().await?;
    let took = start.elapsed();
    machine.process.kill().await?;
    Ok(took)
}

/// What each of several weighs.
pub(super) async fn memory(count: usize) -> Result<u64> {
    let mut machines = Vec::new();
    for _ in 0..count {
        machines.push(Bare::start().await?);
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    let mut sum = 0;
    for machine in &machines {
        sum += pss(machine.process.id().context("it runs")?)?;
    }
    Ok(sum / u64::try_from(count)?)
}
