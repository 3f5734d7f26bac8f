//! What this machine is and has, read from the kernel's files.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use k8s_openapi::api::core::v1::NodeSystemInfo;

/// As tools expect it; the first number is the version of the API that is spoken.
const AGENT_VERSION: &str = concat!("v1.34.0+croft", env!("CARGO_PKG_VERSION"));
const RUNTIME_VERSION: &str = concat!("croft://", env!("CARGO_PKG_VERSION"));
/// No pods run here, but tools count virtual machines as such.
const PODS: u64 = 1000;
/// KubeVirt's number for devices that any number of guests share.
const SHARED_DEVICE: &str = "1k";
const MIB: u64 = 1 << 20;
/// What the platform itself uses, and a fiftieth of the memory for the kernel's own growth with it.
const RESERVED_MEMORY: u64 = 128 * MIB;
const RESERVED_MEMORY_SHARE: u64 = 50;
const RESERVED_MILLICPU: u64 = 100;
/// Below a twentieth of the memory or of the disk space, or a tenth of the process ids, the node is short of them.
const SHORT_SHARE: u64 = 20;
const SHORT_PIDS_SHARE: u64 = 10;

#[derive(Debug, Default)]
pub(super) struct Host {
    pub(super) system: NodeSystemInfo,
    cpus: u64,
    memory: Amount,
    disk: Amount,
    processes: Amount,
    /// Bytes by the size of the page, in Kubernetes' name for it.
    hugepages: BTreeMap<String, u64>,
    has_tun: bool,
    has_vhost_net: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Amount {
    total: u64,
    free: u64,
}

impl Amount {
    /// Nothing known is not a shortage.
    fn is_below(self, share: u64) -> bool {
        self.total > 0 && self.free < self.total / share
    }
}

impl Host {
    pub(super) fn read(data_dir: &Path) -> Self {
        Self {
            system: system(),
            cpus: std::thread::available_parallelism().map_or(1, |n| u64::try_from(n.get()).unwrap_or(1)),
            memory: own_memory(),
            disk: disk(data_dir),
            processes: processes(),
            hugepages: hugepages(Path::new("/sys/kernel/mm/hugepages")),
            has_tun: Path::new("/dev/net/tun").exists(),
            has_vhost_net: Path::new("/dev/vhost-net").exists(),
        }
    }

    pub(super) fn capacity(&self, has_kvm: bool) -> BTreeMap<String, String> {
        let device = |is_there: bool| if is_there { SHARED_DEVICE } else { "0" }.to_owned();
        let mut capacity: BTreeMap<String, String> = [
            ("cpu", self.cpus.to_string()),
            ("memory", kibibytes(self.memory.total)),
            ("ephemeral-storage", kibibytes(self.disk.total)),
            ("pods", PODS.to_string()),
            ("devices.kubevirt.io/kvm", device(has_kvm)),
            ("devices.kubevirt.io/tun", device(self.has_tun)),
            ("devices.kubevirt.io/vhost-net", device(self.has_vhost_net)),
        ]
        .map(|(resource, amount)| (resource.to_owned(), amount))
        .into();
        capacity.extend(self.hugepages.iter().map(|(size, bytes)| (format!("hugepages-{size}"), kibibytes(*bytes))));
        capacity
    }

    pub(super) fn allocatable(&self, capacity: &BTreeMap<String, String>) -> BTreeMap<String, String> {
        let mut allocatable = capacity.clone();
        let reserved =
            RESERVED_MEMORY + self.memory.total / RESERVED_MEMORY_SHARE + self.hugepages.values().sum::<u64>();
        allocatable.insert("memory".to_owned(), kibibytes(self.memory.total.saturating_sub(reserved)));
        let millicpu = (self.cpus * 1000).saturating_sub(RESERVED_MILLICPU);
        allocatable.insert("cpu".to_owned(), format!("{millicpu}m"));
        allocatable
    }

