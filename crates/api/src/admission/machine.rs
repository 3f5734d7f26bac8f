//! VirtualMachines: Harvester's changes, then KubeVirt's, then what both demand.

mod affinity;
mod busy;
mod claims;
mod infer;
mod matchers;
mod overcommit;

use croft_meta::{ApiError, FieldPath};
use serde_json::{Value, json};

use super::denial::Denial;
use super::{Admission, Lookup, quantities, spec, typed};
use crate::harvester::settings;
use crate::instancetype::{self, Chosen, VirtualMachineInstancetypeSpec, VirtualMachinePreferenceSpec};
use crate::kubevirt::{
    ANNOTATION_LATEST_API_VERSION, ANNOTATION_PCI_TOPOLOGY_VERSION, ANNOTATION_STORAGE_API_VERSION, ClusterConfig,
    KubeVirt, MACHINE_FINALIZER, VirtualMachine, VirtualMachineSpec, run_strategy,
};
use crate::view::{default, default_text, get, has, list, list_mut, map_mut, set, text};

pub(super) use claims::is_shareable;

pub(super) const HARVESTER: &str = "validator.harvesterhci.io";
pub(super) const HARVESTER_MUTATOR: &str = "mutator.harvesterhci.io";
const MUTATOR: &str = "virtualmachines-mutator.kubevirt.io";
pub(super) const VALIDATOR: &str = "virtualmachine-validator.kubevirt.io";

const RUN_STRATEGY: &str = "harvesterhci.io/vmRunStrategy";
const KNOWN_ADDRESSES: &str = "harvesterhci.io/mac-address";
const MAINTENANCE: &str = "harvesterhci.io/maintain-mode-strategy";
const MAINTENANCE_STRATEGIES: &[&str] =
    &["Migrate", "ShutdownAndRestartAfterEnable", "ShutdownAndRestartAfterDisable", "Shutdown"];

pub(super) fn admit(admission: &mut Admission<'_>) -> Result<(), ApiError> {
    let is_going = has(admission.object, "metadata.deletionTimestamp");
    if admission.subresource == "status" || is_going || is_untouched(admission) {
        return Ok(());
    }
    quantities::of_machine(admission.object);
    if !has(admission.object, "spec.template.spec.domain") {
        // The schema says so.
        return Ok(());
    }
    let chosen = affinity::chosen_addresses(admission);
    change_as_harvester(admission)?;
    change_as_kubevirt(admission)?;
    let Some(vm) = typed::read::<VirtualMachine>(admission.object, VALIDATOR)? else { return Ok(()) };
    let old = admission.old.map(|old| typed::read::<VirtualMachine>(old, VALIDATOR)).transpose()?.flatten();
    check_as_kubevirt(&vm, old.as_ref(), admission)?;
    check_as_harvester(&vm, old.as_ref(), admission)?;
    affinity::check_addresses(&chosen, admission)
}

/// Controllers write metadata all the time; nothing here could come out differently.
fn is_untouched(admission: &Admission<'_>) -> bool {
    let same = |old: &Value, path: &str| get(admission.object, path) == get(old, path);
    admission
        .old
        .is_some_and(|old| ["spec", "metadata.annotations", "metadata.labels"].into_iter().all(|path| same(old, path)))
}

/// An annotation of the machine itself.
fn annotation<'a>(object: &'a Value, key: &str) -> &'a str {
    get(object, "metadata.annotations").and_then(|map| map.get(key)).and_then(Value::as_str).unwrap_or_default()
}

fn change_as_harvester(admission: &mut Admission<'_>) -> Result<(), ApiError> {
    // An instancetype gives the size; Harvester knows none, and what it fills in would conflict.
    if !has(admission.object, "spec.instancetype") {
        overcommit::book(admission)?;
        for field in ["cores", "sockets", "threads"] {
            let path = format!("spec.template.spec.domain.cpu.{field}");
            if crate::view::number(admission.object, &path) == 0 {
                set(admission.object, &path, 1);
            }
        }
    }
    restart_as_before(admission);
    affinity::follow_networks(admission)?;
    if !has(admission.object, "spec.template.spec.terminationGracePeriodSeconds") {
        let seconds = settings::effective(admission.lookup, "default-vm-termination-grace-period-seconds");
        if let Ok(seconds) = seconds.parse::<i64>() {
            set(admission.object, "spec.template.spec.terminationGracePeriodSeconds", seconds);
        }
    }
    give_addresses(admission);
    Ok(())
}

/// Whoever starts a halted machine gets the strategy that it ran with before.
fn restart_as_before(admission: &mut Admission<'_>) {
    let Some(old) = admission.old else { return };
    let strategy = text(admission.object, "spec.runStrategy");
    let was_halted = text(old, "spec.runStrategy") == run_strategy::HALTED
        || get(old, "spec.running").and_then(Value::as_bool) == Some(false);
    let is_started = !strategy.is_empty() && strategy != run_strategy::HALTED;
    if !was_halted || !is_started || has(admission.object, "spec.running") {
        return;
    }
    let before = match annotation(admission.object, RUN_STRATEGY) {
        // One that was halted when it was kept has none to come back to.
        "" | run_strategy::HALTED => run_strategy::RERUN_ON_FAILURE,
        before => before,
    };
    let before = before.to_owned();
    set(admission.object, "spec.runStrategy", before);
}

