//! Tokens for one upload: whoever holds one may fill one claim, once it is asked for and for a few minutes.

use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::keys::VerifyingKey;
use super::verify::{self, TokenError};
use super::{TokenSigner, seconds_after};
use crate::{Result, Secret};

/// Not the issuer of any account's token: neither kind can be used in the other's place.
const ISSUER: &str = "croft/upload";

/// The claim that may be filled.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UploadTarget {
    pub namespace: String,
    pub name: String,
    /// Another claim of the same name is another claim.
    pub uid: String,
}

#[derive(Serialize, Deserialize)]
struct UploadClaims {
    iss: String,
    exp: i64,
    #[serde(flatten)]
    target: UploadTarget,
}

impl TokenSigner {
    pub fn mint_upload(&self, target: &UploadTarget, lifetime: Duration, now: Timestamp) -> Result<Secret> {
        let exp = seconds_after(now, lifetime)?.as_second();
        self.sign(&UploadClaims { iss: ISSUER.to_owned(), exp, target: target.clone() })
    }

    /// What the token is for, if it is one of ours and still good.
    pub fn verify_upload(&self, token: &str, now: Timestamp) -> Result<UploadTarget, TokenError> {
        let keys: Vec<&VerifyingKey> = self.verifying.iter().collect();
        let claims: UploadClaims = verify::first_good(keys.into_iter(), token)?;
        if claims.iss != ISSUER {
            return Err(TokenError::NotOurs);
        }
        if claims.exp < now.as_second() {
            return Err(TokenError::Expired);
        }
        Ok(claims.target)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{ObjectRef, TokenRequest};
    use super::*;

    #[test]
    fn a_token_is_for_one_claim_and_a_while() {
        let (dir, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let signer = TokenSigner::load_or_create(dir.path()).unwrap();
        let stranger = TokenSigner::load_or_create(other.path()).unwrap();
        let now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let target = UploadTarget { namespace: "a".into(), name: "b".into(), uid: "c".into() };
        let token = signer.mint_upload(&target, Duration::from_mins(5), now).unwrap();
        assert_eq!(signer.verify_upload(token.reveal(), now), Ok(target.clone()));
        let later = Timestamp::from_second(now.as_second() + 301).unwrap();
        assert_eq!(signer.verify_upload(token.reveal(), later), Err(TokenError::Expired));
        assert!(stranger.verify_upload(token.reveal(), now).is_err());
        assert!(signer.verify_upload("nonsense", now).is_err());
        // Neither is good for the other's purpose.
        assert_eq!(signer.verify(token.reveal(), &[], now), Err(TokenError::NotOurs));
        let request = TokenRequest {
            namespace: "a".into(),
            service_account: ObjectRef { name: "b".into(), uid: "c".into() },
            audiences: vec![super::super::ISSUER.into()],
            lifetime: Duration::from_mins(5),
            bound_to: None,
            warn_after: None,
        };
        let (account, _) = signer.mint(&request, "id", now).unwrap();
        assert!(signer.verify_upload(account.reveal(), now).is_err());
    }
}
