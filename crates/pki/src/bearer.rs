//! Opaque bearer tokens of users: `croft-<id>:<secret>`, or `token-<id>:<secret>` as Rancher's clients know them.
//!
//! The server keeps the id and a hash of the secret. The secret is 256 random bits, so a plain SHA-256 is as good as a
//! slow hash would be: there is nothing to guess.

use std::fmt;

use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use crate::client_cert::hex;
use crate::{Error, Result, Secret};

const SECRET_BYTES: usize = 32;
/// 32 bytes in base64 without padding.
const SECRET_LENGTH: usize = 43;
/// As long as Rancher's: 267 bits in letters and digits.
const RANCHER_SECRET_LENGTH: usize = 54;

/// How a token is written. The lengths of the ids differ, so that an id tells its form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Croft,
    Rancher,
}

impl Form {
    fn prefix(self) -> &'static str {
        match self {
            Self::Croft => "croft-",
            Self::Rancher => "token-",
        }
    }

    fn id_length(self) -> usize {
        match self {
            Self::Croft => 10,
            Self::Rancher => 5,
        }
    }

    fn is_secret(self, secret: &str) -> bool {
        match self {
            Self::Croft => {
                let is_base64 = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
                secret.len() == SECRET_LENGTH && secret.bytes().all(is_base64)
            }
            Self::Rancher => secret.len() == RANCHER_SECRET_LENGTH && secret.bytes().all(is_lower),
        }
    }
}

fn is_lower(byte: u8) -> bool {
    byte.is_ascii_lowercase() || byte.is_ascii_digit()
}

/// One token, with its secret.
#[derive(Clone, PartialEq, Eq)]
pub struct BearerToken {
    form: Form,
    id: String,
    secret: String,
}

impl BearerToken {
    pub fn generate() -> Result<Self> {
        let mut secret = [0; SECRET_BYTES];
        getrandom::fill(&mut secret).map_err(Error::Random)?;
        // Ids become part of object names: lower-case letters and digits.
        let id = crate::password::random_text(Form::Croft.id_length())?;
        Ok(Self { form: Form::Croft, id, secret: BASE64_URL_SAFE_NO_PAD.encode(secret) })
    }

    /// The same in Rancher's form. Its ids are short: another token may have this one already.
    pub fn generate_rancher() -> Result<Self> {
        let id = crate::password::random_text(Form::Rancher.id_length())?;
        Ok(Self { form: Form::Rancher, id, secret: crate::password::random_text(RANCHER_SECRET_LENGTH)? })
    }

    /// What a client sent, if it has the form of such a token.
    pub fn parse(text: &str) -> Option<Self> {
        let form = [Form::Croft, Form::Rancher].into_iter().find(|form| text.starts_with(form.prefix()))?;
        let (id, secret) = text.strip_prefix(form.prefix())?.split_once(':')?;
        let is_id = id.len() == form.id_length() && id.bytes().all(is_lower);
        (is_id && form.is_secret(secret)).then(|| Self { form, id: id.to_owned(), secret: secret.to_owned() })
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
        Secret::new(format!("{}{}:{}", self.form.prefix(), self.id, self.secret))
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
    fn ranchers_form_is_a_token_too() {
        let token = BearerToken::generate_rancher().unwrap();
        let text = token.reveal().reveal().to_owned();
        assert!(text.starts_with("token-") && text.len() == 66, "{text}");
        assert_eq!(BearerToken::parse(&text), Some(token));
        for bad in [&text[..65], &text.to_uppercase(), &text.replace("token-", "croft-")] {
            assert_eq!(BearerToken::parse(bad), None, "{bad}");
        }
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
