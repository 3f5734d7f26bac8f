//! The status of a VirtualMachineInstance, computed whole from what is known, and written as what differs.

use std::collections::BTreeMap;

use croft_api::kubevirt::{
    CpuTopology, HotplugVolumeStatus, Machine, MemoryStatus, VirtualMachineInstance, VirtualMachineInstanceCondition,
    VirtualMachineInstanceNetworkInterface, VirtualMachineInstancePhaseTransitionTimestamp,
    VirtualMachineInstanceStatus, VolumeStatus, condition, phase, volume_phase,
};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Map, Value};

use super::machine;
use super::prepare::{VolumeFacts, queues, vsock_cid};
use super::running::GuestFacts;
use super::volume;

/// KubeVirt's words for why a guest stands still.
pub(super) const PAUSED_BY_USER: &str = "PausedByUser";
pub(super) const PAUSED_IO_ERROR: &str = "PausedIOError";

/// A condition's reason and message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Why {
    pub(super) reason: String,
    pub(super) message: String,
}

impl Why {
    pub(super) fn new(reason: impl Into<String>, message: impl Into<String>) -> Why {
        Why { reason: reason.into(), message: message.into() }
    }
}

/// How a volume that was plugged while the guest runs stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct VolumeState {
    pub(super) phase: &'static str,
    pub(super) reason: &'static str,
    pub(super) message: String,
}

/// Everything that the status says.
#[derive(Debug, Clone, Default)]
pub(super) struct View {
    pub(super) phase: &'static str,
    /// Why it ended, for the one word that the status has for it.
    pub(super) reason: Option<String>,
    /// Why the guest is not up; None if it is.
    pub(super) not_ready: Option<Why>,
    pub(super) paused: Option<Why>,
    /// What of the object is not true of the machine, and why.
    pub(super) not_synchronized: Option<Why>,
    pub(super) volumes: BTreeMap<String, VolumeFacts>,
    pub(super) volume_states: BTreeMap<String, VolumeState>,
    /// Volumes that are to go but are still there.
    pub(super) detaching: BTreeMap<String, VolumeState>,
    pub(super) memory_dumps: BTreeMap<String, croft_api::kubevirt::DomainMemoryDumpInfo>,
    pub(super) sockets: Option<u32>,
    /// Why no processors can be plugged while the guest runs.
    pub(super) fixed_processors: Option<Why>,
    pub(super) memory_bytes: Option<u64>,
    pub(super) overhead_bytes: Option<u64>,
    pub(super) user: Option<u32>,
    pub(super) machine_type: Option<String>,
    pub(super) guest: Option<GuestFacts>,
}

pub(super) fn render(
    vmi: &VirtualMachineInstance,
    view: &View,
    node: &str,
    now: Timestamp,
) -> VirtualMachineInstanceStatus {
    let mut status = vmi.status.clone().unwrap_or_default();
    status.node_name = Some(node.to_owned());
    if status.phase.as_deref() != Some(view.phase) {
        status.phase = Some(view.phase.to_owned());
        status.phase_transition_timestamps.push(VirtualMachineInstancePhaseTransitionTimestamp {
            phase: Some(view.phase.to_owned()),
            phase_transition_timestamp: Some(Time(whole_second(now))),
        });
    }
    status.reason.clone_from(&view.reason);
    conditions(&mut status, vmi, view, now);
    if view.phase != phase::RUNNING {
        return status;
    }
    running(&mut status, vmi, view);
    status
}

/// What only a machine that runs has.
fn running(status: &mut VirtualMachineInstanceStatus, vmi: &VirtualMachineInstance, view: &View) {
    let guest = view.guest.clone().unwrap_or_default();
    status.interfaces = interfaces(vmi, &guest);
    status.guest_os_info = guest.os;
    status.fs_freeze_status = guest.fs_freeze_status;
    status.volume_status = volumes(status, vmi, view);
    status.runtime_user = Some(u64::from(view.user.unwrap_or_default()));
    status.vsock_cid = vsock_cid(vmi);
    status.machine = view.machine_type.clone().map(|name| Machine { type_: Some(name) });
    let topology = machine::topology(&vmi.spec);
    let sockets = view.sockets.or(topology.sockets);
    status.current_cpu_topology = Some(CpuTopology { sockets, ..topology });
    let quantity = |bytes: u64| Quantity(croft_meta_quantity(bytes));
    let requested = machine::guest_memory(&vmi.spec).ok();
    let known = status.memory.take().unwrap_or_default();
    status.memory = Some(MemoryStatus {
        guest_at_boot: known.guest_at_boot.or_else(|| view.memory_bytes.map(quantity)),
        guest_current: view.memory_bytes.map(quantity),
        guest_requested: requested.map(quantity),
        memory_overhead: view.overhead_bytes.map(quantity).or(known.memory_overhead),
    });
    status.launcher_container_image_version = None;
    status.qos_class.get_or_insert_with(|| "Burstable".to_owned());
    status.migration_transport.get_or_insert_with(|| "Unix".to_owned());
}

