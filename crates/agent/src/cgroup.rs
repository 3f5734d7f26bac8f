//! One control group a machine: how much of the host its processes may take, and how much they have taken.
//!
//! The kernel has two versions of this. In the second a group is one directory; in the first each controller has a
//! hierarchy of its own, and a group is a directory in each. Everything that a machine runs (QEMU, its TPM) is in its
//! group, so that whatever is still in there belongs to it.

use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use sha2::{Digest, Sha256};

const ROOT: &str = "/sys/fs/cgroup";
const PERIOD_US: u64 = 100_000;
/// A group whose last process has just been reaped is busy for a moment.
const REMOVAL_TRIES: u32 = 50;
const REMOVAL_PAUSE: Duration = Duration::from_millis(10);

#[derive(Debug, thiserror::Error)]
pub enum CgroupError {
    #[error("this host has no control groups that can be written: {0}")]
    Unavailable(String),
    #[error("cannot write {}", path.display())]
    Write {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("cannot remove the control group {}", path.display())]
    Remove {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

/// What a machine may take. None is no limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Limits {
    /// In thousandths of a core.
    pub cpu_millis: Option<u64>,
    /// Its share when cores are scarce, in thousandths of a core.
    pub cpu_request_millis: u64,
    pub memory_bytes: Option<u64>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    pub cpu: Duration,
    pub memory_bytes: u64,
}

/// Where the groups of this agent's machines are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Cgroups {
    version: Version,
    /// The parent of all groups: one directory, or one a controller.
    parents: Parents,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Version {
    First,
    Second,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Parents {
    cpu: PathBuf,
    cpuacct: PathBuf,
    memory: PathBuf,
}

impl Parents {
    /// Each directory once.
    fn all(&self) -> Vec<&Path> {
        let mut all = vec![self.cpu.as_path(), &self.cpuacct, &self.memory];
        all.sort_unstable();
        all.dedup();
        all
    }

    fn child(&self, name: &str) -> Parents {
        Parents { cpu: self.cpu.join(name), cpuacct: self.cpuacct.join(name), memory: self.memory.join(name) }
    }
}

impl Cgroups {
    /// Finds the kernel's version and makes the parent of the groups. `name` tells several agents of one host apart.
    pub(crate) fn new(name: &str) -> Result<Cgroups, CgroupError> {
        Cgroups::below(Path::new(ROOT), name)
    }

    fn below(root: &Path, name: &str) -> Result<Cgroups, CgroupError> {
        let cgroups = if root.join("cgroup.controllers").exists() {
            let parent = root.join(name);
            delegate(root)?;
            make(&parent)?;
            delegate(&parent)?;
            let parents = Parents { cpu: parent.clone(), cpuacct: parent.clone(), memory: parent };
            Cgroups { version: Version::Second, parents }
        } else {
            let parent = |controller: &str| hierarchy(root, controller).map(|path| path.join(name));
            let parents = Parents { cpu: parent("cpu")?, cpuacct: parent("cpuacct")?, memory: parent("memory")? };
            Cgroups { version: Version::First, parents }
        };
        for parent in cgroups.parents.all() {
            make(parent)?;
        }
        Ok(cgroups)
    }

    /// What the parent is called for an agent that keeps its sockets there. By the whole path: two agents whose
    /// directories only end alike would take each other's machines for leftovers of their own.
    pub(crate) fn name_for(run_dir: &Path) -> String {
        let hash = Sha256::digest(run_dir.as_os_str().as_bytes());
        let hash = hash[..4].iter().fold(String::new(), |text, byte| format!("{text}{byte:02x}"));
        format!("croft-{hash}")
    }

    /// Takes away all groups, and their parent.
    pub(crate) async fn remove_all(&self) -> Result<(), CgroupError> {
        for id in self.ids() {
            self.group(&id).remove().await?;
        }
        Group { version: self.version, dirs: self.parents.clone() }.remove().await
    }

    /// A group with these limits; one that is there already gets them too.
    pub(crate) fn create(&self, id: &str, limits: Limits) -> Result<Group, CgroupError> {
        let group = self.group(id);
        for dir in group.dirs.all() {
            make(dir)?;
        }
        group.set(limits)?;
        Ok(group)
    }

    pub(crate) fn group(&self, id: &str) -> Group {
        Group { version: self.version, dirs: self.parents.child(id) }
    }

    /// The groups that are there, from this run or an earlier one.
    pub(crate) fn ids(&self) -> Vec<String> {
        let mut ids: Vec<String> = Vec::new();
        for parent in self.parents.all() {
            let Ok(entries) = fs::read_dir(parent) else { continue };
            let directories = entries.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
            ids.extend(directories.filter_map(|entry| entry.file_name().into_string().ok()));
        }
        ids.sort_unstable();
        ids.dedup();
        ids
    }
}

/// One machine's group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Group {
    version: Version,
    dirs: Parents,
}

impl Group {
    /// The files that a process's number is written to.
    pub(crate) fn procs(&self) -> Vec<PathBuf> {
        self.dirs.all().into_iter().map(|dir| dir.join("cgroup.procs")).collect()
    }

