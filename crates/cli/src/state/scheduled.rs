//! The server saves the state by itself, on a schedule: `--state-schedule`.
//!
//! One after another: take the Lease, remove what an earlier attempt left, save, read back what was written, and only then delete
//! what is older. Whoever is cut off at any point leaves either a whole state or parts that the next attempt removes.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use croft_api::state_schedule::SavedState;
use croft_backup::State;
use croft_reconcile::Events;
use http_body_util::BodyExt;
use jiff::{SignedDuration, Timestamp};
use tokio::io::AsyncWriteExt;
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use super::claim::Claim;
use super::saved::{self, About, Unnamed};
use super::{PATH, described};
use crate::backup::target::{Opened, TargetArgs};
use crate::client::ClientArgs;
use crate::state_settings::StateSettings;

/// How often it is looked at, so that a clock that was set and another server's work are noticed.
const LOOK: Duration = Duration::from_secs(5);
const RENEW: Duration = Duration::from_secs(15);
/// Nobody takes this long to save one.
const LEFT: SignedDuration = SignedDuration::from_hours(24);

pub(crate) struct Scheduled {
    pub(crate) client: kube::Client,
    /// Where the admin's way in is.
    pub(crate) kubeconfig: PathBuf,
    pub(crate) settings: StateSettings,
}

/// Earlier versions made states in the data directory, in the clear, and left them there when they were killed.
pub(crate) fn remove_left(data_dir: &Path) {
    let left = data_dir.join("state.saving");
    match std::fs::remove_dir_all(&left) {
        Ok(()) => info!(path = %left.display(), "removed a state that was never finished"),
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => warn!(path = %left.display(), %error, "what is left of a state could not be removed"),
    }
}

impl Scheduled {
    /// Until the server stops.
    pub(crate) async fn run(self, stop: CancellationToken) {
        let own = match getrandom::u64() {
            Ok(number) => format!("{}-{number:016x}", crate::node_name::of_host()),
            Err(error) => return error!(%error, "no random numbers: states are not saved on their schedule"),
        };
        info!(schedule = self.settings.cron, keep = self.settings.keep, "the state is saved on a schedule");
        let (events, telling) = Events::channel(self.client.clone(), "croft");
        let work = async {
            loop {
                let pause = self.turn(&own, &events).await.unwrap_or_else(|error| {
                    warn!(
                        error = format!("{error:#}"),
                        "the schedule of saved states cannot be followed; trying again"
                    );
                    LOOK
                });
                tokio::time::sleep(pause).await;
            }
        };
        tokio::select! {
            () = work => {}
            () = telling => {}
            () = stop.cancelled() => {}
        }
    }

    /// Saves one if it is time, and tells how long to wait.
    async fn turn(&self, own: &str, events: &Events) -> anyhow::Result<Duration> {
        let mut claim = Claim::look(&self.client, own).await?;
        let now = Timestamp::now();
        let before = claim.schedule.clone();
        let target = self.settings.target.as_ref().map(ToString::to_string).unwrap_or_default();
        claim.schedule.follow(&self.settings.cron, &target, self.settings.keep, now);
        if claim.is_held_by_another(now) {
            return Ok(LOOK);
        }
        let Some(next) = claim.schedule.next().filter(|next| *next <= now) else {
            if claim.schedule != before {
                claim.release(now).await?;
            }
            let left = claim.schedule.next().map(|next| now.duration_until(next));
            // Never more than a look away, and not before it is time.
            let left = left.and_then(|left| Duration::try_from(left).ok()).unwrap_or(LOOK);
            return Ok(left.min(LOOK).max(Duration::from_millis(10)));
        };
        claim.schedule.last_attempt = Some(now);
        if !claim.hold(now).await? {
            return Ok(LOOK);
        }
        info!(due = %next, "saving the state");
        let saved = self.save_held(&mut claim).await;
        tell(&mut claim, events, saved);
        if !claim.release(Timestamp::now()).await? {
            warn!("another server took over the schedule of saved states meanwhile");
        }
        Ok(Duration::from_millis(10))
    }

    /// Renews the Lease meanwhile: who loses it stops.
    async fn save_held(&self, claim: &mut Claim) -> anyhow::Result<SavedState> {
        let opened = self.open().await?;
        let unnamed = Unnamed::new()?;
        let file = unnamed.path();
        let about = holding(claim, self.fetch(&file)).await??;
        let left = claim.schedule.writing.clone();
        let cluster = about.head.cluster.clone();
        let is_left = |name: &str| name == left || is_old(name);
        let removed = holding(claim, opened.store.remove_unfinished_states(&cluster, is_left)).await?;
        for name in removed.context("cannot remove what is left of earlier attempts")? {
            warn!(name, "removed a state that was never finished");
        }
        let state = described(&about);
        claim.schedule.writing.clone_from(&state.name);
        let kept = holding(claim, write(&opened, state, &file)).await??;
        claim.schedule.writing.clear();
        let incomplete = std::mem::take(&mut claim.schedule.incomplete);
        if !incomplete.is_empty() && incomplete != kept.name {
            replace(&opened, &cluster, incomplete).await;
        }
        if let Some(lack) = about.lack() {
            claim.schedule.incomplete.clone_from(&kept.name);
            // Older ones stay: among them is the last that has everything.
            bail!("{lack}, which is kept as {}; \"croft secrets status\" tells which they are", kept.name);
        }
        self.forget(claim, &opened, &cluster).await;
        Ok(SavedState { time: Timestamp::now(), name: kept.name, size: kept.size, objects: about.records })
    }

