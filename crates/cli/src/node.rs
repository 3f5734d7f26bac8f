//! `croft node`: the machines that machines run on.

use std::fmt::Write;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use crate::client::{Client, ClientArgs, Kind};
use crate::output::{self, Format, OutputArgs};
use crate::{Failure, list, print, run_dir};

const NODES: Kind = Kind { prefix: "/api/v1", plural: "nodes" };

#[derive(Debug, Args)]
pub(crate) struct NodeArgs {
    #[command(flatten)]
    client: ClientArgs,
    #[command(subcommand)]
    command: NodeCommand,
}

#[derive(Debug, Subcommand)]
enum NodeCommand {
    /// List nodes
    #[command(visible_alias = "ls")]
    List(OutputArgs),
    /// Show what a node is, has, and cannot do
    Show(ShowArgs),
    /// Let no further machines start on a node
    Cordon(NameArgs),
    /// Let machines start on a node again
    Uncordon(NameArgs),
    /// Take what a stopped server left off this host: guests, network, mounts; its data stays
    Reset(ResetArgs),
}

#[derive(Debug, Args)]
struct ShowArgs {
    /// The node [default: the only one]
    name: Option<String>,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Debug, Args)]
struct ResetArgs {
    /// The server's data directory
    #[arg(long, env = "CROFT_DATA_DIR", value_name = "DIR", default_value = "/var/lib/croft")]
    data_dir: PathBuf,
    /// Its directory for sockets [default: as the server chooses it]
    #[arg(long, value_name = "DIR")]
    run_dir: Option<PathBuf>,
    /// Guests that still run are ended
    #[arg(long, required = true)]
    yes: bool,
}

#[derive(Debug, Args)]
struct NameArgs {
    /// The node
    name: String,
}

pub(crate) async fn run(args: NodeArgs) -> Result<(), Failure> {
    if let NodeCommand::Reset(args) = args.command {
        let run_dir = args.run_dir.unwrap_or_else(|| run_dir::of(&args.data_dir));
        let data_dir = std::path::absolute(&args.data_dir)?;
        croft_agent::reset(&data_dir, &run_dir).await?;
        return Ok(());
    }
    let client = args.client.connect().await?;
    match args.command {
        // Needs no server, and was done above.
        NodeCommand::Reset(_) => Ok(()),
        NodeCommand::List(output) => list::run(&client, NODES, true, None, output).await,
        NodeCommand::Show(args) => show(&client, args).await,
        NodeCommand::Cordon(args) => cordon(&client, &args.name, true).await,
        NodeCommand::Uncordon(args) => cordon(&client, &args.name, false).await,
    }
}

/// The names of all nodes.
pub(crate) async fn names(client: &Client) -> anyhow::Result<Vec<String>> {
    let list = client.get(&NODES.all("")).await?;
    let name = |node: &Value| node["metadata"]["name"].as_str().map(str::to_owned);
    Ok(list["items"].as_array().into_iter().flatten().filter_map(name).collect())
}

async fn cordon(client: &Client, name: &str, closed: bool) -> Result<(), Failure> {
    client.merge(&NODES.one("", name)?, &json!({ "spec": { "unschedulable": closed } })).await?;
    print(&format!("node {name} is {}\n", if closed { "closed for new machines" } else { "open again" }))
}

async fn show(client: &Client, args: ShowArgs) -> Result<(), Failure> {
    let name = match args.name {
        Some(name) => name,
        None => match &names(client).await?[..] {
            [only] => only.clone(),
            [] => return Err(anyhow::anyhow!("there is no node; was the server started with --no-node?").into()),
            several => return Err(anyhow::anyhow!("say which one: {}", several.join(", ")).into()),
        },
    };
    let node = client.get(&NODES.one("", &name)?).await?;
    if matches!(args.output.output, Format::Table | Format::Wide) {
        return print(&described(&node));
    }
    print(&output::document(args.output.output, &node)?)
}

fn described(node: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let info = &node["status"]["nodeInfo"];
    let mut rows = vec![
        ("Name", text(&node["metadata"]["name"])),
        ("System", format!("{}, Linux {}", text(&info["osImage"]), text(&info["kernelVersion"]))),
    ];
    for address in node["status"]["addresses"].as_array().into_iter().flatten() {
        rows.push(("Address", text(&address["address"])));
    }
    for (resource, amount) in node["status"]["allocatable"].as_object().into_iter().flatten() {
        rows.push(("Has", format!("{resource} {}", text(amount))));
    }
    if node["spec"]["unschedulable"] == json!(true) {
        rows.push(("Note", "closed for new machines (croft node uncordon)".to_owned()));
    }
    let mut lines = String::new();
    for (label, value) in rows {
        // Writing to a String cannot fail.
        let _ = writeln!(lines, "{label:<9}{value}");
    }
    let row = |condition: &Value| ["type", "status", "reason", "message"].map(|field| text(&condition[field])).to_vec();
    let conditions = node["status"]["conditions"].as_array().into_iter().flatten().map(row);
    format!("{lines}\n{}", output::rows(&["condition", "status", "reason", "message"], conditions))
}
