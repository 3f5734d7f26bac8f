//! What makes pods: apps, batch and autoscaling.

use serde_json::{Value, json};

use crate::view::{default, default_text, get, has, list, list_mut, map, set, text};

pub(super) fn fill(name: &str, v: &mut Value) {
    match name {
        "apps.v1.Deployment" => deployment(v),
        "apps.v1.DaemonSet" => daemon_set(v),
        "apps.v1.StatefulSet" => stateful_set(v),
        "apps.v1.ReplicaSet" => default(v, "spec.replicas", 1),
        "batch.v1.Job" => {
            job_labels(v);
            job_spec(v, "spec.");
        }
        "batch.v1.CronJob" => cron_job(v),
        "batch.v1.PodFailurePolicyOnPodConditionsPattern" => default_text(v, "status", "True"),
        "autoscaling.v1.HorizontalPodAutoscaler" => default(v, "spec.minReplicas", 1),
        "autoscaling.v2.HorizontalPodAutoscaler" => autoscaler(v),
        _ => {}
    }
}

fn deployment(v: &mut Value) {
    default(v, "spec.replicas", 1);
    default_text(v, "spec.strategy.type", "RollingUpdate");
    if text(v, "spec.strategy.type") == "RollingUpdate" {
        default(v, "spec.strategy.rollingUpdate.maxUnavailable", "25%");
        default(v, "spec.strategy.rollingUpdate.maxSurge", "25%");
    }
    default(v, "spec.revisionHistoryLimit", 10);
    default(v, "spec.progressDeadlineSeconds", 600);
}

fn daemon_set(v: &mut Value) {
    default_text(v, "spec.updateStrategy.type", "RollingUpdate");
    if text(v, "spec.updateStrategy.type") == "RollingUpdate" {
        default(v, "spec.updateStrategy.rollingUpdate.maxUnavailable", 1);
        default(v, "spec.updateStrategy.rollingUpdate.maxSurge", 0);
    }
    default(v, "spec.revisionHistoryLimit", 10);
}

fn stateful_set(v: &mut Value) {
    default_text(v, "spec.podManagementPolicy", "OrderedReady");
    if text(v, "spec.updateStrategy.type").is_empty() {
        set(v, "spec.updateStrategy.type", "RollingUpdate");
        default(v, "spec.updateStrategy.rollingUpdate", json!({}));
    }
    let rolls = text(v, "spec.updateStrategy.type") == "RollingUpdate";
    if rolls && has(v, "spec.updateStrategy.rollingUpdate") {
        default(v, "spec.updateStrategy.rollingUpdate.partition", 0);
    }
    default_text(v, "spec.persistentVolumeClaimRetentionPolicy.whenDeleted", "Retain");
    default_text(v, "spec.persistentVolumeClaimRetentionPolicy.whenScaled", "Retain");
    default(v, "spec.replicas", 1);
    default(v, "spec.revisionHistoryLimit", 10);
    for claim in list_mut(v, "spec.volumeClaimTemplates") {
        default_text(claim, "apiVersion", "v1");
        default_text(claim, "kind", "PersistentVolumeClaim");
    }
}

fn job_labels(v: &mut Value) {
    let Some(labels) = get(v, "spec.template.metadata.labels").cloned() else { return };
    if map(v, "metadata.labels").is_none_or(serde_json::Map::is_empty) {
        set(v, "metadata.labels", labels);
    }
}

fn job_spec(v: &mut Value, prefix: &str) {
    let at = |field: &str| format!("{prefix}{field}");
    if !has(v, &at("completions")) && !has(v, &at("parallelism")) {
        set(v, &at("completions"), 1);
    }
    default(v, &at("parallelism"), 1);
    let backoff = if has(v, &at("backoffLimitPerIndex")) { i32::MAX } else { 6 };
    default(v, &at("backoffLimit"), backoff);
    default(v, &at("completionMode"), "NonIndexed");
    default(v, &at("suspend"), false);
    let replacement = if has(v, &at("podFailurePolicy")) { "Failed" } else { "TerminatingOrFailed" };
    default(v, &at("podReplacementPolicy"), replacement);
    default(v, &at("manualSelector"), false);
}

/// The job inside is completed when it is made.
fn cron_job(v: &mut Value) {
    default_text(v, "spec.concurrencyPolicy", "Allow");
    default(v, "spec.suspend", false);
    default(v, "spec.successfulJobsHistoryLimit", 3);
    default(v, "spec.failedJobsHistoryLimit", 1);
}

fn autoscaler(v: &mut Value) {
    default(v, "spec.minReplicas", 1);
    if list(v, "spec.metrics").is_empty() {
        let target = json!({"type": "Utilization", "averageUtilization": 80});
        set(v, "spec.metrics", json!([{"type": "Resource", "resource": {"name": "cpu", "target": target}}]));
    }
    if !has(v, "spec.behavior") {
        return;
    }
    default(v, "spec.behavior.scaleUp.selectPolicy", "Max");
    default(v, "spec.behavior.scaleUp.stabilizationWindowSeconds", 0);
    let pods = json!({"type": "Pods", "value": 4, "periodSeconds": 15});
    let all = json!({"type": "Percent", "value": 100, "periodSeconds": 15});
    default(v, "spec.behavior.scaleUp.policies", json!([pods, all]));
    default(v, "spec.behavior.scaleDown.selectPolicy", "Max");
    default(v, "spec.behavior.scaleDown.policies", json!([all]));
}
