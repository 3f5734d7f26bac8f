#![expect(clippy::needless_pass_by_value, reason = "tables read better without references")]

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Affinity, Node, NodeSelectorTerm, Toleration};
use serde_json::{Value, json};

use super::*;
use crate::schedule::guest::VolumePlace;

const GIB: i64 = 1 << 30;

fn host(name: &str, labels: Value, spec: Value) -> Host {
    let mut node: Node = serde_json::from_value(json!({
        "metadata": {"name": name, "labels": labels},
        "spec": spec,
        "status": {
            "conditions": [{"type": "Ready", "status": "True"}],
            "allocatable": {"cpu": "4", "memory": "8Gi"},
        },
    }))
    .unwrap();
    let labels = node.metadata.labels.get_or_insert_default();
    labels.insert("kubernetes.io/hostname".to_owned(), name.to_owned());
    labels.entry("kubevirt.io/schedulable".to_owned()).or_insert_with(|| "true".to_owned());
    Host::of(&node)
}

fn cluster(names: &[&str]) -> Cluster {
    let mut cluster = Cluster::default();
    for name in names {
        let zone = if name.ends_with('3') { "b" } else { "a" };
        cluster.set_host(host(name, json!({"zone": zone}), json!({})));
    }
    cluster
}

fn guest(uid: &str, memory_gib: i64) -> Guest {
    Guest {
        uid: uid.to_owned(),
        namespace: "default".to_owned(),
        labels: Labels::from([("app".to_owned(), "web".to_owned())]),
        demand: Amounts { cpu_milli: 100, memory_bytes: memory_gib * GIB, ..Amounts::default() },
        ..Guest::default()
    }
}

fn with_affinity(uid: &str, affinity: Value) -> Guest {
    let affinity: Affinity = serde_json::from_value(affinity).unwrap();
    Guest { affinity: Some(Arc::new(affinity)), ..guest(uid, 1) }
}

/// The reason that the only node gives.
fn refused(cluster: &Cluster, guest: &Guest) -> String {
    cluster.fit(guest).unwrap_err().to_string().trim_start_matches("0/1 nodes are available: 1 ").to_owned()
}

#[test]
fn a_guest_goes_where_most_is_left() {
    let mut cluster = cluster(&["n1", "n2"]);
    assert_eq!(cluster.fit(&guest("a", 1)).as_deref(), Ok("n1"));
    cluster.place(guest("a", 1), "n1".to_owned());
    assert_eq!(cluster.fit(&guest("b", 1)).as_deref(), Ok("n2"));
}

#[test]
fn what_was_decided_counts_at_once_and_until_it_is_gone() {
    let mut cluster = cluster(&["n1"]);
    for uid in ["a", "b"] {
        cluster.place(guest(uid, 4), "n1".to_owned());
    }
    let told = refused(&cluster, &guest("c", 4));
    assert_eq!(told, "Insufficient memory (requested 4Gi, free 0).");
    assert!(cluster.remove("a"));
    assert!(!cluster.remove("a"), "it takes up room once");
    assert_eq!(cluster.fit(&guest("c", 4)).as_deref(), Ok("n1"));
    cluster.place(guest("b", 1), "n1".to_owned());
    assert_eq!(cluster.fit(&guest("c", 7)).as_deref(), Ok("n1"), "a guest that shrank gives its room back");
}

