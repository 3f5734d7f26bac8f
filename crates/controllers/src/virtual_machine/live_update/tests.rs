#![expect(clippy::needless_pass_by_value, reason = "tables read better without references")]

use serde_json::{Value, json};

use super::*;

fn disk(name: &str) -> Value {
    json!({"name": name, "disk": {"bus": "virtio"}})
}

fn claim(name: &str, is_hotpluggable: bool) -> Value {
    json!({"name": name, "persistentVolumeClaim": {"claimName": name, "hotpluggable": is_hotpluggable}})
}

fn nic(name: &str) -> Value {
    json!({"name": name, "bridge": {}})
}

fn spec() -> Value {
    json!({
        "domain": {
            "cpu": {"sockets": 1, "cores": 1, "threads": 1, "maxSockets": 4},
            "memory": {"guest": "1Gi", "maxGuest": "4Gi"},
            "resources": {"requests": {"cpu": "100m", "memory": "1Gi"}},
            "devices": {"disks": [disk("root")], "interfaces": [nic("a")]},
        },
        "volumes": [claim("root", false)],
        "networks": [{"name": "a", "multus": {"networkName": "n"}}],
        "architecture": "amd64",
    })
}

/// The specification with changes made to it, each a JSON pointer and a value.
fn changed(changes: &[(&str, Value)]) -> Value {
    let mut spec = spec();
    for (pointer, value) in changes {
        let (parent, key) = pointer.rsplit_once('/').unwrap();
        let parent = spec.pointer_mut(parent).unwrap();
        match (parent, key) {
            (Value::Array(list), "-") => list.push(value.clone()),
            (Value::Object(map), key) if value.is_null() => drop(map.remove(key)),
            (parent, key) => parent[key] = value.clone(),
        }
    }
    spec
}

fn machine(spec: &Value, status: Value) -> VirtualMachine {
    let template = json!({"metadata": {"labels": {"app": "web"}}, "spec": spec});
    let object = json!({"metadata": {"name": "vm"}, "spec": {"template": template}, "status": status});
    serde_json::from_value(object).unwrap()
}

fn instance(spec: &Value, status: Value) -> VirtualMachineInstance {
    let mut full = json!({"phase": "Running", "memory": {"guestAtBoot": "1Gi", "guestCurrent": "1Gi"}});
    full.as_object_mut().unwrap().extend(status.as_object().unwrap().clone());
    let metadata = json!({"labels": {"app": "web"}});
    serde_json::from_value(json!({"metadata": metadata, "spec": spec, "status": full})).unwrap()
}

fn updated(wanted: &Value, instance: &VirtualMachineInstance) -> Updated {
    let machine = machine(wanted, json!({}));
    let started: VirtualMachineInstanceSpec = serde_json::from_value(spec()).unwrap();
    let wanted: VirtualMachineInstanceSpec = serde_json::from_value(wanted.clone()).unwrap();
    let started = Started::From(&started);
    update(Given { machine: &machine, instance: Some(instance), wanted: &wanted, started })
}

fn names(updated: &Updated) -> (Vec<String>, Vec<String>, Vec<String>) {
    let spec = &updated.instance.as_ref().unwrap().spec;
    let disks = spec.domain.devices.disks.iter().map(|disk| disk.name.clone()).collect();
    let volumes = spec.volumes.iter().map(|volume| volume.name.clone()).collect();
    let nics = spec.domain.devices.interfaces.iter().map(|nic| nic.name.clone()).collect();
    (volumes, disks, nics)
}

