//! Leases: that they exist is in the file, when they run out is in memory.
//!
//! A restart gives every lease its whole time again, as a new leader of etcd does: a renewal then costs no write, and
//! a clock that jumps takes nothing away.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rusqlite::Connection;

use crate::{Error, LeaseId, Result};

#[derive(Debug, Default)]
pub(super) struct Leases {
    held: Mutex<HashMap<LeaseId, Lease>>,
}

#[derive(Clone, Copy, Debug)]
struct Lease {
    ttl: Duration,
    ends: Instant,
}

impl Leases {
    pub(super) fn load(connection: &Connection, now: Instant) -> rusqlite::Result<Self> {
        let leases = Self::default();
        let mut statement = connection.prepare("SELECT id, ttl_ms FROM lease")?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let ttl_ms: i64 = row.get(1)?;
            leases.add(LeaseId(row.get(0)?), Duration::from_millis(u64::try_from(ttl_ms).unwrap_or(0)), now);
        }
        Ok(leases)
    }

    pub(super) fn add(&self, id: LeaseId, ttl: Duration, now: Instant) {
        self.held.lock().insert(id, Lease { ttl, ends: now + ttl });
    }

    pub(super) fn remove(&self, id: LeaseId) {
        self.held.lock().remove(&id);
    }

    /// A lease that has run out stays dead, even if its keys are still to be deleted.
    pub(super) fn renew(&self, id: LeaseId, now: Instant) -> Result<Duration> {
        let mut held = self.held.lock();
        let lease = held.get_mut(&id).filter(|lease| lease.ends > now).ok_or(Error::NoSuchLease(id))?;
        lease.ends = now + lease.ttl;
        Ok(lease.ttl)
    }

    pub(super) fn ended(&self, now: Instant) -> Vec<LeaseId> {
        self.held.lock().iter().filter(|(_, lease)| lease.ends <= now).map(|(id, _)| *id).collect()
    }

    pub(super) fn next_end(&self) -> Option<Instant> {
        self.held.lock().values().map(|lease| lease.ends).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_lives_from_renewal_to_renewal_and_no_longer() {
        let (leases, start) = (Leases::default(), Instant::now());
        let (id, ttl) = (LeaseId(7), Duration::from_secs(10));
        leases.add(id, ttl, start);
        assert_eq!(leases.next_end(), Some(start + ttl));
        let later = start + Duration::from_secs(9);
        assert_eq!(leases.renew(id, later).unwrap(), ttl);
        assert!(leases.ended(start + Duration::from_secs(18)).is_empty());
        let end = later + ttl;
        assert_eq!(leases.ended(end), [id]);
        assert!(matches!(leases.renew(id, end), Err(Error::NoSuchLease(lease)) if lease == id));
        leases.remove(id);
        assert_eq!(leases.next_end(), None);
    }
}
