//! What Go's struct tags say about every built-in type, and JSON schemas do not: protobuf numbers, which zero
//! values are left out, how lists merge.
//!
//! The facts are lines of text, one file per API package:
//!
//! ```text
//! package io.k8s.api.core.v1
//! type Container
//!  name 1 string !
//!  ports 6 []ContainerPort map=containerPort,protocol patch=merge:containerPort
//! ```
//!
//! A field is `json-name number type marks`. Types are scalars (`string`, `quantity`, `time`, ...) or other types,
//! of the same package unless written in full; `[]T` is a list, `map:T` a map from strings, `~T` is embedded: its
//! fields appear in JSON beside the others. `type X = []string` is a named list, wrapped in a message on the wire;
//! `union` says that JSON holds whichever one field is set, `kind` that it has `apiVersion` and `kind`. Marks: `*` pointer, `!` written even when zero,
//! `list`/`set`/`map=keys` the list type, `atomic`, `patch=strategy:key`,
//! `default=json`, `enum=a,b`.

use std::collections::HashMap;
use std::sync::LazyLock;

const FILES: &[&str] = &[
    include_str!("../wire/meta.v1.txt"),
    include_str!("../wire/core.v1.txt"),
    include_str!("../wire/admissionregistration.v1.txt"),
    include_str!("../wire/admissionregistration.v1beta1.txt"),
    include_str!("../wire/apiextensions.v1.txt"),
    include_str!("../wire/apiregistration.v1.txt"),
    include_str!("../wire/apps.v1.txt"),
    include_str!("../wire/authentication.v1.txt"),
    include_str!("../wire/authorization.v1.txt"),
    include_str!("../wire/autoscaling.v1.txt"),
    include_str!("../wire/autoscaling.v2.txt"),
    include_str!("../wire/batch.v1.txt"),
    include_str!("../wire/certificates.v1.txt"),
    include_str!("../wire/coordination.v1.txt"),
    include_str!("../wire/discovery.v1.txt"),
    include_str!("../wire/events.v1.txt"),
    include_str!("../wire/flowcontrol.v1.txt"),
    include_str!("../wire/networking.v1.txt"),
    include_str!("../wire/node.v1.txt"),
    include_str!("../wire/policy.v1.txt"),
    include_str!("../wire/rbac.v1.txt"),
    include_str!("../wire/resource.v1.txt"),
    include_str!("../wire/scheduling.v1.txt"),
    include_str!("../wire/storage.v1.txt"),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ty {
    String,
    Int32,
    Int64,
    Bool,
    Double,
    Bytes,
    Quantity,
    IntOrString,
    Time,
    MicroTime,
    /// `RawExtension`: any JSON, wrapped in a message.
    Raw,
    /// apiextensions' `JSON`: as above.
    Json,
    FieldsV1,
    /// Index into [`Table::types`].
    Message(usize),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    One,
    List,
    Map,
}

/// When Go writes the field to JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Presence {
    /// Unless it is a zero scalar or an empty list or map (a struct is never empty to Go).
    OmitEmpty,
    /// A pointer: whenever it is set.
    Pointer,
    /// Always.
    Always,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Field {
    pub json: &'static str,
    pub number: u32,
    pub shape: Shape,
    pub ty: Ty,
    /// Embedded: the fields of the message belong to the parent in JSON.
    pub inline: bool,
    pub presence: Presence,
    marks: &'static str,
}

impl Field {
    fn mark(&self, key: &str) -> Option<&'static str> {
        self.marks.split(' ').find_map(|mark| mark.strip_prefix(key)?.strip_prefix('='))
    }

    fn has(&self, flag: &str) -> bool {
        self.marks.split(' ').any(|mark| mark == flag)
    }

    pub(crate) fn is_set(&self) -> bool {
        self.has("set")
    }

    #[allow(dead_code, reason = "the build script reads it for OpenAPI")]
    pub(crate) fn is_atomic_list(&self) -> bool {
        self.has("list")
    }

    pub(crate) fn is_atomic_map(&self) -> bool {
        self.has("atomic")
    }

    pub(crate) fn map_keys(&self) -> Option<Vec<String>> {
        Some(self.mark("map")?.split(',').map(str::to_owned).collect())
    }

    /// The patch strategies and the merge key.
    pub(crate) fn patch(&self) -> Option<(&'static str, Option<&'static str>)> {
        let mark = self.mark("patch")?;
        Some(mark.split_once(':').map_or((mark, None), |(strategy, key)| (strategy, Some(key))))
    }

    /// The default in JSON.
    pub(crate) fn default(&self) -> Option<&'static str> {
        self.mark("default")
    }

    #[allow(dead_code, reason = "the build script reads it for OpenAPI")]
    pub(crate) fn enum_values(&self) -> Option<impl Iterator<Item = &'static str>> {
        Some(self.mark("enum")?.split(','))
    }
}

