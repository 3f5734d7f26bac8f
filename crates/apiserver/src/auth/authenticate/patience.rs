//! How long the next try has to wait after wrong passwords: by the name, and by the address they came from.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};

use jiff::Timestamp;
use parking_lot::Mutex;

use super::login::LoginError;

/// So many wrong passwords in a row are forgiven; after that the wait doubles with each.
const FREE_FAILURES: u32 = 5;
/// The same from one address, behind which there may be many people.
const FREE_FAILURES_OF_ADDRESS: u32 = 30;
const MAX_WAIT_SECONDS: i64 = 60;
/// Failures this old are forgotten.
const FORGET_SECONDS: i64 = 900;
/// So many addresses, and names that are nobody's, are watched for failures. Those of users come on top.
const MAX_WATCHED: usize = 10_000;
/// The part of an IPv6 address that somebody is given as a whole.
const NETWORK: u128 = !0 << 64;

/// Whose failures are counted: a name's and an address's, each on its own.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Watched {
    Name(String),
    Address(IpAddr),
}

impl Watched {
    fn address(address: IpAddr) -> Self {
        Self::Address(match address.to_canonical() {
            IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & NETWORK).into(),
            address @ IpAddr::V4(_) => address,
        })
    }

    fn free_failures(&self) -> u32 {
        match self {
            Self::Name(_) => FREE_FAILURES,
            Self::Address(_) => FREE_FAILURES_OF_ADDRESS,
        }
    }
}

/// The name first.
pub(super) fn watched(name: &str, address: Option<IpAddr>) -> Vec<Watched> {
    std::iter::once(Watched::Name(name.to_owned())).chain(address.map(Watched::address)).collect()
}

#[derive(Clone, Copy, Debug)]
struct Failures {
    count: u32,
    last: Timestamp,
    /// Of a name that somebody has.
    is_users: bool,
}

impl Failures {
    fn is_old(&self, now: Timestamp) -> bool {
        now.duration_since(self.last).as_secs() > FORGET_SECONDS
    }
}

#[derive(Debug, Default)]
pub(super) struct Patience {
    watched: Mutex<All>,
}

#[derive(Debug, Default)]
struct All {
    failures: HashMap<Watched, Failures>,
    /// When those that are old were last removed.
    swept: Timestamp,
}

impl Patience {
    pub(super) fn check(&self, who: &Watched, now: Timestamp) -> Result<(), LoginError> {
        let watched = self.watched.lock();
        let Some(Failures { count, last, .. }) = watched.failures.get(who) else { return Ok(()) };
        let Some(excess) = count.checked_sub(who.free_failures()) else { return Ok(()) };
        let wait = 1_i64.checked_shl(excess).map_or(MAX_WAIT_SECONDS, |wait| wait.clamp(1, MAX_WAIT_SECONDS));
        let left = wait - now.duration_since(*last).as_secs();
        if left <= 0 {
            return Ok(());
        }
        Err(LoginError::Throttled { retry_after_seconds: u32::try_from(left).unwrap_or(u32::MAX) })
    }

    /// Counts a failure, of a user's name or of another; how many there have been in a row.
    pub(super) fn failed(&self, who: &Watched, is_users: bool, now: Timestamp) -> u32 {
        let mut watched = self.watched.lock();
        if !watched.failures.contains_key(who) {
            watched.make_room(now);
        }
        let entry = watched.failures.entry(who.clone()).or_insert(Failures { count: 0, last: now, is_users });
        if entry.is_old(now) {
            entry.count = 0;
        }
        *entry = Failures { count: entry.count.saturating_add(1), last: now, is_users };
        entry.count
    }

    pub(super) fn forget(&self, who: &Watched) {
        self.watched.lock().failures.remove(who);
    }
}

impl All {
    /// What is old goes, now and then also while there is room. Beyond that, names that somebody makes up, and addresses that were
    /// wrong only once, push out each other; never a user's name, nor an address that guesses on and on.
    fn make_room(&mut self, now: Timestamp) {
        let is_full = self.failures.len() >= MAX_WATCHED;
        if is_full || now.duration_since(self.swept).as_secs() > FORGET_SECONDS {
            self.failures.retain(|_, failures| !failures.is_old(now));
            self.swept = now;
        }
        let others = || self.failures.iter().filter(|(_, failures)| !failures.is_users);
        if !is_full || others().count() < MAX_WATCHED {
            return;
        }
        let least = others().min_by_key(|(_, failures)| (failures.count, failures.last)).map(|(who, _)| who.clone());
        least.map(|who| self.failures.remove(&who));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_000_000 + second).unwrap()
    }

    fn name(name: &str) -> Watched {
        Watched::Name(name.to_owned())
    }

    #[test]
    fn made_up_names_do_not_keep_others_from_being_counted() {
        let patience = Patience::default();
        let guesser = &watched("ann", Some("192.0.2.1".parse().unwrap()))[1];
        for _ in 0..FREE_FAILURES_OF_ADDRESS {
            patience.failed(guesser, false, at(0));
        }
        assert_eq!(patience.failed(&name("ann"), true, at(0)), 1);
        for made_up in 0..MAX_WATCHED + 10 {
            assert_eq!(patience.failed(&name(&made_up.to_string()), false, at(0)), 1);
        }
        assert!(patience.watched.lock().failures.len() <= MAX_WATCHED + 1);
        assert_eq!(patience.failed(&name("ann"), true, at(0)), 2, "a user's are never forgotten for others'");
        assert_eq!(patience.failed(&name("bob"), true, at(0)), 1);
        assert_eq!(patience.failed(&name("bob"), true, at(0)), 2);
        assert!(patience.check(guesser, at(0)).is_err());
        assert_eq!(patience.failed(&name("late"), false, at(1)), 1);
        assert_eq!(patience.failed(&name("late"), false, at(1)), 2);
    }

    #[test]
    fn what_is_old_goes_although_there_is_room() {
        let patience = Patience::default();
        for made_up in 0..10 {
            patience.failed(&name(&made_up.to_string()), false, at(0));
        }
        patience.failed(&name("ann"), true, at(FORGET_SECONDS));
        assert_eq!(patience.watched.lock().failures.len(), 11);
        patience.failed(&name("bob"), true, at(FORGET_SECONDS + 1));
        assert_eq!(patience.watched.lock().failures.len(), 2);
    }

    #[test]
    fn a_network_of_ipv6_is_one_address() {
        let of = |address: &str| watched("ann", Some(address.parse().unwrap())).remove(1);
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:1:2:3"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_eq!(of("::ffff:192.0.2.1"), of("192.0.2.1"));
        assert_ne!(of("192.0.2.1"), of("192.0.2.2"));
    }
}
