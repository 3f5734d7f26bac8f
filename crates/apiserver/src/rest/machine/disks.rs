//! Plugging disks in and out, which stay in the machine's list of claims.

use croft_meta::{ApiError, object};
use serde::Deserialize;
use serde_json::{Value, json};

use super::super::acting::{Acting, name, required};
use super::claims::{self, Claims};

const WAIT_FOR_CONSUMER: &str = "WaitForFirstConsumer";

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Add {
    disk_name: String,
    volume_source_name: String,
    shareable: bool,
}

pub(super) async fn add(acting: &Acting<'_>) -> Result<(), ApiError> {
    let asked: Add = acting.body()?;
    let disk = name("diskName", &asked.disk_name)?;
    let claim_name = name("volumeSourceName", &asked.volume_source_name)?;
    let claim = claims::find(acting, claim_name)?;
    is_attachable(acting, &claim)?;
    let mut device = json!({ "name": disk, "disk": { "bus": "scsi" } });
    if asked.shareable {
        device["shareable"] = json!(true);
    }
    let source = json!({ "claimName": claim_name, "hotpluggable": true });
    let volume = json!({ "name": disk, "persistentVolumeClaim": source });
    acting
        .change(|machine| {
            let refuse = |why: String| Err(acting.conflict(&why));
            for there in claims::volumes(machine) {
                if there["name"] == disk {
                    return refuse(format!(
                        "Unable to add volume [{disk}] because volume with that name already exists"
                    ));
                }
                if claims::of_volume(there) == Some(claim_name) {
                    return refuse(format!("Unable to add volume source [{claim_name}] because it already exists"));
                }
            }
            object::list_mut(machine, "/spec/template/spec/volumes").push(volume.clone());
            object::list_mut(machine, "/spec/template/spec/domain/devices/disks").push(device.clone());
            let mut list = Claims::of(machine)?;
            if list.position(claim_name).is_none() {
                list.0.push(claims::as_template(&claim, claim_name));
            }
            list.write(machine);
            Ok(())
        })
        .await
}

/// One that is not bound would keep the machine waiting, unless it waits for the machine itself.
fn is_attachable(acting: &Acting<'_>, claim: &Value) -> Result<(), ApiError> {
    let class = claim["spec"]["storageClassName"].as_str().unwrap_or_default();
    let class = acting.find("storage.k8s.io", "storageclasses", "", class).unwrap_or_default();
    let is_bound = claim["status"]["phase"] == "Bound";
    if object::deletion_timestamp(claim).is_some() {
        return Err(acting.conflict(&format!("volume {} is being deleted", object::name(claim))));
    }
    if is_bound || class["volumeBindingMode"] == WAIT_FOR_CONSUMER {
        return Ok(());
    }
    Err(acting.conflict(&format!("volume {} is not bound yet", object::name(claim))))
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Remove {
    disk_name: String,
}

pub(super) async fn remove(acting: &Acting<'_>) -> Result<(), ApiError> {
    let asked: Remove = acting.body()?;
    let disk = required("diskName", &asked.disk_name)?;
    acting
        .change(|machine| {
            let volume = claims::volumes(machine).iter().find(|volume| volume["name"] == disk);
            let Some(volume) = volume else {
                let why = format!("Unable to remove volume [{disk}] because it does not exist");
                return Err(acting.conflict(&why));
            };
            if !claims::is_hotpluggable(volume) {
                let why = format!("Unable to remove volume [{disk}] because it is not hotpluggable");
                return Err(acting.conflict(&why));
            }
            let claim = claims::of_volume(volume).map(str::to_owned);
            for path in ["/spec/template/spec/volumes", "/spec/template/spec/domain/devices/disks"] {
                object::list_mut(machine, path).retain(|entry| entry["name"] != disk);
            }
            let mut list = Claims::of(machine)?;
            list.0.retain(|entry| claim.as_deref() != Some(object::name(entry)));
            list.write(machine);
            Ok(())
        })
        .await
}
