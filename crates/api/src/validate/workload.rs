//! What makes pods: apps, batch, autoscaling, disruption budgets.

use croft_meta::{FieldError, FieldErrors, FieldPath, names};
use serde_json::Value;

use super::checks::{
    IMMUTABLE, at_most_all, is_empty_selector, is_selector_valid, not_negative, number_or_percent, one_of, percent,
    required, required_name, selector, selects, unchanged,
};
use super::{cron, pod, spec};
use crate::view::{get, has, int, list, map, number, restore, text};

pub(super) fn pod_template(object: &Value) -> FieldErrors {
    let mut errors = Vec::new();
    pod::template(&mut errors, object.get("template").unwrap_or(&Value::Null), &FieldPath::new("template"));
    errors
}

/// The selector is there, is well formed and, unless it selects everything, selects the template.
fn selector_and_template(errors: &mut FieldErrors, object: &Value, kind: &str) {
    let path = spec().child("selector");
    let found = get(object, "spec.selector");
    match found {
        None => errors.push(FieldError::required(&path, "")),
        Some(found) => {
            selector(errors, found, &path);
            if is_empty_selector(found) {
                errors.push(FieldError::invalid(&path, found.clone(), format!("empty selector is invalid for {kind}")));
            }
        }
    }
    if found.is_some_and(|found| !is_selector_valid(found)) {
        let value = found.cloned().unwrap_or_default();
        errors.push(FieldError::invalid(&path, value, "invalid label selector"));
        return;
    }
    template(errors, object, found);
}

fn template(errors: &mut FieldErrors, object: &Value, selector: Option<&Value>) {
    let path = spec().child("template");
    let template = get(object, "spec.template").unwrap_or(&Value::Null);
    let labels = get(template, "metadata.labels");
    let is_everything = selector.is_some_and(is_empty_selector);
    if !is_everything && !selects(selector, labels) {
        let value = labels.cloned().unwrap_or(Value::Null);
        let text = "`selector` does not match template `labels`";
        errors.push(FieldError::invalid(&path.child("metadata").child("labels"), value, text));
    }
    pod::template(errors, template, &path);
    let policy = text(template, "spec.restartPolicy");
    if policy != "Always" && !policy.is_empty() {
        let path = path.child("spec").child("restartPolicy");
        errors.push(FieldError::not_supported(&path, policy, &["Always"]));
    }
    if has(template, "spec.activeDeadlineSeconds") {
        let path = path.child("spec").child("activeDeadlineSeconds");
        errors.push(FieldError::forbidden(&path, "activeDeadlineSeconds in ReplicaSet is not Supported"));
    }
}

fn spec_of(object: &Value) -> &Value {
    object.get("spec").unwrap_or(&Value::Null)
}

pub(super) fn deployment(object: &Value) -> FieldErrors {
    let mut errors = Vec::new();
    for field in ["replicas", "minReadySeconds", "revisionHistoryLimit"] {
        not_negative(&mut errors, spec_of(object), &spec(), field);
    }
    selector_and_template(&mut errors, object, "deployment");
    deployment_strategy(&mut errors, object);
    if let Some(deadline) = int(object, "spec.progressDeadlineSeconds") {
        not_negative(&mut errors, spec_of(object), &spec(), "progressDeadlineSeconds");
        if deadline <= number(object, "spec.minReadySeconds") {
            let path = spec().child("progressDeadlineSeconds");
            errors.push(FieldError::invalid(&path, deadline, "must be greater than minReadySeconds"));
        }
    }
    errors
}

fn deployment_strategy(errors: &mut FieldErrors, object: &Value) {
    let path = spec().child("strategy");
    let rolling = path.child("rollingUpdate");
    match text(object, "spec.strategy.type") {
        "Recreate" => {
            if has(object, "spec.strategy.rollingUpdate") {
                errors.push(FieldError::forbidden(&rolling, "may not be specified when strategy `type` is 'Recreate'"));
            }
        }
        "RollingUpdate" => {
            let zero = Value::from(0);
            let field = |name: &str| get(object, &format!("spec.strategy.rollingUpdate.{name}")).unwrap_or(&zero);
            let (unavailable, surge) = (field("maxUnavailable"), field("maxSurge"));
            number_or_percent(errors, &rolling.child("maxUnavailable"), unavailable);
            number_or_percent(errors, &rolling.child("maxSurge"), surge);
            let is_zero = |v: &Value| v.as_i64() == Some(0) || v.as_str().and_then(percent) == Some(0);
            if is_zero(unavailable) && is_zero(surge) {
                let text = "may not be 0 when `maxSurge` is 0";
                errors.push(FieldError::invalid(&rolling.child("maxUnavailable"), unavailable.clone(), text));
            }
            at_most_all(errors, &rolling.child("maxUnavailable"), unavailable);
        }
        _ => {
            let value = get(object, "spec.strategy").cloned().unwrap_or_default();
            errors.push(FieldError::not_supported(&path, value, &["Recreate", "RollingUpdate"]));
        }
    }
}

