//! What an object of a built-in kind may say, worded as upstream's `pkg/apis/*/validation` words it.
//!
//! Metadata is checked elsewhere (`croft_meta::names`); schemas of definitions too (`croft_schema`).

mod admission;
mod admission_policy;
mod checks;
mod cron;
mod definition;
mod network;
mod pod;
mod policy;
mod rbac;
mod resources;
mod service;
mod signing_request;
mod storage;
mod sysctls;
#[cfg(test)]
mod tests;
mod workload;

pub use service::{Need, ServiceNeeds, service_needs};

use croft_meta::{FieldErrors, FieldPath};
use serde_json::Value;

type Create = fn(&Value) -> FieldErrors;
type Update = fn(&Value, &Value) -> FieldErrors;

/// A kind's rules. Those of creation hold for updates as well.
pub(crate) fn of(group: &str, plural: &str) -> (Create, Update) {
    match (group, plural) {
        ("", "pods") => (pod::validate, pod::validate_update),
        ("", "podtemplates") => (workload::pod_template, |new, _| workload::pod_template(new)),
        ("", "replicationcontrollers") => {
            (workload::replication_controller, |new, _| workload::replication_controller(new))
        }
        ("", "configmaps") => (resources::config_map, resources::config_map_update),
        ("", "secrets") => (resources::secret, resources::secret_update),
        ("", "services") => (service::validate, service::validate_update),
        ("", "endpoints") => (network::endpoints, |new, _| network::endpoints(new)),
        ("", "nodes") => (resources::node, |new, _| resources::node(new)),
        ("", "limitranges") => (resources::limit_range, |new, _| resources::limit_range(new)),
        ("", "resourcequotas") => (resources::resource_quota, |new, _| resources::resource_quota(new)),
        ("", "events") => (resources::event, |new, _| resources::event(new)),
        ("events.k8s.io", "events") => (resources::new_event, |_, _| Vec::new()),
        ("", "persistentvolumeclaims") => (storage::claim, storage::claim_update),
        ("", "persistentvolumes") => (storage::volume, storage::volume_update),
        ("apps", "deployments") => (workload::deployment, workload::deployment_update),
        ("apps", "replicasets") => (workload::replica_set, workload::replica_set_update),
        ("apps", "daemonsets") => (workload::daemon_set, workload::daemon_set_update),
        ("apps", "statefulsets") => (workload::stateful_set, workload::stateful_set_update),
        ("apps", "controllerrevisions") => (workload::controller_revision, workload::controller_revision_update),
        ("batch", "jobs") => (workload::job, workload::job_update),
        ("batch", "cronjobs") => (workload::cron_job, |new, _| workload::cron_job(new)),
        (_, "horizontalpodautoscalers") => (workload::autoscaler, |new, _| workload::autoscaler(new)),
        (_, "poddisruptionbudgets") => (workload::disruption_budget, |new, _| workload::disruption_budget(new)),
        (_, "storageclasses") => (storage::class, storage::class_update),
        (_, "volumeattributesclasses") => (storage::attributes_class, storage::attributes_class_update),
        (_, "volumeattachments") => (storage::attachment, storage::attachment_update),
        (_, "csinodes") => (storage::csi_node, |new, _| storage::csi_node(new)),
        (_, "csidrivers") => (storage::csi_driver, |new, _| storage::csi_driver(new)),
        (_, "csistoragecapacities") => (storage::capacity, storage::capacity_update),
        (_, "roles") => (rbac::role, |new, _| rbac::role(new)),
        (_, "clusterroles") => (rbac::cluster_role, |new, _| rbac::cluster_role(new)),
        (_, "rolebindings") => (rbac::role_binding, rbac::role_binding_update),
        (_, "clusterrolebindings") => (rbac::cluster_role_binding, rbac::cluster_role_binding_update),
        (_, "ingresses") => (network::ingress, |new, _| network::ingress(new)),
        (_, "ingressclasses") => (network::ingress_class, network::ingress_class_update),
        (_, "networkpolicies") => (network::policy, |new, _| network::policy(new)),
        (_, "servicecidrs") => (network::service_cidr, |new, _| network::service_cidr(new)),
        (_, "ipaddresses") => (network::ip_address, |new, _| network::ip_address(new)),
        (_, "endpointslices") => (network::endpoint_slice, network::endpoint_slice_update),
        (_, "priorityclasses") => (policy::priority_class, policy::priority_class_update),
        (_, "leases") => (policy::lease, |new, _| policy::lease(new)),
        (_, "runtimeclasses") => (policy::runtime_class, policy::runtime_class_update),
        (_, "flowschemas") => (policy::flow_schema, |new, _| policy::flow_schema(new)),
        (_, "certificatesigningrequests") => (signing_request::create, |_, _| Vec::new()),
        (_, "apiservices") => (policy::api_service, |new, _| policy::api_service(new)),
        (_, "validatingwebhookconfigurations" | "mutatingwebhookconfigurations") => {
            (admission::webhooks, |new, _| admission::webhooks(new))
        }
        (_, "validatingadmissionpolicies") => {
            (admission_policy::validating, |new, _| admission_policy::validating(new))
        }
        (_, "validatingadmissionpolicybindings") => {
            (admission_policy::validating_binding, |new, _| admission_policy::validating_binding(new))
        }
        (_, "mutatingadmissionpolicies") => (admission_policy::mutating, |new, _| admission_policy::mutating(new)),
        (_, "mutatingadmissionpolicybindings") => {
            (admission_policy::mutating_binding, |new, _| admission_policy::mutating_binding(new))
        }
        (_, "customresourcedefinitions") => (definition::validate, definition::validate_update),
        _ => (|_| Vec::new(), |_, _| Vec::new()),
    }
}

/// What must hold when a subresource is written: its name, the new object, the old one.
pub(crate) type Subresource = fn(&str, &Value, &Value) -> FieldErrors;

pub(crate) fn subresource_of(plural: &str) -> Subresource {
    match plural {
        "certificatesigningrequests" => signing_request::subresource,
        _ => |_, _, _| Vec::new(),
    }
}

fn spec() -> FieldPath {
    FieldPath::new("spec")
}
