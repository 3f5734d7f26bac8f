//! Runs compiled rules over an object, and words what they find.

use std::sync::Arc;

use croft_meta::quantity::QuantityError;
use croft_meta::{FieldError, FieldErrors, FieldPath};
use kube_cel::cel::objects::OptionalValue;
use kube_cel::cel::{Context, ExecutionError, Value as CelValue};
use serde_json::Value;

use super::value::{CONTEXT, Converter};
use super::{Node, Rule};
use crate::model::Type;
use crate::validate::correlate;

/// What one request may spend, in upstream's units: about one per step of a rule.
const BUDGET: u64 = 10_000_000;
const MESSAGE_MAX_BYTES: usize = 5 << 10;

pub(super) fn run(root: &Node, path: &FieldPath, new: &Value, old: Option<&Value>) -> FieldErrors {
    let mut run = Run { budget: BUDGET, stopped: false, errors: Vec::new() };
    let ratchet = Ratchet { current: old.map(|old| (new, old)), parent: None };
    run.node(root, path, new, old, ratchet);
    run.errors
}

/// Whether errors may be dropped because nothing changed: the value with its old one, or else the
/// nearest enclosing value that has an old one.
#[derive(Clone, Copy)]
struct Ratchet<'a> {
    current: Option<(&'a Value, &'a Value)>,
    parent: Option<(&'a Value, &'a Value)>,
}

impl<'a> Ratchet<'a> {
    fn is_unchanged(self) -> bool {
        self.current.or(self.parent).is_some_and(|(new, old)| new == old)
    }

    fn down(self, new: &'a Value, old: Option<&'a Value>) -> Self {
        if self.current.is_none() {
            return self;
        }
        Self { current: old.map(|old| (new, old)), parent: self.current }
    }
}

struct Run {
    budget: u64,
    stopped: bool,
    errors: FieldErrors,
}

impl Run {
    fn node<'a>(
        &mut self,
        node: &Node,
        path: &FieldPath,
        new: &'a Value,
        old: Option<&'a Value>,
        ratchet: Ratchet<'a>,
    ) {
        // Rules see values, not their absence: those about null stand at the parent.
        if new.is_null() || self.stopped {
            return;
        }
        self.rules(node, path, new, old.filter(|old| !old.is_null()), ratchet);
        match new {
            Value::Array(list) => {
                let Some(items) = &node.items else { return };
                for (index, item) in list.iter().enumerate() {
                    let old = old.and_then(|old| correlate(&node.schema.list_type, item, old));
                    self.node(items, &path.index(index), item, old, ratchet.down(item, old));
                }
            }
            Value::Object(map) => {
                for (key, value) in map {
                    let old = old.and_then(|old| old.get(key));
                    // Both sides were converted to the same version, so these say nothing about a change.
                    let is_type_meta = ratchet.parent.is_none() && (key == "apiVersion" || key == "kind");
                    let below =
                        if is_type_meta { Ratchet { current: None, parent: None } } else { ratchet.down(value, old) };
                    if let Some(property) = node.properties.get(key) {
                        self.node(property, &path.child(key), value, old, below);
                    } else if let Some(additional) = &node.additional {
                        self.node(additional, &path.key(key), value, old, below);
                    }
                }
            }
            _ => {}
        }
    }

    fn rules(&mut self, node: &Node, path: &FieldPath, new: &Value, old: Option<&Value>, ratchet: Ratchet<'_>) {
        if node.rules.is_empty() {
            return;
        }
        let mut converter = Converter::default();
        let this = converter.convert(new, Some(&node.schema));
        let before = old.map(|old| converter.convert(old, Some(&node.schema)));
        let (longest_list, longest_text) = converter.longest();
        let type_name = type_name(node.schema.ty);
        for rule in &node.rules {
            if rule.uses_old_self && before.is_none() && !rule.optional_old_self {
                continue;
            }
            let cost = rule.weight.cost(longest_list, longest_text);
            if cost > self.budget {
                let detail =
                    "validation failed due to running out of cost budget, no further validation rules will be run";
                self.errors.push(FieldError::invalid(path, type_name, detail));
                self.stopped = true;
                return;
            }
            self.budget -= cost;
            let mut scope = CONTEXT.new_inner_scope();
            scope.add_variable_from_value("self", this.clone());
            if rule.optional_old_self {
                let optional = before.clone().map_or_else(OptionalValue::none, OptionalValue::of);
                scope.add_variable_from_value("oldSelf", CelValue::Opaque(Arc::new(optional)));
            } else if let Some(before) = &before {
                scope.add_variable_from_value("oldSelf", before.clone());
            }
            let error = match scope.resolve(&rule.program) {
                Ok(CelValue::Bool(true)) => continue,
                Ok(_) => {
                    let at = extend(path, &rule.field_path);
                    let error = rule.failure(&at, type_name, message(rule, &scope));
                    if !rule.uses_old_self && ratchet.is_unchanged() {
                        continue;
                    }
                    error
                }
                Err(err) => FieldError::invalid(path, type_name, evaluation_text(&err, rule.name())),
            };
            self.errors.push(error);
        }
    }
}

