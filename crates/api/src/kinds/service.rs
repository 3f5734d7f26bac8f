//! What a write of a Service may not decide, and what becomes of its fields when its type changes.

use serde_json::{Value, json};

use super::prepare::{keep_status, reset_status};
use crate::view::{get, has, list, list_mut, number, remove, restore, set, strings, text};

pub(super) fn create(v: &mut Value) {
    reset_status(v, None);
    if text(v, "spec.type") == "ExternalName" {
        return;
    }
    same_cluster_ips(v, None);
}

pub(super) fn update(v: &mut Value, old: &Value) {
    keep_status(v, old);
    drop_what_the_type_lacks(v, old);
    keep_allocated(v, old);
    same_cluster_ips(v, Some(old));
}

fn needs_ip(v: &Value) -> bool {
    matches!(text(v, "spec.type"), "ClusterIP" | "NodePort" | "LoadBalancer")
}

fn may_have_node_ports(v: &Value) -> bool {
    matches!(text(v, "spec.type"), "NodePort" | "LoadBalancer")
}

fn needs_node_ports(v: &Value) -> bool {
    let allocates = get(v, "spec.allocateLoadBalancerNodePorts").and_then(Value::as_bool).unwrap_or(true);
    text(v, "spec.type") == "NodePort" || (text(v, "spec.type") == "LoadBalancer" && allocates)
}

fn needs_health_check_port(v: &Value) -> bool {
    text(v, "spec.type") == "LoadBalancer" && text(v, "spec.externalTrafficPolicy") == "Local"
}

fn is_reached_from_outside(v: &Value) -> bool {
    may_have_node_ports(v) || (text(v, "spec.type") == "ClusterIP" && !list(v, "spec.externalIPs").is_empty())
}

fn node_ports(v: &Value) -> Vec<i64> {
    list(v, "spec.ports").iter().map(|port| number(port, "nodePort")).filter(|port| *port != 0).collect()
}

/// A field that was given to the service by itself goes with the type that needed it, unless the client changed it too:
/// then validation has its say. As upstream's `dropTypeDependentFields`.
fn drop_what_the_type_lacks(v: &mut Value, old: &Value) {
    let is_same = |v: &Value, field: &str| get(v, field) == get(old, field);
    if needs_ip(old) && !needs_ip(v) {
        if is_same(v, "spec.clusterIP") && is_same(v, "spec.clusterIPs") {
            remove(v, "spec.clusterIP");
            remove(v, "spec.clusterIPs");
        }
        for field in ["spec.ipFamilies", "spec.ipFamilyPolicy"] {
            if is_same(v, field) {
                remove(v, field);
            }
        }
    }
    let held = node_ports(old);
    if may_have_node_ports(old) && !may_have_node_ports(v) && node_ports(v).iter().all(|port| held.contains(port)) {
        for port in list_mut(v, "spec.ports") {
            remove(port, "nodePort");
        }
    }
    if needs_health_check_port(old) && !needs_health_check_port(v) && is_same(v, "spec.healthCheckNodePort") {
        remove(v, "spec.healthCheckNodePort");
    }
    if text(old, "spec.type") == "LoadBalancer" && text(v, "spec.type") != "LoadBalancer" {
        for field in ["spec.allocateLoadBalancerNodePorts", "spec.loadBalancerClass"] {
            if is_same(v, field) {
                remove(v, field);
            }
        }
    }
    if is_reached_from_outside(old) && !is_reached_from_outside(v) && is_same(v, "spec.externalTrafficPolicy") {
        remove(v, "spec.externalTrafficPolicy");
    }
    if text(v, "spec.type") != "LoadBalancer" && has(v, "status.loadBalancer") {
        set(v, "status.loadBalancer", json!({}));
    }
}

/// A client that leaves out what was allocated does not mean to give it up, as long as the type still needs it.
fn keep_allocated(v: &mut Value, old: &Value) {
    if needs_ip(v) && needs_ip(old) && text(v, "spec.clusterIP").is_empty() {
        restore(v, old, "spec.clusterIP");
    }
    let is_same_ip = text(v, "spec.clusterIP") == text(old, "spec.clusterIP");
    if needs_ip(v) && needs_ip(old) && is_same_ip && strings(v, "spec.clusterIPs").is_empty() {
        restore(v, old, "spec.clusterIPs");
    }
    if needs_ip(v) && needs_ip(old) {
        for field in ["spec.ipFamilies", "spec.ipFamilyPolicy"] {
            if !has(v, field) {
                restore(v, old, field);
            }
        }
    }
    if needs_node_ports(v) && needs_node_ports(old) {
        keep_node_ports(v, old);
    }
    if needs_health_check_port(v) && needs_health_check_port(old) && !has(v, "spec.healthCheckNodePort") {
        restore(v, old, "spec.healthCheckNodePort");
    }
}

