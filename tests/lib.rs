//! End-to-end suites: the real binary, driven by real clients. Each suite lives in its own file beside this one.
//!
//! The suites marked with [`on_every_server`] also run against the reference server when `KUBE_APISERVER` names
//! one: a test that the original does not pass is a wrong test.

pub mod conformance_definition;
pub mod conformance_lives;
pub mod export;
pub mod flows;
pub mod kept;
pub mod logins;
pub mod machines;
pub mod oidc_config;
pub mod oidc_issuer;
pub mod oidc_provider;
pub mod outside;
pub mod policy_objects;
pub mod registry;
pub mod ruled;
pub mod runner;
pub mod seeded;
pub mod storage;
pub mod web;
pub mod webhook_field;
pub mod webhook_server;
pub mod witness;

pub use croft_testkit::{Server, ServerKind};

/// Makes a module with one test per server out of `async fn body(&Server)`: `embedded`, `etcd` and `reference`.
#[macro_export]
macro_rules! on_every_server {
    ($($(#[$meta:meta])* $name:ident),+ $(,)?) => {$(
        mod $name {
            async fn run(kind: $crate::ServerKind) {
                if !kind.wanted() {
                    eprintln!("{kind:?} is not wanted in this run");
                    return;
                }
                let server = $crate::Server::start(kind).await.expect("the server starts");
                super::body::$name(&server).await;
            }
            $(#[$meta])*
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn embedded() {
                run($crate::ServerKind::Embedded).await;
            }
            $(#[$meta])*
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn etcd() {
                run($crate::ServerKind::Etcd).await;
            }
            $(#[$meta])*
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn reference() {
                run($crate::ServerKind::Reference).await;
            }
        }
    )+};
}
