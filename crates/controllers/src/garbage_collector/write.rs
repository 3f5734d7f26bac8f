//! What the collector asks of the server. Every write holds only for the object that was looked at.

use croft_reconcile::{Error, failure};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{
    DeleteParams, DynamicObject, ListParams, ObjectMeta, Patch, PatchParams, PostParams, Preconditions,
    PropagationPolicy,
};
use kube::{Api, Client};
use serde_json::{Value, json};

use super::Collector;
use super::graph::{Place, Uid};
use crate::MANAGER;
use crate::discovery::{Kind, builtin};

/// How often a change is tried anew at once when somebody else changed the object in between.
const CONFLICTS: usize = 5;

impl Collector {
    pub(super) async fn live(&self, kind: &Kind, namespace: &str, name: &str) -> Result<Option<ObjectMeta>, Error> {
        let found = kind.api(&self.client, namespace).get_metadata_opt(name).await?;
        Ok(found.map(|object| object.metadata))
    }

    /// Deletes the object if it is still the one that was looked at. If only other things than its owners changed in the
    /// meantime, the decision still holds.
    pub(super) async fn delete(
        &self,
        kind: &Kind,
        object: &ObjectMeta,
        policy: PropagationPolicy,
        is_unchanged: bool,
    ) -> Result<(), Error> {
        let (namespace, name) = place(object);
        let version = object.resource_version.clone().filter(|_| is_unchanged);
        match self.try_delete(kind, object, policy.clone(), version).await {
            Err(error) if failure::is_conflict(&error) && is_unchanged => {
                let live = self.live(kind, namespace, name).await?;
                let Some(live) = live.filter(|live| live.uid == object.uid) else { return Ok(()) };
                if live.owner_references != object.owner_references {
                    return Err(error.into());
                }
                Ok(self.try_delete(kind, object, policy, None).await?)
            }
            result => Ok(result?),
        }
    }

    async fn try_delete(
        &self,
        kind: &Kind,
        object: &ObjectMeta,
        policy: PropagationPolicy,
        version: Option<String>,
    ) -> Result<(), kube::Error> {
        let (namespace, name) = place(object);
        let params = DeleteParams {
            propagation_policy: Some(policy),
            preconditions: Some(Preconditions { uid: object.uid.clone(), resource_version: version }),
            ..DeleteParams::default()
        };
        failure::absent_is_none(kind.api(&self.client, namespace).delete(name, &params).await)?;
        tracing::debug!(kind = kind.resource.kind, namespace, name, "collected");
        Ok(())
    }

    /// Removes references to these owners.
    pub(super) async fn drop_owners(&self, kind: &Kind, object: &ObjectMeta, uids: &[String]) -> Result<(), Error> {
        let references = object.owner_references.iter().flatten();
        let kept: Vec<&OwnerReference> = references.filter(|reference| !uids.contains(&reference.uid)).collect();
        self.change(kind, object, json!({ "ownerReferences": kept })).await
    }

    /// Lets the owners go without waiting for this object.
    pub(super) async fn stop_blocking(&self, kind: &Kind, object: &ObjectMeta) -> Result<(), Error> {
        let mut references = object.owner_references.clone().unwrap_or_default();
        for reference in &mut references {
            reference.block_owner_deletion = reference.block_owner_deletion.map(|_| false);
        }
        self.change(kind, object, json!({ "ownerReferences": references })).await
    }

    async fn change(&self, kind: &Kind, object: &ObjectMeta, mut metadata: Value) -> Result<(), Error> {
        let (namespace, name) = place(object);
        metadata["uid"] = json!(object.uid);
        metadata["resourceVersion"] = json!(object.resource_version);
        let params = PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
        let patch = Patch::Merge(json!({ "metadata": metadata }));
        failure::absent_is_none(kind.api(&self.client, namespace).patch_metadata(name, &params, &patch).await)?;
        Ok(())
    }

