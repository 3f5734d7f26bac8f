//! Deleting machines, with or without their disks.

use std::io::{BufRead, IsTerminal, Write};
use std::time::Duration;

use clap::Args;
use serde_json::{Value, json};

use crate::client::{Client, MACHINES};
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
    /// Do not ask
    #[arg(short, long)]
    yes: bool,
    /// Return once they are gone
    #[arg(short, long)]
    wait: bool,
}

pub(crate) async fn run(client: &Client, args: &DeleteArgs) -> Result<(), Failure> {
    for name in &args.names {
        let path = MACHINES.one(&client.namespace, name)?;
        let machine = client.get(&path).await?;
        let disks = if args.keep_disks { Vec::new() } else { claims(&machine) };
        if !args.yes && !is_confirmed(name, &disks)? {
            return Err(anyhow::anyhow!("nothing was deleted; --yes does not ask").into());
        }
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

fn is_confirmed(name: &str, disks: &[String]) -> anyhow::Result<bool> {
    if !std::io::stdin().is_terminal() {
        return Ok(false);
    }
    let lost = if disks.is_empty() { String::new() } else { format!(" and its disks {}", disks.join(", ")) };
    eprint!("Delete {name}{lost}? What is deleted cannot be brought back. [y/N] ");
    std::io::stderr().flush()?;
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}
