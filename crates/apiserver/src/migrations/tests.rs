use croft_meta::Revision;
use croft_store::{Embedded, EmbeddedOptions};
use serde_json::json;

use super::*;
use crate::bootstrap;
use crate::config::Config;
use crate::crd;
use crate::server::{Running, StartError, start_unheard};

const MAPS: &str = "core/configmaps";

fn rename(object: &mut Value) -> bool {
    let Some(old) = object["data"].as_object_mut().and_then(|data| data.remove("old")) else { return false };
    object["data"]["new"] = old;
    true
}

/// Counts on what the first one did.
fn shout(object: &mut Value) -> bool {
    let Some(new) = object.pointer_mut("/data/new") else { return false };
    let loud = new.as_str().unwrap_or_default().to_uppercase();
    let is_quiet = *new != json!(loud);
    *new = json!(loud);
    is_quiet
}

fn never(_: &mut Value) -> bool {
    panic!("the release before would not understand it")
}

async fn server(dir: &std::path::Path) -> Running {
    opened(dir).await.unwrap()
}

async fn opened(dir: &std::path::Path) -> Result<Running, StartError> {
    let store = Embedded::open(&dir.join("store"), EmbeddedOptions::default()).unwrap();
    let config = Config::new(dir.to_owned(), store);
    start_unheard(config).await
}

/// Changes an object behind the server's back.
async fn forged(server: &Arc<ApiServer>, kind: &str, id: &str, change: impl Fn(&mut Value)) {
    let object = server.cache.collection(kind).get(id).unwrap();
    let changed = |value: &mut Value| {
        change(value);
        true
    };
    assert!(rewrite(server, kind, &object, changed).await.unwrap());
}

async fn marked(server: &Arc<ApiServer>, release: u32) {
    let mark = Mark { program: format!("0.{release}.0"), release, readable_from: release - 1, migrated: Vec::new() };
    release::write(server, &mark).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn migrations_are_run_in_order_once_they_can_be_gone_back_from() {
    let dir = tempfile::tempdir().unwrap();
    let running = server(dir.path()).await;
    let server = running.server();
    for (name, data) in [("a", json!({"old": "one"})), ("b", json!({"new": "TWO"})), ("c", json!({"other": "three"}))] {
        let metadata = json!({"name": name, "namespace": "default"});
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data});
        bootstrap::refresh(server, map).await.unwrap();
    }
    let data =
        |name: &str| server.cache.collection(MAPS).get(&format!("default/{name}")).unwrap().json()["data"].clone();
    let migration = |name, understood_since, change| Migration { name, kind: MAPS, understood_since, change };
    let all = [migration("rename", 1, rename), migration("shout", 1, shout), migration("later", 2, never)];
    let mark = || Mark { program: "0.2.0".to_owned(), release: 2, readable_from: 1, migrated: Vec::new() };

    // The first release that understands the new form leaves it at that: the one before may come back.
    run_these(server, &all, 1, mark()).await.unwrap();
    assert_eq!(data("a"), json!({"old": "one"}));

    run_these(server, &all, 2, mark()).await.unwrap();
    assert_eq!(data("a"), json!({"new": "ONE"}));
    assert_eq!((data("b"), data("c")), (json!({"new": "TWO"}), json!({"other": "three"})));
    let marked = server.cache.collection(MAPS).get("kube-system/croft-release").unwrap().json();
    assert_eq!(marked["data"]["migrated"], "rename shout");

    // As after a start that was cut short before it was marked: nothing is written that is there.
    let before = server.store.revision().await.unwrap();
    run_these(server, &all, 2, mark()).await.unwrap();
    assert!(server.store.revision().await.unwrap() <= Revision(before.0 + 2), "only the mark may be written");
    assert_eq!(data("a"), json!({"new": "ONE"}));
    running.stop().await.unwrap();
}

