//! Versions, Upgrades and support bundles.

use croft_meta::{ApiError, FieldPath};
use serde_json::Value;

use super::denial::{Denial, refuse};
use super::machine::HARVESTER;
use super::{Admission, Lookup};
use crate::view::{get, has, strings, text};

/// SHA-512 in hexadecimal digits.
const CHECKSUM_DIGITS: usize = 128;

fn invalid(field: &str, message: impl Into<String>) -> Result<(), ApiError> {
    let mut denial = Denial::by(HARVESTER);
    denial.invalid(&FieldPath::new(field), message);
    denial.finish()
}

pub(super) fn admit_version(admission: &mut Admission<'_>) -> Result<(), ApiError> {
    let checksum = text(admission.object, "spec.isoChecksum");
    let is_checksum = checksum.len() == CHECKSUM_DIGITS && checksum.bytes().all(|byte| byte.is_ascii_hexdigit());
    if checksum.is_empty() || is_checksum {
        return Ok(());
    }
    invalid("spec.isoChecksum", format!("invalid isoChecksum {checksum}"))
}

/// What it names is checked first, so that a wrong name is not taken for a missing feature.
pub(super) fn admit_upgrade(admission: &mut Admission<'_>) -> Result<(), ApiError> {
    if admission.old.is_some() {
        return Ok(());
    }
    let upgrade = &*admission.object;
    let (version, image) = (text(upgrade, "spec.version"), text(upgrade, "spec.image"));
    if version.is_empty() && image.is_empty() {
        return invalid("spec.version", "version or image field are not specified.");
    }
    let namespace = text(upgrade, "metadata.namespace");
    if !version.is_empty() && admission.lookup.get("harvesterhci.io", "versions", namespace, version).is_none() {
        return invalid("spec.version", format!("version {version} is not found"));
    }
    let (image_namespace, name) = image.split_once('/').unwrap_or_default();
    let images = "virtualmachineimages";
    if !image.is_empty() && admission.lookup.get("harvesterhci.io", images, image_namespace, name).is_none() {
        return invalid("spec.image", format!("image {image} is not found"));
    }
    let message = "this server does not upgrade itself yet: replace its program and start it again";
    Err(refuse(HARVESTER, 405, "MethodNotAllowed", message))
}

/// Made along with an upgrade, by the server alone.
pub(super) fn admit_upgrade_log(admission: &mut Admission<'_>) -> Result<(), ApiError> {
    let is_allowed = admission.is_internal || admission.user == "system:serviceaccount:harvester-system:harvester";
    if is_allowed || admission.old.is_some() {
        return Ok(());
    }
    let message = format!("user {} is not allowed to create an upgrade log", admission.user);
    Err(refuse(HARVESTER, 403, "Forbidden", &message))
}

pub(super) fn admit_bundle(admission: &mut Admission<'_>) -> Result<(), ApiError> {
    let bundle = &*admission.object;
    if has(bundle, "metadata.deletionTimestamp") {
        return Ok(());
    }
    if let Some(old) = admission.old {
        if get(old, "spec") == get(bundle, "spec") {
            return Ok(());
        }
        return invalid("spec", "modifying the spec of an existing support bundle is not allowed");
    }
    let is_missing = |name: &&str| admission.lookup.get("", "namespaces", "", name).is_none();
    match strings(bundle, "spec.extraCollectionNamespaces").into_iter().find(is_missing) {
        Some(name) => invalid("spec.extraCollectionNamespaces", format!("namespace {name} not found")),
        None => Ok(()),
    }
}

/// Machines are not taken along by a namespace that somebody thought empty.
pub(super) fn admit_namespace_delete(namespace: &Value, lookup: &dyn Lookup) -> Result<(), ApiError> {
    let name = text(namespace, "metadata.name");
    let machines = lookup.list("kubevirt.io", "virtualmachines", name);
    let left: Vec<&str> = machines
        .iter()
        .filter(|machine| !has(machine, "metadata.deletionTimestamp"))
        .map(|machine| text(machine, "metadata.name"))
        .collect();
    if left.is_empty() {
        return Ok(());
    }
    let message = format!("namespace {name} can't be deleted, it still has virtual machines: {}", left.join(", "));
    Err(refuse(HARVESTER, 409, "Conflict", &message))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::testing::{admitted, nothing, refusal, write};
    use super::*;

    #[test]
    fn versions_have_checksums() {
        admitted(admit_version, json!({"spec": {"isoURL": "u", "isoChecksum": "a".repeat(128)}}));
        admitted(admit_version, json!({"spec": {"isoURL": "u"}}));
        for checksum in ["abc".to_owned(), "g".repeat(128)] {
            let error = refusal(admit_version, json!({"spec": {"isoURL": "u", "isoChecksum": checksum}}));
            assert!(error.message().contains("invalid isoChecksum"), "{error}");
        }
    }

    #[test]
    fn upgrades_are_refused_with_the_reason() {
        let upgrade = |spec: Value| json!({"metadata": {"namespace": "harvester-system"}, "spec": spec});
        assert_eq!(refusal(admit_upgrade, upgrade(json!({}))).code(), 422);
        assert!(refusal(admit_upgrade, upgrade(json!({"version": "v2"}))).message().contains("v2 is not found"));
        let version = json!({"metadata": {"name": "v2", "namespace": "harvester-system"}});
        let known = nothing().with("harvesterhci.io", "versions", version);
        let error = write(admit_upgrade, upgrade(json!({"version": "v2"})), None, &known, false).unwrap_err();
        assert_eq!(error.code(), 405);
        assert!(error.message().contains("does not upgrade itself yet"));
        assert_eq!(refusal(admit_upgrade_log, json!({})).code(), 403);
    }

    #[test]
    fn bundles_do_not_change_and_name_namespaces() {
        let bundle = |spec: Value| json!({"metadata": {"name": "b"}, "spec": spec});
        let error = refusal(admit_bundle, bundle(json!({"extraCollectionNamespaces": ["nowhere"]})));
        assert!(error.message().contains("namespace nowhere not found"));
        let old = bundle(json!({"description": "a"}));
        let new = bundle(json!({"description": "b"}));
        let error = write(admit_bundle, new, Some(&old), &nothing(), false).unwrap_err();
        assert!(error.message().contains("modifying the spec of an existing support bundle is not allowed"));
    }

    #[test]
    fn a_namespace_with_machines_stays() {
        let namespace = json!({"metadata": {"name": "n"}});
        let machine = json!({"metadata": {"name": "vm", "namespace": "n"}});
        let used = nothing().with("kubevirt.io", "virtualmachines", machine);
        let error = admit_namespace_delete(&namespace, &used).unwrap_err();
        assert_eq!(error.code(), 409);
        assert!(error.message().contains("virtual machines: vm"), "{error}");
        admit_namespace_delete(&namespace, &nothing()).unwrap();
    }
}
