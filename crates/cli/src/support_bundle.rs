//! `croft support-bundle`: asks the server for a bundle, waits for it, and saves it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Args;
use croft_api::harvester::support_bundle::NAMESPACE;
use serde_json::{Value, json};

use crate::client::{Client, ClientArgs, Kind};
use crate::wait::{self, Seen};
use crate::{Failure, download, print, progress};

const BUNDLES: Kind = Kind { prefix: "/apis/harvesterhci.io/v1beta1", plural: "supportbundles" };
/// The server has its own limits, and tells when one is reached.
const PATIENCE: Duration = Duration::from_hours(2);

#[derive(Debug, Args)]
pub(crate) struct SupportBundleArgs {
    #[command(flatten)]
    client: ClientArgs,
    /// Where to save it [default: the server's name for it, in the current directory]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// What is wrong
    #[arg(long, value_name = "TEXT", default_value = "made by croft support-bundle")]
    description: String,
    /// Where it is discussed
    #[arg(long, value_name = "URL", default_value = "")]
    issue_url: String,
    /// Leave it on the server too, until it expires
    #[arg(long)]
    retain: bool,
}

pub(crate) async fn run(args: SupportBundleArgs) -> Result<(), Failure> {
    let client = args.client.connect().await?;
    let mut spec = json!({ "description": args.description });
    if !args.issue_url.is_empty() {
        spec["issueURL"] = args.issue_url.into();
    }
    let wanted = json!({
        "apiVersion": "harvesterhci.io/v1beta1", "kind": "SupportBundle",
        "metadata": { "generateName": "bundle-", "namespace": NAMESPACE }, "spec": spec,
    });
    let made = client.create(&BUNDLES.all(NAMESPACE), &wanted).await?;
    let name = made["metadata"]["name"].as_str().context("the server did not name the bundle")?;
    let ready = finished(&client, name).await?;
    let file = args.output.unwrap_or_else(|| own_name(&ready, name));
    // Kept until it is saved, so that a failure here does not lose it.
    let uri = format!("/v1/harvester/supportbundles/{name}/download?retain=true");
    let saved = download::save(&client, &uri, name, &file).await;
    saved.with_context(|| format!("the server still has the support bundle {name}"))?;
    if !args.retain {
        client.delete(&BUNDLES.one(NAMESPACE, name)?).await?;
    }
    print(&format!("{}\n", file.display()))
}

/// Waits until it is ready, and tells how far it is.
async fn finished(client: &Client, name: &str) -> anyhow::Result<Value> {
    let bar = progress::percent("collecting");
    let look = |bundle: Option<&Value>| {
        let Some(bundle) = bundle else { bail!("somebody has deleted the support bundle {name}") };
        let status = &bundle["status"];
        bar.set_position(status["progress"].as_u64().unwrap_or_default());
        match status["state"].as_str() {
            Some("ready") => Ok(Seen::Done(bundle.clone())),
            Some("error") => {
                let why = status["conditions"][0]["message"].as_str().unwrap_or_default();
                bail!("the support bundle {name} could not be made: {why}")
            }
            _ => Ok(Seen::NotYet),
        }
    };
    let ready = wait::until(client, BUNDLES, NAMESPACE, name, PATIENCE, look).await;
    bar.finish_and_clear();
    ready
}

/// The server's name is no path, and stays in this directory.
fn own_name(bundle: &Value, name: &str) -> PathBuf {
    let told = bundle["status"]["filename"].as_str().map(Path::new).and_then(Path::file_name);
    told.map_or_else(|| PathBuf::from(format!("{name}.zip")), PathBuf::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_stay_in_this_directory() {
        for (told, expected) in [(json!("a.zip"), "a.zip"), (json!("../x/a.zip"), "a.zip"), (Value::Null, "b.zip")] {
            assert_eq!(own_name(&json!({"status": {"filename": told}}), "b"), PathBuf::from(expected));
        }
    }
}
