//! Admission webhooks: what others have to say about a write before it is stored.
//!
//! Configurations are parsed once per change into an [`index::Index`], as roles are. A request asks [`Hooks::find`] first:
//! where no rule names its resource and operation, which is nearly always, that is all it costs. Otherwise the hooks
//! that were found see the object ([`Hooks::mutate`]), and see it again as it is to be stored ([`Hooks::validate`]).
//! That the state they saw is the state that is stored is up to `verbs::reviewed`.
//!
//! Words, codes and the order of things follow kube-apiserver's `admission/plugin/webhook`.

mod applies;
mod attributes;
mod call;
mod failure;
pub(crate) mod fuzzing;
mod hook;
mod index;
mod mutate;
pub(crate) mod place;
pub(crate) mod remote;
mod review;
mod rule;
pub(crate) mod tls;
mod validate;

use std::sync::Arc;

pub(crate) use self::attributes::{Attributes, Operation};
use self::hook::Chosen;
use self::index::Index;
pub(crate) use self::remote::{Remote, RemoteError};
use crate::cache::{Cache, Derived};
use crate::call::{Call, Target};
use crate::metrics::webhooks::WebhookMetrics;

/// Requests about these are never sent to webhooks: one could make itself impossible to remove.
const EXEMPT_GROUP: &str = "admissionregistration.k8s.io";

/// The configured webhooks.
#[derive(Debug)]
pub(crate) struct Webhooks {
    index: Derived<Index, 2>,
    metrics: WebhookMetrics,
}

impl Webhooks {
    pub(crate) fn new(cache: &Cache, metrics: WebhookMetrics) -> Self {
        Self { index: Derived::of(cache, EXEMPT_GROUP, index::SOURCES), metrics }
    }

    /// The index as of now.
    fn index(&self) -> Arc<Index> {
        self.index.get(Index::build)
    }
}

/// The hooks that have a say in a request, by its resource and operation.
#[derive(Debug)]
pub(crate) struct Hooks {
    mutating: Vec<Chosen>,
    validating: Vec<Chosen>,
}

impl Hooks {
    /// `None` if there are none. The target is as the request names it, subresource included.
    pub(crate) fn find(call: &Call, target: &Target, operation: Operation) -> Option<Self> {
        if !call.asks_webhooks || target.group() == EXEMPT_GROUP {
            return None;
        }
        let index = call.server.webhooks.index();
        if index.is_empty() {
            return None;
        }
        let choose = |hooks: &[Arc<hook::Hook>]| -> Vec<Chosen> {
            hooks.iter().filter_map(|hook| Chosen::find(hook, &call.catalog, target, operation)).collect()
        };
        let (mutating, validating) = (choose(&index.mutating), choose(&index.validating));
        (!mutating.is_empty() || !validating.is_empty()).then_some(Self { mutating, validating })
    }
}
