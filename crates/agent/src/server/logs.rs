//! What a node has to show to those who look for a fault: logs of its machines, and facts about itself.
//!
//! `GET /logs` lists the files, `GET /logs/<name>` gives one; `?tailBytes=N` its end. Only what is listed is given.

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use http::Response;
use rustix::fs::OFlags;
use serde_json::json;
use tokio::process::Command;

use super::answer::{self, Body, Failure};
use super::route::value;
use crate::guest::Guests;

/// However much somebody asks for.
const MAX_TAIL: u64 = 16 << 20;
const DEFAULT_TAIL: u64 = 1 << 20;
/// A command that hangs on a broken disk is not waited for.
const COMMAND: Duration = Duration::from_secs(10);
const MACHINE_LOGS: &[&str] = &["qemu.log", "console.log", "console.log.1", "swtpm.log"];

const FILES: &[(&str, &str)] = &[
    ("os-release", "/etc/os-release"),
    ("version", "/proc/version"),
    ("cpuinfo", "/proc/cpuinfo"),
    ("meminfo", "/proc/meminfo"),
    ("loadavg", "/proc/loadavg"),
    ("mounts", "/proc/self/mounts"),
    ("modules", "/proc/modules"),
    ("interfaces", "/proc/net/dev"),
    ("pressure-cpu", "/proc/pressure/cpu"),
    ("pressure-memory", "/proc/pressure/memory"),
    ("pressure-io", "/proc/pressure/io"),
];
/// Names of processes without their arguments, in which there may be secrets.
const COMMANDS: &[(&str, &[&str])] = &[
    ("addresses", &["ip", "-details", "address"]),
    ("routes", &["ip", "route", "show", "table", "all"]),
    ("nftables", &["nft", "list", "ruleset"]),
    ("file-systems", &["df", "-hT"]),
    ("block-devices", &["lsblk", "-a", "-o", "NAME,TYPE,SIZE,FSTYPE,MOUNTPOINTS,MODEL,STATE"]),
    ("processes", &["ps", "-eo", "pid,ppid,user,stat,rss,etime,comm"]),
    ("kernel-log", &["dmesg"]),
    ("journal", &["journalctl", "--no-pager", "-u", "croft", "-n", "20000"]),
    ("qemu-version", &["qemu-system-x86_64", "--version"]),
];

/// Where the logs are.
#[derive(Clone, Debug, Default)]
pub(crate) struct Logs {
    /// Below it, each machine has a directory.
    pub(crate) machines_dir: PathBuf,
}

#[derive(Debug)]
enum Origin {
    /// A file of a machine, whose user may have put anything in its place.
    Machine(PathBuf),
    Host(&'static str),
    Command(&'static [&'static str]),
}

impl Logs {
    pub(super) async fn answer(&self, guests: &Guests, name: &str, query: &str) -> Result<Response<Body>, Failure> {
        let files = self.files(guests);
        if name.is_empty() {
            let names: Vec<_> = files.iter().map(|(name, _)| json!({ "name": name })).collect();
            return answer::json_of(&json!({ "files": names }));
        }
        let not_there = || Failure::not_found(format!("there is no log {name:?}"));
        let (_, origin) = files.into_iter().find(|(known, _)| known == name).ok_or_else(not_there)?;
        let tail = match value(query, "tailBytes") {
            None => DEFAULT_TAIL,
            Some(text) => {
                let wrong = |_| Failure::bad_request(format!("tailBytes: {text:?} is not a number"));
                text.parse::<u64>().map_err(wrong)?.min(MAX_TAIL)
            }
        };
        Ok(answer::text(read(origin, tail).await?))
    }

    fn files(&self, guests: &Guests) -> Vec<(String, Origin)> {
        let facts = FILES.iter().map(|(name, path)| (format!("facts/{name}.txt"), Origin::Host(path)));
        let commands = COMMANDS.iter().map(|(name, line)| (format!("facts/{name}.txt"), Origin::Command(line)));
        let mut files: Vec<_> = facts.chain(commands).collect();
        let running = guests.all();
        // Without machines there may be no directory.
        for entry in std::fs::read_dir(&self.machines_dir).into_iter().flatten().flatten() {
            let uid = entry.file_name().to_string_lossy().into_owned();
            let known = running.iter().find(|guest| guest.uid == uid);
            let machine = known.map_or(uid, |guest| format!("{}/{}", guest.namespace, guest.name));
            for log in MACHINE_LOGS {
                let path = entry.path().join(log);
                if path.symlink_metadata().is_ok_and(|file| file.is_file()) {
                    files.push((format!("machines/{machine}/{log}"), Origin::Machine(path)));
                }
            }
        }
        files
    }
}

