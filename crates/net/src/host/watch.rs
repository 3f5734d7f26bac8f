//! The services of the default network, and what puts things right when somebody removes them.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures::StreamExt as _;
use rtnetlink::MulticastGroup;
use rtnetlink::packet_core::NetlinkPayload;
use rtnetlink::packet_route::RouteNetlinkMessage;
use rtnetlink::packet_route::link::{LinkAttribute, LinkFlags};
use tokio::task::JoinSet;

use super::Inner;
use super::directory::Names;
use crate::error::NetError;
use crate::firewall::{Listener, Netfilter};
use crate::links::Link;
use crate::nic::Nic;
use crate::router::{Advertisement, Guests, Router};
use crate::{Mac, dhcp, dns, sysctl};

/// Changes are heard of at once; what is missed is found this often.
const LOOK: Duration = Duration::from_mins(1);
/// After a failure to put something right.
const PAUSE: Duration = Duration::from_secs(5);

impl Inner {
    /// Starts all services anew.
    pub(super) async fn start_services(self: &Arc<Self>, bridge: &Link) -> Result<(), NetError> {
        // The old ones hold the ports until they are gone.
        let mut old = std::mem::take(&mut *self.services.lock());
        old.shutdown().await;
        *self.services.lock() = self.open_services(bridge)?;
        Ok(())
    }

    fn open_services(self: &Arc<Self>, bridge: &Link) -> Result<JoinSet<()>, NetError> {
        let mut services = JoinSet::new();
        let weak = Arc::downgrade(self);
        let failed = Arc::new(AtomicBool::new(false));
        let ended = {
            let weak = weak.clone();
            move |service: &'static str, error: io::Error| {
                let Some(inner) = weak.upgrade() else { return };
                tracing::warn!(service, %error, "a service of the default network failed; starting all anew");
                if !failed.swap(true, Ordering::Relaxed) {
                    inner.alarm.notify_one();
                }
            }
        };

        let server = dhcp::Server::open(bridge)?;
        let (finder, binder, end) = (weak.clone(), weak.clone(), ended.clone());
        services.spawn(async move {
            let find = |mac| finder.upgrade()?.offer(mac);
            let bound = |address: Ipv4Addr| {
                let Some(inner) = binder.upgrade() else { return };
                let Some(index) = inner.subnet.index_of(address.into()) else { return };
                inner.note(|records| records.bind(index));
            };
            end("dhcp", server.serve(find, bound).await);
        });

        let mut addresses: Vec<IpAddr> = vec![self.subnet.gateway4().into()];
        if sysctl::has_ipv6() {
            addresses.push(self.subnet.gateway6().into());
            let router = Router::open(bridge)?;
            let (guests, end) = (Neighbours(weak.clone()), ended.clone());
            services.spawn(async move { end("router", router.serve(&guests).await) });
        }
        for address in addresses.clone() {
            let server = dns::Server::open(address, &bridge.name)?;
            let resolvers = dns::Resolvers { file: self.config.resolv_conf.clone(), except: addresses.clone() };
            let (directory, end) = (Arc::new(Names(weak.clone())), ended.clone());
            services.spawn(async move { end("dns", server.serve(directory, resolvers).await) });
        }
        Ok(services)
    }

    fn offer(&self, mac: Mac) -> Option<dhcp::Offer> {
        let (plugged, index) = self.nat_guest(mac)?;
        Some(dhcp::Offer {
            address: self.subnet.address4(index),
            mask: self.subnet.v4.netmask(),
            gateway: self.subnet.gateway4(),
            domains: domains(&plugged.nic),
            hostname: plugged.nic.hostname,
            told: plugged.nic.told,
            // At most 1500.
            mtu: u16::try_from(self.mtu).unwrap_or(u16::MAX),
        })
    }

    fn advertisement(&self, mac: Mac) -> Option<Advertisement> {
        let (plugged, index) = self.nat_guest(mac)?;
        Some(Advertisement {
            prefix: self.subnet.prefix6(index),
            resolver: (!plugged.nic.told.is_without_host_names).then(|| self.subnet.gateway6()),
            domains: domains(&plugged.nic),
            mtu: self.mtu,
            router_mac: self.router_mac,
            host: self.subnet.gateway6(),
        })
    }

    fn knows6(&self, mac: Mac) -> bool {
        self.nat_guest(mac).is_some_and(|(plugged, _)| plugged.learned.iter().any(IpAddr::is_ipv6))
    }

    fn nat_macs(&self) -> Vec<Mac> {
        self.records.lock().plugged().filter(|plugged| plugged.index.is_some()).map(|plugged| plugged.nic.mac).collect()
    }

    fn learn6(&self, mac: Mac, address: Ipv6Addr) {
        let Some((plugged, index)) = self.nat_guest(mac) else { return };
        // Beyond its own prefix it could not use it anyway.
        if self.subnet.prefix6(index).contains(&address) {
            self.note(|records| records.learn(&plugged.nic.key(), address.into()));
        }
    }

    /// Whether somebody removed what we made.
    async fn is_damaged(&self) -> Result<bool, NetError> {
        let bridge = self.links.find(&self.names.bridge).await?;
        Ok(bridge.is_none_or(|bridge| !bridge.is_up) || !self.has_rules().await?)
    }
}

