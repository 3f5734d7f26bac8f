//! Who must, must not, would like to and would rather not share a node, rack or zone with whom.
//!
//! What is counted is worked out once for a guest; every node is then judged by its labels alone.

use std::collections::{HashMap, HashSet};

use k8s_openapi::api::core::v1::PodAffinityTerm;

use super::guest::Guest;
use super::host::Host;
use super::refusal::Reason;
use super::selectors::{Labels, selects};

/// A part of the cluster: a topology key and its value.
type Domain = (String, String);

/// A guest where it is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Placed<'a> {
    pub(super) guest: &'a Guest,
    pub(super) host: &'a Host,
}

#[derive(Debug, Default)]
pub(super) struct Neighbours {
    /// Per required term, where such guests are.
    together: Vec<(String, HashSet<String>)>,
    /// Nobody is there to be with yet, and the guest is one of those that it looks for: it may be the first.
    is_first: bool,
    apart: HashSet<Domain>,
    apart_for_others: HashSet<Domain>,
    weights: HashMap<Domain, i64>,
}

impl Neighbours {
    pub(super) fn of<'a>(
        guest: &Guest,
        placed: impl Iterator<Item = Placed<'a>>,
        namespaces: &HashMap<String, Labels>,
    ) -> Self {
        let together = guest.required_together();
        let mut found = Self {
            together: together.iter().map(|term| (term.topology_key.clone(), HashSet::new())).collect(),
            ..Self::default()
        };
        for other in placed {
            found.meet(guest, other, namespaces);
        }
        let is_alone = found.together.iter().all(|(_, domains)| domains.is_empty());
        found.is_first = is_alone && together.iter().all(|term| matches(term, guest, guest, namespaces));
        found
    }

    fn meet(&mut self, guest: &Guest, other: Placed<'_>, namespaces: &HashMap<String, Labels>) {
        let domain = |term: &PodAffinityTerm| {
            let value = other.host.labels.get(&term.topology_key)?;
            Some((term.topology_key.clone(), value.clone()))
        };
        for (term, (_, domains)) in guest.required_together().iter().zip(&mut self.together) {
            if matches(term, guest, other.guest, namespaces) {
                domains.extend(other.host.labels.get(&term.topology_key).cloned());
            }
        }
        let apart = guest.required_apart().iter().filter(|term| matches(term, guest, other.guest, namespaces));
        self.apart.extend(apart.filter_map(domain));
        let others = other.guest.required_apart().iter();
        let others = others.filter(|term| matches(term, other.guest, guest, namespaces));
        self.apart_for_others.extend(others.filter_map(domain));
        // Wishes count in both directions, as upstream has it.
        for (one, two) in [(guest, other.guest), (other.guest, guest)] {
            let together =
                one.preferred_together().iter().map(|wish| (&wish.pod_affinity_term, i64::from(wish.weight)));
            let apart = one.preferred_apart().iter().map(|wish| (&wish.pod_affinity_term, -i64::from(wish.weight)));
            for (term, weight) in together.chain(apart) {
                if let Some(domain) = domain(term).filter(|_| matches(term, one, two, namespaces)) {
                    *self.weights.entry(domain).or_default() += weight;
                }
            }
        }
    }

    pub(super) fn check(&self, host: &Host) -> Result<(), Reason> {
        let is_in = |domains: &HashSet<Domain>| domains.iter().any(|(key, value)| host.labels.get(key) == Some(value));
        if is_in(&self.apart_for_others) {
            return Err(Reason::ApartForOthers);
        }
        if is_in(&self.apart) {
            return Err(Reason::Apart);
        }
        let is_together = self
            .together
            .iter()
            .all(|(key, domains)| host.labels.get(key).is_some_and(|value| self.is_first || domains.contains(value)));
        if is_together { Ok(()) } else { Err(Reason::Together) }
    }

    /// The sum of the wishes.
    pub(super) fn score(&self, host: &Host) -> i64 {
        let here = |(key, value): &Domain| host.labels.get(key) == Some(value);
        self.weights.iter().filter(|(domain, _)| here(domain)).map(|(_, weight)| weight).sum()
    }
}

/// Whether `owner`'s term means `other`.
fn matches(term: &PodAffinityTerm, owner: &Guest, other: &Guest, namespaces: &HashMap<String, Labels>) -> bool {
    let names = term.namespaces.as_deref().unwrap_or_default();
    let is_in_namespace = match &term.namespace_selector {
        None if names.is_empty() => other.namespace == owner.namespace,
        None => names.contains(&other.namespace),
        Some(selector) => {
            let none = Labels::new();
            let labels = namespaces.get(&other.namespace).unwrap_or(&none);
            names.contains(&other.namespace) || selects(selector, labels)
        }
    };
    let Some(selector) = term.label_selector.as_ref().filter(|_| is_in_namespace) else { return false };
    let same = |key: &String| owner.labels.get(key).is_none_or(|value| other.labels.get(key) == Some(value));
    let differ = |key: &String| owner.labels.get(key).is_none_or(|value| other.labels.get(key) != Some(value));
    selects(selector, &other.labels)
        && term.match_label_keys.iter().flatten().all(same)
        && term.mismatch_label_keys.iter().flatten().all(differ)
}
