//! Timestamps as the API writes them, and ages as tables show them. No clock: callers pass times in.

use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::Offset;

use crate::field::go_quote;

const LAYOUT: &str = "2006-01-02T15:04:05Z07:00";
const MICRO_LAYOUT: &str = "2006-01-02T15:04:05.000000Z07:00";

/// `metav1.Time`: `2024-01-02T03:04:05Z`, fractions dropped.
pub fn format_seconds(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// `metav1.MicroTime`: always six fractional digits.
pub fn format_micros(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string()
}

/// `metav1.Time` from seconds since 1970; times that a calendar cannot hold read as the nearest it can.
pub fn format_unix_seconds(seconds: i64) -> String {
    let clamped = seconds.clamp(Timestamp::MIN.as_second(), Timestamp::MAX.as_second());
    format_seconds(Timestamp::from_second(clamped).unwrap_or(Timestamp::UNIX_EPOCH))
}

/// Strict RFC 3339, with the errors of Go's `time.Parse`.
pub fn parse(text: &str) -> Result<Timestamp, String> {
    scan(Scanner { text, rest: text, layout: LAYOUT })
}

/// `metav1.MicroTime`: RFC 3339 with exactly six fractional digits.
pub fn parse_micros(text: &str) -> Result<Timestamp, String> {
    scan(Scanner { text, rest: text, layout: MICRO_LAYOUT })
}

fn scan(mut scanner: Scanner<'_>) -> Result<Timestamp, String> {
    let text = scanner.text;
    let year = scanner.number(4, "2006")?;
    scanner.literal("-")?;
    let month = scanner.number(2, "01")?;
    if !(1..=12).contains(&month) {
        return Err(scanner.out_of_range("month"));
    }
    scanner.literal("-")?;
    let day = scanner.number(2, "02")?;
    scanner.literal("T")?;
    let hour = scanner.number(2, "15")?;
    if hour > 23 {
        return Err(scanner.out_of_range("hour"));
    }
    scanner.literal(":")?;
    let minute = scanner.number(2, "04")?;
    if minute > 59 {
        return Err(scanner.out_of_range("minute"));
    }
    scanner.literal(":")?;
    let second = scanner.number(2, "05")?;
    if second > 59 {
        return Err(scanner.out_of_range("second"));
    }
    let nanosecond = if scanner.layout == MICRO_LAYOUT { scanner.six_digits()? } else { scanner.fraction() };
    let offset_seconds = scanner.offset()?;
    if !scanner.rest.is_empty() {
        return Err(format!("parsing time {}: extra text: {}", go_quote(text), go_quote(scanner.rest)));
    }
    // Two and four digits fit.
    let small = |n: i32| i8::try_from(n).unwrap_or(i8::MAX);
    let year = i16::try_from(year).unwrap_or(i16::MAX);
    let date = Date::new(year, small(month), small(day)).map_err(|_| scanner.out_of_range("day"))?;
    let time = date.at(small(hour), small(minute), small(second), nanosecond);
    let offset = Offset::from_seconds(offset_seconds).map_err(|_| scanner.out_of_range("time zone offset hour"))?;
    offset.to_timestamp(time).map_err(|_| scanner.out_of_range("year"))
}

struct Scanner<'a> {
    text: &'a str,
    rest: &'a str,
    layout: &'static str,
}

impl Scanner<'_> {
    fn cannot(&self, expected: &str) -> String {
        let (text, rest) = (go_quote(self.text), go_quote(self.rest));
        format!("parsing time {text} as \"{}\": cannot parse {rest} as \"{expected}\"", self.layout)
    }

    fn out_of_range(&self, what: &str) -> String {
        format!("parsing time {}: {what} out of range", go_quote(self.text))
    }

    fn number(&mut self, digits: usize, expected: &str) -> Result<i32, String> {
        let number = self.rest.get(..digits).filter(|head| head.bytes().all(|b| b.is_ascii_digit()));
        let number = number.and_then(|head| head.parse().ok()).ok_or_else(|| self.cannot(expected))?;
        self.rest = &self.rest[digits..];
        Ok(number)
    }

    fn literal(&mut self, expected: &str) -> Result<(), String> {
        self.rest = self.rest.strip_prefix(expected).ok_or_else(|| self.cannot(expected))?;
        Ok(())
    }

    /// `.5` or `,5`, optional; digits past the ninth are dropped.
    fn fraction(&mut self) -> i32 {
        let Some(tail) = self.rest.strip_prefix(['.', ',']) else { return 0 };
        let end = tail.find(|c: char| !c.is_ascii_digit()).unwrap_or(tail.len());
        if end == 0 {
            return 0;
        }
        let digits = &tail[..end.min(9)];
        self.rest = &tail[end..];
        format!("{digits:0<9}").parse().unwrap_or(0)
    }

    fn six_digits(&mut self) -> Result<i32, String> {
        let digits = self.rest.strip_prefix('.').and_then(|tail| tail.get(..6));
        let digits = digits.filter(|digits| digits.bytes().all(|b| b.is_ascii_digit()));
        let micros: i32 = digits.and_then(|digits| digits.parse().ok()).ok_or_else(|| self.cannot(".000000"))?;
        self.rest = &self.rest[7..];
        Ok(micros * 1000)
    }

    fn offset(&mut self) -> Result<i32, String> {
        if let Some(rest) = self.rest.strip_prefix('Z') {
            self.rest = rest;
            return Ok(0);
        }
        let mut zone = Scanner { text: self.text, rest: self.rest, layout: self.layout };
        let sign = match zone.rest.bytes().next() {
            Some(b'+') => 1,
            Some(b'-') => -1,
            _ => return Err(self.cannot("Z07:00")),
        };
        zone.rest = &zone.rest[1..];
        let mut scan = || -> Result<(i32, i32), String> {
            let hours = zone.number(2, "Z07:00")?;
            zone.literal(":")?;
            Ok((hours, zone.number(2, "Z07:00")?))
        };
        let (hours, minutes) = scan().map_err(|_| self.cannot("Z07:00"))?;
        if hours > 24 {
            return Err(self.out_of_range("time zone offset hour"));
        }
        if minutes > 60 {
            return Err(self.out_of_range("time zone offset minute"));
        }
        self.rest = zone.rest;
        Ok(sign * (hours * 3600 + minutes * 60))
    }
}

