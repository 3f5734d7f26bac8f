//! The `croft` subcommands and their output.
//!
//! - [`options`] are the flags of `croft server`, which are environment variables and keys of the configuration file
//!   ([`config_file`]) as well; [`settings`] is what they amount to.
//! - [`store`] opens what keeps the state; [`server`] starts the server on it, and [`node`] the agent on the server; it
//!   says so ([`ready`]), and ends them on a signal.
//! - [`token`] and [`kubeconfig`] ask a running server through its API, with the admin's kubeconfig of the data
//!   directory ([`api`]).
//!
//! - [`vm`], [`image`], [`volume`], [`snapshot`], [`backup`], [`secrets`], [`node`], [`audit`], [`support_bundle`] and [`demo`] use the public API with any
//!   kubeconfig ([`client`]), and print tables or documents ([`output`]).
//!
//! Standard output carries what was asked for, and nothing else; logs and complaints go to standard error.
//! Exit codes: 0, 1 for what failed, 2 for what was asked wrongly.

use std::fmt;
use std::io::Write;
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};
use clap_complete::Shell;

mod agent;
mod api;
mod audit;
mod audit_settings;
mod authentication_settings;
mod backup;
mod cert;
mod certified;
mod client;
mod config_file;
mod confirm;
mod credential;
mod demo;
mod download;
mod first_image;
mod image;
mod kept;
mod kubeconfig;
mod kubeconfig_link;
mod lifetime;
mod limits;
mod list;
mod log_level;
mod logging;
mod migrate_store;
mod node;
mod node_name;
pub mod options;
mod output;
mod progress;
mod ready;
mod recent_log;
mod revoked;
mod run_dir;
mod secrets;
pub mod server;
pub mod settings;
mod size;
mod snapshot;
mod state;
mod state_settings;
mod store;
mod store_command;
mod stream;
mod support_bundle;
mod terminal;
mod token;
mod typed;
mod user;
mod version;
mod vm;
mod volume;
mod wait;
mod webhook;

/// Virtual machines, disks and networks on bare servers, through the Kubernetes API.
#[derive(Debug, Parser)]
#[command(name = "croft", version, propagate_version = false, disable_help_subcommand = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the server until it is told to stop
    #[command(
        after_help = "RUST_LOG says what is logged, for example \"info\" or \"warn,croft_store=debug\" [default: info]"
    )]
    Server(Box<options::ServerArgs>),
    /// Start a small virtual machine and log in to it
    Demo(demo::DemoArgs),
    /// Virtual machines
    Vm(vm::VmArgs),
    /// Disk images
    Image(image::ImageArgs),
    /// Volumes
    Volume(volume::VolumeArgs),
    /// Snapshots of virtual machines and volumes, which stay on the node
    Snapshot(snapshot::SnapshotArgs),
    /// Backups of virtual machines on the backup target, and schedules
    Backup(Box<backup::BackupArgs>),
    /// The state of the cluster itself: its objects, keys and certificates
    State(Box<state::StateArgs>),
    /// Move all objects from the embedded store into etcd, or back
    #[command(after_help = migrate_store::HELP)]
    MigrateStore(Box<migrate_store::MigrateArgs>),
    /// The store that all objects are in: how it is, and what to do when it is damaged
    Store(store_command::StoreArgs),
    /// The keys that Secrets are encrypted with in the store
    Secrets(secrets::SecretsArgs),
    /// Nodes
    Node(node::NodeArgs),
    /// Who did what: the newest of the audit log
    Audit(audit::AuditArgs),
    /// Save what somebody needs to know to help: objects without secrets, logs, facts of the nodes
    SupportBundle(support_bundle::SupportBundleArgs),
    /// Serve Croft's rules to another Kubernetes, as its webhooks
    Webhook(Box<webhook::WebhookArgs>),
    /// Print a kubeconfig for the admin, or for another user
    Kubeconfig(kubeconfig::KubeconfigArgs),
    /// Log a local user in for kubectl, which runs this by itself
    Credential(credential::CredentialArgs),
    /// Tokens that clients identify themselves with
    #[command(subcommand)]
    Token(token::TokenCommand),
    /// Local users, who log in with a name and a password
    #[command(subcommand)]
    User(user::UserCommand),
    /// Client certificates that are no longer to be used
    #[command(subcommand)]
    Cert(cert::CertCommand),
    /// Print the version of this program
    Version(version::VersionArgs),
    /// Print a completion script for a shell
    #[command(after_help = "Bash: source <(croft completion bash). \
        Zsh: croft completion zsh > \"${fpath[1]}/_croft\". \
        Fish: croft completion fish | source")]
    Completion {
        /// The shell to print it for
        #[arg(value_parser = completion_shells())]
        shell: Shell,
    },
}

