//! Validates a value against a schema, with the texts of kube-openapi's validator.
//!
//! On update, what has not changed may stay invalid (upstream's CRDValidationRatcheting): errors of
//! a node are dropped when its old value can be found and is equal.

mod embedded;
mod lists;
mod numbers;

use croft_meta::field::go_quote;
use croft_meta::{FieldError, FieldErrors, FieldPath};
use serde_json::{Map, Value};

pub(crate) use self::embedded::validate as validate_embedded;
pub(crate) use self::lists::correlate;
pub use self::lists::validate_lists;
use crate::formats;
use crate::model::{Additional, Constraints, ListType, Schema, Type};

/// Everything wrong with `value`; `old` is what it replaces, if anything.
pub fn validate(schema: &Schema, value: &Value, path: &FieldPath, old: Option<&Value>) -> FieldErrors {
    let mut errors = validate_schema(schema, value, path, old);
    errors.extend(embedded::validate(schema, value, path));
    let lists = validate_lists(schema, value, path);
    // Lists that were already wrong may stay so.
    if !lists.is_empty() && old.is_none_or(|old| validate_lists(schema, old, path).is_empty()) {
        errors.extend(lists);
    }
    errors
}

/// Only what the OpenAPI keywords say.
pub(crate) fn validate_schema(schema: &Schema, value: &Value, path: &FieldPath, old: Option<&Value>) -> FieldErrors {
    let outcome = Node { schema, value, old, path: "" }.check();
    outcome.problems.into_iter().map(|problem| problem.into_field_error(path)).collect()
}

/// What one node found, and how many checks it passed: `anyOf` reports its best branch.
#[derive(Default)]
struct Outcome {
    problems: Vec<Problem>,
    matches: usize,
}

impl Outcome {
    fn add(&mut self, problem: Problem) {
        if !self.problems.iter().any(|known| known.message() == problem.message()) {
            self.problems.push(problem);
        }
    }

    fn merge(&mut self, other: Self) {
        other.problems.into_iter().for_each(|problem| self.add(problem));
        self.matches += other.matches;
    }
}

/// An error in kube-openapi's terms, before it becomes a field error.
struct Problem {
    /// Where, relative to the validated value; `None` for the composite errors, which name it in their text.
    path: Option<String>,
    kind: Kind,
}

enum Kind {
    Required,
    Enum { value: Value, supported: Vec<String> },
    TooLong { max: u64, message: String },
    TooMany { actual: usize, max: u64, message: String },
    Type { value: Value, message: String },
    Other { value: Value, message: String },
}

impl Problem {
    fn message(&self) -> (Option<&str>, &str) {
        let text = match &self.kind {
            Kind::Required => "required",
            Kind::Enum { .. } => "enum",
            Kind::TooLong { message, .. }
            | Kind::TooMany { message, .. }
            | Kind::Type { message, .. }
            | Kind::Other { message, .. } => message,
        };
        (self.path.as_deref(), text)
    }

    fn into_field_error(self, root: &FieldPath) -> FieldError {
        let path = match self.path.as_deref().map(|path| path.trim_start_matches('.')) {
            None | Some("") => root.clone(),
            Some(path) if path.starts_with('[') => FieldPath::new(format!("{}{path}", root.as_str())),
            Some(path) => root.child(path),
        };
        match self.kind {
            Kind::Required => FieldError::required(&path, ""),
            Kind::Enum { value, supported } => {
                let supported: Vec<&str> = supported.iter().map(String::as_str).collect();
                FieldError::not_supported(&path, value, &supported)
            }
            Kind::TooLong { max, .. } => FieldError::too_long(&path, usize::try_from(max).unwrap_or(usize::MAX)),
            Kind::TooMany { actual, max, .. } => {
                FieldError::too_many(&path, actual, usize::try_from(max).unwrap_or(usize::MAX))
            }
            Kind::Type { value, message } => FieldError::type_invalid(&path, value, message),
            Kind::Other { value, message } => FieldError::invalid(&path, value, message),
        }
    }
}

