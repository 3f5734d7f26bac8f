#![expect(clippy::needless_pass_by_value, reason = "tables read better without references")]

use serde_json::{Value, json};

use super::*;

fn machine(mut spec: Value, status: Value) -> VirtualMachine {
    spec["template"] = json!({});
    let object = json!({"metadata": {"name": "vm", "uid": "vm-uid"}, "spec": spec, "status": status});
    serde_json::from_value(object).unwrap()
}

fn instance(phase: &str) -> VirtualMachineInstance {
    let object = json!({
        "metadata": {"name": "vm", "uid": "vmi-1"},
        "spec": {"domain": {"devices": {}}},
        "status": {"phase": phase},
    });
    serde_json::from_value(object).unwrap()
}

fn now() -> Timestamp {
    "2026-01-01T00:00:00Z".parse().unwrap()
}

#[test]
fn the_strategy_is_read_from_either_field() {
    let cases = [
        (json!({"running": true}), Ok(RunStrategy::Always)),
        (json!({"running": false}), Ok(RunStrategy::Halted)),
        (json!({}), Ok(RunStrategy::Halted)),
        (json!({"runStrategy": "Once"}), Ok(RunStrategy::Once)),
        (json!({"runStrategy": "RerunOnFailure"}), Ok(RunStrategy::RerunOnFailure)),
        (json!({"runStrategy": "Always", "running": true}), Err(StrategyError::Both)),
        (json!({"runStrategy": "WaitAsReceiver"}), Err(StrategyError::Receiver)),
        (json!({"runStrategy": "Now"}), Err(StrategyError::Unknown("Now".to_owned()))),
    ];
    for (spec, expected) in cases {
        assert_eq!(RunStrategy::of(&machine(spec.clone(), json!({}))), expected, "{spec}");
    }
}

#[test]
fn each_strategy_asks_for_the_next_step() {
    let stop = Step::Stop { and_start: false };
    let rerun = Step::Stop { and_start: true };
    let asked = |action: &str| json!({"stateChangeRequests": [{"action": action, "uid": "vmi-1"}]});
    let ran = json!({"runStrategy": "RerunOnFailure"});
    let waits = json!({"startFailure": {"retryAfterTimestamp": "2026-01-01T00:00:10Z"}});
    let waited = json!({"startFailure": {"retryAfterTimestamp": "2025-12-31T23:59:59Z"}});
    let later = Step::WaitUntil("2026-01-01T00:00:10Z".parse().unwrap());
    let none = || json!({});
    let cases: Vec<(&str, Option<&str>, Value, Step)> = vec![
        ("Always", None, none(), Step::Start),
        ("Always", None, waits.clone(), later),
        ("Always", None, waited, Step::Start),
        ("Always", Some("Pending"), none(), Step::Leave),
        ("Always", Some("Running"), none(), Step::Leave),
        ("Always", Some("Running"), asked("Stop"), stop),
        ("Always", Some("Succeeded"), none(), stop),
        ("Always", Some("Failed"), none(), stop),
        ("RerunOnFailure", None, none(), Step::Start),
        ("RerunOnFailure", None, ran.clone(), Step::Leave),
        ("RerunOnFailure", None, waits, later),
        ("RerunOnFailure", None, asked("Start"), Step::Start),
        ("RerunOnFailure", Some("Running"), ran.clone(), Step::Leave),
        ("RerunOnFailure", Some("Running"), asked("Stop"), stop),
        ("RerunOnFailure", Some("Succeeded"), ran.clone(), stop),
        ("RerunOnFailure", Some("Failed"), ran, rerun),
        ("RerunOnFailure", Some("Failed"), asked("Start"), stop),
        ("RerunOnFailure", Some("Failed"), asked("Stop"), stop),
        ("Manual", None, none(), Step::Leave),
        ("Manual", None, asked("Start"), Step::Start),
        ("Manual", Some("Running"), none(), Step::Leave),
        ("Manual", Some("Failed"), none(), Step::Leave),
        ("Manual", Some("Running"), asked("Stop"), stop),
        ("Halted", None, none(), Step::Leave),
        ("Halted", None, asked("Start"), Step::SwitchOn),
        ("Halted", Some("Running"), none(), stop),
        ("Halted", Some("Pending"), none(), stop),
        ("Once", None, none(), Step::Start),
        ("Once", Some("Running"), none(), Step::Leave),
        ("Once", Some("Failed"), none(), Step::Leave),
        ("Once", Some("Succeeded"), none(), Step::Leave),
    ];
    for (strategy, phase, status, expected) in cases {
        let machine = machine(json!({"runStrategy": strategy}), status.clone());
        let instance = phase.map(instance);
        let strategy = RunStrategy::of(&machine).unwrap();
        let step = next_step(strategy, &machine, instance.as_ref(), now());
        assert_eq!(step, expected, "{strategy:?} with {phase:?} and {status}");
    }
}

#[test]
fn an_instance_that_is_going_is_left_alone() {
    for strategy in ["Always", "RerunOnFailure", "Manual", "Halted", "Once"] {
        let machine = machine(json!({"runStrategy": strategy}), json!({}));
        let mut instance = instance("Failed");
        instance.metadata.deletion_timestamp = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(now()));
        let strategy = RunStrategy::of(&machine).unwrap();
        assert_eq!(next_step(strategy, &machine, Some(&instance), now()), Step::Leave, "{strategy:?}");
    }
}

#[test]
fn requests_go_when_they_are_fulfilled() {
    let request = |action: &str, uid: Option<&str>| VirtualMachineStateChangeRequest {
        action: action.to_owned(),
        uid: uid.map(str::to_owned),
        ..VirtualMachineStateChangeRequest::default()
    };
    let cases = [
        (request(STOP, Some("vmi-1")), Some("Running"), false),
        (request(STOP, Some("vmi-1")), None, true),
        (request(STOP, Some("vmi-0")), Some("Running"), true),
        (request(STOP, None), Some("Running"), true),
        (request(START, None), None, false),
        (request(START, None), Some("Pending"), true),
        (request(START, None), Some("Failed"), false),
        (request("Dance", None), None, true),
    ];
    for (request, phase, expected) in cases {
        let instance = phase.map(instance);
        let is_done = is_first_request_done(std::slice::from_ref(&request), instance.as_ref());
        assert_eq!(is_done, expected, "{request:?} with {phase:?}");
    }
}
