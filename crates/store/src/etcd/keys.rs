//! Where our keys are in a cluster that may be shared: all under one root.

use crate::txn::prefix_end;

#[derive(Debug)]
pub(super) struct Keys {
    /// Ends with a slash, so that `/croft` and `/croft2` have nothing in common.
    root: String,
    /// Beside the root, so that no range shows it; before it, so that one watch can take in both.
    progress: String,
}

impl Keys {
    pub(super) fn new(prefix: &str) -> Self {
        let prefix = prefix.trim_end_matches('/');
        Self { root: format!("{prefix}/"), progress: format!("{prefix}-progress") }
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

    pub(super) fn everything_with_progress_key(&self) -> (Vec<u8>, Vec<u8>) {
        (self.progress_key(), prefix_end(self.root.as_bytes()))
    }

    pub(super) fn progress_key(&self) -> Vec<u8> {
        self.progress.clone().into_bytes()
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
            let (first_all, end_all) = keys.everything_with_progress_key();
            assert!(first_all <= keys.progress_key() && first_all < first && end_all == end);
            assert!(keys.progress_key() < first);
        }
    }
}
