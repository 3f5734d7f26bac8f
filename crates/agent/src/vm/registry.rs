//! The machines that run, by the names of their objects.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::RwLock;

use super::running::Running;

#[derive(Debug, Default)]
pub(super) struct Registry(RwLock<HashMap<(String, String), Arc<Running>>>);

impl Registry {
    pub(super) fn add(&self, machine: Arc<Running>) {
        self.0.write().insert((machine.namespace.clone(), machine.name.clone()), machine);
    }

    /// Another run may have the name by now.
    pub(super) fn remove(&self, machine: &Running) {
        let key = (machine.namespace.clone(), machine.name.clone());
        let mut all = self.0.write();
        if all.get(&key).is_some_and(|known| known.uid == machine.uid) {
            all.remove(&key);
        }
    }

    pub(super) fn get(&self, namespace: &str, name: &str) -> Option<Arc<Running>> {
        self.0.read().get(&(namespace.to_owned(), name.to_owned())).cloned()
    }

    pub(super) fn all(&self) -> Vec<Arc<Running>> {
        self.0.read().values().cloned().collect()
    }
}
