//! The walk over an expression.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::sync::Arc;

use croft_meta::json;
use kube_cel::cel::common::ast::{EntryExpr, Expr, IdedExpr, ListExpr, LiteralValue, MapExpr, SelectExpr, StructExpr};
use serde_json::Value;

use super::authorizer::Question;
use super::value::{Key, Text, Val};
use super::weight::MOST_NESTING;
use super::{Budget, CALL_LIMIT, Expression, Fault, Inputs, MOST_QUOTED};
use crate::cel::TYPES;

/// Deeper than this the stack of a worker thread might end; variables that use variables count together.
const MOST_DEPTH: usize = 250;

pub(crate) type Evaluated<'a> = Result<Val<'a>, Fault>;

/// Evaluates the expressions of one policy about one request.
#[derive(Debug)]
pub struct Evaluation<'a> {
    pub(super) inputs: Inputs<'a>,
    variables: &'a [(String, Expression)],
    /// What variables turned out to be.
    known: RefCell<Vec<Option<Evaluated<'a>>>>,
    /// Names of loops and bindings, the innermost last. A loop's result so far may be an error that is outweighed later.
    pub(super) locals: RefCell<Vec<(&'a str, Evaluated<'a>)>>,
    /// Where the locals of the variable begin that is being evaluated.
    first_local: Cell<usize>,
    depth: Cell<usize>,
    /// What the current expression has spent.
    spent: Cell<u64>,
    pub(super) budget: &'a Budget,
    /// What a rule of a schema is about.
    given: Vec<(&'static str, Val<'a>)>,
}

impl<'a> Evaluation<'a> {
    pub fn new(inputs: Inputs<'a>, variables: &'a [(String, Expression)], budget: &'a Budget) -> Self {
        Self {
            inputs,
            variables,
            known: RefCell::new(vec![None; variables.len()]),
            locals: RefCell::default(),
            first_local: Cell::new(0),
            depth: Cell::new(0),
            spent: Cell::new(0),
            budget,
            given: Vec::new(),
        }
    }

    /// For rules of a schema: they see a value, and what it was before.
    pub(crate) fn of_rule(this: Val<'a>, old: Option<Val<'a>>, budget: &'a Budget) -> Self {
        let given = std::iter::once(("self", this)).chain(old.map(|old| ("oldSelf", old)));
        Self { given: given.collect(), ..Self::new(Inputs::default(), &[], budget) }
    }

    /// Is it true? Anything but a truth value is none.
    pub fn truth(&self, expression: &'a Expression) -> Result<bool, Fault> {
        Ok(self.value(expression)?.truth().unwrap_or(false))
    }

    /// Does a condition hold? Which type it yields does not always show before.
    pub fn holds(&self, condition: &'a Expression) -> Result<bool, Fault> {
        self.value(condition)?.truth().ok_or_else(|| Fault::failed("must evaluate to bool"))
    }

    /// Its text; `None` if it is something else.
    pub fn text(&self, expression: &'a Expression) -> Result<Option<String>, Fault> {
        Ok(match self.value(expression)? {
            Val::Text(text) => Some(text.to_string()),
            _ => None,
        })
    }

    pub fn json(&self, expression: &'a Expression) -> Result<Value, Fault> {
        self.written(&self.value(expression)?)
    }

    /// As JSON. It may be much larger than what it was made of.
    fn written(&self, value: &Val<'a>) -> Result<Value, Fault> {
        self.spend(value.size())?;
        let json = value.to_json()?;
        // What is stored has to be read again.
        if json::is_deeper_than(&json, json::MAX_DEPTH) { Err(Fault::failed(json::TOO_DEEP)) } else { Ok(json) }
    }

    /// The configuration that an `Object{…}` stands for.
    pub fn object(&self, expression: &'a Expression) -> Result<Value, Fault> {
        match self.value(expression)? {
            made @ Val::Struct(_) if matches!(&made, Val::Struct(made) if made.name == "Object") => {
                self.written(&made).map_err(|fault| match fault {
                    Fault::Failed(why) => Fault::Failed(format!("type mismatch: {why}")),
                    other => other,
                })
            }
            other => {
                let what = "unsupported return type from ApplyConfiguration expression";
                Err(Fault::Failed(format!("{what}: {}", other.type_name())))
            }
        }
    }

