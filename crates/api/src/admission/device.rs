//! Devices of nodes that guests could have: what may be claimed, divided and given back.
//!
//! Nothing passes devices through yet, but whoever keeps such objects keeps them by Harvester's rules.

use croft_meta::ApiError;
use serde_json::Value;

use super::denial::refuse;
use super::{Admission, Lookup};
use crate::view::{flag, get, has, list, map, number, text};

pub(super) const VALIDATOR: &str = "pcidevices-webhook.harvesterhci.io";
const GROUP: &str = "devices.harvesterhci.io";

fn invalid(message: &str) -> ApiError {
    refuse(VALIDATOR, 422, "Invalid", message)
}

fn name(object: &Value) -> &str {
    text(object, "metadata.name")
}

/// Where nothing of the wish has changed, nothing is to be checked.
fn is_settled(admission: &Admission<'_>) -> bool {
    let is_same = admission.old.is_some_and(|old| get(old, "spec") == get(admission.object, "spec"));
    is_same || admission.is_internal || has(admission.object, "metadata.deletionTimestamp")
}

/// The machine that has a device under this name among its own.
fn user_of(device: &str, lookup: &dyn Lookup) -> Option<String> {
    let machines = lookup.mentioning("kubevirt.io", "virtualmachines", "", device);
    let has_it = |machine: &&Value| {
        ["hostDevices", "gpus"].into_iter().any(|kind| {
            let devices = list(machine, &format!("spec.template.spec.domain.devices.{kind}"));
            devices.iter().any(|entry| text(entry, "name") == device)
        })
    };
    machines
        .iter()
        .find(has_it)
        .map(|machine| format!("{}/{}", text(machine, "metadata.namespace"), text(machine, "metadata.name")))
}

/// A claim of a PCI device has the device's name.
pub(super) fn admit_pci_claim(admission: &mut Admission<'_>) -> Result<(), ApiError> {
    if is_settled(admission) {
        return Ok(());
    }
    let claim = &*admission.object;
    let Some(device) = admission.lookup.get(GROUP, "pcidevices", "", name(claim)) else {
        return Err(invalid(&format!("pcidevice {} not found", name(claim))));
    };
    if text(&device, "status.iommuGroup").is_empty() {
        return Err(invalid(&format!("pcidevice {} has no iommuGroup available", name(claim))));
    }
    let (address, node) = (text(&device, "status.address"), text(&device, "status.nodeName"));
    let used = admission.lookup.list(GROUP, "usbdeviceclaims", "").into_iter().find(|usb| {
        !address.is_empty() && text(usb, "status.pciAddress") == address && text(usb, "status.nodeName") == node
    });
    match used {
        Some(usb) => {
            let message = format!("pcidevice {} controls the usb device {} that is claimed", name(claim), name(&usb));
            Err(invalid(&message))
        }
        None => Ok(()),
    }
}

pub(super) fn admit_pci_claim_delete(claim: &Value, lookup: &dyn Lookup) -> Result<(), ApiError> {
    let owner = list(claim, "metadata.ownerReferences").iter().find(|owner| text(owner, "kind") == "VGPUDevice");
    if let Some(owner) = owner {
        let owner = text(owner, "name");
        let message = format!("pcideviceclaim {} cannot be deleted as it is owned by VGPUDevice {owner}", name(claim));
        return Err(invalid(&message));
    }
    match user_of(name(claim), lookup) {
        Some(machine) => Err(invalid(&format!("pcideviceclaim {} is already in use with vm {machine}", name(claim)))),
        None => Ok(()),
    }
}

pub(super) fn admit_usb_claim(admission: &mut Admission<'_>) -> Result<(), ApiError> {
    if is_settled(admission) {
        return Ok(());
    }
    let claim = &*admission.object;
    if admission.old.is_some() {
        return Err(invalid(&format!("the spec of usbdeviceclaim {} can't be changed", name(claim))));
    }
    let Some(device) = admission.lookup.get(GROUP, "usbdevices", "", name(claim)) else {
        return Err(invalid(&format!("usbdevice {} not found", name(claim))));
    };
    let (address, node) = (text(&device, "status.pciAddress"), text(&device, "status.nodeName"));
    let taken =
        admission.lookup.list(GROUP, "pcideviceclaims", "").into_iter().find(|pci| {
            !address.is_empty() && text(pci, "spec.address") == address && text(pci, "spec.nodeName") == node
        });
    match taken {
        Some(pci) => {
            let message = format!("usbdevice {} is below the pcidevice {} that is claimed", name(claim), name(&pci));
            Err(invalid(&message))
        }
        None => Ok(()),
    }
}

