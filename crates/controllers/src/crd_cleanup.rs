//! CustomResourceDefinitions on their way out: their objects go first, then the cleanup finalizer.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use croft_meta::time;
use croft_reconcile::{Error, Event, Keys, Loop, Object, Source, Tasks, failure, watch};
use futures::StreamExt;
use jiff::Timestamp;
use kube::api::{DynamicObject, ListParams, Patch, PatchParams};
use kube::{Api, Client};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::broadcast;
use tokio_util::sync::CancellationToken;

use crate::MANAGER;
use crate::content::{self, Going};
use crate::discovery::{Kind, builtin};
use crate::objects::Gone;

const FINALIZER: &str = "customresourcecleanup.apiextensions.k8s.io";
/// Objects that go one after another make for one look.
const SETTLE: Duration = Duration::from_millis(10);
/// Objects that are still there after this long are worth a word.
const PATIENCE: Duration = Duration::from_mins(1);

struct Definitions {
    client: Client,
    api: Api<DynamicObject>,
    /// Those whose objects are held.
    waiting: Mutex<HashSet<String>>,
}

/// What the condition `Terminating` says.
#[derive(Debug, PartialEq, Eq)]
struct Progress {
    status: &'static str,
    reason: &'static str,
    message: String,
}

impl Progress {
    fn new(status: &'static str, reason: &'static str, message: impl Into<String>) -> Self {
        Self { status, reason, message: message.into() }
    }
}

pub(crate) async fn run(client: Client, gone: broadcast::Receiver<Gone>, stop: CancellationToken) {
    let resource = resource();
    let api = Api::all_with(client.clone(), &resource);
    let definitions = Arc::new(Definitions { client, api, waiting: Mutex::default() });
    let (keys, received) = Keys::channel();
    let mut tasks = Tasks::default();
    tasks.spawn(Arc::clone(&definitions).follow(keys.clone()));
    tasks.spawn(Arc::clone(&definitions).follow_content(gone, keys));
    let reconcile = |name: String| {
        let definitions = Arc::clone(&definitions);
        async move { definitions.reconcile(&name).await }
    };
    let work = Loop { name: "definition cleanup", workers: 4, stop };
    tokio::select! {
        () = work.run(received, std::future::ready(()), reconcile) => {}
        () = async { loop { tasks.watch_over().await } } => {}
    }
}

fn resource() -> kube::api::ApiResource {
    builtin("apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions")
}

impl Definitions {
    async fn follow(self: Arc<Self>, keys: Keys<String>) {
        let mut events = watch::<Object>(self.client.clone(), Source::all(resource()));
        while let Some(event) = events.next().await {
            if let Event::Applied(definition) = event
                && definition.metadata.is_being_deleted()
                && definition.metadata.has_finalizer(FINALIZER)
                && !self.waiting.lock().contains(&*definition.metadata.name)
            {
                keys.send(definition.metadata.name.into(), Duration::ZERO).await;
            }
        }
    }

    /// Wakes those that wait for something to go.
    async fn follow_content(self: Arc<Self>, mut gone: broadcast::Receiver<Gone>, keys: Keys<String>) {
        loop {
            let woken: Vec<String> = match gone.recv().await {
                Ok(gone) => self.waiting.lock().get(&gone.kind.group_resource()).cloned().into_iter().collect(),
                Err(broadcast::error::RecvError::Lagged(_)) => self.waiting.lock().iter().cloned().collect(),
                Err(broadcast::error::RecvError::Closed) => return,
            };
            for name in woken {
                keys.send(name, SETTLE).await;
            }
        }
    }

    async fn reconcile(&self, name: &str) -> Result<(), Error> {
        let found = self.api.get_opt(name).await?;
        let Some(definition) = found.filter(is_to_be_cleaned) else {
            self.waiting.lock().remove(name);
            return Ok(());
        };
        // Before the look, so that what goes during it is not missed.
        self.waiting.lock().insert(name.to_owned());
        match self.clear(&definition).await? {
            Ok(done) => {
                self.report(&definition, &done).await?;
                self.release(&definition).await?;
                self.waiting.lock().remove(name);
                self.offer_names(name).await
            }
            Err(held) => {
                let why = held.message.clone();
                self.report(&definition, &held).await?;
                Err(Error::NotYet(why))
            }
        }
    }

    /// Deletes all objects: `Ok` if there are none any more.
    async fn clear(&self, definition: &DynamicObject) -> Result<Result<Progress, Progress>, Error> {
        if !is_established(definition) {
            return Ok(Ok(Progress::new("False", "NeverEstablished", "resource was never established")));
        }
        let failed = |why: String| Progress::new("True", "InstanceDeletionFailed", why);
        let Some(kind) = kind_of(definition) else {
            return Ok(Err(failed("could not list instances: no version is stored".to_owned())));
        };
        let under_way = Progress::new("True", "InstanceDeletionInProgress", "CustomResource deletion is in progress");
        if !is_late(definition) {
            self.report(definition, &under_way).await?;
        }
        let (name, uid) = (definition.metadata.name.as_deref(), definition.metadata.uid.as_deref());
        let going = Going { api: &self.api, name: name.unwrap_or_default(), uid };
        Ok(match content::clear(&self.client, &kind, "", &going).await {
            // It is another one by now, and what is there is of that.
            Ok(None) => Err(under_way),
            Ok(Some(left)) if left.objects == 0 => {
                Ok(Progress::new("False", "InstanceDeletionCompleted", "removed all instances"))
            }
            Ok(_) if is_late(definition) => Err(Progress::new(
                "True",
                "InstanceDeletionCheck",
                "could not confirm zero CustomResources remaining: context deadline exceeded",
            )),
            Ok(_) => Err(under_way),
            Err(error) => Err(failed(format!("could not issue all deletes: {}", failure::message(&error)))),
        })
    }