    pub(super) fn is_short_of_memory(&self) -> bool {
        self.memory.is_below(SHORT_SHARE)
    }

    pub(super) fn is_short_of_disk(&self) -> bool {
        self.disk.is_below(SHORT_SHARE)
    }

    pub(super) fn is_short_of_pids(&self) -> bool {
        self.processes.is_below(SHORT_PIDS_SHARE)
    }
}

/// Kubernetes' name for this machine's architecture.
pub(super) fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

fn system() -> NodeSystemInfo {
    let machine_id = text("/etc/machine-id").trim().to_owned();
    // Only root may read the board's own; the other serves the same purpose.
    let uuid = text("/sys/class/dmi/id/product_uuid").trim().to_owned();
    NodeSystemInfo {
        architecture: architecture().to_owned(),
        boot_id: text("/proc/sys/kernel/random/boot_id").trim().to_owned(),
        container_runtime_version: RUNTIME_VERSION.to_owned(),
        kernel_version: text("/proc/sys/kernel/osrelease").trim().to_owned(),
        kube_proxy_version: String::new(),
        kubelet_version: AGENT_VERSION.to_owned(),
        operating_system: std::env::consts::OS.to_owned(),
        os_image: os_image(&text("/etc/os-release")),
        system_uuid: if uuid.is_empty() { machine_id.clone() } else { uuid },
        machine_id,
        ..NodeSystemInfo::default()
    }
}

fn os_image(os_release: &str) -> String {
    let value = |key: &str| {
        let line = os_release.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
        line.map(|value| value.trim().trim_matches(['"', '\'']).to_owned())
    };
    value("PRETTY_NAME").or_else(|| value("NAME")).unwrap_or_else(|| "Linux".to_owned())
}

fn memory(meminfo: &str) -> Amount {
    let bytes = |key: &str| {
        let line = meminfo.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'));
        line.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok()).map_or(0, |kib| kib * 1024)
    };
    Amount { total: bytes("MemTotal"), free: bytes("MemAvailable") }
}

/// What a control group leaves us of the machine: its limit, and what of that is unused.
/// What this process may have: the host's memory, or what its control group is given of it. 0 if that is not known.
pub fn memory_bytes() -> u64 {
    own_memory().total
}

fn own_memory() -> Amount {
    limited(memory(&text("/proc/meminfo")), cgroup_memory())
}

fn limited(host: Amount, group: Option<Amount>) -> Amount {
    match group {
        Some(group) if group.total < host.total => Amount { total: group.total, free: group.free.min(host.free) },
        _ => host,
    }
}

/// The limit of our own control group, of either version. Guests in groups beside ours have their own.
fn cgroup_memory() -> Option<Amount> {
    let groups = text("/proc/self/cgroup");
    let root = Path::new("/sys/fs/cgroup");
    groups.lines().find_map(|line| {
        let mut parts = line.splitn(3, ':');
        let (_, controllers, path) = (parts.next()?, parts.next()?, parts.next()?.trim_start_matches('/'));
        let (limit, usage) = match controllers {
            "" => (root.join(path).join("memory.max"), root.join(path).join("memory.current")),
            "memory" => {
                let dir = root.join("memory").join(path);
                (dir.join("memory.limit_in_bytes"), dir.join("memory.usage_in_bytes"))
            }
            _ => return None,
        };
        let number = |path: &Path| fs::read_to_string(path).ok()?.trim().parse::<u64>().ok();
        let total = number(&limit)?;
        Some(Amount { total, free: total.saturating_sub(number(&usage).unwrap_or(0)) })
    })
}

fn disk(dir: &Path) -> Amount {
    let Ok(stats) = rustix::fs::statvfs(dir) else { return Amount::default() };
    Amount { total: stats.f_blocks.saturating_mul(stats.f_frsize), free: stats.f_bavail.saturating_mul(stats.f_frsize) }
}

