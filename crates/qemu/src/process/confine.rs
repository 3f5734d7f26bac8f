//! What a machine's processes may do: as whom they run, and in which control group.

use std::fs;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A user that owns nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct User {
    pub uid: u32,
    /// The group is what lets QEMU open `/dev/kvm` where not everybody may.
    pub gid: u32,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Confinement {
    /// Ourselves if none, which is all that is possible without root.
    pub user: Option<User>,
    /// The `cgroup.procs` files of the groups that the process belongs to: one, or one a hierarchy in the older version.
    pub groups: Vec<PathBuf>,
}

impl Confinement {
    /// A program that outlives us, in a session of its own, and carries the machine's directory as its mark.
    pub(super) fn command(&self, binary: &Path, dir: &Path) -> Command {
        // The child is not a leader, so `setsid` has no need to fork: its number becomes the program's own.
        let mut command = Command::new("setsid");
        command
            .arg(binary)
            .env_clear()
            .env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
            .env(super::proc::MARK, dir)
            .current_dir("/");
        if let Some(user) = self.user {
            // Giving up root drops all supplementary groups too.
            command.uid(user.uid).gid(user.gid);
        }
        command
    }

    /// Moves a process that has just been spawned, before it has used much of anything.
    pub(super) fn enroll(&self, pid: u32) -> io::Result<()> {
        for group in &self.groups {
            match fs::write(group, pid.to_string()) {
                // It has ended already: whoever waits for it learns why.
                Err(error) if error.raw_os_error() == Some(rustix::io::Errno::SRCH.raw_os_error()) => return Ok(()),
                outcome => outcome?,
            }
        }
        Ok(())
    }
}
