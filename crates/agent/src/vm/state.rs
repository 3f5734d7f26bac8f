//! What a machine keeps over its runs (its firmware's variables, its TPM, its addresses), and when it is forgotten.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};

use croft_api::kubevirt::{VirtualMachine, VirtualMachineInstance};
use croft_reconcile::failure::message;
use kube::api::ListParams;
use kube::{Api, ResourceExt};

use super::firmware;
use super::host::Host;

/// Forgets the state of a machine whose VM is gone or on its way out. Without a VM there is nothing to come back to.
pub(super) async fn forget_if_orphaned(host: &Host, vmi: &VirtualMachineInstance) -> Result<(), String> {
    let dir = firmware::state_dir(host, vmi);
    let namespace = vmi.metadata.namespace.as_deref().unwrap_or_default();
    let has_addresses = vmi.spec.networks.iter().any(|network| network.pod.is_some());
    if !has_addresses && !dir.exists() {
        return Ok(());
    }
    let owner = vmi.metadata.owner_references.iter().flatten().find(|owner| owner.controller == Some(true));
    if let Some(owner) = owner {
        let machines: Api<VirtualMachine> = Api::namespaced(host.client.clone(), namespace);
        let found = machines.get_metadata_opt(&owner.name).await.map_err(|error| message(&error))?;
        let lives = |uid: Option<&str>| uid == Some(owner.uid.as_str());
        if found.is_some_and(|vm| lives(vm.metadata.uid.as_deref()) && vm.metadata.deletion_timestamp.is_none()) {
            return Ok(());
        }
    }
    host.nics.forget_machine(namespace, vmi.metadata.name.as_deref().unwrap_or_default())?;
    remove(&dir).await
}

/// Forgets the state of machines that were deleted while they did not run, or while nobody looked.
pub(super) async fn sweep(host: &Host) -> Result<(), String> {
    let idle = host.nics.idle_machines();
    let kept = entries(&host.storage.state()).await?;
    if idle.is_empty() && kept.is_empty() {
        return Ok(());
    }
    // Listed after what we have, so that what is new since is never taken for old.
    let machines: Api<VirtualMachine> = Api::all(host.client.clone());
    let instances: Api<VirtualMachineInstance> = Api::all(host.client.clone());
    let machines = machines.list_metadata(&ListParams::default()).await.map_err(|error| message(&error))?.items;
    let instances = instances.list_metadata(&ListParams::default()).await.map_err(|error| message(&error))?.items;
    let uids: BTreeSet<String> =
        machines.iter().filter_map(ResourceExt::uid).chain(instances.iter().filter_map(ResourceExt::uid)).collect();
    for dir in kept {
        let is_known = dir.file_name().and_then(OsStr::to_str).is_some_and(|name| uids.contains(name));
        if !is_known {
            remove(&dir).await?;
        }
    }
    let names = machines.iter().map(full_name).chain(instances.iter().map(full_name));
    let names: BTreeSet<(String, String)> = names.collect();
    for (namespace, name) in idle {
        if !names.contains(&(namespace.clone(), name.clone())) {
            host.nics.forget_machine(&namespace, &name)?;
        }
    }
    Ok(())
}

async fn entries(dir: &Path) -> Result<Vec<PathBuf>, String> {
    let failed = |error: io::Error| format!("{}: {error}", dir.display());
    let mut entries = match tokio::fs::read_dir(dir).await {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(failed)?,
    };
    let mut paths = Vec::new();
    while let Some(entry) = entries.next_entry().await.map_err(failed)? {
        paths.push(entry.path());
    }
    Ok(paths)
}

fn full_name<K: ResourceExt>(object: &K) -> (String, String) {
    (object.namespace().unwrap_or_default(), object.name_any())
}

async fn remove(dir: &Path) -> Result<(), String> {
    match tokio::fs::remove_dir_all(dir).await {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(format!("{}: {error}", dir.display())),
        _ => Ok(()),
    }
}
