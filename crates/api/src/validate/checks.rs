//! Rules that many kinds share.

use std::net::IpAddr;

use croft_meta::quantity::Quantity;
use croft_meta::{FieldError, FieldErrors, FieldPath, names};
use serde_json::Value;

use crate::view::{get, int, list, map, strings, text};

pub(super) const IMMUTABLE: &str = "field is immutable";
const NOT_NEGATIVE: &str = "must be greater than or equal to 0";
const BAD_PORT: &str = "must be between 1 and 65535, inclusive";
pub(super) const BAD_IP: &str = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
pub(super) const BAD_CIDR: &str = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)";

/// Each text that the rule finds wrong with the value.
pub(super) fn named(errors: &mut FieldErrors, path: &FieldPath, value: &str, rule: fn(&str) -> Vec<String>) {
    errors.extend(rule(value).into_iter().map(|text| FieldError::invalid(path, value, text)));
}

/// As [`named`]; an empty value is "required".
pub(super) fn required_name(errors: &mut FieldErrors, path: &FieldPath, value: &str, rule: fn(&str) -> Vec<String>) {
    if value.is_empty() {
        errors.push(FieldError::required(path, ""));
    } else {
        named(errors, path, value, rule);
    }
}

pub(super) fn required(errors: &mut FieldErrors, path: &FieldPath, value: &str) {
    if value.is_empty() {
        errors.push(FieldError::required(path, ""));
    }
}

pub(super) fn one_of(errors: &mut FieldErrors, path: &FieldPath, value: &str, allowed: &[&str]) {
    if !allowed.contains(&value) {
        errors.push(FieldError::not_supported(path, value, allowed));
    }
}

/// The number at `field`, if there is one, is not below zero.
pub(super) fn not_negative(errors: &mut FieldErrors, object: &Value, path: &FieldPath, field: &str) {
    if let Some(number) = int(object, field).filter(|number| *number < 0) {
        errors.push(FieldError::invalid(&path.child(field), number, NOT_NEGATIVE));
    }
}

pub(super) fn port(errors: &mut FieldErrors, path: &FieldPath, number: i64) {
    if !(1..=65535).contains(&number) {
        errors.push(FieldError::invalid(path, number, BAD_PORT));
    }
}

/// A number or the name of a port.
pub(super) fn port_or_name(errors: &mut FieldErrors, path: &FieldPath, value: Option<&Value>) {
    match value {
        Some(Value::String(name)) => named(errors, path, name, port_name),
        Some(Value::Number(number)) => port(errors, path, number.as_i64().unwrap_or_default()),
        _ => port(errors, path, 0),
    }
}

/// IANA service names, in lower case.
pub(super) fn port_name(name: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut add = |is_wrong: bool, text: &str| {
        if is_wrong {
            wrong.push(text.to_owned());
        }
    };
    add(name.len() > 15, "must be no more than 15 characters");
    let is_plain = !name.is_empty() && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
    add(!is_plain, "must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)");
    add(!name.bytes().any(|b| b.is_ascii_lowercase()), "must contain at least one letter (a-z)");
    add(name.contains("--"), "must not contain consecutive hyphens");
    add(name.starts_with('-') || name.ends_with('-'), "must not begin or end with a hyphen");
    wrong
}

pub(super) fn protocol(errors: &mut FieldErrors, path: &FieldPath, value: &str) {
    if value.is_empty() {
        errors.push(FieldError::required(path, ""));
    } else {
        one_of(errors, path, value, &["SCTP", "TCP", "UDP"]);
    }
}

pub(super) fn ip(errors: &mut FieldErrors, path: &FieldPath, value: &str) -> Option<IpAddr> {
    let parsed = value.parse().ok();
    if parsed.is_none() {
        errors.push(FieldError::invalid(path, value, BAD_IP));
    }
    parsed
}

pub(super) fn cidr(errors: &mut FieldErrors, path: &FieldPath, value: &str) {
    let is_valid = value.split_once('/').is_some_and(|(address, length)| {
        let bits = match address.parse::<IpAddr>() {
            Ok(IpAddr::V4(_)) => 32,
            Ok(IpAddr::V6(_)) => 128,
            Err(_) => return false,
        };
        length.parse::<u8>().is_ok_and(|length| length <= bits)
    });
    if !is_valid {
        errors.push(FieldError::invalid(path, value, BAD_CIDR));
    }
}

/// Addresses that mean "here" on every machine make no sense as the address of something elsewhere.
pub(super) fn not_special(errors: &mut FieldErrors, path: &FieldPath, value: &str) {
    let Ok(address) = value.parse::<IpAddr>() else {
        errors.push(FieldError::invalid(path, value, "must be a valid IP address"));
        return;
    };
    let is_link_local = match address {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    };
    let is_link_local_multicast = match address {
        IpAddr::V4(v4) => v4.octets()[..3] == [224, 0, 0],
        IpAddr::V6(v6) => v6.segments()[0] & 0xff0f == 0xff02,
    };
    let wrong = if address.is_unspecified() {
        "may not be unspecified (0.0.0.0 or ::)"
    } else if address.is_loopback() {
        "may not be in the loopback range (127.0.0.0/8, ::1/128)"
    } else if is_link_local {
        "may not be in the link-local range (169.254.0.0/16, fe80::/10)"
    } else if is_link_local_multicast {
        "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)"
    } else {
        return;
    };
    errors.push(FieldError::invalid(path, value, wrong));
}

