//! What `docs/compatibility.md` says of actions and addons is what the server does.

use std::collections::BTreeSet;

use croft_testkit::{Answer, Client, Croft, StoreKind};
use serde_json::{Value, json};

const MACHINES: &str = "kubevirt.io.virtualmachines";
const CLAIMS: &str = "persistentvolumeclaims";
const KEYS: &str = "harvesterhci.io.keypairs";
const IMAGES: &str = "harvesterhci.io.virtualmachineimages";

/// A row of a table: what is in the first cell's quotes, and the other two cells.
type Row = (&'static str, &'static str, &'static str);

fn rows() -> impl Iterator<Item = Row> {
    let lines = include_str!("../docs/compatibility.md").lines();
    lines.filter_map(|line| {
        let (name, rest) = line.strip_prefix("| `")?.split_once("` | ")?;
        let (state, note) = rest.split_once(" | ")?;
        Some((name, state, note.trim_end_matches('|').trim()))
    })
}

/// Type, action, state, note.
fn actions() -> Vec<(&'static str, &'static str, &'static str, &'static str)> {
    let actions = rows().filter_map(|(name, state, note)| {
        let (ty, action) = name.split_once("?action=")?;
        Some((ty, action, state, note))
    });
    actions.collect()
}

async fn create(client: &Client, path: &str, object: &Value) -> Value {
    client.post(path, object).await.expect("an answer").ok().expect(path)
}

/// An object of each type, for the actions to be tried on. The machine is not running, so that nothing happens to it.
async fn create_objects(client: &Client) {
    let machine = json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": {"name": "one"},
        "spec": {"runStrategy": "Halted", "template": {"spec": {
            "domain": {
                "devices": {"disks": [{"name": "root", "disk": {"bus": "virtio"}}]},
                "resources": {"limits": {"cpu": "1", "memory": "64Mi"}},
            },
            "volumes": [{"name": "root", "containerDisk": {"image": "example.com/a"}}],
        }}},
    });
    create(client, "/apis/kubevirt.io/v1/namespaces/default/virtualmachines", &machine).await;
    let claim = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "one"},
        "spec": {
            "accessModes": ["ReadWriteMany"], "volumeMode": "Block",
            "resources": {"requests": {"storage": "1Gi"}},
        },
    });
    create(client, "/api/v1/namespaces/default/persistentvolumeclaims", &claim).await;
    let image = json!({
        "apiVersion": "harvesterhci.io/v1beta1", "kind": "VirtualMachineImage", "metadata": {"name": "one"},
        "spec": {"displayName": "one", "sourceType": "upload"},
    });
    create(client, "/apis/harvesterhci.io/v1beta1/namespaces/default/virtualmachineimages", &image).await;
    let snapshot = json!({
        "apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshot", "metadata": {"name": "one"},
        "spec": {"source": {"persistentVolumeClaimName": "one"}},
    });
    create(client, "/apis/snapshot.storage.k8s.io/v1/namespaces/default/volumesnapshots", &snapshot).await;
}

/// Without what the action would need: what is of interest is whether it is known.
async fn act(client: &Client, ty: &str, action: &str) -> Answer {
    let path = match ty {
        KEYS => format!("/v1/harvester/{ty}?action={action}"),
        _ => format!("/v1/harvester/{ty}/default/one?action={action}"),
    };
    client.post(&path, &json!({})).await.expect("an answer")
}

fn is_unknown(answer: &Answer) -> bool {
    answer.status == 404 && answer.text().contains("ActionNotAvailable")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_documented_action_is_known_and_no_other() {
    let server = Croft::start(StoreKind::Embedded).await.expect("the server starts");
    let client = server.client().expect("a client");
    create_objects(&client).await;
    let actions = actions();
    let refusals: BTreeSet<&str> = actions.iter().filter_map(|(_, _, _, note)| quoted(note)).collect();
    assert!(!refusals.is_empty(), "some actions are refused");
    for (ty, action, state, note) in &actions {
        let what = format!("{ty}?action={action}");
        let answer = act(&client, ty, action).await;
        // 503: an upload would need a node, which this server does not have.
        let is_answered = answer.status < 500 || answer.status == 503;
        assert!(!is_unknown(&answer) && is_answered, "{what}: {} {}", answer.status, answer.text());
        match *state {
            "works" => {
                let refusal = refusals.iter().find(|words| answer.text().contains(**words));
                assert_eq!(refusal, None, "{what}: {}", answer.text());
            }
            "refused" => {
                assert!((400..500).contains(&answer.status), "{what}: {}", answer.status);
                assert!(answer.text().contains(quoted(note).unwrap_or_default()), "{what}: {}", answer.text());
            }
            other => panic!("{what} is {other}"),
        }
    }
    for ty in [MACHINES, CLAIMS, KEYS] {
        assert!(is_unknown(&act(&client, ty, "levitate").await), "{ty}");
    }
    // Whatever the server offers is in the table as something that works.
    for ty in [MACHINES, CLAIMS, IMAGES] {
        let object = client.get(&format!("/v1/harvester/{ty}/default/one")).await.expect("an answer").ok().expect(ty);
        for action in object["actions"].as_object().into_iter().flatten().map(|(action, _)| action) {
            let is_documented = actions.iter().any(|row| (row.0, row.1, row.2) == (ty, action.as_str(), "works"));
            assert!(is_documented, "{ty}?action={action}");
        }
    }
}

fn quoted(note: &str) -> Option<&str> {
    note.strip_prefix('`')?.strip_suffix('`')
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_addon_is_documented() {
    let server = Croft::start(StoreKind::Embedded).await.expect("the server starts");
    let client = server.client().expect("a client");
    let addons = client.get("/apis/harvesterhci.io/v1beta1/addons").await.expect("an answer").json();
    let items = addons["items"].as_array().expect("items");
    let there: BTreeSet<&str> = items.iter().filter_map(|addon| addon["metadata"]["name"].as_str()).collect();
    let is_of_an_addon = |row: &Row| matches!(row.1, "built in" | "missing");
    let documented: BTreeSet<&str> = rows().filter(is_of_an_addon).map(|(name, _, _)| name).collect();
    assert_eq!(documented, there);
}
