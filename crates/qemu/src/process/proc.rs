//! Which process belongs to a directory: our own record of it, or failing that the kernel's list of processes.

use std::fs;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// A process, unmistakably: numbers are used again, but not with the same start within one boot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Record {
    pub(super) pid: u32,
    /// In clock ticks since the host's boot.
    pub(super) start: u64,
    pub(super) boot: String,
    #[serde(with = "uuid_text")]
    pub(super) uuid: Uuid,
}

mod uuid_text {
    use serde::{Deserialize, Deserializer, Serializer};
    use uuid::Uuid;

    pub(super) fn serialize<S: Serializer>(uuid: &Uuid, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(uuid)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Uuid, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

impl Record {
    /// None if there is no such process, or no more.
    pub(super) fn of(pid: u32, uuid: Uuid) -> io::Result<Option<Record>> {
        let Some((_, start)) = stat(pid)? else { return Ok(None) };
        Ok(Some(Record { pid, start, boot: boot_id()?, uuid }))
    }

    /// Written beside and renamed, so that a reader finds all of it or none.
    pub(super) fn write(&self, dir: &Path) -> io::Result<()> {
        let path = record_file(dir);
        let beside = path.with_extension("new");
        let mut file = fs::OpenOptions::new().create(true).write(true).truncate(true).mode(0o600).open(&beside)?;
        file.write_all(&serde_json::to_vec(self)?)?;
        fs::rename(beside, path)
    }

    fn is_running(&self) -> io::Result<bool> {
        let is_same = |(state, start): (char, u64)| start == self.start && !matches!(state, 'Z' | 'X');
        Ok(self.boot == boot_id()? && stat(self.pid)?.is_some_and(is_same))
    }
}

/// The environment variable that names a process's machine.
pub(super) const MARK: &str = "CROFT_MACHINE_DIR";

pub(super) fn record_file(dir: &Path) -> PathBuf {
    dir.join("process.json")
}

/// The running QEMU of a directory. Without a readable record (whoever started it died just then), the kernel's list
/// is searched for one that carries the directory's mark.
pub(super) fn find(dir: &Path) -> io::Result<Option<Record>> {
    let record = match fs::read(record_file(dir)) {
        Ok(text) => serde_json::from_slice::<Record>(&text).ok(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(error),
    };
    match record {
        Some(record) => Ok(if record.is_running()? { Some(record) } else { None }),
        // A directory that nobody has prepared has no process.
        None if !dir.join("qmp.sock").exists() => Ok(None),
        None => search(dir),
    }
}

fn search(dir: &Path) -> io::Result<Option<Record>> {
    for pid in marked(dir)? {
        // Its companions carry the mark as well; QEMU is the one with a monitor.
        let command_line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let is_qemu = command_line.split(|byte| *byte == 0).any(|word| word == b"-mon");
        if is_qemu
            && let Some(record) = Record::of(pid, Uuid::nil())?
            && record.is_running()?
        {
            return Ok(Some(record));
        }
    }
    Ok(None)
}

/// The processes that were started for a directory.
pub(super) fn marked(dir: &Path) -> io::Result<Vec<u32>> {
    let mark = [MARK.as_bytes(), b"=", dir.as_os_str().as_bytes()].concat();
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let Some(pid) = entry?.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
        // Processes come and go while we look.
        let Ok(environment) = fs::read(format!("/proc/{pid}/environ")) else { continue };
        if environment.split(|byte| *byte == 0).any(|variable| variable == mark) {
            found.push(pid);
        }
    }
    Ok(found)
}

/// A process's state and start time, if there is one.
fn stat(pid: u32) -> io::Result<Option<(char, u64)>> {
    let text = match fs::read_to_string(format!("/proc/{pid}/stat")) {
        Ok(text) => text,
        // Gone before, or between opening and reading.
        Err(error) if error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(3) => return Ok(None),
        Err(error) => return Err(error),
    };
    parse_stat(&text).map(Some).ok_or_else(|| io::Error::other(format!("/proc/{pid}/stat is not understood")))
}

fn parse_stat(text: &str) -> Option<(char, u64)> {
    // The second field is the program's name in brackets, which may itself hold spaces and brackets.
    let (_, rest) = text.rsplit_once(") ")?;
    let mut fields = rest.split_ascii_whitespace();
    let state = fields.next()?.chars().next()?;
    // Field 22 of the whole, counted from 1; the state is the third.
    let start = fields.nth(18)?.parse().ok()?;
    Some((state, start))
}

fn boot_id() -> io::Result<String> {
    Ok(fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_name_cannot_fake_its_state_or_start() {
        let line = "12 (evil) Z 1 (x) S 1 12 12 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 987654 10 20";
        assert_eq!(parse_stat(line), Some(('S', 987_654)));
        assert_eq!(parse_stat("12 (x) S 1"), None);
        assert_eq!(parse_stat(""), None);
    }

    #[test]
    fn a_record_is_of_one_process_in_one_boot() {
        let record = Record::of(std::process::id(), Uuid::nil()).unwrap().unwrap();
        assert!(record.is_running().unwrap());
        assert!(!Record { start: record.start + 1, ..record.clone() }.is_running().unwrap());
        assert!(!Record { boot: "other".into(), ..record.clone() }.is_running().unwrap());
        assert!(!Record { pid: u32::MAX, ..record }.is_running().unwrap());
    }

    #[test]
    fn an_unreadable_record_is_no_process() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(find(dir.path()).unwrap(), None);
        fs::write(record_file(dir.path()), "{").unwrap();
        fs::write(dir.path().join("qmp.sock"), "").unwrap();
        assert_eq!(find(dir.path()).unwrap(), None);
    }
}
