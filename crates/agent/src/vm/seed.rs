//! Volumes whose content is in the API: cloud-init's data, secrets, config maps and the like, as small CDs in memory.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use croft_api::kubevirt::{
    ANNOTATION_CLUSTER_INSTANCETYPE, ANNOTATION_INSTANCETYPE, CloudInitConfigDriveSource, CloudInitNoCloudSource,
    VirtualMachineInstance, Volume,
};
use croft_reconcile::failure::{absent_is_none, message};
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{ConfigMap, DownwardAPIVolumeFile, LocalObjectReference, Secret, ServiceAccount};
use kube::api::PostParams;
use kube::{Api, Client};

use super::host::Lacking;
use super::machine::{interface_mac, machine_uuid};
use crate::cloud_init::{Layout, Seed, Tagged, hostname};
use crate::iso;

/// How long a service account's token on a CD is good for: nobody renews it there.
const TOKEN_SECONDS: i64 = 365 * 24 * 3600;
const DATA_LABEL: &str = "cfgdata";
const SYSPREP_LABEL: &str = "sysprep";

/// The CD of a volume, or None if its content is not from the API.
pub(super) async fn image(
    client: &Client,
    vmi: &VirtualMachineInstance,
    volume: &Volume,
) -> Result<Option<Vec<u8>>, Lacking> {
    let reader = Reader { client, namespace: vmi.metadata.namespace.as_deref().unwrap_or_default() };
    let (label, files) = if let Some(source) = &volume.cloud_init_no_cloud {
        let seed = reader.seed(vmi, &Source::from(source), Layout::NoCloud).await?;
        (Layout::NoCloud.label(), Layout::NoCloud.files(&seed))
    } else if let Some(source) = &volume.cloud_init_config_drive {
        let seed = reader.seed(vmi, &Source::from(source), Layout::ConfigDrive).await?;
        (Layout::ConfigDrive.label(), Layout::ConfigDrive.files(&seed))
    } else if let Some(source) = &volume.sysprep {
        let files = match (&source.secret, &source.config_map) {
            (Some(secret), _) => reader.secret(&secret.name, false).await?,
            (None, Some(map)) => reader.config_map(&map.name, false).await?,
            (None, None) => return Err(Lacking::ever(format!("volume {}: sysprep names no source", volume.name))),
        };
        (SYSPREP_LABEL, files.into_iter().collect())
    } else if let Some(source) = &volume.secret {
        let name = source.secret_name.as_deref().unwrap_or_default();
        let files = reader.secret(name, source.optional == Some(true)).await?;
        (source.volume_label.as_deref().unwrap_or(DATA_LABEL), files.into_iter().collect())
    } else if let Some(source) = &volume.config_map {
        let name = source.name.as_deref().unwrap_or_default();
        let files = reader.config_map(name, source.optional == Some(true)).await?;
        (source.volume_label.as_deref().unwrap_or(DATA_LABEL), files.into_iter().collect())
    } else if let Some(source) = &volume.service_account {
        (DATA_LABEL, reader.service_account(source.service_account_name.as_deref().unwrap_or("default")).await?)
    } else if let Some(source) = &volume.downward_api {
        (source.volume_label.as_deref().unwrap_or(DATA_LABEL), downward(vmi, &source.fields)?)
    } else {
        return Ok(None);
    };
    let made = iso::image(label, &files);
    made.map(Some).map_err(|error| Lacking::ever(format!("volume {}: {error}", volume.name)))
}

/// The fields that both layouts have.
struct Source<'a> {
    secret: Option<&'a LocalObjectReference>,
    user: (Option<&'a str>, Option<&'a str>),
    network_secret: Option<&'a LocalObjectReference>,
    network: (Option<&'a str>, Option<&'a str>),
}

impl<'a> From<&'a CloudInitNoCloudSource> for Source<'a> {
    fn from(source: &'a CloudInitNoCloudSource) -> Self {
        Source {
            secret: source.secret_ref.as_ref(),
            user: (source.user_data.as_deref(), source.user_data_base64.as_deref()),
            network_secret: source.network_data_secret_ref.as_ref(),
            network: (source.network_data.as_deref(), source.network_data_base64.as_deref()),
        }
    }
}

impl<'a> From<&'a CloudInitConfigDriveSource> for Source<'a> {
    fn from(source: &'a CloudInitConfigDriveSource) -> Self {
        Source {
            secret: source.secret_ref.as_ref(),
            user: (source.user_data.as_deref(), source.user_data_base64.as_deref()),
            network_secret: source.network_data_secret_ref.as_ref(),
            network: (source.network_data.as_deref(), source.network_data_base64.as_deref()),
        }
    }
}