/// As KubeVirt prints it: in the largest unit that fits.
fn croft_meta_quantity(bytes: u64) -> String {
    let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
    croft_meta::Quantity::from_i64(bytes, croft_meta::quantity::Notation::Binary).to_string()
}

/// The API's times have no fractions.
fn whole_second(now: Timestamp) -> Timestamp {
    Timestamp::from_second(now.as_second()).unwrap_or(now)
}

fn conditions(status: &mut VirtualMachineInstanceStatus, vmi: &VirtualMachineInstance, view: &View, now: Timestamp) {
    let is_over = matches!(view.phase, phase::SUCCEEDED | phase::FAILED);
    let mut wanted: BTreeMap<&str, Option<(bool, Option<Why>)>> = BTreeMap::new();
    let readiness = view.guest.as_ref().and_then(|guest| guest.readiness.clone());
    let ready = match (&view.not_ready, &view.paused, readiness) {
        (Some(why), _, _) => (false, Some(why.clone())),
        (None, Some(why), _) => (false, Some(Why::new("GuestNotRunning", why.message.clone()))),
        (None, None, Some(Err(message))) => (false, Some(Why::new("ContainersNotReady", message))),
        (None, None, _) => (true, None),
    };
    wanted.insert(condition::READY, Some(ready));
    wanted.insert(condition::PAUSED, view.paused.clone().map(|why| (true, Some(why))));
    let synchronized = match &view.not_synchronized {
        Some(why) => Some((false, Some(why.clone()))),
        None if view.phase == phase::RUNNING => Some((true, None)),
        None => None,
    };
    wanted.insert(condition::SYNCHRONIZED, synchronized);
    wanted.insert(condition::PROVISIONING, None);
    if view.phase == phase::RUNNING {
        wanted.insert(condition::LIVE_MIGRATABLE, Some((false, Some(not_migratable(vmi)))));
        wanted.insert(condition::HOT_VCPU_CHANGE, view.fixed_processors.clone().map(|why| (false, Some(why))));
    }
    let guest: &[VirtualMachineInstanceCondition] = view.guest.as_ref().map_or(&[], |guest| &guest.conditions);
    for type_ in GuestFacts::CONDITIONS {
        let found = guest.iter().find(|condition| condition.type_ == type_).filter(|_| !is_over);
        let why = |condition: &VirtualMachineInstanceCondition| {
            let reason = condition.reason.clone().unwrap_or_default();
            let message = condition.message.clone().unwrap_or_default();
            (!reason.is_empty() || !message.is_empty()).then(|| Why::new(reason, message))
        };
        wanted.insert(type_, found.map(|condition| (condition.status == "True", why(condition))));
    }
    for (type_, state) in wanted {
        set_condition(&mut status.conditions, type_, state, now);
    }
}

/// A machine stays where it is for now: its disks are files of this node.
fn not_migratable(vmi: &VirtualMachineInstance) -> Why {
    let claim = vmi.spec.volumes.iter().find(|volume| volume::claim_of(volume).is_some());
    match claim {
        Some(volume) => Why::new(
            "DisksNotLiveMigratable",
            format!("cannot migrate VMI: volume {} is local to this node", volume.name),
        ),
        None => Why::new("HostModelNotLiveMigratable", "cannot migrate VMI: no other node can take it over"),
    }
}

/// Sets, changes or removes a condition. The time of its last transition stays while its status does.
fn set_condition(
    conditions: &mut Vec<VirtualMachineInstanceCondition>,
    type_: &str,
    state: Option<(bool, Option<Why>)>,
    now: Timestamp,
) {
    let Some((is_true, why)) = state else {
        conditions.retain(|condition| condition.type_ != type_);
        return;
    };
    let status = if is_true { "True" } else { "False" };
    let known = conditions.iter_mut().find(|condition| condition.type_ == type_);
    let mut fresh = VirtualMachineInstanceCondition {
        type_: type_.to_owned(),
        status: status.to_owned(),
        last_probe_time: None,
        last_transition_time: Some(Time(whole_second(now))),
        reason: why.as_ref().map(|why| why.reason.clone()).filter(|reason| !reason.is_empty()),
        message: why.map(|why| why.message).filter(|message| !message.is_empty()),
    };
    match known {
        Some(known) => {
            if known.status == fresh.status {
                fresh.last_transition_time.clone_from(&known.last_transition_time);
                fresh.last_probe_time.clone_from(&known.last_probe_time);
            }
            *known = fresh;
        }
        None => conditions.push(fresh),
    }
}

