//! What a machine keeps over its runs (its firmware's variables, its TPM), and when it is forgotten.

use std::path::Path;

use croft_api::kubevirt::{VirtualMachine, VirtualMachineInstance};
use croft_reconcile::failure::message;
use kube::api::ListParams;
use kube::{Api, ResourceExt};

use super::firmware;
use super::host::Host;

/// Forgets the state of a machine whose VM is gone or on its way out. Without a VM there is nothing to come back to.
pub(super) async fn forget_if_orphaned(host: &Host, vmi: &VirtualMachineInstance) -> Result<(), String> {
    let dir = firmware::state_dir(host, vmi);
    if !dir.exists() {
        return Ok(());
    }
    let owner = vmi.metadata.owner_references.iter().flatten().find(|owner| owner.controller == Some(true));
    if let Some(owner) = owner {
        let namespace = vmi.metadata.namespace.as_deref().unwrap_or_default();
        let machines: Api<VirtualMachine> = Api::namespaced(host.client.clone(), namespace);
        let found = machines.get_metadata_opt(&owner.name).await.map_err(|error| message(&error))?;
        let lives = |uid: Option<&str>| uid == Some(owner.uid.as_str());
        if found.is_some_and(|vm| lives(vm.metadata.uid.as_deref()) && vm.metadata.deletion_timestamp.is_none()) {
            return Ok(());
        }
    }
    remove(&dir).await
}

/// Forgets the state of machines that were deleted while they did not run, or while nobody looked.
pub(super) async fn sweep(host: &Host) -> Result<(), String> {
    let root = host.storage.state();
    let mut entries = match tokio::fs::read_dir(&root).await {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        entries => entries.map_err(|error| format!("{}: {error}", root.display()))?,
    };
    let machines: Api<VirtualMachine> = Api::all(host.client.clone());
    let instances: Api<VirtualMachineInstance> = Api::all(host.client.clone());
    let mut known = Vec::new();
    let listed = machines.list_metadata(&ListParams::default()).await.map_err(|error| message(&error))?;
    known.extend(listed.items.iter().filter_map(ResourceExt::uid));
    let listed = instances.list_metadata(&ListParams::default()).await.map_err(|error| message(&error))?;
    known.extend(listed.items.iter().filter_map(ResourceExt::uid));
    while let Some(entry) = entries.next_entry().await.map_err(|error| error.to_string())? {
        let name = entry.file_name();
        if !known.iter().any(|uid| name == uid.as_str()) {
            remove(&entry.path()).await?;
        }
    }
    Ok(())
}

async fn remove(dir: &Path) -> Result<(), String> {
    match tokio::fs::remove_dir_all(dir).await {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(format!("{}: {error}", dir.display())),
        _ => Ok(()),
    }
}
