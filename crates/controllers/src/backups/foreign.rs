//! What a backup of another cluster names and this one does not have: storage classes and images.
//!
//! The disks in a backup are whole. They need no image, and any class can hold them: the default one does if theirs is missing.

use croft_api::harvester::{VirtualMachineImage, VirtualMachineRestore, VolumeRestore};
use croft_reconcile::failure::absent_is_none;
use croft_reconcile::{Error, Key};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::{Api, ResourceExt};
use serde_json::json;

use super::Keeper;
use super::rebuilt::IMAGE_ID;

const DEFAULT_CLASS: &str = "storageclass.kubernetes.io/is-default-class";

impl Keeper {
    /// Has disks be on what is here.
    pub(super) async fn naturalize(
        &self,
        restore: &VirtualMachineRestore,
        disks: &mut [VolumeRestore],
    ) -> Result<(), Error> {
        for disk in disks {
            self.choose_class(restore, disk)?;
            let image = disk.claim.metadata["annotations"][IMAGE_ID].as_str().unwrap_or_default().to_owned();
            if !image.is_empty() && !self.has_image(&image).await? {
                // It would name what nobody can find.
                if let Some(annotations) = disk.claim.metadata["annotations"].as_object_mut() {
                    annotations.remove(IMAGE_ID);
                }
            }
        }
        Ok(())
    }

    fn choose_class(&self, restore: &VirtualMachineRestore, disk: &mut VolumeRestore) -> Result<(), Error> {
        let Some(wanted) = disk.claim.spec["storageClassName"].as_str().filter(|name| !name.is_empty()) else {
            return Ok(());
        };
        let class = self.class_here(wanted).map_err(Error::NotYet)?;
        if class != wanted {
            let text = format!("There is no storage class {wanted} here; volume {} is on {class}.", disk.volume_name);
            self.events.normal(restore, "StorageClassReplaced", &text);
            disk.claim.spec["storageClassName"] = json!(class);
        }
        Ok(())
    }

    /// The class of that name, or the default one. The error is for the user.
    pub(super) fn class_here(&self, wanted: &str) -> Result<String, String> {
        if self.inventory.classes.get(&Key::new("", wanted)).is_some() {
            return Ok(wanted.to_owned());
        }
        let classes = self.inventory.classes.list();
        let default = classes.iter().find(|class| is_default(class)).map(|class| class.name_any());
        default.ok_or_else(|| format!("there is no storage class {wanted}, and no default"))
    }

    async fn has_image(&self, id: &str) -> Result<bool, Error> {
        let Some((namespace, name)) = id.split_once('/') else { return Ok(false) };
        let api: Api<VirtualMachineImage> = Api::namespaced(self.client.clone(), namespace);
        Ok(absent_is_none(api.get(name).await)?.is_some())
    }
}

fn is_default(class: &StorageClass) -> bool {
    class.annotations().get(DEFAULT_CLASS).is_some_and(|value| value == "true")
}
