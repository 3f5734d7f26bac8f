use serde_json::json;

use super::super::Admit;
use super::super::testing::{Objects, nothing, write};
use super::*;
use crate::view::set;

fn with(mut object: Value, change: &Value) -> Value {
    for (path, value) in change.as_object().into_iter().flatten() {
        set(&mut object, path, value.clone());
    }
    object
}

fn vm(name: &str) -> Value {
    json!({"metadata": {"name": name, "namespace": "n"}, "spec": {"template": {"spec": {}}}})
}

fn target() -> Value {
    let value = r#"{"type":"nfs","endpoint":"nfs://a/b"}"#;
    json!({"metadata": {"name": "backup-target"}, "value": value})
}

fn known() -> Objects {
    nothing().with("kubevirt.io", "virtualmachines", vm("vm")).with(GROUP, "settings", target())
}

#[track_caller]
fn refused(admit: Admit, object: Value, lookup: &Objects, text: &str) {
    let error = write(admit, object, None, lookup, false).unwrap_err();
    assert!(error.message().contains(text), "{error}");
}

fn a_backup(change: &Value) -> Value {
    let backup = json!({"metadata": {"name": "b", "namespace": "n"},
        "spec": {"type": "backup", "source": {"kind": "VirtualMachine", "name": "vm"}}});
    with(backup, change)
}

#[test]
fn backups_are_of_machines_that_can_be_backed_up() {
    write(admit, a_backup(&json!({})), None, &known(), false).unwrap();
    for (change, text) in [
        (json!({"spec.source.name": ""}), "source VM name is empty"),
        (json!({"spec.source.name": "other"}), "\"other\" not found"),
        (json!({"spec.fsFreezeDeadline": "-1s"}), "must not be negative"),
    ] {
        refused(admit, a_backup(&change), &known(), text);
    }
    let without = nothing().with("kubevirt.io", "virtualmachines", vm("vm"));
    refused(admit, a_backup(&json!({})), &without, "backup target is not set");
    write(admit, a_backup(&json!({"spec.type": "snapshot"})), None, &without, false).unwrap();
    let migration = json!({"metadata": {"name": "m", "namespace": "n"}, "spec": {"vmiName": "vm"}});
    let moving = known().with("kubevirt.io", "virtualmachineinstancemigrations", migration);
    refused(admit, a_backup(&json!({})), &moving, "vm n/vm is in migration");
    let shared = with(
        vm("vm"),
        &json!({"spec.template.spec": {"volumes": [{"name": "d", "persistentVolumeClaim": {"claimName": "c"}}],
            "domain": {"devices": {"disks": [{"name": "d", "shareable": true}]}}}}),
    );
    let shared = nothing().with("kubevirt.io", "virtualmachines", shared).with(GROUP, "settings", target());
    refused(admit, a_backup(&json!({})), &shared, "is shareable");

    let old = with(a_backup(&json!({})), &json!({"metadata.annotations": {SCHEDULE_ID: "n/s"}}));
    let error = write(admit, a_backup(&json!({})), Some(&old), &known(), false).unwrap_err();
    assert!(error.message().contains("can't be changed"));
    let restore = restore(&json!({}));
    let reading = known().with(GROUP, RESTORES, restore);
    assert!(admit_delete(&old, &reading).unwrap_err().message().contains("vmrestore n/r is in progress"));
    admit_delete(&old, &known()).unwrap();
}

fn restore(change: &Value) -> Value {
    let restore = json!({"metadata": {"name": "r", "namespace": "n"},
        "spec": {"newVM": true, "target": {"kind": "VirtualMachine", "name": "new"},
            "virtualMachineBackupName": "b", "virtualMachineBackupNamespace": "n"}});
    with(restore, change)
}

#[test]
fn restores_have_a_backup_and_a_place() {
    let backed_up = |change: &Value| known().with(GROUP, BACKUPS, a_backup(change));
    let here = json!({"endpoint": "nfs://a/b"});
    let ready = || backed_up(&json!({"status.readyToUse": true, "status.backupTarget": here}));
    let elsewhere = backed_up(&json!({"status.readyToUse": true, "status.backupTarget": {"endpoint": "nfs://c/d"}}));
    let kept = backed_up(&json!({"spec.type": "snapshot", "status.readyToUse": true}));
    write(admit_restore, restore(&json!({})), None, &kept, false).unwrap();
    write(admit_restore, restore(&json!({})), None, &ready(), false).unwrap();
    refused(admit_restore, restore(&json!({})), &elsewhere, "is not matched in vmBackup b");
    refused(admit_restore, restore(&json!({})), &known(), "\"b\" not found");
    refused(admit_restore, restore(&json!({})), &backed_up(&json!({})), "VMBackup n/b is not ready");
    for (change, text) in [
        (json!({"spec.target.name": "A_b"}), "Target VM name is invalid, err:"),
        (json!({"spec.target.name": "vm"}), "VM vm is already exists"),
        (json!({"spec.newVM": false}), "can't replace nonexistent vm new"),
        (json!({"spec.keepMacAddress": true}), "because the source vm is still existent"),
    ] {
        refused(admit_restore, restore(&change), &ready(), text);
    }
    let running = nothing()
        .with("kubevirt.io", "virtualmachines", with(vm("vm"), &json!({"status.created": true})))
        .with(GROUP, BACKUPS, a_backup(&json!({})));
    let replace = json!({"spec.newVM": false, "spec.target.name": "vm"});
    refused(admit_restore, restore(&replace), &running, "Please stop the VM \"vm\" before doing a restore");
    let waiting = ready().with(GROUP, RESTORES, restore(&json!({"metadata.name": "before"})));
    refused(admit_restore, restore(&json!({})), &waiting, "Please wait for the previous VM restore on the n/new");
    let snapshot = backed_up(&json!({"spec.type": "snapshot", "status.readyToUse": true}));
    let elsewhere = restore(&json!({"metadata.namespace": "other"}));
    refused(admit_restore, elsewhere, &snapshot, "restore to other namespace with backup type snapshot");
    let deleting = restore(&json!({"spec.newVM": false, "spec.target.name": "vm", "spec.deletionPolicy": "delete"}));
    refused(admit_restore, deleting, &snapshot, "delete policy with backup type snapshot");
    let changed = restore(&json!({"spec.target.name": "other"}));
    let error = write(admit_restore, changed, Some(&restore(&json!({}))), &ready(), false).unwrap_err();
    assert!(error.message().contains("immutable"));

    let done = restore(&json!({"spec.target.name": "vm", "status.targetUID": "u"}));
    let error = admit_restore_delete(&done, &known()).unwrap_err();
    assert!(error.message().contains("because the restored VM vm exists"));
    admit_restore_delete(&restore(&json!({})), &known()).unwrap();
}

