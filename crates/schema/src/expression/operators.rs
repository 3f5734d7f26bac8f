//! Operators. Times and durations are left to the library.

use std::cmp::Ordering;
use std::sync::Arc;

use kube_cel::cel::common::ast::operators as op;
use kube_cel::cel::common::ast::{CallExpr, IdedExpr};

use super::Fault;
use super::evaluate::{Evaluated, Evaluation};
use super::library;
use super::value::{Key, List, Map, Text, Val};

impl<'a> Evaluation<'a> {
    /// The value of an operator's call; `None` if it is a call of something else.
    #[inline(never)]
    pub(super) fn operator(&self, call: &'a CallExpr) -> Option<Evaluated<'a>> {
        Some(match (call.func_name.as_str(), call.args.as_slice()) {
            (op::CONDITIONAL, [condition, then, other]) => self.choose(condition, then, other),
            (op::LOGICAL_AND, [left, right]) => self.both(left, right, false),
            (op::LOGICAL_OR, [left, right]) => self.both(left, right, true),
            (op::LOGICAL_NOT, [operand]) => self.negate(operand),
            (op::NOT_STRICTLY_FALSE, [operand]) => self.not_strictly_false(operand),
            (op::NEGATE, [operand]) => self.evaluate(operand).and_then(|value| minus(&value)),
            (op::OPT_SELECT, [operand, field]) => self.optional_field(operand, field),
            (op::INDEX | op::OPT_INDEX, [operand, key]) => self.index(operand, key, call.func_name == op::OPT_INDEX),
            (name, [left, right]) if is_binary(name) => self.binary(name, left, right),
            _ => return None,
        })
    }

    fn choose(&self, condition: &'a IdedExpr, then: &'a IdedExpr, other: &'a IdedExpr) -> Evaluated<'a> {
        match self.evaluate(condition)?.truth() {
            Some(true) => self.evaluate(then),
            Some(false) => self.evaluate(other),
            None => Err(Fault::no_overload()),
        }
    }

    /// `&&` (decided by false) and `||` (decided by true): an error of one side counts only if the other does not decide.
    fn both(&self, left: &'a IdedExpr, right: &'a IdedExpr, deciding: bool) -> Evaluated<'a> {
        let left = self.evaluate(left);
        match &left {
            Ok(Val::Bool(truth)) if *truth == deciding => return left,
            Err(fault) if fault.is_final() => return left,
            _ => {}
        }
        let right = self.evaluate(right);
        match (left, right) {
            (_, Ok(Val::Bool(truth))) if truth == deciding => Ok(Val::Bool(deciding)),
            (_, Err(fault)) if fault.is_final() => Err(fault),
            (Ok(Val::Bool(_)), Ok(Val::Bool(_))) => Ok(Val::Bool(!deciding)),
            (Err(fault), _) | (Ok(_), Err(fault)) => Err(fault),
            (Ok(_), Ok(_)) => Err(Fault::no_overload()),
        }
    }

    fn negate(&self, operand: &'a IdedExpr) -> Evaluated<'a> {
        let truth = self.evaluate(operand)?.truth();
        truth.map(|truth| Val::Bool(!truth)).ok_or_else(Fault::no_overload)
    }

    fn not_strictly_false(&self, operand: &'a IdedExpr) -> Evaluated<'a> {
        match self.evaluate(operand) {
            Err(fault) if fault.is_final() => Err(fault),
            Ok(Val::Bool(false)) => Ok(Val::Bool(false)),
            _ => Ok(Val::Bool(true)),
        }
    }

    /// `a.?b`.
    fn optional_field(&self, operand: &'a IdedExpr, field: &'a IdedExpr) -> Evaluated<'a> {
        let operand = self.evaluate(operand)?;
        // The parser gives the name as a literal.
        let Val::Text(Text::Borrowed(field)) = self.evaluate(field)? else { return Err(Fault::no_overload()) };
        if let Val::Optional(_) = operand {
            return self.field(&operand, field);
        }
        let found = self.has(&operand, field)?.then(|| self.field(&operand, field)).transpose()?;
        Ok(Val::Optional(found.map(Arc::new)))
    }

    fn index(&self, operand: &'a IdedExpr, key: &'a IdedExpr, is_optional: bool) -> Evaluated<'a> {
        let operand = self.evaluate(operand)?;
        let key = self.evaluate(key)?;
        match operand {
            Val::Optional(None) => Ok(Val::Optional(None)),
            Val::Optional(Some(value)) => optional(self.item(&value, &key)),
            value if is_optional => optional(self.item(&value, &key)),
            value => self.item(&value, &key),
        }
    }

    /// An item of a list or map.
    fn item(&self, value: &Val<'a>, key: &Val<'a>) -> Evaluated<'a> {
        match value {
            Val::List(list) => {
                let index = key.whole_number().ok_or_else(Fault::no_overload)?;
                let found = usize::try_from(index).ok().and_then(|index| list.get(index));
                found.ok_or_else(|| Fault::Failed(format!("index out of bounds: {index}")))
            }
            Val::Map(map) => {
                let key = self.key(key)?;
                map.get(&key).ok_or_else(|| Fault::no_such_key(&key))
            }
            Val::Null => Err(Fault::no_such_key(Key::of(key).map(|key| key.to_string()).unwrap_or_default())),
            _ => Err(Fault::no_overload()),
        }
    }

