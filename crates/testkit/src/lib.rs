//! What the end-to-end tests stand on: real servers in temporary directories, real clients, and [`eventually`].
//!
//! - [`Croft`] starts the real binary on either store; [`KubeApiserver`] starts the reference server when the
//!   environment names one, so that a test can prove itself right before it judges Croft.
//! - Both dereference to an [`Endpoint`], which hands out HTTPS [`Client`]s and a [`Kubectl`].
//! - Every process is killed when its guard is dropped, and leaves its log in the error of whatever failed.
//!
//! This crate is for tests and benchmarks only; nothing in the product depends on it.

mod croft;
mod endpoint;
mod etcd;
mod etcd_cluster;
pub mod history;
mod https;
mod kube_apiserver;
mod kubectl;
mod lan;
pub mod linearizability;
mod memory_limit;
mod patience;
mod pki;
mod process;
pub mod rfb;
mod server;
mod websocket;

pub use croft::{Croft, StoreKind, binary};
pub use endpoint::Endpoint;
pub use etcd::Etcd;
pub use etcd_cluster::EtcdCluster;
pub use https::{Answer, Call, Client, Protocol, Stream};
pub use kube_apiserver::KubeApiserver;
pub use kubectl::{Kubectl, Output};
pub use lan::{Host, Lan, Lost};
pub use memory_limit::MemoryLimit;
pub use patience::{eventually, eventually_within, patience, promptly_within};
pub use pki::{Authority, Identity};
pub use process::{Process, find_program, free_port};
pub use server::{Server, ServerKind};
pub use websocket::{PLAIN, Refused, WebSocket};
