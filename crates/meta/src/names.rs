//! The rules for names, label keys and values, and other short strings, with upstream's wording.
//!
//! Each `is_…` function returns what is wrong; an empty list means valid. The metadata of whole
//! objects is checked by [`validate_object_meta`] and [`validate_object_meta_update`].

mod object_meta;

pub use object_meta::{
    validate_annotations, validate_field_manager, validate_labels, validate_object_meta, validate_object_meta_update,
};

const DNS1123_LABEL: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";
const DNS1123_SUBDOMAIN: &str = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*";
const DNS1035_LABEL: &str = "[a-z]([-a-z0-9]*[a-z0-9])?";
const QUALIFIED_NAME: &str = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]";
const QUALIFIED_NAME_TEXT: &str = "must consist of alphanumeric characters, '-', '_' or '.', \
     and must start and end with an alphanumeric character";
const LABEL_MAX: usize = 63;
const SUBDOMAIN_MAX: usize = 253;

/// A rule for the names of one kind of object, such as [`is_dns1123_subdomain`].
pub type NameRule = fn(&str) -> Vec<String>;

/// `must be no more than N characters`.
fn too_long(max: usize) -> String {
    format!("must be no more than {max} characters")
}

/// Upstream explains a failed pattern with examples and the pattern itself.
fn pattern_error(text: &str, pattern: &str, examples: &[&str]) -> String {
    if examples.is_empty() {
        return format!("{text} (regex used for validation is '{pattern}')");
    }
    let examples: Vec<String> = examples.iter().map(|example| format!("'{example}', ")).collect();
    format!("{text} (e.g. {}regex used for validation is '{pattern}')", examples.join(" or "))
}

fn is_lower_alphanumeric(b: u8) -> bool {
    b.is_ascii_lowercase() || b.is_ascii_digit()
}

/// Both ends satisfy `end`, everything between satisfies `inner`; never empty.
fn is_framed(text: &str, end: fn(u8) -> bool, inner: fn(u8) -> bool) -> bool {
    match text.as_bytes() {
        [] => false,
        [one] => end(*one),
        [first, middle @ .., last] => end(*first) && end(*last) && middle.iter().all(|b| inner(*b)),
    }
}

fn matches_label(text: &str) -> bool {
    is_framed(text, is_lower_alphanumeric, |b| is_lower_alphanumeric(b) || b == b'-')
}

fn matches_subdomain(text: &str) -> bool {
    text.split('.').all(matches_label)
}

fn matches_qualified(text: &str) -> bool {
    is_framed(text, |b| b.is_ascii_alphanumeric(), |b| b.is_ascii_alphanumeric() || b"-_.".contains(&b))
}

/// A DNS label as RFC 1123 has it: namespaces, services' ports and hosts.
pub fn is_dns1123_label(value: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if value.len() > LABEL_MAX {
        errors.push(too_long(LABEL_MAX));
    }
    if matches_label(value) {
        return errors;
    }
    if matches_subdomain(value) {
        errors.push("must not contain dots".to_owned());
    } else {
        errors.push(pattern_error(
            "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', \
             and must start and end with an alphanumeric character",
            DNS1123_LABEL,
            &["my-name", "123-abc"],
        ));
    }
    errors
}

/// Labels joined by dots: the rule for most names.
pub fn is_dns1123_subdomain(value: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if value.len() > SUBDOMAIN_MAX {
        errors.push(too_long(SUBDOMAIN_MAX));
    }
    if !matches_subdomain(value) {
        errors.push(pattern_error(
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', \
             and must start and end with an alphanumeric character",
            DNS1123_SUBDOMAIN,
            &["example.com"],
        ));
    }
    errors
}

/// A DNS label that starts with a letter: services.
pub fn is_dns1035_label(value: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if value.len() > LABEL_MAX {
        errors.push(too_long(LABEL_MAX));
    }
    if !matches_label(value) || !value.starts_with(|c: char| c.is_ascii_lowercase()) {
        errors.push(pattern_error(
            "a DNS-1035 label must consist of lower case alphanumeric characters or '-', \
             start with an alphabetic character, and end with an alphanumeric character",
            DNS1035_LABEL,
            &["my-name", "abc-123"],
        ));
    }
    errors
}

/// `name` or `prefix/name`: label and annotation keys, finalizers, condition types.
pub fn is_qualified_name(value: &str) -> Vec<String> {
    let explain = || pattern_error(QUALIFIED_NAME_TEXT, QUALIFIED_NAME, &["MyName", "my.name", "123-abc"]);
    let mut errors = Vec::new();
    let parts: Vec<&str> = value.split('/').collect();
    let name = match parts.as_slice() {
        [name] => name,
        [prefix, name] => {
            if prefix.is_empty() {
                errors.push("prefix part must be non-empty".to_owned());
            } else {
                errors.extend(is_dns1123_subdomain(prefix).into_iter().map(|e| format!("prefix part {e}")));
            }
            name
        }
        _ => {
            return vec![format!(
                "a qualified name {} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')",
                explain()
            )];
        }
    };
    if name.is_empty() {
        errors.push("name part must be non-empty".to_owned());
    } else if name.len() > LABEL_MAX {
        errors.push(format!("name part {}", too_long(LABEL_MAX)));
    }
    if !matches_qualified(name) {
        errors.push(format!("name part {}", explain()));
    }
    errors
}

