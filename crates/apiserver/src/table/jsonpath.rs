//! kubectl's dialect of JSONPath, as far as printer columns use it: fields, quoted keys, indices, slices, unions,
//! wildcards, recursive descent and filters. Missing keys find nothing; follows client-go's `util/jsonpath`, traps
//! included (a dot in a quoted key must be escaped).

mod parse;

use std::borrow::Cow;

use serde_json::Value;

/// Why a path cannot be parsed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct PathError(pub(crate) String);

/// A parsed path.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct JsonPath(Vec<Node>);

#[derive(Clone, Debug, PartialEq)]
enum Node {
    Field(String),
    Slice(Slice),
    Wildcard,
    Recursive,
    Union(Vec<Vec<Node>>),
    Filter {
        left: Vec<Node>,
        compare: Option<(Operator, Vec<Node>)>,
    },
    Constant(Value),
    /// A bare word (`range`, `end`, a forgotten dot): parses, but finds nothing.
    Word,
}

/// `[start:end:step]`; an index is the slice of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Slice {
    start: Option<i64>,
    end: Option<i64>,
    step: Option<i64>,
    /// Written as an index: `[-1]` ends at the end of the list, not at 0.
    is_index: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operator {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

/// The value does not have the shape that the path demands, or the path finds the same things over and over.
#[derive(Debug)]
struct Mismatch;

/// How many values a path may look at: `..` after `..` finds everything as often as there are ways to it.
const MOST_STEPS: usize = 500_000;

/// What is left of that.
struct Budget(usize);

impl Budget {
    fn spend(&mut self, steps: usize) -> Result<(), Mismatch> {
        self.0 = self.0.checked_sub(steps).ok_or(Mismatch)?;
        Ok(())
    }
}

type Found<'a> = Vec<Cow<'a, Value>>;

impl JsonPath {
    /// Parses what stands in a column's `jsonPath`, without the braces.
    pub(crate) fn parse(text: &str) -> Result<Self, PathError> {
        parse::nodes(text).map(Self)
    }

    /// The first value found. A value of the wrong shape on the way counts as nothing found.
    pub(crate) fn first<'a>(&self, data: &'a Value) -> Option<Cow<'a, Value>> {
        walk(&self.0, vec![Cow::Borrowed(data)], &mut Budget(MOST_STEPS)).ok()?.into_iter().next()
    }

    /// The names that lead to all that the path looks at, one within the other.
    pub(crate) fn trunk(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map_while(|node| match node {
            Node::Field(name) => Some(name.as_str()),
            _ => None,
        })
    }

    #[cfg(test)]
    fn all(&self, data: &Value) -> Option<Vec<Value>> {
        let found = walk(&self.0, vec![Cow::Borrowed(data)], &mut Budget(MOST_STEPS)).ok()?;
        Some(found.into_iter().map(Cow::into_owned).collect())
    }
}

fn walk<'a>(nodes: &[Node], input: Found<'a>, budget: &mut Budget) -> Result<Found<'a>, Mismatch> {
    nodes.iter().try_fold(input, |found, node| step(node, found, budget))
}

fn step<'a>(node: &Node, input: Found<'a>, budget: &mut Budget) -> Result<Found<'a>, Mismatch> {
    budget.spend(input.len() + 1)?;
    let mut out = Vec::new();
    match node {
        Node::Field(name) => out.extend(input.into_iter().filter_map(|value| member(value, name))),
        Node::Wildcard => {
            for value in input {
                let found = children(value);
                budget.spend(found.len())?;
                out.extend(found);
            }
        }
        Node::Recursive => input.into_iter().try_for_each(|value| descend(value, &mut out, budget))?,
        Node::Constant(value) => out.extend(input.iter().map(|_| Cow::Owned(value.clone()))),
        Node::Word => return Err(Mismatch),
        Node::Union(branches) => {
            for branch in branches {
                out.extend(walk(branch, input.clone(), budget)?);
            }
        }
        Node::Slice(slice) => {
            for value in input.into_iter().filter(|v| !v.is_null()) {
                let all = items(value)?;
                budget.spend(all.len())?;
                out.extend(slice.take(all)?);
            }
        }
        Node::Filter { left, compare } => {
            for item in input.into_iter().map(items).collect::<Result<Vec<_>, _>>()?.into_iter().flatten() {
                if passes(left, compare.as_ref(), &item, budget)? {
                    out.push(item);
                }
            }
        }
    }
    Ok(out)
}

fn member<'a>(value: Cow<'a, Value>, name: &str) -> Option<Cow<'a, Value>> {
    match value {
        Cow::Borrowed(value) => value.as_object()?.get(name).map(Cow::Borrowed),
        Cow::Owned(mut value) => value.as_object_mut()?.remove(name).map(Cow::Owned),
    }
}

