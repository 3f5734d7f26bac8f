//! Values that stand for themselves.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use croft_meta::names;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::super::Lookup;
use super::{json, networks};
use crate::harvester::settings;
use crate::view::{get, list, text};

/// A hundred years, in minutes.
const LONGEST_TOKEN: i64 = 100 * 365 * 24 * 60;
const LONGEST_EXPIRY_HOURS: i64 = 8759;
const LOG_LEVELS: [&str; 7] = ["panic", "fatal", "error", "warn", "info", "debug", "trace"];
const PROTOCOLS: [&str; 6] = ["SSLv2", "SSLv3", "TLSv1", "TLSv1.1", "TLSv1.2", "TLSv1.3"];
const SPOKEN: [&str; 2] = ["TLSv1.2", "TLSv1.3"];
const LONGHORN: &str = "driver.longhorn.io";

pub(super) fn check(name: &str, value: &str) -> Result<(), String> {
    match name {
        "overcommit-config" => overcommit(value),
        "additional-guest-memory-overhead-ratio" => ratio(value),
        "max-hotplug-ratio" => within(value, 1, 20),
        "kubeconfig-default-token-ttl-minutes" => within(value, 0, LONGEST_TOKEN),
        "default-vm-termination-grace-period-seconds"
        | "support-bundle-timeout"
        | "support-bundle-expiration"
        | "support-bundle-node-collection-timeout" => within(value, 0, i64::MAX),
        "longhorn-v2-data-engine-memory-size" => huge_memory(value),
        "upgrade-checker-enabled" | "longhorn-v2-data-engine-enabled" | "longhorn-v2-data-engine-hugepage-enabled" => {
            if ["true", "false"].contains(&value) {
                Ok(())
            } else {
                Err(format!("{value} should be true or false"))
            }
        }
        "ui-source" => one_of(value, &["auto", "external", "bundled"], "ui source"),
        "log-level" => one_of(value, &LOG_LEVELS, "log level"),
        "upgrade-checker-url" | "release-download-url" | "ui-index" | "ui-plugin-index" => web_address(value),
        "csi-online-expand-validation" => switches(value),
        "additional-ca" => certificates(value),
        "ssl-certificates" => serving_certificate(value),
        "ssl-parameters" => tls_parameters(value),
        "ntp-servers" => time_servers(value),
        "vm-force-reset-policy" => force_reset(value),
        "auto-rotate-rke2-certs" => rotation(value),
        "support-bundle-image" => bundle_image(value),
        "support-bundle-file-name" => joined(&names::is_dns1123_label(value)),
        "support-bundle-namespaces" => namespaces(value),
        "cluster-registration-url" => registration(value),
        "rancher-cluster"
        | "containerd-registry"
        | "vip-pools"
        | "harvester-csi-ccm-versions"
        | "cluster-pod-security-standard" => json::<Map<String, Value>>(value).map(drop),
        "instance-manager-resources" => shares(value),
        _ => Ok(()),
    }
}

fn one_of(value: &str, known: &[&str], what: &str) -> Result<(), String> {
    if known.contains(&value) { Ok(()) } else { Err(format!("invalid {what} {value}, one of {}", known.join(", "))) }
}

fn joined(problems: &[String]) -> Result<(), String> {
    if problems.is_empty() { Ok(()) } else { Err(problems.join(", ")) }
}

fn overcommit(value: &str) -> Result<(), String> {
    for (name, percent) in json::<Map<String, Value>>(value)? {
        let Some(percent) = percent.as_i64().filter(|_| ["cpu", "memory", "storage"].contains(&name.as_str())) else {
            return Err(format!("Invalid JSON: unknown field or value for {name}"));
        };
        if percent < 100 {
            return Err(format!("Cannot undercommit. Should be greater than or equal to 100 but got {percent}"));
        }
    }
    Ok(())
}

/// Zero, or how many times the usual overhead.
fn ratio(value: &str) -> Result<(), String> {
    let number: f64 = value.trim().parse().map_err(|_| format!("{value} is not a number"))?;
    if number == 0.0 || (1.0..=10.0).contains(&number) {
        return Ok(());
    }
    Err(format!("{value} is out of range: 0, or 1.0 to 10.0"))
}

fn within(value: &str, least: i64, most: i64) -> Result<(), String> {
    let number: i64 = value.parse().map_err(|_| format!("{value} is not a whole number"))?;
    if (least..=most).contains(&number) {
        return Ok(());
    }
    Err(if number < 0 {
        format!("{number} can't be negative")
    } else {
        format!("{number} is out of range: {least} to {most}")
    })
}