#[derive(Debug, PartialEq, Eq, Clone, Copy)]
pub(crate) enum Body {
    Struct,
    /// A named list: JSON has the list, the wire a message with the items as field 1.
    List(Ty),
    /// JSON has the value of the one field that is set.
    Union,
}

#[derive(Debug)]
pub(crate) struct TypeDef {
    /// `io.k8s.api.core.v1.Pod`.
    pub name: String,
    pub body: Body,
    pub atomic: bool,
    /// Has `apiVersion` and `kind`.
    pub is_kind: bool,
    /// Sorted by number.
    pub fields: Vec<Field>,
}

impl TypeDef {
    /// `Pod`.
    pub(crate) fn go_name(&self) -> &str {
        self.name.rsplit('.').next().unwrap_or(&self.name)
    }

    pub(crate) fn by_number(&self, number: u32) -> Option<&Field> {
        let at = self.fields.binary_search_by_key(&number, |f| f.number).ok()?;
        self.fields.get(at)
    }
}

#[derive(Debug, Default)]
pub(crate) struct Table {
    pub types: Vec<TypeDef>,
    by_name: HashMap<String, usize>,
}

impl Table {
    pub(crate) fn get(&self, index: usize) -> &TypeDef {
        // Every index comes from `lookup`, and types are never removed.
        &self.types[index]
    }

    pub(crate) fn lookup(&self, name: &str) -> Option<usize> {
        self.by_name.get(name).copied()
    }

    /// The type behind a kind; kinds of `meta/v1` (DeleteOptions) belong to every group.
    pub(crate) fn of_kind(&self, group: &str, version: &str, kind: &str) -> Option<usize> {
        let package = package(group);
        self.lookup(&format!("{package}.{version}.{kind}")).or_else(|| {
            let is_option = kind.ends_with("Options") || kind == "Status" || kind == "PartialObjectMetadata";
            is_option.then(|| self.lookup(&format!("{META}.{kind}"))).flatten()
        })
    }
}

pub(crate) const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1";

/// The package of a group's types, without the version.
pub(crate) fn package(group: &str) -> String {
    match group {
        "" => "io.k8s.api.core".to_owned(),
        "apiextensions.k8s.io" => "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions".to_owned(),
        "apiregistration.k8s.io" => "io.k8s.kube-aggregator.pkg.apis.apiregistration".to_owned(),
        "meta.k8s.io" => META.trim_end_matches(".v1").to_owned(),
        other => format!("io.k8s.api.{}", other.split('.').next().unwrap_or(other)),
    }
}

pub(crate) static TABLE: LazyLock<Table> = LazyLock::new(|| parse(FILES));

