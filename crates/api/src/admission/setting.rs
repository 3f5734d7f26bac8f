//! Settings: what may be written into those that Croft acts on.

use croft_meta::{ApiError, FieldPath};
use serde_json::Value;

use super::denial::{Denial, refuse};
use super::machine::HARVESTER;
use super::{Admission, Lookup};
use crate::harvester::settings;
use crate::view::text;

pub(super) fn admit(admission: &mut Admission<'_>) -> Result<(), ApiError> {
    let name = text(admission.object, "metadata.name").to_owned();
    for field in ["value", "default"] {
        let value = text(admission.object, field);
        let before = admission.old.map(|old| text(old, field));
        if value.is_empty() || before == Some(value) {
            continue;
        }
        if name == settings::SERVER_VERSION && field == "value" && !admission.is_internal {
            return Err(refuse(HARVESTER, 405, "MethodNotAllowed", "server-version cannot be changed"));
        }
        if let Err(problem) = check(&name, value) {
            let mut denial = Denial::by(HARVESTER);
            denial.invalid(&FieldPath::new(field), problem);
            return denial.finish();
        }
    }
    Ok(())
}

fn check(name: &str, value: &str) -> Result<(), String> {
    match name {
        "overcommit-config" => overcommit(value),
        "additional-guest-memory-overhead-ratio" => ratio(value),
        "max-hotplug-ratio" => within(value, 1, 20),
        "default-vm-termination-grace-period-seconds" => within(value, 0, i64::MAX),
        "http-proxy" => proxy(value),
        "csi-online-expand-validation" => switches(value),
        "additional-ca" => certificates(value),
        "log-level" => {
            let known = ["panic", "fatal", "error", "warn", "info", "debug", "trace"];
            if known.contains(&value) { Ok(()) } else { Err(format!("invalid log level {value}")) }
        }
        _ => Ok(()),
    }
}

fn object(value: &str) -> Result<serde_json::Map<String, Value>, String> {
    serde_json::from_str(value).map_err(|error| format!("Invalid JSON: {error}"))
}

fn overcommit(value: &str) -> Result<(), String> {
    for (name, percent) in object(value)? {
        let Some(percent) = percent.as_i64().filter(|_| ["cpu", "memory", "storage"].contains(&name.as_str())) else {
            return Err(format!("Invalid JSON: unknown field or value for {name}"));
        };
        if percent < 100 {
            return Err(format!("Cannot undercommit. Should be greater than or equal to 100 but got {percent}"));
        }
    }
    Ok(())
}

/// Zero, or how many times the usual overhead.
fn ratio(value: &str) -> Result<(), String> {
    let number: f64 = value.trim().parse().map_err(|_| format!("{value} is not a number"))?;
    if number == 0.0 || (1.0..=10.0).contains(&number) {
        return Ok(());
    }
    Err(format!("{value} is out of range: 0, or 1.0 to 10.0"))
}

fn within(value: &str, least: i64, most: i64) -> Result<(), String> {
    let number: i64 = value.parse().map_err(|_| format!("{value} is not a whole number"))?;
    if (least..=most).contains(&number) {
        return Ok(());
    }
    Err(if most == i64::MAX {
        format!("{number} can't be negative")
    } else {
        format!("{number} is out of range: {least} to {most}")
    })
}

fn proxy(value: &str) -> Result<(), String> {
    for (name, address) in object(value)? {
        let Some(address) = address.as_str() else { return Err(format!("{name} should be a text")) };
        match name.as_str() {
            "noProxy" => {}
            "httpProxy" | "httpsProxy" => {
                let is_address = ["http://", "https://"].iter().any(|scheme| address.starts_with(scheme));
                if !address.is_empty() && !is_address {
                    return Err(format!("{name} should start with http:// or https://"));
                }
            }
            _ => return Err(format!("unknown field {name}")),
        }
    }
    Ok(())
}

fn switches(value: &str) -> Result<(), String> {
    match object(value)?.into_iter().find(|(_, switch)| !switch.is_boolean()) {
        Some((name, _)) => Err(format!("{name} should be true or false")),
        None => Ok(()),
    }
}

/// At least one certificate, and nothing else of the kind (a private key would become public).
fn certificates(value: &str) -> Result<(), String> {
    let begins: Vec<&str> = value.lines().filter(|line| line.starts_with("-----BEGIN ")).collect();
    let is_certificate = |line: &&str| line.trim_end() == "-----BEGIN CERTIFICATE-----";
    if begins.is_empty() || !begins.iter().all(is_certificate) {
        return Err("failed to parse PEM certificates".to_owned());
    }
    Ok(())
}

/// Settings are changed, never removed.
pub(super) fn admit_delete(setting: &Value, _: &dyn Lookup) -> Result<(), ApiError> {
    let name = text(setting, "metadata.name");
    if settings::default_of(name).is_none() {
        return Ok(());
    }
    Err(refuse(HARVESTER, 405, "MethodNotAllowed", &format!("Disallow delete setting name {name}")))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::testing::{admitted, nothing, refusal};
    use super::*;

    #[test]
    fn values_that_croft_could_not_use_are_refused() {
        let cases = [
            (
                "overcommit-config",
                r#"{"cpu":99}"#,
                "Cannot undercommit. Should be greater than or equal to 100 but got 99",
            ),
            ("overcommit-config", "x", "Invalid JSON"),
            ("max-hotplug-ratio", "21", "out of range"),
            ("additional-guest-memory-overhead-ratio", "0.5", "out of range"),
            ("default-vm-termination-grace-period-seconds", "-1", "can't be negative"),
            ("http-proxy", r#"{"httpProxy":"proxy:1"}"#, "should start with http://"),
            ("csi-online-expand-validation", r#"{"a":1}"#, "should be true or false"),
            ("additional-ca", "-----BEGIN PRIVATE KEY-----", "failed to parse PEM certificates"),
        ];
        for (name, value, message) in cases {
            let error = refusal(admit, json!({"metadata": {"name": name}, "value": value}));
            assert!(error.message().contains(message), "{name}: {error}");
            assert_eq!(error.details().unwrap().causes[0].field, "value");
        }
    }

    #[test]
    fn every_default_is_accepted() {
        for (name, default) in settings::ALL {
            admitted(admit, json!({"metadata": {"name": name}, "default": default}));
        }
    }

    #[test]
    fn known_settings_stay() {
        let error = admit_delete(&json!({"metadata": {"name": "http-proxy"}}), &nothing()).unwrap_err();
        assert_eq!((error.code(), error.reason()), (405, "MethodNotAllowed"));
        assert!(admit_delete(&json!({"metadata": {"name": "left-over"}}), &nothing()).is_ok());
    }
}
