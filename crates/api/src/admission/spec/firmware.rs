//! The board and its firmware.

use croft_meta::FieldPath;

use super::text;
use crate::admission::denial::{Denial, below};
use crate::kubevirt::{KernelBoot, VirtualMachineInstanceSpec};

/// What QEMU offers on amd64.
const BOARDS: &str = "[q35* pc-q35* pc pc-i440fx*]";

pub(super) fn check(denial: &mut Denial, at: &FieldPath, spec: &VirtualMachineInstanceSpec) {
    let domain_at = below(at, "domain");
    let board = spec.domain.machine.as_ref().map(|machine| text(machine.type_.as_ref())).unwrap_or_default();
    if !is_board(board, text(spec.architecture.as_ref())) {
        let field = below(&domain_at, "machine.type");
        denial.invalid(&field, format!("{field} is not supported: {board} (allowed values: {BOARDS})"));
    }
    let Some(firmware) = &spec.domain.firmware else { return };
    let loader = firmware.bootloader.as_ref();
    if loader.is_some_and(|loader| loader.efi.is_some() && loader.bios.is_some()) {
        let field = below(&domain_at, "firmware.bootloader");
        denial.invalid(&field, format!("{field} has both EFI and BIOS configured, but they are mutually exclusive."));
    }
    let has_secure_boot =
        loader.and_then(|loader| loader.efi.as_ref()).is_some_and(|efi| efi.secure_boot != Some(false));
    let has_smm = spec
        .domain
        .features
        .as_ref()
        .and_then(|features| features.smm.as_ref())
        .is_some_and(|smm| smm.enabled != Some(false));
    if has_secure_boot && !has_smm {
        let message =
            format!("{domain_at} has EFI SecureBoot enabled. SecureBoot requires SMM, which is currently disabled.");
        denial.invalid(&domain_at, message);
    }
    let uuid = text(firmware.uuid.as_ref());
    if !uuid.is_empty() && !is_uuid(uuid) {
        let field = below(&domain_at, "firmware.uuid");
        denial.invalid(&field, format!("{field} '{uuid}' is not a UUID"));
    }
    if let Some(boot) = &firmware.kernel_boot {
        kernel(denial, &below(&domain_at, "firmware.kernelBoot"), boot);
    }
}

fn is_board(name: &str, architecture: &str) -> bool {
    if architecture == "arm64" {
        return name.is_empty() || name.starts_with("virt");
    }
    matches!(name, "" | "pc") || ["q35", "pc-q35", "pc-i440fx"].iter().any(|prefix| name.starts_with(prefix))
}

fn is_uuid(text: &str) -> bool {
    let groups: Vec<&str> = text.split('-').collect();
    groups.iter().map(|group| group.len()).eq([8, 4, 4, 4, 12])
        && groups.iter().all(|group| group.bytes().all(|b| b.is_ascii_hexdigit()))
}

fn kernel(denial: &mut Denial, at: &FieldPath, boot: &KernelBoot) {
    let Some(container) = &boot.container else {
        if !text(boot.kernel_args.as_ref()).is_empty() {
            let message = "kernel arguments cannot be provided without an external kernel";
            denial.invalid(&at.child("kernelArgs"), message);
        }
        return;
    };
    let own = at.child("container");
    if container.image.is_empty() {
        denial.required(&own.child("image"), format!("{own} must be defined with an image"));
    }
    let (kernel, initrd) = (text(container.kernel_path.as_ref()), text(container.initrd_path.as_ref()));
    if kernel.is_empty() && initrd.is_empty() {
        let message = format!("{own} must be defined with at least one of the following: kernelPath, initrdPath");
        denial.required(&own, message);
    }
    for (name, path) in [("kernelPath", kernel), ("initrdPath", initrd)] {
        absolute_path(denial, &own.child(name), path);
    }
}

/// A file inside an image; nothing may lead out of it.
pub(super) fn absolute_path(denial: &mut Denial, field: &FieldPath, path: &str) {
    if path.is_empty() {
        return;
    }
    if path == "/" {
        denial.invalid(field, format!("{field} must not point to root"));
        return;
    }
    let inside = path.strip_suffix('/').unwrap_or(path).strip_prefix('/');
    let is_plain = |inside: &str| inside.split('/').all(|part| !matches!(part, "" | "." | ".."));
    if !inside.is_some_and(is_plain) {
        denial.invalid(field, format!("{field} must be an absolute path to a file without relative components"));
    }
}