fn parse(files: &[&'static str]) -> Table {
    let mut table = Table::default();
    // Names first: a field may name a type that comes later.
    for (package, line) in files.iter().flat_map(|text| type_lines(text)) {
        let name = line.split(' ').next().unwrap_or_default();
        let name = format!("{package}.{name}");
        table.by_name.insert(name.clone(), table.types.len());
        table.types.push(TypeDef { name, body: Body::Struct, atomic: false, is_kind: false, fields: Vec::new() });
    }
    let mut current = 0;
    for text in files {
        let mut package = "";
        for line in text.lines().filter(|l| !l.starts_with('#')) {
            if let Some(name) = line.strip_prefix("package ") {
                package = name;
            } else if let Some(rest) = line.strip_prefix("type ") {
                let name = rest.split(' ').next().unwrap_or_default();
                current = table.by_name[&format!("{package}.{name}")];
                let body = match rest.split_once(" = []") {
                    Some((_, item)) => Body::List(parse_type(&table, package, item)),
                    None if rest.ends_with(" union") => Body::Union,
                    None => Body::Struct,
                };
                table.types[current].body = body;
                table.types[current].atomic = rest.split(' ').any(|word| word == "atomic");
                table.types[current].is_kind = rest.split(' ').any(|word| word == "kind");
            } else if let Some(rest) = line.strip_prefix(' ') {
                let field = parse_field(&table, package, rest);
                table.types[current].fields.push(field);
            }
        }
    }
    table
}

fn type_lines(text: &'static str) -> impl Iterator<Item = (&'static str, &'static str)> {
    let package = text.lines().find_map(|l| l.strip_prefix("package ")).unwrap_or_default();
    text.lines().filter_map(move |l| Some((package, l.strip_prefix("type ")?)))
}

/// The files are part of the program and every line is covered by a test, so a malformed one panics.
fn parse_field(table: &Table, package: &str, line: &'static str) -> Field {
    let mut words = line.splitn(4, ' ');
    let (Some(json), Some(number), Some(ty)) = (words.next(), words.next(), words.next()) else {
        panic!("malformed field {line:?} in {package}");
    };
    let marks = words.next().unwrap_or_default();
    let (shape, ty) = if let Some(item) = ty.strip_prefix("[]") {
        (Shape::List, item)
    } else if let Some(value) = ty.strip_prefix("map:") {
        (Shape::Map, value)
    } else {
        (Shape::One, ty)
    };
    let (inline, ty) = ty.strip_prefix('~').map_or((false, ty), |embedded| (true, embedded));
    let presence = match marks.as_bytes().first() {
        Some(b'*') => Presence::Pointer,
        Some(b'!') => Presence::Always,
        _ => Presence::OmitEmpty,
    };
    Field {
        json,
        number: number.parse().unwrap_or_else(|_| panic!("malformed number in {line:?}")),
        shape,
        ty: parse_type(table, package, ty),
        inline,
        presence,
        marks,
    }
}

fn parse_type(table: &Table, package: &str, name: &str) -> Ty {
    match name {
        "string" => Ty::String,
        "int32" => Ty::Int32,
        "int64" => Ty::Int64,
        "bool" => Ty::Bool,
        "double" => Ty::Double,
        "bytes" => Ty::Bytes,
        "quantity" => Ty::Quantity,
        "intorstring" => Ty::IntOrString,
        "time" => Ty::Time,
        "microtime" => Ty::MicroTime,
        "raw" => Ty::Raw,
        "json" => Ty::Json,
        "fieldsv1" => Ty::FieldsV1,
        _ => {
            let full = if name.contains('.') { name.to_owned() } else { format!("{package}.{name}") };
            Ty::Message(*table.by_name.get(&full).unwrap_or_else(|| panic!("unknown type {full}")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_every_type_have_distinct_numbers_in_order() {
        for ty in &TABLE.types {
            assert!(ty.fields.windows(2).all(|w| w[0].number < w[1].number), "{}", ty.name);
        }
        assert!(TABLE.types.len() > 550);
    }

    #[test]
    fn marks_are_read() {
        let container = TABLE.get(TABLE.of_kind("", "v1", "Container").unwrap());
        let ports = container.by_number(6).unwrap();
        assert_eq!(ports.json, "ports");
        assert_eq!(ports.map_keys(), Some(vec!["containerPort".to_owned(), "protocol".to_owned()]));
        assert_eq!(ports.patch(), Some(("merge", Some("containerPort"))));
        assert_eq!(container.by_number(1).unwrap().presence, Presence::Always);
        assert!(container.by_number(99).is_none());
    }

    #[test]
    fn options_belong_to_every_group() {
        assert!(TABLE.of_kind("apps", "v1", "DeleteOptions").is_some());
        assert!(TABLE.of_kind("apps", "v1", "Nonsense").is_none());
    }
}
