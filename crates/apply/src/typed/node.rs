//! A place in a schema, and the questions that the walks ask there.

use std::sync::{Arc, LazyLock};

use croft_schema::{Additional, ListType, PatchStrategy, Schema, Type};
use serde_json::{Map, Value};

use crate::fieldpath::PathElement;

/// How a value is walked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    Map,
    List,
    Scalar,
}

/// How the items of a list are told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Items<'s> {
    Atomic,
    Set,
    Keyed(&'s [String]),
}

/// A node of a schema with what it inherits from above.
#[derive(Clone, Copy, Debug)]
pub struct Node<'s> {
    pub(crate) schema: &'s Schema,
    /// `x-kubernetes-preserve-unknown-fields` holds for all that is below it.
    preserve: bool,
    /// The whole object, which has a type and metadata whatever its schema says.
    root: bool,
}

static ANY: LazyLock<Schema> = LazyLock::new(Schema::default);
static TEXT: LazyLock<Schema> = LazyLock::new(|| scalar(Type::String));
static OBJECT_META: LazyLock<Schema> = LazyLock::new(object_meta);
static EMPTY_OBJECT: LazyLock<Value> = LazyLock::new(|| Value::Object(Map::new()));
static NULL: Value = Value::Null;

impl<'s> Node<'s> {
    pub fn root(schema: &'s Schema) -> Self {
        Self { schema, preserve: schema.preserve_unknown, root: true }
    }

    fn below(self, schema: &'s Schema) -> Self {
        Self { schema, preserve: self.preserve || schema.preserve_unknown, root: false }
    }

    fn is_resource(self) -> bool {
        self.root || self.schema.embedded_resource
    }

    /// The shape of a value here; `None` where null could be anything.
    pub(crate) fn shape(self, value: &Value) -> Option<Shape> {
        match self.schema.ty {
            Type::Object => Some(Shape::Map),
            Type::Array => Some(Shape::List),
            Type::Any => match value {
                Value::Null => None,
                Value::Object(_) => Some(Shape::Map),
                Value::Array(_) => Some(Shape::List),
                _ => Some(Shape::Scalar),
            },
            _ => Some(Shape::Scalar),
        }
    }

    pub(crate) fn is_atomic_map(self) -> bool {
        // Raw extensions are opaque; other untyped values are deduced.
        self.schema.map_atomic || &*self.schema.type_name == "RawExtension"
    }

    /// An object of which nothing is known but that unknown fields are kept.
    pub(crate) fn is_deduced(self) -> bool {
        self.schema.properties.is_empty() && self.free_form() && !self.is_atomic_map()
    }

    /// Whether fields without a declaration are let in, their types deduced.
    fn free_form(self) -> bool {
        matches!(self.schema.additional, Additional::None)
            && (self.preserve || self.schema.properties.is_empty() || self.schema.ty == Type::Any)
    }

