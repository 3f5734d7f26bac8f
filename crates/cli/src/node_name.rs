//! What this machine is called as a node.

/// As a label's value and as part of a DNS name: the stricter of both.
const MAX: usize = 63;

pub(crate) fn is_valid(name: &str) -> bool {
    let is_edge = |byte: Option<u8>| byte.is_some_and(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
    let is_part = |part: &str| is_edge(part.bytes().next()) && is_edge(part.bytes().last());
    let is_inside = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.".contains(&byte);
    name.len() <= MAX && name.bytes().all(is_inside) && name.split('.').all(is_part)
}

/// The host's name, made valid if it is not.
pub(crate) fn of_host() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    made_valid(name.trim())
}

fn made_valid(name: &str) -> String {
    let allowed = |c: char| if c.is_ascii_alphanumeric() || c == '.' { c.to_ascii_lowercase() } else { '-' };
    let mapped: String = name.chars().take(MAX).map(allowed).collect();
    let parts: Vec<&str> =
        mapped.split('.').map(|part| part.trim_matches('-')).filter(|part| !part.is_empty()).collect();
    if parts.is_empty() { "croft".to_owned() } else { parts.join(".") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_hosts_become_names_of_nodes() {
        for (host, node) in [
            ("server-1.example.org", "server-1.example.org"),
            ("My_Host", "my-host"),
            ("-a-..b", "a.b"),
            ("", "croft"),
            ("(none)", "none"),
            ("___", "croft"),
        ] {
            assert_eq!(made_valid(host), node);
            assert!(is_valid(node));
        }
        assert!(is_valid(&made_valid(&"x".repeat(70))));
        for bad in ["", "A", "a_b", "-a", "a.", ".a", "a..b", "a.-b", &"a".repeat(64)] {
            assert!(!is_valid(bad), "{bad}");
        }
    }
}
