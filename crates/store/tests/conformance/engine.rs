//! Stores to run the suite on, with what keeps them alive.

use std::any::Any;
use std::sync::Arc;

use croft_store::sealed::{SealOptions, Sealed};
use croft_store::{Embedded, EmbeddedOptions, Etcd, Store};

use crate::etcd_server::EtcdServer;

pub(crate) struct Engine {
    pub(crate) store: Arc<dyn Store>,
    _kept: Box<dyn Any + Send>,
}

pub(crate) fn embedded() -> Engine {
    let dir = tempfile::tempdir().unwrap();
    let store = Embedded::open(dir.path(), EmbeddedOptions { retention: None, ..EmbeddedOptions::default() }).unwrap();
    Engine { store, _kept: Box::new(dir) }
}

pub(crate) async fn etcd() -> Engine {
    let server = EtcdServer::start().await;
    let store = Etcd::connect(server.options()).await.unwrap();
    Engine { store, _kept: Box::new(server) }
}

/// All of it encrypted.
pub(crate) async fn sealed() -> Engine {
    let dir = tempfile::tempdir().unwrap();
    let options = EmbeddedOptions { retention: None, ..EmbeddedOptions::default() };
    let inner = Embedded::open(&dir.path().join("store"), options).unwrap();
    let options = SealOptions { key_file: dir.path().join("keys"), prefixes: vec![String::new()] };
    let store = Sealed::open(inner, options, "now").await.unwrap();
    Engine { store, _kept: Box::new(dir) }
}
