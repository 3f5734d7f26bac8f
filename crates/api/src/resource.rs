//! One row of the resource table.

mod schema;

use std::sync::Arc;

use croft_meta::{FieldErrors, Gvk, Gvr};
use serde_json::Value;

pub(crate) use self::schema::Compiled;
pub use self::schema::VersionSchema;
use crate::admission::{Admit, AdmitDelete};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    Namespaced,
    Cluster,
}

#[derive(Clone, Debug, Default)]
pub struct Names {
    pub plural: String,
    pub singular: String,
    pub kind: String,
    pub list_kind: String,
    pub short_names: Vec<String>,
    pub categories: Vec<String>,
}

/// A column of `kubectl get`.
#[derive(Clone, Debug)]
pub struct Column {
    pub name: String,
    /// `string`, `integer`, `number`, `boolean` or `date`.
    pub ty: String,
    pub format: String,
    pub description: String,
    /// Above 0: shown only with `-o wide`.
    pub priority: i32,
    /// Where the cell's value is (`.spec.replicas`), for custom resources; built-in kinds compute theirs in
    /// [`Behaviour::cells`].
    pub json_path: String,
}

/// The paths behind `/scale`, without the leading dot.
#[derive(Clone, Debug)]
pub struct Scale {
    pub spec_replicas: String,
    pub status_replicas: String,
    pub label_selector: Option<String>,
}

/// A subresource as discovery lists it.
#[derive(Clone, Debug)]
pub struct Subresource {
    /// `status`, `scale`, `token`, `eviction`, ...
    pub name: String,
    /// What it takes and answers.
    pub kind: Gvk,
    pub verbs: Vec<&'static str>,
}

/// One served version.
#[derive(Clone, Debug)]
pub struct Version {
    pub name: String,
    pub schema: VersionSchema,
    pub columns: Vec<Column>,
    pub subresources: Vec<Subresource>,
    pub scale: Option<Scale>,
    /// Field-selector paths beyond `metadata.name` and `metadata.namespace`, without a leading dot.
    pub selectable_fields: Vec<String>,
    /// Sent as a `Warning` on every request to this version.
    pub deprecation_warning: Option<String>,
}

/// What a kind does beyond its schema. Plain functions: they see the object and nothing else.
#[derive(Clone, Debug)]
pub struct Behaviour {
    /// Fills in what the user left out, on every decode (create, update, patch result, read of stored objects is not needed).
    pub default: fn(&mut Value),
    /// After defaulting, before validation: clears what a client may not set at creation (`status`, ...).
    pub prepare_create: fn(&mut Value),
    /// (new, old): puts back what this write may not change.
    pub prepare_update: fn(&mut Value, &Value),
    pub validate_create: fn(&Value) -> FieldErrors,
    pub validate_update: fn(&Value, &Value) -> FieldErrors,
    /// (subresource, new, old): what must hold when one is written.
    pub validate_subresource: fn(&str, &Value, &Value) -> FieldErrors,
    /// Texts for `Warning` headers: deprecated fields, or "accepted, but nothing in Croft acts on it".
    pub warnings: fn(&Value) -> Vec<String>,
    /// The cells of a Table row, one per column. The second argument is "now" in seconds since the epoch, for ages.
    pub cells: fn(&Value, i64) -> Vec<Value>,
    /// The value of a selectable field; `None` if the kind cannot select by it.
    pub field: fn(&Value, &str) -> Option<String>,
    /// PUT without a resourceVersion is allowed (true for nearly all built-in kinds, false for custom resources).
    pub unconditional_update: bool,
    /// PUT on a missing name creates it (Lease, Endpoints, Event ... as upstream).
    pub create_on_update: bool,
    /// DELETE answers with the object that is gone rather than with a Status.
    pub delete_returns_object: bool,
    /// `metadata.generation` counts changes of everything but metadata and status.
    pub has_generation: bool,
    /// After defaulting, before schema validation: fills in, changes or refuses, with a view of other objects.
    pub admit: Option<Admit>,
    /// Before a deletion.
    pub admit_delete: Option<AdmitDelete>,
    /// How `metadata.name` is checked.
    pub name_rule: fn(&str) -> Vec<String>,
    /// Rewrites a stored object into another version or group of the same storage (events); identity for most.
    pub convert: Option<fn(&mut Value, &Gvk)>,
}

/// One kind in one group, with all its versions.
#[derive(Clone, Debug)]
pub struct Resource {
    pub group: String,
    pub names: Names,
    pub scope: Scope,
    /// Served versions, best first.
    pub versions: Vec<Version>,
    pub storage_version: String,
    /// Where its objects are stored: `registry/<storage_key>/[namespace/]name`, the key being
    /// `<group or core>/<plural>`. Two resources may share one (events).
    pub storage_key: String,
    /// Verbs of the collection and its objects, as discovery lists them.
    pub verbs: Vec<&'static str>,
    /// Answered by the API server itself rather than stored (reviews, bindings).
    pub is_virtual: bool,
    /// From a CustomResourceDefinition: strategic merge is refused, unconditional PUT too.
    pub is_custom: bool,
    pub behaviour: Arc<Behaviour>,
}

impl Resource {
    pub fn version(&self, name: &str) -> Option<&Version> {
        self.versions.iter().find(|v| v.name == name)
    }

    pub fn gvk(&self, version: &str) -> Gvk {
        Gvk::new(&self.group, version, &self.names.kind)
    }

    pub fn gvr(&self, version: &str) -> Gvr {
        Gvr::new(&self.group, version, &self.names.plural)
    }

    pub fn is_namespaced(&self) -> bool {
        self.scope == Scope::Namespaced
    }
}
