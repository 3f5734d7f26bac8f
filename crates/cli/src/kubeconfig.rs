//! `croft kubeconfig`: the file for kubectl and its kin, on standard output.

use std::time::Duration;

use anyhow::bail;
use clap::Args;
use croft_pki::kubeconfig::Credentials;

use crate::Failure;
use crate::api::DataDir;
use crate::lifetime;
use crate::token::UserToken;

#[derive(Debug, Args)]
pub(crate) struct KubeconfigArgs {
    #[command(flatten)]
    data_dir: DataDir,
    /// The address to put in, where clients reach the server from elsewhere
    #[arg(long, env = "CROFT_SERVER", value_name = "URL")]
    server: Option<String>,
    /// Make a token for this user and put it in, instead of the admin's certificate
    #[arg(long, env = "CROFT_USER", value_name = "NAME")]
    user: Option<String>,
    /// A group of that user; may be repeated
    #[arg(long, env = "CROFT_GROUP", value_name = "NAME", value_delimiter = ',', requires = "user")]
    group: Vec<String>,
    /// How long the token lasts, 0s for ever [default: 30d]
    #[arg(long, env = "CROFT_DURATION", value_name = "DURATION", value_parser = lifetime::parse, requires = "user")]
    duration: Option<Duration>,
}

pub(crate) async fn run(args: KubeconfigArgs) -> Result<String, Failure> {
    if let Some(server) = &args.server {
        check_server(server).map_err(Failure::usage)?;
    }
    let order = args.user.as_deref().map(|user| UserToken::new(user, &args.group, args.duration));
    let order = order.transpose().map_err(Failure::usage)?;
    let mut kubeconfig = args.data_dir.kubeconfig()?;
    if let Some(order) = order {
        kubeconfig.credentials = Credentials::Token(order.create(&kubeconfig).await?);
        kubeconfig.user = order.user.to_owned();
    }
    if let Some(server) = args.server {
        kubeconfig.server = server;
    }
    Ok(kubeconfig.to_yaml()?)
}

fn check_server(server: &str) -> anyhow::Result<()> {
    let is_https = server
        .parse::<http::Uri>()
        .is_ok_and(|url| url.scheme_str() == Some("https") && url.host().is_some_and(|host| !host.is_empty()));
    if !is_https {
        bail!("--server: {server:?} is not an address such as https://croft.example:6443");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_https_addresses() {
        for (server, good) in [
            ("https://croft.example:6443", true),
            ("https://[::1]:6443", true),
            ("http://croft.example", false),
            ("croft.example:6443", false),
            ("https://", false),
            ("", false),
        ] {
            assert_eq!(check_server(server).is_ok(), good, "{server}");
        }
    }
}
