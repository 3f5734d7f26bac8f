//! Backups and snapshots of machines, restores from them, and schedules.
//!
//! What is asked for is checked as Harvester does.

use croft_meta::{ApiError, FieldPath, names};
use serde_json::Value;

use super::denial::Denial;
use super::machine::{HARVESTER, claim_names, is_shareable};
use super::{Admission, Lookup, quota};
use crate::cron::Cron;
use crate::harvester::backup_target::BackupTarget;
use crate::harvester::{BackupPlace, settings};
use crate::machine_state::WITH_MEMORY;
use crate::view::{flag, get, has, map, number, text};

const GROUP: &str = "harvesterhci.io";
const BACKUPS: &str = "virtualmachinebackups";
const RESTORES: &str = "virtualmachinerestores";
const SCHEDULES: &str = "schedulevmbackups";
/// The schedule that made a backup.
const SCHEDULE_ID: &str = "harvesterhci.io/svmbackupId";
/// Whether a schedule may fire when others do.
const SKIP_CRON_CHECK: &str = "harvesterhci.io/svmbackupSkipCronCheck";
/// Schedules that fire together are at least this far apart.
const LEAST_OFFSET_MINUTES: u8 = 10;

fn invalid(field: &str, message: impl Into<String>) -> Result<(), ApiError> {
    let mut denial = Denial::by(HARVESTER);
    denial.invalid(&FieldPath::new(field), message);
    denial.finish()
}

fn machine(lookup: &dyn Lookup, namespace: &str, name: &str) -> Option<Value> {
    lookup.get("kubevirt.io", "virtualmachines", namespace, name)
}

/// The name, of the namespace's object.
fn key(object: &Value) -> (&str, &str) {
    (text(object, "metadata.namespace"), text(object, "metadata.name"))
}

fn has_target(lookup: &dyn Lookup) -> bool {
    let target: Value = serde_json::from_str(&settings::effective(lookup, "backup-target")).unwrap_or_default();
    !text(&target, "type").is_empty()
}

pub(super) fn admit(admission: &mut Admission<'_>) -> Result<(), ApiError> {
    if has(admission.object, "metadata.deletionTimestamp") {
        return Ok(());
    }
    if let Some(old) = admission.old {
        let id = |backup: &Value| get(backup, "metadata.annotations").and_then(|map| map.get(SCHEDULE_ID).cloned());
        if id(old).is_some() && id(old) != id(admission.object) {
            return invalid(&format!("metadata.annotations[{SCHEDULE_ID}]"), format!("{SCHEDULE_ID} can't be changed"));
        }
        return Ok(());
    }
    // What the controllers find in the target may be of a machine that never was here.
    if admission.is_internal && flag(admission.object, "status.readyToUse") {
        return Ok(());
    }
    check_source(admission)?;
    quota::admit_backup(admission)
}

fn check_source(admission: &Admission<'_>) -> Result<(), ApiError> {
    let (backup, lookup) = (&*admission.object, admission.lookup);
    let (namespace, name) = (text(backup, "metadata.namespace"), text(backup, "spec.source.name"));
    if name.is_empty() {
        return invalid("spec.source.name", "source VM name is empty");
    }
    if text(backup, "spec.fsFreezeDeadline").starts_with('-') {
        return invalid("spec.fsFreezeDeadline", "fsFreezeDeadline must not be negative");
    }
    let Some(machine) = machine(lookup, namespace, name) else {
        return invalid("spec.source.name", format!("virtualmachines.kubevirt.io \"{name}\" not found"));
    };
    if is_migrating(lookup, namespace, name) {
        return invalid("spec.source.name", format!("vm {namespace}/{name} is in migration"));
    }
    if let Some(claim) = claim_names(&machine).find(|claim| is_shareable(&machine, claim)) {
        let message = format!("cannot back up VM {namespace}/{name}: the disk of {claim} is shareable");
        return invalid("spec.source.name", message);
    }
    let asks = get(backup, "metadata.annotations").and_then(|map| map.get(WITH_MEMORY)).is_some_and(|it| it == "true");
    if asks && text(backup, "spec.type") != "snapshot" {
        let field = format!("metadata.annotations[{WITH_MEMORY}]");
        return invalid(&field, "the guest's memory is kept with snapshots, not with backups");
    }
    if text(backup, "spec.type") != "snapshot" && !has_target(lookup) {
        return invalid("spec.target", "backup target is not set");
    }
    Ok(())
}

fn is_migrating(lookup: &dyn Lookup, namespace: &str, name: &str) -> bool {
    lookup.list("kubevirt.io", "virtualmachineinstancemigrations", namespace).iter().any(|migration| {
        let is_over = matches!(text(migration, "status.phase"), "Succeeded" | "Failed");
        text(migration, "spec.vmiName") == name && !is_over
    })
}

