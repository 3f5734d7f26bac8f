//! Arithmetic with the quantities of typed objects.

use croft_meta::Quantity as Number;
use croft_meta::quantity::Notation;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

/// The quantity, if it is one.
pub(crate) fn parse(quantity: &Quantity) -> Option<Number> {
    Number::parse(&quantity.0).ok()
}

/// Rounded up to a whole number; what is no quantity counts as nothing.
pub(crate) fn value(quantity: &Quantity) -> i64 {
    parse(quantity).map_or(0, |number| number.value())
}

pub(crate) fn milli_value(quantity: &Quantity) -> i64 {
    parse(quantity).map_or(0, |number| number.milli_value())
}

/// Nothing, or zero.
pub(crate) fn is_zero(quantity: Option<&Quantity>) -> bool {
    quantity.and_then(parse).is_none_or(|number| number.is_zero())
}

/// Written in powers of two, as memory is.
pub(crate) fn bytes(count: i64) -> Quantity {
    Quantity(Number::from_i64(count, Notation::Binary).to_string())
}

/// The canonical text of a quantity; what is none stays as it is.
pub(crate) fn text(quantity: &Quantity) -> String {
    parse(quantity).map_or_else(|| quantity.0.clone(), |number| number.to_string())
}

/// Compares two quantities.
pub(crate) fn compare(a: &Quantity, b: &Quantity) -> std::cmp::Ordering {
    let number = |quantity: &Quantity| parse(quantity).unwrap_or_default();
    number(a).cmp(&number(b))
}
