//! Longhorn's Snapshots: what is asked for must be possible, and what belongs to a machine's backup goes with that.

use croft_meta::{ApiError, FieldPath};
use serde_json::Value;

use super::denial::{Denial, refuse};
use super::{Admission, Lookup};
use crate::longhorn::SHOWS;
use crate::view::{flag, get, has, list, map, text};

pub(super) const LONGHORN: &str = "validator.longhorn.io";

pub(super) fn admit(admission: &mut Admission<'_>) -> Result<(), ApiError> {
    if admission.is_internal || has(admission.object, "metadata.deletionTimestamp") {
        return Ok(());
    }
    let (snapshot, mut denial) = (&*admission.object, Denial::by(LONGHORN));
    if let Some(old) = admission.old {
        if get(old, "spec") != get(snapshot, "spec") {
            denial.invalid(&FieldPath::new("spec"), "a snapshot cannot be changed");
        }
        return denial.finish();
    }
    let volume = text(snapshot, "spec.volume");
    if !flag(snapshot, "spec.createSnapshot") {
        denial
            .invalid(&FieldPath::new("spec.createSnapshot"), "createSnapshot must be true: there is no such snapshot");
    }
    if admission.lookup.get("", "persistentvolumes", "", volume).is_none() {
        denial.invalid(&FieldPath::new("spec.volume"), format!("there is no volume {volume:?}"));
    }
    denial.finish()
}

pub(super) fn admit_delete(snapshot: &Value, lookup: &dyn Lookup) -> Result<(), ApiError> {
    let shown = map(snapshot, "metadata.annotations").and_then(|all| all.get(SHOWS)?.as_str()?.split_once('/'));
    let Some((namespace, name)) = shown else { return Ok(()) };
    let Some(shown) = lookup.get("snapshot.storage.k8s.io", "volumesnapshots", namespace, name) else { return Ok(()) };
    let owners = list(&shown, "metadata.ownerReferences");
    let Some(owner) = owners.iter().find(|owner| text(owner, "kind") != "PersistentVolumeClaim") else { return Ok(()) };
    let (kind, owner) = (text(owner, "kind"), text(owner, "name"));
    let why = format!("VolumeSnapshot {namespace}/{name} belongs to {kind} {owner}: delete that");
    Err(refuse(LONGHORN, 403, "Forbidden", &why))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::testing::{nothing, write};
    use super::*;

    #[test]
    fn a_snapshot_is_of_a_volume_that_is_there() {
        let world = nothing().with("", "persistentvolumes", json!({"metadata": {"name": "pvc-1"}}));
        let asked = |volume: &str, create: bool| {
            let wanted = json!({"metadata": {"name": "s"}, "spec": {"volume": volume, "createSnapshot": create}});
            write(admit, wanted, None, &world, false)
        };
        assert!(asked("pvc-1", true).is_ok());
        assert!(asked("pvc-2", true).unwrap_err().message().contains("pvc-2"));
        assert!(asked("pvc-1", false).is_err());
    }

    #[test]
    fn what_belongs_to_a_backup_goes_with_it() {
        let shown = |owners: Value| {
            let snapshot = json!({"metadata": {"namespace": "n", "name": "v", "ownerReferences": owners}});
            nothing().with("snapshot.storage.k8s.io", "volumesnapshots", snapshot)
        };
        let snapshot = json!({"metadata": {"annotations": {SHOWS: "n/v"}}});
        assert!(admit_delete(&snapshot, &shown(json!([]))).is_ok());
        let owned = shown(json!([{"kind": "VirtualMachineBackup", "name": "b"}]));
        assert!(admit_delete(&snapshot, &owned).unwrap_err().message().contains("VirtualMachineBackup b"));
    }
}