/// Not while something is restored from it.
pub(super) fn admit_delete(backup: &Value, lookup: &dyn Lookup) -> Result<(), ApiError> {
    let (namespace, name) = key(backup);
    let is_reading = |restore: &&Value| {
        text(restore, "spec.virtualMachineBackupNamespace") == namespace
            && text(restore, "spec.virtualMachineBackupName") == name
            && !flag(restore, "status.complete")
    };
    match lookup.list(GROUP, RESTORES, "").iter().find(is_reading) {
        Some(restore) => {
            let (namespace, name) = key(restore);
            invalid("", format!("vmrestore {namespace}/{name} is in progress"))
        }
        None => Ok(()),
    }
}

pub(super) fn admit_restore(admission: &mut Admission<'_>) -> Result<(), ApiError> {
    let (restore, lookup) = (&*admission.object, admission.lookup);
    if has(restore, "metadata.deletionTimestamp") {
        return Ok(());
    }
    if let Some(old) = admission.old {
        if get(old, "spec") == get(restore, "spec") {
            return Ok(());
        }
        return invalid("spec", "VirtualMachineRestore spec is immutable");
    }
    let target = text(restore, "spec.target.name");
    let wrong = names::is_dns1123_label(target);
    if !wrong.is_empty() {
        return invalid("spec.target.name", format!("Target VM name is invalid, err: {}", wrong.join(", ")));
    }
    let (namespace, name) =
        (text(restore, "spec.virtualMachineBackupNamespace"), text(restore, "spec.virtualMachineBackupName"));
    let field = "spec.virtualMachineBackupName";
    let Some(backup) = lookup.get(GROUP, BACKUPS, namespace, name) else {
        return invalid(field, format!("virtualmachinebackups.harvesterhci.io \"{name}\" not found"));
    };
    check_target(restore, &backup, lookup)?;
    check_schedule(&backup, lookup)?;
    if !flag(&backup, "status.readyToUse") {
        return invalid(field, format!("VMBackup {namespace}/{name} is not ready"));
    }
    check_place(&backup, lookup)
}

/// What is in another target than the one that is set cannot be read.
fn check_place(backup: &Value, lookup: &dyn Lookup) -> Result<(), ApiError> {
    if text(backup, "spec.type") == "snapshot" {
        return Ok(());
    }
    let target: BackupTarget = serde_json::from_str(&settings::effective(lookup, "backup-target")).unwrap_or_default();
    let place = get(backup, "status.backupTarget").cloned().unwrap_or_default();
    let place: BackupPlace = serde_json::from_value(place).unwrap_or_default();
    if !target.is_set() || target.place() != place {
        let (_, name) = key(backup);
        let message = format!("backup target {:?} is not matched in vmBackup {name}", target.endpoint);
        return invalid("spec.virtualMachineBackupName", message);
    }
    Ok(())
}

/// One that is running may delete the backup.
fn check_schedule(backup: &Value, lookup: &dyn Lookup) -> Result<(), ApiError> {
    let id = map(backup, "metadata.annotations").and_then(|map| map.get(SCHEDULE_ID)?.as_str()).unwrap_or_default();
    let Some((namespace, name)) = id.split_once('/') else { return Ok(()) };
    let schedule = lookup.get(GROUP, SCHEDULES, namespace, name);
    if schedule.is_some_and(|schedule| !flag(&schedule, "status.suspended")) {
        return invalid("spec.virtualMachineBackupName", format!("Source schedule {id} is running"));
    }
    Ok(())
}

/// Where it goes to, and whether that is in the way.
fn check_target(restore: &Value, backup: &Value, lookup: &dyn Lookup) -> Result<(), ApiError> {
    let (namespace, target) = (text(restore, "metadata.namespace"), text(restore, "spec.target.name"));
    let is_new = flag(restore, "spec.newVM");
    let is_snapshot = text(backup, "spec.type") == "snapshot";
    let existing = machine(lookup, namespace, target);
    match (&existing, is_new) {
        (Some(_), true) => return invalid("spec.newVM", format!("VM {target} is already exists")),
        (None, false) => return invalid("spec.target.name", format!("can't replace nonexistent vm {target}")),
        (Some(machine), false) if flag(machine, "status.created") => {
            let message = format!("Please stop the VM {target:?} before doing a restore");
            return invalid("spec.target.name", message);
        }
        _ => {}
    }
    let is_before = |other: &Value| text(other, "spec.target.name") == target && !flag(other, "status.complete");
    if lookup.list(GROUP, RESTORES, namespace).iter().any(is_before) {
        let message =
            format!("Please wait for the previous VM restore on the {namespace}/{target} to be complete first.");
        return invalid("spec.target.name", message);
    }
    let (backup_namespace, _) = key(backup);
    if is_snapshot && backup_namespace != namespace {
        let message = "restore to other namespace with backup type snapshot is not supported";
        return invalid("spec.virtualMachineBackupNamespace", message);
    }
    if is_snapshot && !is_new && text(restore, "spec.deletionPolicy") == "delete" {
        let message = "delete policy with backup type snapshot for replacing VM is not supported";
        return invalid("spec.deletionPolicy", message);
    }
    let source = machine(lookup, backup_namespace, text(backup, "spec.source.name"));
    if is_new && flag(restore, "spec.keepMacAddress") && source.is_some() {
        let message =
            "can't restore the new vm with the same macaddress because the source vm is still existent".to_owned();
        return invalid("spec.keepMacAddress", message);
    }
    Ok(())
}

