//! Maintenance of nodes: the annotations, the taint and the label that it is done with.

/// On a node: `running` while it is emptied, then `completed`.
pub const STATUS: &str = "harvesterhci.io/maintain-status";
/// On a node: it is to be emptied, whatever runs there if forced.
pub const DRAIN_REQUESTED: &str = "harvesterhci.io/drain-requested";
pub const DRAIN_FORCED: &str = "harvesterhci.io/drain-forced";
pub const DRAIN_TAINT: &str = "kubevirt.io/drain";
/// A node's condition: nothing runs there any more.
pub const DRAINED: &str = "Drained";
/// On a machine, a label: what becomes of it.
pub const STRATEGY: &str = "harvesterhci.io/maintain-mode-strategy";
/// On a machine: the node whose maintenance shut it down, and that it comes back with.
pub const STOPPED_FOR: &str = "harvesterhci.io/maintain-mode-strategy-node-name";

/// The values of [`STRATEGY`].
pub mod strategy {
    pub const MIGRATE: &str = "Migrate";
    pub const RESTART_AFTER_ENABLE: &str = "ShutdownAndRestartAfterEnable";
    pub const RESTART_AFTER_DISABLE: &str = "ShutdownAndRestartAfterDisable";
    pub const SHUTDOWN: &str = "Shutdown";
}
