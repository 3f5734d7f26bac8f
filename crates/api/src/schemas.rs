//! The schema trees of built-in types, made from the facts in [`crate::wire`].
//!
//! Nodes are shared: `PodSpec` exists once, whatever number of kinds embed it, and each scalar exists once in all.
//! `required` stays empty, since Kubernetes demands fields of built-in kinds in their validation rather than in their
//! schema, and every node is nullable, since Go reads `null` as "not given".

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, LazyLock};

use croft_schema::{Additional, Constraints, ListType, PatchStrategy, Schema, Type};

use crate::wire::{Body, Field, META, Shape, TABLE, Ty, TypeDef};

/// Makes trees, each type once.
#[derive(Default)]
pub(crate) struct Builder {
    types: HashMap<usize, Arc<Schema>>,
    scalars: HashMap<&'static str, Arc<Schema>>,
}

impl Builder {
    pub(crate) fn kind(&mut self, group: &str, version: &str, kind: &str) -> Arc<Schema> {
        let index = TABLE.of_kind(group, version, kind);
        // The table of kinds and the table of types are both part of the program; a test walks all kinds.
        self.message(index.unwrap_or_else(|| panic!("no type for {group}/{version} {kind}")))
    }

    pub(crate) fn meta(&mut self, name: &str) -> Arc<Schema> {
        let index = TABLE.lookup(&format!("{META}.{name}"));
        self.message(index.unwrap_or_else(|| panic!("no meta/v1 type {name}")))
    }

    fn message(&mut self, index: usize) -> Arc<Schema> {
        if let Some(done) = self.types.get(&index) {
            return done.clone();
        }
        let schema = Arc::new(self.build(TABLE.get(index)));
        self.types.insert(index, schema.clone());
        schema
    }

    fn build(&mut self, def: &TypeDef) -> Schema {
        let type_name: Arc<str> = def.go_name().into();
        // A CRD's schema is recursive; it is checked when the definition is established.
        if def.go_name() == "JSONSchemaProps" {
            return Schema { type_name, ty: Type::Object, nullable: true, preserve_unknown: true, ..Schema::default() };
        }
        if let Body::List(item) = def.body {
            let items = Some(self.value(item));
            return Schema { type_name, ty: Type::Array, nullable: true, items, ..Schema::default() };
        }
        let mut properties = BTreeMap::new();
        if def.is_kind {
            properties.insert("apiVersion".to_owned(), self.value(Ty::String));
            properties.insert("kind".to_owned(), self.value(Ty::String));
        }
        self.add_fields(def, &mut properties);
        Schema { type_name, ty: Type::Object, nullable: true, properties, map_atomic: def.atomic, ..Schema::default() }
    }

    fn add_fields(&mut self, def: &TypeDef, properties: &mut BTreeMap<String, Arc<Schema>>) {
        for field in &def.fields {
            if let (true, Ty::Message(index)) = (field.inline, field.ty) {
                self.add_fields(TABLE.get(index), properties);
            } else {
                properties.insert(field.json.to_owned(), self.field(field));
            }
        }
    }

    fn field(&mut self, field: &Field) -> Arc<Schema> {
        let value = self.value(field.ty);
        let patch = field.patch().map(|(strategy, key)| PatchStrategy {
            merge: strategy.split(',').any(|s| s == "merge"),
            retain_keys: strategy.split(',').any(|s| s == "retainKeys"),
            merge_key: key.map(str::to_owned),
        });
        // The texts are constants of this program, checked by a test.
        let default = field.default().and_then(|json| serde_json::from_str(json).ok());
        let mut schema = match field.shape {
            Shape::One if patch.is_none() && default.is_none() => return value,
            Shape::One => (*value).clone(),
            Shape::List => Schema { ty: Type::Array, nullable: true, items: Some(value), ..Schema::default() },
            Shape::Map => Schema {
                ty: Type::Object,
                nullable: true,
                additional: Additional::Schema(value),
                map_atomic: field.is_atomic_map(),
                ..Schema::default()
            },
        };
        schema.list_type = match field.map_keys() {
            Some(keys) => ListType::Map(keys),
            None if field.is_set() => ListType::Set,
            None => ListType::Atomic,
        };
        schema.patch = patch.unwrap_or_default();
        schema.default = default;
        Arc::new(schema)
    }