fn items(value: Cow<'_, Value>) -> Result<Found<'_>, Mismatch> {
    match value {
        Cow::Borrowed(Value::Array(list)) => Ok(list.iter().map(Cow::Borrowed).collect()),
        Cow::Owned(Value::Array(list)) => Ok(list.into_iter().map(Cow::Owned).collect()),
        _ => Err(Mismatch),
    }
}

fn children(value: Cow<'_, Value>) -> Found<'_> {
    match value {
        Cow::Borrowed(Value::Object(map)) => map.values().map(Cow::Borrowed).collect(),
        Cow::Owned(Value::Object(map)) => map.into_iter().map(|(_, value)| Cow::Owned(value)).collect(),
        other => items(other).unwrap_or_default(),
    }
}

/// The value and everything below it, except what has nothing in it (numbers, empty lists).
fn descend<'a>(value: Cow<'a, Value>, out: &mut Found<'a>, budget: &mut Budget) -> Result<(), Mismatch> {
    let has_content = match value.as_ref() {
        Value::Object(map) => !map.is_empty(),
        Value::Array(list) => !list.is_empty(),
        Value::String(text) => !text.is_empty(),
        _ => false,
    };
    if has_content {
        budget.spend(1)?;
        out.push(value.clone());
        for child in children(value) {
            descend(child, out, budget)?;
        }
    }
    Ok(())
}

fn passes(
    left: &[Node],
    compare: Option<&(Operator, Vec<Node>)>,
    item: &Value,
    budget: &mut Budget,
) -> Result<bool, Mismatch> {
    let found = walk(left, vec![Cow::Borrowed(item)], budget);
    let Some((operator, right)) = compare else {
        // Upstream takes a list that is too short for the index as a sign that there is something.
        return Ok(found.map_or(true, |found| !found.is_empty()));
    };
    let (found, wanted) = (found?, walk(right, vec![Cow::Borrowed(item)], budget)?);
    match (found.as_slice(), wanted.as_slice()) {
        ([], _) | (_, []) => Ok(false),
        ([found], [wanted]) => operator.compare(found, wanted),
        _ => Err(Mismatch),
    }
}

impl Slice {
    fn take(self, list: Found<'_>) -> Result<Found<'_>, Mismatch> {
        let length = i64::try_from(list.len()).map_err(|_| Mismatch)?;
        let from_end = |index: i64| if index < 0 { index + length } else { index };
        let start = from_end(self.start.unwrap_or(0));
        let end = match self.end {
            None => length,
            Some(0) if self.is_index => length,
            Some(end) => from_end(end),
        };
        if start == end {
            return Ok(Vec::new());
        }
        let step = self.step.unwrap_or(1);
        if !(0..length).contains(&start) || !(start..=length).contains(&end) || step <= 0 {
            return Err(Mismatch);
        }
        let as_index = |n: i64| usize::try_from(n).map_err(|_| Mismatch);
        let (skip, take, step) = (as_index(start)?, as_index(end - start)?, as_index(step)?);
        Ok(list.into_iter().skip(skip).take(take).step_by(step).collect())
    }
}

impl Operator {
    /// Only values of one type compare, and only strings and numbers have an order.
    fn compare(self, left: &Value, right: &Value) -> Result<bool, Mismatch> {
        use std::cmp::Ordering;
        let ordering = match (left, right) {
            (Value::String(l), Value::String(r)) => Some(l.cmp(r)),
            (Value::Number(l), Value::Number(r)) if l.is_f64() == r.is_f64() => match (l.as_i64(), r.as_i64()) {
                (Some(l), Some(r)) => Some(l.cmp(&r)),
                _ => l.as_f64().partial_cmp(&r.as_f64()),
            },
            (Value::Bool(l), Value::Bool(r)) if matches!(self, Self::Equal | Self::NotEqual) => Some(l.cmp(r)),
            _ => None,
        }
        .ok_or(Mismatch)?;
        Ok(match self {
            Self::Equal => ordering == Ordering::Equal,
            Self::NotEqual => ordering != Ordering::Equal,
            Self::Less => ordering == Ordering::Less,
            Self::LessOrEqual => ordering != Ordering::Greater,
            Self::Greater => ordering == Ordering::Greater,
            Self::GreaterOrEqual => ordering != Ordering::Less,
        })
    }
}

/// A value as Go prints it: strings plain, lists and maps as JSON.
pub(crate) fn to_text(value: &Value) -> String {
    match value {
        Value::Null => "<no value>".to_owned(),
        Value::String(text) => text.clone(),
        Value::Number(number) if number.is_f64() => go_float(number.as_f64().unwrap_or_default()),
        Value::Array(_) | Value::Object(_) => html_escaped(&value.to_string()),
        other => other.to_string(),
    }
}

/// `%v`: an exponent of at least two digits from 1e21 on and below 1e-4.
fn go_float(float: f64) -> String {
    let scientific = format!("{float:e}");
    let Some((mantissa, exponent)) = scientific.split_once('e') else { return scientific };
    match exponent.parse::<i32>() {
        Ok(e) if !(-4..21).contains(&e) => format!("{mantissa}e{}{:02}", if e < 0 { '-' } else { '+' }, e.abs()),
        _ => format!("{float}"),
    }
}

/// Go escapes what is special in HTML; none of these occur in JSON outside of strings.
fn html_escaped(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    for c in json.chars() {
        match c {
            '<' => out.push_str("\\u003c"),
            '>' => out.push_str("\\u003e"),
            '&' => out.push_str("\\u0026"),
            '\u{2028}' => out.push_str("\\u2028"),
            '\u{2029}' => out.push_str("\\u2029"),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests;