#[test]
fn what_can_change_live_needs_no_restart_and_the_rest_does() {
    let restart = Restart::Required(NEEDS_RESTART.to_owned());
    let required = |why: &str| Restart::Required(why.to_owned());
    let more_cpu = "CPU sockets updated in template spec to a value higher than what's available";
    let more_memory = "memory updated in template spec to a value higher than what's available";
    let cases: Vec<(Vec<(&str, Value)>, Restart)> = vec![
        (vec![], Restart::NotRequired),
        (vec![("/domain/cpu/sockets", json!(2))], Restart::NotRequired),
        (vec![("/domain/cpu/sockets", json!(5))], required(more_cpu)),
        (vec![("/domain/cpu/cores", json!(2))], restart.clone()),
        (vec![("/domain/memory/guest", json!("2Gi"))], Restart::NotRequired),
        (vec![("/domain/memory/guest", json!("8Gi"))], required(more_memory)),
        (
            vec![("/domain/memory/guest", json!("512Mi"))],
            required("memory updated in template spec to a value lower than what the VM started with"),
        ),
        (
            vec![("/domain/memory/guest", json!("1025Mi"))],
            required("memory hotplug not supported, Guest memory must be 2Mi aligned"),
        ),
        (vec![("/domain/memory/maxGuest", json!("8Gi"))], restart.clone()),
        (vec![("/nodeSelector", json!({"zone": "a"}))], Restart::NotRequired),
        (vec![("/tolerations", json!([{"operator": "Exists"}]))], Restart::NotRequired),
        (vec![("/affinity", json!({"nodeAffinity": {}}))], Restart::NotRequired),
        (vec![("/terminationGracePeriodSeconds", json!(5))], restart.clone()),
        (vec![("/volumes/-", claim("data", true)), ("/domain/devices/disks/-", disk("data"))], Restart::NotRequired),
        (vec![("/volumes/-", claim("data", false)), ("/domain/devices/disks/-", disk("data"))], restart.clone()),
        (vec![("/domain/devices/disks/0/disk/bus", json!("sata"))], restart.clone()),
        (vec![("/volumes/0/persistentVolumeClaim/claimName", json!("other"))], restart.clone()),
        (
            vec![
                ("/domain/devices/interfaces/-", nic("b")),
                ("/networks/-", json!({"name": "b", "multus": {"networkName": "n"}})),
            ],
            Restart::NotRequired,
        ),
        (vec![("/domain/devices/interfaces/0/state", json!("absent"))], Restart::NotRequired),
        (vec![("/domain/devices/interfaces/0/state", json!("down"))], Restart::NotRequired),
        (vec![("/domain/devices/interfaces/0/model", json!("e1000"))], restart.clone()),
        (vec![("/networks/0/multus/networkName", json!("other"))], restart.clone()),
        (vec![("/domain/devices/interfaces", json!([])), ("/networks", json!([]))], restart),
    ];
    let there = instance(&spec(), json!({"interfaces": [{"name": "a"}]}));
    for (changes, expected) in cases {
        assert_eq!(updated(&changed(&changes), &there).restart, expected, "{changes:?}");
    }
}

#[test]
fn processors_and_memory_are_added_with_what_they_ask_for() {
    let there = instance(&spec(), json!({"interfaces": [{"name": "a"}]}));
    let wanted = changed(&[("/domain/cpu/sockets", json!(3)), ("/domain/memory/guest", json!("2Gi"))]);
    let domain = updated(&wanted, &there).instance.unwrap().spec.domain;
    assert_eq!(domain.cpu.unwrap().sockets, Some(3));
    assert_eq!(domain.memory.unwrap().guest.unwrap().0, "2Gi");
    let requests: Vec<&str> = domain.resources.requests.values().map(|text| text.0.as_str()).collect();
    assert_eq!(requests, ["300m", "2Gi"]);
}

#[test]
fn one_change_at_a_time() {
    let busy = json!({"conditions": [{"type": "HotVCPUChange", "status": "True"}]});
    let there = instance(&spec(), busy);
    let updated = updated(&changed(&[("/domain/cpu/sockets", json!(2))]), &there);
    assert_eq!(updated.failure.unwrap().reason, "HotPlugCPUError");
    assert_eq!(updated.instance.unwrap().spec.domain.cpu.unwrap().sockets, Some(1));
}

#[test]
fn a_disk_is_plugged_in_and_out_with_the_template() {
    let with_disk = changed(&[("/volumes/-", claim("data", true)), ("/domain/devices/disks/-", disk("data"))]);
    let plugged = updated(&with_disk, &instance(&spec(), json!({})));
    assert_eq!(names(&plugged).0, ["root", "data"]);
    assert_eq!(names(&plugged).1, ["root", "data"]);

    let there = instance(&with_disk, json!({}));
    let unplugged = updated(&spec(), &there);
    assert_eq!(names(&unplugged).0, ["root"]);
    assert_eq!(names(&unplugged).1, ["root"]);

    let still_going = json!({"volumeStatus": [{"name": "data", "target": "vdb", "phase": "Detaching"}]});
    let again = updated(&with_disk, &instance(&spec(), still_going));
    assert_eq!(names(&again).0, ["root"], "it comes back in when it is out");
}

