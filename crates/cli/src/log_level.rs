//! The setting `log-level`: what it says counts while it says something.

use croft_api::harvester::Setting;
use croft_reconcile::{Cache, Source};
use futures::StreamExt;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::logging::Filter;

pub(crate) async fn follow(client: kube::Client, filter: Filter, stop: CancellationToken) {
    let cache: Cache<Setting> = Cache::default();
    let source = Source { fields: Some("metadata.name=log-level".to_owned()), ..Source::of::<Setting>() };
    let mut changes = std::pin::pin!(cache.follow(client, source));
    let mut chosen = String::new();
    loop {
        let change = tokio::select! {
            change = changes.next() => change,
            () = stop.cancelled() => return,
        };
        let Some(change) = change else { return };
        let level = change.new.and_then(|setting| setting.value.clone()).unwrap_or_default();
        if level == chosen {
            continue;
        }
        match filter.choose(&level) {
            Ok(()) => info!(level, "the log level was changed"),
            Err(error) => warn!(level, error, "the log level could not be changed"),
        }
        chosen = level;
    }
}
