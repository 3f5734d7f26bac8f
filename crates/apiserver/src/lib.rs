//! A Kubernetes API server that real clients cannot tell from kube-apiserver for what they use.
//!
//! A request flows: [`serve`] (TLS) → [`pipeline`] (who, may they, what) → one of the `verbs`, the
//! same for every kind, driven by the resource table of `croft-api` → the store; and back as bytes.
//! Reads come from [`cache`], which follows the store. Invariants:
//! - every failure is a `metav1.Status`;
//! - a write is durable before it is acknowledged;
//! - no verb knows a kind by name: what a kind does is in its row (`croft_api::Behaviour`).

mod cache;
mod catalog;
mod encoding;
mod request;
mod user;
