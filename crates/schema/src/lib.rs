//! Structural schemas: what an object of a kind may contain, and what follows from it.
//!
//! One [`Schema`] tree per served version drives decoding of built-in kinds, defaulting, pruning,
//! validation (CEL rules included), patch strategies and server-side apply. It is made from the
//! OpenAPI v3 JSON of a CustomResourceDefinition or of a built-in kind.
//!
//! A custom resource on its way in goes through [`prune_resource`], [`apply_defaults`] and
//! [`validate_custom_resource`], which also runs its [`CelRules`]; a built-in kind is [`decode()`]d.
//! Expressions of admission policies and match conditions of webhooks are in [`expression`]. [`check_structural`] is what a CustomResourceDefinition itself must pass.
//!
//! Pure: no I/O, no clock (deep CEL rules borrow a thread for its stack). Start reading at [`Schema`], then [`Schema::from_json`].

mod cel;
mod custom_resource;
mod decode;
mod defaults;
mod duplicates;
mod embedded;
pub mod expression;
mod formats;
mod model;
mod parse;
mod pattern;
mod prune;
mod structural;
#[cfg(test)]
mod testing;
mod validate;

pub use cel::{CelRules, RESERVED_WORDS};
pub use custom_resource::validate_custom_resource;
pub use decode::{Unknown, decode};
pub use defaults::apply_defaults;
pub use duplicates::duplicate_fields;
pub use embedded::each_embedded_metadata;
pub use formats::is_known_format;
pub use model::{Additional, Constraints, ListType, PatchStrategy, Schema, Type};
pub use parse::SchemaError;
pub use pattern::CompiledPattern;
pub use prune::{prune, prune_resource};
pub use structural::check_structural;
pub use validate::{validate, validate_lists};