    pub(crate) fn value(&self, expression: &'a Expression) -> Evaluated<'a> {
        self.spent.set(0);
        self.locals.borrow_mut().clear();
        self.first_local.set(0);
        self.depth.set(0);
        self.evaluate(&expression.program)
    }

    /// Counts work before it is done.
    pub(super) fn spend(&self, steps: u64) -> Result<(), Fault> {
        let spent = self.spent.get().saturating_add(steps);
        if spent > CALL_LIMIT {
            return Err(Fault::CallTooExpensive);
        }
        self.spent.set(spent);
        let left = self.budget.left.get().checked_sub(steps).ok_or(Fault::OutOfBudget)?;
        self.budget.left.set(left);
        Ok(())
    }

    pub(super) fn evaluate(&self, expression: &'a IdedExpr) -> Evaluated<'a> {
        self.spend(1)?;
        let depth = self.depth.get() + 1;
        if depth > MOST_DEPTH {
            return Err(Fault::failed("expression is nested too deeply"));
        }
        self.depth.set(depth);
        let result = match &expression.expr {
            Expr::Literal(literal) => Ok(constant(literal)),
            Expr::Ident(name) => self.name(name),
            Expr::Select(select) => self.selection(select),
            Expr::Call(call) => self.call(call),
            Expr::List(list) => self.list(list),
            Expr::Map(map) => self.map(map),
            Expr::Struct(made) => self.structure(made),
            Expr::Comprehension(walk) => self.comprehension(walk),
            Expr::Unspecified => Err(Fault::failed("empty expression")),
        };
        self.depth.set(depth - 1);
        match result {
            Ok(value) if value.depth() > MOST_NESTING => Err(Fault::failed("value is nested too deeply")),
            result => result,
        }
    }

    fn name(&self, name: &'a str) -> Evaluated<'a> {
        let locals = self.locals.borrow();
        let visible = locals.get(self.first_local.get()..).unwrap_or_default();
        if let Some((_, value)) = visible.iter().rev().find(|(local, _)| *local == name) {
            return value.clone();
        }
        if let Some((_, value)) = self.given.iter().find(|(given, _)| *given == name) {
            return Ok(value.clone());
        }
        Ok(match name {
            "claims" => Val::of(self.inputs.claims),
            "user" => Val::of(self.inputs.user),
            "object" => Val::of(self.inputs.object),
            "oldObject" => Val::of(self.inputs.old_object),
            "request" => Val::of(self.inputs.request),
            "params" => Val::of(self.inputs.params),
            "namespaceObject" => Val::of(self.inputs.namespace),
            "variables" => Val::Variables,
            "authorizer" if self.inputs.authorizer.is_some() => {
                Val::Authorizer(Arc::new(Question::Nothing(super::Asked::default())))
            }
            other => match TYPES.iter().find(|known| **known == other) {
                Some(known) => Val::Type(known),
                None => return Err(Fault::Failed(format!("no such attribute(s): {other}"))),
            },
        })
    }

    /// Is there something of this name other than a library?
    pub(super) fn is_local(&self, name: &str) -> bool {
        let locals = self.locals.borrow();
        locals.iter().skip(self.first_local.get()).any(|(local, _)| *local == name)
    }

    #[inline(never)]
    fn selection(&self, select: &'a SelectExpr) -> Evaluated<'a> {
        let operand = self.evaluate(&select.operand)?;
        if select.test { self.has(&operand, &select.field).map(Val::Bool) } else { self.field(&operand, &select.field) }
    }

    pub(super) fn field(&self, operand: &Val<'a>, field: &'a str) -> Evaluated<'a> {
        let found = match operand {
            Val::Map(map) => map.field(field),
            Val::Struct(made) => made.fields.get(field).cloned(),
            Val::Variables => return self.variable(field),
            Val::Optional(None) => Some(Val::Optional(None)),
            Val::Optional(Some(value)) => {
                let found = self.has(value, field)?.then(|| self.field(value, field)).transpose()?;
                Some(Val::Optional(found.map(Arc::new)))
            }
            Val::Authorizer(question) => match (&**question, self.inputs.authorizer) {
                (Question::Nothing(_), Some(authorizer)) if field == "requestResource" => {
                    Some(Val::Authorizer(Arc::new(Question::Resource(authorizer.request_resource()))))
                }
                _ => None,
            },
            _ => None,
        };
        found.ok_or_else(|| Fault::no_such_key(field))
    }

    pub(super) fn has(&self, operand: &Val<'a>, field: &'a str) -> Result<bool, Fault> {
        Ok(match operand {
            Val::Map(map) => map.field(field).is_some(),
            Val::Struct(made) => made.fields.contains_key(field),
            Val::Variables => self.variables.iter().any(|(name, _)| name == field),
            Val::Optional(Some(value)) => self.has(value, field)?,
            _ => false,
        })
    }

    /// A variable, evaluated when it is first asked for.
    #[inline(never)]
    fn variable(&self, name: &str) -> Evaluated<'a> {
        let Some(at) = self.variables.iter().position(|(known, _)| known == name) else {
            return Err(Fault::no_such_key(name));
        };
        if let Some(Some(known)) = self.known.borrow().get(at) {
            return known.clone();
        }
        let (_, expression) = &self.variables[at];
        let outer = self.first_local.replace(self.locals.borrow().len());
        let result = self.evaluate(&expression.program);
        self.first_local.set(outer);
        // How much one expression may spend says nothing about what the variable is worth to the next.
        if result.as_ref().err().is_none_or(|fault| !fault.is_final()) {
            self.known.borrow_mut()[at] = Some(result.clone());
        }
        result
    }

    #[inline(never)]
    fn list(&self, list: &'a ListExpr) -> Evaluated<'a> {
        let mut items = Vec::with_capacity(list.elements.len());
        for (index, element) in list.elements.iter().enumerate() {
            match self.evaluate(element)? {
                Val::Optional(value) if list.optional_indices.contains(&index) => {
                    items.extend(value.map(Arc::unwrap_or_clone));
                }
                value => items.push(value),
            }
        }
        Ok(Val::list(items))
    }

    #[inline(never)]
    fn map(&self, map: &'a MapExpr) -> Evaluated<'a> {
        let mut entries = BTreeMap::new();
        for entry in &map.entries {
            let EntryExpr::MapEntry(entry) = &entry.expr else { return Err(Fault::no_overload()) };
            let key = self.key(&self.evaluate(&entry.key)?)?;
            let value = match self.evaluate(&entry.value)? {
                Val::Optional(value) if entry.optional => value.map(Arc::unwrap_or_clone),
                value => Some(value),
            };
            let Some(value) = value else { continue };
            if entries.contains_key(&key) {
                return Err(Fault::Failed(format!("Failed with repeated key: {key:.MOST_QUOTED$}")));
            }
            entries.insert(key, value);
        }
        Ok(Val::map(entries))
    }

    /// A copy of a value, as a key.
    pub(super) fn key(&self, value: &Val<'a>) -> Result<Key, Fault> {
        if let Val::Text(_) = value {
            self.spend(value.size() - 1)?;
        }
        Key::of(value).ok_or_else(|| Fault::failed("unsupported key type"))
    }

    #[inline(never)]
    fn structure(&self, made: &'a StructExpr) -> Evaluated<'a> {
        let mut fields = BTreeMap::new();
        for entry in &made.entries {
            let EntryExpr::StructField(field) = &entry.expr else { return Err(Fault::no_overload()) };
            match self.evaluate(&field.value)? {
                Val::Optional(value) if field.optional => {
                    fields.extend(value.map(|value| (field.field.as_str(), Arc::unwrap_or_clone(value))));
                }
                value => drop(fields.insert(field.field.as_str(), value)),
            }
        }
        Ok(Val::structure(&made.type_name, fields))
    }

    /// Evaluates `body` with a name for a value.
    pub(super) fn with(&self, name: &'a str, value: Val<'a>, body: &'a IdedExpr) -> Evaluated<'a> {
        self.locals.borrow_mut().push((name, Ok(value)));
        let result = self.evaluate(body);
        self.locals.borrow_mut().pop();
        result
    }
}

fn constant(literal: &LiteralValue) -> Val<'_> {
    match literal {
        LiteralValue::Boolean(truth) => Val::Bool(*truth.inner()),
        LiteralValue::Bytes(bytes) => Val::Bytes(Arc::new(bytes.inner().to_vec())),
        LiteralValue::Double(number) => Val::Double(*number.inner()),
        LiteralValue::Int(number) => Val::Int(*number.inner()),
        LiteralValue::Null => Val::Null,
        LiteralValue::String(text) => Val::Text(Text::Borrowed(text.inner())),
        LiteralValue::UInt(number) => Val::Uint(*number.inner()),
    }
}
