//! VirtualMachineTemplates and their versions.

use croft_meta::{ApiError, FieldPath};
use serde_json::Value;

use super::denial::{Denial, refuse};
use super::machine::HARVESTER;
use super::{Admission, Lookup};
use crate::view::{get, has, strings, text};

const GROUP: &str = "harvesterhci.io";
const LIMITS: &str = "spec.vm.spec.template.spec.domain.resources.limits";

fn invalid(field: &str, message: impl Into<String>) -> Result<(), ApiError> {
    let mut denial = Denial::by(HARVESTER);
    denial.invalid(&FieldPath::new(field), message);
    denial.finish()
}

/// The default version is one of the template's own.
pub(super) fn admit(admission: &mut Admission<'_>) -> Result<(), ApiError> {
    let template = &*admission.object;
    let id = text(template, "spec.defaultVersionId");
    let is_same = admission.old.is_some_and(|old| text(old, "spec.defaultVersionId") == id);
    if id.is_empty() || is_same || admission.is_internal || has(template, "metadata.deletionTimestamp") {
        return Ok(());
    }
    let field = "spec.defaultVersionId";
    let own = format!("{}/{}", text(template, "metadata.namespace"), text(template, "metadata.name"));
    let (namespace, name) = id.split_once('/').unwrap_or_default();
    match admission.lookup.get(GROUP, "virtualmachinetemplateversions", namespace, name) {
        None => invalid(field, format!("template version {id} not found")),
        Some(version) if text(&version, "spec.templateId") != own => {
            invalid(field, format!("template version {id} is not a version of the template {own}"))
        }
        Some(_) => Ok(()),
    }
}

pub(super) fn admit_version(admission: &mut Admission<'_>) -> Result<(), ApiError> {
    let version = &*admission.object;
    if has(version, "metadata.deletionTimestamp") {
        return Ok(());
    }
    if let Some(old) = admission.old {
        if get(version, "spec") == get(old, "spec") {
            return Ok(());
        }
        return Err(refuse(HARVESTER, 405, "MethodNotAllowed", "Update templateVersion is not supported"));
    }
    check_template(version, admission.lookup)?;
    check_keys(version, admission.lookup)?;
    check_size(version)
}

fn check_template(version: &Value, lookup: &dyn Lookup) -> Result<(), ApiError> {
    let field = "spec.templateId";
    let id = text(version, field);
    if id.is_empty() {
        return invalid(field, "TemplateId is empty");
    }
    let (namespace, name) = id.split_once('/').unwrap_or_default();
    if namespace != text(version, "metadata.namespace") {
        return invalid(field, "Template version and template should reside in the same namespace");
    }
    if lookup.get(GROUP, "virtualmachinetemplates", namespace, name).is_none() {
        return invalid(field, format!("virtualmachinetemplates.harvesterhci.io \"{name}\" not found"));
    }
    Ok(())
}

fn check_keys(version: &Value, lookup: &dyn Lookup) -> Result<(), ApiError> {
    for (index, id) in strings(version, "spec.keyPairIds").into_iter().enumerate() {
        let (namespace, name) = id.split_once('/').unwrap_or_default();
        if lookup.get(GROUP, "keypairs", namespace, name).is_none() {
            let message = format!("KeyPairID {id} is invalid, keypairs.harvesterhci.io \"{name}\" not found");
            return invalid(&format!("spec.keyPairIds[{index}]"), message);
        }
    }
    Ok(())
}

/// A machine whose size is nowhere said could not be booked.
fn check_size(version: &Value) -> Result<(), ApiError> {
    if !has(version, "spec.vm") || has(version, "spec.vm.spec.instancetype") {
        return Ok(());
    }
    if ["cpu", "memory"].into_iter().all(|resource| has(version, &format!("{LIMITS}.{resource}"))) {
        return Ok(());
    }
    invalid(LIMITS, "CPU and Memory limits are required fields, but are missing from the input")
}

