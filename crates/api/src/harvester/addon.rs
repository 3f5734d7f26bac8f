//! What an Addon holds, and which ones every server has.
//!
//! In Harvester an addon installs a chart. Croft is one program: an addon switches on a part of it, or cannot be had yet,
//! and its status says which.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Condition;
use crate::kind::nullable;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AddonSpec {
    pub chart: String,
    pub enabled: bool,
    pub repo: String,
    /// A mapping in YAML, or empty.
    pub values_content: String,
    pub version: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AddonStatus {
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// One of [`state`]; empty until it is first enabled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<String>,
}

/// What `status.status` may be.
pub mod state {
    pub const ENABLING: &str = "AddonEnabling";
    pub const UPDATING: &str = "AddonUpdating";
    pub const DISABLING: &str = "AddonDisabling";
    pub const DEPLOYED: &str = "AddonDeploySuccessful";
    pub const DISABLED: &str = "AddonDisabled";
}

/// What enabling an addon does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// A part of Croft stands for it, and this is what it does.
    BuiltIn(&'static str),
    /// Croft has nothing in its place, and this is what is missing.
    Missing(&'static str),
}

/// An addon that every server has.
#[derive(Clone, Copy, Debug)]
pub struct Shipped {
    pub namespace: &'static str,
    pub name: &'static str,
    pub chart: &'static str,
    /// What people see instead of its name.
    pub display_name: Option<&'static str>,
    pub is_experimental: bool,
    pub effect: Effect,
}

pub const ALL: &[Shipped] = &[
    Shipped {
        namespace: "harvester-system",
        name: "vm-import-controller",
        chart: "harvester-vm-import-controller",
        display_name: None,
        is_experimental: false,
        effect: Effect::Missing("machines cannot be imported from other platforms"),
    },
    Shipped {
        namespace: "harvester-system",
        name: "pcidevices-controller",
        chart: "harvester-pcidevices-controller",
        display_name: None,
        is_experimental: false,
        effect: Effect::Missing("devices of the node cannot be passed through to machines"),
    },
    Shipped {
        namespace: "cattle-monitoring-system",
        name: "rancher-monitoring",
        chart: "rancher-monitoring",
        display_name: None,
        is_experimental: false,
        effect: Effect::BuiltIn(
            "Croft measures itself: read /metrics of the server and of each node; no Prometheus or Grafana is installed",
        ),
    },
    Shipped {
        namespace: "cattle-logging-system",
        name: "rancher-logging",
        chart: "rancher-logging",
        display_name: None,
        is_experimental: false,
        effect: Effect::Missing("logs are not sent on: Croft writes its own to standard error"),
    },
    Shipped {
        namespace: "harvester-system",
        name: "harvester-seeder",
        chart: "harvester-seeder",
        display_name: None,
        is_experimental: true,
        effect: Effect::Missing("machines cannot be managed out of band"),
    },
    Shipped {
        namespace: "harvester-system",
        name: "nvidia-driver-toolkit",
        chart: "nvidia-driver-runtime",
        display_name: None,
        is_experimental: false,
        effect: Effect::Missing("GPUs cannot be divided among machines"),
    },
    Shipped {
        namespace: "kube-system",
        name: "kubeovn-operator",
        chart: "kubeovn-operator",
        display_name: None,
        is_experimental: true,
        effect: Effect::Missing("there are no overlay networks"),
    },
    Shipped {
        namespace: "kube-system",
        name: "descheduler",
        chart: "descheduler",
        display_name: Some("virtual-machine-auto-balance"),
        is_experimental: true,
        effect: Effect::Missing("running machines cannot be moved to another node"),
    },
];

pub fn find(namespace: &str, name: &str) -> Option<&'static Shipped> {
    ALL.iter().find(|addon| addon.namespace == namespace && addon.name == name)
}

/// What enabling this one does; those that are not ours would need a chart.
pub fn effect(namespace: &str, name: &str) -> Effect {
    find(namespace, name).map_or(Effect::Missing("Croft installs no charts"), |addon| addon.effect)
}
