//! Where backups go.

use serde_json::Value;

use super::super::Lookup;
use super::json;
use crate::harvester::backup_target::{self, BackupTarget};
use crate::view::{list, text};

pub(super) fn check(value: &str, lookup: &dyn Lookup) -> Result<(), String> {
    let target: BackupTarget = json(value)?;
    if target.refresh_interval_in_seconds < 0 {
        return Err("Refresh interval should be greater than or equal to 0".to_owned());
    }
    if is_busy(lookup) {
        return Err("There is VMBackup in creating or deleting progress".to_owned());
    }
    match target.ty.as_str() {
        "" if target == BackupTarget::default() => Ok(()),
        "s3" => s3(&target, lookup),
        "nfs" => nfs(&target),
        "directory" => directory(&target),
        _ => Err("Invalid backup target type".to_owned()),
    }
}

/// Keys that were given before are kept in a Secret, and need not be given again.
fn s3(target: &BackupTarget, lookup: &dyn Lookup) -> Result<(), String> {
    let (id, key) = (&target.access_key_id, &target.secret_access_key);
    let are_kept = id.is_empty()
        && key.is_empty()
        && lookup.get("", "secrets", backup_target::SECRET_NAMESPACE, backup_target::SECRET).is_some();
    if (id.is_empty() || key.is_empty()) && !are_kept {
        return Err("S3 backup target should have access key and access key id".to_owned());
    }
    if target.bucket_name.is_empty() || target.bucket_region.is_empty() {
        return Err("S3 backup target should have bucket name and region ".to_owned());
    }
    Ok(())
}

fn nfs(target: &BackupTarget) -> Result<(), String> {
    if target.endpoint.is_empty() {
        return Err("NFS backup target should have endpoint".to_owned());
    }
    if !target.endpoint.starts_with("nfs://") {
        return Err("NFS backup target should have an endpoint that starts with nfs://".to_owned());
    }
    if !target.access_key_id.is_empty() || !target.secret_access_key.is_empty() {
        return Err("NFS backup target should not have access key or access key id".to_owned());
    }
    if !target.bucket_name.is_empty() || !target.bucket_region.is_empty() {
        return Err("NFS backup target should not have bucket name or region".to_owned());
    }
    Ok(())
}

/// A directory of the node's.
fn directory(target: &BackupTarget) -> Result<(), String> {
    if target
        .endpoint
        .strip_prefix("file:///")
        .is_none_or(|path| path.is_empty() || path.split('/').any(|part| part == ".."))
    {
        return Err("Directory backup target should have an endpoint file:///path".to_owned());
    }
    let is_bare = BackupTarget {
        ty: target.ty.clone(),
        endpoint: target.endpoint.clone(),
        refresh_interval_in_seconds: target.refresh_interval_in_seconds,
        ..BackupTarget::default()
    };
    if *target != is_bare {
        return Err("Directory backup target should have nothing but an endpoint".to_owned());
    }
    Ok(())
}

/// A backup that is being made or removed would end up in two places.
fn is_busy(lookup: &dyn Lookup) -> bool {
    lookup.list("harvesterhci.io", "virtualmachinebackups", "").iter().any(|backup| {
        let is_backup = text(backup, "spec.type") != "snapshot";
        let is_going = !text(backup, "metadata.deletionTimestamp").is_empty();
        let has_failed = backup.pointer("/status/error").is_some_and(|error| !error.is_null());
        let is_ready = backup.pointer("/status/readyToUse").and_then(Value::as_bool) == Some(true);
        let is_started = !list(backup, "status.conditions").is_empty();
        is_backup && (is_going || (is_started && !is_ready && !has_failed))
    })
}
