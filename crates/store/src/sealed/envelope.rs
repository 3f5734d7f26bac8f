//! One value, encrypted: what is in it, and how it is made and opened.
//!
//! `\0croft` and a version, the id of the key-encryption key, a data key that is encrypted with that one (a nonce, the key, a tag),
//! and the value, encrypted with the data key (a nonce, the value, a tag). The cipher is AES-256-GCM throughout. Each value has a
//! data key of its own, made for this one write. The name under which it is stored and all that stands before are authenticated,
//! so that a value cannot be put under another name. No JSON begins with a zero byte: what is encrypted is never taken for plain.

use aws_lc_rs::aead::{AES_256_GCM, Aad, NONCE_LEN, Nonce, RandomizedNonceKey};
use bytes::{BufMut, Bytes, BytesMut};
use zeroize::Zeroizing;

use super::keys::{KEY_LEN, Key, KeyId, Keyring};

const MAGIC: &[u8] = b"\0croft\x01";
const TAG_LEN: usize = 16;
const HEAD_LEN: usize = MAGIC.len() + KeyId::LEN;
const WRAPPED_LEN: usize = NONCE_LEN + KEY_LEN + TAG_LEN;
/// What an empty value becomes.
const SHORTEST: usize = HEAD_LEN + WRAPPED_LEN + NONCE_LEN + TAG_LEN;

/// Randomness or the cipher failed; neither says why.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the value could not be encrypted")]
pub struct NotSealed;

/// Why a value cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NotOpened {
    #[error("it is encrypted with the key {0}, which is not in the key file")]
    UnknownKey(KeyId),
    #[error("it is encrypted with the key {0}, and was damaged, or moved here from another name")]
    Refused(KeyId),
    #[error("it is encrypted, and was cut short")]
    Truncated,
}

pub(crate) fn is_sealed(value: &[u8]) -> bool {
    value.starts_with(MAGIC)
}

/// Whose key opens it.
pub(crate) fn key_id(value: &[u8]) -> Result<KeyId, NotOpened> {
    let id = value.get(MAGIC.len()..HEAD_LEN).ok_or(NotOpened::Truncated)?;
    Ok(KeyId(id.try_into().map_err(|_| NotOpened::Truncated)?))
}

/// What is authenticated with each of the two parts, so that neither passes for the other.
fn bound(part: &[u8], head: &[u8], name: &str) -> Vec<u8> {
    [part, head, name.as_bytes()].concat()
}

pub(crate) fn seal(key: &Key, name: &str, value: &[u8]) -> Result<Bytes, NotSealed> {
    let mut data_key = Zeroizing::new([0; KEY_LEN]);
    getrandom::fill(&mut *data_key).map_err(|_| NotSealed)?;
    let mut out = BytesMut::with_capacity(SHORTEST + value.len());
    out.put_slice(MAGIC);
    out.put_slice(&key.id().0);
    let wrapping = bound(b"key", &out, name);
    append_sealed(&mut out, key.cipher(), &wrapping, &*data_key)?;
    let cipher = RandomizedNonceKey::new(&AES_256_GCM, &*data_key).map_err(|_| NotSealed)?;
    let binding = bound(b"value", &out, name);
    append_sealed(&mut out, &cipher, &binding, value)?;
    Ok(out.freeze())
}

/// A nonce, the text encrypted in its place, and a tag.
fn append_sealed(out: &mut BytesMut, cipher: &RandomizedNonceKey, aad: &[u8], text: &[u8]) -> Result<(), NotSealed> {
    let at = out.len();
    out.put_bytes(0, NONCE_LEN);
    out.put_slice(text);
    let body = &mut out[at + NONCE_LEN..];
    let (nonce, tag) = cipher.seal_in_place_separate_tag(Aad::from(aad), body).map_err(|_| NotSealed)?;
    out[at..at + NONCE_LEN].copy_from_slice(nonce.as_ref());
    out.put_slice(tag.as_ref());
    Ok(())
}

pub(crate) fn open(keys: &Keyring, name: &str, value: &[u8]) -> Result<Bytes, NotOpened> {
    let id = key_id(value)?;
    if value.len() < SHORTEST {
        return Err(NotOpened::Truncated);
    }
    let key = keys.find(id).ok_or(NotOpened::UnknownKey(id))?;
    let (before, sealed) = value.split_at(HEAD_LEN + WRAPPED_LEN);
    let (head, wrapped) = before.split_at(HEAD_LEN);
    let refused = NotOpened::Refused(id);
    let data_key = Zeroizing::new(opened(key.cipher(), &bound(b"key", head, name), wrapped).ok_or(refused)?);
    let cipher = RandomizedNonceKey::new(&AES_256_GCM, &data_key).map_err(|_| refused)?;
    opened(&cipher, &bound(b"value", before, name), sealed).map(Bytes::from).ok_or(refused)
}

fn opened(cipher: &RandomizedNonceKey, aad: &[u8], sealed: &[u8]) -> Option<Vec<u8>> {
    let (nonce, text) = sealed.split_at_checked(NONCE_LEN)?;
    let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
    let mut text = text.to_vec();
    let length = cipher.open_in_place(nonce, Aad::from(aad), &mut text).ok()?.len();
    text.truncate(length);
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAME: &str = "registry/core/secrets/a/b";

    fn ring() -> Keyring {
        Keyring::new(vec![Key::generate(String::new()).unwrap()])
    }

    #[test]
    fn what_was_sealed_is_opened_and_tells_nothing() {
        let keys = ring();
        for value in [&b""[..], b"{}", &vec![b'x'; 100_000]] {
            let sealed = seal(keys.newest().unwrap(), NAME, value).unwrap();
            assert_eq!(sealed.len(), SHORTEST + value.len());
            assert!(is_sealed(&sealed));
            assert_eq!(key_id(&sealed).unwrap(), keys.newest().unwrap().id());
            assert_eq!(open(&keys, NAME, &sealed).unwrap(), value);
            assert!(value.len() < 3 || memchr_free(&sealed, &value[..3]));
        }
        let twice = [0, 1].map(|_| seal(keys.newest().unwrap(), NAME, b"{}").unwrap());
        assert_ne!(twice[0], twice[1]);
    }

    /// Is the pattern nowhere to be seen?
    fn memchr_free(sealed: &[u8], pattern: &[u8]) -> bool {
        !sealed.windows(pattern.len() * 2).any(|window| window.starts_with(pattern) && window.ends_with(pattern))
    }

    #[test]
    fn another_name_another_key_and_every_changed_byte_are_refused() {
        let keys = ring();
        let sealed = seal(keys.newest().unwrap(), NAME, b"{\"a\":1}").unwrap();
        let id = keys.newest().unwrap().id();
        assert_eq!(open(&keys, "registry/core/secrets/a/c", &sealed), Err(NotOpened::Refused(id)));
        assert_eq!(open(&ring(), NAME, &sealed), Err(NotOpened::UnknownKey(id)));
        for at in MAGIC.len()..sealed.len() {
            let mut changed = sealed.to_vec();
            changed[at] ^= 1;
            assert!(open(&keys, NAME, &changed).is_err(), "byte {at}");
        }
        for length in MAGIC.len()..sealed.len() {
            assert!(open(&keys, NAME, &sealed[..length]).is_err(), "{length} bytes");
        }
    }
}
