//! What can be done with a virtual machine by `POST ...?action=<name>`, and when.
//!
//! As in Harvester, whoever may update a machine may do all of it. An action that succeeds has no answer (204).

use croft_meta::{ApiError, names};
use http::Method;
use http_body_util::BodyExt;
use serde::Deserialize;
use serde_json::{Value, json};

use super::reply::{self, invalid};
use super::resource::{Sent, asking, kubernetes, no_content};
use super::schema::Schema;
use super::state::Look;
use crate::answer::{self, Answer};
use crate::call::{Call, id};
use crate::pipeline;

const SUBRESOURCES: &str = "/apis/subresources.kubevirt.io/v1/namespaces";
const REMOVED_CLAIMS: &str = "harvesterhci.io/removedPersistentVolumeClaims";
/// How the machine ran before it was stopped.
const LAST_STRATEGY: &str = "harvesterhci.io/vmRunStrategy";
const MERGE_PATCH: &str = "application/merge-patch+json";

/// The actions that make sense for a machine as it is.
pub(super) fn usable(machine: &Look<'_>, instance: Option<&Look<'_>>) -> Vec<&'static str> {
    if machine.metadata.deletion_timestamp.is_some() {
        return Vec::new();
    }
    let strategy = machine.run_strategy();
    let phase = instance.map_or("", |instance| &*instance.status.phase);
    let is_over = matches!(phase, "" | "Unknown" | "Succeeded" | "Failed");
    let is_running = phase == "Running";
    let is_paused = instance.is_some_and(|instance| instance.is_true("Paused"));
    let may_stop = match strategy {
        "Halted" => false,
        "Manual" | "RerunOnFailure" => !is_over,
        _ => true,
    };
    [
        ("start", is_over),
        ("stop", may_stop),
        ("restart", strategy != "Halted" && instance.is_some()),
        ("softreboot", is_running && !is_paused),
        ("pause", is_running && !is_paused),
        ("unpause", is_running && is_paused),
        ("forceStop", machine.status.printable == "Stopping"),
        ("addVolume", true),
        ("removeVolume", true),
    ]
    .into_iter()
    .filter_map(|(action, is_usable)| is_usable.then_some(action))
    .collect()
}

/// One machine, and the caller who may update it.
struct Acting<'a> {
    call: &'a Call,
    schema: &'a Schema,
    namespace: &'a str,
    name: &'a str,
}

pub(super) async fn act(
    call: &Call,
    schema: &Schema,
    (namespace, name): (&str, &str),
    action: &str,
) -> Result<Answer, ApiError> {
    if !schema.is("kubevirt.io", "virtualmachines") || name.is_empty() {
        return Err(not_available(action));
    }
    call.server.auth.authorize(&call.user, &schema.attributes("update", namespace, name))?;
    let acting = Acting { call, schema, namespace, name };
    let machine = acting.machine().await?;
    let vm = "virtualmachines";
    let vmi = "virtualmachineinstances";
    match action {
        "start" => acting.start(&machine).await?,
        "stop" => acting.stop(&machine).await?,
        "restart" => acting.subresource(vm, "restart", &json!({})).await?,
        "softreboot" => acting.subresource(vmi, "softreboot", &json!({})).await?,
        "pause" => acting.subresource(vmi, "pause", &json!({})).await?,
        "unpause" => acting.subresource(vmi, "unpause", &json!({})).await?,
        "forceStop" => acting.subresource(vm, "stop", &json!({ "gracePeriod": 0 })).await?,
        "migrate" => acting.subresource(vm, "migrate", &json!({})).await?,
        "abortMigration" => return Err(acting.conflict("no migration is under way")),
        "findMigratableNodes" => return Ok(answer::json(200, &json!({ "nodes": [] }))),
        "addVolume" => acting.add_volume().await?,
        "removeVolume" => acting.remove_volume().await?,
        "cpuAndMemoryHotplug" | "addNic" | "removeNic" | "storageMigration" => {
            let why = format!(
                "{action} is done by a live migration, for which there is no other node; stop the machine and change it"
            );
            return Err(acting.conflict(&why));
        }
        other => return Err(not_available(other)),
    }
    Ok(no_content())
}

