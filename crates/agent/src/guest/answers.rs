//! What users are told of a guest's inside, in KubeVirt's form.

use croft_qemu::qga::Agent;
use croft_qemu::qga::answers::{Filesystem, FreezeStatus, OsInfo, User};
use croft_qemu::qga::{AgentError, COMMAND_TIMEOUT};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// A guest may claim any number of each; KubeVirt shows ten in the overview, and all in the lists.
const IN_OVERVIEW: usize = 10;
const MAX_ITEMS: usize = 1000;

/// `guestosinfo`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct GuestInfo {
    guest_agent_version: String,
    supported_commands: Vec<SupportedCommand>,
    hostname: String,
    os: Value,
    timezone: String,
    user_list: Vec<Value>,
    fs_info: Value,
    fs_freeze_status: &'static str,
}

#[derive(Debug, Deserialize, Serialize)]
struct SupportedCommand {
    name: String,
    #[serde(default)]
    enabled: bool,
    #[serde(rename = "success-response", default)]
    success_response: bool,
}

#[derive(Debug, Deserialize)]
struct AgentInfo {
    #[serde(default)]
    version: String,
    #[serde(default)]
    supported_commands: Vec<SupportedCommand>,
}

#[derive(Debug, Default, Deserialize)]
struct Timezone {
    #[serde(default)]
    zone: String,
    #[serde(default)]
    offset: i64,
}

/// What the agent can be asked.
pub(super) async fn commands(agent: &Agent) -> Result<Vec<String>, AgentError> {
    let info: AgentInfo = agent.execute("guest-info", json!({}), COMMAND_TIMEOUT).await?;
    Ok(info.supported_commands.into_iter().filter(|command| command.enabled).map(|command| command.name).collect())
}

/// Everything at once. An agent that cannot answer one question is asked the others all the same.
pub(crate) async fn guest_info(agent: &Agent) -> Result<GuestInfo, AgentError> {
    let info: AgentInfo = agent.execute("guest-info", json!({}), COMMAND_TIMEOUT).await?;
    let os = agent.os_info().await.or_else(unless_refused)?;
    let zone: Timezone =
        agent.execute("guest-get-timezone", json!({}), COMMAND_TIMEOUT).await.or_else(unless_refused)?;
    let users = agent.users().await.or_else(unless_refused)?;
    let filesystems = agent.filesystems().await.or_else(unless_refused)?;
    let is_frozen = matches!(agent.freeze_status().await, Ok(FreezeStatus::Frozen));
    Ok(GuestInfo {
        guest_agent_version: info.version,
        supported_commands: info.supported_commands.into_iter().take(MAX_ITEMS).collect(),
        hostname: agent.host_name().await.or_else(unless_refused)?,
        os: os_of(&os),
        timezone: format!("{}, {}", zone.zone, zone.offset),
        user_list: users.iter().take(IN_OVERVIEW).map(user).collect(),
        fs_info: json!({ "disks": filesystems.iter().take(IN_OVERVIEW).map(filesystem).collect::<Vec<_>>() }),
        fs_freeze_status: if is_frozen { "frozen" } else { "thawed" },
    })
}

/// `userlist`.
pub(crate) async fn user_list(agent: &Agent) -> Result<Value, AgentError> {
    let users = agent.users().await?;
    Ok(list(users.iter().map(user)))
}

/// `filesystemlist`.
pub(crate) async fn filesystem_list(agent: &Agent) -> Result<Value, AgentError> {
    let filesystems = agent.filesystems().await?;
    Ok(list(filesystems.iter().map(filesystem)))
}

fn list(items: impl Iterator<Item = Value>) -> Value {
    json!({ "metadata": {}, "items": items.take(MAX_ITEMS).collect::<Vec<_>>() })
}

/// A command that the agent does not know or may not run leaves a gap; an agent that is gone is a failure.
fn unless_refused<T: Default>(error: AgentError) -> Result<T, AgentError> {
    match error {
        AgentError::Command { .. } | AgentError::Answer { .. } => Ok(T::default()),
        error => Err(error),
    }
}

fn os_of(os: &OsInfo) -> Value {
    json!({
        "name": os.name,
        "kernelRelease": os.kernel_release,
        "version": os.version,
        "prettyName": os.pretty_name,
        "versionId": os.version_id,
        "kernelVersion": os.kernel_version,
        "machine": os.machine,
        "id": os.id,
    })
}

fn user(user: &User) -> Value {
    json!({ "userName": user.user, "domain": user.domain, "loginTime": user.login_time })
}

fn filesystem(filesystem: &Filesystem) -> Value {
    let disks = filesystem.disk.iter().take(MAX_ITEMS);
    json!({
        "diskName": filesystem.name,
        "mountPoint": filesystem.mountpoint,
        "fileSystemType": filesystem.kind,
        "usedBytes": filesystem.used_bytes,
        "totalBytes": filesystem.total_bytes,
        "disk": disks.map(|disk| json!({ "serial": disk.serial, "busType": disk.bus_type })).collect::<Vec<_>>(),
    })
}
