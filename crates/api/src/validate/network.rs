//! Endpoints, ingresses and network policies.

use croft_meta::{FieldError, FieldErrors, FieldPath, names};
use serde_json::Value;

use super::checks::{
    BAD_IP, cidr, ip, named, not_special, one_of, port, port_name, port_or_name, protocol, required, selector,
    unchanged,
};
use super::spec;
use crate::view::{get, has, int, list, number, strings, text};

pub(super) fn endpoints(object: &Value) -> FieldErrors {
    let mut errors = Vec::new();
    for (index, subset) in list(object, "subsets").iter().enumerate() {
        let path = FieldPath::new("subsets").index(index);
        if list(subset, "addresses").is_empty() && list(subset, "notReadyAddresses").is_empty() {
            errors.push(FieldError::required(&path, "must specify `addresses` or `notReadyAddresses`"));
        }
        for field in ["addresses", "notReadyAddresses"] {
            for (index, address) in list(subset, field).iter().enumerate() {
                let path = path.child(field).index(index).child("ip");
                ip(&mut errors, &path, text(address, "ip"));
                not_special(&mut errors, &path, text(address, "ip"));
            }
        }
        let ports = list(subset, "ports");
        for (index, one) in ports.iter().enumerate() {
            let path = path.child("ports").index(index);
            let name = text(one, "name");
            if name.is_empty() && ports.len() > 1 {
                errors.push(FieldError::required(&path.child("name"), ""));
            } else if !name.is_empty() {
                named(&mut errors, &path.child("name"), name, names::is_dns1123_label);
            }
            port(&mut errors, &path.child("port"), number(one, "port"));
            protocol(&mut errors, &path.child("protocol"), text(one, "protocol"));
        }
    }
    errors
}

pub(super) fn endpoint_slice(object: &Value) -> FieldErrors {
    let mut errors = Vec::new();
    let kind = text(object, "addressType");
    let path = FieldPath::new("addressType");
    if kind.is_empty() {
        errors.push(FieldError::required(&path, ""));
    } else {
        one_of(&mut errors, &path, kind, &["FQDN", "IPv4", "IPv6"]);
    }
    for (index, endpoint) in list(object, "endpoints").iter().enumerate() {
        let path = FieldPath::new("endpoints").index(index).child("addresses");
        let addresses = strings(endpoint, "addresses");
        if addresses.is_empty() {
            errors.push(FieldError::required(&path, "must contain at least 1 address"));
        }
        for (index, address) in addresses.iter().enumerate() {
            let path = path.index(index);
            match kind {
                "IPv4" | "IPv6" if ip(&mut errors, &path, address).is_some() => {
                    not_special(&mut errors, &path, address);
                }
                "FQDN" => named(&mut errors, &path, address, names::is_dns1123_subdomain),
                _ => {}
            }
        }
    }
    let mut seen = std::collections::BTreeSet::new();
    for (index, one) in list(object, "ports").iter().enumerate() {
        let path = FieldPath::new("ports").index(index);
        let name = text(one, "name");
        if !name.is_empty() {
            named(&mut errors, &path.child("name"), name, names::is_dns1123_label);
        }
        if !seen.insert(name) {
            errors.push(FieldError::duplicate(&path.child("name"), name));
        }
        protocol(&mut errors, &path.child("protocol"), text(one, "protocol"));
        if let Some(number) = int(one, "port") {
            port(&mut errors, &path.child("port"), number);
        }
    }
    errors
}

pub(super) fn endpoint_slice_update(new: &Value, old: &Value) -> FieldErrors {
    let mut errors = endpoint_slice(new);
    unchanged(&mut errors, new, old, "addressType");
    errors
}

pub(super) fn ingress(object: &Value) -> FieldErrors {
    let mut errors = Vec::new();
    if list(object, "spec.rules").is_empty() && !has(object, "spec.defaultBackend") {
        let text = "either `defaultBackend` or `rules` must be specified";
        errors.push(FieldError::invalid(&spec(), Value::Null, text));
    }
    if let Some(found) = get(object, "spec.defaultBackend") {
        backend(&mut errors, found, &spec().child("defaultBackend"));
    }
    for (index, rule) in list(object, "spec.rules").iter().enumerate() {
        let path = spec().child("rules").index(index);
        host(&mut errors, text(rule, "host"), &path.child("host"));
        let Some(http) = get(rule, "http") else { continue };
        let path = path.child("http").child("paths");
        if list(http, "paths").is_empty() {
            errors.push(FieldError::required(&path, ""));
        }
        for (index, one) in list(http, "paths").iter().enumerate() {
            http_path(&mut errors, one, &path.index(index));
        }
    }
    let class = text(object, "spec.ingressClassName");
    if !class.is_empty() {
        named(&mut errors, &spec().child("ingressClassName"), class, names::is_dns1123_subdomain);
    }
    errors
}

