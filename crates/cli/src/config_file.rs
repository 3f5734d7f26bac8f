//! The configuration file: YAML whose keys are the names of the flags.

use std::path::Path;

use anyhow::{Context, bail};
use clap::Args;

use crate::options::ServerOptions;

pub(crate) fn read(path: &Path) -> anyhow::Result<ServerOptions> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    parse(&text).with_context(|| path.display().to_string())
}

fn parse(text: &str) -> anyhow::Result<ServerOptions> {
    // A file of nothing but comments is a file that says nothing.
    if text.lines().all(|line| line.trim().is_empty() || line.trim_start().starts_with('#')) {
        return Ok(ServerOptions::default());
    }
    let keys: serde_json::Value = serde_saphyr::from_str(text)?;
    let Some(keys) = keys.as_object() else { bail!("expected lines such as \"data-dir: /var/lib/croft\"") };
    let known = known_keys();
    for key in keys.keys() {
        if known.contains(key) {
            continue;
        }
        match nearest(key, &known) {
            Some(near) => bail!("unknown key {key:?}; did you mean {near:?}?"),
            None => bail!("unknown key {key:?}; known are {}", known.join(", ")),
        }
    }
    Ok(serde_saphyr::from_str(text)?)
}

/// The names of the flags: what the command line knows, the file knows, and the other way round.
fn known_keys() -> Vec<String> {
    let command = ServerOptions::augment_args(clap::Command::new("server"));
    command.get_arguments().filter_map(|arg| arg.get_long()).map(str::to_owned).collect()
}

/// What was probably meant: the closest key, if it is close at all.
fn nearest<'a>(key: &str, known: &'a [String]) -> Option<&'a String> {
    let key = key.to_ascii_lowercase().replace('_', "-");
    let (distance, near) = known.iter().map(|near| (distance(&key, near), near)).min()?;
    (distance <= near.len() / 3).then_some(near)
}

/// How many letters to add, drop or change to get from one word to the other.
fn distance(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (i, a) in from.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, b) in to.iter().enumerate() {
            let change = diagonal + usize::from(a != *b);
            diagonal = row[j + 1];
            row[j + 1] = change.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[to.len()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::{LogFormat, StoreKind};

    #[test]
    fn every_flag_is_a_key() {
        let yaml = "
data-dir: /data
listen: [127.0.0.1:1, ':2']
tls-san: croft.example
store: etcd
etcd-endpoints: https://a:2379
etcd-cafile: /ca
etcd-certfile: /cert
etcd-keyfile: /key
etcd-username: root
etcd-password-file: /pw
encrypt-resources: [secrets, configmaps]
encryption-key-file: /keys
state-schedule: '@daily'
state-keep: 3
state-target: /states
state-key-file: /state-key
kubeconfig-link: /etc/there.yaml
admin-password-file: /admin
first-image: /first.qcow2
no-node: true
node-name: n1
node-listen: :10250
run-dir: /run/croft
vm-subnet: 10.60.0.0/16
etc-dir: /etc/here
audit-log-path: '-'
audit-log-maxsize: 1
audit-log-maxbackup: 2
audit-log-maxage: 3
audit-policy-file: /policy
audit-webhook-config-file: /webhook
audit-webhook-batch-max-size: 4
audit-webhook-batch-max-wait: 5s
audit-webhook-batch-buffer-size: 6
audit-webhook-initial-backoff: 7s
authentication-config: /issuers
oidc-issuer-url: https://issuer
oidc-client-id: croft
oidc-ca-file: /issuer-ca
oidc-username-claim: email
oidc-username-prefix: 'oidc:'
oidc-groups-claim: groups
oidc-groups-prefix: 'oidc:'
oidc-required-claim: team=ops
oidc-signing-algs: [RS256, ES256]
requestheader-client-ca-file: /proxy-ca
requestheader-allowed-names: proxy
own-rules: webhook
max-requests-inflight: 8
max-connections: 500
login-attempts: 9
login-lock: 10m
log-format: json
";
        let options = parse(yaml).unwrap();
        for key in known_keys() {
            assert!(yaml.contains(&format!("\n{key}:")), "{key} is not tested");
        }
        assert_eq!(options.listen.len(), 2);
        assert_eq!(options.etcd_endpoints, ["https://a:2379"]);
        assert_eq!(options.encrypt_resources, ["secrets", "configmaps"]);
        assert_eq!(options.tls_san, ["croft.example"]);
        assert_eq!(options.store, Some(StoreKind::Etcd));
        assert_eq!(options.log_format, Some(LogFormat::Json));
        assert_eq!(options.kubeconfig_link.as_deref(), Some(Path::new("/etc/there.yaml")));
        assert_eq!((options.audit_log_path.as_deref(), options.audit_log_maxage), (Some("-"), Some(3)));
        assert_eq!(options.etcd_password_file.as_deref(), Some(Path::new("/pw")));
    }

    #[test]
    fn empty_file_says_nothing() {
        for text in ["", "\n", "# data-dir: /x\n", "{}"] {
            assert!(parse(text).unwrap().data_dir.is_none(), "{text:?}");
        }
    }

    #[test]
    fn mistakes_are_explained() {
        for (text, expected) in [
            ("datadir: /x", "unknown key \"datadir\"; did you mean \"data-dir\"?"),
            ("etcd_endpoints: x", "did you mean \"etcd-endpoints\"?"),
            ("config: other.yaml", "unknown key \"config\"; known are data-dir, listen"),
            ("zzz: 1", "unknown key \"zzz\"; known are data-dir"),
            ("- data-dir", "expected lines such as"),
            ("listen: 6443", "6443"),
            ("listen: nowhere", "\"nowhere\" is not an address and a port"),
            ("store: sqlite", "sqlite"),
            ("data-dir: [", ""),
        ] {
            let err = format!("{:#}", parse(text).unwrap_err());
            assert!(err.contains(expected), "{text}: {err}");
        }
    }
}
