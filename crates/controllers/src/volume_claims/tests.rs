//! Against a real API server, with all controllers running.

use croft_store::{Embedded, EmbeddedOptions};
use croft_testkit::eventually;
use tokio::task::JoinHandle;

use super::*;

const NAMESPACE: &str = "default";

struct Rig {
    _dir: tempfile::TempDir,
    server: croft_apiserver::Running,
    client: Client,
    controllers: JoinHandle<()>,
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
        let controllers = crate::run(client.clone(), server.ca_pem().to_owned(), server.stopping());
        Self { _dir: dir, controllers: tokio::spawn(controllers), client, server }
    }

    async fn end(self) {
        self.server.stop().await.unwrap();
        self.controllers.await.unwrap();
    }

    fn machines(&self) -> Api<VirtualMachine> {
        Api::namespaced(self.client.clone(), NAMESPACE)
    }

    fn claims(&self) -> Api<PersistentVolumeClaim> {
        Api::namespaced(self.client.clone(), NAMESPACE)
    }

    async fn claim(&self, name: &str, is_so: impl Fn(&PersistentVolumeClaim) -> bool) -> PersistentVolumeClaim {
        eventually("the claim is as it should be", async || match self.claims().get_opt(name).await.unwrap() {
            Some(claim) if is_so(&claim) => Ok(claim),
            other => Err(format!("{other:?}")),
        })
        .await
    }

    async fn annotate(&self, key: &str, value: &Value) {
        let change = Patch::Merge(json!({ "metadata": { "annotations": { key: value.to_string() } } }));
        self.machines().patch("vm", &PatchParams::default(), &change).await.unwrap();
    }
}

fn template(name: &str, size: &str) -> Value {
    let spec = json!({
        "accessModes": ["ReadWriteMany"], "volumeMode": "Block", "storageClassName": "harvester-longhorn",
        "resources": {"requests": {"storage": size}},
    });
    json!({"metadata": {"name": name, "annotations": {}}, "spec": spec})
}

fn machine(templates: &Value) -> VirtualMachine {
    let volumes = json!([
        {"name": "root", "persistentVolumeClaim": {"claimName": "root"}},
        {"name": "blank", "dataVolume": {"name": "blank"}},
    ]);
    let disks = json!([{"name": "root", "disk": {"bus": "virtio"}}, {"name": "blank", "disk": {"bus": "virtio"}}]);
    let blank = json!({
        "metadata": {"name": "blank"},
        "spec": {"source": {"blank": {}}, "storage": {"resources": {"requests": {"storage": "1Gi"}}}},
    });
    let value = json!({
        "metadata": {"name": "vm", "annotations": {"harvesterhci.io/volumeClaimTemplates": templates.to_string()}},
        "spec": {
            "runStrategy": "Halted",
            "dataVolumeTemplates": [blank],
            "template": {"spec": {
                "domain": {"devices": {"disks": disks}, "resources": {"limits": {"memory": "128Mi", "cpu": "1"}}},
                "volumes": volumes,
            }},
        },
    });
    serde_json::from_value(value).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machines_disks_come_grow_and_go_with_it() {
    let rig = Rig::new().await;
    let list = json!([template("root", "1Gi"), template("kept", "1Gi")]);
    let created = rig.machines().create(&PostParams::default(), &machine(&list)).await.unwrap();
    let owned = |claim: &PersistentVolumeClaim| owners::of(&claim.metadata) == ["default/vm"];
    rig.claim("root", owned).await;
    rig.claim("kept", owned).await;
    let data_volumes: Api<DataVolume> = Api::namespaced(rig.client.clone(), NAMESPACE);
    let blank =
        eventually("the data volume is made", async || data_volumes.get_opt("blank").await.unwrap().ok_or("not yet"))
            .await;
    assert_eq!(blank.metadata.owner_references.unwrap()[0].uid, created.metadata.uid.unwrap());

    // As the agent does; then the list asks for more of one, and for less of the other, which somebody has grown.
    for name in ["root", "kept"] {
        let bound = Patch::Merge(json!({"status": {"phase": "Bound", "capacity": {"storage": "1Gi"}}}));
        rig.claims().patch_status(name, &PatchParams::default(), &bound).await.unwrap();
    }
    let grown = Patch::Merge(json!({"spec": {"resources": {"requests": {"storage": "2Gi"}}}}));
    rig.claims().patch("kept", &PatchParams::default(), &grown).await.unwrap();
    let list = json!([template("root", "3Gi"), template("kept", "1Gi"), template("more", "1Gi")]);
    rig.annotate("harvesterhci.io/volumeClaimTemplates", &list).await;
    let asks = |claim: &PersistentVolumeClaim| {
        claim.spec.as_ref().unwrap().resources.as_ref().unwrap().requests.as_ref().unwrap()["storage"].0.clone()
    };
    rig.claim("root", |claim| asks(claim) == "3Gi").await;
    rig.claim("more", owned).await;
    assert_eq!(asks(&rig.claim("kept", |_| true).await), "2Gi");

    // One that is no longer the machine's says so.
    rig.annotate("harvesterhci.io/volumeClaimTemplates", &json!([template("root", "3Gi"), template("kept", "1Gi")]))
        .await;
    rig.claim("more", |claim| owners::of(&claim.metadata).is_empty()).await;

    let change = Patch::Merge(json!({"metadata": {"annotations": {REMOVED: "root,never-there"}}}));
    rig.machines().patch("vm", &PatchParams::default(), &change).await.unwrap();
    rig.machines().delete("vm", &DeleteParams::foreground()).await.unwrap();
    eventually("the machine is gone", async || {
        if rig.machines().get_opt("vm").await.unwrap().is_none() { Ok(()) } else { Err("still there") }
    })
    .await;
    eventually("its disk is gone", async || match rig.claims().get_opt("root").await.unwrap() {
        None => Ok(()),
        // Without the agent, nobody lets go of it.
        Some(claim) if is_being_deleted(&claim.metadata) => Ok(()),
        Some(claim) => Err(format!("{:?}", claim.metadata)),
    })
    .await;
    let kept = rig.claim("kept", |claim| owners::of(&claim.metadata).is_empty()).await;
    assert!(!is_being_deleted(&kept.metadata));
    rig.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_of_an_image_waits_for_it_and_takes_its_class() {
    let rig = Rig::new().await;
    let mut of_image = template("root", "1Gi");
    of_image["metadata"]["annotations"] = json!({"harvesterhci.io/imageId": "default/debian"});
    of_image["spec"]["storageClassName"] = Value::Null;
    let images: Api<VirtualMachineImage> = Api::namespaced(rig.client.clone(), NAMESPACE);
    rig.machines().create(&PostParams::default(), &machine(&json!([of_image, template("kept", "1Gi")]))).await.unwrap();
    rig.claim("kept", |_| true).await;
    assert!(rig.claims().get_opt("root").await.unwrap().is_none());
    let image = json!({
        "metadata": {"name": "debian"}, "spec": {"displayName": "debian", "sourceType": "upload"},
        "status": {"storageClassName": "longhorn-debian"},
    });
    images.create(&PostParams::default(), &serde_json::from_value(image).unwrap()).await.unwrap();
    let claim = rig.claim("root", |_| true).await;
    assert_eq!(claim.spec.unwrap().storage_class_name.as_deref(), Some("longhorn-debian"));
    rig.end().await;
}
