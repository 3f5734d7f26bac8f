//! Who has which name, for the resolver.

use std::net::IpAddr;
use std::sync::Weak;

use super::Inner;
use crate::dns::{Directory, NotOurs};

/// Services must not keep alive what keeps them alive.
#[derive(Debug)]
pub(super) struct Names(pub(super) Weak<Inner>);

impl Directory for Names {
    fn namespace_of(&self, address: IpAddr) -> Option<String> {
        let inner = self.0.upgrade()?;
        let index = inner.subnet.index_of(address)?;
        inner.records.lock().by_index(index).map(|plugged| plugged.nic.namespace)
    }

    fn addresses(&self, namespace: &str, name: &str) -> Option<Vec<IpAddr>> {
        let inner = self.0.upgrade()?;
        let records = inner.records.lock();
        let (mut is_there, mut addresses) = (false, Vec::new());
        for plugged in records.plugged() {
            let nic = &plugged.nic;
            let has_name = nic.vm_name.eq_ignore_ascii_case(name) || nic.hostname.eq_ignore_ascii_case(name);
            if nic.namespace != namespace || !has_name {
                continue;
            }
            is_there = true;
            let given = plugged.index.map(|index| inner.subnet.address4(index).into());
            addresses.extend(given.into_iter().chain(plugged.learned));
        }
        is_there.then_some(addresses)
    }

    fn owner(&self, address: IpAddr) -> Result<Option<(String, String)>, NotOurs> {
        let inner = self.0.upgrade().ok_or(NotOurs)?;
        let is_ours = match address {
            IpAddr::V4(address) => inner.subnet.v4.contains(&address),
            IpAddr::V6(address) => inner.subnet.v6.contains(&address),
        };
        if !is_ours {
            return Err(NotOurs);
        }
        let Some(index) = inner.subnet.index_of(address) else { return Ok(None) };
        Ok(inner.records.lock().by_index(index).map(|plugged| (plugged.nic.vm_name, plugged.nic.namespace)))
    }

    fn host(&self) -> Vec<IpAddr> {
        let Some(inner) = self.0.upgrade() else { return Vec::new() };
        vec![inner.subnet.gateway4().into(), inner.subnet.gateway6().into()]
    }
}
