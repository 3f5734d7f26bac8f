//! `/croft/v1/store`: how the store is, for those who look after it, and what can be done for it while it is used.
//!
//! Defragmenting and checking may take longer than a request: they are begun by one, and told of by the next.

mod jobs;

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use croft_meta::{ApiError, Chain};
use croft_store::History;
use serde_json::Value;

use crate::answer::{self, Answer};
use crate::cache::store_error;
use crate::call::Call;
use crate::pipeline;
use crate::server::ApiServer;

pub(crate) use jobs::StoreCare;

pub(crate) const PATH: &str = "/croft/v1/store";
const DEFRAGMENT: &str = "/croft/v1/store/defragment";
const CHECK: &str = "/croft/v1/store/check";
/// How old figures in `/metrics` may be.
const LOOK: Duration = Duration::from_mins(1);

pub(crate) async fn answer(call: &Call) -> Result<Answer, ApiError> {
    let server = &call.server;
    match (call.info.path.as_str(), call.info.verb) {
        (PATH, "get" | "head") => told(server, 200).await,
        (DEFRAGMENT, "post") => {
            let history = if call.query.flag("compact") { History::Forgotten } else { History::Kept };
            jobs::defragment(server, history)?;
            tracing::info!(user = call.user.name, ?history, "defragmenting the store was asked for");
            told(server, 202).await
        }
        (CHECK, "post") => {
            jobs::check(server)?;
            told(server, 202).await
        }
        (PATH | DEFRAGMENT | CHECK, _) => Err(pipeline::not_allowed()),
        _ => Err(ApiError::no_such_path()),
    }
}

async fn told(server: &ApiServer, code: u16) -> Result<Answer, ApiError> {
    let status = server.store.status().await.map_err(store_error)?;
    let mut document = serde_json::to_value(status).map_err(ApiError::internal)?;
    if let Value::Object(fields) = &mut document {
        fields.extend(server.store_care.told());
    }
    Ok(answer::json(code, &document))
}

/// Keeps the figures fresh until the server stops.
pub(crate) async fn look_after(server: Arc<ApiServer>) {
    let stop = server.stopping();
    loop {
        if let Err(error) = server.store.status().await {
            tracing::debug!(error = %Chain(&error), "the store does not say how it is");
        }
        tokio::select! {
            () = tokio::time::sleep(LOOK) => {}
            () = stop.cancelled() => return,
        }
    }
}

/// Figures for `/metrics`.
pub(crate) fn tell(server: &ApiServer) -> String {
    let stats = server.store.stats();
    let gauges = [
        // Upstream's name.
        ("apiserver_storage_size_bytes", "How large the store is on the disk, or its largest member", stats.size_bytes),
        ("croft_store_in_use_bytes", "What of it is in use", stats.in_use_bytes),
        ("croft_store_reclaimable_bytes", "What of it defragmenting would give back", stats.reclaimable_bytes),
        ("croft_store_read_only", "1 while the store refuses writes", u64::from(stats.read_only.is_some())),
        (
            "croft_store_damaged",
            "1 once something was read that was not as it was written",
            u64::from(stats.is_damaged),
        ),
    ];
    let mut text = String::new();
    // Writing to a string does not fail.
    for (name, help, value) in gauges {
        let _ = write!(text, "# HELP {name} {help}.\n# TYPE {name} gauge\n{name} {value}\n");
    }
    let name = "croft_store_alarms";
    let _ = write!(text, "# HELP {name} Alarms of etcd, by their kind.\n# TYPE {name} gauge\n");
    for kind in ["NOSPACE", "CORRUPT"] {
        let count = stats.alarms.iter().filter(|alarm| *alarm == kind).count();
        let _ = writeln!(text, "{name}{{alarm=\"{kind}\"}} {count}");
    }
    server.store_care.tell(&mut text);
    text
}
