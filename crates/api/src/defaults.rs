//! What a built-in kind gets when its author left something out.
//!
//! Defaults belong to types, as upstream's `pkg/apis/*/v1/defaults.go` has them: one walk over the object visits
//! every struct from the outside in, and fills it. The object has been brought into Go's form before.

mod pod;
mod workload;

use croft_meta::object;
use serde_json::{Map, Value, json};

use crate::go_json;
use crate::view::{default, default_text, flag, get, has, list, list_mut, map, number, remove, set, text};
use crate::wire::{Body, Shape, TABLE, Ty, TypeDef};

/// Canonical form, then defaults.
pub(crate) fn apply(value: &mut Value) {
    let gvk = object::gvk(value);
    let Some(index) = TABLE.of_kind(&gvk.group, &gvk.version, &gvk.kind) else { return };
    go_json::canonicalise_as(value, index);
    walk(index, value);
}

fn walk(index: usize, value: &mut Value) {
    let def = TABLE.get(index);
    if def.body != Body::Struct || def.go_name() == "JSONSchemaProps" || !value.is_object() {
        return;
    }
    fill(&def.name, value);
    descend(def, value);
}

fn descend(def: &TypeDef, value: &mut Value) {
    for field in &def.fields {
        if let (true, Ty::Message(index)) = (field.inline, field.ty) {
            descend(TABLE.get(index), value);
            continue;
        }
        if let Some(text) = field.default()
            && (!has(value, field.json) || get(value, field.json) == Some(&json!("")))
        {
            // The texts are constants of this program, checked by a test.
            set(value, field.json, serde_json::from_str::<Value>(text).unwrap_or_default());
        }
        let (Ty::Message(index), Some(child)) = (field.ty, value.get_mut(field.json)) else { continue };
        match (field.shape, child) {
            (Shape::One, child) => walk(index, child),
            (Shape::List, Value::Array(items)) => items.iter_mut().for_each(|item| walk(index, item)),
            (Shape::Map, Value::Object(map)) => map.values_mut().for_each(|item| walk(index, item)),
            _ => {}
        }
    }
}

