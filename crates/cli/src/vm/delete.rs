//! Deleting machines, with or without their disks.

use std::time::Duration;

use clap::Args;
use serde_json::{Value, json};

use crate::client::{Client, MACHINES};
use crate::confirm::ConfirmArgs;
use crate::wait::{self, Seen};
use crate::{Failure, print, progress};

const PATIENCE: Duration = Duration::from_mins(5);

#[derive(Debug, Args)]
pub(crate) struct DeleteArgs {
    /// The virtual machines
    #[arg(required = true)]
    names: Vec<String>,
    /// Keep their disks
    #[arg(long)]
    keep_disks: bool,
    #[command(flatten)]
    confirm: ConfirmArgs,
    /// Return once they are gone
    #[arg(short, long)]
    wait: bool,
}

pub(crate) async fn run(client: &Client, args: &DeleteArgs) -> Result<(), Failure> {
    for name in &args.names {
        let path = MACHINES.one(&client.namespace, name)?;
        let machine = client.get(&path).await?;
        let disks = if args.keep_disks { Vec::new() } else { claims(&machine) };
        let lost = if disks.is_empty() { String::new() } else { format!(" and its disks {}", disks.join(", ")) };
        args.confirm.deletion(&format!("{name}{lost}"))?;
        if !disks.is_empty() {
            // Harvester's way of saying that the disks go with the machine.
            let annotations = json!({ "harvesterhci.io/removedPersistentVolumeClaims": disks.join(",") });
            client.merge(&path, &json!({ "metadata": { "annotations": annotations } })).await?;
        }
        client.delete(&path).await?;
        if args.wait {
            let bar = progress::waiting(&format!("{name}: going"));
            let gone = wait::until(client, MACHINES, &client.namespace, name, PATIENCE, |machine| {
                Ok(if machine.is_none() { Seen::Done(()) } else { Seen::NotYet })
            });
            let gone = gone.await;
            bar.finish_and_clear();
            gone?;
        }
        print(&format!("{name} is deleted\n"))?;
    }
    Ok(())
}

/// The claims that the machine's volumes name.
pub(super) fn claims(machine: &Value) -> Vec<String> {
    let volumes = machine["spec"]["template"]["spec"]["volumes"].as_array().into_iter().flatten();
    let claim = |volume: &Value| volume["persistentVolumeClaim"]["claimName"].as_str().map(str::to_owned);
    volumes.filter_map(claim).collect()
}
