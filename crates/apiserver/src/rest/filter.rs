//! `filter=`, `sort=`, `page=`: the choices that need the whole object.

use std::cmp::Ordering;

use serde_json::Value;

use super::reply::invalid;
use croft_meta::ApiError;

const MAX_TERMS: usize = 32;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operator {
    Is,
    IsNot,
    Contains,
    ContainsNot,
    Above,
    Below,
}

/// `metadata.name=a`, for one.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Term {
    path: Vec<String>,
    operator: Operator,
    value: String,
}

/// All of the parameters must hold; of one parameter, any of its terms.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Filter(Vec<Vec<Term>>);

impl Filter {
    pub(super) fn parse<'a>(texts: impl Iterator<Item = &'a str>) -> Result<Self, ApiError> {
        let mut all = Vec::new();
        for text in texts.filter(|text| !text.is_empty()) {
            let terms = text.split(',').map(Term::parse).collect::<Result<Vec<_>, _>>()?;
            all.push(terms);
        }
        if all.iter().map(Vec::len).sum::<usize>() > MAX_TERMS {
            return Err(invalid("MaxLimitExceeded", format!("more than {MAX_TERMS} filters")));
        }
        Ok(Self(all))
    }

    pub(super) fn is_everything(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn matches(&self, object: &Value) -> bool {
        self.0.iter().all(|any| any.iter().any(|term| term.matches(object)))
    }
}

impl Term {
    fn parse(text: &str) -> Result<Self, ApiError> {
        // Longer operators first: `!=` is not `=` after a `!`.
        let operators = [
            ("!=", Operator::IsNot),
            ("!~", Operator::ContainsNot),
            ("=", Operator::Is),
            ("~", Operator::Contains),
            (">", Operator::Above),
            ("<", Operator::Below),
        ];
        let first = operators.iter().filter_map(|(sign, operator)| Some((text.find(sign)?, *sign, *operator)));
        let (at, sign, operator) = first
            .min_by_key(|(at, sign, _)| (*at, usize::MAX - sign.len()))
            .ok_or_else(|| invalid("InvalidFormat", format!("filter {text:?} has no operator")))?;
        let value = text[at + sign.len()..].trim_matches(['"', '\'']).to_owned();
        Ok(Self { path: path(&text[..at])?, operator, value })
    }

    fn matches(&self, object: &Value) -> bool {
        let found = values(object, &self.path);
        let number = |text: &str| text.parse::<f64>().ok();
        let any = |test: &dyn Fn(&str) -> bool| found.iter().any(|value| test(value));
        match self.operator {
            Operator::Is => any(&|value| value == self.value),
            Operator::IsNot => !any(&|value| value == self.value),
            Operator::Contains => any(&|value| value.contains(&self.value)),
            Operator::ContainsNot => !any(&|value| value.contains(&self.value)),
            Operator::Above => any(&|value| number(value) > number(&self.value) && number(&self.value).is_some()),
            Operator::Below => any(&|value| number(value) < number(&self.value) && number(value).is_some()),
        }
    }
}

/// The order that a client asks for: `sort=-metadata.creationTimestamp,metadata.name`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Sort(Vec<(Vec<String>, bool)>);

/// What an object is sorted by.
pub(super) type Key = Vec<String>;

impl Sort {
    pub(super) fn parse(text: &str) -> Result<Self, ApiError> {
        let fields = text.split(',').map(str::trim).filter(|field| !field.is_empty());
        let parsed = fields.map(|field| match field.strip_prefix('-') {
            Some(field) => Ok((path(field)?, true)),
            None => Ok((path(field)?, false)),
        });
        let parsed = parsed.collect::<Result<Vec<_>, ApiError>>()?;
        if parsed.len() > MAX_TERMS {
            Err(invalid("MaxLimitExceeded", "too many fields to sort by"))
        } else {
            Ok(Self(parsed))
        }
    }