#[test]
fn every_filter_tells_its_reason() {
    let affinity = |key: &str| {
        json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchExpressions": [{"key": key, "operator": "Exists"}]}]}}})
    };
    let volume = |name: &str| VolumePlace {
        claim: "disk".to_owned(),
        terms: vec![
            serde_json::from_value::<NodeSelectorTerm>(json!({
                "matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [name]}]
            }))
            .unwrap(),
        ],
    };
    let selector = |key: &str| Labels::from([(key.to_owned(), "a".to_owned())]);
    let gpu = Amounts { others: [("vendor.io/gpu".to_owned(), 1)].into(), ..Amounts::default() };
    let plain = || guest("x", 1);
    let cases = [
        (json!({}), json!({}), plain(), Ok(())),
        (json!({}), json!({"unschedulable": true}), plain(), Err("node(s) were unschedulable.")),
        (
            json!({"kubevirt.io/schedulable": "false"}),
            json!({}),
            plain(),
            Err("node(s) were not labeled kubevirt.io/schedulable=true."),
        ),
        (
            json!({}),
            json!({"taints": [{"key": "k", "value": "v", "effect": "NoSchedule"}]}),
            plain(),
            Err("node(s) had untolerated taint {k: v}."),
        ),
        (
            json!({}),
            json!({"taints": [{"key": "k", "value": "v", "effect": "NoSchedule"}]}),
            Guest {
                tolerations: vec![Toleration { operator: Some("Exists".to_owned()), ..Toleration::default() }],
                ..plain()
            },
            Ok(()),
        ),
        (json!({"zone": "a"}), json!({}), Guest { node_selector: selector("zone"), ..plain() }, Ok(())),
        (
            json!({"zone": "b"}),
            json!({}),
            Guest { node_selector: selector("zone"), ..plain() },
            Err("node(s) didn't match Pod's node affinity/selector."),
        ),
        (json!({"ssd": ""}), json!({}), with_affinity("x", affinity("ssd")), Ok(())),
        (
            json!({}),
            json!({}),
            with_affinity("x", affinity("ssd")),
            Err("node(s) didn't match Pod's node affinity/selector."),
        ),
        (
            json!({"network.harvesterhci.io/cn1": "true"}),
            json!({}),
            Guest { networks: vec!["cn1".to_owned()], ..plain() },
            Ok(()),
        ),
        (
            json!({}),
            json!({}),
            Guest { networks: vec!["cn1".to_owned()], ..plain() },
            Err("node(s) were not connected to cluster network cn1."),
        ),
        (json!({}), json!({}), Guest { volumes: vec![volume("n1")], ..plain() }, Ok(())),
        (
            json!({}),
            json!({}),
            Guest { volumes: vec![volume("n1"), volume("n9")], ..plain() },
            Err("node(s) didn't match the node affinity of volume disk."),
        ),
        (
            json!({}),
            json!({}),
            Guest { demand: gpu, ..plain() },
            Err("Insufficient vendor.io/gpu (requested 1, free 0)."),
        ),
        (json!({}), json!({}), guest("x", 9), Err("Insufficient memory (requested 9Gi, free 8Gi).")),
    ];
    for (index, (labels, spec, guest, expected)) in cases.into_iter().enumerate() {
        let mut cluster = Cluster::default();
        cluster.set_host(host("n1", labels, spec));
        match expected {
            Ok(()) => assert_eq!(cluster.fit(&guest).as_deref(), Ok("n1"), "case {index}"),
            Err(expected) => assert_eq!(refused(&cluster, &guest), expected, "case {index}"),
        }
    }
}

#[test]
fn a_node_that_is_not_ready_takes_nobody() {
    let node = json!({"metadata": {"name": "n1", "labels": {"kubevirt.io/schedulable": "true"}}});
    let mut cluster = Cluster::default();
    cluster.set_host(Host::of(&serde_json::from_value(node).unwrap()));
    assert_eq!(refused(&cluster, &guest("a", 1)), "node(s) were not ready.");
}

fn term(key: &str, extra: Value) -> Value {
    let mut term = json!({"topologyKey": key, "labelSelector": {"matchLabels": {"app": "web"}}});
    term.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
    term
}

fn required(kind: &str, term: Value) -> Value {
    json!({kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}})
}

#[test]
fn guests_that_must_be_apart_are() {
    let apart = required("podAntiAffinity", term("kubernetes.io/hostname", json!({})));
    let mut cluster = cluster(&["n1", "n2"]);
    for (uid, expected) in [("a", "n1"), ("b", "n2")] {
        let guest = with_affinity(uid, apart.clone());
        assert_eq!(cluster.fit(&guest).as_deref(), Ok(expected));
        cluster.place(guest, expected.to_owned());
    }
    let third = cluster.fit(&with_affinity("c", apart)).unwrap_err().to_string();
    assert!(third.contains("2 node(s) didn't satisfy existing pods anti-affinity rules"), "{third}");
    let plain = cluster.fit(&guest("d", 1)).unwrap_err().to_string();
    assert!(plain.contains("existing pods anti-affinity"), "those that are there decide too: {plain}");
    let stranger = Guest { labels: Labels::new(), ..guest("e", 1) };
    assert!(cluster.fit(&stranger).is_ok());
}

#[test]
fn guests_that_must_be_together_are_and_the_first_may_start() {
    let together = required("podAffinity", term("zone", json!({})));
    let mut cluster = cluster(&["n1", "n2", "n3"]);
    let first = with_affinity("a", together.clone());
    assert_eq!(cluster.fit(&first).as_deref(), Ok("n1"));
    cluster.place(first, "n3".to_owned());
    assert_eq!(cluster.fit(&with_affinity("b", together.clone())).as_deref(), Ok("n3"), "the same zone");
    let lonely = Guest { labels: Labels::new(), ..with_affinity("c", together) };
    assert_eq!(cluster.fit(&lonely).as_deref(), Ok("n3"), "whoever is there is what counts");
    cluster.remove("a");
    let refusal = cluster.fit(&lonely).unwrap_err().to_string();
    assert!(refusal.contains("3 node(s) didn't match pod affinity rules"), "{refusal}");
}

