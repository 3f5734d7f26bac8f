//! The vocabulary every other crate speaks: group/version/kind names, revisions, selectors,
//! quantities, name rules, `metav1.Status` errors, and helpers over an object's metadata.
//!
//! Objects are `serde_json::Value`s throughout Croft: what the user sent is what is stored.
//! This crate is pure: no I/O, no clock, no randomness.
//!
//! Start reading at [`status::ApiError`] (every failure a client sees is one) and [`object`].

pub mod chain;
pub mod field;
pub mod gvk;
pub mod json;
pub mod names;
pub mod object;
pub mod quantity;
pub mod redact;
pub mod revision;
pub mod selector;
pub mod status;
pub mod time;

pub use chain::Chain;
pub use field::{FieldError, FieldErrors, FieldPath};
pub use gvk::{GroupVersion, Gvk, Gvr};
pub use quantity::Quantity;
pub use revision::Revision;
pub use selector::{FieldSelector, LabelSelector};
pub use status::ApiError;
