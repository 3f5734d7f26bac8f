//! Figures of this node, its pools and its guests, in Prometheus' text format.
//!
//! What is in that format is not gathered until somebody asks, and then by one at a time: every guest at once, each with a limit of its own,
//! so that a machine that hangs delays the answer by that limit and no more. Names and labels are those of KubeVirt and
//! node-exporter, since dashboards and alerts know them.

mod balloon;
mod guest;
mod node;
mod phases;
mod process;
mod text;
mod usage;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures::future::join_all;
use http::{Response, StatusCode};
use tokio::sync::Mutex;
use tokio::time::timeout;

use crate::guest::{Guest, Guests};
use crate::network::Networks;
use crate::server::answer::{Body, with_type};
use crate::volume::{PoolFigures, Volumes};
use guest::Kind;
pub(crate) use phases::Phases;
use text::{Labels, Metric, Page, gauge, number};
pub(crate) use usage::Window;

const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";
/// For the file systems of the pools, which may hang with their disks.
const POOLS: Duration = Duration::from_secs(2);

const PHASE_COUNT: Metric = gauge("kubevirt_vmi_phase_count", "Sum of VMIs per phase and node.");

/// Where the figures come from.
pub(crate) struct Figures {
    node: Labels,
    guests: Guests,
    phases: Arc<Phases>,
    /// Known once the node can run guests.
    workload: OnceLock<(Volumes, Arc<Networks>)>,
    turn: Mutex<()>,
    usage: usage::Usage,
}

impl fmt::Debug for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Figures").field("node", &self.node).finish_non_exhaustive()
    }
}

impl Figures {
    pub(crate) fn new(node_name: &str, guests: Guests) -> Arc<Figures> {
        let node = Labels::default().with("node", node_name);
        Arc::new(Figures {
            node,
            guests,
            phases: Arc::default(),
            workload: OnceLock::new(),
            turn: Mutex::default(),
            usage: usage::Usage::default(),
        })
    }

    /// To be told of machines that change.
    pub(crate) fn phases(&self) -> Arc<Phases> {
        Arc::clone(&self.phases)
    }

    pub(crate) fn include(&self, volumes: Volumes, networks: Arc<Networks>) {
        // Set once, when the node's workload starts.
        let _ = self.workload.set((volumes, networks));
    }

    pub(crate) async fn answer(&self) -> Response<Body> {
        let _turn = self.turn.lock().await;
        let mut page = Page::default();
        node::host(&mut page, &self.node);
        self.phases.tell(&mut page, &self.node);
        let ((), pools) = tokio::join!(self.guests(&mut page), self.pools());
        page.merge(pools);
        with_type(StatusCode::OK, CONTENT_TYPE, page.finish())
    }

    async fn guests(&self, page: &mut Page) {
        let guests = self.guests.all();
        let networks = self.workload.get().map(|(_, networks)| &**networks);
        let mut phases: BTreeMap<Kind, u64> = BTreeMap::new();
        let kinds: Vec<Kind> = guests.iter().map(|guest| kind(guest)).collect();
        for kind in &kinds {
            *phases.entry(kind.clone()).or_default() += 1;
        }
        for (kind, count) in phases {
            page.add(PHASE_COUNT, &kind.label(&self.node), number(count));
        }
        let both = guests.iter().zip(&kinds);
        let collecting = both.map(|(guest, kind)| guest::collect(guest, kind, &self.node, networks));
        for figures in join_all(collecting).await {
            page.merge(figures);
        }
    }

    async fn pools(&self) -> Page {
        let mut page = Page::default();
        node::pools(&mut page, &self.node, &self.pool_figures().await);
        page
    }

    /// None as long as the disks hang.
    async fn pool_figures(&self) -> Vec<PoolFigures> {
        let Some((volumes, _)) = self.workload.get() else { return Vec::new() };
        let volumes = volumes.clone();
        let asking = tokio::task::spawn_blocking(move || volumes.figures());
        timeout(POOLS, asking).await.ok().and_then(Result::ok).unwrap_or_default()
    }
}

fn kind(guest: &Guest) -> Kind {
    let object = guest.machine.as_ref().map(|machine| machine.object());
    Kind::of(&object.unwrap_or_default())
}
