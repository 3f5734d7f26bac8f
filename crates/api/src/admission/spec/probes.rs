//! Probes ask one thing.

use croft_meta::FieldPath;

use crate::admission::denial::{Denial, below};
use crate::kubevirt::{Probe, VirtualMachineInstanceSpec};

pub(super) fn check(denial: &mut Denial, at: &FieldPath, spec: &VirtualMachineInstanceSpec) {
    let has_pod_network = spec.networks.iter().any(|network| network.pod.is_some());
    for (name, probe) in [("readinessProbe", &spec.readiness_probe), ("livenessProbe", &spec.liveness_probe)] {
        let Some(probe) = probe else { continue };
        one_handler(denial, &below(at, name), probe);
        if has_pod_network {
            continue;
        }
        for (is_set, handler) in [(probe.http_get.is_some(), "httpGet"), (probe.tcp_socket.is_some(), "tcpSocket")] {
            if is_set {
                let field = below(at, name).child(handler);
                denial.invalid(&field, format!("{field} is only allowed if the Pod Network is attached"));
            }
        }
    }
}

fn one_handler(denial: &mut Denial, at: &FieldPath, probe: &Probe) {
    let handlers =
        [probe.http_get.is_some(), probe.tcp_socket.is_some(), probe.exec.is_some(), probe.guest_agent_ping.is_some()];
    match handlers.into_iter().filter(|is_set| *is_set).count() {
        1 => {}
        0 => {
            let [tcp, exec, http] = ["tcpSocket", "exec", "httpGet"].map(|name| at.child(name));
            denial.required(at, format!("either {tcp}, {exec} or {http} must be set if a {at} is specified"));
        }
        _ => denial.invalid(at, format!("{at} must have exactly one probe type set")),
    }
    let numbers = [
        ("initialDelaySeconds", probe.initial_delay_seconds),
        ("timeoutSeconds", probe.timeout_seconds),
        ("periodSeconds", probe.period_seconds),
        ("successThreshold", probe.success_threshold),
        ("failureThreshold", probe.failure_threshold),
    ];
    for (name, number) in numbers {
        if number.is_some_and(|number| number < 0) {
            let field = at.child(name);
            denial.invalid(&field, format!("{field} must be greater than or equal to 0"));
        }
    }
}
