//! Two ways to write, in turns, so that whatever else the machine does hits both.

use std::time::{Duration, Instant};

use anyhow::Result;

use crate::Size;
use crate::load::{self, Writer};
use crate::report::{Report, Row, median, ms, ratio};

const OBJECT_BYTES: usize = 2048;
const ROUNDS: usize = 5;
const CLIENTS: usize = 8;

/// What single writes took, and how many eight clients made in a second.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Writes {
    p50: Duration,
    per_second: f64,
}

/// Both ways, measured together.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Compared {
    pub(crate) ours: Writes,
    pub(crate) rival: Writes,
}

/// Single writes alternate one by one, eight clients round by round; the middle of each counts. Both give a client of its own each
/// time that they are asked.
pub(crate) async fn compare<A: Writer, B: Writer>(
    size: Size,
    ours: impl Fn() -> Result<A>,
    rival: impl Fn() -> Result<B>,
) -> Result<Compared> {
    let (single, other_single) = (ours()?, rival()?);
    let many = (0..CLIENTS).map(|_| ours()).collect::<Result<Vec<A>>>()?;
    let many_others = (0..CLIENTS).map(|_| rival()).collect::<Result<Vec<B>>>()?;
    load::one_by_one(&single, "warm", 20, OBJECT_BYTES).await?;
    load::one_by_one(&other_single, "warm", 20, OBJECT_BYTES).await?;
    let (mut times, mut rates) = ([Vec::new(), Vec::new()], [Vec::new(), Vec::new()]);
    for round in 0..ROUNDS {
        for number in 0..size.of(200) {
            let name = format!("single-{round}-{number:06}");
            times[0].push(timed(&single, &name).await?);
            times[1].push(timed(&other_single, &name).await?);
        }
        let (prefix, range) = (format!("eight-{round}"), 0..size.of(2000));
        rates[0].push(load::together(&many, &prefix, range.clone(), OBJECT_BYTES).await?);
        rates[1].push(load::together(&many_others, &prefix, range, OBJECT_BYTES).await?);
    }
    let [ours, rival] = [0, 1].map(|of| Writes { p50: median(&mut times[of]), per_second: middle(&mut rates[of]) });
    Ok(Compared { ours, rival })
}

async fn timed(writer: &impl Writer, name: &str) -> Result<Duration> {
    let start = Instant::now();
    writer.write(name, OBJECT_BYTES).await?;
    Ok(start.elapsed())
}

fn middle(figures: &mut [f64]) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied().unwrap_or_default()
}

impl Compared {
    /// A row for each figure; ours may take so many times the rival's time.
    pub(crate) fn tell(&self, report: &mut Report, what: &str, times: f64) {
        let goal = format!("{times} x the time");
        let better = ratio(self.rival.p50, self.ours.p50);
        report.row(&Row {
            what: &format!("{what}: p50"),
            croft: ms(self.ours.p50),
            rival: ms(self.rival.p50),
            ratio: Some(better),
            goal: goal.clone(),
            met: better * times >= 1.0,
        });
        let better = self.ours.per_second / self.rival.per_second;
        report.row(&Row {
            what: &format!("{what}: per second, {CLIENTS} clients"),
            croft: format!("{:.0}/s", self.ours.per_second),
            rival: format!("{:.0}/s", self.rival.per_second),
            ratio: Some(better),
            goal,
            met: better * times >= 1.0,
        });
    }
}
