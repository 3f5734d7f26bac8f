//! API servers of others behind this one: APIServices with a `service`.
//!
//! Requests for such a group and version are authenticated and authorized here, and then sent on as they are, in the name
//! of the user ([`proxy`]). [`available`] looks whether the servers are there, and keeps what they serve, for discovery
//! ([`discovered`]). Conditions, reasons and words follow kube-aggregator. What this server serves itself, built in or by a
//! definition, nobody can take from it: the APIService is told so.

mod available;
mod backend;
mod discovered;
pub(crate) mod fuzzing;
mod proxy;

use std::collections::HashMap;
use std::sync::Arc;

use croft_pki::front_proxy::{self, FrontProxy};
use serde_json::{Value, json};

pub(crate) use self::available::follow;
pub(crate) use self::backend::Backend;
pub(crate) use self::discovered::{index, merged};
pub(crate) use self::proxy::answer;
use crate::cache::{Cache, Derived};
use crate::catalog::Catalog;

/// What is behind this server.
#[derive(Debug)]
pub(crate) struct Aggregation {
    backends: Derived<Backends, 1>,
    front_proxy: FrontProxy,
}

/// By group and version.
type Backends = HashMap<(String, String), Arc<Backend>>;

impl Aggregation {
    pub(crate) fn new(cache: &Cache, front_proxy: FrontProxy) -> Self {
        Self { backends: Derived::of(cache, "apiregistration.k8s.io", ["apiservices"]), front_proxy }
    }

    /// Who answers requests for a path, if it is not this server.
    pub(crate) fn find(&self, own: impl FnOnce() -> Arc<Catalog>, path: &str) -> Option<Arc<Backend>> {
        let backends = self.current();
        if backends.is_empty() {
            return None;
        }
        let mut parts = path.trim_start_matches('/').split('/');
        let root = parts.next()?;
        if root == "openapi" && (parts.next()?, parts.next()?) != ("v3", "apis") {
            return None;
        }
        if !matches!(root, "apis" | "openapi") {
            return None;
        }
        let place = (parts.next()?.to_owned(), parts.next()?.to_owned());
        backends.get(&place).filter(|found| !found.is_served_by(&own())).cloned()
    }

    /// As of now. Those that did not change keep their connections, and what is known of them.
    fn current(&self) -> Arc<Backends> {
        self.backends.get(|[services], previous| {
            let mut backends = HashMap::new();
            for object in services.list("") {
                let Some(read) = Backend::read(&object.json(), object.revision) else { continue };
                let place = (read.group.clone(), read.version.clone());
                let known = previous.get(&place).filter(|known| known.is_same(&read));
                let backend = match known {
                    Some(known) => known.with_status_of(read),
                    None => read,
                };
                backends.insert(place, Arc::new(backend));
            }
            backends
        })
    }

    /// Those that serve something: groups of the highest priority first, and their versions likewise.
    pub(crate) fn backends(&self, own: &Catalog) -> Vec<Arc<Backend>> {
        let mut serving = self.all();
        serving.retain(|backend| !backend.is_served_by(own));
        serving.sort_by(|a, b| a.rank().cmp(&b.rank()));
        serving
    }

    fn all(&self) -> Vec<Arc<Backend>> {
        self.current().values().cloned().collect()
    }

    /// What servers behind this one need to know to believe it, and its users: `extension-apiserver-authentication`.
    pub(crate) fn published(&self, client_ca_pem: &str) -> Value {
        let list = |texts: &[&str]| json!(texts).to_string();
        json!({
            "client-ca-file": client_ca_pem,
            "requestheader-allowed-names": list(&[front_proxy::CLIENT]),
            "requestheader-client-ca-file": self.front_proxy.ca_pem(),
            "requestheader-extra-headers-prefix": list(&["X-Remote-Extra-"]),
            "requestheader-group-headers": list(&["X-Remote-Group"]),
            "requestheader-uid-headers": list(&["X-Remote-Uid"]),
            "requestheader-username-headers": list(&["X-Remote-User"]),
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::testing::TestServer;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn what_is_served_here_cannot_be_taken_over() {
        const SERVICES: &str = "/apis/apiregistration.k8s.io/v1/apiservices";
        let server = TestServer::start().await;
        for (group, version) in [("apiregistration.k8s.io", "v1"), ("kubevirt.io", "v1"), ("toys.example.com", "v1")] {
            let service = json!({
                "metadata": {"name": format!("{version}.{group}")},
                "spec": {"group": group, "version": version, "groupPriorityMinimum": 1000, "versionPriority": 15,
                    "insecureSkipTLSVerify": true, "service": {"namespace": "default", "name": "none", "port": 443}},
            });
            server.post(SERVICES, &service).await;
        }
        assert_eq!(server.get(SERVICES).await["items"].as_array().map(Vec::len), Some(3));
        server.get("/apis/kubevirt.io/v1/virtualmachines").await;
        let (code, _) = server.send("GET", "/apis/toys.example.com/v1/toys", &json!(null)).await;
        assert_eq!(code, 503, "nobody serves it here");
        let told = croft_testkit::eventually("the APIService says so", async || {
            let service = server.get(&format!("{SERVICES}/v1.kubevirt.io")).await;
            let condition = service["status"]["conditions"][0].clone();
            if condition.is_null() { Err("not yet") } else { Ok(condition) }
        })
        .await;
        assert_eq!((&told["status"], &told["reason"]), (&json!("False"), &json!("ServedLocally")));
        assert_eq!(told["message"], "kubevirt.io/v1 is served by Croft itself");
    }
}
