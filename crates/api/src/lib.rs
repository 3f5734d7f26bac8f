//! The kinds that Croft serves: the resource table, and for each built-in kind its schema, columns,
//! defaults and rules.
//!
//! The table drives every verb for every kind. A built-in kind is a row in [`builtin`]; a
//! CustomResourceDefinition becomes the same [`Resource`] when it is established ([`custom_resource`]). Nothing in
//! the API server knows a kind by name, except the few virtual ones that are not stored (reviews).
//!
//! Start reading at `table.rs` (what is served), then `wire.rs` (the facts about every built-in type that drive
//! schemas, protobuf and Go's way of writing JSON), then `kinds/` (defaults and rules, one file per subject).
//!
//! Pure: no I/O, no clock.

mod admission;
pub mod admission_policy;
mod amount;
mod blank;
pub mod cdi;
pub mod cni;
pub mod compute_quota;
pub mod cron;
mod custom;
mod defaults;
mod go_json;
pub mod harvester;
pub mod instancetype;
mod kind;
mod kinds;
pub mod kubevirt;
pub mod limit_range;
pub mod longhorn;
pub mod machine_state;
pub mod object_quota;
mod openapi;
pub mod pod_quota;
pub mod pod_resources;
mod print;
pub mod protobuf;
pub mod rbac;
mod resource;
pub mod runtime_class;
mod schemas;
mod shipped;
pub mod snapshot;
pub mod state_schedule;
mod table;
mod validate;
mod view;
mod wire;

pub use admission::{
    Admission, Admit, AdmitDelete, Lookup, Refuser, of as rules_of, refused_by, refusers, shipped_behaviour,
};
pub use blank::blank;
pub use custom::{compare_versions, custom_resource, definition_outline};
pub use kind::Marker;
pub use kubevirt::vmi_from_vm;
pub use openapi::{definition_name, openapi_definitions};
pub use resource::{Behaviour, Column, Names, Resource, Scale, Scope, Subresource, Version, VersionSchema};
pub use schemas::{delete_options_schema, kind_schema, object_meta_schema};
pub use shipped::{DEFINITIONS_DIGEST, idle_status, shipped_definitions, shipped_names};
pub use table::builtin;
pub use validate::{Need, ServiceNeeds, service_needs};
