//! Keys and passwords that are put into guests.

use croft_meta::FieldPath;

use crate::admission::denial::{Denial, below};
use crate::kubevirt::{SshPublicKeyAccessCredential, UserPasswordAccessCredential, VirtualMachineInstanceSpec};

pub(super) fn check(denial: &mut Denial, at: &FieldPath, spec: &VirtualMachineInstanceSpec) {
    for (index, credential) in spec.access_credentials.iter().enumerate() {
        let own = below(at, "accessCredentials").index(index);
        if let Some(key) = &credential.ssh_public_key {
            ssh_key(denial, &own, key, spec);
        }
        if let Some(password) = &credential.user_password {
            user_password(denial, &own, password);
        }
        if credential.ssh_public_key.is_some() == credential.user_password.is_some() {
            denial.invalid(&own, format!("{own} must have exactly one access credential type set"));
        }
    }
}

fn ssh_key(denial: &mut Denial, at: &FieldPath, key: &SshPublicKeyAccessCredential, spec: &VirtualMachineInstanceSpec) {
    let method_at = below(at, "sshPublicKey.propagationMethod");
    let method = &key.propagation_method;
    let needs = |denial: &mut Denial, is_there: bool, name: &str| {
        if !is_there {
            let message =
                format!("{at} requires a {name} volume to exist when the {name} propagationMethod is in use.");
            denial.invalid(&method_at, message);
        }
    };
    if method.no_cloud.is_some() {
        needs(denial, spec.volumes.iter().any(|volume| volume.cloud_init_no_cloud.is_some()), "noCloud");
    }
    if method.config_drive.is_some() {
        needs(denial, spec.volumes.iter().any(|volume| volume.cloud_init_config_drive.is_some()), "configDrive");
    }
    if method.qemu_guest_agent.as_ref().is_some_and(|agent| agent.users.is_empty()) {
        let message = format!("{at} requires at least one user to be present in the users list");
        denial.invalid(&below(&method_at, "qemuGuestAgent.users"), message);
    }
    if key.source.secret.is_none() {
        denial.invalid(&below(at, "sshPublicKey.source"), format!("{at} must have exactly one source set"));
    }
    let methods = [method.no_cloud.is_some(), method.config_drive.is_some(), method.qemu_guest_agent.is_some()];
    if methods.into_iter().filter(|is_set| *is_set).count() != 1 {
        denial.invalid(&method_at, format!("{at} must have exactly one propagationMethod set"));
    }
}

fn user_password(denial: &mut Denial, at: &FieldPath, password: &UserPasswordAccessCredential) {
    if password.source.secret.is_none() {
        denial.invalid(&below(at, "userPassword.source"), format!("{at} must have exactly one source set"));
    }
    if password.propagation_method.qemu_guest_agent.is_none() {
        let field = below(at, "userPassword.propagationMethod");
        denial.invalid(&field, format!("{at} must have exactly one propagationMethod set"));
    }
}