/// Ports are the same if their names are, whatever else about them has changed.
fn keep_node_ports(v: &mut Value, old: &Value) {
    let named = node_ports(v);
    for port in list_mut(v, "spec.ports").filter(|port| number(port, "nodePort") == 0) {
        let before = list(old, "spec.ports").iter().rfind(|before| text(before, "name") == text(port, "name"));
        let held = before.map(|before| number(before, "nodePort")).unwrap_or_default();
        if held != 0 && !named.contains(&held) {
            set(port, "nodePort", held);
        }
    }
}

/// `clusterIP` is the first of `clusterIPs`; a client that knows only one of them sets both.
fn same_cluster_ips(v: &mut Value, old: Option<&Value>) {
    let ip = text(v, "spec.clusterIP").to_owned();
    let ips: Vec<String> = strings(v, "spec.clusterIPs").into_iter().map(str::to_owned).collect();
    let Some(old) = old else {
        if !ip.is_empty() && ips.is_empty() {
            set(v, "spec.clusterIPs", json!([ip]));
        }
        return;
    };
    let is_ip_changed = ip != text(old, "spec.clusterIP");
    let are_ips_changed = ips != strings(old, "spec.clusterIPs");
    if is_ip_changed && !are_ips_changed {
        if ip.is_empty() {
            remove(v, "spec.clusterIPs");
        } else {
            set(v, "spec.clusterIPs", json!([ip]));
        }
    } else if ip.is_empty() && is_ip_changed {
        remove(v, "spec.clusterIPs");
    } else if !ip.is_empty() && ips.is_empty() {
        set(v, "spec.clusterIPs", json!([ip]));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allocated_addresses_survive_an_update_that_omits_them() {
        let old = json!({"spec": {
            "type": "NodePort", "clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.1"], "ipFamilies": ["IPv4"],
            "ports": [{"port": 80, "protocol": "TCP", "nodePort": 30001}],
        }});
        let mut new = json!({"spec": {"type": "NodePort", "ports": [{"port": 80, "protocol": "TCP"}]}});
        update(&mut new, &old);
        assert_eq!(new["spec"], old["spec"]);
    }

    #[test]
    fn node_ports_follow_the_names_of_ports() {
        let old = json!({"spec": {"type": "NodePort", "ports": [
            {"name": "a", "port": 80, "nodePort": 30001}, {"name": "b", "port": 81, "nodePort": 30002}]}});
        let ports =
            json!([{"name": "b", "port": 91}, {"name": "c", "port": 92}, {"name": "a", "port": 80, "nodePort": 30003}]);
        let mut new = json!({"spec": {"type": "LoadBalancer", "ports": ports}});
        update(&mut new, &old);
        let held: Vec<&Value> = list(&new, "spec.ports").iter().map(|port| &port["nodePort"]).collect();
        assert_eq!(held, [&json!(30002), &Value::Null, &json!(30003)]);
    }

    #[test]
    fn what_the_new_type_lacks_goes_unless_it_was_changed() {
        let old = json!({"spec": {
            "type": "NodePort", "clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.1"], "ipFamilies": ["IPv4"],
            "ipFamilyPolicy": "SingleStack", "externalTrafficPolicy": "Cluster", "internalTrafficPolicy": "Cluster",
            "ports": [{"port": 80, "protocol": "TCP", "nodePort": 30001}],
        }});
        let mut new = old.clone();
        new["spec"]["type"] = json!("ExternalName");
        update(&mut new, &old);
        let left = json!({"type": "ExternalName", "internalTrafficPolicy": "Cluster", "ports": [{"port": 80, "protocol": "TCP"}]});
        assert_eq!(new["spec"], left);
        let mut new = old.clone();
        new["spec"]["type"] = json!("ExternalName");
        new["spec"]["clusterIP"] = json!("10.0.0.2");
        new["spec"]["ports"][0]["nodePort"] = json!(30002);
        update(&mut new, &old);
        assert_eq!(
            (&new["spec"]["clusterIP"], &new["spec"]["ports"][0]["nodePort"]),
            (&json!("10.0.0.2"), &json!(30002))
        );
    }
}