async fn read(origin: Origin, tail: u64) -> Result<Vec<u8>, Failure> {
    let failed = |error: std::io::Error| Failure::internal(format!("it cannot be read: {error}"));
    match origin {
        Origin::Machine(path) => {
            let read = tokio::task::spawn_blocking(move || end_of(&path, tail)).await;
            read.map_err(|error| failed(error.into()))?.map_err(failed)
        }
        Origin::Host(path) => Ok(last(tokio::fs::read(path).await.map_err(failed)?, tail)),
        Origin::Command(line) => Ok(last(output(line).await, tail)),
    }
}

/// The last bytes of a plain file: neither links nor pipes, which a guest that broke out could point at anything.
fn end_of(path: &Path, tail: u64) -> std::io::Result<Vec<u8>> {
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits();
    let flags = i32::try_from(flags).map_err(std::io::Error::other)?;
    let mut file: File = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(std::io::Error::other("it is not a plain file"));
    }
    file.seek(SeekFrom::Start(metadata.len().saturating_sub(tail)))?;
    let mut content = Vec::new();
    file.take(tail).read_to_end(&mut content)?;
    Ok(content)
}

/// What the command printed, or why it did not: that is a fact too.
async fn output(line: &[&str]) -> Vec<u8> {
    let [program, arguments @ ..] = line else { return Vec::new() };
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).kill_on_drop(true);
    match tokio::time::timeout(COMMAND, command.output()).await {
        Ok(Ok(output)) => [output.stdout, output.stderr].concat(),
        Ok(Err(error)) => format!("{program} cannot be run: {error}\n").into_bytes(),
        Err(_) => format!("{program} did not end within {} s\n", COMMAND.as_secs()).into_bytes(),
    }
}

fn last(mut content: Vec<u8>, tail: u64) -> Vec<u8> {
    let tail = usize::try_from(tail).unwrap_or(usize::MAX);
    let cut = content.len().saturating_sub(tail);
    content.split_off(cut)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn logs_are_listed_and_links_are_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let machine = dir.path().join("uid-1");
        std::fs::create_dir(&machine).unwrap();
        std::fs::write(machine.join("qemu.log"), "0123456789").unwrap();
        std::fs::write(machine.join("other"), "x").unwrap();
        std::os::unix::fs::symlink("/etc/passwd", machine.join("console.log")).unwrap();
        let logs = Logs { machines_dir: dir.path().to_owned() };
        let names: Vec<String> = logs.files(&Guests::default()).into_iter().map(|(name, _)| name).collect();
        let of_machines: Vec<&str> = names.iter().map(String::as_str).filter(|n| n.starts_with("machines")).collect();
        assert_eq!(of_machines, ["machines/uid-1/qemu.log"]);
        assert!(names.contains(&"facts/meminfo.txt".to_owned()));

        assert_eq!(read(Origin::Machine(machine.join("qemu.log")), 4).await.unwrap(), b"6789");
        read(Origin::Machine(machine.join("console.log")), 4).await.unwrap_err();
        let missing = logs.answer(&Guests::default(), "machines/../../etc/passwd", "").await.unwrap_err();
        assert_eq!(missing.code, 404);
        let wrong = logs.answer(&Guests::default(), "facts/meminfo.txt", "tailBytes=x").await.unwrap_err();
        assert_eq!(wrong.code, 400);
    }

    #[tokio::test]
    async fn a_missing_command_is_a_fact() {
        let text = String::from_utf8(output(&["croft-no-such-program"]).await).unwrap();
        assert!(text.contains("cannot be run"), "{text}");
        assert_eq!(output(&["echo", "a"]).await, b"a\n");
    }
}
