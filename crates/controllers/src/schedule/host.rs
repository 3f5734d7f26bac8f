//! A node as the scheduler sees it.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Taint, Toleration};

use super::amounts::Amounts;
use super::selectors::Labels;

/// What an agent says of a node that can run guests.
const SCHEDULABLE: &str = "kubevirt.io/schedulable";
const UNSCHEDULABLE_TAINT: &str = "node.kubernetes.io/unschedulable";

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Host {
    pub(crate) name: String,
    pub(crate) labels: Labels,
    pub(crate) allocatable: Amounts,
    taints: Vec<Taint>,
    is_cordoned: bool,
    pub(crate) is_ready: bool,
    pub(crate) is_for_guests: bool,
}

impl Host {
    pub(crate) fn of(node: &Node) -> Self {
        let labels = node.metadata.labels.clone().unwrap_or_default();
        let status = node.status.as_ref();
        let mut conditions = status.iter().flat_map(|status| status.conditions.iter().flatten());
        let allocatable = status.and_then(|status| status.allocatable.as_ref());
        Self {
            name: node.metadata.name.clone().unwrap_or_default(),
            allocatable: allocatable.map(Amounts::parse).unwrap_or_default(),
            taints: node.spec.iter().flat_map(|spec| spec.taints.iter().flatten()).cloned().collect(),
            is_cordoned: node.spec.as_ref().and_then(|spec| spec.unschedulable).unwrap_or_default(),
            is_ready: conditions.any(|condition| condition.type_ == "Ready" && condition.status == "True"),
            is_for_guests: labels.get(SCHEDULABLE).is_some_and(|value| value == "true"),
            labels,
        }
    }

    /// Cordoning counts as a taint that can be tolerated, as upstream has it.
    pub(crate) fn refuses_as_cordoned(&self, tolerations: &[Toleration]) -> bool {
        let taint = Taint { key: UNSCHEDULABLE_TAINT.to_owned(), effect: "NoSchedule".to_owned(), ..Taint::default() };
        self.is_cordoned && !is_tolerated(&taint, tolerations)
    }

    /// The first taint that keeps the guest away.
    pub(crate) fn forbidding_taint(&self, tolerations: &[Toleration]) -> Option<&Taint> {
        let forbids = |taint: &&Taint| matches!(taint.effect.as_str(), "NoSchedule" | "NoExecute");
        self.taints.iter().filter(forbids).find(|taint| !is_tolerated(taint, tolerations))
    }

    /// The taints that drive out a guest that runs here, and how long it may stay (None: not at all).
    pub(crate) fn driving_taint(&self, tolerations: &[Toleration]) -> Option<(&Taint, Option<Duration>)> {
        let drives = self.taints.iter().filter(|taint| taint.effect == "NoExecute");
        let waits = |taint| (taint, stay(taint, tolerations));
        let finite = drives.map(waits).filter_map(|(taint, stay)| match stay {
            Stay::Ever => None,
            Stay::For(time) => Some((taint, Some(time))),
            Stay::Not => Some((taint, None)),
        });
        finite.min_by_key(|(_, stay)| *stay)
    }

    /// How many taints would rather not have the guest here.
    pub(crate) fn discouraging_taints(&self, tolerations: &[Toleration]) -> usize {
        let discourages = |taint: &&Taint| taint.effect == "PreferNoSchedule";
        self.taints.iter().filter(discourages).filter(|taint| !is_tolerated(taint, tolerations)).count()
    }
}

/// How long a taint that drives out lets a guest stay.
enum Stay {
    Ever,
    For(Duration),
    Not,
}

/// The shortest of the times that tolerations give; for ever if none gives any.
fn stay(taint: &Taint, tolerations: &[Toleration]) -> Stay {
    let mut matching = tolerations.iter().filter(|toleration| tolerates(toleration, taint)).peekable();
    if matching.peek().is_none() {
        return Stay::Not;
    }
    let seconds = matching.filter_map(|toleration| toleration.toleration_seconds).min();
    seconds.map_or(Stay::Ever, |seconds| Stay::For(Duration::from_secs(u64::try_from(seconds).unwrap_or_default())))
}

fn is_tolerated(taint: &Taint, tolerations: &[Toleration]) -> bool {
    tolerations.iter().any(|toleration| tolerates(toleration, taint))
}