/// `metav1.LabelSelector`.
pub(super) fn selector(errors: &mut FieldErrors, selector: &Value, path: &FieldPath) {
    if let Some(labels) = get(selector, "matchLabels") {
        errors.extend(names::validate_labels(labels, &path.child("matchLabels")));
    }
    for (index, expression) in list(selector, "matchExpressions").iter().enumerate() {
        let path = path.child("matchExpressions").index(index);
        let values = strings(expression, "values");
        match text(expression, "operator") {
            "In" | "NotIn" if values.is_empty() => errors.push(FieldError::required(
                &path.child("values"),
                "must be specified when `operator` is 'In' or 'NotIn'",
            )),
            "Exists" | "DoesNotExist" if !values.is_empty() => errors.push(FieldError::forbidden(
                &path.child("values"),
                "may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
            )),
            "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
            other => errors.push(FieldError::invalid(&path.child("operator"), other, "not a valid selector operator")),
        }
        named(errors, &path.child("key"), text(expression, "key"), names::is_qualified_name);
        for (index, value) in values.iter().enumerate() {
            named(errors, &path.child("values").index(index), value, names::is_valid_label_value);
        }
    }
}

pub(super) fn is_selector_valid(value: &Value) -> bool {
    let mut errors = Vec::new();
    selector(&mut errors, value, &FieldPath::root());
    errors.is_empty()
}

/// Whether a valid selector selects these labels. An absent selector selects nothing.
pub(super) fn selects(selector: Option<&Value>, labels: Option<&Value>) -> bool {
    let Some(selector) = selector else { return false };
    let label = |key: &str| labels.and_then(|l| l.get(key)).and_then(Value::as_str);
    let all_equal = map(selector, "matchLabels").into_iter().flatten().all(|(key, value)| label(key) == value.as_str());
    all_equal
        && list(selector, "matchExpressions").iter().all(|expression| {
            let found = label(text(expression, "key"));
            let is_listed = found.is_some_and(|value| strings(expression, "values").contains(&value));
            match text(expression, "operator") {
                "In" => is_listed,
                "NotIn" => !is_listed,
                "Exists" => found.is_some(),
                _ => found.is_none(),
            }
        })
}

pub(super) fn is_empty_selector(selector: &Value) -> bool {
    map(selector, "matchLabels").is_none_or(serde_json::Map::is_empty) && list(selector, "matchExpressions").is_empty()
}

/// The quantity at a path, if it is one.
pub(super) fn quantity(value: &Value) -> Option<Quantity> {
    match value {
        Value::String(text) => Quantity::parse(text).ok(),
        Value::Number(number) => Quantity::parse(&number.to_string()).ok(),
        _ => None,
    }
}

/// Quantities print as text.
pub(super) fn quantity_text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

pub(super) fn not_negative_quantity(errors: &mut FieldErrors, path: &FieldPath, value: &Value) {
    if quantity(value).is_some_and(|quantity| quantity.as_f64() < 0.0) {
        errors.push(FieldError::invalid(path, quantity_text(value), NOT_NEGATIVE));
    }
}

/// A number, or a percentage of something.
pub(super) fn number_or_percent(errors: &mut FieldErrors, path: &FieldPath, value: &Value) {
    const BAD_PERCENT: &str = "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  \
                               or '93%', regex used for validation is '[0-9]+%')";
    match value {
        Value::String(text) if percent(text).is_none() => {
            errors.push(FieldError::invalid(path, text.as_str(), BAD_PERCENT));
        }
        Value::Number(number) if number.as_i64().is_some_and(|n| n < 0) => {
            errors.push(FieldError::invalid(path, value.clone(), NOT_NEGATIVE));
        }
        _ => {}
    }
}

pub(super) fn percent(text: &str) -> Option<u64> {
    let digits = text.strip_suffix('%')?;
    let is_number = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    if is_number { digits.parse().ok() } else { None }
}

pub(super) fn at_most_all(errors: &mut FieldErrors, path: &FieldPath, value: &Value) {
    if value.as_str().and_then(percent).is_some_and(|percent| percent > 100) {
        errors.push(FieldError::invalid(path, value.clone(), "must not be greater than 100%"));
    }
}

/// `field` may not differ from what it was.
pub(super) fn unchanged(errors: &mut FieldErrors, new: &Value, old: &Value, path: &str) {
    if get(new, path) != get(old, path) {
        let value = get(new, path).cloned().unwrap_or(Value::Null);
        errors.push(FieldError::invalid(&FieldPath::new(path), value, IMMUTABLE));
    }
}
