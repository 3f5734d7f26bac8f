//! What nodes and machines use, now and over time: `/croft/v1/usage/…` and `metrics.k8s.io` (docs/usage.md).
//!
//! The agents hold the figures; here it is found out whose they are, whether the caller may see them, and who has them.

use std::time::Duration;

use croft_meta::ApiError;
use futures::future::join_all;
use http::Method;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::answer::{self, Answer};
use crate::auth::Attributes;
use crate::call::{self, Call};
use crate::node_proxy::{self, Patience};
use crate::pipeline::not_allowed;
use crate::request::{RequestInfo, percent_decode};
use crate::server::ApiServer;

const ROOT: &str = "/croft/v1/usage/";
const INSTANCES: &str = "virtualmachineinstances";
const KUBEVIRT: &str = "kubevirt.io";
const NODES: &str = "core/nodes";
/// For all nodes together: one that is down must not keep the others' figures away.
const PATIENCE: Duration = Duration::from_secs(5);
/// A thousand machines of one node.
const MOST: usize = 4 << 20;

pub(crate) const GROUP: &str = "metrics.k8s.io";
const VERSION: &str = "v1beta1";

/// Those paths are about nodes and instances, and are authorized where it is known which.
pub(crate) fn is_usage(info: &RequestInfo) -> bool {
    !info.is_resource && info.path.starts_with(ROOT)
}

pub(crate) async fn answer(call: &Call) -> Result<Answer, ApiError> {
    let rest = call.info.path.strip_prefix(ROOT).unwrap_or_default().trim_end_matches('/');
    let decoded: Vec<String> = rest.split('/').map(|part| percent_decode(part).into_owned()).collect();
    let path: Vec<&str> = decoded.iter().map(String::as_str).collect();
    if call.info.verb != "get" {
        return Err(not_allowed());
    }
    match path.as_slice() {
        ["nodes"] => {
            authorize(call, "list", "", "nodes", "", "")?;
            let newest = newest(&call.server).await?;
            let items = newest.answers.into_iter().filter_map(|(node, mut told)| named(told["node"].take(), &node));
            Ok(list(&items.collect::<Vec<_>>(), &newest.unreachable))
        }
        ["nodes", name] => {
            authorize(call, "get", "", "nodes", "", name)?;
            node_history(call, name).await
        }
        [INSTANCES] => instances(call).await,
        [INSTANCES, namespace, name] => {
            authorize(call, "get", KUBEVIRT, INSTANCES, namespace, name)?;
            instance_history(call, namespace, name).await
        }
        _ => Err(ApiError::no_such_path()),
    }
}

fn authorize(
    call: &Call,
    verb: &str,
    group: &str,
    resource: &str,
    namespace: &str,
    name: &str,
) -> Result<(), ApiError> {
    let wanted = Attributes { is_resource: true, verb, group, resource, namespace, name, ..Attributes::default() };
    call.server.auth.authorize(&call.user, &wanted)
}

async fn instances(call: &Call) -> Result<Answer, ApiError> {
    let namespace = call.query.get("namespace").unwrap_or_default();
    authorize(call, "list", KUBEVIRT, INSTANCES, namespace, "")?;
    let newest = newest(&call.server).await?;
    let mut items = Vec::new();
    for (node, mut told) in newest.answers {
        let machines = told["machines"].as_array_mut().map(std::mem::take).unwrap_or_default();
        let wanted = machines.into_iter().filter(|item| namespace.is_empty() || item["namespace"] == namespace);
        items.extend(wanted.filter_map(|item| named(item, &node)));
    }
    Ok(list(&items, &newest.unreachable))
}

/// With the node's name; nothing for what is not known yet.
fn named(mut item: Value, node: &str) -> Option<Value> {
    item.as_object_mut()?.insert("node".to_owned(), json!(node));
    Some(item)
}

fn list(items: &[Value], unreachable: &[String]) -> Answer {
    let mut list = json!({ "kind": "UsageList", "items": items });
    if !unreachable.is_empty() {
        list["unreachable"] = json!(unreachable);
    }
    answer::json(200, &list)
}

