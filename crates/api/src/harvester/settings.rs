//! The settings of the cluster, as Harvester names them.
//!
//! All of them exist from the start, because clients only ever change them. What Croft makes of each is its [`State`];
//! `docs/settings.md` tells the same to people.

use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;

use crate::admission::Lookup;
use crate::view::text;

/// Name and default.
pub const ALL: &[(&str, &str)] = &[
    ("additional-ca", ""),
    ("additional-guest-memory-overhead-ratio", "1.5"),
    ("api-ui-version", "1.1.9"),
    (AUTO_DISK_PATHS, ""),
    (AUTO_ROTATE, r#"{"enable":false,"expiringInHours":240}"#),
    ("backup-target", ""),
    (
        "cluster-pod-security-standard",
        r#"{"enabled":false,"whitelistedNamespacesList":"","privilegedNamespacesList":"","restrictedNamespacesList":""}"#,
    ),
    ("cluster-registration-url", r#"{"url":"","insecureSkipTLSVerify":false}"#),
    ("containerd-registry", ""),
    (
        "csi-driver-config",
        r#"{"driver.longhorn.io":{"volumeSnapshotClassName":"longhorn-snapshot","backupVolumeSnapshotClassName":"longhorn"}}"#,
    ),
    ("csi-online-expand-validation", r#"{"driver.longhorn.io":true}"#),
    ("default-storage-class", "longhorn"),
    ("default-vm-termination-grace-period-seconds", "120"),
    (
        "harvester-csi-ccm-versions",
        r#"{"harvester-cloud-provider":">=0.0.1 <0.3.0","harvester-csi-provider":">=0.0.1 <0.3.0"}"#,
    ),
    ("http-proxy", "{}"),
    ("instance-manager-resources", r#"{"cpu":{}}"#),
    ("kubeconfig-default-token-ttl-minutes", "0"),
    (
        "kubevirt-migration",
        r#"{"parallelOutboundMigrationsPerNode":2,"parallelMigrationsPerCluster":5,"allowAutoConverge":false,"bandwidthPerMigration":0,"completionTimeoutPerGiB":150,"progressTimeout":150,"unsafeMigrationOverride":false,"allowPostCopy":false,"allowWorkloadDisruption":false,"disableTLS":false,"matchSELinuxLevelOnMigration":false}"#,
    ),
    ("log-level", "info"),
    ("longhorn-v2-data-engine-enabled", "false"),
    ("longhorn-v2-data-engine-hugepage-enabled", "true"),
    ("longhorn-v2-data-engine-memory-size", "2048"),
    ("max-hotplug-ratio", "4"),
    (NTP_SERVERS, ""),
    ("overcommit-config", r#"{"cpu":1000,"memory":150,"storage":100}"#),
    ("rancher-cluster", "{}"),
    ("release-download-url", "https://releases.rancher.com/harvester"),
    ("rwx-network", r#"{"share-storage-network":false}"#),
    (SERVER_VERSION, COMPATIBLE_WITH),
    ("ssl-certificates", "{}"),
    ("ssl-parameters", "{}"),
    ("storage-network", ""),
    ("support-bundle-expiration", "30"),
    ("support-bundle-file-name", ""),
    ("support-bundle-image", "{}"),
    ("support-bundle-namespaces", ""),
    ("support-bundle-node-collection-timeout", "30"),
    ("support-bundle-timeout", "50"),
    (
        "traefik-default-tls-options",
        r#"{"minVersion":"VersionTLS12","maxVersion":"VersionTLS13","sniStrict":false,"cipherSuites":[],"clientAuth":{"secretNames":[],"clientAuthType":""}}"#,
    ),
    ("ui-index", "https://releases.rancher.com/harvester-ui/dashboard/latest/index.html"),
    ("ui-path", "/usr/share/harvester/harvester"),
    ("ui-plugin-bundled-version", ""),
    (
        "ui-plugin-index",
        "https://releases.rancher.com/harvester-ui/plugin/harvester-latest/harvester-latest.umd.min.js",
    ),
    ("ui-source", "auto"),
    ("upgradable-versions", ""),
    ("upgrade-checker-enabled", "true"),
    ("upgrade-checker-url", "https://harvester-upgrade-responder.rancher.io/v1/checkupgrade"),
    (
        "upgrade-config",
        r#"{"imagePreloadOption":{"strategy":{"type":"sequential"}},"nodeUpgradeOption":{"strategy":{"mode":"auto"}},"restoreVM":false,"logReadyTimeout":"5"}"#,
    ),
    ("vip-pools", ""),
    ("vm-force-reset-policy", r#"{"enable":true,"period":15,"vmMigrationTimeout":180}"#),
    ("vm-migration-network", ""),
    ("volume-snapshot-class", "longhorn"),
];

/// Whom the node's clock follows.
pub const NTP_SERVERS: &str = "ntp-servers";
/// Which blank disks of nodes become pools by themselves.
pub const AUTO_DISK_PATHS: &str = "auto-disk-provision-paths";
/// How long before their end certificates are renewed.
pub const AUTO_ROTATE: &str = "auto-rotate-rke2-certs";
pub const SERVER_VERSION: &str = "server-version";
/// The Harvester whose API this is; clients parse it and choose by it how they speak.
pub const COMPATIBLE_WITH: &str = "v1.8.1";

/// What Croft makes of a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Croft acts on it.
    Works,
    /// Clients read it; there is nothing for a server to do.
    ForClients,
    /// Kept, and without effect: what it configures is not there.
    NoEffect,
}

/// What Croft itself reads.
pub const ACTED_ON: &[&str] = &[
    "additional-ca",
    "additional-guest-memory-overhead-ratio",
    AUTO_DISK_PATHS,
    AUTO_ROTATE,
    "backup-target",
    "csi-online-expand-validation",
    "default-vm-termination-grace-period-seconds",
    "http-proxy",
    "kubeconfig-default-token-ttl-minutes",
    "log-level",
    "max-hotplug-ratio",
    NTP_SERVERS,
    "overcommit-config",
    SERVER_VERSION,
    "ssl-certificates",
    "ssl-parameters",
    "support-bundle-expiration",
    "support-bundle-file-name",
    "support-bundle-node-collection-timeout",
    "support-bundle-timeout",
];

/// What clients and the web interface choose by.
#[cfg(test)]
const FOR_CLIENTS: &[&str] = &[
    "api-ui-version",
    "csi-driver-config",
    "default-storage-class",
    "harvester-csi-ccm-versions",
    "release-download-url",
    "support-bundle-image",
    "support-bundle-namespaces",
    "ui-index",
    "ui-path",
    "ui-plugin-bundled-version",
    "ui-plugin-index",
    "ui-source",
    "upgradable-versions",
    "volume-snapshot-class",
];

/// What is kept without an effect, and why there is none.
pub const WITHOUT_EFFECT: &[(&str, &str)] = &[
    ("cluster-pod-security-standard", "no pods run here"),
    ("cluster-registration-url", "Rancher's agent is a pod, and no pods run here"),
    ("containerd-registry", "there is no containerd; downloads take their credentials from Secrets"),
    ("instance-manager-resources", "Longhorn does not run here"),
    ("kubevirt-migration", "running machines cannot be moved to another node yet"),
    ("longhorn-v2-data-engine-enabled", "Longhorn does not run here"),
    ("longhorn-v2-data-engine-hugepage-enabled", "Longhorn does not run here"),
    ("longhorn-v2-data-engine-memory-size", "Longhorn does not run here"),
    ("rancher-cluster", "this cluster cannot be imported into Rancher"),
    ("rwx-network", "there are no shared file systems yet"),
    ("storage-network", "volumes are not replicated to other nodes yet"),
    ("traefik-default-tls-options", "there is no Traefik; ssl-parameters says how TLS is spoken"),
    ("upgrade-checker-enabled", "nobody is asked for new versions: the program is replaced by hand"),
    ("upgrade-checker-url", "nobody is asked for new versions: the program is replaced by hand"),
    ("upgrade-config", "the program is replaced by hand"),
    ("vip-pools", "it is deprecated; pools of addresses are IPPool objects"),
    ("vm-force-reset-policy", "there is no other node that the machines of a dead one could start on"),
    ("vm-migration-network", "running machines cannot be moved to another node yet"),
];

/// Why a setting has no effect.
pub fn why_without_effect(name: &str) -> Option<&'static str> {
    WITHOUT_EFFECT.iter().find(|(known, _)| *known == name).map(|(_, why)| *why)
}

/// `None` for settings that others have made.
pub fn state_of(name: &str) -> Option<State> {
    default_of(name)?;
    Some(if ACTED_ON.contains(&name) {
        State::Works
    } else if why_without_effect(name).is_some() {
        State::NoEffect
    } else {
        State::ForClients
    })
}

/// The value of `ntp-servers`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TimeServers {
    pub ntp_servers: Vec<String>,
}

/// The value of `auto-rotate-rke2-certs`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Rotation {
    pub enable: bool,
    pub expiring_in_hours: u64,
}

impl Rotation {
    /// How long before its end a certificate is to be renewed; zero if that is left to the server.
    pub fn ahead(self) -> Duration {
        let hours = if self.enable { self.expiring_in_hours } else { 0 };
        Duration::from_secs(hours.saturating_mul(3600))
    }
}

/// The value of `ssl-certificates`. All in PEM.
#[derive(Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct ServingCertificate {
    pub ca: String,
    pub public_certificate: String,
    pub private_key: String,
}

impl std::fmt::Debug for ServingCertificate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ServingCertificate")
            .field("public_certificate", &self.public_certificate)
            .finish_non_exhaustive()
    }
}

