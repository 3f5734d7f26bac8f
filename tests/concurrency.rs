//! Many clients at the same objects at once: nothing is lost, nothing is seen twice, nothing is left behind.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use croft_testkit::{Answer, Call, Client, Server, ServerKind, Stream, eventually};
use futures::future::join_all;
use http::Method;
use serde_json::{Value, json};

const KINDS: [ServerKind; 2] = [ServerKind::Embedded, ServerKind::Etcd];
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// Runs `test` in a namespace of its own on both stores.
async fn on_both(namespace: &str, test: impl AsyncFn(&Client, &str)) {
    for kind in KINDS.into_iter().filter(|kind| kind.wanted()) {
        let server = Server::start(kind).await.expect("the server starts");
        let client = server.client().expect("a client");
        let body = json!({"metadata": {"name": namespace}});
        client.post("/api/v1/namespaces", &body).await.expect("an answer").ok().expect("a namespace");
        test(&client, &format!("/api/v1/namespaces/{namespace}/configmaps")).await;
    }
}

fn reason(answer: &Answer) -> String {
    answer.json()["reason"].as_str().unwrap_or_default().to_owned()
}

async fn get(client: &Client, path: &str) -> Value {
    client.get(path).await.expect("an answer").ok().expect("success")
}

async fn apply(client: &Client, path: &str, manager: &str, body: &Value) -> Answer {
    client.patch(&format!("{path}?fieldManager={manager}"), "apply-patch", body).await.expect("an answer")
}

fn revision(object: &Value) -> u64 {
    let text = object.pointer("/metadata/resourceVersion").and_then(Value::as_str).unwrap_or_default();
    text.parse().unwrap_or_else(|_| panic!("no resourceVersion in {object}"))
}

