//! DataVolumes, and claims that wait for an upload.

use std::convert::Infallible;

use bytes::Bytes;
use croft_api::cdi::{DataSource, DataVolume};
use futures::stream;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

use super::web::Web;
use super::world::{World, disk};

fn volume(name: &str, size: &str, source: &Value) -> Value {
    let storage = json!({ "resources": { "requests": { "storage": size } }, "storageClassName": "harvester-longhorn" });
    json!({ "metadata": { "name": name, "namespace": "default" }, "spec": { "source": source, "storage": storage } })
}

fn phase(volume: &DataVolume) -> &str {
    volume.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default()
}

fn running(volume: &DataVolume) -> String {
    let conditions = volume.status.iter().flat_map(|status| &status.conditions);
    let found = conditions.into_iter().find(|condition| condition.type_ == "Running");
    found.and_then(|condition| condition.message.clone()).unwrap_or_default()
}

async fn content(world: &World, claim: &str) -> Vec<u8> {
    let claims: Api<PersistentVolumeClaim> = Api::default_namespaced(world.client.clone());
    let volume = claims.get(claim).await.unwrap().spec.unwrap().volume_name.unwrap();
    std::fs::read(world.agent.pool.join("volumes").join(format!("{volume}.raw"))).unwrap()
}

fn begins_with(content: &[u8], start: &[u8], size: usize) -> bool {
    content.len() == size && content[..start.len()] == *start && content[start.len()..].iter().all(|byte| *byte == 0)
}

#[tokio::test]
async fn claims_are_filled_from_a_url_from_a_claim_and_through_a_data_source() {
    let world = World::start().await;
    let (raw, qcow2) = disk();
    let web = Web::serve(qcow2, 0).await;
    world.create::<DataVolume>(volume("blank", "8Mi", &json!({ "blank": {} }))).await;
    world.create::<DataVolume>(volume("http", "24Mi", &json!({ "http": { "url": web.url } }))).await;
    for name in ["blank", "http"] {
        let done: DataVolume = world.wait(name, |it| phase(it) == "Succeeded").await;
        let status = done.status.unwrap();
        assert_eq!((status.progress.as_deref(), status.claim_name.as_deref()), (Some("100.0%"), Some(name)));
    }
    assert!(begins_with(&content(&world, "blank").await, &[], 8 << 20));
    assert!(begins_with(&content(&world, "http").await, &raw, 24 << 20));
    assert!(world.agent.files("imports").is_empty(), "{:?}", world.agent.files("imports"));

    let claim = json!({ "pvc": { "namespace": "default", "name": "http" } });
    world.create::<DataVolume>(volume("clone", "32Mi", &claim)).await;
    world.wait("clone", |it: &DataVolume| phase(it) == "Succeeded").await;
    assert!(begins_with(&content(&world, "clone").await, &raw, 32 << 20));

    let source = json!({ "metadata": { "name": "golden", "namespace": "default" }, "spec": { "source": claim } });
    world.create::<DataSource>(source).await;
    let mut by_name = volume("by-name", "24Mi", &Value::Null);
    by_name["spec"]["sourceRef"] = json!({ "kind": "DataSource", "name": "golden" });
    by_name["spec"].as_object_mut().unwrap().remove("source");
    world.create::<DataVolume>(by_name).await;
    world.wait("by-name", |it: &DataVolume| phase(it) == "Succeeded").await;
    assert!(begins_with(&content(&world, "by-name").await, &raw, 24 << 20));
}

#[tokio::test]
async fn what_cannot_fill_a_claim_is_told() {
    let world = World::start().await;
    let (_, qcow2) = disk();
    let web = Web::serve(qcow2, 0).await;
    let claim = |name: &str| json!({ "pvc": { "namespace": "default", "name": name } });
    world.create::<DataVolume>(volume("large", "24Mi", &json!({ "blank": {} }))).await;
    world.wait("large", |it: &DataVolume| phase(it) == "Succeeded").await;
    for (name, size, source, expected) in [
        ("small", "8Mi", json!({ "http": { "url": web.url } }), "larger than 8388608 bytes"),
        ("no-image", "8Mi", json!({ "registry": { "url": "docker://UPPER" } }), "not the name of an image"),
        ("small-clone", "8Mi", claim("large"), "smaller than the source"),
    ] {
        world.create::<DataVolume>(volume(name, size, &source)).await;
        let failed: DataVolume = world.wait(name, |it| phase(it) == "Failed").await;
        assert!(running(&failed).contains(expected), "{name}: {}", running(&failed));
    }
    world.create::<DataVolume>(volume("dead", "8Mi", &json!({ "http": { "url": "http://127.0.0.1:1/" } }))).await;
    // Between two tries it says why the last one failed.
    let is_retried = |it: &DataVolume| {
        let count = it.status.as_ref().and_then(|status| status.restart_count);
        count > Some(0) && running(it).contains("cannot reach")
    };
    world.wait("dead", is_retried).await;
}

#[tokio::test]
async fn uploads_fill_data_volumes_and_claims_as_virtctl_waits_for_them() {
    let world = World::start().await;
    let (raw, qcow2) = disk();
    world.create::<DataVolume>(volume("dv", "24Mi", &json!({ "upload": {} }))).await;
    let annotations =
        json!({ "cdi.kubevirt.io/storage.upload.target": "", "cdi.kubevirt.io/storage.contentType": "kubevirt" });
    let claim = json!({ "metadata": { "name": "pvc", "namespace": "default", "annotations": annotations },
        "spec": { "accessModes": ["ReadWriteMany"], "volumeMode": "Block", "storageClassName": "harvester-longhorn",
            "resources": { "requests": { "storage": "24Mi" } } } });
    world.create::<PersistentVolumeClaim>(claim).await;
    world.wait("dv", |it: &DataVolume| phase(it) == "UploadReady").await;
    let is = |key: &'static str, value: &'static str| {
        move |claim: &PersistentVolumeClaim| {
            let key = format!("cdi.kubevirt.io/storage.pod.{key}");
            claim.annotations().get(&key).is_some_and(|found| found == value)
        }
    };
    world.wait("pvc", is("ready", "true")).await;
    for name in ["dv", "pvc"] {
        let broken = stream::iter([Ok(Bytes::copy_from_slice(&qcow2[..5000])), Err("reset")]);
        let refused = world.agent.imports.upload_claim("default", name, None, broken).await.unwrap_err();
        assert!(refused.to_string().contains("interrupted after 5000 bytes"), "{refused}");
        let body = stream::iter([Ok::<_, Infallible>(Bytes::copy_from_slice(&qcow2))]);
        world.agent.imports.upload_claim("default", name, None, body).await.unwrap();
        world.wait(name, is("phase", "Succeeded")).await;
        assert!(begins_with(&content(&world, name).await, &raw, 24 << 20), "{name}");
    }
    world.wait("dv", |it: &DataVolume| phase(it) == "Succeeded").await;
    assert!(world.agent.files("imports").is_empty(), "{:?}", world.agent.files("imports"));
}
