//! What can be done with a virtual machine.

mod backups;
mod cdrom;
mod claims;
mod clone;
mod disks;
mod migration;
mod nics;
mod offered;
mod power;
mod resize;
mod secrets;
mod template;

use croft_meta::ApiError;
use http::Method;
use serde_json::{Value, json};

use super::acting::Acting;
use super::actions::not_available;
use super::reply::invalid;
use super::resource::{Sent, kubernetes, no_content};
use super::schema::Schema;
use crate::answer::{self, Answer};
use crate::call::Call;

pub(super) use offered::offered;

const VM: &str = "virtualmachines";
const VMI: &str = "virtualmachineinstances";
const REMOVED_CLAIMS: &str = "harvesterhci.io/removedPersistentVolumeClaims";

pub(super) async fn act(acting: &Acting<'_>, action: &str) -> Result<Answer, ApiError> {
    let machine = acting.object().await?;
    let nothing = json!({});
    match action {
        "start" => power::start(acting, &machine).await?,
        "stop" => power::stop(acting, &machine).await?,
        "restart" => acting.subresource(VM, "restart", &nothing).await?,
        "softreboot" => acting.subresource(VMI, "softreboot", &nothing).await?,
        "pause" => acting.subresource(VMI, "pause", &nothing).await?,
        "unpause" => acting.subresource(VMI, "unpause", &nothing).await?,
        "forceStop" => acting.subresource(VM, "stop", &json!({ "gracePeriod": 0 })).await?,
        "migrate" => migration::migrate(acting).await?,
        "abortMigration" => migration::abort(acting).await?,
        "findMigratableNodes" => return Ok(answer::json(200, &json!({ "nodes": [] }))),
        "addVolume" => disks::add(acting).await?,
        "removeVolume" => disks::remove(acting).await?,
        "insertCdRomVolume" => cdrom::insert(acting).await?,
        "ejectCdRomVolume" => cdrom::eject(acting, &machine).await?,
        "addNic" => nics::add(acting).await?,
        "removeNic" => nics::remove(acting).await?,
        "findHotunpluggableNics" => return Ok(nics::find_unpluggable(&machine)),
        "cpuAndMemoryHotplug" => resize::hotplug(acting).await?,
        "clone" => clone::clone(acting, &machine).await?,
        "createTemplate" => template::create(acting, &machine).await?,
        "dismissInsufficientResourceQuota" => dismiss_quota(acting).await?,
        "storageMigration" | "cancelStorageMigration" => {
            return Err(acting.conflict("the disks of a machine cannot be moved while it is there: clone them instead"));
        }
        "snapshot" => backups::can_snapshot(acting, &machine)?,
        "restore" => backups::restore(acting).await?,
        "backup" => backups::backup(acting).await?,
        other => return Err(not_available(other)),
    }
    Ok(no_content())
}

/// The user has read why the machine was stopped.
async fn dismiss_quota(acting: &Acting<'_>) -> Result<(), ApiError> {
    acting
        .change(|machine| {
            let annotations = machine.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut);
            match annotations.and_then(|annotations| annotations.remove(offered::INSUFFICIENT_QUOTA)) {
                Some(_) => Ok(()),
                None => Err(invalid("InvalidState", "there is no message about an insufficient quota to dismiss")),
            }
        })
        .await
}

/// Harvester's way of saying that disks go with the machine.
pub(super) async fn name_removed_disks(
    call: &Call,
    schema: &Schema,
    place: (&str, &str),
    disks: &[&str],
) -> Result<(), ApiError> {
    let patch = json!({ "metadata": { "annotations": { REMOVED_CLAIMS: disks.join(",") } } });
    let sent = Sent { content_type: "application/merge-patch+json", body: patch.to_string().into() };
    kubernetes(call, schema, Method::PATCH, place, sent).await.map(drop)
}
