//! Start, pause, end, adoption.

use std::io::Write;
use std::sync::atomic::Ordering;

use serde_json::json;

use super::*;

/// mov dx,0x604; mov ax,0x2000; out dx,ax; hlt; jmp $-1: the chipset's power off.
const POWERS_OFF: &[u8] = &[0xba, 0x04, 0x06, 0xb8, 0x00, 0x20, 0xef, 0xf4, 0xeb, 0xfd];

fn kill(pid: u32) {
    let pid = rustix::process::Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
}

#[tokio::test]
async fn a_machine_runs_is_paused_and_leaves_nothing() {
    let mut spec = bare(json!({
        "interfaces": [{ "name": "default", "masquerade": {}, "macAddress": "02:00:00:00:00:07" }],
        "disks": [{ "name": "root", "disk": { "bus": "virtio" } }, { "name": "empty", "disk": { "bus": "virtio" } },
            { "name": "seed", "disk": { "bus": "virtio" } }, { "name": "cd", "cdrom": { "bus": "sata" } }],
        "rng": {}, "tpm": { "persistent": true }, "sound": { "name": "s" }, "clientPassthrough": {},
        "inputs": [{ "name": "t", "type": "tablet", "bus": "usb" }], "watchdog": { "name": "w", "i6300esb": {} },
    }));
    spec["volumes"] = json!([
        { "name": "root", "persistentVolumeClaim": { "claimName": "root-claim" } },
        { "name": "empty", "emptyDisk": { "capacity": "1Mi" } },
        { "name": "seed", "cloudInitNoCloud": { "userData": "#cloud-config" } },
    ]);
    spec["domain"]["firmware"] = json!({ "bootloader": { "efi": { "secureBoot": false, "persistent": true } } });
    spec["domain"]["resources"] = json!({ "limits": { "cpu": "2" }, "requests": { "cpu": "500m" } });
    let node = Node::new(spec);
    node.disk_file("root-claim", 1 << 20);
    let mut agent = node.start_agent();
    let object = node.until_phase("Running").await;
    let status = &object["status"];
    assert_eq!(status["interfaces"][0]["mac"], "02:00:00:00:00:07");
    assert_eq!(status["interfaces"][0]["name"], "default");
    assert_eq!(Node::condition(&object, "Ready").0, "True");
    assert_eq!(Node::condition(&object, "LiveMigratable"), ("False".into(), "DisksNotLiveMigratable".into()));
    assert_eq!(Node::condition(&object, "Synchronized").0, "True");
    assert_eq!(status["memory"]["guestCurrent"], "64Mi");
    assert_eq!(status["currentCPUTopology"], json!({ "cores": 1, "sockets": 1, "threads": 1 }));
    assert_eq!(status["machine"]["type"], "q35");
    let targets: Vec<_> =
        status["volumeStatus"].as_array().unwrap().iter().map(|v| (&v["name"], &v["target"])).collect();
    assert_eq!(json!(targets), json!([["empty", "vdb"], ["root", "vda"], ["seed", "vdc"]]));
    assert_eq!(node.table.patches.load(Ordering::Relaxed), 1, "one write tells all");

    let running = agent.running();
    if rustix::process::geteuid().is_root() {
        let shown = std::fs::read_to_string(format!("/proc/{}/status", running.pid())).unwrap();
        assert!(shown.contains(&format!("Uid:\t{}", status["runtimeUser"])), "{shown}");
    }
    if agent.host.cgroups.is_some() {
        assert!(running.usage().unwrap().memory_bytes > 0);
    }
    let mut screen = running.qmp().connect_vnc().await.unwrap();
    let mut greeting = [0; 4];
    tokio::io::AsyncReadExt::read_exact(&mut screen, &mut greeting).await.unwrap();
    assert_eq!(&greeting, b"RFB ");
    tokio::net::UnixStream::connect(running.console_socket()).await.unwrap();
    assert_eq!(running.usb_sockets().len(), 4);

    running.qmp().stop().await.unwrap();
    let paused = node.until("paused", |object| Node::condition(object, "Paused").0 == "True").await;
    assert_eq!(Node::condition(&paused, "Paused").1, "PausedByUser");
    assert_eq!(Node::condition(&paused, "Ready").0, "False");
    running.qmp().cont().await.unwrap();
    node.until("unpaused", |object| Node::condition(object, "Paused").0.is_empty()).await;
    running.edit_guest(|facts| facts.readiness = Some(Err("probe".into())));
    node.until("unready", |object| Node::condition(object, "Ready").1 == "ContainersNotReady").await;
    running.edit_guest(|facts| facts.readiness = Some(Ok(())));
    node.until("ready", |object| Node::condition(object, "Ready").0 == "True").await;
    assert!(node.disks.state().join(&node.uid).join("nvram.fd").exists());
    assert!(node.disks.state().join(&node.uid).join("tpm/tpm2-00.permall").exists());

    drop(running);
    node.delete();
    node.until_gone(&mut agent).await;
    // Nobody owns this instance, so that even its state goes.
    assert_eq!(node.leftovers(), Vec::<String>::new());
    assert!(agent.present.0.lock().is_none());
}

