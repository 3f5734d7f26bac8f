//! Namespaces on their way out: their content goes first, then the `kubernetes` finalizer.
//!
//! As upstream, pods go before everything else. What finalizers hold is told in the conditions; the namespace is looked
//! at again when something in it has gone.
//!
//! Several servers may do this at once, and one of them may be late: there may be another namespace of that name, which is
//! somebody's. So nothing is deleted unless the namespace that it was in is still going ([`Going`]), and the finalizer is taken
//! from the very state that was looked at.

mod conditions;

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use croft_reconcile::{Error, Event, Keys, Loop, Object, Source, Tasks, failure, watch};
use futures::StreamExt;
use kube::api::{DynamicObject, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::broadcast;
use tokio_util::sync::CancellationToken;

use self::conditions::Findings;
use crate::MANAGER;
use crate::content::{self, Going, Remaining};
use crate::discovery::{Kind, Kinds, builtin};
use crate::objects::Gone;

const FINALIZER: &str = "kubernetes";
/// Objects that go one after another make for one look.
const SETTLE: Duration = Duration::from_millis(10);
/// What may be left in a namespace that is gone: objects of a server behind this one, which lets in what it likes, and all of them if
/// somebody took the finalizer away by hand. By then they are there.
const STRAGGLERS: Duration = Duration::from_secs(5);

struct Namespaces {
    client: Client,
    api: Api<DynamicObject>,
    /// Those whose content is held.
    waiting: Mutex<HashSet<String>>,
}

pub(crate) async fn run(client: Client, gone: broadcast::Receiver<Gone>, stop: CancellationToken) {
    let resource = builtin("", "v1", "Namespace", "namespaces");
    let namespaces = Arc::new(Namespaces {
        api: Api::all_with(client.clone(), &resource),
        client: client.clone(),
        waiting: Mutex::default(),
    });
    let (keys, received) = Keys::channel();
    let mut tasks = Tasks::default();
    tasks.spawn(follow_namespaces(client, keys.clone()));
    tasks.spawn(Arc::clone(&namespaces).follow_content(gone, keys));
    let work = Loop { name: "namespace", workers: 4, stop };
    let reconcile = |name: String| {
        let namespaces = Arc::clone(&namespaces);
        async move { namespaces.reconcile(&name).await }
    };
    tokio::select! {
        () = work.run(received, std::future::ready(()), reconcile) => {}
        () = async { loop { tasks.watch_over().await } } => {}
    }
}

async fn follow_namespaces(client: Client, keys: Keys<String>) {
    let mut events = watch::<Object>(client, Source::all(builtin("", "v1", "Namespace", "namespaces")));
    while let Some(event) = events.next().await {
        let key = match event {
            Event::Applied(namespace) if namespace.metadata.is_being_deleted() => (namespace.metadata.name, SETTLE),
            Event::Deleted(namespace) => (namespace.metadata.name, STRAGGLERS),
            _ => continue,
        };
        keys.send(String::from(key.0), key.1).await;
    }
}

impl Namespaces {
    /// Wakes those that wait for something to go.
    async fn follow_content(self: Arc<Self>, mut gone: broadcast::Receiver<Gone>, keys: Keys<String>) {
        loop {
            let woken: Vec<String> = match gone.recv().await {
                Ok(gone) => self.waiting.lock().get(&*gone.namespace).cloned().into_iter().collect(),
                Err(broadcast::error::RecvError::Lagged(_)) => self.waiting.lock().iter().cloned().collect(),
                Err(broadcast::error::RecvError::Closed) => return,
            };
            for name in woken {
                keys.send(name, SETTLE).await;
            }
        }
    }

    async fn reconcile(&self, name: &str) -> Result<(), Error> {
        let Some(namespace) = self.api.get_opt(name).await? else {
            self.waiting.lock().remove(name);
            return self.sweep(name).await;
        };
        let Some(uid) = namespace.metadata.uid.clone() else { return Ok(()) };
        let is_finalized =
            namespace.data.pointer("/spec/finalizers").and_then(Value::as_array).is_none_or(Vec::is_empty);
        if namespace.metadata.deletion_timestamp.is_none() || is_finalized {
            self.waiting.lock().remove(name);
            return Ok(());
        }
        // Before the look, so that what goes during it is not missed.
        self.waiting.lock().insert(name.to_owned());
        let Some(findings) = self.clear(&Going { api: &self.api, name, uid: Some(&uid) }).await else {
            return Err(Error::NotYet("it is another one by now".to_owned()));
        };
        let reported = self.report(namespace, &findings).await?;
        if !findings.is_clear() {
            return Err(Error::NotYet(findings.summary()));
        }
        if let Some(namespace) = reported {
            self.finalize(namespace).await?;
        }
        self.waiting.lock().remove(name);
        Ok(())
    }

    /// Removes what is left in a namespace that is gone, unless there is a new one: then nobody can tell what is whose.
    async fn sweep(&self, name: &str) -> Result<(), Error> {
        match self.clear(&Going { api: &self.api, name, uid: None }).await {
            Some(findings) if !findings.errors.is_empty() => Err(Error::NotYet(findings.summary())),
            _ => Ok(()),
        }
    }

    /// `None` if the namespace is not what it was.
    async fn clear(&self, going: &Going<'_>) -> Option<Findings> {
        let mut findings = Findings::default();
        let kinds = match Kinds::discover(&self.client).await {
            Ok(kinds) => kinds,
            Err(error) => {
                findings.discovery = Some(failure::message(&error));
                return Some(findings);
            }
        };
        if !kinds.stale.is_empty() {
            // All the rest goes; the namespace waits, since there may be more of it where nobody can look.
            let failing: Vec<String> =
                kinds.stale.iter().map(|of| format!("{of}: stale GroupVersion discovery: {of}")).collect();
            findings.discovery = Some(format!(
                "Discovery failed for some groups, {} failing: unable to retrieve the complete list of server APIs: {}",
                failing.len(),
                failing.join(", ")
            ));
        }
        let deletable: Vec<&Arc<Kind>> =
            kinds.preferred.iter().filter(|kind| kind.is_namespaced && kind.supports("delete")).collect();
        let (pods, others): (Vec<&Arc<Kind>>, Vec<&Arc<Kind>>) = deletable.into_iter().partition(|k| k.is("", "pods"));
        for kind in pods {
            self.clear_kind(kind, going, &mut findings).await?;
        }
        if !findings.errors.is_empty() || !findings.remaining.is_empty() {
            return Some(findings);
        }
        for kind in others {
            self.clear_kind(kind, going, &mut findings).await?;
        }
        Some(findings)
    }

    async fn clear_kind(&self, kind: &Kind, going: &Going<'_>, findings: &mut Findings) -> Option<()> {
        match content::clear(&self.client, kind, going.name, going).await {
            Ok(remaining) => findings.add(kind, going.name, remaining?),
            Err(error) => findings.errors.push(failure::message(&error)),
        }
        Some(())
    }

    /// Writes the conditions, if they changed. Returns the namespace as it is then, if it is still there.
    async fn report(&self, namespace: DynamicObject, findings: &Findings) -> Result<Option<DynamicObject>, Error> {
        let old = namespace.data.pointer("/status/conditions").and_then(Value::as_array).cloned().unwrap_or_default();
        let now = croft_meta::time::format_seconds(jiff::Timestamp::now());
        let new = findings.conditions(&old, &now);
        let is_terminating = namespace.data.pointer("/status/phase") == Some(&json!("Terminating"));
        if new == old && is_terminating {
            return Ok(Some(namespace));
        }
        let patch = json!({
            "metadata": { "uid": namespace.metadata.uid },
            "status": { "phase": "Terminating", "conditions": new },
        });
        let name = namespace.metadata.name.as_deref().unwrap_or_default();
        let params = PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
        Ok(failure::absent_is_none(self.api.patch_status(name, &params, &Patch::Merge(patch)).await)?)
    }

    /// Whoever changed it meanwhile, or made another, has it refused.
    async fn finalize(&self, mut namespace: DynamicObject) -> Result<(), Error> {
        let name = namespace.metadata.name.clone().unwrap_or_default();
        if let Some(finalizers) = namespace.data.pointer_mut("/spec/finalizers").and_then(Value::as_array_mut) {
            finalizers.retain(|finalizer| finalizer != FINALIZER);
        }
        let params = PostParams { field_manager: Some(MANAGER.to_owned()), ..PostParams::default() };
        failure::absent_is_none(self.api.replace_subresource("finalize", &name, &params, &namespace).await)?;
        Ok(())
    }
}

impl Findings {
    fn add(&mut self, kind: &Kind, namespace: &str, remaining: Remaining) {
        if remaining.objects == 0 {
            return;
        }
        if remaining.finalizers.is_empty() {
            self.errors.push(unexpected(kind, namespace));
        }
        let (group, plural) = (&kind.resource.group, &kind.resource.plural);
        self.remaining.insert(format!("{plural}.{group}"), remaining.objects);
        for (finalizer, objects) in remaining.finalizers {
            *self.finalizers.entry(finalizer).or_default() += objects;
        }
    }

    fn summary(&self) -> String {
        let text = |of: &BTreeMap<String, usize>| of.keys().cloned().collect::<Vec<_>>().join(", ");
        format!("left: {}; finalizers: {}; {}", text(&self.remaining), text(&self.finalizers), self.errors.join(", "))
    }
}

fn unexpected(kind: &Kind, namespace: &str) -> String {
    let resource = &kind.resource;
    let gvr = format!("{}/{}, Resource={}", resource.group, resource.version, resource.plural);
    format!("unexpected items still remain in namespace: {namespace} for gvr: {gvr}")
}

#[cfg(test)]
mod tests;
