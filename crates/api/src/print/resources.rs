//! Nodes, namespaces, configuration, services and volumes.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{
    NONE, UNKNOWN, UNSET, age, condition, is_true, labels, name, or_else, quantity, selector_or_none, since, with_more,
};
use crate::view::{flag, get, has, int, list, map, number, strings, text};

pub(crate) fn namespace(object: &Value, now: i64) -> Vec<Value> {
    vec![json!(name(object)), json!(text(object, "status.phase")), json!(age(object, now))]
}

pub(crate) fn component_status(object: &Value, _now: i64) -> Vec<Value> {
    let healthy = condition(object, "conditions", "Healthy");
    let status = healthy.map_or("Unknown", |c| if text(c, "status") == "True" { "Healthy" } else { "Unhealthy" });
    let field = |path| healthy.map_or("", |c| text(c, path));
    vec![json!(name(object)), json!(status), json!(field("message")), json!(field("error"))]
}

pub(crate) fn config_map(object: &Value, now: i64) -> Vec<Value> {
    let count = |path| map(object, path).map_or(0, serde_json::Map::len);
    vec![json!(name(object)), json!(count("data") + count("binaryData")), json!(age(object, now))]
}

pub(crate) fn secret(object: &Value, now: i64) -> Vec<Value> {
    let count = map(object, "data").map_or(0, serde_json::Map::len);
    vec![json!(name(object)), json!(text(object, "type")), json!(count), json!(age(object, now))]
}

pub(crate) fn service_account(object: &Value, now: i64) -> Vec<Value> {
    vec![json!(name(object)), json!(list(object, "secrets").len()), json!(age(object, now))]
}

pub(crate) fn node(object: &Value, now: i64) -> Vec<Value> {
    let ready = match condition(object, "status.conditions", "Ready") {
        Some(c) if text(c, "status") == "True" => "Ready",
        Some(_) => "NotReady",
        None => "Unknown",
    };
    let status =
        if flag(object, "spec.unschedulable") { format!("{ready},SchedulingDisabled") } else { ready.to_owned() };
    let info = |field: &str| text(object, &format!("status.nodeInfo.{field}")).to_owned();
    let info_or_unknown = |field: &str| or_else(&info(field), UNKNOWN).to_owned();
    let address = |kind: &str| {
        let found = list(object, "status.addresses").iter().find(|a| text(a, "type") == kind);
        found.map_or(NONE, |a| text(a, "address")).to_owned()
    };
    vec![
        json!(name(object)),
        json!(status),
        json!(node_roles(object)),
        json!(age(object, now)),
        json!(info("kubeletVersion")),
        json!(address("InternalIP")),
        json!(address("ExternalIP")),
        json!(info_or_unknown("osImage")),
        json!(info_or_unknown("kernelVersion")),
        json!(info_or_unknown("containerRuntimeVersion")),
    ]
}

fn node_roles(object: &Value) -> String {
    let mut roles = BTreeSet::new();
    for (key, value) in map(object, "metadata.labels").into_iter().flatten() {
        let role = match key.strip_prefix("node-role.kubernetes.io/") {
            Some(role) => role,
            None if key == "kubernetes.io/role" => value.as_str().unwrap_or_default(),
            None => continue,
        };
        if !role.is_empty() {
            roles.insert(role);
        }
    }
    let roles = roles.into_iter().collect::<Vec<_>>().join(",");
    or_else(&roles, NONE).to_owned()
}

pub(crate) fn resource_quota(object: &Value, now: i64) -> Vec<Value> {
    let (mut requests, mut limits) = (Vec::new(), Vec::new());
    for (resource, hard) in map(object, "status.hard").into_iter().flatten() {
        let used = map(object, "status.used").and_then(|used| used.get(resource));
        let cell = format!("{resource}: {}/{}", quantity(used), quantity(Some(hard)));
        if resource.starts_with("limits.") { limits.push(cell) } else { requests.push(cell) }
    }
    vec![json!(name(object)), json!(requests.join(", ")), json!(limits.join(", ")), json!(age(object, now))]
}

