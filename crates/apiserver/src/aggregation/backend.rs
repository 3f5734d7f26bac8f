//! One APIService that leads to another server, and connections to that.

use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::ArcSwapOption;
use croft_meta::{Chain, Revision, object};
use croft_pki::front_proxy::FrontProxy;
use jiff::Timestamp;
use parking_lot::Mutex;
use rustls::ClientConfig;
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use crate::cache::Cache;
use crate::catalog::Catalog;
use crate::webhooks::place::Place;
use crate::webhooks::{remote, tls};

/// Set on APIServices that stand for what this server serves itself.
const AUTOMANAGED: &str = "kube-aggregator.kubernetes.io/automanaged";
/// For a server to accept a connection and prove who it is.
const CONNECT: Duration = Duration::from_secs(5);
/// A client certificate is good for a year, and replaced long before.
const IDENTITY_USED: Duration = Duration::from_hours(30 * 24);

/// What is known of a server beyond its APIService.
#[derive(Debug, Default)]
struct Shared {
    tls: Mutex<Option<(Instant, Arc<ClientConfig>)>>,
    /// The resources of its last good answer, as aggregated discovery tells them.
    resources: ArcSwapOption<Vec<Value>>,
}

#[derive(Debug)]
pub(crate) struct Backend {
    /// Of the APIService.
    pub(crate) name: String,
    pub(crate) group: String,
    pub(crate) version: String,
    pub(super) revision: Revision,
    spec: Value,
    pub(super) place: Place,
    pub(super) is_available: bool,
    shared: Arc<Shared>,
}

impl PartialEq for Backend {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name && self.revision == other.revision
    }
}

impl Eq for Backend {}

impl Backend {
    /// `None` if this server itself serves the group and version.
    pub(super) fn read(service: &Value, revision: Revision) -> Option<Self> {
        let spec = service.get("spec")?;
        let reference = spec.get("service").filter(|reference| reference.is_object())?;
        if service.pointer("/metadata/labels").is_some_and(|labels| labels.get(AUTOMANAGED).is_some()) {
            return None;
        }
        let text = |field: &str| spec[field].as_str().unwrap_or_default().to_owned();
        let conditions = service.pointer("/status/conditions").and_then(Value::as_array);
        let mut conditions = conditions.into_iter().flatten();
        Some(Self {
            name: object::name(service).to_owned(),
            group: text("group"),
            version: text("version"),
            revision,
            place: Place::parse(&json!({ "service": reference })),
            is_available: conditions.any(|found| found["type"] == "Available" && found["status"] == "True"),
            spec: spec.clone(),
            shared: Arc::default(),
        })
    }

    /// Is it about what this server serves itself?
    pub(super) fn is_served_by(&self, own: &Catalog) -> bool {
        own.group(&self.group).is_some_and(|group| group.versions.contains(&self.version))
    }

    pub(super) fn is_same(&self, other: &Self) -> bool {
        self.name == other.name && self.spec == other.spec
    }

    /// The same server under a newer state of its APIService.
    pub(super) fn with_status_of(&self, newer: Self) -> Self {
        Self { shared: Arc::clone(&self.shared), ..newer }
    }

    /// Sorts what comes first in discovery to the front.
    pub(super) fn rank(&self) -> (i64, &str, i64, &str) {
        let number = |field: &str| -self.spec[field].as_i64().unwrap_or_default();
        (number("groupPriorityMinimum"), &self.group, number("versionPriority"), &self.version)
    }

    pub(super) fn root(&self) -> String {
        format!("/apis/{}/{}", self.group, self.version)
    }

    pub(super) fn resources(&self) -> Option<Arc<Vec<Value>>> {
        self.shared.resources.load_full()
    }

    pub(super) fn serves(&self, resources: Vec<Value>) {
        self.shared.resources.store(Some(Arc::new(resources)));
    }

    /// A connection on which this server has proved who it is, and so have we.
    pub(super) async fn connect(&self, cache: &Cache, front: &FrontProxy) -> Result<TlsStream<TcpStream>, String> {
        let attempt = async {
            let addresses = remote::resolve(self.place.address(cache)?).await?;
            let config = self.tls(front)?;
            remote::dial(&addresses, &self.place.server_name(), &config, CONNECT).await
        };
        match tokio::time::timeout(CONNECT, attempt).await {
            Ok(connected) => connected.map(|(_, stream)| stream),
            Err(_) => Err("context deadline exceeded".to_owned()),
        }
    }

    fn tls(&self, front: &FrontProxy) -> Result<Arc<ClientConfig>, String> {
        let mut known = self.shared.tls.lock();
        if let Some((_, config)) = known.as_ref().filter(|(made, _)| made.elapsed() < IDENTITY_USED) {
            return Ok(Arc::clone(config));
        }
        let identity = front.identity(Timestamp::now()).map_err(|error| Chain(&error).to_string())?;
        let builder = ClientConfig::builder_with_provider(croft_pki::tls::provider());
        let builder = builder.with_safe_default_protocol_versions().map_err(|error| error.to_string())?;
        let builder = if self.spec["insecureSkipTLSVerify"] == true {
            builder.dangerous().with_custom_certificate_verifier(croft_pki::any_server::verifier())
        } else {
            builder.with_root_certificates(tls::roots(self.spec["caBundle"].as_str().unwrap_or_default())?)
        };
        let config = builder.with_client_auth_cert(vec![identity.cert], identity.key);
        let mut config = config.map_err(|error| error.to_string())?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        let config = Arc::new(config);
        *known = Some((Instant::now(), Arc::clone(&config)));
        Ok(config)
    }
}
