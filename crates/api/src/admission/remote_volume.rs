//! Single volumes in the backup target: what may be asked for.

use croft_meta::ApiError;

use super::Admission;
use super::denial::refuse;
use super::machine::HARVESTER;
use crate::harvester::backup_target;
use crate::harvester::settings;
use crate::view::text;

pub(super) fn admit_backup(admission: &mut Admission<'_>) -> Result<(), ApiError> {
    if is_changed(admission, "spec.source") {
        return invalid("the source of a VolumeRemoteBackup cannot be changed");
    }
    if admission.old.is_some() {
        return Ok(());
    }
    let value = settings::effective(admission.lookup, backup_target::SETTING);
    let target: backup_target::BackupTarget = serde_json::from_str(&value).unwrap_or_default();
    if !target.is_set() {
        return invalid("backup target is not set");
    }
    Ok(())
}

/// What is in a backup may be had by those who may read the backup.
pub(super) fn admit_restore(admission: &mut Admission<'_>) -> Result<(), ApiError> {
    if is_changed(admission, "spec.from") {
        return invalid("the source of a VolumeRemoteRestore cannot be changed");
    }
    if admission.old.is_some() {
        return Ok(());
    }
    let from = text(admission.object, "spec.from");
    let Some((namespace, name)) = from
        .split_once('/')
        .filter(|(namespace, name)| !namespace.is_empty() && !name.is_empty() && !name.contains('/'))
    else {
        return invalid("spec.from must be namespace/name of a VolumeRemoteBackup");
    };
    if !admission.lookup.caller_may("get", "harvesterhci.io", "volumeremotebackups", namespace, name) {
        let why = format!("you may not read VolumeRemoteBackup {from}");
        return Err(refuse(HARVESTER, 403, "Forbidden", &why));
    }
    Ok(())
}

fn is_changed(admission: &Admission<'_>, field: &str) -> bool {
    admission.old.is_some_and(|old| text(old, field) != text(admission.object, field))
}

fn invalid(why: &str) -> Result<(), ApiError> {
    Err(refuse(HARVESTER, 422, "Invalid", why))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::testing::{nothing, refusal, write};
    use super::*;

    #[test]
    fn a_backup_needs_a_target_and_a_restore_a_backup() {
        let backup = json!({"metadata": {"name": "b", "namespace": "n"}, "spec": {"type": "lh", "source": "data"}});
        assert!(refusal(admit_backup, backup.clone()).message().contains("backup target is not set"));
        let target = r#"{"type":"directory","endpoint":"file:///x"}"#;
        let set = nothing().with(
            "harvesterhci.io",
            "settings",
            json!({"metadata": {"name": "backup-target"}, "value": target}),
        );
        write(admit_backup, backup, None, &set, false).unwrap();
        let restore = |from: &str| json!({"metadata": {"name": "r", "namespace": "n"}, "spec": {"from": from}});
        for from in ["", "name", "/name", "ns/", "a/b/c"] {
            assert!(refusal(admit_restore, restore(from)).message().contains("namespace/name"), "{from}");
        }
        write(admit_restore, restore("a/b"), None, &nothing(), false).unwrap();
        let changed = write(admit_restore, restore("a/c"), Some(&restore("a/b")), &nothing(), false).unwrap_err();
        assert!(changed.message().contains("cannot be changed"), "{changed}");
        let secret = nothing().forbid("get", "volumeremotebackups", "a");
        let refused = write(admit_restore, restore("a/b"), None, &secret, false).unwrap_err();
        assert_eq!(refused.code(), 403, "{refused}");
    }
}
