//! When a schedule fires: five fields as in crontab, or a name such as `@daily`. Times are UTC, to the minute.
//!
//! The fields are read as the CronJobs of Kubernetes read them: names of months and days, lists, ranges and steps, `?` for
//! `*`, Sunday is 0. Where both the day of the month and the day of the week are said, one of them is enough.

use jiff::civil::{Date, DateTime};
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan};

const MONTHS: [&str; 12] = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
const DAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];
const MINUTES_OF_A_DAY: i16 = 24 * 60;
/// There may be eight years between two leap days.
const FURTHEST_YEARS: i16 = 9;

/// The values of each field that it fires at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cron {
    minutes: Field,
    hours: Field,
    days: Field,
    months: Field,
    weekdays: Field,
}

impl Cron {
    /// `None` if it is none.
    pub fn parse(text: &str) -> Option<Self> {
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
            minutes: Field::parse(minute, 0, 59, &[])?,
            hours: Field::parse(hour, 0, 23, &[])?,
            days: Field::parse(day, 1, 31, &[])?,
            months: Field::parse(month, 1, 12, &MONTHS)?,
            weekdays: Field::parse(weekday, 0, 6, &DAYS)?,
        })
    }

    /// The least number of minutes between two times within an hour; `None` if it fires once an hour at the most.
    pub fn gap(&self) -> Option<u8> {
        let minutes: Vec<u8> = (0..60).filter(|minute| self.minutes.has(*minute)).collect();
        minutes.windows(2).map(|pair| pair[1] - pair[0]).min()
    }

    /// How many minutes apart two fire that otherwise fire at the same times.
    pub fn offset(&self, other: &Self) -> Option<u8> {
        let first = |cron: &Self| (0..60).find(|minute| cron.minutes.has(*minute));
        let apart = first(self)?.abs_diff(first(other)?);
        let is_alike = (&self.hours, &self.days, &self.months, &self.weekdays)
            == (&other.hours, &other.days, &other.months, &other.weekdays);
        is_alike.then(|| apart.min(60 - apart))
    }

    /// Whether it fires in the minute that this time is in.
    pub fn fires_in(&self, time: Timestamp) -> bool {
        let time = TimeZone::UTC.to_datetime(time);
        self.is_on(time.date()) && self.is_at(i16::from(time.hour()) * 60 + i16::from(time.minute()))
    }

    /// The first time after this one; `None` if there is none for years, as on the 30th of February.
    pub fn next_after(&self, time: Timestamp) -> Option<Timestamp> {
        let start = TimeZone::UTC.to_datetime(time);
        let last = start.date().saturating_add(FURTHEST_YEARS.years());
        let mut from = i16::from(start.hour()) * 60 + i16::from(start.minute()) + 1;
        let mut date = start.date();
        while date <= last {
            let found = self.is_on(date).then(|| (from..MINUTES_OF_A_DAY).find(|minute| self.is_at(*minute))).flatten();
            if let Some(minute) = found {
                return at(date, minute);
            }
            (date, from) = (date.tomorrow().ok()?, 0);
        }
        None
    }

    fn is_on(&self, date: Date) -> bool {
        let day = self.days.has(date.day().unsigned_abs());
        let weekday = self.weekdays.has(date.weekday().to_sunday_zero_offset().unsigned_abs());
        let is_day = if self.days.is_any || self.weekdays.is_any { day && weekday } else { day || weekday };
        is_day && self.months.has(date.month().unsigned_abs())
    }

    /// In minutes since midnight.
    fn is_at(&self, minute: i16) -> bool {
        let part = |value: i16| u8::try_from(value).unwrap_or(u8::MAX);
        self.hours.has(part(minute / 60)) && self.minutes.has(part(minute % 60))
    }
}

fn at(date: Date, minute: i16) -> Option<Timestamp> {
    let (hour, minute) = (i8::try_from(minute / 60).ok()?, i8::try_from(minute % 60).ok()?);
    let time = DateTime::from_parts(date, jiff::civil::Time::new(hour, minute, 0, 0).ok()?);
    TimeZone::UTC.to_timestamp(time).ok()
}

/// One bit for each value.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Field {
    values: u64,
    /// Said as `*`, which for days is not the same as every one of them.
    is_any: bool,
}

impl Field {
    fn parse(text: &str, low: u8, high: u8, names: &[&str]) -> Option<Self> {
        let mut field = Self { values: 0, is_any: false };
        for part in text.split(',') {
            let (range, step) = match part.split_once('/') {
                Some((range, step)) => (range, Some(step.parse::<u8>().ok().filter(|step| *step > 0)?)),
                None => (part, None),
            };
            let (first, last) = match range.split_once('-') {
                Some((first, last)) => (value(first, low, names)?, value(last, low, names)?),
                None if matches!(range, "*" | "?") => {
                    field.is_any |= step.is_none_or(|step| step == 1);
                    (low, high)
                }
                None => {
                    let first = value(range, low, names)?;
                    // `5/10` goes on to the end.
                    (first, if step.is_some() { high } else { first })
                }
            };
            if first < low || last > high || first > last {
                return None;
            }
            for value in (first..=last).step_by(usize::from(step.unwrap_or(1))) {
                field.values |= 1 << value;
            }
        }
        Some(field)
    }

    fn has(&self, value: u8) -> bool {
        value < 64 && self.values & (1 << value) != 0
    }
}

fn value(text: &str, low: u8, names: &[&str]) -> Option<u8> {
    let name = names.iter().position(|name| name.eq_ignore_ascii_case(text));
    match name {
        Some(index) => u8::try_from(index).ok().map(|index| index + low),
        // `+5` is a number too, but no field.
        None if text.bytes().all(|byte| byte.is_ascii_digit()) => text.parse().ok(),
        None => None,
    }
}

#[cfg(test)]
mod tests;
