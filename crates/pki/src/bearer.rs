//! Opaque bearer tokens of users: `croft-<id>:<secret>`.
//!
//! The server keeps the id and a hash of the secret. The secret is 256 random bits, so a plain SHA-256 is as good as a
//! slow hash would be: there is nothing to guess.

use std::fmt;

use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use crate::client_cert::hex;
use crate::{Error, Result, Secret};

const PREFIX: &str = "croft-";
const ID_LENGTH: usize = 10;
const SECRET_BYTES: usize = 32;
/// 32 bytes in base64 without padding.
const SECRET_LENGTH: usize = 43;

/// One token, with its secret.
#[derive(Clone, PartialEq, Eq)]
pub struct BearerToken {
    id: String,
    secret: String,
}

impl BearerToken {
    pub fn generate() -> Result<Self> {
        let mut secret = [0; SECRET_BYTES];
        getrandom::fill(&mut secret).map_err(Error::Random)?;
        // Ids become part of object names: lower-case letters and digits.
        let id = crate::password::random_text(ID_LENGTH)?;
        Ok(Self { id, secret: BASE64_URL_SAFE_NO_PAD.encode(secret) })
    }

    /// What a client sent, if it has the form of such a token.
    pub fn parse(text: &str) -> Option<Self> {
        let (id, secret) = text.strip_prefix(PREFIX)?.split_once(':')?;
        let is_id = id.len() == ID_LENGTH && id.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
        let is_secret = secret.len() == SECRET_LENGTH
            && secret.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_');
        (is_id && is_secret).then(|| Self { id: id.to_owned(), secret: secret.to_owned() })
    }

    /// Names the token; not secret.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// What to keep: hexadecimal SHA-256 of the secret.
    pub fn hash(&self) -> String {
        hex(&Sha256::digest(self.secret.as_bytes()))
    }

    /// Whether this token's secret is the one that was kept, in time that does not depend on how much of it is right.
    pub fn matches(&self, hash: &str) -> bool {
        self.hash().as_bytes().ct_eq(hash.trim().to_ascii_lowercase().as_bytes()).into()
    }

    /// The whole token, to be shown once to its owner.
    pub fn reveal(&self) -> Secret {
        Secret::new(format!("{PREFIX}{}:{}", self.id, self.secret))
    }
}

impl fmt::Debug for BearerToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BearerToken({}:***)", self.id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trip_and_match() {
        let token = BearerToken::generate().unwrap();
        let sent = BearerToken::parse(token.reveal().reveal()).unwrap();
        assert_eq!(sent, token);
        assert!(sent.matches(&token.hash()));
        assert!(sent.matches(&token.hash().to_uppercase()));
        assert!(!sent.matches(&BearerToken::generate().unwrap().hash()));
        assert!(!sent.matches(""));
        assert!(!format!("{token:?}").contains(&token.secret));
    }

    #[test]
    fn other_text_is_not_a_token() {
        let good = BearerToken::generate().unwrap().reveal().reveal().to_owned();
        for bad in [
            "",
            "croft-",
            "croft-abc:def",
            "eyJhbGciOi.J9.x",
            &good[1..],
            &format!("{good}x"),
            &good.replace(':', "."),
            &good.to_uppercase(),
        ] {
            assert_eq!(BearerToken::parse(bad), None, "{bad}");
        }
    }
}
