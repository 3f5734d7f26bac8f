//! Table and PartialObjectMetadata: the forms in which `kubectl get` and metadata informers read objects.
//!
//! A [`Printer`] is made once per request or watch, since the JSONPaths of custom columns are parsed there.

pub(crate) mod jsonpath;
mod sparse;

use croft_api::Column;
use croft_meta::{ApiError, time};
use serde_json::{Number, Value, json};

use crate::catalog::Served;
use jsonpath::JsonPath;
use sparse::Wanted;

const NAME_DESCRIPTION: &str = "The name of the object, unique in its namespace among objects of its kind. It cannot be \
                                changed. See https://kubernetes.io/docs/concepts/overview/working-with-objects/names";
const AGE_DESCRIPTION: &str =
    "When the server created the object (RFC 3339, UTC), shown as its age. Set by the server.";

/// How much of each object a row carries: `includeObject`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Include {
    None,
    Metadata,
    Object,
}

impl Include {
    pub(crate) fn parse(text: &str) -> Result<Self, ApiError> {
        match text {
            "None" => Ok(Self::None),
            "Metadata" | "" => Ok(Self::Metadata),
            "Object" => Ok(Self::Object),
            other => Err(ApiError::bad_request(format!(
                "Unable to convert to Table as requested: includeObject: Invalid value: {other:?}: must be 'Metadata', \
                 'Object', 'None', or empty"
            ))),
        }
    }
}

/// The columns of one resource, ready to fill.
#[derive(Debug)]
pub(crate) struct Printer {
    served: Served,
    /// For custom resources: one per column after the name. A path that cannot be parsed shows nothing.
    custom: Vec<(String, Option<JsonPath>)>,
    /// What all its columns look at.
    wanted: Wanted,
}

impl Printer {
    pub(crate) fn new(served: &Served) -> Self {
        let parse = |column: &Column| (column.ty.clone(), JsonPath::parse(&column.json_path).ok());
        let custom =
            if served.resource.is_custom { custom_columns(served).iter().map(parse).collect() } else { Vec::new() };
        let mut wanted = if served.resource.is_custom { Wanted::nothing() } else { Wanted::All };
        wanted.add(["metadata", "name"].into_iter());
        for path in custom.iter().filter_map(|(_, path)| path.as_ref()) {
            wanted.add(path.trunk());
        }
        Self { served: served.clone(), custom, wanted }
    }

    /// `columnDefinitions`.
    pub(crate) fn columns(&self) -> Vec<Value> {
        if !self.served.resource.is_custom {
            return self.served.version().columns.iter().map(definition).collect();
        }
        let name =
            json!({"name": "Name", "type": "string", "format": "name", "description": NAME_DESCRIPTION, "priority": 0});
        std::iter::once(name).chain(custom_columns(&self.served).iter().map(definition)).collect()
    }

    /// One of `rows`. `version` is that of `meta.k8s.io`.
    pub(crate) fn row(&self, object: &Value, include: Include, version: &str, now_seconds: i64) -> Value {
        let attached = match include {
            Include::None => Value::Null,
            Include::Metadata => partial_metadata(object, version),
            Include::Object => object.clone(),
        };
        members([("cells", Value::Array(self.cells(object, now_seconds))), ("object", attached)])
    }

    /// The cells of an object in JSON, which is read only as far as they need it.
    pub(crate) fn cells_of(&self, json: &[u8], now_seconds: i64) -> Vec<Value> {
        self.cells(&self.wanted.read(json), now_seconds)
    }

    pub(crate) fn cells(&self, object: &Value, now_seconds: i64) -> Vec<Value> {
        if !self.served.resource.is_custom {
            return (self.served.resource.behaviour.cells)(object, now_seconds);
        }
        let name = json!(croft_meta::object::name(object));
        let columns = self.custom.iter().map(|(ty, path)| {
            let found = path.as_ref().and_then(|path| path.first(object));
            found.map_or(Value::Null, |value| cell(ty, &value, now_seconds))
        });
        std::iter::once(name).chain(columns).collect()
    }
}

/// A whole Table. Only the first event of a watch has column definitions.
pub(crate) fn document(version: &str, metadata: Value, columns: Option<Vec<Value>>, rows: Vec<Value>) -> Value {
    members([
        ("kind", json!("Table")),
        ("apiVersion", json!(format!("meta.k8s.io/{version}"))),
        ("metadata", metadata),
        ("columnDefinitions", columns.map_or(Value::Null, Value::Array)),
        ("rows", Value::Array(rows)),
    ])
}

/// The metadata of an object as an object of its own.
pub(crate) fn partial_metadata(object: &Value, version: &str) -> Value {
    let metadata = object.get("metadata").cloned().unwrap_or_else(|| json!({}));
    members([
        ("kind", json!("PartialObjectMetadata")),
        ("apiVersion", json!(format!("meta.k8s.io/{version}"))),
        ("metadata", metadata),
    ])
}

/// An object from values that are moved in; `json!` would copy them.
fn members<const N: usize>(members: [(&str, Value); N]) -> Value {
    Value::Object(members.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
}

/// Without columns of its own, a custom resource shows its age.
fn custom_columns(served: &Served) -> Vec<Column> {
    let columns = &served.version().columns;
    if !columns.is_empty() {
        return columns.clone();
    }
    vec![Column {
        name: "Age".to_owned(),
        ty: "date".to_owned(),
        format: String::new(),
        description: AGE_DESCRIPTION.to_owned(),
        priority: 0,
        json_path: ".metadata.creationTimestamp".to_owned(),
    }]
}

fn definition(column: &Column) -> Value {
    let description = match (column.description.as_str(), column.name.as_str(), column.json_path.as_str()) {
        ("", "Name", "") => NAME_DESCRIPTION.to_owned(),
        ("", "Age" | "Created At", "") => AGE_DESCRIPTION.to_owned(),
        ("", _, path) if !path.is_empty() => format!("Custom resource definition column (in JSONPath format): {path}"),
        (text, _, _) => text.to_owned(),
    };
    json!({
        "name": column.name,
        "type": column.ty,
        "format": column.format,
        "description": description,
        "priority": column.priority,
    })
}

/// What a cell of this type shows of a value; null where the two do not fit.
fn cell(ty: &str, value: &Value, now_seconds: i64) -> Value {
    match (ty, value) {
        ("string", value) => json!(jsonpath::to_text(value)),
        ("integer", Value::Number(number)) => json!(truncate(number)),
        ("number", Value::Number(number)) => whole(number).map_or_else(|| value.clone(), |n| json!(n)),
        ("boolean", Value::Bool(_)) => value.clone(),
        ("date", Value::String(text)) => json!(age(text, now_seconds)),
        _ => Value::Null,
    }
}

#[expect(clippy::cast_possible_truncation, reason = "Go's int64(float64), which truncates too")]
fn truncate(number: &Number) -> Option<i64> {
    number.as_i64().or_else(|| number.as_f64().map(|float| float as i64))
}

/// `3.0` is written `3`, as Go does.
fn whole(number: &Number) -> Option<i64> {
    let float = number.as_f64().filter(|f| f.fract() == 0.0 && f.abs() < 1e15)?;
    truncate(&Number::from_f64(float)?)
}

fn age(timestamp: &str, now_seconds: i64) -> String {
    if matches!(timestamp, "" | "null") {
        return "<unknown>".to_owned();
    }
    match time::parse(timestamp) {
        Ok(then) => time::human_duration(now_seconds - then.as_second()),
        Err(_) => "<invalid>".to_owned(),
    }
}

#[cfg(test)]
mod tests;
