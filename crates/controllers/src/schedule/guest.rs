//! A virtual machine instance as the scheduler sees it: what it asks for, and where it wants to be.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{
    Affinity, NodeSelectorTerm, PodAffinityTerm, PreferredSchedulingTerm, Toleration, TopologySpreadConstraint,
    WeightedPodAffinityTerm,
};

use super::amounts::Amounts;
use super::selectors::Labels;

/// Wanted or placed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Guest {
    pub(crate) uid: String,
    pub(crate) namespace: String,
    /// Those of the instance, and those that its launcher pod would have in KubeVirt: affinity is written for pods.
    pub(crate) labels: Labels,
    pub(crate) demand: Amounts,
    pub(crate) node_selector: Labels,
    pub(crate) affinity: Option<Arc<Affinity>>,
    pub(crate) tolerations: Vec<Toleration>,
    pub(crate) spread: Vec<TopologySpreadConstraint>,
    /// The cluster networks that its node must be connected to.
    pub(crate) networks: Vec<String>,
    /// Where its volumes are: a claim, and the nodes that can use it. All must agree.
    pub(crate) volumes: Vec<VolumePlace>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct VolumePlace {
    pub(crate) claim: String,
    /// One must hold.
    pub(crate) terms: Vec<NodeSelectorTerm>,
}

impl Guest {
    /// One must hold, if there are any.
    pub(crate) fn required_node_terms(&self) -> Option<&[NodeSelectorTerm]> {
        let node = self.affinity.as_ref()?.node_affinity.as_ref()?;
        node.required_during_scheduling_ignored_during_execution
            .as_ref()
            .map(|terms| terms.node_selector_terms.as_slice())
    }

    pub(crate) fn preferred_node_terms(&self) -> &[PreferredSchedulingTerm] {
        let node = self.affinity.as_ref().and_then(|affinity| affinity.node_affinity.as_ref());
        let terms = node.and_then(|node| node.preferred_during_scheduling_ignored_during_execution.as_deref());
        terms.unwrap_or_default()
    }

    /// Guests that it must be with.
    pub(crate) fn required_together(&self) -> &[PodAffinityTerm] {
        let pods = self.affinity.as_ref().and_then(|affinity| affinity.pod_affinity.as_ref());
        pods.and_then(|pods| pods.required_during_scheduling_ignored_during_execution.as_deref()).unwrap_or_default()
    }

    pub(crate) fn preferred_together(&self) -> &[WeightedPodAffinityTerm] {
        let pods = self.affinity.as_ref().and_then(|affinity| affinity.pod_affinity.as_ref());
        pods.and_then(|pods| pods.preferred_during_scheduling_ignored_during_execution.as_deref()).unwrap_or_default()
    }

    /// Guests that it must not be with.
    pub(crate) fn required_apart(&self) -> &[PodAffinityTerm] {
        let pods = self.affinity.as_ref().and_then(|affinity| affinity.pod_anti_affinity.as_ref());
        pods.and_then(|pods| pods.required_during_scheduling_ignored_during_execution.as_deref()).unwrap_or_default()
    }

    pub(crate) fn preferred_apart(&self) -> &[WeightedPodAffinityTerm] {
        let pods = self.affinity.as_ref().and_then(|affinity| affinity.pod_anti_affinity.as_ref());
        pods.and_then(|pods| pods.preferred_during_scheduling_ignored_during_execution.as_deref()).unwrap_or_default()
    }
}
