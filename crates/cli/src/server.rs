//! `croft server`: starts the pieces, says when they are ready, and ends them on a signal.
//!
//! [`start`] is the only place that knows the API server, the controllers and the agent.

use std::fmt;
use std::fs::DirBuilder;
use std::future::Future;
use std::net::SocketAddr;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use croft_pki::Secret;
use tokio::runtime::Handle;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tracing::{error, info, warn};

use crate::logging::Filter;
use crate::options::OwnRules;
use crate::recent_log::RecentLog;
use crate::settings::Settings;
use crate::state::scheduled::{self, Scheduled};
use crate::{Failure, agent, first_image, kubeconfig_link, limits, log_level, logging, print, ready, store};

/// The whole program ends within 5 s of the signal; open requests and the store get this much of it.
const SHUTDOWN: Duration = Duration::from_millis(4500);
/// For threads that are stuck in a system call when all else is done.
const STRAGGLERS: Duration = Duration::from_millis(200);

/// A server that answers requests.
pub struct Running {
    /// Where it listens, the first asked for first.
    pub addresses: Vec<SocketAddr>,
    pub kubeconfig: PathBuf,
    /// On the first start only, and only if nobody chose one.
    pub password: Option<Secret>,
    /// Ends when the server cannot go on, with the reason.
    pub failed: Pin<Box<dyn Future<Output = anyhow::Error> + Send>>,
    /// Lets open requests finish, then closes the store.
    pub stop: Pin<Box<dyn Future<Output = anyhow::Result<()>> + Send>>,
}

impl fmt::Debug for Running {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Running").field("addresses", &self.addresses).finish_non_exhaustive()
    }
}

pub(crate) fn run(settings: &Settings) -> Result<(), Failure> {
    leave_no_core();
    limits::take_all_descriptors();
    let log = RecentLog::default();
    let filter = logging::start(settings.log_format, &log).map_err(Failure::usage)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.context("cannot start the runtime")?;
    let result = runtime.block_on(async {
        // Before anything is started, so that a signal is never met with the default: dying at once.
        let signals = Signals::new()?;
        create_data_dir(&settings.data_dir)?;
        run_until_signal(signals, Box::pin(start(settings, filter, log))).await
    });
    runtime.shutdown_timeout(STRAGGLERS);
    result
}

/// Starts the API server on its store, and the controllers and the agent on the API server.
async fn start(settings: &Settings, filter: Filter, log: RecentLog) -> anyhow::Result<Running> {
    let listen = settings.listen.iter();
    let config = croft_apiserver::Config {
        data_dir: settings.data_dir.clone(),
        listen: listen.map(|l| croft_apiserver::Listen { addr: l.address, is_required: l.required }).collect(),
        store: store::open(&settings.store, &settings.encryption, &settings.data_dir).await?,
        extra_names: settings.tls_san.clone(),
        admin_password: settings.admin_password.clone(),
        website: Some(croft_web::answer),
        audit: settings.audit.clone(),
        authentication: settings.authentication.clone(),
        limits: settings.limits,
        logins: settings.logins,
        front_proxies: settings.front_proxies.clone(),
        rules_are_outside: settings.own_rules == OwnRules::Webhook,
    };
    scheduled::remove_left(&settings.data_dir);
    let server = croft_apiserver::start(config).await?;
    if let Some(place) = &settings.kubeconfig_link {
        kubeconfig_link::make(&server.kubeconfig, place);
    }
    let failed = server.failed();
    let client = kube::Client::new(server.local(), "default");
    let stopping = server.stopping();
    let log_level = tokio::spawn(log_level::follow(client.clone(), filter, stopping.clone()));
    let controllers = croft_controllers::run(client.clone(), server.ca_pem().to_owned(), stopping.clone());
    let controllers = tokio::spawn(controllers);
    let bundles = croft_support::Config {
        client: client.clone(),
        directory: settings.data_dir.join(croft_api::harvester::support_bundle::DIRECTORY),
        log: Arc::new(move || log.text()),
    };
    let bundles = tokio::spawn(croft_support::run(bundles, stopping.clone()));
    let saved_states = settings.saved_states.clone().map(|asked| {
        let (client, kubeconfig) = (client.clone(), server.kubeconfig.clone());
        let scheduled = Scheduled { client, kubeconfig, settings: asked };
        tokio::spawn(scheduled.run(stopping.clone()))
    });
    let first_image = settings.first_image.clone().filter(|_| settings.node.is_some());
    let first_image = first_image.map(|file| {
        let (kubeconfig, runtime) = (server.kubeconfig.clone(), Handle::current());
        // On a thread of its own: the compiler does not see that the streams of an upload may move between threads.
        tokio::task::spawn_blocking(move || runtime.block_on(first_image::offer(kubeconfig, file, stopping)))
    });
    let agent = settings.node.as_ref().map(|node| agent::start(node, &settings.data_dir, &server, client));
    Ok(Running {
        addresses: server.addresses.clone(),
        kubeconfig: server.kubeconfig.clone(),
        password: server.generated_password.clone(),
        failed: Box::pin(async move { failed.await.into() }),
        stop: Box::pin(async move {
            server.stop().await?;
            if let Some(agent) = agent {
                agent.await.context("the agent panicked")?;
            }
            log_level.await.context("following the log level panicked")?;
            if let Some(first_image) = first_image {
                first_image.await.context("offering the first image panicked")?;
            }
            if let Some(saved_states) = saved_states {
                saved_states.await.context("saving states on a schedule panicked")?;
            }
            bundles.await.context("making support bundles panicked")?;
            controllers.await.context("a controller panicked")
        }),
    })
}

