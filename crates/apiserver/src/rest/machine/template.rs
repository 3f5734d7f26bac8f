//! A template made from a machine: its spec, and with its data if that is asked for.

use croft_meta::{ApiError, object};
use serde::Deserialize;
use serde_json::{Value, json};

use super::super::acting::{Acting, name};
use super::super::reply::invalid;
use super::claims::{self, Claims};
use super::clone::forget_addresses;
use super::secrets::{Copies, owner_reference};
use crate::prepare::random_suffix;

const GROUP: &str = "harvesterhci.io";
const TEMPLATES: &str = "virtualmachinetemplates";
const VERSIONS: &str = "virtualmachinetemplateversions";
const IMAGES: &str = "virtualmachineimages";
const KEYS: &str = "harvesterhci.io/sshNames";
/// A label may have so many characters, and an image's name is one.
const MAX_SHOWN: usize = 63;

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Asked {
    name: String,
    description: String,
    with_data: bool,
}

/// A disk that becomes an image.
struct Export {
    image: String,
    shown: String,
    claim: String,
    class: Option<String>,
}

pub(super) async fn create(acting: &Acting<'_>, machine: &Value) -> Result<(), ApiError> {
    let asked: Asked = acting.body()?;
    let template = name("name", &asked.name)?;
    if acting.find(GROUP, TEMPLATES, acting.namespace, template).is_some() {
        return Err(ApiError::already_exists(GROUP, TEMPLATES, template));
    }
    let mut needed = vec![TEMPLATES, VERSIONS];
    if asked.with_data {
        needed.push(IMAGES);
    }
    for plural in needed {
        acting.may("create", GROUP, plural)?;
    }
    let version = format!("{template}-{}", random_suffix()?);
    let mut source = without_identity(machine);
    let exports = if asked.with_data { exports(acting, &mut source, template, &version)? } else { Vec::new() };
    let prefix = format!("templateversion-{version}");
    let copies = Copies::plan(acting, &mut source["spec"]["template"]["spec"], &prefix)?;
    copies.make(acting).await?;

    let spec = json!({
        "templateId": format!("{}/{template}", acting.namespace),
        "description": format!("Template made from the virtual machine {}/{}", acting.namespace, acting.name),
        "keyPairIds": keys(machine)?, "vm": source,
    });
    let mut made = Vec::new();
    let result = make(acting, (template, &asked.description), (&version, spec), &exports, &mut made).await;
    match result {
        Ok(version) => copies.give_to(acting, &version).await,
        Err(error) => {
            // The default version is only let go after its template, and an image after its version.
            for (plural, name) in &made {
                acting.delete_as_platform(GROUP, plural, name).await;
            }
            copies.undo(acting).await;
            return Err(error);
        }
    }
    Ok(())
}

/// Creates the objects, and notes in `made` those that are there.
async fn make(
    acting: &Acting<'_>,
    (template, description): (&str, &str),
    (version, spec): (&str, Value),
    exports: &[Export],
    made: &mut Vec<(&'static str, String)>,
) -> Result<Value, ApiError> {
    let wanted = json!({ "metadata": { "name": template }, "spec": { "description": description } });
    acting.create(GROUP, TEMPLATES, acting.namespace, wanted).await?;
    made.push((TEMPLATES, template.to_owned()));
    let wanted = json!({ "metadata": { "name": version }, "spec": spec });
    let owner = acting.create(GROUP, VERSIONS, acting.namespace, wanted).await?;
    made.push((VERSIONS, version.to_owned()));
    for export in exports {
        let mut spec = json!({
            "displayName": export.shown, "sourceType": "export-from-volume",
            "pvcName": export.claim, "pvcNamespace": acting.namespace,
        });
        if let Some(class) = &export.class {
            spec["targetStorageClassName"] = json!(class);
        }
        let metadata = json!({ "name": export.image, "ownerReferences": [owner_reference(&owner)] });
        acting.create(GROUP, IMAGES, acting.namespace, json!({ "metadata": metadata, "spec": spec })).await?;
        made.push((IMAGES, export.image.clone()));
    }
    Ok(owner)
}

/// The machine as others may be made from it: without addresses, and without what the server wrote into it.
fn without_identity(machine: &Value) -> Value {
    let mut source = json!({ "metadata": { "name": object::name(machine) }, "spec": machine["spec"] });
    for field in ["labels", "annotations"] {
        if !machine["metadata"][field].is_null() {
            source["metadata"][field] = machine["metadata"][field].clone();
        }
    }
    if let Some(annotations) = source.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut) {
        annotations.retain(|key, _| {
            !key.starts_with("kubevirt.io/")
                && !key.starts_with("kubectl.kubernetes.io/")
                && !OWN.contains(&key.as_str())
        });
    }
    let spec = &mut source["spec"]["template"]["spec"];
    forget_addresses(spec);
    for field in ["uuid", "serial"] {
        if let Some(firmware) = spec.pointer_mut("/domain/firmware").and_then(Value::as_object_mut) {
            firmware.remove(field);
        }
    }
    source
}

