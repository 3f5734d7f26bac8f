//! CEL expressions of admission policies and match conditions of webhooks: compiled once, evaluated on every request that
//! matches. Those that say who the owner of a token is are the same, with other names. Rules of schemas are compiled by
//! `crate::cel`, and evaluated here.
//!
//! The parser and Kubernetes' functions come from kube-cel. The walk is our own, since its work has to be counted while it
//! is done, and to stop at Kubernetes' limits. Values are looked at where they are and not copied, variables are evaluated
//! when they are first used, and an authorizer answers as it is asked.
//!
//! Start reading at [`Expression::compile`] and [`Evaluation`].

mod authorizer;
mod calls;
mod check;
mod evaluate;
mod library;
mod loops;
mod operators;
mod patterns;
mod selects;
#[cfg(test)]
mod tests;
mod types;
mod value;
mod weight;

use std::cell::{Cell, RefCell};

use kube_cel::cel::parser::{Expression as Program, Parser};
use serde_json::Value;

pub use authorizer::{Asked, Authorize, Verdict};
pub use evaluate::Evaluation;
pub(crate) use types::is_library;
pub(crate) use value::{Key, Text, Val};

use crate::cel::with_room;

const MOST_BYTES: usize = 64 << 10;
/// Operators, dots and brackets; each may be a level of the parser's recursion.
const MOST_SYMBOLS: usize = 1500;
const MOST_ERRORS: usize = 5;
/// So many characters of a value are quoted in an error, which may be kept and copied.
const MOST_QUOTED: usize = 256;
/// What one expression may spend, in upstream's units: about one per step.
const CALL_LIMIT: u64 = 1_000_000;
/// What all expressions of one request may spend.
const BUDGET: u64 = 10_000_000;
/// What the match conditions of one webhook may spend on one request.
const CONDITIONS_BUDGET: u64 = 2_500_000;

/// What an expression is about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scope {
    /// A request: `object`, `oldObject`, `request`, `namespaceObject`.
    #[default]
    Request,
    /// The `claims` of a token.
    Claims,
    /// The `user` that a token stands for.
    User,
}

/// Which names an expression may use.
#[derive(Clone, Copy, Debug, Default)]
pub struct Names<'a> {
    pub scope: Scope,
    pub has_params: bool,
    pub has_authorizer: bool,
    /// The `variables` that come before it; `None` where there are none to use.
    pub variables: Option<&'a [&'a str]>,
    /// `Object{…}` and `JSONPatch{…}` can be made.
    pub has_patches: bool,
}

impl Names<'_> {
    /// Those that match conditions of webhooks may use.
    pub const WEBHOOK_CONDITION: Self =
        Self { scope: Scope::Request, has_params: false, has_authorizer: true, variables: None, has_patches: false };
}

/// What an expression must yield.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wants {
    Bool,
    String,
    StringOrNull,
    Anything,
    /// `Object{…}`.
    Object,
    /// A list of `JSONPatch{…}`.
    JsonPatch,
}

/// A compiled expression.
#[derive(Debug)]
pub struct Expression {
    source: String,
    program: Program,
}

impl Expression {
    /// The error is worded as Kubernetes words it.
    pub fn compile(source: &str, names: &Names<'_>, wants: Wants) -> Result<Self, String> {
        let compile = || {
            let program = parse(source)?;
            check::check(source, &program, names, wants)?;
            Ok(Self { source: source.to_owned(), program })
        };
        with_room(compile).unwrap_or_else(|err| Err(format!("compilation failed: {err}")))
    }

    /// A rule of a schema, which has been checked against that schema.
    pub(crate) fn checked(source: &str, program: Program) -> Self {
        Self { source: source.to_owned(), program }
    }

    pub fn source(&self) -> &str {
        &self.source
    }

    /// Whether it looks at `operand.field`, as far as can be read from it.
    pub fn selects(&self, operand: &str, field: &str) -> bool {
        selects::selects(&self.program, operand, field)
    }
}

/// The tree of an expression, or what is wrong with its text.
pub(crate) fn parse(source: &str) -> Result<Program, String> {
    if source.len() > MOST_BYTES {
        return Err(format!("compilation failed: expression is longer than {MOST_BYTES} bytes"));
    }
    if symbols(source) > MOST_SYMBOLS {
        return Err(format!("compilation failed: expression has more than {MOST_SYMBOLS} operators"));
    }
    Parser::new().enable_optional_syntax(true).parse(source).map_err(|err| {
        // What follows the first mistakes follows from them, and each is told with the whole text.
        let first: Vec<String> = err.errors.iter().take(MOST_ERRORS).map(ToString::to_string).collect();
        format!("compilation failed: {}", first.join("\n"))
    })
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

/// What expressions of a request may still spend together, and what it was spent on that serves the next one too.
#[derive(Debug)]
pub struct Budget {
    left: Cell<u64>,
    patterns: RefCell<patterns::Patterns>,
}

impl Default for Budget {
    fn default() -> Self {
        Self::new(BUDGET)
    }
}

impl Budget {
    fn new(left: u64) -> Self {
        Self { left: Cell::new(left), patterns: RefCell::default() }
    }

    /// For the match conditions of one webhook.
    pub fn of_conditions() -> Self {
        Self::new(CONDITIONS_BUDGET)
    }
}

/// What expressions see. What is not there is null to them.
#[derive(Clone, Copy, Debug)]
pub struct Inputs<'a> {
    pub claims: &'a Value,
    pub user: &'a Value,
    pub object: &'a Value,
    pub old_object: &'a Value,
    pub request: &'a Value,
    pub params: &'a Value,
    pub namespace: &'a Value,
    pub authorizer: Option<&'a dyn Authorize>,
}

impl Default for Inputs<'_> {
    fn default() -> Self {
        const NOTHING: &Value = &Value::Null;
        Self {
            claims: NOTHING,
            user: NOTHING,
            object: NOTHING,
            old_object: NOTHING,
            request: NOTHING,
            params: NOTHING,
            namespace: NOTHING,
            authorizer: None,
        }
    }
}

/// Why an expression has no value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    #[error("{0}")]
    Failed(String),
    #[error("operation cancelled: actual cost limit exceeded")]
    CallTooExpensive,
    #[error("validation failed due to running out of cost budget, no further validation rules will be run")]
    OutOfBudget,
}

impl Fault {
    fn failed(text: impl Into<String>) -> Self {
        Self::Failed(text.into())
    }

    fn no_overload() -> Self {
        Self::failed("no such overload")
    }

    fn no_such_key(key: impl std::fmt::Display) -> Self {
        Self::Failed(format!("no such key: {key:.MOST_QUOTED$}"))
    }

    /// Errors of an operand can be outweighed by the other one (`true || error`); that the work is too much cannot.
    pub(crate) fn is_final(&self) -> bool {
        !matches!(self, Self::Failed(_))
    }

    /// The failure of `expression`, as it is told to whoever made the request.
    pub fn of(&self, expression: &Expression) -> String {
        let source = expression.source();
        match self {
            Self::Failed(why) => format!("expression '{source}' resulted in error: {why}"),
            Self::CallTooExpensive => {
                format!(
                    "no further validation rules will be run due to call cost exceeds limit for expression: {source}"
                )
            }
            Self::OutOfBudget => self.to_string(),
        }
    }
}
