//! Takes away everything that a machine had on this node. Each step can be repeated, and one that fails does not keep the
//! others from being taken.

use croft_meta::Chain;
use croft_qemu::process;

use super::host::Host;

/// True if nothing is left.
pub(super) async fn machine(host: &Host, vmi_uid: &str) -> bool {
    let dir = host.machine_dir(vmi_uid);
    let mut is_clean = true;
    let mut failed = |what: &str, error: String| {
        tracing::warn!(vmi = vmi_uid, error, "{what} could not be taken away");
        is_clean = false;
    };
    if dir.exists()
        && let Err(error) = process::kill_all(&dir).await
    {
        failed("a machine's processes", Chain(&error).to_string());
    }
    if let Err(error) = host.nics.unplug_all(vmi_uid).await {
        failed("a machine's interfaces", error);
    }
    if let Some(cgroups) = &host.cgroups
        && let Err(error) = cgroups.group(vmi_uid).remove().await
    {
        failed("a machine's control group", Chain(&error).to_string());
    }
    let scratch = host.scratch_dir(vmi_uid);
    match tokio::fs::remove_dir_all(&scratch).await {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => failed("a machine's files", error.to_string()),
        _ => {}
    }
    // Last, since it is by this that the next start of ours knows of the machine.
    if is_clean && let Err(error) = process::remove(&dir).await {
        tracing::warn!(vmi = vmi_uid, error = %Chain(&error), "a machine's directory could not be removed");
        is_clean = false;
    }
    is_clean
}
