//! Programs of the distribution, run to their end: no shell, no terminal, a deadline.

use std::ffi::OsStr;
use std::io;
use std::os::fd::AsFd;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::{Pid, PidfdFlags};

/// Where a distribution keeps what administrators use; not on everybody's path.
const ADMIN_PATH: &str = "/usr/local/sbin:/usr/sbin:/sbin:/usr/bin:/bin";

#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    #[error("cannot run {program}")]
    Run {
        program: String,
        #[source]
        err: io::Error,
    },
    #[error("{program} did not end within {} s", limit.as_secs())]
    TooLong { program: String, limit: Duration },
    #[error("{program} failed: {message}")]
    Failed { program: String, message: String },
}

/// What the program wrote to its standard output. The programs run here say little: less than a pipe holds.
pub(crate) fn run<S: AsRef<OsStr>>(
    program: &str,
    arguments: impl IntoIterator<Item = S>,
    limit: Duration,
) -> Result<String, CommandError> {
    let failed = |err| CommandError::Run { program: program.to_owned(), err };
    let mut child = Command::new(program)
        .args(arguments)
        .env("PATH", ADMIN_PATH)
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(failed)?;
    let has_ended = wait(&child, limit);
    if !matches!(has_ended, Ok(true)) {
        // It may have ended just now; what counts is that it is reaped.
        let _ = child.kill();
        let _ = child.wait();
        has_ended.map_err(failed)?;
        return Err(CommandError::TooLong { program: program.to_owned(), limit });
    }
    let output = child.wait_with_output().map_err(failed)?;
    if !output.status.success() {
        let message = String::from_utf8_lossy(&output.stderr).trim().replace('\n', "; ");
        return Err(CommandError::Failed { program: program.to_owned(), message });
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

fn wait(child: &Child, limit: Duration) -> io::Result<bool> {
    let id = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let id = id.ok_or_else(|| io::Error::other("the process has no id"))?;
    let process = rustix::process::pidfd_open(id, PidfdFlags::empty())?;
    let mut polled = [PollFd::from_borrowed_fd(process.as_fd(), PollFlags::IN)];
    let limit = Timespec::try_from(limit).map_err(|_| io::Error::other("the deadline is too far off"))?;
    Ok(rustix::io::retry_on_intr(|| rustix::event::poll(&mut polled, Some(&limit)))? > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_failure_absence_and_a_deadline_are_told_apart() {
        let minute = Duration::from_mins(1);
        assert_eq!(run("echo", ["a b"], minute).unwrap(), "a b");
        assert!(matches!(run("false", [""; 0], minute), Err(CommandError::Failed { .. })));
        assert!(matches!(run("no-such-program", [""; 0], minute), Err(CommandError::Run { .. })));
        let slow = run("sleep", ["1000"], Duration::from_millis(20));
        assert!(matches!(slow, Err(CommandError::TooLong { .. })), "{slow:?}");
        let message = run("ls", ["/no/such/place"], minute).unwrap_err().to_string();
        assert!(message.contains("No such file"), "{message}");
    }
}
