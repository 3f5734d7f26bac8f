//! The real API server and the real controllers in one process; only the node is acted.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use croft_api::kubevirt::{INSTANCE_FINALIZER, VirtualMachine, VirtualMachineInstance};
use croft_apiserver::{Config, Listen, Running};
use croft_reconcile::{Cache, Source};
use croft_store::{Embedded, EmbeddedOptions};
use croft_testkit::eventually;
use futures::StreamExt;
use k8s_openapi::api::core::v1::Node;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::task::JoinSet;

/// Guests whose label `act` says so fail before they run.
const FAIL: &str = "fail";

pub(crate) struct World {
    pub(crate) client: Client,
    tasks: JoinSet<()>,
    _server: Running,
    _dir: TempDir,
}

impl World {
    /// A cluster without nodes.
    pub(crate) async fn start() -> Result<Self> {
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let dir = tempfile::tempdir()?;
        let store = Embedded::open(&dir.path().join("store"), EmbeddedOptions::default())?;
        let server = croft_apiserver::start(Config {
            listen: vec![Listen { addr: "127.0.0.1:0".parse()?, is_required: true }],
            ..Config::new(dir.path().to_owned(), store)
        })
        .await?;
        let client = Client::new(server.local(), "default");
        let mut tasks = JoinSet::new();
        tasks.spawn(croft_controllers::run(client.clone(), server.ca_pem().to_owned(), server.stopping()));
        Ok(Self { client, tasks, _server: server, _dir: dir })
    }

    /// A cluster with one node, which runs whatever it is given.
    pub(crate) async fn with_node(cpu: &str, memory: &str) -> Result<Self> {
        let mut world = Self::start().await?;
        world.add_node("n1", cpu, memory).await?;
        world.act_node("n1");
        Ok(world)
    }

    pub(crate) async fn add_node(&self, name: &str, cpu: &str, memory: &str) -> Result<()> {
        let nodes: Api<Node> = Api::all(self.client.clone());
        let labels = json!({"kubevirt.io/schedulable": "true", "kubernetes.io/hostname": name});
        let node = serde_json::from_value(json!({"metadata": {"name": name, "labels": labels}}))?;
        nodes.create(&PostParams::default(), &node).await?;
        self.set_node(name, cpu, memory).await
    }

    pub(crate) async fn set_node(&self, name: &str, cpu: &str, memory: &str) -> Result<()> {
        let nodes: Api<Node> = Api::all(self.client.clone());
        let amounts = json!({"cpu": cpu, "memory": memory});
        let conditions = json!([{"type": "Ready", "status": "True"}]);
        let status = json!({"status": {"allocatable": amounts, "capacity": amounts, "conditions": conditions}});
        nodes.patch_status(name, &PatchParams::default(), &Patch::Merge(&status)).await?;
        Ok(())
    }

    /// What the agent of a node would do, with no guests.
    pub(crate) fn act_node(&mut self, name: &'static str) {
        let (client, cache) = (self.client.clone(), Cache::<VirtualMachineInstance>::default());
        self.tasks.spawn(async move {
            let mut changes = std::pin::pin!(cache.follow(client.clone(), Source::of::<VirtualMachineInstance>()));
            while let Some(change) = changes.next().await {
                let Some(instance) = change.new.filter(|new| node_of(new) == Some(name)) else { continue };
                act(&client, &instance).await;
            }
        });
    }

    pub(crate) fn machines(&self) -> Api<VirtualMachine> {
        Api::default_namespaced(self.client.clone())
    }

    pub(crate) fn instances(&self) -> Api<VirtualMachineInstance> {
        Api::default_namespaced(self.client.clone())
    }

    pub(crate) async fn create(&self, machine: Value) -> Result<VirtualMachine> {
        Ok(self.machines().create(&PostParams::default(), &serde_json::from_value(machine)?).await?)
    }

    pub(crate) async fn patch(&self, name: &str, patch: Value) -> Result<()> {
        self.machines().patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await?;
        Ok(())
    }

    /// Says how a running guest ended.
    pub(crate) async fn end_guest(&self, name: &str, phase: &str) -> Result<()> {
        let patch = json!({"metadata": {"finalizers": without_node_finalizer(&self.instances().get(name).await?)},
            "status": {"phase": phase}});
        self.instances().patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await?;
        Ok(())
    }

