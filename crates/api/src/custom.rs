//! A CustomResourceDefinition as a row of the resource table.

mod outline;

use std::cmp::Ordering;
use std::sync::Arc;

use croft_meta::{FieldPath, Gvk};
use croft_schema::{CelRules, Schema, SchemaError, Type};
use serde_json::Value;

pub use self::outline::definition_outline;
use crate::kinds;
use crate::resource::{
    Behaviour, Column, Compiled, Names, Resource, Scale, Scope, Subresource, Version, VersionSchema,
};
use crate::schemas::object_meta_schema;
use crate::view::{flag, get, has, list, remove, restore, strings, text};

/// Makes the row of a definition that has passed validation. Only served versions are in it. The schemas are taken from
/// what `whole` gives when they are first needed: until then an outline of the definition is enough.
pub fn custom_resource(definition: &Value, whole: impl FnOnce() -> Value + Send + 'static) -> Resource {
    let group = text(definition, "spec.group").to_owned();
    let names = names(definition);
    let served: Vec<&Value> = served(definition).collect();
    let schemas = VersionSchema::later(served.len(), move || compiled(&whole()));
    let version = |(version, schema)| served_version(&group, &names.kind, version, schema);
    let mut versions: Vec<Version> = served.into_iter().zip(schemas).map(version).collect();
    versions.sort_by(|a, b| compare_versions(&a.name, &b.name));
    let storage = list(definition, "spec.versions").iter().find(|version| flag(version, "storage"));
    let has_status = versions.iter().any(|v: &Version| v.subresources.iter().any(|s| s.name == "status"));
    Resource {
        storage_version: storage.map(|version| text(version, "name").to_owned()).unwrap_or_default(),
        storage_key: format!("{group}/{}", names.plural),
        scope: if text(definition, "spec.scope") == "Namespaced" { Scope::Namespaced } else { Scope::Cluster },
        verbs: vec!["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"],
        versions,
        is_virtual: false,
        is_custom: true,
        behaviour: Arc::new(behaviour(&group, &names.plural, has_status)),
        group,
        names,
    }
}

fn served(definition: &Value) -> impl Iterator<Item = &Value> {
    list(definition, "spec.versions").iter().filter(|version| flag(version, "served"))
}

/// The schemas of all served versions, in the order of the definition.
fn compiled(definition: &Value) -> Vec<Compiled> {
    let mut known: Vec<(&Value, Compiled)> = Vec::new();
    for version in served(definition) {
        // Versions often differ in name only; a schema is too large to be kept twice.
        let json = get(version, "schema.openAPIV3Schema").unwrap_or(&Value::Null);
        let same = known.iter().find(|(other, _)| *other == json).map(|(_, compiled)| compiled.clone());
        known.push((json, same.unwrap_or_else(|| compile(json))));
    }
    known.into_iter().map(|(_, compiled)| compiled).collect()
}

fn compile(json: &Value) -> Compiled {
    // Schemas that cannot be read, and rules that do not compile, are refused when the definition is written.
    let schema = schema(json).unwrap_or_else(|_| open());
    let rules = CelRules::compile(&schema, &FieldPath::root()).ok().filter(|rules| !rules.is_empty());
    Compiled { schema: Arc::new(schema), rules: rules.map(Arc::new) }
}

/// Keeps whatever an object has.
fn open() -> Schema {
    Schema { ty: Type::Object, preserve_unknown: true, ..Schema::default() }
}

/// What is served are the names that were accepted, which may be fewer than those asked for.
fn names(definition: &Value) -> Names {
    let is_accepted = !text(definition, "status.acceptedNames.plural").is_empty();
    let base = if is_accepted { "status.acceptedNames" } else { "spec.names" };
    let field = |name: &str| text(definition, &format!("{base}.{name}")).to_owned();
    let many = |name: &str| -> Vec<String> {
        strings(definition, &format!("{base}.{name}")).into_iter().map(str::to_owned).collect()
    };
    let kind = field("kind");
    let or = |value: String, instead: String| if value.is_empty() { instead } else { value };
    Names {
        plural: field("plural"),
        singular: or(field("singular"), kind.to_lowercase()),
        list_kind: or(field("listKind"), format!("{kind}List")),
        short_names: many("shortNames"),
        categories: many("categories"),
        kind,
    }
}

