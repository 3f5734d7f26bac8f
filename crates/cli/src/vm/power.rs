//! Starting, stopping, pausing.

use std::time::Duration;

use clap::Args;
use serde_json::{Value, json};

use crate::client::{Client, INSTANCES, MACHINES, is_not_found, subresource};
use crate::wait::{self, Seen};
use crate::{Failure, print, progress};

const PATIENCE: Duration = Duration::from_mins(5);

#[derive(Debug, Args)]
pub(crate) struct StartArgs {
    /// The virtual machines
    #[arg(required = true)]
    names: Vec<String>,
    /// Leave it paused before its first instruction
    #[arg(long)]
    paused: bool,
    /// Return once it runs
    #[arg(short, long)]
    wait: bool,
}

#[derive(Debug, Args)]
pub(crate) struct StopArgs {
    /// The virtual machines
    #[arg(required = true)]
    names: Vec<String>,
    /// Pull the plug instead of asking the guest to shut down
    #[arg(short, long)]
    force: bool,
    /// How many seconds the guest gets to shut down
    #[arg(long, value_name = "SECONDS", conflicts_with = "force")]
    grace: Option<u32>,
    /// Return once it is stopped
    #[arg(short, long)]
    wait: bool,
}

#[derive(Debug, Args)]
pub(crate) struct RestartArgs {
    /// The virtual machines
    #[arg(required = true)]
    names: Vec<String>,
    /// Pull the plug instead of asking the guest to shut down
    #[arg(short, long, conflicts_with = "soft")]
    force: bool,
    /// Ask the guest to reboot; the machine itself stays
    #[arg(long)]
    soft: bool,
}

#[derive(Debug, Args)]
pub(crate) struct PauseArgs {
    /// The virtual machines
    #[arg(required = true)]
    names: Vec<String>,
    /// Let it go on
    #[arg(short, long)]
    resume: bool,
}

pub(crate) async fn start(client: &Client, args: &StartArgs) -> Result<(), Failure> {
    for name in &args.names {
        let path = subresource(MACHINES, &client.namespace, name, "start")?;
        client.put(&path, &json!({ "paused": args.paused })).await?;
        if args.wait {
            running(client, name).await?;
            print(&format!("{name} is running\n"))?;
        } else {
            print(&format!("{name} is starting\n"))?;
        }
    }
    Ok(())
}

pub(crate) async fn stop(client: &Client, args: &StopArgs) -> Result<(), Failure> {
    for name in &args.names {
        let grace = if args.force { Some(0) } else { args.grace };
        let body = grace.map_or_else(|| json!({}), |seconds| json!({ "gracePeriod": seconds }));
        client.put(&subresource(MACHINES, &client.namespace, name, "stop")?, &body).await?;
        if args.wait {
            stopped(client, name).await?;
            print(&format!("{name} is stopped\n"))?;
        } else {
            print(&format!("{name} is stopping\n"))?;
        }
    }
    Ok(())
}

pub(crate) async fn restart(client: &Client, args: &RestartArgs) -> Result<(), Failure> {
    for name in &args.names {
        if args.soft {
            client.put(&subresource(INSTANCES, &client.namespace, name, "softreboot")?, &json!({})).await?;
        } else {
            let body = if args.force { json!({ "gracePeriodSeconds": 0 }) } else { json!({}) };
            client.put(&subresource(MACHINES, &client.namespace, name, "restart")?, &body).await?;
        }
        print(&format!("{name} is restarting\n"))?;
    }
    Ok(())
}

pub(crate) async fn pause(client: &Client, args: &PauseArgs) -> Result<(), Failure> {
    let (action, done) = if args.resume { ("unpause", "goes on") } else { ("pause", "is paused") };
    for name in &args.names {
        let asked = client.put(&subresource(INSTANCES, &client.namespace, name, action)?, &json!({})).await;
        if let Err(err) = asked {
            if is_not_found(&err) {
                super::instance(client, name).await?;
            }
            return Err(err.into());
        }
        print(&format!("{name} {done}\n"))?;
    }
    Ok(())
}

/// Waits until it runs. What stands in the way for good is an error.
pub(crate) async fn running(client: &Client, name: &str) -> anyhow::Result<()> {
    let bar = progress::waiting(&format!("{name}: waiting"));
    let result = wait::until(client, MACHINES, &client.namespace, name, PATIENCE, |machine| {
        let Some(machine) = machine else { anyhow::bail!("{name} is gone") };
        let status = machine["status"]["printableStatus"].as_str().unwrap_or("waiting");
        bar.set_message(format!("{name}: {status}"));
        match status {
            "Running" | "Paused" => Ok(Seen::Done(())),
            "CrashLoopBackOff" | "ErrorUnschedulable" | "ErrorPvcNotFound" | "DataVolumeError" => {
                anyhow::bail!("{name} cannot run: {status}: {}", complaint(machine))
            }
            _ => Ok(Seen::NotYet),
        }
    });
    let result = result.await;
    bar.finish_and_clear();
    result
}

async fn stopped(client: &Client, name: &str) -> anyhow::Result<()> {
    let bar = progress::waiting(&format!("{name}: shutting down"));
    let result = wait::until(client, INSTANCES, &client.namespace, name, PATIENCE, |instance| {
        let has_ended = |instance: &Value| matches!(instance["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
        Ok(if instance.is_none_or(has_ended) { Seen::Done(()) } else { Seen::NotYet })
    });
    let result = result.await;
    bar.finish_and_clear();
    result
}

/// What the conditions say is wrong.
pub(crate) fn complaint(object: &Value) -> String {
    let conditions = object["status"]["conditions"].as_array().into_iter().flatten();
    let is_bad = |condition: &&Value| match condition["type"].as_str() {
        Some("PodScheduled" | "Synchronized" | "DataVolumesReady") => condition["status"] == "False",
        Some("Failure") => condition["status"] == "True",
        _ => false,
    };
    let messages = conditions.filter(is_bad).filter_map(|condition| condition["message"].as_str());
    let messages: Vec<&str> = messages.filter(|message| !message.is_empty()).collect();
    messages.join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn complaints_are_what_stands_in_the_way() {
        let machine = json!({"status": {"conditions": [
            {"type": "Ready", "status": "False", "message": "Guest VM is not reported as running"},
            {"type": "PodScheduled", "status": "False", "message": "0/1 nodes are available"},
            {"type": "Failure", "status": "True", "message": "no such class"},
        ]}});
        assert_eq!(complaint(&machine), "0/1 nodes are available; no such class");
    }
}