#[test]
fn what_is_done_is_not_due() {
    let migration = |name, understood_since| Migration { name, kind: MAPS, understood_since, change: never };
    let all = [migration("first", 1), migration("second", 2), migration("third", 3)];
    let mark = |done: &[&str]| Mark {
        program: String::new(),
        release: 3,
        readable_from: 2,
        migrated: done.iter().map(|name| (*name).to_owned()).collect(),
    };
    let names = |own, done: &[&str]| due(&all, own, &mark(done)).iter().map(|one| one.name).collect::<Vec<_>>();
    assert_eq!(names(1, &[]), [""; 0]);
    assert_eq!(names(3, &[]), ["first", "second"]);
    assert_eq!(names(4, &["first"]), ["second", "third"]);
}

#[test]
fn every_migration_has_a_name_of_its_own() {
    let mut names = names();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), ALL.len());
    assert!(ALL.iter().all(|migration| !migration.name.contains(char::is_whitespace)));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_next_release_made_stays_and_the_one_after_it_is_refused() {
    const NAME: &str = "keypairs.harvesterhci.io";
    let dir = tempfile::tempdir().unwrap();
    let categories = |running: &Running| {
        let definition = running.server().cache.collection(crd::STORAGE_KEY).get(NAME).unwrap().json();
        definition["spec"]["names"]["categories"].clone()
    };
    let first = server(dir.path()).await;
    forged(first.server(), crd::STORAGE_KEY, NAME, |value| value["spec"]["names"]["categories"] = json!(["newer"]))
        .await;
    marked(first.server(), release::own() + 1).await;
    first.stop().await.unwrap();

    let back = server(dir.path()).await;
    assert_eq!(categories(&back), json!(["newer"]));
    let mark = back.server().cache.collection(MAPS).get("kube-system/croft-release").unwrap().json();
    assert_eq!(mark["data"]["release"], (release::own() + 1).to_string(), "the mark does not go down");
    marked(back.server(), release::own()).await;
    back.stop().await.unwrap();

    let own = server(dir.path()).await;
    assert_ne!(categories(&own), json!(["newer"]), "its own definitions are brought up to date");
    marked(own.server(), release::own() + 2).await;
    own.stop().await.unwrap();
    assert!(matches!(opened(dir.path()).await, Err(StartError::TooNew(_))));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_version_that_is_dropped_takes_no_object_with_it() {
    const NAME: &str = "keypairs.harvesterhci.io";
    const PAIRS: &str = "harvesterhci.io/keypairs";
    let dir = tempfile::tempdir().unwrap();
    let first = server(dir.path()).await;
    let before = first.server().cache.collection(crd::STORAGE_KEY).get(NAME).unwrap().json()["spec"].clone();
    let metadata = json!({"name": "pair", "namespace": "default"});
    let key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ+TaCaN9DAZ9CeSqUwQR8pBTYVDXtgeVVdwBvoTTKYM";
    let pair = json!({"apiVersion": "harvesterhci.io/v1beta1", "kind": "KeyPair", "metadata": metadata, "spec": {"publicKey": key}});
    bootstrap::refresh(first.server(), pair).await.unwrap();
    // As an earlier release would have stored them.
    forged(first.server(), crd::STORAGE_KEY, NAME, |value| {
        let versions = value["spec"]["versions"].as_array_mut().unwrap();
        for version in versions.iter_mut() {
            version["storage"] = json!(false);
        }
        let mut old = versions[0].clone();
        (old["name"], old["storage"]) = (json!("v1alpha0"), json!(true));
        versions.push(old);
        value["status"]["storedVersions"] = json!(["v1alpha0"]);
    })
    .await;
    forged(first.server(), PAIRS, "default/pair", |value| value["apiVersion"] = json!("harvesterhci.io/v1alpha0"))
        .await;
    first.stop().await.unwrap();

    let next = server(dir.path()).await;
    let definition = next.server().cache.collection(crd::STORAGE_KEY).get(NAME).unwrap().json();
    assert_eq!(definition["status"]["storedVersions"], json!(["v1beta1"]));
    assert_eq!(definition["spec"], before);
    let pair = next.server().cache.collection(PAIRS).get("default/pair").unwrap().json();
    assert_eq!((&pair["apiVersion"], &pair["spec"]["publicKey"]), (&json!("harvesterhci.io/v1beta1"), &json!(key)));
    next.stop().await.unwrap();
}
