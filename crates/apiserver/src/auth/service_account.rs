//! How service accounts are named as users and groups.

use croft_meta::names::{is_dns1123_label, is_dns1123_subdomain};

const PREFIX: &str = "system:serviceaccount:";

/// `system:serviceaccount:<namespace>:<name>`.
pub(crate) fn username(namespace: &str, name: &str) -> String {
    format!("{PREFIX}{namespace}:{name}")
}

/// The namespace and name in such a user name.
pub(crate) fn split_username(username: &str) -> Option<(&str, &str)> {
    let (namespace, name) = username.strip_prefix(PREFIX)?.split_once(':')?;
    let valid = is_dns1123_label(namespace).is_empty() && is_dns1123_subdomain(name).is_empty();
    valid.then_some((namespace, name))
}

/// The groups of every service account in a namespace.
pub(crate) fn groups(namespace: &str) -> Vec<String> {
    vec!["system:serviceaccounts".to_owned(), format!("system:serviceaccounts:{namespace}")]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usernames_split_only_when_well_formed() {
        assert_eq!(split_username(&username("ns", "a.b")), Some(("ns", "a.b")));
        for bad in [
            "bob",
            "system:serviceaccount:ns",
            "system:serviceaccount:ns:a:b",
            "system:serviceaccount::a",
            "system:serviceaccount:NS:a",
            "system:serviceaccount:n.s:a",
            "system:serviceaccount:ns:",
        ] {
            assert_eq!(split_username(bad), None, "{bad}");
        }
    }
}
