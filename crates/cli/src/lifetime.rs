//! Lifetimes as people write them: `90s`, `1h30m`, `30d`.

use std::time::Duration;

pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{text:?} is not a duration such as 90s, 1h30m or 30d");
    let mut total = Duration::ZERO;
    let mut rest = text;
    if rest.is_empty() {
        return Err(wrong());
    }
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).ok_or_else(wrong)?;
        let (number, after) = rest.split_at(digits);
        let number: u64 = number.parse().map_err(|_| wrong())?;
        let unit = after.chars().next().ok_or_else(wrong)?;
        let seconds = match unit {
            's' => 1,
            'm' => 60,
            'h' => 3600,
            'd' => 86_400,
            'w' => 7 * 86_400,
            _ => return Err(wrong()),
        };
        let part = number.checked_mul(seconds).map(Duration::from_secs).ok_or_else(wrong)?;
        total = total.checked_add(part).ok_or_else(wrong)?;
        rest = &after[unit.len_utf8()..];
    }
    Ok(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations() {
        for (text, seconds) in [
            ("90s", Some(90)),
            ("1h30m", Some(5400)),
            ("30d", Some(2_592_000)),
            ("2w", Some(1_209_600)),
            ("0s", Some(0)),
            ("", None),
            ("10", None),
            ("h", None),
            ("1h30", None),
            ("-1h", None),
            ("1ü", None),
            ("99999999999999999999d", None),
            ("18446744073709551615w", None),
        ] {
            assert_eq!(parse(text).ok().map(|duration| duration.as_secs()), seconds, "{text}");
        }
    }
}
