//! Plugging and unplugging disks, by changing the volumes and disks of the machine's spec.
//!
//! On a VirtualMachine the change stays; its controller brings it to the running instance. An instance that stands alone
//! is changed directly; one that belongs to a VirtualMachine follows that, and is not to be changed behind its back.

use croft_meta::{ApiError, object};
use serde::Deserialize;
use serde_json::{Value, json};

use super::machine::{is_owned_by_vm, is_running, text};
use super::request_body::{DryRun, value};
use super::{Kind, Part, fetch, modify};
use crate::call::Call;

const VOLUMES: &str = "/volumes";
const DISKS: &str = "/domain/devices/disks";

pub(super) async fn add(call: &Call, kind: Kind) -> Result<(), ApiError> {
    let body = body(call)?;
    let (name, dry_run) = name_and_mode(&body, "AddVolumeOptions")?;
    let mut disk = body["disk"].clone();
    if !disk.is_object() {
        return Err(ApiError::bad_request("AddVolumeOptions requires disk to not be nil"));
    }
    let source = body["volumeSource"].clone();
    if !source.is_object() {
        return Err(ApiError::bad_request("AddVolumeOptions requires VolumeSource to not be nil"));
    }
    disk["name"] = json!(name);
    let volume = hotpluggable(&name, &source)?;
    if disk["cdrom"].is_object() {
        // Discs are put into drives that are there from the start.
        let why = format!("Disk {name} requires diskDevice of type 'disk' or 'lun' to be hotplugged.");
        return Err(ApiError::bad_request(why));
    }
    may_change(call, kind).await?;
    modify(call, kind, part(kind), dry_run, |machine| {
        let spec = vmi_spec(machine, kind);
        let claim = claim_name(&volume);
        for existing in list(spec, VOLUMES) {
            if existing["name"] == name.as_str() {
                let why = format!("Unable to add volume [{name}] because volume with that name already exists");
                return Err(kind.conflict(&call.info.name, why));
            }
            if claim_name(existing) == claim {
                let why = format!("Unable to add volume source [{claim}] because it already exists");
                return Err(kind.conflict(&call.info.name, why));
            }
        }
        object::list_mut(spec, VOLUMES).push(volume.clone());
        object::list_mut(spec, DISKS).push(disk.clone());
        Ok(())
    })
    .await
}

pub(super) async fn remove(call: &Call, kind: Kind) -> Result<(), ApiError> {
    let body = body(call)?;
    let (name, dry_run) = name_and_mode(&body, "RemoveVolumeOptions")?;
    may_change(call, kind).await?;
    modify(call, kind, part(kind), dry_run, |machine| {
        let spec = vmi_spec(machine, kind);
        // It may be named after its claim.
        let found = list(spec, VOLUMES).iter().find(|v| v["name"] == name.as_str() || claim_name(v) == name);
        let Some(volume) = found else {
            let why = format!("Unable to remove volume [{name}] because it does not exist");
            return Err(kind.conflict(&call.info.name, why));
        };
        let volume_name = text(volume, "/name").to_owned();
        if !is_hotpluggable(volume) {
            let why = format!("Unable to remove volume [{volume_name}] because it is not hotpluggable");
            return Err(kind.conflict(&call.info.name, why));
        }
        for path in [VOLUMES, DISKS] {
            object::list_mut(spec, path).retain(|entry| entry["name"] != volume_name.as_str());
        }
        Ok(())
    })
    .await
}

fn body(call: &Call) -> Result<Value, ApiError> {
    match value(call)? {
        Value::Null => Err(ApiError::bad_request("Request with no body, a new name is expected as the request body")),
        body => Ok(body),
    }
}

