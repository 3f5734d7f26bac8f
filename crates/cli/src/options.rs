//! The options of `croft server`: each a flag, an environment variable `CROFT_…`, and a key of the configuration file.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, ValueEnum};
use serde::{Deserialize, Deserializer};

#[derive(Debug, Args)]
pub(crate) struct ServerArgs {
    /// A YAML file with any of these options as keys, without the leading dashes; flags and variables win over it
    #[arg(long, env = "CROFT_CONFIG", value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) options: ServerOptions,
}

/// What was said in one place; what was not said is `None` or empty.
#[derive(Debug, Default, Args, Deserialize)]
#[serde(rename_all = "kebab-case", default, deny_unknown_fields)]
pub(crate) struct ServerOptions {
    /// Where everything is kept [default: /var/lib/croft]
    #[arg(long, env = "CROFT_DATA_DIR", value_name = "DIR")]
    pub(crate) data_dir: Option<PathBuf>,
    /// Serve on this address; may be repeated; the first goes into the kubeconfig [default: :6443, and :443 if possible]
    #[arg(long, env = "CROFT_LISTEN", value_name = "ADDR:PORT", value_delimiter = ',')]
    #[serde(deserialize_with = "one_or_many")]
    pub(crate) listen: Vec<ListenAddress>,
    /// Another name or address that clients reach the server by, for its certificate; may be repeated
    #[arg(long, env = "CROFT_TLS_SAN", value_name = "NAME", value_delimiter = ',')]
    #[serde(deserialize_with = "one_or_many")]
    pub(crate) tls_san: Vec<String>,
    /// Where state is kept: in the data directory, or in etcd [default: embedded]
    #[arg(long, env = "CROFT_STORE", value_enum)]
    pub(crate) store: Option<StoreKind>,
    /// The addresses of etcd's members, separated by commas
    #[arg(long, env = "CROFT_ETCD_ENDPOINTS", value_name = "URL", value_delimiter = ',')]
    #[serde(deserialize_with = "one_or_many")]
    pub(crate) etcd_endpoints: Vec<String>,
    /// The authority that signed etcd's certificate, in PEM; needed for https
    #[arg(long, env = "CROFT_ETCD_CAFILE", value_name = "FILE")]
    pub(crate) etcd_cafile: Option<PathBuf>,
    /// The certificate to show to etcd, in PEM
    #[arg(long, env = "CROFT_ETCD_CERTFILE", value_name = "FILE")]
    pub(crate) etcd_certfile: Option<PathBuf>,
    /// The key of that certificate, in PEM
    #[arg(long, env = "CROFT_ETCD_KEYFILE", value_name = "FILE")]
    pub(crate) etcd_keyfile: Option<PathBuf>,
    /// The user to log in to etcd as
    #[arg(long, env = "CROFT_ETCD_USERNAME", value_name = "NAME")]
    pub(crate) etcd_username: Option<String>,
    /// A file with that user's password
    #[arg(long, env = "CROFT_ETCD_PASSWORD_FILE", value_name = "FILE")]
    pub(crate) etcd_password_file: Option<PathBuf>,
    /// Kinds whose objects are encrypted in the store, such as secrets,configmaps or settings.harvesterhci.io, or "none"
    /// [default: secrets]
    #[arg(long, env = "CROFT_ENCRYPT_RESOURCES", value_name = "KIND", value_delimiter = ',')]
    #[serde(deserialize_with = "one_or_many")]
    pub(crate) encrypt_resources: Vec<String>,
    /// Where the keys are that they are encrypted with; made at the first start [default: encryption.key in the data directory]
    #[arg(long, env = "CROFT_ENCRYPTION_KEY_FILE", value_name = "FILE")]
    pub(crate) encryption_key_file: Option<PathBuf>,
    /// When the server saves the state of the cluster by itself, as in crontab, in UTC: "0 */6 * * *" [default: never]
    #[arg(long, env = "CROFT_STATE_SCHEDULE", value_name = "CRON")]
    pub(crate) state_schedule: Option<String>,
    /// How many good ones of those are kept [default: 7]
    #[arg(long, env = "CROFT_STATE_KEEP", value_name = "COUNT")]
    pub(crate) state_keep: Option<u32>,
    /// Where they go: a directory, or s3://bucket@region/path with keys from the environment [default: the backup target]
    #[arg(long, env = "CROFT_STATE_TARGET", value_name = "URL")]
    pub(crate) state_target: Option<String>,
    /// The key that they are encrypted with, as a file of at least 32 bytes [default: that of the cluster's backups, if there is one]
    #[arg(long, env = "CROFT_STATE_KEY_FILE", value_name = "FILE")]
    pub(crate) state_key_file: Option<PathBuf>,
    /// Link the admin's kubeconfig to this place too [default: /etc/rancher/rke2/rke2.yaml with the default data directory]
    #[arg(long, env = "CROFT_KUBECONFIG_LINK", value_name = "FILE")]
    pub(crate) kubeconfig_link: Option<PathBuf>,
    /// A file with the admin's password, set on every start; without it a random one is made and printed on the first
    #[arg(long, env = "CROFT_ADMIN_PASSWORD_FILE", value_name = "FILE")]
    pub(crate) admin_password_file: Option<PathBuf>,
    /// Believe who a user is when somebody with a certificate of these authorities says so in X-Remote-User, -Group, -Uid and
    /// -Extra-: another API server that this one is behind
    #[arg(long, env = "CROFT_REQUESTHEADER_CLIENT_CA_FILE", value_name = "FILE")]
    pub(crate) requestheader_client_ca_file: Option<PathBuf>,
    /// Names in such certificates that are believed [default: all]
    #[arg(long, env = "CROFT_REQUESTHEADER_ALLOWED_NAMES", value_name = "NAME", value_delimiter = ',')]
    #[serde(deserialize_with = "one_or_many")]
    pub(crate) requestheader_allowed_names: Vec<String>,
    /// Who sees to the rules of KubeVirt's and Harvester's kinds: this server, or "croft webhook" beside it [default: inside]
    #[arg(long, env = "CROFT_OWN_RULES", value_name = "WHERE")]
    pub(crate) own_rules: Option<OwnRules>,
    /// A disk image that is offered under its name while there are neither images nor machines, so that the first machine
    /// can be made at once
    #[arg(long, env = "CROFT_FIRST_IMAGE", value_name = "FILE")]
    pub(crate) first_image: Option<PathBuf>,
    /// Serve the API alone: run no virtual machines on this machine
    #[arg(long, env = "CROFT_NO_NODE", default_missing_value = "true", num_args = 0..=1, require_equals = true)]
    pub(crate) no_node: Option<bool>,
    /// What this machine is called as a node [default: its host name]
    #[arg(long, env = "CROFT_NODE_NAME", value_name = "NAME")]
    pub(crate) node_name: Option<String>,
    /// Where the API server reaches this node [default: :10250, or another port if that is taken]
    #[arg(long, env = "CROFT_NODE_LISTEN", value_name = "ADDR:PORT")]
    pub(crate) node_listen: Option<ListenAddress>,
    /// For sockets of virtual machines; a short path [default: below /run/croft]
    #[arg(long, env = "CROFT_RUN_DIR", value_name = "DIR")]
    pub(crate) run_dir: Option<PathBuf>,
    /// The IPv4 subnet that virtual machines have their addresses from, between /16 and /28
    /// [default: 10.52.0.0/16, or a private one that this machine does not route yet]
    #[arg(long, env = "CROFT_VM_SUBNET", value_name = "CIDR")]
    pub(crate) vm_subnet: Option<String>,
    /// Where this machine's time daemon is configured, for the setting ntp-servers
    /// [default: /etc for root with the default data directory, else nowhere]
    #[arg(long, env = "CROFT_ETC_DIR", value_name = "DIR")]
    pub(crate) etc_dir: Option<PathBuf>,
    /// Where it is written down who did what: a file, "-" for standard output, or "off"
    /// [default: audit/audit.log in the data directory]
    #[arg(long, env = "CROFT_AUDIT_LOG_PATH", value_name = "FILE")]
    pub(crate) audit_log_path: Option<String>,
    /// MiB that the audit log may have before it is rotated [default: 64]
    #[arg(long, env = "CROFT_AUDIT_LOG_MAXSIZE", value_name = "MIB")]
    pub(crate) audit_log_maxsize: Option<u32>,
    /// Rotated audit logs to keep; 0 for all [default: 8]
    #[arg(long, env = "CROFT_AUDIT_LOG_MAXBACKUP", value_name = "COUNT")]
    pub(crate) audit_log_maxbackup: Option<u32>,
    /// Days to keep rotated audit logs for; 0 for ever [default: 30]
    #[arg(long, env = "CROFT_AUDIT_LOG_MAXAGE", value_name = "DAYS")]
    pub(crate) audit_log_maxage: Option<u32>,
    /// A policy of audit.k8s.io/v1 that says what is written down [default: what changes something, without what was sent]
    #[arg(long, env = "CROFT_AUDIT_POLICY_FILE", value_name = "FILE")]
    pub(crate) audit_policy_file: Option<PathBuf>,
    /// A kubeconfig that says where audit events are sent as well
    #[arg(long, env = "CROFT_AUDIT_WEBHOOK_CONFIG_FILE", value_name = "FILE")]
    pub(crate) audit_webhook_config_file: Option<PathBuf>,
    /// Audit events that are sent together [default: 400]
    #[arg(long, env = "CROFT_AUDIT_WEBHOOK_BATCH_MAX_SIZE", value_name = "COUNT")]
    pub(crate) audit_webhook_batch_max_size: Option<u32>,
    /// How long an audit event waits for others to be sent with [default: 30s]
    #[arg(long, env = "CROFT_AUDIT_WEBHOOK_BATCH_MAX_WAIT", value_name = "DURATION")]
    pub(crate) audit_webhook_batch_max_wait: Option<String>,
    /// Audit events that may wait to be sent; more are lost [default: 10000]
    #[arg(long, env = "CROFT_AUDIT_WEBHOOK_BATCH_BUFFER_SIZE", value_name = "COUNT")]
    pub(crate) audit_webhook_batch_buffer_size: Option<u32>,
    /// How long to wait before audit events are sent again that could not be sent; longer each time [default: 10s]
    #[arg(long, env = "CROFT_AUDIT_WEBHOOK_INITIAL_BACKOFF", value_name = "DURATION")]
    pub(crate) audit_webhook_initial_backoff: Option<String>,
    /// An AuthenticationConfiguration of apiserver.config.k8s.io/v1: the issuers whose tokens are good here, and who is let in
    /// without credentials; read again when it changes
    #[arg(long, env = "CROFT_AUTHENTICATION_CONFIG", value_name = "FILE")]
    pub(crate) authentication_config: Option<PathBuf>,
    /// An OpenID Connect issuer whose tokens are good here; only https
    #[arg(long, env = "CROFT_OIDC_ISSUER_URL", value_name = "URL")]
    pub(crate) oidc_issuer_url: Option<String>,
    /// Whom its tokens must be for; needed with the issuer
    #[arg(long, env = "CROFT_OIDC_CLIENT_ID", value_name = "ID")]
    pub(crate) oidc_client_id: Option<String>,
    /// The authority that signed its certificate, in PEM [default: those that this machine trusts]
    #[arg(long, env = "CROFT_OIDC_CA_FILE", value_name = "FILE")]
    pub(crate) oidc_ca_file: Option<PathBuf>,
    /// What of a token is the user's name [default: sub]
    #[arg(long, env = "CROFT_OIDC_USERNAME_CLAIM", value_name = "CLAIM")]
    pub(crate) oidc_username_claim: Option<String>,
    /// What is put before it, "-" for nothing [default: the issuer's URL and #, nothing with the claim email]
    #[arg(long, env = "CROFT_OIDC_USERNAME_PREFIX", value_name = "PREFIX")]
    pub(crate) oidc_username_prefix: Option<String>,
    /// What of a token are the user's groups [default: none]
    #[arg(long, env = "CROFT_OIDC_GROUPS_CLAIM", value_name = "CLAIM")]
    pub(crate) oidc_groups_claim: Option<String>,
    /// What is put before each of them
    #[arg(long, env = "CROFT_OIDC_GROUPS_PREFIX", value_name = "PREFIX")]
    pub(crate) oidc_groups_prefix: Option<String>,
    /// A claim that a token must have, with its value; may be repeated
    #[arg(long, env = "CROFT_OIDC_REQUIRED_CLAIM", value_name = "CLAIM=VALUE")]
    #[serde(deserialize_with = "one_or_many")]
    pub(crate) oidc_required_claim: Vec<String>,
    /// What tokens may be signed with, separated by commas [default: RS256]
    #[arg(long, env = "CROFT_OIDC_SIGNING_ALGS", value_name = "ALG", value_delimiter = ',')]
    #[serde(deserialize_with = "one_or_many")]
    pub(crate) oidc_signing_algs: Vec<String>,
    /// How many requests are worked on at a time; others wait their turn [default: 16 for each processor]
    #[arg(long, env = "CROFT_MAX_REQUESTS_INFLIGHT", value_name = "NUMBER")]
    pub(crate) max_requests_inflight: Option<u32>,
    /// How many connections may be open at a time; quiet ones go to make room [default: what memory and descriptors allow]
    #[arg(long, env = "CROFT_MAX_CONNECTIONS", value_name = "NUMBER")]
    pub(crate) max_connections: Option<u32>,
    /// Wrong passwords in a row that lock a user's name; 0 for never [default: 10]
    #[arg(long, env = "CROFT_LOGIN_ATTEMPTS", value_name = "NUMBER")]
    pub(crate) login_attempts: Option<u32>,
    /// How long a name is locked the first time; twice as long each further time, up to a day [default: 15m]
    #[arg(long, env = "CROFT_LOGIN_LOCK", value_name = "DURATION")]
    pub(crate) login_lock: Option<String>,
    /// How log lines look [default: human on a terminal, else json]
    #[arg(long, env = "CROFT_LOG_FORMAT", value_enum)]
    pub(crate) log_format: Option<LogFormat>,
}

