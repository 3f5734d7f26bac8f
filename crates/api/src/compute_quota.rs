//! How machines count against a namespace's ResourceQuotas: as the pods that KubeVirt would run them in. And how amounts of
//! what quotas bound are written.

use croft_meta::Quantity;
use croft_meta::quantity::Notation;

/// What a quota can bound about machines.
const COUNTED: &[&str] = &[
    "limits.cpu",
    "limits.memory",
    "requests.cpu",
    "requests.memory",
    "cpu",
    "memory",
    "pods",
    "count/virtualmachineinstances.kubevirt.io",
];

/// How much an instance takes of what a quota names: thousandths of processors, bytes, or pieces. `resource` tells a
/// limit (`limits`, `cpu`) or request (`requests`, `memory`). None if the instance does not say.
pub fn demand(key: &str, resource: impl Fn(&str, &str) -> Option<String>) -> Option<i64> {
    let amount = |list: &str, name: &str| {
        let quantity = Quantity::parse(&resource(list, name)?).ok()?;
        Some(if name == "cpu" { quantity.milli_value() } else { quantity.value() })
    };
    match key {
        "pods" | "count/virtualmachineinstances.kubevirt.io" => Some(1),
        "limits.cpu" => amount("limits", "cpu"),
        "limits.memory" => amount("limits", "memory"),
        "requests.cpu" | "cpu" => amount("requests", "cpu").or_else(|| amount("limits", "cpu")),
        "requests.memory" | "memory" => amount("requests", "memory").or_else(|| amount("limits", "memory")),
        _ => None,
    }
}

/// Whether it is something that [`demand`] knows.
pub fn is_counted(key: &str) -> bool {
    COUNTED.contains(&key)
}

/// An amount of [`demand`] as people write it.
pub fn written(key: &str, amount: i64) -> String {
    let quantity = if key.ends_with("cpu") {
        Quantity::from_milli(amount, Notation::Decimal)
    } else if key.ends_with("memory") || key.ends_with("storage") {
        Quantity::from_i64(amount, Notation::Binary)
    } else {
        Quantity::from_i64(amount, Notation::Decimal)
    };
    quantity.to_string()
}

/// The amount that a text stands for, in the same measure.
pub fn parsed(key: &str, text: &str) -> Option<i64> {
    let quantity = Quantity::parse(text).ok()?;
    Some(if key.ends_with("cpu") { quantity.milli_value() } else { quantity.value() })
}
