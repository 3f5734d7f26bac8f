//! Writing documents: from operations and definitions to OpenAPI v2 and v3.

use std::collections::BTreeSet;

use croft_meta::Gvk;
use serde_json::{Map, Value, json};

use super::builtin;
use super::custom::{self, Custom};
use super::gnostic;
use super::operations::{Operation, Part, PathItem, Type};
use super::parameters;
use crate::catalog::Catalog;

pub(super) const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";
pub(super) const LIST_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta";
pub(super) const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1";
pub(super) const V3_PREFIX: &str = "#/components/schemas/";
pub(super) const V2_PREFIX: &str = "#/definitions/";

/// Which OpenAPI is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Syntax {
    V2,
    V3,
}

impl Syntax {
    pub(super) fn reference(self, definition: &str) -> Value {
        let prefix = if self == Self::V2 { V2_PREFIX } else { V3_PREFIX };
        json!({"$ref": format!("{prefix}{definition}")})
    }

    /// In v3 nothing may stand beside a reference.
    pub(super) fn reference_with(self, definition: &str, description: &str) -> Value {
        let mut reference = self.reference(definition);
        if self == Self::V2 {
            reference["description"] = json!(description);
            return reference;
        }
        json!({"description": description, "allOf": [reference]})
    }
}

/// Everything there is to write about: the catalog, the definitions of built-in types (in v3), and custom resources.
pub(super) struct Source<'a> {
    catalog: &'a Catalog,
    builtin: Map<String, Value>,
    customs: Vec<Custom<'a>>,
}

impl<'a> Source<'a> {
    pub(super) fn new(catalog: &'a Catalog, crds: &'a [Value]) -> Self {
        let builtin = builtin::definitions();
        Self { catalog, builtin, customs: custom::served(catalog, crds) }
    }

    fn definition_name(&self, ty: &Type) -> Option<String> {
        let name = match ty {
            Type::Meta(name) => format!("{META}.{name}"),
            Type::Kind(gvk) => return self.kind_name(gvk),
        };
        self.builtin.contains_key(&name).then_some(name)
    }

    fn kind_name(&self, gvk: &Gvk) -> Option<String> {
        if let Some(name) = croft_api::definition_name(gvk).filter(|name| self.builtin.contains_key(name)) {
            return Some(name);
        }
        let served = self.catalog.resources().iter().filter(|r| r.is_custom && r.group == gvk.group);
        let mut kinds = served.flat_map(|r| [&r.names.kind, &r.names.list_kind]);
        kinds.any(|kind| *kind == gvk.kind).then(|| custom::definition_name(gvk))
    }

    fn schema(&self, ty: &Type, syntax: Syntax) -> Option<Value> {
        self.definition_name(ty).map(|name| syntax.reference(&name))
    }

    /// The whole of OpenAPI v2, as JSON.
    pub(super) fn v2_json(self) -> Vec<u8> {
        let mut document = JsonDocument::default();
        self.v2(&mut |piece| match piece {
            Piece::Path(path, item) => put_member(&mut document.paths, path, &item),
            Piece::Definition(name, schema) => put_member(&mut document.definitions, name, &schema),
        });
        let mut out = vec![b'{'];
        put_object(&mut out, "paths", &document.paths);
        out.push(b',');
        put_object(&mut out, "definitions", &document.definitions);
        for (name, value) in v2_frame() {
            out.push(b',');
            write_member(&mut out, &name, &value);
        }
        out.push(b'}');
        out
    }

    /// The whole of OpenAPI v2, as gnostic's protobuf.
    pub(super) fn v2_protobuf(self) -> Vec<u8> {
        let mut document = gnostic::V2Document::default();
        self.v2(&mut |piece| match piece {
            Piece::Path(path, item) => document.path(path, &item),
            Piece::Definition(name, schema) => document.definition(name, &schema),
        });
        document.finish(v2_frame())
    }

