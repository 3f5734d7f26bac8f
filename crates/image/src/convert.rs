//! Conversion to raw. An image whose data lies in it as the guest sees it gives its blocks to the disk, and nothing is copied
//! where the file system can share. The rest is for `qemu-img`, which is not trusted with more than two open files.
//!
//! It runs as an unprivileged user with limits on memory, time and file size. It gets the image as its standard input and the
//! target as its standard output, opens them as `/proc/self/fd/0` and `1`, and is told the format: it never guesses.

use std::fs::File;
use std::os::unix::fs::fchown;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::copy_file_range;
use rustix::io::Errno;
use serde_json::json;
use tokio::process::Command;

use crate::error::ImportError;
use crate::format::{Extent, Format, Inspected, extents};

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
pub(crate) async fn convert(
    source: &Arc<File>,
    inspected: Inspected,
    target: &Arc<File>,
    user: User,
) -> Result<(), ImportError> {
    let (from, to) = (Arc::clone(source), Arc::clone(target));
    let shared = tokio::task::spawn_blocking(move || share(&from, inspected, &to)).await;
    if shared.map_err(|_| ImportError::Panicked)?? {
        return Ok(());
    }
    convert_by_program(source, inspected, target, user).await
}

/// Whether that can be done. Else the target is as it was.
fn share(source: &File, inspected: Inspected, target: &File) -> Result<bool, ImportError> {
    let Some(extents) = extents(source, inspected.format)? else { return Ok(false) };
    let shared = extents.into_iter().try_for_each(|extent| copy_range(source, target, extent));
    // Also cuts what the last cluster has beyond the end.
    let size = if shared.is_ok() { inspected.virtual_size } else { 0 };
    target.set_len(size).map_err(ImportError::Share)?;
    match shared {
        Ok(()) => Ok(true),
        Err(Errno::XDEV | Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => Ok(false),
        Err(error) => Err(ImportError::Share(error.into())),
    }
}

/// The kernel shares the blocks if the file system can, or else copies them.
fn copy_range(
    source: &File,
    target: &File,
    Extent { disk: mut to, file: mut from, size }: Extent,
) -> Result<(), Errno> {
    let end = from + size;
    while from < end {
        let rest = usize::try_from(end - from).unwrap_or(usize::MAX);
        match copy_file_range(source, Some(&mut from), target, Some(&mut to), rest) {
            // The file has become shorter, which nobody but us could do.
            Ok(0) => return Err(Errno::IO),
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

async fn convert_by_program(source: &File, inspected: Inspected, target: &File, user: User) -> Result<(), ImportError> {
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

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;
    use crate::format::inspect;

    fn run(program: &str, args: &[&str], dir: &std::path::Path) {
        let output = Command::new(program).args(args).current_dir(dir).output().unwrap();
        assert!(output.status.success(), "{program} {args:?}: {}", String::from_utf8_lossy(&output.stderr));
    }

    /// Written in pieces, out of order, zeroed in between, and not of whole clusters.
    #[test]
    fn what_is_shared_is_what_the_program_would_have_written() {
        let dir = tempfile::tempdir().unwrap();
        for (options, is_shared) in [
            ("compat=1.1", true),
            ("compat=0.10", true),
            ("cluster_size=4k", true),
            ("cluster_size=2M,preallocation=metadata", true),
            ("cluster_size=512", false),
            ("extended_l2=on", false),
        ] {
            run("qemu-img", &["create", "-q", "-f", "qcow2", "-o", options, "image", "40000512"], dir.path());
            let writes = [
                "write -P 1 20M 3M",
                "write -P 2 64k 200k",
                "write -P 3 39999488 1k",
                "write -z 21M 1M",
                "write 0 64k",
            ];
            let writes: Vec<&str> = writes.iter().flat_map(|write| ["-c", write]).collect();
            run("qemu-io", &[&writes[..], &["image"]].concat(), dir.path());
            run("qemu-img", &["convert", "-O", "raw", "image", "expected"], dir.path());

            let source = File::open(dir.path().join("image")).unwrap();
            let target = File::options().write(true).create(true).truncate(true).open(dir.path().join("disk")).unwrap();
            assert_eq!(share(&source, inspect(&source).unwrap(), &target).unwrap(), is_shared, "{options}");
            if is_shared {
                run("cmp", &["expected", "disk"], dir.path());
            } else {
                assert_eq!(target.metadata().unwrap().len(), 0, "{options}");
            }
        }
    }

    #[test]
    fn packed_clusters_are_for_the_program() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("raw"), vec![7; 1 << 20]).unwrap();
        run("qemu-img", &["convert", "-c", "-f", "raw", "-O", "qcow2", "raw", "image"], dir.path());
        let source = File::open(dir.path().join("image")).unwrap();
        let target = tempfile::tempfile().unwrap();
        assert!(!share(&source, inspect(&source).unwrap(), &target).unwrap());
    }
}
