//! Behaviours of Kubernetes' conformance list about Services: their type changes, what was allocated goes, and what is needed
//! comes; and that of the API server itself. `tests/conformance/behaviours.yaml` tells which test here stands for which
//! behaviour.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Result, ensure};
use croft_e2e::conformance_definition::get;
use croft_e2e::storage::made;
use croft_testkit::{Answer, Client, Croft, EtcdCluster, Lan, ServerKind, StoreKind, eventually_within, patience};
use serde_json::{Value, json};

const SERVICES: &str = "/api/v1/namespaces/default/services";

/// Reads it, changes it as a client does, and sends all of it back.
async fn updated(client: &Client, name: &str, change: impl FnOnce(&mut Value)) -> Answer {
    let path = format!("{SERVICES}/{name}");
    let mut service = get(client, &path).await;
    change(&mut service["spec"]);
    client.put(&path, &service).await.expect("an answer")
}

fn is_free_of_addresses(spec: &Value) -> bool {
    ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"].iter().all(|field| spec.get(field).is_none())
}

fn has_address(spec: &Value) -> bool {
    let address = spec["clusterIP"].as_str().unwrap_or_default();
    address.starts_with("10.53.") && spec["clusterIPs"] == json!([address]) && spec["ipFamilies"] == json!(["IPv4"])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn services_become_names_and_names_services() {
    let server = Croft::start(StoreKind::Embedded).await.expect("the server starts");
    let client = server.client().expect("a client");
    let ports = json!([{"name": "http", "port": 80, "protocol": "TCP", "targetPort": 9376}]);
    for kind in ["ClusterIP", "NodePort"] {
        to_a_name(&client, kind, &ports).await;
        from_a_name(&client, kind, &ports).await;
    }
    what_is_changed_as_well_is_judged(&client, &ports).await;
    ports_are_given_and_kept(&client).await;
}

async fn to_a_name(client: &Client, kind: &str, ports: &Value) {
    let name = format!("{}-service", kind.to_lowercase());
    let spec = json!({"type": kind, "selector": {"app": "x"}, "ports": ports});
    let service = made(client, SERVICES, &json!({"metadata": {"name": name}, "spec": spec})).await;
    let port = service["spec"]["ports"][0]["nodePort"].clone();
    assert!(has_address(&service["spec"]) && port.is_i64() == (kind == "NodePort"), "{service}");
    let answer = updated(client, &name, |spec| {
        spec["type"] = json!("ExternalName");
        spec["externalName"] = json!("externalsvc.default.svc.cluster.local");
    });
    let changed = answer.await.ok().expect("changed");
    assert!(is_free_of_addresses(&changed["spec"]), "{changed}");
    assert_eq!(changed["spec"]["ports"][0].get("nodePort"), None, "{changed}");
    assert_eq!(changed["spec"].get("externalTrafficPolicy"), None, "{changed}");
    // What was given back is there for others.
    let again = json!({"metadata": {"name": format!("{name}-again")}, "spec": {"type": kind,
        "clusterIP": service["spec"]["clusterIP"], "ports": [{"port": 80, "nodePort": port}]}});
    made(client, SERVICES, &again).await;
}

async fn from_a_name(client: &Client, kind: &str, ports: &Value) {
    let name = format!("name-to-{}", kind.to_lowercase());
    let spec = json!({"type": "ExternalName", "externalName": "foo.example.com"});
    let service = made(client, SERVICES, &json!({"metadata": {"name": name}, "spec": spec})).await;
    assert!(is_free_of_addresses(&service["spec"]), "{service}");
    let answer = updated(client, &name, |spec| {
        spec["type"] = json!(kind);
        spec["externalName"] = json!("");
        spec["ports"] = ports.clone();
    });
    let changed = answer.await.ok().expect("changed");
    assert!(has_address(&changed["spec"]), "{changed}");
    let port = changed["spec"]["ports"][0]["nodePort"].as_i64();
    assert_eq!(port.is_some_and(|port| (30_000..=32_767).contains(&port)), kind == "NodePort", "{changed}");
    assert_eq!(changed["spec"]["ports"][0]["targetPort"], 9376);
}

/// Only what the server itself gave goes without a word.
async fn what_is_changed_as_well_is_judged(client: &Client, ports: &Value) {
    made(client, SERVICES, &json!({"metadata": {"name": "own"}, "spec": {"type": "NodePort", "ports": ports}})).await;
    let refused = updated(client, "own", |spec| {
        spec["type"] = json!("ExternalName");
        spec["externalName"] = json!("foo.example.com");
        spec["clusterIP"] = json!("10.53.9.9");
        spec["clusterIPs"] = json!(["10.53.9.9"]);
    });
    let refused = refused.await;
    assert_eq!(refused.status, 422, "{}", refused.text());
    assert!(refused.text().contains("may not be set when `type` is 'ExternalName'"), "{}", refused.text());
    let refused = updated(client, "own", |spec| spec["ports"][0]["nodePort"] = json!(80)).await;
    assert_eq!(refused.status, 422, "{}", refused.text());
    assert!(refused.text().contains("provided port is not in the valid range"), "{}", refused.text());
}

async fn ports_are_given_and_kept(client: &Client) {
    let before = get(client, &format!("{SERVICES}/own")).await;
    let first = before["spec"]["ports"][0]["nodePort"].clone();
    let answer = updated(client, "own", |spec| {
        spec["ports"] = json!([{"name": "more", "port": 81}, {"name": "http", "port": 8080}]);
    });
    let changed = answer.await.ok().expect("changed");
    let [more, kept] = [0, 1].map(|index| changed["spec"]["ports"][index]["nodePort"].clone());
    assert!(more.is_i64() && more != first && kept == first, "{changed}");
    assert_eq!(changed["spec"]["clusterIP"], before["spec"]["clusterIP"]);
}

const ENDPOINTS: &str = "/api/v1/namespaces/default/endpoints/kubernetes";
const SLICES: &str = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices?labelSelector=kubernetes.io%2Fservice-name%3Dkubernetes";

/// Addresses and ports of the servers, which Endpoints and EndpointSlices agree about.
async fn told(client: &Client) -> Result<BTreeSet<String>> {
    let endpoints = client.get(ENDPOINTS).await?.ok()?;
    let mut told = BTreeSet::new();
    for subset in endpoints["subsets"].as_array().into_iter().flatten() {
        for address in subset["addresses"].as_array().into_iter().flatten() {
            told.insert(format!("{}:{}", address["ip"].as_str().unwrap_or_default(), subset["ports"][0]["port"]));
        }
    }
    let mut sliced = BTreeSet::new();
    for slice in client.get(SLICES).await?.ok()?["items"].as_array().into_iter().flatten() {
        ensure!(slice["addressType"] == "IPv4", "{slice}");
        for endpoint in slice["endpoints"].as_array().into_iter().flatten() {
            ensure!(endpoint["conditions"]["ready"] == true, "{slice}");
            sliced.insert(format!(
                "{}:{}",
                endpoint["addresses"][0].as_str().unwrap_or_default(),
                slice["ports"][0]["port"]
            ));
        }
    }
    ensure!(told == sliced, "{told:?} is not {sliced:?}");
    Ok(told)
}

async fn become_those_of(client: &Client, servers: &[&Croft]) {
    let wanted: BTreeSet<String> =
        servers.iter().map(|server| server.address().expect("an address").to_string()).collect();
    // A server that was killed is forgotten when its lease has run out.
    let told = eventually_within(Duration::from_mins(1), async || {
        let told = told(client).await?;
        ensure!(told == wanted, "{told:?} instead of {wanted:?}");
        Ok(())
    });
    told.await.expect("the servers are told");
}

#[test]
fn the_service_of_the_server_leads_to_every_server_that_runs() {
    if !ServerKind::Etcd.wanted() {
        return;
    }
    let lan = Lan::new(3).expect("a network can be made");
    lan.block_on(async || {
        let (hosts, members) = lan.hosts().split_at(2);
        let etcd = EtcdCluster::start(members).await.expect("etcd starts");
        let mut first = Croft::start_on(&hosts[0], &etcd.endpoints(), None).await.expect("the server starts");
        let client = first.client().expect("a client");
        let service = get(&client, "/api/v1/namespaces/default/services/kubernetes").await;
        assert_eq!(service["spec"]["ports"][0]["port"], 443, "{service}");
        become_those_of(&client, &[&first]).await;
        let mut second = Croft::start_on(&hosts[1], &etcd.endpoints(), Some(&first)).await.expect("another starts");
        become_those_of(&client, &[&first, &second]).await;
        // Whoever goes is gone, whether it says so or not.
        second.terminate(patience()).await.expect("it ends");
        become_those_of(&client, &[&first]).await;
        second.restart().await.expect("it starts again");
        become_those_of(&second.client().expect("a client"), &[&first, &second]).await;
        first.kill().expect("it is killed");
        become_those_of(&second.client().expect("a client"), &[&second]).await;
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_nobody_else_reaches_is_no_endpoint() {
    let server = Croft::start(StoreKind::Embedded).await.expect("the server starts");
    let client = server.client().expect("a client");
    get(&client, "/api/v1/namespaces/default/services/kubernetes").await;
    assert_eq!(client.get(ENDPOINTS).await.expect("an answer").status, 404);
}
