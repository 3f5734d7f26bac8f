//! What every reconciler runs on, be it a controller or a node's agent; it knows no kind.
//!
//! - [`watch()`] follows a kind for ever; [`Cache`] keeps what it says at hand.
//! - [`Loop`] works on keys, one task each at a time, and comes back later to what failed.
//! - [`Events`] tells users what was done and what went wrong.
//! - [`Tasks`] are tasks that nobody may lose sight of; [`failure`] says what a refusal means.

mod backoff;
mod cache;
mod events;
pub mod failure;
mod tasks;
mod watch;
mod work;

pub use backoff::Backoff;
pub use cache::{Cache, Change, Key};
pub use events::Events;
pub use tasks::Tasks;
pub use watch::{Event, Meta, Object, Observed, OwnerReference, Source, Whole, watch, watch_whole};
pub use work::{Error, Keys, Loop, Received};
