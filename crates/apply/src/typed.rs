//! Objects seen through their schema: which parts are one field and which are many.
//!
//! A list or object that is *atomic* is one field, replaced as a whole; the others are walked item
//! by item. Where the schema says nothing (preserved unknown fields) the shape is deduced: objects
//! are walked, lists are atomic.

mod atomics;
mod compare;
mod field_set;
mod merge;
mod node;
mod remove;
mod validate;

pub use atomics::atomics;
pub use compare::{Comparison, compare};
pub use field_set::{add_named_parents, field_set, follow_schema};
pub use merge::merge;
pub use node::Node;
pub use remove::{extract_items, remove_items};
pub use validate::{Duplicates, validate};

#[cfg(test)]
mod tests;