/// Absent fields are wild cards: no key (with `Exists`) means all keys, no effect all effects.
fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let text = |field: &Option<String>| field.clone().unwrap_or_default();
    let (effect, key, operator) = (text(&toleration.effect), text(&toleration.key), text(&toleration.operator));
    if !effect.is_empty() && effect != taint.effect {
        return false;
    }
    if !key.is_empty() && key != taint.key {
        return false;
    }
    match operator.as_str() {
        "Exists" => true,
        "" | "Equal" => !key.is_empty() && text(&toleration.value) == text(&taint.value),
        _ => false,
    }
}

#[cfg(test)]
#[expect(clippy::needless_pass_by_value, reason = "tables read better without references")]
mod tests {
    use serde_json::json;

    use super::*;

    fn host(spec: serde_json::Value) -> Host {
        let node = json!({
            "metadata": {"name": "n1", "labels": {"kubevirt.io/schedulable": "true"}},
            "spec": spec,
            "status": {"conditions": [{"type": "Ready", "status": "True"}], "allocatable": {"cpu": "2"}},
        });
        Host::of(&serde_json::from_value(node).unwrap())
    }

    fn tolerations(list: serde_json::Value) -> Vec<Toleration> {
        serde_json::from_value(list).unwrap()
    }

    #[test]
    fn taints_keep_away_whoever_does_not_tolerate_them() {
        let tainted = host(json!({"taints": [{"key": "gpu", "value": "yes", "effect": "NoSchedule"}]}));
        let cases = [
            (json!([]), false),
            (json!([{"key": "gpu", "value": "yes", "effect": "NoSchedule"}]), true),
            (json!([{"key": "gpu", "operator": "Equal", "value": "no"}]), false),
            (json!([{"key": "gpu", "operator": "Exists"}]), true),
            (json!([{"operator": "Exists"}]), true),
            (json!([{"key": "gpu", "operator": "Exists", "effect": "NoExecute"}]), false),
            (json!([{"key": "other", "operator": "Exists"}]), false),
            (json!([{"value": "yes"}]), false),
        ];
        for (list, is_tolerated) in cases {
            let forbidding = tainted.forbidding_taint(&tolerations(list.clone()));
            assert_eq!(forbidding.is_none(), is_tolerated, "{list}");
        }
    }

    #[test]
    fn taints_that_only_discourage_do_not_forbid() {
        let tainted = host(json!({"taints": [{"key": "slow", "effect": "PreferNoSchedule"}]}));
        assert_eq!(tainted.forbidding_taint(&[]), None);
        assert_eq!(tainted.discouraging_taints(&[]), 1);
        assert_eq!(tainted.discouraging_taints(&tolerations(json!([{"operator": "Exists"}]))), 0);
    }

    #[test]
    fn some_taints_drive_out_whoever_does_not_tolerate_them_for_ever() {
        let tainted = host(json!({"taints": [{"key": "gone", "effect": "NoExecute"}]}));
        let table = [
            (json!([]), Some(None)),
            (json!([{"operator": "Exists"}]), None),
            (json!([{"key": "gone", "operator": "Exists", "tolerationSeconds": 5}]), Some(Some(5))),
            (
                json!([{"operator": "Exists"}, {"key": "gone", "operator": "Exists", "tolerationSeconds": 5}]),
                Some(Some(5)),
            ),
            (json!([{"key": "gone", "operator": "Exists", "tolerationSeconds": -1}]), Some(Some(0))),
            (json!([{"key": "other", "operator": "Exists"}]), Some(None)),
        ];
        for (list, expected) in table {
            let tolerations = tolerations(list.clone());
            let found = tainted.driving_taint(&tolerations).map(|(_, stay)| stay.map(|time| time.as_secs()));
            assert_eq!(found, expected, "{list}");
        }
        let kept = host(json!({"taints": [{"key": "gone", "effect": "NoSchedule"}]}));
        assert_eq!(kept.driving_taint(&[]), None);
    }

    #[test]
    fn a_cordoned_node_takes_only_who_tolerates_that() {
        let cordoned = host(json!({"unschedulable": true}));
        assert!(cordoned.refuses_as_cordoned(&[]));
        let tolerant = tolerations(json!([{"key": UNSCHEDULABLE_TAINT, "operator": "Exists"}]));
        assert!(!cordoned.refuses_as_cordoned(&tolerant));
        assert!(!host(json!({})).refuses_as_cordoned(&[]));
    }
}
