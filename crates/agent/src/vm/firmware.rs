//! UEFI's files: the distribution's firmware, and each machine's own variables.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use croft_api::kubevirt::{Efi, VirtualMachineInstance};
use croft_api::machine_state::StateSource;
use croft_meta::Chain;

use super::host::{Host, Lacking};
use super::volume;
use crate::machine_state::{self, Place, StateError};

/// Where distributions put the firmware, with the variables that go with it.
struct Files {
    code: &'static str,
    vars: &'static str,
}

/// Secure Boot's variables hold the keys that are trusted.
const SECURE: [Files; 3] = [
    Files { code: "/usr/share/OVMF/OVMF_CODE_4M.secboot.fd", vars: "/usr/share/OVMF/OVMF_VARS_4M.ms.fd" },
    Files { code: "/usr/share/edk2/ovmf/OVMF_CODE.secboot.fd", vars: "/usr/share/edk2/ovmf/OVMF_VARS.secboot.fd" },
    Files { code: "/usr/share/OVMF/OVMF_CODE.secboot.fd", vars: "/usr/share/OVMF/OVMF_VARS.ms.fd" },
];
const PLAIN: [Files; 4] = [
    Files { code: "/usr/share/OVMF/OVMF_CODE_4M.fd", vars: "/usr/share/OVMF/OVMF_VARS_4M.fd" },
    Files { code: "/usr/share/edk2/ovmf/OVMF_CODE.fd", vars: "/usr/share/edk2/ovmf/OVMF_VARS.fd" },
    Files { code: "/usr/share/edk2/x64/OVMF_CODE.4m.fd", vars: "/usr/share/edk2/x64/OVMF_VARS.4m.fd" },
    Files { code: "/usr/share/OVMF/OVMF_CODE.fd", vars: "/usr/share/OVMF/OVMF_VARS.fd" },
];

#[derive(Debug)]
pub(super) struct Flash {
    pub(super) code: PathBuf,
    pub(super) vars: OwnedFd,
    pub(super) has_secure_boot: bool,
}

pub(super) fn has_secure_boot(efi: &Efi) -> bool {
    efi.secure_boot != Some(false)
}

/// The name of a machine over all its runs: its VM's, or its own if nobody made it.
pub(crate) fn owner_uid(vmi: &VirtualMachineInstance) -> &str {
    let owners = vmi.metadata.owner_references.iter().flatten();
    let owner = owners.filter(|owner| owner.controller == Some(true)).map(|owner| owner.uid.as_str()).next();
    owner.or(vmi.metadata.uid.as_deref()).unwrap_or_default()
}

/// Where a machine keeps what it must find again at its next run.
pub(super) fn state_dir(host: &Host, vmi: &VirtualMachineInstance) -> PathBuf {
    host.storage.state().join(owner_uid(vmi))
}

/// Has a machine begin with state that was kept of it or of another, if it is to and has not yet.
pub(super) async fn settle(host: &Host, vmi: &VirtualMachineInstance) -> Result<(), Lacking> {
    let Some(source) = StateSource::of(&vmi.metadata) else { return Ok(()) };
    let aside = host.scratch_dir(vmi.metadata.uid.as_deref().unwrap_or_default());
    let place = Place { states: host.storage.state(), aside };
    let namespace = vmi.metadata.namespace.as_deref().unwrap_or_default();
    let settled = machine_state::settle(&host.client, &place, namespace, owner_uid(vmi), &source).await;
    settled.map_err(|error| match error {
        StateError::NoSecret(_) | StateError::Api(_) => {
            Lacking::Yet { reason: "MachineStateNotFound", message: Chain(&error).to_string() }
        }
        error => Lacking::ever(Chain(&error).to_string()),
    })
}

/// Opens the variables: those of the last run if they are kept, else fresh ones.
pub(super) async fn flash(host: &Host, vmi: &VirtualMachineInstance, efi: &Efi) -> Result<Flash, Lacking> {
    let has_secure_boot = has_secure_boot(efi);
    let known: &[Files] = if has_secure_boot { &SECURE } else { &PLAIN };
    let files = known.iter().find(|files| Path::new(files.code).exists() && Path::new(files.vars).exists());
    let Some(files) = files else {
        let what = if has_secure_boot { "with Secure Boot" } else { "without Secure Boot" };
        return Err(Lacking::ever(format!("UEFI {what} is not installed on this node: install the package ovmf")));
    };
    let is_kept = efi.persistent == Some(true);
    let uid = vmi.metadata.uid.as_deref().unwrap_or_default();
    let path = if is_kept { state_dir(host, vmi) } else { host.scratch_dir(uid) }.join("nvram.fd");
    let template = PathBuf::from(files.vars);
    let open = move || -> io::Result<OwnedFd> {
        if !is_kept || !path.exists() {
            // Beside first: a half-made copy must not be taken for the machine's own.
            let beside = path.with_extension("new");
            volume::clone(&template, &beside)?;
            std::fs::rename(&beside, &path)?;
        }
        Ok(std::fs::OpenOptions::new().read(true).write(true).open(&path)?.into())
    };
    let opened = tokio::task::spawn_blocking(open).await.map_err(io::Error::other).flatten();
    let vars = opened.map_err(|error| Lacking::ever(format!("cannot prepare the firmware's variables: {error}")))?;
    Ok(Flash { code: files.code.into(), vars, has_secure_boot })
}
