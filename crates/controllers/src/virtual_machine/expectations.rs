//! What this process did to instances and the watch has not shown yet.
//!
//! Without it, a machine that is looked at between the two would be started or stopped twice.

use std::collections::HashMap;
use std::time::Duration;

use croft_api::kubevirt::VirtualMachineInstance;
use croft_reconcile::{Change, Key};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::view::{is_being_deleted, uid};

/// A watch that started over may never tell; then what is there counts.
const LONGEST: Duration = Duration::from_secs(10);

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Expected {
    Creation,
    /// Of the instance with this uid.
    Deletion(String),
}

#[derive(Debug, Default)]
pub(super) struct Expectations(Mutex<HashMap<Key, (Expected, Instant)>>);

impl Expectations {
    /// To be called before the request is made: the watch may be faster than the answer.
    pub(super) fn expect(&self, key: &Key, what: Expected) {
        self.0.lock().insert(key.clone(), (what, Instant::now()));
    }

    pub(super) fn forget(&self, key: &Key) {
        self.0.lock().remove(key);
    }

    pub(super) fn get(&self, key: &Key) -> Option<Expected> {
        let mut expected = self.0.lock();
        let (what, since) = expected.get(key)?;
        if since.elapsed() < LONGEST {
            return Some(what.clone());
        }
        expected.remove(key);
        None
    }

    pub(super) fn observe(&self, change: &Change<VirtualMachineInstance>) {
        let mut expected = self.0.lock();
        let Some((what, _)) = expected.get(&change.key) else { return };
        let is_met = match (what, &change.new) {
            (Expected::Creation, new) => new.is_some(),
            (Expected::Deletion(_), None) => true,
            (Expected::Deletion(of), Some(new)) => uid(&new.metadata) != of || is_being_deleted(&new.metadata),
        };
        if is_met {
            expected.remove(&change.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    use super::*;

    fn change(uid: Option<&str>, is_going: bool) -> Change<VirtualMachineInstance> {
        let new = uid.map(|uid| {
            let mut instance = VirtualMachineInstance::default();
            instance.metadata.uid = Some(uid.to_owned());
            instance.metadata.deletion_timestamp = is_going.then_some(Time(jiff::Timestamp::UNIX_EPOCH));
            Arc::new(instance)
        });
        Change { key: Key::new("ns", "vm"), old: None, new }
    }

    #[tokio::test(start_paused = true)]
    async fn an_expectation_lasts_until_it_is_met_or_old() {
        let deletion = || Expected::Deletion("a".to_owned());
        let cases = [
            (Expected::Creation, change(Some("a"), false), true),
            (Expected::Creation, change(None, false), false),
            (deletion(), change(Some("a"), false), false),
            (deletion(), change(Some("a"), true), true),
            (deletion(), change(Some("b"), false), true),
            (deletion(), change(None, false), true),
        ];
        let key = Key::new("ns", "vm");
        for (what, change, is_met) in cases {
            let expectations = Expectations::default();
            expectations.expect(&key, what.clone());
            expectations.observe(&change);
            assert_eq!(expectations.get(&key).is_none(), is_met, "{what:?} and {change:?}");
        }
        let expectations = Expectations::default();
        expectations.expect(&key, Expected::Creation);
        tokio::time::advance(LONGEST).await;
        assert_eq!(expectations.get(&key), None);
    }
}
