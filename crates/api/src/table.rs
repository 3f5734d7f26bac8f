//! The built-in kinds: names, verbs, subresources and columns, in the order in which Kubernetes lists its groups.
//!
//! A line is
//! `scope kind plural[,short...] [@category] [/subresource...] [?selectable.field...] | columns`.
//! The singular is the kind in lower case. Columns are `Name`, `Name:type`, `Name%format`, and `+Name` for
//! `-o wide` only. Left out: what Croft has no answer for (a pod's log, resize and ephemeral containers).

use std::sync::{Arc, LazyLock};

use croft_meta::Gvk;

use crate::kinds;
use crate::resource::{Column, Names, Resource, Scale, Scope, Subresource, Version};
use crate::schemas::Builder;

const ALL_VERBS: &[&str] = &["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];

/// Group, versions (best first), rows.
const GROUPS: &[(&str, &[&str], &str)] = &[
    (
        "",
        &["v1"],
        "N Binding bindings !create |
         C ComponentStatus componentstatuses,cs !get,list | Name|Status|Message|Error
         N ConfigMap configmaps,cm | Name|Data|Age
         N Endpoints endpoints,ep | Name|Endpoints|Age
         N Event events,ev ?involvedObject.kind ?involvedObject.namespace ?involvedObject.name ?involvedObject.uid ?involvedObject.apiVersion ?involvedObject.resourceVersion ?involvedObject.fieldPath ?reason ?reportingComponent ?source ?type | Last Seen|Type|Reason|Object|+Subobject|+Source|Message|+First Seen|+Count|+Name
         N LimitRange limitranges,limits | Name|Created At:date
         C Namespace namespaces,ns /finalize /status ?status.phase | Name|Status|Age
         C Node nodes,no /proxy /status ?spec.unschedulable | Name|Status|Roles|Age|Version|+Internal-IP|+External-IP|+OS-Image|+Kernel-Version|+Container-Runtime
         N PersistentVolumeClaim persistentvolumeclaims,pvc /status | Name|Status|Volume|Capacity|Access Modes|StorageClass|VolumeAttributesClass|Age|+VolumeMode
         C PersistentVolume persistentvolumes,pv /status | Name|Capacity|Access Modes|Reclaim Policy|Status|Claim|StorageClass|VolumeAttributesClass|Reason|Age|+VolumeMode
         N Pod pods,po @all /attach /binding /eviction /exec /portforward /proxy /status ?spec.nodeName ?spec.restartPolicy ?spec.schedulerName ?spec.serviceAccountName ?spec.hostNetwork ?status.phase ?status.podIP ?status.podIPs ?status.nominatedNodeName | Name|Ready|Status|Restarts|Age|+IP|+Node|+Nominated Node|+Readiness Gates
         N PodTemplate podtemplates | Name|Containers|Images|Pod Labels
         N ReplicationController replicationcontrollers,rc @all /scale /status ?status.replicas | Name|Desired:integer|Current:integer|Ready:integer|Age|+Containers|+Images|+Selector
         N ResourceQuota resourcequotas,quota /status | Name|Request|Limit|Age
         N Secret secrets ?type | Name|Type|Data|Age
         N ServiceAccount serviceaccounts,sa /token | Name|Secrets|Age
         N Service services,svc @all /proxy /status ?spec.clusterIP ?spec.type | Name|Type|Cluster-IP|External-IP|Port(s)|Age|+Selector",
    ),
    ("apiregistration.k8s.io", &["v1"], "C APIService apiservices @api-extensions /status | Name|Service|Available|Age"),
    (
        "apps",
        &["v1"],
        "N ControllerRevision controllerrevisions | Name|Controller|Revision|Age
         N DaemonSet daemonsets,ds @all /status | Name|Desired:integer|Current:integer|Ready:integer|Up-to-date:integer|Available:integer|Node Selector|Age|+Containers|+Images|+Selector
         N Deployment deployments,deploy @all /scale /status | Name|Ready|Up-to-date|Available|Age|+Containers|+Images|+Selector
         N ReplicaSet replicasets,rs @all /scale /status ?status.replicas | Name|Desired:integer|Current:integer|Ready:integer|Age|+Containers|+Images|+Selector
         N StatefulSet statefulsets,sts @all /scale /status | Name|Ready|Age|+Containers|+Images",
    ),
    (
        "events.k8s.io",
        &["v1"],
        "N Event events,ev ?regarding.kind ?regarding.namespace ?regarding.name ?regarding.uid ?regarding.apiVersion ?regarding.resourceVersion ?regarding.fieldPath ?reason ?reportingController ?type | Last Seen|Type|Reason|Object|+Subobject|+Source|Message|+First Seen|+Count|+Name",
    ),
    (
        "authentication.k8s.io",
        &["v1"],
        "C SelfSubjectReview selfsubjectreviews !create |
         C TokenReview tokenreviews !create |",
    ),
    (
        "authorization.k8s.io",
        &["v1"],
        "N LocalSubjectAccessReview localsubjectaccessreviews !create |
         C SelfSubjectAccessReview selfsubjectaccessreviews !create |
         C SelfSubjectRulesReview selfsubjectrulesreviews !create |
         C SubjectAccessReview subjectaccessreviews !create |",
    ),
    (
        "autoscaling",
        &["v2", "v1"],
        "N HorizontalPodAutoscaler horizontalpodautoscalers,hpa @all /status | Name|Reference|Targets|MinPods|MaxPods|Replicas|Age",
    ),
    (
        "batch",
        &["v1"],
        "N CronJob cronjobs,cj @all /status | Name|Schedule|Timezone|Suspend:boolean|Active:integer|Last Schedule|Age|+Containers|+Images|+Selector
         N Job jobs @all /status ?status.successful | Name|Status|Completions|Duration|Age|+Containers|+Images|+Selector",
    ),
    (
        "certificates.k8s.io",
        &["v1"],
        "C CertificateSigningRequest certificatesigningrequests,csr /approval /status ?spec.signerName | Name|Age|SignerName|Requestor|RequestedDuration|Condition",
    ),
    (
        "networking.k8s.io",
        &["v1"],
        "C IngressClass ingressclasses | Name|Controller|Parameters|Age
         N Ingress ingresses,ing /status | Name|Class|Hosts|Address|Ports|Age
         C IPAddress ipaddresses,ip | Name|ParentRef
         N NetworkPolicy networkpolicies,netpol | Name|Pod-Selector|Age
         C ServiceCIDR servicecidrs /status | Name|CIDRs|Age",
    ),
    (
        "policy",
        &["v1"],
        "N PodDisruptionBudget poddisruptionbudgets,pdb /status | Name|Min Available|Max Unavailable|Allowed Disruptions:integer|Age",
    ),
    (
        "rbac.authorization.k8s.io",
        &["v1"],
        "C ClusterRoleBinding clusterrolebindings | Name|Role|Age|+Users|+Groups|+ServiceAccounts
         C ClusterRole clusterroles | Name|Created At:date
         N RoleBinding rolebindings | Name|Role|Age|+Users|+Groups|+ServiceAccounts
         N Role roles | Name|Created At:date",
    ),
    (
        "storage.k8s.io",
        &["v1"],
        "C CSIDriver csidrivers | Name|AttachRequired:boolean|PodInfoOnMount:boolean|StorageCapacity:boolean|TokenRequests|RequiresRepublish:boolean|Modes|Age
         C CSINode csinodes | Name|Drivers:integer|Age
         N CSIStorageCapacity csistoragecapacities | Name|Created At:date
         C StorageClass storageclasses,sc | Name|Provisioner|ReclaimPolicy|VolumeBindingMode|AllowVolumeExpansion|Age
         C VolumeAttachment volumeattachments /status | Name|Attacher%name|PV|Node|Attached:boolean|Age
         C VolumeAttributesClass volumeattributesclasses,vac | Name|DriverName|Age",
    ),
    (
        "admissionregistration.k8s.io",
        &["v1"],
        "C MutatingWebhookConfiguration mutatingwebhookconfigurations @api-extensions | Name|Webhooks:integer|Age
         C ValidatingAdmissionPolicy validatingadmissionpolicies @api-extensions /status | Name|Validations:integer|ParamKind|Age
         C ValidatingAdmissionPolicyBinding validatingadmissionpolicybindings @api-extensions | Name|PolicyName|ParamRef|Age
         C ValidatingWebhookConfiguration validatingwebhookconfigurations @api-extensions | Name|Webhooks:integer|Age",
    ),
    // Kubernetes has these behind a feature gate; they are asked for in the version that it would serve.
    (
        "admissionregistration.k8s.io",
        &["v1beta1"],
        "C MutatingAdmissionPolicy mutatingadmissionpolicies @api-extensions | Name|Mutations:integer|ParamKind|Age
         C MutatingAdmissionPolicyBinding mutatingadmissionpolicybindings @api-extensions | Name|PolicyName|ParamRef|Age",
    ),
    (
        "apiextensions.k8s.io",
        &["v1"],
        "C CustomResourceDefinition customresourcedefinitions,crd,crds @api-extensions /status | Name|Created At:date",
    ),
    (
        "scheduling.k8s.io",
        &["v1"],
        "C PriorityClass priorityclasses,pc | Name|Value:integer|Global-Default:boolean|Age|PreemptionPolicy",
    ),
    ("coordination.k8s.io", &["v1"], "N Lease leases | Name|Holder|Age"),
    ("node.k8s.io", &["v1"], "C RuntimeClass runtimeclasses | Name|Handler|Age"),
    ("discovery.k8s.io", &["v1"], "N EndpointSlice endpointslices | Name|AddressType|Ports|Endpoints|Age"),
    (
        "resource.k8s.io",
        &["v1"],
        "C DeviceClass deviceclasses | Name|Age
         N ResourceClaim resourceclaims /status | Name|State|Age
         N ResourceClaimTemplate resourceclaimtemplates | Name|Age
         C ResourceSlice resourceslices ?spec.nodeName ?spec.driver | Name|Node|Driver|Pool|Age",
    ),
    (
        "flowcontrol.apiserver.k8s.io",
        &["v1"],
        "C FlowSchema flowschemas /status | Name|PriorityLevel|MatchingPrecedence|DistinguisherMethod|Age|MissingPL
         C PriorityLevelConfiguration prioritylevelconfigurations /status | Name|Type|NominalConcurrencyShares|Queues|HandSize|QueueLengthLimit|Age",
    ),
];

/// Every built-in kind, in the order of upstream's `/api` and `/apis`.
pub fn builtin() -> &'static [Arc<Resource>] {
    static TABLE: LazyLock<Vec<Arc<Resource>>> = LazyLock::new(|| {
        let mut schemas = Builder::default();
        let mut rows = Vec::new();
        for (group, versions, text) in GROUPS {
            rows.extend(text.lines().map(|line| Arc::new(resource(&mut schemas, group, versions, line.trim()))));
        }
        rows
    });
    &TABLE
}

