//! Addons: parts of the platform that are switched on and off.

use croft_meta::{ApiError, FieldPath};
use serde_json::Value;

use super::denial::{Denial, refuse};
use super::machine::HARVESTER;
use super::{Admission, Lookup};
use crate::harvester::addon::{self, state};
use crate::view::{flag, get, has, list, text};

/// While one of these goes on, nothing may be changed.
const BUSY: [&str; 3] = [state::ENABLING, state::UPDATING, state::DISABLING];
const SKIP_DESCHEDULER: &str = "harvesterhci.io/skipDeschedulerAddonWebhookCheck";
const SKIP_DEVICES: &str = "harvesterhci.io/skipPCIDevicesControllerAddonWebhookCheck";

fn invalid(field: &str, message: impl Into<String>) -> Result<(), ApiError> {
    let mut denial = Denial::by(HARVESTER);
    denial.invalid(&FieldPath::new(field), message);
    denial.finish()
}

pub(super) fn admit(admission: &mut Admission<'_>) -> Result<(), ApiError> {
    let addon = &*admission.object;
    if admission.subresource == "status" || has(addon, "metadata.deletionTimestamp") {
        return Ok(());
    }
    let values = text(addon, "spec.valuesContent");
    if admission.old.is_none_or(|old| text(old, "spec.valuesContent") != values) {
        check_values(addon, values)?;
    }
    match admission.old {
        None => is_only_one(addon, admission.lookup)?,
        Some(old) if get(old, "spec") == get(addon, "spec") => return Ok(()),
        Some(old) => check_change(addon, old)?,
    }
    check_switch(addon, admission.old, admission.lookup)
}

/// Empty, or a mapping in YAML.
fn check_values(addon: &Value, values: &str) -> Result<(), ApiError> {
    if values.trim().is_empty() {
        return Ok(());
    }
    let field = "spec.valuesContent";
    let parsed: Value = match serde_saphyr::from_str(values) {
        Ok(parsed) => parsed,
        Err(error) => return invalid(field, format!("invalid YAML in valuesContent: {error}")),
    };
    if !parsed.is_object() && !parsed.is_null() {
        return invalid(field, "invalid YAML in valuesContent: a mapping is needed");
    }
    let is_vcluster = text(addon, "metadata.name") == "rancher-vcluster" && flag(addon, "spec.enabled");
    let host = text(&parsed, "hostname");
    if is_vcluster && (!host.contains('.') || !croft_meta::names::is_dns1123_subdomain(host).is_empty()) {
        return invalid(field, format!("hostname {host:?} is not a FQDN"));
    }
    Ok(())
}

fn is_only_one(addon: &Value, lookup: &dyn Lookup) -> Result<(), ApiError> {
    let chart = text(addon, "spec.chart");
    let others = lookup.list("harvesterhci.io", "addons", "");
    if !chart.is_empty() && others.iter().any(|other| text(other, "spec.chart") == chart) {
        let message = format!("addon with Chart {chart} has been created, cannot create a new one");
        return Err(refuse(HARVESTER, 409, "Conflict", &message));
    }
    Ok(())
}

fn check_change(addon: &Value, old: &Value) -> Result<(), ApiError> {
    if text(old, "spec.chart") != text(addon, "spec.chart") {
        return invalid("spec.chart", "chart field cannot be changed.");
    }
    if BUSY.contains(&text(old, "status.status")) {
        let name = text(addon, "metadata.name");
        let message = format!("cannot perform operation, as an existing operation is in progress on addon {name}");
        return Err(refuse(HARVESTER, 409, "Conflict", &message));
    }
    Ok(())
}

fn check_switch(addon: &Value, old: Option<&Value>, lookup: &dyn Lookup) -> Result<(), ApiError> {
    let (name, is_on) = (text(addon, "metadata.name"), flag(addon, "spec.enabled"));
    let was_on = old.is_some_and(|old| flag(old, "spec.enabled"));
    let skips = |key: &str| {
        get(addon, "metadata.annotations").and_then(|map| map.get(key)).and_then(Value::as_str) == Some("true")
    };
    if is_on && !was_on && name == "descheduler" && !skips(SKIP_DESCHEDULER) && lookup.list("", "nodes", "").len() < 2 {
        return invalid("spec.enabled", "descheduler addon cannot be enabled as not enough nodes exist in the cluster");
    }
    if !is_on && was_on && name == "pcidevices-controller" && !skips(SKIP_DEVICES) {
        let machines = lookup.list("kubevirt.io", "virtualmachines", "");
        let devices = "spec.template.spec.domain.devices.hostDevices";
        if let Some(user) = machines.iter().find(|machine| !list(machine, devices).is_empty()) {
            let user = format!("{}/{}", text(user, "metadata.namespace"), text(user, "metadata.name"));
            return invalid("spec.enabled", format!("{name} addon cannot be disabled, it is used by VM {user}"));
        }
    }
    Ok(())
}

pub(super) fn admit_delete(object: &Value, _: &dyn Lookup) -> Result<(), ApiError> {
    let (namespace, name) = (text(object, "metadata.namespace"), text(object, "metadata.name"));
    // What every server has can be switched off, not removed.
    if addon::find(namespace, name).is_some() {
        return Err(refuse(HARVESTER, 400, "BadRequest", &format!("{namespace}/{name} addon cannot be deleted")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::testing::{admitted, nothing, refusal, write};
    use super::*;

    fn addon(name: &str, change: &Value) -> Value {
        let mut addon = json!({
            "metadata": {"name": name, "namespace": "kube-system"},
            "spec": {"repo": "r", "chart": name, "version": "1", "valuesContent": "", "enabled": false},
        });
        for (field, value) in change.as_object().unwrap() {
            addon["spec"][field] = value.clone();
        }
        addon
    }

    #[test]
    fn values_are_yaml_mappings() {
        admitted(admit, addon("a", &json!({"valuesContent": "a:\n  b: 1\n"})));
        for values in ["- a", "a: [", "text"] {
            let error = refusal(admit, addon("a", &json!({"valuesContent": values})));
            assert!(error.message().contains("invalid YAML in valuesContent"), "{values}: {error}");
        }
    }

    #[test]
    fn charts_are_there_once_and_do_not_change() {
        let others = nothing().with("harvesterhci.io", "addons", addon("a", &json!({})));
        let error = write(admit, addon("b", &json!({"chart": "a"})), None, &others, false).unwrap_err();
        assert_eq!(error.code(), 409);
        let old = addon("a", &json!({}));
        let error = write(admit, addon("a", &json!({"chart": "b"})), Some(&old), &nothing(), false).unwrap_err();
        assert!(error.message().contains("chart field cannot be changed."));
        let mut busy = old;
        busy["status"] = json!({"status": "AddonEnabling"});
        let error = write(admit, addon("a", &json!({"version": "2"})), Some(&busy), &nothing(), false).unwrap_err();
        assert!(error.message().contains("existing operation is in progress on addon a"));
    }

    #[test]
    fn the_descheduler_needs_another_node_and_shipped_addons_stay() {
        let error = refusal(admit, addon("descheduler", &json!({"enabled": true})));
        assert!(error.message().contains("not enough nodes exist in the cluster"), "{error}");
        let error = admit_delete(&addon("descheduler", &json!({})), &nothing()).unwrap_err();
        assert!(error.message().contains("kube-system/descheduler addon cannot be deleted"));
        admit_delete(&addon("mine", &json!({})), &nothing()).unwrap();
    }
}
