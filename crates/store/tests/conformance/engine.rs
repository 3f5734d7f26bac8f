//! Stores to run the suite on, with what keeps them alive.

use std::sync::Arc;

use croft_store::{Embedded, EmbeddedOptions, Store};

pub(crate) struct Engine {
    pub(crate) store: Arc<dyn Store>,
    _dir: tempfile::TempDir,
}

pub(crate) fn embedded() -> Engine {
    let dir = tempfile::tempdir().unwrap();
    let store = Embedded::open(dir.path(), EmbeddedOptions { retention: None, ..EmbeddedOptions::default() }).unwrap();
    Engine { store, _dir: dir }
}
