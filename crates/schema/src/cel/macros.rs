//! Macros of cel-go that the parser does not know (`cel.bind`, `optMap`, `optFlatMap`), and optional access.
//!
//! A rule is checked as what it means, with its names bound and its fields looked up: `a.?b.?c` becomes
//! `has(a.b) && has(a.b.c) ? optional.of(a.b.c) : optional.none()`. It is evaluated as it was written.

use kube_cel::cel::common::ast::operators::{CONDITIONAL, IN, INDEX, LOGICAL_AND, OPT_INDEX, OPT_SELECT};
use kube_cel::cel::common::ast::{
    CallExpr, ComprehensionExpr, EntryExpr, Expr, IdedExpr, ListExpr, LiteralValue, SelectExpr,
};

/// Parts that expansion may copy; real rules copy a few dozen.
const MOST_COPIES: usize = 5000;

/// Expands in place; false if that would grow the expression without measure.
pub(super) fn expand(expression: &mut IdedExpr) -> bool {
    let mut expander = Expander { copies: 0 };
    expander.expand(expression);
    expander.copies <= MOST_COPIES
}

struct Expander {
    copies: usize,
}

impl Expander {
    fn expand(&mut self, expression: &mut IdedExpr) {
        for_each_part(expression, &mut |part| self.expand(part));
        if self.copies > MOST_COPIES {
            return;
        }
        let expanded = match &mut expression.expr {
            Expr::Call(call) if call.func_name == OPT_SELECT || call.func_name == OPT_INDEX => self.access(call),
            Expr::Call(call) => self.call(call),
            Expr::Select(select) if !select.test && is_access(&select.operand) => {
                let field = node(Expr::Literal(LiteralValue::String(select.field.as_str().into())));
                let args = vec![std::mem::take(&mut *select.operand), field];
                self.access(&mut CallExpr { func_name: OPT_SELECT.to_owned(), target: None, args })
            }
            _ => None,
        };
        if let Some(expanded) = expanded {
            *expression = expanded;
        }
    }

    fn copy(&mut self, expression: &IdedExpr) -> IdedExpr {
        let mut copy = expression.clone();
        self.copies += count(&mut copy);
        copy
    }

    /// `a.?b` and `a[?b]`, where `a` may be such an access itself.
    fn access(&mut self, call: &mut CallExpr) -> Option<IdedExpr> {
        let [operand, key] = call.args.as_mut_slice() else { return None };
        let (earlier, base) = split_access(std::mem::take(operand));
        let (test, value) = match (&key.expr, call.func_name == OPT_SELECT) {
            (Expr::Literal(LiteralValue::String(name)), true) => {
                let field = name.inner().to_owned();
                let operand = Box::new(self.copy(&base));
                let test = node(Expr::Select(SelectExpr { operand, field: field.clone(), test: true }));
                (test, node(Expr::Select(SelectExpr { operand: Box::new(base), field, test: false })))
            }
            (Expr::Literal(LiteralValue::Int(index)), false) => {
                let size = function("size", vec![self.copy(&base)]);
                let index = node(Expr::Literal(LiteralValue::Int((*index.inner()).into())));
                (function("_>_", vec![size, index.clone()]), function(INDEX, vec![base, index]))
            }
            _ => {
                let test = function(IN, vec![self.copy(key), self.copy(&base)]);
                (test, function(INDEX, vec![base, std::mem::take(key)]))
            }
        };
        let test = match earlier {
            Some(earlier) => function(LOGICAL_AND, vec![earlier, test]),
            None => test,
        };
        Some(choose(test, library("of", vec![value])))
    }

    fn call(&mut self, call: &mut CallExpr) -> Option<IdedExpr> {
        let target = call.target.as_deref()?;
        if call.func_name == "bind" && matches!(&target.expr, Expr::Ident(name) if name == "cel") {
            let [variable, value, body] = call.args.as_mut_slice() else { return None };
            let Expr::Ident(name) = &variable.expr else { return None };
            return Some(bind(name, std::mem::take(value), std::mem::take(body)));
        }
        if !matches!(call.func_name.as_str(), "optMap" | "optFlatMap") {
            return None;
        }
        let test = method(self.copy(target), "hasValue");
        let value = method(self.copy(target), "value");
        let [variable, body] = call.args.as_mut_slice() else { return None };
        let Expr::Ident(name) = &variable.expr else { return None };
        let mapped = bind(name, value, std::mem::take(body));
        let then = if call.func_name == "optMap" { library("of", vec![mapped]) } else { mapped };
        Some(choose(test, then))
    }
}

