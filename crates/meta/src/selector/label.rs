//! Label selectors: `a=b,c in (x,y),!d`, and the JSON form of `metav1.LabelSelector`.

mod parser;

use std::fmt;
use std::str::FromStr;

use serde_json::{Value, json};

use super::SelectorError;
use crate::field::{FieldError, FieldErrors, FieldPath, go_quote, join_errors};
use crate::names::{is_qualified_name, is_valid_label_value};

/// How a label relates to a requirement's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operator {
    Equals,
    /// `==`: the same as [`Operator::Equals`], kept apart only to print back what was written.
    DoubleEquals,
    NotEquals,
    In,
    NotIn,
    Exists,
    DoesNotExist,
    GreaterThan,
    LessThan,
}

/// One term of a selector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Requirement {
    pub key: String,
    pub operator: Operator,
    pub values: Vec<String>,
}

/// All requirements must hold; none selects everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LabelSelector {
    requirements: Vec<Requirement>,
    /// An absent `metav1.LabelSelector` selects nothing, an empty one everything.
    nothing: bool,
}

impl LabelSelector {
    pub fn everything() -> Self {
        Self::default()
    }

    pub fn nothing() -> Self {
        Self { requirements: Vec::new(), nothing: true }
    }

    /// Parses the string form.
    pub fn parse(text: &str) -> Result<Self, SelectorError> {
        parser::parse(text).map(Self::sorted)
    }

    /// From a `metav1.LabelSelector`; null selects nothing.
    pub fn from_json(selector: &Value) -> Result<Self, SelectorError> {
        if selector.is_null() {
            return Ok(Self::nothing());
        }
        let mut requirements = Vec::new();
        for (key, value) in selector["matchLabels"].as_object().into_iter().flatten() {
            let value = value.as_str().unwrap_or_default().to_owned();
            requirements.push(Requirement::new(key.clone(), Operator::Equals, vec![value])?);
        }
        for expression in selector["matchExpressions"].as_array().into_iter().flatten() {
            let operator = match expression["operator"].as_str().unwrap_or_default() {
                "In" => Operator::In,
                "NotIn" => Operator::NotIn,
                "Exists" => Operator::Exists,
                "DoesNotExist" => Operator::DoesNotExist,
                other => {
                    let name = go_quote(other);
                    return Err(SelectorError(format!("{name} is not a valid label selector operator")));
                }
            };
            let key = expression["key"].as_str().unwrap_or_default().to_owned();
            let values = expression["values"].as_array().into_iter().flatten();
            let values = values.filter_map(|value| value.as_str().map(str::to_owned)).collect();
            requirements.push(Requirement::new(key, operator, values)?);
        }
        Ok(Self::sorted(requirements))
    }

    /// Upstream sorts by key so that the printed form is stable.
    fn sorted(mut requirements: Vec<Requirement>) -> Self {
        requirements.sort_by(|a, b| a.key.cmp(&b.key));
        Self { requirements, nothing: false }
    }

    pub fn requirements(&self) -> &[Requirement] {
        &self.requirements
    }

    pub fn is_everything(&self) -> bool {
        self.requirements.is_empty() && !self.nothing
    }

    /// `get` looks a label up by its key.
    pub fn matches<'a>(&self, get: impl Fn(&str) -> Option<&'a str>) -> bool {
        !self.nothing && self.requirements.iter().all(|requirement| requirement.matches(get(&requirement.key)))
    }

    /// Does the object's `metadata.labels` match?
    pub fn matches_object(&self, object: &Value) -> bool {
        let labels = object.get("metadata").and_then(|metadata| metadata.get("labels"));
        self.matches(|key| labels?.get(key)?.as_str())
    }
}

impl FromStr for LabelSelector {
    type Err = SelectorError;

    fn from_str(text: &str) -> Result<Self, SelectorError> {
        Self::parse(text)
    }
}

impl fmt::Display for LabelSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, requirement) in self.requirements.iter().enumerate() {
            let comma = if index > 0 { "," } else { "" };
            write!(f, "{comma}{requirement}")?;
        }
        Ok(())
    }
}

