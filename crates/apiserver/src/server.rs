//! The server as a whole: its parts, its start and its end.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use croft_meta::{ApiError, Chain, Revision};
use croft_pki::front_proxy::FrontProxy;
use croft_pki::{AgentTls, Ca, CertResolver, Secret, ServerNames, ServingCert, TokenSigner};
use croft_store::Store;
use jiff::Timestamp;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::admission::policy::Policies;
use crate::admission::quota;
use crate::aggregation::Aggregation;
use crate::answer_room::AnswerRoom;
use crate::audit::Audit;
use crate::auth::Auth;
use crate::auth::authenticate::oidc::{Issuers, IssuersError};
use crate::body_room::BodyRoom;
use crate::cache::Cache;
use crate::catalog::Catalog;
use crate::config::{Config, Website};
use crate::fairness::Fairness;
use crate::local::LocalService;
use crate::metrics::Metrics;
use crate::metrics::conversions::ConversionMetrics;
use crate::node_proxy::NodeProxy;
use crate::openapi::OpenApi;
use crate::quota_turns::QuotaTurns;
use crate::release::{self, Standing, TooNew};
use crate::serve::SlowThreads;
use crate::sessions::{self, Sessions};
use crate::store_page::StoreCare;
use crate::webhooks::Webhooks;
use crate::write::EventLease;
use crate::{
    aggregation, bootstrap, certificates, crd, history, login_locks, own_endpoints, sealing, serve, signing,
    store_page, web_tls,
};

/// What a server that listens nowhere says is its address.
const UNHEARD: &str = "127.0.0.1:6443";

