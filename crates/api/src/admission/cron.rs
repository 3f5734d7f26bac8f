//! When a schedule fires: five fields as in crontab, or a name such as `@daily`.

use std::collections::BTreeSet;

const MONTHS: [&str; 12] = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
const DAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];

/// The values of each field that it fires at.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Cron {
    minutes: BTreeSet<u8>,
    /// Hours, days, months and days of the week.
    rest: [BTreeSet<u8>; 4],
}

impl Cron {
    /// `None` if it is none.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let text = match text.trim() {
            "@yearly" | "@annually" => "0 0 1 1 *",
            "@monthly" => "0 0 1 * *",
            "@weekly" => "0 0 * * 0",
            "@daily" | "@midnight" => "0 0 * * *",
            "@hourly" => "0 * * * *",
            text => text,
        };
        let fields: Vec<&str> = text.split_whitespace().collect();
        let [minute, hour, day, month, weekday] = fields.as_slice() else { return None };
        Some(Self {
            minutes: field(minute, 0, 59, &[])?,
            rest: [
                field(hour, 0, 23, &[])?,
                field(day, 1, 31, &[])?,
                field(month, 1, 12, &MONTHS)?,
                field(weekday, 0, 6, &DAYS)?,
            ],
        })
    }

    /// The minutes between two times within an hour; `None` if it fires once an hour at the most.
    pub(super) fn gap(&self) -> Option<u8> {
        let following = self.minutes.iter().skip(1);
        self.minutes.iter().zip(following).map(|(before, after)| after - before).min()
    }

    /// How many minutes apart two fire that otherwise fire at the same times.
    pub(super) fn offset(&self, other: &Self) -> Option<u8> {
        let (own, their) = (self.minutes.first()?, other.minutes.first()?);
        let apart = own.abs_diff(*their);
        (self.rest == other.rest).then(|| apart.min(60 - apart))
    }
}

fn field(text: &str, low: u8, high: u8, names: &[&str]) -> Option<BTreeSet<u8>> {
    let mut values = BTreeSet::new();
    for part in text.split(',') {
        let (range, step) = match part.split_once('/') {
            Some((range, step)) => (range, Some(step.parse::<u8>().ok().filter(|step| *step > 0)?)),
            None => (part, None),
        };
        let (first, last) = match range.split_once('-') {
            Some((first, last)) => (value(first, low, names)?, value(last, low, names)?),
            None if matches!(range, "*" | "?") => (low, high),
            None => {
                let first = value(range, low, names)?;
                // `5/10` goes on to the end.
                (first, if step.is_some() { high } else { first })
            }
        };
        if first < low || last > high || first > last {
            return None;
        }
        values.extend((first..=last).step_by(usize::from(step.unwrap_or(1))));
    }
    Some(values)
}

fn value(text: &str, low: u8, names: &[&str]) -> Option<u8> {
    let name = names.iter().position(|name| name.eq_ignore_ascii_case(text));
    match name {
        Some(index) => u8::try_from(index).ok().map(|index| index + low),
        None => text.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn five_fields_or_a_name() {
        for text in ["0 1 * * *", "*/30 0-6 1,15 jan-mar mon", "@daily", " 5 4 * * ? ", "0 0/6 * * *"] {
            assert!(Cron::parse(text).is_some(), "{text}");
        }
        for text in ["", "0 1 * *", "60 * * * *", "a * * * *", "*/0 * * * *", "5-2 * * * *", "0 0 0 * *", "@often"] {
            assert!(Cron::parse(text).is_none(), "{text}");
        }
        assert_eq!(Cron::parse("@daily"), Cron::parse("0 0 * * *"));
    }

    #[test]
    fn how_often_and_how_far_apart() {
        let gap = |text: &str| Cron::parse(text).unwrap().gap();
        assert_eq!((gap("*/15 * * * *"), gap("0,50 * * * *"), gap("0 * * * *")), (Some(15), Some(50), None));
        let offset = |a: &str, b: &str| Cron::parse(a).unwrap().offset(&Cron::parse(b).unwrap());
        assert_eq!(offset("0 1 * * *", "5 1 * * *"), Some(5));
        assert_eq!(offset("55 * * * *", "0 * * * *"), Some(5));
        assert_eq!(offset("0 1 * * *", "0 2 * * *"), None);
    }
}
