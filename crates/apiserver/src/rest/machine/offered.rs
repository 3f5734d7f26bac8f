//! Which actions make sense for a machine as it is.

use std::borrow::Cow;

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;

use super::super::state::Look;
use crate::cache::Cache;

const BACKUPS: &str = "harvesterhci.io/virtualmachinebackups";
const TARGETS: &str = "longhorn.io/backuptargets";
const TARGET: &str = "longhorn-system/default";
const INSTANCES: &str = "kubevirt.io/virtualmachineinstances";
pub(super) const INSUFFICIENT_QUOTA: &str = "harvesterhci.io/insufficient-resource-quota";
const HOTPLUG: &str = "harvesterhci.io/enableCPUAndMemoryHotplug";
const GUEST_CLUSTER: &str = "guestcluster.harvesterhci.io/name";

/// What the actions depend on, beside the state.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Template<'a> {
    #[serde(borrow)]
    spec: Spec<'a>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Spec<'a> {
    #[serde(borrow)]
    domain: Domain<'a>,
    #[serde(borrow)]
    volumes: Option<Vec<Volume<'a>>>,
    liveness_probe: Option<IgnoredAny>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Domain<'a> {
    cpu: Option<Cpu>,
    #[serde(borrow)]
    devices: Option<Devices<'a>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Cpu {
    cores: Option<u32>,
    threads: Option<u32>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Devices<'a> {
    #[serde(borrow)]
    disks: Option<Vec<Disk<'a>>>,
    #[serde(borrow)]
    interfaces: Option<Vec<Interface<'a>>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Disk<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
    #[serde(borrow)]
    cdrom: Option<Drive<'a>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Drive<'a> {
    #[serde(borrow)]
    bus: Cow<'a, str>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Interface<'a> {
    #[serde(borrow)]
    model: Cow<'a, str>,
    #[serde(borrow)]
    mac_address: Cow<'a, str>,
    #[serde(borrow)]
    state: Cow<'a, str>,
    bridge: Option<IgnoredAny>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Volume<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
    persistent_volume_claim: Option<Claim>,
    #[serde(rename = "dataVolume")]
    data: Option<Claim>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Claim {
    hotpluggable: bool,
}

impl Spec<'_> {
    fn volume(&self, name: &str) -> Option<&Volume<'_>> {
        self.volumes.iter().flatten().find(|volume| volume.name == name)
    }

    fn drives(&self) -> impl Iterator<Item = &Disk<'_>> {
        let disks = self.domain.devices.iter().flat_map(|devices| devices.disks.iter().flatten());
        disks.filter(|disk| disk.cdrom.as_ref().is_some_and(|drive| drive.bus == "sata"))
    }

    fn interfaces(&self) -> impl Iterator<Item = &Interface<'_>> {
        self.domain.devices.iter().flat_map(|devices| devices.interfaces.iter().flatten())
    }

    /// The same rule as the action's.
    fn can_lose_a_card(&self) -> bool {
        let is_plain = |card: &&Interface<'_>| card.bridge.is_some() && matches!(&*card.model, "" | "virtio");
        let present = || self.interfaces().filter(|card| card.state != "absent");
        present().count() > 1 && present().any(|card| is_plain(&card))
    }

    fn has_one_core_each(&self) -> bool {
        let cpu = self.domain.cpu.as_ref();
        cpu.is_none_or(|cpu| cpu.cores.unwrap_or(1) <= 1 && cpu.threads.unwrap_or(1) <= 1)
    }
}

