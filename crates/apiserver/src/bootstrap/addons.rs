//! The addons that Harvester's clients expect, all of them switched off.

use croft_api::harvester::addon::{ALL, Shipped};
use croft_api::harvester::settings::COMPATIBLE_WITH;
use serde_json::{Value, json};

use super::Wanted;

/// Where Harvester has its charts. Nothing is ever fetched from there.
const REPO: &str = "http://harvester-cluster-repo.cattle-system.svc/charts";

/// Users switch them on and off, and change their values: what is there stays.
pub(super) fn objects() -> impl Iterator<Item = Wanted> {
    ALL.iter().map(addon).map(Wanted::kept)
}

fn addon(addon: &Shipped) -> Value {
    let mut labels = json!({});
    if addon.is_experimental {
        labels["addon.harvesterhci.io/experimental"] = json!("true");
    }
    if let Some(name) = addon.display_name {
        labels["addon.harvesterhci.io/displayName"] = json!(name);
    }
    json!({
        "apiVersion": "harvesterhci.io/v1beta1", "kind": "Addon",
        "metadata": { "name": addon.name, "namespace": addon.namespace, "labels": labels },
        "spec": {
            "repo": REPO,
            "chart": addon.chart,
            "version": COMPATIBLE_WITH.trim_start_matches('v'),
            "valuesContent": "",
            "enabled": false,
        },
    })
}
