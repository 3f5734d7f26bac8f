//! Which of several servers saves the state: the one that holds the Lease. What is known of all attempts is written on it.

use anyhow::Context;
use croft_api::state_schedule::{ANNOTATION, LEASE, NAMESPACE, StateSchedule};
use croft_reconcile::failure;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::Api;
use kube::api::{ObjectMeta, PostParams};

/// Who has not renewed for this long is taken for dead.
const HELD: SignedDuration = SignedDuration::from_secs(60);

/// The Lease as it was last seen.
#[derive(Clone, Debug)]
pub(super) struct Claim {
    api: Api<Lease>,
    pub(super) lease: Lease,
    pub(super) schedule: StateSchedule,
    own: String,
}

impl Claim {
    /// Makes the Lease if there is none.
    pub(super) async fn look(client: &kube::Client, own: &str) -> anyhow::Result<Self> {
        let api: Api<Lease> = Api::namespaced(client.clone(), NAMESPACE);
        let found = api.get_opt(LEASE).await.context("cannot read the Lease of the schedule")?;
        let lease = if let Some(lease) = found {
            lease
        } else {
            let metadata = ObjectMeta { name: Some(LEASE.to_owned()), ..ObjectMeta::default() };
            let lease = Lease { metadata, spec: Some(LeaseSpec::default()) };
            let made = api.create(&PostParams::default(), &lease).await;
            made.context("cannot make the Lease of the schedule")?
        };
        let told = lease.metadata.annotations.as_ref().and_then(|annotations| annotations.get(ANNOTATION));
        // What somebody else put there is written anew.
        let schedule = told.and_then(|told| serde_json::from_str(told).ok()).unwrap_or_default();
        Ok(Self { api, lease, schedule, own: own.to_owned() })
    }

    /// Whether another server is at it, and alive.
    pub(super) fn is_held_by_another(&self, now: Timestamp) -> bool {
        let Some(spec) = &self.lease.spec else { return false };
        let holder = spec.holder_identity.as_deref().filter(|holder| !holder.is_empty() && *holder != self.own);
        let renewed = spec.renew_time.as_ref().map(|time| time.0);
        // A clock that is far ahead keeps nobody out for ever.
        holder.is_some() && renewed.is_some_and(|renewed| now.duration_since(renewed).abs() < HELD)
    }

    /// Writes it down, held for another while. False if somebody else changed it meanwhile: then it is not ours to change.
    pub(super) async fn hold(&mut self, now: Timestamp) -> anyhow::Result<bool> {
        let own = self.own.clone();
        self.write(&own, now).await
    }

    /// Writes it down and lets go of it.
    pub(super) async fn release(&mut self, now: Timestamp) -> anyhow::Result<bool> {
        self.write("", now).await
    }

    async fn write(&mut self, holder: &str, now: Timestamp) -> anyhow::Result<bool> {
        let mut lease = self.lease.clone();
        let annotations = lease.metadata.annotations.get_or_insert_default();
        annotations.insert(ANNOTATION.to_owned(), serde_json::to_string(&self.schedule)?);
        let spec = lease.spec.get_or_insert_default();
        spec.holder_identity = Some(holder.to_owned()).filter(|holder| !holder.is_empty());
        spec.lease_duration_seconds = i32::try_from(HELD.as_secs()).ok();
        spec.renew_time = Some(MicroTime(now));
        // With the version that was seen: of two servers one is refused.
        match self.api.replace(LEASE, &PostParams::default(), &lease).await {
            Ok(written) => {
                self.lease = written;
                Ok(true)
            }
            Err(error) if failure::is_conflict(&error) => Ok(false),
            Err(error) => Err(error).context("cannot write the Lease of the schedule"),
        }
    }
}
