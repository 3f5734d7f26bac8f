use serde_json::{Value, json};

use super::super::testing::{Objects, nothing, write};
use super::*;

fn instance() -> Value {
    json!({
        "metadata": {"name": "a", "namespace": "b"},
        "spec": {
            "domain": {"devices": {"disks": [{"name": "root"}]}, "memory": {"guest": "64Mi"}},
            "volumes": [{"name": "root", "emptyDisk": {"capacity": 1_048_576}}],
        },
    })
}

#[test]
fn a_new_instance_is_pending_and_complete() {
    let mut asked = instance();
    asked["status"] = json!({"phase": "Running"});
    let vmi = write(admit, asked, None, &nothing(), false).unwrap();
    assert_eq!(vmi["status"]["phase"], "Pending");
    assert_eq!(
        vmi["status"]["phaseTransitionTimestamps"],
        json!([{"phase": "Pending", "phaseTransitionTimestamp": "1970-01-01T00:00:00Z"}])
    );
    assert_eq!(vmi["metadata"]["finalizers"], json!([INSTANCE_FINALIZER]));
    assert_eq!(vmi["spec"]["volumes"][0]["emptyDisk"]["capacity"], "1048576");
    assert_eq!(vmi["spec"]["domain"]["devices"]["disks"][0]["disk"]["bus"], "sata");
    assert_eq!(vmi["spec"]["networks"], json!([{"name": "default", "pod": {}}]));
}

#[test]
fn the_setting_says_how_far_a_guest_may_grow() {
    let setting = json!({"metadata": {"name": "max-hotplug-ratio"}, "value": "2"});
    let objects = Objects::default().with("harvesterhci.io", "settings", setting);
    let vmi = write(admit, instance(), None, &objects, false).unwrap();
    assert_eq!(vmi["spec"]["domain"]["cpu"]["maxSockets"], 2);
}

#[test]
fn an_instance_without_memory_is_refused() {
    let mut asked = instance();
    asked["spec"]["domain"]["memory"] = Value::Null;
    let error = write(admit, asked, None, &nothing(), false).unwrap_err();
    assert!(error.message().ends_with(
        "no memory requested, at least one of 'spec.domain.memory.guest', 'spec.domain.memory.hugepages.pageSize' or \
         'spec.domain.resources.requests.memory' must be set"
    ), "{error}");
}

#[test]
fn only_croft_changes_an_instance() {
    let old = write(admit, instance(), None, &nothing(), false).unwrap();
    let mut new = old.clone();
    new["status"]["phase"] = json!("Running");
    new["metadata"]["labels"] = json!({"mine": "yes"});
    let by_user = write(admit, new.clone(), Some(&old), &nothing(), false).unwrap();
    assert_eq!(by_user["status"]["phase"], "Pending");
    assert_eq!(by_user["metadata"]["labels"]["mine"], "yes");
    let by_croft = write(admit, new, Some(&old), &nothing(), true).unwrap();
    assert_eq!(by_croft["status"]["phase"], "Running");

    let mut new = old.clone();
    new["spec"]["hostname"] = json!("h");
    let error = write(admit, new.clone(), Some(&old), &nothing(), false).unwrap_err();
    assert!(error.message().ends_with("update of VMI object is restricted"), "{error}");
    assert!(write(admit, new, Some(&old), &nothing(), true).is_ok());

    let mut new = old.clone();
    new["metadata"]["labels"] = json!({"kubevirt.io/nodeName": "n"});
    let error = write(admit, new, Some(&old), &nothing(), false).unwrap_err();
    assert!(error.message().contains("modification of the following reserved kubevirt.io/ labels"), "{error}");
}
