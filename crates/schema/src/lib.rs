//! Structural schemas: what an object of a kind may contain, and what follows from it.
//!
//! One [`Schema`] tree per served version drives decoding of built-in kinds, defaulting, pruning,
//! validation (CEL rules included), patch strategies and server-side apply. It is made from the
//! OpenAPI v3 JSON of a CustomResourceDefinition or of a built-in kind.
//!
//! Pure: no I/O, no clock. Start reading at [`Schema`], then [`Schema::from_json`].

mod model;

pub use model::{Additional, Constraints, ListType, PatchStrategy, Schema, Type};
