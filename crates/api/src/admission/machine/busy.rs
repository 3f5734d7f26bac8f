//! What a machine must not be asked for while it is backed up, or at all.

use croft_meta::FieldPath;
use serde_json::Value;

use super::super::denial::Denial;
use super::super::{Admission, Lookup};
use super::annotation;
use crate::kubevirt::run_strategy;
use crate::view::{flag, get, has, text};

const TEMPLATES: &str = "harvesterhci.io/volumeClaimTemplates";

pub(super) fn check(denial: &mut Denial, admission: &Admission<'_>) {
    let Some(old) = admission.old else { return no_storage_migration(denial, admission.object, None) };
    no_storage_migration(denial, admission.object, Some(old));
    let is_halted = |machine: &Value| {
        text(machine, "spec.runStrategy") == run_strategy::HALTED
            || get(machine, "spec.running").and_then(Value::as_bool) == Some(false)
    };
    if !is_halted(admission.object) || is_halted(old) {
        return;
    }
    let (namespace, name) = (text(old, "metadata.namespace"), text(old, "metadata.name"));
    if is_backed_up(namespace, name, admission.lookup) {
        let message = format!(
            "vm {namespace}/{name} has a backup in progress; wait for it to finish or delete it before \
             stopping/restarting"
        );
        denial.invalid(&FieldPath::new("spec.runStrategy"), message);
    }
}

fn is_backed_up(namespace: &str, name: &str, lookup: &dyn Lookup) -> bool {
    lookup.list("harvesterhci.io", "virtualmachinebackups", namespace).iter().any(|backup| {
        let is_done = flag(backup, "status.readyToUse") || has(backup, "status.error");
        text(backup, "spec.source.name") == name && has(backup, "status") && !is_done
    })
}

/// Moving disks of a running machine to another class is asked for by a key in the annotation.
fn no_storage_migration(denial: &mut Denial, machine: &Value, old: Option<&Value>) {
    let entries = annotation(machine, TEMPLATES);
    if !entries.contains("targetVolume") || old.is_some_and(|old| annotation(old, TEMPLATES) == entries) {
        return;
    }
    let entries: Value = serde_json::from_str(entries).unwrap_or_default();
    let is_asked = |entry: &Value| entry.get("targetVolume").is_some_and(|target| !target.is_null() && target != "");
    if entries.as_array().into_iter().flatten().any(is_asked) {
        let field = FieldPath::new(format!("metadata.annotations.{TEMPLATES}"));
        denial.not_supported(&field, "targetVolume: storage migration is not supported");
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::super::testing::{Objects, nothing};
    use super::super::HARVESTER;
    use super::*;

    fn said(new: &Value, old: Option<&Value>, lookup: &Objects) -> String {
        let mut object = new.clone();
        let mut denial = Denial::by(HARVESTER);
        let admission = Admission {
            object: &mut object,
            old,
            subresource: "",
            is_internal: false,
            user: "alice",
            lookup,
            now: jiff::Timestamp::UNIX_EPOCH,
            random: &mut |_| {},
        };
        check(&mut denial, &admission);
        denial.finish().err().map(|error| error.message().to_owned()).unwrap_or_default()
    }

    #[test]
    fn a_machine_that_is_backed_up_is_not_stopped() {
        let machine =
            |strategy: &str| json!({"metadata": {"name": "vm", "namespace": "n"}, "spec": {"runStrategy": strategy}});
        let backup = |ready: bool| {
            let backup = json!({"metadata": {"name": "b", "namespace": "n"}, "spec": {"source": {"name": "vm"}},
                "status": {"readyToUse": ready}});
            nothing().with("harvesterhci.io", "virtualmachinebackups", backup)
        };
        let (running, halted) = (machine("Always"), machine("Halted"));
        assert!(said(&halted, Some(&running), &backup(false)).contains("vm n/vm has a backup in progress"));
        assert_eq!(said(&halted, Some(&running), &backup(true)), "");
        assert_eq!(said(&running, Some(&running), &backup(false)), "");
        assert_eq!(said(&halted, Some(&halted), &backup(false)), "");
    }

    #[test]
    fn disks_do_not_move_to_another_class() {
        let machine = |target: Value| {
            let entries = json!([{"metadata": {"name": "disk"}, "targetVolume": target}]).to_string();
            json!({"metadata": {"name": "vm", "namespace": "n", "annotations": {TEMPLATES: entries}}})
        };
        assert!(said(&machine(json!("other")), None, &nothing()).contains("storage migration is not supported"));
        assert_eq!(said(&machine(json!("")), None, &nothing()), "");
    }
}
