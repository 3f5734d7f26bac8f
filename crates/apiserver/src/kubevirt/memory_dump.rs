//! Dumping a guest's memory into a claim: a request in the machine's status.

use croft_meta::{ApiError, quantity::Quantity};
use serde_json::{Value, json};

use super::machine::{is_running, text};
use super::request_body::value;
use super::{Kind, OBJECTS, Part, fetch, modify};
use crate::call::Call;

/// What a dump takes beside the memory.
const DUMP_OVERHEAD: i64 = 100 << 20;
/// The part of a claim that its file system needs for itself, in thousandths; CDI's default.
const FILE_SYSTEM_OVERHEAD: i64 = 60;

pub(super) async fn request(call: &Call) -> Result<(), ApiError> {
    let body = value(call)?;
    let vm = fetch(call, Kind::Vm).await?;
    let previous = text(&vm, "/status/memoryDumpRequest/claimName");
    let claim = match (text(&body, "/claimName"), previous) {
        ("", "") => return Err(ApiError::bad_request("Memory dump requires claim name to be set")),
        ("", previous) => previous.to_owned(),
        (asked, previous) if !previous.is_empty() && asked != previous => {
            let why = format!(
                "can't request memory dump for pvc [{asked}] while pvc [{previous}] is still associated as the memory dump pvc"
            );
            return Err(Kind::Vm.conflict(&call.info.name, why));
        }
        (asked, _) => asked.to_owned(),
    };
    let vmi = fetch(call, Kind::Vmi).await?;
    if !is_running(&vmi) {
        return Err(Kind::Vmi.conflict(&call.info.name, "VMI is not running"));
    }
    check_claim(call, &claim, &vmi)?;
    modify(call, Kind::Vm, Part::Status, false, |vm| {
        match text(vm, "/status/memoryDumpRequest/phase") {
            "" | "Completed" | "Failed" => {}
            "Dissociating" => {
                let why = format!("can't dump memory for pvc [{claim}] a remove memory dump request is in progress");
                return Err(Kind::Vm.conflict(&call.info.name, why));
            }
            _ => {
                let why = format!("memory dump request for pvc [{claim}] already in progress");
                return Err(Kind::Vm.conflict(&call.info.name, why));
            }
        }
        vm["status"]["memoryDumpRequest"] = json!({"claimName": claim, "phase": "Associating"});
        Ok(())
    })
    .await
}

pub(super) async fn remove(call: &Call) -> Result<(), ApiError> {
    fetch(call, Kind::Vm).await?;
    modify(call, Kind::Vm, Part::Status, false, |vm| {
        let name = &call.info.name;
        let Some(request) = vm.pointer("/status/memoryDumpRequest").filter(|request| request.is_object()) else {
            let why = format!("can't remove memory dump association for vm {name}, no association found");
            return Err(Kind::Vm.conflict(name, why));
        };
        let claim = text(request, "/claimName").to_owned();
        if request["remove"] == true {
            let why = format!("memory dump remove request for pvc [{claim}] already exists");
            return Err(Kind::Vm.conflict(name, why));
        }
        vm["status"]["memoryDumpRequest"] = json!({"claimName": claim, "phase": "Dissociating", "remove": true});
        Ok(())
    })
    .await
}

/// The claim must be there, writable, and large enough.
fn check_claim(call: &Call, claim: &str, vmi: &Value) -> Result<(), ApiError> {
    let id = crate::call::id(&call.info.namespace, claim);
    let found = call.server.cache.collection("core/persistentvolumeclaims").get(&id);
    let found = found.ok_or_else(|| ApiError::not_found(OBJECTS, "persistentvolumeclaim", claim))?.json();
    let refuse = |why: String| Err(ApiError::conflict(OBJECTS, "persistentvolumeclaim", claim, why));
    if text(&found, "/spec/volumeMode") == "Block" {
        return refuse("pvc should be filesystem pvc".to_owned());
    }
    let modes = found.pointer("/spec/accessModes").and_then(Value::as_array);
    if modes.is_some_and(|modes| modes.iter().all(|mode| mode == "ReadOnlyMany")) {
        return refuse("pvc access mode can't be read only".to_owned());
    }
    let size = bytes(&found, "/spec/resources/requests/storage");
    let needed = needed(vmi);
    if size < needed {
        return refuse(format!("pvc size [{size}] should be bigger then [{needed}]"));
    }
    Ok(())
}

fn needed(vmi: &Value) -> i64 {
    let memory = ["/spec/domain/memory/guest", "/spec/domain/resources/requests/memory"];
    let memory = memory.iter().map(|pointer| bytes(vmi, pointer)).find(|bytes| *bytes > 0).unwrap_or_default();
    let dump = memory.saturating_add(DUMP_OVERHEAD);
    dump.saturating_add(dump / 1000 * FILE_SYSTEM_OVERHEAD)
}

/// A quantity in bytes; 0 for none.
fn bytes(object: &Value, pointer: &str) -> i64 {
    let quantity = match object.pointer(pointer) {
        Some(Value::String(text)) => Quantity::parse(text).ok(),
        Some(Value::Number(number)) => Quantity::parse(&number.to_string()).ok(),
        _ => None,
    };
    quantity.map(|quantity| quantity.value()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dump_needs_the_memory_and_a_little_more() {
        let vmi = json!({"spec": {"domain": {"memory": {"guest": "1Gi"}}}});
        let needed = needed(&vmi);
        assert!(needed > (1 << 30) + DUMP_OVERHEAD && needed < 1_300_000_000, "{needed}");
        let by_request = json!({"spec": {"domain": {"resources": {"requests": {"memory": "1Gi"}}}}});
        assert_eq!(super::needed(&by_request), needed);
    }
}
