//! Compiles an expression and checks what can be known before it runs.
//!
//! The interpreter has no type checker. Fields of `self` are looked up in the schema here, as far as
//! the path to them is plain; names must be known; the type of the result is checked where it shows.

use kube_cel::cel::common::ast::{ComprehensionExpr, EntryExpr, Expr, IdedExpr, LiteralValue, SelectExpr};
use kube_cel::cel::parser::{Expression, Parser};

use super::macros;
use super::value::{TYPES, escape};
use crate::model::{Additional, Schema, Type};

/// Deeper trees than this would need too much stack.
const MOST_DEPTH: usize = 150;
const MOST_BYTES: usize = 64 << 10;
/// Operators, dots and brackets; each may be a level of the parser's recursion.
const MOST_SYMBOLS: usize = 1500;
/// What a worker thread's stack is sure to hold.
const SHALLOW: usize = 12;

/// What an expression must yield.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wants {
    Bool,
    String,
}

/// How much work an expression can be.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Weight {
    /// Parts of the expression.
    nodes: u64,
    /// How deeply loops are nested.
    loops: u32,
    depth: usize,
    /// It can make lists out of texts.
    splits: bool,
}

impl Weight {
    pub(super) fn is_deep(self) -> bool {
        self.depth > SHALLOW
    }

    /// Both are evaluated.
    pub(super) fn add(&mut self, other: Self) {
        self.nodes += other.nodes;
        self.loops = self.loops.max(other.loops);
        self.depth = self.depth.max(other.depth);
        self.splits |= other.splits;
    }

    /// An upper bound on the steps, when no list and no text is longer than these.
    pub(super) fn cost(self, longest_list: usize, longest_text: usize) -> u64 {
        let longest = if self.splits { longest_list.max(longest_text) } else { longest_list };
        let longest = u64::try_from(longest.max(1)).unwrap_or(u64::MAX);
        longest.checked_pow(self.loops).and_then(|rounds| rounds.checked_mul(self.nodes)).unwrap_or(u64::MAX)
    }
}

/// The program and its weight, or why upstream would refuse it.
pub(super) fn compile(
    source: &str,
    schema: &Schema,
    wants: Wants,
    optional_old_self: bool,
    is_resource: bool,
) -> Result<(Expression, Weight), String> {
    if source.len() > MOST_BYTES {
        return Err(format!("compilation failed: expression is longer than {MOST_BYTES} bytes"));
    }
    if let Some(most) = most_symbols_exceeded(source) {
        return Err(format!("compilation failed: expression has more than {most} operators"));
    }
    let parsed = Parser::new().enable_optional_syntax(true).parse(source);
    let mut program = parsed.map_err(|err| format!("compilation failed: {err}"))?;
    if !macros::expand(&mut program) {
        return Err("compilation failed: expression grows too large".to_owned());
    }
    let mut walk =
        Walk { source, schema, optional_old_self, is_resource, names: Vec::new(), weight: Weight::default() };
    walk.expression(&program, 0, 0)?;
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
        _ => Ok((program, walk.weight)),
    }
}

/// How many operators an expression may have, if it has more.
pub(crate) fn most_symbols_exceeded(source: &str) -> Option<usize> {
    (symbols(source) > MOST_SYMBOLS).then_some(MOST_SYMBOLS)
}

/// Counts symbols outside of strings.
fn symbols(source: &str) -> usize {
    let mut count = 0;
    let mut quote = None;
    let mut chars = source.chars();
    while let Some(c) = chars.next() {
        match (quote, c) {
            (Some(_), '\\') => {
                chars.next();
            }
            (Some(open), c) if c == open => quote = None,
            (Some(_), _) => {}
            (None, '"' | '\'') => quote = Some(c),
            (None, c) => count += usize::from(".+-*/%<>=!&|?:,([{".contains(c)),
        }
    }
    count
}

struct Walk<'a> {
    source: &'a str,
    schema: &'a Schema,
    optional_old_self: bool,
    is_resource: bool,
    /// Loop variables in scope.
    names: Vec<String>,
    weight: Weight,
}

impl<'a> Walk<'a> {
    fn expression(&mut self, expression: &IdedExpr, depth: usize, loops: u32) -> Result<(), String> {
        if depth > MOST_DEPTH {
            return Err(format!("compilation failed: expression is nested more than {MOST_DEPTH} deep"));
        }
        self.weight.nodes += 1;
        self.weight.loops = self.weight.loops.max(loops);
        self.weight.depth = self.weight.depth.max(depth);
        match &expression.expr {
            Expr::Literal(_) => Ok(()),
            Expr::Ident(name) => self.identifier(name),
            Expr::Select(select) => self.select(select, depth, loops),
            Expr::Call(call) => {
                // Kubernetes has no such function, and the interpreter would fill any amount of memory with it.
                if call.func_name.ends_with("range") {
                    let what = format!("undeclared reference to '{}' (in container '')", call.func_name);
                    return Err(self.refusal(&what, &call.func_name));
                }
                // What makes many values of one is a loop of its own.
                self.weight.splits |= matches!(call.func_name.as_str(), "split" | "findAll");
                if let Some(target) = call.target.as_ref().filter(|target| !is_namespace(target)) {
                    self.expression(target, depth + 1, loops)?;
                }
                call.args.iter().try_for_each(|argument| self.expression(argument, depth + 1, loops))
            }
            Expr::List(list) => list.elements.iter().try_for_each(|item| self.expression(item, depth + 1, loops)),
            Expr::Map(map) => map.entries.iter().try_for_each(|entry| match &entry.expr {
                EntryExpr::MapEntry(entry) => {
                    self.expression(&entry.key, depth + 1, loops)?;
                    self.expression(&entry.value, depth + 1, loops)
                }
                EntryExpr::StructField(_) => Err(self.refusal("unexpected field in map", "")),
            }),
            Expr::Comprehension(comprehension) => self.comprehension(comprehension, depth, loops),
            Expr::Struct(structure) => {
                let what = format!("undeclared reference to '{}' (in container '')", structure.type_name);
                Err(self.refusal(&what, &structure.type_name))
            }
            Expr::Unspecified => Err(self.refusal("empty expression", "")),
        }
    }

    fn comprehension(&mut self, loop_: &ComprehensionExpr, depth: usize, loops: u32) -> Result<(), String> {
        self.expression(&loop_.iter_range, depth + 1, loops)?;
        let known = self.names.len();
        self.names.extend([loop_.iter_var.clone(), loop_.accu_var.clone()]);
        self.names.extend(loop_.iter_var2.clone());
        for part in [&loop_.accu_init, &loop_.loop_cond, &loop_.loop_step, &loop_.result] {
            self.expression(part, depth + 1, loops + 1)?;
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

    fn select(&mut self, select: &SelectExpr, depth: usize, loops: u32) -> Result<(), String> {
        self.expression(&select.operand, depth + 1, loops)?;
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
    const LIBRARIES: [&str; 9] =
        ["math", "sets", "optional", "base64", "cel", "format", "jsonpatch", "strings", "lists"];
    matches!(&target.expr, Expr::Ident(name) if LIBRARIES.contains(&name.as_str()))
}