    pub(crate) fn set(&self, limits: Limits) -> Result<(), CgroupError> {
        // The kernel's own unit: 1024 for a core, 2 at least.
        let shares = (limits.cpu_request_millis * 1024 / 1000).clamp(2, 262_144);
        let quota = limits.cpu_millis.map(|millis| (millis * PERIOD_US / 1000).max(1000));
        match self.version {
            Version::First => {
                write(&self.dirs.cpu, "cpu.shares", &shares.to_string())?;
                write(&self.dirs.cpu, "cpu.cfs_period_us", &PERIOD_US.to_string())?;
                let quota = quota.map_or_else(|| "-1".to_owned(), |quota| quota.to_string());
                write(&self.dirs.cpu, "cpu.cfs_quota_us", &quota)?;
                self.set_memory_first(limits.memory_bytes)
            }
            Version::Second => {
                let weight = 1 + (shares - 2) * 9999 / 262_142;
                write(&self.dirs.cpu, "cpu.weight", &weight.to_string())?;
                let quota = quota.map_or_else(|| "max".to_owned(), |quota| quota.to_string());
                write(&self.dirs.cpu, "cpu.max", &format!("{quota} {PERIOD_US}"))?;
                let memory = limits.memory_bytes.map_or_else(|| "max".to_owned(), |bytes| bytes.to_string());
                write(&self.dirs.memory, "memory.max", &memory)?;
                write_if_there(&self.dirs.memory, "memory.swap.max", "0")
            }
        }
    }

    fn set_memory_first(&self, bytes: Option<u64>) -> Result<(), CgroupError> {
        const WITH_SWAP: &str = "memory.memsw.limit_in_bytes";
        let text = bytes.map_or_else(|| "-1".to_owned(), |bytes| bytes.to_string());
        // Memory with swap may never be less than memory alone, so a higher limit begins with the one with swap.
        let raised = write_if_there(&self.dirs.memory, WITH_SWAP, &text);
        write(&self.dirs.memory, "memory.limit_in_bytes", &text)?;
        if raised.is_err() {
            write_if_there(&self.dirs.memory, WITH_SWAP, &text)?;
        }
        write_if_there(&self.dirs.memory, "memory.swappiness", "0")
    }

    /// None if the group is not there, or no longer.
    pub(crate) fn usage(&self) -> Option<Usage> {
        let number = |dir: &Path, file: &str| fs::read_to_string(dir.join(file)).ok()?.trim().parse::<u64>().ok();
        match self.version {
            Version::First => Some(Usage {
                cpu: Duration::from_nanos(number(&self.dirs.cpuacct, "cpuacct.usage")?),
                memory_bytes: number(&self.dirs.memory, "memory.usage_in_bytes")?,
            }),
            Version::Second => {
                let stat = fs::read_to_string(self.dirs.cpu.join("cpu.stat")).ok()?;
                let micros = stat.lines().find_map(|line| line.strip_prefix("usage_usec "))?.parse().ok()?;
                let memory_bytes = number(&self.dirs.memory, "memory.current")?;
                Some(Usage { cpu: Duration::from_micros(micros), memory_bytes })
            }
        }
    }

    /// Removes the group, which must be empty. One that is not there is as good as removed.
    pub(crate) async fn remove(&self) -> Result<(), CgroupError> {
        for dir in self.dirs.all() {
            let mut tries = 0;
            loop {
                match fs::remove_dir(dir) {
                    Err(error) if error.kind() == io::ErrorKind::NotFound => break,
                    Err(source) if tries == REMOVAL_TRIES => {
                        return Err(CgroupError::Remove { path: dir.to_owned(), source });
                    }
                    Err(_) => {
                        tries += 1;
                        tokio::time::sleep(REMOVAL_PAUSE).await;
                    }
                    Ok(()) => break,
                }
            }
        }
        Ok(())
    }
}

/// The directory of a controller of the first version; some hosts have `cpu,cpuacct` in one.
fn hierarchy(root: &Path, controller: &str) -> Result<PathBuf, CgroupError> {
    for name in [controller, "cpu,cpuacct"] {
        let path = root.join(name);
        let has_it = name == controller || name.split(',').any(|one| one == controller);
        if has_it && path.join("cgroup.procs").exists() {
            return Ok(path);
        }
    }
    Err(CgroupError::Unavailable(format!("{} has no {controller} controller", root.display())))
}

/// Lets the groups below have limits.
fn delegate(parent: &Path) -> Result<(), CgroupError> {
    let path = parent.join("cgroup.subtree_control");
    let enabled = fs::read_to_string(&path).unwrap_or_default();
    let missing: Vec<_> = ["cpu", "memory"]
        .into_iter()
        .filter(|controller| !enabled.split_whitespace().any(|word| word == *controller))
        .map(|controller| format!("+{controller}"))
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    fs::write(&path, missing.join(" "))
        .map_err(|error| CgroupError::Unavailable(format!("{}: {error}", path.display())))
}

fn make(dir: &Path) -> Result<(), CgroupError> {
    match fs::create_dir(dir) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            Err(CgroupError::Unavailable(format!("{}: {error}", dir.display())))
        }
        _ => Ok(()),
    }
}

