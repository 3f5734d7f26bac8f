//! Start, stop, restart: wishes that become changes of the VirtualMachine, for its controller to fulfil.
//!
//! A run strategy that allows it is changed (`Always` and `Halted`); the others keep theirs and get a request in
//! `status.stateChangeRequests`.

use croft_meta::{ApiError, object};
use serde::Deserialize;
use serde_json::{Value, json};

use super::machine::{grace_period, is_final, is_running, is_true, phase, run_strategy};
use super::request_body::{DryRun, options};
use super::{Kind, Part, fetch, look_up, modify};
use crate::call::Call;

const NOT_RUNNING: &str = "VM is not running";
/// The shortest that lets a guest's disks be closed.
const FORCED_GRACE: i64 = 1;

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct StartOptions {
    paused: Option<bool>,
    dry_run: DryRun,
}

pub(super) async fn start(call: &Call) -> Result<(), ApiError> {
    let asked: StartOptions = options(call)?;
    let dry_run = asked.dry_run.is_on()?;
    let is_paused = asked.paused.unwrap_or_default();
    let vm = fetch(call, Kind::Vm).await?;
    let vmi = look_up(call, Kind::Vmi).await?;
    if vmi.as_ref().is_some_and(|vmi| !is_final(vmi) && !matches!(phase(vmi), "" | "Unknown")) {
        return Err(refuse(call, "VM is already running"));
    }
    if is_true(&vm, "ManualRecoveryRequired") {
        return Err(refuse(call, VOLUME_MIGRATION_FAILED));
    }
    let strategy = run_strategy(&vm)?;
    let ended = vmi.as_ref().map(phase);
    let start =
        if is_paused { json!({"action": "Start", "data": {"paused": "true"}}) } else { json!({"action": "Start"}) };
    match strategy {
        "Halted" if is_paused => ask(call, dry_run, vmi.as_ref(), &[start]).await,
        "Halted" => set_running(call, strategy, true, dry_run).await,
        "RerunOnFailure" if ended == Some("Failed") => {
            Err(refuse(call, format!("{strategy} does not support starting VM from failed state")))
        }
        "RerunOnFailure" | "Manual" => match vmi.as_ref().filter(|vmi| is_final(vmi)) {
            Some(ended) => ask(call, dry_run, Some(ended), &[stop_request(ended), start]).await,
            None => ask(call, dry_run, vmi.as_ref(), &[start]).await,
        },
        other => Err(refuse(call, format!("{other} does not support manual start requests"))),
    }
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct StopOptions {
    grace_period: Option<i64>,
    dry_run: DryRun,
}

pub(super) async fn stop(call: &Call) -> Result<(), ApiError> {
    let asked: StopOptions = options(call)?;
    let dry_run = asked.dry_run.is_on()?;
    if asked.grace_period.is_some_and(|seconds| seconds < 0) {
        return Err(ApiError::bad_request("gracePeriod has to be greater or equal to 0"));
    }
    let vm = fetch(call, Kind::Vm).await?;
    let strategy = run_strategy(&vm)?;
    let vmi = look_up(call, Kind::Vmi).await?.filter(|vmi| !is_final(vmi));
    match (strategy, &vmi) {
        ("Halted" | "RerunOnFailure" | "Manual", None) => return Err(refuse(call, NOT_RUNNING)),
        ("Halted", Some(vmi)) => {
            let is_shorter =
                asked.grace_period.is_some_and(|asked| grace_period(vmi).is_none_or(|current| asked < current));
            if !is_shorter {
                let why = "Halted only supports manual stop requests with a shorter graceperiod";
                return Err(refuse(call, why));
            }
        }
        _ => {}
    }
    if let (Some(_), Some(seconds)) = (&vmi, asked.grace_period) {
        set_grace_period(call, seconds, dry_run).await?;
    }
    match (strategy, vmi) {
        ("Halted" | "RerunOnFailure" | "Manual", Some(vmi)) => {
            ask(call, dry_run, Some(&vmi), &[stop_request(&vmi)]).await
        }
        _ => set_running(call, strategy, false, dry_run).await,
    }
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct RestartOptions {
    grace_period_seconds: Option<i64>,
    dry_run: DryRun,
}

pub(super) async fn restart(call: &Call) -> Result<(), ApiError> {
    let asked: RestartOptions = options(call)?;
    let dry_run = asked.dry_run.is_on()?;
    match asked.grace_period_seconds {
        Some(seconds) if seconds > 0 => {
            return Err(ApiError::bad_request("For force restart, only gracePeriod=0 is supported for now"));
        }
        Some(seconds) if seconds < 0 => {
            return Err(ApiError::bad_request("gracePeriod has to be greater or equal to 0"));
        }
        _ => {}
    }
    let vm = fetch(call, Kind::Vm).await?;
    if is_true(&vm, "VolumesChange") {
        return Err(refuse(call, VOLUME_MIGRATION_FAILED));
    }
    let strategy = run_strategy(&vm)?;
    if matches!(strategy, "Halted" | "Once") {
        return Err(refuse(call, format!("RunStategy {strategy} does not support manual restart requests")));
    }
    let Some(vmi) = look_up(call, Kind::Vmi).await? else {
        return Err(refuse(call, format!("{NOT_RUNNING}: Halted")));
    };
    if asked.grace_period_seconds == Some(0) && !is_final(&vmi) {
        set_grace_period(call, FORCED_GRACE, dry_run).await?;
    }
    ask(call, dry_run, Some(&vmi), &[stop_request(&vmi), json!({"action": "Start"})]).await
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct MigrateOptions {
    dry_run: DryRun,
}

/// Refused for want of another node; there is no queue in which a migration could wait for one.
pub(super) async fn migrate(call: &Call) -> Result<(), ApiError> {
    options::<MigrateOptions>(call)?.dry_run.is_on()?;
    fetch(call, Kind::Vm).await?;
    let vmi = fetch(call, Kind::Vmi).await?;
    if !is_running(&vmi) {
        return Err(refuse(call, NOT_RUNNING));
    }
    let nodes = call.server.cache.collection("core/nodes").count("");
    let why = if nodes < 2 {
        "the cluster has no other node that the VM could be migrated to"
    } else {
        "live migration is not available: VMs stay on the node that they were started on"
    };
    Err(refuse(call, why))
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct EvacuateCancelOptions {
    evacuation_node_name: Option<String>,
    dry_run: DryRun,
}

/// Takes back the wish to have a machine away from a node.
pub(super) async fn cancel_evacuation(call: &Call, kind: Kind) -> Result<(), ApiError> {
    if kind == Kind::Vm {
        started_instance(call).await?;
    }
    let asked: EvacuateCancelOptions = options(call)?;
    let dry_run = asked.dry_run.is_on()?;
    let vmi = fetch(call, Kind::Vmi).await?;
    let from = |vmi: &Value| super::machine::text(vmi, "/status/evacuationNodeName").to_owned();
    if from(&vmi).is_empty() {
        return Ok(());
    }
    let named = asked.evacuation_node_name.unwrap_or_default();
    modify(call, Kind::Vmi, Part::Internal, dry_run, |vmi| {
        if from(vmi) != named {
            let why = format!("it is not being evacuated from {named:?} but from {:?}", from(vmi));
            return Err(Kind::Vmi.conflict(&call.info.name, why));
        }
        if let Some(status) = vmi.get_mut("status").and_then(Value::as_object_mut) {
            status.remove("evacuationNodeName");
        }
        Ok(())
    })
    .await
}

/// The instance of a VirtualMachine that has one.
pub(super) async fn started_instance(call: &Call) -> Result<Value, ApiError> {
    let vm = fetch(call, Kind::Vm).await?;
    if vm.pointer("/status/created") != Some(&Value::Bool(true)) {
        return Err(Kind::Vm.conflict(&call.info.name, "VMI is not started"));
    }
    let vmi = fetch(call, Kind::Vmi).await?;
    if !object::owner_references(&vmi).iter().any(|owner| owner["uid"] == object::uid(&vm)) {
        return Err(Kind::Vm.conflict(&call.info.name, "the instance of this name belongs to somebody else"));
    }
    Ok(vmi)
}

const VOLUME_MIGRATION_FAILED: &str = "VM recovery required: Volume migration failed, leaving some volumes pointing to \
    non-consistent targets; manual intervention is needed to reassign them to their original volumes.";

fn refuse(call: &Call, why: impl std::fmt::Display) -> ApiError {
    Kind::Vm.conflict(&call.info.name, why)
}

fn stop_request(vmi: &Value) -> Value {
    json!({"action": "Stop", "uid": object::uid(vmi)})
}

/// Puts requests into the machine's status. A stop replaces whatever else was asked for.
async fn ask(call: &Call, dry_run: bool, vmi: Option<&Value>, requests: &[Value]) -> Result<(), ApiError> {
    modify(call, Kind::Vm, Part::Status, dry_run, |vm| {
        let pending = vm.pointer("/status/stateChangeRequests").and_then(Value::as_array);
        let pending = pending.is_some_and(|pending| pending.iter().any(|request| !is_over(request, vmi)));
        let is_stop = matches!(requests, [only] if only["action"] == "Stop");
        if pending && !is_stop {
            return Err(refuse(call, "unable to complete request: stop/start already underway"));
        }
        if !vm["status"].is_object() {
            vm["status"] = json!({});
        }
        vm["status"]["stateChangeRequests"] = json!(requests);
        if let Some(status) = vm["status"].as_object_mut() {
            status.remove("startFailure");
        }
        Ok(())
    })
    .await
}

/// Whether what was asked for has happened, though nobody has taken the request out yet: a stop of an instance that has
/// ended. Whoever sees a machine that is stopped may start it at once.
fn is_over(request: &Value, vmi: Option<&Value>) -> bool {
    let is_there = vmi.is_some_and(|vmi| request["uid"] == object::uid(vmi) && !is_final(vmi));
    request["action"] == "Stop" && !is_there
}

/// Changes the run strategy between `Always` and `Halted`, in whichever way it is told. `seen` is what the decision
/// rests on.
async fn set_running(call: &Call, seen: &str, running: bool, dry_run: bool) -> Result<(), ApiError> {
    modify(call, Kind::Vm, Part::Whole, dry_run, |vm| {
        let current = run_strategy(vm)?;
        if current != seen {
            return Err(refuse(call, format!("its run strategy has just become {current}")));
        }
        if vm.pointer("/spec/running").is_some_and(Value::is_boolean) {
            vm["spec"]["running"] = json!(running);
        } else {
            vm["spec"]["runStrategy"] = json!(if running { "Always" } else { "Halted" });
        }
        Ok(())
    })
    .await
}

async fn set_grace_period(call: &Call, seconds: i64, dry_run: bool) -> Result<(), ApiError> {
    modify(call, Kind::Vmi, Part::Internal, dry_run, |vmi| {
        vmi["spec"]["terminationGracePeriodSeconds"] = json!(seconds);
        Ok(())
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stop_is_over_when_its_instance_is() {
        let stop = json!({"action": "Stop", "uid": "a"});
        let vmi = |uid: &str, phase: &str| json!({"metadata": {"uid": uid}, "status": {"phase": phase}});
        assert!(is_over(&stop, None));
        assert!(is_over(&stop, Some(&vmi("b", "Running"))));
        assert!(is_over(&stop, Some(&vmi("a", "Succeeded"))));
        assert!(!is_over(&stop, Some(&vmi("a", "Running"))));
        assert!(!is_over(&json!({"action": "Start"}), None));
    }
}
