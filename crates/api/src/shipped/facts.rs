//! What a definition says of a kind, and the CustomResourceDefinition that is made of it.

use serde_json::{Map, Value, json};

use crate::resource::Scope;

/// Kubernetes' own groups need a reference to their review. There is one such group: that of snapshots.
const SNAPSHOTS_APPROVED: &str = "https://github.com/kubernetes-csi/external-snapshotter/pull/814";

/// A kind to ship.
#[derive(Debug)]
pub(crate) struct Facts {
    pub(super) group: &'static str,
    pub(super) kind: &'static str,
    pub(super) plural: &'static str,
    pub(super) short_names: Vec<&'static str>,
    /// In the category `all`: shown by `kubectl get all`.
    pub(super) in_all: bool,
    pub(super) scope: Scope,
    pub(super) has_status: bool,
    pub(super) has_scale: bool,
    /// The first is stored.
    pub(super) versions: Vec<VersionFacts>,
}

impl Default for Facts {
    fn default() -> Self {
        Self {
            group: "",
            kind: "",
            plural: "",
            short_names: Vec::new(),
            in_all: false,
            scope: Scope::Namespaced,
            has_status: false,
            has_scale: false,
            versions: Vec::new(),
        }
    }
}

#[derive(Debug)]
pub(super) struct VersionFacts {
    pub(super) name: &'static str,
    pub(super) is_deprecated: bool,
    /// In other words than the usual ones.
    pub(super) deprecation: Option<&'static str>,
    pub(super) columns: Vec<Column>,
    pub(super) schema: Value,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Column {
    pub(super) name: &'static str,
    pub(super) ty: &'static str,
    pub(super) path: &'static str,
    pub(super) priority: i32,
    pub(super) description: &'static str,
}

/// The definition, as it is to be stored.
pub(super) fn definition(facts: &Facts) -> Value {
    let versions: Vec<Value> =
        facts.versions.iter().enumerate().map(|(index, version)| served(facts, version, index == 0)).collect();
    let categories: &[&str] = if facts.in_all { &["all"] } else { &[] };
    let mut names = json!({
        "plural": facts.plural,
        "singular": facts.kind.to_lowercase(),
        "kind": facts.kind,
        "listKind": format!("{}List", facts.kind),
    });
    for (field, values) in [("shortNames", facts.short_names.as_slice()), ("categories", categories)] {
        if !values.is_empty() {
            names[field] = json!(values);
        }
    }
    let scope = if facts.scope == Scope::Namespaced { "Namespaced" } else { "Cluster" };
    let mut metadata = json!({"name": format!("{}.{}", facts.plural, facts.group)});
    if facts.group.ends_with(".k8s.io") {
        metadata["annotations"] = json!({"api-approved.kubernetes.io": SNAPSHOTS_APPROVED});
    }
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": metadata,
        "spec": {
            "group": facts.group,
            "names": names,
            "scope": scope,
            "versions": versions,
            "conversion": {"strategy": "None"},
        },
    })
}

fn served(facts: &Facts, version: &VersionFacts, is_stored: bool) -> Value {
    let mut served = json!({
        "name": version.name,
        "served": true,
        "storage": is_stored,
        "schema": {"openAPIV3Schema": version.schema},
    });
    if version.is_deprecated {
        served["deprecated"] = json!(true);
    }
    if let Some(warning) = version.deprecation {
        served["deprecationWarning"] = json!(warning);
    }
    if facts.has_status {
        served["subresources"] = json!({"status": {}});
    }
    if facts.has_scale {
        served["subresources"]["scale"] = json!({
            "specReplicasPath": ".spec.replicas",
            "statusReplicasPath": ".status.replicas",
            "labelSelectorPath": ".status.labelSelector",
        });
    }
    if !version.columns.is_empty() {
        served["additionalPrinterColumns"] = version.columns.iter().map(column).collect();
    }
    served
}

fn column(column: &Column) -> Value {
    let mut map = Map::new();
    map.insert("name".to_owned(), json!(column.name));
    map.insert("type".to_owned(), json!(column.ty));
    map.insert("jsonPath".to_owned(), json!(column.path));
    if column.priority > 0 {
        map.insert("priority".to_owned(), json!(column.priority));
    }
    if !column.description.is_empty() {
        map.insert("description".to_owned(), json!(column.description));
    }
    Value::Object(map)
}