async fn run_until_signal(
    mut signals: Signals,
    starting: impl Future<Output = anyhow::Result<Running>>,
) -> Result<(), Failure> {
    let running = tokio::select! {
        running = starting => running?,
        name = signals.next() => {
            info!(signal = name, "stopped before the server was ready");
            return Ok(());
        }
    };
    print(&ready::message(&running.addresses, &running.kubeconfig, running.password.as_ref(), ready::own_address()))?;

    let failure = tokio::select! {
        name = signals.next() => {
            info!(signal = name, "stopping");
            None
        }
        failure = running.failed => {
            error!(error = format!("{failure:#}"), "stopping");
            Some(failure)
        }
    };
    tokio::select! {
        result = running.stop => result?,
        () = tokio::time::sleep(SHUTDOWN) => warn!("open requests did not finish in time and were cut off"),
        name = signals.next() => warn!(signal = name, "stopping at once"),
    }
    info!("stopped");
    failure.map_or(Ok(()), |failure| Err(failure.into()))
}

/// The memory of this process has keys, passwords and all Secrets in it: a dump of it must not end up in a file, and other
/// processes of the same user must not look into it. Programs that it starts may be dumped by their own rules again.
pub(crate) fn leave_no_core() {
    use rustix::process::{DumpableBehavior, Resource, Rlimit, set_dumpable_behavior, setrlimit};
    // Where the system does not allow it there is nothing else to do about it.
    let _ = setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) });
    let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
}

/// Readable by its owner only: it holds keys.
pub(crate) fn create_data_dir(dir: &Path) -> anyhow::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(dir).with_context(|| {
        format!("cannot create the data directory {}; run as root, or choose another with --data-dir", dir.display())
    })
}

/// The signals that end the program.
pub(crate) struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    pub(crate) fn new() -> anyhow::Result<Self> {
        let listen = |kind| signal(kind).context("cannot listen for signals");
        Ok(Self { terminate: listen(SignalKind::terminate())?, interrupt: listen(SignalKind::interrupt())? })
    }

    /// Cancel-safe: a signal that arrives while nobody waits is delivered to the next call.
    pub(crate) async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn running(stop: impl Future<Output = anyhow::Result<()>> + Send + 'static) -> Running {
        let kubeconfig = PathBuf::from("/data/kubeconfig");
        let failed = Box::pin(std::future::pending());
        Running { addresses: Vec::new(), kubeconfig, password: None, failed, stop: Box::pin(stop) }
    }

    /// All in one test: signals belong to the process, and a second test would see them too.
    #[tokio::test(start_paused = true)]
    async fn signals_end_the_server_at_every_stage() {
        let own = rustix::process::getpid();
        let send = |signal| rustix::process::kill_process(own, signal).unwrap();
        let terminate = rustix::process::Signal::TERM;

        let signals = Signals::new().unwrap();
        send(terminate);
        run_until_signal(signals, std::future::pending()).await.unwrap();

        // From here on the signal is sent by what starts: one that came sooner would end it before it has.
        let signals = Signals::new().unwrap();
        let started = async {
            send(rustix::process::Signal::INT);
            Ok(running(async { Ok(()) }))
        };
        run_until_signal(signals, started).await.unwrap();

        let signals = Signals::new().unwrap();
        let started = async {
            send(terminate);
            Ok(running(async { anyhow::bail!("disk full") }))
        };
        let failing = run_until_signal(signals, started).await;
        assert_eq!(failing.unwrap_err().to_string(), "croft: disk full");

        // One that cannot go on is stopped without a signal, and the reason is the program's.
        let signals = Signals::new().unwrap();
        let broken = async {
            let failed = Box::pin(async { anyhow::anyhow!("the store is gone") });
            Ok(Running { failed, ..running(async { Ok(()) }) })
        };
        let failing = run_until_signal(signals, broken).await;
        assert_eq!(failing.unwrap_err().to_string(), "croft: the store is gone");

        // A server that never ends by itself is cut off.
        let since = tokio::time::Instant::now();
        let signals = Signals::new().unwrap();
        let started = async {
            send(terminate);
            Ok(running(std::future::pending()))
        };
        run_until_signal(signals, started).await.unwrap();
        assert!(since.elapsed() <= Duration::from_secs(5));
    }

    #[test]
    fn impossible_data_directory_is_explained() {
        let err = format!("{:#}", create_data_dir(Path::new("/proc/croft")).unwrap_err());
        assert!(err.contains("cannot create the data directory /proc/croft; run as root, or choose"), "{err}");
    }
}
