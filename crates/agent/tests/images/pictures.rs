//! VirtualMachineImages.

use std::convert::Infallible;
use std::io::Read;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use croft_api::harvester::VirtualMachineImage;
use croft_testkit::eventually;
use futures::{StreamExt, stream};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::api::storage::v1::StorageClass;
use kube::Api;
use kube::api::DeleteParams;
use serde_json::{Value, json};

use super::web::Web;
use super::world::{World, disk};

fn image(name: &str, spec: &Value) -> Value {
    let mut image = json!({ "metadata": { "name": name, "namespace": "default" }, "spec": spec });
    image["spec"]["displayName"] = json!(name);
    image
}

fn condition(image: &VirtualMachineImage, type_: &str) -> (String, String) {
    let conditions = image.status.iter().flat_map(|status| &status.conditions);
    let found = conditions.into_iter().find(|condition| condition.type_ == type_);
    found.map(|it| (it.status.clone(), it.message.clone().unwrap_or_default())).unwrap_or_default()
}

fn is_imported(image: &VirtualMachineImage) -> bool {
    condition(image, "Imported").0 == "True"
}

fn is_failed(image: &VirtualMachineImage) -> bool {
    condition(image, "Imported").0 == "False"
}

fn file(world: &World, image: &VirtualMachineImage) -> Vec<u8> {
    let uid = image.metadata.uid.clone().unwrap();
    std::fs::read(world.agent.pool.join("images").join(format!("{uid}.raw"))).unwrap()
}

#[tokio::test]
async fn an_image_is_downloaded_makes_volumes_and_is_removed_without_a_trace() {
    let world = World::start().await;
    let (raw, qcow2) = disk();
    let size = i64::try_from(qcow2.len()).unwrap();
    let web = Web::serve(qcow2, 0).await;
    world.create::<VirtualMachineImage>(image("jammy", &json!({ "sourceType": "download", "url": web.url }))).await;
    let done = world.wait("jammy", is_imported).await;
    let status = done.status.clone().unwrap();
    assert_eq!((status.progress, status.size, status.virtual_size), (Some(100), Some(size), Some(16 << 20)));
    assert_eq!(status.storage_class_name.as_deref(), Some("longhorn-jammy"));
    assert_eq!(condition(&done, "RetryLimitExceeded"), ("False".to_owned(), String::new()));
    assert!(file(&world, &done) == raw);

    let claim = json!({ "metadata": { "name": "root", "namespace": "default" }, "spec": { "accessModes": ["ReadWriteMany"],
        "volumeMode": "Block", "storageClassName": "longhorn-jammy", "resources": { "requests": { "storage": "32Mi" } } } });
    world.create::<PersistentVolumeClaim>(claim).await;
    let bound =
        |claim: &PersistentVolumeClaim| claim.status.as_ref().is_some_and(|it| it.phase.as_deref() == Some("Bound"));
    let claim: PersistentVolumeClaim = world.wait("root", bound).await;
    let volume = claim.spec.unwrap().volume_name.unwrap();
    let content = std::fs::read(world.agent.pool.join("volumes").join(format!("{volume}.raw"))).unwrap();
    assert!(
        content.len() == 32 << 20 && content[..raw.len()] == raw && content[raw.len()..].iter().all(|byte| *byte == 0)
    );

    let claims: Api<PersistentVolumeClaim> = Api::default_namespaced(world.client.clone());
    claims.delete("root", &DeleteParams::default()).await.unwrap();
    let images: Api<VirtualMachineImage> = Api::default_namespaced(world.client.clone());
    eventually("the image goes", async || images.delete("jammy", &DeleteParams::default()).await.map(drop)).await;
    eventually("the image is gone", async || match images.get_opt("jammy").await {
        Ok(None) => Ok(()),
        other => Err(format!("{other:?}")),
    })
    .await;
    assert!(world.agent.files("images").is_empty() && world.agent.files("imports").is_empty());
    let classes: Api<StorageClass> = Api::all(world.client.clone());
    assert!(classes.get_opt("longhorn-jammy").await.unwrap().is_none());
}

