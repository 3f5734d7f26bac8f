//! `croft snapshot`: machines and volumes as they were, on the node that they are on.

use anyhow::anyhow;
use clap::{ArgGroup, Args, Subcommand};
use croft_api::cdi::filling;
use serde_json::{Value, json};

use crate::api::segment;
use crate::client::{CLAIMS, Client, ClientArgs, VOLUME_SNAPSHOTS};
use crate::kept::{self, Sort};
use crate::wait::{self, Seen};
use crate::{Failure, list};

#[derive(Debug, Args)]
#[command(
    after_help = "The cluster itself, its objects and keys, is saved and restored by `croft state save|inspect|restore`."
)]
pub(crate) struct SnapshotArgs {
    #[command(flatten)]
    client: ClientArgs,
    #[command(subcommand)]
    command: SnapshotCommand,
}

#[derive(Debug, Subcommand)]
enum SnapshotCommand {
    /// Keep a virtual machine, with all its disks at one instant, or a volume
    Create(CreateArgs),
    /// List snapshots
    #[command(visible_alias = "ls")]
    List(ListArgs),
    /// Bring a virtual machine back as it was, or make a new one; or a new volume
    Restore(RestoreArgs),
    /// Delete snapshots
    #[command(visible_alias = "rm")]
    Delete(DeleteArgs),
}

#[derive(Debug, Args)]
#[group(skip)]
struct CreateArgs {
    #[command(flatten)]
    kept: kept::CreateArgs,
    /// MACHINE is a volume
    #[arg(long, conflicts_with = "freeze_deadline")]
    volume: bool,
    /// Keep what the guest has in mind too, so that it goes on from there when it is restored
    #[arg(long, conflicts_with_all = ["volume", "freeze_deadline"])]
    memory: bool,
}

#[derive(Debug, Args)]
#[group(skip)]
struct ListArgs {
    #[command(flatten)]
    kept: kept::ListArgs,
    /// Those of volumes
    #[arg(long, conflicts_with = "vm")]
    volume: bool,
}

#[derive(Debug, Args)]
#[group(skip)]
#[command(group = ArgGroup::new("where_to").args(["to", "replace"]))]
struct RestoreArgs {
    #[command(flatten)]
    kept: kept::RestoreArgs,
    /// It is the snapshot of a volume
    #[arg(long, requires = "where_to", conflicts_with_all = ["keep_macs", "no_start"])]
    volume: bool,
    /// The volume, which nothing may use, becomes what it was
    #[arg(long, requires = "volume", conflicts_with = "to")]
    replace: bool,
}

#[derive(Debug, Args)]
#[group(skip)]
struct DeleteArgs {
    #[command(flatten)]
    kept: kept::DeleteArgs,
    /// They are snapshots of volumes
    #[arg(long)]
    volume: bool,
}

pub(crate) async fn run(args: SnapshotArgs) -> Result<(), Failure> {
    let client = args.client.connect().await?;
    match args.command {
        SnapshotCommand::Create(args) if args.volume => create(&client, &args.kept).await,
        SnapshotCommand::Create(args) => {
            let mut kept = args.kept;
            kept.has_memory = args.memory;
            kept::create(&client, Sort::Snapshot, &kept).await
        }
        SnapshotCommand::List(args) if args.volume => {
            list::run(&client, VOLUME_SNAPSHOTS, args.kept.all_namespaces, None, args.kept.output).await
        }
        SnapshotCommand::List(args) => kept::list(&client, Sort::Snapshot, &args.kept).await,
        SnapshotCommand::Restore(args) if args.replace => revert(&client, &args.kept).await,
        SnapshotCommand::Restore(args) if args.volume => restore(&client, &args.kept).await,
        SnapshotCommand::Restore(args) => kept::restore(&client, Sort::Snapshot, &args.kept).await,
        SnapshotCommand::Delete(args) if args.volume => {
            let args = args.kept;
            args.confirm.deletion(&format!("snapshot {}", args.names.join(", ")))?;
            kept::remove(&client, VOLUME_SNAPSHOTS, "snapshot", &args).await
        }
        SnapshotCommand::Delete(args) => kept::delete(&client, Sort::Snapshot, &args.kept).await,
    }
}

