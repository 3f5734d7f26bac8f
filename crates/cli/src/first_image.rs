//! Something to make the first machine of: a newcomer has no image yet.

use std::path::{Path, PathBuf};

use anyhow::Context;
use indicatif::ProgressBar;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::client::{Client, ClientArgs, IMAGES, Kind, MACHINES};
use crate::image;

/// Nothing depends on it: what goes wrong is said and left at that.
pub(crate) async fn offer(kubeconfig: PathBuf, file: PathBuf, stop: CancellationToken) {
    let offered = tokio::select! {
        offered = try_offer(kubeconfig, &file) => offered,
        () = stop.cancelled() => return,
    };
    match offered {
        Ok(Some(name)) => info!(image = name, "there was no image: one was made"),
        Ok(None) => {}
        Err(error) => warn!(file = %file.display(), error = format!("{error:#}"), "the first image could not be made"),
    }
}

async fn try_offer(kubeconfig: PathBuf, file: &Path) -> anyhow::Result<Option<String>> {
    let client = ClientArgs::with(kubeconfig).connect().await?;
    if any(&client, IMAGES).await? || any(&client, MACHINES).await? {
        return Ok(None);
    }
    let name = file.file_stem().and_then(|stem| stem.to_str()).context("the file has no name")?.to_lowercase();
    image::send(&client, &name, file, ProgressBar::hidden()).await?;
    Ok(Some(name))
}

async fn any(client: &Client, kind: Kind) -> anyhow::Result<bool> {
    let list = client.get(&format!("{}?limit=1", kind.all(""))).await?;
    Ok(list["items"].as_array().is_some_and(|items| !items.is_empty()))
}
