//! One interface: in and out.

use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use super::{Host, Inner};
use crate::error::NetError;
use crate::firewall::{Change, FirewallError};
use crate::links::Link;
use crate::nic::{Attachment, Nic};
use crate::records::Plugged;
use crate::snoop::Snoop;
use crate::subnet::Subnet;
use crate::{Mac, sys, sysctl};

/// A tap that is plugged in.
#[derive(Debug)]
pub struct Tap {
    pub name: String,
    /// One a queue. Whoever holds them keeps the tap alive; none if the guest already does.
    pub fds: Vec<OwnedFd>,
    pub mtu: u32,
}

impl Host {
    /// Everything that one interface needs. May be called again for a guest that already has it, and then changes
    /// nothing but what differs.
    pub async fn plug(&self, nic: &Nic) -> Result<Tap, NetError> {
        let inner = &self.inner;
        let _turn = inner.turn.lock().await;
        let name = inner.tap_name(nic);
        let before = inner.records.lock().find(&nic.vmi_uid, &nic.name);
        let plugged = inner.records.lock().claim(nic, &name, &inner.subnet)?;
        let tap = inner.plug(&plugged, before.as_ref()).await;
        if tap.is_err() && before.is_none() {
            inner.give_up(&plugged).await;
        }
        inner.announce();
        tap
    }

    /// Removes an interface; nothing is left of it but its address, for the machine's next run. Without effect if it
    /// is not there.
    pub async fn unplug(&self, vmi_uid: &str, nic_name: &str) -> Result<(), NetError> {
        let _turn = self.inner.turn.lock().await;
        let Some(plugged) = self.inner.records.lock().find(vmi_uid, nic_name) else { return Ok(()) };
        self.inner.unplug(&plugged).await
    }

    /// The same for all interfaces of one guest.
    pub async fn unplug_all(&self, vmi_uid: &str) -> Result<(), NetError> {
        self.retain(|plugged| plugged != vmi_uid).await
    }

    /// Removes the interfaces of all guests that are not to be kept.
    pub async fn retain(&self, keep: impl Fn(&str) -> bool) -> Result<(), NetError> {
        for (vmi_uid, nic_name) in self.plugged().into_iter().filter(|(vmi_uid, _)| !keep(vmi_uid)) {
            self.unplug(&vmi_uid, &nic_name).await?;
        }
        Ok(())
    }
}

impl Inner {
    async fn plug(self: &Arc<Self>, plugged: &Plugged, before: Option<&Plugged>) -> Result<Tap, NetError> {
        let (name, queues) = (&plugged.tap, plugged.nic.queues);
        let (link, fds) = if let Some(link) = self.links.find(name).await? {
            (link, Vec::new())
        } else {
            let fds = sys::open_tap(name, queues).map_err(NetError::Tap)?;
            let link = self.links.find(name).await?;
            (link.ok_or_else(|| NetError::TapInUse(name.clone()))?, fds)
        };
        let remove = before.map(|before| self.elements_of(before)).unwrap_or_default();
        let add = self.elements_of(plugged);
        if remove != add {
            self.change_elements(Change { remove, add, ..Change::default() }).await?;
        }
        self.attach(plugged, &link).await?;
        let mtu = self.mtu_of(plugged).await?;
        Ok(Tap { name: name.clone(), fds, mtu })
    }

    /// When the sets are not as we left them, they are filled anew.
    async fn change_elements(&self, change: Change) -> Result<(), NetError> {
        match self.filter(change).await {
            Err(NetError::Firewall(FirewallError::Netlink(error))) if error.raw_os_error() == Some(libc::ENOENT) => {
                self.ensure_rules().await
            }
            result => result,
        }
    }

    /// Connects a tap that is there to where it belongs.
    pub(super) async fn attach(self: &Arc<Self>, plugged: &Plugged, link: &Link) -> Result<(), NetError> {
        let bridge = self.bridge_of(plugged).await?;
        if link.master != Some(bridge.index) {
            sysctl::silence(&link.name)?;
            self.links.enslave(link, &bridge, self.mtu_of(plugged).await?).await?;
        }
        match &plugged.nic.attachment {
            Attachment::Nat { .. } => self.attach_to_nat(plugged, link, &bridge).await,
            Attachment::Bridge { vlan, .. } => {
                if let Some(vlan) = vlan {
                    self.links.set_vlan(link, *vlan).await?;
                }
                self.listen(plugged, link)
            }
        }
    }

