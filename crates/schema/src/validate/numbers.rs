//! Bounds and multiples of numbers. Go compares integers as integers, with the bound cut to one.

use croft_meta::field::go_float;
use serde_json::Number;

use super::{Node, Outcome};
use crate::model::Constraints;

pub(super) fn check(node: &Node<'_>, number: &Number, constraints: &Constraints, outcome: &mut Outcome) {
    outcome.matches += 2;
    if let Some(factor) = constraints.multiple_of.as_ref().and_then(Number::as_f64) {
        check_multiple(node, number, factor, outcome);
    }
    if let Some(min) = constraints.minimum.as_ref().and_then(Number::as_f64) {
        let exclusive = constraints.exclusive_minimum;
        let text = if exclusive { "should be greater than" } else { "should be greater than or equal to" };
        let order = compare(number, min);
        if order.is_some_and(|o| o.is_lt() || (exclusive && o.is_eq())) {
            outcome.add(node.other(number.clone(), &format!("{text} {}", bound_text(number, min))));
        }
    }
    if let Some(max) = constraints.maximum.as_ref().and_then(Number::as_f64) {
        let exclusive = constraints.exclusive_maximum;
        let text = if exclusive { "should be less than" } else { "should be less than or equal to" };
        let order = compare(number, max);
        if order.is_some_and(|o| o.is_gt() || (exclusive && o.is_eq())) {
            outcome.add(node.other(number.clone(), &format!("{text} {}", bound_text(number, max))));
        }
    }
}

/// Go's conversion of a bound to the integer type of the value.
#[expect(clippy::cast_possible_truncation, reason = "saturation is what is wanted")]
fn as_integer(float: f64) -> i64 {
    float as i64
}

fn compare(number: &Number, bound: f64) -> Option<std::cmp::Ordering> {
    match number.as_i64() {
        Some(integer) => Some(integer.cmp(&as_integer(bound))),
        None => number.as_f64()?.partial_cmp(&bound),
    }
}

fn bound_text(number: &Number, bound: f64) -> String {
    if number.is_i64() { as_integer(bound).to_string() } else { go_float(bound) }
}

fn check_multiple(node: &Node<'_>, number: &Number, factor: f64, outcome: &mut Outcome) {
    let positive = if number.is_i64() { as_integer(factor) > 0 } else { factor > 0.0 };
    if !positive {
        let text =
            format!("factor MultipleOf declared for {} must be positive: {}", node.path, bound_text(number, factor));
        outcome.add(node.problem(super::Kind::Other { value: factor.into(), message: text }));
        return;
    }
    let is_multiple = match (number.as_i64(), number.as_f64()) {
        (Some(integer), _) => integer % as_integer(factor) == 0,
        (None, Some(float)) => {
            let quotient = if factor < 1.0 { 1.0 / factor * float } else { float / factor };
            (quotient - quotient.round()).abs() < 1e-9
        }
        (None, None) => true,
    };
    if !is_multiple {
        outcome.add(node.other(number.clone(), &format!("should be a multiple of {}", bound_text(number, factor))));
    }
}
