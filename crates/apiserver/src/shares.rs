//! A bounded amount of something of which nobody has more than half: one who takes all they can get is in nobody's way but
//! their own.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore};

#[derive(Debug)]
pub(crate) struct Shares {
    all: Arc<Semaphore>,
    of_users: Mutex<HashMap<String, Arc<Semaphore>>>,
    /// What one user may have.
    largest: usize,
}

/// A part of it; given back when it is dropped.
#[derive(Debug)]
pub(crate) struct Share {
    /// Of the user's, and of all.
    permits: [OwnedSemaphorePermit; 2],
}

impl Shares {
    pub(crate) fn of(amount: usize) -> Self {
        Self::at_most(amount.max(2) / 2, amount)
    }

    /// Of which nobody has more than `largest`.
    pub(crate) fn at_most(largest: usize, amount: usize) -> Self {
        let amount = amount.clamp(2, Semaphore::MAX_PERMITS);
        Self { all: Arc::new(Semaphore::new(amount)), of_users: Mutex::default(), largest: largest.min(amount) }
    }

    /// Waits for so much of it, or for as much as one may have.
    pub(crate) async fn take(&self, user: &str, amount: usize) -> Result<Share, AcquireError> {
        let amount = self.possible(amount);
        let of_user = self.of_user(user).acquire_many_owned(amount).await?;
        let of_all = Arc::clone(&self.all).acquire_many_owned(amount).await?;
        Ok(Share { permits: [of_user, of_all] })
    }

    /// The same, but waits for others only: `None` at once if it is the user who has too much of it.
    async fn take_of_others(&self, user: &str, amount: usize) -> Option<Share> {
        let amount = self.possible(amount);
        let of_user = self.of_user(user).try_acquire_many_owned(amount).ok()?;
        let of_all = Arc::clone(&self.all).acquire_many_owned(amount).await.ok()?;
        Some(Share { permits: [of_user, of_all] })
    }

    /// So much in all for one who has some of it already, in the same way.
    pub(crate) async fn grow(&self, user: &str, share: Option<Share>, amount: usize) -> Option<Share> {
        let has = share.as_ref().map_or(0, Share::amount);
        let mut grown = self.take_of_others(user, amount.min(self.largest).saturating_sub(has)).await?;
        if let Some(share) = share {
            grown.join(share);
        }
        Some(grown)
    }

    /// The same as [`Self::take`], if there is so much of it now.
    pub(crate) fn take_now(&self, user: &str, amount: usize) -> Option<Share> {
        let amount = self.possible(amount);
        let of_user = self.of_user(user).try_acquire_many_owned(amount).ok()?;
        let of_all = Arc::clone(&self.all).try_acquire_many_owned(amount).ok()?;
        Some(Share { permits: [of_user, of_all] })
    }

    fn possible(&self, amount: usize) -> u32 {
        u32::try_from(amount.min(self.largest)).unwrap_or(u32::MAX)
    }

    fn of_user(&self, user: &str) -> Arc<Semaphore> {
        let mut of_users = self.of_users.lock();
        if let Some(own) = of_users.get(user) {
            return Arc::clone(own);
        }
        // Whoever has nothing of it is forgotten.
        of_users.retain(|_, own| Arc::strong_count(own) > 1);
        let own = Arc::new(Semaphore::new(self.largest));
        of_users.insert(user.to_owned(), Arc::clone(&own));
        own
    }
}

impl Share {
    fn amount(&self) -> usize {
        self.permits[0].num_permits()
    }

    /// Of the same user.
    fn join(&mut self, other: Self) {
        for (permit, other) in self.permits.iter_mut().zip(other.permits) {
            permit.merge(other);
        }
    }

    /// Gives back what is more than that.
    pub(crate) fn shrink_to(&mut self, amount: usize) {
        let surplus = self.amount().saturating_sub(amount);
        for permit in &mut self.permits {
            drop(permit.split(surplus));
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    fn has(shares: &Shares, user: &str, amount: usize) -> Option<Share> {
        shares.take(user, amount).now_or_never().map(Result::unwrap)
    }

    #[test]
    fn nobody_has_more_than_half() {
        let shares = Shares::of(8);
        let mut first = has(&shares, "greedy", 100).unwrap();
        assert!(has(&shares, "greedy", 1).is_none());
        let second = has(&shares, "other", 4).unwrap();
        assert!(has(&shares, "third", 1).is_none());
        first.shrink_to(3);
        let third = has(&shares, "third", 1).unwrap();
        drop((first, second, third));
        assert!(has(&shares, "greedy", 4).is_some());
    }

    #[test]
    fn whoever_has_some_waits_for_the_rest_but_not_for_themselves() {
        let shares = Shares::of(8);
        let grow = |share, amount| shares.grow("greedy", share, amount).now_or_never();
        let some = grow(None, 1).unwrap();
        let most = grow(some, 3).unwrap();
        assert_eq!(most.as_ref().map(Share::amount), Some(3));
        assert!(grow(None, 2).unwrap().is_none(), "nobody else would give it back");
        let all = grow(most, 100).unwrap();
        assert_eq!(all.as_ref().map(Share::amount), Some(4));
        drop(all);
        let _others = [has(&shares, "other", 4).unwrap(), has(&shares, "third", 3).unwrap()];
        assert!(grow(None, 2).is_none());
    }

    #[test]
    fn whoever_has_nothing_is_forgotten() {
        let shares = Shares::of(8);
        for number in 0..10 {
            has(&shares, &number.to_string(), 1).unwrap();
        }
        assert_eq!(shares.of_users.lock().len(), 1);
    }
}
