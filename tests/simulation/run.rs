//! One seed, from a cluster at rest to a cluster at rest.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::client::{Answer, Client};
use crate::cluster::Cluster;
use crate::invariants;
use crate::mutation::Mutation;
use crate::sim::Sim;
use crate::users::{CONFIG_MAPS, CONTENDED, HOLD, Log, NAMESPACES, QUOTA, User, release, text};
use crate::watcher::Watcher;
use crate::{node, users};

const USERS: u64 = 3;
/// A cluster that writes nothing for this long has settled ...
const QUIET: Duration = Duration::from_secs(75);
/// ... and one that has not by now will not.
const SETTLES_WITHIN: Duration = Duration::from_mins(20);

/// Brings up what every seed starts from.
pub(crate) async fn boot(sim: Sim, data_dir: &std::path::Path) -> Result<Arc<Cluster>> {
    let cluster = Cluster::boot(sim, data_dir.to_owned()).await?;
    let client = Client::new(cluster.wire("boot"));
    node::add(&client).await?;
    let name = CONTENDED.rsplit('/').next().unwrap_or_default();
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}});
    let made = client.send(http::Method::POST, "/api/v1/namespaces/default/configmaps", Some(&map)).await;
    anyhow::ensure!(matches!(made, Answer::Done(_)), "the first object could not be made: {made:?}");
    if let Err(busy) = settle(&cluster).await {
        anyhow::bail!("a new cluster does not come to rest: {busy}");
    }
    Ok(cluster)
}

pub(crate) async fn run(cluster: &Arc<Cluster>, seed: u64, mutation: Option<Mutation>, is_verbose: bool) {
    let sim = &cluster.sim;
    let from = cluster.disk.revision();
    sim.begin(seed, mutation, is_verbose);
    if mutation == Some(Mutation::NobodyCleansUp) {
        cluster.kill_controllers();
    }
    let log = Arc::new(Log::default());
    let mut background = JoinSet::new();
    background.spawn(Arc::clone(cluster).supervise());
    background.spawn(node::act(sim.clone(), Client::new(cluster.wire("node"))));
    let watchers: Vec<Arc<Watcher>> = watchers(cluster);
    for watcher in &watchers {
        background.spawn(Arc::clone(watcher).run());
    }
    let mut actors = JoinSet::new();
    for number in 0..USERS {
        let user = User {
            sim: sim.clone(),
            disk: Arc::clone(&cluster.disk),
            client: Client::new(cluster.wire(&format!("user{number}"))),
            log: Arc::clone(&log),
            name: format!("user{number}"),
            owners: Vec::new(),
            done: 0,
        };
        actors.spawn(user.run(6 + u32::try_from(sim.below(11)).unwrap_or(0)));
    }
    actors.spawn(misfortunes(Arc::clone(cluster)));
    while let Some(ended) = actors.join_next().await {
        ended.expect("an actor does not panic");
    }
    sim.step(format_args!("all goes well from here on"));
    sim.mend();
    vandalise(cluster, mutation);
    release_all(cluster, &log).await;
    if let Err(busy) = settle(cluster).await {
        sim.problem("settled", format_args!("{busy}"));
    }
    // What was held meanwhile, by those who came late, goes as well.
    for watcher in &watchers {
        watcher.check_end();
    }
    invariants::check(sim, &cluster.disk, &log, from);
    background.abort_all();
}

fn watchers(cluster: &Arc<Cluster>) -> Vec<Arc<Watcher>> {
    let paths = [
        ("/api/v1/configmaps", CONFIG_MAPS.to_owned()),
        ("/api/v1/namespaces/s0/configmaps", format!("{CONFIG_MAPS}s0/")),
        ("/api/v1/configmaps?labelSelector=tier%3Da", CONFIG_MAPS.to_owned()),
    ];
    let watcher = |(path, prefix): (&str, String)| Watcher {
        sim: cluster.sim.clone(),
        disk: Arc::clone(&cluster.disk),
        client: Client::new(cluster.wire("watcher")),
        path: path.to_owned(),
        prefix,
        expected: parking_lot::Mutex::new(None),
    };
    paths.into_iter().map(|path| Arc::new(watcher(path))).collect()
}

/// What befalls a cluster.
async fn misfortunes(cluster: Arc<Cluster>) {
    let sim = cluster.sim.clone();
    for _ in 0..sim.below(4) {
        sim.sleep(sim.within(Duration::from_secs(8))).await;
        match sim.below(8) {
            0 | 1 => cluster.crash().await,
            2 | 3 => {
                cluster.kill_controllers();
                sim.sleep(sim.within(Duration::from_secs(4))).await;
                cluster.start_controllers();
            }
            4 | 5 => {
                let newest = cluster.disk.revision();
                let until = newest - sim.below(20.min(newest));
                sim.step(format_args!("the store forgets what was before {until}"));
                // The newest is always reachable.
                let _ = cluster.disk.compact(until);
            }
            _ => {
                for lease in cluster.disk.leases() {
                    sim.step(format_args!("{lease:?} ends early"));
                    cluster.disk.revoke(lease);
                }
            }
        }
    }
}

