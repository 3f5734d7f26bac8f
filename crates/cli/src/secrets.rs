//! `croft secrets`: the keys that Secrets are encrypted with in the store, and how to replace them.

use std::fmt::Write as _;
use std::time::Duration;

use anyhow::bail;
use clap::{Args, Subcommand};
use serde_json::{Value, json};

use crate::client::{Client, ClientArgs};
use crate::output::{self, Format, OutputArgs};
use crate::progress::Distant;
use crate::{Failure, print};

const PATH: &str = "/croft/v1/encryption";
/// How often it is asked how far it is.
const POLL: Duration = Duration::from_millis(500);

#[derive(Debug, Args)]
pub(crate) struct SecretsArgs {
    #[command(flatten)]
    client: ClientArgs,
    #[command(subcommand)]
    command: SecretsCommand,
}

#[derive(Debug, Subcommand)]
enum SecretsCommand {
    /// Tell which keys there are, how many objects are encrypted with each, and what cannot be read
    Status {
        #[command(flatten)]
        output: OutputArgs,
    },
    /// Make a new key, encrypt all objects with it, and drop the old one
    #[command(
        after_help = "The server goes on working meanwhile. If it is stopped, it goes on with it when it is started again. \
        With several servers on one etcd, see docs/secrets.md first."
    )]
    Rotate {
        /// Do not wait until all objects are encrypted with the new key
        #[arg(long)]
        no_wait: bool,
    },
}

pub(crate) async fn run(args: SecretsArgs) -> Result<(), Failure> {
    let client = args.client.connect().await?;
    match args.command {
        SecretsCommand::Status { output } => {
            let status = client.get(PATH).await?;
            print(&match output.output {
                Format::Table | Format::Wide => words(&status),
                format => output::document(format, &status)?,
            })
        }
        SecretsCommand::Rotate { no_wait } => rotate(&client, no_wait).await,
    }
}

async fn rotate(client: &Client, no_wait: bool) -> Result<(), Failure> {
    let mut status = client.create(&format!("{PATH}/rotate"), &json!({})).await?;
    if no_wait {
        return print("a new key was made; \"croft secrets status\" tells how far it is\n");
    }
    let bar = Distant::new("encrypting");
    while status["isSettled"] != true {
        if let Some(error) = status["progress"]["error"].as_str() {
            bail_later(error)?;
        }
        let (done, total) = (number(&status["progress"]["done"]), number(&status["progress"]["total"]));
        bar.tell(done * 100 / total.max(1), None);
        tokio::time::sleep(POLL).await;
        status = client.get(PATH).await?;
    }
    drop(bar);
    print(&words(&status))
}

/// The server tries again by itself; whoever waits had better know what it waits for.
fn bail_later(error: &str) -> anyhow::Result<()> {
    bail!("the new key is in use, but not all objects are encrypted with it yet, and the server tries again: {error}")
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_default()
}

fn words(status: &Value) -> String {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let kinds: Vec<String> = list(&status["resources"]).iter().map(text).collect();
    let kinds = if kinds.is_empty() { "nothing".to_owned() } else { kinds.join(", ") };
    // Writing to a string does not fail.
    let mut told = format!("encrypted: {kinds}, with the keys in {}\n\n", text(&status["keyFile"]));
    let row = |key: &Value| {
        let state = if key["isNewest"] == true { "in use" } else { "being replaced" };
        vec![text(&key["id"]), text(&key["made"]), state.to_owned(), number(&key["objects"]).to_string()]
    };
    told += &output::rows(&["KEY", "MADE", "STATE", "OBJECTS"], list(&status["keys"]).iter().map(row));
    let plain = number(&status["plain"]);
    if plain > 0 {
        let _ = write!(told, "\n{plain} objects are still to be rewritten\n");
    }
    let progress = &status["progress"];
    if progress["isRunning"] == true {
        let _ = write!(told, "\nrewriting: {} of {}\n", number(&progress["done"]), number(&progress["total"]));
    }
    if let Some(error) = progress["error"].as_str() {
        let _ = write!(told, "\nthe last attempt failed, and there will be another: {error}\n");
    }
    let count = number(&status["unreadableCount"]);
    if count > 0 {
        let _ = write!(told, "\n{count} cannot be read:\n");
        for lost in list(&status["unreadable"]) {
            let name = [&lost["namespace"], &lost["name"]].map(text).join("/");
            let name = name.trim_start_matches('/');
            let _ = writeln!(told, "  {} {name}: {}", text(&lost["resource"]), text(&lost["why"]));
        }
    }
    told
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_state_of_the_keys_is_told() {
        let mut status = json!({
            "keyFile": "/d/encryption.key", "resources": ["secrets"], "plain": 0, "unreadableCount": 0, "isSettled": true,
            "keys": [{ "id": "00ff", "made": "2026-01-31T12:00:00Z", "isNewest": true, "objects": 12 }],
            "progress": { "isRunning": false, "done": 0, "total": 0, "error": null },
        });
        let told = words(&status);
        assert!(told.starts_with("encrypted: secrets, with the keys in /d/encryption.key\n"), "{told}");
        assert!(told.contains("in use") && told.contains("12") && !told.contains("rewrit"), "{told}");
        status["unreadableCount"] = json!(1);
        status["unreadable"] =
            json!([{ "resource": "secrets", "namespace": "a", "name": "b", "why": "it is damaged" }]);
        assert!(words(&status).ends_with("1 cannot be read:\n  secrets a/b: it is damaged\n"));
    }
}
