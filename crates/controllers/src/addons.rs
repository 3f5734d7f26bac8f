//! Addons: each says what enabling it has switched on in Croft, or why nothing has.

use std::time::Duration;

use croft_api::harvester::addon::{self, AddonStatus, Effect, state};
use croft_api::harvester::{Addon, set_condition};
use croft_reconcile::{Cache, Error, Key, failure};
use jiff::Timestamp;
use kube::api::Patch;
use kube::{Api, Client};
use tokio_util::sync::CancellationToken;

use crate::{one_kind, patch};

pub(crate) async fn run(client: Client, stop: CancellationToken) {
    one_kind::run("addon", client, stop, |_| Some(Duration::ZERO), tell).await;
}

async fn tell(client: Client, cache: Cache<Addon>, key: Key) -> Result<(), Error> {
    let Some(old) = cache.get(&key).filter(|addon| addon.metadata.deletion_timestamp.is_none()) else { return Ok(()) };
    let effect = addon::effect(&key.namespace, &key.name);
    let mut new = (*old).clone();
    new.status = told(&old, effect, Timestamp::now());
    let Some(change) = patch::guarded(&*old, &new) else { return Ok(()) };
    let api: Api<Addon> = Api::namespaced(client, &key.namespace);
    let written = api.patch_status(&key.name, &patch::as_harvester(), &Patch::Merge(&change)).await;
    if let Some(written) = failure::absent_is_none(written)? {
        cache.wrote(written);
    }
    Ok(())
}

/// Everything that can be switched on is there at once, so that no addon is ever on its way.
fn told(addon: &Addon, effect: Effect, now: Timestamp) -> Option<AddonStatus> {
    // Nothing is said of one that was never touched.
    if !addon.spec.enabled && addon.status.is_none() {
        return None;
    }
    let mut status = addon.status.clone().unwrap_or_default();
    let (name, is_complete, failure, why) = match effect {
        _ if !addon.spec.enabled => (state::DISABLED, true, None, ("Disabled", "it is switched off")),
        Effect::BuiltIn(what) => (state::DEPLOYED, true, None, ("BuiltIn", what)),
        Effect::Missing(what) => (state::DISABLED, false, Some(what), ("NotSupported", what)),
    };
    status.status = Some(name.to_owned());
    let conditions = &mut status.conditions;
    set_condition(conditions, "InProgress", false, ("", ""), now);
    let failed = failure.map(|what| format!("Croft cannot do this yet: {what}"));
    let why_failed = failed.as_deref().map_or(("", ""), |message| ("NotSupported", message));
    set_condition(conditions, "OperationFailed", failed.is_some(), why_failed, now);
    set_condition(conditions, "Completed", is_complete, why, now);
    Some(status)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addon(enabled: bool, status: Option<AddonStatus>) -> Addon {
        let mut addon = Addon { status, ..Addon::default() };
        addon.spec.enabled = enabled;
        addon
    }

    fn condition<'a>(status: &'a AddonStatus, ty: &str) -> (&'a str, &'a str) {
        let condition = status.conditions.iter().find(|condition| condition.type_ == ty).unwrap();
        (condition.status.as_str(), condition.message.as_deref().unwrap_or_default())
    }

    #[test]
    fn one_that_is_built_in_is_there_when_it_is_enabled() {
        let effect = Effect::BuiltIn("it hums");
        assert_eq!(told(&addon(false, None), effect, Timestamp::UNIX_EPOCH), None);
        let on = told(&addon(true, None), effect, Timestamp::UNIX_EPOCH).unwrap();
        assert_eq!(on.status.as_deref(), Some(state::DEPLOYED));
        assert_eq!(condition(&on, "Completed"), ("True", "it hums"));
        assert_eq!(condition(&on, "OperationFailed").0, "False");
        // Said once, and not again.
        assert_eq!(told(&addon(true, Some(on.clone())), effect, Timestamp::now()), Some(on.clone()));
        let off = told(&addon(false, Some(on)), effect, Timestamp::UNIX_EPOCH).unwrap();
        assert_eq!(off.status.as_deref(), Some(state::DISABLED));
        assert_eq!(condition(&off, "Completed").0, "True");
    }

    #[test]
    fn one_that_is_missing_says_so_and_can_be_disabled_again() {
        let effect = Effect::Missing("no bells");
        let on = told(&addon(true, None), effect, Timestamp::UNIX_EPOCH).unwrap();
        // Not in one of the states in which changes are refused.
        assert_eq!(on.status.as_deref(), Some(state::DISABLED));
        assert_eq!(condition(&on, "OperationFailed"), ("True", "Croft cannot do this yet: no bells"));
        assert_eq!(condition(&on, "Completed").0, "False");
        let off = told(&addon(false, Some(on)), effect, Timestamp::UNIX_EPOCH).unwrap();
        assert_eq!(condition(&off, "OperationFailed"), ("False", ""));
    }
}