    #[inline(never)]
    fn binary(&self, name: &'a str, left: &'a IdedExpr, right: &'a IdedExpr) -> Evaluated<'a> {
        let (left, right) = (self.evaluate(left)?, self.evaluate(right)?);
        self.spend(binary_work(name, &left, &right))?;
        match name {
            op::EQUALS => Ok(Val::Bool(equal(&left, &right))),
            op::NOT_EQUALS => Ok(Val::Bool(!equal(&left, &right))),
            op::IN => contains(&right, &left).map(Val::Bool),
            op::LESS | op::LESS_EQUALS | op::GREATER | op::GREATER_EQUALS => compare(name, &left, &right),
            op::ADD => add(left, right),
            _ => arithmetic(name, &left, &right),
        }
    }
}

/// What of two values an operator looks at.
fn binary_work(name: &str, left: &Val<'_>, right: &Val<'_>) -> u64 {
    match (name, left, right) {
        (op::IN, _, Val::List(_)) => right.size(),
        // Both are copied; the library works on copies, too.
        (op::ADD, ..) | (_, Val::Opaque(_), _) | (_, _, Val::Opaque(_)) => left.size().saturating_add(right.size()),
        (op::IN, ..) => left.size(),
        // They are soon told apart if one of them is small.
        (_, Val::Text(a), Val::Text(b)) => u64::try_from(a.len().min(b.len()) / 10).unwrap_or(u64::MAX),
        _ => left.smaller(right),
    }
}

fn is_binary(name: &str) -> bool {
    matches!(
        name,
        op::EQUALS
            | op::NOT_EQUALS
            | op::IN
            | op::LESS
            | op::LESS_EQUALS
            | op::GREATER
            | op::GREATER_EQUALS
            | op::ADD
            | op::SUBSTRACT
            | op::MULTIPLY
            | op::DIVIDE
            | op::MODULO
    )
}

/// What is not there is none; that it costs too much is no less an error.
fn optional(found: Evaluated<'_>) -> Evaluated<'_> {
    match found {
        Err(fault) if fault.is_final() => Err(fault),
        found => Ok(Val::Optional(found.ok().map(Arc::new))),
    }
}

#[expect(clippy::cast_precision_loss, reason = "numbers of different types are compared as CEL compares them")]
pub(super) fn order(left: &Val<'_>, right: &Val<'_>) -> Option<Ordering> {
    match (left, right) {
        (Val::Int(a), Val::Int(b)) => Some(a.cmp(b)),
        (Val::Uint(a), Val::Uint(b)) => Some(a.cmp(b)),
        (Val::Double(a), Val::Double(b)) => a.partial_cmp(b),
        (Val::Int(a), Val::Uint(b)) => Some(u64::try_from(*a).map_or(Ordering::Less, |a| a.cmp(b))),
        (Val::Uint(a), Val::Int(b)) => Some(u64::try_from(*b).map_or(Ordering::Greater, |b| a.cmp(&b))),
        (Val::Int(a), Val::Double(b)) => (*a as f64).partial_cmp(b),
        (Val::Double(a), Val::Int(b)) => a.partial_cmp(&(*b as f64)),
        (Val::Uint(a), Val::Double(b)) => (*a as f64).partial_cmp(b),
        (Val::Double(a), Val::Uint(b)) => a.partial_cmp(&(*b as f64)),
        (Val::Bool(a), Val::Bool(b)) => Some(a.cmp(b)),
        (Val::Text(a), Val::Text(b)) => Some((**a).cmp(&**b)),
        (Val::Bytes(a), Val::Bytes(b)) => Some(a.cmp(b)),
        _ => None,
    }
}

pub(super) fn equal(left: &Val<'_>, right: &Val<'_>) -> bool {
    match (left, right) {
        (Val::Null, Val::Null) | (Val::Optional(None), Val::Optional(None)) => true,
        (Val::List(List::Json(a)), Val::List(List::Json(b))) if std::ptr::eq(*a, *b) => true,
        (Val::List(a), Val::List(b)) => a.len() == b.len() && a.iter().zip(b.iter()).all(|(a, b)| equal(&a, &b)),
        (Val::Map(a), Val::Map(b)) => same_maps(a, b),
        (Val::Struct(a), Val::Struct(b)) => {
            let same = |(field, value): (&&str, &Val<'_>)| b.fields.get(field).is_some_and(|other| equal(value, other));
            a.name == b.name && a.fields.len() == b.fields.len() && a.fields.iter().all(same)
        }
        (Val::Optional(Some(a)), Val::Optional(Some(b))) => equal(a, b),
        (Val::Type(a), Val::Type(b)) => a == b,
        (Val::Opaque(a), Val::Opaque(b)) => a == b,
        _ => order(left, right) == Some(Ordering::Equal),
    }
}

fn same_maps(a: &Map<'_>, b: &Map<'_>) -> bool {
    let same = |key: &Key| match (a.get(key), b.get(key)) {
        (Some(a), Some(b)) => equal(&a, &b),
        _ => false,
    };
    a.len() == b.len() && a.keys().iter().all(same)
}

fn contains(container: &Val<'_>, value: &Val<'_>) -> Result<bool, Fault> {
    match container {
        Val::List(list) => Ok(list.iter().any(|item| equal(&item, value))),
        Val::Map(map) => Ok(Key::of(value).is_some_and(|key| map.get(&key).is_some())),
        _ => Err(Fault::no_overload()),
    }
}

fn compare<'a>(name: &str, left: &Val<'a>, right: &Val<'a>) -> Evaluated<'a> {
    if let (Val::Opaque(_), _) | (_, Val::Opaque(_)) = (left, right) {
        return library::operator(name, left, right);
    }
    let is_number = |value: &Val<'_>| matches!(value, Val::Int(_) | Val::Uint(_) | Val::Double(_));
    let Some(order) = order(left, right) else {
        // Nothing is less or more than what is not a number.
        return if is_number(left) && is_number(right) { Ok(Val::Bool(false)) } else { Err(Fault::no_overload()) };
    };
    Ok(Val::Bool(match name {
        op::LESS => order.is_lt(),
        op::LESS_EQUALS => order.is_le(),
        op::GREATER => order.is_gt(),
        _ => order.is_ge(),
    }))
}

fn add<'a>(left: Val<'a>, right: Val<'a>) -> Evaluated<'a> {
    match (left, right) {
        (Val::Text(a), Val::Text(b)) => Ok(Val::text([&*a, &*b].concat())),
        (Val::Bytes(a), Val::Bytes(b)) => Ok(Val::Bytes(Arc::new([a.as_slice(), b.as_slice()].concat()))),
        (Val::List(a), Val::List(b)) => Ok(Val::list(a.iter().chain(b.iter()).collect())),
        (left, right) => arithmetic(op::ADD, &left, &right),
    }
}

fn minus<'a>(value: &Val<'a>) -> Evaluated<'a> {
    match value {
        Val::Int(number) => number.checked_neg().map(Val::Int).ok_or_else(overflow),
        Val::Double(number) => Ok(Val::Double(-number)),
        _ => Err(Fault::no_overload()),
    }
}

fn overflow() -> Fault {
    Fault::failed("integer overflow")
}

fn arithmetic<'a>(name: &str, left: &Val<'a>, right: &Val<'a>) -> Evaluated<'a> {
    if let (Val::Int(_) | Val::Uint(_), Val::Int(0) | Val::Uint(0)) = (left, right) {
        match name {
            op::DIVIDE => return Err(Fault::failed("division by zero")),
            op::MODULO => return Err(Fault::failed("modulus by zero")),
            _ => {}
        }
    }
    match (left, right) {
        (Val::Int(a), Val::Int(b)) => {
            let result = match name {
                op::ADD => a.checked_add(*b),
                op::SUBSTRACT => a.checked_sub(*b),
                op::MULTIPLY => a.checked_mul(*b),
                op::DIVIDE => a.checked_div(*b),
                _ => a.checked_rem(*b),
            };
            result.map(Val::Int).ok_or_else(overflow)
        }
        (Val::Uint(a), Val::Uint(b)) => {
            let result = match name {
                op::ADD => a.checked_add(*b),
                op::SUBSTRACT => a.checked_sub(*b),
                op::MULTIPLY => a.checked_mul(*b),
                op::DIVIDE => a.checked_div(*b),
                _ => a.checked_rem(*b),
            };
            result.map(Val::Uint).ok_or_else(overflow)
        }
        (Val::Double(a), Val::Double(b)) => match name {
            op::ADD => Ok(Val::Double(a + b)),
            op::SUBSTRACT => Ok(Val::Double(a - b)),
            op::MULTIPLY => Ok(Val::Double(a * b)),
            op::DIVIDE => Ok(Val::Double(a / b)),
            _ => Err(Fault::no_overload()),
        },
        (Val::Opaque(_), Val::Opaque(_)) => library::operator(name, left, right),
        _ => Err(Fault::no_overload()),
    }
}
