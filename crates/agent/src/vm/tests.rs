//! Machines with the real QEMU. The API server is a table of objects here, which takes merge patches and tells the
//! machine's task of them as a watch would.

mod guest;
mod lifecycle;
mod plugging;

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use croft_api::kubevirt::{PersistentVolumeClaimInfo, VirtualMachineInstance};
use croft_reconcile::Events;
use futures::FutureExt;
use futures::future::BoxFuture;
use http::{Method, Request, Response};
use http_body_util::BodyExt;
use kube::Client;
use kube::client::Body;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::actor::Actor;
use super::host::{Attached, Attendance, Host, ImageWanted, Images, Lacking, NicWanted, Nics, Plugged, Storage, Users};
use super::running::Running;
use crate::cgroup::Cgroups;
use crate::node::Accelerator;

const PATIENCE: Duration = Duration::from_secs(20);

/// The API server's part.
#[derive(Default)]
struct Table {
    objects: Mutex<HashMap<String, Value>>,
    version: AtomicU64,
    seen: Mutex<Option<watch::Sender<Option<Arc<VirtualMachineInstance>>>>>,
    told: Mutex<Vec<(String, String)>>,
    patches: AtomicU64,
}

fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    for (key, value) in patch {
        if value.is_null() {
            target.as_object_mut().unwrap().remove(key);
        } else {
            merge(&mut target[key], value);
        }
    }
}

impl Table {
    fn put(&self, path: &str, mut object: Value) -> Value {
        let version = self.version.fetch_add(1, Ordering::Relaxed) + 1;
        object["metadata"]["resourceVersion"] = json!(version.to_string());
        let ends = object["metadata"]["deletionTimestamp"].is_string()
            && object["metadata"]["finalizers"].as_array().is_none_or(Vec::is_empty);
        let is_machine = path.contains("virtualmachineinstances");
        let mut objects = self.objects.lock();
        if ends {
            objects.remove(path);
        } else {
            objects.insert(path.to_owned(), object.clone());
        }
        drop(objects);
        if is_machine && let Some(seen) = &*self.seen.lock() {
            seen.send_replace((!ends).then(|| Arc::new(serde_json::from_value(object.clone()).unwrap())));
        }
        object
    }

    fn get(&self, path: &str) -> Option<Value> {
        self.objects.lock().get(path).cloned()
    }

    fn change(&self, path: &str, patch: &Value) {
        let mut object = self.get(path).unwrap();
        merge(&mut object, patch);
        self.put(path, object);
    }

    async fn serve(&self, request: Request<Body>) -> Response<Body> {
        let (parts, body) = request.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        let path = parts.uri.path();
        let answer = |code: u16, body: &Value| {
            Response::builder().status(code).body(Body::from(body.to_string().into_bytes())).unwrap()
        };
        let status = |code: u16, reason: &str| {
            answer(
                code,
                &json!({ "kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": reason }),
            )
        };
        match parts.method {
            Method::GET => match self.get(path) {
                Some(object) => answer(200, &object),
                None => status(404, "NotFound"),
            },
            Method::PATCH => {
                let Some(object) = self.get(path) else { return status(404, "NotFound") };
                let patch: Value = serde_json::from_slice(&body).unwrap();
                let wanted = patch["metadata"].get("resourceVersion");
                if wanted.is_some_and(|wanted| *wanted != object["metadata"]["resourceVersion"]) {
                    return status(409, "Conflict");
                }
                self.patches.fetch_add(1, Ordering::Relaxed);
                let mut object = object;
                merge(&mut object, &patch);
                answer(200, &self.put(path, object))
            }
            Method::POST => {
                let event: Value = serde_json::from_slice(&body).unwrap();
                let text = |key: &str| event[key].as_str().unwrap_or_default().to_owned();
                self.told.lock().push((text("reason"), text("message")));
                answer(201, &event)
            }
            _ => status(405, "MethodNotAllowed"),
        }
    }
}

struct Disks {
    dir: PathBuf,
    claims: Mutex<HashMap<String, PathBuf>>,
    changes: watch::Sender<u64>,
}

impl Storage for Disks {
    fn attach(&self, _: &str, claim: &str) -> Result<Attached, Lacking> {
        let path = self.claims.lock().get(claim).cloned();
        let path = path.ok_or_else(|| Lacking::Yet { reason: "NotBound", message: format!("no claim {claim}") })?;
        let size_bytes = std::fs::metadata(&path).unwrap().len();
        let claim = PersistentVolumeClaimInfo { claim_name: Some(claim.to_owned()), ..Default::default() };
        Ok(Attached { path, size_bytes, is_block: false, is_read_only: false, claim })
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    fn scratch(&self) -> PathBuf {
        self.dir.join("scratch")
    }

    fn state(&self) -> PathBuf {
        self.dir.join("state")
    }

    fn memory(&self, _: &str, snapshot: &str) -> Result<PathBuf, Lacking> {
        Ok(self.dir.join(snapshot))
    }
}

struct Shelf(Mutex<HashMap<String, PathBuf>>);

impl Images for Shelf {
    fn ensure<'a>(&'a self, wanted: &'a ImageWanted) -> BoxFuture<'a, Result<PathBuf, Lacking>> {
        let found = self.0.lock().get(&wanted.image).cloned();
        let missing = Lacking::Yet { reason: "ErrImagePull", message: format!("no image {}", wanted.image) };
        async move { found.ok_or(missing) }.boxed()
    }
}

/// QEMU's own network; counts what is plugged.
#[derive(Default)]
struct Sockets(Mutex<Vec<(String, String)>>);

impl Nics for Sockets {
    fn plug<'a>(&'a self, wanted: NicWanted<'a>) -> BoxFuture<'a, Result<Plugged, Lacking>> {
        let key = (wanted.vmi.metadata.uid.clone().unwrap(), wanted.interface.name.clone());
        let mut all = self.0.lock();
        if !all.contains(&key) {
            all.push(key);
        }
        async { Ok(Plugged::User { forwards: Vec::new() }) }.boxed()
    }