/// An action of Harvester: it knows the class, and has the snapshot remember what the volume was.
fn action(client: &Client, kind: &str, name: &str, action: &str) -> anyhow::Result<String> {
    Ok(format!("/v1/harvester/{kind}/{}/{}?action={action}", client.namespace, segment(name)?))
}

async fn create(client: &Client, args: &kept::CreateArgs) -> Result<(), Failure> {
    let name = args.name().map_err(Failure::usage)?;
    let path = action(client, "persistentvolumeclaims", &args.source, "snapshot").map_err(Failure::usage)?;
    client.create(&path, &json!({ "name": name })).await?;
    if args.wait {
        let made = kept::ready(client, VOLUME_SNAPSHOTS, &name).await?;
        return kept::told(&made, args.output, &format!("snapshot {name} is ready"));
    }
    let made = client.get(&VOLUME_SNAPSHOTS.one(&client.namespace, &name)?).await?;
    kept::told(&made, args.output, &format!("snapshot {name} is being made"))
}

async fn restore(client: &Client, args: &kept::RestoreArgs) -> Result<(), Failure> {
    let new = args.to.as_deref().ok_or_else(|| Failure::usage(anyhow!("say with --to what to call the new volume")))?;
    let kind = format!("snapshot.storage.k8s.io.{}", VOLUME_SNAPSHOTS.plural);
    let path = action(client, &kind, &args.name, "restore").map_err(Failure::usage)?;
    client.create(&path, &json!({ "name": segment(new).map_err(Failure::usage)? })).await?;
    if !args.wait {
        let made = client.get(&CLAIMS.one(&client.namespace, new)?).await?;
        return kept::told(&made, args.output, &format!("volume {new} is being made from {}", args.name));
    }
    let patience = std::time::Duration::from_hours(1);
    let made = wait::until(client, CLAIMS, &client.namespace, new, patience, |claim| match claim {
        Some(claim) if claim["status"]["phase"] == "Bound" => Ok(Seen::Done(claim.clone())),
        Some(_) => Ok(Seen::NotYet),
        None => Err(anyhow!("volume {new} was deleted meanwhile")),
    });
    let made = made.await?;
    kept::told(&made, args.output, &format!("volume {new} is made from {}", args.name))
}

/// In its place; what is lost by it is asked about first.
async fn revert(client: &Client, args: &kept::RestoreArgs) -> Result<(), Failure> {
    let found = client.get(&VOLUME_SNAPSHOTS.one(&client.namespace, &args.name)?).await?;
    let volume = found["spec"]["source"]["persistentVolumeClaimName"].as_str();
    let volume = volume.ok_or_else(|| anyhow!("snapshot {} does not say which volume it is of", args.name))?;
    args.confirm.deletion(&format!("what volume {volume} holds now"))?;
    let path = action(client, "persistentvolumeclaims", volume, "revert").map_err(Failure::usage)?;
    client.create(&path, &json!({ "snapshot": args.name })).await?;
    let patience = std::time::Duration::from_hours(1);
    // It is a matter of moments, and not done before it is done.
    let done = wait::until(client, CLAIMS, &client.namespace, volume, patience, |claim| {
        let Some(claim) = claim else { return Err(anyhow!("volume {volume} was deleted meanwhile")) };
        let told = |name: &str| claim["metadata"]["annotations"][name].as_str();
        match (told(filling::REVERT), told(filling::REVERT_ERROR)) {
            (Some(_), _) => Ok(Seen::NotYet),
            (None, Some(why)) => Err(anyhow!("volume {volume} is as it was: {why}")),
            (None, None) => Ok(Seen::Done(claim.clone())),
        }
    });
    let done: Value = done.await?;
    kept::told(&done, args.output, &format!("volume {volume} is what snapshot {} holds", args.name))
}
