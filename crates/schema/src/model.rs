//! The schema tree.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Number, Value};

use crate::pattern::CompiledPattern;

/// The JSON type a node demands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Type {
    /// Anything: `x-kubernetes-preserve-unknown-fields` without a type, `RawExtension`, `JSON`.
    #[default]
    Any,
    Object,
    Array,
    String,
    Integer,
    Number,
    Boolean,
    /// `x-kubernetes-int-or-string`.
    IntOrString,
}

/// How the items of a list are told apart when two writers meet (`x-kubernetes-list-type`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ListType {
    /// Replaced as a whole.
    #[default]
    Atomic,
    /// Scalars, each its own key.
    Set,
    /// Objects with these key fields.
    Map(Vec<String>),
}

/// `x-kubernetes-patch-strategy` and `-merge-key`: built-in kinds only.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PatchStrategy {
    pub merge: bool,
    pub retain_keys: bool,
    pub merge_key: Option<String>,
}

/// `additionalProperties`.
#[derive(Clone, Debug, Default)]
pub enum Additional {
    /// Only the named properties.
    #[default]
    None,
    /// A map with values of this schema.
    Schema(Arc<Schema>),
}

/// Value rules that do not change the shape.
#[derive(Clone, Debug, Default)]
pub struct Constraints {
    pub format: Option<String>,
    pub pattern: Option<String>,
    pub enum_values: Vec<Value>,
    pub minimum: Option<Number>,
    pub maximum: Option<Number>,
    pub exclusive_minimum: bool,
    pub exclusive_maximum: bool,
    pub multiple_of: Option<Number>,
    pub min_length: Option<u64>,
    pub max_length: Option<u64>,
    pub min_items: Option<u64>,
    pub max_items: Option<u64>,
    pub unique_items: bool,
    pub min_properties: Option<u64>,
    pub max_properties: Option<u64>,
    pub all_of: Vec<Schema>,
    pub any_of: Vec<Schema>,
    pub one_of: Vec<Schema>,
    pub not: Option<Box<Schema>>,
    /// `pattern`, compiled when first needed.
    pub compiled_pattern: CompiledPattern,
}

/// One node. Children are shared: built-in types occur in many kinds.
#[derive(Clone, Debug, Default)]
pub struct Schema {
    /// The Go type's name (`DeploymentSpec`), which decoding errors of built-in kinds quote; empty for custom resources.
    pub type_name: Arc<str>,
    pub ty: Type,
    pub nullable: bool,
    pub preserve_unknown: bool,
    pub embedded_resource: bool,
    pub properties: BTreeMap<String, Arc<Schema>>,
    pub additional: Additional,
    pub items: Option<Arc<Schema>>,
    pub required: Vec<String>,
    pub default: Option<Value>,
    pub list_type: ListType,
    /// `x-kubernetes-map-type: atomic` (also on structs).
    pub map_atomic: bool,
    pub patch: PatchStrategy,
    pub constraints: Option<Box<Constraints>>,
    /// The raw `x-kubernetes-validations` of this node, compiled by the `cel` module.
    pub rules: Option<Value>,
}
