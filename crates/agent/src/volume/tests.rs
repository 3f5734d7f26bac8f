//! Against a real API server and a real file system: these need the rights to mount.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

use croft_api::harvester::{BlockDevice, Setting};
use croft_api::kubevirt::VirtualMachineInstance;
use croft_store::{Embedded, EmbeddedOptions};
use croft_testkit::eventually;
use k8s_openapi::api::core::v1::{Event, Namespace};
use kube::api::{ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use super::*;

const NODE: &str = "node-1";
const NAMESPACE: &str = "default";

/// A server, and the volumes of a node that talks to it.
struct Rig {
    dir: tempfile::TempDir,
    server: Option<croft_apiserver::Running>,
    client: Client,
    volumes: Volumes,
    agent: Option<(CancellationToken, JoinHandle<()>)>,
}

impl Rig {
    async fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let store = Embedded::open(&dir.path().join("store"), EmbeddedOptions::default()).unwrap();
        let listen = croft_apiserver::Listen { addr: "127.0.0.1:0".parse().unwrap(), is_required: true };
        let config = croft_apiserver::Config {
            listen: vec![listen],
            ..croft_apiserver::Config::new(dir.path().to_owned(), store)
        };
        let server = croft_apiserver::start(config).await.unwrap();
        let client = Client::new(server.local(), NAMESPACE);
        ensure_namespaces(&client).await;
        let (volumes, agent) = start(&client, dir.path()).await;
        Self { dir, server: Some(server), client, volumes, agent: Some(agent) }
    }

    /// The agent's process ends and another begins; everything else stays.
    async fn restart(&mut self) {
        self.stop_agent().await;
        self.start_agent().await;
    }

    async fn stop_agent(&mut self) {
        let (stop, task) = self.agent.take().unwrap();
        stop.cancel();
        task.await.unwrap();
    }

    async fn start_agent(&mut self) {
        let (volumes, agent) = start(&self.client, self.dir.path()).await;
        (self.volumes, self.agent) = (volumes, Some(agent));
    }

    async fn end(mut self) {
        self.stop_agent().await;
        self.server.take().unwrap().stop().await.unwrap();
    }

    fn claims(&self) -> Api<PersistentVolumeClaim> {
        Api::namespaced(self.client.clone(), NAMESPACE)
    }

    fn persistent(&self) -> Api<PersistentVolume> {
        Api::all(self.client.clone())
    }

    async fn create<K>(&self, api: &Api<K>, object: Value) -> K
    where
        K: Resource + Clone + std::fmt::Debug + serde::Serialize + DeserializeOwned,
    {
        let object: K = serde_json::from_value(object).unwrap();
        api.create(&PostParams::default(), &object).await.unwrap()
    }

    async fn claim(&self, name: &str, size: &str, change: Value) -> PersistentVolumeClaim {
        let mut spec = json!({
            "accessModes": ["ReadWriteMany"], "volumeMode": "Block", "storageClassName": "harvester-longhorn",
            "resources": {"requests": {"storage": size}},
        });
        spec.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        self.create(&self.claims(), json!({"metadata": {"name": name}, "spec": spec})).await
    }

    async fn class(&self, name: &str, change: Value) {
        let mut class = json!({"metadata": {"name": name}, "provisioner": DRIVER, "allowVolumeExpansion": true});
        class.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        self.create::<StorageClass>(&Api::all(self.client.clone()), class).await;
    }

    async fn bound(&self, name: &str) -> PersistentVolumeClaim {
        eventually("the claim is bound", async || {
            let claim = self.claims().get(name).await.unwrap();
            if binding::is_complete(&claim) { Ok(claim) } else { Err(format!("{:?}", claim.status)) }
        })
        .await
    }

    async fn event(&self, about: &str, reason: &str, part: &str) {
        let events: Api<Event> = Api::all(self.client.clone());
        eventually("the event is told", async || {
            let all = events.list(&ListParams::default()).await.unwrap();
            let is_it = |event: &&Event| {
                event.involved_object.name.as_deref() == Some(about) && event.reason.as_deref() == Some(reason)
            };
            let found: Vec<String> = all.iter().filter(is_it).filter_map(|event| event.message.clone()).collect();
            if found.iter().any(|text| text.contains(part)) { Ok(()) } else { Err(format!("{reason}: {found:?}")) }
        })
        .await;
    }

    async fn machine(&self, name: &str, claim: &str, node: Option<&str>) {
        let api: Api<VirtualMachineInstance> = Api::namespaced(self.client.clone(), NAMESPACE);
        let mut machine = json!({
            "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance",
            "metadata": {"name": name},
            "spec": {
                "domain": {"devices": {"disks": [{"name": "root", "disk": {"bus": "virtio"}}]}, "memory": {"guest": "64Mi"}},
                "volumes": [{"name": "root", "persistentVolumeClaim": {"claimName": claim}}],
            },
        });
        if let Some(node) = node {
            machine["status"] = json!({"phase": "Running", "nodeName": node});
        }
        self.create(&api, machine).await;
    }

    async fn end_machine(&self, name: &str) {
        let api: Api<VirtualMachineInstance> = Api::namespaced(self.client.clone(), NAMESPACE);
        api.delete(name, &DeleteParams::default()).await.unwrap();
        // Its finalizers are the machine's business, and nobody runs machines here.
        let free = Patch::Merge(json!({"metadata": {"finalizers": null}}));
        let _ = api.patch(name, &PatchParams::default(), &free).await;
    }

    async fn gone<K>(&self, api: &Api<K>, name: &str)
    where
        K: Resource + Clone + std::fmt::Debug + DeserializeOwned,
    {
        eventually("the object is gone", async || match api.get_opt(name).await.unwrap() {
            None => Ok(()),
            Some(found) => Err(format!("{:?}", found.meta().finalizers)),
        })
        .await;
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.dir.path().join("pool")).output();
    }
}

