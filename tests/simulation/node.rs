//! What the agent of a node would do, with no guests.

use std::time::Duration;

use anyhow::{Result, bail};
use http::Method;
use serde_json::{Value, json};

use crate::client::{Answer, Client};
use crate::sim::Sim;
use crate::users::text;

const NAME: &str = "n1";
const INSTANCES: &str = "/apis/kubevirt.io/v1/virtualmachineinstances";
/// The node's own: the guest has ended.
const FINALIZER: &str = "kubevirt.io/foregroundDeleteVirtualMachine";

/// Makes the node known, with room for every machine.
pub(crate) async fn add(client: &Client) -> Result<()> {
    let labels = json!({"kubevirt.io/schedulable": "true", "kubernetes.io/hostname": NAME});
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": NAME, "labels": labels}});
    let amounts = json!({"cpu": "64", "memory": "64Gi"});
    let conditions = json!([{"type": "Ready", "status": "True"}]);
    let status = json!({"status": {"allocatable": amounts, "capacity": amounts, "conditions": conditions}});
    let made = client.send(Method::POST, "/api/v1/nodes", Some(&node)).await;
    let told = client.send(Method::PATCH, &format!("/api/v1/nodes/{NAME}/status"), Some(&status)).await;
    match (made, told) {
        (Answer::Done(_), Answer::Done(_)) => Ok(()),
        other => bail!("the node could not be added: {other:?}"),
    }
}

/// Looks at all instances again and again: it needs no watch to be right in the end.
pub(crate) async fn act(sim: Sim, client: Client) {
    loop {
        // A node has less to do when nothing goes wrong.
        sim.sleep(Duration::from_millis(if sim.is_faulty() { 900 } else { 4000 })).await;
        let Answer::Done(list) = client.get(INSTANCES).await else { continue };
        for instance in list["items"].as_array().into_iter().flatten() {
            let Some(patch) = next_step(&sim, instance) else { continue };
            let (namespace, name) = (text(instance, "/metadata/namespace"), text(instance, "/metadata/name"));
            let path = format!("/apis/kubevirt.io/v1/namespaces/{namespace}/virtualmachineinstances/{name}");
            client.send(Method::PATCH, &path, Some(&patch)).await;
        }
    }
}

fn next_step(sim: &Sim, instance: &Value) -> Option<Value> {
    if text(instance, "/status/nodeName") != NAME {
        return None;
    }
    let finalizers = instance.pointer("/metadata/finalizers").and_then(Value::as_array);
    let others: Vec<&Value> = finalizers.into_iter().flatten().filter(|one| **one != FINALIZER).collect();
    // The uid keeps it from being said of another instance of the same name.
    let uid = text(instance, "/metadata/uid");
    let ended = |phase: &str| json!({"metadata": {"uid": uid, "finalizers": others}, "status": {"phase": phase}});
    let is_going = !instance["metadata"]["deletionTimestamp"].is_null();
    match text(instance, "/status/phase").as_str() {
        "Scheduled" | "Running" if is_going => Some(ended("Succeeded")),
        "Succeeded" | "Failed" if is_going && finalizers.is_some_and(|all| all.len() > others.len()) => {
            Some(ended(&text(instance, "/status/phase")))
        }
        "Running" if sim.is_faulty() && sim.percent(3) => {
            let end = sim.pick(&["Failed", "Succeeded"]);
            Some(ended(end))
        }
        "Scheduled" => Some(json!({"metadata": {"uid": uid}, "status": {
            "phase": "Running",
            "conditions": [{"type": "Ready", "status": "True"}],
            "phaseTransitionTimestamps": [{"phase": "Running"}],
        }})),
        _ => None,
    }
}
