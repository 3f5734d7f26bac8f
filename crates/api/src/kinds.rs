//! What each built-in kind does beyond its schema: defaults, rules, printed cells. One file per subject.

mod convert;
mod fields;
mod prepare;
mod service;
mod warnings;

pub(crate) use convert::convert_autoscaler_to_v2;
pub(crate) use warnings::of as warnings_of;

use croft_meta::names;
use serde_json::Value;

use crate::print::{self, policy, resources, workloads};
use crate::resource::Behaviour;
use crate::validate;

/// What most kinds do; the others replace parts of it.
pub(crate) fn base() -> Behaviour {
    Behaviour {
        default: crate::defaults::apply,
        prepare_create: |_| {},
        prepare_update: |_, _| {},
        validate_create: |_| Vec::new(),
        validate_update: |_, _| Vec::new(),
        validate_subresource: |_, _, _| Vec::new(),
        warnings: |_| Vec::new(),
        cells: print::name_and_creation,
        field: fields::metadata,
        unconditional_update: true,
        create_on_update: false,
        delete_returns_object: false,
        has_generation: false,
        admit: None,
        admit_delete: None,
        name_rule: names::is_dns1123_subdomain,
        convert: None,
    }
}

pub(crate) fn behaviour(group: &str, plural: &str) -> Behaviour {
    let (prepare_create, prepare_update) = prepare::of(group, plural);
    let (validate_create, validate_update) = validate::of(group, plural);
    let (admit, admit_delete) = crate::admission::of(group, plural);
    Behaviour {
        admit,
        admit_delete,
        validate_create,
        validate_update,
        validate_subresource: validate::subresource_of(plural),
        prepare_create,
        prepare_update,
        warnings: warnings::of(group, plural),
        convert: convert::of(group, plural),
        cells: cells(group, plural),
        field: fields::of(group, plural),
        unconditional_update: !NEEDS_RESOURCE_VERSION.contains(&plural),
        create_on_update: CREATED_BY_PUT.contains(&plural),
        delete_returns_object: RETURNED_BY_DELETE.contains(&plural),
        has_generation: COUNTS_GENERATIONS.contains(&plural),
        name_rule: name_rule(plural),
        ..base()
    }
}

/// Kinds whose PUT must carry a resourceVersion.
const NEEDS_RESOURCE_VERSION: &[&str] = &[
    "runtimeclasses",
    "poddisruptionbudgets",
    "csidrivers",
    "csistoragecapacities",
    "volumeattachments",
    "csinodes",
    "leases",
    "validatingadmissionpolicies",
    "mutatingadmissionpolicies",
    "mutatingwebhookconfigurations",
    "validatingwebhookconfigurations",
    "validatingadmissionpolicybindings",
    "mutatingadmissionpolicybindings",
    "customresourcedefinitions",
    "apiservices",
];

/// Kinds whose DELETE answers with the object.
const RETURNED_BY_DELETE: &[&str] = &[
    "namespaces",
    "persistentvolumes",
    "persistentvolumeclaims",
    "pods",
    "podtemplates",
    "resourcequotas",
    "services",
    "serviceaccounts",
    "deviceclasses",
    "resourceclaims",
    "resourceclaimtemplates",
    "resourceslices",
    "csidrivers",
    "csinodes",
    "storageclasses",
    "volumeattachments",
    "volumeattributesclasses",
];

/// Kinds that a PUT to a free name creates.
const CREATED_BY_PUT: &[&str] = &[
    "runtimeclasses",
    "rolebindings",
    "clusterrolebindings",
    "roles",
    "clusterroles",
    "leases",
    "limitranges",
    "events",
    "services",
    "endpoints",
];