#[tokio::test]
async fn a_guest_that_powers_off_has_succeeded() {
    let mut spec = bare(json!({ "disks": [{ "name": "root", "disk": { "bus": "virtio" } }] }));
    spec["volumes"] = json!([{ "name": "root", "persistentVolumeClaim": { "claimName": "root" } }]);
    let node = Node::new(spec);
    let mut sector = vec![0; 512];
    sector[..POWERS_OFF.len()].copy_from_slice(POWERS_OFF);
    sector[510..].copy_from_slice(&[0x55, 0xaa]);
    let path = node.disk_file("root", 1 << 20);
    std::fs::OpenOptions::new().write(true).open(path).unwrap().write_all(&sector).unwrap();
    let mut agent = node.start_agent();
    let object = node.until_phase("Succeeded").await;
    assert_eq!(Node::condition(&object, "Ready").0, "False");
    assert_eq!(node.leftovers(), Vec::<String>::new());
    node.delete();
    node.until_gone(&mut agent).await;
}

#[tokio::test]
async fn a_killed_qemu_has_failed() {
    let node = Node::new(bare(json!({})));
    let mut agent = node.start_agent();
    node.until_phase("Running").await;
    kill(agent.running().pid());
    let object = node.until_phase("Failed").await;
    assert_eq!(object["status"]["reason"], "Crashed");
    assert!(node.table.told.lock().iter().any(|(_, message)| message.contains("signal 9")));
    assert_eq!(node.leftovers(), Vec::<String>::new());
    node.delete();
    node.until_gone(&mut agent).await;
}

#[tokio::test]
async fn a_machine_outlives_its_agent_and_is_adopted() {
    let node = Node::new(bare(json!({ "interfaces": [{ "name": "default", "bridge": {} }] })));
    let agent = node.start_agent();
    let before = node.until_phase("Running").await;
    let pid = agent.running().pid();
    agent.running().qmp().stop().await.unwrap();
    node.until("paused", |object| Node::condition(object, "Paused").0 == "True").await;
    drop(agent);

    let mut agent = node.start_agent();
    agent.until_running().await;
    assert_eq!(agent.running().pid(), pid);
    agent.running().qmp().cont().await.unwrap();
    let after = node.until("unpaused", |object| Node::condition(object, "Paused").0.is_empty()).await;
    for field in ["interfaces", "memory", "currentCPUTopology", "runtimeUser", "volumeStatus", "machine"] {
        assert_eq!(after["status"][field], before["status"][field], "{field}");
    }
    node.delete();
    node.until_gone(&mut agent).await;
    assert_eq!(node.leftovers(), Vec::<String>::new());
}

