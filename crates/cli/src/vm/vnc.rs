//! The screen: offered to a VNC viewer, or as a picture.

use std::path::PathBuf;
use std::process::Stdio;

use anyhow::Context;
use clap::Args;
use http::Request;
use http_body_util::BodyExt;
use kube::client::Body;
use tokio::net::TcpListener;
use tokio::process::Command;

use crate::client::{Client, INSTANCES, subresource};
use crate::{Failure, print, stream};

/// Viewers that take `host::port` or `vnc://`, in the order that they are looked for.
const VIEWERS: [&str; 4] = ["remote-viewer", "vncviewer", "xtigervncviewer", "vinagre"];

#[derive(Debug, Args)]
pub(crate) struct VncArgs {
    /// The virtual machine
    name: String,
    /// Only listen, and say where; start no viewer
    #[arg(long)]
    proxy_only: bool,
    /// The port to listen on; 0 takes any free one
    #[arg(long, default_value_t = 0)]
    port: u16,
    /// Save a picture of the screen instead
    #[arg(long, value_name = "FILE.png", conflicts_with_all = ["proxy_only", "port"])]
    screenshot: Option<PathBuf>,
}

pub(crate) async fn run(client: &Client, args: &VncArgs) -> Result<(), Failure> {
    super::instance(client, &args.name).await?;
    if let Some(file) = &args.screenshot {
        return screenshot(client, &args.name, file).await;
    }
    let listener = TcpListener::bind(("127.0.0.1", args.port)).await;
    let listener = listener.with_context(|| format!("cannot listen on port {}", args.port))?;
    let port = listener.local_addr()?.port();
    let mut viewer = if args.proxy_only { None } else { start_viewer(port) };
    if viewer.is_none() {
        eprintln!("Point a VNC viewer at 127.0.0.1:{port}; Ctrl-C ends this.");
    }
    let path = subresource(INSTANCES, &client.namespace, &args.name, "vnc")?;
    loop {
        let (mut connection, _) = tokio::select! {
            accepted = listener.accept() => accepted.context("cannot accept connections")?,
            () = viewer_ended(&mut viewer) => return Ok(()),
        };
        let socket = stream::open(client, &path).await?;
        let (from, to) = connection.split();
        stream::copy(socket, from, to).await?;
    }
}

fn start_viewer(port: u16) -> Option<tokio::process::Child> {
    VIEWERS.iter().find_map(|viewer| {
        let address =
            if *viewer == "remote-viewer" { format!("vnc://127.0.0.1:{port}") } else { format!("127.0.0.1::{port}") };
        Command::new(viewer).arg(address).stdin(Stdio::null()).stdout(Stdio::null()).kill_on_drop(true).spawn().ok()
    })
}

async fn viewer_ended(viewer: &mut Option<tokio::process::Child>) {
    match viewer {
        // However it ended, the user closed it.
        Some(viewer) => drop(viewer.wait().await),
        None => std::future::pending().await,
    }
}

async fn screenshot(client: &Client, name: &str, file: &PathBuf) -> Result<(), Failure> {
    let path = subresource(INSTANCES, &client.namespace, name, "vnc/screenshot")?;
    let answer = client.send(Request::get(path).body(Body::empty())?).await?;
    let picture =
        answer.into_body().collect().await.map_err(|err| anyhow::anyhow!("the picture was cut off: {err}"))?;
    std::fs::write(file, picture.to_bytes()).with_context(|| format!("cannot write {}", file.display()))?;
    print(&format!("saved {}\n", file.display()))
}
