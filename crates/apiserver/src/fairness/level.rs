//! What PriorityLevelConfigurations say.

use std::collections::HashMap;

use croft_meta::object;
use serde_json::Value;

/// The level of requests that no FlowSchema matches, and of those whose level is gone.
pub(super) const CATCH_ALL: &str = "catch-all";
pub(super) const EXEMPT: &str = "exempt";

/// Upstream's defaults.
const SHARES: u64 = 30;
const CATCH_ALL_SHARES: u64 = 5;
const QUEUES: u64 = 64;
const QUEUE_LENGTH: u64 = 50;
const HAND: u64 = 8;

#[derive(Debug)]
pub(super) struct Levels(HashMap<Box<str>, Level>);

#[derive(Debug)]
pub(super) struct Level {
    pub(super) uid: String,
    /// None for one that nothing holds back.
    limits: Option<Limits>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Limits {
    shares: u64,
    lendable_percent: u64,
    /// None for as many as others lend.
    borrowing_percent: Option<u64>,
    waiting: Waiting,
}

/// How many may wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Waiting {
    pub(super) in_a_flow: usize,
    pub(super) in_all: usize,
}

/// What a level has of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Share {
    /// Its own.
    pub(super) nominal: usize,
    /// Of those, what others may have while it does not need them.
    pub(super) lendable: usize,
    /// What it may have of others'.
    pub(super) borrowable: usize,
    pub(super) waiting: Waiting,
}

impl Levels {
    pub(super) fn of(objects: impl Iterator<Item = Value>) -> Self {
        let mut levels: HashMap<Box<str>, Level> =
            objects.map(|object| (object::name(&object).into(), Level::of(&object))).collect();
        // These two always are: the administrator keeps his way in, and nobody is without limits by mistake.
        levels.entry(EXEMPT.into()).or_insert(Level { uid: String::new(), limits: None }).limits = None;
        levels.entry(CATCH_ALL.into()).or_insert_with(|| Level {
            uid: String::new(),
            limits: Some(Limits {
                shares: CATCH_ALL_SHARES,
                lendable_percent: 0,
                borrowing_percent: None,
                waiting: Waiting::default(),
            }),
        });
        Self(levels)
    }

    pub(super) fn get(&self, name: &str) -> Option<&Level> {
        self.0.get(name)
    }

    /// The levels that are held back, each with what it has of so many seats.
    pub(super) fn seats(&self, total: usize) -> HashMap<Box<str>, Share> {
        let limited = || self.0.iter().filter_map(|(name, level)| Some((name, level.limits?)));
        let all: u64 = limited().map(|(_, limits)| limits.shares).sum::<u64>().max(1);
        let total = total as u64;
        let share = |limits: Limits| {
            let nominal = (total * limits.shares).div_ceil(all).max(1);
            // Halves are rounded up, as upstream rounds.
            let percent = |percent: u64| (nominal * percent + 50) / 100;
            let size = |seats: u64| usize::try_from(seats).unwrap_or(usize::MAX);
            Share {
                nominal: size(nominal),
                lendable: size(percent(limits.lendable_percent)),
                borrowable: size(limits.borrowing_percent.map_or(total, percent)),
                waiting: limits.waiting,
            }
        };
        limited().map(|(name, limits)| (name.clone(), share(limits))).collect()
    }
}

impl Level {
    fn of(object: &Value) -> Self {
        let uid = object::uid(object).to_owned();
        if object["spec"]["type"] == "Exempt" {
            return Self { uid, limits: None };
        }
        let limited = &object["spec"]["limited"];
        let number = |value: &Value, default: u64| value.as_u64().unwrap_or(default);
        let queuing = &limited["limitResponse"]["queuing"];
        let waiting = if limited["limitResponse"]["type"] == "Queue" {
            let size = |value: u64| usize::try_from(value).unwrap_or(usize::MAX);
            let length = number(&queuing["queueLengthLimit"], QUEUE_LENGTH);
            let (queues, hand) = (number(&queuing["queues"], QUEUES), number(&queuing["handSize"], HAND));
            Waiting { in_a_flow: size(length.saturating_mul(hand)), in_all: size(length.saturating_mul(queues)) }
        } else {
            Waiting::default()
        };
        let limits = Limits {
            shares: number(&limited["nominalConcurrencyShares"], SHARES),
            lendable_percent: number(&limited["lendablePercent"], 0).min(100),
            borrowing_percent: limited["borrowingLimitPercent"].as_u64(),
            waiting,
        };
        Self { uid, limits: Some(limits) }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn level(name: &str, limited: &Value) -> Value {
        json!({"metadata": {"name": name, "uid": name}, "spec": {"type": "Limited", "limited": limited}})
    }

    #[test]
    fn seats_are_shared_out_by_shares() {
        let queue = json!({"type": "Queue", "queuing": {"queues": 4, "handSize": 2, "queueLengthLimit": 3}});
        let levels = Levels::of(
            [
                level("much", &json!({"nominalConcurrencyShares": 75, "lendablePercent": 50, "limitResponse": queue})),
                level("little", &json!({"nominalConcurrencyShares": 20, "borrowingLimitPercent": 150})),
                json!({"metadata": {"name": "free"}, "spec": {"type": "Exempt", "exempt": {}}}),
            ]
            .into_iter(),
        );
        let shares = levels.seats(40);
        let waiting = Waiting { in_a_flow: 6, in_all: 12 };
        assert_eq!(shares["much"], Share { nominal: 30, lendable: 15, borrowable: 40, waiting });
        let waiting = Waiting::default();
        assert_eq!(shares["little"], Share { nominal: 8, lendable: 0, borrowable: 12, waiting });
        assert_eq!(shares[CATCH_ALL], Share { nominal: 2, lendable: 0, borrowable: 40, waiting });
        assert_eq!(shares.len(), 3, "exempt ones take none");
    }

    #[test]
    fn whatever_is_written_the_way_in_stays_open() {
        let levels = Levels::of([level(EXEMPT, &json!({"nominalConcurrencyShares": 0}))].into_iter());
        assert!(!levels.seats(10).contains_key(EXEMPT));
        assert_eq!(levels.get(EXEMPT).map(|level| &*level.uid), Some("exempt"));
        assert_eq!(levels.seats(10)[CATCH_ALL].nominal, 10);
        assert!(levels.get("other").is_none());
    }
}