fn schedule(change: &Value) -> Value {
    let schedule = json!({"metadata": {"name": "s", "namespace": "n"},
        "spec": {"cron": "0 1 * * *", "retain": 8, "maxFailure": 4,
            "vmbackup": {"type": "backup", "source": {"kind": "VirtualMachine", "name": "vm"}}}});
    with(schedule, change)
}

#[test]
fn schedules_leave_room_for_each_other() {
    write(admit_schedule, schedule(&json!({})), None, &known(), false).unwrap();
    for (change, text) in [
        (json!({"spec.cron": "often"}), "invalid cron format"),
        (json!({"spec.maxFailure": 8}), "max failure should be less than retain"),
    ] {
        refused(admit_schedule, schedule(&change), &known(), text);
    }
    refused(admit_schedule, schedule(&json!({})), &nothing(), "setting backup-target is not set");
    let other = |change: &Value| known().with(GROUP, SCHEDULES, with(schedule(&json!({"metadata.name": "t"})), change));
    refused(admit_schedule, schedule(&json!({})), &other(&json!({})), "VM n/vm already has backup schedule");
    let near = other(&json!({"spec.cron": "5 1 * * *", "spec.vmbackup.source.name": "vm2"}));
    refused(admit_schedule, schedule(&json!({})), &near, "same granularity as schedule n/t and offset less than 10m0s");
    let far = other(&json!({"spec.cron": "30 1 * * *", "spec.vmbackup.source.name": "vm2"}));
    write(admit_schedule, schedule(&json!({})), None, &far, false).unwrap();
    let asked = json!({"metadata.annotations": {SKIP_CRON_CHECK: "true"}});
    write(admit_schedule, schedule(&asked), None, &near, false).unwrap();
    let often = json!({"spec.cron": "*/5 * * * *", "spec.vmbackup.source.name": "vm2"});
    write(admit_schedule, schedule(&json!({"spec.cron": "*/5 * * * *"})), None, &other(&often), false).unwrap();
    let moved = schedule(&json!({"spec.vmbackup.source.name": "vm2"}));
    let error = write(admit_schedule, moved, Some(&schedule(&json!({}))), &known(), false).unwrap_err();
    assert!(error.message().contains("source vm can't be changed"));
}

#[test]
fn a_schedule_is_suspended_without_a_target_but_not_resumed() {
    let (runs, rests) = (schedule(&json!({"spec.suspend": false})), schedule(&json!({"spec.suspend": true})));
    write(admit_schedule, rests.clone(), Some(&runs), &nothing(), false).unwrap();
    let error = write(admit_schedule, runs.clone(), Some(&rests), &nothing(), false).unwrap_err();
    assert!(error.message().contains("setting backup-target is not set"), "{error}");
    write(admit_schedule, runs, Some(&rests), &known(), false).unwrap();
    let changed = schedule(&json!({"spec.suspend": true, "spec.cron": "often"}));
    let error = write(admit_schedule, changed, Some(&rests), &known(), false).unwrap_err();
    assert!(error.message().contains("invalid cron format"), "{error}");
}

#[test]
fn nothing_is_restored_from_what_a_running_schedule_may_delete() {
    let made = with(
        a_backup(&json!({"spec.type": "snapshot", "status.readyToUse": true})),
        &json!({"metadata.annotations": {SCHEDULE_ID: "n/s"}}),
    );
    let kept = || nothing().with(GROUP, BACKUPS, made.clone());
    let new = || restore(&json!({"spec.newVM": true, "spec.target.name": "new"}));
    write(admit_restore, new(), None, &kept(), false).unwrap();
    let running = kept().with(GROUP, SCHEDULES, schedule(&json!({})));
    refused(admit_restore, new(), &running, "Source schedule n/s is running");
    let suspended = kept().with(GROUP, SCHEDULES, schedule(&json!({"status.suspended": true})));
    write(admit_restore, new(), None, &suspended, false).unwrap();
}
