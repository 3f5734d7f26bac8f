//! Certificate signing requests: what may be asked for, and what becomes of it.
//!
//! The signature of the request is for those to check who have the means (`apiserver::signing`); here is what can be seen.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use croft_meta::{FieldError, FieldErrors, FieldPath, names};
use serde_json::Value;

use super::checks::one_of;
use super::spec;
use crate::view::{int, list, strings, text};

/// Conditions that say what became of the request. They are true or not there, and they stay.
const FINAL: [&str; 3] = ["Approved", "Denied", "Failed"];

pub(super) fn create(object: &Value) -> FieldErrors {
    let mut errors = Vec::new();
    let request = text(object, "spec.request");
    if !is_request(&BASE64_STANDARD.decode(request).unwrap_or_default()) {
        let text = "PEM block type must be CERTIFICATE REQUEST";
        errors.push(FieldError::invalid(&spec().child("request"), request, text));
    }
    let usages = strings(object, "spec.usages");
    let path = spec().child("usages");
    if usages.is_empty() {
        errors.push(FieldError::required(&path, "usages is required"));
    }
    for (index, usage) in usages.iter().enumerate() {
        one_of(&mut errors, &path.index(index), usage, USAGES);
        if usages[..index].contains(usage) {
            errors.push(FieldError::duplicate(&path.index(index), *usage));
        }
    }
    let signer = text(object, "spec.signerName");
    let path = spec().child("signerName");
    if signer.is_empty() {
        errors.push(FieldError::required(&path, ""));
    } else if signer == "kubernetes.io/legacy-unknown" {
        let text = "the legacy signerName is not allowed via this API version";
        errors.push(FieldError::invalid(&path, signer, text));
    } else {
        let is_qualified = signer.split_once('/').is_some_and(|(domain, rest)| {
            domain.contains('.') && names::is_dns1123_subdomain(domain).is_empty() && !rest.is_empty()
        });
        if !is_qualified {
            let text = "must be a fully qualified domain and path of the form 'example.com/signer-name'";
            errors.push(FieldError::invalid(&path, signer, text));
        }
    }
    if let Some(seconds) = int(object, "spec.expirationSeconds").filter(|seconds| *seconds < 600) {
        let text = "may not specify a duration less than 600 seconds (10 minutes)";
        errors.push(FieldError::invalid(&spec().child("expirationSeconds"), seconds, text));
    }
    errors
}

/// The first block of the file is a request; anything may stand before it.
fn is_request(pem: &[u8]) -> bool {
    blocks(&String::from_utf8_lossy(pem)).next() == Some("CERTIFICATE REQUEST")
}

/// A change of `status` or of `approval`. Everybody else's business is put back before this.
pub(super) fn subresource(subresource: &str, new: &Value, old: &Value) -> FieldErrors {
    let path = FieldPath::new("status.conditions");
    let mut errors = conditions(&path, new, old);
    for kind in FINAL {
        if of(new, kind).count() < of(old, kind).count() {
            let text = format!("updates may not remove a condition of type {kind:?}");
            errors.push(FieldError::forbidden(&path, text));
        }
    }
    if subresource != "approval" {
        errors.extend(FINAL[..2].iter().filter_map(|kind| decided_elsewhere(&path, kind, new, old)));
    }
    let (given, had) = (text(new, "status.certificate"), text(old, "status.certificate"));
    let path = FieldPath::new("status.certificate");
    if given != had && !had.is_empty() {
        errors.push(FieldError::forbidden(&path, "updates may not modify existing certificate content"));
    }
    if given != had && !given.is_empty() {
        let pem = BASE64_STANDARD.decode(given).unwrap_or_default();
        errors.extend(not_certificates(&pem).map(|why| FieldError::invalid(&path, "<certificate data>", why)));
    }
    errors
}

fn not_certificates(pem: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(pem);
    let mut kinds = blocks(&text).peekable();
    if kinds.peek().is_none() {
        return Some("must contain at least one CERTIFICATE PEM block".to_owned());
    }
    let other = kinds.find(|kind| *kind != "CERTIFICATE")?;
    Some(format!("only CERTIFICATE PEM blocks are allowed, found {other:?}"))
}

/// What the blocks of a file in PEM are.
fn blocks(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter_map(|line| line.strip_prefix("-----BEGIN ")?.trim_end().strip_suffix("-----"))
}

/// Whoever signs does not decide whether to.
fn decided_elsewhere(path: &FieldPath, kind: &str, new: &Value, old: &Value) -> Option<FieldError> {
    let (now, before) = (of(new, kind).count(), of(old, kind).count());
    let what = if now > before {
        "add"
    } else if now == before && !of(new, kind).eq(of(old, kind)) {
        "modify"
    } else {
        return None;
    };
    Some(FieldError::forbidden(path, format!("updates may not {what} a condition of type {kind:?}")))
}

fn of<'a>(request: &'a Value, kind: &str) -> impl Iterator<Item = &'a Value> {
    list(request, "status.conditions").iter().filter(move |condition| text(condition, "type") == kind)
}

