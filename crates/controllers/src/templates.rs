//! Templates of machines: their versions are counted, belong to them, and one of them is the default.
//!
//! A template is looked at together with all of its versions; `numbering` says what each should look like.

mod numbering;

use std::sync::Arc;
use std::time::Duration;

use croft_api::harvester::{VirtualMachineImage, VirtualMachineTemplate, VirtualMachineTemplateVersion};
use croft_reconcile::{Cache, Error, Key, Keys, Loop, Source, Tasks, failure};
use futures::StreamExt;
use jiff::Timestamp;
use kube::api::Patch;
use kube::{Api, Client};
use tokio_util::sync::CancellationToken;

use crate::patch;

struct Numbering {
    client: Client,
    templates: Cache<VirtualMachineTemplate>,
    versions: Cache<VirtualMachineTemplateVersion>,
    images: Cache<VirtualMachineImage>,
    keys: Keys<Key>,
}

pub(crate) async fn run(client: Client, stop: CancellationToken) {
    let (keys, received) = Keys::channel();
    let (templates, versions, images) = (Cache::default(), Cache::default(), Cache::default());
    let templates = Arc::new(Numbering { client, templates, versions, images, keys });
    let mut tasks = Tasks::default();
    templates.follow(&mut tasks);
    let reconcile = |key: Key| {
        let templates = Arc::clone(&templates);
        async move { templates.reconcile(&key).await }
    };
    let ready = async {
        tokio::join!(templates.templates.synced(), templates.versions.synced(), templates.images.synced());
    };
    // One at a time: numbers are given in order.
    let work = Loop { name: "template", workers: 1, stop };
    tokio::select! {
        () = work.run(received, ready, reconcile) => {}
        () = async { loop { tasks.watch_over().await } } => {}
    }
}

impl Numbering {
    fn follow(self: &Arc<Self>, tasks: &mut Tasks) {
        let this = Arc::clone(self);
        tasks.spawn(async move {
            let changes = this.templates.follow(this.client.clone(), Source::of::<VirtualMachineTemplate>());
            let mut changes = std::pin::pin!(changes);
            while let Some(change) = changes.next().await {
                this.keys.send(change.key, Duration::ZERO).await;
            }
        });
        let this = Arc::clone(self);
        tasks.spawn(async move {
            let changes = this.versions.follow(this.client.clone(), Source::of::<VirtualMachineTemplateVersion>());
            let mut changes = std::pin::pin!(changes);
            while let Some(change) = changes.next().await {
                if let Some(version) = change.new.as_ref().or(change.old.as_ref()) {
                    this.keys.send(numbering::template_of(version), Duration::ZERO).await;
                }
            }
        });
        let this = Arc::clone(self);
        tasks.spawn(async move {
            let changes = this.images.follow(this.client.clone(), Source::of::<VirtualMachineImage>());
            let mut changes = std::pin::pin!(changes);
            while let Some(change) = changes.next().await {
                for version in this.versions.list() {
                    if numbering::images(&version).contains(&change.key) {
                        this.keys.send(numbering::template_of(&version), Duration::ZERO).await;
                    }
                }
            }
        });
    }

    async fn reconcile(&self, key: &Key) -> Result<(), Error> {
        let Some(template) = self.templates.get(key) else { return Ok(()) };
        if template.metadata.deletion_timestamp.is_some() {
            return Ok(());
        }
        let mut versions = self.versions.list();
        versions.retain(|version| numbering::template_of(version) == *key);
        let is_imported = |image: &Key| self.images.get(image).is_some_and(|image| numbering::is_imported(&image));
        let wanted = numbering::numbered(&template, &versions, is_imported, Timestamp::now());
        for (old, new) in versions.iter().zip(&wanted.versions) {
            let Some(change) = patch::guarded(&**old, new) else { continue };
            let api: Api<VirtualMachineTemplateVersion> = Api::namespaced(self.client.clone(), &key.namespace);
            let name = old.metadata.name.as_deref().unwrap_or_default();
            let written = api.patch(name, &patch::as_harvester(), &Patch::Merge(&change)).await;
            if let Some(written) = failure::absent_is_none(written)? {
                self.versions.wrote(written);
            }
        }
        self.write_template(&template, &wanted.template).await
    }

    /// The status first: a number that was given is remembered even if its version goes.
    async fn write_template(&self, old: &VirtualMachineTemplate, new: &VirtualMachineTemplate) -> Result<(), Error> {
        let key = Key::of(old);
        let api: Api<VirtualMachineTemplate> = Api::namespaced(self.client.clone(), &key.namespace);
        let mut current = old.clone();
        let told = VirtualMachineTemplate { status: new.status.clone(), ..current.clone() };
        if let Some(change) = patch::guarded(&current, &told) {
            let written = api.patch_status(&key.name, &patch::as_harvester(), &Patch::Merge(&change)).await;
            let Some(written) = failure::absent_is_none(written)? else { return Ok(()) };
            self.templates.wrote(written.clone());
            current = written;
        }
        let chosen = VirtualMachineTemplate { spec: new.spec.clone(), ..current.clone() };
        if let Some(change) = patch::guarded(&current, &chosen) {
            let written = api.patch(&key.name, &patch::as_harvester(), &Patch::Merge(&change)).await;
            if let Some(written) = failure::absent_is_none(written)? {
                self.templates.wrote(written);
            }
        }
        Ok(())
    }
}
