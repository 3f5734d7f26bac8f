//! The webhooks of all configurations, parsed, in the order in which they are called.

use std::sync::Arc;

use super::hook::{Hook, Stage};
use crate::cache::{Collection, Object, Parsed};

/// The stored configurations.
pub(super) const SOURCES: [&str; 2] = ["mutatingwebhookconfigurations", "validatingwebhookconfigurations"];

/// The hooks of a configuration. What did not change keeps its connections.
type Hooks = Vec<Arc<Hook>>;

#[derive(Debug, Default)]
pub(super) struct Index {
    parsed: [Parsed<Hooks>; 2],
    pub(super) mutating: Hooks,
    pub(super) validating: Hooks,
}

impl Index {
    pub(super) fn build([mutating, validating]: [&Collection; SOURCES.len()], previous: &Self) -> Self {
        let [previous_mutating, previous_validating] = &previous.parsed;
        let mutating = parse(mutating, previous_mutating, Stage::Mutating);
        let validating = parse(validating, previous_validating, Stage::Validating);
        Self { mutating: in_order(&mutating), validating: in_order(&validating), parsed: [mutating, validating] }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.mutating.is_empty() && self.validating.is_empty()
    }
}

fn parse(collection: &Collection, previous: &Parsed<Hooks>, stage: Stage) -> Parsed<Hooks> {
    Parsed::of(&collection.list(""), previous, |object| hooks(object, stage))
}

fn hooks(configuration: &Object, stage: Stage) -> Hooks {
    let json = configuration.json();
    let hooks = json["webhooks"].as_array().into_iter().flatten();
    hooks.map(|hook| Arc::new(Hook::parse(configuration.name(), hook, stage))).collect()
}

/// By the configuration's name, then by the place in it.
fn in_order(parsed: &Parsed<Hooks>) -> Hooks {
    parsed.in_order().into_iter().flat_map(|hooks| hooks.iter().cloned()).collect()
}
