//! `croft kubeconfig`: the file for kubectl and its kin, on standard output.

use std::time::Duration;

use anyhow::bail;
use clap::Args;
use croft_pki::kubeconfig::Credentials;

use crate::Failure;
use crate::api::DataDir;
use crate::certified::{Certificate, login_kubeconfig};
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
    /// How long the token lasts, 0s for ever [default: 30d; 1h for a certificate]
    #[arg(long, env = "CROFT_DURATION", value_name = "DURATION", value_parser = lifetime::parse, requires = "user")]
    duration: Option<Duration>,
    /// Put in a client certificate of that user instead of a token
    #[arg(long, requires = "user")]
    client_certificate: bool,
    /// Put in no secret at all: the local user logs in when the file is used, see "croft credential"
    #[arg(long, requires = "user", conflicts_with_all = ["client_certificate", "group", "duration"])]
    login: bool,
}

pub(crate) async fn run(args: KubeconfigArgs) -> Result<String, Failure> {
    if let Some(server) = &args.server {
        check_server(server).map_err(Failure::usage)?;
    }
    let wish = args.user.as_deref().map(|user| Wish::new(user, &args)).transpose().map_err(Failure::usage)?;
    let mut kubeconfig = args.data_dir.kubeconfig()?;
    let credentials = match &wish {
        Some(Wish::Token(order)) => Some(Credentials::Token(order.create(&kubeconfig).await?)),
        Some(Wish::Certificate(order)) => Some(order.create(&args.data_dir.client().await?).await?),
        Some(Wish::Login) | None => None,
    };
    if let Some(credentials) = credentials {
        kubeconfig.credentials = credentials;
    }
    if let Some(server) = args.server {
        kubeconfig.server = server;
    }
    let Some(user) = args.user else { return Ok(kubeconfig.to_yaml()?) };
    if args.login {
        return Ok(login_kubeconfig(&kubeconfig.server, &kubeconfig.ca_pem, &user)?);
    }
    kubeconfig.user = user;
    Ok(kubeconfig.to_yaml()?)
}

/// How another user is to prove who they are.
enum Wish<'a> {
    Token(UserToken<'a>),
    Certificate(Certificate<'a>),
    Login,
}

impl<'a> Wish<'a> {
    fn new(user: &'a str, args: &'a KubeconfigArgs) -> anyhow::Result<Self> {
        if args.login {
            return Ok(Self::Login);
        }
        if args.client_certificate {
            return Certificate::new(user, &args.group, args.duration).map(Self::Certificate);
        }
        UserToken::new(user, &args.group, args.duration).map(Self::Token)
    }
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
