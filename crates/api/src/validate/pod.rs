//! Pods, alone and in templates.

use std::collections::BTreeSet;

use croft_meta::{FieldError, FieldErrors, FieldPath, names};
use serde_json::Value;

use super::checks::{
    named, not_negative, not_negative_quantity, one_of, port, port_name, port_or_name, protocol, quantity,
    quantity_text, required, required_name,
};
use super::sysctls;
use crate::view::{flag, get, has, int, list, list_mut, map, number, remove, restore, text};

pub(super) fn validate(pod: &Value) -> FieldErrors {
    let mut errors = Vec::new();
    spec(&mut errors, pod.get("spec").unwrap_or(&Value::Null), &super::spec());
    errors
}

/// A running pod can change its images, deadlines and tolerations, and nothing else.
pub(super) fn validate_update(new: &Value, old: &Value) -> FieldErrors {
    let mut errors = validate(new);
    let mut munged = new.clone();
    for containers in ["spec.containers", "spec.initContainers"] {
        let images: Vec<Value> =
            list(old, containers).iter().map(|c| c.get("image").cloned().unwrap_or_default()).collect();
        for (container, image) in list_mut(&mut munged, containers).zip(images) {
            container["image"] = image;
        }
    }
    tolerations_only_added(&mut errors, new, old);
    restore(&mut munged, old, "spec.tolerations");
    let deadline = int(new, "spec.activeDeadlineSeconds");
    if let Some(before) = int(old, "spec.activeDeadlineSeconds") {
        let path = super::spec().child("activeDeadlineSeconds");
        match deadline {
            Some(now) if now > before => {
                errors.push(FieldError::invalid(&path, now, "must be less than or equal to previous value"));
            }
            None => errors.push(FieldError::invalid(
                &path,
                Value::Null,
                "must not update from a positive integer to nil value",
            )),
            Some(_) => {}
        }
    }
    restore(&mut munged, old, "spec.activeDeadlineSeconds");
    let is_grace_fixed = number(old, "spec.terminationGracePeriodSeconds") < 0
        && int(new, "spec.terminationGracePeriodSeconds") == Some(1);
    if is_grace_fixed {
        restore(&mut munged, old, "spec.terminationGracePeriodSeconds");
    }
    if !list(old, "spec.schedulingGates").is_empty() {
        for field in ["spec.schedulingGates", "spec.nodeSelector", "spec.affinity"] {
            restore(&mut munged, old, field);
        }
    }
    // Ephemeral containers and resources have subresources of their own.
    if munged.get("spec") != old.get("spec") {
        errors.push(FieldError::forbidden(
            &super::spec(),
            "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,\
             `spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),\
             `spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)",
        ));
    }
    errors
}

fn tolerations_only_added(errors: &mut FieldErrors, new: &Value, old: &Value) {
    let without_seconds = |toleration: &Value| {
        let mut copy = toleration.clone();
        remove(&mut copy, "tolerationSeconds");
        copy
    };
    let now: Vec<Value> = list(new, "spec.tolerations").iter().map(without_seconds).collect();
    if list(old, "spec.tolerations").iter().any(|toleration| !now.contains(&without_seconds(toleration))) {
        let path = super::spec().child("tolerations");
        errors
            .push(FieldError::forbidden(&path, "existing toleration can not be modified except its tolerationSeconds"));
    }
}

/// A pod's template: labels and spec.
pub(super) fn template(errors: &mut FieldErrors, template: &Value, path: &FieldPath) {
    if let Some(labels) = get(template, "metadata.labels") {
        errors.extend(names::validate_labels(labels, &path.child("labels")));
    }
    if let Some(annotations) = get(template, "metadata.annotations") {
        errors.extend(names::validate_annotations(annotations, &path.child("annotations")));
    }
    spec(errors, template.get("spec").unwrap_or(&Value::Null), &path.child("spec"));
    if !list(template, "spec.ephemeralContainers").is_empty() {
        let path = path.child("spec").child("ephemeralContainers");
        errors.push(FieldError::forbidden(&path, "ephemeral containers not allowed in pod template"));
    }
}

