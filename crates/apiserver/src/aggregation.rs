//! API servers of others behind this one: APIServices with a `service`.
//!
//! Requests for such a group and version are authenticated and authorized here, and then sent on as they are, in the name
//! of the user ([`proxy`]). [`available`] looks whether the servers are there, and keeps what they serve, for discovery
//! ([`discovered`]). Conditions, reasons and words follow kube-aggregator.

mod available;
mod backend;
mod discovered;
mod proxy;

use std::collections::HashMap;
use std::sync::Arc;

use arc_swap::ArcSwap;
use croft_meta::Revision;
use croft_pki::front_proxy::{self, FrontProxy};
use parking_lot::Mutex;
use serde_json::{Value, json};

pub(crate) use self::available::follow;
pub(crate) use self::backend::Backend;
pub(crate) use self::discovered::{index, merged};
pub(crate) use self::proxy::answer;
use crate::cache::{Cache, Collection};

const STORAGE_KEY: &str = "apiregistration.k8s.io/apiservices";

/// What is behind this server.
#[derive(Debug)]
pub(crate) struct Aggregation {
    services: Arc<Collection>,
    index: ArcSwap<Index>,
    /// Held while the index is made.
    rebuilding: Mutex<()>,
    front_proxy: FrontProxy,
}

#[derive(Debug, Default)]
pub(crate) struct Index {
    changed_at: Revision,
    /// By group and version.
    backends: HashMap<(String, String), Arc<Backend>>,
}

impl Aggregation {
    pub(crate) fn new(cache: &Cache, front_proxy: FrontProxy) -> Self {
        let services = cache.collection(STORAGE_KEY);
        Self { services, index: ArcSwap::default(), rebuilding: Mutex::new(()), front_proxy }
    }

    /// Who answers requests for a path, if it is not this server.
    pub(crate) fn find(&self, path: &str) -> Option<Arc<Backend>> {
        let index = self.index();
        if index.backends.is_empty() {
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
        index.backends.get(&place).cloned()
    }

    /// As of now.
    fn index(&self) -> Arc<Index> {
        let current = self.index.load();
        if current.changed_at == self.services.changed_at() {
            return Arc::clone(&current);
        }
        let _rebuilding = self.rebuilding.lock();
        // Read before the objects: a change in between is then seen as one.
        let changed_at = self.services.changed_at();
        let previous = self.index.load_full();
        if previous.changed_at == changed_at {
            return previous;
        }
        let mut backends = HashMap::new();
        for object in self.services.list("") {
            let Some(read) = Backend::read(&object.json(), object.revision) else { continue };
            let place = (read.group.clone(), read.version.clone());
            let known = previous.backends.get(&place).filter(|known| known.is_same(&read));
            let backend = match known {
                Some(known) => Arc::new(known.with_status_of(read)),
                None => Arc::new(read),
            };
            backends.insert(place, backend);
        }
        let made = Arc::new(Index { changed_at, backends });
        self.index.store(Arc::clone(&made));
        made
    }

    /// All of them: groups of the highest priority first, and their versions likewise.
    pub(crate) fn backends(&self) -> Vec<Arc<Backend>> {
        let mut all: Vec<Arc<Backend>> = self.index().backends.values().cloned().collect();
        all.sort_by(|a, b| a.rank().cmp(&b.rank()));
        all
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
