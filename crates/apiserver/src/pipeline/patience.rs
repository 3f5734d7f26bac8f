//! How long a request may take.

use std::time::Duration;

use croft_meta::ApiError;

use crate::request::Query;

/// Anything but a watch, the reading of its body included.
pub(super) const REQUEST_TIMEOUT: Duration = Duration::from_mins(1);

/// As long as the client is willing to wait (`?timeout=30s`), and no longer than any.
pub(super) fn of(query: &Query) -> Result<Duration, ApiError> {
    Ok(asked_timeout(query)?.map_or(REQUEST_TIMEOUT, |asked| asked.min(REQUEST_TIMEOUT)))
}

fn asked_timeout(query: &Query) -> Result<Option<Duration>, ApiError> {
    let Some(text) = query.get("timeout").filter(|text| !text.is_empty()) else { return Ok(None) };
    let asked = go_duration(text).ok_or_else(|| {
        ApiError::bad_request(format!("invalid timeout specified in the request URL - time: invalid duration {text:?}"))
    })?;
    Ok(Some(asked).filter(|asked| !asked.is_zero()))
}

/// `1h15m30.5s`, as Go writes durations.
fn go_duration(text: &str) -> Option<Duration> {
    let mut seconds = 0.0;
    let mut rest = text.strip_prefix('+').unwrap_or(text);
    if rest == "0" {
        return Some(Duration::ZERO);
    }
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, tail) = rest.split_at(digits);
        let letters = tail.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(letters);
        let scale = match unit {
            "ns" => 1e-9,
            "us" | "µs" => 1e-6,
            "ms" => 1e-3,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            _ => return None,
        };
        seconds += number.parse::<f64>().ok()? * scale;
        rest = tail;
    }
    if text.is_empty() { None } else { Duration::try_from_secs_f64(seconds).ok() }
}

pub(super) fn too_slow() -> ApiError {
    ApiError::timeout("request did not complete within the allotted timeout", 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_waits_longer_than_they_want_to_or_may() {
        for (asked, expected) in [
            ("", Some(REQUEST_TIMEOUT)),
            ("timeout=", Some(REQUEST_TIMEOUT)),
            ("timeout=0", Some(REQUEST_TIMEOUT)),
            ("timeout=1m30s", Some(REQUEST_TIMEOUT)),
            ("timeout=1.5s", Some(Duration::from_millis(1500))),
            ("timeout=%2B20ms", Some(Duration::from_millis(20))),
            ("timeout=5", None),
            ("timeout=soon", None),
        ] {
            assert_eq!(of(&Query::parse(Some(asked))).ok(), expected, "{asked}");
        }
    }
}