    async fn open(&self) -> anyhow::Result<Opened> {
        let StateSettings { target, key_file, .. } = &self.settings;
        let target = TargetArgs::new(target.clone(), key_file.clone());
        let opened = target.open_with_keys(&ClientArgs::with(self.kubeconfig.clone())).await;
        opened.map_err(|failure| failure.error)
    }

    /// Into a file, which is then read to its end.
    async fn fetch(&self, file: &Path) -> anyhow::Result<About> {
        let request = http::Request::get(PATH).body(kube::client::Body::empty())?;
        let answer = self.client.send(request).await.context("cannot ask for the state")?;
        if !answer.status().is_success() {
            bail!("the server answers {} when it is asked for the state", answer.status());
        }
        let mut output = tokio::fs::File::create(file).await.context("cannot write the state")?;
        let mut body = answer.into_body();
        while let Some(frame) = body.frame().await {
            let frame = frame.context("the state is cut short")?;
            if let Some(data) = frame.data_ref() {
                output.write_all(data).await.context("cannot write the state")?;
            }
        }
        output.flush().await.context("cannot write the state")?;
        saved::check(file).await
    }

    /// The new one is good: not to have got rid of an old one is no reason to save it again.
    async fn forget(&self, claim: &mut Claim, opened: &Opened, cluster: &str) {
        let keep = usize::try_from(self.settings.keep).unwrap_or(usize::MAX);
        let retained = holding(claim, opened.store.retain_states(cluster, keep, &opened.keys)).await;
        match retained.and_then(|retained| retained.context("cannot delete old states")) {
            Ok(retained) => {
                for name in &retained.damaged {
                    warn!(name, "a saved state on the target is damaged, and does not count");
                }
                if !retained.deleted.is_empty() {
                    info!(deleted = retained.deleted.join(", "), good = retained.good, "old states were deleted");
                }
            }
            Err(error) => warn!(error = format!("{error:#}"), "old states were not deleted"),
        }
    }
}

/// Writes and reads back. What is not good does not stay.
async fn write(opened: &Opened, state: State, file: &Path) -> anyhow::Result<State> {
    let store = &opened.store;
    let written = async {
        let kept = store.save_state(state.clone(), file, opened.keys.current()).await;
        let kept = kept.context("cannot write to the target")?;
        let verified = store.verify_state(&kept, &opened.keys).await;
        verified.context("what was written cannot be read back")?;
        anyhow::Ok(kept)
    };
    let written = written.await;
    if written.is_err()
        && let Err(error) = store.delete_state(&state).await
    {
        // The next attempt knows its name.
        warn!(name = state.name, error = %croft_meta::Chain(&error), "what is left of a state could not be removed");
    }
    written
}

/// One that lacks objects goes when there is a newer one, so that a key that is lost for days does not fill the target.
async fn replace(opened: &Opened, cluster: &str, name: String) {
    let state = State { cluster: cluster.to_owned(), name, ..State::default() };
    if let Err(error) = opened.store.delete_state(&state).await {
        warn!(name = state.name, error = %croft_meta::Chain(&error), "a state that is not complete could not be removed");
    }
}

/// Does something with the Lease in hand, and gives up when it is lost.
async fn holding<T>(claim: &mut Claim, work: impl Future<Output = T>) -> anyhow::Result<T> {
    let mut work = std::pin::pin!(work);
    loop {
        if !claim.hold(Timestamp::now()).await? {
            bail!("another server took over");
        }
        if let Ok(done) = tokio::time::timeout(RENEW, &mut work).await {
            return Ok(done);
        }
    }
}

/// By its name, which says when it was begun.
fn is_old(name: &str) -> bool {
    let begun = jiff::civil::DateTime::strptime("%Y%m%dt%H%M%Sz", name).ok();
    let begun = begun.and_then(|begun| begun.to_zoned(jiff::tz::TimeZone::UTC).ok());
    begun.is_some_and(|begun| Timestamp::now().duration_since(begun.timestamp()) > LEFT)
}

fn tell(claim: &mut Claim, events: &Events, saved: anyhow::Result<SavedState>) {
    match saved {
        Ok(saved) => {
            info!(name = saved.name, size = saved.size, objects = saved.objects, "the state was saved");
            events.normal(&claim.lease, "StateSaved", &format!("saved the state as {}", saved.name));
            claim.schedule.succeeded(saved);
        }
        Err(error) => {
            let message = format!("{error:#}");
            error!(error = message, "the state could not be saved");
            events.warning(&claim.lease, "StateNotSaved", &format!("the state could not be saved: {message}"));
            claim.schedule.failed(Timestamp::now(), message);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_their_age() {
        assert!(is_old("20200102t030405z"));
        let saved = croft_meta::time::format_seconds(Timestamp::now());
        let head = croft_store::saved::Head { saved, ..croft_store::saved::Head::default() };
        let now = described(&About { head, unreadable: 1, ..About::default() });
        assert_eq!(now.unreadable, 1, "the target tells what it lacks");
        assert!(!is_old(&now.name), "{}", now.name);
        assert!(!is_old("something"));
    }
}
