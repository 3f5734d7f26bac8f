//! A control group with a limit on its memory: a process that wants more is killed by the kernel.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

const ROOT: &str = "/sys/fs/cgroup";

/// Removed when dropped; by then its processes must have ended.
#[derive(Debug)]
pub struct MemoryLimit {
    dir: PathBuf,
    is_second_version: bool,
}

impl MemoryLimit {
    /// Either version of control groups will do; it takes root.
    pub fn new(name: &str, bytes: u64) -> Result<Self> {
        let is_second_version = Path::new(ROOT).join("cgroup.controllers").exists();
        let parent = if is_second_version { PathBuf::from(ROOT) } else { Path::new(ROOT).join("memory") };
        let dir = parent.join(format!("croft-test-{name}-{}", std::process::id()));
        if is_second_version {
            // Already so where a service manager runs.
            let _ = fs::write(parent.join("cgroup.subtree_control"), "+memory");
        }
        fs::create_dir(&dir).with_context(|| format!("make {}", dir.display()))?;
        let group = Self { dir, is_second_version };
        group.write(if is_second_version { "memory.max" } else { "memory.limit_in_bytes" }, bytes)?;
        if is_second_version {
            group.write("memory.swap.max", 0).ok();
        }
        Ok(group)
    }

    /// What starts a program in it, to be put before the program's own command line.
    pub fn wrapper(&self) -> [String; 4] {
        let enter = format!("echo $$ > {}/cgroup.procs && exec \"$@\"", self.dir.display());
        ["sh".to_owned(), "-c".to_owned(), enter, "sh".to_owned()]
    }

    /// The most that it has had, files that were read among it.
    pub fn peak_bytes(&self) -> Result<u64> {
        let file = if self.is_second_version { "memory.peak" } else { "memory.max_usage_in_bytes" };
        let path = self.dir.join(file);
        let text = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
        Ok(text.trim().parse()?)
    }

    fn write(&self, file: &str, value: u64) -> Result<()> {
        let path = self.dir.join(file);
        fs::write(&path, value.to_string()).with_context(|| format!("write {}", path.display()))
    }
}

impl Drop for MemoryLimit {
    fn drop(&mut self) {
        // Not empty means that a process is left, which the test that started it has to answer for.
        let _ = fs::remove_dir(&self.dir);
    }
}
