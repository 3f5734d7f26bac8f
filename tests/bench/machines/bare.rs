//! QEMU alone: the same machine, started by hand.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use croft_e2e::machines::{BOOT, Terminal};
use croft_testkit::eventually_within;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
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

/// A root disk for the small guest, as plain as can be.
pub(super) async fn copy_of(image: &Path, dir: &Path) -> Result<PathBuf> {
    let disk = dir.join("root.raw");
    let status = Command::new("qemu-img").args(["convert", "-O", "raw"]).arg(image).arg(&disk).status().await?;
    if !status.success() {
        bail!("qemu-img convert: {status}");
    }
    Ok(disk)
}

/// A command line of Croft's, as somebody would type it: files and sockets by their names instead of descriptors, QEMU's own
/// network instead of a tap.
pub(super) fn typed(args: &[String], disks: &[&Path], serial: &str, dir: &Path) -> Vec<String> {
    let mut typed = Vec::new();
    let mut args = args.iter();
    while let Some(flag) = args.next() {
        let mut next = || args.next().cloned().unwrap_or_default();
        let value = match flag.as_str() {
            "-S" => continue,
            "-add-fd" | "-mon" => {
                next();
                continue;
            }
            "-chardev" => match next() {
                device if device.contains("id=serial") => serial.replacen(',', ",id=serial,", 1),
                device if device.contains("id=agent") => {
                    format!("socket,id=agent,path={}/agent,server=on,wait=off", dir.display())
                }
                _ => continue,
            },
            "-netdev" => {
                let netdev: serde_json::Value = serde_json::from_str(&next()).unwrap_or_default();
                serde_json::json!({"type": "user", "id": netdev["id"]}).to_string()
            }
            flag if flag.starts_with('-') => next(),
            program => {
                typed.push(program.to_owned());
                continue;
            }
        };
        let named = disks.iter().zip(1..).fold(value, |value, (disk, set)| {
            value.replace(&format!("\"/dev/fdset/{set}\""), &format!("\"{}\"", disk.display()))
        });
        typed.extend([flag.clone(), named]);
    }
    typed
}

/// Killed when it is dropped.
pub(super) fn start(args: &[String]) -> Result<Child> {
    let (program, args) = args.split_first().context("no command line")?;
    let mut command = Command::new(program);
    command.args(args).stdin(Stdio::null()).stdout(Stdio::null()).kill_on_drop(true);
    command.spawn().context("start QEMU")
}

/// A guest's serial console behind a socket.
pub(super) struct Line {
    stream: UnixStream,
    pending: Vec<u8>,
}

impl Line {
    pub(super) async fn connect(socket: &Path) -> Result<Self> {
        let stream = eventually_within(BOOT, async || UnixStream::connect(socket).await).await?;
        Ok(Self { stream, pending: Vec::new() })
    }
}

impl Terminal for Line {
    async fn send(&mut self, bytes: &[u8]) -> Result<()> {
        Ok(self.stream.write_all(bytes).await?)
    }

    async fn expect(&mut self, text: &str, limit: Duration) -> Result<String> {
        let found = async {
            loop {
                let at = self.pending.windows(text.len()).position(|window| window == text.as_bytes());
                if let Some(at) = at {
                    let seen: Vec<u8> = self.pending.drain(..at + text.len()).collect();
                    return anyhow::Ok(String::from_utf8_lossy(&seen).into_owned());
                }
                if self.stream.read_buf(&mut self.pending).await? == 0 {
                    bail!("QEMU ended");
                }
            }
        };
        tokio::time::timeout(limit, found).await.with_context(|| format!("waiting for {text:?}"))?
    }
}