    fn value(&mut self, ty: Ty) -> Arc<Schema> {
        let (name, json, format) = match ty {
            Ty::Message(index) => return self.message(index),
            Ty::String => ("string", Type::String, ""),
            Ty::Int32 => ("int32", Type::Integer, "int32"),
            Ty::Int64 => ("int64", Type::Integer, "int64"),
            Ty::Bool => ("bool", Type::Boolean, ""),
            Ty::Double => ("float64", Type::Number, "double"),
            Ty::Bytes => ("[]uint8", Type::String, "byte"),
            // `cpu: 0.5` is a number, `cpu: 500m` a string: `croft_schema::decode` knows quantities by this name.
            Ty::Quantity => ("Quantity", Type::String, "quantity"),
            Ty::IntOrString => ("intstr", Type::IntOrString, ""),
            Ty::Time => ("Time", Type::String, "date-time"),
            Ty::MicroTime => ("MicroTime", Type::String, "date-time"),
            Ty::Raw => ("RawExtension", Type::Any, ""),
            Ty::Json => ("JSON", Type::Any, ""),
            Ty::FieldsV1 => ("FieldsV1", Type::Any, ""),
        };
        let make = || {
            let constraints = (!format.is_empty())
                .then(|| Box::new(Constraints { format: Some(format.to_owned()), ..Constraints::default() }));
            // Go names plain scalars by their type alone; `croft_schema::decode` does too.
            let type_name = if name.starts_with(char::is_uppercase) { name } else { "" };
            Arc::new(Schema {
                type_name: type_name.into(),
                ty: json,
                nullable: true,
                preserve_unknown: matches!(ty, Ty::Raw | Ty::Json | Ty::FieldsV1),
                // Opaque to everybody else: replaced as a whole.
                map_atomic: matches!(ty, Ty::Json | Ty::FieldsV1),
                constraints,
                ..Schema::default()
            })
        };
        self.scalars.entry(name).or_insert_with(make).clone()
    }
}

/// `metadata` of any object, for the schemas of custom resources.
pub fn object_meta_schema() -> Arc<Schema> {
    static SCHEMA: LazyLock<Arc<Schema>> = LazyLock::new(|| Builder::default().meta("ObjectMeta"));
    SCHEMA.clone()
}

/// The body of a DELETE.
pub fn delete_options_schema() -> Arc<Schema> {
    static SCHEMA: LazyLock<Arc<Schema>> = LazyLock::new(|| Builder::default().meta("DeleteOptions"));
    SCHEMA.clone()
}

/// A built-in type that is not a row of the table: what a subresource takes (`Scale`, `Eviction`, `TokenRequest`).
pub fn kind_schema(gvk: &croft_meta::Gvk) -> Option<Arc<Schema>> {
    let index = TABLE.of_kind(&gvk.group, &gvk.version, &gvk.kind)?;
    Some(Builder::default().message(index))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(group: &str, kind: &str) -> Arc<Schema> {
        Builder::default().kind(group, "v1", kind)
    }

    #[test]
    fn embedded_structs_are_flattened() {
        let pod = kind("", "Pod");
        let volumes = &pod.properties["spec"].properties["volumes"];
        let volume = volumes.items.as_ref().unwrap();
        assert!(volume.properties.contains_key("configMap"));
        assert!(!volume.properties.contains_key("volumeSource"));
        assert_eq!(volumes.list_type, ListType::Map(vec!["name".to_owned()]));
        assert!(volumes.patch.merge && volumes.patch.retain_keys);
    }

    #[test]
    fn types_are_shared_between_kinds() {
        let mut builder = Builder::default();
        let deployment = builder.kind("apps", "v1", "Deployment");
        let daemon_set = builder.kind("apps", "v1", "DaemonSet");
        let template = |s: &Arc<Schema>| s.properties["spec"].properties["template"].clone();
        assert!(Arc::ptr_eq(&template(&deployment), &template(&daemon_set)));
    }

    #[test]
    fn keys_of_list_maps_have_their_defaults() {
        let service = kind("", "Service");
        let ports = &service.properties["spec"].properties["ports"];
        let protocol = &ports.items.as_ref().unwrap().properties["protocol"];
        assert_eq!(protocol.default, Some(serde_json::json!("TCP")));
    }

    #[test]
    fn every_default_is_json() {
        for field in TABLE.types.iter().flat_map(|t| &t.fields) {
            let Some(text) = field.default() else { continue };
            assert!(serde_json::from_str::<serde_json::Value>(text).is_ok(), "{text}");
        }
    }

    #[test]
    fn a_crd_schema_is_opaque() {
        let crd = kind("apiextensions.k8s.io", "CustomResourceDefinition");
        let versions = crd.properties["spec"].properties["versions"].items.clone().unwrap();
        assert!(versions.properties["schema"].properties["openAPIV3Schema"].preserve_unknown);
    }
}