    fn v2(self, write: &mut dyn FnMut(Piece<'_>)) {
        let mut used = BTreeSet::new();
        for item in Part::all(self.catalog).iter().flat_map(|part| part.paths(self.catalog)) {
            self.note_types(&item, &mut used);
            write(Piece::Path(&item.path, self.v2_item(&item)));
        }
        for (name, schema) in self.customs.iter().flat_map(|custom| custom.definitions(Syntax::V2)) {
            used.extend([OBJECT_META.to_owned(), LIST_META.to_owned()]);
            write(Piece::Definition(&name, schema));
        }
        let mut builtin = self.builtin;
        for name in builtin::closure(&builtin, used) {
            if let Some(mut schema) = builtin.remove(&name) {
                builtin::to_v2(&mut schema);
                write(Piece::Definition(&name, schema));
            }
        }
    }

    /// One part of OpenAPI v3, as JSON.
    pub(super) fn v3_json(self, part: &Part) -> Vec<u8> {
        let mut document = JsonDocument::default();
        self.v3(part, &mut |piece| match piece {
            Piece::Path(path, item) => put_member(&mut document.paths, path, &item),
            Piece::Definition(name, schema) => put_member(&mut document.definitions, name, &schema),
        });
        let mut out = br#"{"openapi":"3.0.0","#.to_vec();
        write_member(&mut out, "info", &info());
        out.push(b',');
        put_object(&mut out, "paths", &document.paths);
        out.extend_from_slice(br#","components":{"#);
        put_object(&mut out, "schemas", &document.definitions);
        out.push(b',');
        write_member(&mut out, "securitySchemes", &security());
        out.extend_from_slice(b"}}");
        out
    }

    /// One part of OpenAPI v3, as gnostic's protobuf.
    pub(super) fn v3_protobuf(self, part: &Part) -> Vec<u8> {
        let mut document = gnostic::V3Document::default();
        self.v3(part, &mut |piece| match piece {
            Piece::Path(path, item) => document.path(path, &item),
            Piece::Definition(name, schema) => document.schema(name, &schema),
        });
        let mut frame = Map::new();
        frame.insert("openapi".to_owned(), json!("3.0.0"));
        frame.insert("info".to_owned(), info());
        frame.insert("securitySchemes".to_owned(), security());
        document.finish(frame)
    }

    fn v3(self, part: &Part, write: &mut dyn FnMut(Piece<'_>)) {
        let mut used = BTreeSet::new();
        for item in part.paths(self.catalog) {
            self.note_types(&item, &mut used);
            write(Piece::Path(&item.path, self.v3_item(&item)));
        }
        let is_here = |custom: &&Custom<'_>| matches!(part, Part::Version(gv) if *gv == custom.gvk.group_version());
        for (name, schema) in self.customs.iter().filter(is_here).flat_map(|custom| custom.definitions(Syntax::V3)) {
            used.extend([OBJECT_META.to_owned(), LIST_META.to_owned()]);
            write(Piece::Definition(&name, schema));
        }
        let mut builtin = self.builtin;
        for name in builtin::closure(&builtin, used) {
            if let Some(schema) = builtin.remove(&name) {
                write(Piece::Definition(&name, schema));
            }
        }
    }

    fn note_types(&self, item: &PathItem, used: &mut BTreeSet<String>) {
        for operation in &item.operations {
            used.extend(self.definition_name(&operation.answer));
            used.extend(operation.body.as_ref().and_then(|(ty, _)| self.definition_name(ty)));
        }
    }

    fn v2_item(&self, item: &PathItem) -> Value {
        let parameter = |p: &parameters::Parameter| match p.shared {
            Some(name) => json!({"$ref": format!("#/parameters/{name}")}),
            None => p.v2(),
        };
        let mut out = Map::new();
        for operation in &item.operations {
            let mut value = operation_head(operation);
            let mut list: Vec<Value> = Vec::new();
            if let Some((ty, required)) = &operation.body {
                let mut body =
                    json!({"name": "body", "in": "body", "schema": self.schema(ty, Syntax::V2).unwrap_or(json!({}))});
                if *required {
                    body["required"] = json!(true);
                }
                list.push(body);
            }
            list.extend(operation.parameters.iter().map(parameter));
            if !list.is_empty() {
                value.insert("parameters".to_owned(), Value::Array(list));
            }
            value.insert("consumes".to_owned(), json!(operation.consumes));
            value.insert("produces".to_owned(), json!(operation.produces));
            value.insert("schemes".to_owned(), json!(["https"]));
            let schema = self.schema(&operation.answer, Syntax::V2);
            value.insert(
                "responses".to_owned(),
                responses(operation, &|answer| {
                    if let Some(schema) = &schema {
                        answer["schema"] = schema.clone();
                    }
                }),
            );
            out.insert(operation.method.to_owned(), Value::Object(value));
        }
        if !item.parameters.is_empty() {
            out.insert("parameters".to_owned(), item.parameters.iter().map(parameter).collect());
        }
        Value::Object(out)
    }

    fn v3_item(&self, item: &PathItem) -> Value {
        let content = |types: &[&str], schema: &Value| -> Value {
            types.iter().map(|media| ((*media).to_owned(), json!({ "schema": schema }))).collect::<Map<_, _>>().into()
        };
        let mut out = Map::new();
        for operation in &item.operations {
            let mut value = operation_head(operation);
            if !operation.parameters.is_empty() {
                let list = operation.parameters.iter().map(parameters::Parameter::v3).collect();
                value.insert("parameters".to_owned(), list);
            }
            if let Some((ty, required)) = &operation.body {
                let schema = self.schema(ty, Syntax::V3).unwrap_or(json!({}));
                let mut body = json!({"content": content(operation.consumes, &schema)});
                if *required {
                    body["required"] = json!(true);
                }
                value.insert("requestBody".to_owned(), body);
            }
            let schema = self.schema(&operation.answer, Syntax::V3);
            value.insert(
                "responses".to_owned(),
                responses(operation, &|answer| {
                    if let Some(schema) = &schema {
                        answer["content"] = content(operation.produces, schema);
                    }
                }),
            );
            out.insert(operation.method.to_owned(), Value::Object(value));
        }
        if !item.parameters.is_empty() {
            let list = item.parameters.iter().map(parameters::Parameter::v3).collect();
            out.insert("parameters".to_owned(), list);
        }
        Value::Object(out)
    }
}

enum Piece<'a> {
    Path(&'a str, Value),
    Definition(&'a str, Value),
}

/// The two large parts of a document, as the members of JSON objects.
#[derive(Default)]
struct JsonDocument {
    paths: Vec<u8>,
    definitions: Vec<u8>,
}

fn put_member(out: &mut Vec<u8>, name: &str, value: &Value) {
    if !out.is_empty() {
        out.push(b',');
    }
    write_member(out, name, value);
}

fn write_member(out: &mut Vec<u8>, name: &str, value: &Value) {
    // Writing to memory does not fail, and every key is a string.
    let _ = serde_json::to_writer(&mut *out, name);
    out.push(b':');
    let _ = serde_json::to_writer(&mut *out, value);
}

fn put_object(out: &mut Vec<u8>, name: &str, members: &[u8]) {
    let _ = serde_json::to_writer(&mut *out, name);
    out.extend_from_slice(b":{");
    out.extend_from_slice(members);
    out.push(b'}');
}

fn info() -> Value {
    json!({"title": "Kubernetes", "version": "1.34"})
}

fn security() -> Value {
    let key = json!({"type": "apiKey", "description": "Bearer Token authentication", "name": "authorization", "in": "header"});
    json!({ "BearerToken": key })
}

/// The members of a v2 document besides paths and definitions.
fn v2_frame() -> Map<String, Value> {
    let shared: Map<String, Value> =
        parameters::shared().iter().filter_map(|p| Some((p.shared?.to_owned(), p.v2()))).collect();
    let mut frame = Map::new();
    frame.insert("swagger".to_owned(), json!("2.0"));
    frame.insert("info".to_owned(), info());
    frame.insert("parameters".to_owned(), Value::Object(shared));
    frame.insert("security".to_owned(), json!([{"BearerToken": []}]));
    frame.insert("securityDefinitions".to_owned(), security());
    frame
}

/// What is the same in both versions.
fn operation_head(operation: &Operation) -> Map<String, Value> {
    let mut value = Map::new();
    value.insert("description".to_owned(), json!(operation.description));
    value.insert("operationId".to_owned(), json!(operation.id));
    value.insert("tags".to_owned(), json!([operation.tag]));
    if let Some((action, gvk)) = &operation.action {
        let kind = json!({"group": gvk.group, "version": gvk.version, "kind": gvk.kind});
        value.insert("x-kubernetes-action".to_owned(), json!(action));
        value.insert("x-kubernetes-group-version-kind".to_owned(), kind);
    }
    value
}

fn responses(operation: &Operation, add_body: &dyn Fn(&mut Value)) -> Value {
    let mut responses = Map::new();
    for code in operation.codes {
        let description = match code {
            201 => "Created",
            202 => "Accepted",
            _ => "OK",
        };
        let mut answer = json!({ "description": description });
        add_body(&mut answer);
        responses.insert(code.to_string(), answer);
    }
    responses.insert("401".to_owned(), json!({"description": "Unauthorized"}));
    Value::Object(responses)
}