/// In MiB.
fn huge_memory(value: &str) -> Result<(), String> {
    let size: i64 = value.parse().map_err(|_| format!("{value} is not a whole number"))?;
    if size <= 0 {
        return Err(format!("memory size {size} must be >0"));
    }
    if size % 2 != 0 {
        return Err(format!("memory size {size} must be evenly divisible by two"));
    }
    Ok(())
}

fn web_address(value: &str) -> Result<(), String> {
    let rest = ["http://", "https://"].iter().find_map(|scheme| value.strip_prefix(scheme));
    let is_plain = |rest: &str| !rest.is_empty() && !rest.starts_with('/') && !rest.contains(char::is_whitespace);
    if rest.is_some_and(is_plain) { Ok(()) } else { Err(format!("{value} is not an http or https address")) }
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Proxy {
    #[serde(rename = "httpProxy")]
    http: String,
    #[serde(rename = "httpsProxy")]
    https: String,
    /// Addresses that are reached without one.
    #[serde(rename = "noProxy")]
    exceptions: String,
}

/// A proxy that also stood between the nodes would cut them off from each other.
pub(super) fn proxy(value: &str, lookup: &dyn Lookup) -> Result<(), String> {
    let proxy: Proxy = json(value)?;
    for (name, address) in [("httpProxy", &proxy.http), ("httpsProxy", &proxy.https)] {
        let is_address = ["http://", "https://"].iter().any(|scheme| address.starts_with(scheme));
        if !address.is_empty() && !is_address {
            return Err(format!("{name} should start with http:// or https://"));
        }
    }
    if proxy.http.is_empty() && proxy.https.is_empty() {
        return Ok(());
    }
    let nodes = lookup.list("", "nodes", "");
    let uncovered: Vec<&str> = nodes
        .iter()
        .filter(|node| {
            let addresses = list(node, "status.addresses").iter();
            let internal = addresses.filter(|address| text(address, "type") == "InternalIP");
            let mut internal = internal.filter_map(|address| text(address, "address").parse::<IpAddr>().ok());
            internal.any(|address| !networks::covers(&proxy.exceptions, address))
        })
        .map(|node| text(node, "metadata.name"))
        .collect();
    if uncovered.is_empty() {
        return Ok(());
    }
    let nodes = uncovered.join(", ");
    Err(format!("noProxy should contain the node's IP addresses or CIDR. The node(s) {nodes} are not covered."))
}

fn switches(value: &str) -> Result<(), String> {
    match json::<Map<String, Value>>(value)?.into_iter().find(|(_, switch)| !switch.is_boolean()) {
        Some((name, _)) => Err(format!("{name} should be true or false")),
        None => Ok(()),
    }
}

/// The labels of the blocks, if each has its end and what is between is base64.
fn pem_labels(value: &str) -> Option<Vec<&str>> {
    let mut labels = Vec::new();
    let mut lines = value.lines().map(str::trim);
    while let Some(line) = lines.next() {
        let Some(label) = line.strip_prefix("-----BEGIN ").and_then(|rest| rest.strip_suffix("-----")) else {
            continue;
        };
        let end = format!("-----END {label}-----");
        let mut body = String::new();
        loop {
            match lines.next()? {
                line if line == end => break,
                line => body.push_str(line),
            }
        }
        STANDARD.decode(&body).ok().filter(|der| !der.is_empty())?;
        labels.push(label);
    }
    Some(labels)
}

/// At least one certificate, and nothing else of the kind (a private key would become public).
fn certificates(value: &str) -> Result<(), String> {
    let labels = pem_labels(value).unwrap_or_default();
    if labels.is_empty() || labels.iter().any(|label| *label != "CERTIFICATE") {
        return Err("failed to parse PEM certificates".to_owned());
    }
    Ok(())
}

fn serving_certificate(value: &str) -> Result<(), String> {
    let parts: settings::ServingCertificate = json(value)?;
    if parts == settings::ServingCertificate::default() {
        return Ok(());
    }
    if parts.public_certificate.is_empty() || parts.private_key.is_empty() {
        return Err("publicCertificate and privateKey are both required".to_owned());
    }
    certificates(&parts.public_certificate).map_err(|_| "publicCertificate is not a PEM certificate".to_owned())?;
    let labels = pem_labels(&parts.private_key).unwrap_or_default();
    if !labels.iter().any(|label| label.ends_with("PRIVATE KEY")) {
        return Err("privateKey is not a PEM private key".to_owned());
    }
    if parts.ca.is_empty() {
        return Ok(());
    }
    certificates(&parts.ca).map_err(|_| "ca is not a PEM certificate".to_owned())
}

fn tls_parameters(value: &str) -> Result<(), String> {
    let parameters: settings::TlsParameters = json(value)?;
    let protocols: Vec<&str> = parameters.protocols.split_whitespace().collect();
    if let Some(unknown) = protocols.iter().find(|protocol| !PROTOCOLS.contains(protocol)) {
        return Err(format!("unsupported SSL protocol: {unknown}"));
    }
    if !protocols.is_empty() && !protocols.iter().any(|protocol| SPOKEN.contains(protocol)) {
        return Err(format!("unsupported SSL protocol: {}; this server speaks TLSv1.2 and TLSv1.3", protocols[0]));
    }
    let is_name = |cipher: &str| cipher.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_+!".contains(&byte));
    if !parameters.ciphers.is_empty()
        && !parameters.ciphers.split(':').all(|cipher| !cipher.is_empty() && is_name(cipher))
    {
        return Err(format!("invalid ciphers: {}", parameters.ciphers));
    }
    Ok(())
}

fn time_servers(value: &str) -> Result<(), String> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Servers {
        ntp_servers: Option<Vec<String>>,
    }
    let Some(servers) = json::<Servers>(value)?.ntp_servers else {
        return Err("NTP servers can't be nil".to_owned());
    };
    let mut seen = BTreeSet::new();
    let mut twice = BTreeSet::new();
    for server in &servers {
        if ["http://", "https://"].iter().any(|scheme| server.starts_with(scheme)) {
            return Err("ntp server should not start with http:// or https://".to_owned());
        }
        let is_address = server.parse::<IpAddr>().is_ok();
        if !is_address && (!names::is_dns1123_subdomain(server).is_empty() || !server.contains('.')) {
            return Err(format!("invalid NTP server: {server}"));
        }
        if !seen.insert(server) {
            twice.insert(server.as_str());
        }
    }
    if twice.is_empty() {
        return Ok(());
    }
    Err(format!("duplicate NTP server: [{}]", twice.into_iter().collect::<Vec<_>>().join(" ")))
}

