//! Service-account tokens: JSON web tokens signed with ES256, in the two shapes that Kubernetes knows.
//!
//! - *Bound* tokens come from `TokenRequest`: they expire, name their audience, and may be tied to a pod, secret or node.
//! - *Legacy* tokens live in Secrets of type `kubernetes.io/service-account-token` and do not expire.
//!
//! This module vouches for signature, issuer, times and audience. Whether the account and the object that a token is
//! bound to still exist is for the API server to look up (as `pkg/serviceaccount` upstream does).

use std::path::Path;
use std::time::Duration;

use jiff::Timestamp;
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use rcgen::KeyPair;
use serde_json::{Value, json};

use crate::{Error, Result, Secret, ca, file};

pub use self::claims::{BoundObject, Claims, KubernetesClaims, ObjectRef};
pub use self::upload::UploadTarget;
pub use self::verify::{TokenError, VerifiedToken};

mod claims;
mod keys;
#[cfg(test)]
mod tests;
mod upload;
mod verify;

use self::claims::LegacyClaims;
use self::keys::VerifyingKey;

/// Who issues bound tokens; also their audience unless another is asked for.
pub const ISSUER: &str = "https://kubernetes.default.svc";
/// Who issues tokens kept in Secrets.
pub const LEGACY_ISSUER: &str = "kubernetes/serviceaccount";
/// Where the keys are served.
pub const JWKS_PATH: &str = "/openid/v1/jwks";

/// What a bound token is to say.
#[derive(Clone, Debug)]
pub struct TokenRequest {
    pub namespace: String,
    pub service_account: ObjectRef,
    /// At least one; [`ISSUER`] is the API server itself.
    pub audiences: Vec<String>,
    pub lifetime: Duration,
    pub bound_to: Option<BoundObject>,
    /// For tokens that outlive what was asked for: when to start counting their use as stale.
    pub warn_after: Option<Duration>,
}

/// Mints and verifies tokens with the key `sa.key`, and verifies with the retired keys in `sa-retired.pub`.
#[derive(Debug)]
pub struct TokenSigner {
    signing: SigningKey,
    /// The signing key's public half first, then retired ones.
    verifying: Vec<VerifyingKey>,
}

struct SigningKey(EncodingKey);

impl std::fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("***")
    }
}

impl TokenSigner {
    /// Opens the keys in `dir` (created if missing), making one on the first start.
    pub fn load_or_create(dir: &Path) -> Result<Self> {
        file::create_dir(dir)?;
        let path = dir.join("sa.key");
        let Some(pem) = file::read(&path)? else {
            let key = ca::generate_key("service accounts")?;
            file::write(&path, &key.serialize_pem(), file::PRIVATE)?;
            return Self::new(&key, dir);
        };
        let key = KeyPair::from_pem(&pem).map_err(|err| file::damaged(&path, &err))?;
        if key.algorithm() != &rcgen::PKCS_ECDSA_P256_SHA256 {
            return Err(file::damaged(&path, &"it is not an ECDSA P-256 key"));
        }
        Self::new(&key, dir)
    }

    /// Signs with a new key from now on; tokens signed with the old ones stay good.
    pub fn rotate(self, dir: &Path) -> Result<Self> {
        let retired: String = self.verifying.iter().map(VerifyingKey::pem).collect();
        // Retired first: dying in between leaves the old key in use and listed twice, which is harmless.
        file::write(&dir.join(keys::RETIRED), &retired, file::PUBLIC)?;
        let key = ca::generate_key("service accounts")?;
        file::write(&dir.join("sa.key"), &key.serialize_pem(), file::PRIVATE)?;
        Self::new(&key, dir)
    }

    fn new(key: &KeyPair, dir: &Path) -> Result<Self> {
        let current = VerifyingKey::of(key);
        let mut verifying = keys::retired(&dir.join(keys::RETIRED))?;
        verifying.retain(|retired| retired.id != current.id);
        verifying.insert(0, current);
        Ok(Self { signing: SigningKey(EncodingKey::from_ec_der(key.serialized_der())), verifying })
    }

    /// A bound token and when it expires. `id` becomes its `jti` and must be unique (a UUID).
    pub fn mint(&self, request: &TokenRequest, id: &str, now: Timestamp) -> Result<(Secret, Timestamp)> {
        let expires = seconds_after(now, request.lifetime)?;
        let warn_after = request.warn_after.map(|after| seconds_after(now, after)).transpose()?;
        let claims = Claims::bound(request, id, now, expires, warn_after);
        Ok((self.sign(&claims)?, expires))
    }

    /// A token for a Secret; it is good for as long as the Secret holds it.
    pub fn mint_legacy(&self, namespace: &str, service_account: &ObjectRef, secret_name: &str) -> Result<Secret> {
        self.sign(&LegacyClaims::new(namespace, service_account, secret_name))
    }

    fn sign(&self, claims: &impl serde::Serialize) -> Result<Secret> {
        let mut header = Header::new(Algorithm::ES256);
        // Upstream's header is `alg` and `kid`, without `typ`.
        header.typ = None;
        header.kid = Some(self.verifying[0].id.clone());
        jsonwebtoken::encode(&header, claims, &self.signing.0).map(Secret::from).map_err(Error::Sign)
    }

    /// Checks signature, issuer, times and audience. `audiences` are those that the verifier accepts; empty means the
    /// API server itself.
    pub fn verify(&self, token: &str, audiences: &[String], now: Timestamp) -> Result<VerifiedToken, TokenError> {
        verify::verify(&self.verifying, token, audiences, now)
    }

    /// The public keys, as served at [`JWKS_PATH`].
    pub fn jwks(&self) -> Value {
        json!({ "keys": self.verifying.iter().map(VerifyingKey::jwk).collect::<Vec<_>>() })
    }

    /// The document at `/.well-known/openid-configuration`. `base_url` is where this server is reached from outside.
    pub fn discovery(&self, base_url: &str) -> Value {
        json!({
            "issuer": ISSUER,
            "jwks_uri": format!("{}{JWKS_PATH}", base_url.trim_end_matches('/')),
            "response_types_supported": ["id_token"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": ["ES256"],
        })
    }
}

fn seconds_after(now: Timestamp, duration: Duration) -> Result<Timestamp> {
    let end = now.checked_add(duration).map_err(|err| Error::Time(err.to_string()))?;
    Timestamp::from_second(end.as_second()).map_err(|err| Error::Time(err.to_string()))
}
