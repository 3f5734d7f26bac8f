//! Volumes made of what is in the target.
//!
//! The file is made aside and gets its name when it is whole, like every volume's: a claim is bound to nothing less.

use std::sync::Arc;
use std::time::Duration;

use croft_backup::{Base, OpenBackup, Transfer};
use croft_block::Staged;
use croft_meta::Chain;
use croft_reconcile::failure::absent_is_none;
use croft_reconcile::{Error, Key, Keys};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use serde_json::json;

use super::super::claim::Stop as NotMade;
use super::super::plan::{self, Content, Plan};
use super::super::snapshot::{file_of, volume_mode};
use super::super::{Inner, Work, binding, blocking, objects};
use super::target::{Open, Way};
use super::{Gauge, Move, Running, Stop, again, in_target};

/// On a claim: how far it is, in percent, and why it is not further.
const PROGRESS: &str = "croft.io/restore-progress";
const ERROR: &str = "croft.io/restore-error";

/// A snapshot that is in the target alone.
pub(in super::super) struct FarAway {
    pub(in super::super) volume: String,
    pub(in super::super) backup: String,
    pub(in super::super) volume_mode: Option<String>,
}

impl Inner {
    /// What a snapshot stands for, if its file is not here.
    pub(in super::super) fn far_away(&self, snapshot: &Key) -> Option<FarAway> {
        let content = self.ready_content(snapshot).ok()?;
        let is_here = file_of(&content).is_some_and(|file| self.pools.find_snapshot(&file).is_some());
        let (volume, backup) = in_target(&content).filter(|_| !is_here)?;
        Some(FarAway { volume, backup, volume_mode: volume_mode(&content) })
    }

    pub(super) async fn fetch(self: &Arc<Self>, key: &Key, keys: &Keys<Work>) -> Result<(), Error> {
        let running = self.moves.begin(Move::Fetch(key.clone()));
        let Some(claim) = absent_is_none(self.claim_api(&key.namespace).get(&key.name).await)? else { return Ok(()) };
        if claim.metadata.deletion_timestamp.is_some() || binding::is_complete(&claim) {
            return Ok(());
        }
        match self.fetch_for(key, &claim, &running).await {
            Ok(()) => {
                keys.send(Work::Claim(key.clone()), Duration::ZERO).await;
                Ok(())
            }
            Err(stop) => {
                if let Stop::Because(why) = &stop {
                    self.events.warning(&claim, "RestoreFailed", why);
                    self.tell_not_fetched(key, &claim, why).await;
                }
                again(stop)
            }
        }
    }

    async fn fetch_for(
        self: &Arc<Self>,
        key: &Key,
        claim: &PersistentVolumeClaim,
        running: &Running<'_>,
    ) -> Result<(), Stop> {
        let name = objects::volume_name(claim);
        let class = self.classes.get(&Key::new("", binding::class_of(claim)));
        let class = class.ok_or_else(|| Stop::Because("its storage class is not there".to_owned()))?;
        let plan = plan::plan(claim, &class, &self.images.list()).map_err(Stop::Because)?;
        let Content::Snapshot(source) = &plan.content else { return Ok(()) };
        let Some(FarAway { volume, backup, .. }) = self.far_away(source) else { return Ok(()) };
        if self.pools.find(&name).is_some() {
            return Ok(());
        }
        let open = self.open_target().await?;
        let gauge = Gauge::default();
        let transfer = self.transfer(Way::Back, &gauge, &running.token).await?;
        let opened = open.store.open_with(&volume, &backup, &self.keys().await?).await?;
        let restored = tokio::select! {
            restored = self.fill(&name, &plan, &open, &opened, &transfer) => restored,
            never = gauge.watch(|percent, _| self.tell_fetched(key, claim, percent, running)) => match never {},
        };
        opened.close().await;
        restored?;
        tracing::info!(claim = %key, volume, backup, "a volume is made of a backup");
        self.tell_fetched(key, claim, 100, running).await;
        Ok(())
    }

    async fn fill(
        self: &Arc<Self>,
        name: &str,
        plan: &Plan,
        open: &Open,
        opened: &OpenBackup,
        transfer: &Transfer,
    ) -> Result<(), Stop> {
        if opened.size() > plan.size_bytes {
            let text = format!(
                "the backup has {} bytes, which do not fit into {}; ask for more",
                opened.size(),
                plan.size_bytes
            );
            return Err(Stop::Because(text));
        }
        let pool = self.choose_pool(plan, None).await.map_err(|stop| match stop {
            NotMade::Api(error) => Stop::Api(error),
            NotMade::Refused(refused) => Stop::Because(refused.message),
            NotMade::Waits(why) => Stop::Because(why),
        })?;
        let failed = |error: std::io::Error| Stop::Because(format!("cannot make the file of volume {name}: {error}"));
        let staged = Staged::new(&pool.tmp(), name).map_err(failed)?;
        let base = match opened.backing_image() {
            None => Base::Nothing,
            Some(image) => {
                self.lay_image(open, image, &staged, transfer).await?;
                Base::BackingImage
            }
        };
        opened.restore(staged.path(), base, transfer).await?;
        let path = pool.volume_path(name).map_err(|error| Stop::Because(Chain(&error).to_string()))?;
        let size = plan.size_bytes;
        let published = blocking(move || {
            staged.file().set_len(size)?;
            staged.publish(&path)
        });
        published.await.map_err(failed)
    }

    /// It is tried again.
    async fn tell_not_fetched(&self, key: &Key, claim: &PersistentVolumeClaim, why: &str) {
        let change = json!({ "metadata": { "annotations": { ERROR: why } } });
        if let Err(error) = self.patch_claim(claim, &change).await {
            tracing::debug!(claim = %key, error = %Chain(&error), "why a restore fails cannot be told");
        }
    }

    /// Whoever deletes the claim wants it no more.
    async fn tell_fetched(&self, key: &Key, claim: &PersistentVolumeClaim, percent: u64, running: &Running<'_>) {
        let is_it = |now: &Arc<PersistentVolumeClaim>| {
            now.metadata.uid == claim.metadata.uid && now.metadata.deletion_timestamp.is_none()
        };
        if !self.claims.get(key).as_ref().is_some_and(is_it) {
            running.token.cancel();
            return;
        }
        let change = json!({ "metadata": { "annotations": { PROGRESS: percent.to_string(), ERROR: null } } });
        if let Err(error) = self.patch_claim(claim, &change).await {
            tracing::debug!(claim = %key, error = %Chain(&error), "how far a restore is cannot be told");
        }
    }
}