/// A label's value, which may be empty.
pub fn is_valid_label_value(value: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if value.len() > LABEL_MAX {
        errors.push(too_long(LABEL_MAX));
    }
    if !value.is_empty() && !matches_qualified(value) {
        errors.push(pattern_error(
            "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', \
             and must start and end with an alphanumeric character",
            "(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?",
            &["MyValue", "my_value", "12345"],
        ));
    }
    errors
}

/// Anything that can stand as one segment of a URL path: RBAC names.
pub fn is_path_segment_name(value: &str) -> Vec<String> {
    if value == "." || value == ".." {
        return vec![format!("may not be '{value}'")];
    }
    ["/", "%"].iter().filter(|bad| value.contains(**bad)).map(|bad| format!("may not contain '{bad}'")).collect()
}

/// A key in the data of a ConfigMap or Secret.
pub fn is_config_map_key(value: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if value.len() > SUBDOMAIN_MAX {
        errors.push(too_long(SUBDOMAIN_MAX));
    }
    if value.is_empty() || !value.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b)) {
        errors.push(pattern_error(
            "a valid config key must consist of alphanumeric characters, '-', '_' or '.'",
            "[-._a-zA-Z0-9]+",
            &["key.name", "KEY_NAME", "key-name"],
        ));
    }
    errors.extend(parent_directory_error(value));
    errors
}

/// An environment variable's name by the older, strict rule.
pub fn is_env_var_name(value: &str) -> Vec<String> {
    let mut errors = Vec::new();
    let valid = !value.is_empty()
        && !value.starts_with(|c: char| c.is_ascii_digit())
        && value.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b));
    if !valid {
        errors.push(pattern_error(
            "a valid environment variable name must consist of alphabetic characters, digits, '_', '-', or '.', \
             and must not start with a digit",
            "[-._a-zA-Z][-._a-zA-Z0-9]*",
            &["my.env-name", "MY_ENV.NAME", "MyEnvName1"],
        ));
    }
    errors.extend(parent_directory_error(value));
    errors
}

/// An environment variable's name as containers may have it since 1.34.
pub fn is_relaxed_env_var_name(value: &str) -> Vec<String> {
    if value.is_empty() {
        return vec!["environment variable name must be non-empty".to_owned()];
    }
    if value.bytes().all(|b| (b' '..=b'~').contains(&b) && b != b'=') {
        return Vec::new();
    }
    vec!["a valid environment variable name must consist only of printable ASCII characters other than '='".to_owned()]
}

/// Keys become file names in mounted volumes, where `..` would climb out.
fn parent_directory_error(value: &str) -> Option<String> {
    match value {
        "." => Some("must not be '.'".to_owned()),
        ".." => Some("must not be '..'".to_owned()),
        _ if value.starts_with("..") => Some("must not start with '..'".to_owned()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn each_rule_accepts_what_upstream_accepts() {
        let cases: [(NameRule, &[&str], &[&str]); 8] = [
            (is_dns1123_label, &["a", "1a", "a-b"], &["", "-a", "a-", "A", "a.b", "a_b"]),
            (is_dns1123_subdomain, &["a", "a.b", "1.2"], &["", ".", "a.", ".a", "a..b", "a/b", "a-.b"]),
            (is_dns1035_label, &["a", "a1"], &["", "1a", "a-", "a.b"]),
            (is_qualified_name, &["a", "A.b_c-d", "x.io/A"], &["", "/a", "x.io/", "a/b/c", "X/a", "-a", "a b"]),
            (is_valid_label_value, &["", "a", "A_b.c-d"], &["-", "a b", "a-", "é"]),
            (is_path_segment_name, &["a:b", "...", ""], &[".", "..", "a/b", "a%b"]),
            (is_config_map_key, &["a", ".a", "A_b-c", "a.."], &["", ".", "..", "..a", "a b"]),
            (is_env_var_name, &["a", "_A", "a.b"], &["", "1a", "a=b", ".."]),
        ];
        for (rule, good, bad) in cases {
            for name in good {
                assert_eq!(rule(name), Vec::<String>::new(), "{name:?}");
            }
            for name in bad {
                assert_ne!(rule(name), Vec::<String>::new(), "{name:?}");
            }
        }
    }

    #[test]
    fn the_wording_is_upstreams() {
        assert_eq!(is_dns1123_label("a.b"), ["must not contain dots"]);
        assert_eq!(
            is_dns1123_subdomain("A"),
            [
                "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must \
              start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
              '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
            ]
        );
        assert_eq!(
            is_qualified_name("a b"),
            ["name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an \
              alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
              '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"]
        );
        assert_eq!(is_valid_label_value(&"a".repeat(64)), ["must be no more than 63 characters"]);
    }

    proptest! {
        #[test]
        fn a_label_is_a_subdomain_and_a_label_value(name in "[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?") {
            prop_assert!(is_dns1123_label(&name).is_empty());
            prop_assert!(is_dns1123_subdomain(&name).is_empty());
            prop_assert!(is_valid_label_value(&name).is_empty());
            prop_assert!(is_qualified_name(&name).is_empty());
        }

        #[test]
        fn no_rule_panics(name in ".*") {
            for rule in [is_dns1123_label, is_qualified_name, is_config_map_key, is_env_var_name] {
                rule(&name);
            }
        }
    }
}
