use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::Full;
use kube::client::Body;
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::*;

/// A server that answers each request with the next of its scripted answers, and then with nothing.
#[derive(Clone, Default)]
struct Script {
    answers: Arc<Mutex<Vec<(u16, String)>>>,
    queries: Arc<Mutex<Vec<String>>>,
}

impl Script {
    fn new(mut answers: Vec<(u16, Vec<Value>)>) -> Self {
        answers.reverse();
        let lines = |events: Vec<Value>| events.iter().map(Value::to_string).collect::<Vec<_>>().join("\n");
        let answers = answers.into_iter().map(|(code, events)| (code, lines(events))).collect();
        Self { answers: Arc::new(Mutex::new(answers)), queries: Arc::default() }
    }

    fn client(&self) -> Client {
        let script = self.clone();
        let service = tower::service_fn(move |request: http::Request<Body>| {
            script.queries.lock().push(request.uri().query().unwrap_or_default().to_owned());
            let next = script.answers.lock().pop();
            async move {
                let Some((code, text)) = next else { return std::future::pending().await };
                let mut answer = http::Response::new(Full::new(Bytes::from(text)));
                *answer.status_mut() = http::StatusCode::from_u16(code).unwrap();
                Ok::<_, Infallible>(answer)
            }
        });
        Client::new(service, "default")
    }
}

fn added(name: &str, version: &str) -> Value {
    let spec = json!({"skipped": [1, 2]});
    json!({"type": "ADDED", "object": {"metadata": {"name": name, "resourceVersion": version}, "spec": spec}})
}

fn bookmark(version: &str, ends_listing: bool) -> Value {
    let annotations = if ends_listing { json!({INITIAL_EVENTS_END: "true"}) } else { json!({}) };
    let metadata = json!({"resourceVersion": version, "annotations": annotations});
    json!({"type": "BOOKMARK", "object": {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}})
}

fn status(code: u16) -> Value {
    json!({"kind": "Status", "status": "Failure", "code": code, "reason": "Expired", "message": "too old"})
}

async fn events(script: &Script, count: usize) -> Vec<String> {
    let source = Source::of::<k8s_openapi::api::core::v1::ConfigMap>();
    let events = watch::<Object>(script.client(), source).take(count);
    let shown = events.map(|event| match event {
        Event::Restarted => "restarted".to_owned(),
        Event::Applied(object) => format!("+{}", object.metadata.name),
        Event::Deleted(object) => format!("-{}", object.metadata.name),
        Event::Synced => "synced".to_owned(),
    });
    shown.collect().await
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_ends_is_resumed_where_it_was() {
    let script = Script::new(vec![
        (200, vec![added("a", "3"), bookmark("5", true), added("b", "7")]),
        (500, vec![status(500)]),
        (200, vec![bookmark("9", false)]),
        (200, vec![added("c", "11")]),
    ]);
    assert_eq!(events(&script, 5).await, ["restarted", "+a", "synced", "+b", "+c"]);
    let queries = script.queries.lock();
    assert!(queries[0].contains("sendInitialEvents=true"), "{queries:?}");
    for (query, version) in [(1, "7"), (2, "7"), (3, "9")] {
        let wanted = format!("resourceVersion={version}");
        assert!(queries[query].ends_with(&wanted) && !queries[query].contains("sendInitial"), "{queries:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_expired_version_means_a_new_listing() {
    let expired = json!({"type": "ERROR", "object": status(410)});
    let script = Script::new(vec![
        (200, vec![bookmark("5", true), expired]),
        (200, vec![added("a", "6"), bookmark("8", true)]),
        (410, vec![status(410)]),
        (200, vec![bookmark("9", true)]),
    ]);
    let seen = events(&script, 7).await;
    assert_eq!(seen, ["restarted", "synced", "restarted", "+a", "synced", "restarted", "synced"]);
}

#[tokio::test(start_paused = true)]
async fn a_listing_that_is_cut_off_starts_over() {
    let script = Script::new(vec![
        (200, vec![added("a", "3")]),
        (200, vec![added("a", "3"), added("b", "4"), bookmark("5", true)]),
    ]);
    assert_eq!(events(&script, 6).await, ["restarted", "+a", "restarted", "+a", "+b", "synced"]);
}
