//! Services.

use std::collections::BTreeSet;

use croft_meta::{FieldError, FieldErrors, names};
use serde_json::{Value, json};

use super::checks::{cidr, ip, named, not_special, one_of, port, port_or_name, protocol};
use super::spec;
use crate::view::{flag, get, has, int, list, number, strings, text};

pub(super) fn validate(object: &Value) -> FieldErrors {
    let mut errors = Vec::new();
    let kind = text(object, "spec.type");
    let is_headless = text(object, "spec.clusterIP") == "None";
    ports(&mut errors, object, kind, is_headless);
    if let Some(selector) = get(object, "spec.selector") {
        errors.extend(names::validate_labels(selector, &spec().child("selector")));
    }
    one_of(&mut errors, &spec().child("sessionAffinity"), text(object, "spec.sessionAffinity"), &["ClientIP", "None"]);
    if let Some(seconds) = int(object, "spec.sessionAffinityConfig.clientIP.timeoutSeconds")
        && !(1..=86_400).contains(&seconds)
    {
        let path = spec().child("sessionAffinityConfig").child("clientIP").child("timeoutSeconds");
        errors.push(FieldError::invalid(&path, seconds, "must be greater than 0 and less than 86400"));
    }
    let kinds = ["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"];
    one_of(&mut errors, &spec().child("type"), kind, &kinds);
    if kind == "ExternalName" {
        external_name(&mut errors, object);
    }
    cluster_ips(&mut errors, object, kind);
    for (index, address) in strings(object, "spec.externalIPs").iter().enumerate() {
        let path = spec().child("externalIPs").index(index);
        if ip(&mut errors, &path, address).is_some() {
            not_special(&mut errors, &path, address);
        }
    }
    traffic(&mut errors, object, kind);
    for (index, range) in strings(object, "spec.loadBalancerSourceRanges").iter().enumerate() {
        cidr(&mut errors, &spec().child("loadBalancerSourceRanges").index(index), range.trim());
    }
    if has(object, "spec.loadBalancerClass") && kind != "LoadBalancer" {
        let path = spec().child("loadBalancerClass");
        errors.push(FieldError::forbidden(&path, "may only be used when `type` is 'LoadBalancer'"));
    }
    if has(object, "spec.allocateLoadBalancerNodePorts") && kind != "LoadBalancer" {
        let path = spec().child("allocateLoadBalancerNodePorts");
        errors.push(FieldError::forbidden(&path, "may only be used when `type` is 'LoadBalancer'"));
    }
    errors
}

fn external_name(errors: &mut FieldErrors, object: &Value) {
    let path = spec().child("externalName");
    let name = text(object, "spec.externalName");
    // A trailing dot makes a name absolute.
    let name = name.strip_suffix('.').unwrap_or(name);
    if name.is_empty() {
        errors.push(FieldError::required(&path, ""));
    } else {
        named(errors, &path, name, names::is_dns1123_subdomain);
    }
}

fn ports(errors: &mut FieldErrors, object: &Value, kind: &str, is_headless: bool) {
    let all = list(object, "spec.ports");
    let path = spec().child("ports");
    if all.is_empty() && !is_headless && kind != "ExternalName" {
        errors.push(FieldError::required(&path, ""));
    }
    let mut names_seen = BTreeSet::new();
    let (mut seen, mut node_ports) = (BTreeSet::new(), BTreeSet::new());
    for (index, one) in all.iter().enumerate() {
        let path = path.index(index);
        let name = text(one, "name");
        if name.is_empty() {
            if all.len() > 1 {
                errors.push(FieldError::required(&path.child("name"), ""));
            }
        } else {
            named(errors, &path.child("name"), name, names::is_dns1123_label);
            if !names_seen.insert(name) {
                errors.push(FieldError::duplicate(&path.child("name"), name));
            }
        }
        port(errors, &path.child("port"), number(one, "port"));
        protocol(errors, &path.child("protocol"), text(one, "protocol"));
        port_or_name(errors, &path.child("targetPort"), get(one, "targetPort"));
        let key = (text(one, "protocol"), number(one, "port"));
        if !seen.insert(key) {
            errors.push(FieldError::duplicate(&path, json!({"protocol": key.0, "port": key.1})));
        }
        let node_port = number(one, "nodePort");
        if node_port != 0 && matches!(kind, "ClusterIP" | "ExternalName") {
            let text = format!("may not be used when `type` is '{kind}'");
            errors.push(FieldError::forbidden(&path.child("nodePort"), text));
        } else if node_port != 0 && !node_ports.insert((text(one, "protocol"), node_port)) {
            errors.push(FieldError::duplicate(&path.child("nodePort"), node_port));
        }
    }
}

fn cluster_ips(errors: &mut FieldErrors, object: &Value, kind: &str) {
    let ips = strings(object, "spec.clusterIPs");
    let path = spec().child("clusterIPs");
    if kind == "ExternalName" {
        if !ips.is_empty() {
            errors.push(FieldError::forbidden(&path.index(0), "may not be set when `type` is 'ExternalName'"));
        }
        return;
    }
    if let (Some(first), single) = (ips.first(), text(object, "spec.clusterIP"))
        && *first != single
    {
        errors.push(FieldError::invalid(&path, json!(ips), "first value must match `clusterIP`"));
    }
    if ips.contains(&"None") {
        if ips.len() > 1 {
            errors.push(FieldError::invalid(&path.index(0), "None", "'None' must be the first and only value"));
        }
        if matches!(kind, "NodePort" | "LoadBalancer") {
            let text = format!("may not be set to 'None' for {kind} services");
            errors.push(FieldError::invalid(&path.index(0), "None", text));
        }
        return;
    }
    for (index, address) in ips.iter().enumerate().filter(|(_, address)| !address.is_empty()) {
        ip(errors, &path.index(index), address);
    }
    for (index, family) in strings(object, "spec.ipFamilies").iter().enumerate() {
        one_of(errors, &spec().child("ipFamilies").index(index), family, &["IPv4", "IPv6"]);
    }
    let policy = text(object, "spec.ipFamilyPolicy");
    if !policy.is_empty() {
        let known = ["SingleStack", "PreferDualStack", "RequireDualStack"];
        one_of(errors, &spec().child("ipFamilyPolicy"), policy, &known);
    }
}

