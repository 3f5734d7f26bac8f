//! What was handed to connections of the answers, and is not yet on the wire.
//!
//! Over HTTP/2 a connection keeps what it was handed until its client takes it, and a client that takes a single byte of an
//! answer which is handed over as a whole leaves the rest with it for ever: nobody is there any more who would hand over
//! another piece, and notice. So what is on its way is counted; when it is too much in all, the connection goes that has most of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;

/// What there is of an answer besides its bytes.
const AN_ANSWER: usize = 1 << 10;

/// Of one connection, and of all.
#[derive(Debug)]
pub(super) struct Load {
    own: AtomicUsize,
    all: Arc<AtomicUsize>,
}

/// Counts for as long as the connection has any of it.
struct Counted {
    bytes: Bytes,
    load: Arc<Load>,
}

impl Load {
    pub(super) fn new(all: Arc<AtomicUsize>) -> Arc<Self> {
        Arc::new(Self { own: AtomicUsize::new(0), all })
    }

    pub(super) fn own(&self) -> usize {
        self.own.load(Ordering::Relaxed)
    }

    /// The same bytes, which count until they are dropped, and how many there are now in all. What others have as well costs
    /// nothing more.
    pub(super) fn count(self: &Arc<Self>, bytes: Bytes) -> (Bytes, usize) {
        if !bytes.is_unique() {
            return (bytes, self.all.load(Ordering::Relaxed));
        }
        let more = bytes.len() + AN_ANSWER;
        self.own.fetch_add(more, Ordering::Relaxed);
        let all = self.all.fetch_add(more, Ordering::Relaxed) + more;
        (Bytes::from_owner(Counted { bytes, load: Arc::clone(self) }), all)
    }
}

impl AsRef<[u8]> for Counted {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        let less = self.bytes.len() + AN_ANSWER;
        self.load.own.fetch_sub(less, Ordering::Relaxed);
        self.load.all.fetch_sub(less, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_count_until_they_are_dropped() {
        let load = Load::new(Arc::default());
        let (mut bytes, all) = load.count(Bytes::from(vec![7; 9]));
        assert_eq!((load.own(), all), (9 + AN_ANSWER, 9 + AN_ANSWER));
        let first = bytes.split_to(4);
        drop(bytes);
        assert_eq!((&*first, load.own()), (&[7; 4][..], 9 + AN_ANSWER));
        drop(first);
        assert_eq!(load.own(), 0);
    }

    #[test]
    fn what_is_there_anyway_does_not_count() {
        let load = Load::new(Arc::default());
        let shared = Bytes::from(vec![7; 9]);
        let (_same, all) = load.count(shared.clone());
        let (_fixed, of_both) = load.count(Bytes::from_static(b"fixed"));
        assert_eq!((load.own(), all, of_both), (0, 0, 0));
    }
}
