//! One reconcile loop per kind. A controller gets a `kube::Client` and nothing more.

use kube::Client;
use tokio_util::sync::CancellationToken;

/// Runs all controllers until `stop`.
pub async fn run(_client: Client, stop: CancellationToken) {
    stop.cancelled().await;
}
