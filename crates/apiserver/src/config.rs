//! What the server is told when it starts.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use croft_pki::Secret;
use croft_store::Store;

use crate::audit::AuditLog;
use crate::auth::LoginLimits;
use crate::auth::authenticate::oidc::AuthenticationConfig;
use crate::auth::request_header::FrontProxies;
use crate::fairness;

/// What a server needs to start.
#[derive(Debug)]
pub struct Config {
    /// Where keys, certificates and the kubeconfig are kept.
    pub data_dir: PathBuf,
    pub listen: Vec<Listen>,
    pub store: Arc<dyn Store>,
    /// Further names and addresses that clients reach the server by, for its certificate.
    pub extra_names: Vec<String>,
    /// Sets the password of the `admin` user; without one, the first start makes one up.
    pub admin_password: Option<Secret>,
    pub website: Option<Website>,
    pub audit: AuditLog,
    /// Whose tokens are good besides those of this server.
    pub authentication: AuthenticationConfig,
    pub limits: Limits,
    /// When wrong passwords lock a name.
    pub logins: LoginLimits,
    /// Whose word is taken for who a user is.
    pub front_proxies: Option<FrontProxies>,
    /// The rules of KubeVirt's and Harvester's kinds are asked as webhooks, and not here.
    pub rules_are_outside: bool,
}

impl Config {
    /// Heard by nobody, with everything else as it is unless somebody says otherwise.
    pub fn new(data_dir: PathBuf, store: Arc<dyn Store>) -> Self {
        Self {
            data_dir,
            listen: Vec::new(),
            store,
            extra_names: Vec::new(),
            admin_password: None,
            website: None,
            audit: AuditLog::off(),
            authentication: AuthenticationConfig::default(),
            limits: Limits::default(),
            logins: LoginLimits::default(),
            front_proxies: None,
            rules_are_outside: false,
        }
    }
}

/// How much at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Requests that are worked on.
    pub requests: usize,
    /// Connections that are open.
    pub connections: usize,
    /// Memory for large answers that are being made or read.
    pub answer_bytes: usize,
    /// Memory for what was answered and is not yet taken.
    pub sending_bytes: usize,
}

impl Default for Limits {
    /// What suits these processors, and a server with much memory.
    fn default() -> Self {
        Self {
            requests: fairness::default_seats(),
            connections: 10_000,
            answer_bytes: 1 << 30,
            sending_bytes: 512 << 20,
        }
    }
}

/// The files of a web page, which anybody may have: the answer to a request for one of them, `None` for all others.
pub type Website = fn(&http::request::Parts) -> Option<http::Response<bytes::Bytes>>;

/// An address to listen on.
#[derive(Clone, Copy, Debug)]
pub struct Listen {
    pub addr: SocketAddr,
    /// An optional listener that cannot be bound is left out with a warning.
    pub is_required: bool,
}
