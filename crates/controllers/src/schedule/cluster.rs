//! The nodes, the guests on them, and where the next one fits best.
//!
//! A placement counts from the moment that it is decided, long before the API server and the watch say so: otherwise a
//! hundred guests that come at once would all be given the same room.

use std::collections::{BTreeMap, HashMap};

use k8s_openapi::api::core::v1::TopologySpreadConstraint;

use super::amounts::Amounts;
use super::guest::Guest;
use super::host::Host;
use super::neighbours::{Neighbours, Placed};
use super::refusal::{Reason, Refusal};
use super::score::{Points, best};
use super::selectors::{Labels, any_term_holds, term_holds};
use super::spread::Spread;

const NETWORK_LABEL: &str = "network.harvesterhci.io/";

#[derive(Debug, Default)]
pub(crate) struct Cluster {
    hosts: BTreeMap<String, Host>,
    guests: HashMap<String, (Guest, String)>,
    used: HashMap<String, Amounts>,
    namespaces: HashMap<String, Labels>,
}

impl Cluster {
    /// Whether anything changed that a guest could care about.
    pub(crate) fn set_host(&mut self, host: Host) -> bool {
        let name = host.name.clone();
        let is_same = self.hosts.get(&name) == Some(&host);
        self.hosts.insert(name, host);
        !is_same
    }

    pub(crate) fn remove_host(&mut self, name: &str) {
        self.hosts.remove(name);
    }

    pub(crate) fn host(&self, name: &str) -> Option<&Host> {
        self.hosts.get(name)
    }

    pub(crate) fn has_host(&self, name: &str) -> bool {
        self.hosts.contains_key(name)
    }

    pub(crate) fn set_namespace(&mut self, name: String, labels: Option<Labels>) {
        match labels {
            Some(labels) => drop(self.namespaces.insert(name, labels)),
            None => drop(self.namespaces.remove(&name)),
        }
    }

    /// Counts the guest on the node, whatever was known of it before.
    pub(crate) fn place(&mut self, guest: Guest, host: String) {
        self.remove(&guest.uid);
        self.used.entry(host.clone()).or_default().add(&guest.demand);
        self.guests.insert(guest.uid.clone(), (guest, host));
    }

    /// Whether it took up room.
    pub(crate) fn remove(&mut self, uid: &str) -> bool {
        let Some((guest, host)) = self.guests.remove(uid) else { return false };
        if let Some(used) = self.used.get_mut(&host) {
            used.subtract(&guest.demand);
        }
        true
    }

    /// Where a guest was placed.
    pub(crate) fn host_of(&self, uid: &str) -> Option<&str> {
        self.guests.get(uid).map(|(_, host)| host.as_str())
    }

    fn placed(&self) -> impl Iterator<Item = Placed<'_>> + Clone {
        self.guests.values().filter_map(|(guest, host)| Some(Placed { guest, host: self.hosts.get(host)? }))
    }

    /// The best node for the guest, or what every node says against it. It is not placed yet.
    pub(crate) fn fit(&self, guest: &Guest) -> Result<String, Refusal> {
        let neighbours = Neighbours::of(guest, self.placed(), &self.namespaces);
        let hosts: Vec<&Host> = self.hosts.values().collect();
        let spread = Spread::of(guest, &hosts, &self.placed(), |host, constraint| is_eligible(guest, host, constraint));
        let mut refusal = Refusal::default();
        let mut fitting = Vec::new();
        for host in hosts {
            let mut reasons = self.judge(guest, host);
            if reasons.is_empty() {
                reasons.extend(spread.check(host).err());
            }
            if reasons.is_empty() {
                reasons.extend(neighbours.check(host).err());
            }
            if reasons.is_empty() {
                fitting.push(self.points(guest, host, &neighbours, &spread));
            } else {
                refusal.nodes.push((host.name.clone(), reasons));
            }
        }
        best(&fitting).map(str::to_owned).ok_or(refusal)
    }

    /// What a node has against a guest, no matter who else is there; the first kind of reason that applies.
    fn judge(&self, guest: &Guest, host: &Host) -> Vec<Reason> {
        if !host.is_ready {
            return vec![Reason::NotReady];
        }
        if !host.is_for_guests {
            return vec![Reason::NotForGuests];
        }
        if host.refuses_as_cordoned(&guest.tolerations) {
            return vec![Reason::Cordoned];
        }
        if let Some(taint) = host.forbidding_taint(&guest.tolerations) {
            return vec![Reason::Tainted { key: taint.key.clone(), value: taint.value.clone().unwrap_or_default() }];
        }
        if !is_selected(guest, host) {
            return vec![Reason::NodeAffinity];
        }
        let is_connected = |network: &&String| {
            host.labels.get(&format!("{NETWORK_LABEL}{network}")).is_some_and(|value| value == "true")
        };
        if let Some(network) = guest.networks.iter().find(|network| !is_connected(network)) {
            return vec![Reason::NoNetwork(network.clone())];
        }
        let elsewhere = guest.volumes.iter().find(|place| !any_term_holds(&place.terms, &host.name, &host.labels));
        if let Some(place) = elsewhere {
            return vec![Reason::VolumeElsewhere(place.claim.clone())];
        }
        let nothing = Amounts::default();
        let used = self.used.get(&host.name).unwrap_or(&nothing);
        host.allocatable.shortages(used, &guest.demand).into_iter().map(Reason::Insufficient).collect()
    }

    fn points<'a>(&self, guest: &Guest, host: &'a Host, neighbours: &Neighbours, spread: &Spread) -> Points<'a> {
        let wishes = guest.preferred_node_terms().iter();
        let granted = wishes.filter(|wish| term_holds(&wish.preference, &host.name, &host.labels));
        let mut used = self.used.get(&host.name).cloned().unwrap_or_default();
        used.add(&guest.demand);
        Points {
            name: &host.name,
            node_affinity: granted.map(|wish| i64::from(wish.weight)).sum(),
            taints: -i64::try_from(host.discouraging_taints(&guest.tolerations)).unwrap_or(i64::MAX),
            neighbours: neighbours.score(host),
            spread: spread.score(host),
            free: super::score::free_percent(&host.allocatable, &used),
        }
    }
}

/// Whether the guest's own selectors let it go to the node.
fn is_selected(guest: &Guest, host: &Host) -> bool {
    guest.node_selector.iter().all(|(key, value)| host.labels.get(key) == Some(value))
        && guest.required_node_terms().is_none_or(|terms| any_term_holds(terms, &host.name, &host.labels))
}

fn is_eligible(guest: &Guest, host: &Host, constraint: &TopologySpreadConstraint) -> bool {
    let honours =
        |policy: &Option<String>, otherwise: bool| policy.as_deref().map_or(otherwise, |text| text == "Honor");
    (!honours(&constraint.node_affinity_policy, true) || is_selected(guest, host))
        && (!honours(&constraint.node_taints_policy, false) || host.forbidding_taint(&guest.tolerations).is_none())
}

#[cfg(test)]
mod tests;
