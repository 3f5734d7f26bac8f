//! What only the node of a running machine can do or tell; its agent is asked.

use croft_meta::ApiError;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Method};
use serde_json::Value;

use super::about::SUBRESOURCES;
use super::machine::{has_condition, is_running, phase, text};
use super::request_body::{DryRun, options};
use super::{Kind, fetch, look_up, wrong_method_or_path};
use crate::answer::{self, Answer};
use crate::call::Call;
use crate::node_proxy::{self, Patience};

const VM_NOT_RUNNING: &str = "VM is not running";
const VMI_NOT_RUNNING: &str = "VMI is not running";

#[derive(Default, serde::Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct PauseOptions {
    dry_run: DryRun,
}

/// A PUT: pause, freeze, reboot and the like.
pub(super) async fn act(call: &Call, action: &str) -> Result<Answer, ApiError> {
    match action {
        "pause" | "unpause" | "freeze" | "unfreeze" | "reset" | "softreboot" => {}
        "backup" | "redefine-checkpoint" => return Err(gated("IncrementalBackup")),
        "sev/setupsession" | "sev/injectlaunchsecret" => return Err(gated("WorkloadEncryptionSEV")),
        _ => return Err(wrong_method_or_path(call, Kind::Vmi, "get")),
    }
    let mut dry_run = false;
    if matches!(action, "pause" | "unpause") {
        dry_run = options::<PauseOptions>(call)?.dry_run.is_on()?;
    }
    if action == "unpause"
        && let Some(vm) = look_up(call, Kind::Vm).await?
        && vm.pointer("/status/snapshotInProgress").is_some_and(Value::is_string)
    {
        return Err(Kind::Vm.conflict(&call.info.name, "VM snapshot is in progress"));
    }
    let vmi = fetch(call, Kind::Vmi).await?;
    may_act(&vmi, action, &call.info.name)?;
    if dry_run {
        return Ok(answer::text(200, ""));
    }
    let path = agent_path(call, action);
    let mut request = node_proxy::request(Method::PUT, &path, answer::full(call.body.clone()))?;
    request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    call.server.call_node(node_of(&vmi)?, request, Patience::Short).await
}

/// Whether the machine's state allows the action.
fn may_act(vmi: &Value, action: &str, name: &str) -> Result<(), ApiError> {
    let refuse = |why: &str| Err(Kind::Vmi.conflict(name, why));
    if !is_running(vmi) {
        let by_vmi = matches!(action, "unpause" | "unfreeze" | "reset");
        return refuse(if by_vmi { VMI_NOT_RUNNING } else { VM_NOT_RUNNING });
    }
    let is_paused = has_condition(vmi, "Paused");
    match action {
        "pause" => {
            let probe = vmi.pointer("/spec/livenessProbe").filter(|probe| probe.is_object());
            if probe.is_some_and(|probe| !probe["guestAgentPing"].is_object()) {
                let why = "Pausing VMIs with a non-GuestAgentPing LivenessProbe is not supported";
                return Err(ApiError::forbidden(super::OBJECTS, Kind::Vmi.noun(), name, why));
            }
            if is_paused {
                return refuse("VMI is already paused");
            }
        }
        "unpause" if !is_paused => return refuse("VMI is not paused"),
        "freeze" | "unfreeze" | "softreboot" if is_paused => return refuse("VMI is paused"),
        "softreboot" => {
            let has_acpi = vmi.pointer("/spec/domain/features/acpi/enabled") != Some(&Value::Bool(false));
            if !has_condition(vmi, "AgentConnected") && !has_acpi {
                return refuse("VMI neither have the agent connected nor the ACPI feature enabled");
            }
        }
        _ => {}
    }
    Ok(())
}

/// A GET that is answered at once.
pub(super) async fn ask(call: &Call, what: &str) -> Result<Answer, ApiError> {
    match what {
        "guestosinfo" | "userlist" | "filesystemlist" => {
            let vmi = fetch(call, Kind::Vmi).await?;
            let refuse = |why: &str| Err(Kind::Vmi.conflict(&call.info.name, why));
            if !is_running(&vmi) {
                return refuse(VMI_NOT_RUNNING);
            }
            if !has_condition(&vmi, "AgentConnected") {
                return refuse("VMI does not have guest agent connected");
            }
            get(call, &vmi, &agent_path(call, what)).await
        }
        "vnc/screenshot" => {
            let vmi = fetch(call, Kind::Vmi).await?;
            has_display(&vmi)?;
            let cursor = if call.query.flag("moveCursor") { "?moveCursor=true" } else { "" };
            get(call, &vmi, &format!("{}{cursor}", agent_path(call, what))).await
        }
        "log" => log(call).await,
        "sev/fetchcertchain" | "sev/querylaunchmeasurement" => Err(gated("WorkloadEncryptionSEV")),
        stream if SUBRESOURCES.iter().any(|s| s.kind == Kind::Vmi && s.name == stream && s.is_stream) => {
            // Only reached without the upgrade.
            Err(ApiError::bad_request("this is a stream: it takes a WebSocket handshake"))
        }
        _ => Err(wrong_method_or_path(call, Kind::Vmi, "update")),
    }
}