    async fn attach_to_nat(&self, plugged: &Plugged, link: &Link, bridge: &Link) -> Result<(), NetError> {
        self.links.isolate(link).await?;
        let (Some(index), mac) = (plugged.index, plugged.nic.mac) else { return Ok(()) };
        self.links.add_neighbour(bridge, self.subnet.address4(index).into(), mac).await?;
        if sysctl::has_ipv6() {
            let via = Subnet::next_hop6(index);
            self.links.add_neighbour(bridge, via.into(), mac).await?;
            self.links.add_route6(bridge, self.subnet.prefix6(index), via).await?;
        }
        Ok(())
    }

    async fn bridge_of(&self, plugged: &Plugged) -> Result<Link, NetError> {
        let (name, vlan) = match &plugged.nic.attachment {
            Attachment::Nat { .. } => (&self.names.bridge, None),
            Attachment::Bridge { bridge, vlan, .. } => (bridge, *vlan),
        };
        let bridge = self.links.find(name).await?.ok_or_else(|| NetError::NoSuchBridge(name.clone()))?;
        if !bridge.is_bridge {
            return Err(NetError::NotABridge(name.clone()));
        }
        match vlan {
            Some(vlan) if !bridge.has_vlan_filtering => Err(NetError::NoVlanFiltering { bridge: name.clone(), vlan }),
            _ => Ok(bridge),
        }
    }

    async fn mtu_of(&self, plugged: &Plugged) -> Result<u32, NetError> {
        match plugged.nic.attachment {
            Attachment::Nat { .. } => Ok(self.mtu),
            Attachment::Bridge { mtu: Some(mtu), .. } => Ok(mtu),
            Attachment::Bridge { .. } => Ok(self.bridge_of(plugged).await?.mtu),
        }
    }

    /// Learns the addresses of a guest that we do not give any.
    fn listen(self: &Arc<Self>, plugged: &Plugged, link: &Link) -> Result<(), NetError> {
        let mut snoops = self.snoops.lock();
        if snoops.get(&plugged.tap).is_some_and(|task| !task.is_finished()) {
            return Ok(());
        }
        let snoop = Snoop::open(link.index)?;
        let (inner, key, mac) = (Arc::downgrade(self), plugged.nic.key(), plugged.nic.mac);
        let task = tokio::spawn(async move {
            let seen = |address: IpAddr| {
                let Some(inner) = inner.upgrade() else { return };
                inner.note(|records| records.learn(&key, address));
            };
            let error = snoop.run(mac, seen).await;
            tracing::debug!(%mac, %error, "no longer listening for addresses");
        });
        snoops.insert(plugged.tap.clone(), task.abort_handle());
        Ok(())
    }

    async fn unplug(&self, plugged: &Plugged) -> Result<(), NetError> {
        if let Some(snoop) = self.snoops.lock().remove(&plugged.tap) {
            snoop.abort();
        }
        self.links.delete(&plugged.tap).await?;
        if let (Some(index), Some(bridge)) = (plugged.index, self.links.find(&self.names.bridge).await?) {
            self.links.delete_neighbour(&bridge, self.subnet.address4(index).into()).await?;
            if sysctl::has_ipv6() {
                let via = Subnet::next_hop6(index);
                self.links.delete_route6(&bridge, self.subnet.prefix6(index), via).await?;
                self.links.delete_neighbour(&bridge, via.into()).await?;
            }
        }
        let remove = self.elements_of(plugged);
        self.records.lock().release(&plugged.nic.vmi_uid, &plugged.nic.name)?;
        // After the record, so that sets filled anew are without it.
        self.change_elements(Change { remove, ..Change::default() }).await?;
        self.announce();
        Ok(())
    }

    /// Takes back what a failed attempt has made; whatever cannot be is found at the next start.
    async fn give_up(&self, plugged: &Plugged) {
        if let Err(error) = self.unplug(plugged).await {
            tracing::warn!(tap = plugged.tap, %error, "cannot take back an interface that could not be plugged in");
        }
    }

    /// Changes the records from within a service, and tells those who watch if there was news.
    pub(super) fn note(&self, change: impl FnOnce(&mut crate::records::Records) -> Result<bool, NetError>) {
        match change(&mut self.records.lock()) {
            Ok(true) => self.announce(),
            Ok(false) => {}
            Err(error) => tracing::warn!(%error, "cannot note a guest's address"),
        }
    }

    pub(super) fn nat_guest(&self, mac: Mac) -> Option<(Plugged, u32)> {
        let plugged = self.records.lock().nat_by_mac(mac)?;
        let index = plugged.index?;
        Some((plugged, index))
    }
}
