//! Sets of fields of an object, as `metadata.managedFields` records them.
//!
//! A field is named by a path of [`PathElement`]s from the root. A [`Set`] is a tree of them.
//! [`wire`] is the `FieldsV1` form.

mod element;
mod set;
pub mod wire;

pub use element::{PathElement, compare_values, path_string, values_equal};
pub use set::{Entry, Set};

#[cfg(test)]
mod tests;
