//! The cluster as Rancher knows it, and kubeconfigs for it.

use std::time::Duration;

use croft_meta::ApiError;
use croft_pki::Kubeconfig;
use croft_pki::kubeconfig::Credentials;
use serde_json::{Value, json};

use super::{CLUSTER, reply, tokens};
use crate::answer::{self, Answer};
use crate::call::Call;

/// Harvester's setting for how long the tokens in kubeconfigs last.
const TTL_SETTING: &str = "kubeconfig-default-token-ttl-minutes";

pub(super) fn clusters(call: &Call) -> Answer {
    reply::collection(call, "cluster", &[view(call)])
}

pub(super) fn cluster(call: &Call) -> Answer {
    answer::json(200, &view(call))
}

fn view(call: &Call) -> Value {
    let this = format!("{}/v3/clusters/local", reply::base(call));
    let is_ready = call.server.is_ready();
    json!({
        "id": "local", "type": "cluster", "baseType": "cluster", "name": "local",
        "state": if is_ready { "active" } else { "unavailable" },
        "provider": "harvester", "internal": true, "links": { "self": this },
        "actions": { "generateKubeconfig": format!("{this}?action=generateKubeconfig") },
        "metadata": { "name": "local", "state": {
            "name": if is_ready { "active" } else { "unavailable" }, "error": !is_ready, "transitioning": false,
            "message": "",
        } },
        "status": { "provider": "harvester", "conditions": [{ "type": "Ready", "status": if is_ready { "True" } else { "False" } }] },
    })
}

/// A kubeconfig with a token of the caller's.
pub(super) async fn generate(call: &Call) -> Result<Answer, ApiError> {
    let owner = tokens::account(call)?;
    let ttl = default_ttl(call);
    let order = tokens::Order { kind: tokens::Kind::Kubeconfig, ttl, description: "Kubeconfig token" };
    let (_, token) = tokens::issue_own(call, &owner, &order).await?;
    let config = Kubeconfig {
        server: format!("{}{CLUSTER}", reply::base(call)),
        ca_pem: call.server.ca.cert_pem().to_owned(),
        cluster: "local".to_owned(),
        user: "local".to_owned(),
        credentials: Credentials::Token(token),
    };
    let config = config.to_yaml().map_err(ApiError::internal)?;
    let kind = "generateKubeConfigOutput";
    Ok(answer::json(200, &json!({ "type": kind, "baseType": kind, "config": config })))
}

/// 0, and a setting that is not there, mean for ever.
fn default_ttl(call: &Call) -> Option<Duration> {
    let setting = call.server.cache.collection("harvesterhci.io/settings").get(TTL_SETTING)?.json();
    let text = |field: &str| setting.get(field).and_then(Value::as_str).filter(|text| !text.is_empty());
    let minutes: u64 = text("value").or_else(|| text("default"))?.parse().ok()?;
    (minutes > 0).then(|| Duration::from_secs(minutes.saturating_mul(60)))
}
