//! SSH by the system's own client, its bytes carried through the server.

use std::os::unix::process::CommandExt;
use std::process::Command;

use anyhow::Context;
use clap::Args;

use crate::Failure;
use crate::client::Client;

#[derive(Debug, Args)]
pub(crate) struct SshArgs {
    /// The virtual machine, or USER@MACHINE
    target: String,
    /// The port that the guest's SSH server listens on
    #[arg(short, long, default_value_t = 22)]
    port: u16,
    /// The private key to log in with
    #[arg(short, long, value_name = "FILE")]
    identity: Option<std::path::PathBuf>,
    /// What to run instead of a shell, and more for ssh
    #[arg(last = true)]
    command: Vec<String>,
}

pub(crate) async fn run(client: &Client, args: SshArgs) -> Result<(), Failure> {
    let (user, name) = match args.target.split_once('@') {
        Some((user, name)) => (Some(user), name),
        None => (None, args.target.as_str()),
    };
    // Says why not before ssh hides it behind "connection closed".
    super::instance(client, crate::api::segment(name)?).await?;
    let mut ssh = Command::new("ssh");
    ssh.arg("-o").arg(format!("ProxyCommand={}", proxy_command(client, name, args.port)?));
    // Each machine is known by its own name, whatever address the proxy reaches it by.
    ssh.arg("-o").arg(format!("HostKeyAlias={name}.{}.croft", client.namespace));
    ssh.args(["-o", "StrictHostKeyChecking=accept-new"]);
    if let Some(identity) = &args.identity {
        ssh.arg("-i").arg(identity);
    }
    if let Some(user) = user {
        ssh.arg("-l").arg(user);
    }
    ssh.arg(name).args(&args.command);
    let err = ssh.exec();
    Err(anyhow::Error::new(err).context("cannot run ssh; is the OpenSSH client installed?").into())
}

/// This very program, as ssh starts it through a shell.
fn proxy_command(client: &Client, name: &str, port: u16) -> anyhow::Result<String> {
    let own = std::env::current_exe().context("cannot find this program")?;
    let mut words = vec![own.display().to_string(), "vm".into(), "port-forward".into(), "--stdio".into()];
    for (flag, value) in passed_on() {
        words.push(flag);
        words.push(value);
    }
    words.extend(["--namespace".into(), client.namespace.clone(), name.into(), port.to_string()]);
    // ssh expands % in it.
    Ok(words.iter().map(|word| crate::shell_word(word).replace('%', "%%")).collect::<Vec<_>>().join(" "))
}

/// The flags of this call that say which server it is.
fn passed_on() -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut args = std::env::args();
    while let Some(arg) = args.next() {
        for flag in ["--kubeconfig", "--context"] {
            if arg == flag {
                found.extend(args.next().map(|value| (flag.to_owned(), value)));
                break;
            }
            if let Some(value) = arg.strip_prefix(flag).and_then(|rest| rest.strip_prefix('=')) {
                found.push((flag.to_owned(), value.to_owned()));
                break;
            }
        }
    }
    found
}