fn not_available(action: &str) -> ApiError {
    ApiError::new(404, "ActionNotAvailable", format!("there is no action {action:?} here"))
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct AddVolume {
    disk_name: String,
    volume_source_name: String,
    shareable: bool,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct RemoveVolume {
    disk_name: String,
}

impl Acting<'_> {
    async fn machine(&self) -> Result<Value, ApiError> {
        self.call.server.cache.fresh().await?;
        let target = self.schema.target(self.namespace, self.name);
        let found = self.call.server.cache.collection(target.storage_key()).get(&target.id());
        Ok(found.ok_or_else(|| target.not_found())?.json())
    }

    fn conflict(&self, why: &str) -> ApiError {
        self.schema.target(self.namespace, self.name).conflict(why)
    }

    /// KubeVirt's start; a machine that was stopped by us runs as it did before.
    async fn start(&self, machine: &Value) -> Result<(), ApiError> {
        let text = machine.to_string();
        let is_halted = Look::of(text.as_bytes()).run_strategy() == "Halted";
        let before = croft_meta::object::annotation(machine, LAST_STRATEGY).unwrap_or_default();
        let has_instance = self.call.server.cache.collection("kubevirt.io/virtualmachineinstances");
        let has_instance = has_instance.get(&id(self.namespace, self.name)).is_some();
        if is_halted && before == "RerunOnFailure" && !has_instance && machine["spec"]["running"].is_null() {
            return self.patch(&json!({ "spec": { "runStrategy": before } })).await;
        }
        self.subresource("virtualmachines", "start", &json!({})).await
    }

    /// Not KubeVirt's stop: the machine is halted whatever its strategy is.
    async fn stop(&self, machine: &Value) -> Result<(), ApiError> {
        let text = machine.to_string();
        let strategy = Look::of(text.as_bytes()).run_strategy().to_owned();
        if strategy == "Halted" {
            return Err(self.conflict("VM is not running"));
        }
        if machine["spec"]["running"].is_boolean() {
            return self.patch(&json!({ "spec": { "running": false } })).await;
        }
        let annotations = json!({ LAST_STRATEGY: strategy });
        self.patch(&json!({ "metadata": { "annotations": annotations }, "spec": { "runStrategy": "Halted" } })).await
    }

    /// Who may update a machine may patch it through here; rules for what it may become hold all the same.
    async fn patch(&self, patch: &Value) -> Result<(), ApiError> {
        let path = self.schema.kubernetes_path(self.namespace, self.name);
        let sent = Sent { content_type: MERGE_PATCH, body: patch.to_string().into() };
        pipeline::resource(&asking(self.call, &Method::PATCH, &path, sent)).await.map(drop)
    }

    async fn subresource(&self, kind: &str, subresource: &str, body: &Value) -> Result<(), ApiError> {
        let path = format!("{SUBRESOURCES}/{}/{kind}/{}/{subresource}", self.namespace, self.name);
        let sent = Sent { content_type: "application/json", body: body.to_string().into() };
        let answer = pipeline::resource(&asking(self.call, &Method::PUT, &path, sent)).await?;
        if answer.status().is_success() {
            return Ok(());
        }
        // The node refused; it says why.
        let code = answer.status().as_u16();
        let body = answer.into_body().collect().await.map_err(ApiError::internal)?.to_bytes();
        let status: Value = serde_json::from_slice(&body).unwrap_or_default();
        let why = status["message"].as_str().map_or_else(|| String::from_utf8_lossy(&body).into_owned(), str::to_owned);
        Err(ApiError::new(code, "InvalidState", why))
    }

    async fn add_volume(&self) -> Result<(), ApiError> {
        let asked: AddVolume = reply::body(self.call)?;
        for (field, value) in [("diskName", &asked.disk_name), ("volumeSourceName", &asked.volume_source_name)] {
            if value.is_empty() {
                return Err(invalid("MissingRequired", format!("parameter {field} is required")));
            }
            if !names::is_path_segment_name(value).is_empty() {
                return Err(invalid("InvalidFormat", format!("{field} {value:?} is not a name")));
            }
        }
        let claims = self.call.server.cache.collection("core/persistentvolumeclaims");
        if claims.get(&id(self.namespace, &asked.volume_source_name)).is_none() {
            return Err(ApiError::not_found("", "persistentvolumeclaims", &asked.volume_source_name));
        }
        let mut disk = json!({ "disk": { "bus": "scsi" } });
        if asked.shareable {
            disk["shareable"] = json!(true);
        }
        let source = json!({ "persistentVolumeClaim": { "claimName": asked.volume_source_name } });
        let body = json!({ "name": asked.disk_name, "disk": disk, "volumeSource": source });
        self.subresource("virtualmachines", "addvolume", &body).await
    }

    async fn remove_volume(&self) -> Result<(), ApiError> {
        let asked: RemoveVolume = reply::body(self.call)?;
        if asked.disk_name.is_empty() {
            return Err(invalid("MissingRequired", "parameter diskName is required"));
        }
        self.subresource("virtualmachines", "removevolume", &json!({ "name": asked.disk_name })).await
    }
}

/// Harvester's way of saying that disks go with the machine.
pub(super) async fn name_removed_disks(
    call: &Call,
    schema: &Schema,
    place: (&str, &str),
    disks: &[&str],
) -> Result<(), ApiError> {
    let patch = json!({ "metadata": { "annotations": { REMOVED_CLAIMS: disks.join(",") } } });
    let sent = Sent { content_type: MERGE_PATCH, body: patch.to_string().into() };
    kubernetes(call, schema, Method::PATCH, place, sent).await.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn actions_are_offered_when_they_can_be_used() {
        let offered = |machine: Value, instance: Option<Value>| {
            let (machine, instance) = (machine.to_string(), instance.map(|instance| instance.to_string()));
            let instance = instance.as_ref().map(|text| Look::of(text.as_bytes()));
            usable(&Look::of(machine.as_bytes()), instance.as_ref()).join(" ")
        };
        let running = json!({"status": {"phase": "Running"}});
        let paused = json!({"status": {"phase": "Running", "conditions": [{"type": "Paused", "status": "True"}]}});
        let machine = |strategy: &str| json!({"spec": {"runStrategy": strategy}});
        let table = [
            (machine("Halted"), None, "start addVolume removeVolume"),
            (machine("RerunOnFailure"), Some(running.clone()), "stop restart softreboot pause addVolume removeVolume"),
            (machine("Always"), Some(paused), "stop restart unpause addVolume removeVolume"),
            (machine("Manual"), None, "start addVolume removeVolume"),
            (
                json!({"spec": {"running": true}}),
                Some(running.clone()),
                "stop restart softreboot pause addVolume removeVolume",
            ),
            (
                json!({"spec": {"runStrategy": "Halted"}, "status": {"printableStatus": "Stopping"}}),
                Some(running),
                "softreboot pause forceStop addVolume removeVolume",
            ),
            (json!({"metadata": {"deletionTimestamp": "x"}}), None, ""),
        ];
        for (machine, instance, expected) in table {
            assert_eq!(offered(machine.clone(), instance), expected, "{machine}");
        }
    }
}
