//! Which volume a claim gets, of those that are there; and what their objects say about each other. Nothing is done here.

use std::collections::BTreeMap;
use std::sync::Arc;

use croft_meta::Quantity;
use croft_reconcile::Key;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, PersistentVolumeSpec};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Text;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};

use super::{DEFAULT_POOL, is_ours};

/// Which pool a volume's file is in.
pub(super) const POOL_ATTRIBUTE: &str = "croft.io/pool";
const HOSTNAME: &str = "kubernetes.io/hostname";
const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";

pub(super) fn bytes(quantity: &Text) -> u64 {
    let value = Quantity::parse(&quantity.0).map_or(0, |quantity| quantity.value());
    u64::try_from(value).unwrap_or(0)
}

fn storage(sizes: Option<&BTreeMap<String, Text>>) -> u64 {
    sizes.and_then(|sizes| sizes.get("storage")).map_or(0, bytes)
}

pub(super) fn capacity_bytes(volume: &PersistentVolume) -> u64 {
    storage(volume.spec.as_ref().and_then(|spec| spec.capacity.as_ref()))
}

/// What a claim asks for.
pub(super) fn requested_bytes(claim: &PersistentVolumeClaim) -> u64 {
    let resources = claim.spec.as_ref().and_then(|spec| spec.resources.as_ref());
    storage(resources.and_then(|resources| resources.requests.as_ref()))
}

/// What a claim is told that it has.
pub(super) fn granted_bytes(claim: &PersistentVolumeClaim) -> u64 {
    storage(claim.status.as_ref().and_then(|status| status.capacity.as_ref()))
}

pub(super) fn phase(claim: &PersistentVolumeClaim) -> &str {
    claim.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default()
}

/// Bound, with everything that says so.
pub(super) fn is_complete(claim: &PersistentVolumeClaim) -> bool {
    let annotations = claim.metadata.annotations.as_ref();
    phase(claim) == "Bound" && annotations.is_some_and(|all| all.contains_key(BIND_COMPLETED))
}

/// The class, of which there may be none.
pub(super) fn class_of(claim: &PersistentVolumeClaim) -> &str {
    claim.spec.as_ref().and_then(|spec| spec.storage_class_name.as_deref()).unwrap_or_default()
}

/// The claim that a volume is for.
pub(super) fn claim_of(volume: &PersistentVolume) -> Option<Key> {
    let reference = volume.spec.as_ref()?.claim_ref.as_ref()?;
    Some(Key::new(reference.namespace.as_deref().unwrap_or_default(), reference.name.as_deref().unwrap_or_default()))
}

/// Whether a volume is for this very claim. One that was reserved by name takes whoever has the name.
pub(super) fn is_for(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    let Some(reference) = volume.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref()) else { return false };
    let meta = &claim.metadata;
    let is_named = reference.namespace == meta.namespace && reference.name == meta.name;
    is_named && reference.uid.as_deref().is_none_or(|uid| uid.is_empty() || Some(uid) == meta.uid.as_deref())
}

/// The name of the file behind a volume of ours.
pub(super) fn handle(volume: &PersistentVolume) -> Option<&str> {
    let source = volume.spec.as_ref()?.csi.as_ref()?;
    is_ours(&source.driver).then_some(source.volume_handle.as_str())
}

pub(super) fn pool(volume: &PersistentVolume) -> &str {
    let source = volume.spec.as_ref().and_then(|spec| spec.csi.as_ref());
    let attributes = source.and_then(|source| source.volume_attributes.as_ref());
    attributes.and_then(|all| all.get(POOL_ATTRIBUTE)).map_or(DEFAULT_POOL, String::as_str)
}

/// The nodes that can reach a volume; `None` for all. More than lists of host names we do not write, and do not read.
pub(super) fn nodes(volume: &PersistentVolume) -> Option<Vec<&str>> {
    let terms = volume.spec.as_ref()?.node_affinity.as_ref()?.required.as_ref()?;
    let expressions = terms.node_selector_terms.iter().flat_map(|term| term.match_expressions.iter().flatten());
    let hosts = expressions.filter(|expression| expression.key == HOSTNAME && expression.operator == "In");
    Some(hosts.flat_map(|expression| expression.values.iter().flatten()).map(String::as_str).collect())
}

pub(super) fn is_reachable(volume: &PersistentVolume, node: &str) -> bool {
    nodes(volume).is_none_or(|nodes| nodes.contains(&node))
}

/// One of our files, on this node.
pub(super) fn is_local(volume: &PersistentVolume, node: &str) -> bool {
    handle(volume).is_some() && is_reachable(volume, node)
}

/// The volume for a claim: the one reserved for it, or else the smallest that is free and fits.
pub(super) fn choose<'a>(
    claim: &PersistentVolumeClaim,
    volumes: &'a [Arc<PersistentVolume>],
) -> Option<&'a Arc<PersistentVolume>> {
    let is_alive = |volume: &&Arc<PersistentVolume>| volume.metadata.deletion_timestamp.is_none();
    if let Some(reserved) = volumes.iter().filter(is_alive).find(|volume| is_for(volume, claim)) {
        return Some(reserved);
    }
    let free = volumes.iter().filter(is_alive).filter(|volume| claim_of(volume).is_none());
    free.filter(|volume| fits(claim, volume)).min_by_key(|volume| capacity_bytes(volume))
}

