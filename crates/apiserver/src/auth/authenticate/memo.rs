//! What was found out a moment ago, without keeping what it was found out about.

use std::collections::HashMap;
use std::fmt;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use sha2::{Digest as _, Sha256};

/// Entries are few and small; past this many, the old ones go.
const CAPACITY: usize = 1024;

/// A hash of credentials, worthless outside this process.
pub(super) type Digest = [u8; 32];

/// Remembers answers for a short while under a hash keyed with a random key: neither passwords nor tokens, nor
/// anything that could be tried against a guess, stay in memory.
pub(super) struct Memo<V> {
    key: [u8; 32],
    ttl: SignedDuration,
    entries: Mutex<HashMap<Digest, (V, Timestamp)>>,
}

impl<V> fmt::Debug for Memo<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memo").field("key", &"***").finish_non_exhaustive()
    }
}

impl<V: Clone> Memo<V> {
    pub(super) fn new(ttl: Duration) -> Result<Self, getrandom::Error> {
        let mut key = [0; 32];
        getrandom::fill(&mut key)?;
        let ttl = SignedDuration::try_from(ttl).unwrap_or(SignedDuration::MAX);
        Ok(Self { key, ttl, entries: Mutex::new(HashMap::new()) })
    }

    /// The digests of different lists of parts differ, however the parts are cut.
    pub(super) fn digest(&self, parts: &[&[u8]]) -> Digest {
        let mut hasher = Sha256::new();
        hasher.update(self.key);
        for part in parts {
            hasher.update(part.len().to_le_bytes());
            hasher.update(part);
        }
        hasher.finalize().into()
    }

    pub(super) fn get(&self, digest: &Digest, now: Timestamp) -> Option<V> {
        let entries = self.entries.lock();
        entries.get(digest).filter(|(_, since)| self.is_fresh(*since, now)).map(|(value, _)| value.clone())
    }

    pub(super) fn put(&self, digest: Digest, value: V, now: Timestamp) {
        let mut entries = self.entries.lock();
        if entries.len() >= CAPACITY {
            entries.retain(|_, (_, since)| self.is_fresh(*since, now));
        }
        if entries.len() >= CAPACITY {
            entries.clear();
        }
        entries.insert(digest, (value, now));
    }

    /// A clock that was set back makes entries stale, not immortal.
    fn is_fresh(&self, since: Timestamp, now: Timestamp) -> bool {
        let age = now.duration_since(since);
        !age.is_negative() && age < self.ttl
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn answers_are_forgotten_after_a_while() {
        let memo = Memo::new(Duration::from_secs(10)).unwrap();
        let digest = memo.digest(&[b"a"]);
        memo.put(digest, 1, at(100));
        for (second, known) in [(100, true), (109, true), (110, false), (99, false)] {
            assert_eq!(memo.get(&digest, at(second)).is_some(), known, "{second}");
        }
    }

    #[test]
    fn digests_tell_parts_and_processes_apart() {
        let memo = Memo::<()>::new(Duration::from_secs(1)).unwrap();
        assert_eq!(memo.digest(&[b"ab", b"c"]), memo.digest(&[b"ab", b"c"]));
        assert_ne!(memo.digest(&[b"ab", b"c"]), memo.digest(&[b"a", b"bc"]));
        let other = Memo::<()>::new(Duration::from_secs(1)).unwrap();
        assert_ne!(memo.digest(&[b"a"]), other.digest(&[b"a"]));
    }

    #[test]
    fn a_full_memo_stays_bounded_and_keeps_working() {
        let memo = Memo::new(Duration::from_secs(10)).unwrap();
        for i in 0..3 * CAPACITY {
            let digest = memo.digest(&[&i.to_le_bytes()]);
            memo.put(digest, i, at(0));
            assert_eq!(memo.get(&digest, at(0)), Some(i));
            assert!(memo.entries.lock().len() <= CAPACITY);
        }
    }
}
