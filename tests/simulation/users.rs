//! Users who create, change, read and delete, and remember what they were told.

use std::sync::Arc;
use std::time::Duration;

use http::Method;
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::client::{Answer, Client};
use crate::disk::Disk;
use crate::mutation::Mutation;
use crate::reads;
use crate::sim::Sim;

pub(crate) const NAMESPACES: [&str; 3] = ["s0", "s1", "s2"];
/// Only users take it away again.
pub(crate) const HOLD: &str = "simulation.croft.io/hold";
pub(crate) const CONFIG_MAPS: &str = "registry/core/configmaps/";
/// One that is there from the start, and that many change at once.
pub(crate) const CONTENDED: &str = "default/contended";
/// How many ConfigMaps a namespace may have, the certificate of the server's authority among them.
pub(crate) const QUOTA: usize = 6;

/// A write that was asked for.
#[derive(Clone, Debug)]
pub(crate) struct Attempt {
    pub(crate) key: String,
    /// In the object, if it was written.
    pub(crate) token: String,
    /// The revision that it was to replace, if it said one.
    pub(crate) over: Option<u64>,
    pub(crate) outcome: Outcome,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Acknowledged { revision: u64, uid: String },
    Refused(u16),
    Unknown,
}

/// That something may go, by somebody who may have been heard at any time since.
#[derive(Clone, Debug)]
pub(crate) struct Permission {
    /// One object, or all below.
    pub(crate) prefix: String,
    pub(crate) since: u64,
    /// None if nobody knows when it was heard.
    pub(crate) until: Option<u64>,
}

/// What users did.
#[derive(Debug, Default)]
pub(crate) struct Log {
    pub(crate) attempts: Mutex<Vec<Attempt>>,
    pub(crate) deletions: Mutex<Vec<Permission>>,
    pub(crate) releases: Mutex<Vec<Permission>>,
    /// Uids that are gone for good, as users were told.
    pub(crate) gone: Mutex<Vec<String>>,
}

pub(crate) struct User {
    pub(crate) sim: Sim,
    pub(crate) disk: Arc<Disk>,
    pub(crate) client: Client,
    pub(crate) log: Arc<Log>,
    pub(crate) name: String,
    /// Namespace, name and uid of owners that it made.
    pub(crate) owners: Vec<(String, String, String)>,
    pub(crate) done: u32,
}

impl User {
    pub(crate) async fn run(mut self, operations: u32) {
        for _ in 0..operations {
            self.sim.sleep(self.sim.within(Duration::from_millis(1500))).await;
            self.done += 1;
            match self.sim.below(100) {
                0..=13 => self.create_namespace().await,
                14..=17 => self.delete_namespace().await,
                18..=35 => self.create_map("map").await,
                36..=43 => self.create_map("owner").await,
                44..=53 => self.create_map("child").await,
                54..=59 => self.replace().await,
                60..=62 => self.contend().await,
                63..=70 => self.patch().await,
                71..=78 => self.delete().await,
                79..=82 => self.list().await,
                83..=86 => self.release().await,
                87..=93 => self.create_machine().await,
                94..=96 => self.switch_machine().await,
                _ => self.delete_machine().await,
            }
        }
    }