/// The default version goes with its template, and not before.
pub(super) fn admit_version_delete(version: &Value, lookup: &dyn Lookup) -> Result<(), ApiError> {
    let (namespace, name) = (text(version, "metadata.namespace"), text(version, "metadata.name"));
    let (of_namespace, of) = text(version, "spec.templateId").split_once('/').unwrap_or_default();
    let Some(template) = lookup.get(GROUP, "virtualmachinetemplates", of_namespace, of) else { return Ok(()) };
    let is_default = text(&template, "spec.defaultVersionId") == format!("{namespace}/{name}");
    if !is_default || has(&template, "metadata.deletionTimestamp") {
        return Ok(());
    }
    Err(refuse(HARVESTER, 400, "BadRequest", "Cannot delete the default templateVersion"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::testing::{Objects, nothing, write};
    use super::*;

    fn version(change: &Value) -> Value {
        let limits = json!({"domain": {"resources": {"limits": {"cpu": "1", "memory": "1Gi"}}}});
        let mut version = json!({
            "metadata": {"name": "t-1", "namespace": "n"},
            "spec": {"templateId": "n/t", "vm": {"spec": {"template": {"spec": limits}}}},
        });
        for (field, value) in change.as_object().unwrap() {
            version["spec"][field] = value.clone();
        }
        version
    }

    fn template(default: &str) -> Objects {
        let template = json!({"metadata": {"name": "t", "namespace": "n"}, "spec": {"defaultVersionId": default}});
        nothing().with(GROUP, "virtualmachinetemplates", template)
    }

    #[test]
    fn versions_need_their_template_their_keys_and_a_size() {
        let cases = [
            (json!({"templateId": ""}), "TemplateId is empty"),
            (json!({"templateId": "m/t"}), "Template version and template should reside in the same namespace"),
            (json!({"templateId": "n/u"}), "\"u\" not found"),
            (json!({"keyPairIds": ["n/k"]}), "KeyPairID n/k is invalid, "),
            (json!({"vm": {"spec": {}}}), "CPU and Memory limits are required fields, but are missing from the input"),
        ];
        for (change, message) in cases {
            let error = write(admit_version, version(&change), None, &template(""), false).unwrap_err();
            assert!(error.message().contains(message), "{error}");
            assert_eq!(error.code(), 422);
        }
        write(admit_version, version(&json!({})), None, &template(""), false).unwrap();
        let keys = template("").with(GROUP, "keypairs", json!({"metadata": {"name": "k", "namespace": "n"}}));
        write(admit_version, version(&json!({"keyPairIds": ["n/k"]})), None, &keys, false).unwrap();
    }

    #[test]
    fn versions_do_not_change() {
        let old = version(&json!({}));
        let changed = version(&json!({"description": "other"}));
        let error = write(admit_version, changed, Some(&old), &template(""), false).unwrap_err();
        assert_eq!((error.code(), error.reason()), (405, "MethodNotAllowed"));
        let mut labelled = old.clone();
        labelled["status"] = json!({"version": 1});
        write(admit_version, labelled, Some(&old), &template(""), false).unwrap();
    }

    #[test]
    fn the_default_version_stays_as_long_as_its_template() {
        let error = admit_version_delete(&version(&json!({})), &template("n/t-1")).unwrap_err();
        assert!(error.message().contains("Cannot delete the default templateVersion"));
        admit_version_delete(&version(&json!({})), &template("n/t-2")).unwrap();
        admit_version_delete(&version(&json!({})), &nothing()).unwrap();
    }

    #[test]
    fn the_default_is_one_of_the_templates_own() {
        let wanted = json!({"metadata": {"name": "t", "namespace": "n"}, "spec": {"defaultVersionId": "n/t-1"}});
        let error = write(admit, wanted.clone(), None, &nothing(), false).unwrap_err();
        assert!(error.message().contains("n/t-1 not found"), "{error}");
        let foreign = version(&json!({"templateId": "n/other"}));
        let foreign = nothing().with(GROUP, "virtualmachinetemplateversions", foreign);
        write(admit, wanted.clone(), None, &foreign, false).unwrap_err();
        let own = nothing().with(GROUP, "virtualmachinetemplateversions", version(&json!({})));
        write(admit, wanted, None, &own, false).unwrap();
    }
}
