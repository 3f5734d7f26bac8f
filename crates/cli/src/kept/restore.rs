//! A machine as it was, in the place of the one that is or beside it.

use anyhow::bail;
use clap::Args;
use serde_json::{Value, json};

use super::{PATIENCE, Sort, find, told};
use crate::Failure;
use crate::api::segment;
use crate::client::{Client, RESTORES};
use crate::confirm::ConfirmArgs;
use crate::output::OutputArgs;
use crate::progress::Distant;
use crate::wait::{self, Seen};

#[derive(Debug, Args)]
pub(crate) struct RestoreArgs {
    /// Which one
    pub(crate) name: String,
    /// Make something new of this name, instead of replacing the machine that is
    #[arg(long, value_name = "NAME")]
    pub(crate) to: Option<String>,
    /// Give the new machine the addresses of the old one, which must be gone
    #[arg(long, requires = "to")]
    keep_macs: bool,
    /// Do not start the machine
    #[arg(long)]
    no_start: bool,
    /// Delete the disks that are replaced; they are kept otherwise
    #[arg(long, conflicts_with = "to")]
    delete_disks: bool,
    #[command(flatten)]
    pub(crate) confirm: ConfirmArgs,
    /// Return once it is done
    #[arg(short, long)]
    pub(crate) wait: bool,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

pub(crate) async fn restore(client: &Client, sort: Sort, args: &RestoreArgs) -> Result<(), Failure> {
    if let Some(new) = &args.to {
        segment(new).map_err(Failure::usage)?;
    }
    let kept = find(client, sort, &args.name).await?;
    let source = kept["spec"]["source"]["name"].as_str().unwrap_or_default();
    let machine = args.to.as_deref().unwrap_or(source);
    if args.delete_disks {
        args.confirm.deletion(&format!("the disks of {machine}"))?;
    }
    let made = client.create(&RESTORES.all(&client.namespace), &wanted(args, &client.namespace, machine)).await?;
    if !args.wait {
        return told(&made, args.output, &format!("{machine} is being restored from {}", args.name));
    }
    let name = made["metadata"]["name"].as_str().unwrap_or_default();
    let done = complete(client, name, machine).await?;
    told(&done, args.output, &format!("{machine} is restored from {}", args.name))
}

fn wanted(args: &RestoreArgs, namespace: &str, machine: &str) -> Value {
    json!({
        "apiVersion": "harvesterhci.io/v1beta1", "kind": "VirtualMachineRestore",
        "metadata": { "generateName": "restore-" },
        "spec": {
            "target": { "apiGroup": "kubevirt.io", "kind": "VirtualMachine", "name": machine },
            "virtualMachineBackupName": args.name, "virtualMachineBackupNamespace": namespace,
            "newVM": args.to.is_some(), "keepMacAddress": args.keep_macs, "haltAfterRestore": args.no_start,
            "deletionPolicy": if args.delete_disks { "delete" } else { "retain" },
        },
    })
}

async fn complete(client: &Client, name: &str, machine: &str) -> anyhow::Result<Value> {
    let bar = Distant::new(machine);
    wait::until(client, RESTORES, &client.namespace, name, PATIENCE, |object| {
        let Some(object) = object else { bail!("the restore {name} was deleted meanwhile") };
        bar.tell(object["status"]["progress"].as_u64().unwrap_or_default(), None);
        if object["status"]["complete"] == true {
            return Ok(Seen::Done(object.clone()));
        }
        match failure(object) {
            Some(why) => bail!("{machine} could not be restored: {why}"),
            None => Ok(Seen::NotYet),
        }
    })
    .await
}

fn failure(restore: &Value) -> Option<&str> {
    let conditions = restore["status"]["conditions"].as_array()?;
    let failed = conditions.iter().find(|one| one["type"] == "Ready" && one["reason"] == "Error")?;
    failed["message"].as_str()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_a_condition_with_the_reason_error() {
        let with = |reason: &str| {
            json!({"status": {"conditions": [
                {"type": "InProgress", "status": "True"},
                {"type": "Ready", "status": "False", "reason": reason, "message": "no room"}]}})
        };
        assert_eq!(failure(&with("Error")), Some("no room"));
        assert_eq!(failure(&with("")), None);
        assert_eq!(failure(&json!({})), None);
    }
}