async fn ensure_namespaces(client: &Client) {
    let api: Api<Namespace> = Api::all(client.clone());
    for name in [NAMESPACE, "longhorn-system"] {
        let namespace: Namespace = serde_json::from_value(json!({"metadata": {"name": name}})).unwrap();
        let _ = api.create(&PostParams::default(), &namespace).await;
    }
}

async fn start(client: &Client, dir: &Path) -> (Volumes, (CancellationToken, JoinHandle<()>)) {
    let (events, write) = Events::channel(client.clone(), "croft");
    let config = VolumesConfig {
        client: client.clone(),
        events,
        node_name: NODE.to_owned(),
        data_dir: dir.to_owned(),
        pool: Options { loop_size_bytes: Some(400 << 20), is_plain: false },
        health: Health::default(),
        guests: Guests::default(),
    };
    let volumes = Volumes::open(config).await.unwrap();
    let stop = CancellationToken::new();
    let (run, stopped) = (volumes.clone().run(stop.clone()), stop.clone());
    let task = tokio::spawn(async move {
        tokio::select! { () = run => {}, () = write => {} }
        stopped.cancelled().await;
    });
    volumes.synced().await;
    (volumes, (stop, task))
}

fn size(claim: &PersistentVolumeClaim) -> &str {
    &claim.status.as_ref().unwrap().capacity.as_ref().unwrap()["storage"].0
}