/// Whether a volume is what a claim asks for, or more.
pub(super) fn fits(claim: &PersistentVolumeClaim, volume: &PersistentVolume) -> bool {
    let (Some(wanted), Some(offered)) = (claim.spec.as_ref(), volume.spec.as_ref()) else { return false };
    let mode = |mode: &Option<String>| mode.clone().unwrap_or_else(|| "Filesystem".to_owned());
    let modes = offered.access_modes.as_deref().unwrap_or_default();
    class_of(claim) == offered.storage_class_name.as_deref().unwrap_or_default()
        && mode(&wanted.volume_mode) == mode(&offered.volume_mode)
        && wanted.access_modes.iter().flatten().all(|wanted| modes.contains(wanted))
        && capacity_bytes(volume) >= requested_bytes(claim)
        && wanted.data_source.is_none()
        && wanted.selector.as_ref().is_none_or(|selector| selects(selector, volume))
}

fn selects(selector: &LabelSelector, volume: &PersistentVolume) -> bool {
    let none = BTreeMap::new();
    let labels = volume.metadata.labels.as_ref().unwrap_or(&none);
    let equal = selector.match_labels.iter().flatten().all(|(key, value)| labels.get(key) == Some(value));
    equal && selector.match_expressions.iter().flatten().all(|requirement| holds(requirement, labels))
}

fn holds(requirement: &LabelSelectorRequirement, labels: &BTreeMap<String, String>) -> bool {
    let values = requirement.values.as_deref().unwrap_or_default();
    let found = labels.get(&requirement.key);
    match requirement.operator.as_str() {
        "In" => found.is_some_and(|value| values.contains(value)),
        "NotIn" => found.is_none_or(|value| !values.contains(value)),
        "Exists" => found.is_some(),
        "DoesNotExist" => found.is_none(),
        _ => false,
    }
}

/// Where a volume that somebody else made lies on this node: a path, for `local` and `hostPath`.
pub(super) fn host_path(spec: &PersistentVolumeSpec) -> Option<&str> {
    let local = spec.local.as_ref().map(|local| local.path.as_str());
    local.or_else(|| spec.host_path.as_ref().map(|host| host.path.as_str()))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn claim(spec: &Value) -> PersistentVolumeClaim {
        let meta = json!({"namespace": "ns", "name": "claim", "uid": "1"});
        serde_json::from_value(json!({"metadata": meta, "spec": spec})).unwrap()
    }

    fn volume(name: &str, size: &str, change: &Value) -> Arc<PersistentVolume> {
        let mut spec = json!({
            "capacity": {"storage": size}, "accessModes": ["ReadWriteOnce", "ReadWriteMany"], "storageClassName": "manual",
            "volumeMode": "Block", "local": {"path": "/dev/x"},
        });
        spec.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        let meta = json!({"name": name, "labels": {"disk": name}});
        Arc::new(serde_json::from_value(json!({"metadata": meta, "spec": spec})).unwrap())
    }

    fn wanted(change: &Value) -> Value {
        let mut spec = json!({
            "accessModes": ["ReadWriteOnce"], "volumeMode": "Block", "storageClassName": "manual",
            "resources": {"requests": {"storage": "2Gi"}},
        });
        spec.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        spec
    }

    #[test]
    fn the_smallest_volume_that_fits_is_chosen() {
        let none = json!({});
        let volumes = [
            volume("large", "9Gi", &none),
            volume("small", "1Gi", &none),
            volume("fits", "3Gi", &none),
            volume("taken", "2Gi", &json!({"claimRef": {"namespace": "ns", "name": "other", "uid": "2"}})),
            volume("files", "2Gi", &json!({"volumeMode": "Filesystem"})),
            volume("once", "2Gi", &json!({"accessModes": ["ReadOnlyMany"]})),
            volume("other", "2Gi", &json!({"storageClassName": "else"})),
        ];
        let choose = |spec: &Value| choose(&claim(spec), &volumes).and_then(|volume| volume.metadata.name.clone());
        let cases = [
            (json!({}), Some("fits")),
            (json!({"accessModes": ["ReadWriteMany"]}), Some("fits")),
            (json!({"resources": {"requests": {"storage": "8Gi"}}}), Some("large")),
            (json!({"resources": {"requests": {"storage": "10Gi"}}}), None),
            (json!({"storageClassName": ""}), None),
            (json!({"volumeMode": "Filesystem"}), Some("files")),
            (json!({"selector": {"matchLabels": {"disk": "large"}}}), Some("large")),
            (
                json!({"selector": {"matchExpressions": [{"key": "disk", "operator": "NotIn", "values": ["fits"]}]}}),
                Some("large"),
            ),
            (json!({"selector": {"matchExpressions": [{"key": "disk", "operator": "DoesNotExist"}]}}), None),
        ];
        for (change, expected) in cases {
            assert_eq!(choose(&wanted(&change)).as_deref(), expected, "{change}");
        }
    }

    #[test]
    fn a_volume_that_is_reserved_comes_first_and_only_for_its_claim() {
        let none = json!({});
        let reserved = |uid: &str| json!({"claimRef": {"namespace": "ns", "name": "claim", "uid": uid}, "storageClassName": "any"});
        let of = |name: &str, uid| [volume("fits", "3Gi", &none), volume(name, "1Gi", &reserved(uid))];
        let claim = claim(&wanted(&none));
        let name = |volumes: &[Arc<PersistentVolume>]| choose(&claim, volumes).unwrap().metadata.name.clone().unwrap();
        assert_eq!(name(&of("by-name", "")), "by-name");
        assert_eq!(name(&of("by-uid", "1")), "by-uid");
        assert_eq!(name(&of("of-another", "2")), "fits", "a claim of that name that was there before");
    }

    #[test]
    fn a_volume_is_reachable_from_the_nodes_it_names() {
        let terms =
            json!([{"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["a"]}]}]);
        let affine = volume("x", "1Gi", &json!({"nodeAffinity": {"required": {"nodeSelectorTerms": terms}}}));
        assert!(is_reachable(&affine, "a") && !is_reachable(&affine, "b"));
        assert!(is_reachable(&volume("y", "1Gi", &json!({})), "b"));
    }
}
