//! A small network of its own: hosts in network namespaces, each with a wire to one switch, to be cut and mended.
//!
//! Nothing of it touches the machine's own network. The test itself sits in the switch's namespace ([`Lan::block_on`]), where
//! it can reach every host.

use std::fs::File;
use std::os::fd::AsFd as _;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context, Result, bail};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// Names of namespaces: this, the process, a number, the host.
const PREFIX: &str = "croft-lan-";
/// Every such network has the same addresses, since none knows of another.
const NETWORK: &str = "10.77.0";
const SWITCH: &str = "switch";
/// The firewall's table, which is there only while something is cut.
const TABLE: &str = "cut";

/// Dropping it takes it away. Processes in it must have been ended before.
#[derive(Debug)]
pub struct Lan {
    id: String,
    hosts: Vec<Host>,
}

/// One namespace with one address.
#[derive(Debug, Clone)]
pub struct Host {
    namespace: String,
    pub address: String,
    /// Its wire's end at the switch, and the switch.
    port: String,
    switch: String,
}

/// Which packets of a host are lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lost {
    Incoming,
    Outgoing,
    Both,
}

impl Lan {
    /// A switch and as many hosts.
    pub fn new(hosts: usize) -> Result<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        sweep();
        let id = format!("{PREFIX}{}-{}-", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let mut lan = Self { id, hosts: Vec::new() };
        let switch = lan.switch();
        ip(&format!("netns add {switch}"))?;
        ip(&format!("-n {switch} link set lo up"))?;
        ip(&format!("-n {switch} link add br0 type bridge"))?;
        ip(&format!("-n {switch} addr add {NETWORK}.1/24 dev br0"))?;
        ip(&format!("-n {switch} link set br0 up"))?;
        for number in 0..hosts {
            let host = Host {
                namespace: format!("{}{number}", lan.id),
                address: format!("{NETWORK}.{}", number + 10),
                port: format!("port{number}"),
                switch: switch.clone(),
            };
            // Known before it is complete, so that it is taken away if this fails.
            lan.hosts.push(host.clone());
            host.set_up()?;
        }
        Ok(lan)
    }

    pub fn hosts(&self) -> &[Host] {
        &self.hosts
    }

    fn switch(&self) -> String {
        format!("{}{SWITCH}", self.id)
    }

    /// Runs `work` on threads that are in the switch's namespace. What they start is there as well.
    pub fn block_on<F: Future<Output: Send>>(&self, work: impl FnOnce() -> F + Send) -> F::Output {
        let namespace = Arc::new(open(&self.switch()).expect("the namespace was made with the network"));
        let enter = move || {
            move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network)).expect("root may enter it");
        };
        std::thread::scope(|scope| {
            let thread = scope.spawn(move || {
                enter();
                let mut builder = tokio::runtime::Builder::new_multi_thread();
                let runtime = builder.worker_threads(2).enable_all().on_thread_start(enter).build();
                runtime.expect("threads can be had").block_on(work())
            });
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }
}

impl Drop for Lan {
    fn drop(&mut self) {
        for host in &self.hosts {
            let _ = ip(&format!("netns del {}", host.namespace));
        }
        let _ = ip(&format!("netns del {}", self.switch()));
    }
}

impl Host {
    fn set_up(&self) -> Result<()> {
        let Self { namespace, address, port, switch } = self;
        ip(&format!("netns add {namespace}"))?;
        ip(&format!("-n {switch} link add {port} type veth peer name eth0 netns {namespace}"))?;
        ip(&format!("-n {switch} link set {port} master br0 up"))?;
        ip(&format!("-n {namespace} link set lo up"))?;
        ip(&format!("-n {namespace} addr add {address}/24 dev eth0"))?;
        ip(&format!("-n {namespace} link set eth0 up"))?;
        Ok(())
    }

    /// What starts a program there; it becomes that program.
    pub fn wrapper(&self) -> Vec<String> {
        ["ip", "netns", "exec", &self.namespace].map(str::to_owned).to_vec()
    }

    /// Drops what goes between it and `others`, and says nothing to either.
    pub fn cut_from(&self, others: &[&Self], lost: Lost) -> Result<()> {
        let addresses = others.iter().map(|other| other.address.as_str()).collect::<Vec<_>>().join(", ");
        let chain = |name: &str, hook: &str, side: &str| {
            format!(
                "add chain inet {TABLE} {name} {{ type filter hook {hook} priority 0; }}\n\
                 add rule inet {TABLE} {name} ip {side} {{ {addresses} }} drop\n"
            )
        };
        let incoming = if lost == Lost::Outgoing { String::new() } else { chain("in", "input", "saddr") };
        let outgoing = if lost == Lost::Incoming { String::new() } else { chain("out", "output", "daddr") };
        let rules = format!("add table inet {TABLE}\n{incoming}{outgoing}");
        run("ip", &["netns", "exec", &self.namespace, "nft", &rules])
    }

