//! The guest's memory, written into a volume as an ELF core.

use std::os::fd::OwnedFd;

use croft_api::kubevirt::{DomainMemoryDumpInfo, VirtualMachineInstance, volume_phase};
use croft_meta::Chain;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::Value;

use super::super::status::VolumeState;
use super::Live;

/// Headers and notes beside the memory itself.
const HEADER_BYTES: u64 = 1 << 20;

impl Live<'_> {
    /// Begins a dump that was asked for and not yet made. What went wrong.
    pub(super) async fn reconcile_dump(&mut self, vmi: &VirtualMachineInstance) -> Option<String> {
        let volumes = &vmi.spec.volumes;
        let is_wanted =
            |name: &String| volumes.iter().any(|volume| volume.memory_dump.is_some() && volume.name == *name);
        self.view.memory_dumps.retain(|name, _| is_wanted(name));
        for volume in volumes {
            let Some(source) = &volume.memory_dump else { continue };
            if self.view.memory_dumps.contains_key(&volume.name) {
                continue;
            }
            let known = vmi.status.iter().flat_map(|status| &status.volume_status);
            let known = known.into_iter().find(|status| status.name == volume.name);
            if let Some(done) = known.and_then(|status| status.memory_dump_volume.clone().zip(status.phase.clone())) {
                // Before a restart of ours.
                if done.0.end_timestamp.is_some() {
                    self.keep(&volume.name, done.0, &done.1);
                    continue;
                }
            }
            let info = DomainMemoryDumpInfo {
                start_timestamp: Some(Time(Timestamp::now())),
                end_timestamp: None,
                claim_name: Some(source.claim_name.clone()),
                target_file_name: Some(format!("{}-{}.memory.dump", self.running.name, volume.name)),
            };
            let (phase, message) = match self.begin_dump(vmi, &source.claim_name).await {
                Ok(()) => (volume_phase::MEMORY_DUMP_IN_PROGRESS, String::new()),
                Err(message) => (volume_phase::MEMORY_DUMP_FAILED, message),
            };
            let ended = (!message.is_empty()).then(|| Time(Timestamp::now()));
            self.view.memory_dumps.insert(volume.name.clone(), DomainMemoryDumpInfo { end_timestamp: ended, ..info });
            self.view.volume_states.insert(volume.name.clone(), VolumeState { phase, reason: "", message });
        }
        None
    }

    fn keep(&mut self, volume: &str, info: DomainMemoryDumpInfo, phase: &str) {
        let phase = match phase {
            volume_phase::MEMORY_DUMP_FAILED => volume_phase::MEMORY_DUMP_FAILED,
            _ => volume_phase::MEMORY_DUMP_COMPLETED,
        };
        self.view.memory_dumps.insert(volume.to_owned(), info);
        let state = VolumeState { phase, reason: "", message: String::new() };
        self.view.volume_states.insert(volume.to_owned(), state);
    }

    async fn begin_dump(&mut self, vmi: &VirtualMachineInstance, claim: &str) -> Result<(), String> {
        let namespace = vmi.metadata.namespace.as_deref().unwrap_or_default();
        let attached = self.actor.host.storage.attach(namespace, claim).map_err(|lacking| lacking.to_string())?;
        let needed = self.view.memory_bytes.unwrap_or_default() + HEADER_BYTES;
        if attached.size_bytes < needed {
            return Err(format!("claim {claim} has {} bytes, and the dump needs {needed}", attached.size_bytes));
        }
        let file = std::fs::OpenOptions::new().write(true).open(&attached.path);
        let fd: OwnedFd = file.map_err(|error| format!("{}: {error}", attached.path.display()))?.into();
        self.qmp.dump_guest_memory(fd).await.map_err(|error| Chain(&error).to_string())
    }

    /// QEMU says how the dump went.
    pub(super) fn dumped(&mut self, result: &Value, error: Option<&str>) {
        let is_good = result["status"] == "completed";
        let message = error.unwrap_or(if is_good { "" } else { "the dump has failed" }).to_owned();
        let phase = if is_good { volume_phase::MEMORY_DUMP_COMPLETED } else { volume_phase::MEMORY_DUMP_FAILED };
        for (name, info) in &mut self.view.memory_dumps {
            if info.end_timestamp.is_some() {
                continue;
            }
            info.end_timestamp = Some(Time(Timestamp::now()));
            let state = VolumeState { phase, reason: "", message: message.clone() };
            self.view.volume_states.insert(name.clone(), state);
        }
    }
}
