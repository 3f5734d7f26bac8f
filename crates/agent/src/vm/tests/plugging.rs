//! What changes while the machine runs. The guest has no operating system: it sees nothing, and lets nothing go.

use serde_json::json;

use super::*;

fn volume<'a>(object: &'a Value, name: &str) -> &'a Value {
    let all = object["status"]["volumeStatus"].as_array();
    all.and_then(|all| all.iter().find(|volume| volume["name"] == name)).unwrap_or(&Value::Null)
}

#[tokio::test]
async fn disks_media_interfaces_processors_and_memory_are_plugged() {
    let mut spec = bare(json!({
        "interfaces": [{ "name": "default", "masquerade": {} }],
        "disks": [{ "name": "cd", "cdrom": { "bus": "sata" } }],
    }));
    spec["domain"]["cpu"] = json!({ "sockets": 1, "maxSockets": 4 });
    spec["domain"]["memory"] = json!({ "guest": "128Mi", "maxGuest": "1Gi" });
    let node = Node::new(spec);
    let grown = node.disk_file("grown", 1 << 20);
    node.disk_file("virtio", 1 << 20);
    node.disk_file("iso", 1 << 20);
    let mut agent = node.start_agent();
    node.until_phase("Running").await;
    let qmp = agent.running().qmp().clone();

    let claim = |name: &str| json!({ "claimName": name, "hotpluggable": true });
    let disks = json!([
        { "name": "cd", "cdrom": { "bus": "sata" } }, { "name": "grown", "disk": { "bus": "scsi" } },
        { "name": "virtio", "disk": { "bus": "virtio" } },
    ]);
    let volumes = json!([
        { "name": "cd", "persistentVolumeClaim": claim("iso") },
        { "name": "grown", "persistentVolumeClaim": claim("grown") },
        { "name": "virtio", "persistentVolumeClaim": claim("virtio") },
    ]);
    node.change(&json!({ "spec": { "volumes": volumes, "domain": { "devices": { "disks": disks } } } }));
    let all_ready =
        |object: &Value| ["cd", "grown", "virtio"].iter().all(|name| volume(object, name)["phase"] == "Ready");
    let object = node.until("volumes", all_ready).await;
    assert_eq!(volume(&object, "grown")["target"], "sdb");
    assert_eq!(volume(&object, "virtio")["target"], "vda");
    assert!(volume(&object, "grown")["hotplugVolume"].is_object());
    let devices = qmp.devices().await.unwrap();
    for id in ["d-cd", "d-grown", "d-virtio", "n-default"] {
        assert!(devices.iter().any(|device| device == id), "{id}: {devices:?}");
    }

    std::fs::OpenOptions::new().write(true).open(grown).unwrap().set_len(2 << 20).unwrap();
    node.disks.changes.send_modify(|count| *count += 1);
    node.until("growth", |object| volume(object, "grown")["size"] == 2 << 20).await;
    let blocks = qmp.block().await.unwrap();
    let sizes: Vec<_> = blocks.iter().filter_map(|block| Some(block.inserted.as_ref()?.image.virtual_size)).collect();
    assert!(sizes.contains(&(2 << 20)), "{sizes:?}");

    // The CD is taken out; a SCSI disk that no system uses goes at once, one on PCI waits for its guest.
    let disks = json!([{ "name": "cd", "cdrom": { "bus": "sata" } }]);
    node.change(&json!({ "spec": { "volumes": [], "domain": { "devices": { "disks": disks } } } }));
    node.until("the CD to go", |object| volume(object, "cd").is_null()).await;
    node.until("detaching", |object| volume(object, "virtio")["phase"] == "Detaching").await;
    assert!(qmp.block().await.unwrap().iter().all(|block| !block.removable || block.inserted.is_none()));

    let interfaces =
        json!([{ "name": "default", "masquerade": {}, "state": "down" }, { "name": "second", "bridge": {} }]);
    let networks = json!([{ "name": "default", "pod": {} }, { "name": "second", "multus": { "networkName": "n" } }]);
    node.change(&json!({ "spec": { "networks": networks, "domain": { "devices": { "interfaces": interfaces },
        "cpu": { "sockets": 3 }, "memory": { "guest": "256Mi" } } } }));
    let object = node
        .until("processors and memory", |object| {
            object["status"]["currentCPUTopology"]["sockets"] == 3
                && object["status"]["memory"]["guestCurrent"] == "256Mi"
        })
        .await;
    assert_eq!(object["status"]["memory"]["guestAtBoot"], "128Mi");
    assert_eq!(object["status"]["interfaces"][0]["linkState"], "down");
    assert_eq!(object["status"]["interfaces"][1]["name"], "second");
    assert_eq!(qmp.cpus().await.unwrap().len(), 3);
    assert!(qmp.devices().await.unwrap().contains(&"n-second".to_owned()));
    assert_eq!(node.nics.0.lock().len(), 2);

    // Found again as it is now, not as it was started. QEMU serves one connection.
    drop(qmp);
    drop(agent);
    agent = node.start_agent();
    agent.until_running().await;
    node.change(&json!({ "spec": { "domain": { "cpu": { "sockets": 2 } } } }));
    let object = node.until("refusal", |object| Node::condition(object, "Synchronized").0 == "False").await;
    assert!(object.to_string().contains("3 sockets cannot become 2"), "{object:#}");
    assert_eq!(object["status"]["memory"]["guestCurrent"], "256Mi");
    node.delete();
    node.until_gone(&mut agent).await;
    assert_eq!(node.leftovers(), Vec::<String>::new());
}

#[tokio::test]
async fn memory_is_dumped_into_a_claim_that_is_large_enough() {
    let node = Node::new(bare(json!({})));
    let dump = node.disk_file("dump", 80 << 20);
    node.disk_file("small", 1 << 20);
    let mut agent = node.start_agent();
    node.until_phase("Running").await;
    node.change(&json!({ "spec": { "volumes": [{ "name": "small", "memoryDump": { "claimName": "small" } }] } }));
    node.until("failure", |object| volume(object, "small")["phase"] == "MemoryDumpFailed").await;
    node.change(&json!({ "spec": { "volumes": [{ "name": "dump", "memoryDump": { "claimName": "dump" } }] } }));
    let object = node.until("dump", |object| volume(object, "dump")["phase"] == "MemoryDumpCompleted").await;
    assert!(volume(&object, "dump")["memoryDumpVolume"]["endTimestamp"].is_string());
    assert!(std::fs::read(dump).unwrap().starts_with(b"\x7fELF"));
    assert_eq!(Node::condition(&object, "Paused").0, "", "a dump is not a pause");
    node.delete();
    node.until_gone(&mut agent).await;
}