    /// Calls a subresource as virtctl does.
    pub(crate) async fn put(&self, plural: &str, name: &str, action: &str, body: Value) -> Result<()> {
        let path = format!("/apis/subresources.kubevirt.io/v1/namespaces/default/{plural}/{name}/{action}");
        let request = http::Request::put(path).body(serde_json::to_vec(&body)?)?;
        self.client.request_text(request).await.with_context(|| format!("{action} of {name}"))?;
        Ok(())
    }

    pub(crate) async fn status_is(&self, name: &str, word: &str) -> VirtualMachine {
        let machines = self.machines();
        let what = format!("machine {name} becomes {word}");
        eventually(&what, async || {
            let machine = machines.get(name).await?;
            let status = machine.status.clone().unwrap_or_default();
            ensure!(status.printable_status.as_deref() == Some(word), "it is {status:?}");
            anyhow::Ok(machine)
        })
        .await
    }

    pub(crate) async fn instance(
        &self,
        name: &str,
        what: &str,
        is_it: impl Fn(&VirtualMachineInstance) -> bool,
    ) -> VirtualMachineInstance {
        let instances = self.instances();
        eventually(&format!("instance {name}: {what}"), async || {
            let instance = instances.get(name).await?;
            ensure!(is_it(&instance), "it is {instance:?}");
            anyhow::Ok(instance)
        })
        .await
    }

    pub(crate) async fn no_instance(&self, name: &str) {
        let instances = self.instances();
        eventually(&format!("instance {name} goes"), async || match instances.get_opt(name).await? {
            Some(there) => bail!("it is {there:?}"),
            None => anyhow::Ok(()),
        })
        .await;
    }

    pub(crate) async fn events(&self, name: &str) -> Result<Vec<String>> {
        let events: Api<k8s_openapi::api::core::v1::Event> = Api::default_namespaced(self.client.clone());
        let all = events.list(&kube::api::ListParams::default()).await?.items;
        let its = all.into_iter().filter(|event| event.involved_object.name.as_deref() == Some(name));
        Ok(its.filter_map(|event| event.reason).collect())
    }
}

pub(crate) fn node_of(instance: &VirtualMachineInstance) -> Option<&str> {
    instance.status.as_ref()?.node_name.as_deref()
}

pub(crate) fn phase_of(instance: &VirtualMachineInstance) -> &str {
    instance.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default()
}

fn without_node_finalizer(instance: &VirtualMachineInstance) -> Vec<String> {
    let finalizers = instance.metadata.finalizers.iter().flatten();
    finalizers.filter(|one| *one != INSTANCE_FINALIZER).cloned().collect()
}

async fn act(client: &Client, instance: &Arc<VirtualMachineInstance>) {
    let name = instance.metadata.name.clone().unwrap_or_default();
    let namespace = instance.metadata.namespace.clone().unwrap_or_default();
    let is_leaving = instance.metadata.deletion_timestamp.is_some();
    let has_work = instance.metadata.finalizers.iter().flatten().any(|one| one == INSTANCE_FINALIZER);
    let finalizers = without_node_finalizer(instance);
    let label = instance.metadata.labels.as_ref().and_then(|labels| labels.get("act"));
    let ended = |phase: &str| json!({"metadata": {"finalizers": finalizers}, "status": {"phase": phase}});
    let patch = match phase_of(instance) {
        "Scheduled" | "Running" if is_leaving && has_work => ended("Succeeded"),
        "Scheduled" if label.is_some_and(|label| label == FAIL) => ended("Failed"),
        "Scheduled" => {
            let memory = instance.spec.domain.memory.as_ref().and_then(|memory| memory.guest.clone());
            let nics = instance.spec.domain.devices.interfaces.iter().map(|nic| json!({"name": nic.name}));
            json!({"status": {
                "phase": "Running",
                "conditions": [{"type": "Ready", "status": "True"}],
                "phaseTransitionTimestamps": [{"phase": "Running"}],
                "memory": {"guestAtBoot": memory, "guestCurrent": memory},
                "interfaces": nics.collect::<Vec<Value>>(),
            }})
        }
        _ => return,
    };
    let api: Api<VirtualMachineInstance> = Api::namespaced(client.clone(), &namespace);
    // It may have gone meanwhile; the next change will tell.
    let _ = api.patch(&name, &PatchParams::default(), &Patch::Merge(&patch)).await;
}

/// How long something took, for the log of the test.
pub(crate) fn report(what: &str, times: &mut [Duration]) {
    times.sort_unstable();
    let at = |percent: usize| times.get(times.len() * percent / 100).or(times.last()).copied().unwrap_or_default();
    println!("{what}: p50 {:?}, p95 {:?}, worst {:?}", at(50), at(95), at(100));
}
