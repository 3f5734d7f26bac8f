//! Figures in Prometheus' text format: all samples of a name together, after one line that says what it is.

use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Guests choose some of the labels' values, such as the name of their operating system.
const VALUE_LIMIT: usize = 128;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    Counter,
    Gauge,
    Histogram,
}

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Metric {
    pub(super) name: &'static str,
    kind: Kind,
    help: &'static str,
}

pub(super) const fn counter(name: &'static str, help: &'static str) -> Metric {
    Metric { name, kind: Kind::Counter, help }
}

pub(super) const fn gauge(name: &'static str, help: &'static str) -> Metric {
    Metric { name, kind: Kind::Gauge, help }
}

pub(super) const fn histogram(name: &'static str, help: &'static str) -> Metric {
    Metric { name, kind: Kind::Histogram, help }
}

/// How often something was how large.
#[derive(Clone, Debug)]
pub(super) struct Histogram {
    /// By the upper ends of their ranges; each counts what is in those below it too.
    buckets: Vec<(f64, u64)>,
    sum: f64,
    all: u64,
}

impl Histogram {
    pub(super) fn new(ends: &[f64]) -> Histogram {
        Histogram { buckets: ends.iter().map(|end| (*end, 0)).collect(), sum: 0.0, all: 0 }
    }

    pub(super) fn count(&mut self, value: f64) {
        self.buckets.iter_mut().filter(|(end, _)| value <= *end).for_each(|(_, count)| *count += 1);
        self.sum += value;
        self.all += 1;
    }
}

/// The labels of a sample, ready to be written.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Labels(String);

impl Labels {
    #[must_use]
    pub(super) fn with(&self, name: &str, value: &str) -> Labels {
        let mut text = self.0.clone();
        if !text.is_empty() {
            text.push(',');
        }
        text.push_str(name);
        text.push_str("=\"");
        for character in value.chars().take(VALUE_LIMIT) {
            match character {
                '\\' => text.push_str("\\\\"),
                '"' => text.push_str("\\\""),
                '\n' => text.push_str("\\n"),
                other => text.push(other),
            }
        }
        text.push('"');
        Labels(text)
    }

    /// These and others.
    pub(super) fn and(&self, others: &Labels) -> Labels {
        let comma = if self.0.is_empty() || others.0.is_empty() { "" } else { "," };
        Labels(format!("{}{comma}{}", self.0, others.0))
    }
}

/// All figures of one answer.
#[derive(Debug, Default)]
pub(super) struct Page(BTreeMap<&'static str, (Kind, &'static str, String)>);

impl Page {
    pub(super) fn add(&mut self, metric: Metric, labels: &Labels, value: f64) {
        let (_, _, samples) = self.0.entry(metric.name).or_insert_with(|| (metric.kind, metric.help, String::new()));
        // Writing to a string does not fail.
        let _ = match labels.0.as_str() {
            "" => writeln!(samples, "{} {value}", metric.name),
            labels => writeln!(samples, "{}{{{labels}}} {value}", metric.name),
        };
    }

    pub(super) fn add_histogram(&mut self, metric: Metric, labels: &Labels, histogram: &Histogram) {
        let name = metric.name;
        let (_, _, samples) = self.0.entry(name).or_insert_with(|| (metric.kind, metric.help, String::new()));
        let ends = histogram.buckets.iter().map(|(end, count)| (end.to_string(), *count));
        for (end, count) in ends.chain([("+Inf".to_owned(), histogram.all)]) {
            // As above.
            let _ = writeln!(samples, "{name}_bucket{{{}}} {count}", labels.with("le", &end).0);
        }
        let _ = writeln!(samples, "{name}_sum{{{}}} {}", labels.0, histogram.sum);
        let _ = writeln!(samples, "{name}_count{{{}}} {}", labels.0, histogram.all);
    }

    /// For what not every host or guest tells.
    pub(super) fn add_if_known(&mut self, metric: Metric, labels: &Labels, value: Option<f64>) {
        if let Some(value) = value {
            self.add(metric, labels, value);
        }
    }

    pub(super) fn merge(&mut self, other: Page) {
        for (name, (kind, help, samples)) in other.0 {
            self.0.entry(name).or_insert_with(|| (kind, help, String::new())).2.push_str(&samples);
        }
    }

    pub(super) fn finish(self) -> String {
        let mut text = String::new();
        for (name, (kind, help, samples)) in self.0 {
            let kind = match kind {
                Kind::Counter => "counter",
                Kind::Gauge => "gauge",
                Kind::Histogram => "histogram",
            };
            // As above.
            let _ = write!(text, "# HELP {name} {help}\n# TYPE {name} {kind}\n{samples}");
        }
        text
    }
}

/// As Prometheus has all numbers.
#[expect(clippy::cast_precision_loss, reason = "Prometheus' numbers have 53 bits, and counters that large are rounded")]
pub(super) fn number(value: u64) -> f64 {
    value as f64
}

pub(super) fn seconds(nanoseconds: u64) -> f64 {
    std::time::Duration::from_nanos(nanoseconds).as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;

    const READ: Metric = counter("read_total", "What was read.");
    const SIZE: Metric = gauge("a_size_bytes", "How much there is.");

    #[test]
    fn samples_of_a_name_stand_together_after_its_kind() {
        let vm = Labels::default().with("node", "n1").with("name", "vm");
        let mut page = Page::default();
        page.add(READ, &vm.with("drive", "root"), 0.5);
        page.add(SIZE, &Labels::default(), number(1 << 40));
        page.add_if_known(SIZE, &vm, None);
        let mut other = Page::default();
        other.add(READ, &vm.with("drive", "data"), 7.0);
        page.merge(other);
        let expected = "\
# HELP a_size_bytes How much there is.
# TYPE a_size_bytes gauge
a_size_bytes 1099511627776
# HELP read_total What was read.
# TYPE read_total counter
read_total{node=\"n1\",name=\"vm\",drive=\"root\"} 0.5
read_total{node=\"n1\",name=\"vm\",drive=\"data\"} 7
";
        assert_eq!(page.finish(), expected);
    }

    #[test]
    fn a_guests_words_cannot_leave_their_label() {
        let labels = Labels::default().with("os", "a\"} 1\nb\\");
        assert_eq!(labels.0, r#"os="a\"} 1\nb\\""#);
        assert_eq!(Labels::default().with("os", &"x".repeat(1000)).0.len(), "os=\"\"".len() + VALUE_LIMIT);
    }
}
