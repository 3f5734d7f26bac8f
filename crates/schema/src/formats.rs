//! The string formats that custom resources may use, as kube-openapi's strfmt understands them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::LazyLock;

use regex::Regex;

type Check = fn(&str) -> bool;

/// By normalised name: without dashes.
const FORMATS: [(&str, Check); 24] = [
    ("bsonobjectid", |text| text.len() == 24 && text.bytes().all(|b| b.is_ascii_hexdigit())),
    ("uri", is_request_uri),
    ("email", is_email),
    ("hostname", is_hostname),
    ("ipv4", |text| text.parse::<Ipv4Addr>().is_ok()),
    ("ipv6", |text| text.parse::<Ipv6Addr>().is_ok()),
    ("cidr", is_cidr),
    ("mac", is_mac),
    ("uuid", |text| is_uuid(text, None, false)),
    ("uuid3", |text| is_uuid(text, Some('3'), false)),
    ("uuid4", |text| is_uuid(text, Some('4'), true)),
    ("uuid5", |text| is_uuid(text, Some('5'), true)),
    ("isbn", |text| is_isbn10(text) || is_isbn13(text)),
    ("isbn10", is_isbn10),
    ("isbn13", is_isbn13),
    ("creditcard", is_credit_card),
    ("ssn", |text| SSN.is_match(text)),
    ("hexcolor", |text| HEX_COLOR.is_match(text)),
    ("rgbcolor", |text| RGB_COLOR.is_match(text)),
    ("byte", |text| BASE64.is_match(text)),
    ("password", |_| true),
    ("date", is_date),
    ("duration", is_duration),
    ("datetime", is_date_time),
];

fn fixed(pattern: &str) -> Regex {
    Regex::new(pattern).expect("the patterns below are constants that the tests compile")
}

static SSN: LazyLock<Regex> = LazyLock::new(|| fixed(r"^[0-9]{3}[- ]?[0-9]{2}[- ]?[0-9]{4}$"));
static HEX_COLOR: LazyLock<Regex> = LazyLock::new(|| fixed("^#?([0-9a-fA-F]{3}|[0-9a-fA-F]{6})$"));
static RGB_COLOR: LazyLock<Regex> = LazyLock::new(|| {
    let byte = r"\s*(0|[1-9][0-9]?|1[0-9][0-9]?|2[0-4][0-9]|25[0-5])\s*";
    fixed(&format!(r"^rgb\({byte},{byte},{byte}\)$"))
});
static BASE64: LazyLock<Regex> =
    LazyLock::new(|| fixed("^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{4})$"));
static CREDIT_CARD: LazyLock<Regex> = LazyLock::new(|| {
    fixed(
        "^(?:4[0-9]{12}(?:[0-9]{3})?|5[1-5][0-9]{14}|(222[1-9]|22[3-9][0-9]|2[3-6][0-9]{2}|27[01][0-9]|2720)[0-9]{12}\
         |6(?:011|5[0-9][0-9])[0-9]{12}|3[47][0-9]{13}|3(?:0[0-5]|[68][0-9])[0-9]{11}|(?:2131|1800|35[0-9]{3})[0-9]{11}\
         |6[27][0-9]{14})$",
    )
});
static HOSTNAME: LazyLock<Regex> = LazyLock::new(|| {
    fixed(
        r"^([a-zA-Z0-9\p{S}\p{L}]((-?[a-zA-Z0-9\p{S}\p{L}]{0,62})?)|([a-zA-Z0-9\p{S}\p{L}](([a-zA-Z0-9\-\p{S}\p{L}]{0,61}[a-zA-Z0-9\p{S}\p{L}])?)(\.)){1,}([a-zA-Z\p{L}]){2,63})$",
    )
});
static TIME_OF_DAY: LazyLock<Regex> =
    LazyLock::new(|| fixed(r"^([0-9]{2}):([0-9]{2}):([0-9]{2})(.[0-9]+)?(z|([+-][0-9]{2}:[0-9]{2}))$"));
static SCALA_DURATION: LazyLock<Regex> = LazyLock::new(|| fixed(r"([0-9]+)\s*([A-Za-zµ]+)"));

fn check(format: &str) -> Option<Check> {
    let normalised = format.replace('-', "");
    FORMATS.iter().find(|(name, _)| *name == normalised).map(|(_, check)| *check)
}

/// Formats that are not known are ignored: `int32` and `int64` are among them.
pub fn is_known_format(format: &str) -> bool {
    check(format).is_some()
}

/// Does the text have the format? Unknown formats fit everything.
pub(crate) fn fits(format: &str, text: &str) -> bool {
    check(format).is_none_or(|check| check(text))
}

