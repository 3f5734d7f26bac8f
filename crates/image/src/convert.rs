//! Conversion to raw by `qemu-img`, which is not trusted with more than two open files.
//!
//! It runs as an unprivileged user with limits on memory, time and file size. It gets the image as its standard input and the
//! target as its standard output, opens them as `/proc/self/fd/0` and `1`, and is told the format: it never guesses.

use std::fs::File;
use std::os::unix::fs::fchown;
use std::process::Stdio;
use std::time::Duration;

use serde_json::json;
use tokio::process::Command;

use crate::error::ImportError;
use crate::format::{Format, Inspected};

/// Without threads and caches of unusual size it needs a few hundred MiB of address space.
const MEMORY_BYTES: u64 = 4 << 30;
const OPEN_FILES: u32 = 64;

/// The slowest disk that one would put images on.
const SLOWEST_BYTES_PER_SECOND: u64 = 4 << 20;
const SHORTEST: Duration = Duration::from_mins(10);

/// How much of its complaint is shown.
const COMPLAINT: usize = 500;

/// Whom conversions run as, when we may choose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct User {
    pub uid: u32,
    pub gid: u32,
}

impl Default for User {
    /// nobody, nogroup.
    fn default() -> Self {
        Self { uid: 65534, gid: 65534 }
    }
}

/// Converts `source` into `target`, which is new and empty. Dropping the future ends the program.
pub(crate) async fn convert(source: &File, inspected: Inspected, target: &File, user: User) -> Result<(), ImportError> {
    let source_size = prepare(source, inspected, target, user)?;
    // Reading and writing both count.
    let bytes = source_size.saturating_add(inspected.virtual_size);
    let limit = SHORTEST.max(Duration::from_secs(bytes / SLOWEST_BYTES_PER_SECOND));
    let run = run(source, inspected, target, user, limit);
    let result = tokio::time::timeout(limit, run).await.unwrap_or(Err(ImportError::ConvertTimeout(limit)));
    if is_root() {
        fchown(target, Some(0), Some(0)).map_err(ImportError::Start)?;
    }
    result
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Both files are made to belong to the user, who can open them only through the descriptors: the directory is closed to it.
fn prepare(source: &File, inspected: Inspected, target: &File, user: User) -> Result<u64, ImportError> {
    target.set_len(inspected.virtual_size).map_err(ImportError::Start)?;
    if is_root() {
        fchown(source, Some(user.uid), Some(user.gid)).map_err(ImportError::Start)?;
        fchown(target, Some(user.uid), Some(user.gid)).map_err(ImportError::Start)?;
    }
    Ok(source.metadata().map_err(ImportError::Start)?.len())
}

async fn run(
    source: &File,
    inspected: Inspected,
    target: &File,
    user: User,
    limit: Duration,
) -> Result<(), ImportError> {
    let mut command = command(inspected, limit);
    command.stdin(Stdio::from(source.try_clone().map_err(ImportError::Start)?));
    command.stdout(Stdio::from(target.try_clone().map_err(ImportError::Start)?));
    command.stderr(Stdio::piped());
    if is_root() {
        command.uid(user.uid).gid(user.gid);
    }
    let output = command.spawn().map_err(ImportError::Start)?.wait_with_output().await.map_err(ImportError::Start)?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let said: String = said.trim().trim_start_matches("qemu-img: ").chars().take(COMPLAINT).collect();
    let why = if said.is_empty() { output.status.to_string() } else { said };
    Err(ImportError::Convert { format: inspected.format.name(), why })
}

fn command(inspected: Inspected, limit: Duration) -> Command {
    let mut command = Command::new("prlimit");
    command.env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").env("LC_ALL", "C").current_dir("/");
    command.kill_on_drop(true);
    command.arg(format!("--as={MEMORY_BYTES}")).arg(format!("--nofile={OPEN_FILES}")).arg("--core=0");
    command.arg(format!("--cpu={}", limit.as_secs())).arg(format!("--fsize={}", inspected.virtual_size));
    command.args(["--", "qemu-img", "convert"]);
    // In any order, into a file that is all holes, which a flush of ours makes durable.
    command.args(["-n", "-W", "--target-is-zero", "-S", "64k"]);
    command.arg(source_description(inspected.format));
    command.args(["--target-image-opts", "driver=raw,file.driver=file,file.filename=/proc/self/fd/1,file.locking=off"]);
    command
}

fn source_description(format: Format) -> String {
    let file = json!({ "driver": "file", "filename": "/proc/self/fd/0", "locking": "off" });
    // None of ours has a backing file; this keeps `qemu-img` from looking for one.
    let mut description = json!({ "driver": format.name(), "file": file, "backing": null });
    if format == Format::Vpc {
        // Else it would count cylinders, of which other programs write nonsense.
        description["force_size_calc"] = json!("current_size");
    }
    format!("json:{description}")
}