/// Calls `visit` for what an expression is directly made of.
fn for_each_part(expression: &mut IdedExpr, visit: &mut dyn FnMut(&mut IdedExpr)) {
    match &mut expression.expr {
        Expr::Call(call) => {
            if let Some(target) = &mut call.target {
                visit(target);
            }
            call.args.iter_mut().for_each(visit);
        }
        Expr::Select(select) => visit(&mut select.operand),
        Expr::List(list) => list.elements.iter_mut().for_each(visit),
        Expr::Map(map) => {
            for entry in &mut map.entries {
                if let EntryExpr::MapEntry(entry) = &mut entry.expr {
                    visit(&mut entry.key);
                    visit(&mut entry.value);
                }
            }
        }
        Expr::Comprehension(it) => {
            visit(&mut it.iter_range);
            visit(&mut it.accu_init);
            visit(&mut it.loop_cond);
            visit(&mut it.loop_step);
            visit(&mut it.result);
        }
        Expr::Struct(_) | Expr::Ident(_) | Expr::Literal(_) | Expr::Unspecified => {}
    }
}

fn count(expression: &mut IdedExpr) -> usize {
    let mut parts = 1;
    for_each_part(expression, &mut |part| parts += count(part));
    parts
}

/// An access that has been expanded: `test ? optional.of(value) : optional.none()`.
fn is_access(expression: &IdedExpr) -> bool {
    let Expr::Call(choice) = &expression.expr else { return false };
    let is_of = |then: &IdedExpr| matches!(&then.expr, Expr::Call(call) if is_library(call, "of"));
    choice.func_name == CONDITIONAL
        && choice.args.get(1).is_some_and(is_of)
        && choice.args.get(2).is_some_and(|other| matches!(&other.expr, Expr::Call(call) if is_library(call, "none")))
}

fn is_library(call: &CallExpr, function: &str) -> bool {
    let target = call.target.as_deref().map(|target| &target.expr);
    call.func_name == function && matches!(target, Some(Expr::Ident(name)) if name == "optional")
}

/// The test and the value of an expanded access; anything else is its own value.
fn split_access(mut expression: IdedExpr) -> (Option<IdedExpr>, IdedExpr) {
    if !is_access(&expression) {
        return (None, expression);
    }
    if let Expr::Call(choice) = &mut expression.expr
        && let [test, then, _] = choice.args.as_mut_slice()
        && let Expr::Call(of) = &mut then.expr
        && let Some(value) = of.args.first_mut()
    {
        return (Some(std::mem::take(test)), std::mem::take(value));
    }
    (None, expression)
}

fn node(expr: Expr) -> IdedExpr {
    IdedExpr { id: 0, expr }
}

fn function(name: &str, args: Vec<IdedExpr>) -> IdedExpr {
    node(Expr::Call(CallExpr { func_name: name.to_owned(), target: None, args }))
}

fn method(target: IdedExpr, name: &str) -> IdedExpr {
    node(Expr::Call(CallExpr { func_name: name.to_owned(), target: Some(Box::new(target)), args: Vec::new() }))
}

/// `optional.of(…)` and the like.
fn library(name: &str, args: Vec<IdedExpr>) -> IdedExpr {
    let target = Some(Box::new(node(Expr::Ident("optional".to_owned()))));
    node(Expr::Call(CallExpr { func_name: name.to_owned(), target, args }))
}

fn choose(test: IdedExpr, then: IdedExpr) -> IdedExpr {
    function(CONDITIONAL, vec![test, then, library("none", Vec::new())])
}

/// `body`, with `name` standing for `value`.
fn bind(name: &str, value: IdedExpr, body: IdedExpr) -> IdedExpr {
    node(Expr::Comprehension(Box::new(ComprehensionExpr {
        iter_range: node(Expr::List(ListExpr::new(Vec::new()))),
        iter_var: "@unused".to_owned(),
        iter_var2: None,
        accu_var: name.to_owned(),
        accu_init: value,
        loop_cond: node(Expr::Literal(LiteralValue::Boolean(false.into()))),
        loop_step: node(Expr::Ident(name.to_owned())),
        result: body,
    })))
}
