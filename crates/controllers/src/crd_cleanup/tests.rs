use super::*;
use crate::testing::{Rig, does};

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const IT: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/things.example.com";
const EVERYWHERE: &str = "/apis/example.com/v1/things";
const THINGS: &str = "/apis/example.com/v1/namespaces/default/things";

fn definition(is_served: bool) -> Value {
    let schema = json!({ "openAPIV3Schema": { "type": "object" } });
    json!({
        "metadata": { "name": "things.example.com" },
        "spec": {
            "group": "example.com", "scope": "Namespaced", "names": { "kind": "Thing", "plural": "things" },
            "versions": [{ "name": "v1", "served": is_served, "storage": true, "schema": schema }],
        },
    })
}

async fn makes(client: &Client, name: &str) {
    does(client, "POST", DEFINITIONS, definition(true)).await;
    let thing = json!({ "apiVersion": "example.com/v1", "kind": "Thing", "metadata": { "name": name } });
    does(client, "POST", THINGS, thing).await;
}

fn controller(client: Client) -> Definitions {
    Definitions { api: Api::all_with(client.clone(), &resource()), client, waiting: Mutex::default() }
}

#[test]
fn the_condition_keeps_its_time_while_its_status_stays() {
    let pending = json!({"type": "Terminating", "status": "True", "reason": "InstanceDeletionPending"});
    let other = json!({"type": "Established", "status": "True"});
    let under_way = Progress::new("True", "InstanceDeletionInProgress", "m");
    let first = with_progress(&[other.clone(), pending], &under_way, "1");
    assert_eq!(first[0], other);
    assert_eq!(first[1]["lastTransitionTime"], "1", "the server sets none");
    assert_eq!(with_progress(&first, &under_way, "2"), first);
    let done = with_progress(&first, &Progress::new("False", "InstanceDeletionCompleted", "m"), "3");
    assert_eq!(done[1]["lastTransitionTime"], "3");
    assert_eq!(done.len(), 2);
}

#[test]
fn the_version_that_is_stored_will_do_served_or_not() {
    let mut definition = DynamicObject::new("things.example.com", &resource());
    definition.data = json!({"spec": {
        "group": "example.com", "scope": "Namespaced", "names": {"kind": "Thing", "plural": "things"},
        "versions": [{"name": "v2", "served": true, "storage": false}, {"name": "v1", "served": false, "storage": true}],
    }});
    let kind = kind_of(&definition).unwrap();
    assert_eq!(kind.resource.api_version, "example.com/v1");
    assert!(kind.is_namespaced);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_objects_of_a_definition_go_and_not_those_of_the_next_one_of_its_name() {
    let rig = Rig::new().await;
    makes(&rig.client, "old").await;
    does(&rig.client, "DELETE", IT, Value::Null).await;
    let client = rig.client.clone();
    let is_replaced = async move {
        does(&client, "DELETE", &format!("{THINGS}/old"), Value::Null).await;
        does(&client, "PATCH", IT, json!({ "metadata": { "finalizers": null } })).await;
        makes(&client, "new").await;
    };
    let late = controller(rig.meanwhile(EVERYWHERE, is_replaced));
    assert!(late.reconcile("things.example.com").await.is_err(), "it is to look again");
    late.reconcile("things.example.com").await.expect("nothing to do");
    let definition = rig.get(IT).await.expect("the new one");
    assert_eq!(definition["metadata"]["finalizers"], json!([FINALIZER]));
    assert!(!definition["status"].to_string().contains("Terminating"), "{definition}");
    assert!(rig.get(&format!("{THINGS}/new")).await.is_some());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_definition_that_nobody_is_served_goes_with_its_objects() {
    let rig = Rig::new().await;
    makes(&rig.client, "a").await;
    does(&rig.client, "PATCH", IT, definition(false)).await;
    does(&rig.client, "DELETE", IT, Value::Null).await;
    controller(rig.client.clone()).reconcile("things.example.com").await.expect("all of it goes");
    assert!(rig.get(IT).await.is_none());
    does(&rig.client, "POST", DEFINITIONS, definition(true)).await;
    assert_eq!(rig.get(THINGS).await.expect("a list")["items"], json!([]));
}
