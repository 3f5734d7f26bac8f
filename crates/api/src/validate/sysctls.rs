//! The kernel parameters that a pod wants to have set.

use std::collections::BTreeSet;

use croft_meta::{FieldError, FieldErrors, FieldPath};
use serde_json::Value;

use crate::view::text;

const MAX_LENGTH: usize = 253;
/// Upstream's pattern, which it shows to the client.
const PATTERN: &str = r"^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$";

pub(super) fn validate(errors: &mut FieldErrors, all: &[Value], path: &FieldPath) {
    let mut seen = BTreeSet::new();
    for (index, sysctl) in all.iter().enumerate() {
        let path = path.index(index).child("name");
        let name = text(sysctl, "name");
        if name.is_empty() {
            errors.push(FieldError::required(&path, ""));
        } else if !is_name(name) {
            let why = format!("must have at most {MAX_LENGTH} characters and match regex {PATTERN}");
            errors.push(FieldError::invalid(&path, name, why));
        } else if seen.contains(name) {
            errors.push(FieldError::duplicate(&path, name));
        }
        seen.insert(name);
    }
}

fn is_name(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let is_segment = |segment: &str| {
        let bytes = segment.as_bytes();
        bytes.iter().all(|byte| is_plain(*byte) || matches!(byte, b'-' | b'_'))
            && [bytes.first(), bytes.last()].iter().all(|end| end.is_some_and(|byte| is_plain(*byte)))
    };
    name.len() <= MAX_LENGTH && name.split(['.', '/']).all(is_segment)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn names_are_lower_case_segments() {
        let long = "a".repeat(MAX_LENGTH + 1);
        for name in ["a", "a.b", "kernel.shm_rmid_forced", "net/ipv4/conf/eth0.100/a", "safe-and-unsafe", &long[1..]] {
            assert!(is_name(name), "{name}");
        }
        for name in ["", "foo-", "bar..", ".a", "a.", "-a", "a_.b", "A", "a b", "ä", "a*", &long] {
            assert!(!is_name(name), "{name}");
        }
    }

    #[test]
    fn each_is_named_once() {
        let all = json!([{"name": "a"}, {"name": "foo-"}, {"name": "a"}, {"value": "1"}]);
        let mut errors = Vec::new();
        validate(&mut errors, all.as_array().unwrap(), &FieldPath::new("s"));
        let shown: Vec<String> = errors.iter().map(ToString::to_string).collect();
        let pattern =
            format!("s[1].name: Invalid value: \"foo-\": must have at most 253 characters and match regex {PATTERN}");
        assert_eq!(shown, [&pattern, "s[2].name: Duplicate value: \"a\"", "s[3].name: Required value"]);
    }
}