/// A value, the schema it must fit, and the value it replaces.
#[derive(Clone, Copy)]
struct Node<'a> {
    schema: &'a Schema,
    value: &'a Value,
    old: Option<&'a Value>,
    path: &'a str,
}

impl Node<'_> {
    fn check(self) -> Outcome {
        let mut outcome = self.check_without_ratchet();
        if !outcome.problems.is_empty() && self.old == Some(self.value) {
            outcome.problems.clear();
        }
        outcome
    }

    fn problem(&self, kind: Kind) -> Problem {
        Problem { path: Some(self.path.to_owned()), kind }
    }

    fn other(&self, value: impl Into<Value>, what: &str) -> Problem {
        let message = format!("{} in body {what}", self.path);
        self.problem(Kind::Other { value: value.into(), message })
    }

    fn type_problem(&self, expected: &str, found: &str) -> Problem {
        let message = format!("{} in body must be of type {expected}: {}", self.path, go_quote(found));
        self.problem(Kind::Type { value: found.into(), message })
    }

    /// The branches of `allOf` and the like are checked with this: only whole fields ratchet.
    fn check_without_ratchet(self) -> Outcome {
        static NO_CONSTRAINTS: std::sync::LazyLock<Constraints> = std::sync::LazyLock::new(Constraints::default);
        let constraints = self.schema.constraints.as_deref().unwrap_or(&NO_CONSTRAINTS);
        let mut outcome = Outcome::default();
        self.check_type(constraints, &mut outcome);
        if self.value.is_null() {
            self.check_enum(constraints, &mut outcome);
            return outcome;
        }
        self.check_junctors(constraints, &mut outcome);
        match self.value {
            Value::String(text) => self.check_string(text, constraints, &mut outcome),
            Value::Number(number) => numbers::check(&self, number, constraints, &mut outcome),
            Value::Array(list) => self.check_list(list, constraints, &mut outcome),
            _ => {}
        }
        self.check_enum(constraints, &mut outcome);
        if let Value::Object(map) = self.value {
            self.check_object(map, constraints, &mut outcome);
        }
        outcome.matches += 1;
        outcome
    }

    fn check_type(&self, constraints: &Constraints, outcome: &mut Outcome) {
        let expected = match self.schema.ty {
            Type::Any => "",
            Type::Object => "object",
            Type::Array => "array",
            Type::String => "string",
            Type::Integer => "integer",
            Type::Number => "number",
            Type::Boolean => "boolean",
            Type::IntOrString => "integer,string",
        };
        let format = constraints.format.as_deref().filter(|format| formats::is_known_format(format));
        if self.value.is_null() {
            if !expected.is_empty() && !self.schema.nullable {
                outcome.add(self.type_problem(expected, "null"));
            } else {
                outcome.matches += 1;
            }
            return;
        }
        if expected.is_empty() && format.is_none() {
            return;
        }
        outcome.matches += 1;
        let (found, found_format) = kind_of(self.value);
        let fits = fits_type(self.schema.ty, self.value);
        let is_text = matches!(self.value, Value::String(_) | Value::Array(_));
        let is_numeric = matches!(self.schema.ty, Type::Integer | Type::Number | Type::IntOrString);
        match format {
            Some(format) if !is_text && !fits => outcome.add(self.type_problem(format, found_format)),
            // Strings (and, by accident, lists) with a format are left to the format's own check.
            Some(_) if is_text && !is_numeric => outcome.matches += 1,
            _ if !fits => outcome.add(self.type_problem(expected, found)),
            _ => outcome.matches += 1,
        }
    }

    fn check_enum(&self, constraints: &Constraints, outcome: &mut Outcome) {
        outcome.matches += 1;
        let allowed = &constraints.enum_values;
        if allowed.is_empty() || allowed.iter().any(|allowed| enum_equal(allowed, self.value)) {
            return;
        }
        let supported = allowed.iter().map(|v| v.as_str().map_or_else(|| v.to_string(), str::to_owned)).collect();
        outcome.add(self.problem(Kind::Enum { value: self.value.clone(), supported }));
    }

    fn check_string(&self, text: &str, constraints: &Constraints, outcome: &mut Outcome) {
        outcome.matches += 1;
        let length = || u64::try_from(text.chars().count()).unwrap_or(u64::MAX);
        if let Some(max) = constraints.max_length.filter(|max| length() > *max) {
            let message = format!("{} in body should be at most {max} chars long", self.path);
            outcome.add(self.problem(Kind::TooLong { max, message }));
        } else if let Some(min) = constraints.min_length.filter(|min| length() < *min) {
            outcome.add(self.other(text, &format!("should be at least {min} chars long")));
        } else if let Some(pattern) = &constraints.pattern {
            match constraints.compiled_pattern.get(pattern) {
                Ok(regex) if regex.is_match(text) => {}
                Ok(_) => outcome.add(self.other(text, &format!("should match '{pattern}'"))),
                Err(why) => {
                    let what = format!("should match '{pattern}, but pattern is invalid: {why}'");
                    outcome.add(self.other(text, &what));
                }
            }
        }
        if let Some(format) = constraints.format.as_deref().filter(|format| formats::is_known_format(format)) {
            outcome.matches += 1;
            if !formats::fits(format, text) {
                outcome.add(self.type_problem(format, text));
            }
        }
    }

    fn check_list(&self, list: &[Value], constraints: &Constraints, outcome: &mut Outcome) {
        outcome.matches += 2;
        if let Some(items) = &self.schema.items {
            for (index, value) in list.iter().enumerate() {
                let path = format!("{}[{index}]", self.path);
                let old = self.old.and_then(|old| correlate(&self.schema.list_type, value, old));
                outcome.merge(Node { schema: items, value, old, path: &path }.check());
            }
        }
        let size = u64::try_from(list.len()).unwrap_or(u64::MAX);
        if let Some(min) = constraints.min_items.filter(|min| size < *min) {
            outcome.add(self.other(size, &format!("should have at least {min} items")));
        }
        if let Some(max) = constraints.max_items.filter(|max| size > *max) {
            let message = format!("{} in body should have at most {max} items", self.path);
            outcome.add(self.problem(Kind::TooMany { actual: list.len(), max, message }));
        }
        if constraints.unique_items && list.iter().enumerate().any(|(at, item)| list[..at].contains(item)) {
            outcome.add(self.other("", "shouldn't contain duplicates"));
        }
    }

    fn check_object(&self, map: &Map<String, Value>, constraints: &Constraints, outcome: &mut Outcome) {
        outcome.matches += 1;
        let size = u64::try_from(map.len()).unwrap_or(u64::MAX);
        if let Some(min) = constraints.min_properties.filter(|min| size < *min) {
            outcome.add(self.other(size, &format!("should have at least {min} properties")));
        }
        if let Some(max) = constraints.max_properties.filter(|max| size > *max) {
            let message = format!("{} in body should have at most {max} properties", self.path);
            outcome.add(self.problem(Kind::TooMany { actual: map.len(), max, message }));
        }
        for (key, value) in map {
            let child = match (self.schema.properties.get(key), &self.schema.additional) {
                (Some(property), _) => property,
                (None, Additional::Schema(additional)) => additional,
                (None, Additional::None) => continue,
            };
            let path = if self.path.is_empty() { key.clone() } else { format!("{}.{key}", self.path) };
            // Both sides were converted to the same version, so these say nothing about a change.
            let is_type_meta = self.path.is_empty() && (key == "apiVersion" || key == "kind");
            let old = self.old.and_then(|old| old.get(key)).filter(|_| !is_type_meta);
            outcome.merge(Node { schema: child, value, old, path: &path }.check());
        }
        for name in self.schema.required.iter().filter(|name| !map.contains_key(name.as_str())) {
            outcome.add(Problem { path: Some(format!("{}.{name}", self.path)), kind: Kind::Required });
        }
    }

    /// `anyOf`, `oneOf`, `allOf` and `not`.
    fn check_junctors(&self, constraints: &Constraints, outcome: &mut Outcome) {
        outcome.matches += 2;
        let check = |schema| Node { schema, ..*self }.check_without_ratchet();
        let composite = |message: String| Problem { path: None, kind: Kind::Other { value: "".into(), message } };
        let path = go_quote(self.path);

        if !constraints.any_of.is_empty() {
            match best_branch(constraints.any_of.iter().map(check), true) {
                (0, Some(best)) => {
                    outcome.add(composite(format!("{path} must validate at least one schema (anyOf)")));
                    outcome.merge(best);
                }
                (_, first) => outcome.merge(first.unwrap_or_default()),
            }
        }
        if !constraints.one_of.is_empty() {
            let (valid, branch) = best_branch(constraints.one_of.iter().map(check), false);
            let found = match valid {
                0 => "Found none valid".to_owned(),
                1 => String::new(),
                many => format!("Found {many} valid alternatives"),
            };
            if valid != 1 {
                outcome.add(composite(format!("{path} must validate one and only one schema (oneOf). {found}")));
            }
            if valid < 2 {
                outcome.merge(branch.unwrap_or_default());
            }
        }
        let mut failed = 0;
        for schema in &constraints.all_of {
            let branch = check(schema);
            failed += usize::from(!branch.problems.is_empty());
            outcome.merge(branch);
        }
        if failed > 0 {
            let all = if failed == constraints.all_of.len() { ". None validated" } else { "" };
            outcome.add(composite(format!("{path} must validate all the schemas (allOf){all}")));
        }
        if constraints.not.as_deref().is_some_and(|schema| check(schema).problems.is_empty()) {
            outcome.add(composite(format!("{path} must not validate the schema (not)")));
        }
    }
}