/// The guests of the default network, for the router. Services must not keep alive what keeps them alive.
struct Neighbours(Weak<Inner>);

impl Guests for Neighbours {
    fn all(&self) -> Vec<Mac> {
        self.0.upgrade().map(|inner| inner.nat_macs()).unwrap_or_default()
    }

    fn find(&self, mac: Mac) -> Option<Advertisement> {
        self.0.upgrade()?.advertisement(mac)
    }

    fn is_known(&self, mac: Mac) -> bool {
        self.0.upgrade().is_some_and(|inner| inner.knows6(mac))
    }

    fn seen(&self, mac: Mac, address: Ipv6Addr) {
        if let Some(inner) = self.0.upgrade() {
            inner.learn6(mac, address);
        }
    }
}

/// Puts things right whenever there is reason to. Ends only by being aborted.
pub(super) async fn run(inner: Arc<Inner>) {
    let mut ears = Ears::open(&inner.names.bridge);
    loop {
        let reason = tokio::select! {
            () = inner.alarm.notified() => Reason::ServiceFailed,
            () = ears.wait() => Reason::Changed,
            () = tokio::time::sleep(LOOK) => Reason::Look,
        };
        if let Err(error) = put_right(&inner, reason).await {
            tracing::warn!(%error, "cannot put the default network right; trying again");
            tokio::time::sleep(PAUSE).await;
            inner.alarm.notify_one();
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Reason {
    ServiceFailed,
    Changed,
    Look,
}

async fn put_right(inner: &Arc<Inner>, reason: Reason) -> Result<(), NetError> {
    let is_damaged = {
        // A change of our own that is under way is no damage.
        let _turn = inner.turn.lock().await;
        inner.is_damaged().await?
    };
    if is_damaged {
        tracing::warn!("the bridge or the rules of the default network are gone; making them anew");
    }
    match reason {
        _ if is_damaged => inner.restore(reason == Reason::ServiceFailed).await,
        Reason::ServiceFailed => inner.restore(true).await,
        Reason::Look => inner.restore(false).await,
        Reason::Changed => Ok(()),
    }
}

/// Hears of links that go and of rules that change.
struct Ears {
    links: Option<futures::stream::BoxStream<'static, ()>>,
    rules: Option<Listener>,
}

impl Ears {
    /// Without ears there is still the look every minute.
    fn open(bridge: &str) -> Ears {
        let links = rtnetlink::new_multicast_connection(&[MulticastGroup::Link]).map(|(connection, _, messages)| {
            tokio::spawn(connection);
            let bridge = bridge.to_owned();
            let is_ours = move |one: &LinkAttribute| matches!(one, LinkAttribute::IfName(name) if *name == bridge);
            let gone = move |payload: &NetlinkPayload<RouteNetlinkMessage>| match payload {
                NetlinkPayload::InnerMessage(RouteNetlinkMessage::DelLink(message)) => {
                    message.attributes.iter().any(&is_ours)
                }
                NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewLink(message)) => {
                    !message.header.flags.contains(LinkFlags::Up) && message.attributes.iter().any(&is_ours)
                }
                _ => false,
            };
            messages.filter_map(move |(message, _)| std::future::ready(gone(&message.payload).then_some(()))).boxed()
        });
        let rules = Netfilter::listen();
        for error in [links.as_ref().err(), rules.as_ref().err()].into_iter().flatten() {
            tracing::warn!(%error, "cannot hear of changes to the host's networks; looking every minute instead");
        }
        Ears { links: links.ok(), rules: rules.ok() }
    }

    async fn wait(&mut self) {
        let Ears { links, rules } = self;
        let link_gone = async {
            match links {
                Some(links) => links.next().await,
                None => std::future::pending().await,
            }
        };
        let rules_changed = async {
            match rules {
                Some(rules) => rules.changed().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            gone = link_gone => {
                if gone.is_none() {
                    self.links = None;
                }
            }
            changed = rules_changed => {
                if let Err(error) = changed {
                    tracing::warn!(%error, "no longer hearing of changes to rules");
                    self.rules = None;
                }
            }
        }
    }
}

/// Where a guest looks for names.
fn domains(nic: &Nic) -> Vec<String> {
    let told = nic.told.domains.iter().cloned();
    if nic.told.is_without_host_names {
        return told.collect();
    }
    dns::search_domains(&nic.namespace).into_iter().chain(told).collect()
}
