//! What a write may not decide: upstream's `PrepareForCreate` and `PrepareForUpdate`.

use serde_json::{Value, json};

use super::service;
use crate::go_json;
use crate::pod_resources;
use crate::view::{flag, get, has, list, map_mut, remove, restore, set, text};

type Create = fn(&mut Value);
type Update = fn(&mut Value, &Value);

pub(super) fn of(group: &str, plural: &str) -> (Create, Update) {
    match (group, plural) {
        ("", "pods") => (create_pod, keep_status),
        ("", "namespaces") => (create_namespace, update_namespace),
        ("", "nodes") => (|_| {}, keep_status),
        ("", "persistentvolumes") => (create_volume, keep_status),
        ("", "persistentvolumeclaims") => (create_claim, update_claim),
        ("", "services") => (service::create, service::update),
        (_, "daemonsets") => (create_daemon_set, update_daemon_set),
        (_, "jobs") => (create_job, keep_status),
        (_, "certificatesigningrequests") => (create_signing_request, update_signing_request),
        (_, "customresourcedefinitions") => (create_definition, update_definition),
        (
            _,
            "replicationcontrollers"
            | "resourcequotas"
            | "apiservices"
            | "deployments"
            | "replicasets"
            | "statefulsets"
            | "horizontalpodautoscalers"
            | "cronjobs"
            | "ingresses"
            | "servicecidrs"
            | "poddisruptionbudgets"
            | "validatingadmissionpolicies"
            | "resourceclaims"
            | "flowschemas"
            | "prioritylevelconfigurations",
        ) => (|v| reset_status(v, None), keep_status),
        (_, "volumeattachments") => (|v| reset_status(v, None), keep_status),
        _ => (|_| {}, |_, _| {}),
    }
}

/// The status of a new object is the zero value of its type, whatever the client sent.
pub(super) fn reset_status(v: &mut Value, phase: Option<&str>) {
    remove(v, "status");
    if let Some(phase) = phase {
        set(v, "status.phase", phase);
    }
    go_json::canonicalise(v);
}

/// Status has its own subresource.
pub(super) fn keep_status(v: &mut Value, old: &Value) {
    restore(v, old, "status");
}

fn create_pod(v: &mut Value) {
    let class = pod_resources::quality_of_service(v);
    set(v, "status", json!({"phase": "Pending", "qosClass": class}));
    if !list(v, "spec.schedulingGates").is_empty() {
        let condition = json!({
            "type": "PodScheduled", "status": "False", "reason": "SchedulingGated",
            "message": "Scheduling is blocked due to non-empty scheduling gates",
        });
        set(v, "status.conditions", json!([condition]));
        // The object was stamped just now.
        if let Some(now) = get(v, "metadata.creationTimestamp").cloned() {
            v["status"]["conditions"][0]["lastTransitionTime"] = now;
        }
    }
    go_json::canonicalise(v);
}

/// A namespace is held until its content is gone.
fn create_namespace(v: &mut Value) {
    set(v, "status", json!({"phase": "Active"}));
    let mut finalizers = list(v, "spec.finalizers").to_vec();
    if !finalizers.contains(&json!("kubernetes")) {
        finalizers.push(json!("kubernetes"));
    }
    set(v, "spec.finalizers", finalizers);
}

fn update_namespace(v: &mut Value, old: &Value) {
    restore(v, old, "spec.finalizers");
    keep_status(v, old);
    if let (Some(labels), name) = (map_mut(v, "metadata.labels"), text(old, "metadata.name")) {
        labels.insert("kubernetes.io/metadata.name".to_owned(), name.into());
    }
}

fn create_volume(v: &mut Value) {
    reset_status(v, Some("Pending"));
    // The object was stamped just now.
    if let Some(now) = get(v, "metadata.creationTimestamp").cloned() {
        set(v, "status.lastPhaseTransitionTime", now);
    }
}

fn create_claim(v: &mut Value) {
    set(v, "status", json!({"phase": "Pending"}));
    same_data_source(v);
}

fn update_claim(v: &mut Value, old: &Value) {
    keep_status(v, old);
    same_data_source(v);
}

/// `dataSource` is the old name of `dataSourceRef`; whichever is set fills the other.
fn same_data_source(v: &mut Value) {
    match (get(v, "spec.dataSource").cloned(), get(v, "spec.dataSourceRef").cloned()) {
        (Some(source), None) => set(v, "spec.dataSourceRef", source),
        // Another namespace is something that the old field cannot say.
        (None, Some(reference)) if !has(&reference, "namespace") => set(v, "spec.dataSource", reference),
        _ => {}
    }
}

/// Where upstream's converter keeps the old `templateGeneration`.
const TEMPLATE_GENERATION: &str = "deprecated.daemonset.template.generation";