#[test]
fn affinity_looks_into_the_namespaces_that_it_names() {
    let cases = [
        (json!({}), "default", true),
        (json!({}), "other", false),
        (json!({"namespaces": ["other"]}), "other", true),
        (json!({"namespaces": ["other"]}), "default", false),
        (json!({"namespaceSelector": {}}), "other", true),
        (json!({"namespaceSelector": {"matchLabels": {"team": "x"}}}), "other", true),
        (json!({"namespaceSelector": {"matchLabels": {"team": "x"}}}), "default", false),
        (json!({"matchLabelKeys": ["version"]}), "default", false),
        (json!({"mismatchLabelKeys": ["version"]}), "default", true),
    ];
    for (extra, namespace, is_kept_away) in cases {
        let mut cluster = cluster(&["n1"]);
        cluster.set_namespace("other".to_owned(), Some(Labels::from([("team".to_owned(), "x".to_owned())])));
        let mut there = Guest { namespace: namespace.to_owned(), ..guest("a", 1) };
        there.labels.insert("version".to_owned(), "1".to_owned());
        cluster.place(there, "n1".to_owned());
        let mut new = with_affinity("b", required("podAntiAffinity", term("zone", extra.clone())));
        new.labels.insert("version".to_owned(), "2".to_owned());
        assert_eq!(cluster.fit(&new).is_err(), is_kept_away, "{extra} and a guest in {namespace}");
    }
}

#[test]
fn wishes_move_guests_but_forbid_nothing() {
    let wish = |kind: &str| {
        let term = term("kubernetes.io/hostname", json!({}));
        json!({kind: {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 100, "podAffinityTerm": term}]}})
    };
    let mut cluster = cluster(&["n1", "n2"]);
    cluster.place(guest("a", 1), "n2".to_owned());
    assert_eq!(cluster.fit(&with_affinity("b", wish("podAffinity"))).as_deref(), Ok("n2"));
    assert_eq!(cluster.fit(&with_affinity("b", wish("podAntiAffinity"))).as_deref(), Ok("n1"));
    let node_wish = json!({"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
        {"weight": 1, "preference": {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n2"]}]}}]}});
    assert_eq!(cluster.fit(&with_affinity("c", node_wish)).as_deref(), Ok("n2"));
}

#[test]
fn a_taint_that_discourages_makes_the_other_node_better() {
    let mut cluster = cluster(&["n2"]);
    cluster.set_host(host("n1", json!({}), json!({"taints": [{"key": "slow", "effect": "PreferNoSchedule"}]})));
    assert_eq!(cluster.fit(&guest("a", 1)).as_deref(), Ok("n2"));
}

#[test]
fn guests_are_spread_as_evenly_as_asked() {
    let constraint = |when: &str, extra: Value| {
        let mut constraint = json!({
            "maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": when,
            "labelSelector": {"matchLabels": {"app": "web"}},
        });
        constraint.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        vec![serde_json::from_value(constraint).unwrap()]
    };
    let mut cluster = cluster(&["n1", "n2", "n3"]);
    cluster.place(guest("a", 1), "n1".to_owned());
    let even = Guest { spread: constraint("DoNotSchedule", json!({})), ..guest("b", 1) };
    assert_eq!(cluster.fit(&even).as_deref(), Ok("n3"), "zone a has one more already");
    let soft = Guest { spread: constraint("ScheduleAnyway", json!({})), ..guest("b", 1) };
    assert_eq!(cluster.fit(&soft).as_deref(), Ok("n3"));
    let bound = Guest { node_selector: Labels::from([("zone".to_owned(), "a".to_owned())]), ..even.clone() };
    assert!(cluster.fit(&bound).is_ok(), "zone b does not count for who cannot go there");
    let many = Guest { spread: constraint("DoNotSchedule", json!({"minDomains": 3})), ..bound };
    let refusal = cluster.fit(&many).unwrap_err().to_string();
    assert!(refusal.contains("didn't match pod topology spread constraints"), "{refusal}");
    let nowhere = Guest { spread: constraint("DoNotSchedule", json!({"topologyKey": "rack"})), ..guest("c", 1) };
    let refusal = cluster.fit(&nowhere).unwrap_err().to_string();
    assert!(refusal.contains("(missing required label)"), "{refusal}");
}

#[test]
fn a_hundred_at_once_do_not_share_the_same_room() {
    let mut cluster = cluster(&["n1", "n2", "n3"]);
    let mut placed = 0;
    for index in 0..100 {
        let guest = guest(&format!("g{index}"), 1);
        if let Ok(host) = cluster.fit(&guest) {
            cluster.place(guest, host);
            placed += 1;
        }
    }
    assert_eq!(placed, 24, "8 GiB on each of three nodes");
}