/// Serves both event groups: whichever of the old and new fields are set.
pub(crate) fn event(object: &Value, now: i64) -> Vec<Value> {
    let pick = |paths: &[&str]| paths.iter().map(|p| text(object, p)).find(|t| !t.is_empty()).unwrap_or_default();
    let target_field = |field: &str| {
        let old = text(object, &format!("involvedObject.{field}"));
        if old.is_empty() { text(object, &format!("regarding.{field}")) } else { old }
    };
    let first = since(pick(&["firstTimestamp", "deprecatedFirstTimestamp", "eventTime"]), now);
    let mut last = match pick(&["lastTimestamp", "deprecatedLastTimestamp"]) {
        "" => first.clone(),
        time => since(time, now),
    };
    let mut count = int(object, "count").or_else(|| int(object, "deprecatedCount")).unwrap_or_default();
    if has(object, "series") {
        last = since(text(object, "series.lastObservedTime"), now);
        count = number(object, "series.count");
    } else if count == 0 {
        count = 1;
    }
    let kind = target_field("kind").to_lowercase();
    let target = match target_field("name") {
        "" => kind,
        name => format!("{kind}/{name}"),
    };
    let component =
        pick(&["source.component", "deprecatedSource.component", "reportingComponent", "reportingController"]);
    let host = pick(&["source.host", "deprecatedSource.host", "reportingInstance"]);
    let source = if host.is_empty() { component.to_owned() } else { format!("{component}, {host}") };
    vec![
        json!(last),
        json!(text(object, "type")),
        json!(text(object, "reason")),
        json!(target),
        json!(target_field("fieldPath")),
        json!(source),
        json!(pick(&["message", "note"]).trim()),
        json!(first),
        json!(count),
        json!(name(object)),
    ]
}

pub(crate) fn endpoints(object: &Value, now: i64) -> Vec<Value> {
    const SHOWN: usize = 3;
    let (mut shown, mut count) = (Vec::new(), 0);
    for subset in list(object, "subsets") {
        let addresses = list(subset, "addresses");
        let ports = list(subset, "ports");
        // A headless service may have addresses and no ports.
        let ports: Vec<Option<i64>> =
            if ports.is_empty() { vec![None] } else { ports.iter().map(|p| Some(number(p, "port"))).collect() };
        for port in ports {
            count += addresses.len();
            for address in addresses.iter().take(SHOWN) {
                let ip = text(address, "ip");
                shown.push(match port {
                    Some(port) if ip.contains(':') => format!("[{ip}]:{port}"),
                    Some(port) => format!("{ip}:{port}"),
                    None => ip.to_owned(),
                });
            }
        }
    }
    let cell = if list(object, "subsets").is_empty() { NONE.to_owned() } else { with_more(&shown, count, SHOWN, "") };
    vec![json!(name(object)), json!(cell), json!(age(object, now))]
}

pub(crate) fn endpoint_slice(object: &Value, now: i64) -> Vec<Value> {
    let ports: Vec<String> = list(object, "ports")
        .iter()
        .map(|port| match (int(port, "port"), get(port, "name").and_then(Value::as_str)) {
            (Some(number), _) => number.to_string(),
            (None, Some(name)) => name.to_owned(),
            (None, None) => "*".to_owned(),
        })
        .collect();
    let addresses: Vec<String> =
        list(object, "endpoints").iter().flat_map(|e| strings(e, "addresses")).map(str::to_owned).collect();
    vec![
        json!(name(object)),
        json!(text(object, "addressType")),
        json!(with_more(&ports, ports.len(), 3, UNSET)),
        json!(with_more(&addresses, addresses.len(), 3, UNSET)),
        json!(age(object, now)),
    ]
}

pub(crate) fn service(object: &Value, now: i64) -> Vec<Value> {
    let ports: Vec<String> = list(object, "spec.ports")
        .iter()
        .map(|port| {
            let (number_, protocol) = (number(port, "port"), text(port, "protocol"));
            match number(port, "nodePort") {
                0 => format!("{number_}/{protocol}"),
                node_port => format!("{number_}:{node_port}/{protocol}"),
            }
        })
        .collect();
    let cluster_ip = strings(object, "spec.clusterIPs").first().copied().unwrap_or(NONE).to_owned();
    vec![
        json!(name(object)),
        json!(text(object, "spec.type")),
        json!(cluster_ip),
        json!(external_ip(object)),
        json!(or_else(&ports.join(","), NONE)),
        json!(age(object, now)),
        json!(labels(object, "spec.selector")),
    ]
}

fn external_ip(object: &Value) -> String {
    let own = strings(object, "spec.externalIPs");
    match text(object, "spec.type") {
        "ClusterIP" | "NodePort" => or_else(&own.join(","), NONE).to_owned(),
        "LoadBalancer" => {
            let mut all: Vec<String> = load_balancer(object).into_iter().collect();
            all.extend(own.into_iter().map(str::to_owned));
            or_else(&all.join(","), "<pending>").to_owned()
        }
        "ExternalName" => text(object, "spec.externalName").to_owned(),
        _ => UNKNOWN.to_owned(),
    }
}

