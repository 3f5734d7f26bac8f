//! All of Croft and one guest with the memory and the processor of a very small host.

use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result};
use croft_e2e::machines::{MACHINES, croft_ok, guest_image};
use croft_testkit::{Croft, Protocol, StoreKind};

use super::{delete, guests, node_is_ready};
use crate::report::{Report, mib, seconds};

const MEMORY: u64 = 512 << 20;
/// Becomes what it is told to run, inside a control group that looks to it like the host's own: so what Croft's guests
/// take counts too, as it would in a container.
const CONFINE: &str = r#"
set -eu
root=/sys/fs/cgroup name=$1 memory=$2
shift 2
if [ -e $root/cgroup.controllers ]; then
    mkdir -p $root/$name/server
    echo "$memory" >$root/$name/memory.max
    echo "100000 100000" >$root/$name/cpu.max
    echo $$ >$root/$name/server/cgroup.procs
    exec unshare -m sh -euc 'mount --bind $0/$1 $0; shift; exec "$@"' $root "$name" "$@"
fi
for controller in memory cpu cpuacct; do
    mkdir -p $root/$controller/$name
done
echo "$memory" >$root/memory/$name/memory.limit_in_bytes
echo 100000 >$root/cpu/$name/cpu.cfs_quota_us
for controller in memory cpu cpuacct; do
    echo $$ >$root/$controller/$name/cgroup.procs
done
exec unshare -m sh -euc '
for controller in memory cpu cpuacct; do
    mount --bind $0/$controller/$1 $0/$controller
done
shift
exec "$@"' $root "$name" "$@"
"#;

pub(super) async fn measure(report: &mut Report) -> Result<()> {
    let name = format!("croft-bench-{}", std::process::id());
    let group = Group::new(&name);
    let memory = MEMORY.to_string();
    let croft = Croft::start_node_under(StoreKind::Embedded, &["sh", "-c", CONFINE, "sh", &name, &memory], &[]).await?;
    let client = croft.client_over(Protocol::Http1)?;
    node_is_ready(&client).await?;
    croft_ok(&croft, &["image", "upload", "tiny", guest_image()?.to_str().context("a path")?]).await?;
    client.post(MACHINES, &guests::guest("small", "128Mi", &[])).await?.ok()?;
    let start = Instant::now();
    let log = guests::console_log(&croft, &client, "small").await?;
    let booted = guests::first_line_of(&log).await;
    let (took, used, killed) = (start.elapsed(), group.unreclaimable()?, group.killed()?);
    // `croft node reset`, which ends the guests of a test, does not find groups below ours.
    delete(&client, "small").await?;
    report.absolute(
        "Croft and a guest of 128 MiB within 512 MiB and one core: memory in use, time to the first line",
        format!("{}, {}", mib(used), booted.as_ref().map_or_else(ToString::to_string, |()| seconds(took))),
        "the guest is up, nothing is killed",
        booted.is_ok() && killed == 0 && used <= MEMORY,
    );
    Ok(())
}

/// The control group as it is seen from outside.
struct Group {
    dirs: Vec<PathBuf>,
}

impl Group {
    fn new(name: &str) -> Self {
        let root = Path::new("/sys/fs/cgroup");
        let dirs = if root.join("cgroup.controllers").exists() {
            vec![root.join(name)]
        } else {
            ["memory", "cpu", "cpuacct"].iter().map(|controller| root.join(controller).join(name)).collect()
        };
        Self { dirs }
    }

    fn number(&self, file: &str, key: &str) -> Option<u64> {
        let text = std::fs::read_to_string(self.dirs.first()?.join(file)).ok()?;
        text.lines().find_map(|line| line.strip_prefix(key)?.trim().parse().ok())
    }

    /// What its processes hold; the page cache goes when it is needed.
    fn unreclaimable(&self) -> Result<u64> {
        self.number("memory.stat", "total_rss ").or_else(|| self.number("memory.stat", "anon ")).context("no figures")
    }

    fn killed(&self) -> Result<u64> {
        let events = self.number("memory.events", "oom_kill ");
        events.or_else(|| self.number("memory.oom_control", "oom_kill ")).context("no count of kills")
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // Its processes are gone with the server, whose groups are below it.
        for dir in &self.dirs {
            remove_below(dir);
        }
    }
}

fn remove_below(dir: &Path) {
    let children = std::fs::read_dir(dir).into_iter().flatten().flatten();
    for child in children.filter(|child| child.file_type().is_ok_and(|kind| kind.is_dir())) {
        remove_below(&child.path());
    }
    // A group that is still in use stays; the next run has another name.
    let _ = std::fs::remove_dir(dir);
}