/// The value of `ssl-parameters`, in OpenSSL's words.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TlsParameters {
    /// Separated by spaces.
    pub protocols: String,
    /// Separated by colons.
    pub ciphers: String,
}

/// The default of a setting; `None` if there is no such setting.
pub fn default_of(name: &str) -> Option<&'static str> {
    ALL.iter().find(|(known, _)| *known == name).map(|(_, default)| *default)
}

/// What is in force: the value that is set, else the default.
pub fn effective(lookup: &dyn Lookup, name: &str) -> String {
    let stored = lookup.get(super::GROUP, "settings", "", name).unwrap_or(Value::Null);
    for field in ["value", "default"] {
        let value = text(&stored, field);
        if !value.is_empty() {
            return value.to_owned();
        }
    }
    default_of(name).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    struct Stored(Value);

    impl Lookup for Stored {
        fn get(&self, _: &str, plural: &str, _: &str, name: &str) -> Option<Value> {
            (plural == "settings").then(|| self.0.get(name).cloned()).flatten()
        }

        fn list(&self, _: &str, _: &str, _: &str) -> Vec<Value> {
            Vec::new()
        }

        fn caller_may(&self, _: &str, _: &str, _: &str, _: &str, _: &str) -> bool {
            true
        }
    }

    #[test]
    fn a_value_counts_before_a_default() {
        let stored = Stored(json!({
            "log-level": {"value": "debug", "default": "info"},
            "ui-source": {"value": "", "default": "bundled"},
        }));
        assert_eq!(effective(&stored, "log-level"), "debug");
        assert_eq!(effective(&stored, "ui-source"), "bundled");
        assert_eq!(effective(&stored, "default-vm-termination-grace-period-seconds"), "120");
        assert_eq!(effective(&stored, "no-such-setting"), "");
    }

    #[test]
    fn of_every_name_one_thing_is_said() {
        let mut names: Vec<&str> = ALL.iter().map(|(name, _)| *name).collect();
        names.sort_unstable();
        let count = names.len();
        names.dedup();
        assert_eq!(names.len(), count);
        let without: Vec<&str> = WITHOUT_EFFECT.iter().map(|(name, _)| *name).collect();
        let mut told: Vec<&str> = [ACTED_ON, FOR_CLIENTS, &without].concat();
        told.sort_unstable();
        assert_eq!(told, names);
    }

    #[test]
    fn the_documentation_says_the_same() {
        let text = include_str!("../../../../docs/settings.md");
        let rows = text.lines().filter_map(|line| line.strip_prefix("| `")?.split_once("` | "));
        let mut count = 0;
        for (name, row) in rows {
            count += 1;
            let told = match state_of(name).unwrap() {
                State::Works => " | works | ".to_owned(),
                State::ForClients => " | for clients | ".to_owned(),
                State::NoEffect => format!(" | stored only | No effect: {}. |", why_without_effect(name).unwrap()),
            };
            assert!(format!(" | {row}").contains(&told), "{name}: {told}");
        }
        assert_eq!(count, ALL.len());
    }

    #[test]
    fn defaults_that_look_like_json_are_json() {
        for (name, default) in ALL.iter().filter(|(_, default)| default.starts_with('{')) {
            assert!(serde_json::from_str::<Value>(default).is_ok(), "{name}");
        }
    }
}