fn name_and_mode(body: &Value, options: &str) -> Result<(String, bool), ApiError> {
    let dry_run = DryRun::deserialize(body.get("dryRun").unwrap_or(&Value::Null));
    let dry_run = dry_run.map_err(|error| ApiError::bad_request(format!("dryRun: {error}")))?.is_on()?;
    match text(body, "/name") {
        "" => Err(ApiError::bad_request(format!("{options} requires name to be set"))),
        name => Ok((name.to_owned(), dry_run)),
    }
}

/// The volume that the machine gets: one claim or DataVolume, marked as one that may go again.
fn hotpluggable(name: &str, source: &Value) -> Result<Value, ApiError> {
    for (field, key) in [("dataVolume", "name"), ("persistentVolumeClaim", "claimName")] {
        let mut source = source[field].clone();
        if !source.is_object() {
            continue;
        }
        if source[key].as_str().unwrap_or_default().is_empty() {
            return Err(ApiError::bad_request(format!(
                "AddVolumeOptions requires volumeSource.{field}.{key} to be set"
            )));
        }
        source["hotpluggable"] = json!(true);
        return Ok(json!({ "name": name, field: source }));
    }
    Err(ApiError::bad_request("AddVolumeOptions requires a dataVolume or persistentVolumeClaim as VolumeSource"))
}

async fn may_change(call: &Call, kind: Kind) -> Result<(), ApiError> {
    let machine = fetch(call, kind).await?;
    if kind == Kind::Vm {
        return Ok(());
    }
    if is_owned_by_vm(&machine) {
        let (namespace, name) = (object::namespace(&machine), object::name(&machine));
        return Err(ApiError::bad_request(format!(
            "VMI {namespace}/{name} is owned by a VM: call addvolume and removevolume of the VM"
        )));
    }
    if !is_running(&machine) {
        return Err(Kind::Vmi.conflict(&call.info.name, "VMI is not running"));
    }
    Ok(())
}

/// Users' rules hold for what they change of a VirtualMachine; an instance is only ever changed by the platform.
fn part(kind: Kind) -> Part {
    match kind {
        Kind::Vm => Part::Whole,
        Kind::Vmi => Part::Internal,
    }
}

fn vmi_spec(machine: &mut Value, kind: Kind) -> &mut Value {
    match kind {
        Kind::Vm => &mut machine["spec"]["template"]["spec"],
        Kind::Vmi => &mut machine["spec"],
    }
}

fn list<'a>(spec: &'a Value, pointer: &str) -> &'a [Value] {
    spec.pointer(pointer).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

fn claim_name(volume: &Value) -> &str {
    match text(volume, "/dataVolume/name") {
        "" => text(volume, "/persistentVolumeClaim/claimName"),
        name => name,
    }
}

fn is_hotpluggable(volume: &Value) -> bool {
    ["/dataVolume/hotpluggable", "/persistentVolumeClaim/hotpluggable"]
        .iter()
        .any(|pointer| volume.pointer(pointer) == Some(&Value::Bool(true)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_becomes_a_volume_that_may_go_again() {
        let claim = json!({"persistentVolumeClaim": {"claimName": "c"}, "dataVolume": null});
        assert_eq!(
            hotpluggable("v", &claim).unwrap(),
            json!({"name": "v", "persistentVolumeClaim": {"claimName": "c", "hotpluggable": true}})
        );
        for bad in [json!({}), json!({"dataVolume": {}}), json!({"containerDisk": {"image": "x"}})] {
            assert_eq!(hotpluggable("v", &bad).unwrap_err().code(), 400, "{bad}");
        }
    }

    #[test]
    fn lists_are_made_where_there_are_none() {
        let mut spec = json!({"domain": {"devices": {"disks": null}}});
        object::list_mut(&mut spec, DISKS).push(json!(1));
        object::list_mut(&mut spec, VOLUMES).push(json!(2));
        object::list_mut(&mut spec, VOLUMES).push(json!(3));
        assert_eq!(spec, json!({"domain": {"devices": {"disks": [1]}}, "volumes": [2, 3]}));
    }
}
