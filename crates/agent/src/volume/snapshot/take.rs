//! The files of snapshots.
//!
//! Those of one machine are taken at one instant, and count only when they are all there: what is left of an attempt that was
//! interrupted is removed before the next. No object tells of a file before the last one is there. What the machine has
//! besides its disks is read at the same instant, and kept before the files are.

use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use croft_api::kubevirt::VirtualMachine;
use croft_api::machine_state::StateSource;
use croft_api::snapshot::{SnapshotSet, Stillness, VolumeSnapshot};
use croft_block::{Pool, Shot, Snapshot, Staged, VolumeError};
use croft_meta::Chain;
use croft_reconcile::failure::absent_is_none;
use kube::{Api, ResourceExt};

use super::super::{Inner, blocking};
use super::file_name;
use super::source::Source;
use crate::machine_state::{self, Files, Place, StateError};
use crate::vm::owner_uid;

const NO_REFLINKS: &str = "the pool's file system cannot share extents, so that a disk in use cannot be kept as it is at one instant: stop the machine first";

fn told(error: &VolumeError) -> String {
    Chain(error).to_string()
}

/// What is there of a machine at one instant.
struct Instant {
    shots: Vec<Shot>,
    state: Files,
    /// Kept with the first of the disks.
    memory: Option<(Arc<Pool>, Staged)>,
    stillness: Stillness,
}

impl Inner {
    /// The file of one snapshot, which may be there from before we were interrupted. One disk is at one instant by itself.
    pub(super) async fn file_for(&self, snapshot: &VolumeSnapshot, source: &Source) -> Result<Snapshot, String> {
        let name = file_name(snapshot.metadata.uid.as_deref().unwrap_or_default());
        if let Some((_, file)) = self.pools.find_snapshot(&name) {
            return Ok(file);
        }
        let is_used = self.is_running_with(&source.claim);
        let (pool, path) = (Arc::clone(&source.pool), source.path.clone());
        let taken = blocking(move || {
            let shot = pool.prepare_snapshot(&name, &path).map_err(|error| told(&error))?;
            if shot.share().map_err(|error| told(&error))? {
                return shot.keep().map(|file| (file, false)).map_err(|error| told(&error));
            }
            if is_used {
                return Err(NO_REFLINKS.to_owned());
            }
            shot.copy().and_then(|()| shot.keep()).map(|file| (file, true)).map_err(|error| told(&error))
        });
        let (file, is_copy) = taken.await?;
        if is_copy && self.is_running_with(&source.claim) {
            self.remove(&source.pool, &file.name).await;
            return Err(NO_REFLINKS.to_owned());
        }
        Ok(file)
    }

    /// The files of all snapshots of a set. What is known of the guest, unless they were there before.
    pub(super) async fn files_for(
        &self,
        set: &SnapshotSet,
        members: &[VolumeSnapshot],
        sources: &[Source],
    ) -> Result<Option<Stillness>, String> {
        let names: Vec<String> =
            members.iter().map(|one| file_name(one.metadata.uid.as_deref().unwrap_or_default())).collect();
        if names.iter().all(|name| self.pools.find_snapshot(name).is_some()) {
            return Ok(None);
        }
        let first = names.first().cloned().unwrap_or_default();
        let disks: Vec<_> = names
            .into_iter()
            .zip(sources)
            .map(|(name, source)| (name, Arc::clone(&source.pool), source.path.clone()))
            .collect();
        let prepared = blocking(move || {
            for (name, pool, _) in &disks {
                pool.delete_snapshot(name)?;
            }
            disks.iter().map(|(name, pool, path)| pool.prepare_snapshot(name, path)).collect::<Result<Vec<Shot>, _>>()
        });
        let shots = prepared.await.map_err(|error| told(&error))?;
        let namespace = members.first().and_then(|one| one.metadata.namespace.as_deref()).unwrap_or_default();
        let Instant { shots, state, memory, stillness } =
            self.at_one_instant(namespace, set, sources, (shots, &first)).await?;
        if !state.is_empty() {
            let owners = members.first().map(ResourceExt::owner_references).unwrap_or_default();
            let kept = machine_state::keep(&self.client, namespace, &set.id, owners, state).await;
            kept.map_err(|error| Chain(&error).to_string())?;
        }
        let kept = blocking(move || {
            if let Some((pool, staged)) = memory {
                pool.keep_memory(&first, staged)?;
            }
            shots.into_iter().map(Shot::keep).collect::<Result<Vec<_>, _>>()
        })
        .await;
        let kept = kept.map_err(|error| told(&error))?;
        for ((member, file), source) in members.iter().zip(&kept).zip(sources) {
            self.remove_unless_wanted(member, &source.pool, &file.name).await;
        }
        Ok(Some(stillness))
    }