fn resource(schemas: &mut Builder, group: &str, versions: &[&str], line: &'static str) -> Resource {
    // Lines are constants of this file; the tests read them all.
    let (head, columns) = line.split_once('|').unwrap_or_else(|| panic!("no columns in {line:?}"));
    let mut words = head.split_whitespace();
    let scope = if words.next() == Some("N") { Scope::Namespaced } else { Scope::Cluster };
    let kind = words.next().unwrap_or_default();
    let mut names = words.next().unwrap_or_default().split(',').map(str::to_owned);
    let plural = names.next().unwrap_or_default();
    let short_names = names.collect();
    let (mut categories, mut subresources, mut fields) = (Vec::new(), Vec::new(), Vec::new());
    let mut verbs = None;
    for word in words {
        match word.split_at(1) {
            ("@", category) => categories.push(category.to_owned()),
            ("/", subresource) => subresources.push(subresource),
            ("?", field) => fields.push(field.to_owned()),
            ("!", only) => verbs = Some(only.split(',').collect()),
            _ => panic!("unknown word {word:?} in {line:?}"),
        }
    }
    let is_virtual = verbs.is_some();
    let versions = versions
        .iter()
        .map(|version| Version {
            name: (*version).to_owned(),
            schema: schemas.kind(group, version, kind).into(),
            columns: columns.split('|').map(str::trim).filter(|c| !c.is_empty()).map(column).collect(),
            subresources: subresources.iter().map(|name| subresource(group, version, kind, name)).collect(),
            scale: subresources.contains(&"scale").then(|| scale(kind)),
            selectable_fields: fields.clone(),
            deprecation_warning: deprecation(kind),
        })
        .collect::<Vec<_>>();
    Resource {
        group: group.to_owned(),
        scope,
        storage_version: versions.first().map(|v| v.name.clone()).unwrap_or_default(),
        versions,
        storage_key: storage_key(group, &plural),
        verbs: verbs.unwrap_or_else(|| verbs_of(kind)),
        is_virtual,
        is_custom: false,
        behaviour: Arc::new(kinds::behaviour(group, &plural)),
        names: Names {
            singular: kind.to_lowercase(),
            kind: kind.to_owned(),
            list_kind: format!("{kind}List"),
            plural,
            short_names,
            categories,
        },
    }
}