pub(super) fn deployment_update(new: &Value, old: &Value) -> FieldErrors {
    let mut errors = deployment(new);
    unchanged(&mut errors, new, old, "spec.selector");
    errors
}

pub(super) fn replica_set(object: &Value) -> FieldErrors {
    let mut errors = Vec::new();
    for field in ["replicas", "minReadySeconds"] {
        not_negative(&mut errors, spec_of(object), &spec(), field);
    }
    selector_and_template(&mut errors, object, "deployment");
    errors
}

pub(super) fn replica_set_update(new: &Value, old: &Value) -> FieldErrors {
    let mut errors = replica_set(new);
    unchanged(&mut errors, new, old, "spec.selector");
    errors
}

pub(super) fn daemon_set(object: &Value) -> FieldErrors {
    let mut errors = Vec::new();
    selector_and_template(&mut errors, object, "daemonset");
    for field in ["minReadySeconds", "revisionHistoryLimit"] {
        not_negative(&mut errors, spec_of(object), &spec(), field);
    }
    let path = spec().child("updateStrategy");
    match text(object, "spec.updateStrategy.type") {
        "OnDelete" => {}
        "RollingUpdate" => {
            for field in ["maxUnavailable", "maxSurge"] {
                if let Some(value) = get(object, &format!("spec.updateStrategy.rollingUpdate.{field}")) {
                    number_or_percent(&mut errors, &path.child("rollingUpdate").child(field), value);
                    at_most_all(&mut errors, &path.child("rollingUpdate").child(field), value);
                }
            }
        }
        _ => {
            let value = get(object, "spec.updateStrategy").cloned().unwrap_or_default();
            errors.push(FieldError::not_supported(&path, value, &["RollingUpdate", "OnDelete"]));
        }
    }
    errors
}

pub(super) fn daemon_set_update(new: &Value, old: &Value) -> FieldErrors {
    let mut errors = daemon_set(new);
    unchanged(&mut errors, new, old, "spec.selector");
    errors
}

pub(super) fn stateful_set(object: &Value) -> FieldErrors {
    let mut errors = Vec::new();
    let policy = text(object, "spec.podManagementPolicy");
    if !matches!(policy, "OrderedReady" | "Parallel") {
        let path = spec().child("podManagementPolicy");
        errors.push(FieldError::invalid(&path, policy, "must be 'OrderedReady' or 'Parallel'"));
    }
    if !matches!(text(object, "spec.updateStrategy.type"), "RollingUpdate" | "OnDelete") {
        let value = get(object, "spec.updateStrategy").cloned().unwrap_or_default();
        errors.push(FieldError::invalid(
            &spec().child("updateStrategy"),
            value,
            "must be 'RollingUpdate' or 'OnDelete'",
        ));
    }
    for field in ["replicas", "minReadySeconds", "revisionHistoryLimit"] {
        not_negative(&mut errors, spec_of(object), &spec(), field);
    }
    selector_and_template(&mut errors, object, "statefulset");
    errors
}

pub(super) fn stateful_set_update(new: &Value, old: &Value) -> FieldErrors {
    const MUTABLE: &[&str] = &[
        "replicas",
        "ordinals",
        "template",
        "updateStrategy",
        "revisionHistoryLimit",
        "persistentVolumeClaimRetentionPolicy",
        "minReadySeconds",
    ];
    let mut errors = stateful_set(new);
    let mut munged = new.clone();
    for field in MUTABLE {
        restore(&mut munged, old, &format!("spec.{field}"));
    }
    if spec_of(&munged) != spec_of(old) {
        errors.push(FieldError::forbidden(
            &spec(),
            "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', \
             'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden",
        ));
    }
    errors
}

pub(super) fn replication_controller(object: &Value) -> FieldErrors {
    let mut errors = Vec::new();
    for field in ["minReadySeconds", "replicas"] {
        not_negative(&mut errors, spec_of(object), &spec(), field);
    }
    if map(object, "spec.selector").is_none_or(serde_json::Map::is_empty) {
        errors.push(FieldError::required(&spec().child("selector"), ""));
    }
    if has(object, "spec.template") {
        let selector = serde_json::json!({"matchLabels": get(object, "spec.selector")});
        template(&mut errors, object, Some(&selector));
    } else {
        errors.push(FieldError::required(&spec().child("template"), ""));
    }
    errors
}