pub(super) fn admit_usb_claim_delete(claim: &Value, lookup: &dyn Lookup) -> Result<(), ApiError> {
    match user_of(name(claim), lookup) {
        Some(machine) => Err(invalid(&format!("usbdeviceclaim {} is still in use by vm {machine}", name(claim)))),
        None => Ok(()),
    }
}

pub(super) fn admit_virtual_gpu(admission: &mut Admission<'_>) -> Result<(), ApiError> {
    if is_settled(admission) {
        return Ok(());
    }
    let device = &*admission.object;
    if !flag(device, "spec.enabled") {
        return match user_of(name(device), admission.lookup) {
            Some(machine) => Err(invalid(&format!("vgpudevice {} is already in use with vm {machine}", name(device)))),
            None => Ok(()),
        };
    }
    let profile = text(device, "spec.vGPUTypeName");
    if profile.is_empty() {
        return Err(invalid("VGPUTypeName cannot be empty"));
    }
    let is_known = map(device, "status.availableTypes").is_some_and(|types| types.contains_key(profile));
    if is_known { Ok(()) } else { Err(invalid(&format!("VGPUTypeName {profile} is not a valid profile"))) }
}

/// A GPU is not put together again under the guests that have parts of it.
pub(super) fn admit_gpu(admission: &mut Admission<'_>) -> Result<(), ApiError> {
    if is_settled(admission) || flag(admission.object, "spec.enabled") {
        return Ok(());
    }
    let gpu = &*admission.object;
    for part in list(gpu, "status.vGPUDevices").iter().filter_map(Value::as_str) {
        if let Some(machine) = user_of(part, admission.lookup) {
            let message = format!("sriovgpudevice {} has vgpudevice {part} in use with vm {machine}", name(gpu));
            return Err(invalid(&message));
        }
    }
    Ok(())
}

pub(super) fn admit_gpu_delete(gpu: &Value, _: &dyn Lookup) -> Result<(), ApiError> {
    if flag(gpu, "spec.enabled") {
        return Err(invalid(&format!("please disable gpuDevice {} before deletion", name(gpu))));
    }
    Ok(())
}

