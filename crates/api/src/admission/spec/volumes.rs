//! Volumes: what is behind disks.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use croft_meta::FieldPath;

use super::firmware::absolute_path;
use super::text;
use crate::admission::denial::{Denial, below};
use crate::amount;
use crate::kubevirt::{
    CloudInitConfigDriveSource, CloudInitNoCloudSource, HostDisk, VirtualMachineInstanceSpec, Volume,
};

/// More than this belongs into a Secret: machines are sent around whole.
const LONGEST_SEED: usize = 2048;

pub(super) fn check(denial: &mut Denial, at: &FieldPath, spec: &VirtualMachineInstanceSpec) {
    let list_at = below(at, "volumes");
    for (index, volume) in spec.volumes.iter().enumerate() {
        let own = list_at.index(index);
        if let Some(other) = spec.volumes[..index].iter().position(|other| other.name == volume.name) {
            let message = format!("{own} and {} must not have the same Name.", list_at.index(other));
            denial.invalid(&own.child("name"), message);
        }
        if sources(volume).filter(|is_set| *is_set).count() != 1 {
            denial.invalid(&own, format!("{own} must have exactly one source type set"));
        }
        seeds(denial, &own, volume);
        names(denial, &own, volume);
        if let Some(disk) = &volume.host_disk {
            host_disk(denial, &own.child("hostDisk"), disk);
        }
        if let Some(disk) = &volume.container_disk {
            absolute_path(denial, &own.child("containerDisk"), text(disk.path.as_ref()));
            if disk.image.is_empty() {
                denial.required(&below(&own, "containerDisk.image"), "containerDisk 'image' must be set");
            }
            let policy = text(disk.image_pull_policy.as_ref());
            if !matches!(policy, "" | "Always" | "IfNotPresent" | "Never") {
                let field = below(&own, "containerDisk.imagePullPolicy");
                denial.invalid(&field, format!("{field} has invalid value {policy}"));
            }
        }
        if volume.empty_disk.as_ref().is_some_and(|disk| amount::value(&disk.capacity) <= 0) {
            denial.invalid(&below(&own, "emptyDisk.capacity"), "emptyDisk 'capacity' must be greater than zero");
        }
        if volume.ephemeral.as_ref().is_some_and(|source| source.persistent_volume_claim.is_none()) {
            denial.invalid(&own, format!("{own} must have exactly one source type set"));
        }
    }
    for (count, name) in [
        (spec.volumes.iter().filter(|volume| volume.service_account.is_some()).count(), "serviceAccount"),
        (spec.volumes.iter().filter(|volume| volume.memory_dump.is_some()).count(), "memory dump"),
    ] {
        if count > 1 {
            denial.invalid(&list_at, format!("{list_at} must have max one {name} volume set"));
        }
    }
}

fn sources(volume: &Volume) -> impl Iterator<Item = bool> {
    [
        volume.host_disk.is_some(),
        volume.persistent_volume_claim.is_some(),
        volume.cloud_init_no_cloud.is_some(),
        volume.cloud_init_config_drive.is_some(),
        volume.sysprep.is_some(),
        volume.container_disk.is_some(),
        volume.ephemeral.is_some(),
        volume.empty_disk.is_some(),
        volume.data_volume.is_some(),
        volume.config_map.is_some(),
        volume.secret.is_some(),
        volume.downward_api.is_some(),
        volume.service_account.is_some(),
        volume.downward_metrics.is_some(),
        volume.memory_dump.is_some(),
        volume.container_path.is_some(),
    ]
    .into_iter()
}

/// The volumes of an instance are all shown by something.
pub(super) fn check_shown(denial: &mut Denial, at: &FieldPath, spec: &VirtualMachineInstanceSpec) {
    let devices = &spec.domain.devices;
    for (index, volume) in spec.volumes.iter().enumerate() {
        let is_shown = devices.disks.iter().any(|disk| disk.name == volume.name)
            || devices.filesystems.iter().any(|filesystem| filesystem.name == volume.name);
        if volume.memory_dump.is_none() && !is_shown {
            let field = below(at, "domain.volumes").index(index).child("name");
            denial.invalid(&field, format!("{field} '{}' not found.", volume.name));
        }
    }
}