pub(super) fn spec(errors: &mut FieldErrors, spec: &Value, path: &FieldPath) {
    let volumes = volumes(errors, list(spec, "volumes"), &path.child("volumes"));
    let mut seen = BTreeSet::new();
    let containers_path = path.child("containers");
    if list(spec, "containers").is_empty() {
        errors.push(FieldError::required(&containers_path, ""));
    }
    let is_host_network = flag(spec, "hostNetwork");
    for (field, containers) in
        [("containers", list(spec, "containers")), ("initContainers", list(spec, "initContainers"))]
    {
        for (index, one) in containers.iter().enumerate() {
            let path = path.child(field).index(index);
            container(errors, one, &path, &volumes, is_host_network);
            let name = text(one, "name");
            if !name.is_empty() && !seen.insert(name.to_owned()) {
                errors.push(FieldError::duplicate(&path.child("name"), name));
            }
        }
    }
    one_of(errors, &path.child("restartPolicy"), text(spec, "restartPolicy"), &["Always", "OnFailure", "Never"]);
    let dns = ["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"];
    one_of(errors, &path.child("dnsPolicy"), text(spec, "dnsPolicy"), &dns);
    if let Some(selector) = get(spec, "nodeSelector") {
        errors.extend(names::validate_labels(selector, &path.child("nodeSelector")));
    }
    sysctls::validate(errors, list(spec, "securityContext.sysctls"), &path.child("securityContext").child("sysctls"));
    for (field, rule) in [
        ("serviceAccountName", names::is_dns1123_subdomain as fn(&str) -> Vec<String>),
        ("nodeName", names::is_dns1123_subdomain),
        ("hostname", names::is_dns1123_label),
        ("subdomain", names::is_dns1123_label),
        ("priorityClassName", names::is_dns1123_subdomain),
        ("runtimeClassName", names::is_dns1123_subdomain),
    ] {
        let value = text(spec, field);
        if !value.is_empty() {
            named(errors, &path.child(field), value, rule);
        }
    }
    if let Some(deadline) = int(spec, "activeDeadlineSeconds")
        && !(1..=i64::from(i32::MAX)).contains(&deadline)
    {
        let text = "must be between 1 and 2147483647, inclusive";
        errors.push(FieldError::invalid(&path.child("activeDeadlineSeconds"), deadline, text));
    }
    for (index, secret) in list(spec, "imagePullSecrets").iter().enumerate() {
        if text(secret, "name").is_empty() {
            errors.push(FieldError::required(&path.child("imagePullSecrets").index(index).child("name"), ""));
        }
    }
    tolerations(errors, list(spec, "tolerations"), &path.child("tolerations"));
}

fn tolerations(errors: &mut FieldErrors, all: &[Value], path: &FieldPath) {
    for (index, toleration) in all.iter().enumerate() {
        let path = path.index(index);
        let (key, operator, value) = (text(toleration, "key"), text(toleration, "operator"), text(toleration, "value"));
        let effect = text(toleration, "effect");
        let operator_path = path.child("operator");
        if key.is_empty() {
            if operator != "Exists" {
                let text =
                    r#"operator must be Exists when `key` is empty, which means "match all values and all keys""#;
                errors.push(FieldError::invalid(&operator_path, operator, text));
            }
        } else {
            named(errors, &path.child("key"), key, names::is_qualified_name);
        }
        if has(toleration, "tolerationSeconds") && effect != "NoExecute" {
            let text = "effect must be 'NoExecute' when `tolerationSeconds` is set";
            errors.push(FieldError::invalid(&path.child("effect"), effect, text));
        }
        match operator {
            "" | "Equal" => {
                let wrong = names::is_valid_label_value(value);
                if !wrong.is_empty() {
                    errors.push(FieldError::invalid(&operator_path, value, wrong.join(";")));
                }
            }
            "Exists" if !value.is_empty() => {
                errors.push(FieldError::invalid(
                    &operator_path,
                    value,
                    "value must be empty when `operator` is 'Exists'",
                ));
            }
            "Exists" => {}
            other => errors.push(FieldError::not_supported(&operator_path, other, &["Equal", "Exists"])),
        }
        if !effect.is_empty() {
            one_of(errors, &path.child("effect"), effect, &["NoSchedule", "PreferNoSchedule", "NoExecute"]);
        }
    }
}

/// Returns the names that containers may mount.
fn volumes(errors: &mut FieldErrors, all: &[Value], path: &FieldPath) -> BTreeSet<String> {
    let mut valid = BTreeSet::new();
    for (index, volume) in all.iter().enumerate() {
        let path = path.index(index);
        let before = errors.len();
        let name = text(volume, "name");
        volume_source(errors, volume, &path);
        let name_path = path.child("name");
        if name.is_empty() {
            errors.push(FieldError::required(&name_path, ""));
        } else {
            named(errors, &name_path, name, names::is_dns1123_label);
        }
        if valid.contains(name) {
            errors.push(FieldError::duplicate(&name_path, name));
        }
        if errors.len() == before {
            valid.insert(name.to_owned());
        }
    }
    valid
}