fn completion_shells() -> impl clap::builder::TypedValueParser<Value = Shell> {
    use clap::builder::TypedValueParser;
    clap::builder::PossibleValuesParser::new(["bash", "zsh", "fish"]).try_map(|shell| shell.parse::<Shell>())
}

/// Why the program ends with another code than 0.
#[derive(Debug)]
struct Failure {
    code: u8,
    error: anyhow::Error,
}

impl Failure {
    /// The user asked for something that makes no sense; nothing was tried.
    fn usage(error: impl Into<anyhow::Error>) -> Self {
        Self { code: 2, error: error.into() }
    }
}

impl<E: Into<anyhow::Error>> From<E> for Failure {
    fn from(error: E) -> Self {
        Self { code: 1, error: error.into() }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "croft: {:#}", self.error)
    }
}

/// Runs the program with the arguments of this process.
pub fn run() -> ExitCode {
    // Libraries that build their own TLS settings find the one source of cryptography here. Failing means that it has
    // been installed already.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    match dispatch(Cli::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            // Nobody may be listening any more; the exit code still tells.
            let _ = writeln!(std::io::stderr(), "{failure}");
            ExitCode::from(failure.code)
        }
    }
}

fn dispatch(command: Command) -> Result<(), Failure> {
    match command {
        Command::Server(args) => {
            let settings = settings::Settings::resolve(*args).map_err(Failure::usage)?;
            server::run(&settings)
        }
        Command::Demo(args) => api::block_on(demo::run(args))?,
        Command::Vm(args) => api::block_on(vm::run(args))?,
        Command::Image(args) => api::block_on(image::run(args))?,
        Command::Volume(args) => api::block_on(volume::run(args))?,
        Command::Snapshot(args) => api::block_on(snapshot::run(args))?,
        Command::Backup(args) => api::block_on(backup::run(&args))?,
        Command::State(args) => api::block_on(state::run(*args))?,
        Command::MigrateStore(args) => api::block_on(migrate_store::run(*args))?,
        Command::Store(args) => api::block_on(store_command::run(args))?,
        Command::Secrets(args) => api::block_on(secrets::run(args))?,
        Command::Node(args) => api::block_on(node::run(args))?,
        Command::Audit(args) => api::block_on(audit::run(args))?,
        Command::SupportBundle(args) => api::block_on(support_bundle::run(args))?,
        Command::Webhook(args) => webhook::run(*args),
        Command::Kubeconfig(args) => print(&api::block_on(kubeconfig::run(args))??),
        Command::Credential(args) => print(&api::block_on(credential::run(args))??),
        Command::Token(command) => print(&api::block_on(token::run(command))??),
        Command::User(command) => print(&api::block_on(user::run(command))??),
        Command::Cert(command) => print(&api::block_on(cert::run(command))??),
        Command::Version(args) => print(&version::run(&args)),
        Command::Completion { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "croft", &mut script);
            print(&String::from_utf8(script)?)
        }
    }
}

/// A text as one word of a shell.
fn shell_word(text: &str) -> String {
    let is_plain = !text.is_empty() && text.chars().all(|c| c.is_alphanumeric() || "/._-+:@%=".contains(c));
    if is_plain { text.to_owned() } else { format!("'{}'", text.replace('\'', r"'\''")) }
}

/// Writes to standard output. A reader that went away (`croft completion bash | head -1`) is no failure.
fn print(text: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(err) if err.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        other => Ok(other?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn failure_prints_the_chain_once() {
        let failure: Failure = anyhow::anyhow!("no space").context("cannot write x").into();
        assert_eq!(failure.to_string(), "croft: cannot write x: no space");
    }
}
