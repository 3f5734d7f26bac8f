//! The schedule of a CronJob: five fields, or `@hourly` and the like, with the texts of the Go library upstream uses.

const NAMED: &[&str] = &["@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly"];
const MONTHS: &[&str] = &["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
const DAYS: &[&str] = &["sun", "mon", "tue", "wed", "thu", "fri", "sat"];

/// Least and greatest value, names, and the number of the first name.
struct Bounds {
    least: u32,
    greatest: u32,
    names: &'static [&'static str],
}

const FIELDS: [Bounds; 5] = [
    Bounds { least: 0, greatest: 59, names: &[] },
    Bounds { least: 0, greatest: 23, names: &[] },
    Bounds { least: 1, greatest: 31, names: &[] },
    Bounds { least: 1, greatest: 12, names: MONTHS },
    Bounds { least: 0, greatest: 6, names: DAYS },
];

/// What is wrong with a schedule.
pub(super) fn check(schedule: &str) -> Result<(), String> {
    if schedule.starts_with('@') {
        return check_named(schedule);
    }
    let fields: Vec<&str> = schedule.split_whitespace().collect();
    if fields.len() != FIELDS.len() {
        let all = fields.join(" ");
        return Err(format!("expected exactly 5 fields, found {}: [{all}]", fields.len()));
    }
    fields.iter().zip(&FIELDS).try_for_each(|(field, bounds)| field.split(',').try_for_each(|part| range(part, bounds)))
}

fn check_named(schedule: &str) -> Result<(), String> {
    if NAMED.contains(&schedule) {
        return Ok(());
    }
    match schedule.strip_prefix("@every ") {
        Some(every) if is_go_duration(every) => Ok(()),
        Some(every) => Err(format!("failed to parse duration {schedule}: time: invalid duration {every:?}")),
        None => Err(format!("unrecognized descriptor: {schedule}")),
    }
}

/// `1h30m`, `90s`.
fn is_go_duration(text: &str) -> bool {
    let mut rest = text;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let (number, tail) = rest.split_at(digits);
        let Some(unit) =
            ["ns", "us", "µs", "ms", "s", "m", "h"].iter().filter(|u| tail.starts_with(**u)).max_by_key(|u| u.len())
        else {
            return false;
        };
        if number.is_empty() || number.parse::<f64>().is_err() {
            return false;
        }
        rest = &tail[unit.len()..];
    }
    !text.is_empty()
}

/// `*`, `5`, `1-5`, `*/10`, `1-30/2`, `5/10`.
fn range(part: &str, bounds: &Bounds) -> Result<(), String> {
    let pieces: Vec<&str> = part.split('/').collect();
    let ends: Vec<&str> = pieces.first().copied().unwrap_or_default().split('-').collect();
    let (start, mut end) = match ends.as_slice() {
        ["*" | "?"] => (bounds.least, bounds.greatest),
        [single] => {
            let value = number(single, bounds)?;
            (value, value)
        }
        [start, end] => (number(start, bounds)?, number(end, bounds)?),
        _ => return Err(format!("too many hyphens: {part}")),
    };
    let step = match pieces.as_slice() {
        [_] => 1,
        [_, step] => {
            // `5/10` means from 5 on.
            if ends.len() == 1 && ends[0] != "*" && ends[0] != "?" {
                end = bounds.greatest;
            }
            integer(step)?
        }
        _ => return Err(format!("too many slashes: {part}")),
    };
    if start < bounds.least {
        return Err(format!("beginning of range ({start}) below minimum ({}): {part}", bounds.least));
    }
    if end > bounds.greatest {
        return Err(format!("end of range ({end}) above maximum ({}): {part}", bounds.greatest));
    }
    if start > end {
        return Err(format!("beginning of range ({start}) beyond end of range ({end}): {part}"));
    }
    if step == 0 {
        return Err(format!("step of range should be a positive number: {part}"));
    }
    Ok(())
}

fn number(text: &str, bounds: &Bounds) -> Result<u32, String> {
    let lower = text.to_lowercase();
    if let Some(at) = bounds.names.iter().position(|name| *name == lower) {
        return Ok(bounds.least + u32::try_from(at).unwrap_or_default());
    }
    integer(text)
}

fn integer(text: &str) -> Result<u32, String> {
    let number: i64 = text
        .parse()
        .map_err(|_| format!("failed to parse int from {text}: strconv.Atoi: parsing {text:?}: invalid syntax"))?;
    u32::try_from(number).map_err(|_| format!("negative number ({number}) not allowed: {text}"))
}

#[cfg(test)]
mod tests {
    use super::check;

    #[test]
    fn schedules_are_read_like_cron_reads_them() {
        for good in ["* * * * *", "*/5 0-6 1,15 jan-mar MON", "@hourly", "@every 1h30m", "0 0 ? * 1-5", "5/10 * * * *"]
        {
            assert_eq!(check(good), Ok(()), "{good}");
        }
        for (bad, text) in [
            ("bad", "expected exactly 5 fields, found 1: [bad]"),
            ("61 * * * *", "end of range (61) above maximum (59): 61"),
            ("* * 0 * *", "beginning of range (0) below minimum (1): 0"),
            ("5-1 * * * *", "beginning of range (5) beyond end of range (1): 5-1"),
            ("*/0 * * * *", "step of range should be a positive number: */0"),
            ("x * * * *", r#"failed to parse int from x: strconv.Atoi: parsing "x": invalid syntax"#),
            ("@never", "unrecognized descriptor: @never"),
        ] {
            assert_eq!(check(bad), Err(text.to_owned()));
        }
    }
}
