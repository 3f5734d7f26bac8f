//! Runs compiled rules over an object, and words what they find.

use croft_meta::field::go_quote;
use croft_meta::{FieldError, FieldErrors, FieldPath};
use serde_json::Value;

use super::value::convert;
use super::{Node, Rule};
use crate::expression::{Budget, Evaluation, Expression, Fault, Val};
use crate::model::Type;
use crate::validate::correlate;

const MESSAGE_MAX_BYTES: usize = 5 << 10;

pub(super) fn run(root: &Node, path: &FieldPath, new: &Value, old: Option<&Value>) -> FieldErrors {
    let mut run = Run { budget: Budget::default(), stopped: false, errors: Vec::new() };
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
    budget: Budget,
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
        let this = convert(new, Some(&node.schema));
        let before = old.map(|old| convert(old, Some(&node.schema)));
        let type_name = type_name(node.schema.ty);
        for rule in &node.rules {
            let old = match (&before, rule.optional_old_self) {
                (None, false) if rule.uses_old_self => continue,
                (before, true) => Some(before.clone().map_or(Val::Optional(None), Val::some)),
                (before, false) => before.clone(),
            };
            let evaluation = Evaluation::of_rule(this.clone(), old, &self.budget);
            let error = match evaluation.value(&rule.program) {
                Ok(Val::Bool(true)) => continue,
                Ok(_) if !rule.uses_old_self && ratchet.is_unchanged() => continue,
                Ok(_) => match message(rule, &evaluation) {
                    Ok(message) => rule.failure(&extend(path, &rule.field_path), type_name, message),
                    Err(fault) => {
                        self.stopped = true;
                        FieldError::invalid(path, type_name, too_much_for_a_message(&fault, rule))
                    }
                },
                Err(fault) => {
                    self.stopped = fault.is_final();
                    FieldError::invalid(path, type_name, evaluation_text(&fault, rule.name()))
                }
            };
            self.errors.push(error);
            if self.stopped {
                return;
            }
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

/// The rule's own message expression if it works, its message, or what it says. That it takes too much is an error.
fn message<'a>(rule: &'a Rule, evaluation: &Evaluation<'a>) -> Result<String, Fault> {
    match rule.message_program.as_ref().map(|program| evaluation.text(program)) {
        Some(Ok(Some(text))) => {
            let text = text.trim();
            if !text.is_empty() && text.len() <= MESSAGE_MAX_BYTES && !text.contains('\n') {
                return Ok(text.to_owned());
            }
        }
        Some(Err(fault)) if fault.is_final() => return Err(fault),
        _ => {}
    }
    Ok(if rule.message.is_empty() { format!("failed rule: {}", rule.text) } else { rule.message.clone() })
}

fn too_much_for_a_message(fault: &Fault, rule: &Rule) -> String {
    let source = rule.message_program.as_ref().map_or("", Expression::source);
    match fault {
        Fault::CallTooExpensive => format!(
            "no further validation rules will be run due to call cost exceeds limit for messageExpression: {}",
            go_quote(source)
        ),
        _ => "messageExpression evaluation failed due to running out of cost budget, no further validation rules will be run"
            .to_owned(),
    }
}

/// Why a rule has no value, as upstream tells it of rules.
fn evaluation_text(fault: &Fault, rule: &str) -> String {
    match fault {
        Fault::OutOfBudget => fault.to_string(),
        Fault::CallTooExpensive => {
            format!(
                "'{fault}': no further validation rules will be run due to call cost exceeds limit for rule: {rule}"
            )
        }
        Fault::Failed(why) if why.starts_with("no such overload") => format!(
            "'{why}': call arguments did not match a supported operator, function or macro signature for rule: {rule}"
        ),
        Fault::Failed(why) => format!("{why} evaluating rule: {rule}"),
    }
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
