//! The samples of one node or machine: those of the last minutes, and their means for a day.

use std::collections::VecDeque;

use serde_json::{Map, Value, json};

use super::sample::{FIGURES, Names, Sample, number};

/// Seconds between samples.
pub(crate) const INTERVAL: u64 = 5;
const RECENT: usize = 120;
/// Seconds that a mean is of.
const LONG_INTERVAL: u64 = 120;
const LONG: usize = 720;
/// Room is made in such steps: a machine that runs for a minute does not pay for a day.
const STEP: usize = 60;

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Window {
    TenMinutes,
    Day,
}

impl Window {
    pub(crate) fn parse(text: &str) -> Option<Self> {
        match text {
            "10m" => Some(Self::TenMinutes),
            "24h" => Some(Self::Day),
            _ => None,
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct History {
    recent: Ring,
    long: Ring,
    /// The samples that are in no mean yet.
    unsettled: usize,
}

impl History {
    /// `time` is in seconds since 1970.
    pub(super) fn add(&mut self, time: u64, sample: Sample) {
        let newest = self.newest().map(|(time, _)| time);
        // A clock that was set back would make a chart go backwards.
        if newest.is_some_and(|newest| time <= newest) {
            if newest.is_some_and(|newest| newest > time + LONG_INTERVAL) {
                *self = Self::default();
            }
            return;
        }
        if let Some(newest) = newest.filter(|newest| newest / LONG_INTERVAL < time / LONG_INTERVAL)
            && self.unsettled > 0
        {
            let mean = Sample::mean(&self.recent.last(self.unsettled));
            self.long.push(newest, mean, LONG);
            self.unsettled = 0;
        }
        self.recent.push(time, sample, RECENT);
        self.unsettled += 1;
    }

    pub(super) fn newest(&self) -> Option<(u64, &Sample)> {
        self.recent.0.back().map(|(time, sample)| (u64::from(*time), sample))
    }

    /// Of the last samples.
    pub(super) fn mean(&self, count: usize) -> Option<Sample> {
        (!self.recent.0.is_empty()).then(|| Sample::mean(&self.recent.last(count)))
    }

    /// As the API tells it.
    pub(super) fn tell(&self, window: Window, names: &Names) -> Value {
        let (ring, name, interval) = match window {
            Window::TenMinutes => (&self.recent, "10m", INTERVAL),
            Window::Day => (&self.long, "24h", LONG_INTERVAL),
        };
        let times: Vec<u32> = ring.0.iter().map(|(time, _)| *time).collect();
        let series = (0..FIGURES).map(|index| {
            let values: Vec<Value> = ring.0.iter().map(|(_, sample)| number(sample.0[index])).collect();
            (names[index].to_owned(), Value::Array(values))
        });
        let series: Map<String, Value> = series.collect();
        json!({
            "kind": "UsageHistory", "window": name, "intervalSeconds": interval, "times": times, "series": series,
        })
    }
}

#[derive(Debug, Default)]
struct Ring(VecDeque<(u32, Sample)>);

impl Ring {
    fn push(&mut self, time: u64, sample: Sample, most: usize) {
        if self.0.len() == most {
            self.0.pop_front();
        } else if self.0.len() == self.0.capacity() {
            self.0.reserve_exact(STEP);
        }
        // Until 2106.
        self.0.push_back((u32::try_from(time).unwrap_or(u32::MAX), sample));
    }

    fn last(&self, count: usize) -> impl Iterator<Item = &Sample> + Clone {
        self.0.iter().rev().take(count).map(|(_, sample)| sample)
    }
}

#[cfg(test)]
mod tests {
    use super::super::sample::MACHINE;
    use super::*;

    fn sample(value: f32) -> Sample {
        let mut sample = Sample([f32::NAN; FIGURES]);
        sample.0[2] = value;
        sample
    }

    #[test]
    fn a_day_is_kept_in_means_and_ten_minutes_as_they_were() {
        let mut history = History::default();
        let start = 1_767_225_600;
        // Two days, in which the second half of every two minutes is busy.
        for step in 0..2 * 86_400 / INTERVAL {
            let time = start + step * INTERVAL;
            history.add(time, sample(if time % LONG_INTERVAL < LONG_INTERVAL / 2 { 0.0 } else { 1.0 }));
        }
        let recent = history.tell(Window::TenMinutes, &MACHINE);
        let times: Vec<u64> = recent["times"].as_array().unwrap().iter().map(|time| time.as_u64().unwrap()).collect();
        assert_eq!((times.len(), times[119]), (RECENT, start + 2 * 86_400 - INTERVAL));
        assert!(times.windows(2).all(|pair| pair[1] - pair[0] == INTERVAL));
        let day = history.tell(Window::Day, &MACHINE);
        let means = day["series"]["cpuCores"].as_array().unwrap();
        assert_eq!((means.len(), day["intervalSeconds"].as_u64()), (LONG, Some(LONG_INTERVAL)));
        assert!(means.iter().all(|mean| mean == 0.5), "{means:?}");
        assert!(day["series"]["memoryBytes"][0].is_null());
        // What is promised in docs/usage.md.
        let each = size_of::<(u32, Sample)>();
        assert!((history.recent.0.capacity() + history.long.0.capacity()) * each <= 36 << 10);
    }

    #[test]
    fn a_gap_is_a_jump_and_a_clock_that_goes_back_starts_anew() {
        let mut history = History::default();
        for time in [1000, 1005, 5000, 5000, 4990] {
            history.add(time, sample(1.0));
        }
        assert_eq!(history.tell(Window::TenMinutes, &MACHINE)["times"], json!([1000, 1005, 5000]));
        assert_eq!(history.tell(Window::Day, &MACHINE)["times"], json!([1005]));
        history.add(10, sample(1.0));
        history.add(15, sample(1.0));
        assert_eq!(history.tell(Window::TenMinutes, &MACHINE)["times"], json!([15]));
    }
}
