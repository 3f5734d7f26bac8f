//! How evenly guests are to be spread over nodes, racks or zones.

use std::collections::HashMap;

use k8s_openapi::api::core::v1::TopologySpreadConstraint;

use super::guest::Guest;
use super::host::Host;
use super::neighbours::Placed;
use super::refusal::Reason;
use super::selectors::selects;

#[derive(Debug)]
pub(super) struct Spread {
    constraints: Vec<Counted>,
}

#[derive(Debug)]
struct Counted {
    topology_key: String,
    max_skew: i64,
    is_required: bool,
    /// Whether the guest itself is one of those counted.
    adds_one: i64,
    /// How many there are in each domain that the guest could go to.
    counts: HashMap<String, i64>,
    fewest: i64,
}

impl Spread {
    /// `is_eligible` says whether a node is one that the guest's selectors, and if asked for its tolerations, let it
    /// go to; others do not count.
    pub(super) fn of<'a>(
        guest: &Guest,
        hosts: &[&Host],
        placed: &(impl Iterator<Item = Placed<'a>> + Clone),
        is_eligible: impl Fn(&Host, &TopologySpreadConstraint) -> bool,
    ) -> Self {
        let count = |constraint: &TopologySpreadConstraint| {
            let eligible = hosts.iter().filter(|host| is_eligible(host, constraint));
            let domains = eligible.filter_map(|host| host.labels.get(&constraint.topology_key));
            let mut counts: HashMap<String, i64> = domains.map(|domain| (domain.clone(), 0)).collect();
            for other in placed.clone().filter(|other| is_counted(constraint, guest, other.guest)) {
                let domain = other.host.labels.get(&constraint.topology_key);
                if let Some(count) = domain.and_then(|domain| counts.get_mut(domain)) {
                    *count += i64::from(is_eligible(other.host, constraint));
                }
            }
            let domains = i32::try_from(counts.len()).unwrap_or(i32::MAX);
            let is_too_few = constraint.min_domains.is_some_and(|least| domains < least);
            Counted {
                topology_key: constraint.topology_key.clone(),
                max_skew: constraint.max_skew.into(),
                is_required: constraint.when_unsatisfiable == "DoNotSchedule",
                adds_one: i64::from(is_counted(constraint, guest, guest)),
                fewest: if is_too_few { 0 } else { counts.values().copied().min().unwrap_or_default() },
                counts,
            }
        };
        Self { constraints: guest.spread.iter().map(count).collect() }
    }

    pub(super) fn check(&self, host: &Host) -> Result<(), Reason> {
        for constraint in self.constraints.iter().filter(|constraint| constraint.is_required) {
            let Some(domain) = host.labels.get(&constraint.topology_key) else {
                return Err(Reason::SpreadLabelMissing);
            };
            let here = constraint.counts.get(domain).copied().unwrap_or_default();
            if here + constraint.adds_one - constraint.fewest > constraint.max_skew {
                return Err(Reason::Spread);
            }
        }
        Ok(())
    }

    /// Fewer of the same kind nearby is better.
    pub(super) fn score(&self, host: &Host) -> i64 {
        let wishes = self.constraints.iter().filter(|constraint| !constraint.is_required);
        let crowd = wishes.map(|constraint| {
            let domain = host.labels.get(&constraint.topology_key);
            // Where the label is missing, nothing is spread: that is worse than any crowd.
            domain.map_or(i64::from(i32::MAX), |domain| constraint.counts.get(domain).copied().unwrap_or_default())
        });
        -crowd.sum::<i64>()
    }
}

fn is_counted(constraint: &TopologySpreadConstraint, guest: &Guest, other: &Guest) -> bool {
    let same = |key: &String| guest.labels.get(key).is_none_or(|value| other.labels.get(key) == Some(value));
    guest.namespace == other.namespace
        && constraint.label_selector.as_ref().is_some_and(|selector| selects(selector, &other.labels))
        && constraint.match_label_keys.iter().flatten().all(same)
}
