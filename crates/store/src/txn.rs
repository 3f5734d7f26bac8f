//! What makes a transaction acceptable, the same for both engines.

use std::collections::HashSet;

use crate::{Error, Op, Result, Txn};

/// How much one transaction may hold.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    pub ops: usize,
    pub bytes: usize,
}

impl Op {
    pub fn key(&self) -> &str {
        match self {
            Self::Put { key, .. } | Self::Delete { key } => key,
        }
    }

    fn size(&self) -> usize {
        match self {
            Self::Put { key, value, .. } => key.len() + value.len(),
            Self::Delete { key } => key.len(),
        }
    }
}

impl Txn {
    /// Bytes of keys and values.
    pub fn size(&self) -> usize {
        let conditions: usize = self.compare.iter().map(|compare| compare.key.len()).sum();
        conditions + self.ops.iter().map(Op::size).sum::<usize>()
    }

    /// Refuses what no engine could do: a key written twice has no order within one revision.
    pub(crate) fn check(&self, limits: Limits) -> Result<()> {
        let count = self.ops.len().max(self.compare.len());
        if count > limits.ops {
            return Err(Error::Invalid { reason: format!("{count} operations, at most {} are allowed", limits.ops) });
        }
        let size = self.size();
        if size > limits.bytes {
            return Err(Error::TooLarge { reason: format!("{size} bytes, at most {} are allowed", limits.bytes) });
        }
        let mut seen = HashSet::with_capacity(self.ops.len());
        for key in self.ops.iter().map(Op::key) {
            check_key(key)?;
            if !seen.insert(key) {
                return Err(Error::Invalid { reason: format!("key {key:?} appears twice in one transaction") });
            }
        }
        self.compare.iter().try_for_each(|compare| check_key(&compare.key))
    }
}

pub(crate) fn check_key(key: &str) -> Result<()> {
    if key.is_empty() {
        return Err(Error::Invalid { reason: "the key is empty".to_owned() });
    }
    Ok(())
}

/// The first byte string after everything that starts with `prefix`; empty when there is none (every key matches).
pub(crate) fn prefix_end(prefix: &[u8]) -> Vec<u8> {
    let mut end = prefix.to_vec();
    while let Some(last) = end.last_mut() {
        if *last < u8::MAX {
            *last += 1;
            return end;
        }
        end.pop();
    }
    end
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Compare;
    use bytes::Bytes;
    use croft_meta::Revision;

    const LIMITS: Limits = Limits { ops: 2, bytes: 10 };

    fn put(key: &str, size: usize) -> Op {
        Op::Put { key: key.to_owned(), value: Bytes::from(vec![0; size]), lease: None }
    }

    #[test]
    fn a_transaction_is_held_to_its_limits() {
        let delete = |key: &str| Op::Delete { key: key.to_owned() };
        let compare = |key: &str| Compare { key: key.to_owned(), revision: Revision::ZERO };
        let cases = [
            (Txn { compare: vec![compare("a")], ops: vec![put("a", 8)] }, "ok"),
            (Txn { compare: vec![], ops: vec![put("a", 10)] }, "too large"),
            (Txn { compare: vec![], ops: vec![delete("a"), delete("b"), delete("c")] }, "3 operations"),
            (Txn { compare: vec![compare("a"), compare("b"), compare("c")], ops: vec![] }, "3 operations"),
            (Txn { compare: vec![], ops: vec![put("a", 1), delete("a")] }, "twice"),
            (Txn { compare: vec![], ops: vec![put("", 1)] }, "empty"),
            (Txn { compare: vec![compare("")], ops: vec![] }, "empty"),
        ];
        for (txn, expected) in cases {
            let answer = txn.check(LIMITS).map_or_else(|err| err.to_string(), |()| "ok".to_owned());
            assert!(answer.contains(expected), "{txn:?}: {answer}");
        }
    }

    #[test]
    fn prefix_end_is_the_first_key_past_the_prefix() {
        for (prefix, end) in [(&b"a/"[..], &b"a0"[..]), (b"a\xff", b"b"), (b"\xff\xff", b""), (b"", b"")] {
            assert_eq!(prefix_end(prefix), end);
        }
    }
}
