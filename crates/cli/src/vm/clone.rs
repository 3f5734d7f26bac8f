//! A copy of a machine with copies of its disks.

use clap::Args;
use serde_json::{Value, json};

use super::delete::claims;
use crate::api::segment;
use crate::client::{CLAIMS, Client, MACHINES};
use crate::{Failure, print};

#[derive(Debug, Args)]
pub(crate) struct CloneArgs {
    /// The virtual machine to copy
    name: String,
    /// What to call the copy
    new_name: String,
    /// Start the copy
    #[arg(long)]
    start: bool,
}

pub(crate) async fn run(client: &Client, args: &CloneArgs) -> Result<(), Failure> {
    segment(&args.new_name).map_err(Failure::usage)?;
    let source = client.get(&MACHINES.one(&client.namespace, &args.name)?).await?;
    let is_stopped = matches!(source["status"]["printableStatus"].as_str(), None | Some("Stopped"));
    if !is_stopped && !claims(&source).is_empty() {
        eprintln!("{} is not stopped: the copy's disks are as after a power cut", args.name);
    }
    let mut copy = copied(&source, &args.new_name);
    if args.start {
        copy["spec"]["runStrategy"] = json!("RerunOnFailure");
    }
    let mut made = Vec::new();
    for (index, claim) in claims(&source).iter().enumerate() {
        let new = format!("{}-disk-{index}", args.new_name);
        let original = client.get(&CLAIMS.one(&client.namespace, claim)?).await?;
        let created = client.create(&CLAIMS.all(&client.namespace), &copied_claim(&original, &new)).await;
        if let Err(err) = created {
            undo(client, &made).await;
            return Err(err.into());
        }
        made.push(new.clone());
        rename_claim(&mut copy, claim, &new);
    }
    if let Err(err) = client.create(&MACHINES.all(&client.namespace), &copy).await {
        undo(client, &made).await;
        return Err(err.into());
    }
    print(&format!("{} is a copy of {}\n", args.new_name, args.name))
}

/// A copy that was refused leaves no disks behind.
async fn undo(client: &Client, claims: &[String]) {
    for claim in claims {
        if let Ok(path) = CLAIMS.one(&client.namespace, claim) {
            // The refusal is what the user hears of.
            let _ = client.delete(&path).await;
        }
    }
}

/// The machine without what only one may have.
fn copied(source: &Value, name: &str) -> Value {
    let mut spec = source["spec"].clone();
    spec["runStrategy"] = json!("Halted");
    let fields = spec.as_object_mut();
    fields.map(|fields| fields.remove("running"));
    let template = &mut spec["template"]["spec"];
    if let Some(firmware) = template["domain"]["firmware"].as_object_mut() {
        firmware.remove("uuid");
        firmware.remove("serial");
    }
    for interface in template["domain"]["devices"]["interfaces"].as_array_mut().into_iter().flatten() {
        interface.as_object_mut().map(|interface| interface.remove("macAddress"));
    }
    if let Some(labels) = spec["template"]["metadata"]["labels"].as_object_mut()
        && labels.contains_key("harvesterhci.io/vmName")
    {
        labels.insert("harvesterhci.io/vmName".to_owned(), name.into());
    }
    json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine",
        "metadata": { "name": name, "labels": source["metadata"]["labels"] },
        "spec": spec,
    })
}

fn copied_claim(original: &Value, name: &str) -> Value {
    let spec = &original["spec"];
    // The original may have grown beyond what was asked for.
    let size = original["status"]["capacity"].get("storage").unwrap_or(&spec["resources"]["requests"]["storage"]);
    json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": { "name": name },
        "spec": {
            "accessModes": spec["accessModes"], "volumeMode": spec["volumeMode"],
            "storageClassName": spec["storageClassName"],
            "resources": { "requests": { "storage": size } },
            "dataSource": { "kind": "PersistentVolumeClaim", "name": original["metadata"]["name"] },
        },
    })
}

fn rename_claim(machine: &mut Value, old: &str, new: &str) {
    for volume in machine["spec"]["template"]["spec"]["volumes"].as_array_mut().into_iter().flatten() {
        if volume["persistentVolumeClaim"]["claimName"] == old {
            volume["persistentVolumeClaim"]["claimName"] = new.into();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_shares_nothing_that_only_one_may_have() {
        let source = json!({
            "metadata": {"name": "a", "uid": "1", "annotations": {"harvesterhci.io/volumeClaimTemplates": "[]"}},
            "spec": {"running": true, "template": {
                "metadata": {"labels": {"harvesterhci.io/vmName": "a"}},
                "spec": {
                    "domain": {"firmware": {"uuid": "u", "serial": "s"},
                               "devices": {"interfaces": [{"name": "default", "macAddress": "02:00:00:00:00:01"}]}},
                    "volumes": [{"name": "d", "persistentVolumeClaim": {"claimName": "a-disk-0"}}]}}},
        });
        let mut copy = copied(&source, "b");
        rename_claim(&mut copy, "a-disk-0", "b-disk-0");
        assert_eq!(copy["metadata"].get("annotations"), None);
        assert_eq!(copy["spec"]["runStrategy"], "Halted");
        assert_eq!(copy["spec"].get("running"), None);
        let template = &copy["spec"]["template"];
        assert_eq!(template["metadata"]["labels"]["harvesterhci.io/vmName"], "b");
        assert_eq!(template["spec"]["domain"]["firmware"], json!({}));
        assert_eq!(template["spec"]["domain"]["devices"]["interfaces"][0], json!({"name": "default"}));
        assert_eq!(claims(&copy), ["b-disk-0"]);
    }
}