fn host(errors: &mut FieldErrors, host: &str, path: &FieldPath) {
    if host.is_empty() {
        return;
    }
    if host.parse::<std::net::IpAddr>().is_ok() {
        errors.push(FieldError::invalid(path, host, "must be a DNS name, not an IP address"));
    } else if host.contains('*') {
        let rest = host.strip_prefix("*.").unwrap_or_default();
        if rest.is_empty() || !names::is_dns1123_subdomain(rest).is_empty() {
            errors.push(FieldError::invalid(path, host, WILDCARD));
        }
    } else {
        named(errors, path, host, names::is_dns1123_subdomain);
    }
}

const WILDCARD: &str = r"a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, which must consist of lower case alphanumeric characters, '-' or '.' and end with an alphanumeric character (e.g. '*.example.com', regex used for validation is '\*\.[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";

fn http_path(errors: &mut FieldErrors, one: &Value, path: &FieldPath) {
    let at = text(one, "path");
    let Some(kind) = get(one, "pathType").and_then(Value::as_str) else {
        errors.push(FieldError::required(&path.child("pathType"), "pathType must be specified"));
        return;
    };
    match kind {
        "Exact" | "Prefix" => {
            if !at.starts_with('/') {
                errors.push(FieldError::invalid(&path.child("path"), at, "must be an absolute path"));
            }
            for bad in ["//", "/./", "/../", "%2f", "%2F"].iter().filter(|bad| at.contains(**bad)) {
                errors.push(FieldError::invalid(&path.child("path"), at, format!("must not contain '{bad}'")));
            }
        }
        "ImplementationSpecific" => {
            if !at.is_empty() && !at.starts_with('/') {
                errors.push(FieldError::invalid(&path.child("path"), at, "must be an absolute path"));
            }
        }
        other => errors.push(FieldError::not_supported(
            &path.child("pathType"),
            other,
            &["Exact", "ImplementationSpecific", "Prefix"],
        )),
    }
    backend(errors, one.get("backend").unwrap_or(&Value::Null), &path.child("backend"));
}

fn backend(errors: &mut FieldErrors, backend: &Value, path: &FieldPath) {
    let Some(service) = get(backend, "service") else {
        if !has(backend, "resource") {
            errors.push(FieldError::invalid(path, "", "resource or service backend is required"));
        }
        return;
    };
    if has(backend, "resource") {
        errors.push(FieldError::invalid(path, "", "cannot set both resource and service backends"));
        return;
    }
    let name = text(service, "name");
    if name.is_empty() {
        errors.push(FieldError::required(&path.child("service").child("name"), ""));
    } else {
        named(errors, &path.child("service").child("name"), name, names::is_dns1035_label);
    }
    let (port_name_, number_) = (text(service, "port.name"), number(service, "port.number"));
    if !port_name_.is_empty() && number_ != 0 {
        errors.push(FieldError::invalid(path, "", "cannot set both port name & port number"));
    } else if !port_name_.is_empty() {
        named(errors, &path.child("service").child("port").child("name"), port_name_, port_name);
    } else if number_ != 0 {
        port(errors, &path.child("service").child("port").child("number"), number_);
    } else {
        errors.push(FieldError::required(path, "port name or number is required"));
    }
}

pub(super) fn ingress_class(object: &Value) -> FieldErrors {
    let mut errors = Vec::new();
    let controller = text(object, "spec.controller");
    required(&mut errors, &spec().child("controller"), controller);
    if controller.len() > 250 {
        errors.push(FieldError::too_long(&spec().child("controller"), 250));
    }
    if let Some(parameters) = get(object, "spec.parameters") {
        for field in ["kind", "name"] {
            required(&mut errors, &spec().child("parameters").child(field), text(parameters, field));
        }
        let scope = text(parameters, "scope");
        let path = spec().child("parameters");
        one_of(&mut errors, &path.child("scope"), scope, &["Cluster", "Namespace"]);
        if scope == "Namespace" && text(parameters, "namespace").is_empty() {
            let text = "`parameters.scope` is set to 'Namespace'";
            errors.push(FieldError::required(&path.child("namespace"), text));
        }
    }
    errors
}

