//! Memory dumps: a claim is plugged in, the guest's memory is written to it, and it is plugged out again.

use croft_api::kubevirt::{
    MemoryDumpVolumeSource, VirtualMachineInstance, VirtualMachineInstanceSpec, VirtualMachineMemoryDumpRequest,
    Volume, volume_phase,
};

use super::view::{is_being_deleted, is_running};

const ASSOCIATING: &str = "Associating";
const IN_PROGRESS: &str = "InProgress";
const UNMOUNTING: &str = "Unmounting";
const COMPLETED: &str = "Completed";
const DISSOCIATING: &str = "Dissociating";
const FAILED: &str = "Failed";

/// The annotation of the claim that tells what is in it.
pub(super) const ANNOTATION: &str = "kubevirt.io/memory-dump";
const FAILED_TEXT: &str = "Memory dump failed";

/// Whether the volumes of the template and of the instance are to have the dump's claim among them; nothing if they
/// stay as they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Plugging {
    pub(super) template: Option<bool>,
    pub(super) instance: Option<bool>,
}

pub(super) fn plugging(
    request: &VirtualMachineMemoryDumpRequest,
    instance: Option<&VirtualMachineInstance>,
) -> Plugging {
    let is_up = instance.is_some_and(|instance| is_running(instance) && !is_being_deleted(&instance.metadata));
    match request.phase.as_str() {
        ASSOCIATING if is_up => Plugging { template: Some(true), instance: Some(true) },
        UNMOUNTING | FAILED => Plugging { template: None, instance: Some(false) },
        DISSOCIATING => Plugging { template: Some(false), instance: Some(false) },
        _ => Plugging::default(),
    }
}

/// What the claim's annotation should say.
pub(super) fn claim_annotation(request: &VirtualMachineMemoryDumpRequest) -> Option<&str> {
    match request.phase.as_str() {
        UNMOUNTING => request.file_name.as_deref(),
        FAILED => Some(FAILED_TEXT),
        _ => None,
    }
}

/// Puts the claim among the volumes, or takes it out.
pub(super) fn plug(spec: &mut VirtualMachineInstanceSpec, claim: &str, is_in: bool) {
    let is_there = spec.volumes.iter().any(|volume| volume.name == claim);
    if !is_in {
        spec.volumes.retain(|volume| volume.name != claim);
    } else if !is_there {
        let source = MemoryDumpVolumeSource {
            claim_name: claim.to_owned(),
            hotpluggable: Some(true),
            ..MemoryDumpVolumeSource::default()
        };
        let volume = Volume { name: claim.to_owned(), memory_dump: Some(source), ..Volume::default() };
        spec.volumes.push(volume);
    }
}

/// Where the request stands, given the template's volumes and what the instance says. Nothing when it is withdrawn.
pub(super) fn next(
    request: &VirtualMachineMemoryDumpRequest,
    template: &VirtualMachineInstanceSpec,
    instance: Option<&VirtualMachineInstance>,
) -> Option<VirtualMachineMemoryDumpRequest> {
    let mut next = request.clone();
    if request.remove == Some(true) {
        DISSOCIATING.clone_into(&mut next.phase);
    }
    let in_template = template.volumes.iter().any(|volume| volume.name == request.claim_name);
    let mut statuses = instance.iter().flat_map(|instance| &instance.status).flat_map(|status| &status.volume_status);
    let volume = statuses.find(|volume| volume.name == request.claim_name);
    match request.phase.as_str() {
        COMPLETED if request.remove != Some(true) => return Some(request.clone()),
        ASSOCIATING if in_template => IN_PROGRESS.clone_into(&mut next.phase),
        IN_PROGRESS => {
            let Some((volume, dump)) = volume.and_then(|one| Some((one, one.memory_dump_volume.as_ref()?))) else {
                return Some(next);
            };
            next.start_timestamp = dump.start_timestamp.clone().or(next.start_timestamp);
            if volume.phase.as_deref() == Some(volume_phase::MEMORY_DUMP_COMPLETED) {
                UNMOUNTING.clone_into(&mut next.phase);
                next.end_timestamp.clone_from(&dump.end_timestamp);
                next.file_name.clone_from(&dump.target_file_name);
            } else if volume.phase.as_deref() == Some(volume_phase::MEMORY_DUMP_FAILED) {
                FAILED.clone_into(&mut next.phase);
                next.end_timestamp.clone_from(&dump.end_timestamp);
                next.message.clone_from(&volume.message);
            }
        }
        UNMOUNTING if volume.is_none() && request.remove != Some(true) => COMPLETED.clone_into(&mut next.phase),
        DISSOCIATING if volume.is_none() && !in_template => return None,
        _ => {}
    }
    Some(next)
}