    pub(crate) fn items(self) -> Items<'s> {
        match &self.schema.list_type {
            ListType::Set => Items::Set,
            ListType::Map(keys) => Items::Keyed(keys),
            ListType::Atomic => Items::Atomic,
        }
    }

    pub(crate) fn item(self) -> Self {
        self.below(self.schema.items.as_deref().unwrap_or_else(|| &*ANY))
    }

    /// A declared field.
    pub(crate) fn named(self, name: &str) -> Option<Self> {
        let declared = self.schema.properties.get(name).map(Arc::as_ref);
        if !self.is_resource() {
            return declared.map(|schema| self.below(schema));
        }
        let schema = match (name, declared) {
            // A custom resource declares its metadata as just an object.
            ("metadata", Some(schema)) if !schema.properties.is_empty() => schema,
            ("metadata", _) => &*OBJECT_META,
            ("apiVersion" | "kind", None) => &*TEXT,
            (_, declared) => declared?,
        };
        Some(self.below(schema))
    }

    /// The node of a field that is not declared; `None` if there may be none.
    pub(crate) fn unnamed(self) -> Option<Self> {
        match &self.schema.additional {
            Additional::Schema(schema) => Some(self.below(schema)),
            Additional::None => self.free_form().then(|| self.below(&ANY)),
        }
    }

    /// The node of a field. One that the schema does not know (which validation keeps out) is deduced.
    pub(crate) fn field(self, name: &str) -> Self {
        self.named(name).or_else(|| self.unnamed()).unwrap_or_else(|| self.below(&ANY))
    }

    /// What an absent field of an object that is there stands for.
    ///
    /// Upstream walks Go structs: a nested struct is there, empty, even when nothing was sent, and a
    /// required list or pointer is there as null. The schemas of built-in types show both, and ownership of
    /// the parent field hangs on it.
    pub(crate) fn absent(self, name: &str) -> Option<&'static Value> {
        if self.schema.type_name.is_empty() {
            return None;
        }
        let field = self.schema.properties.get(name)?;
        let by_value = field.ty == Type::Object && field.default.as_ref().is_some_and(is_empty_object);
        if by_value {
            return Some(&*EMPTY_OBJECT);
        }
        let required = matches!(field.ty, Type::Object | Type::Array) && self.schema.required.iter().any(|r| r == name);
        required.then_some(&NULL)
    }

    /// The path element of an item of this list, or why it has none.
    pub(crate) fn element(self, item: &Value) -> Result<PathElement, String> {
        match self.items() {
            Items::Atomic => Err("invalid indexing of non-associative list".to_owned()),
            Items::Set => match item {
                Value::Object(_) => Err("associative list without keys has an element that's a map type".to_owned()),
                Value::Array(_) => Err("not supported: associative list with lists as elements".to_owned()),
                Value::Null => Err("associative list without keys has an element that's an explicit null".to_owned()),
                scalar => Ok(PathElement::Value(scalar.clone())),
            },
            Items::Keyed(keys) => self.keyed_element(keys, item),
        }
    }

    fn keyed_element(self, keys: &[String], item: &Value) -> Result<PathElement, String> {
        let map = match item {
            Value::Object(map) => map,
            Value::Null => return Err("associative list with keys may not have a null element".to_owned()),
            _ => return Err("associative list with keys may not have non-map elements".to_owned()),
        };
        let default = |key: &String| self.schema.items.as_ref()?.properties.get(key)?.default.as_ref();
        let mut fields: Vec<(String, Value)> = Vec::with_capacity(keys.len());
        for key in keys {
            if let Some(value) = map.get(key).or_else(|| default(key)) {
                fields.push((key.clone(), value.clone()));
            }
        }
        if fields.is_empty() {
            let keys: Vec<String> = keys.iter().map(|k| croft_meta::field::go_quote(k)).collect();
            return Err(format!(
                "associative list with keys has an element that omits all key fields [{}] \
                 (and doesn't have default values for any key fields)",
                keys.join(" ")
            ));
        }
        fields.sort_by(|a, b| a.0.cmp(&b.0));
        Ok(PathElement::Key(fields))
    }
}

fn is_empty_object(value: &Value) -> bool {
    value.as_object().is_some_and(Map::is_empty)
}

fn scalar(ty: Type) -> Schema {
    Schema { ty, ..Schema::default() }
}

/// `metav1.ObjectMeta`, as far as ownership is concerned.
fn object_meta() -> Schema {
    let text = Arc::new(scalar(Type::String));
    let number = Arc::new(scalar(Type::Integer));
    let any_text = Arc::new(scalar(Type::IntOrString));
    let texts =
        Arc::new(Schema { ty: Type::Object, additional: Additional::Schema(text.clone()), ..Schema::default() });
    let owner = Schema {
        ty: Type::Object,
        map_atomic: true,
        properties: ["apiVersion", "kind", "name", "uid"]
            .into_iter()
            .map(|name| (name.to_owned(), text.clone()))
            .chain(["blockOwnerDeletion", "controller"].map(|n| (n.to_owned(), Arc::new(scalar(Type::Boolean)))))
            .collect(),
        ..Schema::default()
    };
    let list = |items: Schema, list_type, merge_key: Option<&str>| Schema {
        ty: Type::Array,
        items: Some(Arc::new(items)),
        list_type,
        patch: PatchStrategy {
            merge: merge_key.is_some(),
            merge_key: merge_key.map(str::to_owned),
            ..PatchStrategy::default()
        },
        ..Schema::default()
    };
    let lists = [
        ("finalizers", list(scalar(Type::String), ListType::Set, None)),
        ("ownerReferences", list(owner, ListType::Map(vec!["uid".to_owned()]), Some("uid"))),
        ("managedFields", list(Schema::default(), ListType::Atomic, None)),
    ];
    let texts_fields = ["annotations", "labels"].map(|name| (name.to_owned(), texts.clone()));
    let number_fields = ["deletionGracePeriodSeconds", "generation"].map(|name| (name.to_owned(), number.clone()));
    let time_fields = ["creationTimestamp", "deletionTimestamp"].map(|name| (name.to_owned(), any_text.clone()));
    let text_fields = ["generateName", "name", "namespace", "resourceVersion", "selfLink", "uid"]
        .map(|name| (name.to_owned(), text.clone()));
    let properties = texts_fields
        .into_iter()
        .chain(number_fields)
        .chain(time_fields)
        .chain(text_fields)
        .chain(lists.map(|(name, schema)| (name.to_owned(), Arc::new(schema))))
        .collect();
    Schema { type_name: "ObjectMeta".into(), ty: Type::Object, properties, ..Schema::default() }
}