#[tokio::test]
async fn a_download_goes_on_after_the_agent_was_killed() {
    let mut world = World::start().await;
    let (raw, _) = disk();
    let web = Web::serve(raw.clone(), 1).await;
    world.create::<VirtualMachineImage>(image("resumed", &json!({ "sourceType": "download", "url": web.url }))).await;
    world
        .wait("resumed", |it: &VirtualMachineImage| it.status.as_ref().is_some_and(|it| it.progress >= Some(49)))
        .await;
    world.restart_agent().await;
    let done = world.wait("resumed", is_imported).await;
    assert!(file(&world, &done) == raw);
    assert_eq!(web.requests(), 2);
    assert!(web.last_from.load(Ordering::SeqCst) > raw.len() / 3, "it began anew");
    assert!(world.agent.files("imports").is_empty(), "{:?}", world.agent.files("imports"));
}

#[tokio::test]
async fn what_cannot_be_had_fails_clearly_and_leaves_nothing() {
    let world = World::start().await;
    let page = Web::serve(b"<html>not here</html>".to_vec(), 0).await;
    let (_, qcow2) = disk();
    let good = Web::serve(qcow2, 0).await;
    for (name, spec, expected) in [
        ("page", json!({ "sourceType": "download", "url": page.url }), "not a disk image"),
        ("sum", json!({ "sourceType": "download", "url": good.url, "checksum": "0".repeat(128) }), "the checksum is"),
        ("dead", json!({ "sourceType": "download", "url": "http://127.0.0.1:1/x", "retry": 0 }), "cannot reach"),
    ] {
        world.create::<VirtualMachineImage>(image(name, &spec)).await;
        let failed = world.wait(name, is_failed).await;
        let (_, message) = condition(&failed, "Imported");
        assert!(message.starts_with("[retry attempted 0/") && message.contains(expected), "{name}: {message}");
        assert_eq!(condition(&failed, "RetryLimitExceeded").0, "True");
    }
    assert!(world.agent.files("images").is_empty() && world.agent.files("imports").is_empty());
}

#[tokio::test]
async fn an_upload_is_taken_and_given_back_and_a_broken_one_is_told() {
    let world = World::start().await;
    let (raw, qcow2) = disk();
    world.create::<VirtualMachineImage>(image("mine", &json!({ "sourceType": "upload" }))).await;
    world.wait("mine", |it: &VirtualMachineImage| condition(it, "Initialized").0 == "True").await;
    let body = |size: usize| stream::iter([Ok::<_, Infallible>(Bytes::copy_from_slice(&qcow2[..size]))]);
    let size = qcow2.len() as u64;

    let broken = world.agent.images.upload_image("default", "mine", Some(size), body(1000)).await.unwrap_err();
    assert_eq!(broken.code(), 422, "{broken}");
    let failed = world.wait("mine", is_failed).await;
    assert!(condition(&failed, "Imported").1.contains("bytes were announced but 1000 were sent"));

    world.agent.images.upload_image("default", "mine", Some(size), body(qcow2.len())).await.unwrap();
    let done = world.wait("mine", is_imported).await;
    assert!(file(&world, &done) == raw);
    let again = world.agent.images.upload_image("default", "mine", Some(size), body(qcow2.len())).await.unwrap_err();
    assert_eq!(again.code(), 409, "{again}");

    let (name, stream) = world.agent.images.download_image("default", "mine").await.unwrap();
    let packed: Vec<Bytes> = stream.map(Result::unwrap).collect().await;
    let mut back = Vec::new();
    flate2::read::GzDecoder::new(&packed.concat()[..]).read_to_end(&mut back).unwrap();
    assert!(back == raw && name == "mine.gz");
}

#[tokio::test]
async fn a_volume_becomes_an_image() {
    let world = World::start().await;
    let claim = json!({ "metadata": { "name": "disk", "namespace": "default" }, "spec": { "accessModes": ["ReadWriteMany"],
        "volumeMode": "Block", "storageClassName": "harvester-longhorn", "resources": { "requests": { "storage": "8Mi" } } } });
    world.create::<PersistentVolumeClaim>(claim).await;
    let bound =
        |claim: &PersistentVolumeClaim| claim.status.as_ref().is_some_and(|it| it.phase.as_deref() == Some("Bound"));
    let claim: PersistentVolumeClaim = world.wait("disk", bound).await;
    let volume = world.agent.pool.join("volumes").join(format!("{}.raw", claim.spec.unwrap().volume_name.unwrap()));
    let mut content = vec![0; 8 << 20];
    content[4096..4100].copy_from_slice(b"data");
    std::fs::write(&volume, &content).unwrap();
    let spec = json!({ "sourceType": "export-from-volume", "pvcName": "disk", "pvcNamespace": "default" });
    world.create::<VirtualMachineImage>(image("exported", &spec)).await;
    let done = world.wait("exported", is_imported).await;
    assert!(file(&world, &done) == content);
}
