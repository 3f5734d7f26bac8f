//! Work that takes a core, and memory, for a while: so much at a time and no more, also when nobody waits for it any more.

use std::sync::Arc;

use croft_meta::ApiError;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::{JoinError, spawn_blocking};

#[derive(Clone, Debug)]
pub(crate) struct Costly {
    slots: Arc<Semaphore>,
    places: Arc<Semaphore>,
}

/// A place among those who wait or are served.
#[derive(Debug)]
pub(super) struct Place {
    _permit: OwnedSemaphorePermit,
}

/// What one piece of work may be done with.
#[derive(Debug)]
pub(super) struct Turn {
    _slot: Option<OwnedSemaphorePermit>,
    _place: Place,
}

impl Costly {
    /// `waiting` is how many may be in the queue.
    pub(crate) fn new(at_a_time: usize, waiting: usize) -> Self {
        let of = |permits| Arc::new(Semaphore::new(permits));
        Self { slots: of(at_a_time), places: of(at_a_time + waiting) }
    }

    /// `None` if too many wait already.
    pub(super) fn place(&self) -> Option<Place> {
        Arc::clone(&self.places).try_acquire_owned().ok().map(|permit| Place { _permit: permit })
    }

    pub(super) async fn turn(&self, place: Place) -> Turn {
        // Never closed, so always granted.
        Turn { _slot: Arc::clone(&self.slots).acquire_owned().await.ok(), _place: place }
    }

    /// Does the work when it is its turn.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, ApiError> {
        let busy = || ApiError::too_many_requests("too many requests of this kind at once, try again later", 1);
        let turn = self.turn(self.place().ok_or_else(busy)?).await;
        turn.work(work).await.map_err(ApiError::internal)
    }

    #[cfg(test)]
    pub(super) fn free(&self) -> (usize, usize) {
        (self.slots.available_permits(), self.places.available_permits())
    }
}

impl Turn {
    /// Whoever asked for the work may go away meanwhile; the turn ends with the work.
    pub(super) async fn work<T: Send + 'static>(
        self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, JoinError> {
        spawn_blocking(move || {
            let _turn = self;
            work()
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::sync_channel;

    use super::*;

    #[tokio::test]
    async fn work_that_nobody_waits_for_keeps_its_slot_and_no_more_than_so_many_wait() {
        let costly = Costly::new(1, 1);
        let (end, ended) = sync_channel::<()>(1);
        let mut running = Box::pin(costly.run(move || ended.recv().is_ok()));
        assert!(futures::poll!(&mut running).is_pending());
        drop(running);
        let mut next = Box::pin(costly.run(|| 2));
        assert!(futures::poll!(&mut next).is_pending(), "the first is still at it");
        assert_eq!(costly.run(|| 3).await.unwrap_err().code(), 429);
        end.send(()).unwrap();
        assert_eq!(next.await.unwrap(), 2);
        assert_eq!(costly.free(), (1, 2));
    }
}
