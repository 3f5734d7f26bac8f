//! Processors and memory that are added while the guest runs. Both only grow: guests do not give them back reliably.

use croft_api::kubevirt::VirtualMachineInstance;
use croft_meta::Chain;
use serde_json::{Value, json};

use super::super::machine;
use super::Live;

/// What Linux can take in at once.
const MEMORY_UNIT: u64 = 128 << 20;

impl Live<'_> {
    /// QEMU leaves out what the host lacks; a guest that must have it is not started without.
    pub(super) async fn missing_features(&self, vmi: &VirtualMachineInstance) -> Option<String> {
        let cpu = vmi.spec.domain.cpu.as_ref()?;
        let is_required = |policy: Option<&str>| matches!(policy.unwrap_or_default(), "" | "require" | "force");
        let required = cpu.features.iter().filter(|feature| is_required(feature.policy.as_deref()));
        let required: Vec<&str> = required.map(|feature| feature.name.as_str()).collect();
        if required.is_empty() {
            return None;
        }
        // One that cannot be asked does not live; its end is noticed elsewhere.
        let missing = self.qmp.missing_cpu_features().await.ok()?;
        let missing: Vec<&str> = required.into_iter().filter(|name| missing.iter().any(|one| one == name)).collect();
        (!missing.is_empty())
            .then(|| format!("domain.cpu.features: this node's processors do not have {}", missing.join(", ")))
    }

    pub(super) async fn reconcile_processors(&mut self, vmi: &VirtualMachineInstance) -> Option<String> {
        let (wanted, has) = (machine::sockets(&vmi.spec), self.view.sockets?);
        if wanted <= has {
            return (wanted < has).then(|| format!("{has} sockets cannot become {wanted} while the guest runs"));
        }
        if let Some(why) = &self.view.fixed_processors {
            return Some(format!("processors: {}", why.message));
        }
        let outcome = self.plug_processors(wanted).await;
        if outcome.is_ok() {
            self.view.sockets = Some(wanted);
            self.resize_group(vmi);
            tracing::info!(vmi = %self.running.name, sockets = wanted, "processors plugged");
        }
        outcome.err().map(|message| format!("processors: {message}"))
    }

    async fn plug_processors(&mut self, sockets: u32) -> Result<(), String> {
        let slots = self.qmp.hotpluggable_cpus().await.map_err(|error| Chain(&error).to_string())?;
        let number = |slot: &Value, key: &str| slot["props"][key].as_u64().unwrap_or_default();
        let place = |slot: &Value| ["socket-id", "die-id", "core-id", "thread-id"].map(|key| number(slot, key));
        if slots.iter().all(|slot| number(slot, "socket-id") + 1 < u64::from(sockets)) {
            return Err(format!("the machine has no room for {sockets} sockets"));
        }
        let is_missing =
            |slot: &&Value| slot.get("qom-path").is_none() && number(slot, "socket-id") < u64::from(sockets);
        let mut missing: Vec<&Value> = slots.iter().filter(is_missing).collect();
        missing.sort_by_key(|slot| place(slot));
        for slot in missing {
            let [socket, die, core, thread] = place(slot);
            let mut device = slot["props"].clone();
            device["driver"] = slot["type"].clone();
            device["id"] = json!(format!("cpu-{socket}-{die}-{core}-{thread}"));
            self.qmp.device_add(device).await.map_err(|error| Chain(&error).to_string())?;
        }
        Ok(())
    }

    pub(super) async fn reconcile_memory(&mut self, vmi: &VirtualMachineInstance) -> Option<String> {
        let wanted = machine::guest_memory(&vmi.spec).ok()?;
        let has = self.view.memory_bytes?;
        if wanted <= has {
            return (wanted < has)
                .then(|| format!("{has} bytes of memory cannot become {wanted} while the guest runs"));
        }
        let added = wanted - has;
        if !added.is_multiple_of(MEMORY_UNIT) {
            return Some(format!("memory grows by multiples of {MEMORY_UNIT} bytes, not by {added}"));
        }
        // The limit comes first: what is plugged may be used at once.
        self.view.memory_bytes = Some(wanted);
        self.resize_group(vmi);
        let outcome = self.plug_memory(added).await;
        if outcome.is_err() {
            self.view.memory_bytes = Some(has);
        } else {
            tracing::info!(vmi = %self.running.name, bytes = wanted, "memory plugged");
        }
        outcome.err().map(|message| format!("memory: {message}"))
    }

    async fn plug_memory(&mut self, bytes: u64) -> Result<(), String> {
        let text = |error: croft_qemu::qmp::QmpError| Chain(&error).to_string();
        let number = self.qmp.plugged_memory().await.map_err(text)?.len();
        let (object, device) = (format!("mem{number}"), format!("dimm{number}"));
        // A try that we died in the middle of may have left one.
        let _ = self.qmp.object_del(&object).await;
        let backend = json!({ "qom-type": "memory-backend-ram", "id": object, "size": bytes });
        self.qmp.object_add(backend).await.map_err(text)?;
        let plugged = self.qmp.device_add(json!({ "driver": "pc-dimm", "id": device, "memdev": object })).await;
        if plugged.is_err() {
            let _ = self.qmp.object_del(&object).await;
        }
        plugged.map_err(text)
    }
}