    fn namespace(&self) -> &'static str {
        NAMESPACES[usize::try_from(self.sim.below(NAMESPACES.len() as u64)).unwrap_or(0)]
    }

    fn token(&self) -> String {
        format!("{}-{}", self.name, self.done)
    }

    /// Creates or changes an object with a token in it, and writes down what came of it.
    async fn write(&self, method: Method, path: &str, key: String, body: &Value) -> Option<Value> {
        let answer = self.client.send(method, path, Some(body)).await;
        let (outcome, object) = match answer {
            Answer::Done(_) if self.sim.has(Mutation::RefusedButDone) && self.sim.percent(20) => {
                (Outcome::Refused(409), None)
            }
            Answer::Done(object) => {
                let uid = text(&object, "/metadata/uid");
                (Outcome::Acknowledged { revision: version(&object), uid }, Some(object))
            }
            Answer::Refused(code) => (Outcome::Refused(code), None),
            Answer::Unknown => (Outcome::Unknown, None),
        };
        let (token, over) = (token_of(body), Some(version(body)).filter(|over| *over > 0));
        self.sim.step(format_args!("{} {key} {token} {outcome:?}", self.name));
        self.log.attempts.lock().push(Attempt { key, token, over, outcome });
        object
    }

    async fn create_namespace(&self) {
        let namespace = self.namespace();
        let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace,
            "annotations": {"token": self.token()}}});
        let key = format!("registry/core/namespaces/{namespace}");
        if self.write(Method::POST, "/api/v1/namespaces", key, &object).await.is_none() {
            return;
        }
        let quota = json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "quota"},
            "spec": {"hard": {"count/configmaps": QUOTA.to_string()}}});
        self.client.send(Method::POST, &format!("/api/v1/namespaces/{namespace}/resourcequotas"), Some(&quota)).await;
    }

    async fn delete_namespace(&self) {
        let namespace = self.namespace();
        self.remove(&format!("/api/v1/namespaces/{namespace}"), format!("registry/core/namespaces/{namespace}")).await;
    }

    async fn create_map(&mut self, sort: &str) {
        let namespace = self.namespace();
        let name = format!("{sort}-{}", self.sim.below(3));
        let mut object = json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": name, "labels": {"tier": self.sim.pick(&["a", "b"])}},
            "data": {"token": self.token()}});
        if sort == "child" {
            let Some((of, name, uid)) = self.owners.iter().rev().find(|owner| owner.0 == namespace).cloned() else {
                return;
            };
            debug_assert_eq!(of, namespace);
            object["metadata"]["ownerReferences"] = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": name,
                "uid": uid, "blockOwnerDeletion": self.sim.percent(50)}]);
        }
        if self.sim.percent(15) {
            object["metadata"]["finalizers"] = json!([HOLD]);
        }
        let key = format!("{CONFIG_MAPS}{namespace}/{name}");
        let path = format!("/api/v1/namespaces/{namespace}/configmaps");
        if let Some(made) = self.write(Method::POST, &path, key, &object).await
            && sort == "owner"
        {
            self.owners.push((namespace.to_owned(), name, text(&made, "/metadata/uid")));
        }
    }

    fn some_map(&self) -> (String, String) {
        let (namespace, sort) = (self.namespace(), self.sim.pick(&["map", "map", "owner", "child"]));
        let name = format!("{sort}-{}", self.sim.below(3));
        let path = format!("/api/v1/namespaces/{namespace}/configmaps/{name}");
        (path, format!("{CONFIG_MAPS}{namespace}/{name}"))
    }

    /// Reads, changes and writes back what it read.
    async fn replace(&self) {
        let (path, key) = self.some_map();
        let since = self.disk.revision();
        let answer = self.client.get(&path).await;
        reads::check_read(&self.sim, &self.disk, &key, since, &answer);
        let Answer::Done(mut object) = answer else { return };
        object["data"] = json!({"token": self.token()});
        self.write(Method::PUT, &path, key, &object).await;
    }

    /// Several changes of the same state at the same time: one of them can win.
    async fn contend(&self) {
        let key = format!("{CONFIG_MAPS}{CONTENDED}");
        let path =
            format!("/api/v1/namespaces/default/configmaps/{}", CONTENDED.rsplit('/').next().unwrap_or_default());
        let since = self.disk.revision();
        let answer = self.client.get(&path).await;
        reads::check_read(&self.sim, &self.disk, &key, since, &answer);
        let Answer::Done(object) = answer else { return };
        let attempts = (0..4).map(|number| {
            let (mut object, key, path) = (object.clone(), key.clone(), &path);
            object["data"] = json!({"token": format!("{}-{number}", self.token())});
            async move { self.write(Method::PUT, path, key, &object).await }
        });
        futures::future::join_all(attempts).await;
    }

    async fn patch(&self) {
        let (path, key) = self.some_map();
        let patch =
            json!({"metadata": {"labels": {"tier": self.sim.pick(&["a", "b"])}}, "data": {"token": self.token()}});
        self.write(Method::PATCH, &path, key, &patch).await;
    }

    async fn release(&self) {
        let (path, key) = self.some_map();
        release(&self.disk, &self.client, &self.log, &path, key).await;
    }

    async fn delete(&self) {
        let namespace = self.namespace();
        // Children are for the collector.
        let name = format!("{}-{}", self.sim.pick(&["map", "owner", "owner"]), self.sim.below(3));
        let path = format!("/api/v1/namespaces/{namespace}/configmaps/{name}");
        self.remove(&path, format!("{CONFIG_MAPS}{namespace}/{name}")).await;
    }

    async fn remove(&self, path: &str, key: String) {
        let since = self.disk.revision();
        let policy = self.sim.pick(&["Background", "Background", "Foreground", "Orphan"]);
        let options = json!({"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": policy});
        let answer = self.client.send(Method::DELETE, path, Some(&options)).await;
        let until = match &answer {
            Answer::Done(body) => {
                // A Status is said of what is gone; an object, of what is going.
                if body["kind"] == "Status" {
                    self.log.gone.lock().push(text(body, "/details/uid"));
                }
                Some(self.disk.revision())
            }
            Answer::Refused(..) => return,
            Answer::Unknown => None,
        };
        self.log.deletions.lock().push(Permission { prefix: key, since, until });
    }

    async fn list(&self) {
        let namespace = self.namespace();
        let everywhere = self.sim.percent(30);
        let limit = [0, 0, 2][usize::try_from(self.sim.below(3)).unwrap_or(0)];
        let (path, prefix) = if everywhere {
            ("/api/v1/configmaps".to_owned(), CONFIG_MAPS.to_owned())
        } else {
            (format!("/api/v1/namespaces/{namespace}/configmaps"), format!("{CONFIG_MAPS}{namespace}/"))
        };
        reads::check_list(&self.sim, &self.disk, &self.client, &path, &prefix, limit).await;
    }

    async fn create_machine(&self) {
        let namespace = self.namespace();
        let name = format!("vm-{}", self.sim.below(2));
        let object = json!({"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine",
            "metadata": {"name": name, "annotations": {"token": self.token()}},
            "spec": {"runStrategy": self.sim.pick(&["Always", "Always", "Halted", "RerunOnFailure"]), "template": {"spec": {
                "domain": {"cpu": {"cores": 1}, "memory": {"guest": "64Mi"}, "devices": {},
                    "resources": {"requests": {"cpu": "1m", "memory": "1Mi"}}}}}}});
        let key = format!("registry/kubevirt.io/virtualmachines/{namespace}/{name}");
        let path = format!("/apis/kubevirt.io/v1/namespaces/{namespace}/virtualmachines");
        self.write(Method::POST, &path, key, &object).await;
    }

    fn some_machine(&self) -> (String, String) {
        let (namespace, name) = (self.namespace(), format!("vm-{}", self.sim.below(2)));
        let path = format!("/apis/kubevirt.io/v1/namespaces/{namespace}/virtualmachines/{name}");
        (path, format!("registry/kubevirt.io/virtualmachines/{namespace}/{name}"))
    }

    async fn switch_machine(&self) {
        let (path, key) = self.some_machine();
        let patch = json!({"metadata": {"annotations": {"token": self.token()}},
            "spec": {"runStrategy": self.sim.pick(&["Always", "Halted"])}});
        self.write(Method::PATCH, &path, key, &patch).await;
    }

    async fn delete_machine(&self) {
        let (path, key) = self.some_machine();
        self.remove(&path, key).await;
    }
}

/// Takes the hold off an object, so that it may go.
pub(crate) async fn release(disk: &Disk, client: &Client, log: &Log, path: &str, key: String) {
    let since = disk.revision();
    let patch = json!({"metadata": {"finalizers": null}});
    let until = match client.send(Method::PATCH, path, Some(&patch)).await {
        Answer::Done(_) => Some(disk.revision()),
        Answer::Refused(..) => return,
        Answer::Unknown => None,
    };
    log.releases.lock().push(Permission { prefix: key, since, until });
}

pub(crate) fn text(object: &Value, path: &str) -> String {
    object.pointer(path).and_then(Value::as_str).unwrap_or_default().to_owned()
}

pub(crate) fn version(object: &Value) -> u64 {
    text(object, "/metadata/resourceVersion").parse().unwrap_or(0)
}

/// What a user put into an object to know it again.
pub(crate) fn token_of(object: &Value) -> String {
    let data = text(object, "/data/token");
    if data.is_empty() { text(object, "/metadata/annotations/token") } else { data }
}
