//! Where our keys are in a cluster that may be shared: all under one root.

use croft_meta::Revision;

use crate::txn::prefix_end;

#[derive(Debug)]
pub(super) struct Keys {
    /// Ends with a slash, so that `/croft` and `/croft2` have nothing in common.
    root: String,
    /// Beside the root, so that no range shows it; before it, so that one watch can take in both.
    progress: String,
    /// Before that one, for the same watch.
    gate: String,
    maintenance: String,
    base_key: String,
    /// What our revisions have more than etcd's.
    base: u64,
}

impl Keys {
    pub(super) fn new(prefix: &str) -> Self {
        let prefix = prefix.trim_end_matches('/');
        Self {
            root: format!("{prefix}/"),
            progress: format!("{prefix}-progress"),
            gate: format!("{prefix}-gate"),
            maintenance: format!("{prefix}-maintenance"),
            base_key: format!("{prefix}-base"),
            base: 0,
        }
    }

    pub(super) fn with_base(self, base: u64) -> Self {
        Self { base, ..self }
    }

    pub(super) fn base(&self) -> Revision {
        Revision(self.base)
    }

    /// Ours for one of etcd's.
    pub(super) fn revision(&self, raw: i64) -> Revision {
        let raw = u64::try_from(raw).unwrap_or(0);
        Revision(if raw == 0 { 0 } else { raw.saturating_add(self.base) })
    }

    /// Etcd's for one of ours; of those that it never had, one that nothing has.
    pub(super) fn raw(&self, revision: Revision) -> i64 {
        match revision.0.checked_sub(self.base) {
            _ if revision == Revision::ZERO => 0,
            Some(raw) if raw > 0 => i64::try_from(raw).unwrap_or(i64::MAX),
            _ => -1,
        }
    }

    pub(super) fn gate_key(&self) -> Vec<u8> {
        self.gate.clone().into_bytes()
    }

    /// Held by the server that has members defragmented.
    pub(super) fn maintenance_key(&self) -> Vec<u8> {
        self.maintenance.clone().into_bytes()
    }

    pub(super) fn base_key(&self) -> Vec<u8> {
        self.base_key.clone().into_bytes()
    }

    pub(super) fn theirs(&self, key: &str) -> Vec<u8> {
        [self.root.as_bytes(), key.as_bytes()].concat()
    }

    /// `None` for a key that is not ours, or not text.
    pub(super) fn ours(&self, key: Vec<u8>) -> Option<String> {
        let mut key = String::from_utf8(key).ok()?;
        if !key.starts_with(&self.root) {
            return None;
        }
        key.drain(..self.root.len());
        Some(key)
    }

    /// First key and end of everything under `prefix`.
    pub(super) fn prefix(&self, prefix: &str) -> (Vec<u8>, Vec<u8>) {
        let first = self.theirs(prefix);
        let end = prefix_end(&first);
        (first, end)
    }

    /// The same for a watch, with the gate, the key for progress, and whatever else is before it.
    pub(super) fn prefix_with_gate(&self, prefix: &str) -> (Vec<u8>, Vec<u8>) {
        (self.gate_key(), self.prefix(prefix).1)
    }

    pub(super) fn progress_key(&self) -> Vec<u8> {
        self.progress.clone().into_bytes()
    }

    pub(super) fn is_gate_key(&self, key: &[u8]) -> bool {
        key == self.gate.as_bytes()
    }

    pub(super) fn is_progress_key(&self, key: &[u8]) -> bool {
        key == self.progress.as_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roots_do_not_overlap_and_keys_come_back() {
        for prefix in ["/croft", "/croft/"] {
            let keys = Keys::new(prefix);
            assert_eq!(keys.theirs("/pods/a"), b"/croft//pods/a");
            assert_eq!(keys.ours(keys.theirs("/pods/a")).as_deref(), Some("/pods/a"));
            assert_eq!(keys.ours(b"/croft2/pods".to_vec()), None);
            let (first, end) = keys.prefix("");
            assert!(first.as_slice() <= b"/croft/a".as_slice() && b"/croft/\xf4".as_slice() < end.as_slice());
            assert!(end.as_slice() <= b"/croft2/".as_slice());
            let (first_all, end_all) = keys.prefix_with_gate("");
            assert!(first_all <= keys.gate_key() && first_all <= keys.progress_key() && end_all == end);
            for beside in [keys.gate_key(), keys.progress_key(), keys.base_key(), keys.maintenance_key()] {
                assert!(beside < first, "no range shows it");
            }
        }
    }

    #[test]
    fn revisions_go_on_from_the_base() {
        let keys = Keys::new("/croft").with_base(1000);
        for (ours, theirs) in [(0, 0), (1001, 1), (1500, 500)] {
            assert_eq!((keys.revision(theirs), keys.raw(Revision(ours))), (Revision(ours), theirs));
        }
        for before in [1, 999, 1000] {
            assert_eq!(keys.raw(Revision(before)), -1, "{before}");
        }
    }
}