/// How many branches are valid, and the first valid one, or else the one that came closest.
fn best_branch(branches: impl Iterator<Item = Outcome>, stop_at_first: bool) -> (usize, Option<Outcome>) {
    let mut valid = 0;
    let mut best: Option<Outcome> = None;
    for branch in branches {
        if branch.problems.is_empty() {
            valid += 1;
            if valid == 1 {
                best = Some(branch);
            }
            if stop_at_first {
                break;
            }
        } else if valid == 0 && best.as_ref().is_none_or(|best| branch.matches > best.matches) {
            best = Some(branch);
        }
    }
    (valid, best)
}

/// The JSON type of a value and Go's name for its width.
fn kind_of(value: &Value) -> (&'static str, &'static str) {
    match value {
        Value::Null => ("null", ""),
        Value::Bool(_) => ("boolean", ""),
        Value::Number(number) if number.is_i64() => ("integer", "int64"),
        Value::Number(_) => ("number", "float64"),
        Value::String(_) => ("string", ""),
        Value::Array(_) => ("array", ""),
        Value::Object(_) => ("object", ""),
    }
}

pub(crate) fn fits_type(ty: Type, value: &Value) -> bool {
    let is_integer = || match value {
        Value::Number(number) => {
            number.is_i64() || number.as_f64().is_some_and(|f| f.fract() == 0.0 && f.abs() < 9_007_199_254_740_992.0)
        }
        _ => false,
    };
    match ty {
        // No type is none at all in Go's validator, but then nothing is demanded either.
        Type::Any => true,
        Type::Object => value.is_object(),
        Type::Array => value.is_array(),
        Type::String => value.is_string(),
        Type::Boolean => value.is_boolean(),
        Type::Number => value.is_number(),
        Type::Integer => is_integer(),
        Type::IntOrString => value.is_string() || is_integer(),
    }
}

fn enum_equal(allowed: &Value, value: &Value) -> bool {
    match (allowed, value) {
        (Value::Null, _) | (_, Value::Null) => false,
        (Value::Number(a), Value::Number(b)) => a == b || a.as_f64() == b.as_f64(),
        _ => allowed == value,
    }
}

#[cfg(test)]
mod tests;