fn processes() -> Amount {
    let max = text("/proc/sys/kernel/pid_max").trim().parse().unwrap_or(0);
    // The fourth field is "running/all".
    let load = text("/proc/loadavg");
    let all: u64 = load.split_whitespace().nth(3).and_then(|f| f.split_once('/')?.1.parse().ok()).unwrap_or(0);
    Amount { total: max, free: max.saturating_sub(all) }
}

fn hugepages(dir: &Path) -> BTreeMap<String, u64> {
    let Ok(entries) = fs::read_dir(dir) else { return BTreeMap::new() };
    let sizes = entries.flatten().filter_map(|entry| {
        let name = entry.file_name().into_string().ok()?;
        let kib: u64 = name.strip_prefix("hugepages-")?.strip_suffix("kB")?.parse().ok()?;
        let pages: u64 = fs::read_to_string(entry.path().join("nr_hugepages")).ok()?.trim().parse().ok()?;
        let size = if kib.is_multiple_of(MIB) { format!("{}Gi", kib / MIB) } else { format!("{}Mi", kib / 1024) };
        Some((size, pages.checked_mul(kib * 1024)?))
    });
    sizes.collect()
}

fn kibibytes(bytes: u64) -> String {
    if bytes == 0 { "0".to_owned() } else { format!("{}Ki", bytes / 1024) }
}

/// A file that is not there says nothing.
fn text(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_has_what_every_machine_has() {
        let host = Host::read(Path::new("/"));
        assert!(host.cpus > 0 && host.memory.total > 0 && host.disk.total > 0 && host.processes.total > 0);
        assert!(!host.system.kernel_version.is_empty() && !host.system.boot_id.is_empty());
    }

    #[test]
    fn allocatable_is_less_than_capacity_and_never_negative() {
        let small = Host { cpus: 1, memory: Amount { total: 64 * MIB, free: 0 }, ..Host::default() };
        let capacity = small.capacity(false);
        assert_eq!(capacity["memory"], "65536Ki");
        assert_eq!(capacity["devices.kubevirt.io/kvm"], "0");
        let allocatable = small.allocatable(&capacity);
        assert_eq!((allocatable["memory"].as_str(), allocatable["cpu"].as_str()), ("0", "900m"));
    }

    #[test]
    fn a_group_limit_counts_only_if_it_is_lower() {
        let host = Amount { total: 1000, free: 500 };
        let group = |total, free| Some(Amount { total, free });
        assert_eq!(limited(host, None), host);
        assert_eq!(limited(host, group(u64::MAX, 9)), host);
        assert_eq!(limited(host, group(100, 40)), Amount { total: 100, free: 40 });
        assert_eq!(limited(host, group(900, 800)), Amount { total: 900, free: 500 });
    }

    #[test]
    fn operating_systems_are_named() {
        for (text, expected) in [
            (
                "NAME=\"Debian GNU/Linux\"\nPRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\n",
                "Debian GNU/Linux 12 (bookworm)",
            ),
            ("PRETTY_NAME='Arch Linux'\n", "Arch Linux"),
            ("NAME=Void\n", "Void"),
            ("", "Linux"),
        ] {
            assert_eq!(os_image(text), expected);
        }
    }

    #[test]
    fn hugepages_are_named_as_kubernetes_names_them() {
        let dir = tempfile::tempdir().unwrap();
        for (name, pages) in [("hugepages-2048kB", "3\n"), ("hugepages-1048576kB", "1\n"), ("other", "9\n")] {
            fs::create_dir(dir.path().join(name)).unwrap();
            fs::write(dir.path().join(name).join("nr_hugepages"), pages).unwrap();
        }
        let found = hugepages(dir.path());
        assert_eq!(found, BTreeMap::from([("2Mi".to_owned(), 6 * MIB), ("1Gi".to_owned(), 1024 * MIB)]));
    }
}
