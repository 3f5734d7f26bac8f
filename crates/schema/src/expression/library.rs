//! Functions of Kubernetes' libraries, called with values of ours.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use croft_meta::quantity::QuantityError;
use kube_cel::cel::common::ast::{CallExpr, Expr, IdedExpr};
use kube_cel::cel::objects::{Key as CelKey, Map as CelMap, OptionalValue};
use kube_cel::cel::{ExecutionError, Value as CelValue};
use serde_json::Value;

use super::Fault;
use super::MOST_QUOTED;
use super::evaluate::Evaluated;
use super::value::{Key, Map, Text, Val};
use crate::cel::CONTEXT;

/// Calls `name`, as a method if there is something to call it on, or as a function of a library (`math.least`).
pub(super) fn call<'a>(name: &str, namespace: Option<&str>, this: Option<&Val<'a>>, args: &[Val<'a>]) -> Evaluated<'a> {
    const NAMES: [&str; 6] = ["@0", "@1", "@2", "@3", "@4", "@5"];
    if args.len() > NAMES.len() {
        return Err(Fault::no_overload());
    }
    let mut scope = CONTEXT.new_inner_scope();
    let ident = |name: &str| IdedExpr { id: 0, expr: Expr::Ident(name.to_owned()) };
    if let Some(this) = this {
        scope.add_variable_from_value("@this", to_cel(this)?);
    }
    for (name, value) in NAMES.iter().zip(args) {
        scope.add_variable_from_value(*name, to_cel(value)?);
    }
    let target = namespace.or(this.map(|_| "@this")).map(|name| Box::new(ident(name)));
    let args = NAMES.iter().take(args.len()).map(|name| ident(name)).collect();
    let program = IdedExpr { id: 0, expr: Expr::Call(CallExpr { func_name: name.to_owned(), target, args }) };
    scope.resolve(&program).map(from_cel).map_err(|err| fault(&err))
}

/// What the library must not be asked, since it would not come back from it.
pub(super) fn refused<'a>(name: &str, args: &[Val<'a>]) -> Option<Evaluated<'a>> {
    const LONGEST_QUANTITY: usize = 64;
    const LARGEST_EXPONENT: u32 = 60;
    let Some(Val::Text(text)) = args.first() else { return None };
    match name {
        // It cuts texts between bytes. No format that it knows allows other characters.
        "validate" if !text.is_ascii() => {
            let why = Val::text("must consist of ASCII characters");
            Some(Ok(Val::some(Val::list(vec![why]))))
        }
        // It writes out every zero.
        "quantity" | "isQuantity" => {
            let exponent = text.rsplit_once(['e', 'E']).map(|(_, exponent)| exponent.trim_start_matches(['+', '-']));
            let is_small =
                |exponent: &str| exponent.is_empty() || exponent.parse().is_ok_and(|e: u32| e <= LARGEST_EXPONENT);
            let is_good =
                text.len() <= LONGEST_QUANTITY && exponent.is_none_or(|e| is_small(e) || e.parse::<u128>().is_err());
            let refused = if name == "quantity" {
                Err(Fault::failed(QuantityError::Format.to_string()))
            } else {
                Ok(Val::Bool(false))
            };
            (!is_good).then_some(refused)
        }
        _ => None,
    }
}

/// An operator between values that only the library knows.
pub(super) fn operator<'a>(name: &str, left: &Val<'a>, right: &Val<'a>) -> Evaluated<'a> {
    // Times end in the year 9999: what is longer than that leads out of what the library can hold.
    const MOST_DAYS: i64 = 10_000 * 366;
    let is_long =
        |value: &Val<'_>| matches!(value, Val::Opaque(CelValue::Duration(d)) if d.num_days().abs() > MOST_DAYS);
    if is_long(left) || is_long(right) {
        return Err(Fault::failed("duration out of range"));
    }
    call(name, None, None, &[left.clone(), right.clone()])
}

/// The text of a time, a quantity and the like.
pub(super) fn as_text(value: &CelValue) -> Result<Value, Fault> {
    match call("string", None, None, &[Val::Opaque(value.clone())])? {
        Val::Text(text) => Ok(Value::from(&*text)),
        _ => Err(Fault::no_overload()),
    }
}

