//! One look: what is used at that moment, and what has been counted until then.

use serde_json::{Map, Value, json};

/// How many figures a sample has.
pub(super) const FIGURES: usize = 9;

/// What each figure is called, in the order of a sample.
pub(super) type Names = [&'static str; FIGURES];

pub(super) const MACHINE: Names = [
    "memoryBytes",
    "guestMemoryBytes",
    "cpuCores",
    "diskReadBytesPerSecond",
    "diskWriteBytesPerSecond",
    "diskReadsPerSecond",
    "diskWritesPerSecond",
    "networkReceiveBytesPerSecond",
    "networkTransmitBytesPerSecond",
];
/// The same, with the second about the node's pools.
pub(super) const NODE: Names = {
    let mut names = MACHINE;
    names[1] = "storageBytes";
    names
};
/// So many come first that are what they are; the others are rates.
const LEVELS: usize = 2;

/// What was read, as far as it could be. Counters only grow, unless what they count was replaced.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Reading {
    /// Seconds of some clock that does not jump.
    pub(super) at: f64,
    pub(super) levels: [Option<f64>; LEVELS],
    /// Seconds of processors, then bytes and operations of disks, then bytes of links.
    pub(super) counters: [Option<f64>; FIGURES - LEVELS],
}

impl Reading {
    /// What the guest said last still holds.
    pub(super) fn keep_guest_memory(&mut self, before: &Self) {
        self.levels[1] = before.levels[1];
    }
}

/// Figures in the order of [`Names`]; what is not known is not a number. Four bytes are exact enough to draw.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample(pub(super) [f32; FIGURES]);

impl Sample {
    pub(super) fn between(before: &Reading, after: &Reading) -> Self {
        let passed = after.at - before.at;
        let rate = |index: usize| {
            let (before, after) = (before.counters[index]?, after.counters[index]?);
            // A counter that went back belongs to something else by now.
            (passed > 0.0 && after >= before).then(|| (after - before) / passed)
        };
        let figure = |index: usize| if index < LEVELS { after.levels[index] } else { rate(index - LEVELS) };
        Self(std::array::from_fn(|index| figure(index).map_or(f32::NAN, narrow)))
    }

    /// The mean of what is known of each figure.
    pub(super) fn mean<'a>(samples: &(impl Iterator<Item = &'a Self> + Clone)) -> Self {
        Self(std::array::from_fn(|index| {
            let known = samples.clone().map(|sample| sample.0[index]).filter(|value| !value.is_nan());
            let (sum, count) = known.fold((0.0, 0.0), |(sum, count), value| (sum + f64::from(value), count + 1.0));
            if count > 0.0 { narrow(sum / count) } else { f32::NAN }
        }))
    }

    /// By name, without what is not known.
    pub(super) fn known(&self, names: &Names) -> Value {
        let known = names.iter().zip(self.0).filter(|(_, value)| !value.is_nan());
        Value::Object(known.map(|(name, value)| ((*name).to_owned(), number(value))).collect::<Map<_, _>>())
    }
}

/// As it is told: cores to a thousandth, everything else in whole numbers.
pub(super) fn number(value: f32) -> Value {
    let value = f64::from(value);
    if value.is_nan() {
        return Value::Null;
    }
    let rounded = if value < 1000.0 { (value * 1000.0).round() / 1000.0 } else { value.round() };
    json!(rounded)
}

#[expect(clippy::cast_possible_truncation, reason = "a chart needs no more than seven digits")]
fn narrow(value: f64) -> f32 {
    value as f32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(at: f64, memory: f64, cpu: Option<f64>, read: f64) -> Reading {
        let mut counters = [None; FIGURES - LEVELS];
        (counters[0], counters[1]) = (cpu, Some(read));
        Reading { at, levels: [Some(memory), None], counters }
    }

    #[test]
    fn rates_are_what_was_counted_in_the_time_between() {
        let sample = Sample::between(&reading(10.0, 1.0, Some(3.0), 100.0), &reading(15.0, 4096.0, Some(5.5), 5100.0));
        assert_eq!(
            sample.known(&MACHINE),
            json!({ "memoryBytes": 4096.0, "cpuCores": 0.5, "diskReadBytesPerSecond": 1000.0 })
        );
    }

    #[test]
    fn what_went_back_or_is_missing_is_not_known() {
        let before = reading(10.0, 1.0, Some(3.0), 100.0);
        for (after, known) in [
            (reading(15.0, 2.0, None, 200.0), vec!["diskReadBytesPerSecond", "memoryBytes"]),
            (reading(15.0, 2.0, Some(1.0), 50.0), vec!["memoryBytes"]),
            (reading(10.0, 2.0, Some(4.0), 200.0), vec!["memoryBytes"]),
        ] {
            let told = Sample::between(&before, &after).known(&MACHINE);
            assert_eq!(told.as_object().unwrap().keys().collect::<Vec<_>>(), known, "{after:?}");
        }
    }

    #[test]
    fn a_mean_is_of_what_is_known() {
        let with = |first: f32, second: f32| {
            let mut sample = Sample([f32::NAN; FIGURES]);
            (sample.0[0], sample.0[2]) = (first, second);
            sample
        };
        let mean = Sample::mean(&[with(1000.0, 0.25), with(3000.0, f32::NAN)].iter());
        assert_eq!(mean.known(&NODE), json!({ "memoryBytes": 2000.0, "cpuCores": 0.25 }));
    }
}