/// It belongs to the machine that it made.
pub(super) fn admit_restore_delete(restore: &Value, lookup: &dyn Lookup) -> Result<(), ApiError> {
    let (namespace, _) = key(restore);
    let target = text(restore, "spec.target.name");
    let is_there = machine(lookup, namespace, target).is_some_and(|vm| !has(&vm, "metadata.deletionTimestamp"));
    if is_there && has(restore, "status.targetUID") {
        return invalid("", format!("The restore can't be removed because the restored VM {target} exists"));
    }
    Ok(())
}

pub(super) fn admit_schedule(admission: &mut Admission<'_>) -> Result<(), ApiError> {
    let (schedule, lookup) = (&*admission.object, admission.lookup);
    let is_checked = admission.old.is_some_and(|old| is_same_or_suspended(old, schedule));
    if is_checked || has(schedule, "metadata.deletionTimestamp") {
        return Ok(());
    }
    let Some(cron) = Cron::parse(text(schedule, "spec.cron")) else {
        return invalid("spec.cron", "invalid cron format");
    };
    if number(schedule, "spec.maxFailure") >= number(schedule, "spec.retain") {
        return invalid("spec.maxFailure", "max failure should be less than retain");
    }
    let source = "spec.vmbackup.source.name";
    if admission.old.is_some_and(|old| text(old, source) != text(schedule, source)) {
        return invalid("spec.vmbackup.source", "source vm can't be changed");
    }
    let kind = text(schedule, "spec.vmbackup.type");
    if kind != "snapshot" && !has_target(lookup) {
        return invalid("spec.vmbackup.type", "setting backup-target is not set");
    }
    check_others(schedule, &cron, lookup)
}

/// A schedule can always be suspended, whatever became of its target.
fn is_same_or_suspended(old: &Value, new: &Value) -> bool {
    let rest = |schedule: &Value| {
        let mut spec = get(schedule, "spec").cloned().unwrap_or_default();
        spec.as_object_mut().map(|spec| spec.remove("suspend"));
        spec
    };
    rest(old) == rest(new) && (flag(new, "spec.suspend") || !flag(old, "spec.suspend"))
}

fn check_others(schedule: &Value, cron: &Cron, lookup: &dyn Lookup) -> Result<(), ApiError> {
    let own = key(schedule);
    let (source, kind) = (text(schedule, "spec.vmbackup.source.name"), text(schedule, "spec.vmbackup.type"));
    let skips =
        map(schedule, "metadata.annotations").and_then(|map| map.get(SKIP_CRON_CHECK)?.as_str()) == Some("true");
    // Unlike Harvester, Croft has schedules that fire more often than once an hour; they cannot keep out of the way.
    let keeps_away = !skips && cron.gap().is_none();
    for other in lookup.list(GROUP, SCHEDULES, "") {
        let (namespace, name) = key(&other);
        if (namespace, name) == own {
            continue;
        }
        let is_of_machine = namespace == own.0 && text(&other, "spec.vmbackup.source.name") == source;
        if is_of_machine && text(&other, "spec.vmbackup.type") == kind {
            let message = format!("VM {namespace}/{source} already has {kind} schedule {namespace}/{name}");
            return invalid("spec.vmbackup.source", message);
        }
        let offset = Cron::parse(text(&other, "spec.cron")).filter(|other| other.gap().is_none());
        let offset = offset.and_then(|other| cron.offset(&other)).filter(|_| keeps_away);
        if offset.is_some_and(|minutes| minutes < LEAST_OFFSET_MINUTES) {
            let message = format!(
                "same granularity as schedule {namespace}/{name} and offset less than {LEAST_OFFSET_MINUTES}m0s"
            );
            return invalid("spec.cron", message);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