fn to_cel(value: &Val<'_>) -> Result<CelValue, Fault> {
    Ok(match value {
        Val::Null => CelValue::Null,
        Val::Bool(truth) => CelValue::Bool(*truth),
        Val::Int(number) => CelValue::Int(*number),
        Val::Uint(number) => CelValue::UInt(*number),
        Val::Double(number) => CelValue::Float(*number),
        Val::Text(text) => CelValue::String(Arc::new(text.to_string())),
        Val::Bytes(bytes) => CelValue::Bytes(Arc::clone(bytes)),
        Val::List(list) => CelValue::List(Arc::new(list.iter().map(|item| to_cel(&item)).collect::<Result<_, _>>()?)),
        Val::Map(map) => CelValue::Map(to_cel_map(map)?),
        Val::Opaque(value) => value.clone(),
        Val::Optional(value) => {
            let value = value.as_ref().map(|value| to_cel(value)).transpose()?;
            CelValue::Opaque(Arc::new(value.map_or_else(OptionalValue::none, OptionalValue::of)))
        }
        Val::Struct(_) | Val::Type(_) | Val::Variables | Val::Authorizer(_) => return Err(Fault::no_overload()),
    })
}

fn to_cel_map(map: &Map<'_>) -> Result<CelMap, Fault> {
    let mut entries = HashMap::with_capacity(map.len());
    for key in map.keys() {
        let Some(value) = map.get(&key) else { continue };
        let key = match key {
            Key::Bool(truth) => CelKey::Bool(truth),
            Key::Int(number) => CelKey::Int(number),
            Key::Text(text) => CelKey::String(Arc::new(text.to_string())),
        };
        entries.insert(key, to_cel(&value)?);
    }
    Ok(CelMap { map: Arc::new(entries) })
}

fn from_cel<'a>(value: CelValue) -> Val<'a> {
    match value {
        CelValue::Null => Val::Null,
        CelValue::Bool(truth) => Val::Bool(truth),
        CelValue::Int(number) => Val::Int(number),
        CelValue::UInt(number) => Val::Uint(number),
        CelValue::Float(number) => Val::Double(number),
        CelValue::String(text) => Val::Text(Text::Shared(Arc::from(text.as_str()))),
        CelValue::Bytes(bytes) => Val::Bytes(bytes),
        CelValue::List(list) => Val::list(list.iter().cloned().map(from_cel).collect()),
        CelValue::Map(map) => {
            let entries: BTreeMap<Key, Val<'a>> = map
                .map
                .iter()
                .map(|(key, value)| {
                    let key = match key {
                        CelKey::Bool(truth) => Key::Bool(*truth),
                        CelKey::Int(number) => Key::Int(*number),
                        CelKey::Uint(number) => Key::Int(i64::try_from(*number).unwrap_or(i64::MAX)),
                        CelKey::String(text) => Key::Text(Arc::from(text.as_str())),
                    };
                    (key, from_cel(value.clone()))
                })
                .collect();
            Val::map(entries)
        }
        CelValue::Opaque(opaque) => match opaque.downcast_ref::<OptionalValue>() {
            Some(optional) => Val::Optional(optional.value().cloned().map(|value| Arc::new(from_cel(value)))),
            None => Val::Opaque(CelValue::Opaque(opaque)),
        },
        other => Val::Opaque(other),
    }
}

/// The library's error in cel-go's words.
fn fault(err: &ExecutionError) -> Fault {
    match err {
        ExecutionError::NoSuchKey(key) => Fault::no_such_key(key),
        ExecutionError::FunctionError { function, .. } if function == "quantity" => {
            Fault::failed(QuantityError::Format.to_string())
        }
        ExecutionError::FunctionError { message, .. } => Fault::Failed(message.chars().take(MOST_QUOTED).collect()),
        ExecutionError::DivisionByZero(_) => Fault::failed("division by zero"),
        ExecutionError::RemainderByZero(_) => Fault::failed("modulus by zero"),
        ExecutionError::Overflow(..) => Fault::failed("integer overflow"),
        ExecutionError::IndexOutOfBounds(CelValue::Int(index)) => {
            Fault::Failed(format!("index out of bounds: {index}"))
        }
        ExecutionError::UndeclaredReference(name) => Fault::Failed(format!("no such attribute(s): {name}")),
        _ => Fault::no_overload(),
    }
}