type Files = BTreeMap<String, Vec<u8>>;

struct Reader<'a> {
    client: &'a Client,
    namespace: &'a str,
}

impl Reader<'_> {
    async fn seed(&self, vmi: &VirtualMachineInstance, source: &Source<'_>, layout: Layout) -> Result<Seed, Lacking> {
        let mut user_data = inline("userData", source.user)?;
        let mut network_data = inline("networkData", source.network)?;
        if let Some(reference) = source.secret.filter(|reference| !reference.name.is_empty()) {
            let mut files = self.secret(&reference.name, false).await?;
            // A secret may hold both; what is written in the volume itself counts more.
            user_data = user_data.or_else(|| either(&mut files, ["userdata", "userData"]));
            network_data = network_data.or_else(|| either(&mut files, ["networkdata", "networkData"]));
        }
        if let Some(reference) = source.network_secret.filter(|reference| !reference.name.is_empty()) {
            let mut files = self.secret(&reference.name, false).await?;
            network_data = network_data.or_else(|| either(&mut files, ["networkdata", "networkData"]));
        }
        let name = vmi.metadata.name.as_deref().unwrap_or_default();
        let annotation = |key: &str| vmi.metadata.annotations.as_ref().and_then(|all| all.get(key).cloned());
        Ok(Seed {
            user_data: user_data.unwrap_or_default(),
            network_data: network_data.filter(|data| !data.is_empty()),
            instance_id: format!("{name}.{}", self.namespace),
            hostname: hostname(vmi.spec.hostname.as_deref().filter(|name| !name.is_empty()).unwrap_or(name)),
            uuid: machine_uuid(vmi).to_string(),
            public_keys: self.public_keys(vmi, layout).await?,
            instance_type: annotation(ANNOTATION_INSTANCETYPE).or_else(|| annotation(ANNOTATION_CLUSTER_INSTANCETYPE)),
            tagged: tagged(vmi),
        })
    }

    /// The keys that are to reach the guest by its seed; others go through its agent.
    async fn public_keys(&self, vmi: &VirtualMachineInstance, layout: Layout) -> Result<Vec<String>, Lacking> {
        let mut keys = Vec::new();
        for credential in vmi.spec.access_credentials.iter().filter_map(|one| one.ssh_public_key.as_ref()) {
            let method = &credential.propagation_method;
            let is_ours = match layout {
                Layout::NoCloud => method.no_cloud.is_some(),
                Layout::ConfigDrive => method.config_drive.is_some(),
            };
            let Some(secret) = credential.source.secret.as_ref().filter(|_| is_ours) else { continue };
            for content in self.secret(&secret.secret_name, false).await?.into_values() {
                let text = String::from_utf8_lossy(&content);
                keys.extend(text.lines().map(str::trim).filter(|line| !line.is_empty()).map(str::to_owned));
            }
        }
        Ok(keys)
    }

    async fn get<K>(&self, kind: &'static str, name: &str, is_optional: bool) -> Result<Option<K>, Lacking>
    where
        K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()>
            + Clone
            + std::fmt::Debug
            + serde::de::DeserializeOwned,
    {
        let found = absent_is_none(Api::<K>::namespaced(self.client.clone(), self.namespace).get(name).await);
        match found {
            Ok(None) if !is_optional => Err(Lacking::Yet {
                reason: "FailedMount",
                message: format!("{kind} {}/{name} does not exist", self.namespace),
            }),
            Ok(found) => Ok(found),
            Err(error) => Err(Lacking::Yet {
                reason: "FailedMount",
                message: format!("{kind} {}/{name}: {}", self.namespace, message(&error)),
            }),
        }
    }

    async fn secret(&self, name: &str, is_optional: bool) -> Result<Files, Lacking> {
        let secret: Option<Secret> = self.get("Secret", name, is_optional).await?;
        let data = secret.unwrap_or_default().data.unwrap_or_default();
        Ok(data.into_iter().map(|(key, value)| (key, value.0)).collect())
    }

    async fn config_map(&self, name: &str, is_optional: bool) -> Result<Files, Lacking> {
        let map: ConfigMap = self.get("ConfigMap", name, is_optional).await?.unwrap_or_default();
        let text = map.data.unwrap_or_default().into_iter().map(|(key, value)| (key, value.into_bytes()));
        let binary = map.binary_data.unwrap_or_default().into_iter().map(|(key, value)| (key, value.0));
        Ok(text.chain(binary).collect())
    }

    /// As a pod finds its account: token, authority, namespace.
    async fn service_account(&self, name: &str) -> Result<Vec<(String, Vec<u8>)>, Lacking> {
        let request = TokenRequest {
            spec: TokenRequestSpec { expiration_seconds: Some(TOKEN_SECONDS), ..TokenRequestSpec::default() },
            ..TokenRequest::default()
        };
        let accounts: Api<ServiceAccount> = Api::namespaced(self.client.clone(), self.namespace);
        let answer = accounts.create_token_request(name, &PostParams::default(), &request).await;
        let answer = answer.map_err(|error| Lacking::Yet {
            reason: "FailedMount",
            message: format!("ServiceAccount {}/{name}: {}", self.namespace, message(&error)),
        })?;
        let token = answer.status.map(|status| status.token).unwrap_or_default();
        let mut authority = self.config_map("kube-root-ca.crt", true).await?;
        let mut files = vec![
            ("namespace".to_owned(), self.namespace.as_bytes().to_vec()),
            ("token".to_owned(), token.into_bytes()),
        ];
        files.extend(authority.remove("ca.crt").map(|content| ("ca.crt".to_owned(), content)));
        Ok(files)
    }
}