async fn node_history(call: &Call, name: &str) -> Result<Answer, ApiError> {
    let window = window(call)?;
    call.server.cache.fresh().await?;
    if call.server.cache.collection(NODES).get(name).is_none() {
        return Err(ApiError::not_found("", "nodes", name));
    }
    let mut history = ask(&call.server, name, &format!("/v1/usage/node?window={window}")).await?;
    history["node"] = json!(name);
    Ok(answer::json(200, &history))
}

async fn instance_history(call: &Call, namespace: &str, name: &str) -> Result<Answer, ApiError> {
    let window = window(call)?;
    call.server.cache.fresh().await?;
    let found = call.server.cache.collection(&format!("{KUBEVIRT}/{INSTANCES}")).get(&call::id(namespace, name));
    let instance = found.ok_or_else(|| ApiError::not_found(KUBEVIRT, INSTANCES, name))?.json();
    let node = instance.pointer("/status/nodeName").and_then(Value::as_str).unwrap_or_default();
    let mut history = if node.is_empty() {
        // On no node yet.
        let seconds = if window == "24h" { 120 } else { 5 };
        json!({ "kind": "UsageHistory", "window": window, "intervalSeconds": seconds, "times": [], "series": {},
            "capacity": {} })
    } else {
        // The instance exists, so that its names have nothing to escape.
        ask(&call.server, node, &format!("/v1/usage/vmis/{namespace}/{name}?window={window}")).await?
    };
    (history["node"], history["namespace"], history["name"]) = (json!(node), json!(namespace), json!(name));
    Ok(answer::json(200, &history))
}

fn window(call: &Call) -> Result<&'static str, ApiError> {
    match call.query.get("window").unwrap_or_default() {
        "" | "10m" => Ok("10m"),
        "24h" => Ok("24h"),
        other => Err(ApiError::bad_request(format!("window: {other:?} is neither 10m nor 24h"))),
    }
}

/// What an agent answers.
async fn ask(server: &ApiServer, node: &str, path: &str) -> Result<Value, ApiError> {
    let request = node_proxy::request(Method::GET, path, answer::full(""))?;
    let answer = server.call_node(node, request, Patience::Short).await?;
    let (parts, body) = answer.into_parts();
    let body = answer::read_body(body, MOST).await?;
    if !parts.status.is_success() {
        return Err(ApiError::unavailable(format!("node {node:?} answers {}", parts.status)));
    }
    serde_json::from_slice(&body).map_err(ApiError::internal)
}

struct Newest {
    /// By node, in order.
    answers: Vec<(String, Value)>,
    unreachable: Vec<String>,
}

/// Of all nodes, at the same time.
async fn newest(server: &ApiServer) -> Result<Newest, ApiError> {
    server.cache.fresh().await?;
    let nodes: Vec<String> =
        server.cache.collection(NODES).list("").iter().map(|node| node.name().to_owned()).collect();
    let asking = nodes.iter().map(|node| tokio::time::timeout(PATIENCE, ask(server, node, "/v1/usage")));
    let mut newest = Newest { answers: Vec::new(), unreachable: Vec::new() };
    for (node, told) in nodes.iter().zip(join_all(asking).await) {
        match told {
            Ok(Ok(told)) => newest.answers.push((node.clone(), told)),
            _ => newest.unreachable.push(node.clone()),
        }
    }
    Ok(newest)
}

