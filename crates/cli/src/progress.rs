//! Bars for long work, on standard error; silent where nobody watches.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

use crate::output::bytes;

const TICK: Duration = Duration::from_millis(120);

/// Bytes on their way.
pub(crate) fn transfer(what: &str, total: Option<u64>) -> ProgressBar {
    let bar = total.map_or_else(ProgressBar::new_spinner, ProgressBar::new);
    let template = match total {
        Some(_) => "{msg} {wide_bar} {bytes}/{total_bytes} {bytes_per_sec} {eta}",
        None => "{msg} {spinner} {bytes} {bytes_per_sec}",
    };
    finish(bar, what, template)
}

/// Work whose state is a word or a percentage.
pub(crate) fn waiting(what: &str) -> ProgressBar {
    let bar = finish(ProgressBar::new_spinner(), what, "{spinner} {msg} {elapsed}");
    bar.enable_steady_tick(TICK);
    bar
}

/// Work that is done in hundredths.
pub(crate) fn percent(what: &str) -> ProgressBar {
    finish(ProgressBar::new(100), what, "{msg} {wide_bar} {pos} %")
}

/// Work elsewhere that is told of in hundredths, at times with a speed.
#[derive(Debug)]
pub(crate) struct Distant(ProgressBar);

impl Distant {
    pub(crate) fn new(what: &str) -> Self {
        let bar = finish(ProgressBar::new(100), what, "{msg} {wide_bar} {pos} %{prefix} {eta}");
        bar.enable_steady_tick(TICK);
        Self(bar)
    }

    pub(crate) fn tell(&self, percent: u64, bytes_per_second: Option<u64>) {
        self.0.set_prefix(bytes_per_second.map(|speed| format!(" {}/s", bytes(speed))).unwrap_or_default());
        self.0.set_position(percent);
    }
}

impl Drop for Distant {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

fn finish(bar: ProgressBar, what: &str, template: &str) -> ProgressBar {
    // The templates are ours, and right.
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar.set_message(what.to_owned());
    bar
}
