//! Connections, and those for which there was no room.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// Cheap to clone: what one counts, all show.
#[derive(Clone, Debug, Default)]
pub(crate) struct Connections {
    open: Gauge,
    sent_away: Counter,
    cut: Counter,
    refused: Counter,
}

impl Connections {
    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register("croft_connections", "Connections that are open", self.open.clone());
        registry.register(
            "croft_connections_sent_away",
            "Quiet connections that were closed to make room for others",
            self.sent_away.clone(),
        );
        registry.register(
            "croft_connections_cut",
            "Connections that were closed because their clients left most of what there was for them lying",
            self.cut.clone(),
        );
        registry.register(
            "croft_connections_refused",
            "Connections that were not accepted because all others were in use",
            self.refused.clone(),
        );
    }

    pub(crate) fn opened(&self, change: i64) {
        self.open.inc_by(change);
    }

    pub(crate) fn sent_away(&self) {
        self.sent_away.inc();
    }

    pub(crate) fn cut(&self) {
        self.cut.inc();
    }

    pub(crate) fn refused(&self) {
        self.refused.inc();
    }
}