fn served_version(group: &str, kind: &str, version: &Value, schema: VersionSchema) -> Version {
    let name = text(version, "name").to_owned();
    let own = Gvk::new(group, &name, kind);
    let verbs = || vec!["get", "patch", "update"];
    let mut subresources = Vec::new();
    if has(version, "subresources.status") {
        subresources.push(Subresource { name: "status".to_owned(), kind: own.clone(), verbs: verbs() });
    }
    if has(version, "subresources.scale") {
        let kind = Gvk::new("autoscaling", "v1", "Scale");
        subresources.push(Subresource { name: "scale".to_owned(), kind, verbs: verbs() });
    }
    let without_dot = |path: &str| path.trim_start_matches('.').to_owned();
    let scale = get(version, "subresources.scale").map(|scale| Scale {
        spec_replicas: without_dot(text(scale, "specReplicasPath")),
        status_replicas: without_dot(text(scale, "statusReplicasPath")),
        label_selector: Some(without_dot(text(scale, "labelSelectorPath"))).filter(|path| !path.is_empty()),
    });
    let deprecation_warning = flag(version, "deprecated").then(|| match text(version, "deprecationWarning") {
        "" => format!("{group}/{name} {kind} is deprecated"),
        warning => warning.to_owned(),
    });
    let selectable_fields =
        list(version, "selectableFields").iter().map(|field| without_dot(text(field, "jsonPath"))).collect();
    Version { schema, columns: columns(version), subresources, scale, selectable_fields, deprecation_warning, name }
}

/// The user's schema with the parts that every object has.
fn schema(json: &Value) -> Result<Schema, SchemaError> {
    let mut schema = if json.is_null() { open() } else { Schema::from_json(json)? };
    let text = Arc::new(Schema { ty: Type::String, ..Schema::default() });
    for field in ["apiVersion", "kind"] {
        schema.properties.entry(field.to_owned()).or_insert_with(|| text.clone());
    }
    let mut metadata = object_meta_schema();
    // A definition may restrict names, and nothing else of the metadata.
    if let Some(own) = schema.properties.get("metadata") {
        let restricted = ["name", "generateName"].map(|field| (field, own.properties.get(field).cloned()));
        let mut copy = (*metadata).clone();
        for (field, restriction) in restricted {
            if let Some(restriction) = restriction {
                copy.properties.insert(field.to_owned(), restriction);
            }
        }
        metadata = Arc::new(copy);
    }
    schema.properties.insert("metadata".to_owned(), metadata);
    Ok(schema)
}

/// The user's columns; the name, and an age where there are none, are the table's to add.
fn columns(version: &Value) -> Vec<Column> {
    let column = |column: &Value| Column {
        name: text(column, "name").to_owned(),
        ty: text(column, "type").to_owned(),
        format: text(column, "format").to_owned(),
        description: text(column, "description").to_owned(),
        priority: crate::view::int(column, "priority").and_then(|n| i32::try_from(n).ok()).unwrap_or_default(),
        json_path: text(column, "jsonPath").to_owned(),
    };
    list(version, "additionalPrinterColumns").iter().map(column).collect()
}

/// With a status subresource, ordinary writes leave the status alone.
pub(crate) fn behaviour(group: &str, plural: &str, has_status: bool) -> Behaviour {
    let (admit, admit_delete) = crate::admission::of(group, plural);
    let base = Behaviour {
        admit,
        admit_delete,
        warnings: kinds::warnings_of(group, plural),
        default: |_| {},
        unconditional_update: false,
        has_generation: true,
        field: |object, path| Some(plain_text(get(object, path))),
        cells: crate::print::name_and_age,
        ..kinds::base()
    };
    if !has_status {
        return base;
    }
    Behaviour {
        prepare_create: |object| drop(remove(object, "status")),
        prepare_update: |object, old| restore(object, old, "status"),
        ..base
    }
}

/// Selectable fields are strings, integers and booleans.
fn plain_text(value: Option<&Value>) -> String {
    match value {
        None => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    }
}

/// Best version first: `v2`, `v1`, `v1beta2`, `v1alpha1`; then anything else by name.
pub fn compare_versions(a: &str, b: &str) -> Ordering {
    match (parse_version(a), parse_version(b)) {
        (Some(a), Some(b)) => b.cmp(&a),
        (Some(_), None) => Ordering::Less,
        (None, Some(_)) => Ordering::Greater,
        (None, None) => a.cmp(b),
    }
}

