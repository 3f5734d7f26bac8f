//! Changing the medium of a CD-ROM drive.

use croft_meta::{ApiError, object};
use serde::Deserialize;
use serde_json::{Value, json};

use super::super::acting::{Acting, required};
use super::super::reply::invalid;
use super::super::schema::Schema;
use super::claims::{self, Claims};
use crate::prepare::random_suffix;

const IMAGES: &str = "harvesterhci.io.virtualmachineimages";
const GIB: i64 = 1 << 30;

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Asked {
    /// Harvester's own clients write it either way.
    #[serde(alias = "DeviceName")]
    device_name: String,
    image_name: String,
}

pub(super) async fn insert(acting: &Acting<'_>) -> Result<(), ApiError> {
    let asked: Asked = acting.body()?;
    let drive = required("deviceName", &asked.device_name)?;
    let image_id = required("imageName", &asked.image_name)?;
    let image = image(acting, image_id)?;
    let status = |field: &str| image["status"][field].as_i64().unwrap_or_default();
    let size = status("virtualSize").max(status("size")).max(1);
    let gib = (size - 1) / GIB + 1;
    let claim = format!("{}-{drive}-{}", acting.name, random_suffix()?);
    let entry = json!({
        "metadata": { "name": claim, "annotations": { claims::IMAGE_ID: image_id } },
        "spec": {
            "accessModes": ["ReadWriteMany"], "volumeMode": "Block",
            "resources": { "requests": { "storage": format!("{gib}Gi") } },
            "storageClassName": image["status"]["storageClassName"],
        },
    });
    let volume = json!({ "name": drive, "persistentVolumeClaim": { "claimName": claim, "hotpluggable": true } });
    acting
        .change(|machine| {
            is_drive(acting, machine, drive)?;
            if claims::volumes(machine).iter().any(|volume| volume["name"] == drive) {
                return Err(acting.conflict(&format!("there is a medium in the drive {drive} already; eject it first")));
            }
            object::list_mut(machine, "/spec/template/spec/volumes").push(volume.clone());
            let mut list = Claims::of(machine)?;
            list.0.push(entry.clone());
            list.write(machine);
            Ok(())
        })
        .await
}

/// An image that can be read: it is whole, and the caller may see it.
fn image(acting: &Acting<'_>, id: &str) -> Result<Value, ApiError> {
    let Some((namespace, name)) = id.split_once('/') else {
        return Err(invalid("InvalidFormat", format!("imageName {id:?} should be <namespace>/<name>")));
    };
    let schema = Schema::find(&acting.call.catalog, IMAGES).ok_or_else(ApiError::no_such_path)?;
    acting.call.server.auth.authorize(&acting.call.user, &schema.attributes("get", namespace, name))?;
    let image = acting.find("harvesterhci.io", "virtualmachineimages", namespace, name);
    let image = image.ok_or_else(|| ApiError::not_found("harvesterhci.io", "virtualmachineimages", name))?;
    let conditions = image.pointer("/status/conditions").and_then(Value::as_array);
    let is_imported = conditions.into_iter().flatten().any(|one| one["type"] == "Imported" && one["status"] == "True");
    if !is_imported || object::deletion_timestamp(&image).is_some() {
        return Err(invalid("InvalidState", format!("image {id} is not ready")));
    }
    Ok(image)
}

fn is_drive(acting: &Acting<'_>, machine: &Value, name: &str) -> Result<(), ApiError> {
    let disks = machine.pointer("/spec/template/spec/domain/devices/disks").and_then(Value::as_array);
    let is_it = |disk: &Value| disk["name"] == name && disk["cdrom"]["bus"] == "sata";
    if disks.into_iter().flatten().any(is_it) {
        return Ok(());
    }
    let (namespace, machine) = (acting.namespace, acting.name);
    let why = format!("can not find the SATA CD-ROM device {name} from the VM {namespace}/{machine}");
    Err(invalid("InvalidBodyContent", why))
}

/// Takes the medium out, and removes its copy of the image.
pub(super) async fn eject(acting: &Acting<'_>, machine: &Value) -> Result<(), ApiError> {
    let asked: Asked = acting.body()?;
    let drive = required("deviceName", &asked.device_name)?;
    let claim = medium(acting, machine, drive)?;
    acting.may("delete", "", "persistentvolumeclaims")?;
    acting
        .change(|machine| {
            if medium(acting, machine, drive)? != claim {
                return Err(acting.conflict(&format!("the medium in the drive {drive} was changed meanwhile")));
            }
            object::list_mut(machine, "/spec/template/spec/volumes").retain(|volume| volume["name"] != drive);
            let mut list = Claims::of(machine)?;
            list.0.retain(|entry| object::name(entry) != claim);
            list.write(machine);
            Ok(())
        })
        .await?;
    acting.delete("", "persistentvolumeclaims", &claim).await
}

/// The claim in a drive, if it can be taken out.
fn medium(acting: &Acting<'_>, machine: &Value, drive: &str) -> Result<String, ApiError> {
    is_drive(acting, machine, drive)?;
    let Some(volume) = claims::volumes(machine).iter().find(|volume| volume["name"] == drive) else {
        return Err(acting.conflict(&format!("the drive {drive} is empty")));
    };
    match claims::of_volume(volume).filter(|_| claims::is_hotpluggable(volume)) {
        Some(claim) => Ok(claim.to_owned()),
        None => Err(acting.conflict(&format!("the medium in the drive {drive} is not hotpluggable"))),
    }
}
