//! `croft vm`: virtual machines.
//!
//! Each command is one or two requests that any other client could make; nothing here knows more than the API.

mod clone;
mod console;
mod create;
mod delete;
mod forward;
mod power;
mod show;
mod ssh;
mod top;
mod vnc;

use clap::{Args, Subcommand};

use crate::client::{Client, ClientArgs, INSTANCES, MACHINES, subresource};
use crate::output::{self, Format, OutputArgs};
use crate::{Failure, print};

pub(crate) use console::attach;
pub(crate) use create::{Creation, Login};
pub(crate) use power::running;

#[derive(Debug, Args)]
pub(crate) struct VmArgs {
    #[command(flatten)]
    client: ClientArgs,
    #[command(subcommand)]
    command: VmCommand,
}

#[derive(Debug, Subcommand)]
enum VmCommand {
    /// Make a virtual machine, and start it
    Create(Box<create::CreateArgs>),
    /// List virtual machines
    #[command(visible_alias = "ls")]
    List(ListArgs),
    /// Show all that is worth knowing about one
    Show(show::ShowArgs),
    /// Start one that is stopped
    Start(power::StartArgs),
    /// Shut one down
    Stop(power::StopArgs),
    /// Stop one and start it again
    Restart(power::RestartArgs),
    /// Freeze one where it is; --resume lets it go on
    Pause(power::PauseArgs),
    /// Move a running one to another node
    Migrate(NameArgs),
    /// Open its serial console; Ctrl-] leaves it
    Console(console::ConsoleArgs),
    /// Offer its screen to a VNC viewer on this machine
    Vnc(vnc::VncArgs),
    /// Log in by SSH, through the server
    Ssh(ssh::SshArgs),
    /// Forward ports of this machine to it
    PortForward(forward::ForwardArgs),
    /// Print what its serial console has shown
    Logs(console::LogsArgs),
    /// Copy one, disks and all
    Clone(clone::CloneArgs),
    /// Delete one
    #[command(visible_alias = "rm")]
    Delete(delete::DeleteArgs),
    /// Show what running ones use
    Top(top::TopArgs),
}

#[derive(Debug, Args)]
struct NameArgs {
    /// The virtual machine
    name: String,
}

#[derive(Debug, Args)]
struct ListArgs {
    /// Those of all namespaces
    #[arg(short = 'A', long)]
    all_namespaces: bool,
    /// Only those with these labels
    #[arg(short = 'l', long, value_name = "SELECTOR")]
    selector: Option<String>,
    #[command(flatten)]
    output: OutputArgs,
}

pub(crate) async fn run(args: VmArgs) -> Result<(), Failure> {
    let client = args.client.connect().await?;
    match args.command {
        VmCommand::Create(args) => create::run(&client, *args).await,
        VmCommand::List(args) => list(&client, &args).await,
        VmCommand::Show(args) => show::run(&client, &args).await,
        VmCommand::Start(args) => power::start(&client, &args).await,
        VmCommand::Stop(args) => power::stop(&client, &args).await,
        VmCommand::Restart(args) => power::restart(&client, &args).await,
        VmCommand::Pause(args) => power::pause(&client, &args).await,
        VmCommand::Migrate(args) => migrate(&client, &args).await,
        VmCommand::Console(args) => console::run(&client, &args).await,
        VmCommand::Vnc(args) => vnc::run(&client, &args).await,
        VmCommand::Ssh(args) => ssh::run(&client, args).await,
        VmCommand::PortForward(args) => forward::run(&client, &args).await,
        VmCommand::Logs(args) => console::logs(&client, &args).await,
        VmCommand::Clone(args) => clone::run(&client, &args).await,
        VmCommand::Delete(args) => delete::run(&client, &args).await,
        VmCommand::Top(args) => top::run(&client, &args).await,
    }
}

async fn list(client: &Client, args: &ListArgs) -> Result<(), Failure> {
    crate::list::run(client, MACHINES, args.all_namespaces, args.selector.as_deref(), args.output).await
}

async fn migrate(client: &Client, args: &NameArgs) -> Result<(), Failure> {
    client.put(&subresource(MACHINES, &client.namespace, &args.name, "migrate")?, &serde_json::json!({})).await?;
    print(&format!("{} is being migrated\n", args.name))
}

/// The instance of a machine: its run.
async fn instance(client: &Client, name: &str) -> anyhow::Result<serde_json::Value> {
    let found = client.find(&INSTANCES.one(&client.namespace, name)?).await?;
    if let Some(found) = found {
        return Ok(found);
    }
    client.get(&MACHINES.one(&client.namespace, name)?).await?;
    anyhow::bail!("{name} is not running; start it with \"croft vm start {name}\"")
}

fn print_object(format: Format, object: &serde_json::Value) -> Result<(), Failure> {
    print(&output::document(format, object)?)
}