#[tokio::test(flavor = "multi_thread")]
async fn an_expansion_that_was_cut_short_is_told_in_the_end() {
    let mut rig = Rig::new().await;
    rig.claim("disk", "2Mi", json!({})).await;
    let volume = rig.bound("disk").await.spec.unwrap().volume_name.unwrap();
    let path = rig.volumes.attach(NAMESPACE, "disk").unwrap().path;
    rig.stop_agent().await;
    // The file has grown and the volume says so; the agent ended before the claim did.
    fs::File::options().write(true).open(path).unwrap().set_len(4 << 20).unwrap();
    let params = PatchParams::default();
    let capacity = Patch::Merge(json!({"spec": {"capacity": {"storage": "4Mi"}}}));
    rig.persistent().patch(&volume, &params, &capacity).await.unwrap();
    let wanted = Patch::Merge(json!({"spec": {"resources": {"requests": {"storage": "4Mi"}}}}));
    rig.claims().patch("disk", &params, &wanted).await.unwrap();
    rig.start_agent().await;
    eventually("the claim is larger", async || {
        let claim = rig.claims().get("disk").await.unwrap();
        if size(&claim) == "4Mi" { Ok(()) } else { Err(size(&claim).to_owned()) }
    })
    .await;
    rig.event("disk", "VolumeResizeSuccessful", "4Mi").await;
    rig.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_is_bound_grows_and_goes_when_nobody_uses_it() {
    let rig = Rig::new().await;
    rig.claim("disk", "10Mi", json!({})).await;
    let claim = rig.bound("disk").await;
    let name = claim.spec.as_ref().unwrap().volume_name.clone().unwrap();
    assert_eq!(name, format!("pvc-{}", claim.uid().unwrap()));
    assert_eq!(size(&claim), "10Mi");
    assert_eq!(claim.annotations()["volume.kubernetes.io/storage-provisioner"], DRIVER);
    let volume = eventually("the volume says that it is bound", async || {
        let volume = rig.persistent().get(&name).await.unwrap();
        let phase = volume.status.as_ref().and_then(|status| status.phase.clone());
        if phase.as_deref() == Some("Bound") { Ok(volume) } else { Err(format!("{phase:?}")) }
    })
    .await;
    let spec = volume.spec.as_ref().unwrap();
    assert_eq!(spec.csi.as_ref().unwrap().volume_handle, name);
    assert_eq!(spec.claim_ref.as_ref().unwrap().uid, claim.uid());
    assert_eq!(binding::nodes(&volume).unwrap(), [NODE]);
    rig.event("disk", "ProvisioningSucceeded", &name).await;

    let mut changes = rig.volumes.changes();
    let attached = rig.volumes.attach(NAMESPACE, "disk").unwrap();
    assert_eq!((attached.size_bytes, attached.is_block, attached.is_read_only), (10 << 20, false, false));
    assert_eq!(attached.claim_info.volume_mode.as_deref(), Some("Block"));
    changes.mark_unchanged();

    let larger = Patch::Merge(json!({"spec": {"resources": {"requests": {"storage": "21Mi"}}}}));
    rig.claims().patch("disk", &PatchParams::default(), &larger).await.unwrap();
    eventually("the claim is larger", async || {
        let claim = rig.claims().get("disk").await.unwrap();
        if size(&claim) == "22Mi" { Ok(()) } else { Err(size(&claim).to_owned()) }
    })
    .await;
    assert!(changes.has_changed().unwrap());
    assert_eq!(rig.volumes.attach(NAMESPACE, "disk").unwrap().size_bytes, 22 << 20);
    let smaller = Patch::Merge(json!({"spec": {"resources": {"requests": {"storage": "5Mi"}}}}));
    let error = rig.claims().patch("disk", &PatchParams::default(), &smaller).await.unwrap_err().to_string();
    assert!(error.contains("can not be less"), "{error}");
    let figures = rig.volumes.figures();
    assert_eq!((figures.len(), figures[0].promised_bytes), (1, 22 << 20));

    rig.machine("vm", "disk", Some(NODE)).await;
    eventually("the machine is seen", async || {
        let consumers = rig.volumes.0.consumers.list();
        if consumers.iter().any(|consumer| consumer.claims().len() == 1) { Ok(()) } else { Err("not yet") }
    })
    .await;
    // As the agent would: what users may not do to a claim in use is the API server's business.
    rig.claims().delete("disk", &DeleteParams::default()).await.unwrap();
    Box::pin(rig.volumes.0.reconcile_claim(&Key::new(NAMESPACE, "disk"))).await.unwrap();
    assert!(rig.claims().get("disk").await.unwrap().metadata.deletion_timestamp.is_some(), "held while in use");
    assert!(attached.path.exists());
    rig.end_machine("vm").await;
    rig.gone(&rig.claims(), "disk").await;
    rig.gone(&rig.persistent(), &name).await;
    assert!(!attached.path.exists());
    rig.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn claims_are_clones_of_images_and_of_claims() {
    let rig = Rig::new().await;
    let images: Api<VirtualMachineImage> = Api::namespaced(rig.client.clone(), NAMESPACE);
    let image = json!({
        "apiVersion": "harvesterhci.io/v1beta1", "kind": "VirtualMachineImage", "metadata": {"name": "debian"},
        "spec": {"displayName": "debian", "sourceType": "upload"},
    });
    let image = rig.create(&images, image).await;
    let uid = image.uid().unwrap();
    rig.class("longhorn-debian", json!({"parameters": {"backingImage": format!("vmi-{uid}")}})).await;
    rig.claim("root", "20Mi", json!({"storageClassName": "longhorn-debian"})).await;
    rig.event("root", "ProvisioningFailed", "waiting for image").await;

    let file = rig.volumes.pool_for_scratch().join("images").join(format!("{uid}.raw"));
    fs::write(&file, vec![0x42; 8 << 20]).unwrap();
    let status = json!({"status": {"virtualSize": 8 << 20, "conditions": [{"type": "Imported", "status": "True"}]}});
    images.patch("debian", &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
    rig.bound("root").await;
    let root = rig.volumes.attach(NAMESPACE, "root").unwrap();
    let content = fs::read(&root.path).unwrap();
    assert_eq!((content.len(), content[0], content[(8 << 20) - 1], content[8 << 20]), (20 << 20, 0x42, 0x42, 0));

    let source = json!({"kind": "PersistentVolumeClaim", "name": "root"});
    rig.claim("copy", "24Mi", json!({"dataSource": source})).await;
    rig.claim("small", "10Mi", json!({"dataSource": source})).await;
    let mut expected = content;
    expected.resize(24 << 20, 0);
    rig.bound("copy").await;
    fs::OpenOptions::new().write(true).open(&root.path).unwrap().write_all_at(b"changed", 0).unwrap();
    assert!(fs::read(rig.volumes.attach(NAMESPACE, "copy").unwrap().path).unwrap() == expected);
    rig.event("small", "ProvisioningFailed", "do not fit").await;
    rig.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn volumes_that_are_there_are_bound_and_kept() {
    let rig = Rig::new().await;
    let disk = rig.dir.path().join("disk.raw");
    fs::write(&disk, vec![1; 4 << 20]).unwrap();
    let spec = json!({
        "capacity": {"storage": "4Mi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": "manual", "volumeMode": "Block",
        "local": {"path": disk}, "persistentVolumeReclaimPolicy": "Retain",
        "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [
            {"key": "kubernetes.io/hostname", "operator": "In", "values": [NODE]}]}]}},
    });
    rig.create(&rig.persistent(), json!({"metadata": {"name": "made"}, "spec": spec})).await;
    rig.claim("wants", "9Mi", json!({"storageClassName": "manual", "volumeName": "made"})).await;
    rig.event("wants", "VolumeMismatch", "made").await;
    rig.claim("takes", "3Mi", json!({"storageClassName": "manual", "accessModes": ["ReadWriteOnce"]})).await;
    let claim = rig.bound("takes").await;
    assert_eq!(claim.spec.as_ref().unwrap().volume_name.as_deref(), Some("made"));
    assert_eq!(size(&claim), "4Mi");
    let attached = rig.volumes.attach(NAMESPACE, "takes").unwrap();
    assert_eq!((attached.path, attached.size_bytes), (disk.clone(), 4 << 20));
    rig.claims().delete("takes", &DeleteParams::default()).await.unwrap();
    rig.gone(&rig.claims(), "takes").await;
    eventually("the volume is released", async || {
        let volume = rig.persistent().get("made").await.unwrap();
        let phase = volume.status.and_then(|status| status.phase).unwrap_or_default();
        if phase == "Released" { Ok(()) } else { Err(phase) }
    })
    .await;
    assert!(disk.exists());

    // A class that waits, and keeps.
    rig.class("later", json!({"volumeBindingMode": "WaitForFirstConsumer", "reclaimPolicy": "Retain"})).await;
    rig.claim("waits", "2Mi", json!({"storageClassName": "later", "volumeMode": "Filesystem"})).await;
    rig.event("waits", "WaitForFirstConsumer", "first consumer").await;
    rig.machine("vm", "waits", Some(NODE)).await;
    let claim = rig.bound("waits").await;
    let kept = rig.volumes.attach(NAMESPACE, "waits").unwrap().path;
    rig.end_machine("vm").await;
    rig.claims().delete("waits", &DeleteParams::default()).await.unwrap();
    rig.gone(&rig.claims(), "waits").await;
    let name = claim.spec.unwrap().volume_name.unwrap();
    rig.persistent().delete(&name, &DeleteParams::default()).await.unwrap();
    rig.gone(&rig.persistent(), &name).await;
    assert!(kept.exists(), "retained");
    rig.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_goes_on_and_a_loss_is_told() {
    let mut rig = Rig::new().await;
    rig.claim("kept", "2Mi", json!({})).await;
    rig.claim("lost", "2Mi", json!({})).await;
    rig.bound("kept").await;
    rig.bound("lost").await;
    let (kept, lost) = (rig.volumes.attach(NAMESPACE, "kept").unwrap(), rig.volumes.attach(NAMESPACE, "lost").unwrap());
    fs::write(&kept.path, vec![9; 2 << 20]).unwrap();
    rig.stop_agent().await;

    // Created while nobody looked; and one whose file was made just before the end.
    rig.claim("later", "2Mi", json!({})).await;
    let half = rig.claim("half", "2Mi", json!({})).await;
    let pool = rig.volumes.default_pool();
    pool.create(&objects::volume_name(&half), 2 << 20).unwrap();
    pool.create("nobodys", 2 << 20).unwrap();
    fs::remove_file(&lost.path).unwrap();
    rig.start_agent().await;
    for name in ["later", "half"] {
        rig.bound(name).await;
    }
    let again = rig.volumes.attach(NAMESPACE, "kept").unwrap();
    assert_eq!(again, kept);
    assert_eq!(fs::read(&again.path).unwrap(), vec![9; 2 << 20]);
    rig.event("lost", "VolumeLost", "missing").await;
    assert!(matches!(rig.volumes.attach(NAMESPACE, "lost"), Err(AttachError::Lost { .. })));
    assert!(!lost.path.exists(), "never made anew");
    rig.event(NODE, "OrphanedVolume", "nobodys").await;
    assert!(pool.volume("nobodys").is_ok());
    rig.restart().await;
    assert!(matches!(rig.volumes.attach(NAMESPACE, "none"), Err(AttachError::NotFound(_) | AttachError::NotYet)));
    rig.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_had_is_refused_with_a_reason() {
    let rig = Rig::new().await;
    rig.claim("huge", "100Ti", json!({})).await;
    rig.event("huge", "ProvisioningFailed", "insufficient storage").await;
    rig.claim("classless", "1Mi", json!({"storageClassName": "none"})).await;
    rig.event("classless", "ProvisioningFailed", "\"none\" not found").await;
    rig.class("tagged", json!({"parameters": {"diskSelector": "fast"}})).await;
    rig.claim("tags", "1Mi", json!({"storageClassName": "tagged"})).await;
    rig.event("tags", "ProvisioningFailed", "fast").await;
    rig.class("fixed", json!({"allowVolumeExpansion": false})).await;
    rig.claim("fixed", "2Mi", json!({"storageClassName": "fixed"})).await;
    rig.bound("fixed").await;
    rig.claim("grows", "2Mi", json!({})).await;
    rig.bound("grows").await;
    let larger = Patch::Merge(json!({"spec": {"resources": {"requests": {"storage": "100Ti"}}}}));
    rig.claims().patch("grows", &PatchParams::default(), &larger).await.unwrap();
    rig.event("grows", "VolumeResizeFailed", "insufficient storage").await;
    assert_eq!(rig.volumes.attach(NAMESPACE, "grows").unwrap().size_bytes, 2 << 20);
    // A claim whose volume never came goes at once.
    rig.claims().delete("huge", &DeleteParams::default()).await.unwrap();
    rig.gone(&rig.claims(), "huge").await;
    rig.end().await;
}

/// A loop device stands for a disk.
struct Disk(String);

impl Disk {
    fn new(dir: &Path) -> Self {
        let file = dir.join("spare");
        fs::File::create(&file).unwrap().set_len(400 << 20).unwrap();
        let output = Command::new("losetup").args(["--find", "--show"]).arg(&file).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        Self(String::from_utf8(output.stdout).unwrap().trim().to_owned())
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).output();
        let _ = Command::new("losetup").args(["-d", &self.0]).output();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_disk_becomes_a_pool_and_is_given_back() {
    let rig = Rig::new().await;
    let disk = Disk::new(rig.dir.path());
    let api: Api<BlockDevice> = Api::namespaced(rig.client.clone(), "longhorn-system");
    let default = eventually("the node's own pool is shown", async || {
        let all = api.list(&ListParams::default()).await.unwrap();
        all.into_iter().find(|object| object.labels().contains_key("croft.io/pool")).ok_or("not yet")
    })
    .await;
    assert_eq!(default.status.provision_phase, "Provisioned");

    // One that software made has an object only if somebody makes one.
    let object = json!({"metadata": {"name": "spare"},
        "spec": {"nodeName": NODE, "devPath": disk.0, "fileSystem": {"mountPoint": ""}},
        "status": {"state": "Unknown", "provisionPhase": "Unprovisioned"}});
    api.create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap();
    let ask = async |change: Value| {
        let change = Patch::Merge(json!({ "spec": change }));
        api.patch("spare", &PatchParams::default(), &change).await.unwrap()
    };
    let becomes = async |phase: &'static str| {
        eventually(phase, async || {
            let object = api.get("spare").await.unwrap();
            if object.status.provision_phase == phase { Ok(object) } else { Err(format!("{:?}", object.status)) }
        })
        .await
    };
    eventually("its size is known", async || {
        let status = api.get("spare").await.unwrap().status;
        let size = status.device_status.map(|status| status.capacity.size_bytes);
        if size == Some(400 << 20) { Ok(()) } else { Err(format!("{size:?}")) }
    })
    .await;
    ask(json!({"provision": true, "tags": ["fast"]})).await;
    becomes("Provisioned").await;

    rig.class("tagged", json!({"parameters": {"diskSelector": "fast"}})).await;
    rig.claim("tagged", "2Mi", json!({"storageClassName": "tagged"})).await;
    rig.bound("tagged").await;
    let path = rig.volumes.attach(NAMESPACE, "tagged").unwrap().path;
    assert!(path.starts_with(rig.dir.path().canonicalize().unwrap().join("disks")), "{}", path.display());
    assert_eq!(rig.volumes.figures().len(), 2);

    ask(json!({"provision": false})).await;
    let held = becomes("Unprovisioning").await;
    let message = held.status.conditions.iter().find_map(|condition| condition.message.clone()).unwrap();
    assert!(message.contains("holds 1 volumes"), "{message}");
    rig.claims().delete("tagged", &DeleteParams::default()).await.unwrap();
    eventually("the volume is gone", async || if path.exists() { Err("still there") } else { Ok(()) }).await;
    becomes("Unprovisioned").await;
    assert!(croft_block::inspect(Path::new(&disk.0)).unwrap().mounts.is_empty());
    rig.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_blank_disk_is_added_unasked_where_the_setting_says() {
    let rig = Rig::new().await;
    let disk = Disk::new(rig.dir.path());
    let settings: Api<Setting> = Api::all(rig.client.clone());
    let paths = Patch::Merge(json!({"value": format!("/dev/none*,{}", disk.0)}));
    settings.patch("auto-disk-provision-paths", &PatchParams::default(), &paths).await.unwrap();
    let api: Api<BlockDevice> = Api::namespaced(rig.client.clone(), "longhorn-system");
    let object = json!({"metadata": {"name": "spare"},
        "spec": {"nodeName": NODE, "devPath": disk.0, "fileSystem": {"mountPoint": ""}},
        "status": {"state": "Unknown", "provisionPhase": "Unprovisioned"}});
    api.create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap();
    let becomes = async |phase: &'static str| {
        eventually(phase, async || {
            let object = api.get("spare").await.unwrap();
            if object.status.provision_phase == phase { Ok(object) } else { Err(format!("{:?}", object.status)) }
        })
        .await
    };
    assert_eq!(becomes("Provisioned").await.spec.provision, Some(true));
    let back = Patch::Merge(json!({"spec": {"provision": false}}));
    api.patch("spare", &PatchParams::default(), &back).await.unwrap();
    becomes("Unprovisioned").await;
    // Another look finds the same disk, which is not taken again.
    let touched = Patch::Merge(json!({"spec": {"tags": ["left"]}}));
    api.patch("spare", &PatchParams::default(), &touched).await.unwrap();
    eventually("it was looked at", async || {
        let node: Api<DynamicObject> = Api::namespaced_with(
            rig.client.clone(),
            "longhorn-system",
            &ApiResource::from_gvk(&GroupVersionKind::gvk("longhorn.io", "v1beta2", "Node")),
        );
        let disks = node.get(NODE).await.map_err(|error| error.to_string())?.data["spec"]["disks"].clone();
        if disks.as_object().is_some_and(|disks| disks.len() == 1) { Ok(()) } else { Err(disks.to_string()) }
    })
    .await;
    assert_eq!(api.get("spare").await.unwrap().spec.provision, Some(false));
    rig.end().await;
}