#[tokio::test]
async fn a_machine_that_went_while_nobody_looked_has_failed() {
    let node = Node::new(bare(json!({})));
    let agent = node.start_agent();
    node.until_phase("Running").await;
    let pid = agent.running().pid();
    drop(agent);
    kill(pid);
    let mut agent = node.start_agent();
    let object = node.until_phase("Failed").await;
    assert_eq!(object["status"]["reason"], "NodeRestarted");
    node.delete();
    node.until_gone(&mut agent).await;
    assert_eq!(node.leftovers(), Vec::<String>::new());
}

#[tokio::test]
async fn what_is_missing_is_waited_for_and_what_cannot_be_is_refused() {
    let mut spec = bare(json!({ "disks": [{ "name": "seed", "disk": { "bus": "virtio" } },
        { "name": "root", "disk": { "bus": "virtio" } }] }));
    spec["volumes"] = json!([{ "name": "seed", "cloudInitNoCloud": { "secretRef": { "name": "s" } } },
        { "name": "root", "containerDisk": { "image": "img" } }]);
    let node = Node::new(spec);
    let mut agent = node.start_agent();
    let waiting = node.until("waiting", |object| Node::condition(object, "Synchronized").1 == "FailedMount").await;
    assert_eq!(waiting["status"]["phase"], "Scheduled");
    let secret = json!({ "metadata": { "name": "s" }, "data": { "userdata": "I2Nsb3VkLWNvbmZpZw==" } });
    node.table.put("/api/v1/namespaces/ns/secrets/s", secret);
    node.until("no image", |object| Node::condition(object, "Synchronized").1 == "ErrImagePull").await;
    let image = node.dir.path().join("image.raw");
    std::fs::File::create(&image).unwrap().set_len(1 << 20).unwrap();
    node.images.0.lock().insert("img".into(), image);
    let object = node.until_phase("Running").await;
    assert_eq!(Node::condition(&object, "Synchronized").0, "True");
    node.delete();
    node.until_gone(&mut agent).await;

    let node = Node::new(bare(json!({ "gpus": [{ "name": "g", "deviceName": "x" }] })));
    let mut agent = node.start_agent();
    let object = node.until_phase("Failed").await;
    assert_eq!(Node::condition(&object, "Synchronized"), ("False".into(), "FailedCreate".into()));
    assert!(object.to_string().contains("g is not on this node"));
    assert_eq!(node.leftovers(), Vec::<String>::new());
    node.delete();
    node.until_gone(&mut agent).await;
}

#[tokio::test]
async fn a_machine_is_deleted_while_it_waits() {
    let mut spec = bare(json!({ "disks": [{ "name": "root", "disk": {} }] }));
    spec["volumes"] = json!([{ "name": "root", "persistentVolumeClaim": { "claimName": "never" } }]);
    let node = Node::new(spec);
    let mut agent = node.start_agent();
    node.until("waiting", |object| Node::condition(object, "Synchronized").1 == "NotBound").await;
    node.delete();
    node.until_gone(&mut agent).await;
    assert_eq!(node.leftovers(), Vec::<String>::new());
}

#[tokio::test]
async fn a_machine_may_start_paused_and_be_given_up() {
    let mut spec = bare(json!({}));
    spec["startStrategy"] = json!("Paused");
    let node = Node::new(spec);
    let mut agent = node.start_agent();
    let object = node.until_phase("Running").await;
    assert_eq!(Node::condition(&object, "Paused").1, "PausedByUser");
    agent.running().qmp().cont().await.unwrap();
    node.until("unpaused", |object| Node::condition(object, "Paused").0.is_empty()).await;
    agent.running().fail("liveness probe failed");
    let object = node.until_phase("Failed").await;
    assert_eq!(object["status"]["reason"], "Unhealthy");
    node.delete();
    node.until_gone(&mut agent).await;
    assert_eq!(node.leftovers(), Vec::<String>::new());
}