fn load_balancer(object: &Value) -> BTreeSet<String> {
    list(object, "status.loadBalancer.ingress")
        .iter()
        .map(|ingress| or_else(text(ingress, "ip"), text(ingress, "hostname")).to_owned())
        .filter(|address| !address.is_empty())
        .collect()
}

pub(crate) fn ingress(object: &Value, now: i64) -> Vec<Value> {
    let class = get(object, "spec.ingressClassName").and_then(Value::as_str).unwrap_or(NONE);
    let address = load_balancer(object).into_iter().collect::<Vec<_>>().join(",");
    let ports = if list(object, "spec.tls").is_empty() { "80" } else { "80, 443" };
    vec![
        json!(name(object)),
        json!(class),
        json!(hosts(list(object, "spec.rules"))),
        json!(address),
        json!(ports),
        json!(age(object, now)),
    ]
}

/// Upstream counts every rule once three hosts are shown, host or not.
fn hosts(rules: &[Value]) -> String {
    let (mut shown, mut more) = (Vec::new(), false);
    for rule in rules {
        if shown.len() == 3 {
            more = true;
        }
        let host = text(rule, "host");
        if !more && !host.is_empty() {
            shown.push(host);
        }
    }
    if shown.is_empty() {
        return "*".to_owned();
    }
    let joined = shown.join(",");
    if more { format!("{joined} + {} more...", rules.len() - 3) } else { joined }
}

pub(crate) fn ingress_class(object: &Value, now: i64) -> Vec<Value> {
    let parameters = get(object, "spec.parameters").map_or_else(
        || NONE.to_owned(),
        |parameters| {
            let group = get(parameters, "apiGroup").and_then(Value::as_str);
            let group = group.map(|g| format!(".{g}")).unwrap_or_default();
            format!("{}{group}/{}", text(parameters, "kind"), text(parameters, "name"))
        },
    );
    vec![json!(name(object)), json!(text(object, "spec.controller")), json!(parameters), json!(age(object, now))]
}

pub(crate) fn network_policy(object: &Value, now: i64) -> Vec<Value> {
    vec![json!(name(object)), json!(selector_or_none(object, "spec.podSelector")), json!(age(object, now))]
}

pub(crate) fn service_cidr(object: &Value, now: i64) -> Vec<Value> {
    vec![json!(name(object)), json!(strings(object, "spec.cidrs").join(",")), json!(age(object, now))]
}

pub(crate) fn ip_address(object: &Value, _now: i64) -> Vec<Value> {
    let parent = get(object, "spec.parentRef").map_or_else(
        || NONE.to_owned(),
        |parent| {
            let resource = croft_meta::gvk::group_resource(text(parent, "group"), text(parent, "resource"));
            let mut path = resource.to_lowercase();
            for part in [text(parent, "namespace"), text(parent, "name")].into_iter().filter(|p| !p.is_empty()) {
                path.push('/');
                path.push_str(part);
            }
            path
        },
    );
    vec![json!(name(object)), json!(parent)]
}

/// `RWO,ROX,...` in upstream's order.
fn access_modes(modes: &[&str]) -> String {
    [("ReadWriteOnce", "RWO"), ("ReadOnlyMany", "ROX"), ("ReadWriteMany", "RWX"), ("ReadWriteOncePod", "RWOP")]
        .into_iter()
        .filter(|(mode, _)| modes.contains(mode))
        .map(|(_, short)| short)
        .collect::<Vec<_>>()
        .join(",")
}

/// The class, which old objects carry as an annotation.
fn storage_class_name(object: &Value) -> &str {
    let annotation = "volume.beta.kubernetes.io/storage-class";
    croft_meta::object::annotation(object, annotation).unwrap_or_else(|| text(object, "spec.storageClassName"))
}

fn volume_phase(object: &Value) -> &str {
    if has(object, "metadata.deletionTimestamp") { "Terminating" } else { text(object, "status.phase") }
}

fn text_or_unset<'a>(object: &'a Value, path: &str) -> &'a str {
    get(object, path).and_then(Value::as_str).unwrap_or(UNSET)
}

