//! Changes of a machine that its running guest can follow, and word of those that it cannot.
//!
//! Pure: from the machine, what it was started from and the instance, to what both should become.

mod growth;
mod nics;
mod restart;
mod volumes;

use croft_api::kubevirt::{VirtualMachine, VirtualMachineInstance, VirtualMachineInstanceSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use self::growth::Obstacle;
pub(crate) use self::growth::{CPU_ALLOCATION_RATIO, vcpus};
pub(super) use self::volumes::is_fulfilled;
use super::conditions::{Failure, Restart};
use super::memory_dump;
use super::view::{is_being_deleted, is_final, is_migrating, status_of};

const NEEDS_RESTART: &str = "a non-live-updatable field was changed in the template spec";

/// What the machine and its instance should become.
#[derive(Clone, Debug)]
pub(super) struct Updated {
    pub(super) machine: VirtualMachine,
    pub(super) instance: Option<VirtualMachineInstance>,
    pub(super) restart: Restart,
    pub(super) failure: Option<Failure>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Given<'a> {
    pub(super) machine: &'a VirtualMachine,
    pub(super) instance: Option<&'a VirtualMachineInstance>,
    /// What the machine asks for, with its instancetype and preference applied.
    pub(super) wanted: &'a VirtualMachineInstanceSpec,
    /// The same for the machine as it was when the instance was made, if it was different.
    pub(super) started: Started<'a>,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Started<'a> {
    /// Nothing has changed since.
    Same,
    From(&'a VirtualMachineInstanceSpec),
    Unknown,
}

pub(super) fn update(given: Given<'_>) -> Updated {
    let mut machine = given.machine.clone();
    let status = status_of(given.machine);
    // What is plugged in and out counts for the guest at once, before the machine's new template is stored.
    let mut wanted = given.wanted.clone();
    for spec in [&mut machine.spec.template.spec, &mut wanted] {
        volumes::fulfil(spec, &status.volume_requests);
    }
    let instance = given.instance.filter(|one| !is_being_deleted(&one.metadata) && !is_final(one));
    let mut updated = Updated { machine, instance: None, restart: Restart::Unknown, failure: None };
    match instance {
        Some(there) => updated.follow(there.clone(), &wanted, given.started),
        None if given.instance.is_none() => updated.restart = Restart::NotRequired,
        None => {}
    }
    updated.dump_memory(given.instance);
    if given.instance.is_none_or(|one| !is_being_deleted(&one.metadata)) {
        let seen = updated.instance.as_ref().or(given.instance);
        nics::forget_absent(&mut updated.machine.spec.template.spec, seen);
    }
    updated
}

impl Updated {
    fn follow(
        &mut self,
        mut instance: VirtualMachineInstance,
        wanted: &VirtualMachineInstanceSpec,
        started: Started<'_>,
    ) {
        let moves_volumes = self.machine.spec.update_volumes_strategy.as_deref() == Some("Migration");
        let needs_restart = match started {
            Started::Same => false,
            Started::From(started) => restart::is_needed(started, wanted, &instance, moves_volumes),
            Started::Unknown => return,
        };
        nics::follow(&mut instance, wanted);
        if !moves_volumes {
            volumes::follow(&mut instance, wanted);
        }
        follow_labels(&mut instance.metadata, &self.machine.spec.template.metadata);
        self.restart = Restart::NotRequired;
        if needs_restart {
            self.restart = Restart::Required(NEEDS_RESTART.to_owned());
        } else {
            self.note(growth::follow_cpu(&mut instance, wanted), "HotPlugCPUError", "CPU change request");
            self.note(growth::follow_memory(&mut instance, wanted), "HotPlugMemoryError", "memory hotplug requests");
            self.follow_placement(&mut instance, wanted);
        }
        self.instance = Some(instance);
    }

    fn note(&mut self, result: Result<(), Obstacle>, reason: &'static str, what: &str) {
        match result {
            Ok(()) => {}
            Err(Obstacle::Restart(why)) => self.restart = Restart::Required(why),
            Err(Obstacle::NotNow(why)) => {
                self.failure = Some(Failure::new(reason, format!("Error encountered while handling {what}: {why}")));
            }
        }
    }

    /// Counts for the next move; the guest stays where it is.
    fn follow_placement(&mut self, instance: &mut VirtualMachineInstance, wanted: &VirtualMachineInstanceSpec) {
        let spec = &instance.spec;
        let is_same = spec.node_selector == wanted.node_selector
            && spec.affinity == wanted.affinity
            && spec.tolerations == wanted.tolerations;
        if is_same {
            return;
        }
        if is_migrating(instance) {
            let why = "Node affinity should not be changed during VMI migration";
            self.note(Err(Obstacle::NotNow(why)), "AffinityChangeError", "node affinity change request");
            return;
        }
        instance.spec.node_selector.clone_from(&wanted.node_selector);
        instance.spec.affinity.clone_from(&wanted.affinity);
        instance.spec.tolerations.clone_from(&wanted.tolerations);
    }

    fn dump_memory(&mut self, before: Option<&VirtualMachineInstance>) {
        let Some(request) = &status_of(&self.machine).memory_dump_request else { return };
        let plugging = memory_dump::plugging(request, before);
        let claim = request.claim_name.clone();
        if let Some(is_in) = plugging.template {
            memory_dump::plug(&mut self.machine.spec.template.spec, &claim, is_in);
        }
        if let Some((is_in, instance)) = plugging.instance.zip(self.instance.as_mut()) {
            memory_dump::plug(&mut instance.spec, &claim, is_in);
        }
    }
}

/// Labels of the template show on the instance at once, as Harvester has it; those of KubeVirt are the instance's own.
fn follow_labels(instance: &mut ObjectMeta, template: &ObjectMeta) {
    let is_own = |key: &String| {
        let domain = key.split_once('/').map_or(key.as_str(), |(domain, _)| domain);
        domain == "kubevirt.io" || domain.ends_with(".kubevirt.io")
    };
    let mut labels = instance.labels.clone().unwrap_or_default();
    let wanted = template.labels.iter().flatten().filter(|(key, _)| !is_own(key));
    labels.retain(|key, _| is_own(key) || template.labels.as_ref().is_some_and(|labels| labels.contains_key(key)));
    labels.extend(wanted.map(|(key, value)| (key.clone(), value.clone())));
    if Some(&labels) != instance.labels.as_ref() && !(labels.is_empty() && instance.labels.is_none()) {
        instance.labels = Some(labels);
    }
}

#[cfg(test)]
mod tests;