    /// Every disk as it is at the same moment: the guest is held still for it, if it runs.
    async fn at_one_instant(
        &self,
        namespace: &str,
        set: &SnapshotSet,
        sources: &[Source],
        (shots, first): (Vec<Shot>, &str),
    ) -> Result<Instant, String> {
        let is_used = || sources.iter().any(|source| self.is_running_with(&source.claim));
        let guest = self.guests.get(namespace, &set.machine).and_then(|guest| guest.machine.clone());
        let Some(machine) = guest else {
            if is_used() {
                return Err("its disks are in use, and who uses them cannot be asked to stand still now".to_owned());
            }
            let dir = self.state_of_idle(namespace, &set.machine).await.map_err(|error| Chain(&error).to_string())?;
            let taken = blocking(move || {
                if !share(&shots).map_err(|error| told(&error))? {
                    shots.iter().try_for_each(Shot::copy).map_err(|error| told(&error))?;
                }
                Ok::<_, String>((shots, state_at(dir)?))
            });
            let (shots, state) = taken.await?;
            return if is_used() {
                Err("the machine was started meanwhile".to_owned())
            } else {
                Ok(Instant { shots, state, memory: None, stillness: Stillness::default() })
            };
        };
        let patience = Duration::from_millis(set.freeze_ms);
        let dir = Some(self.state_place().of(owner_uid(&machine.object())));
        let instant = move || {
            let is_shared = share(&shots).map_err(|error| told(&error))?;
            Ok::<_, String>((shots, is_shared, state_at(dir)?))
        };
        let mut memory = None;
        let (outcome, stillness) = match sources.first().filter(|_| set.with_memory) {
            Some(source) => {
                let (staged, file, room) = self.place_for_memory(source, first).await?;
                memory = Some((Arc::clone(&source.pool), staged));
                machine.hold_with_memory(file, room, instant).await.map_err(|error| Chain(&error).to_string())?
            }
            None => machine.hold_still(patience, instant).await.map_err(|error| Chain(&error).to_string())?,
        };
        let (shots, is_shared, state) = outcome?;
        if !is_shared {
            return Err(NO_REFLINKS.to_owned());
        }
        tracing::info!(
            machine = %format!("{namespace}/{}", set.machine),
            disks = shots.len(),
            pause_ms = stillness.pause_ms,
            is_frozen = stillness.is_frozen,
            "disks kept at one instant"
        );
        Ok(Instant { shots, state, memory, stillness })
    }

    /// A file for the guest's memory, and how large it may become.
    async fn place_for_memory(&self, source: &Source, snapshot: &str) -> Result<(Staged, File, u64), String> {
        let (pool, name) = (Arc::clone(&source.pool), snapshot.to_owned());
        blocking(move || {
            let staged = pool.stage_memory(&name).map_err(|error| told(&error))?;
            let room = pool.usage().map_err(|error| Chain(&error).to_string())?.free_bytes;
            let file = staged.file().try_clone().map_err(|error| format!("the file for the memory: {error}"))?;
            Ok((staged, file, room))
        })
        .await
    }

    fn state_place(&self) -> Place {
        let pool = self.pools.default();
        Place { states: pool.dir().join("state"), aside: pool.tmp() }
    }

    /// Where the state of a machine that does not run is. What it is to begin with at its next start is there then.
    async fn state_of_idle(&self, namespace: &str, name: &str) -> Result<Option<PathBuf>, StateError> {
        let api: Api<VirtualMachine> = Api::namespaced(self.client.clone(), namespace);
        let Some(machine) = absent_is_none(api.get(name).await)? else { return Ok(None) };
        let (place, uid) = (self.state_place(), machine.metadata.uid.unwrap_or_default());
        if let Some(source) = StateSource::of(&machine.spec.template.metadata) {
            machine_state::settle(&self.client, &place, namespace, &uid, &source).await?;
        }
        Ok(Some(place.of(&uid)))
    }

    /// Whoever deleted a snapshot while its file was made did not find the file.
    async fn remove_unless_wanted(&self, snapshot: &VolumeSnapshot, pool: &Arc<Pool>, file: &str) {
        let namespace = snapshot.metadata.namespace.as_deref().unwrap_or_default();
        let now = absent_is_none(self.snapshot_api(namespace).get(&snapshot.name_any()).await);
        let is_gone = |now: &Option<VolumeSnapshot>| {
            now.as_ref().is_none_or(|now| {
                now.metadata.uid != snapshot.metadata.uid || now.metadata.deletion_timestamp.is_some()
            })
        };
        if now.as_ref().is_ok_and(is_gone) {
            self.remove(pool, file).await;
        }
    }

    async fn remove(&self, pool: &Arc<Pool>, file: &str) {
        let (pool, name) = (Arc::clone(pool), file.to_owned());
        if let Err(error) = blocking(move || pool.delete_snapshot(&name)).await {
            tracing::warn!(file, error = told(&error), "a snapshot that nobody wants is left");
        }
    }
}

/// All of them, or `false`.
fn share(shots: &[Shot]) -> Result<bool, VolumeError> {
    for shot in shots {
        if !shot.share()? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn state_at(dir: Option<PathBuf>) -> Result<Files, String> {
    dir.map_or_else(|| Ok(Files::new()), |dir| machine_state::read(&dir).map_err(|error| Chain(&error).to_string()))
}
