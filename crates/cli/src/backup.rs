//! `croft backup`: machines on the backup target, schedules, and what is really there, down to single files.

mod cp;
mod inside;
mod ls;
mod place;
mod schedule;
pub(crate) mod target;
mod verify;

use clap::{Args, Subcommand};

use crate::Failure;
use crate::client::ClientArgs;
use crate::kept::{self, Sort};

#[derive(Debug, Args)]
pub(crate) struct BackupArgs {
    #[command(flatten)]
    client: ClientArgs,
    #[command(subcommand)]
    command: BackupCommand,
}

#[derive(Debug, Subcommand)]
enum BackupCommand {
    /// Copy a virtual machine, with all its disks, to the backup target
    Create(kept::CreateArgs),
    /// List backups
    List(kept::ListArgs),
    /// Bring a virtual machine back as it was, or make a new one
    Restore(kept::RestoreArgs),
    /// Delete backups
    #[command(visible_alias = "rm")]
    Delete(kept::DeleteArgs),
    /// Read every block of backups back from the target, and say what is wrong
    #[command(after_help = target::HELP)]
    Verify(verify::VerifyArgs),
    /// Show what is in a backup: its disks, their partitions, the files on them
    #[command(after_help = place::HELP)]
    Ls(ls::LsArgs),
    /// Copy a file, a directory or a whole disk out of a backup
    #[command(after_help = place::HELP)]
    Cp(cp::CpArgs),
    /// Backups and snapshots that are made again and again
    #[command(subcommand)]
    Schedule(schedule::ScheduleCommand),
}

pub(crate) async fn run(args: &BackupArgs) -> Result<(), Failure> {
    let client = &args.client;
    match &args.command {
        BackupCommand::Create(args) => kept::create(&client.connect().await?, Sort::Backup, args).await,
        BackupCommand::List(args) => kept::list(&client.connect().await?, Sort::Backup, args).await,
        BackupCommand::Restore(args) => kept::restore(&client.connect().await?, Sort::Backup, args).await,
        BackupCommand::Delete(args) => kept::delete(&client.connect().await?, Sort::Backup, args).await,
        BackupCommand::Verify(args) => verify::run(client, args).await,
        BackupCommand::Ls(args) => ls::run(client, args).await,
        BackupCommand::Cp(args) => cp::run(client, args).await,
        BackupCommand::Schedule(command) => schedule::run(&client.connect().await?, command).await,
    }
}
