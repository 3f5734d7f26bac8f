//! As one of two servers that see to the same namespaces, and not the faster one.

use super::*;
use crate::testing::{Rig, does};

const ALL: &str = "/api/v1/namespaces";
const IT: &str = "/api/v1/namespaces/a";
const MAPS: &str = "/api/v1/namespaces/a/configmaps";
const FINALIZE: &str = "/api/v1/namespaces/a/finalize";

fn named(name: &str) -> Value {
    json!({ "metadata": { "name": name } })
}

fn finalized() -> Value {
    json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "a" } })
}

async fn makes(client: &Client, map: &str) {
    does(client, "POST", ALL, named("a")).await;
    does(client, "POST", MAPS, named(map)).await;
}

/// Another server finishes what is going on, and somebody begins anew.
async fn is_replaced(client: Client) {
    for map in does(&client, "GET", MAPS, Value::Null).await["items"].as_array().cloned().unwrap_or_default() {
        let name = map["metadata"]["name"].as_str().unwrap_or_default();
        does(&client, "DELETE", &format!("{MAPS}/{name}"), Value::Null).await;
    }
    does(&client, "PUT", FINALIZE, finalized()).await;
    makes(&client, "new").await;
}

fn controller(client: Client) -> Namespaces {
    let api = Api::all_with(client.clone(), &builtin("", "v1", "Namespace", "namespaces"));
    Namespaces { client, api, waiting: Mutex::default() }
}

async fn is_whole(rig: &Rig) {
    let namespace = rig.get(IT).await.expect("the new one");
    assert_eq!(namespace["spec"]["finalizers"], json!(["kubernetes"]));
    let map = rig.get(&format!("{MAPS}/new")).await.expect("what is in it");
    assert!(map["metadata"]["deletionTimestamp"].is_null(), "{map}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_namespace_is_cleared_and_not_the_next_one_of_its_name() {
    // At either of its steps.
    for path in [MAPS, FINALIZE] {
        let rig = Rig::new().await;
        makes(&rig.client, "old").await;
        does(&rig.client, "DELETE", IT, Value::Null).await;
        let late = controller(rig.meanwhile(path, is_replaced(rig.client.clone())));
        assert!(late.reconcile("a").await.is_err(), "it is to look again");
        is_whole(&rig).await;
        late.reconcile("a").await.expect("nothing to do");
        assert!(late.waiting.lock().is_empty());
        is_whole(&rig).await;

        does(&rig.client, "DELETE", IT, Value::Null).await;
        controller(rig.client.clone()).reconcile("a").await.expect("it is cleared");
        assert_eq!((rig.get(IT).await, rig.get(&format!("{MAPS}/new")).await), (None, None));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_left_in_a_namespace_that_is_gone_goes_unless_there_is_a_new_one() {
    let rig = Rig::new().await;
    makes(&rig.client, "left").await;
    // By hand, as people do when they lose patience.
    does(&rig.client, "PUT", FINALIZE, finalized()).await;
    does(&rig.client, "DELETE", IT, Value::Null).await;
    assert!(rig.get(&format!("{MAPS}/left")).await.is_some());

    let client = rig.client.clone();
    let late = controller(rig.meanwhile(MAPS, async move { makes(&client, "new").await }));
    late.reconcile("a").await.expect("there is a new one");
    is_whole(&rig).await;

    does(&rig.client, "PUT", FINALIZE, finalized()).await;
    does(&rig.client, "DELETE", IT, Value::Null).await;
    late.reconcile("a").await.expect("nobody has that name");
    assert_eq!(rig.get(MAPS).await.expect("a list")["items"], json!([]));
}