fn conditions(path: &FieldPath, new: &Value, old: &Value) -> FieldErrors {
    let mut errors = Vec::new();
    let was_both = of(old, "Approved").next().is_some() && of(old, "Denied").next().is_some();
    let mut seen: Vec<&str> = Vec::new();
    for (index, condition) in list(new, "status.conditions").iter().enumerate() {
        let (path, kind) = (path.index(index), text(condition, "type"));
        if kind.is_empty() {
            errors.push(FieldError::required(&path.child("type"), ""));
        }
        let allowed: &[&str] = if FINAL.contains(&kind) { &["True"] } else { &["False", "True", "Unknown"] };
        match text(condition, "status") {
            "" => errors.push(FieldError::required(&path.child("status"), "")),
            status => one_of(&mut errors, &path.child("status"), status, allowed),
        }
        let opposite = match kind {
            "Approved" => "Denied",
            "Denied" => "Approved",
            _ => "",
        };
        if !opposite.is_empty() && seen.contains(&opposite) && !was_both {
            let text = "Approved and Denied conditions are mutually exclusive";
            errors.push(FieldError::invalid(&path.child("type"), kind, text));
        }
        if seen.contains(&kind) {
            errors.push(FieldError::duplicate(&path.child("type"), kind));
        }
        seen.push(kind);
    }
    errors
}

const USAGES: &[&str] = &[
    "any",
    "cert sign",
    "client auth",
    "code signing",
    "content commitment",
    "crl sign",
    "data encipherment",
    "decipher only",
    "digital signature",
    "email protection",
    "encipher only",
    "ipsec end system",
    "ipsec tunnel",
    "ipsec user",
    "key agreement",
    "key encipherment",
    "microsoft sgc",
    "netscape sgc",
    "ocsp signing",
    "s/mime",
    "server auth",
    "signing",
    "timestamping",
];

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn with(conditions: &[(&str, &str)], certificate: &str) -> Value {
        let conditions: Vec<Value> =
            conditions.iter().map(|(kind, status)| json!({"type": kind, "status": status})).collect();
        json!({"status": {"conditions": conditions, "certificate": certificate}})
    }

    #[test]
    fn what_was_decided_stays_decided() {
        let (none, approved) = (with(&[], ""), with(&[("Approved", "True")], ""));
        let denied = with(&[("Denied", "True")], "");
        let certificate = BASE64_STANDARD.encode("-----BEGIN CERTIFICATE-----\nYQ==\n-----END CERTIFICATE-----\n");
        let key = BASE64_STANDARD.encode("-----BEGIN PRIVATE KEY-----\nYQ==\n");
        let table: [(&str, &Value, Value, &[&str]); 14] = [
            ("approval", &none, approved.clone(), &[]),
            ("approval", &none, denied.clone(), &[]),
            ("approval", &approved, approved.clone(), &[]),
            ("approval", &approved, denied.clone(), &["updates may not remove a condition of type \"Approved\""]),
            ("approval", &none, with(&[("Approved", "False")], ""), &["supported values: \"True\""]),
            ("approval", &none, with(&[("Approved", "")], ""), &["Required value"]),
            ("approval", &none, with(&[("Approved", "True"), ("Denied", "True")], ""), &["mutually exclusive"]),
            ("approval", &none, with(&[("Approved", "True"), ("Approved", "True")], ""), &["Duplicate value"]),
            ("status", &none, approved.clone(), &["updates may not add a condition of type \"Approved\""]),
            ("status", &approved, with(&[("Approved", "True"), ("Failed", "True")], ""), &[]),
            ("status", &with(&[], "YQ=="), with(&[], &certificate), &["may not modify existing certificate content"]),
            ("status", &none, with(&[], &certificate), &[]),
            ("status", &none, with(&[], "YQ=="), &["must contain at least one CERTIFICATE PEM block"]),
            ("status", &none, with(&[], &key), &["only CERTIFICATE PEM blocks are allowed, found \"PRIVATE KEY\""]),
        ];
        for (name, old, new, expected) in table {
            let errors: Vec<String> = subresource(name, &new, old).iter().map(ToString::to_string).collect();
            assert_eq!(errors.len(), expected.len(), "{new}: {errors:?}");
            assert!(errors.iter().zip(expected).all(|(error, text)| error.contains(text)), "{errors:?}");
        }
    }

    #[test]
    fn text_before_the_request_does_no_harm() {
        for (pem, good) in [
            ("-----BEGIN CERTIFICATE REQUEST-----\nYQ==", true),
            ("Certificate Request:\n  Data\n-----BEGIN CERTIFICATE REQUEST-----\nYQ==", true),
            ("-----BEGIN CERTIFICATE-----\nYQ==\n-----BEGIN CERTIFICATE REQUEST-----\nYQ==", false),
            ("", false),
        ] {
            assert_eq!(is_request(pem.as_bytes()), good, "{pem}");
        }
    }
}