/// A card keeps the address it gets here, whatever becomes of its instances, and however often its machine is written
/// by somebody who says nothing about it.
fn give_addresses(admission: &mut Admission<'_>) {
    const INTERFACES: &str = "spec.template.spec.domain.devices.interfaces";
    let known: Value = serde_json::from_str(annotation(admission.object, KNOWN_ADDRESSES)).unwrap_or_default();
    let before = admission.old.map(|old| list(old, INTERFACES)).unwrap_or_default();
    for interface in list_mut(admission.object, INTERFACES) {
        let name = text(interface, "name");
        if !text(interface, "macAddress").is_empty() || known.get(name).is_some() {
            continue;
        }
        let own = before.iter().find(|other| text(other, "name") == name).map(|other| text(other, "macAddress"));
        if let Some(address) = own.filter(|address| !address.is_empty()) {
            set(interface, "macAddress", address);
            continue;
        }
        let mut bytes = [0; 6];
        (admission.random)(&mut bytes);
        // Locally administered, and of one card.
        bytes[0] = (bytes[0] & 0xfc) | 0x02;
        let address = bytes.map(|byte| format!("{byte:02x}")).join(":");
        set(interface, "macAddress", address);
    }
}

fn change_as_kubevirt(admission: &mut Admission<'_>) -> Result<(), ApiError> {
    matchers::check(admission)?;
    infer::matchers(admission)?;
    prefer_early(admission);
    let config = cluster_config(admission.lookup);
    let object = &mut *admission.object;
    default_text(object, "spec.template.spec.architecture", config.architecture);
    default_text(object, "spec.template.spec.domain.machine.type", &config.machine_type);
    if admission.old.is_some() {
        return Ok(());
    }
    for field in ["uuid", "serial"] {
        let path = format!("spec.template.spec.domain.firmware.{field}");
        if text(object, &path).is_empty() {
            let uuid = super::uuid(admission.random);
            set(object, &path, uuid);
        }
    }
    // Dotted keys cannot be written as paths.
    let has_slots = text(object, "spec.template.spec.domain.machine.type").contains("q35");
    if let Some(annotations) = map_mut(object, "spec.template.metadata.annotations").filter(|_| has_slots) {
        annotations.entry(ANNOTATION_PCI_TOPOLOGY_VERSION).or_insert(json!("v3"));
    }
    if let Some(annotations) = map_mut(object, "metadata.annotations") {
        for key in [ANNOTATION_LATEST_API_VERSION, ANNOTATION_STORAGE_API_VERSION] {
            annotations.insert(key.to_owned(), json!("v1"));
        }
    }
    add_finalizer(object, MACHINE_FINALIZER);
    Ok(())
}

pub(super) fn add_finalizer(object: &mut Value, name: &str) {
    default(object, "metadata.finalizers", json!([]));
    let finalizers = object.pointer_mut("/metadata/finalizers").and_then(Value::as_array_mut);
    if let Some(finalizers) = finalizers.filter(|list| !list.iter().any(|finalizer| finalizer == name)) {
        finalizers.push(json!(name));
    }
}

/// What a preference says about fields that have defaults of their own, and about claims, which come before instances.
fn prefer_early(admission: &mut Admission<'_>) {
    let Ok(Some(preference)) = matchers::find::<VirtualMachinePreferenceSpec>(admission, "preference") else { return };
    let object = &mut *admission.object;
    if let Some(architecture) = &preference.preferred_architecture {
        default_text(object, "spec.template.spec.architecture", architecture);
    }
    if let Some(board) = preference.machine.and_then(|machine| machine.preferred_machine_type) {
        default_text(object, "spec.template.spec.domain.machine.type", &board);
    }
    let Some(class) = preference.volumes.and_then(|volumes| volumes.preferred_storage_class_name) else { return };
    for template in list_mut(object, "spec.dataVolumeTemplates") {
        for path in ["spec.pvc", "spec.storage"] {
            if has(template, path) {
                default(template, &format!("{path}.storageClassName"), class.clone());
            }
        }
    }
}

/// The settings of the cluster.
pub(super) fn cluster_config(lookup: &dyn Lookup) -> ClusterConfig {
    let found = lookup.get("kubevirt.io", "kubevirts", "harvester-system", "kubevirt");
    let kubevirt: Option<KubeVirt> = found.and_then(|object| serde_json::from_value(object).ok());
    let mut config = ClusterConfig::of(kubevirt.as_ref());
    // Harvester keeps this one as a setting of its own.
    let own = kubevirt.and_then(|kubevirt| kubevirt.spec.configuration.live_update_configuration?.max_hotplug_ratio);
    if let (None, Ok(ratio)) = (own, settings::effective(lookup, "max-hotplug-ratio").parse()) {
        config.max_hotplug_ratio = ratio;
    }
    config
}

