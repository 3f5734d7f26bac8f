//! The networks of this host as they are wanted, and how they get there.

mod directory;
mod plug;
mod turn;
mod watch;

use std::collections::HashMap;
use std::fs;
use std::io::{self, Write as _};
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ipnet::{IpNet, Ipv4Net};
use parking_lot::Mutex;
use tokio::sync::{Notify, watch as channel};
use tokio::task::{AbortHandle, JoinSet};

pub use self::plug::Tap;
use crate::error::NetError;
use crate::firewall::elements::{self, Element};
use crate::firewall::{Change, Netfilter, Rules};
use crate::links::{Link, Links};
use crate::nic::{Nic, hash, hex};
use crate::records::{Plugged, Records};
use crate::subnet::{ROUTER, Subnet};
use crate::{Mac, sys, sysctl};

/// The largest packet where nothing on the way demands less.
const MTU: u32 = 1500;
/// IPv6 needs this much.
const SMALLEST_MTU: u32 = 1280;

#[derive(Debug, Clone)]
pub struct Config {
    /// Where the networks' files are. Names of links and tables follow from it, so that two may share a host.
    pub dir: PathBuf,
    /// The default network's subnet; chosen among private ranges when `None`, and then remembered.
    pub subnet: Option<Ipv4Net>,
    /// Tells the resolvers that questions of guests go to.
    pub resolv_conf: PathBuf,
}

/// What our links and tables are called.
#[derive(Debug, Clone)]
struct Names {
    bridge: String,
    /// How taps begin: on the default network; on a bridge, with and without a check of the hardware address.
    nat: String,
    checked: String,
    free: String,
}

impl Names {
    fn of(dir: &Path) -> Names {
        let id = hex(&hash(&[&dir.to_string_lossy()])[..2]);
        Names {
            bridge: format!("croft-{id}"),
            nat: format!("ct{id}"),
            checked: format!("cm{id}"),
            free: format!("cb{id}"),
        }
    }

    fn is_tap(&self, link: &str) -> bool {
        [&self.nat, &self.checked, &self.free].iter().any(|prefix| link.starts_with(*prefix))
    }
}

/// The networks of this host. Guests keep them when it is dropped.
#[derive(Debug)]
pub struct Host {
    inner: Arc<Inner>,
    watcher: AbortHandle,
}

#[derive(Debug)]
struct Inner {
    config: Config,
    names: Names,
    links: Links,
    subnet: Subnet,
    rules: Rules,
    netfilter: Netfilter,
    mtu: u32,
    router_mac: Mac,
    records: Mutex<Records>,
    /// Held while links or sets are being changed.
    turn: tokio::sync::Mutex<()>,
    services: Mutex<JoinSet<()>>,
    snoops: Mutex<HashMap<String, AbortHandle>>,
    changes: channel::Sender<u64>,
    /// Something may have to be put right.
    alarm: Notify,
}

impl Drop for Host {
    fn drop(&mut self) {
        self.watcher.abort();
        self.inner.services.lock().abort_all();
        self.inner.snoops.lock().values().for_each(AbortHandle::abort);
    }
}

impl Host {
    /// Makes the default network, or finds it as it was left. Fails without the rights for it:
    /// see [`NetError::is_lack_of_rights`].
    pub async fn start(config: Config) -> Result<Host, NetError> {
        fs::create_dir_all(&config.dir).map_err(|source| file("create", &config.dir, source))?;
        let dir = fs::canonicalize(&config.dir).map_err(|source| file("find", &config.dir, source))?;
        let config = Config { dir, ..config };
        let names = Names::of(&config.dir);
        sys::open_tap(&format!("{}try", names.free), 1).map_err(NetError::Tap)?;
        let links = Links::connect()?;
        // Until our subnet shows in the routes, nobody else may look for a free one.
        let choosing = turn::take().await;
        let own = links.find(&names.bridge).await?.map(|bridge| bridge.index);
        let (taken, uplink) = links.routes4(own).await?;
        let subnet = choose_subnet(&config, &taken)?;
        let rules = Rules {
            table: names.bridge.clone(),
            bridge: names.bridge.clone(),
            nat_taps: names.nat.clone(),
            checked_taps: names.checked.clone(),
            subnet,
        };
        let inner = Inner {
            mtu: uplink_mtu(&links, uplink).await?,
            router_mac: router_mac(&names.bridge),
            records: Mutex::new(Records::open(&config.dir.join("interfaces"), &subnet)?),
            netfilter: Netfilter::new(&rules.table),
            config,
            names,
            links,
            subnet,
            rules,
            turn: tokio::sync::Mutex::default(),
            services: Mutex::default(),
            snoops: Mutex::default(),
            changes: channel::Sender::new(0),
            alarm: Notify::new(),
        };
        let inner = Arc::new(inner);
        inner.restore(true).await?;
        drop(choosing);
        let watcher = tokio::spawn(watch::run(Arc::clone(&inner))).abort_handle();
        Ok(Host { inner, watcher })
    }

    pub fn subnet(&self) -> Subnet {
        self.inner.subnet
    }

