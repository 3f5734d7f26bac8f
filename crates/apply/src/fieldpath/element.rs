//! One step of a path, and the order in which steps sort.

use std::cmp::Ordering;
use std::fmt;

use serde_json::{Number, Value};

use crate::go_format;

/// One step into an object or list.
#[derive(Clone, Debug)]
pub enum PathElement {
    /// A field of an object (`f:`).
    Field(String),
    /// The item of a list of objects that has these key fields, sorted by name (`k:`).
    Key(Vec<(String, Value)>),
    /// The item of a set that has this value (`v:`).
    Value(Value),
    /// The item of a list at this position (`i:`).
    Index(i64),
}

impl PathElement {
    pub fn field(name: impl Into<String>) -> Self {
        Self::Field(name.into())
    }

    fn rank(&self) -> u8 {
        match self {
            Self::Field(_) => 0,
            Self::Key(_) => 1,
            Self::Value(_) => 2,
            Self::Index(_) => 3,
        }
    }
}

impl Ord for PathElement {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Field(a), Self::Field(b)) => a.cmp(b),
            (Self::Key(a), Self::Key(b)) => compare_keys(a, b),
            (Self::Value(a), Self::Value(b)) => compare_values(a, b),
            (Self::Index(a), Self::Index(b)) => a.cmp(b),
            _ => self.rank().cmp(&other.rank()),
        }
    }
}

impl PartialOrd for PathElement {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for PathElement {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for PathElement {}

fn compare_keys(a: &[(String, Value)], b: &[(String, Value)]) -> Ordering {
    for ((a_name, a_value), (b_name, b_value)) in a.iter().zip(b) {
        let order = a_name.cmp(b_name).then_with(|| compare_values(a_value, b_value));
        if order != Ordering::Equal {
            return order;
        }
    }
    a.len().cmp(&b.len())
}

/// The total order of JSON values that field sets sort by: numbers by size whatever their notation, then
/// strings, booleans, lists, objects and null.
pub fn compare_values(a: &Value, b: &Value) -> Ordering {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => compare_numbers(a, b),
        (Value::String(a), Value::String(b)) => a.cmp(b),
        (Value::Bool(a), Value::Bool(b)) => a.cmp(b),
        (Value::Array(a), Value::Array(b)) => {
            let differing = a.iter().zip(b).map(|(a, b)| compare_values(a, b)).find(|o| *o != Ordering::Equal);
            differing.unwrap_or_else(|| a.len().cmp(&b.len()))
        }
        (Value::Object(a), Value::Object(b)) => {
            let differing = a
                .iter()
                .zip(b)
                .map(|((ak, av), (bk, bv))| ak.cmp(bk).then_with(|| compare_values(av, bv)))
                .find(|o| *o != Ordering::Equal);
            differing.unwrap_or_else(|| a.len().cmp(&b.len()))
        }
        _ => value_rank(a).cmp(&value_rank(b)),
    }
}

fn value_rank(value: &Value) -> u8 {
    match value {
        Value::Number(_) => 0,
        Value::String(_) => 1,
        Value::Bool(_) => 2,
        Value::Array(_) => 3,
        Value::Object(_) => 4,
        Value::Null => 5,
    }
}

fn compare_numbers(a: &Number, b: &Number) -> Ordering {
    if let (Some(a), Some(b)) = (a.as_i64(), b.as_i64()) {
        return a.cmp(&b);
    }
    if let (Some(a), Some(b)) = (a.as_u64(), b.as_u64()) {
        return a.cmp(&b);
    }
    // JSON has no NaN, so the comparison is total.
    let float = |n: &Number| n.as_f64().unwrap_or_default();
    float(a).partial_cmp(&float(b)).unwrap_or(Ordering::Equal)
}

/// Whether two values mean the same: `1` and `1.0` do.
pub fn values_equal(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => compare_numbers(a, b) == Ordering::Equal,
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| values_equal(a, b)),
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|((ak, av), (bk, bv))| ak == bk && values_equal(av, bv))
        }
        _ => a == b,
    }
}

/// As conflicts and validation errors print it: `.name`, `[name="a"]`, `[="a"]`, `[0]`.
impl fmt::Display for PathElement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Field(name) => write!(f, ".{name}"),
            Self::Key(fields) => {
                f.write_str("[")?;
                for (i, (name, value)) in fields.iter().enumerate() {
                    let comma = if i > 0 { "," } else { "" };
                    write!(f, "{comma}{name}={}", readable(value))?;
                }
                f.write_str("]")
            }
            Self::Value(value) => write!(f, "[={}]", readable(value)),
            Self::Index(index) => write!(f, "[{index}]"),
        }
    }
}

fn readable(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(b) => b.to_string(),
        Value::Number(n) => go_format::number(n, 21),
        Value::String(s) => croft_meta::field::go_quote(s),
        Value::Array(items) => format!("[{}]", items.iter().map(readable).collect::<Vec<_>>().join(",")),
        Value::Object(map) => map.iter().fold(String::new(), |all, (k, v)| all + k + "=" + &readable(v)),
    }
}

/// `.spec.containers[name="a"].image`.
pub fn path_string(path: &[PathElement]) -> String {
    path.iter().map(ToString::to_string).collect()
}