    pub(super) fn is_none(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn key(&self, object: &Value) -> Key {
        self.0.iter().map(|(path, _)| values(object, path).into_iter().next().unwrap_or_default()).collect()
    }

    pub(super) fn compare(&self, a: &Key, b: &Key) -> Ordering {
        for ((a, b), (_, is_reversed)) in a.iter().zip(b).zip(&self.0) {
            let order = match (a.parse::<f64>(), b.parse::<f64>()) {
                (Ok(a), Ok(b)) => a.total_cmp(&b),
                _ => a.cmp(b),
            };
            let order = if *is_reversed { order.reverse() } else { order };
            if order != Ordering::Equal {
                return order;
            }
        }
        Ordering::Equal
    }
}

/// `metadata.labels[app.kubernetes.io/name]`, in its parts.
fn path(text: &str) -> Result<Vec<String>, ApiError> {
    let bad = || invalid("InvalidFormat", format!("{text:?} is not a field"));
    let mut parts = Vec::new();
    let mut rest = text.trim();
    while !rest.is_empty() {
        if let Some(inner) = rest.strip_prefix('[') {
            let (key, after) = inner.split_once(']').ok_or_else(bad)?;
            parts.push(key.trim_matches(['"', '\'']).to_owned());
            rest = after.strip_prefix('.').unwrap_or(after);
            continue;
        }
        let end = rest.find(['.', '[']).unwrap_or(rest.len());
        if end == 0 {
            return Err(bad());
        }
        parts.push(rest[..end].to_owned());
        rest = &rest[end..];
        rest = rest.strip_prefix('.').unwrap_or(rest);
    }
    if parts.is_empty() { Err(bad()) } else { Ok(parts) }
}

/// The plain values at a path, through the elements of arrays.
fn values(object: &Value, path: &[String]) -> Vec<String> {
    let Some((first, rest)) = path.split_first() else {
        return match object {
            Value::String(text) => vec![text.clone()],
            Value::Bool(_) | Value::Number(_) => vec![object.to_string()],
            Value::Array(items) => items.iter().flat_map(|item| values(item, path)).collect(),
            Value::Null | Value::Object(_) => Vec::new(),
        };
    };
    match object {
        Value::Object(map) => map.get(first).map(|inner| values(inner, rest)).unwrap_or_default(),
        Value::Array(items) => match first.parse::<usize>() {
            Ok(index) => items.get(index).map(|item| values(item, rest)).unwrap_or_default(),
            Err(_) => items.iter().flat_map(|item| values(item, path)).collect(),
        },
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn filters_choose() {
        let object = json!({"metadata": {"name": "web-1", "labels": {"app.io/name": "web"}}, "spec": {"cores": 4},
            "items": [{"a": "x"}, {"a": "y"}]});
        for (filter, expected) in [
            (vec!["metadata.name=web-1"], true),
            (vec!["metadata.name=web"], false),
            (vec!["metadata.name~web"], true),
            (vec!["metadata.name!=web-1"], false),
            (vec!["metadata.name!~b-2"], true),
            (vec!["metadata.labels[app.io/name]=web"], true),
            (vec!["metadata.name=x,metadata.name=web-1"], true),
            (vec!["metadata.name=web-1", "spec.cores>4"], false),
            (vec!["spec.cores<5"], true),
            (vec!["items.a=y"], true),
            (vec!["items[0].a=y"], false),
            (vec!["missing!=x"], true),
        ] {
            let parsed = Filter::parse(filter.iter().copied()).unwrap();
            assert_eq!(parsed.matches(&object), expected, "{filter:?}");
        }
        for bad in ["x", "=1", "a[b=1", "..=2"] {
            assert_eq!(Filter::parse([bad].into_iter()).unwrap_err().code(), 422, "{bad}");
        }
    }

    #[test]
    fn numbers_sort_as_numbers() {
        let sort = Sort::parse("-a,b").unwrap();
        let mut keys: Vec<Key> =
            [("9", "z"), ("10", "y"), ("9", "x")].map(|(a, b)| sort.key(&json!({"a": a, "b": b}))).into();
        keys.sort_by(|a, b| sort.compare(a, b));
        assert_eq!(keys, [["10", "y"], ["9", "x"], ["9", "z"]]);
    }
}
