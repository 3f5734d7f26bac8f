//! The connections that are open: only so many, since each takes memory and a descriptor whether anything is asked on it or not.
//!
//! When there is one too many, one goes on which nothing is being asked: of the address that has most of those, the one that has
//! been quiet longest. Whoever hoards connections loses their own, and others hardly notice. If all are in use, one goes whose
//! client leaves its answers lying, if its address has many of those.
//!
//! What they all have to send is bounded, too ([`super::sending`]): beyond it the one goes that has most.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use super::sending::Load;
use crate::config::Limits;
use crate::metrics::Connections;
use crate::network::network;

/// An address may leave answers lying on this part of all connections before any of them has to go: clients are slow, too.
const LYING: usize = 10;

#[derive(Debug)]
pub(crate) struct Crowd {
    limit: usize,
    /// What all may have to send.
    sending_limit: usize,
    sending: Arc<AtomicUsize>,
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
    /// The same for all addresses of somebody who has many.
    address: IpAddr,
    /// Being answered now, watches among them.
    requests: usize,
    /// Those of them that wait for the client to take what there is.
    waiting: Arc<AtomicUsize>,
    quiet_since: Instant,
    leave: CancellationToken,
    load: Arc<Load>,
    cut: CancellationToken,
}

/// One connection's place among the others; free again when it is dropped.
#[derive(Debug)]
pub(super) struct Place {
    crowd: Arc<Crowd>,
    id: u64,
    waiting: Arc<AtomicUsize>,
    /// Cancelled when another connection needs the place.
    pub(super) leave: CancellationToken,
    load: Arc<Load>,
    /// Cancelled when it has so much to send that it has to go at once.
    pub(super) cut: CancellationToken,
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
    pub(crate) fn new(limits: Limits, metrics: Connections) -> Arc<Self> {
        let (limit, sending_limit) = (limits.connections, limits.sending_bytes);
        Arc::new(Self { limit, sending_limit, sending: Arc::default(), members: Mutex::default(), metrics })
    }

    /// `None` if something is being asked on every connection.
    pub(super) fn enter(self: &Arc<Self>, address: IpAddr, now: Instant) -> Option<Arc<Place>> {
        let (leave, cut, waiting) = (CancellationToken::new(), CancellationToken::new(), Arc::default());
        let load = Load::new(Arc::clone(&self.sending));
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
        let member = Member {
            address: network(address),
            requests: 0,
            waiting: Arc::clone(&waiting),
            quiet_since: now,
            leave: leave.clone(),
            load: Arc::clone(&load),
            cut: cut.clone(),
        };
        members.by_id.insert(id, member);
        drop(members);
        self.metrics.opened(1);
        Some(Arc::new(Place { crowd: Arc::clone(self), id, waiting, leave, load, cut }))
    }

    /// It keeps its place until it is gone, so that no other one goes for the same bytes.
    fn cut_fullest(&self) {
        let members = self.members.lock();
        let fullest = members.by_id.values().max_by_key(|member| member.load.own());
        if let Some(fullest) = fullest.filter(|member| !member.cut.is_cancelled()) {
            fullest.cut.cancel();
            self.metrics.cut();
        }
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
    /// What is handed to the connection, counted until it is on the wire.
    pub(super) fn sends(&self, bytes: Bytes) -> Bytes {
        let (bytes, all) = self.load.count(bytes);
        if all > self.crowd.sending_limit {
            self.crowd.cut_fullest();
        }
        bytes
    }

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

    fn crowd(limit: usize) -> Arc<Crowd> {
        let limits = Limits { connections: limit, sending_bytes: 100 << 10, ..Limits::default() };
        Crowd::new(limits, Connections::default())
    }

    fn address(last: u8) -> IpAddr {
        IpAddr::from([127, 0, 0, last])
    }

    #[test]
    fn whoever_has_most_loses_the_one_that_was_quiet_longest() {
        let crowd = crowd(4);
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
    fn many_addresses_of_one_network_hide_nobody() {
        let crowd = crowd(3);
        let start = Instant::now();
        let enter =
            |address: &str, after| crowd.enter(address.parse().unwrap(), start + Duration::from_secs(after)).unwrap();
        let modest = enter("192.0.2.1", 0);
        let hoarded = [enter("2001:db8::1", 1), enter("2001:db8::2", 2)];
        let _newcomer = enter("192.0.2.2", 3);
        let left = [&modest, &hoarded[0], &hoarded[1]].map(|place| place.leave.is_cancelled());
        assert_eq!(left, [false, true, false]);
    }

    #[test]
    fn whoever_leaves_much_lying_makes_room_when_nobody_is_quiet() {
        let crowd = crowd(20);
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
    fn whoever_has_most_to_send_goes_when_it_is_too_much() {
        let crowd = crowd(3);
        let places: Vec<_> = (1..4).map(|n| crowd.enter(address(n), Instant::now()).unwrap()).collect();
        let are_cut = || -> Vec<bool> { places.iter().map(|place| place.cut.is_cancelled()).collect() };
        let send = |place: usize, kib: usize| places[place].sends(Bytes::from(vec![0; kib << 10]));
        let lying = (send(0, 30), send(1, 20), send(1, 20));
        let whole = send(2, 10);
        drop(whole);
        assert_eq!(are_cut(), [false; 3]);
        let _much = (send(2, 15), send(2, 15), send(2, 1));
        assert_eq!(are_cut(), [false, true, false]);
        let _more = send(0, 1);
        assert_eq!(are_cut(), [false, true, false], "what that one has is on its way out");
        drop(lying);
        let _enough = send(0, 40);
        assert_eq!(are_cut(), [false, true, false]);
    }

    #[test]
    fn nobody_goes_who_is_being_answered() {
        let crowd = crowd(1);
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
