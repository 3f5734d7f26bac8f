//! Removes requests that nobody needs any longer, after upstream's times.

use std::sync::Arc;
use std::time::Duration;

use base64::{Engine, prelude::BASE64_STANDARD};
use croft_meta::{Gvk, object, time};
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::{COLLECTION, GROUP, condition, conditions, text};
use crate::call::{Call, Target};
use crate::server::ApiServer;

/// How often they are looked at. Upstream looks every hour.
pub(super) const INTERVAL: Duration = Duration::from_mins(10);
const DECIDED: SignedDuration = SignedDuration::from_hours(1);
const PENDING: SignedDuration = SignedDuration::from_hours(24);

pub(super) async fn sweep(server: &Arc<ApiServer>, now: Timestamp) {
    let catalog = server.catalog();
    let Some(served) = catalog.find_kind(&Gvk::new(GROUP, "v1", "CertificateSigningRequest")) else { return };
    for found in server.cache.collection(COLLECTION).list("") {
        let request = found.json();
        if !is_over(&request, now) {
            continue;
        }
        let target = Target::new(served.clone(), "", object::name(&request));
        match crate::verbs::delete::delete(&Call::internal(server, &target), &target).await {
            Ok(_) => tracing::info!(request = target.name, "certificate request removed: it is over"),
            Err(error) if error.code() == 404 => {}
            Err(error) => tracing::warn!(request = target.name, %error, "an old certificate request stays"),
        }
    }
}

fn is_over(request: &Value, now: Timestamp) -> bool {
    let older = |time: &str, age: SignedDuration| time::parse(time).is_ok_and(|time| now.duration_since(time) > age);
    let is_old =
        |kind: &str| condition(request, kind).is_some_and(|found| older(text(found, "/lastUpdateTime"), DECIDED));
    if conditions(request).is_empty() {
        return older(text(request, "/metadata/creationTimestamp"), PENDING);
    }
    if is_old("Denied") || is_old("Failed") {
        return true;
    }
    let certificate = text(request, "/status/certificate");
    !certificate.is_empty() && (is_old("Approved") || has_ended(certificate, now))
}

fn has_ended(certificate: &str, now: Timestamp) -> bool {
    let pem = BASE64_STANDARD.decode(certificate).unwrap_or_default();
    croft_pki::ca::pem_end(&pem).is_some_and(|end| end < now)
}

#[cfg(test)]
mod tests {
    use croft_pki::signing_request::{Purpose, make};
    use croft_pki::{Ca, SigningRequest};
    use serde_json::json;

    use super::*;

    #[test]
    fn requests_end_after_upstreams_times() {
        let at = |text: &str| text.parse::<Timestamp>().unwrap();
        let made = at("2026-01-01T00:00:00Z");
        let dir = tempfile::tempdir().unwrap();
        let ca = Ca::load_or_create(dir.path(), made).unwrap();
        let parsed = SigningRequest::parse(make("jane", &[]).unwrap().0.as_bytes()).unwrap();
        let short = ca.sign(&parsed, Purpose::Client, true, Duration::from_mins(10), made).unwrap();
        let long = ca.sign(&parsed, Purpose::Client, true, Duration::from_hours(24), made).unwrap();
        let request = |kind: &str, certificate: &str| {
            let decided = json!([{"type": kind, "status": "True", "lastUpdateTime": "2026-01-01T00:00:00Z"}]);
            json!({
                "metadata": {"creationTimestamp": "2026-01-01T00:00:00Z"},
                "status": {
                    "conditions": if kind.is_empty() { json!([]) } else { decided },
                    "certificate": BASE64_STANDARD.encode(certificate),
                },
            })
        };
        for (request, last, first) in [
            (request("", ""), "2026-01-02T00:00:00Z", Some("2026-01-02T00:00:01Z")),
            (request("Denied", ""), "2026-01-01T01:00:00Z", Some("2026-01-01T01:00:01Z")),
            (request("Failed", ""), "2026-01-01T01:00:00Z", Some("2026-01-01T01:00:01Z")),
            (request("Approved", &long), "2026-01-01T01:00:00Z", Some("2026-01-01T01:00:01Z")),
            (request("Approved", &short), "2026-01-01T00:10:00Z", Some("2026-01-01T00:10:01Z")),
            // Approved, and its signer has not come round yet.
            (request("Approved", ""), "2027-01-01T00:00:00Z", None),
        ] {
            assert!(!is_over(&request, at(last)), "{request}");
            assert!(first.is_none_or(|first| is_over(&request, at(first))), "{request}");
        }
    }
}
