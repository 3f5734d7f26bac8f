//! A child process with its log, killed when the guard is dropped.

use std::fs::File;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};

use crate::patience::promptly_within;

/// A running program. Dropping it kills the program and reaps it.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts `command` with both output streams appended to `log`.
    pub fn spawn(name: &str, mut command: Command, log: &Path) -> Result<Self> {
        let out =
            File::options().create(true).append(true).open(log).with_context(|| format!("open {}", log.display()))?;
        command.stdin(Stdio::null()).stdout(out.try_clone()?).stderr(out);
        let child = command.spawn().with_context(|| format!("start {name}: {command:?}"))?;
        Ok(Self { name: name.to_owned(), child, log: log.to_owned() })
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Fails with the end of the log when the program has already ended.
    pub fn check_running(&mut self) -> Result<()> {
        match self.child.try_wait()? {
            None => Ok(()),
            Some(status) => bail!("{} ended with {status}; its log ends:\n{}", self.name, self.log_tail(40)),
        }
    }

    /// SIGKILL, as a power cut would have it: no chance to tidy up.
    pub fn kill(&mut self) -> Result<()> {
        self.child.kill().with_context(|| format!("kill {}", self.name))?;
        self.child.wait()?;
        Ok(())
    }

    /// SIGTERM; gives how the program ended and how long that took, or kills it and fails after `limit`.
    pub async fn terminate(&mut self, limit: Duration) -> Result<(ExitStatus, Duration)> {
        self.signal(Signal::TERM)?;
        let start = Instant::now();
        let ended = promptly_within(limit, async || self.child.try_wait()?.context("still running")).await;
        if let Ok(status) = ended {
            return Ok((status, start.elapsed()));
        }
        self.kill()?;
        bail!("{} was still running {limit:?} after SIGTERM:\n{}", self.name, self.log_tail(40));
    }

    /// SIGTERM, and waits for the end; for programs that are known to go.
    pub fn stop(&mut self) -> Result<ExitStatus> {
        self.signal(Signal::TERM)?;
        self.child.wait().with_context(|| format!("wait for {}", self.name))
    }

    pub fn signal(&self, signal: Signal) -> Result<()> {
        let pid = i32::try_from(self.id()).ok().and_then(Pid::from_raw).context("a process id is positive")?;
        kill_process(pid, signal).with_context(|| format!("signal {}", self.name))
    }

    /// The last `lines` lines of the log.
    pub fn log_tail(&self, lines: usize) -> String {
        let text = std::fs::read(&self.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let all: Vec<&str> = text.lines().collect();
        all[all.len().saturating_sub(lines)..].join("\n")
    }

    /// Resident memory in bytes, from `/proc`.
    pub fn resident_bytes(&self) -> Result<u64> {
        self.status_bytes("VmRSS:")
    }

    /// The most that was ever resident.
    pub fn peak_resident_bytes(&self) -> Result<u64> {
        self.status_bytes("VmHWM:")
    }

    fn status_bytes(&self, field: &str) -> Result<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.id()))?;
        let line = status.lines().find(|l| l.starts_with(field)).with_context(|| format!("no {field} line"))?;
        let kib: u64 = line.split_whitespace().nth(1).with_context(|| format!("no {field} value"))?.parse()?;
        Ok(kib * 1024)
    }

    /// Processor time used so far, user and system, from `/proc`.
    pub fn cpu_time(&self) -> Result<Duration> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.id()))?;
        // The second field is the command in parentheses and may hold spaces: count from behind it.
        let (_, rest) = stat.rsplit_once(')').context("no command in stat")?;
        let ticks = |i: usize| -> Result<u64> { Ok(rest.split_whitespace().nth(i).context("short stat")?.parse()?) };
        // Linux reports these in hundredths of a second on every architecture that we run on.
        Ok(Duration::from_millis((ticks(11)? + ticks(12)?) * 10))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Already ended is fine; there is nobody to report anything else to.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A TCP port of the loopback address that was free a moment ago.
pub fn free_port() -> Result<u16> {
    Ok(TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port())
}

/// The first file called `name` on the PATH or in the directories where Debian puts servers.
pub fn find_program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let system = ["/usr/sbin", "/sbin", "/usr/local/sbin"].map(PathBuf::from);
    std::env::split_paths(&path).chain(system).map(|dir| dir.join(name)).find(|file| file.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> (Process, tempfile::TempDir) {
        let dir = tempfile::tempdir().unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        (Process::spawn("sh", command, &dir.path().join("log")).unwrap(), dir)
    }

    #[test]
    fn an_early_end_is_reported_with_the_log() {
        let (mut process, _dir) = shell("echo out of cheese; exit 3");
        let err = loop {
            if let Err(err) = process.check_running() {
                break err.to_string();
            }
        };
        assert!(err.contains("out of cheese") && err.contains('3'), "{err}");
    }

    #[test]
    fn dropping_kills() {
        let (process, _dir) = shell("exec sleep 1000");
        let proc_dir = PathBuf::from(format!("/proc/{}", process.id()));
        assert!(proc_dir.exists());
        drop(process);
        assert!(!proc_dir.exists());
    }

    #[tokio::test]
    async fn terminate_reports_a_program_that_ignores_it() {
        let (mut process, _dir) = shell("trap '' TERM; echo deaf; while :; do sleep 0.01; done");
        crate::eventually("the trap is set", async || if process.log_tail(1) == "deaf" { Ok(()) } else { Err("no") })
            .await;
        let err = process.terminate(Duration::from_millis(50)).await.unwrap_err().to_string();
        assert!(err.contains("still running"), "{err}");
        assert!(process.check_running().is_err(), "killed in the end");
    }
}
