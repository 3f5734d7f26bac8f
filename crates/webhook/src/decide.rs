//! What the rules say to a request.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use croft_api::harvester::backup_target;
use croft_api::{Admission, Lookup, refused_by, refusers};
use croft_meta::ApiError;
use jiff::Timestamp;
use serde_json::Value;
use tokio::time::Instant;

use crate::kinds::{Kind, Kinds};
use crate::remote::{Remote, Unknown};
use crate::review::{Answer, Operation, Request};

/// Those who finish a deletion that was admitted, in any Kubernetes.
const CLEANERS: &[&str] = &[
    "system:kube-controller-manager",
    "system:serviceaccount:kube-system:generic-garbage-collector",
    "system:serviceaccount:kube-system:namespace-controller",
];
/// As long as the server itself tries a backup target, and within what an API server waits for a webhook.
const TARGET_PATIENCE: Duration = Duration::from_secs(8);

/// What an answer is wanted for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    /// What the rules fill in. Whatever they refuse is refused by those who validate.
    Mutate,
    /// What is refused in the name of this webhook; without one, whatever is refused.
    Validate { name: Option<String> },
}

/// Why there is no decision.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Undecided {
    #[error("what the rules look at is not known")]
    Unknown(#[from] Unknown),
    #[error("there is no randomness")]
    Random(#[source] getrandom::Error),
    #[error("the rules panicked")]
    Panicked(#[from] tokio::task::JoinError),
}

/// Everything that decisions need.
#[derive(Clone)]
pub(crate) struct Judge {
    pub(crate) client: kube::Client,
    pub(crate) kinds: Arc<Kinds>,
    /// The users that are parts of Croft.
    pub(crate) platform: Arc<BTreeSet<String>>,
}

impl Judge {
    pub(crate) async fn decide(
        &self,
        asked: Asked,
        request: Arc<Request>,
        deadline: Instant,
    ) -> Result<Answer, Undecided> {
        let Some(kind) = self.kinds.get(&request.resource.group, &request.resource.resource) else {
            return Ok(Answer::Allowed);
        };
        // Nothing below an object has rules: of a status they have nothing to say.
        if !kind.has_rules() || !request.sub_resource.is_empty() {
            return Ok(Answer::Allowed);
        }
        let kind = kind.clone();
        let (judge, told) = (self.clone(), Arc::clone(&request));
        let target_patience = deadline.saturating_duration_since(Instant::now()).min(TARGET_PATIENCE);
        let validates = matches!(asked, Asked::Validate { .. });
        let ruled = tokio::task::spawn_blocking(move || judge.rule(&asked, &kind, &told, deadline)).await??;
        match ruled {
            (Answer::Allowed, Some(target)) if validates => {
                let (url, secret) = (target.wanted.url(), target.wanted.secret_with(&target.kept));
                let tried = croft_backup::target::tried(&url, &secret, target_patience).await;
                Ok(tried.map_or_else(|why| Answer::Refused(backup_target::refusal(&why)), |()| Answer::Allowed))
            }
            (answer, _) => Ok(answer),
        }
    }

    /// The part that waits for the API server as it goes.
    fn rule(
        &self,
        asked: &Asked,
        kind: &Kind,
        request: &Request,
        deadline: Instant,
    ) -> Result<(Answer, Option<TargetToTry>), Undecided> {
        let remote = Remote::new(self.client.clone(), Arc::clone(&self.kinds), &request.user_info, deadline);
        let mut target = None;
        let ruled = match request.operation {
            Operation::Create | Operation::Update => self.written(kind, request, &remote)?,
            Operation::Delete => self.deleted(asked, kind, request, &remote),
            Operation::Connect => Ok(None),
        };
        if ruled.is_ok() {
            target = self.target_to_try(asked, kind, request, &remote);
        }
        // What was decided without knowing everything was not decided.
        if let Some(unknown) = remote.failed.lock().take() {
            return Err(unknown.into());
        }
        Ok((answer(asked, kind, request, ruled), target))
    }

    fn is_platform(&self, request: &Request) -> bool {
        self.platform.contains(&request.user_info.username)
    }

    /// The object as the rules would have it.
    fn written(&self, kind: &Kind, request: &Request, lookup: &dyn Lookup) -> Result<Ruled, Undecided> {
        let Some(admit) = kind.admit else { return Ok(Ok(None)) };
        let mut object = request.object.clone();
        let mut no_random = None;
        let ruled = admit(&mut Admission {
            object: &mut object,
            old: Some(&request.old_object).filter(|_| request.operation == Operation::Update),
            subresource: &request.sub_resource,
            is_internal: self.is_platform(request),
            user: &request.user_info.username,
            lookup,
            now: Timestamp::now(),
            random: &mut |bytes| no_random = no_random.or(getrandom::fill(bytes).err()),
        });
        match no_random {
            Some(error) => Err(Undecided::Random(error)),
            None => Ok(ruled.map(|()| Some(object))),
        }
    }

    fn deleted(&self, asked: &Asked, kind: &Kind, request: &Request, lookup: &dyn Lookup) -> Ruled {
        let is_following = self.is_platform(request) || CLEANERS.contains(&request.user_info.username.as_str());
        match kind.admit_delete {
            Some(admit) if !is_following && *asked != Asked::Mutate => {
                admit(&request.old_object, lookup).map(|()| None)
            }
            _ => Ok(None),
        }
    }

    fn target_to_try(&self, asked: &Asked, kind: &Kind, request: &Request, lookup: &dyn Lookup) -> Option<TargetToTry> {
        let is_setting = (kind.group.as_str(), kind.plural.as_str()) == ("harvesterhci.io", "settings");
        let is_written = matches!(request.operation, Operation::Create | Operation::Update);
        if !is_setting || !is_written || *asked == Asked::Mutate || self.is_platform(request) {
            return None;
        }
        let old = Some(&request.old_object).filter(|_| request.operation == Operation::Update);
        let wanted = backup_target::to_try(&request.object, old)?;
        let secret = lookup.get("", "secrets", backup_target::SECRET_NAMESPACE, backup_target::SECRET);
        Some(TargetToTry { wanted, kept: backup_target::kept_in(&secret.unwrap_or_default()) })
    }
}

/// The object as it is to be stored, if it is to be changed.
type Ruled = Result<Option<Value>, ApiError>;

struct TargetToTry {
    wanted: backup_target::BackupTarget,
    kept: std::collections::BTreeMap<String, String>,
}

fn answer(asked: &Asked, kind: &Kind, request: &Request, ruled: Ruled) -> Answer {
    match (asked, ruled) {
        (Asked::Mutate, Ok(Some(object))) => match croft_apply::json_patch::diff(&request.object, &object) {
            operations if operations.is_empty() => Answer::Allowed,
            operations => Answer::Changed(operations),
        },
        (Asked::Validate { name }, Err(error)) if refuses(kind, request.operation, name.as_deref(), &error) => {
            Answer::Refused(error)
        }
        _ => Answer::Allowed,
    }
}

/// Each refusal is told by one webhook of those that our manifests name: by the one in whose name it is, or else by the
/// first that is asked. A webhook that they do not name tells every refusal: nothing may be lost.
fn refuses(kind: &Kind, operation: Operation, name: Option<&str>, error: &ApiError) -> bool {
    let asked = refusers(&kind.group, &kind.plural).iter().filter(|one| one.operations.contains(&operation.name()));
    let names: Vec<&str> = asked.map(|one| one.name).collect();
    let Some(name) = name.filter(|name| names.contains(name)) else { return true };
    match refused_by(error) {
        Some((own, _)) if names.contains(&own) => own == name,
        _ => names.first() == Some(&name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_refusal_is_told_by_one_webhook() {
        const VALIDATOR: &str = "virtualmachine-validator.kubevirt.io";
        const HARVESTER: &str = "validator.harvesterhci.io";
        let kinds = Kinds::all();
        let machines = kinds.get("kubevirt.io", "virtualmachines").unwrap();
        let denied =
            |by: &str| ApiError::new(422, "Invalid", format!("admission webhook \"{by}\" denied the request: no"));
        let tells = |name, error: &ApiError| refuses(machines, Operation::Create, name, error);
        for (by, teller) in [
            (VALIDATOR, VALIDATOR),
            (HARVESTER, HARVESTER),
            // Who only fills in does not refuse.
            ("mutator.harvesterhci.io", VALIDATOR),
        ] {
            for name in [VALIDATOR, HARVESTER] {
                assert_eq!(tells(Some(name), &denied(by)), name == teller, "{by} {name}");
            }
            assert!(tells(None, &denied(by)) && tells(Some("another.example.com"), &denied(by)));
        }
        let nobody = ApiError::forbidden("", "x", "y", "no");
        assert!(tells(Some(VALIDATOR), &nobody) && !tells(Some(HARVESTER), &nobody));
    }
}