    pub(super) async fn remove_finalizer(
        &self,
        kind: &Kind,
        place: &Place,
        uid: Uid,
        finalizer: &str,
    ) -> Result<(), Error> {
        for _ in 0..CONFLICTS {
            let Some(live) = self.live(kind, &place.namespace, &place.name).await? else { return Ok(()) };
            let is_other = live.uid.as_deref().is_none_or(|text| Uid::new(text) != uid);
            if is_other || !super::collect::has_finalizer(&live, finalizer) {
                return Ok(());
            }
            let left: Vec<&String> = live.finalizers.iter().flatten().filter(|f| *f != finalizer).collect();
            match self.change(kind, &live, json!({ "finalizers": left })).await {
                Err(Error::Api(error)) if failure::is_conflict(&error) => {}
                result => return result,
            }
        }
        Err(Error::NotYet(format!("{} {} keeps changing", place.ty.kind, place.name)))
    }

    /// The object with this UID, if it is in any namespace.
    pub(super) async fn find_elsewhere(&self, kind: &Kind, name: &str, uid: Uid) -> Result<Option<ObjectMeta>, Error> {
        let params = ListParams::default().fields(&format!("metadata.name={name}"));
        let found = kind.api(&self.client, "").list_metadata(&params).await?;
        let mut objects = found.items.into_iter().map(|object| object.metadata);
        Ok(objects.find(|object| object.uid.as_deref().is_some_and(|text| Uid::new(text) == uid)))
    }

    /// An Event that says why an object with a foreign owner will go.
    pub(super) async fn report_invalid_namespace(
        &self,
        kind: &Kind,
        object: &ObjectMeta,
        owner: &ObjectMeta,
    ) -> Result<(), Error> {
        let references = object.owner_references.iter().flatten();
        let Some(reference) = references.into_iter().find(|reference| Some(&reference.uid) == owner.uid.as_ref())
        else {
            return Ok(());
        };
        let (namespace, name) = place(object);
        let message = format!(
            "ownerRef [{}/{}, namespace: {namespace}, name: {}, uid: {}] does not exist in namespace {namespace:?}",
            reference.api_version, reference.kind, reference.name, reference.uid
        );
        let involved = json!({
            "apiVersion": kind.resource.api_version, "kind": kind.resource.kind,
            "namespace": namespace, "name": name, "uid": object.uid,
        });
        create_event(&self.client, namespace, name, involved, "OwnerRefInvalidNamespace", &message).await
    }
}

fn place(object: &ObjectMeta) -> (&str, &str) {
    (object.namespace.as_deref().unwrap_or_default(), object.name.as_deref().unwrap_or_default())
}

async fn create_event(
    client: &Client,
    namespace: &str,
    name: &str,
    involved: Value,
    reason: &str,
    message: &str,
) -> Result<(), Error> {
    let namespace = if namespace.is_empty() { "default" } else { namespace };
    let now = jiff::Timestamp::now();
    let time = croft_meta::time::format_seconds(now);
    let mut event =
        DynamicObject::new(&format!("{name}.{:x}", now.as_nanosecond()), &builtin("", "v1", "Event", "events"));
    event.data = json!({
        "involvedObject": involved, "reason": reason, "message": message, "type": "Warning",
        "count": 1, "firstTimestamp": time, "lastTimestamp": time,
        "source": { "component": "garbage-collector-controller" },
        "reportingComponent": "garbage-collector-controller", "reportingInstance": "",
    });
    let api: Api<DynamicObject> =
        Api::namespaced_with(client.clone(), namespace, &builtin("", "v1", "Event", "events"));
    let params = PostParams { field_manager: Some(MANAGER.to_owned()), ..PostParams::default() };
    match api.create(&params, &event).await {
        // Its namespace is going: nobody will read it.
        Err(error) if failure::is_not_found(&error) || failure::is_namespace_terminating(&error) => Ok(()),
        result => Ok(result.map(drop)?),
    }
}
