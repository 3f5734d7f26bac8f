//! The URI of a request, without what is secret in it.

use super::event::short;
use crate::request::percent_decode;

const LONGEST: usize = 2_048;
const BLANK: &str = "***";
/// A parameter whose name has one of these in it is not written down.
const SECRETS: [&str; 10] =
    ["token", "ticket", "password", "passwd", "secret", "credential", "signature", "auth", "key", "cookie"];

/// Path and query; values that may be secret are blanked.
pub(super) fn blanked(uri: &http::Uri) -> String {
    let path = uri.path();
    let Some(query) = uri.query() else { return short(path, LONGEST) };
    let mut text = format!("{path}?");
    // Some servers take a semicolon for a separator; whoever wrote the URI may have thought of one.
    for pair in query.split_inclusive(['&', ';']) {
        let (body, separator) = match pair.strip_suffix(['&', ';']) {
            Some(body) => (body, &pair[body.len()..]),
            None => (pair, ""),
        };
        match body.split_once('=') {
            Some((key, value)) if is_secret(key) && !value.is_empty() => {
                text.push_str(key);
                text.push('=');
                text.push_str(BLANK);
            }
            _ => text.push_str(body),
        }
        text.push_str(separator);
    }
    short(&text, LONGEST)
}

fn is_secret(key: &str) -> bool {
    let key = percent_decode(key).to_ascii_lowercase();
    // Where a list goes on is no secret.
    key != "continue" && SECRETS.iter().any(|word| key.contains(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_blanked() {
        for (uri, expected) in [
            ("/api/v1/pods", "/api/v1/pods"),
            ("/a?dryRun=All&force=true", "/a?dryRun=All&force=true"),
            ("/a?token=s3cret&b=1", "/a?token=***&b=1"),
            ("/a?b=1;ticket=s3cret", "/a?b=1;ticket=***"),
            ("/a?X-Amz-Signature=s3cret", "/a?X-Amz-Signature=***"),
            ("/a?access%5Ftoken=s3cret", "/a?access%5Ftoken=***"),
            ("/a?%74oken=s3cret", "/a?%74oken=***"),
            ("/a?token=", "/a?token="),
            ("/a?token&b", "/a?token&b"),
            ("/a?action=logout", "/a?action=logout"),
        ] {
            assert_eq!(blanked(&uri.parse().unwrap()), expected);
        }
        let long = format!("/{}", "a".repeat(10_000));
        assert_eq!(blanked(&long.parse().unwrap()).chars().count(), LONGEST + 1);
    }
}
