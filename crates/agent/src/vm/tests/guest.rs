//! The tiny guest (`make guest`), which sees what is plugged and says what cloud-init told it. Skipped without it.

use std::process::Command;

use serde_json::json;
use tokio::io::AsyncReadExt;

use super::*;

/// The guest's disk as raw bytes.
fn image(node: &Node) -> Option<PathBuf> {
    let named = std::env::var_os("CROFT_GUEST").map(PathBuf::from);
    let built = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/guest/tiny.qcow2");
    let source = named.unwrap_or(built);
    if !source.exists() {
        return None;
    }
    let raw = node.dir.path().join("tiny.raw");
    let made = Command::new("qemu-img").args(["convert", "-O", "raw"]).arg(&source).arg(&raw).status().unwrap();
    assert!(made.success());
    Some(raw)
}

/// Everything on the serial console until a word appears.
async fn hear(console: &mut tokio::net::UnixStream, heard: &mut String, word: &str) {
    let listen = async {
        let mut buffer = [0; 4096];
        while !heard.contains(word) {
            let count = console.read(&mut buffer).await.unwrap();
            assert!(count > 0, "the console has ended: {heard}");
            heard.push_str(&String::from_utf8_lossy(&buffer[..count]));
        }
    };
    let outcome = tokio::time::timeout(Duration::from_mins(3), listen).await;
    assert!(outcome.is_ok(), "{word:?} was not heard in: {heard}");
}

#[tokio::test]
async fn a_guest_reads_its_seed_sees_a_disk_come_and_go_and_shuts_down() {
    let user_data = "#cloud-config\nruncmd:\n  - echo seed-says-$(hostname) > /dev/ttyS0\n  \
        - (while ! ls /dev/sda >/dev/null 2>&1; do sleep 0.2; done; echo disk-came > /dev/ttyS0; \
        while ls /dev/sda >/dev/null 2>&1; do sleep 0.2; done; echo disk-went > /dev/ttyS0) &\n";
    let mut spec = json!({
        "terminationGracePeriodSeconds": 120,
        "hostname": "tiny-host",
        "domain": { "memory": { "guest": "256Mi" }, "devices": {
            "interfaces": [{ "name": "default", "masquerade": {} }],
            "disks": [{ "name": "root", "disk": { "bus": "virtio" } }, { "name": "seed", "disk": { "bus": "virtio" } }] } },
        "networks": [{ "name": "default", "pod": {} }],
    });
    spec["volumes"] = json!([{ "name": "root", "containerDisk": { "image": "tiny" } },
        { "name": "seed", "cloudInitNoCloud": { "userData": user_data } }]);
    let node = Node::new(spec.clone());
    let Some(raw) = image(&node) else { return };
    node.images.0.lock().insert("tiny".into(), raw);
    node.disk_file("hot", 8 << 20);
    let mut agent = node.start_agent();
    node.until_phase("Running").await;
    let mut console = tokio::net::UnixStream::connect(agent.running().console_socket()).await.unwrap();
    let mut heard = String::new();
    hear(&mut console, &mut heard, "seed-says-tiny-host").await;
    hear(&mut console, &mut heard, "croft-guest ready").await;

    let mut disks = spec["domain"]["devices"]["disks"].clone();
    disks.as_array_mut().unwrap().push(json!({ "name": "hot", "disk": { "bus": "scsi" } }));
    let mut volumes = spec["volumes"].clone();
    let claim = json!({ "claimName": "hot", "hotpluggable": true });
    volumes.as_array_mut().unwrap().push(json!({ "name": "hot", "persistentVolumeClaim": claim }));
    node.change(&json!({ "spec": { "volumes": volumes, "domain": { "devices": { "disks": disks } } } }));
    hear(&mut console, &mut heard, "disk-came").await;
    let (volumes, disks) = (&spec["volumes"], &spec["domain"]["devices"]["disks"]);
    node.change(&json!({ "spec": { "volumes": volumes, "domain": { "devices": { "disks": disks } } } }));
    hear(&mut console, &mut heard, "disk-went").await;

    // The power button, within its grace.
    node.delete();
    hear(&mut console, &mut heard, "croft-guest stopping").await;
    tokio::time::timeout(Duration::from_mins(1), &mut agent.task).await.expect("the guest to stop").unwrap();
    assert_eq!(node.leftovers(), Vec::<String>::new());
}
