//! What `?fieldSelector=` can ask of each kind.

use serde_json::Value;

use crate::view::{flag, list, number, text};

/// `metadata.name` and `metadata.namespace`: every kind has these.
pub(crate) fn metadata(object: &Value, field: &str) -> Option<String> {
    matches!(field, "metadata.name" | "metadata.namespace").then(|| text(object, field).to_owned())
}

pub(super) fn of(group: &str, plural: &str) -> fn(&Value, &str) -> Option<String> {
    match (group, plural) {
        ("", "pods") => pod,
        ("", "nodes") => node,
        ("", "namespaces") => namespace,
        ("", "secrets") => secret,
        ("", "services") => service,
        (_, "events") => event,
        (_, "replicationcontrollers" | "replicasets") => replicas,
        (_, "jobs") => job,
        (_, "certificatesigningrequests") => certificate_signing_request,
        (_, "resourceslices") => resource_slice,
        _ => metadata,
    }
}

fn texts(object: &Value, field: &str, known: &[&str]) -> Option<String> {
    if known.contains(&field) { Some(text(object, field).to_owned()) } else { metadata(object, field) }
}

fn pod(object: &Value, field: &str) -> Option<String> {
    const TEXTS: &[&str] = &[
        "spec.nodeName",
        "spec.restartPolicy",
        "spec.schedulerName",
        "spec.serviceAccountName",
        "status.phase",
        "status.nominatedNodeName",
    ];
    match field {
        "spec.hostNetwork" => Some(flag(object, field).to_string()),
        // Upstream's internal type has only the list.
        "status.podIP" => Some(list(object, "status.podIPs").first().map_or("", |ip| text(ip, "ip")).to_owned()),
        "status.podIPs" => {
            let ips: Vec<&str> = list(object, field).iter().map(|ip| text(ip, "ip")).collect();
            Some(ips.join(","))
        }
        _ => texts(object, field, TEXTS),
    }
}

fn node(object: &Value, field: &str) -> Option<String> {
    match field {
        "spec.unschedulable" => Some(flag(object, field).to_string()),
        _ => metadata(object, field),
    }
}

fn namespace(object: &Value, field: &str) -> Option<String> {
    match field {
        "name" => Some(text(object, "metadata.name").to_owned()),
        _ => texts(object, field, &["status.phase"]),
    }
}

fn secret(object: &Value, field: &str) -> Option<String> {
    texts(object, field, &["type"])
}

fn service(object: &Value, field: &str) -> Option<String> {
    texts(object, field, &["spec.clusterIP", "spec.type"])
}

fn replicas(object: &Value, field: &str) -> Option<String> {
    match field {
        "status.replicas" => Some(number(object, field).to_string()),
        _ => metadata(object, field),
    }
}

fn job(object: &Value, field: &str) -> Option<String> {
    match field {
        "status.successful" => Some(number(object, "status.succeeded").to_string()),
        _ => metadata(object, field),
    }
}

fn certificate_signing_request(object: &Value, field: &str) -> Option<String> {
    texts(object, field, &["spec.signerName"])
}

fn resource_slice(object: &Value, field: &str) -> Option<String> {
    texts(object, field, &["spec.nodeName", "spec.driver"])
}

/// Reads events of either group: they share their storage.
fn event(object: &Value, field: &str) -> Option<String> {
    let either = |old: &str, new: &str| {
        let value = text(object, old);
        Some(if value.is_empty() { text(object, new) } else { value }.to_owned())
    };
    if let Some(part) = field.strip_prefix("involvedObject.").or_else(|| field.strip_prefix("regarding.")) {
        const PARTS: &[&str] = &["kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath"];
        return PARTS
            .contains(&part)
            .then(|| either(&format!("involvedObject.{part}"), &format!("regarding.{part}")))?;
    }
    match field {
        "reason" | "type" => Some(text(object, field).to_owned()),
        "reportingComponent" | "reportingController" => either("reportingComponent", "reportingController"),
        "source" => {
            let component = either("source.component", "deprecatedSource.component")?;
            if component.is_empty() { either("reportingComponent", "reportingController") } else { Some(component) }
        }
        _ => metadata(object, field),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn every_selectable_field_of_the_table_is_answered() {
        for resource in crate::builtin() {
            for field in resource.versions.iter().flat_map(|v| &v.selectable_fields) {
                let value = (resource.behaviour.field)(&json!({}), field);
                assert!(value.is_some(), "{} {field}", resource.names.plural);
            }
            assert_eq!((resource.behaviour.field)(&json!({}), "spec.nonsense"), None);
        }
    }

    #[test]
    fn absent_values_read_as_go_prints_zeroes() {
        assert_eq!(node(&json!({}), "spec.unschedulable").as_deref(), Some("false"));
        assert_eq!(job(&json!({"status": {"succeeded": 2}}), "status.successful").as_deref(), Some("2"));
    }

    #[test]
    fn events_of_both_groups_answer_the_same_questions() {
        let old = json!({"involvedObject": {"name": "a"}, "source": {"component": "kubelet"}});
        let new = json!({"regarding": {"name": "a"}, "reportingController": "kubelet"});
        for object in [old, new] {
            assert_eq!(event(&object, "involvedObject.name").as_deref(), Some("a"));
            assert_eq!(event(&object, "source").as_deref(), Some("kubelet"));
        }
    }
}