/// `field_path` may start with a key in brackets.
fn extend(path: &FieldPath, field_path: &str) -> FieldPath {
    if field_path.is_empty() {
        path.clone()
    } else if field_path.starts_with('[') {
        FieldPath::new(format!("{}{field_path}", path.as_str()))
    } else {
        path.child(field_path)
    }
}

/// The rule's own message expression if it works, its message, or what it says.
fn message(rule: &Rule, scope: &Context<'_>) -> String {
    if let Some(Ok(CelValue::String(text))) = rule.message_program.as_ref().map(|program| scope.resolve(program)) {
        let text = text.trim();
        if !text.is_empty() && text.len() <= MESSAGE_MAX_BYTES && !text.contains('\n') {
            return text.to_owned();
        }
    }
    if rule.message.is_empty() { format!("failed rule: {}", rule.text) } else { rule.message.clone() }
}

fn evaluation_text(err: &ExecutionError, rule: &str) -> String {
    match cause(err) {
        Some(text) => format!("{text} evaluating rule: {rule}"),
        None => format!(
            "'no such overload': call arguments did not match a supported operator, function or macro signature for \
             rule: {rule}"
        ),
    }
}

/// The interpreter's error in cel-go's words; `None` for operands that do not fit.
pub(super) fn cause(err: &ExecutionError) -> Option<String> {
    Some(match err {
        ExecutionError::NoSuchKey(key) => format!("no such key: {key}"),
        ExecutionError::IndexOutOfBounds(CelValue::Int(index)) => format!("index out of bounds: {index}"),
        ExecutionError::DivisionByZero(_) => "division by zero".to_owned(),
        ExecutionError::RemainderByZero(_) => "modulus by zero".to_owned(),
        ExecutionError::Overflow(..) => "integer overflow".to_owned(),
        ExecutionError::FunctionError { function, .. } if function == "quantity" => QuantityError::Format.to_string(),
        ExecutionError::FunctionError { message, .. } => message.clone(),
        ExecutionError::NoSuchOverload
        | ExecutionError::UnsupportedBinaryOperator(..)
        | ExecutionError::UnsupportedUnaryOperator(..)
        | ExecutionError::ValuesNotComparable(..)
        | ExecutionError::UnexpectedType { .. } => return None,
        // The others quote whole values; one line of them is enough.
        other => other.to_string().chars().take(256).collect(),
    })
}

fn type_name(ty: Type) -> &'static str {
    match ty {
        Type::Any | Type::IntOrString => "",
        Type::Object => "object",
        Type::Array => "array",
        Type::String => "string",
        Type::Integer => "integer",
        Type::Number => "number",
        Type::Boolean => "boolean",
    }
}