fn traffic(errors: &mut FieldErrors, object: &Value, kind: &str) {
    let is_external = matches!(kind, "NodePort" | "LoadBalancer")
        || (kind == "ClusterIP" && !list(object, "spec.externalIPs").is_empty());
    let policy = text(object, "spec.externalTrafficPolicy");
    let path = spec().child("externalTrafficPolicy");
    if is_external {
        one_of(errors, &path, policy, &["Cluster", "Local"]);
    } else if !policy.is_empty() {
        errors.push(FieldError::invalid(&path, policy, "may only be set for externally-accessible services"));
    }
    let health = number(object, "spec.healthCheckNodePort");
    if health != 0 && !(kind == "LoadBalancer" && policy == "Local") {
        let text = "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'";
        errors.push(FieldError::invalid(&spec().child("healthCheckNodePort"), health, text));
    }
    if let Some(internal) = get(object, "spec.internalTrafficPolicy").and_then(Value::as_str) {
        one_of(errors, &spec().child("internalTrafficPolicy"), internal, &["Cluster", "Local"]);
    }
}

/// An allocated address stays while the service has one.
pub(super) fn validate_update(new: &Value, old: &Value) -> FieldErrors {
    let mut errors = validate(new);
    let needs_ip = |object: &Value| text(object, "spec.type") != "ExternalName";
    if needs_ip(new) && needs_ip(old) {
        let (now, before) = (strings(new, "spec.clusterIPs"), strings(old, "spec.clusterIPs"));
        if let (Some(first), Some(was)) = (now.first(), before.first())
            && first != was
            && !was.is_empty()
        {
            let path = spec().child("clusterIPs").index(0);
            errors.push(FieldError::invalid(&path, json!(now), "may not change once set"));
        }
    }
    let was_lb = text(old, "spec.type") == "LoadBalancer" && text(new, "spec.type") == "LoadBalancer";
    if was_lb && get(new, "spec.loadBalancerClass") != get(old, "spec.loadBalancerClass") {
        let value = get(new, "spec.loadBalancerClass").cloned().unwrap_or(Value::Null);
        errors.push(FieldError::invalid(&spec().child("loadBalancerClass"), value, "may not change once set"));
    }
    errors
}

/// What a service needs from the allocators of the API server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServiceNeeds {
    /// An address must be chosen (`None` services and external names need none), or this one reserved.
    pub cluster_ip: Need<String>,
    /// By index into `spec.ports`.
    pub node_ports: Vec<(usize, Need<u16>)>,
    /// `healthCheckNodePort` of a load balancer with local traffic.
    pub health_check_port: Need<u16>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Need<T> {
    #[default]
    Nothing,
    /// Any free one.
    Any,
    /// The one that the object names.
    This(T),
}

/// Reads a defaulted and prepared Service.
pub fn service_needs(object: &Value) -> ServiceNeeds {
    let kind = text(object, "spec.type");
    let as_port = |number: i64| match u16::try_from(number) {
        Ok(0) | Err(_) => Need::Any,
        Ok(port) => Need::This(port),
    };
    let allocates =
        has(object, "spec.allocateLoadBalancerNodePorts").then(|| flag(object, "spec.allocateLoadBalancerNodePorts"));
    let wants_node_ports = kind == "NodePort" || (kind == "LoadBalancer" && allocates.unwrap_or(true));
    let node_ports = list(object, "spec.ports")
        .iter()
        .enumerate()
        .filter(|(_, port)| wants_node_ports || (kind == "LoadBalancer" && has(port, "nodePort")))
        .map(|(index, port)| (index, as_port(number(port, "nodePort"))))
        .collect();
    let is_local = kind == "LoadBalancer" && text(object, "spec.externalTrafficPolicy") == "Local";
    ServiceNeeds {
        cluster_ip: match (kind, text(object, "spec.clusterIP")) {
            ("ExternalName", _) | (_, "None") => Need::Nothing,
            (_, "") => Need::Any,
            (_, address) => Need::This(address.to_owned()),
        },
        node_ports,
        health_check_port: if is_local { as_port(number(object, "spec.healthCheckNodePort")) } else { Need::Nothing },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn needs_follow_the_type() {
        let needs = |spec: Value| service_needs(&json!({"spec": spec}));
        assert_eq!(needs(json!({"type": "ExternalName"})), ServiceNeeds::default());
        assert_eq!(needs(json!({"type": "ClusterIP", "clusterIP": "None"})), ServiceNeeds::default());
        let ports = json!([{"port": 80}, {"port": 81, "nodePort": 30001}]);
        let got = needs(json!({"type": "NodePort", "ports": ports}));
        assert_eq!(got.cluster_ip, Need::Any);
        assert_eq!(got.node_ports, [(0, Need::Any), (1, Need::This(30001))]);
        let got = needs(json!({"type": "LoadBalancer", "allocateLoadBalancerNodePorts": false, "ports": ports}));
        assert_eq!(got.node_ports, [(1, Need::This(30001))]);
    }
}