    fn unplug<'a>(&'a self, vmi_uid: &'a str, interface: &'a str) -> BoxFuture<'a, Result<(), String>> {
        self.0.lock().retain(|(uid, name)| uid != vmi_uid || name != interface);
        async { Ok(()) }.boxed()
    }

    fn unplug_all<'a>(&'a self, vmi_uid: &'a str) -> BoxFuture<'a, Result<(), String>> {
        self.0.lock().retain(|(uid, _)| uid != vmi_uid);
        async { Ok(()) }.boxed()
    }

    fn retain<'a>(&'a self, known: &'a BTreeSet<String>) -> BoxFuture<'a, Result<(), String>> {
        self.0.lock().retain(|(uid, _)| known.contains(uid));
        async { Ok(()) }.boxed()
    }

    fn idle_machines(&self) -> Vec<(String, String)> {
        Vec::new()
    }

    fn forget_machine(&self, _: &str, _: &str) -> Result<(), String> {
        Ok(())
    }
}

/// Knows the machine while it runs.
#[derive(Default)]
struct Present(Mutex<Option<Arc<Running>>>);

impl Attendance for Present {
    fn arrive<'a>(&'a self, machine: &'a Arc<Running>) -> BoxFuture<'a, ()> {
        async { *self.0.lock() = Some(Arc::clone(machine)) }.boxed()
    }

    fn leave(&self, _: &Running) {
        *self.0.lock() = None;
    }
}

/// A node with one machine.
struct Node {
    dir: TempDir,
    table: Arc<Table>,
    disks: Arc<Disks>,
    images: Arc<Shelf>,
    nics: Arc<Sockets>,
    cgroup_name: String,
    path: String,
    uid: String,
}

/// An agent on the node, until it is dropped.
struct Agent {
    host: Arc<Host>,
    present: Arc<Present>,
    task: JoinHandle<()>,
    telling: JoinHandle<()>,
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.task.abort();
        self.telling.abort();
    }
}

impl Node {
    fn new(spec: Value) -> Node {
        let dir = tempfile::Builder::new().prefix("cr").tempdir().unwrap();
        let uid = uuid::Uuid::new_v4().to_string();
        let path = "/apis/kubevirt.io/v1/namespaces/ns/virtualmachineinstances/vm".to_owned();
        let table = Arc::new(Table::default());
        let mut object = json!({
            "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance",
            "metadata": { "name": "vm", "namespace": "ns", "uid": uid,
                "finalizers": ["kubevirt.io/foregroundDeleteVirtualMachine"] },
            "status": { "phase": "Scheduled", "nodeName": "node" },
        });
        object["spec"] = spec;
        let disks = Disks { dir: dir.path().join("pool"), claims: Mutex::default(), changes: watch::Sender::new(0) };
        std::fs::create_dir_all(disks.dir.join("scratch")).unwrap();
        table.put(&path, object);
        Node {
            table,
            disks: Arc::new(disks),
            images: Arc::new(Shelf(Mutex::default())),
            nics: Arc::default(),
            cgroup_name: format!("croft-test-{}", &uid[..8]),
            path,
            uid,
            dir,
        }
    }

    fn start_agent(&self) -> Agent {
        let table = Arc::clone(&self.table);
        let service = tower::service_fn(move |request: Request<Body>| {
            let table = Arc::clone(&table);
            async move { Ok::<_, std::convert::Infallible>(table.serve(request).await) }
        });
        let client = Client::new(service, "ns");
        let (events, telling) = Events::channel(client.clone(), "test");
        let run_dir = self.dir.path().join("vms");
        std::fs::create_dir_all(&run_dir).unwrap();
        let present = Arc::new(Present::default());
        let host = Arc::new(Host {
            client,
            node_name: "node".into(),
            run_dir,
            disk_root: self.dir.path().join("host-disks"),
            qemu: "qemu-system-x86_64".into(),
            swtpm: "swtpm".into(),
            accelerator: Accelerator::emulation(),
            storage: self.disks.clone(),
            images: self.images.clone(),
            nics: self.nics.clone(),
            attendance: present.clone(),
            cgroups: Cgroups::new(&self.cgroup_name).ok(),
            phases: Arc::default(),
            users: Users::new(rustix::process::geteuid().is_root()),
            starts: tokio::sync::Semaphore::new(4),
        });
        let vmi: VirtualMachineInstance = serde_json::from_value(self.object().unwrap()).unwrap();
        let (sender, receiver) = watch::channel(None);
        *self.table.seen.lock() = Some(sender);
        let actor = Actor::new(Arc::clone(&host), events, Arc::new(vmi), receiver);
        Agent { host, present, task: tokio::spawn(actor.run()), telling: tokio::spawn(telling) }
    }