/// What the serial console has said, and with `follow` what it says from now on.
async fn log(call: &Call) -> Result<Answer, ApiError> {
    let vmi = fetch(call, Kind::Vmi).await?;
    let is_followed = call.query.flag("follow");
    let mut path = format!("{}?follow={is_followed}", agent_path(call, "log"));
    if let Some(text) = call.query.get("tailLines").filter(|text| !text.is_empty()) {
        let wrong = |_| ApiError::bad_request(format!("tailLines: {text:?} is not a number of lines"));
        let lines: u32 = text.parse().map_err(wrong)?;
        path.extend(["&tailLines=", &lines.to_string()]);
    }
    if !is_followed {
        return get(call, &vmi, &path).await;
    }
    let request = node_proxy::request(Method::GET, &path, answer::full(""))?;
    call.server.follow_node(node_of(&vmi)?, request).await
}

async fn get(call: &Call, vmi: &Value, path: &str) -> Result<Answer, ApiError> {
    let request = node_proxy::request(Method::GET, path, answer::full(""))?;
    call.server.call_node(node_of(vmi)?, request, Patience::Short).await
}

pub(super) fn has_display(vmi: &Value) -> Result<(), ApiError> {
    if vmi.pointer("/spec/domain/devices/autoattachGraphicsDevice") == Some(&Value::Bool(false)) {
        return Err(ApiError::bad_request("No graphics devices are present."));
    }
    if !is_running(vmi) {
        return Err(ApiError::bad_request(VMI_NOT_RUNNING));
    }
    Ok(())
}

/// What Croft does not do is refused as KubeVirt refuses what is switched off.
fn gated(gate: &str) -> ApiError {
    ApiError::bad_request(format!("'{gate}' feature gate is not enabled"))
}

/// Where the agent serves something of the machine. Names are path segments without anything to escape.
pub(super) fn agent_path(call: &Call, what: &str) -> String {
    format!("/v1/vmis/{}/{}/{what}", call.info.namespace, call.info.name)
}

pub(super) fn node_of(vmi: &Value) -> Result<&str, ApiError> {
    let phase = phase(vmi);
    let node = text(vmi, "/status/nodeName");
    if !matches!(phase, "Running" | "Scheduled") || node.is_empty() {
        return Err(ApiError::bad_request(format!(
            "Unable to connect to VirtualMachineInstance because phase is {phase} instead of Running or Scheduled"
        )));
    }
    Ok(node)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn actions_need_the_right_state() {
        let vmi = |phase: &str, conditions: &[&str], spec: Value| {
            let conditions: Vec<Value> = conditions.iter().map(|ty| json!({"type": ty, "status": "True"})).collect();
            json!({"spec": spec, "status": {"phase": phase, "conditions": conditions}})
        };
        let running = vmi("Running", &[], json!({}));
        let paused = vmi("Running", &["Paused"], json!({}));
        let stopped = vmi("Succeeded", &[], json!({}));
        let probed = vmi("Running", &[], json!({"livenessProbe": {"tcpSocket": {"port": 1}}}));
        let pinged = vmi("Running", &[], json!({"livenessProbe": {"guestAgentPing": {}}}));
        let no_acpi = vmi("Running", &[], json!({"domain": {"features": {"acpi": {"enabled": false}}}}));
        let no_acpi_but_agent =
            vmi("Running", &["AgentConnected"], json!({"domain": {"features": {"acpi": {"enabled": false}}}}));
        let table = [
            ("pause", &running, None),
            ("pause", &stopped, Some((409, "VM is not running"))),
            ("pause", &paused, Some((409, "VMI is already paused"))),
            ("pause", &probed, Some((403, "non-GuestAgentPing LivenessProbe"))),
            ("pause", &pinged, None),
            ("unpause", &running, Some((409, "VMI is not paused"))),
            ("unpause", &paused, None),
            ("unpause", &stopped, Some((409, "VMI is not running"))),
            ("freeze", &running, None),
            ("freeze", &paused, Some((409, "VMI is paused"))),
            ("unfreeze", &stopped, Some((409, "VMI is not running"))),
            ("reset", &paused, None),
            ("reset", &stopped, Some((409, "VMI is not running"))),
            ("softreboot", &running, None),
            ("softreboot", &paused, Some((409, "VMI is paused"))),
            ("softreboot", &no_acpi, Some((409, "nor the ACPI feature enabled"))),
            ("softreboot", &no_acpi_but_agent, None),
        ];
        for (action, vmi, expected) in table {
            match (may_act(vmi, action, "a"), expected) {
                (Ok(()), None) => {}
                (Err(error), Some((code, text))) => {
                    assert!(error.code() == code && error.message().contains(text), "{action} {vmi}: {error}");
                }
                (result, _) => panic!("{action} {vmi}: {result:?}"),
            }
        }
    }
}