impl ServerOptions {
    /// These options, and for those that were not given, `others`.
    pub(crate) fn or(self, others: Self) -> Self {
        fn list<T>(first: Vec<T>, second: Vec<T>) -> Vec<T> {
            if first.is_empty() { second } else { first }
        }
        Self {
            data_dir: self.data_dir.or(others.data_dir),
            listen: list(self.listen, others.listen),
            tls_san: list(self.tls_san, others.tls_san),
            store: self.store.or(others.store),
            etcd_endpoints: list(self.etcd_endpoints, others.etcd_endpoints),
            etcd_cafile: self.etcd_cafile.or(others.etcd_cafile),
            etcd_certfile: self.etcd_certfile.or(others.etcd_certfile),
            etcd_keyfile: self.etcd_keyfile.or(others.etcd_keyfile),
            etcd_username: self.etcd_username.or(others.etcd_username),
            etcd_password_file: self.etcd_password_file.or(others.etcd_password_file),
            encrypt_resources: list(self.encrypt_resources, others.encrypt_resources),
            encryption_key_file: self.encryption_key_file.or(others.encryption_key_file),
            state_schedule: self.state_schedule.or(others.state_schedule),
            state_keep: self.state_keep.or(others.state_keep),
            state_target: self.state_target.or(others.state_target),
            state_key_file: self.state_key_file.or(others.state_key_file),
            kubeconfig_link: self.kubeconfig_link.or(others.kubeconfig_link),
            admin_password_file: self.admin_password_file.or(others.admin_password_file),
            requestheader_client_ca_file: self.requestheader_client_ca_file.or(others.requestheader_client_ca_file),
            requestheader_allowed_names: list(self.requestheader_allowed_names, others.requestheader_allowed_names),
            own_rules: self.own_rules.or(others.own_rules),
            first_image: self.first_image.or(others.first_image),
            no_node: self.no_node.or(others.no_node),
            node_name: self.node_name.or(others.node_name),
            node_listen: self.node_listen.or(others.node_listen),
            run_dir: self.run_dir.or(others.run_dir),
            vm_subnet: self.vm_subnet.or(others.vm_subnet),
            etc_dir: self.etc_dir.or(others.etc_dir),
            audit_log_path: self.audit_log_path.or(others.audit_log_path),
            audit_log_maxsize: self.audit_log_maxsize.or(others.audit_log_maxsize),
            audit_log_maxbackup: self.audit_log_maxbackup.or(others.audit_log_maxbackup),
            audit_log_maxage: self.audit_log_maxage.or(others.audit_log_maxage),
            audit_policy_file: self.audit_policy_file.or(others.audit_policy_file),
            audit_webhook_config_file: self.audit_webhook_config_file.or(others.audit_webhook_config_file),
            audit_webhook_batch_max_size: self.audit_webhook_batch_max_size.or(others.audit_webhook_batch_max_size),
            audit_webhook_batch_max_wait: self.audit_webhook_batch_max_wait.or(others.audit_webhook_batch_max_wait),
            audit_webhook_batch_buffer_size: self
                .audit_webhook_batch_buffer_size
                .or(others.audit_webhook_batch_buffer_size),
            audit_webhook_initial_backoff: self.audit_webhook_initial_backoff.or(others.audit_webhook_initial_backoff),
            authentication_config: self.authentication_config.or(others.authentication_config),
            oidc_issuer_url: self.oidc_issuer_url.or(others.oidc_issuer_url),
            oidc_client_id: self.oidc_client_id.or(others.oidc_client_id),
            oidc_ca_file: self.oidc_ca_file.or(others.oidc_ca_file),
            oidc_username_claim: self.oidc_username_claim.or(others.oidc_username_claim),
            oidc_username_prefix: self.oidc_username_prefix.or(others.oidc_username_prefix),
            oidc_groups_claim: self.oidc_groups_claim.or(others.oidc_groups_claim),
            oidc_groups_prefix: self.oidc_groups_prefix.or(others.oidc_groups_prefix),
            oidc_required_claim: list(self.oidc_required_claim, others.oidc_required_claim),
            oidc_signing_algs: list(self.oidc_signing_algs, others.oidc_signing_algs),
            max_requests_inflight: self.max_requests_inflight.or(others.max_requests_inflight),
            max_connections: self.max_connections.or(others.max_connections),
            login_attempts: self.login_attempts.or(others.login_attempts),
            login_lock: self.login_lock.or(others.login_lock),
            log_format: self.log_format.or(others.log_format),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum StoreKind {
    /// A database in the data directory
    Embedded,
    /// An etcd cluster
    Etcd,
}

/// Who sees to the rules of KubeVirt's and Harvester's kinds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OwnRules {
    /// The server
    #[default]
    Inside,
    /// "croft webhook", which the server asks as it asks the webhooks of others
    Webhook,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LogFormat {
    /// For people
    Human,
    /// One JSON object a line
    Json,
}

/// `ADDR:PORT`, or `:PORT` for all addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct ListenAddress(pub(crate) SocketAddr);

impl FromStr for ListenAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let full = if text.starts_with(':') { format!("0.0.0.0{text}") } else { text.to_owned() };
        let address = full
            .parse()
            .map_err(|_| format!("{text:?} is not an address and a port, such as 0.0.0.0:6443, [::1]:6443 or :6443"))?;
        Ok(Self(address))
    }
}

impl TryFrom<String> for ListenAddress {
    type Error = String;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

/// In the file, a list of one may be written without the list.
fn one_or_many<'de, T: Deserialize<'de>, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<T>, D::Error> {
    use serde::de::{Error, IntoDeserializer};
    let texts = match serde_json::Value::deserialize(deserializer)? {
        serde_json::Value::Array(values) => values,
        value => vec![value],
    };
    texts.into_iter().map(|value| T::deserialize(value.into_deserializer()).map_err(D::Error::custom)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listen_addresses() {
        for (text, expected) in [
            ("127.0.0.1:6443", Some("127.0.0.1:6443")),
            (":8443", Some("0.0.0.0:8443")),
            ("[::]:6443", Some("[::]:6443")),
            ("127.0.0.1:0", Some("127.0.0.1:0")),
            ("6443", None),
            ("localhost:6443", None),
            ("127.0.0.1:70000", None),
            ("", None),
        ] {
            let parsed = text.parse::<ListenAddress>().ok().map(|address| address.0.to_string());
            assert_eq!(parsed.as_deref(), expected, "{text}");
        }
    }
}