fn create_daemon_set(v: &mut Value) {
    reset_status(v, None);
    set_template_generation(v, 1);
}

fn update_daemon_set(v: &mut Value, old: &Value) {
    keep_status(v, old);
    let before: i64 =
        croft_meta::object::annotation(old, TEMPLATE_GENERATION).and_then(|n| n.parse().ok()).unwrap_or_default();
    let is_changed = get(v, "spec.template") != get(old, "spec.template");
    set_template_generation(v, before + i64::from(is_changed));
}

fn set_template_generation(v: &mut Value, generation: i64) {
    if let Some(annotations) = map_mut(v, "metadata.annotations") {
        annotations.insert(TEMPLATE_GENERATION.to_owned(), generation.to_string().into());
    }
}

/// Unless the user selects pods by hand, a job selects those labelled with its uid.
fn create_job(v: &mut Value) {
    let uid = text(v, "metadata.uid").to_owned();
    if !flag(v, "spec.manualSelector") && !uid.is_empty() {
        let name = text(v, "metadata.name").to_owned();
        let is_labelled_alike = get(v, "metadata.labels") == get(v, "spec.template.metadata.labels");
        if let Some(labels) = map_mut(v, "spec.template.metadata.labels") {
            for (key, value) in [
                ("batch.kubernetes.io/controller-uid", &uid),
                ("controller-uid", &uid),
                ("batch.kubernetes.io/job-name", &name),
                ("job-name", &name),
            ] {
                labels.insert(key.to_owned(), value.clone().into());
            }
        }
        if let Some(selector) = map_mut(v, "spec.selector.matchLabels") {
            selector.entry("batch.kubernetes.io/controller-uid").or_insert_with(|| uid.into());
        }
        // Upstream's default labels are the template's own map, not a copy of it.
        if is_labelled_alike {
            let labels = get(v, "spec.template.metadata.labels").cloned().unwrap_or_default();
            set(v, "metadata.labels", labels);
        }
    }
    reset_status(v, None);
}

/// The API server fills in who asks.
fn create_signing_request(v: &mut Value) {
    for field in ["spec.username", "spec.uid", "spec.groups", "spec.extra"] {
        remove(v, field);
    }
    reset_status(v, None);
}

fn update_signing_request(v: &mut Value, old: &Value) {
    restore(v, old, "spec");
    keep_status(v, old);
}

fn create_definition(v: &mut Value) {
    remove(v, "status");
    let stored = list(v, "spec.versions").iter().find(|version| flag(version, "storage"));
    let stored: Vec<Value> = stored.map(|version| json!(text(version, "name"))).into_iter().collect();
    go_json::canonicalise(v);
    set(v, "status.storedVersions", stored);
}

/// A version that becomes the one to store is remembered, since objects in it may outlive its reign.
fn update_definition(v: &mut Value, old: &Value) {
    keep_status(v, old);
    let Some(storage) = list(v, "spec.versions").iter().find(|version| flag(version, "storage")) else { return };
    let storage = json!(text(storage, "name"));
    let mut stored = list(v, "status.storedVersions").to_vec();
    if !stored.contains(&storage) {
        stored.push(storage);
        set(v, "status.storedVersions", stored);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clients_status_is_ignored() {
        let (create, update) = of("apps", "deployments");
        let mut object = json!({"apiVersion": "apps/v1", "kind": "Deployment", "status": {"replicas": 3}});
        create(&mut object);
        assert_eq!(object["status"], json!({}));
        update(&mut object, &json!({"status": {"replicas": 5}}));
        assert_eq!(object["status"], json!({"replicas": 5}));
    }

    #[test]
    fn a_namespace_starts_active_and_held() {
        let mut object = json!({"metadata": {"name": "a"}});
        create_namespace(&mut object);
        assert_eq!(object["spec"]["finalizers"], json!(["kubernetes"]));
        assert_eq!(object["status"], json!({"phase": "Active"}));
    }

    #[test]
    fn a_job_selects_its_own_pods() {
        let mut job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j", "uid": "u"}});
        create_job(&mut job);
        assert_eq!(job["spec"]["selector"]["matchLabels"], json!({"batch.kubernetes.io/controller-uid": "u"}));
        assert_eq!(job["spec"]["template"]["metadata"]["labels"]["job-name"], "j");
    }

    #[test]
    fn a_claims_two_data_sources_agree() {
        let source = json!({"kind": "PersistentVolumeClaim", "name": "a"});
        let mut claim = json!({"spec": {"dataSource": source}});
        create_claim(&mut claim);
        assert_eq!(claim["spec"]["dataSourceRef"], source);
    }
}