fn check_as_kubevirt(
    vm: &VirtualMachine,
    old: Option<&VirtualMachine>,
    admission: &Admission<'_>,
) -> Result<(), ApiError> {
    let namespace = text(admission.object, "metadata.namespace");
    let found = matchers::named::<VirtualMachineInstancetypeSpec>(admission, "instancetype")?;
    let preference = matchers::named::<VirtualMachinePreferenceSpec>(admission, "preference")?;
    let chosen = Chosen { instancetype: found.as_ref(), preference: preference.as_ref() };
    let mut expanded = vm.spec.clone();
    let template = &mut expanded.template;
    let at = "spec.template.spec";
    if let Err(conflicts) = instancetype::apply(chosen, &mut template.spec, &mut template.metadata, at) {
        let mut denial = Denial::by(VALIDATOR);
        for conflict in &conflicts.0 {
            denial.invalid(&FieldPath::new(conflict.field.clone()), conflict.to_string());
        }
        return denial.finish();
    }
    template.spec.fill_defaults(&cluster_config(admission.lookup));
    if let Some(preference) = &preference
        && let Err(conflicts) = instancetype::check_requirements(found.as_ref(), preference, &template.spec)
    {
        let mut denial = Denial::by(VALIDATOR);
        let why = conflicts.0.first().map(ToString::to_string).unwrap_or_default();
        let field = FieldPath::new(conflicts.fields());
        denial.add("FieldValueNotFound", &field, format!("failure checking preference requirements: {why}"));
        return denial.finish();
    }
    let mut denial = Denial::by(VALIDATOR);
    super::instance::check_labels(&mut denial, &FieldPath::new("spec.template.metadata"), &template.metadata);
    spec::check(&mut denial, &FieldPath::new(at), &template.spec);
    check_strategy(&mut denial, &expanded);
    super::data_volume::check_templates(&mut denial, &vm.spec, old.map(|old| &old.spec), namespace);
    super::access::templates(&mut denial, &vm.spec, old.map(|old| &old.spec), admission);
    denial.finish()
}

fn check_strategy(denial: &mut Denial, spec: &VirtualMachineSpec) {
    let running = FieldPath::new("spec.running");
    match (spec.running, spec.run_strategy.as_deref()) {
        (Some(_), Some(_)) => {
            let message = "Running and RunStrategy are mutually exclusive. Note that Running is deprecated, please use \
                           RunStrategy instead";
            denial.invalid(&running, message);
        }
        (None, None) => denial.invalid(&running, "RunStrategy must be specified"),
        _ => {}
    }
    let Some(strategy) = spec.run_strategy.as_deref() else { return };
    let field = FieldPath::new("spec.runStrategy");
    if strategy == run_strategy::WAIT_AS_RECEIVER {
        let message = format!(
            "Invalid RunStrategy ({strategy}), DecentralizedLiveMigration feature gate is not enabled in kubevirt resource"
        );
        denial.invalid(&field, message);
    } else if !run_strategy::ALL.contains(&strategy) {
        denial.invalid(&field, format!("Invalid RunStrategy ({strategy})"));
    }
}

fn check_as_harvester(
    vm: &VirtualMachine,
    old: Option<&VirtualMachine>,
    admission: &Admission<'_>,
) -> Result<(), ApiError> {
    claims::check(vm, old, admission)?;
    let mut denial = Denial::by(HARVESTER);
    overcommit::check(&mut denial, admission.object);
    maintenance(&mut denial, admission);
    busy::check(&mut denial, admission);
    denial.finish()
}

/// A strategy that was wrong before may stay so.
fn maintenance(denial: &mut Denial, admission: &Admission<'_>) {
    let label = |object: &Value| object.pointer("/metadata/labels").and_then(|labels| labels.get(MAINTENANCE)).cloned();
    let Some(strategy) = label(admission.object) else { return };
    let is_known = strategy.as_str().is_some_and(|strategy| MAINTENANCE_STRATEGIES.contains(&strategy));
    if is_known || admission.old.and_then(label) == Some(strategy.clone()) {
        return;
    }
    let field = FieldPath::new(format!("metadata.labels[{MAINTENANCE}]"));
    denial.invalid(&field, format!("invalid maintenance mode strategy: {}", strategy.as_str().unwrap_or_default()));
}

/// A machine is not deleted while it is being snapshotted.
pub(super) fn admit_delete(machine: &Value, _: &dyn Lookup) -> Result<(), ApiError> {
    let snapshot = text(machine, "status.snapshotInProgress");
    if snapshot.is_empty() {
        return Ok(());
    }
    let mut denial = Denial::by(VALIDATOR);
    let message = format!("Cannot delete VM: snapshot {snapshot} is in progress");
    denial.invalid(&FieldPath::new("spec"), message);
    denial.finish()
}

/// The names of claims that a machine's volumes use.
pub(super) fn claim_names(machine: &Value) -> impl Iterator<Item = &str> {
    list(machine, "spec.template.spec.volumes").iter().filter_map(|volume| {
        let claim = text(volume, "persistentVolumeClaim.claimName");
        let name = if claim.is_empty() { text(volume, "dataVolume.name") } else { claim };
        (!name.is_empty()).then_some(name)
    })
}

#[cfg(test)]
mod tests;
