//! Compiles an expression and checks what can be known before it runs.
//!
//! The interpreter has no type checker. Fields of `self` are looked up in the schema here, as far as
//! the path to them is plain; names must be known; the type of the result is checked where it shows.

use kube_cel::cel::common::ast::{ComprehensionExpr, EntryExpr, Expr, IdedExpr, LiteralValue, SelectExpr};

use super::macros;
use super::value::{TYPES, escape};
use crate::expression::{Expression, is_library, parse};
use crate::model::{Additional, Schema, Type};

/// Deeper trees than this would need too much stack.
const MOST_DEPTH: usize = 150;

/// What an expression must yield.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wants {
    Bool,
    String,
}

/// An expression that is fit to be evaluated.
pub(super) struct Checked {
    pub(super) program: Expression,
    pub(super) uses_old_self: bool,
}

/// The program, or why upstream would refuse it.
pub(super) fn compile(
    source: &str,
    schema: &Schema,
    wants: Wants,
    optional_old_self: bool,
    is_resource: bool,
) -> Result<Checked, String> {
    let parsed = parse(source)?;
    // What is checked says which names are bound where, and which fields an optional access means.
    let mut program = parsed.clone();
    if !macros::expand(&mut program) {
        return Err("compilation failed: expression grows too large".to_owned());
    }
    let mut walk = Walk { source, schema, optional_old_self, is_resource, names: Vec::new() };
    walk.expression(&program, 0)?;
    let literal = match &program.expr {
        Expr::Literal(LiteralValue::Boolean(_)) => Some(Type::Boolean),
        Expr::Literal(LiteralValue::String(_)) => Some(Type::String),
        Expr::Literal(_) => Some(Type::Integer),
        Expr::List(_) | Expr::Map(_) => Some(Type::Object),
        Expr::Select(select) if select.test => Some(Type::Boolean),
        _ => walk.resolve(&program).map(|schema| schema.ty).filter(|ty| *ty != Type::Any),
    };
    match (wants, literal) {
        (Wants::Bool, Some(ty)) if ty != Type::Boolean => Err("cel expression must evaluate to a bool".to_owned()),
        (Wants::String, Some(ty)) if ty != Type::String => {
            Err("messageExpression must evaluate to a string".to_owned())
        }
        _ => {
            let uses_old_self = program.references().has_variable("oldSelf");
            Ok(Checked { program: Expression::checked(source, parsed), uses_old_self })
        }
    }
}

struct Walk<'a> {
    source: &'a str,
    schema: &'a Schema,
    optional_old_self: bool,
    is_resource: bool,
    /// Loop variables in scope.
    names: Vec<String>,
}

impl<'a> Walk<'a> {
    fn expression(&mut self, expression: &IdedExpr, depth: usize) -> Result<(), String> {
        if depth > MOST_DEPTH {
            return Err(format!("compilation failed: expression is nested more than {MOST_DEPTH} deep"));
        }
        match &expression.expr {
            Expr::Literal(_) => Ok(()),
            Expr::Ident(name) => self.identifier(name),
            Expr::Select(select) => self.select(select, depth),
            Expr::Call(call) => {
                // Kubernetes has no such function, and the interpreter would fill any amount of memory with it.
                if call.func_name.ends_with("range") {
                    let what = format!("undeclared reference to '{}' (in container '')", call.func_name);
                    return Err(self.refusal(&what, &call.func_name));
                }
                if let Some(target) = call.target.as_ref().filter(|target| !is_namespace(target)) {
                    self.expression(target, depth + 1)?;
                }
                call.args.iter().try_for_each(|argument| self.expression(argument, depth + 1))
            }
            Expr::List(list) => list.elements.iter().try_for_each(|item| self.expression(item, depth + 1)),
            Expr::Map(map) => map.entries.iter().try_for_each(|entry| match &entry.expr {
                EntryExpr::MapEntry(entry) => {
                    self.expression(&entry.key, depth + 1)?;
                    self.expression(&entry.value, depth + 1)
                }
                EntryExpr::StructField(_) => Err(self.refusal("unexpected field in map", "")),
            }),
            Expr::Comprehension(comprehension) => self.comprehension(comprehension, depth),
            Expr::Struct(structure) => {
                let what = format!("undeclared reference to '{}' (in container '')", structure.type_name);
                Err(self.refusal(&what, &structure.type_name))
            }
            Expr::Unspecified => Err(self.refusal("empty expression", "")),
        }
    }

