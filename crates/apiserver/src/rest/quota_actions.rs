//! How much room snapshots may take, by `POST ...?action=<name>` on a namespace or a machine.
//!
//! The sizes are kept in the namespace's `default-resource-quota` of Harvester's own kind. Whoever may update that may
//! set them.

use croft_meta::{ApiError, Quantity};
use http::Method;
use serde::Deserialize;
use serde_json::{Value, json};

use super::reply::{self, invalid};
use super::resource::{Sent, asking, no_content};
use super::schema::Schema;
use crate::answer::Answer;
use crate::call::{Call, Target};
use crate::pipeline;

const QUOTAS: &str = "harvesterhci.io.resourcequotas";
const NAME: &str = "default-resource-quota";
const UPDATE: &str = "updateResourceQuota";
const DELETE: &str = "deleteResourceQuota";

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Limit {
    total_snapshot_size_quota: Value,
}

/// What can be done with a machine or a namespace, whatever its state.
pub(super) const OFFERED: [&str; 2] = [UPDATE, DELETE];

/// Whether objects of the kind have a quota.
pub(super) fn is_bounded(schema: &Schema) -> bool {
    schema.is("kubevirt.io", "virtualmachines") || schema.is("", "namespaces")
}

pub(super) async fn act(
    call: &Call,
    schema: &Schema,
    (namespace, name): (&str, &str),
    action: &str,
) -> Result<Answer, ApiError> {
    call.server.cache.fresh().await?;
    let target = schema.target(namespace, name);
    let is_namespace = schema.is("", "namespaces");
    let namespace = if is_namespace { name } else { namespace };
    let quotas = Schema::find(&call.catalog, QUOTAS).ok_or_else(ApiError::no_such_path)?;
    call.server.auth.authorize(&call.user, &quotas.attributes("update", namespace, NAME))?;
    must_exist(call, &target)?;
    let limit = if action == UPDATE { Some(limit(call)?) } else { None };
    let limits = if is_namespace {
        json!({ "namespaceTotalSnapshotSizeQuota": limit })
    } else {
        json!({ "vmTotalSnapshotSizeQuota": { name: limit } })
    };
    let change = json!({ "spec": { "snapshotLimit": limits } });
    write(call, &quotas, namespace, change, limit.is_some()).await?;
    Ok(no_content())
}

fn must_exist(call: &Call, target: &Target) -> Result<(), ApiError> {
    let found = call.server.cache.collection(target.storage_key()).get(&target.id());
    found.map(drop).ok_or_else(|| target.not_found())
}

/// In bytes.
fn limit(call: &Call) -> Result<i64, ApiError> {
    let asked: Limit = reply::body(call)?;
    let text = match asked.total_snapshot_size_quota {
        Value::String(text) => text,
        Value::Number(number) => number.to_string(),
        _ => return Err(invalid("MissingRequired", "parameter totalSnapshotSizeQuota is required")),
    };
    bytes(&text).ok_or_else(|| {
        invalid("InvalidFormat", format!("totalSnapshotSizeQuota {text:?} is not a size such as \"100Gi\""))
    })
}

fn bytes(text: &str) -> Option<i64> {
    Quantity::parse(text).ok().map(|quantity| quantity.value()).filter(|bytes| *bytes >= 0)
}

/// Changes the namespace's quota; one that is not there is made if there is something to keep in it.
async fn write(call: &Call, quotas: &Schema, namespace: &str, change: Value, is_set: bool) -> Result<(), ApiError> {
    let path = quotas.kubernetes_path(namespace, NAME);
    match send(call, Method::PATCH, &path, &change).await {
        Err(error) if error.code() == 404 && !is_set => return Ok(()),
        Err(error) if error.code() == 404 => {}
        written => return written,
    }
    let mut quota = change.clone();
    quota["apiVersion"] = quotas.served.gvk().api_version().into();
    quota["kind"] = quotas.served.kind().into();
    quota["metadata"] = json!({ "name": NAME, "namespace": namespace });
    match send(call, Method::POST, &quotas.kubernetes_path(namespace, ""), &quota).await {
        // Somebody else was faster.
        Err(error) if error.code() == 409 => send(call, Method::PATCH, &path, &change).await,
        made => made,
    }
}

async fn send(call: &Call, method: Method, path: &str, body: &Value) -> Result<(), ApiError> {
    let content_type = if method == Method::PATCH { "application/merge-patch+json" } else { "application/json" };
    let sent = Sent { content_type, body: body.to_string().into() };
    pipeline::resource(&asking(call, &method, path, sent)).await.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_quantities_and_not_negative() {
        for (text, expected) in
            [("100Gi", Some(100 << 30)), ("5", Some(5)), ("0", Some(0)), ("-1", None), ("much", None), ("", None)]
        {
            assert_eq!(bytes(text), expected, "{text}");
        }
    }
}