#[cfg(test)]
#[expect(clippy::needless_pass_by_value, reason = "tables read better without references")]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn request(phase: &str, extra: Value) -> VirtualMachineMemoryDumpRequest {
        let mut request = json!({"claimName": "dump", "phase": phase});
        request.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        serde_json::from_value(request).unwrap()
    }

    fn instance(volume: Option<Value>) -> VirtualMachineInstance {
        let volumes: Vec<Value> = volume.into_iter().collect();
        let object = json!({
            "spec": {"domain": {"devices": {}}},
            "status": {"phase": "Running", "volumeStatus": volumes},
        });
        serde_json::from_value(object).unwrap()
    }

    fn template(is_in: bool) -> VirtualMachineInstanceSpec {
        let mut spec = VirtualMachineInstanceSpec::default();
        plug(&mut spec, "dump", is_in);
        spec
    }

    #[test]
    fn a_dump_goes_from_phase_to_phase() {
        let volume = |phase: &str| {
            json!({"name": "dump", "target": "", "phase": phase, "message": "full",
                "memoryDumpVolume": {"targetFileName": "vm.dump"}})
        };
        let cases = [
            ("Associating", json!({}), false, None, Some("Associating")),
            ("Associating", json!({}), true, None, Some("InProgress")),
            ("InProgress", json!({}), true, Some(volume("Ready")), Some("InProgress")),
            ("InProgress", json!({}), true, Some(volume("MemoryDumpCompleted")), Some("Unmounting")),
            ("InProgress", json!({}), true, Some(volume("MemoryDumpFailed")), Some("Failed")),
            ("Unmounting", json!({}), true, Some(volume("MemoryDumpCompleted")), Some("Unmounting")),
            ("Unmounting", json!({}), true, None, Some("Completed")),
            ("Completed", json!({}), true, None, Some("Completed")),
            ("Completed", json!({"remove": true}), true, None, Some("Dissociating")),
            ("Failed", json!({"remove": true}), true, None, Some("Dissociating")),
            ("Dissociating", json!({"remove": true}), true, None, Some("Dissociating")),
            ("Dissociating", json!({"remove": true}), false, Some(volume("Ready")), Some("Dissociating")),
            ("Dissociating", json!({"remove": true}), false, None, None),
        ];
        for (phase, extra, in_template, volume, expected) in cases {
            let instance = instance(volume.clone());
            let next = next(&request(phase, extra.clone()), &template(in_template), Some(&instance));
            let told = next.as_ref().map(|next| next.phase.as_str());
            assert_eq!(told, expected, "{phase} {extra} with {volume:?}");
        }
    }

    #[test]
    fn the_claim_is_plugged_in_for_the_dump_alone() {
        let up = instance(None);
        let both = |is_in| Plugging { template: Some(is_in), instance: Some(is_in) };
        let cases = [
            ("Associating", Some(&up), both(true)),
            ("Associating", None, Plugging::default()),
            ("InProgress", Some(&up), Plugging::default()),
            ("Unmounting", Some(&up), Plugging { template: None, instance: Some(false) }),
            ("Dissociating", None, both(false)),
        ];
        for (phase, instance, expected) in cases {
            assert_eq!(plugging(&request(phase, json!({})), instance), expected, "{phase}");
        }
        let named = request("Unmounting", json!({"fileName": "vm.dump"}));
        assert_eq!(claim_annotation(&named), Some("vm.dump"));
        assert_eq!(claim_annotation(&request("Failed", json!({}))), Some(FAILED_TEXT));
    }
}