/// Deliberate damage, for the mutations that are not in the store or the network.
fn vandalise(cluster: &Arc<Cluster>, mutation: Option<Mutation>) {
    let disk = &cluster.disk;
    let map = |name: &str| {
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "default",
        "uid": name, "creationTimestamp": "2026-01-01T00:00:00Z"}})
    };
    let key = |name: &str| format!("{CONFIG_MAPS}default/{name}");
    match mutation {
        Some(Mutation::UidTwice) => {
            for name in ["one", "two"] {
                let mut object = map(name);
                object["metadata"]["uid"] = json!("the-same");
                disk.put(&key(name), &object);
            }
        }
        Some(Mutation::ChildCollected) => {
            let mut child = map("child");
            child["metadata"]["ownerReferences"] =
                json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "parent", "uid": "parent"}]);
            disk.put(&key("parent"), &map("parent"));
            disk.put(&key("child"), &child);
            disk.delete(&key("child"));
        }
        Some(Mutation::FinalizerIgnored) => {
            let mut held = map("held");
            held["metadata"]["finalizers"] = json!([HOLD]);
            disk.put(&key("held"), &held);
            disk.delete(&key("held"));
        }
        Some(Mutation::TwoInstances) => {
            for name in ["one", "two"] {
                let mut instance = map(name);
                instance["metadata"]["ownerReferences"] = json!([{"apiVersion": "kubevirt.io/v1",
                    "kind": "VirtualMachine", "name": "vm", "uid": "vm"}]);
                disk.put(&format!("registry/kubevirt.io/virtualmachineinstances/default/{name}"), &instance);
            }
        }
        Some(Mutation::QuotaExceeded) => {
            let quota = "registry/core/resourcequotas/default/quota";
            disk.put(
                quota,
                &json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "quota",
                "namespace": "default", "uid": "quota"}, "spec": {"hard": {"count/configmaps": QUOTA.to_string()}}}),
            );
            for number in 0..40 {
                let name = format!("more-{number}");
                disk.put(&key(&name), &map(&name));
            }
        }
        Some(Mutation::HotLoop) => {
            let (disk, sim) = (Arc::clone(disk), cluster.sim.clone());
            let key = key("busy");
            tokio::spawn(async move {
                for turn in 0.. {
                    sim.sleep(Duration::from_secs(20)).await;
                    disk.put(
                        &key,
                        &json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"turn": turn.to_string()},
                        "metadata": {"name": "busy", "namespace": "default", "uid": "busy"}}),
                    );
                }
            });
        }
        _ => {}
    }
}

/// Users take back every hold, so that what should go can.
async fn release_all(cluster: &Arc<Cluster>, log: &users::Log) {
    let client = Client::new(cluster.wire("tidy"));
    for namespace in NAMESPACES {
        let path = format!("/api/v1/namespaces/{namespace}/configmaps");
        let list = loop {
            match client.get(&path).await {
                Answer::Done(list) => break list,
                _ => cluster.sim.sleep(Duration::from_secs(1)).await,
            }
        };
        for object in list["items"].as_array().into_iter().flatten() {
            let finalizers = object.pointer("/metadata/finalizers").and_then(Value::as_array);
            if finalizers.into_iter().flatten().any(|one| one == HOLD) {
                let name = text(object, "/metadata/name");
                let key = format!("{CONFIG_MAPS}{namespace}/{name}");
                release(&cluster.disk, &client, log, &format!("{path}/{name}"), key).await;
            }
        }
    }
}

/// Waits until nothing is written any more; says what is, if that does not come.
async fn settle(cluster: &Cluster) -> std::result::Result<(), String> {
    let (sim, disk) = (&cluster.sim, &cluster.disk);
    let began = sim.elapsed();
    let mut last = (disk.revision(), sim.elapsed());
    while sim.elapsed() < last.1 + QUIET {
        if sim.elapsed() > began + SETTLES_WITHIN {
            let mut busy: BTreeMap<String, u32> = BTreeMap::new();
            for revision in disk.revision().saturating_sub(20)..=disk.revision() {
                for event in disk.commit_of(revision).iter().flat_map(|commit| commit.iter()) {
                    *busy.entry(event.key.clone()).or_default() += 1;
                }
            }
            return Err(format!("still written after {SETTLES_WITHIN:?}: {busy:?}"));
        }
        sim.sleep(Duration::from_secs(5)).await;
        if disk.revision() != last.0 {
            last = (disk.revision(), sim.elapsed());
        }
    }
    Ok(())
}
