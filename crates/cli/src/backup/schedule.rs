//! Schedules: when a machine is kept, and how many of these are.

use anyhow::anyhow;
use clap::{Args, Subcommand};
use croft_api::cron::Cron;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::api::segment;
use crate::client::{Client, SCHEDULES};
use crate::confirm::ConfirmArgs;
use crate::kept::{Sort, told};
use crate::output::OutputArgs;
use crate::{Failure, list, print};

#[derive(Debug, Subcommand)]
pub(super) enum ScheduleCommand {
    /// Have a virtual machine kept again and again
    Create(CreateArgs),
    /// List schedules
    #[command(visible_alias = "ls")]
    List(ListArgs),
    /// Make nothing until it is resumed
    Suspend(NameArgs),
    /// Go on; what failed is deleted
    Resume(NameArgs),
    /// Delete schedules; what they made stays
    #[command(visible_alias = "rm")]
    Delete(DeleteArgs),
}

#[derive(Debug, Args)]
pub(super) struct CreateArgs {
    /// What to call it
    name: String,
    /// The virtual machine
    #[arg(long, value_name = "NAME")]
    vm: String,
    /// When, in UTC: minute, hour, day, month and day of the week, or @daily and the like
    #[arg(long, value_name = "CRON", value_parser = cron)]
    cron: String,
    /// How many are kept
    #[arg(long, value_name = "COUNT", default_value = "8", value_parser = clap::value_parser!(u16).range(3..=250))]
    retain: u16,
    /// It is suspended after so many failures in a row [default: 4, or one less than are kept]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u16).range(2..=249))]
    max_failure: Option<u16>,
    /// Snapshots, which stay on the node, instead of backups
    #[arg(long)]
    snapshot: bool,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Debug, Args)]
pub(super) struct ListArgs {
    /// Those of all namespaces
    #[arg(short = 'A', long)]
    all_namespaces: bool,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Debug, Args)]
pub(super) struct NameArgs {
    /// The schedule
    name: String,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Debug, Args)]
pub(super) struct DeleteArgs {
    /// The schedules
    #[arg(required = true)]
    names: Vec<String>,
    #[command(flatten)]
    confirm: ConfirmArgs,
}

fn cron(text: &str) -> Result<String, String> {
    match Cron::parse(text) {
        Some(_) => Ok(text.to_owned()),
        None => {
            Err("it must be five fields such as \"0 1 * * *\", or @hourly, @daily, @weekly, @monthly, @yearly"
                .to_owned())
        }
    }
}

pub(super) async fn run(client: &Client, command: &ScheduleCommand) -> Result<(), Failure> {
    match command {
        ScheduleCommand::Create(args) => create(client, args).await,
        ScheduleCommand::List(args) => list::run(client, SCHEDULES, args.all_namespaces, None, args.output).await,
        ScheduleCommand::Suspend(args) => {
            let changed = suspended(client, &args.name, true).await?;
            told(&changed, args.output, &format!("schedule {} is suspended", args.name))
        }
        ScheduleCommand::Resume(args) => {
            let changed = suspended(client, &args.name, false).await?;
            told(&changed, args.output, &format!("schedule {} goes on{}", args.name, next(&changed)))
        }
        ScheduleCommand::Delete(args) => {
            args.confirm.deletion(&format!("schedule {}", args.names.join(", ")))?;
            for name in &args.names {
                client.delete(&SCHEDULES.one(&client.namespace, name)?).await?;
                print(&format!("schedule {name} is deleted\n"))?;
            }
            Ok(())
        }
    }
}

async fn create(client: &Client, args: &CreateArgs) -> Result<(), Failure> {
    let object = wanted(args)?;
    let made = client.create(&SCHEDULES.all(&client.namespace), &object).await?;
    told(&made, args.output, &format!("schedule {} is made{}", args.name, next(&made)))
}

fn wanted(args: &CreateArgs) -> Result<Value, Failure> {
    let max_failure = args.max_failure.unwrap_or_else(|| args.retain.saturating_sub(1).clamp(2, 4));
    if max_failure >= args.retain {
        return Err(Failure::usage(anyhow!(
            "--max-failure ({max_failure}) must be less than --retain ({}): it is suspended before all that is kept has failed",
            args.retain
        )));
    }
    let sort = if args.snapshot { Sort::Snapshot } else { Sort::Backup };
    let machine = segment(&args.vm).map_err(Failure::usage)?;
    Ok(json!({
        "apiVersion": "harvesterhci.io/v1beta1", "kind": "ScheduleVMBackup",
        "metadata": { "name": segment(&args.name).map_err(Failure::usage)? },
        "spec": {
            "cron": args.cron, "retain": args.retain, "maxFailure": max_failure,
            "vmbackup": {
                "type": sort.word(),
                "source": { "apiGroup": "kubevirt.io", "kind": "VirtualMachine", "name": machine },
            },
        },
    }))
}

async fn suspended(client: &Client, name: &str, is_suspended: bool) -> anyhow::Result<Value> {
    client.merge(&SCHEDULES.one(&client.namespace, name)?, &json!({ "spec": { "suspend": is_suspended } })).await
}

/// When it does something, for people.
fn next(schedule: &Value) -> String {
    let cron = schedule["spec"]["cron"].as_str().and_then(Cron::parse);
    let next = cron.and_then(|cron| cron.next_after(Timestamp::now()));
    next.map(|next| format!("; the next is due at {next}")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(retain: u16, max_failure: Option<u16>) -> CreateArgs {
        let output = OutputArgs { output: crate::output::Format::Table };
        let (name, vm, cron) = ("nightly".to_owned(), "web".to_owned(), "@daily".to_owned());
        CreateArgs { name, vm, cron, retain, max_failure, snapshot: true, output }
    }

    #[test]
    fn a_schedule_rests_before_all_that_it_keeps_has_failed() {
        let most = |retain, max| wanted(&args(retain, max)).map(|object| object["spec"]["maxFailure"].clone());
        assert_eq!(most(8, None).unwrap(), 4);
        assert_eq!(most(3, None).unwrap(), 2);
        assert_eq!(most(8, Some(7)).unwrap(), 7);
        assert_eq!(most(2, None).unwrap_err().code, 2);
        assert_eq!(most(8, Some(8)).unwrap_err().code, 2);
    }

    #[test]
    fn when_is_said_in_cron() {
        assert!(cron("*/5 * * * *").is_ok() && cron("@daily").is_ok());
        assert!(cron("often").is_err_and(|why| why.contains("five fields")));
        assert!(next(&json!({"spec": {"cron": "* * * * *"}})).contains("due at"));
        assert_eq!(next(&json!({})), "");
    }
}
