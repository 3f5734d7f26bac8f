//! `croft webhook`: Croft's rules for a Kubernetes that is not Croft.

mod manifests;

use std::net::IpAddr;
use std::path::PathBuf;
use std::str::FromStr;

use anyhow::{Context, ensure};
use clap::{Args, Subcommand};
use croft_pki::ServerNames;
use croft_webhook::Certificate;
use tracing::info;

use crate::client::ClientArgs;
use crate::options::{ListenAddress, LogFormat};
use crate::recent_log::RecentLog;
use crate::server::Signals;
use crate::{Failure, logging, print};

/// Where the authority of our own is, if nobody else issues the certificate.
const CERT_DIR: &str = "/var/lib/croft-webhook";

#[derive(Debug, Args)]
#[command(subcommand_negates_reqs = true, args_conflicts_with_subcommands = true)]
pub(crate) struct WebhookArgs {
    #[command(subcommand)]
    command: Option<WebhookCommand>,
    #[command(flatten)]
    serve: ServeArgs,
}

#[derive(Debug, Subcommand)]
enum WebhookCommand {
    /// Print what makes an API server ask, for "kubectl apply": two configurations and a role
    Manifests(manifests::ManifestsArgs),
}

#[derive(Debug, Args)]
struct ServeArgs {
    /// A kubeconfig of the Kubernetes that asks [default: as a pod its own account, else $KUBECONFIG or ~/.kube/config]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Where to listen
    #[arg(long, env = "CROFT_WEBHOOK_LISTEN", value_name = "ADDR:PORT", default_value = ":9443")]
    listen: ListenAddress,
    /// The Service that leads here, for the certificate
    #[arg(long, env = "CROFT_WEBHOOK_SERVICE", value_name = "NAMESPACE/NAME")]
    service: Option<Service>,
    /// Further names and addresses for the certificate
    #[arg(long, env = "CROFT_WEBHOOK_TLS_SAN", value_name = "NAME", value_delimiter = ',')]
    tls_san: Vec<String>,
    /// Where an authority is made that issues the certificate
    #[arg(long, env = "CROFT_WEBHOOK_CERT_DIR", value_name = "DIR", default_value = CERT_DIR)]
    cert_dir: PathBuf,
    /// A certificate of somebody else's, with those that vouch for it; read again when it changes
    #[arg(long, env = "CROFT_WEBHOOK_TLS_CERT_FILE", value_name = "FILE", requires = "tls_private_key_file")]
    tls_cert_file: Option<PathBuf>,
    /// The key of that certificate
    #[arg(long, env = "CROFT_WEBHOOK_TLS_PRIVATE_KEY_FILE", value_name = "FILE", requires = "tls_cert_file")]
    tls_private_key_file: Option<PathBuf>,
    /// Answer only API servers with a certificate of these authorities
    #[arg(long, env = "CROFT_WEBHOOK_CLIENT_CA_FILE", value_name = "FILE")]
    client_ca_file: Option<PathBuf>,
    /// A user that Croft's controllers and agents are there, who may do what follows from what was admitted
    #[arg(long, env = "CROFT_WEBHOOK_PLATFORM_USER", value_name = "USER", value_delimiter = ',')]
    platform_user: Vec<String>,
    /// What log lines look like [default: human on a terminal, else json]
    #[arg(long, env = "CROFT_LOG_FORMAT", value_name = "FORMAT")]
    log_format: Option<LogFormat>,
}

/// `namespace/name`, and a port where one is of use.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Service {
    namespace: String,
    name: String,
    port: u16,
}

impl FromStr for Service {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = || format!("{text:?} is not NAMESPACE/NAME or NAMESPACE/NAME:PORT");
        let (namespace, rest) = text.split_once('/').ok_or_else(wrong)?;
        let (name, port) = match rest.split_once(':') {
            Some((name, port)) => (name, port.parse().map_err(|_| wrong())?),
            None => (rest, 443),
        };
        let is_label = |label: &str| croft_meta::names::is_dns1123_label(label).is_empty();
        if !is_label(namespace) || !is_label(name) || port == 0 {
            return Err(wrong());
        }
        Ok(Self { namespace: namespace.to_owned(), name: name.to_owned(), port })
    }
}

pub(crate) fn run(args: WebhookArgs) -> Result<(), Failure> {
    match args.command {
        Some(WebhookCommand::Manifests(args)) => print(&manifests::run(&args)?),
        None => serve(args.serve),
    }
}

fn serve(args: ServeArgs) -> Result<(), Failure> {
    // The filter is kept for as long as the program runs.
    let _filter = logging::start(args.log_format, &RecentLog::default()).map_err(Failure::usage)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.context("cannot start the runtime")?;
    runtime.block_on(async {
        let mut signals = Signals::new()?;
        let config = croft_webhook::Config {
            client: ClientArgs::given(args.kubeconfig.clone()).kube_or_pod().await?,
            listen: args.listen.0,
            certificate: args.certificate()?,
            client_ca: args.client_ca_file,
            platform_users: args.platform_user,
        };
        let running = croft_webhook::start(config).await?;
        info!(address = %running.address, "the rules are served");
        let name = signals.next().await;
        info!(signal = name, "stopping");
        running.stop().await;
        Ok(())
    })
}

impl ServeArgs {
    fn certificate(&self) -> anyhow::Result<Certificate> {
        if let (Some(cert), Some(key)) = (&self.tls_cert_file, &self.tls_private_key_file) {
            return Ok(Certificate::Files { cert: cert.clone(), key: key.clone() });
        }
        ensure!(self.tls_cert_file.is_none(), "--tls-cert-file needs --tls-private-key-file");
        let (mut names, mut ips) = (vec!["localhost".to_owned()], vec![IpAddr::from([127, 0, 0, 1])]);
        if let Some(Service { namespace, name, .. }) = &self.service {
            names.push(format!("{name}.{namespace}.svc"));
        }
        for given in &self.tls_san {
            match given.parse() {
                Ok(ip) => ips.push(ip),
                Err(_) => names.push(given.clone()),
            }
        }
        if !self.listen.0.ip().is_unspecified() {
            ips.push(self.listen.0.ip());
        }
        let names = ServerNames { names: names.into_iter().collect(), ips: ips.into_iter().collect() };
        Ok(Certificate::Own { dir: self.cert_dir.clone(), names })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn services_have_a_namespace_and_a_name() {
        let service = |port| Service { namespace: "croft".to_owned(), name: "rules".to_owned(), port };
        assert_eq!("croft/rules".parse(), Ok(service(443)));
        assert_eq!("croft/rules:8443".parse(), Ok(service(8443)));
        for text in ["rules", "croft/", "/rules", "croft/rules:0", "croft/rules:x", "a/b/c"] {
            assert!(text.parse::<Service>().unwrap_err().contains("is not NAMESPACE/NAME"), "{text}");
        }
    }
}
