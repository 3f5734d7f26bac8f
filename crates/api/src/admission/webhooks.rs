//! The rules as webhooks: in whose names they refuse, so that a server that asks them words a refusal as this one does.

use croft_meta::ApiError;

use super::{cluster_network, data_volume, device, instance, load_balancer, longhorn_snapshot, machine, migration};
use super::{network, sizes};

const EVERY: &[&str] = &["CREATE", "UPDATE", "DELETE"];

/// A webhook that refuses objects of some kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refuser {
    pub name: &'static str,
    /// What it is asked about, if the kind has rules for it.
    pub operations: &'static [&'static str],
}

impl Refuser {
    const fn new(name: &'static str) -> Self {
        Self { name, operations: EVERY }
    }
}

/// Those of a kind with rules. The first one also refuses what is refused in nobody's name, or in that of a mutator.
pub fn refusers(group: &str, plural: &str) -> &'static [Refuser] {
    const HARVESTER: &[Refuser] = &[Refuser::new(machine::HARVESTER)];
    match (group, plural) {
        ("kubevirt.io", "virtualmachines") => {
            const { &[Refuser::new(machine::VALIDATOR), Refuser::new(machine::HARVESTER)] }
        }
        ("kubevirt.io", "virtualmachineinstances") => {
            const { &[once(instance::CREATE, &["CREATE"]), once(instance::UPDATE, &["UPDATE"])] }
        }
        ("kubevirt.io", "virtualmachineinstancemigrations") => {
            const { &[once(migration::CREATE, &["CREATE"]), once(migration::UPDATE, &["UPDATE"])] }
        }
        ("instancetype.kubevirt.io", "virtualmachineinstancetypes" | "virtualmachineclusterinstancetypes") => {
            const { &[Refuser::new(sizes::INSTANCETYPE)] }
        }
        ("instancetype.kubevirt.io", _) => const { &[Refuser::new(sizes::PREFERENCE)] },
        ("cdi.kubevirt.io", _) => {
            const { &[once(data_volume::VALIDATOR, &["CREATE", "UPDATE"]), once(machine::HARVESTER, EVERY)] }
        }
        ("longhorn.io", _) => const { &[Refuser::new(longhorn_snapshot::LONGHORN)] },
        ("network.harvesterhci.io", _) => const { &[Refuser::new(cluster_network::VALIDATOR)] },
        ("devices.harvesterhci.io", _) => const { &[Refuser::new(device::VALIDATOR)] },
        ("loadbalancer.harvesterhci.io", _) => const { &[Refuser::new(load_balancer::VALIDATOR)] },
        ("k8s.cni.cncf.io", _) => const { &[Refuser::new(network::VALIDATOR)] },
        _ => HARVESTER,
    }
}

const fn once(name: &'static str, operations: &'static [&'static str]) -> Refuser {
    Refuser { name, operations }
}

/// Who refuses, and why, of the message of a rule; `None` if it is in nobody's name.
pub fn refused_by(error: &ApiError) -> Option<(&str, &str)> {
    error.message().strip_prefix("admission webhook \"")?.split_once("\" denied the request: ")
}

#[cfg(test)]
mod tests {
    use super::super::denial::refuse;
    use super::*;

    #[test]
    fn a_refusal_tells_who_refuses() {
        let error = refuse(machine::HARVESTER, 422, "Invalid", "no \"such\" thing");
        assert_eq!(refused_by(&error), Some((machine::HARVESTER, "no \"such\" thing")));
        assert_eq!(refused_by(&ApiError::forbidden("", "pods", "a", "no")), None);
    }

    #[test]
    fn every_operation_with_rules_has_somebody_to_refuse_it() {
        let custom = crate::shipped::shipped_names().map(|name| {
            let (plural, group) = name.split_once('.').unwrap();
            (group.to_owned(), plural.to_owned())
        });
        let builtin = crate::builtin().iter().map(|row| (row.group.clone(), row.names.plural.clone()));
        let mut count = 0;
        for (group, plural) in custom.chain(builtin) {
            let (admit, admit_delete) = super::super::of(&group, &plural);
            let is_asked = |operation| refusers(&group, &plural).iter().any(|one| one.operations.contains(&operation));
            assert!(admit.is_none() || is_asked("CREATE") && is_asked("UPDATE"), "{plural}.{group}");
            assert!(admit_delete.is_none() || is_asked("DELETE"), "{plural}.{group}");
            count += usize::from(admit.is_some());
        }
        assert!(count > 40, "{count}");
    }
}
