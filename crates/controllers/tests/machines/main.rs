//! Machines from their creation to their end, on the real API server and with the real controllers.

mod world;

use std::collections::HashMap;
use std::time::Instant;

use anyhow::{Result, ensure};
use croft_api::kubevirt::VirtualMachineInstance;
use croft_reconcile::{Cache, Source};
use croft_testkit::eventually;
use futures::StreamExt;
use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, PropagationPolicy};
use serde_json::{Value, json};

use world::{World, node_of, phase_of, report};

fn machine(name: &str, strategy: &str) -> Value {
    json!({
        "metadata": {"name": name},
        "spec": {"runStrategy": strategy, "template": {
            "metadata": {"labels": {"app": "web"}},
            "spec": {
                "domain": {
                    "cpu": {"sockets": 1, "cores": 1, "threads": 1, "maxSockets": 4},
                    "memory": {"guest": "1Gi", "maxGuest": "4Gi"},
                    "resources": {"requests": {"cpu": "10m", "memory": "64Mi"}, "overcommitGuestOverhead": true},
                    "devices": {},
                },
            },
        }},
    })
}

fn uid(instance: &VirtualMachineInstance) -> String {
    instance.metadata.uid.clone().unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_that_always_runs_is_started_again() -> Result<()> {
    let world = World::with_node("2", "4Gi").await?;
    world.create(machine("vm", "Always")).await?;
    let machine = world.status_is("vm", "Running").await;
    let status = machine.status.unwrap_or_default();
    assert_eq!((status.created, status.ready), (Some(true), Some(true)));
    assert_eq!((status.observed_generation, status.desired_generation), (Some(1), Some(1)));
    let finalizers = machine.metadata.finalizers.unwrap_or_default();
    assert!(finalizers.contains(&"kubevirt.io/virtualMachineControllerFinalize".to_owned()), "{finalizers:?}");
    let first = world.instances().get("vm").await?;
    for phase in ["Failed", "Succeeded"] {
        let before = world.instances().get("vm").await?;
        world.end_guest("vm", phase).await?;
        let is_new = |one: &VirtualMachineInstance| uid(one) != uid(&before) && phase_of(one) == "Running";
        world.instance("vm", &format!("is new after it {phase}"), is_new).await;
    }
    let revisions: Api<ControllerRevision> = Api::default_namespaced(world.client.clone());
    assert_eq!(revisions.list(&ListParams::default()).await?.items.len(), 1, "nothing changed in between");
    let name = first.status.and_then(|status| status.virtual_machine_revision_name).unwrap_or_default();
    revisions.get(&name).await?;
    eventually("the events are told", async || {
        let reasons = world.events("vm").await?;
        ensure!(reasons.contains(&"SuccessfulCreate".to_owned()), "{reasons:?}");
        ensure!(reasons.contains(&"SuccessfulDelete".to_owned()), "{reasons:?}");
        anyhow::Ok(())
    })
    .await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_is_rerun_only_when_it_failed() -> Result<()> {
    let world = World::with_node("2", "4Gi").await?;
    world.create(machine("vm", "RerunOnFailure")).await?;
    world.status_is("vm", "Running").await;
    let before = world.instances().get("vm").await?;
    world.end_guest("vm", "Failed").await?;
    world.instance("vm", "is rerun", |one| uid(one) != uid(&before) && phase_of(one) == "Running").await;
    world.end_guest("vm", "Succeeded").await?;
    world.status_is("vm", "Stopped").await;
    world.no_instance("vm").await;
    world.put("virtualmachines", "vm", "start", json!({})).await?;
    let started = world.status_is("vm", "Running").await;
    eventually("the request is done", async || {
        let status = world.machines().get("vm").await?.status.unwrap_or_default();
        ensure!(status.state_change_requests.is_empty(), "{status:?}");
        anyhow::Ok(())
    })
    .await;
    let annotations = started.metadata.annotations.unwrap_or_default();
    assert_eq!(annotations.get("harvesterhci.io/vmRunStrategy").map(String::as_str), Some("RerunOnFailure"));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_is_started_and_stopped_by_hand() -> Result<()> {
    let world = World::with_node("2", "4Gi").await?;
    world.create(machine("vm", "Manual")).await?;
    world.status_is("vm", "Stopped").await;
    world.put("virtualmachines", "vm", "start", json!({})).await?;
    world.status_is("vm", "Running").await;
    world.put("virtualmachines", "vm", "stop", json!({})).await?;
    world.no_instance("vm").await;
    world.status_is("vm", "Stopped").await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_that_is_halted_stops_and_starts_again() -> Result<()> {
    let world = World::with_node("2", "4Gi").await?;
    world.create(machine("vm", "Always")).await?;
    world.status_is("vm", "Running").await;
    world.patch("vm", json!({"spec": {"runStrategy": "Halted"}})).await?;
    world.no_instance("vm").await;
    let stopped = world.status_is("vm", "Stopped").await;
    assert_eq!(stopped.status.unwrap_or_default().run_strategy.as_deref(), Some("Halted"));
    world.patch("vm", json!({"spec": {"runStrategy": "Always"}})).await?;
    world.status_is("vm", "Running").await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guest_that_cannot_start_is_tried_again_ever_more_slowly() -> Result<()> {
    let world = World::with_node("2", "4Gi").await?;
    let mut failing = machine("vm", "Always");
    failing["spec"]["template"]["metadata"]["labels"]["act"] = json!("fail");
    world.create(failing).await?;
    let machine = world.status_is("vm", "CrashLoopBackOff").await;
    let failure = machine.status.unwrap_or_default().start_failure.unwrap_or_default();
    assert_eq!(failure.consecutive_fail_count, Some(1));
    assert!(failure.retry_after_timestamp.is_some());
    world.no_instance("vm").await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_that_goes_takes_its_instance_with_it_unless_that_is_kept() -> Result<()> {
    let world = World::with_node("2", "4Gi").await?;
    for name in ["gone", "kept"] {
        world.create(machine(name, "Always")).await?;
        world.status_is(name, "Running").await;
    }
    world.machines().delete("gone", &DeleteParams::default()).await?;
    let orphan = DeleteParams { propagation_policy: Some(PropagationPolicy::Orphan), ..DeleteParams::default() };
    world.machines().delete("kept", &orphan).await?;
    for name in ["gone", "kept"] {
        let machines = world.machines();
        eventually(&format!("machine {name} goes"), async || {
            ensure!(machines.get_opt(name).await?.is_none(), "it is there");
            anyhow::Ok(())
        })
        .await;
    }
    world.no_instance("gone").await;
    let kept = world
        .instance("kept", "has no owner", |one| one.metadata.owner_references.iter().flatten().next().is_none())
        .await;
    assert_eq!(phase_of(&kept), "Running");
    world.instances().delete("kept", &DeleteParams::default()).await?;
    world.no_instance("kept").await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_reach_the_running_guest_or_ask_for_a_restart() -> Result<()> {
    let world = World::with_node("2", "4Gi").await?;
    world.create(machine("vm", "Always")).await?;
    world.status_is("vm", "Running").await;
    let spec = |domain: Value| json!({"spec": {"template": {"spec": {"domain": domain}}}});
    world.patch("vm", spec(json!({"cpu": {"sockets": 2}, "memory": {"guest": "2Gi"}}))).await?;
    world
        .instance("vm", "has grown", |one| {
            let domain = &one.spec.domain;
            let guest = domain.memory.as_ref().and_then(|memory| memory.guest.as_ref());
            domain.cpu.as_ref().and_then(|cpu| cpu.sockets) == Some(2) && guest.is_some_and(|guest| guest.0 == "2Gi")
        })
        .await;
    world.patch("vm", json!({"spec": {"template": {"metadata": {"labels": {"app": null, "tier": "db"}}}}})).await?;
    let labelled = |one: &VirtualMachineInstance| {
        let labels = one.metadata.labels.clone().unwrap_or_default();
        labels.contains_key("tier") && !labels.contains_key("app") && labels.contains_key("kubevirt.io/nodeName")
    };
    world.instance("vm", "has the new labels", labelled).await;
    world.patch("vm", spec(json!({"cpu": {"cores": 2}}))).await?;
    let required = |is_required: bool| {
        let machines = world.machines();
        async move {
            eventually(&format!("a restart is required: {is_required}"), async || {
                let status = machines.get("vm").await?.status.unwrap_or_default();
                let found = status.conditions.iter().any(|one| one.type_ == "RestartRequired");
                ensure!(found == is_required, "{status:?}");
                anyhow::Ok(())
            })
            .await;
        }
    };
    required(true).await;
    world.patch("vm", spec(json!({"cpu": {"cores": 1}}))).await?;
    required(false).await;
    world.patch("vm", spec(json!({"cpu": {"cores": 2}}))).await?;
    required(true).await;
    let before = world.instances().get("vm").await?;
    world.put("virtualmachines", "vm", "restart", json!({})).await?;
    let is_new = |one: &VirtualMachineInstance| uid(one) != uid(&before) && phase_of(one) == "Running";
    let restarted = world.instance("vm", "is restarted", is_new).await;
    assert_eq!(restarted.spec.domain.cpu.and_then(|cpu| cpu.cores), Some(2));
    required(false).await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_instance_that_does_not_fit_is_told_why_and_fits_later() -> Result<()> {
    let world = World::with_node("2", "256Mi").await?;
    let mut large = machine("vm", "Always");
    large["spec"]["template"]["spec"]["domain"]["resources"]["requests"]["memory"] = json!("1Gi");
    world.create(large).await?;
    let refused = world.status_is("vm", "ErrorUnschedulable").await.status.unwrap_or_default();
    let condition = refused.conditions.iter().find(|one| one.type_ == "PodScheduled").cloned().unwrap_or_default();
    let expected = "0/1 nodes are available: 1 Insufficient memory (requested 1Gi, free 256Mi).";
    assert_eq!(condition.message.as_deref(), Some(expected));
    assert_eq!(condition.reason.as_deref(), Some("Unschedulable"));
    world.set_node("n1", "2", "4Gi").await?;
    let running = world.status_is("vm", "Running").await.status.unwrap_or_default();
    assert!(!running.conditions.iter().any(|one| one.type_ == "PodScheduled"), "{:?}", running.conditions);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_waits_for_its_claim() -> Result<()> {
    let world = World::with_node("2", "4Gi").await?;
    let mut with_disk = machine("vm", "Always");
    let spec = &mut with_disk["spec"]["template"]["spec"];
    spec["volumes"] = json!([{"name": "root", "persistentVolumeClaim": {"claimName": "disk"}}]);
    spec["domain"]["devices"]["disks"] = json!([{"name": "root", "disk": {"bus": "virtio"}}]);
    world.create(with_disk).await?;
    world.status_is("vm", "ErrorPvcNotFound").await;

    let claims: Api<PersistentVolumeClaim> = Api::default_namespaced(world.client.clone());
    let claim = json!({"metadata": {"name": "disk"}, "spec": {"accessModes": ["ReadWriteOnce"], "volumeName": "pv1",
        "storageClassName": "", "resources": {"requests": {"storage": "1Gi"}}}});
    claims.create(&PostParams::default(), &serde_json::from_value(claim)?).await?;
    let volumes: Api<PersistentVolume> = Api::all(world.client.clone());
    let only = |node: &str| {
        json!({"required": {"nodeSelectorTerms": [{"matchExpressions": [
            {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}]}]}})
    };
    let volume = json!({"metadata": {"name": "pv1"}, "spec": {"accessModes": ["ReadWriteOnce"],
        "capacity": {"storage": "1Gi"}, "nodeAffinity": only("n2"),
        "csi": {"driver": "driver.longhorn.io", "volumeHandle": "pv1"}}});
    volumes.create(&PostParams::default(), &serde_json::from_value(volume)?).await?;
    let bound = json!({"status": {"phase": "Bound"}});
    claims.patch_status("disk", &PatchParams::default(), &Patch::Merge(&bound)).await?;
    let refused = world.status_is("vm", "ErrorUnschedulable").await.status.unwrap_or_default();
    let condition = refused.conditions.iter().find(|one| one.type_ == "PodScheduled").cloned().unwrap_or_default();
    let told = condition.message.unwrap_or_default();
    assert!(told.contains("node affinity of volume disk"), "{told}");
    world.add_node("n2", "2", "4Gi").await?;
    world.instance("vm", "is on the node of its disk", |one| node_of(one) == Some("n2")).await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn instances_without_machine_are_looked_after() -> Result<()> {
    let mut world = World::start().await?;
    let instance =
        |name: &str| json!({"metadata": {"name": name}, "spec": machine(name, "Always")["spec"]["template"]["spec"]});
    let instances = world.instances();
    for name in ["a", "b"] {
        instances.create(&PostParams::default(), &serde_json::from_value(instance(name))?).await?;
    }
    let is_told = |one: &VirtualMachineInstance| {
        one.status
            .iter()
            .flat_map(|status| &status.conditions)
            .any(|one| one.reason.as_deref() == Some("Unschedulable"))
    };
    world.instance("a", "has no node", is_told).await;
    instances.delete("a", &DeleteParams::default()).await?;
    world.no_instance("a").await;
    world.add_node("n1", "2", "4Gi").await?;
    world.act_node("n1");
    world.instance("b", "runs", |one| phase_of(one) == "Running").await;
    instances.delete("b", &DeleteParams::default()).await?;
    world.no_instance("b").await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_keeps_the_size_that_it_was_made_with() -> Result<()> {
    let world = World::with_node("2", "8Gi").await?;
    let resource = kube::api::ApiResource::erase::<croft_api::instancetype::VirtualMachineInstancetype>(&());
    let sizes: Api<kube::api::DynamicObject> = Api::default_namespaced_with(world.client.clone(), &resource);
    let size = |cpus: u32| {
        json!({"apiVersion": "instancetype.kubevirt.io/v1beta1", "kind": "VirtualMachineInstancetype",
        "metadata": {"name": "small"}, "spec": {"cpu": {"guest": cpus}, "memory": {"guest": "128Mi"}}})
    };
    sizes.create(&PostParams::default(), &serde_json::from_value(size(2))?).await?;
    world
        .create(json!({"metadata": {"name": "vm"}, "spec": {"runStrategy": "Always",
            "instancetype": {"name": "small", "kind": "VirtualMachineInstancetype"},
            "template": {"spec": {"domain": {"devices": {}}}}}}))
        .await?;
    let first = world.status_is("vm", "Running").await;
    let reference = first.status.unwrap_or_default().instancetype_ref.unwrap_or_default();
    assert_eq!(reference.name.as_deref(), Some("small"));
    let revision = reference.controller_revision_ref.and_then(|one| one.name).unwrap_or_default();
    assert!(revision.starts_with("vm-small-v1beta1-"), "{revision}");
    let processors = |one: &VirtualMachineInstance| {
        let cpu = one.spec.domain.cpu.clone().unwrap_or_default();
        [cpu.sockets, cpu.cores, cpu.threads].into_iter().flatten().product::<u32>()
    };
    assert_eq!(processors(&world.instances().get("vm").await?), 2);
    sizes.delete("small", &DeleteParams::default()).await?;
    let before = world.instances().get("vm").await?;
    world.end_guest("vm", "Failed").await?;
    let again = world.instance("vm", "is new", |one| uid(one) != uid(&before) && phase_of(one) == "Running").await;
    assert_eq!(processors(&again), 2, "its revision is all that it needs");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_disk_is_plugged_in_and_out_by_the_subresources() -> Result<()> {
    let world = World::with_node("2", "4Gi").await?;
    world.create(machine("vm", "Always")).await?;
    world.status_is("vm", "Running").await;
    let claims: Api<PersistentVolumeClaim> = Api::default_namespaced(world.client.clone());
    let claim = json!({"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}}}});
    claims.create(&PostParams::default(), &serde_json::from_value(claim)?).await?;
    let add = |name: &str| {
        json!({"name": name, "disk": {"name": name, "disk": {"bus": "scsi"}},
            "volumeSource": {"persistentVolumeClaim": {"claimName": name}}})
    };
    let has = |name: &'static str, is_in: bool| {
        move |one: &VirtualMachineInstance| {
            let volume = one.spec.volumes.iter().any(|volume| volume.name == name);
            let disk = one.spec.domain.devices.disks.iter().any(|disk| disk.name == name);
            volume == is_in && disk == is_in
        }
    };
    world.put("virtualmachines", "vm", "addvolume", add("data")).await?;
    world.instance("vm", "has the disk", has("data", true)).await;
    world.put("virtualmachines", "vm", "removevolume", json!({"name": "data"})).await?;
    world.instance("vm", "is rid of the disk", has("data", false)).await;
    let spec = world.machines().get("vm").await?.spec;
    assert!(spec.template.spec.volumes.iter().all(|volume| volume.name != "data"));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_machines_start_at_once_on_the_room_there_is() -> Result<()> {
    // Room for sixty of them.
    let world = World::with_node("4", "3840Mi").await?;
    let cache = Cache::<VirtualMachineInstance>::default();
    let mut changes = std::pin::pin!(cache.follow(world.client.clone(), Source::of::<VirtualMachineInstance>()));
    let machines = world.machines();
    let mut created = HashMap::new();
    for index in 0..100 {
        let name = format!("vm{index}");
        created.insert(name.clone(), Instant::now());
        machines.create(&PostParams::default(), &serde_json::from_value(machine(&name, "Always"))?).await?;
    }
    let mut times = HashMap::new();
    while times.len() < 60 {
        let Some(change) = changes.next().await else { break };
        if change.new.as_ref().is_some_and(|new| node_of(new).is_some()) {
            let name = change.key.name;
            let took = created[&name].elapsed();
            times.entry(name).or_insert(took);
        }
    }
    report("from creation to a node", &mut times.into_values().collect::<Vec<_>>());
    let instances = world.instances();
    eventually("all are decided", async || {
        let all = instances.list(&ListParams::default()).await?.items;
        let placed = all.iter().filter(|one| node_of(one).is_some()).count();
        let waiting = all.iter().filter(|one| phase_of(one) == "Scheduling").count();
        ensure!(placed + waiting == 100, "{placed} placed, {waiting} waiting");
        ensure!(placed == 60, "{placed} placed");
        anyhow::Ok(())
    })
    .await;
    Ok(())
}