/// Go's `url.ParseRequestURI`: absolute, or a path from the root.
fn is_request_uri(text: &str) -> bool {
    if text == "*" {
        return true;
    }
    if text.is_empty() || text.bytes().any(|b| b < b' ' || b == 0x7f) || !has_valid_escapes(text) {
        return false;
    }
    let scheme_end = text.find(|c: char| !(c.is_ascii_alphanumeric() || "+-.".contains(c)));
    let rest = match scheme_end {
        Some(0) => text,
        Some(at) if text[at..].starts_with(':') && text.starts_with(|c: char| c.is_ascii_alphabetic()) => {
            &text[at + 1..]
        }
        _ => return false,
    };
    let Some(authority) = rest.strip_prefix("//") else {
        return rest.starts_with('/') || (rest.len() < text.len() && !rest.is_empty());
    };
    let authority = authority.split(['/', '?']).next().unwrap_or_default();
    let host = authority.rsplit('@').next().unwrap_or_default();
    let port = host.rsplit_once(']').map_or(host, |(_, after)| after).rsplit_once(':').map(|(_, port)| port);
    port.is_none_or(|port| port.bytes().all(|b| b.is_ascii_digit())) && !host.contains([' ', '<', '>', '"', '\\', '^'])
}

fn has_valid_escapes(text: &str) -> bool {
    text.split('%').skip(1).all(|after| after.len() >= 2 && after.bytes().take(2).all(|b| b.is_ascii_hexdigit()))
}

/// `a@b`, or `Name <a@b>`.
fn is_email(text: &str) -> bool {
    let text = text.trim();
    let address = match text.rsplit_once('<') {
        Some((_, tail)) => match tail.strip_suffix('>') {
            Some(address) => address,
            None => return false,
        },
        None => text,
    };
    let Some((local, domain)) = address.rsplit_once('@') else { return false };
    let is_atom = |c: char| c.is_ascii_alphanumeric() || !c.is_ascii() || "!#$%&'*+-/=?^_`{|}~".contains(c);
    let is_dotted = |text: &str| text.split('.').all(|part| !part.is_empty() && part.chars().all(is_atom));
    let quoted = local.len() > 2 && local.starts_with('"') && local.ends_with('"');
    let literal = domain.starts_with('[') && domain.ends_with(']');
    (quoted || is_dotted(local)) && (literal || is_dotted(domain))
}

fn is_hostname(text: &str) -> bool {
    text.len() <= 255 && text.split('.').all(|part| part.len() <= 63) && HOSTNAME.is_match(text)
}

fn is_cidr(text: &str) -> bool {
    let Some((address, bits)) = text.split_once('/') else { return false };
    let most = match address.parse() {
        Ok(IpAddr::V4(_)) => 32,
        Ok(IpAddr::V6(_)) => 128,
        Err(_) => return false,
    };
    !bits.is_empty()
        && bits.len() <= 3
        && bits.bytes().all(|b| b.is_ascii_digit())
        && bits.parse::<u8>().is_ok_and(|bits| bits <= most)
}

/// 6, 8 or 20 bytes, as pairs with `:` or `-`, or as quads with `.`.
fn is_mac(text: &str) -> bool {
    let separated = |separator: char, width: usize, lengths: [usize; 3]| {
        let groups: Vec<&str> = text.split(separator).collect();
        lengths.contains(&groups.len())
            && groups.iter().all(|group| group.len() == width && group.bytes().all(|b| b.is_ascii_hexdigit()))
    };
    separated(':', 2, [6, 8, 20]) || separated('-', 2, [6, 8, 20]) || separated('.', 4, [3, 4, 10])
}

/// Dashes between the groups are optional, each on its own.
fn is_uuid(text: &str, version: Option<char>, rfc_variant: bool) -> bool {
    let mut rest = text;
    let mut groups = Vec::new();
    for (index, width) in [8, 4, 4, 4, 12].into_iter().enumerate() {
        if index > 0 {
            rest = rest.strip_prefix('-').unwrap_or(rest);
        }
        let Some(group) = rest.get(..width) else { return false };
        groups.push(group);
        rest = &rest[width..];
    }
    rest.is_empty()
        && groups.iter().all(|group| group.bytes().all(|b| b.is_ascii_hexdigit()))
        && version.is_none_or(|version| groups[2].starts_with(version))
        && (!rfc_variant || groups[3].starts_with(|c: char| "89abAB".contains(c)))
}

fn isbn_digits(text: &str) -> String {
    text.chars().filter(|c| !c.is_whitespace() && *c != '-').collect()
}

fn is_isbn10(text: &str) -> bool {
    let digits = isbn_digits(text);
    let values: Option<Vec<u32>> =
        digits.chars().enumerate().map(|(at, c)| if at == 9 && c == 'X' { Some(10) } else { c.to_digit(10) }).collect();
    values.is_some_and(|values| {
        values.len() == 10 && (1..).zip(&values).map(|(n, v): (u32, _)| n * v).sum::<u32>() % 11 == 0
    })
}

fn is_isbn13(text: &str) -> bool {
    let values: Option<Vec<u32>> = isbn_digits(text).chars().map(|c| c.to_digit(10)).collect();
    values.is_some_and(|values| {
        values.len() == 13 && [1, 3].iter().cycle().zip(&values).map(|(n, v)| n * v).sum::<u32>() % 10 == 0
    })
}