/// In the order of the spec, each with what is known of it; then what only the guest has.
fn interfaces(vmi: &VirtualMachineInstance, guest: &GuestFacts) -> Vec<VirtualMachineInstanceNetworkInterface> {
    let mut all = Vec::new();
    let mut own = Vec::new();
    for interface in &vmi.spec.domain.devices.interfaces {
        if interface.state.as_deref() == Some("absent") {
            continue;
        }
        let Ok(mac) = machine::interface_mac(vmi, interface) else { continue };
        let mac = mac.to_string();
        let is_same = |seen: &&VirtualMachineInstanceNetworkInterface| {
            seen.mac.as_deref().is_some_and(|seen| seen.eq_ignore_ascii_case(&mac))
        };
        let seen = guest.interfaces.iter().find(is_same).cloned().unwrap_or_default();
        own.push(mac.clone());
        let is_down = interface.state.as_deref() == Some("down");
        all.push(VirtualMachineInstanceNetworkInterface {
            name: Some(interface.name.clone()),
            mac: Some(mac),
            queue_count: Some(i32::from(queues(vmi, interface.model.as_deref()))),
            link_state: Some(if is_down { "down" } else { "up" }.to_owned()),
            info_source: seen.info_source.clone().or_else(|| Some("domain".to_owned())),
            ..seen
        });
    }
    let is_own = |seen: &VirtualMachineInstanceNetworkInterface| {
        seen.name.is_some()
            || seen.mac.as_deref().is_some_and(|mac| own.iter().any(|own| own.eq_ignore_ascii_case(mac)))
    };
    all.extend(guest.interfaces.iter().filter(|seen| !is_own(seen)).cloned());
    all
}

fn volumes(status: &VirtualMachineInstanceStatus, vmi: &VirtualMachineInstance, view: &View) -> Vec<VolumeStatus> {
    let known: BTreeMap<String, String> =
        status.volume_status.iter().map(|volume| (volume.name.clone(), volume.target.clone())).collect();
    let targets = machine::targets(&vmi.spec, &known);
    let mut all = Vec::new();
    for volume in &vmi.spec.volumes {
        let target = targets.get(&volume.name).cloned().unwrap_or_default();
        let facts = view.volumes.get(&volume.name);
        let state = view.volume_states.get(&volume.name);
        let is_hot = volume::is_hotpluggable(volume);
        let dump = view.memory_dumps.get(&volume.name);
        let size = facts.map(|facts| i64::try_from(facts.size_bytes).unwrap_or(i64::MAX));
        all.push(VolumeStatus {
            name: volume.name.clone(),
            // A volume that is not there yet has no device.
            target: if is_hot && state.is_none_or(|state| state.phase != volume_phase::READY) {
                String::new()
            } else {
                target
            },
            phase: state.map(|state| state.phase.to_owned()),
            reason: state.map(|state| state.reason.to_owned()).filter(|reason| !reason.is_empty()),
            message: state.map(|state| state.message.clone()).filter(|message| !message.is_empty()),
            persistent_volume_claim_info: facts.and_then(|facts| facts.claim.clone()),
            hotplug_volume: is_hot.then(HotplugVolumeStatus::default),
            size,
            memory_dump_volume: dump.cloned(),
            container_disk_volume: None,
        });
    }
    for (name, state) in &view.detaching {
        let target = known.get(name).cloned().unwrap_or_default();
        all.push(VolumeStatus {
            name: name.clone(),
            target,
            phase: Some(state.phase.to_owned()),
            reason: Some(state.reason.to_owned()),
            message: Some(state.message.clone()),
            hotplug_volume: Some(HotplugVolumeStatus::default()),
            ..VolumeStatus::default()
        });
    }
    all.sort_by(|a, b| a.name.cmp(&b.name));
    all
}

/// What a merge patch must say to turn one value into the other; None if they are the same.
pub(super) fn difference(old: &Value, new: &Value) -> Option<Value> {
    if old == new {
        return None;
    }
    let (Value::Object(old), Value::Object(new)) = (old, new) else { return Some(new.clone()) };
    let mut patch = Map::new();
    for (key, value) in new {
        if let Some(changed) = difference(old.get(key).unwrap_or(&Value::Null), value) {
            patch.insert(key.clone(), changed);
        }
    }
    for key in old.keys().filter(|key| !new.contains_key(*key)) {
        patch.insert(key.clone(), Value::Null);
    }
    Some(Value::Object(patch))
}
