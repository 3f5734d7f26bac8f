//! Encryption, which Longhorn has not: with AES-256-GCM, so that a block can be neither read nor changed without the key.
//!
//! A sealed thing is `CROFT1`, a nonce of 12 bytes, the ciphertext, a tag of 16 bytes. The name of what is sealed is
//! authenticated with it, so that nobody can put one block in another's place. From the key are derived, for each volume by
//! itself, one that encrypts and one that makes the blocks' names.

use std::fmt;

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use aws_lc_rs::{hkdf, hmac};

use crate::layout::Checksum;

pub(crate) const CIPHER: &str = "AES-256-GCM";
const MAGIC: &[u8] = b"CROFT1";
const SHORTEST_KEY: usize = 32;

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    #[error("a key for backups has at least 32 bytes, and this one has {0}")]
    Short(usize),
    #[error("the key cannot be used")]
    Derive,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    #[error("it is shorter than anything sealed")]
    Truncated,
    #[error("it was not sealed by us")]
    NotSealed,
    #[error("it was changed, or sealed with another key")]
    Refused,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it cannot be encrypted")]
pub(crate) struct SealError;

/// What a user keeps: at least 32 bytes that nobody can guess.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Vec<u8>);

impl Secret {
    pub fn new(secret: impl Into<Vec<u8>>) -> Result<Self, KeyError> {
        let secret = secret.into();
        if secret.len() < SHORTEST_KEY { Err(KeyError::Short(secret.len())) } else { Ok(Self(secret)) }
    }

    pub(crate) fn key(&self, purpose: &str) -> Result<Key, KeyError> {
        Key::new(&self.0, purpose)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// For one volume, or whatever else it was made for.
#[derive(Clone)]
pub(crate) struct Key {
    id: String,
    cipher: std::sync::Arc<LessSafeKey>,
    names: hmac::Key,
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Key").field("id", &self.id).finish_non_exhaustive()
    }
}

/// As long as it is asked to be.
struct Length(usize);

impl hkdf::KeyType for Length {
    fn len(&self) -> usize {
        self.0
    }
}

impl Key {
    pub(crate) fn new(secret: &[u8], purpose: &str) -> Result<Self, KeyError> {
        if secret.len() < SHORTEST_KEY {
            return Err(KeyError::Short(secret.len()));
        }
        let root = hkdf::Salt::new(hkdf::HKDF_SHA512, b"croft backup").extract(secret);
        let derive = |parts: &[&[u8]], out: &mut [u8]| {
            let derived = root.expand(parts, Length(out.len())).and_then(|derived| derived.fill(out));
            derived.map_err(|_| KeyError::Derive)
        };
        let (mut id, mut cipher, mut names) = ([0; 8], [0; 32], [0; 64]);
        // The id does not depend on the volume: it tells which secret is meant.
        derive(&[b"id"], &mut id)?;
        derive(&[b"cipher ", purpose.as_bytes()], &mut cipher)?;
        derive(&[b"names ", purpose.as_bytes()], &mut names)?;
        let cipher = UnboundKey::new(&AES_256_GCM, &cipher).map_err(|_| KeyError::Derive)?;
        Ok(Self {
            id: format!("{:016x}", u64::from_be_bytes(id)),
            cipher: LessSafeKey::new(cipher).into(),
            names: hmac::Key::new(hmac::HMAC_SHA512, &names),
        })
    }

    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    pub(crate) fn checksum(&self, data: &[u8]) -> Checksum {
        Checksum::first_half(hmac::sign(&self.names, data).as_ref())
    }

    pub(crate) fn seal(&self, name: &[u8], mut data: Vec<u8>) -> Result<Vec<u8>, SealError> {
        let mut nonce = [0; NONCE_LEN];
        getrandom::fill(&mut nonce).map_err(|_| SealError)?;
        let sealing = Nonce::assume_unique_for_key(nonce);
        self.cipher.seal_in_place_append_tag(sealing, Aad::from(name), &mut data).map_err(|_| SealError)?;
        Ok([MAGIC, &nonce, &data].concat())
    }

    pub(crate) fn open(&self, name: &[u8], sealed: &[u8]) -> Result<Vec<u8>, OpenError> {
        let magic = sealed.get(..MAGIC.len()).ok_or(OpenError::Truncated)?;
        if magic != MAGIC {
            return Err(OpenError::NotSealed);
        }
        let rest = &sealed[MAGIC.len()..];
        let (nonce, ciphertext) = rest.split_at_checked(NONCE_LEN).ok_or(OpenError::Truncated)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).map_err(|_| OpenError::Truncated)?;
        let mut data = ciphertext.to_vec();
        let opened = self.cipher.open_in_place(nonce, Aad::from(name), &mut data).map_err(|_| OpenError::Refused)?;
        let length = opened.len();
        data.truncate(length);
        Ok(data)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_same_key_and_name_open_it() {
        let key = Key::new(&[1; 32], "v").unwrap();
        let sealed = key.seal(b"name", b"secret".to_vec()).unwrap();
        assert_eq!(key.open(b"name", &sealed).unwrap(), b"secret");
        assert_eq!(key.open(b"other", &sealed), Err(OpenError::Refused));
        assert_eq!(Key::new(&[2; 32], "v").unwrap().open(b"name", &sealed), Err(OpenError::Refused));
        assert_eq!(Key::new(&[1; 32], "w").unwrap().open(b"name", &sealed), Err(OpenError::Refused));
        assert_eq!(key.open(b"name", &sealed[..10]), Err(OpenError::Truncated));
        assert_eq!(key.open(b"name", b"plain text"), Err(OpenError::NotSealed));
        assert_ne!(key.seal(b"name", b"secret".to_vec()).unwrap(), sealed, "no nonce twice");
    }

    #[test]
    fn names_depend_on_the_key_and_the_volume_but_the_id_on_the_key_alone() {
        let (one, other) = (Key::new(&[1; 32], "v").unwrap(), Key::new(&[1; 32], "w").unwrap());
        assert_eq!(one.id(), other.id());
        assert_ne!(one.id(), Key::new(&[2; 32], "v").unwrap().id());
        assert_ne!(one.checksum(b"x"), other.checksum(b"x"));
        assert_ne!(one.checksum(b"x"), Checksum::of(b"x"));
        assert_eq!(one.checksum(b"x"), one.checksum(b"x"));
        assert_eq!(Key::new(b"short", "v").unwrap_err(), KeyError::Short(5));
    }
}
