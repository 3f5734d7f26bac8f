//! The kinds that Croft serves: the resource table, and for each built-in kind its schema, columns,
//! defaults and rules.
//!
//! The table drives every verb for every kind. A built-in kind is a row in [`builtin`]; a
//! CustomResourceDefinition becomes the same [`Resource`] when it is established. Nothing in the
//! API server knows a kind by name, except the few virtual ones that are not stored (reviews).
//!
//! Pure: no I/O, no clock.

mod resource;

pub use resource::{Behaviour, Column, Names, Resource, Scale, Scope, Subresource, Version};