fn is_credit_card(text: &str) -> bool {
    let digits: String = text.chars().filter(char::is_ascii_digit).collect();
    if !CREDIT_CARD.is_match(&digits) {
        return false;
    }
    let luhn: u32 = digits
        .chars()
        .rev()
        .filter_map(|c| c.to_digit(10))
        .enumerate()
        .map(|(at, d)| if at % 2 == 0 { d } else { d * 2 % 10 + d * 2 / 10 })
        .sum();
    luhn.is_multiple_of(10)
}

fn is_date(text: &str) -> bool {
    text.len() == 10
        && text.bytes().enumerate().all(|(at, b)| if at == 4 || at == 7 { b == b'-' } else { b.is_ascii_digit() })
        && text.parse::<jiff::civil::Date>().is_ok()
}

fn is_date_time(text: &str) -> bool {
    let lower = text.to_lowercase();
    let Some((date, time)) = lower.split_once('t') else { return false };
    let Some(parts) = TIME_OF_DAY.captures(time) else { return false };
    is_date(date) && &parts[1] <= "23" && &parts[2] <= "59" && &parts[3] <= "59"
}

/// Go's syntax (`1h30m`) or Scala's (`3 days`).
fn is_duration(text: &str) -> bool {
    const EXACT: [&str; 15] =
        ["ns", "us", "µs", "ms", "s", "m", "h", "hr", "d", "w", "wk", "nano", "micro", "milli", "sec"];
    const PREFIXES: [&str; 8] = ["nano", "micro", "milli", "sec", "min", "hour", "day", "week"];
    if is_go_duration(text) {
        return true;
    }
    SCALA_DURATION.captures_iter(text).any(|parts| {
        let unit = parts[2].to_lowercase();
        EXACT.contains(&unit.as_str()) || PREFIXES.iter().any(|prefix| unit.starts_with(prefix))
    })
}

fn is_go_duration(text: &str) -> bool {
    let mut rest = text.strip_prefix(['-', '+']).unwrap_or(text);
    if rest == "0" {
        return true;
    }
    if rest.is_empty() {
        return false;
    }
    while !rest.is_empty() {
        let number = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.').len();
        let digits = &rest[..number];
        if !digits.contains(|c: char| c.is_ascii_digit()) || digits.matches('.').count() > 1 {
            return false;
        }
        rest = &rest[number..];
        let unit = rest.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(rest.len());
        if !["ns", "us", "µs", "μs", "ms", "s", "m", "h"].contains(&&rest[..unit]) {
            return false;
        }
        rest = &rest[unit..];
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_format_knows_good_from_bad() {
        let cases: [(&str, &[&str], &[&str]); 20] = [
            (
                "date-time",
                &["2024-01-02T03:04:05Z", "2024-01-02t03:04:05.5+01:00"],
                &["", "2024-01-02", "2024-01-02T25:00:00Z"],
            ),
            ("date", &["2024-02-29"], &["2023-02-29", "24-01-01", "2024-1-1"]),
            ("byte", &["YQ==", "YWJj"], &["", "a", "YQ="]),
            (
                "uri",
                &["http://a.b/c", "/a", "mailto:x", "http://[::1]:80/"],
                &["", "a b", "foo", "http://a:x/", ":a", "/%zz"],
            ),
            ("ipv4", &["1.2.3.4"], &["1.2.3", "::1", "1.2.3.04"]),
            ("ipv6", &["::1", "fe80::1"], &["1.2.3.4", "::g"]),
            ("cidr", &["10.0.0.0/8", "::/0"], &["10.0.0.0", "10.0.0.0/33", "10.0.0.0/+8"]),
            ("mac", &["01:02:03:04:05:06", "0102.0304.0506"], &["01:02", "01:02:03:04:05:0g"]),
            ("uuid", &["123e4567-e89b-12d3-a456-426614174000", "123E4567E89B12D3A456426614174000"], &["x", "123e4567"]),
            ("uuid4", &["123e4567-e89b-42d3-a456-426614174000"], &["123e4567-e89b-12d3-a456-426614174000"]),
            ("email", &["a@b.c", "N <a@b>"], &["a", "a@", "@b", "a@b <c"]),
            ("hostname", &["a.example.com", "localhost"], &["", "-a", "a..b"]),
            ("duration", &["1h30m", "22 ns", "3 days", "0"], &["", "x", "1y"]),
            ("isbn10", &["0321751043"], &["0321751044"]),
            ("isbn13", &["978-0321751041"], &["978-0321751042"]),
            ("creditcard", &["4111 1111 1111 1111"], &["4111111111111112"]),
            ("ssn", &["123-45-6789"], &["123"]),
            ("hexcolor", &["#FFF", "ffffff"], &["#FFFF"]),
            ("rgbcolor", &["rgb(255,0,10)"], &["rgb(256,0,0)"]),
            ("bsonobjectid", &["507f1f77bcf86cd799439011"], &["507f"]),
        ];
        for (format, good, bad) in cases {
            assert!(is_known_format(format), "{format}");
            for text in good {
                assert!(fits(format, text), "{format}: {text:?}");
            }
            for text in bad {
                assert!(!fits(format, text), "{format}: {text:?}");
            }
        }
        assert!(!is_known_format("int32") && fits("int32", "x"));
        // New in 1.34, and so not enforced before 1.35.
        assert!(!is_known_format("k8s-short-name"));
    }
}
