//! The serial console, live and as a log.

use std::io::IsTerminal;
use std::time::Duration;

use clap::Args;
use futures::TryStreamExt;
use http::Request;
use http_body_util::BodyExt;
use kube::client::Body;
use tokio::io::AsyncWriteExt;
use tokio::time::Instant;

use crate::Failure;
use crate::client::{Client, INSTANCES, MACHINES, Refusal, subresource};
use crate::stream::{self, End};
use crate::terminal::{Input, RawMode, UntilEscape};

/// How long a machine may take until it has a console.
const PATIENCE: Duration = Duration::from_mins(5);
const AGAIN: Duration = Duration::from_millis(300);

#[derive(Debug, Args)]
pub(crate) struct ConsoleArgs {
    /// The virtual machine
    name: String,
}

#[derive(Debug, Args)]
pub(crate) struct LogsArgs {
    /// The virtual machine
    name: String,
    /// Go on with what comes
    #[arg(short, long)]
    follow: bool,
}

pub(crate) async fn run(client: &Client, args: &ConsoleArgs) -> Result<(), Failure> {
    attach(client, &args.name).await
}

/// Connects the terminal to the console until Ctrl-] or the machine's end. The end of a file or a pipe ends nothing.
pub(crate) async fn attach(client: &Client, name: &str) -> Result<(), Failure> {
    let socket = open(client, name).await?;
    let is_typed = std::io::stdin().is_terminal();
    if is_typed {
        eprintln!("Connected to the console of {name}. Ctrl-] leaves it; press Enter for a prompt.");
    }
    let raw = RawMode::enter()?;
    // A script that has said all it had to say still wants to hear the answer.
    let input = UntilEscape::new(Input::new(tokio::io::stdin(), !is_typed));
    let end = stream::copy(socket, input, tokio::io::stdout()).await;
    drop(raw);
    match end? {
        End::Ours => eprintln!(),
        End::Theirs => eprintln!("\n{name} has ended."),
        End::Cut => {
            return Err(anyhow::anyhow!("disconnected: {name} stopped, or somebody else opened its console").into());
        }
    }
    Ok(())
}

/// A machine that is only starting is waited for.
async fn open(client: &Client, name: &str) -> anyhow::Result<stream::Socket> {
    let path = subresource(INSTANCES, &client.namespace, name, "console")?;
    let deadline = Instant::now() + PATIENCE;
    loop {
        let err = match stream::open(client, &path).await {
            Ok(socket) => return Ok(socket),
            Err(err) => err,
        };
        let code = err.downcast_ref::<Refusal>().map(|refusal| refusal.code);
        let is_starting = match code {
            Some(400) => true,
            Some(404) => is_meant_to_run(client, name).await?,
            _ => false,
        };
        if !is_starting || Instant::now() > deadline {
            return Err(err);
        }
        tokio::time::sleep(AGAIN).await;
    }
}

async fn is_meant_to_run(client: &Client, name: &str) -> anyhow::Result<bool> {
    let machine = client.get(&MACHINES.one(&client.namespace, name)?).await?;
    let status = machine["status"]["printableStatus"].as_str().unwrap_or("Starting");
    if status == "Stopped" {
        anyhow::bail!("{name} is not running; start it with \"croft vm start {name}\"");
    }
    Ok(true)
}

pub(crate) async fn logs(client: &Client, args: &LogsArgs) -> Result<(), Failure> {
    let sub = if args.follow { "log?follow=true" } else { "log" };
    let path = subresource(INSTANCES, &client.namespace, &args.name, sub)?;
    let answer = client.send(Request::get(path).body(Body::empty())?).await?;
    let mut chunks = answer.into_body().into_data_stream();
    let mut out = tokio::io::stdout();
    while let Some(chunk) = chunks.try_next().await.map_err(|err| anyhow::anyhow!("the log was cut off: {err}"))? {
        out.write_all(&chunk).await?;
        out.flush().await?;
    }
    Ok(())
}
