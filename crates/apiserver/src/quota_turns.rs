//! Turns for creating what quotas count.
//!
//! Room is taken in the transaction that stores what takes it, so that of two who look at once one has to count again. So
//! whoever creates something that a quota of its namespace counts does so alone, from the look until the write is seen:
//! nobody counts in vain. A turn is held for the write only. Webhooks take their time, and may write here themselves.

use std::hash::{BuildHasher, RandomState};

use tokio::sync::{Mutex, MutexGuard};

use crate::admission::quota;
use crate::cache::Cache;
use crate::call::Target;

/// Namespaces that share a turn wait for each other now and then; that is all.
const TURNS: usize = 32;

#[derive(Debug, Default)]
pub(crate) struct QuotaTurns {
    turns: [Mutex<()>; TURNS],
    hasher: RandomState,
}

impl QuotaTurns {
    /// The turn for the write of something new, to be held until it is seen; `None` at once where nothing counts it, and
    /// where a webhook converts what is written.
    pub(crate) async fn take(&self, cache: &Cache, target: &Target) -> Option<MutexGuard<'_, ()>> {
        if target.served.conversion.is_some() || !quota::counts(cache, target) {
            return None;
        }
        let hash = usize::try_from(self.hasher.hash_one(&target.namespace) >> 32).unwrap_or_default();
        Some(self.turns[hash % TURNS].lock().await)
    }

    /// The turn for a change, of what can come to take more than it did.
    pub(crate) async fn take_to_grow(&self, cache: &Cache, target: &Target) -> Option<MutexGuard<'_, ()>> {
        let may_grow = target.group().is_empty() && matches!(target.plural(), "persistentvolumeclaims" | "services");
        if may_grow && target.subresource.is_empty() { self.take(cache, target).await } else { None }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use base64::Engine as _;
    use serde_json::json;
    use tokio::net::TcpListener;

    use crate::testing::TestServer;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn nobody_waits_for_a_webhook_that_somebody_else_waits_for() {
        const MAPS: &str = "/api/v1/namespaces/default/configmaps";
        let server = Arc::new(TestServer::start().await);
        let quota = json!({"metadata": {"name": "q"}, "spec": {"hard": {"configmaps": "9"}}});
        server.post("/api/v1/namespaces/default/resourcequotas", &quota).await;
        // It takes connections, and says nothing.
        let mute = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("https://{}/", mute.local_addr().unwrap());
        let authority = croft_testkit::Authority::new("mute").unwrap();
        let ca = base64::engine::general_purpose::STANDARD.encode(authority.cert_pem());
        let hook = json!({
            "name": "mute.example.com", "clientConfig": {"url": url, "caBundle": ca}, "sideEffects": "None",
            "rules": [{"operations": ["*"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}],
            "objectSelector": {"matchLabels": {"ask": "yes"}}, "failurePolicy": "Ignore", "timeoutSeconds": 30,
            "admissionReviewVersions": ["v1"],
        });
        let path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
        server.post(path, &json!({"metadata": {"name": "mute"}, "webhooks": [hook]})).await;
        let map = |name: &str, ask: &str| json!({"metadata": {"name": name, "labels": {"ask": ask}}});
        let (other, asked) = (Arc::clone(&server), map("asked", "yes"));
        let waiting = tokio::spawn(async move { other.post(MAPS, &asked).await });
        let _held = mute.accept().await.unwrap();
        let made = tokio::time::timeout(croft_testkit::patience() / 2, server.post(MAPS, &map("other", "no"))).await;
        made.expect("it need not wait");
        assert!(!waiting.is_finished());
        waiting.abort();
    }
}