#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("the keys and certificates could not be loaded")]
    Pki(#[from] croft_pki::Error),
    #[error("the store could not be read")]
    Store(#[from] croft_store::Error),
    #[error("the store can no longer be followed: {reason}")]
    Lost { reason: String },
    #[error("the newest state of the store could not be read")]
    Behind(#[source] ApiError),
    #[error(transparent)]
    TooNew(#[from] TooNew),
    #[error("the audit log cannot be written; choose another place with --audit-log-path")]
    Audit(#[source] std::io::Error),
    #[error("the tokens of other issuers cannot be verified")]
    Issuers(#[from] IssuersError),
    #[error("the admin kubeconfig could not be written")]
    Kubeconfig(#[source] croft_pki::Error),
    #[error("cannot listen on {addr}; choose another address with --listen")]
    Listen { addr: SocketAddr, source: std::io::Error },
    #[error("the system has no random numbers to give")]
    Random(#[source] getrandom::Error),
    #[error("no more threads can be started")]
    Threads(#[source] std::io::Error),
    #[error("there is nothing to listen on")]
    NoListener,
    #[error("the objects that every server has could not be written")]
    Bootstrap(#[source] ApiError),
}

/// The state that all requests share.
#[derive(Debug)]
pub(crate) struct ApiServer {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) cache: Arc<Cache>,
    pub(crate) ca: Arc<Ca>,
    pub(crate) auth: Auth,
    pub(crate) metrics: Metrics,
    pub(crate) audit: Audit,
    pub(crate) event_lease: EventLease,
    pub(crate) quota_turns: QuotaTurns,
    /// For writes of Services that take addresses or ports.
    pub(crate) service_turn: tokio::sync::Mutex<()>,
    pub(crate) sessions: Sessions,
    pub(crate) policies: Policies,
    pub(crate) fairness: Fairness,
    pub(crate) body_room: BodyRoom,
    pub(crate) answer_room: AnswerRoom,
    pub(crate) node_proxy: NodeProxy,
    pub(crate) webhooks: Webhooks,
    pub(crate) conversions: ConversionMetrics,
    pub(crate) aggregation: Aggregation,
    pub(crate) store_care: StoreCare,
    pub(crate) rules_are_outside: bool,
    pub(crate) website: Option<Website>,
    /// Where the files of support bundles are.
    pub(crate) support_bundles: PathBuf,
    /// Where keys and certificates are.
    pub(crate) pki_dir: PathBuf,
    /// To the store.
    pub(crate) standing: Standing,
    catalog: ArcSwap<Catalog>,
    /// Documents of the catalog.
    openapi: ArcSwap<OpenApi>,
    /// The state of the definitions that the catalog was made from.
    catalog_of: watch::Sender<Revision>,
    is_ready: AtomicBool,
    /// Why the server cannot go on; empty as long as it can.
    failure: watch::Sender<String>,
    /// `host:port` of the first listener, as discovery tells it.
    address: ArcSwap<String>,
    /// The first listener takes connections to every address of this machine.
    listens_everywhere: AtomicBool,
    stop: CancellationToken,
    /// What runs beside the requests, and is waited for when the server stops.
    tasks: TaskTracker,
}

impl ApiServer {
    pub(crate) fn catalog(&self) -> Arc<Catalog> {
        self.catalog.load_full()
    }

    pub(crate) fn openapi(&self) -> Arc<OpenApi> {
        self.openapi.load_full()
    }

    /// Waits until every definition that was acknowledged is in the catalog.
    pub(crate) async fn catalog_caught_up(&self) {
        if self.cache.fresh().await.is_err() {
            return;
        }
        let definitions = self.cache.collection(crd::STORAGE_KEY).changed_at();
        let mut catalog_of = self.catalog_of.subscribe();
        // The sender lives as long as this server; a stop ends the wait.
        tokio::select! {
            _ = catalog_of.wait_for(|seen| *seen >= definitions) => {}
            () = self.stop.cancelled() => {}
        }
    }

    /// Rebuilds the catalog whenever a definition changes.
    async fn follow_definitions(self: Arc<Self>) {
        let collection = self.cache.collection(crd::STORAGE_KEY);
        let mut changed = collection.subscribe();
        loop {
            let of = collection.changed_at();
            // Definitions that were written together have one revision, and come one after the other: all of them are there
            // when the cache says that it has applied it.
            tokio::select! {
                applied = self.cache.applied_up_to(of) => if applied.is_err() { continue },
                () = self.stop.cancelled() => return,
            }
            let catalog = Arc::new(crd::catalog(&self.cache, Some(&self.catalog())));
            crd::default_old_objects(&self.cache, &catalog);
            self.openapi.store(Arc::new(OpenApi::new(Arc::clone(&catalog))));
            self.catalog.store(catalog);
            self.catalog_of.send_replace(of);
            tokio::select! {
                result = changed.changed() => if result.is_err() { return },
                () = self.stop.cancelled() => return,
            }
        }
    }

    pub(crate) fn is_ready(&self) -> bool {
        self.is_ready.load(Ordering::Acquire)
    }

    pub(crate) fn address(&self) -> Arc<String> {
        self.address.load_full()
    }

    /// `host:port` by which other machines reach the first listener, as far as this one can tell.
    pub(crate) fn outside_address(&self) -> String {
        let address = self.address();
        match address.parse::<SocketAddr>() {
            Ok(local) if self.listens_everywhere.load(Ordering::Acquire) => {
                SocketAddr::new(own_endpoints::own_address().unwrap_or(local.ip()), local.port()).to_string()
            }
            _ => address.to_string(),
        }
    }

    pub(crate) fn stopping(&self) -> CancellationToken {
        self.stop.clone()
    }

    /// Runs something that outlives its request. It is to end soon when the server stops.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.tasks.spawn(task);
    }

    async fn failed(&self) -> StartError {
        let mut failure = self.failure.subscribe();
        // The sender lives as long as this server.
        let reason = failure.wait_for(|reason| !reason.is_empty()).await.map(|reason| reason.clone());
        StartError::Lost { reason: reason.unwrap_or_default() }
    }
}

/// A server that answers requests.
#[derive(Debug)]
pub struct Running {
    pub addresses: Vec<SocketAddr>,
    pub kubeconfig: PathBuf,
    /// The password that was made up on this, the first, start.
    pub generated_password: Option<Secret>,
    server: Arc<ApiServer>,
    tasks: TaskTracker,
    /// Until the last connection is closed.
    _slow: Option<Arc<SlowThreads>>,
}

impl Running {
    /// A transport for Croft's own parts in this process: no socket, no TLS, full rights.
    pub fn local(&self) -> LocalService {
        LocalService::new(Arc::clone(&self.server))
    }

    #[cfg(test)]
    pub(crate) fn server(&self) -> &Arc<ApiServer> {
        &self.server
    }

    /// The certificate of the CA, by which clients trust the server.
    pub fn ca_pem(&self) -> &str {
        self.server.ca.cert_pem()
    }

    /// What the agent of a node serves with: a certificate of this server's authority, good for a year.
    pub fn agent_identity(&self, node: &str, addresses: &[IpAddr]) -> Result<AgentTls, croft_pki::Error> {
        self.server.ca.issue_agent(node, addresses, Timestamp::now())
    }

    /// The same for an agent that asks again before the year is over.
    pub fn agent_issuer(
        &self,
        node: &str,
        addresses: &[IpAddr],
    ) -> impl Fn() -> Result<AgentTls, croft_pki::Error> + Send + Sync + use<> {
        let (ca, node, addresses) = (Arc::clone(&self.server.ca), node.to_owned(), addresses.to_vec());
        move || ca.issue_agent(&node, &addresses, Timestamp::now())
    }

    /// Cancelled when the server stops.
    pub fn stopping(&self) -> CancellationToken {
        self.server.stopping()
    }

    /// Waits until the server cannot go on, and says why. It is then still to be stopped.
    pub fn failed(&self) -> impl Future<Output = StartError> + Send + use<> {
        let server = Arc::clone(&self.server);
        async move { server.failed().await }
    }

    /// Ends watches, lets other requests finish, closes the store.
    pub async fn stop(self) -> Result<(), croft_store::Error> {
        self.server.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
        self.server.audit.flush().await;
        self.server.store.close().await
    }
}

/// Starts a server; it is ready when this returns.
pub async fn start(config: Config) -> Result<Running, StartError> {
    let (server, tasks) = assemble(&config).await?;
    caught_up(&server).await?;
    let (pki_dir, now) = (server.pki_dir.clone(), server.auth.authenticator.revoked.time_to_issue().await);
    let listeners = serve::bind(&config.listen)?;
    let addresses: Vec<SocketAddr> = listeners.iter().filter_map(|l| l.local_addr().ok()).collect();
    let first = *addresses.first().ok_or(StartError::NoListener)?;
    server.address.store(Arc::new(serve::reachable(first).to_string()));
    server.listens_everywhere.store(first.ip().is_unspecified(), Ordering::Release);

    let kubeconfig = certificates::write_kubeconfig(&config.data_dir, &server, first, Duration::ZERO, now)
        .map_err(StartError::Kubeconfig)?;
    let (ips, hosts): (Vec<String>, Vec<String>) =
        config.extra_names.into_iter().partition(|name| name.parse::<IpAddr>().is_ok());
    let ips = ips
        .iter()
        .filter_map(|ip| ip.parse().ok())
        .chain(addresses.iter().map(SocketAddr::ip))
        .chain(own_endpoints::own_address());
    let names = ServerNames::with_defaults(own_host_name().into_iter().chain(hosts), ips);
    let cert = ServingCert::load_or_issue(&pki_dir, &server.ca, &names, now)?;
    let resolver = CertResolver::new(&cert);
    let tls = croft_pki::tls::server_config(Arc::clone(&resolver), &server.ca)?;
    // The last thing that may fail: a password that was made up must not be lost with a failing start.
    let generated_password = first_objects(&server, config.admin_password).await?;
    let api_tls = Arc::new(ArcSwap::new(Arc::clone(&tls)));
    let web_tls = Arc::new(ArcSwap::new(tls));
    tasks.spawn(web_tls::follow(Arc::clone(&server), Arc::clone(&resolver), Arc::clone(&web_tls)));
    let served = certificates::Served { resolver, cert, names, data_dir: config.data_dir, first };
    tasks.spawn(served.renew(Arc::clone(&server)));
    let slow = Arc::new(SlowThreads::start().map_err(StartError::Threads)?);
    let crowd = serve::Crowd::new(config.limits, server.metrics.connections());
    for (index, listener) in listeners.into_iter().enumerate() {
        // Kubeconfigs lead to the first one, and trust this server's own authority.
        let tls = if index == 0 { Arc::clone(&api_tls) } else { Arc::clone(&web_tls) };
        tasks.spawn(serve::accept(
            Arc::clone(&server),
            listener,
            tls,
            Arc::clone(&crowd),
            Arc::clone(&slow),
            tasks.clone(),
        ));
    }
    server.is_ready.store(true, Ordering::Release);
    tasks.spawn(own_endpoints::keep(Arc::clone(&server), addresses.clone()));
    Ok(Running { addresses, kubeconfig, generated_password, server, tasks, _slow: Some(slow) })
}

/// Starts a server that only [`Running::local`] leads to: it listens nowhere, and `config.listen` does not matter.
pub async fn start_unheard(config: Config) -> Result<Running, StartError> {
    let (server, tasks) = assemble(&config).await?;
    server.address.store(Arc::new(UNHEARD.to_owned()));
    let generated_password = first_objects(&server, config.admin_password).await?;
    server.is_ready.store(true, Ordering::Release);
    Ok(Running { addresses: Vec::new(), kubeconfig: PathBuf::new(), generated_password, server, tasks, _slow: None })
}

/// The cache begins at a moment that is over. What was taken back since, or cannot be read any more, must be known before anybody
/// is given a credential, or shows one.
async fn caught_up(server: &ApiServer) -> Result<(), StartError> {
    tokio::select! {
        fresh = server.cache.fresh() => fresh.map(drop).map_err(StartError::Behind),
        error = server.failed() => Err(error),
    }
}

async fn first_objects(server: &Arc<ApiServer>, password: Option<Secret>) -> Result<Option<Secret>, StartError> {
    tokio::select! {
        done = bootstrap::run(server, password) => done.map_err(StartError::Bootstrap),
        error = server.failed() => Err(error),
    }
}

/// Puts the parts together; they follow the store from here on.
async fn assemble(config: &Config) -> Result<(Arc<ApiServer>, TaskTracker), StartError> {
    let pki_dir = config.data_dir.join("pki");
    let now = Timestamp::now();
    let ca = Arc::new(Ca::load_or_create(&pki_dir, now)?);
    let signer = Arc::new(TokenSigner::load_or_create(&pki_dir)?);
    let front_proxy = FrontProxy::load_or_create(&pki_dir.join("front-proxy"), now)?;
    let standing = release::check(&*config.store).await?;
    let cache = Cache::load(Arc::clone(&config.store)).await?;
    let catalog = Arc::new(crd::catalog(&cache, None));
    crd::default_old_objects(&cache, &catalog);
    let mut metrics = Metrics::new();
    let flows = metrics.flows();
    let webhooks = Webhooks::new(&cache, metrics.webhooks());
    let conversions = metrics.conversions();
    let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
    let (audit, sending) =
        Audit::open(config.audit.clone(), metrics.audit(), stop.clone()).map_err(StartError::Audit)?;
    if let Some(sending) = sending {
        tasks.spawn(sending);
    }
    let apiserver = own_host_name().unwrap_or_default();
    let issuers =
        Issuers::start(config.authentication.clone(), metrics.authentication(&apiserver), &tasks, stop.clone())?;
    let auth = Auth::new(&cache, Arc::clone(&ca), signer, config.logins, config.front_proxies.clone());
    let auth = auth.map_err(StartError::Random)?;
    let server = Arc::new(ApiServer {
        store: Arc::clone(&config.store),
        auth: auth.trusting(issuers).counting(metrics.logins.clone()),
        metrics,
        audit,
        event_lease: EventLease::default(),
        quota_turns: QuotaTurns::default(),
        service_turn: tokio::sync::Mutex::default(),
        sessions: Sessions::default(),
        policies: Policies::new(&cache),
        fairness: Fairness::new(&cache, config.limits.requests, flows),
        body_room: BodyRoom::new(),
        answer_room: AnswerRoom::new(config.limits.answer_bytes),
        node_proxy: NodeProxy::default(),
        webhooks,
        conversions,
        aggregation: Aggregation::new(&cache, front_proxy),
        store_care: StoreCare::default(),
        website: config.website,
        rules_are_outside: config.rules_are_outside,
        support_bundles: config.data_dir.join(croft_api::harvester::support_bundle::DIRECTORY),
        pki_dir,
        standing,
        openapi: ArcSwap::new(Arc::new(OpenApi::new(Arc::clone(&catalog)))),
        catalog: ArcSwap::new(catalog),
        catalog_of: watch::Sender::new(Revision::ZERO),
        is_ready: AtomicBool::new(false),
        address: ArcSwap::default(),
        listens_everywhere: AtomicBool::new(false),
        failure: watch::Sender::default(),
        stop,
        tasks: tasks.clone(),
        cache,
        ca,
    });
    spawn_followers(&server, &tasks);
    Ok((server, tasks))
}

fn spawn_followers(server: &Arc<ApiServer>, tasks: &TaskTracker) {
    let follower = Arc::clone(server);
    tasks.spawn(async move {
        let cache = Arc::clone(&follower.cache);
        if let Err(error) = cache.follow(follower.stop.clone()).await {
            // Going on would serve a state that falls ever further behind the truth.
            follower.failure.send_replace(Chain(&error).to_string());
        }
    });
    tasks.spawn(Arc::clone(server).follow_definitions());
    tasks.spawn(history::forget(Arc::clone(server)));
    tasks.spawn(quota::status::follow(Arc::clone(server)));
    tasks.spawn(aggregation::follow(Arc::clone(server)));
    tasks.spawn(sealing::settle(Arc::clone(server)));
    tasks.spawn(store_page::look_after(Arc::clone(server)));
    tasks.spawn(signing::signer::follow(Arc::clone(server)));
    tasks.spawn(login_locks::keep(Arc::clone(server)));
    tasks.spawn(sessions::watch_over(Arc::clone(server)));
}

fn own_host_name() -> Option<String> {
    std::fs::read_to_string("/proc/sys/kernel/hostname").ok().map(|name| name.trim().to_owned())
}