fn name(object: &Value) -> String {
    object["metadata"]["name"].as_str().unwrap_or_default().to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_update_is_lost() {
    on_both("lost", async |client, maps| {
        let path = &format!("{maps}/counter");
        client.post(maps, &json!({"metadata": {"name": "counter"}, "data": {"n": "0"}})).await.expect("an answer");
        let increments = (0..6).map(|_| async move {
            let mut done = 0;
            while done < 20 {
                let mut object = get(client, path).await;
                let n: u64 = object["data"]["n"].as_str().expect("a number").parse().expect("a number");
                object["data"]["n"] = json!((n + 1).to_string());
                let answer = client.put(path, &object).await.expect("an answer");
                match answer.status {
                    200 => done += 1,
                    status => assert_eq!((status, reason(&answer).as_str()), (409, "Conflict")),
                }
            }
        });
        let merges = (0..4).map(|writer| async move {
            for n in 0..20 {
                let patch = json!({"data": {format!("m{writer}"): n.to_string()}});
                let answer = client.patch(path, "merge-patch", &patch).await.expect("an answer");
                assert_eq!(answer.status, 200, "a patch without a version never conflicts: {}", answer.text());
            }
        });
        let applies = (0..4).map(|writer| async move {
            for n in 0..20 {
                let (key, manager) = (format!("a{writer}"), format!("manager{writer}"));
                let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {key: n.to_string()}});
                let answer = apply(client, path, &manager, &body).await;
                assert_eq!(answer.status, 200, "an apply of one's own fields never conflicts: {}", answer.text());
            }
        });
        tokio::join!(join_all(increments), join_all(merges), join_all(applies));
        let object = get(client, path).await;
        assert_eq!(object["data"]["n"], "120");
        for writer in 0..4 {
            assert_eq!(object["data"][format!("m{writer}")], "19");
            assert_eq!(object["data"][format!("a{writer}")], "19");
        }
        let appliers = object["metadata"]["managedFields"].as_array().expect("managers").iter();
        assert_eq!(appliers.filter(|entry| entry["operation"] == "Apply").count(), 4);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn appliers_of_a_new_object_all_get_their_fields() {
    on_both("appliers", async |client, maps| {
        for round in 0..5 {
            let path = &format!("{maps}/new{round}");
            let appliers = (0..12).map(|writer| async move {
                let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {format!("k{writer}"): "v"}});
                apply(client, path, &format!("manager{writer}"), &body).await
            });
            let answers = join_all(appliers).await;
            let created = answers.iter().filter(|answer| answer.status == 201).count();
            let all: Vec<u16> = answers.iter().map(|answer| answer.status).collect();
            assert_eq!(created, 1, "{all:?}");
            assert!(all.iter().all(|status| matches!(status, 200 | 201)), "{all:?}");
            assert_eq!(get(client, path).await["data"].as_object().expect("data").len(), 12);
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn generated_names_are_unique_and_one_of_many_creators_wins() {
    on_both("names", async |client, maps| {
        let generated = join_all((0..300).map(|_| async move {
            let answer = client.post(maps, &json!({"metadata": {"generateName": "g-"}})).await.expect("an answer");
            name(&answer.ok().expect("created"))
        }));
        assert_eq!(generated.await.into_iter().collect::<BTreeSet<_>>().len(), 300);
        let creators = join_all((0..20).map(|_| async move {
            let answer = client.post(maps, &json!({"metadata": {"name": "one"}})).await.expect("an answer");
            if answer.status != 201 {
                assert_eq!((answer.status, reason(&answer).as_str()), (409, "AlreadyExists"));
            }
            u32::from(answer.status == 201)
        }));
        assert_eq!(creators.await.into_iter().sum::<u32>(), 1);
        let path = &format!("{maps}/one");
        let deleters = join_all((0..20).map(|_| async move {
            let answer = client.delete(path).await.expect("an answer");
            assert!(matches!(answer.status, 200 | 404), "{}", answer.text());
            u32::from(answer.status == 200)
        }));
        assert_eq!(deleters.await.into_iter().sum::<u32>(), 1);
    })
    .await;
}

/// Follows a watch until `stop` names the revision up to which it is to be read, and plays the events into a state.
async fn replay(mut events: Stream, mut state: BTreeMap<String, Value>, until: u64) -> BTreeMap<String, Value> {
    let mut last = 0;
    loop {
        let event = events.event_within(Duration::from_secs(30)).await.expect("an event").expect("no end");
        let object = event["object"].clone();
        assert!(revision(&object) >= last, "events are in order");
        last = revision(&object);
        let key = name(&object);
        match event["type"].as_str().expect("a type") {
            "ADDED" => assert!(state.insert(key.clone(), object).is_none(), "{key} was added twice"),
            "MODIFIED" => {
                let before = state.insert(key.clone(), object).unwrap_or_else(|| panic!("{key} was never added"));
                assert!(revision(&before) < last, "{key} was shown twice");
            }
            "DELETED" => assert!(state.remove(&key).is_some(), "{key} was never there"),
            "BOOKMARK" => {}
            other => panic!("{other}: {event}"),
        }
        if last >= until {
            return state;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watches_show_every_change_once_and_end_where_lists_do() {
    on_both("watched", async |client, maps| {
        let start = get(client, maps).await;
        let from = revision(&start);
        let watch = async |query: &str| {
            let path = format!("{maps}?watch=1&resourceVersion={from}{query}");
            client.open(Call::new(Method::GET, &path)).await.expect("a watch")
        };
        let selections = ["", "&labelSelector=colour%3Dred", "&labelSelector=colour+notin+(red)"];
        let mut streams = Vec::new();
        for selection in selections {
            streams.push(watch(selection).await);
        }
        let writers = (0..6_usize).map(|writer| async move {
            for n in 0..40_usize {
                let target = format!("o{}", (writer * 7 + n * 3) % 10);
                let path = format!("{maps}/{target}");
                let colour = if (n + writer) % 3 == 0 { "red" } else { "blue" };
                let labels = json!({"colour": colour});
                let answer = match (n + writer) % 5 {
                    0 => client.delete(&path).await,
                    1 | 2 => client.post(maps, &json!({"metadata": {"name": target, "labels": labels}})).await,
                    _ => {
                        let patch = json!({"metadata": {"labels": labels}, "data": {"w": format!("{writer}-{n}")}});
                        client.patch(&path, "merge-patch", &patch).await
                    }
                };
                assert!(matches!(answer.expect("an answer").status, 200 | 201 | 404 | 409));
            }
        });
        let sweeper = async {
            for _ in 0..5 {
                let answer = client.delete(&format!("{maps}?labelSelector=colour%3Dred")).await.expect("an answer");
                assert_eq!(answer.status, 200, "{}", answer.text());
            }
        };
        tokio::join!(join_all(writers), sweeper);
        // One last object in every selection marks the end.
        let mut until = 0;
        for (end, colour) in [("end-red", "red"), ("end-blue", "blue")] {
            let body = json!({"metadata": {"name": end, "labels": {"colour": colour}}});
            until = revision(&client.post(maps, &body).await.expect("an answer").ok().expect("created"));
            if colour == "red" {
                let red = streams.remove(1);
                compare_with_list(client, maps, selections[1], replay(red, BTreeMap::new(), until).await).await;
            }
        }
        let before: BTreeMap<String, Value> =
            start["items"].as_array().expect("items").iter().map(|item| (name(item), item.clone())).collect();
        for (selection, stream) in [selections[0], selections[2]].into_iter().zip(streams) {
            compare_with_list(client, maps, selection, replay(stream, before.clone(), until).await).await;
        }
    })
    .await;
}

async fn compare_with_list(client: &Client, maps: &str, selection: &str, seen: BTreeMap<String, Value>) {
    let list = get(client, &format!("{maps}?{}", selection.trim_start_matches('&'))).await;
    let listed: BTreeMap<String, u64> =
        list["items"].as_array().expect("items").iter().map(|item| (name(item), revision(item))).collect();
    let seen: BTreeMap<String, u64> = seen.iter().map(|(name, object)| (name.clone(), revision(object))).collect();
    assert_eq!(seen, listed, "{selection}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pages_are_of_one_moment() {
    on_both("pages", async |client, maps| {
        for n in 0..30 {
            client
                .post(maps, &json!({"metadata": {"name": format!("p{n:02}")}, "data": {"k": "old"}}))
                .await
                .expect("ok");
        }
        let first = get(client, &format!("{maps}?limit=7")).await;
        let at = revision(&first);
        let whole = get(client, maps).await["items"].clone();
        let churn = (0..30).map(|n| async move {
            let path = format!("{maps}/p{n:02}");
            match n % 3 {
                0 => client.delete(&path).await,
                1 => client.post(maps, &json!({"metadata": {"name": format!("q{n:02}")}})).await,
                _ => client.patch(&path, "merge-patch", &json!({"data": {"k": "new"}})).await,
            }
            .expect("an answer");
        });
        let pages = async {
            let mut items = first["items"].as_array().expect("items").clone();
            let mut next = first["metadata"]["continue"].as_str().expect("more").to_owned();
            while !next.is_empty() {
                let page = get(client, &format!("{maps}?limit=7&continue={next}")).await;
                assert_eq!(revision(&page), at, "every page is of the same moment");
                items.extend(page["items"].as_array().expect("items").iter().cloned());
                next = page["metadata"]["continue"].as_str().unwrap_or_default().to_owned();
            }
            items
        };
        let (_, items) = tokio::join!(join_all(churn), pages);
        assert_eq!(json!(items), whole);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_namespace_that_went_leaves_nothing_to_the_next_of_its_name() {
    on_both("unused", async |client, _| {
        let maps = "/api/v1/namespaces/doomed/configmaps";
        let going = &Arc::new(AtomicBool::new(true));
        let creators = (0..6).map(|_| async move {
            while going.load(Ordering::Relaxed) {
                let body = json!({"metadata": {"generateName": "c-", "labels": {"by": "creator"}}});
                let answer = client.post(maps, &body).await.expect("an answer");
                assert!(matches!(answer.status, 201 | 403 | 404), "{}", answer.text());
            }
        });
        let rounds = async {
            let mut last = String::new();
            for _ in 0..6 {
                let body = json!({"metadata": {"name": "doomed"}});
                let made = client.post("/api/v1/namespaces", &body).await.expect("an answer");
                let born = revision(&made.ok().expect("created"));
                let list = get(client, &format!("{maps}?labelSelector=by%3Dcreator")).await;
                for item in list["items"].as_array().expect("items") {
                    assert!(revision(item) > born, "{} outlived its namespace", name(item));
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
                client.delete("/api/v1/namespaces/doomed").await.expect("an answer").ok().expect("deleted");
                eventually("the namespace goes", async || {
                    let status = client.get("/api/v1/namespaces/doomed").await?.status;
                    anyhow::ensure!(status == 404, "the namespace is still there: {status}");
                    anyhow::Ok(())
                })
                .await;
                last = get(client, maps).await["items"].to_string();
                assert_eq!(last, "[]");
            }
            going.store(false, Ordering::Relaxed);
            last
        };
        tokio::join!(join_all(creators), rounds);
    })
    .await;
}

fn definition(field: &str) -> Value {
    json!({"metadata": {"name": "gizmos.busy.example.com"}, "spec": {
        "group": "busy.example.com", "scope": "Namespaced", "names": {"plural": "gizmos", "kind": "Gizmo"},
        "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
            "type": "object", "properties": {"spec": {"type": "object", "properties": {field: {"type": "string"}}}},
        }}}],
    }})
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_definition_that_went_leaves_nothing_to_the_next_of_its_name() {
    on_both("gizmos", async |client, _| {
        let gizmos = "/apis/busy.example.com/v1/namespaces/gizmos/gizmos";
        let path = &format!("{DEFINITIONS}/gizmos.busy.example.com");
        let going = &Arc::new(AtomicBool::new(true));
        let creators = (0..4).map(|_| async move {
            let body = json!({"apiVersion": "busy.example.com/v1", "kind": "Gizmo", "metadata": {"generateName": "g-"},
                              "spec": {"f0": "x", "f1": "x", "f2": "x", "f3": "x"}});
            while going.load(Ordering::Relaxed) {
                let answer = client.post(gizmos, &body).await.expect("an answer");
                assert!(matches!(answer.status, 201 | 404 | 405), "{}", answer.text());
            }
        });
        let rounds = async {
            for round in 0..4 {
                let field = format!("f{round}");
                client.post(DEFINITIONS, &definition(&field)).await.expect("an answer").ok().expect("created");
                let list = get(client, gizmos).await;
                for item in list["items"].as_array().expect("items") {
                    assert_eq!(item["spec"], json!({&field: "x"}), "an object of a former definition");
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
                client.delete(path).await.expect("an answer").ok().expect("deleted");
                eventually("the definition goes", async || {
                    let status = client.get(path).await?.status;
                    anyhow::ensure!(status == 404, "the definition is still there: {status}");
                    anyhow::Ok(())
                })
                .await;
            }
            going.store(false, Ordering::Relaxed);
        };
        tokio::join!(join_all(creators), rounds);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_changed_definition_counts_from_its_acknowledgement() {
    on_both("schema", async |client, _| {
        let gizmos = "/apis/busy.example.com/v1/namespaces/schema/gizmos";
        let path = &format!("{DEFINITIONS}/gizmos.busy.example.com");
        let create = async |group_path: &str, version: &str| {
            let body = json!({"apiVersion": format!("busy.example.com/{version}"), "kind": "Gizmo",
                              "metadata": {"generateName": "g-"}, "spec": {"f": "x", "g": "y"}});
            client.post(group_path, &body).await.expect("an answer")
        };
        client.post(DEFINITIONS, &definition("f")).await.expect("an answer").ok().expect("created");
        assert_eq!(create(gizmos, "v1").await.ok().expect("created")["spec"], json!({"f": "x"}));
        let merge = async |patch: Value| {
            let answer = client.patch(path, "merge-patch", &patch).await.expect("an answer");
            answer.ok().expect("patched")
        };
        for round in 0..5 {
            let field = if round % 2 == 0 { "g" } else { "f" };
            merge(json!({"spec": {"versions": definition(field)["spec"]["versions"]}})).await;
            let expected = if field == "f" { json!({"f": "x"}) } else { json!({"g": "y"}) };
            assert_eq!(create(gizmos, "v1").await.ok().expect("created")["spec"], expected);
        }
        // Another version appears and goes, in discovery too.
        let mut versions = definition("g")["spec"]["versions"].clone();
        let mut second = versions[0].clone();
        second["name"] = json!("v2");
        second["storage"] = json!(false);
        versions.as_array_mut().expect("versions").push(second);
        merge(json!({"spec": {"versions": versions}})).await;
        let v2 = gizmos.replace("/v1/", "/v2/");
        assert_eq!(create(&v2, "v2").await.status, 201);
        assert_eq!(get(client, "/apis/busy.example.com").await["preferredVersion"]["version"], "v2");
        assert_eq!(get(client, "/apis/busy.example.com/v2").await["resources"][0]["name"], "gizmos");
        assert!(get(client, "/openapi/v3").await["paths"]["apis/busy.example.com/v2"].is_object());
        versions[1]["served"] = json!(false);
        merge(json!({"spec": {"versions": versions}})).await;
        assert_eq!(create(&v2, "v2").await.status, 404);
        assert_eq!(client.get("/apis/busy.example.com/v2").await.expect("an answer").status, 404);
        assert!(get(client, "/openapi/v3").await["paths"]["apis/busy.example.com/v2"].is_null());
        // And with the status subresource, the main path no longer writes it.
        versions[0]["subresources"] = json!({"status": {}});
        versions[0]["schema"]["openAPIV3Schema"]["properties"]["status"] =
            json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        merge(json!({"spec": {"versions": versions}})).await;
        let made = create(gizmos, "v1").await.ok().expect("created");
        let one = format!("{gizmos}/{}", name(&made));
        let status = json!({"status": {"a": "b"}});
        let main = client.patch(&one, "merge-patch", &status).await.expect("an answer");
        assert!(main.ok().expect("patched")["status"].is_null());
        let sub = client.patch(&format!("{one}/status"), "merge-patch", &status).await;
        assert_eq!(sub.expect("an answer").ok().expect("patched")["status"], status["status"]);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_that_come_free_go_to_the_definition_that_was_refused_them() {
    on_both("refused", async |client, _| {
        client.post(DEFINITIONS, &definition("f")).await.expect("an answer").ok().expect("created");
        let mut second = definition("f");
        second["metadata"]["name"] = json!("others.busy.example.com");
        second["spec"]["names"]["plural"] = json!("others");
        let refused = client.post(DEFINITIONS, &second).await.expect("an answer").ok().expect("created");
        assert_eq!(refused["status"]["conditions"][0]["status"], "False", "{refused}");
        let others = "/apis/busy.example.com/v1/others";
        assert_eq!(client.get(others).await.expect("an answer").status, 404);
        client.delete(&format!("{DEFINITIONS}/gizmos.busy.example.com")).await.expect("an answer");
        eventually("the second definition is served", async || client.get(others).await?.ok()).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn protobuf_is_refused_where_there_is_none() {
    on_both("wire", async |client, _| {
        client.post(DEFINITIONS, &definition("f")).await.expect("an answer").ok().expect("created");
        let call = Call::new(Method::POST, "/apis/busy.example.com/v1/namespaces/wire/gizmos");
        let body: &[u8] = b"k8s\0\x0a\x04\x0a\x02v1";
        let answer = client.send(call.body("application/vnd.kubernetes.protobuf", body)).await.expect("an answer");
        assert_eq!((answer.status, reason(&answer).as_str()), (415, "UnsupportedMediaType"));
    })
    .await;
}
