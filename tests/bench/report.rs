//! The table.

use std::time::Duration;

/// Rows are printed as they come, so that a run that is cut short still shows what it saw.
#[derive(Debug)]
pub(crate) struct Report {
    missed: usize,
}

/// One line: what was measured, Croft's figure, the rival's, and the goal.
#[derive(Debug)]
pub(crate) struct Row<'a> {
    pub(crate) what: &'a str,
    pub(crate) croft: String,
    pub(crate) rival: String,
    /// How many times better than the rival.
    pub(crate) ratio: Option<f64>,
    pub(crate) goal: String,
    pub(crate) met: bool,
}

impl Report {
    pub(crate) fn new(divisor: usize) -> Self {
        let cores = std::thread::available_parallelism().map_or(0, usize::from);
        let profile = if cfg!(debug_assertions) { "debug build: not for the record" } else { "release build" };
        println!("{cores} cores, {profile}{}\n", if divisor > 1 { ", quick run: a tenth of the objects" } else { "" });
        println!("| measure | Croft | rival | ratio | goal | met |");
        println!("|---|---|---|---|---|---|");
        Self { missed: 0 }
    }

    pub(crate) fn row(&mut self, row: &Row) {
        self.missed += usize::from(!row.met);
        let ratio = row.ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2} x"));
        let met = if row.met { "yes" } else { "**no**" };
        println!("| {} | {} | {} | {ratio} | {} | {met} |", row.what, row.croft, row.rival, row.goal);
    }

    /// A row that is held to an absolute figure only.
    pub(crate) fn absolute(&mut self, what: &str, croft: String, goal: &str, met: bool) {
        self.row(&Row { what, croft, rival: "-".into(), ratio: None, goal: goal.into(), met });
    }

    /// For comparison: no goal.
    pub(crate) fn note(&mut self, what: &str, rival: String) {
        self.row(&Row { what, croft: "-".into(), rival, ratio: None, goal: "-".into(), met: true });
    }

    pub(crate) fn finish(self) {
        println!(
            "\n{}",
            if self.missed == 0 { "All goals met.".to_owned() } else { format!("Goals missed: {}.", self.missed) }
        );
    }
}

/// The value below which `part` of the sorted samples lie.
pub(crate) fn percentile(samples: &mut [Duration], part: f64) -> Duration {
    samples.sort_unstable();
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "an index of a short list"
    )]
    let index = ((samples.len() as f64 - 1.0) * part).round() as usize;
    samples.get(index).copied().unwrap_or_default()
}

pub(crate) fn median(samples: &mut [Duration]) -> Duration {
    percentile(samples, 0.5)
}

pub(crate) fn ms(duration: Duration) -> String {
    format!("{:.2} ms", duration.as_secs_f64() * 1000.0)
}

pub(crate) fn seconds(duration: Duration) -> String {
    format!("{:.2} s", duration.as_secs_f64())
}

#[expect(clippy::cast_precision_loss, reason = "for people to read")]
pub(crate) fn mib(bytes: u64) -> String {
    format!("{:.0} MiB", bytes as f64 / f64::from(1 << 20))
}

pub(crate) fn ratio(rival: Duration, croft: Duration) -> f64 {
    rival.as_secs_f64() / croft.as_secs_f64().max(1e-9)
}
