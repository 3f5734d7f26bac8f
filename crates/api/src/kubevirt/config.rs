//! What the cluster says where machines say nothing.

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::KubeVirt;

/// How many times its memory and sockets a guest may grow to, unless the cluster says otherwise.
const HOTPLUG_RATIO: u32 = 4;

/// The parts of the KubeVirt object that defaults are taken from.
#[derive(Clone, Debug, PartialEq)]
pub struct ClusterConfig {
    pub architecture: &'static str,
    pub machine_type: String,
    pub cpu_model: String,
    pub eviction_strategy: Option<String>,
    /// Guests get room to grow while they run.
    pub live_update: bool,
    pub max_hotplug_ratio: u32,
    pub max_cpu_sockets: Option<u32>,
    pub max_guest: Option<Quantity>,
}

impl Default for ClusterConfig {
    fn default() -> Self {
        Self::of(None)
    }
}

impl ClusterConfig {
    /// From the KubeVirt object, or what holds without one.
    pub fn of(kubevirt: Option<&KubeVirt>) -> Self {
        let configuration = kubevirt.map(|kubevirt| kubevirt.spec.configuration.clone()).unwrap_or_default();
        let (architecture, machine_type) = match std::env::consts::ARCH {
            "aarch64" => ("arm64", "virt"),
            _ => ("amd64", "q35"),
        };
        let given = |text: Option<String>| text.filter(|text| !text.is_empty());
        let live = configuration.live_update_configuration.unwrap_or_default();
        Self {
            architecture,
            machine_type: given(configuration.machine_type).unwrap_or_else(|| machine_type.to_owned()),
            cpu_model: given(configuration.cpu_model).unwrap_or_else(|| "host-model".to_owned()),
            eviction_strategy: given(configuration.eviction_strategy),
            live_update: configuration.vm_rollout_strategy.as_deref() != Some("Stage"),
            max_hotplug_ratio: live.max_hotplug_ratio.filter(|ratio| *ratio > 0).unwrap_or(HOTPLUG_RATIO),
            max_cpu_sockets: live.max_cpu_sockets,
            max_guest: live.max_guest,
        }
    }
}