fn write(dir: &Path, file: &str, text: &str) -> Result<(), CgroupError> {
    let path = dir.join(file);
    fs::write(&path, text).map_err(|source| CgroupError::Write { path, source })
}

/// For what only some kernels have.
fn write_if_there(dir: &Path, file: &str, text: &str) -> Result<(), CgroupError> {
    if dir.join(file).exists() { write(dir, file, text) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits { cpu_millis: Some(1500), cpu_request_millis: 500, memory_bytes: Some(300 << 20) };

    fn read(path: &Path) -> String {
        fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }

    /// A directory that looks like the second version's, since a host has one version only.
    #[test]
    fn agents_whose_directories_end_alike_do_not_share_groups() {
        let name = |path: &str| Cgroups::name_for(Path::new(path));
        assert_eq!(name("/run/croft/a"), name("/run/croft/a"));
        assert_ne!(name("/one/run"), name("/two/run"));
    }

    #[test]
    fn the_second_version_gets_its_own_words() {
        let root = tempfile::tempdir().unwrap();
        fs::write(root.path().join("cgroup.controllers"), "cpu memory").unwrap();
        fs::write(root.path().join("cgroup.subtree_control"), "memory").unwrap();
        let cgroups = Cgroups::below(root.path(), "croft-test").unwrap();
        assert_eq!(read(&root.path().join("cgroup.subtree_control")), "+cpu");
        assert_eq!(read(&root.path().join("croft-test/cgroup.subtree_control")), "+cpu +memory");
        let group = cgroups.create("a", LIMITS).unwrap();
        let dir = root.path().join("croft-test/a");
        let files = ["cpu.weight", "cpu.max", "memory.max"].map(|file| read(&dir.join(file)));
        assert_eq!(files, ["20", "150000 100000", "314572800"]);
        group.set(Limits::default()).unwrap();
        assert_eq!((read(&dir.join("cpu.max")), read(&dir.join("memory.max"))), ("max 100000".into(), "max".into()));
        assert_eq!(group.procs(), [dir.join("cgroup.procs")]);
        fs::write(dir.join("cpu.stat"), "usage_usec 1500\nuser_usec 1\n").unwrap();
        fs::write(dir.join("memory.current"), "4096\n").unwrap();
        assert_eq!(group.usage(), Some(Usage { cpu: Duration::from_micros(1500), memory_bytes: 4096 }));
        assert_eq!(cgroups.ids(), ["a"]);
    }

    #[test]
    fn a_host_without_groups_says_so() {
        let root = tempfile::tempdir().unwrap();
        let error = Cgroups::below(root.path(), "x").unwrap_err();
        assert!(matches!(&error, CgroupError::Unavailable(reason) if reason.contains("cpu")), "{error}");
    }

    /// This host's own, if we may: a process is limited, counted, and leaves nothing.
    #[tokio::test]
    async fn a_real_group_limits_counts_and_goes() {
        let name = format!("croft-test-{}", std::process::id());
        let Ok(cgroups) = Cgroups::new(&name) else { return };
        let group = cgroups.create("vm", LIMITS).unwrap();
        group.set(Limits { memory_bytes: Some(400 << 20), ..LIMITS }).unwrap();
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        for procs in group.procs() {
            fs::write(&procs, child.id().to_string()).unwrap();
            assert_eq!(read(&procs).trim(), child.id().to_string());
        }
        assert!(group.usage().is_some());
        child.kill().unwrap();
        child.wait().unwrap();
        group.remove().await.unwrap();
        group.remove().await.unwrap();
        assert_eq!(cgroups.ids(), Vec::<String>::new());
        assert_eq!(group.usage(), None);
        for parent in cgroups.parents.all() {
            fs::remove_dir(parent).unwrap();
        }
    }
}
