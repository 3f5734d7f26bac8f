//! What an API server must be given so that it asks.

use std::path::PathBuf;

use anyhow::{Context, bail, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use clap::{Args, ValueEnum};
use croft_pki::Ca;
use croft_webhook::Kinds;
use croft_webhook::manifests::{self, Options, Place};
use jiff::Timestamp;
use serde_json::Value;

use super::{CERT_DIR, Service};
use crate::output::{Format, document};

#[derive(Debug, Args)]
pub(super) struct ManifestsArgs {
    /// Where the API server finds the webhooks: https://host:port
    #[arg(long, value_name = "URL", conflicts_with = "service", required_unless_present = "service")]
    url: Option<String>,
    /// The Service that leads to them
    #[arg(long, value_name = "NAMESPACE/NAME[:PORT]")]
    service: Option<Service>,
    /// The authority of their certificate [default: that in --cert-dir]
    #[arg(long, value_name = "FILE")]
    ca_file: Option<PathBuf>,
    /// Where "croft webhook" has its authority; made if there is none yet
    #[arg(long, env = "CROFT_WEBHOOK_CERT_DIR", value_name = "DIR", default_value = CERT_DIR)]
    cert_dir: PathBuf,
    /// What becomes of writes while the webhooks do not answer
    #[arg(long, value_name = "POLICY", default_value = "fail")]
    failure_policy: FailurePolicy,
    /// Print the definitions of the kinds too, for a Kubernetes that does not have them; "kubectl apply --server-side" takes them
    #[arg(long)]
    definitions: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum FailurePolicy {
    /// They are refused
    Fail,
    /// They are made without the rules
    Ignore,
}

pub(super) fn run(args: &ManifestsArgs) -> anyhow::Result<String> {
    let options = Options {
        place: args.place()?,
        ca_bundle: Some(STANDARD.encode(args.authority()?)),
        failure_policy: match args.failure_policy {
            FailurePolicy::Fail => "Fail",
            FailurePolicy::Ignore => "Ignore",
        },
    };
    let definitions = args.definitions.then(manifests::definitions).into_iter().flatten();
    let documents: Vec<Value> = definitions.chain(manifests::all(&Kinds::all(), &options)).collect();
    let documents: Vec<String> =
        documents.iter().map(|object| document(Format::Yaml, object)).collect::<anyhow::Result<_>>()?;
    Ok(documents.join("---\n"))
}

impl ManifestsArgs {
    fn place(&self) -> anyhow::Result<Place> {
        if let Some(Service { namespace, name, port }) = self.service.clone() {
            return Ok(Place::Service { namespace, name, port });
        }
        let Some(url) = &self.url else { bail!("say --url or --service") };
        let url = url.trim_end_matches('/');
        let uri: http::Uri = url.parse().with_context(|| format!("--url {url}"))?;
        ensure!(uri.scheme_str() == Some("https"), "--url {url}: API servers ask with https alone");
        ensure!(uri.path() == "/" && uri.query().is_none(), "--url {url}: paths are added to it");
        Ok(Place::Url(url.to_owned()))
    }

    fn authority(&self) -> anyhow::Result<String> {
        match &self.ca_file {
            Some(path) => std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display())),
            None => Ok(Ca::load_or_create(&self.cert_dir, Timestamp::now())?.cert_pem().to_owned()),
        }
    }
}
