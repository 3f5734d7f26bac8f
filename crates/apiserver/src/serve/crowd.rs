//! The connections that are open: only so many, since each takes memory and a descriptor whether anything is asked on it or not.
//!
//! When there is one too many, one goes on which nothing is being asked: of the address that has most of those, the one that has
//! been quiet longest. Whoever hoards connections loses their own, and others hardly notice. If all are in use, one goes whose
//! client leaves its answers lying, if its address has many of those.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use crate::metrics::Connections;

/// An address may leave answers lying on this part of all connections before any of them has to go: clients are slow, too.
const LYING: usize = 10;

#[derive(Debug)]
pub(crate) struct Crowd {
    limit: usize,
    members: Mutex<Members>,
    metrics: Connections,
}

#[derive(Debug, Default)]
struct Members {
    next_id: u64,
    by_id: HashMap<u64, Member>,
}

#[derive(Debug)]
struct Member {
    address: IpAddr,
    /// Being answered now, watches among them.
    requests: usize,
    /// Those of them that wait for the client to take what there is.
    waiting: Arc<AtomicUsize>,
    quiet_since: Instant,
    leave: CancellationToken,
}

/// One connection's place among the others; free again when it is dropped.
#[derive(Debug)]
pub(super) struct Place {
    crowd: Arc<Crowd>,
    id: u64,
    waiting: Arc<AtomicUsize>,
    /// Cancelled when another connection needs the place.
    pub(super) leave: CancellationToken,
}

/// A request that is being answered: its connection is not the one to go.
#[derive(Debug)]
pub(super) struct Busy {
    place: Arc<Place>,
}

/// An answer that waits for its client.
#[derive(Debug)]
pub(super) struct Waiting(Arc<AtomicUsize>);

impl Crowd {
    pub(crate) fn new(limit: usize, metrics: Connections) -> Arc<Self> {
        Arc::new(Self { limit, members: Mutex::default(), metrics })
    }

    /// `None` if something is being asked on every connection.
    pub(super) fn enter(self: &Arc<Self>, address: IpAddr, now: Instant) -> Option<Arc<Place>> {
        let (leave, waiting) = (CancellationToken::new(), Arc::default());
        let mut members = self.members.lock();
        if members.by_id.len() >= self.limit {
            let Some(left) = members.first_to_go(self.limit).and_then(|id| members.by_id.remove(&id)) else {
                self.metrics.refused();
                return None;
            };
            left.leave.cancel();
            self.metrics.sent_away();
        }
        members.next_id += 1;
        let id = members.next_id;
        let member =
            Member { address, requests: 0, waiting: Arc::clone(&waiting), quiet_since: now, leave: leave.clone() };
        members.by_id.insert(id, member);
        drop(members);
        self.metrics.opened(1);
        Some(Arc::new(Place { crowd: Arc::clone(self), id, waiting, leave }))
    }
}

impl Members {
    /// Who goes when somebody must.
    fn first_to_go(&self, limit: usize) -> Option<u64> {
        self.quietest(0, |member| member.requests == 0).or_else(|| self.quietest(limit / LYING, Member::is_left_lying))
    }

    /// Among those, and only of an address that has more than so many of them.
    fn quietest(&self, more_than: usize, is_one: impl Fn(&Member) -> bool) -> Option<u64> {
        let found: Vec<(&u64, &Member)> = self.by_id.iter().filter(|(_, member)| is_one(member)).collect();
        let mut of_address: HashMap<IpAddr, usize> = HashMap::new();
        for (_, member) in &found {
            *of_address.entry(member.address).or_default() += 1;
        }
        let order = |member: &Member| (std::cmp::Reverse(of_address[&member.address]), member.quiet_since);
        let first = found.into_iter().min_by_key(|(_, member)| order(member));
        first.filter(|(_, member)| of_address[&member.address] > more_than).map(|(id, _)| *id)
    }
}

impl Member {
    fn is_left_lying(&self) -> bool {
        self.requests <= self.waiting.load(Ordering::Relaxed)
    }
}

impl Place {
    pub(super) fn waiting(&self) -> Waiting {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        Waiting(Arc::clone(&self.waiting))
    }

    #[cfg(test)]
    pub(super) fn are_all_waiting(&self) -> bool {
        self.crowd.members.lock().by_id.get(&self.id).is_some_and(Member::is_left_lying)
    }

    pub(super) fn busy(self: &Arc<Self>) -> Busy {
        if let Some(member) = self.crowd.members.lock().by_id.get_mut(&self.id) {
            member.requests += 1;
        }
        Busy { place: Arc::clone(self) }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.crowd.members.lock().by_id.remove(&self.id);
        self.crowd.metrics.opened(-1);
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        if let Some(member) = self.place.crowd.members.lock().by_id.get_mut(&self.place.id) {
            member.requests = member.requests.saturating_sub(1);
            member.quiet_since = Instant::now();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn address(last: u8) -> IpAddr {
        IpAddr::from([127, 0, 0, last])
    }

    #[test]
    fn whoever_has_most_loses_the_one_that_was_quiet_longest() {
        let crowd = Crowd::new(4, Connections::default());
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let modest = crowd.enter(address(1), at(0)).unwrap();
        let hoarded: Vec<_> = (1..4).map(|n| crowd.enter(address(2), at(n)).unwrap()).collect();
        let busy = hoarded[0].busy();
        let newcomer = crowd.enter(address(3), at(9)).expect("a place is made");
        let left: Vec<bool> = hoarded.iter().map(|place| place.leave.is_cancelled()).collect();
        assert_eq!((modest.leave.is_cancelled(), left), (false, vec![false, true, false]));
        drop((busy, newcomer));
        // One place is free now: nobody has to go.
        let _next = crowd.enter(address(3), at(10)).unwrap();
        assert!(!hoarded[0].leave.is_cancelled());
    }

    #[test]
    fn whoever_leaves_much_lying_makes_room_when_nobody_is_quiet() {
        let crowd = Crowd::new(20, Connections::default());
        let enter = |last| crowd.enter(address(last), Instant::now());
        let places: Vec<_> = (0..20).map(|n| enter(if n < 2 { 1 } else { 2 }).unwrap()).collect();
        let _busy: Vec<_> = places.iter().map(Place::busy).collect();
        let mut waiting: Vec<_> = places[..4].iter().map(|place| place.waiting()).collect();
        assert!(enter(3).is_none(), "two of an address are no more than a tenth");
        waiting.extend(places[4..7].iter().map(|place| place.waiting()));
        let _more = places[6].busy();
        assert!(enter(3).is_some());
        let left: Vec<bool> = places.iter().map(|place| place.leave.is_cancelled()).collect();
        assert_eq!(left.iter().filter(|left| **left).count(), 1);
        assert!(left[2..6].contains(&true), "{left:?}");
    }

    #[test]
    fn nobody_goes_who_is_being_answered() {
        let crowd = Crowd::new(1, Connections::default());
        let place = crowd.enter(address(1), Instant::now()).unwrap();
        let (first, second) = (place.busy(), place.busy());
        assert!(crowd.enter(address(2), Instant::now()).is_none());
        drop(first);
        assert!(crowd.enter(address(2), Instant::now()).is_none(), "another request is still being answered");
        drop(second);
        assert!(crowd.enter(address(2), Instant::now()).is_some());
        assert!(place.leave.is_cancelled());
    }
}
