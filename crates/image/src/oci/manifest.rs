//! Manifests: which layers an image has, for which kind of machine.

use serde::Deserialize;

use super::PullError;
use super::reference::{Reference, is_digest};
use super::session::Session;
use crate::checksum::{Checksum, sha256};

const ACCEPTED: &str = "application/vnd.oci.image.index.v1+json, application/vnd.oci.image.manifest.v1+json, \
    application/vnd.docker.distribution.manifest.list.v2+json, application/vnd.docker.distribution.manifest.v2+json";

/// Real ones have a few thousand bytes.
const LONGEST: usize = 4 << 20;
const MOST_LAYERS: usize = 256;

/// As registries call them: `linux`, `amd64`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Platform {
    pub os: String,
    pub architecture: String,
}

impl Default for Platform {
    /// This host's.
    fn default() -> Self {
        let architecture = match std::env::consts::ARCH {
            "x86_64" => "amd64",
            "aarch64" => "arm64",
            other => other,
        };
        Self { os: "linux".to_owned(), architecture: architecture.to_owned() }
    }
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct Descriptor {
    pub(super) digest: String,
    #[serde(default)]
    platform: Option<Platform>,
}

impl Descriptor {
    pub(super) fn checksum(&self) -> Result<Checksum, PullError> {
        let parsed = Some(&self.digest).filter(|digest| is_digest(digest)).and_then(|digest| digest.parse().ok());
        parsed.ok_or_else(|| PullError::Protocol("a digest that is none".to_owned()))
    }
}

/// A list of images or an image.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Document {
    #[serde(default)]
    schema_version: u32,
    manifests: Option<Vec<Descriptor>>,
    layers: Option<Vec<Descriptor>>,
}

/// The digest of what the reference names, and the layers of the image for the platform.
pub(super) async fn resolve(
    session: &mut Session,
    reference: &Reference,
    platform: &Platform,
) -> Result<(String, Vec<Descriptor>), PullError> {
    let (digest, document) = get(session, reference.target(), reference.digest()).await?;
    let document = match document.manifests {
        None => document,
        Some(manifests) => {
            let chosen = choose(&manifests, platform)?;
            get(session, &chosen.digest, Some(&chosen.digest)).await?.1
        }
    };
    let layers = document.layers.filter(|_| document.schema_version == 2);
    let layers = layers.ok_or_else(|| PullError::Protocol("a manifest of an unknown kind".to_owned()))?;
    if layers.len() > MOST_LAYERS {
        return Err(PullError::Protocol("an image of too many layers".to_owned()));
    }
    Ok((digest, layers))
}

fn choose<'a>(manifests: &'a [Descriptor], platform: &Platform) -> Result<&'a Descriptor, PullError> {
    let fits = |manifest: &&Descriptor| manifest.platform.as_ref() == Some(platform);
    let any = |manifest: &&Descriptor| manifest.platform.is_none();
    let chosen = manifests.iter().find(fits).or_else(|| manifests.iter().find(any));
    let chosen = chosen.filter(|manifest| is_digest(&manifest.digest));
    chosen.ok_or_else(|| PullError::NotFound(format!("image for {}/{}", platform.os, platform.architecture)))
}

/// Whether a document is a manifest, of this host's kind if it is a list. For `croft-fuzz`.
pub(super) fn understood(body: &[u8]) -> bool {
    let Ok(document) = serde_json::from_slice::<Document>(body) else { return false };
    let layers = document.layers.iter().flatten().all(|layer| layer.checksum().is_ok());
    let chosen = document.manifests.as_deref().map(|manifests| choose(manifests, &Platform::default()));
    layers && chosen.is_none_or(|chosen| chosen.is_ok_and(|chosen| chosen.checksum().is_ok()))
}

async fn get(session: &mut Session, target: &str, expected: Option<&str>) -> Result<(String, Document), PullError> {
    let body = session.get(&format!("manifests/{target}"), ACCEPTED, LONGEST).await?;
    let digest = sha256(&body).to_string();
    if let Some(expected) = expected.filter(|expected| expected.starts_with("sha256:") && **expected != digest) {
        return Err(PullError::Digest { expected: expected.to_owned(), actual: digest });
    }
    let document = serde_json::from_slice(&body);
    let document = document.map_err(|error| PullError::Protocol(format!("a manifest that is none: {error}")))?;
    Ok((digest, document))
}