    /// The definition as it is now; not another one of that name, which somebody made after it had gone.
    async fn live(&self, definition: &DynamicObject) -> Result<Option<DynamicObject>, Error> {
        let found = self.api.get_opt(definition.metadata.name.as_deref().unwrap_or_default()).await?;
        Ok(found.filter(|found| found.metadata.uid == definition.metadata.uid && is_to_be_cleaned(found)))
    }

    /// Writes the condition, if it changed.
    async fn report(&self, definition: &DynamicObject, progress: &Progress) -> Result<(), Error> {
        let Some(live) = self.live(definition).await? else { return Ok(()) };
        let name = live.metadata.name.as_deref().unwrap_or_default();
        let old = live.data.pointer("/status/conditions").and_then(Value::as_array).cloned().unwrap_or_default();
        let new = with_progress(&old, progress, &time::format_seconds(Timestamp::now()));
        if new == old {
            return Ok(());
        }
        let patch = json!({
            "metadata": { "uid": live.metadata.uid, "resourceVersion": live.metadata.resource_version },
            "status": { "conditions": new },
        });
        failure::absent_is_none(self.api.patch_status(name, &params(), &Patch::Merge(patch)).await)?;
        Ok(())
    }

    async fn release(&self, definition: &DynamicObject) -> Result<(), Error> {
        let Some(live) = self.live(definition).await? else { return Ok(()) };
        let name = live.metadata.name.as_deref().unwrap_or_default();
        let left: Vec<&String> = live.metadata.finalizers.iter().flatten().filter(|f| *f != FINALIZER).collect();
        let patch = json!({ "metadata": {
            "uid": live.metadata.uid, "resourceVersion": live.metadata.resource_version, "finalizers": left,
        }});
        failure::absent_is_none(self.api.patch_metadata(name, &params(), &Patch::Merge(patch)).await)?;
        Ok(())
    }

    /// The names of a definition that went may be what others of its group were refused.
    async fn offer_names(&self, gone: &str) -> Result<(), Error> {
        let Some((_, group)) = gone.split_once('.') else { return Ok(()) };
        for definition in self.api.list(&ListParams::default()).await?.items {
            let name = definition.metadata.name.as_deref().unwrap_or_default();
            let is_of_group = name.split_once('.').is_some_and(|(_, other)| other == group);
            if is_of_group && has_condition(&definition, "NamesAccepted", "False") {
                // Every write makes the server look at the names again.
                failure::absent_is_none(self.api.patch(name, &params(), &Patch::Merge(json!({}))).await)?;
            }
        }
        Ok(())
    }
}

fn params() -> PatchParams {
    PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() }
}

fn is_to_be_cleaned(definition: &DynamicObject) -> bool {
    let mut finalizers = definition.metadata.finalizers.iter().flatten();
    definition.metadata.deletion_timestamp.is_some() && finalizers.any(|finalizer| finalizer == FINALIZER)
}

fn is_late(definition: &DynamicObject) -> bool {
    let since = definition.metadata.deletion_timestamp.as_ref();
    since.is_some_and(|since| Timestamp::now().duration_since(since.0).unsigned_abs() > PATIENCE)
}

fn is_established(definition: &DynamicObject) -> bool {
    has_condition(definition, "Established", "True")
}

fn has_condition(definition: &DynamicObject, ty: &str, status: &str) -> bool {
    let conditions = definition.data.pointer("/status/conditions").and_then(Value::as_array);
    conditions.into_iter().flatten().any(|c| c["type"] == ty && c["status"] == status)
}

/// The kind in the version that it is stored in. The server knows it even if no user is served it.
fn kind_of(definition: &DynamicObject) -> Option<Kind> {
    let text = |path: &str| definition.data.pointer(path).and_then(Value::as_str).unwrap_or_default();
    let versions = definition.data.pointer("/spec/versions").and_then(Value::as_array);
    let stored = versions.into_iter().flatten().find(|version| version["storage"] == true)?;
    let version = stored["name"].as_str()?;
    let resource = builtin(text("/spec/group"), version, text("/spec/names/kind"), text("/spec/names/plural"));
    Some(Kind::new(resource, text("/spec/scope") == "Namespaced"))
}

fn with_progress(conditions: &[Value], progress: &Progress, now: &str) -> Vec<Value> {
    let mut conditions = conditions.to_vec();
    let old = conditions.iter_mut().find(|condition| condition["type"] == "Terminating");
    let since = old.as_ref().filter(|old| old["status"] == progress.status && old["lastTransitionTime"].is_string());
    let since = since.map_or_else(|| json!(now), |old| old["lastTransitionTime"].clone());
    let new = json!({
        "type": "Terminating", "status": progress.status, "reason": progress.reason, "message": progress.message,
        "lastTransitionTime": since,
    });
    match old {
        Some(old) => *old = new,
        None => conditions.push(new),
    }
    conditions
}

#[cfg(test)]
mod tests;
