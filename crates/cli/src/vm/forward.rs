//! Ports of this machine that lead into a virtual machine.

use std::net::IpAddr;
use std::str::FromStr;

use anyhow::{Context, bail};
use clap::Args;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use crate::client::{Client, MACHINES, subresource};
use crate::{Failure, stream};

#[derive(Debug, Args)]
pub(crate) struct ForwardArgs {
    /// The virtual machine
    name: String,
    /// LOCAL:REMOTE, or one number for both; LOCAL 0 takes any free port
    #[arg(required = true, value_name = "PORTS")]
    ports: Vec<Ports>,
    /// The address to listen on
    #[arg(long, default_value = "127.0.0.1", value_name = "IP")]
    address: IpAddr,
    /// Forward standard input and output instead of a port, as an SSH ProxyCommand wants it
    #[arg(long)]
    stdio: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Ports {
    local: u16,
    remote: u16,
}

impl FromStr for Ports {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let (local, remote) = text.split_once(':').unwrap_or((text, text));
        let port = |text: &str| text.parse::<u16>().with_context(|| format!("{text:?} is not a port"));
        let (local, remote) = (port(local)?, port(remote)?);
        if remote == 0 {
            bail!("0 is not a port that a guest can listen on");
        }
        Ok(Self { local, remote })
    }
}

pub(crate) async fn run(client: &Client, args: &ForwardArgs) -> Result<(), Failure> {
    if args.stdio {
        let [ports] = args.ports[..] else {
            return Err(Failure::usage(anyhow::anyhow!("--stdio forwards exactly one port")));
        };
        return stdio(client, &args.name, ports.remote).await;
    }
    let mut listeners = JoinSet::new();
    for ports in &args.ports {
        let listener = TcpListener::bind((args.address, ports.local)).await;
        let listener = listener.with_context(|| format!("cannot listen on {}:{}", args.address, ports.local))?;
        eprintln!("{} -> {}:{}", listener.local_addr()?, args.name, ports.remote);
        listeners.spawn(serve(listener, client.clone(), args.name.clone(), ports.remote));
    }
    while let Some(ended) = listeners.join_next().await {
        ended??;
    }
    Ok(())
}

/// One port of the machine on standard input and output.
pub(crate) async fn stdio(client: &Client, name: &str, port: u16) -> Result<(), Failure> {
    let socket = stream::open(client, &path(client, name, port)?).await?;
    stream::copy(socket, tokio::io::stdin(), tokio::io::stdout()).await?;
    Ok(())
}

async fn serve(listener: TcpListener, client: Client, name: String, port: u16) -> anyhow::Result<()> {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let (connection, from) = accepted.context("cannot accept connections any more")?;
                let (client, name) = (client.clone(), name.clone());
                connections.spawn(async move {
                    // One connection that fails is no reason to end the others.
                    if let Err(err) = forward(connection, &client, &name, port).await {
                        eprintln!("{from}: {err:#}");
                    }
                });
            }
            Some(_) = connections.join_next(), if !connections.is_empty() => {}
        }
    }
}

async fn forward(mut connection: TcpStream, client: &Client, name: &str, port: u16) -> anyhow::Result<()> {
    let socket = stream::open(client, &path(client, name, port)?).await?;
    let (from, to) = connection.split();
    stream::copy(socket, from, to).await?;
    Ok(())
}

fn path(client: &Client, name: &str, port: u16) -> anyhow::Result<String> {
    subresource(MACHINES, &client.namespace, name, &format!("portforward/{port}/tcp"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_one_or_two_numbers() {
        for (text, expected) in [
            ("80", Some((80, 80))),
            ("8080:80", Some((8080, 80))),
            ("0:80", Some((0, 80))),
            ("80:0", None),
            ("0", None),
            ("", None),
            ("a:b", None),
            ("70000", None),
            ("1:2:3", None),
        ] {
            let parsed = text.parse::<Ports>().ok().map(|ports| (ports.local, ports.remote));
            assert_eq!(parsed, expected, "{text}");
        }
    }
}
