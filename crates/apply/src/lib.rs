//! What a write means: JSON patch, merge patch, strategic merge patch, server-side apply, and who
//! owns which field afterwards (`metadata.managedFields`).
//!
//! Each kind of patch takes a document and gives a document; none of them validates, defaults or
//! prunes: the API server does that with what comes back. Everything is driven by the
//! [`croft_schema::Schema`] of the kind, and behaves as Kubernetes 1.34 does, quirks included,
//! because clients depend on them.
//!
//! Pure: no I/O, and the time of a write is passed in.
//!
//! Start reading at [`ssa::track_update`] (every write but an apply) and [`ssa::apply`]; below
//! them are [`fieldpath`] (sets of fields and their wire form) and [`typed`] (comparing and merging
//! objects by schema).

mod error;
pub mod fieldpath;
mod go_format;
pub mod json_patch;
mod managed;
pub mod merge_patch;
pub mod ssa;
pub mod strategic;
#[cfg(test)]
mod testing;
pub mod typed;

pub use error::PatchError;
pub use ssa::{ApplyError, Conflict, ManagedError, WriteContext, apply, conflict_status, track_update};