    fn object(&self) -> Option<Value> {
        self.table.get(&self.path)
    }

    fn change(&self, patch: &Value) {
        self.table.change(&self.path, patch);
    }

    fn delete(&self) {
        self.change(&json!({ "metadata": { "deletionTimestamp": "2026-01-01T00:00:00Z" } }));
    }

    /// Waits until the object is as wanted.
    async fn until(&self, what: &str, is_so: impl Fn(&Value) -> bool) -> Value {
        let wait = async {
            loop {
                if let Some(object) = self.object().filter(|object| is_so(object)) {
                    return object;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(PATIENCE, wait).await.unwrap_or_else(|_| {
            panic!("{what}: {:#}, told {:?}", self.object().unwrap_or_default(), self.table.told.lock())
        })
    }

    async fn until_phase(&self, phase: &str) -> Value {
        self.until(phase, |object| object["status"]["phase"] == phase).await
    }

    async fn until_gone(&self, agent: &mut Agent) {
        tokio::time::timeout(PATIENCE, &mut agent.task).await.expect("the machine to be gone").unwrap();
        assert_eq!(self.object(), None);
    }

    fn condition(object: &Value, type_: &str) -> (String, String) {
        let all = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let found = all.into_iter().find(|condition| condition["type"] == type_).unwrap_or_default();
        let text = |key: &str| found[key].as_str().unwrap_or_default().to_owned();
        (text("status"), text("reason"))
    }

    fn disk_file(&self, claim: &str, bytes: u64) -> PathBuf {
        let path = self.dir.path().join(format!("{claim}.raw"));
        std::fs::File::create(&path).unwrap().set_len(bytes).unwrap();
        self.disks.claims.lock().insert(claim.to_owned(), path.clone());
        path
    }

    /// Everything on the host that a machine may leave.
    fn leftovers(&self) -> Vec<String> {
        let mut left = Vec::new();
        let mut list = |dir: &Path| {
            for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
                left.push(entry.path().display().to_string());
            }
        };
        list(&self.dir.path().join("vms"));
        list(&self.disks.scratch());
        list(&self.disks.state());
        if let Ok(cgroups) = Cgroups::new(&self.cgroup_name) {
            left.extend(cgroups.ids());
        }
        left.extend(self.nics.0.lock().iter().map(|(uid, name)| format!("{uid} {name}")));
        let mark = format!("CROFT_MACHINE_DIR={}", self.dir.path().display());
        for entry in std::fs::read_dir("/proc").unwrap().flatten() {
            let environment = std::fs::read(entry.path().join("environ")).unwrap_or_default();
            if String::from_utf8_lossy(&environment).contains(&mark) {
                left.push(entry.path().display().to_string());
            }
        }
        left
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // Whatever became of the test: nothing runs on, and the group's parent goes.
        let mark = format!("CROFT_MACHINE_DIR={}", self.dir.path().display());
        for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
            let environment = std::fs::read(entry.path().join("environ")).unwrap_or_default();
            let pid = entry.file_name().to_str().and_then(|name| name.parse().ok());
            if String::from_utf8_lossy(&environment).contains(&mark)
                && let Some(pid) = pid.and_then(rustix::process::Pid::from_raw)
            {
                let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
            }
        }
        for controller in ["", "cpu", "cpuacct", "memory"] {
            let parent = Path::new("/sys/fs/cgroup").join(controller).join(&self.cgroup_name);
            for _ in 0..100 {
                for entry in std::fs::read_dir(&parent).into_iter().flatten().flatten() {
                    let _ = std::fs::remove_dir(entry.path());
                }
                match std::fs::remove_dir(&parent) {
                    Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                        #[expect(
                            clippy::disallowed_methods,
                            reason = "a drop cannot await; the loop waits for the condition"
                        )]
                        std::thread::sleep(Duration::from_millis(10));
                    }
                    _ => break,
                }
            }
        }
    }
}

impl Agent {
    async fn until_running(&self) {
        let running = async {
            while self.present.0.lock().is_none() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(PATIENCE, running).await.expect("a machine that runs");
    }

    fn running(&self) -> Arc<Running> {
        self.present.0.lock().clone().expect("a machine that runs")
    }
}

/// A guest without an operating system.
fn bare(devices: Value) -> Value {
    let mut spec = json!({
        "terminationGracePeriodSeconds": 0,
        "domain": { "memory": { "guest": "64Mi" } },
    });
    if devices.get("interfaces").is_some() {
        spec["networks"] = json!([{ "name": "default", "pod": {} }]);
    }
    spec["domain"]["devices"] = devices;
    spec
}
