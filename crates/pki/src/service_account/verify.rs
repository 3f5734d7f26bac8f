//! Checking a token, in upstream's order and with upstream's words.

use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
use jiff::Timestamp;
use jsonwebtoken::{Algorithm, Validation, errors::ErrorKind};
use serde::{Deserialize, de::DeserializeOwned};

use super::claims::{Claims, LegacyClaims, subject};
use super::keys::VerifyingKey;
use super::{ISSUER, LEGACY_ISSUER, ObjectRef};

/// How far clocks may differ, in seconds.
const LEEWAY: i64 = 60;

/// A token whose signature, issuer, times and audience are right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerifiedToken {
    pub namespace: String,
    pub service_account: ObjectRef,
    pub pod: Option<ObjectRef>,
    /// For a legacy token only the name is known, and the Secret must still hold this very token.
    pub secret: Option<ObjectRef>,
    pub node: Option<ObjectRef>,
    /// The accepted audiences that the token is for.
    pub audiences: Vec<String>,
    /// `jti`; empty for legacy tokens.
    pub id: String,
    pub warn_after: Option<i64>,
    /// `iat`; a legacy token does not say.
    pub issued: Option<i64>,
    pub legacy: bool,
}

impl VerifiedToken {
    /// `system:serviceaccount:<namespace>:<name>`
    pub fn user(&self) -> String {
        subject(&self.namespace, &self.service_account.name)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// Not a token of ours at all: another authenticator may know it.
    #[error("invalid bearer token")]
    NotOurs,
    #[error("invalid signature, no keys found")]
    UnknownKey,
    #[error("go-jose/go-jose: error in cryptographic primitive")]
    BadSignature,
    #[error("token audiences {token:?} is invalid for the target audiences {wanted:?}")]
    WrongAudience { token: Vec<String>, wanted: Vec<String> },
    #[error("service account token has expired")]
    Expired,
    #[error("service account token is not valid yet")]
    NotYetValid,
    #[error("service account token is issued in the future")]
    IssuedInFuture,
    #[error("{0} claim is missing")]
    MissingClaim(&'static str),
    #[error("sub claim is invalid")]
    InvalidSubject,
}

pub(super) fn verify(
    keys: &[VerifyingKey],
    token: &str,
    audiences: &[String],
    now: Timestamp,
) -> Result<VerifiedToken, TokenError> {
    // The issuer is read before the signature is checked, only to choose how to go on.
    let legacy = match issuer(token).as_deref() {
        Some(ISSUER) => false,
        Some(LEGACY_ISSUER) => true,
        _ => return Err(TokenError::NotOurs),
    };
    let kid = jsonwebtoken::decode_header(token).map_err(|_| TokenError::NotOurs)?.kid.unwrap_or_default();
    let mut candidates = keys.iter().filter(|key| kid.is_empty() || key.id == kid).peekable();
    if candidates.peek().is_none() {
        return Err(TokenError::UnknownKey);
    }
    if legacy {
        let claims: LegacyClaims = first_good(candidates, token)?;
        return verify_legacy(claims, audiences);
    }
    verify_bound(first_good(candidates, token)?, audiences, now)
}

fn verify_bound(claims: Claims, audiences: &[String], now: Timestamp) -> Result<VerifiedToken, TokenError> {
    let audiences = intersect(&claims.aud, audiences)?;
    let now = now.as_second();
    if claims.nbf.is_some_and(|nbf| now.saturating_add(LEEWAY) < nbf) {
        return Err(TokenError::NotYetValid);
    }
    if claims.exp.is_some_and(|exp| now.saturating_sub(LEEWAY) > exp) {
        return Err(TokenError::Expired);
    }
    if claims.iat.is_some_and(|iat| now.saturating_add(LEEWAY) < iat) {
        return Err(TokenError::IssuedInFuture);
    }
    let kubernetes = claims.kubernetes;
    Ok(VerifiedToken {
        namespace: kubernetes.namespace,
        service_account: kubernetes.serviceaccount,
        pod: kubernetes.pod,
        secret: kubernetes.secret,
        node: kubernetes.node,
        audiences,
        id: claims.jti,
        warn_after: kubernetes.warnafter,
        issued: claims.iat,
        legacy: false,
    })
}

fn verify_legacy(claims: LegacyClaims, audiences: &[String]) -> Result<VerifiedToken, TokenError> {
    let audiences = intersect(&[], audiences)?;
    let required = [
        (&claims.sub, "sub"),
        (&claims.namespace, "namespace"),
        (&claims.secret_name, "secretName"),
        (&claims.name, "serviceAccountName"),
        (&claims.uid, "serviceAccountUID"),
    ];
    if let Some((_, name)) = required.into_iter().find(|(value, _)| value.is_empty()) {
        return Err(TokenError::MissingClaim(name));
    }
    if claims.sub != subject(&claims.namespace, &claims.name) {
        return Err(TokenError::InvalidSubject);
    }
    Ok(VerifiedToken {
        namespace: claims.namespace,
        service_account: ObjectRef { name: claims.name, uid: claims.uid },
        pod: None,
        secret: Some(ObjectRef { name: claims.secret_name, uid: String::new() }),
        node: None,
        audiences,
        id: String::new(),
        warn_after: None,
        issued: None,
        legacy: true,
    })
}

/// A token without audiences, and a verifier that names none, mean the API server.
fn intersect(token: &[String], wanted: &[String]) -> Result<Vec<String>, TokenError> {
    let own = [ISSUER.to_owned()];
    let token = if token.is_empty() { &own[..] } else { token };
    let wanted = if wanted.is_empty() { &own[..] } else { wanted };
    let common: Vec<String> = token.iter().filter(|audience| wanted.contains(audience)).cloned().collect();
    if common.is_empty() {
        return Err(TokenError::WrongAudience { token: token.to_vec(), wanted: wanted.to_vec() });
    }
    Ok(common)
}

/// The claims, if one of the keys signed them.
pub(super) fn first_good<'a, T: DeserializeOwned>(
    keys: impl Iterator<Item = &'a VerifyingKey>,
    token: &str,
) -> Result<T, TokenError> {
    // Signature and algorithm only (never `none` or a shared secret); times and audience follow Kubernetes' rules above.
    let mut validation = Validation::new(Algorithm::ES256);
    validation.required_spec_claims.clear();
    validation.validate_exp = false;
    validation.validate_aud = false;

    let mut failure = TokenError::BadSignature;
    for key in keys {
        match jsonwebtoken::decode(token, &key.key, &validation) {
            Ok(data) => return Ok(data.claims),
            Err(err) if matches!(err.kind(), ErrorKind::InvalidSignature | ErrorKind::InvalidAlgorithm) => {}
            Err(_) => failure = TokenError::NotOurs,
        }
    }
    Err(failure)
}

fn issuer(token: &str) -> Option<String> {
    #[derive(Deserialize)]
    struct Issuer {
        #[serde(default)]
        iss: String,
    }
    let mut parts = token.split('.');
    let (_header, payload, _signature, None) = (parts.next()?, parts.next()?, parts.next()?, parts.next()) else {
        return None;
    };
    let payload = BASE64_URL_SAFE_NO_PAD.decode(payload).ok()?;
    serde_json::from_slice::<Issuer>(&payload).ok().map(|claims| claims.iss)
}
