//! Moving a machine to another node, which this server cannot do yet; and stopping what others have begun.

use croft_meta::{ApiError, object};
use serde_json::{Value, json};

use super::super::acting::Acting;
use super::VM;

const MIGRATIONS: &str = "virtualmachineinstancemigrations";

/// The subresource says why not.
pub(super) async fn migrate(acting: &Acting<'_>) -> Result<(), ApiError> {
    let _: Value = acting.body()?;
    acting.subresource(VM, "migrate", &json!({})).await
}

/// Deletes the migration that is under way.
pub(super) async fn abort(acting: &Acting<'_>) -> Result<(), ApiError> {
    let migrations = acting.call.server.cache.collection(&format!("kubevirt.io/{MIGRATIONS}"));
    let is_under_way = |migration: &Value| {
        migration["spec"]["vmiName"] == acting.name
            && !matches!(migration["status"]["phase"].as_str(), Some("Succeeded" | "Failed"))
    };
    let found = migrations.list(acting.namespace).iter().map(|migration| migration.json()).find(is_under_way);
    let Some(migration) = found else { return Err(acting.conflict("no migration is under way")) };
    acting.delete("kubevirt.io", MIGRATIONS, object::name(&migration)).await
}
