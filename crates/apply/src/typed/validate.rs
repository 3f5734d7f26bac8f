//! Whether an object can be walked by its schema at all.
//!
//! This is not the validation of the object's content: it finds what would make ownership
//! ambiguous (values of the wrong shape, undeclared fields, list items that cannot be told apart).

use std::collections::BTreeSet;

use croft_schema::{Schema, Type};
use serde_json::Value;

use super::node::{Items, Node};
use crate::fieldpath::PathElement;
use crate::go_format;

/// Whether list items may share a key: in stored objects they may, in an applied configuration not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Duplicates {
    Allowed,
    Forbidden,
}

struct Violation {
    path: String,
    text: String,
}

/// Checks an object; the error is the text that the client gets to see.
pub fn validate(node: Node<'_>, value: &Value, duplicates: Duplicates) -> Result<(), String> {
    let mut violations = Vec::new();
    walk(node, value, duplicates, &mut violations);
    let text = |v: &Violation| if v.path.is_empty() { v.text.clone() } else { format!("{}: {}", v.path, v.text) };
    match violations.as_slice() {
        [] => Ok(()),
        [one] => Err(text(one)),
        many => Err(many.iter().fold("errors:".to_owned(), |all, v| all + "\n  " + &text(v))),
    }
}

fn report(out: &mut Vec<Violation>, text: String) {
    out.push(Violation { path: String::new(), text });
}

/// Prefixes what a walk below `element` has found.
fn prefix(out: &mut [Violation], element: &PathElement) {
    for violation in out {
        violation.path.insert_str(0, &element.to_string());
    }
}

fn walk(node: Node<'_>, value: &Value, duplicates: Duplicates, out: &mut Vec<Violation>) {
    match (node.schema.ty, value) {
        (_, Value::Null) => {}
        (Type::Object | Type::Any, Value::Object(_)) => walk_map(node, value, duplicates, out),
        (Type::Array | Type::Any, Value::Array(_)) => walk_list(node, value, duplicates, out),
        (Type::Object, _) => report(out, format!("expected map, got &{{{}}}", go_format::plain(value))),
        (Type::Array, _) => report(out, format!("expected list, got &{{{}}}", go_format::plain(value))),
        (Type::Any, _) => {}
        _ => out.extend(scalar_violation(node.schema, value)),
    }
}

fn scalar_violation(schema: &Schema, value: &Value) -> Option<Violation> {
    let format = schema.constraints.as_ref().and_then(|c| c.format.as_deref()).unwrap_or_default();
    // Times and quantities are read from more than one notation.
    let loose = schema.ty == Type::IntOrString
        || &*schema.type_name == "Quantity"
        || (schema.ty == Type::String && !matches!(format, "" | "byte"));
    let text = match schema.ty {
        _ if loose => (value.is_object() || value.is_array())
            .then(|| format!("expected any scalar, got &{{{}}}", go_format::plain(value))),
        Type::Integer | Type::Number => (!value.is_number())
            .then(|| format!("expected numeric (int or float), got {}", go_format::type_name(value))),
        Type::String => (!value.is_string())
            .then(|| format!("expected string, got &value.valueUnstructured{{Value:{}}}", go_format::syntax(value))),
        Type::Boolean => {
            (!value.is_boolean()).then(|| format!("expected boolean, got &{{{}}}", go_format::plain(value)))
        }
        _ => None,
    };
    text.map(|text| Violation { path: String::new(), text })
}

fn walk_map(node: Node<'_>, value: &Value, duplicates: Duplicates, out: &mut Vec<Violation>) {
    for (name, value) in value.as_object().into_iter().flatten() {
        let element = PathElement::field(name.as_str());
        let Some(child) = node.named(name).or_else(|| node.unnamed()) else {
            let at = out.len();
            report(out, "field not declared in schema".to_owned());
            prefix(&mut out[at..], &element);
            return;
        };
        let at = out.len();
        walk(child, value, duplicates, out);
        prefix(&mut out[at..], &element);
    }
}

fn walk_list(node: Node<'_>, value: &Value, duplicates: Duplicates, out: &mut Vec<Violation>) {
    let mut seen = BTreeSet::new();
    for (index, item) in value.as_array().into_iter().flatten().enumerate() {
        let element = if node.items() == Items::Atomic {
            PathElement::Index(i64::try_from(index).unwrap_or(i64::MAX))
        } else {
            match node.element(item) {
                Ok(element) => element,
                Err(text) => return report(out, format!("element {index}: {text}")),
            }
        };
        if duplicates == Duplicates::Forbidden && node.items() != Items::Atomic && !seen.insert(element.clone()) {
            report(out, format!("duplicate entries for key {element}"));
        }
        let at = out.len();
        walk(node.item(), item, duplicates, out);
        prefix(&mut out[at..], &element);
    }
}