    fn comprehension(&mut self, loop_: &ComprehensionExpr, depth: usize) -> Result<(), String> {
        self.expression(&loop_.iter_range, depth + 1)?;
        let known = self.names.len();
        self.names.extend([loop_.iter_var.clone(), loop_.accu_var.clone()]);
        self.names.extend(loop_.iter_var2.clone());
        for part in [&loop_.accu_init, &loop_.loop_cond, &loop_.loop_step, &loop_.result] {
            self.expression(part, depth + 1)?;
        }
        self.names.truncate(known);
        Ok(())
    }

    fn identifier(&self, name: &str) -> Result<(), String> {
        let known = name == "self"
            || name == "oldSelf"
            || name.starts_with('@')
            || name.starts_with("__")
            || TYPES.contains(&name)
            || self.names.iter().any(|known| known == name);
        if known {
            Ok(())
        } else {
            Err(self.refusal(&format!("undeclared reference to '{name}' (in container '')"), name))
        }
    }

    fn select(&mut self, select: &SelectExpr, depth: usize) -> Result<(), String> {
        self.expression(&select.operand, depth + 1)?;
        let Some(operand) = self.resolve(&select.operand) else { return Ok(()) };
        // Resources have these whether their schema says so or not.
        let is_resource = operand.embedded_resource || (self.is_resource && std::ptr::eq(operand, self.schema));
        let is_meta = is_resource && matches!(select.field.as_str(), "apiVersion" | "kind" | "metadata");
        if is_meta || operand.ty != Type::Object || field(operand, &select.field).is_some() {
            return Ok(());
        }
        Err(self.refusal(&format!("undefined field '{}'", select.field), &format!(".{}", select.field)))
    }

    /// The schema of what an expression yields, when it is a plain path from `self` or `oldSelf`.
    fn resolve(&self, expression: &IdedExpr) -> Option<&'a Schema> {
        match &expression.expr {
            Expr::Ident(name) if self.names.contains(name) => None,
            Expr::Ident(name) if name == "self" || (name == "oldSelf" && !self.optional_old_self) => Some(self.schema),
            Expr::Select(select) if !select.test => field(self.resolve(&select.operand)?, &select.field),
            _ => None,
        }
    }

    /// cel-go's form of a compile error, with the place that `text` stands at.
    fn refusal(&self, what: &str, text: &str) -> String {
        let at = self.source.find(text).unwrap_or(0);
        let before = &self.source[..at];
        let line = before.matches('\n').count();
        let column = before.rsplit('\n').next().map_or(0, |last| last.chars().count());
        let shown = self.source.lines().nth(line).unwrap_or_default();
        let dots = ".".repeat(column);
        format!("compilation failed: ERROR: <input>:{}:{}: {what}\n | {shown}\n | {dots}^", line + 1, column + 1)
    }
}

/// The schema of a field, by its name in CEL.
fn field<'a>(schema: &'a Schema, name: &str) -> Option<&'a Schema> {
    let property = schema.properties.iter().find(|(property, _)| escape(property).as_deref() == Some(name));
    match (property, &schema.additional) {
        (Some((_, property)), _) => Some(property),
        (None, Additional::Schema(values)) => Some(values),
        (None, Additional::None) => None,
    }
}

/// `math.greatest(…)`, `sets.contains(…)`: the target names a library.
fn is_namespace(target: &IdedExpr) -> bool {
    matches!(&target.expr, Expr::Ident(name) if is_library(name))
}
