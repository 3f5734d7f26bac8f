//! Names, and where and how an instance is started.

use croft_meta::{FieldPath, names};

use super::text;
use crate::admission::denial::{Denial, below};
use crate::kubevirt::{VirtualMachineInstanceSpec, eviction_strategy};

pub(super) fn check_names(denial: &mut Denial, at: &FieldPath, spec: &VirtualMachineInstanceSpec) {
    let hostname = text(spec.hostname.as_ref());
    let wrong = names::is_dns1123_label(hostname);
    if !hostname.is_empty() && !wrong.is_empty() {
        let field = below(at, "hostname");
        let message = format!("{field} does not conform to the kubernetes DNS_LABEL rules : {}", wrong.join(", "));
        denial.invalid(&field, message);
    }
    let subdomain = text(spec.subdomain.as_ref());
    let wrong = names::is_dns1123_subdomain(subdomain);
    if !subdomain.is_empty() && !wrong.is_empty() {
        let field = below(at, "subdomain");
        let message = format!("{field} does not conform to the kubernetes DNS_SUBDOMAIN rules : {}", wrong.join(", "));
        denial.invalid(&field, message);
    }
}

pub(super) fn check(denial: &mut Denial, at: &FieldPath, spec: &VirtualMachineInstanceSpec) {
    let start = text(spec.start_strategy.as_ref());
    let field = below(at, "startStrategy");
    if !matches!(start, "" | "Paused") {
        denial.invalid(&field, format!("{field} is set with an unrecognized option: {start}"));
    } else if start == "Paused" && spec.liveness_probe.is_some() {
        let probe = below(at, "livenessProbe");
        let message =
            format!("either {field} or {probe} should be provided.Pausing VMI with LivenessProbe is not supported");
        denial.invalid(&field, message);
    }
    let eviction = text(spec.eviction_strategy.as_ref());
    if !eviction.is_empty() && !eviction_strategy::ALL.contains(&eviction) {
        let field = below(at, "evictionStrategy");
        denial.invalid(&field, format!("{field} is set with an unrecognized option: {eviction}"));
    }
    if spec.termination_grace_period_seconds.is_some_and(|seconds| seconds < 0) {
        let field = below(at, "terminationGracePeriodSeconds");
        denial.invalid(&field, format!("{field} must not be negative"));
    }
    let policy = text(spec.dns_policy.as_ref());
    if !matches!(policy, "" | "ClusterFirst" | "ClusterFirstWithHostNet" | "Default" | "None") {
        let field = below(at, "dnsPolicy");
        denial.invalid(&field, format!("DNSPolicy: {policy} is not supported, valid values: [ClusterFirstWithHostNet ClusterFirst Default None ]"));
    }
    resolver(denial, at, spec);
    if !matches!(text(spec.architecture.as_ref()), "" | "amd64" | "arm64") {
        let field = below(at, "architecture");
        denial.invalid(&field, format!("unsupported architecture: {}", text(spec.architecture.as_ref())));
    }
}

/// What the guest's DHCP client can be told of names.
fn resolver(denial: &mut Denial, at: &FieldPath, spec: &VirtualMachineInstanceSpec) {
    let own = below(at, "dnsConfig");
    let config = spec.dns_config.clone().unwrap_or_default();
    let servers = config.nameservers.unwrap_or_default();
    if text(spec.dns_policy.as_ref()) == "None" && servers.is_empty() {
        let field = own.child("nameservers");
        denial.required(&field, format!("must provide at least one DNS nameserver when `dnsPolicy` is None: {field}"));
    }
    for (index, server) in servers.iter().enumerate() {
        if server.parse::<std::net::Ipv4Addr>().is_err() {
            let field = own.child("nameservers").index(index);
            denial
                .invalid(&field, format!("{field}: {server:?} is not an IPv4 address, which is what guests are told"));
        }
    }
    for (index, domain) in config.searches.unwrap_or_default().iter().enumerate() {
        let wrong = names::is_dns1123_subdomain(domain.trim_end_matches('.'));
        if !wrong.is_empty() {
            let field = own.child("searches").index(index);
            denial.invalid(&field, format!("{field}: {}", wrong.join(", ")));
        }
    }
    if config.options.is_some_and(|options| !options.is_empty()) {
        let field = own.child("options");
        denial.not_supported(&field, format!("{field}: a guest's resolver has its own options; set them in the guest"));
    }
}
