//! The types that a table of definitions may name: plain values, and shapes that many kinds have in common.

use k8s_openapi::api::core::v1::PersistentVolumeClaimSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde_json::{Value, json};

use super::schema;
use crate::kubevirt;

/// The schema of a type that needs no definition of its own.
pub(super) fn of(name: &str) -> Option<Value> {
    Some(match name {
        "string" => json!({"type": "string"}),
        "int" => json!({"type": "integer"}),
        "int32" | "int64" => json!({"type": "integer", "format": name}),
        "number" => json!({"type": "number"}),
        "bool" => json!({"type": "boolean"}),
        "time" => json!({"type": "string", "format": "date-time"}),
        "bytes" => json!({"type": "string", "format": "byte"}),
        "ipv4" | "duration" => json!({"type": "string", "format": name}),
        "quantity" => schema::quantity(),
        "int-or-string" => {
            json!({"anyOf": [{"type": "integer"}, {"type": "string"}], "x-kubernetes-int-or-string": true})
        }
        "any" => json!({"x-kubernetes-preserve-unknown-fields": true}),
        // Also the metadata of templates: what the object that is made from it accepts is checked then.
        "object" => json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true}),
        "Condition" => condition(),
        "LabelSelector" => schema::part::<LabelSelector>(),
        "PersistentVolumeClaimSpec" => schema::part::<PersistentVolumeClaimSpec>(),
        "VirtualMachineSpec" => schema::part::<kubevirt::VirtualMachineSpec>(),
        "VirtualMachineStatus" => schema::part::<kubevirt::VirtualMachineStatus>(),
        "Domain" => schema::part::<kubevirt::DomainSpec>(),
        "VirtualMachineInstanceSpec" => schema::part::<kubevirt::VirtualMachineInstanceSpec>(),
        _ => return None,
    })
}

/// Wrangler's, with times that are any text.
fn condition() -> Value {
    let mut properties = json!({});
    for field in ["lastTransitionTime", "lastUpdateTime", "message", "reason"] {
        properties[field] = json!({"type": "string", "nullable": true});
    }
    for field in ["status", "type"] {
        properties[field] = json!({"type": "string"});
    }
    json!({"type": "object", "properties": properties, "required": ["status", "type"]})
}
