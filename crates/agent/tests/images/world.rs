//! The real API server and controllers in one process, and the part of an agent that has to do with disks.

use std::fmt::Debug;
use std::path::PathBuf;
use std::process::Command;

use croft_agent::Health;
use croft_agent::data_import::DataImports;
use croft_agent::image::Images;
use croft_agent::volume::{Volumes, VolumesConfig};
use croft_apiserver::{Config, Listen, Running};
use croft_reconcile::Events;
use croft_store::{Embedded, EmbeddedOptions};
use croft_testkit::eventually;
use kube::api::{Api, ApiResource, DynamicObject, PostParams};
use kube::core::GroupVersionKind;
use kube::{Client, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

pub(crate) struct World {
    pub(crate) client: Client,
    pub(crate) agent: Agent,
    _controllers: JoinSet<()>,
    _server: Running,
    pub(crate) dir: TempDir,
}

pub(crate) struct Agent {
    pub(crate) images: Images,
    pub(crate) imports: DataImports,
    pub(crate) pool: PathBuf,
    tasks: JoinSet<()>,
}

impl Agent {
    async fn start(client: &Client, data_dir: PathBuf) -> Self {
        let stop = CancellationToken::new();
        let mut tasks = JoinSet::new();
        let (events, telling) = Events::channel(client.clone(), "test");
        tasks.spawn(telling);
        let pool = croft_block::Options { is_plain: true, ..croft_block::Options::default() };
        let volumes = Volumes::open(VolumesConfig {
            client: client.clone(),
            events: events.clone(),
            node_name: "n1".to_owned(),
            data_dir,
            pool,
            health: Health::default(),
            guests: croft_agent::guest::Guests::default(),
        });
        let volumes = volumes.await.unwrap();
        let images = Images::new(client.clone(), events.clone(), volumes.clone());
        let imports = DataImports::new(client.clone(), events, volumes.clone(), images.clone());
        let pool = volumes.pool_for_scratch();
        tasks.spawn(volumes.run(stop.clone()));
        tasks.spawn(images.clone().run(stop.clone()));
        tasks.spawn(imports.clone().run(stop));
        Self { images, imports, pool, tasks }
    }

    /// All that is in a directory of the pool.
    pub(crate) fn files(&self, place: &str) -> Vec<String> {
        let Ok(entries) = std::fs::read_dir(self.pool.join(place)) else { return Vec::new() };
        let mut names: Vec<String> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

impl World {
    pub(crate) async fn start() -> Self {
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let dir = tempfile::tempdir().unwrap();
        let store = Embedded::open(&dir.path().join("store"), EmbeddedOptions::default()).unwrap();
        let server = croft_apiserver::start(Config {
            listen: vec![Listen { addr: "127.0.0.1:0".parse().unwrap(), is_required: true }],
            ..Config::new(dir.path().to_owned(), store)
        });
        let server = server.await.unwrap();
        let client = Client::new(server.local(), "default");
        let mut controllers = JoinSet::new();
        controllers.spawn(croft_controllers::run(client.clone(), server.ca_pem().to_owned(), server.stopping()));
        let agent = Agent::start(&client, dir.path().join("node")).await;
        Self { client, agent, _controllers: controllers, _server: server, dir }
    }

    /// As if it had been killed: its tasks are gone in the middle of whatever they did.
    pub(crate) async fn restart_agent(&mut self) {
        self.agent.tasks.shutdown().await;
        self.agent = Agent::start(&self.client, self.dir.path().join("node")).await;
    }

    pub(crate) async fn create<K>(&self, object: Value) -> K
    where
        K: Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()>
            + Clone
            + Debug
            + Serialize
            + DeserializeOwned,
    {
        let api: Api<K> = Api::default_namespaced(self.client.clone());
        let mut object = object;
        object["apiVersion"] = json!(K::api_version(&()));
        object["kind"] = json!(K::kind(&()));
        let kind = GroupVersionKind::gvk(&K::group(&()), &K::version(&()), &K::kind(&()));
        let resource = ApiResource::from_gvk_with_plural(&kind, &K::plural(&()));
        let dynamic: Api<DynamicObject> = Api::default_namespaced_with(self.client.clone(), &resource);
        let made = dynamic.create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap();
        api.get(made.metadata.name.as_deref().unwrap()).await.unwrap()
    }

    /// Waits until the object is as wished.
    pub(crate) async fn wait<K>(&self, name: &str, is_so: impl Fn(&K) -> bool) -> K
    where
        K: Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()> + Clone + Debug + DeserializeOwned,
    {
        let api: Api<K> = Api::default_namespaced(self.client.clone());
        let what = format!("{} {name}", K::kind(&()));
        eventually(&what, async || {
            let object = api.get(name).await.map_err(|error| error.to_string())?;
            if is_so(&object) { Ok(object) } else { Err(format!("{object:?}")) }
        })
        .await
    }
}

/// A disk of some data and many holes, and the same as qcow2.
pub(crate) fn disk() -> (Vec<u8>, Vec<u8>) {
    let dir = tempfile::tempdir().unwrap();
    let (raw, qcow2) = (dir.path().join("raw"), dir.path().join("qcow2"));
    let mut disk = vec![0; 16 << 20];
    let mut seed = 0x2545_f491_4f6c_dd1d_u64;
    for byte in &mut disk[1 << 20..3 << 20] {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        *byte = seed.to_le_bytes()[0];
    }
    std::fs::write(&raw, &disk).unwrap();
    let output = Command::new("qemu-img").args(["convert", "-f", "raw", "-O", "qcow2"]).arg(&raw).arg(&qcow2).output();
    assert!(output.unwrap().status.success());
    (disk, std::fs::read(&qcow2).unwrap())
}
