//! Small values that are written as text.

use croft_api::cron::Cron;
use croft_meta::{GroupVersion, Quantity, names, time as times};
use jiff::Timestamp;

use crate::{split, text};

/// A quantity prints in a form that reads as the same amount, and printing that again changes nothing.
pub(crate) fn quantity(data: &[u8]) {
    let [first, second] = split(data);
    let (Some(first), Some(second)) = (text(first), text(second)) else { return };
    let Ok(one) = Quantity::parse(first) else { return };
    let printed = one.to_string();
    let again = Quantity::parse(&printed).unwrap_or_else(|error| panic!("{printed:?} from {first:?}: {error}"));
    assert_eq!(again, one, "{first:?} printed as {printed:?}");
    assert_eq!(again.to_string(), printed, "{first:?}");
    assert_eq!((again.value(), again.milli_value()), (one.value(), one.milli_value()), "{first:?}");
    assert!(!one.as_f64().is_nan(), "{first:?}");
    let Ok(other) = Quantity::parse(second) else { return };
    assert_eq!(one.cmp(&other), other.cmp(&one).reverse(), "{first:?} {second:?}");
    let (sum, difference) = (&one + &other, &one - &other);
    assert!(Quantity::parse(&sum.to_string()).is_ok(), "{first:?} + {second:?} = {sum}");
    assert!(Quantity::parse(&difference.to_string()).is_ok(), "{first:?} - {second:?} = {difference}");
}

/// A time prints in a form that reads as the same moment, to the precision of that form.
pub(crate) fn time(data: &[u8]) {
    let Some(text) = text(data) else { return };
    if let Ok(moment) = times::parse(text) {
        let printed = times::format_seconds(moment);
        let again = times::parse(&printed).unwrap_or_else(|error| panic!("{printed:?} from {text:?}: {error}"));
        assert_eq!(times::format_seconds(again), printed, "{text:?}");
    }
    if let Ok(moment) = times::parse_micros(text) {
        let printed = times::format_micros(moment);
        let again = times::parse_micros(&printed).unwrap_or_else(|error| panic!("{printed:?} from {text:?}: {error}"));
        assert_eq!(times::format_micros(again), printed, "{text:?}");
    }
}

/// A name that passes as one of the narrower kinds passes as the wider ones; none has a separator of paths in it.
pub(crate) fn names(data: &[u8]) {
    let Some(text) = text(data) else { return };
    let passes = |check: fn(&str) -> Vec<String>| check(text).is_empty();
    if passes(names::is_dns1035_label) {
        assert!(passes(names::is_dns1123_label), "{text:?}");
    }
    if passes(names::is_dns1123_label) {
        assert!(passes(names::is_dns1123_subdomain) && passes(names::is_valid_label_value), "{text:?}");
    }
    if passes(names::is_dns1123_subdomain) {
        assert!(passes(names::is_path_segment_name), "{text:?}");
    }
    if passes(names::is_path_segment_name) || passes(names::is_config_map_key) {
        assert!(!text.contains('/') && text != "." && text != "..", "{text:?}");
    }
    if passes(names::is_env_var_name) {
        assert!(passes(names::is_relaxed_env_var_name), "{text:?}");
    }
    names::is_qualified_name(text);
    if let Some(version) = GroupVersion::parse(text) {
        assert_eq!(GroupVersion::parse(&version.to_string()), Some(version), "{text:?}");
    }
    let redacted = croft_meta::redact::text(text);
    assert!(redacted.len() <= 16 * (text.len() + 1), "{text:?}");
}

/// The next time of a schedule is after the one asked about, and is one of its times.
pub(crate) fn cron(data: &[u8]) {
    let Some(text) = text(data) else { return };
    let Some(schedule) = Cron::parse(text) else { return };
    for seconds in [0, 951_782_400, 4_102_444_799] {
        let Ok(from) = Timestamp::from_second(seconds) else { continue };
        let Some(next) = schedule.next_after(from) else { continue };
        assert!(next > from, "{text:?}: {next} is not after {from}");
        assert!(schedule.fires_in(next), "{text:?}: {next} is none of its times");
    }
    schedule.gap();
}
