//! Plugging network cards in and out. Croft does so while the guest runs, without moving it.

use croft_meta::{ApiError, object};
use serde::Deserialize;
use serde_json::{Value, json};

use super::super::acting::{Acting, name, required};
use super::super::reply::invalid;
use super::VMI;
use crate::answer::{self, Answer};

const ATTACHMENTS: (&str, &str) = ("k8s.cni.cncf.io", "network-attachment-definitions");
const INTERFACES: &str = "/spec/template/spec/domain/devices/interfaces";

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Add {
    interface_name: String,
    network_name: String,
    mac_address: String,
}

pub(super) async fn add(acting: &Acting<'_>) -> Result<(), ApiError> {
    let asked: Add = acting.body()?;
    let interface = name("interfaceName", &asked.interface_name)?;
    let network = required("networkName", &asked.network_name)?;
    is_running(acting)?;
    is_pluggable(acting, network)?;
    let mut card = json!({ "name": interface, "model": "virtio", "bridge": {} });
    if !asked.mac_address.is_empty() {
        card["macAddress"] = json!(asked.mac_address);
    }
    let cable = json!({ "name": interface, "multus": { "networkName": network } });
    acting
        .change(|machine| {
            if interfaces(machine).iter().any(|there| there["name"] == interface) {
                return Err(acting.conflict(&format!("interface {interface} already exists")));
            }
            object::list_mut(machine, INTERFACES).push(card.clone());
            object::list_mut(machine, "/spec/template/spec/networks").push(cable.clone());
            Ok(())
        })
        .await
}

fn is_running(acting: &Acting<'_>) -> Result<(), ApiError> {
    let instance = acting.find("kubevirt.io", VMI, acting.namespace, acting.name).unwrap_or_default();
    if instance["status"]["phase"] == "Running" {
        return Ok(());
    }
    Err(acting.conflict("VM is not running: change its interfaces in the spec"))
}

fn is_pluggable(acting: &Acting<'_>, network: &str) -> Result<(), ApiError> {
    let (namespace, attachment) = network.split_once('/').unwrap_or((acting.namespace, network));
    let found = acting.find(ATTACHMENTS.0, ATTACHMENTS.1, namespace, attachment);
    let found = found.ok_or_else(|| ApiError::not_found(ATTACHMENTS.0, ATTACHMENTS.1, attachment))?;
    let config: Value = serde_json::from_str(found["spec"]["config"].as_str().unwrap_or_default()).unwrap_or_default();
    if config["type"] == "bridge" && found["metadata"]["deletionTimestamp"].is_null() {
        return Ok(());
    }
    Err(invalid("InvalidState", format!("network {network} is not hot-pluggable")))
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Remove {
    interface_name: String,
}

pub(super) async fn remove(acting: &Acting<'_>) -> Result<(), ApiError> {
    let asked: Remove = acting.body()?;
    let interface = required("interfaceName", &asked.interface_name)?;
    is_running(acting)?;
    acting
        .change(|machine| {
            if !interfaces(machine).iter().any(|there| there["name"] == interface) {
                return Err(acting.conflict(&format!("interface {interface} does not exist")));
            }
            if !unpluggable(machine).contains(&interface) {
                return Err(acting.conflict(&format!("interface {interface} is not hot-unpluggable")));
            }
            for there in object::list_mut(machine, INTERFACES) {
                if there["name"] == interface {
                    there["state"] = json!("absent");
                }
            }
            Ok(())
        })
        .await
}

/// Answers which cards can be taken out.
pub(super) fn find_unpluggable(machine: &Value) -> Answer {
    answer::json(200, &json!({ "interfaces": unpluggable(machine) }))
}

fn interfaces(machine: &Value) -> &[Value] {
    machine.pointer(INTERFACES).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

/// One card stays, or the guest would be alone.
fn unpluggable(machine: &Value) -> Vec<&str> {
    let mut present = interfaces(machine).iter().filter(|there| there["state"] != "absent");
    if present.clone().count() < 2 {
        return Vec::new();
    }
    let is_plain =
        |there: &&Value| there["bridge"].is_object() && matches!(there["model"].as_str(), None | Some("virtio"));
    present.by_ref().filter(is_plain).filter_map(|there| there["name"].as_str()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bridged_virtio_cards_can_go_unless_they_are_the_last() {
        let machine = |interfaces: Value| {
            let devices = json!({ "devices": { "interfaces": interfaces } });
            json!({ "spec": { "template": { "spec": { "domain": devices } } } })
        };
        let (pod, plain) = (json!({"name": "a", "masquerade": {}}), json!({"name": "b", "bridge": {}}));
        let old = json!({"name": "c", "bridge": {}, "model": "e1000"});
        let gone = json!({"name": "d", "bridge": {}, "state": "absent"});
        assert_eq!(unpluggable(&machine(json!([pod, plain, old, gone]))), ["b"]);
        assert!(unpluggable(&machine(json!([plain, gone]))).is_empty());
        assert!(unpluggable(&json!({})).is_empty());
    }
}
