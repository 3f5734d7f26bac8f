//! Which fields an expression looks at.

use kube_cel::cel::common::ast::operators::OPT_SELECT;
use kube_cel::cel::common::ast::{EntryExpr, Expr, IdedExpr, LiteralValue};

pub(super) fn selects(expression: &IdedExpr, operand: &str, field: &str) -> bool {
    let within = |part: &IdedExpr| selects(part, operand, field);
    match &expression.expr {
        Expr::Select(select) => (is_name(&select.operand, operand) && select.field == field) || within(&select.operand),
        Expr::Call(call) => {
            let is_optional = call.func_name == OPT_SELECT
                && matches!(call.args.as_slice(), [of, name] if is_name(of, operand) && is_text(name, field));
            is_optional || call.target.as_deref().is_some_and(within) || call.args.iter().any(within)
        }
        Expr::List(list) => list.elements.iter().any(within),
        Expr::Map(map) => map.entries.iter().any(|entry| match &entry.expr {
            EntryExpr::MapEntry(entry) => within(&entry.key) || within(&entry.value),
            EntryExpr::StructField(entry) => within(&entry.value),
        }),
        Expr::Struct(made) => made.entries.iter().any(|entry| match &entry.expr {
            EntryExpr::MapEntry(entry) => within(&entry.key) || within(&entry.value),
            EntryExpr::StructField(entry) => within(&entry.value),
        }),
        Expr::Comprehension(walk) => {
            let parts = [&walk.iter_range, &walk.accu_init, &walk.loop_cond, &walk.loop_step, &walk.result];
            parts.into_iter().any(within)
        }
        Expr::Ident(_) | Expr::Literal(_) | Expr::Unspecified => false,
    }
}

fn is_name(expression: &IdedExpr, name: &str) -> bool {
    matches!(&expression.expr, Expr::Ident(own) if own == name)
}

fn is_text(expression: &IdedExpr, text: &str) -> bool {
    matches!(&expression.expr, Expr::Literal(LiteralValue::String(own)) if own.inner() == text)
}
