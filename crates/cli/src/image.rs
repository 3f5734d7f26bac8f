//! `croft image`: disk images that machines start from.

mod transfer;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use clap::{Args, Subcommand};
use indicatif::ProgressBar;
use serde_json::{Value, json};

use crate::api::segment;
use crate::client::{Client, ClientArgs, IMAGES};
use crate::confirm::ConfirmArgs;
use crate::output::OutputArgs;
use crate::wait::{self, Seen};
use crate::{Failure, list, print, progress};

/// Images can be large, and lines slow.
const PATIENCE: Duration = Duration::from_hours(6);

#[derive(Debug, Args)]
pub(crate) struct ImageArgs {
    #[command(flatten)]
    client: ClientArgs,
    #[command(subcommand)]
    command: ImageCommand,
}

#[derive(Debug, Subcommand)]
enum ImageCommand {
    /// List images
    #[command(visible_alias = "ls")]
    List(ListArgs),
    /// Have the server fetch an image from a URL
    Import(ImportArgs),
    /// Send an image file to the server
    Upload(UploadArgs),
    /// Save an image to a file
    Download(DownloadArgs),
    /// Delete an image
    #[command(visible_alias = "rm")]
    Delete(DeleteArgs),
}

#[derive(Debug, Args)]
struct ListArgs {
    /// Those of all namespaces
    #[arg(short = 'A', long)]
    all_namespaces: bool,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Debug, Args)]
struct ImportArgs {
    /// What to call it
    name: String,
    /// Where it is: http or https; qcow2, raw, vmdk, vhdx, vdi or iso, also as xz, gz or zst
    url: String,
    /// Its SHA-512, in hexadecimal
    #[arg(long, value_name = "HEX")]
    checksum: Option<String>,
    /// Return at once
    #[arg(long)]
    no_wait: bool,
}

#[derive(Debug, Args)]
struct UploadArgs {
    /// What to call it
    name: String,
    /// The file
    file: PathBuf,
}

#[derive(Debug, Args)]
struct DownloadArgs {
    /// The image
    name: String,
    /// Where to write it; it comes compressed by gzip [default: NAME.raw.gz]
    #[arg(short, long, value_name = "FILE")]
    file: Option<PathBuf>,
}

#[derive(Debug, Args)]
struct DeleteArgs {
    /// The images
    #[arg(required = true)]
    names: Vec<String>,
    #[command(flatten)]
    confirm: ConfirmArgs,
}

pub(crate) async fn run(args: ImageArgs) -> Result<(), Failure> {
    let client = args.client.connect().await?;
    match args.command {
        ImageCommand::List(args) => list::run(&client, IMAGES, args.all_namespaces, None, args.output).await,
        ImageCommand::Import(args) => import(&client, &args).await,
        ImageCommand::Upload(args) => {
            upload(&client, &args.name, &args.file).await?;
            print(&format!("image {} is ready\n", args.name))
        }
        ImageCommand::Download(args) => {
            let found = find(&client, &args.name).await?;
            let file = args.file.unwrap_or_else(|| PathBuf::from(format!("{}.raw.gz", found.name)));
            transfer::download(&client, &found, &file).await?;
            print(&format!("saved {}\n", file.display()))
        }
        ImageCommand::Delete(args) => {
            args.confirm.deletion(&format!("image {}", args.names.join(", ")))?;
            for name in &args.names {
                client.delete(&IMAGES.one(&client.namespace, name)?).await?;
                print(&format!("image {name} is deleted\n"))?;
            }
            Ok(())
        }
    }
}

/// An image that machines can be made from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) storage_class: String,
    pub(crate) virtual_size: u64,
}

impl Found {
    fn of(image: &Value) -> Self {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        Self {
            namespace: text(&image["metadata"]["namespace"]),
            name: text(&image["metadata"]["name"]),
            storage_class: text(&image["status"]["storageClassName"]),
            virtual_size: image["status"]["virtualSize"].as_u64().unwrap_or_default(),
        }
    }
}

/// By name, by display name, or by `namespace/name`.
async fn find(client: &Client, wanted: &str) -> anyhow::Result<Found> {
    let (namespace, name) = wanted.split_once('/').unwrap_or((&client.namespace, wanted));
    if let Ok(path) = IMAGES.one(segment(namespace)?, name)
        && let Some(image) = client.find(&path).await?
    {
        return Ok(Found::of(&image));
    }
    let list = client.get(&IMAGES.all(namespace)).await?;
    let images: Vec<&Value> = list["items"].as_array().into_iter().flatten().collect();
    if let Some(image) = images.iter().find(|image| image["spec"]["displayName"] == name) {
        return Ok(Found::of(image));
    }
    let known: Vec<&str> = images.iter().filter_map(|image| image["metadata"]["name"].as_str()).collect();
    if known.is_empty() {
        bail!("there is no image {name}, nor any other in namespace {namespace}; get one with \"croft image import\"");
    }
    bail!("there is no image {name} in namespace {namespace}; there are: {}", known.join(", "))
}