/// Namespaces are emptied one at a time, never all at once.
fn verbs_of(kind: &str) -> Vec<&'static str> {
    ALL_VERBS.iter().copied().filter(|verb| kind != "Namespace" || *verb != "deletecollection").collect()
}

fn column(text: &str) -> Column {
    let (priority, text) = text.strip_prefix('+').map_or((0, text), |wide| (1, wide));
    let (text, format) = text.split_once('%').unwrap_or((text, ""));
    let (name, ty) = text.split_once(':').unwrap_or((text, "string"));
    Column {
        name: name.to_owned(),
        ty: ty.to_owned(),
        format: if name == "Name" { "name" } else { format }.to_owned(),
        description: String::new(),
        priority,
        json_path: String::new(),
    }
}

/// `apps/deployments`, `core/pods`. Both groups of events are views of one storage.
fn storage_key(group: &str, plural: &str) -> String {
    match (group, plural) {
        ("" | "events.k8s.io", "events") => "core/events".to_owned(),
        ("", _) => format!("core/{plural}"),
        _ => format!("{group}/{plural}"),
    }
}

fn subresource(group: &str, version: &str, kind: &str, name: &str) -> Subresource {
    let (kind, verbs): (Gvk, &[&'static str]) = match name {
        "scale" => (Gvk::new("autoscaling", "v1", "Scale"), &["get", "patch", "update"]),
        "token" => (Gvk::new("authentication.k8s.io", "v1", "TokenRequest"), &["create"]),
        "eviction" => (Gvk::new("policy", "v1", "Eviction"), &["create"]),
        "binding" => (Gvk::new("", "v1", "Binding"), &["create"]),
        "attach" => (Gvk::new("", "v1", "PodAttachOptions"), &["create", "get"]),
        "exec" => (Gvk::new("", "v1", "PodExecOptions"), &["create", "get"]),
        "portforward" => (Gvk::new("", "v1", "PodPortForwardOptions"), &["create", "get"]),
        "proxy" => (Gvk::new("", "v1", format!("{kind}ProxyOptions")), &["create", "delete", "get", "patch", "update"]),
        "finalize" => (Gvk::new(group, version, kind), &["update"]),
        _ => (Gvk::new(group, version, kind), &["get", "patch", "update"]),
    };
    Subresource { name: name.to_owned(), kind, verbs: verbs.to_vec() }
}

/// A ReplicationController's selector is a plain map; the others have a LabelSelector. Both are rendered as text
/// by the API server, which finds them at this path.
fn scale(_kind: &str) -> Scale {
    Scale {
        spec_replicas: "spec.replicas".to_owned(),
        status_replicas: "status.replicas".to_owned(),
        label_selector: Some("spec.selector".to_owned()),
    }
}

fn deprecation(kind: &str) -> Option<String> {
    match kind {
        "ComponentStatus" => Some("v1 ComponentStatus is deprecated in v1.19+".to_owned()),
        "Endpoints" => Some("v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice".to_owned()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(group: &str, plural: &str) -> &'static Resource {
        builtin().iter().find(|r| r.group == group && r.names.plural == plural).unwrap()
    }

    #[test]
    fn every_line_becomes_a_resource() {
        assert_eq!(builtin().len(), 67);
        for resource in builtin() {
            assert!(!resource.names.plural.is_empty());
            assert_eq!(resource.names.singular, resource.names.kind.to_lowercase());
            for version in &resource.versions {
                assert!(version.schema.properties.contains_key("metadata"), "{}", resource.names.kind);
            }
        }
    }

    #[test]
    fn cells_match_the_columns_of_every_kind() {
        for resource in builtin().iter().filter(|r| !r.is_virtual) {
            let object = serde_json::json!({"metadata": {"name": "x"}});
            let cells = (resource.behaviour.cells)(&object, 0);
            assert_eq!(cells.len(), resource.versions[0].columns.len(), "{}", resource.names.kind);
        }
    }

    #[test]
    fn reviews_can_only_be_created() {
        let reviews = row("authorization.k8s.io", "selfsubjectaccessreviews");
        assert_eq!(reviews.verbs, ["create"]);
        assert!(reviews.is_virtual);
    }

    #[test]
    fn pods_are_as_kubectl_knows_them() {
        let pods = row("", "pods");
        assert_eq!(pods.names.short_names, ["po"]);
        assert_eq!(pods.names.categories, ["all"]);
        assert!(pods.is_namespaced());
        assert_eq!(pods.versions[0].columns[5].priority, 1);
        assert!(!pods.versions[0].subresources.iter().any(|s| s.name == "log"));
    }

    /// What a real kube-apiserver 1.34 lists, in its order, but for the subresources that this module's text leaves out;
    /// mutating policies it lists only if asked to.
    #[test]
    fn discovery_is_that_of_the_original() {
        const LEFT_OUT: &[&str] = &["ephemeralcontainers", "log", "resize"];
        let wanted: Vec<String> = include_str!("../testdata/discovery.txt")
            .lines()
            .map(|line| {
                let is_served = |word: &&str| !LEFT_OUT.contains(&word.split(':').next().unwrap_or_default());
                line.split(' ').filter(is_served).collect::<Vec<_>>().join(" ")
            })
            .collect();
        let mut got = Vec::new();
        for resource in builtin().iter().filter(|resource| !resource.names.plural.starts_with("mutatingadmission")) {
            for version in &resource.versions {
                got.push(discovery_line(resource, version));
            }
        }
        assert_eq!(got, wanted);
    }

    fn discovery_line(resource: &Resource, version: &Version) -> String {
        let own = resource.gvk(&version.name);
        let names = &resource.names;
        let mut words = vec![
            own.api_version(),
            names.plural.clone(),
            names.singular.clone(),
            names.kind.clone(),
            format!("{:?}", resource.scope),
            format!("short={}", names.short_names.join(",")),
            format!("in={}", names.categories.join(",")),
            resource.verbs.join(","),
        ];
        for subresource in &version.subresources {
            let kind = &subresource.kind;
            let kind = if kind.group == own.group || kind.group.is_empty() {
                kind.kind.clone()
            } else {
                format!("{}/{}/{}", kind.group, kind.version, kind.kind)
            };
            words.push(format!("{}:{kind}:{}", subresource.name, subresource.verbs.join(",")));
        }
        words.join(" ")
    }

    #[test]
    fn both_event_groups_share_their_storage() {
        assert_eq!(row("", "events").storage_key, row("events.k8s.io", "events").storage_key);
    }
}
