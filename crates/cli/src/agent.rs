//! Starts the agent, so that this machine is a node of its own API server.

use std::path::{Path, PathBuf};

use croft_meta::Chain;
use kube::Client;
use tokio::task::JoinHandle;

use crate::ready;
use crate::settings::NodeSettings;

/// Found in the PATH.
const QEMU: &str = "qemu-system-x86_64";

/// The API is of use without the agent, so an agent that cannot run is complained about and no more.
pub(crate) fn start(
    node: &NodeSettings,
    data_dir: &Path,
    server: &croft_apiserver::Running,
    client: Client,
) -> JoinHandle<()> {
    let addresses =
        vec![if node.listen.address.ip().is_unspecified() { ready::own_address() } else { node.listen.address.ip() }];
    let identity = server.agent_issuer(&node.name, &addresses);
    let config = croft_agent::Config {
        client,
        node_name: node.name.clone(),
        addresses,
        listen: node.listen,
        identity: Box::new(identity),
        // QEMU runs elsewhere, and needs whole paths.
        data_dir: std::path::absolute(data_dir).unwrap_or_else(|_| data_dir.to_owned()),
        run_dir: node.run_dir.clone(),
        vm_subnet: node.vm_subnet,
        qemu: PathBuf::from(QEMU),
        etc_dir: node.etc_dir.clone(),
    };
    let stop = server.stopping();
    tokio::spawn(async move {
        if let Err(error) = croft_agent::run(config, stop).await {
            tracing::error!(error = %Chain(&error), "this machine is no node; it serves the API alone");
        }
    })
}