pub(super) fn ingress_class_update(new: &Value, old: &Value) -> FieldErrors {
    let mut errors = ingress_class(new);
    unchanged(&mut errors, new, old, "spec.controller");
    errors
}

pub(super) fn policy(object: &Value) -> FieldErrors {
    let mut errors = Vec::new();
    if let Some(found) = get(object, "spec.podSelector") {
        selector(&mut errors, found, &spec().child("podSelector"));
    }
    for (direction, peers) in [("ingress", "from"), ("egress", "to")] {
        for (index, rule) in list(object, &format!("spec.{direction}")).iter().enumerate() {
            let path = spec().child(direction).index(index);
            for (index, one) in list(rule, "ports").iter().enumerate() {
                policy_port(&mut errors, one, &path.child("ports").index(index));
            }
            for (index, one) in list(rule, peers).iter().enumerate() {
                peer(&mut errors, one, &path.child(peers).index(index));
            }
        }
    }
    for (index, kind) in strings(object, "spec.policyTypes").iter().enumerate() {
        one_of(&mut errors, &spec().child("policyTypes").index(index), kind, &["Ingress", "Egress"]);
    }
    errors
}

fn policy_port(errors: &mut FieldErrors, one: &Value, path: &FieldPath) {
    one_of(errors, &path.child("protocol"), text(one, "protocol"), &["TCP", "UDP", "SCTP"]);
    let Some(first) = get(one, "port") else {
        if has(one, "endPort") {
            errors.push(FieldError::required(&path.child("port"), "must be specified when `endPort` is specified"));
        }
        return;
    };
    port_or_name(errors, &path.child("port"), Some(first));
    if let Some(last) = int(one, "endPort") {
        port(errors, &path.child("endPort"), last);
        if first.as_i64().is_some_and(|first| last < first) {
            errors.push(FieldError::invalid(&path.child("endPort"), last, "must be greater than or equal to `port`"));
        }
    }
}

fn peer(errors: &mut FieldErrors, peer: &Value, path: &FieldPath) {
    let mut count = 0;
    for field in ["podSelector", "namespaceSelector"] {
        if let Some(found) = get(peer, field) {
            count += 1;
            selector(errors, found, &path.child(field));
        }
    }
    if let Some(block) = get(peer, "ipBlock") {
        let block_path = path.child("ipBlock");
        if text(block, "cidr").is_empty() {
            errors.push(FieldError::required(&block_path.child("cidr"), ""));
        } else {
            cidr(errors, &block_path.child("cidr"), text(block, "cidr"));
        }
        for (index, except) in strings(block, "except").iter().enumerate() {
            cidr(errors, &block_path.child("except").index(index), except);
        }
        if count > 0 {
            errors.push(FieldError::forbidden(path, "may not specify both ipBlock and another peer"));
        }
        count += 1;
    }
    if count == 0 {
        errors.push(FieldError::required(path, "must specify a peer"));
    }
}

pub(super) fn service_cidr(object: &Value) -> FieldErrors {
    let mut errors = Vec::new();
    let ranges = strings(object, "spec.cidrs");
    if ranges.is_empty() {
        errors.push(FieldError::required(&spec().child("cidrs"), "at least one CIDR required"));
    }
    for (index, range) in ranges.iter().enumerate() {
        cidr(&mut errors, &spec().child("cidrs").index(index), range);
    }
    errors
}

pub(super) fn ip_address(object: &Value) -> FieldErrors {
    let mut errors = Vec::new();
    let name = text(object, "metadata.name");
    if name.parse::<std::net::IpAddr>().is_err() {
        errors.push(FieldError::invalid(&FieldPath::new("metadata.name"), name, BAD_IP));
    }
    if !has(object, "spec.parentRef") {
        errors.push(FieldError::required(&spec().child("parentRef"), ""));
    }
    errors
}
