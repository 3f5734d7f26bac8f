//! What is kept of a machine, and how it comes back.

use croft_meta::ApiError;
use serde::Deserialize;
use serde_json::{Value, json};

use super::super::acting::{Acting, name};
use super::super::reply::invalid;
use super::claims;

const HARVESTER: &str = "harvesterhci.io";

#[derive(Default, Deserialize)]
#[serde(default)]
struct Named {
    name: String,
}

/// As in Harvester this only says whether it can be: whoever asks creates the VirtualMachineBackup.
pub(super) fn can_snapshot(acting: &Acting<'_>, machine: &Value) -> Result<(), ApiError> {
    let asked: Named = acting.body()?;
    let new = name("name", &asked.name)?;
    if acting.find(HARVESTER, "virtualmachinebackups", acting.namespace, new).is_some() {
        return Err(ApiError::already_exists(HARVESTER, "virtualmachinebackups", new));
    }
    for claim in claims::volumes(machine).iter().filter_map(claims::of_volume) {
        if claims::find(acting, claim)?["status"]["phase"] != "Bound" {
            return Err(acting.conflict(&format!("the claim {claim} is not bound yet")));
        }
    }
    Ok(())
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Asked {
    name: String,
    fs_freeze_deadline: String,
}

/// The machine goes to the backup target as it is.
pub(super) async fn backup(acting: &Acting<'_>) -> Result<(), ApiError> {
    let asked: Asked = acting.body()?;
    let new = name("name", &asked.name)?;
    let mut wanted = json!({
        "metadata": { "name": new },
        "spec": {
            "type": "backup",
            "source": { "apiGroup": "kubevirt.io", "kind": "VirtualMachine", "name": acting.name },
        },
    });
    if !asked.fs_freeze_deadline.is_empty() {
        wanted["spec"]["fsFreezeDeadline"] = json!(asked.fs_freeze_deadline);
    }
    acting.create(HARVESTER, "virtualmachinebackups", acting.namespace, wanted).await.map(drop)
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Wanted {
    name: String,
    backup_name: String,
    keep_mac_address: bool,
    halt_after_restore: bool,
    deletion_policy: String,
}

/// The machine becomes what it was.
pub(super) async fn restore(acting: &Acting<'_>) -> Result<(), ApiError> {
    let asked: Wanted = acting.body()?;
    let (new, backup) = (name("name", &asked.name)?, name("backupName", &asked.backup_name)?);
    let Some(found) = acting.find(HARVESTER, "virtualmachinebackups", acting.namespace, backup) else {
        return Err(ApiError::not_found(HARVESTER, "virtualmachinebackups", backup));
    };
    if found["spec"]["source"]["name"] != acting.name {
        return Err(invalid("InvalidState", format!("{backup} is not a backup of this machine")));
    }
    let is_snapshot = found["spec"]["type"] == "snapshot";
    let policy = match asked.deletion_policy.as_str() {
        "" if is_snapshot => "retain",
        "" => "delete",
        policy => policy,
    };
    let wanted = json!({
        "metadata": { "name": new },
        "spec": {
            "target": { "apiGroup": "kubevirt.io", "kind": "VirtualMachine", "name": acting.name },
            "virtualMachineBackupName": backup, "virtualMachineBackupNamespace": acting.namespace,
            "newVM": false, "deletionPolicy": policy,
            "keepMacAddress": asked.keep_mac_address, "haltAfterRestore": asked.halt_after_restore,
        },
    });
    acting.create(HARVESTER, "virtualmachinerestores", acting.namespace, wanted).await.map(drop)
}
