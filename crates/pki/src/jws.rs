//! Tokens that others sign: a JWT in its three parts, and the public keys of its issuer as a JSON Web Key Set.
//!
//! Only signatures with a public key are known here. `none` and the HMACs are not algorithms at all, so that a token cannot
//! choose them, and a key is good for the algorithms of its own kind alone.

use std::fmt;

use aws_lc_rs::signature::{self as sig, RsaParameters, RsaPublicKeyComponents, UnparsedPublicKey};
use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
use serde::Deserialize;
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

/// Longer ones are not looked into. Those with hundreds of groups in them have some tens of KiB.
const MOST_BYTES: usize = 128 << 10;
/// Keys of a set that are kept. Issuers have a handful.
const MOST_KEYS: usize = 100;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JwsError {
    #[error("malformed jwt: {0}")]
    Malformed(&'static str),
    #[error("the key set is no JSON Web Key Set")]
    NoKeySet,
    #[error("failed to verify id token signature")]
    Signature,
}

/// What a token may be signed with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SigningAlgorithm {
    Rs256,
    Rs384,
    Rs512,
    Es256,
    Es384,
    Es512,
    Ps256,
    Ps384,
    Ps512,
    EdDsa,
}

impl SigningAlgorithm {
    pub const ALL: [Self; 10] = [
        Self::Rs256,
        Self::Rs384,
        Self::Rs512,
        Self::Es256,
        Self::Es384,
        Self::Es512,
        Self::Ps256,
        Self::Ps384,
        Self::Ps512,
        Self::EdDsa,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::Rs256 => "RS256",
            Self::Rs384 => "RS384",
            Self::Rs512 => "RS512",
            Self::Es256 => "ES256",
            Self::Es384 => "ES384",
            Self::Es512 => "ES512",
            Self::Ps256 => "PS256",
            Self::Ps384 => "PS384",
            Self::Ps512 => "PS512",
            Self::EdDsa => "EdDSA",
        }
    }

    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|algorithm| algorithm.name() == name)
    }

    fn rsa(self) -> Option<&'static RsaParameters> {
        Some(match self {
            Self::Rs256 => &sig::RSA_PKCS1_2048_8192_SHA256,
            Self::Rs384 => &sig::RSA_PKCS1_2048_8192_SHA384,
            Self::Rs512 => &sig::RSA_PKCS1_2048_8192_SHA512,
            Self::Ps256 => &sig::RSA_PSS_2048_8192_SHA256,
            Self::Ps384 => &sig::RSA_PSS_2048_8192_SHA384,
            Self::Ps512 => &sig::RSA_PSS_2048_8192_SHA512,
            _ => return None,
        })
    }
}

/// A token that nobody has checked yet.
#[derive(Clone)]
pub struct Jws<'a> {
    /// `alg` as the token says it, which may be none that is known.
    pub algorithm: String,
    kid: String,
    pub claims: Map<String, Value>,
    signed: &'a str,
    signature: Vec<u8>,
}

/// A token is a secret.
impl fmt::Debug for Jws<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Jws").field("algorithm", &self.algorithm).field("kid", &self.kid).finish_non_exhaustive()
    }
}

#[derive(Deserialize)]
struct Header {
    alg: String,
    #[serde(default)]
    kid: String,
    /// Extensions that must be understood; none is.
    crit: Option<Value>,
}

impl<'a> Jws<'a> {
    pub fn parse(token: &'a str) -> Result<Self, JwsError> {
        if token.len() > MOST_BYTES {
            return Err(JwsError::Malformed("it is too long"));
        }
        let (signed, signature) = token.rsplit_once('.').ok_or(JwsError::Malformed("it has not three parts"))?;
        let (header, payload) = signed.split_once('.').ok_or(JwsError::Malformed("it has not three parts"))?;
        let decode = |part: &str, why| BASE64_URL_SAFE_NO_PAD.decode(part).map_err(|_| JwsError::Malformed(why));
        let header = decode(header, "its header is no base64")?;
        let header: Header =
            serde_json::from_slice(&header).map_err(|_| JwsError::Malformed("its header is no header"))?;
        if header.crit.is_some() {
            return Err(JwsError::Malformed("its header has critical extensions"));
        }
        let payload = decode(payload, "its payload is no base64")?;
        let claims = serde_json::from_slice(&payload).map_err(|_| JwsError::Malformed("its payload is no object"))?;
        let signature = decode(signature, "its signature is no base64")?;
        Ok(Self { algorithm: header.alg, kid: header.kid, claims, signed, signature })
    }
}

/// The public keys of an issuer.
#[derive(Debug)]
pub struct KeySet {
    keys: Vec<VerifyingKey>,
}

#[derive(Debug)]
struct VerifyingKey {
    kid: String,
    /// The only one that the key is for, if it says so.
    algorithm: Option<SigningAlgorithm>,
    material: Material,
}