pub(in super::super) fn offered(cache: &Cache, id: &str, machine: &Look<'_>) -> Vec<&'static str> {
    let instance = cache.collection(INSTANCES).get(id);
    let instance = instance.as_ref().map(|instance| Look::of(&instance.bytes));
    let mut offered = usable(machine, instance.as_ref());
    if instance.is_none() && has_backup(cache, id) {
        offered.push("restore");
    }
    if offered.contains(&"snapshot") && has_target(cache) {
        offered.push("backup");
    }
    offered
}

/// Whether backups have somewhere to go.
fn has_target(cache: &Cache) -> bool {
    let target = cache.collection(TARGETS).get(TARGET).map(|target| target.json()).unwrap_or_default();
    target["spec"]["backupTargetURL"].as_str().is_some_and(|url| !url.is_empty())
}

/// Whether there is something that the machine could become again.
fn has_backup(cache: &Cache, id: &str) -> bool {
    let (namespace, name) = id.split_once('/').unwrap_or_default();
    let backups = cache.collection(BACKUPS).list(namespace);
    backups
        .iter()
        .map(|backup| backup.json())
        .any(|backup| backup["spec"]["source"]["name"] == name && backup["status"]["readyToUse"] == true)
}

fn usable(machine: &Look<'_>, instance: Option<&Look<'_>>) -> Vec<&'static str> {
    let template: Template<'_> =
        machine.spec.template.and_then(|template| serde_json::from_str(template.get()).ok()).unwrap_or_default();
    let spec = &template.spec;
    let has = |all: Option<&RawValue>, text: &str| all.is_some_and(|all| all.get().contains(text));
    let strategy = machine.run_strategy();
    let phase = instance.map_or("", |instance| &*instance.status.phase);
    let is_over = matches!(phase, "" | "Unknown" | "Succeeded" | "Failed");
    let is_running = phase == "Running";
    let is_paused = instance.is_some_and(|instance| instance.is_true("Paused"));
    let may_stop = match strategy {
        "Halted" => false,
        "Manual" | "RerunOnFailure" => !is_over,
        _ => true,
    };
    let is_starting = has(machine.status.state_change_requests, "\"Start\"");
    let can_be_copied = matches!(phase, "" | "Running" | "Succeeded");
    let can_be_inserted = || spec.drives().any(|drive| spec.volume(&drive.name).is_none());
    let can_be_ejected = || {
        let claim = |volume: &Volume<'_>| {
            [&volume.persistent_volume_claim, &volume.data].into_iter().flatten().any(|claim| claim.hotpluggable)
        };
        spec.drives().any(|drive| spec.volume(&drive.name).is_some_and(claim))
    };
    let is_own = !has(machine.metadata.labels, GUEST_CLUSTER);
    let is_busy = ["RestartRequired", "HotVCPUChange", "HotMemoryChange"].iter().any(|ty| machine.is_true(ty));
    let can_grow = has(machine.metadata.annotations, &format!("\"{HOTPLUG}\":\"true\"")) && spec.has_one_core_each();
    [
        ("start", is_over && !is_starting),
        ("stop", may_stop),
        ("restart", strategy != "Halted" && instance.is_some()),
        ("softreboot", is_running && !is_paused && spec.liveness_probe.is_none()),
        ("pause", is_running && !is_paused),
        ("unpause", is_running && is_paused),
        ("forceStop", machine.status.printable == "Stopping"),
        ("snapshot", can_be_copied),
        ("createTemplate", can_be_copied),
        ("clone", true),
        ("addVolume", true),
        ("removeVolume", true),
        ("insertCdRomVolume", cfg!(not(target_arch = "aarch64")) && can_be_inserted()),
        ("ejectCdRomVolume", can_be_ejected()),
        ("addNic", is_running && is_own && spec.interfaces().all(|card| !card.mac_address.is_empty())),
        ("removeNic", is_running && spec.can_lose_a_card()),
        ("findHotunpluggableNics", is_running && spec.can_lose_a_card()),
        ("cpuAndMemoryHotplug", is_running && can_grow && !is_busy),
        ("dismissInsufficientResourceQuota", has(machine.metadata.annotations, INSUFFICIENT_QUOTA)),
    ]
    .into_iter()
    .filter_map(|(action, is_usable)| is_usable.then_some(action))
    .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn actions_are_offered_when_they_can_be_used() {
        let offered = |machine: Value, instance: Option<Value>| {
            let (machine, instance) = (machine.to_string(), instance.map(|instance| instance.to_string()));
            let instance = instance.as_ref().map(|text| Look::of(text.as_bytes()));
            usable(&Look::of(machine.as_bytes()), instance.as_ref()).join(" ")
        };
        let running = json!({"status": {"phase": "Running"}});
        let paused = json!({"status": {"phase": "Running", "conditions": [{"type": "Paused", "status": "True"}]}});
        let machine = |strategy: &str| json!({"spec": {"runStrategy": strategy}});
        let with = |domain: Value| json!({"spec": {"template": {"spec": {"domain": domain}}}});
        let always = "snapshot createTemplate clone addVolume removeVolume";
        let table = [
            (machine("Halted"), None, format!("start {always}")),
            (
                machine("RerunOnFailure"),
                Some(running.clone()),
                format!("stop restart softreboot pause {always} addNic"),
            ),
            (machine("Always"), Some(paused), format!("stop restart unpause {always} addNic")),
            (machine("Manual"), None, format!("start {always}")),
            (
                json!({"spec": {"running": true}}),
                Some(running.clone()),
                format!("stop restart softreboot pause {always} addNic"),
            ),
            (
                json!({"spec": {"runStrategy": "Halted"}, "status": {"printableStatus": "Stopping"}}),
                Some(running.clone()),
                format!("softreboot pause forceStop {always} addNic"),
            ),
            (
                json!({"spec": {"runStrategy": "Manual"}, "status": {"stateChangeRequests": [{"action": "Start"}]}}),
                None,
                always.to_owned(),
            ),
            (
                with(json!({"devices": {"disks": [{"name": "cd", "cdrom": {"bus": "sata"}}], "interfaces": [
                    {"name": "a", "masquerade": {}}, {"name": "b", "bridge": {}, "macAddress": "x"}]}})),
                Some(running.clone()),
                format!("softreboot pause {always} insertCdRomVolume removeNic findHotunpluggableNics"),
            ),
            (
                json!({
                    "metadata": {"annotations": {HOTPLUG: "true", INSUFFICIENT_QUOTA: "x"}, "labels": {GUEST_CLUSTER: "c"}},
                    "spec": {"template": {"spec": {
                        "domain": {"cpu": {"cores": 1}, "devices": {"disks": [{"name": "cd", "cdrom": {"bus": "sata"}}]}},
                        "volumes": [{"name": "cd", "persistentVolumeClaim": {"hotpluggable": true}}],
                        "livenessProbe": {},
                    }}},
                }),
                Some(running),
                format!("pause {always} ejectCdRomVolume cpuAndMemoryHotplug dismissInsufficientResourceQuota"),
            ),
        ];
        for (machine, instance, expected) in table {
            assert_eq!(offered(machine.clone(), instance), expected, "{machine}");
        }
    }
}