    /// Pulls its plug.
    pub fn unplug(&self) -> Result<()> {
        ip(&format!("-n {} link set {} down", self.switch, self.port))
    }

    /// Undoes [`Self::cut_from`] and [`Self::unplug`].
    pub fn mend(&self) -> Result<()> {
        // Adding it first makes it sure to be there.
        let rules = format!("add table inet {TABLE}\ndelete table inet {TABLE}\n");
        run("ip", &["netns", "exec", &self.namespace, "nft", &rules])?;
        ip(&format!("-n {} link set {} up", self.switch, self.port))
    }

    /// Lets packets to it pass slowly, if this kernel can do that: `false` if not.
    pub fn slow_down(&self, milliseconds: u32) -> Result<bool> {
        let Self { switch, port, .. } = self;
        let delay = format!("{milliseconds}ms");
        let netem = ["tc", "qdisc", "add", "dev", port, "root", "netem", "delay", &delay];
        match run("ip", &[&["netns", "exec", switch.as_str()], &netem[..]].concat()) {
            Ok(()) => Ok(true),
            Err(err) if err.to_string().contains("qdisc kind is unknown") => Ok(false),
            Err(err) => Err(err),
        }
    }

    pub fn speed_up(&self) -> Result<()> {
        run("ip", &["netns", "exec", &self.switch, "tc", "qdisc", "del", "dev", &self.port, "root"])
    }
}

fn open(namespace: &str) -> Result<File> {
    File::open(format!("/run/netns/{namespace}")).with_context(|| format!("open {namespace}"))
}

/// Takes away what killed test runs have left.
fn sweep() {
    let Ok(entries) = std::fs::read_dir("/run/netns") else { return };
    for name in entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()) {
        let owner = name.strip_prefix(PREFIX).and_then(|rest| rest.split('-').next());
        let Some(owner) = owner.filter(|owner| owner.bytes().all(|byte| byte.is_ascii_digit())) else { continue };
        if !std::path::Path::new("/proc").join(owner).exists() {
            let _ = ip(&format!("netns del {name}"));
        }
    }
}

fn ip(args: &str) -> Result<()> {
    run("ip", &args.split_whitespace().collect::<Vec<_>>())
}

fn run(program: &str, args: &[&str]) -> Result<()> {
    let output = Command::new(program).args(args).output().with_context(|| format!("start {program}"))?;
    if !output.status.success() {
        bail!("{program} {}: {}", args.join(" "), String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt as _;
    use tokio::net::{TcpListener, TcpStream};

    use super::*;
    use crate::eventually;

    #[test]
    fn wires_are_cut_and_mended_and_all_is_taken_away() {
        let lan = Lan::new(2).unwrap();
        let (here, there) = (&lan.hosts()[0], &lan.hosts()[1]);
        let ping = |times: &str| {
            let wait = ["-c", times, "-i", "0.01", "-W", "0.2", "-q", &there.address];
            let (program, args) = here.wrapper().split_first().map(|(p, a)| (p.clone(), a.to_vec())).unwrap();
            Command::new(program).args(args).arg("ping").args(wait).output().unwrap().status.success()
        };
        assert!(ping("1"));
        for lost in [Lost::Both, Lost::Incoming, Lost::Outgoing] {
            here.cut_from(&[there], lost).unwrap();
            assert!(!ping("2"), "{lost:?}");
            here.mend().unwrap();
            assert!(ping("1"), "{lost:?}");
        }
        there.unplug().unwrap();
        assert!(!ping("2"));
        there.mend().unwrap();
        assert!(ping("3"));
        let switch = lan.switch();
        assert!(open(&switch).is_ok());
        drop(lan);
        assert!(open(&switch).is_err());
    }

    #[test]
    fn a_test_sits_at_the_switch() {
        let lan = Lan::new(1).unwrap();
        lan.block_on(async || {
            let listener = TcpListener::bind((format!("{NETWORK}.1"), 0)).await.unwrap();
            let address = listener.local_addr().unwrap();
            let reader = tokio::spawn(async move {
                let mut text = String::new();
                TcpStream::connect(address).await.unwrap().read_to_string(&mut text).await.unwrap();
            });
            listener.accept().await.unwrap();
            eventually("the reader ends", async || if reader.is_finished() { Ok(()) } else { Err("not yet") }).await;
        });
    }
}