/// The defaults of one struct, by its full name.
fn fill(name: &str, v: &mut Value) {
    match name.strip_prefix("io.k8s.api.").unwrap_or(name) {
        "core.v1.Pod" => pod::pod(v),
        "core.v1.PodSpec" => pod::pod_spec(v),
        "core.v1.Container" | "core.v1.EphemeralContainer" => pod::container(v),
        "core.v1.Volume" => pod::volume(v),
        "core.v1.Probe" => pod::probe(v),
        "core.v1.HTTPGetAction" => {
            default_text(v, "path", "/");
            default_text(v, "scheme", "HTTP");
        }
        "core.v1.SecretVolumeSource"
        | "core.v1.ConfigMapVolumeSource"
        | "core.v1.DownwardAPIVolumeSource"
        | "core.v1.ProjectedVolumeSource" => default(v, "defaultMode", 0o644),
        "core.v1.HostPathVolumeSource" => default(v, "type", ""),
        "core.v1.ServiceAccountTokenProjection" | "authentication.v1.TokenRequestSpec" => {
            default(v, "expirationSeconds", 3600);
        }
        "core.v1.ObjectFieldSelector" => default_text(v, "apiVersion", "v1"),
        "core.v1.ReplicationController" => pod::replication_controller(v),
        "core.v1.Service" => service(v),
        "core.v1.Secret" => secret(v),
        "core.v1.PersistentVolume" => {
            default_text(v, "status.phase", "Pending");
            default_text(v, "spec.persistentVolumeReclaimPolicy", "Retain");
            default(v, "spec.volumeMode", "Filesystem");
        }
        "core.v1.PersistentVolumeClaim" => default_text(v, "status.phase", "Pending"),
        "core.v1.PersistentVolumeClaimSpec" => default(v, "volumeMode", "Filesystem"),
        "core.v1.Namespace" => namespace(v),
        "core.v1.NodeStatus" => {
            if let (None, Some(capacity)) = (get(v, "allocatable"), get(v, "capacity").cloned()) {
                set(v, "allocatable", capacity);
            }
        }
        "core.v1.NodeSpec" => first_of_list(v, "podCIDR", "podCIDRs"),
        "core.v1.LimitRangeItem" => limit_range_item(v),
        "core.v1.EndpointPort" => default_text(v, "protocol", "TCP"),
        "discovery.v1.EndpointPort" => {
            default(v, "name", "");
            default(v, "protocol", "TCP");
        }
        "rbac.v1.ClusterRoleBinding" | "rbac.v1.RoleBinding" => default_text(v, "roleRef.apiGroup", RBAC),
        "rbac.v1.Subject" if matches!(text(v, "kind"), "User" | "Group") => default_text(v, "apiGroup", RBAC),
        "storage.v1.StorageClass" => {
            default(v, "reclaimPolicy", "Delete");
            default(v, "volumeBindingMode", "Immediate");
        }
        "storage.v1.CSIDriverSpec" => csi_driver(v),
        "networking.v1.NetworkPolicyPort" => default(v, "protocol", "TCP"),
        "networking.v1.NetworkPolicySpec" => network_policy(v),
        "networking.v1.IngressClassSpec" if has(v, "parameters") => default(v, "parameters.scope", "Cluster"),
        "scheduling.v1.PriorityClass" => default(v, "preemptionPolicy", "PreemptLowerPriority"),
        "admissionregistration.v1.ValidatingWebhook" => webhook(v),
        "admissionregistration.v1.MutatingWebhook" => {
            webhook(v);
            default(v, "reinvocationPolicy", "Never");
        }
        "admissionregistration.v1.RuleWithOperations"
        | "admissionregistration.v1.NamedRuleWithOperations"
        | "admissionregistration.v1beta1.NamedRuleWithOperations" => {
            default(v, "scope", "*");
        }
        "admissionregistration.v1.ValidatingAdmissionPolicySpec" => default(v, "failurePolicy", "Fail"),
        "admissionregistration.v1beta1.MutatingAdmissionPolicySpec" => {
            default(v, "failurePolicy", "Fail");
            default_text(v, "reinvocationPolicy", "Never");
        }
        "admissionregistration.v1.MatchResources" | "admissionregistration.v1beta1.MatchResources" => {
            match_resources(v);
        }
        "admissionregistration.v1.ServiceReference"
        | "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.ServiceReference"
        | "io.k8s.kube-aggregator.pkg.apis.apiregistration.v1.ServiceReference" => default(v, "port", 443),
        "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinition" => definition(v),
        "flowcontrol.v1.FlowSchemaSpec" => default_number(v, "matchingPrecedence", 1000),
        "flowcontrol.v1.ExemptPriorityLevelConfiguration" => {
            default(v, "nominalConcurrencyShares", 0);
            default(v, "lendablePercent", 0);
        }
        "flowcontrol.v1.LimitedPriorityLevelConfiguration" => {
            default(v, "nominalConcurrencyShares", 30);
            default(v, "lendablePercent", 0);
        }
        "flowcontrol.v1.QueuingConfiguration" => {
            default_number(v, "handSize", 8);
            default_number(v, "queues", 64);
            default_number(v, "queueLengthLimit", 50);
        }
        "resource.v1.ExactDeviceRequest" | "resource.v1.DeviceSubRequest" => {
            default_text(v, "allocationMode", "ExactCount");
            if text(v, "allocationMode") == "ExactCount" {
                default_number(v, "count", 1);
            }
        }
        other => workload::fill(other, v),
    }
}

const RBAC: &str = "rbac.authorization.k8s.io";

/// As [`default`], for plain numbers, whose zero means "not set".
fn default_number(v: &mut Value, path: &str, value: i64) {
    if number(v, path) == 0 {
        set(v, path, value);
    }
}

/// A single field that mirrors the first item of a newer list.
fn first_of_list(v: &mut Value, single: &str, many: &str) {
    let first = list(v, many).first().and_then(Value::as_str).map(str::to_owned);
    match first {
        Some(first) => set(v, single, first),
        None if !text(v, single).is_empty() => {
            let only = json!([text(v, single)]);
            set(v, many, only);
        }
        None => {}
    }
}

