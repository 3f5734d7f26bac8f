//! The public keys that tokens are checked with.

use std::fmt;
use std::path::Path;

use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
use jsonwebtoken::DecodingKey;
use rcgen::{KeyPair, PublicKeyData};
use rustls::pki_types::{SubjectPublicKeyInfoDer, pem::PemObject};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::{Result, ca, file};

/// Public keys that sign no more but still verify, as PEM blocks one after the other.
pub(super) const RETIRED: &str = "sa-retired.pub";

/// An uncompressed point: 4, x, y.
const POINT_LENGTH: usize = 65;

#[derive(Clone)]
pub(super) struct VerifyingKey {
    /// The `kid`, made as upstream makes it: the hash of the encoded key.
    pub(super) id: String,
    pub(super) key: DecodingKey,
    x: String,
    y: String,
    spki: Vec<u8>,
}

impl fmt::Debug for VerifyingKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VerifyingKey").field("id", &self.id).finish_non_exhaustive()
    }
}

impl VerifyingKey {
    pub(super) fn of(pair: &KeyPair) -> Self {
        Self::new(pair.subject_public_key_info(), pair.public_key_raw())
            .expect("a P-256 key pair has an uncompressed point as its public key")
    }

    fn new(spki: Vec<u8>, point: &[u8]) -> Option<Self> {
        if point.len() != POINT_LENGTH || point[0] != 4 {
            return None;
        }
        let (x, y) = point[1..].split_at(32);
        let (x, y) = (BASE64_URL_SAFE_NO_PAD.encode(x), BASE64_URL_SAFE_NO_PAD.encode(y));
        let key = DecodingKey::from_ec_components(&x, &y).ok()?;
        let id = BASE64_URL_SAFE_NO_PAD.encode(Sha256::digest(&spki));
        Some(Self { id, key, x, y, spki })
    }

    pub(super) fn pem(&self) -> String {
        ca::pem("PUBLIC KEY", &self.spki)
    }

    pub(super) fn jwk(&self) -> Value {
        json!({ "use": "sig", "kty": "EC", "kid": self.id, "crv": "P-256", "alg": "ES256", "x": self.x, "y": self.y })
    }
}

pub(super) fn retired(path: &Path) -> Result<Vec<VerifyingKey>> {
    let Some(pem) = file::read(path)? else { return Ok(Vec::new()) };
    SubjectPublicKeyInfoDer::pem_slice_iter(pem.as_bytes())
        .map(|der| {
            let der = der.map_err(|err| file::damaged(path, &err))?;
            let spki = rcgen::SubjectPublicKeyInfo::from_der(&der).map_err(|err| file::damaged(path, &err))?;
            VerifyingKey::new(der.to_vec(), spki.der_bytes())
                .ok_or_else(|| file::damaged(path, &"it holds a key that is not ECDSA P-256"))
        })
        .collect()
}