pub(super) fn controller_revision(object: &Value) -> FieldErrors {
    let mut errors = Vec::new();
    if !has(object, "data") {
        errors.push(FieldError::required(&FieldPath::new("data"), "data is mandatory"));
    }
    not_negative(&mut errors, object, &FieldPath::root(), "revision");
    errors
}

pub(super) fn controller_revision_update(new: &Value, old: &Value) -> FieldErrors {
    let mut errors = controller_revision(new);
    unchanged(&mut errors, new, old, "data");
    errors
}

pub(super) fn job(object: &Value) -> FieldErrors {
    let mut errors = Vec::new();
    job_spec(&mut errors, spec_of(object), &spec());
    if !has(object, "spec.selector") {
        errors.push(FieldError::required(&spec().child("selector"), ""));
    } else if !selects(get(object, "spec.selector"), get(object, "spec.template.metadata.labels")) {
        let labels = get(object, "spec.template.metadata.labels").cloned().unwrap_or(Value::Null);
        let path = spec().child("template").child("metadata").child("labels");
        errors.push(FieldError::invalid(&path, labels, "`selector` does not match template `labels`"));
    }
    errors
}

fn job_spec(errors: &mut FieldErrors, job: &Value, path: &FieldPath) {
    for field in ["parallelism", "completions", "activeDeadlineSeconds", "backoffLimit", "ttlSecondsAfterFinished"] {
        not_negative(errors, job, path, field);
    }
    if let Some(found) = get(job, "selector") {
        selector(errors, found, &path.child("selector"));
    }
    let template = path.child("template");
    pod::template(errors, get(job, "template").unwrap_or(&Value::Null), &template);
    let policy = text(job, "template.spec.restartPolicy");
    let policy_path = template.child("spec").child("restartPolicy");
    match policy {
        "OnFailure" | "Never" => {}
        // What pods get by default is not what jobs can use.
        "" | "Always" => errors.push(FieldError::required(&policy_path, r#"valid values: "OnFailure", "Never""#)),
        other => errors.push(FieldError::not_supported(&policy_path, other, &["OnFailure", "Never"])),
    }
}

pub(super) fn job_update(new: &Value, old: &Value) -> FieldErrors {
    let mut errors = job(new);
    let is_elastic =
        text(new, "spec.completionMode") == "Indexed" && int(new, "spec.completions") == int(new, "spec.parallelism");
    if !is_elastic {
        unchanged(&mut errors, new, old, "spec.completions");
    }
    for field in
        ["spec.selector", "spec.completionMode", "spec.podFailurePolicy", "spec.backoffLimitPerIndex", "spec.managedBy"]
    {
        unchanged(&mut errors, new, old, field);
    }
    // A job that never ran may still move.
    let mut munged = new.clone();
    if crate::view::flag(old, "spec.suspend") && !has(old, "status.startTime") {
        for field in ["nodeSelector", "tolerations", "affinity", "schedulingGates"] {
            restore(&mut munged, old, &format!("spec.template.spec.{field}"));
        }
        restore(&mut munged, old, "spec.template.metadata");
    }
    if get(&munged, "spec.template") != get(old, "spec.template") {
        let value = get(new, "spec.template").cloned().unwrap_or_default();
        errors.push(FieldError::invalid(&spec().child("template"), value, IMMUTABLE));
    }
    errors
}

/// Jobs are named after their cron job and the time, which needs eleven characters.
const CRON_JOB_NAME_MAX: usize = 52;

pub(super) fn cron_job(object: &Value) -> FieldErrors {
    let mut errors = Vec::new();
    let name = text(object, "metadata.name");
    if name.len() > CRON_JOB_NAME_MAX {
        let path = FieldPath::new("metadata.name");
        errors.push(FieldError::invalid(&path, name, "must be no more than 52 characters"));
    }
    schedule(&mut errors, object);
    for field in ["startingDeadlineSeconds", "successfulJobsHistoryLimit", "failedJobsHistoryLimit"] {
        not_negative(&mut errors, spec_of(object), &spec(), field);
    }
    let policy = text(object, "spec.concurrencyPolicy");
    one_of(&mut errors, &spec().child("concurrencyPolicy"), policy, &["Allow", "Forbid", "Replace"]);
    let path = spec().child("jobTemplate").child("spec");
    job_spec(&mut errors, get(object, "spec.jobTemplate.spec").unwrap_or(&Value::Null), &path);
    errors
}

fn schedule(errors: &mut FieldErrors, object: &Value) {
    let path = spec().child("schedule");
    let schedule = text(object, "spec.schedule");
    if schedule.is_empty() {
        errors.push(FieldError::required(&path, ""));
    } else if schedule.contains("TZ") {
        let text = "cannot use TZ or CRON_TZ in schedule, use timeZone field instead";
        errors.push(FieldError::invalid(&path, schedule, text));
    } else if let Err(text) = cron::check(schedule) {
        errors.push(FieldError::invalid(&path, schedule, text));
    }
    let Some(zone) = get(object, "spec.timeZone").and_then(Value::as_str) else { return };
    let path = spec().child("timeZone");
    if zone.is_empty() {
        errors.push(FieldError::invalid(&path, zone, "timeZone must be nil or non-empty string"));
    } else if zone.eq_ignore_ascii_case("local") {
        errors.push(FieldError::invalid(
            &path,
            zone,
            "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones",
        ));
    } else if jiff::tz::TimeZone::get(zone).is_err() {
        errors.push(FieldError::invalid(&path, zone, format!("unknown time zone {zone}")));
    }
}

pub(super) fn autoscaler(object: &Value) -> FieldErrors {
    let mut errors = Vec::new();
    let reference = spec().child("scaleTargetRef");
    let field = |name: &str| text(object, &format!("spec.scaleTargetRef.{name}"));
    required_name(&mut errors, &reference.child("kind"), field("kind"), names::is_path_segment_name);
    required_name(&mut errors, &reference.child("name"), field("name"), names::is_path_segment_name);
    if !matches!((field("kind"), field("apiVersion")), ("ReplicationController", "v1"))
        && !field("apiVersion").contains('/')
    {
        let text = "apiVersion must specify API group";
        errors.push(FieldError::invalid(&reference.child("apiVersion"), field("apiVersion"), text));
    }
    let (least, most) = (int(object, "spec.minReplicas"), number(object, "spec.maxReplicas"));
    if let Some(least) = least.filter(|least| *least < 1) {
        errors.push(FieldError::invalid(&spec().child("minReplicas"), least, "must be greater than or equal to 1"));
    }
    if most < 1 {
        errors.push(FieldError::invalid(&spec().child("maxReplicas"), most, "must be greater than 0"));
    }
    if least.is_some_and(|least| most < least) {
        let text = "must be greater than or equal to `minReplicas`";
        errors.push(FieldError::invalid(&spec().child("maxReplicas"), most, text));
    }
    for (index, one) in list(object, "spec.metrics").iter().enumerate() {
        metric(&mut errors, one, &spec().child("metrics").index(index));
    }
    errors
}

fn metric(errors: &mut FieldErrors, metric: &Value, path: &FieldPath) {
    let kind = text(metric, "type");
    let field = match kind {
        "ContainerResource" => "containerResource",
        "External" => "external",
        "Object" => "object",
        "Pods" => "pods",
        "Resource" => "resource",
        "" => return errors.push(FieldError::required(&path.child("type"), "must specify a metric source type")),
        other => {
            // Upstream asks twice, in two places.
            for _ in 0..2 {
                let known = ["ContainerResource", "External", "Object", "Pods", "Resource"];
                errors.push(FieldError::not_supported(&path.child("type"), other, &known));
            }
            return;
        }
    };
    let path = path.child(field);
    let Some(source) = get(metric, field) else {
        errors.push(FieldError::required(&path, "must populate information for the given metric source"));
        return;
    };
    if field != "resource" && field != "containerResource" {
        return;
    }
    required(errors, &path.child("name"), text(source, "name"));
    if !has(source, "target.averageUtilization") && !has(source, "target.averageValue") {
        let path = path.child("target").child("averageUtilization");
        errors.push(FieldError::required(&path, "must set either a target raw value or a target utilization"));
    }
}

pub(super) fn disruption_budget(object: &Value) -> FieldErrors {
    let mut errors = Vec::new();
    if has(object, "spec.minAvailable") && has(object, "spec.maxUnavailable") {
        let value = spec_of(object).clone();
        errors.push(FieldError::invalid(&spec(), value, "minAvailable and maxUnavailable cannot be both set"));
    }
    for field in ["minAvailable", "maxUnavailable"] {
        if let Some(value) = get(spec_of(object), field) {
            number_or_percent(&mut errors, &spec().child(field), value);
            at_most_all(&mut errors, &spec().child(field), value);
        }
    }
    if let Some(found) = get(object, "spec.selector") {
        selector(&mut errors, found, &spec().child("selector"));
    }
    let policy = text(object, "spec.unhealthyPodEvictionPolicy");
    if !policy.is_empty() {
        let path = spec().child("unhealthyPodEvictionPolicy");
        one_of(&mut errors, &path, policy, &["AlwaysAllow", "IfHealthyBudget"]);
    }
    errors
}