fn service(v: &mut Value) {
    default_text(v, "spec.sessionAffinity", "None");
    if text(v, "spec.sessionAffinity") == "None" {
        remove(v, "spec.sessionAffinityConfig");
    } else if text(v, "spec.sessionAffinity") == "ClientIP" {
        default(v, "spec.sessionAffinityConfig.clientIP.timeoutSeconds", 10_800);
    }
    default_text(v, "spec.type", "ClusterIP");
    for port in list_mut(v, "spec.ports") {
        default_text(port, "protocol", "TCP");
        if matches!(get(port, "targetPort"), None | Some(Value::Null)) || has_empty_target(port) {
            let same = number(port, "port");
            set(port, "targetPort", same);
        }
    }
    let kind = text(v, "spec.type").to_owned();
    let is_external = kind == "NodePort"
        || kind == "LoadBalancer"
        || (kind == "ClusterIP" && !list(v, "spec.externalIPs").is_empty());
    if is_external {
        default_text(v, "spec.externalTrafficPolicy", "Cluster");
    }
    if matches!(kind.as_str(), "NodePort" | "LoadBalancer" | "ClusterIP") {
        default(v, "spec.internalTrafficPolicy", "Cluster");
    }
    if kind == "LoadBalancer" {
        default(v, "spec.allocateLoadBalancerNodePorts", true);
        for ingress in list_mut(v, "status.loadBalancer.ingress") {
            if !text(ingress, "ip").is_empty() {
                default(ingress, "ipMode", "VIP");
            }
        }
    }
}

fn has_empty_target(port: &Value) -> bool {
    get(port, "targetPort").is_some_and(|target| target == &json!(0) || target == &json!(""))
}

/// `stringData` is for writing only.
fn secret(v: &mut Value) {
    use base64::Engine;
    if let Some(Value::Object(plain)) = remove(v, "stringData") {
        for (key, value) in plain {
            let encoded = base64::prelude::BASE64_STANDARD.encode(value.as_str().unwrap_or_default());
            if let Some(data) = crate::view::map_mut(v, "data") {
                data.insert(key, encoded.into());
            }
        }
    }
    default_text(v, "type", "Opaque");
}

fn namespace(v: &mut Value) {
    let name = text(v, "metadata.name").to_owned();
    if !name.is_empty()
        && let Some(labels) = crate::view::map_mut(v, "metadata.labels")
    {
        labels.insert("kubernetes.io/metadata.name".to_owned(), name.into());
    }
    default_text(v, "status.phase", "Active");
}

/// For containers: the default limit is the maximum, the default request is the limit, or else the minimum.
fn limit_range_item(v: &mut Value) {
    if text(v, "type") != "Container" {
        return;
    }
    for (into, from) in [("default", "max"), ("defaultRequest", "default"), ("defaultRequest", "min")] {
        let source = map(v, from).cloned().unwrap_or_default();
        add_missing(v, into, source);
    }
}

fn add_missing(v: &mut Value, into: &str, source: Map<String, Value>) {
    if source.is_empty() {
        return;
    }
    let Some(target) = crate::view::map_mut(v, into) else { return };
    for (key, value) in source {
        target.entry(key).or_insert(value);
    }
}

fn csi_driver(v: &mut Value) {
    default(v, "attachRequired", true);
    default(v, "podInfoOnMount", false);
    default(v, "storageCapacity", false);
    default(v, "fsGroupPolicy", "ReadWriteOnceWithFSType");
    if list(v, "volumeLifecycleModes").is_empty() {
        set(v, "volumeLifecycleModes", json!(["Persistent"]));
    }
    default(v, "requiresRepublish", false);
    default(v, "seLinuxMount", false);
}

fn network_policy(v: &mut Value) {
    if !list(v, "policyTypes").is_empty() {
        return;
    }
    let types = if list(v, "egress").is_empty() { json!(["Ingress"]) } else { json!(["Ingress", "Egress"]) };
    set(v, "policyTypes", types);
}

fn webhook(v: &mut Value) {
    default(v, "failurePolicy", "Fail");
    match_resources(v);
    default(v, "timeoutSeconds", 10);
}

fn match_resources(v: &mut Value) {
    default(v, "matchPolicy", "Equivalent");
    default(v, "namespaceSelector", json!({}));
    default(v, "objectSelector", json!({}));
}

fn definition(v: &mut Value) {
    let kind = text(v, "spec.names.kind").to_owned();
    default_text(v, "spec.names.singular", &kind.to_lowercase());
    if !kind.is_empty() {
        default_text(v, "spec.names.listKind", &format!("{kind}List"));
    }
    default(v, "spec.conversion", json!({"strategy": "None"}));
    if list(v, "status.storedVersions").is_empty() {
        let stored = list(v, "spec.versions").iter().find(|version| flag(version, "storage"));
        if let Some(name) = stored.map(|version| text(version, "name").to_owned()) {
            set(v, "status.storedVersions", json!([name]));
        }
    }
}

#[cfg(test)]
mod tests;
