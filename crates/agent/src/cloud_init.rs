//! What cloud-init finds on its CD, in the two layouts that KubeVirt offers.

use serde_json::{Value, json};

/// What a guest is told at its first boot.
#[derive(Clone, Default, PartialEq, Eq)]
pub(crate) struct Seed {
    pub user_data: Vec<u8>,
    pub network_data: Option<Vec<u8>>,
    /// Changes when the guest should do its first steps again.
    pub instance_id: String,
    pub hostname: String,
    /// The machine's UUID, as its firmware tells it.
    pub uuid: String,
    pub public_keys: Vec<String>,
    pub instance_type: Option<String>,
    pub tagged: Vec<Tagged>,
}

/// A device that its owner gave a role; the guest finds it by what both can see.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Tagged {
    Disk { serial: String, tag: String },
    Nic { mac: String, tag: String },
}

impl Tagged {
    /// As OpenStack writes it.
    fn shown(&self) -> Value {
        match self {
            Tagged::Disk { serial, tag } => json!({ "type": "disk", "serial": serial, "tags": [tag] }),
            Tagged::Nic { mac, tag } => json!({ "type": "nic", "mac": mac, "tags": [tag] }),
        }
    }
}

impl std::fmt::Debug for Seed {
    /// Passwords and keys are no business of a log.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Seed").field("instance_id", &self.instance_id).finish_non_exhaustive()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Layout {
    NoCloud,
    ConfigDrive,
}

impl Layout {
    /// The label by which the guest knows the CD.
    pub(crate) fn label(self) -> &'static str {
        match self {
            Layout::NoCloud => "cidata",
            Layout::ConfigDrive => "config-2",
        }
    }

    pub(crate) fn files(self, seed: &Seed) -> Vec<(String, Vec<u8>)> {
        let keys: serde_json::Map<String, Value> =
            seed.public_keys.iter().enumerate().map(|(index, key)| (index.to_string(), json!(key))).collect();
        let (mut meta, paths) = match self {
            Layout::NoCloud => (
                json!({ "instance-id": seed.instance_id, "local-hostname": seed.hostname }),
                ["meta-data", "user-data", "network-config"],
            ),
            Layout::ConfigDrive => (
                json!({ "instance_id": seed.instance_id, "hostname": seed.hostname, "uuid": seed.uuid }),
                ["openstack/latest/meta_data.json", "openstack/latest/user_data", "openstack/latest/network_data.json"],
            ),
        };
        let (keys_name, type_name) = match self {
            Layout::NoCloud => ("public-keys", "instance-type"),
            Layout::ConfigDrive => ("public_keys", "instance_type"),
        };
        if !keys.is_empty() {
            meta[keys_name] = Value::Object(keys);
        }
        if let Some(name) = &seed.instance_type {
            meta[type_name] = json!(name);
        }
        if self == Layout::ConfigDrive && !seed.tagged.is_empty() {
            meta["devices"] = seed.tagged.iter().map(Tagged::shown).collect();
        }
        let [meta_path, user_path, network_path] = paths.map(str::to_owned);
        let mut files = vec![(meta_path, meta.to_string().into_bytes()), (user_path, seed.user_data.clone())];
        if let Some(network) = &seed.network_data {
            files.push((network_path, network.clone()));
        }
        files
    }
}

/// A guest's name for itself: the first label of what was asked for, with nothing a host name may not have.
pub(crate) fn hostname(wanted: &str) -> String {
    const MAX: usize = 63;
    let first = wanted.split('.').next().unwrap_or_default();
    let name: String = first.chars().filter(|c| c.is_ascii_alphanumeric() || *c == '-').take(MAX).collect();
    name.trim_matches('-').to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seed() -> Seed {
        Seed {
            user_data: b"#cloud-config\n".to_vec(),
            network_data: Some(b"version: 2\n".to_vec()),
            instance_id: "web.default".into(),
            hostname: "web".into(),
            uuid: "u-1".into(),
            public_keys: vec!["ssh-ed25519 A".into(), "ssh-ed25519 B".into()],
            instance_type: None,
            tagged: vec![
                Tagged::Disk { serial: "s-1".into(), tag: "logs".into() },
                Tagged::Nic { mac: "02:00:00:00:00:01".into(), tag: "backup".into() },
            ],
        }
    }

    #[test]
    fn each_layout_has_its_own_files() {
        let files = Layout::NoCloud.files(&seed());
        let names: Vec<_> = files.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["meta-data", "user-data", "network-config"]);
        let meta: Value = serde_json::from_slice(&files[0].1).unwrap();
        assert_eq!(
            meta,
            json!({ "instance-id": "web.default", "local-hostname": "web",
                "public-keys": { "0": "ssh-ed25519 A", "1": "ssh-ed25519 B" } })
        );
        let files = Layout::ConfigDrive.files(&Seed { network_data: None, ..seed() });
        let names: Vec<_> = files.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["openstack/latest/meta_data.json", "openstack/latest/user_data"]);
        let meta: Value = serde_json::from_slice(&files[0].1).unwrap();
        assert_eq!(meta["devices"][0], json!({ "type": "disk", "serial": "s-1", "tags": ["logs"] }));
        assert_eq!(meta["devices"][1], json!({ "type": "nic", "mac": "02:00:00:00:00:01", "tags": ["backup"] }));
        assert_eq!((&meta["uuid"], &meta["hostname"]), (&json!("u-1"), &json!("web")));
    }

    #[test]
    fn a_hostname_is_one_label() {
        for (wanted, expected) in
            [("web", "web"), ("Web_1.example.org", "web1"), ("-a-", "a"), (&"x".repeat(70), &"x".repeat(63))]
        {
            assert_eq!(hostname(wanted), expected);
        }
    }

    #[test]
    fn secrets_do_not_reach_the_log() {
        assert!(!format!("{:?}", seed()).contains("ssh-ed25519"));
    }
}
