//! The keys that encrypt the keys of values.

use std::fmt;
use std::sync::Arc;

use aws_lc_rs::aead::{AES_256_GCM, RandomizedNonceKey};
use sha2::{Digest, Sha256};
use tokio_util::task::TaskTracker;
use zeroize::Zeroizing;

pub(crate) const KEY_LEN: usize = 32;

/// By which a value tells its key. It is derived from the key, and tells nothing about it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyId(pub(crate) [u8; Self::LEN]);

impl KeyId {
    pub(crate) const LEN: usize = 8;

    fn of(secret: &[u8; KEY_LEN]) -> Self {
        let digest = Sha256::new().chain_update(b"croft encryption key\0").chain_update(secret).finalize();
        let mut id = [0; Self::LEN];
        id.copy_from_slice(&digest[..Self::LEN]);
        Self(id)
    }
}

impl fmt::Display for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", u64::from_be_bytes(self.0))
    }
}

impl fmt::Debug for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[derive(Debug, thiserror::Error)]
#[error("no key can be made: the system has no random numbers to give")]
pub struct NoKey;

/// One key. `Debug` shows its id alone; the memory is wiped when it goes.
pub struct Key {
    id: KeyId,
    secret: Zeroizing<[u8; KEY_LEN]>,
    cipher: RandomizedNonceKey,
    made: String,
}

impl Key {
    /// A new one, made at a time that is only told again.
    pub(crate) fn generate(made: String) -> Result<Self, NoKey> {
        let mut secret = Zeroizing::new([0; KEY_LEN]);
        getrandom::fill(&mut *secret).map_err(|_| NoKey)?;
        Self::new(secret, made)
    }

    pub(crate) fn new(secret: Zeroizing<[u8; KEY_LEN]>, made: String) -> Result<Self, NoKey> {
        let cipher = RandomizedNonceKey::new(&AES_256_GCM, &*secret).map_err(|_| NoKey)?;
        Ok(Self { id: KeyId::of(&secret), secret, cipher, made })
    }

    pub fn id(&self) -> KeyId {
        self.id
    }

    /// When it was made.
    pub fn made(&self) -> &str {
        &self.made
    }

    pub(crate) fn secret(&self) -> &[u8; KEY_LEN] {
        &self.secret
    }

    pub(crate) fn cipher(&self) -> &RandomizedNonceKey {
        &self.cipher
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Key").field("id", &self.id).finish_non_exhaustive()
    }
}

/// All keys of one moment, the newest first: that one encrypts, all open.
#[derive(Debug, Default)]
pub(crate) struct Keyring {
    keys: Vec<Arc<Key>>,
    /// Transactions on their way to the store with values that this ring has encrypted.
    in_flight: TaskTracker,
}

impl Keyring {
    pub(crate) fn new(keys: Vec<Key>) -> Self {
        Self::of(keys.into_iter().map(Arc::new).collect())
    }

    pub(crate) fn of(keys: Vec<Arc<Key>>) -> Self {
        Self { keys, in_flight: TaskTracker::new() }
    }

    /// None only where nothing is to be encrypted and nothing ever was.
    pub(crate) fn newest(&self) -> Option<&Arc<Key>> {
        self.keys.first()
    }

    pub(crate) fn all(&self) -> &[Arc<Key>] {
        &self.keys
    }

    pub(crate) fn find(&self, id: KeyId) -> Option<&Key> {
        self.keys.iter().find(|key| key.id == id).map(|key| &**key)
    }

    pub(crate) fn in_flight(&self) -> &TaskTracker {
        &self.in_flight
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_shows_its_id_and_nothing_else() {
        let key = Key::new(Zeroizing::new([0x41; KEY_LEN]), String::new()).unwrap();
        let again = Key::new(Zeroizing::new([0x41; KEY_LEN]), String::new()).unwrap();
        assert_eq!(key.id(), again.id());
        assert_ne!(key.id(), Key::generate(String::new()).unwrap().id());
        let shown = format!("{key:?}");
        assert!(shown.contains(&key.id().to_string()) && !shown.contains("41, 41") && !shown.contains("65"), "{shown}");
    }
}