impl Requirement {
    /// Checks the key, the number of values and each value.
    pub fn new(key: String, operator: Operator, values: Vec<String>) -> Result<Self, SelectorError> {
        let errors = check(&key, operator, &values);
        if errors.is_empty() { Ok(Self { key, operator, values }) } else { Err(SelectorError(join_errors(&errors))) }
    }

    fn matches(&self, label: Option<&str>) -> bool {
        let listed = |label: &str| self.values.iter().any(|value| value == label);
        match self.operator {
            Operator::Equals | Operator::DoubleEquals | Operator::In => label.is_some_and(listed),
            Operator::NotEquals | Operator::NotIn => !label.is_some_and(listed),
            Operator::Exists => label.is_some(),
            Operator::DoesNotExist => label.is_none(),
            Operator::GreaterThan => self.compares(label, |label, bound| label > bound),
            Operator::LessThan => self.compares(label, |label, bound| label < bound),
        }
    }

    fn compares(&self, label: Option<&str>, holds: fn(i64, i64) -> bool) -> bool {
        let label = label.and_then(|text| text.parse().ok());
        let bound = self.values.first().and_then(|text| text.parse().ok());
        label.zip(bound).is_some_and(|(label, bound)| holds(label, bound))
    }
}

impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = &self.key;
        let mut values: Vec<&str> = self.values.iter().map(String::as_str).collect();
        values.sort_unstable();
        let values = values.join(",");
        match self.operator {
            Operator::Equals => write!(f, "{key}={values}"),
            Operator::DoubleEquals => write!(f, "{key}=={values}"),
            Operator::NotEquals => write!(f, "{key}!={values}"),
            Operator::In => write!(f, "{key} in ({values})"),
            Operator::NotIn => write!(f, "{key} notin ({values})"),
            Operator::Exists => write!(f, "{key}"),
            Operator::DoesNotExist => write!(f, "!{key}"),
            Operator::GreaterThan => write!(f, "{key}>{values}"),
            Operator::LessThan => write!(f, "{key}<{values}"),
        }
    }
}

fn check_key(key: &str, path: &FieldPath) -> Option<FieldError> {
    let wrong = is_qualified_name(key);
    (!wrong.is_empty()).then(|| FieldError::invalid(path, key, wrong.join("; ")))
}

fn check(key: &str, operator: Operator, values: &[String]) -> FieldErrors {
    let path = FieldPath::new("values");
    let mut errors: FieldErrors = check_key(key, &FieldPath::new("key")).into_iter().collect();
    let mut refuse = |detail: &str| errors.push(FieldError::invalid(&path, json!(values), detail));
    match operator {
        Operator::In | Operator::NotIn if values.is_empty() => {
            refuse("for 'in', 'notin' operators, values set can't be empty");
        }
        Operator::Equals | Operator::DoubleEquals | Operator::NotEquals if values.len() != 1 => {
            refuse("exact-match compatibility requires one single value");
        }
        Operator::Exists | Operator::DoesNotExist if !values.is_empty() => {
            refuse("values set must be empty for exists and does not exist");
        }
        Operator::GreaterThan | Operator::LessThan => {
            if values.len() != 1 {
                refuse("for 'Gt', 'Lt' operators, exactly one value is required");
            }
            for (index, value) in values.iter().enumerate().filter(|(_, value)| value.parse::<i64>().is_err()) {
                let detail = "for 'Gt', 'Lt' operators, the value must be an integer";
                errors.push(FieldError::invalid(&path.index(index), value.as_str(), detail));
            }
        }
        _ => {}
    }
    for (index, value) in values.iter().enumerate() {
        let wrong = is_valid_label_value(value);
        if !wrong.is_empty() {
            errors.push(FieldError::invalid(&path.index(index).key(key), value.as_str(), wrong.join("; ")));
        }
    }
    errors
}

#[cfg(test)]
mod tests;
