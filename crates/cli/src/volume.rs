//! `croft volume`: disks that are there without a machine, and those of machines.

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use crate::api::segment;
use crate::client::{CLAIMS, Client, ClientArgs, MACHINES, subresource};
use crate::confirm::ConfirmArgs;
use crate::output::OutputArgs;
use crate::size::size;
use crate::{Failure, list, print};

#[derive(Debug, Args)]
pub(crate) struct VolumeArgs {
    #[command(flatten)]
    client: ClientArgs,
    #[command(subcommand)]
    command: VolumeCommand,
}

#[derive(Debug, Subcommand)]
enum VolumeCommand {
    /// List volumes
    #[command(visible_alias = "ls")]
    List(ListArgs),
    /// Make an empty volume, or a copy of another
    Create(CreateArgs),
    /// Make a volume larger
    Expand(ExpandArgs),
    /// Plug a volume into a running machine
    Attach(AttachArgs),
    /// Take a plugged volume out of a machine
    Detach(DetachArgs),
    /// Delete volumes
    #[command(visible_alias = "rm")]
    Delete(DeleteArgs),
}

#[derive(Debug, Args)]
struct ListArgs {
    /// Those of all namespaces
    #[arg(short = 'A', long)]
    all_namespaces: bool,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Debug, Args)]
struct CreateArgs {
    /// What to call it
    name: String,
    /// Its size, for example 20Gi
    #[arg(value_parser = size)]
    size: String,
    /// Its storage class [default: the default class]
    #[arg(long, value_name = "NAME")]
    storage_class: Option<String>,
    /// The volume to copy
    #[arg(long, value_name = "VOLUME")]
    from: Option<String>,
}

#[derive(Debug, Args)]
struct ExpandArgs {
    /// The volume
    name: String,
    /// Its new size, for example 40Gi
    #[arg(value_parser = size)]
    size: String,
}

#[derive(Debug, Args)]
struct AttachArgs {
    /// The volume
    name: String,
    /// The virtual machine
    machine: String,
    /// How the guest sees it
    #[arg(long, default_value = "scsi", value_parser = ["scsi", "virtio"])]
    bus: String,
}

#[derive(Debug, Args)]
struct DetachArgs {
    /// The volume
    name: String,
    /// The virtual machine
    machine: String,
}

#[derive(Debug, Args)]
struct DeleteArgs {
    /// The volumes
    #[arg(required = true)]
    names: Vec<String>,
    #[command(flatten)]
    confirm: ConfirmArgs,
}

pub(crate) async fn run(args: VolumeArgs) -> Result<(), Failure> {
    let client = args.client.connect().await?;
    match args.command {
        VolumeCommand::List(args) => list::run(&client, CLAIMS, args.all_namespaces, None, args.output).await,
        VolumeCommand::Create(args) => {
            client.create(&CLAIMS.all(&client.namespace), &claim(&args)?).await?;
            print(&format!("volume {} is created\n", args.name))
        }
        VolumeCommand::Expand(args) => {
            let patch = json!({ "spec": { "resources": { "requests": { "storage": args.size } } } });
            client.merge(&CLAIMS.one(&client.namespace, &args.name)?, &patch).await?;
            print(&format!("volume {} grows to {}\n", args.name, args.size))
        }
        VolumeCommand::Attach(args) => attach(&client, &args).await,
        VolumeCommand::Detach(args) => {
            let path = subresource(MACHINES, &client.namespace, &args.machine, "removevolume")?;
            client.put(&path, &json!({ "name": args.name })).await?;
            print(&format!("volume {} is being taken out of {}\n", args.name, args.machine))
        }
        VolumeCommand::Delete(args) => {
            args.confirm.deletion(&format!("volume {}", args.names.join(", ")))?;
            for name in &args.names {
                client.delete(&CLAIMS.one(&client.namespace, name)?).await?;
                print(&format!("volume {name} is deleted\n"))?;
            }
            Ok(())
        }
    }
}

async fn attach(client: &Client, args: &AttachArgs) -> Result<(), Failure> {
    let name = segment(&args.name)?;
    // Says that there is none before a machine waits for it.
    client.get(&CLAIMS.one(&client.namespace, name)?).await?;
    let body = json!({
        "name": name,
        "disk": { "name": name, "serial": name, "disk": { "bus": args.bus } },
        "volumeSource": { "persistentVolumeClaim": { "claimName": name, "hotpluggable": true } },
    });
    client.put(&subresource(MACHINES, &client.namespace, &args.machine, "addvolume")?, &body).await?;
    print(&format!("volume {name} is being plugged into {}\n", args.machine))
}

fn claim(args: &CreateArgs) -> anyhow::Result<Value> {
    let mut spec = json!({
        "accessModes": ["ReadWriteMany"], "volumeMode": "Block",
        "resources": { "requests": { "storage": args.size } },
    });
    if let Some(class) = &args.storage_class {
        spec["storageClassName"] = json!(class);
    }
    if let Some(from) = &args.from {
        spec["dataSource"] = json!({ "kind": "PersistentVolumeClaim", "name": segment(from)? });
    }
    Ok(
        json!({ "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": { "name": segment(&args.name)? }, "spec": spec }),
    )
}
