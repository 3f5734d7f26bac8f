//! The commands that we send, typed as far as we use their answers.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio::net::UnixStream;

use super::{Qmp, QmpError};

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Status {
    pub running: bool,
    /// `running`, `paused`, `prelaunch`, `io-error`, `shutdown`, `guest-panicked`, …
    pub status: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct VirtualCpu {
    #[serde(rename = "cpu-index")]
    pub index: u32,
    #[serde(rename = "qom-path")]
    pub qom_path: String,
    #[serde(rename = "thread-id")]
    pub thread_id: i32,
}

/// A disk device and its medium.
#[derive(Debug, Clone, Deserialize)]
pub struct Block {
    /// The name of the back end's device; empty for disks made of named nodes, as ours are.
    #[serde(default)]
    pub device: String,
    /// The path of the front end: `/machine/peripheral/<id>/…`.
    #[serde(default)]
    pub qdev: Option<String>,
    pub removable: bool,
    #[serde(default)]
    pub tray_open: bool,
    #[serde(default, rename = "io-status")]
    pub io_status: Option<String>,
    #[serde(default)]
    pub inserted: Option<Inserted>,
}

#[derive(Debug, Clone, Deserialize)]
pub struct Inserted {
    #[serde(rename = "node-name", default)]
    pub node_name: Option<String>,
    pub file: String,
    pub ro: bool,
    pub drv: String,
    pub image: Image,
}

#[derive(Debug, Clone, Deserialize)]
pub struct Image {
    #[serde(rename = "virtual-size")]
    pub virtual_size: u64,
    #[serde(rename = "actual-size", default)]
    pub actual_size: Option<u64>,
}

#[derive(Debug, Clone, Deserialize)]
pub struct BlockStats {
    #[serde(default)]
    pub qdev: Option<String>,
    #[serde(rename = "node-name", default)]
    pub node_name: Option<String>,
    pub stats: Counters,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Counters {
    pub rd_bytes: u64,
    pub wr_bytes: u64,
    pub rd_operations: u64,
    pub wr_operations: u64,
    pub flush_operations: u64,
    pub rd_total_time_ns: u64,
    pub wr_total_time_ns: u64,
    pub flush_total_time_ns: u64,
    pub failed_rd_operations: u64,
    pub failed_wr_operations: u64,
}

/// How a migration stands; everything but the state is absent before it starts.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
pub struct Migration {
    /// `setup`, `active`, `postcopy-active`, `completed`, `failed`, `cancelled`, …
    pub status: Option<String>,
    pub total_time: Option<u64>,
    pub downtime: Option<u64>,
    pub expected_downtime: Option<u64>,
    pub error_desc: Option<String>,
    pub ram: Option<MigrationRam>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
pub struct MigrationRam {
    pub transferred: u64,
    pub remaining: u64,
    pub total: u64,
    pub mbps: f64,
    pub dirty_pages_rate: u64,
}

/// Which of the displays a password is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Display {
    Vnc,
    Spice,
}

impl Display {
    fn as_str(self) -> &'static str {
        match self {
            Display::Vnc => "vnc",
            Display::Spice => "spice",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Screenshot {
    Ppm,
    Png,
}

/// What QEMU did with a descriptor that was added to a set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub struct AddedFd {
    #[serde(rename = "fdset-id")]
    pub set: u32,
    /// The descriptor's number inside QEMU.
    pub fd: i32,
}

/// The guest's life.
impl Qmp {
    pub async fn status(&self) -> Result<Status, QmpError> {
        self.execute("query-status", json!({})).await
    }

    pub async fn uuid(&self) -> Result<String, QmpError> {
        let answer: Value = self.execute("query-uuid", json!({})).await?;
        Ok(super::text(&answer["UUID"]))
    }

    /// Lets the guest run, at first or again.
    pub async fn cont(&self) -> Result<(), QmpError> {
        self.run("cont", json!({})).await
    }

    pub async fn stop(&self) -> Result<(), QmpError> {
        self.run("stop", json!({})).await
    }

    /// Presses the power button; the guest may ignore it.
    pub async fn system_powerdown(&self) -> Result<(), QmpError> {
        self.run("system_powerdown", json!({})).await
    }

    pub async fn system_reset(&self) -> Result<(), QmpError> {
        self.run("system_reset", json!({})).await
    }

    /// Ends QEMU. It may be gone before its answer is read, which is as good as one.
    pub async fn quit(&self) -> Result<(), QmpError> {
        match self.run("quit", json!({})).await {
            Err(QmpError::Disconnected) => Ok(()),
            outcome => outcome,
        }
    }

    pub async fn cpus(&self) -> Result<Vec<VirtualCpu>, QmpError> {
        self.execute("query-cpus-fast", json!({})).await
    }

    /// What the CPUs were to have and the host cannot give them, by QEMU's names.
    pub async fn missing_cpu_features(&self) -> Result<Vec<String>, QmpError> {
        let Some(cpu) = self.cpus().await?.into_iter().next() else { return Ok(Vec::new()) };
        self.execute("qom-get", json!({ "path": cpu.qom_path, "property": "unavailable-features" })).await
    }

    /// The CPUs that could be plugged, as `device_add` wants them described.
    pub async fn hotpluggable_cpus(&self) -> Result<Vec<Value>, QmpError> {
        self.execute("query-hotpluggable-cpus", json!({})).await
    }

    /// Asks the guest to give memory back until it has this much.
    pub async fn balloon(&self, bytes: u64) -> Result<(), QmpError> {
        self.run("balloon", json!({ "value": bytes })).await
    }

    /// The memory that the guest has now; fails without a balloon device.
    pub async fn balloon_bytes(&self) -> Result<u64, QmpError> {
        #[derive(Deserialize)]
        struct Balloon {
            actual: u64,
        }
        Ok(self.execute::<Balloon>("query-balloon", json!({})).await?.actual)
    }

    /// A command of the human monitor, for the little that QMP lacks. The line is parsed by QEMU with rules of its own:
    /// never put a user's text in it.
    pub async fn human(&self, command_line: &'static str) -> Result<String, QmpError> {
        self.execute("human-monitor-command", json!({ "command-line": command_line })).await
    }
}

/// Devices and what stands behind them.
impl Qmp {
    /// Plugs a device; `device` as in `-device`, with `driver` and `id`.
    pub async fn device_add(&self, device: Value) -> Result<(), QmpError> {
        self.run("device_add", device).await
    }

    /// Asks for a device to be unplugged. The guest decides: `DEVICE_DELETED` says that it is gone.
    pub async fn device_del(&self, id: &str) -> Result<(), QmpError> {
        self.run("device_del", json!({ "id": id })).await
    }

    pub async fn blockdev_add(&self, node: Value) -> Result<(), QmpError> {
        self.run("blockdev-add", node).await
    }

    pub async fn blockdev_del(&self, node_name: &str) -> Result<(), QmpError> {
        self.run("blockdev-del", json!({ "node-name": node_name })).await
    }

    pub async fn netdev_add(&self, netdev: Value) -> Result<(), QmpError> {
        self.run("netdev_add", netdev).await
    }

    pub async fn netdev_del(&self, id: &str) -> Result<(), QmpError> {
        self.run("netdev_del", json!({ "id": id })).await
    }

    pub async fn object_add(&self, object: Value) -> Result<(), QmpError> {
        self.run("object-add", object).await
    }

    pub async fn object_del(&self, id: &str) -> Result<(), QmpError> {
        self.run("object-del", json!({ "id": id })).await
    }

    /// Tells QEMU, and the guest, that a disk has grown.
    pub async fn block_resize(&self, node_name: &str, bytes: u64) -> Result<(), QmpError> {
        self.run("block_resize", json!({ "node-name": node_name, "size": bytes })).await
    }

    pub async fn block(&self) -> Result<Vec<Block>, QmpError> {
        self.execute("query-block", json!({})).await
    }

    pub async fn block_stats(&self) -> Result<Vec<BlockStats>, QmpError> {
        self.execute("query-blockstats", json!({})).await
    }

    /// Opens a CD-ROM's tray, by the device's id. `force` does it even if the guest has locked it.
    pub async fn open_tray(&self, id: &str, force: bool) -> Result<(), QmpError> {
        self.run("blockdev-open-tray", json!({ "id": id, "force": force })).await
    }

    pub async fn remove_medium(&self, id: &str) -> Result<(), QmpError> {
        self.run("blockdev-remove-medium", json!({ "id": id })).await
    }

    /// Opens the tray, puts a node on it and closes it, in one: a guest that closes the tray between those steps would never see
    /// what is on it, because QEMU tells it only of media that QEMU itself has closed the tray over.
    pub async fn insert_medium(&self, id: &str, node_name: &str) -> Result<(), QmpError> {
        // This command takes no node, but what it opens may stand on one.
        let medium = format!("json:{}", json!({ "driver": "raw", "file": node_name }));
        let change = json!({ "id": id, "filename": medium, "force": true, "read-only-mode": "read-only" });
        self.run("blockdev-change-medium", change).await
    }

    /// Gives QEMU a descriptor under a name, for `netdev_add` and the like. The name is used up by its first user.
    pub async fn getfd(&self, name: &str, fd: OwnedFd) -> Result<(), QmpError> {
        self.execute_with_fd("getfd", json!({ "fdname": name }), fd).await.map(drop)
    }

    /// Takes back a descriptor that nobody has used.
    pub async fn closefd(&self, name: &str) -> Result<(), QmpError> {
        self.run("closefd", json!({ "fdname": name })).await
    }

    /// Adds a descriptor to a set, which `/dev/fdset/<set>` then opens. Descriptors of one set differ in access mode.
    pub async fn add_fd(&self, set: u32, fd: OwnedFd) -> Result<AddedFd, QmpError> {
        let answer = self.execute_with_fd("add-fd", json!({ "fdset-id": set }), fd).await?;
        serde_json::from_value(answer).map_err(|source| QmpError::Answer { command: "add-fd".into(), source })
    }

    pub async fn remove_fd(&self, set: u32) -> Result<(), QmpError> {
        self.run("remove-fd", json!({ "fdset-id": set })).await
    }

    /// The numbers of the descriptor sets that there are.
    pub async fn fd_sets(&self) -> Result<Vec<u32>, QmpError> {
        #[derive(Deserialize)]
        struct Set {
            #[serde(rename = "fdset-id")]
            id: u32,
        }
        let sets: Vec<Set> = self.execute("query-fdsets", json!({})).await?;
        Ok(sets.into_iter().map(|set| set.id).collect())
    }

    /// The ids of the devices that were given one, whether at the start or since.
    pub async fn devices(&self) -> Result<Vec<String>, QmpError> {
        #[derive(Deserialize)]
        struct Property {
            name: String,
            #[serde(rename = "type")]
            kind: String,
        }
        let all: Vec<Property> = self.execute("qom-list", json!({ "path": "/machine/peripheral" })).await?;
        Ok(all
            .into_iter()
            .filter(|property| property.kind.starts_with("child<"))
            .map(|property| property.name)
            .collect())
    }

    /// The names of the block nodes that were given one.
    pub async fn block_nodes(&self) -> Result<Vec<String>, QmpError> {
        let nodes: Vec<Value> = self.execute("query-named-block-nodes", json!({ "flat": true })).await?;
        Ok(nodes.iter().map(|node| super::text(&node["node-name"])).collect())
    }

    /// The memory that was plugged in, in bytes, by the ids of its devices.
    pub async fn plugged_memory(&self) -> Result<Vec<(String, u64)>, QmpError> {
        let devices: Vec<Value> = self.execute("query-memory-devices", json!({})).await?;
        let size = |device: &Value| device["data"]["size"].as_u64().unwrap_or_default();
        Ok(devices.iter().map(|device| (super::text(&device["data"]["id"]), size(device))).collect())
    }

    /// Whether the guest sees a cable in this interface.
    pub async fn set_link(&self, id: &str, is_up: bool) -> Result<(), QmpError> {
        self.run("set_link", json!({ "name": id, "up": is_up })).await
    }

    /// Starts to write the guest's memory into a descriptor, as an ELF core; `DUMP_COMPLETED` says when it is done.
    pub async fn dump_guest_memory(&self, fd: OwnedFd) -> Result<(), QmpError> {
        const NAME: &str = "memory-dump";
        self.getfd(NAME, fd).await?;
        let arguments = json!({ "paging": false, "protocol": format!("fd:{NAME}"), "detach": true });
        self.run("dump-guest-memory", arguments).await
    }
}

/// The display.
impl Qmp {
    /// Writes what the screen shows to a file; QEMU writes it, as its own user.
    pub async fn screendump(&self, file: &Path, format: Screenshot) -> Result<(), QmpError> {
        let format = match format {
            Screenshot::Ppm => "ppm",
            Screenshot::Png => "png",
        };
        self.run("screendump", json!({ "filename": file, "format": format })).await
    }

    /// A connection to the VNC server, past any password: whoever holds the control connection may see the screen.
    pub async fn connect_vnc(&self) -> Result<UnixStream, QmpError> {
        let failed = |error: std::io::Error| QmpError::Connect { path: PathBuf::from("vnc"), source: error };
        let (ours, theirs) = UnixStream::pair().map_err(failed)?;
        let theirs = theirs.into_std().map_err(failed)?;
        // A name of its own for each client: two may connect at once.
        let name = format!("vnc-{}", uuid::Uuid::new_v4().simple());
        self.getfd(&name, theirs.into()).await?;
        let added = self.run("add_client", json!({ "protocol": "vnc", "fdname": name, "skipauth": true })).await;
        if added.is_err() {
            let _ = self.closefd(&name).await;
        }
        added.map(|()| ours)
    }

    /// Sets a password. VNC looks at the first eight characters alone.
    pub async fn set_password(&self, display: Display, password: &str) -> Result<(), QmpError> {
        self.run("set_password", json!({ "protocol": display.as_str(), "password": password })).await
    }

    /// When the password ends: `now`, `never`, `+<seconds>`, or a time in seconds since 1970.
    pub async fn expire_password(&self, display: Display, time: &str) -> Result<(), QmpError> {
        self.run("expire_password", json!({ "protocol": display.as_str(), "time": time })).await
    }
}

/// Migration.
impl Qmp {
    /// Starts to send the guest to `uri`; `MIGRATION` events (once enabled) and [`Qmp::migration`] say how it goes.
    pub async fn migrate(&self, uri: &str) -> Result<(), QmpError> {
        self.run("migrate", json!({ "uri": uri })).await
    }

    /// Starts to listen, in a QEMU that was started with `-incoming defer`.
    pub async fn migrate_incoming(&self, uri: &str) -> Result<(), QmpError> {
        self.run("migrate-incoming", json!({ "uri": uri })).await
    }

    pub async fn migrate_cancel(&self) -> Result<(), QmpError> {
        self.run("migrate_cancel", json!({})).await
    }

    /// Goes on from a state at which the migration pauses, such as `pre-switchover`.
    pub async fn migrate_continue(&self, state: &str) -> Result<(), QmpError> {
        self.run("migrate-continue", json!({ "state": state })).await
    }

    pub async fn migrate_start_postcopy(&self) -> Result<(), QmpError> {
        self.run("migrate-start-postcopy", json!({})).await
    }

    pub async fn migrate_set_capabilities(&self, capabilities: &[(&str, bool)]) -> Result<(), QmpError> {
        let capabilities: Vec<_> =
            capabilities.iter().map(|(name, state)| json!({ "capability": name, "state": state })).collect();
        self.run("migrate-set-capabilities", json!({ "capabilities": capabilities })).await
    }

    pub async fn migrate_set_parameters(&self, parameters: Map<String, Value>) -> Result<(), QmpError> {
        self.run("migrate-set-parameters", Value::Object(parameters)).await
    }

    pub async fn migration(&self) -> Result<Migration, QmpError> {
        self.execute("query-migrate", json!({})).await
    }
}