pub(crate) fn persistent_volume(object: &Value, now: i64) -> Vec<Value> {
    let claim = get(object, "spec.claimRef")
        .map(|claim| format!("{}/{}", text(claim, "namespace"), text(claim, "name")))
        .unwrap_or_default();
    vec![
        json!(name(object)),
        json!(quantity(get(object, "spec.capacity.storage"))),
        json!(access_modes(&strings(object, "spec.accessModes"))),
        json!(text(object, "spec.persistentVolumeReclaimPolicy")),
        json!(volume_phase(object)),
        json!(claim),
        json!(storage_class_name(object)),
        json!(text_or_unset(object, "spec.volumeAttributesClassName")),
        json!(text(object, "status.reason")),
        json!(age(object, now)),
        json!(text_or_unset(object, "spec.volumeMode")),
    ]
}

pub(crate) fn persistent_volume_claim(object: &Value, now: i64) -> Vec<Value> {
    let volume = text(object, "spec.volumeName");
    // A claim shows what it got, once it got something.
    let (capacity, modes) = if volume.is_empty() {
        (String::new(), String::new())
    } else {
        let modes = access_modes(&strings(object, "status.accessModes"));
        (quantity(get(object, "status.capacity.storage")), modes)
    };
    vec![
        json!(name(object)),
        json!(volume_phase(object)),
        json!(volume),
        json!(capacity),
        json!(modes),
        json!(storage_class_name(object)),
        json!(text_or_unset(object, "spec.volumeAttributesClassName")),
        json!(age(object, now)),
        json!(text_or_unset(object, "spec.volumeMode")),
    ]
}

pub(crate) fn storage_class(object: &Value, now: i64) -> Vec<Value> {
    let is_default =
        ["storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class"]
            .iter()
            .any(|key| croft_meta::object::annotation(object, key) == Some("true"));
    let suffix = if is_default { " (default)" } else { "" };
    vec![
        json!(format!("{}{suffix}", name(object))),
        json!(text(object, "provisioner")),
        json!(or_else(text(object, "reclaimPolicy"), "Delete")),
        json!(or_else(text(object, "volumeBindingMode"), "Immediate")),
        json!(flag(object, "allowVolumeExpansion")),
        json!(age(object, now)),
    ]
}

pub(crate) fn volume_attributes_class(object: &Value, now: i64) -> Vec<Value> {
    vec![json!(name(object)), json!(text(object, "driverName")), json!(age(object, now))]
}

pub(crate) fn volume_attachment(object: &Value, now: i64) -> Vec<Value> {
    vec![
        json!(name(object)),
        json!(text(object, "spec.attacher")),
        json!(text(object, "spec.source.persistentVolumeName")),
        json!(text(object, "spec.nodeName")),
        json!(flag(object, "status.attached")),
        json!(age(object, now)),
    ]
}

pub(crate) fn csi_driver(object: &Value, now: i64) -> Vec<Value> {
    let attach = get(object, "spec.attachRequired").and_then(Value::as_bool).unwrap_or(true);
    let tokens = if has(object, "spec.tokenRequests") {
        list(object, "spec.tokenRequests").iter().map(|t| text(t, "audience")).collect::<Vec<_>>().join(",")
    } else {
        UNSET.to_owned()
    };
    vec![
        json!(name(object)),
        json!(attach),
        json!(flag(object, "spec.podInfoOnMount")),
        json!(flag(object, "spec.storageCapacity")),
        json!(tokens),
        json!(flag(object, "spec.requiresRepublish")),
        json!(or_else(&strings(object, "spec.volumeLifecycleModes").join(","), NONE)),
        json!(age(object, now)),
    ]
}

pub(crate) fn csi_node(object: &Value, now: i64) -> Vec<Value> {
    vec![json!(name(object)), json!(list(object, "spec.drivers").len()), json!(age(object, now))]
}

pub(crate) fn runtime_class(object: &Value, now: i64) -> Vec<Value> {
    vec![json!(name(object)), json!(text(object, "handler")), json!(age(object, now))]
}

pub(crate) fn lease(object: &Value, now: i64) -> Vec<Value> {
    vec![json!(name(object)), json!(text(object, "spec.holderIdentity")), json!(age(object, now))]
}

/// `Available` as an APIService reports it.
pub(crate) fn api_service(object: &Value, now: i64) -> Vec<Value> {
    let service = get(object, "spec.service").map_or_else(
        || "Local".to_owned(),
        |service| format!("{}/{}", text(service, "namespace"), text(service, "name")),
    );
    let available = match condition(object, "status.conditions", "Available") {
        Some(_) if is_true(object, "Available") => "True".to_owned(),
        Some(c) if !text(c, "reason").is_empty() => format!("{} ({})", text(c, "status"), text(c, "reason")),
        Some(c) => text(c, "status").to_owned(),
        None => "Unknown".to_owned(),
    };
    vec![json!(name(object)), json!(service), json!(available), json!(age(object, now))]
}
