//! VirtualMachineInstanceMigrations: of an instance that is there and can move, one at a time.

use croft_meta::{ApiError, FieldPath};
use serde_json::{Value, json};

use super::denial::{Denial, refuse};
use super::machine::add_finalizer;
use super::{Admission, Lookup};
use crate::kubevirt::{LABEL_MIGRATION_INSTANCE, MIGRATION_FINALIZER, condition, phase};
use crate::view::{get, has, list, map_mut, text};

pub(super) const CREATE: &str = "migration-create-validator.kubevirt.io";
pub(super) const UPDATE: &str = "migration-update-validator.kubevirt.io";

pub(super) fn admit(admission: &mut Admission<'_>) -> Result<(), ApiError> {
    if admission.subresource == "status" || has(admission.object, "metadata.deletionTimestamp") {
        return Ok(());
    }
    if let Some(old) = admission.old {
        return update(admission.object, old);
    }
    let name = text(admission.object, "spec.vmiName").to_owned();
    let mut denial = Denial::by(CREATE);
    if name.is_empty() {
        denial.required(&FieldPath::new("spec.vmiName"), "vmiName is missing");
    }
    for field in ["sendTo", "receive"] {
        let path = format!("spec.{field}");
        if has(admission.object, &path) {
            let message = "DecentralizedLiveMigration feature gate is not enabled in kubevirt resource";
            denial.not_supported(&FieldPath::new(path), message);
        }
    }
    denial.finish()?;
    let namespace = text(admission.object, "metadata.namespace");
    check_instance(namespace, &name, admission.lookup).map_err(|why| refuse(CREATE, 400, "BadRequest", &why))?;
    if let Some(labels) = map_mut(admission.object, "metadata.labels") {
        labels.insert(LABEL_MIGRATION_INSTANCE.to_owned(), json!(name));
    }
    add_finalizer(admission.object, MIGRATION_FINALIZER);
    Ok(())
}

fn update(new: &Value, old: &Value) -> Result<(), ApiError> {
    if get(new, "spec") == get(old, "spec") {
        return Ok(());
    }
    let mut denial = Denial::by(UPDATE);
    denial.not_supported(&FieldPath::root(), "update of Migration object's spec is restricted");
    denial.finish()
}

fn check_instance(namespace: &str, name: &str, lookup: &dyn Lookup) -> Result<(), String> {
    let Some(vmi) = lookup.get("kubevirt.io", "virtualmachineinstances", namespace, name) else {
        return Err(format!("the VMI \"{namespace}/{name}\" does not exist"));
    };
    if matches!(text(&vmi, "status.phase"), phase::SUCCEEDED | phase::FAILED) {
        return Err("Cannot migrate VMI in finalized state.".to_owned());
    }
    let migratable = list(&vmi, "status.conditions").iter().find(|c| text(c, "type") == condition::LIVE_MIGRATABLE);
    if let Some(no) = migratable.filter(|condition| text(condition, "status") == "False") {
        let (reason, message) = (text(no, "reason"), text(no, "message"));
        return Err(format!("Cannot migrate VMI, Reason: {reason}, Message: {message}"));
    }
    let migrations = lookup.list("kubevirt.io", "virtualmachineinstancemigrations", namespace);
    let is_under_way = |migration: &&Value| {
        text(migration, "spec.vmiName") == name && !matches!(text(migration, "status.phase"), "Succeeded" | "Failed")
    };
    match migrations.iter().find(is_under_way) {
        Some(migration) => Err(format!(
            "in-flight migration detected. Active migration job ({}) is currently already in progress for VMI {name}.",
            text(migration, "metadata.uid")
        )),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Objects, refusal, write};
    use super::*;

    fn migration() -> Value {
        json!({"metadata": {"name": "m", "namespace": "a"}, "spec": {"vmiName": "v"}})
    }

    fn instance(status: &Value) -> Objects {
        let vmi = json!({"metadata": {"name": "v", "namespace": "a"}, "status": status});
        Objects::default().with("kubevirt.io", "virtualmachineinstances", vmi)
    }

    #[test]
    fn a_migration_is_marked_with_its_instance() {
        let made = write(admit, migration(), None, &instance(&json!({"phase": "Running"})), false).unwrap();
        assert_eq!(made["metadata"]["labels"][LABEL_MIGRATION_INSTANCE], "v");
        assert_eq!(made["metadata"]["finalizers"], json!([MIGRATION_FINALIZER]));
    }

    #[test]
    fn an_instance_that_cannot_move_is_named() {
        assert!(refusal(admit, migration()).message().ends_with("the VMI \"a/v\" does not exist"));
        let stuck =
            json!({"conditions": [{"type": "LiveMigratable", "status": "False", "reason": "R", "message": "M"}]});
        let under_way = instance(&json!({})).with(
            "kubevirt.io",
            "virtualmachineinstancemigrations",
            json!({"metadata": {"name": "n", "namespace": "a", "uid": "u"}, "spec": {"vmiName": "v"}}),
        );
        let cases = [
            (instance(&json!({"phase": "Failed"})), "Cannot migrate VMI in finalized state."),
            (instance(&stuck), "Cannot migrate VMI, Reason: R, Message: M"),
            (
                under_way,
                "in-flight migration detected. Active migration job (u) is currently already in progress for VMI v.",
            ),
        ];
        for (objects, message) in cases {
            let error = write(admit, migration(), None, &objects, false).unwrap_err();
            assert!(error.message().ends_with(message), "{error}");
        }
    }
}