/// Maturity (2 stable, 1 beta, 0 alpha), major, minor: in this order of importance.
fn parse_version(name: &str) -> Option<(u8, u64, u64)> {
    let rest = name.strip_prefix('v')?;
    let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    let (major, rest) = rest.split_at(digits);
    let major: u64 = major.parse().ok().filter(|_| !major.starts_with('0'))?;
    if rest.is_empty() {
        return Some((2, major, 0));
    }
    let (maturity, minor) = match (rest.strip_prefix("beta"), rest.strip_prefix("alpha")) {
        (Some(minor), _) => (1, minor),
        (_, Some(minor)) => (0, minor),
        _ => return None,
    };
    let is_number = !minor.is_empty() && !minor.starts_with('0') && minor.bytes().all(|b| b.is_ascii_digit());
    Some((maturity, major, minor.parse().ok().filter(|_| is_number)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn definition() -> Value {
        json!({"spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"plural": "foos", "kind": "Foo", "shortNames": ["fo"], "categories": ["all"]},
            "versions": [
                {"name": "v1beta1", "served": true, "storage": false, "deprecated": true, "schema": {"openAPIV3Schema": {"type": "object"}}},
                {"name": "v1", "served": true, "storage": true,
                 "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                     "spec": {"type": "object", "properties": {"replicas": {"type": "integer"}}},
                     "metadata": {"type": "object", "properties": {"name": {"type": "string", "maxLength": 8}}}}}},
                 "subresources": {"status": {}, "scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}},
                 "selectableFields": [{"jsonPath": ".spec.color"}],
                 "additionalPrinterColumns": [{"name": "Replicas", "type": "integer", "jsonPath": ".spec.replicas"}]},
                {"name": "v1alpha1", "served": false, "storage": false},
            ],
        }})
    }

    #[test]
    fn a_definition_becomes_a_row() {
        let row = custom_resource(&definition(), definition);
        assert_eq!(row.versions.iter().map(|v| v.name.as_str()).collect::<Vec<_>>(), ["v1", "v1beta1"]);
        assert_eq!((row.storage_version.as_str(), row.storage_key.as_str()), ("v1", "example.com/foos"));
        assert_eq!((row.names.singular.as_str(), row.names.list_kind.as_str()), ("foo", "FooList"));
        let v1 = row.version("v1").unwrap();
        assert_eq!(v1.columns.iter().map(|c| c.name.as_str()).collect::<Vec<_>>(), ["Replicas"]);
        assert_eq!(v1.scale.as_ref().unwrap().spec_replicas, "spec.replicas");
        assert_eq!(v1.selectable_fields, ["spec.color"]);
        let beta = row.version("v1beta1").unwrap();
        assert_eq!(beta.deprecation_warning.as_deref(), Some("example.com/v1beta1 Foo is deprecated"));
        assert!(beta.columns.is_empty());
        assert!(!row.behaviour.unconditional_update);
    }

    #[test]
    fn metadata_is_grafted_and_names_stay_restricted() {
        let row = custom_resource(&definition(), definition);
        let metadata = &row.version("v1").unwrap().schema.properties["metadata"];
        assert!(metadata.properties.contains_key("ownerReferences"));
        assert_eq!(metadata.properties["name"].constraints.as_ref().unwrap().max_length, Some(8));
        assert!(Arc::ptr_eq(&row.version("v1beta1").unwrap().schema.properties["metadata"], &object_meta_schema()));
    }

    #[test]
    fn a_status_subresource_guards_the_status() {
        let row = custom_resource(&definition(), definition);
        let mut object = json!({"spec": {}, "status": {"x": 1}});
        (row.behaviour.prepare_create)(&mut object);
        assert_eq!(object, json!({"spec": {}}));
    }

    #[test]
    fn versions_sort_best_first() {
        let mut versions =
            ["foo10", "v10", "v1alpha1", "v1", "v11beta2", "foo1", "v2", "v10beta3", "v12alpha1", "v3beta1", "v01"];
        versions.sort_by(|a, b| compare_versions(a, b));
        let expected =
            ["v10", "v2", "v1", "v11beta2", "v10beta3", "v3beta1", "v12alpha1", "v1alpha1", "foo1", "foo10", "v01"];
        assert_eq!(versions, expected);
    }
}