const COUNTS_GENERATIONS: &[&str] = &[
    "priorityclasses",
    "ingressclasses",
    "networkpolicies",
    "ingresses",
    "endpointslices",
    "poddisruptionbudgets",
    "resourceslices",
    "deviceclasses",
    "flowschemas",
    "prioritylevelconfigurations",
    "daemonsets",
    "statefulsets",
    "deployments",
    "replicasets",
    "jobs",
    "cronjobs",
    "pods",
    "podtemplates",
    "replicationcontrollers",
    "validatingadmissionpolicies",
    "validatingadmissionpolicybindings",
    "mutatingadmissionpolicies",
    "mutatingadmissionpolicybindings",
    "mutatingwebhookconfigurations",
    "validatingwebhookconfigurations",
    "customresourcedefinitions",
];

fn name_rule(plural: &str) -> fn(&str) -> Vec<String> {
    match plural {
        "namespaces" => names::is_dns1123_label,
        "services" => names::is_dns1035_label,
        "roles" | "clusterroles" | "rolebindings" | "clusterrolebindings" | "certificatesigningrequests" => {
            names::is_path_segment_name
        }
        _ => names::is_dns1123_subdomain,
    }
}

fn cells(group: &str, plural: &str) -> fn(&Value, i64) -> Vec<Value> {
    match (group, plural) {
        ("", "componentstatuses") => resources::component_status,
        ("", "configmaps") => resources::config_map,
        ("", "endpoints") => resources::endpoints,
        (_, "events") => resources::event,
        ("", "namespaces") => resources::namespace,
        ("", "nodes") => resources::node,
        ("", "persistentvolumeclaims") => resources::persistent_volume_claim,
        ("", "persistentvolumes") => resources::persistent_volume,
        ("", "pods") => workloads::pod,
        ("", "podtemplates") => workloads::pod_template,
        ("", "replicationcontrollers") => workloads::replication_controller,
        ("", "resourcequotas") => resources::resource_quota,
        ("", "secrets") => resources::secret,
        ("", "serviceaccounts") => resources::service_account,
        ("", "services") => resources::service,
        (_, "apiservices") => resources::api_service,
        (_, "controllerrevisions") => workloads::controller_revision,
        (_, "daemonsets") => workloads::daemon_set,
        (_, "deployments") => workloads::deployment,
        (_, "replicasets") => workloads::replica_set,
        (_, "statefulsets") => workloads::stateful_set,
        (_, "horizontalpodautoscalers") => workloads::horizontal_pod_autoscaler,
        (_, "cronjobs") => workloads::cron_job,
        (_, "jobs") => workloads::job,
        (_, "certificatesigningrequests") => policy::certificate_signing_request,
        (_, "ingressclasses") => resources::ingress_class,
        (_, "ingresses") => resources::ingress,
        (_, "ipaddresses") => resources::ip_address,
        (_, "networkpolicies") => resources::network_policy,
        (_, "servicecidrs") => resources::service_cidr,
        (_, "poddisruptionbudgets") => workloads::pod_disruption_budget,
        (_, "clusterrolebindings" | "rolebindings") => policy::role_binding,
        (_, "csidrivers") => resources::csi_driver,
        (_, "csinodes") => resources::csi_node,
        (_, "storageclasses") => resources::storage_class,
        (_, "volumeattachments") => resources::volume_attachment,
        (_, "volumeattributesclasses") => resources::volume_attributes_class,
        (_, "mutatingwebhookconfigurations" | "validatingwebhookconfigurations") => policy::webhook_configuration,
        (_, "validatingadmissionpolicies") => policy::admission_policy,
        (_, "mutatingadmissionpolicies") => policy::mutating_admission_policy,
        (_, "validatingadmissionpolicybindings" | "mutatingadmissionpolicybindings") => {
            policy::admission_policy_binding
        }
        (_, "priorityclasses") => policy::priority_class,
        (_, "leases") => resources::lease,
        (_, "runtimeclasses") => resources::runtime_class,
        (_, "endpointslices") => resources::endpoint_slice,
        (_, "deviceclasses" | "resourceclaimtemplates") => print::name_and_age,
        (_, "resourceclaims") => workloads::resource_claim,
        (_, "resourceslices") => workloads::resource_slice,
        (_, "flowschemas") => policy::flow_schema,
        (_, "prioritylevelconfigurations") => policy::priority_level,
        _ => print::name_and_creation,
    }
}