/// An age for people: `45s`, `3m10s`, `7h30m`, `12d`, `2y40d`.
pub fn human_duration(seconds: i64) -> String {
    // Clocks differ a little; nearly now is now.
    if seconds < -1 {
        return "<invalid>".to_owned();
    }
    if seconds < 0 {
        return "0s".to_owned();
    }
    if seconds < 120 {
        return format!("{seconds}s");
    }
    let minutes = seconds / 60;
    if minutes < 10 {
        return two(minutes, "m", seconds % 60, "s");
    }
    if minutes < 180 {
        return format!("{minutes}m");
    }
    let hours = minutes / 60;
    let days = hours / 24;
    match hours {
        ..8 => two(hours, "h", minutes % 60, "m"),
        8..48 => format!("{hours}h"),
        48..192 => two(days, "d", hours % 24, "h"),
        192..17_520 => format!("{days}d"),
        17_520..70_080 => two(days / 365, "y", days % 365, "d"),
        _ => format!("{}y", days / 365),
    }
}

/// `3m10s`, or `3m` when the smaller unit is zero.
fn two(big: i64, big_unit: &str, small: i64, small_unit: &str) -> String {
    if small == 0 { format!("{big}{big_unit}") } else { format!("{big}{big_unit}{small}{small_unit}") }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn ages_read_as_kubectl_shows_them() {
        let (minute, hour, day) = (60, 3600, 86_400);
        let cases = [
            (-2, "<invalid>"),
            (-1, "0s"),
            (119, "119s"),
            (120, "2m"),
            (3 * minute + 10, "3m10s"),
            (10 * minute, "10m"),
            (179 * minute, "179m"),
            (3 * hour, "3h"),
            (7 * hour + 30 * minute, "7h30m"),
            (47 * hour, "47h"),
            (2 * day, "2d"),
            (7 * day + 5 * hour, "7d5h"),
            (8 * day, "8d"),
            (730 * day, "2y"),
            (770 * day, "2y40d"),
            (8 * 365 * day, "8y"),
        ];
        for (seconds, want) in cases {
            assert_eq!(human_duration(seconds), want);
        }
    }

    #[test]
    fn bad_times_get_gos_words() {
        let cases = [
            ("x", r#"parsing time "x" as "2006-01-02T15:04:05Z07:00": cannot parse "x" as "2006""#),
            ("2024-13-01T00:00:00Z", r#"parsing time "2024-13-01T00:00:00Z": month out of range"#),
            ("2024-02-30T00:00:00Z", r#"parsing time "2024-02-30T00:00:00Z": day out of range"#),
            (
                "2024-01-02 03:04:05Z",
                r#"parsing time "2024-01-02 03:04:05Z" as "2006-01-02T15:04:05Z07:00": cannot parse " 03:04:05Z" as "T""#,
            ),
            (
                "2024-01-02T03:04:05",
                r#"parsing time "2024-01-02T03:04:05" as "2006-01-02T15:04:05Z07:00": cannot parse "" as "Z07:00""#,
            ),
            ("2024-01-02T03:04:05Zx", r#"parsing time "2024-01-02T03:04:05Zx": extra text: "x""#),
        ];
        for (text, want) in cases {
            assert_eq!(parse(text), Err(want.to_owned()));
        }
    }

    #[test]
    fn a_micro_time_needs_its_six_digits() {
        let want = r#"parsing time "2024-01-01T00:00:00Z" as "2006-01-02T15:04:05.000000Z07:00": cannot parse "Z" as ".000000""#;
        assert_eq!(parse_micros("2024-01-01T00:00:00Z"), Err(want.to_owned()));
    }

    #[test]
    fn offsets_and_fractions_are_understood() {
        let time = parse("2024-01-02T03:04:05.123456+01:30").expect("valid");
        assert_eq!(format_seconds(time), "2024-01-02T01:34:05Z");
        assert_eq!(format_micros(time), "2024-01-02T01:34:05.123456Z");
        assert_eq!(format_unix_seconds(0), "1970-01-01T00:00:00Z");
    }

    proptest! {
        #[test]
        fn formatted_times_parse_back(micros in 0_i64..4_000_000_000_000_000) {
            let time = Timestamp::from_microsecond(micros).expect("in range");
            prop_assert_eq!(parse(&format_micros(time)), Ok(time));
            prop_assert_eq!(parse_micros(&format_micros(time)), Ok(time));
        }

        #[test]
        fn any_text_is_parsed_or_refused(text in ".*") {
            let _ = parse(&text);
        }
    }
}
