//! What the nodes add: their agents list the files they have to show, and hand them over.

use std::time::Duration;

use croft_meta::redact;
use http::Request;
use http_body_util::{BodyExt, Limited};
use k8s_openapi::api::core::v1::Node;
use kube::api::ListParams;
use kube::client::Body;
use kube::{Api, Client, ResourceExt};
use serde::Deserialize;

use crate::archive::Archive;

/// Of a log, only the newest part is asked for.
const TAIL: usize = 4 << 20;
/// More than any agent has to say about its files.
const MAX_LIST: usize = 16 << 20;

#[derive(Debug, thiserror::Error)]
pub(crate) enum NodeError {
    #[error("the node's agent cannot be asked")]
    Ask(#[source] kube::Error),
    #[error("the agent answered with code {0}")]
    Refused(u16),
    #[error("the agent's answer cannot be read: {0}")]
    Read(String),
}

#[derive(Debug, Deserialize)]
struct Listing {
    files: Vec<Listed>,
}

#[derive(Debug, Deserialize)]
struct Listed {
    name: String,
}

pub(crate) async fn names(client: &Client) -> Result<Vec<String>, kube::Error> {
    let nodes: Api<Node> = Api::all(client.clone());
    let mut names: Vec<String> = nodes.list(&ListParams::default()).await?.iter().map(ResourceExt::name_any).collect();
    names.sort();
    Ok(names)
}

/// Adds all files of a node; what cannot be had is told in the archive.
pub(crate) async fn collect(client: &Client, node: &str, patience: Duration, archive: &mut Archive) {
    match tokio::time::timeout(patience, add_files(client, node, archive)).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => archive.lacks(&format!("nodes/{node}"), &croft_meta::Chain(&error).to_string()),
        Err(_) => {
            let why = format!("the node took longer than {} minutes", patience.as_secs() / 60);
            archive.lacks(&format!("nodes/{node}"), &why);
        }
    }
}

async fn add_files(client: &Client, node: &str, archive: &mut Archive) -> Result<(), NodeError> {
    let root = format!("/api/v1/nodes/{node}/proxy/logs");
    let listing = get(client, &root, MAX_LIST).await?;
    let listing: Listing = serde_json::from_slice(&listing).map_err(|error| NodeError::Read(error.to_string()))?;
    for file in listing.files {
        let name = format!("nodes/{node}/{}", file.name);
        match get(client, &format!("{root}/{}?tailBytes={TAIL}", file.name), TAIL + 1).await {
            Ok(content) => archive.add(&name, redact::text(&String::from_utf8_lossy(&content))).await,
            // Machines come and go meanwhile.
            Err(error) => archive.lacks(&name, &croft_meta::Chain(&error).to_string()),
        }
    }
    Ok(())
}

async fn get(client: &Client, path: &str, limit: usize) -> Result<Vec<u8>, NodeError> {
    let request = Request::get(path).body(Body::empty()).map_err(|error| NodeError::Read(error.to_string()))?;
    let answer = client.send(request).await.map_err(NodeError::Ask)?;
    if !answer.status().is_success() {
        return Err(NodeError::Refused(answer.status().as_u16()));
    }
    let read = Limited::new(answer.into_body(), limit).collect().await;
    read.map(|body| body.to_bytes().to_vec()).map_err(|error| NodeError::Read(error.to_string()))
}
