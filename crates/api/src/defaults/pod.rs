//! Pods, their containers and volumes.

use serde_json::{Value, json};

use super::{add_missing, default_number};
use crate::view::{default, default_text, flag, get, has, list, list_mut, map, number, remove, set, text};

/// Only pods themselves: templates are completed when a controller makes pods of them.
pub(super) fn pod(v: &mut Value) {
    for containers in ["spec.containers", "spec.initContainers"] {
        for container in list_mut(v, containers) {
            let limits = map(container, "resources.limits").cloned().unwrap_or_default();
            add_missing(container, "resources.requests", limits);
        }
    }
    default(v, "spec.enableServiceLinks", true);
    if flag(v, "spec.hostNetwork") {
        for containers in ["spec.containers", "spec.initContainers"] {
            for port in list_mut(v, containers).flat_map(|container| list_mut(container, "ports")) {
                let same = number(port, "containerPort");
                default_number(port, "hostPort", same);
            }
        }
    }
    addresses(v);
}

/// `podIP` is the first of `podIPs`.
fn addresses(v: &mut Value) {
    let first = list(v, "status.podIPs").first().map(|ip| text(ip, "ip").to_owned());
    match first {
        Some(ip) => set(v, "status.podIP", ip),
        None if !text(v, "status.podIP").is_empty() => {
            let only = json!([{"ip": text(v, "status.podIP")}]);
            set(v, "status.podIPs", only);
        }
        None => {}
    }
}

pub(super) fn pod_spec(v: &mut Value) {
    default_text(v, "dnsPolicy", "ClusterFirst");
    default_text(v, "restartPolicy", "Always");
    default(v, "securityContext", json!({}));
    default(v, "terminationGracePeriodSeconds", 30);
    default_text(v, "schedulerName", "default-scheduler");
    // The old and the new name of one field.
    if text(v, "serviceAccountName").is_empty() && !text(v, "serviceAccount").is_empty() {
        let name = text(v, "serviceAccount").to_owned();
        set(v, "serviceAccountName", name);
    }
    match text(v, "serviceAccountName") {
        "" => drop(remove(v, "serviceAccount")),
        name => {
            let name = name.to_owned();
            set(v, "serviceAccount", name);
        }
    }
}

pub(super) fn container(v: &mut Value) {
    let policy = pull_policy(text(v, "image"));
    default_text(v, "imagePullPolicy", policy);
    default_text(v, "terminationMessagePath", "/dev/termination-log");
    default_text(v, "terminationMessagePolicy", "File");
}

/// Images without a tag, or with `latest`, are pulled always.
fn pull_policy(image: &str) -> &'static str {
    let (name, digest) = image.split_once('@').map_or((image, ""), |(name, digest)| (name, digest));
    let last = name.rsplit('/').next().unwrap_or(name);
    let tag = last.split_once(':').map_or("", |(_, tag)| tag);
    let is_latest = tag == "latest" || (tag.is_empty() && digest.is_empty() && !image.is_empty());
    if is_latest { "Always" } else { "IfNotPresent" }
}

/// A volume from nowhere is an empty directory.
pub(super) fn volume(v: &mut Value) {
    let has_source =
        v.as_object().is_some_and(|volume| volume.iter().any(|(key, value)| key != "name" && !value.is_null()));
    if !has_source {
        set(v, "emptyDir", json!({}));
    }
    if has(v, "image") {
        let policy = pull_policy(text(v, "image.reference"));
        default_text(v, "image.pullPolicy", policy);
    }
}

pub(super) fn probe(v: &mut Value) {
    default_number(v, "timeoutSeconds", 1);
    default_number(v, "periodSeconds", 10);
    default_number(v, "successThreshold", 1);
    default_number(v, "failureThreshold", 3);
}

/// Selects and is labelled like the pods it makes.
pub(super) fn replication_controller(v: &mut Value) {
    let Some(labels) = get(v, "spec.template.metadata.labels").cloned() else { return };
    for path in ["spec.selector", "metadata.labels"] {
        if map(v, path).is_none_or(serde_json::Map::is_empty) {
            set(v, path, labels.clone());
        }
    }
}
