//! Whether QEMU may use io_uring here.
//!
//! Kernels can be told to refuse it, containers often do, and QEMU may be built without it. A disk that needs it would
//! then not open, so it is tried once, as the unprivileged process that a machine's QEMU is.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::process::Command;
use tokio::time::timeout;

const PATIENCE: Duration = Duration::from_secs(10);
/// Nobody in particular.
const NOBODY: u32 = 65534;

/// The error says why not.
pub async fn try_out(binary: &Path) -> Result<(), String> {
    let text = binary.to_str().ok_or("QEMU's path is not text")?;
    // Any file will do, and the program itself is one that everybody may read.
    let file = serde_json::json!({
        "driver": "file", "node-name": "probe", "filename": text, "read-only": true, "aio": "io_uring",
    });
    let mut command = Command::new(binary);
    command
        .args(["-nodefaults", "-no-user-config", "-display", "none", "-machine", "none", "-S", "-sandbox", "on"])
        .args(["-monitor", "stdio", "-blockdev", &file.to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    if rustix::process::geteuid().is_root() {
        command.uid(NOBODY).gid(NOBODY);
    }
    let mut child = command.spawn().map_err(|error| error.to_string())?;
    if let Some(mut monitor) = child.stdin.take() {
        // A QEMU that has already failed does not read it, and says why when it ends.
        let _ = monitor.write_all(b"quit\n").await;
    }
    let output =
        timeout(PATIENCE, child.wait_with_output()).await.map_err(|_| format!("QEMU hung for {PATIENCE:?}"))?;
    let output = output.map_err(|error| error.to_string())?;
    if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()) }
}
