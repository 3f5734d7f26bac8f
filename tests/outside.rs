//! Somebody beyond the node: a network namespace of its own, with a wire to the host.

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd as _;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// What nobody answers takes this long.
const PATIENCE: Duration = Duration::from_secs(10);

/// A neighbour of this host. Dropping it takes it away.
#[derive(Debug)]
pub struct Outside {
    namespace: String,
    /// The host's end of the wire.
    pub link: String,
}

impl Outside {
    /// The wire is up; addresses and bridges are for the caller.
    pub fn new() -> Result<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let id = format!("{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let outside = Self { namespace: format!("croft-{id}"), link: format!("cv{id}") };
        let Self { namespace, link } = &outside;
        ip(&format!("netns add {namespace}"))?;
        ip(&format!("link add {link} type veth peer name wire netns {namespace}"))?;
        ip(&format!("link set {link} up"))?;
        ip(&format!("-n {namespace} link set lo up"))?;
        ip(&format!("-n {namespace} link set wire up"))?;
        Ok(outside)
    }

    /// A neighbour that the host reaches by these networks: the host is .1, the neighbour .2.
    pub fn with_addresses(networks: &[(IpAddr, IpAddr, u8)]) -> Result<Self> {
        let outside = Self::new()?;
        for (host, there, length) in networks {
            // No waiting for somebody who might have the address already.
            let now = if host.is_ipv6() { " nodad" } else { "" };
            ip(&format!("addr add {host}/{length} dev {}{now}", outside.link))?;
            outside.ip(&format!("addr add {there}/{length} dev wire{now}"))?;
        }
        Ok(outside)
    }

    /// `ip` on the other side.
    pub fn ip(&self, args: &str) -> Result<String> {
        ip(&format!("-n {} {args}", self.namespace))
    }

    /// A web server there that tells its visitors who they are.
    pub fn serve(&self, address: SocketAddr) -> Result<()> {
        let listener = self.inside(move || TcpListener::bind(address).context("bind"))?;
        std::thread::spawn(move || {
            // Goes on until the test does not.
            for mut visitor in listener.incoming().flatten() {
                let name = visitor.peer_addr().map(|peer| peer.ip().to_string()).unwrap_or_default();
                let _ = visitor.read(&mut [0; 1024]);
                let _ = write!(visitor, "HTTP/1.0 200 OK\r\n\r\nyou are {name}\n");
            }
        });
        Ok(())
    }

    /// What a web server answers that is visited from there.
    pub fn visit(&self, address: SocketAddr) -> Result<String> {
        self.inside(move || {
            let mut stream = TcpStream::connect_timeout(&address, PATIENCE)?;
            stream.set_read_timeout(Some(PATIENCE))?;
            stream.write_all(b"GET / HTTP/1.0\r\n\r\n")?;
            let mut text = String::new();
            stream.read_to_string(&mut text)?;
            Ok(text)
        })
    }

    /// Runs something on a thread that is there. Sockets stay where they were made.
    pub fn inside<T: Send + 'static>(&self, work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
        let file = std::fs::File::open(format!("/run/netns/{}", self.namespace))?;
        let thread = std::thread::spawn(move || {
            move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))?;
            work()
        });
        thread.join().map_err(|_| anyhow::anyhow!("a thread beyond the node failed"))?
    }
}

impl Drop for Outside {
    fn drop(&mut self) {
        let _ = ip(&format!("link del {}", self.link));
        let _ = ip(&format!("netns del {}", self.namespace));
    }
}

/// A bridge of the host's own. Dropping it takes it away.
#[derive(Debug)]
pub struct Bridge(pub String);

impl Bridge {
    pub fn new(name: &str, options: &str) -> Result<Self> {
        ip(&format!("link add {name} type bridge {options}"))?;
        let bridge = Self(name.to_owned());
        ip(&format!("link set {name} up"))?;
        Ok(bridge)
    }
}

impl Drop for Bridge {
    fn drop(&mut self) {
        let _ = ip(&format!("link del {}", self.0));
    }
}

/// `ip`, and what it says.
pub fn ip(args: &str) -> Result<String> {
    run("ip", args)
}

/// A program of the host with words as arguments.
pub fn run(program: &str, args: &str) -> Result<String> {
    let output = Command::new(program).args(args.split_whitespace()).output().with_context(|| program.to_owned())?;
    if !output.status.success() {
        bail!("{program} {args}: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