fn volume_source(errors: &mut FieldErrors, volume: &Value, path: &FieldPath) {
    const FIRST: &[&str] = &["emptyDir", "hostPath", "gitRepo", "secret", "nfs"];
    let sources = volume.as_object().into_iter().flatten().filter(|(key, value)| *key != "name" && !value.is_null());
    let mut sources: Vec<(&str, &Value)> = sources.map(|(key, value)| (key.as_str(), value)).collect();
    sources.sort_by_key(|(key, _)| FIRST.iter().position(|f| f == key).unwrap_or(FIRST.len()));
    if sources.is_empty() {
        errors.push(FieldError::required(path, "must specify a volume type"));
    }
    for (index, (kind, source)) in sources.iter().enumerate() {
        let path = path.child(kind);
        if index > 0 {
            errors.push(FieldError::forbidden(&path, "may not specify more than 1 volume type"));
            continue;
        }
        let field = match *kind {
            "secret" => "secretName",
            "configMap" => "name",
            "hostPath" => "path",
            "persistentVolumeClaim" => "claimName",
            "csi" => "driver",
            _ => continue,
        };
        required(errors, &path.child(field), text(source, field));
        if *kind == "hostPath" && text(source, "path").split('/').any(|part| part == "..") {
            errors.push(FieldError::invalid(&path.child("path"), text(source, "path"), "must not contain '..'"));
        }
    }
}

fn container(
    errors: &mut FieldErrors,
    one: &Value,
    path: &FieldPath,
    volumes: &BTreeSet<String>,
    is_host_network: bool,
) {
    required_name(errors, &path.child("name"), text(one, "name"), names::is_dns1123_label);
    let image = text(one, "image");
    if image.is_empty() {
        errors.push(FieldError::required(&path.child("image"), ""));
    } else if image.trim() != image {
        errors.push(FieldError::invalid(&path.child("image"), image, "must not have leading or trailing whitespace"));
    }
    ports(errors, list(one, "ports"), &path.child("ports"), is_host_network);
    environment(errors, one, path);
    one_of(errors, &path.child("imagePullPolicy"), text(one, "imagePullPolicy"), &["Always", "IfNotPresent", "Never"]);
    one_of(
        errors,
        &path.child("terminationMessagePolicy"),
        text(one, "terminationMessagePolicy"),
        &["FallbackToLogsOnError", "File"],
    );
    for field in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if let Some(found) = get(one, field) {
            probe(errors, found, &path.child(field));
        }
    }
    mounts(errors, list(one, "volumeMounts"), &path.child("volumeMounts"), volumes);
    if let Some(found) = get(one, "resources") {
        resources(errors, found, &path.child("resources"));
    }
}

fn ports(errors: &mut FieldErrors, all: &[Value], path: &FieldPath, is_host_network: bool) {
    let mut seen = BTreeSet::new();
    for (index, one) in all.iter().enumerate() {
        let path = path.index(index);
        let name = text(one, "name");
        if !name.is_empty() {
            named(errors, &path.child("name"), name, port_name);
            if !seen.insert(name) {
                errors.push(FieldError::duplicate(&path.child("name"), name));
            }
        }
        let (inside, outside) = (number(one, "containerPort"), number(one, "hostPort"));
        if inside == 0 {
            errors.push(FieldError::required(&path.child("containerPort"), ""));
        } else {
            port(errors, &path.child("containerPort"), inside);
        }
        if outside != 0 {
            port(errors, &path.child("hostPort"), outside);
        }
        if is_host_network && inside != outside {
            let text = "must match `hostPort` when `hostNetwork` is true";
            errors.push(FieldError::invalid(&path.child("containerPort"), inside, text));
        }
        protocol(errors, &path.child("protocol"), text(one, "protocol"));
    }
}