/// Disks and interfaces that have a tag.
fn tagged(vmi: &VirtualMachineInstance) -> Vec<Tagged> {
    let devices = &vmi.spec.domain.devices;
    let given = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
    let disks = devices
        .disks
        .iter()
        .filter_map(|disk| Some(Tagged::Disk { serial: given(&disk.serial)?, tag: given(&disk.tag)? }));
    let nics = devices.interfaces.iter().filter_map(|interface| {
        let mac = interface_mac(vmi, interface).ok()?.to_string();
        Some(Tagged::Nic { mac, tag: given(&interface.tag)? })
    });
    disks.chain(nics).collect()
}

fn either(files: &mut Files, names: [&str; 2]) -> Option<Vec<u8>> {
    names.into_iter().find_map(|name| files.remove(name))
}

fn inline(what: &str, (plain, encoded): (Option<&str>, Option<&str>)) -> Result<Option<Vec<u8>>, Lacking> {
    if let Some(text) = plain.filter(|text| !text.is_empty()) {
        return Ok(Some(text.as_bytes().to_vec()));
    }
    let Some(text) = encoded.filter(|text| !text.is_empty()) else { return Ok(None) };
    let decoded = BASE64.decode(text.trim());
    decoded.map(Some).map_err(|error| Lacking::ever(format!("{what}Base64 is not base64: {error}")))
}

/// Fields of the object itself.
fn downward(vmi: &VirtualMachineInstance, fields: &[DownwardAPIVolumeFile]) -> Result<Vec<(String, Vec<u8>)>, Lacking> {
    let meta = &vmi.metadata;
    let list = |map: Option<&BTreeMap<String, String>>| {
        let lines = map.into_iter().flatten().map(|(key, value)| format!("{key}={value:?}"));
        lines.collect::<Vec<_>>().join("\n")
    };
    let one = |map: Option<&BTreeMap<String, String>>, key: &str| {
        map.and_then(|map| map.get(key).cloned()).unwrap_or_default()
    };
    fields
        .iter()
        .map(|file| {
            let path = file.field_ref.as_ref().map(|field| field.field_path.as_str()).unwrap_or_default();
            let subscript = |prefix: &str| path.strip_prefix(prefix)?.strip_prefix("['")?.strip_suffix("']");
            let value = match path {
                "metadata.name" => meta.name.clone().unwrap_or_default(),
                "metadata.namespace" => meta.namespace.clone().unwrap_or_default(),
                "metadata.uid" => meta.uid.clone().unwrap_or_default(),
                "metadata.labels" => list(meta.labels.as_ref()),
                "metadata.annotations" => list(meta.annotations.as_ref()),
                _ => {
                    if let Some(key) = subscript("metadata.labels") {
                        one(meta.labels.as_ref(), key)
                    } else if let Some(key) = subscript("metadata.annotations") {
                        one(meta.annotations.as_ref(), key)
                    } else {
                        return Err(Lacking::ever(format!("downwardAPI: {path:?} is not a field that can be shown")));
                    }
                }
            };
            Ok((file.path.clone(), value.into_bytes()))
        })
        .collect()
}