#[test]
fn a_disc_is_changed_in_a_drive_that_stays() {
    let drive = json!({"name": "cd", "cdrom": {"bus": "sata"}});
    let empty = changed(&[("/domain/devices/disks/-", drive)]);
    let mut filled = empty.clone();
    filled["volumes"].as_array_mut().unwrap().push(claim("cd", true));
    let inserted = updated(&filled, &instance(&empty, json!({})));
    assert_eq!(names(&inserted).0, ["root", "cd"]);
    assert_eq!(names(&inserted).1, ["root", "cd"]);
    let ejected = updated(&empty, &instance(&filled, json!({})));
    assert_eq!(names(&ejected).0, ["root"]);
    assert_eq!(names(&ejected).1, ["root", "cd"]);
}

#[test]
fn requests_to_plug_disks_end_in_the_template_and_in_the_guest() {
    let add = json!({"volumeRequests": [{"addVolumeOptions": {
        "name": "data", "disk": disk("x"), "volumeSource": {"persistentVolumeClaim": {"claimName": "data"}},
    }}]});
    let machine = machine(&spec(), add);
    let wanted: VirtualMachineInstanceSpec = serde_json::from_value(spec()).unwrap();
    let there = instance(&spec(), json!({}));
    let given = Given { machine: &machine, instance: Some(&there), wanted: &wanted, started: Started::Same };
    let updated = update(given);
    let template = &updated.machine.spec.template.spec;
    assert_eq!(template.volumes[1].persistent_volume_claim.as_ref().unwrap().hotpluggable, Some(true));
    assert_eq!(template.domain.devices.disks[1].name, "data");
    assert_eq!(names(&updated).1, ["root", "data"]);
    let request = &status_of(&machine).volume_requests[0];
    assert!(is_fulfilled(request, template));
    assert!(!is_fulfilled(request, &wanted));
}

#[test]
fn cards_are_plugged_in_and_out_with_the_template() {
    let with_nic = changed(&[
        ("/domain/devices/interfaces/-", nic("b")),
        ("/networks/-", json!({"name": "b", "multus": {"networkName": "n"}})),
    ]);
    let plugged = updated(&with_nic, &instance(&spec(), json!({"interfaces": [{"name": "a"}]})));
    assert_eq!(names(&plugged).2, ["a", "b"]);

    let mut leaving = with_nic.clone();
    leaving["domain"]["devices"]["interfaces"][1]["state"] = json!("absent");
    let both = json!({"interfaces": [{"name": "a"}, {"name": "b"}]});
    let asked = updated(&leaving, &instance(&with_nic, both));
    let interfaces = &asked.instance.as_ref().unwrap().spec.domain.devices.interfaces;
    assert_eq!(interfaces[1].state.as_deref(), Some("absent"), "the node takes it out");
    let gone = updated(&leaving, &instance(&leaving, json!({"interfaces": [{"name": "a"}]})));
    assert_eq!(names(&gone).2, ["a"]);
    let template = &gone.machine.spec.template.spec;
    assert_eq!(template.domain.devices.interfaces.len(), 1, "then the machine forgets it");
    assert_eq!(template.networks.len(), 1);
}

#[test]
fn labels_follow_the_template_except_those_of_kubevirt() {
    let mut there = instance(&spec(), json!({"interfaces": [{"name": "a"}]}));
    let own = ["kubevirt.io/nodeName", "vm.kubevirt.io/name", "old"].map(|key| (key.to_owned(), "x".to_owned()));
    there.metadata.labels = Some(own.into());
    let labels = updated(&spec(), &there).instance.unwrap().metadata.labels.unwrap();
    let keys: Vec<&str> = labels.keys().map(String::as_str).collect();
    assert_eq!(keys, ["app", "kubevirt.io/nodeName", "vm.kubevirt.io/name"]);
}

#[test]
fn nothing_changes_when_nothing_changed() {
    let there = instance(&spec(), json!({"interfaces": [{"name": "a"}]}));
    let updated = updated(&spec(), &there);
    assert_eq!(updated.instance, Some(there));
    assert_eq!(updated.machine, machine(&spec(), json!({})));
}

#[test]
fn a_guest_that_ended_follows_nothing() {
    let there = instance(&spec(), json!({"phase": "Failed"}));
    let updated = updated(&changed(&[("/domain/cpu/sockets", json!(2))]), &there);
    assert_eq!(updated.instance, None);
    assert_eq!(updated.restart, Restart::Unknown);
}