fn force_reset(value: &str) -> Result<(), String> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Policy {
        enable: bool,
        #[serde(default)]
        period: i64,
        #[serde(default)]
        vm_migration_timeout: i64,
    }
    let policy: Policy = json(value)?;
    if policy.enable && policy.period <= 0 {
        return Err("period value should be greater than 0".to_owned());
    }
    if policy.vm_migration_timeout < 0 {
        return Err("vmMigrationTimeout value should be greater than or equal to 0".to_owned());
    }
    Ok(())
}

fn rotation(value: &str) -> Result<(), String> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Rotation {
        #[serde(default, rename = "enable")]
        _enable: bool,
        expiring_in_hours: i64,
    }
    let rotation: Rotation = json(value)?;
    if rotation.expiring_in_hours <= 0 {
        return Err("expiringInHours can't be negative or zero".to_owned());
    }
    if rotation.expiring_in_hours > LONGEST_EXPIRY_HOURS {
        return Err(format!("expiringInHours can't be large than {LONGEST_EXPIRY_HOURS}"));
    }
    Ok(())
}

fn bundle_image(value: &str) -> Result<(), String> {
    let image: Map<String, Value> = json(value)?;
    if image.is_empty() {
        return Ok(());
    }
    let part = |name: &str| image.get(name).and_then(Value::as_str).unwrap_or_default();
    if ["repository", "tag"].into_iter().any(|name| part(name).is_empty()) {
        return Err("image field can't be blank".to_owned());
    }
    match part("imagePullPolicy") {
        "" | "Always" | "IfNotPresent" | "Never" => Ok(()),
        other => Err(format!("invalid imagePullPolicy {other}")),
    }
}

fn namespaces(value: &str) -> Result<(), String> {
    for name in value.split(',').map(str::trim) {
        joined(&names::is_dns1123_label(name)).map_err(|why| format!("invalid namespace {name:?}: {why}"))?;
    }
    Ok(())
}

/// An address by itself is the old form.
fn registration(value: &str) -> Result<(), String> {
    let url = if value.starts_with('{') {
        let parts: Map<String, Value> = json(value)?;
        parts.get("url").and_then(Value::as_str).unwrap_or_default().to_owned()
    } else {
        value.to_owned()
    };
    if url.is_empty() { Ok(()) } else { web_address(&url) }
}