fn environment(errors: &mut FieldErrors, container: &Value, path: &FieldPath) {
    for (index, variable) in list(container, "env").iter().enumerate() {
        let path = path.child("env").index(index);
        required_name(errors, &path.child("name"), text(variable, "name"), names::is_relaxed_env_var_name);
        let Some(source) = get(variable, "valueFrom") else { continue };
        let path = path.child("valueFrom");
        let sources: Vec<&str> = ["fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef", "fileKeyRef"]
            .into_iter()
            .filter(|kind| has(source, kind))
            .collect();
        if sources.is_empty() {
            let text = "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef` or `secretKeyRef`";
            errors.push(FieldError::invalid(&path, "", text));
        } else if !text(variable, "value").is_empty() {
            errors.push(FieldError::invalid(&path, "", "may not be specified when `value` is not empty"));
        } else if sources.len() > 1 {
            errors.push(FieldError::invalid(&path, "", "may not have more than one field specified at a time"));
        }
        for kind in ["configMapKeyRef", "secretKeyRef"] {
            if let Some(reference) = get(source, kind) {
                required(errors, &path.child(kind).child("name"), text(reference, "name"));
                required_name(errors, &path.child(kind).child("key"), text(reference, "key"), names::is_config_map_key);
            }
        }
    }
}

fn mounts(errors: &mut FieldErrors, all: &[Value], path: &FieldPath, volumes: &BTreeSet<String>) {
    let mut seen = BTreeSet::new();
    for (index, mount) in all.iter().enumerate() {
        let path = path.index(index);
        let (name, at) = (text(mount, "name"), text(mount, "mountPath"));
        required(errors, &path.child("name"), name);
        if !volumes.contains(name) {
            errors.push(FieldError::not_found(&path.child("name"), name));
        }
        required(errors, &path.child("mountPath"), at);
        if !seen.insert(at) {
            errors.push(FieldError::invalid(&path.child("mountPath"), at, "must be unique"));
        }
    }
}

fn probe(errors: &mut FieldErrors, probe: &Value, path: &FieldPath) {
    let handlers: Vec<&str> =
        ["exec", "httpGet", "tcpSocket", "grpc"].into_iter().filter(|handler| has(probe, handler)).collect();
    if handlers.is_empty() {
        errors.push(FieldError::required(path, "must specify a handler type"));
    }
    for (index, handler) in handlers.iter().enumerate() {
        let path = path.child(handler);
        if index > 0 {
            errors.push(FieldError::forbidden(&path, "may not specify more than 1 handler type"));
            continue;
        }
        match *handler {
            "exec" if list(probe, "exec.command").is_empty() => {
                errors.push(FieldError::required(&path.child("command"), ""));
            }
            "httpGet" => {
                port_or_name(errors, &path.child("port"), get(probe, "httpGet.port"));
                one_of(errors, &path.child("scheme"), text(probe, "httpGet.scheme"), &["HTTP", "HTTPS"]);
            }
            "tcpSocket" => port_or_name(errors, &path.child("port"), get(probe, "tcpSocket.port")),
            "grpc" => port(errors, &path.child("port"), number(probe, "grpc.port")),
            _ => {}
        }
    }
    for field in ["initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold"] {
        not_negative(errors, probe, path, field);
    }
}

fn resources(errors: &mut FieldErrors, resources: &Value, path: &FieldPath) {
    for field in ["limits", "requests"] {
        for (name, value) in map(resources, field).into_iter().flatten() {
            let path = path.child(field).key(name);
            resource_name(errors, &path, name, "must be a standard resource for containers", is_container_resource);
            not_negative_quantity(errors, &path, value);
        }
    }
    for (name, request) in map(resources, "requests").into_iter().flatten() {
        let Some(limit) = map(resources, "limits").and_then(|limits| limits.get(name)) else { continue };
        let (Some(wanted), Some(most)) = (quantity(request), quantity(limit)) else { continue };
        if wanted > most {
            let text = format!("must be less than or equal to {name} limit of {}", quantity_text(limit));
            errors.push(FieldError::invalid(&path.child("requests"), quantity_text(request), text));
        }
    }
}

fn is_container_resource(name: &str) -> bool {
    matches!(name, "cpu" | "memory" | "ephemeral-storage") || name.starts_with("hugepages-")
}

/// Resources of other makers have a domain in their name.
pub(super) fn resource_name(
    errors: &mut FieldErrors,
    path: &FieldPath,
    name: &str,
    wrong: &str,
    is_known: fn(&str) -> bool,
) {
    let before = errors.len();
    named(errors, path, name, names::is_qualified_name);
    if errors.len() > before || name.contains('/') || is_known(name) {
        return;
    }
    errors.push(FieldError::invalid(path, name, "must be a standard resource type or fully qualified"));
    errors.push(FieldError::invalid(path, name, wrong));
}
