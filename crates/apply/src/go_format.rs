//! JSON values in the notations that Go's `fmt` gives them: error texts quote values that way.

use croft_meta::field::go_quote;
use serde_json::{Number, Value};

/// `%v`: `map[a:1 b:[x y]]`.
pub(crate) fn plain(value: &Value) -> String {
    let mut out = String::new();
    write_plain(&mut out, value);
    out
}

fn write_plain(out: &mut String, value: &Value) {
    match value {
        Value::Null => out.push_str("<nil>"),
        Value::Bool(b) => out.push_str(if *b { "true" } else { "false" }),
        Value::Number(n) => out.push_str(&number(n, 21)),
        Value::String(s) => out.push_str(s),
        Value::Array(items) => {
            out.push('[');
            for (i, item) in items.iter().enumerate() {
                if i > 0 {
                    out.push(' ');
                }
                write_plain(out, item);
            }
            out.push(']');
        }
        Value::Object(map) => {
            out.push_str("map[");
            for (i, (key, item)) in map.iter().enumerate() {
                if i > 0 {
                    out.push(' ');
                }
                out.push_str(key);
                out.push(':');
                write_plain(out, item);
            }
            out.push(']');
        }
    }
}

/// `%#v`: `map[string]interface {}{"a":1}`.
pub(crate) fn syntax(value: &Value) -> String {
    match value {
        Value::Null => "interface {}(nil)".to_owned(),
        Value::Number(n) => number(n, 6),
        Value::String(s) => go_quote(s),
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(syntax).collect();
            format!("[]interface {{}}{{{}}}", items.join(", "))
        }
        Value::Object(map) => {
            let items: Vec<String> = map.iter().map(|(k, v)| format!("{}:{}", go_quote(k), syntax(v))).collect();
            format!("map[string]interface {{}}{{{}}}", items.join(", "))
        }
        Value::Bool(b) => b.to_string(),
    }
}

/// `%T` of a decoded JSON value.
pub(crate) fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Number(n) if n.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}

/// The shortest decimal form, with an exponent from `exponent_from` digits on, as Go prints floats.
/// Integers always print in full.
pub(crate) fn number(n: &Number, exponent_from: i32) -> String {
    let Some(f) = n.as_f64().filter(|_| n.is_f64()) else { return n.to_string() };
    let scientific = format!("{f:e}");
    let Some((mantissa, exponent)) = scientific.split_once('e') else { return scientific };
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if exponent < -4 || exponent >= exponent_from {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{mantissa}e{sign}{:02}", exponent.abs());
    }
    format!("{f}")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_read_as_go_prints_them() {
        let value = json!({"b": [1, "x", null], "a": {"c": true}, "f": 1.5});
        assert_eq!(plain(&value), "map[a:map[c:true] b:[1 x <nil>] f:1.5]");
        assert_eq!(
            syntax(&value),
            "map[string]interface {}{\"a\":map[string]interface {}{\"c\":true}, \
             \"b\":[]interface {}{1, \"x\", interface {}(nil)}, \"f\":1.5}"
        );
    }

    #[test]
    fn floats_get_exponents_where_go_gives_them() {
        for (f, at_21, at_6) in [(1_500_000.0, "1500000", "1.5e+06"), (0.00001, "1e-05", "1e-05"), (80.0, "80", "80")] {
            let n = Number::from_f64(f).unwrap();
            assert_eq!((number(&n, 21).as_str(), number(&n, 6).as_str()), (at_21, at_6));
        }
    }
}
