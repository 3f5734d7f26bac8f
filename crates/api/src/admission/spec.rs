//! What the spec of an instance must be, in a machine's template or by itself. Texts and fields are KubeVirt's.

mod credentials;
mod devices;
mod disks;
mod firmware;
mod memory;
mod networks;
mod placement;
mod probes;
mod processors;
mod refused;
mod volumes;

use croft_meta::FieldPath;

use super::denial::Denial;
use crate::kubevirt::VirtualMachineInstanceSpec;

/// Checks a spec that stands at `at`; defaults are already in it.
pub(super) fn check(denial: &mut Denial, at: &FieldPath, spec: &VirtualMachineInstanceSpec) {
    placement::check_names(denial, at, spec);
    memory::check(denial, at, spec);
    processors::check(denial, at, spec);
    placement::check(denial, at, spec);
    networks::check(denial, at, spec);
    disks::check(denial, at, spec);
    devices::check(denial, at, spec);
    probes::check(denial, at, spec);
    firmware::check(denial, at, spec);
    volumes::check(denial, at, spec);
    credentials::check(denial, at, spec);
    refused::check(denial, at, spec);
}

/// What only an instance must have: every volume is shown, and there is memory.
pub(super) fn check_instance(denial: &mut Denial, spec: &VirtualMachineInstanceSpec) {
    let at = FieldPath::new("spec");
    volumes::check_shown(denial, &at, spec);
    memory::check_present(denial, &at, spec);
}

fn text(field: Option<&String>) -> &str {
    field.map(String::as_str).unwrap_or_default()
}

#[cfg(test)]
mod tests;