/// Virtual functions stay while some of them are claimed.
pub(super) fn admit_network_device(admission: &mut Admission<'_>) -> Result<(), ApiError> {
    let functions = |device: &Value| number(device, "spec.numVFs");
    let is_less = admission.old.is_some_and(|old| functions(admission.object) < functions(old));
    if is_settled(admission) || !is_less {
        return Ok(());
    }
    let device = &*admission.object;
    let claimed: Vec<&str> = list(device, "status.vfPCIDevices")
        .iter()
        .filter_map(Value::as_str)
        .filter(|function| admission.lookup.get(GROUP, "pcideviceclaims", "", function).is_some())
        .collect();
    if claimed.is_empty() {
        return Ok(());
    }
    let claimed = claimed.join(", ");
    Err(invalid(&format!("found pcideviceclaims: {claimed} related to sriovnetworkdevice {} in use", name(device))))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::testing::{Objects, nothing, write};
    use super::super::{Admit, AdmitDelete};
    use super::*;

    fn device(name: &str, status: &Value) -> Value {
        json!({"metadata": {"name": name}, "spec": {}, "status": status})
    }

    /// Machines that have `used` and `gpu` among their devices.
    fn known() -> Objects {
        let machine = |kind: &str, device: &str| {
            json!({"metadata": {"name": "vm", "namespace": "n"}, "spec": {"template": {"spec": {"domain": {"devices": {
                kind: [{"name": device, "deviceName": "example.com/x"}]}}}}}})
        };
        nothing()
            .with("kubevirt.io", "virtualmachines", machine("hostDevices", "used"))
            .with("kubevirt.io", "virtualmachines", machine("gpus", "gpu"))
            .with(GROUP, "pcidevices", device("good", &json!({"iommuGroup": "7", "address": "a", "nodeName": "one"})))
            .with(GROUP, "pcidevices", device("alone", &json!({})))
            .with(GROUP, "pcidevices", device("hub", &json!({"iommuGroup": "8", "address": "h", "nodeName": "one"})))
            .with(GROUP, "usbdevices", device("stick", &json!({"pciAddress": "h", "nodeName": "one"})))
            .with(GROUP, "usbdevices", device("mouse", &json!({"pciAddress": "a", "nodeName": "one"})))
            .with(GROUP, "usbdeviceclaims", device("stick", &json!({"pciAddress": "h", "nodeName": "one"})))
            .with(
                GROUP,
                "pcideviceclaims",
                json!({"metadata": {"name": "vf1"}, "spec": {"address": "a", "nodeName": "one"}}),
            )
    }

    #[track_caller]
    fn told(result: Result<Value, ApiError>, expected: &str) {
        let message = result.err().map(|error| error.message().to_owned()).unwrap_or_default();
        assert_eq!(message.is_empty(), expected.is_empty(), "{message}");
        assert!(message.contains(expected), "{message}");
    }

    fn object(name: &str, spec: &Value) -> Value {
        json!({"metadata": {"name": name}, "spec": spec})
    }

    #[test]
    fn claims_need_a_device_that_can_be_passed_on() {
        let spec = json!({"userName": "admin"});
        for (admit, name, expected) in [
            (admit_pci_claim as Admit, "good", ""),
            (admit_pci_claim, "alone", "pcidevice alone has no iommuGroup available"),
            (admit_pci_claim, "none", "pcidevice none not found"),
            (admit_pci_claim, "hub", "controls the usb device stick"),
            (admit_usb_claim, "stick", ""),
            (admit_usb_claim, "none", "usbdevice none not found"),
            (admit_usb_claim, "mouse", "below the pcidevice vf1"),
        ] {
            told(write(admit, object(name, &spec), None, &known(), false), expected);
        }
        let old = object("stick", &spec);
        let other = object("stick", &json!({"userName": "other"}));
        told(write(admit_usb_claim, other, Some(&old), &known(), false), "can't be changed");
    }

    #[test]
    fn what_a_machine_has_is_not_given_back() {
        let mut owned = object("free", &json!({}));
        owned["metadata"]["ownerReferences"] = json!([{"kind": "VGPUDevice", "name": "v"}]);
        for (admit, object, expected) in [
            (admit_pci_claim_delete as AdmitDelete, object("free", &json!({})), ""),
            (admit_pci_claim_delete, object("used", &json!({})), "is already in use with vm n/vm"),
            (admit_pci_claim_delete, owned, "cannot be deleted as it is owned by VGPUDevice v"),
            (admit_usb_claim_delete, object("free", &json!({})), ""),
            (admit_usb_claim_delete, object("used", &json!({})), "usbdeviceclaim used is still in use by vm n/vm"),
            (admit_gpu_delete, object("g", &json!({"enabled": true})), "please disable gpuDevice g before deletion"),
            (admit_gpu_delete, object("g", &json!({"enabled": false})), ""),
        ] {
            told(admit(&object, &known()).map(|()| Value::Null), expected);
        }
    }

    #[test]
    fn devices_are_divided_in_ways_that_they_know() {
        let gpu = |spec: Value| {
            let mut gpu = object("gpu", &spec);
            gpu["status"] = json!({"availableTypes": {"A2-2Q": "1"}, "vGPUDevices": ["gpu"]});
            gpu
        };
        let change = |admit: Admit, spec: Value, old: Value| write(admit, gpu(spec), Some(&gpu(old)), &known(), false);
        let off = || json!({"enabled": false});
        told(change(admit_virtual_gpu, json!({"enabled": true, "vGPUTypeName": "A2-2Q"}), off()), "");
        told(change(admit_virtual_gpu, json!({"enabled": true}), off()), "VGPUTypeName cannot be empty");
        let other = json!({"enabled": true, "vGPUTypeName": "X"});
        told(change(admit_virtual_gpu, other.clone(), off()), "is not a valid profile");
        told(change(admit_virtual_gpu, off(), other.clone()), "is already in use with vm n/vm");
        told(change(admit_gpu, off(), other.clone()), "has vgpudevice gpu in use with vm n/vm");
        told(change(admit_gpu, other, off()), "");

        let card = |count: i64| {
            let mut card = object("card", &json!({"numVFs": count}));
            card["status"] = json!({"vfPCIDevices": ["vf0", "vf1"]});
            card
        };
        let change = |from: i64, to: i64| write(admit_network_device, card(to), Some(&card(from)), &known(), false);
        told(change(2, 4), "");
        told(change(2, 0), "found pcideviceclaims: vf1 related to sriovnetworkdevice card in use");
    }
}
