//! The webhooks of all configurations, parsed, in the order in which they are called.

use std::collections::HashMap;
use std::sync::Arc;

use croft_meta::Revision;
use serde_json::Value;

use super::hook::{Hook, Stage};
use crate::cache::{Cache, Collection};

/// The stored configurations.
#[derive(Debug)]
pub(super) struct Sources {
    mutating: Arc<Collection>,
    validating: Arc<Collection>,
}

impl Sources {
    pub(super) fn of(cache: &Cache) -> Self {
        let collection = |plural: &str| cache.collection(&format!("{}/{plural}", super::EXEMPT_GROUP));
        Self {
            mutating: collection("mutatingwebhookconfigurations"),
            validating: collection("validatingwebhookconfigurations"),
        }
    }

    pub(super) fn changed_at(&self) -> [Revision; 2] {
        [self.mutating.changed_at(), self.validating.changed_at()]
    }
}

/// The hooks of a configuration, by its name. What did not change is not parsed again, and keeps its connections.
type Parsed = HashMap<Box<str>, (Revision, Vec<Arc<Hook>>)>;

#[derive(Debug, Default)]
pub(super) struct Index {
    changed_at: [Revision; 2],
    parsed: [Parsed; 2],
    pub(super) mutating: Vec<Arc<Hook>>,
    pub(super) validating: Vec<Arc<Hook>>,
}

impl Index {
    pub(super) fn build(sources: &Sources, changed_at: [Revision; 2], previous: &Self) -> Self {
        let [mutating, validating] = &previous.parsed;
        let mutating = parse(&sources.mutating, mutating, Stage::Mutating);
        let validating = parse(&sources.validating, validating, Stage::Validating);
        Self {
            changed_at,
            mutating: in_order(&mutating),
            validating: in_order(&validating),
            parsed: [mutating, validating],
        }
    }

    pub(super) fn is_of(&self, changed_at: [Revision; 2]) -> bool {
        self.changed_at == changed_at
    }

    pub(super) fn is_empty(&self) -> bool {
        self.mutating.is_empty() && self.validating.is_empty()
    }
}

fn parse(collection: &Collection, previous: &Parsed, stage: Stage) -> Parsed {
    let read = |object: &Arc<crate::cache::Object>| {
        let known = previous.get(object.name()).filter(|(revision, _)| *revision == object.revision);
        let hooks = known.map_or_else(|| hooks(object.name(), &object.json(), stage), |(_, hooks)| hooks.clone());
        (Box::from(object.name()), (object.revision, hooks))
    };
    collection.list("").iter().map(read).collect()
}

fn hooks(configuration: &str, object: &Value, stage: Stage) -> Vec<Arc<Hook>> {
    let hooks = object["webhooks"].as_array();
    hooks.into_iter().flatten().map(|hook| Arc::new(Hook::parse(configuration, hook, stage))).collect()
}

/// By the configuration's name, then by the place in it.
fn in_order(parsed: &Parsed) -> Vec<Arc<Hook>> {
    let mut names: Vec<_> = parsed.keys().collect();
    names.sort_unstable();
    names.into_iter().flat_map(|name| parsed[name].1.iter().cloned()).collect()
}