/// What annotations say about one machine only.
const OWN: [&str; 4] = [
    "harvesterhci.io/mac-address",
    "harvesterhci.io/removedPersistentVolumeClaims",
    "harvesterhci.io/insufficient-resource-quota",
    "harvesterhci.io/timestamp",
];

/// Has the machine's disks come from images that are still to be made of them.
fn exports(acting: &Acting<'_>, source: &mut Value, template: &str, version: &str) -> Result<Vec<Export>, ApiError> {
    let mut exports = Vec::new();
    let mut list = Claims::default();
    for (index, volume) in object::list_mut(source, "/spec/template/spec/volumes").iter_mut().enumerate() {
        let Some(claim_name) = claims::of_volume(volume).map(str::to_owned) else { continue };
        let claim = claims::find(acting, &claim_name)?;
        let image = format!("templateversion-{version}-image-{index}");
        let new = format!("templateversion-{version}-disk-{index}");
        let mut entry = claims::as_template(&claim, &new);
        entry["metadata"]["annotations"] = json!({ claims::IMAGE_ID: format!("{}/{image}", acting.namespace) });
        entry["spec"]["storageClassName"] = json!(format!("longhorn-{image}"));
        list.0.push(entry);
        let mut on_claim = json!({ "claimName": new });
        if claims::is_hotpluggable(volume) {
            on_claim["hotpluggable"] = json!(true);
        }
        *volume = json!({ "name": volume["name"], "persistentVolumeClaim": on_claim });
        let suffix = format!("-{}-image-{index}", version.rsplit('-').next().unwrap_or_default());
        let room = MAX_SHOWN.saturating_sub(suffix.len()).min(template.len());
        let shown = format!("{}{suffix}", template[..room].trim_end_matches(['-', '.']));
        exports.push(Export { image, shown, claim: claim_name, class: plain_class(acting, &claim) });
    }
    if exports.is_empty() {
        return Err(invalid("InvalidState", "the machine has no volumes whose data could be kept"));
    }
    if let Some(spec) = source["spec"].as_object_mut() {
        spec.remove("dataVolumeTemplates");
    }
    list.write(source);
    Ok(exports)
}

/// The claim's class, if others may use it: one of an image belongs to that image.
fn plain_class(acting: &Acting<'_>, claim: &Value) -> Option<String> {
    let class = claim["spec"]["storageClassName"].as_str()?;
    let found = acting.find("storage.k8s.io", "storageclasses", "", class)?;
    found["parameters"]["backingImage"].is_null().then(|| class.to_owned())
}

/// The key pairs that the machine was made with.
fn keys(machine: &Value) -> Result<Vec<String>, ApiError> {
    let annotations = machine.pointer("/spec/template/metadata/annotations");
    let text = annotations.and_then(|all| all.get(KEYS)).and_then(Value::as_str).unwrap_or_default();
    if text.is_empty() {
        return Ok(Vec::new());
    }
    serde_json::from_str(text).map_err(|error| invalid("InvalidState", format!("{KEYS} cannot be read: {error}")))
}