pub(crate) fn group() -> (&'static str, &'static [&'static str]) {
    (GROUP, &[VERSION])
}

/// The entries of the group's APIResourceList.
pub(crate) fn listed() -> Vec<Value> {
    let entry = |name: &str, kind: &str, namespaced: bool| json!({ "name": name, "singularName": "", "namespaced": namespaced, "kind": kind, "verbs": ["get", "list"] });
    vec![entry("nodes", "NodeMetrics", false), entry("pods", "PodMetrics", true)]
}

/// The same for aggregated discovery.
pub(crate) fn discovered() -> Vec<Value> {
    let entry = |name: &str, kind: &str, scope: &str| {
        json!({ "resource": name, "responseKind": { "group": GROUP, "version": VERSION, "kind": kind }, "scope": scope,
            "singularResource": "", "verbs": ["get", "list"] })
    };
    vec![entry("nodes", "NodeMetrics", "Cluster"), entry("pods", "PodMetrics", "Namespaced")]
}

/// A request for `metrics.k8s.io`.
pub(crate) async fn metrics(call: &Call) -> Result<Answer, ApiError> {
    let info = &call.info;
    if info.version != VERSION || !info.subresource.is_empty() {
        return Err(ApiError::no_such_path());
    }
    if !matches!(info.verb, "get" | "list") {
        return Err(not_allowed());
    }
    let name = if info.is_name_selected { "" } else { info.name.as_str() };
    match (info.resource.as_str(), name) {
        ("nodes", "") if info.namespace.is_empty() => {
            let newest = newest(&call.server).await?;
            let items = newest.answers.iter().filter_map(|(node, told)| node_metrics(node, told));
            Ok(metrics_list("NodeMetricsList", &items.collect::<Vec<_>>()))
        }
        ("nodes", name) if info.namespace.is_empty() => {
            let told = match call.server.cache.collection(NODES).get(name) {
                Some(_) => ask(&call.server, name, "/v1/usage").await?,
                None => Value::Null,
            };
            let metrics = node_metrics(name, &told).ok_or_else(|| ApiError::not_found(GROUP, "nodes", name))?;
            Ok(answer::json(200, &metrics))
        }
        // No container runs here, so that no pod uses anything.
        ("pods", "") => Ok(metrics_list("PodMetricsList", &[])),
        ("pods", name) if !info.namespace.is_empty() => Err(ApiError::not_found(GROUP, "pods", name)),
        _ => Err(ApiError::no_such_path()),
    }
}

fn metrics_list(kind: &str, items: &[Value]) -> Answer {
    answer::json(
        200,
        &json!({ "kind": kind, "apiVersion": format!("{GROUP}/{VERSION}"), "metadata": {}, "items": items }),
    )
}

fn node_metrics(name: &str, told: &Value) -> Option<Value> {
    let time = Timestamp::from_second(told.pointer("/node/time")?.as_i64()?).ok()?.to_string();
    let mean = |figure: &str| told["mean"][figure].as_f64();
    let cpu = format!("{:.0}n", mean("cpuCores")? * 1e9);
    let memory = format!("{:.0}Ki", mean("memoryBytes")? / 1024.0);
    Some(json!({
        "kind": "NodeMetrics", "apiVersion": format!("{GROUP}/{VERSION}"),
        "metadata": { "name": name, "creationTimestamp": time }, "timestamp": time, "window": "30s",
        "usage": { "cpu": cpu, "memory": memory },
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::Query;

    #[test]
    fn paths_of_usage_are_known() {
        let is_usage = |path: &str| is_usage(&RequestInfo::parse(&Method::GET, path, &Query::default()));
        for (path, expected) in [
            ("/croft/v1/usage/nodes", true),
            ("/croft/v1/usage/nodes/a", true),
            ("/croft/v1/usage", false),
            ("/croft/v1/state", false),
            ("/apis/metrics.k8s.io/v1beta1/nodes", false),
        ] {
            assert_eq!(is_usage(path), expected, "{path}");
        }
    }

    #[test]
    fn metrics_are_in_kubernetes_units() {
        let told = json!({ "node": { "time": 0 }, "mean": { "cpuCores": 0.25, "memoryBytes": 1_048_576.0 } });
        let metrics = node_metrics("a", &told).unwrap();
        assert_eq!(metrics["usage"], json!({ "cpu": "250000000n", "memory": "1024Ki" }));
        assert_eq!((&metrics["timestamp"], &metrics["window"]), (&json!("1970-01-01T00:00:00Z"), &json!("30s")));
        assert_eq!(node_metrics("a", &json!({ "node": null, "mean": null })), None);
    }
}