/// As [`find`], and waits until it is ready.
pub(crate) async fn find_ready(client: &Client, wanted: &str) -> anyhow::Result<Found> {
    let found = find(client, wanted).await?;
    ready(client, &found.namespace, &found.name).await
}

/// Has the server fetch an image, and waits until it has.
pub(crate) async fn fetch(client: &Client, name: &str, url: &str) -> anyhow::Result<Found> {
    create(client, name, &json!({ "displayName": name, "sourceType": "download", "url": url })).await?;
    ready(client, &client.namespace, name).await
}

async fn import(client: &Client, args: &ImportArgs) -> Result<(), Failure> {
    segment(&args.name).map_err(Failure::usage)?;
    let mut spec = json!({ "displayName": args.name, "sourceType": "download", "url": args.url });
    if let Some(checksum) = &args.checksum {
        spec["checksum"] = json!(checksum);
    }
    create(client, &args.name, &spec).await?;
    if args.no_wait {
        return print(&format!("image {} is being fetched\n", args.name));
    }
    ready(client, &client.namespace, &args.name).await?;
    print(&format!("image {} is ready\n", args.name))
}

async fn create(client: &Client, name: &str, spec: &Value) -> anyhow::Result<()> {
    let image = json!({
        "apiVersion": "harvesterhci.io/v1beta1", "kind": "VirtualMachineImage",
        "metadata": { "name": name }, "spec": spec,
    });
    client.create(&IMAGES.all(&client.namespace), &image).await?;
    Ok(())
}

/// Creates the image, sends the file, and waits until the server has made sense of it.
pub(crate) async fn upload(client: &Client, name: &str, file: &Path) -> anyhow::Result<Found> {
    send(client, name, file, progress::transfer(name, Some(0))).await?;
    ready(client, &client.namespace, name).await
}

/// Creates the image and sends the file.
pub(crate) async fn send(client: &Client, name: &str, file: &Path, bar: ProgressBar) -> anyhow::Result<()> {
    segment(name)?;
    // Before anything is created.
    let opened = crate::client::open(file)?;
    let size = opened.metadata().with_context(|| format!("cannot read {}", file.display()))?.len();
    if size == 0 {
        bail!("{} is empty", file.display());
    }
    create(client, name, &json!({ "displayName": name, "sourceType": "upload" })).await?;
    let sent = async {
        initialized(client, name).await?;
        transfer::upload(client, name, opened, size, bar).await
    };
    if let Err(err) = sent.await {
        // One that was never filled is of no use to anybody; why it was not is what counts.
        let _ = client.delete(&IMAGES.one(&client.namespace, name)?).await;
        return Err(err);
    }
    Ok(())
}

async fn initialized(client: &Client, name: &str) -> anyhow::Result<()> {
    let patience = Duration::from_mins(1);
    wait::until(client, IMAGES, &client.namespace, name, patience, |image| {
        let Some(image) = image else { bail!("the image was deleted meanwhile") };
        Ok(if is_true(image, "Initialized") { Seen::Done(()) } else { Seen::NotYet })
    })
    .await
}

fn condition<'a>(image: &'a Value, ty: &str) -> Option<&'a Value> {
    image["status"]["conditions"].as_array()?.iter().find(|condition| condition["type"] == ty)
}

fn is_true(image: &Value, ty: &str) -> bool {
    condition(image, ty).is_some_and(|condition| condition["status"] == "True")
}

/// Waits until the image can be used, with a bar.
async fn ready(client: &Client, namespace: &str, name: &str) -> anyhow::Result<Found> {
    let bar = progress::percent(name);
    let found = wait::until(client, IMAGES, namespace, name, PATIENCE, |image| {
        let Some(image) = image else { bail!("the image was deleted meanwhile") };
        bar.set_position(image["status"]["progress"].as_u64().unwrap_or_default());
        if is_true(image, "Imported") {
            return Ok(Seen::Done(Found::of(image)));
        }
        let mut conditions = ["Imported", "Initialized"].into_iter().filter_map(|ty| condition(image, ty));
        let Some(failed) = conditions.find(|condition| condition["status"] == "False") else { return Ok(Seen::NotYet) };
        bail!("image {name} could not be made: {}", failed["message"].as_str().unwrap_or("no reason was given"))
    });
    let found = found.await;
    bar.finish_and_clear();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_is_ready_when_it_is_imported() {
        let image = json!({
            "metadata": {"name": "debian", "namespace": "default"},
            "status": {"storageClassName": "longhorn-debian", "virtualSize": 7, "conditions": [
                {"type": "Initialized", "status": "True"}, {"type": "Imported", "status": "Unknown"}]},
        });
        assert!(is_true(&image, "Initialized") && !is_true(&image, "Imported") && !is_true(&json!({}), "Imported"));
        let expected = ("default", "debian", "longhorn-debian", 7);
        let found = Found::of(&image);
        assert_eq!((&*found.namespace, &*found.name, &*found.storage_class, found.virtual_size), expected);
    }
}
