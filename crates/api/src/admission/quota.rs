//! Harvester's ResourceQuota: how much room snapshots of a namespace and of its machines may take.

use croft_meta::{ApiError, FieldPath};
use serde_json::Value;

use super::denial::Denial;
use super::machine::{HARVESTER, claim_names, is_shareable};
use super::{Admission, Lookup};
use crate::view::{int, map, text};

/// The only one that is looked at.
const NAME: &str = "default-resource-quota";

pub(super) fn admit(admission: &mut Admission<'_>) -> Result<(), ApiError> {
    let quota = &*admission.object;
    let mut denial = Denial::by(HARVESTER);
    let name = text(quota, "metadata.name");
    if name != NAME {
        denial.invalid(&FieldPath::new("metadata.name"), format!("resource quota name must be {NAME}, not {name}"));
    }
    let total = "spec.snapshotLimit.namespaceTotalSnapshotSizeQuota";
    if int(quota, total).is_some_and(|size| size < 0) {
        denial.invalid(&FieldPath::new(total), "namespaceTotalSnapshotSizeQuota should be greater than or equal to 0");
    }
    let each = "spec.snapshotLimit.vmTotalSnapshotSizeQuota";
    for (machine, size) in map(quota, each).into_iter().flatten() {
        if size.as_i64().is_none_or(|size| size < 0) {
            let field = FieldPath::new(format!("{each}.{machine}"));
            denial.invalid(&field, format!("the quota of {machine} should be greater than or equal to 0"));
        }
    }
    denial.finish()
}

/// A backup or a snapshot of a whole machine.
pub(super) fn admit_backup(admission: &mut Admission<'_>) -> Result<(), ApiError> {
    if admission.old.is_some() {
        return Ok(());
    }
    let (namespace, machine) =
        (text(admission.object, "metadata.namespace"), text(admission.object, "spec.source.name"));
    if machine.is_empty() {
        let mut denial = Denial::by(HARVESTER);
        denial.invalid(&FieldPath::new("spec.source.name"), "source VM name is empty");
        return denial.finish();
    }
    has_room(namespace, machine, admission.lookup)
}

/// A snapshot of one disk counts for the machine that has it.
pub(super) fn admit_snapshot(admission: &mut Admission<'_>) -> Result<(), ApiError> {
    if admission.old.is_some() {
        return Ok(());
    }
    let namespace = text(admission.object, "metadata.namespace");
    let claim = text(admission.object, "spec.source.persistentVolumeClaimName");
    let machines = admission.lookup.list("kubevirt.io", "virtualmachines", namespace);
    let user = machines.iter().find(|machine| claim_names(machine).any(|used| used == claim));
    if user.is_some_and(|machine| is_shareable(machine, claim)) {
        let mut denial = Denial::by(HARVESTER);
        let field = FieldPath::new("spec.source.persistentVolumeClaimName");
        denial.invalid(&field, format!("can not take a snapshot of the volume {claim}, its disk is shareable"));
        return denial.finish();
    }
    has_room(namespace, user.map(|machine| text(machine, "metadata.name")).unwrap_or_default(), admission.lookup)
}

fn has_room(namespace: &str, machine: &str, lookup: &dyn Lookup) -> Result<(), ApiError> {
    let quota = lookup.get("harvesterhci.io", "resourcequotas", namespace, NAME);
    let mut denial = Denial::by(HARVESTER);
    if let Some(why) = quota.and_then(|quota| refusal_of(&quota, machine)) {
        denial.invalid(&FieldPath::root(), why);
    }
    denial.finish()
}

/// Why another snapshot of the machine is refused; `None` if there is room.
fn refusal_of(quota: &Value, machine: &str) -> Option<String> {
    let number = |path: &str, key: &str| map(quota, path).and_then(|map| map.get(key)).and_then(Value::as_i64);
    let pairs = [
        (
            int(quota, "spec.snapshotLimit.namespaceTotalSnapshotSizeQuota"),
            int(quota, "status.snapshotLimitStatus.namespaceTotalSnapshotSizeUsage"),
        ),
        (
            number("spec.snapshotLimit.vmTotalSnapshotSizeQuota", machine),
            number("status.snapshotLimitStatus.vmTotalSnapshotSizeUsage", machine),
        ),
    ];
    pairs.into_iter().find_map(|(limit, used)| {
        let (limit, used) = (limit.filter(|limit| *limit > 0)?, used?);
        (limit < used).then(|| format!("total snapshot size limit {limit} is less than total snapshot usage {used}"))
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::testing::{admitted, nothing, refusal, write};
    use super::*;

    #[test]
    fn one_quota_of_a_namespace_with_sizes() {
        admitted(
            admit,
            json!({"metadata": {"name": NAME}, "spec": {"snapshotLimit": {"vmTotalSnapshotSizeQuota": {"a": 1}}}}),
        );
        assert!(refusal(admit, json!({"metadata": {"name": "mine"}})).message().contains(NAME));
        let limit = json!({"namespaceTotalSnapshotSizeQuota": -1, "vmTotalSnapshotSizeQuota": {"a": -1}});
        let error = refusal(admit, json!({"metadata": {"name": NAME}, "spec": {"snapshotLimit": limit}}));
        assert_eq!(error.details().unwrap().causes.len(), 2);
    }

    #[test]
    fn a_full_quota_refuses_and_says_which() {
        let quota = json!({
            "spec": {"snapshotLimit": {"namespaceTotalSnapshotSizeQuota": 100, "vmTotalSnapshotSizeQuota": {"a": 10, "b": 0}}},
            "status": {"snapshotLimitStatus": {"namespaceTotalSnapshotSizeUsage": 50, "vmTotalSnapshotSizeUsage": {"a": 20, "b": 20}}},
        });
        let expected = "total snapshot size limit 10 is less than total snapshot usage 20";
        assert_eq!(refusal_of(&quota, "a").as_deref(), Some(expected));
        assert_eq!(refusal_of(&quota, "b"), None);
        assert_eq!(refusal_of(&json!({}), "a"), None);

        let mut stored = quota;
        stored["metadata"] = json!({"name": NAME, "namespace": "n"});
        let volumes = json!([{"name": "root", "persistentVolumeClaim": {"claimName": "disk"}}]);
        let machine =
            json!({"metadata": {"name": "a", "namespace": "n"}, "spec": {"template": {"spec": {"volumes": volumes}}}});
        let objects =
            nothing().with("harvesterhci.io", "resourcequotas", stored).with("kubevirt.io", "virtualmachines", machine);
        let backup = |of: &str| json!({"metadata": {"namespace": "n"}, "spec": {"source": {"name": of}}});
        let error = write(admit_backup, backup("a"), None, &objects, false).unwrap_err();
        assert!(error.message().contains(expected), "{error}");
        write(admit_backup, backup("b"), None, &objects, false).unwrap();
        let snapshot =
            |of: &str| json!({"metadata": {"namespace": "n"}, "spec": {"source": {"persistentVolumeClaimName": of}}});
        write(admit_snapshot, snapshot("disk"), None, &objects, false).unwrap_err();
        write(admit_snapshot, snapshot("other"), None, &objects, false).unwrap();
    }
}