fn names(denial: &mut Denial, at: &FieldPath, volume: &Volume) {
    if volume.data_volume.as_ref().is_some_and(|source| source.name.is_empty()) {
        denial.required(&at.child("name"), "DataVolume 'name' must be set");
    }
    if volume.persistent_volume_claim.as_ref().is_some_and(|source| source.claim_name.is_empty()) {
        denial.required(&at.child("name"), "PersistentVolumeClaim 'claimName' must be set");
    }
    let required = [
        (volume.config_map.as_ref().map(|source| text(source.name.as_ref())), "configMap.name"),
        (volume.secret.as_ref().map(|source| text(source.secret_name.as_ref())), "secret.secretName"),
        (
            volume.service_account.as_ref().map(|source| text(source.service_account_name.as_ref())),
            "serviceAccount.serviceAccountName",
        ),
    ];
    for (name, path) in required {
        if name == Some("") {
            let field = below(at, path);
            denial.invalid(&field, format!("{field} is a required field"));
        }
    }
    if let Some(source) = &volume.sysprep {
        let given = [&source.secret, &source.config_map].into_iter().flatten().filter(|source| !source.name.is_empty());
        if given.count() != 1 {
            let field = at.child("sysprep");
            denial.invalid(&field, format!("{field} must have exactly one of secret and configMap set"));
        }
    }
}

fn host_disk(denial: &mut Denial, at: &FieldPath, disk: &HostDisk) {
    let path_at = at.child("path");
    if disk.path.is_empty() {
        denial.add("FieldValueNotFound", &path_at, format!("{path_at} is required for hostDisk volume"));
    }
    let type_at = at.child("type");
    if !matches!(disk.type_.as_str(), "Disk" | "DiskOrCreate") {
        let message = format!("{type_at} has invalid value '{}', allowed are 'Disk' or 'DiskOrCreate'", disk.type_);
        denial.invalid(&type_at, message);
    }
    if disk.type_ == "Disk" && !amount::is_zero(disk.capacity.as_ref()) {
        let field = at.child("capacity");
        denial.invalid(&field, format!("{field} is allowed to pass only with {type_at} equal to 'DiskOrCreate'"));
    }
}

/// One of the two texts of a cloud-init source.
struct Seed<'a> {
    plain: &'a str,
    base64: &'a str,
    secret: &'a str,
}

fn seeds(denial: &mut Denial, at: &FieldPath, volume: &Volume) {
    let name = |reference: &'_ Option<k8s_openapi::api::core::v1::LocalObjectReference>| {
        reference.as_ref().map(|reference| reference.name.clone()).unwrap_or_default()
    };
    let (kind, user, network, user_secret, network_secret) = if let Some(CloudInitNoCloudSource {
        secret_ref,
        user_data_base64,
        user_data,
        network_data_secret_ref,
        network_data_base64,
        network_data,
    }) = &volume.cloud_init_no_cloud
    {
        let user = (text(user_data.as_ref()), text(user_data_base64.as_ref()));
        let network = (text(network_data.as_ref()), text(network_data_base64.as_ref()));
        ("cloudInitNoCloud", user, network, name(secret_ref), name(network_data_secret_ref))
    } else if let Some(CloudInitConfigDriveSource {
        secret_ref,
        user_data_base64,
        user_data,
        network_data_secret_ref,
        network_data_base64,
        network_data,
    }) = &volume.cloud_init_config_drive
    {
        let user = (text(user_data.as_ref()), text(user_data_base64.as_ref()));
        let network = (text(network_data.as_ref()), text(network_data_base64.as_ref()));
        ("cloudInitConfigDrive", user, network, name(secret_ref), name(network_data_secret_ref))
    } else {
        return;
    };
    let own = at.child(kind);
    let user = Seed { plain: user.0, base64: user.1, secret: &user_secret };
    let network = Seed { plain: network.0, base64: network.1, secret: &network_secret };
    let given = seed(denial, &own, &user, ["userdatasource", "userdata", "UserDataSecretRef", "userDataBase64"])
        + seed(
            denial,
            &own,
            &network,
            ["networkdata source", "networkdata", "NetworkDataSecretRef", "networkDataBase64"],
        );
    if given == 0 {
        denial.invalid(&own, format!("{own} must have at least one userdatasource or one networkdatasource set."));
    }
}

/// How many ways the text is given in. `words`: the source, the text, the way out, the base64 field.
fn seed(denial: &mut Denial, at: &FieldPath, seed: &Seed<'_>, words: [&str; 4]) -> usize {
    let [source, data, way_out, base64_field] = words;
    let given = [seed.plain, seed.base64, seed.secret].into_iter().filter(|text| !text.is_empty()).count();
    let decoded = BASE64_STANDARD.decode(seed.base64);
    if decoded.is_err() {
        let field = at.child(base64_field);
        denial.invalid(&field, format!("{field} is not a valid base64 value."));
    }
    if given > 1 {
        denial.invalid(at, format!("{at} must have only one {source} set."));
    }
    let length = if seed.plain.is_empty() { decoded.map_or(0, |bytes| bytes.len()) } else { seed.plain.len() };
    if length > LONGEST_SEED {
        let message = format!("{at} {data} exceeds {LONGEST_SEED} byte limit. Should use {way_out} for larger data.");
        denial.invalid(at, message);
    }
    given
}
