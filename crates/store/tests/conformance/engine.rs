//! Stores to run the suite on, with what keeps them alive.

use std::any::Any;
use std::sync::Arc;

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
