//! Backing images in the target: what Harvester's images are to Longhorn, whose volumes there are on top of them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use croft_api::harvester::{Condition, VirtualMachineImage, source_type};
use croft_backup::harvester::VmImage;
use croft_backup::{BackingImageRequest, BackupStore, BackupUrl, Base, Compression, Error, Transfer};
use croft_block::Staged;
use croft_image::{Imported, Options};
use croft_meta::Chain;
use croft_reconcile::Key;
use kube::ResourceExt;

use super::super::{Inner, Volumes, binding, blocking, plan};
use super::Stop;
use super::target::Open;
use crate::image::{make_dir, work_dir};

impl Volumes {
    /// Fetches the image that an address in the backup target names. The error is for the user.
    pub(crate) async fn fetch_image(
        &self,
        url: &str,
        to: &Path,
        options: &Options,
        transfer: &Transfer,
    ) -> Result<Imported, String> {
        let fetched = async {
            let open = self.0.open_target().await?;
            let name = match url.parse() {
                Ok(BackupUrl::BackingImage { target, name }) if target == open.url => name,
                Ok(_) => return Err(Stop::Because(format!("{url} names no image in the backup target {}", open.url))),
                Err(error) => return Err(Stop::Because(format!("{url}: {}", Chain(&error)))),
            };
            fetch(&open.store, &name, to, options, transfer).await
        };
        fetched.await.map_err(|stop| match stop {
            Stop::Api(error) => Chain(&error).to_string(),
            Stop::Cancelled => "it was cancelled".to_owned(),
            Stop::Because(why) => why,
        })
    }
}

impl Inner {
    /// Puts what a volume was on top of into its file.
    pub(super) async fn lay_image(
        self: &Arc<Self>,
        open: &Open,
        image: &str,
        staged: &Staged,
        transfer: &Transfer,
    ) -> Result<(), Stop> {
        let volumes = Volumes(Arc::clone(self));
        let work = work_dir(&volumes);
        make_dir(&work).map_err(|error| Stop::Because(format!("cannot make {}: {error}", work.display())))?;
        let key = format!("base-{}", staged.path().file_name().unwrap_or_default().to_string_lossy());
        let raw = work.join(format!("{key}.base"));
        let transfer = Transfer { progress: None, ..transfer.clone() };
        let fetched = fetch(&open.store, image, &raw, &Options::new(&work, &key), &transfer).await;
        let source = match fetched {
            Ok(_) => raw.clone(),
            // Older ones were never backed up; this cluster may have it all the same.
            Err(Stop::Because(why)) => self.image_here(image).ok_or(Stop::Because(why))?,
            Err(stop) => return Err(stop),
        };
        let to = staged.path().to_owned();
        let placed = blocking(move || {
            let placed = croft_image::place(&source, &to);
            if source == raw {
                let _ = std::fs::remove_file(&raw);
            }
            placed
        });
        placed.await.map_err(|error| Stop::Because(Chain(&error).to_string()))
    }

    fn image_here(&self, name: &str) -> Option<PathBuf> {
        let images = self.images.list();
        let uid = plan::by_backing_image(&images, name)?.metadata.uid.clone()?;
        Some(self.pools.default().dir().join("images").join(format!("{uid}.raw"))).filter(|path| path.is_file())
    }
}

/// It comes as it was given to Longhorn, in whatever format, and is a raw disk afterwards.
async fn fetch(
    store: &BackupStore,
    name: &str,
    to: &Path,
    options: &Options,
    transfer: &Transfer,
) -> Result<Imported, Stop> {
    let part = options.work_dir.join(format!("{}.fetched", options.key));
    let opened = store.open_backing_image(name).await?;
    let restored = opened.restore(&part, Base::Nothing, transfer).await;
    opened.close().await;
    let imported = match restored {
        Ok(()) => croft_image::import_file(&part, to, options).await.map_err(|error| Chain(&error).to_string()),
        Err(Error::Cancelled) => Err(String::new()),
        Err(error) => Err(Chain(&error).to_string()),
    };
    if imported.is_err() {
        // What could not be removed is swept away at the next start.
        let _ = std::fs::remove_file(&part);
    }
    imported.map_err(|why| if why.is_empty() { Stop::Cancelled } else { Stop::Because(why) })
}

impl Inner {
    /// The image that a volume is made of, once: whoever restores the volume elsewhere may want others like it. The volume's own
    /// backup has all of it, so that nothing depends on this.
    pub(super) async fn send_image(&self, open: &Open, volume: &str, compression: Compression, transfer: &Transfer) {
        let Some(image) = self.image_of(volume) else { return };
        if let Err(error) = self.send_file(open, &image, compression, transfer).await {
            tracing::warn!(volume, image = %Key::of(image.as_ref()), error = %Chain(&error), "its image is not in the backup target");
        }
    }

    async fn send_file(
        &self,
        open: &Open,
        image: &VirtualMachineImage,
        compression: Compression,
        transfer: &Transfer,
    ) -> Result<(), Error> {
        let (uid, namespace) = (image.uid().unwrap_or_default(), image.namespace().unwrap_or_default());
        let name = format!("vmi-{uid}");
        let (store, own) = (&open.store, image.name_any());
        if store.vm_image(&namespace, &own).await?.is_some() {
            return Ok(());
        }
        let request = BackingImageRequest {
            name: name.clone(),
            file: self.pools.default().dir().join("images").join(format!("{uid}.raw")),
            compression,
            labels: BTreeMap::new(),
            transfer: Transfer { progress: None, ..transfer.clone() },
        };
        let sent = store.write_backing_image(&request).await?;
        // Last, so that whoever finds it finds the image.
        let described = VmImage {
            name: own,
            namespace,
            url: BackupUrl::BackingImage { target: open.url.clone(), name }.to_string(),
            display_name: image.spec.display_name.clone(),
            description: image.spec.description.clone().unwrap_or_default(),
            storage_class_parameters: image.spec.storage_class_parameters.clone(),
            ..VmImage::default()
        };
        store.save_vm_image(&described).await?;
        tracing::info!(image = described.name, sent, "an image is in the backup target");
        Ok(())
    }

    /// One that is here and whole.
    fn image_of(&self, volume: &str) -> Option<Arc<VirtualMachineImage>> {
        let volume = self.volumes.get(&Key::new("", volume))?;
        let claim = binding::claim_of(&volume)?;
        let claim = self.claims.get(&claim)?;
        let id = claim.annotations().get(plan::IMAGE_ANNOTATION)?;
        let images = self.images.list();
        let image = images.iter().find(|image| Key::of(image.as_ref()).to_string() == *id)?;
        let is_it = |condition: &Condition| condition.type_ == "Imported" && condition.status == "True";
        let is_imported = image.status.as_ref().is_some_and(|status| status.conditions.iter().any(is_it));
        // One that came from there is there.
        (is_imported && image.spec.source_type != source_type::RESTORE).then(|| Arc::clone(image))
    }
}
