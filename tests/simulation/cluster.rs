//! The server and its controllers, which can be killed and started again.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use croft_apiserver::Config;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::disk::Disk;
use crate::mutation::Mutation;
use crate::network::{Place, Up, Wire};
use crate::sim::Sim;
use crate::store::Handle;

/// Whoever watches over the process waits this long before it starts another.
const RESTART: Duration = Duration::from_secs(1);

const ADMIN: &str = "registry/core/secrets/kube-system/user-admin";

/// The user that a first start would make, whose password it hashes in a thread of its own: that would stay, and no child has it.
fn admin() -> Value {
    json!({"apiVersion": "v1", "kind": "Secret", "type": "croft.io/user", "metadata": {"name": "user-admin",
        "namespace": "kube-system", "uid": "admin", "creationTimestamp": "2026-01-01T00:00:00Z"}})
}

pub(crate) struct Cluster {
    pub(crate) sim: Sim,
    pub(crate) disk: Arc<Disk>,
    place: Arc<Place>,
    data_dir: PathBuf,
    controllers: Mutex<Option<JoinHandle<()>>>,
    /// One at a time is started.
    starting: tokio::sync::Mutex<()>,
}

impl Cluster {
    /// The first server on an empty store.
    pub(crate) async fn boot(sim: Sim, data_dir: PathBuf) -> Result<Arc<Self>> {
        let disk = Disk::new(sim.clone());
        let cluster = Arc::new(Self {
            sim,
            disk,
            place: Arc::default(),
            data_dir,
            controllers: Mutex::new(None),
            starting: tokio::sync::Mutex::new(()),
        });
        cluster.disk.put(ADMIN, &admin());
        cluster.try_start().await.context("the first start")?;
        cluster.start_controllers();
        Ok(cluster)
    }

    pub(crate) fn wire(&self, name: &str) -> Wire {
        Wire::new(self.sim.clone(), Arc::clone(&self.place), name)
    }

    async fn try_start(&self) -> Result<()> {
        let dead = CancellationToken::new();
        let store = Handle::new(self.sim.clone(), Arc::clone(&self.disk), dead.clone());
        let config = Config {
            // Otherwise it would depend on the machine.
            limits: croft_apiserver::Limits { requests: 64, ..croft_apiserver::Limits::default() },
            ..Config::new(self.data_dir.clone(), Arc::new(store))
        };
        let started = croft_apiserver::start_unheard(config).await;
        let running = match started {
            Ok(running) => Arc::new(running),
            Err(error) => {
                dead.cancel();
                return Err(error.into());
            }
        };
        self.place.set(Some(Up { running, dead }));
        Ok(())
    }

    /// As often as it takes.
    async fn start(self: &Arc<Self>) {
        let _turn = self.starting.lock().await;
        if self.place.up().is_some() {
            return;
        }
        while let Err(error) = self.try_start().await {
            self.sim.step(format_args!("the server did not start: {error:#}"));
            self.sim.sleep(RESTART).await;
        }
        self.sim.step(format_args!("the server is up"));
        self.start_controllers();
    }

    /// The process is gone in the middle of whatever it did, and is started again.
    pub(crate) async fn crash(self: &Arc<Self>) {
        self.kill();
        self.sim.sleep(self.sim.within(Duration::from_secs(3))).await;
        self.start().await;
    }

    fn kill(&self) {
        let Some(up) = self.place.set(None) else { return };
        self.sim.step(format_args!("the server dies"));
        self.kill_controllers();
        // In this order: nothing that the end of its tasks may still write gets anywhere.
        up.dead.cancel();
        up.running.stopping().cancel();
    }

    /// A server that says that it cannot go on is killed and started again, as its supervisor would.
    pub(crate) async fn supervise(self: Arc<Self>) {
        loop {
            let Some(up) = self.place.up() else {
                self.sim.sleep(RESTART).await;
                continue;
            };
            let failed = up.running.failed();
            tokio::select! {
                biased;
                () = up.dead.cancelled() => {}
                error = failed => {
                    self.sim.step(format_args!("the server gives up: {error}"));
                    self.crash().await;
                }
            }
        }
    }

    pub(crate) fn start_controllers(&self) {
        let Some(up) = self.place.up() else { return };
        if self.sim.has(Mutation::NobodyCleansUp) {
            return;
        }
        let client = kube::Client::new(self.wire("controllers"), "default");
        let run = croft_controllers::run(client, up.running.ca_pem().to_owned(), up.running.stopping());
        if let Some(before) = self.controllers.lock().replace(tokio::spawn(run)) {
            before.abort();
        }
    }

    pub(crate) fn kill_controllers(&self) {
        if let Some(controllers) = self.controllers.lock().take() {
            self.sim.step(format_args!("the controllers die"));
            controllers.abort();
        }
    }
}