/// Percent of a node's processors for Longhorn's engines.
fn shares(value: &str) -> Result<(), String> {
    #[derive(Deserialize)]
    struct Shares {
        cpu: BTreeMap<String, String>,
    }
    for (engine, percent) in json::<Shares>(value)?.cpu {
        let is_percent = percent.parse::<u8>().is_ok_and(|percent| percent <= 40);
        if !["v1", "v2"].contains(&engine.as_str()) || !is_percent {
            return Err(format!("cpu of {engine} should be a percentage from 0 to 40 for v1 or v2, not {percent}"));
        }
    }
    Ok(())
}

/// The classes that snapshots are made with, by provisioner.
pub(super) fn snapshot_classes(value: &str, lookup: &dyn Lookup) -> Result<(), String> {
    let entries: Map<String, Value> = json(value)?;
    if !entries.contains_key(LONGHORN) {
        return Err(format!("csi-driver-config must contain the provisioner {LONGHORN}"));
    }
    let defaults: Value =
        serde_json::from_str(settings::default_of("csi-driver-config").unwrap_or_default()).unwrap_or_default();
    for (provisioner, classes) in &entries {
        let class = text(classes, "volumeSnapshotClassName");
        if class.is_empty() {
            return Err(format!("volumeSnapshotClassName of {provisioner} is required"));
        }
        for field in ["volumeSnapshotClassName", "backupVolumeSnapshotClassName"] {
            let class = text(classes, field);
            let is_given = defaults.get(provisioner).is_some_and(|default| text(default, field) == class);
            if class.is_empty() || is_given {
                continue;
            }
            let found = lookup.get("snapshot.storage.k8s.io", "volumesnapshotclasses", "", class);
            let Some(found) = found else { return Err(format!("{field} {class} not found")) };
            if text(&found, "driver") != provisioner {
                return Err(format!("{field} {class} is not of the driver {provisioner}"));
            }
        }
    }
    Ok(())
}

pub(super) fn migration(value: &str, lookup: &dyn Lookup) -> Result<(), String> {
    let config: Map<String, Value> = json(value)?;
    if config.get("nodeDrainTaintKey").is_some_and(|key| !key.is_null()) {
        return Err("nodeDrainTaintKey field cannot be configured".to_owned());
    }
    if config.get("network").is_some_and(|network| !network.is_null()) {
        return Err("network field is configured by vm-migration-network setting".to_owned());
    }
    for (name, value) in &config {
        let is_fine = match name.as_str() {
            "parallelOutboundMigrationsPerNode"
            | "parallelMigrationsPerCluster"
            | "completionTimeoutPerGiB"
            | "progressTimeout" => value.as_i64().is_some_and(|number| number >= 0),
            "bandwidthPerMigration" => value.is_number() || value.is_string(),
            "allowAutoConverge"
            | "unsafeMigrationOverride"
            | "allowPostCopy"
            | "allowWorkloadDisruption"
            | "disableTLS"
            | "matchSELinuxLevelOnMigration" => value.is_boolean(),
            _ => return Err(format!("Invalid JSON: unknown field {name}")),
        };
        if !is_fine {
            return Err(format!("Invalid JSON: {name} cannot be {value}"));
        }
    }
    networks::no_migration(lookup)
}

pub(super) fn upgrade(value: &str, lookup: &dyn Lookup) -> Result<(), String> {
    let config: Value = json(value)?;
    let strategy = get(&config, "imagePreloadOption.strategy");
    let kind = strategy.map(|strategy| text(strategy, "type")).unwrap_or_default();
    if !matches!(kind, "skip" | "sequential" | "parallel") {
        return Err(format!("invalid image preload strategy type {kind:?}"));
    }
    let concurrency = strategy.and_then(|strategy| get(strategy, "concurrency"));
    if concurrency.is_some_and(|count| count.as_i64().is_none_or(|count| count < 0)) {
        return Err("invalid image preload strategy concurrency".to_owned());
    }
    let Some(strategy) = get(&config, "nodeUpgradeOption.strategy") else { return Ok(()) };
    match text(strategy, "mode") {
        "" | "auto" => return Ok(()),
        "manual" => {}
        mode => return Err(format!("invalid node upgrade strategy mode {mode:?}")),
    }
    let nodes: Vec<&str> = list(strategy, "pauseNodes").iter().filter_map(Value::as_str).collect();
    if nodes.iter().collect::<BTreeSet<_>>().len() != nodes.len() {
        return Err("duplicate pause node names".to_owned());
    }
    let missing: Vec<&str> = nodes.into_iter().filter(|name| lookup.get("", "nodes", "", name).is_none()).collect();
    if missing.is_empty() { Ok(()) } else { Err(format!("nodes not found: [{}]", missing.join(" "))) }
}