#[derive(Debug)]
enum Material {
    Rsa {
        n: Vec<u8>,
        e: Vec<u8>,
    },
    /// An uncompressed point, on the curve of the algorithm.
    Ec(SigningAlgorithm, Vec<u8>),
    Ed25519(Vec<u8>),
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Jwk {
    kty: String,
    kid: String,
    alg: Option<String>,
    r#use: Option<String>,
    crv: String,
    n: String,
    e: String,
    x: String,
    y: String,
}

/// Under which key of a Secret it is noted that the token of this id was revoked. Issuers choose ids as they like; a key of a
/// Secret has few characters to choose from.
#[must_use]
pub fn revocation_key(id: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    if id.len() <= 200 && id.bytes().all(is_plain) {
        format!("jti-{id}")
    } else {
        format!("jti-sha256-{}", crate::client_cert::hex(&Sha256::digest(id.as_bytes())))
    }
}

impl KeySet {
    /// Keys of kinds that are not known, and those for encryption, are left out. A set without any is one all the same: its
    /// issuer has withdrawn the keys that it had.
    pub fn parse(text: &[u8]) -> Result<Self, JwsError> {
        let document: Value = serde_json::from_slice(text).map_err(|_| JwsError::NoKeySet)?;
        let list = document["keys"].as_array().ok_or(JwsError::NoKeySet)?;
        let keys = list.iter().filter_map(|key| VerifyingKey::of(Jwk::deserialize(key).ok()?));
        Ok(Self { keys: keys.take(MOST_KEYS).collect() })
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Whether one of the keys made the signature; only those with the name that the token gives, if it gives one.
    pub fn verify(&self, token: &Jws<'_>, algorithm: SigningAlgorithm) -> Result<(), JwsError> {
        let named = self.keys.iter().filter(|key| token.kid.is_empty() || key.kid == token.kid);
        let mut usable = named.filter(|key| key.algorithm.is_none_or(|own| own == algorithm));
        let is_good = usable.any(|key| key.material.has_signed(token, algorithm));
        if is_good { Ok(()) } else { Err(JwsError::Signature) }
    }
}

impl VerifyingKey {
    fn of(jwk: Jwk) -> Option<Self> {
        if jwk.r#use.as_deref().is_some_and(|purpose| purpose != "sig") {
            return None;
        }
        let bytes = |text: &str| BASE64_URL_SAFE_NO_PAD.decode(text).ok().filter(|bytes| !bytes.is_empty());
        let material = match (jwk.kty.as_str(), jwk.crv.as_str()) {
            ("RSA", _) => Material::Rsa { n: unpadded(bytes(&jwk.n)?)?, e: unpadded(bytes(&jwk.e)?)? },
            ("EC", curve) => {
                let (algorithm, length) = match curve {
                    "P-256" => (SigningAlgorithm::Es256, 32),
                    "P-384" => (SigningAlgorithm::Es384, 48),
                    "P-521" => (SigningAlgorithm::Es512, 66),
                    _ => return None,
                };
                let coordinate = |text| bytes(text).filter(|bytes| bytes.len() == length);
                Material::Ec(algorithm, [vec![4], coordinate(&jwk.x)?, coordinate(&jwk.y)?].concat())
            }
            ("OKP", "Ed25519") => Material::Ed25519(bytes(&jwk.x)?),
            _ => return None,
        };
        let algorithm = match jwk.alg.as_deref() {
            None => None,
            Some(name) => Some(SigningAlgorithm::parse(name)?),
        };
        Some(Self { kid: jwk.kid, algorithm, material })
    }
}

/// Numbers in a key have no leading zeros, but some issuers write one to keep them positive.
fn unpadded(mut number: Vec<u8>) -> Option<Vec<u8>> {
    let zeros = number.iter().position(|byte| *byte != 0)?;
    number.drain(..zeros);
    Some(number)
}

impl Material {
    fn has_signed(&self, token: &Jws<'_>, algorithm: SigningAlgorithm) -> bool {
        use SigningAlgorithm::{EdDsa, Es256, Es384, Es512};
        let (message, signature) = (token.signed.as_bytes(), token.signature.as_slice());
        let result = match (self, algorithm) {
            (Self::Rsa { n, e }, algorithm) => {
                let Some(parameters) = algorithm.rsa() else { return false };
                RsaPublicKeyComponents { n, e }.verify(parameters, message, signature)
            }
            (Self::Ec(own, point), algorithm) if *own == algorithm => {
                let curve = match algorithm {
                    Es256 => &sig::ECDSA_P256_SHA256_FIXED,
                    Es384 => &sig::ECDSA_P384_SHA384_FIXED,
                    Es512 => &sig::ECDSA_P521_SHA512_FIXED,
                    _ => return false,
                };
                UnparsedPublicKey::new(curve, point).verify(message, signature)
            }
            (Self::Ed25519(key), EdDsa) => UnparsedPublicKey::new(&sig::ED25519, key).verify(message, signature),
            _ => return false,
        };
        result.is_ok()
    }
}

#[cfg(test)]
mod tests;
