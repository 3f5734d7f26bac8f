//! This node as those know it who look for Longhorn: its pools are the disks of a `nodes.longhorn.io` object.
//!
//! Whether a disk may take replicas is the user's to say in Longhorn, and stays as they have said it; nothing here goes by
//! it. Disks come and go by their BlockDevice objects.

use std::collections::BTreeMap;
use std::sync::Arc;

use croft_meta::Chain;
use croft_meta::time::format_seconds;
use jiff::Timestamp;
use kube::Api;
use kube::api::{ApiResource, DynamicObject, Patch, PatchParams};
use kube::core::GroupVersionKind;
use serde_json::{Map, Value, json};

use super::pools::PoolFigures;
use super::{DEFAULT_POOL, Inner, blocking};
use crate::MANAGER;

const NAMESPACE: &str = "longhorn-system";
/// Figures move with every block that a guest writes; smaller changes than this are not told.
const STEP_BYTES: u64 = 64 << 20;

impl Inner {
    /// Brings the object up to date. What fails is tried again at the next look.
    pub(super) async fn show_as_longhorn_node(self: &Arc<Self>) {
        let inner = Arc::clone(self);
        let figures = blocking(move || inner.pools.figures(&inner.volumes.list(), &inner.node_name)).await;
        if let Err(error) = self.write_longhorn_node(&figures).await {
            tracing::warn!(error = %Chain(&error), "Longhorn's object of this node cannot be written");
        }
    }

    async fn write_longhorn_node(&self, figures: &[PoolFigures]) -> Result<(), kube::Error> {
        let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("longhorn.io", "v1beta2", "Node"));
        let api: Api<DynamicObject> = Api::namespaced_with(self.client.clone(), NAMESPACE, &kind);
        let name = self.node_name.as_str();
        let old = api.get_opt(name).await?.map(|node| node.data).unwrap_or_default();
        let params = PatchParams::apply(MANAGER).force();
        let wanted = |part: &str, value: Value| {
            let mut wanted = json!({"apiVersion": "longhorn.io/v1beta2", "kind": "Node", "metadata": {"name": name}});
            wanted[part] = value;
            Patch::Apply(wanted)
        };
        api.patch(name, &params, &wanted("spec", spec(name, figures, &old))).await?;
        let status = status(figures, &old, Timestamp::now());
        api.patch_status(name, &params, &wanted("status", status)).await.map(drop)
    }
}

/// Longhorn's own first disk is called so.
fn disk_name(pool: &str) -> String {
    if pool == DEFAULT_POOL { "default-disk".to_owned() } else { pool.to_owned() }
}

fn spec(node: &str, figures: &[PoolFigures], old: &Value) -> Value {
    let said = |path: &str, default: Value| old.pointer(path).cloned().unwrap_or(default);
    let disks: Map<String, Value> = figures
        .iter()
        .map(|figures| {
            let name = disk_name(&figures.id);
            let of = |field: &str, default: Value| said(&format!("/spec/disks/{name}/{field}"), default);
            let disk = json!({
                "path": figures.dir, "diskType": "filesystem",
                "allowScheduling": of("allowScheduling", json!(true)),
                "evictionRequested": of("evictionRequested", json!(false)),
                "storageReserved": of("storageReserved", json!(0)),
                "tags": of("tags", json!([])),
            });
            (name, disk)
        })
        .collect();
    json!({
        "name": node, "disks": disks,
        "allowScheduling": said("/spec/allowScheduling", json!(true)),
        "evictionRequested": said("/spec/evictionRequested", json!(false)),
        "tags": said("/spec/tags", json!([])),
    })
}

fn status(figures: &[PoolFigures], old: &Value, now: Timestamp) -> Value {
    let disks: Map<String, Value> = figures
        .iter()
        .map(|figures| {
            let name = disk_name(&figures.id);
            let before = old.pointer(&format!("/status/diskStatus/{name}"));
            let disk = json!({
                "diskName": name, "diskPath": figures.dir, "diskType": "filesystem",
                "storageMaximum": settled(figures.usage.capacity_bytes, before, "storageMaximum"),
                "storageAvailable": settled(figures.usage.free_bytes, before, "storageAvailable"),
                "storageScheduled": figures.promised_bytes,
                "conditions": conditions(before, now),
            });
            (name, disk)
        })
        .collect();
    json!({ "diskStatus": disks, "conditions": conditions(old.get("status"), now) })
}

/// What was told before, if it is as good as the same.
fn settled(bytes: u64, before: Option<&Value>, field: &str) -> u64 {
    let before = before.and_then(|before| before.get(field)).and_then(Value::as_u64).unwrap_or(u64::MAX);
    if before.abs_diff(bytes) < STEP_BYTES { before } else { bytes }
}

/// Both hold since they were first told: a pool that cannot be used has no figures.
fn conditions(before: Option<&Value>, now: Timestamp) -> Value {
    let known: BTreeMap<&str, &Value> = before
        .and_then(|before| before.get("conditions")?.as_array())
        .into_iter()
        .flatten()
        .filter_map(|condition| Some((condition.get("type")?.as_str()?, condition.get("lastTransitionTime")?)))
        .collect();
    let condition = |ty: &str| {
        let since = known.get(ty).map_or_else(|| json!(format_seconds(now)), |since| (*since).clone());
        json!({"type": ty, "status": "True", "lastTransitionTime": since, "lastProbeTime": "", "reason": "", "message": ""})
    };
    json!([condition("Ready"), condition("Schedulable")])
}

#[cfg(test)]
mod tests {
    use croft_block::Usage;

    use super::*;

    fn pool(id: &str, free: u64) -> PoolFigures {
        let usage = Usage { capacity_bytes: 100 << 30, free_bytes: free };
        PoolFigures { id: id.to_owned(), dir: format!("/pools/{id}").into(), usage, promised_bytes: 5 << 30 }
    }

    #[test]
    fn pools_are_disks_and_what_users_said_of_them_stays() {
        let first = spec("one", &[pool(DEFAULT_POOL, 0), pool("extra", 0)], &Value::Null);
        assert_eq!(first["disks"]["default-disk"]["path"], "/pools/default");
        assert_eq!(first["disks"]["extra"]["allowScheduling"], true);
        let mut old = json!({"spec": first});
        old["spec"]["disks"]["extra"]["allowScheduling"] = json!(false);
        old["spec"]["tags"] = json!(["fast"]);
        let second = spec("one", &[pool("extra", 0)], &old);
        assert_eq!(second["disks"].as_object().map(Map::len), Some(1));
        assert_eq!((&second["disks"]["extra"]["allowScheduling"], &second["tags"]), (&json!(false), &json!(["fast"])));
    }

    #[test]
    fn figures_are_told_when_they_have_moved() {
        let now = Timestamp::UNIX_EPOCH;
        let first = status(&[pool(DEFAULT_POOL, 50 << 30)], &Value::Null, now);
        let disk = &first["diskStatus"]["default-disk"];
        assert_eq!((&disk["storageMaximum"], &disk["storageScheduled"]), (&json!(100_u64 << 30), &json!(5_u64 << 30)));
        assert_eq!(first["conditions"][0]["lastTransitionTime"], "1970-01-01T00:00:00Z");
        let old = json!({"status": first});
        let later = Timestamp::from_second(99).unwrap();
        assert_eq!(status(&[pool(DEFAULT_POOL, (50 << 30) - 4096)], &old, later), first);
        let moved = status(&[pool(DEFAULT_POOL, 40 << 30)], &old, later);
        assert_eq!(moved["diskStatus"]["default-disk"]["storageAvailable"], 40_u64 << 30);
    }
}