    /// The bridge of the default network.
    pub fn bridge(&self) -> &str {
        &self.inner.names.bridge
    }

    /// Counts up whenever an answer of [`Host::addresses`] may have changed.
    pub fn changes(&self) -> channel::Receiver<u64> {
        self.inner.changes.subscribe()
    }

    /// The addresses that the guest with this hardware address is known to use, IPv4 first.
    pub fn addresses(&self, mac: Mac) -> Vec<IpAddr> {
        let plugged = self.inner.records.lock().by_mac(mac);
        plugged.map(|plugged| self.inner.addresses_of(&plugged)).unwrap_or_default()
    }

    /// Where a port of a guest is reached from this host. On the default network a guest has its address before it
    /// asks for it.
    pub fn dial_address(&self, vmi_uid: &str, nic_name: &str, port: u16) -> Option<SocketAddr> {
        let plugged = self.inner.records.lock().find(vmi_uid, nic_name)?;
        let address = match plugged.index {
            Some(index) => self.inner.subnet.address4(index).into(),
            None => *self.inner.addresses_of(&plugged).first()?,
        };
        Some(SocketAddr::new(address, port))
    }

    /// The link behind an interface that is plugged in.
    pub fn tap(&self, vmi_uid: &str, nic_name: &str) -> Option<String> {
        Some(self.inner.records.lock().find(vmi_uid, nic_name)?.tap)
    }

    /// The interfaces that are plugged in, by the uid of their guest and their name.
    pub fn plugged(&self) -> Vec<(String, String)> {
        self.inner.records.lock().plugged().map(|plugged| (plugged.nic.vmi_uid, plugged.nic.name)).collect()
    }

    /// Gives up the addresses of a machine that will not come back.
    pub fn forget_machine(&self, namespace: &str, vm_name: &str) -> Result<(), NetError> {
        self.inner.records.lock().forget_machine(namespace, vm_name)
    }

    /// The machines, by namespace and name, that have addresses but are not plugged in.
    pub fn idle_machines(&self) -> Vec<(String, String)> {
        self.inner.records.lock().idle_machines()
    }

    /// Removes everything that was ever made for these networks: links, rules and files. Guests lose them.
    pub async fn remove_all(self) -> Result<(), NetError> {
        self.watcher.abort();
        self.inner.services.lock().abort_all();
        let _turn = self.inner.turn.lock().await;
        Self::remove(&self.inner.config.dir).await
    }

    /// The same when nobody runs them.
    pub async fn remove(dir: &Path) -> Result<(), NetError> {
        let dir = match fs::canonicalize(dir) {
            Ok(dir) => dir,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(source) => return Err(file("find", dir, source)),
        };
        let names = Names::of(&dir);
        let links = Links::connect()?;
        for link in links.all().await?.iter().filter(|link| names.is_tap(&link.name)) {
            links.delete(&link.name).await?;
        }
        links.delete(&names.bridge).await?;
        let subnet = Subnet::choose(Some(Ipv4Net::new_assert([10, 52, 0, 0].into(), 16)), &[], [0; 5])?;
        let rules = Rules {
            table: names.bridge.clone(),
            bridge: names.bridge,
            nat_taps: names.nat,
            checked_taps: names.checked,
            subnet,
        };
        rules.remove().await?;
        fs::remove_dir_all(&dir).map_err(|source| file("remove", &dir, source))
    }
}

impl Inner {
    /// Makes everything as it should be. With `is_fresh`, or when the bridge had to be made, the services start anew.
    async fn restore(self: &Arc<Self>, is_fresh: bool) -> Result<(), NetError> {
        let _turn = self.turn.lock().await;
        sysctl::forward()?;
        let (bridge, is_new) = self.ensure_bridge().await?;
        let plugged: Vec<Plugged> = self.records.lock().plugged().collect();
        for link in self.links.all().await?.iter().filter(|link| self.names.is_tap(&link.name)) {
            match plugged.iter().find(|plugged| plugged.tap == link.name) {
                Some(plugged) => self.attach(plugged, link).await?,
                None => self.links.delete(&link.name).await?,
            }
        }
        self.ensure_rules().await?;
        if is_new || is_fresh {
            self.start_services(&bridge).await?;
        }
        Ok(())
    }

    async fn ensure_bridge(&self) -> Result<(Link, bool), NetError> {
        let name = &self.names.bridge;
        let (bridge, is_new) = match self.links.find(name).await? {
            Some(link) if !link.is_bridge => return Err(NetError::NotABridge(name.clone())),
            Some(bridge) => (bridge, false),
            None => (self.links.add_bridge(name, self.router_mac, self.mtu).await?, true),
        };
        sysctl::prepare_bridge(name)?;
        self.links.set_up(&bridge).await?;
        let mut wanted: Vec<(IpAddr, u8)> = vec![(self.subnet.gateway4().into(), self.subnet.v4.prefix_len())];
        if sysctl::has_ipv6() {
            wanted.extend([(ROUTER.into(), 64), (self.subnet.gateway6().into(), 128)]);
        }
        let present = self.links.addresses(&bridge).await?;
        // Of a subnet that was another once.
        for old in present.iter().filter_map(|net| match net {
            IpNet::V4(net) if IpAddr::V4(net.addr()) != wanted[0].0 || net.prefix_len() != wanted[0].1 => Some(*net),
            _ => None,
        }) {
            self.links.delete_address(&bridge, old).await?;
        }
        for (address, length) in wanted {
            if !present.iter().any(|net| net.addr() == address && net.prefix_len() == length) {
                self.links.add_address(&bridge, address, length).await?;
            }
        }
        Ok((bridge, is_new))
    }

