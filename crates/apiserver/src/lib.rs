//! A Kubernetes API server that real clients cannot tell from kube-apiserver for what they use.
//!
//! A request flows: `serve` (TLS) → `pipeline` (who, may they, what) → one of the `verbs`, the same
//! for every kind, driven by the resource table of `croft-api` → `write` → the store; and back as
//! bytes. Reads come from `cache`, which follows the store. Invariants:
//! - every failure is a `metav1.Status`;
//! - a write is durable before it is acknowledged;
//! - no verb knows a kind by name: what a kind does is in its row (`croft_api::Behaviour`), what needs
//!   other objects is in `admission`.
//!
//! Start reading at [`start`], then `pipeline`.

mod admission;
mod aggregation;
mod answer;
mod answer_room;
mod audit;
mod auth;
mod backup_target;
mod body_room;
mod bootstrap;
mod cache;
mod call;
mod catalog;
mod certificates;
mod clock;
mod config;
mod config_reader;
mod connections;
mod conversion;
mod crd;
mod cut;
mod decode;
mod discovery;
mod encoding;
mod fairness;
#[doc(hidden)]
pub mod fuzzing;
mod harvester;
mod history;
mod kubevirt;
mod list_body;
mod local;
mod login_locks;
mod metrics;
mod migrations;
mod moving;
mod negotiate;
mod network;
mod node_proxy;
mod openapi;
mod options;
mod own_endpoints;
mod paths;
mod pieces;
mod pipeline;
mod prepare;
mod quota_turns;
mod release;
mod request;
mod rest;
mod sealing;
mod serve;
mod server;
mod services;
mod sessions;
mod shares;
mod signing;
mod state;
mod store_page;
mod streams;
mod subresources;
mod table;
#[cfg(test)]
mod testing;
mod upload;
mod usage;
mod user;
mod verbs;
mod web_tls;
mod webhooks;
mod websocket;
mod write;

pub use answer::{Body, BoxError};
pub use audit::{AuditBatch, AuditLog, AuditPolicy, AuditSink, AuditWebhook, PolicyError, WebhookError};
pub use auth::LoginLimits;
pub use auth::authenticate::oidc::{AuthenticationConfig, AuthenticationConfigError, IssuersError};
pub use auth::request_header::FrontProxies;
pub use config::{Config, Limits, Listen, Website};
pub use local::LocalService;
pub use release::TooNew;
pub use sealing::storage_prefix;
pub use server::{Running, StartError, start, start_unheard};
