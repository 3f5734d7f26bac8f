//! instancetype.kubevirt.io/v1beta1: sizes and preferences that machines refer to.

mod apply;
mod conflict;
mod prefer;
mod requirements;
mod topology;
mod types;

pub use conflict::{Conflict, Conflicts};
pub use requirements::check_requirements;
pub use types::*;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::kind::kind;
use crate::kubevirt::{ClusterConfig, VirtualMachine, VirtualMachineInstanceSpec};

pub const GROUP: &str = "instancetype.kubevirt.io";

kind! {
    /// A size of machines, for one namespace.
    VirtualMachineInstancetype, "instancetype.kubevirt.io", "v1beta1", "virtualmachineinstancetypes", NamespaceResourceScope {
        spec: VirtualMachineInstancetypeSpec,
    }
}

kind! {
    /// A size of machines, for all namespaces.
    VirtualMachineClusterInstancetype, "instancetype.kubevirt.io", "v1beta1", "virtualmachineclusterinstancetypes", ClusterResourceScope {
        spec: VirtualMachineInstancetypeSpec,
    }
}

kind! {
    /// What a guest system would like where its machine leaves the choice, for one namespace.
    VirtualMachinePreference, "instancetype.kubevirt.io", "v1beta1", "virtualmachinepreferences", NamespaceResourceScope {
        spec: VirtualMachinePreferenceSpec,
    }
}

kind! {
    /// What a guest system would like where its machine leaves the choice, for all namespaces.
    VirtualMachineClusterPreference, "instancetype.kubevirt.io", "v1beta1", "virtualmachineclusterpreferences", ClusterResourceScope {
        spec: VirtualMachinePreferenceSpec,
    }
}

/// The specs that a machine refers to, as they were found; a machine may have either, both or none.
#[derive(Clone, Copy, Debug, Default)]
pub struct Chosen<'a> {
    pub instancetype: Option<&'a VirtualMachineInstancetypeSpec>,
    pub preference: Option<&'a VirtualMachinePreferenceSpec>,
}

/// Puts the chosen specs into that of an instance. `base` is where it stands in the object that conflicts are
/// reported for: `spec.template.spec` in a machine, `spec` in an instance.
pub fn apply(
    chosen: Chosen<'_>,
    spec: &mut VirtualMachineInstanceSpec,
    metadata: &mut ObjectMeta,
    base: &str,
) -> Result<(), Conflicts> {
    if let Some(conflict) = topology::check_spread(chosen.instancetype, chosen.preference) {
        return Err(Conflicts(vec![conflict]));
    }
    if let Some(instancetype) = chosen.instancetype {
        apply::apply(instancetype, chosen.preference, spec, metadata, base)?;
    }
    if let Some(preference) = chosen.preference {
        prefer::prefer(preference, spec, metadata);
    }
    Ok(())
}

/// Is this a way to lay out processors?
pub(crate) fn is_topology(name: &str) -> bool {
    topology::Topology::named(name).is_some()
}

/// The devices that a preference adds by itself; to be applied before the default network is.
pub(crate) fn apply_autoattach(chosen: Chosen<'_>, spec: &mut VirtualMachineInstanceSpec) {
    if let Some(devices) = chosen.preference.and_then(|preference| preference.devices.as_ref()) {
        prefer::prefer_autoattach(devices, spec);
    }
}

/// The machine with everything that its instancetype and preference say written out, as `expand-spec` answers.
pub fn expand(vm: &VirtualMachine, chosen: Chosen<'_>, config: &ClusterConfig) -> Result<VirtualMachine, Conflicts> {
    let mut expanded = vm.clone();
    if vm.spec.instancetype.is_none() && vm.spec.preference.is_none() {
        return Ok(expanded);
    }
    let template = &mut expanded.spec.template;
    template.spec.add_missing_disks();
    template.spec.add_default_network();
    apply(chosen, &mut template.spec, &mut template.metadata, "spec.template.spec")?;
    template.spec.fill_defaults(config);
    expanded.spec.instancetype = None;
    expanded.spec.preference = None;
    if let Some(status) = &mut expanded.status {
        status.instancetype_ref = None;
        status.preference_ref = None;
    }
    Ok(expanded)
}

#[cfg(test)]
mod tests;