    /// Loads the rules if they are not there, and fills their sets anew.
    async fn ensure_rules(&self) -> Result<(), NetError> {
        if !self.has_rules().await? {
            self.rules.load().await?;
        }
        let add = self.records.lock().plugged().flat_map(|plugged| self.elements_of(&plugged)).collect();
        self.filter(Change { is_flush: true, add, ..Change::default() }).await
    }

    async fn has_rules(&self) -> Result<bool, NetError> {
        let (netfilter, marker) = (self.netfilter.clone(), self.rules.marker());
        Ok(blocking(move || netfilter.has_chain(&marker)).await?)
    }

    async fn filter(&self, change: Change) -> Result<(), NetError> {
        let netfilter = self.netfilter.clone();
        Ok(blocking(move || netfilter.apply(&change)).await?)
    }

    fn elements_of(&self, plugged: &Plugged) -> Vec<Element> {
        elements::of(&plugged.nic, &plugged.tap, plugged.index, &self.subnet)
    }

    fn addresses_of(&self, plugged: &Plugged) -> Vec<IpAddr> {
        let leased = plugged.index.filter(|_| plugged.is_bound).map(|index| self.subnet.address4(index).into());
        let mut addresses: Vec<IpAddr> = leased.into_iter().collect();
        // The latest first, as the older ones may be gone.
        addresses.extend(plugged.learned.iter().rev());
        addresses.sort_by_key(IpAddr::is_ipv6);
        addresses
    }

    fn announce(&self) {
        self.changes.send_modify(|count| *count += 1);
    }

    fn tap_name(&self, nic: &Nic) -> String {
        use crate::nic::Attachment;
        let prefix = match nic.attachment {
            Attachment::Nat { .. } => &self.names.nat,
            Attachment::Bridge { checks_mac: true, .. } => &self.names.checked,
            Attachment::Bridge { .. } => &self.names.free,
        };
        let digits = hex(&hash(&[&nic.vmi_uid, &nic.name])[..5]);
        format!("{prefix}{}", &digits[..9])
    }
}

/// Runs a short call into the kernel where it disturbs nobody. The runtime gives no answer only while it shuts down.
async fn blocking<T: Send + 'static, E: Send + 'static>(
    call: impl FnOnce() -> Result<T, E> + Send + 'static,
) -> Result<T, E> {
    match tokio::task::spawn_blocking(call).await {
        Ok(result) => result,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            Err(_) => std::future::pending().await,
        },
    }
}

/// The subnet that was chosen before, or a new one that is then remembered.
fn choose_subnet(config: &Config, taken: &[Ipv4Net]) -> Result<Subnet, NetError> {
    let path = config.dir.join("subnet.json");
    let remembered: Option<Subnet> = fs::read(&path).ok().and_then(|content| serde_json::from_slice(&content).ok());
    if let Some(subnet) = remembered
        && config.subnet.is_none_or(|wanted| wanted.trunc() == subnet.v4)
    {
        return Ok(subnet);
    }
    let mut random = [0; 5];
    getrandom::fill(&mut random).map_err(|error| file("choose", &path, io::Error::other(error)))?;
    let mut subnet = Subnet::choose(config.subnet, taken, random)?;
    if let Some(remembered) = remembered {
        subnet.v6 = remembered.v6;
    }
    let temporary = path.with_extension("new");
    let written = || -> io::Result<()> {
        let mut to = fs::File::create(&temporary)?;
        to.write_all(&serde_json::to_vec(&subnet)?)?;
        to.sync_all()?;
        fs::rename(&temporary, &path)?;
        fs::File::open(&config.dir)?.sync_all()
    };
    written().map_err(|source| file("write", &path, source))?;
    Ok(subnet)
}

/// Packets of guests must fit through what the host sends them on.
async fn uplink_mtu(links: &Links, uplink: Option<u32>) -> Result<u32, NetError> {
    let Some(uplink) = uplink else { return Ok(MTU) };
    let found = links.all().await?.into_iter().find(|link| link.index == uplink);
    Ok(found.map_or(MTU, |link| link.mtu.clamp(SMALLEST_MTU, MTU)))
}

/// Always the same, so that guests do not have to learn it anew.
fn router_mac(bridge: &str) -> Mac {
    let [a, b, c, d, ..] = hash(&[bridge]);
    Mac([0x02, 0xcf, a, b, c, d])
}

fn file(operation: &'static str, path: &Path, source: io::Error) -> NetError {
    NetError::File { operation, path: path.to_owned(), source }
}

#[cfg(test)]
mod tests;
