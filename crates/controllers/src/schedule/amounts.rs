//! How much of each resource there is, or is asked for.

use std::collections::BTreeMap;

use croft_meta::quantity::{Notation, Quantity};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Text;

const MIB: i64 = 1 << 20;

/// Amounts of resources. What is not named is zero.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Amounts {
    pub(crate) cpu_milli: i64,
    pub(crate) memory_bytes: i64,
    /// Devices, huge pages and whatever else nodes count.
    pub(crate) others: BTreeMap<String, i64>,
}

/// A resource of which a node has too little.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Shortage {
    pub(crate) resource: String,
    pub(crate) requested: i64,
    pub(crate) free: i64,
}

impl Amounts {
    /// Of a node. An amount that cannot be read counts as none.
    pub(crate) fn parse(resources: &BTreeMap<String, Text>) -> Self {
        let mut amounts = Self::default();
        for (name, quantity) in resources {
            let quantity = Quantity::parse(&quantity.0).unwrap_or_default();
            match name.as_str() {
                "cpu" => amounts.cpu_milli = quantity.milli_value(),
                "memory" => amounts.memory_bytes = quantity.value(),
                _ => drop(amounts.others.insert(name.clone(), quantity.value())),
            }
        }
        amounts
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.cpu_milli = self.cpu_milli.saturating_add(other.cpu_milli);
        self.memory_bytes = self.memory_bytes.saturating_add(other.memory_bytes);
        for (name, amount) in &other.others {
            let own = self.others.entry(name.clone()).or_default();
            *own = own.saturating_add(*amount);
        }
    }

    pub(crate) fn subtract(&mut self, other: &Self) {
        self.cpu_milli = self.cpu_milli.saturating_sub(other.cpu_milli);
        self.memory_bytes = self.memory_bytes.saturating_sub(other.memory_bytes);
        for (name, amount) in &other.others {
            let own = self.others.entry(name.clone()).or_default();
            *own = own.saturating_sub(*amount);
        }
    }

    /// What is missing when `used` of these amounts is taken and `wanted` is asked for.
    pub(crate) fn shortages(&self, used: &Self, wanted: &Self) -> Vec<Shortage> {
        let of = |amounts: &Self, name: &str| amounts.others.get(name).copied().unwrap_or_default();
        let mut rows = vec![
            ("cpu", self.cpu_milli, used.cpu_milli, wanted.cpu_milli),
            ("memory", self.memory_bytes, used.memory_bytes, wanted.memory_bytes),
        ];
        rows.extend(
            wanted.others.iter().map(|(name, wanted)| (name.as_str(), of(self, name), of(used, name), *wanted)),
        );
        let missing = rows.into_iter().filter_map(|(resource, total, used, requested)| {
            let free = total.saturating_sub(used);
            let is_short = requested > 0 && requested > free;
            is_short.then(|| Shortage { resource: resource.to_owned(), requested, free: free.max(0) })
        });
        missing.collect()
    }
}

impl Shortage {
    /// An amount as people write it.
    pub(crate) fn text(&self, amount: i64) -> String {
        match self.resource.as_str() {
            "cpu" => Quantity::from_milli(amount, Notation::Decimal).to_string(),
            // Odd bytes say nothing to anybody.
            name if name == "memory" || name.starts_with("hugepages-") => {
                Quantity::from_i64(amount - amount % MIB, Notation::Binary).to_string()
            }
            _ => amount.to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: i64 = 1 << 30;

    fn amounts(cpu_milli: i64, memory_bytes: i64, others: &[(&str, i64)]) -> Amounts {
        let others = others.iter().map(|(name, amount)| ((*name).to_owned(), *amount)).collect();
        Amounts { cpu_milli, memory_bytes, others }
    }

    #[test]
    fn allocatable_is_read_from_quantities() {
        let node = [("cpu", "1500m"), ("memory", "2Gi"), ("vendor.io/gpu", "4"), ("odd", "?")];
        let node = node.map(|(name, text)| (name.to_owned(), Text(text.to_owned()))).into();
        let expected = amounts(1500, 2 * GIB, &[("vendor.io/gpu", 4), ("odd", 0)]);
        assert_eq!(Amounts::parse(&node), expected);
    }

    #[test]
    fn what_is_missing_is_told_per_resource() {
        let total = amounts(2000, 4 * GIB, &[("gpu", 1)]);
        let used = amounts(1900, 2 * GIB, &[("gpu", 1)]);
        let cases: [(Amounts, &[(&str, i64)]); 5] = [
            (amounts(100, 2 * GIB, &[]), &[]),
            (amounts(101, 0, &[]), &[("cpu", 100)]),
            (amounts(0, 2 * GIB + 1, &[]), &[("memory", 2 * GIB)]),
            (amounts(0, 0, &[("gpu", 1), ("none", 1)]), &[("gpu", 0), ("none", 0)]),
            (amounts(0, 0, &[("none", 0)]), &[]),
        ];
        for (wanted, expected) in cases {
            let shortages = total.shortages(&used, &wanted);
            let told: Vec<(&str, i64)> = shortages.iter().map(|one| (one.resource.as_str(), one.free)).collect();
            assert_eq!(told, expected, "{wanted:?}");
        }
    }

    #[test]
    fn a_node_that_is_overfull_has_nothing_free_but_takes_what_asks_for_nothing() {
        let (total, used) = (amounts(1000, GIB, &[]), amounts(3000, 2 * GIB, &[]));
        assert_eq!(total.shortages(&used, &Amounts::default()), []);
        assert_eq!(total.shortages(&used, &amounts(1, 0, &[]))[0].free, 0);
    }

    #[test]
    fn amounts_read_as_people_write_them() {
        let of = |resource: &str, amount| {
            Shortage { resource: resource.to_owned(), requested: amount, free: 0 }.text(amount)
        };
        assert_eq!(of("memory", 4 * GIB), "4Gi");
        assert_eq!(of("memory", 2 * GIB - 1), "2047Mi");
        assert_eq!(of("cpu", 1500), "1500m");
        assert_eq!(of("cpu", 2000), "2");
        assert_eq!(of("vendor.io/gpu", 3), "3");
    }
}
